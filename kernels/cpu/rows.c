/* rows.c - embedding, RMSNorm, rope and copies: one row at a time.
 *
 * Gradients of parameters are summed over rows in order; they are divided over columns, so that no
 * two threads meet and no partial sums exist. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

#define COLS 64 /* columns of a piece in sums over rows */

/* `n` rows, or column pieces; one(j, i) does number i. Unused fields stay 0. */
struct job {
    void (*one)(const struct job *j, int64_t i);
    const struct vl_kern *k;
    int64_t n, per; /* per: pieces of a task */
    int64_t N, C, stride;
    float *y, *z, *x0;
    const float *a, *b, *c, *d;
    const int32_t *ids;
    const int64_t *rows;
    int32_t heads;
    int flag;
    float f;
    void *o; /* an operand of C columns */
    enum vl_compute ct;
};

static int64_t at_most(int64_t n, int64_t limit)
{
    return n < limit ? n : limit;
}

static void do_task(void *arg, int64_t t, int thread)
{
    const struct job *j = arg;

    (void)thread;
    for (int64_t i = t * j->per; i < at_most(j->n, (t + 1) * j->per); i++)
        j->one(j, i);
}

/* cost: elementary steps of one piece */
static void run(struct vl_cpu *c, struct job j, double cost)
{
    j.k = &c->k;
    j.per = 1 + (int64_t)(8192 / (cost + 1));
    vl_cpu_run(c, cost * (double)j.n, (j.n + j.per - 1) / j.per, do_task, &j);
}

static void embed_row(const struct job *j, int64_t n)
{
    memcpy(j->y + n * j->C, j->a + j->ids[n] * j->C, (size_t)j->C * sizeof(float));
}

void vl_cpu_embed(void *ctx, float *x, const float *E, const int32_t *ids, int64_t N, int64_t C)
{
    run(ctx, (struct job){ embed_row, .n = N, .C = C, .y = x, .a = E, .ids = ids }, (double)C / 4);
}

static void embed_dw_cols(const struct job *j, int64_t i)
{
    int64_t at = i * COLS, w = at_most(j->C - at, COLS);

    for (int64_t n = 0; n < j->N; n++)
        j->k->add(j->y + j->ids[n] * j->C + at, j->a + n * j->C + at, w);
}

void vl_cpu_embed_dw(void *ctx, float *dE, const float *dx, const int32_t *ids, int64_t N,
                     int64_t C)
{
    run(ctx,
        (struct job){ embed_dw_cols, .n = (C + COLS - 1) / COLS, .N = N, .C = C, .y = dE, .a = dx,
                      .ids = ids },
        (double)(N * COLS));
}

static float rstd_of(const struct job *j, const float *x)
{
    return 1.0f / sqrtf(j->k->dot(x, x, j->C) / (float)j->C + j->f);
}

/* Row n of the operand: x r w */
static void norm_row(const struct job *j, int64_t n, const float *x, const float *w, float r)
{
    int64_t at = n * vl_cpu_depth(j->ct, j->C);
    uint16_t *h = (uint16_t *)((uint32_t *)j->o + at);

    if (j->ct == VL_COMPUTE_F32) {
        j->k->norm((float *)j->o + at, x, w, r, j->C);
        return;
    }
    j->k->norm16(h, x, w, r, j->C);
    vl_cpu_pad(h, j->C, j->ct);
}

static void rmsnorm_row(const struct job *j, int64_t n)
{
    const float *x = j->a + n * j->C;

    j->z[n] = rstd_of(j, x);
    norm_row(j, n, x, j->b, j->z[n]);
}

void vl_cpu_rmsnorm(void *ctx, void *y, float *rstd, const float *x, const float *w, int64_t N,
                    int64_t C, float eps, enum vl_compute ct)
{
    run(ctx,
        (struct job){ rmsnorm_row, .n = N, .C = C, .o = y, .ct = ct, .z = rstd, .a = x, .b = w,
                      .f = eps },
        (double)C);
}

static void rmsnorm_dw_cols(const struct job *j, int64_t i)
{
    int64_t at = i * COLS;

    j->k->rmsnorm_dw(j->y + at, j->a + at, j->b + at, j->d, j->N, j->C, at_most(j->C - at, COLS));
}

static void rmsnorm_dx_row(const struct job *j, int64_t n)
{
    int64_t at = n * j->C;

    j->k->rmsnorm_dx(j->y + at, j->a + at, j->b + at, j->c, j->d[n], j->C, j->flag);
    if (j->o)
        norm_row(j, n, j->b + at, j->c, j->d[n]);
}

void vl_cpu_rmsnorm_bwd(void *ctx, float *dx, float *dw, void *y, const float *dy, const float *x,
                        const float *w, const float *rstd, int64_t N, int64_t C, int accumulate,
                        enum vl_compute ct)
{
    struct job j = { rmsnorm_dw_cols, .n = (C + COLS - 1) / COLS,
                     .N = N,          .C = C,
                     .y = dw,         .a = dy,
                     .b = x,          .d = rstd };

