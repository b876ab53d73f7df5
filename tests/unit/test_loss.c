/* test_loss.c - gradients by finite differences, and what must not change a loss: padding, what
 * stands under the mask, the order of rows, the cut into micro-batches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "libverl/algo/loss.h"
#include "libverl/base/dmath.h"
#include "libverl/base/philox.h"

enum { B = 5, L = 7, N = B * L };

/* A batch with holes, an empty row and ratios on both sides of the clip range. */
struct data {
    int64_t first[B + 1], mask[N];
    float logp[N], old[N], adv[N], w[N], ref[N], ent[N];
    double draw[N];
};

static double uni(uint32_t k, uint32_t what)
{
    return vl_uniform(vl_philox_key("loss", 4, 1), k, what, 0, VL_RNG_INIT);
}

static void fill(struct data *d)
{
    static const int len[B] = { 7, 4, 0, 6, 1 };

    memset(d, 0, sizeof(*d));
    for (int i = 0; i <= B; i++)
        d->first[i] = i * L;
    for (uint32_t j = 0; j < N; j++) {
        int row = (int)j / L, t = (int)j % L;
        d->mask[j] = t < len[row] && !(row == 3 && t == 2);
        d->old[j] = (float)(-2 * uni(j, 0) - 0.1);
        d->logp[j] = d->old[j] + (float)(1.2 * uni(j, 1) - 0.6);
        d->adv[j] = (float)(4 * uni(j, 2) - 2);
        d->w[j] = (float)(0.2 + uni(j, 3));
        d->ref[j] = d->old[j] + (float)(uni(j, 4) - 0.5);
        d->ent[j] = (float)uni(j, 5);
        d->draw[j] = uni(j, 6);
    }
}

static void spoil_masked(struct data *d)
{
    for (int j = 0; j < N; j++)
        if (!d->mask[j])
            d->logp[j] = d->old[j] = d->adv[j] = d->w[j] = d->ref[j] = d->ent[j] = NAN;
}

static struct vl_pg_in input(const struct data *d, int64_t from, int64_t rows, int weights)
{
    return (struct vl_pg_in){ .rows = { rows, d->first + from, d->mask },
                              .logp = d->logp,
                              .old_logp = d->old,
                              .adv = d->adv,
                              .is_weights = weights ? d->w : NULL,
                              .draw = d->draw };
}

static struct vl_actor_opts options(const char *name, enum vl_agg agg)
{
    struct vl_err e = { 0 };
    struct vl_actor_opts o = { .loss = vl_pg_find(name, &e),
                               .pg = VL_PG_DEFAULTS,
                               .entropy_coeff = 0.03,
                               .use_kl_loss = 1,
                               .kl_loss_coef = 0.7,
                               .kl_loss_type = { VL_K3, 0 } };

    assert_non_null(o.loss);
    o.pg.agg = agg;
    o.pg.clip_cov_ratio = o.pg.kl_cov_ratio = 0.2;
    o.pg.clip_cov_lb = 0.01;
    return o;
}

static double whole(const struct data *d, const struct vl_actor_opts *o, float *g, float *dent,
                    struct vl_loss_sums *s)
{
    struct vl_loss_norm norm = { .dp = 1 };
    struct vl_pg_in in = input(d, 0, B, 1);
    struct vl_loss_sums mine = { 0 };
    struct vl_err e = { 0 };
    double loss;

    s = s ? s : &mine;
    assert_int_equal(vl_actor_loss(o, &in, d->ref, d->ent, &norm, g, dent, s, &e), 0);
    assert_int_equal(vl_loss_sums_value(s, VL_M_LOSS, &loss), 1);
    return loss;
}

/* Central difference of the loss along dlogp = dir (and old_logp too where the loss stops the
 * gradient through the ratio). */
