/* Weights of eight bits: their rule, its bits on every instruction set and in any batch, its error. */
#include "tests/unit/kernels.h"

#define EACH_TYPE(ct) for (int ct = 0; ct < VL_COMPUTES; ct++)

static struct vl_weight *int8(struct vl_backend *be, const float *W, int64_t O, int64_t I, int ct)
{
    return kweight_form(be, W, O, I, (enum vl_compute)ct, VL_FORM_INT8);
}

/* The rule in plain C: q (O, I) as floats, s (O). */
static void rule(float *q, float *s, const float *W, int64_t O, int64_t I)
{
    for (int64_t o = 0; o < O; o++) {
        float max = 0;

        for (int64_t i = 0; i < I; i++)
            max = fmaxf(max, fabsf(W[o * I + i]));
        s[o] = max / 127;
        for (int64_t i = 0; i < I; i++)
            q[o * I + i] = s[o] > 0 ? fminf(fmaxf(rintf(W[o * I + i] / s[o]), -127), 127) : 0;
    }
}

static float bf16(const uint16_t *h)
{
    uint32_t bits = (uint32_t)*h << 16;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The digits of one row (I) and its scale, in plain C. */
static float digits(int *hi, int *lo, const uint16_t *h, int64_t I)
{
    float top = 0;

    for (int64_t i = 0; i < I; i++) {
        if (!isfinite(bf16(h + i)))
            return NAN;
        top = fmaxf(top, fabsf(bf16(h + i)));
    }
    if (top < 0x1p-100f)
        return 0;
    for (int64_t i = 0; i < I; i++) {
        float v = bf16(h + i) * (32512 / top);

        hi[i] = (int)rintf(fmaf(v, 0x1p-8f, 0x1p-9f));
        lo[i] = (int)fminf(rintf(v - 256 * (float)hi[i]), 127);
    }
    return top / 32512;
}

/* want (N, O): the rule's product with operand xo. */
static void product(float *want, struct vl_backend *be, const char *xo, const float *q,
                    const float *s, int64_t N, int64_t O, int64_t I, int ct)
{
    size_t row = be->operand_bytes(be->ctx, I, (enum vl_compute)ct);
    struct vl_weight *w = kweight(be, q, O, I, (enum vl_compute)ct);
    int *hi = vl_alloc((size_t)I * sizeof *hi), *lo = vl_alloc((size_t)I * sizeof *lo);

    be->linear(be->ctx, want, xo, w, NULL, NULL, N);
    for (int64_t n = 0; n < N; n++) {
        float t = digits(hi, lo, (const uint16_t *)(const void *)(xo + (size_t)n * row), I);

        for (int64_t o = 0; o < O; o++) {
            int64_t a = 0, b = 0;

            for (int64_t i = 0; i < I && t > 0; i++) {
                a += hi[i] * (int64_t)q[o * I + i];
                b += lo[i] * (int64_t)q[o * I + i];
            }
            if (ct == VL_COMPUTE_AMX)
                want[n * O + o] = t > 0 ? ((float)a * 256 + (float)b) * t : t;
            want[n * O + o] *= s[o];
        }
    }
    be->weight_free(be->ctx, w);
    free(hi), free(lo);
}

/* Weights with what is awkward: rows of zeros, of denormals, of one number; ties. */
static float *weights(int64_t O, int64_t I)
{
    float *W = krand(O * I, 1, 2);

    for (int64_t o = 0; o < O; o++)
        for (int64_t i = 0; i < I; i++)
            W[o * I + i] = o % 7 == 2   ? 0
                           : o % 7 == 3 ? W[o * I + i] * 0x1p-140f
                           : o % 7 == 4 ? (i == o % I ? -127 : (float)(i % 200 - 100) / 2)
                           : o % 7 == 5 ? (float)(1 + o % 3) * 0x1p-149f
                                        : W[o * I + i];
    return W;
}

static const int64_t shapes[][3] = { { 1, 1, 1 },      { 2, 14, 33 },    { 7, 64, 16 },
                                     { 13, 65, 47 },   { 16, 130, 128 }, { 17, 128, 96 },
                                     { 32, 70, 100 },  { 33, 64, 64 },   { 65, 31, 300 },
                                     { 300, 40, 2300 } };

/* What is computed is s times the product with q as weights, or on tiles the rule's, to the bit. */
static void test_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t N = shapes[i][0], O = shapes[i][1], I = shapes[i][2];
        float *x = krand(N * I, 1, 1), *W = weights(O, I), *q = kzero(O * I), *s = kzero(O);
        float *b = krand(O, 1, 4), *y = kzero(N * O), *want = kzero(N * O);

        rule(q, s, W, O, I);
        for (int k = N * O * I > 1 << 22 ? 1 : 0; k < kset.n; k++)
            EACH_TYPE(ct)
            {
                struct vl_backend *be = kset.be[k];
                struct vl_weight *w = int8(be, W, O, I, ct);
                void *xo = koperand(be, x, N, I, (enum vl_compute)ct);

                product(want, be, xo, q, s, N, O, I, ct);
                be->linear(be->ctx, y, xo, w, NULL, NULL, N);
                assert_memory_equal(y, want, (size_t)(N * O) * sizeof *y);
                be->linear(be->ctx, y, xo, w, b, NULL, N);
                for (int64_t j = 0; j < N * O; j++)
                    want[j] = want[j] + b[j % O];
                assert_memory_equal(y, want, (size_t)(N * O) * sizeof *y);
                be->weight_free(be->ctx, w);
                free(xo);
            }
        free(x), free(W), free(q), free(s), free(b), free(y), free(want);
    }
}

