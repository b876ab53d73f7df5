/* test_json.c - what RFC 8259 accepts and refuses, spans, escapes, numbers, writers. */
#include "formats/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse(struct vl_json *j, const char *s, size_t n, struct vl_err *e)
{
    *e = (struct vl_err){ 0 };
    return vl_json_parse(j, s, n, "t", e);
}

static void accepts(const char *s)
{
    struct vl_json j;
    struct vl_err e;
    int rc = parse(&j, s, strlen(s), &e);

    if (rc)
        fail_msg("refused %s: %s", s, e.msg);
    assert_int_equal(j.node[0].next, j.n);
    vl_json_free(&j);
}

/* Refused, at byte `at`, in one line. A heap copy without NUL lets ASan see any read past the end. */
static void refuses_n(const char *s, size_t n, size_t at)
{
    struct vl_json j;
    struct vl_err e;
    char where[32], *copy = vl_alloc(n);
    int rc;

    memcpy(copy, s, n);
    rc = parse(&j, copy, n, &e);
    if (rc != VL_E_DATA)
        fail_msg("accepted %s (status %d)", s, rc);
    snprintf(where, sizeof where, "at byte %zu:", at);
    if (!strstr(e.msg, where) || strchr(e.msg, '\n'))
        fail_msg("%s: %s, wanted %s", s, e.msg, where);
    vl_json_free(&j);
    free(copy);
}

static void refuses(const char *s, size_t at)
{
    refuses_n(s, strlen(s), at);
}