static double slope(const struct data *d, const struct vl_actor_opts *o, const int *tokens, int n,
                    int move_old)
{
    struct data x;
    float g[N], dent[N], h = 1.0f / 4096;
    double f[2];

    for (int k = 0; k < 2; k++) {
        x = *d;
        for (int a = 0; a < n; a++) {
            x.logp[tokens[a]] += k ? h : -h;
            x.old[tokens[a]] += move_old ? (k ? h : -h) : 0;
        }
        f[k] = whole(&x, o, g, dent, NULL);
    }
    return (f[1] - f[0]) / (2 * h);
}

static void check_slope(const struct data *d, const struct vl_actor_opts *o, const char *name,
                        const float *g, const int *tokens, int n)
{
    double want = 0, got = slope(d, o, tokens, n, !strcmp(name, "cispo"));

    for (int a = 0; a < n; a++)
        want += g[tokens[a]];
    if (!(fabs(got - want) <= 1e-5 + 2e-4 * fabs(want)))
        fail_msg("%s agg %d token %d: slope %.8g, gradient %.8g", name, o->pg.agg, tokens[0], got,
                 want);
}

static void test_gradients(void **state)
{
    struct data d;

    (void)state;
    fill(&d);
    /* values on a grid of 2^-12, so that the steps are exact in float32 */
    for (int j = 0; j < N; j++) {
        d.logp[j] = rintf(d.logp[j] * 1024) / 1024;
        d.old[j] = rintf(d.old[j] * 1024) / 1024 + 0.00048828125f; /* off the clip edges */
    }
    for (size_t k = 0; vl_pg_name(k); k++) {
        for (int agg = 0; agg < 4; agg++) {
            struct vl_actor_opts o = options(vl_pg_name(k), agg);
            float g[N], dent[N];
            whole(&d, &o, g, dent, NULL);
            for (int i = 0; i < B; i++) {
                int row[L], n = 0;
                for (int j = i * L; j < (i + 1) * L; j++) {
                    if (d.mask[j])
                        row[n++] = j;
                    else
                        assert_true(g[j] == 0 && dent[j] == 0);
                }
                /* gspo's gradient flows through the own token only: exact along a whole row */
                if (!strcmp(vl_pg_name(k), "gspo") && n)
                    check_slope(&d, &o, vl_pg_name(k), g, row, n);
                for (int a = 0; strcmp(vl_pg_name(k), "gspo") && a < n; a++)
                    check_slope(&d, &o, vl_pg_name(k), g, row + a, 1);
            }
        }
    }
}

static void test_entropy_gradient(void **state)
{
    struct data d;
    struct vl_actor_opts o = options("vanilla", VL_AGG_SEQ_MEAN_TOKEN_MEAN);
    float g[N], dent[N], g2[N], dent2[N];

    (void)state;
    fill(&d);
    double f0 = whole(&d, &o, g, dent, NULL);
    for (int j = 0; j < N; j++) {
        if (!d.mask[j])
            continue;
        struct data x = d;
        x.ent[j] += 0.5f;
        assert_true(fabs(whole(&x, &o, g2, dent2, NULL) - f0 - 0.5 * dent[j]) < 1e-7);
    }
}

static void test_under_the_mask(void **state)
{
    (void)state;
    for (size_t k = 0; vl_pg_name(k); k++) {
        struct data d;
        struct vl_actor_opts o = options(vl_pg_name(k), VL_AGG_SEQ_MEAN_TOKEN_MEAN);
        float g[N], dent[N], g2[N], dent2[N];
        struct vl_loss_sums s = { 0 }, s2 = { 0 };
        fill(&d);
        whole(&d, &o, g, dent, &s);
        spoil_masked(&d);
        whole(&d, &o, g2, dent2, &s2);
        assert_memory_equal(g, g2, sizeof(g));
        assert_memory_equal(dent, dent2, sizeof(dent));
        assert_memory_equal(&s, &s2, sizeof(s));
    }
}

