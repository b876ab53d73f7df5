/* simd.h - a vector of 16 virtual fp32 lanes on every instruction set.
 *
 * The includer defines VL_SIMD to 16 (AVX-512: one register), 8 (AVX2: two) or 0 (plain C: an array)
 * and may include it once per translation unit. Kernels are written once over `vf`; each operation
 * is lane by lane one IEEE operation, and sums over lanes use one tree, so that all instruction sets
 * give the same bits. max follows the x86 rule everywhere: the second operand when unordered. */
#ifndef VL_CPU_SIMD_H
#define VL_CPU_SIMD_H

#include "libverl/base/fmath.h"

#define VL_LANES 16
#define VL_INL   static inline __attribute__((always_inline))

#if defined(__clang__)
#    define VL_UNROLL _Pragma("unroll")
#else
#    define VL_UNROLL _Pragma("GCC unroll 16")
#endif
#define VL_UNROLLED(i, n) VL_UNROLL for (int i = 0; i < (n); i++) /* n constant */

#if VL_SIMD == 16
#    include "kernels/cpu/simd_avx512.h"
#elif VL_SIMD == 8
#    include "kernels/cpu/simd_avx2.h"
#else
#    include "kernels/cpu/simd_scalar.h"
#endif

/* lanes >= n become `fill` */
VL_INL vf v_keep(vf a, int n, float fill)
{
    return n >= VL_LANES ? a : v_keep_n(a, n, fill);
}

/* lanes < n become `fill` */
VL_INL vf v_from(vf a, int n, float fill)
{
    return v_from_n(a, n < VL_LANES ? n : VL_LANES, fill);
}

/* v = elements i .. of a row, `fill` outside [lo, hi). */
VL_INL vf v_inside(vf v, int64_t i, int64_t lo, int64_t hi, float fill)
{
    if (i < lo)
        v = v_from(v, (int)(lo - i), fill);
    return i + VL_LANES > hi ? v_keep(v, (int)(hi - i), fill) : v;
}

/* exp of lanes inside [lo, hi), 0 outside: not by exp(-inf), since underflow takes 150 cycles. */
VL_INL vf v_exp_inside(vf v, int64_t i, int64_t lo, int64_t hi)
{
    return v_inside(v_exp(v_inside(v, i, lo, hi, 0)), i, lo, hi, 0);
}

/* n >= 16 loads all lanes; missing lanes are 0 */
VL_INL vf v_load_n(const float *p, int64_t n)
{
    return n >= VL_LANES ? v_load(p) : v_load_part(p, (int)n);
}

VL_INL void v_store_n(float *p, vf a, int64_t n)
{
    if (n >= VL_LANES)
        v_store(p, a);
    else
        v_store_part(p, a, (int)n);
}

#endif
