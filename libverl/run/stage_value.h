/* stage_value.h - verl-value: the critic's value of every response token. */
#ifndef VL_STAGE_VALUE_H
#define VL_STAGE_VALUE_H

#include "libverl/run/infer.h"

struct vl_value_opts {
    const char *path;    /* critic.model.path */
    const char *compute; /* "auto" | "fp32" | "bf16" | "amx" */
    int64_t micro_batch; /* --micro-batch, before: */
    struct vl_cut cut;   /* critic.forward_* */
};

/* Adds values (B, R): the value head's output at the position that predicts response token t, times
 * response_mask. Values know no temperature. */
int vl_stage_value(struct vl_ctx *x, const void *opts, struct vl_err *e) VL_MUST_CHECK;

#endif