/* Rows of zeros, of what is next to nothing, of one large number, and such as are not finite. */
static void test_odd_rows(void **state)
{
    enum { N = 7, O = 70, I = 100 };
    static const float at[N] = { 0, 1e-42f, 1e-33f, 1e36f, INFINITY, -INFINITY, NAN };
    float *x = krand(N * I, 1, 1), *W = krand(O * I, 1, 2), *y = kzero(N * O);

    (void)state;
    for (int64_t i = 0; i < N * I; i++)
        x[i] = i / I == 3 ? x[i] : i / I < 3 ? at[i / I] * x[i] : x[i];
    for (int n = 3; n < N; n++)
        x[n * I + 61] = at[n];
    for (int k = 0; k < kset.n; k++)
        EACH_TYPE(ct)
        {
            struct vl_backend *be = kset.be[k];
            struct vl_weight *w = int8(be, W, O, I, ct);
            void *xo = koperand(be, x, N, I, (enum vl_compute)ct);

            be->linear(be->ctx, y, xo, w, NULL, NULL, N);
            for (int i = 0; i < N * O; i++)
                if (i / O < 3)
                    assert_true(fabsf(y[i]) <= 1e-31f);
                else if (i / O == 3)
                    assert_true(fabsf(y[i] - 1e36f * W[i % O * I + 61]) <= 1e34f);
                else
                    assert_false(isfinite(y[i]));
            be->weight_free(be->ctx, w);
            free(xo);
        }
    free(x), free(W), free(y);
}

/* Elements half a digit above one are kept: no side is favoured. */
static void test_halves(void **state)
{
    enum { N = 3, O = 20, I = 300 };
    float *x = kzero(N * I), *W = krand(O * I, 1, 2), *y = kzero(N * O), *want = kzero(N * O);

    (void)state;
    for (int i = 0; i < N * I; i++)
        x[i] = i % I == 7 ? 127 : i / I == 1 ? -0.5f : 0.5f;
    for (int k = 0; k < kset.n; k++) {
        struct vl_backend *be = kset.be[k];
        struct vl_weight *w = int8(be, W, O, I, VL_COMPUTE_AMX);
        struct vl_weight *f = int8(be, W, O, I, VL_COMPUTE_F32);
        void *xo = koperand(be, x, N, I, VL_COMPUTE_AMX);

        be->linear(be->ctx, y, xo, w, NULL, NULL, N);
        be->linear(be->ctx, want, x, f, NULL, NULL, N);
        for (int i = 0; i < N * O; i++)
            assert_true(fabsf(y[i] - want[i]) < 1e-4f);
        be->weight_free(be->ctx, w);
        be->weight_free(be->ctx, f);
        free(xo);
    }
    free(x), free(W), free(y), free(want);
}

