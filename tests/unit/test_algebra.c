/* test_algebra.c - equal, different, undecided; and texts made to hurt. */
#include "libverl/reward/algebra.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static enum vl_alg_verdict compare(const char *x, const char *y, enum vl_alg_syntax syntax)
{
    struct vl_alg *a = vl_alg_new();
    enum vl_alg_verdict v = vl_alg_equal(a, vl_alg_parse(a, x, strlen(x), syntax),
                                         vl_alg_parse(a, y, strlen(y), syntax));

    vl_alg_free(a);
    return v;
}

static void expressions(void **state)
{
    static const struct {
        const char *x, *y;
        char verdict; /* = equal, ! different, ? undecided */
        char syntax;  /* p plain, l LaTeX, b both */
    } t[] = {
        { "1/2", "2/4", '=', 'b' },
        { "0.1+0.2", "0.3", '=', 'b' },
        { "2(x+1)", "2x+2", '=', 'b' },
        { "(x+1)^2", "x^2+2x+1", '=', 'b' },
        { "(x^2-1)/(x-1)", "x+1", '=', 'b' },
        { "x^-1", "1/x", '=', 'b' },
        { "1/2x", "x/2", '=', 'b' },
        { "xy", "y*x", '=', 'b' },
        { "-2^2", "-4", '=', 'b' },
        { "2^3^2", "512", '=', 'b' },
        { "sqrt(12)", "2*sqrt(3)", '=', 'b' },
        { "sqrt(1/2)", "sqrt(2)/2", '=', 'b' },
        { "1/(sqrt(3)-sqrt(2))", "sqrt(3)+sqrt(2)", '=', 'b' },
        { "8^(1/3)", "2", '=', 'b' },
        { "2^(1/2)*2^(1/3)", "2^(5/6)", '=', 'b' },
        { "sqrt(2)", "1.41421356", '!', 'b' },
        { "sqrt(-4)^2", "-4", '=', 'b' },
        { "pi", "3.14159265358979", '!', 'b' },
        { "sqrt(x)*sqrt(x)", "x", '=', 'b' },
        { "sqrt(x+1)", "sqrt(1+x)", '=', 'b' },
        { "sqrt(x+1)", "sqrt(x+2)", '!', 'b' },
        { "sqrt(x+1)^2", "x+1", '?', 'b' },
        { "sqrt(3+2*sqrt(2))", "1+sqrt(2)", '?', 'b' },
        { "5!", "120", '=', 'b' },
        { "1e3", "1000", '=', 'p' },
        { "x+", "x", '?', 'b' },
        { "(x", "x", '?', 'b' },
        { "1/0", "1/0", '?', 'b' },
        { "1..2", "1", '?', 'b' },
        { "", "", '?', 'b' },
        { "10^30*10^30", "10^60", '?', 'b' }, /* does not fit 128 bits */
        { "\\frac{1}{2}", "0.5", '=', 'l' },
        { "\\frac12", ".5", '=', 'l' },
        { "7\\frac{3}{4}", "\\frac{31}{4}", '=', 'l' },
        { "-7\\frac{3}{4}", "-\\frac{31}{4}", '=', 'l' },
        { "2\\sqrt3", "\\sqrt{12}", '=', 'l' },
        { "\\sqrt[3]{-8}", "-2", '=', 'l' },
        { "x^{10}", "x^5 x^5", '=', 'l' },
        { "2^{-1}", "\\dfrac{1}{2}", '=', 'l' },
        { "\\left(\\pi\\cdot 2\\right)", "2\\pi", '=', 'l' },
        { "3 \\times 10^{5}", "300000", '=', 'l' },
        { "x_1+x_{2}", "x_2+x_1", '=', 'l' },
        { "i^2", "-1", '=', 'l' },
        { "|{-3}|", "3", '=', 'l' },
        { "\\binom{5}{2}", "10", '=', 'l' },
        { "\\sin x", "\\sin(x)", '=', 'l' },
        { "\\sin x", "\\cos x", '!', 'l' },
        { "\\sin \\pi", "0", '?', 'l' },
        { "\\log_2 8", "3", '?', 'l' },
        { "e^{2x}", "(e^{x})^2", '?', 'l' },
        { "\\foo x", "x", '?', 'l' },
        { "\\theta", "\\phi", '!', 'l' },
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        for (int latex = 0; latex < 2; latex++) {
            char got;

            if (t[i].syntax == (latex ? 'p' : 'l'))
                continue;
            got = "!=?"[compare(t[i].x, t[i].y, latex ? VL_ALG_LATEX : VL_ALG_PLAIN)];
            if (got != t[i].verdict)
                fail_msg("%s and %s (%s): %c, not %c", t[i].x, t[i].y, latex ? "LaTeX" : "plain",
                         got, t[i].verdict);
        }
}

/* The verdict is symmetric, and equal to itself whatever it is. */
static void numbers_at_two_points(void **state)
{
    struct vl_alg *a = vl_alg_new();
    const struct vl_algx *x = vl_alg_parse(a, "\\sin^2 x+\\cos^2 x", 17, VL_ALG_LATEX);
    const struct vl_algx *one = vl_alg_int(a, 1), *y = vl_alg_parse(a, "x", 1, VL_ALG_LATEX);
    double v;
    int64_t n;

    (void)state;
    assert_int_equal(vl_alg_equal(a, x, one), VL_ALG_UNDECIDED);
    assert_true(vl_alg_near(x, one));
    assert_false(vl_alg_near(x, y));
    assert_false(vl_alg_real(y, &v));
    assert_true(vl_alg_real(one, &v) && v == 1);
    assert_true(vl_alg_integer(one, &n) && n == 1);
    assert_false(vl_alg_integer(NULL, &n));
    vl_alg_free(a);
}

static void repeat(struct vl_buf *b, const char *part, int times)
{
    vl_buf_reset(b);
    for (int i = 0; i < times; i++)
        vl_buf_str(b, part);
}

/* Each stops at a limit, none takes long. */
static void hard_texts_are_undecided(void **state)
{
    static const char *const part[] = { "(",  "{",      "-",   "2^", "sqrt(", "\\sqrt{", "\\frac{1",
                                        "x!", "(a+b)*", "a_1", "|",  "\\",    "9",       "x^9" };
    struct vl_buf b = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        for (int times = 30; times < 200000; times *= 60) {
            repeat(&b, part[i], times);
            compare(b.s, "1", VL_ALG_PLAIN);
            compare(b.s, "1", VL_ALG_LATEX);
        }
    repeat(&b, "(a+b+c+d+f+g)*", 20);
    vl_buf_ch(&b, '1');
    assert_int_equal(compare(b.s, "1", VL_ALG_PLAIN), VL_ALG_UNDECIDED);
    assert_int_equal(compare("(a+b)^20^20", "1", VL_ALG_PLAIN), VL_ALG_UNDECIDED);
    assert_int_equal(compare("9^9^9^9", "1", VL_ALG_PLAIN), VL_ALG_UNDECIDED);
    assert_int_equal(compare("sqrt(18446744073709551557)", "1", VL_ALG_PLAIN), VL_ALG_DIFFERENT);
    vl_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions),
        cmocka_unit_test(numbers_at_two_points),
        cmocka_unit_test(hard_texts_are_undecided),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
