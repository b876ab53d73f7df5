/* data_row.c - one row: map, check, length policy. What it becomes in tokens is data_render.c's. */
#include "libverl/run/data_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libverl/base/fs.h"
#include "libverl/reward/rules.h"
#include "libverl/text/unicode.h"

/* ---- opening ---- */

static int open_chat(struct vl_row_work *w, const char *kwargs, struct vl_chat **c,
                     struct vl_err *e)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");

    if (vl_chat_open(c, w->tok, w->tmpl_text, w->o->tmpl ? w->o->tmpl : "chat template", kwargs, e))
        return e->code;
    if (!(epoch && *epoch)) /* one moment for all rows */
        vl_chat_set_now(*c, w->now, 0);
    return 0;
}

static int open_template(struct vl_row_work *w, struct vl_err *e)
{
    const struct vl_data_opts *o = w->o;
    const char *slash;

    w->tmpl_name = vl_tok_template(w->tok) ? "tokenizer" : "none";
    if (o->tmpl && strcmp(o->tmpl, "none") == 0) {
        w->tmpl_name = "none";
        return 0;
    }
    if (o->tmpl) {
        if (vl_chat_read(&w->tmpl_text, o->tmpl, e))
            return e->code;
        slash = strrchr(o->tmpl, '/');
        w->tmpl_name = slash ? slash + 1 : o->tmpl;
    } else if (o->inline_tmpl) {
        w->tmpl_text = vl_strdup(o->inline_tmpl);
        w->tmpl_name = "config";
    }
    if (!w->tmpl_text && !vl_tok_template(w->tok))
        return 0; /* an error only when a row needs one */
    return open_chat(w, o->kwargs, &w->chat, e);
}

int vl_row_work_chat(struct vl_row_work *w, int thinking, struct vl_chat **c, struct vl_err *e)
{
    struct vl_buf kw = { 0 };
    size_t n = w->o->kwargs ? strlen(w->o->kwargs) : 0;

    while (n && w->o->kwargs[n - 1] != '}')
        n--;
    vl_buf_add(&kw, n ? w->o->kwargs : "{", n ? n - 1 : 1);
    vl_buf_printf(&kw, "%s\"enable_thinking\": %s}", n && strchr(w->o->kwargs, ':') ? ", " : "",
                  thinking ? "true" : "false");
    (void)!open_chat(w, kw.s, c, e);
    vl_buf_free(&kw);
    return e->code;
}

int vl_row_work_open(struct vl_row_work *w, const char *model, struct vl_err *e)
{
    w->now = (int64_t)time(NULL);
    if (vl_tok_open(&w->tok, model, e) || open_template(w, e))
        return e->code;
    if (w->o->map && vl_jq_open(&w->jq, w->o->map, NULL, e))
        return vl_err_prefix(e, "--map");
    if (w->jq)
        vl_jq_most(w->jq, 2);
    if (w->o->scorers && vl_rule_set_json(&w->rules, w->o->scorers, e))
        return e->code;
    if (!w->rules.n && vl_rule_set_one(&w->rules, NULL, NULL, e))
        return e->code;
    return w->o->dispatch ? vl_rule_set_dispatch(&w->rules, w->o->dispatch, e) : 0;
}

void vl_row_work_close(struct vl_row_work *w)
{
    vl_tok_free(w->tok);
    vl_chat_free(w->chat);
    vl_chat_free(w->chat_thinking[0]);
    vl_chat_free(w->chat_thinking[1]);
    vl_jq_free(w->jq);
    free(w->tmpl_text);
    vl_rule_set_free(&w->rules);
}

void vl_row_free(struct vl_row *r)
{
    vl_json_free(&r->j);
    free(r->json);
    free(r->prompt_json);
    vl_ids_free(&r->prompt);
    for (int k = 0; k < 2; k++) {
        vl_ids_free(&r->reply[k].ids);
        free(r->reply[k].mask);
    }
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
        vl_fail(e, VL_E_DATA, "--map gave %s; it must make one object of a row",
                results ? "several results" : "no result");
    r->json = vl_buf_detach(&out);
    return e->code;
}

static int64_t member(const struct vl_row *r, const char *key)
{
    return vl_json_get(&r->j, 0, key);
}

static void complain(struct vl_buf *b, const struct vl_row *r, const char *name, int64_t at,
                     const char *wanted)
{
    int null = at < 0 && vl_json_is(&r->j, member(r, name), VL_JSON_NULL); /* counts as missing */

    vl_buf_printf(b, "%s%s is %s, wanted %s", b->n ? "; " : "", name,
                  null ? "null" : vl_json_kind(&r->j, at), wanted);
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
        complain(bad, r, name, at, wanted);
}

