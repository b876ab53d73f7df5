/* jinja_str.c - what Python's str does, over UTF-8: positions and lengths count characters. */
#include "libverl/text/jinja_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "libverl/text/unicode.h"

static struct vl_jv part(struct vl_jv s, size_t from, size_t to)
{
    struct vl_jv v = s;

    v.u.s = s.u.s + from;
    v.n = to - from;
    return v;
}

/* ---- strip ---- */

static int in_set(struct vl_jv chars, const char *c, size_t k)
{
    size_t step;

    for (size_t i = 0; i < chars.n; i += step) {
        uint32_t cp;

        step = vl_uc_next(chars.u.s + i, chars.n - i, &cp);
        if (step == k && memcmp(chars.u.s + i, c, k) == 0)
            return 1;
    }
    return 0;
}

/* Whether the character goes: white space without a set. */
static int strips(const struct vl_jv *chars, const char *c, size_t k)
{
    uint32_t cp;

    if (chars)
        return in_set(*chars, c, k);
    vl_uc_next(c, k, &cp);
    return vl_py_space(cp);
}

static struct vl_jv strip(struct vl_jv s, const struct vl_jv *chars, int left, int right)
{
    size_t at = 0, end = s.n, k;
    uint32_t cp;

    for (; left && at < end; at += k) {
        k = vl_uc_next(s.u.s + at, end - at, &cp);
        if (!strips(chars, s.u.s + at, k))
            break;
    }
    while (right && end > at) {
        size_t i = vl_uc_back(s.u.s, end);

        if (i < at || !strips(chars, s.u.s + i, end - i))
            break;
        end = i;
    }
    return part(s, at, end);
}

struct vl_jv vl_py_strip(struct vl_jv s, int left, int right)
{
    return strip(s, NULL, left, right);
}

struct vl_jv vl_py_strip_chars(struct vl_jv s, struct vl_jv chars, int left, int right)
{
    return strip(s, &chars, left, right);
}

/* ---- slices ---- */

/* Byte of character `at` (0 <= at <= length). */
static size_t byte_of(struct vl_jv s, int64_t at)
{
    size_t i = 0;

    while (i < s.n && at > 0) {
        uint32_t cp;

        i += vl_uc_next(s.u.s + i, s.n - i, &cp);
        at--;
    }
    return i;
}

struct vl_jv vl_py_slice(struct vl_jin *in, struct vl_jv s, int64_t at, int64_t n, int64_t step)
{
    struct vl_jv chars = s, out;
    struct vl_jlist *l;
    struct vl_buf b = { 0 };

    if (step == 1 || n <= 1) {
        size_t from = byte_of(s, at);

        return part(s, from, from + byte_of(part(s, from, s.n), n));
    }
    l = vl_jv_iter(in, chars);
    for (int64_t i = 0; i < n && l; i++)
        vl_buf_add(&b, l->v[at + i * step].u.s, l->v[at + i * step].n);
    out = vl_jv_buf(in, &b);
    out.safe = s.safe;
    return out;
}

/* ---- case ---- */

/* Characters whose upper case is more than one character, other than the sharp s. */
static int odd_upper(uint32_t c)
{
    return c == 0x149 || c == 0x1F0 || c == 0x390 || c == 0x3B0 || c == 0x587 ||
           (c >= 0x1E96 && c <= 0x1E9A) || (c >= 0x1F50 && c <= 0x1FFF) ||
           (c >= 0xFB00 && c <= 0xFB17);
}

enum { LOWER, UPPER, TITLE };

static void put_case(struct vl_jin *in, struct vl_buf *b, uint32_t cp, int upper)
{
    if (cp < 0x80) {
        int letter = upper ? cp >= 'a' && cp <= 'z' : cp >= 'A' && cp <= 'Z';

        vl_buf_ch(b, (char)(letter ? cp ^ 0x20 : cp));
    } else if (upper && cp == 0xDF) {
        vl_buf_str(b, upper == TITLE ? "Ss" : "SS");
    } else if ((upper && odd_upper(cp)) || (!upper && cp == 0x3A3)) {
        vl_jfail(in, "changing the case of U+%04X is not supported", cp);
    } else if (!upper && cp == 0x130) {
        vl_buf_str(b, "i\xCC\x87");
    } else {
        vl_utf8_put(b, (uint32_t)(upper == UPPER   ? utf8proc_toupper((utf8proc_int32_t)cp)
                                  : upper == TITLE ? utf8proc_totitle((utf8proc_int32_t)cp)
                                                   : utf8proc_tolower((utf8proc_int32_t)cp)));
    }
}

