/* topk.c - the likeliest ids of each row with their log-probs: what a teacher hands on.
 *
 * A task goes through all chunks of some rows and keeps a sorted list for each; rows are many, so
 * the rows alone feed the threads. */
#include "kernels/cpu/head.h"

#include <string.h>

/* Rows of a task: a pass over the weights serves as many as head_logp's, where that leaves each thread
 * two tasks. (32: 203 ms for 512 rows of 32000 ids, 96: 142 ms, head_logp alone 124 ms.) */
#define ROWS     VL_RB
#define FEW_ROWS 32

struct topk {
    const struct vl_cpu *c;
    const struct vl_weight *w;
    struct vl_rows x;
    float inv_temp;
    int64_t M, K, nc, rows;
    struct vl_part *part; /* (M, nc) */
    float *buf;
    size_t stride;
    int32_t *id;
    float *top; /* logits until the row is done */
    const int32_t *target;
    float *logp; /* the same; or NULL */
};

/* Takes the chunk's logits into a list that falls; an equal one that comes later has a higher id. */
static void insert(int32_t *id, float *top, int64_t *n, int64_t K, const float *z, int64_t width,
                   int32_t first)
{
    for (int64_t v = 0; v < width; v++) {
        int64_t at = *n;

        if (*n == K && !(z[v] > top[K - 1]))
            continue;
        if (*n < K)
            ++*n;
        else
            at = K - 1;
        for (; at > 0 && z[v] > top[at - 1]; at--) {
            top[at] = top[at - 1];
            id[at] = id[at - 1];
        }
        top[at] = z[v];
        id[at] = first + (int32_t)v;
    }
}

static void topk_task(void *arg, int64_t t, int thread)
{
    const struct topk *j = arg;
    int64_t m0 = t * j->rows, n = j->M - m0 < j->rows ? j->M - m0 : j->rows, have[ROWS] = { 0 };
    float *z = j->buf + (size_t)thread * j->stride;

    for (int64_t ch = 0; ch < j->nc; ch++) {
        int64_t width = vl_chunk_width(j->w->O, ch);

        vl_head_tile(j->c, z, VL_CHUNK, j->x, m0, n, j->w, ch, j->inv_temp);
        for (int64_t m = 0; m < n; m++) {
            int64_t y = j->logp ? j->target[m0 + m] - ch * VL_CHUNK : -1;

            if (y >= 0 && y < width)
                j->logp[m0 + m] = z[m * VL_CHUNK + y];
            j->c->k.part(j->part + (m0 + m) * j->nc + ch, z + m * VL_CHUNK, width);
            insert(j->id + (m0 + m) * j->K, j->top + (m0 + m) * j->K, &have[m], j->K,
                   z + m * VL_CHUNK, width, (int32_t)(ch * VL_CHUNK));
        }
    }
    for (int64_t m = m0; m < m0 + n; m++) {
        struct vl_sums s = vl_head_combine(j->part + m * j->nc, j->nc);

        for (int64_t k = 0; k < j->K; k++)
            j->top[m * j->K + k] = vl_head_logp_of(j->top[m * j->K + k], &s);
        if (j->logp)
            j->logp[m] = vl_head_logp_of(j->logp[m], &s);
    }
}

void vl_cpu_head_topk(void *ctx, int32_t *id, float *top, float *logp, const float *x,
                      const struct vl_weight *w, const int32_t *target, float inv_temp, int64_t K,
                      int64_t M)
{
    struct vl_cpu *c = ctx;
    int64_t rows = M >= 2 * ROWS * (int64_t)c->threads ? ROWS : FEW_ROWS;
    struct topk j = { .c = c,
                      .w = w,
                      .x = vl_cpu_rows(c, x, M, w),
                      .inv_temp = inv_temp,
                      .M = M,
                      .K = K,
                      .nc = vl_chunks(w->O),
                      .rows = rows,
                      .id = id,
                      .top = top,
                      .target = target,
                      .logp = logp };

    j.part = vl_cpu_scratch(c, VL_SCRATCH_A, (size_t)(M * j.nc) * sizeof *j.part);
    j.buf = vl_cpu_thread_scratch(c, ROWS * VL_CHUNK, &j.stride);
    vl_cpu_run(c, (double)M * (double)w->O * (double)w->I / 8, (M + rows - 1) / rows, topk_task,
               &j);
}
