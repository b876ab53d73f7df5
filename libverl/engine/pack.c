/* pack.c - padded columns to packed rows and back. See pack.h for the alignment. */
#include "libverl/engine/pack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct source {
    const struct vl_batch *b;
    const int64_t *prompts, *responses, *ids, *mask; /* NULL when the batch has none */
    int64_t P, R, V;
};

/* A (B, width) I64 column if the batch has it; *width is -1 for any or the width it must have. */
static int optional(const struct source *s, const char *name, int64_t *width, const int64_t **data,
                    struct vl_err *e)
{
    *data = NULL;
    if (!vl_batch_col(s->b, name))
        return 0;
    return vl_batch_need(s->b, name, VL_I64, 1, width, data, e);
}

static int find_columns(struct source *s, struct vl_err *e)
{
    int64_t wide = -1, inner = -1;

    s->P = s->R = -1;
    if (optional(s, "prompts", &s->P, &s->prompts, e) ||
        optional(s, "responses", &s->R, &s->responses, e))
        return e->code;
    if (!s->responses) {
        const struct vl_col *m = vl_batch_col(s->b, "response_mask");

        if (!m || m->ndim != 2)
            return vl_fail(e, VL_E_DATA,
                           "column responses (rows, R) is missing: verl-rollout adds it");
        s->R = m->shape[1];
    }
    if (s->P >= 0)
        wide = s->P + s->R;
    if (optional(s, "input_ids", &wide, &s->ids, e))
        return e->code;
    if (!s->ids && !(s->prompts && s->responses))
        return vl_fail(e, VL_E_DATA,
                       "neither input_ids nor prompts and responses are there: verl-rollout "
                       "writes them");
    if (s->P < 0)
        s->P = wide - s->R;
    if (s->P < 0)
        return vl_fail(e, VL_E_DATA,
                       "input_ids is %" PRId64 " wide, narrower than the responses' %" PRId64, wide,
                       s->R);
    inner = s->P + s->R;
    return vl_batch_need(s->b, "attention_mask", VL_I64, 1, &inner, &s->mask, e);
}

/* The run of ones in mask[0..n): *at, *len. Other values or a second run are refused. */
static int run_of_ones(const int64_t *mask, int64_t n, int64_t *at, int64_t *len)
{
    int64_t i = 0, j;

    while (i < n && mask[i] == 0)
        i++;
    for (j = i; j < n && mask[j] == 1; j++)
        ;
    *at = i < n ? i : 0;
    *len = j - i;
    for (; j < n; j++)
        if (mask[j] != 0)
            return 0;
    return 1;
}

static int take_ids(const struct source *s, int64_t row, int64_t at, int64_t n, int32_t *dst,
                    struct vl_err *e)
{
    int64_t S = s->P + s->R;
    char who[128];

    for (int64_t i = at; i < at + n; i++) {
        const int64_t *two = i < s->P ? s->prompts : s->responses;
        int64_t width = i < s->P ? s->P : s->R, j = i < s->P ? i : i - s->P;
        int64_t id = s->ids ? s->ids[row * S + i] : two[row * width + j];

        if (id < 0 || id >= s->V) {
            vl_batch_row_name(s->b, row, who, sizeof who);
            return vl_fail(e, VL_E_DATA,
                           "%s, position %" PRId64 " of input_ids: id %" PRId64
                           " is outside the model's vocabulary of %" PRId64
                           " (another model's batch?)",
                           who, i, id, s->V);
        }
        if (s->ids && two && two[row * width + j] != id) {
            vl_batch_row_name(s->b, row, who, sizeof who);
            return vl_fail(e, VL_E_DATA,
                           "%s, position %" PRId64 ": input_ids has %" PRId64 ", %s has %" PRId64
                           "; drop the column that is wrong",
                           who, i, id, i < s->P ? "prompts" : "responses", two[row * width + j]);
        }
        *dst++ = (int32_t)id;
    }
    return 0;
}

