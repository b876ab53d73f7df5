/* kl_state.h - the adaptive KL controller's coefficient between steps: --kl-state DIR.
 *
 * The frame is that of train states (verl-state(5)): DIR/vNNNNNN/state.json and the link `current`,
 * versions only grow. state.json holds {"kind": "kl", "version", "parent", "step", "kl_coef",
 * "before", "current_kl", "rows", "batch", "options"}: the coefficient for the next step, the one that
 * was used to make it, and what it was made from. The step decides which record is continued, not the
 * link: a step run again, however late, finds its own record and uses `before` again, so a repeated
 * stage gives the same bytes and counts once; a step made anew after a return to an earlier one goes on
 * from the last record before it. */
#ifndef VL_KL_STATE_H
#define VL_KL_STATE_H

#include "libverl/algo/kl.h"
#include "libverl/base/mem.h"

struct vl_kl_state {
    const char *dir;
    int lock;
    int64_t
        step; /* global_steps of the batch; -1: it has none, and the newest record is continued */
    int64_t parent; /* version this step continues; -1: none */
    int made;       /* a version was made by this batch and these options: nothing to publish */
    double coef;    /* coefficient to use in this step */
};

/* Takes the lock (VL_E_RETRY when held) and finds the coefficient: `first` where no step came before
 * this one, in an empty DIR, which is made, too. batch: content hash of what the step reads; options:
 * JSON text. VL_E_DATA: the record before the step is no longer there. End with vl_kl_state_close. */
int vl_kl_state_open(struct vl_kl_state *s, const char *dir, double first, int64_t step,
                     const char *batch, const char *options, struct vl_err *e) VL_MUST_CHECK;
/* Publishes the next version with coefficient `next`, unless made. Stop points: kl-written,
 * kl-renamed, kl-linked. The newest `keep` versions are kept. */
int vl_kl_state_publish(struct vl_kl_state *s, double next, double current_kl, int64_t rows,
                        const char *batch, const char *options, int64_t keep,
                        struct vl_err *e) VL_MUST_CHECK;
void vl_kl_state_close(struct vl_kl_state *s);

#endif
