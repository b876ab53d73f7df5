/* normalize.c - the normalizers of tokenizer.json: Unicode forms by utf8proc, the rest by hand. */
#include "libverl/text/tok_impl.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "libverl/text/ucdata.h"
#include "libverl/text/unicode.h"

const char *vl_pattern_text(const struct vl_pattern *p, const char *s, size_t n,
                            struct vl_buf *copy)
{
    return p->re ? vl_uc_alike(s, n, copy) : s;
}

int vl_pattern_find(const struct vl_pattern *p, struct vl_regex_match *m, const char *text,
                    size_t n, size_t from, size_t *start, size_t *end, struct vl_err *e)
{
    const char *hit;

    if (p->re)
        return vl_regex_find(p->re, m, text, n, from, start, end, e);
    if (!p->n || from >= n)
        return 0;
    hit = memmem(text + from, n - from, p->str, p->n);
    if (!hit)
        return 0;
    *start = (size_t)(hit - text), *end = *start + p->n;
    return 1;
}

/* Nothing below U+0300 composes with anything (NFC), and ASCII is in every form. */
static int form_is_identity(enum vl_norm_type type, const char *s, size_t n)
{
    unsigned char limit = type == VL_NORM_NFC ? 0xCC : 0x80;

    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= limit)
            return 0;
    return 1;
}

static unsigned combining_class(int32_t cp)
{
    return (unsigned)utf8proc_get_property(cp)->combining_class & 0xFF;
}

/* Canonical order of a run of marks, by counting: utf8proc's own takes the square of its length, and
 * a text may be nothing but marks. */
static void order_marks(int32_t *c, size_t n, int32_t *tmp)
{
    size_t at[257] = { 0 };

    for (size_t i = 0; i < n; i++)
        at[combining_class(c[i]) + 1]++;
    for (size_t k = 1; k < 257; k++)
        at[k] += at[k - 1];
    memcpy(tmp, c, n * sizeof *c);
    for (size_t i = 0; i < n; i++)
        c[at[combining_class(tmp[i])]++] = tmp[i];
}

static void order(int32_t *c, size_t n)
{
    int32_t *tmp = NULL;
    size_t end;

    for (size_t i = 0; i < n; i = end) {
        int sorted = 1;

        for (end = i; end < n && combining_class(c[end]); end++)
            sorted &= end == i || combining_class(c[end - 1]) <= combining_class(c[end]);
        if (!sorted && !tmp)
            tmp = vl_alloc(n * sizeof *tmp);
        if (!sorted)
            order_marks(c + i, end - i, tmp);
        end += end == i;
    }
    free(tmp);
}

/* Appends one Unicode form of the n bytes. */
static int map_form(enum vl_norm_type type, const char *s, size_t n, struct vl_buf *out,
                    struct vl_err *e)
{
    enum { LONGEST = 32 }; /* code points that one becomes: 18 as of now */
    int compose = type == VL_NORM_NFC || type == VL_NORM_NFKC, boundary = 0;
    int opt = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
    size_t cap = n + LONGEST, m = 0, k;
    int32_t *c = vl_alloc(cap * sizeof *c);
    utf8proc_ssize_t got = 0;

    if (type == VL_NORM_NFKC || type == VL_NORM_NFKD)
        opt |= UTF8PROC_COMPAT;
    for (size_t i = 0; i < n && got >= 0; i += k) {
        uint32_t cp;

        k = vl_uc_next(s + i, n - i, &cp);
        if (cap - m < LONGEST)
            c = vl_realloc(c, (cap *= 2) * sizeof *c);
        got =
            utf8proc_decompose_char((int32_t)cp, c + m, LONGEST, (utf8proc_option_t)opt, &boundary);
        m += got < 0 ? 0 : (size_t)got;
    }
    if (got >= 0)
        order(c, m);
    if (got >= 0 && compose)
        got = utf8proc_normalize_utf32(c, (utf8proc_ssize_t)m, (utf8proc_option_t)opt);
    if (got >= 0 && compose)
        m = (size_t)got;
    if (got < 0)
        vl_fail(e, VL_E_DATA, "normalizing %zu bytes of text: %s", n, utf8proc_errmsg(got));
    for (size_t i = 0; i < m && !e->code; i++)
        vl_utf8_put(out, (uint32_t)c[i]);
    free(c);
    return e->code;
}

