/* mlp.c - the products around SwiGLU, fused with it.
 *
 * gate | up is the widest matrix of a layer: it and the gradient of h are taken up while their tiles
 * are still in the cache. A panel of gate and the panel of up with the same columns belong to one task;
 * where the panels of the two halves do not meet (F is no multiple of a panel's width, which no common
 * model has), the halves go through memory.
 */
#include "kernels/cpu/cpu.h"

#define SUB 96 /* rows of a task at a time: tiles of gate and up take 48 KB */

struct mlp {
    const struct vl_cpu *c;
    struct vl_rows x; /* or dy */
    const struct vl_weight *w;
    const float *bias, *gu;
    float *gu_out;
    void *h, *dgu;
    int64_t N, F, mb, np; /* rows, columns of h, rows of a task, panels of h */
    float *buf;
    size_t stride;
};

/* Column `col` of row m of an operand with n columns. */
static void *element(void *o, int64_t m, int64_t col, int64_t n, enum vl_compute ct)
{
    uint32_t *row = (uint32_t *)o + m * vl_cpu_depth(ct, n);

    return ct == VL_COMPUTE_F32 ? (void *)(row + col) : (void *)((uint16_t *)row + col);
}

/* n columns of h from column `col` on; the last ones of the row end it. */
static void activate(const struct mlp *j, int64_t m, int64_t col, int64_t n, const float *g,
                     const float *u)
{
    enum vl_compute ct = j->w->ct;
    void *h = element(j->h, m, col, j->F, ct);

    if (ct == VL_COMPUTE_F32) {
        j->c->k.swiglu(h, g, u, n);
        return;
    }
    j->c->k.swiglu16(h, g, u, n);
    if (col + n == j->F)
        vl_cpu_pad(element(j->h, m, 0, j->F, ct), j->F, ct);
}

static void gate_up_task(void *arg, int64_t t, int thread)
{
    const struct mlp *j = arg;
    const struct vl_cpu *c = j->c;
    int64_t nr = c->k.nr, p = t % j->np, m0 = t / j->np * j->mb, F = j->F;
    int64_t end = m0 + j->mb < j->N ? m0 + j->mb : j->N;
    int64_t ld = j->gu_out ? 2 * F : 2 * nr, next = p + c->threads;
    float *tile = j->buf + (size_t)thread * j->stride;

    for (int64_t m = m0, M; m < end; m += M) {
        float *g = j->gu_out ? j->gu_out + m * ld + p * nr : tile, *u = g + (j->gu_out ? F : nr);
        int last;

        M = end - m < SUB ? end - m : SUB;
        last = m + M == end && next < j->np;
        vl_cpu_tile_y(c, g, ld, j->x, m, M, j->w, p, m == m0 ? j->np + p : 2 * j->np);
        vl_cpu_tile_y(c, u, ld, j->x, m, M, j->w, j->np + p, last ? next : 2 * j->np);
        for (int64_t i = 0; i < M; i++) {
            if (j->bias) {
                c->k.add(g + i * ld, j->bias + p * nr, nr);
                c->k.add(u + i * ld, j->bias + F + p * nr, nr);
            }
            activate(j, m + i, p * nr, nr, g + i * ld, u + i * ld);
        }
    }
}

static void row_task(void *arg, int64_t m, int thread)
{
    const struct mlp *j = arg;

    (void)thread;
    activate(j, m, 0, j->F, j->gu + 2 * m * j->F, j->gu + (2 * m + 1) * j->F);
}

