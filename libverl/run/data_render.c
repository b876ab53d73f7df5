/* data_render.c - from a checked row to token ids: its prompt, and what is trained on.
 *
 * A string is text, tokenized with the special tokens the tokenizer itself adds. Messages go through
 * the chat template, and nothing is added to what it wrote. To find the assistant's tokens of a
 * conversation the template is run on its beginnings: what turn k adds is what rendering up to it
 * adds to rendering up to its generation prompt. So the tokens before a turn are exactly those that
 * a rollout would be given, and a template that rewrites earlier turns is noticed, not guessed at. */
#include "libverl/run/data_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

/* A conversation as JSON text; end[k] is where message k ends, so that any beginning can be cut. */
struct talk {
    struct vl_buf text; /* "[m0, m1, ..." without the closing bracket */
    size_t *end;
    unsigned char *assistant;
    int64_t n;
};

static void talk_free(struct talk *t)
{
    vl_buf_free(&t->text);
    free(t->end);
    free(t->assistant);
    *t = (struct talk){ 0 };
}

static void talk_next(struct talk *t)
{
    t->end = vl_realloc(t->end, (size_t)(t->n + 1) * sizeof *t->end);
    t->assistant = vl_realloc(t->assistant, (size_t)(t->n + 1));
    vl_buf_str(&t->text, t->n ? ", " : "[");
}

static void talk_done(struct talk *t, int assistant)
{
    t->end[t->n] = t->text.n;
    t->assistant[t->n++] = (unsigned char)assistant;
}

static void talk_say(struct talk *t, const char *role, const char *content, size_t n)
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

