/* jq.c - user filters through libjq 1.6. See jq.h.
 *
 * Values are built from our own scanner's nodes and printed by our own writer, because libjq's
 * parser rounds numbers and refuses lone surrogates, and its printer turns infinity into a number
 * and NaN into null. Inside libjq a lone surrogate U+DXXX is the private character U+10FXXX
 * (U+10F800..U+10FFFF), turned back on the way out, so that a filter which only moves text about
 * loses nothing. */
#include "libverl/base/jq.h"

#include "formats/json.h"

#include <jq.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 512, STRING_MAX = 1 << 30 };

struct vl_jq {
    jq_state *jq;
    struct vl_buf said;    /* libjq's messages */
    struct vl_buf text;    /* scratch: one string */
    int64_t inexact, most; /* most: results of a run; 0: all */
    int mapped;            /* this run's input holds lone surrogates */
};

static void hear(void *data, jv msg)
{
    struct vl_buf *b = data;
    const char *s = jv_get_kind(msg) == JV_KIND_STRING ? jv_string_value(msg) : "error";
    size_t n = strlen(s);

    while (n && s[n - 1] == '\n')
        n--;
    if (b->n)
        vl_buf_str(b, "; ");
    for (size_t i = 0; i < n; i++)
        vl_buf_ch(b, s[i] == '\n' ? ' ' : s[i]);
    jv_free(msg);
}

static jv no_input(jq_state *jq, void *data)
{
    (void)jq, (void)data;
    return jv_invalid_with_msg(jv_string("No more inputs: the filter is run on one row at a time"));
}

/* Significant digits of a JSON number without sign, point, exponent, leading and trailing zeros. */
static size_t significant(const char *s, size_t n, char *out, size_t cap)
{
    size_t k = 0;

    for (size_t i = 0; i < n && s[i] != 'e' && s[i] != 'E'; i++) {
        if (s[i] < '0' || s[i] > '9' || (!k && s[i] == '0'))
            continue;
        if (k == cap)
            return cap + 1;
        out[k++] = s[i];
    }
    while (k && out[k - 1] == '0')
        k--;
    return k;
}

/* Whether x, printed with as many digits as the source has, gives the source's digits. */
static int same_digits(double x, const char *s, size_t n)
{
    char want[32], have[32], print[48];
    size_t k = significant(s, n, want, sizeof want), h;

    if (k > 17 || !isfinite(x))
        return 0;
    if (!k)
        return x == 0;
    snprintf(print, sizeof print, "%.*e", (int)k - 1, x);
    h = significant(print, strlen(print), have, sizeof have);
    return h == k && !memcmp(want, have, k);
}

/* Up to 15 digits and no sign, as token ids have: what strtod would give, a dozen times sooner. */
static int small_integer(const char *s, size_t n, double *out)
{
    int64_t v = 0;

    if (n > 15)
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return 0;
        v = v * 10 + (s[i] - '0');
    }
    *out = (double)v;
    return 1;
}

static jv to_number(struct vl_jq *q, const struct vl_json *j, const struct vl_json_node *n)
{
    char small[64], *s;
    double x;
    jv v;

    if (small_integer(j->text + n->at, n->len, &x))
        return jv_number(x);
    s = n->len < sizeof small ? small : vl_alloc(n->len + 1);
    memcpy(s, j->text + n->at, n->len);
    s[n->len] = 0;
    x = strtod(s, NULL); /* integers from 1e17 on would be printed as 1e+17 */
    if (same_digits(x, s, n->len) && (fabs(x) < 1e17 || strpbrk(s, ".eE"))) {
        v = jv_number(x);
    } else {
        q->inexact++;
        v = jv_string_sized(s, (int)n->len);
    }
    if (s != small)
        free(s);
    return v;
}

/* Byte length of what a lone surrogate looks like at p: WTF-8 from the scanner (ED A0..BF xx). */
static int is_surrogate(const char *p, size_t n)
{
    return n >= 3 && (unsigned char)p[0] == 0xED && (unsigned char)p[1] >= 0xA0;
}

static int is_mapped(const char *p, size_t n)
{
    return n >= 4 && !memcmp(p, "\xF4\x8F", 2) && (unsigned char)p[2] >= 0xA0;
}

static jv to_string(struct vl_jq *q, const struct vl_json *j, uint32_t i)
{
    const struct vl_json_node *n = &j->node[i];
    struct vl_buf *b = &q->text;
    size_t from;

    if (!n->escaped)
        return jv_string_sized(j->text + n->at, (int)n->len);
    vl_buf_reset(b);
    vl_json_str(j, i, b);
    from = b->n; /* the copy follows the text in the same buffer */
    vl_buf_reserve(b, 2 * from);
    for (size_t k = 0; k < from; k++) {
        if (is_surrogate(b->s + k, from - k)) {
            vl_buf_add(b, "\xF4\x8F", 2);
            q->mapped = 1;
        } else {
            vl_buf_ch(b, b->s[k]);
        }
    }
    return jv_string_sized(b->s + from, (int)(b->n - from));
}