static int read_row(struct vl_rows *r, const struct source *s, int64_t row, struct vl_err *e)
{
    const int64_t *mask = s->mask + row * (s->P + s->R);
    int64_t pat, plen, rat, rlen, n = r->start[row];
    char who[128];

    if (!run_of_ones(mask, s->P, &pat, &plen) || !run_of_ones(mask + s->P, s->R, &rat, &rlen) ||
        rat > 0) {
        vl_batch_row_name(s->b, row, who, sizeof who);
        return vl_fail(e, VL_E_DATA,
                       "%s: attention_mask must be one run of ones in the prompt and one from the "
                       "response's first column, zeros elsewhere",
                       who);
    }
    if (rlen && !plen) {
        vl_batch_row_name(s->b, row, who, sizeof who);
        return vl_fail(e, VL_E_DATA,
                       "%s has a response and no prompt token: nothing predicts its first token "
                       "(begin prompts with the model's begin token)",
                       who);
    }
    if (take_ids(s, row, pat, plen, r->ids + n, e) ||
        take_ids(s, row, s->P, rlen, r->ids + n + plen, e))
        return e->code;
    r->plen[row] = (int32_t)plen;
    r->rlen[row] = (int32_t)rlen;
    r->start[row + 1] = n + plen + rlen;
    return 0;
}

static int read_all(struct vl_rows *r, const struct source *s, struct vl_err *e)
{
    int64_t B = s->b->rows;

    r->B = B, r->P = s->P, r->R = s->R;
    if (vl_try_alloc(&r->start, (size_t)B + 1, sizeof *r->start, "row offsets", e) ||
        vl_try_alloc(&r->plen, (size_t)B, sizeof *r->plen, "prompt lengths", e) ||
        vl_try_alloc(&r->rlen, (size_t)B, sizeof *r->rlen, "response lengths", e) ||
        vl_try_alloc(&r->ids, (size_t)B * (size_t)(s->P + s->R), sizeof *r->ids, "token ids", e))
        return e->code;
    for (int64_t row = 0; row < B; row++)
        if (read_row(r, s, row, e))
            return e->code;
    return 0;
}

int vl_rows_read(struct vl_rows *r, const struct vl_batch *b, int64_t V, struct vl_err *e)
{
    struct source s = { .b = b, .V = V };

    *r = (struct vl_rows){ 0 };
    return find_columns(&s, e) ? e->code : read_all(r, &s, e);
}

int vl_rows_read_prompts(struct vl_rows *r, const struct vl_batch *b, int64_t V, struct vl_err *e)
{
    struct source s = { .b = b, .V = V, .P = -1, .R = 0 };
    int64_t width;

    *r = (struct vl_rows){ 0 };
    if (optional(&s, "prompts", &s.P, &s.prompts, e))
        return e->code;
    width = s.P;
    if (!s.prompts && vl_batch_need(b, "input_ids", VL_I64, 1, &width, &s.ids, e))
        return e->code;
    s.P = width;
    if (s.prompts && vl_batch_col(b, "responses")) {
        /* after a rollout the mask covers both; only its prompt part counts here */
        return vl_fail(e, VL_E_DATA,
                       "the batch already has responses: give verl-rollout the prompt batch of "
                       "verl-data (verl-batch select takes columns out)");
    }
    return vl_batch_need(b, "attention_mask", VL_I64, 1, &width, &s.mask, e) ? e->code
                                                                             : read_all(r, &s, e);
}

void vl_rows_free(struct vl_rows *r)
{
    free(r->start);
    free(r->ids);
    free(r->plen);
    free(r->rlen);
    *r = (struct vl_rows){ 0 };
}

/* ---- what rows cost, and where they may be cut ---- */

static int same_prompt(const struct vl_rows *r, int64_t a, int64_t b)
{
    return r->plen[a] == r->plen[b] &&
           !memcmp(r->ids + r->start[a], r->ids + r->start[b], (size_t)r->plen[a] * sizeof *r->ids);
}

