/* gsm8k.c - grade-school answers: the number after the last "#### ", or the last number.
 *
 * strict and flexible are verl's, odd cases included ("#### 72." is "72." and differs from "72";
 * only the last 300 characters are read, which can cut a number). number is ours: the first
 * number after the last marker wins whatever stands around it, a match holds a digit, trailing
 * punctuation is not part of it, and 1,000.0 equals 1000. */
#include "libverl/reward/rules.h"

#include <string.h>

enum { TAIL = 300, DIGITS_MAX = 400 };

struct span {
    const char *s; /* NULL: none */
    size_t n;
};

static int in_class(char c)
{
    return (c >= '0' && c <= '9') || c == '.' || c == ',';
}

/* Length of "-?[0-9.,]+" at p, or 0. */
static size_t run_at(const char *p, const char *end)
{
    const char *q = p + (p < end && *p == '-');
    const char *from = q;

    while (q < end && in_class(*q))
        q++;
    return q > from ? (size_t)(q - p) : 0;
}

/* Last "#### " that a run follows. */
static struct span last_marked(const char *s, size_t n)
{
    const char *end = s + n, *p = s;
    struct span last = { 0 };

    while (end - p > 5) {
        size_t len = memcmp(p, "#### ", 5) ? 0 : run_at(p + 5, end);

        if (len)
            last = (struct span){ p + 5, len };
        p += len ? 5 + len : 1;
    }
    return last;
}

/* The last run that is not a lone dot; when all are, the first. */
static struct span last_run(const char *s, size_t n)
{
    const char *end = s + n, *p = s;
    struct span first = { 0 }, last = { 0 };

    while (p < end) {
        size_t len = run_at(p, end);

        if (len && !first.s)
            first = (struct span){ p, len };
        if (len && !(len == 1 && *p == '.'))
            last = (struct span){ p, len };
        p += len ? len : 1;
    }
    return last.s ? last : first;
}

/* Whether the run without its commas (when drop) is the ground truth. */
static int equals(struct span a, int drop, const char *truth, size_t n)
{
    size_t k = 0;

    for (size_t i = 0; i < a.n; i++) {
        if (drop && a.s[i] == ',')
            continue;
        if (k == n || a.s[i] != truth[k++])
            return 0;
    }
    return k == n;
}

/* "-01,234.50" -> "-1234.5"; "" when there is no digit or the text is no plain number. */
static size_t canonical(const char *s, size_t n, char out[DIGITS_MAX])
{
    size_t k = 0, digits = 0;
    int point = 0, minus = 0;

    if (n && (*s == '-' || *s == '+')) {
        minus = *s == '-';
        s++, n--;
    }
    while (n && (s[n - 1] == '.' || s[n - 1] == ','))
        n--;
    if (minus)
        out[k++] = '-';
    for (size_t i = 0; i < n; i++) {
        if (s[i] == ',' && !point)
            continue;
        if (!(s[i] >= '0' && s[i] <= '9') && (s[i] != '.' || point++))
            return 0;
        if (s[i] == '0' && k == (size_t)minus && !point) {
            digits++;
            continue; /* leading zero */
        }
        if (k + 2 >= DIGITS_MAX)
            return 0;
        if (s[i] == '.' && k == (size_t)minus)
            out[k++] = '0';
        digits += s[i] != '.';
        out[k++] = s[i];
    }
    while (point && k && out[k - 1] == '0')
        k--;
    if (point && k && out[k - 1] == '.')
        k--;
    if (!digits)
        return 0;
    if (k == (size_t)minus || (k == (size_t)minus + 1 && out[minus] == '0')) {
        out[0] = '0'; /* also -0 */
        k = 1;
    }
    return k;
}

/* The last run with a digit in it. */
static struct span last_number(const char *s, size_t n)
{
    const char *end = s + n, *p = s;
    struct span last = { 0 };

    while (p < end) {
        size_t len = run_at(p, end), digits = 0;

        for (size_t i = 0; i < len; i++)
            digits += p[i] >= '0' && p[i] <= '9';
        if (digits)
            last = (struct span){ p, len };
        p += len ? len : 1;
    }
    return last;
}

/* The first run with a digit in it on the first line that is not blank. */
static struct span first_number(const char *p, const char *end)
{
    const char *stop;

    while (p < end && strchr(" \t\r\n", *p) && *p)
        p++;
    stop = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
    for (stop = stop ? stop : end; p < stop; p++) {
        size_t len = run_at(p, stop);

        if (last_number(p, len).n)
            return (struct span){ p, len };
        p += len ? len - 1 : 0;
    }
    return (struct span){ 0 };
}

/* The first number after the last "####", whatever stands around it; else the last of all. */
static struct span number_answer(const char *s, size_t n)
{
    const char *mark = NULL;

    for (const char *p = s; p && s + n - p >= 4; p++) {
        p = memmem(p, (size_t)(s + n - p), "####", 4);
        if (!p)
            break;
        mark = p + 4;
    }
    return mark ? first_number(mark, s + n) : last_number(s, n);
}

static void score_number(const struct vl_rule_in *in, struct vl_score *out)
{
    struct span a = number_answer(in->text, in->n);
    char mine[DIGITS_MAX], want[DIGITS_MAX];
    size_t k = a.n ? canonical(a.s, a.n, mine) : 0;
    size_t w = canonical(in->truth, in->truth_n, want);
    /* a typographic minus, U+2212, before it: the sign is compared here */
    size_t minus = k && a.s - in->text >= 3 && !memcmp(a.s - 3, "\xE2\x88\x92", 3) &&
                   !(k == 1 && *mine == '0');

    if (!k)
        vl_score_set(out, 0);
    else
        vl_score_set(out,
                     w == k + minus && (!minus || *want == '-') && !memcmp(mine, want + minus, k)
                         ? in->args->score
                         : vl_score_format(in, 0));
}

void vl_score_gsm8k(const struct vl_rule_in *in, struct vl_score *out)
{
    const char *tail = vl_last_chars(in->text, in->n, TAIL);
    size_t n = in->n - (size_t)(tail - in->text);
    int strict = in->args->method == VL_GSM8K_STRICT;
    struct span a;

    if (in->args->method == VL_GSM8K_NUMBER) {
        score_number(in, out);
        return;
    }
    a = strict ? last_marked(tail, n) : last_run(tail, n);
    if (!a.s)
        vl_score_set(out, 0);
    else
        vl_score_set(out, equals(a, strict, in->truth, in->truth_n) ? in->args->score
                                                                    : vl_score_format(in, 0));
}
