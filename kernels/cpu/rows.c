/* rows.c - embedding, RMSNorm, rope, SwiGLU and copies: one row at a time.
 *
 * Gradients of parameters are summed over rows in order; they are divided over columns, so that no
 * two threads meet and no partial sums exist. */
#include "kernels/cpu/cpu.h"

#include <omp.h>
#include <string.h>

#define COLS 64 /* columns of a task in sums over rows */

static int64_t at_most(int64_t n, int64_t limit)
{
    return n < limit ? n : limit;
}

void vl_cpu_embed(void *ctx, float *x, const float *E, const int32_t *ids, int64_t N, int64_t C)
{
    const struct vl_cpu *c = ctx;

#pragma omp parallel for schedule(static) num_threads(vl_cpu_team(c, (double)(N * C) / 4))
    for (int64_t n = 0; n < N; n++)
        memcpy(x + n * C, E + ids[n] * C, (size_t)C * sizeof *x);
}

void vl_cpu_embed_dw(void *ctx, float *dE, const float *dx, const int32_t *ids, int64_t N,
                     int64_t C)
{
    const struct vl_cpu *c = ctx;

#pragma omp parallel for schedule(static) num_threads(vl_cpu_team(c, (double)(N * C)))
    for (int64_t i = 0; i < C; i += COLS)
        for (int64_t n = 0; n < N; n++)
            c->k.add(dE + ids[n] * C + i, dx + n * C + i, at_most(C - i, COLS));
}

void vl_cpu_rmsnorm(void *ctx, float *y, float *rstd, const float *x, const float *w, int64_t N,
                    int64_t C, float eps)
{
    const struct vl_cpu *c = ctx;

#pragma omp parallel for schedule(static) num_threads(vl_cpu_team(c, (double)(N * C)))
    for (int64_t n = 0; n < N; n++)
        rstd[n] = c->k.rmsnorm(y + n * C, x + n * C, w, C, eps);
}

void vl_cpu_rmsnorm_bwd(void *ctx, float *dx, float *dw, const float *dy, const float *x,
                        const float *w, const float *rstd, int64_t N, int64_t C, int accumulate)
{
    const struct vl_cpu *c = ctx;

#pragma omp parallel num_threads(vl_cpu_team(c, 2.0 * (double)(N * C)))
    {
        /* dw first: dx may be dy */
#pragma omp for schedule(static)
        for (int64_t i = 0; i < C; i += 16)
            c->k.rmsnorm_dw(dw + i, dy + i, x + i, rstd, N, C, at_most(C - i, 16));
#pragma omp for schedule(static)
        for (int64_t n = 0; n < N; n++)
            c->k.rmsnorm_dx(dx + n * C, dy + n * C, x + n * C, w, rstd[n], C, accumulate);
    }
}

/* One position's cos and sin, unzipped for the vector loop; dir -1 negates sin. */
static void rope_row(const struct vl_cpu *c, float *x, const float *table, int32_t heads, int32_t D,
                     int dir)
{
    float cs[256], sn[256];
    int64_t half = D / 2;

    for (int64_t j = 0; j < half; j += 256) {
        int64_t n = at_most(half - j, 256);

        for (int64_t i = 0; i < n; i++) {
            cs[i] = table[2 * (j + i)];
            sn[i] = dir < 0 ? -table[2 * (j + i) + 1] : table[2 * (j + i) + 1];
        }
        for (int32_t h = 0; h < heads; h++)
            c->k.rope(x + (int64_t)h * D + j, x + (int64_t)h * D + half + j, cs, sn, n);
    }
}

void vl_cpu_rope(void *ctx, float *x, int64_t stride, const float *table, const int32_t *pos,
                 int64_t N, int32_t heads, int32_t D, int dir)
{
    const struct vl_cpu *c = ctx;

#pragma omp parallel for schedule(static) num_threads(vl_cpu_team(c, (double)(N * heads * D)))
    for (int64_t n = 0; n < N; n++)
        rope_row(c, x + n * stride, table + (int64_t)pos[n] * D, heads, D, dir);
}

void vl_cpu_swiglu(void *ctx, float *h, const float *gu, int64_t N, int64_t F)
{
    const struct vl_cpu *c = ctx;

#pragma omp parallel for schedule(static) num_threads(vl_cpu_team(c, 4.0 * (double)(N * F)))
    for (int64_t n = 0; n < N; n++)
        c->k.swiglu(h + n * F, gu + 2 * n * F, gu + (2 * n + 1) * F, F);
}

void vl_cpu_swiglu_bwd(void *ctx, float *dgu, const float *dh, const float *gu, int64_t N,
                       int64_t F)
{
    const struct vl_cpu *c = ctx;

#pragma omp parallel for schedule(static) num_threads(vl_cpu_team(c, 6.0 * (double)(N * F)))
    for (int64_t n = 0; n < N; n++)
        c->k.swiglu_bwd(dgu + 2 * n * F, dgu + (2 * n + 1) * F, dh + n * F, gu + 2 * n * F,
                        gu + (2 * n + 1) * F, F);
}

#define FLAT 8192 /* elements of a task in flat operations */

void vl_cpu_add(void *ctx, float *y, const float *x, int64_t n)
{
    const struct vl_cpu *c = ctx;

#pragma omp parallel for schedule(static) num_threads(vl_cpu_team(c, (double)n / 4))
    for (int64_t i = 0; i < n; i += FLAT)
        c->k.add(y + i, x + i, at_most(n - i, FLAT));
}

void vl_cpu_scale(void *ctx, float *x, float a, int64_t n)
{
    const struct vl_cpu *c = ctx;

#pragma omp parallel for schedule(static) num_threads(vl_cpu_team(c, (double)n / 4))
    for (int64_t i = 0; i < n; i += FLAT)
        c->k.scale(x + i, a, at_most(n - i, FLAT));
}

void vl_cpu_gather(void *ctx, float *y, const float *x, const int64_t *rows, int64_t M, int64_t C)
{
    const struct vl_cpu *c = ctx;

#pragma omp parallel for schedule(static) num_threads(vl_cpu_team(c, (double)(M * C) / 4))
    for (int64_t m = 0; m < M; m++)
        memcpy(y + m * C, x + rows[m] * C, (size_t)C * sizeof *y);
}

void vl_cpu_scatter_add(void *ctx, float *x, const float *y, const int64_t *rows, int64_t M,
                        int64_t C)
{
    const struct vl_cpu *c = ctx;

#pragma omp parallel for schedule(static) num_threads(vl_cpu_team(c, (double)(M * C) / 4))
    for (int64_t m = 0; m < M; m++)
        c->k.add(x + rows[m] * C, y + m * C, C);
}
