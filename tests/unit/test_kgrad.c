/* Values and gradients of every operation of the CPU backend against naive double precision:
 * forward results directly, gradients by central differences of a scalar loss in double. */
#include "tests/unit/kernels.h"

#include "tests/unit/golden.h"

/* A function of x (nx doubles) to y (ny doubles); arg: what else it needs. */
typedef void (*ref_fn)(double *y, const double *x, const void *arg);

static double *doubles(const float *x, int64_t n)
{
    double *d = vl_alloc((size_t)n * sizeof *d);

    for (int64_t i = 0; i < n; i++)
        d[i] = x[i];
    return d;
}

static void close_to(const char *what, int64_t i, double got, double want, double tol)
{
    if (!(fabs(got - want) <= tol * (1 + fabs(want))))
        fail_msg("%s[%lld]: got %.9g, wanted %.9g", what, (long long)i, got, want);
}

/* y (ny) from the backend against f(x). */
static void check_value(const char *what, ref_fn f, const void *arg, const float *x, int64_t nx,
                        const float *y, int64_t ny, double tol)
{
    double *d = doubles(x, nx), *want = vl_alloc((size_t)ny * sizeof *want);

    f(want, d, arg);
    for (int64_t i = 0; i < ny; i++)
        close_to(what, i, y[i], want[i], tol);
    free(d), free(want);
}

/* dx from the backend against the gradient of sum r*f(x) by differences; every `step`th element. */
static void check_grad(const char *what, ref_fn f, const void *arg, const float *x, int64_t nx,
                       const float *r, int64_t ny, const float *dx, int64_t step, double tol)
{
    double *d = doubles(x, nx), *y = vl_alloc((size_t)ny * sizeof *y), h = 1e-5;

    for (int64_t i = 0; i < nx; i += step) {
        double keep = d[i], sum[2];

        for (int s = 0; s < 2; s++) {
            d[i] = keep + (s ? -h : h);
            f(y, d, arg);
            sum[s] = 0;
            for (int64_t j = 0; j < ny; j++)
                sum[s] += r[j] * y[j];
        }
        d[i] = keep;
        close_to(what, i, dx[i], (sum[0] - sum[1]) / (2 * h), tol);
    }
    free(d), free(y);
}

/* linear: x = [x (N,I) | W (O,I) | b (O)] */
struct dims {
    int64_t N, O, I;
};

static void ref_linear(double *y, const double *x, const void *arg)
{
    const struct dims *s = arg;
    const double *W = x + s->N * s->I, *b = W + s->O * s->I;

    for (int64_t n = 0; n < s->N; n++)
        for (int64_t o = 0; o < s->O; o++) {
            y[n * s->O + o] = b[o];
            for (int64_t i = 0; i < s->I; i++)
                y[n * s->O + o] += x[n * s->I + i] * W[o * s->I + i];
        }
}

/* The long ones reach the blocks that a reduction is cut into. */
static void test_linear(void **state)
{
    static const struct dims shapes[] = {
        { 5, 19, 21 }, { 2, 3, 1100 }, { 2, 1100, 3 }, { 300, 3, 2 }
    };

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct dims s = shapes[i];
        int64_t nw = s.N * s.I, nb = nw + s.O * s.I, nx = nb + s.O, ny = s.N * s.O;
        float *x = krand(nx, 1, 1), *r = krand(ny, 1, 2), *y = kzero(ny), *d = kzero(nx);

        for (int k = 0; k < kset.isas; k++) {
            struct vl_backend *be = kset.be[k];
            struct vl_weight *w = kweight(be, x + nw, s.O, s.I, VL_COMPUTE_F32);

            memset(d, 0, (size_t)nx * 4);
            be->linear(be->ctx, y, x, w, x + nb, NULL, s.N);
            check_value("linear", ref_linear, &s, x, nx, y, ny, 2e-5);
            be->linear_dx(be->ctx, d, r, w, s.N);
            be->linear_dw(be->ctx, d + nw, r, x, s.N, s.O, s.I, VL_COMPUTE_F32, NULL, 1);
            be->linear_db(be->ctx, d + nb, r, s.N, s.O, VL_COMPUTE_F32);
            check_grad("linear", ref_linear, &s, x, nx, r, ny, d, i ? 7 : 1, 2e-5);
            be->weight_free(be->ctx, w);
        }
        free(x), free(r), free(y), free(d);
    }
}

