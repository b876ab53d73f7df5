/* attention.c - causal attention with grouped heads and sliding windows: prefill, decode, training.
 * Here in fp32; the half types are in attention_half.c.
 *
 * Scores of a query row: one accumulator per key over D in order; softmax in two passes over the
 * whole row (no rescaling, hence no dependence on blocks), its sum by 16 lanes of absolute key
 * position; output: one accumulator per element over the keys in order. So neither pages, nor how
 * many query rows or heads are processed together, nor what else is in the batch can change a bit.
 *
 * A page of kcache holds, for each key/value head, 16 keys transposed (D, 16), so that one vector
 * is one dimension of 16 keys; a page of vcache holds (16, D) per head. Unpaged keys are transposed
 * into scratch first: (D, T rounded up to 16) per sequence and head, a shared prefix once for each
 * that shares it: copying it is nothing beside the products with it. */
#include "kernels/cpu/attn.h"

#include "libverl/base/fmath.h"

#include <string.h>

#define ITEMS 24 /* query rows times heads of a group that are processed together, about */

/* Where one sequence's keys and values of one head are. */
struct keys {
    const float *kt;          /* unpaged: (D, tp); paged: NULL */
    const float *v, *pv;      /* unpaged: row of position pre; row of position 0 */
    int64_t tp, vstride, pre; /* unpaged */
    const int32_t *page;
    const float *kcache, *vcache; /* at the head's place in page 0 */
    int64_t page_floats;
    int32_t D;
};

/* s (M, ld) columns [c0, c1) = q (M, D) k^T; c0 a multiple of 16 */
static void scores(const struct vl_cpu *c, float *s, int64_t ld, const float *q, int64_t M,
                   const struct keys *k, int64_t c0, int64_t c1)
{
    if (!k->page) {
        c->k.mul(s + c0, ld, q, k->D, 1, k->kt + c0, k->tp, M, c1 - c0, k->D, 0, NULL);
        return;
    }
    for (int64_t j = c0; j < c1; j += VL_PAGE)
        c->k.mul(s + j, ld, q, k->D, 1, k->kcache + k->page[j / VL_PAGE] * k->page_floats, VL_PAGE,
                 M, c1 - j < VL_PAGE ? c1 - j : VL_PAGE, k->D, 0, NULL);
}

/* o (M, D) += p (M, ld) times the values v of positions j .. j+n-1; row m takes the keys of [lo[m],
 * hi[m]) among them. clip: 2 M integers. */
static void weigh_part(const struct vl_cpu *c, float *o, const float *p, int64_t ld, const float *v,
                       int64_t vstride, int64_t j, int64_t n, int64_t M, int32_t D,
                       const int64_t *lo, const int64_t *hi, int64_t *clip)
{
    for (int64_t m = 0; m < M; m++) {
        int64_t a = lo[m] - j, b = hi[m] - j;

        clip[m] = a < 0 ? 0 : a > n ? n : a;
        clip[M + m] = b < 0 ? 0 : b > n ? n : b;
    }
    c->k.mulr(o, D, p + j, ld, v, vstride, M, D, clip, clip + M);
}

/* o (M, D) += p (M, ld) times the values; row m takes keys [lo[m], hi[m]), clip: 2 M integers. */
static void weigh(const struct vl_cpu *c, float *o, const float *p, int64_t ld, int64_t M,
                  const struct keys *k, const int64_t *lo, const int64_t *hi, int64_t *clip)
{
    int64_t end = hi[M - 1];

    if (!k->page) {
        if (lo[0] < k->pre)
            weigh_part(c, o, p, ld, k->pv, k->vstride, 0, k->pre, M, k->D, lo, hi, clip);
        weigh_part(c, o, p, ld, k->v, k->vstride, k->pre, end - k->pre, M, k->D, lo, hi, clip);
        return;
    }
    for (int64_t j = lo[0] & ~(int64_t)15; j < end; j += VL_PAGE)
        weigh_part(c, o, p, ld, k->vcache + k->page[j / VL_PAGE] * k->page_floats, k->D, j, VL_PAGE,
                   M, k->D, lo, hi, clip);
}

