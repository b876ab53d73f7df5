/* reward_model.c - scores of a reward model. See reward_model.h.
 *
 * Each rank makes the model's input of its range of rows; then all ranks get all inputs, since the
 * forward pass divides rows anew, by the length of what the model reads. */
#include "libverl/run/reward_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xxhash.h>

#include "formats/json.h"
#include "libverl/base/fs.h"
#include "libverl/run/weights.h"
#include "libverl/text/chat.h"

struct maker {
    struct vl_ctx *x;
    const struct vl_rm_opts *o;
    const struct vl_reward_rows *rows;
    struct vl_tok *tok; /* the reward model's */
    struct vl_chat *chat;
    int64_t V, limit;
    int64_t spelled, cut; /* rows with spelled special tokens; shortened rows */
    char *tmpl;
};

void vl_rm_free(struct vl_rm *m)
{
    for (int64_t i = 0; m->why && i < m->rows; i++)
        free(m->why[i]);
    free(m->why);
    free(m->score);
    *m = (struct vl_rm){ 0 };
}

int vl_rm_wanted(const struct vl_rm_opts *o)
{
    return o->dir != NULL || o->enable;
}

int vl_rm_check(const struct vl_rm_opts *o, struct vl_err *e)
{
    if (vl_rm_wanted(o) && !o->dir && !(o->path && *o->path))
        return vl_fail(e, VL_E_USAGE,
                       "reward_model.enable=true and no model: give reward_model.model.path=DIR or "
                       "--reward-model DIR (a generative model: --judge URL)");
    if (vl_rm_wanted(o) && !o->input && (o->tmpl || o->plain_special))
        return vl_fail(e, VL_E_USAGE,
                       "%s has no effect with reward_model.model.input_tokenizer=null, which gives "
                       "the model the policy's ids as they are",
                       o->tmpl ? "--rm-template" : "--rm-plain-special");
    return 0;
}

/* Provenance records no paths: the template by its hash, the tokenizer by what it stands for. */
static void record(struct maker *w)
{
    char hash[40];

    if (w->tmpl) {
        snprintf(hash, sizeof hash, "\"xxh3 %016" PRIx64 "\"",
                 (uint64_t)XXH3_64bits(w->tmpl, strlen(w->tmpl)));
        vl_parsed_effective(w->x->parsed, &w->o->tmpl, hash);
    }
    if (w->o->input && *w->o->input)
        vl_parsed_effective(w->x->parsed, &w->o->input, "\"\"");
}

/* ---- a row's input ---- */

static int open_maker(struct maker *w, const struct vl_model *model, struct vl_err *e)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    struct vl_buf text = { 0 };

    if (!w->rows->raw_prompt)
        return vl_fail(e, VL_E_DATA,
                       "the batch has no raw_prompt, of which the reward model's input is made: "
                       "make prompts by verl-data, or give "
                       "reward_model.model.input_tokenizer=null to score the ids as they are");
    if (vl_tok_open(&w->tok, model->dir, e))
        return e->code;
    if (w->o->tmpl) {
        if (vl_fs_read(w->o->tmpl, (size_t)16 << 20, &text, e))
            return e->code;
        w->tmpl = vl_buf_detach(&text);
    } else if (!vl_tok_template(w->tok)) {
        return vl_fail(e, VL_E_DATA,
                       "%s: the reward model's tokenizer has no chat template: give one with "
                       "--rm-template FILE, or reward_model.model.input_tokenizer=null to score "
                       "the ids as they are",
                       model->dir);
    }
    if (vl_chat_open(&w->chat, w->tok, w->tmpl, w->o->tmpl ? w->o->tmpl : "chat template", NULL, e))
        return e->code;
    if (!(epoch && *epoch))
        vl_chat_set_now(w->chat, (int64_t)time(NULL), 0);
    return 0;
}

static void close_maker(struct maker *w)
{
    vl_chat_free(w->chat);
    vl_tok_free(w->tok);
    free(w->tmpl);
}

/* The response's text; with special tokens kept, all but the end token, as verl does it. */
static void response_text(const struct maker *w, int64_t i, struct vl_buf *out)
{
    const struct vl_reward_rows *r = w->rows;
    int32_t *ids = vl_alloc((size_t)r->R * sizeof *ids), eos = vl_tok_eos(r->tok);
    int64_t n = vl_reward_ids(r, i, ids), kept = 0;

    for (int64_t k = 0; k < n; k++)
        if (!r->keep_special || ids[k] != eos)
            ids[kept++] = ids[k];
    vl_tok_decode(r->tok, ids, (size_t)kept, !r->keep_special, out);
    free(ids);
}

