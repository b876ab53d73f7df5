/* search_r1.c - the text in the last <answer> tag is one of the targets (verl's search_r1_like).
 *
 * Normalised as in SQuAD: lower case, ASCII punctuation out, articles out, white space single. The
 * sub-exact form asks whether a target is contained in the answer. */
#include "libverl/reward/latex.h"
#include "libverl/reward/rules.h"
#include "libverl/text/unicode.h"
#include "formats/json.h"

#include <string.h>
#include <utf8proc.h>

enum { TAGS_MAX = 10 };

static size_t count(const char *s, size_t n, const char *tag)
{
    size_t len = strlen(tag), hits = 0;
    const char *p = s;

    while ((p = memmem(p, (size_t)(s + n - p), tag, len))) {
        hits++;
        p += len;
    }
    return hits;
}

/* <answer>(.*?)</answer>, the last match, stripped. */
static int last_answer(const char *s, size_t n, const char **answer, size_t *len)
{
    const char *p = s, *end = s + n, *open, *close;
    int found = 0;

    while ((open = memmem(p, (size_t)(end - p), "<answer>", 8)) &&
           (close = memmem(open + 8, (size_t)(end - open - 8), "</answer>", 9))) {
        *answer = open + 8;
        *len = (size_t)(close - open - 8);
        found = 1;
        p = close + 9;
    }
    if (found)
        vl_tex_strip(answer, len);
    return found;
}

/* Lower case without ASCII punctuation. */
static void lower(const char *s, size_t n, struct vl_buf *out)
{
    size_t k = out->n;

    vl_py_lower(out, s, n);
    for (size_t i = k; i < out->n; i++) {
        char c = out->s[i];

        if ((signed char)c <= ' ' || c == 0x7F || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'))
            out->s[k++] = c;
    }
    out->n = k;
}

/* \w of Python's re: letters, numbers, underscore (which is gone by now). */
static int is_word(uint32_t cp)
{
    utf8proc_category_t c =
        cp == VL_UC_BAD ? UTF8PROC_CATEGORY_CN : utf8proc_category((utf8proc_int32_t)cp);

    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_LO || vl_uc_numeric(cp);
}

static int is_article(const char *s, size_t n)
{
    return (n == 1 && *s == 'a') || (n == 2 && !memcmp(s, "an", 2)) ||
           (n == 3 && !memcmp(s, "the", 3));
}

/* Appends the words of s, articles left out, single spaces between them. A word of \w that is an
 * article is replaced by a space, so what stood around it falls apart. */
static void words(const char *s, size_t n, struct vl_buf *out)
{
    int gap = 0;
    uint32_t cp;

    for (size_t i = 0; i < n;) {
        size_t at = i, k = vl_uc_next(s + i, n - i, &cp);

        if (vl_py_space(cp)) {
            gap = 1;
            i += k;
            continue;
        }
        while (i < n && (k = vl_uc_next(s + i, n - i, &cp), is_word(cp)))
            i += k;
        if (i == at)
            i += k; /* a sign or mark */
        if (is_article(s + at, i - at)) {
            gap = 1;
            continue;
        }
        if (gap && out->n)
            vl_buf_ch(out, ' ');
        gap = 0;
        vl_buf_add(out, s + at, i - at);
    }
}

static void normalize(const char *s, size_t n, struct vl_buf *out)
{
    struct vl_buf low = { 0 };

    vl_buf_add(out, "", 0); /* never NULL */
    lower(s, n, &low);
    words(low.s, low.n, out);
    vl_buf_free(&low);
}

/* Whether the normalised answer is (or contains) the target at node t. */
static int hits(const struct vl_json *j, int64_t t, const struct vl_buf *answer, int part)
{
    struct vl_buf text = { 0 }, want = { 0 };
    int hit;

    if (!vl_json_str(j, t, &text))
        vl_json_raw(j, t, &text);
    normalize(text.s, text.n, &want);
    if (part)
        hit = !want.n || memmem(answer->s, answer->n, want.s, want.n) != NULL;
    else
        hit = want.n == answer->n && !memcmp(want.s, answer->s, want.n);
    vl_buf_free(&text);
    vl_buf_free(&want);
    return hit;
}

/* The ground truth is {"target": text or list}, or by itself a text or list. */
static int right(const struct vl_rule_in *in, const struct vl_buf *answer, int part)
{
    struct vl_json j = { 0 };
    struct vl_err ignored = { 0 };
    int64_t t = 0;
    int hit = 0;

    if (!in->truth_json || vl_json_parse(&j, in->truth_json, in->truth_json_n, "truth", &ignored)) {
        vl_json_free(&j);
        return 0;
    }
    if (vl_json_is(&j, 0, VL_JSON_OBJECT))
        t = vl_json_get(&j, 0, "target");
    if (vl_json_is(&j, t, VL_JSON_ARRAY)) {
        int64_t c = t + 1;

        for (uint32_t k = 0; k < j.node[t].count && !hit; k++, c = j.node[c].next)
            hit = hits(&j, c, answer, part);
    } else if (t >= 0) {
        hit = hits(&j, t, answer, part);
    }
    vl_json_free(&j);
    return hit;
}

static void score(const struct vl_rule_in *in, struct vl_score *out, int part)
{
    struct vl_buf answer = { 0 };
    const char *s;
    size_t n;
    double x;

    if (!last_answer(in->text, in->n, &s, &n)) {
        vl_score_set(out, 0);
        return;
    }
    normalize(s, n, &answer);
    x = right(in, &answer, part) ? in->args->score : vl_score_format(in, 0);
    if (!part && right(in, &answer, part) &&
        (count(in->text, in->n, "<answer>") > TAGS_MAX ||
         count(in->text, in->n, "</answer>") > TAGS_MAX))
        x /= 4; /* the answer was repeated to hit by chance */
    vl_score_set(out, x);
    vl_buf_free(&answer);
}

void vl_score_search_r1(const struct vl_rule_in *in, struct vl_score *out)
{
    score(in, out, 0);
}

void vl_score_search_r1_part(const struct vl_rule_in *in, struct vl_score *out)
{
    score(in, out, 1);
}
