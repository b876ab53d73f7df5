/* data_row.c - one row: map, check, render, tokenize, length policy.
 *
 * A string prompt is text: tokenized with the special tokens the tokenizer itself adds. A list of
 * messages goes through a chat template, and nothing is added to what the template wrote. */
#include "libverl/run/data_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libverl/base/fs.h"
#include "libverl/reward/rules.h"
#include "libverl/text/unicode.h"

/* ---- opening ---- */

static int open_template(struct vl_row_work *w, struct vl_err *e)
{
    const struct vl_data_opts *o = w->o;
    struct vl_buf text = { 0 };
    const char *slash;

    w->tmpl_name = vl_tok_template(w->tok) ? "tokenizer" : "none";
    if (o->tmpl && strcmp(o->tmpl, "none") == 0) {
        w->tmpl_name = "none";
        return 0;
    }
    if (o->tmpl) {
        if (vl_fs_read(o->tmpl, (size_t)16 << 20, &text, e))
            return e->code;
        w->tmpl_text = vl_buf_detach(&text);
        slash = strrchr(o->tmpl, '/');
        w->tmpl_name = slash ? slash + 1 : o->tmpl;
    } else if (o->inline_tmpl) {
        w->tmpl_text = vl_strdup(o->inline_tmpl);
        w->tmpl_name = "config";
    }
    if (!w->tmpl_text && !vl_tok_template(w->tok))
        return 0; /* an error only when a row needs one */
    return vl_chat_open(&w->chat, w->tok, w->tmpl_text, o->tmpl ? o->tmpl : "chat template",
                        o->kwargs, e);
}

int vl_row_work_open(struct vl_row_work *w, const char *model, struct vl_err *e)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");

    if (vl_tok_open(&w->tok, model, e) || open_template(w, e))
        return e->code;
    if (w->chat && !(epoch && *epoch)) /* one moment for all rows */
        vl_chat_set_now(w->chat, (int64_t)time(NULL), 0);
    if (w->o->map && vl_jq_open(&w->jq, w->o->map, NULL, e))
        return vl_err_prefix(e, "--map");
    return 0;
}

void vl_row_work_close(struct vl_row_work *w)
{
    vl_tok_free(w->tok);
    vl_chat_free(w->chat);
    vl_jq_free(w->jq);
    free(w->tmpl_text);
    vl_buf_free(&w->scratch);
}

void vl_row_free(struct vl_row *r)
{
    vl_json_free(&r->j);
    free(r->json);
    free(r->prompt_json);
    vl_ids_free(&r->prompt);
    vl_ids_free(&r->response);
    *r = (struct vl_row){ .index = r->index };
}

/* ---- the row as an object ---- */

static int map(struct vl_row_work *w, const struct vl_line *line, struct vl_row *r,
               struct vl_err *e)
{
    struct vl_buf out = { 0 };
    int64_t results = 0;

    if (!w->jq) {
        r->json = vl_strndup(line->s, line->n);
        return 0;
    }
    if (vl_jq_run(w->jq, line->s, line->n, 0, &out, &results, e) == 0 && results != 1)
        vl_fail(e, VL_E_DATA, "--map gave %" PRId64 " results; it must make one object of a row",
                results);
    r->json = vl_buf_detach(&out);
    return e->code;
}

static int64_t member(const struct vl_row *r, const char *key)
{
    return vl_json_get(&r->j, 0, key);
}

static const char *type_name(const struct vl_row *r, int64_t at)
{
    static const char *const name[] = { "null",     "false",  "true",     "a number",
                                        "a string", "a list", "an object" };

    return at < 0 ? "missing" : name[r->j.node[at].type];
}

/* A list of objects with a role each. */
static int is_messages(const struct vl_row *r, int64_t at)
{
    uint32_t k, c;

    if (!vl_json_is(&r->j, at, VL_JSON_ARRAY) || !r->j.node[at].count)
        return 0;
    for (k = 0, c = (uint32_t)at + 1; k < r->j.node[at].count; k++, c = r->j.node[c].next)
        if (!vl_json_is(&r->j, vl_json_get(&r->j, c, "role"), VL_JSON_STRING))
            return 0;
    return 1;
}

static void complain(struct vl_buf *b, const char *name, const char *found, const char *wanted)
{
    vl_buf_printf(b, "%s%s is %s, wanted %s", b->n ? "; " : "", name, found, wanted);
}

static void list_members(const struct vl_row *r, struct vl_buf *b)
{
    uint32_t k, c;

    for (k = 0, c = 1; k < r->j.node[0].count; k++, c = r->j.node[c + 1].next) {
        vl_buf_str(b, k ? ", " : "");
        vl_json_str(&r->j, c, b);
    }
}