/* The scanner bounds the depth. */
static jv to_jv(struct vl_jq *q, const struct vl_json *j, uint32_t i)
{
    const struct vl_json_node *n = &j->node[i];
    uint32_t c = i + 1;
    jv v, key;

    switch ((enum vl_json_type)n->type) {
    case VL_JSON_NULL:
        return jv_null();
    case VL_JSON_FALSE:
        return jv_false();
    case VL_JSON_TRUE:
        return jv_true();
    case VL_JSON_NUMBER:
        return to_number(q, j, n);
    case VL_JSON_STRING:
        return to_string(q, j, i);
    case VL_JSON_ARRAY:
        v = jv_array_sized(n->count < INT_MAX ? (int)n->count : 0);
        for (uint32_t k = 0; k < n->count; k++, c = j->node[c].next)
            v = jv_array_set(v, (int)k, to_jv(q, j, c));
        return v;
    case VL_JSON_OBJECT:
        break;
    }
    v = jv_object();
    for (uint32_t k = 0; k < n->count; k++, c = j->node[c + 1].next) {
        key = to_string(q, j, c);
        v = jv_object_set(v, key, to_jv(q, j, c + 1));
    }
    return v;
}

static void put_number(struct vl_buf *out, double x)
{
    if (x == 0 && signbit(x))
        vl_buf_str(out, "-0");
    else if (x == trunc(x) && fabs(x) < 1e17)
        vl_json_put_i64(out, (int64_t)x);
    else
        vl_json_put_f64(out, x);
}

/* Appends the string's bytes, quoted or raw, with mapped characters as the surrogates they were. */
static void put_string(struct vl_jq *q, struct vl_buf *out, jv v, int raw)
{
    const char *s = jv_string_value(v);
    size_t n = (size_t)jv_string_length_bytes(jv_copy(v));
    struct vl_buf *b = &q->text;
    size_t from = out->n;

    if (raw)
        vl_buf_add(out, s, n);
    else
        vl_json_put_str(out, s, n);
    if (!q->mapped)
        return;
    vl_buf_reset(b);
    vl_buf_add(b, out->s + from, out->n - from);
    out->n = from;
    for (size_t k = 0; k < b->n; k++) {
        const unsigned char *p = (const unsigned char *)b->s + k;

        if (!is_mapped(b->s + k, b->n - k)) {
            vl_buf_ch(out, b->s[k]);
        } else if (raw) {
            vl_buf_ch(out, (char)0xED);
            vl_buf_add(out, p + 2, 2);
            k += 3;
        } else {
            vl_buf_printf(out, "\\u%04x", 0xD000u | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu));
            k += 3;
        }
    }
}

/* Appends v, which it does not consume, as JSON text. 0, or 1 when nested too deep. */
static int put(struct vl_jq *q, struct vl_buf *out, jv v, int depth)
{
    int bad = 0, first = 1;

    if (depth > DEPTH_MAX)
        return 1;
    switch (jv_get_kind(v)) {
    case JV_KIND_INVALID:
    case JV_KIND_NULL:
        vl_buf_str(out, "null");
        break;
    case JV_KIND_FALSE:
        vl_buf_str(out, "false");
        break;
    case JV_KIND_TRUE:
        vl_buf_str(out, "true");
        break;
    case JV_KIND_NUMBER:
        put_number(out, jv_number_value(v));
        break;
    case JV_KIND_STRING:
        put_string(q, out, v, 0);
        break;
    case JV_KIND_ARRAY:
        vl_buf_ch(out, '[');
        jv_array_foreach(v, i, x)
        {
            if (i)
                vl_buf_ch(out, ',');
            bad |= put(q, out, x, depth + 1);
            jv_free(x);
        }
        vl_buf_ch(out, ']');
        break;
    case JV_KIND_OBJECT:
        vl_buf_ch(out, '{');
        jv_object_foreach(v, key, x)
        {
            if (!first)
                vl_buf_ch(out, ',');
            first = 0;
            put_string(q, out, key, 0);
            vl_buf_ch(out, ':');
            bad |= put(q, out, x, depth + 1);
            jv_free(key);
            jv_free(x);
        }
        vl_buf_ch(out, '}');
        break;
    }
    return bad;
}

/* What `debug` passes by goes to standard error, as jq prints it. Without a callback libjq 1.6 calls
 * whatever its memory held. */
static void debugged(void *data, jv msg)
{
    struct vl_jq *q = data;
    struct vl_buf b = { 0 };

    vl_buf_str(&b, "[\"DEBUG:\",");
    if (put(q, &b, msg, 0))
        vl_buf_str(&b, "(nested too deep to print)");
    vl_buf_str(&b, "]\n");
    fwrite(b.s, 1, b.n, stderr);
    vl_buf_free(&b);
    jv_free(msg);
}

