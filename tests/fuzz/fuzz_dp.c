/* fuzz_dp.c - batch files: any bytes are refused with one line, or are a batch whose parts agree and
 * that can be written again. */
#include "formats/dp.h"
#include "libverl/batch/verify.h"
#include "libverl/batch/view.h"

#include <assert.h>
#include <string.h>

#include "tests/fuzz/main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const some[] = { "a", "info", NULL };
    struct vl_dp_read part = { .columns = some, .row0 = 1, .nrows = 2 };
    struct vl_batch b;
    struct vl_err e = { 0 };
    struct vl_buf t = { 0 };

    if (vl_dp_read_bytes(&b, "fuzz", data, size, NULL, &e) == 0) {
        assert(vl_batch_check(&b, &e) == 0);
        vl_view_schema(&t, &b);
        for (int64_t i = 0; i < b.rows && i < 100; i++)
            if (vl_view_row(&t, &b, i, NULL, NULL, &e))
                break;
        e = (struct vl_err){ 0 };
        if (vl_batch_verify(&b, &e))
            assert(e.code == VL_E_DATA);
        e = (struct vl_err){ 0 };
        assert(vl_dp_write(&b, "/dev/null", NULL, &e) == 0 || e.code == VL_E_DATA);
    } else {
        assert((e.code == VL_E_DATA || e.code == VL_E_OS) && e.msg[0] && !strchr(e.msg, '\n'));
    }
    vl_batch_free(&b);
    e = (struct vl_err){ 0 };
    if (vl_dp_read_bytes(&b, "fuzz", data, size, &part, &e) == 0)
        assert(vl_batch_check(&b, &e) == 0);
    vl_batch_free(&b);
    vl_buf_free(&t);
    return 0;
}
