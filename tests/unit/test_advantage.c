/* test_advantage.c - rules of the estimators that recorded cases do not show: exact zeros, rows left
 * out, what stands under the mask, padding, row order, messages; schedules' and KL's edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libverl/algo/advantage.h"
#include "libverl/algo/kl.h"
#include "libverl/algo/masked.h"
#include "libverl/algo/schedule.h"
#include "libverl/base/philox.h"

enum { MAXB = 12, MAXL = 16, MAXN = MAXB * MAXL };

struct batch {
    struct vl_adv_in in;
    float rewards[MAXN], values[MAXN], old[MAXN], pi2[MAXN], baselines[MAXB];
    int64_t mask[MAXN];
    char uid[MAXB][8];
    const char *text[MAXB];
    size_t len[MAXB];
};

static double uni(uint32_t k, uint32_t what)
{
    return vl_uniform(vl_philox_key("adv", 3, 1), k, what, 0, VL_RNG_INIT);
}

/* uids "a".."c" dealt in turn, rows of different lengths, one hole, scores on the last valid token. */
static void fill(struct batch *b, int64_t B, int64_t L)
{
    memset(b, 0, sizeof(*b));
    b->in = (struct vl_adv_in){ .B = B, .L = L };
    for (int64_t i = 0; i < B; i++) {
        int64_t n = 2 + (i * 5) % 6, last = 0;
        snprintf(b->uid[i], sizeof(b->uid[i]), "%c", (char)('a' + i % 3));
        b->text[i] = b->uid[i];
        b->len[i] = strlen(b->uid[i]);
        b->baselines[i] = (float)uni((uint32_t)i, 9);
        for (int64_t t = 0; t < L; t++) {
            int64_t j = i * L + t;
            uint32_t k = (uint32_t)(i * MAXL + t);
            b->mask[j] = t < n && !(i == 1 && t == 1);
            last = b->mask[j] ? j : last;
            b->values[j] = b->mask[j] ? (float)uni(k, 1) : 0;
            b->old[j] = b->mask[j] ? (float)(-2 * uni(k, 2) - 0.1) : 0;
            b->pi2[j] = b->mask[j] ? (float)uni(k, 3) : 0;
        }
        b->rewards[last] = (float)(uni((uint32_t)i, 4) * 4 - 2);
    }
    b->in.rewards = b->rewards;
    b->in.mask = b->in.score_mask = b->mask;
    b->in.values = b->values;
    b->in.old_logp = b->old;
    b->in.sum_pi2 = b->pi2;
    b->in.baselines = b->baselines;
}

static void run_tail(const struct vl_adv_estimator *a, struct batch *b, int zero_tail, float *adv,
                     float *ret)
{
    struct vl_adv_opts o = VL_ADV_DEFAULTS;
    struct vl_err e = { 0 };

    o.gamma = 0.97;
    o.lam = 0.9;
    o.handle_zero_tail = zero_tail;
    assert_int_equal(vl_groups_make(&b->in.groups, b->text, b->len, b->in.B, &e), 0);
    if (vl_adv_compute(a, &b->in, &o, adv, ret, &e))
        fail_msg("%s: %s", a->name, e.msg);
    vl_groups_free(&b->in.groups);
}

static void run(const struct vl_adv_estimator *a, struct batch *b, float *adv, float *ret)
{
    run_tail(a, b, -1, adv, ret);
}

static void test_groups(void **state)
{
    static const char *const text[6] = { "b", "a", "b", "ab", "a", "" };
    static const size_t len[6] = { 1, 1, 1, 2, 1, 0 };
    static const int64_t of[6] = { 0, 1, 0, 2, 1, 3 }, size[4] = { 2, 2, 1, 1 };
    struct vl_groups g;
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(vl_groups_make(&g, text, len, 6, &e), 0);
    assert_int_equal(g.n, 4);
    assert_memory_equal(g.of, of, sizeof(of));
    assert_memory_equal(g.size, size, sizeof(size));
    vl_groups_free(&g);
    assert_int_equal(vl_groups_make(&g, NULL, NULL, 0, &e), 0);
    assert_int_equal(g.n, 0);
    vl_groups_free(&g);
}

/* Equal scores give exactly 0 in every group estimator, also where the value is no binary fraction
 * and the group is odd. (Where handle_zero_tail takes the baseline away, nothing cancels.) */