/* Consumes args_json's value; NULL or malformed text gives an object or an error. */
static int parse_args(struct vl_jq *q, const char *args, jv *out, struct vl_err *e)
{
    struct vl_json j = { 0 };

    *out = jv_object();
    if (!args)
        return 0;
    if (vl_json_parse(&j, args, strlen(args), "filter arguments", e) == 0) {
        if (vl_json_is(&j, 0, VL_JSON_OBJECT)) {
            jv_free(*out);
            *out = to_jv(q, &j, 0);
        } else {
            vl_fail(e, VL_E_USAGE, "filter arguments: found %.40s, expected a JSON object", args);
        }
    }
    vl_json_free(&j);
    return e->code;
}

int vl_jq_open(struct vl_jq **out, const char *filter, const char *args, struct vl_err *e)
{
    struct vl_jq *q = vl_alloc(sizeof *q);
    jv values;

    *out = NULL;
    q->jq = jq_init();
    if (!q->jq) {
        free(q);
        return vl_fail(e, VL_E_OS, "filter: libjq did not start: out of memory");
    }
    jq_set_error_cb(q->jq, hear, &q->said);
    jq_set_input_cb(q->jq, no_input, NULL);
    jq_set_debug_cb(q->jq, debugged, q);
    jq_set_attr(q->jq, jv_string("JQ_LIBRARY_PATH"), jv_array());
    if (parse_args(q, args, &values, e)) {
        jv_free(values);
    } else if (!jq_compile_args(q->jq, filter, values)) {
        vl_fail(e, VL_E_USAGE, "filter '%.200s' does not compile: %.600s", filter,
                q->said.n ? q->said.s : "libjq gives no reason");
    }
    if (e->code) {
        vl_jq_free(q);
        return e->code;
    }
    *out = q;
    return 0;
}

void vl_jq_free(struct vl_jq *q)
{
    if (!q)
        return;
    jq_teardown(&q->jq);
    vl_buf_free(&q->said);
    vl_buf_free(&q->text);
    free(q);
}

/* The message of a run-time error or of halt_error, as one line. Consumes msg. */
static int failed(struct vl_jq *q, jv msg, struct vl_err *e)
{
    struct vl_buf b = { 0 };

    if (jv_get_kind(msg) == JV_KIND_STRING)
        put_string(q, &b, msg, 1);
    else if (put(q, &b, msg, 0))
        vl_buf_str(&b, "(nested too deep to print)");
    for (size_t i = 0; i < b.n; i++)
        if (b.s[i] == '\n' || !b.s[i])
            b.s[i] = ' ';
    while (b.n && b.s[b.n - 1] == ' ')
        b.s[--b.n] = 0;
    vl_fail(e, VL_E_DATA, "filter: %.900s", b.n ? b.s : "error without a message");
    vl_buf_free(&b);
    jv_free(msg);
    return e->code;
}

static int next(struct vl_jq *q, int raw, struct vl_buf *out, int *more, struct vl_err *e)
{
    jv v = jq_next(q->jq);
    size_t from = out->n;

    *more = jv_is_valid(v);
    if (*more) {
        if (raw && jv_get_kind(v) == JV_KIND_STRING)
            put_string(q, out, v, 1);
        else if (put(q, out, v, 0)) {
            out->n = from;
            vl_fail(e, VL_E_DATA, "filter: a result is nested deeper than %d levels", DEPTH_MAX);
        }
        vl_buf_ch(out, '\n');
    } else if (jq_halted(q->jq)) {
        jv code = jq_get_exit_code(q->jq);

        /* libjq 1.6 lends the message, later ones give it away; a copy is right or a small leak */
        if (jv_get_kind(code) == JV_KIND_NUMBER && jv_number_value(code) != 0)
            failed(q, jv_copy(jq_get_error_message(q->jq)), e);
        jv_free(code);
    } else if (jv_invalid_has_msg(jv_copy(v))) {
        return failed(q, jv_invalid_get_msg(v), e);
    }
    jv_free(v);
    return e->code;
}

int vl_jq_run(struct vl_jq *q, const char *json, size_t n, int raw, struct vl_buf *out,
              int64_t *nresult, struct vl_err *e)
{
    struct vl_json j = { 0 };
    int more = 1;

    *nresult = 0;
    if (n > STRING_MAX)
        return vl_fail(e, VL_E_DATA, "filter: a value of %zu bytes; libjq takes at most %d", n,
                       STRING_MAX);
    q->mapped = 0;
    if (vl_json_parse(&j, json, n, "filter input", e) == 0) {
        jq_start(q->jq, to_jv(q, &j, 0), 0);
        while (more && (!q->most || *nresult < q->most) && next(q, raw, out, &more, e) == 0)
            *nresult += more;
        jq_start(q->jq, jv_null(), 0); /* releases what an unfinished run holds */
    }
    vl_json_free(&j);
    return e->code;
}

void vl_jq_most(struct vl_jq *q, int64_t results)
{
    q->most = results;
}

int64_t vl_jq_inexact(const struct vl_jq *q)
{
    return q->inexact;
}
