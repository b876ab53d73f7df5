/* rule_args.c - arguments of rules: one table of names, one setter a kind. See rules.h. */
#include "libverl/reward/rules.h"

#include "libverl/reward/pattern.h"
#include "libverl/reward/schema.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum kind { NUMBER, COUNT, FLAG, METHOD, LETTERS, NAMES, PATTERN, SCHEMA, LANGUAGE };

static const struct {
    const char *name;
    enum kind kind;
    size_t at; /* in struct vl_rule_args */
} members[] = {
    { "method", METHOD, 0 },
    { "score", NUMBER, offsetof(struct vl_rule_args, score) },
    { "format_score", NUMBER, offsetof(struct vl_rule_args, format_score) },
    { "strict_box_verify", FLAG, offsetof(struct vl_rule_args, strict_box) },
    { "tolerance", COUNT, offsetof(struct vl_rule_args, tolerance) },
    { "all", FLAG, offsetof(struct vl_rule_args, all) },
    { "partial", FLAG, offsetof(struct vl_rule_args, partial) },
    { "min", COUNT, offsetof(struct vl_rule_args, min) },
    { "max", COUNT, offsetof(struct vl_rule_args, max) },
    { "target", COUNT, offsetof(struct vl_rule_args, target) },
    { "width", COUNT, offsetof(struct vl_rule_args, width) },
    { "choices", LETTERS, 0 },
    { "tags", NAMES, 0 },
    { "pattern", PATTERN, 0 },
    { "schema", SCHEMA, 0 },
    { "language", LANGUAGE, 0 },
    { "continuous", FLAG, offsetof(struct vl_rule_args, code.pass_fraction) },
    { "cases", COUNT, offsetof(struct vl_rule_args, code.cases) },
    { "exact", FLAG, offsetof(struct vl_rule_args, code.exact) },
    { "any_fence", FLAG, offsetof(struct vl_rule_args, code.any_fence) },
};

/* What each kind looks like, for messages. */
static const char *const kinds[] = {
    [NUMBER] = "a number from -1e30 to 1e30",
    [COUNT] = "a number that is not negative",
    [FLAG] = "true or false",
    [METHOD] = "\"strict\", \"flexible\" or \"number\"",
    [LETTERS] = "capital letters such as \"ABCD\"",
    [NAMES] = "a list of names such as [\"think\",\"answer\"]",
    [PATTERN] = "a regular expression",
    [SCHEMA] = "a schema or the name of a file with one",
    [LANGUAGE] = "\"python\", \"c\", \"c++\", \"sh\" or \"other\"",
};

void vl_rule_args_init(struct vl_rule_args *a)
{
    *a = (struct vl_rule_args){ .score = 1,
                                .format_score = NAN,
                                .tolerance = 1e-6,
                                .all = 1,
                                .min = NAN,
                                .max = NAN,
                                .target = NAN,
                                .width = NAN,
                                .code = VL_CODE_ARGS };
}

void vl_rule_args_free(struct vl_rule_args *a)
{
    free(a->choices);
    free(a->tags);
    vl_pattern_free(a->pattern);
    vl_schema_free(a->schema);
    vl_rule_args_init(a);
}

/* Whether name is one of the |-separated words. */
static int listed(const char *words, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = words; (p = strstr(p, name)); p += n)
        if ((p == words || p[-1] == '|') && (!p[n] || p[n] == '|'))
            return 1;
    return 0;
}

static int takes(const struct vl_rule *rule, const char *name)
{
    if (rule)
        return listed(rule->args, name);
    for (const struct vl_rule *r = vl_rules(); r->name; r++)
        if (listed(r->args, name))
            return 1;
    return 0;
}

/* The members of all rules, comma-separated. */
static void all_members(struct vl_buf *out)
{
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        vl_buf_printf(out, "%s%s", i ? ", " : "", members[i].name);
}

static int set_method(struct vl_rule_args *a, const struct vl_json *j, int64_t v)
{
    static const char *const name[] = { "strict", "flexible", "number" };

    for (int i = 0; i < 3; i++)
        if (vl_json_streq(j, v, name[i])) {
            a->method = i;
            return 1;
        }
    return 0;
}

static int set_language(struct vl_rule_args *a, const struct vl_json *j, int64_t v)
{
    const char *name;

    for (int i = 0; (name = vl_code_language_name(i)); i++)
        if (vl_json_streq(j, v, name)) {
            a->code.language = (enum vl_code_language)i;
            return 1;
        }
    return 0;
}

static int set_letters(struct vl_rule_args *a, const struct vl_json *j, int64_t v)
{
    char *s = vl_json_strdup(j, v);
    int fine = s && *s;

    for (const char *p = s; fine && *p; p++)
        fine = *p >= 'A' && *p <= 'Z';
    free(a->choices);
    a->choices = s;
    return fine;
}

