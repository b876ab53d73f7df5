/* attention_half.c - attention with queries, keys, values and probabilities in bf16.
 *
 * Keys always come in blocks of 16 positions, as the products read them: for each head, pairs of a
 * key's elements (Dp/2, 16), and pairs of two keys' values (8, Dp), Dp being D rounded up to 32. These
 * are the pages of the cache; unpaged keys are put into such blocks in scratch first, and sequences
 * that share a prefix share its full blocks. So there is one routine for all.
 *
 * Scores are summed over D as mul16 or mul_amx do it; softmax as in attention.c, probabilities being
 * rounded after their sum was taken; the output over blocks of keys from position 0 on. A key that a
 * row does not see has probability 0 in these products, which changes no bit unless its value is not
 * finite: blocks that only some rows see are looked through for that, and then such keys are left
 * out for each row by itself. */
#include "kernels/cpu/attn.h"

#include "libverl/base/mem.h"

#include <string.h>

#define ITEMS 32 /* query rows times heads of a group that are processed together, about */

/* Where the blocks of a sequence are: number page[t / 16] of k and of v, all heads of a block together. */
struct place {
    uint32_t *k, *v;
    const int32_t *page;
};

struct job {
    struct vl_cpu *c;
    const struct vl_attn *a;
    const struct vl_seq *seq;
    const float *qkv;
    struct place *place; /* (nseq) */
    /* attend */
    struct vl_attn_block *block;
    float *out, *lse, *buf;
    size_t stride;
    int64_t items, longest;
};

/* ---- blocks of keys ---- */

static uint32_t *block_of(uint32_t *base, const struct vl_attn *a, const int32_t *page, int64_t t,
                          int64_t head)
{
    return base + (page[t / VL_PAGE] * (int64_t)a->K + head) * (VL_PAGE / 2) * vl_attn_padded(a);
}

/* Keys of n rows into places j .. j+n-1 of a block. */
static void put_keys(const struct vl_cpu *c, const struct vl_attn *a, uint32_t *k, int64_t j,
                     const float *x, int64_t n)
{
    int64_t D = a->D, width = row_width(a);

    for (int64_t d = 0; d < D; d += 32)
        c->k.pair_w(k + d / 2 * VL_PAGE + j, VL_PAGE, x + d, width, n, D - d < 32 ? D - d : 32);
    for (int64_t d = (D + 1) / 2; d < vl_attn_padded(a) / 2; d++)
        memset(k + d * VL_PAGE + j, 0, (size_t)n * sizeof *k);
}

static void put_values(const struct vl_cpu *c, const struct vl_attn *a, uint32_t *v, int64_t j,
                       const float *x, int64_t n)
{
    int64_t D = a->D, Dp = vl_attn_padded(a), width = row_width(a), i = 0;
    uint32_t *to = v + j / 2 * Dp;

    if (j % 2) { /* its partner is there */
        for (int64_t d = 0; d < D; d += 64) {
            int64_t w = D - d < 64 ? D - d : 64;
            uint16_t h[64];

            c->k.to_bf16(h, x + d, w);
            for (int64_t e = 0; e < w; e++)
                to[d + e] = (to[d + e] & 0xffffu) | (uint32_t)h[e] << 16;
        }
        i = 1, to += Dp;
    }
    for (; i < n; i += 2, to += Dp) {
        c->k.pair(to, x + i * width, i + 1 < n ? x + (i + 1) * width : NULL, D);
        memset(to + D, 0, (size_t)(Dp - D) * sizeof *to);
    }
}

/* Keys and values of n rows of qkv from `row` on, one head, into positions t .. t+n-1. */
static void put(const struct job *j, const struct place *p, int64_t head, int64_t t, int64_t row,
                int64_t n)
{
    const struct vl_attn *a = j->a;
    int64_t width = row_width(a);
    const float *x = j->qkv + row * width + (a->H + head) * a->D;

    for (int64_t m; n > 0; t += m, x += m * width, n -= m) {
        int64_t at = t % VL_PAGE;

        m = n < VL_PAGE - at ? n : VL_PAGE - at;
        put_keys(j->c, a, block_of(p->k, a, p->page, t, head), at, x, m);
        put_values(j->c, a, block_of(p->v, a, p->page, t, head), at, x + a->K * a->D, m);
    }
}