/* Characters that decompose, or are marks, since lately are starters to the reference and stay as they
 * are. So is U+11A7, which utf8proc takes for a final consonant of Hangul and drops. */
static int stays(enum vl_norm_type type, uint32_t cp)
{
    return cp >= 0x300 &&
           (cp == 0x11A7 || vl_ucdata_new_mark(cp) || (type != VL_NORM_NFC && vl_ucdata_stays(cp)));
}

/* What is between them is mapped. */
static int unicode_form(enum vl_norm_type type, struct vl_buf *b, struct vl_err *e)
{
    struct vl_buf out = { 0 };
    size_t done = 0, k;

    if (form_is_identity(type, b->s, b->n))
        return 0;
    for (size_t i = 0; i < b->n && !e->code; i += k) {
        uint32_t cp;

        k = vl_uc_next(b->s + i, b->n - i, &cp);
        if (!stays(type, cp))
            continue;
        if (i > done)
            (void)!map_form(type, b->s + done, i - done, &out, e);
        vl_buf_add(&out, b->s + i, k);
        done = i + k;
    }
    if (!e->code && done < b->n)
        (void)!map_form(type, b->s + done, b->n - done, &out, e);
    vl_buf_free(b);
    *b = out;
    return e->code;
}

/* Steps return 1 when they dropped what stood first: Metaspace wants to know. */
static int per_char(enum vl_norm_type type, struct vl_buf *b, struct vl_buf *out)
{
    int lost = 0;
    size_t k;

    for (size_t i = 0; i < b->n; i += k) {
        uint32_t cp;

        k = vl_uc_next(b->s + i, b->n - i, &cp);
        if (type == VL_NORM_LOWERCASE) {
            if (cp == 0x130) /* the one character whose lower case is two */
                vl_buf_add(out, "i\xCC\x87", 3);
            else
                vl_utf8_put(out, vl_uc_lower(cp));
        } else if (type == VL_NORM_STRIP_ACCENTS || type == VL_NORM_BERT_ACCENTS) {
            if (!(type == VL_NORM_STRIP_ACCENTS ? vl_uc_mark(cp) : vl_uc_nonspacing(cp)))
                vl_buf_add(out, b->s + i, k);
        } else { /* VL_NORM_BYTE_LEVEL */
            for (size_t j = i; j < i + k; j++)
                vl_utf8_put(out, vl_byte_char((unsigned char)b->s[j]));
        }
        lost |= i == 0 && !out->n;
    }
    return lost;
}

static int in_chinese_block(uint32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) ||
           (cp >= 0x20000 && cp <= 0x2A6DF) || (cp >= 0x2A700 && cp <= 0x2B73F) ||
           (cp >= 0x2B740 && cp <= 0x2B81F) || (cp >= 0x2B920 && cp <= 0x2CEAF) ||
           (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
}

static int nmt_drops(uint32_t cp)
{
    return (cp >= 1 && cp <= 8) || cp == 0x0B || (cp >= 0x0E && cp <= 0x1F) || cp == 0x7F ||
           cp == 0x8F || cp == 0x9F;
}

static int nmt_space(uint32_t cp)
{
    return cp == 9 || cp == 0x0A || cp == 0x0C || cp == 0x0D || cp == 0x1680 ||
           (cp >= 0x200B && cp <= 0x200F) || cp == 0x2028 || cp == 0x2029 || cp == 0x2581 ||
           cp == 0xFEFF || cp == 0xFFFD;
}

static int bert_drops(uint32_t cp)
{
    return cp == 0xFFFD || (vl_uc_control(cp) && cp != '\t' && cp != '\n' && cp != '\r');
}