/* A member, and members inside it; null counts as missing. */
static int64_t part(const struct vl_row *r, const char *key, const struct vl_strs *path)
{
    int64_t at = member(r, key);

    for (size_t k = 0; path && k < path->n; k++)
        at = vl_json_get(&r->j, at, path->s[k]);
    return vl_json_is(&r->j, at, VL_JSON_NULL) ? -1 : at;
}

static void find_parts(const struct vl_row_work *w, struct vl_row *r)
{
    const struct vl_data_opts *o = w->o;
    struct vl_row_parts *p = &r->parts;

    *p = (struct vl_row_parts){ part(r, o->prompt_key, &o->prompt_path), -1, { -1, -1 } };
    if (o->preference)
        p->answer[0] = part(r, "chosen", NULL), p->answer[1] = part(r, "rejected", NULL);
    if (o->sft && (o->multiturn || p->prompt < 0))
        p->messages = part(r, o->messages_key, NULL);
    if (o->sft && !o->multiturn && p->messages < 0)
        p->answer[0] = part(r, o->response_key, &o->response_path);
}

static int is_string(const struct vl_row *r, int64_t at)
{
    return vl_json_is(&r->j, at, VL_JSON_STRING);
}

/* prompt, and the answers called name[0..n-1]: strings, or lists that go on with its messages. */
static void check_answers(const struct vl_row_work *w, const struct vl_row *r, int n,
                          const char *const *name, struct vl_buf *bad)
{
    const struct vl_row_parts *p = &r->parts;
    int lists = 0;

    for (int k = 0; k < n; k++) {
        int64_t at = p->answer[k];

        if (!is_string(r, at) && !vl_is_messages(&r->j, at))
            complain(bad, r, name[k], at, "a string or a list of messages");
        else
            vl_check_messages(&r->j, name[k], at, bad);
        if (k && is_string(r, at) != is_string(r, p->answer[0]))
            complain(bad, r, name[k], at, "the same as chosen");
        lists |= vl_is_messages(&r->j, at);
    }
    if (lists && is_string(r, p->prompt) && !w->o->chat)
        complain(bad, r, w->o->prompt_key, p->prompt,
                 "a list of messages, as the answers are (or --chat: one user message)");
}

/* All that is missing or of the wrong type, in one line, with what is there. */
static int check_members(const struct vl_row_work *w, const struct vl_row *r, struct vl_err *e)
{
    static const char *const pair[] = { "chosen", "rejected" };
    const struct vl_data_opts *o = w->o;
    const struct vl_row_parts *p = &r->parts;
    struct vl_buf bad = { 0 }, have = { 0 };
    char *rows;
    int talk = o->sft && (o->multiturn || p->messages >= 0);

    if (talk && !vl_is_messages(&r->j, p->messages))
        complain(&bad, r, o->messages_key, p->messages, "a list of {role, content} messages");
    if (!talk && !(o->preference && p->prompt < 0) && !is_string(r, p->prompt) &&
        !vl_is_messages(&r->j, p->prompt))
        complain(&bad, r, o->prompt_key, p->prompt,
                 "a string or a list of {role, content} messages");
    vl_check_messages(&r->j, talk ? o->messages_key : o->prompt_key, talk ? p->messages : p->prompt,
                      &bad);
    if (o->preference)
        check_answers(w, r, 2, pair, &bad);
    if (o->sft && !talk)
        check_answers(w, r, 1, &o->response_key, &bad);
    check_optional(r, o->source_key, VL_JSON_STRING, "a string", &bad);
    check_optional(r, "reward_model", VL_JSON_OBJECT,
                   "an object such as {\"ground_truth\": \"42\"}", &bad);
    check_optional(r, "extra_info", VL_JSON_OBJECT, "an object", &bad);
    check_optional(r, o->tools_key, VL_JSON_ARRAY, "a list", &bad);
    if (bad.n) {
        rows = p->prompt < 0 && w->lines->n == 1 ? vl_rows_member(&r->j) : NULL;
        list_members(r, &have);
        vl_fail(
            e, VL_E_DATA, "%.500s (the row has: %.300s)%s%s%s", bad.s, have.n ? have.s : "nothing",
            rows ? "; its member "
            : w->o->map && strcmp(w->o->map, ".")
                ? ""
                : "; --map FILTER makes such a row of any other, --dataset NAME of common data "
                  "sets (--dataset help)",
            rows ? rows : "",
            rows ? " seems to hold the rows: give them one a line, by jq -c '.NAME[]' FILE" : "");
        free(rows);
    }
    vl_buf_free(&bad);
    vl_buf_free(&have);
    return e->code;
}

