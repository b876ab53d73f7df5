/* rule_set.c - see rule_set.h. */
#include "libverl/reward/rule_set.h"

#include "libverl/reward/schema.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void use_free(struct vl_rule_use *u)
{
    free(u->name);
    free(u->json);
    vl_rule_args_free(&u->args);
}

void vl_rule_set_free(struct vl_rule_set *s)
{
    for (size_t k = 0; k < s->n; k++)
        use_free(&s->use[k]);
    for (size_t k = 0; k < s->nsources; k++) {
        use_free(&s->source[k].use);
        free(s->source[k].pattern);
    }
    free(s->use);
    free(s->source);
    *s = (struct vl_rule_set){ 0 };
}

/* ---- reading ---- */

static int unknown_rule(const char *where, const char *name, struct vl_err *e)
{
    struct vl_buf known = { 0 };

    for (const struct vl_rule *r = vl_rules(); r->name; r++)
        vl_buf_printf(&known, "%s%s", known.n ? ", " : "", r->name);
    vl_fail(e, VL_E_USAGE,
            "%s: there is no scorer '%.80s'; there are source (the rule for the "
            "row's data_source), %.400s",
            where, name, known.s);
    vl_buf_free(&known);
    return e->code;
}

/* A rule by name; `source` is NULL. */
static int name_rule(struct vl_rule_use *u, const char *name, const char *where, struct vl_err *e)
{
    u->rule = vl_rule_named(name);
    return u->rule || !strcmp(name, "source") ? 0 : unknown_rule(where, name, e);
}

/* What a rule cannot do without. */
static int check_use(const struct vl_rule_use *u, const char *where, struct vl_err *e)
{
    const char *name = u->rule ? u->rule->name : "";

    if (!strcmp(name, "regex") && !u->args.pattern)
        return vl_fail(e, VL_E_USAGE,
                       "%s: the scorer regex needs pattern, such as "
                       "regex,pattern=\"^<think>\"",
                       where);
    if (!strcmp(name, "length") && isnan(u->args.min) && isnan(u->args.max) &&
        isnan(u->args.target))
        return vl_fail(e, VL_E_USAGE,
                       "%s: the scorer length needs min, max or target, such as length,max=512",
                       where);
    if (u->args.min > u->args.max)
        return vl_fail(e, VL_E_USAGE, "%s: min %g is above max %g", where, u->args.min,
                       u->args.max);
    return 0;
}

/* Object i of j, a schema that is a file's name replaced by the schema. */
static char *object_text(const struct vl_json *j, int64_t i, const struct vl_rule_args *a)
{
    struct vl_buf b = { 0 };
    int64_t c = i + 1;

    vl_buf_ch(&b, '{');
    for (uint32_t k = 0; k < j->node[i].count; k++, c = j->node[c + 1].next) {
        if (k)
            vl_buf_ch(&b, ',');
        vl_json_raw(j, c, &b);
        vl_buf_ch(&b, ':');
        if (a->schema && vl_json_streq(j, c, "schema"))
            vl_schema_put(a->schema, &b);
        else
            vl_json_raw(j, c + 1, &b);
    }
    vl_buf_ch(&b, '}');
    return vl_buf_detach(&b);
}

/* {"name":..., "weight":..., "as":..., members}. dispatch: no weight, no as. */
static int read_use(struct vl_rule_use *u, const struct vl_json *j, int64_t i, int dispatch,
                    const char *where, struct vl_err *e)
{
    int64_t name = vl_json_get(j, i, "name"), c = i + 1;
    char *text = vl_json_strdup(j, name);

    u->weight = 1;
    vl_rule_args_init(&u->args);
    if (!text)
        return vl_fail(e, VL_E_USAGE, "%s: a scorer needs a name, such as {\"name\": \"gsm8k\"}",
                       where);
    (void)!name_rule(u, text, where, e);
    u->name = text;
    for (uint32_t k = 0; !e->code && k < j->node[i].count; k++, c = j->node[c + 1].next) {
        if (vl_json_streq(j, c, "name"))
            continue;
        if (!dispatch && vl_json_streq(j, c, "weight")) {
            if (!vl_json_f64(j, c + 1, &u->weight) || fabs(u->weight) > 1e6)
                return vl_fail(e, VL_E_USAGE, "%s: the weight of %s is no number from -1e6 to 1e6",
                               where, u->name);
        } else if (!dispatch && vl_json_streq(j, c, "as")) {
            char *as = vl_json_strdup(j, c + 1);

            if (!as || !*as) {
                free(as);
                return vl_fail(e, VL_E_USAGE, "%s: as of %s is no name", where, u->name);
            }
            free(u->name);
            u->name = as;
        } else {
            (void)!vl_rule_args_set(&u->args, u->rule, j, c, where, e);
        }
    }
    u->json = object_text(j, i, &u->args);
    return e->code ? e->code : check_use(u, where, e);
}