/* Adds messages first..last of a list, or a string as one user message. */
static void talk_add(struct talk *t, const struct vl_json *j, int64_t at, int64_t first,
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

/* The list or string, after the system message of --system where it has none. */
static void talk_begin(struct talk *t, const struct vl_row_work *w, const struct vl_json *j,
                       int64_t at, int64_t last)
{
    const char *system = w->o->system;

    if (system && !vl_json_streq(j, vl_json_get(j, vl_json_at(j, at, 0), "role"), "system"))
        talk_say(t, "system", system, strlen(system));
    talk_add(t, j, at, 0, last);
}

/* The JSON text of the first n messages, appended. */
static void talk_cut(const struct talk *t, int64_t n, struct vl_buf *out)
{
    if (n)
        vl_buf_add(out, t->text.s, t->end[n - 1]);
    else
        vl_buf_ch(out, '[');
    vl_buf_ch(out, ']');
}

/* ---- special tokens in content ---- */

/* Special tokens spelled by what people wrote: a string, each content string, or a part's text. */
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

/* The first n messages as the template writes them, appended; gen: with a generation prompt. */
static int render(struct vl_row_work *w, const struct vl_row *r, const struct talk *t, int64_t n,
                  int gen, struct vl_buf *out, struct vl_err *e)
{
    int64_t tools_at = vl_json_get(&r->j, 0, w->o->tools_key);
    struct vl_buf tools = { 0 }, messages = { 0 }, marked = { 0 };
    struct vl_chat *chat = find_chat(w, r, e);
    const struct vl_buf *m = &messages;

    if (!chat)
        return e->code;
    if (vl_json_is(&r->j, tools_at, VL_JSON_ARRAY))
        vl_json_raw(&r->j, tools_at, &tools);
    talk_cut(t, n, &messages);
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

static int encode(const struct vl_row_work *w, const struct vl_row *r, const char *s, size_t n,
                  struct vl_ids *out, struct vl_err *e)
{
    return vl_tok_encode(w->tok, s ? s : "", n,
                         w->o->plain_special && r->special ? VL_TOK_MARKED : 0, out, e);
}

/* ---- turns of a conversation ---- */

/* The text of a conversation and where its pieces end; piece 0 is the prompt. */
struct pieces {
    struct vl_buf text;
    size_t *end;
    unsigned char *trained;
    size_t n;
};

static void pieces_free(struct pieces *p)
{
    vl_buf_free(&p->text);
    free(p->end);
    free(p->trained);
}

static void quote(struct vl_buf *b, const char *s, size_t n)
{
    size_t most = n < 40 ? n : 40;

    while (most < n && most && (s[most] & 0xC0) == 0x80)
        most--;
    (void)vl_json_put_str(b, s, most);
}

/* Renders the first n messages and adds what they have beyond the pieces so far as a piece. */
static int add_piece(struct vl_row_work *w, const struct vl_row *r, const struct talk *t, int64_t n,
                     int gen, struct pieces *p, struct vl_err *e)
{
    struct vl_buf now = { 0 }, was = { 0 }, is = { 0 };
    size_t same = 0;

    if (render(w, r, t, n, gen, &now, e)) {
        vl_buf_free(&now);
        return e->code;
    }
    while (same < p->text.n && same < now.n && p->text.s[same] == now.s[same])
        same++;
    if (same < p->text.n) {
        while (same && (p->text.s[same] & 0xC0) == 0x80)
            same--;
        quote(&was, p->text.s + same, p->text.n - same);
        quote(&is, now.s + same, now.n - same);
        vl_fail(e, VL_E_DATA,
                "the chat template does not write message %" PRId64
                " after what comes before it: where that has %s it has %s. Train on the last turn "
                "alone (--mask last), give such a template with --template, or make prompt and "
                "response strings",
                n, was.s, is.s);
    }
    p->end = vl_realloc(p->end, (p->n + 1) * sizeof *p->end);
    p->trained = vl_realloc(p->trained, p->n + 1);
    p->end[p->n] = now.n;
    p->trained[p->n++] = !gen;
    vl_buf_free(&p->text);
    vl_buf_free(&was);
    vl_buf_free(&is);
    p->text = now;
    return e->code;
}

static void trim(struct vl_reply *a, size_t n, int trained)
{
    a->mask = vl_realloc(a->mask, a->ids.n ? a->ids.n : 1);
    memset(a->mask + n, trained, a->ids.n - n);
}

/* The pieces' ids: those of the whole text, cut where the ids of its beginnings end. Where a piece
 * cannot be cut out so (the tokens straddle its end) training would see other ids than a rollout. */
static int tokenize_pieces(struct vl_row_work *w, const struct vl_row *r, const struct pieces *p,
                           struct vl_ids *prompt, struct vl_reply *reply, struct vl_err *e)
{
    struct vl_ids whole = { 0 };
    size_t at = 0;
    int split = 0;

    if (encode(w, r, p->text.s, p->text.n, &whole, e))
        return e->code;
    for (size_t k = 0; k < p->n && !e->code; k++) {
        struct vl_ids part = { 0 };
        struct vl_ids *to = k ? &reply->ids : prompt;
        size_t had = to->n;

        if (!split && encode(w, r, p->text.s, p->end[k], &part, e) == 0)
            split = part.n > whole.n || part.n < at ||
                    memcmp(part.id, whole.id, part.n * sizeof *part.id) != 0;
        if (split && !w->o->ignore_mismatch) {
            vl_fail(e, VL_E_DATA,
                    "tokens of the conversation straddle the place where the assistant's turn %zu "
                    "%s, so a rollout would be given others: write that turn differently, or cut "
                    "them there with data.ignore_input_ids_mismatch=true",
                    k / 2 + 1, k % 2 ? "ends" : "begins");
        } else if (split) { /* piece by piece, from here on */
            size_t from = k ? p->end[k - 1] : 0;

            (void)!encode(w, r, p->text.s + from, p->end[k] - from, to, e);
        } else {
            for (; at < part.n; at++)
                vl_ids_add(to, whole.id[at]);
        }
        if (k && !e->code)
            trim(reply, had, p->trained[k]);
        vl_ids_free(&part);
    }
    w->straddled += split;
    vl_ids_free(&whole);
    return e->code;
}

/* Messages from.. are the response: their assistant's tokens are trained on, the others are not.
 * What follows the last assistant message is neither. */
static int tokenize_turns(struct vl_row_work *w, const struct vl_row *r, const struct talk *t,
                          int64_t from, struct vl_ids *prompt, struct vl_reply *reply,
                          struct vl_err *e)
{
    struct pieces p = { 0 };

    for (int64_t k = from; k < t->n && !e->code; k++)
        if (t->assistant[k] && add_piece(w, r, t, k, 1, &p, e) == 0)
            (void)!add_piece(w, r, t, k + 1, 0, &p, e);
    if (!e->code)
        (void)!tokenize_pieces(w, r, &p, prompt, reply, e);
    w->templated++;
    pieces_free(&p);
    return e->code;
}

/* ---- the forms of a row ---- */

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

/* A prompt that a rollout goes on from: ids, and raw_prompt as it is recorded. */
static int tokenize_prompt(struct vl_row_work *w, struct vl_row *r, int64_t at, struct vl_err *e)
{
    struct vl_buf text = { 0 }, raw = { 0 };
    struct talk t = { 0 };

    if (vl_json_str(&r->j, at, &text) && !w->o->chat) {
        vl_json_raw(&r->j, at, &raw);
        (void)!vl_tok_encode(w->tok, text.s ? text.s : "", text.n,
                             VL_TOK_SPECIAL | (w->o->plain_special ? VL_TOK_NO_PARSE : 0),
                             &r->prompt, e);
    } else {
        vl_buf_reset(&text);
        talk_begin(&t, w, &r->j, at, r->j.node[at].count);
        talk_cut(&t, t.n, &raw);
        if (render(w, r, &t, t.n, 1, &text, e) == 0)
            (void)!encode(w, r, text.s, text.n, &r->prompt, e);
        w->templated++;
        check_bos(w, &r->prompt);
    }
    r->prompt_json = vl_buf_detach(&raw);
    talk_free(&t);
    vl_buf_free(&text);
    return e->code;
}

/* A response that is text: bytes `from` on of the string, and the end token. */
static int tokenize_answer(struct vl_row_work *w, struct vl_row *r, int64_t at, size_t from,
                           struct vl_reply *reply, struct vl_err *e)
{
    struct vl_buf text = { 0 };

    vl_json_str(&r->j, at, &text);
    if (vl_tok_encode(w->tok, text.s ? text.s + from : "", text.n - from,
                      w->o->plain_special ? VL_TOK_NO_PARSE : 0, &reply->ids, e) == 0 &&
        w->o->eos)
        vl_ids_add(&reply->ids, vl_tok_eos(w->tok));
    vl_buf_free(&text);
    return e->code;
}

/* A conversation whose messages from `from` on are the response. */
static int tokenize_talk(struct vl_row_work *w, struct vl_row *r, const struct talk *t,
                         int64_t from, struct vl_ids *prompt, struct vl_reply *reply,
                         struct vl_err *e)
{
    struct vl_buf raw = { 0 };

    if (from <= 0 || from >= t->n)
        return vl_fail(e, VL_E_DATA,
                       from ? "no assistant message to train on"
                            : "the first message is the assistant's: there is "
                              "nothing that it answers");
    if (!r->prompt_json) {
        talk_cut(t, from, &raw);
        r->prompt_json = vl_buf_detach(&raw);
    }
    if (tokenize_turns(w, r, t, from, prompt, reply, e) == 0)
        check_bos(w, prompt);
    return e->code;
}

static int tokenize_sft(struct vl_row_work *w, struct vl_row *r, struct vl_err *e)
{
    const struct vl_row_parts *p = &r->parts;
    struct talk t = { 0 };
    int64_t from, at = p->messages >= 0 ? p->messages : p->prompt;

    if (p->messages < 0 && vl_json_is(&r->j, p->answer[0], VL_JSON_STRING))
        return tokenize_prompt(w, r, p->prompt, e) ||
               tokenize_answer(w, r, p->answer[0], 0, &r->reply[0], e);
    talk_begin(&t, w, &r->j, at, r->j.node[at].count);
    from = p->messages >= 0 ? 0 : t.n;
    if (p->messages < 0)
        talk_add(&t, &r->j, p->answer[0], 0, r->j.node[p->answer[0]].count);
    while (from < t.n && !t.assistant[from])
        from++;
    for (int64_t k = from; k < t.n && strcmp(w->o->mask, "last") == 0; k++)
        from = t.assistant[k] ? k : from;
    (void)!tokenize_talk(w, r, &t, from, &r->prompt, &r->reply[0], e);
    talk_free(&t);
    return e->code;
}

/* ---- preference pairs ---- */

static int same_value(const struct vl_json *j, int64_t a, int64_t b)
{
    struct vl_buf x = { 0 }, y = { 0 };
    int same;

    vl_json_raw(j, a, &x);
    vl_json_raw(j, b, &y);
    same = x.n == y.n && memcmp(x.s, y.s, x.n) == 0;
    vl_buf_free(&x);
    vl_buf_free(&y);
    return same;
}

/* Messages at the start of both lists that are equal. */
static int64_t shared_messages(const struct vl_json *j, int64_t a, int64_t b)
{
    int64_t n = 0;

    while (vl_json_at(j, a, (uint32_t)n) >= 0 && vl_json_at(j, b, (uint32_t)n) >= 0 &&
           same_value(j, vl_json_at(j, a, (uint32_t)n), vl_json_at(j, b, (uint32_t)n)))
        n++;
    return n;
}

/* Bytes at the start of both strings that are equal, whole characters; a space before the difference
 * belongs to the answers, whose first word it begins. */
static size_t shared_text(const struct vl_buf *a, const struct vl_buf *b)
{
    size_t n = 0;

    while (n < a->n && n < b->n && a->s[n] == b->s[n])
        n++;
    while (n && ((n < a->n && (a->s[n] & 0xC0) == 0x80) || (n < b->n && (b->s[n] & 0xC0) == 0x80)))
        n--;
    return n && a->s[n - 1] == ' ' ? n - 1 : n;
}

static int text_pair(struct vl_row_work *w, struct vl_row *r, struct vl_err *e)
{
    const struct vl_row_parts *p = &r->parts;
    struct vl_buf a = { 0 }, b = { 0 }, raw = { 0 };
    size_t from = 0;

    if (p->prompt >= 0) {
        (void)!tokenize_prompt(w, r, p->prompt, e);
    } else {
        vl_json_str(&r->j, p->answer[0], &a);
        vl_json_str(&r->j, p->answer[1], &b);
        from = shared_text(&a, &b);
        (void)vl_json_put_str(&raw, a.s ? a.s : "", from);
        r->prompt_json = vl_buf_detach(&raw);
        if (!from)
            vl_fail(e, VL_E_DATA, "no prompt: chosen and rejected do not begin alike");
        else
            (void)!vl_tok_encode(w->tok, a.s, from,
                                 VL_TOK_SPECIAL | (w->o->plain_special ? VL_TOK_NO_PARSE : 0),
                                 &r->prompt, e);
    }
    for (int k = 0; k < 2 && !e->code; k++)
        (void)!tokenize_answer(w, r, p->answer[k], from, &r->reply[k], e);
    vl_buf_free(&a);
    vl_buf_free(&b);
    return e->code;
}

static int message_pair(struct vl_row_work *w, struct vl_row *r, struct vl_err *e)
{
    const struct vl_row_parts *p = &r->parts;
    int64_t shared = p->prompt >= 0 ? 0 : shared_messages(&r->j, p->answer[0], p->answer[1]);

    for (int k = 0; k < 2 && !e->code; k++) {
        int64_t from, at = p->prompt >= 0 ? p->prompt : p->answer[k];
        struct vl_ids again = { 0 }; /* the prompt of the second is that of the first */
        struct talk t = { 0 };

        talk_begin(&t, w, &r->j, at, p->prompt >= 0 ? r->j.node[at].count : shared);
        from = t.n;
        talk_add(&t, &r->j, p->answer[k], shared, r->j.node[p->answer[k]].count);
        if (p->prompt < 0 && !shared)
            vl_fail(e, VL_E_DATA, "no prompt: chosen and rejected do not begin alike");
        else if (from >= t.n || !t.assistant[from])
            vl_fail(e, VL_E_DATA,
                    "%s does not go on with an assistant message after the prompt of %" PRId64
                    " messages",
                    k ? "rejected" : "chosen", from);
        else
            (void)!tokenize_talk(w, r, &t, from, k ? &again : &r->prompt, &r->reply[k], e);
        vl_ids_free(&again);
        talk_free(&t);
    }
    return e->code;
}

int vl_row_tokenize(struct vl_row_work *w, struct vl_row *r, struct vl_err *e)
{
    const struct vl_row_parts *p = &r->parts;
    const int64_t at[] = { p->prompt, p->messages, p->answer[0], p->answer[1] };

    for (int k = 0; k < 4; k++)
        r->special += at[k] < 0 ? 0 : count_special(w, &r->j, at[k]);
    if (w->o->sft)
        return tokenize_sft(w, r, e);
    if (!w->o->preference)
        return tokenize_prompt(w, r, p->prompt, e);
    return vl_json_is(&r->j, p->answer[0], VL_JSON_STRING) ? text_pair(w, r, e)
                                                           : message_pair(w, r, e);
}
