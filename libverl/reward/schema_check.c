/* schema_check.c - whether a value obeys a schema. See schema.h. */
#include "libverl/reward/schema_impl.h"

#include "libverl/batch/ops.h"
#include "libverl/text/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A schema of a few keywords never comes near; anyOf inside anyOf inside anyOf could. */
enum { STEPS_MAX = 5000000, DEPTH_MAX = 600 };

struct check {
    const struct vl_schema *s;
    const struct vl_json *j;
    struct vl_buf *why; /* of the first fault; NULL inside anyOf and the like */
    int64_t steps;
    int depth;
    const char *gone; /* which limit was passed; NULL: none */
};

static int valid(struct check *c, int64_t schema, int64_t i);

VL_PRINTF(2, 3) static int fault(struct check *c, const char *fmt, ...)
{
    char line[300];
    va_list ap;

    if (!c->why || c->why->n)
        return 0;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    vl_buf_str(c->why, line);
    return 0;
}

static int over(struct check *c, const char *what)
{
    if (!c->gone)
        c->gone = what;
    return 0;
}

static int step(struct check *c)
{
    return ++c->steps <= STEPS_MAX || over(c, "the schema takes too many steps on this response");
}

static const char *type_of(const struct vl_json *j, int64_t i)
{
    static const char *const name[] = { "null",   "boolean", "boolean", "number",
                                        "string", "array",   "object" };

    return name[j->node[i].type];
}

static int whole_number(const struct vl_json *j, int64_t i)
{
    double x;

    return vl_json_f64(j, i, &x) && x == floor(x);
}

static int has_type(const struct vl_json *sj, int64_t t, const struct vl_json *j, int64_t i)
{
    return vl_json_streq(sj, t, type_of(j, i)) ||
           (vl_json_streq(sj, t, "integer") && whole_number(j, i));
}

static int check_type(struct check *c, int64_t v, int64_t i)
{
    const struct vl_json *sj = &c->s->j;
    int64_t t = v + 1;
    struct vl_buf want = { 0 };

    if (!vl_json_is(sj, v, VL_JSON_ARRAY)) {
        if (has_type(sj, v, c->j, i))
            return 1;
    } else {
        for (uint32_t k = 0; k < sj->node[v].count; k++, t = sj->node[t].next)
            if (has_type(sj, t, c->j, i))
                return 1;
    }
    vl_json_raw(sj, v, &want);
    fault(c, "a %s where the type is to be %.80s", type_of(c->j, i), want.s);
    vl_buf_free(&want);
    return 0;
}

static int same(struct check *c, const struct vl_json *a, int64_t x, const struct vl_json *b,
                int64_t y)
{
    struct vl_buf p = { 0 }, q = { 0 };
    int equal;

    c->steps += b->node[y].next - y;
    vl_json_raw(a, x, &p);
    vl_json_raw(b, y, &q);
    equal = (a->node[x].type == b->node[y].type) && vl_json_equal(p.s, p.n, q.s, q.n, 0);
    vl_buf_free(&p);
    vl_buf_free(&q);
    return equal;
}

static int check_enum(struct check *c, int64_t v, int64_t i)
{
    const struct vl_json *sj = &c->s->j;
    int64_t x = v + 1;

    for (uint32_t k = 0; k < sj->node[v].count; k++, x = sj->node[x].next)
        if (same(c, sj, x, c->j, i))
            return 1;
    return fault(c, "a value that is none of enum");
}

/* ---- objects ---- */

static int check_properties(struct check *c, int64_t v, int64_t i)
{
    const struct vl_json *sj = &c->s->j;
    int64_t k = v + 1;

    for (uint32_t n = 0; n < sj->node[v].count; n++, k = sj->node[k + 1].next) {
        int64_t m = vl_json_get_as(c->j, i, sj, k);

        c->steps += c->j->node[i].count;
        if (m >= 0 && !valid(c, k + 1, m))
            return 0;
    }
    return 1;
}

static int check_required(struct check *c, int64_t v, int64_t i)
{
    const struct vl_json *sj = &c->s->j;
    int64_t k = v + 1;

    for (uint32_t n = 0; n < sj->node[v].count; n++, k = sj->node[k].next) {
        c->steps += c->j->node[i].count;
        if (vl_json_get_as(c->j, i, sj, k) < 0) {
            char *name = vl_json_name(sj, k);

            fault(c, "the member '%.80s' is missing", name);
            free(name);
            return 0;
        }
    }
    return 1;
}