/* Query rows of the block times heads of the group as (rows * G, D), scaled. */
static void load_queries(const struct vl_cpu *c, float *q, const float *qkv, int64_t row0,
                         const struct vl_attn *a, const struct vl_attn_block *b, int G)
{
    for (int32_t i = 0; i < b->rows; i++) {
        float *to = q + (int64_t)i * G * a->D;

        memcpy(to, qkv + (row0 + i) * row_width(a) + (int64_t)b->head * G * a->D,
               (size_t)(G * a->D) * sizeof *q);
        c->k.scale(to, a->scale, (int64_t)G * a->D);
    }
}

/* buf: q and o (items, D), s (items, tp), 4 items of integers */
static void attend(const struct vl_cpu *c, float *out, float *lse, const float *qkv,
                   const struct keys *k, const struct vl_seq *s, const struct vl_attn *a,
                   const struct vl_attn_block *b, float *buf)
{
    int G = a->H / a->K;
    int64_t M = (int64_t)b->rows * G, D = a->D, t0 = s->pos + b->row, last = t0 + b->rows - 1;
    int64_t c0 = key_from(a, t0) & ~(int64_t)15, ld = up16(last + 1) - c0, row0 = s->row + b->row;
    int64_t *lo = (int64_t *)buf, *hi = lo + M;
    float *q = buf + 8 * M, *o = q + M * D, *sc = o + M * D - c0; /* sc[m * ld + j]: key j */

    load_queries(c, q, qkv, row0, a, b, G);
    scores(c, sc, ld, q, M, k, c0, last + 1);
    memset(o, 0, (size_t)(M * D) * sizeof *o);
    for (int64_t m = 0; m < M; m++) {
        float max, sum;

        lo[m] = key_from(a, t0 + m / G), hi[m] = t0 + m / G + 1;
        c->k.softmax(sc + m * ld, lo[m], hi[m], &max, &sum);
        q[m * D] = sum; /* the query is no longer needed */
        if (lse)
            lse[(row0 + m / G) * a->H + b->head * G + m % G] = max + vl_logf(sum);
    }
    weigh(c, o, sc, ld, M, k, lo, hi, hi + M);
    for (int64_t m = 0; m < M; m++)
        c->k.divide(out + ((row0 + m / G) * a->H + b->head * G + m % G) * D, o + m * D, q[m * D],
                    D);
}

int64_t vl_attn_blocks(struct vl_attn_block *b, const struct vl_seq *seq, int64_t nseq,
                       const struct vl_attn *a, int items, int64_t *most)
{
    int32_t G = a->H / a->K;
    int64_t n = 0;

    *most = 0;
    for (int64_t i = 0; i < nseq; i++) {
        int64_t keys = seq[i].pos + seq[i].n;
        int32_t rows = (keys > 4096 ? items / 4 : items) / G;

        rows = rows > 0 ? rows : 1;
        for (int32_t h = 0; h < a->K; h++)
            for (int32_t r = 0; r < seq[i].n; r += rows, n++)
                if (b)
                    b[n] = (struct vl_attn_block){ (int32_t)i, h, r,
                                                   seq[i].n - r < rows ? seq[i].n - r : rows };
        rows = rows < seq[i].n ? rows : seq[i].n;
        *most = (int64_t)rows * G > *most ? (int64_t)rows * G : *most;
    }
    return n;
}

/* Floats of scratch for the transposed keys (or values) of all unpaged sequences before seq i. */
static int64_t kt_floats(const struct vl_seq *seq, int64_t nseq, const struct vl_attn *a)
{
    int64_t n = 0;

    for (int64_t i = 0; i < nseq; i++)
        if (!seq[i].page)
            n += up16(seq[i].pos + seq[i].n) * a->K * a->D;
    return n;
}

/* All blocks of a call, heads of a sequence together; offsets of transposed keys. */
struct plan {
    struct vl_attn_block *block;
    int64_t n;
    int64_t *kt; /* per sequence */
    size_t buf;  /* floats of thread scratch */
};

