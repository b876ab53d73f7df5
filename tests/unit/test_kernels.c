/* Exactness of the CPU backend: every operation gives the same bits on every instruction set and
 * thread count, for a row alone and in any batch, for keys in pages and not, for any cut. */
#include "tests/unit/kernels.h"

struct shape {
    int64_t N, O, I;
};

static void run_linear(struct vl_backend *be, struct vl_buf *out)
{
    static const struct shape shapes[] = { { 1, 1, 1 },    { 2, 14, 33 },  { 7, 64, 16 },
                                           { 13, 65, 47 }, { 70, 100, 8 }, { 25, 31, 1100 },
                                           { 3, 200, 129 } };

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t N = shapes[i].N, O = shapes[i].O, I = shapes[i].I;
        float *x = krand(N * I, 1, 1), *W = krand(O * I, 1, 2), *dy = krand(N * O, 1, 3);
        float *b = krand(O, 1, 4), *y = kzero(N * O), *dx = krand(N * I, 1, 5);
        float *dw = krand(O * I, 1, 6), *db = krand(O, 1, 7), *again = kzero(O * I);

        for (int ct = 0; ct < VL_COMPUTES; ct++) {
            struct vl_weight *w = kweight(be, W, O, I, (enum vl_compute)ct);
            void *xo = koperand(be, x, N, I, (enum vl_compute)ct);
            void *dyo = koperand(be, dy, N, O, (enum vl_compute)ct);
            int64_t from[] = { 0, N / 3, N / 3, N };
            struct vl_runs runs = { 3, from };

            kput(out, xo, koperand_words(be, N, I, (enum vl_compute)ct));
            be->linear(be->ctx, y, xo, w, b, NULL, N);
            kput(out, y, N * O);
            be->linear(be->ctx, y, xo, w, NULL, dy, N);
            kput(out, y, N * O);
            be->linear_dx(be->ctx, dx, dyo, w, N);
            kput(out, dx, N * I);
            be->linear_dw(be->ctx, dw, dyo, xo, N, O, I, (enum vl_compute)ct, &runs, 1);
            kput(out, dw, O * I);
            memset(again, 0, (size_t)(O * I) * 4);
            be->linear_dw(be->ctx, again, dyo, xo, N, O, I, (enum vl_compute)ct, &runs, 1);
            be->linear_dw(be->ctx, dw, dyo, xo, N, O, I, (enum vl_compute)ct, &runs, 0);
            assert_memory_equal(dw, again, (size_t)(O * I) * 4);
            be->linear_db(be->ctx, db, dyo, N, O, (enum vl_compute)ct);
            kput(out, db, O);
            be->weight_free(be->ctx, w);
            free(xo), free(dyo);
        }
        free(x), free(W), free(dy), free(b), free(y), free(dx), free(dw), free(db), free(again);
    }
}

/* Shapes large enough that several threads and blocks take part. */
static void run_linear_big(struct vl_backend *be, struct vl_buf *out)
{
    int64_t N = 60, O = 150, I = 120;
    float *x = krand(N * I, 1, 1), *W = krand(O * I, 1, 2), *dy = krand(N * O, 1, 3);
    float *y = kzero(N * O), *dx = kzero(N * I), *dw = kzero(O * I);
    struct vl_weight *w = kweight(be, W, O, I, VL_COMPUTE_F32);

    be->linear(be->ctx, y, x, w, NULL, NULL, N);
    be->linear_dx(be->ctx, dx, dy, w, N);
    be->linear_dw(be->ctx, dw, dy, x, N, O, I, VL_COMPUTE_F32, NULL, 1);
    kput(out, y, N * O);
    kput(out, dx, N * I);
    kput(out, dw, O * I);
    be->weight_free(be->ctx, w);
    free(x), free(W), free(dy), free(y), free(dx), free(dw);
}