/* Takes the use over, whatever e says. */
static int append(struct vl_rule_set *s, struct vl_rule_use *u, const char *where, struct vl_err *e)
{
    for (size_t k = 0; k < s->n && !e->code && u->name; k++)
        if (!strcmp(s->use[k].name, u->name))
            vl_fail(e, VL_E_USAGE,
                    "%s: two scorers are called %s; name the column of one: %s,as=OTHER", where,
                    u->name, u->name);
    s->use = vl_realloc(s->use, (s->n + 1) * sizeof *s->use);
    s->use[s->n++] = *u;
    return e->code;
}

int vl_rule_set_one(struct vl_rule_set *s, const char *name, const char *args, struct vl_err *e)
{
    struct vl_rule_use u = { .weight = 1 };

    u.name = vl_strdup(name ? name : "source");
    if (name && (u.rule = vl_rule_named(name)) == NULL)
        unknown_rule("--scorer", name, e);
    vl_rule_args_init(&u.args);
    if (!e->code && !vl_rule_args_parse(&u.args, u.rule, args, "--args", e) &&
        !check_use(&u, "--scorer", e) && args) {
        struct vl_json j = { 0 };

        if (!vl_json_parse(&j, args, strlen(args), "--args", e))
            u.json = object_text(&j, 0, &u.args);
        vl_json_free(&j);
    }
    return append(s, &u, "--scorer", e);
}

/* Bytes of the value at p, up to a comma; all of a JSON text when one starts there. */
static size_t value_length(const char *p)
{
    int depth = 0, quoted = 0;
    size_t n = 0;

    if (!strchr("{[\"", *p))
        return strcspn(p, ",");
    for (; p[n]; n++) {
        if (quoted) {
            if (p[n] == '\\' && p[n + 1])
                n++;
            else
                quoted = p[n] != '"';
        } else if (p[n] == '"') {
            quoted = 1;
        } else {
            depth += strchr("{[", p[n]) != NULL;
            depth -= strchr("]}", p[n]) != NULL;
        }
        if (!depth && !quoted)
            return n + 1;
    }
    return n;
}

static int is_json(const char *s, size_t n)
{
    struct vl_json j = { 0 };
    struct vl_err ignored = { 0 };
    int is = !vl_json_parse(&j, s, n, "value", &ignored);

    vl_json_free(&j);
    return is;
}

