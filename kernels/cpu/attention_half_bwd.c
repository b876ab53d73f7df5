/* attention_half_bwd.c - gradient of attention in the half types, probabilities recomputed from lse.
 *
 * Rounding counts as the identity. With q = round(scale q), k, v rounded, p and ds rounded after
 * p = exp(s - lse), s = q.k, dp = dout.v, delta = dout.out, ds = p (dp - delta):
 *     dq = scale sum ds k,   dk = sum ds q,   dv = sum p dout
 * everything is a product of pairs: s and dp over D, dq over keys, dk and dv over items (a query row
 * and head of the group) in order. A step takes ITEMS items by KEYS keys, transposed (keys, items),
 * so that of p and ds only ds must be turned, for dq. Items are counted from the sequence's own
 * start and keys from position 0: where a batch was cut cannot show.
 *
 * A piece is STRIPE query rows of one sequence and key/value head. Pieces give their dq and a partial
 * dk and dv, and the sum of the partial ones in order is the gradient. So pieces may run one after
 * the other, those of a family (a sequence and those that share it as their prefix) and head as one
 * task, or, where these are few, each as a task of its own: the bits are the same. */
#include "kernels/cpu/attn.h"

#include "libverl/base/mem.h"

#include <string.h>

#define ITEMS  64  /* of a step; a panel of the products */
#define KEYS   64  /* of a step: whole blocks of the products */
#define STRIPE 256 /* query rows of a piece */

/* Piece `stripe` of a sequence; partial dk and dv of positions [from, to) at `sums` floats in the
 * common buffer, for all heads. */
struct piece {
    int64_t seq, row, rows, from, to, sums;
};

/* Pieces first .. first+n-1 are those of a sequence from position 0 and of those that share it. */
struct family {
    int64_t first, n;
};

struct job {
    struct vl_cpu *c;
    const struct vl_attn *a;
    const struct vl_seq *seq;
    const float *dout, *out, *lse, *qkv;
    float *dqkv, *buf, *sums;
    struct piece *piece;
    struct family *family;
    int64_t pieces, families, positions; /* the most positions of a piece */
    size_t stride;
};

/* Scratch of a thread: a sequence's operands, and those of a step. Dp: D rounded up to 32. */
struct work {
    uint32_t *k, *v, *kp;        /* (T, Dp/2) rows of keys and of values; (T/2, Dp) pairs of keys */
    float *sum_k, *sum_v;        /* (T, Dp) partial dk, dv */
    float *all_k, *all_v;        /* (T, Dp) of a family */
    float *q, *g, *dq;           /* (ITEMS, Dp) queries, dout, dq */
    uint32_t *qt, *gt, *qp, *gp; /* (Dp/2, ITEMS) pairs of elements; (ITEMS/2, Dp) pairs of items */
    float *s, *ds, *lse, *delta; /* (KEYS, ITEMS) scores, dp and then ds; (ITEMS) */
    uint32_t *p16, *ds16, *turned; /* (KEYS, ITEMS/2) p, ds; (ITEMS, KEYS/2) ds */
};

