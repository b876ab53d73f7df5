/* distill.c - losses against a teacher. Formulas: distill.h. */
#include "libverl/algo/distill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/algo/masked.h"
#include "libverl/base/dmath.h"
#include "libverl/base/mem.h"

int vl_distill_parse(struct vl_distill_opts *o, const char *mode, struct vl_err *e)
{
    struct vl_err other = { 0 }; /* kl.h's line knows its own names only */
    static const char *const topk[] = { "forward_kl_topk", "reverse_kl_topk", "jsd_topk" };

    for (int k = 0; k < 3; k++)
        if (!strcmp(mode, topk[k])) {
            o->kind = VL_DISTILL_FORWARD + k;
            return 0;
        }
    o->kind = VL_DISTILL_SAMPLED;
    if (vl_kl_parse(&o->kl, mode, &other))
        return vl_fail(e, VL_E_USAGE,
                       "distillation_loss.loss_mode is '%s'; known: k1 (kl), abs, k2 (mse), k3 "
                       "(low_var_kl), each with + for straight-through, forward_kl_topk, "
                       "reverse_kl_topk, jsd_topk",
                       mode);
    return 0;
}

int vl_distill_is_topk(const struct vl_distill_opts *o)
{
    return o->kind != VL_DISTILL_SAMPLED;
}

/* x, not below logp_min; *free = 0 where the clamp acts. */
static double floored(const struct vl_distill_opts *o, double x, int *open)
{
    *open = !(x < o->logp_min);
    return *open ? x : o->logp_min;
}

/* Loss and derivative by lq of one id of the list. */
static double topk_term(const struct vl_distill_opts *o, double lp, double lq, double *d)
{
    double p = vl_dexp(lp), q = vl_dexp(lq), lm;

    switch (o->kind) {
    case VL_DISTILL_FORWARD:
        *d = -p;
        return p * (lp - lq);
    case VL_DISTILL_REVERSE:
        *d = q * (lq - lp + 1);
        return q * (lq - lp);
    default:
        lm = vl_dlog(o->beta * p + (1 - o->beta) * q);
        *d = (1 - o->beta) * q * (lq - lm);
        return o->beta * p * (lp - lm) + (1 - o->beta) * q * (lq - lm);
    }
}

double vl_distill_token(const struct vl_distill_opts *o, float logp, float teacher, int64_t K,
                        const float *lp, const float *lq, double *dlogp, double *dlq, int *clamped)
{
    double l = 0;
    int open, unused;

    if (o->kind == VL_DISTILL_SAMPLED) {
        float q = (float)floored(o, logp, &open), p = (float)floored(o, teacher, &unused);

        l = vl_kl(o->kl, q, p);
        *dlogp = open ? vl_kl_grad(o->kl, q, p) : 0;
    }
    for (int64_t k = 0; o->kind != VL_DISTILL_SAMPLED && k < K; k++) {
        double p, q;

        dlq[k] = 0;
        if (isinf(lp[k]))
            continue;
        p = floored(o, lp[k], &unused);
        q = floored(o, lq[k], &open);
        l += topk_term(o, p, q, &dlq[k]);
        dlq[k] = open ? dlq[k] : 0;
    }
    *clamped = fabs(l) > o->loss_max;
    if (!*clamped)
        return l;
    *dlogp = 0;
    memset(dlq, 0, (size_t)K * sizeof *dlq);
    return l > 0 ? o->loss_max : -o->loss_max;
}

static void token_metrics(const struct vl_distill_in *d, int64_t j, int clamped,
                          struct vl_loss_sums *s)
{
    double p = 0, q = 0;

    s->num[VL_M_DISTILL_CLAMPED] += clamped;
    s->den[VL_M_DISTILL_CLAMPED] = 1;
    if (!d->K)
        return;
    for (int64_t k = 0; k < d->K; k++) {
        if (isinf(d->lp[j * d->K + k]))
            continue;
        p += vl_dexp(d->lp[j * d->K + k]);
        q += vl_dexp(d->lq[j * d->K + k]);
    }
    s->num[VL_M_TEACHER_MASS] += p;
    s->num[VL_M_STUDENT_MASS] += q;
    s->den[VL_M_TEACHER_MASS] += 1;
    s->den[VL_M_STUDENT_MASS] += 1;
}