/* bf16 operands: against the product of rounded operands. */
static double round_bf16(double x)
{
    float f = (float)x;
    uint32_t u;

    memcpy(&u, &f, 4);
    u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&f, &u, 4);
    return f;
}

static void test_linear_bf16(void **state)
{
    enum { N = 3, O = 18, I = 45 };
    float *x = krand(N * I, 1, 1), *W = krand(O * I, 1, 2), *dy = krand(N * O, 1, 3);
    float y[N * O], dx[N * I], dw[O * I], db[O];

    (void)state;
    for (int k = 0; k < kset.n; k++) {
        struct vl_backend *be = kset.be[k];
        enum vl_compute ct = k % 2 ? VL_COMPUTE_AMX : VL_COMPUTE_BF16;
        struct vl_weight *w = kweight(be, W, O, I, ct);
        void *xo = koperand(be, x, N, I, ct), *dyo = koperand(be, dy, N, O, ct);

        be->linear(be->ctx, y, xo, w, NULL, NULL, N);
        be->linear_dx(be->ctx, dx, dyo, w, N);
        memset(dw, 0, sizeof dw);
        memset(db, 0, sizeof db);
        be->linear_dw(be->ctx, dw, dyo, xo, N, O, I, ct, NULL, 1);
        be->linear_db(be->ctx, db, dyo, N, O, ct);
        for (int o = 0; o < O; o++) {
            double sum = 0;

            for (int n = 0; n < N; n++)
                sum += round_bf16(dy[n * O + o]);
            close_to("db", o, db[o], sum, 1e-6);
        }
        for (int o = 0; o < O; o++)
            for (int i = 0; i < I; i++) {
                double s = 0;

                for (int n = 0; n < N; n++)
                    s += round_bf16(dy[n * O + o]) * round_bf16(x[n * I + i]);
                close_to("dw", o * I + i, dw[o * I + i], s, 1e-5);
            }
        for (int n = 0; n < N; n++) {
            for (int o = 0; o < O; o++) {
                double s = 0;

                for (int i = 0; i < I; i++)
                    s += round_bf16(x[n * I + i]) * round_bf16(W[o * I + i]);
                close_to("y", n * O + o, y[n * O + o], s, 1e-5);
            }
            for (int i = 0; i < I; i++) {
                double s = 0;

                for (int o = 0; o < O; o++)
                    s += round_bf16(dy[n * O + o]) * round_bf16(W[o * I + i]);
                close_to("dx", n * I + i, dx[n * I + i], s, 1e-5);
            }
        }
        be->weight_free(be->ctx, w);
        free(xo), free(dyo);
    }
    free(x), free(W), free(dy);
}

/* rmsnorm: x = [x (N,C) | w (C)] */
static void ref_rmsnorm(double *y, const double *x, const void *arg)
{
    const struct dims *s = arg;
    const double *w = x + s->N * s->I;

    for (int64_t n = 0; n < s->N; n++) {
        double q = 0;

        for (int64_t i = 0; i < s->I; i++)
            q += x[n * s->I + i] * x[n * s->I + i];
        q = 1 / sqrt(q / (double)s->I + 1e-5);
        for (int64_t i = 0; i < s->I; i++)
            y[n * s->I + i] = x[n * s->I + i] * q * w[i];
    }
}

static void test_rmsnorm(void **state)
{
    struct dims s = { 4, 0, 37 };
    int64_t ny = s.N * s.I, nx = ny + s.I;
    float *x = krand(nx, 1, 1), *r = krand(ny, 1, 2), *y = kzero(ny), *d = kzero(nx), rstd[4];

    (void)state;
    for (int k = 0; k < kset.isas; k++) {
        struct vl_backend *be = kset.be[k];

        memset(d, 0, (size_t)nx * 4);
        be->rmsnorm(be->ctx, y, rstd, x, x + ny, s.N, s.I, 1e-5f, VL_COMPUTE_F32);
        check_value("rmsnorm", ref_rmsnorm, &s, x, nx, y, ny, 1e-6);
        be->rmsnorm_bwd(be->ctx, d, d + ny, NULL, r, x, x + ny, rstd, s.N, s.I, 1, VL_COMPUTE_F32);
        check_grad("rmsnorm", ref_rmsnorm, &s, x, nx, r, ny, d, 1, 1e-5);
    }
    free(x), free(r), free(y), free(d);
}

