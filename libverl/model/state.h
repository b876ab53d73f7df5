/* state.h - train state: master weights, the optimizer's moments and where training stands, by version.
 *
 * DIR/vNNNNNN/ holds params and moments such as exp_avg (safetensors, fp32, Hugging Face's names), state.json
 * and the model's config and tokenizer files, so a version is also a model directory. The layout does
 * not depend on ranks. The format is verl-state(5). */
#ifndef VL_STATE_H
#define VL_STATE_H

#include "libverl/model/model.h"

/* What optimizers remember of each weight: files NAME.safetensors of a state. */
enum { VL_EXP_AVG, VL_EXP_AVG_SQ, VL_MAX_EXP_AVG_SQ, VL_MOMENTUM_BUFFER, VL_MOMENT_KINDS };
extern const char *const vl_moment_name[VL_MOMENT_KINDS];

/* state.json. Strings are owned; release with vl_state_record_free. */
struct vl_state_record {
    int64_t version;         /* this version's number */
    int64_t parent;          /* -1: the state was filled from a model */
    char *parent_hash;       /* hash of the parent's weights or NULL */
    int redo;                /* made with an explicit --from */
    char *role;              /* "actor", "critic", "sft" */
    int64_t global_step;     /* of the batch that made it; may repeat */
    char *batch;             /* content hash of that batch or NULL */
    char *options;           /* JSON object: the options that can change values, or NULL */
    int64_t schedule;        /* position of the learning-rate schedule */
    int64_t total_steps;     /* length of the schedule; 0 = none */
    char *optimizer;         /* "AdamW", ... or NULL: none has stepped yet */
    int64_t optimizer_steps; /* its t */
    int64_t skipped;         /* optimizer steps skipped for a non-finite gradient, in all */
    int64_t skipped_in_row;  /* the last so many were skipped */
    char *progress;          /* JSON: where a long run inside one batch stands (sft), or NULL */
    char *metrics;           /* JSON object of the update's metrics, so that a rerun that has
                                nothing to do still writes them; or NULL */
    char hash[33];
    char moment_hash[VL_MOMENT_KINDS][33]; /* "": the state has no such file */
};

struct vl_state {
    char *dir;                   /* as given */
    int lock;                    /* file descriptor, -1 = not held */
    int64_t current;             /* version the link points to */
    int64_t base;                /* version to start from */
    int link_stays;              /* publish without moving the link (set it after _begin) */
    struct vl_state_record rec;  /* of base */
    struct vl_model *model;      /* of base, without weights (after vl_state_open) */
    struct vl_state_record last; /* of `current` (the same as rec without --from) */
};

void vl_state_record_free(struct vl_state_record *r);
int vl_state_record_read(struct vl_state_record *r, const char *dir, int64_t version,
                         struct vl_err *e) VL_MUST_CHECK;

/* Takes the writer's lock (VL_E_RETRY when held), fills an empty DIR as v000000 from the model
 * directory `model` with this head (*filled = 1), and settles base: `from`, or `current` when from
 * is -1. Without anything to start from: VL_E_NOINPUT that asks for -m. One rank only. End with
 * vl_state_close, also after an error. */
int vl_state_begin(struct vl_state *s, const char *dir, const char *model, int64_t from,
                   enum vl_head head, int *filled, struct vl_err *e) VL_MUST_CHECK;

/* Takes a filling back, where its version is the only one: a run that failed leaves no state, so that
 * the next one may name another model. Under the writer's lock. */
void vl_state_unfill(struct vl_state *s);

/* The version that this batch, these options and (with `from`) this parent already made, `current`
 * first, then one that was published without the link being moved (an interrupted run); -1: none. */
int64_t vl_state_made(const struct vl_state *s, int64_t from, const char *batch,
                      const char *options);
/* The first version that is there with the weights, parent, batch and options of this record: what a
 * repeated step is called in its output, so that it is the same bytes. */
int64_t vl_state_twin(const struct vl_state *s, const struct vl_state_record *of);
/* Points `current` at such a version. */
int vl_state_point(struct vl_state *s, int64_t version, struct vl_err *e) VL_MUST_CHECK;

/* Opens the model of dir/v<base>; its weights come by vl_model_read. Every rank calls it; s->dir,
 * s->base and s->rec must be set (vl_state_begin, or by hand on other ranks). */
int vl_state_open(struct vl_state *s, enum vl_head head, struct vl_err *e) VL_MUST_CHECK;
/* Reads a moment of it, laid out as s->model, and checks it against the record's hash; none is in the
 * record: nothing is put. */
int vl_state_moment(struct vl_state *s, int which, const struct vl_sink *to,
                    struct vl_err *e) VL_MUST_CHECK;

/* Publishes the next unused version and moves the link (unless link_stays); fills rec->version and the
 * hashes. A moment without a get is not there. Values that are not finite are VL_E_DATA naming the tensor: such a state is never saved.
 * Keeps the newest `keep` versions, the parent, and linked ones. Needs the lock.
 * Stop points: state-params, state-moments, state-written, state-renamed, state-linked, state-pruned. */
int vl_state_publish(struct vl_state *s, struct vl_state_record *rec,
                     const struct vl_origin *params, const struct vl_origin moment[VL_MOMENT_KINDS],
                     int64_t keep, struct vl_err *e) VL_MUST_CHECK;
void vl_state_close(struct vl_state *s);

#endif
