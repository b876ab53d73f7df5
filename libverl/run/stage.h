/* stage.h - what all stage programs share: context, united inputs, replaced columns, output.
 *
 * A stage is `int vl_stage_NAME(struct vl_ctx *, const struct vl_NAME_opts *, struct vl_err *)`: no
 * exit, no globals, callable twice. main() holds the options table and calls vl_main. */
#ifndef VL_STAGE_H
#define VL_STAGE_H

#include "libverl/base/log.h"
#include "libverl/base/opt.h"
#include "libverl/base/publish.h"
#include "libverl/batch/batch.h"
#include "libverl/comm/comm.h"
#include "libverl/run/timing.h"

struct vl_ctx {
    const struct vl_program *program;
    struct vl_common *common;
    struct vl_parsed *parsed;
    struct vl_comm comm;
    struct vl_log log;
    struct vl_timing timing;
    struct vl_batch before; /* rows and meta_info as read, no columns: what --delta compares with */
};

/* Parse, start ranks, run the stage, agree on errors, close and check stdout, print the first
 * cause as the last line, return the exit status. */
int vl_main(const struct vl_program *p, struct vl_common *common, int argc, char **argv,
            int (*stage)(struct vl_ctx *, const void *, struct vl_err *), const void *opts);

/* Reads and unites the -i files (DESIGN: first input fixes rows and order; (uid, sample) matches,
 * else position; equal columns or VL_E_DATA; a duplicate (uid, sample) is VL_E_DATA). Collective:
 * all ranks get the whole batch. `-` under a bare mpiexec is VL_E_USAGE. */
int vl_stage_read(struct vl_ctx *x, struct vl_batch *b, struct vl_err *e) VL_MUST_CHECK;

/* The same with a reader of the stage's own for the first input (rank 0; NULL: the usual one): it
 * gets the name and the descriptor, and leaves the whole batch in *b. */
typedef int vl_stage_reader(void *arg, const char *path, int fd, struct vl_batch *b,
                            struct vl_err *e);
int vl_stage_read_by(struct vl_ctx *x, struct vl_batch *b, vl_stage_reader *by, void *arg,
                     struct vl_err *e) VL_MUST_CHECK;

/* Before computing: announces and drops the columns in `adds` (NULL-terminated) that are already
 * there, and the columns that depend on them (formats/fields.h). */
void vl_stage_replaces(struct vl_ctx *x, struct vl_batch *b, const char *const *adds);

/* Rank 0 appends this stage's provenance and writes -o; with --delta only `adds`, uid, sample and
 * meta that is new (VL_E_USAGE when the number of rows changed or -o is an input). weight_version
 * may be NULL. Collective. */
int vl_stage_write(struct vl_ctx *x, struct vl_batch *b, const char *const *adds,
                   const char *weight_version, struct vl_err *e) VL_MUST_CHECK;

/* The provenance part of vl_stage_write alone, for stages that write documents of a stream. */
int vl_stage_sign(struct vl_ctx *x, struct vl_batch *b, const char *weight_version,
                  struct vl_err *e) VL_MUST_CHECK;

/* A value the stage needs: the option's when the user gave it, else meta_info[key], else VL_E_DATA
 * naming the option. opt is the option's variable. Where it differs from the batch's a warning names
 * both; the command line wins over the batch, and the batch over a config file. */
int vl_stage_f64(struct vl_ctx *x, const struct vl_batch *b, const char *key, const double *opt,
                 double *out, struct vl_err *e) VL_MUST_CHECK;
int vl_stage_i64(struct vl_ctx *x, const struct vl_batch *b, const char *key, const int64_t *opt,
                 int64_t *out, struct vl_err *e) VL_MUST_CHECK;
/* Name of the column with the tokens' scores: token_level_scores or, without it, rm_scores. */
const char *vl_stage_scores(const struct vl_batch *b);
/* The seed by the same rule, but the option's default (1) when meta_info has none. */
int64_t vl_stage_seed(struct vl_ctx *x, const struct vl_batch *b);

/* Every rank gets rank 0's batch, provenance and parents included; the others' *b must be zeroed.
 * Collective. */
int vl_batch_bcast(struct vl_comm *c, struct vl_batch *b, struct vl_err *e) VL_MUST_CHECK;

/* vl_stop_at (VL_STOP_AT=point) is in publish.h; points of the stages: stage-read, stage-write. */

#endif