static void carve(struct vl_arena *ar, struct work *w, int64_t positions, int64_t Dp)
{
    size_t T = (size_t)positions, D = (size_t)Dp;

    w->k = vl_arena_take(ar, T * D / 2, sizeof *w->k);
    w->v = vl_arena_take(ar, T * D / 2, sizeof *w->v);
    w->kp = vl_arena_take(ar, T / 2 * D, sizeof *w->kp);
    w->sum_k = vl_arena_take(ar, T * D, sizeof *w->sum_k);
    w->sum_v = vl_arena_take(ar, T * D, sizeof *w->sum_v);
    w->all_k = vl_arena_take(ar, T * D, sizeof *w->all_k);
    w->all_v = vl_arena_take(ar, T * D, sizeof *w->all_v);
    w->q = vl_arena_take(ar, ITEMS * D, sizeof *w->q);
    w->g = vl_arena_take(ar, ITEMS * D, sizeof *w->g);
    w->dq = vl_arena_take(ar, ITEMS * D, sizeof *w->dq);
    w->qt = vl_arena_take(ar, ITEMS * D / 2, sizeof *w->qt);
    w->gt = vl_arena_take(ar, ITEMS * D / 2, sizeof *w->gt);
    w->qp = vl_arena_take(ar, ITEMS * D / 2, sizeof *w->qp);
    w->gp = vl_arena_take(ar, ITEMS * D / 2, sizeof *w->gp);
    w->s = vl_arena_take(ar, KEYS * ITEMS, sizeof *w->s);
    w->ds = vl_arena_take(ar, KEYS * ITEMS, sizeof *w->ds);
    w->lse = vl_arena_take(ar, ITEMS, sizeof *w->lse);
    w->delta = vl_arena_take(ar, ITEMS, sizeof *w->delta);
    w->p16 = vl_arena_take(ar, KEYS * ITEMS / 2, sizeof *w->p16);
    w->ds16 = vl_arena_take(ar, KEYS * ITEMS / 2, sizeof *w->ds16);
    w->turned = vl_arena_take(ar, KEYS * ITEMS / 2, sizeof *w->turned);
}

/* c (M,N) = [add ? c : 0] + a (M,K2) b (K2,N), pairs */
static void mul(const struct job *j, float *c, int64_t ldc, const uint32_t *a, int64_t lda,
                const uint32_t *b, int64_t ldb, int64_t M, int64_t N, int64_t K2, int add)
{
    if (j->a->ct == VL_COMPUTE_BF16)
        j->c->k.mul16(c, ldc, a, lda, b, ldb, M, N, K2, add, NULL);
    else
        j->c->k.mul_amx(c, ldc, a, lda, b, ldb, M, N, K2, add, NULL);
}

static int64_t up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* ---- a sequence's keys and values ---- */

/* The key of position t; its value lies K D floats on. */
static const float *key_of(const struct job *j, const struct vl_seq *s, int64_t head, int64_t t)
{
    int64_t row = t < s->pos ? s->prefix + t : s->row + t - s->pos;

    return j->qkv + row * row_width(j->a) + (j->a->H + head) * j->a->D;
}

static void put_row(const struct job *j, uint32_t *to, const float *x)
{
    int64_t D = j->a->D, pairs = vl_attn_padded(j->a) / 2;

    j->c->k.to_bf16((uint16_t *)to, x, D);
    memset(to + (D + 1) / 2, 0, (size_t)(pairs - (D + 1) / 2) * sizeof *to);
}

/* Positions from (even) .. to-1 as operands, the first position there being `base`. */
static void prepare(const struct job *j, const struct work *w, const struct vl_seq *s, int64_t head,
                    int64_t base, int64_t from, int64_t to)
{
    int64_t D = j->a->D, Dp = vl_attn_padded(j->a), value = j->a->K * D;

    for (int64_t t = from; t < to; t++) {
        const float *k = key_of(j, s, head, t);

        put_row(j, w->k + (t - base) * Dp / 2, k);
        put_row(j, w->v + (t - base) * Dp / 2, k + value);
    }
    for (int64_t t = from; t < up(to - base, KEYS) + base; t += 2) {
        uint32_t *kp = w->kp + (t - base) / 2 * Dp;

        if (t < to)
            j->c->k.pair(kp, key_of(j, s, head, t), t + 1 < to ? key_of(j, s, head, t + 1) : NULL,
                         D);
        memset(t < to ? kp + D : kp, 0, (size_t)(t < to ? Dp - D : Dp) * sizeof *kp);
    }
}

/* ---- items ---- */

/* x (ITEMS, Dp) as pairs of elements and as pairs of items. */
static void put_items(const struct job *j, uint32_t *xt, uint32_t *xp, const float *x, int64_t n)
{
    int64_t Dp = vl_attn_padded(j->a);

    for (int64_t i = 0; i < n; i += 16)
        for (int64_t d = 0; d < Dp; d += 32)
            j->c->k.pair_w(xt + d / 2 * ITEMS + i, ITEMS, x + i * Dp + d, Dp, 16, 32);
    for (int64_t i = 0; i < n; i += 2)
        j->c->k.pair(xp + i / 2 * Dp, x + i * Dp, x + (i + 1) * Dp, Dp);
}

