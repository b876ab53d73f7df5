/* stage_advantage.c - verl-advantage. See stage_advantage.h.
 *
 * Order of the work, as in verl: KL in the reward, rollout correction (which may thin the response
 * mask), then the estimator. Two rules differ from verl unless --as-verl is given: a reward at a
 * masked position is no part of a row's score, and a row without a valid token is in no group. */
#include "libverl/run/stage_advantage.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dp.h"
#include "formats/json.h"
#include "libverl/algo/masked.h"
#include "libverl/algo/rollout_corr.h"
#include "libverl/algo/shaping.h"
#include "libverl/base/philox.h"
#include "libverl/batch/ops.h"
#include "libverl/run/kl_state.h"
#include "libverl/run/uid.h"

/* What the work needs, read from the batch or made here. */
struct work {
    struct vl_ctx *x;
    struct vl_batch *b;
    const struct vl_advantage_opts *o;
    const struct vl_adv_estimator *est;
    int64_t B, L;
    int64_t *valid;     /* (B, L) response mask as it came */
    int64_t *mask;      /* (B, L) after rejection */
    float *rewards;     /* (B, L) token_level_rewards */
    float *weights;     /* (B, L) importance weights, or NULL */
    float *baselines;   /* (B) or NULL */
    double *components; /* (K, B) and weights (K), or NULL */
    uint8_t *left_out;
    const float *old_logp;
};

/* Columns this stage makes with these options, into list[8]; replaced: only those whose old values
 * must go before the work starts (the response mask is also read). */
static void list_adds(const char **list, const struct vl_advantage_opts *o,
                      const struct vl_corr *corr, int replaced)
{
    size_t n = 0;

    list[n++] = "token_level_rewards";
    list[n++] = "advantages";
    list[n++] = "returns";
    if (corr->is && !o->bypass)
        list[n++] = "rollout_is_weights";
    if (o->baseline)
        list[n++] = "reward_baselines";
    if (!replaced && corr->nrs && !o->bypass)
        list[n++] = "response_mask";
    list[n] = NULL;
}

static void work_free(struct work *w)
{
    free(w->valid);
    free(w->mask);
    free(w->rewards);
    free(w->weights);
    free(w->baselines);
    free(w->components);
    free(w->left_out);
}

/* ---- Options that need no data ---- */

static int check_options(struct vl_ctx *x, const struct vl_advantage_opts *o, struct vl_corr *corr,
                         struct vl_err *e)
{
    struct vl_kl_type t;
    struct vl_kl_ctrl k;
    double none[1] = { 0 };
    const struct vl_adv_estimator *est = vl_adv_find(o->estimator, e);

    if (!est || vl_kl_parse(&t, o->kl_penalty, e) ||
        vl_kl_ctrl_init(&k, o->kl_type, o->kl_coef, o->target, o->horizon, e) ||
        vl_corr_parse(corr, o->is, o->is_threshold, o->is_normalize, o->rs, o->rs_threshold, e))
        return e->code;
    if (o->pf_ppo && vl_pf_ppo_weights(none, o->pf_method, o->pf_pow, none, 1, e))
        return e->code;
    if (o->use_kl && k.adaptive && !o->kl_state)
        return vl_fail(e, VL_E_USAGE,
                       "kl_ctrl.type=adaptive needs --kl-state DIR, where the "
                       "coefficient lives between steps");
    if (o->kl_state && !(o->use_kl && k.adaptive))
        return vl_fail(e, VL_E_USAGE,
                       "--kl-state has no effect without use_kl_in_reward=true and "
                       "kl_ctrl.type=adaptive");
    if (o->use_kl && o->use_kl_loss && !o->twice)
        return vl_fail(e, VL_E_USAGE,
                       "use_kl_in_reward and actor.use_kl_loss are both on: the KL would count in "
                       "the reward and in the loss; give --kl-twice if that is meant");
    if (o->baseline && !(est->needs & VL_ADV_BASELINES))
        return vl_fail(e, VL_E_USAGE,
                       "--baseline has no effect with adv_estimator=%s; remax uses it",
                       o->estimator);
    if (vl_components_check(x, o, est, e))
        return e->code;
    if (x->comm.rank == 0 && !strcmp(o->estimator, "grpo_vectorized") && !o->adv.norm_by_std)
        vl_warn(&x->log, "norm_adv_by_std_in_grpo=false has no effect with "
                         "adv_estimator=grpo_vectorized, as in verl; grpo honours it");
    if (x->comm.rank == 0 && o->pf_ppo && strcmp(o->estimator, "gae"))
        vl_warn(&x->log, "use_pf_ppo has no effect with adv_estimator=%s, as in verl (gae has it)",
                o->estimator);
    return 0;
}

