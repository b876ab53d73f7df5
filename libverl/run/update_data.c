/* update_data.c - what an update reads from the batch, checked against the state. See update.h. */
#include "libverl/run/update.h"

#include "formats/json.h"
#include "libverl/base/philox.h"
#include "libverl/engine/generate.h"
#include "libverl/model/version.h"
#include "libverl/run/uid.h"
#include "libverl/run/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void vl_plan_init(struct vl_plan *p, int64_t B, int64_t per, int64_t epochs, int drop_last)
{
    p->B = B;
    p->per = per < B ? per : B;
    p->epoch = !p->per ? 0 : drop_last ? B / p->per : (B + p->per - 1) / p->per;
    p->steps = epochs * p->epoch;
    p->perm = p->rows = NULL;
    p->pair = NULL;
    p->perm_epoch = -1;
}

const int64_t *vl_plan_rows(struct vl_plan *p, int64_t s, int64_t *n)
{
    int64_t pass = s / p->epoch, at = s % p->epoch * p->per;

    if (!p->perm)
        p->perm = vl_alloc(sizeof *p->perm * (size_t)p->B);
    if (p->perm_epoch != pass) {
        if (p->shuffle)
            vl_shuffle(p->perm, p->B, p->seed, p->epoch0 + (uint32_t)pass);
        else
            for (int64_t i = 0; i < p->B; i++)
                p->perm[i] = i;
        p->perm_epoch = pass;
    }
    *n = p->B - at < p->per ? p->B - at : p->per;
    if (!p->pair)
        return p->perm + at;
    if (!p->rows)
        p->rows = vl_alloc(sizeof *p->rows * (size_t)(2 * p->per));
    for (int64_t i = 0; i < 2 * *n; i++)
        p->rows[i] = p->pair[2 * p->perm[at + i / 2] + i % 2];
    *n *= 2;
    return p->rows;
}

void vl_plan_free(struct vl_plan *p)
{
    free(p->perm);
    free(p->rows);
    p->perm = p->rows = NULL;
}

static int column(const struct vl_batch *b, const char *name, int64_t R, const float **data,
                  const char *remedy, struct vl_err *e)
{
    if (!vl_batch_col(b, name))
        return vl_fail(e, VL_E_DATA, "column %s is missing: %s", name, remedy);
    return vl_batch_need(b, name, VL_F32, 1, &R, data, e);
}

/* Whether the weights that made a column are those of the base version, or a copy of them that was
 * rounded or quantized; a column without that record (an outside program's) is taken on trust. */
static int fresh(const struct vl_batch *b, const char *name, const struct vl_state_record *base,
                 struct vl_weights_id *id)
{
    if (!vl_weights_get(b, name, id))
        return -1;
    return !strcmp(id->hash, base->hash) || !strcmp(id->source_hash, base->hash);
}

static int check_stale(struct vl_update *u, const struct vl_batch *b, const char *name,
                       const struct vl_state_record *base, struct vl_err *e)
{
    struct vl_weights_id id;
    int state = fresh(b, name, base, &id);
    int64_t made = state ? -1 : vl_version_number(id.version);

    u->lag = state > 0 ? 0 : made >= 0 && made < base->version ? base->version - made : -1;
    if (state)
        return 0;
    if (!u->o->stale_ok)
        return vl_fail(e, VL_E_DATA,
                       "%s were made by other weights (%s, hash %s) than version v%06" PRId64
                       " (hash %s) that is to be updated: compute them again, name that version "
                       "with --from, or accept the lag with --stale-ok",
                       name, id.version[0] ? id.version : "no version", id.hash, base->version,
                       base->hash);
    vl_info(&u->x->log, "%s were made by other weights (%s): accepted (--stale-ok)", name,
            id.version[0] ? id.version : id.hash);
    return 0;
}

/* The policy's ratios begin at 1 only where old_log_probs are of its own weights. */
static int check_quantized(struct vl_update *u, const struct vl_batch *b, struct vl_err *e)
{
    struct vl_weights_id id;

    if (vl_weights_get(b, "old_log_probs", &id) && *id.quantization)
        return vl_fail(e, VL_E_DATA,
                       "old_log_probs were made by quantized weights (%s), not by those that are "
                       "to be updated: run verl-logprob without --quantization",
                       id.quantization);
    if (vl_weights_get(b, "rollout_log_probs", &id) && *id.quantization &&
        !vl_batch_col(b, "rollout_is_weights"))
        vl_info(
            &u->x->log,
            "the rollout's weights were quantized (%s) and no rollout_is_weights make up for it: "
            "verl-advantage with algorithm.rollout_correction.rollout_is=token makes them",
            id.quantization);
    return 0;
}