static struct plan make_plan(struct vl_cpu *c, const struct vl_seq *seq, int64_t nseq,
                             const struct vl_attn *a)
{
    struct plan p = { 0 };
    int64_t longest = 0, ktn = 0, items;

    p.n = vl_attn_blocks(NULL, seq, nseq, a, ITEMS, &items);
    p.block = vl_cpu_scratch(c, VL_SCRATCH_B,
                             (size_t)p.n * sizeof *p.block + (size_t)nseq * sizeof *p.kt + 64);
    p.kt = (int64_t *)(p.block + p.n + p.n % 2);
    vl_attn_blocks(p.block, seq, nseq, a, ITEMS, &items);
    for (int64_t i = 0; i < nseq; i++) {
        int64_t keys = seq[i].pos + seq[i].n;

        longest = keys > longest ? keys : longest;
        p.kt[i] = ktn;
        ktn += seq[i].page ? 0 : up16(keys) * a->K * a->D;
    }
    p.buf = (size_t)(items * (2 * a->D + up16(longest) + 24));
    return p;
}

static struct keys keys_of(const float *qkv, const float *kcache, const float *vcache,
                           const float *kt, const struct vl_seq *s, const struct vl_attn *a,
                           int32_t head)
{
    int64_t place = (int64_t)head * VL_PAGE * a->D;

    if (s->page)
        return (struct keys){ .page = s->page,
                              .kcache = kcache + place,
                              .vcache = vcache + place,
                              .page_floats = (int64_t)VL_PAGE * a->K * a->D,
                              .D = a->D };
    place = (int64_t)(a->H + a->K + head) * a->D;
    return (struct keys){ .kt = kt + (int64_t)head * a->D * up16(s->pos + s->n),
                          .tp = up16(s->pos + s->n),
                          .v = qkv + s->row * row_width(a) + place,
                          .pv = qkv + s->prefix * row_width(a) + place,
                          .pre = s->pos,
                          .vstride = row_width(a),
                          .D = a->D };
}

double vl_attn_work(const struct vl_seq *seq, int64_t nseq, const struct vl_attn *a)
{
    double w = 0;

    for (int64_t i = 0; i < nseq; i++)
        w += (double)seq[i].n * (seq[i].pos + 0.5 * seq[i].n + 8);
    return w * a->H * a->D / 4;
}

struct job {
    const struct vl_cpu *c;
    const struct vl_attn *a;
    const struct vl_seq *seq;
    struct plan plan;
    float *out, *lse, *kt, *buf, *kc, *vc;
    size_t stride;
    const float *qkv, *kcache, *vcache;
};

static void transpose_task(void *arg, int64_t i, int thread)
{
    const struct job *j = arg;
    const struct vl_attn *a = j->a;
    const struct vl_seq *s = j->seq + i / a->K;
    int64_t h = i % a->K, width = row_width(a), tp = up16(s->pos + s->n);
    const float *key = j->qkv + (a->H + h) * a->D;
    float *kt = j->kt + j->plan.kt[i / a->K] + h * a->D * tp;

    (void)thread;
    if (s->page)
        return;
    transpose(kt, tp, 0, key + s->prefix * width, width, s->pos, a->D);
    transpose(kt, tp, s->pos, key + s->row * width, width, s->n, a->D);
    pad_columns(kt, tp, s->pos + s->n, a->D);
}

static void block_task(void *arg, int64_t i, int thread)
{
    const struct job *j = arg;
    const struct vl_attn_block *b = j->plan.block + i;
    const struct vl_seq *s = j->seq + b->seq;
    struct keys k =
        keys_of(j->qkv, j->kcache, j->vcache, j->kt + j->plan.kt[b->seq], s, j->a, b->head);

    attend(j->c, j->out, j->lse, j->qkv, &k, s, j->a, b, j->buf + (size_t)thread * j->stride);
}

