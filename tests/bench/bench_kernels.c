/* bench_kernels - rates of the CPU backend's operations. usage: bench_kernels [ISA [THREADS [WHAT]]]
 *
 * WHAT: linear, attention, decode or head alone.
 * Prints the best of several samples: on a shared machine the best is the least disturbed one. With
 * one thread the time is that of the CPU, which other programs disturb less. */
#include "libverl/engine/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libverl/base/mem.h"

static struct vl_backend *be;

static clockid_t clock_used = CLOCK_MONOTONIC;

static double now(void)
{
    struct timespec t;

    clock_gettime(clock_used, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *array(int64_t n)
{
    struct vl_err e = { 0 };
    void *p;
    float *x;
    uint64_t s = 88172645463325252u;

    if (be->alloc(be->ctx, &p, (size_t)n * sizeof *x, &e))
        vl_oom((size_t)n * sizeof *x);
    x = p;
    for (int64_t i = 0; i < n; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        x[i] = (float)(s >> 40) * 0x1p-24f - 0.5f;
    }
    return x;
}

/* Best seconds of one call of f(arg) over about 0.3 s. */
static double best(void (*f)(void *), void *arg)
{
    double t0 = now(), b = 1e9;

    f(arg);
    for (int i = 0; i < 3 || now() - t0 < 0.3; i++) {
        double t = now();

        f(arg);
        t = now() - t;
        b = t < b ? t : b;
    }
    return b;
}

struct mat {
    int64_t N, O, I;
    float *x, *y, *W, *xh, *yh;
    const void *xo, *yo; /* operands */
    enum vl_compute ct;
    struct vl_weight *w;
};

static void do_y(void *p)
{
    struct mat *m = p;

    be->linear(be->ctx, m->y, m->xo, m->w, NULL, NULL, m->N);
}
static void do_dx(void *p)
{
    struct mat *m = p;

    be->linear_dx(be->ctx, m->x, m->yo, m->w, m->N);
}
static void do_dw(void *p)
{
    struct mat *m = p;

    be->linear_dw(be->ctx, m->W, m->yo, m->xo, m->N, m->O, m->I, m->ct, NULL, 1);
}
static void do_pack(void *p)
{
    struct mat *m = p;

    be->weight_set(be->ctx, m->w, m->W);
}

static void bench_linear(void)
{
    static const int64_t shape[][3] = { { 1280, 384, 128 },  { 1280, 704, 128 }, { 1280, 128, 352 },
                                        { 1280, 14, 128 },   { 1, 3072, 576 },   { 8, 3072, 576 },
                                        { 64, 3072, 576 },   { 512, 3072, 576 }, { 512, 576, 1536 },
                                        { 512, 1024, 1024 }, { 64, 49152, 576 } };

    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int ct = 0; ct < VL_COMPUTES; ct++) {
            struct mat m = {
                .N = shape[i][0], .O = shape[i][1], .I = shape[i][2], .ct = (enum vl_compute)ct
            };
            double flop = 2e-9 * (double)m.N * (double)m.O * (double)m.I;
            struct vl_err e = { 0 };

            m.x = array(m.N * m.I), m.y = array(m.N * m.O), m.W = array(m.O * m.I);
            m.xh = array(m.N * (m.I + 32)), m.yh = array(m.N * (m.O + 32));
            m.xo = be->operand(be->ctx, m.xh, m.x, m.N, m.I, m.ct);
            m.yo = be->operand(be->ctx, m.yh, m.y, m.N, m.O, m.ct);
            if (be->weight_new(be->ctx, &m.w, m.O, m.I, (enum vl_compute)ct, VL_FORM_TRAIN, &e))
                exit(1);
            be->weight_set(be->ctx, m.w, m.W);
            printf(
                "%s N %5lld O %5lld I %4lld: y %6.1f  dx %6.1f  dw %6.1f GFLOP/s  pack %.2f GB/s\n",
                vl_compute_name(m.ct), (long long)m.N, (long long)m.O, (long long)m.I,
                flop / best(do_y, &m), flop / best(do_dx, &m), flop / best(do_dw, &m),
                4e-9 * (double)(m.O * m.I) / best(do_pack, &m));
            be->weight_free(be->ctx, m.w);
            float *all[] = { m.x, m.y, m.W, m.xh, m.yh };
            for (int k = 0; k < 5; k++)
                be->free(be->ctx, all[k]);
        }
}

struct att {
    struct vl_attn a;
    struct vl_seq *seq;
    int64_t nseq;
    float *qkv, *out, *lse, *dout, *dqkv;
    void *kc, *vc;
};

static void do_attn(void *p)
{
    struct att *t = p;

    be->attention(be->ctx, t->out, t->lse, t->qkv, t->kc, t->vc, t->seq, t->nseq, &t->a);
}
static void do_attn_bwd(void *p)
{
    struct att *t = p;

    be->attention_bwd(be->ctx, t->dqkv, t->dout, t->out, t->lse, t->qkv, t->seq, t->nseq, &t->a);
}

static void do_store(void *p)
{
    struct att *t = p;

    be->kv_store(be->ctx, t->kc, t->vc, t->qkv, t->seq, t->nseq, &t->a);
}

static void bench_attention(enum vl_compute ct)
{
    static const struct {
        int nseq, n, H, K, D;
    } c[] = {
        { 128, 10, 4, 4, 32 }, { 8, 128, 9, 3, 64 }, { 2, 1024, 9, 3, 64 }, { 1, 2048, 14, 2, 64 }
    };

    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct att t = { .a = { .H = c[i].H, .K = c[i].K, .D = c[i].D, .scale = 0.125f, .ct = ct },
                         .nseq = c[i].nseq };
        int64_t N = (int64_t)c[i].nseq * c[i].n, W = (t.a.H + 2 * t.a.K) * t.a.D;
        double flop = 2e-9 * (double)N * c[i].n * t.a.H * t.a.D; /* causal half of 4 N T H D */

        t.seq = vl_alloc((size_t)t.nseq * sizeof *t.seq);
        for (int j = 0; j < c[i].nseq; j++)
            t.seq[j] = (struct vl_seq){ .row = (int64_t)j * c[i].n, .n = c[i].n };
        t.qkv = array(N * W), t.dqkv = array(N * W), t.out = array(N * t.a.H * t.a.D);
        t.dout = array(N * t.a.H * t.a.D), t.lse = array(N * t.a.H);
        printf("attention %s %d x %d, %d/%d heads of %d: forward %.1f", vl_compute_name(ct),
               c[i].nseq, c[i].n, t.a.H, t.a.K, t.a.D, flop / best(do_attn, &t));
        printf("  backward %.1f GFLOP/s\n", 2.5 * flop / best(do_attn_bwd, &t));
        free(t.seq), be->free(be->ctx, t.qkv), be->free(be->ctx, t.dqkv);
        be->free(be->ctx, t.out), be->free(be->ctx, t.dout), be->free(be->ctx, t.lse);
    }
}

