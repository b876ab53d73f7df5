/* fuzz_code.c - code from any response, test cases from any ground truth, any output compared: the
 * parts of the input before the first and after the second line with a single dot. Nothing is run. */
#include "libverl/reward/code.h"

#include <assert.h>
#include <string.h>

#include "tests/fuzz/main.h"

static void extract(const char *s, size_t n)
{
    struct vl_code_args a = VL_CODE_ARGS;
    const char *code;
    size_t len;

    for (int i = 0; i < 16; i++) {
        a.language = (enum vl_code_language)(i & 3);
        a.any_fence = i >> 2 & 1;
        if (vl_code_extract(s, n, &a, i >> 3, &code, &len))
            assert(code >= s && len <= n && code + len <= s + n);
    }
}

static void cases(const char *s, size_t n, const char *out, size_t m)
{
    struct vl_code_cases c;
    struct vl_err e = { 0 };
    struct vl_buf text = { 0 }, program = { 0 };
    const struct vl_code_args a = VL_CODE_ARGS;
    struct vl_code_outcome o;

    if (!vl_code_cases_open(&c, s, n, &e))
        for (int64_t k = 0; k < c.n; k++) {
            e = (struct vl_err){ 0 };
            o = (struct vl_code_outcome){ 0 };
            vl_buf_reset(&text);
            vl_buf_reset(&program);
            vl_code_case_text(&c, c.in[k], &text);
            vl_code_judge(&a, &c, k, out, m, &o);
            assert(o.verdict == VL_CODE_PASSED || o.verdict == VL_CODE_WRONG);
            free(o.detail);
            if (vl_code_program(&a, &c, out, m, k, 0, &program, &e))
                assert(e.msg[0]);
            else
                assert(program.n > m);
        }
    else
        assert(e.code == VL_E_DATA && e.msg[0]);
    vl_code_cases_free(&c);
    vl_buf_free(&text);
    vl_buf_free(&program);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *s = (const char *)data, *end = s + size;
    const char *cut = size ? memmem(s, size, "\n.\n", 3) : NULL, *truth = cut ? cut + 3 : end;
    const char *mid = truth < end ? memmem(truth, (size_t)(end - truth), "\n.\n", 3) : NULL;
    const char *out = mid ? mid + 3 : end;
    size_t truth_n = (size_t)((mid ? mid : end) - truth), out_n = (size_t)(end - out);

    extract(s, cut ? (size_t)(cut - s) : size);
    cases(truth, truth_n, out, out_n);
    assert(vl_code_same_text(out, out_n, out, out_n, 1));
    vl_code_same_text(out, out_n, truth, truth_n, 0);
    vl_code_same_value(out, out_n, truth, truth_n);
    return 0;
}
