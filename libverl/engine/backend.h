/* backend.h - the table of operations a device offers; the transformer is written once over it.
 *
 * Pointers marked dev are device addresses: arithmetic on them is fine, dereferencing them outside
 * the backend is not. All activations are fp32 (N, ...) row-major over a packed batch of N tokens,
 * but for operands: the rows that a product reads, as its compute type reads them. In fp32 these are
 * the floats; in the half types the rounded values, in rows of operand_bytes and a layout of the
 * backend's. An operation that makes what only products read makes an operand at once.
 *
 * Exactness contract: every output element is reduced in one fixed order that does not depend on N,
 * on its row's place, on the other rows, on paging, or on threads. Sums over a vector use 16 virtual
 * lanes and one fixed tree on every instruction set. Gradients of weights are accumulated in place,
 * row after row, so that any cut into micro-batches gives the same bits. */
#ifndef VL_BACKEND_H
#define VL_BACKEND_H

#include "libverl/base/err.h"

#define VL_BACKEND_VERSION 6
#define VL_PAGE            16 /* positions in a page of the KV cache */
#define VL_BLOCK_ROWS      64 /* rows of a matrix that are read and packed together, or a multiple */

enum vl_compute {
    VL_COMPUTE_F32,  /* fp32 operands */
    VL_COMPUTE_BF16, /* bf16 operands of matrix products and attention, fp32 accumulation */
    VL_COMPUTE_AMX,  /* as bf16, summed in the order of AMX tiles: other bits, the same precision */
    VL_COMPUTES
};

/* "fp32", "bf16", "amx": the value of --compute and meta_info.compute. Any device can do any type. */
const char *vl_compute_name(enum vl_compute c);
/* The type of that name, or VL_COMPUTES. */
enum vl_compute vl_compute_named(const char *name);

/* What a packed matrix holds. */
enum vl_form {
    VL_FORM_PLAIN,
    VL_FORM_TRAIN, /* also what linear_dx and head_bwd need */
    /* each row as whole numbers q of eight bits and one scale s, q s = w but for rounding:
     * s = max|w| / 127 in fp32, q = w / s to nearest even, within +-127. y[o] = s[o] * sum_k x[k]
     * q[o][k], summed as the compute type does, in which every q is exact; then the bias.
     * VL_COMPUTE_AMX sums whole numbers: with x in bf16 and m = max|x| of a row, v = x (32512 / m), hi =
     * (v + 1/2) / 256 and lo = v - 256 hi, to nearest even, lo at most 127, y[o] = ((float)(sum hi q)
     * * 256 + (float)(sum lo q)) * (m / 32512) * s[o]; 0 where m < 2^-100, NaN where x is not finite.
     * The sums have 32 bits: weight_new refuses more than VL_INT8_MOST inputs. */
    VL_FORM_INT8
};

#define VL_INT8_MOST (INT32_MAX / (127 * 128)) /* 132104 */

struct vl_weight; /* a matrix (out O, in I), packed as the backend likes */

/* One sequence's query rows in a packed batch. */
struct vl_seq {
    int64_t row; /* its first row in q, k, v and out */
    int32_t n;   /* rows */
    int32_t pos; /* position of the first row; keys 0 .. pos+i are visible to row i */
    const int32_t
        *page;      /* host: pages holding positions 0 .. pos+n-1 of the caches, in order; NULL:
                            the keys are rows row .. row+n-1 of k and v themselves, after, for
                            pos > 0, those of another sequence: */
    int64_t prefix; /* its row; it has pos rows from position 0, no pages, and those that share it
                       follow it directly */
};

/* Rows that belong to the sequences of a batch, end to end: those of i are from[i] .. from[i+1]-1. */
struct vl_runs {
    int64_t n;
    const int64_t *from; /* host (n + 1), from[0] = 0, from[n] = all rows */
};

struct vl_attn {
    int32_t H, K, D; /* query heads, key/value heads, head width */
    int32_t window;  /* sliding window: keys pos-window+1 .. pos; 0 = all */
    float scale;     /* on q.k */
    enum vl_compute ct;
};

/* What the passes of a run come to at most, for estimates of memory. */
struct vl_extent {
    int64_t N, M;    /* tokens, outputs */
    int64_t nseq;    /* sequences */
    int64_t shared;  /* unpaged positions of prefixes, once for each sequence that shares one */
    int64_t longest; /* positions of a sequence */
    int paged;       /* keys are in pages, outputs are drawn from */
};

/* A model's widths, for the same. */
struct vl_shape {
    struct vl_attn attn;
    int64_t C, F, V; /* V 0: no head over a vocabulary */
    enum vl_form form;
};

