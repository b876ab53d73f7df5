/* value.c - from a YAML value to a typed, range-checked variable and back. See opt_impl.h. */
#include "libverl/base/opt_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int ranged(const struct vl_opt *o)
{
    return o->lo != 0 || o->hi != 0;
}

void vl_opt_expected(struct vl_buf *b, const struct vl_opt *o)
{
    const char *what = o->type == VL_T_I64 ? "an integer" : "a number";
    int null = o->flags & VL_F_NULLABLE;

    switch (o->type) {
    case VL_T_BOOL:
        vl_buf_str(b, null ? "true, false" : "true or false");
        break;
    case VL_T_I64:
    case VL_T_F64:
        vl_buf_str(b, what);
        if (ranged(o) && isinf(o->hi)) {
            vl_buf_str(b, " of at least ");
            vl_buf_real(b, o->lo);
        } else if (ranged(o) && isinf(o->lo)) {
            vl_buf_str(b, " of at most ");
            vl_buf_real(b, o->hi);
        } else if (ranged(o)) {
            vl_buf_str(b, " from ");
            vl_buf_real(b, o->lo);
            vl_buf_str(b, " to ");
            vl_buf_real(b, o->hi);
        }
        break;
    case VL_T_STR:
        if (!o->choices)
            vl_buf_str(b, "a string");
        for (const char *c = o->choices; c && *c; c += *c == '|') {
            size_t n = strcspn(c, "|");
            vl_buf_printf(b, "%s%.*s",
                          c == o->choices ? ""
                          : c[n] || null  ? ", "
                                          : " or ",
                          (int)n, c);
            c += n;
        }
        break;
    case VL_T_LIST:
        vl_buf_str(b, "a list of strings");
        break;
    default:
        break;
    }
    if (null)
        vl_buf_str(b, " or null");
}

struct vl_yaml *vl_opt_yaml(const struct vl_opt *o)
{
    struct vl_yaml *y = NULL;
    struct vl_buf b = { 0 };
    const struct vl_strs *list;
    const char *s;

    switch (o->type) {
    case VL_T_BOOL:
        return vl_yaml_scalar(*(int *)o->dst ? "true" : "false", 0);
    case VL_T_I64:
        if (*(int64_t *)o->dst == VL_NULL_I64)
            return vl_yaml_scalar("null", 0);
        vl_buf_printf(&b, "%" PRId64, *(int64_t *)o->dst);
        break;
    case VL_T_F64:
        if (isnan(*(double *)o->dst))
            return vl_yaml_scalar("null", 0);
        if (isinf(*(double *)o->dst))
            return vl_yaml_scalar(*(double *)o->dst > 0 ? ".inf" : "-.inf", 0);
        vl_buf_real(&b, *(double *)o->dst);
        break;
    case VL_T_STR:
        s = *(const char **)o->dst;
        if (!s)
            return o->flags & VL_F_NULLABLE ? vl_yaml_scalar("null", 0) : NULL;
        for (; *s; s++) { /* a literal "${" must read back as itself */
            if (s[0] == '$' && s[1] == '{')
                vl_buf_ch(&b, '\\');
            vl_buf_ch(&b, *s);
        }
        y = vl_yaml_scalar(b.s ? b.s : "", 1);
        vl_buf_free(&b);
        return y;
    case VL_T_LIST:
        list = o->dst;
        y = vl_yaml_new(VL_YAML_LIST);
        for (size_t i = 0; i < list->n; i++)
            vl_yaml_push(y, vl_yaml_scalar(list->s[i], 1));
        return y;
    default:
        return NULL;
    }
    y = vl_yaml_scalar(b.s, 0);
    vl_buf_free(&b);
    return y;
}

