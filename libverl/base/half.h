/* half.h - bfloat16 and IEEE half to float and back, round to nearest even; NaN stays NaN.
 *
 * These are the conversions of stored files; the compute kernels have their own wide forms. */
#ifndef VL_HALF_H
#define VL_HALF_H

#include <stdint.h>
#include <string.h>

static inline float vl_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t vl_f32_to_bf16(float f)
{
    uint32_t u;

    memcpy(&u, &f, 4);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40); /* quiet, payload's top bits kept */
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float vl_f16_to_f32(uint16_t h)
{
    uint32_t a = h & 0x7fff, u = (a << 13) + (112u << 23), small;
    float f = (float)(int32_t)a * 0x1p-24f; /* zero or subnormal: exact */

    /* masks, no branches: loops over it become vector code */
    uint32_t is_small = (uint32_t)((int32_t)(a - 0x400) >> 31),
             is_finite = (uint32_t)((int32_t)(a - 0x7c00) >> 31);

    memcpy(&small, &f, 4);
    u = (small & is_small) | (u & ~is_small) | (0x7f800000u & ~is_finite) |
        (uint32_t)(h & 0x8000) << 16;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t vl_f32_to_f16(float f)
{
    uint32_t u, a;
    uint16_t sign;

    memcpy(&u, &f, 4);
    sign = (uint16_t)(u >> 16 & 0x8000);
    a = u & 0x7fffffff;
    if (a > 0x7f800000)
        return sign | 0x7e00;
    if (a >= 0x477ff000) /* 65520 and more round to infinity */
        return sign | 0x7c00;
    if (a < 0x38800000) { /* below 2^-14: a multiple of 2^-24, rounded by the adder */
        float x;

        memcpy(&x, &a, 4);
        x += 0.5f; /* ulp of [0.5, 1) is 2^-24 */
        memcpy(&a, &x, 4);
        return (uint16_t)(sign | (a - 0x3f000000));
    }
    a += 0xfff + (a >> 13 & 1);
    return (uint16_t)(sign | ((a - 0x38000000) >> 13));
}

#endif
