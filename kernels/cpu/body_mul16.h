/* body_mul16.h - the product with bf16 operands and fp32 accumulation.
 *
 * With VL_DPBF16 a step is one vdpbf16ps; elsewhere its twin: the odd (high) element first, then
 * the even one, each a fused multiply-add, denormal operands and results as zero. vdpbf16ps does this
 * whatever MXCSR says; the AVX twins set flush-to-zero and denormals-are-zero around the product. */

#if VL_SIMD == 16 && defined(VL_DPBF16)
typedef __m512bh vh;
VL_INL vh h_load(const uint32_t *p)
{
    return (__m512bh)_mm512_loadu_si512(p);
}
VL_INL vh h_load_part(const uint32_t *p, int n)
{
    return (__m512bh)_mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), p);
}
VL_INL vh h_set1(uint32_t x)
{
    return (__m512bh)_mm512_set1_epi32((int)x);
}
VL_INL vf h_dp(vf acc, vh a, vh b)
{
    return _mm512_dpbf16_ps(acc, a, b);
}
#elif VL_SIMD == 16
typedef __m512i vh;
VL_INL vh h_load(const uint32_t *p)
{
    return _mm512_loadu_si512(p);
}
VL_INL vh h_load_part(const uint32_t *p, int n)
{
    return _mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), p);
}
VL_INL vh h_set1(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}
VL_INL vf h_hi(vh a)
{
    return _mm512_castsi512_ps(_mm512_and_si512(a, _mm512_set1_epi32((int)0xffff0000)));
}
VL_INL vf h_lo(vh a)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(a, 16));
}
VL_INL vf h_dp(vf acc, vh a, vh b)
{
    return v_fma(h_lo(a), h_lo(b), v_fma(h_hi(a), h_hi(b), acc));
}
#elif VL_SIMD == 8
typedef struct {
    __m256i a, b;
} vh;
VL_INL vh h_load(const uint32_t *p)
{
    return (vh){ _mm256_loadu_si256((const __m256i *)p),
                 _mm256_loadu_si256((const __m256i *)(p + 8)) };
}
VL_INL vh h_load_part(const uint32_t *p, int n)
{
    vf v = v_load_part((const float *)p, n);

    return (vh){ _mm256_castps_si256(v.a), _mm256_castps_si256(v.b) };
}
VL_INL vh h_set1(uint32_t x)
{
    return (vh){ _mm256_set1_epi32((int)x), _mm256_set1_epi32((int)x) };
}
VL_INL vf h_hi(vh x)
{
    __m256i m = _mm256_set1_epi32((int)0xffff0000);

    return (vf){ _mm256_castsi256_ps(_mm256_and_si256(x.a, m)),
                 _mm256_castsi256_ps(_mm256_and_si256(x.b, m)) };
}
VL_INL vf h_lo(vh x)
{
    return (vf){ _mm256_castsi256_ps(_mm256_slli_epi32(x.a, 16)),
                 _mm256_castsi256_ps(_mm256_slli_epi32(x.b, 16)) };
}
VL_INL vf h_dp(vf acc, vh a, vh b)
{
    return v_fma(h_lo(a), h_lo(b), v_fma(h_hi(a), h_hi(b), acc));
}
#endif

#define VL_TILE16_BODY(MR, NV, LOADH, LOAD, STORE, FETCH)                                          \
    vf acc[MR][NV];                                                                                \
    VL_UNROLLED (r, MR)                                                                            \
        VL_UNROLLED (j, NV)                                                                        \
            acc[r][j] = add ? LOAD(c + r * ldc + 16 * j) : v_set1(0);                              \
    VL_FETCH_C(MR, NV)                                                                             \
    for (int64_t k = 0; k < K; k++, b += bks) {                                                    \
        vh bv[NV];                                                                                 \
        FETCH                                                                                      \
        VL_UNROLLED (j, NV) {                                                                      \
            bv[j] = LOADH(b + 16 * j);                                                             \
            if (NV == 4)                                                                           \
                __builtin_prefetch(b + VL_AHEAD * bks + 16 * j, 0, 3);                             \
        }                                                                                          \
        VL_UNROLLED (r, MR) {                                                                      \
            vh av = h_set1(a[r * lda + k]);                                                        \
            VL_UNROLLED (j, NV)                                                                    \
                acc[r][j] = h_dp(acc[r][j], av, bv[j]);                                            \
        }                                                                                          \
    }                                                                                              \
    VL_UNROLLED (r, MR)                                                                            \
        VL_UNROLLED (j, NV)                                                                        \
    STORE(c + r * ldc + 16 * j, acc[r][j])

