/* jinja_value.c - Python's values for templates: memory, lists, ordered maps, equality, order. */
#include "libverl/text/jinja_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "formats/json.h"
#include "libverl/text/unicode.h"

/* ---- memory and limits ---- */

struct vl_jchunk {
    struct vl_jchunk *next;
    size_t used, cap;
    _Alignas(16) char data[];
};

void *vl_jregion_take(struct vl_jregion *r, size_t n)
{
    struct vl_jchunk *c = r->chunk;
    void *p;

    n = (n + 15) & ~(size_t)15;
    if (!c || c->cap - c->used < n) {
        size_t cap = n > 65536 - sizeof *c ? n : 65536 - sizeof *c;

        c = vl_alloc(sizeof *c + cap);
        c->cap = cap;
        c->next = r->chunk;
        r->chunk = c;
    }
    p = c->data + c->used;
    c->used += n;
    r->used += n;
    return p;
}

void vl_jregion_free(struct vl_jregion *r)
{
    while (r->chunk) {
        struct vl_jchunk *c = r->chunk;

        r->chunk = c->next;
        free(c);
    }
    r->used = 0;
}

struct vl_jv vl_jfail(struct vl_jin *in, const char *fmt, ...)
{
    char what[800];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    vl_fail(in->e, VL_E_DATA, "%s: line %d: %s", in->t->name, in->line, what);
    return vl_jv_undef();
}

void *vl_jalloc(struct vl_jin *in, size_t n)
{
    if (in->mem->used > VL_J_MAX_MEMORY)
        vl_jfail(in, "the template uses more than %zu MB", VL_J_MAX_MEMORY >> 20);
    return vl_jregion_take(in->mem, n ? n : 1);
}

int vl_jstep(struct vl_jin *in)
{
    if (++in->steps > VL_J_MAX_STEPS)
        vl_jfail(in, "the template takes more than %d steps", VL_J_MAX_STEPS);
    return in->e->code;
}

int vl_jenter(struct vl_jin *in)
{
    if (++in->depth > VL_J_MAX_DEPTH)
        vl_jfail(in, "evaluation is nested deeper than %d", VL_J_MAX_DEPTH);
    return vl_jstep(in);
}

int vl_jventer(struct vl_jin *in)
{
    if (++in->vdepth > VL_J_MAX_DEPTH)
        vl_jfail(in, "a value is nested deeper than %d", VL_J_MAX_DEPTH);
    return vl_jstep(in);
}

int vl_jbuf_check(struct vl_jin *in, const struct vl_buf *b)
{
    if (b->n > VL_J_MAX_OUTPUT)
        vl_jfail(in, "a text grows beyond %zu MB", VL_J_MAX_OUTPUT >> 20);
    return vl_jstep(in);
}

/* ---- making values ---- */

struct vl_jv vl_jv_undef(void)
{
    return (struct vl_jv){ .type = VL_J_UNDEF };
}

struct vl_jv vl_jv_none(void)
{
    return (struct vl_jv){ .type = VL_J_NONE };
}

struct vl_jv vl_jv_bool(int b)
{
    return (struct vl_jv){ .type = VL_J_BOOL, .u.i = b != 0 };
}

struct vl_jv vl_jv_digits(const char *s, size_t n)
{
    int64_t v = 0;

    for (; n > 1 && *s == '0'; n--)
        s++;
    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, s[i] - '0', &v))
            return (struct vl_jv){ .type = VL_J_BIG, .n = n, .u.s = s };
    return vl_jv_int(v);
}

struct vl_jv vl_jv_wide(struct vl_jin *in, __int128 i)
{
    unsigned __int128 u = i < 0 ? -(unsigned __int128)i : (unsigned __int128)i;
    char text[48], *p = text + sizeof text;
    struct vl_jv v;

    if (i >= INT64_MIN && i <= INT64_MAX)
        return vl_jv_int((int64_t)i);
    for (; u; u /= 10)
        *--p = (char)('0' + (int)(u % 10));
    if (i < 0)
        *--p = '-';
    v = vl_jv_str(in, p, (size_t)(text + sizeof text - p));
    v.type = VL_J_BIG;
    return v;
}