/* The products around SwiGLU; widths of h that whole panels make up and others, rows beyond a tile. */
static void run_mlp(struct vl_backend *be, struct vl_buf *out)
{
    static const struct shape shapes[] = {
        { 3, 20, 7 }, { 5, 128, 20 }, { 1, 64, 33 }, { 210, 192, 48 }, { 100, 81, 9 }
    }; /* N, F, C */

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t N = shapes[i].N, F = shapes[i].O, C = shapes[i].I;
        float *x = krand(N * C, 1, 1), *W = krand(2 * F * C, 1, 2), *b = krand(2 * F, 1, 3);
        float *Wd = krand(C * F, 1, 4), *gu = kzero(2 * N * F);

        for (int k = 0; k < VL_COMPUTES; k++) {
            enum vl_compute ct = (enum vl_compute)k;
            struct vl_weight *w = kweight(be, W, 2 * F, C, ct), *down = kweight(be, Wd, C, F, ct);
            int64_t h_words = koperand_words(be, N, F, ct);
            int64_t dgu_words = koperand_words(be, N, 2 * F, ct);
            float *xo = koperand(be, x, N, C, ct), *h = krand(h_words, 1, 5);
            float *again = krand(h_words, 1, 6), *dgu = krand(dgu_words, 1, 7);

            be->gate_up(be->ctx, h, gu, xo, w, b, N);
            kput(out, gu, 2 * N * F);
            be->gate_up(be->ctx, again, NULL, xo, w, b, N);
            assert_memory_equal(h, again, (size_t)h_words * 4);
            kfill(again, h_words, 1, 8);
            be->gate_up_bwd(be->ctx, dgu, again, xo, down, gu, N);
            assert_memory_equal(h, again, (size_t)h_words * 4);
            kput(out, dgu, dgu_words);
            be->gate_up(be->ctx, h, NULL, xo, w, NULL, N);
            kput(out, h, h_words);
            be->weight_free(be->ctx, w);
            be->weight_free(be->ctx, down);
            free(xo), free(h), free(again), free(dgu);
        }
        free(x), free(W), free(b), free(Wd), free(gu);
    }
}

static void run_rows(struct vl_backend *be, struct vl_buf *out)
{
    for (int64_t C = 1; C < 140; C = C * 2 + 3) {
        int64_t N = 23;
        int32_t ids[23];
        float *x = krand(N * 2 * C, 3, 1), *w = krand(C, 1, 2), *dy = krand(N * 2 * C, 1, 3);
        float *y = kzero(N * 2 * C), *rstd = kzero(2 * N), *dw = krand(C, 1, 4);
        float *E = krand(5 * C, 1, 5), *x0 = kzero(N * 2 * C);

        for (int ct = 0; ct < VL_COMPUTES; ct++) {
            int64_t words = koperand_words(be, N, C, (enum vl_compute)ct);
            float *a = krand(words, 1, 6), *b = krand(words, 1, 7);

            be->rmsnorm(be->ctx, a, rstd, x, w, N, C, 1e-5f, (enum vl_compute)ct);
            kput(out, a, words);
            kput(out, rstd, N);
            be->rmsnorm_bwd(be->ctx, y, dw, b, dy, x, w, rstd, N, C, ct == 0, (enum vl_compute)ct);
            assert_memory_equal(a, b, (size_t)words * 4);
            kput(out, y, N * C);
            kput(out, dw, C);
            free(a), free(b);
        }
        memcpy(y, x, (size_t)(N * 2 * C) * 4); /* two heads */
        be->head_norm(be->ctx, y, 2 * C, x0, rstd, w, N, 2, (int32_t)C, 1e-5f);
        assert_memory_equal(x0, x, (size_t)(N * 2 * C) * 4);
        kput(out, y, N * 2 * C);
        memcpy(y, dy, (size_t)(N * 2 * C) * 4);
        be->head_norm_bwd(be->ctx, y, 2 * C, dw, x0, w, rstd, N, 2, (int32_t)C);
        kput(out, y, N * 2 * C);
        kput(out, dw, C);
        for (int i = 0; i < N; i++)
            ids[i] = i * 7 % 5;
        be->embed_dw(be->ctx, E, dy, ids, N, C);
        kput(out, E, 5 * C);
        be->embed(be->ctx, y, E, ids, N, C);
        kput(out, y, N * C);
        free(x0), free(x), free(w), free(dy), free(y), free(rstd), free(dw), free(E);
    }
}

static void run_rope(struct vl_backend *be, struct vl_buf *out)
{
    for (int32_t D = 2; D <= 70; D += 17 + D % 2) {
        int32_t pos[9] = { 0, 1, 2, 3, 29, 4, 17, 0, 5 }, heads = 3;
        int64_t stride = heads * D + 5;
        float *x = krand(9 * stride, 1, 1), *table = krand(30 * D, 1, 2);

        D -= D % 2;
        be->rope(be->ctx, x, stride, table, pos, 9, heads, D, 1);
        kput(out, x, 9 * stride);
        be->rope(be->ctx, x, stride, table, pos, 9, heads, D, -1);
        kput(out, x, 9 * stride);
        free(x), free(table);
    }
}