int vl_row_wants_scorer(const struct vl_data_opts *o)
{
    return o->check_scorer && !o->sft && !o->preference && !o->custom_reward && !o->reward_model;
}

const char *vl_row_scorer(const struct vl_row_work *w, const char *source, size_t n)
{
    const struct vl_rule *rule;
    int truth;

    if (!vl_rule_set_covers(&w->rules, source, n, &truth))
        return NULL;
    rule = w->rules.use[0].rule;
    if (!rule)
        vl_rule_set_find(&w->rules, w->rules.use, source, n, &rule);
    return rule->name;
}

/* A row without the member: one with a ground truth is there to be scored, and verl-reward would not
 * know how; one without may be for sampling alone, unless --check-scorer says otherwise. */
static int check_source(const struct vl_row_work *w, const struct vl_row *r, struct vl_err *e)
{
    int64_t truth = vl_json_get(&r->j, member(r, "reward_model"), "ground_truth");
    int scored = truth >= 0 && !vl_json_is(&r->j, truth, VL_JSON_NULL);

    if ((!scored && !w->need_source) || vl_row_scorer(w, "", 0))
        return 0;
    return vl_fail(e, VL_E_DATA,
                   "%s is missing, and verl-reward chooses the scorer by it: add it, for example "
                   "with --map '.%s = \"openai/gsm8k\"', or give --no-check-scorer where "
                   "verl-reward gets --scorer, --jq or --command",
                   w->o->source_key, w->o->source_key);
}

static int check_scorer(const struct vl_row_work *w, const struct vl_row *r, struct vl_err *e)
{
    int64_t at = member(r, w->o->source_key);
    struct vl_buf name = { 0 }, known = { 0 };

    if (w->lenient || !vl_row_wants_scorer(w->o))
        return 0;
    if (!vl_json_str(&r->j, at, &name))
        return check_source(w, r, e);
    if (!vl_row_scorer(w, name.s ? name.s : "", name.n)) {
        vl_rule_set_sources(&w->rules, &known);
        vl_fail(e, VL_E_DATA,
                "%s \"%.100s\" has no built-in scorer; there is one for %.1000s; name one as "
                "reward.dispatch.NAME=SCORER, or give --no-check-scorer where verl-reward gets "
                "--scorer, --jq or --command",
                w->o->source_key, name.s ? name.s : "", known.s);
    }
    vl_buf_free(&name);
    vl_buf_free(&known);
    return e->code;
}

/* ---- length ---- */

/* Keeps `keep` of x's ids by the policy: the last, the first, or half of each. */
static void shorten(struct vl_row *r, struct vl_ids *x, size_t keep, const char *policy)
{
    size_t left = strcmp(policy, "right") == 0    ? keep
                  : strcmp(policy, "middle") == 0 ? keep / 2
                                                  : 0;
    size_t right = keep - left;

    if (x->n <= keep)
        return;
    memmove(x->id + left, x->id + x->n - right, right * sizeof *x->id);
    x->n = keep;
    r->truncated = 1;
}

/* Whether n tokens are within the limit of data.max_KEY, or may be cut to it. */
static enum vl_row_fate over(const struct vl_row_work *w, struct vl_row *r, size_t n, int64_t max,
                             const char *what, const char *key, struct vl_err *e)
{
    if (max == VL_NULL_I64 || (int64_t)n <= max)
        return VL_ROW_KEPT;
    r->over = 1;
    if (w->o->filter_overlong || strcmp(w->o->truncation, "filter") == 0)
        return VL_ROW_OVERLONG;
    if (strcmp(w->o->truncation, "error") != 0)
        return VL_ROW_KEPT;
    vl_fail(e, VL_E_DATA,
            "%s of %zu tokens, the limit is %" PRId64
            ": raise data.max_%s to %zu, or choose --truncation filter, left, right or middle",
            what, n, max, key, n);
    return VL_ROW_BAD;
}

/* data.max_length. Right takes from the responses' ends; left and middle from the prompt, as long
 * as it has tokens. */
static int fit_together(const struct vl_row_work *w, struct vl_row *r, size_t longest,
                        struct vl_err *e)
{
    size_t max = (size_t)w->o->max_length, keep = r->prompt.n;