static void store_task(void *arg, int64_t i, int thread)
{
    const struct job *j = arg;
    const struct vl_seq *s = j->seq + i / j->a->K;
    struct place p = { j->place->k, j->place->v, s->page };

    (void)thread;
    put(j, &p, i % j->a->K, s->pos, s->row, s->n);
}

void vl_attn_half_store(struct vl_cpu *c, void *kcache, void *vcache, const float *qkv,
                        const struct vl_seq *seq, int64_t nseq, const struct vl_attn *a)
{
    struct place p = { kcache, vcache, NULL };
    struct job j = { .c = c, .a = a, .seq = seq, .qkv = qkv, .place = &p };
    int64_t rows = 0;

    for (int64_t i = 0; i < nseq; i++)
        rows += seq[i].n;
    vl_cpu_run(c, (double)(rows * a->K * a->D), nseq * a->K, store_task, &j);
}

/* An unpaged sequence's own rows, and what it has of its prefix in the block where they begin. */
static void own_task(void *arg, int64_t i, int thread)
{
    const struct job *j = arg;
    const struct vl_attn *a = j->a;
    const struct vl_seq *s = j->seq + i / a->K;
    const struct place *p = j->place + i / a->K;
    int64_t head = i % a->K, end = s->pos + s->n, first = s->pos & ~(int64_t)(VL_PAGE - 1);
    int64_t pairs = (end % VL_PAGE + 1) / 2, Dp = vl_attn_padded(a);

    (void)thread;
    if (s->page)
        return;
    put(j, p, head, first, s->prefix + first, s->pos - first);
    put(j, p, head, s->pos, s->row, s->n);
    if (pairs) /* the rest of the last block is finite */
        memset(block_of(p->v, a, p->page, end, head) + pairs * Dp, 0,
               (size_t)((VL_PAGE / 2 - pairs) * Dp) * sizeof(uint32_t));
}

static int64_t blocks_to(int64_t positions)
{
    return (positions + VL_PAGE - 1) / VL_PAGE;
}

/* Places of all sequences; those of unpaged ones in scratch, which is not filled yet. Returns how many
 * sequences are unpaged. page: room for the numbers of their blocks. */
static int64_t find_places(struct job *j, int64_t nseq, void *kcache, void *vcache, int32_t *page)
{
    const struct vl_attn *a = j->a;
    int64_t blocks = 0, unpaged = 0, words = (int64_t)a->K * VL_PAGE / 2 * vl_attn_padded(a);
    const int32_t *prefix = NULL;

    for (int64_t i = 0; i < nseq; i++) {
        const struct vl_seq *s = j->seq + i;
        int64_t shared = s->pos / VL_PAGE, all = blocks_to(s->pos + s->n);

        j->place[i] = (struct place){ kcache, vcache, s->page };
        if (s->page)
            continue;
        unpaged++;
        j->place[i].page = page;
        if (s->pos == 0)
            prefix = page;
        if (shared)
            memcpy(page, prefix, (size_t)shared * sizeof *page);
        for (int64_t b = shared; b < all; b++)
            page[b] = (int32_t)blocks++;
        page += all;
    }
    if (unpaged) {
        uint32_t *k = vl_cpu_scratch(j->c, VL_SCRATCH_A, (size_t)(2 * blocks * words) * sizeof *k);

        for (int64_t i = 0; i < nseq; i++)
            if (!j->seq[i].page)
                j->place[i].k = k, j->place[i].v = k + blocks * words;
    }
    return unpaged;
}

/* ---- a block of query rows ---- */

struct work {
    uint32_t *q, *p, *spare;  /* (M, Dp/2), (M, ld/2), two blocks of values */
    float *o, *s, *max, *sum; /* (M, Dp), (M, ld), (M) */
    const uint32_t **k, **v;  /* (ld/16) */
};

/* M items of a block, ld keys. Tiles may reach over the last rows, those of weigh_apart by 16. */
static void carve(struct vl_arena *ar, struct work *w, int64_t M, int64_t ld, int64_t Dp)
{
    size_t rows = (size_t)up16(M) + 16, keys = (size_t)ld, D = (size_t)Dp;

    w->q = vl_arena_take(ar, rows * D / 2, sizeof *w->q);
    w->p = vl_arena_take(ar, rows * keys / 2, sizeof *w->p);
    w->spare = vl_arena_take(ar, VL_PAGE * D, sizeof *w->spare);
    w->o = vl_arena_take(ar, rows * D, sizeof *w->o);
    w->s = vl_arena_take(ar, rows * keys, sizeof *w->s);
    w->max = vl_arena_take(ar, rows, sizeof *w->max);
    w->sum = vl_arena_take(ar, rows, sizeof *w->sum);
    w->k = vl_arena_take(ar, keys / VL_PAGE, sizeof *w->k);
    w->v = vl_arena_take(ar, keys / VL_PAGE, sizeof *w->v);
}

