/* math.c - boxed answers compared after Hendrycks' normalisation (verl's math_reward).
 *
 * The order of the steps is the specification, odd effects included: "2\sqrt 3" becomes
 * "2\sqrt{}3", "xy=5" loses its left side and "xyz=5" does not. Where the original raises an
 * exception while normalising, both sides are compared as they are. */
#include "libverl/reward/latex.h"
#include "libverl/reward/rules.h"

#include <string.h>

/* What is in the last box. 1 when there is one. */
static int boxed_answer(const char *s, size_t n, const char **answer, size_t *len)
{
    static const char spaced[] = "\\boxed ", braced[] = "\\boxed{";
    const char *p = vl_tex_rfind(s, n, spaced), *end;

    if (p) { /* "\boxed 5$": up to the next dollar */
        *answer = p + sizeof spaced - 1;
        end = memchr(*answer, '$', (size_t)(s + n - *answer));
        *len = (size_t)((end ? end : s + n) - *answer);
        return 1;
    }
    if (vl_tex_rfind(s, n, "\\boxed"))
        p = vl_tex_last_braced(s, n, "\\boxed", len);
    else
        p = vl_tex_last_braced(s, n, "\\fbox", len);
    if (!p || *len < sizeof braced || memcmp(p, braced, sizeof braced - 1))
        return 0;
    *answer = p + sizeof braced - 1;
    *len -= sizeof braced;
    return 1;
}

/* \sqrt3 -> \sqrt{3}. 0, or 1 when \sqrt ends the text (an exception in the original). */
static int fix_sqrt(struct vl_buf *b)
{
    struct vl_buf out = { 0 };
    const char *p = b->s, *end = b->s + b->n, *hit;

    while ((hit = memmem(p, (size_t)(end - p), "\\sqrt", 5))) {
        vl_buf_add(&out, p, (size_t)(hit + 5 - p));
        p = hit + 5;
        /* the text after one \sqrt ends where the next begins: "\sqrt\sqrt" is empty there */
        if (p == end || (end - p >= 5 && !memcmp(p, "\\sqrt", 5))) {
            vl_buf_free(&out);
            return 1;
        }
        if (*p != '{') {
            size_t k = vl_tex_char(p, (size_t)(end - p));

            vl_buf_ch(&out, '{');
            vl_buf_add(&out, p, k);
            vl_buf_ch(&out, '}');
            p += k;
        }
    }
    vl_buf_add(&out, p, (size_t)(end - p));
    vl_buf_free(b);
    *b = out;
    return 0;
}

/* One text after a \frac, up to the next. 0 done, 1 exception, 2 leave the whole string. */
static int fix_one_frac(struct vl_buf *out, const char *p, size_t n)
{
    size_t a, b;

    if (!n)
        return 1;
    if (*p == '{') {
        vl_buf_add(out, p, n);
        return 0;
    }
    a = vl_tex_char(p, n);
    if (a == n)
        return 2;
    b = vl_tex_char(p + a, n - a);
    vl_buf_ch(out, '{');
    vl_buf_add(out, p, a);
    vl_buf_ch(out, '}');
    if (p[a] == '{') {
        vl_buf_add(out, p + a, n - a);
        return 0;
    }
    vl_buf_ch(out, '{');
    vl_buf_add(out, p + a, b);
    vl_buf_ch(out, '}');
    vl_buf_add(out, p + a + b, n - a - b);
    return 0;
}

/* \frac12 -> \frac{1}{2}, \frac1{2} -> \frac{1}{2}. 0, or 1 for an exception. */
static int fix_fracs(struct vl_buf *b)
{
    struct vl_buf out = { 0 };
    const char *p = b->s, *end = b->s + b->n;
    const char *hit = memmem(p, b->n, "\\frac", 5);
    int rc = 0;

    vl_buf_add(&out, p, (size_t)((hit ? hit : end) - p));
    while (hit && !rc) {
        p = hit + 5;
        hit = memmem(p, (size_t)(end - p), "\\frac", 5);
        vl_buf_str(&out, "\\frac");
        rc = fix_one_frac(&out, p, (size_t)((hit ? hit : end) - p));
    }
    if (rc) {
        vl_buf_free(&out);
        return rc == 1;
    }
    vl_buf_free(b);
    *b = out;
    return 0;
}