/* NAME[:WEIGHT][,member=value]... as the JSON object of the same. */
static int spec_to_json(struct vl_buf *b, const char *spec, struct vl_err *e)
{
    size_t n = strcspn(spec, ":,"), k;
    const char *p = spec + n;

    vl_buf_str(b, "{\"name\":");
    vl_json_put_str(b, spec, n);
    if (*p == ':') {
        k = strcspn(++p, ",");
        vl_buf_str(b, ",\"weight\":");
        if (!is_json(p, k))
            return vl_fail(e, VL_E_USAGE, "--rule %.80s: the weight %.*s is no number", spec,
                           (int)k, p);
        vl_buf_add(b, p, k);
        p += k;
    }
    while (*p) {
        const char *name = ++p, *equals = strpbrk(p, "=,");

        if (!equals || *equals != '=' || equals == name)
            return vl_fail(e, VL_E_USAGE,
                           "--rule %.80s: '%.40s' is no member=value "
                           "(NAME[:WEIGHT][,member=value]...); a text "
                           "with commas is written as member=\"...\"",
                           spec, name);
        vl_buf_ch(b, ',');
        vl_json_put_str(b, name, (size_t)(equals - name));
        vl_buf_ch(b, ':');
        p = equals + 1;
        k = value_length(p);
        if (strchr("[{", *p) && !(is_json(p, k) && strchr(",", p[k])))
            k = strcspn(p, ","); /* text, such as the pattern [Tt]he */
        if (k && is_json(p, k))
            vl_buf_add(b, p, k);
        else
            vl_json_put_str(b, p, k);
        p += k;
        if (*p && *p != ',')
            return vl_fail(e, VL_E_USAGE,
                           "--rule %.80s: '%.40s' follows a value; put a comma there", spec, p);
    }
    vl_buf_ch(b, '}');
    return 0;
}

static int add_object(struct vl_rule_set *s, const struct vl_json *j, int64_t i, const char *where,
                      struct vl_err *e)
{
    struct vl_rule_use u = { 0 };

    s->columns = 1;
    vl_rule_args_init(&u.args);
    if (!vl_json_is(j, i, VL_JSON_OBJECT))
        return vl_fail(e, VL_E_USAGE,
                       "%s: a scorer is NAME[:WEIGHT][,member=value]... or an object with name",
                       where);
    (void)!read_use(&u, j, i, 0, where, e);
    return append(s, &u, where, e);
}

static int add_spec(struct vl_rule_set *s, const char *spec, const char *where, struct vl_err *e)
{
    struct vl_buf b = { 0 };
    struct vl_json j = { 0 };

    if (!spec_to_json(&b, spec, e) && !vl_json_parse(&j, b.s, b.n, where, e))
        (void)!add_object(s, &j, 0, where, e);
    vl_json_free(&j);
    vl_buf_free(&b);
    return e->code;
}

int vl_rule_set_add(struct vl_rule_set *s, const char *spec, struct vl_err *e)
{
    return add_spec(s, spec, "--rule", e);
}

int vl_rule_set_json(struct vl_rule_set *s, const char *json, struct vl_err *e)
{
    static const char where[] = "reward.scorers";
    struct vl_json j = { 0 };
    int64_t c = 1;

    if (vl_json_parse(&j, json, strlen(json), where, e) || !vl_json_is(&j, 0, VL_JSON_ARRAY) ||
        !j.node[0].count) {
        e->code = 0;
        vl_fail(e, VL_E_USAGE,
                "reward.scorers is %.80s; give a list such as [{name: math, weight: 1}, tags:0.2]",
                json);
    }
    for (uint32_t k = 0; !e->code && k < j.node[0].count; k++, c = j.node[c].next) {
        char *spec = vl_json_strdup(&j, c);

        if (spec)
            (void)!add_spec(s, spec, where, e);
        else
            (void)!add_object(s, &j, c, where, e);
        free(spec);
    }
    vl_json_free(&j);
    return e->code;
}

/* One row of reward.dispatch; the value is at node v. */
static int add_source(struct vl_rule_set *s, const struct vl_json *j, int64_t key, struct vl_err *e)
{
    static const char where[] = "reward.dispatch";
    struct vl_rule_source *d;
    char *name = vl_json_strdup(j, key + 1);

    s->source = vl_realloc(s->source, (s->nsources + 1) * sizeof *s->source);
    d = &s->source[s->nsources++];
    *d = (struct vl_rule_source){ .pattern = vl_json_name(j, key) };
    vl_rule_args_init(&d->use.args);
    if (name) {
        d->use.rule = vl_rule_named(name);
        if (!d->use.rule)
            d->use.rule = vl_rule_for_source(name, strlen(name));
        d->use.name = name;
        if (!d->use.rule)
            return unknown_rule(where, name, e);
        return check_use(&d->use, where, e);
    }
    if (!vl_json_is(j, key + 1, VL_JSON_OBJECT))
        return vl_fail(
            e, VL_E_USAGE,
            "%s: %.80s must name a scorer, a known data_source or be an object with name", where,
            d->pattern);
    if (!read_use(&d->use, j, key + 1, 1, where, e) && !d->use.rule)
        vl_fail(e, VL_E_USAGE, "%s: %.80s: source is no rule", where, d->pattern);
    return e->code;
}

