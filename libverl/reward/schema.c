/* schema.c - reading schemas. See schema.h.
 *
 * The schema stays its own JSON text: checking (schema_check.c) walks both trees side by side.
 * Regular expressions are compiled when it is read and found by their node. */
#include "libverl/reward/schema_impl.h"

#include "libverl/base/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 22 };

enum form {
    SCHEMA,     /* a schema */
    SCHEMAS,    /* a list of schemas */
    SCHEMA_MAP, /* names to schemas */
    NUMBER,     /* a number */
    POSITIVE,   /* a number above 0 */
    SIZE,       /* a whole number, not negative */
    TEXTS,      /* a list of strings */
    LIST,       /* a list */
    TYPES,      /* a type or a list of types */
    FLAG,       /* true or false */
    REGEX,      /* a regular expression */
    REFERENCE,  /* #, #/$defs/NAME or #/definitions/NAME */
    ANY,        /* anything */
};

static const struct {
    const char *name;
    enum form form;
} keywords[] = {
    { "type", TYPES },
    { "enum", LIST },
    { "const", ANY },
    { "properties", SCHEMA_MAP },
    { "required", TEXTS },
    { "additionalProperties", SCHEMA },
    { "minProperties", SIZE },
    { "maxProperties", SIZE },
    { "items", SCHEMA },
    { "prefixItems", SCHEMAS },
    { "minItems", SIZE },
    { "maxItems", SIZE },
    { "uniqueItems", FLAG },
    { "minimum", NUMBER },
    { "maximum", NUMBER },
    { "exclusiveMinimum", NUMBER },
    { "exclusiveMaximum", NUMBER },
    { "multipleOf", POSITIVE },
    { "minLength", SIZE },
    { "maxLength", SIZE },
    { "pattern", REGEX },
    { "anyOf", SCHEMAS },
    { "oneOf", SCHEMAS },
    { "allOf", SCHEMAS },
    { "not", SCHEMA },
    { "$ref", REFERENCE },
    { "$defs", SCHEMA_MAP },
    { "definitions", SCHEMA_MAP },
    { "$schema", ANY },
    { "$id", ANY },
    { "$comment", ANY },
    { "title", ANY },
    { "description", ANY },
    { "default", ANY },
    { "examples", ANY },
    { "deprecated", ANY },
    { "readOnly", ANY },
    { "writeOnly", ANY },
};

static const char *const forms[] = {
    "a schema (an object, true or false)",
    "a list of schemas that is not empty",
    "an object of schemas",
    "a number",
    "a number above 0",
    "a whole number from 0 on",
    "a list of strings",
    "a list",
    "null, boolean, integer, number, string, array or object, or a list of these",
    "true or false",
    "a regular expression",
    "#, #/$defs/NAME or #/definitions/NAME with that definition in the schema",
    "anything",
};

static const char *const types[] = { "null",   "boolean", "integer", "number",
                                     "string", "array",   "object" };

/* ---- reading ---- */

struct reader {
    struct vl_schema *s;
    const char *name;
    struct vl_err *e;
};

static int read_schema(struct reader *r, int64_t i);

int64_t vl_schema_target(const struct vl_schema *s, int64_t ref)
{
    char *text = vl_json_strdup(&s->j, ref), *name = NULL;
    int64_t at = -1;

    if (text && !strcmp(text, "#"))
        at = 0;
    else if (text && !strncmp(text, "#/$defs/", 8))
        name = text + 8, at = vl_json_get(&s->j, 0, "$defs");
    else if (text && !strncmp(text, "#/definitions/", 14))
        name = text + 14, at = vl_json_get(&s->j, 0, "definitions");
    if (name)
        at = vl_json_get(&s->j, at, name);
    free(text);
    return at;
}

static int is_type(const struct vl_json *j, int64_t i)
{
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (vl_json_streq(j, i, types[k]))
            return 1;
    return 0;
}

static int read_regex(struct reader *r, int64_t v)
{
    struct vl_schema *s = r->s;
    struct vl_buf b = { 0 };
    struct vl_pattern *p;
    int fine = vl_json_str(&s->j, v, &b);

    if (fine && !vl_pattern_new(&p, b.n ? b.s : "", b.n, r->e)) {
        s->regex = vl_realloc(s->regex, (s->nregex + 1) * sizeof *s->regex);
        s->regex[s->nregex++] = (struct vl_schema_regex){ v, p };
    }
    vl_buf_free(&b);
    return fine;
}

