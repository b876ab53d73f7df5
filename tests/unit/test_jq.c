/* test_jq.c - user filters: digits, surrogates, several results, errors, what libjq cannot hold. */
#include "libverl/base/jq.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static struct vl_buf out;
static int64_t count, inexact;
static struct vl_err err;

/* Runs filter on json; returns the status, results in out. */
static int run(const char *filter, const char *args, const char *json, int raw)
{
    struct vl_jq *q;
    int rc;

    err = (struct vl_err){ 0 };
    vl_buf_reset(&out);
    count = inexact = 0;
    if (vl_jq_open(&q, filter, args, &err))
        return err.code;
    rc = vl_jq_run(q, json, strlen(json), raw, &out, &count, &err);
    inexact = vl_jq_inexact(q);
    vl_jq_free(q);
    return rc;
}

#define GIVES(filter, json, want)                                                                  \
    do {                                                                                           \
        assert_int_equal(run(filter, NULL, json, 0), 0);                                           \
        assert_string_equal(out.s ? out.s : "", want);                                             \
    } while (0)

static void results_are_lines(void **state)
{
    (void)state;
    GIVES(".", "{\"b\":1,\"a\":[true,false,null]}", "{\"b\":1,\"a\":[true,false,null]}\n");
    GIVES(".[]", "[1,\"x\",{}]", "1\n\"x\"\n{}\n");
    assert_int_equal(count, 3);
    GIVES("empty", "1", "");
    assert_int_equal(count, 0);
    assert_int_equal(run(".", NULL, "\"a\\nb\"", 1), 0);
    assert_string_equal(out.s, "a\nb\n");
    assert_int_equal(run("$n + 1", "{\"n\":41}", "null", 0), 0);
    assert_string_equal(out.s, "42\n");
}

static void no_end_of_results(void **state)
{
    struct vl_jq *q;

    (void)state;
    err = (struct vl_err){ 0 };
    vl_buf_reset(&out);
    assert_int_equal(vl_jq_open(&q, "repeat(.)", NULL, &err), 0);
    vl_jq_most(q, 2);
    assert_int_equal(vl_jq_run(q, "7", 1, 0, &out, &count, &err), 0);
    assert_int_equal(vl_jq_run(q, "8", 1, 0, &out, &count, &err), 0);
    assert_int_equal(count, 2);
    assert_string_equal(out.s, "7\n7\n8\n8\n");
    vl_jq_free(q);
}

static void digits_survive(void **state)
{
    (void)state;
    GIVES(".", "[0,-0,1.0,0.10,1e2,0.30000001192092896]", "[0,-0,1,0.1,100,0.30000001192092896]\n");
    assert_int_equal(inexact, 0);
    GIVES(".", "[9007199254740991,1000000000,123456789012]",
          "[9007199254740991,1000000000,123456789012]\n");
    assert_int_equal(inexact, 0);
    GIVES(".", "[100000000000000000,100000000000000000000,-250000000000000000,1e20]",
          "[\"100000000000000000\",\"100000000000000000000\",\"-250000000000000000\",1e+20]\n");
    assert_int_equal(inexact, 3);
    GIVES(".", "9007199254740993", "\"9007199254740993\"\n");
    assert_int_equal(inexact, 1);
    GIVES(".", "[12345678901234567890,1e400,1e-400,0.1000000000000000055]",
          "[\"12345678901234567890\",\"1e400\",\"1e-400\",\"0.1000000000000000055\"]\n");
    assert_int_equal(inexact, 4);
    GIVES(".", "0.10000000000000001", "0.1\n"); /* %.17g of 0.1: the same double */
    assert_int_equal(inexact, 0);
    GIVES("[nan,infinite,-infinite]", "0", "[\"NaN\",\"Infinity\",\"-Infinity\"]\n");
}

static void text_survives(void **state)
{
    (void)state;
    GIVES(".a", "{\"a\":\"\\ud800x\\udfff\"}", "\"\\ud800x\\udfff\"\n");
    GIVES("{(.a): .a}", "{\"a\":\"\\udc00\"}", "{\"\\udc00\":\"\\udc00\"}\n");
    GIVES(".", "\"\\ud83d\\ude00\"", "\"\xF0\x9F\x98\x80\"\n");
    /* a private character stays itself where nothing was mapped */
    GIVES(".", "\"\xF4\x8F\xA0\x80\"", "\"\xF4\x8F\xA0\x80\"\n");
    GIVES("length", "\"a\\u0000b\"", "3\n");
    GIVES(".", "\"a\\u0000b\"", "\"a\\u0000b\"\n");
    assert_int_equal(run(".", NULL, "\"\\ud800\"", 1), 0);
    assert_string_equal(out.s, "\xED\xA0\x80\n");
}

