/* code_compare.c - what a program printed, or a function gave, against what is expected. See code.h.
 *
 * The steps are those of verl's prime_code that can make a difference: its later ones, which turn
 * lines into sets of words, are never compared there. */
#include "libverl/reward/code.h"

#include "libverl/reward/latex.h"
#include "libverl/text/unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct span {
    const char *s;
    size_t n;
};

struct spans {
    struct span *at;
    size_t n, cap;
};

static void add(struct spans *l, const char *s, size_t n)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        l->at = vl_realloc(l->at, l->cap * sizeof *l->at);
    }
    l->at[l->n++] = (struct span){ s, n };
}

static struct span strip(struct span a)
{
    vl_tex_strip(&a.s, &a.n);
    return a;
}

static int same(struct span a, struct span b)
{
    return a.n == b.n && !memcmp(a.s, b.s, a.n);
}

/* Bytes of the line end at s that Python's splitlines knows, or 0. */
static size_t line_end(const char *s, size_t n)
{
    uint32_t cp;
    size_t k = vl_uc_next(s, n, &cp);

    if (cp == '\r')
        return n > 1 && s[1] == '\n' ? 2 : 1;
    if ((cp >= 0x0A && cp <= 0x0C) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
        cp == 0x2029)
        return k;
    return 0;
}

static void split_lines(struct spans *l, const char *s, size_t n)
{
    size_t from = 0, at = 0, k;
    uint32_t cp;

    while (at < n) {
        k = line_end(s + at, n - at);
        if (k) {
            add(l, s + from, at - from);
            from = at + k;
        }
        at += k ? k : vl_uc_next(s + at, n - at, &cp);
    }
    if (from < n)
        add(l, s + from, n - from);
}

/* The lines, each stripped or not, joined by line feeds, then stripped, equal `want`. */
static int same_joined(const struct spans *lines, int stripped, struct span want)
{
    struct vl_buf b = { 0 };
    struct span all;
    int is;

    for (size_t i = 0; i < lines->n; i++) {
        struct span a = stripped ? strip(lines->at[i]) : lines->at[i];

        if (i)
            vl_buf_ch(&b, '\n');
        vl_buf_add(&b, a.s, a.n);
    }
    all = (struct span){ b.n ? b.s : "", b.n };
    is = same(strip(all), want);
    vl_buf_free(&b);
    return is;
}