struct vl_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    int64_t t;        /* 1-based optimizer step, for bias correction */
    float grad_scale; /* clip coefficient, multiplied into the gradient */
    float l2;         /* Adam's weight decay: l2 * p is added to the gradient */
};

struct vl_sgd {
    float lr, momentum, dampening, l2;
    int nesterov;
    int64_t t; /* 1-based; the first step sets the momentum buffer to the gradient */
    float grad_scale;
};

struct vl_sampling {
    double temperature; /* 0 = greedy, log-probs then at temperature 1 */
    double top_p;       /* 1 = off */
    int64_t top_k;      /* <= 0 = off */
    double min_p;       /* ids below min_p times the likeliest one's probability go; 0 = off */
};

/* What a row does to one logit z (at temperature 1) before anything is drawn: it becomes
 * f(z + add) - sub, f(z) = z > 0 ? z / rep : z * rep. add = -INFINITY: the id is never drawn. */
struct vl_edit {
    int32_t id;
    float add, rep, sub; /* rep > 0 */
};

/* Ids of a head row beside its target, such as a teacher's likeliest. */
struct vl_more {
    int64_t K;
    const int32_t *id;  /* host (M,K), distinct in a row; -1: none, its numbers are not touched */
    float *logp;        /* host (M,K): head_logp writes it */
    const float *dlogp; /* host (M,K): head_bwd reads it */
};

struct vl_backend {
    uint32_t version; /* VL_BACKEND_VERSION */
    char name[48];    /* "cpu avx512" */
    void *ctx;
    enum vl_compute best; /* the type that is fastest here, by facts of the device alone */

    /* memory (dev) */
    int (*alloc)(void *ctx, void **dev, size_t bytes, struct vl_err *e); /* zeroed */
    void (*free)(void *ctx, void *dev);
    void (*upload)(void *ctx, void *dev, const void *host, size_t bytes);
    void (*download)(void *ctx, void *host, const void *dev, size_t bytes);
    void (*zero)(void *ctx, void *dev, size_t bytes);
    void *(*host)(void *ctx, void *dev); /* a host address of dev, or NULL: use download/upload */
    void (*close)(struct vl_backend *);

    /* weights. set packs from (O, I) fp32 dev memory. */
    int (*weight_new)(void *ctx, struct vl_weight **w, int64_t O, int64_t I, enum vl_compute ct,
                      enum vl_form form, struct vl_err *e);
    void (*weight_set)(void *ctx, struct vl_weight *w, const float *dev);
    /* Packs rows row .. row + n of W from x (n, I), host memory; not VL_FORM_TRAIN. row is a multiple
     * of VL_BLOCK_ROWS, so is n but for the last rows. Of disjoint rows several threads may do so at
     * once, and upload beside it. */
    void (*weight_rows)(void *ctx, struct vl_weight *w, const float *x, int64_t row, int64_t n);
    void (*weight_free)(void *ctx, struct vl_weight *w);
    size_t (*weight_bytes)(void *ctx, int64_t O, int64_t I, enum vl_compute ct, enum vl_form form);

    /* Bytes that the operations of such passes keep besides what they are given, at most. */
    size_t (*scratch_bytes)(void *ctx, const struct vl_shape *s, const struct vl_extent *x);

    /* One row of I elements as an operand; and the operand of x (N,I): x itself in fp32, else o. */
    size_t (*operand_bytes)(void *ctx, int64_t I, enum vl_compute ct);
    const void *(*operand)(void *ctx, void *o, const float *x, int64_t N, int64_t I,
                           enum vl_compute ct);

    /* x, dy: operands of w's type, or of ct.
     * y (N,O) = x (N,I) W^T + bias (O or NULL) + add (N,O or NULL), in this order; dx (N,I) = dy (N,O) W;
     * dW (O,I) = (add: +=) dy^T x, in row order, in the half types in pairs or blocks of rows counted from
     * each sequence's first (runs NULL: all rows are one), so that no cut between sequences shows;
     * dbias (O) += rows of dy, in row order */
    void (*linear)(void *ctx, float *y, const void *x, const struct vl_weight *w, const float *bias,
                   const float *add, int64_t N);
    void (*linear_dx)(void *ctx, float *dx, const void *dy, const struct vl_weight *w, int64_t N);
    void (*linear_dw)(void *ctx, float *dw, const void *dy, const void *x, int64_t N, int64_t O,
                      int64_t I, enum vl_compute ct, const struct vl_runs *runs, int add);
    void (*linear_db)(void *ctx, float *db, const void *dy, int64_t N, int64_t O,
                      enum vl_compute ct);

