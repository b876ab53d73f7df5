/* data_talk.c - conversations as the chat template is given them. See data_talk.h. */
#include "libverl/run/data_talk.h"

#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

void vl_talk_free(struct vl_talk *t)
{
    vl_buf_free(&t->text);
    free(t->end);
    free(t->assistant);
    *t = (struct vl_talk){ 0 };
}

static void talk_next(struct vl_talk *t)
{
    t->end = vl_realloc(t->end, (size_t)(t->n + 1) * sizeof *t->end);
    t->assistant = vl_realloc(t->assistant, (size_t)(t->n + 1));
    vl_buf_str(&t->text, t->n ? ", " : "[");
}

static void talk_done(struct vl_talk *t, int assistant)
{
    t->end[t->n] = t->text.n;
    t->assistant[t->n++] = (unsigned char)assistant;
}

static void talk_say(struct vl_talk *t, const char *role, const char *content, size_t n)
{
    talk_next(t);
    vl_buf_printf(&t->text, "{\"role\": \"%s\", \"content\": ", role);
    vl_json_put_str(&t->text, content, n);
    vl_buf_ch(&t->text, '}');
    talk_done(t, 0);
}

/* An assistant's message, unless it says that it has no weight (OpenAI's files). */
static int is_answer(const struct vl_json *j, int64_t at)
{
    int64_t weight;

    return vl_json_streq(j, vl_json_get(j, at, "role"), "assistant") &&
           !(vl_json_i64(j, vl_json_get(j, at, "weight"), &weight) && weight == 0);
}

void vl_talk_add(struct vl_talk *t, const struct vl_json *j, int64_t at, int64_t first,
                 int64_t last)
{
    uint32_t c = (uint32_t)at + 1;

    if (vl_json_is(j, at, VL_JSON_STRING)) {
        talk_next(t);
        vl_buf_str(&t->text, "{\"role\": \"user\", \"content\": ");
        vl_json_raw(j, at, &t->text);
        vl_buf_ch(&t->text, '}');
        talk_done(t, 0);
        return;
    }
    for (int64_t k = 0; k < last; k++, c = j->node[c].next) {
        if (k < first)
            continue;
        talk_next(t);
        vl_json_raw(j, c, &t->text);
        talk_done(t, is_answer(j, c));
    }
}

void vl_talk_begin(struct vl_talk *t, const struct vl_row_work *w, const struct vl_json *j,
                   int64_t at, int64_t last)
{
    const char *system = w->o->system;

    if (system && !vl_json_streq(j, vl_json_get(j, vl_json_at(j, at, 0), "role"), "system"))
        talk_say(t, "system", system, strlen(system));
    vl_talk_add(t, j, at, 0, last);
}

void vl_talk_cut(const struct vl_talk *t, int64_t n, struct vl_buf *out)
{
    if (n)
        vl_buf_add(out, t->text.s, t->end[n - 1]);
    else
        vl_buf_ch(out, '[');
    vl_buf_ch(out, ']');
}

/* ---- special tokens in content ---- */