struct vl_jv vl_jv_int(int64_t i)
{
    return (struct vl_jv){ .type = VL_J_INT, .u.i = i };
}

struct vl_jv vl_jv_float(double f)
{
    return (struct vl_jv){ .type = VL_J_FLOAT, .u.f = f };
}

struct vl_jv vl_jv_ref(const char *s, size_t n)
{
    return (struct vl_jv){ .type = VL_J_STR, .n = n, .u.s = s };
}

struct vl_jv vl_jv_str(struct vl_jin *in, const char *s, size_t n)
{
    char *p = vl_jalloc(in, n + 1);

    if (n)
        memcpy(p, s, n);
    return vl_jv_ref(p, n);
}

struct vl_jv vl_jv_buf(struct vl_jin *in, struct vl_buf *b)
{
    struct vl_jv v = vl_jv_str(in, b->s, b->n);

    vl_buf_free(b);
    return v;
}

struct vl_jv vl_jv_list(struct vl_jin *in, enum vl_jlist_kind kind, size_t cap)
{
    struct vl_jlist *l = vl_jalloc(in, sizeof *l);

    l->kind = kind;
    l->cap = cap ? cap : 4;
    l->v = vl_jalloc(in, l->cap * sizeof *l->v);
    return (struct vl_jv){ .type = VL_J_LIST, .u.list = l };
}

void vl_jlist_add(struct vl_jin *in, struct vl_jlist *l, struct vl_jv v)
{
    if (l->n == l->cap) {
        struct vl_jv *more = vl_jalloc(in, 2 * l->cap * sizeof *more);

        memcpy(more, l->v, l->n * sizeof *more);
        l->v = more;
        l->cap *= 2;
    }
    l->v[l->n++] = v;
}

struct vl_jv vl_jv_map(struct vl_jin *in, enum vl_jtype type)
{
    return (struct vl_jv){ .type = (uint8_t)type, .u.map = vl_jalloc(in, sizeof(struct vl_jmap)) };
}

/* ---- maps ---- */

static uint64_t hash(struct vl_jv v)
{
    double f;

    if (v.type == VL_J_STR || v.type == VL_J_BIG)
        return XXH3_64bits(v.u.s, v.n);
    if (vl_jv_number(v, &f)) { /* 1, 1.0 and True are one key; -0.0 is 0.0 */
        f = f == 0 ? 0 : f;
        return XXH3_64bits(&f, sizeof f);
    }
    return v.type;
}

static int same_key(struct vl_jv a, struct vl_jv b)
{
    double x, y;

    if (a.type == VL_J_STR || a.type == VL_J_BIG)
        return b.type == a.type && a.n == b.n && memcmp(a.u.s, b.u.s, a.n) == 0;
    if ((a.type == VL_J_INT || a.type == VL_J_BOOL) && (b.type == VL_J_INT || b.type == VL_J_BOOL))
        return a.u.i == b.u.i;
    if (vl_jv_number(a, &x) && vl_jv_number(b, &y))
        return x == y;
    return a.type == VL_J_NONE && b.type == VL_J_NONE;
}

/* Position of the key, or m->n. */
static size_t find(const struct vl_jmap *m, struct vl_jv key)
{
    if (!m->index) {
        for (size_t i = 0; i < m->n; i++)
            if (same_key(m->key[i], key))
                return i;
        return m->n;
    }
    for (size_t h = hash(key) & (m->nindex - 1);; h = (h + 1) & (m->nindex - 1)) {
        if (!m->index[h])
            return m->n;
        if (same_key(m->key[m->index[h] - 1], key))
            return m->index[h] - 1;
    }
}

static void index_put(struct vl_jmap *m, size_t at)
{
    size_t h = hash(m->key[at]) & (m->nindex - 1);

    while (m->index[h])
        h = (h + 1) & (m->nindex - 1);
    m->index[h] = (uint32_t)at + 1;
}