/* Sums have 32 bits: the widest reduction by the largest digits, and one that is refused. */
static void test_widest(void **state)
{
    int64_t I = VL_INT8_MOST;
    float *x = kzero(I), *W = kzero(I + 1), y;

    (void)state;
    for (int64_t i = 0; i < I; i++)
        x[i] = W[i] = 1;
    for (int k = 0; k < kset.n; k++) {
        struct vl_backend *be = kset.be[k];
        struct vl_weight *w = int8(be, W, 1, I, VL_COMPUTE_AMX);
        void *xo = koperand(be, x, 1, I, VL_COMPUTE_AMX);
        struct vl_err e = { 0 };

        be->linear(be->ctx, &y, xo, w, NULL, NULL, 1);
        be->weight_free(be->ctx, w);
        assert_true(fabsf(y - (float)I) < 0.1f);
        assert_int_equal(be->weight_new(be->ctx, &w, 1, I + 1, VL_COMPUTE_AMX, VL_FORM_INT8, &e),
                         VL_E_DATA);
        free(xo);
    }
    free(x), free(W);
}

/* Of whole numbers up to 127 the scales are 1, and the digits of rows are the numbers: the fused product
 * has the bits of full weights. */
static void test_gate_up(void **state)
{
    static const int64_t rows[] = { 1, 8, 17, 33, 97 }, widths[] = { 30, 64, 192 };
    enum { MOST = 97, C = 70, WIDEST = 192 };
    float *x = krand(MOST * C, 127, 1), *W = krand(2 * WIDEST * C, 127, 2);
    float *b = krand(2 * WIDEST, 1, 3), *gu = kzero(MOST * 2 * WIDEST);
    float *want_gu = kzero(MOST * 2 * WIDEST), *h = kzero(MOST * WIDEST),
          *want = kzero(MOST * WIDEST);

    (void)state;
    for (int64_t i = 0; i < MOST * C; i++)
        x[i] = i % C == i / C % C ? 127 : rintf(x[i]);
    for (int64_t i = 0; i < 2 * WIDEST * C; i++)
        W[i] = i % C == i / C % C ? 127 : rintf(W[i]);
    for (int k = 0; k < kset.n; k++)
        EACH_TYPE(ct)
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct vl_backend *be = kset.be[k];
        int64_t F = widths[i];
        struct vl_weight *w = int8(be, W, 2 * F, C, ct);
        struct vl_weight *full = kweight(be, W, 2 * F, C, (enum vl_compute)ct);
        void *xo = koperand(be, x, MOST, C, (enum vl_compute)ct);

        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            int64_t N = rows[r];
            size_t n = (size_t)N * be->operand_bytes(be->ctx, F, (enum vl_compute)ct);

            be->gate_up(be->ctx, want, want_gu, xo, full, b, N);
            be->gate_up(be->ctx, h, gu, xo, w, b, N);
            assert_memory_equal(h, want, n);
            assert_memory_equal(gu, want_gu, (size_t)(2 * N * F) * sizeof *gu);
            memset(h, 0, n);
            be->gate_up(be->ctx, h, NULL, xo, w, b, N);
            assert_memory_equal(h, want, n);
        }
        be->weight_free(be->ctx, w);
        be->weight_free(be->ctx, full);
        free(xo);
    }
    free(x), free(W), free(b), free(gu), free(want_gu), free(h), free(want);
}

