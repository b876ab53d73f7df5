/* kl.h - estimates of the KL divergence from two log-probs, KL in the reward, its controllers.
 *
 * With d = logp - ref (natural logs, at the sampled token):
 *   kl, k1         d                                            d/dlogp = 1
 *   abs            |d|                                          sign(d), 0 at 0
 *   mse, k2        d^2 / 2                                      d
 *   low_var_kl, k3 clamp(exp(e) - e - 1, +-10), e = clamp(-d, +-20)   1 - exp(e), 0 where clamped
 * A name with '+' (straight-through) has the value of the plain name and the gradient of k2, whose
 * expectation is the gradient of the KL itself. verl documents these names but fails on them (at
 * the commit the references were made from); here they work. "full" needs whole distributions and
 * is refused, as in verl. */
#ifndef VL_KL_H
#define VL_KL_H

#include "libverl/base/err.h"

struct vl_kl_type {
    enum { VL_K1, VL_KABS, VL_K2, VL_K3 } value;
    int straight; /* gradient of k2 */
};

/* The names above; anything else is VL_E_USAGE with the list. */
int vl_kl_parse(struct vl_kl_type *t, const char *name, struct vl_err *e) VL_MUST_CHECK;

double vl_kl(struct vl_kl_type t, float logp, float ref);
double vl_kl_grad(struct vl_kl_type t, float logp, float ref); /* d value / d logp */
int vl_kl_clamped(struct vl_kl_type t, float logp, float ref); /* one of k3's clamps acts */

/* out = scores - beta * KL(old, ref) at valid positions and scores at masked ones; all (B, L).
 * *mean_kl = mean over all B rows of the row's mean over valid tokens, an empty row counting 0:
 * verl's actor/reward_kl_penalty and what a controller is updated with. out may be scores. */
void vl_kl_reward(float *out, double *mean_kl, const float *scores, const float *old_logp,
                  const float *ref_logp, const int64_t *mask, int64_t B, int64_t L,
                  struct vl_kl_type t, double beta);

/* The coefficient beta of KL in the reward. fixed: constant. adaptive (Ziegler et al. 2019): after
 * a step with mean KL `current` over n rows,
 *   beta *= 1 + clip(current/target - 1, -0.2, 0.2) * n / horizon. */
struct vl_kl_ctrl {
    int adaptive;
    double coef, target, horizon;
};

/* type "fixed" or "adaptive" (VL_E_USAGE otherwise, and for an adaptive horizon or target <= 0). */
int vl_kl_ctrl_init(struct vl_kl_ctrl *c, const char *type, double coef, double target,
                    double horizon, struct vl_err *e) VL_MUST_CHECK;
void vl_kl_ctrl_update(struct vl_kl_ctrl *c, double current, double n);

#endif
