/* advantage_steps.c - the work of verl-advantage on a batch in memory, in verl's order: KL in the reward,
 * rollout correction (which may thin the response mask), the estimator, PF-PPO's second draw. Two rules
 * differ from verl unless --as-verl is given: a reward at a masked position is no part of a row's score,
 * and a row without a valid token is in no group. */
#include "libverl/run/advantage_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/algo/masked.h"
#include "libverl/algo/rollout_corr.h"
#include "libverl/algo/shaping.h"
#include "libverl/base/philox.h"
#include "libverl/batch/ops.h"
#include "libverl/run/uid.h"
#include "libverl/run/weights.h"

/* ---- Steps ---- */

static int kl_in_reward(struct vl_adv_work *w, double coef, double *mean_kl, struct vl_err *e)
{
    struct vl_kl_type t;
    const float *ref;

    *mean_kl = 0;
    if (!w->o->use_kl)
        return 0;
    if (vl_adv_old(w, "use_kl_in_reward", e) || vl_kl_parse(&t, w->o->kl_penalty, e) ||
        vl_adv_want(w, "ref_log_prob", "use_kl_in_reward", "run verl-logprob --as ref", &ref, e))
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

static void put_metrics(struct vl_adv_work *w, const struct vl_metrics *m)
{
    for (size_t i = 0; i < m->n; i++)
        vl_meta_metric(w->b, m->m[i].name, m->m[i].value);
}

static int store_f32(struct vl_adv_work *w, const char *name, const float *data, struct vl_err *e)
{
    struct vl_col *c;
    int64_t inner[1] = { w->L };

    if (vl_batch_add_tensor(w->b, name, VL_F32, 1, inner, &c, e))
        return e->code;
    memcpy(c->data, data, (size_t)(w->B * w->L) * sizeof(float));
    return 0;
}

/* Nothing makes up for a rollout with weights that are not those to be trained. */
static void warn_uncorrected(const struct vl_adv_work *w)
{
    struct vl_weights_id id;

    if (vl_weights_get(w->b, "rollout_log_probs", &id) && *id.quantization)
        vl_warn(&w->x->log,
                "the rollout's weights were quantized (%s), those to be trained are not, and "
                "nothing makes up for it: algorithm.rollout_correction.rollout_is=token does",
                id.quantization);
}

static int correct(struct vl_adv_work *w, const struct vl_corr *corr, struct vl_err *e)
{
    const float *ro, *old;
    struct vl_metrics m = { 0 };
    int64_t *first = NULL, before = vl_masked_count(w->mask, w->B * w->L);

    if (w->o->bypass) /* corrects in the loss */
        return 0;
    if (!corr->is && !corr->nrs) {
        warn_uncorrected(w);
        return 0;
    }
    if (vl_adv_want(w, "old_log_probs", "rollout correction", "run verl-logprob", &old, e) ||
        vl_adv_want(w, "rollout_log_probs", "rollout correction",
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

static int make_groups(struct vl_adv_work *w, struct vl_groups *g, struct vl_err *e)
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

/* "groups: 15 of 8 rows, 1 of 7", counting rows that are not left out; and as metrics. */
static int say_groups(struct vl_adv_work *w, const struct vl_groups *g, struct vl_err *e)
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
    vl_meta_metric(w->b, "advantage/groups", (double)g->n);
    if (g->n) {
        vl_meta_metric(w->b, "advantage/group_size/max", (double)size[0]);
        vl_meta_metric(w->b, "advantage/group_size/min", (double)size[g->n - 1]);
        vl_meta_metric(w->b, "advantage/groups_of_one", (double)ones);
    }
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
static void say_zeros(struct vl_adv_work *w, const struct vl_groups *g, const float *adv)
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

static int estimate(struct vl_adv_work *w, struct vl_err *e)
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
    if (w->o->zero_tail)
        o.handle_zero_tail = !strcmp(w->o->zero_tail, "true");
    if (vl_adv_weights(w, &in.is_weights, e) ||
        (needs & VL_ADV_GROUPS &&
         (make_groups(w, &in.groups, e) || say_groups(w, &in.groups, e))) ||
        (needs & VL_ADV_VALUES &&
         vl_adv_want(w, "values", name, "run verl-value", &in.values, e)) ||
        (needs & VL_ADV_OLD_LOGP && vl_adv_old(w, name, e)) ||
        (needs & VL_ADV_SUM_PI2 &&
         vl_adv_want(w, "sum_pi_squared", name,
                     "run verl-logprob with calculate_sum_pi_squared=true", &in.sum_pi2, e)) ||
        (needs & VL_ADV_BASELINES && vl_adv_baselines(w, e)) ||
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

static int resample(struct vl_adv_work *w, struct vl_err *e)
{
    struct vl_batch drawn = { 0 };
    struct vl_groups g = { 0 };
    double *s = NULL, *p = NULL, *u = NULL;
    int64_t *idx = NULL, *row = NULL, live = 0, step = 0, inner[1] = { w->L };
    size_t n = (size_t)w->B;
    struct vl_adv_in in = { .L = w->L, .score_mask = w->o->as_verl ? NULL : w->valid };

    if (!w->o->pf_ppo || strcmp(w->est->name, "gae"))
        return 0;
    if (vl_try_alloc(&s, n, sizeof(*s), "pf_ppo", e) ||
        vl_try_alloc(&p, n, sizeof(*p), "pf_ppo", e) ||
        vl_try_alloc(&u, n, sizeof(*u), "pf_ppo", e) ||
        vl_try_alloc(&idx, n, sizeof(*idx), "pf_ppo", e) ||
        vl_try_alloc(&row, n, sizeof(*row), "pf_ppo", e) ||
        vl_batch_need(w->b, vl_stage_scores(w->b), VL_F32, 1, inner, &in.rewards, e))
        goto done; /* the scores, not w->rewards, which may hold the KL */
    (void)vl_meta_i64(w->b, "global_steps", &step);
    struct vl_philox_key key = vl_philox_key("pf_ppo", 6, (uint64_t)vl_stage_seed(w->x, w->b));
    for (int64_t i = 0; i < w->B; i++) {
        if (!w->left_out[i]) {
            s[live] = vl_adv_score(&in, i);
            row[live++] = i;
        }
        u[i] = vl_uniform(key, (uint32_t)i, 0, (uint32_t)step, VL_RNG_SHUFFLE);
    }
    if (vl_pf_ppo_weights(p, w->o->pf_method, w->o->pf_pow, s, live, e))
        goto done;
    vl_pf_ppo_draw(idx, w->B, u, p, live);
    for (int64_t i = 0; i < w->B; i++)
        idx[i] = row[idx[i]];
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
    free(row);
    return e->code;
}

/* ---- Together ---- */

static int store_mask(struct vl_adv_work *w, struct vl_err *e)
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
    struct vl_adv_work w = { .x = x, .b = b, .o = o, .est = vl_adv_find(o->estimator, e) };
    struct vl_corr corr;

    if (!w.est ||
        vl_corr_parse(&corr, o->is, o->is_threshold, o->is_normalize, o->rs, o->rs_threshold, e) ||
        vl_adv_scores_read(&w, e))
        goto done;
    vl_adv_left_out(&w);
    if (kl_in_reward(&w, kl_coef, mean_kl, e) || correct(&w, &corr, e) || estimate(&w, e))
        goto done;
    if (corr.nrs && !o->bypass && store_mask(&w, e))
        goto done;
    (void)!resample(&w, e);
done:
    vl_adv_work_free(&w);
    return e->code;
}
