/* loss.c - reductions, denominators, metrics, and every loss but the policy losses proper, which
 * are in loss_policy.c. See loss.h. */
#include "libverl/algo/loss.h"

#include <math.h>
#include <string.h>

#include "libverl/algo/distill.h"
#include "libverl/algo/masked.h"
#include "libverl/algo/rollout_corr.h"
#include "libverl/base/mem.h"

static const char *const agg_names[] = {
    [VL_AGG_TOKEN_MEAN] = "token-mean",
    [VL_AGG_SEQ_MEAN_TOKEN_SUM] = "seq-mean-token-sum",
    [VL_AGG_SEQ_MEAN_TOKEN_MEAN] = "seq-mean-token-mean",
    [VL_AGG_SEQ_MEAN_TOKEN_SUM_NORM] = "seq-mean-token-sum-norm",
};

int vl_agg_parse(enum vl_agg *agg, const char *name, struct vl_err *e)
{
    for (size_t i = 0; i < sizeof(agg_names) / sizeof(*agg_names); i++) {
        if (!strcmp(name, agg_names[i])) {
            *agg = (enum vl_agg)i;
            return 0;
        }
    }
    return vl_fail(e, VL_E_USAGE,
                   "loss_agg_mode is '%s'; known: token-mean, seq-mean-token-sum, "
                   "seq-mean-token-mean, seq-mean-token-sum-norm",
                   name);
}

void vl_loss_norm_count(struct vl_loss_norm *norm, const struct vl_loss_rows *rows)
{
    for (int64_t i = 0; i < rows->B; i++) {
        int64_t n =
            vl_masked_count(rows->mask + rows->first[i], rows->first[i + 1] - rows->first[i]);
        norm->tokens += (double)n;
        norm->seqs += n > 0;
        norm->rows += 1;
    }
}

struct vl_loss_norm vl_loss_norm_local(const struct vl_loss_norm *norm,
                                       const struct vl_loss_rows *rows)
{
    struct vl_loss_norm out = *norm, here = { 0 };

    vl_loss_norm_count(&here, rows);
    if (out.tokens == 0)
        out.tokens = here.tokens;
    if (out.seqs == 0)
        out.seqs = here.seqs;
    if (out.rows == 0)
        out.rows = here.rows;
    if (out.width == 0)
        for (int64_t i = 0; i < rows->B; i++)
            out.width = fmax(out.width, (double)(rows->first[i + 1] - rows->first[i]));
    if (out.dp == 0)
        out.dp = 1;
    return out;
}

double vl_agg_weight(enum vl_agg agg, const struct vl_loss_norm *norm, int64_t valid_tokens)
{
    switch (agg) {
    case VL_AGG_TOKEN_MEAN:
        return norm->dp / norm->tokens;
    case VL_AGG_SEQ_MEAN_TOKEN_SUM:
        return norm->dp / norm->seqs;
    case VL_AGG_SEQ_MEAN_TOKEN_MEAN:
        return norm->dp / (norm->seqs * (double)(valid_tokens > 0 ? valid_tokens : 1));
    case VL_AGG_SEQ_MEAN_TOKEN_SUM_NORM:
        break;
    }
    return 1 / (norm->factor > 0 ? norm->factor : norm->width);
}

double vl_agg_empty(enum vl_agg agg, const struct vl_loss_norm *norm)
{
    if (agg == VL_AGG_SEQ_MEAN_TOKEN_SUM_NORM)
        return 0;
    return (agg == VL_AGG_TOKEN_MEAN ? norm->tokens : norm->seqs) == 0 ? NAN : 0;
}

static int64_t row_tokens(const struct vl_loss_rows *rows, int64_t i)
{
    return vl_masked_count(rows->mask + rows->first[i], rows->first[i + 1] - rows->first[i]);
}

double vl_agg_loss(enum vl_agg agg, const struct vl_loss_rows *rows, const float *l,
                   const struct vl_loss_norm *norm, float *dl)
{
    struct vl_loss_norm full = vl_loss_norm_local(norm, rows);
    double loss = vl_agg_empty(agg, &full);

    for (int64_t i = 0; i < rows->B; i++) {
        double w = vl_agg_weight(agg, &full, row_tokens(rows, i));
        for (int64_t j = rows->first[i]; j < rows->first[i + 1]; j++) {
            if (dl)
                dl[j] = rows->mask[j] ? (float)w : 0;
            if (rows->mask[j])
                loss += w * l[j];
        }
    }
    return loss;
}