/* Whether the row's tokens are computed at all. */
static int live(const struct vl_rows *r, int64_t row)
{
    return r->rlen[row] > 0;
}

/* Tokens of the row beside `before`, the row packed last (-1: none). */
static int64_t row_cost(const struct vl_rows *r, int64_t row, int64_t before, int share)
{
    if (!live(r, row))
        return 0;
    if (r->at_end)
        return vl_rows_tokens(r, row);
    return r->rlen[row] +
           (share && before >= 0 && same_prompt(r, before, row) ? 0 : r->plen[row] - 1);
}

/* The rows i .. end-1 stay together. */
static int64_t block_end(const struct vl_rows *r, const int64_t *rows, int64_t base, int64_t n,
                         int64_t i, const struct vl_micro_rule *rule)
{
    int64_t unit = rule->unit > 1 ? rule->unit : 1, end = i + unit;

    while (rule->share && rule->whole && end < n &&
           same_prompt(r, rows ? rows[end - 1] : base + end - 1, rows ? rows[end] : base + end))
        end += unit;
    return end;
}

/* Tokens of rows i .. end-1; *before: see row_cost, moved on. */
static int64_t block_cost(const struct vl_rows *r, const int64_t *rows, int64_t base, int64_t i,
                          int64_t end, int share, int64_t *before)
{
    int64_t tokens = 0;

    for (; i < end; i++) {
        int64_t row = rows ? rows[i] : base + i;

        tokens += row_cost(r, row, *before, share);
        *before = live(r, row) ? row : *before;
    }
    return tokens;
}

int64_t vl_micro_cut(const struct vl_rows *r, const int64_t *rows, int64_t base, int64_t n,
                     const struct vl_micro_rule *rule, int64_t *first)
{
    int64_t k = 0, tokens = 0, before = -1, end;

    first[0] = 0;
    for (int64_t i = 0; i < n; i = end) {
        int64_t last = before, t;

        end = block_end(r, rows, base, n, i, rule);
        t = block_cost(r, rows, base, i, end, rule->share, &last);
        if (i > first[k] && ((rule->max_rows && end - first[k] > rule->max_rows) ||
                             (rule->max_tokens && tokens + t > rule->max_tokens))) {
            first[++k] = i;
            last = -1;
            tokens = 0;
            t = block_cost(r, rows, base, i, end, rule->share, &last);
        }
        tokens += t;
        before = last;
    }
    if (n)
        first[++k] = n;
    return k;
}

void vl_pack_extent(const struct vl_rows *r, const int64_t *rows, int64_t base, int64_t n,
                    int share, struct vl_extent *x)
{
    int64_t before = -1, run = 0; /* rows with the prompt of `before`, up to it */

    *x = (struct vl_extent){ 0 };
    for (int64_t i = 0; i < n; i++) {
        int64_t row = rows ? rows[i] : base + i, tokens = vl_rows_tokens(r, row);

        if (!live(r, row))
            continue;
        run = share && !r->at_end && before >= 0 && same_prompt(r, before, row) ? run + 1 : 1;
        if (run > 1 && r->plen[row] > 1) { /* the second makes the prefix a sequence */
            x->nseq += run == 2;
            x->shared += (run == 2 ? 2 : 1) * (r->plen[row] - 1);
        }
        x->N += row_cost(r, row, before, share);
        x->M += r->rlen[row];
        x->nseq++;
        x->longest = tokens > x->longest ? tokens : x->longest;
        before = row;
    }
}

static void widen(int64_t *x, int64_t y)
{
    *x = y > *x ? y : *x;
}

void vl_extent_widen(struct vl_extent *x, const struct vl_extent *y)
{
    widen(&x->N, y->N);
    widen(&x->M, y->M);
    widen(&x->nseq, y->nseq);
    widen(&x->shared, y->shared);
    widen(&x->longest, y->longest);
    x->paged |= y->paged;
}

/* ---- packing ---- */

