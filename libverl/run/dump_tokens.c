/* dump_tokens.c - see dump_tokens.h.
 *
 * A token's text is what it adds to the text before it: a character that is spread over tokens
 * appears at the last of them. Beside it stands the vocabulary's own spelling, which no two ids of a
 * tokenizer share. */
#include "libverl/run/dump_tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"

/* The tokens of a row without padding. */
struct tokens {
    int64_t *id, *at; /* at: place in prompts or responses, counted without padding */
    int64_t *place;   /* column in responses, or -1 in the prompt */
    int64_t n, nprompt;
    const int64_t *trained; /* response_mask of the row, or NULL */
};

static const int64_t *ids_of(const struct vl_batch *b, const char *name, int64_t row,
                             int64_t *width)
{
    const struct vl_col *c = vl_batch_col(b, name);

    *width = 0;
    if (!c || c->kind != VL_COL_TENSOR || c->dtype != VL_I64 || c->ndim != 2)
        return NULL;
    *width = c->shape[1];
    return (const int64_t *)c->data + row * c->shape[1];
}

static void take(struct tokens *t, const int64_t *id, int64_t n, const int64_t *mask, int response)
{
    int64_t at = 0;

    for (int64_t k = 0; k < n; k++)
        if (!mask || mask[k]) {
            t->id[t->n] = id[k];
            t->at[t->n] = at++;
            t->place[t->n++] = response ? k : -1;
        }
}

static int tokens_of(struct tokens *t, const struct vl_batch *b, int64_t row, struct vl_err *e)
{
    int64_t P, R, S, M, W;
    const int64_t *p = ids_of(b, "prompts", row, &P), *r = ids_of(b, "responses", row, &R);
    const int64_t *s = ids_of(b, "input_ids", row, &S), *m = ids_of(b, "attention_mask", row, &M);

    *t = (struct tokens){ 0 };
    if (!p && !r && !s)
        return vl_batch_missing(b, "tokens", "prompts, responses or input_ids", e);
    if (!p && !r)
        p = s, P = S;
    W = P + R;
    if (m && M < W)
        m = M == P ? m : NULL; /* of the prompts alone */
    t->id = vl_alloc((size_t)(W ? W : 1) * sizeof *t->id);
    t->at = vl_alloc((size_t)(W ? W : 1) * sizeof *t->at);
    t->place = vl_alloc((size_t)(W ? W : 1) * sizeof *t->place);
    if (p)
        take(t, p, P, m ? m + (M - W > 0 ? M - W : 0) : NULL, 0);
    t->nprompt = t->n;
    if (r)
        take(t, r, R, m && M >= W ? m + M - R : NULL, 1);
    t->trained = ids_of(b, "response_mask", row, &M);
    if (M != R)
        t->trained = NULL;
    return 0;
}

static void tokens_free(struct tokens *t)
{
    free(t->id);
    free(t->at);
    free(t->place);
}

static int32_t as_id(int64_t id)
{
    return id < 0 || id > INT32_MAX ? -1 : (int32_t)id;
}

/* ---- text ---- */

/* The texts of the tokens, one after the other; end[k] is where that of token k ends. */
struct texts {
    struct vl_buf text;
    size_t *end;
};

static void texts_of(struct texts *x, const struct vl_tok *tok, const int64_t *id, int64_t n)
{
    struct vl_tok_stream *s = vl_tok_stream_new(tok, 0);

    x->text = (struct vl_buf){ 0 };
    x->end = vl_alloc((size_t)(n ? n : 1) * sizeof *x->end);
    for (int64_t k = 0; k < n; k++) {
        vl_tok_stream_push(s, as_id(id[k]), &x->text);
        if (k == n - 1)
            vl_tok_stream_end(s, &x->text);
        x->end[k] = x->text.n;
    }
    vl_tok_stream_free(s);
}

static void texts_free(struct texts *x)
{
    vl_buf_free(&x->text);
    free(x->end);
}

static void put_text(struct vl_buf *out, const struct texts *x, int64_t k)
{
    size_t from = k ? x->end[k - 1] : 0;

    (void)vl_json_put_str(out, x->text.s ? x->text.s + from : "", x->end[k] - from);
}

void vl_dump_pieces(struct vl_buf *out, const struct vl_tok *tok, const int64_t *ids, size_t n)
{
    struct texts x;

    texts_of(&x, tok, ids, (int64_t)n);
    vl_buf_ch(out, '[');
    for (int64_t k = 0; k < (int64_t)n; k++) {
        vl_buf_str(out, k ? "," : "");
        put_text(out, &x, k);
    }
    vl_buf_ch(out, ']');
    texts_free(&x);
}

