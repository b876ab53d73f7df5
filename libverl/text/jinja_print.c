/* jinja_print.c - values as text: Python's str() and repr(), and json.dumps. */
#include "libverl/text/jinja_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "libverl/text/unicode.h"

/* repr(float): the shortest digits that read back the same; an exponent below -4 and from 16 on. */
void vl_py_float(struct vl_buf *b, double x)
{
    char s[40], digits[24];
    int exp, n;

    if (!isfinite(x)) {
        vl_buf_str(b, isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
        return;
    }
    for (int p = 0; p < 17; p++) {
        snprintf(s, sizeof s, "%.*e", p, x);
        if (strtod(s, NULL) == x)
            break;
    }
    n = 0;
    for (const char *c = s; *c && *c != 'e'; c++)
        if (*c >= '0' && *c <= '9')
            digits[n++] = *c;
    exp = atoi(strchr(s, 'e') + 1);
    if (s[0] == '-')
        vl_buf_ch(b, '-');
    if (exp < -4 || exp >= 16) {
        vl_buf_ch(b, digits[0]);
        if (n > 1) {
            vl_buf_ch(b, '.');
            vl_buf_add(b, digits + 1, (size_t)n - 1);
        }
        vl_buf_printf(b, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
        return;
    }
    if (exp < 0) {
        vl_buf_str(b, "0.");
        for (int i = -1; i > exp; i--)
            vl_buf_ch(b, '0');
        vl_buf_add(b, digits, (size_t)n);
        return;
    }
    for (int i = 0; i <= exp; i++)
        vl_buf_ch(b, i < n ? digits[i] : '0');
    vl_buf_ch(b, '.');
    if (n > exp + 1)
        vl_buf_add(b, digits + exp + 1, (size_t)(n - exp - 1));
    else
        vl_buf_ch(b, '0');
}

/* str.isprintable for one character: not a control, format, surrogate, private or unassigned one,
 * and no separator but the space. */
static int printable(uint32_t cp)
{
    if (cp < 0x7F)
        return cp >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return 0;
    default:
        return 1;
    }
}

static void escape_char(struct vl_buf *b, uint32_t cp)
{
    if (cp == '\n')
        vl_buf_str(b, "\\n");
    else if (cp == '\r')
        vl_buf_str(b, "\\r");
    else if (cp == '\t')
        vl_buf_str(b, "\\t");
    else
        vl_buf_printf(b, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
}

/* Code point of a malformed sequence that is a surrogate's WTF-8 bytes, else U+FFFD. */
static uint32_t lone_surrogate(const char *s, size_t n, size_t *k)
{
    const unsigned char *p = (const unsigned char *)s;

    if (n >= 3 && p[0] == 0xED && (p[1] & 0xE0) == 0xA0 && (p[2] & 0xC0) == 0x80) {
        *k = 3;
        return 0xD000u | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    }
    return 0xFFFD;
}

static void repr_str(struct vl_buf *b, struct vl_jv v)
{
    int single = memchr(v.u.s, '\'', v.n) != NULL, twice = memchr(v.u.s, '"', v.n) != NULL;
    char quote = single && !twice ? '"' : '\'';
    size_t k;

    vl_buf_ch(b, quote);
    for (size_t i = 0; i < v.n; i += k) {
        uint32_t cp;

        k = vl_uc_next(v.u.s + i, v.n - i, &cp);
        if (cp == VL_UC_BAD)
            cp = lone_surrogate(v.u.s + i, v.n - i, &k);
        if (cp == '\\' || cp == (uint32_t)quote) {
            vl_buf_ch(b, '\\');
            vl_buf_ch(b, (char)cp);
        } else if (printable(cp)) {
            vl_buf_add(b, v.u.s + i, k);
        } else {
            escape_char(b, cp);
        }
    }
    vl_buf_ch(b, quote);
}

static void repr_items(struct vl_jin *in, struct vl_buf *b, const struct vl_jlist *l)
{
    for (size_t i = 0; i < l->n && !vl_jbuf_check(in, b); i++) {
        if (i)
            vl_buf_str(b, ", ");
        vl_jv_repr(in, b, l->v[i]);
    }
}

static void repr_list(struct vl_jin *in, struct vl_buf *b, struct vl_jv v)
{
    const struct vl_jlist *l = v.u.list;

    switch (l->kind) {
    case VL_J_PLAIN:
        vl_buf_ch(b, '[');
        repr_items(in, b, l);
        vl_buf_ch(b, ']');
        return;
    case VL_J_TUPLE:
        vl_buf_ch(b, '(');
        repr_items(in, b, l);
        vl_buf_str(b, l->n == 1 ? ",)" : ")");
        return;
    case VL_J_KEYS:
    case VL_J_VALUES:
    case VL_J_ITEMS:
        vl_buf_printf(b, "%s([", vl_jv_type_name(v));
        repr_items(in, b, l);
        vl_buf_str(b, "])");
        return;
    default:
        vl_jfail(in, "printing a %s is not supported (add |list)", vl_jv_type_name(v));
    }
}

static void repr_map(struct vl_jin *in, struct vl_buf *b, const struct vl_jmap *m)
{
    vl_buf_ch(b, '{');
    for (size_t i = 0; i < m->n && !vl_jbuf_check(in, b); i++) {
        if (i)
            vl_buf_str(b, ", ");
        vl_jv_repr(in, b, m->key[i]);
        vl_buf_str(b, ": ");
        vl_jv_repr(in, b, m->val[i]);
    }
    vl_buf_ch(b, '}');
}

void vl_jv_repr(struct vl_jin *in, struct vl_buf *b, struct vl_jv v)
{
    if (v.type == VL_J_STR && !v.safe) {
        repr_str(b, v);
    } else if (v.type == VL_J_STR) {
        vl_buf_str(b, "Markup(");
        repr_str(b, v);
        vl_buf_ch(b, ')');
    } else if (v.type == VL_J_UNDEF) {
        vl_buf_str(b, "Undefined");
    } else {
        vl_jv_print(in, b, v);
    }
}

void vl_jv_print(struct vl_jin *in, struct vl_buf *b, struct vl_jv v)
{
    switch ((enum vl_jtype)v.type) {
    case VL_J_UNDEF:
        return;
    case VL_J_NONE:
        vl_buf_str(b, "None");
        return;
    case VL_J_BOOL:
        vl_buf_str(b, v.u.i ? "True" : "False");
        return;
    case VL_J_INT:
        vl_buf_printf(b, "%" PRId64, v.u.i);
        return;
    case VL_J_FLOAT:
        vl_py_float(b, v.u.f);
        return;
    case VL_J_STR:
    case VL_J_BIG:
        vl_buf_add(b, v.u.s, v.n);
        return;
    case VL_J_LIST:
    case VL_J_MAP:
        if (vl_jventer(in) == 0) {
            if (v.type == VL_J_LIST)
                repr_list(in, b, v);
            else
                repr_map(in, b, v.u.map);
        }
        in->vdepth--;
        return;
    default:
        vl_jfail(in, "printing a %s is not supported", vl_jv_type_name(v));
    }
}

struct vl_jv vl_jv_to_str(struct vl_jin *in, struct vl_jv v)
{
    struct vl_buf b = { 0 };

    if (v.type == VL_J_STR)
        return v;
    vl_jv_print(in, &b, v);
    return vl_jv_buf(in, &b);
}

/* ---- json.dumps ---- */

static void json_escape(struct vl_buf *b, uint32_t cp)
{
    if (cp >= 0x10000) {
        cp -= 0x10000;
        vl_buf_printf(b, "\\u%04x\\u%04x", 0xD800 + (cp >> 10), 0xDC00 + (cp & 0x3FF));
    } else {
        vl_buf_printf(b, "\\u%04x", cp);
    }
}

static void json_str(struct vl_buf *b, struct vl_jv v, int ascii)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    size_t k;

    vl_buf_ch(b, '"');
    for (size_t i = 0; i < v.n; i += k) {
        const char *known;
        uint32_t cp;

        k = vl_uc_next(v.u.s + i, v.n - i, &cp);
        if (cp == VL_UC_BAD)
            cp = lone_surrogate(v.u.s + i, v.n - i, &k);
        known = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
        if (known) {
            vl_buf_ch(b, '\\');
            vl_buf_ch(b, to[known - from]);
        } else if (cp < 0x20 || (ascii && cp > 0x7E)) {
            json_escape(b, cp);
        } else {
            vl_buf_add(b, v.u.s + i, k);
        }
    }
    vl_buf_ch(b, '"');
}

static void json_float(struct vl_buf *b, double x)
{
    if (isfinite(x))
        vl_py_float(b, x);
    else
        vl_buf_str(b, isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity");
}

static void line(struct vl_buf *b, const struct vl_json_style *style, int level)
{
    if (!style->indent)
        return;
    vl_buf_ch(b, '\n');
    for (int i = 0; i < level; i++)
        vl_buf_str(b, style->indent);
}

static void json_any(struct vl_jin *in, struct vl_buf *b, struct vl_jv v,
                     const struct vl_json_style *style, int level);

static void json_key(struct vl_jin *in, struct vl_buf *b, struct vl_jv k,
                     const struct vl_json_style *style)
{
    if (k.type == VL_J_STR) {
        json_str(b, k, style->ensure_ascii);
        return;
    }
    vl_buf_ch(b, '"');
    json_any(in, b, k, style, 0);
    vl_buf_ch(b, '"');
}

static void json_list(struct vl_jin *in, struct vl_buf *b, const struct vl_jlist *l,
                      const struct vl_json_style *style, int level)
{
    vl_buf_ch(b, '[');
    for (size_t i = 0; i < l->n && !vl_jbuf_check(in, b); i++) {
        if (i)
            vl_buf_str(b, style->item_sep);
        line(b, style, level + 1);
        json_any(in, b, l->v[i], style, level + 1);
    }
    if (l->n)
        line(b, style, level);
    vl_buf_ch(b, ']');
}

/* Positions of a map's entries by key, for sort_keys. */
static size_t *key_order(struct vl_jin *in, const struct vl_jmap *m, int sorted)
{
    size_t *at = vl_jalloc(in, m->n * sizeof *at);

    for (size_t i = 0; i < m->n; i++) {
        size_t k = i;

        for (; sorted && k && !vl_jstep(in) && vl_jv_compare(in, m->key[at[k - 1]], m->key[i]) > 0;
             k--)
            at[k] = at[k - 1];
        at[k] = i;
    }
    return at;
}

static void json_map(struct vl_jin *in, struct vl_buf *b, const struct vl_jmap *m,
                     const struct vl_json_style *style, int level)
{
    const size_t *at = key_order(in, m, style->sort_keys);

    vl_buf_ch(b, '{');
    for (size_t i = 0; i < m->n && !vl_jbuf_check(in, b); i++) {
        if (i)
            vl_buf_str(b, style->item_sep);
        line(b, style, level + 1);
        json_key(in, b, m->key[at[i]], style);
        vl_buf_str(b, style->key_sep);
        json_any(in, b, m->val[at[i]], style, level + 1);
    }
    if (m->n)
        line(b, style, level);
    vl_buf_ch(b, '}');
}

static void json_any(struct vl_jin *in, struct vl_buf *b, struct vl_jv v,
                     const struct vl_json_style *style, int level)
{
    switch ((enum vl_jtype)v.type) {
    case VL_J_NONE:
        vl_buf_str(b, "null");
        return;
    case VL_J_BOOL:
        vl_buf_str(b, v.u.i ? "true" : "false");
        return;
    case VL_J_INT:
    case VL_J_BIG:
        vl_jv_print(in, b, v);
        return;
    case VL_J_FLOAT:
        json_float(b, v.u.f);
        return;
    case VL_J_STR:
        json_str(b, v, style->ensure_ascii);
        return;
    case VL_J_LIST:
    case VL_J_MAP:
        if (v.type == VL_J_LIST && v.u.list->kind > VL_J_TUPLE)
            break;
        if (vl_jventer(in) == 0) {
            if (v.type == VL_J_LIST)
                json_list(in, b, v.u.list, style, level);
            else
                json_map(in, b, v.u.map, style, level);
        }
        in->vdepth--;
        return;
    default:
        break;
    }
    vl_jfail(in, "object of type %s is not JSON serializable", vl_jv_type_name(v));
}

void vl_jv_tojson(struct vl_jin *in, struct vl_buf *b, struct vl_jv v,
                  const struct vl_json_style *style)
{
    json_any(in, b, v, style, 0);
}