    if (strcmp(w->o->truncation, "right") != 0 && keep + longest > max)
        keep = !keep ? 0 : longest + 1 < max ? max - longest : 1;
    if (keep >= max)
        return vl_fail(e, VL_E_DATA,
                       "the prompt of %zu tokens leaves no room for a response in "
                       "data.max_length=%zu: raise it, or choose --truncation left or filter",
                       r->prompt.n, max);
    shorten(r, &r->prompt, keep, w->o->truncation);
    for (int k = 0; k < 2; k++)
        shorten(r, &r->reply[k].ids, max - keep, "right");
    return 0;
}

/* An answer is read from its start: whichever policy cuts, its end goes. */
static enum vl_row_fate limit(const struct vl_row_work *w, struct vl_row *r, struct vl_err *e)
{
    const struct vl_data_opts *o = w->o;
    const struct vl_ids *a = &r->reply[0].ids, *b = &r->reply[1].ids;
    size_t longest = a->n > b->n ? a->n : b->n;
    const char *what = !o->preference ? "response" : a->n < b->n ? "rejected" : "chosen";
    enum vl_row_fate fate = over(w, r, r->prompt.n, o->max_prompt, "prompt", "prompt_length", e);

    r->size = (struct vl_row_size){ r->prompt.n, longest };
    if (fate == VL_ROW_KEPT)
        fate = over(w, r, longest, o->max_response, what, "response_length", e);
    if (fate != VL_ROW_KEPT)
        return fate;
    if (o->max_prompt != VL_NULL_I64)
        shorten(r, &r->prompt, (size_t)o->max_prompt, o->truncation);
    for (int k = 0; k < 2 && o->max_response != VL_NULL_I64; k++)
        shorten(r, &r->reply[k].ids, (size_t)o->max_response, "right");
    longest = a->n > b->n ? a->n : b->n;
    if (!o->sft && !o->preference)
        return fate;
    fate = over(w, r, r->prompt.n + longest, o->max_length, "prompt and response", "length", e);
    if (fate == VL_ROW_KEPT && o->max_length != VL_NULL_I64 && fit_together(w, r, longest, e))
        fate = VL_ROW_BAD;
    return fate;
}

/* The object that a line is, checked. */
static int open_row(struct vl_row_work *w, struct vl_row *r, struct vl_err *e)
{
    if (map(w, &w->lines->line[r->index], r, e))
        return w->o->dataset ? vl_err_prefix(e, "no row of --dataset %s", w->o->dataset) : e->code;
    if (vl_json_parse(&r->j, r->json, strlen(r->json), "", e))
        return e->code;
    if (!vl_json_is(&r->j, 0, VL_JSON_OBJECT))
        return vl_fail(e, VL_E_DATA, "the row is %s, wanted an object", vl_json_kind(&r->j, 0));
    find_parts(w, r);
    return check_members(w, r, e) || check_scorer(w, r, e);
}

static int at_line(const struct vl_row_work *w, int64_t index, struct vl_err *e)
{
    const struct vl_line *line = &w->lines->line[index];

    if (strncmp(e->msg, ": ", 2) == 0) /* of the parser, which was given no name */
        memmove(e->msg, e->msg + 2, strlen(e->msg) - 1);
    return vl_err_prefix(e, "%s:%" PRId64, w->lines->path[line->file], line->number);
}

int vl_row_check(struct vl_row_work *w, int64_t index, struct vl_err *e)
{
    struct vl_row r = { .index = index };
    const struct vl_line *line = &w->lines->line[index];

    if (w->jq) /* the filter is not run on rows of other batches: that takes long */
        (void)!vl_json_parse(&r.j, line->s, line->n, "", e);
    else
        (void)!open_row(w, &r, e);
    vl_row_free(&r);
    return e->code ? at_line(w, index, e) : 0;
}

enum vl_row_fate vl_row_make(struct vl_row_work *w, struct vl_row *r, struct vl_err *e)
{
    enum vl_row_fate fate = VL_ROW_BAD;

    if (open_row(w, r, e) == 0 && vl_row_tokenize(w, r, e) == 0)
        fate = limit(w, r, e);
    if (e->code)
        at_line(w, r->index, e);
    r->done = fate == VL_ROW_KEPT;
    return e->code ? VL_ROW_BAD : fate;
}

int vl_row_untrained(const struct vl_data_opts *o, const struct vl_row *r)
{
    for (int k = 0; k < o->sft + 2 * o->preference; k++) {
        const struct vl_reply *a = &r->reply[k];

        if (!a->ids.n || (a->mask && !memchr(a->mask, 1, a->ids.n)))
            return 1;
    }
    return 0;
}
