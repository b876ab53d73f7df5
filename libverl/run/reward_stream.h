/* reward_stream.h - rows scored while the batch is still arriving as a stream. */
#ifndef VL_REWARD_STREAM_H
#define VL_REWARD_STREAM_H

#include "libverl/reward/rule_set.h"
#include "libverl/reward/score.h"
#include "libverl/run/reward_rows.h"
#include "libverl/run/stage_reward.h"

/* What is known before the whole batch is. */
struct vl_reward_early {
    struct vl_score *s; /* of the rows with a valid token, in order; moved out by who uses them */
    int64_t n;
    int used; /* 0: s is empty: the batch came whole, or there was nothing to score */
    struct vl_tok *tok;
};

/* Reads the batch as vl_stage_read does. When it comes as a stream by a pipe and its scorer is a rule
 * or a process, each document's rows are scored as soon as it is there. `like` gives the options of
 * rows; rules: those of the options, NULL when a process scores; scorer_given: whether the options
 * name a scorer (else a column rm_scores is the score, and nothing is scored early); whole: scorers need
 * all rows together. With
 * --on-error fail the first row (in order) whose scorer fails ends it with VL_E_DATA. */
struct vl_reward_how {
    const struct vl_reward_rows *like;
    const struct vl_rule_set *rules;
    int scorer_given;
    int whole;
};
int vl_reward_stream_read(struct vl_ctx *x, const struct vl_reward_opts *o,
                          const struct vl_reward_how *how, struct vl_batch *b,
                          struct vl_reward_early *early, struct vl_err *e) VL_MUST_CHECK;
void vl_reward_early_free(struct vl_reward_early *early);

#endif
