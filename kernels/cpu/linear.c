/* linear.c - packed weights and the products with them. Orders of summation: cpu.h, backend.h.
 *
 * Weights are packed once per load or optimizer step into panels as wide as one tile, so that the
 * inner loop streams them; x stays row-major. The reduction is cut at fixed K_BLOCK steps for the
 * cache only: the accumulator goes through memory, which changes no bit. */
#include "kernels/cpu/cpu.h"

#include "libverl/base/mem.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define K_BLOCK 1024 /* of a panel: 256 KB at 64 columns */

int64_t vl_cpu_panels(const struct vl_cpu *c, int64_t n)
{
    return (n + c->k.nr - 1) / c->k.nr;
}

/* Elements of a packed side with `out` outputs reduced over `in`: fp32, or pairs of bf16. */
static size_t side_elems(const struct vl_cpu *c, int64_t out, int64_t in, enum vl_compute ct)
{
    int64_t k = ct == VL_COMPUTE_BF16 ? (in + 1) / 2 : in;

    return (size_t)(vl_cpu_panels(c, out) * c->k.nr * k);
}

size_t vl_cpu_weight_bytes(void *ctx, int64_t O, int64_t I, enum vl_compute ct, int train)
{
    return 4 * (side_elems(ctx, O, I, ct) + (train ? side_elems(ctx, I, O, ct) : 0));
}

int vl_cpu_weight_new(void *ctx, struct vl_weight **out, int64_t O, int64_t I, enum vl_compute ct,
                      int train, struct vl_err *e)
{
    struct vl_weight *w = vl_alloc(sizeof *w);

    *w = (struct vl_weight){ .O = O, .I = I, .ct = ct, .train = train };
    w->fw = vl_cpu_alloc(4 * side_elems(ctx, O, I, ct));
    if (train)
        w->bw = vl_cpu_alloc(4 * side_elems(ctx, I, O, ct));
    if (!w->fw || (train && !w->bw)) {
        vl_cpu_weight_free(ctx, w);
        return vl_fail(e, VL_E_OS, "cannot allocate %zu bytes for a weight matrix of %lld x %lld",
                       vl_cpu_weight_bytes(ctx, O, I, ct, train), (long long)O, (long long)I);
    }
    *out = w;
    return 0;
}

void vl_cpu_weight_free(void *ctx, struct vl_weight *w)
{
    (void)ctx;
    if (!w)
        return;
    free(w->fw);
    free(w->bw);
    free(w);
}

/* One panel of outputs n0 .. n0+n over K reduced elements; W(out o, in k) = W[o*os + k*ks]. */
static void pack_panel(float *dst, const float *W, int64_t os, int64_t ks, int64_t n0, int64_t n,
                       int64_t K, int nr)
{
    for (int64_t k = 0; k < K && os == 1; k++) { /* outputs lie side by side */
        memcpy(dst + k * nr, W + n0 + k * ks, (size_t)n * sizeof *dst);
        memset(dst + k * nr + n, 0, (size_t)(nr - n) * sizeof *dst);
    }
    for (int64_t k0 = 0; k0 < K && os != 1; k0 += 16) { /* so that whole lines of W are used up */
        int64_t k1 = k0 + 16 < K ? k0 + 16 : K;

        for (int64_t j = 0; j < nr; j++)
            for (int64_t k = k0; k < k1; k++)
                dst[k * nr + j] = j < n ? W[(n0 + j) * os + k * ks] : 0;
    }
}

static void pack_panel16(const struct vl_cpu *c, uint32_t *dst, const float *W, int64_t os,
                         int64_t ks, int64_t n0, int64_t n, int64_t K)
{
    int nr = c->k.nr;

    for (int64_t k0 = 0; k0 < K; k0 += 16) {
        int64_t kn = K - k0 < 16 ? K - k0 : 16;

        for (int64_t j = 0; j < nr; j++) {
            float f[16];
            uint16_t h[16] = { 0 };

            for (int64_t k = 0; k < kn; k++)
                f[k] = j < n ? W[(n0 + j) * os + (k0 + k) * ks] : 0;
            c->k.to_bf16(h, f, kn);
            for (int64_t k = 0; k < kn; k += 2)
                dst[(k0 + k) / 2 * nr + j] = (uint32_t)h[k] | (uint32_t)h[k + 1] << 16;
        }
    }
}

