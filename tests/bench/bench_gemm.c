/* bench_gemm.c - the backend's products for a model's matrices, as a share of what the cores can do.
 *
 *   bench_gemm HIDDEN HEADS KV_HEADS FFN VOCAB [THREADS [SECONDS]]
 *
 * For each matrix of a layer and the head, 1, 8, 64 and 512 rows, fp32, bf16 and, where there are
 * tiles, amx:
 *
 *   peak bf16 939.3
 *   gemm bf16 gate_up 3072x576 rows 64 gflops 612.1 share 0.65
 *
 * The peak is a loop of multiply-adds on registers in the widest form the CPU has, all threads at
 * once, measured before and after: the larger one counts. Where the CPU has no bf16 dot product the
 * fp32 peak stands for it. Few rows are bound by memory: weights are taken in turn from as many
 * copies as do not fit in caches (256 MB), as the layers of a model would be. Best of the samples. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/base/log.h"
#include "libverl/engine/backend.h"
#include "libverl/model/model.h"

enum { POOL_BYTES = 256 << 20, MAX_COPIES = 256 };

static struct vl_backend *be;
static double least = 0.3;
static int threads;

/* ---- the peak ---- */

#if defined(__x86_64__)
/* 12 independent accumulators: more than latency times units of any core so far. All operands are
 * zero, so that nothing denormal slows them. */
/* clang-format off */
#define ONE(INSN, R, I) INSN " %%" R "mm13,%%" R "mm12,%%" R "mm" #I "\n\t"
#define TWELVE(INSN, R)                                                                            \
    ONE(INSN, R, 0) ONE(INSN, R, 1) ONE(INSN, R, 2) ONE(INSN, R, 3) ONE(INSN, R, 4)                \
    ONE(INSN, R, 5) ONE(INSN, R, 6) ONE(INSN, R, 7) ONE(INSN, R, 8) ONE(INSN, R, 9)                \
    ONE(INSN, R, 10) ONE(INSN, R, 11)
#define CLEAR                                                                                      \
    "vxorps %%ymm12,%%ymm12,%%ymm12\n\tvxorps %%ymm13,%%ymm13,%%ymm13\n\t" TWELVE("vandps", "y")
#define LOOP(NAME, INSN, R)                                                                        \
    static void NAME(long n)                                                                       \
    {                                                                                              \
        __asm__ volatile(CLEAR "1:\n\t" TWELVE(INSN, R) "dec %0\n\tjnz 1b\n\tvzeroupper"           \
                         : "+r"(n)                                                                 \
                         :                                                                         \
                         : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",   \
                           "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13");                    \
    }
/* clang-format on */
LOOP(fma_256, "vfmadd231ps", "y")
LOOP(fma_512, "vfmadd231ps", "z")
LOOP(dot_512, "vdpbf16ps", "z")

/* Four products of tiles of zeros by a fifth, which do not wait for each other. */
__attribute__((target("amx-tile,amx-bf16"))) static void tiles(long n)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } c = { .palette = 1 };

    for (int i = 0; i < 8; i++)
        c.row_bytes[i] = 64, c.rows[i] = 16;
    __asm__ volatile("ldtilecfg (%0)" : : "r"(&c) : "memory");
    for (long i = 0; i < n; i++)
        __asm__ volatile("tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\ttdpbf16ps %%tmm6, %%tmm4, %%tmm1\n\t"
                         "tdpbf16ps %%tmm6, %%tmm4, %%tmm2\n\ttdpbf16ps %%tmm6, %%tmm4, %%tmm3" ::);
    __asm__ volatile("tilerelease" ::);
}

/* GFLOP/s of all threads; 0: there is no such form. */
static double peak_of(void (*loop)(long), double flop) /* flop: of one of twelve */
{
    double best = 0;

    for (int i = 0; i < 5; i++) {
        long n = 1000000 + (long)(least * 2e8);
        double t = vl_now(), rate;

#    pragma omp parallel num_threads(threads)
        loop(n);
        t = vl_now() - t;
        rate = 12e-9 * flop * (double)n * threads / t;
        best = rate > best ? rate : best;
    }
    return best;
}

static double peak(enum vl_compute ct)
{
    if (ct == VL_COMPUTE_AMX && be->best == VL_COMPUTE_AMX)
        return peak_of(tiles, 4 * 16384 / 12.0);
    if (ct && __builtin_cpu_supports("avx512bf16"))
        return peak_of(dot_512, 64);
    if (__builtin_cpu_supports("avx512f"))
        return peak_of(fma_512, 32);
    return __builtin_cpu_supports("fma") ? peak_of(fma_256, 16) : 0;
}
#else
static double peak(enum vl_compute ct)
{
    (void)ct;
    return 0;
}
#endif

/* ---- products ---- */

