/* fmath.h - exp, log, tanh, ... with one definition of their bits on every machine and width.
 *
 * libm's versions differ between releases and processors, so they never feed a value that reaches a
 * file (log-probs, losses, weights). These are built from correctly rounded operations and fma
 * alone; kernels/cpu/simd.h gives the same fp32 functions for vectors, equal bit for bit.
 *
 *   fp32:   vl_expf vl_logf vl_tanhf vl_sigmoidf vl_siluf; errors and edge cases in fmath_body.h
 *   double: vl_exp vl_log vl_pow vl_sin vl_cos vl_sincos; fmath.c */
#ifndef VL_FMATH_H
#define VL_FMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline int32_t vl_float_bits(float x)
{
    int32_t i;

    memcpy(&i, &x, 4);
    return i;
}

static inline float vl_bits_float(int32_t i)
{
    float x;

    memcpy(&x, &i, 4);
    return x;
}

#define F                     float
#define I                     int32_t
#define FM_FN                 static inline
#define FM(name)              vl_##name##f
#define FM_SET(c)             (c)
#define FM_ISET(c)            (c)
#define FM_FMA(a, b, c)       fmaf(a, b, c)
#define FM_ADD(a, b)          ((a) + (b))
#define FM_SUB(a, b)          ((a) - (b))
#define FM_MUL(a, b)          ((a) * (b))
#define FM_DIV(a, b)          ((a) / (b))
#define FM_SEL_LT(a, b, x, y) ((a) < (b) ? (x) : (y))
#define FM_SEL_EQ(a, b, x, y) ((a) == (b) ? (x) : (y))
#define FM_BITS(a)            vl_float_bits(a)
#define FM_FLOAT(i)           vl_bits_float(i)
#define FM_CVT(i)             ((float)(i))
#define FM_IADD(a, b)         ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define FM_ISUB(a, b)         ((int32_t)((uint32_t)(a) - (uint32_t)(b)))
#define FM_ISHL(a, n)         ((int32_t)((uint32_t)(a) << (n)))
#define FM_ISAR(a, n)         ((a) >> (n)) /* arithmetic on every compiler we build with */
#define FM_IAND(a, b)         ((a) & (b))
#define FM_IANDNOT(a, b)      (~(a) & (b))
#define FM_IOR(a, b)          ((a) | (b))
#include "libverl/base/fmath_body.h"
#include "libverl/base/fmath_undef.h"

/* Double precision, for tables, schedules and sums over a batch. Error about 1 ulp.
 * vl_exp: below -745.2 gives 0, above 709.8 inf. vl_log: 0 gives -inf, negative NaN.
 * vl_pow: x > 0 or x = 0; x < 0 only with integral y. vl_sin, vl_cos: |x| < 2^30, else NaN (no table
 * or schedule goes there, and a wrong value would be silent). */
double vl_exp(double x);
double vl_log(double x);
double vl_pow(double x, double y);
double vl_sin(double x);
double vl_cos(double x);

#endif
