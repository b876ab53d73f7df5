/* body_bf16.h - conversion to bf16 as vcvtneps2bf16 does it, whatever MXCSR says; pairs of rows. */

static uint16_t bf16_of(float x)
{
    uint32_t u = (uint32_t)vl_float_bits(x), e = u & 0x7f800000u;

    if (e == 0)
        return (uint16_t)(u >> 16 & 0x8000u);
    if (e == 0x7f800000u && (u & 0x7fffffu))
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* y[i] = bf16_of(x lane i) */
#if VL_SIMD == 16 && defined(VL_DPBF16)
VL_INL void half_store(uint16_t *y, vf x)
{
    _mm256_storeu_si256((__m256i *)y, (__m256i)_mm512_cvtneps_pbh(x));
}
#elif VL_SIMD == 16
VL_INL void half_store(uint16_t *y, vf x)
{
    const __m512i ones = _mm512_set1_epi32(0x7f800000), one = _mm512_set1_epi32(1);
    __m512i u = _mm512_castps_si512(x), e = _mm512_and_si512(u, ones), h = _mm512_srli_epi32(u, 16);
    __m512i r = _mm512_add_epi32(u, _mm512_set1_epi32(0x7fff));

    r = _mm512_srli_epi32(_mm512_add_epi32(r, _mm512_and_si512(h, one)), 16);
    r = _mm512_mask_and_epi32(r, _mm512_cmpeq_epi32_mask(e, _mm512_setzero_si512()), h,
                              _mm512_set1_epi32(0x8000));
    r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), h, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)y, _mm512_cvtepi32_epi16(r));
}
#elif VL_SIMD == 8
VL_INL __m256i half_of(__m256 x)
{
    __m256i u = _mm256_castps_si256(x), h = _mm256_srli_epi32(u, 16);
    __m256i e = _mm256_and_si256(u, _mm256_set1_epi32(0x7f800000));
    __m256i odd = _mm256_and_si256(h, _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i zero = _mm256_and_si256(h, _mm256_set1_epi32(0x8000));
    __m256i nan = _mm256_or_si256(h, _mm256_set1_epi32(0x40));

    r = _mm256_blendv_epi8(_mm256_srli_epi32(r, 16), zero,
                           _mm256_cmpeq_epi32(e, _mm256_setzero_si256()));
    return _mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
VL_INL void half_store(uint16_t *y, vf x)
{
    __m256i r = _mm256_packus_epi32(half_of(x.a), half_of(x.b)); /* quarters a0 b0 a1 b1 */

    _mm256_storeu_si256((__m256i *)y, _mm256_permute4x64_epi64(r, 0xd8));
}
#else
VL_INL void half_store(uint16_t *y, vf x)
{
    for (int i = 0; i < VL_LANES; i++)
        y[i] = bf16_of(x.v[i]);
}
#endif

static void k_to_bf16(uint16_t *y, const float *x, int64_t n)
{
    int64_t i = 0;

#if VL_SIMD == 16 && defined(VL_DPBF16)
    for (; i + 32 <= n; i += 32)
        _mm512_storeu_si512(y + i, (__m512i)_mm512_cvtne2ps_pbh(v_load(x + i + 16), v_load(x + i)));
#endif
    for (; i + 16 <= n; i += 16)
        half_store(y + i, v_load(x + i));
    for (; i < n; i++)
        y[i] = bf16_of(x[i]);
    if (n & 1)
        y[n] = 0;
}

static void k_pair(uint32_t *y, const float *x0, const float *x1, int64_t n)
{
    int64_t i = 0;

#if VL_SIMD == 16 && defined(VL_DPBF16)
    for (; i + 16 <= n; i += 16) {
        __m256i lo = (__m256i)_mm512_cvtneps_pbh(v_load(x0 + i)), hi = _mm256_setzero_si256();

        if (x1)
            hi = (__m256i)_mm512_cvtneps_pbh(v_load(x1 + i));
        _mm512_storeu_si512(y + i,
                            _mm512_or_si512(_mm512_cvtepu16_epi32(lo),
                                            _mm512_slli_epi32(_mm512_cvtepu16_epi32(hi), 16)));
    }
#endif
    for (; i < n; i++)
        y[i] = (uint32_t)bf16_of(x0[i]) | (uint32_t)(x1 ? bf16_of(x1[i]) : 0) << 16;
}

/* Words of 32 bits, floats or pairs: y[k * ldy + i] = x[i * ldx + k] for i < rows, k < n, both <= 16 */
static void k_turn(void *to, int64_t ldy, const void *from, int64_t ldx, int64_t rows, int64_t n)
{
    char *y = to;
    const char *x = from;

    ldx *= 4, ldy *= 4; /* bytes */
#if VL_SIMD == 16
    if (rows == 16 && n == 16) { /* blocks of 2, 4, then the four quarters of a register */
        __m512i a[16], b[16];

        VL_UNROLLED (i, 16)
            a[i] = _mm512_loadu_si512(x + i * ldx);
        VL_UNROLLED (i, 8) {
            b[2 * i] = _mm512_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
            b[2 * i + 1] = _mm512_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
        }
        VL_UNROLLED (i, 4) {
            a[4 * i] = _mm512_unpacklo_epi64(b[4 * i], b[4 * i + 2]);
            a[4 * i + 1] = _mm512_unpackhi_epi64(b[4 * i], b[4 * i + 2]);
            a[4 * i + 2] = _mm512_unpacklo_epi64(b[4 * i + 1], b[4 * i + 3]);
            a[4 * i + 3] = _mm512_unpackhi_epi64(b[4 * i + 1], b[4 * i + 3]);
        }
        VL_UNROLLED (i,
                     4) { /* a[4 r + i]: columns i, 4 + i, 8 + i, 12 + i of rows 4 r .. 4 r + 3 */
            __m512i p = _mm512_shuffle_i32x4(a[i], a[4 + i], 0x88);
            __m512i q = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0x88);
            __m512i r = _mm512_shuffle_i32x4(a[i], a[4 + i], 0xdd);
            __m512i s = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0xdd);

            _mm512_storeu_si512(y + i * ldy, _mm512_shuffle_i32x4(p, q, 0x88));
            _mm512_storeu_si512(y + (8 + i) * ldy, _mm512_shuffle_i32x4(p, q, 0xdd));
            _mm512_storeu_si512(y + (4 + i) * ldy, _mm512_shuffle_i32x4(r, s, 0x88));
            _mm512_storeu_si512(y + (12 + i) * ldy, _mm512_shuffle_i32x4(r, s, 0xdd));
        }
        return;
    }
#endif
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < rows; i++)
            memcpy(y + k * ldy + 4 * i, x + i * ldx + 4 * k, 4);
}

