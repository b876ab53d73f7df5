/* test_gguf.c - GGUF files: every tensor type against the reference's values, every type of key, and what
 * is refused: where, what was found, what was expected. */
#include "formats/gguf.h"
#include "libverl/base/fs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GOLDEN "tests/golden/gguf/types.gguf"

static void test_types(void **state)
{
    static const char *const name[] = { "F32",  "F16",  "BF16", "Q4_0",   "Q4_1",
                                        "Q5_0", "Q5_1", "Q8_0", "Q2_K",   "Q3_K",
                                        "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS" };
    struct vl_gguf g;
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(vl_gguf_open(&g, GOLDEN, &e), 0);
    assert_int_equal(g.ntensor, 2 * sizeof name / sizeof *name);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char *of = vl_asprintf("%s.f32", name[i]);
        const struct vl_gguf_tensor *t = vl_gguf_tensor(&g, name[i]),
                                    *want = vl_gguf_tensor(&g, of);
        float *x;

        assert_non_null(t);
        assert_non_null(want);
        assert_string_equal(t->type->name, name[i]);
        assert_true(t->ndim == 2 && t->shape[0] == 2 && t->n == want->n && t->n >= 32);
        assert_string_equal(want->type->name, "F32");
        x = vl_alloc((size_t)t->n * sizeof *x);
        vl_ggml_to_f32(t->type, x, g.data + t->at, t->n);
        assert_memory_equal(x, g.data + want->at, (size_t)t->n * sizeof *x);
        free(x);
        free(of);
    }
    assert_null(vl_gguf_tensor(&g, "Q4"));
    vl_gguf_close(&g);
}

static void test_values(void **state)
{
    static const struct {
        const char *name;
        int64_t value;
    } whole[] = { { "v.u8", 200 },        { "v.i8", -100 },          { "v.u16", 60000 },
                  { "v.i16", -30000 },    { "v.u32", 4000000000 },   { "v.i32", -2000000000 },
                  { "v.u64", 1ll << 40 }, { "v.i64", -(1ll << 40) }, { "no.such.key", 77 } };
    const struct vl_gguf_key *k;
    struct vl_gguf g;
    struct vl_err e = { 0 };
    const char *s = NULL;
    uint64_t at;
    double x = 0;
    size_t n = 0;
    int b = 0;

    (void)state;
    assert_int_equal(vl_gguf_open(&g, GOLDEN, &e), 0);
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        int64_t v = 77;

        assert_int_equal(vl_gguf_i64(&g, whole[i].name, &v, &e), 0);
        assert_true(v == whole[i].value);
        x = 77;
        assert_int_equal(vl_gguf_f64(&g, whole[i].name, &x, &e), 0);
        assert_true(x == (double)whole[i].value);
    }
    assert_int_equal(vl_gguf_f64(&g, "v.f32", &x, &e), 0);
    assert_true(x == (double)0.1f);
    assert_int_equal(vl_gguf_f64(&g, "v.f64", &x, &e), 0);
    assert_true(x == 0.1);
    assert_int_equal(vl_gguf_bool(&g, "v.bool", &b, &e), 0);
    assert_int_equal(b, 1);
    assert_int_equal(vl_gguf_str(&g, "v.text", &s, &n, &e), 0);
    assert_true(n == 7 && memcmp(s,
                                 "Gr\xC3\xBC\xC3\x9F"
                                 "e",
                                 7) == 0);
    assert_int_equal(vl_gguf_array(&g, "a.text", VL_GGUF_STRING, &k, &e), 0);
    assert_true(k && k->n == 3);
    at = vl_gguf_str_at(&g, k->at, &s, &n);
    assert_true(n == 3 && memcmp(s, "one", 3) == 0);
    at = vl_gguf_str_at(&g, at, &s, &n);
    assert_int_equal(n, 0);
    at = vl_gguf_str_at(&g, at, &s, &n);
    assert_true(n == 4 && memcmp(s, "drei", 4) == 0);
    assert_int_equal(vl_gguf_array(&g, "a.none", VL_GGUF_STRING, &k, &e), 0);
    assert_null(k);
    vl_gguf_close(&g);
}