static void grow(struct vl_jin *in, struct vl_jmap *m)
{
    struct vl_jv *key, *val;

    m->cap = m->cap ? 2 * m->cap : 8;
    key = vl_jalloc(in, m->cap * sizeof *key);
    val = vl_jalloc(in, m->cap * sizeof *val);
    if (m->n) {
        memcpy(key, m->key, m->n * sizeof *key);
        memcpy(val, m->val, m->n * sizeof *val);
    }
    m->key = key, m->val = val;
    if (m->cap > 8) {
        m->nindex = 2 * m->cap;
        m->index = vl_jalloc(in, m->nindex * sizeof *m->index);
        for (size_t i = 0; i < m->n; i++)
            index_put(m, i);
    }
}

void vl_jmap_set(struct vl_jin *in, struct vl_jmap *m, struct vl_jv key, struct vl_jv val)
{
    size_t at;

    if (key.type == VL_J_LIST || key.type == VL_J_MAP || key.type > VL_J_MAP ||
        key.type == VL_J_UNDEF) {
        vl_jfail(in, "a %s as the key of a dictionary is not supported", vl_jv_type_name(key));
        return;
    }
    at = find(m, key);
    if (at < m->n) {
        m->val[at] = val;
        return;
    }
    if (m->n == m->cap)
        grow(in, m);
    m->key[m->n] = key;
    m->val[m->n] = val;
    m->n++;
    if (m->index)
        index_put(m, m->n - 1);
}

int vl_jmap_get(const struct vl_jmap *m, struct vl_jv key, struct vl_jv *out)
{
    size_t at = find(m, key);

    if (at == m->n)
        return 0;
    *out = m->val[at];
    return 1;
}

int vl_jmap_get_name(const struct vl_jmap *m, const char *key, struct vl_jv *out)
{
    return vl_jmap_get(m, vl_jv_ref(key, strlen(key)), out);
}

/* ---- from JSON ---- */

static struct vl_jv json_number(struct vl_jin *in, const struct vl_json *j, uint32_t i)
{
    const struct vl_json_node *d = &j->node[i];
    const char *s = j->text + d->at;
    int64_t v;
    double f;

    if (vl_json_i64(j, i, &v))
        return vl_jv_int(v);
    for (size_t k = 0; k < d->len; k++)
        if (s[k] == '.' || s[k] == 'e' || s[k] == 'E')
            return vl_json_f64(j, i, &f) ? vl_jv_float(f)
                                         : vl_jfail(in, "number %.*s", (int)d->len, s);
    return (struct vl_jv){ .type = VL_J_BIG, .n = d->len, .u.s = vl_jv_str(in, s, d->len).u.s };
}

static struct vl_jv json_string(struct vl_jin *in, const struct vl_json *j, uint32_t i)
{
    struct vl_buf b = { 0 };

    vl_json_str(j, i, &b);
    return vl_jv_buf(in, &b);
}

static struct vl_jv json_value(struct vl_jin *in, const struct vl_json *j, uint32_t i)
{
    const struct vl_json_node *d = &j->node[i];
    struct vl_jv v;
    uint32_t k, c = i + 1;

    switch ((enum vl_json_type)d->type) {
    case VL_JSON_NULL:
        return vl_jv_none();
    case VL_JSON_FALSE:
    case VL_JSON_TRUE:
        return vl_jv_bool(d->type == VL_JSON_TRUE);
    case VL_JSON_NUMBER:
        return json_number(in, j, i);
    case VL_JSON_STRING:
        return json_string(in, j, i);
    case VL_JSON_ARRAY:
        v = vl_jv_list(in, VL_J_PLAIN, d->count);
        for (k = 0; k < d->count; k++, c = j->node[c].next)
            vl_jlist_add(in, v.u.list, json_value(in, j, c));
        return v;
    case VL_JSON_OBJECT:
        v = vl_jv_map(in, VL_J_MAP);
        for (k = 0; k < d->count; k++, c = j->node[c + 1].next)
            vl_jmap_set(in, v.u.map, json_string(in, j, c), json_value(in, j, c + 1));
        return v;
    }
    return vl_jv_undef();
}

struct vl_jv vl_jv_json(struct vl_jin *in, const char *json, size_t n, const char *name)
{
    struct vl_json j = { 0 };
    struct vl_jv v = vl_jv_undef();

    if (vl_json_parse(&j, json, n, name, in->e) == 0)
        v = json_value(in, &j, 0);
    vl_json_free(&j);
    return v;
}