int vl_rule_set_dispatch(struct vl_rule_set *s, const char *json, struct vl_err *e)
{
    struct vl_json j = { 0 };
    int64_t c = 1;

    if (vl_json_parse(&j, json, strlen(json), "reward.dispatch", e) ||
        !vl_json_is(&j, 0, VL_JSON_OBJECT)) {
        e->code = 0;
        vl_fail(
            e, VL_E_USAGE,
            "reward.dispatch is %.80s; give a map such as {my_source: gsm8k, \"my_math*\": math}",
            json);
    }
    for (uint32_t k = 0; !e->code && k < j.node[0].count; k++, c = j.node[c + 1].next)
        (void)!add_source(s, &j, c, e);
    vl_json_free(&j);
    return e->code;
}

char *vl_rule_set_uses(const struct vl_rule_set *s)
{
    struct vl_buf b = { 0 };

    for (size_t k = 0; k < s->n; k++)
        if (s->use[k].json)
            vl_buf_printf(&b, "%c%s", b.n ? ',' : '[', s->use[k].json);
    if (b.n)
        vl_buf_ch(&b, ']');
    return b.n ? vl_buf_detach(&b) : NULL;
}

char *vl_rule_set_map(const struct vl_rule_set *s)
{
    struct vl_buf b = { 0 };

    for (size_t k = 0; k < s->nsources; k++) {
        const struct vl_rule_source *d = &s->source[k];

        vl_buf_ch(&b, k ? ',' : '{');
        vl_json_put_str(&b, d->pattern, strlen(d->pattern));
        vl_buf_ch(&b, ':');
        if (d->use.json)
            vl_buf_str(&b, d->use.json);
        else
            vl_json_put_str(&b, d->use.rule->name, strlen(d->use.rule->name));
    }
    if (b.n)
        vl_buf_ch(&b, '}');
    return b.n ? vl_buf_detach(&b) : NULL;
}

/* ---- finding ---- */

const struct vl_rule_use *vl_rule_set_find(const struct vl_rule_set *s,
                                           const struct vl_rule_use *otherwise,
                                           const char *data_source, size_t n,
                                           const struct vl_rule **rule)
{
    for (size_t k = 0; k < s->nsources; k++) {
        const struct vl_rule_source *d = &s->source[k];

        if ((strlen(d->pattern) == n && !memcmp(d->pattern, data_source, n)) ||
            (strpbrk(d->pattern, "*?[") && strlen(data_source) == n &&
             !fnmatch(d->pattern, data_source, 0))) {
            *rule = d->use.rule;
            return &d->use;
        }
    }
    *rule = vl_rule_for_source(data_source, n);
    return *rule ? otherwise : NULL;
}

int vl_rule_set_covers(const struct vl_rule_set *s, const char *data_source, size_t n, int *truth)
{
    *truth = 0;
    for (size_t k = 0; k < s->n; k++) {
        const struct vl_rule *rule = s->use[k].rule;

        if (!rule && !vl_rule_set_find(s, &s->use[k], data_source, n, &rule))
            return 0;
        *truth |= !rule->no_truth;
    }
    return 1;
}

const struct vl_rule_args *vl_rule_set_code(const struct vl_rule_set *s, const char *data_source,
                                            size_t n)
{
    for (size_t k = 0; k < s->n; k++) {
        const struct vl_rule_use *by = &s->use[k];
        const struct vl_rule *rule = by->rule;

        if (!rule)
            by = vl_rule_set_find(s, by, data_source, n, &rule);
        if (by && rule->score == vl_score_code)
            return &by->args;
    }
    return NULL;
}