static int check_additional(struct check *c, int64_t schema, int64_t v, int64_t i)
{
    const struct vl_json *sj = &c->s->j;
    int64_t properties = vl_json_get(sj, schema, "properties"), k = i + 1;

    for (uint32_t n = 0; n < c->j->node[i].count; n++, k = c->j->node[k + 1].next) {
        c->steps += properties < 0 ? 0 : sj->node[properties].count;
        if (properties >= 0 && vl_json_get_as(sj, properties, c->j, k) >= 0)
            continue;
        if (vl_json_is(sj, v, VL_JSON_FALSE)) {
            char *name = vl_json_name(c->j, k);

            fault(c, "the member '%.80s', which additionalProperties does not allow", name);
            free(name);
            return 0;
        }
        if (!valid(c, v, k + 1))
            return 0;
    }
    return 1;
}

/* ---- arrays ---- */

/* prefixItems for the first ones, items for the rest. */
static int check_items(struct check *c, int64_t schema, int64_t i)
{
    const struct vl_json *sj = &c->s->j;
    int64_t prefix = vl_json_get(sj, schema, "prefixItems");
    int64_t items = vl_json_get(sj, schema, "items"), p = prefix + 1, x = i + 1;
    uint32_t first = prefix < 0 ? 0 : sj->node[prefix].count;

    for (uint32_t k = 0; k < c->j->node[i].count; k++, x = c->j->node[x].next) {
        if (k < first) {
            if (!valid(c, p, x))
                return 0;
            p = sj->node[p].next;
        } else if (items < 0) {
            break;
        } else if (!valid(c, items, x)) {
            return 0;
        }
    }
    return 1;
}

static int check_unique(struct check *c, int64_t i)
{
    int64_t x = i + 1, y;

    for (uint32_t k = 0; k < c->j->node[i].count; k++, x = c->j->node[x].next) {
        y = c->j->node[x].next;
        for (uint32_t l = k + 1; l < c->j->node[i].count; l++, y = c->j->node[y].next) {
            if (!step(c))
                return 0;
            if (same(c, c->j, x, c->j, y))
                return fault(c, "two equal elements where uniqueItems is true");
        }
    }
    return 1;
}

/* ---- numbers and texts ---- */

static int check_number(struct check *c, const char *name, int64_t v, int64_t i)
{
    double limit = 0, x = 0;
    int fine;

    if (!vl_json_f64(&c->s->j, v, &limit) || !vl_json_f64(c->j, i, &x))
        return fault(c, "a number beyond what a double holds");
    if (!strcmp(name, "minimum"))
        fine = x >= limit;
    else if (!strcmp(name, "maximum"))
        fine = x <= limit;
    else if (!strcmp(name, "exclusiveMinimum"))
        fine = x > limit;
    else if (!strcmp(name, "exclusiveMaximum"))
        fine = x < limit;
    else
        fine =
            limit > 0 && fabs(x / limit - nearbyint(x / limit)) <= 1e-9 * fmax(1, fabs(x / limit));
    return fine || fault(c, "%.17g, which %s %.17g does not allow", x, name, limit);
}

static int check_size(struct check *c, const char *name, int64_t v, int64_t size)
{
    int64_t limit = 0;

    vl_json_i64(&c->s->j, v, &limit);
    return (name[1] == 'i' ? size >= limit : size <= limit) ||
           fault(c, "a size of %lld, which %s %lld does not allow", (long long)size, name,
                 (long long)limit);
}

static int check_text(struct check *c, const char *name, int64_t v, int64_t i)
{
    struct vl_buf b = { 0 };
    const char *why = NULL;
    size_t k = 0;
    int fine = 0;

    vl_json_str(c->j, i, &b);
    c->steps += (int64_t)(b.n / 16);
    if (strcmp(name, "pattern")) {
        fine = check_size(c, name, v, (int64_t)vl_utf8_count(b.s ? b.s : "", b.n));
    } else {
        while (k < c->s->nregex && c->s->regex[k].node != v)
            k++;
        fine = k < c->s->nregex ? vl_pattern_match(c->s->regex[k].p, b.n ? b.s : "", b.n, &why) : 0;
        if (fine < 0)
            fine = over(c, why);
        else if (!fine)
            fault(c, "a text that its pattern does not match");
    }
    vl_buf_free(&b);
    return fine;
}

/* ---- combinations ---- */

