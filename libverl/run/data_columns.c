/* data_columns.c - rows to the columns of a prompt batch, or of a batch to train on (--sft).
 *
 * Masks come from lengths, never from ids. Every member of a row that is not used up here becomes a
 * JSON column of its name, as in verl. */
#include "libverl/run/data_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/fields.h"

/* Batch rows that a row becomes: a preference pair has two, adjacent and never apart. */
static int64_t samples(const struct vl_data_opts *o)
{
    return o->preference ? 2 : 1;
}

struct widths {
    int64_t P, R;
};

static int64_t larger(int64_t a, size_t b)
{
    return (int64_t)b > a ? (int64_t)b : a;
}

static struct widths find_widths(const struct vl_data_opts *o, struct vl_row *const *row, int64_t n)
{
    struct widths w = { 1, 1 };

    for (int64_t i = 0; i < n; i++) {
        w.P = larger(w.P, row[i]->prompt.n);
        w.R = larger(larger(w.R, row[i]->reply[0].ids.n), row[i]->reply[1].ids.n);
    }
    if (o->max_prompt != VL_NULL_I64)
        w.P = o->max_prompt; /* fixed, as verl pads */
    if (o->max_response != VL_NULL_I64)
        w.R = o->max_response;
    if (!o->sft && !o->preference)
        w.R = 0;
    return w;
}

static int64_t *tensor(struct vl_batch *b, const char *name, int64_t width, struct vl_err *e)
{
    struct vl_col *c;

    if (e->code || vl_batch_add_tensor(b, name, VL_I64, width ? 1 : 0, &width, &c, e))
        return NULL;
    return c->data;
}

/* The columns' data; responses and what follows are NULL in a batch of prompts. */
struct tokens {
    struct widths d;
    int64_t pad, *prompts, *ids, *mask, *pos, *responses, *rmask;
};

/* Batch row i, of width P + R. */
static void put_tokens(const struct tokens *c, int64_t i, const struct vl_ids *p,
                       const struct vl_reply *a)
{
    int64_t P = c->d.P, R = c->d.R, S = P + R, valid = 0;
    int64_t first = P - (int64_t)p->n, end = P + (int64_t)a->ids.n;

    for (int64_t t = 0; t < S; t++) {
        int64_t in = t >= first && t < end;
        int64_t id = !in ? c->pad : t < P ? p->id[t - first] : a->ids.id[t - P];

        valid += in;
        c->ids[i * S + t] = id;
        c->mask[i * S + t] = in;
        c->pos[i * S + t] = valid ? valid - 1 : 0;
        if (t < P) {
            c->prompts[i * P + t] = id;
        } else {
            c->responses[i * R + t - P] = id;
            c->rmask[i * R + t - P] = in && (!a->mask || a->mask[t - P]);
        }
    }
}

static int tensors(struct vl_batch *b, const struct vl_row_work *w, struct vl_row *const *row,
                   int64_t n, struct vl_err *e)
{
    struct tokens c = { .d = find_widths(w->o, row, n) };
    int64_t S = c.d.P + c.d.R, k = samples(w->o), *sample, *preference = NULL;

    c.pad = vl_tok_pad(w->tok) < 0 ? 0 : vl_tok_pad(w->tok);
    c.prompts = tensor(b, "prompts", c.d.P, e);
    c.ids = tensor(b, "input_ids", S, e);
    c.mask = tensor(b, "attention_mask", S, e);
    c.pos = tensor(b, "position_ids", S, e);
    if (c.d.R) {
        c.responses = tensor(b, "responses", c.d.R, e);
        c.rmask = tensor(b, "response_mask", c.d.R, e);
    }
    sample = tensor(b, "sample", 0, e);
    if (w->o->preference)
        preference = tensor(b, "preference", 0, e);
    for (int64_t i = 0; i < n * k && !e->code; i++) {
        const struct vl_row *r = row[i / k];

        put_tokens(&c, i, &r->prompt, &r->reply[i % k]);
        sample[i] = i % k;
        if (preference)
            preference[i] = 1 - i % k;
    }
    return e->code;
}

