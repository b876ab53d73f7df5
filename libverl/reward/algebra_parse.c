/* algebra_parse.c - reads an expression, plain or LaTeX, straight into its value.
 *
 * Recursive descent over bytes, at most BYTES_MAX of them and DEPTH_MAX levels, so any text takes
 * bounded time. Multiplication signs may be left out; they then bind like written ones, from left to
 * right: 1/2x is (1/2)*x. In LaTeX a digit run before a \frac of two numbers is a mixed number. */
#include "libverl/reward/algebra.h"

#include <string.h>

enum { BYTES_MAX = 2000, DEPTH_MAX = 60 };

struct parser {
    struct vl_alg *a;
    const char *p, *end;
    int latex, depth;
};

typedef const struct vl_algx *value;

static value sum(struct parser *s);
static value signed_factor(struct parser *s);
static value primary(struct parser *s);

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Whether the text goes on with this word; for a command, that it ends there. */
static int at(const struct parser *s, const char *word)
{
    size_t n = strlen(word);

    return (size_t)(s->end - s->p) >= n && !memcmp(s->p, word, n) &&
           !(*word == '\\' && is_letter(word[n - 1]) && s->p + n < s->end && is_letter(s->p[n]));
}

static int take(struct parser *s, const char *word)
{
    if (!at(s, word))
        return 0;
    s->p += strlen(word);
    return 1;
}

/* White space and what only places things. */
static void skip(struct parser *s)
{
    static const char *const nothing[] = { "\\left", "\\right", "\\,",    "\\;", "\\!",
                                           "\\:",    "\\ ",     "\\quad", "~",   "\\big" };
    int more = 1;

    while (more && s->p < s->end) {
        more = strchr(" \t\r\n", *s->p) != NULL && *s->p;
        s->p += more;
        for (size_t i = 0; s->latex && i < sizeof nothing / sizeof *nothing && !more; i++)
            more = take(s, nothing[i]);
    }
}

/* What a function without braces is of: (...) alone, so that sqrt(x)^2 is the square of a root, or
 * the next factor. */
static value operand(struct parser *s)
{
    skip(s);
    return at(s, "(") ? primary(s) : signed_factor(s);
}

/* {...} or the next single character or command: an argument of \frac, \sqrt, ^. */
static value argument(struct parser *s)
{
    struct parser one = *s;
    value v;

    skip(s);
    if (take(s, "{")) {
        v = sum(s);
        skip(s);
        return take(s, "}") ? v : NULL;
    }
    if (s->p < s->end && is_digit(*s->p)) { /* \frac12: one digit */
        one = *s;
        one.end = ++s->p;
        return sum(&one);
    }
    return operand(s);
}

/* ---- numbers ---- */

static value number(struct parser *s)
{
    const char *from = s->p;
    int points = 0, digits = 0, e = 0, minus = 0;

    for (; s->p < s->end && (is_digit(*s->p) || *s->p == '.'); s->p++) {
        points += *s->p == '.';
        digits += *s->p != '.';
    }
    if (!digits || points > 1)
        return NULL;
    if (!s->latex && s->p + 1 < s->end && (*s->p == 'e' || *s->p == 'E')) {
        const char *q = s->p + 1, *stop = s->p;

        minus = *q == '-';
        q += *q == '-' || *q == '+';
        if (q < s->end && is_digit(*q)) {
            for (; q < s->end && is_digit(*q); q++)
                e = e < 1000 ? e * 10 + (*q - '0') : e;
            s->p = q;
            return vl_alg_decimal(s->a, from, (size_t)(stop - from), minus ? -e : e);
        }
    }
    return vl_alg_decimal(s->a, from, (size_t)(s->p - from), 0);
}

/* ---- LaTeX commands ---- */

static value frac(struct parser *s)
{
    value x = argument(s), y = argument(s);

    return vl_alg_div(s->a, x, y);
}

static value root(struct parser *s)
{
    int64_t n = 2;

    skip(s);
    if (take(s, "[")) {
        value degree = sum(s);

        skip(s);
        if (!take(s, "]") || !vl_alg_integer(degree, &n) || n < 2)
            return NULL;
    }
    return vl_alg_root(s->a, argument(s), n);
}

/* The argument of a function: (...), {...} or the product that follows. */
static value call(struct parser *s, const char *name)
{
    value x, power = NULL, r;

    skip(s);
    if (take(s, "^")) { /* \sin^2 x */
        power = argument(s);
        if (!power)
            return NULL;
        skip(s);
    }
    x = at(s, "{") ? argument(s) : operand(s);
    r = vl_alg_call(s->a, name, strlen(name), x);
    return power ? vl_alg_pow(s->a, r, power) : r;
}

