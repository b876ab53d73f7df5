/* attention_bwd.c - gradient of attention, probabilities recomputed from lse.
 *
 * One task is one key/value head of one sequence and of those that share it as their prefix. Query
 * rows come in blocks from the first on; dq is summed over keys in order, dk and dv over query rows in
 * order (within a row over the heads of the group in order), in accumulators that stay in scratch from
 * block to block: by position, a prefix's own at the front for all that share it. With
 *     p = exp(s - lse), s = (scale q).k, dp = dout.v, delta = dout.out, ds = p (dp - delta):
 *     dq = scale sum ds k,   dk = sum ds (scale q),   dv = sum p dout */
#include "kernels/cpu/attn.h"

#include <string.h>

#define ROWS 24 /* query rows of a block, all heads of the group */

struct work {
    const struct vl_cpu *c;
    const struct vl_attn *a;
    const struct vl_seq *s;
    const float *dout, *out, *lse, *qkv;
    float *dqkv;
    int32_t head, G;
    int64_t width, tp;                              /* floats of a qkv row; of a row of kt */
    float *kt, *vt, *dk, *dv, *q, *dq, *g, *p, *ds; /* scratch, see carve */
};

/* Places the scratch of one task over n positions; returns its size in floats. */
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
    w->tp = tp;
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

/* dq (M, D) = ds (M, tp) times the keys of positions c0 .. hi-1. */
static void sum_dq(const struct work *w, int64_t M, int64_t c0, int64_t hi)
{
    const struct vl_kern *k = &w->c->k;
    const float *key = w->qkv + (int64_t)(w->a->H + w->head) * w->a->D;
    int64_t D = w->a->D, pre = w->s->pos, own = c0 > pre ? c0 : pre;

    if (c0 < pre)
        k->mul(w->dq, D, w->ds + c0, w->tp, 1, key + (w->s->prefix + c0) * w->width, w->width, M, D,
               pre - c0, 0, NULL);
    k->mul(w->dq, D, w->ds + own, w->tp, 1, key + (w->s->row + own - pre) * w->width, w->width, M,
           D, hi - own, c0 < pre, NULL);
    k->scale(w->dq, w->a->scale, M * D);
}

/* Rows r0 .. r0+n of the sequence. */
static void do_block(const struct work *w, int64_t r0, int64_t n)
{
    const struct vl_kern *k = &w->c->k;
    const struct vl_attn *a = w->a;
    int64_t D = a->D, M = n * w->G, t0 = w->s->pos + r0, hi = t0 + n, tp = w->tp;
    int64_t c0 = key_from(a, t0) & ~(int64_t)15, cn = hi - c0;

    load(w, r0, n);
    k->mul(w->p + c0, tp, w->q, D, 1, w->kt + c0, tp, M, cn, D, 0, NULL);
    k->mul(w->ds + c0, tp, w->g, D, 1, w->vt + c0, tp, M, cn, D, 0, NULL);
    for (int64_t m = 0; m < M; m++) {
        int64_t t = t0 + m / w->G, row = w->s->row + r0 + m / w->G;
        int64_t hd = row * a->H + (int64_t)w->head * w->G + m % w->G;
        float delta = k->dot(w->g + m * D, w->out + hd * D, D);

        k->softmax_bwd(w->p + m * tp, w->ds + m * tp, c0, up16(hi), key_from(a, t), t + 1,
                       w->lse[hd], delta);
    }
    sum_dq(w, M, c0, hi);
    for (int64_t i = 0; i < n; i++)
        memcpy(w->dqkv + (w->s->row + r0 + i) * w->width + (int64_t)w->head * w->G * D,
               w->dq + i * w->G * D, (size_t)(w->G * D) * sizeof(float));
    k->mul(w->dk + c0 * D, D, w->ds + c0, 1, tp, w->q, D, cn, D, M, 1, NULL);
    k->mul(w->dv + c0 * D, D, w->p + c0, 1, tp, w->g, D, cn, D, M, 1, NULL);
}