/* The heads of rows that lie 3 floats apart, normed in place, are the rows of rmsnorm. */
static void test_head_norm(void **state)
{
    enum { N = 4, H = 3, D = 11, S = H * D + 3 };
    float *x = krand(N * S, 1, 1), *w = krand(D, 1, 2), *dy = krand(N * S, 1, 3);
    float *y = kzero(N * S), *x0 = kzero(N * H * D), *dw = kzero(D), rstd[N * H], *d = kzero(N * S);
    float *rx = kzero(N * H * D), *rdy = kzero(N * H * D), *ry = kzero(N * H * D);
    float *rd = kzero(N * H * D), *rdw = kzero(D), rr[N * H];

    (void)state;
    for (int n = 0; n < N; n++) {
        memcpy(rx + n * H * D, x + n * S, H * D * 4);
        memcpy(rdy + n * H * D, dy + n * S, H * D * 4);
    }
    for (int k = 0; k < kset.isas; k++) {
        struct vl_backend *be = kset.be[k];

        memset(dw, 0, D * 4), memset(rdw, 0, D * 4);
        memcpy(y, x, N * S * 4), memcpy(d, dy, N * S * 4);
        be->head_norm(be->ctx, y, S, x0, rstd, w, N, H, D, 1e-5f);
        be->head_norm_bwd(be->ctx, d, S, dw, x0, w, rstd, N, H, D);
        be->rmsnorm(be->ctx, ry, rr, rx, w, N * H, D, 1e-5f, VL_COMPUTE_F32);
        be->rmsnorm_bwd(be->ctx, rd, rdw, NULL, rdy, rx, w, rr, N * H, D, 0, VL_COMPUTE_F32);
        assert_memory_equal(dw, rdw, D * 4);
        assert_memory_equal(rstd, rr, sizeof rr);
        for (int n = 0; n < N; n++) {
            assert_memory_equal(y + n * S, ry + n * H * D, H * D * 4);
            assert_memory_equal(d + n * S, rd + n * H * D, H * D * 4);
            assert_memory_equal(y + n * S + H * D, x + n * S + H * D, 3 * 4); /* not touched */
            assert_memory_equal(d + n * S + H * D, dy + n * S + H * D, 3 * 4);
        }
    }
    free(x), free(w), free(dy), free(y), free(x0), free(dw), free(d);
    free(rx), free(rdy), free(ry), free(rd), free(rdw);
}

/* rope: pairs (i, i + D/2) turned by angle pos * freq_i */
struct rope_arg {
    int64_t stride;
    int32_t pos[5], N, heads, D;
};

static double freq(int i, int D)
{
    return pow(100.0, -2.0 * i / D);
}

static void ref_rope(double *y, const double *x, const void *arg)
{
    const struct rope_arg *s = arg;
    int half = s->D / 2;

    memcpy(y, x, (size_t)(s->N * s->stride) * sizeof *y);
    for (int n = 0; n < s->N; n++)
        for (int h = 0; h < s->heads; h++)
            for (int i = 0; i < half; i++) {
                int64_t at = n * s->stride + h * s->D + i;
                double t = s->pos[n] * freq(i, s->D);

                y[at] = x[at] * cos(t) - x[at + half] * sin(t);
                y[at + half] = x[at + half] * cos(t) + x[at] * sin(t);
            }
}

static void test_rope(void **state)
{
    struct rope_arg s = { 3 * 12 + 4, { 0, 3, 1, 7, 2 }, 5, 3, 12 };
    int64_t n = s.N * s.stride;
    float *x = krand(n, 1, 1), *r = krand(n, 1, 2), *y = kzero(n), *table = kzero(8 * s.D);

    (void)state;
    for (int p = 0; p < 8; p++)
        for (int i = 0; i < s.D / 2; i++) {
            table[p * s.D + 2 * i] = (float)cos(p * freq(i, s.D));
            table[p * s.D + 2 * i + 1] = (float)sin(p * freq(i, s.D));
        }
    for (int k = 0; k < kset.isas; k++) {
        struct vl_backend *be = kset.be[k];

        memcpy(y, x, (size_t)n * 4);
        be->rope(be->ctx, y, s.stride, table, s.pos, s.N, s.heads, s.D, 1);
        check_value("rope", ref_rope, &s, x, n, y, n, 1e-6);
        memcpy(y, r, (size_t)n * 4);
        be->rope(be->ctx, y, s.stride, table, s.pos, s.N, s.heads, s.D, -1);
        check_grad("rope", ref_rope, &s, x, n, r, n, y, 1, 1e-6);
    }
    free(x), free(r), free(y), free(table);
}