    /* gu (N,2F) = gate | up = x W^T + bias, kept if not NULL; h (N,F) = silu(gate) * up, an operand.
     * Backward, from the next product's dy: dh = dy W, and with gu the operands dgu (N,2F) and h */
    void (*gate_up)(void *ctx, void *h, float *gu, const void *x, const struct vl_weight *w,
                    const float *bias, int64_t N);
    void (*gate_up_bwd)(void *ctx, void *dgu, void *h, const void *dy, const struct vl_weight *down,
                        const float *gu, int64_t N);

    /* x (N,C) = E[ids]; dE[ids] += dx in row order. ids: host */
    void (*embed)(void *ctx, float *x, const float *E, const int32_t *ids, int64_t N, int64_t C);
    void (*embed_dw)(void *ctx, float *dE, const float *dx, const int32_t *ids, int64_t N,
                     int64_t C);

    /* rows: y = x * rstd * w, an operand of ct, rstd = 1/sqrt(mean(x^2) + eps); rstd (N) kept.
     * backward: dx (+)=, dw += in row order; and y again (NULL: not) */
    void (*rmsnorm)(void *ctx, void *y, float *rstd, const float *x, const float *w, int64_t N,
                    int64_t C, float eps, enum vl_compute ct);
    void (*rmsnorm_bwd)(void *ctx, float *dx, float *dw, void *y, const float *dy, const float *x,
                        const float *w, const float *rstd, int64_t N, int64_t C, int accumulate,
                        enum vl_compute ct);

    /* q/k norm: rmsnorm of each head of x (N, heads, D), row stride `stride` floats, in place; x0
     * (N, heads, D) keeps what came in. backward: dx, row stride `stride`, holds dy and becomes dx;
     * dw (D) += in row order, heads in order within a row */
    void (*head_norm)(void *ctx, float *x, int64_t stride, float *x0, float *rstd, const float *w,
                      int64_t N, int32_t heads, int32_t D, float eps);
    void (*head_norm_bwd)(void *ctx, float *dx, int64_t stride, float *dw, const float *x0,
                          const float *w, const float *rstd, int64_t N, int32_t heads, int32_t D);

    /* rotate halves of heads in place: x (N, heads, D), row stride `stride` floats; table
     * (positions, D/2, 2) of cos, sin (dev); pos (N) host. dir -1 = transpose (backward) */
    void (*rope)(void *ctx, float *x, int64_t stride, const float *table, const int32_t *pos,
                 int64_t N, int32_t heads, int32_t D, int dir);

    /* y (M,C) = x[rows]; x[rows] += y (rows distinct). rows: host */
    void (*gather)(void *ctx, float *y, const float *x, const int64_t *rows, int64_t M, int64_t C);
    void (*scatter_add)(void *ctx, float *x, const float *y, const int64_t *rows, int64_t M,
                        int64_t C);

    /* qkv (N, (H+2K)*D) = q | k | v per row. out (N, H*D); lse (N, H) or NULL (needed by backward).
     * With pages the keys come from kcache/vcache, stored before by kv_store: kv_bytes a page in
     * each, in an order that is the backend's own. In the half types scaled queries, keys, values and
     * probabilities are rounded to bf16 wherever keys come from. The result has the same bits with
     * pages and without; a key that a row does not see never touches it, be it NaN. */
    size_t (*kv_bytes)(void *ctx, const struct vl_attn *a);
    void (*kv_store)(void *ctx, void *kcache, void *vcache, const float *qkv,
                     const struct vl_seq *seq, int64_t nseq, const struct vl_attn *a);
    void (*kv_copy)(void *ctx, void *cache, int32_t dst_page, int32_t src_page,
                    const struct vl_attn *a);
    void (*attention)(void *ctx, float *out, float *lse, const float *qkv, const void *kcache,
                      const void *vcache, const struct vl_seq *seq, int64_t nseq,
                      const struct vl_attn *a);
    /* unpaged only: dqkv (N, (H+2K)*D) = gradient, from dout, out, lse */
    void (*attention_bwd)(void *ctx, float *dqkv, const float *dout, const float *out,
                          const float *lse, const float *qkv, const struct vl_seq *seq,
                          int64_t nseq, const struct vl_attn *a);

