/* prime_norm.c - the normalisation of answers that prime_math does after Hendrycks'. See
 * prime_impl.h. The order of the steps is the specification: "degrees" leaves nothing, "seconds ago"
 * leaves " ago", "2 million" becomes "2 *10^6". */
#include "libverl/reward/prime_impl.h"

#include "libverl/reward/latex.h"
#include "libverl/text/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_MAX = 100000 };

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Length of the number at s ("1_0.5e3", "inf"), its underscores left out in out; 0 when it is none. */
static size_t number_text(const char *s, size_t n, char *out)
{
    static const char *const words[] = { "infinity", "inf", "nan" };
    size_t i = n && (*s == '-' || *s == '+'), k = i, digits = 0, points = 0, exponent = 0;

    if (i)
        out[0] = *s;
    for (size_t w = 0; w < 3; w++)
        if (n - i == strlen(words[w]) && !strncasecmp(s + i, words[w], n - i)) {
            memcpy(out + i, s + i, n - i);
            return n;
        }
    for (; i < n; i++) {
        if (s[i] == '_') {
            if (!i || i + 1 == n || !is_digit(s[i - 1]) || !is_digit(s[i + 1]))
                return 0;
            continue;
        }
        if (is_digit(s[i])) {
            digits++;
        } else if (s[i] == '.' && !points && !exponent) {
            points = 1;
        } else if ((s[i] == 'e' || s[i] == 'E') && digits && !exponent) {
            exponent = 1;
            digits = 0;
            out[k++] = s[i];
            if (i + 1 < n && (s[i + 1] == '-' || s[i + 1] == '+'))
                out[k++] = s[++i];
            continue;
        } else {
            return 0;
        }
        out[k++] = s[i];
    }
    return digits ? k : 0;
}

int vl_prime_float(const char *s, size_t n, double *x)
{
    char small[64], *text = small;
    size_t k;

    vl_tex_strip(&s, &n);
    if (!n || n > NUMBER_MAX || memchr(s, 0, n))
        return 0;
    if (n >= sizeof small)
        text = vl_alloc(n + 1);
    k = number_text(s, n, text);
    if (k) {
        text[k] = 0;
        *x = strtod(text, NULL);
    }
    if (text != small)
        free(text);
    return k > 0;
}

/* (\d)(,)(\d\d\d)($|\D) -> without the comma, again until nothing changes. */
void vl_prime_strip_commas(struct vl_buf *b)
{
    int changed = b->n > 0 && memchr(b->s, ',', b->n) != NULL;

    while (changed) {
        size_t k = 0, i = 0, taken = 0; /* bytes before `taken` belong to an earlier match */

        changed = 0;
        for (; i < b->n; i++) {
            if (b->s[i] == ',' && i > taken && is_digit(b->s[i - 1]) && i + 3 < b->n &&
                is_digit(b->s[i + 1]) && is_digit(b->s[i + 2]) && is_digit(b->s[i + 3]) &&
                (i + 4 == b->n || !is_digit(b->s[i + 4]))) {
                taken = i + 5;
                changed = 1;
                continue;
            }
            b->s[k++] = b->s[i];
        }
        b->n = k;
    }
}

static int near_integer(double x)
{
    return isfinite(x) && fabs(x - nearbyint(x)) <= 1e-7;
}

int vl_prime_is_int(const char *s, size_t n)
{
    struct vl_buf b = { 0 };
    double x;
    int yes;

    if (n > NUMBER_MAX)
        return 0;
    vl_buf_add(&b, s, n);
    vl_prime_strip_commas(&b);
    yes = vl_prime_float(b.s, b.n, &x) && near_integer(x);
    vl_buf_free(&b);
    return yes;
}

/* The integer x as text, every digit of it. */
static void become_integer(struct vl_buf *b, double x)
{
    vl_buf_reset(b);
    vl_buf_printf(b, "%.0f", x == 0 ? 0.0 : x);
}

/* ^\text\{(.+?)\}$ : the whole is one such text, closed by its last brace. */
static void unwrap_text(struct vl_buf *b)
{
    static const char open[] = "\\text{";
    size_t n = sizeof open - 1, end = b->n;

    if (end && b->s[end - 1] == '\n')
        end--;
    if (end < n + 2 || memcmp(b->s, open, n) || b->s[end - 1] != '}' ||
        memchr(b->s, '\n', end) != NULL)
        return;
    b->n = end - 1 - n;
    memmove(b->s, b->s + n, b->n);
}

