/* attn.h - what the files of attention share: fp32 is in attention.c and attention_bwd.c, the half
 * types in attention_half.c and attention_half_bwd.c. */
#ifndef VL_CPU_ATTN_H
#define VL_CPU_ATTN_H

#include "kernels/cpu/cpu.h"

static inline int64_t up16(int64_t n)
{
    return (n + 15) & ~(int64_t)15;
}

/* Floats of one row of qkv. */
static inline int64_t row_width(const struct vl_attn *a)
{
    return (int64_t)(a->H + 2 * a->K) * a->D;
}

/* First key visible to position t. */
static inline int64_t key_from(const struct vl_attn *a, int64_t t)
{
    return a->window > 0 && t + 1 > a->window ? t + 1 - a->window : 0;
}

/* Query rows row .. row+rows-1 of a sequence and key/value head: a task. */
struct vl_attn_block {
    int32_t seq, head, row, rows;
};

/* The blocks of all sequences, of about `items` query rows times heads of a group (a quarter of that
 * where scores would not stay in the cache), heads of a sequence together; b NULL: only counts.
 * *most: items of the largest. */
int64_t vl_attn_blocks(struct vl_attn_block *b, const struct vl_seq *seq, int64_t nseq,
                       const struct vl_attn *a, int items, int64_t *most);
double vl_attn_work(const struct vl_seq *seq, int64_t nseq, const struct vl_attn *a);

/* ---- half types ---- */

void vl_attn_half(struct vl_cpu *c, float *out, float *lse, const float *qkv, const void *kcache,
                  const void *vcache, const struct vl_seq *seq, int64_t nseq,
                  const struct vl_attn *a);
void vl_attn_half_store(struct vl_cpu *c, void *kcache, void *vcache, const float *qkv,
                        const struct vl_seq *seq, int64_t nseq, const struct vl_attn *a);
void vl_attn_half_bwd(struct vl_cpu *c, float *dqkv, const float *dout, const float *out,
                      const float *lse, const float *qkv, const struct vl_seq *seq, int64_t nseq,
                      const struct vl_attn *a);

/* Head width as it is stored: whole blocks of the products. */
static inline int64_t vl_attn_padded(const struct vl_attn *a)
{
    return (a->D + 31) & ~31;
}

/* ---- fp32 ---- */

/* Columns j0 .. j0+n-1 of dst (D, tp) = transpose of n rows of D floats. */
static inline void transpose(float *dst, int64_t tp, int64_t j0, const float *src, int64_t stride,
                             int64_t n, int32_t D)
{
    for (int64_t j = 0; j < n; j += 16) {
        int64_t m = n - j < 16 ? n - j : 16;

        for (int32_t d = 0; d < D; d++) {
            float *o = dst + d * tp + j0 + j;

            for (int64_t i = 0; i < m; i++)
                o[i] = src[(j + i) * stride + d];
        }
    }
}

/* Columns n .. up16(n)-1 of dst (D, tp) = 0. */
static inline void pad_columns(float *dst, int64_t tp, int64_t n, int32_t D)
{
    for (int32_t d = 0; d < D; d++)
        for (int64_t j = n; j < up16(n); j++)
            dst[d * tp + j] = 0;
}

#endif