/* raw_prompt and {"role": "assistant", "content": TEXT}; a prompt that is a string was the user's. */
static int put_messages(const char *prompt, size_t n, const struct vl_buf *text, struct vl_buf *out,
                        struct vl_err *e)
{
    struct vl_json j = { 0 };

    if (vl_json_parse(&j, prompt, n, "raw_prompt", e))
        ;
    else if (!vl_json_is(&j, 0, VL_JSON_ARRAY) && !vl_json_is(&j, 0, VL_JSON_STRING))
        vl_fail(e, VL_E_DATA, "raw_prompt is neither a list of messages nor a string");
    else {
        int text_prompt = vl_json_is(&j, 0, VL_JSON_STRING);
        size_t end = n;

        if (text_prompt) {
            vl_buf_str(out, "[{\"role\":\"user\",\"content\":");
            vl_json_raw(&j, 0, out);
            vl_buf_ch(out, '}');
        } else {
            while (prompt[--end] != ']')
                ;
            vl_buf_add(out, prompt, end);
        }
        vl_buf_printf(out, "%s{\"role\":\"assistant\",\"content\":",
                      text_prompt || j.node[0].count ? "," : "");
        vl_json_put_str(out, text->n ? text->s : "", text->n);
        vl_buf_str(out, "}]");
    }
    vl_json_free(&j);
    return e->code;
}

static int make_ids(struct maker *w, int64_t i, struct vl_ids *ids, struct vl_err *e)
{
    struct vl_buf text = { 0 }, marked = { 0 }, messages = { 0 }, input = { 0 };
    int plain = w->o->plain_special;
    const char *prompt;
    size_t n;

    prompt = vl_col_json(w->rows->raw_prompt, i, &n);
    response_text(w, i, &text);
    if (text.n && vl_tok_count_special(w->tok, text.s, text.n))
        w->spelled++;
    if (plain && text.n && vl_tok_mark(w->tok, text.s, text.n, &marked, e))
        goto done;
    if (!put_messages(prompt, n, plain && text.n ? &marked : &text, &messages, e) &&
        !vl_chat_apply(w->chat, messages.s, messages.n, NULL, 0, &input, e))
        (void)!vl_tok_encode(w->tok, input.n ? input.s : "", input.n, plain ? VL_TOK_MARKED : 0,
                             ids, e);
done:
    vl_buf_free(&text);
    vl_buf_free(&marked);
    vl_buf_free(&messages);
    vl_buf_free(&input);
    return e->code;
}

/* Holds the row to the limit. *from, *n: the part that stays; 1 when it is too long. */
static int fit(struct maker *w, size_t *from, size_t *n)
{
    size_t limit = (size_t)w->limit;

    if (*n <= limit)
        return 0;
    if (!strcmp(w->o->truncate, "none"))
        return 1;
    *from = !strcmp(w->o->truncate, "left") ? *n - limit : 0;
    *n = limit;
    w->cut++;
    return 0;
}

static void put_why(struct vl_buf *out, const char *why)
{
    int32_t head[2] = { -1, (int32_t)strlen(why) };

    vl_buf_add(out, head, sizeof head);
    vl_buf_add(out, why, strlen(why));
}

/* Appends {n, 0, ids} or {-1, length, why}. Ids that the model does not have are the stage's error. */
static int put_row(struct maker *w, int64_t i, struct vl_buf *out, struct vl_err *e)
{
    struct vl_err mine = { 0 };
    struct vl_ids ids = { 0 };
    size_t from = 0, n;
    char line[160];

    (void)!make_ids(w, i, &ids, &mine);
    n = ids.n;
    if (mine.code) {
        put_why(out, mine.msg);
    } else if (!n) {
        put_why(out, "the reward model's template gave no text");
    } else if (fit(w, &from, &n)) {
        snprintf(line, sizeof line,
                 "%zu tokens for the reward model, more than %" PRId64
                 " (reward_model.max_length; --rm-truncate cuts such rows)",
                 n, w->limit);
        put_why(out, line);
    } else {
        int32_t head[2] = { (int32_t)n, 0 };

        for (size_t k = from; k < from + n; k++)
            if (ids.id[k] < 0 || ids.id[k] >= w->V)
                vl_fail(e, VL_E_DATA,
                        "the reward model's tokenizer gives id %" PRId32
                        ", its config.json has vocab_size %" PRId64,
                        ids.id[k], w->V);
        vl_buf_add(out, head, sizeof head);
        vl_buf_add(out, ids.id + from, n * sizeof *ids.id);
    }
    vl_ids_free(&ids);
    return e->code;
}

/* ---- all rows ---- */

