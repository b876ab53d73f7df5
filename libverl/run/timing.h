/* timing.h - how long each phase of a stage took: what --timing says. Never part of a batch. */
#ifndef VL_TIMING_H
#define VL_TIMING_H

#include "libverl/base/log.h"

enum vl_phase {
    VL_PHASE_READ,
    VL_PHASE_FILL, /* an empty train state made of a model */
    VL_PHASE_LOAD, /* weights, or the train state, read and packed */
    VL_PHASE_WORK, /* of it: */
    VL_PHASE_PREFILL,
    VL_PHASE_DECODE,
    VL_PHASE_PASSES, /* forward and backward */
    VL_PHASE_OPTIMIZER,
    VL_PHASE_WRITE,
    VL_PHASES
};

/* Of this rank; all zero at the start. */
struct vl_timing {
    struct vl_phase_time {
        int seen;
        double s;
        int64_t tokens;
    } phase[VL_PHASES];
    char model[80]; /* device and type of the products; "": no model ran */
};

/* Adds s seconds with so many tokens, 0 where nobody counts them. */
void vl_timing_add(struct vl_timing *t, enum vl_phase p, double s, int64_t tokens);
void vl_timing_model(struct vl_timing *t, const char *device, const char *compute);
/* One line on stderr, also with -q: rank 0's phases, tokens a second, who computed. */
void vl_timing_say(const struct vl_timing *t, struct vl_log *l, int ranks, int threads);

#endif
