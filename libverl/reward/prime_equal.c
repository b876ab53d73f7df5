/* prime_equal.c - the last comparison of prime_math: strings, numbers within 1e-4, elements of
 * brackets and lists. See prime_impl.h.
 *
 * The original ends with a symbolic comparison that always raises and is swallowed, and with
 * matrices whose pieces never compare equal; neither is here. */
#include "libverl/reward/prime_impl.h"

#include "libverl/reward/latex.h"
#include "libverl/text/unicode.h"

#include <math.h>
#include <string.h>

enum { PREDICTION_MAX = 1000, DEPTH_MAX = 40 };

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* ---- Python arithmetic: what is left of an answer once pi is a number ---- */

struct eval {
    const char *p, *end;
    int depth;
};

static double sum(struct eval *v);

static void skip(struct eval *v)
{
    while (v->p < v->end && (*v->p == ' ' || *v->p == '\t'))
        v->p++;
}

/* NaN: not an expression. */
static double atom(struct eval *v)
{
    const char *from;
    double x = NAN;

    skip(v);
    from = v->p;
    if (v->p < v->end && *v->p == '(') {
        v->p++;
        x = sum(v);
        skip(v);
        return v->p < v->end && *v->p++ == ')' ? x : NAN;
    }
    while (v->p < v->end && (is_digit(*v->p) || *v->p == '.'))
        v->p++;
    return vl_prime_float(from, (size_t)(v->p - from), &x) ? x : NAN;
}

static double factor(struct eval *v)
{
    double x;

    if (++v->depth > DEPTH_MAX)
        return NAN;
    skip(v);
    if (v->p < v->end && (*v->p == '-' || *v->p == '+')) {
        x = *v->p++ == '-' ? -factor(v) : factor(v);
    } else {
        x = atom(v);
        skip(v);
        if (v->end - v->p >= 2 && v->p[0] == '*' && v->p[1] == '*') {
            v->p += 2;
            x = pow(x, factor(v));
        }
    }
    v->depth--;
    return x;
}

static double product(struct eval *v)
{
    double x = factor(v), y;

    for (skip(v); v->p < v->end && (*v->p == '*' || *v->p == '/'); skip(v)) {
        int times = *v->p++ == '*', whole = !times && v->p < v->end && *v->p == '/';

        v->p += whole;
        y = factor(v);
        x = times ? x * y : y == 0 ? NAN : whole ? floor(x / y) : x / y;
    }
    return x;
}

static double sum(struct eval *v)
{
    double x = product(v);

    for (skip(v); v->p < v->end && (*v->p == '+' || *v->p == '-'); skip(v)) {
        int sign = *v->p++ == '+' ? 1 : -1;

        x += sign * product(v);
    }
    return x;
}

int vl_py_arithmetic(const char *s, size_t n, double *x)
{
    struct eval v = { s, s + n, 0 };
    double y = sum(&v);

    skip(&v);
    if (isnan(y) || v.p != v.end)
        return 0;
    *x = y;
    return 1;
}

/* Evaluates the text, a number or a tuple or list of numbers, in place; leaves others alone. */
static void evaluate(struct vl_buf *b)
{
    const char *s = b->s;
    size_t n = b->n;
    struct vl_buf out = { 0 };
    struct eval v;
    double x;
    char close = 0;

    if (vl_py_arithmetic(s, n, &x)) {
        vl_buf_reset(b);
        vl_buf_real(b, x);
        return;
    }
    vl_tex_strip(&s, &n);
    if (n > 1 && ((*s == '(' && s[n - 1] == ')') || (*s == '[' && s[n - 1] == ']')))
        close = s[n - 1];
    vl_buf_ch(&out, close == ']' ? '[' : '(');
    v = (struct eval){ s + (close != 0), s + n - (close != 0), 0 };
    for (;;) {
        x = sum(&v);
        skip(&v);
        if (isnan(x) || (v.p < v.end && *v.p != ','))
            break;
        vl_buf_real(&out, x);
        if (v.p == v.end) {
            vl_buf_ch(&out, close == ']' ? ']' : ')');
            vl_buf_reset(b);
            vl_buf_add(b, out.s, out.n);
            break;
        }
        v.p++;
        vl_buf_str(&out, ", ");
    }
    vl_buf_free(&out);
}

/* ---- normalisation ---- */

