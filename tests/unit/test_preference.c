/* test_preference.c - pair losses: values by hand, slopes by differences, masks, cuts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "libverl/algo/preference.h"

static struct vl_pref_opts options(const char *name)
{
    struct vl_pref_opts o = VL_PREF_DEFAULTS;
    struct vl_err e = { 0 };

    assert_int_equal(vl_pref_parse(&o, name, &e), 0);
    return o;
}

static void near(double x, double want)
{
    if (!(fabs(x - want) <= 1e-12 * (1 + fabs(want))))
        fail_msg("%.17g, wanted %.17g", x, want);
}

static void test_values(void **state)
{
    struct vl_pref_opts o = options("sigmoid");
    double da, db;

    (void)state;
    near(vl_pref_pair(&o, 3, 3, &da, &db), log(2));
    near(da, -0.05);
    near(db, 0.05);
    o.beta = 0.5;
    near(vl_pref_pair(&o, 1, -1, &da, &db), log(1 + exp(-1)));
    o.label_smoothing = 0.2;
    near(vl_pref_pair(&o, 1, -1, &da, &db), 0.8 * log(1 + exp(-1)) + 0.2 * log(1 + exp(1)));
    near(vl_pref_pair(&o, -3000, 3000, &da, &db), 0.8 * 3000);
    o = options("ipo");
    near(vl_pref_pair(&o, 7, 1, &da, &db), 1);
    o = options("hinge");
    near(vl_pref_pair(&o, 4, 1, &da, &db), 0.7);
    near(vl_pref_pair(&o, 10, 0, &da, &db), 0);
    near(da, 0);
    o = options("sppo");
    o.eta = 4;
    near(vl_pref_pair(&o, 5, 1, &da, &db), 9 + 9);
    near(da, 6);
    near(db, 6);
}

static void test_slopes(void **state)
{
    static const char *const name[] = { "sigmoid", "ipo", "hinge", "sppo" };
    static const double at[][2] = { { 0.3, -0.7 }, { -4, 5 }, { 8, 1 }, { 30, -2 } };
    const double h = 1e-5;

    (void)state;
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 4; i++) {
            struct vl_pref_opts o = options(name[k]);
            double a = at[i][0], b = at[i][1], da, db, x, y;

            o.gamma = 0.4;
            o.label_smoothing = 0.1;
            vl_pref_pair(&o, a, b, &da, &db);
            if (fabs((vl_pref_pair(&o, a + h, b, &x, &y) - vl_pref_pair(&o, a - h, b, &x, &y)) /
                         (2 * h) -
                     da) > 1e-5 ||
                fabs((vl_pref_pair(&o, a, b + h, &x, &y) - vl_pref_pair(&o, a, b - h, &x, &y)) /
                         (2 * h) -
                     db) > 1e-5)
                fail_msg("%s at %g, %g", name[k], a, b);
        }
}

enum { PAIRS = 3, L = 4, N = 2 * PAIRS * L };

static struct vl_loss_rows rows(int64_t from, int64_t n)
{
    static const int64_t first[] = { 0, 4, 8, 12, 16, 20, 24 };
    static const int64_t mask[N] = { 1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1,
                                     1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0 };

    return (struct vl_loss_rows){ .B = n, .first = first + from, .mask = mask };
}

/* What stands under the mask is not read; any cut between pairs gives the same bits. */
static void test_rows(void **state)
{
    struct vl_pref_opts o = options("sigmoid");
    struct vl_loss_norm norm = { .pairs = PAIRS };
    struct vl_loss_rows all = rows(0, 2 * PAIRS);
    struct vl_loss_sums whole = { 0 }, cut = { 0 };
    float logp[N], ref[N], d[N], e[N];
    double x, sum = 0;

    (void)state;
    for (int j = 0; j < N; j++) {
        logp[j] = all.mask[j] ? -0.3f * (float)(j % 5) - 0.1f : NAN;
        ref[j] = all.mask[j] ? -0.2f * (float)(j % 7) - 0.2f : NAN;
    }
    o.rpo_alpha = 0.5;
    vl_preference_loss(&o, &all, logp, ref, &norm, d, &whole);
    for (int k = 0; k < PAIRS; k++) {
        struct vl_loss_rows pair = rows(2 * k, 2);

        vl_preference_loss(&o, &pair, logp, ref, &norm, e, &cut);
        assert_memory_equal(e + 8 * k, d + 8 * k, 8 * sizeof *e);
    }
    assert_memory_equal(&whole, &cut, sizeof cut);
    for (int j = 0; j < N; j++) {
        assert_true(all.mask[j] ? d[j] != 0 : d[j] == 0);
        sum += d[j];
    }
    assert_true(isfinite(sum));
    assert_true(vl_loss_sums_value(&whole, VL_M_REWARDS_MARGINS, &x) && isfinite(x));
    /* the policy at its reference: log 2, no margin, no win */
    memset(&whole, 0, sizeof whole);
    vl_preference_loss(&o, &all, logp, logp, &norm, d, &whole);
    near(whole.num[VL_M_DPO_LOSS], log(2));
    near(whole.num[VL_M_REWARDS_ACCURACIES] + whole.num[VL_M_REWARDS_MARGINS], 0);
    assert_true(vl_loss_sums_value(&whole, VL_M_REFERENCE_CHOSEN_LOGPS, &x));
    /* without a reference its column is not read */
    o.reference_free = 1;
    memset(&whole, 0, sizeof whole);
    vl_preference_loss(&o, &all, logp, NULL, &norm, d, &whole);
    assert_false(vl_loss_sums_value(&whole, VL_M_REFERENCE_CHOSEN_LOGPS, &x));
}

static void test_options(void **state)
{
    struct vl_pref_opts o = VL_PREF_DEFAULTS;
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(vl_pref_parse(&o, "kto", &e), VL_E_USAGE);
    assert_non_null(strstr(e.msg, "known: sigmoid, ipo, hinge, sppo"));
    o.beta = 0;
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_pref_parse(&o, "ipo", &e), VL_E_USAGE);
    o.beta = 0.1;
    o.label_smoothing = 0.5;
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_pref_parse(&o, "sigmoid", &e), VL_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_slopes),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
