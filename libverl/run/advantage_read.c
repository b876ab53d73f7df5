/* advantage_read.c - what verl-advantage takes from the batch, and from the greedy batch of ReMax. See
 * advantage_impl.h. */
#include "libverl/run/advantage_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dp.h"
#include "libverl/algo/masked.h"
#include "libverl/run/uid.h"

void vl_adv_work_free(struct vl_adv_work *w)
{
    free(w->valid);
    free(w->mask);
    free(w->rewards);
    free(w->weights);
    free(w->baselines);
    free(w->components);
    free(w->left_out);
}

/* ---- Reading ---- */

int vl_adv_f32(const struct vl_adv_work *w, const char *name, const float **out, struct vl_err *e)
{
    int64_t inner[1] = { w->L };
    return vl_batch_need(w->b, name, VL_F32, 1, inner, out, e);
}

/* As vl_adv_f32, with what makes the column, and finite wherever it is read. */
int vl_adv_want(const struct vl_adv_work *w, const char *name, const char *why, const char *how,
                const float **out, struct vl_err *e)
{
    if (!vl_batch_col(w->b, name))
        return vl_fail(e, VL_E_DATA, "%s needs the column %s: %s", why, name, how);
    if (vl_adv_f32(w, name, out, e))
        return e->code;
    for (int64_t j = 0; j < w->B * w->L; j++)
        if (w->valid[j] && !w->left_out[j / w->L] && !isfinite((*out)[j])) {
            char who[128];
            return vl_fail(
                e, VL_E_DATA,
                "%s: %s is %g at response token %lld, where response_mask is 1; %s needs "
                "finite numbers",
                vl_batch_row_name(w->b, j / w->L, who, sizeof(who)), name, (*out)[j],
                (long long)(j % w->L), why);
        }
    return 0;
}

static int read_mask(struct vl_adv_work *w, struct vl_err *e)
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

int vl_adv_scores_read(struct vl_adv_work *w, struct vl_err *e)
{
    const char *name = vl_stage_scores(w->b);
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
void vl_adv_left_out(struct vl_adv_work *w)
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

int vl_adv_old(struct vl_adv_work *w, const char *why, struct vl_err *e)
{
    char *mode = vl_meta_str(w->b, "logprobs_mode");
    int full = mode && !strcmp(mode, "full_vocabulary");

    free(mode);
    if (w->o->bypass ||
        (!vl_batch_col(w->b, "old_log_probs") && full && vl_batch_col(w->b, "rollout_log_probs"))) {
        vl_info(&w->x->log, "old log-probs: rollout_log_probs%s",
                w->o->bypass ? " (bypass_mode)" : "");
        return vl_adv_want(w, "rollout_log_probs", why,
                           "verl-rollout writes it with "
                           "calculate_log_probs=true",
                           &w->old_logp, e);
    }
    return vl_adv_want(w, "old_log_probs", why, "run verl-logprob", &w->old_logp, e);
}

/* Importance weights somebody else made stay, and count; it is said, since they reach the loss. */
int vl_adv_weights(struct vl_adv_work *w, const float **weights, struct vl_err *e)
{
    *weights = w->weights;
    if (w->weights || !vl_batch_col(w->b, "rollout_is_weights"))
        return 0;
    vl_info(&w->x->log, "rollout_is_weights of the batch are kept");
    return vl_adv_f32(w, "rollout_is_weights", weights, e);
}

/* ---- ReMax's baseline ---- */

/* A row's score as the samples' are taken: at valid tokens. mask: NULL counts all. */
static float greedy_score(const float *s, const int64_t *mask, int64_t L)
{
    double sum = 0;

    for (int64_t t = 0; t < L; t++)
        sum += !mask || mask[t] ? s[t] : 0;
    return (float)sum;
}

/* The greedy batch's score for each uid: exactly one row a uid. Where it has none there is nothing to
 * compare the samples with: they are left out. */
static int scores_by_uid(struct vl_adv_work *w, const struct vl_batch *g, uint8_t *none,
                         struct vl_err *e)
{
    const char *name = vl_stage_scores(g);
    const struct vl_col *gu = vl_batch_col(g, "uid"), *bu = vl_batch_col(w->b, "uid");
    int64_t inner[1] = { -1 }, without = 0;
    const int64_t *mask = NULL;
    const float *s;
    char who[120];

    if (!gu || gu->kind != VL_COL_JSON || !bu || bu->kind != VL_COL_JSON)
        return vl_fail(e, VL_E_DATA, "both the batch and the baseline need the column uid");
    if (vl_batch_need(g, name, VL_F32, 1, inner, &s, e) || vl_rows_left_out(none, g, e) ||
        (!w->o->as_verl && vl_batch_col(g, "response_mask") &&
         vl_batch_need_mask(g, "response_mask", inner, &mask, e)))
        return e->code;
    for (int64_t i = 0; i < w->B; i++) {
        size_t n, m;
        const char *uid = vl_col_json(bu, i, &n);
        int64_t found = 0, at = 0;
        for (int64_t k = 0; k < g->rows; k++) {
            const char *other = vl_col_json(gu, k, &m);
            if (m != n || memcmp(uid, other, n))
                continue;
            at = k;
            found++;
        }
        if (found != 1)
            return vl_fail(e, VL_E_DATA,
                           "%s has %lld rows in the baseline; wanted one greedy response a prompt",
                           vl_batch_row_name(w->b, i, who, sizeof(who)), (long long)found);
        if (w->o->as_verl ? vl_row_unscored(g, at) : none[at]) {
            without += !w->left_out[i];
            w->left_out[i] = 1;
            continue;
        }
        w->baselines[i] =
            greedy_score(s + at * inner[0], mask ? mask + at * inner[0] : NULL, inner[0]);
        if (!isfinite(w->baselines[i]))
            return vl_fail(e, VL_E_DATA, "%s: its score is %g; scores must be finite",
                           vl_batch_row_name(g, at, who, sizeof(who)), w->baselines[i]);
    }
    if (without)
        vl_warn(&w->x->log, "%lld rows whose greedy response has no score: left out, advantage 0",
                (long long)without);
    return 0;
}

int vl_adv_baselines(struct vl_adv_work *w, struct vl_err *e)
{
    static const char *const columns[] = { "uid",           "token_level_scores", "rm_scores",
                                           "response_mask", "reward_error",       NULL };
    struct vl_dp_read opt = { .columns = columns, .nrows = -1 };
    struct vl_batch g = { 0 };
    struct vl_col *c;
    const float *have;
    uint8_t *none = NULL;
    char who[120];

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
        for (int64_t i = 0; i < w->B; i++)
            if (!isfinite(w->baselines[i] = have[i]) && !w->left_out[i])
                return vl_fail(e, VL_E_DATA, "%s: reward_baselines is %g; it must be finite",
                               vl_batch_row_name(w->b, i, who, sizeof(who)), have[i]);
        return 0;
    }
    if (vl_dp_read(&g, w->o->baseline, &opt, e) == 0 &&
        (vl_try_alloc(&none, (size_t)g.rows, 1, "baselines", e) || scores_by_uid(w, &g, none, e)))
        vl_err_prefix(e, "%s", w->o->baseline);
    for (size_t k = 0; k < g.nparent; k++) /* the result is made of it too */
        vl_batch_add_parent(w->b, g.parent[k]);
    vl_batch_free(&g);
    free(none);
    if (e->code || vl_batch_add_tensor(w->b, "reward_baselines", VL_F32, 0, NULL, &c, e))
        return e->code;
    memcpy(c->data, w->baselines, (size_t)w->B * sizeof(float));
    return 0;
}
