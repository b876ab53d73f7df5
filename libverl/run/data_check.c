/* data_check.c - the report of verl-data --check: all that is wrong with a data set at once.
 *
 * Rows are seen one by one and let go; what is kept of each is its lengths and a hash of its prompt,
 * so a large set needs no more memory than its text. */
#include "libverl/run/data_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "libverl/reward/rules.h"

enum { SHOWN = 10, BARS = 12 };

/* Rows that have something in common, and the first of them. */
struct kind {
    char *name;
    int64_t n, shown[SHOWN]; /* rows, by index */
    int64_t size[SHOWN];     /* tokens, or how often */
};

struct kinds {
    struct kind *k;
    size_t n;
};

struct lengths {
    int64_t *x, n, cap, sum;
};

struct vl_check {
    int64_t rows, usable, strings, lists, untrained, truncated, no_truth, special, repeated;
    struct kinds bad, source;
    struct kind over, spells, twice; /* twice.size: the earlier row */
    struct lengths prompt, response;
    int64_t *slot, nslot; /* open hash of prompts: row index + 1 */
    uint64_t *hash;       /* by slot */
};

struct vl_check *vl_check_new(void)
{
    return vl_alloc(sizeof(struct vl_check));
}

static void kinds_free(struct kinds *k)
{
    for (size_t i = 0; i < k->n; i++)
        free(k->k[i].name);
    free(k->k);
}

void vl_check_free(struct vl_check *c)
{
    kinds_free(&c->bad);
    kinds_free(&c->source);
    free(c->prompt.x);
    free(c->response.x);
    free(c->slot);
    free(c->hash);
    free(c);
}

/* ---- taking note ---- */

static void note(struct kind *k, int64_t row, int64_t size)
{
    if (k->n < SHOWN) {
        k->shown[k->n] = row;
        k->size[k->n] = size;
    }
    k->n++;
}

static void note_named(struct kinds *all, const char *name, int64_t row)
{
    size_t i = 0;

    while (i < all->n && strcmp(all->k[i].name, name) != 0)
        i++;
    if (i == all->n) {
        all->k = vl_realloc(all->k, (all->n + 1) * sizeof *all->k);
        all->k[all->n++] = (struct kind){ .name = vl_strdup(name) };
    }
    note(&all->k[i], row, 0);
}

static void add_length(struct lengths *l, size_t n)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 1024;
        l->x = vl_realloc(l->x, (size_t)l->cap * sizeof *l->x);
    }
    l->x[l->n++] = (int64_t)n;
    l->sum += (int64_t)n;
}

static void grow(struct vl_check *c)
{
    int64_t n = c->nslot ? 2 * c->nslot : 1024, *slot = vl_alloc((size_t)n * sizeof *slot);
    uint64_t *hash = vl_alloc((size_t)n * sizeof *hash);

    for (int64_t i = 0; i < c->nslot; i++) {
        int64_t h = (int64_t)(c->hash[i] & (uint64_t)(n - 1));

        if (!c->slot[i])
            continue;
        while (slot[h])
            h = (h + 1) & (n - 1);
        slot[h] = c->slot[i];
        hash[h] = c->hash[i];
    }
    free(c->slot);
    free(c->hash);
    c->slot = slot, c->hash = hash, c->nslot = n;
}

/* A prompt that an earlier row has too; 64 bits of hash are taken for equality. */
static void note_prompt(struct vl_check *c, const struct vl_row *r)
{
    uint64_t x = XXH64(r->prompt.id, r->prompt.n * sizeof *r->prompt.id, r->prompt.n);
    int64_t h;

    if (2 * c->rows >= c->nslot)
        grow(c);
    for (h = (int64_t)(x & (uint64_t)(c->nslot - 1)); c->slot[h]; h = (h + 1) & (c->nslot - 1))
        if (c->hash[h] == x) {
            note(&c->twice, r->index, c->slot[h] - 1);
            return;
        }
    c->slot[h] = r->index + 1;
    c->hash[h] = x;
}

