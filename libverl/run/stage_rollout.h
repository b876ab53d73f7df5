/* stage_rollout.h - verl-rollout: n responses for each prompt, sampled here or made elsewhere. */
#ifndef VL_STAGE_ROLLOUT_H
#define VL_STAGE_ROLLOUT_H

#include "libverl/run/infer.h"

struct vl_rollout_how {
    int64_t n, top_k;
    double temperature, top_p;
};

/* What changes the draws of a row beyond that; see libverl/engine/steer.h. */
struct vl_rollout_rules {
    double min_p, repetition, presence, frequency;
    int64_t min_tokens;
    struct vl_strs bias, bad_words; /* "ID=X"; texts */
};

struct vl_rollout_opts {
    const char *policy_path;  /* actor_rollout_ref.model.path */
    const char *compute;      /* --compute: "auto" | "fp32" | "bf16" | "amx" */
    const char *dtype;        /* rollout.dtype, heeded when given and --compute is not */
    const char *quantization; /* rollout.quantization: "int8" or NULL */
    struct vl_rollout_how train, val;
    int validate; /* use val */
    int64_t response_length;
    int ignore_eos, log_probs;
    int64_t topk;                  /* --logprobs: likeliest ids recorded at each position */
    struct vl_strs stop_ids, stop; /* ids; texts */
    struct vl_rollout_rules rules;
    int64_t max_seqs, max_tokens, max_model_len; /* max_model_len: VL_NULL_I64 = the model's */
    double memory;                               /* share of free memory for the KV cache */
    int64_t global_steps;                        /* VL_NULL_I64 = from the batch */
    const char *from_json;                       /* outside generations, or NULL */
    double time_limit;                           /* seconds of sampling, 0 = none */
    int stream; /* one document per prompt, written when its samples are done */
};

/* Writes the batch described in rollout_batch.h, rows in the order of the prompts. */
int vl_stage_rollout(struct vl_ctx *x, const void *opts, struct vl_err *e) VL_MUST_CHECK;

#endif
