/* decode.c - ids to text by the decoders of tokenizer.json, whole or as a stream.
 *
 * The reference repairs text at the end of its chain, so ids cut inside a character give U+FFFD.
 * The stream keeps such bytes back until the rest arrives: stop strings and terminals never see
 * half a character. */
#include "libverl/text/tok_impl.h"

#include <stdlib.h>
#include <string.h>

#include "libverl/text/unicode.h"

/* Token texts between two steps. */
struct parts {
    struct vl_buf text;
    size_t *end; /* part i is text[end[i - 1], end[i]) */
    size_t n, cap;
};

static void close_part(struct parts *p)
{
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 64;
        p->end = vl_realloc(p->end, p->cap * sizeof *p->end);
    }
    p->end[p->n++] = p->text.n;
}

static void parts_free(struct parts *p)
{
    vl_buf_free(&p->text);
    free(p->end);
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The byte a <0xHH> token stands for, or -1. */
static int fallback_byte(const char *s, size_t n)
{
    int hi, lo;

    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    hi = hex(s[3]), lo = hex(s[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

static void byte_level_token(struct vl_buf *out, const char *s, size_t n)
{
    size_t start = out->n, k;

    for (size_t i = 0; i < n; i += k) {
        uint32_t cp;
        int byte;

        k = vl_uc_next(s + i, n - i, &cp);
        byte = vl_char_byte(cp);
        if (byte < 0) { /* a token outside the alphabet (an added one with a space): as it is */
            out->n = start;
            vl_buf_add(out, s, n);
            return;
        }
        vl_buf_ch(out, (char)byte);
    }
}

static void flush_bytes(struct parts *out, struct vl_buf *run)
{
    if (!run->n)
        return;
    if (vl_utf8_valid(run->s, run->n)) {
        vl_buf_add(&out->text, run->s, run->n);
        close_part(out);
    } else {
        for (size_t i = 0; i < run->n; i++) {
            vl_buf_add(&out->text, "\xEF\xBF\xBD", 3);
            close_part(out);
        }
    }
    vl_buf_reset(run);
}

static void strip_part(const struct vl_dec *d, struct vl_buf *out, const char *s, size_t n)
{
    for (int i = 0; i < d->start && n >= d->n && memcmp(s, d->text, d->n) == 0; i++)
        s += d->n, n -= d->n;
    for (int i = 0; i < d->stop && n >= d->n && memcmp(s + n - d->n, d->text, d->n) == 0; i++)
        n -= d->n;
    vl_buf_add(out, s, n);
}

static void replace_part(const struct vl_pattern *p, struct vl_regex_match *m, const char *with,
                         size_t nwith, struct vl_buf *out, const char *s, size_t n)
{
    size_t at = 0, start, end;
    struct vl_buf copy = { 0 };
    const char *text = vl_pattern_text(p, s, n, &copy);
    struct vl_err e = { 0 };

    while (at < n && vl_pattern_find(p, m, text, n, at, &start, &end, &e) > 0 && end > start) {
        vl_buf_add(out, s + at, start - at);
        vl_buf_add(out, with, nwith);
        at = end;
    }
    vl_buf_add(out, s + at, n - at);
    vl_buf_free(&copy);
}

static void metaspace_part(const struct vl_dec *d, struct vl_buf *out, const char *s, size_t n,
                           int first)
{
    for (size_t i = 0; i < n;) {
        if (n - i >= d->n && memcmp(s + i, d->text, d->n) == 0) {
            if (!first || !d->start)
                vl_buf_ch(out, ' ');
            i += d->n;
        } else {
            vl_buf_ch(out, s[i++]);
        }
    }
}

static void replace_all(struct vl_buf *b, const char *what, const char *with)
{
    struct vl_pattern p = { .str = (char *)(uintptr_t)what, .n = strlen(what) };
    struct vl_buf out = { 0 };

    replace_part(&p, NULL, with, strlen(with), &out, b->s, b->n);
    vl_buf_free(b);
    *b = out;
}

/* The reference's repair of English text, the same table in the same order. */
static void clean_up(struct vl_buf *b)
{
    static const char *const table[][2] = {
        { " .", "." },   { " ?", "?" },     { " !", "!" },     { " ,", "," },
        { " ' ", "'" },  { " n't", "n't" }, { " 'm", "'m" },   { " do not", " don't" },
        { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" },
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (memmem(b->s, b->n, table[i][0], strlen(table[i][0])))
            replace_all(b, table[i][0], table[i][1]);
}

static void wordpiece_part(const struct vl_dec *d, struct vl_buf *out, const char *s, size_t n,
                           int first)
{
    struct vl_buf b = { 0 };

    if (!first && n >= d->pat.n && memcmp(s, d->pat.str, d->pat.n) == 0)
        s += d->pat.n, n -= d->pat.n;
    else if (!first)
        vl_buf_ch(&b, ' ');
    vl_buf_add(&b, s, n);
    if (d->cleanup && b.n)
        clean_up(&b);
    vl_buf_add(out, b.s, b.n);
    vl_buf_free(&b);
}

/* 1 when something is left of the token. */
static int ctc_part(const struct vl_dec *d, struct vl_buf *out, const char *s, size_t n)
{
    struct vl_buf b = { 0 };
    int any;

    replace_part(&d->pat, NULL, "", 0, &b, s, n);
    if (d->cleanup && b.n) {
        clean_up(&b);
        replace_all(&b, d->text, " ");
    }
    any = b.n > 0;
    vl_buf_add(out, b.s, b.n);
    vl_buf_free(&b);
    return any;
}

/* One step over all parts. ByteLevel and Fuse make one part of them. */
static void run_step(const struct vl_dec *d, struct vl_regex_match *m, const struct parts *in,
                     struct parts *out)
{
    struct vl_buf run = { 0 };
    size_t at = 0, before = 0;
    int byte;

    for (size_t i = 0; i < in->n; before = at, at = in->end[i++]) {
        const char *s = in->text.s + at;
        size_t n = in->end[i] - at;

        switch (d->type) {
        case VL_DEC_BYTE_LEVEL:
            byte_level_token(&out->text, s, n);
            continue;
        case VL_DEC_FUSE:
            vl_buf_add(&out->text, s, n);
            continue;
        case VL_DEC_BYTE_FALLBACK:
            byte = fallback_byte(s, n);
            if (byte >= 0) {
                vl_buf_ch(&run, (char)byte);
                continue;
            }
            flush_bytes(out, &run);
            vl_buf_add(&out->text, s, n);
            break;
        case VL_DEC_REPLACE:
            replace_part(&d->pat, m, d->text, d->n, &out->text, s, n);
            break;
        case VL_DEC_STRIP:
            strip_part(d, &out->text, s, n);
            break;
        case VL_DEC_METASPACE:
            metaspace_part(d, &out->text, s, n, i == 0);
            break;
        case VL_DEC_WORDPIECE:
            wordpiece_part(d, &out->text, s, n, i == 0);
            break;
        case VL_DEC_BPE:
            replace_part(&d->pat, m, " ", i + 1 < in->n, &out->text, s, n);
            break;
        case VL_DEC_CTC: /* a token said twice in a row is said once */
            if ((i && at - before == n && (!n || memcmp(in->text.s + before, s, n) == 0)) ||
                !ctc_part(d, &out->text, s, n))
                continue;
            break;
        }
        close_part(out);
    }
    flush_bytes(out, &run);
    vl_buf_free(&run);
    if (d->type == VL_DEC_BYTE_LEVEL || d->type == VL_DEC_FUSE)
        close_part(out);
}

int vl_tok_is_special(const struct vl_tok *t, int32_t id)
{
    return id >= 0 && id < t->size && t->added_of[id] >= 0 && t->added[t->added_of[id]].special;
}

/* As vl_tok_decode, but bytes of unfinished characters stay as they are where the decoder is
 * ByteLevel. */
static void decode_raw(const struct vl_tok *t, const int32_t *ids, size_t n, int skip_special,
                       struct vl_buf *out)
{
    struct parts a = { 0 }, b = { 0 };
    struct vl_regex_match *m = NULL;
    int any = 0;

    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *s = vl_tok_text(t, ids[i], &len);

        if (!s || (skip_special && vl_tok_is_special(t, ids[i])))
            continue;
        if (!t->has_decoder && any)
            vl_buf_ch(&a.text, ' ');
        any = 1;
        vl_buf_add(&a.text, s, len);
        close_part(&a);
    }
    for (size_t i = 0; i < t->ndec; i++) {
        struct parts c = a;

        if (t->dec[i].pat.re && !m)
            m = vl_regex_match_new();
        b.n = 0;
        vl_buf_reset(&b.text);
        run_step(&t->dec[i], m, &a, &b);
        a = b, b = c;
    }
    vl_buf_add(out, a.text.s, a.text.n);
    vl_regex_match_free(m);
    parts_free(&a);
    parts_free(&b);
}

void vl_tok_decode(const struct vl_tok *t, const int32_t *ids, size_t n, int skip_special,
                   struct vl_buf *out)
{
    struct vl_buf raw = { 0 };

    decode_raw(t, ids, n, skip_special, &raw);
    vl_utf8_lossy(out, raw.s, raw.n);
    vl_buf_free(&raw);
}

/* ---- streams ---- */

struct vl_tok_stream {
    const struct vl_tok *t;
    int skip_special;
    struct vl_ids ids;    /* the window: some ids already shown, then those kept back */
    size_t shown;         /* ids of the window whose text was given out */
    struct vl_buf before; /* text of the shown ones */
};

struct vl_tok_stream *vl_tok_stream_new(const struct vl_tok *t, int skip_special)
{
    struct vl_tok_stream *s = vl_alloc(sizeof *s);

    s->t = t;
    s->skip_special = skip_special;
    return s;
}

void vl_tok_stream_free(struct vl_tok_stream *s)
{
    if (!s)
        return;
    vl_ids_free(&s->ids);
    vl_buf_free(&s->before);
    free(s);
}

/* Longest a window may end in U+FFFD: after that it is what the model wrote. */
#define MAX_HELD 16

/* Whether more ids could still change the end of the text: half a character, or with byte fallback a
 * U+FFFD that stands for bytes so far. */
static int unfinished(const struct vl_tok_stream *s, const struct vl_buf *b)
{
    int fallback = 0;

    if (vl_utf8_partial(b->s ? b->s : "", b->n))
        return 1;
    for (size_t i = 0; i < s->t->ndec; i++)
        fallback |= s->t->dec[i].type == VL_DEC_BYTE_FALLBACK;
    return fallback && s->ids.n - s->shown < MAX_HELD && b->n >= 3 &&
           memcmp(b->s + b->n - 3, "\xEF\xBF\xBD", 3) == 0;
}

static void show(struct vl_tok_stream *s, const struct vl_buf *all, struct vl_buf *out)
{
    if (all->n > s->before.n)
        vl_utf8_lossy(out, all->s + s->before.n, all->n - s->before.n);
    /* the ids just shown become the context of the next ones (a leading space is not stripped
     * there), older ones are forgotten */
    memmove(s->ids.id, s->ids.id + s->shown, (s->ids.n - s->shown) * sizeof *s->ids.id);
    s->ids.n -= s->shown;
    s->shown = s->ids.n;
    vl_buf_reset(&s->before);
    decode_raw(s->t, s->ids.id, s->ids.n, s->skip_special, &s->before);
}

void vl_tok_stream_push(struct vl_tok_stream *s, int32_t id, struct vl_buf *out)
{
    struct vl_buf all = { 0 };

    vl_ids_add(&s->ids, id);
    decode_raw(s->t, s->ids.id, s->ids.n, s->skip_special, &all);
    if (all.n > s->before.n && !unfinished(s, &all))
        show(s, &all, out);
    vl_buf_free(&all);
}

void vl_tok_stream_end(struct vl_tok_stream *s, struct vl_buf *out)
{
    struct vl_buf all = { 0 };

    decode_raw(s->t, s->ids.id, s->ids.n, s->skip_special, &all);
    if (all.n > s->before.n)
        vl_utf8_lossy(out, all.s + s->before.n, all.n - s->before.n);
    vl_buf_free(&all);
    s->ids.n = s->shown = 0;
    vl_buf_reset(&s->before);
}