/* ---- Reading ---- */

static int find_f32(const struct work *w, const char *name, const float **out, struct vl_err *e)
{
    int64_t inner[1] = { w->L };
    return vl_batch_need(w->b, name, VL_F32, 1, inner, out, e);
}

/* As find_f32, with what makes the column. */
static int want_f32(const struct work *w, const char *name, const char *why, const char *how,
                    const float **out, struct vl_err *e)
{
    if (!vl_batch_col(w->b, name))
        return vl_fail(e, VL_E_DATA, "%s needs the column %s: %s", why, name, how);
    return find_f32(w, name, out, e);
}

static int read_mask(struct work *w, struct vl_err *e)
{
    int64_t inner[1] = { w->L }, wide[1] = { -1 };
    const int64_t *m;

    if (vl_try_alloc(&w->valid, (size_t)(w->B * w->L), sizeof(int64_t), "response mask", e) ||
        vl_try_alloc(&w->mask, (size_t)(w->B * w->L), sizeof(int64_t), "response mask", e))
        return e->code;
    if (vl_batch_col(w->b, "response_mask")) {
        if (vl_batch_need_mask(w->b, "response_mask", inner, &m, e))
            return e->code;
        wide[0] = w->L;
    } else {
        if (vl_batch_need_mask(w->b, "attention_mask", wide, &m, e))
            return vl_err_prefix(e,
                                 "there is no response_mask, and for one from the attention mask");
        if (wide[0] < w->L)
            return vl_fail(e, VL_E_DATA,
                           "attention_mask is %lld wide, less than the %lld of "
                           "token_level_scores",
                           (long long)wide[0], (long long)w->L);
    }
    for (int64_t i = 0; i < w->B; i++)
        for (int64_t t = 0; t < w->L; t++)
            w->valid[i * w->L + t] = m[i * wide[0] + wide[0] - w->L + t];
    memcpy(w->mask, w->valid, (size_t)(w->B * w->L) * sizeof(int64_t));
    if (vl_masked_count(w->valid, w->B * w->L) == 0)
        return vl_fail(e, VL_E_DATA,
                       "no row has a valid response token: there is nothing to train on");
    return 0;
}

static int read_scores(struct work *w, struct vl_err *e)
{
    const char *name =
        vl_batch_col(w->b, "token_level_scores") ? "token_level_scores" : "rm_scores";
    int64_t inner[1] = { -1 };
    const float *s;
    char who[120];

    if (!vl_batch_col(w->b, name))
        return vl_fail(e, VL_E_DATA,
                       "the batch has neither token_level_scores nor rm_scores: run verl-reward");
    if (vl_batch_need(w->b, name, VL_F32, 1, inner, &s, e))
        return e->code;
    w->B = w->b->rows;
    w->L = inner[0];
    if (vl_try_alloc(&w->rewards, (size_t)(w->B * w->L), sizeof(float), "rewards", e) ||
        vl_try_alloc(&w->left_out, (size_t)w->B, 1, "rewards", e) || read_mask(w, e))
        return e->code;
    for (int64_t i = 0; i < w->B; i++)
        w->left_out[i] = (uint8_t)vl_row_unscored(w->b, i);
    for (int64_t j = 0; j < w->B * w->L; j++) {
        int counts = (w->valid[j] || w->o->as_verl) && !w->left_out[j / w->L];
        if (counts && !isfinite(s[j]))
            return vl_fail(e, VL_E_DATA,
                           "%s: %s is %g at response token %lld; scores must be finite",
                           vl_batch_row_name(w->b, j / w->L, who, sizeof(who)), name, s[j],
                           (long long)(j % w->L));
        w->rewards[j] = isfinite(s[j]) ? s[j] : 0;
    }
    return 0;
}