/* An optional member of this type; null counts as left out. */
static void check_optional(const struct vl_row *r, const char *name, enum vl_json_type type,
                           const char *wanted, struct vl_buf *bad)
{
    int64_t at = member(r, name);

    if (at >= 0 && !vl_json_is(&r->j, at, type) && !vl_json_is(&r->j, at, VL_JSON_NULL))
        complain(bad, name, type_name(r, at), wanted);
}

/* All that is missing or of the wrong type, in one line, with what is there. */
static int check_members(const struct vl_row_work *w, const struct vl_row *r, struct vl_err *e)
{
    const struct vl_data_opts *o = w->o;
    int64_t prompt = member(r, o->prompt_key), response = member(r, o->response_key);
    struct vl_buf bad = { 0 }, have = { 0 };

    if (!vl_json_is(&r->j, prompt, VL_JSON_STRING) && !is_messages(r, prompt))
        complain(&bad, o->prompt_key, type_name(r, prompt),
                 "a string or a list of {role, content} messages");
    if (o->sft && !vl_json_is(&r->j, response, VL_JSON_STRING))
        complain(&bad, o->response_key, type_name(r, response), "a string (--sft)");
    check_optional(r, "data_source", VL_JSON_STRING, "a string", &bad);
    check_optional(r, "reward_model", VL_JSON_OBJECT,
                   "an object such as {\"ground_truth\": \"42\"}", &bad);
    check_optional(r, "extra_info", VL_JSON_OBJECT, "an object", &bad);
    check_optional(r, "tools", VL_JSON_ARRAY, "a list", &bad);
    if (bad.n) {
        list_members(r, &have);
        vl_fail(e, VL_E_DATA, "%.500s (the row has: %.300s)%s", bad.s, have.n ? have.s : "nothing",
                w->o->map ? "" : "; --map FILTER makes such a row of any other");
    }
    vl_buf_free(&bad);
    vl_buf_free(&have);
    return e->code;
}

static int check_scorer(const struct vl_row_work *w, const struct vl_row *r, struct vl_err *e)
{
    struct vl_buf name = { 0 }, known = { 0 };

    vl_json_str(&r->j, member(r, "data_source"), &name);
    if (!vl_rule_for_source(name.s ? name.s : "", name.n) && w->o->check_scorer) {
        vl_rule_sources(&known);
        vl_fail(e, VL_E_DATA,
                "data_source \"%.100s\" has no built-in scorer; there is one for %.600s (leave "
                "--check-scorer out where verl-reward gets --jq or --command)",
                name.s ? name.s : "", known.s ? known.s : "none");
    }
    vl_buf_free(&name);
    vl_buf_free(&known);
    return e->code;
}

/* ---- rendering ---- */

/* Special tokens spelled by what people wrote: each content string, or a part's text. */
static int64_t count_special(const struct vl_row_work *w, const struct vl_json *j, int64_t at)
{
    struct vl_buf s = { 0 };
    int64_t n = 0;
    uint32_t k, c;

    if (vl_json_str(j, at, &s)) {
        n = vl_tok_count_special(w->tok, s.s ? s.s : "", s.n);
    } else if (vl_json_is(j, at, VL_JSON_ARRAY)) {
        for (k = 0, c = (uint32_t)at + 1; k < j->node[at].count; k++, c = j->node[c].next)
            n += count_special(w, j,
                               vl_json_get(j, c, "content") >= 0 ? vl_json_get(j, c, "content")
                                                                 : vl_json_get(j, c, "text"));
    }
    vl_buf_free(&s);
    return n;
}

static void add_message(struct vl_buf *b, const char *role, const char *text, size_t n)
{
    vl_buf_printf(b, "{\"role\": \"%s\", \"content\": ", role);
    vl_json_put_str(b, text, n);
    vl_buf_ch(b, '}');
}

/* raw_prompt: the string as it is, or the messages that are rendered. */
static void make_prompt(const struct vl_row_work *w, struct vl_row *r)
{
    const struct vl_data_opts *o = w->o;
    int64_t at = member(r, o->prompt_key);
    int string = vl_json_is(&r->j, at, VL_JSON_STRING);
    struct vl_buf b = { 0 };

    if (string && !o->chat) {
        vl_json_raw(&r->j, at, &b);
        r->prompt_json = vl_buf_detach(&b);
        return;
    }
    if (string) {
        vl_buf_str(&b, "[{\"role\": \"user\", \"content\": ");
        vl_json_raw(&r->j, at, &b);
        vl_buf_str(&b, "}]");
    } else {
        vl_json_raw(&r->j, at, &b);
    }
    if (o->system &&
        (string ||
         !vl_json_streq(&r->j, vl_json_get(&r->j, vl_json_at(&r->j, at, 0), "role"), "system"))) {
        struct vl_buf with = { 0 };

        vl_buf_ch(&with, '[');
        add_message(&with, "system", o->system, strlen(o->system));
        vl_buf_str(&with, ", ");
        vl_buf_add(&with, b.s + 1, b.n - 1);
        vl_buf_free(&b);
        b = with;
    }
    r->prompt_json = vl_buf_detach(&b);
}