/* ---- --tokens ---- */

/* A per-token column: a number for each place of the responses. */
static int per_token(const struct vl_col *c, int64_t R)
{
    return c && c->kind == VL_COL_TENSOR && (c->dtype == VL_F32 || c->dtype == VL_I64) &&
           c->ndim == 2 && c->shape[1] == R;
}

static int find_columns(const struct vl_batch *b, const char *const *names, const struct vl_col **c,
                        size_t *n, struct vl_err *e)
{
    int64_t R;

    (void)ids_of(b, "responses", 0, &R);
    *n = 0;
    for (size_t i = 0; names && names[i]; i++) {
        c[*n] = vl_batch_col(b, names[i]);
        if (!c[*n])
            return vl_batch_missing(b, "-k", names[i], e);
        if (!per_token(c[(*n)++], R))
            return vl_fail(e, VL_E_DATA,
                           "-k %s: not a column with a number for each of %" PRId64
                           " response tokens, so --tokens cannot show it beside them",
                           names[i], R);
    }
    for (size_t i = 0; !names && i < b->ncol; i++)
        if (R && b->col[i]->dtype == VL_F32 && per_token(b->col[i], R))
            c[(*n)++] = b->col[i];
    return 0;
}

static int width_of(const char *name)
{
    return strlen(name) > 11 ? (int)strlen(name) : 11;
}

static void put_value(struct vl_buf *out, const struct vl_col *c, int64_t row, int64_t place)
{
    int w = width_of(c->name);

    if (place < 0)
        vl_buf_printf(out, "  %*s", w, "");
    else if (c->dtype == VL_F32)
        vl_buf_printf(out, "  %*.5g", w, ((const float *)c->data)[row * c->shape[1] + place]);
    else
        vl_buf_printf(out, "  %*" PRId64, w, ((const int64_t *)c->data)[row * c->shape[1] + place]);
}

static void put_heading(struct vl_buf *out, const struct vl_batch *b, int64_t row,
                        const struct tokens *t)
{
    int64_t trained = 0, R = t->n - t->nprompt;
    char name[128];

    for (int64_t k = t->nprompt; k < t->n; k++)
        trained += !t->trained || t->trained[t->place[k]];
    vl_buf_printf(out, "%s: %" PRId64 " prompt tokens",
                  vl_batch_row_name(b, row, name, sizeof name), t->nprompt);
    if (R)
        vl_buf_printf(out, ", %" PRId64 " of the response, %" PRId64 " in the loss", R, trained);
    vl_buf_ch(out, '\n');
}

int vl_dump_tokens(struct vl_buf *out, const struct vl_batch *b, int64_t row,
                   const char *const *columns, const struct vl_tok *tok, struct vl_err *e)
{
    const struct vl_col **c = vl_alloc((b->ncol + 1) * sizeof *c);
    struct texts x = { 0 };
    struct tokens t = { 0 };
    size_t ncol;

    if (find_columns(b, columns, c, &ncol, e) || tokens_of(&t, b, row, e)) {
        free(c);
        return e->code;
    }
    put_heading(out, b, row, &t);
    vl_buf_printf(out, "%6s  %4s  %8s", "at", "loss", "id");
    for (size_t i = 0; i < ncol; i++)
        vl_buf_printf(out, "  %*s", width_of(c[i]->name), c[i]->name);
    vl_buf_str(out, tok ? "  text  (in the vocabulary)\n" : "\n");
    if (tok)
        texts_of(&x, tok, t.id, t.n);
    for (int64_t k = 0; k < t.n; k++) {
        int response = k >= t.nprompt;
        const char *loss = !response ? "." : !t.trained || t.trained[t.place[k]] ? "1" : "0";
        char at[24];
        size_t n;
        const char *piece = tok ? vl_tok_text(tok, as_id(t.id[k]), &n) : NULL;

        snprintf(at, sizeof at, "%c%" PRId64, response ? 'r' : 'p', t.at[k]);
        vl_buf_printf(out, "%6s  %4s  %8" PRId64, at, loss, t.id[k]);
        for (size_t i = 0; i < ncol; i++)
            put_value(out, c[i], row, t.place[k]);
        if (tok) {
            vl_buf_str(out, "  ");
            put_text(out, &x, k);
            vl_buf_str(out, piece ? "  (" : "  (not in the vocabulary");
            if (piece)
                vl_buf_add(out, piece, n);
            vl_buf_str(out, vl_tok_is_special(tok, as_id(t.id[k])) ? ", special)" : ")");
        }
        vl_buf_ch(out, '\n');
    }
    texts_free(&x);
    tokens_free(&t);
    free(c);
    return 0;
}

