/* prime_math.c - answers of competition problems as verl's prime_math grades them: 1 or 0.
 *
 * The answer is what stands after the usual phrases or in the last box; it is right when one of four
 * comparisons says so: Hendrycks' normalisation, a second one, algebra (algebra.h in place of sympy),
 * and numbers within 1e-4 of the reference, its hundredth or its hundredfold. What the algebra
 * cannot decide is 0 and counted in the member `undecided`. */
#include "libverl/reward/algebra.h"
#include "libverl/reward/latex.h"
#include "libverl/reward/prime_impl.h"
#include "libverl/reward/rules.h"
#include "libverl/text/unicode.h"
#include "formats/json.h"

#include <string.h>

enum { PRED_MAX = 300 };

struct span {
    const char *s;
    size_t n;
};

/* ---- extraction ---- */

/* Last occurrence of the lower-case marker, whatever the case. */
static const char *rfind_any_case(struct span a, const char *marker)
{
    size_t n = strlen(marker);

    for (size_t i = a.n < n ? 0 : a.n - n + 1; i-- > 0;)
        if ((a.s[i] | 0x20) == (marker[0] | 0x20) && !strncasecmp(a.s + i, marker, n))
            return a.s + i;
    return NULL;
}

static struct span after(struct span a, const char *marker)
{
    const char *p = rfind_any_case(a, marker);

    if (p) {
        a.n -= (size_t)(p - a.s) + strlen(marker);
        a.s = p + strlen(marker);
        vl_tex_strip(&a.s, &a.n);
    }
    return a;
}

static struct span before(struct span a, const char *marker)
{
    const char *p = rfind_any_case(a, marker);

    if (p) {
        a.n = (size_t)(p - a.s);
        vl_tex_strip(&a.s, &a.n);
    }
    return a;
}

/* Replaces a by the content of its last box, unless that is empty. */
static struct span boxed(struct span a)
{
    const char *command = vl_tex_rfind(a.s, a.n, "\\boxed") ? "\\boxed" : "\\fbox", *open;
    struct span in;
    size_t n;
    const char *p = vl_tex_last_braced(a.s, a.n, command, &n);

    if (!p || !(open = memchr(p, '{', n)))
        return a;
    in = (struct span){ open + 1, (size_t)(p + n - 1 - (open + 1)) };
    vl_tex_strip(&in.s, &in.n);
    return in.n ? in : a;
}

static struct span answer_of(struct span a)
{
    static const char *const lead[] = { "answer:", "answer is", "answers are" };
    static const char *const tail[] = { "is answer", "is the answer", "are answers",
                                        "are the answers" };
    static const char *const last[] = { "be ",  "is ",  "are ",  "=",   ": ",   "get ",
                                        "be\n", "is\n", "are\n", ":\n", "get\n" };

    for (size_t i = 0; i < sizeof lead / sizeof *lead; i++)
        a = after(a, lead[i]);
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++)
        a = before(a, tail[i]);
    a = boxed(a);
    a = before(a, ". ");
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        a = after(a, last[i]);
    return a;
}

/* ---- algebra ---- */

/* Whether the letters and powers are few enough for the original to try. */
static int may_evaluate(const struct vl_buf *expr)
{
    struct vl_buf b = { 0 };
    uint32_t seen[2], cp;
    size_t letters = 0;
    int fine = 1;

    vl_buf_add(&b, expr->s, expr->n);
    vl_tex_replace(&b, "sqrt", "");
    vl_tex_replace(&b, "frac", "");
    for (size_t i = 0; i < b.n && fine;) {
        i += vl_uc_next(b.s + i, b.n - i, &cp);
        if (!vl_uc_alpha(cp) || (letters && cp == seen[0]) || (letters > 1 && cp == seen[1]))
            continue;
        if (letters < 2)
            seen[letters] = cp;
        fine = ++letters <= 2;
    }
    vl_buf_free(&b);
    for (size_t i = 0; i + 1 < expr->n && fine; i++) { /* ^{ ^( ^12 ^1^ */
        const char *p = expr->s + i;

        if (*p == '^' && (p[1] == '{' || p[1] == '('))
            fine = 0;
        if (*p == '^' && p[1] >= '0' && p[1] <= '9' && i + 2 < expr->n)
            fine = !(p[2] >= '0' && p[2] <= '9') && p[2] != '^';
    }
    return fine;
}

