/* data_render.c - from a checked row to token ids: its prompt, and what is trained on.
 *
 * A string is text, tokenized with the special tokens the tokenizer itself adds. Messages go through
 * the chat template, and nothing is added to what it wrote. */
#include "libverl/run/data_talk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
    struct vl_talk t = { 0 };

    if (vl_json_str(&r->j, at, &text) && !w->o->chat) {
        vl_json_raw(&r->j, at, &raw);
        (void)!vl_tok_encode(w->tok, text.s ? text.s : "", text.n,
                             VL_TOK_SPECIAL | (w->o->plain_special ? VL_TOK_NO_PARSE : 0),
                             &r->prompt, e);
    } else {
        vl_buf_reset(&text);
        vl_talk_begin(&t, w, &r->j, at, r->j.node[at].count);
        vl_talk_cut(&t, t.n, &raw);
        if (vl_talk_render(w, r, &t, t.n, 1, &text, e) == 0)
            (void)!vl_row_encode(w, r, text.s, text.n, &r->prompt, e);
        w->templated++;
    }
    if (!e->code)
        check_bos(w, &r->prompt);
    r->prompt_json = vl_buf_detach(&raw);
    vl_talk_free(&t);
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
static int tokenize_talk(struct vl_row_work *w, struct vl_row *r, const struct vl_talk *t,
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
        vl_talk_cut(t, from, &raw);
        r->prompt_json = vl_buf_detach(&raw);
    }
    if (vl_tokenize_turns(w, r, t, from, prompt, reply, e) == 0)
        check_bos(w, prompt);
    return e->code;
}

static int tokenize_sft(struct vl_row_work *w, struct vl_row *r, struct vl_err *e)
{
    const struct vl_row_parts *p = &r->parts;
    struct vl_talk t = { 0 };
    int64_t from, at = p->messages >= 0 ? p->messages : p->prompt;

    if (p->messages < 0 && vl_json_is(&r->j, p->answer[0], VL_JSON_STRING))
        return tokenize_prompt(w, r, p->prompt, e) ||
               tokenize_answer(w, r, p->answer[0], 0, &r->reply[0], e);
    vl_talk_begin(&t, w, &r->j, at, r->j.node[at].count);
    from = p->messages >= 0 ? 0 : t.n;
    if (p->messages < 0)
        vl_talk_add(&t, &r->j, p->answer[0], 0, r->j.node[p->answer[0]].count);
    while (from < t.n && !t.assistant[from])
        from++;
    for (int64_t k = from; k < t.n && strcmp(w->o->mask, "last") == 0; k++)
        from = t.assistant[k] ? k : from;
    (void)!tokenize_talk(w, r, &t, from, &r->prompt, &r->reply[0], e);
    vl_talk_free(&t);
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
        struct vl_talk t = { 0 };

        vl_talk_begin(&t, w, &r->j, at, p->prompt >= 0 ? r->j.node[at].count : shared);
        from = t.n;
        vl_talk_add(&t, &r->j, p->answer[k], shared, r->j.node[p->answer[k]].count);
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
        vl_talk_free(&t);
    }
    return e->code;
}

/* Whether the row has what a model that sees and hears would get. */
static int has_media(const struct vl_row *r)
{
    static const char *const names[] = { "images", "image", "videos", "video", "audios", "audio" };

    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        int64_t at = vl_json_get(&r->j, 0, names[k]);

        if (at >= 0 && !vl_json_is(&r->j, at, VL_JSON_NULL) &&
            !(vl_json_is(&r->j, at, VL_JSON_ARRAY) && !r->j.node[at].count))
            return 1;
    }
    return 0;
}

int vl_row_tokenize(struct vl_row_work *w, struct vl_row *r, struct vl_err *e)
{
    const struct vl_row_parts *p = &r->parts;
    const int64_t at[] = { p->prompt, p->messages, p->answer[0], p->answer[1] };

    w->media += has_media(r);
    for (int k = 0; k < 4; k++)
        r->special += at[k] < 0 ? 0 : vl_count_special(w, &r->j, at[k]);
    if (w->o->sft)
        return tokenize_sft(w, r, e);
    if (!w->o->preference)
        return tokenize_prompt(w, r, p->prompt, e);
    return vl_json_is(&r->j, p->answer[0], VL_JSON_STRING) ? text_pair(w, r, e)
                                                           : message_pair(w, r, e);
}