#define ATTN(h, k, d, w, s)                                                                        \
    {                                                                                              \
        .H = h, .K = k, .D = d, .window = w, .scale = s                                            \
    }
static const struct vl_attn attns[] = {
    ATTN(4, 4, 8, 0, 0.35f),   ATTN(4, 2, 32, 0, 0.17f),   ATTN(6, 2, 20, 5, 0.2f),
    ATTN(3, 1, 16, 16, 0.25f), ATTN(2, 1, 64, 40, 0.125f), ATTN(1, 1, 3, 1, 1),
};
#define ATTNS (int)(sizeof attns / sizeof *attns)

/* Number i of all shapes in all types. */
static struct vl_attn attn(int i)
{
    struct vl_attn a = attns[i % ATTNS];

    a.ct = (enum vl_compute)(i / ATTNS);
    return a;
}
#define ALL_ATTNS (ATTNS * VL_COMPUTES)

static const int32_t lengths[] = { 1, 2, 15, 16, 17, 31, 63, 66, 5, 24 };
#define LENGTHS (int)(sizeof lengths / sizeof *lengths)

static void run_attention(struct vl_backend *be, struct vl_buf *out)
{
    struct vl_seq seq[LENGTHS];
    int64_t N = 0;

    for (int i = 0; i < LENGTHS; i++) {
        seq[i] = (struct vl_seq){ .row = N, .n = lengths[i] };
        N += lengths[i];
    }
    for (int i = 0; i < ALL_ATTNS; i++) {
        const struct vl_attn one_attn = attn(i), *a = &one_attn;
        int64_t W = (a->H + 2 * a->K) * a->D, O = a->H * a->D;
        float *qkv = krand(N * W, 2, 1), *o = kzero(N * O), *lse = kzero(N * a->H);
        float *dout = krand(N * O, 1, 2), *dqkv = kzero(N * W);

        be->attention(be->ctx, o, lse, qkv, NULL, NULL, seq, LENGTHS, a);
        be->attention_bwd(be->ctx, dqkv, dout, o, lse, qkv, seq, LENGTHS, a);
        kput(out, o, N * O);
        kput(out, lse, N * a->H);
        kput(out, dqkv, N * W);
        free(qkv), free(o), free(lse), free(dout), free(dqkv);
    }
}

/* Few long sequences, whose gradient threads share; three have a prefix in common. */
static void run_attention_long(struct vl_backend *be, struct vl_buf *out)
{
    static const struct vl_seq seq[] = { { .n = 270 },
                                         { .row = 270, .n = 10, .pos = 270 },
                                         { .row = 280, .n = 300, .pos = 270 },
                                         { .row = 580, .n = 513 } };
    struct vl_attn a = { .H = 3, .K = 1, .D = 16, .scale = 0.25f };
    int64_t N = 1093, W = (a.H + 2 * a.K) * a.D, O = a.H * a.D;
    float *qkv = krand(N * W, 2, 1), *o = kzero(N * O), *lse = kzero(N * a.H);
    float *dout = krand(N * O, 1, 2), *dqkv = kzero(N * W);

    for (int i = 0; i < 2 * VL_COMPUTES; i++) {
        a.ct = (enum vl_compute)(i / 2);
        a.window = i % 2 ? 150 : 0;
        be->attention(be->ctx, o, lse, qkv, NULL, NULL, seq, 4, &a);
        be->attention_bwd(be->ctx, dqkv, dout, o, lse, qkv, seq, 4, &a);
        kput(out, o, N * O);
        kput(out, dqkv, N * W);
    }
    free(qkv), free(o), free(lse), free(dout), free(dqkv);
}

static void run_head(struct vl_backend *be, struct vl_buf *out)
{
    for (int big = 0; big < 2; big++) {
        int64_t M = 11, V = big ? 1100 : 14, C = 40;
        float *x = krand(M * C, 2, 1), *W = krand(V * C, 1, 2), *r = kzero(M * 4);
        float *dlogp = krand(M, 1, 3), *dent = krand(M, 1, 4), *dx = kzero(M * C);
        float *dw = krand(V * C, 1, 5), *z = kzero(M * V);
        int32_t y[11];

        for (int i = 0; i < M; i++)
            y[i] = (int32_t)(i * 97 % V);
        for (int ct = 0; ct < VL_COMPUTES; ct++) {
            struct vl_weight *w = kweight(be, W, V, C, (enum vl_compute)ct);

            be->head_logp(be->ctx, r, r + M, r + 2 * M, r + 3 * M, x, w, y, NULL, 0.7f, M);
            kput(out, r, 4 * M);
            be->head_bwd(be->ctx, dx, dw, x, w, y, r + 2 * M, r + M, dlogp, dent, NULL, NULL, 0.7f,
                         M, 1);
            kput(out, dx, M * C);
            kput(out, dw, V * C);
            be->head_logits(be->ctx, z, x, w, 0.7f, M);
            kput(out, z, M * V);
            be->weight_free(be->ctx, w);
        }
        free(x), free(W), free(r), free(dlogp), free(dent), free(dx), free(dw), free(z);
    }
}