static int equal_by_algebra(struct span x, struct span y, int *undecided)
{
    enum vl_alg_verdict v = VL_ALG_DIFFERENT;
    struct vl_buf both = { 0 };

    vl_buf_ch(&both, '(');
    vl_buf_add(&both, x.s, x.n);
    vl_buf_str(&both, ")-(");
    vl_buf_add(&both, y.s, y.n);
    vl_buf_ch(&both, ')');
    if (may_evaluate(&both)) {
        struct vl_alg *a = vl_alg_new();
        const struct vl_algx *p = vl_alg_parse(a, x.s, x.n, VL_ALG_PLAIN);
        const struct vl_algx *q = vl_alg_parse(a, y.s, y.n, VL_ALG_PLAIN);

        v = p && q ? vl_alg_equal(a, p, q) : VL_ALG_UNDECIDED;
        vl_alg_free(a);
    }
    vl_buf_free(&both);
    *undecided |= v == VL_ALG_UNDECIDED;
    return v == VL_ALG_EQUAL;
}

/* ---- tuples ---- */

static int is_bracket(char c)
{
    return c == '(' || c == ')' || c == '[' || c == ']';
}

/* ^-?[0-9]+.?/0*[1-9][0-9]*.?$ */
static int is_fraction(struct span a)
{
    size_t i = a.n && a.s[0] == '-', from = i, nonzero = 0;

#define DIGIT(k) ((k) < a.n && a.s[k] >= '0' && a.s[k] <= '9')
    while (DIGIT(i))
        i++;
    if (i == from)
        return 0;
    if (i < a.n && a.s[i] != '/')
        i += vl_tex_char(a.s + i, a.n - i);
    if (i >= a.n || a.s[i++] != '/')
        return 0;
    for (; DIGIT(i); i++)
        nonzero |= a.s[i] != '0';
    if (i < a.n)
        i += vl_tex_char(a.s + i, a.n - i);
#undef DIGIT
    return nonzero && i == a.n;
}

static int equal_element(struct span truth, struct span given, int *undecided)
{
    if (is_fraction(truth) && is_fraction(given)) /* must be reduced */
        return truth.n == given.n && !memcmp(truth.s, given.s, truth.n);
    if (vl_prime_is_int(truth.s, truth.n) != vl_prime_is_int(given.s, given.n))
        return 0; /* an integer is written as one */
    return equal_by_algebra(truth, given, undecided);
}

/* The next element of a comma list; `whole` for what is no tuple. */
static struct span element(struct span *rest, int whole)
{
    const char *comma = whole ? NULL : memchr(rest->s, ',', rest->n);
    struct span a = { rest->s, comma ? (size_t)(comma - rest->s) : rest->n };

    rest->n -= a.n + (comma != NULL);
    rest->s += a.n + (comma != NULL);
    if (!whole)
        vl_tex_strip(&a.s, &a.n);
    return a;
}

/* Elements of (..., ...): their number, and *inside without the brackets. 0 for an empty text. */
static size_t split(const struct vl_buf *b, struct span *inside)
{
    size_t n = 1;

    *inside = (struct span){ b->s, b->n };
    if (!b->n)
        return 0;
    if (b->n <= 2 || !is_bracket(b->s[0]) || !is_bracket(b->s[b->n - 1]))
        return 1;
    for (size_t i = 1; i + 1 < b->n; i++) {
        if (is_bracket(b->s[i]))
            return 1;
        n += b->s[i] == ',';
    }
    *inside = (struct span){ b->s + 1, b->n - 2 };
    return n;
}