/* ---- questions ---- */

int vl_jv_number(struct vl_jv v, double *out)
{
    if (v.type == VL_J_INT || v.type == VL_J_BOOL)
        *out = (double)v.u.i;
    else if (v.type == VL_J_FLOAT)
        *out = v.u.f;
    else
        return 0;
    return 1;
}

int vl_jv_true(struct vl_jv v)
{
    switch ((enum vl_jtype)v.type) {
    case VL_J_UNDEF:
    case VL_J_NONE:
        return 0;
    case VL_J_BOOL:
    case VL_J_INT:
        return v.u.i != 0;
    case VL_J_FLOAT:
        return v.u.f != 0;
    case VL_J_STR:
        return v.n != 0;
    case VL_J_LIST:
        return v.u.list->kind == VL_J_GENERATOR || v.u.list->n != 0;
    case VL_J_MAP:
        return v.u.map->n != 0;
    default:
        return 1;
    }
}

int vl_jv_is_str(struct vl_jv v, const char *s)
{
    return v.type == VL_J_STR && v.n == strlen(s) && memcmp(v.u.s, s, v.n) == 0;
}

const char *vl_jv_type_name(struct vl_jv v)
{
    static const char *const list[] = { "list",        "tuple",      "range",    "dict_keys",
                                        "dict_values", "dict_items", "generator" };

    switch ((enum vl_jtype)v.type) {
    case VL_J_UNDEF:
        return "Undefined";
    case VL_J_NONE:
        return "NoneType";
    case VL_J_BOOL:
        return "bool";
    case VL_J_INT:
    case VL_J_BIG:
        return "int";
    case VL_J_FLOAT:
        return "float";
    case VL_J_STR:
        return "str";
    case VL_J_LIST:
        return list[v.u.list->kind];
    case VL_J_MAP:
        return "dict";
    case VL_J_NAMESPACE:
        return "Namespace";
    case VL_J_MACRO:
        return "Macro";
    case VL_J_FUNC:
        return "function";
    case VL_J_METHOD:
        return "method";
    case VL_J_LOOP:
        return "LoopContext";
    }
    return "?";
}

static int equal_maps(struct vl_jin *in, const struct vl_jmap *a, const struct vl_jmap *b)
{
    struct vl_jv v;

    if (a->n != b->n)
        return 0;
    for (size_t i = 0; i < a->n; i++)
        if (!vl_jmap_get(b, a->key[i], &v) || !vl_jv_equal(in, a->val[i], v))
            return 0;
    return 1;
}

static int equal_lists(struct vl_jin *in, const struct vl_jlist *a, const struct vl_jlist *b)
{
    if (a == b)
        return 1;
    if (a->kind != b->kind || a->kind >= VL_J_KEYS || a->n != b->n)
        return 0;
    for (size_t i = 0; i < a->n; i++)
        if (!vl_jv_equal(in, a->v[i], b->v[i]))
            return 0;
    return 1;
}

int vl_jv_equal(struct vl_jin *in, struct vl_jv a, struct vl_jv b)
{
    double x, y;
    int same = 0;

    if (vl_jv_number(a, &x) && vl_jv_number(b, &y))
        return same_key(a, b);
    if (a.type != b.type)
        return 0;
    switch ((enum vl_jtype)a.type) {
    case VL_J_UNDEF:
    case VL_J_NONE:
        return 1;
    case VL_J_STR:
    case VL_J_BIG:
        return same_key(a, b);
    case VL_J_LIST:
        if (vl_jventer(in) == 0)
            same = equal_lists(in, a.u.list, b.u.list);
        in->vdepth--;
        return same;
    case VL_J_MAP:
        if (vl_jventer(in) == 0)
            same = a.u.map == b.u.map || equal_maps(in, a.u.map, b.u.map);
        in->vdepth--;
        return same;
    case VL_J_FUNC:
        return a.u.i == b.u.i;
    default:
        return a.u.map == b.u.map;
    }
}

static int compare_lists(struct vl_jin *in, const struct vl_jlist *a, const struct vl_jlist *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!vl_jv_equal(in, a->v[i], b->v[i]))
            return vl_jv_compare(in, a->v[i], b->v[i]);
    return (a->n > b->n) - (a->n < b->n);
}