/* 1 when value v has the form; schemas inside are read. */
static int read_value(struct reader *r, enum form form, int64_t v)
{
    const struct vl_json *j = &r->s->j;
    int list = vl_json_is(j, v, VL_JSON_ARRAY), map = vl_json_is(j, v, VL_JSON_OBJECT), flag;
    int fine = form == SCHEMAS      ? list && j->node[v].count > 0
               : form == SCHEMA_MAP ? map
               : form == TYPES      ? list || is_type(j, v)
                                    : list;
    int64_t c = v + 1, whole;
    double x;

    switch (form) {
    case SCHEMA:
        return map || vl_json_bool(j, v, &flag) ? (read_schema(r, v), 1) : 0;
    case NUMBER:
        return vl_json_is(j, v, VL_JSON_NUMBER);
    case POSITIVE:
        return vl_json_f64(j, v, &x) && x > 0;
    case SIZE:
        return vl_json_i64(j, v, &whole) && whole >= 0;
    case FLAG:
        return vl_json_bool(j, v, &flag);
    case REGEX:
        return read_regex(r, v);
    case REFERENCE:
        return vl_schema_target(r->s, v) >= 0;
    case ANY:
        return 1;
    default:
        break;
    }
    for (uint32_t k = 0; (list || map) && fine && k < j->node[v].count && !r->e->code; k++) {
        int64_t item = map ? c + 1 : c;

        if (form == SCHEMAS || form == SCHEMA_MAP)
            fine = read_value(r, SCHEMA, item);
        else if (form == TEXTS)
            fine = vl_json_is(j, item, VL_JSON_STRING);
        else if (form == TYPES)
            fine = is_type(j, item);
        c = j->node[item].next;
    }
    return fine;
}

static void read_keyword(struct reader *r, int64_t key)
{
    const struct vl_json *j = &r->s->j;
    char *name = vl_json_name(j, key);
    size_t k = 0, n = sizeof keywords / sizeof *keywords;

    while (k < n && strcmp(keywords[k].name, name))
        k++;
    if (k == n || j->node[key].escaped) /* checking compares source bytes */
        vl_fail(r->e, VL_E_USAGE,
                "%s: byte %zu: the keyword '%.80s' is not checked here; verl-reward(1) lists those "
                "that are",
                r->name, j->node[key].at, name);
    else if (!read_value(r, keywords[k].form, key + 1) && !r->e->code)
        vl_fail(r->e, VL_E_USAGE, "%s: byte %zu: %s must be %s", r->name, j->node[key].at, name,
                forms[keywords[k].form]);
    free(name);
}

static int read_schema(struct reader *r, int64_t i)
{
    const struct vl_json *j = &r->s->j;
    int64_t c = i + 1;

    for (uint32_t k = 0; vl_json_is(j, i, VL_JSON_OBJECT) && k < j->node[i].count && !r->e->code;
         k++, c = j->node[c + 1].next)
        read_keyword(r, c);
    return r->e->code;
}

int vl_schema_new(struct vl_schema **out, const char *json, size_t n, const char *name,
                  struct vl_err *e)
{
    struct vl_schema *s = vl_alloc(sizeof *s);
    struct reader r = { s, name, e };

    s->text = vl_strndup(json, n);
    if (vl_json_parse(&s->j, s->text, n, name, e))
        e->code = VL_E_USAGE;
    else if (!read_value(&r, SCHEMA, 0))
        vl_fail(e, VL_E_USAGE, "%s is no schema: give an object, true or false", name);
    if (e->code)
        vl_schema_free(s);
    else
        *out = s;
    return e->code;
}

int vl_schema_read(struct vl_schema **s, const char *path, struct vl_err *e)
{
    struct vl_buf b = { 0 };

    if (!vl_fs_read(path, FILE_MAX, &b, e))
        (void)!vl_schema_new(s, b.n ? b.s : "", b.n, path, e);
    vl_buf_free(&b);
    return e->code;
}

void vl_schema_put(const struct vl_schema *s, struct vl_buf *out)
{
    vl_json_raw(&s->j, 0, out);
}

void vl_schema_free(struct vl_schema *s)
{
    if (!s)
        return;
    for (size_t k = 0; k < s->nregex; k++)
        vl_pattern_free(s->regex[k].p);
    free(s->regex);
    vl_json_free(&s->j);
    free(s->text);
    free(s);
}