static float *array(int64_t n, struct vl_err *e)
{
    void *p = NULL;
    float *x;
    uint32_t s = 12345;

    if (be->alloc(be->ctx, &p, (size_t)n * sizeof *x, e))
        return NULL;
    x = be->host(be->ctx, p);
    for (int64_t i = 0; i < n; i++) {
        s = s * 1664525u + 1013904223u;
        x[i] = (float)(s >> 8) * 0x1p-24f - 0.5f;
    }
    return p;
}

static double rate(struct vl_weight **w, int copies, float *y, const void *x, int64_t O, int64_t I,
                   int64_t N)
{
    double best = 0, began = vl_now();
    int at = 0;

    do {
        double t = vl_now(), r;
        int n = 0;

        do
            be->linear(be->ctx, y, x, w[at++ % copies], NULL, NULL, N);
        while (++n < copies && vl_now() - t < 0.02);
        t = vl_now() - t;
        r = 2e-9 * (double)N * (double)O * (double)I * n / t;
        best = r > best ? r : best;
    } while (vl_now() - began < least);
    return best;
}

struct result {
    const char *name;
    int64_t O, I, N;
    double rate;
};

static int measure(struct result *out, int *n, const char *name, int64_t O, int64_t I,
                   enum vl_compute ct, struct vl_err *e)
{
    static const int64_t rows[] = { 1, 8, 64, 512 };
    size_t each = be->weight_bytes(be->ctx, O, I, ct, 0);
    int copies = each > POOL_BYTES ? 1 : (int)(POOL_BYTES / each) + 1;
    struct vl_weight *w[MAX_COPIES] = { NULL };
    float *W = array(O * I, e), *x = array(512 * I, e), *y = array(512 * O, e);
    float *half = array(512 * (I + 32), e);
    const void *xo = e->code ? NULL : be->operand(be->ctx, half, x, 512, I, ct);

    copies = copies > MAX_COPIES ? MAX_COPIES : copies;
    for (int i = 0; !e->code && i < copies; i++)
        if (!be->weight_new(be->ctx, &w[i], O, I, ct, VL_FORM_PLAIN, e))
            be->weight_set(be->ctx, w[i], W);
    for (int i = 0; !e->code && i < 4; i++)
        out[(*n)++] = (struct result){ name, O, I, rows[i], rate(w, copies, y, xo, O, I, rows[i]) };
    for (int i = 0; i < copies; i++)
        if (w[i])
            be->weight_free(be->ctx, w[i]);
    float *all[] = { W, x, y, half };
    for (int i = 0; i < 4; i++)
        if (all[i])
            be->free(be->ctx, all[i]);
    return e->code;
}

static int measure_model(const struct vl_config *c, enum vl_compute ct, struct vl_err *e)
{
    const char *type = vl_compute_name(ct);
    struct result r[20];
    int n = 0;
    double top = peak(ct), again;

    if (measure(r, &n, "qkv", (c->H + 2 * c->K) * c->D, c->C, ct, e) ||
        measure(r, &n, "o", c->C, c->H * c->D, ct, e) ||
        measure(r, &n, "gate_up", 2 * c->F, c->C, ct, e) ||
        measure(r, &n, "down", c->C, c->F, ct, e) || measure(r, &n, "head", c->V, c->C, ct, e))
        return e->code;
    again = peak(ct);
    top = again > top ? again : top;
    printf("peak %s %.1f\n", type, top);
    for (int i = 0; i < n; i++) {
        printf("gemm %s %s %lldx%lld rows %lld gflops %.4g share ", type, r[i].name,
               (long long)r[i].O, (long long)r[i].I, (long long)r[i].N, r[i].rate);
        printf(top > 0 ? "%.2f\n" : "-\n", r[i].rate / top);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct vl_config c = { 0 };
    int64_t *dim[] = { &c.C, &c.H, &c.K, &c.F, &c.V };
    struct vl_err e = { 0 };
    int bad = argc < 6 || argc > 8;

    for (int i = 0; !bad && i < 5; i++) {
        *dim[i] = atoll(argv[i + 1]);
        bad = *dim[i] < 1 || *dim[i] > 1 << 20;
    }
    if (bad || c.C % c.H) {
        fprintf(stderr, "usage: bench_gemm HIDDEN HEADS KV_HEADS FFN VOCAB [THREADS [SECONDS]]\n");
        return VL_E_USAGE;
    }
    c.D = c.C / c.H;
    threads = argc > 6 ? atoi(argv[6]) : 1;
    threads = threads > 0 ? threads : 1;
    least = argc > 7 ? atof(argv[7]) : least;
    if (!vl_backend_cpu(&be, NULL, threads, 1, &e) && !measure_model(&c, VL_COMPUTE_F32, &e) &&
        !measure_model(&c, VL_COMPUTE_BF16, &e) && vl_compute_half(be) == VL_COMPUTE_AMX)
        (void)!measure_model(&c, VL_COMPUTE_AMX, &e);
    if (e.code)
        fprintf(stderr, "bench_gemm: %s\n", e.msg);
    if (be)
        be->close(be);
    return e.code;
}
