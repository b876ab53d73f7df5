/* distill.h - losses that pull the policy to a teacher, token by token.
 *
 * Sampled modes see the log-probs of the sampled token alone: q the policy's, p the teacher's, and are
 * the estimators of kl.h. Top-k modes see the teacher's K likeliest ids at each position, with its
 * log-probs lp and the policy's lq, and sum over these:
 *   forward_kl_topk   exp(lp) (lp - lq)
 *   reverse_kl_topk   exp(lq) (lq - lp)
 *   jsd_topk          beta exp(lp) (lp - lm) + (1 - beta) exp(lq) (lq - lm),
 *                     lm = log(beta exp(lp) + (1 - beta) exp(lq))
 * The ids are the teacher's, with the policy's own of before the step where they were asked for: both
 * are of the file, written before the policy moved. Log-probs below
 * logp_min count as logp_min, losses outside +-loss_max as that; no gradient flows where either acts.
 * Names and keys: later verl's distillation.distillation_loss. */
#ifndef VL_DISTILL_H
#define VL_DISTILL_H

#include "libverl/algo/loss.h"

struct vl_distill_opts {
    enum { VL_DISTILL_SAMPLED, VL_DISTILL_FORWARD, VL_DISTILL_REVERSE, VL_DISTILL_JSD } kind;
    struct vl_kl_type kl;      /* sampled */
    double coef;               /* beside the policy loss; alone the loss counts once */
    double beta;               /* jsd */
    double loss_max, logp_min; /* NAN: none */
    int with_policy;           /* use_task_rewards: the policy loss (entropy, KL) as well */
    int as_reward; /* use_policy_gradient: minus the loss is a token's advantage in `pg` */
    const struct vl_pg_loss *pg;
    double clip_ratio, clip_ratio_low, clip_ratio_high; /* of pg, as in vl_pg_opts */
};

/* loss_mode: the names of kl.h and the three above; anything else is VL_E_USAGE with the list. */
int vl_distill_parse(struct vl_distill_opts *o, const char *mode, struct vl_err *e) VL_MUST_CHECK;
int vl_distill_is_topk(const struct vl_distill_opts *o);

/* A teacher's answers at the tokens of a vl_pg_in. */
struct vl_distill_in {
    const float *teacher; /* (n) sampled */
    int64_t K;
    const float *lp, *lq; /* (n, K) top-k: teacher's and policy's; lp -INFINITY: no id here */
    float *dlq;           /* (n, K) top-k: overwritten with d loss / d lq, zeros at masked tokens */
};

/* One token: its loss; *dlogp (sampled) or dlq (K) its derivatives; *clamped whether loss_max acts. */
double vl_distill_token(const struct vl_distill_opts *o, float logp, float teacher, int64_t K,
                        const float *lp, const float *lq, double *dlogp, double *dlq, int *clamped);

/* Adds weight * reduce(losses) to DISTILL_LOSS and its gradient to dlogp and d->dlq; see
 * vl_actor_loss. */
int vl_distill_loss(const struct vl_distill_opts *o, const struct vl_pg_opts *pg,
                    const struct vl_pg_in *in, const struct vl_distill_in *d,
                    const struct vl_loss_norm *norm, double weight, float *dlogp,
                    struct vl_loss_sums *s, struct vl_err *e) VL_MUST_CHECK;

#endif
