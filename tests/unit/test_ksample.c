/* Sampling: frequencies, greedy, bans, top-k and top-p against a naive draw; and the bf16 product on
 * arbitrary bits (denormals included) against the twin written out here. */
#include "tests/unit/kernels.h"

#include "kernels/cpu/kern.h"
#include "libverl/base/fmath.h"

enum { C = 6 };

/* M equal rows x and a vocabulary whose logits are the first column of W. */
struct fix {
    int64_t M, V;
    float *x, *W, *logp, *kept, *z;
    int32_t *id;
    double *u;
};

static struct fix fix_new(int64_t M, int64_t V, float spread)
{
    struct fix f = { .M = M, .V = V };

    f.x = kzero(M * C);
    f.W = krand(V * C, spread, 1);
    f.logp = kzero(M), f.kept = kzero(M), f.z = kzero(M * V);
    f.id = vl_alloc((size_t)M * sizeof *f.id);
    f.u = vl_alloc((size_t)M * sizeof *f.u);
    for (int64_t m = 0; m < M; m++) {
        f.x[m * C] = 1;
        f.u[m] = ((double)m + 0.5) / (double)M; /* strata: counts are M p within 1 */
    }
    return f;
}

static void fix_free(struct fix *f)
{
    free(f->x), free(f->W), free(f->logp), free(f->kept), free(f->z), free(f->id), free(f->u);
}

/* How to draw: every row has the same edits. */
struct how {
    struct vl_sampling s;
    const struct vl_edit *edit;
    int64_t n;
};

static void sample(struct vl_backend *be, struct fix *f, const struct how *h)
{
    struct vl_weight *w = kweight(be, f->W, f->V, C, VL_COMPUTE_F32);
    float inv = h->s.temperature == 0 ? 1 : (float)(1 / h->s.temperature);
    struct vl_edit *all = vl_alloc((size_t)(f->M * h->n + 1) * sizeof *all);
    int64_t *at = vl_alloc((size_t)(f->M + 1) * sizeof *at);

    for (int64_t m = 0; m < f->M; m++) {
        at[m + 1] = at[m] + h->n;
        for (int64_t i = 0; i < h->n; i++)
            all[at[m] + i] = h->edit[i];
    }
    be->head_sample(be->ctx, f->id, f->logp, f->kept, f->x, w, f->u, &h->s, h->n ? all : NULL,
                    h->n ? at : NULL, f->M);
    free(all), free(at);
    be->head_logits(be->ctx, f->z, f->x, w, inv, f->M);
    for (int64_t m = 0; m < f->M; m++) { /* the log-prob has head_logp's bits */
        float lp;

        if (f->id[m] < 0)
            continue;
        be->head_logp(be->ctx, &lp, NULL, NULL, NULL, f->x + m * C, w, f->id + m, NULL, inv, 1);
        assert_memory_equal(&lp, f->logp + m, 4);
        m += f->M / 20;
    }
    be->weight_free(be->ctx, w);
}

/* The logit that id j is drawn by, as backend.h says. */
static float edited(const struct how *h, const float *z, int64_t j)
{
    float inv = h->s.temperature == 0 ? 1 : (float)(1 / h->s.temperature), v = z[j];

    for (int64_t i = 0; i < h->n; i++)
        if (h->edit[i].id == j) {
            v += h->edit[i].add * inv;
            v = (v > 0 ? v / h->edit[i].rep : v * h->edit[i].rep) - h->edit[i].sub * inv;
        }
    return v;
}

struct rank {
    double z;
    int64_t id;
};

static int by_rank(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;

    return x->z != y->z ? (x->z < y->z ? 1 : -1) : (x->id > y->id) - (x->id < y->id);
}

/* keep[j] = 1 for the kept set, by sorting everything; z: edited logits. */
static void naive_keep(const float *z, int64_t V, const struct vl_sampling *s, char *keep)
{
    struct rank *r = vl_alloc((size_t)V * sizeof *r);
    int64_t n = 0, k;
    double total = 0, sum = 0;

    for (int64_t j = 0; j < V; j++)
        if (z[j] != -INFINITY)
            r[n++] = (struct rank){ z[j], j };
    qsort(r, (size_t)n, sizeof *r, by_rank);
    while (n > 1 && exp(r[n - 1].z - r[0].z) < s->min_p)
        n--;
    k = s->top_k > 0 && s->top_k < n ? s->top_k : n;
    for (int64_t i = 0; i < k; i++)
        total += exp(r[i].z - r[0].z);
    memset(keep, 0, (size_t)V);
    for (int64_t i = 0; i < k; i++) {
        keep[r[i].id] = 1;
        sum += exp(r[i].z - r[0].z);
        if (s->top_p < 1 && sum >= s->top_p * total)
            break;
    }
    free(r);
}