void vl_cpu_gate_up(void *ctx, void *h, float *gu, const void *x, const struct vl_weight *w,
                    const float *bias, int64_t N)
{
    struct vl_cpu *c = ctx;
    int64_t F = w->O / 2, np = F / c->k.nr, mb = vl_cpu_row_block(c, N, w->I, np, w->ct);
    double work = (double)N * (double)w->O * (double)w->I / 8;
    struct mlp j = { .c = c,
                     .x = vl_cpu_rows_for(c, x, N, w),
                     .w = w,
                     .bias = bias,
                     .gu_out = gu,
                     .h = h,
                     .N = N,
                     .F = F,
                     .mb = mb,
                     .np = np };

    if (F % c->k.nr == 0) {
        j.buf = vl_cpu_thread_scratch(c, (size_t)(SUB * 2 * c->k.nr), &j.stride);
        vl_cpu_run(c, work, (N + mb - 1) / mb * np, gate_up_task, &j);
        return;
    }
    if (!gu)
        gu = vl_cpu_scratch(c, VL_SCRATCH_A, (size_t)(2 * N * F) * sizeof *gu);
    vl_cpu_linear(ctx, gu, x, w, bias, NULL, N);
    j.gu = gu;
    vl_cpu_run(c, 4.0 * (double)(N * F), N, row_task, &j);
}

/* n columns from column `col` on of a row's dgu and h. */
static void differentiate(const struct mlp *j, int64_t m, int64_t col, int64_t n, const float *dh)
{
    enum vl_compute ct = j->w->ct;
    const float *g = j->gu + 2 * m * j->F + col, *u = g + j->F;
    void *dg = element(j->dgu, m, col, 2 * j->F, ct);
    void *du = element(j->dgu, m, j->F + col, 2 * j->F, ct);
    void *h = element(j->h, m, col, j->F, ct);

    if (ct == VL_COMPUTE_F32) {
        j->c->k.swiglu_bwd(dg, du, h, dh, g, u, n);
        return;
    }
    j->c->k.swiglu_bwd16(dg, du, h, dh, g, u, n);
    if (col + n < j->F)
        return;
    vl_cpu_pad(element(j->h, m, 0, j->F, ct), j->F, ct);
    vl_cpu_pad(element(j->dgu, m, 0, 2 * j->F, ct), 2 * j->F, ct);
}

/* Asks for n floats, to be in the second-level cache when a product is done: columns of a tile are too
 * short for the processor to see them coming. */
static void fetch(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        __builtin_prefetch(x + i, 0, 2);
}

static void gate_up_bwd_task(void *arg, int64_t t, int thread)
{
    const struct mlp *j = arg;
    const struct vl_cpu *c = j->c;
    int64_t nr = c->k.nr, p = t % j->np, m0 = t / j->np * j->mb;
    int64_t end = m0 + j->mb < j->N ? m0 + j->mb : j->N;
    int64_t n = j->F - p * nr < nr ? j->F - p * nr : nr;
    float *tile = j->buf + (size_t)thread * j->stride;

    for (int64_t m = m0, M; m < end; m += M) {
        M = end - m < SUB ? end - m : SUB;
        for (int64_t i = 0; i < M; i++) {
            const float *g = j->gu + 2 * (m + i) * j->F + p * nr;

            fetch(g, n);
            fetch(g + j->F, n);
        }
        vl_cpu_tile_dx(c, tile, nr, j->x, m, M, j->w, p, m + M == end ? p + c->threads : j->np, 0,
                       j->w->O, 0);
        for (int64_t i = 0; i < M; i++)
            differentiate(j, m + i, p * nr, n, tile + i * nr);
    }
}

void vl_cpu_gate_up_bwd(void *ctx, void *dgu, void *h, const void *dy, const struct vl_weight *down,
                        const float *gu, int64_t N)
{
    struct vl_cpu *c = ctx;
    int64_t np = vl_cpu_panels(c, down->I), mb = vl_cpu_row_block(c, N, down->O, np, down->ct);
    struct mlp j = { .c = c,
                     .x = vl_cpu_rows_of(dy, down->O, down->ct),
                     .w = down,
                     .gu = gu,
                     .h = h,
                     .dgu = dgu,
                     .N = N,
                     .F = down->I,
                     .mb = mb,
                     .np = np };

    j.buf = vl_cpu_thread_scratch(c, (size_t)(SUB * c->k.nr), &j.stride);
    vl_cpu_run(c, (double)N * (double)down->O * (double)down->I / 8, (N + mb - 1) / mb * np,
               gate_up_bwd_task, &j);
}
