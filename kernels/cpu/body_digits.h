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

        v_store_i8(hi + i, v_mul(v, v_set1(0x1p-8f)));
        v_store_i8(lo + i, v_sub(v, v_mul(v_load_i8(hi + i), v_set1(256))));
    }
    return top / (127 * 256);
}

static void k_mul_digits(float *y, int64_t ldy, const int8_t *a, int64_t lda, const int8_t *q,
                         int64_t nr, const float *s, int64_t M, int64_t N, int64_t K,
                         const int8_t *next)
{
    (void)next;
    for (int64_t m = 0; m < M; m++, y += ldy, a += 2 * lda)
        for (int64_t n = 0; n < N; n++) {
            const int8_t *b = q + n / 16 * 1024 + n % 16 * 4;
            int32_t hi = 0, lo = 0;
            float scale;

            for (int64_t k = 0; k < K; k += 4, b += k % 64 ? 64 : 64 * nr - 15 * 64)
                for (int i = 0; i < 4; i++) {
                    hi += a[k + i] * b[i];
                    lo += a[lda + k + i] * b[i];
                }
            memcpy(&scale, a + K, sizeof scale);
            y[n] = ((float)hi * 256 + (float)lo) * scale * s[n];
        }
}