static void wrong(int rc, struct vl_err *e, const char *says)
{
    assert_int_equal(rc, VL_E_DATA);
    if (!strstr(e->msg, says))
        fail_msg("\"%s\" does not say \"%s\"", e->msg, says);
    *e = (struct vl_err){ 0 };
}

static void test_wrong_types(void **state)
{
    const struct vl_gguf_key *k;
    struct vl_gguf g;
    struct vl_err e = { 0 };
    const char *s;
    int64_t i;
    double x;
    size_t n;
    int b;

    (void)state;
    assert_int_equal(vl_gguf_open(&g, GOLDEN, &e), 0);
    wrong(vl_gguf_i64(&g, "v.f32", &i, &e), &e, "v.f32 is F32; expected an integer");
    wrong(vl_gguf_i64(&g, "v.bool", &i, &e), &e, "v.bool is BOOL; expected an integer");
    wrong(vl_gguf_i64(&g, "a.i32", &i, &e), &e, "a.i32 is an array of I32; expected an integer");
    wrong(vl_gguf_f64(&g, "v.text", &x, &e), &e, "v.text is STRING; expected a number");
    wrong(vl_gguf_bool(&g, "v.u8", &b, &e), &e, "v.u8 is U8; expected BOOL");
    wrong(vl_gguf_str(&g, "a.text", &s, &n, &e), &e, "is an array of STRING; expected STRING");
    wrong(vl_gguf_array(&g, "a.i32", VL_GGUF_F32, &k, &e), &e, "expected an array of F32");
    wrong(vl_gguf_array(&g, "v.i32", VL_GGUF_I32, &k, &e), &e, "v.i32 is I32; expected an array");
    vl_gguf_close(&g);
}

/* The golden file with a few of its bytes set, in a block of exactly `size` bytes. */
static void damaged(const struct vl_buf *file, size_t size, size_t at, const char *bytes, size_t n,
                    const char *says)
{
    struct vl_gguf g;
    struct vl_err e = { 0 };
    uint8_t *data = vl_alloc(size);

    memcpy(data, file->s, size < file->n ? size : file->n);
    memcpy(data + at, bytes, n);
    wrong(vl_gguf_parse(&g, data, size, "x.gguf", &e), &e, says);
    vl_gguf_close(&g);
    free(data);
}

/* Where the bytes of a text stand in the file. */
static size_t where(const struct vl_buf *file, const char *text)
{
    const char *p = memmem(file->s, file->n, text, strlen(text));

    assert_non_null(p);
    return (size_t)(p - file->s);
}