/* The message without "FILE:LINE: " and without the names that differ from row to row. */
static void note_bad(struct vl_check *c, const struct vl_row *r, const struct vl_err *why,
                     const char *where)
{
    const char *s = why->msg, *end;
    char *name;

    if (strncmp(s, where, strlen(where)) == 0)
        s += strlen(where) + 2;
    end = strstr(s, " (the row has: ");
    name = vl_strndup(s, end ? (size_t)(end - s) : strlen(s));
    note_named(&c->bad, name, r->index);
    free(name);
}

static void put_where(struct vl_buf *b, const struct vl_row_work *w, int64_t row)
{
    const struct vl_line *l = &w->lines->line[row];

    vl_buf_printf(b, "%s:%" PRId64, w->lines->path[l->file], l->number);
}

static void note_source(struct vl_check *c, const struct vl_row_work *w, const struct vl_row *r)
{
    char *name = vl_json_name(&r->j, vl_json_get(&r->j, 0, w->o->source_key));
    int64_t truth = vl_json_get(&r->j, vl_json_get(&r->j, 0, "reward_model"), "ground_truth");

    note_named(&c->source, name ? name : "", r->index);
    c->no_truth += truth < 0 || vl_json_is(&r->j, truth, VL_JSON_NULL);
    free(name);
}

void vl_check_row(struct vl_check *c, const struct vl_row_work *w, const struct vl_row *r,
                  enum vl_row_fate fate, const struct vl_err *why)
{
    struct vl_buf where = { 0 };

    c->rows++;
    put_where(&where, w, r->index);
    if (fate == VL_ROW_BAD && !r->over) {
        note_bad(c, r, why, where.s);
    } else {
        if (r->over)
            note(&c->over, r->index, (int64_t)(r->size.prompt + r->size.response));
        c->usable += fate == VL_ROW_KEPT;
        c->truncated += r->truncated;
        c->strings += r->prompt_json && r->prompt_json[0] == '"';
        c->lists += r->prompt_json && r->prompt_json[0] == '[';
        add_length(&c->prompt, r->size.prompt);
        if (w->o->sft || w->o->preference)
            add_length(&c->response, r->size.response);
        if (r->special)
            note(&c->spells, r->index, r->special);
        c->special += r->special;
        c->untrained += vl_row_untrained(w->o, r);
        note_source(c, w, r);
        note_prompt(c, r);
    }
    vl_buf_free(&where);
}

/* ---- the report as text ---- */

