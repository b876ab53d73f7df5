/* form.c - rewards for the form of a response, whatever its answer: tags, a pattern, JSON, length. */
#include "libverl/reward/latex.h"
#include "libverl/reward/pattern.h"
#include "libverl/reward/rules.h"
#include "libverl/reward/schema.h"

#include <math.h>
#include <string.h>

/* ---- tags ---- */

static size_t count(const char *s, size_t n, const char *what, size_t len)
{
    const char *end = s + n;
    size_t k = 0;

    for (; (s = memmem(s, (size_t)(end - s), what, len)); s += len)
        k++;
    return k;
}

/* <name> or </name>. */
static size_t write_tag(char tag[80], const char *name, int close)
{
    size_t n = strlen(name);

    if (n > 70)
        n = 70;
    tag[0] = '<';
    tag[1] = '/';
    memcpy(tag + 1 + close, name, n);
    tag[1 + close + (int)n] = '>';
    return n + 2 + (size_t)close;
}

/* Nothing but the tags in order with anything inside them: <a>..</a> <b>..</b>. */
static int in_order(const char *s, size_t n, const char *names)
{
    const char *end = s + n;
    char tag[80];

    vl_tex_strip(&s, &n);
    end = s + n;
    for (const char *name = names; *name; name += strlen(name) + 1) {
        size_t len = write_tag(tag, name, 0);

        if ((size_t)(end - s) < len || memcmp(s, tag, len))
            return 0;
        s += len;
        len = write_tag(tag, name, 1);
        s = memmem(s, (size_t)(end - s), tag, len);
        if (!s)
            return 0;
        s += len;
        n = (size_t)(end - s);
        vl_tex_strip(&s, &n);
        if (s > end)
            s = end;
    }
    return s == end || n == 0;
}

void vl_score_tags(const struct vl_rule_in *in, struct vl_score *out)
{
    const char *names = in->args->tags ? in->args->tags : "think\0answer\0";
    size_t wanted = 0, once = 0;
    int whole;
    char tag[80];

    for (const char *name = names; *name; name += strlen(name) + 1)
        for (int close = 0; close < 2; close++) {
            size_t len = write_tag(tag, name, close);

            wanted++;
            once += count(in->text, in->n, tag, len) == 1;
        }
    whole = once == wanted && in_order(in->text, in->n, names);
    if (in->args->partial) /* one part for each tag that is there once, one for the whole form */
        vl_score_set(out, in->args->score * (double)(once + (size_t)whole) / (double)(wanted + 1));
    else
        vl_score_set(out, whole ? in->args->score : 0);
}

/* ---- a pattern ---- */

void vl_score_regex(const struct vl_rule_in *in, struct vl_score *out)
{
    const char *why = NULL;
    int match;

    if (!in->args->pattern) {
        vl_score_fail(out, "the scorer regex needs a pattern");
        return;
    }
    match = vl_pattern_match(in->args->pattern, in->text, in->n, &why);
    if (match < 0)
        vl_score_fail(out, "%s", why);
    else
        vl_score_set(out, match ? in->args->score : 0);
}

/* ---- JSON ---- */

/* The last fenced block when there is one, else all of the text. */
static void fenced(const char **s, size_t *n)
{
    const char *close = vl_tex_rfind(*s, *n, "```"), *end = *s + *n;
    const char *open = close ? vl_tex_rfind(*s, (size_t)(close - *s), "```") : NULL, *line;

    if (!open)
        return;
    line = memchr(open, '\n', (size_t)(close - open));
    *s = line ? line + 1 : open + 3;
    *n = (size_t)((close < end ? close : end) - *s);
}

void vl_score_json(const struct vl_rule_in *in, struct vl_score *out)
{
    const char *s = in->text;
    size_t n = in->n;
    struct vl_json j = { 0 };
    struct vl_err e = { 0 };
    struct vl_buf why = { 0 }, member = { 0 };
    int valid;

    fenced(&s, &n);
    if (vl_json_parse(&j, s, n, "the response", &e)) {
        valid = 0;
        vl_buf_str(&why, e.msg);
    } else {
        valid = in->args->schema ? vl_schema_check(in->args->schema, &j, 0, &why) : 1;
    }
    if (valid < 0) {
        vl_score_fail(out, "%s", why.s);
    } else {
        vl_score_set(out, valid ? in->args->score : 0);
        vl_buf_str(&member, "\"json_error\":");
        if (valid)
            vl_buf_str(&member, "null");
        else
            vl_json_put_str(&member, why.n ? why.s : "", why.n);
        vl_score_add(out, member.s);
    }
    vl_json_free(&j);
    vl_buf_free(&why);
    vl_buf_free(&member);
}

/* ---- length ---- */

/* 1 from min to max tokens (target is both); outside 1 - distance / width, not below 0. width is by
 * default the bound itself: with max 100 a response of 150 has 0.5, one of 200 has 0. */
void vl_score_length(const struct vl_rule_in *in, struct vl_score *out)
{
    const struct vl_rule_args *a = in->args;
    double low = isnan(a->target) ? a->min : a->target,
           high = isnan(a->target) ? a->max : a->target;
    double n = (double)in->tokens, over = 0, bound = 1, width, x;

    if (!isnan(low) && n < low) {
        over = low - n;
        bound = low;
    } else if (!isnan(high) && n > high) {
        over = n - high;
        bound = high;
    }
    width = isnan(a->width) ? fmax(bound, 1) : a->width;
    x = over == 0 ? 1 : width > 0 ? fmax(1 - over / width, 0) : 0;
    vl_score_set(out, a->score * x);
}