/* ---- --rendered ---- */

static void put_ids(struct vl_buf *out, const struct vl_tok *tok, const int64_t *id, int64_t n)
{
    int32_t *as = vl_alloc((size_t)(n ? n : 1) * sizeof *as);

    for (int64_t k = 0; k < n; k++)
        as[k] = as_id(id[k]);
    vl_tok_decode(tok, as, (size_t)n, 0, out);
    free(as);
}

int vl_dump_rendered(struct vl_buf *out, const struct vl_batch *b, int64_t row,
                     const struct vl_tok *tok, struct vl_err *e)
{
    struct tokens t;
    char name[128];

    if (tokens_of(&t, b, row, e))
        return e->code;
    vl_buf_printf(out, "=== %s: prompt, %" PRId64 " tokens\n",
                  vl_batch_row_name(b, row, name, sizeof name), t.nprompt);
    put_ids(out, tok, t.id, t.nprompt);
    vl_buf_ch(out, '\n');
    if (vl_batch_col(b, "responses")) {
        vl_buf_printf(out, "=== response, %" PRId64 " tokens\n", t.n - t.nprompt);
        put_ids(out, tok, t.id + t.nprompt, t.n - t.nprompt);
        vl_buf_ch(out, '\n');
    }
    tokens_free(&t);
    return 0;
}

/* ---- diff --tokens ---- */

enum { AROUND = 4 };

static void put_side(struct vl_buf *out, const struct vl_dump_side *s, const struct tokens *t,
                     int64_t at)
{
    int64_t from = at > AROUND ? at - AROUND : 0, to = at + AROUND + 1;
    struct texts x = { 0 };

    vl_buf_printf(out, "  %s:%s", s->name, from ? " ..." : "");
    if (s->tok)
        texts_of(&x, s->tok, t->id, t->n);
    for (int64_t k = from; k < to && k < t->n; k++) {
        vl_buf_printf(out, k == at ? "  >>" : "  ");
        if (s->tok)
            put_text(out, &x, k);
        vl_buf_printf(out, s->tok ? " %" PRId64 : "%" PRId64, t->id[k]);
    }
    vl_buf_str(out, at >= t->n ? "  >> (end)\n" : to < t->n ? "  ...\n" : "\n");
    texts_free(&x);
}

static int diff_row(struct vl_buf *out, const struct vl_dump_side *a, const struct vl_dump_side *b,
                    int64_t row, int show, struct vl_err *e)
{
    struct tokens s, t = { 0 };
    int64_t k = 0;
    char name[128];
    int differ;

    if (tokens_of(&s, a->b, row, e) || tokens_of(&t, b->b, row, e))
        return -1;
    while (k < s.n && k < t.n && s.id[k] == t.id[k])
        k++;
    differ = k < s.n || k < t.n;
    if (differ && show) {
        vl_buf_printf(
            out, "%s: %" PRId64 " and %" PRId64 " tokens, the first difference at %s%" PRId64 "\n",
            vl_batch_row_name(a->b, row, name, sizeof name), s.n, t.n,
            k < s.nprompt || s.nprompt == s.n ? "p" : "r",
            k < s.nprompt || s.nprompt == s.n ? k : k - s.nprompt);
        put_side(out, a, &s, k);
        put_side(out, b, &t, k);
    }
    tokens_free(&s);
    tokens_free(&t);
    return differ;
}

int vl_dump_token_diff(struct vl_buf *out, const struct vl_dump_side *a,
                       const struct vl_dump_side *b, int64_t most, int64_t *ndiff, struct vl_err *e)
{
    int64_t n = a->b->rows < b->b->rows ? a->b->rows : b->b->rows;
    int64_t more = a->b->rows > b->b->rows ? a->b->rows : b->b->rows;

    *ndiff = more - n;
    for (int64_t i = 0; i < n; i++) {
        int d = diff_row(out, a, b, i, *ndiff - (more - n) < most, e);

        if (d < 0)
            return e->code;
        *ndiff += d;
    }
    if (more > n)
        vl_buf_printf(out, "%" PRId64 " rows are only in %s\n", more - n,
                      a->b->rows > n ? a->name : b->name);
    if (*ndiff)
        vl_buf_printf(out, "%" PRId64 " of %" PRId64 " rows differ\n", *ndiff, more);
    return 0;
}
