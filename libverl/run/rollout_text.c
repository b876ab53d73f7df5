/* rollout_text.c - see rollout_text.h. Of each row only as much text is kept as the longest stop
 * string could still need, so that a token costs the same at any length. */
#include "libverl/run/rollout_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/base/mem.h"

/* ---- stop strings ---- */

struct row {
    struct vl_tok_stream *stream;
    struct vl_buf tail; /* the last bytes, fewer than the longest stop string has */
};

struct vl_stop_text {
    const struct vl_tok *tok;
    const struct vl_strs *stops;
    size_t longest;
    struct row *row; /* (rows) */
    int64_t rows;
};

struct vl_stop_text *vl_stop_text_new(const struct vl_tok *t, const struct vl_strs *stops,
                                      int64_t rows)
{
    struct vl_stop_text *s = vl_alloc(sizeof *s);

    *s = (struct vl_stop_text){ .tok = t, .stops = stops, .rows = rows };
    s->row = vl_alloc((size_t)rows * sizeof *s->row);
    for (size_t i = 0; i < stops->n; i++)
        s->longest = strlen(stops->s[i]) > s->longest ? strlen(stops->s[i]) : s->longest;
    return s;
}

static void row_free(struct row *r)
{
    vl_tok_stream_free(r->stream);
    vl_buf_free(&r->tail);
    *r = (struct row){ 0 };
}

void vl_stop_text_free(struct vl_stop_text *s)
{
    if (!s)
        return;
    for (int64_t i = 0; i < s->rows; i++)
        row_free(&s->row[i]);
    free(s->row);
    free(s);
}

int vl_stop_text_push(struct vl_stop_text *s, int64_t row, int32_t id)
{
    struct row *r = &s->row[row];

    if (!r->stream)
        r->stream = vl_tok_stream_new(s->tok, 0);
    vl_tok_stream_push(r->stream, id, &r->tail);
    for (size_t i = 0; i < s->stops->n; i++) {
        const char *stop = s->stops->s[i];

        if (r->tail.n && memmem(r->tail.s, r->tail.n, stop, strlen(stop))) {
            row_free(r); /* a row that goes on all the same begins anew */
            return 1;
        }
    }
    if (r->tail.n >= s->longest) {
        size_t cut = r->tail.n - (s->longest - 1);

        memmove(r->tail.s, r->tail.s + cut, s->longest - 1);
        r->tail.n = s->longest - 1;
    }
    return 0;
}

/* ---- banned words ---- */

struct words {
    struct vl_ids ids;
    int64_t *at, n; /* (n + 1) */
};

static int add_word(struct words *w, const struct vl_tok *t, const char *text, struct vl_err *e)
{
    size_t before = w->ids.n, len;

    if (vl_tok_encode(t, text, strlen(text), 0, &w->ids, e))
        return e->code;
    len = w->ids.n - before;
    if (!len || (w->n && (int64_t)len == w->at[w->n] - w->at[w->n - 1] &&
                 !memcmp(w->ids.id + before, w->ids.id + before - len, len * sizeof *w->ids.id))) {
        w->ids.n = before; /* the same with and without a blank */
        return 0;
    }
    w->at = vl_realloc(w->at, (size_t)(w->n + 2) * sizeof *w->at);
    w->at[w->n] = (int64_t)before;
    w->at[++w->n] = (int64_t)w->ids.n;
    return 0;
}

int vl_banned_words(struct vl_rules *r, const struct vl_tok *t, const struct vl_strs *words,
                    struct vl_err *e)
{
    struct words w = { 0 };
    struct vl_buf spaced = { 0 };

    for (size_t i = 0; i < words->n && !e->code; i++) {
        const char *s = words->s[i];

        if (!s[strspn(s, " ")]) {
            (void)!vl_fail(e, VL_E_USAGE, "--bad-word '%s': expected a word", s);
            break;
        }
        spaced.n = 0;
        vl_buf_printf(&spaced, " %s", s + strspn(s, " "));
        if (!add_word(&w, t, s, e))
            (void)!add_word(&w, t, spaced.s, e);
    }
    vl_buf_free(&spaced);
    r->word = w.ids.id, r->words = w.at, r->nwords = w.n;
    return e->code;
}

void vl_banned_words_free(struct vl_rules *r)
{
    free((void *)r->word);
    free((void *)r->words);
    r->word = NULL, r->words = NULL, r->nwords = 0;
}

/* ---- biases ---- */

static int by_id(const void *a, const void *b)
{
    int32_t x = ((const struct vl_bias *)a)->id, y = ((const struct vl_bias *)b)->id;

    return (x > y) - (x < y);
}

int vl_logit_biases(struct vl_rules *r, const struct vl_strs *texts, int64_t V, struct vl_err *e)
{
    struct vl_bias *b = vl_alloc((texts->n + 1) * sizeof *b);

    r->bias = b;
    for (size_t i = 0; i < texts->n; i++) {
        const char *s = texts->s[i];
        char *end, *last;
        long long id = strtoll(s, &end, 10);
        double add = *end == '=' ? strtod(end + 1, &last) : 0;

        if (end == s || *end != '=' || last == end + 1 || *last || id < 0 || id >= V ||
            isnan(add) || add > 1e4 || (add < -1e4 && add != -INFINITY))
            return vl_fail(e, VL_E_USAGE,
                           "--logit-bias %s: expected ID=X with a token id in [0, %" PRId64
                           ") and X from -10000 to 10000, or -inf: 13=-2.5",
                           s, V);
        b[r->nbias++] = (struct vl_bias){ (int32_t)id, (float)add };
    }
    qsort(b, (size_t)r->nbias, sizeof *b, by_id);
    return 0;
}
