/* math_equal.c - structures around expressions. See math_equal.h.
 *
 * No tree is built: both texts are taken apart side by side, and each pair of parts is compared the
 * same way. Lengths, elements and levels are limited, so the work is too; beyond the limits only
 * equal texts are equal. */
#include "libverl/reward/math_equal.h"

#include "libverl/reward/latex.h"
#include "libverl/reward/math_impl.h"
#include "libverl/text/unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 4000, DEPTH_MAX = 5, COMPARISONS_MAX = 2000 };

enum kind {
    EXPRESSION,
    TUPLE, /* brackets of any two kinds around at least two parts: also an interval */
    SET,   /* \{...\}, or a list without brackets */
    UNION,
    MATRIX,
    WORDS,
};

struct shape {
    enum kind kind;
    char open, close; /* TUPLE; SET: '{', or 0 for a bare list */
    int percent;
    struct vl_parts p;
    size_t columns; /* MATRIX: parts are row by row */
};

struct judge {
    double tolerance;
    int left; /* comparisons that may still be made: lists in lists in any order could take many */
};

static enum vl_alg_verdict compare(struct vl_span a, struct vl_span b, struct judge *g, int depth);

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* ---- shapes ---- */

/* Three letters in a row that belong to no command and no function: words, not a product. */
static int has_words(struct vl_span a)
{
    static const char *const functions[] = { "sqrt", "frac", "sin", "cos", "tan",
                                             "log",  "exp",  "abs", NULL };
    size_t i = 0;

    while (i < a.n) {
        size_t from = i;
        int known = 0;

        if (a.s[i] == '\\') {
            for (i++; i < a.n && is_letter(a.s[i]);)
                i++;
            continue;
        }
        while (i < a.n && is_letter(a.s[i]))
            i++;
        for (size_t k = 0; functions[k]; k++)
            known |= vl_span_starts((struct vl_span){ a.s + from, i - from }, functions[k]);
        if (i - from >= 3 && !known)
            return 1;
        i += i == from;
    }
    return 0;
}

/* \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}: 1 when it is one that can be taken apart. */
static int matrix(struct vl_span a, struct shape *s)
{
    static const char *const rows[] = { VL_ROW_END, NULL }, *const cells[] = { "&", NULL };
    const char *open = a.n ? memchr(a.s, '}', a.n) : NULL;
    const char *close = vl_tex_rfind(a.s, a.n, "\\end{");
    struct vl_parts r;

    if (!vl_span_starts(a, "\\begin{") || !open || !close || close < open)
        return 0;
    a = vl_span_strip((struct vl_span){ open + 1, (size_t)(close - open - 1) });
    while (vl_span_ends(a, VL_ROW_END))
        a = vl_span_strip((struct vl_span){ a.s, a.n - 1 });
    if (!vl_span_split(a, rows, &r))
        return 0;
    s->kind = MATRIX;
    s->p.n = 0;
    for (size_t k = 0; k < r.n; k++) {
        struct vl_parts c;

        if (!vl_span_split(r.part[k], cells, &c) || (k && c.n != s->columns) ||
            s->p.n + c.n > VL_PARTS)
            return 0;
        s->columns = c.n;
        memcpy(s->p.part + s->p.n, c.part, c.n * sizeof *c.part);
        s->p.n += c.n;
    }
    return 1;
}