static void run_all(struct vl_backend *be, struct vl_buf *out)
{
    int64_t M = 11, V = 1100, C = 40, K = 5;
    float *x = krand(M * C, 2, 1), *W = krand(V * C, 1, 2), *r = kzero(M * 4), *z = kzero(M * V);
    float *top = kzero(M * K);
    int32_t y[11], id[11], topid[11 * 5];
    double u[11];

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes - 1; i++) {
        int64_t N = shapes[i][0], O = shapes[i][1], I = shapes[i][2];
        float *a = krand(N * I, 1, 1), *w8 = weights(O, I), *to = kzero(N * O);

        EACH_TYPE(ct)
        {
            struct vl_weight *w = int8(be, w8, O, I, ct);
            void *ao = koperand(be, a, N, I, (enum vl_compute)ct);

            be->linear(be->ctx, to, ao, w, NULL, NULL, N);
            kput(out, to, N * O);
            be->weight_free(be->ctx, w);
            free(ao);
        }
        free(a), free(w8), free(to);
    }
    for (int i = 0; i < M; i++)
        y[i] = (int32_t)(i * 97 % V), u[i] = (i + 0.5) / 11;
    EACH_TYPE(ct)
    {
        struct vl_sampling how = { 0.7, 0.9, 50, 0 };
        struct vl_weight *w = int8(be, W, V, C, ct);

        be->head_logp(be->ctx, r, r + M, r + 2 * M, r + 3 * M, x, w, y, NULL, 0.7f, M);
        kput(out, r, 4 * M);
        be->head_logits(be->ctx, z, x, w, 0.7f, M);
        kput(out, z, M * V);
        be->head_topk(be->ctx, topid, top, r, x, w, y, 0.7f, K, M);
        kput(out, topid, M * K);
        kput(out, top, M * K);
        be->head_sample(be->ctx, id, r, r + M, x, w, u, &how, NULL, NULL, M);
        kput(out, id, M);
        kput(out, r, 2 * M);
        be->weight_free(be->ctx, w);
    }
    free(x), free(W), free(r), free(z), free(top);
}

static void test_isa(void **state)
{
    (void)state;
    ksame("weights of eight bits", run_all);
}

/* Each row alone against its place in batches of 1 .. 70 rows. */
static void test_row_alone(void **state)
{
    enum { O = 77, I = 150, MOST = 70, V = 600 };
    float *x = krand(MOST * I, 1, 1), *W = krand(V * I, 1, 2), *y = kzero(MOST * O);
    float *lp = kzero(MOST), y1[O], lp1;
    int32_t target[MOST];

    (void)state;
    for (int i = 0; i < MOST; i++)
        target[i] = i * 31 % V;
    for (int k = 0; k < kset.n; k++)
        EACH_TYPE(ct)
        {
            struct vl_backend *be = kset.be[k];
            struct vl_weight *w = int8(be, W, O, I, ct), *h = int8(be, W, V, I, ct);
            char *xo = koperand(be, x, MOST, I, (enum vl_compute)ct);
            size_t row = be->operand_bytes(be->ctx, I, (enum vl_compute)ct);

            for (int64_t N = 1; N <= MOST; N += k == 0 ? 23 : 1) {
                int64_t n = (N * 7 + k) % N;

                be->linear(be->ctx, y, xo, w, NULL, NULL, N);
                be->linear(be->ctx, y1, xo + (size_t)n * row, w, NULL, NULL, 1);
                assert_memory_equal(y + n * O, y1, sizeof y1);
                if (N % 9 != 1)
                    continue;
                be->head_logp(be->ctx, lp, NULL, NULL, NULL, x, h, target, NULL, 1, N);
                be->head_logp(be->ctx, &lp1, NULL, NULL, NULL, x + n * I, h, target + n, NULL, 1,
                              1);
                assert_memory_equal(lp + n, &lp1, 4);
            }
            be->weight_free(be->ctx, w);
            be->weight_free(be->ctx, h);
            free(xo);
        }
    free(x), free(W), free(y), free(lp);
}

