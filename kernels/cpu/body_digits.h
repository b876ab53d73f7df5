/* body_digits.h - products with weights of eight bits in whole numbers.
 *
 * An element of a row is taken as (256 hi + lo) times a scale of the row, both digits of eight bits:
 * sixteen bits below the row's largest element, where a bf16 element has eight of its own. Sums of
 * products of digits and weights are integers, which know neither rounding nor order: whatever
 * multiplies them gives the same bits. */

/* The n elements of bf16 at h, a multiple of 32. Returns the scale: 0 for a row of nothing, NaN for one
 * that is not finite. */
static float k_digits(int8_t *hi, int8_t *lo, const uint32_t *h, int64_t n)
{
    const uint16_t *x = (const uint16_t *)h;
    uint16_t lane[32] = { 0 }, most = 0;
    float top, inv;

    for (int64_t i = 0; i < n; i += 32)
        for (int j = 0; j < 32; j++) {
            uint16_t a = x[i + j] & 0x7fff;

            lane[j] = a > lane[j] ? a : lane[j];
        }
    for (int j = 0; j < 32; j++)
        most = lane[j] > most ? lane[j] : most;
    top = vl_bits_float((int32_t)((uint32_t)most << 16));
    if (most >= 0x7f80 || top < 0x1p-100f) {
        memset(hi, 0, (size_t)n);
        memset(lo, 0, (size_t)n);
        return most >= 0x7f80 ? NAN : 0;
    }
    inv = 127 * 256 / top;
    for (int64_t i = 0; i < n; i += VL_LANES) {
        vf v = v_mul(v_load_bf16(x + i), v_set1(inv));

        v_store_i8(hi + i, v_fma(v, v_set1(0x1p-8f), v_set1(0x1p-9f))); /* lo: -128 to 127 */
        v_store_i8(lo + i, v_sub(v, v_mul(v_load_i8(hi + i), v_set1(256))));
    }
    return top / (127 * 256);
}

/* c (2,16): the sums of a row's digits with 16 outputs, whose blocks are `step` bytes apart. */
#if VL_SIMD == 0
static void sums_16(int32_t *c, const int8_t *a, int64_t lda, const int8_t *q, int64_t step,
                    int64_t K)
{
    memset(c, 0, 32 * sizeof *c);
    for (int64_t k = 0; k < K; k++) {
        const int8_t *b = q + k / 64 * step + k % 64 / 4 * 64 + k % 4;

        for (int n = 0; n < 16; n++) {
            c[n] += a[k] * b[4 * n];
            c[16 + n] += a[lda + k] * b[4 * n];
        }
    }
}
#else
static void sums_16(int32_t *c, const int8_t *a, int64_t lda, const int8_t *q, int64_t step,
                    int64_t K)
{
    vw hi0 = w_load_i8((const int8_t[32]){ 0 }), hi1 = hi0, lo0 = hi0, lo1 = hi0;
    int32_t part[4][16];

    for (int64_t k = 0; k < K; k += 4) {
        const int8_t *b = q + k / 64 * step + k % 64 * 16;
        vw b0 = w_load_i8(b), b1 = w_load_i8(b + 32), d = w_set4(a + k);

        hi0 = w_dot(d, b0, hi0);
        hi1 = w_dot(d, b1, hi1);
        d = w_set4(a + lda + k);
        lo0 = w_dot(d, b0, lo0);
        lo1 = w_dot(d, b1, lo1);
    }
    w_store(part[0], hi0);
    w_store(part[1], hi1);
    w_store(part[2], lo0);
    w_store(part[3], lo1);
    for (int n = 0; n < 32; n++)
        c[n] = part[n / 8][n % 8 * 2] + part[n / 8][n % 8 * 2 + 1];
}
#endif

static void k_mul_digits(float *y, int64_t ldy, const int8_t *a, int64_t lda, const int8_t *q,
                         int64_t nr, const float *s, int64_t M, int64_t N, int64_t K,
                         const int8_t *next)
{
    (void)next;
    for (int64_t m = 0; m < M; m++, y += ldy, a += 2 * lda)
        for (int64_t n = 0; n < N; n += 16) {
            int32_t c[32];
            float scale;

            memcpy(&scale, a + K, sizeof scale);
            sums_16(c, a, lda, q + n * 64, 64 * nr, K);
            for (int64_t i = n; i < N && i < n + 16; i++)
                y[i] = ((float)c[i - n] * 256 + (float)c[16 + i - n]) * scale * s[i];
        }
}