static void run_optim(struct vl_backend *be, struct vl_buf *out)
{
    int64_t n = 9001, changed = 0;
    float *p = krand(n, 1, 1), *m = krand(n, 1, 2), *v = krand(n, 1, 3), *g = krand(n, 1, 4);
    struct vl_adamw o = { 1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 3, 0.5f, 0 };
    double s;

    for (int64_t i = 0; i < n; i++)
        v[i] = v[i] * v[i];
    be->adamw(be->ctx, p, m, v, NULL, g, n, &o, NULL, 0, &changed);
    s = be->sumsq(be->ctx, g, n);
    kput(out, p, n);
    kput(out, m, n);
    kput(out, v, n);
    kput(out, &s, 2);
    kput(out, &changed, 2);
    free(p), free(m), free(v), free(g);
}

static void test_isa(void **state)
{
    (void)state;
    ksame("linear", run_linear);
    ksame("linear of several blocks", run_linear_big);
    ksame("rows", run_rows);
    ksame("mlp", run_mlp);
    ksame("rope", run_rope);
    ksame("attention", run_attention);
    ksame("attention over long sequences", run_attention_long);
    ksame("head", run_head);
    ksame("optimizer", run_optim);
}

/* Each row alone against its place in batches of 1 .. 70 rows. */
static void test_row_alone(void **state)
{
    enum { O = 37, I = 50, MOST = 70, V = 600 };
    float *x = krand(MOST * I, 1, 1), *W = krand(V * I, 1, 2), *dy = krand(MOST * O, 1, 3);
    float *y = kzero(MOST * O), *dx = kzero(MOST * I), *lp = kzero(MOST), *ent = kzero(MOST);
    float y1[O], dx1[I], lp1, ent1;
    int32_t target[MOST];

    (void)state;
    for (int i = 0; i < MOST; i++)
        target[i] = i * 31 % V;
    for (int k = 0; k < kset.n; k++)
        for (int ct = 0; ct < VL_COMPUTES; ct++) {
            struct vl_backend *be = kset.be[k];
            struct vl_weight *w = kweight(be, W, O, I, (enum vl_compute)ct);
            struct vl_weight *h = kweight(be, W, V, I, (enum vl_compute)ct);
            char *xo = koperand(be, x, MOST, I, (enum vl_compute)ct);
            char *dyo = koperand(be, dy, MOST, O, (enum vl_compute)ct);
            size_t xb = be->operand_bytes(be->ctx, I, (enum vl_compute)ct);
            size_t dyb = be->operand_bytes(be->ctx, O, (enum vl_compute)ct);

            for (int64_t N = 1; N <= MOST; N += k == 0 ? 23 : 1) {
                int64_t n = (N * 7 + k) % N;

                be->linear(be->ctx, y, xo, w, NULL, NULL, N);
                be->linear(be->ctx, y1, xo + n * (int64_t)xb, w, NULL, NULL, 1);
                assert_memory_equal(y + n * O, y1, sizeof y1);
                be->linear_dx(be->ctx, dx, dyo, w, N);
                be->linear_dx(be->ctx, dx1, dyo + n * (int64_t)dyb, w, 1);
                assert_memory_equal(dx + n * I, dx1, sizeof dx1);
                if (N % 9 == 1) {
                    be->head_logp(be->ctx, lp, ent, NULL, NULL, x, h, target, NULL, 1, N);
                    be->head_logp(be->ctx, &lp1, &ent1, NULL, NULL, x + n * I, h, target + n, NULL,
                                  1, 1);
                    assert_memory_equal(lp + n, &lp1, 4);
                    assert_memory_equal(ent + n, &ent1, 4);
                }
            }
            be->weight_free(be->ctx, w);
            be->weight_free(be->ctx, h);
            free(xo), free(dyo);
        }
    free(x), free(W), free(dy), free(y), free(dx), free(lp), free(ent);
}

