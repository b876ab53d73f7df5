/* math_clean.c - what stands around an answer and does not change it: dollars, spacing, units, a
 * name before "=". See math_equal.h. */
#include "libverl/reward/math_impl.h"

#include "libverl/reward/latex.h"
#include "libverl/reward/prime_impl.h"

#include <string.h>

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* ---- small steps on texts ---- */

struct vl_span vl_span_strip(struct vl_span a)
{
    while (a.n && is_space(*a.s))
        a.s++, a.n--;
    while (a.n && is_space(a.s[a.n - 1]))
        a.n--;
    return a;
}

int vl_span_starts(struct vl_span a, const char *word)
{
    size_t n = strlen(word);

    return a.n >= n && !memcmp(a.s, word, n);
}

int vl_span_ends(struct vl_span a, const char *word)
{
    size_t n = strlen(word);

    return a.n >= n && !memcmp(a.s + a.n - n, word, n);
}

/* How the bracket depth changes at byte i; \{ and \} count like { and }. */
static int turn(struct vl_span a, size_t i)
{
    if (a.s[i] && strchr("([{", a.s[i]))
        return 1;
    return a.s[i] && strchr(")]}", a.s[i]) ? -1 : 0;
}

size_t vl_span_find(struct vl_span a, size_t from, const char *const *words, size_t *which)
{
    int depth = 0;

    for (size_t i = from; i < a.n; i++) {
        for (size_t w = 0; words[w] && !depth; w++)
            if (vl_span_starts((struct vl_span){ a.s + i, a.n - i }, words[w])) {
                *which = w;
                return i;
            }
        depth += turn(a, i);
        if (depth < 0)
            depth = 0;
    }
    return a.n;
}

int vl_span_split(struct vl_span a, const char *const *words, struct vl_parts *p)
{
    size_t from = 0, at, which = 0;

    p->n = 0;
    for (;;) {
        at = vl_span_find(a, from, words, &which);
        if (p->n == VL_PARTS)
            return 0;
        p->part[p->n++] = vl_span_strip((struct vl_span){ a.s + from, at - from });
        if (at == a.n)
            return 1;
        from = at + strlen(words[which]);
    }
}

int vl_span_enclosed(struct vl_span a)
{
    int depth = 0;

    for (size_t i = 0; i < a.n; i++) {
        depth += turn(a, i);
        if (depth <= 0)
            return i + 1 == a.n && i > 0;
    }
    return 0;
}

/* ---- cleaning ---- */

/* \text{and} -> a comma, \text{anything else} -> its content when all is text, else nothing (a unit). */
static void drop_text(struct vl_buf *b)
{
    static const char *const commands[] = { "\\text{",   "\\textbf{", "\\textit{",       "\\mbox{",
                                            "\\mathrm{", "\\mathbf{", "\\operatorname{", NULL };

    for (size_t k = 0; commands[k]; k++) {
        size_t n = strlen(commands[k]);
        char *hit;

        while (b->n && (hit = memmem(b->s, b->n, commands[k], n))) {
            size_t at = (size_t)(hit - b->s);
            char *close = memchr(hit, '}', b->n - at);
            struct vl_span in = { hit + n, close ? (size_t)(close - hit) - n : 0 };
            struct vl_buf out = { 0 };

            vl_buf_add(&out, b->s, at);
            in = vl_span_strip(in);
            if (in.n &&
                ((in.n == 3 && !memcmp(in.s, "and", 3)) || (in.n == 2 && !memcmp(in.s, "or", 2))))
                vl_buf_ch(&out, ',');
            else if (k == 4 || k == 5 || k == 6 || !vl_span_strip((struct vl_span){ b->s, at }).n)
                vl_buf_add(&out, in.s, in.n);
            if (close)
                vl_buf_add(&out, close + 1, b->n - (size_t)(close + 1 - b->s));
            vl_buf_add(&out, "", 0);
            vl_buf_free(b);
            *b = out;
        }
    }
}

/* Whether a word is read as a unit: three letters or more, or one of the usual short ones. */
static int is_unit(struct vl_span word)
{
    static const char *const unit[] = { "cm", "mm", "km", "kg", "mg", "ml", "ft", "in", "hr",
                                        "mi", "yd", "oz", "lb", "ms", "Hz", "am", "pm", NULL };

    for (size_t k = 0; unit[k]; k++)
        if (word.n == 2 && vl_span_starts(word, unit[k]))
            return 1;
    return word.n >= 3 && !vl_span_starts(word, "sqrt") && !vl_span_starts(word, "and");
}

/* Words after a number are its unit: "5 cm", "12 square feet", "3 km/hr", "5 cm^2". */
static struct vl_span drop_unit(struct vl_span a)
{
    size_t i = 0, number, digits = 0;

    while (i < a.n && a.s[i] && (is_digit(a.s[i]) || strchr(".,-+/ ", a.s[i])))
        i++;
    number = i;
    for (size_t k = 0; k < number; k++)
        digits += is_digit(a.s[k]);
    if (!digits)
        return a;
    while (i < a.n) {
        size_t from = i;

        while (i < a.n && is_letter(a.s[i]))
            i++;
        if (!is_unit((struct vl_span){ a.s + from, i - from }))
            return a;
        while (i < a.n && a.s[i] && strchr(" /^23{}.", a.s[i]))
            i++;
    }
    return vl_span_strip((struct vl_span){ a.s, number });
}