/* Digits, perhaps a point and digits, at s: their length or 0. */
static size_t plain_number(const char *s, size_t n)
{
    size_t i = 0, from;

    while (i < n && is_digit(s[i]))
        i++;
    from = i + 1;
    if (i && i < n && s[i] == '.') {
        size_t k = from;

        while (k < n && is_digit(s[k]))
            k++;
        if (k > from)
            i = k;
    }
    return i;
}

/* 1, or 0 where the original raises an exception. */
static int normalize(struct vl_buf *b, const char *pi)
{
    size_t n = plain_number(b->s, b->n);
    const char *under;
    double x;

    if (b->n > 1 && b->s[0] == '$' && is_digit(b->s[1])) {
        memmove(b->s, b->s + 1, --b->n);
        return 1;
    }
    if (n && ((b->n == n + 1 && b->s[n] == '%') ||
              (b->n == n + 2 && b->s[n] == '\\' && b->s[n + 1] == '%'))) {
        b->n = n;
        return 1;
    }
    under = b->n ? memchr(b->s, '_', b->n) : NULL;
    if (under) { /* a number with its base: an integer */
        if (!vl_prime_float(b->s, (size_t)(under - b->s), &x) || !isfinite(x))
            return 0;
        vl_buf_reset(b);
        vl_buf_printf(b, "%.0f", trunc(x) == 0 ? 0.0 : trunc(x));
    } else if (b->n && memmem(b->s, b->n, "\\pi", 3)) {
        struct vl_buf out = { 0 };

        for (size_t i = 0; i < b->n; i++) {
            if (b->n - i < 3 || memcmp(b->s + i, "\\pi", 3)) {
                vl_buf_ch(&out, b->s[i]);
                continue;
            }
            vl_buf_printf(&out, "%s*%s", out.n && is_digit(out.s[out.n - 1]) ? "" : "1", pi);
            i += 2;
        }
        vl_buf_reset(b);
        vl_buf_add(b, out.s, out.n);
        vl_buf_free(&out);
        evaluate(b);
    }
    return 1;
}

/* ---- comparison ---- */

struct span {
    const char *s;
    size_t n;
};

static struct span strip(struct span a)
{
    vl_tex_strip(&a.s, &a.n);
    return a;
}

static int same_lower(struct span a, struct span b)
{
    struct vl_buf x = { 0 }, y = { 0 };
    int same;

    a = strip(a);
    b = strip(b);
    vl_py_lower(&x, a.s, a.n);
    vl_py_lower(&y, b.s, b.n);
    same = x.n == y.n && (!x.n || !memcmp(x.s, y.s, x.n));
    vl_buf_free(&x);
    vl_buf_free(&y);
    return same;
}

/* Equal when the characters of `drop` are left out of both. */
static int same_without(struct span a, struct span b, const char *drop)
{
    size_t i = 0, k = 0;

    for (;;) {
        while (i < a.n && a.s[i] && strchr(drop, a.s[i]))
            i++;
        while (k < b.n && b.s[k] && strchr(drop, b.s[k]))
            k++;
        if (i == a.n || k == b.n)
            return i == a.n && k == b.n;
        if (a.s[i++] != b.s[k++])
            return 0;
    }
}

/* The text as a number, its commas (or else LaTeX ones) left out. */
static int number(struct span a, double *x)
{
    struct vl_buf b = { 0 };
    int is;

    vl_buf_add(&b, a.s, a.n);
    if (a.n && memmem(a.s, a.n, "{,}", 3))
        vl_tex_replace(&b, "{,}", "");
    else
        vl_tex_replace(&b, ",", "");
    is = b.n && vl_prime_float(b.s, b.n, x);
    vl_buf_free(&b);
    return is;
}

static int close_to(double a, double b)
{
    return a == b || (isfinite(a) && isfinite(b) && fabs(a - b) <= 1e-4 * fmax(fabs(a), fabs(b)));
}

/* Interval.open(a, b) and its like become brackets. */
static void intervals(struct vl_buf *b)
{
    static const char *const forms[][2] = { { "Interval(", "[]" },
                                            { "Interval.Ropen(", "[)" },
                                            { "Interval.Lopen(", "(]" },
                                            { "Interval.open(", "()" } };

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        size_t n = strlen(forms[i][0]);

        if (b->n > n && !memcmp(b->s, forms[i][0], n) && b->s[b->n - 1] == ')' &&
            !memchr(b->s, '\n', b->n)) {
            memmove(b->s + 1, b->s + n, b->n - n);
            b->n -= n - 1;
            b->s[0] = forms[i][1][0];
            b->s[b->n - 1] = forms[i][1][1];
            return;
        }
    }
}

static int opens(struct span a, char c)
{
    return a.n && a.s[0] == c;
}