/* ---- JSON columns ---- */

/* One JSON column while it is put together. */
struct texts {
    struct vl_buf text;
    int64_t *at, n;
};

static void next_row(struct texts *t)
{
    t->at[++t->n] = (int64_t)t->text.n;
}

static struct texts start(int64_t rows)
{
    return (struct texts){ .at = vl_alloc((size_t)(rows + 1) * sizeof(int64_t)) };
}

/* Each row's text as often as the row is in the batch. */
static void spread(struct texts *t, int64_t k)
{
    struct texts all = start(t->n * k);

    for (int64_t i = 0; i < t->n * k; i++) {
        vl_buf_add(&all.text, t->text.s + t->at[i / k], (size_t)(t->at[i / k + 1] - t->at[i / k]));
        next_row(&all);
    }
    vl_buf_free(&t->text);
    free(t->at);
    *t = all;
}

static void finish(struct vl_batch *b, const char *name, struct texts *t)
{
    if (t->n < b->rows)
        spread(t, b->rows / t->n);
    vl_batch_add_json(b, name, vl_buf_detach(&t->text), t->at);
}

static void put_uid(struct texts *t, const struct vl_row *r, int64_t epoch)
{
    int64_t at = vl_json_get(&r->j, 0, "uid");

    if (vl_json_is(&r->j, at, VL_JSON_STRING)) {
        vl_json_raw(&r->j, at, &t->text);
    } else if (vl_json_is(&r->j, at, VL_JSON_NUMBER)) {
        vl_buf_ch(&t->text, '"');
        vl_json_raw(&r->j, at, &t->text);
        vl_buf_ch(&t->text, '"');
    } else {
        vl_buf_printf(&t->text, "\"%" PRId64 "-%" PRId64 "\"", epoch, r->index);
    }
    next_row(t);
}

/* extra_info.index, as verl has it, else the row's position in the files. */
static void put_index(struct texts *t, const struct vl_row *r)
{
    int64_t at = vl_json_get(&r->j, vl_json_get(&r->j, 0, "extra_info"), "index");

    if (at >= 0)
        vl_json_raw(&r->j, at, &t->text);
    else
        vl_buf_printf(&t->text, "%" PRId64, r->index);
    next_row(t);
}

/* The object, with a ground truth that is a number or a boolean as a string of the same digits. */
static void put_reward_model(struct vl_buf *b, const struct vl_json *j, int64_t at)
{
    int64_t truth = vl_json_get(j, at, "ground_truth");
    const struct vl_json_node *o = &j->node[at], *t = truth < 0 ? NULL : &j->node[truth];

    if (!t || (t->type != VL_JSON_NUMBER && t->type != VL_JSON_TRUE && t->type != VL_JSON_FALSE)) {
        vl_json_raw(j, at, b);
        return;
    }
    vl_buf_add(b, j->text + o->at, t->at - o->at);
    vl_buf_ch(b, '"');
    vl_buf_add(b, j->text + t->at, t->len);
    vl_buf_ch(b, '"');
    vl_buf_add(b, j->text + t->at + t->len, o->at + o->len - t->at - t->len);
}

/* extra_info's member NAME in each row, {} where it has none; no column when no row has it. */
static void from_extra_info(struct vl_batch *b, const char *name, struct vl_row *const *row,
                            int64_t n)
{
    struct texts t = start(n);
    int any = 0;

    for (int64_t i = 0; i < n; i++) {
        const struct vl_json *j = &row[i]->j;
        int64_t at = vl_json_get(j, vl_json_get(j, 0, "extra_info"), name);

        any |= at >= 0;
        if (at >= 0)
            vl_json_raw(j, at, &t.text);
        else
            vl_buf_str(&t.text, "{}");
        next_row(&t);
    }
    if (any) {
        finish(b, name, &t);
    } else {
        vl_buf_free(&t.text);
        free(t.at);
    }
}