/* The same rows packed without padding: same loss and gradients, bit for bit. */
static void test_packed(void **state)
{
    static const int len[B] = { 7, 4, 0, 6, 1 };

    (void)state;
    for (size_t k = 0; vl_pg_name(k); k++) {
        struct data d, p;
        struct vl_actor_opts o = options(vl_pg_name(k), VL_AGG_TOKEN_MEAN);
        float g[N], dent[N], g2[N], dent2[N];
        struct vl_loss_sums s = { 0 }, s2 = { 0 };
        int64_t at = 0;
        fill(&d);
        memset(&p, 0, sizeof(p));
        for (int i = 0; i < B; i++) {
            p.first[i] = at;
            for (int t = 0; t < len[i]; t++, at++) {
                int j = i * L + t;
                p.mask[at] = d.mask[j];
                p.logp[at] = d.logp[j], p.old[at] = d.old[j], p.adv[at] = d.adv[j];
                p.w[at] = d.w[j], p.ref[at] = d.ref[j], p.ent[at] = d.ent[j];
                p.draw[at] = d.draw[j];
            }
        }
        p.first[B] = at;
        whole(&d, &o, g, dent, &s);
        whole(&p, &o, g2, dent2, &s2);
        assert_memory_equal(&s, &s2, sizeof(s));
        at = 0;
        for (int i = 0; i < B; i++)
            for (int t = 0; t < len[i]; t++, at++)
                assert_memory_equal(&g[i * L + t], &g2[at], sizeof(float));
    }
}

/* Any cut into consecutive micro-batches: the same bits in gradients and sums. */
static void test_micro_batches(void **state)
{
    (void)state;
    for (size_t k = 0; vl_pg_name(k); k++) {
        for (int agg = 0; agg < 4; agg++) {
            struct vl_actor_opts o = options(vl_pg_name(k), agg);
            struct data d;
            fill(&d);
            uint8_t pick[N];
            struct vl_pg_in whole_in = input(&d, 0, B, 1);
            struct vl_err pe = { 0 };
            if (vl_pg_picks(o.loss)) /* chosen over all rows, no cut shows */
                assert_int_equal(vl_pg_pick(o.loss, &whole_in, &o.pg, pick, &pe), 0);
            struct vl_loss_norm norm = { .dp = 1, .width = L };
            struct vl_loss_rows all = { B, d.first, d.mask };
            float g[3][N], dent[3][N];
            struct vl_loss_sums s[3] = { 0 };
            vl_loss_norm_count(&norm, &all);
            assert_true(norm.tokens == 17 && norm.seqs == 4 && norm.rows == 5);
            for (int step = 1; step <= 3; step++) { /* rows per micro-batch: 1, 2, all */
                int rows = step == 3 ? B : step;
                for (int from = 0; from < B; from += rows) {
                    int n = from + rows > B ? B - from : rows;
                    struct data part = d;
                    for (int i = 0; i <= n; i++)
                        part.first[i] = i * L;
                    struct vl_pg_in in = { .rows = { n, part.first, d.mask + from * L },
                                           .logp = d.logp + from * L,
                                           .old_logp = d.old + from * L,
                                           .adv = d.adv + from * L,
                                           .is_weights = d.w + from * L,
                                           .draw = d.draw + from * L,
                                           .pick = vl_pg_picks(o.loss) ? pick + from * L : NULL };
                    struct vl_err e = { 0 };
                    assert_int_equal(vl_actor_loss(&o, &in, d.ref + from * L, d.ent + from * L,
                                                   &norm, g[step - 1] + from * L,
                                                   dent[step - 1] + from * L, &s[step - 1], &e),
                                     0);
                }
            }
            for (int a = 0; a < 2; a++) {
                assert_memory_equal(g[a], g[2], sizeof(g[a]));
                assert_memory_equal(dent[a], dent[2], sizeof(dent[a]));
                assert_memory_equal(&s[a], &s[2], sizeof(s[a]));
            }
        }
    }
}