/* old_log_probs, or in their place rollout_log_probs when these are what verl-logprob would give:
 * full-vocabulary and made by the very weights that are updated. */
static int old_logp(struct vl_update *u, const struct vl_batch *b, int64_t R,
                    const struct vl_state_record *base, struct vl_err *e)
{
    struct vl_update_data *d = &u->data;
    struct vl_weights_id id;
    char *mode;
    int ok;

    if (u->o->bypass)
        return column(b, "rollout_log_probs", R, &d->old_logp,
                      "bypass_mode takes them as old log-probs; verl-rollout adds it with "
                      "rollout.calculate_log_probs=true",
                      e) ||
               check_stale(u, b, "rollout_log_probs", base, e);
    if (u->o->use_rollout_log_probs)
        return column(b, "rollout_log_probs", R, &d->old_logp, "verl-rollout adds it", e) ||
               check_stale(u, b, "rollout_log_probs", base, e);
    if (vl_batch_col(b, "old_log_probs"))
        return check_quantized(u, b, e) || column(b, "old_log_probs", R, &d->old_logp, "", e) ||
               check_stale(u, b, "old_log_probs", base, e);
    mode = vl_meta_str(b, "logprobs_mode");
    ok = mode && !strcmp(mode, "full_vocabulary") &&
         fresh(b, "rollout_log_probs", base, &id) == 1 && !*id.quantization;
    free(mode);
    if (!vl_batch_col(b, "rollout_log_probs") || !ok)
        return vl_fail(e, VL_E_DATA,
                       "column old_log_probs is missing%s: run verl-logprob on the batch first",
                       vl_batch_col(b, "rollout_log_probs")
                           ? ", and rollout_log_probs cannot take its place (they must be "
                             "full-vocabulary and of the weights that are updated, not quantized)"
                           : "");
    u->lag = 0;
    vl_info(&u->x->log, "no old_log_probs: rollout_log_probs are used (same weights, same bits)");
    return column(b, "rollout_log_probs", R, &d->old_logp, "", e);
}

/* The teacher's column, or its top-k lists with ids of this model's vocabulary. */
static int teacher_columns(struct vl_update *u, const struct vl_batch *b, int64_t R,
                           struct vl_err *e)
{
    struct vl_update_data *d = &u->data;
    int64_t inner[2] = { R, -1 }, V = u->f.model->cfg.V;
    const struct vl_col *c = vl_batch_col(b, "teacher_topk_ids");
    char who[128];

    if (!vl_distill_is_topk(&u->distill))
        return column(b, "teacher_log_probs", R, &d->teacher, "verl-logprob --as teacher adds it",
                      e);
    if (!c || !vl_batch_col(b, "teacher_topk_log_probs"))
        return vl_fail(e, VL_E_DATA,
                       "distillation_loss.loss_mode=%s needs the columns teacher_topk_ids and "
                       "teacher_topk_log_probs: verl-logprob --as teacher --topk 32 adds them",
                       u->o->distill_mode);
    if (vl_batch_need(b, "teacher_topk_ids", VL_I64, 2, inner, &d->topk_id, e) ||
        vl_batch_need(b, "teacher_topk_log_probs", VL_F32, 2, inner, &d->topk_logp, e))
        return e->code;
    d->K = inner[1];
    for (int64_t j = 0; j < b->rows * R; j++)
        for (int64_t k = j * d->K; d->mask[j] && k < (j + 1) * d->K; k++)
            if (d->topk_id[k] < -1 || d->topk_id[k] >= V || !isfinite(d->topk_logp[k]))
                return vl_fail(
                    e, VL_E_DATA,
                    "%s, response position %" PRId64 ": the teacher's id %" PRId64
                    " with log-prob %g; ids are below %" PRId64
                    " here, log-probs finite: teacher and policy must share a vocabulary",
                    vl_batch_row_name(b, j / R, who, sizeof who), j % R, d->topk_id[k],
                    (double)d->topk_logp[k], V);
    return 0;
}