static void put_member(struct texts *t, const struct vl_row *r, const char *name)
{
    int64_t at = vl_json_get(&r->j, 0, name);

    if (at < 0 || vl_json_is(&r->j, at, VL_JSON_NULL))
        vl_buf_str(&t->text, strcmp(name, "extra_info") == 0 ? "{}" : "null");
    else if (strcmp(name, "reward_model") == 0)
        put_reward_model(&t->text, &r->j, at);
    else
        vl_json_raw(&r->j, at, &t->text);
    next_row(t);
}

/* The names of all members that become columns of their own, in order of appearance. */
struct names {
    char **s;
    size_t n;
};

static int known(const struct names *x, const char *name)
{
    for (size_t i = 0; i < x->n; i++)
        if (strcmp(x->s[i], name) == 0)
            return 1;
    return 0;
}

static int used_up(const struct vl_data_opts *o, const char *name)
{
    if (o->sft && (strcmp(name, o->response_key) == 0 || strcmp(name, o->messages_key) == 0))
        return 1;
    if (o->preference && (strcmp(name, "chosen") == 0 || strcmp(name, "rejected") == 0))
        return 1;
    return strcmp(name, o->prompt_key) == 0 || strcmp(name, "uid") == 0 ||
           strcmp(name, "index") == 0;
}

static int at_row(const struct vl_row_work *w, const struct vl_row *r, struct vl_err *e)
{
    const struct vl_line *line = &w->lines->line[r->index];

    return vl_err_prefix(e, "%s:%" PRId64, w->lines->path[line->file], line->number);
}

static int collect(struct names *x, const struct vl_row_work *w, struct vl_row *const *row,
                   int64_t n, struct vl_err *e)
{
    for (int64_t i = 0; i < n && !e->code; i++) {
        const struct vl_json *j = &row[i]->j;
        uint32_t k, c;

        for (k = 0, c = 1; k < j->node[0].count; k++, c = j->node[c + 1].next) {
            char *name = vl_json_name(j, c);
            const struct vl_field *f = vl_field_find(name);

            if (used_up(w->o, name) || known(x, name)) {
                free(name);
                continue;
            }
            if (!vl_col_name_ok(name))
                vl_fail(e, VL_E_DATA,
                        "a member is called \"%.80s\", but no column can be called so: rename or "
                        "delete it with --map",
                        name);
            else if ((f && !f->json) || strcmp(name, "raw_prompt") == 0)
                vl_fail(
                    e, VL_E_DATA,
                    "a member is called \"%.80s\", which is a column of the batch: rename it, for "
                    "example with --map '.x = .[\"%.80s\"] | del(.[\"%.80s\"])'",
                    name, name, name);
            if (e->code)
                at_row(w, row[i], e);
            x->s = vl_realloc(x->s, (x->n + 1) * sizeof *x->s);
            x->s[x->n++] = name;
        }
    }
    if (!e->code && !known(x, "extra_info")) {
        x->s = vl_realloc(x->s, (x->n + 1) * sizeof *x->s);
        x->s[x->n++] = vl_strdup("extra_info");
    }
    return e->code;
}

static int json_columns(struct vl_batch *b, const struct vl_row_work *w, struct vl_row *const *row,
                        int64_t n, int64_t epoch, struct vl_err *e)
{
    struct texts uid = start(n), prompt = start(n), index = start(n);
    struct names names = { 0 };

    for (int64_t i = 0; i < n; i++) {
        put_uid(&uid, row[i], epoch);
        vl_buf_str(&prompt.text, row[i]->prompt_json);
        next_row(&prompt);
        put_index(&index, row[i]);
    }
    finish(b, "uid", &uid);
    finish(b, "raw_prompt", &prompt);
    if (collect(&names, w, row, n, e) == 0)
        for (size_t k = 0; k < names.n; k++) {
            struct texts t = start(n);

            for (int64_t i = 0; i < n; i++)
                put_member(&t, row[i], names.s[k]);
            finish(b, names.s[k], &t);
        }
    finish(b, "index", &index);
    if (!e->code && !known(&names, "tools_kwargs"))
        from_extra_info(b, "tools_kwargs", row, n);
    if (!e->code && !known(&names, "interaction_kwargs"))
        from_extra_info(b, "interaction_kwargs", row, n);
    for (size_t k = 0; k < names.n; k++)
        free(names.s[k]);
    free(names.s);
    return e->code;
}