/* Packs one side: `out` outputs, `in` reduced. */
static void pack_side(const struct vl_cpu *c, void *dst, const float *W, int64_t os, int64_t ks,
                      int64_t out, int64_t in, enum vl_compute ct)
{
    int64_t nr = c->k.nr, np = vl_cpu_panels(c, out);
    int64_t panel = nr * (ct == VL_COMPUTE_BF16 ? (in + 1) / 2 : in);

#pragma omp parallel for schedule(dynamic, 1) num_threads(vl_cpu_team(c, (double)out *(double)in))
    for (int64_t p = 0; p < np; p++) {
        int64_t n = out - p * nr < nr ? out - p * nr : nr;

        if (ct == VL_COMPUTE_BF16)
            pack_panel16(c, (uint32_t *)dst + p * panel, W, os, ks, p * nr, n, in);
        else
            pack_panel((float *)dst + p * panel, W, os, ks, p * nr, n, in, (int)nr);
    }
}

void vl_cpu_weight_set(void *ctx, struct vl_weight *w, const float *dev)
{
    pack_side(ctx, w->fw, dev, w->I, 1, w->O, w->I, w->ct);
    if (w->train)
        pack_side(ctx, w->bw, dev, 1, w->I, w->I, w->O, w->ct);
}

struct vl_rows vl_cpu_rows(struct vl_cpu *c, const float *x, int64_t N, int64_t I,
                           enum vl_compute ct)
{
    int64_t ld = (I + 1) / 2;
    uint32_t *h;

    if (ct != VL_COMPUTE_BF16)
        return (struct vl_rows){ .f = x, .ld = I };
    h = vl_cpu_scratch(c, VL_SCRATCH_X, (size_t)(N * ld) * sizeof *h);
#pragma omp parallel for schedule(static) num_threads(vl_cpu_team(c, (double)(N * I)))
    for (int64_t n = 0; n < N; n++)
        c->k.to_bf16((uint16_t *)(h + n * ld), x + n * I, I);
    return (struct vl_rows){ .h = h, .ld = ld };
}

/* y (M, n) = rows m0.. of x times one packed panel, k in [k0, k0 + kn) of the reduction (elements
 * of x's kind: floats or pairs). */
static void mul_panel(const struct vl_cpu *c, float *y, int64_t ldy, struct vl_rows x, int64_t m0,
                      int64_t M, const void *panel, int64_t n, int64_t k0, int64_t kn, int add)
{
    int64_t nr = c->k.nr;

    for (int64_t k = 0; k < kn; k += K_BLOCK) {
        int64_t d = kn - k < K_BLOCK ? kn - k : K_BLOCK;

        if (x.f)
            c->k.mul(y, ldy, x.f + m0 * x.ld + k, x.ld, 1, (const float *)panel + (k0 + k) * nr, nr,
                     M, n, d, add || k);
        else
            c->k.mul16(y, ldy, x.h + m0 * x.ld + k, x.ld, (const uint32_t *)panel + (k0 + k) * nr,
                       nr, M, n, d, add || k);
    }
}

void vl_cpu_tile_y(const struct vl_cpu *c, float *y, int64_t ldy, struct vl_rows x, int64_t m0,
                   int64_t M, const struct vl_weight *w, int64_t p)
{
    int64_t nr = c->k.nr, n = w->O - p * nr < nr ? w->O - p * nr : nr;
    int64_t K = w->ct == VL_COMPUTE_BF16 ? (w->I + 1) / 2 : w->I;

    mul_panel(c, y, ldy, x, m0, M, (const float *)w->fw + p * nr * K, n, 0, K, 0);
}

void vl_cpu_tile_dx(const struct vl_cpu *c, float *dx, int64_t ldx, struct vl_rows dy, int64_t m0,
                    int64_t M, const struct vl_weight *w, int64_t p, int64_t o0, int64_t on,
                    int add)
{
    int64_t nr = c->k.nr, n = w->I - p * nr < nr ? w->I - p * nr : nr;
    int half = w->ct == VL_COMPUTE_BF16;
    int64_t K = half ? (w->O + 1) / 2 : w->O;

    mul_panel(c, dx, ldx, dy, m0, M, (const float *)w->bw + p * nr * K, n, half ? o0 / 2 : o0,
              half ? (on + 1) / 2 : on, add);
}

/* Rows of a task: x rows stay in half the second-level cache, and there is work for all threads. */
static int64_t row_block(const struct vl_cpu *c, int64_t N, int64_t K, int64_t panels)
{
    int64_t mb = 131072 / (K < K_BLOCK ? K : K_BLOCK) / 24 * 24, want = 4 * c->threads;

    mb = mb < 24 ? 24 : mb > 240 ? 240 : mb;
    while (mb > 24 && (N + mb - 1) / mb * panels < want)
        mb = mb / 2 / 6 * 6;
    return mb;
}

static void add_bias(const struct vl_cpu *c, float *y, int64_t ldy, const float *bias, int64_t M,
                     int64_t n)
{
    for (int64_t m = 0; m < M; m++)
        c->k.add(y + m * ldy, bias, n);
}

