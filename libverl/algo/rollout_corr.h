/* rollout_corr.h - rollout correction: importance weights and rejection for the gap between the
 * program that sampled and the policy that is trained; off-policy metrics.
 *
 * With delta = logp - ro (log-probs of the training policy and of the rollout), K = 20:
 *   token     w = exp(clamp(delta, +-K))
 *   sequence  w = exp(clamp(sum of valid delta, +-K)) at every valid token of the row
 * truncated from above at the threshold, then optionally divided by their mean. Rejection keeps a
 * token iff every criterion's statistic lies within its bounds; statistics on d = clamp(delta, +-K):
 *   k1 = -d,  k2 = d^2/2,  k3 = exp(d) - 1 - d,  per token, or sum, mean or maximum over the row
 * k1 bounds are ratios: log(lower) <= stat <= log(upper), of rollout over training policy. Names
 * and metrics are verl's (algorithm.rollout_correction.*), metrics under rollout_corr/. */
#ifndef VL_ROLLOUT_CORR_H
#define VL_ROLLOUT_CORR_H

#include "libverl/algo/loss.h"
#include "libverl/algo/metrics.h"

struct vl_rs {
    const char *name; /* "seq_mean_k1" */
    enum { VL_RS_TOKEN, VL_RS_SUM, VL_RS_MEAN, VL_RS_MAX } scope;
    int k;             /* 1, 2, 3 */
    double lower;      /* ratio; k2 and k3: NAN, there is none */
    double upper;      /* ratio for k1, else the statistic itself */
    double from, till; /* bounds of the statistic: logs for k1; 0 and upper for k2, k3 */
};

struct vl_corr {
    enum { VL_IS_NONE, VL_IS_TOKEN, VL_IS_SEQUENCE } is;
    double threshold;
    int batch_normalize;
    struct vl_rs rs[11];
    int nrs;
};

/* is: NULL, "token" or "sequence". rs: NULL or criteria separated by commas (token_, seq_sum_,
 * seq_mean_ with k1, k2, k3; seq_max_ with k2, k3), duplicates dropped. rs_threshold: one spec for
 * all or one each: "a_b" or "b" (= 1/b .. b) for k1, an upper bound for the others. VL_E_USAGE says
 * what is wrong with which. */
int vl_corr_parse(struct vl_corr *c, const char *is, double threshold, int batch_normalize,
                  const char *rs, const char *rs_threshold, struct vl_err *e) VL_MUST_CHECK;

/* w (first[B]): weights, 0 at masked tokens; NULL iff c->is is NONE. keep (first[B]): the mask with
 * rejected tokens at 0 (may be rows->mask's own array). Adds the metrics of section "rollout
 * correction" of verl-advantage(1), the off-policy ones included. No valid token is VL_E_DATA. */
int vl_corr_apply(const struct vl_corr *c, const struct vl_loss_rows *rows, const float *logp,
                  const float *ro, float *w, int64_t *keep, struct vl_metrics *m,
                  struct vl_err *e) VL_MUST_CHECK;

/* training_ppl, kl, chi2_token ... each after prefix; ro NULL: only the first two. */
void vl_offpolicy_metrics(struct vl_metrics *m, const char *prefix, const struct vl_loss_rows *rows,
                          const float *logp, const float *ro);

/* policy_loss.loss_mode = bypass_mode: in->old_logp holds the rollout's log-probs. Weights and mask
 * come from vl_corr_apply with the current logp; loss_type "reinforce" uses both, "ppo_clip" (the
 * vanilla loss) the mask only. in->is_weights is ignored. norm: when its counts are those of the
 * mini-batch they do not know what is rejected here; verl's do not either. */
int vl_bypass_loss(const char *loss_type, const struct vl_corr *c, const struct vl_pg_in *in,
                   const struct vl_pg_opts *o, const struct vl_loss_norm *norm, float *dlogp,
                   struct vl_loss_sums *s, struct vl_metrics *m, struct vl_err *e) VL_MUST_CHECK;

#endif
