/* cpu.h - what the files of the CPU backend share: the context, threads, scratch, packed weights.
 *
 * Operations run one at a time on a context (the scratch is shared). Work is cut into tasks whose
 * outputs are disjoint, so that which thread takes which task cannot change a bit; hence tasks are
 * taken by whoever is free (crew.h), which does not stall when another process takes a core. */
#ifndef VL_CPU_H
#define VL_CPU_H

#include "libverl/engine/backend.h"
#include "kernels/cpu/kern.h"
#include "kernels/cpu/crew.h"

enum {
    VL_SCRATCH_X,
    VL_SCRATCH_DIGITS,
    VL_SCRATCH_A,
    VL_SCRATCH_B,
    VL_SCRATCH_THREAD,
    VL_SCRATCH_BLOCKS,
    VL_SCRATCH_PX,
    VL_SCRATCH_AT,
    VL_SCRATCHES
};

struct vl_cpu {
    struct vl_backend be;
    struct vl_kern k;
    int threads;
    struct vl_crew *crew;
    struct chunk *chunk; /* memory.c: the one weights are cut from, bytes of all there were */
    size_t chunks;
    struct {
        void *p;
        size_t bytes;
    } scratch[VL_SCRATCHES];
};

/* Panels of width nr: fw holds W^T for y, bw holds W for dx (VL_FORM_TRAIN only).
 * fp32: fw[p][i][n] = W[p*nr + n][i], bw[p][o][n] = W[o][p*nr + n]; else: vl_cpu_depth of i or o.
 * VL_FORM_INT8: int8_t fw[p][i][n], i up to a whole number of elements of ct, or for AMX in blocks
 * (kern.h, mul_digits), i up to a multiple of 64; and scale (O). */
struct vl_weight {
    int64_t O, I;
    enum vl_compute ct;
    enum vl_form form;
    void *fw, *bw;
    float *scale;
};

/* Rows of a matrix as the products read them: f, or h = pairs of bf16; ld in elements of either. For
 * VL_COMPUTE_AMX rows of h end in zeros up to a whole block. d: rows of h for weights of eight bits, as
 * kern.h's mul_digits takes them, ld bytes a digit. */
struct vl_rows {
    const float *f;
    const uint32_t *h;
    const int8_t *d;
    int64_t ld;
};

/* Elements of a reduction over n: fp32, or pairs of bf16, for AMX in whole blocks. */
static inline int64_t vl_cpu_depth(enum vl_compute ct, int64_t n)
{
    return ct == VL_COMPUTE_F32    ? n
           : ct == VL_COMPUTE_BF16 ? (n + 1) / 2
                                   : (n + 2 * VL_AMX_PAIRS - 1) / (2 * VL_AMX_PAIRS) * VL_AMX_PAIRS;
}

/* One row of n elements as pairs, vl_cpu_depth(ct, n) of them. */
void vl_cpu_to_pairs(const struct vl_cpu *c, uint32_t *h, const float *x, int64_t n,
                     enum vl_compute ct);

/* vl_crew_run; by the caller alone when `work` elementary steps are not worth waking threads. */
void vl_cpu_run(struct vl_cpu *c, double work, int64_t tasks, vl_task_fn fn, void *arg);
/* At least `bytes` of scratch `which`, 64-byte aligned, contents undefined; ends the process with
 * status 71 when memory is gone (operations cannot fail). */
void *vl_cpu_scratch(struct vl_cpu *c, int which, size_t bytes);
/* n floats for each thread; thread t uses p + t * stride (returned in *stride). */
float *vl_cpu_thread_scratch(struct vl_cpu *c, size_t n, size_t *stride);
void *vl_cpu_alloc(size_t bytes); /* 64-byte aligned, zeroed, huge pages when large; or NULL */
void vl_cpu_free(void *p);
/* The same for the weights of a context, of which there are many. */
void *vl_cpu_piece(struct vl_cpu *c, size_t bytes);
void vl_cpu_piece_free(struct vl_cpu *c, void *p);
int vl_cpu_count(int local_ranks); /* threads by affinity mask, cgroup and OMP_NUM_THREADS */

/* An operand's rows; from row m0 on; and what is behind the n elements of one of a half type. */
static inline struct vl_rows vl_cpu_rows_of(const void *x, int64_t I, enum vl_compute ct)
{
    return (struct vl_rows){ .f = ct == VL_COMPUTE_F32 ? x : NULL,
                             .h = ct == VL_COMPUTE_F32 ? NULL : x,
                             .ld = vl_cpu_depth(ct, I) };
}
static inline void vl_cpu_pad(uint16_t *row, int64_t n, enum vl_compute ct)
{
    for (int64_t i = n; i < 2 * vl_cpu_depth(ct, n); i++)
        row[i] = 0;
}
/* x (N, I) as rows for w: itself, or converted into VL_SCRATCH_X by all threads; and an operand. */
struct vl_rows vl_cpu_rows(struct vl_cpu *c, const float *x, int64_t N, const struct vl_weight *w);
struct vl_rows vl_cpu_rows_for(struct vl_cpu *c, const void *x, int64_t N,
                               const struct vl_weight *w);