/* Items m .. m+n-1 from query row `row` of the batch on; zeros up to a multiple of 32. */
static void load_items(const struct job *j, const struct work *w, int64_t head, int64_t row,
                       int64_t m, int64_t n)
{
    const struct vl_attn *a = j->a;
    int64_t G = a->H / a->K, D = a->D, Dp = vl_attn_padded(a), all = up(n, 32);

    memset(w->q, 0, (size_t)(all * Dp) * sizeof *w->q);
    memset(w->g, 0, (size_t)(all * Dp) * sizeof *w->g);
    for (int64_t i = 0; i < n; i++) {
        int64_t r = row + (m + i) / G, h = head * G + (m + i) % G, at = (r * a->H + h) * D;

        memcpy(w->q + i * Dp, j->qkv + r * row_width(a) + h * D, (size_t)D * sizeof *w->q);
        j->c->k.scale(w->q + i * Dp, a->scale, D);
        memcpy(w->g + i * Dp, j->dout + at, (size_t)D * sizeof *w->g);
        w->lse[i] = j->lse[r * a->H + h];
        w->delta[i] = j->c->k.dot(j->dout + at, j->out + at, D);
    }
    put_items(j, w->qt, w->qp, w->q, all);
    put_items(j, w->gt, w->gp, w->g, all);
}

static void store_dq(const struct job *j, const struct work *w, int64_t head, int64_t row,
                     int64_t m, int64_t n)
{
    const struct vl_attn *a = j->a;
    int64_t G = a->H / a->K, D = a->D, Dp = vl_attn_padded(a);

    for (int64_t i = 0; i < n; i++) {
        int64_t r = row + (m + i) / G, h = head * G + (m + i) % G;

        j->c->k.scale(w->dq + i * Dp, a->scale, D);
        memcpy(j->dqkv + r * row_width(a) + h * D, w->dq + i * Dp, (size_t)D * sizeof *w->dq);
    }
}

static int64_t clamp(int64_t x, int64_t n)
{
    return x < 0 ? 0 : x > n ? n : x;
}

/* ---- a step: n items, of which item m is the first, by kn keys from position t on ---- */

static void step(const struct job *j, const struct work *w, int64_t base, int64_t t0, int64_t m,
                 int64_t n, int64_t t, int64_t kn, int first)
{
    const struct vl_attn *a = j->a;
    int64_t G = a->H / a->K, Dp = vl_attn_padded(a), at = t - base, n16 = up16(n), n32 = up(n, 32);

    mul(j, w->s, ITEMS, w->k + at * Dp / 2, Dp / 2, w->qt, ITEMS, kn, n16, Dp / 2, 0);
    mul(j, w->ds, ITEMS, w->v + at * Dp / 2, Dp / 2, w->gt, ITEMS, kn, n16, Dp / 2, 0);
    for (int64_t i = 0; i < kn; i++) { /* items of rows t + i .. t + i + window - 1 see the key */
        int64_t lo = clamp((t + i - t0) * G - m, n);
        int64_t hi = a->window > 0 ? clamp((t + i + a->window - t0) * G - m, n) : n;

        j->c->k.softmax_bwd16((uint16_t *)(w->p16 + i * ITEMS / 2),
                              (uint16_t *)(w->ds16 + i * ITEMS / 2), w->ds + i * ITEMS,
                              w->s + i * ITEMS, n32, lo, hi, w->lse, w->delta);
    }
    for (int64_t k = 0; k < kn; k += 32)
        for (int64_t i = 0; i < n; i += 16)
            j->c->k.pair_t(w->turned + i * KEYS / 2 + k / 2, KEYS / 2, w->ds + k * ITEMS + i, ITEMS,
                           kn - k < 32 ? kn - k : 32, 16, 16);
    mul(j, w->dq, Dp, w->turned, KEYS / 2, w->kp + at / 2 * Dp, Dp, n, Dp, up(kn, 32) / 2, !first);
    mul(j, w->sum_k + at * Dp, Dp, w->ds16, ITEMS / 2, w->qp, Dp, kn, Dp, n32 / 2, 1);
    mul(j, w->sum_v + at * Dp, Dp, w->p16, ITEMS / 2, w->gp, Dp, kn, Dp, n32 / 2, 1);
}

