/* internal.h - what the engine's own files share: parameters by offset, activations, KV cache.
 *
 * Activations are carved from one device arena by one layout function, run twice (measure, carve).
 * Residual sums never copy: x2 = o(att), x2 += x, so inference alternates two buffers and training
 * keeps one per layer with the same code. */
#ifndef VL_ENGINE_INTERNAL_H
#define VL_ENGINE_INTERNAL_H

#include "libverl/engine/engine.h"

/* Offsets into the parameter slab; -1 = the model has none. */
struct vl_layer {
    int64_t attn_norm, qkv, qkv_bias, q_norm, k_norm, o, o_bias;
    int64_t mlp_norm, gate_up, gate_up_bias, down, down_bias;
    struct vl_weight *w_qkv, *w_o, *w_gate_up, *w_down;
};

/* One layer's activations over N tokens (dev). A = (H + 2K) D. */
struct vl_acts {
    float *x;               /* (N, C) layer input */
    float *rstd1;           /* (N) of the attention's norm */
    float *q0, *k0;         /* (N, HD), (N, KD) before q/k norm; NULL when the model has none */
    float *rstd_q, *rstd_k; /* (N, H), (N, K) */
    float *qkv;             /* (N, A) after q/k norm and rope */
    float *att, *lse;       /* (N, HD), (N, H) */
    float *x2;              /* (N, C) after attention */
    float *rstd2;           /* (N) of the mlp's norm */
    float *gu;              /* (N, 2F); NULL when no backward pass follows */
};

/* A packed parameter of the slabs. */
struct vl_matrix {
    struct vl_weight *w;
    int64_t off, rows, cols;
};

/* The optimizer's moments (moments.c). */
struct vl_moments {
    float *dev[VL_MAX_MOMENTS]; /* (count); in a file: (window) */
    int64_t window;             /* floats; 0: no file */
    int fd;                     /* of the file: slabs of count floats, end to end */
    float *room;                /* host (window), where the device's memory is not the host's */
};

struct vl_work {
    struct vl_acts *layer;   /* (L) host */
    float *xL;               /* (N, C) after the last layer */
    float *xo, *rstd_f, *xn; /* (M, C), (M), (M, C) output rows before and after the final norm */
    float *value;            /* (M) */
    void *n, *h;             /* operands: (N, C) normed input or (N, HD) att; (N, F) */
    /* backward */
    float *dx, *dn, *datt, *dqkv; /* (N, C), (N, C), (N, HD), (N, A) */
    void *dy, *dgu;               /* operands: (N, C) dx; (N, 2F) dgu or (N, A) dqkv */
    float *dxo, *dxn, *dvalue;
};

/* Keys and values of all layers in pages of VL_PAGE positions (dev). */
struct vl_kv {
    void **k, **v; /* (L) of (pages) */
    int64_t pages;
};

struct vl_engine {
    struct vl_config cfg; /* json not kept */
    struct vl_engine_opts opt;
    struct vl_backend *be;
    int64_t count;
    float *params, *grads; /* dev (count) */
    struct vl_moments moments;
    /* the gradient (grads.c) */
    int fresh;                /* no backward pass yet: matrices hold anything */
    float *dembed;            /* dev (V, C): input-side gradient of a tied embedding, else NULL */
    int32_t *slot;            /* host (V): its row for each id, or -1 */
    int64_t *slot_id, slots;  /* host: the id of each row */
    struct vl_matrix *matrix; /* training: all of them, by offset */
    int64_t matrices;
    int64_t embed, norm, head, value_head, value_bias; /* offsets */
    struct vl_layer *layer;
    struct vl_weight *w_head; /* (V, C) packed head; NULL with a value head */
    struct vl_weight *w_value;
    float *rope; /* dev (rope_positions, D/2, 2) */
    int64_t rope_positions;

    void *arena;
    size_t arena_bytes;
    struct vl_work work;

    /* the kept forward pass */
    int kept;
    int64_t N, nseq, M;
    int32_t *ids, *pos, *target; /* host copies */
    struct vl_seq *seq;
    int64_t *out;
    struct vl_runs runs, out_runs; /* the sequences' rows among N and among M */
    int64_t *bounds;               /* what they point into */
    float *lse, *entropy;          /* host (M) */
    const struct vl_more *more;    /* the caller's */
    float inv_temp;
};

static inline float *vl_par(const struct vl_engine *g, int64_t off)
{
    return off < 0 ? NULL : g->params + off;
}
static inline float *vl_grad(const struct vl_engine *g, int64_t off)
{
    return off < 0 ? NULL : g->grads + off;
}
static inline int64_t vl_qkv_width(const struct vl_config *c)
{
    return (c->H + 2 * c->K) * c->D;
}

/* What a forward pass keeps. */
enum vl_keep { VL_KEEP_NONE, VL_KEEP_ALL, VL_KEEP_INPUTS /* recompute the rest in backward */ };

void vl_work_layout(struct vl_arena *a, struct vl_work *w, const struct vl_config *c,
                    const struct vl_backend *be, enum vl_compute ct, enum vl_keep keep, int64_t N,
                    int64_t M);
/* Arena of at least what the layout needs, carved into g->work. */
int vl_work_get(struct vl_engine *g, enum vl_keep keep, int64_t N, int64_t M,
                struct vl_err *e) VL_MUST_CHECK;
/* Inverse frequency of pair i after the config's scaling, radians per position. */
double vl_rope_inv_freq(const struct vl_config *c, int64_t i);
int vl_rope_get(struct vl_engine *g, int64_t positions, struct vl_err *e) VL_MUST_CHECK;

/* Layer l: activations a from a->x; the result goes to xnext (NULL: nowhere, what backward needs of the
 * layer is enough). kv NULL: keys are the rows. */
void vl_layer_forward(struct vl_engine *g, int64_t l, struct vl_acts *a, float *xnext,
                      const int32_t *pos, int64_t N, const struct vl_seq *seq, int64_t nseq,
                      const struct vl_kv *kv);
/* Embedding and all layers into g->work.xL, then output rows through the final norm to work.xn. */
void vl_body_forward(struct vl_engine *g, const struct vl_packed *p, const struct vl_kv *kv);
/* The input side of a tied embedding's gradient; the list of matrices; the embedding's share of a backward
 * pass. */
int vl_grads_new(struct vl_engine *g, struct vl_err *e) VL_MUST_CHECK;
void vl_grads_matrices(struct vl_engine *g);
void vl_grads_embed(struct vl_engine *g, const float *dx);
/* Moments of zeros; and their bytes of memory. */
int vl_moments_new(struct vl_engine *g, struct vl_err *e) VL_MUST_CHECK;
void vl_moments_free(struct vl_engine *g);
size_t vl_moments_bytes(const struct vl_config *c, const struct vl_engine_opts *o, int64_t count);
/* Those in a file: floats [at, at + n), n <= window, of all moments into dev, and back. */
int vl_moments_read(struct vl_engine *g, int64_t at, int64_t n, struct vl_err *e) VL_MUST_CHECK;
int vl_moments_write(struct vl_engine *g, int64_t at, int64_t n, struct vl_err *e) VL_MUST_CHECK;
struct vl_attn vl_layer_attn(const struct vl_config *c, enum vl_compute ct, int64_t l);

#endif
