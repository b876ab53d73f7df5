/* data_turns.c - which tokens of a conversation are the assistant's.
 *
 * The template is run on the conversation's beginnings: what turn k adds is what rendering up to it
 * adds to rendering up to its generation prompt. So the tokens before a turn are exactly those that
 * a rollout would be given, and a template that rewrites earlier turns is noticed, not guessed at. */
#include "libverl/run/data_talk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The text of a conversation and where its pieces end; piece 0 is the prompt. */
struct pieces {
    struct vl_buf text;
    size_t *end;
    unsigned char *trained;
    size_t n;
    struct vl_buf last; /* what was rendered last */
    int loose;          /* some context is that of messages alone */
};

static void pieces_free(struct pieces *p)
{
    vl_buf_free(&p->text);
    vl_buf_free(&p->last);
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

/* The pieces of a conversation are found by rendering its beginnings: `last` is the one before. */
static int differs(const struct pieces *p, const struct vl_buf *now, int64_t n, struct vl_err *e)
{
    const struct vl_buf *last = &p->last;
    struct vl_buf was = { 0 }, is = { 0 };
    size_t same = 0;

    while (same < last->n && same < now->n && last->s[same] == now->s[same])
        same++;
    if (same == last->n)
        return 0;
    while (same && (last->s[same] & 0xC0) == 0x80)
        same--;
    quote(&was, last->s + same, last->n - same);
    quote(&is, now->s + same, now->n - same);
    vl_fail(
        e, VL_E_DATA,
        "the chat template does not write message %" PRId64
        " after what comes before it: where that has %s it has %s. Train on the last turn alone "
        "(--mask last), take each turn as it is when it is the last "
        "(data.ignore_input_ids_mismatch=true), or give another template (--template)",
        n, was.s, is.s);
    vl_buf_free(&was);
    vl_buf_free(&is);
    return 1;
}

/* What messages first..n - 1 and a generation prompt are, where they cannot be had from the whole:
 * each as it is alone. */
static int add_context(struct vl_row_work *w, const struct vl_row *r, const struct vl_talk *t,
                       int64_t first, int64_t n, struct vl_buf *out, struct vl_err *e)
{
    struct vl_buf with = { 0 }, without = { 0 };

    for (int64_t k = first; k < n && !e->code; k++)
        (void)!vl_talk_alone(w, r, t, k, 0, out, e);
    if (!e->code && vl_talk_alone(w, r, t, n - 1, 0, &without, e) == 0 &&
        vl_talk_alone(w, r, t, n - 1, 1, &with, e) == 0) {
        if (with.n < without.n || (without.n && memcmp(with.s, without.s, without.n) != 0))
            vl_fail(e, VL_E_DATA, "the chat template has no generation prompt of its own");
        else if (with.n > without.n)
            vl_buf_add(out, with.s + without.n, with.n - without.n);
    }
    vl_buf_free(&with);
    vl_buf_free(&without);
    return e->code;
}

/* Renders the first n messages and adds what they have beyond the piece before, which ended with
 * message `done`; gen: this is context, which ends with a generation prompt. */
static int add_piece(struct vl_row_work *w, const struct vl_row *r, const struct vl_talk *t,
                     int64_t done, int64_t n, int gen, struct pieces *p, struct vl_err *e)
{
    struct vl_buf now = { 0 };
    struct vl_err why = { 0 };

    if (vl_talk_render(w, r, t, n, gen, &now, e)) {
        vl_buf_free(&now);
        return e->code;
    }
    if (!differs(p, &now, n, &why)) {
        if (now.n > p->last.n)
            vl_buf_add(&p->text, now.s + p->last.n, now.n - p->last.n);
    } else if (gen && done < n && w->o->ignore_mismatch) {
        (void)!add_context(w, r, t, done, n, &p->text, e);
        p->loose = 1;
    } else {
        *e = why;
    }
    vl_buf_free(&p->last);
    p->last = now;
    p->end = vl_realloc(p->end, (p->n + 1) * sizeof *p->end);
    p->trained = vl_realloc(p->trained, p->n + 1);
    p->end[p->n] = p->text.n;
    p->trained[p->n++] = !gen;
    return e->code;
}

/* Ids from n on are trained on, or not. */
static void mark(struct vl_reply *a, size_t n, int trained)
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

    if (vl_row_encode(w, r, p->text.s, p->text.n, &whole, e))
        return e->code;
    for (size_t k = 0; k < p->n && !e->code; k++) {
        struct vl_ids part = { 0 };
        struct vl_ids *to = k ? &reply->ids : prompt;
        size_t had = to->n;

        if (!split && vl_row_encode(w, r, p->text.s, p->end[k], &part, e) == 0)
            split = part.n > whole.n || part.n < at ||
                    (part.n && memcmp(part.id, whole.id, part.n * sizeof *part.id) != 0);
        if (split && !w->o->ignore_mismatch) {
            vl_fail(e, VL_E_DATA,
                    "tokens of the conversation straddle the place where the assistant's turn %zu "
                    "%s, so a rollout would be given others: write that turn differently, or cut "
                    "them there with data.ignore_input_ids_mismatch=true",
                    k / 2 + 1, k % 2 ? "ends" : "begins");
        } else if (split) { /* piece by piece, from here on */
            size_t from = k ? p->end[k - 1] : 0;

            if (p->end[k] > from)
                (void)!vl_row_encode(w, r, p->text.s + from, p->end[k] - from, to, e);
        } else {
            for (; at < part.n; at++)
                vl_ids_add(to, whole.id[at]);
        }
        if (k && !e->code)
            mark(reply, had, p->trained[k]);
        vl_ids_free(&part);
    }
    w->straddled += split && !e->code;
    vl_ids_free(&whole);
    return e->code;
}

int vl_tokenize_turns(struct vl_row_work *w, const struct vl_row *r, const struct vl_talk *t,
                      int64_t from, struct vl_ids *prompt, struct vl_reply *reply, struct vl_err *e)
{
    struct pieces p = { 0 };
    int64_t done = 0;

    if (!vl_talk_ends(w, r))
        return vl_fail(
            e, VL_E_DATA,
            "the chat template writes a generation prompt after every conversation, asked "
            "for or not, so it would be trained on as part of the turn: give one that "
            "heeds add_generation_prompt (--template FILE)");
    for (int64_t k = from; k < t->n && !e->code; k++)
        if (t->assistant[k] && add_piece(w, r, t, done, k, 1, &p, e) == 0) {
            (void)!add_piece(w, r, t, k, k + 1, 0, &p, e);
            done = k + 1;
        }
    if (!e->code)
        (void)!tokenize_pieces(w, r, &p, prompt, reply, e);
    w->templated++;
    w->loose += p.loose;
    pieces_free(&p);
    return e->code;
}