int vl_jv_compare(struct vl_jin *in, struct vl_jv a, struct vl_jv b)
{
    double x, y;
    int c = 0;

    if ((a.type == VL_J_INT || a.type == VL_J_BOOL) && (b.type == VL_J_INT || b.type == VL_J_BOOL))
        return (a.u.i > b.u.i) - (a.u.i < b.u.i);
    if (vl_jv_number(a, &x) && vl_jv_number(b, &y))
        return (x > y) - (x < y);
    if (a.type == VL_J_STR && b.type == VL_J_STR) {
        size_t n = a.n < b.n ? a.n : b.n;

        c = n ? memcmp(a.u.s, b.u.s, n) : 0; /* UTF-8 sorts as its code points do */
        return c ? c : (a.n > b.n) - (a.n < b.n);
    }
    if (a.type == VL_J_LIST && b.type == VL_J_LIST && a.u.list->kind == b.u.list->kind &&
        a.u.list->kind <= VL_J_TUPLE) {
        if (vl_jventer(in) == 0)
            c = compare_lists(in, a.u.list, b.u.list);
        in->vdepth--;
        return c;
    }
    vl_jfail(in, "%s and %s cannot be compared by order", vl_jv_type_name(a), vl_jv_type_name(b));
    return 0;
}

/* ---- iteration ---- */

int vl_jv_unhashable(struct vl_jv v)
{
    if (v.type == VL_J_LIST && v.u.list->kind == VL_J_TUPLE)
        for (size_t i = 0; i < v.u.list->n; i++)
            if (vl_jv_unhashable(v.u.list->v[i]))
                return 1;
    return v.type == VL_J_MAP || (v.type == VL_J_LIST && v.u.list->kind == VL_J_PLAIN);
}

int vl_jv_iterable(struct vl_jv v)
{
    return v.type == VL_J_UNDEF || v.type == VL_J_STR || v.type == VL_J_LIST ||
           v.type == VL_J_MAP || v.type == VL_J_LOOP;
}

struct vl_jlist *vl_jv_iter(struct vl_jin *in, struct vl_jv v)
{
    struct vl_jv out;
    size_t k;

    switch ((enum vl_jtype)v.type) {
    case VL_J_LIST:
        if (v.u.list->kind == VL_J_GENERATOR) {
            if (v.u.list->used) /* as in Python: it is empty the second time */
                return vl_jv_list(in, VL_J_PLAIN, 0).u.list;
            v.u.list->used = 1;
        }
        return v.u.list;
    case VL_J_UNDEF:
        return vl_jv_list(in, VL_J_PLAIN, 0).u.list;
    case VL_J_MAP:
        out = vl_jv_list(in, VL_J_PLAIN, v.u.map->n);
        for (size_t i = 0; i < v.u.map->n; i++)
            vl_jlist_add(in, out.u.list, v.u.map->key[i]);
        return out.u.list;
    case VL_J_STR:
        out = vl_jv_list(in, VL_J_PLAIN, v.n);
        for (size_t i = 0; i < v.n && !vl_jstep(in); i += k) {
            uint32_t cp;

            k = vl_uc_next(v.u.s + i, v.n - i, &cp);
            vl_jlist_add(in, out.u.list, vl_jv_ref(v.u.s + i, k));
        }
        return out.u.list;
    default:
        vl_jfail(in, "a %s is not iterable", vl_jv_type_name(v));
        return NULL;
    }
}

int64_t vl_jv_length(struct vl_jin *in, struct vl_jv v)
{
    switch ((enum vl_jtype)v.type) {
    case VL_J_UNDEF:
        return 0;
    case VL_J_STR:
        return (int64_t)vl_utf8_count(v.u.s, v.n);
    case VL_J_LIST:
        if (v.u.list->kind != VL_J_GENERATOR)
            return (int64_t)v.u.list->n;
        break;
    case VL_J_MAP:
        return (int64_t)v.u.map->n;
    default:
        break;
    }
    vl_jfail(in, "a %s has no length", vl_jv_type_name(v));
    return 0;
}