static int actor_columns(struct vl_update *u, const struct vl_batch *b, int64_t R,
                         const struct vl_state_record *base, struct vl_err *e)
{
    struct vl_update_data *d = &u->data;
    int policy = !u->o->distill || u->distill.with_policy;

    u->lag = -1;
    if (u->o->distill && teacher_columns(u, b, R, e))
        return e->code;
    if ((policy || u->distill.as_reward) && old_logp(u, b, R, base, e))
        return e->code;
    if (!policy)
        return 0;
    if (column(b, "advantages", R, &d->adv, "verl-advantage adds it", e))
        return e->code;
    if (u->o->use_kl_loss && column(b, "ref_log_prob", R, &d->ref_logp,
                                    "use_kl_loss needs it; verl-logprob --as ref adds it", e))
        return e->code;
    if (vl_batch_col(b, "rollout_is_weights") && !u->o->bypass) /* bypass makes its own */
        return column(b, "rollout_is_weights", R, &d->is_weights, "", e);
    return 0;
}

static int critic_columns(struct vl_update *u, const struct vl_batch *b, int64_t R,
                          const struct vl_state_record *base, struct vl_err *e)
{
    struct vl_update_data *d = &u->data;

    return column(b, "values", R, &d->values, "verl-value adds it", e) ||
           column(b, "returns", R, &d->returns, "verl-advantage adds it", e) ||
           check_stale(u, b, "values", base, e);
}

static int dpo_columns(struct vl_update *u, const struct vl_batch *b, int64_t R,
                       double *temperature, struct vl_err *e)
{
    u->lag = -1;
    if (!u->pref.reference_free &&
        column(b, "ref_log_prob", R, &u->data.ref_logp,
               "run verl-logprob --as ref first, or set algorithm.reference_free=true", e))
        return e->code;
    return vl_infer_temperature(u->x, b, &u->o->temperature, temperature, e);
}

/* Rows without a score have no advantage and no return: they are outside numerators and denominators
 * alike. */
static void mask_unscored(struct vl_update *u, const struct vl_batch *b)
{
    struct vl_update_data *d = &u->data;
    int64_t out = 0;

    for (int64_t i = 0; i < d->rows.B; i++) {
        int64_t *m = d->mask + i * d->rows.R, any = 0;
        if (!vl_row_unscored(b, i))
            continue;
        for (int64_t t = 0; t < d->rows.R; t++) {
            any |= m[t];
            m[t] = 0;
        }
        out += any;
    }
    d->unscored = out;
    if (out)
        vl_info(&u->x->log, "%" PRId64 " rows without a score: left out of the loss", out);
}

static void count_valid(struct vl_update_data *d)
{
    const struct vl_rows *r = &d->rows;

    d->valid = vl_alloc(sizeof *d->valid * (size_t)(r->B ? r->B : 1));
    for (int64_t k = 0; k < r->B * r->R; k++)
        d->valid[k / r->R] += d->mask[k];
}

/* Numbers at valid tokens must be finite: a NaN would only show as a skipped step. */
static int check_column(const struct vl_update_data *d, const struct vl_batch *b, const float *x,
                        const char *name, struct vl_err *e)
{
    int64_t n = d->rows.B * d->rows.R;
    char who[128];

    for (int64_t k = 0; x && k < n; k++)
        if (d->mask[k] && !isfinite(x[k]))
            return vl_fail(e, VL_E_DATA,
                           "%s: %s is %f at position %" PRId64
                           ", where response_mask is 1; it must be finite",
                           vl_batch_row_name(b, k / d->rows.R, who, sizeof who), name, (double)x[k],
                           k % d->rows.R);
    return 0;
}

/* A weight is a ratio of probabilities; below 0 it would turn the loss around. */
static int check_weights(const struct vl_update_data *d, const struct vl_batch *b, struct vl_err *e)
{
    int64_t n = d->rows.B * d->rows.R;
    char who[128];

    for (int64_t k = 0; d->is_weights && k < n; k++)
        if (d->mask[k] && d->is_weights[k] < 0)
            return vl_fail(e, VL_E_DATA,
                           "%s: rollout_is_weights is %g at position %" PRId64
                           "; an importance weight is never below 0",
                           vl_batch_row_name(b, k / d->rows.R, who, sizeof who),
                           (double)d->is_weights[k], k % d->rows.R);
    return 0;
}