static const struct {
    const char *name;
    int is_mean;
} metrics[VL_M_COUNT] = {
    [VL_M_LOSS] = { "actor/loss", 0 },
    [VL_M_PG_LOSS] = { "actor/pg_loss", 0 },
    [VL_M_KL_LOSS] = { "actor/kl_loss", 0 },
    [VL_M_ENTROPY] = { "actor/entropy_loss", 0 },
    [VL_M_PG_CLIPFRAC] = { "actor/pg_clipfrac", 1 },
    [VL_M_PG_CLIPFRAC_LOWER] = { "actor/pg_clipfrac_lower", 1 },
    [VL_M_PG_CLIPFRAC_HIGH] = { "actor/pg_clipfrac_high", 1 },
    [VL_M_PG_CLIPFRAC_LOW] = { "actor/pg_clipfrac_low", 1 },
    [VL_M_PPO_KL] = { "actor/ppo_kl", 1 },
    [VL_M_RATIO_CLAMPED] = { "actor/ratio_clamped_tokens", 0 },
    [VL_M_KL_CLAMPED] = { "actor/kl_clamped_tokens", 0 },
    [VL_M_VF_LOSS] = { "critic/vf_loss", 0 },
    [VL_M_VF_CLIPFRAC] = { "critic/vf_clipfrac", 1 },
    [VL_M_VPRED_MEAN] = { "critic/vpred_mean", 1 },
    [VL_M_SFT_LOSS] = { "train/loss", 0 },
    [VL_M_DISTILL_LOSS] = { "distillation/loss", 0 },
    [VL_M_DISTILL_CLAMPED] = { "distillation/clamped_tokens", 0 },
    [VL_M_TEACHER_MASS] = { "distillation/teacher_mass", 1 },
    [VL_M_STUDENT_MASS] = { "distillation/student_mass", 1 },
    [VL_M_DPO_LOSS] = { "actor/dpo_loss", 0 },
    [VL_M_DPO_SFT_LOSS] = { "actor/dpo_sft_loss", 0 },
    [VL_M_DPO_LOGITS] = { "actor/dpo_logits", 1 },
    [VL_M_REWARDS_CHOSEN] = { "actor/rewards_chosen", 1 },
    [VL_M_REWARDS_REJECTED] = { "actor/rewards_rejected", 1 },
    [VL_M_REWARDS_ACCURACIES] = { "actor/rewards_accuracies", 1 },
    [VL_M_REWARDS_MARGINS] = { "actor/rewards_margins", 1 },
    [VL_M_POLICY_CHOSEN_LOGPS] = { "actor/policy_chosen_logps", 1 },
    [VL_M_POLICY_REJECTED_LOGPS] = { "actor/policy_rejected_logps", 1 },
    [VL_M_REFERENCE_CHOSEN_LOGPS] = { "actor/reference_chosen_logps", 1 },
    [VL_M_REFERENCE_REJECTED_LOGPS] = { "actor/reference_rejected_logps", 1 },
};

const char *vl_metric_name(enum vl_metric m)
{
    return metrics[m].name;
}

int vl_loss_sums_value(const struct vl_loss_sums *s, enum vl_metric m, double *value)
{
    if (s->den[m] == 0)
        return 0;
    *value = metrics[m].is_mean ? s->num[m] / s->den[m] : s->num[m];
    return 1;
}

static void add_term(struct vl_loss_sums *s, enum vl_metric metric, double wx)
{
    s->num[metric] += wx;
    s->den[metric] = 1;
}

/* LOSS is set from the running totals, not added to: the terms of a token are not next to each
 * other in time, so adding would make its last bits depend on the cut into micro-batches. */
static void set_loss(struct vl_loss_sums *s, double total)
{
    s->num[VL_M_LOSS] = total;
    s->den[VL_M_LOSS] = 1;
}

static void entropy_term(const struct vl_actor_opts *o, const struct vl_loss_rows *rows,
                         const float *entropy, const struct vl_loss_norm *norm, float *dent,
                         struct vl_loss_sums *s)
{
    add_term(s, VL_M_ENTROPY, vl_agg_empty(o->pg.agg, norm));
    for (int64_t i = 0; i < rows->B; i++) {
        double w = vl_agg_weight(o->pg.agg, norm, row_tokens(rows, i));
        for (int64_t j = rows->first[i]; j < rows->first[i + 1]; j++) {
            if (!rows->mask[j])
                continue;
            add_term(s, VL_M_ENTROPY, w * entropy[j]);
            if (dent)
                dent[j] = (float)(-o->entropy_coeff * w);
        }
    }
}

static void kl_term(const struct vl_actor_opts *o, const struct vl_loss_rows *rows,
                    const float *logp, const float *ref, const struct vl_loss_norm *norm,
                    float *dlogp, struct vl_loss_sums *s)
{
    struct vl_kl_type t = o->kl_loss_type;

    add_term(s, VL_M_KL_LOSS, vl_agg_empty(o->pg.agg, norm));
    s->den[VL_M_KL_CLAMPED] = 1;
    for (int64_t i = 0; i < rows->B; i++) {
        double w = vl_agg_weight(o->pg.agg, norm, row_tokens(rows, i));
        for (int64_t j = rows->first[i]; j < rows->first[i + 1]; j++) {
            if (!rows->mask[j])
                continue;
            add_term(s, VL_M_KL_LOSS, w * vl_kl(t, logp[j], ref[j]));
            s->num[VL_M_KL_CLAMPED] += vl_kl_clamped(t, logp[j], ref[j]);
            dlogp[j] += (float)(o->kl_loss_coef * w * vl_kl_grad(t, logp[j], ref[j]));
        }
    }
}