static void test_accept(void **state)
{
    static const char *const good[] = {
        "null",
        " true\n",
        "false",
        "0",
        "-0",
        "1.0",
        "1e400",
        "-1.5E+10",
        "\"\"",
        "[]",
        "{}",
        "[ ]",
        "{ }",
        "[1,2 , 3]",
        "{\"a\":1,\"a\":2}",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "123456789012345678901234567890",
        "\"\x7F\"",
        "\"\xF0\x9F\x98\x80\"",
        "[[[[]]],{\"\":[]}]",
        "\"a\\/b\"",
        "[\"12345678\\n12345678\"]",
        "\"\xE2\x80\xA8\"",
        "\t\r\n [1]",
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        accepts(good[i]);
}

static void test_refuse(void **state)
{
    (void)state;
    refuses("", 0);
    refuses("  ", 2);
    refuses("nul", 3);
    refuses("nulL", 3);
    refuses("TRUE", 0);
    refuses("01", 1);
    refuses("-", 1);
    refuses("+1", 0);
    refuses(".5", 0);
    refuses("1.", 2);
    refuses("1.e1", 2);
    refuses("1e", 2);
    refuses("1e+", 3);
    refuses("0x10", 1);
    refuses("NaN", 0);
    refuses("-Infinity", 1);
    refuses("1 2", 2);
    refuses("[1,]", 3);
    refuses("[,1]", 1);
    refuses("[1 2]", 3);
    refuses("[1", 2);
    refuses("[", 1);
    refuses("]", 0);
    refuses("[1}", 2);
    refuses("{\"a\":1]", 6);
    refuses("{\"a\":1,}", 7);
    refuses("{\"a\"}", 4);
    refuses("{\"a\":}", 5);
    refuses("{a:1}", 1);
    refuses("{1:1}", 1);
    refuses("{'a':1}", 1);
    refuses("\"a", 2);
    refuses("\"a\\", 3);
    refuses("\"\\x\"", 2);
    refuses("\"\\u12\"", 3);
    refuses("\"\\u12G4\"", 3);
    refuses("\"\\u", 3);
    refuses("\"a\nb\"", 2);
    refuses("\"a\tb\"", 2);
    refuses("\"12345678\x01\"", 9);
    refuses("\"\xFF\"", 1);
    refuses("\"ab\xC0\x80\"", 3);
    refuses("\"\xED\xA0\x80\"", 1);
    refuses("\"\xF4\x90\x80\x80\"", 1);
    refuses("\"\xE2\x82\"", 1);
    refuses("\xEF\xBB\xBF[]", 0);
    refuses("[1]/* */", 3);
    refuses_n("\"\0\"", 3, 1);
    refuses_n("\"\\\0\"", 4, 2);
    refuses_n("1\0", 2, 1);
}

static void test_depth(void **state)
{
    char s[2 * 600];
    struct vl_json j;
    struct vl_err e;

    (void)state;
    memset(s, '[', 512);
    memset(s + 512, ']', 512);
    assert_int_equal(parse(&j, s, 1024, &e), 0);
    assert_int_equal(j.n, 512);
    vl_json_free(&j);
    memset(s, '[', 513);
    memset(s + 513, ']', 513);
    assert_int_equal(parse(&j, s, 1026, &e), VL_E_DATA);
    assert_non_null(strstr(e.msg, "deeper than 512"));
    vl_json_free(&j);
    for (int k = 0; k < 3; k++) { /* what Python writes by default */
        static const char *const text[] = { "{\"a\": NaN}", "[-Infinity]", "Infinity" };
        struct vl_json x = { 0 };
        struct vl_err no = { 0 };

        assert_int_equal(vl_json_parse(&x, text[k], strlen(text[k]), "f", &no), VL_E_DATA);
        assert_non_null(strstr(no.msg, "which JSON has not; write null"));
        vl_json_free(&x);
    }
}

static void test_limit(void **state)
{
    struct vl_json j;
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(vl_json_parse_max(&j, "[1,2,3]", 7, "t", 4, &e), 0);
    vl_json_free(&j);
    assert_int_equal(vl_json_parse_max(&j, "[1,2,3]", 7, "t", 3, &e), VL_E_DATA);
    assert_non_null(strstr(e.msg, "more than 3 values"));
    vl_json_free(&j);
}

static void test_tree(void **state)
{
    const char *s =
        "{\"a\": [10, [20], {\"x\": -7}], \"b\\u0062\": true, \"a2\": null, \"z\": \"q\"}";
    struct vl_json j;
    struct vl_err e;
    struct vl_buf b = { 0 };
    int64_t a, x;
    int t = 0;

    (void)state;
    assert_int_equal(parse(&j, s, strlen(s), &e), 0);
    assert_int_equal(j.node[0].count, 4);
    a = vl_json_get(&j, 0, "a");
    assert_int_equal(j.node[a].count, 3);
    assert_true(vl_json_i64(&j, vl_json_at(&j, a, 0), &x) && x == 10);
    assert_true(vl_json_i64(&j, vl_json_get(&j, vl_json_at(&j, a, 2), "x"), &x) && x == -7);
    assert_int_equal(vl_json_at(&j, a, 3), -1);
    assert_true(vl_json_bool(&j, vl_json_get(&j, 0, "bb"), &t) && t == 1);
    assert_int_equal(vl_json_get(&j, 0, "none"), -1);
    assert_int_equal(vl_json_get(&j, -1, "a"), -1);
    assert_int_equal(vl_json_get(&j, a, "a"), -1);
    assert_true(vl_json_streq(&j, vl_json_get(&j, 0, "z"), "q"));
    assert_false(vl_json_streq(&j, vl_json_get(&j, 0, "z"), "qq"));
    vl_json_raw(&j, a, &b);
    assert_string_equal(b.s, "[10, [20], {\"x\": -7}]");
    vl_buf_reset(&b);
    vl_json_raw(&j, vl_json_get(&j, 0, "z"), &b);
    assert_string_equal(b.s, "\"q\"");
    vl_buf_free(&b);
    vl_json_free(&j);
    assert_int_equal(parse(&j, "{\"k\":1,\"k\":2}", 13, &e), 0);
    assert_true(vl_json_i64(&j, vl_json_get(&j, 0, "k"), &x) && x == 2);
    vl_json_free(&j);
}

static void decodes(const char *s, const char *want, size_t n)
{
    struct vl_json j;
    struct vl_err e;
    struct vl_buf b = { 0 };

    assert_int_equal(parse(&j, s, strlen(s), &e), 0);
    assert_true(vl_json_str(&j, 0, &b));
    assert_int_equal(b.n, n);
    assert_memory_equal(b.s ? b.s : "", want, n);
    vl_buf_free(&b);
    vl_json_free(&j);
}

static void test_escapes(void **state)
{
    (void)state;
    decodes("\"\"", "", 0);
    decodes("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8);
    decodes("\"\\u0000a\"", "\0a", 2);
    decodes("\"\\u00e9\\u20AC\"", "\xC3\xA9\xE2\x82\xAC", 5);
    decodes("\"\\ud83d\\ude00\"", "\xF0\x9F\x98\x80", 4);
    decodes("\"\\ud83d\"", "\xED\xA0\xBD", 3);
    decodes("\"\\ude00\"", "\xED\xB8\x80", 3);
    decodes("\"\\ude00\\ud83d\"", "\xED\xB8\x80\xED\xA0\xBD", 6);
    decodes("\"\\ud83d\\ud83d\\ude00\"", "\xED\xA0\xBD\xF0\x9F\x98\x80", 7);
    decodes("\"\\ud83d\\n\"", "\xED\xA0\xBD\n", 4);
}

static int as_i64(const char *s, int64_t *x)
{
    struct vl_json j;
    struct vl_err e;
    int ok;

    assert_int_equal(parse(&j, s, strlen(s), &e), 0);
    ok = vl_json_i64(&j, 0, x);
    vl_json_free(&j);
    return ok;
}

static int as_real(const char *s, double *x)
{
    struct vl_json j;
    struct vl_err e;
    int ok;

    assert_int_equal(parse(&j, s, strlen(s), &e), 0);
    ok = vl_json_real(&j, 0, x);
    vl_json_free(&j);
    return ok;
}

static void test_numbers(void **state)
{
    int64_t x = 5;
    double d = 5;
    char longer[120] = "0.";

    (void)state;
    assert_true(as_i64("9223372036854775807", &x) && x == INT64_MAX);
    assert_true(as_i64("-9223372036854775808", &x) && x == INT64_MIN);
    assert_true(as_i64("-0", &x) && x == 0);
    x = 5;
    assert_false(as_i64("9223372036854775808", &x));
    assert_false(as_i64("-9223372036854775809", &x));
    assert_false(as_i64("1.0", &x));
    assert_false(as_i64("1e3", &x));
    assert_false(as_i64("\"1\"", &x));
    assert_int_equal(x, 5);
    assert_true(as_real("1e-6", &d) && d == 1e-6);
    assert_false(as_real("1e400", &d));
    assert_false(as_real("\"nan\"", &d));
    assert_true(as_real("\"NaN\"", &d) && isnan(d));
    assert_true(as_real("\"-Infinity\"", &d) && isinf(d) && d < 0);
    memset(longer + 2, '3', 100);
    assert_true(as_real(longer, &d) && d == 1.0 / 3);
}

static void test_put_str(void **state)
{
    struct vl_buf b = { 0 };

    (void)state;
    assert_int_equal(vl_json_put_str(&b, "a\"\\\n\x01\0\x7F\xC3\xA9", 9), 0);
    assert_string_equal(b.s, "\"a\\\"\\\\\\n\\u0001\\u0000\x7F\xC3\xA9\"");
    vl_buf_reset(&b);
    assert_int_equal(vl_json_put_str(&b, "x\xFFy\xE2\x82z\xF0\x9F", 8), 1);
    assert_string_equal(b.s, "\"x\xEF\xBF\xBDy\xEF\xBF\xBDz\xEF\xBF\xBD\"");
    vl_buf_reset(&b);
    assert_int_equal(vl_json_put_str(&b, "\xED\xA0\xBD", 3), 1); /* WTF-8 is not UTF-8 */
    vl_buf_free(&b);
}

static void test_put_real(void **state)
{
    static const double bits[] = {
        0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, -0.0, 1e22, 123456
    };
    struct vl_buf b = { 0 };
    uint32_t r = 1;

    (void)state;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        double back;
        vl_buf_reset(&b);
        vl_json_put_f64(&b, bits[i]);
        accepts(b.s);
        back = strtod(b.s, NULL);
        assert_memory_equal(&back, &bits[i], sizeof back);
    }
    for (int i = 0; i < 20000; i++) {
        float f, back;
        r = r * 1664525u + 1013904223u;
        memcpy(&f, &r, sizeof f);
        vl_buf_reset(&b);
        vl_json_put_f32(&b, f);
        if (!isfinite(f))
            continue;
        back = strtof(b.s, NULL);
        assert_memory_equal(&f, &back, sizeof f);
    }
    vl_buf_reset(&b);
    vl_json_put_f64(&b, 0.1);
    vl_buf_ch(&b, ' ');
    vl_json_put_f32(&b, -INFINITY);
    vl_json_put_f64(&b, INFINITY);
    vl_json_put_f32(&b, NAN);
    vl_json_put_i64(&b, INT64_MIN);
    assert_string_equal(b.s, "0.1 \"-Infinity\"\"Infinity\"\"NaN\"-9223372036854775808");
    vl_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accept),   cmocka_unit_test(test_refuse),
        cmocka_unit_test(test_depth),    cmocka_unit_test(test_limit),
        cmocka_unit_test(test_tree),     cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_numbers),  cmocka_unit_test(test_put_str),
        cmocka_unit_test(test_put_real),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
