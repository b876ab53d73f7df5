/* body_mulr.h - the product whose rows take different stretches of k: attention's weighted values.
 *
 * Rows of causal attention see different keys. Weighting hidden ones by zero would let a NaN of a
 * later position through, so each row takes exactly its own k, in order; the stretch that the rows
 * of a tile share runs at full speed. */

#define VL_RSTEP(MR, NV, LOAD, COND)                                                               \
    vf bv[NV];                                                                                     \
    VL_UNROLLED (j, NV)                                                                            \
        bv[j] = LOAD(b + k * bks + 16 * j);                                                        \
    VL_UNROLLED (r, MR)                                                                            \
        if (COND) {                                                                                \
            vf av = v_set1(a[r * ars + k]);                                                        \
            VL_UNROLLED (j, NV)                                                                    \
                acc[r][j] = v_fma(av, bv[j], acc[r][j]);                                           \
        }

#define VL_RTILE_BODY(MR, NV, LOAD, STORE)                                                         \
    vf acc[MR][NV];                                                                                \
    int64_t k = lo[0], k0 = lo[MR - 1], k1 = hi[0], k2 = hi[MR - 1];                               \
    k0 = k0 < k2 ? k0 : k2;                                                                        \
    k1 = k1 < k0 ? k0 : k1;                                                                        \
    VL_UNROLLED (r, MR)                                                                            \
        VL_UNROLLED (j, NV)                                                                        \
            acc[r][j] = LOAD(c + r * ldc + 16 * j);                                                \
    for (; k < k0; k++) {                                                                          \
        VL_RSTEP(MR, NV, LOAD, k >= lo[r] && k < hi[r])                                            \
    }                                                                                              \
    for (; k < k1; k++) {                                                                          \
        VL_RSTEP(MR, NV, LOAD, 1)                                                                  \
    }                                                                                              \
    for (; k < k2; k++) {                                                                          \
        VL_RSTEP(MR, NV, LOAD, k >= lo[r] && k < hi[r])                                            \
    }                                                                                              \
    VL_UNROLLED (r, MR)                                                                            \
        VL_UNROLLED (j, NV)                                                                        \
    STORE(c + r * ldc + 16 * j, acc[r][j])

#define VL_RTILE(MR, NV)                                                                           \
    static void rtile_##MR##x##NV(float *c, int64_t ldc, const float *a, int64_t ars,              \
                                  const float *b, int64_t bks, const int64_t *lo,                  \
                                  const int64_t *hi, int tail)                                     \
    {                                                                                              \
        (void)tail;                                                                                \
        VL_RTILE_BODY(MR, NV, v_load, v_store);                                                    \
    }
#define VL_RTILE_TAIL(MR)                                                                          \
    static void rtile_##MR##xt(float *c, int64_t ldc, const float *a, int64_t ars, const float *b, \
                               int64_t bks, const int64_t *lo, const int64_t *hi, int tail)        \
    {                                                                                              \
        VL_RTILE_BODY(MR, 1, VL_LOAD_PART, VL_STORE_PART);                                         \
    }

typedef void (*rtile_fn)(float *c, int64_t ldc, const float *a, int64_t ars, const float *b,
                         int64_t bks, const int64_t *lo, const int64_t *hi, int tail);

VL_ALL_ROWS(VL_RTILE_TAIL)
VL_ALL_TILES(VL_RTILE)

static const rtile_fn rtile_tail[MR_MAX] = VL_ROW_TABLE(rtile, t);
static const rtile_fn rtile_1[MR_MAX] = VL_ROW_TABLE(rtile, 1);
#if NV_MAX >= 4
static const rtile_fn rtile_2[MR_MAX] = VL_ROW_TABLE(rtile, 2);
static const rtile_fn rtile_4[MR_MAX] = VL_ROW_TABLE(rtile, 4);
#endif

static void k_mulr(float *c, int64_t ldc, const float *a, int64_t ars, const float *b, int64_t bks,
                   int64_t M, int64_t N, const int64_t *lo, const int64_t *hi)
{
    int64_t n = 0;

    while (n < N) {
        int64_t left = N - n;
        const rtile_fn *f = left < 16 ? rtile_tail : rtile_1;
        int w = left < 16 ? (int)left : 16, r;

#if NV_MAX >= 4
        if (left >= 64)
            f = rtile_4, w = 64;
        else if (left >= 32)
            f = rtile_2, w = 32;
#endif
        for (int64_t m = 0; m < M; m += r) {
            r = rows_step(M - m);
            f[r - 1](c + m * ldc + n, ldc, a + m * ars, ars, b + n, bks, lo + m, hi + m, w);
        }
        n += w;
    }
}