static int put_marked(const struct vl_row_work *w, const struct vl_json *j, int64_t at,
                      struct vl_buf *out, struct vl_err *e)
{
    struct vl_buf text = { 0 }, marked = { 0 };

    if (vl_json_str(j, at, &text) == 0)
        vl_json_raw(j, at, out);
    else if (vl_tok_mark(w->tok, text.s ? text.s : "", text.n, &marked, e) == 0)
        vl_json_put_str(out, marked.s ? marked.s : "", marked.n);
    vl_buf_free(&text);
    vl_buf_free(&marked);
    return e->code;
}

/* Copies an object of a message or of a part of one, with its content or text marked. */
static int mark_object(const struct vl_row_work *w, const struct vl_json *j, int64_t at,
                       struct vl_buf *out, struct vl_err *e)
{
    uint32_t k, c, i, p;

    if (!vl_json_is(j, at, VL_JSON_OBJECT)) {
        vl_json_raw(j, at, out);
        return 0;
    }
    vl_buf_ch(out, '{');
    for (k = 0, c = (uint32_t)at + 1; k < j->node[at].count; k++, c = j->node[c + 1].next) {
        vl_buf_str(out, k ? ", " : "");
        vl_json_raw(j, c, out);
        vl_buf_str(out, ": ");
        if (!vl_json_streq(j, c, "content") && !vl_json_streq(j, c, "text")) {
            vl_json_raw(j, c + 1, out);
        } else if (vl_json_is(j, c + 1, VL_JSON_ARRAY)) {
            vl_buf_ch(out, '[');
            for (i = 0, p = c + 2; i < j->node[c + 1].count; i++, p = j->node[p].next) {
                vl_buf_str(out, i ? ", " : "");
                if (mark_object(w, j, p, out, e))
                    return e->code;
            }
            vl_buf_ch(out, ']');
        } else if (put_marked(w, j, c + 1, out, e)) {
            return e->code;
        }
    }
    vl_buf_ch(out, '}');
    return 0;
}

/* The messages with marks in what their content spells (--plain-special). */
static int mark_messages(const struct vl_row_work *w, const char *messages, struct vl_buf *out,
                         struct vl_err *e)
{
    struct vl_json j = { 0 };
    uint32_t k, c;

    if (vl_json_parse(&j, messages, strlen(messages), "messages", e) == 0) {
        vl_buf_ch(out, '[');
        for (k = 0, c = 1; k < j.node[0].count && !e->code; k++, c = j.node[c].next) {
            vl_buf_str(out, k ? ", " : "");
            (void)!mark_object(w, &j, c, out, e);
        }
        vl_buf_ch(out, ']');
    }
    vl_json_free(&j);
    return e->code;
}

/* How many begin tokens the ids start with, against the one the tokenizer itself would add. */
static void check_bos(struct vl_row_work *w, const struct vl_ids *ids)
{
    int32_t bos = vl_tok_bos(w->tok);
    struct vl_ids own = { 0 };
    struct vl_err e = { 0 };
    size_t n = 0;

    if (bos < 0)
        return;
    while (n < ids->n && ids->id[n] == bos)
        n++;
    w->double_bos += n > 1;
    if (n == 0 && vl_tok_encode(w->tok, "", 0, VL_TOK_SPECIAL, &own, &e) == 0)
        w->no_bos += own.n && own.id[0] == bos;
    vl_ids_free(&own);
}

static int tokenize_messages(struct vl_row_work *w, struct vl_row *r, struct vl_err *e)
{
    int64_t tools_at = member(r, "tools");
    struct vl_buf tools = { 0 }, messages = { 0 };
    int marked = w->o->plain_special && r->special;

    if (!w->chat)
        return vl_fail(e, VL_E_DATA,
                       "the prompt is a list of messages, but %s; give a template with --template "
                       "FILE (Jinja), or make the prompt a string (--map)",
                       w->o->tmpl ? "--template none was given"
                                  : "the tokenizer has no chat template");
    if (vl_json_is(&r->j, tools_at, VL_JSON_ARRAY))
        vl_json_raw(&r->j, tools_at, &tools);
    vl_buf_reset(&w->scratch);
    vl_buf_str(&messages, r->prompt_json);
    if (marked) {
        vl_buf_reset(&messages);
        (void)!mark_messages(w, r->prompt_json, &messages, e);
    }
    if (!e->code && vl_chat_apply(w->chat, messages.s, messages.n, tools.s, 1, &w->scratch, e) == 0)
        (void)!vl_tok_encode(w->tok, w->scratch.s ? w->scratch.s : "", w->scratch.n,
                             marked ? VL_TOK_MARKED : 0, &r->prompt, e);
    vl_buf_free(&messages);
    vl_buf_free(&tools);
    w->templated++;
    check_bos(w, &r->prompt);
    return e->code;
}