static int cased(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

struct vl_jv vl_py_case(struct vl_jin *in, struct vl_jv s, enum vl_py_case how)
{
    struct vl_buf b = { 0 };
    struct vl_jv out;
    int in_word = 0;
    size_t k;

    if (how == VL_PY_LOWER)
        vl_py_lower(&b, s.u.s, s.n);
    for (size_t i = 0; i < s.n && how != VL_PY_LOWER && !vl_jbuf_check(in, &b); i += k) {
        uint32_t cp;
        int upper = how == VL_PY_UPPER || (how == VL_PY_JINJA_TITLE && !in_word) ? UPPER
                    : (how == VL_PY_CAPITALIZE && i == 0) || (how == VL_PY_TITLE && !in_word)
                        ? TITLE
                        : LOWER;

        k = vl_uc_next(s.u.s + i, s.n - i, &cp);
        if (cp == VL_UC_BAD)
            vl_buf_add(&b, s.u.s + i, k);
        else
            put_case(in, &b, cp, upper);
        if (how == VL_PY_JINJA_TITLE)
            in_word = !(vl_py_space(cp) || (cp < 0x80 && strchr("-({[<", (int)cp)));
        else
            in_word = cp != VL_UC_BAD && cased(cp);
    }
    out = vl_jv_buf(in, &b);
    out.safe = s.safe;
    return out;
}

int vl_py_is_case(struct vl_jv s, int upper)
{
    int any = 0;
    size_t k;

    for (size_t i = 0; i < s.n; i += k) {
        utf8proc_category_t c;
        uint32_t cp;

        k = vl_uc_next(s.u.s + i, s.n - i, &cp);
        c = cp == VL_UC_BAD ? UTF8PROC_CATEGORY_CN : utf8proc_category((utf8proc_int32_t)cp);
        if (c == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU) || c == UTF8PROC_CATEGORY_LT)
            return 0;
        any |= c == (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
    }
    return any;
}

/* ---- split ---- */

static size_t skip_space(struct vl_jv s, size_t i, int space)
{
    while (i < s.n) {
        uint32_t cp;
        size_t k = vl_uc_next(s.u.s + i, s.n - i, &cp);

        if (vl_py_space(cp) != space)
            break;
        i += k;
    }
    return i;
}

static void split_space(struct vl_jin *in, struct vl_jv s, int64_t max, struct vl_jlist *out)
{
    size_t i = skip_space(s, 0, 1);

    while (i < s.n && !vl_jstep(in)) {
        size_t end = max == 0 ? s.n : skip_space(s, i, 0);
        struct vl_jv word = part(s, i, end);

        vl_jlist_add(in, out, max == 0 ? vl_py_strip(word, 0, 1) : word);
        if (max == 0)
            return;
        max--;
        i = skip_space(s, end, 1);
    }
}

/* Last occurrence of sep that ends at or before byte `end`; -1 if none. */
static int64_t find_back(struct vl_jv s, struct vl_jv sep, size_t end)
{
    for (size_t i = end; i >= sep.n; i--)
        if (memcmp(s.u.s + i - sep.n, sep.u.s, sep.n) == 0)
            return (int64_t)(i - sep.n);
    return -1;
}

static void split_back(struct vl_jin *in, struct vl_jv s, struct vl_jv sep, int64_t max,
                       struct vl_jlist *out)
{
    size_t end = s.n;
    int64_t at;

    while (max-- != 0 && (at = find_back(s, sep, end)) >= 0 && !vl_jstep(in)) {
        vl_jlist_add(in, out, part(s, (size_t)at + sep.n, end));
        end = (size_t)at;
    }
    vl_jlist_add(in, out, part(s, 0, end));
    for (size_t i = 0, j = out->n - 1; i < j; i++, j--) {
        struct vl_jv t = out->v[i];

        out->v[i] = out->v[j];
        out->v[j] = t;
    }
}

struct vl_jv vl_py_split(struct vl_jin *in, struct vl_jv s, struct vl_jv sep, int64_t max,
                         int from_right)
{
    struct vl_jv out = vl_jv_list(in, VL_J_PLAIN, 4);
    const char *hit;
    size_t at = 0;

    if (sep.type == VL_J_NONE || sep.type == VL_J_UNDEF) {
        if (from_right && max >= 0)
            return vl_jfail(in, "rsplit by white space with a limit is not supported");
        split_space(in, s, max, out.u.list);
        return out;
    }
    if (sep.type != VL_J_STR || !sep.n)
        return vl_jfail(in, "split: the separator must be a string that is not empty");
    if (from_right) {
        split_back(in, s, sep, max, out.u.list);
        return out;
    }
    while (max-- != 0 && !vl_jstep(in) &&
           (hit = s.n - at >= sep.n ? memmem(s.u.s + at, s.n - at, sep.u.s, sep.n) : NULL)) {
        vl_jlist_add(in, out.u.list, part(s, at, (size_t)(hit - s.u.s)));
        at = (size_t)(hit - s.u.s) + sep.n;
    }
    vl_jlist_add(in, out.u.list, part(s, at, s.n));
    return out;
}

static int line_end(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

struct vl_jv vl_py_splitlines(struct vl_jin *in, struct vl_jv s, int keep)
{
    struct vl_jv out = vl_jv_list(in, VL_J_PLAIN, 4);
    size_t start = 0, k;

    for (size_t i = 0; i < s.n && !vl_jstep(in); i += k) {
        uint32_t cp;

        k = vl_uc_next(s.u.s + i, s.n - i, &cp);
        if (!line_end(cp))
            continue;
        if (cp == '\r' && i + 1 < s.n && s.u.s[i + 1] == '\n')
            k = 2;
        vl_jlist_add(in, out.u.list, part(s, start, keep ? i + k : i));
        start = i + k;
    }
    if (start < s.n)
        vl_jlist_add(in, out.u.list, part(s, start, s.n));
    return out;
}

/* ---- search and replace ---- */

struct vl_jv vl_py_replace(struct vl_jin *in, struct vl_jv s, struct vl_jv from, struct vl_jv to,
                           int64_t max)
{
    struct vl_buf b = { 0 };
    size_t at = 0;

    if (!from.n) {
        size_t k = 0;

        for (size_t i = 0; i <= s.n && max-- != 0 && !vl_jbuf_check(in, &b); i += k) {
            uint32_t cp;

            vl_buf_add(&b, to.u.s, to.n);
            k = i < s.n ? vl_uc_next(s.u.s + i, s.n - i, &cp) : 1;
            if (i < s.n)
                vl_buf_add(&b, s.u.s + i, k);
            at = i + k;
        }
    }
    while (from.n && max-- != 0 && !vl_jbuf_check(in, &b)) {
        const char *hit = memmem(s.u.s + at, s.n - at, from.u.s, from.n);

        if (!hit)
            break;
        vl_buf_add(&b, s.u.s + at, (size_t)(hit - s.u.s) - at);
        vl_buf_add(&b, to.u.s, to.n);
        at = (size_t)(hit - s.u.s) + from.n;
    }
    if (at < s.n)
        vl_buf_add(&b, s.u.s + at, s.n - at);
    return vl_jv_buf(in, &b);
}

int64_t vl_py_find(struct vl_jv s, struct vl_jv sub)
{
    const char *hit = sub.n ? memmem(s.u.s, s.n, sub.u.s, sub.n) : s.u.s;

    return hit ? (int64_t)vl_utf8_count(s.u.s, (size_t)(hit - s.u.s)) : -1;
}

int vl_py_contains(struct vl_jv s, struct vl_jv sub)
{
    return !sub.n || memmem(s.u.s, s.n, sub.u.s, sub.n) != NULL;
}

struct vl_jv vl_py_escape(struct vl_jin *in, struct vl_jv s)
{
    struct vl_buf b = { 0 };
    struct vl_jv out;

    if (s.safe)
        return s;
    for (size_t i = 0; i < s.n; i++) {
        switch (s.u.s[i]) {
        case '&':
            vl_buf_str(&b, "&amp;");
            break;
        case '<':
            vl_buf_str(&b, "&lt;");
            break;
        case '>':
            vl_buf_str(&b, "&gt;");
            break;
        case '\'':
            vl_buf_str(&b, "&#39;");
            break;
        case '"':
            vl_buf_str(&b, "&#34;");
            break;
        default:
            vl_buf_ch(&b, s.u.s[i]);
        }
    }
    out = vl_jv_buf(in, &b);
    out.safe = 1;
    return out;
}

/* ---- the % operator ---- */

struct percent {
    char flags[8];
    int width, prec; /* width 0, prec -1: none */
    char conv;
};

/* Digits at p as a number, at most 9999. */
static const char *percent_digits(const char *p, const char *end, int *out)
{
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        *out = *out > 999 ? 9999 : *out * 10 + (*p - '0');
    return p;
}

/* Parses after the '%'; returns the byte after it, or NULL. */
static const char *percent_spec(const char *p, const char *end, struct percent *f)
{
    size_t n = 0;

    *f = (struct percent){ .prec = -1 };
    while (p < end && *p && strchr("-+ 0#", *p) && n < 6)
        f->flags[n++] = *p++;
    p = percent_digits(p, end, &f->width);
    if (p < end && *p == '.') {
        f->prec = 0;
        p = percent_digits(p + 1, end, &f->prec);
    }
    if (p == end || f->width > 1000 || f->prec > 100)
        return NULL;
    f->conv = *p++;
    return p;
}

static void percent_text(struct vl_buf *b, const struct percent *f, struct vl_jv s)
{
    int64_t n;

    if (f->prec >= 0)
        s = part(s, 0, byte_of(s, f->prec));
    n = (int64_t)vl_utf8_count(s.u.s, s.n);
    for (int64_t i = n; i < f->width && !strchr(f->flags, '-'); i++)
        vl_buf_ch(b, ' ');
    vl_buf_add(b, s.u.s, s.n);
    for (int64_t i = n; i < f->width && strchr(f->flags, '-'); i++)
        vl_buf_ch(b, ' ');
}

static void percent_number(struct vl_jin *in, struct vl_buf *b, const struct percent *f,
                           struct vl_jv v)
{
    char fmt[40], out[1400];
    char conv;
    double x;
    int64_t i;

    if (!vl_jv_number(v, &x)) {
        vl_jfail(in, "%%%c format: a number is required, not %s", f->conv, vl_jv_type_name(v));
        return;
    }
    conv = f->conv == 'i' || f->conv == 'u' ? 'd' : f->conv;
    snprintf(fmt, sizeof fmt, "%%%s%.0d%s%.0d%s%c", f->flags, f->width, f->prec >= 0 ? "." : "",
             f->prec > 0 ? f->prec : 0, strchr("dxXo", conv) ? "j" : "", conv);
    if (!strchr("diuxXo", f->conv)) {
        if (x > 1e300 || x < -1e300) {
            vl_jfail(in, "%%%c of a number this large is not supported", f->conv);
            return;
        }
        snprintf(out, sizeof out, fmt, x);
        vl_buf_str(b, out);
        return;
    }
    if (v.type == VL_J_FLOAT && !(x > -9e18 && x < 9e18)) {
        vl_jfail(in, "%%%c of a number this large is not supported", f->conv);
        return;
    }
    i = v.type == VL_J_FLOAT ? (int64_t)x : v.u.i;
    if (strchr("xXo", f->conv) && (i < 0 || v.type == VL_J_FLOAT || strchr(f->flags, '#'))) {
        vl_jfail(in, "%%%c of this number is not supported", f->conv);
        return;
    }
    snprintf(out, sizeof out, fmt, (intmax_t)i);
    vl_buf_str(b, out);
}

static void percent_one(struct vl_jin *in, struct vl_buf *b, const struct percent *f,
                        struct vl_jv v)
{
    struct vl_buf t = { 0 };

    if (f->conv == 's' || f->conv == 'r') {
        if (f->conv == 's')
            vl_jv_print(in, &t, v);
        else
            vl_jv_repr(in, &t, v);
        percent_text(b, f, vl_jv_buf(in, &t));
    } else if (strchr("diuxXofFeEgG", f->conv)) {
        percent_number(in, b, f, v);
    } else {
        vl_jfail(in, "the %% operator's conversion '%c' is not supported", f->conv);
    }
}

/* What Python takes for a mapping here, of which not all has to be used. */
static int takes_names(struct vl_jv v)
{
    return v.type == VL_J_MAP || v.type == VL_J_UNDEF ||
           (v.type == VL_J_LIST && (v.u.list->kind == VL_J_PLAIN || v.u.list->kind == VL_J_RANGE));
}

struct vl_jv vl_py_percent(struct vl_jin *in, struct vl_jv fmt, struct vl_jv args)
{
    const char *p = fmt.u.s, *end = p + fmt.n;
    int tuple = args.type == VL_J_LIST && args.u.list->kind == VL_J_TUPLE;
    size_t used = 0, n = tuple ? args.u.list->n : 1;
    struct vl_buf b = { 0 };

    while (p < end && !vl_jbuf_check(in, &b)) {
        struct percent f;

        if (*p != '%') {
            vl_buf_ch(&b, *p++);
            continue;
        }
        p = percent_spec(p + 1, end, &f);
        if (!p) {
            vl_jfail(in, "the %% operator: this format is not supported");
            break;
        }
        if (f.conv == '%') {
            vl_buf_ch(&b, '%');
            continue;
        }
        if (used == n) {
            vl_jfail(in, "not enough arguments for format string");
            break;
        }
        percent_one(in, &b, &f, tuple ? args.u.list->v[used] : args);
        used++;
    }
    if (used < n && !takes_names(args) && !in->e->code)
        vl_jfail(in, "not all arguments converted during string formatting");
    return vl_jv_buf(in, &b);
}
