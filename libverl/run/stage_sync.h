/* stage_sync.h - verl-sync: a train state's weights published for rollout. */
#ifndef VL_STAGE_SYNC_H
#define VL_STAGE_SYNC_H

#include "libverl/run/stage.h"

struct vl_sync_opts {
    const char *from;   /* "v12" or NULL: the state's `current` */
    const char *dtype;  /* "fp32" "bf16" "fp16" */
    int64_t shard_size; /* bytes; 0: 5 GB */
    int64_t keep;
};

/* Publishes version vN of the train state -s as OUTPUT/vN (the same number) and prints its path. */
int vl_stage_sync(struct vl_ctx *x, const void *opts, struct vl_err *e) VL_MUST_CHECK;

#endif