#define VL_HLOAD_PART(p) h_load_part(p, tail)
#define VL_TILE16_ARGS                                                                             \
    float *c, int64_t ldc, const uint32_t *a, int64_t lda, const uint32_t *b, int64_t bks,         \
        int64_t K, int add, int tail, struct ahead next
#define VL_TILE16(MR, NV)                                                                          \
    static void tile16_##MR##x##NV(VL_TILE16_ARGS)                                                 \
    {                                                                                              \
        (void)tail;                                                                                \
        VL_TILE16_BODY(MR, NV, h_load, v_load, v_store, VL_NO_FETCH);                              \
    }
#define VL_TILE16_AHEAD(MR, NV)                                                                    \
    static void tile16_ahead_##MR##x##NV(VL_TILE16_ARGS)                                           \
    {                                                                                              \
        (void)tail;                                                                                \
        VL_TILE16_BODY(MR, NV, h_load, v_load, v_store, VL_FETCH);                                 \
    }
#define VL_TILE16_TAIL(MR)                                                                         \
    static void tile16_##MR##xt(VL_TILE16_ARGS)                                                    \
    {                                                                                              \
        VL_TILE16_BODY(MR, 1, VL_HLOAD_PART, VL_LOAD_PART, VL_STORE_PART, VL_NO_FETCH);            \
    }

typedef void (*tile16_fn)(VL_TILE16_ARGS);

VL_ALL_ROWS(VL_TILE16_TAIL)
VL_ALL_TILES(VL_TILE16)
VL_WIDEST(VL_TILE16_AHEAD)

static const tile16_fn tile16_tail[MR_MAX] = VL_ROW_TABLE(tile16, t);
static const tile16_fn tile16_1[MR_MAX] = VL_ROW_TABLE(tile16, 1);
#if NV_MAX >= 4
static const tile16_fn tile16_2[MR_MAX] = VL_ROW_TABLE(tile16, 2);
static const tile16_fn tile16_4[MR_MAX] = VL_ROW_TABLE(tile16, 4);
#endif
static const tile16_fn tile16_ahead[MR_MAX] = VL_WIDEST_TABLE(tile16_ahead);

static void mul16_run(float *c, int64_t ldc, const uint32_t *a, int64_t lda, const uint32_t *b,
                      int64_t bks, int64_t M, int64_t N, int64_t K2, int add, const void *then)
{
    struct ahead next = ahead_of(then, M, K2);
    int64_t n = 0;

    while (n < N) {
        int64_t left = N - n;
        const tile16_fn *f = left < 16 ? tile16_tail : tile16_1;
        int w = left < 16 ? (int)left : 16, r;

#if NV_MAX >= 4
        if (left >= 64)
            f = tile16_4, w = 64;
        else if (left >= 32)
            f = tile16_2, w = 32;
#endif
        for (int64_t m = 0; m < M; m += r) {
            const tile16_fn *g = next.lines && w == VL_NR ? tile16_ahead : f;

            r = rows_step(M - m);
            g[r - 1](c + m * ldc + n, ldc, a + m * lda, lda, b + n, bks, K2, add, w, next);
            ahead_more(&next, K2);
        }
        n += w;
    }
}

static void k_mul16(float *c, int64_t ldc, const uint32_t *a, int64_t lda, const uint32_t *b,
                    int64_t bks, int64_t M, int64_t N, int64_t K2, int add, const void *next)
{
#if !defined(VL_DPBF16)
    unsigned mode = _mm_getcsr();

    _mm_setcsr(mode | 0x8040); /* flush to zero, denormals are zero */
    mul16_run(c, ldc, a, lda, b, bks, M, N, K2, add, next);
    _mm_setcsr(mode);
#else
    mul16_run(c, ldc, a, lda, b, bks, M, N, K2, add, next);
#endif
}