static void errors_name_the_cause(void **state)
{
    (void)state;
    assert_int_equal(run(".a |", NULL, "1", 0), VL_E_USAGE);
    assert_non_null(strstr(err.msg, "does not compile"));
    assert_null(strchr(err.msg, '\n'));
    assert_int_equal(run("$nope", NULL, "1", 0), VL_E_USAGE);
    assert_non_null(strstr(err.msg, "$nope is not defined"));
    assert_int_equal(run("import \"x\" as x; .", NULL, "1", 0), VL_E_USAGE);
    assert_int_equal(run(".a", NULL, "[1]", 0), VL_E_DATA);
    assert_non_null(strstr(err.msg, "Cannot index array"));
    assert_int_equal(run("1, error(\"mine\")", NULL, "[1]", 0), VL_E_DATA);
    assert_int_equal(count, 1);
    assert_string_equal(out.s, "1\n");
    assert_non_null(strstr(err.msg, "mine"));
    assert_int_equal(run("error({a:1})", NULL, "[1]", 0), VL_E_DATA);
    assert_non_null(strstr(err.msg, "{\"a\":1}"));
    assert_int_equal(run("input", NULL, "[1]", 0), VL_E_DATA);
    assert_int_equal(run("\"bye\"|halt_error", NULL, "[1]", 0), VL_E_DATA);
    assert_non_null(strstr(err.msg, "bye"));
    assert_int_equal(run("1,halt,2", NULL, "[1]", 0), 0);
    assert_string_equal(out.s, "1\n");
    assert_int_equal(run(".", NULL, "{\"a\":}", 0), VL_E_DATA);
    assert_int_equal(run(".", "[1]", "1", 0), VL_E_USAGE);
    assert_int_equal(run("reduce range(600) as $i (0; [.])", NULL, "1", 0), VL_E_DATA);
    assert_non_null(strstr(err.msg, "nested deeper"));
}

/* One filter over many rows, errors between: each run starts afresh. */
static void a_filter_is_reusable(void **state)
{
    struct vl_jq *q;

    (void)state;
    err = (struct vl_err){ 0 };
    assert_int_equal(vl_jq_open(&q, ".[] | if . == 2 then error else . end", NULL, &err), 0);
    for (int i = 0; i < 100; i++) {
        struct vl_err e = { 0 };

        vl_buf_reset(&out);
        assert_int_equal(vl_jq_run(q, "[1,2,3]", 7, 0, &out, &count, &e), VL_E_DATA);
        e = (struct vl_err){ 0 };
        vl_buf_reset(&out);
        assert_int_equal(vl_jq_run(q, "[1,3]", 5, 0, &out, &count, &e), 0);
        assert_string_equal(out.s, "1\n3\n");
    }
    vl_jq_free(q);
}

/* The names that a filter surely reads of its input, each followed by a space. */
static const char *reads(const char *filter)
{
    vl_buf_reset(&out);
    vl_jq_members(filter, &out);
    for (size_t i = 0; i < out.n; i++)
        out.s[i] = out.s[i] == '\n' ? ' ' : out.s[i];
    return out.n ? out.s : "";
}

static void members_that_are_read(void **state)
{
    (void)state;
    assert_string_equal(reads(".a|length"), "a ");
    assert_string_equal(reads(".a.b + (.c[0] | .d) - .e"), "a c e ");
    assert_string_equal(reads("if .a == 1 then .b else .c end"), "a b c ");
    assert_string_equal(reads("{x: .a, y: (.b|.c), z: .d}"), "a b d ");
    assert_string_equal(reads(". as $r | .a + $r.b"), "a ");
    assert_string_equal(reads("(.a|length) as $n | .b | .c"), "a b ");
    assert_string_equal(reads(".a? + (.b // 0) + .c.d? + .e"), "e ");
    assert_string_equal(reads("map(.a) + [.b] + .c[.d]"), "b c ");
    assert_string_equal(reads("\".a\" + .b # .c\n + .d"), "b d ");
    assert_string_equal(reads(".a = 1 | .b"), "");
    assert_string_equal(reads(".a += 1"), "");
    assert_string_equal(reads("\"\\(.a)\" + .b"), "");
    assert_string_equal(reads("def f: .a; .b"), "");
    assert_string_equal(reads("1.5 + .5 + .. "), "");
    assert_string_equal(reads("))) .a"), "");
    assert_string_equal(reads("\"open .a"), "");
}

static void members_that_are_not(void **state)
{
    static const char *const safe[] = {
        "(.solution_str|split(\"#### \")|last)==.ground_truth",
        ".a.b + (.c | length) >= 1.5 and .d != null",
        "if .a == 1 then .b elif .c then -1 else .d|length|tostring end",
        "[.a, .b] | max",
        ".a // 0 | floor",
        ".a?",
        "1",
    };
    static const char *const open[] = {
        ".",
        "length",
        ". | length",
        "..",
        "tojson | length",
        ".[\"ids\"]",
        "keys | length",
        ".a |= 1",
        ".a = 1",
        ".a += 1",
        ".ids",
        ".a as $x | length",
        "select(.a)",
        "if .a then 1 end",
        "{a}",
        "\"\\(.)\"",
        "$x",
        "@text",
        "[paths] | length",
        "(length)",
        "map(.a)",
        "1 + length",
        ".a, to_entries",
        "def f: .; f",
        "\"open",
        "if .a then length else 1 end",
        "not",
        ".a | (.)",
        "reduce .a as $x (0; .)",
    };

    (void)state;
    for (size_t i = 0; i < sizeof safe / sizeof *safe; i++)
        if (vl_jq_may_read(safe[i], "ids"))
            fail_msg("%s could not read ids", safe[i]);
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        if (!vl_jq_may_read(open[i], "ids"))
            fail_msg("%s could read ids", open[i]);
    assert_true(vl_jq_may_read(".prompt|length", "prompt"));
    assert_false(vl_jq_may_read(".prompt|length", "ids"));
}

static int release(void **state)
{
    (void)state;
    vl_buf_free(&out);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_lines),    cmocka_unit_test(digits_survive),
        cmocka_unit_test(text_survives),        cmocka_unit_test(errors_name_the_cause),
        cmocka_unit_test(a_filter_is_reusable), cmocka_unit_test(members_that_are_read),
        cmocka_unit_test(members_that_are_not), cmocka_unit_test(no_end_of_results),
    };

    return cmocka_run_group_tests(tests, NULL, release);
}
