/* checkpoint.h - a run's versions saved together as global_step_N, and put back. See verl-state(5). */
#ifndef VL_CHECKPOINT_H
#define VL_CHECKPOINT_H

#include "libverl/base/mem.h"

/* What a checkpoint did: for messages. */
struct vl_checkpoint_report {
    int64_t step;
    int made;            /* 0: it was there already, equal */
    int copied;          /* files were copied, not linked */
    struct vl_buf parts; /* "actor v000012, rollout v000012"; caller frees */
};

/* Saves the versions that RUN/{actor,critic,rollout,kl}/current point to as dir/global_step_N, then
 * writes dir/latest_checkpointed_iteration.txt. step -1: the actor's (else critic's) global step.
 * The same checkpoint again is no work; another one under that step is VL_E_CREATE. */
int vl_checkpoint_save(const char *run, const char *dir, int64_t step,
                       struct vl_checkpoint_report *r, struct vl_err *e) VL_MUST_CHECK;

/* Puts a checkpoint's versions into RUN and points `current` to them; later versions of RUN stay. step
 * -1: the latest. A version of RUN with that number and other contents is VL_E_CREATE. */
int vl_checkpoint_restore(const char *dir, const char *run, int64_t step,
                          struct vl_checkpoint_report *r, struct vl_err *e) VL_MUST_CHECK;

#endif