static void test_row_order(void **state)
{
    static const int perm[B] = { 3, 0, 4, 2, 1 };

    (void)state;
    for (size_t k = 0; vl_pg_name(k); k++) {
        struct data d, p;
        struct vl_actor_opts o = options(vl_pg_name(k), VL_AGG_SEQ_MEAN_TOKEN_MEAN);
        float g[N], dent[N], g2[N], dent2[N];
        fill(&d);
        p = d;
        for (int i = 0; i < B; i++) {
            for (int t = 0; t < L; t++) {
                int to = i * L + t, from = perm[i] * L + t;
                p.mask[to] = d.mask[from];
                p.logp[to] = d.logp[from], p.old[to] = d.old[from], p.adv[to] = d.adv[from];
                p.w[to] = d.w[from], p.ref[to] = d.ref[from], p.ent[to] = d.ent[from];
                p.draw[to] = d.draw[from];
            }
        }
        double a = whole(&d, &o, g, dent, NULL), b = whole(&p, &o, g2, dent2, NULL);
        assert_true(fabs(a - b) < 1e-12);
        for (int i = 0; i < B; i++)
            assert_memory_equal(g2 + i * L, g + perm[i] * L, L * sizeof(float));
    }
}

/* On unchanged weights the ratio is exactly 1: the gradient is -A times the weight. */
static void test_first_ratio(void **state)
{
    struct data d;
    struct vl_actor_opts o = options("vanilla", VL_AGG_TOKEN_MEAN);
    float g[N], dent[N];
    struct vl_loss_sums s = { 0 };
    double x;

    (void)state;
    fill(&d);
    o.use_kl_loss = 0;
    memcpy(d.logp, d.old, sizeof(d.old));
    for (int j = 0; j < N; j++)
        d.w[j] = 1;
    whole(&d, &o, g, dent, &s);
    for (int j = 0; j < N; j++)
        assert_true(g[j] == (d.mask[j] ? (float)(-(double)d.adv[j] * (1.0 / 17)) : 0));
    assert_true(vl_loss_sums_value(&s, VL_M_PPO_KL, &x) && x == 0);
    assert_true(vl_loss_sums_value(&s, VL_M_PG_CLIPFRAC, &x) && x == 0);
}

/* Each clip region has its own counter; the dual clip acts on negative advantages only. */
static void test_clip_counters(void **state)
{
    static const float x[4] = { 1, -1, 3, 3 }, adv[4] = { 1, -1, -1, 1 };
    struct data d;
    struct vl_actor_opts o = options("vanilla", VL_AGG_TOKEN_MEAN);
    float g[N], dent[N];
    struct vl_loss_sums s = { 0 };
    double v;

    (void)state;
    fill(&d);
    o.use_kl_loss = 0;
    memset(d.mask, 0, sizeof(d.mask));
    for (int j = 0; j < 4; j++) {
        d.mask[j] = 1;
        d.old[j] = -5;
        d.logp[j] = d.old[j] + x[j];
        d.adv[j] = adv[j];
    }
    whole(&d, &o, g, dent, &s);
    assert_true(vl_loss_sums_value(&s, VL_M_PG_CLIPFRAC_HIGH, &v) && v == 0.5);
    assert_true(vl_loss_sums_value(&s, VL_M_PG_CLIPFRAC_LOW, &v) && v == 0.25);
    assert_true(vl_loss_sums_value(&s, VL_M_PG_CLIPFRAC_LOWER, &v) && v == 0.25);
    assert_true(vl_loss_sums_value(&s, VL_M_PG_CLIPFRAC, &v) && v == 0.75);
    for (int j = 0; j < 4; j++)
        assert_true(g[j] == 0);
    d.logp[0] = d.old[0] + 30;
    memset(&s, 0, sizeof(s));
    whole(&d, &o, g, dent, &s);
    assert_true(vl_loss_sums_value(&s, VL_M_RATIO_CLAMPED, &v) && v == 1);
}

