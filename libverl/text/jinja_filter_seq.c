/* jinja_filter_seq.c - filters that look at every element: map, select, sort, join and relatives.
 *
 * An attribute is "name", "a.b.0" or an integer, looked up as a subscript, as in jinja2. */
#include "libverl/text/jinja_filter.h"

#include <stdlib.h>
#include <string.h>

/* ---- attributes of elements ---- */

static struct vl_jv attribute(struct vl_jin *in, struct vl_jv v, struct vl_jv attr)
{
    size_t at = 0;

    if (attr.type == VL_J_INT)
        return vl_jop_item(in, v, attr);
    if (attr.type != VL_J_STR)
        return vl_jfail(in, "an attribute must be a string or an integer");
    while (at <= attr.n && !in->e->code) {
        const char *dot = memchr(attr.u.s + at, '.', attr.n - at);
        size_t n = (dot ? (size_t)(dot - attr.u.s) : attr.n) - at;
        struct vl_jv key = vl_jv_ref(attr.u.s + at, n);

        if (n && n < 10 && strspn(key.u.s, "0123456789") >= n)
            key = vl_jv_int(strtol(key.u.s, NULL, 10));
        v = vl_jop_item(in, v, key);
        at += n + 1;
    }
    return v;
}

/* The key an element is sorted or compared by: its attribute, letters in lower case unless
 * case_sensitive. */
static struct vl_jv key_of(struct vl_jin *in, struct vl_jv v, const struct vl_jv *attr,
                           int sensitive)
{
    if (attr)
        v = attribute(in, v, *attr);
    return v.type == VL_J_STR && !sensitive ? vl_py_case(in, v, VL_PY_LOWER) : v;
}

/* What sort compares: a list of keys, one for each attribute of "a,b" (jinja2 compares lists also where
 * there is one key or no attribute: equal elements are then never ordered). */
static struct vl_jv keys_of(struct vl_jin *in, struct vl_jv v, const struct vl_jv *attr,
                            int sensitive)
{
    struct vl_jv keys = vl_jv_list(in, VL_J_PLAIN, 1);
    size_t at = 0;

    if (!attr || attr->type != VL_J_STR) {
        vl_jlist_add(in, keys.u.list, key_of(in, v, attr, sensitive));
        return keys;
    }
    while (at <= attr->n && !in->e->code) {
        const char *comma = memchr(attr->u.s + at, ',', attr->n - at);
        size_t n = (comma ? (size_t)(comma - attr->u.s) : attr->n) - at;
        struct vl_jv one = vl_jv_ref(attr->u.s + at, n);

        vl_jlist_add(in, keys.u.list, key_of(in, v, &one, sensitive));
        at += n + 1;
    }
    return keys;
}

static int flag(const struct vl_jargs *a, size_t at, const char *name)
{
    struct vl_jv v;

    return vl_jarg(a, at, name, &v) && vl_jv_true(v);
}

/* ---- sorting: stable merge of (key, element) pairs ---- */

struct keyed {
    struct vl_jv key, val;
};

static void merge_sort(struct vl_jin *in, struct keyed *x, struct keyed *tmp, size_t n, int reverse)
{
    size_t half = n / 2, i = 0, j = half, k = 0;

    if (n < 2 || vl_jstep(in))
        return;
    merge_sort(in, x, tmp, half, reverse);
    merge_sort(in, x + half, tmp, n - half, reverse);
    while (i < half && j < n) {
        int c = vl_jv_compare(in, x[i].key, x[j].key);

        tmp[k++] = (reverse ? c >= 0 : c <= 0) ? x[i++] : x[j++];
    }
    while (i < half)
        tmp[k++] = x[i++];
    while (j < n)
        tmp[k++] = x[j++];
    memcpy(x, tmp, n * sizeof *x);
}

static struct vl_jv sorted(struct vl_jin *in, const struct vl_jlist *l, const struct vl_jv *attr,
                           int sensitive, int reverse, int many)
{
    struct keyed *x = vl_jalloc(in, l->n * sizeof *x), *tmp = vl_jalloc(in, l->n * sizeof *tmp);
    struct vl_jv out = vl_jv_list(in, VL_J_PLAIN, l->n);

    for (size_t i = 0; i < l->n && !vl_jstep(in); i++)
        x[i] = (struct keyed){ (many ? keys_of : key_of)(in, l->v[i], attr, sensitive), l->v[i] };
    merge_sort(in, x, tmp, l->n, reverse);
    for (size_t i = 0; i < l->n; i++)
        vl_jlist_add(in, out.u.list, x[i].val);
    return out;
}

