/* score.c - reading a scorer's answer. See score.h. */
#include "libverl/reward/score.h"

#include "formats/json.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void vl_score_free(struct vl_score *s)
{
    free(s->extra);
    free(s->why);
    *s = (struct vl_score){ 0 };
}

void vl_score_fail(struct vl_score *s, const char *fmt, ...)
{
    char line[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    for (char *p = line; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F)
            *p = ' ';
    vl_score_free(s);
    s->why = vl_strdup(line);
}

void vl_score_add(struct vl_score *s, const char *members)
{
    size_t n = s->extra ? strlen(s->extra) : 0;
    char *old = s->extra;

    s->extra =
        old ? vl_asprintf("%.*s,%s}", (int)(n - 1), old, members) : vl_asprintf("{%s}", members);
    free(old);
}

/* A number, true or false at node i. 1 when it is one; "NaN" and the like count, so that the caller
 * can say what was wrong with them. */
static int number_at(const struct vl_json *j, int64_t i, double *out)
{
    int b;

    if (vl_json_bool(j, i, &b)) {
        *out = b;
        return 1;
    }
    if (vl_json_is(j, i, VL_JSON_NUMBER) && !vl_json_f64(j, i, out)) {
        *out = HUGE_VAL; /* 1e400 */
        return 1;
    }
    return vl_json_real(j, i, out);
}

/* Copies the members but id, score, acc into s->extra. */
static void keep_extra(struct vl_score *s, const struct vl_json *j)
{
    struct vl_buf b = { 0 };
    int64_t c = 1;

    for (uint32_t k = 0; k < j->node[0].count; k++, c = j->node[c + 1].next) {
        if (vl_json_streq(j, c, "id") || vl_json_streq(j, c, "score") || vl_json_streq(j, c, "acc"))
            continue;
        vl_buf_ch(&b, b.n ? ',' : '{');
        vl_json_raw(j, c, &b);
        vl_buf_ch(&b, ':');
        vl_json_raw(j, c + 1, &b);
    }
    if (b.n) {
        vl_buf_ch(&b, '}');
        s->extra = vl_buf_detach(&b);
    }
}

static int fits(struct vl_score *s, double x, const char *name)
{
    if (isnan(x)) {
        vl_score_fail(s, "its %s is NaN", name);
        return 0;
    }
    if (fabs(x) > (double)FLT_MAX) {
        vl_score_fail(s, "its %s is not a finite float32 number", name);
        return 0;
    }
    return 1;
}

static void not_a_score(struct vl_score *s, const char *json, size_t n)
{
    vl_score_fail(s, "answered %.*s%s, not a number, true, false or an object with score",
                  (int)(n < 60 ? n : 60), json, n < 60 ? "" : "...");
}

static void read_object(struct vl_score *s, const struct vl_json *j, const char *json, size_t n)
{
    int64_t score = vl_json_get(j, 0, "score"), acc = vl_json_get(j, 0, "acc");
    int64_t error = vl_json_get(j, 0, "error");
    char *text;

    if (score < 0 && vl_json_is(j, error, VL_JSON_STRING)) {
        text = vl_json_strdup(j, error);
        vl_score_fail(s, "%s", text);
        free(text);
    } else if (!number_at(j, score, &s->score)) {
        not_a_score(s, json, n);
    } else if (fits(s, s->score, "score")) {
        s->acc = s->score;
        if (acc >= 0 && !vl_json_is(j, acc, VL_JSON_NULL) && !number_at(j, acc, &s->acc))
            vl_score_fail(s, "its acc is not a number, true or false");
        else if (fits(s, s->acc, "acc"))
            keep_extra(s, j);
    }
}

void vl_score_parse(struct vl_score *s, const char *json, size_t n)
{
    struct vl_json j = { 0 };
    struct vl_err e = { 0 };
    int64_t first = 0;

    vl_score_free(s);
    if (!json || !n) {
        vl_score_fail(s, "answered nothing");
        return;
    }
    if (vl_json_parse(&j, json, n, "answer", &e)) {
        not_a_score(s, json, n);
    } else if (vl_json_is(&j, 0, VL_JSON_OBJECT)) {
        read_object(s, &j, json, n);
    } else {
        if (vl_json_is(&j, 0, VL_JSON_ARRAY))
            first = vl_json_at(&j, 0, 0);
        if (!number_at(&j, first, &s->score))
            not_a_score(s, json, n);
        else if (fits(s, s->score, "score"))
            s->acc = s->score;
    }
    vl_json_free(&j);
}