static value logarithm(struct parser *s)
{
    value base;

    skip(s);
    if (!take(s, "_"))
        return call(s, "log");
    base = argument(s);
    return vl_alg_div(s->a, call(s, "ln"), vl_alg_call(s->a, "ln", 2, base));
}

static value binomial(struct parser *s)
{
    value n = argument(s), k = argument(s), f = vl_alg_factorial(s->a, n);

    f = vl_alg_div(s->a, f, vl_alg_factorial(s->a, k));
    return vl_alg_div(s->a, f, vl_alg_factorial(s->a, vl_alg_add(s->a, n, k, -1)));
}

static value command(struct parser *s)
{
    static const char *const functions[] = { "sin", "cos",    "tan",    "cot",    "sec", "csc",
                                             "ln",  "arcsin", "arccos", "arctan", "exp" };
    static const char *const greek[] = {
        "alpha", "beta", "gamma", "delta", "epsilon", "theta", "lambda", "mu", "nu",    "rho",
        "sigma", "tau",  "phi",   "psi",   "omega",   "Delta", "Omega",  "xi", "kappa", "varphi",
    };
    char word[16];

    if (take(s, "\\frac") || take(s, "\\dfrac") || take(s, "\\tfrac") || take(s, "\\cfrac"))
        return frac(s);
    if (take(s, "\\sqrt"))
        return root(s);
    if (take(s, "\\pi"))
        return vl_alg_pi(s->a);
    if (take(s, "\\log"))
        return logarithm(s);
    if (take(s, "\\lg"))
        return call(s, "log");
    if (take(s, "\\binom") || take(s, "\\dbinom") || take(s, "\\tbinom"))
        return binomial(s);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        word[0] = '\\';
        strcpy(word + 1, functions[i]);
        if (take(s, word))
            return call(s, functions[i]);
    }
    for (size_t i = 0; i < sizeof greek / sizeof *greek; i++) {
        word[0] = '\\';
        strcpy(word + 1, greek[i]);
        if (take(s, word))
            return vl_alg_symbol(s->a, word, strlen(word));
    }
    if (take(s, "\\lfloor")) {
        value v = sum(s);

        skip(s);
        return take(s, "\\rfloor") ? vl_alg_call(s->a, "floor", 5, v) : NULL;
    }
    return NULL;
}

/* ---- names ---- */

/* A letter with its subscript: x, x_1, x_{12}. */
static value letter(struct parser *s)
{
    const char *from = s->p++;
    char name[32];
    size_t n = 0;

    if (*from == 'e' && !at(s, "_")) {
        const double e[2] = { 2.718281828459045, 2.718281828459045 };

        return vl_alg_named(s->a, "e", 1, e);
    }
    if (*from == 'i' && !at(s, "_"))
        return vl_alg_i(s->a);
    name[n++] = *from;
    if (take(s, "_")) {
        int braces = take(s, "{");

        name[n++] = '_';
        while (s->p < s->end && n < sizeof name && (is_letter(*s->p) || is_digit(*s->p))) {
            name[n++] = *s->p++;
            if (!braces)
                break;
        }
        if (n == 2 || (braces && !take(s, "}")))
            return NULL;
    }
    return vl_alg_symbol(s->a, name, n);
}

/* Several letters in plain text are a product, digits among them numbers (2xy3 is 2*x*y*3), but for a
 * few names of functions and Greek letters and for x_1. One letter before a parenthesis is a
 * function. */
static value word(struct parser *s)
{
    static const char *const whole[] = { "mu", "nu", "xi", "ln", "re", "im" };
    const char *from = s->p, *end;
    int one;
    value v;

    while (s->p < s->end && (is_letter(*s->p) || is_digit(*s->p) || *s->p == '_'))
        s->p++;
    end = s->p;
    one = end == from + 1 || memchr(from, '_', (size_t)(end - from)) != NULL;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        one |= end == from + 2 && !memcmp(from, whole[i], 2);
    if (end == from + 2 && !memcmp(from, "pi", 2))
        return vl_alg_pi(s->a);
    if (end == from + 4 && !memcmp(from, "sqrt", 4))
        return vl_alg_root(s->a, operand(s), 2);
    if (one) {
        skip(s);
        return at(s, "(") ? vl_alg_call(s->a, from, (size_t)(end - from), operand(s))
                          : vl_alg_symbol(s->a, from, (size_t)(end - from));
    }
    for (v = vl_alg_int(s->a, 1); from < end && v;) {
        struct parser digits = { s->a, from, end, 0, s->depth };

        if (is_digit(*from)) {
            while (from < end && is_digit(*from))
                from++;
            digits.end = from;
            v = vl_alg_mul(s->a, v, number(&digits));
        } else {
            v = vl_alg_mul(s->a, v, vl_alg_symbol(s->a, from++, 1));
        }
    }
    return v;
}

