/* pretok.c - the pre-tokenizers of tokenizer.json: one text into the pieces that BPE sees.
 *
 * A piece is a span of one buffer; a step either cuts spans (Split, Digits, ...) or rewrites the
 * text as well (ByteLevel, Metaspace). Each piece is matched alone: the regexes see its ends as
 * the ends of the text, as in the reference. */
#include "libverl/text/tok_impl.h"

#include <stdlib.h>
#include <string.h>

#include "libverl/text/unicode.h"

const char vl_bytelevel_regex[] =
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

uint32_t vl_byte_char(unsigned char b)
{
    if ((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174)
        return b;
    /* the others, in order, from U+0100: 0-32, 127-160, 173 */
    return b <= 32 ? 256u + b : b <= 160 ? 256u + 33 + (b - 127u) : 256u + 33 + 34;
}

int vl_char_byte(uint32_t cp)
{
    if (cp < 256)
        return vl_byte_char((unsigned char)cp) == cp ? (int)cp : -1;
    if (cp < 256 + 33)
        return (int)cp - 256;
    if (cp < 256 + 33 + 34)
        return (int)(cp - 256 - 33) + 127;
    return cp == 256 + 33 + 34 ? 173 : -1;
}

void vl_pieces_free(struct vl_pieces *p)
{
    vl_buf_free(&p->text);
    vl_buf_free(&p->next_text);
    vl_buf_free(&p->alike);
    free(p->span);
    free(p->next);
    vl_regex_match_free(p->m);
    *p = (struct vl_pieces){ 0 };
}

/* Empty pieces vanish, as in the reference. */
static void emit(struct vl_pieces *p, size_t at, size_t n)
{
    if (!n)
        return;
    if (p->nnext == p->next_cap) {
        p->next_cap = p->next_cap ? 2 * p->next_cap : 64;
        p->next = vl_realloc(p->next, p->next_cap * sizeof *p->next);
    }
    p->next[p->nnext++] = (struct vl_span){ at, n };
}

/* The next round works on what this one emitted. */
static void swap_spans(struct vl_pieces *p)
{
    struct vl_span *s = p->span;
    size_t cap = p->cap;

    p->span = p->next, p->cap = p->next_cap, p->nspan = p->nnext;
    p->next = s, p->next_cap = cap, p->nnext = 0;
}

static void swap_text(struct vl_pieces *p)
{
    struct vl_buf t = p->text;

    p->text = p->next_text;
    p->next_text = t;
    vl_buf_reset(&p->next_text);
}

/* ---- cutting by matches ---- */

/* Receives the matches and the gaps between them in order and applies a behaviour. */
struct cutter {
    struct vl_pieces *p;
    enum vl_behavior how;
    int invert;
    int any;      /* a span is open */
    int previous; /* the last part was a match */
    size_t at, n; /* the open span */
};

static void close_span(struct cutter *c)
{
    if (c->any)
        emit(c->p, c->at, c->n);
    c->any = 0;
}

static void part(struct cutter *c, size_t at, size_t n, int match)
{
    int join = 0;

    match ^= c->invert;
    switch (c->how) {
    case VL_SPLIT_REMOVED:
        if (!match)
            emit(c->p, at, n);
        return;
    case VL_SPLIT_ISOLATED:
        emit(c->p, at, n);
        return;
    case VL_SPLIT_CONTIGUOUS:
        join = match == c->previous;
        break;
    case VL_SPLIT_WITH_PREVIOUS:
        join = match && !c->previous;
        break;
    case VL_SPLIT_WITH_NEXT: /* a gap joins the match before it */
        join = !match && c->previous;
        break;
    }
    if (join && c->any) {
        c->n += n;
    } else {
        close_span(c);
        c->any = 1, c->at = at, c->n = n;
    }
    c->previous = match;
}

static int split_pattern(const struct vl_pre *s, struct vl_pieces *p, struct vl_err *e)
{
    const char *all = vl_pattern_text(&s->pat, p->text.s, p->text.n, &p->alike);

    for (size_t i = 0; i < p->nspan; i++) {
        const char *text = all + p->span[i].at;
        size_t n = p->span[i].n, base = p->span[i].at, at = 0, from = 0, start = 0, end = 0;
        struct cutter c = { .p = p, .how = s->behavior, .invert = s->invert };
        int found = 0;

        while (from < n &&
               (found = vl_pattern_find(&s->pat, p->m, text, n, from, &start, &end, e)) > 0) {
            if (start == end) {
                uint32_t cp;

                from = end + (end < n ? vl_uc_next(text + end, n - end, &cp) : 1);
                if (start == at) /* an empty match where the last one ended */
                    continue;
            } else {
                from = end;
            }
            if (at != start)
                part(&c, base + at, start - at, 0);
            part(&c, base + start, end - start, 1);
            at = end;
        }
        if (found < 0)
            return e->code;
        if (at != n)
            part(&c, base + at, n - at, 0);
        close_span(&c);
    }
    swap_spans(p);
    return 0;
}

/* Cuts by a property of single characters. */
static void split_chars(const struct vl_pre *s, struct vl_pieces *p, int (*is)(uint32_t))
{
    for (size_t i = 0; i < p->nspan; i++) {
        const char *text = p->text.s;
        size_t at = p->span[i].at, end = at + p->span[i].n, gap = at, k;
        struct cutter c = { .p = p, .how = s->behavior };

        for (; at < end; at += k) {
            uint32_t cp;

            k = vl_uc_next(text + at, end - at, &cp);
            if (!is(cp))
                continue;
            if (gap < at)
                part(&c, gap, at - gap, 0);
            part(&c, at, k, 1);
            gap = at + k;
        }
        if (gap < end)
            part(&c, gap, end - gap, 0);
        close_span(&c);
    }
    swap_spans(p);
}

/* Every so many characters. */
static void fixed_length(const struct vl_pre *s, struct vl_pieces *p)
{
    for (size_t i = 0; i < p->nspan; i++) {
        const char *text = p->text.s;
        size_t at = p->span[i].at, end = at + p->span[i].n, start = at, have = 0;

        while (at < end) {
            uint32_t cp;

            at += vl_uc_next(text + at, end - at, &cp);
            if (++have == s->n || at == end) {
                emit(p, start, at - start);
                start = at, have = 0;
            }
        }
    }
    swap_spans(p);
}

/* ---- steps that rewrite the text ---- */

/* All 256 are below U+0800. */
static char *put_byte_char(char *o, uint32_t cp)
{
    if (cp < 0x80) {
        *o++ = (char)cp;
    } else {
        *o++ = (char)(0xC0 | cp >> 6);
        *o++ = (char)(0x80 | (cp & 0x3F));
    }
    return o;
}

/* Whether the first piece still stands at the very beginning: no step has cut something off there. */
static int at_start(struct vl_pieces *p)
{
    p->first &= p->nspan && p->span[0].at == 0;
    return p->first;
}

static int byte_level(const struct vl_pre *s, struct vl_pieces *p, struct vl_err *e)
{
    (void)at_start(p);
    if (s->prefix_space) {
        for (size_t i = 0; i < p->nspan; i++) {
            size_t at = p->next_text.n;

            if (p->text.s[p->span[i].at] != ' ')
                vl_buf_ch(&p->next_text, ' ');
            vl_buf_add(&p->next_text, p->text.s + p->span[i].at, p->span[i].n);
            emit(p, at, p->next_text.n - at);
        }
        swap_spans(p);
        swap_text(p);
    }
    if (s->pat.re && split_pattern(s, p, e))
        return e->code;
    (void)at_start(p);
    vl_buf_reserve(&p->next_text, 2 * p->text.n);
    for (size_t i = 0; i < p->nspan; i++) {
        const unsigned char *t = (const unsigned char *)p->text.s + p->span[i].at;
        char *o = p->next_text.s + p->next_text.n, *o0 = o;

        for (size_t j = 0; j < p->span[i].n; j++)
            o = put_byte_char(o, vl_byte_char(t[j]));
        emit(p, p->next_text.n, (size_t)(o - o0));
        p->next_text.n += (size_t)(o - o0);
    }
    swap_spans(p);
    swap_text(p);
    return 0;
}

static int metaspace(const struct vl_pre *s, struct vl_pieces *p, struct vl_err *e)
{
    struct vl_pre cut = { .type = VL_PRE_SPLIT, .behavior = VL_SPLIT_WITH_NEXT };
    int first = at_start(p);

    for (size_t i = 0; i < p->nspan; i++) {
        const char *t = p->text.s + p->span[i].at;
        size_t n = p->span[i].n, at = p->next_text.n;
        int starts = t[0] == ' ' || (n >= s->n && memcmp(t, s->text, s->n) == 0);

        if (!starts && (s->prefix_space == 1 || (s->prefix_space == 2 && first && i == 0)))
            vl_buf_add(&p->next_text, s->text, s->n);
        for (size_t j = 0; j < n; j++) {
            if (t[j] == ' ')
                vl_buf_add(&p->next_text, s->text, s->n);
            else
                vl_buf_ch(&p->next_text, t[j]);
        }
        emit(p, at, p->next_text.n - at);
    }
    swap_spans(p);
    swap_text(p);
    cut.pat.str = s->text, cut.pat.n = s->n;
    return s->split ? split_pattern(&cut, p, e) : 0;
}

int vl_pretokenize(const struct vl_pre *step, size_t nstep, struct vl_pieces *p, int first,
                   struct vl_err *e)
{
    p->nnext = p->nspan = 0;
    p->first = first;
    emit(p, 0, p->text.n);
    swap_spans(p);
    for (const struct vl_pre *s = step; s < step + nstep; s++) {
        switch (s->type) {
        case VL_PRE_BYTE_LEVEL:
            if (byte_level(s, p, e))
                return e->code;
            break;
        case VL_PRE_SPLIT:
            if (split_pattern(s, p, e))
                return e->code;
            break;
        case VL_PRE_DIGITS:
            split_chars(s, p, vl_uc_numeric);
            break;
        case VL_PRE_PUNCTUATION:
            split_chars(s, p, vl_uc_punct);
            break;
        case VL_PRE_WHITESPACE:
            split_chars(s, p, vl_uc_space);
            break;
        case VL_PRE_FIXED_LENGTH:
            fixed_length(s, p);
            break;
        case VL_PRE_METASPACE:
            if (metaspace(s, p, e))
                return e->code;
            break;
        }
    }
    return 0;
}