static void ref_swiglu(double *y, const double *x, const void *arg)
{
    const struct dims *s = arg;

    for (int64_t n = 0; n < s->N; n++)
        for (int64_t i = 0; i < s->I; i++) {
            double g = x[2 * n * s->I + i], u = x[(2 * n + 1) * s->I + i];

            y[n * s->I + i] = g / (1 + exp(-g)) * u;
        }
}

/* With the unit matrix for the product before, and for the one after. */
static void swiglu_case(int64_t F)
{
    struct dims s = { 3, 0, F };
    int64_t ny = s.N * F, nx = 2 * ny;
    float *x = krand(nx, 4, 1), *r = krand(ny, 1, 2), *y = kzero(ny), *d = kzero(nx);
    float *unit = kzero(4 * F * F), *half = kzero(F * F), *gu = kzero(nx), *h = kzero(ny);

    for (int64_t i = 0; i < 2 * F; i++)
        unit[i * 2 * F + i] = 1;
    for (int64_t i = 0; i < F; i++)
        half[i * F + i] = 1;
    for (int k = 0; k < kset.isas; k++) {
        struct vl_backend *be = kset.be[k];
        struct vl_weight *w = kweight(be, unit, 2 * F, 2 * F, VL_COMPUTE_F32);
        struct vl_weight *down = kweight(be, half, F, F, VL_COMPUTE_F32);

        be->gate_up(be->ctx, y, gu, x, w, NULL, s.N);
        check_value("swiglu", ref_swiglu, &s, x, nx, y, ny, 1e-6);
        be->gate_up_bwd(be->ctx, d, h, r, down, gu, s.N);
        check_grad("swiglu", ref_swiglu, &s, x, nx, r, ny, d, 1, 1e-5);
        be->weight_free(be->ctx, w);
        be->weight_free(be->ctx, down);
    }
    free(x), free(r), free(y), free(d), free(unit), free(half), free(gu), free(h);
}

static void test_swiglu(void **state)
{
    (void)state;
    swiglu_case(35);
    swiglu_case(64);
}

struct attn_arg {
    struct vl_attn a;
    const struct vl_seq *seq;
    int nseq;
};

static int64_t row_at(const struct vl_seq *s, int64_t pos)
{
    return pos < s->pos ? s->prefix + pos : s->row + pos - s->pos;
}

static void ref_attention(double *y, const double *x, const void *arg)
{
    const struct attn_arg *s = arg;
    const struct vl_attn *a = &s->a;
    int64_t D = a->D, W = (a->H + 2 * a->K) * D, G = a->H / a->K;
    double p[256];

    for (int q = 0; q < s->nseq; q++)
        for (int64_t i = s->seq[q].pos; i < s->seq[q].pos + s->seq[q].n; i++)
            for (int64_t h = 0; h < a->H; h++) {
                int64_t lo = a->window && i + 1 > a->window ? i + 1 - a->window : 0;
                int64_t row = row_at(&s->seq[q], i);
                double max = -INFINITY, sum = 0, *o = y + row * a->H * D + h * D;

                for (int64_t j = lo; j <= i; j++) {
                    p[j] = 0;
                    for (int64_t d = 0; d < D; d++)
                        p[j] += x[row * W + h * D + d] *
                                x[row_at(&s->seq[q], j) * W + (a->H + h / G) * D + d];
                    p[j] *= a->scale;
                    max = p[j] > max ? p[j] : max;
                }
                for (int64_t j = lo; j <= i; j++)
                    sum += p[j] = exp(p[j] - max);
                for (int64_t d = 0; d < D; d++) {
                    o[d] = 0;
                    for (int64_t j = lo; j <= i; j++)
                        o[d] += p[j] / sum *
                                x[row_at(&s->seq[q], j) * W + (a->H + a->K + h / G) * D + d];
                }
            }
}

#define ATTN(h, k, d, w, s)                                                                        \
    {                                                                                              \
        .H = h, .K = k, .D = d, .window = w, .scale = s                                            \
    }

