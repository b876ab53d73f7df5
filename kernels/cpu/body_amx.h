/* body_amx.h - products of bf16 in the order of AMX tiles, on processors without them.
 *
 * What tdpbf16ps does to an output with up to 16 pairs (32 elements) of each operand: the even and
 * the odd elements are summed apart from zero, each step a fused multiply-add, and the sum of the
 * two sums is added to the accumulator; denormal operands and results count as zero. */

#if defined(PLAIN)
static void amx_block(float *c, const uint32_t *a, const uint32_t *b, int64_t bks, int64_t w,
                      int pairs)
{
    for (int64_t j = 0; j < w; j++) {
        float even = 0, odd = 0;

        for (int k = 0; k < pairs; k++) {
            odd = half_step(odd, a[k] & 0xffff0000u, b[k * bks + j] & 0xffff0000u);
            even = half_step(even, a[k] << 16, b[k * bks + j] << 16);
        }
        even = flush((uint32_t)vl_float_bits(even + odd));
        c[j] = flush((uint32_t)vl_float_bits(flush((uint32_t)vl_float_bits(c[j])) + even));
    }
}
#else
/* Two vectors at a time: four chains hide part of the latency. */
VL_INL void amx_block(float *c, const uint32_t *a, const uint32_t *b, int64_t bks, int64_t w,
                      int pairs)
{
    for (int64_t j = 0; j < w; j += 2 * VL_LANES) {
        int64_t n0 = w - j < VL_LANES ? w - j : VL_LANES, n1 = w - j - n0;
        vf e0 = v_set1(0), o0 = e0, e1 = e0, o1 = e0;

        n1 = n1 < VL_LANES ? n1 : VL_LANES;
        for (int k = 0; k < pairs; k++) {
            const uint32_t *row = b + k * bks + j;
            vh x = h_set1(a[k]), y = n0 < VL_LANES ? h_load_part(row, (int)n0) : h_load(row);

            e0 = v_fma(h_lo(x), h_lo(y), e0);
            o0 = v_fma(h_hi(x), h_hi(y), o0);
            if (n1) {
                y = n1 < VL_LANES ? h_load_part(row + VL_LANES, (int)n1) : h_load(row + VL_LANES);
                e1 = v_fma(h_lo(x), h_lo(y), e1);
                o1 = v_fma(h_hi(x), h_hi(y), o1);
            }
        }
        v_store_n(c + j, v_add(v_load_n(c + j, n0), v_add(e0, o0)), n0);
        if (n1)
            v_store_n(c + j + VL_LANES, v_add(v_load_n(c + j + VL_LANES, n1), v_add(e1, o1)), n1);
    }
}
#endif

static void k_mul_amx(float *c, int64_t ldc, const uint32_t *a, int64_t lda, const uint32_t *b,
                      int64_t bks, int64_t M, int64_t N, int64_t K2, int add, const void *next)
{
#if !defined(PLAIN)
    unsigned mode = _mm_getcsr();

    _mm_setcsr(mode | 0x8040); /* flush to zero, denormals are zero */
#endif
    (void)next;
    for (int64_t m = 0; m < M; m++) {
        if (!add)
            memset(c + m * ldc, 0, (size_t)N * sizeof *c);
        for (int64_t k = 0; k < K2; k += VL_AMX_PAIRS)
            amx_block(c + m * ldc, a + m * lda + k, b + k * bks, bks, N, VL_AMX_PAIRS);
    }
#if !defined(PLAIN)
    _mm_setcsr(mode);
#endif
}

static void k_keys_amx(float *s, int64_t lds, const uint32_t *q, int64_t ldq,
                       const uint32_t *const *k, int64_t blocks, int64_t M, int64_t K2)
{
    for (int64_t i = 0; i < blocks; i++)
        k_mul_amx(s + i * 16, lds, q, ldq, k[i], 16, M, 16, K2, 0, NULL);
}

/* A block of 16 keys is half a block of the products above. */
static void k_values_amx(float *o, int64_t ldo, const uint32_t *p, int64_t ldp,
                         const uint32_t *const *v, int64_t ldv, int64_t blocks, int64_t M,
                         int64_t N)
{
#if !defined(PLAIN)
    unsigned mode = _mm_getcsr();

    _mm_setcsr(mode | 0x8040);
#endif
    for (int64_t m = 0; m < M; m++)
        for (int64_t i = 0; i < blocks; i++)
            amx_block(o + m * ldo, p + m * ldp + i * 8, v[i], ldv, N, 8);
#if !defined(PLAIN)
    _mm_setcsr(mode);
#endif
}