static int tokenize(struct vl_row_work *w, struct vl_row *r, struct vl_err *e)
{
    unsigned flags = w->o->plain_special ? VL_TOK_NO_PARSE : 0;
    int64_t at = member(r, w->o->prompt_key);

    make_prompt(w, r);
    r->special = count_special(w, &r->j, at);
    vl_buf_reset(&w->scratch);
    if (r->prompt_json[0] == '"') {
        vl_json_str(&r->j, at, &w->scratch);
        if (vl_tok_encode(w->tok, w->scratch.s ? w->scratch.s : "", w->scratch.n,
                          flags | VL_TOK_SPECIAL, &r->prompt, e))
            return e->code;
    } else if (tokenize_messages(w, r, e)) {
        return e->code;
    }
    if (!w->o->sft)
        return 0;
    vl_buf_reset(&w->scratch);
    vl_json_str(&r->j, member(r, w->o->response_key), &w->scratch);
    if (vl_tok_encode(w->tok, w->scratch.s ? w->scratch.s : "", w->scratch.n, flags, &r->response,
                      e))
        return e->code;
    if (w->o->eos)
        vl_ids_add(&r->response, vl_tok_eos(w->tok));
    return 0;
}

/* ---- length ---- */

/* Keeps `keep` of x's ids by the policy: the last, the first, or half of each. */
static void shorten(struct vl_ids *x, size_t keep, const char *policy)
{
    size_t left = strcmp(policy, "right") == 0    ? keep
                  : strcmp(policy, "middle") == 0 ? keep / 2
                                                  : 0;
    size_t right = keep - left;

    memmove(x->id + left, x->id + x->n - right, right * sizeof *x->id);
    x->n = keep;
}

static enum vl_row_fate limit(const struct vl_row_work *w, struct vl_row *r, struct vl_ids *x,
                              int64_t max, const char *what, const char *policy, struct vl_err *e)
{
    if (max == VL_NULL_I64 || (int64_t)x->n <= max)
        return VL_ROW_KEPT;
    if (w->o->filter_overlong || strcmp(w->o->truncation, "filter") == 0)
        return VL_ROW_OVERLONG;
    if (strcmp(w->o->truncation, "error") == 0) {
        vl_fail(e, VL_E_DATA,
                "%s of %zu tokens, the limit is %" PRId64 ": raise data.max_%s_length to %zu, or "
                "choose --truncation filter, left, right or middle",
                what, x->n, max, what, x->n);
        return VL_ROW_BAD;
    }
    shorten(x, (size_t)max, policy);
    r->truncated = 1;
    return VL_ROW_KEPT;
}

static enum vl_row_fate limit_both(const struct vl_row_work *w, struct vl_row *r, struct vl_err *e)
{
    enum vl_row_fate fate =
        limit(w, r, &r->prompt, w->o->max_prompt, "prompt", w->o->truncation, e);

    if (fate != VL_ROW_KEPT)
        return fate;
    /* an answer is read from its start: whichever policy cuts, its end goes */
    return limit(w, r, &r->response, w->o->max_response, "response", "right", e);
}

enum vl_row_fate vl_row_make(struct vl_row_work *w, struct vl_row *r, struct vl_err *e)
{
    const struct vl_line *line = &w->lines->line[r->index];
    enum vl_row_fate fate = VL_ROW_BAD;

    if (map(w, line, r, e) == 0 &&
        vl_json_parse(&r->j, r->json, strlen(r->json), "the row", e) == 0) {
        if (!vl_json_is(&r->j, 0, VL_JSON_OBJECT))
            vl_fail(e, VL_E_DATA, "the row is %s, wanted an object", type_name(r, 0));
        else if (check_members(w, r, e) == 0 && check_scorer(w, r, e) == 0 &&
                 tokenize(w, r, e) == 0)
            fate = limit_both(w, r, e);
    }
    if (e->code)
        vl_err_prefix(e, "%s:%" PRId64, w->lines->path[line->file], line->number);
    r->done = fate == VL_ROW_KEPT;
    return e->code ? VL_ROW_BAD : fate;
}
