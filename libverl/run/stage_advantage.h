/* stage_advantage.h - verl-advantage: KL in the reward, rollout correction, advantages, returns. */
#ifndef VL_STAGE_ADVANTAGE_H
#define VL_STAGE_ADVANTAGE_H

#include "libverl/algo/advantage.h"
#include "libverl/run/stage.h"

struct vl_advantage_opts {
    const char *estimator; /* algorithm.adv_estimator */
    struct vl_adv_opts adv;
    int as_verl; /* count rewards at masked positions and keep empty rows in their groups */
    const char
        *zero_tail; /* algorithm.handle_zero_tail: "true", "false"; NULL: the estimator's own */
    const char *baseline; /* --baseline FILE: the scored greedy batch (remax) */

    struct vl_strs components, component_weights; /* algorithm.gdpo_reward_keys, _weights */

    int use_kl;             /* algorithm.use_kl_in_reward */
    int use_kl_loss, twice; /* actor.use_kl_loss, --kl-twice: both at once, on purpose */
    const char *kl_penalty; /* kl, abs, mse, low_var_kl ... */
    const char *kl_type;    /* fixed, adaptive */
    double kl_coef, horizon, target;
    const char *kl_state;

    const char *is, *rs, *rs_threshold; /* algorithm.rollout_correction.* */
    double is_threshold;
    int is_normalize, bypass;

    int pf_ppo; /* algorithm.use_pf_ppo */
    const char *pf_method;
    double pf_pow;
};
#define VL_ADVANTAGE_DEFAULTS                                                                      \
    {                                                                                              \
        .estimator = "gae", .adv = VL_ADV_DEFAULTS, .kl_penalty = "kl", .kl_type = "fixed",        \
        .kl_coef = 0.001, .horizon = 10000, .target = 0.1, .is_threshold = 2, .pf_method = "pow",  \
        .pf_pow = 2,                                                                               \
    }

/* Rank 0 computes, the others wait: the work is small against one forward pass, and no sum depends
 * on the number of ranks. */
int vl_stage_advantage(struct vl_ctx *x, const void *opts, struct vl_err *e) VL_MUST_CHECK;

/* Rank-local, on a batch in memory: adds token_level_rewards, advantages, returns and what the
 * options ask for; kl_coef is the coefficient of this step. *mean_kl = the KL a controller is
 * updated with (0 without KL in the reward). */
int vl_advantage_batch(struct vl_ctx *x, struct vl_batch *b, const struct vl_advantage_opts *o,
                       double kl_coef, double *mean_kl, struct vl_err *e) VL_MUST_CHECK;

/* gdpo's options need columns, and a weight for each or none; others are told that they have no effect. */
int vl_components_check(struct vl_ctx *x, const struct vl_advantage_opts *o,
                        const struct vl_adv_estimator *est, struct vl_err *e) VL_MUST_CHECK;
/* Fills in->component and its weights from the batch; *store is theirs, and the caller's to free. Adds
 * the metrics gdpo/NAME/mean and /std. */
int vl_components_read(double **store, struct vl_adv_in *in, struct vl_batch *b,
                       const struct vl_advantage_opts *o, const uint8_t *left_out,
                       struct vl_err *e) VL_MUST_CHECK;

#endif