/* "WHERE: found X, expected Y, for example Z". */
static int wrong(const struct vl_opt *o, const struct vl_yaml *v, const char *where,
                 const char *why, struct vl_err *e)
{
    struct vl_buf found = { 0 }, want = { 0 }, example = { 0 };
    struct vl_yaml *now = vl_opt_yaml(o);
    int rc;

    vl_yaml_put(&found, v);
    vl_opt_expected(&want, o);
    if (o->choices)
        vl_buf_printf(&example, "%.*s", (int)strcspn(o->choices, "|"), o->choices);
    else if (now && !vl_yaml_null(now))
        vl_yaml_put(&example, now);
    else if (ranged(o) && !isinf(o->lo))
        vl_buf_real(&example, o->lo);
    else
        vl_buf_str(&example, o->type == VL_T_LIST ? "[a, b]" : o->type == VL_T_STR ? "text" : "1");
    rc = vl_fail(e, VL_E_USAGE, "%s: found %s, expected %s%s, for example %s", where, found.s,
                 want.s, why, example.s);
    vl_yaml_free(now);
    vl_buf_free(&found);
    vl_buf_free(&want);
    vl_buf_free(&example);
    return rc;
}

void vl_parsed_keep(struct vl_parsed *p, void *memory)
{
    p->memory = vl_realloc(p->memory, (p->nmemory + 1) * sizeof *p->memory);
    p->memory[p->nmemory++] = memory;
}

static const char *keep(struct vl_parsed *p, const char *s)
{
    char *copy = vl_strdup(s);

    vl_parsed_keep(p, copy);
    return copy;
}

static int to_bool(const struct vl_opt *o, const struct vl_yaml *v, const char *where,
                   struct vl_err *e)
{
    int yes = !strcmp(v->text, "true") || !strcmp(v->text, "True") || !strcmp(v->text, "TRUE");
    int no = !strcmp(v->text, "false") || !strcmp(v->text, "False") || !strcmp(v->text, "FALSE");

    if (v->quoted || (!yes && !no))
        return wrong(o, v, where, " (YAML 1.2: yes, no, on, off, 1 and 0 are not booleans)", e);
    *(int *)o->dst = yes;
    return 0;
}

static int to_i64(const struct vl_opt *o, const struct vl_yaml *v, const char *where,
                  struct vl_err *e)
{
    const char *s = v->text, *digits = s + (*s == '-' || *s == '+');
    size_t n = strspn(digits, "0123456789");
    long long x;

    if (v->quoted || !n || digits[n])
        return wrong(o, v, where, *digits ? " (digits only)" : "", e);
    errno = 0;
    x = strtoll(s, NULL, 10);
    if (errno || (ranged(o) && ((double)x < o->lo || (double)x > o->hi)) || x == VL_NULL_I64)
        return wrong(o, v, where, "", e);
    *(int64_t *)o->dst = x;
    return 0;
}

static int to_f64(const struct vl_opt *o, const struct vl_yaml *v, const char *where,
                  struct vl_err *e)
{
    const char *s = v->text;
    char *end;
    double x = 0;

    if (!v->quoted && (!strcmp(s, ".inf") || !strcmp(s, "-.inf"))) {
        x = *s == '-' ? -INFINITY : INFINITY;
    } else {
        /* strtod alone would take "nan", "infinity" and "0x1p3" */
        if (v->quoted || !*s || s[strspn(s, "0123456789+-.eE")])
            return wrong(o, v, where, "", e);
        x = strtod(s, &end);
        if (*end || end == s || !isfinite(x))
            return wrong(o, v, where, "", e);
    }
    if (ranged(o) && !(x >= o->lo && x <= o->hi))
        return wrong(o, v, where, "", e);
    *(double *)o->dst = x;
    return 0;
}

static int to_str(struct vl_parsed *p, const struct vl_opt *o, const struct vl_yaml *v,
                  const char *where, struct vl_err *e)
{
    const char *c = o->choices;
    size_t n = strlen(v->text);

    while (c && (strncmp(c, v->text, n) != 0 || (c[n] && c[n] != '|') || !n)) {
        c = strchr(c, '|');
        c = c ? c + 1 : NULL;
    }
    if (o->choices && !c)
        return wrong(o, v, where, "", e);
    *(const char **)o->dst = keep(p, v->text);
    return 0;
}

static int to_list(struct vl_parsed *p, const struct vl_opt *o, const struct vl_yaml *v,
                   const char *where, struct vl_err *e)
{
    struct vl_strs list = { 0 };
    size_t n = v->kind == VL_YAML_LIST ? v->n : 1;

    for (size_t i = 0; i < n; i++)
        if (v->kind == VL_YAML_LIST && v->item[i]->kind != VL_YAML_SCALAR)
            return wrong(o, v, where, " (no lists or maps inside)", e);
    list.s = vl_alloc(n * sizeof *list.s);
    for (size_t i = 0; i < n; i++)
        list.s[list.n++] = keep(p, v->kind == VL_YAML_LIST ? v->item[i]->text : v->text);
    vl_parsed_keep(p, list.s);
    *(struct vl_strs *)o->dst = list;
    return 0;
}