static void attention_f32(struct vl_cpu *c, float *out, float *lse, const float *qkv,
                          const float *kcache, const float *vcache, const struct vl_seq *seq,
                          int64_t nseq, const struct vl_attn *a)
{
    struct job j = { .c = c,
                     .a = a,
                     .seq = seq,
                     .plan = make_plan(c, seq, nseq, a),
                     .out = out,
                     .lse = lse,
                     .qkv = qkv,
                     .kcache = kcache,
                     .vcache = vcache };
    double work = vl_attn_work(seq, nseq, a);
    int64_t floats = kt_floats(seq, nseq, a);

    j.buf = vl_cpu_thread_scratch(c, j.plan.buf, &j.stride);
    if (floats) {
        j.kt = vl_cpu_scratch(c, VL_SCRATCH_A, (size_t)floats * sizeof *j.kt);
        vl_cpu_run(c, work, nseq * a->K, transpose_task, &j);
    }
    vl_cpu_run(c, work, j.plan.n, block_task, &j);
}

static void store_task(void *arg, int64_t i, int thread)
{
    const struct job *j = arg;
    const struct vl_attn *a = j->a;
    const struct vl_seq *s = j->seq + i / a->K;
    int64_t D = a->D, h = i % a->K;

    (void)thread;
    for (int64_t r = 0; r < s->n; r++) {
        const float *k = j->qkv + (s->row + r) * row_width(a) + (a->H + h) * D;
        int64_t t = s->pos + r, at = ((int64_t)s->page[t / VL_PAGE] * a->K + h) * VL_PAGE * D;

        for (int64_t d = 0; d < D; d++)
            j->kc[at + d * VL_PAGE + t % VL_PAGE] = k[d];
        memcpy(j->vc + at + t % VL_PAGE * D, k + a->K * D, (size_t)D * sizeof *k);
    }
}

static void store_f32(struct vl_cpu *c, float *kcache, float *vcache, const float *qkv,
                      const struct vl_seq *seq, int64_t nseq, const struct vl_attn *a)
{
    struct job j = { .a = a, .seq = seq, .kc = kcache, .vc = vcache, .qkv = qkv };
    int64_t rows = 0;

    for (int64_t i = 0; i < nseq; i++)
        rows += seq[i].n;
    vl_cpu_run(c, (double)(rows * a->K * a->D), nseq * a->K, store_task, &j);
}

/* ---- the table's entries ---- */

void vl_cpu_attention(void *ctx, float *out, float *lse, const float *qkv, const void *kcache,
                      const void *vcache, const struct vl_seq *seq, int64_t nseq,
                      const struct vl_attn *a)
{
    if (a->ct == VL_COMPUTE_F32)
        attention_f32(ctx, out, lse, qkv, kcache, vcache, seq, nseq, a);
    else
        vl_attn_half(ctx, out, lse, qkv, kcache, vcache, seq, nseq, a);
}

void vl_cpu_kv_store(void *ctx, void *kcache, void *vcache, const float *qkv,
                     const struct vl_seq *seq, int64_t nseq, const struct vl_attn *a)
{
    if (a->ct == VL_COMPUTE_F32)
        store_f32(ctx, kcache, vcache, qkv, seq, nseq, a);
    else
        vl_attn_half_store(ctx, kcache, vcache, qkv, seq, nseq, a);
}

size_t vl_cpu_kv_bytes(void *ctx, const struct vl_attn *a)
{
    size_t keys = (size_t)VL_PAGE * (size_t)a->K;

    (void)ctx;
    if (a->ct == VL_COMPUTE_F32)
        return keys * (size_t)a->D * sizeof(float);
    return keys * (size_t)vl_attn_padded(a) * sizeof(uint16_t);
}

void vl_cpu_kv_copy(void *ctx, void *cache, int32_t dst_page, int32_t src_page,
                    const struct vl_attn *a)
{
    size_t page = vl_cpu_kv_bytes(ctx, a);

    memcpy((char *)cache + (size_t)dst_page * page, (char *)cache + (size_t)src_page * page, page);
}