    run(ctx, j, (double)(COLS * N)); /* dw first: dx may be dy */
    j.one = rmsnorm_dx_row, j.n = N, j.y = dx, j.c = w, j.flag = accumulate, j.o = y, j.ct = ct;
    run(ctx, j, 2.0 * (double)C);
}

static void head_norm_row(const struct job *j, int64_t n)
{
    float *x = j->y + n * j->stride, *x0 = j->x0 + n * j->heads * j->C;

    memcpy(x0, x, (size_t)(j->heads * j->C) * sizeof *x);
    for (int32_t h = 0; h < j->heads; h++) {
        float *rstd = j->z + n * j->heads + h;

        *rstd = rstd_of(j, x0 + h * j->C);
        j->k->norm(x + h * j->C, x0 + h * j->C, j->b, *rstd, j->C);
    }
}

void vl_cpu_head_norm(void *ctx, float *x, int64_t stride, float *x0, float *rstd, const float *w,
                      int64_t N, int32_t heads, int32_t D, float eps)
{
    run(ctx,
        (struct job){ head_norm_row, .n = N, .C = D, .stride = stride, .heads = heads, .y = x,
                      .x0 = x0, .z = rstd, .b = w, .f = eps },
        1.5 * heads * D);
}

static void head_norm_dw_cols(const struct job *j, int64_t i)
{
    int64_t at = i * 16, w = at_most(j->C - at, 16);

    for (int64_t n = 0; n < j->N; n++)
        j->k->rmsnorm_dw(j->z + at, j->y + n * j->stride + at, j->b + n * j->heads * j->C + at,
                         j->d + n * j->heads, j->heads, j->C, w);
}

static void head_norm_dx_row(const struct job *j, int64_t n)
{
    for (int32_t h = 0; h < j->heads; h++) {
        float *dx = j->y + n * j->stride + h * j->C;
        int64_t at = n * j->heads + h;

        j->k->rmsnorm_dx(dx, dx, j->b + at * j->C, j->c, j->d[at], j->C, 0);
    }
}

void vl_cpu_head_norm_bwd(void *ctx, float *dx, int64_t stride, float *dw, const float *x0,
                          const float *w, const float *rstd, int64_t N, int32_t heads, int32_t D)
{
    struct job j = { head_norm_dw_cols,
                     .n = (D + 15) / 16,
                     .N = N,
                     .C = D,
                     .stride = stride,
                     .heads = heads,
                     .y = dx,
                     .z = dw,
                     .b = x0,
                     .c = w,
                     .d = rstd };

    run(ctx, j, 16.0 * (double)N * heads); /* dw first: it reads dy */
    j.one = head_norm_dx_row, j.n = N;
    run(ctx, j, 2.0 * heads * D);
}

/* One position's cos and sin, unzipped for the vector loop; flag < 0 negates sin. */
static void rope_row(const struct job *j, int64_t n)
{
    float cs[256], sn[256], *x = j->y + n * j->stride;
    int64_t half = j->C / 2;
    const float *table = j->a + (int64_t)j->ids[n] * j->C;

    for (int64_t at = 0; at < half; at += 256) {
        int64_t w = at_most(half - at, 256);

        for (int64_t i = 0; i < w; i++) {
            cs[i] = table[2 * (at + i)];
            sn[i] = j->flag < 0 ? -table[2 * (at + i) + 1] : table[2 * (at + i) + 1];
        }
        for (int32_t h = 0; h < j->heads; h++)
            j->k->rope(x + h * j->C + at, x + h * j->C + half + at, cs, sn, w);
    }
}

void vl_cpu_rope(void *ctx, float *x, int64_t stride, const float *table, const int32_t *pos,
                 int64_t N, int32_t heads, int32_t D, int dir)
{
    run(ctx,
        (struct job){ rope_row, .n = N, .C = D, .stride = stride, .y = x, .a = table, .ids = pos,
                      .heads = heads, .flag = dir },
        (double)(heads * D));
}

static void gather_row(const struct job *j, int64_t m)
{
    memcpy(j->y + m * j->C, j->a + j->rows[m] * j->C, (size_t)j->C * sizeof(float));
}

void vl_cpu_gather(void *ctx, float *y, const float *x, const int64_t *rows, int64_t M, int64_t C)
{
    run(ctx, (struct job){ gather_row, .n = M, .C = C, .y = y, .a = x, .rows = rows },
        (double)C / 4);
}

static void scatter_add_row(const struct job *j, int64_t m)
{
    j->k->add(j->y + j->rows[m] * j->C, j->a + m * j->C, j->C);
}

void vl_cpu_scatter_add(void *ctx, float *x, const float *y, const int64_t *rows, int64_t M,
                        int64_t C)
{
    run(ctx, (struct job){ scatter_add_row, .n = M, .C = C, .y = x, .a = y, .rows = rows },
        (double)C / 4);
}
