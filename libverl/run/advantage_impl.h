/* advantage_impl.h - what the parts of verl-advantage share: advantage_read.c takes the columns from the
 * batch, advantage_steps.c computes. */
#ifndef VL_ADVANTAGE_IMPL_H
#define VL_ADVANTAGE_IMPL_H

#include "libverl/run/stage_advantage.h"

/* What the work needs, read from the batch or made here. */
struct vl_adv_work {
    struct vl_ctx *x;
    struct vl_batch *b;
    const struct vl_advantage_opts *o;
    const struct vl_adv_estimator *est;
    int64_t B, L;
    int64_t *valid;     /* (B, L) response mask as it came */
    int64_t *mask;      /* (B, L) after rejection */
    float *rewards;     /* (B, L) token_level_rewards */
    float *weights;     /* (B, L) importance weights, or NULL */
    float *baselines;   /* (B) or NULL */
    double *components; /* (K, B) and weights (K), or NULL */
    uint8_t *left_out;
    const float *old_logp;
};

void vl_adv_work_free(struct vl_adv_work *w);

/* Scores, response mask, and which rows have no score: fills B, L, valid, mask, rewards, left_out. */
int vl_adv_scores_read(struct vl_adv_work *w, struct vl_err *e) VL_MUST_CHECK;
/* Adds the rows without a valid token to left_out; says how many rows no statistic sees, and why. */
void vl_adv_left_out(struct vl_adv_work *w);

/* A column (B, L) of F32, borrowed. want: VL_E_DATA says what needs it and what makes it. */
int vl_adv_f32(const struct vl_adv_work *w, const char *name, const float **out,
               struct vl_err *e) VL_MUST_CHECK;
int vl_adv_want(const struct vl_adv_work *w, const char *name, const char *why, const char *how,
                const float **out, struct vl_err *e) VL_MUST_CHECK;
/* w->old_logp: old_log_probs, or the rollout's where they are the same. */
int vl_adv_old(struct vl_adv_work *w, const char *why, struct vl_err *e) VL_MUST_CHECK;
/* The importance weights made here, else those of the batch, else NULL. */
int vl_adv_weights(struct vl_adv_work *w, const float **weights, struct vl_err *e) VL_MUST_CHECK;
/* w->baselines: the column reward_baselines, or from the scored greedy batch by uid, which adds it. */
int vl_adv_baselines(struct vl_adv_work *w, struct vl_err *e) VL_MUST_CHECK;

#endif
