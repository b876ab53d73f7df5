/* engine.h - the transformer over a backend: packed forward and backward, KV-cache decoding.
 *
 * Rows of a padded batch are packed before they come here (engine/pack.h): the model never sees
 * padding. */
#ifndef VL_ENGINE_H
#define VL_ENGINE_H

#include "libverl/engine/backend.h"
#include "libverl/model/model.h"

struct vl_engine;

#define VL_MAX_MOMENTS 3

struct vl_engine_opts {
    enum vl_compute compute;
    int int8;            /* inference: matrices as VL_FORM_INT8; embedding and vectors stay fp32 */
    int train;           /* gradients, the optimizer's moments */
    int moments;         /* training: how many slabs of these, up to VL_MAX_MOMENTS */
    int recompute;       /* keep only layer inputs, recompute activations in backward */
    const char *offload; /* the moments stay in a file of this directory; NULL: in memory */
};

/* A packed batch: N tokens of nseq sequences. Output row j of the head belongs to token row out[j]
 * and predicts target[j]. All arrays host, borrowed during the call. */
struct vl_packed {
    int64_t N, nseq, M;
    const int32_t *ids; /* (N) */
    const int32_t *pos; /* (N) position of each token in its sequence */
    const struct vl_seq *seq;
    const int64_t *out;    /* (M) token rows, ascending */
    const int32_t *target; /* (M) NULL for a value head */
    const struct vl_more
        *more; /* further ids of each output, whose log-probs the forward pass writes
                                   and whose gradients the backward pass of a kept one adds; or NULL */
};

/* Bytes of weights, gradients and moments, and of what passes up to x take: activations, the backend's
 * scratch; x of zeros: no pass. */
size_t vl_engine_bytes(const struct vl_config *c, const struct vl_engine_opts *o,
                       const struct vl_backend *be, const struct vl_extent *x);

/* Takes the parameters from m->slab (copied to the device; the caller may free m's slab). Without
 * `train` matrices are kept in packed form alone, in about a third of the memory. */
int vl_engine_new(struct vl_engine **g, const struct vl_model *m, struct vl_backend *be,
                  const struct vl_engine_opts *o, struct vl_err *e) VL_MUST_CHECK;
/* The same from the files of a model opened without weights (vl_model_read, by `threads` threads): no
 * slab on the host, each byte is read once. */
int vl_engine_load(struct vl_engine **g, struct vl_model *m, struct vl_backend *be,
                   const struct vl_engine_opts *o, int threads, struct vl_err *e) VL_MUST_CHECK;
void vl_engine_free(struct vl_engine *g);

/* Forward: logp, entropy, sum_pi2 (M; host; may be NULL) at temperature 1/inv_temp; with a value
 * head `value` (M). keep = 1 keeps activations for one vl_engine_backward call. */
int vl_engine_forward(struct vl_engine *g, const struct vl_packed *p, float inv_temp, int keep,
                      float *logp, float *entropy, float *sum_pi2, float *value,
                      struct vl_err *e) VL_MUST_CHECK;
/* The K likeliest ids of each output and their log-probs (M,K; host), ties to the lower id; and as
 * the forward pass logp (M), entropy (M or NULL) and p->more. */
int vl_engine_topk(struct vl_engine *g, const struct vl_packed *p, float inv_temp, int64_t K,
                   int32_t *id, float *top, float *logp, float *entropy,
                   struct vl_err *e) VL_MUST_CHECK;
/* Adds the gradient of sum dlogp*logp + dent*entropy (or dvalue*value) to the gradient slab, with the
 * terms of p->more, whose arrays must still be there. */
int vl_engine_backward(struct vl_engine *g, const float *dlogp, const float *dent,
                       const float *dvalue, struct vl_err *e) VL_MUST_CHECK;
int vl_engine_logits(struct vl_engine *g, const struct vl_packed *p, float *z /* (M, V) */,
                     struct vl_err *e) VL_MUST_CHECK;

/* Training only: slabs (dev, m->count floats each, offsets of m->param). */
float *vl_engine_params(struct vl_engine *g);
float *vl_engine_grads(struct vl_engine *g); /* whole after vl_engine_finish_grads */
/* The weights, or a moment, wherever it is: put of a sink and get of an origin (model.h) have such a
 * one, laid out as m, as their arg. VL_E_IO of moments in a file. */
enum { VL_WEIGHTS = -1 };
struct vl_engine_slab {
    struct vl_engine *g;
    const struct vl_model *m;
    int which; /* VL_WEIGHTS, or of opts.moments */
};
int vl_engine_slab_put(void *arg, int64_t i, int64_t row, int64_t n, const float *x,
                       struct vl_err *e) VL_MUST_CHECK;
const float *vl_engine_slab_get(void *arg, int64_t at, int64_t n, float *room,
                                struct vl_err *e) VL_MUST_CHECK;
void vl_engine_zero_grads(struct vl_engine *g); /* before the first backward pass of a step */
void vl_engine_finish_grads(struct vl_engine *g);
/* The optimizer's step on floats [at, at + n) of the slabs, whole parameters, from the gradient and the
 * moments (of opts.moments in the backend's order); packs them. *changed += weights that differ.
 * VL_E_IO of moments in a file: some weights are then stepped and some are not. */
int vl_engine_adamw(struct vl_engine *g, int64_t at, int64_t n, const struct vl_adamw *o,
                    int64_t *changed, struct vl_err *e) VL_MUST_CHECK;
int vl_engine_sgd(struct vl_engine *g, int64_t at, int64_t n, const struct vl_sgd *o,
                  int64_t *changed, struct vl_err *e) VL_MUST_CHECK;
/* Packs the weights again after the parameters were changed from outside (training). */
void vl_engine_repack(struct vl_engine *g);

#endif