static const struct vl_seq apart[] = { { .n = 1 }, { .row = 1, .n = 33 }, { .row = 34, .n = 20 } };
/* two that share a prefix, between others */
static const struct vl_seq shared[] = { { .n = 3 },
                                        { .row = 3, .n = 13 },
                                        { .row = 16, .n = 21, .pos = 13, .prefix = 3 },
                                        { .row = 37, .n = 4, .pos = 13, .prefix = 3 },
                                        { .row = 41, .n = 13 } };
static const struct attn_arg attn_args[] = {
    { ATTN(2, 2, 8, 0, 0.35f), apart, 3 },   { ATTN(4, 2, 5, 0, 0.45f), apart, 3 },
    { ATTN(3, 1, 16, 7, 0.25f), apart, 3 },  { ATTN(2, 1, 20, 18, 0.22f), apart, 3 },
    { ATTN(4, 2, 5, 0, 0.45f), shared, 5 },  { ATTN(3, 1, 16, 7, 0.25f), shared, 5 },
    { ATTN(2, 2, 8, 15, 0.35f), shared, 5 },
};
#define ATTN_ROWS 54

static void test_attention(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof attn_args / sizeof *attn_args; i++) {
        const struct vl_attn *a = &attn_args[i].a;
        int64_t N = ATTN_ROWS, W = (a->H + 2 * a->K) * a->D, nx = N * W, ny = N * a->H * a->D;
        float *x = krand(nx, 1.5f, 1), *r = krand(ny, 1, 2), *y = kzero(ny), *d = kzero(nx);
        float *lse = kzero(N * a->H);

        for (int k = 0; k < kset.isas; k++) {
            struct vl_backend *be = kset.be[k];

            be->attention(be->ctx, y, lse, x, NULL, NULL, attn_args[i].seq, attn_args[i].nseq, a);
            check_value("attention", ref_attention, &attn_args[i], x, nx, y, ny, 2e-6);
            be->attention_bwd(be->ctx, d, r, y, lse, x, attn_args[i].seq, attn_args[i].nseq, a);
            /* bits are equal over instruction sets (test_kernels), so one full check is enough */
            check_grad("attention", ref_attention, &attn_args[i], x, nx, r, ny, d, k ? 97 : 5,
                       2e-5);
        }
        free(x), free(r), free(y), free(d), free(lse);
    }
}

/* How far x is from want, in units of want's norm, over columns [lo, hi) of n rows of `width`. */
static double distance(const float *x, const float *want, int64_t n, int64_t width, int64_t lo,
                       int64_t hi)
{
    double diff = 0, norm = 0;

    for (int64_t i = 0; i < n * width; i++)
        if (i % width >= lo && i % width < hi) {
            diff += ((double)x[i] - want[i]) * ((double)x[i] - want[i]);
            norm += (double)want[i] * want[i];
        }
    return sqrt(diff / norm);
}

/* The half types against fp32 with operands that bf16 holds exactly: what is left is the rounding of
 * probabilities and gradients, 2^-9 of each at most. */
static void test_attention_half(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof attn_args / sizeof *attn_args; i++)
        for (int ct = VL_COMPUTE_F32 + 1; ct < VL_COMPUTES; ct++) {
            struct vl_attn a = attn_args[i].a;
            const struct vl_seq *seq = attn_args[i].seq;
            int nseq = attn_args[i].nseq;
            int64_t N = ATTN_ROWS, W = (a.H + 2 * a.K) * a.D, O = a.H * a.D, key = a.H * a.D;
            float *x = krand(N * W, 1.5f, 1), *r = krand(N * O, 1, 2), *lse = kzero(N * a.H);
            float *y = kzero(N * O), *d = kzero(N * W), *y1 = kzero(N * O), *d1 = kzero(N * W);
            struct vl_backend *be = kbest();

            a.scale = 0.25f;
            for (int64_t k = 0; k < N * W; k++)
                x[k] = (float)round_bf16(x[k]);
            be->attention(be->ctx, y, lse, x, NULL, NULL, seq, nseq, &a);
            be->attention_bwd(be->ctx, d, r, y, lse, x, seq, nseq, &a);
            a.ct = (enum vl_compute)ct;
            be->attention(be->ctx, y1, lse, x, NULL, NULL, seq, nseq, &a);
            be->attention_bwd(be->ctx, d1, r, y1, lse, x, seq, nseq, &a);
            assert_true(distance(y1, y, N, O, 0, O) < 2e-3);
            assert_true(distance(d1, d, N, W, 0, key) < 4e-3);
            assert_true(distance(d1, d, N, W, key, key + a.K * a.D) < 4e-3);
            assert_true(distance(d1, d, N, W, key + a.K * a.D, W) < 4e-3);
            free(x), free(r), free(lse), free(y), free(d), free(y1), free(d1);
        }
}

