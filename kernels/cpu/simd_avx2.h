/* simd_avx2.h - the 16 lanes as two AVX registers. Operations as in simd_scalar.h. */
#ifndef VL_CPU_SIMD_AVX2_H
#define VL_CPU_SIMD_AVX2_H

#include <immintrin.h>

typedef struct {
    __m256 a, b; /* lanes 0..7, 8..15 */
} vf;

#define F                     __m256
#define I                     __m256i
#define FM_FN                 VL_INL
#define FM(name)              y_##name
#define FM_SET(c)             _mm256_set1_ps(c)
#define FM_ISET(c)            _mm256_set1_epi32(c)
#define FM_FMA(a, b, c)       _mm256_fmadd_ps(a, b, c)
#define FM_ADD(a, b)          _mm256_add_ps(a, b)
#define FM_SUB(a, b)          _mm256_sub_ps(a, b)
#define FM_MUL(a, b)          _mm256_mul_ps(a, b)
#define FM_DIV(a, b)          _mm256_div_ps(a, b)
#define FM_SEL_LT(a, b, x, y) _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ))
#define FM_SEL_EQ(a, b, x, y) _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_EQ_OQ))
#define FM_BITS(a)            _mm256_castps_si256(a)
#define FM_FLOAT(i)           _mm256_castsi256_ps(i)
#define FM_CVT(i)             _mm256_cvtepi32_ps(i)
#define FM_IADD(a, b)         _mm256_add_epi32(a, b)
#define FM_ISUB(a, b)         _mm256_sub_epi32(a, b)
#define FM_ISHL(a, n)         _mm256_slli_epi32(a, n)
#define FM_ISAR(a, n)         _mm256_srai_epi32(a, n)
#define FM_IAND(a, b)         _mm256_and_si256(a, b)
#define FM_IANDNOT(a, b)      _mm256_andnot_si256(a, b)
#define FM_IOR(a, b)          _mm256_or_si256(a, b)
#include "libverl/base/fmath_body.h"
#include "libverl/base/fmath_undef.h"

VL_INL vf v_exp(vf a)
{
    return (vf){ y_exp(a.a), y_exp(a.b) };
}
VL_INL vf v_log(vf a)
{
    return (vf){ y_log(a.a), y_log(a.b) };
}
VL_INL vf v_tanh(vf a)
{
    return (vf){ y_tanh(a.a), y_tanh(a.b) };
}
VL_INL vf v_sigmoid(vf a)
{
    return (vf){ y_sigmoid(a.a), y_sigmoid(a.b) };
}
VL_INL vf v_silu(vf a)
{
    return (vf){ y_silu(a.a), y_silu(a.b) };
}

/* all ones in lanes i < n of eight */
VL_INL __m256i y_mask(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
VL_INL vf v_set1(float x)
{
    return (vf){ _mm256_set1_ps(x), _mm256_set1_ps(x) };
}
VL_INL vf v_load(const float *p)
{
    return (vf){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) };
}
VL_INL void v_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a.a);
    _mm256_storeu_ps(p + 8, a.b);
}
VL_INL __m256 y_load_bf16(const uint16_t *p)
{
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));

    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}
