/* fuzz_json.c - the JSON scanner: any bytes are refused or walk as a tree whose parts stay inside. */
#include "formats/json.h"

#include <assert.h>
#include <string.h>

#include "tests/fuzz/main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vl_json j;
    struct vl_err e = { 0 };
    struct vl_buf b = { 0 }, again = { 0 };

    if (vl_json_parse(&j, (const char *)data, size, "fuzz", &e) == 0) {
        assert(j.node[0].next == j.n);
        for (uint32_t i = 0; i < j.n; i++) {
            int64_t x;
            double d;
            assert(j.node[i].at + j.node[i].len <= size && j.node[i].next > i);
            assert(j.node[i].next <= j.n);
            vl_json_i64(&j, i, &x);
            vl_json_real(&j, i, &d);
            vl_json_get(&j, i, "key");
            vl_buf_reset(&b);
            if (vl_json_str(&j, i, &b)) {
                struct vl_json back;
                vl_buf_reset(&again);
                vl_json_put_str(&again, b.s ? b.s : "", b.n);
                assert(vl_json_parse(&back, again.s, again.n, "again", &e) == 0);
                vl_json_free(&back);
            }
        }
    } else {
        assert(e.code == VL_E_DATA && e.msg[0] && !strchr(e.msg, '\n'));
    }
    vl_json_free(&j);
    vl_buf_free(&b);
    vl_buf_free(&again);
    return 0;
}
