/* data_check.c - what verl-data --check takes note of, and whether a run would go through.
 *
 * Rows are seen one by one and let go; what is kept of each is its lengths and a hash of its prompt,
 * so a large set needs no more memory than its text. */
#include "libverl/run/data_check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct vl_check *vl_check_new(void)
{
    return vl_alloc(sizeof(struct vl_check));
}

static void kinds_free(struct vl_kinds *k)
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
    free(c->prompts.slot);
    free(c->prompts.hash);
    free(c->names.slot);
    free(c->names.hash);
    free(c);
}

/* ---- taking note ---- */

static void note(struct vl_kind *k, int64_t row, int64_t size)
{
    if (k->n < VL_SHOWN) {
        k->shown[k->n] = row;
        k->size[k->n] = size;
    }
    k->n++;
}

static void note_named(struct vl_kinds *all, const char *name, int64_t row)
{
    size_t i = 0;

    while (i < all->n && strcmp(all->k[i].name, name) != 0)
        i++;
    if (i == all->n) {
        all->k = vl_realloc(all->k, (all->n + 1) * sizeof *all->k);
        all->k[all->n++] = (struct vl_kind){ .name = vl_strdup(name) };
    }
    note(&all->k[i], row, 0);
}

static void add_length(struct vl_lengths *l, size_t n)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 1024;
        l->x = vl_realloc(l->x, (size_t)l->cap * sizeof *l->x);
    }
    l->x[l->n++] = (int64_t)n;
    l->sum += (int64_t)n;
}

static void grow(struct vl_seen *c)
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

/* Whether an earlier row has this too; 64 bits of hash are taken for equality. */
static void note_twice(struct vl_kind *k, struct vl_seen *c, uint64_t x, const struct vl_row *r)
{
    int64_t h;

    if (2 * ++c->n >= c->nslot)
        grow(c);
    for (h = (int64_t)(x & (uint64_t)(c->nslot - 1)); c->slot[h]; h = (h + 1) & (c->nslot - 1))
        if (c->hash[h] == x) {
            note(k, r->index, c->slot[h] - 1);
            return;
        }
    c->slot[h] = r->index + 1;
    c->hash[h] = x;
}

static void note_prompt(struct vl_check *c, const struct vl_row *r)
{
    note_twice(&c->twice, &c->prompts,
               XXH64(r->prompt.id, r->prompt.n * sizeof *r->prompt.id, r->prompt.n), r);
}

/* 7 and "7" are one uid. */
static void note_uid(struct vl_check *c, const struct vl_row *r)
{
    int64_t at = vl_json_get(&r->j, 0, "uid");

    if (vl_json_is(&r->j, at, VL_JSON_STRING) || vl_json_is(&r->j, at, VL_JSON_NUMBER))
        note_twice(&c->uids, &c->names,
                   XXH64(r->j.text + r->j.node[at].at, r->j.node[at].len, r->j.node[at].len), r);
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

void vl_check_where(struct vl_buf *b, const struct vl_row_work *w, int64_t row)
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
    vl_check_where(&where, w, r->index);
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
        note_uid(c, r);
    }
    vl_buf_free(&where);
}

/* ---- whether a run would go through ---- */

static int ascending(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void sort(struct vl_lengths *l)
{
    if (l->n)
        qsort(l->x, (size_t)l->n, sizeof *l->x, ascending);
}

int64_t vl_check_batches(const struct vl_check *c, const struct vl_data_opts *o, int64_t *left)
{
    int keep = strcmp(o->rest, "keep") == 0;

    *left = keep ? 0 : c->usable % o->batch_size;
    return c->usable / o->batch_size + (keep && c->usable % o->batch_size);
}

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
        if (!vl_row_scorer(w, c->source.k[i].name, strlen(c->source.k[i].name)))
            unknown += c->source.k[i].n;
    if (!o->skip_bad && !o->filter_overlong && strcmp(o->truncation, "error") == 0)
        over = c->over.n;
    say(&why, ", ", bad, "bad rows (--skip-bad leaves them out)");
    say(&why, ", ", over, "overlong rows (--truncation filter leaves them out)");
    say(&why, ", ", unknown,
        "rows without a scorer (--no-check-scorer where verl-reward gets one, or none is needed)");
    say(&why, ", ", c->uids.n, "rows with the uid of an earlier one");
    if (!c->usable)
        vl_buf_printf(&why, "%sno usable row", why.n ? ", " : "");
    else if (o->batch_size != VL_NULL_I64 && !vl_check_batches(c, o, &left))
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
        vl_check_json(out, c, w);
    else
        vl_check_text(out, c, w);
    return judge(c, w, e);
}
