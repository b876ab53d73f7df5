/* test_distill.c - distillation losses: values by hand, slopes by differences, clamps, cuts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "libverl/algo/distill.h"

static const char *const modes[] = {
    "k1", "abs", "k2", "k3", "forward_kl_topk", "reverse_kl_topk", "jsd_topk"
};
enum { MODES = 7, K = 3 };

static struct vl_distill_opts options(const char *mode)
{
    struct vl_distill_opts o = { .clip_ratio_low = 0.2,
                                 .clip_ratio_high = 0.2,
                                 .coef = 1,
                                 .beta = 0.3,
                                 .loss_max = NAN,
                                 .logp_min = NAN,
                                 .with_policy = 0 };
    struct vl_err e = { 0 };

    assert_int_equal(vl_distill_parse(&o, mode, &e), 0);
    return o;
}

static const float lp[K] = { -0.25f, -1.75f, -4 }, lq[K] = { -0.75f, -1.25f, -2.5f };

static double value(const struct vl_distill_opts *o, float logp, const float *q, double *dlogp,
                    double *dlq, int *clamped)
{
    return vl_distill_token(o, logp, -1.5f, K, lp, q, dlogp, dlq, clamped);
}

static void test_values(void **state)
{
    struct vl_distill_opts o = options("forward_kl_topk");
    double d, dq[K], want = 0;
    int c;

    (void)state;
    for (int k = 0; k < K; k++)
        want += exp(lp[k]) * (lp[k] - lq[k]);
    assert_true(fabs(value(&o, -1, lq, &d, dq, &c) - want) < 1e-12 && !c);
    o = options("reverse_kl_topk");
    want = 0;
    for (int k = 0; k < K; k++)
        want += exp(lq[k]) * (lq[k] - lp[k]);
    assert_true(fabs(value(&o, -1, lq, &d, dq, &c) - want) < 1e-12);
    /* at the teacher itself every loss is 0, and so is the slope of forward KL over a whole
     * distribution: -p_k taken off by the head for all ids alike */
    for (int m = 0; m < MODES; m++) {
        o = options(modes[m]);
        assert_true(fabs(value(&o, -1.5f, lp, &d, dq, &c)) < 1e-12);
    }
}

static void test_slopes(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct vl_distill_opts o = options(modes[m]);
        const float h = 1.0f / 1024;
        double d = 0, dq[K] = { 0 }, x, y[K];
        int c;

        value(&o, -1, lq, &d, dq, &c);
        if (!vl_distill_is_topk(&o)) {
            double s = (value(&o, -1 + h, lq, &x, y, &c) - value(&o, -1 - h, lq, &x, y, &c)) /
                       (2 * (double)h);
            assert_true(fabs(s - d) < 1e-5);
            continue;
        }
        for (int k = 0; k < K; k++) {
            float up[K], down[K];

            memcpy(up, lq, sizeof up);
            memcpy(down, lq, sizeof down);
            up[k] += h;
            down[k] -= h;
            double s =
                (value(&o, -1, up, &x, y, &c) - value(&o, -1, down, &x, y, &c)) / (2 * (double)h);
            if (!(fabs(s - dq[k]) <= 1e-5))
                fail_msg("%s, id %d: slope %g, gradient %g", modes[m], k, s, dq[k]);
        }
    }
}

static void test_clamps(void **state)
{
    struct vl_distill_opts o = options("k1");
    double d, dq[K];
    int c;

    (void)state;
    o.loss_max = 0.25;
    assert_true(value(&o, -1, lq, &d, dq, &c) == 0.25 && c && d == 0);
    assert_true(value(&o, -2, lq, &d, dq, &c) == -0.25 && c && d == 0);
    assert_true(value(&o, -1.375f, lq, &d, dq, &c) == 0.125 && !c && d == 1);
    o = options("forward_kl_topk");
    o.logp_min = -2;
    double want = exp(-0.25) * 0.5 + exp(-1.75) * -0.5 + exp(-2) * 0; /* both ends of the third */
    assert_true(fabs(value(&o, -1, lq, &d, dq, &c) - want) < 1e-12);
    assert_true(dq[0] != 0 && dq[1] != 0 && dq[2] == 0);
}

/* Loss and gradients of rows one by one and together: the same bits; nothing under the mask. */
static void test_cut(void **state)
{
    enum { B = 3, L = 4, N = B * L };
    static const int64_t mask[N] = { 1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1 };
    static const int64_t first[] = { 0, 4, 8, 12 };
    float logp[N], t[N], old[N], p[N * K], q[N * K];

    (void)state;
    for (int j = 0; j < N; j++) {
        logp[j] = mask[j] ? -0.1f * (float)(j + 1) : NAN;
        t[j] = mask[j] ? -1 : NAN;
        old[j] = mask[j] ? logp[j] - 0.01f : NAN;
        for (int k = 0; k < K; k++) {
            p[j * K + k] = mask[j] ? lp[k] - 0.05f * (float)j : NAN;
            q[j * K + k] = mask[j] ? lq[k] + 0.05f * (float)j : NAN;
        }
    }
    for (int m = 0; m < 2 * MODES; m++) {
        struct vl_distill_opts o = options(modes[m % MODES]);
        struct vl_actor_opts a = { .pg = VL_PG_DEFAULTS, .distill = &o };
        struct vl_loss_norm norm = { .dp = 1 };
        struct vl_loss_rows all = { B, first, mask };
        struct vl_loss_sums s[2] = { 0 };
        struct vl_err e = { 0 };
        float g[2][N], dq[2][N * K];

        o.as_reward = m >= MODES;
        o.pg = vl_pg_find("vanilla", &e);
        vl_loss_norm_count(&norm, &all);
        for (int cut = 0; cut < 2; cut++)
            for (int64_t i = 0; i < (cut ? B : 1); i++) {
                static const int64_t one[] = { 0, L };
                int64_t j = i * L;
                struct vl_distill_in d = { .teacher = t + j,
                                           .K = vl_distill_is_topk(&o) ? K : 0,
                                           .lp = p + j * K,
                                           .lq = q + j * K,
                                           .dlq = dq[cut] + j * K };
                struct vl_pg_in in = { .rows = { cut ? 1 : B, cut ? one : first, mask + j },
                                       .logp = logp + j,
                                       .old_logp = old + j,
                                       .distill = &d };

                assert_int_equal(
                    vl_actor_loss(&a, &in, NULL, NULL, &norm, g[cut] + j, NULL, &s[cut], &e), 0);
            }
        assert_memory_equal(g[0], g[1], sizeof g[0]);
        assert_memory_equal(&s[0], &s[1], sizeof s[0]);
        assert_true(isfinite(s[0].num[VL_M_LOSS]) && s[0].num[VL_M_LOSS] != 0);
        if (vl_distill_is_topk(&o))
            assert_memory_equal(dq[0], dq[1], sizeof dq[0]);
    }
}

static void test_options(void **state)
{
    struct vl_distill_opts o = { 0 };
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(vl_distill_parse(&o, "best", &e), VL_E_USAGE);
    assert_non_null(strstr(e.msg, "jsd_topk"));
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_distill_parse(&o, "k3+", &e), 0);
    assert_int_equal(o.kl.straight, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),  cmocka_unit_test(test_slopes),
        cmocka_unit_test(test_clamps),  cmocka_unit_test(test_cut),
        cmocka_unit_test(test_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
