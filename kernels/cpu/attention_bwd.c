/* attention_bwd.c - gradient of attention, probabilities recomputed from lse.
 *
 * One task is one sequence and key/value head. Its query rows come in blocks from the first on; dq
 * is summed over keys in order, dk and dv over query rows in order (within a row over the heads of
 * the group in order), in accumulators that stay in scratch from block to block. With
 *     p = exp(s - lse), s = (scale q).k, dp = dout.v, delta = dout.out, ds = p (dp - delta):
 *     dq = scale sum ds k,   dk = sum ds (scale q),   dv = sum p dout */
#include "kernels/cpu/attn.h"
#include "kernels/cpu/cpu.h"

#include <string.h>

#define ROWS 24 /* query rows of a block, all heads of the group */

struct work {
    const struct vl_cpu *c;
    const struct vl_attn *a;
    const struct vl_seq *s;
    const float *dout, *out, *lse, *qkv;
    float *dqkv;
    int32_t head, G;
    int64_t width, tp;                              /* floats of a qkv row; keys rounded up to 16 */
    float *kt, *vt, *dk, *dv, *q, *dq, *g, *p, *ds; /* scratch, see carve */
};

/* Places the scratch of one task; returns its size in floats. */
static size_t carve(struct work *w, float *base, int64_t n)
{
    int64_t D = w->a->D, items = ROWS * (int64_t)w->G, tp = up16(n);
    int64_t size[] = { D * tp,    D * tp,    n * D,      n * D,     items * D,
                       items * D, items * D, items * tp, items * tp };
    float **at[] = { &w->kt, &w->vt, &w->dk, &w->dv, &w->q, &w->dq, &w->g, &w->p, &w->ds };
    size_t used = 0;

    for (int i = 0; i < 9; i++) {
        if (base)
            *at[i] = base + used;
        used += (size_t)up16(size[i]);
    }
    return used;
}

/* Rows r0 .. r0+n of the sequence: q scaled, g = dout, as (n * G, D). */
static void load(const struct work *w, int64_t r0, int64_t n)
{
    int64_t D = w->a->D, H = w->a->H, gd = w->G * D;

    for (int64_t i = 0; i < n; i++) {
        int64_t row = w->s->row + r0 + i;

        memcpy(w->q + i * gd, w->qkv + row * w->width + w->head * gd, (size_t)gd * sizeof(float));
        memcpy(w->g + i * gd, w->dout + row * H * D + w->head * gd, (size_t)gd * sizeof(float));
    }
    w->c->k.scale(w->q, w->a->scale, n * gd);
}

static void do_block(const struct work *w, int64_t r0, int64_t n)
{
    const struct vl_kern *k = &w->c->k;
    const struct vl_attn *a = w->a;
    int64_t D = a->D, M = n * w->G, hi = r0 + n, tp = w->tp;
    int64_t c0 = key_from(a, r0) & ~(int64_t)15, cn = hi - c0;
    const float *key = w->qkv + w->s->row * w->width + (int64_t)(a->H + w->head) * D;

    load(w, r0, n);
    k->mul(w->p + c0, tp, w->q, D, 1, w->kt + c0, tp, M, cn, D, 0);
    k->mul(w->ds + c0, tp, w->g, D, 1, w->vt + c0, tp, M, cn, D, 0);
    for (int64_t m = 0; m < M; m++) {
        int64_t t = r0 + m / w->G, lo = key_from(a, t);
        int64_t hd = (w->s->row + t) * a->H + (int64_t)w->head * w->G + m % w->G;
        float delta = k->dot(w->g + m * D, w->out + hd * D, D);

        k->softmax_bwd(w->p + m * tp, w->ds + m * tp, c0, up16(hi), lo, t + 1, w->lse[hd], delta);
    }
    k->mul(w->dq, D, w->ds + c0, tp, 1, key + c0 * w->width, w->width, M, D, cn, 0);
    k->scale(w->dq, a->scale, M * D);
    for (int64_t i = 0; i < n; i++)
        memcpy(w->dqkv + (w->s->row + r0 + i) * w->width + (int64_t)w->head * w->G * D,
               w->dq + i * w->G * D, (size_t)(w->G * D) * sizeof(float));
    k->mul(w->dk + c0 * D, D, w->ds + c0, 1, tp, w->q, D, cn, D, M, 1);
    k->mul(w->dv + c0 * D, D, w->p + c0, 1, tp, w->g, D, cn, D, M, 1);
}

static void do_head(struct work *w, float *base)
{
    int64_t D = w->a->D, n = w->s->n, K = w->a->K;
    int64_t at = w->s->row * w->width + (int64_t)(w->a->H + w->head) * D;

    carve(w, base, n);
    w->tp = up16(n);
    transpose(w->kt, w->qkv + at, w->width, n, w->a->D);
    transpose(w->vt, w->qkv + at + K * D, w->width, n, w->a->D);
    memset(w->dk, 0, (size_t)(n * D) * sizeof(float));
    memset(w->dv, 0, (size_t)(n * D) * sizeof(float));
    for (int64_t r = 0; r < n; r += ROWS)
        do_block(w, r, n - r < ROWS ? n - r : ROWS);
    for (int64_t j = 0; j < n; j++) {
        memcpy(w->dqkv + at + j * w->width, w->dk + j * D, (size_t)D * sizeof(float));
        memcpy(w->dqkv + at + K * D + j * w->width, w->dv + j * D, (size_t)D * sizeof(float));
    }
}

struct job {
    struct work w;
    const struct vl_seq *seq;
    float *buf;
    size_t stride;
};

static void bwd_task(void *arg, int64_t i, int thread)
{
    const struct job *j = arg;
    struct work w = j->w;

    w.s = j->seq + i / w.a->K;
    w.head = (int32_t)(i % w.a->K);
    do_head(&w, j->buf + (size_t)thread * j->stride);
}

void vl_cpu_attention_bwd(void *ctx, float *dqkv, const float *dout, const float *out,
                          const float *lse, const float *qkv, const struct vl_seq *seq,
                          int64_t nseq, const struct vl_attn *a)
{
    struct vl_cpu *c = ctx;
    struct job j = { .w = { .c = c,
                            .a = a,
                            .dout = dout,
                            .out = out,
                            .lse = lse,
                            .qkv = qkv,
                            .dqkv = dqkv,
                            .G = a->H / a->K,
                            .width = row_width(a) },
                     .seq = seq };
    double steps = 0;
    int64_t most = 0;

    for (int64_t i = 0; i < nseq; i++) {
        most = seq[i].n > most ? seq[i].n : most;
        steps += (double)seq[i].n * (seq[i].n + 16.0);
    }
    j.buf = vl_cpu_thread_scratch(c, carve(&j.w, NULL, most), &j.stride);
    vl_cpu_run(c, steps * a->H * a->D / 2, nseq * a->K, bwd_task, &j);
}