static void check_draws(struct vl_backend *be, struct fix *f, const struct how *h)
{
    char *keep = vl_alloc((size_t)f->V);
    float *z = vl_alloc((size_t)f->V * sizeof *z);
    double *p = vl_alloc((size_t)f->V * sizeof *p), total = 0, max = -INFINITY;

    sample(be, f, h);
    for (int64_t j = 0; j < f->V; j++)
        z[j] = edited(h, f->z, j);
    naive_keep(z, f->V, &h->s, keep);
    for (int64_t j = 0; j < f->V; j++)
        if (keep[j])
            max = z[j] > max ? z[j] : max;
    for (int64_t j = 0; j < f->V; j++)
        total += p[j] = keep[j] ? exp(z[j] - max) : 0;
    for (int64_t m = 0; m < f->M; m++) {
        assert_in_range(f->id[m], 0, f->V - 1);
        assert_true(keep[f->id[m]]);
        assert_true(fabs(f->kept[m] - (z[f->id[m]] - max - log(total))) < 1e-5);
        p[f->id[m]] -= total / (double)f->M; /* what is left must be small */
    }
    for (int64_t j = 0; j < f->V; j++)
        assert_true(fabs(p[j]) <= 1.001 * total / (double)f->M);
    free(keep), free(p), free(z);
}

static struct vl_edit ban(int64_t id)
{
    return (struct vl_edit){ .id = (int32_t)id, .add = -INFINITY, .rep = 1 };
}

static void test_frequencies(void **state)
{
    const struct vl_edit some[] = { ban(3), { 90, 9, 1, 0 }, { 91, 9, 1.3F, 0.5F }, ban(700) };
    struct fix f = fix_new(500, 1300, 2);

    (void)state;
    for (int k = 0; k < kset.n; k++) {
        struct how h = { .s = { .temperature = 1, .top_p = 1 } };

        check_draws(kset.be[k], &f, &h);
        h.s.temperature = 0.25;
        h.edit = some, h.n = 4;
        check_draws(kset.be[k], &f, &h);
    }
    fix_free(&f);
}

static void test_filters(void **state)
{
    static const struct vl_sampling all[] = {
        { 1, 1, 1, 0 },     { 1, 1, 7, 0 },     { 1, 1, 100000, 0 },  { 1, 0.5, 0, 0 },
        { 1, 1e-9, -1, 0 }, { 1, 0.999, 0, 0 }, { 0.5, 0.8, 20, 0 },  { 2, 0.0, 5, 0 },
        { 1, 1, 0, 0.1 },   { 1, 1, 0, 1 },     { 0.7, 0.9, 9, 0.2 },
    };
    struct vl_edit some[12];
    struct fix f = fix_new(120, 600, 3);

    (void)state;
    for (int i = 0; i < 12; i++)
        some[i] = i % 2 ? ban(i) : (struct vl_edit){ 40 * i, 0.25F * (float)i, 1.1F, 0.2F };
    for (int i = 1; i < 12; i++) /* ascending */
        some[i].id = some[i].id > some[i - 1].id ? some[i].id : some[i - 1].id + 1;
    for (int k = 0; k < kset.n; k++)
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            struct how h = { .s = all[i] };

            if (k == 0 && i % 3)
                continue;
            check_draws(kset.be[k], &f, &h);
            h.edit = some, h.n = 12;
            check_draws(kset.be[k], &f, &h);
        }
    fix_free(&f);
}

/* Equal logits: the lower id wins in top-k, top-p and greedy. */
static void test_ties(void **state)
{
    struct fix f = fix_new(40, 520, 0);
    struct how h = { .s = { .temperature = 1, .top_p = 1, .top_k = 3 } };

    (void)state;
    for (int k = 0; k < kset.n; k++) {
        sample(kset.be[k], &f, &h);
        for (int m = 0; m < 40; m++)
            assert_int_equal(f.id[m], (6 * m + 3) / 80); /* floor(3 u) */
    }
    h.s.top_k = 0, h.s.top_p = 4.0 / 520;
    sample(kbest(), &f, &h);
    for (int m = 0; m < 40; m++)
        assert_int_equal(f.id[m], m / 10);
    h.s.temperature = 0;
    sample(kbest(), &f, &h);
    assert_int_equal(f.id[7], 0);
    fix_free(&f);
}