/* head: x = [x (M,C) | W (V,C)]; y = logp (M) | entropy (M) | sum_pi2 (M) | lse (M) */
struct head_arg {
    int64_t M, V, C;
    const int32_t *target;
    double inv_temp;
};

static void ref_head(double *y, const double *x, const void *arg)
{
    const struct head_arg *s = arg;
    double *z = vl_alloc((size_t)s->V * sizeof *z);

    for (int64_t m = 0; m < s->M; m++) {
        double max = -INFINITY, sum = 0, H = 0, q = 0;

        for (int64_t j = 0; j < s->V; j++) {
            z[j] = 0;
            for (int64_t i = 0; i < s->C; i++)
                z[j] += x[m * s->C + i] * x[(s->M + j) * s->C + i];
            z[j] *= s->inv_temp;
            max = z[j] > max ? z[j] : max;
        }
        for (int64_t j = 0; j < s->V; j++)
            sum += exp(z[j] - max);
        for (int64_t j = 0; j < s->V; j++) {
            double lp = z[j] - max - log(sum);

            H -= exp(lp) * lp;
            q += exp(2 * lp);
        }
        y[m] = z[s->target[m]] - max - log(sum);
        y[s->M + m] = H;
        y[2 * s->M + m] = q;
        y[3 * s->M + m] = max + log(sum);
    }
    free(z);
}

static void test_head(void **state)
{
    static const int32_t target[] = { 3, 513, 1029, 12, 511, 512 };

    (void)state;
    for (int big = 0; big < 2; big++) {
        struct head_arg s = { big ? 6 : 1, big ? 1030 : 7, 9, target, 1.25 };
        int64_t M = s.M, nx = (M + s.V) * s.C;
        float *x = krand(nx, 2, 1), *r = krand(4 * M, 1, 2), *y = kzero(4 * M), *d = kzero(nx);

        for (int64_t m = 2 * M; m < 4 * M; m++)
            r[m] = 0; /* only logp and entropy are differentiated */
        for (int k = 0; k < kset.isas; k++) {
            struct vl_backend *be = kset.be[k];
            struct vl_weight *w = kweight(be, x + M * s.C, s.V, s.C, VL_COMPUTE_F32);

            be->head_logp(be->ctx, y, y + M, y + 3 * M, y + 2 * M, x, w, target, NULL, 1.25f, M);
            check_value("head", ref_head, &s, x, nx, y, 4 * M, 2e-6);
            memset(d, 0, (size_t)nx * 4);
            be->head_bwd(be->ctx, d, d + M * s.C, x, w, target, y + 3 * M, y + M, r, r + M, NULL,
                         NULL, 1.25f, M, 1);
            check_grad("head", ref_head, &s, x, nx, r, 4 * M, d, k || big ? 211 : 1, 1e-5);
            be->weight_free(be->ctx, w);
        }
        free(x), free(r), free(y), free(d);
    }
}

/* Entropy of an all but certain row is 0, never below. */
static void test_entropy_floor(void **state)
{
    float W[40], x[1] = { 1 }, lp, ent, lse, q;
    int32_t y = 3;

    (void)state;
    for (int i = 0; i < 40; i++)
        W[i] = i == 3 ? 200.0f : (float)i * 1e-3f;
    for (int k = 0; k < kset.n; k++) {
        struct vl_weight *w = kweight(kset.be[k], W, 40, 1, VL_COMPUTE_F32);

        kset.be[k]->head_logp(kset.be[k]->ctx, &lp, &ent, &lse, &q, x, w, &y, NULL, 1, 1);
        assert_true(ent >= 0 && ent < 1e-6f && lp <= 0 && lp > -1e-6f && q <= 1 && q > 0.999f);
        kset.be[k]->weight_free(kset.be[k]->ctx, w);
    }
}