static int policy_term(const struct vl_actor_opts *o, const struct vl_pg_in *in,
                       const struct vl_loss_norm *norm, float *dlogp, struct vl_loss_sums *s,
                       struct vl_err *e)
{
    struct vl_pg_in kept = *in;
    struct vl_metrics unused = { 0 }; /* of these rows only; the caller wants the whole step's */

    if (in->keep) {
        kept.rows.mask = in->keep;
        return vl_pg_loss(o->loss, &kept, &o->pg, in->norm, dlogp, s, e);
    }
    if (!o->bypass)
        return vl_pg_loss(o->loss, in, &o->pg, norm, dlogp, s, e);
    (void)!vl_bypass_loss(o->bypass_loss, o->bypass, in, &o->pg, norm, dlogp, s, &unused, e);
    vl_metrics_free(&unused);
    return e->code;
}

int vl_actor_loss(const struct vl_actor_opts *o, const struct vl_pg_in *in, const float *ref_logp,
                  const float *entropy, const struct vl_loss_norm *norm, float *dlogp, float *dent,
                  struct vl_loss_sums *s, struct vl_err *e)
{
    const struct vl_loss_rows *rows = &in->rows;
    const struct vl_distill_opts *distill = o->distill;
    struct vl_loss_norm full = vl_loss_norm_local(norm, rows);
    size_t n = (size_t)rows->first[rows->B];
    int policy = !distill || distill->with_policy;
    double weight = distill && policy ? distill->coef : 1;

    if (policy && o->use_kl_loss && !ref_logp)
        return vl_fail(e, VL_E_DATA,
                       "the KL loss needs the column ref_log_prob (verl-logprob --as "
                       "ref), or use_kl_loss=false");
    if (policy && o->entropy_coeff != 0 && !entropy)
        return vl_fail(e, VL_E_BUG, "an entropy bonus without entropies");
    memset(dlogp, 0, n * sizeof(*dlogp));
    if (dent)
        memset(dent, 0, n * sizeof(*dent));
    if (policy && policy_term(o, in, &full, dlogp, s, e))
        return e->code;
    if (entropy)
        entropy_term(o, rows, entropy, &full, policy ? dent : NULL, s);
    if (policy && o->use_kl_loss)
        kl_term(o, rows, in->logp, ref_logp, &full, dlogp, s);
    if (distill && vl_distill_loss(distill, &o->pg, in, in->distill, &full, weight, dlogp, s, e))
        return e->code;
    set_loss(s,
             (policy ? s->num[VL_M_PG_LOSS] : 0) -
                 (policy && o->entropy_coeff != 0 ? o->entropy_coeff * s->num[VL_M_ENTROPY] : 0) +
                 (policy && o->use_kl_loss ? o->kl_loss_coef * s->num[VL_M_KL_LOSS] : 0) +
                 (distill ? weight * s->num[VL_M_DISTILL_LOSS] : 0));
    return 0;
}

void vl_value_loss(const struct vl_loss_rows *rows, const float *v, const float *old_v,
                   const float *returns, double cliprange, enum vl_agg agg,
                   const struct vl_loss_norm *norm, float *dv, struct vl_loss_sums *s)
{
    struct vl_loss_norm full = vl_loss_norm_local(norm, rows);

    add_term(s, VL_M_VF_LOSS, vl_agg_empty(agg, &full));
    for (int64_t i = 0; i < rows->B; i++) {
        double w = vl_agg_weight(agg, &full, row_tokens(rows, i));
        for (int64_t j = rows->first[i]; j < rows->first[i + 1]; j++) {
            dv[j] = 0;
            if (!rows->mask[j])
                continue;
            double d = (double)v[j] - returns[j];
            double vc = vl_clip(v[j], old_v[j] - cliprange, old_v[j] + cliprange);
            double dc = vc - returns[j], l = fmax(d * d, dc * dc);
            add_term(s, VL_M_VF_LOSS, 0.5 * w * l);
            s->num[VL_M_VF_CLIPFRAC] += dc * dc > d * d;
            s->num[VL_M_VPRED_MEAN] += v[j];
            s->den[VL_M_VF_CLIPFRAC] += 1;
            s->den[VL_M_VPRED_MEAN] += 1;
            if (!(d * d < dc * dc))
                dv[j] = (float)(w * d);
        }
    }
    set_loss(s, s->num[VL_M_VF_LOSS]);
}

void vl_sft_loss(const struct vl_loss_rows *rows, const float *logp,
                 const struct vl_loss_norm *norm, float *dlogp, struct vl_loss_sums *s)
{
    struct vl_loss_norm full = vl_loss_norm_local(norm, rows);
    double w = vl_agg_weight(VL_AGG_TOKEN_MEAN, &full, 0);

    add_term(s, VL_M_SFT_LOSS, vl_agg_empty(VL_AGG_TOKEN_MEAN, &full));
    for (int64_t j = 0; j < rows->first[rows->B]; j++) {
        dlogp[j] = 0;
        if (!rows->mask[j])
            continue;
        add_term(s, VL_M_SFT_LOSS, -w * logp[j]);
        dlogp[j] = (float)-w;
    }
    set_loss(s, s->num[VL_M_SFT_LOSS]);
}
