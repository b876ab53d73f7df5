/* shaping.h - reward shaping by length (DAPO's soft overlong punishment) and PF-PPO's row weights. */
#ifndef VL_SHAPING_H
#define VL_SHAPING_H

#include "libverl/base/err.h"

/* reward_kwargs.overlong_buffer_cfg.*; n = valid response tokens:
 *   min(-(n - (max_resp_len - len)) / len * penalty_factor, 0)
 * that is 0 up to max_resp_len - len tokens, falling to -penalty_factor at max_resp_len. */
struct vl_overlong {
    int64_t max_resp_len, len;
    double penalty_factor;
};
/* VL_E_USAGE unless 0 < len <= max_resp_len. */
int vl_overlong_check(const struct vl_overlong *o, struct vl_err *e) VL_MUST_CHECK;
double vl_overlong_penalty(const struct vl_overlong *o, int64_t n);

/* PF-PPO: rows are drawn again with these weights, from their scores (B). method "pow": |s|^p;
 * "max_min": 1 for the batch's largest or smallest score, else 0; "max_random": 0.4 for the largest,
 * else 0.1; plus 1e-8, so that every row can be drawn. Another method is VL_E_USAGE. */
int vl_pf_ppo_weights(double *w, const char *method, double p, const double *scores, int64_t B,
                      struct vl_err *e) VL_MUST_CHECK;
/* idx (draws): rows drawn with replacement in proportion to w (B), u (draws) uniform in (0, 1): draw k
 * is the first row whose running sum of weights passes u[k] of the total. */
void vl_pf_ppo_draw(int64_t *idx, int64_t draws, const double *u, const double *w, int64_t B);

#endif
