/* stage_reward.h - scores of responses: by rule, jq filter, command, Python function, model. */
#ifndef VL_STAGE_REWARD_H
#define VL_STAGE_REWARD_H

#include "libverl/algo/shaping.h"
#include "libverl/run/reward_code.h"
#include "libverl/run/reward_judge.h"
#include "libverl/run/reward_model.h"
#include "libverl/run/stage.h"

struct vl_reward_opts {
    const char *scorer;   /* a rule for all rows, or NULL: by data_source */
    struct vl_strs rules; /* --rule */
    const char *scorers;  /* reward.scorers, a JSON list, or NULL */
    const char *dispatch; /* reward.dispatch, a JSON object, or NULL */
    const char *filter;   /* --jq */
    const char *command;  /* --command */
    const char *exec;     /* --exec */
    const char *args;     /* JSON object text or NULL */
    int64_t workers;      /* 0: one per cpu of the rank */
    double timeout;       /* seconds a row */
    int64_t memory;       /* MB a worker; 0: none; VL_NULL_I64: 1024 for a filter, else none */
    const char *on_error; /* fail, invalid, value */
    double error_value;
    int keep_special;
    int stream;              /* rows of a stream are scored as they come */
    const char *source_key;  /* data.reward_fn_key */
    const char *manager;     /* reward_manager.name */
    const char *custom_path; /* custom_reward_function.path, .name, .reward_kwargs (JSON object) */
    const char *custom_name, *custom_kwargs;
    struct vl_rm_opts rm; /* reward_model.* */
    struct vl_judge_opts judge;
    struct vl_reward_code_opts code; /* the rule code */
    int overlong;                    /* dapo's penalty on long responses */
    struct vl_overlong shape;
    int overlong_log;
};
#define VL_REWARD_DEFAULTS                                                                         \
    {                                                                                              \
        .timeout = 60, .stream = 1, .memory = VL_NULL_I64, .on_error = "fail",                     \
        .source_key = "data_source", .manager = "naive", .custom_name = "compute_score",           \
        .rm = VL_RM_DEFAULTS, .judge = VL_JUDGE_DEFAULTS, .code = VL_REWARD_CODE_DEFAULTS,         \
        .shape = {                                                                                 \
            VL_NULL_I64,                                                                           \
            VL_NULL_I64,                                                                           \
            1                                                                                      \
        }                                                                                          \
    }

/* Adds token_level_scores (the score at the last valid token), score, acc, reward_error (null, or
 * why the row has no score: its score and acc are NaN then) and one JSON column per further member
 * of what the scorers answer; metrics to meta_info; with a reward model rm_scores, which are the
 * scores unless another scorer is given. Rows are divided among ranks. */
int vl_stage_reward(struct vl_ctx *x, const void *opts, struct vl_err *e) VL_MUST_CHECK;

#endif