static const struct vl_jv *attr_arg(const struct vl_jargs *a, size_t at, struct vl_jv *v)
{
    return vl_jarg(a, at, "attribute", v) && v->type != VL_J_NONE ? v : NULL;
}

struct vl_jv vl_jf_sort(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jlist *l = vl_jv_iter(in, v);
    struct vl_jv attr;

    if (!l || vl_jargs_check(in, a, "sort", 3, "reverse case_sensitive attribute"))
        return vl_jv_undef();
    return sorted(in, l, attr_arg(a, 2, &attr), flag(a, 1, "case_sensitive"), flag(a, 0, "reverse"),
                  1);
}

struct vl_jv vl_jf_dictsort(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv by = vl_jv_ref("key", 3), at = vl_jv_int(0);
    struct vl_jmethod m = { v, "items" };
    struct vl_jargs none = { 0 };

    if (v.type != VL_J_MAP)
        return vl_jfail(in, "dictsort needs a dictionary, not %s", vl_jv_type_name(v));
    if (vl_jargs_check(in, a, "dictsort", 3, "case_sensitive by reverse"))
        return vl_jv_undef();
    vl_jarg(a, 1, "by", &by);
    if (!vl_jv_is_str(by, "key") && !vl_jv_is_str(by, "value"))
        return vl_jfail(in, "dictsort: by must be key or value");
    at.u.i = vl_jv_is_str(by, "value");
    return sorted(in, vl_jmethod_call(in, &m, &none).u.list, &at, flag(a, 0, "case_sensitive"),
                  flag(a, 2, "reverse"), 0);
}

struct vl_jv vl_jf_unique(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jlist *l = vl_jv_iter(in, v);
    struct vl_jv attr, out, seen;

    if (!l || vl_jargs_check(in, a, "unique", 2, "case_sensitive attribute"))
        return vl_jv_undef();
    out = vl_jv_list(in, VL_J_GENERATOR, l->n);
    seen = vl_jv_map(in, VL_J_MAP);
    for (size_t i = 0; i < l->n && !vl_jstep(in); i++) {
        struct vl_jv key = key_of(in, l->v[i], attr_arg(a, 1, &attr), flag(a, 0, "case_sensitive")),
                     old;

        if (vl_jmap_get(seen.u.map, key, &old))
            continue;
        vl_jmap_set(in, seen.u.map, key, vl_jv_none());
        vl_jlist_add(in, out.u.list, l->v[i]);
    }
    return out;
}

struct vl_jv vl_jf_groupby(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jlist *l = vl_jv_iter(in, v), *all;
    struct vl_jv attr, out, group = vl_jv_undef(), last = vl_jv_undef();
    int sensitive = flag(a, 2, "case_sensitive");

    if (!l || vl_jargs_check(in, a, "groupby", 3, "attribute case_sensitive"))
        return vl_jv_undef();
    if (!attr_arg(a, 0, &attr) || a->n == 2)
        return vl_jfail(in, "groupby needs an attribute (a default is not supported)");
    all = sorted(in, l, &attr, sensitive, 0, 0).u.list;
    out = vl_jv_list(in, VL_J_PLAIN, 4);
    for (size_t i = 0; i < all->n && !vl_jstep(in); i++) {
        struct vl_jv key = key_of(in, all->v[i], &attr, sensitive), pair;

        if (i == 0 || !vl_jv_equal(in, key, last)) {
            group = vl_jv_list(in, VL_J_PLAIN, 4);
            pair = vl_jv_list(in, VL_J_TUPLE, 2);
            vl_jlist_add(in, pair.u.list, key_of(in, all->v[i], &attr, 1));
            vl_jlist_add(in, pair.u.list, group);
            vl_jlist_add(in, out.u.list, pair);
        }
        vl_jlist_add(in, group.u.list, all->v[i]);
        last = key;
    }
    return out;
}