static void test_equal_scores(void **state)
{
    static const float value[4] = { 0.9f, 0.1f, -3.3f, 1.0f };
    size_t n;
    const struct vl_adv_estimator *list = vl_adv_list(&n);

    (void)state;
    for (size_t k = 0; k < n; k++) {
        if (!(list[k].needs & VL_ADV_GROUPS))
            continue;
        for (int v = 0; v < 4; v++) {
            for (int64_t B = 3; B <= MAXB; B += 3) {
                struct batch b;
                float adv[MAXN], ret[MAXN];
                fill(&b, B, 9);
                if (B < 2 * 3 && list[k].min_group > 1)
                    continue; /* three uids: groups of one */
                for (int64_t i = 0; i < B; i++) {
                    b.text[i] = B == 3 ? "a" : b.text[i];
                    for (int64_t j = i * 9; j < (i + 1) * 9; j++)
                        b.rewards[j] = b.rewards[j] != 0 ? value[v] : 0;
                }
                run_tail(&list[k], &b, 0, adv, ret);
                for (int64_t j = 0; j < B * 9; j++)
                    if (adv[j] != 0)
                        fail_msg("%s: %g for %lld scores of %g", list[k].name, adv[j], (long long)B,
                                 value[v]);
            }
        }
    }
}

/* Numbers under the mask, NaN included, change no valid position (with score_mask). */
static void test_under_the_mask(void **state)
{
    size_t n;
    const struct vl_adv_estimator *list = vl_adv_list(&n);

    (void)state;
    for (size_t k = 0; k < n; k++) {
        for (int how = 0; how < 2; how++) {
            struct batch b;
            float adv[MAXN], ret[MAXN], adv2[MAXN], ret2[MAXN];
            fill(&b, 9, 10);
            run(&list[k], &b, adv, ret);
            for (int64_t j = 0; j < 90; j++)
                if (!b.mask[j])
                    b.rewards[j] = b.values[j] = b.old[j] = b.pi2[j] = how ? NAN : 1e6f;
            run(&list[k], &b, adv2, ret2);
            for (int64_t j = 0; j < 90; j++) {
                assert_true(isfinite(adv2[j]) && isfinite(ret2[j]));
                if (b.mask[j] && (adv[j] != adv2[j] || ret[j] != ret2[j]))
                    fail_msg("%s: token %lld: %g became %g", list[k].name, (long long)j, adv[j],
                             adv2[j]);
            }
        }
    }
}

/* Two components of different scale, by hand: groups (0, 1, 2) and (3, 4), one token a row. */
static void test_gdpo(void **state)
{
    enum { ROWS = 5 };
    static const double component[2 * ROWS] = { 1, 0, 0, 1, 0, 300, 100, 200, 7, 7 };
    static const double weight[2] = { 2, 0.5 };
    static const float rewards[ROWS];
    static const int64_t mask[ROWS] = { 1, 1, 1, 1, 1 };
    static const char *const uid[ROWS] = { "a", "a", "a", "b", "b" };
    static const size_t len[ROWS] = { 1, 1, 1, 1, 1 };
    struct vl_adv_in in = { .B = ROWS,
                            .L = 1,
                            .rewards = rewards,
                            .mask = mask,
                            .ncomponents = 2,
                            .component = component,
                            .component_weight = weight };
    struct vl_adv_opts o = VL_ADV_DEFAULTS;
    struct vl_err e = { 0 };
    float adv[ROWS], ret[ROWS], raw[ROWS];
    double third = 1.0 / 3, s3 = sqrt(third) + 1e-6, s2 = sqrt(0.5) + 1e-6;
    double want[ROWS] = { 2 * (2 * third) / s3 + 0.5 * 100 / (100 + 1e-6),
                          -2 * third / s3 - 0.5 * 100 / (100 + 1e-6), -2 * third / s3, 2 * 0.5 / s2,
                          -2 * 0.5 / s2 };
    double mean = 0, var = 0;

    (void)state;
    assert_int_equal(vl_groups_make(&in.groups, uid, len, ROWS, &e), 0);
    o.gdpo_whiten = 0;
    assert_int_equal(vl_adv_compute(vl_adv_find("gdpo", &e), &in, &o, raw, ret, &e), 0);
    for (int i = 0; i < ROWS; i++) {
        assert_true(fabs(raw[i] - want[i]) < 1e-6 && ret[i] == raw[i]);
        mean += want[i] / ROWS;
    }
    for (int i = 0; i < ROWS; i++)
        var += (want[i] - mean) * (want[i] - mean) / (ROWS - 1);
    o.gdpo_whiten = 1;
    assert_int_equal(vl_adv_compute(vl_adv_find("gdpo", &e), &in, &o, adv, ret, &e), 0);
    for (int i = 0; i < ROWS; i++)
        assert_true(fabs(adv[i] - (want[i] - mean) / sqrt(var + 1e-8)) < 1e-6);
    vl_groups_free(&in.groups);
}

