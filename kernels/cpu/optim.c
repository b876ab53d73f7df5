/* optim.c - Adam, AdamW, SGD and the global norm, in the order of torch's single-tensor forms. */
#include "kernels/cpu/cpu.h"

#include "libverl/base/fmath.h"

#include <stdlib.h>

#define BLOCK 4096 /* floats; part of the result of sumsq, so never to be changed by the caller */

struct job {
    const struct vl_cpu *c;
    const struct vl_kern *k;
    int64_t (*one)(const struct job *j, int64_t at, int64_t n);
    struct vl_weight *w; /* the matrix whose rows from `row` on p is, or NULL */
    int64_t row;
    float *p, *m, *v, *vmax;
    const float *x; /* or the gradient */
    int64_t n;
    struct vl_adamw_step step;
    struct vl_sgd_step sgd;
    double *part;
    int64_t *changed; /* per task */
};

static void sumsq_task(void *arg, int64_t b, int thread)
{
    const struct job *j = arg;
    int64_t at = b * BLOCK;

    (void)thread;
    j->part[b] = j->k->sumsq(j->x + at, j->n - at < BLOCK ? j->n - at : BLOCK);
}

double vl_cpu_sumsq(void *ctx, const float *x, int64_t n)
{
    struct vl_cpu *c = ctx;
    int64_t blocks = (n + BLOCK - 1) / BLOCK;
    double *part = vl_cpu_scratch(c, VL_SCRATCH_A, (size_t)(blocks + 1) * sizeof *part), s = 0;
    struct job j = { .k = &c->k, .x = x, .n = n, .part = part };

    vl_cpu_run(c, (double)n, blocks, sumsq_task, &j);
    for (int64_t b = 0; b < blocks; b++)
        s += part[b];
    return s;
}

/* Elements [at, at + n): their step, and how many changed. */
static int64_t adamw(const struct job *j, int64_t at, int64_t n)
{
    return j->k->adamw(j->p + at, j->m + at, j->v + at, j->vmax ? j->vmax + at : NULL, j->x + at, n,
                       &j->step);
}

static int64_t sgd(const struct job *j, int64_t at, int64_t n)
{
    return j->k->sgd(j->p + at, j->m ? j->m + at : NULL, j->x + at, n, &j->sgd);
}

static void flat_task(void *arg, int64_t b, int thread)
{
    const struct job *j = arg;
    int64_t at = b * BLOCK;

    (void)thread;
    j->changed[b] = j->one(j, at, j->n - at < BLOCK ? j->n - at : BLOCK);
}

/* A few rows of a matrix at a time, which are still in the cache when they are packed. */
static void rows_task(void *arg, int64_t b, int thread)
{
    const struct job *j = arg;
    int64_t I = j->w->I, row = b * VL_BLOCK_ROWS, end = row + VL_BLOCK_ROWS;

    (void)thread;
    end = end < j->n / I ? end : j->n / I;
    j->changed[b] = 0;
    for (int64_t n; row < end; row += n) {
        n = end - row < VL_PACK_ROWS ? end - row : VL_PACK_ROWS;
        j->changed[b] += j->one(j, row * I, n * I);
        vl_cpu_pack_rows(j->c, j->w, j->p + row * I, j->row + row, n);
    }
}

static void run(struct vl_cpu *c, struct job *j, int64_t *changed)
{
    int64_t blocks = (j->n + BLOCK - 1) / BLOCK;

    if (j->w)
        blocks = (j->n / j->w->I + VL_BLOCK_ROWS - 1) / VL_BLOCK_ROWS;
    j->changed = vl_cpu_scratch(c, VL_SCRATCH_A, (size_t)(blocks + 1) * sizeof *j->changed);
    vl_cpu_run(c, 4.0 * (double)j->n, blocks, j->w ? rows_task : flat_task, j);
    for (int64_t b = 0; b < blocks && changed; b++)
        *changed += j->changed[b];
}

/* g += l2 p;  p *= 1 - lr wd;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
 * p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps), with the largest v so far under amsgrad */
void vl_cpu_adamw(void *ctx, float *p, float *m, float *v, float *vmax, const float *g, int64_t n,
                  const struct vl_adamw *o, struct vl_weight *w, int64_t row, int64_t *changed)
{
    struct vl_cpu *c = ctx;
    double b1 = o->beta1, b2 = o->beta2, t = (double)o->t;
    struct vl_adamw_step s = {
        .decay = (float)(1 - (double)o->lr * o->weight_decay),
        .beta1 = o->beta1,
        .rest1 = (float)(1 - b1),
        .beta2 = o->beta2,
        .rest2 = (float)(1 - b2),
        .step = (float)(o->lr / (1 - vl_pow(b1, t))),
        .inv_sqrt2 = (float)(1 / sqrt(1 - vl_pow(b2, t))),
        .eps = o->eps,
        .grad_scale = o->grad_scale,
        .l2 = o->l2,
    };
    struct job j = { .c = c,
                     .k = &c->k,
                     .one = adamw,
                     .w = w,
                     .row = row,
                     .p = p,
                     .m = m,
                     .v = v,
                     .vmax = vmax,
                     .x = g,
                     .n = n,
                     .step = s };

    run(c, &j, changed);
}

/* g += l2 p;  b = momentum b + (1 - dampening) g, or g at first;  p -= lr (b, or g + momentum b) */
void vl_cpu_sgd(void *ctx, float *p, float *b, const float *g, int64_t n, const struct vl_sgd *o,
                struct vl_weight *w, int64_t row, int64_t *changed)
{
    struct vl_cpu *c = ctx;
    struct job j = { .c = c,
                     .k = &c->k,
                     .one = sgd,
                     .w = w,
                     .row = row,
                     .p = p,
                     .m = b,
                     .x = g,
                     .n = n,
                     .sgd = { .lr = o->lr,
                              .momentum = o->momentum,
                              .rest = 1 - o->dampening,
                              .l2 = o->l2,
                              .grad_scale = o->grad_scale,
                              .nesterov = o->nesterov,
                              .first = o->t == 1 } };

    run(c, &j, changed);
}