/* A uid that stands for two rows would merge two groups. */
static int check_uids(const struct vl_batch *b, const struct vl_row_work *w,
                      struct vl_row *const *row, struct vl_err *e)
{
    const struct vl_col *c = vl_batch_col(b, "uid");
    int64_t size = 16, *slot, per = samples(w->o);

    while (size < 2 * b->rows)
        size *= 2;
    slot = vl_alloc((size_t)size * sizeof *slot);
    for (int64_t i = 0; i < b->rows && !e->code; i += per) {
        size_t n, m;
        const char *s = vl_col_json(c, i, &n), *other;
        uint64_t h = 1469598103934665603u;

        for (size_t k = 0; k < n; k++)
            h = (h ^ (unsigned char)s[k]) * 1099511628211u;
        for (h &= (uint64_t)size - 1; slot[h]; h = (h + 1) & ((uint64_t)size - 1)) {
            other = vl_col_json(c, slot[h] - 1, &m);
            if (m == n && memcmp(other, s, n) == 0 && !e->code) {
                const struct vl_line *first = &w->lines->line[row[(slot[h] - 1) / per]->index];

                vl_fail(e, VL_E_DATA, "the same uid %.*s as %s:%" PRId64 ": give each row its own",
                        (int)(n < 100 ? n : 100), s, w->lines->path[first->file], first->number);
                at_row(w, row[i / per], e);
            }
        }
        slot[h] = i + 1;
    }
    free(slot);
    return e->code;
}

static void meta(struct vl_batch *b, const struct vl_row_work *w, const struct vl_data_meta *m,
                 int64_t n)
{
    const struct vl_data_opts *o = w->o;
    struct vl_buf counts = { 0 };

    vl_meta_set_i64(b, "seed", m->seed);
    vl_meta_set_i64(b, "global_steps", m->step);
    vl_meta_set_i64(b, "epoch", m->epoch);
    vl_meta_set_i64(b, "gen_batch", m->batch);
    vl_meta_set_str(b, "tokenizer_hash", vl_tok_hash(w->tok));
    vl_meta_set_str(b, "chat_template", w->templated ? w->tmpl_name : "none");
    vl_meta_set_i64(b, "pad_token_id", vl_tok_pad(w->tok) < 0 ? 0 : vl_tok_pad(w->tok));
    if (vl_tok_eos(w->tok) >= 0)
        vl_meta_set_i64(b, "eos_token_id", vl_tok_eos(w->tok));
    if (o->validate)
        vl_meta_set(b, "validate", "true");
    vl_buf_printf(&counts,
                  "{\"rows\": %" PRId64 ", \"of\": %" PRId64 ", \"truncated\": %" PRId64
                  ", \"filtered\": %" PRId64 ", \"bad\": %" PRId64 ", \"left_over\": %" PRId64 "}",
                  n, m->rows_seen, m->truncated, m->overlong, m->bad, m->left_over);
    vl_meta_set(b, "data_counts", counts.s);
    vl_buf_free(&counts);
}

int vl_data_columns(struct vl_batch *b, const struct vl_row_work *w, struct vl_row *const *row,
                    int64_t n, const struct vl_data_meta *m, struct vl_err *e)
{
    b->has_batch = 1;
    b->rows = n * samples(w->o);
    if (tensors(b, w, row, n, e) || json_columns(b, w, row, n, m->epoch, e) ||
        check_uids(b, w, row, e))
        return e->code;
    meta(b, w, m, n);
    return 0;
}