/* In the half types sums over rows do not depend on where the batch is cut between sequences. */
static void test_half_cuts(void **state)
{
    enum { N = 2300, O = 20, I = 70, V = 530, SEQS = 7 };
    static const int64_t from[SEQS + 1] = { 0, 1, 34, 34, 134, 2190, 2233, N };
    struct vl_backend *be = kbest();
    float *x = krand(N * I, 1, 1), *dy = krand(N * O, 1, 2), *W = krand(V * I, 1, 3);
    float *a = kzero(V * I), *b = kzero(V * I), *dx = kzero(N * I);
    float *lse = krand(N, 1, 5), *dlogp = krand(N, 1, 6);
    int32_t *y = vl_alloc(N * sizeof *y);

    (void)state;
    for (int i = 0; i < N; i++)
        y[i] = i * 5 % 513, lse[i] += 6;
    for (int k = 0; k < 4; k++) {
        enum vl_compute ct = k % 2 ? VL_COMPUTE_AMX : VL_COMPUTE_BF16;
        struct vl_weight *w = kweight(be, W, V, I, ct);

        memset(a, 0, V * I * sizeof *a);
        memset(b, 0, V * I * sizeof *b);
        for (int pass = 0; pass < 2; pass++)
            for (int64_t i = 0, m; i < SEQS; i += m) {
                int64_t own[SEQS + 1], n = from[i], rows;
                struct vl_runs runs = { .from = own };
                float *to = pass ? b : a;

                m = runs.n = !pass ? SEQS : i ? 2 : 1;
                for (int64_t j = 0; j <= m; j++)
                    own[j] = from[i + j] - n;
                rows = own[m];
                if (k < 2) {
                    void *dyo = koperand(be, dy + n * O, rows, O, ct);
                    void *xo = koperand(be, x + n * I, rows, I, ct);

                    be->linear_dw(be->ctx, to, dyo, xo, rows, O, I, ct, &runs, 1);
                    free(dyo), free(xo);
                } else {
                    be->head_bwd(be->ctx, dx, to, x + n * I, w, y + n, lse + n, NULL, dlogp + n,
                                 NULL, NULL, &runs, 1, rows, 1);
                }
            }
        assert_memory_equal(a, b, V * I * sizeof *a);
        assert_true(a[0] != 0);
        be->weight_free(be->ctx, w);
    }
    free(x), free(dy), free(W), free(a), free(b), free(dx), free(lse), free(dlogp), free(y);
}

/* Nor where sequences are so short that their blocks, mostly zeros, are taken in pieces. */
static void test_half_short(void **state)
{
    enum { N = 600, O = 20, I = 70, SEQS = 200 };
    struct vl_backend *be = kbest();
    float *x = krand(N * I, 1, 1), *dy = krand(N * O, 1, 2);
    float *a = kzero(O * I), *b = kzero(O * I);
    int64_t from[SEQS + 1] = { 0 };

    (void)state;
    for (int i = 0; i < SEQS; i++)
        from[i + 1] = from[i] + (i == 100 ? 99 : i % 5 == 4 ? 1 : 2);
    assert_true(from[SEQS] <= N);
    for (int ct = VL_COMPUTE_F32 + 1; ct < VL_COMPUTES; ct++) {
        char *xo = koperand(be, x, from[SEQS], I, (enum vl_compute)ct);
        char *dyo = koperand(be, dy, from[SEQS], O, (enum vl_compute)ct);
        int64_t xb = (int64_t)be->operand_bytes(be->ctx, I, (enum vl_compute)ct);
        int64_t dyb = (int64_t)be->operand_bytes(be->ctx, O, (enum vl_compute)ct);

        memset(b, 0, O * I * sizeof *b);
        be->linear_dw(be->ctx, a, dyo, xo, from[SEQS], O, I, (enum vl_compute)ct,
                      &(struct vl_runs){ SEQS, from }, 0);
        for (int i = 0; i < SEQS; i++)
            be->linear_dw(be->ctx, b, dyo + from[i] * dyb, xo + from[i] * xb, from[i + 1] - from[i],
                          O, I, (enum vl_compute)ct, NULL, 1);
        free(xo), free(dyo);
        assert_memory_equal(a, b, O * I * sizeof *a);
    }
    free(x), free(dy), free(a), free(b);
}