/* dq of a piece, and its partial dk and dv from position `base` on, which need not be zero before. */
static void run_piece(const struct job *j, const struct work *w, const struct piece *p,
                      int64_t head, int64_t base)
{
    const struct vl_attn *a = j->a;
    const struct vl_seq *s = j->seq + p->seq;
    int64_t G = a->H / a->K, Dp = vl_attn_padded(a), t0 = s->pos + p->row, row = s->row + p->row;
    size_t bytes = (size_t)((p->to - p->from) * Dp) * sizeof(float);

    memset(w->sum_k + (p->from - base) * Dp, 0, bytes);
    memset(w->sum_v + (p->from - base) * Dp, 0, bytes);
    for (int64_t m = 0; m < p->rows * G; m += ITEMS) {
        int64_t n = p->rows * G - m < ITEMS ? p->rows * G - m : ITEMS;
        int64_t from = key_from(a, t0 + m / G) / KEYS * KEYS, to = t0 + (m + n - 1) / G + 1;

        load_items(j, w, head, row, m, n);
        for (int64_t t = from; t < to; t += KEYS)
            step(j, w, base, t0, m, n, t, to - t < KEYS ? to - t : KEYS, t == from);
        store_dq(j, w, head, row, m, n);
    }
}

/* ---- sums of pieces ---- */

/* Positions from .. to-1 of the sequence's own rows from sums whose first position is `base`. */
static void store_sums(const struct job *j, const struct vl_seq *s, int64_t head, const float *k,
                       const float *v, int64_t base)
{
    int64_t D = j->a->D, Dp = vl_attn_padded(j->a);

    for (int64_t i = 0; i < s->n; i++) {
        float *to = j->dqkv + (s->row + i) * row_width(j->a) + (j->a->H + head) * D;
        int64_t at = (s->pos + i - base) * Dp;

        memcpy(to, k + at, (size_t)D * sizeof *to);
        memcpy(to + j->a->K * D, v + at, (size_t)D * sizeof *to);
    }
}

/* Adds the pieces of a family in order and stores. run: computes each first; else it was. */
static void sum_family(const struct job *j, const struct work *w, const struct family *f,
                       int64_t head, int run)
{
    int64_t Dp = vl_attn_padded(j->a);

    for (int64_t i = 0; i < f->n; i++) {
        const struct piece *p = j->piece + f->first + i;
        const struct vl_seq *s = j->seq + p->seq;
        int64_t n = (p->to - p->from) * Dp, last = i + 1 == f->n || p[1].seq != p->seq;
        const float *k = w->sum_k + p->from * Dp, *v = w->sum_v + p->from * Dp;

        if (p->row == 0) {
            memset(w->all_k + s->pos * Dp, 0, (size_t)(s->n * Dp) * sizeof *w->all_k);
            memset(w->all_v + s->pos * Dp, 0, (size_t)(s->n * Dp) * sizeof *w->all_v);
        }
        if (run) {
            if (p->row == 0)
                prepare(j, w, s, head, 0, s->pos & ~(int64_t)1, s->pos + s->n);
            run_piece(j, w, p, head, 0);
        } else {
            k = j->sums + p->sums + 2 * head * n;
            v = k + n;
        }
        j->c->k.add(w->all_k + p->from * Dp, k, n);
        j->c->k.add(w->all_v + p->from * Dp, v, n);
        if (last && s->pos)
            store_sums(j, s, head, w->all_k, w->all_v, 0);
    }
    store_sums(j, j->seq + j->piece[f->first].seq, head, w->all_k, w->all_v, 0);
}