/* The rows' queries, all heads of the group, scaled. */
static void load_queries(const struct job *j, const struct vl_attn_block *b, int64_t row0,
                         struct work *w)
{
    const struct vl_attn *a = j->a;
    int64_t G = a->H / a->K, D = a->D, pairs = vl_attn_padded(a) / 2, used = (D + 1) / 2;

    for (int64_t m = 0; m < b->rows * G; m++) {
        uint32_t *to = w->q + m * pairs;
        const float *q = j->qkv + (row0 + m / G) * row_width(a) + (b->head * G + m % G) * D;

        j->c->k.scaled16((uint16_t *)to, q, a->scale, D);
        for (int64_t i = used; i < pairs; i++)
            to[i] = 0;
    }
}

static void multiply_values(const struct job *j, float *o, const uint32_t *p, int64_t ldp,
                            const uint32_t *const *v, int64_t blocks, int64_t M)
{
    const struct vl_kern *k = &j->c->k;
    int64_t Dp = vl_attn_padded(j->a);

    (j->a->ct == VL_COMPUTE_BF16 ? k->values16 : k->values_amx)(o, Dp, p, ldp, v, Dp, blocks, M,
                                                                up16(j->a->D));
}

/* Block number b of values with zeros for keys outside [lo, hi). */
static const uint32_t *without(uint32_t *to, const uint32_t *v, int64_t b, int64_t lo, int64_t hi,
                               int64_t Dp)
{
    for (int64_t i = 0; i < VL_PAGE / 2; i++) {
        int64_t t = b * VL_PAGE + 2 * i;
        uint32_t keep =
            (t >= lo && t < hi ? 0xffffu : 0) | (t + 1 >= lo && t + 1 < hi ? 0xffff0000u : 0);

        for (int64_t d = 0; d < Dp; d++)
            to[i * Dp + d] = v[i * Dp + d] & keep;
    }
    return to;
}

/* Each query row by itself, from only the keys it sees. b0: the first block. */
static void weigh_apart(const struct job *j, const struct work *w, int64_t b0, int64_t ld,
                        int64_t t0, int64_t rows)
{
    int64_t G = j->a->H / j->a->K, Dp = vl_attn_padded(j->a);

    for (int64_t i = 0; i < rows; i++) {
        int64_t lo = key_from(j->a, t0 + i), hi = t0 + i + 1;
        int64_t from = lo / VL_PAGE - b0, last = (hi - 1) / VL_PAGE - b0;
        const uint32_t *first_v = w->v[from], *last_v = w->v[last];
        float *o = w->o + i * G * Dp;

        w->v[last] = without(w->spare, last_v, b0 + last, lo, hi, Dp);
        if (from < last)
            w->v[from] = without(w->spare + VL_PAGE / 2 * Dp, first_v, b0 + from, lo, hi, Dp);
        memset(o, 0, (size_t)(G * Dp) * sizeof *o); /* tiles may reach into the next row's */
        multiply_values(j, o, w->p + i * G * ld / 2 + from * VL_PAGE / 2, ld / 2, w->v + from,
                        last - from + 1, G);
        w->v[from] = first_v, w->v[last] = last_v;
    }
}

/* o = p times the values of n blocks from b0 on, for rows at positions t0 .. t0+rows-1 */
static void weigh(const struct job *j, const struct work *w, int64_t b0, int64_t n, int64_t t0,
                  int64_t rows)
{
    int64_t M = rows * (j->a->H / j->a->K), Dp = vl_attn_padded(j->a);
    int64_t from = blocks_to(key_from(j->a, t0 + rows - 1)) - b0, to = (t0 + 1) / VL_PAGE - b0;

    for (int64_t b = 0; b < n; b++) /* [from, to) are seen by all rows */
        if ((b < from || b >= to) && !j->c->k.finite16(w->v[b], VL_PAGE / 2 * Dp)) {
            weigh_apart(j, w, b0, n * VL_PAGE, t0, rows);
            return;
        }
    memset(w->o, 0, (size_t)(M * Dp) * sizeof *w->o);
    multiply_values(j, w->o, w->p, n * VL_PAGE / 2, w->v, n, M);
}