/* One row tile by one panel, by the calling thread: y[m][n] for panel p of fw (n < nr), or of bw.
 * y points at the first output of the panel. next: the panel this thread will
 * probably take next (past the end: none), fetched meanwhile. */
void vl_cpu_tile_y(const struct vl_cpu *c, float *y, int64_t ldy, struct vl_rows x, int64_t m0,
                   int64_t M, const struct vl_weight *w, int64_t p, int64_t next);
/* dx (M, I) panel p, from dy columns o0 .. o0+n (o0 even); add = 0 starts from zero. */
void vl_cpu_tile_dx(const struct vl_cpu *c, float *dx, int64_t ldx, struct vl_rows dy, int64_t m0,
                    int64_t M, const struct vl_weight *w, int64_t p, int64_t next, int64_t o0,
                    int64_t n, int add);
int64_t vl_cpu_panels(const struct vl_cpu *c, int64_t n);
/* Packs rows row .. row + n of w from x (n, I), by the calling thread; row is a multiple of
 * VL_PACK_ROWS, so is n but for the last rows. */
void vl_cpu_pack_rows(const struct vl_cpu *c, struct vl_weight *w, const float *x, int64_t row,
                      int64_t n);
#define VL_PACK_ROWS 16
/* Rows of a task of N x panels tiles, K elements deep. */
int64_t vl_cpu_row_block(const struct vl_cpu *c, int64_t N, int64_t K, int64_t panels,
                         enum vl_compute ct);
/* y (M, n) = [add ? y : 0] + rows m0.. of x from element k times d elements of a panel. next: see
 * kern.h. */
void vl_cpu_mul_block(const struct vl_cpu *c, float *y, int64_t ldy, struct vl_rows x, int64_t m0,
                      int64_t k, int64_t M, const void *panel, int64_t n, int64_t d,
                      enum vl_compute ct, int add, const void *next);

/* Whether products with such weights are of whole numbers: rows then come in digits. */
static inline int vl_int8_whole(enum vl_form form, enum vl_compute ct)
{
    return form == VL_FORM_INT8 && ct == VL_COMPUTE_AMX;
}

/* VL_FORM_INT8 (int8.c): bytes of q; n <= VL_PACK_ROWS rows of vl_cpu_pack_rows; rows of h in digits,
 * in VL_SCRATCH_DIGITS, and their bytes; vl_cpu_tile_y. */
size_t vl_int8_bytes(const struct vl_cpu *c, int64_t O, int64_t I, enum vl_compute ct);
void vl_int8_pack(const struct vl_cpu *c, struct vl_weight *w, const float *x, int64_t row,
                  int64_t n);
int64_t vl_int8_digit_bytes(int64_t N, int64_t I);
struct vl_rows vl_int8_digits(struct vl_cpu *c, struct vl_rows x, int64_t N, int64_t I);
void vl_int8_tile_y(const struct vl_cpu *c, float *y, int64_t ldy, struct vl_rows x, int64_t m0,
                    int64_t M, const struct vl_weight *w, int64_t p, int64_t next);

/* dW in two steps: an operand's rows r0 .. r0+N as the product reads them, made once; then dW (O, I) =
 * (add: +=) dy^T x for any number of dy (N, ldy) over these rows, fp32 or bf16. Scratch; valid until the
 * next x. r0 is 0 or what vl_cpu_dw_end gave. */
struct vl_dw {
    enum vl_compute ct;
    void *px;                        /* panels, of rows or pairs of them */
    const struct vl_dw_block *block; /* half types */
    int64_t I, pairs, blocks;        /* fp32: pairs are rows */
};
void vl_cpu_dw_x(struct vl_cpu *c, struct vl_dw *d, const void *x, int64_t r0, int64_t N, int64_t I,
                 enum vl_compute ct, const struct vl_runs *runs);
void vl_cpu_dw_add(struct vl_cpu *c, const struct vl_dw *d, float *dw, const void *dy, int64_t ldy,
                   int64_t O, int add);
/* Where a stretch of at most `most` (at least 32) of the N rows from r0 on may end without
 * showing. */
int64_t vl_cpu_dw_end(int64_t r0, int64_t most, int64_t N, const struct vl_runs *runs);

/* the table's entries, by file */
int vl_cpu_weight_new(void *ctx, struct vl_weight **w, int64_t O, int64_t I, enum vl_compute ct,
                      enum vl_form form, struct vl_err *e);
void vl_cpu_weight_set(void *ctx, struct vl_weight *w, const float *dev);
void vl_cpu_weight_rows(void *ctx, struct vl_weight *w, const float *x, int64_t row, int64_t n);
void vl_cpu_weight_free(void *ctx, struct vl_weight *w);
size_t vl_cpu_weight_bytes(void *ctx, int64_t O, int64_t I, enum vl_compute ct, enum vl_form form);
size_t vl_cpu_scratch_bytes(void *ctx, const struct vl_shape *s, const struct vl_extent *x);
size_t vl_cpu_operand_bytes(void *ctx, int64_t I, enum vl_compute ct);
const void *vl_cpu_operand(void *ctx, void *o, const float *x, int64_t N, int64_t I,
                           enum vl_compute ct);