void vl_cpu_linear(void *ctx, float *y, const float *x, const struct vl_weight *w,
                   const float *bias, int64_t N)
{
    struct vl_cpu *c = ctx;
    int64_t O = w->O, nr = c->k.nr, np = vl_cpu_panels(c, O);
    int64_t mb = row_block(c, N, w->I, np), tasks = (N + mb - 1) / mb * np;
    struct vl_rows r = vl_cpu_rows(c, x, N, w->I, w->ct);

#pragma omp parallel for schedule(dynamic, 1)                                                      \
    num_threads(vl_cpu_team(c, (double)N *(double)O *(double)w->I / 8))
    for (int64_t t = 0; t < tasks; t++) {
        int64_t p = t % np, m0 = t / np * mb, M = N - m0 < mb ? N - m0 : mb;
        float *yt = y + m0 * O + p * nr;

        vl_cpu_tile_y(c, yt, O, r, m0, M, w, p);
        if (bias)
            add_bias(c, yt, O, bias + p * nr, M, O - p * nr < nr ? O - p * nr : nr);
    }
}

/* dx += needs the product from zero first: it goes through a tile of thread scratch. */
static void dx_task(const struct vl_cpu *c, float *dx, struct vl_rows dy, const struct vl_weight *w,
                    int64_t m0, int64_t M, int64_t p, float *tile)
{
    int64_t I = w->I, nr = c->k.nr, n = I - p * nr < nr ? I - p * nr : nr;

    vl_cpu_tile_dx(c, tile, nr, dy, m0, M, w, p, 0, w->O, 0);
    for (int64_t m = 0; m < M; m++)
        c->k.add(dx + (m0 + m) * I + p * nr, tile + m * nr, n);
}

void vl_cpu_linear_dx(void *ctx, float *dx, const float *dy, const struct vl_weight *w, int64_t N,
                      int accumulate)
{
    struct vl_cpu *c = ctx;
    int64_t I = w->I, nr = c->k.nr, np = vl_cpu_panels(c, I);
    int64_t mb = row_block(c, N, w->O, np), tasks = (N + mb - 1) / mb * np;
    struct vl_rows r = vl_cpu_rows(c, dy, N, w->O, w->ct);
    size_t stride;
    float *tile = vl_cpu_thread_scratch(c, (size_t)(mb * nr), &stride);

#pragma omp parallel for schedule(dynamic, 1)                                                      \
    num_threads(vl_cpu_team(c, (double)N *(double)w->O *(double)I / 8))
    for (int64_t t = 0; t < tasks; t++) {
        int64_t p = t % np, m0 = t / np * mb, M = N - m0 < mb ? N - m0 : mb;

        if (accumulate)
            dx_task(c, dx, r, w, m0, M, p, tile + (size_t)omp_get_thread_num() * stride);
        else
            vl_cpu_tile_dx(c, dx + m0 * I + p * nr, I, r, m0, M, w, p, 0, w->O, 0);
    }
}

void vl_cpu_linear_dw(void *ctx, float *dw, const float *dy, const float *x, int64_t N, int64_t O,
                      int64_t I)
{
    struct vl_cpu *c = ctx;
    int64_t nr = c->k.nr, np = vl_cpu_panels(c, I), ob = 48, no = (O + ob - 1) / ob;
    float *px = vl_cpu_scratch(c, VL_SCRATCH_A, (size_t)(np * nr * N) * sizeof *px);

#pragma omp parallel num_threads(vl_cpu_team(c, (double)N *(double)O *(double)I / 8))
    {
#pragma omp for schedule(static)
        for (int64_t n = 0; n < N; n++) /* x in panels: each is read O / 6 times */
            for (int64_t p = 0; p < np; p++) {
                int64_t w = I - p * nr < nr ? I - p * nr : nr;

                memcpy(px + (p * N + n) * nr, x + n * I + p * nr, (size_t)w * sizeof *px);
            }
#pragma omp for schedule(dynamic, 1)
        for (int64_t t = 0; t < np * no; t++) {
            int64_t p = t / no, o = t % no * ob, m = O - o < ob ? O - o : ob;
            int64_t w = I - p * nr < nr ? I - p * nr : nr;

            for (int64_t n = 0; n < N; n += K_BLOCK)
                c->k.mul(dw + o * I + p * nr, I, dy + n * O + o, 1, O, px + (p * N + n) * nr, nr, m,
                         w, N - n < K_BLOCK ? N - n : K_BLOCK, 1);
        }
    }
}

void vl_cpu_linear_db(void *ctx, float *db, const float *dy, int64_t N, int64_t O)
{
    struct vl_cpu *c = ctx;

#pragma omp parallel for schedule(static) num_threads(vl_cpu_team(c, (double)(N * O)))
    for (int64_t o = 0; o < O; o += 64)
        for (int64_t n = 0; n < N; n++)
            c->k.add(db + o, dy + n * O + o, O - o < 64 ? O - o : 64);
}