static void test_sppo(void **state)
{
    static const float rewards[3] = { 1, 0, 3 };
    static const int64_t mask[3] = { 1, 1, 1 };
    struct vl_adv_in in = { .B = 3, .L = 1, .rewards = rewards, .mask = mask };
    struct vl_adv_opts o = VL_ADV_DEFAULTS;
    struct vl_err e = { 0 };
    float adv[3], ret[3];

    (void)state;
    assert_int_equal(vl_adv_compute(vl_adv_find("sppo", &e), &in, &o, adv, ret, &e), 0);
    assert_true(fabs(adv[0] - (1 - log((exp(1) + 1 + exp(3)) / 3))) < 1e-6);
    o.sppo_beta = 0;
    assert_int_equal(vl_adv_compute(vl_adv_find("sppo", &e), &in, &o, adv, ret, &e), 0);
    assert_true(fabs(adv[2] - (3 - 4.0 / 3)) < 1e-6);
    o.sppo_beta = 2000;
    assert_int_equal(vl_adv_compute(vl_adv_find("sppo", &e), &in, &o, adv, ret, &e), 0);
    assert_true(fabs(adv[2] - log(3) / 2000) < 1e-6);
}

static void test_padding(void **state)
{
    size_t n;
    const struct vl_adv_estimator *list = vl_adv_list(&n);

    (void)state;
    for (size_t k = 0; k < n; k++) {
        struct batch a, b;
        float adv[MAXN], ret[MAXN], adv2[MAXN], ret2[MAXN];
        fill(&a, 9, 8);
        fill(&b, 9, 15);
        run(&list[k], &a, adv, ret);
        run(&list[k], &b, adv2, ret2);
        for (int64_t i = 0; i < 9; i++) {
            assert_memory_equal(adv + i * 8, adv2 + i * 15, 8 * sizeof(float));
            assert_memory_equal(ret + i * 8, ret2 + i * 15, 8 * sizeof(float));
        }
    }
}

/* Rows in another order, groups kept: the same numbers within the last bits of a sum. */
static void test_row_order(void **state)
{
    static const int64_t perm[9] = { 8, 2, 5, 0, 7, 1, 3, 6, 4 };
    size_t n;
    const struct vl_adv_estimator *list = vl_adv_list(&n);

    (void)state;
    for (size_t k = 0; k < n; k++) {
        struct batch a, b;
        float adv[MAXN], ret[MAXN], adv2[MAXN], ret2[MAXN];
        fill(&a, 9, 8);
        fill(&b, 9, 8);
        for (int64_t i = 0; i < 9; i++) {
            size_t row = 8 * sizeof(float);
            memcpy(b.rewards + i * 8, a.rewards + perm[i] * 8, row);
            memcpy(b.values + i * 8, a.values + perm[i] * 8, row);
            memcpy(b.old + i * 8, a.old + perm[i] * 8, row);
            memcpy(b.pi2 + i * 8, a.pi2 + perm[i] * 8, row);
            memcpy(b.mask + i * 8, a.mask + perm[i] * 8, 8 * sizeof(int64_t));
            b.baselines[i] = a.baselines[perm[i]];
            b.text[i] = a.uid[perm[i]];
        }
        run(&list[k], &a, adv, ret);
        run(&list[k], &b, adv2, ret2);
        for (int64_t j = 0; j < 72; j++) {
            float want = adv[perm[j / 8] * 8 + j % 8];
            assert_true(fabsf(adv2[j] - want) <= 1e-6f * (1 + fabsf(want)));
        }
    }
}

/* A row left out is in no statistic: the others are as if it were not there. */
static void test_left_out(void **state)
{
    size_t n;
    const struct vl_adv_estimator *list = vl_adv_list(&n);

    (void)state;
    for (size_t k = 0; k < n; k++) {
        struct batch a, b;
        float adv[MAXN], ret[MAXN], adv2[MAXN], ret2[MAXN];
        uint8_t out[MAXB] = { 0 };
        fill(&a, 9, 8);
        fill(&b, 10, 8); /* row 9 more, of group "a", with a wild score */
        b.rewards[9 * 8] = 1e4f;
        out[9] = 1;
        b.in.left_out = out;
        run(&list[k], &a, adv, ret);
        run(&list[k], &b, adv2, ret2);
        assert_memory_equal(adv, adv2, 72 * sizeof(float));
        assert_memory_equal(ret, ret2, 72 * sizeof(float));
        for (int t = 0; t < 8; t++)
            assert_true(adv2[72 + t] == 0 && ret2[72 + t] == 0);
    }
}

