/* data_report.c - the report of verl-data --check, as text and as JSON. */
#include "libverl/run/data_check.h"

#include <inttypes.h>
#include <string.h>

enum { BARS = 12 };

/* ---- text ---- */

static int64_t percentile(const struct vl_lengths *l, int p)
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
static void put_rows(struct vl_buf *b, const struct vl_row_work *w, const struct vl_kind *k,
                     int sizes)
{
    int64_t most = k->n < VL_SHOWN ? k->n : VL_SHOWN;
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
static int64_t count_bars(const struct vl_lengths *l, int64_t bar[BARS], int64_t *width)
{
    *width = bar_width(l->x[l->n - 1]);
    memset(bar, 0, BARS * sizeof *bar);
    for (int64_t i = 0; i < l->n; i++)
        bar[l->x[i] / *width]++;
    return l->x[l->n - 1] / *width + 1;
}

static void put_lengths(struct vl_buf *b, const char *what, const struct vl_lengths *l,
                        int64_t limit)
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
        const struct vl_kind *k = &c->source.k[i];
        const char *scorer = vl_row_scorer(w, k->name, strlen(k->name));

        vl_buf_printf(b, "%-16s %s: %" PRId64 " rows", i ? "" : w->o->source_key,
                      *k->name ? k->name : "(none)", k->n);
        if (scorer)
            vl_buf_printf(b, ", scorer %s\n", scorer);
        else
            vl_buf_str(b, vl_row_wants_scorer(w->o) ? ", no built-in scorer\n"
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
    for (size_t i = 0; i < c->bad.n && i < VL_SHOWN; i++) {
        vl_buf_printf(b, "  %" PRId64 " rows: %s\n    ", c->bad.k[i].n, c->bad.k[i].name);
        put_rows(b, w, &c->bad.k[i], 0);
    }
    if (c->bad.n > VL_SHOWN)
        vl_buf_printf(b, "  and %zu other reasons\n", c->bad.n - VL_SHOWN);
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

void vl_check_text(struct vl_buf *b, const struct vl_check *c, const struct vl_row_work *w)
{
    const struct vl_data_opts *o = w->o;
    int64_t left, n;

    vl_buf_printf(b, "rows             %" PRId64 " in %zu file%s, %" PRId64 " usable\n", c->rows,
                  w->lines->nfile, w->lines->nfile == 1 ? "" : "s", c->usable);
    if (o->batch_size != VL_NULL_I64) {
        n = vl_check_batches(c, o, &left);
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
    if (w->media)
        vl_buf_printf(b,
                      "media            %" PRId64
                      " rows have images, videos or audio: only their text is read\n",
                      w->media);
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
    if (c->uids.n) {
        vl_buf_printf(
            b, "same uid         %" PRId64 " rows have the uid of an earlier one: ", c->uids.n);
        for (int64_t i = 0; i < c->uids.n && i < VL_SHOWN; i++) {
            vl_buf_str(b, i ? ", " : "");
            vl_check_where(b, w, c->uids.shown[i]);
            vl_buf_str(b, " (as ");
            vl_check_where(b, w, c->uids.size[i]);
            vl_buf_ch(b, ')');
        }
        if (c->uids.n > VL_SHOWN)
            vl_buf_printf(b, " and %" PRId64 " more", c->uids.n - VL_SHOWN);
        vl_buf_ch(b, '\n');
    }
    if (c->twice.n) {
        vl_buf_printf(
            b, "repeated         %" PRId64 " rows have the prompt of an earlier one: ", c->twice.n);
        put_rows(b, w, &c->twice, 0);
    }
}

/* ---- JSON ---- */

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
static void put_members(struct vl_buf *b, const struct vl_row_work *w, const struct vl_kind *k)
{
    put_count(b, "rows", k->n);
    name_is(b, "first");
    vl_buf_ch(b, '[');
    for (int64_t i = 0; i < k->n && i < VL_SHOWN; i++) {
        struct vl_buf where = { 0 };

        vl_buf_str(b, i ? "," : "");
        vl_check_where(&where, w, k->shown[i]);
        (void)vl_json_put_str(b, where.s, where.n);
        vl_buf_free(&where);
    }
    vl_buf_str(b, "]}");
}

static void put_kind(struct vl_buf *b, const struct vl_row_work *w, const char *name,
                     const struct vl_kind *k)
{
    name_is(b, name);
    vl_buf_ch(b, '{');
    put_members(b, w, k);
}

static void put_lengths_json(struct vl_buf *b, const char *name, const struct vl_lengths *l)
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

void vl_check_json(struct vl_buf *b, const struct vl_check *c, const struct vl_row_work *w)
{
    int64_t left;

    vl_buf_ch(b, '{');
    put_count(b, "rows", c->rows);
    put_count(b, "usable", c->usable);
    if (w->o->batch_size != VL_NULL_I64) {
        put_count(b, "batches", vl_check_batches(c, w->o, &left));
        put_count(b, "left_over", left);
    }
    name_is(b, "data_source");
    vl_buf_ch(b, '{');
    for (size_t i = 0; i < c->source.n; i++) {
        const struct vl_kind *k = &c->source.k[i];
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
    put_count(b, "media", w->media);
    put_count(b, "double_begin_token", w->double_bos);
    put_count(b, "no_begin_token", w->no_bos);
    put_count(b, "untrained", c->untrained);
    put_kind(b, w, "repeated_prompts", &c->twice);
    put_kind(b, w, "repeated_uids", &c->uids);
    vl_buf_str(b, "}\n");
}