    /* Final projection with log-softmax, in vocabulary chunks; z = x W^T * inv_temp (fp32).
     * head_logp: logp, entropy, lse, sum_pi2 (M; host; NULL allowed but for logp) of target (host).
     * head_bwd: dx (M,C) = and dW (V,C) = (add: +=) of sum_i dlogp_i*logp_i + dent_i*entropy_i
     * (dlogp, dent: host; dent may be NULL); dW as linear_dw's, runs being of the M rows. more (NULL: none): log-probs, and the terms dlogp*logp,
     * of further ids. head_logits: z (M,V) to host memory. head_topk: the K (<= V) likeliest ids and
     * their log-probs (M,K; host), in that order, ties to the lower id, with head_logp's bits; and logp (M; NULL: not) of target.
     * head_sample: for each row draws id by inverse CDF in id order at uniform u[i] (temperature 0:
     * argmax, lowest id on ties) from the logits with the row's edits made, edit[edits[i] ..
     * edits[i+1]) (host, ids ascending and distinct; both may be NULL). logp[i] is of the logits
     * without edits, over the full vocabulary, with the bits head_logp gives; logp_kept[i] (may be
     * NULL) is over the kept set: ids that pass min_p, of those the top_k, of those the smallest set
     * that reaches top_p, ties to the lower id. inv_temp is (float)(1/temperature). A row with a
     * non-finite logit, or with all ids banned, sets id -1 and NaN. u may be NULL when greedy. */
    void (*head_logp)(void *ctx, float *logp, float *entropy, float *lse, float *sum_pi2,
                      const float *x, const struct vl_weight *w, const int32_t *target,
                      const struct vl_more *more, float inv_temp, int64_t M);
    void (*head_bwd)(void *ctx, float *dx, float *dw, const float *x, const struct vl_weight *w,
                     const int32_t *target, const float *lse, const float *entropy,
                     const float *dlogp, const float *dent, const struct vl_more *more,
                     const struct vl_runs *runs, float inv_temp, int64_t M, int add);
    void (*head_topk)(void *ctx, int32_t *id, float *top, float *logp, const float *x,
                      const struct vl_weight *w, const int32_t *target, float inv_temp, int64_t K,
                      int64_t M);
    void (*head_logits)(void *ctx, float *z, const float *x, const struct vl_weight *w,
                        float inv_temp, int64_t M);
    void (*head_sample)(void *ctx, int32_t *id, float *logp, float *logp_kept, const float *x,
                        const struct vl_weight *w, const double *u, const struct vl_sampling *s,
                        const struct vl_edit *edit, const int64_t *edits, int64_t M);

    /* optimizer. sumsq: sum of squares in double, fixed blocks and order; NaN/inf pass through. */
    double (*sumsq)(void *ctx, const float *x, int64_t n);
    /* *changed += how many stored values differ afterwards. vmax (n) or NULL: the largest v so far,
     * which takes v's place (amsgrad). b (n) or NULL: the momentum buffer, needed with momentum.
     * w or NULL: its rows from `row` on, which p is, are packed in the same pass; row is a multiple of
     * VL_BLOCK_ROWS, so are p's rows but for w's last. */
    void (*adamw)(void *ctx, float *p, float *m, float *v, float *vmax, const float *g, int64_t n,
                  const struct vl_adamw *o, struct vl_weight *w, int64_t row, int64_t *changed);
    void (*sgd)(void *ctx, float *p, float *b, const float *g, int64_t n, const struct vl_sgd *o,
                struct vl_weight *w, int64_t row, int64_t *changed);
};

/* bf16 or amx, whichever is faster there. */
static inline enum vl_compute vl_compute_half(const struct vl_backend *be)
{
    return be->best == VL_COMPUTE_F32 ? VL_COMPUTE_BF16 : be->best;
}

/* The built-in CPU backend. isa: NULL or "auto", "amx", "avx512bf16", "avx512", "avx2", "scalar" (C),
 * "plain" (C without the fma instruction: slow); VL_ISA in the environment overrides auto. threads
 * 0: the affinity mask and cgroup divided by local_ranks, or OMP_NUM_THREADS. VL_E_UNAVAIL when the
 * CPU lacks the instruction set. Operations of one backend are called by one thread at a time. */
int vl_backend_cpu(struct vl_backend **be, const char *isa, int threads, int local_ranks,
                   struct vl_err *e) VL_MUST_CHECK;

/* device "auto" | "cpu" | "cuda[:n]": auto falls back to cpu and says so with say(); an explicit
 * cuda without libverl_cuda.so is VL_E_UNAVAIL. */
int vl_backend_open(struct vl_backend **be, const char *device, int threads, int local_ranks,
                    void (*say)(void *arg, const char *line), void *arg,
                    struct vl_err *e) VL_MUST_CHECK;

#endif