/* clip_cov's draw of a token is a function of the token alone. */
static void make_draws(struct vl_update *u, const struct vl_batch *b)
{
    struct vl_update_data *d = &u->data;
    const struct vl_col *uid = vl_batch_col(b, "uid"), *sample = vl_batch_col(b, "sample");
    int64_t step = 0, R = d->rows.R;

    vl_meta_i64(b, "global_steps", &step);
    d->draw = vl_alloc(sizeof *d->draw * (size_t)(d->rows.B * R + 1));
    for (int64_t i = 0; i < d->rows.B; i++) {
        size_t n = sizeof i;
        const char *text = uid && uid->kind == VL_COL_JSON ? vl_col_json(uid, i, &n) : NULL;
        struct vl_philox_key key =
            vl_philox_key(text ? (const void *)text : &i, n, (uint64_t)u->seed);
        int64_t s = sample && sample->dtype == VL_I64 && sample->ndim == 1
                        ? ((const int64_t *)sample->data)[i]
                        : 0;

        for (int64_t t = 0; t < R; t++)
            d->draw[i * R + t] =
                vl_uniform(key, (uint32_t)t, (uint32_t)s, (uint32_t)step, VL_RNG_SHUFFLE);
    }
}

/* Room for update_stats.c. */
static void make_room(struct vl_update *u)
{
    struct vl_update_data *d = &u->data;
    size_t n = (size_t)(d->rows.B * d->rows.R) + 1;

    if (u->o->bypass || u->ahead)
        d->new_logp = vl_alloc(n * sizeof *d->new_logp);
    if (!u->ahead)
        return;
    if (!u->o->bypass)
        d->pick = vl_alloc(n);
    else
        d->keep = vl_alloc(n * sizeof *d->keep);
    if (u->o->bypass && u->corr.is && !strcmp(u->o->bypass_loss, "reinforce"))
        d->bypass_w = vl_alloc(n * sizeof *d->bypass_w);
}

int vl_update_columns(struct vl_update *u, const struct vl_batch *b,
                      const struct vl_state_record *base, struct vl_err *e)
{
    struct vl_update_data *d = &u->data;
    double temperature = 1;
    int64_t R;

    if (vl_rows_read(&d->rows, b, u->f.model->cfg.V, e))
        return e->code;
    R = d->rows.R;
    if (vl_infer_mask(b, &d->rows, &d->mask, e))
        return e->code;
    if (u->o->role == VL_ROLE_CRITIC ||
        (u->o->role == VL_ROLE_ACTOR && (!u->o->distill || u->distill.with_policy)))
        mask_unscored(u, b);
    count_valid(d);
    if (u->o->role == VL_ROLE_ACTOR &&
        (actor_columns(u, b, R, base, e) ||
         vl_infer_temperature(u->x, b, &u->o->temperature, &temperature, e)))
        return e->code;
    if (u->o->role == VL_ROLE_CRITIC && critic_columns(u, b, R, base, e))
        return e->code;
    if (u->o->role == VL_ROLE_DPO &&
        (vl_update_pairs(u, b, e) || dpo_columns(u, b, R, &temperature, e)))
        return e->code;
    d->inv_temp = vl_inv_temperature(temperature);
    if (u->o->role == VL_ROLE_ACTOR && vl_pg_needs_draw(u->actor.loss))
        make_draws(u, b);
    if (u->o->role == VL_ROLE_ACTOR)
        make_room(u);
    return check_column(d, b, d->old_logp, "old_log_probs", e) ||
           check_column(d, b, d->adv, "advantages", e) ||
           check_column(d, b, d->ref_logp, "ref_log_prob", e) ||
           check_column(d, b, d->is_weights, "rollout_is_weights", e) || check_weights(d, b, e) ||
           check_column(d, b, d->teacher, "teacher_log_probs", e) ||
           check_column(d, b, d->values, "values", e) ||
           check_column(d, b, d->returns, "returns", e);
}

void vl_update_data_free(struct vl_update_data *d)
{
    vl_rows_free(&d->rows);
    free(d->mask);
    free(d->valid);
    free(d->draw);
    free(d->pair);
    free(d->new_logp);
    free(d->pick);
    free(d->keep);
    free(d->bypass_w);
    *d = (struct vl_update_data){ 0 };
}