/* Rows packed in blocks are the matrix packed at once. */
static void test_blocks(void **state)
{
    enum { O = 3 * VL_BLOCK_ROWS + 5, I = 37, N = 3 };
    float *x = krand(N * I, 1, 1), *W = weights(O, I), *y = kzero(N * O), *want = kzero(N * O);

    (void)state;
    for (int k = 0; k < kset.n; k++)
        EACH_TYPE(ct)
        {
            struct vl_backend *be = kset.be[k];
            struct vl_weight *w = int8(be, W, O, I, ct), *p;
            void *xo = koperand(be, x, N, I, (enum vl_compute)ct);
            struct vl_err e = { 0 };

            assert_int_equal(
                be->weight_new(be->ctx, &p, O, I, (enum vl_compute)ct, VL_FORM_INT8, &e), 0);
            be->weight_rows(be->ctx, p, W + 2 * VL_BLOCK_ROWS * I, 2 * VL_BLOCK_ROWS,
                            O - 2 * VL_BLOCK_ROWS);
            be->weight_rows(be->ctx, p, W, 0, 2 * VL_BLOCK_ROWS);
            be->linear(be->ctx, want, xo, w, NULL, NULL, N);
            be->linear(be->ctx, y, xo, p, NULL, NULL, N);
            assert_memory_equal(y, want, N * O * sizeof *y);
            be->weight_free(be->ctx, w);
            be->weight_free(be->ctx, p);
            free(xo);
        }
    free(x), free(W), free(y), free(want);
}

/* Each weight is off by half a scale at most, and so is the product; half types round x as well. */
static void test_error(void **state)
{
    enum { N = 5, O = 90, I = 500 };
    struct vl_backend *be = kbest();
    float *x = krand(N * I, 1, 1), *W = krand(O * I, 1, 2), *y = kzero(N * O), *full = kzero(N * O);
    struct vl_weight *f = kweight(be, W, O, I, VL_COMPUTE_F32);
    double sum = 0, err = 0;

    (void)state;
    be->linear(be->ctx, full, x, f, NULL, NULL, N);
    EACH_TYPE(ct)
    {
        struct vl_weight *w = int8(be, W, O, I, ct);
        void *xo = koperand(be, x, N, I, (enum vl_compute)ct);

        be->linear(be->ctx, y, xo, w, NULL, NULL, N);
        for (int n = 0; n < N; n++)
            for (int o = 0; o < O; o++) {
                double s = 0, a = 0, d = y[n * O + o] - full[n * O + o];

                for (int i = 0; i < I; i++) {
                    s = fmax(s, fabs((double)W[o * I + i]) / 127);
                    a += fabs((double)x[n * I + i]);
                }
                assert_true(fabs(d) <= a * s * 0.501 + (ct ? a * 0x1p-8 : 0));
                err += d * d, sum += (double)full[n * O + o] * full[n * O + o];
            }
        be->weight_free(be->ctx, w);
        free(xo);
    }
    assert_true(sqrt(err / sum) < 0.01);
    assert_true(be->weight_bytes(be->ctx, 576, 1536, VL_COMPUTE_BF16, VL_FORM_INT8) * 100 <
                be->weight_bytes(be->ctx, 576, 1536, VL_COMPUTE_BF16, VL_FORM_PLAIN) * 51);
    be->weight_free(be->ctx, f);
    free(x), free(W), free(y), free(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule),      cmocka_unit_test(test_isa),
        cmocka_unit_test(test_row_alone), cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_error),     cmocka_unit_test(test_gate_up),
        cmocka_unit_test(test_odd_rows),  cmocka_unit_test(test_halves),
        cmocka_unit_test(test_widest),
    };

    return cmocka_run_group_tests(tests, kset_open, kset_close);
}