/* Sums over rows do not depend on where the batch is cut. */
static void test_cuts(void **state)
{
    enum { N = 41, O = 20, I = 70, V = 700 };
    struct vl_backend *be = kbest();
    float *x = krand(N * I, 1, 1), *dy = krand(N * I, 1, 2), *W = krand(V * I, 1, 3);
    float *a = kzero(V * I), *b = kzero(V * I), *dx = kzero(N * I), *rstd = krand(N, 1, 4);
    float *lse = krand(N, 1, 5), *dlogp = krand(N, 1, 6);
    struct vl_weight *w = kweight(be, W, V, I, VL_COMPUTE_F32);
    int32_t y[N];

    (void)state;
    for (int i = 0; i < N; i++)
        y[i] = i * 5 % 13, lse[i] += 6;
    for (int op = 0; op < 5; op++) {
        memset(a, 0, V * I * sizeof *a);
        memset(b, 0, V * I * sizeof *b);
        for (int pass = 0; pass < 2; pass++)
            for (int64_t n = 0, k; n < N; n += k) {
                float *to = pass ? b : a;

                k = pass ? 1 + n % 6 : N;
                k = k < N - n ? k : N - n;
                if (op == 0)
                    be->linear_dw(be->ctx, to, dy + n * O, x + n * I, k, O, I, VL_COMPUTE_F32, NULL,
                                  1);
                if (op == 1)
                    be->linear_db(be->ctx, to, dy + n * O, k, O, VL_COMPUTE_F32);
                if (op == 2)
                    be->rmsnorm_bwd(be->ctx, dx, to, NULL, dy + n * I, x + n * I, W, rstd + n, k, I,
                                    0, VL_COMPUTE_F32);
                if (op == 3)
                    be->embed_dw(be->ctx, to, x + n * I, y + n, k, I);
                if (op == 4)
                    be->head_bwd(be->ctx, dx, to, x + n * I, w, y + n, lse + n, NULL, dlogp + n,
                                 NULL, NULL, NULL, 1, k, 1);
            }
        assert_memory_equal(a, b, V * I * sizeof *a);
    }
    be->weight_free(be->ctx, w);
    free(x), free(dy), free(W), free(a), free(b), free(dx), free(rstd), free(lse), free(dlogp);
}

/* One sequence of T rows: whole and unpaged against pages filled in steps, beside another one. */
static void paged_case(struct vl_backend *be, const struct vl_attn *a, int32_t T, int32_t chunk)
{
    enum { PAGES = 40 };
    int64_t W = (a->H + 2 * a->K) * a->D, O = a->H * a->D;
    int64_t page = (int64_t)(be->kv_bytes(be->ctx, a) / sizeof(float));
    float *qkv = krand(T * W, 2, 1), *want = kzero(T * O), *lse = kzero(T * a->H);
    float *kc = krand(PAGES * page, 1, 8), *vc = krand(PAGES * page, 1, 9);
    float *rows = kzero((chunk + 1) * W), *got = kzero((chunk + 1) * O);
    float *lse2 = kzero((chunk + 1) * a->H);
    struct vl_seq whole = { .row = 0, .n = T }, step[2];
    int32_t map[PAGES], other[1] = { 0 };

    for (int i = 0; i < PAGES; i++)
        map[i] = (i * 7 + 3) % (PAGES - 1) + 1;
    memset(kc + 2 * page, 0xff, (size_t)page * 4); /* NaN where nothing was stored yet */
    be->attention(be->ctx, want, lse, qkv, NULL, NULL, &whole, 1, a);
    for (int32_t t = 0, n; t < T; t += n) {
        n = chunk < T - t ? chunk : T - t;
        /* a stranger's row first */
        memcpy(rows, qkv + (T - 1) * W, (size_t)W * 4);
        memcpy(rows + W, qkv + t * W, (size_t)(n * W) * 4);
        step[0] = (struct vl_seq){ .row = 0, .n = 1, .pos = 0, .page = other };
        step[1] = (struct vl_seq){ .row = 1, .n = n, .pos = t, .page = map };
        be->kv_store(be->ctx, kc, vc, rows, step, 2, a);
        be->attention(be->ctx, got, lse2, rows, kc, vc, step, 2, a);
        assert_memory_equal(got + O, want + t * O, (size_t)(n * O) * 4);
        assert_memory_equal(lse2 + a->H, lse + t * a->H, (size_t)(n * a->H) * 4);
        if (t == 0) { /* the first page moves elsewhere, as when samples share a prompt */
            be->kv_copy(be->ctx, kc, PAGES - 1 == map[0] ? 1 : PAGES - 1, map[0], a);
            be->kv_copy(be->ctx, vc, PAGES - 1 == map[0] ? 1 : PAGES - 1, map[0], a);
        }
    }
    free(qkv), free(want), free(lse), free(kc), free(vc), free(rows), free(got), free(lse2);
}