static int is_name(const char *s)
{
    return *s && strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") ==
                     strlen(s);
}

static int set_names(struct vl_rule_args *a, const struct vl_json *j, int64_t v)
{
    struct vl_buf b = { 0 };
    int64_t c = v + 1;
    int fine = vl_json_is(j, v, VL_JSON_ARRAY) && j->node[v].count > 0;

    for (uint32_t k = 0; fine && k < j->node[v].count; k++, c = j->node[c].next) {
        char *s = vl_json_strdup(j, c);

        fine = s && is_name(s);
        vl_buf_add(&b, fine ? s : "", fine ? strlen(s) + 1 : 0);
        free(s);
    }
    vl_buf_add(&b, "", 1);
    free(a->tags);
    a->tags = vl_buf_detach(&b);
    return fine;
}

static int set_pattern(struct vl_rule_args *a, const struct vl_json *j, int64_t v, struct vl_err *e)
{
    struct vl_buf b = { 0 };
    int fine = vl_json_str(j, v, &b);

    if (!fine && vl_json_is(j, v, VL_JSON_NUMBER)) { /* pattern=72 */
        vl_json_raw(j, v, &b);
        fine = 1;
    }
    vl_pattern_free(a->pattern);
    a->pattern = NULL;
    if (fine)
        (void)!vl_pattern_new(&a->pattern, b.n ? b.s : "", b.n, e);
    vl_buf_free(&b);
    return fine;
}

static int set_schema(struct vl_rule_args *a, const struct vl_json *j, int64_t v, struct vl_err *e)
{
    struct vl_buf raw = { 0 };
    char *path = vl_json_strdup(j, v);

    vl_schema_free(a->schema);
    a->schema = NULL;
    if (path) {
        (void)!vl_schema_read(&a->schema, path, e);
    } else {
        vl_json_raw(j, v, &raw);
        (void)!vl_schema_new(&a->schema, raw.s, raw.n, "schema", e);
    }
    free(path);
    vl_buf_free(&raw);
    return 1;
}

/* 0: the value is not of the member's kind. An error of its own is in *e. */
static int set(struct vl_rule_args *a, size_t m, const struct vl_json *j, int64_t v,
               struct vl_err *e)
{
    void *at = (char *)a + members[m].at;

    switch (members[m].kind) {
    case NUMBER:
        return vl_json_f64(j, v, at) && fabs(*(double *)at) <= 1e30;
    case COUNT:
        return vl_json_f64(j, v, at) && *(double *)at >= 0;
    case FLAG:
        return vl_json_bool(j, v, at);
    case METHOD:
        return set_method(a, j, v);
    case LANGUAGE:
        return set_language(a, j, v);
    case LETTERS:
        return set_letters(a, j, v);
    case NAMES:
        return set_names(a, j, v);
    case PATTERN:
        return set_pattern(a, j, v, e);
    default:
        return set_schema(a, j, v, e);
    }
}

int vl_rule_args_set(struct vl_rule_args *a, const struct vl_rule *rule, const struct vl_json *j,
                     int64_t c, const char *where, struct vl_err *e)
{
    struct vl_buf value = { 0 }, all = { 0 };
    char *name = vl_json_name(j, c);
    size_t m = 0, n = sizeof members / sizeof *members;

    while (m < n && strcmp(members[m].name, name))
        m++;
    vl_json_raw(j, c + 1, &value);
    if (m == n || !takes(rule, name)) {
        all_members(&all);
        vl_fail(e, VL_E_USAGE, "%s: scorer %s takes no '%.80s'; it takes %s", where,
                rule ? rule->name : "by rule", name,
                rule ? (*rule->args ? rule->args : "none") : all.s);
    } else if (!set(a, m, j, c + 1, e)) {
        vl_fail(e, VL_E_USAGE, "%s: %s is %.80s; give %s", where, name, value.s,
                kinds[members[m].kind]);
    }
    free(name);
    vl_buf_free(&value);
    vl_buf_free(&all);
    return e->code;
}

int vl_rule_args_parse(struct vl_rule_args *a, const struct vl_rule *rule, const char *json,
                       const char *where, struct vl_err *e)
{
    struct vl_json j = { 0 };
    int64_t c = 1;

    vl_rule_args_init(a);
    if (!json)
        return 0;
    if (vl_json_parse(&j, json, strlen(json), where, e)) {
        e->code = VL_E_USAGE;
    } else if (!vl_json_is(&j, 0, VL_JSON_OBJECT)) {
        vl_fail(e, VL_E_USAGE, "%s is %.80s; give a JSON object such as {\"score\": 1}", where,
                json);
    } else {
        for (uint32_t k = 0; k < j.node[0].count && !e->code; k++, c = j.node[c + 1].next)
            (void)!vl_rule_args_set(a, rule, &j, c, where, e);
    }
    vl_json_free(&j);
    return e->code;
}
