/* body_plain.h - the three products in plain C: the rule that the vector tiles must equal.
 *
 * 64 accumulators, so that compilers which vectorise the inner loop can hide their latency. */

#define PLAIN 64
#define VL_NR PLAIN /* width of a weight panel */

typedef struct {
    float v[PLAIN];
} plain_acc;

/* acc[j] = fma(a, b[j], acc[j]) for w outputs */
VL_INL void plain_step(plain_acc *acc, float a, const float *b, int w)
{
    if (w == PLAIN) /* a constant trip count is vectorised */
        for (int j = 0; j < PLAIN; j++)
            acc->v[j] = fmaf(a, b[j], acc->v[j]);
    else
        for (int j = 0; j < w; j++)
            acc->v[j] = fmaf(a, b[j], acc->v[j]);
}

static void k_mul(float *c, int64_t ldc, const float *a, int64_t ars, int64_t aks, const float *b,
                  int64_t bks, int64_t M, int64_t N, int64_t K, int add, const void *next)
{
    (void)next;
    for (int64_t n = 0; n < N; n += PLAIN)
        for (int64_t m = 0; m < M; m++) {
            int w = N - n < PLAIN ? (int)(N - n) : PLAIN;
            float *to = c + m * ldc + n;
            plain_acc acc = { { 0 } };

            if (add)
                memcpy(acc.v, to, (size_t)w * sizeof *to);
            for (int64_t k = 0; k < K; k++)
                plain_step(&acc, a[m * ars + k * aks], b + k * bks + n, w);
            memcpy(to, acc.v, (size_t)w * sizeof *to);
        }
}

static void k_mulr(float *c, int64_t ldc, const float *a, int64_t ars, const float *b, int64_t bks,
                   int64_t M, int64_t N, const int64_t *lo, const int64_t *hi)
{
    for (int64_t m = 0; m < M; m++)
        if (lo[m] < hi[m])
            k_mul(c + m * ldc, ldc, a + m * ars + lo[m], ars, 1, b + lo[m] * bks, bks, 1, N,
                  hi[m] - lo[m], 1, NULL);
}

/* a denormal becomes zero of its sign */
VL_INL float flush(uint32_t u)
{
    return vl_bits_float((int32_t)(u & 0x7f800000u ? u : u & 0x80000000u));
}

VL_INL float half_step(float acc, uint32_t a, uint32_t b)
{
    return flush((uint32_t)vl_float_bits(fmaf(flush(a), flush(b), acc)));
}

static void k_mul16(float *c, int64_t ldc, const uint32_t *a, int64_t lda, const uint32_t *b,
                    int64_t bks, int64_t M, int64_t N, int64_t K2, int add, const void *next)
{
    (void)next;
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            float *to = c + m * ldc + n;
            float acc = add ? flush((uint32_t)vl_float_bits(*to)) : 0;

            for (int64_t k = 0; k < K2; k++) {
                uint32_t x = a[m * lda + k], y = b[k * bks + n];

                acc = half_step(acc, x & 0xffff0000u, y & 0xffff0000u);
                acc = half_step(acc, x << 16, y << 16);
            }
            *to = acc;
        }
}
