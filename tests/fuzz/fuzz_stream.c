/* fuzz_stream.c - streams in pieces: whatever the pieces, the bytes are taken or refused as they are
 * in one, and what comes out is the same batch. */
#include "formats/dp.h"
#include "libverl/batch/provenance.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/main.h"

static int feed(const uint8_t *p, size_t n, size_t piece, struct vl_batch *out, struct vl_err *e)
{
    struct vl_dp_feed *f = vl_dp_feed_open("fuzz");
    struct vl_batch *doc = NULL;
    size_t docs = 0;
    int got = 0, is = 0;

    for (size_t at = 0; at < n && !e->code; at += piece) {
        vl_dp_feed_add(f, p + at, n - at < piece ? n - at : piece);
        do {
            doc = realloc(doc, (docs + 1) * sizeof *doc);
            assert(doc);
            if (vl_dp_feed_next(f, &doc[docs], &got, e) == 0)
                docs += (size_t)got;
        } while (got && !e->code);
    }
    if (!e->code && vl_dp_feed_end(f, out, &is, e) == 0 && is)
        (void)!vl_prov_join_stream(out, doc, docs, e);
    for (size_t i = 0; i < docs; i++)
        vl_batch_free(&doc[i]);
    free(doc);
    vl_dp_feed_close(f);
    return e->code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t piece[] = { 13, 4096, (size_t)1 << 30 };
    struct vl_err e = { 0 }, other;
    struct vl_batch a, b = { 0 };
    char x[33], y[33];
    int ok = vl_dp_read_bytes(&a, "fuzz", data, size, NULL, &e) == 0;

    for (size_t i = size > 20000; i < sizeof piece / sizeof *piece; i++) {
        other = (struct vl_err){ 0 };
        assert((feed(data, size, piece[i], &b, &other) == 0) == ok);
        if (ok) {
            assert(!vl_dp_hash(&a, x, &e) && !vl_dp_hash(&b, y, &e) && !strcmp(x, y));
        } else {
            assert((other.code == VL_E_DATA || other.code == VL_E_OS) && other.msg[0] &&
                   !strchr(other.msg, '\n'));
        }
        vl_batch_free(&b);
        b = (struct vl_batch){ 0 };
    }
    vl_batch_free(&a);
    return 0;
}
