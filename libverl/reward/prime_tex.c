/* prime_tex.c - LaTeX to text as pylatexenc's latex2text does it, then the signs that prime_math
 * spells out (a root sign becomes sqrt). See prime_impl.h.
 *
 * Only what answers have: fractions, roots, text and font commands, groups, Greek letters and
 * common signs. White space after a command belongs to it. A command that is not known leaves
 * nothing but its arguments, as there. */
#include "libverl/reward/prime_impl.h"

#include "libverl/reward/latex.h"
#include "libverl/text/unicode.h"

#include <string.h>

enum { DEPTH_MAX = 100 };

static const struct {
    const char *name, *text;
} signs[] = {
    { "pi", "pi" },
    { "infty", "inf" },
    { "cup", "U" },
    { "cdot", "*" },
    { "times", "*" },
    { "cap", "\xE2\x88\xA9" },
    { "alpha", "\xCE\xB1" },
    { "beta", "\xCE\xB2" },
    { "gamma", "\xCE\xB3" },
    { "delta", "\xCE\xB4" },
    { "epsilon", "\xCF\xB5" },
    { "theta", "\xCE\xB8" },
    { "lambda", "\xCE\xBB" },
    { "mu", "\xCE\xBC" },
    { "nu", "\xCE\xBD" },
    { "rho", "\xCF\x81" },
    { "sigma", "\xCF\x83" },
    { "tau", "\xCF\x84" },
    { "phi", "\xCF\x95" },
    { "psi", "\xCF\x88" },
    { "omega", "\xCF\x89" },
    { "Delta", "\xCE\x94" },
    { "Omega", "\xCE\xA9" },
    { "leq", "\xE2\x89\xA4" },
    { "le", "\xE2\x89\xA4" },
    { "geq", "\xE2\x89\xA5" },
    { "ge", "\xE2\x89\xA5" },
    { "neq", "\xE2\x89\xA0" },
    { "pm", "\xC2\xB1" },
    { "div", "\xC3\xB7" },
    { "in", "\xE2\x88\x88" },
    { "emptyset", "\xE2\x88\x85" },
    { "varnothing", "\xE2\x88\x85" },
    { "to", "\xE2\x86\x92" },
    { "rightarrow", "\xE2\x86\x92" },
    { "ldots", "\xE2\x80\xA6" },
    { "dots", "\xE2\x80\xA6" },
    { "cdots", "\xE2\x8B\xAF" },
    { "angle", "\xE2\x88\xA0" },
    { "circ", "\xE2\x88\x98" },
    { "prime", "'" },
    { "mid", "|" },
    { "ell", "\xE2\x84\x93" },
    { "lfloor", "\xE2\x8C\x8A" },
    { "rfloor", "\xE2\x8C\x8B" },
    { "quad", "  " },
    { "qquad", "    " },
    { "sin", "sin" },
    { "cos", "cos" },
    { "tan", "tan" },
    { "cot", "cot" },
    { "sec", "sec" },
    { "csc", "csc" },
    { "arcsin", "arcsin" },
    { "arccos", "arccos" },
    { "arctan", "arctan" },
    { "log", "log" },
    { "ln", "ln" },
    { "exp", "exp" },
    { "max", "max" },
    { "min", "min" },
};

struct reader {
    const char *p, *end;
    struct vl_buf *out;
    int depth;
};

static void nodes(struct reader *r, int in_group);

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void skip_space(struct reader *r)
{
    while (r->p < r->end && is_space(*r->p))
        r->p++;
}

static void command(struct reader *r);

/* A group, a command or one character. 0 at the end. */
static int argument(struct reader *r)
{
    size_t k;

    skip_space(r);
    if (r->p == r->end || *r->p == '}')
        return 0;
    if (*r->p == '{') {
        r->p++;
        nodes(r, 1);
    } else if (*r->p == '\\') {
        command(r);
    } else {
        k = vl_tex_char(r->p, (size_t)(r->end - r->p));
        vl_buf_add(r->out, r->p, k);
        r->p += k;
    }
    return 1;
}