static void test_paged(void **state)
{
    (void)state;
    for (int i = 0; i < ALL_ATTNS; i++)
        for (int k = 0; k < kset.n; k++) {
            struct vl_attn a = attn(i);

            paged_case(kset.be[k], &a, k == 0 ? 35 : 130, 1);
            paged_case(kset.be[k], &a, k == 0 ? 50 : 130, 7);
            paged_case(kset.be[k], &a, k == 0 ? 50 : 130, 64);
        }
}

/* A sequence alone and as the middle of a batch, forward and backward. */
static void test_attention_alone(void **state)
{
    struct vl_backend *be = kbest();

    (void)state;
    for (int i = 0; i < ALL_ATTNS; i++) {
        const struct vl_attn one_attn = attn(i), *a = &one_attn;
        int64_t W = (a->H + 2 * a->K) * a->D, O = a->H * a->D;

        for (int32_t T = 1; T <= 130; T += T < 36 ? 1 : 13) {
            int64_t N = T + 25;
            struct vl_seq one = { .n = T },
                          all[] = { { .n = 18 }, { .row = 18, .n = T }, { .row = 18 + T, .n = 7 } };
            float *qkv = krand(N * W, 2, 1), *dout = krand(N * O, 1, 2);
            float *o = kzero(N * O), *lse = kzero(N * a->H), *d = kzero(N * W);
            float *o1 = kzero(T * O), *lse1 = kzero(T * a->H), *d1 = kzero(T * W);

            be->attention(be->ctx, o, lse, qkv, NULL, NULL, all, 3, a);
            be->attention_bwd(be->ctx, d, dout, o, lse, qkv, all, 3, a);
            be->attention(be->ctx, o1, lse1, qkv + 18 * W, NULL, NULL, &one, 1, a);
            be->attention_bwd(be->ctx, d1, dout + 18 * O, o1, lse1, qkv + 18 * W, &one, 1, a);
            assert_memory_equal(o1, o + 18 * O, (size_t)(T * O) * 4);
            assert_memory_equal(lse1, lse + 18 * a->H, (size_t)(T * a->H) * 4);
            assert_memory_equal(d1, d + 18 * W, (size_t)(T * W) * 4);
            free(qkv), free(dout), free(o), free(lse), free(d), free(o1), free(lse1), free(d1);
        }
    }
}

static void close_rows(const float *a, const float *b, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        assert_true(fabsf(a[j] - b[j]) < 2e-5f * (1 + fabsf(b[j])));
}

/* Sequences of a shared prefix of P rows and own ones: what each row gives is what it gives in a
 * sequence of its own, and so are the gradients of its own rows (those of keys and values in the half
 * types but for the order of sums, which begins at the sequence); the prefix's are sums. */
