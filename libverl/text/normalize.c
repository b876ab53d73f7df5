/* normalize.c - the normalizers of tokenizer.json: Unicode forms by utf8proc, the rest by hand. */
#include "libverl/text/tok_impl.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "libverl/text/unicode.h"

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

static int unicode_form(enum vl_norm_type type, struct vl_buf *b, struct vl_err *e)
{
    int opt = UTF8PROC_STABLE;
    utf8proc_uint8_t *out = NULL;
    utf8proc_ssize_t n;

    if (form_is_identity(type, b->s, b->n))
        return 0;
    opt |= type == VL_NORM_NFC || type == VL_NORM_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    if (type == VL_NORM_NFKC || type == VL_NORM_NFKD)
        opt |= UTF8PROC_COMPAT;
    n = utf8proc_map((const utf8proc_uint8_t *)b->s, (utf8proc_ssize_t)b->n, &out,
                     (utf8proc_option_t)opt);
    if (n < 0)
        return vl_fail(e, VL_E_DATA, "normalizing %zu bytes of text: %s", b->n, utf8proc_errmsg(n));
    vl_buf_reset(b);
    vl_buf_add(b, out, (size_t)n);
    free(out);
    return 0;
}

static void per_char(enum vl_norm_type type, struct vl_buf *b, struct vl_buf *out)
{
    size_t k;

    for (size_t i = 0; i < b->n; i += k) {
        uint32_t cp;

        k = vl_uc_next(b->s + i, b->n - i, &cp);
        if (type == VL_NORM_LOWERCASE) {
            if (cp == 0x130) /* the one character whose lower case is two */
                vl_buf_add(out, "i\xCC\x87", 3);
            else
                vl_utf8_put(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
        } else if (type == VL_NORM_STRIP_ACCENTS) {
            if (utf8proc_category((utf8proc_int32_t)cp) != UTF8PROC_CATEGORY_MN)
                vl_buf_add(out, b->s + i, k);
        } else { /* VL_NORM_BYTE_LEVEL */
            for (size_t j = i; j < i + k; j++)
                vl_utf8_put(out, vl_byte_char((unsigned char)b->s[j]));
        }
    }
}

static int replace(const struct vl_norm *s, struct vl_buf *b, struct vl_buf *out,
                   struct vl_regex_match *m, struct vl_err *e)
{
    size_t at = 0, from = 0, start, end;
    int found = 0, any = 0;

    while (from <= b->n &&
           (found = vl_pattern_find(&s->pat, m, b->s, b->n, from, &start, &end, e)) > 0) {
        from = end;
        if (start == end) { /* an empty match: step over one character */
            uint32_t cp;

            from += end < b->n ? vl_uc_next(b->s + end, b->n - end, &cp) : 1;
            if (any && start == at) /* where the last one ended it is none */
                continue;
        }
        vl_buf_add(out, b->s + at, start - at);
        vl_buf_add(out, s->text, s->n);
        at = end;
        any = 1;
    }
    if (found < 0)
        return e->code;
    vl_buf_add(out, b->s + at, b->n - at);
    return 0;
}

static void strip(const struct vl_norm *s, struct vl_buf *b, struct vl_buf *out)
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
}

int vl_normalize(const struct vl_norm *step, size_t nstep, struct vl_buf *b,
                 struct vl_regex_match *m, struct vl_err *e)
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
            if (replace(s, b, &out, m, e)) {
                vl_buf_free(&out);
                return e->code;
            }
            break;
        case VL_NORM_STRIP:
            strip(s, b, &out);
            break;
        case VL_NORM_LOWERCASE:
        case VL_NORM_STRIP_ACCENTS:
        case VL_NORM_BYTE_LEVEL:
            per_char(s->type, b, &out);
            break;
        }
        vl_buf_free(b);
        *b = out;
    }
    return 0;
}
