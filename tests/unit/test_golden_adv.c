/* test_golden_adv.c - recorded cases: primitives (log-probs and entropies through the backend), advantage
 * estimators, KL, schedules. */
#include "golden.h"

#include "libverl/algo/advantage.h"
#include "libverl/algo/kl.h"
#include "libverl/algo/loss.h"
#include "libverl/algo/masked.h"
#include "libverl/algo/schedule.h"
#include "libverl/engine/backend.h"

/* ---- functional ---- */

static int axis_none(const struct gcase *c)
{
    return !ghas(c, c->config, "axis");
}

static int reduce(struct gcase *c, double (*fn)(const float *, const int64_t *, int64_t))
{
    int64_t B, L;
    float *x = gf32(c, "values", &B, &L);
    int64_t *m = gi64(c, "mask", NULL, NULL);
    double *got = gzero(c, B, sizeof(*got));

    if (axis_none(c)) {
        gwant(c, "result", fn(x, m, B * L));
        return 0;
    }
    for (int64_t i = 0; i < B; i++)
        got[i] = fn(x + i * L, m + i * L, L);
    gwant_node(c, "result", vl_json_get(c->j, c->out, "result"), got, B);
    return 0;
}

static int run_sum(struct gcase *c)
{
    return reduce(c, vl_masked_sum);
}

static int run_mean(struct gcase *c)
{
    return reduce(c, vl_masked_mean);
}

static int run_var(struct gcase *c)
{
    int64_t B, L;
    float *x = gf32(c, "values", &B, &L);
    double var;

    if (vl_masked_var(&var, x, gi64(c, "mask", NULL, NULL), B * L,
                      (int)gnum(c, c->config, "unbiased", 1), &c->e))
        return c->e.code;
    gwant(c, "result", var);
    return 0;
}

static int run_whiten(struct gcase *c)
{
    int64_t B, L;
    float *x = gf32(c, "values", &B, &L);

    if (vl_masked_whiten(x, x, gi64(c, "mask", NULL, NULL), B * L,
                         (int)gnum(c, c->config, "shift_mean", 1), &c->e))
        return c->e.code;
    gwant_f32(c, "result", x, B * L);
    return 0;
}

static int run_clip(struct gcase *c)
{
    int64_t B, L;
    float *x = gf32(c, "x", &B, &L), *lo = gf32(c, "min", NULL, NULL),
          *hi = gf32(c, "max", NULL, NULL);

    for (int64_t k = 0; k < B * L; k++)
        x[k] = (float)vl_clip(x[k], lo[k], hi[k]);
    gwant_f32(c, "result", x, B * L);
    return 0;
}

static int run_response_mask(struct gcase *c)
{
    int64_t B, L, n, *ids = gi64(c, "response_ids", &B, &L);
    int64_t *mask = gzero(c, B * L, sizeof(*mask)), end[8];
    double *e = gdoubles(c, vl_json_get(c->j, c->config, "eos_token"), &n, NULL);

    assert_true(n <= 8);
    for (int64_t k = 0; k < n; k++)
        end[k] = (int64_t)e[k];
    vl_mask_from_ids(mask, ids, B, L, end, n);
    gwant_i64(c, "mask", mask, B * L);
    return 0;
}

/* Log-probs, entropy and sum of squared probabilities of given logits: the fused projection with the
 * identity as its weights. M rows of V logits; out: 4 arrays of M. */
struct head {
    struct vl_backend *be;
    struct vl_weight *w;
    int64_t M, V;
    float *x, *out;
    int32_t *target;
};

static void head_open(struct gcase *c, struct head *h)
{
    float *eye;

    h->x = gf32(c, "logits", &h->M, &h->V);
    h->out = gzero(c, 4 * h->M, sizeof(float));
    h->target = gzero(c, h->M, sizeof(int32_t));
    eye = gzero(c, h->V * h->V, sizeof(float));
    for (int64_t i = 0; i < h->V; i++)
        eye[i * h->V + i] = 1;
    assert_int_equal(vl_backend_cpu(&h->be, NULL, 1, 1, &c->e), 0);
    assert_int_equal(
        h->be->weight_new(h->be->ctx, &h->w, h->V, h->V, VL_COMPUTE_F32, VL_FORM_TRAIN, &c->e), 0);
    h->be->weight_set(h->be->ctx, h->w, eye);
}

static void head_run(struct head *h)
{
    h->be->head_logp(h->be->ctx, h->out, h->out + h->M, h->out + 2 * h->M, h->out + 3 * h->M, h->x,
                     h->w, h->target, NULL, 1, h->M);
}

static void head_close(struct head *h)
{
    h->be->weight_free(h->be->ctx, h->w);
    h->be->close(h->be);
}