static void test_damage(void **state)
{
    struct vl_buf f = { 0 };
    struct vl_err e = { 0 };
    size_t at, tensor;

    (void)state;
    assert_int_equal(vl_fs_read(GOLDEN, 1 << 20, &f, &e), 0);
    damaged(&f, f.n, 0, "GGML", 4, "x.gguf: byte 0: not a GGUF file");
    damaged(&f, f.n, 4, "\1\0\0\0", 4, "byte 4: GGUF version 1; expected 2 or 3");
    damaged(&f, f.n, 4, "\4\0\0\0", 4, "byte 4: GGUF version 4; expected 2 or 3");
    damaged(&f, f.n, 4, "\0\0\0\3", 4,
            "byte 4: version 0x03000000: a big-endian file; expected a little");
    damaged(&f, f.n, 15, "\x7F", 1,
            "byte 8: 9151314442816847902 tensors; the 31016 bytes after this can");
    damaged(&f, f.n, 23, "\x80", 1,
            "byte 16: 9223372036854775824 keys; the 31016 bytes after this can");
    damaged(&f, f.n, 31, "\x01", 1,
            "byte 24: a key of 72057594037927956 bytes; expected at most 65535");
    damaged(&f, f.n, 32, "\0", 1,
            "byte 24: a key is text with a NUL or line feed; expected a name");
    at = where(&f, "v.u8") + 4;
    damaged(&f, f.n, at, "\x0D", 1, "key v.u8 has a value of type 13; expected 0 to 12");
    at = where(&f, "a.i32") + 5;
    damaged(&f, f.n, at + 4, "\x09", 1, "key a.i32 is an array of arrays");
    damaged(&f, f.n, at + 15, "\xF0", 1,
            "a.i32 takes 18446744073709551615 bytes, but the file ends");
    damaged(&f, f.n, at + 8, "\xFF\xFF\xFF", 3,
            "a.i32 takes 67108860 bytes, but the file ends after");
    at = where(&f, "a.text") + 6;
    damaged(&f, f.n, at + 12, "\x10", 1, "a.text: 68719476739 strings; the ");
    damaged(&f, f.n, where(&f, "v.i8"), "v.u8", 4, "key v.u8 is there twice");
    tensor = where(&f, "Q4_0");
    damaged(&f, f.n, tensor + 4, "\0", 1, "has 0 dimensions; expected 1 to 4");
    damaged(&f, f.n, tensor + 4, "\5", 1, "has 5 dimensions; expected 1 to 4");
    damaged(&f, f.n, tensor + 8, "\1\0", 2,
            "tensor Q4_0 is Q4_0 with rows of 1; expected a multiple of 32");
    damaged(&f, f.n, tensor + 8, "\0\0", 2, "has a dimension of 0; expected 1 or more");
    damaged(&f, f.n, tensor + 15, "\x80", 1, "has a dimension of -9223372036854775552; expected");
    damaged(&f, f.n, tensor + 14, "\xFF", 1, "cut short or damaged");
    damaged(&f, f.n, tensor + 15, "\x7F", 1, "the size of tensor Q4_0 overflows 64 bits");
    damaged(&f, f.n, tensor + 24, "\x63", 1, "has type 99, which is none of ggml's");
    damaged(&f, f.n, tensor + 28, "\1", 1, "tensor Q4_0 has offset ");
    damaged(&f, f.n - 1, 0, "", 0, "up to byte 31040, but the file ends at byte 31039");
    damaged(&f, f.n + 1, 0, "", 0, "byte 31040: 1 bytes after the last tensor; expected the end");
    damaged(&f, f.n / 2, 0, "", 0, "but the file ends at byte 15520: cut short or damaged");
    damaged(&f, 100, 0, "", 0, "byte 16: 16 keys; the 76 bytes after this can hold at most 5");
    damaged(&f, 1100, 0, "", 0,
            "Q4_0.f32 takes 2048 bytes, but the whole file is 1100 long: cut short");
    vl_buf_free(&f);
}

/* Every prefix is refused, and none is read past its end (ASan). */
static void test_prefixes(void **state)
{
    struct vl_buf f = { 0 };
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(vl_fs_read(GOLDEN, 1 << 20, &f, &e), 0);
    for (size_t n = 0; n < f.n; n += n < 3500 ? 1 : 97) {
        struct vl_gguf g;
        uint8_t *data = vl_alloc(n);

        memcpy(data, f.s, n);
        assert_int_equal(vl_gguf_parse(&g, data, n, "cut", &e), VL_E_DATA);
        assert_true(e.msg[0] && !strchr(e.msg, '\n'));
        e = (struct vl_err){ 0 };
        vl_gguf_close(&g);
        free(data);
    }
    vl_buf_free(&f);
}

static void test_files(void **state)
{
    struct vl_gguf g;
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(vl_gguf_open(&g, "tests/golden/gguf/none.gguf", &e), VL_E_NOINPUT);
    vl_gguf_close(&g);
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_gguf_open(&g, "tests", &e), VL_E_NOINPUT);
    vl_gguf_close(&g);
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_gguf_open(&g, "/dev/null", &e), VL_E_NOINPUT);
    vl_gguf_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),       cmocka_unit_test(test_values),
        cmocka_unit_test(test_wrong_types), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_prefixes),    cmocka_unit_test(test_files),
    };

    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