/* x < 5, 1 \le x < 5: the interval as brackets and ends. Texts of infinity are static. */
static int inequality(struct vl_span a, struct shape *s)
{
    static const char *const signs[] = { "\\le", "\\ge", "<=", ">=", "<", ">", NULL };
    const struct vl_span minus = { "-\\infty", 7 }, plus = { "\\infty", 6 };
    struct vl_span part[3];
    int up[2], strict[2];
    size_t n = 0, from = 0, which = 0;

    for (;;) {
        size_t at = vl_span_find(a, from, signs, &which);

        if (n == 3)
            return 0;
        part[n] = vl_span_strip((struct vl_span){ a.s + from, at - from });
        if (at == a.n)
            break;
        if (n == 2)
            return 0;
        up[n] = which % 2 == 0;
        strict[n] = which >= 4;
        n++;
        from = at + strlen(signs[which]);
    }
    if (!n)
        return 0;
    s->kind = TUPLE;
    s->p.n = 2;
    if (n == 2 && part[1].n == 1 && is_letter(*part[1].s) && up[0] == up[1]) {
        int low = up[0] ? 0 : 1; /* which sign is at the lower end */

        s->p.part[0] = part[up[0] ? 0 : 2];
        s->p.part[1] = part[up[0] ? 2 : 0];
        s->open = strict[low] ? '(' : '[';
        s->close = strict[1 - low] ? ')' : ']';
        return 1;
    }
    if (n == 1 && part[0].n == 1 && is_letter(*part[0].s)) {
        part[2] = part[1];
    } else if (n == 1 && part[1].n == 1 && is_letter(*part[1].s)) {
        part[2] = part[0];
        up[0] = !up[0];
    } else {
        return 0;
    }
    s->p.part[0] = up[0] ? minus : part[2]; /* x < c is (-inf, c) */
    s->p.part[1] = up[0] ? part[2] : plus;
    s->open = up[0] || strict[0] ? '(' : '[';
    s->close = !up[0] || strict[0] ? ')' : ']';
    return 1;
}

/* a \pm b as two texts, kept in b. */
static int plus_minus(struct vl_span a, struct vl_buf *b, struct shape *s)
{
    const char *pm = a.n ? memmem(a.s, a.n, "\\pm", 3) : NULL;
    size_t at = pm ? (size_t)(pm - a.s) : 0;

    if (!pm || memmem(pm + 3, a.n - at - 3, "\\pm", 3))
        return 0;
    for (int k = 0; k < 2; k++) {
        vl_buf_add(b, a.s, at);
        vl_buf_ch(b, k ? '-' : '+');
        vl_buf_add(b, pm + 3, a.n - at - 3);
    }
    s->kind = SET;
    s->p.n = 2;
    s->p.part[0] = (struct vl_span){ b->s, b->n / 2 };
    s->p.part[1] = (struct vl_span){ b->s + b->n / 2, b->n / 2 };
    return 1;
}

/* What the text is. `room` keeps texts that parts point into. */
static void shape_of(struct vl_span a, struct vl_buf *room, struct shape *s)
{
    static const char *const cup[] = { "\\cup", NULL }, *const comma[] = { ",", NULL };

    *s = (struct shape){ .kind = EXPRESSION };
    if (matrix(a, s) || inequality(a, s) || plus_minus(a, room, s))
        return;
    if (vl_span_split(a, cup, &s->p) && s->p.n > 1) {
        s->kind = UNION;
    } else if (vl_span_starts(a, "\\{") && vl_span_ends(a, "\\}") && a.n >= 4) {
        s->kind = SET;
        s->open = '{';
        if (!vl_span_split((struct vl_span){ a.s + 2, a.n - 4 }, comma, &s->p))
            s->kind = WORDS;
    } else if (a.n > 2 && strchr("([", *a.s) && vl_span_enclosed(a) &&
               vl_span_split((struct vl_span){ a.s + 1, a.n - 2 }, comma, &s->p) && s->p.n > 1) {
        s->kind = TUPLE;
        s->open = *a.s;
        s->close = a.s[a.n - 1];
    } else if (vl_span_split(a, comma, &s->p) && s->p.n > 1) {
        s->kind = SET;
    } else if (has_words(a)) {
        s->kind = WORDS;
    } else {
        s->percent = a.n > 1 && a.s[a.n - 1] == '%';
        s->p.part[0] = vl_span_strip((struct vl_span){ a.s, a.n - (size_t)s->percent });
        s->p.n = 1;
    }
}

/* ---- comparison ---- */

/* Equal texts, white space and case aside. */
static int same_text(struct vl_span a, struct vl_span b)
{
    struct vl_buf x = { 0 }, y = { 0 };
    size_t i = 0, k = 0;
    int same = 1;

    vl_py_lower(&x, a.s, a.n);
    vl_py_lower(&y, b.s, b.n);
    while (same) {
        while (i < x.n && is_space(x.s[i]))
            i++;
        while (k < y.n && is_space(y.s[k]))
            k++;
        if (i == x.n || k == y.n)
            break;
        same = x.s[i++] == y.s[k++];
    }
    same = same && i == x.n && k == y.n;
    vl_buf_free(&x);
    vl_buf_free(&y);
    return same;
}