void vl_cpu_linear(void *ctx, float *y, const void *x, const struct vl_weight *w, const float *bias,
                   const float *add, int64_t N);
void vl_cpu_linear_dx(void *ctx, float *dx, const void *dy, const struct vl_weight *w, int64_t N);
void vl_cpu_linear_dw(void *ctx, float *dw, const void *dy, const void *x, int64_t N, int64_t O,
                      int64_t I, enum vl_compute ct, const struct vl_runs *runs, int add);
void vl_cpu_linear_db(void *ctx, float *db, const void *dy, int64_t N, int64_t O,
                      enum vl_compute ct);
void vl_cpu_gate_up(void *ctx, void *h, float *gu, const void *x, const struct vl_weight *w,
                    const float *bias, int64_t N);
void vl_cpu_gate_up_bwd(void *ctx, void *dgu, void *h, const void *dy, const struct vl_weight *down,
                        const float *gu, int64_t N);

void vl_cpu_embed(void *ctx, float *x, const float *E, const int32_t *ids, int64_t N, int64_t C);
void vl_cpu_embed_dw(void *ctx, float *dE, const float *dx, const int32_t *ids, int64_t N,
                     int64_t C);
void vl_cpu_rmsnorm(void *ctx, void *y, float *rstd, const float *x, const float *w, int64_t N,
                    int64_t C, float eps, enum vl_compute ct);
void vl_cpu_rmsnorm_bwd(void *ctx, float *dx, float *dw, void *y, const float *dy, const float *x,
                        const float *w, const float *rstd, int64_t N, int64_t C, int accumulate,
                        enum vl_compute ct);
void vl_cpu_head_norm(void *ctx, float *x, int64_t stride, float *x0, float *rstd, const float *w,
                      int64_t N, int32_t heads, int32_t D, float eps);
void vl_cpu_head_norm_bwd(void *ctx, float *dx, int64_t stride, float *dw, const float *x0,
                          const float *w, const float *rstd, int64_t N, int32_t heads, int32_t D);
void vl_cpu_rope(void *ctx, float *x, int64_t stride, const float *table, const int32_t *pos,
                 int64_t N, int32_t heads, int32_t D, int dir);
void vl_cpu_gather(void *ctx, float *y, const float *x, const int64_t *rows, int64_t M, int64_t C);
void vl_cpu_scatter_add(void *ctx, float *x, const float *y, const int64_t *rows, int64_t M,
                        int64_t C);

size_t vl_cpu_kv_bytes(void *ctx, const struct vl_attn *a);
void vl_cpu_kv_store(void *ctx, void *kcache, void *vcache, const float *qkv,
                     const struct vl_seq *seq, int64_t nseq, const struct vl_attn *a);
void vl_cpu_kv_copy(void *ctx, void *cache, int32_t dst_page, int32_t src_page,
                    const struct vl_attn *a);
void vl_cpu_attention(void *ctx, float *out, float *lse, const float *qkv, const void *kcache,
                      const void *vcache, const struct vl_seq *seq, int64_t nseq,
                      const struct vl_attn *a);
void vl_cpu_attention_bwd(void *ctx, float *dqkv, const float *dout, const float *out,
                          const float *lse, const float *qkv, const struct vl_seq *seq,
                          int64_t nseq, const struct vl_attn *a);

void vl_cpu_head_logp(void *ctx, float *logp, float *entropy, float *lse, float *sum_pi2,
                      const float *x, const struct vl_weight *w, const int32_t *target,
                      const struct vl_more *more, float inv_temp, int64_t M);
void vl_cpu_head_topk(void *ctx, int32_t *id, float *top, float *logp, const float *x,
                      const struct vl_weight *w, const int32_t *target, float inv_temp, int64_t K,
                      int64_t M);
void vl_cpu_head_bwd(void *ctx, float *dx, float *dw, const float *x, const struct vl_weight *w,
                     const int32_t *target, const float *lse, const float *entropy,
                     const float *dlogp, const float *dent, const struct vl_more *more,
                     const struct vl_runs *runs, float inv_temp, int64_t M, int add);
void vl_cpu_head_logits(void *ctx, float *z, const float *x, const struct vl_weight *w,
                        float inv_temp, int64_t M);
void vl_cpu_head_sample(void *ctx, int32_t *id, float *logp, float *logp_kept, const float *x,
                        const struct vl_weight *w, const double *u, const struct vl_sampling *s,
                        const struct vl_edit *edit, const int64_t *edits, int64_t M);

double vl_cpu_sumsq(void *ctx, const float *x, int64_t n);
void vl_cpu_adamw(void *ctx, float *p, float *m, float *v, float *vmax, const float *g, int64_t n,
                  const struct vl_adamw *o, struct vl_weight *w, int64_t row, int64_t *changed);
void vl_cpu_sgd(void *ctx, float *p, float *b, const float *g, int64_t n, const struct vl_sgd *o,
                struct vl_weight *w, int64_t row, int64_t *changed);

#endif
