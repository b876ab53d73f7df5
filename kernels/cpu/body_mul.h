/* body_mul.h - the fp32 product every matrix operation is made of.
 *
 * One accumulator per output over k in ascending order: no tile shape, remainder or instruction set
 * changes a bit. AVX-512 tiles are 6 x 64 (24 accumulators, 4 loads, a broadcast operand), AVX2 6 x
 * 16 (12 of its 16 registers); narrower ones take what is left. */

/* One tile of MR rows and NV vectors; tail > 0: only that many lanes of the single vector. */
#define VL_TILE_BODY(MR, NV, LOAD, STORE, FETCH)                                                   \
    vf acc[MR][NV];                                                                                \
    VL_UNROLLED (r, MR)                                                                            \
        VL_UNROLLED (j, NV)                                                                        \
            acc[r][j] = add ? LOAD(c + r * ldc + 16 * j) : v_set1(0);                              \
    VL_FETCH_C(MR, NV)                                                                             \
    for (int64_t k = 0; k < K; k++, a += aks, b += bks) {                                          \
        vf bv[NV];                                                                                 \
        FETCH                                                                                      \
        VL_UNROLLED (j, NV) {                                                                      \
            bv[j] = LOAD(b + 16 * j);                                                              \
            if (NV == 4)                                                                           \
                __builtin_prefetch(b + VL_AHEAD * bks + 16 * j, 0, 3);                             \
        }                                                                                          \
        VL_UNROLLED (r, MR) {                                                                      \
            vf av = v_set1(a[r * ars]);                                                            \
            VL_UNROLLED (j, NV)                                                                    \
                acc[r][j] = v_fma(av, bv[j], acc[r][j]);                                           \
        }                                                                                          \
    }                                                                                              \
    VL_UNROLLED (r, MR)                                                                            \
        VL_UNROLLED (j, NV)                                                                        \
    STORE(c + r * ldc + 16 * j, acc[r][j])

#define VL_TILE_ARGS                                                                               \
    float *c, int64_t ldc, const float *a, int64_t ars, int64_t aks, const float *b, int64_t bks,  \
        int64_t K, int add, int tail, struct ahead next
#define VL_TILE(MR, NV)                                                                            \
    static void tile_##MR##x##NV(VL_TILE_ARGS)                                                     \
    {                                                                                              \
        (void)tail;                                                                                \
        VL_TILE_BODY(MR, NV, v_load, v_store, VL_NO_FETCH);                                        \
    }
#define VL_TILE_AHEAD(MR, NV)                                                                      \
    static void tile_ahead_##MR##x##NV(VL_TILE_ARGS)                                               \
    {                                                                                              \
        (void)tail;                                                                                \
        VL_TILE_BODY(MR, NV, v_load, v_store, VL_FETCH);                                           \
    }
#define VL_TILE_TAIL(MR)                                                                           \
    static void tile_##MR##xt(VL_TILE_ARGS)                                                        \
    {                                                                                              \
        VL_TILE_BODY(MR, 1, VL_LOAD_PART, VL_STORE_PART, VL_NO_FETCH);                             \
    }

typedef void (*tile_fn)(VL_TILE_ARGS);

VL_ALL_ROWS(VL_TILE_TAIL)
VL_ALL_TILES(VL_TILE)
VL_WIDEST(VL_TILE_AHEAD)

static const tile_fn tile_tail[MR_MAX] = VL_ROW_TABLE(tile, t);
static const tile_fn tile_1[MR_MAX] = VL_ROW_TABLE(tile, 1);
#if NV_MAX >= 4
static const tile_fn tile_2[MR_MAX] = VL_ROW_TABLE(tile, 2);
static const tile_fn tile_4[MR_MAX] = VL_ROW_TABLE(tile, 4);
#endif
static const tile_fn tile_ahead[MR_MAX] = VL_WIDEST_TABLE(tile_ahead);

static void k_mul(float *c, int64_t ldc, const float *a, int64_t ars, int64_t aks, const float *b,
                  int64_t bks, int64_t M, int64_t N, int64_t K, int add, const void *then)
{
    struct ahead next = ahead_of(then, M, K);
    int64_t n = 0;

    while (n < N) {
        int64_t left = N - n;
        const tile_fn *f = left < 16 ? tile_tail : tile_1;
        int w = left < 16 ? (int)left : 16, r;

#if NV_MAX >= 4
        if (left >= 64)
            f = tile_4, w = 64;
        else if (left >= 32)
            f = tile_2, w = 32;
#endif
        for (int64_t m = 0; m < M; m += r) {
            const tile_fn *g = next.lines && w == VL_NR ? tile_ahead : f;

            r = rows_step(M - m);
            g[r - 1](c + m * ldc + n, ldc, a + m * ars, ars, aks, b + n, bks, K, add, w, next);
            ahead_more(&next, K);
        }
        n += w;
    }
}