static int has_point(struct vl_span a)
{
    return a.n && memchr(a.s, '.', a.n) != NULL;
}

static enum vl_alg_verdict numbers(struct vl_alg *w, const struct vl_algx *x,
                                   const struct vl_algx *y, int decimal, double tolerance)
{
    enum vl_alg_verdict v = vl_alg_equal(w, x, y);
    double p, q;

    if (v != VL_ALG_EQUAL && decimal && vl_alg_real(x, &p) && vl_alg_real(y, &q) &&
        fabs(p - q) <= tolerance * fmax(1, fabs(q)))
        return VL_ALG_EQUAL;
    return v == VL_ALG_UNDECIDED && vl_alg_near(x, y) ? VL_ALG_EQUAL : v;
}

static enum vl_alg_verdict expressions(const struct shape *a, const struct shape *b,
                                       double tolerance)
{
    struct vl_alg *w = vl_alg_new();
    struct vl_span s = a->p.part[0], t = b->p.part[0];
    const struct vl_algx *x = vl_alg_parse(w, s.s, s.n, VL_ALG_LATEX);
    const struct vl_algx *y = vl_alg_parse(w, t.s, t.n, VL_ALG_LATEX);
    int decimal = has_point(s) || has_point(t);
    enum vl_alg_verdict v = numbers(w, x, y, decimal, tolerance);

    if (v == VL_ALG_DIFFERENT && a->percent != b->percent) {
        const struct vl_algx *hundred = vl_alg_int(w, 100);

        if (a->percent)
            x = vl_alg_div(w, x, hundred);
        else
            y = vl_alg_div(w, y, hundred);
        v = numbers(w, x, y, decimal, tolerance);
    }
    vl_alg_free(w);
    return v;
}

static enum vl_alg_verdict worse(enum vl_alg_verdict a, enum vl_alg_verdict b)
{
    if (a == VL_ALG_DIFFERENT || b == VL_ALG_DIFFERENT)
        return VL_ALG_DIFFERENT;
    return a == VL_ALG_UNDECIDED || b == VL_ALG_UNDECIDED ? VL_ALG_UNDECIDED : VL_ALG_EQUAL;
}

static enum vl_alg_verdict in_order(const struct vl_parts *a, const struct vl_parts *b,
                                    struct judge *g, int depth)
{
    enum vl_alg_verdict v = a->n == b->n ? VL_ALG_EQUAL : VL_ALG_DIFFERENT;

    for (size_t k = 0; k < a->n && v != VL_ALG_DIFFERENT; k++)
        v = worse(v, compare(a->part[k], b->part[k], g, depth));
    return v;
}

/* Each part of a equals a part of b that no other took. */
static enum vl_alg_verdict any_order(const struct vl_parts *a, const struct vl_parts *b,
                                     struct judge *g, int depth)
{
    int taken[VL_PARTS] = { 0 };
    enum vl_alg_verdict v = a->n == b->n ? VL_ALG_EQUAL : VL_ALG_DIFFERENT;

    for (size_t k = 0; k < a->n && v != VL_ALG_DIFFERENT; k++) {
        enum vl_alg_verdict best = VL_ALG_DIFFERENT;

        for (size_t m = 0; m < b->n && best != VL_ALG_EQUAL; m++) {
            enum vl_alg_verdict one;

            if (taken[m])
                continue;
            one = compare(a->part[k], b->part[m], g, depth);
            if (one == VL_ALG_EQUAL)
                taken[m] = 1;
            if (one != VL_ALG_DIFFERENT)
                best = one;
        }
        v = worse(v, best);
    }
    return v;
}

