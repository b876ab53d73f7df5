/* body_tile.h - tile sizes and remainder rows, for body_mul.h and body_mul16.h. */

#define MR_MAX 6
#if VL_SIMD == 16
#    define NV_MAX 4
#else
#    define NV_MAX 1
#endif

#define VL_NR (16 * NV_MAX) /* width of a weight panel */

#define VL_AHEAD 16 /* steps of k by which the widest tiles fetch b into the first-level cache */

/* What a tile may ask for into the second-level cache while it multiplies: `lines` lines from `from` on
 * every VL_STRIDE steps of k, of a panel that ends at `end`. */
struct ahead {
    const char *from, *end;
    int lines;
};
#define VL_STRIDE 8
#define VL_FETCH                                                                                   \
    for (int i = 0; k % VL_STRIDE == 0 && i < next.lines; i++, next.from += 64)                    \
        __builtin_prefetch(next.from, 0, 2);
#define VL_NO_FETCH (void)next;

/* Outputs that are written for the first time, so that the stores need not wait for their lines. */
#define VL_FETCH_C(MR, NV)                                                                         \
    if (NV == 4 && !add && K >= 128)                                                               \
        VL_UNROLLED (r, MR)                                                                        \
            VL_UNROLLED (j, NV)                                                                    \
                __builtin_prefetch(c + r * ldc + 16 * j, 1, 3);

/* A panel like the one that M rows are multiplied by, divided among their tiles. It pays for some
 * rows only: few are done before it could come, with many the wait is a small part of the time. */
static inline struct ahead ahead_of(const void *panel, int64_t M, int64_t K)
{
    int64_t bytes = K * VL_NR * 4, tiles = (M + MR_MAX - 1) / MR_MAX;
    int64_t steps = tiles * ((K + VL_STRIDE - 1) / VL_STRIDE);

    if (!panel || M < 24 || M > 96)
        return (struct ahead){ NULL, NULL, 0 };
    return (struct ahead){ panel, (const char *)panel + bytes,
                           (int)((bytes / 64 + steps - 1) / steps) };
}

/* For the next tile. */
static inline void ahead_more(struct ahead *a, int64_t K)
{
    a->from += (K + VL_STRIDE - 1) / VL_STRIDE * a->lines * 64;
    if (a->from >= a->end)
        a->lines = 0;
}

#define VL_LOAD_PART(p)     v_load_part(p, tail)
#define VL_STORE_PART(p, v) v_store_part(p, v, tail)

/* A macro for each number of rows, and for each shape of a tile; the table over the rows. */
#define VL_ALL_ROWS(X)   X(1) X(2) X(3) X(4) X(5) X(6)
#define VL_ALL_OF(X, NV) X(1, NV) X(2, NV) X(3, NV) X(4, NV) X(5, NV) X(6, NV)
#define VL_ROW_TABLE(name, NV)                                                                     \
    {                                                                                              \
        name##_1x##NV, name##_2x##NV, name##_3x##NV, name##_4x##NV, name##_5x##NV, name##_6x##NV   \
    }
#if NV_MAX >= 4
#    define VL_ALL_TILES(X)       VL_ALL_OF(X, 1) VL_ALL_OF(X, 2) VL_ALL_OF(X, 4)
#    define VL_WIDEST(X)          VL_ALL_OF(X, 4)
#    define VL_WIDEST_TABLE(name) VL_ROW_TABLE(name, 4)
#else
#    define VL_ALL_TILES(X)       VL_ALL_OF(X, 1)
#    define VL_WIDEST(X)          VL_ALL_OF(X, 1)
#    define VL_WIDEST_TABLE(name) VL_ROW_TABLE(name, 1)
#endif

/* The next block of at most MR_MAX rows, the last two of about equal height. */
static int rows_step(int64_t left)
{
    if (left >= 2 * MR_MAX || left == MR_MAX)
        return MR_MAX;
    return left > MR_MAX ? (int)(left + 1) / 2 : (int)left;
}