/* Words that mean the same in either syntax. */
static value name(struct parser *s)
{
    if (!s->latex)
        return word(s);
    if (at(s, "sqrt"))
        return s->p += 4, vl_alg_root(s->a, operand(s), 2);
    if (at(s, "pi"))
        return s->p += 2, vl_alg_pi(s->a);
    return letter(s);
}

/* ---- grammar ---- */

static value bracketed(struct parser *s, const char *close)
{
    value v = sum(s);

    skip(s);
    return take(s, close) ? v : NULL;
}

static value primary(struct parser *s)
{
    skip(s);
    if (s->p == s->end)
        return NULL;
    if (is_digit(*s->p) || *s->p == '.')
        return number(s);
    if (take(s, "("))
        return bracketed(s, ")");
    if (s->latex && take(s, "["))
        return bracketed(s, "]");
    if (s->latex && take(s, "{"))
        return bracketed(s, "}");
    if (s->latex && (take(s, "|") || take(s, "\\lvert"))) {
        value v = sum(s);

        skip(s);
        return take(s, "|") || take(s, "\\rvert") ? vl_alg_call(s->a, "abs", 3, v) : NULL;
    }
    if (*s->p == '\\')
        return s->latex ? command(s) : NULL;
    return is_letter(*s->p) ? name(s) : NULL;
}

/* primary with factorials and a power: x!^2, x^-2; powers group from the right. */
static value power(struct parser *s)
{
    value v = primary(s), y;

    for (skip(s); v && at(s, "!"); skip(s)) {
        s->p++;
        v = vl_alg_factorial(s->a, v);
    }
    if (v && (take(s, "**") || take(s, "^"))) {
        skip(s);
        if (s->latex && at(s, "{"))
            y = argument(s);
        else
            y = signed_factor(s);
        v = vl_alg_pow(s->a, v, y);
    }
    return v;
}

static value signed_factor(struct parser *s)
{
    int minus = 0;
    value v;

    if (++s->depth > DEPTH_MAX)
        return NULL;
    for (skip(s); s->p < s->end && (*s->p == '-' || *s->p == '+'); skip(s))
        minus ^= *s->p++ == '-';
    v = power(s);
    s->depth--;
    return minus ? vl_alg_add(s->a, vl_alg_int(s->a, 0), v, -1) : v;
}

/* Whether a factor can start here, so that a sign of multiplication was left out. */
static int starts_factor(const struct parser *s)
{
    if (s->p == s->end)
        return 0;
    if (*s->p == '\\')
        return s->latex && !at(s, "\\rfloor") && !at(s, "\\rvert") && !at(s, "\\}");
    return is_digit(*s->p) || is_letter(*s->p) || *s->p == '(' || *s->p == '.' ||
           (s->latex && *s->p == '{');
}

static int takes_frac(const struct parser *s)
{
    return at(s, "\\frac") || at(s, "\\dfrac") || at(s, "\\tfrac");
}

static value product(struct parser *s)
{
    const char *from = s->p;
    value v = signed_factor(s), y;
    int64_t whole;

    while (v) {
        const char *to = s->p;
        int mixed = s->latex && to > from && is_digit(to[-1]) && vl_alg_integer(v, &whole);

        skip(s);
        for (const char *q = from; q < to && mixed; q++)
            mixed = is_digit(*q) || *q == ' ' || *q == '-';
        if (take(s, "\\cdot") || take(s, "\\times") || (!at(s, "**") && take(s, "*"))) {
            v = vl_alg_mul(s->a, v, signed_factor(s));
        } else if (take(s, "/") || take(s, "\\div")) {
            v = vl_alg_div(s->a, v, signed_factor(s));
        } else if (mixed && takes_frac(s)) {
            y = command(s);
            v = vl_alg_add(s->a, v, y,
                           whole < 0 || memchr(from, '-', (size_t)(to - from)) ? -1 : 1);
        } else if (starts_factor(s)) {
            v = vl_alg_mul(s->a, v, power(s));
        } else {
            break;
        }
        from = s->end;
    }
    return v;
}

static value sum(struct parser *s)
{
    value v;

    if (++s->depth > DEPTH_MAX)
        return NULL;
    v = product(s);
    for (skip(s); v && s->p < s->end && (*s->p == '+' || *s->p == '-'); skip(s)) {
        int sign = *s->p++ == '+' ? 1 : -1;

        v = vl_alg_add(s->a, v, product(s), sign);
    }
    s->depth--;
    return v;
}

const struct vl_algx *vl_alg_parse(struct vl_alg *a, const char *s, size_t n,
                                   enum vl_alg_syntax syntax)
{
    struct parser p = { a, s, s + n, syntax == VL_ALG_LATEX, 0 };
    value v;

    if (n > BYTES_MAX)
        return NULL;
    v = sum(&p);
    skip(&p);
    return p.p == p.end ? v : NULL;
}