static void block_task(void *arg, int64_t i, int thread)
{
    const struct job *j = arg;
    const struct vl_attn *a = j->a;
    const struct vl_kern *k = &j->c->k;
    const struct vl_attn_block *b = j->block + i;
    const struct vl_seq *s = j->seq + b->seq;
    const struct place *at = j->place + b->seq;
    int64_t G = a->H / a->K, M = b->rows * G, D = a->D, Dp = vl_attn_padded(a);
    int64_t t0 = s->pos + b->row, row0 = s->row + b->row;
    int64_t b0 = key_from(a, t0) / VL_PAGE, n = blocks_to(t0 + b->rows) - b0, c0 = b0 * VL_PAGE;
    int64_t ld = n * VL_PAGE;
    struct vl_arena ar = { .base = (char *)(j->buf + (size_t)thread * j->stride) };
    struct work w;

    carve(&ar, &w, M, ld, Dp);
    for (int64_t x = 0; x < n; x++) {
        w.k[x] = block_of(at->k, a, at->page, c0 + x * VL_PAGE, b->head);
        w.v[x] = block_of(at->v, a, at->page, c0 + x * VL_PAGE, b->head);
    }
    load_queries(j, b, row0, &w);
    (a->ct == VL_COMPUTE_BF16 ? k->keys16 : k->keys_amx)(w.s, ld, w.q, Dp / 2, w.k, n, M, Dp / 2);
    for (int64_t m = 0; m < M; m++) {
        int64_t t = t0 + m / G;

        k->softmax16((uint16_t *)(w.p + m * ld / 2), w.s + m * ld, ld, key_from(a, t) - c0,
                     t + 1 - c0, w.max + m, w.sum + m);
    }
    weigh(j, &w, b0, n, t0, b->rows);
    for (int64_t m = 0; m < M; m++)
        k->scaled(j->out + ((row0 + m / G) * a->H + b->head * G + m % G) * D, w.o + m * Dp,
                  1.0f / w.sum[m], D);
    if (!j->lse)
        return;
    k->math(VL_MATH_LOG, w.sum, w.sum, M);
    for (int64_t m = 0; m < M; m++)
        j->lse[(row0 + m / G) * a->H + b->head * G + m % G] = w.max[m] + w.sum[m];
}

void vl_attn_half(struct vl_cpu *c, float *out, float *lse, const float *qkv, const void *kcache,
                  const void *vcache, const struct vl_seq *seq, int64_t nseq,
                  const struct vl_attn *a)
{
    struct job j = { .c = c, .a = a, .seq = seq, .qkv = qkv, .out = out, .lse = lse };
    double work = vl_attn_work(seq, nseq, a);
    int64_t pages = 0, longest = 0, items, n = vl_attn_blocks(NULL, seq, nseq, a, ITEMS, &items);
    struct vl_arena size = { 0 };
    struct work w;

    for (int64_t i = 0; i < nseq; i++) {
        int64_t keys = seq[i].pos + seq[i].n;

        pages += seq[i].page ? 0 : blocks_to(keys);
        longest = keys > longest ? keys : longest;
    }
    j.place = vl_cpu_scratch(c, VL_SCRATCH_B,
                             (size_t)nseq * sizeof *j.place + (size_t)n * sizeof *j.block +
                                 (size_t)pages * sizeof(int32_t));
    j.block = (struct vl_attn_block *)(j.place + nseq);
    vl_attn_blocks(j.block, seq, nseq, a, ITEMS, &items);
    /* the caches are only read */
    if (find_places(&j, nseq, (void *)(uintptr_t)kcache, (void *)(uintptr_t)vcache,
                    (int32_t *)(j.block + n)))
        vl_cpu_run(c, work, nseq * a->K, own_task, &j);
    carve(&size, &w, items, blocks_to(longest) * VL_PAGE, vl_attn_padded(a));
    j.buf = vl_cpu_thread_scratch(c, size.used / sizeof(float), &j.stride);
    vl_cpu_run(c, work, n, block_task, &j);
}
