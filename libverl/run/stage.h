/* stage.h - what all stage programs share: context, united inputs, replaced columns, output.
 *
 * A stage is `int vl_stage_NAME(struct vl_ctx *, const struct vl_NAME_opts *, struct vl_err *)`: no exit, no globals,
 * callable twice. main() holds the options table and calls vl_main. */
#ifndef VL_STAGE_H
#define VL_STAGE_H

#include "libverl/base/log.h"
#include "libverl/base/opt.h"
#include "libverl/batch/batch.h"
#include "libverl/comm/comm.h"

struct vl_ctx {
    const struct vl_program *program;
    struct vl_common *common;
    struct vl_parsed *parsed;
    struct vl_comm comm;
    struct vl_log log;
};

/* Parse, start ranks, run the stage, agree on errors, close and check stdout, print the first
 * cause as the last line, return the exit status. */
int vl_main(const struct vl_program *p, struct vl_common *common, int argc, char **argv,
            int (*stage)(struct vl_ctx *, const void *, struct vl_err *), const void *opts);

/* Reads and unites the -i files (DESIGN: first input fixes rows and order; (uid, sample) matches,
 * else position; equal columns or VL_E_DATA). Collective: all ranks get the whole batch. */
int vl_stage_read(struct vl_ctx *x, struct vl_batch *b, struct vl_err *e) VL_MUST_CHECK;

/* Before computing: announces and drops the columns in `adds` (NULL-terminated) that are already
 * there, and the columns that depend on them (formats/fields.h). */
void vl_stage_replaces(struct vl_ctx *x, struct vl_batch *b, const char *const *adds);

/* Rank 0 appends this stage's provenance and writes -o; with --delta only `adds`, uid, sample and
 * meta that is new. weight_version may be NULL. */
int vl_stage_write(struct vl_ctx *x, struct vl_batch *b, const char *const *adds,
                   const char *weight_version, struct vl_err *e) VL_MUST_CHECK;

/* VL_STOP_AT=point in test builds: SIGSTOP here, so that kill tests are exact. */
void vl_stop_at(const char *point);

#endif
