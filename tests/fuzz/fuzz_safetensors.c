/* fuzz_safetensors.c - headers: any text is refused with one line, or describes tensors that fill
 * the data without holes; written again it reads the same. */
#include "formats/safetensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vl_st s = { 0 }, again = { 0 };
    struct vl_err e = { 0 };
    struct vl_buf t = { 0 };
    uint64_t bytes = 0;

    if (vl_st_parse(&s, (const char *)data, size, "fuzz", &e)) {
        assert(e.code == VL_E_DATA && e.msg[0] && !strchr(e.msg, '\n'));
        return 0;
    }
    for (size_t i = 0; i < s.n; i++) {
        assert(s.tensor[i].end >= s.tensor[i].begin && s.tensor[i].end <= s.data_bytes);
        bytes += s.tensor[i].end - s.tensor[i].begin;
        assert(vl_st_find(&s, s.tensor[i].name) == &s.tensor[i]);
    }
    assert(bytes == s.data_bytes);
    assert(vl_st_header_put(&t, s.tensor, s.n, s.meta, s.nmeta, &e) == 0);
    /* names of lone surrogates become U+FFFD, which may make two of them one */
    if (vl_st_parse(&again, t.s + 8, t.n - 8, "again", &e) == 0) {
        assert(again.n == s.n && again.data_bytes == s.data_bytes);
        vl_st_close(&again);
    }
    vl_st_close(&s);
    vl_buf_free(&t);
    return 0;
}
