/* optim.c - AdamW and the global norm, in the order of torch's single-tensor AdamW. */
#include "kernels/cpu/cpu.h"

#include "libverl/base/fmath.h"

#include <stdlib.h>

#define BLOCK 4096 /* floats; part of the result of sumsq, so never to be changed by the caller */

double vl_cpu_sumsq(void *ctx, const float *x, int64_t n)
{
    struct vl_cpu *c = ctx;
    int64_t blocks = (n + BLOCK - 1) / BLOCK;
    double *part = vl_cpu_scratch(c, VL_SCRATCH_A, (size_t)(blocks + 1) * sizeof *part), s = 0;

#pragma omp parallel for schedule(static) num_threads(vl_cpu_team(c, (double)n))
    for (int64_t b = 0; b < blocks; b++)
        part[b] = c->k.sumsq(x + b * BLOCK, n - b * BLOCK < BLOCK ? n - b * BLOCK : BLOCK);
    for (int64_t b = 0; b < blocks; b++)
        s += part[b];
    return s;
}

/* p *= 1 - lr wd;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
 * p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps) */
void vl_cpu_adamw(void *ctx, float *p, float *m, float *v, const float *g, int64_t n,
                  const struct vl_adamw *o, int64_t *changed)
{
    const struct vl_cpu *c = ctx;
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
    };
    int64_t differ = 0;

#pragma omp parallel for schedule(static) reduction(+ : differ)                                    \
    num_threads(vl_cpu_team(c, 4.0 * (double)n)) /* a sum of integers: exact in any order */
    for (int64_t i = 0; i < n; i += BLOCK)
        differ += c->k.adamw(p + i, m + i, v + i, g + i, n - i < BLOCK ? n - i : BLOCK, &s);
    if (changed)
        *changed += differ;
}