int64_t vl_count_special(const struct vl_row_work *w, const struct vl_json *j, int64_t at)
{
    int object = vl_json_is(j, at, VL_JSON_OBJECT);
    uint32_t k, c, n = object || vl_json_is(j, at, VL_JSON_ARRAY) ? j->node[at].count : 0;
    struct vl_buf s = { 0 };
    int64_t found = 0;

    if (vl_json_str(j, at, &s))
        found = vl_tok_count_special(w->tok, s.s ? s.s : "", s.n);
    for (k = 0, c = (uint32_t)at + 1; k < n; k++, c = j->node[c + object].next)
        if (!object || !vl_json_streq(j, c, "role"))
            found += vl_count_special(w, j, c + object);
    vl_buf_free(&s);
    return found;
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

/* Copies a message, or a value in one, with all its strings marked but roles and names of members: the
 * arguments of a tool call and reasoning are what people and models wrote, too. */
static int mark_value(const struct vl_row_work *w, const struct vl_json *j, int64_t at,
                      struct vl_buf *out, struct vl_err *e)
{
    int object = vl_json_is(j, at, VL_JSON_OBJECT);
    uint32_t k, c;

    if (!object && !vl_json_is(j, at, VL_JSON_ARRAY))
        return put_marked(w, j, at, out, e);
    vl_buf_ch(out, object ? '{' : '[');
    for (k = 0, c = (uint32_t)at + 1; k < j->node[at].count; k++, c = j->node[c + object].next) {
        vl_buf_str(out, k ? ", " : "");
        if (object) {
            vl_json_raw(j, c, out);
            vl_buf_str(out, ": ");
        }
        if (object && vl_json_streq(j, c, "role"))
            vl_json_raw(j, c + 1, out);
        else if (mark_value(w, j, c + object, out, e))
            return e->code;
    }
    vl_buf_ch(out, object ? '}' : ']');
    return 0;
}

/* The messages with marks in what they spell (--plain-special). */
static int mark_messages(const struct vl_row_work *w, const char *messages, struct vl_buf *out,
                         struct vl_err *e)
{
    struct vl_json j = { 0 };

    if (vl_json_parse(&j, messages, strlen(messages), "messages", e) == 0)
        (void)!mark_value(w, &j, 0, out, e);
    vl_json_free(&j);
    return e->code;
}

/* ---- templates ---- */

/* The template as this row wants it: its member enable_thinking is a variable of it. */
static struct vl_chat *find_chat(struct vl_row_work *w, const struct vl_row *r, struct vl_err *e)
{
    int on;

    if (!w->chat) {
        vl_fail(e, VL_E_DATA,
                "the prompt is a list of messages, but %s; give a template with --template FILE "
                "(Jinja), or make the prompt a string (--map)",
                w->o->tmpl ? "--template none was given" : "the tokenizer has no chat template");
        return NULL;
    }
    if (!vl_json_bool(&r->j, vl_json_get(&r->j, 0, w->o->thinking_key), &on))
        return w->chat;
    if (!w->chat_thinking[on])
        (void)!vl_row_work_chat(w, on, &w->chat_thinking[on], e);
    return w->chat_thinking[on];
}

int vl_talk_render(struct vl_row_work *w, const struct vl_row *r, const struct vl_talk *t,
                   int64_t n, int gen, struct vl_buf *out, struct vl_err *e)
{
    int64_t tools_at = vl_json_get(&r->j, 0, w->o->tools_key);
    struct vl_buf tools = { 0 }, messages = { 0 }, marked = { 0 };
    struct vl_chat *chat = find_chat(w, r, e);
    const struct vl_buf *m = &messages;

    if (!chat)
        return e->code;
    if (vl_json_is(&r->j, tools_at, VL_JSON_ARRAY))
        vl_json_raw(&r->j, tools_at, &tools);
    vl_talk_cut(t, n, &messages);
    if (w->o->plain_special && r->special) {
        m = &marked;
        (void)!mark_messages(w, messages.s, &marked, e);
    }
    if (!e->code)
        (void)!vl_chat_apply(chat, m->s, m->n, tools.s, gen, out, e);
    vl_buf_free(&messages);
    vl_buf_free(&marked);
    vl_buf_free(&tools);
    return e->code;
}

int vl_row_encode(const struct vl_row_work *w, const struct vl_row *r, const char *s, size_t n,
                  struct vl_ids *out, struct vl_err *e)
{
    return vl_tok_encode(w->tok, s ? s : "", n,
                         w->o->plain_special && r->special ? VL_TOK_MARKED : 0, out, e);
}

/* Message k as if it were the only one, without the system prompt that a template adds by itself:
 * that is what two equal messages have once. */
int vl_talk_alone(struct vl_row_work *w, const struct vl_row *r, const struct vl_talk *t, int64_t k,
                  int gen, struct vl_buf *out, struct vl_err *e)
{
    struct vl_talk one = { 0 }, user = { 0 };
    struct vl_buf text = { 0 }, single = { 0 }, twice = { 0 };
    size_t from = k ? t->end[k - 1] + 2 : 1, system = 0;

    talk_next(&one);
    vl_buf_add(&one.text, t->text.s + from, t->end[k] - from);
    talk_done(&one, 0);
    talk_say(&user, "user", "", 0);
    talk_say(&user, "user", "", 0);
    if (vl_talk_render(w, r, &one, 1, gen, &text, e) == 0 &&
        vl_talk_render(w, r, &user, 1, 0, &single, e) == 0 &&
        vl_talk_render(w, r, &user, 2, 0, &twice, e) == 0) {
        size_t unit = twice.n > single.n ? twice.n - single.n : 0;

        system = unit <= single.n ? single.n - unit : 0;
        if (!unit || unit > single.n || memcmp(twice.s, single.s, single.n) != 0 ||
            memcmp(twice.s + single.n, single.s + system, unit) != 0)
            vl_fail(e, VL_E_DATA,
                    "the chat template does not write messages one after the other, so they cannot "
                    "be taken one by one: --mask last trains on the last turn");
        else if (system > text.n || (system && memcmp(text.s, single.s, system) != 0))
            system = 0; /* a system message of its own */
    }
    if (!e->code && text.n > system)
        vl_buf_add(out, text.s + system, text.n - system);
    vl_talk_free(&one);
    vl_talk_free(&user);
    vl_buf_free(&text);
    vl_buf_free(&single);
    vl_buf_free(&twice);
    return e->code;
}

static int starts_with(const struct vl_buf *b, const struct vl_buf *start)
{
    return b->n >= start->n && (!start->n || memcmp(b->s, start->s, start->n) == 0);
}

/* What follows the turn in two, and is not there any more in three, ends one as well. */
static int same_end(const struct vl_buf *one, const struct vl_buf *two, const struct vl_buf *three)
{
    size_t same = 0, end = 0;

    while (same < two->n && same < three->n && two->s[same] == three->s[same])
        same++;
    while (end < one->n && end < two->n - one->n &&
           one->s[one->n - 1 - end] == two->s[two->n - 1 - end])
        end++;
    return same < two->n && two->n - same <= end;
}

int vl_talk_ends(struct vl_row_work *w, const struct vl_row *r)
{
    struct vl_buf one = { 0 }, asked = { 0 }, two = { 0 }, three = { 0 };
    struct vl_talk t = { 0 };
    struct vl_err no = { 0 };

    if (w->ends)
        return w->ends > 0;
    talk_say(&t, "user", "a", 1);
    talk_say(&t, "assistant", "b", 1);
    talk_say(&t, "user", "c", 1);
    w->ends = 1;
    if (vl_talk_render(w, r, &t, 1, 0, &one, &no) == 0 &&
        vl_talk_render(w, r, &t, 1, 1, &asked, &no) == 0 &&
        vl_talk_render(w, r, &t, 2, 0, &two, &no) == 0 &&
        vl_talk_render(w, r, &t, 3, 0, &three, &no) == 0 && one.n == asked.n &&
        starts_with(&asked, &one) && starts_with(&two, &one) && same_end(&one, &two, &three))
        w->ends = -1;
    vl_talk_free(&t);
    vl_buf_free(&one);
    vl_buf_free(&asked);
    vl_buf_free(&two);
    vl_buf_free(&three);
    return w->ends > 0;
}