/* Nmt and two parts of BertNormalizer: a character goes, becomes a space or gets spaces around it. */
static int clean(enum vl_norm_type type, struct vl_buf *b, struct vl_buf *out)
{
    int lost = 0;
    size_t k;

    for (size_t i = 0; i < b->n; i += k) {
        int wide, drop, space;
        uint32_t cp;

        k = vl_uc_next(b->s + i, b->n - i, &cp);
        wide = type == VL_NORM_BERT_CHINESE && in_chinese_block(cp);
        drop = type == VL_NORM_NMT          ? nmt_drops(cp)
               : type == VL_NORM_BERT_CLEAN ? bert_drops(cp)
                                            : 0;
        space = type == VL_NORM_NMT          ? nmt_space(cp)
                : type == VL_NORM_BERT_CLEAN ? vl_uc_space(cp)
                                             : 0;
        lost |= drop && i == 0;
        if (drop)
            continue;
        if (wide || space)
            vl_buf_ch(out, ' ');
        if (!space)
            vl_buf_add(out, b->s + i, k);
        if (wide)
            vl_buf_ch(out, ' ');
    }
    return lost;
}

static int replace(const struct vl_norm *s, struct vl_buf *b, struct vl_buf *out,
                   struct vl_regex_match *m, int *lost, struct vl_err *e)
{
    size_t at = 0, from = 0, start, end;
    struct vl_buf copy = { 0 };
    const char *text = vl_pattern_text(&s->pat, b->s, b->n, &copy);
    int found = 0, any = 0;

    while (from <= b->n &&
           (found = vl_pattern_find(&s->pat, m, text, b->n, from, &start, &end, e)) > 0) {
        from = end;
        if (start == end) { /* an empty match: step over one character */
            uint32_t cp;

            from += end < b->n ? vl_uc_next(b->s + end, b->n - end, &cp) : 1;
            if (any && start == at) /* where the last one ended it is none */
                continue;
        }
        *lost |= start == 0 && end > 0 && !s->n;
        vl_buf_add(out, b->s + at, start - at);
        vl_buf_add(out, s->text, s->n);
        at = end;
        any = 1;
    }
    vl_buf_free(&copy);
    if (found < 0)
        return e->code;
    vl_buf_add(out, b->s + at, b->n - at);
    return 0;
}

static int strip(const struct vl_norm *s, struct vl_buf *b, struct vl_buf *out)
{
    size_t at = 0, end = b->n, k;
    uint32_t cp;

    for (; s->left && at < end; at += k) {
        k = vl_uc_next(b->s + at, end - at, &cp);
        if (!vl_uc_space(cp))
            break;
    }
    while (s->right && end > at) {
        size_t i = vl_uc_back(b->s, end);

        vl_uc_next(b->s + i, end - i, &cp);
        if (!vl_uc_space(cp))
            break;
        end = i;
    }
    vl_buf_add(out, b->s + at, end - at);
    return at > 0;
}

int vl_normalize(const struct vl_norm *step, size_t nstep, struct vl_buf *b,
                 struct vl_regex_match *m, int *lost_front, struct vl_err *e)
{
    for (const struct vl_norm *s = step; s < step + nstep; s++) {
        struct vl_buf out = { 0 };

        switch (s->type) {
        case VL_NORM_NFC:
        case VL_NORM_NFD:
        case VL_NORM_NFKC:
        case VL_NORM_NFKD:
            if (b->n && unicode_form(s->type, b, e))
                return e->code;
            continue;
        case VL_NORM_PREPEND:
            if (!b->n)
                continue;
            vl_buf_add(&out, s->text, s->n);
            vl_buf_add(&out, b->s, b->n);
            break;
        case VL_NORM_REPLACE:
            if (!b->n)
                continue;
            if (replace(s, b, &out, m, lost_front, e)) {
                vl_buf_free(&out);
                return e->code;
            }
            break;
        case VL_NORM_STRIP:
            *lost_front |= strip(s, b, &out);
            break;
        case VL_NORM_LOWERCASE:
        case VL_NORM_STRIP_ACCENTS:
        case VL_NORM_BERT_ACCENTS:
        case VL_NORM_BYTE_LEVEL:
            *lost_front |= per_char(s->type, b, &out);
            break;
        case VL_NORM_NMT:
        case VL_NORM_BERT_CLEAN:
        case VL_NORM_BERT_CHINESE:
            *lost_front |= clean(s->type, b, &out);
            break;
        case VL_NORM_CHARSMAP:
            *lost_front |= vl_charsmap_apply(s, b, &out);
            break;
        }
        vl_buf_free(b);
        *b = out;
    }
    return 0;
}
