/* stage_logprob.h - verl-logprob: log-probs of the responses under the policy or the reference. */
#ifndef VL_STAGE_LOGPROB_H
#define VL_STAGE_LOGPROB_H

#include "libverl/run/infer.h"

struct vl_logprob_opts {
    const char *as;           /* "old" | "ref" | "teacher" */
    const char *policy_path;  /* actor_rollout_ref.model.path */
    const char *ref_path;     /* actor_rollout_ref.ref.model.path or NULL */
    const char *teacher_path; /* distillation.teacher_model.model_path or NULL */
    const char *distill_mode; /* distillation.distillation_loss.loss_mode: "..._topk" wants top-k */
    int64_t topk;             /* teacher: how many ids */
    int64_t own_topk;         /* old: how many ids, 0 = none */
    const char *compute;      /* "auto" | "fp32" | "bf16" | "amx" */
    const char *quantization; /* "int8" or NULL */
    const char *agg;          /* loss_agg_mode of the metric actor/entropy */
    double temperature;
    int64_t micro_batch;            /* --micro-batch, before both of: */
    struct vl_cut old_cut, ref_cut; /* rollout.log_prob_*, ref.log_prob_* */
    int sum_pi_squared;
};

/* Adds old_log_probs and entropys (and sum_pi_squared, old_topk_*), ref_log_prob, or teacher_log_probs (and
 * teacher_topk_ids, teacher_topk_log_probs). */
int vl_stage_logprob(struct vl_ctx *x, const void *opts, struct vl_err *e) VL_MUST_CHECK;

/* How far a from b is over tokens with mask != 0. */
struct vl_gap {
    int64_t tokens, differ; /* compared; with other bits */
    double max, mean;
};
struct vl_gap vl_gap_of(const float *a, const float *b, const int64_t *mask, int64_t n);

#endif