static int run_logits(struct gcase *c)
{
    struct head h;

    head_open(c, &h);
    int64_t M = h.M, V = h.V, *y = gi64(c, "labels", NULL, NULL);
    float *wl = gf32(c, "weight_logprobs", NULL, NULL), *we = gf32(c, "weight_entropy", NULL, NULL);
    float *dx = gzero(c, M * V, sizeof(*dx)), *dw = gzero(c, V * V, sizeof(*dw));
    float *none = gzero(c, M, sizeof(*none));
    for (int64_t i = 0; i < M; i++)
        h.target[i] = (int32_t)y[i];
    head_run(&h);
    gwant_f32(c, "logprobs", h.out, M);
    gwant_f32(c, "entropy", h.out + M, M);
    gwant_f32(c, "entropy_chunked", h.out + M, M);
    gwant_f32(c, "sum_pi_squared", h.out + 3 * M, M);
    h.be->head_bwd(h.be->ctx, dx, dw, h.x, h.w, h.target, h.out + 2 * M, h.out + M, wl, NULL, NULL,
                   NULL, 1, M, 1);
    gwant_f32(c, "grad_logits_of_weighted_logprobs", dx, M * V);
    h.be->head_bwd(h.be->ctx, dx, dw, h.x, h.w, h.target, h.out + 2 * M, h.out + M, none, we, NULL,
                   NULL, 1, M, 1);
    gwant_f32(c, "grad_logits_of_weighted_entropy", dx, M * V);
    head_close(&h);
    return 0;
}

static int run_entropy_loss(struct gcase *c)
{
    int64_t B, L, first[64];
    struct head h;
    struct vl_loss_norm norm = { .dp = 1 };
    enum vl_agg agg;

    head_open(c, &h);
    int64_t *mask = gi64(c, "response_mask", &B, &L);
    assert_true(B < 64 && B * L == h.M);
    for (int64_t i = 0; i <= B; i++)
        first[i] = i * L;
    head_run(&h);
    struct vl_loss_rows rows = { B, first, mask };
    assert_int_equal(vl_agg_parse(&agg, gstr(c, c->config, "loss_agg_mode", ""), &c->e), 0);
    gwant(c, "loss", vl_agg_loss(agg, &rows, h.out + h.M, &norm, NULL));
    head_close(&h);
    return 0;
}

static void test_functional(void **state)
{
    static const struct grunner runners[] = {
        { "masked_sum", run_sum },
        { "masked_mean", run_mean },
        { "masked_var", run_var },
        { "masked_whiten", run_whiten },
        { "clip_by_value", run_clip },
        { "get_response_mask", run_response_mask },
        { "logits", run_logits },
        { "entropy_loss", run_entropy_loss },
        { 0 },
    };

    (void)state;
    grun_file("functional", runners, 1e-4);
}

/* ---- advantages ---- */

static void read_groups(struct gcase *c, struct vl_groups *g, int64_t B)
{
    const char **s = gzero(c, B, sizeof(*s));
    size_t *len = gzero(c, B, sizeof(*len));
    int64_t list = vl_json_get(c->j, c->in, "uid"), i = list + 1;

    for (int64_t k = 0; list >= 0 && k < B; k++, i = c->j->node[i].next) {
        s[k] = c->j->text + c->j->node[i].at;
        len[k] = c->j->node[i].len;
    }
    assert_int_equal(vl_groups_make(g, s, len, B, &c->e), 0);
}

static int run_advantage_named(struct gcase *c, const char *name, const struct vl_adv_opts *o)
{
    struct vl_adv_in in = { 0 };
    const struct vl_adv_estimator *a = vl_adv_find(name, &c->e);

    if (!a)
        return c->e.code;
    in.rewards = gf32(c, "token_level_rewards", &in.B, &in.L);
    in.mask = gi64(c, "response_mask", NULL, NULL);
    if (!in.mask) { /* the last columns of the attention mask */
        int64_t W, *att = gi64(c, "attention_mask", NULL, &W);
        int64_t *m = gzero(c, in.B * in.L, sizeof(*m));
        for (int64_t j = 0; j < in.B * in.L; j++)
            m[j] = att[j / in.L * W + W - in.L + j % in.L];
        in.mask = m;
    }
    in.values = gf32(c, "values", NULL, NULL);
    in.baselines = gf32(c, "reward_baselines", NULL, NULL);
    in.old_logp = gf32(c, "old_log_probs", NULL, NULL);
    in.sum_pi2 = gf32(c, "sum_pi_squared", NULL, NULL);
    in.is_weights = gf32(c, "rollout_is_weights", NULL, NULL);
    read_groups(c, &in.groups, in.B);
    float *adv = gzero(c, in.B * in.L, sizeof(*adv)), *ret = gzero(c, in.B * in.L, sizeof(*ret));
    if (vl_adv_compute(a, &in, o, adv, ret, &c->e) == 0 && !ghas(c, c->out, "error")) {
        gwant_f32(c, "advantages", adv, in.B * in.L);
        gwant_f32(c, "returns", ret, in.B * in.L);
    }
    vl_groups_free(&in.groups);
    return c->e.code;
}