static enum vl_alg_verdict shapes(struct shape *a, struct shape *b, struct judge *g, int depth)
{
    if (a->kind == EXPRESSION && b->kind == SET && b->p.n == 1)
        return compare(a->p.part[0], b->p.part[0], g, depth);
    if (b->kind == EXPRESSION && a->kind == SET && a->p.n == 1)
        return compare(a->p.part[0], b->p.part[0], g, depth);
    if (a->kind != b->kind) {
        struct shape *set = a->kind == SET ? a : b, *tuple = a->kind == SET ? b : a;

        /* a bare list is also a tuple in round brackets */
        if (set->kind == SET && !set->open && tuple->kind == TUPLE && tuple->open == '(' &&
            tuple->close == ')')
            return in_order(&a->p, &b->p, g, depth);
        return VL_ALG_DIFFERENT;
    }
    switch (a->kind) {
    case EXPRESSION:
        return expressions(a, b, g->tolerance);
    case TUPLE:
        return a->open == b->open && a->close == b->close ? in_order(&a->p, &b->p, g, depth)
                                                          : VL_ALG_DIFFERENT;
    case MATRIX:
        return a->columns == b->columns ? in_order(&a->p, &b->p, g, depth) : VL_ALG_DIFFERENT;
    case WORDS:
        return VL_ALG_DIFFERENT; /* equal texts were seen before */
    default:
        return any_order(&a->p, &b->p, g, depth);
    }
}

static enum vl_alg_verdict compare(struct vl_span a, struct vl_span b, struct judge *g, int depth)
{
    struct vl_buf p = { 0 }, q = { 0 };
    struct shape *s;
    enum vl_alg_verdict v;

    if (same_text(a, b))
        return VL_ALG_EQUAL;
    if (depth > DEPTH_MAX || --g->left < 0)
        return VL_ALG_UNDECIDED;
    s = vl_alloc(2 * sizeof *s);
    shape_of(vl_span_strip(a), &p, &s[0]);
    shape_of(vl_span_strip(b), &q, &s[1]);
    v = shapes(&s[0], &s[1], g, depth + 1);
    free(s);
    vl_buf_free(&p);
    vl_buf_free(&q);
    return v;
}

/* Left minus right of a text that is one equation, or NULL. */
static const struct vl_algx *equation(struct vl_alg *w, const char *s, size_t n)
{
    static const char *const equals[] = { "=", NULL };
    const struct vl_algx *left = NULL, *right = NULL;
    struct vl_buf b = { 0 };
    struct vl_parts p;

    vl_math_clean((struct vl_span){ s, n }, 1, &b);
    if (vl_span_split((struct vl_span){ b.s, b.n }, equals, &p) && p.n == 2) {
        left = vl_alg_parse(w, p.part[0].s, p.part[0].n, VL_ALG_LATEX);
        right = vl_alg_parse(w, p.part[1].s, p.part[1].n, VL_ALG_LATEX);
    }
    vl_buf_free(&b);
    return vl_alg_add(w, left, right, -1);
}

/* Whether both are equations of which one is the other times a whole number or its inverse. */
static int same_equation(const char *a, size_t na, const char *b, size_t nb)
{
    struct vl_alg *w = vl_alg_new();
    const struct vl_algx *x = equation(w, a, na), *y = x ? equation(w, b, nb) : NULL;
    int same = 0;

    for (int k = 1; k <= 12 && x && y && !same; k++)
        for (int turn = 0; turn < 4 && !same; turn++) {
            const struct vl_algx *factor = vl_alg_int(w, turn & 1 ? -k : k);

            same = vl_alg_equal(w, turn & 2 ? vl_alg_mul(w, x, factor) : x,
                                turn & 2 ? y : vl_alg_mul(w, y, factor)) == VL_ALG_EQUAL;
        }
    vl_alg_free(w);
    return same;
}

enum vl_alg_verdict vl_math_equal(const char *a, size_t na, const char *b, size_t nb,
                                  double tolerance)
{
    struct judge g = { tolerance, COMPARISONS_MAX };
    struct vl_buf x = { 0 }, y = { 0 };
    enum vl_alg_verdict v;

    if (na > BYTES_MAX || nb > BYTES_MAX)
        return na == nb && !memcmp(a, b, na) ? VL_ALG_EQUAL : VL_ALG_UNDECIDED;
    vl_math_clean((struct vl_span){ a, na }, 0, &x);
    vl_math_clean((struct vl_span){ b, nb }, 0, &y);
    v = compare((struct vl_span){ x.s, x.n }, (struct vl_span){ y.s, y.n }, &g, 0);
    if (!x.n || !y.n)
        v = VL_ALG_DIFFERENT; /* an empty answer is none */
    else if (v != VL_ALG_EQUAL && memchr(a, '=', na) && memchr(b, '=', nb) &&
             same_equation(a, na, b, nb))
        v = VL_ALG_EQUAL;
    vl_buf_free(&x);
    vl_buf_free(&y);
    return v;
}
