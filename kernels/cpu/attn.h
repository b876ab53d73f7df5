/* attn.h - small helpers of attention's forward and backward. */
#ifndef VL_CPU_ATTN_H
#define VL_CPU_ATTN_H

#include "libverl/engine/backend.h"

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