static int run_advantage(struct gcase *c)
{
    struct vl_adv_opts o = VL_ADV_DEFAULTS;

    o.gamma = gnum(c, c->config, "gamma", 1);
    o.lam = gnum(c, c->config, "lam", 1);
    o.norm_by_std = (int)gnum(c, c->config, "norm_adv_by_std_in_grpo", 1);
    o.handle_zero_tail = (int)gnum(c, c->config, "handle_zero_tail", -1);
    return run_advantage_named(c, c->op, &o);
}

/* verl's driver: does not pass the normalise flag to grpo_vectorized, and fails on the token
 * baselines, where we do what is evidently meant (their cases are skipped: the same estimators are
 * checked directly). */
static int run_dispatch(struct gcase *c)
{
    struct vl_adv_opts o = VL_ADV_DEFAULTS;
    const char *name = gstr(c, c->config, "adv_estimator", "");

    o.gamma = gnum(c, c->config, "gamma", 1);
    o.lam = gnum(c, c->config, "lam", 1);
    o.norm_by_std =
        !strcmp(name, "grpo_vectorized") || (int)gnum(c, c->config, "norm_adv_by_std_in_grpo", 1);
    int rc = run_advantage_named(c, name, &o);
    if (strstr(name, "token_baseline")) {
        assert_int_equal(rc, 0);
        return vl_fail(&c->e, VL_E_USAGE, "verl's driver fails here");
    }
    return rc;
}

static void test_advantage(void **state)
{
    static const struct grunner runners[] = {
        { "gae", run_advantage },
        { "grpo", run_advantage },
        { "grpo_vectorized", run_advantage },
        { "grpo_passk", run_advantage },
        { "reinforce_plus_plus", run_advantage },
        { "reinforce_plus_plus_baseline", run_advantage },
        { "remax", run_advantage },
        { "rloo", run_advantage },
        { "rloo_vectorized", run_advantage },
        { "opo", run_advantage },
        { "gpg", run_advantage },
        { "optimal_token_baseline", run_advantage },
        { "tir_optimal_token_baseline", run_advantage },
        { "compute_advantage", run_dispatch },
        { 0 },
    };

    (void)state;
    grun_file("advantage", runners, 1e-4);
}

/* ---- KL and schedules ---- */

static int run_kl_values(struct gcase *c)
{
    int64_t B, L;
    float *lp = gf32(c, "logprob", &B, &L), *ref = gf32(c, "ref_logprob", NULL, NULL);
    float *w = gf32(c, "weight", NULL, NULL);
    float *kl = gzero(c, B * L, sizeof(*kl)), *g = gzero(c, B * L, sizeof(*g));
    struct vl_kl_type t;

    if (vl_kl_parse(&t, gstr(c, c->config, "kl_penalty", ""), &c->e))
        return c->e.code;
    for (int64_t k = 0; k < B * L; k++) {
        kl[k] = (float)vl_kl(t, lp[k], ref[k]);
        g[k] = (float)(w[k] * vl_kl_grad(t, lp[k], ref[k]));
    }
    if (!ghas(c, c->out, "error")) {
        gwant_f32(c, "kl", kl, B * L);
        gwant_f32(c, "grad_logprob_of_weighted_kl", g, B * L);
    }
    return 0;
}

/* verl raises on every '+' name at this commit; here they work (kl_penalty_straight_through). */
static int run_kl_penalty(struct gcase *c)
{
    int rc = run_kl_values(c);

    if (strchr(gstr(c, c->config, "kl_penalty", ""), '+')) {
        assert_true(ghas(c, c->out, "error"));
        assert_int_equal(rc, 0);
        return vl_fail(&c->e, VL_E_USAGE, "verl fails here");
    }
    return rc;
}