int vl_rule_set_may_code(const struct vl_rule_set *s)
{
    for (size_t k = 0; k < s->n; k++)
        if (!s->use[k].rule || s->use[k].rule->score == vl_score_code)
            return 1;
    return 0;
}

int vl_rule_set_names(const struct vl_rule_set *s, const struct vl_rule *rule,
                      const char *data_source, size_t n)
{
    for (size_t k = 0; k < s->nsources && !data_source; k++)
        if (s->source[k].use.rule == rule)
            return 1;
    for (size_t k = 0; k < s->n; k++) {
        const struct vl_rule *by = s->use[k].rule;

        if (!by && data_source)
            vl_rule_set_find(s, &s->use[k], data_source, n, &by);
        if (by == rule)
            return 1;
    }
    return 0;
}

void vl_rule_set_sources(const struct vl_rule_set *s, struct vl_buf *out)
{
    for (size_t k = 0; k < s->nsources; k++)
        vl_buf_printf(out, "%s, ", s->source[k].pattern);
    vl_rule_sources(out);
}

/* ---- scoring ---- */

static void score_use(const struct vl_rule_set *s, const struct vl_rule_use *u,
                      const struct vl_rule_in *in, const char *data_source, size_t n,
                      struct vl_score *out)
{
    struct vl_rule_in one = *in;
    const struct vl_rule *rule = u->rule;
    const struct vl_rule_use *by = u;

    if (!rule)
        by = vl_rule_set_find(s, u, data_source, n, &rule);
    one.args = &by->args;
    rule->score(&one, out);
}

/* The members of one scorer's extra under NAME_MEMBER, unless they are called so. */
static void add_members(struct vl_buf *b, const char *name, const char *extra)
{
    struct vl_json j = { 0 };
    struct vl_err ignored = { 0 };
    int64_t c = 1;

    if (!extra || vl_json_parse(&j, extra, strlen(extra), "members", &ignored))
        return;
    for (uint32_t k = 0; k < j.node[0].count; k++, c = j.node[c + 1].next) {
        struct vl_buf key = { 0 };

        vl_json_str(&j, c, &key);
        if (strncmp(key.s ? key.s : "", name, strlen(name)) || key.s[strlen(name)] != '_') {
            vl_buf_reset(&key);
            vl_buf_printf(&key, "%s_", name);
            vl_json_str(&j, c, &key);
        }
        vl_buf_ch(b, ',');
        vl_json_put_str(b, key.s, key.n);
        vl_buf_ch(b, ':');
        vl_json_raw(&j, c + 1, b);
        vl_buf_free(&key);
    }
    vl_json_free(&j);
}

void vl_rule_set_score(const struct vl_rule_set *s, const struct vl_rule_in *in,
                       const char *data_source, size_t n, struct vl_score *out)
{
    struct vl_buf columns = { 0 };
    struct vl_score sum = { 0 };

    if (!s->columns) {
        score_use(s, &s->use[0], in, data_source, n, out);
        return;
    }
    for (size_t k = 0; k < s->n; k++) {
        const struct vl_rule_use *u = &s->use[k];
        struct vl_score one = { 0 };
        char key[200];

        score_use(s, u, in, data_source, n, &one);
        if (one.why) {
            vl_score_fail(out, "%s: %s", u->name, one.why);
            vl_score_free(&one);
            vl_buf_free(&columns);
            return;
        }
        sum.score += u->weight * one.score;
        if (!k)
            sum.acc = one.acc;
        if (k)
            vl_buf_ch(&columns, ',');
        snprintf(key, sizeof key, "score_%s", u->name);
        vl_json_put_str(&columns, key, strlen(key));
        vl_buf_ch(&columns, ':');
        vl_json_put_f64(&columns, one.score);
        if (s->n > 1)
            add_members(&columns, u->name, one.extra);
        else if (one.extra)
            vl_buf_printf(&columns, ",%.*s", (int)strlen(one.extra) - 2, one.extra + 1);
        vl_score_free(&one);
    }
    vl_score_set(out, sum.score);
    out->acc = sum.acc;
    vl_score_add(out, columns.s);
    vl_buf_free(&columns);
}
