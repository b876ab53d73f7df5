/* math_verify.c - an answer found anywhere in a response and compared as mathematics; and geo3k.
 *
 * The answer is, in this order: the last complete \boxed{} or \fbox{}; what follows the last "answer
 * is" or "answer:" on its line (of it, the last formula between dollars if there is one); the last
 * formula between dollars, \( \) or \[ \]; the last number. math_equal.h says what is equal. */
#include "libverl/reward/latex.h"
#include "libverl/reward/math_equal.h"
#include "libverl/reward/prime_impl.h"
#include "libverl/reward/rules.h"

#include <stdio.h>
#include <string.h>

enum { PRED_MAX = 300 };

struct span {
    const char *s; /* NULL: none */
    size_t n;
};

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static struct span last_box(const char *s, size_t n)
{
    struct span a = { 0 };

    a.s = vl_tex_last_box(s, n, &a.n);
    return a;
}

/* The next dollar that no backslash escapes. */
static const char *dollar(const char *s, const char *from, const char *end)
{
    while (from < end && (from = memchr(from, '$', (size_t)(end - from))) && from > s &&
           from[-1] == '\\')
        from++;
    return from < end ? from : NULL;
}

/* The formula that ends last between two equal marks, or open and close. */
static struct span last_formula(const char *s, size_t n)
{
    static const char *const pair[][2] = { { "\\(", "\\)" }, { "\\[", "\\]" } };
    struct span best = { 0 };
    const char *p, *q, *end = s + n;

    for (size_t k = 0; k < 2; k++) {
        const char *close = vl_tex_rfind(s, n, pair[k][1]);
        const char *open = close ? vl_tex_rfind(s, (size_t)(close - s), pair[k][0]) : NULL;

        if (open && (!best.s || close > best.s + best.n))
            best = (struct span){ open + 2, (size_t)(close - open - 2) };
    }
    for (p = dollar(s, s, end); p; p = q) { /* dollars pair up from the left */
        p += p + 1 < end && p[1] == '$';
        q = dollar(s, p + 1, end);
        if (!q)
            break;
        if (q + 1 < end && is_digit(q[1])) /* "$5 and $7": the second opens, too */
            continue;
        if (q > p + 1 && (!best.s || q > best.s + best.n))
            best = (struct span){ p + 1, (size_t)(q - p - 1) };
        q += q + 1 < end && q[1] == '$';
        q = dollar(s, q + 1, end);
    }
    return best;
}

/* -1,234.5, 3/4, 50%: the last one. */
static struct span last_number(const char *s, size_t n)
{
    size_t end = n, from;

    while (end && !is_digit(s[end - 1]))
        end--;
    if (!end)
        return (struct span){ 0 };
    for (from = end; from && (is_digit(s[from - 1]) || strchr(".,/", s[from - 1])) && s[from - 1];)
        from--;
    while (from < end && !is_digit(s[from]) && s[from] != '.')
        from++;
    if (from && s[from - 1] == '-')
        from--;
    if (end < n && s[end] == '%')
        end++;
    return (struct span){ s + from, end - from };
}

/* What follows the last "answer is" or "answer:", up to the end of the line or sentence. */
static struct span marked(const char *s, size_t n)
{
    static const char *const mark[] = { "answer is", "answer:" };
    struct span a = { 0 }, formula;

    for (size_t i = n; i-- > 0 && !a.s;)
        for (size_t k = 0; k < 2 && (s[i] | 0x20) == 'a' && !a.s; k++) {
            size_t len = strlen(mark[k]);

            if (n - i >= len && !strncasecmp(s + i, mark[k], len))
                a = (struct span){ s + i + len, n - i - len };
        }
    if (!a.s)
        return a;
    while (a.n && strchr(" \t\r\n:*", *a.s) && *a.s)
        a.s++, a.n--;
    for (size_t i = 0; i < a.n; i++)
        if (a.s[i] == '\n' || (a.s[i] == '.' && i + 1 < a.n && a.s[i + 1] == ' '))
            a.n = i;
    vl_tex_strip(&a.s, &a.n);
    while (a.n && strchr("*.", a.s[a.n - 1]))
        a.n--;
    formula = last_formula(a.s, a.n);
    if (formula.s)
        return formula;
    return a.n ? a : (struct span){ 0 };
}

static struct span answer_of(const char *s, size_t n)
{
    struct span a = last_box(s, n);

    if (!a.s)
        a = marked(s, n);
    if (!a.s)
        a = last_formula(s, n);
    return a.s ? a : last_number(s, n);
}

static void add_pred(struct vl_score *out, struct span a, int undecided)
{
    struct vl_buf m = { 0 };
    size_t n = 0;

    for (int k = 0; k < PRED_MAX && n < a.n; k++)
        n += vl_tex_char(a.s + n, a.n - n);
    vl_buf_str(&m, "\"pred\":");
    if (a.s)
        vl_json_put_str(&m, a.s, n);
    else
        vl_buf_str(&m, "null");
    vl_buf_printf(&m, ",\"undecided\":%d", undecided);
    vl_score_add(out, m.s);
    vl_buf_free(&m);
}

void vl_score_math_verify(const struct vl_rule_in *in, struct vl_score *out)
{
    struct span a = answer_of(in->text, in->n), t = last_box(in->truth, in->truth_n);
    enum vl_alg_verdict v = VL_ALG_DIFFERENT;

    if (!t.s)
        t = (struct span){ in->truth, in->truth_n };
    if (a.s)
        v = vl_math_equal(a.s, a.n, t.s, t.n, in->args->tolerance);
    vl_score_set(out, v == VL_ALG_EQUAL ? in->args->score : a.s ? vl_score_format(in, 0) : 0);
    out->acc = v == VL_ALG_EQUAL;
    add_pred(out, a, v == VL_ALG_UNDECIDED);
}

/* Content of the last "\boxed{", which must be closed; "None" else, as there. */
static struct span geo3k_answer(const char *s, size_t n)
{
    const char *open = vl_tex_rfind(s, n, "\\boxed{");
    struct span a = { "None", 4 };
    int64_t depth = 0;

    for (const char *p = open ? open + 7 : s + n; p < s + n; p++) {
        depth += (*p == '{') - (*p == '}');
        if (depth < 0) {
            a = (struct span){ open + 7, (size_t)(p - open - 7) };
            vl_tex_strip(&a.s, &a.n);
            break;
        }
    }
    return a;
}

/* <think>.*</think>.*\\boxed\{.*\}.* over the whole text. */
static int geo3k_form(const char *s, size_t n)
{
    const char *think, *box;

    if (n < 7 || memcmp(s, "<think>", 7))
        return 0;
    think = memmem(s + 7, n - 7, "</think>", 8);
    box = think ? memmem(think + 8, (size_t)(s + n - think - 8), "\\boxed{", 7) : NULL;
    return box && memchr(box + 7, '}', (size_t)(s + n - box - 7)) != NULL;
}

void vl_score_geo3k(const struct vl_rule_in *in, struct vl_score *out)
{
    struct span a = geo3k_answer(in->text, in->n);
    double part = vl_score_format(in, 0.1);
    int undecided = 0, right = vl_prime_grade(a.s, a.n, in->truth, in->truth_n, &undecided);
    int form = geo3k_form(in->text, in->n);
    char member[24];

    vl_score_set(out, in->args->score * ((1 - part) * right + part * form));
    out->acc = right;
    add_pred(out, a, !right && undecided);
    snprintf(member, sizeof member, "\"format\":%d", form);
    vl_score_add(out, member);
}