static int closes(struct span a, char c)
{
    return a.n && a.s[a.n - 1] == c;
}

static struct span without_ends(struct span a, const char *drop)
{
    while (a.n && *a.s && strchr(drop, *a.s))
        a.s++, a.n--;
    while (a.n && a.s[a.n - 1] && strchr(drop, a.s[a.n - 1]))
        a.n--;
    return a;
}

static size_t parts(struct span a)
{
    size_t n = 1;

    for (size_t i = 0; i < a.n; i++)
        n += a.s[i] == ',';
    return n;
}

/* All parts equal, their numbers too; -1 for an exception. */
static int all_parts(struct span a, struct span b)
{
    if (parts(a) != parts(b))
        return 0;
    for (;;) {
        const char *p = a.n ? memchr(a.s, ',', a.n) : NULL, *q = b.n ? memchr(b.s, ',', b.n) : NULL;
        struct span x = strip((struct span){ a.s, p ? (size_t)(p - a.s) : a.n });
        struct span y = strip((struct span){ b.s, q ? (size_t)(q - b.s) : b.n });
        int right = vl_prime_math_equal(x.s, x.n, y.s, y.n, "3.141592653589793");

        if (right <= 0 || !p)
            return right;
        a = (struct span){ p + 1, a.n - (size_t)(p + 1 - a.s) };
        b = (struct span){ q + 1, b.n - (size_t)(q + 1 - b.s) };
    }
}

/* Stripped texts, of which neither is a number or only one. */
static int equal_structures(struct span pred, struct span ref)
{
    struct span p = pred, r = ref;
    int right;

    if ((opens(pred, '[') && closes(pred, ']') && !opens(ref, '(')) ||
        (opens(pred, '(') && closes(pred, ')') && !opens(ref, '['))) {
        p = without_ends(p, "[]()");
        r = without_ends(r, "[]()");
    }
    if (same_without(p, r, "{}()"))
        return 1;
    if (pred.n && ref.n && (*pred.s == '(' || *pred.s == '[') &&
        (closes(pred, ')') || closes(pred, ']')) && *pred.s == *ref.s &&
        closes(ref, pred.s[pred.n - 1])) {
        p = (struct span){ pred.s + 1, pred.n > 1 ? pred.n - 2 : 0 };
        r = (struct span){ ref.s + 1, ref.n > 1 ? ref.n - 2 : 0 };
        right = all_parts(p, r);
        if (right)
            return right;
    }
    if (pred.n && ref.n && memchr(pred.s, ',', pred.n) && memchr(ref.s, ',', ref.n) &&
        parts(pred) == parts(ref))
        return all_parts(pred, ref);
    if (pred.n > 5 && !memcmp(pred.s, "Point", 5) && opens(ref, '(') && closes(ref, ')')) {
        const char *open = memchr(pred.s, '(', pred.n);

        p.s = open ? open + 1 : pred.s;
        p.n = (size_t)(pred.s + pred.n - p.s) - (p.s < pred.s + pred.n);
        r = (struct span){ ref.s + 1, ref.n > 1 ? ref.n - 2 : 0 };
        return all_parts(p, r);
    }
    return 0;
}

int vl_prime_math_equal(const char *a, size_t na, const char *b, size_t nb, const char *pi)
{
    struct vl_buf pred = { 0 }, ref = { 0 };
    struct span p, r;
    double x, y;
    size_t cut = 0;
    int right = -1;

    vl_buf_add(&pred, a, na);
    vl_buf_add(&ref, b, nb);
    if (!normalize(&pred, pi) || !normalize(&ref, pi))
        goto done;
    for (int k = 0; k < PREDICTION_MAX && cut < pred.n; k++)
        cut += vl_tex_char(pred.s + cut, pred.n - cut);
    pred.n = cut;
    p = (struct span){ pred.s, pred.n };
    r = (struct span){ ref.s, ref.n };
    right = 1;
    if (same_lower(p, r) || same_without(p, r, " "))
        goto done;
    if (number(p, &x) && number(r, &y)) {
        right = close_to(y / 100, x) || close_to(y, x) || close_to(y * 100, x);
        goto done;
    }
    right = 0;
    if (pred.n) {
        p = strip(p);
        memmove(pred.s, p.s, p.n);
        pred.n = p.n;
        intervals(&pred);
        right = equal_structures((struct span){ pred.s, pred.n }, strip(r));
    }
done:
    vl_buf_free(&pred);
    vl_buf_free(&ref);
    return right;
}