/* One token each of 64 sequences with T keys in pages: stored, then the attention. */
static void bench_decode(enum vl_compute ct, int T)
{
    enum { B = 64 };
    struct att t = { .a = { .H = 9, .K = 3, .D = 64, .scale = 0.125f, .ct = ct }, .nseq = B };
    int64_t W = 15 * 64, np = (int64_t)B * T / VL_PAGE;
    size_t bytes = (size_t)np * be->kv_bytes(be->ctx, &t.a);
    int32_t *map = vl_alloc((size_t)np * sizeof *map);
    struct vl_err e = { 0 };
    double s;

    t.seq = vl_alloc(B * sizeof *t.seq);
    if (be->alloc(be->ctx, &t.kc, bytes, &e) || be->alloc(be->ctx, &t.vc, bytes, &e))
        vl_oom(bytes);
    for (int32_t i = 0; i < np; i++)
        map[i] = (int32_t)((int64_t)i * 7919 % np);
    t.qkv = array((T + B) * W), t.out = array(B * 9 * 64);
    for (int i = 0; i < B; i++)
        t.seq[i] = (struct vl_seq){ .row = i, .n = T, .page = map + i * T / VL_PAGE };
    do_store(&t);
    for (int i = 0; i < B; i++)
        t.seq[i].n = 1, t.seq[i].pos = T - 1;
    s = best(do_attn, &t);
    printf("decode attention %s %d x %d keys: %.3f ms, %.1f GB/s", vl_compute_name(ct), B, T,
           1e3 * s, 2e-9 * (double)bytes / s);
    printf("  store %.3f ms\n", 1e3 * best(do_store, &t));
    free(t.seq), free(map), be->free(be->ctx, t.qkv), be->free(be->ctx, t.out);
    be->free(be->ctx, t.kc), be->free(be->ctx, t.vc);
}