/* One sequence, the accumulators of its own rows empty; those of a prefix are in front. */
static void do_seq(struct work *w, const struct vl_seq *s)
{
    int64_t D = w->a->D, pre = s->pos, n = s->n;
    const float *key = w->qkv + s->row * w->width + (int64_t)(w->a->H + w->head) * D;

    w->s = s;
    transpose(w->kt, w->tp, pre, key, w->width, n, w->a->D);
    transpose(w->vt, w->tp, pre, key + w->a->K * D, w->width, n, w->a->D);
    pad_columns(w->kt, w->tp, pre + n, w->a->D);
    pad_columns(w->vt, w->tp, pre + n, w->a->D);
    memset(w->dk + pre * D, 0, (size_t)(n * D) * sizeof(float));
    memset(w->dv + pre * D, 0, (size_t)(n * D) * sizeof(float));
    for (int64_t r = 0; r < n; r += ROWS)
        do_block(w, r, n - r < ROWS ? n - r : ROWS);
}

static void store(const struct work *w, const struct vl_seq *s)
{
    int64_t D = w->a->D;

    for (int64_t j = 0; j < s->n; j++) {
        float *to = w->dqkv + (s->row + j) * w->width + (int64_t)(w->a->H + w->head) * D;

        memcpy(to, w->dk + (s->pos + j) * D, (size_t)D * sizeof(float));
        memcpy(to + w->a->K * D, w->dv + (s->pos + j) * D, (size_t)D * sizeof(float));
    }
}

/* A sequence and those that share it: seq first .. first + n - 1, over so many positions at most. */
struct family {
    int64_t first, n, positions;
};

struct job {
    struct work w;
    const struct vl_seq *seq;
    struct family *family;
    float *buf;
    size_t stride;
};

static void bwd_task(void *arg, int64_t i, int thread)
{
    const struct job *j = arg;
    const struct family *f = j->family + i / j->w.a->K;
    struct work w = j->w;

    w.head = (int32_t)(i % w.a->K);
    carve(&w, j->buf + (size_t)thread * j->stride, f->positions);
    do_seq(&w, j->seq + f->first);
    for (int64_t k = 1; k < f->n; k++) {
        do_seq(&w, j->seq + f->first + k);
        store(&w, j->seq + f->first + k);
    }
    store(&w, j->seq + f->first);
}

/* Returns how many; *most: positions of the longest. */
static int64_t find_families(struct family *f, const struct vl_seq *seq, int64_t nseq,
                             int64_t *most)
{
    int64_t n = 0;

    *most = 0;
    for (int64_t i = 0; i < nseq; i++) {
        int64_t keys = seq[i].pos + seq[i].n;

        if (!seq[i].pos)
            f[n++] = (struct family){ .first = i };
        f[n - 1].n++;
        f[n - 1].positions = keys > f[n - 1].positions ? keys : f[n - 1].positions;
        *most = keys > *most ? keys : *most;
    }
    return n;
}

static void bwd_f32(struct vl_cpu *c, float *dqkv, const float *dout, const float *out,
                    const float *lse, const float *qkv, const struct vl_seq *seq, int64_t nseq,
                    const struct vl_attn *a)
{
    struct job j = { .w = { .c = c,
                            .a = a,
                            .dout = dout,
                            .out = out,
                            .lse = lse,
                            .qkv = qkv,
                            .dqkv = dqkv,
                            .G = a->H / a->K,
                            .width = row_width(a) },
                     .seq = seq,
                     .family = vl_cpu_scratch(c, VL_SCRATCH_B, (size_t)nseq * sizeof *j.family) };
    double steps = 0;
    int64_t most, families = find_families(j.family, seq, nseq, &most);

    for (int64_t i = 0; i < nseq; i++)
        steps += (double)seq[i].n * (2.0 * seq[i].pos + seq[i].n + 16.0);
    j.buf = vl_cpu_thread_scratch(c, carve(&j.w, NULL, most), &j.stride);
    vl_cpu_run(c, steps * a->H * a->D / 2, families * a->K, bwd_task, &j);
}

void vl_cpu_attention_bwd(void *ctx, float *dqkv, const float *dout, const float *out,
                          const float *lse, const float *qkv, const struct vl_seq *seq,
                          int64_t nseq, const struct vl_attn *a)
{
    if (a->ct == VL_COMPUTE_F32)
        bwd_f32(ctx, dqkv, dout, out, lse, qkv, seq, nseq, a);
    else
        vl_attn_half_bwd(ctx, dqkv, dout, out, lse, qkv, seq, nseq, a);
}