/* Rows that no statistic may see; says how many and why, and what scores will not count. */
static void find_left_out(struct work *w)
{
    int64_t empty = 0, invalid = 0, stray = 0;

    for (int64_t i = 0; i < w->B; i++) {
        int64_t n = vl_masked_count(w->valid + i * w->L, w->L), outside = 0;
        invalid += w->left_out[i];
        if (n == 0 && !w->left_out[i]) {
            empty++;
            w->left_out[i] = !w->o->as_verl;
        }
        for (int64_t j = i * w->L; j < (i + 1) * w->L; j++)
            outside |= !w->valid[j] && w->rewards[j] != 0;
        stray += outside && n > 0;
    }
    if (invalid)
        vl_info(&w->x->log, "%lld rows without a score: left out, advantage 0", (long long)invalid);
    if (empty)
        vl_info(&w->x->log, "%lld rows without a valid token: %s", (long long)empty,
                w->o->as_verl ? "kept in their groups (--as-verl)" : "left out of their groups");
    if (stray && !w->o->as_verl)
        vl_warn(&w->x->log,
                "%lld rows have rewards at masked positions, which do not count (--as-verl counts "
                "them)",
                (long long)stray);
}

static int read_old(struct work *w, const char *why, struct vl_err *e)
{
    char *mode = vl_meta_str(w->b, "logprobs_mode");
    int full = mode && !strcmp(mode, "full_vocabulary");

    free(mode);
    if (w->o->bypass ||
        (!vl_batch_col(w->b, "old_log_probs") && full && vl_batch_col(w->b, "rollout_log_probs"))) {
        vl_info(&w->x->log, "old log-probs: rollout_log_probs%s",
                w->o->bypass ? " (bypass_mode)" : "");
        return want_f32(w, "rollout_log_probs", why,
                        "verl-rollout writes it with "
                        "calculate_log_probs=true",
                        &w->old_logp, e);
    }
    return want_f32(w, "old_log_probs", why, "run verl-logprob", &w->old_logp, e);
}

/* Importance weights somebody else made stay, and count; it is said, since they reach the loss. */
static int given_weights(struct work *w, const float **weights, struct vl_err *e)
{
    *weights = w->weights;
    if (w->weights || !vl_batch_col(w->b, "rollout_is_weights"))
        return 0;
    vl_info(&w->x->log, "rollout_is_weights of the batch are kept");
    return find_f32(w, "rollout_is_weights", weights, e);
}

/* ---- Steps ---- */

static int kl_in_reward(struct work *w, double coef, double *mean_kl, struct vl_err *e)
{
    struct vl_kl_type t;
    const float *ref;

    *mean_kl = 0;
    if (!w->o->use_kl)
        return 0;
    if (read_old(w, "use_kl_in_reward", e) || vl_kl_parse(&t, w->o->kl_penalty, e) ||
        want_f32(w, "ref_log_prob", "use_kl_in_reward", "run verl-logprob --as ref", &ref, e))
        return e->code;
    vl_kl_reward(w->rewards, mean_kl, w->rewards, w->old_logp, ref, w->valid, w->B, w->L, t, coef);
    vl_meta_metric(w->b, "actor/reward_kl_penalty", *mean_kl);
    vl_meta_metric(w->b, "actor/reward_kl_penalty_coeff", coef);
    vl_info(&w->x->log, "KL in the reward: %s, coefficient %g, mean KL %.6g", w->o->kl_penalty,
            coef, *mean_kl);
    if (*mean_kl < 0)
        vl_warn(&w->x->log,
                "the mean KL is negative (%.4g); if it stays so, old and ref log-probs "
                "do not belong together",
                *mean_kl);
    return 0;
}