static int run_kl_reward(struct gcase *c)
{
    int64_t B, L, metrics = vl_json_get(c->j, c->out, "metrics");
    float *s = gf32(c, "token_level_scores", &B, &L), *got = gzero(c, B * L, sizeof(*got));
    struct vl_kl_type t;
    struct vl_kl_ctrl k;
    double cur;

    if (vl_kl_ctrl_init(&k, gstr(c, c->config, "type", "fixed"),
                        gnum(c, c->config, "kl_coef", 0.001), gnum(c, c->config, "target_kl", 0.1),
                        gnum(c, c->config, "horizon", 10000), &c->e) ||
        vl_kl_parse(&t, gstr(c, c->config, "kl_penalty", "kl"), &c->e))
        return c->e.code;
    vl_kl_reward(got, &cur, s, gf32(c, "old_log_probs", NULL, NULL),
                 gf32(c, "ref_log_prob", NULL, NULL), gi64(c, "response_mask", NULL, NULL), B, L, t,
                 k.coef);
    gwant_f32(c, "token_level_rewards", got, B * L);
    gwant_node(c, "kl", vl_json_get(c->j, metrics, "actor/reward_kl_penalty"), &cur, 1);
    gwant_node(c, "coeff", vl_json_get(c->j, metrics, "actor/reward_kl_penalty_coeff"), &k.coef, 1);
    vl_kl_ctrl_update(&k, cur, (double)B);
    gwant(c, "kl_coef_after", k.coef);
    return 0;
}

/* score - (old - ref) * ratio without mask: the k1 penalty with beta = ratio and nothing masked. */
static int run_compute_rewards(struct gcase *c)
{
    int64_t B, L;
    float *s = gf32(c, "token_level_scores", &B, &L), *got = gzero(c, B * L, sizeof(*got));
    int64_t *all = gzero(c, B * L, sizeof(*all));
    double cur;

    for (int64_t k = 0; k < B * L; k++)
        all[k] = 1;
    vl_kl_reward(got, &cur, s, gf32(c, "old_log_prob", NULL, NULL),
                 gf32(c, "ref_log_prob", NULL, NULL), all, B, L, (struct vl_kl_type){ VL_K1, 0 },
                 gnum(c, c->config, "kl_ratio", 0));
    gwant_f32(c, "rewards", got, B * L);
    return 0;
}

static int run_controller(struct gcase *c)
{
    int64_t n;
    struct vl_kl_ctrl k;

    if (vl_kl_ctrl_init(&k, gstr(c, c->config, "type", ""), gnum(c, c->config, "kl_coef", 0),
                        gnum(c, c->config, "target_kl", 0), gnum(c, c->config, "horizon", 0),
                        &c->e))
        return c->e.code;
    c->rtol = 1e-9;
    c->atol = 0;
    double *cur = gdoubles(c, vl_json_get(c->j, c->in, "current_kl"), &n, NULL);
    double *rows = gdoubles(c, vl_json_get(c->j, c->in, "n_steps"), &n, NULL);
    for (int64_t i = 0; i < n; i++) {
        vl_kl_ctrl_update(&k, cur[i], rows[i]);
        cur[i] = k.coef;
    }
    gwant_node(c, "values", vl_json_get(c->j, c->out, "values"), cur, n);
    return 0;
}

static void test_kl(void **state)
{
    static const struct grunner runners[] = {
        { "kl_penalty", run_kl_penalty },      { "kl_penalty_straight_through", run_kl_values },
        { "apply_kl_penalty", run_kl_reward }, { "compute_rewards", run_compute_rewards },
        { "kl_controller", run_controller },   { 0 },
    };

    (void)state;
    grun_file("kl", runners, 1e-4);
}

static int run_schedule(struct gcase *c)
{
    struct vl_schedule s = VL_SCHEDULE_DEFAULTS;
    int64_t n = (int64_t)gnum(c, c->in, "num_values", 0);
    double *got = gzero(c, n, sizeof(*got));

    s.min_ratio = gnum(c, c->config, "min_lr_ratio", 0);
    s.num_cycles = gnum(c, c->config, "num_cycles", 0.5);
    s.init_ratio = gnum(c, c->config, "init_lr_ratio", 0);
    s.stable_ratio = gnum(c, c->config, "stable_ratio", 0.9);
    if (vl_schedule_init(&s, gstr(c, c->config, "type", ""), gnum(c, c->config, "lr", 0),
                         (int64_t)gnum(c, c->config, "num_training_steps", 0),
                         (int64_t)gnum(c, c->config, "num_warmup_steps", 0), 0, &c->e))
        return c->e.code;
    for (int64_t k = 0; k < n; k++)
        got[k] = vl_schedule_lr(&s, k);
    gwant_node(c, "lr", vl_json_get(c->j, c->out, "lr"), got, n);
    return 0;
}

static void test_schedule(void **state)
{
    static const struct grunner runners[] = { { "lr_schedule", run_schedule }, { 0 } };

    (void)state;
    grun_file("lr_schedule", runners, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functional),
        cmocka_unit_test(test_advantage),
        cmocka_unit_test(test_kl),
        cmocka_unit_test(test_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