static void test_greedy(void **state)
{
    struct fix f = fix_new(5, 1100, 2);
    int64_t best[2] = { 0, 0 };
    struct how h = { .s = { .temperature = 0, .top_p = 0.5, .top_k = 3 } };
    struct vl_edit one;

    (void)state;
    for (int64_t j = 1; j < f.V; j++)
        best[0] = f.W[j * C] > f.W[best[0] * C] ? j : best[0];
    for (int64_t j = 0; j < f.V; j++)
        if (j != best[0] && (best[1] == best[0] || f.W[j * C] > f.W[best[1] * C]))
            best[1] = j;
    one = ban(best[0]);
    h.edit = &one;
    for (int k = 0; k < kset.n; k++) {
        h.n = 0;
        sample(kset.be[k], &f, &h);
        assert_int_equal(f.id[4], best[0]);
        assert_true(isfinite(f.logp[4]) && f.logp[4] < 0);
        h.n = 1;
        sample(kset.be[k], &f, &h);
        assert_int_equal(f.id[4], best[1]);
    }
    fix_free(&f);
}

/* Non-finite logits and a vocabulary banned whole never become an id. */
static void test_no_id(void **state)
{
    static const float evil[] = { NAN, INFINITY, -INFINITY };
    struct fix f = fix_new(3, 600, 1);
    struct how h[3] = { { .s = { 1, 1, 0, 0 } },
                        { .s = { 0, 1, 0, 0 } },
                        { .s = { 1, 0.9, 5, 0 } } };
    struct vl_edit *all = vl_alloc(600 * sizeof *all);

    (void)state;
    for (int i = 0; i < 600; i++)
        all[i] = ban(i);
    for (int k = 0; k < kset.isas; k += 2)
        for (int i = 0; i < 3; i++) {
            h[i].edit = all;
            for (int v = 0; v < 3; v++) {
                f.x[C] = evil[v]; /* row 1 */
                sample(kset.be[k], &f, &h[i]);
                assert_true(f.id[0] >= 0 && f.id[1] == -1 && f.id[2] >= 0);
                assert_true(isfinite(f.logp[0]));
            }
            f.x[C] = 1;
            h[i].n = 600;
            sample(kset.be[k], &f, &h[i]);
            assert_int_equal(f.id[2], -1);
            h[i].n = 599;
            sample(kset.be[k], &f, &h[i]);
            assert_int_equal(f.id[2], 599);
            h[i].n = 0;
        }
    free(all);
    fix_free(&f);
}

/* The whole result, over instruction sets and threads, and a row alone against the batch. */
static void run_sample(struct vl_backend *be, struct vl_buf *out)
{
    enum { M = 21, V = 1500 };
    struct vl_sampling s[] = {
        { 0.8, 1, 0, 0 }, { 0.8, 0.9, 0, 0 }, { 1.3, 0.95, 40, 0 }, { 1, 1, 0, 0.05 }
    };
    struct vl_edit edit[2 * M];
    int64_t edits[M + 1];
    float *x = krand(M * C, 2, 1), *W = krand(V * C, 2, 2), logp[M], kept[M], l1, k1;
    struct vl_weight *w = kweight(be, W, V, C, VL_COMPUTE_F32);
    int32_t id[M], i1;
    double u[M];

    for (int m = 0; m < M; m++)
        u[m] = (m * 37 % M + 0.3) / M;
    for (int m = 0; m <= M; m++) /* each row its own */
        edits[m] = 2 * m;
    for (int m = 0; m < M; m++) {
        edit[2 * m] = (struct vl_edit){ m, 2, 1, 0 };
        edit[2 * m + 1] = m % 2 ? ban(60 * m + 40) : (struct vl_edit){ 60 * m + 40, 0, 1.5F, 0.3F };
    }
    for (int i = 0; i < 4; i++) {
        be->head_sample(be->ctx, id, logp, kept, x, w, u, &s[i], edit, edits, M);
        kput(out, id, M);
        kput(out, logp, M);
        kput(out, kept, M);
        for (int m = 0; m < M; m += 4) {
            be->head_sample(be->ctx, &i1, &l1, &k1, x + m * C, w, u + m, &s[i], edit, edits + m, 1);
            assert_int_equal(i1, id[m]);
            assert_memory_equal(&l1, logp + m, 4);
            assert_memory_equal(&k1, kept + m, 4);
        }
    }
    be->weight_free(be->ctx, w);
    free(x), free(W);
}

static void test_same(void **state)
{
    (void)state;
    ksame("sample", run_sample);
}