static int ascending(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void sort(struct lengths *l)
{
    if (l->n)
        qsort(l->x, (size_t)l->n, sizeof *l->x, ascending);
}

static int64_t percentile(const struct lengths *l, int p)
{
    return l->x[(l->n - 1) * p / 100]; /* sorted */
}

/* The smallest of 1, 2, 5, 10, 20, 50... with which BARS bars reach from 0 to `most`. */
static int64_t bar_width(int64_t most)
{
    int64_t w = 1;

    for (int k = 0; w * BARS <= most; k++)
        w = k % 3 == 1 ? w / 2 * 5 : 2 * w;
    return w;
}

/* "FILE:LINE (SIZE), LINE (SIZE)...": a file's name once. */
static void put_rows(struct vl_buf *b, const struct vl_row_work *w, const struct kind *k, int sizes)
{
    int64_t most = k->n < SHOWN ? k->n : SHOWN;
    int32_t file = -1;

    for (int64_t i = 0; i < most; i++) {
        const struct vl_line *l = &w->lines->line[k->shown[i]];

        vl_buf_str(b, i ? ", " : "");
        if (l->file != file)
            vl_buf_printf(b, "%s:", w->lines->path[l->file]);
        file = l->file;
        vl_buf_printf(b, "%" PRId64, l->number);
        if (sizes)
            vl_buf_printf(b, " (%" PRId64 ")", k->size[i]);
    }
    if (k->n > most)
        vl_buf_printf(b, " and %" PRId64 " more", k->n - most);
    vl_buf_ch(b, '\n');
}

/* Rows by length, in bars of one width from 0 on; returns how many bars there are. */
static int64_t count_bars(const struct lengths *l, int64_t bar[BARS], int64_t *width)
{
    *width = bar_width(l->x[l->n - 1]);
    memset(bar, 0, BARS * sizeof *bar);
    for (int64_t i = 0; i < l->n; i++)
        bar[l->x[i] / *width]++;
    return l->x[l->n - 1] / *width + 1;
}

static void put_lengths(struct vl_buf *b, const char *what, struct lengths *l, int64_t limit)
{
    int64_t width, bars, bar[BARS], most = 1;

    if (!l->n)
        return;
    bars = count_bars(l, bar, &width);
    vl_buf_printf(b,
                  "%-16s tokens: least %" PRId64 ", mean %.1f, median %" PRId64 ", 90%% %" PRId64
                  ", 99%% %" PRId64 ", most %" PRId64,
                  what, l->x[0], (double)l->sum / (double)l->n, percentile(l, 50),
                  percentile(l, 90), percentile(l, 99), l->x[l->n - 1]);
    if (limit != VL_NULL_I64)
        vl_buf_printf(b, "; limit %" PRId64, limit);
    vl_buf_ch(b, '\n');
    for (int64_t i = 0; i < bars; i++)
        most = bar[i] > most ? bar[i] : most;
    for (int64_t i = l->x[0] / width; i < bars; i++) {
        if (width > 1)
            vl_buf_printf(b, "  %6" PRId64 " to %6" PRId64, i * width, (i + 1) * width - 1);
        else
            vl_buf_printf(b, "  %16" PRId64, i);
        vl_buf_printf(b, "  %8" PRId64 "%s", bar[i], bar[i] ? "  " : "");
        for (int64_t k = 0; k < (bar[i] * 40 + most - 1) / most; k++)
            vl_buf_ch(b, '#');
        vl_buf_ch(b, '\n');
    }
}

static void put_sources(struct vl_buf *b, const struct vl_check *c, const struct vl_row_work *w)
{
    for (size_t i = 0; i < c->source.n; i++) {
        const struct kind *k = &c->source.k[i];
        const char *scorer = vl_row_scorer(w, k->name, strlen(k->name));

        vl_buf_printf(b, "%-16s %s: %" PRId64 " rows", i ? "" : w->o->source_key,
                      *k->name ? k->name : "(none)", k->n);
        if (scorer)
            vl_buf_printf(b, ", scorer %s\n", scorer);
        else
            vl_buf_str(b, vl_row_wants_scorer(w->o) && *k->name
                              ? ", no built-in scorer\n"
                              : ", the scorer is verl-reward's affair\n");
    }
}

static void put_problems(struct vl_buf *b, const struct vl_check *c, const struct vl_row_work *w)
{
    int64_t n = 0;

    for (size_t i = 0; i < c->bad.n; i++)
        n += c->bad.k[i].n;
    if (n)
        vl_buf_printf(b, "bad              %" PRId64 " rows\n", n);
    for (size_t i = 0; i < c->bad.n && i < SHOWN; i++) {
        vl_buf_printf(b, "  %" PRId64 " rows: %s\n    ", c->bad.k[i].n, c->bad.k[i].name);
        put_rows(b, w, &c->bad.k[i], 0);
    }
    if (c->bad.n > SHOWN)
        vl_buf_printf(b, "  and %zu other reasons\n", c->bad.n - SHOWN);
    if (c->over.n) {
        vl_buf_printf(b, "overlong         %" PRId64 " rows (--truncation %s): ", c->over.n,
                      w->o->filter_overlong ? "filter" : w->o->truncation);
        put_rows(b, w, &c->over, 1);
    }
    if (c->spells.n) {
        vl_buf_printf(b,
                      "special tokens   spelled %" PRId64 " times in the content of %" PRId64
                      " rows, they become %s: ",
                      c->special, c->spells.n,
                      w->o->plain_special ? "ordinary text"
                                          : "those tokens (--plain-special: text)");
        put_rows(b, w, &c->spells, 1);
    }
}

/* Batches of an epoch, and the rows left over. */
static int64_t batches(const struct vl_check *c, const struct vl_data_opts *o, int64_t *left)
{
    int keep = strcmp(o->rest, "keep") == 0;

    *left = keep ? 0 : c->usable % o->batch_size;
    return c->usable / o->batch_size + (keep && c->usable % o->batch_size);
}

static void put_text(struct vl_buf *b, struct vl_check *c, const struct vl_row_work *w)
{
    const struct vl_data_opts *o = w->o;
    int64_t left, n;

    vl_buf_printf(b, "rows             %" PRId64 " in %zu file%s, %" PRId64 " usable\n", c->rows,
                  w->lines->nfile, w->lines->nfile == 1 ? "" : "s", c->usable);
    if (o->batch_size != VL_NULL_I64) {
        n = batches(c, o, &left);
        vl_buf_printf(b,
                      "epoch            %" PRId64 " batches of %" PRId64 " %s, %" PRId64
                      " rows left over\n",
                      n, o->batch_size, o->preference ? "pairs" : "rows", left);
    }
    if (!o->sft && !o->preference)
        put_sources(b, c, w);
    if (c->no_truth && !o->sft && !o->preference)
        vl_buf_printf(b, "ground truth     missing in %" PRId64 " rows\n", c->no_truth);
    vl_buf_printf(b,
                  "prompts          %" PRId64 " strings, %" PRId64
                  " lists of messages; chat template: %s\n",
                  c->strings, c->lists, w->templated ? w->tmpl_name : "none");
    put_lengths(b, "prompt", &c->prompt, o->max_prompt);
    put_lengths(b, o->preference ? "longer response" : "response", &c->response, o->max_response);
    put_problems(b, c, w);
    if (c->truncated)
        vl_buf_printf(b, "truncated        %" PRId64 " rows\n", c->truncated);
    if (w->double_bos)
        vl_buf_printf(b, "begin token      more than one in %" PRId64 " rows\n", w->double_bos);
    if (w->no_bos)
        vl_buf_printf(b,
                      "begin token      none in %" PRId64
                      " rows: the tokenizer would add one, the template does not\n",
                      w->no_bos);
    if (c->untrained)
        vl_buf_printf(b, "no loss          %" PRId64 " rows have no token to train on\n",
                      c->untrained);
    if (c->twice.n) {
        vl_buf_printf(
            b, "repeated         %" PRId64 " rows have the prompt of an earlier one: ", c->twice.n);
        put_rows(b, w, &c->twice, 0);
    }
}

/* ---- the report as JSON ---- */

static void name_is(struct vl_buf *b, const char *name)
{
    vl_buf_printf(b, "%s\"%s\":", b->n > 1 && b->s[b->n - 1] != '{' ? "," : "", name);
}

static void put_count(struct vl_buf *b, const char *name, int64_t n)
{
    name_is(b, name);
    vl_json_put_i64(b, n);
}

/* "rows": n, "first": ["FILE:LINE", ...]} */
static void put_members(struct vl_buf *b, const struct vl_row_work *w, const struct kind *k)
{
    put_count(b, "rows", k->n);
    name_is(b, "first");
    vl_buf_ch(b, '[');
    for (int64_t i = 0; i < k->n && i < SHOWN; i++) {
        struct vl_buf where = { 0 };

        vl_buf_str(b, i ? "," : "");
        put_where(&where, w, k->shown[i]);
        (void)vl_json_put_str(b, where.s, where.n);
        vl_buf_free(&where);
    }
    vl_buf_str(b, "]}");
}

static void put_kind(struct vl_buf *b, const struct vl_row_work *w, const char *name,
                     const struct kind *k)
{
    name_is(b, name);
    vl_buf_ch(b, '{');
    put_members(b, w, k);
}

static void put_lengths_json(struct vl_buf *b, const char *name, const struct lengths *l)
{
    static const int p[] = { 0, 50, 90, 99, 100 };
    static const char *const as[] = { "min", "p50", "p90", "p99", "max" };
    int64_t width, bars, bar[BARS];

    if (!l->n)
        return;
    name_is(b, name);
    vl_buf_ch(b, '{');
    for (int i = 0; i < 5; i++)
        put_count(b, as[i], percentile(l, p[i]));
    name_is(b, "mean");
    vl_json_put_f64(b, (double)l->sum / (double)l->n);
    bars = count_bars(l, bar, &width);
    put_count(b, "bar_width", width);
    name_is(b, "bars");
    for (int64_t i = 0; i < bars; i++)
        vl_buf_printf(b, "%c%" PRId64, i ? ',' : '[', bar[i]);
    vl_buf_str(b, "]}");
}

static void put_json(struct vl_buf *b, const struct vl_check *c, const struct vl_row_work *w)
{
    int64_t left;

    vl_buf_ch(b, '{');
    put_count(b, "rows", c->rows);
    put_count(b, "usable", c->usable);
    if (w->o->batch_size != VL_NULL_I64) {
        put_count(b, "batches", batches(c, w->o, &left));
        put_count(b, "left_over", left);
    }
    name_is(b, "data_source");
    vl_buf_ch(b, '{');
    for (size_t i = 0; i < c->source.n; i++) {
        const struct kind *k = &c->source.k[i];
        const char *scorer = vl_row_scorer(w, k->name, strlen(k->name));

        vl_buf_str(b, i ? "," : "");
        (void)vl_json_put_str(b, k->name, strlen(k->name));
        vl_buf_printf(b, ":{\"rows\":%" PRId64 ",\"scorer\":", k->n);
        vl_buf_printf(b, scorer ? "\"%s\"}" : "null}", scorer);
    }
    vl_buf_ch(b, '}');
    put_count(b, "no_ground_truth", c->no_truth);
    put_count(b, "strings", c->strings);
    put_count(b, "messages", c->lists);
    put_lengths_json(b, "prompt_tokens", &c->prompt);
    put_lengths_json(b, "response_tokens", &c->response);
    name_is(b, "bad");
    vl_buf_ch(b, '[');
    for (size_t i = 0; i < c->bad.n; i++) {
        vl_buf_str(b, i ? ",{" : "{");
        name_is(b, "reason");
        (void)vl_json_put_str(b, c->bad.k[i].name, strlen(c->bad.k[i].name));
        put_members(b, w, &c->bad.k[i]);
    }
    vl_buf_ch(b, ']');
    put_kind(b, w, "overlong", &c->over);
    put_count(b, "truncated", c->truncated);
    put_kind(b, w, "special_tokens", &c->spells);
    put_count(b, "double_begin_token", w->double_bos);
    put_count(b, "no_begin_token", w->no_bos);
    put_count(b, "untrained", c->untrained);
    put_kind(b, w, "repeated_prompts", &c->twice);
    vl_buf_str(b, "}\n");
}

/* ---- whether a run would go through ---- */

static void say(struct vl_buf *b, const char *sep, int64_t n, const char *what)
{
    if (n)
        vl_buf_printf(b, "%s%" PRId64 " %s", b->n ? sep : "", n, what);
}

static int judge(const struct vl_check *c, const struct vl_row_work *w, struct vl_err *e)
{
    const struct vl_data_opts *o = w->o;
    int64_t bad = 0, unknown = 0, over = 0, left;
    struct vl_buf why = { 0 };

    for (size_t i = 0; i < c->bad.n && !o->skip_bad; i++)
        bad += c->bad.k[i].n;
    for (size_t i = 0; i < c->source.n && vl_row_wants_scorer(o); i++)
        if (*c->source.k[i].name &&
            !vl_row_scorer(w, c->source.k[i].name, strlen(c->source.k[i].name)))
            unknown += c->source.k[i].n;
    if (!o->skip_bad && !o->filter_overlong && strcmp(o->truncation, "error") == 0)
        over = c->over.n;
    say(&why, ", ", bad, "bad rows (--skip-bad leaves them out)");
    say(&why, ", ", over, "overlong rows (--truncation filter leaves them out)");
    say(&why, ", ", unknown,
        "rows without a scorer (--no-check-scorer where verl-reward gets one)");
    if (!c->usable)
        vl_buf_printf(&why, "%sno usable row", why.n ? ", " : "");
    else if (o->batch_size != VL_NULL_I64 && !batches(c, o, &left))
        vl_buf_printf(&why, "%stoo few rows for a batch", why.n ? ", " : "");
    if (why.n)
        vl_fail(e, VL_E_DATA, "these rows will not do: %s", why.s);
    vl_buf_free(&why);
    return e->code;
}

int vl_check_report(struct vl_check *c, const struct vl_row_work *w, int json, struct vl_buf *out,
                    struct vl_err *e)
{
    sort(&c->prompt);
    sort(&c->response);
    if (json)
        put_json(out, c, w);
    else
        put_text(out, c, w);
    return judge(c, w, e);
}