/* ---- min, max, sum, join ---- */

static struct vl_jv extreme(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a, int want)
{
    struct vl_jlist *l = vl_jv_iter(in, v);
    struct vl_jv attr, best = vl_jv_undef(), best_key = vl_jv_undef();

    if (!l || vl_jargs_check(in, a, "min and max", 2, "case_sensitive attribute"))
        return vl_jv_undef();
    for (size_t i = 0; i < l->n && !vl_jstep(in); i++) {
        struct vl_jv key = key_of(in, l->v[i], attr_arg(a, 1, &attr), flag(a, 0, "case_sensitive"));

        if (i == 0 || (want < 0 ? vl_jv_compare(in, key, best_key) < 0
                                : vl_jv_compare(in, key, best_key) > 0))
            best = l->v[i], best_key = key;
    }
    return best;
}

struct vl_jv vl_jf_min(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    return extreme(in, v, a, -1);
}

struct vl_jv vl_jf_max(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    return extreme(in, v, a, 1);
}

struct vl_jv vl_jf_sum(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jlist *l = vl_jv_iter(in, v);
    struct vl_jv attr, sum = vl_jv_int(0);

    if (!l || vl_jargs_check(in, a, "sum", 2, "attribute start"))
        return vl_jv_undef();
    vl_jarg(a, 1, "start", &sum);
    for (size_t i = 0; i < l->n && !vl_jstep(in); i++)
        sum = vl_jop_binary(in, VL_JO_ADD, sum,
                            attr_arg(a, 0, &attr) ? attribute(in, l->v[i], attr) : l->v[i]);
    return sum;
}

struct vl_jv vl_jf_join(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jlist *l = vl_jv_iter(in, v);
    struct vl_jv attr, sep = vl_jv_ref("", 0);
    struct vl_buf b = { 0 };

    if (!l || vl_jargs_check(in, a, "join", 2, "d attribute"))
        return vl_jv_undef();
    vl_jarg(a, 0, "d", &sep);
    sep = vl_jv_to_str(in, sep);
    for (size_t i = 0; i < l->n && !vl_jbuf_check(in, &b); i++) {
        if (i)
            vl_buf_add(&b, sep.u.s, sep.n);
        vl_jv_print(in, &b, attr_arg(a, 1, &attr) ? attribute(in, l->v[i], attr) : l->v[i]);
    }
    return vl_jv_buf(in, &b);
}

/* ---- batch and slice: lists of lists ---- */

static int count_arg(struct vl_jin *in, const struct vl_jargs *a, const char *what,
                     const char *name, struct vl_jv *fill)
{
    struct vl_jv n = vl_jv_none();

    *fill = vl_jv_none();
    vl_jarg(a, 0, name, &n);
    vl_jarg(a, 1, "fill_with", fill);
    if (n.type != VL_J_INT || n.u.i < 1 || n.u.i > VL_J_MAX_RANGE)
        vl_jfail(in, "%s needs a positive number", what);
    return in->e->code ? 0 : (int)n.u.i;
}

struct vl_jv vl_jf_batch(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jlist *l = vl_jv_iter(in, v);
    struct vl_jv fill, out, row = vl_jv_undef();
    size_t n;

    if (!l || vl_jargs_check(in, a, "batch", 2, "linecount fill_with") ||
        !(n = (size_t)count_arg(in, a, "batch", "linecount", &fill)))
        return vl_jv_undef();
    out = vl_jv_list(in, VL_J_GENERATOR, l->n / n + 1);
    for (size_t i = 0; i < l->n && !vl_jstep(in); i++) {
        if (i % n == 0) {
            row = vl_jv_list(in, VL_J_PLAIN, 4);
            vl_jlist_add(in, out.u.list, row);
        }
        vl_jlist_add(in, row.u.list, l->v[i]);
    }
    while (l->n && fill.type != VL_J_NONE && row.u.list->n < n && !vl_jstep(in))
        vl_jlist_add(in, row.u.list, fill);
    return out;
}

