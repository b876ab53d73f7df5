/* simd_avx512.h - the 16 lanes as one AVX-512 register. Operations as in simd_scalar.h. */
#ifndef VL_CPU_SIMD_AVX512_H
#define VL_CPU_SIMD_AVX512_H

#include <immintrin.h>

typedef __m512 vf;

VL_INL vf v_set1(float x)
{
    return _mm512_set1_ps(x);
}
VL_INL vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
VL_INL void v_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}
VL_INL vf v_load_bf16(const uint16_t *p)
{
    __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));

    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}
VL_INL vf v_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
/* to whole numbers of eight bits, nearest even; what is above 127 becomes 127 */
VL_INL void v_store_i8(int8_t *p, vf a)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a)));
}
/* 32 whole numbers of 16 bits, or 16 of 32 */
typedef __m512i vw;

VL_INL vw w_load_i8(const int8_t *p)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p));
}
/* four numbers of eight bits, eight times */
VL_INL vw w_set4(const int8_t *p)
{
    int x;

    memcpy(&x, p, sizeof x);
    return _mm512_broadcastq_epi64(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(x)));
}
/* c and the sums of neighbours of a b */
VL_INL vw w_dot(vw a, vw b, vw c)
{
    return _mm512_add_epi32(c, _mm512_madd_epi16(a, b));
}
VL_INL void w_store(int32_t *p, vw a)
{
    _mm512_storeu_si512(p, a);
}
/* 16 pairs of bf16, low half first, of floats whose low 16 bits are zero */
VL_INL void v_store_pairs(uint32_t *p, vf lo, vf hi)
{
    _mm512_storeu_si512(p, _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(lo), 16),
                                           _mm512_castps_si512(hi)));
}
VL_INL vf v_load_part(const float *p, int n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
VL_INL void v_store_part(float *p, vf a, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a);
}
VL_INL vf v_keep_n(vf a, int n, float fill)
{
    return _mm512_mask_blend_ps((__mmask16)((1u << n) - 1), _mm512_set1_ps(fill), a);
}
VL_INL vf v_from_n(vf a, int n, float fill)
{
    return _mm512_mask_blend_ps((__mmask16)((1u << n) - 1), a, _mm512_set1_ps(fill));
}
VL_INL vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
VL_INL vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
VL_INL vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
VL_INL vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
VL_INL vf v_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}
VL_INL vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
VL_INL vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

#define F                     __m512
#define I                     __m512i
#define FM_FN                 VL_INL
#define FM(name)              v_##name
#define FM_SET(c)             _mm512_set1_ps(c)
#define FM_ISET(c)            _mm512_set1_epi32(c)
#define FM_FMA(a, b, c)       _mm512_fmadd_ps(a, b, c)
#define FM_ADD(a, b)          _mm512_add_ps(a, b)
#define FM_SUB(a, b)          _mm512_sub_ps(a, b)
#define FM_MUL(a, b)          _mm512_mul_ps(a, b)
#define FM_DIV(a, b)          _mm512_div_ps(a, b)
#define FM_SEL_LT(a, b, x, y) _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x)
#define FM_SEL_EQ(a, b, x, y) _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), y, x)
#define FM_BITS(a)            _mm512_castps_si512(a)
#define FM_FLOAT(i)           _mm512_castsi512_ps(i)
#define FM_CVT(i)             _mm512_cvtepi32_ps(i)
#define FM_IADD(a, b)         _mm512_add_epi32(a, b)
#define FM_ISUB(a, b)         _mm512_sub_epi32(a, b)
#define FM_ISHL(a, n)         _mm512_slli_epi32(a, n)
#define FM_ISAR(a, n)         _mm512_srai_epi32(a, n)
#define FM_IAND(a, b)         _mm512_and_si512(a, b)
#define FM_IANDNOT(a, b)      _mm512_andnot_si512(a, b)
#define FM_IOR(a, b)          _mm512_or_si512(a, b)
#include "libverl/base/fmath_body.h"
#include "libverl/base/fmath_undef.h"

VL_INL __m256 v_low(vf a)
{
    return _mm512_castps512_ps256(a);
}
VL_INL __m256 v_high(vf a)
{
    return _mm512_extractf32x8_ps(a, 1);
}
VL_INL float v_sum(vf a)
{
    __m256 s = _mm256_add_ps(v_low(a), v_high(a));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));

    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
VL_INL float v_hmax(vf a)
{
    __m256 s = _mm256_max_ps(v_low(a), v_high(a));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));

    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
VL_INL int v_differ(vf a, vf b)
{
    __mmask16 m = _mm512_cmpneq_epi32_mask(_mm512_castps_si512(a), _mm512_castps_si512(b));

    return __builtin_popcount(m);
}

typedef struct {
    __m512d a, b;
} vd;

VL_INL vd vd_zero(void)
{
    return (vd){ _mm512_setzero_pd(), _mm512_setzero_pd() };
}
VL_INL vd vd_add_sq(vd s, vf x)
{
    __m512d l = _mm512_cvtps_pd(v_low(x)), h = _mm512_cvtps_pd(v_high(x));

    s.a = _mm512_fmadd_pd(l, l, s.a);
    s.b = _mm512_fmadd_pd(h, h, s.b);
    return s;
}
VL_INL double vd_sum(vd s)
{
    __m512d a = _mm512_add_pd(s.a, s.b);
    __m256d q = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    __m128d d = _mm_add_pd(_mm256_castpd256_pd128(q), _mm256_extractf128_pd(q, 1));

    return _mm_cvtsd_f64(_mm_add_sd(d, _mm_unpackhi_pd(d, d)));
}

#endif