static void shared_case(struct vl_backend *be, const struct vl_attn *a, int32_t P)
{
    enum { SHARERS = 3 };
    static const int32_t own[SHARERS] = { 1, 30, 17 };
    int64_t W = (a->H + 2 * a->K) * a->D, O = a->H * a->D, N = P + 48;
    float *qkv = krand(N * W, 2, 1), *dout = krand(N * O, 1, 2), *all = kzero((P + 30) * W);
    float *o = kzero(N * O), *lse = kzero(N * a->H), *d = kzero(N * W), *sum = kzero(P * W);
    float *o1 = kzero((P + 30) * O), *lse1 = kzero((P + 30) * a->H), *d1 = kzero((P + 30) * W);
    struct vl_seq seq[1 + SHARERS] = { { .n = P } };
    int64_t at = P;

    for (int i = 0; i < SHARERS; at += own[i++])
        seq[i + 1] = (struct vl_seq){ .row = at, .n = own[i], .pos = P };
    be->attention(be->ctx, o, lse, qkv, NULL, NULL, seq, 1 + SHARERS, a);
    be->attention_bwd(be->ctx, d, dout, o, lse, qkv, seq, 1 + SHARERS, a);
    for (int i = 0; i <= SHARERS; i++) {
        int32_t n = i ? own[i - 1] : 0;
        int64_t row = i ? seq[i].row : 0;
        struct vl_seq one = { .n = P + n };
        float *dout1 = kzero((P + n) * O); /* the prefix's own gradient counts once, at i = 0 */

        memcpy(all, qkv, (size_t)(P * W) * 4);
        memcpy(all + P * W, qkv + row * W, (size_t)(n * W) * 4);
        memcpy(dout1, dout, i ? 0 : (size_t)(P * O) * 4);
        memcpy(dout1 + P * O, dout + row * O, (size_t)(n * O) * 4);
        be->attention(be->ctx, o1, lse1, all, NULL, NULL, &one, 1, a);
        be->attention_bwd(be->ctx, d1, dout1, o1, lse1, all, &one, 1, a);
        assert_memory_equal(o1, o, (size_t)(P * O) * 4);
        assert_memory_equal(o1 + P * O, o + row * O, (size_t)(n * O) * 4);
        assert_memory_equal(lse1 + P * a->H, lse + row * a->H, (size_t)(n * a->H) * 4);
        for (int64_t j = 0; j < n; j++)
            assert_memory_equal(d1 + (P + j) * W, d + (row + j) * W,
                                (size_t)(a->ct == VL_COMPUTE_F32 ? W : O) * 4);
        close_rows(d1 + P * W, d + row * W, n * W);
        for (int64_t j = 0; j < P * W; j++)
            sum[j] += d1[j];
        free(dout1);
    }
    close_rows(sum, d, P * W);
    free(qkv), free(dout), free(all), free(o), free(lse), free(d), free(sum), free(o1), free(lse1),
        free(d1);
}

static void test_attention_shared(void **state)
{
    (void)state;
    for (int i = 0; i < ALL_ATTNS; i++)
        for (int k = 0; k < kset.n; k++) {
            struct vl_attn a = attn(i);

            shared_case(kset.be[k], &a, 1);
            shared_case(kset.be[k], &a, 16);
            shared_case(kset.be[k], &a, k == 0 ? 21 : 53);
        }
}

/* Non-finite values at a later position or in another sequence change nothing before them; nor do
 * those that have left the window. */
static void test_attention_causal(void **state)
{
    (void)state;
    for (int i = 0; i < ALL_ATTNS; i++) {
        const struct vl_attn one_attn = attn(i), *a = &one_attn;
        int64_t W = (a->H + 2 * a->K) * a->D, O = a->H * a->D, N = 60;
        struct vl_seq seq[] = { { .n = 40 }, { .row = 40, .n = 20 } };
        float *qkv = krand(N * W, 2, 1), *want = kzero(N * O), *got = kzero(N * O);

        for (int k = 0; k < kset.isas; k++)
            for (int64_t bad = 39; bad > 0; bad -= 11) {
                struct vl_backend *be = kset.be[k];
                int64_t out = a->window && bad + a->window < 40 ? bad + a->window : 40;

                be->attention(be->ctx, want, NULL, qkv, NULL, NULL, seq, 2, a);
                for (int64_t x = 0; x < W; x++)
                    qkv[bad * W + x] = x % 2 ? NAN : INFINITY;
                be->attention(be->ctx, got, NULL, qkv, NULL, NULL, seq, 2, a);
                assert_memory_equal(want, got, (size_t)(bad * O) * 4);
                assert_memory_equal(want + out * O, got + out * O, (size_t)((N - out) * O) * 4);
                assert_true(isnan(got[bad * O]));
                for (int64_t x = 0; x < W; x++) /* values alone: they reach who sees them */
                    qkv[bad * W + x] = x < (a->H + a->K) * a->D ? 1 : NAN;
                be->attention(be->ctx, got, NULL, qkv, NULL, NULL, seq, 2, a);
                assert_memory_equal(want, got, (size_t)(bad * O) * 4);
                assert_memory_equal(want + out * O, got + out * O, (size_t)((N - out) * O) * 4);
                for (int64_t x = bad * O; x < out * O; x++)
                    assert_true(isnan(got[x]));
                kfill(qkv, N * W, 2, 1);
            }
        free(qkv), free(want), free(got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_isa),
        cmocka_unit_test(test_row_alone),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_half_cuts),
        cmocka_unit_test(test_half_short),
        cmocka_unit_test(test_paged),
        cmocka_unit_test(test_attention_alone),
        cmocka_unit_test(test_attention_shared),
        cmocka_unit_test(test_attention_causal),
    };
    return cmocka_run_group_tests(tests, kset_open, kset_close);
}