static struct work thread_work(const struct job *j, int thread)
{
    struct vl_arena ar = { .base = (char *)(j->buf + (size_t)thread * j->stride) };
    struct work w;

    carve(&ar, &w, j->positions, vl_attn_padded(j->a));
    return w;
}

static void family_task(void *arg, int64_t i, int thread)
{
    const struct job *j = arg;
    struct work w = thread_work(j, thread);

    sum_family(j, &w, j->family + i / j->a->K, i % j->a->K, !j->sums);
}

static void piece_task(void *arg, int64_t i, int thread)
{
    const struct job *j = arg;
    const struct piece *p = j->piece + i / j->a->K;
    int64_t head = i % j->a->K, n = (p->to - p->from) * vl_attn_padded(j->a);
    struct work w = thread_work(j, thread);

    w.sum_k = j->sums + p->sums + 2 * head * n;
    w.sum_v = w.sum_k + n;
    prepare(j, &w, j->seq + p->seq, head, p->from, p->from, p->to);
    run_piece(j, &w, p, head, p->from);
}

/* Fills piece and family where they are not NULL, and always the counts. Returns the floats of all sums. */
static int64_t cut(struct job *j, int64_t nseq)
{
    const struct vl_attn *a = j->a;
    int64_t sums = 0;

    j->pieces = j->families = j->positions = 0;
    for (int64_t i = 0; i < nseq; i++) {
        const struct vl_seq *s = j->seq + i;

        j->families += !s->pos;
        for (int64_t r = 0; r < s->n; r += STRIPE) {
            int64_t rows = s->n - r < STRIPE ? s->n - r : STRIPE, to = s->pos + r + rows;
            int64_t from = key_from(a, s->pos + r) / KEYS * KEYS;

            if (j->piece) {
                struct family *f = j->family + j->families - 1;

                j->piece[j->pieces] = (struct piece){ i, r, rows, from, to, sums };
                if (!s->pos && !r)
                    *f = (struct family){ .first = j->pieces };
                f->n++;
            }
            sums += 2 * (to - from) * vl_attn_padded(a) * a->K;
            j->pieces++;
            j->positions = to > j->positions ? to : j->positions;
        }
    }
    j->positions = up(j->positions, KEYS);
    return sums;
}

#define SUMS_MOST ((int64_t)1 << 25) /* floats of partial sums that may be kept: 128 MB */

void vl_attn_half_bwd(struct vl_cpu *c, float *dqkv, const float *dout, const float *out,
                      const float *lse, const float *qkv, const struct vl_seq *seq, int64_t nseq,
                      const struct vl_attn *a)
{
    struct job j = {
        .c = c, .a = a, .seq = seq, .dout = dout, .out = out, .lse = lse, .qkv = qkv, .dqkv = dqkv
    };
    struct vl_arena size = { 0 };
    struct work w;
    double steps = 0;
    int64_t sums = cut(&j, nseq);

    j.piece =
        vl_cpu_scratch(c, VL_SCRATCH_B,
                       (size_t)j.pieces * sizeof *j.piece + (size_t)j.families * sizeof *j.family);
    j.family = (struct family *)(j.piece + j.pieces);
    cut(&j, nseq);
    for (int64_t i = 0; i < nseq; i++)
        steps += (double)seq[i].n * (2.0 * seq[i].pos + seq[i].n + 16.0);
    carve(&size, &w, j.positions, vl_attn_padded(a));
    j.buf = vl_cpu_thread_scratch(c, size.used / sizeof(float), &j.stride);
    if (j.families * a->K < 4 * c->threads && j.pieces > j.families && sums <= SUMS_MOST) {
        j.sums = vl_cpu_scratch(c, VL_SCRATCH_A, (size_t)sums * sizeof *j.sums);
        vl_cpu_run(c, steps * a->H * a->D / 8, j.pieces * a->K, piece_task, &j);
    }
    vl_cpu_run(c, steps * a->H * a->D / 8, j.families * a->K, family_task, &j);
}