static void root(struct reader *r)
{
    skip_space(r);
    if (r->p < r->end && *r->p == '[') { /* the degree is lost there, too */
        const char *close = memchr(r->p, ']', (size_t)(r->end - r->p));

        r->p = close ? close + 1 : r->end;
    }
    vl_buf_str(r->out, "sqrt(");
    argument(r);
    vl_buf_ch(r->out, ')');
}

static int is(const char *s, size_t n, const char *name)
{
    return strlen(name) == n && !memcmp(s, name, n);
}

static void symbol(struct reader *r, char c)
{
    if (strchr(",;: \t\n", c))
        vl_buf_ch(r->out, ' ');
    else if (c == '\\')
        vl_buf_ch(r->out, '\n');
    else if (strchr("{}$%&_#", c))
        vl_buf_ch(r->out, c);
}

/* At a backslash. */
static void command(struct reader *r)
{
    const char *name = ++r->p;
    size_t n;

    if (r->p == r->end)
        return;
    if (!is_letter(*r->p)) {
        n = vl_tex_char(r->p, (size_t)(r->end - r->p));
        if (*r->p)
            symbol(r, *r->p);
        r->p += n;
        return;
    }
    while (r->p < r->end && is_letter(*r->p))
        r->p++;
    n = (size_t)(r->p - name);
    skip_space(r);
    if (++r->depth > DEPTH_MAX) { /* deeper than any answer: the rest as it is */
        vl_buf_add(r->out, r->p, (size_t)(r->end - r->p));
        r->p = r->end;
    } else if (is(name, n, "frac")) {
        argument(r);
        vl_buf_ch(r->out, '/');
        argument(r);
    } else if (is(name, n, "sqrt")) {
        root(r);
    } else {
        for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
            if (is(name, n, signs[i].name))
                vl_buf_str(r->out, signs[i].text);
    }
    r->depth--;
}

/* Text, groups and commands up to the end, or to the brace that closes the group. */
static void nodes(struct reader *r, int in_group)
{
    if (++r->depth > DEPTH_MAX) {
        vl_buf_add(r->out, r->p, (size_t)(r->end - r->p));
        r->p = r->end;
    }
    while (r->p < r->end) {
        char c = *r->p;

        if (c == '\\') {
            command(r);
        } else if (c == '{') {
            r->p++;
            nodes(r, 1);
        } else if (c == '}') {
            r->p++;
            if (in_group)
                break;
        } else {
            vl_buf_ch(r->out, c);
            r->p++;
        }
    }
    r->depth--;
}

void vl_prime_tex_text(struct vl_buf *b)
{
    static const char *const after[][2] = {
        { "\xE2\x88\x9A", "sqrt" }, { "\xCF\x80", "pi" }, { "\xE2\x88\x9E", "inf" },
        { "\xE2\x88\xAA", "U" },    { "\xC2\xB7", "*" },  { "\xC3\x97", "*" },
    };
    struct vl_buf out = { 0 };
    struct reader r;
    const char *s;
    size_t n;

    vl_tex_replace(b, "\\tfrac", "\\frac");
    vl_tex_replace(b, "\\dfrac", "\\frac");
    vl_tex_replace(b, "\\frac", " \\frac"); /* mixed numbers */
    r = (struct reader){ b->s, b->s + b->n, &out, 0 };
    nodes(&r, 0);
    for (size_t i = 0; i < sizeof after / sizeof *after; i++)
        vl_tex_replace(&out, after[i][0], after[i][1]);
    vl_buf_add(&out, "", 0);
    s = out.s;
    n = out.n;
    vl_tex_strip(&s, &n);
    vl_buf_reset(b);
    vl_buf_add(b, s, n);
    vl_buf_free(&out);
}