/* The pairs of two rows of bf16 side by side. */
static void k_pair16(uint32_t *y, const uint16_t *x0, const uint16_t *x1, int64_t n)
{
    int64_t i = 0;

#if VL_SIMD == 16
    for (; i + 16 <= n; i += 16) {
        __m512i lo = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(x0 + i)));
        __m512i hi = _mm512_setzero_si512();

        if (x1)
            hi = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(x1 + i)));
        _mm512_storeu_si512(y + i, _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16)));
    }
#elif VL_SIMD == 8
    for (; i + 8 <= n; i += 8) {
        __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(x0 + i)));
        __m256i hi = _mm256_setzero_si256();

        if (x1)
            hi = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(x1 + i)));
        _mm256_storeu_si256((__m256i *)(y + i), _mm256_or_si256(lo, _mm256_slli_epi32(hi, 16)));
    }
#endif
    for (; i < n; i++)
        y[i] = (uint32_t)x0[i] | (uint32_t)(x1 ? x1[i] : 0) << 16;
}

static void k_pair_t(uint32_t *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows,
                     int64_t pairs, int64_t n)
{
    uint32_t t[16][16] = { { 0 } };

    for (int64_t k = 0; 2 * k < rows; k++)
        k_pair(t[k], x + 2 * k * ldx, 2 * k + 1 < rows ? x + (2 * k + 1) * ldx : NULL, n);
    k_turn(y, ldy, t[0], 16, pairs, n);
}

static void k_pair16_t(uint32_t *y, int64_t ldy, const uint16_t *x, int64_t ldx, int64_t rows,
                       int64_t pairs, int64_t n)
{
    uint32_t t[16][16] = { { 0 } };

    for (int64_t k = 0; 2 * k < rows; k++)
        k_pair16(t[k], x + 2 * k * ldx, 2 * k + 1 < rows ? x + (2 * k + 1) * ldx : NULL, n);
    k_turn(y, ldy, t[0], 16, pairs, n);
}

static void k_pair_w(uint32_t *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, int64_t n)
{
    uint32_t t[16][16] = { { 0 } };

    for (int64_t i = 0; i < rows; i++)
        k_to_bf16((uint16_t *)t[i], x + i * ldx, n);
    k_turn(y, ldy, t[0], 16, rows, (n + 1) / 2);
}
