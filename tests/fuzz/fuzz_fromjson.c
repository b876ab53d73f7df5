/* fuzz_fromjson.c - JSON lines: any bytes are refused with one line, or make a batch whose rows,
 * printed and read again, are the same batch. */
#include "libverl/batch/verify.h"
#include "libverl/batch/fromjson.h"
#include "libverl/batch/view.h"

#include <assert.h>
#include <string.h>

#include "tests/fuzz/main.h"

static void one(const char *text, size_t n, const struct vl_fromjson *opt)
{
    struct vl_batch b = { 0 }, back = { 0 };
    struct vl_err e = { 0 };
    struct vl_buf t = { 0 }, diff = { 0 };

    if (vl_batch_from_json(&b, text, n, "fuzz", opt, NULL, &e)) {
        assert((e.code == VL_E_DATA || e.code == VL_E_OS) && !strchr(e.msg, '\n'));
    } else if (b.rows) {
        struct vl_fromjson like = { .like = &b };

        assert(vl_batch_check(&b, &e) == 0);
        for (int64_t i = 0; i < b.rows; i++) {
            assert(vl_view_row(&t, &b, i, NULL, NULL, &e) == 0);
            vl_buf_ch(&t, '\n');
        }
        if (vl_batch_from_json(&back, t.s, t.n, "again", &like, NULL, &e) == 0)
            assert(vl_batch_diff(&diff, &b, &back) == 0);
        else
            assert(0);
    }
    vl_batch_free(&b);
    vl_batch_free(&back);
    vl_buf_free(&t);
    vl_buf_free(&diff);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const dtype[] = { "n=I64", "h=BF16", "b=BOOL", "u=U64" };
    struct vl_fromjson opt = { .dtype = dtype, .ndtype = 4 }, none = { 0 };

    one((const char *)data, size, &opt);
    one((const char *)data, size, &none);
    return 0;
}