/* score_mask NULL is verl: a reward on padding counts. */
static void test_as_verl(void **state)
{
    struct batch b;
    float adv[MAXN], ret[MAXN];
    struct vl_err e = { 0 };

    (void)state;
    fill(&b, 6, 8);
    memset(b.rewards, 0, sizeof(b.rewards));
    b.rewards[7] = 1; /* row 0 has 2 valid tokens; its group is rows 0 and 3 */
    run(vl_adv_find("rloo", &e), &b, adv, ret);
    assert_true(adv[0] == 0);
    b.in.score_mask = NULL;
    run(vl_adv_find("rloo", &e), &b, adv, ret);
    assert_true(adv[0] == 1 && adv[3 * 8] == -1);
}

static void test_errors(void **state)
{
    struct batch b;
    struct vl_adv_opts o = VL_ADV_DEFAULTS;
    struct vl_err e = { 0 };
    float adv[MAXN], ret[MAXN];

    (void)state;
    assert_null(vl_adv_find("grp", &e));
    assert_int_equal(e.code, VL_E_USAGE);
    assert_non_null(strstr(e.msg, "reinforce_plus_plus_baseline"));
    e = (struct vl_err){ 0 };
    fill(&b, 4, 8); /* groups of 2, 1, 1 */
    assert_int_equal(vl_groups_make(&b.in.groups, b.text, b.len, 4, &e), 0);
    assert_int_equal(vl_adv_compute(vl_adv_find("grpo_passk", &e), &b.in, &o, adv, ret, &e),
                     VL_E_DATA);
    assert_non_null(strstr(e.msg, "row 1"));
    vl_groups_free(&b.in.groups);
}

static void test_controller(void **state)
{
    struct vl_kl_ctrl k;
    struct vl_kl_type t;
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(vl_kl_ctrl_init(&k, "linear", 1, 1, 1, &e), VL_E_USAGE);
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_kl_ctrl_init(&k, "adaptive", 1, 0, 1, &e), VL_E_USAGE);
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_kl_ctrl_init(&k, "adaptive", 2, 0.1, 100, &e), 0);
    vl_kl_ctrl_update(&k, 10, 50); /* far above the target: +0.2 at most */
    assert_true(fabs(k.coef - 2 * (1 + 0.2 * 50 / 100)) < 1e-15);
    assert_int_equal(vl_kl_parse(&t, "k4", &e), VL_E_USAGE);
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_kl_parse(&t, "low_var_kl+", &e), 0);
    assert_true(t.straight && t.value == VL_K3);
    assert_true(vl_kl(t, -1, -1) == 0 && vl_kl_grad(t, -1, -1.5f) == 0.5);
    assert_true(vl_kl_clamped(t, -30, -1) && !vl_kl_clamped(t, -2, -1));
}

/* From 0 at the first warm-up step to the floor at the last, never above the peak. */
static void test_schedules(void **state)
{
    static const char *const types[3] = { "constant", "cosine", "wsd" };
    struct vl_err e = { 0 };

    (void)state;
    for (int k = 0; k < 3; k++) {
        struct vl_schedule s = VL_SCHEDULE_DEFAULTS;
        assert_int_equal(vl_schedule_init(&s, types[k], 1e-3, 200, -1, 0.05, &e), 0);
        assert_int_equal(s.warmup, 10);
        assert_true(vl_schedule_lr(&s, 0) == 0);
        assert_true(fabs(vl_schedule_lr(&s, 5) - 5e-4) < 1e-18);
        assert_true(vl_schedule_lr(&s, 10) == 1e-3);
        for (int64_t i = 0; i < 220; i++)
            assert_true(vl_schedule_lr(&s, i) >= 0 && vl_schedule_lr(&s, i) <= 1e-3);
        assert_true(k == 0 ? vl_schedule_lr(&s, 200) == 1e-3 : vl_schedule_lr(&s, 200) < 1e-18);
    }
    struct vl_schedule s = VL_SCHEDULE_DEFAULTS;
    assert_int_equal(vl_schedule_init(&s, "cosine", 1, 0, 0, 0, &e), VL_E_USAGE);
}

static void test_mask_from_ids(void **state)
{
    static const int64_t ids[8] = { 5, 0, 7, 0, 1, 2, 3, 4 }, end[1] = { 0 };
    static const int64_t want[8] = { 1, 1, 0, 0, 1, 1, 1, 1 };
    int64_t mask[8];

    (void)state;
    vl_mask_from_ids(mask, ids, 2, 4, end, 1); /* id 0 is an ordinary end id */
    assert_memory_equal(mask, want, sizeof(want));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),         cmocka_unit_test(test_gdpo),
        cmocka_unit_test(test_sppo),           cmocka_unit_test(test_equal_scores),
        cmocka_unit_test(test_under_the_mask), cmocka_unit_test(test_padding),
        cmocka_unit_test(test_row_order),      cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_as_verl),        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_controller),     cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_mask_from_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