/* The rows of this rank, divided by the policy's token counts. Rows without a response need none. */
static int make_share(struct maker *w, struct vl_buf *mine, struct vl_err *e)
{
    int64_t rows = w->rows->b->rows;
    int64_t *cost = vl_alloc((size_t)rows * sizeof *cost);
    int64_t *first = vl_alloc((size_t)(w->x->comm.size + 1) * sizeof *first);

    for (int64_t i = 0; i < rows; i++)
        cost[i] = vl_reward_length(w->rows, i, NULL);
    vl_comm_cut(w->x->comm.size, cost, rows, first);
    for (int64_t i = first[w->x->comm.rank]; i < first[w->x->comm.rank + 1] && !e->code; i++) {
        if (cost[i])
            (void)!put_row(w, i, mine, e);
        else
            put_why(mine, "the response has no valid token");
    }
    free(cost);
    free(first);
    return e->code;
}

/* Every rank gets the ranks' bytes end to end. */
static int share_all(struct vl_comm *c, struct vl_buf *mine, char **all, size_t *n,
                     struct vl_err *e)
{
    size_t *sizes = vl_alloc((size_t)c->size * sizeof *sizes);
    void *got = NULL;

    if (c->size == 1) {
        *n = mine->n;
        *all = vl_buf_detach(mine);
    } else if (!vl_comm_gather(c, mine->s, mine->n, &got, sizes, e)) {
        *n = 0;
        for (int r = 0; r < c->size && !c->rank; r++)
            *n += sizes[r];
        if (!vl_comm_bcast(c, n, sizeof *n, 0, e)) {
            *all = c->rank ? vl_alloc(*n) : got;
            (void)!vl_comm_bcast(c, *all, *n, 0, e);
        } else {
            free(got);
        }
    }
    free(sizes);
    return e->code;
}

static int read_rows(struct vl_rows *r, struct vl_rm *m, const char *p, size_t n, struct vl_err *e)
{
    int64_t B = m->rows, at = 0;
    size_t ids = n / sizeof(int32_t) + 1;

    *r = (struct vl_rows){ .B = B, .R = 1, .at_end = 1 };
    if (vl_try_alloc(&r->start, (size_t)B + 1, sizeof *r->start, "row offsets", e) ||
        vl_try_alloc(&r->plen, (size_t)B, sizeof *r->plen, "lengths", e) ||
        vl_try_alloc(&r->rlen, (size_t)B, sizeof *r->rlen, "lengths", e) ||
        vl_try_alloc(&r->ids, ids, sizeof *r->ids, "token ids", e))
        return e->code;
    for (int64_t i = 0; i < B; i++) {
        int32_t head[2];

        memcpy(head, p, sizeof head);
        p += sizeof head;
        if (head[0] < 0) {
            m->why[i] = vl_strndup(p, (size_t)head[1]);
            p += head[1];
        } else {
            memcpy(r->ids + at, p, (size_t)head[0] * sizeof *r->ids);
            p += (size_t)head[0] * sizeof *r->ids;
            at += head[0];
            r->plen[i] = head[0];
            r->rlen[i] = 1;
        }
        r->start[i + 1] = at;
    }
    return 0;
}

static void say_counts(struct maker *w, int64_t rows)
{
    int64_t counts[2] = { w->spelled, w->cut };

    if (counts[0])
        vl_warn(&w->x->log,
                "%" PRId64 " of %" PRId64
                " responses spell special tokens of the reward model, which %s",
                counts[0], rows,
                w->o->plain_special ? "get ordinary ids (--rm-plain-special)"
                                    : "act as such in its input: --rm-plain-special makes them "
                                      "ordinary text");
    if (counts[1])
        vl_warn(&w->x->log, "%" PRId64 " of %" PRId64 " inputs cut to %" PRId64 " tokens (%s)",
                counts[1], rows, w->limit, w->o->truncate);
}

static int templated(struct maker *w, const struct vl_model *model, struct vl_rows *r,
                     struct vl_rm *m, struct vl_err *e)
{
    struct vl_buf mine = { 0 };
    char *all = NULL;
    double sums[2];
    size_t n = 0;

    if (!open_maker(w, model, e)) {
        record(w);
        (void)!make_share(w, &mine, e);
    }
    if (vl_comm_agree(&w->x->comm, e))
        goto done;
    sums[0] = (double)w->spelled, sums[1] = (double)w->cut;
    if (vl_comm_sum_f64(&w->x->comm, sums, 2, e) || share_all(&w->x->comm, &mine, &all, &n, e))
        goto done;
    w->spelled = (int64_t)sums[0], w->cut = (int64_t)sums[1];
    if (!w->x->comm.rank)
        say_counts(w, m->rows);
    (void)!read_rows(r, m, all, n, e);
done:
    vl_buf_free(&mine);
    free(all);
    return vl_comm_agree(&w->x->comm, e);
}