static int same_lines(const struct spans *a, const struct spans *b)
{
    if (a->n != b->n)
        return 0;
    for (size_t i = 0; i < a->n; i++)
        if (!same(a->at[i], b->at[i]))
            return 0;
    return 1;
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int is_digits(struct span a)
{
    for (size_t i = 0; i < a.n; i++)
        if (!is_digit(a.s[i]))
            return 0;
    return a.n > 0;
}

/* What Python's float() reads; 0: it raises. */
static int to_double(struct span a, double *x)
{
    char text[64], *end;
    size_t n = 0;

    a = strip(a);
    if (!a.n || a.n >= sizeof text || memchr(a.s, 'x', a.n) || memchr(a.s, 'X', a.n) ||
        memchr(a.s, '(', a.n))
        return 0;
    for (size_t i = 0; i < a.n; i++) {
        if (a.s[i] != '_')
            text[n++] = a.s[i];
        else if (!i || i + 1 == a.n || !is_digit(a.s[i - 1]) || !is_digit(a.s[i + 1]))
            return 0;
    }
    text[n] = 0;
    *x = strtod(text, &end);
    return end == text + n;
}

/* numpy.allclose of the lines as numbers, unless all are digits, which must be equal as they are. */
static int same_numbers(const struct spans *a, const struct spans *want)
{
    int digits = 1;
    double x, y;

    if (a->n != want->n)
        return 0;
    for (size_t i = 0; i < a->n; i++)
        digits &= is_digits(a->at[i]) && is_digits(want->at[i]);
    for (size_t i = 0; i < a->n && !digits; i++)
        if (!to_double(a->at[i], &x) || !to_double(want->at[i], &y) ||
            !(x == y || (isfinite(y) && fabs(x - y) <= 1e-8 + 1e-5 * fabs(y))))
            return 0;
    return !digits;
}

/* The lines that are not empty; each stripped when asked for. */
static void not_empty(struct spans *to, const struct spans *from, int stripped)
{
    for (size_t i = 0; i < from->n; i++) {
        struct span a = stripped ? strip(from->at[i]) : from->at[i];

        if (from->at[i].n)
            add(to, a.s, a.n);
    }
}

/* Python's split("\n"). */
static void split_feeds(struct spans *l, const char *s, size_t n)
{
    const char *end = s + n, *feed;

    while ((feed = memchr(s, '\n', (size_t)(end - s)))) {
        add(l, s, (size_t)(feed - s));
        s = feed + 1;
    }
    add(l, s, (size_t)(end - s));
}

static size_t without_feeds(const char *s, size_t n)
{
    while (n && s[n - 1] == '\n')
        n--;
    return n;
}

int vl_code_same_text(const char *out, size_t n, const char *want, size_t m, int exact)
{
    struct spans lines = { 0 }, full = { 0 }, raw = { 0 }, wanted = { 0 };
    struct span all = strip((struct span){ want, m });
    int is;

    if (exact)
        return same((struct span){ out, without_feeds(out, n) },
                    (struct span){ want, without_feeds(want, m) });
    split_lines(&lines, out, n);
    split_feeds(&raw, want, m);
    not_empty(&full, &lines, 0);
    not_empty(&wanted, &raw, 1);
    is = same_joined(&lines, 0, all) || same_joined(&lines, 1, all) ||
         same_lines(&lines, &wanted) || same_lines(&full, &wanted) || same_numbers(&full, &wanted);
    free(lines.at);
    free(full.at);
    free(raw.at);
    free(wanted.at);
    return is;
}

/* ---- values ---- */

static int number_or_bool(const struct vl_json *j, int64_t i)
{
    return vl_json_is(j, i, VL_JSON_NUMBER) || vl_json_is(j, i, VL_JSON_TRUE) ||
           vl_json_is(j, i, VL_JSON_FALSE);
}

/* The number's digits when it is an integer in Python, who tells them by their text. */
static int integer(const struct vl_json *j, int64_t i, struct span *a)
{
    int b;

    *a = (struct span){ j->text + j->node[i].at, j->node[i].len };
    if (vl_json_bool(j, i, &b))
        *a = (struct span){ b ? "1" : "0", 1 };
    else if (memchr(a->s, '.', a->n) || memchr(a->s, 'e', a->n) || memchr(a->s, 'E', a->n))
        return 0;
    else if (a->n == 2 && !memcmp(a->s, "-0", 2))
        *a = (struct span){ "0", 1 };
    return 1;
}

/* Exactly, whatever the size, as Python compares its integers and floats. */
static int same_number(const struct vl_json *a, int64_t i, const struct vl_json *b, int64_t k)
{
    struct span m, n;
    int whole_a = integer(a, i, &m), whole_b = integer(b, k, &n), is;
    double x = 0, y = 0;
    char *text;

    if (whole_a && whole_b)
        return same(m, n);
    if ((!whole_a && !vl_json_f64(a, i, &x)) || (!whole_b && !vl_json_f64(b, k, &y)))
        return 0;
    if (!whole_a && !whole_b)
        return x == y;
    if (whole_a)
        x = y, n = m;
    if (floor(x) != x)
        return 0;
    text = vl_asprintf("%.0f", x == 0 ? 0 : x); /* all digits of a double that is an integer */
    is = same((struct span){ text, strlen(text) }, n);
    free(text);
    return is;
}

static int same_string(const struct vl_json *a, int64_t i, const struct vl_json *b, int64_t k)
{
    struct vl_buf x = { 0 }, y = { 0 };
    int is;

    vl_json_str(a, i, &x);
    vl_json_str(b, k, &y);
    is = x.n == y.n && !memcmp(x.n ? x.s : "", y.n ? y.s : "", x.n);
    vl_buf_free(&x);
    vl_buf_free(&y);
    return is;
}

static int same_value(const struct vl_json *a, int64_t i, const struct vl_json *b, int64_t k)
{
    int64_t p = i + 1, q = k + 1;

    if (number_or_bool(a, i) && number_or_bool(b, k))
        return same_number(a, i, b, k);
    if (a->node[i].type != b->node[k].type || a->node[i].count != b->node[k].count)
        return 0;
    if (vl_json_is(a, i, VL_JSON_STRING))
        return same_string(a, i, b, k);
    if (vl_json_is(a, i, VL_JSON_ARRAY)) {
        for (uint32_t c = 0; c < a->node[i].count; c++, p = a->node[p].next, q = b->node[q].next)
            if (!same_value(a, p, b, q))
                return 0;
    } else if (vl_json_is(a, i, VL_JSON_OBJECT)) {
        for (uint32_t c = 0; c < a->node[i].count; c++, p = a->node[p + 1].next) {
            q = vl_json_get_as(b, k, a, p);
            if (q < 0 || !same_value(a, p + 1, b, q))
                return 0;
        }
    }
    return 1;
}

int vl_code_same_value(const char *out, size_t n, const char *want, size_t m)
{
    struct vl_json a = { 0 }, b = { 0 };
    struct vl_err ignored = { 0 };
    int is = 0;

    if (!vl_json_parse(&a, out, n, "value", &ignored) &&
        !vl_json_parse(&b, want, m, "value", &ignored))
        is = same_value(&a, 0, &b, 0) ||
             (vl_json_is(&b, 0, VL_JSON_ARRAY) && b.node[0].count && same_value(&a, 0, &b, 1));
    vl_json_free(&a);
    vl_json_free(&b);
    return is;
}
