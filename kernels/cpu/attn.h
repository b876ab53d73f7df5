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

/* dst (D, up16(n)) = transpose of n rows of D floats, zero in the padding columns. */
static inline void transpose(float *dst, const float *src, int64_t stride, int64_t n, int32_t D)
{
    int64_t tp = up16(n);

    for (int64_t j = 0; j < n; j += 16) {
        int64_t m = n - j < 16 ? n - j : 16;

        for (int32_t d = 0; d < D; d++) {
            float *o = dst + d * tp + j;

            for (int64_t i = 0; i < m; i++)
                o[i] = src[(j + i) * stride + d];
            for (int64_t i = m; i < 16; i++)
                o[i] = 0;
        }
    }
}

#endif