/* How many of the schemas hold, at most two are counted. */
static int count_valid(struct check *c, int64_t v, int64_t i)
{
    const struct vl_json *sj = &c->s->j;
    struct vl_buf *why = c->why;
    int64_t x = v + 1;
    int n = 0;

    c->why = NULL;
    for (uint32_t k = 0; k < sj->node[v].count && n < 2 && !c->gone; k++, x = sj->node[x].next)
        n += valid(c, x, i);
    c->why = why;
    return n;
}

static int check_not(struct check *c, int64_t v, int64_t i)
{
    struct vl_buf *why = c->why;
    int is;

    c->why = NULL;
    is = valid(c, v, i);
    c->why = why;
    return !is || fault(c, "what \"not\" excludes");
}

static int check_all(struct check *c, int64_t v, int64_t i)
{
    const struct vl_json *sj = &c->s->j;
    int64_t x = v + 1;

    for (uint32_t k = 0; k < sj->node[v].count; k++, x = sj->node[x].next)
        if (!valid(c, x, i))
            return 0;
    return 1;
}

/* One keyword on one value; a keyword for other types holds. */
static int check_keyword(struct check *c, int64_t schema, const char *name, int64_t v, int64_t i)
{
    const struct vl_json *sj = &c->s->j;
    int type = c->j->node[i].type, flag;

#define IS(word) (!strcmp(name, word))
    if (IS("type"))
        return check_type(c, v, i);
    if (IS("enum"))
        return check_enum(c, v, i);
    if (IS("const"))
        return same(c, sj, v, c->j, i) || fault(c, "a value that is not the const one");
    if (IS("$ref"))
        return valid(c, vl_schema_target(c->s, v), i);
    if (IS("allOf"))
        return check_all(c, v, i);
    if (IS("anyOf"))
        return count_valid(c, v, i) > 0 || fault(c, "a value that none of anyOf allows");
    if (IS("oneOf"))
        return count_valid(c, v, i) == 1 ||
               fault(c, "a value that not exactly one of oneOf allows");
    if (IS("not"))
        return check_not(c, v, i);
    if (type == VL_JSON_OBJECT) {
        if (IS("properties"))
            return check_properties(c, v, i);
        if (IS("required"))
            return check_required(c, v, i);
        if (IS("additionalProperties"))
            return check_additional(c, schema, v, i);
        if (IS("minProperties") || IS("maxProperties"))
            return check_size(c, name, v, c->j->node[i].count);
    } else if (type == VL_JSON_ARRAY) {
        if (IS("items") || IS("prefixItems")) /* the two together, once */
            return (IS("items") && vl_json_get(sj, schema, "prefixItems") >= 0) ||
                   check_items(c, schema, i);
        if (IS("minItems") || IS("maxItems"))
            return check_size(c, name, v, c->j->node[i].count);
        if (IS("uniqueItems"))
            return !(vl_json_bool(sj, v, &flag) && flag) || check_unique(c, i);
    } else if (type == VL_JSON_NUMBER) {
        if (IS("minimum") || IS("maximum") || IS("exclusiveMinimum") || IS("exclusiveMaximum") ||
            IS("multipleOf"))
            return check_number(c, name, v, i);
    } else if (type == VL_JSON_STRING) {
        if (IS("minLength") || IS("maxLength") || IS("pattern"))
            return check_text(c, name, v, i);
    }
#undef IS
    return 1;
}

static int valid(struct check *c, int64_t schema, int64_t i)
{
    const struct vl_json *sj = &c->s->j;
    int64_t k = schema + 1;
    int fine = 1, flag;

    if (!step(c))
        return 0;
    if (++c->depth > DEPTH_MAX)
        return over(c, "the schema refers to itself too often on this response");
    if (vl_json_bool(sj, schema, &flag)) {
        fine = flag || fault(c, "a value where the schema is false");
    } else {
        for (uint32_t n = 0; fine && !c->gone && n < sj->node[schema].count;
             n++, k = sj->node[k + 1].next) {
            char name[32] = "";
            size_t len = sj->node[k].len < sizeof name - 1 ? sj->node[k].len : sizeof name - 1;

            memcpy(name, sj->text + sj->node[k].at, len); /* a known keyword has no escapes */
            fine = check_keyword(c, schema, name, k + 1, i);
        }
    }
    c->depth--;
    return fine && !c->gone;
}

int vl_schema_check(const struct vl_schema *s, const struct vl_json *j, int64_t i,
                    struct vl_buf *why)
{
    struct check c = { .s = s, .j = j, .why = why };
    int fine = valid(&c, 0, i);

    if (c.gone) {
        vl_buf_reset(why);
        vl_buf_str(why, c.gone);
        return -1;
    }
    return fine;
}