struct head {
    int64_t M, V, C;
    float *x, *W, *dx, *r;
    struct vl_weight *w;
    int32_t *y;
    double *u;
    struct vl_sampling s;
};

static void do_logp(void *p)
{
    struct head *h = p;

    be->head_logp(be->ctx, h->r, h->r + h->M, h->r + 2 * h->M, NULL, h->x, h->w, h->y, NULL, 1,
                  h->M);
}
static void do_head_bwd(void *p)
{
    struct head *h = p;

    be->head_bwd(be->ctx, h->dx, h->W, h->x, h->w, h->y, h->r + 2 * h->M, h->r + h->M, h->r,
                 h->r + h->M, NULL, NULL, 1, h->M, 1);
}
static void do_sample(void *p)
{
    struct head *h = p;

    be->head_sample(be->ctx, h->y, h->r, NULL, h->x, h->w, h->u, &h->s, NULL, NULL, h->M);
}

static void bench_head(void)
{
    static const int64_t shape[][3] = { { 640, 14, 128 },
                                        { 64, 49152, 576 },
                                        { 1024, 49152, 576 } };

    for (size_t i = 0; i < 3; i++)
        for (int ct = 0; ct < VL_COMPUTES; ct++) {
            struct head h = { .M = shape[i][0], .V = shape[i][1], .C = shape[i][2] };
            double flop = 2e-9 * (double)h.M * (double)h.V * (double)h.C, t;
            struct vl_err e = { 0 };

            h.x = array(h.M * h.C), h.W = array(h.V * h.C), h.dx = array(h.M * h.C);
            h.r = array(3 * h.M), h.y = vl_alloc((size_t)h.M * sizeof *h.y);
            h.u = vl_alloc((size_t)h.M * sizeof *h.u);
            for (int64_t m = 0; m < h.M; m++)
                h.u[m] = ((double)m + 0.5) / (double)h.M;
            if (be->weight_new(be->ctx, &h.w, h.V, h.C, (enum vl_compute)ct, VL_FORM_TRAIN, &e))
                exit(1);
            be->weight_set(be->ctx, h.w, h.W);
            printf("head %s M %lld V %lld: logp %.1f", vl_compute_name((enum vl_compute)ct),
                   (long long)h.M, (long long)h.V, flop / best(do_logp, &h));
            if (h.M <= 640 || !ct)
                printf("  backward %.1f", 3 * flop / best(do_head_bwd, &h));
            h.s = (struct vl_sampling){ .temperature = 1, .top_p = 1 };
            t = best(do_sample, &h);
            h.s.top_p = 0.9, h.s.top_k = 50;
            printf(" GFLOP/s  sample %.2f ms, top-k and top-p %.2f ms\n", 1e3 * t,
                   1e3 * best(do_sample, &h));
            be->weight_free(be->ctx, h.w), free(h.y), free(h.u);
            be->free(be->ctx, h.x), be->free(be->ctx, h.W), be->free(be->ctx, h.dx);
            be->free(be->ctx, h.r);
        }
}

static int wanted(int argc, char **argv, const char *what)
{
    return argc < 4 || strcmp(argv[3], what) == 0;
}

int main(int argc, char **argv)
{
    struct vl_err e = { 0 };

    if (vl_backend_cpu(&be, argc > 1 ? argv[1] : NULL, argc > 2 ? atoi(argv[2]) : 0, 1, &e)) {
        fprintf(stderr, "bench_kernels: %s\n", e.msg);
        return e.code;
    }
    if (argc > 2 && atoi(argv[2]) == 1)
        clock_used = CLOCK_PROCESS_CPUTIME_ID;
    printf("%s\n", be->name);
    if (wanted(argc, argv, "linear"))
        bench_linear();
    for (int ct = 0; ct < VL_COMPUTES && wanted(argc, argv, "attention"); ct++)
        bench_attention((enum vl_compute)ct);
    for (int ct = 0; ct < VL_COMPUTES && wanted(argc, argv, "decode"); ct++) {
        bench_decode((enum vl_compute)ct, 64);
        bench_decode((enum vl_compute)ct, 512);
    }
    if (wanted(argc, argv, "head"))
        bench_head();
    be->close(be);
    return 0;
}