static void test_copies(void **state)
{
    static const int64_t rows[] = { 4, 0, 2 };
    static const int32_t ids[] = { 2, 0, 2 };
    struct vl_backend *be = kbest();
    float x[30], y[18], E[18];

    (void)state;
    kfill(x, 30, 1, 1);
    kfill(E, 18, 1, 2);
    be->gather(be->ctx, y, x, rows, 3, 6);
    for (int i = 0; i < 18; i++)
        assert_true(y[i] == x[rows[i / 6] * 6 + i % 6]);
    be->scatter_add(be->ctx, x, y, rows, 3, 6);
    for (int i = 0; i < 18; i++)
        assert_true(x[rows[i / 6] * 6 + i % 6] == 2 * y[i]);
    be->embed(be->ctx, y, E, ids, 3, 6);
    for (int i = 0; i < 18; i++)
        assert_true(y[i] == E[ids[i / 6] * 6 + i % 6]);
    be->embed_dw(be->ctx, E, y, ids, 3, 6);
    for (int i = 0; i < 6; i++)
        assert_true(E[12 + i] == 3 * y[i] && E[i] == 2 * y[6 + i]);
}

/* torch's clipping and AdamW: norm over all tensors, each tensor its own update. */
static int run_adamw(struct gcase *c)
{
    int64_t pn = vl_json_get(c->j, c->in, "params"), gn = vl_json_get(c->j, c->in, "grads"), n,
            gall;
    double *p0 = gdoubles(c, pn, &n, NULL), *g0 = gdoubles(c, gn, &gall, NULL);
    double *betas = gdoubles(c, vl_json_get(c->j, c->config, "betas"), &(int64_t){ 0 }, NULL);
    float *p = gzero(c, n, 4), *m = gzero(c, n, 4), *v = gzero(c, n, 4), *g = gzero(c, n, 4);
    int64_t steps = gall / n;
    double *norms = gzero(c, steps, 8), *after = gzero(c, gall, 8);
    struct vl_backend *be = kbest();

    for (int64_t i = 0; i < n; i++)
        p[i] = (float)p0[i];
    for (int64_t t = 0; t < steps; t++) {
        double clip = gnum(c, c->config, "clip_grad", 1), k;
        int64_t changed = 0;
        struct vl_adamw o = { .lr = (float)gnum(c, c->config, "lr", 0),
                              .beta1 = (float)betas[0],
                              .beta2 = (float)betas[1],
                              .eps = 1e-8f,
                              .weight_decay = (float)gnum(c, c->config, "weight_decay", 0),
                              .t = t + 1 };

        for (int64_t i = 0; i < n; i++)
            g[i] = (float)g0[t * n + i];
        norms[t] = sqrt(be->sumsq(be->ctx, g, n));
        k = clip / (norms[t] + 1e-6);
        o.grad_scale = k < 1 ? (float)k : 1;
        be->adamw(be->ctx, p, m, v, NULL, g, n, &o, NULL, 0, &changed);
        assert_int_equal(changed, n);
        for (int64_t i = 0; i < n; i++)
            after[t * n + i] = p[i];
    }
    gwant_node(c, "grad_norm", vl_json_get(c->j, c->out, "grad_norm"), norms, steps);
    gwant_node(c, "params", vl_json_get(c->j, c->out, "params_after_step"), after, gall);
    return 0;
}

static void test_adamw(void **state)
{
    static const struct grunner runners[] = { { "adamw", run_adamw }, { 0 } };

    (void)state;
    grun_file("optimizer", runners, 1e-5);
}

static void test_adamw_unchanged(void **state)
{
    float p[3] = { 1, -2, 3 }, m[3] = { 0 }, v[3] = { 0 }, g[3] = { 0, 1, 0 };
    struct vl_adamw o = { 1e-3f, 0.9f, 0.999f, 1e-8f, 0, 1, 1, 0 };
    int64_t changed = 5;
    float big[5] = { 1, 2, INFINITY, 0, 1 }, nan[2] = { 1, NAN };

    (void)state;
    kbest()->adamw(kbest()->ctx, p, m, v, NULL, g, 3, &o, NULL, 0, &changed);
    assert_int_equal(changed, 6);
    assert_true(p[0] == 1 && p[1] < -2 && p[2] == 3);
    assert_true(isinf(kbest()->sumsq(kbest()->ctx, big, 5)));
    assert_true(isnan(kbest()->sumsq(kbest()->ctx, nan, 2)));
    assert_true(kbest()->sumsq(kbest()->ctx, g, 0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_linear_bf16),
        cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_head_norm),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_half),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_entropy_floor),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_adamw_unchanged),
    };
    return cmocka_run_group_tests(tests, kset_open, kset_close);
}