static void put_metrics(struct work *w, const struct vl_metrics *m)
{
    for (size_t i = 0; i < m->n; i++)
        vl_meta_metric(w->b, m->m[i].name, m->m[i].value);
}

static int store_f32(struct work *w, const char *name, const float *data, struct vl_err *e)
{
    struct vl_col *c;
    int64_t inner[1] = { w->L };

    if (vl_batch_add_tensor(w->b, name, VL_F32, 1, inner, &c, e))
        return e->code;
    memcpy(c->data, data, (size_t)(w->B * w->L) * sizeof(float));
    return 0;
}

static int correct(struct work *w, const struct vl_corr *corr, struct vl_err *e)
{
    const float *ro, *old;
    struct vl_metrics m = { 0 };
    int64_t *first = NULL, before = vl_masked_count(w->mask, w->B * w->L);

    if ((!corr->is && !corr->nrs) || w->o->bypass) /* bypass mode corrects in the loss */
        return 0;
    if (want_f32(w, "old_log_probs", "rollout correction", "run verl-logprob", &old, e) ||
        want_f32(w, "rollout_log_probs", "rollout correction",
                 "verl-rollout writes it with "
                 "calculate_log_probs=true",
                 &ro, e) ||
        (corr->is &&
         vl_try_alloc(&w->weights, (size_t)(w->B * w->L), sizeof(float), "weights", e)) ||
        vl_try_alloc(&first, (size_t)w->B + 1, sizeof(*first), "rows", e))
        goto done;
    for (int64_t i = 0; i <= w->B; i++)
        first[i] = i * w->L;
    struct vl_loss_rows rows = { w->B, first, w->valid };
    if (vl_corr_apply(corr, &rows, old, ro, w->weights, w->mask, &m, e))
        goto done;
    put_metrics(w, &m);
    if (w->weights && store_f32(w, "rollout_is_weights", w->weights, e))
        goto done;
    int64_t after = vl_masked_count(w->mask, w->B * w->L);
    if (corr->nrs)
        vl_info(&w->x->log, "rollout correction rejects %lld of %lld tokens",
                (long long)(before - after), (long long)before);
    if (after == 0)
        vl_fail(e, VL_E_DATA,
                "rollout correction rejects every token (rollout_rs=%s, "
                "rollout_rs_threshold=%s)",
                w->o->rs, w->o->rs_threshold);
done:
    vl_metrics_free(&m);
    free(first);
    return e->code;
}