/* The batch's own ids: prompt and response. */
static int as_they_are(struct maker *w, const struct vl_batch *b, const struct vl_model *model,
                       struct vl_rows *r, struct vl_rm *m, struct vl_err *e)
{
    char *hash = vl_meta_str(b, "tokenizer_hash");
    struct vl_err ignored = { 0 };

    if (hash && !vl_tok_open(&w->tok, model->dir, &ignored) && strcmp(hash, vl_tok_hash(w->tok)))
        vl_warn(&w->x->log,
                "the ids are of another tokenizer (hash %s) than the reward model's (%s): "
                "reward_model.model.input_tokenizer=null is for equal ones",
                hash, vl_tok_hash(w->tok));
    free(hash);
    if (!vl_rows_read(r, b, w->V, e)) {
        for (int64_t i = 0; i < m->rows; i++) {
            if (!r->rlen[i])
                m->why[i] = vl_strdup("the response has no valid token");
            r->plen[i] += r->rlen[i];
            r->rlen[i] = r->rlen[i] > 0;
        }
        r->R = 1;
        r->at_end = 1;
    }
    return vl_comm_agree(&w->x->comm, e);
}

/* ---- scores ---- */

static int add_column(struct vl_batch *b, const struct vl_reward_rows *rows, const struct vl_rm *m,
                      const struct vl_model *model, struct vl_err *e)
{
    float *s = vl_alloc((size_t)rows->R * (size_t)m->rows * sizeof *s);
    int64_t last;

    for (int64_t i = 0; i < m->rows; i++) {
        vl_reward_length(rows, i, &last);
        if (last >= 0)
            s[i * rows->R + last] = m->why[i] ? NAN : m->score[i];
    }
    if (!vl_infer_add(b, "rm_scores", rows->R, s, e))
        vl_weights_set(b, "rm_scores", model, NULL);
    free(s);
    return e->code;
}

static int forward(struct vl_ctx *x, struct vl_infer *f, const struct vl_rm_opts *o,
                   const struct vl_rows *r, struct vl_rm *m, struct vl_err *e)
{
    struct vl_infer_out out = { .want = { [VL_INFER_VALUE] = 1 } };
    struct vl_cut cut = o->cut;
    size_t bytes = (size_t)m->rows * sizeof *m->score;

    if (o->micro_batch > 0)
        cut.rows = o->micro_batch, cut.dynamic = 0;
    if (!r->start[r->B]) /* no row is left: each has its reason */
        return 0;
    vl_infer_options(x, f, &o->cut, &o->micro_batch, &o->compute);
    if (!vl_infer_rows(x, f, r, &cut, 1.0f, &out, e) && !x->comm.rank) {
        memcpy(m->score, out.column[VL_INFER_VALUE], bytes);
        for (int64_t i = 0; i < m->rows; i++)
            if (!m->why[i] && !isfinite(m->score[i]))
                vl_fail(e, VL_E_DATA,
                        "row %" PRId64 ": the reward model's score is %g: its weights hold NaN or "
                        "overflow",
                        i, (double)m->score[i]);
    }
    vl_infer_out_free(&out);
    return vl_comm_agree(&x->comm, e) ? e->code : vl_comm_bcast(&x->comm, m->score, bytes, 0, e);
}

int vl_rm_run(struct vl_ctx *x, const struct vl_rm_opts *o, struct vl_batch *b,
              const struct vl_reward_rows *rows, struct vl_rm *m, struct vl_err *e)
{
    struct maker w = { .x = x, .o = o, .rows = rows };
    struct vl_infer f = { 0 };
    struct vl_rows r = { 0 };

    *m = (struct vl_rm){ .rows = b->rows };
    m->score = vl_alloc((size_t)b->rows * sizeof *m->score);
    m->why = vl_alloc((size_t)b->rows * sizeof *m->why);
    if (vl_infer_open(x, &f, b, o->dir ? o->dir : o->path, "reward_model.model.path",
                      VL_HEAD_REWARD, o->compute, e))
        goto done;
    w.V = f.model->cfg.V;
    w.limit = o->max_length != VL_NULL_I64 ? o->max_length : f.model->cfg.max_positions;
    if (o->input ? templated(&w, f.model, &r, m, e) : as_they_are(&w, b, f.model, &r, m, e))
        goto done;
    if (!forward(x, &f, o, &r, m, e)) {
        (void)!add_column(b, rows, m, f.model, e);
        memcpy(m->hash, f.model->hash, sizeof m->hash);
    }
    (void)!vl_comm_agree(&x->comm, e);
done:
    close_maker(&w);
    vl_rows_free(&r);
    vl_infer_close(&f);
    return e->code;
}