/* Every token's loss as its advantage, in a policy loss; nothing flows through the loss itself. */
static int as_reward(const struct vl_distill_opts *o, const struct vl_pg_opts *pg,
                     const struct vl_pg_in *in, float *l, const struct vl_loss_norm *norm,
                     double weight, float *dlogp, struct vl_loss_sums *s, struct vl_err *e)
{
    int64_t n = in->rows.first[in->rows.B];
    struct vl_pg_in mine = *in;
    struct vl_pg_opts opts = *pg;
    struct vl_loss_sums own = *s; /* PG_LOSS of it is the running DISTILL_LOSS */
    float *g = NULL;

    for (int64_t j = 0; j < n; j++)
        l[j] = -l[j];
    mine.adv = l;
    opts.clip_ratio = o->clip_ratio;
    opts.clip_ratio_low = o->clip_ratio_low;
    opts.clip_ratio_high = o->clip_ratio_high;
    own.num[VL_M_PG_LOSS] = s->num[VL_M_DISTILL_LOSS];
    if (vl_try_alloc(&g, (size_t)n, sizeof *g, "distillation", e) ||
        vl_pg_loss(o->pg, &mine, &opts, norm, g, &own, e))
        goto done;
    for (int64_t j = 0; j < n; j++)
        if (in->rows.mask[j])
            dlogp[j] += (float)(weight * g[j]);
    if (o->with_policy) { /* the policy loss beside it has the metrics */
        s->num[VL_M_DISTILL_LOSS] = own.num[VL_M_PG_LOSS];
        goto done;
    }
    own.num[VL_M_DISTILL_LOSS] = own.num[VL_M_PG_LOSS];
    own.num[VL_M_PG_LOSS] = own.den[VL_M_PG_LOSS] = 0;
    *s = own;
done:
    free(g);
    return e->code;
}

int vl_distill_loss(const struct vl_distill_opts *o, const struct vl_pg_opts *pg,
                    const struct vl_pg_in *in, const struct vl_distill_in *d,
                    const struct vl_loss_norm *norm, double weight, float *dlogp,
                    struct vl_loss_sums *s, struct vl_err *e)
{
    const struct vl_loss_rows *rows = &in->rows;
    int64_t n = rows->first[rows->B], K = d->K;
    double *dlq = NULL;
    float *l = NULL;

    if (vl_try_alloc(&dlq, (size_t)K + 1, sizeof *dlq, "distillation", e) ||
        vl_try_alloc(&l, (size_t)n, sizeof *l, "distillation", e))
        goto done;
    if (d->dlq)
        memset(d->dlq, 0, (size_t)(n * K) * sizeof *d->dlq);
    s->den[VL_M_DISTILL_LOSS] = 1;
    if (!o->as_reward)
        s->num[VL_M_DISTILL_LOSS] += vl_agg_empty(pg->agg, norm);
    for (int64_t i = 0; i < rows->B; i++) {
        int64_t valid =
            vl_masked_count(rows->mask + rows->first[i], rows->first[i + 1] - rows->first[i]);
        double omega = vl_agg_weight(pg->agg, norm, valid);

        for (int64_t j = rows->first[i]; j < rows->first[i + 1]; j++) {
            double g = 0, x;
            int clamped;

            if (!rows->mask[j])
                continue;
            x = vl_distill_token(o, in->logp[j], d->teacher ? d->teacher[j] : 0, K,
                                 d->lp ? d->lp + j * K : NULL, d->lq ? d->lq + j * K : NULL, &g,
                                 dlq, &clamped);
            l[j] = (float)x;
            token_metrics(d, j, clamped, s);
            if (o->as_reward)
                continue;
            s->num[VL_M_DISTILL_LOSS] += omega * x;
            dlogp[j] += (float)(weight * omega * g);
            for (int64_t k = 0; k < K; k++)
                d->dlq[j * K + k] = (float)(weight * omega * dlq[k]);
        }
    }
    if (o->as_reward)
        (void)!as_reward(o, pg, in, l, norm, weight, dlogp, s, e);
done:
    free(dlq);
    free(l);
    return e->code;
}