/* acc = fma(lo, lo', fma(hi, hi', acc)), denormal operands and results as zero. */
static float flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static float twin(float acc, uint32_t a, uint32_t b)
{
    float ah = flush(vl_bits_float((int32_t)(a & 0xffff0000u)));
    float bh = flush(vl_bits_float((int32_t)(b & 0xffff0000u)));
    float al = flush(vl_bits_float((int32_t)(a << 16)));
    float bl = flush(vl_bits_float((int32_t)(b << 16)));

    return flush(fmaf(al, bl, flush(fmaf(ah, bh, flush(acc)))));
}

static const struct vl_kern *kern_of(const char *name, struct vl_kern *room)
{
    *room = vl_kern_scalar;
#if defined(__x86_64__)
    if (strcmp(name, "cpu scalar") == 0 && __builtin_cpu_supports("fma"))
        *room = vl_kern_fma;
    if (strcmp(name, "cpu avx2") == 0)
        *room = vl_kern_avx2;
    if (strncmp(name, "cpu avx512", 10) == 0)
        *room = vl_kern_avx512;
    if (strcmp(name, "cpu avx512bf16") == 0)
        vl_kern_use_avx512bf16(room);
#else
    (void)name;
#endif
    return room;
}

/* A bf16 with an exponent near `e` (0 gives denormals), any sign and mantissa. */
static uint32_t some_bf16(uint64_t *s, int e)
{
    *s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17;
    return (uint32_t)(*s & 0x807f) | (uint32_t)((e + (int)(*s >> 40 & 3)) & 0xff) << 7;
}

static void test_bf16_bits(void **state)
{
    /* exponents of a, b and the accumulator: ordinary, products near the smallest normal, mixed */
    static const int exps[][3] = { { 126, 126, 127 }, { 63, 63, 0 }, { 62, 64, 1 },
                                   { 0, 250, 120 },   { 0, 0, 0 },   { 60, 60, 0 },
                                   { 64, 63, 2 },     { 1, 126, 0 }, { 2, 125, 1 },
                                   { 190, 188, 250 } };
    enum { N = 16, ROUNDS = 3000 };
    uint64_t s = 99;

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        const int *e = exps[i % 10];
        uint32_t a = some_bf16(&s, e[0]) | some_bf16(&s, e[0]) << 16, b[N];
        float c[N], got[N], want[N];

        for (int j = 0; j < N; j++) {
            b[j] = some_bf16(&s, e[1]) | some_bf16(&s, e[1]) << 16;
            c[j] = vl_bits_float((int32_t)(some_bf16(&s, e[2]) << 16 | (s >> 20 & 0xffff)));
            want[j] = twin(c[j], a, b[j]);
        }
        for (int k = 0; k < kset.isas; k++) {
            struct vl_kern room;
            const struct vl_kern *kern = kern_of(kset.be[k]->name, &room);

            memcpy(got, c, sizeof c);
            kern->mul16(got, N, &a, 1, b, N, 1, N, 1, 1, NULL);
            for (int j = 0; j < N; j++)
                if (memcmp(got + j, want + j, 4))
                    fail_msg("%s: %a + %08x . %08x = %a, twin %a", kset.be[k]->name, (double)c[j],
                             a, b[j], (double)got[j], (double)want[j]);
        }
    }
}

/* Conversion to bf16 on a sweep of all floats. */
static void test_to_bf16(void **state)
{
    float x[128];
    uint16_t want[128], got[128];

    (void)state;
    for (uint64_t u = 0; u < (uint64_t)1 << 32; u += 128 * 65521) {
        for (int i = 0; i < 128; i++)
            x[i] = vl_bits_float((int32_t)(uint32_t)(u + (uint64_t)i * 65521));
        for (int k = 0; k < kset.isas; k++) {
            struct vl_kern room;

            kern_of(kset.be[k]->name, &room)->to_bf16(got, x, 128);
            if (k == 0)
                memcpy(want, got, sizeof got);
            assert_memory_equal(want, got, sizeof got);
        }
        for (int i = 0; i < 128; i++) { /* nearest: no other bf16 is closer */
            float y = vl_bits_float((int32_t)((uint32_t)want[i] << 16));

            if (isnan(x[i]))
                assert_true(isnan(y));
            else if (fabsf(x[i]) >= 0x1p-126f && fabsf(x[i]) < 0x1.ffp127f)
                assert_true(fabs((double)y - x[i]) <= fabs((double)x[i]) * 0x1p-8);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frequencies), cmocka_unit_test(test_filters),
        cmocka_unit_test(test_ties),        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_no_id),       cmocka_unit_test(test_same),
        cmocka_unit_test(test_bf16_bits),   cmocka_unit_test(test_to_bf16),
    };
    return cmocka_run_group_tests(tests, kset_open, kset_close);
}
