/* stage_batch.h - the subcommands of verl-batch. Operations: ops.h; argument forms: verl-batch(1). */
#ifndef VL_STAGE_BATCH_H
#define VL_STAGE_BATCH_H

#include "libverl/batch/batch.h"
#include "libverl/run/stage.h"

struct vl_batchcmd_opts {
    const char *columns, *meta; /* -k, --meta: comma lists or NULL */
    const char *popped;         /* pop: where the removed part goes */
    const char *counts, *mask;  /* repeat, index: comma lists or NULL */
    int tiled, first, auto_padding, shuffle;
    int64_t copies;       /* pad: how many rows; -1 = not given */
    int64_t piece;        /* chunk, split: only this one; -1 = all */
    int64_t target;       /* filter-groups: prompts wanted; 0 = no target */
    const char *metric;   /* filter-groups */
    const char *filter;   /* map */
    const char *command;  /* map */
    const char *like;     /* from-json */
    struct vl_strs dtype; /* from-json: NAME=TYPE */
    int allow_empty;      /* from-json */
    int unset;            /* set-meta: remove keys */
};

/* Stage function of verl-batch; opts is a struct vl_batchcmd_opts. The first operand names the
 * command. */
int vl_stage_batch(struct vl_ctx *x, const void *opts, struct vl_err *e);

/* Lines "  name ARGS   what" of all commands, for --help. Caller frees. */
char *vl_batchcmd_help(void);

/* One command at work. */
struct vl_job {
    struct vl_ctx *x;
    const struct vl_batchcmd_opts *o;
    const char *const *arg; /* its arguments, without the files */
    size_t narg;
    struct vl_batch in, out; /* in may be taken apart */
    int written;             /* the command wrote its output itself */
};

/* The commands that need more than ops.h, in batchcmd_rows.c and batchcmd_map.c. */
int vl_job_filter(struct vl_job *j, struct vl_err *e);
int vl_job_filter_groups(struct vl_job *j, struct vl_err *e);
int vl_job_pairs(struct vl_job *j, struct vl_err *e);
int vl_job_balance(struct vl_job *j, struct vl_err *e);
int vl_job_map(struct vl_job *j, struct vl_err *e);
int vl_job_from_json(struct vl_job *j, struct vl_err *e);
int vl_job_to_safetensors(struct vl_job *j, struct vl_err *e);

/* Adds provenance and writes the batch to path ("-": -o). */
int vl_job_write(struct vl_job *j, struct vl_batch *b, const char *path,
                 struct vl_err *e) VL_MUST_CHECK;
/* Notes n rows dropped for a reason: one line on stderr and metrics "NAME/dropped_rows". */
void vl_job_dropped(struct vl_job *j, const char *name, int64_t n);

#endif