static int to_null(const struct vl_opt *o)
{
    switch (o->type) {
    case VL_T_I64:
        *(int64_t *)o->dst = VL_NULL_I64;
        break;
    case VL_T_F64:
        *(double *)o->dst = NAN;
        break;
    case VL_T_STR:
        *(const char **)o->dst = NULL;
        break;
    case VL_T_LIST:
        *(struct vl_strs *)o->dst = (struct vl_strs){ 0 };
        break;
    default:
        break;
    }
    return 0;
}

static void json_string(struct vl_buf *b, const char *s)
{
    vl_buf_ch(b, '"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            vl_buf_printf(b, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            vl_buf_printf(b, "\\u%04x", (unsigned)*s);
        else
            vl_buf_ch(b, *s);
    }
    vl_buf_ch(b, '"');
}

/* Whether a plain scalar is a number as JSON writes it. */
static int json_number(const char *s)
{
    const char *p = s + (*s == '-');
    size_t n = strspn(p, "0123456789");

    if (!n || (*p == '0' && n > 1))
        return 0;
    p += n;
    if (*p == '.') {
        n = strspn(++p, "0123456789");
        if (!n)
            return 0;
        p += n;
    }
    if (*p == 'e' || *p == 'E') {
        p += 1 + (p[1] == '-' || p[1] == '+');
        n = strspn(p, "0123456789");
        if (!n)
            return 0;
        p += n;
    }
    return !*p;
}

/* The parser bounds the depth. */
static void yaml_to_json(struct vl_buf *b, const struct vl_yaml *v)
{
    if (v->kind != VL_YAML_SCALAR) {
        vl_buf_ch(b, v->kind == VL_YAML_MAP ? '{' : '[');
        for (size_t i = 0; i < v->n; i++) {
            vl_buf_str(b, i ? ", " : "");
            if (v->kind == VL_YAML_MAP) {
                json_string(b, v->key[i]);
                vl_buf_str(b, ": ");
            }
            yaml_to_json(b, v->item[i]);
        }
        vl_buf_ch(b, v->kind == VL_YAML_MAP ? '}' : ']');
    } else if (vl_yaml_null(v)) {
        vl_buf_str(b, "null");
    } else if (!v->quoted && (!strcasecmp(v->text, "true") || !strcasecmp(v->text, "false"))) {
        vl_buf_str(b, (v->text[0] | 0x20) == 't' ? "true" : "false");
    } else if (!v->quoted && json_number(v->text)) {
        vl_buf_str(b, v->text);
    } else {
        json_string(b, v->text);
    }
}

static int to_json(struct vl_parsed *p, const struct vl_opt *o, const struct vl_yaml *v)
{
    struct vl_buf b = { 0 };

    yaml_to_json(&b, v);
    *(const char **)o->dst = keep(p, b.s);
    vl_buf_free(&b);
    return 0;
}

int vl_opt_convert(struct vl_parsed *p, const struct vl_opt *o, const struct vl_yaml *v,
                   const char *where, struct vl_err *e)
{
    if ((o->flags & VL_F_NULLABLE) && o->type != VL_T_BOOL && vl_yaml_null(v))
        return to_null(o);
    if (o->type == VL_T_LIST && v->kind != VL_YAML_MAP && !vl_yaml_null(v))
        return to_list(p, o, v, where, e);
    if ((o->flags & VL_F_JSON) && v->kind != VL_YAML_SCALAR)
        return to_json(p, o, v);
    if (v->kind != VL_YAML_SCALAR || vl_yaml_null(v))
        return wrong(o, v, where, "", e);
    switch (o->type) {
    case VL_T_BOOL:
        return to_bool(o, v, where, e);
    case VL_T_I64:
        return to_i64(o, v, where, e);
    case VL_T_F64:
        return to_f64(o, v, where, e);
    default:
        return to_str(p, o, v, where, e);
    }
}