/* unit(es)?(s)? *(\^[0-9]+)? -> nothing. */
static void drop_unit(struct vl_buf *b, const char *unit)
{
    size_t n = strlen(unit), k = 0, i = 0;
    const char *hit;

    while (b->n && (hit = memmem(b->s + i, b->n - i, unit, n))) {
        size_t at = (size_t)(hit - b->s), q;

        memmove(b->s + k, b->s + i, at - i);
        k += at - i;
        i = at + n;
        if (b->n - i >= 2 && !memcmp(b->s + i, "es", 2))
            i += 2;
        if (i < b->n && b->s[i] == 's')
            i++;
        while (i < b->n && b->s[i] == ' ')
            i++;
        for (q = i + 1; i < b->n && b->s[i] == '^' && q < b->n && is_digit(b->s[q]);)
            q++;
        if (i < b->n && b->s[i] == '^' && q > i + 1)
            i = q;
    }
    if (i) {
        memmove(b->s + k, b->s + i, b->n - i);
        b->n = k + b->n - i;
    }
}

/* Deletes lead, any spaces, tail; or keeps lead and deletes the spaces when tail is NULL. */
static void drop_spaced(struct vl_buf *b, const char *lead, const char *tail)
{
    size_t n = strlen(lead), t = tail ? strlen(tail) : 0, k = 0;

    for (size_t i = 0; i < b->n;) {
        size_t q = i + n;

        if (b->n - i < n || memcmp(b->s + i, lead, n)) {
            b->s[k++] = b->s[i++];
            continue;
        }
        while (q < b->n && b->s[q] == ' ')
            q++;
        if (!tail) {
            memmove(b->s + k, lead, n);
            k += n;
            i = q;
        } else if (b->n - q >= t && !memcmp(b->s + q, tail, t)) {
            i = q + t;
        } else { /* no match begins before q: its spaces are no lead */
            memmove(b->s + k, b->s + i, n);
            k += n;
            i += n;
        }
    }
    b->n = k;
}

/* ([0-9]) +([0-9]) -> \1+\2, matches not overlapping. */
static void mixed_numbers(struct vl_buf *b)
{
    size_t k = 0, free_from = 0;

    for (size_t i = 0; i < b->n;) {
        size_t q = i;

        while (q < b->n && b->s[q] == ' ')
            q++;
        if (q > i && i > free_from && is_digit(b->s[i - 1]) && q < b->n && is_digit(b->s[q])) {
            b->s[k++] = '+';
            i = q;
            free_from = q + 1; /* this digit is part of the match */
            continue;
        }
        do
            b->s[k++] = b->s[i++];
        while (i < q);
    }
    b->n = k;
}

static void lower(struct vl_buf *b)
{
    struct vl_buf out = { 0 };

    vl_py_lower(&out, b->s, b->n);
    vl_buf_free(b);
    *b = out;
}

void vl_prime_normalize(struct vl_buf *b)
{
    static const char *const change[][2] = {
        { "\\%", "%" },
        { "\\$", "$" },
        { "$", "" },
        { "%", "" },
        { " or ", " , " },
        { " and ", " , " },
        { "million", "*10^6" },
        { "billion", "*10^9" },
        { "trillion", "*10^12" },
    };
    static const char *const units[] = {
        "degree", "cm",    "centimeter", "meter", "mile", "second", "minute", "hour",  "day",
        "week",   "month", "year",       "foot",  "feet", "inch",   "yard",   "liter",
    };
    double x;

    vl_buf_add(b, "", 0);
    unwrap_text(b);
    for (size_t i = 0; i < sizeof change / sizeof *change; i++)
        vl_tex_replace(b, change[i][0], change[i][1]);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        drop_unit(b, units[i]);
    drop_spaced(b, "^", "\\circ");
    if (b->n && b->s[0] == '{' && b->s[b->n - 1] == '}') {
        b->n = b->n == 1 ? 0 : b->n - 2;
        memmove(b->s, b->s + 1, b->n);
    }
    drop_spaced(b, ",\\!", "");
    if (vl_prime_float(b->s, b->n, &x) && near_integer(x))
        become_integer(b, nearbyint(x));
    if (b->n && memchr(b->s, '\\', b->n))
        vl_prime_tex_text(b);
    drop_spaced(b, "-", NULL);
    mixed_numbers(b);
    lower(b);
    if (vl_prime_is_int(b->s, b->n)) {
        vl_tex_replace(b, ",", "");
        if (vl_prime_float(b->s, b->n, &x))
            become_integer(b, trunc(x));
    }
    vl_buf_add(b, "", 0);
}