/* Tokens from .. to-1 of a row as a sequence; prefix: the row of token 0 where from > 0. */
static void put_tokens(struct vl_pack *k, const struct vl_rows *r, int64_t row, int64_t from,
                       int64_t to, int64_t prefix)
{
    struct vl_packed *p = &k->p;

    memcpy(k->ids + p->N, r->ids + r->start[row] + from, (size_t)(to - from) * sizeof *k->ids);
    for (int64_t t = from; t < to; t++)
        k->pos[p->N + t - from] = (int32_t)t;
    k->seq[p->nseq++] = (struct vl_seq){
        .row = p->N, .n = (int32_t)(to - from), .pos = (int32_t)from, .prefix = prefix
    };
    p->N += to - from;
}

/* The row's sequence and outputs. */
static void pack_row(struct vl_pack *k, const struct vl_rows *r, int64_t row, int64_t from,
                     int64_t prefix)
{
    struct vl_packed *p = &k->p;
    int64_t n = vl_rows_tokens(r, row), at = p->N - from; /* of token 0, were it there */
    const int32_t *id = r->ids + r->start[row];

    put_tokens(k, r, row, from, r->at_end ? n : n - 1, prefix);
    for (int32_t t = 0; t < r->rlen[row]; t++) {
        int64_t j = p->M++, next = r->at_end ? n : r->plen[row] + t;

        k->out[j] = at + next - 1;
        k->target[j] = r->at_end ? 0 : id[next]; /* a score predicts no token */
        k->cell[j] = row * r->R + t;
    }
}

/* Live rows list[0..n) with the same prompt. */
static void pack_run(struct vl_pack *k, const struct vl_rows *r, const int64_t *list, int64_t n)
{
    int64_t prefix = k->p.N, from = n > 1 ? r->plen[list[0]] - 1 : 0;

    if (from > 0)
        put_tokens(k, r, list[0], 0, from, 0);
    for (int64_t i = 0; i < n; i++)
        pack_row(k, r, list[i], from, from > 0 ? prefix : 0);
}

void vl_pack_rows(struct vl_pack *k, const struct vl_rows *r, const int64_t *rows, int64_t base,
                  int64_t n, int share)
{
    int64_t *list = vl_alloc((size_t)n * sizeof *list), used = 0, run;
    struct vl_extent x;

    *k = (struct vl_pack){ 0 };
    vl_pack_extent(r, rows, base, n, share, &x);
    k->ids = vl_alloc((size_t)x.N * sizeof *k->ids);
    k->pos = vl_alloc((size_t)x.N * sizeof *k->pos);
    k->seq = vl_alloc((size_t)x.nseq * sizeof *k->seq);
    k->out = vl_alloc((size_t)x.M * sizeof *k->out);
    k->target = vl_alloc((size_t)x.M * sizeof *k->target);
    k->cell = vl_alloc((size_t)x.M * sizeof *k->cell);
    for (int64_t i = 0; i < n; i++)
        if (live(r, rows ? rows[i] : base + i))
            list[used++] = rows ? rows[i] : base + i;
    for (int64_t i = 0; i < used; i += run) {
        run = 1;
        while (share && !r->at_end && i + run < used && same_prompt(r, list[i], list[i + run]))
            run++;
        pack_run(k, r, list + i, run);
    }
    free(list);
    k->p.ids = k->ids;
    k->p.pos = k->pos;
    k->p.seq = k->seq;
    k->p.out = k->out;
    k->p.target = k->target;
}

void vl_pack_free(struct vl_pack *k)
{
    free(k->ids);
    free(k->pos);
    free(k->seq);
    free(k->out);
    free(k->target);
    free(k->cell);
    *k = (struct vl_pack){ 0 };
}

void vl_pack_scatter(float *dst, const struct vl_pack *k, const float *src)
{
    for (int64_t j = 0; j < k->p.M; j++)
        dst[k->cell[j]] = src[j];
}

void vl_pack_gather(float *dst, const struct vl_pack *k, const float *src)
{
    for (int64_t j = 0; j < k->p.M; j++)
        dst[j] = src[k->cell[j]];
}