struct vl_jv vl_jf_slice(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jlist *l = vl_jv_iter(in, v);
    struct vl_jv fill, out;
    size_t n, at = 0;

    if (!l || vl_jargs_check(in, a, "slice", 2, "slices fill_with") ||
        !(n = (size_t)count_arg(in, a, "slice", "slices", &fill)))
        return vl_jv_undef();
    out = vl_jv_list(in, VL_J_GENERATOR, n);
    for (size_t i = 0; i < n && !vl_jstep(in); i++) {
        struct vl_jv row = vl_jv_list(in, VL_J_PLAIN, l->n / n + 1);
        size_t end = at + l->n / n + (i < l->n % n);

        for (; at < end; at++)
            vl_jlist_add(in, row.u.list, l->v[at]);
        if (fill.type != VL_J_NONE && i >= l->n % n)
            vl_jlist_add(in, row.u.list, fill);
        vl_jlist_add(in, out.u.list, row);
    }
    return out;
}

/* ---- map and select ---- */

/* The arguments after the first `skip`. */
static struct vl_jargs rest(const struct vl_jargs *a, size_t skip)
{
    struct vl_jargs r = *a;

    if (a->n) {
        r.v += skip;
        r.n -= skip;
    }
    return r;
}

static const char *name_arg(struct vl_jin *in, const struct vl_jargs *a, size_t at)
{
    if (at >= a->n || a->v[at].type != VL_J_STR)
        return NULL;
    return vl_jv_str(in, a->v[at].u.s, a->v[at].n).u.s;
}

/* map and select take whatever is false for an empty list. */
static struct vl_jlist *some(struct vl_jin *in, struct vl_jv v)
{
    return vl_jv_true(v) ? vl_jv_iter(in, v) : vl_jv_list(in, VL_J_PLAIN, 0).u.list;
}

struct vl_jv vl_jf_map(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jlist *l = some(in, v);
    struct vl_jv attr, out, otherwise = vl_jv_undef();
    const char *filter = name_arg(in, a, 0);
    struct vl_jargs more = rest(a, 1);

    if (!l)
        return vl_jv_undef();
    if (!filter && vl_jargs_check(in, a, "map", 0, "attribute default"))
        return vl_jv_undef();
    if (!filter && !vl_jarg(a, 0, "attribute", &attr))
        return vl_jfail(in, "map needs a filter's name or attribute=");
    if (!filter)
        vl_jarg(a, 1, "default", &otherwise);
    out = vl_jv_list(in, VL_J_GENERATOR, l->n);
    for (size_t i = 0; i < l->n && !vl_jstep(in); i++) {
        struct vl_jv x =
            filter ? vl_jfilter(in, filter, l->v[i], &more) : attribute(in, l->v[i], attr);

        vl_jlist_add(in, out.u.list, !filter && x.type == VL_J_UNDEF ? otherwise : x);
    }
    return out;
}

/* select, reject and, with the attribute first, selectattr, rejectattr. */
static struct vl_jv choose(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a, int by_attr,
                           int want)
{
    struct vl_jlist *l = some(in, v);
    const char *test = name_arg(in, a, (size_t)by_attr);
    struct vl_jargs more;
    struct vl_jv out;

    if (!l)
        return vl_jv_undef();
    if (a->nkw || (by_attr && a->n < 1) || (a->n > (size_t)by_attr && !test))
        return vl_jfail(in, "select and reject take %sa test's name and its argument",
                        by_attr ? "an attribute, " : "");
    more = rest(a, (size_t)by_attr + (test != NULL));
    out = vl_jv_list(in, VL_J_GENERATOR, l->n);
    for (size_t i = 0; i < l->n && !vl_jstep(in); i++) {
        struct vl_jv x = by_attr ? attribute(in, l->v[i], a->v[0]) : l->v[i];
        int yes = test ? vl_jtest(in, test, x, &more) : vl_jv_true(x);

        if (yes == want)
            vl_jlist_add(in, out.u.list, l->v[i]);
    }
    return out;
}

struct vl_jv vl_jf_select(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    return choose(in, v, a, 0, 1);
}

struct vl_jv vl_jf_reject(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    return choose(in, v, a, 0, 0);
}

struct vl_jv vl_jf_selectattr(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    return choose(in, v, a, 1, 1);
}

struct vl_jv vl_jf_rejectattr(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    return choose(in, v, a, 1, 0);
}
