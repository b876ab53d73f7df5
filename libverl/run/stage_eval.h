/* stage_eval.h - verl-eval: validation metrics of scored samples, data metrics of a step. */
#ifndef VL_STAGE_EVAL_H
#define VL_STAGE_EVAL_H

#include "libverl/algo/loss.h"
#include "libverl/algo/metrics.h"
#include "libverl/run/stage.h"

struct vl_eval_opts {
    struct vl_strs vars;   /* --var NAME: only these variables */
    const char *pred;      /* --pred COLUMN: what maj@k counts */
    int pass, stderror;    /* --pass, --stderr: see validation.h */
    int skip_unscored;     /* --skip-unscored: leave rows without a score out; else they are 0 */
    struct vl_strs timing; /* --timing NAME=SECONDS */
    int64_t devices;       /* --devices: divides perf/throughput */
    const char *agg;       /* actor.loss_agg_mode, of actor/entropy */
    double factor;         /* actor.loss_scale_factor; NAN = null */
};

/* One JSON object on one line to -o: with the operands `metrics STEP_DIR` the metrics of that step,
 * else the validation metrics of the -i batches. */
int vl_stage_eval(struct vl_ctx *x, const void *opts, struct vl_err *e) VL_MUST_CHECK;

/* Validation metrics of a scored batch under verl's names (val-core/..., val-aux/...). */
int vl_eval_validation(struct vl_ctx *x, const struct vl_batch *b, const struct vl_eval_opts *o,
                       struct vl_metrics *m, struct vl_err *e) VL_MUST_CHECK;

/* Metrics of the step whose files are in dir (gen.dp, reward.dp, ... as a run directory has them; a
 * missing file leaves its metrics out, a directory with none of them is VL_E_NOINPUT). */
int vl_eval_step(struct vl_ctx *x, const char *dir, const struct vl_eval_opts *o,
                 struct vl_metrics *m, struct vl_err *e) VL_MUST_CHECK;

/* The number (or 0, 1 for a bool) at row i of a column of one value a row: 1 = there is one. */
int vl_eval_number(const struct vl_col *c, int64_t i, double *x);

#endif
