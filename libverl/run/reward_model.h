/* reward_model.h - scores of a reward model: the column rm_scores. */
#ifndef VL_REWARD_MODEL_H
#define VL_REWARD_MODEL_H

#include "libverl/run/infer.h"
#include "libverl/run/reward_rows.h"

struct vl_rm_opts {
    int enable;        /* reward_model.enable */
    const char *dir;   /* --reward-model: enables by itself */
    const char *path;  /* reward_model.model.path */
    const char *input; /* reward_model.model.input_tokenizer: "" the batch's; NULL: the model gets
                             the policy's ids as they are */
    const char *tmpl;  /* --rm-template FILE, or NULL: the tokenizer's own */
    const char *truncate; /* "none", "left" or "right": what is longer than max_length */
    int plain_special;    /* text that spells a special token is ordinary text */
    int64_t max_length;   /* tokens; VL_NULL_I64: the model's context */
    const char *compute;  /* "auto" | "fp32" | "bf16" | "amx" */
    int64_t micro_batch;  /* rows of a forward pass, before `cut`; 0: not set */
    struct vl_cut cut;
};
#define VL_RM_DEFAULTS                                                                             \
    {                                                                                              \
        .input = "", .truncate = "none", .max_length = VL_NULL_I64, .compute = "auto", .cut = {    \
            VL_NULL_I64,                                                                           \
            0,                                                                                     \
            32768                                                                                  \
        }                                                                                          \
    }

struct vl_rm {
    float *score;  /* (rows) on every rank; 0 where there is none */
    char **why;    /* (rows) NULL, or why the row has no score */
    char hash[33]; /* the model's weights */
    int64_t rows;
};
void vl_rm_free(struct vl_rm *m);

/* Whether a reward model is asked for. */
int vl_rm_wanted(const struct vl_rm_opts *o);
/* VL_E_USAGE for options that contradict each other; before anything is read. */
int vl_rm_check(const struct vl_rm_opts *o, struct vl_err *e) VL_MUST_CHECK;

/* Scores all rows, divided over the ranks: raw_prompt and the decoded response as the messages of a
 * conversation, by the model's own template and tokenizer (or the batch's ids as they are); the
 * score is the head's output at the last token. Bits depend on neither ranks, micro-batches nor
 * neighbours. Adds rm_scores (rows, R), zero but at the last valid response token, and
 * meta_info.rm_scores_weights. A row that is too long or whose template fails has a `why`; rows
 * without a valid response token have one too. Collective. */
int vl_rm_run(struct vl_ctx *x, const struct vl_rm_opts *o, struct vl_batch *b,
              const struct vl_reward_rows *rows, struct vl_rm *m, struct vl_err *e) VL_MUST_CHECK;

#endif
