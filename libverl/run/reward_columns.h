/* reward_columns.h - from scored rows on all ranks to columns and metrics on rank 0. */
#ifndef VL_REWARD_COLUMNS_H
#define VL_REWARD_COLUMNS_H

#include "libverl/reward/score.h"
#include "libverl/run/reward_extra.h"
#include "libverl/run/reward_rows.h"
#include "libverl/run/stage.h"

struct vl_reward_result {
    struct vl_score *s; /* rank 0: all rows, in order */
    int64_t rows, failed;
    int rm;            /* the column rm_scores was made, too */
    const char **adds; /* names of the columns made, NULL-terminated; for vl_stage_write */
    struct vl_reward_extras extras; /* of them, the scorers' own members */
};
void vl_reward_result_free(struct vl_reward_result *r);

/* Rank 0 gets the ranks' scores (count rows each, in rank order) and the sum of `failed`.
 * Collective. */
int vl_reward_collect(struct vl_ctx *x, const struct vl_reward_rows *rows, struct vl_score *s,
                      int64_t count, int64_t failed, struct vl_reward_result *res,
                      struct vl_err *e) VL_MUST_CHECK;
/* Rank 0: the columns and metrics of verl-reward(1). VL_E_DATA when a member of an answer has the
 * name of a column that is there. */
int vl_reward_store(struct vl_ctx *x, struct vl_batch *b, const struct vl_reward_rows *rows,
                    struct vl_reward_result *res, struct vl_err *e) VL_MUST_CHECK;
/* Rank 0: the same from rm_scores, as verl's managers do when a batch has it. */
int vl_reward_from_model(struct vl_ctx *x, struct vl_batch *b, struct vl_reward_result *res,
                         const char *source_key, struct vl_err *e) VL_MUST_CHECK;
/* Drops the scorers' own columns of an earlier run (meta_info.reward_extra_keys). */
void vl_reward_drop_old(struct vl_batch *b);

#endif