/* 1,234,567.8 without its commas when all of it is such a number. */
static void drop_thousands(struct vl_buf *b)
{
    size_t i = b->n && (b->s[0] == '-' || b->s[0] == '+'), first = i, commas = 0;

    while (i < b->n && is_digit(b->s[i]))
        i++;
    if (i == first || i - first > 3)
        return;
    while (i + 3 < b->n && b->s[i] == ',' && is_digit(b->s[i + 1]) && is_digit(b->s[i + 2]) &&
           is_digit(b->s[i + 3])) {
        i += 4;
        commas++;
    }
    if (i < b->n && b->s[i] == '.')
        for (i++; i < b->n && is_digit(b->s[i]);)
            i++;
    if (commas && (i == b->n || b->s[i] == '%' || b->s[i] == ' '))
        vl_prime_strip_commas(b);
}

/* 7 3/4 -> (7+3/4), -7 3/4 -> -(7+3/4), when all of it is such a number. */
static void mixed_number(struct vl_buf *b)
{
    size_t minus = b->n && b->s[0] == '-', i = minus, gap, slash;
    struct vl_buf out = { 0 };

    while (i < b->n && is_digit(b->s[i]))
        i++;
    gap = i;
    while (i < b->n && b->s[i] == ' ')
        i++;
    slash = i;
    if (gap == minus || i == gap)
        return;
    while (slash < b->n && is_digit(b->s[slash]))
        slash++;
    if (slash == i || slash >= b->n || b->s[slash] != '/')
        return;
    for (size_t k = slash + 1; k < b->n; k++)
        if (!is_digit(b->s[k]))
            return;
    vl_buf_str(&out, minus ? "-(" : "(");
    vl_buf_add(&out, b->s + minus, gap - minus);
    vl_buf_ch(&out, '+');
    vl_buf_add(&out, b->s + i, b->n - i);
    vl_buf_ch(&out, ')');
    vl_buf_free(b);
    *b = out;
}

/* 3:2 -> 3/2, when all of it is such a ratio. */
static void ratio(struct vl_buf *b)
{
    char *colon = b->n ? memchr(b->s, ':', b->n) : NULL;

    for (size_t i = 0; i < b->n; i++)
        if (!is_digit(b->s[i]) && !is_space(b->s[i]) && b->s + i != colon)
            return;
    if (colon)
        *colon = '/';
}

/* What follows the last "=" when a name stands before the first, or what follows \in. */
static struct vl_span drop_name(struct vl_span a)
{
    static const char *const in[] = { "\\in ", "\\in[", "\\in(", "\\in\\", NULL };
    static const char *const equals[] = { "=", NULL };
    struct vl_parts p;
    struct vl_span name;
    size_t which, at = vl_span_find(a, 0, in, &which), i;

    if (at < a.n && at < 12)
        return vl_span_strip((struct vl_span){ a.s + at + 3, a.n - at - 3 });
    if (!vl_span_split(a, equals, &p) || p.n < 2)
        return a;
    name = p.part[0];
    i = name.n && is_letter(name.s[0]);
    while (i && i < name.n && (is_digit(name.s[i]) || strchr("_{}'", name.s[i])))
        i++;
    if (i == name.n || (i && name.s[i] == '(' && vl_span_ends(name, ")") && name.n - i <= 6) ||
        p.n > 2)
        return p.part[p.n - 1];
    return a;
}

void vl_math_clean(struct vl_span a, int whole, struct vl_buf *b)
{
    static const char *const change[][2] = {
        { "\\!", "" },
        { "\\,", "" },
        { "\\;", " " },
        { "\\:", " " },
        { "\\ ", " " },
        { "~", " " },
        { "{,}", "" },
        { "\\%", "%" },
        { "\\$", "" },
        { "$", "" },
        { "\\(", "" },
        { "\\)", "" },
        { "\\[", "" },
        { "\\]", "" },
        { "\\left", "" },
        { "\\right", "" },
        { "\\displaystyle", "" },
        { "\\bigl", "" },
        { "\\bigr", "" },
        { "^{\\circ}", "" },
        { "^\\circ", "" },
        { "\\degree", "" },
        { "\xC2\xB0", "" },
        { "\xE2\x88\x92", "-" },
        { "\xC3\x97", "*" },
        { "\xC2\xB7", "*" },
        { "\xC3\xB7", "/" },
        { "\xCF\x80", "\\pi " },
        { "\xE2\x88\x9A", "\\sqrt " },
        { "\xE2\x88\x9E", "\\infty " },
        { "\xE2\x88\xAA", "\\cup " },
        { "\xE2\x89\xA4", "\\le " },
        { "\xE2\x89\xA5", "\\ge " },
        { "\\leq", "\\le" },
        { "\\geq", "\\ge" },
        { "\\lbrace", "\\{" },
        { "\\rbrace", "\\}" },
        { "\\lt", "<" },
        { "\\gt", ">" },
        { "\\emptyset", "\\{\\}" },
        { "\\varnothing", "\\{\\}" },
    };

    a = vl_span_strip(a);
    vl_buf_add(b, a.s, a.n);
    /* the end of a matrix' row; elsewhere a backslash that was escaped once too often */
    vl_tex_replace(b, "\\\\", b->n && memmem(b->s, b->n, "\\begin{", 7) ? VL_ROW_END : "\\");
    for (size_t i = 0; i < sizeof change / sizeof *change; i++)
        vl_tex_replace(b, change[i][0], change[i][1]);
    drop_text(b);
    vl_buf_add(b, "", 0);
    a = vl_span_strip((struct vl_span){ b->s, b->n });
    while (a.n && strchr(".,;:", a.s[a.n - 1]))
        a = vl_span_strip((struct vl_span){ a.s, a.n - 1 });
    a = whole ? a : drop_unit(vl_span_strip(drop_name(a)));
    memmove(b->s, a.s, a.n);
    b->n = a.n;
    drop_thousands(b);
    mixed_number(b);
    ratio(b);
    vl_buf_add(b, "", 0);
}