VL_INL vf v_load_bf16(const uint16_t *p)
{
    return (vf){ y_load_bf16(p), y_load_bf16(p + 8) };
}
VL_INL vf v_load_i8(const int8_t *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)p);

    return (vf){ _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
                 _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))) };
}
/* to whole numbers of eight bits, nearest even; what is above 127 becomes 127 */
VL_INL void v_store_i8(int8_t *p, vf a)
{
    __m256i w = _mm256_packs_epi32(_mm256_cvtps_epi32(a.a), _mm256_cvtps_epi32(a.b));

    w = _mm256_permute4x64_epi64(w, 0xd8);
    _mm_storeu_si128((__m128i *)p,
                     _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}
/* 32 whole numbers of 16 bits, or 16 of 32 */
typedef struct {
    __m256i a, b;
} vw;

VL_INL vw w_load_i8(const int8_t *p)
{
    return (vw){ _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(p + 16))) };
}
/* four numbers of eight bits, eight times */
VL_INL vw w_set4(const int8_t *p)
{
    __m256i quads;
    int x;

    memcpy(&x, p, sizeof x);
    quads = _mm256_broadcastq_epi64(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(x)));
    return (vw){ quads, quads };
}
/* c and the sums of neighbours of a b */
VL_INL vw w_dot(vw a, vw b, vw c)
{
    return (vw){ _mm256_add_epi32(c.a, _mm256_madd_epi16(a.a, b.a)),
                 _mm256_add_epi32(c.b, _mm256_madd_epi16(a.b, b.b)) };
}
VL_INL void w_store(int32_t *p, vw a)
{
    _mm256_storeu_si256((__m256i *)p, a.a);
    _mm256_storeu_si256((__m256i *)(p + 8), a.b);
}
VL_INL __m256i y_pairs(__m256 lo, __m256 hi)
{
    return _mm256_or_si256(_mm256_srli_epi32(_mm256_castps_si256(lo), 16), _mm256_castps_si256(hi));
}
/* 16 pairs of bf16, low half first, of floats whose low 16 bits are zero */
VL_INL void v_store_pairs(uint32_t *p, vf lo, vf hi)
{
    _mm256_storeu_si256((__m256i *)p, y_pairs(lo.a, hi.a));
    _mm256_storeu_si256((__m256i *)(p + 8), y_pairs(lo.b, hi.b));
}
VL_INL vf v_load_part(const float *p, int n)
{
    vf r = { _mm256_maskload_ps(p, y_mask(n)), _mm256_setzero_ps() };

    if (n > 8)
        r.b = _mm256_maskload_ps(p + 8, y_mask(n - 8));
    return r;
}
VL_INL void v_store_part(float *p, vf a, int n)
{
    _mm256_maskstore_ps(p, y_mask(n), a.a);
    if (n > 8)
        _mm256_maskstore_ps(p + 8, y_mask(n - 8), a.b);
}
VL_INL vf v_keep_n(vf a, int n, float fill)
{
    __m256 f = _mm256_set1_ps(fill);

    return (vf){ _mm256_blendv_ps(f, a.a, _mm256_castsi256_ps(y_mask(n))),
                 _mm256_blendv_ps(f, a.b, _mm256_castsi256_ps(y_mask(n - 8))) };
}
VL_INL vf v_from_n(vf a, int n, float fill)
{
    __m256 f = _mm256_set1_ps(fill);

    return (vf){ _mm256_blendv_ps(a.a, f, _mm256_castsi256_ps(y_mask(n))),
                 _mm256_blendv_ps(a.b, f, _mm256_castsi256_ps(y_mask(n - 8))) };
}
VL_INL vf v_add(vf a, vf b)
{
    return (vf){ _mm256_add_ps(a.a, b.a), _mm256_add_ps(a.b, b.b) };
}
VL_INL vf v_sub(vf a, vf b)
{
    return (vf){ _mm256_sub_ps(a.a, b.a), _mm256_sub_ps(a.b, b.b) };
}
VL_INL vf v_mul(vf a, vf b)
{
    return (vf){ _mm256_mul_ps(a.a, b.a), _mm256_mul_ps(a.b, b.b) };
}
VL_INL vf v_div(vf a, vf b)
{
    return (vf){ _mm256_div_ps(a.a, b.a), _mm256_div_ps(a.b, b.b) };
}
VL_INL vf v_sqrt(vf a)
{
    return (vf){ _mm256_sqrt_ps(a.a), _mm256_sqrt_ps(a.b) };
}
VL_INL vf v_fma(vf a, vf b, vf c)
{
    return (vf){ _mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b) };
}
VL_INL vf v_max(vf a, vf b)
{
    return (vf){ _mm256_max_ps(a.a, b.a), _mm256_max_ps(a.b, b.b) };
}
VL_INL float v_sum(vf a)
{
    __m256 s = _mm256_add_ps(a.a, a.b);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));

    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
VL_INL float v_hmax(vf a)
{
    __m256 s = _mm256_max_ps(a.a, a.b);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));

    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
VL_INL int y_differ(__m256 a, __m256 b)
{
    __m256i same = _mm256_cmpeq_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b));

    return 8 - __builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(same)));
}
VL_INL int v_differ(vf a, vf b)
{
    return y_differ(a.a, b.a) + y_differ(a.b, b.b);
}

typedef struct {
    __m256d v[4];
} vd;

VL_INL vd vd_zero(void)
{
    __m256d z = _mm256_setzero_pd();

    return (vd){ { z, z, z, z } };
}
VL_INL __m256d vd_sq1(__m256d s, __m128 x)
{
    __m256d d = _mm256_cvtps_pd(x);

    return _mm256_fmadd_pd(d, d, s);
}
VL_INL vd vd_add_sq(vd s, vf x)
{
    s.v[0] = vd_sq1(s.v[0], _mm256_castps256_ps128(x.a));
    s.v[1] = vd_sq1(s.v[1], _mm256_extractf128_ps(x.a, 1));
    s.v[2] = vd_sq1(s.v[2], _mm256_castps256_ps128(x.b));
    s.v[3] = vd_sq1(s.v[3], _mm256_extractf128_ps(x.b, 1));
    return s;
}
VL_INL double vd_sum(vd s)
{
    __m256d q = _mm256_add_pd(_mm256_add_pd(s.v[0], s.v[2]), _mm256_add_pd(s.v[1], s.v[3]));
    __m128d d = _mm_add_pd(_mm256_castpd256_pd128(q), _mm256_extractf128_pd(q, 1));

    return _mm_cvtsd_f64(_mm_add_sd(d, _mm_unpackhi_pd(d, d)));
}

#endif