static int equal_tuples(struct vl_buf *truth, struct vl_buf *given, int *undecided)
{
    char first = truth->n ? truth->s[0] : 0, last = truth->n ? truth->s[truth->n - 1] : 0;
    int same_brackets = given->n && first == given->s[0] && last == given->s[given->n - 1], equal;
    struct span t, g;
    size_t n, m;

    vl_prime_strip_commas(truth);
    vl_prime_strip_commas(given);
    n = split(truth, &t);
    m = split(given, &g);
    if ((n > 1 && !same_brackets) || n != m)
        return 0;
    equal = n > 0;
    for (size_t k = 0; k < n && equal; k++) {
        struct span x = element(&t, t.s == truth->s), y = element(&g, g.s == given->s);

        equal = equal_element(x, y, undecided);
    }
    return equal;
}

/* ---- comparison ---- */

/* Hendrycks' normalisation of the stripped text, an enclosing \text{} taken off. */
static void hendrycks(struct span a, struct vl_buf *out)
{
    static const char open[] = "\\text{";

    vl_tex_strip(&a.s, &a.n);
    vl_buf_add(out, a.s, a.n);
    if (a.n > sizeof open && !memcmp(a.s, open, sizeof open - 1) && a.s[a.n - 1] == '}' &&
        !memchr(a.s, '\n', a.n)) {
        struct span in = { a.s + sizeof open - 1, a.n - sizeof open };

        vl_tex_strip(&in.s, &in.n);
        vl_buf_reset(out);
        vl_buf_add(out, in.s, in.n);
    }
    if (vl_math_normalize(out)) { /* an exception: what was there before */
        vl_buf_reset(out);
        vl_buf_add(out, a.s, a.n);
    }
    vl_buf_add(out, "", 0);
}

static int same(const struct vl_buf *a, const struct vl_buf *b)
{
    return a->n == b->n && !memcmp(a->s, b->s, a->n);
}

int vl_prime_grade(const char *given, size_t ng, const char *truth, size_t nt, int *undecided)
{
    struct vl_buf g = { 0 }, t = { 0 };
    int right;

    hendrycks((struct span){ given, ng }, &g);
    hendrycks((struct span){ truth, nt }, &t);
    right = same(&g, &t);
    if (!right) {
        vl_buf_reset(&g);
        vl_buf_reset(&t);
        vl_buf_add(&g, given, ng);
        vl_buf_add(&t, truth, nt);
        vl_prime_normalize(&g);
        vl_prime_normalize(&t);
        right = same(&g, &t);
    }
    if (!right && g.n)
        right = equal_tuples(&t, &g, undecided);
    vl_buf_free(&g);
    vl_buf_free(&t);
    return right;
}

static int has(const char *s, size_t n, const char *needle)
{
    return n && memmem(s, n, needle, strlen(needle)) != NULL;
}

static int equal_as_numbers(struct span a, const struct vl_rule_in *in)
{
    int right, with_314;

    if (!has(a.s, a.n, "\\pi") && !has(in->truth, in->truth_n, "\\pi"))
        return vl_prime_math_equal(a.s, a.n, in->truth, in->truth_n, "") > 0;
    right = vl_prime_math_equal(a.s, a.n, in->truth, in->truth_n, "3.141592653589793");
    with_314 = right < 0 ? -1 : vl_prime_math_equal(a.s, a.n, in->truth, in->truth_n, "3.14");
    return with_314 >= 0 && (right || with_314);
}

void vl_score_prime_math(const struct vl_rule_in *in, struct vl_score *out)
{
    struct span a = answer_of((struct span){ in->text, in->n });
    int undecided = 0, right = vl_prime_grade(a.s, a.n, in->truth, in->truth_n, &undecided);
    int format = right || (has(in->text, in->n, "Step 2:") && has(in->text, in->n, "\\box"));
    struct vl_buf m = { 0 };
    size_t pred = 0;

    if (!right)
        right = equal_as_numbers(a, in);
    vl_score_set(out, right);
    for (size_t k = 0; k < PRED_MAX && pred < a.n; k++)
        pred += vl_tex_char(a.s + pred, a.n - pred);
    vl_buf_str(&m, "\"pred\":");
    vl_json_put_str(&m, a.s, pred);
    vl_buf_printf(&m, ",\"format\":%d,\"undecided\":%d", format, !right && undecided);
    vl_score_add(out, m.s);
    vl_buf_free(&m);
}
