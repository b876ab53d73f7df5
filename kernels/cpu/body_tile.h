/* body_tile.h - tile sizes and remainder rows, for body_mul.h and body_mul16.h. */

#if VL_SIMD == 16
#    define NV_MAX 4
#    define MR_MAX 6
#elif VL_SIMD == 8
#    define NV_MAX 1
#    define MR_MAX 6
#else
#    define NV_MAX 1
#    define MR_MAX 1
#endif

#define VL_LOAD_PART(p)     v_load_part(p, tail)
#define VL_STORE_PART(p, v) v_store_part(p, v, tail)

/* The next block of at most MR_MAX rows, the last two of about equal height. */
static int rows_step(int64_t left)
{
    if (left >= 2 * MR_MAX || left == MR_MAX)
        return MR_MAX;
    return left > MR_MAX ? (int)(left + 1) / 2 : (int)left;
}
