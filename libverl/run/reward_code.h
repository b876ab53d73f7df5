/* reward_code.h - where the programs of rows scored by the rule code are run. */
#ifndef VL_REWARD_CODE_H
#define VL_REWARD_CODE_H

#include "libverl/reward/rules.h"
#include "libverl/run/stage.h"

struct vl_reward_code_opts {
    const char *sandbox; /* strong, weak */
    struct vl_strs show; /* --sandbox-show: further folders */
    double timeout;      /* seconds a case */
    const char *command; /* --code-command, --code-file */
    const char *file;
    const char *url; /* reward_model.sandbox_fusion.url, .max_concurrent, .memory_limit_mb */
    int64_t concurrent, memory_mb;
};
#define VL_REWARD_CODE_DEFAULTS                                                                    \
    {                                                                                              \
        .sandbox = "strong", .timeout = 10, .concurrent = 64, .memory_mb = 1024                    \
    }

struct vl_reward_opts;
struct vl_reward_job;

struct vl_reward_code {
    int wanted; /* some row is for the rule code */
    int threads;
    struct vl_code_opts opts;
    const char **binds;
    struct vl_code_answers *answers; /* by a service: of each asked row; else NULL */
    int64_t n;
};

/* VL_E_USAGE, before anything is read. */
int vl_reward_code_check(const struct vl_reward_opts *o, struct vl_err *e) VL_MUST_CHECK;

/* The arguments of the rule code when it scores this row, else NULL. */
typedef const struct vl_rule_args *vl_reward_code_args(void *arg, int64_t row);

/* Looks whether rows of the job are for the rule code; then makes sure that programs can be run
 * here (VL_E_UNAVAIL, before the first one), or has a service run them all. Free with _close, also
 * after an error. */
int vl_reward_code_open(struct vl_reward_code *c, struct vl_ctx *x, const struct vl_reward_opts *o,
                        const struct vl_reward_job *job, vl_reward_code_args *args, void *arg,
                        struct vl_err *e) VL_MUST_CHECK;
void vl_reward_code_close(struct vl_reward_code *c);

#endif