/* gspo's cap exp(10) on the ratio passes no gradient; a ratio on the dual clip passes half of it. */
static void test_caps(void **state)
{
    struct data d;
    struct vl_actor_opts o = options("gspo", VL_AGG_TOKEN_MEAN);
    float g[N], dent[N];
    double loss;

    (void)state;
    fill(&d);
    o.use_kl_loss = 0;
    o.entropy_coeff = 0;
    memset(d.mask, 0, sizeof(d.mask));
    d.mask[0] = 1;
    d.old[0] = -20;
    d.logp[0] = -8;
    d.adv[0] = -1;
    d.w[0] = 1;
    loss = whole(&d, &o, g, dent, NULL);
    assert_true(fabs(loss / vl_dexp(10) - 1) < 1e-14 && g[0] == 0);

    o = options("vanilla", VL_AGG_TOKEN_MEAN);
    o.use_kl_loss = 0;
    o.pg.clip_ratio_c = vl_dexp(2);
    d.logp[0] = -18;
    whole(&d, &o, g, dent, NULL);
    assert_true(fabs(g[0] - 0.5 * vl_dexp(2)) < 1e-6);
}

static void test_value_and_sft(void **state)
{
    struct data d;
    struct vl_loss_norm norm = { .dp = 1 };
    struct vl_loss_sums s = { 0 };
    float dv[N], other[N], h = 1.0f / 1024;
    double f[3];

    (void)state;
    fill(&d);
    struct vl_loss_rows rows = { B, d.first, d.mask };
    for (int j = 0; j < N; j++) { /* adv = returns, old = old values, logp = new values */
        d.logp[j] = rintf(d.logp[j] * 1024) / 1024;
        if (!d.mask[j])
            d.logp[j] = d.old[j] = d.adv[j] = NAN;
    }
    for (int j = 0; j < N; j++) {
        if (!d.mask[j])
            continue;
        for (int k = 0; k < 3; k++) {
            struct vl_loss_sums one = { 0 };
            float v[N];
            memcpy(v, d.logp, sizeof(v));
            v[j] += (float)(k - 1) * h;
            vl_value_loss(&rows, v, d.old, d.adv, 0.3, VL_AGG_SEQ_MEAN_TOKEN_SUM, &norm,
                          k == 1 ? dv : other, &one);
            assert_int_equal(vl_loss_sums_value(&one, VL_M_VF_LOSS, &f[k]), 1);
        }
        assert_true(fabs((f[2] - f[0]) / (2 * h) - dv[j]) < 1e-5 + 1e-3 * fabs(dv[j]));
    }
    vl_sft_loss(&rows, d.logp, &norm, dv, &s);
    for (int j = 0; j < N; j++)
        assert_true(dv[j] == (d.mask[j] ? (float)(-1.0 / 17) : 0));
    assert_true(vl_loss_sums_value(&s, VL_M_SFT_LOSS, f) && isfinite(f[0]) && f[0] > 0);
}

static void test_options(void **state)
{
    struct vl_err e = { 0 };
    struct vl_pg_opts o = VL_PG_DEFAULTS;
    enum vl_agg agg;

    (void)state;
    assert_null(vl_pg_find("ppo", &e));
    assert_int_equal(e.code, VL_E_USAGE);
    assert_non_null(strstr(e.msg, "geo_mean"));
    e = (struct vl_err){ 0 };
    o.clip_ratio_c = 1;
    assert_int_equal(vl_pg_check(vl_pg_find("vanilla", &e), &o, &e), VL_E_USAGE);
    assert_non_null(strstr(e.msg, "clip_ratio_c"));
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_pg_check(vl_pg_find("cispo", &e), &o, &e), 0);
    assert_int_equal(vl_agg_parse(&agg, "token_mean", &e), VL_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),      cmocka_unit_test(test_entropy_gradient),
        cmocka_unit_test(test_under_the_mask), cmocka_unit_test(test_packed),
        cmocka_unit_test(test_micro_batches),  cmocka_unit_test(test_row_order),
        cmocka_unit_test(test_first_ratio),    cmocka_unit_test(test_clip_counters),
        cmocka_unit_test(test_caps),           cmocka_unit_test(test_value_and_sft),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