/* An integer as Python would print it. */
static int canonical_integer(const char *s, size_t n)
{
    size_t sign = n && *s == '-';

    for (size_t i = sign; i < n; i++)
        if (s[i] < '0' || s[i] > '9')
            return 0;
    return n > sign && (s[sign] != '0' || n == 1);
}

/* 3/4 -> \frac{3}{4} when both are integers. */
static void fix_slash(struct vl_buf *b)
{
    const char *slash = b->n ? memchr(b->s, '/', b->n) : NULL;
    size_t a = slash ? (size_t)(slash - b->s) : 0;
    struct vl_buf out = { 0 };

    if (!slash || !canonical_integer(b->s, a) || !canonical_integer(slash + 1, b->n - a - 1))
        return;
    vl_buf_printf(&out, "\\frac{%.*s}{%.*s}", (int)a, b->s, (int)(b->n - a - 1), slash + 1);
    vl_buf_free(b);
    *b = out;
}

/* Cuts from "\text{ " on. 0, or 1 when there are several (an exception). */
static int cut_units(struct vl_buf *b)
{
    static const char unit[] = "\\text{ ";
    const char *p = b->n ? memmem(b->s, b->n, unit, sizeof unit - 1) : NULL;

    if (!p)
        return 0;
    if (vl_tex_rfind(b->s, b->n, unit) != p)
        return 1;
    b->n = (size_t)(p - b->s);
    return 0;
}

/* "k = 5" -> "5" when the left side is at most two characters. */
static void cut_left_side(struct vl_buf *b)
{
    const char *p = memchr(b->s, '=', b->n);
    size_t chars = 0;

    if (!p || memchr(p + 1, '=', b->n - (size_t)(p + 1 - b->s)))
        return;
    for (const char *q = b->s; q < p; q++)
        chars += ((unsigned char)*q & 0xC0) != 0x80;
    if (chars > 2)
        return;
    b->n -= (size_t)(p + 1 - b->s);
    memmove(b->s, p + 1, b->n);
}

int vl_math_normalize(struct vl_buf *b)
{
    static const char *const first[][2] = {
        { "\n", "" },        { "\\!", "" },    { "\\\\", "\\" },  { "tfrac", "frac" },
        { "dfrac", "frac" }, { "\\left", "" }, { "\\right", "" }, { "^{\\circ}", "" },
        { "^\\circ", "" },   { "\\$", "" },
    };

    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        vl_tex_replace(b, first[i][0], first[i][1]);
    if (cut_units(b))
        return 1;
    vl_tex_replace(b, "\\\\%", "");
    vl_tex_replace(b, "\\%", "");
    vl_tex_replace(b, " .", " 0.");
    vl_tex_replace(b, "{.", "{0.");
    if (!b->n)
        return 0;
    if (*b->s == '.') {
        vl_buf_reserve(b, 1);
        memmove(b->s + 1, b->s, b->n++);
        *b->s = '0';
    }
    cut_left_side(b);
    if (fix_sqrt(b))
        return 1;
    vl_tex_replace(b, " ", "");
    if (fix_fracs(b))
        return 1;
    if (b->n == 3 && !memcmp(b->s, "0.5", 3)) {
        b->n = 0;
        vl_buf_str(b, "\\frac{1}{2}");
    }
    fix_slash(b);
    return 0;
}

static int equivalent(const char *a, size_t na, const char *b, size_t nb)
{
    struct vl_buf x = { 0 }, y = { 0 };
    int same;

    vl_buf_add(&x, a, na);
    vl_buf_add(&y, b, nb);
    if (vl_math_normalize(&x) || vl_math_normalize(&y))
        same = na == nb && !memcmp(a, b, na);
    else
        same = x.n == y.n && !memcmp(x.s, y.s, x.n);
    vl_buf_free(&x);
    vl_buf_free(&y);
    return same;
}

void vl_score_math(const struct vl_rule_in *in, struct vl_score *out)
{
    const char *answer;
    size_t n;

    vl_score_set(out, boxed_answer(in->text, in->n, &answer, &n) &&
                          equivalent(answer, n, in->truth, in->truth_n));
}
