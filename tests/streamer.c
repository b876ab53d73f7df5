/* streamer.c - a batch file as a stream of documents on standard output: what verl-rollout --stream
 * writes, of any batch, for tests.
 *
 *   streamer FILE ROWS     documents of ROWS rows each */
#include "formats/dp.h"
#include "libverl/batch/ops.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int64_t rows = argc > 2 ? atoll(argv[2]) : 0;
    struct vl_batch all = { 0 }, part = { 0 };
    struct vl_err e = { 0 };
    struct vl_dp_stream s;
    int bad =
        rows < 1 || vl_dp_read(&all, argv[1], NULL, &e) || vl_dp_stream_open(&s, "-", NULL, &e);

    for (int64_t i = 0; !bad && i < all.rows; i += rows) {
        bad = vl_batch_rows(&part, &all, i, rows, &e) || vl_dp_stream_put(&s, &part, &e);
        vl_batch_free(&part);
    }
    bad = bad || vl_dp_stream_close(&s, 1, &e);
    vl_batch_free(&all);
    if (bad)
        fprintf(stderr, "streamer: %s\n", e.msg);
    return bad;
}