static int make_groups(struct work *w, struct vl_groups *g, struct vl_err *e)
{
    const struct vl_col *c = vl_batch_col(w->b, "uid");

    if (!c || c->kind != VL_COL_JSON)
        return vl_fail(e, VL_E_DATA,
                       "%s needs the column uid, which says which rows belong to one "
                       "prompt (verl-data writes it)",
                       w->est->name);
    return vl_uid_groups(g, w->b, w->est->name, e);
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* "groups: 15 of 8 rows, 1 of 7", counting rows that are not left out. */
static int say_groups(struct work *w, const struct vl_groups *g, struct vl_err *e)
{
    int64_t *size = NULL, ones = 0, n = 0;
    struct vl_buf line = { 0 };

    if (vl_try_alloc(&size, (size_t)g->n, sizeof(*size), "groups", e))
        return e->code;
    for (int64_t i = 0; i < w->B; i++)
        size[g->of[i]] += !w->left_out[i];
    qsort(size, (size_t)g->n, sizeof(*size), by_size);
    for (int64_t k = 0; k < g->n;) {
        int64_t same = 0;
        while (k + same < g->n && size[k + same] == size[k])
            same++;
        vl_buf_printf(&line, "%s%lld of %lld row%s", k ? ", " : "", (long long)same,
                      (long long)size[k], size[k] == 1 ? "" : "s");
        ones += size[k] == 1 ? same : 0;
        k += same;
    }
    if (!vl_meta_i64(w->b, "n", &n))
        n = g->n ? size[0] : 0;
    vl_info(&w->x->log, "groups: %s", line.s ? line.s : "none");
    if (ones && n > 1)
        vl_warn(&w->x->log, "%lld groups have one row although n is %lld; %s gives such a row %s",
                (long long)ones, (long long)n, w->est->name, w->est->one);
    else if (ones && n == 1)
        vl_warn(&w->x->log,
                "one response for each prompt, nothing to compare it with: %s gives it %s; "
                "rollout.n=8 would make groups",
                w->est->name, w->est->one);
    free(size);
    vl_buf_free(&line);
    return 0;
}

/* Reports a batch that teaches nothing and how many groups do not. */
static void say_zeros(struct work *w, const struct vl_groups *g, const float *adv)
{
    uint8_t *any = vl_alloc((size_t)(g->n > 0 ? g->n : 1));
    int64_t zero = 0, some = 0;

    for (int64_t j = 0; j < w->B * w->L; j++) {
        if (w->mask[j] && adv[j] != 0) {
            some = 1;
            if (g->n)
                any[g->of[j / w->L]] = 1;
        }
    }
    for (int64_t k = 0; k < g->n; k++)
        zero += !any[k];
    if (g->n)
        vl_meta_metric(w->b, "advantage/zero_group_ratio", (double)zero / (double)g->n);
    if (!some)
        vl_warn(&w->x->log, "every advantage is 0: an update would have no policy gradient");
    else if (zero)
        vl_info(&w->x->log, "%lld of %lld groups have advantage 0 throughout", (long long)zero,
                (long long)g->n);
    free(any);
}

static int read_baselines(struct work *w, struct vl_err *e); /* below */

static int estimate(struct work *w, struct vl_err *e)
{
    struct vl_adv_in in = { .B = w->B, .L = w->L };
    struct vl_adv_opts o = w->o->adv;
    unsigned needs = w->est->needs;
    float *adv = NULL, *ret = NULL;
    const char *name = w->est->name;

    in.rewards = w->rewards;
    in.mask = w->mask;
    in.score_mask = w->o->as_verl ? NULL : w->valid;
    in.left_out = w->left_out;
    if (!strcmp(name, "grpo_vectorized"))
        o.norm_by_std = 1;
    if (given_weights(w, &in.is_weights, e) ||
        (needs & VL_ADV_GROUPS &&
         (make_groups(w, &in.groups, e) || say_groups(w, &in.groups, e))) ||
        (needs & VL_ADV_VALUES && want_f32(w, "values", name, "run verl-value", &in.values, e)) ||
        (needs & VL_ADV_OLD_LOGP && read_old(w, name, e)) ||
        (needs & VL_ADV_SUM_PI2 &&
         want_f32(w, "sum_pi_squared", name, "run verl-logprob with calculate_sum_pi_squared=true",
                  &in.sum_pi2, e)) ||
        (needs & VL_ADV_BASELINES && read_baselines(w, e)) ||
        (needs & VL_ADV_COMPONENTS &&
         vl_components_read(&w->components, &in, w->b, w->o, w->left_out, e)) ||
        vl_try_alloc(&adv, (size_t)(w->B * w->L), sizeof(*adv), "advantages", e) ||
        vl_try_alloc(&ret, (size_t)(w->B * w->L), sizeof(*ret), "returns", e))
        goto done;
    in.old_logp = w->old_logp;
    in.baselines = w->baselines;
    if (vl_adv_compute(w->est, &in, &o, adv, ret, e))
        goto done;
    for (int64_t j = 0; j < w->B * w->L; j++) {
        if (w->mask[j] && !isfinite(adv[j])) {
            char who[120];
            vl_fail(e, VL_E_DATA, "%s: the advantage of response token %lld is %g",
                    vl_batch_row_name(w->b, j / w->L, who, sizeof(who)), (long long)(j % w->L),
                    adv[j]);
            goto done;
        }
    }
    say_zeros(w, &in.groups, adv);
    if (store_f32(w, "token_level_rewards", w->rewards, e) || store_f32(w, "advantages", adv, e))
        goto done;
    (void)!store_f32(w, "returns", ret, e);
done:
    vl_groups_free(&in.groups);
    free(adv);
    free(ret);
    return e->code;
}

/* ---- ReMax's baseline ---- */

/* The greedy batch's score for each uid: exactly one row a uid. */
static int scores_by_uid(struct work *w, const struct vl_batch *g, struct vl_err *e)
{
    const char *name = vl_batch_col(g, "token_level_scores") ? "token_level_scores" : "rm_scores";
    const struct vl_col *gu = vl_batch_col(g, "uid"), *bu = vl_batch_col(w->b, "uid");
    int64_t inner[1] = { -1 };
    const float *s;
    char who[120];

    if (!gu || gu->kind != VL_COL_JSON || !bu || bu->kind != VL_COL_JSON)
        return vl_fail(e, VL_E_DATA, "both the batch and the baseline need the column uid");
    if (vl_batch_need(g, name, VL_F32, 1, inner, &s, e))
        return e->code;
    for (int64_t i = 0; i < w->B; i++) {
        size_t n, m;
        const char *uid = vl_col_json(bu, i, &n);
        int64_t found = 0;
        for (int64_t k = 0; k < g->rows; k++) {
            const char *other = vl_col_json(gu, k, &m);
            if (m != n || memcmp(uid, other, n))
                continue;
            double sum = 0;
            for (int64_t t = 0; t < inner[0]; t++)
                sum += s[k * inner[0] + t];
            w->baselines[i] = (float)sum;
            found++;
        }
        if (found != 1)
            return vl_fail(e, VL_E_DATA,
                           "%s has %lld rows in the baseline; wanted one greedy response a prompt",
                           vl_batch_row_name(w->b, i, who, sizeof(who)), (long long)found);
    }
    return 0;
}

static int read_baselines(struct work *w, struct vl_err *e)
{
    static const char *const columns[] = { "uid", "token_level_scores", "rm_scores", NULL };
    struct vl_dp_read opt = { .columns = columns, .nrows = -1 };
    struct vl_batch g = { 0 };
    struct vl_col *c;
    const float *have;

    if (vl_try_alloc(&w->baselines, (size_t)w->B, sizeof(float), "baselines", e))
        return e->code;
    if (!w->o->baseline) {
        if (!vl_batch_col(w->b, "reward_baselines"))
            return vl_fail(
                e, VL_E_DATA,
                "remax needs --baseline FILE, the scored greedy responses of the prompts "
                "(or the column reward_baselines)");
        if (vl_batch_need(w->b, "reward_baselines", VL_F32, 0, NULL, &have, e))
            return e->code;
        memcpy(w->baselines, have, (size_t)w->B * sizeof(float));
        return 0;
    }
    if (vl_dp_read(&g, w->o->baseline, &opt, e) == 0 && scores_by_uid(w, &g, e))
        vl_err_prefix(e, "%s", w->o->baseline);
    for (size_t k = 0; k < g.nparent; k++) /* the result is made of it too */
        vl_batch_add_parent(w->b, g.parent[k]);
    vl_batch_free(&g);
    if (e->code || vl_batch_add_tensor(w->b, "reward_baselines", VL_F32, 0, NULL, &c, e))
        return e->code;
    memcpy(c->data, w->baselines, (size_t)w->B * sizeof(float));
    return 0;
}

/* ---- PF-PPO ---- */

/* Gives the drawn rows of one uid the samples 0, 1, ... again: (uid, sample) names a row. */
static void renumber(struct vl_batch *b, const struct vl_groups *g)
{
    struct vl_col *c = vl_batch_col(b, "sample");
    int64_t *next = vl_alloc((size_t)(g->n > 0 ? g->n : 1) * sizeof(*next));

    for (int64_t i = 0; c && c->dtype == VL_I64 && i < b->rows; i++)
        ((int64_t *)c->data)[i] = next[g->of[i]]++;
    free(next);
}

static int resample(struct work *w, struct vl_err *e)
{
    struct vl_batch drawn = { 0 };
    struct vl_groups g = { 0 };
    double *s = NULL, *p = NULL, *u = NULL;
    int64_t *idx = NULL, step = 0;
    size_t n = (size_t)w->B;

    if (!w->o->pf_ppo || strcmp(w->est->name, "gae"))
        return 0;
    if (vl_try_alloc(&s, n, sizeof(*s), "pf_ppo", e) ||
        vl_try_alloc(&p, n, sizeof(*p), "pf_ppo", e) ||
        vl_try_alloc(&u, n, sizeof(*u), "pf_ppo", e) ||
        vl_try_alloc(&idx, n, sizeof(*idx), "pf_ppo", e))
        goto done;
    struct vl_adv_in in = { .L = w->L, .rewards = w->rewards };
    in.score_mask = w->o->as_verl ? NULL : w->valid;
    (void)vl_meta_i64(w->b, "global_steps", &step);
    struct vl_philox_key key = vl_philox_key("pf_ppo", 6, (uint64_t)vl_stage_seed(w->x, w->b));
    for (int64_t i = 0; i < w->B; i++) {
        s[i] = vl_adv_score(&in, i);
        u[i] = vl_uniform(key, (uint32_t)i, 0, (uint32_t)step, VL_RNG_SHUFFLE);
    }
    if (vl_pf_ppo_weights(p, w->o->pf_method, w->o->pf_pow, s, w->B, e))
        goto done;
    vl_pf_ppo_draw(idx, p, u, w->B);
    if (vl_batch_take(&drawn, w->b, idx, w->B, e))
        goto done;
    vl_batch_take_info(&drawn, w->b);
    vl_batch_free(w->b);
    *w->b = drawn;
    if (vl_batch_col(w->b, "uid") && make_groups(w, &g, e) == 0)
        renumber(w->b, &g);
    vl_info(&w->x->log, "PF-PPO: drew %lld rows by %s", (long long)w->B, w->o->pf_method);
done:
    vl_groups_free(&g);
    free(s);
    free(p);
    free(u);
    free(idx);
    return e->code;
}

/* ---- Together ---- */

static int store_mask(struct work *w, struct vl_err *e)
{
    struct vl_col *c;
    int64_t inner[1] = { w->L };

    if (vl_batch_add_tensor(w->b, "response_mask", VL_I64, 1, inner, &c, e))
        return e->code;
    memcpy(c->data, w->mask, (size_t)(w->B * w->L) * sizeof(int64_t));
    return 0;
}

int vl_advantage_batch(struct vl_ctx *x, struct vl_batch *b, const struct vl_advantage_opts *o,
                       double kl_coef, double *mean_kl, struct vl_err *e)
{
    struct work w = { .x = x, .b = b, .o = o, .est = vl_adv_find(o->estimator, e) };
    struct vl_corr corr;

    if (!w.est ||
        vl_corr_parse(&corr, o->is, o->is_threshold, o->is_normalize, o->rs, o->rs_threshold, e) ||
        read_scores(&w, e))
        goto done;
    find_left_out(&w);
    if (kl_in_reward(&w, kl_coef, mean_kl, e) || correct(&w, &corr, e) || estimate(&w, e))
        goto done;
    if (corr.nrs && !o->bypass && store_mask(&w, e))
        goto done;
    (void)!resample(&w, e);
done:
    work_free(&w);
    return e->code;
}

/* Content hash of what the coefficient is computed from: the batch may come back with columns and
 * metrics of an earlier run. */
static int hash_inputs(const struct vl_batch *b, char hex[33], struct vl_err *e)
{
    static const char *const all[] = {
        "uid", "sample", "response_mask", "old_log_probs", "ref_log_prob", "rollout_log_probs", NULL
    };
    static const char *const meta[] = { NULL };
    const char *there[8];
    struct vl_batch part = { 0 };
    size_t n = 0;

    for (size_t i = 0; all[i]; i++)
        if (vl_batch_col(b, all[i]))
            there[n++] = all[i];
    there[n] = NULL;
    if (vl_batch_select(&part, b, there, meta, e) == 0)
        (void)!vl_dp_hash(&part, hex, e);
    vl_batch_free(&part);
    return e->code;
}

/* The KL settings the record is made with, and the step it belongs to. */
static char *kl_options(const struct vl_batch *b, const struct vl_advantage_opts *o)
{
    struct vl_buf t = { 0 };
    const char *step = vl_meta_get(b, "global_steps");

    vl_buf_printf(&t, "{\"global_steps\": %s, \"kl_penalty\": ", step ? step : "null");
    vl_json_put_str(&t, o->kl_penalty, strlen(o->kl_penalty));
    vl_buf_str(&t, ", \"target_kl\": ");
    vl_json_put_f64(&t, o->target);
    vl_buf_str(&t, ", \"horizon\": ");
    vl_json_put_f64(&t, o->horizon);
    vl_buf_ch(&t, '}');
    return vl_buf_detach(&t);
}

/* One step with an adaptive coefficient; see kl_state.h for running it again. */
static int adaptive(struct vl_ctx *x, struct vl_batch *b, const struct vl_advantage_opts *o,
                    struct vl_err *e)
{
    struct vl_kl_state s;
    struct vl_kl_ctrl k;
    char hash[33], *options = kl_options(b, o);
    int64_t rows = b->rows;
    double mean_kl;

    if (hash_inputs(b, hash, e)) {
        free(options);
        return e->code;
    }
    if (vl_kl_state_open(&s, o->kl_state, o->kl_coef, hash, options, e) ||
        vl_kl_ctrl_init(&k, o->kl_type, s.coef, o->target, o->horizon, e) ||
        vl_advantage_batch(x, b, o, s.coef, &mean_kl, e))
        goto done;
    vl_kl_ctrl_update(&k, mean_kl, (double)rows);
    if (s.made)
        vl_info(&x->log, "%s: this step is in already; using its coefficient %g again", o->kl_state,
                s.coef);
    (void)!vl_kl_state_publish(&s, k.coef, mean_kl, rows, hash, options, 2, e);
done:
    vl_kl_state_close(&s);
    free(options);
    return e->code;
}

int vl_stage_advantage(struct vl_ctx *x, const void *opts, struct vl_err *e)
{
    const struct vl_advantage_opts *o = opts;
    const char *adds[8];
    struct vl_batch b = { 0 };
    struct vl_corr corr;
    double mean_kl;

    if (check_options(x, o, &corr, e) || vl_stage_read(x, &b, e))
        goto done;
    list_adds(adds, o, &corr, 1);
    vl_stage_replaces(x, &b, adds);
    if (x->comm.rank == 0) {
        if (b.rows == 0)
            vl_fail(e, VL_E_DATA, "the batch has no rows");
        else if (o->kl_state)
            (void)!adaptive(x, &b, o, e);
        else
            (void)!vl_advantage_batch(x, &b, o, o->kl_coef, &mean_kl, e);
    }
    list_adds(adds, o, &corr, 0);
    if (vl_comm_agree(&x->comm, e) == 0 && vl_stage_write(x, &b, adds, NULL, e) == 0)
        vl_log_done(&x->log, b.rows, -1);
done:
    vl_batch_free(&b);
    return e->code;
}
