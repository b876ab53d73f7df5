/* jinja_test.c - what may follow "is". */
#include "libverl/text/jinja_impl.h"

#include <string.h>

typedef int test_fn(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a);

static int need(struct vl_jin *in, const struct vl_jargs *a, struct vl_jv *out)
{
    if (a->n == 1 && !a->nkw) {
        *out = a->v[0];
        return 1;
    }
    vl_jfail(in, "a test needs one argument");
    return 0;
}

static int is_boolean(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)in, (void)a;
    return v.type == VL_J_BOOL;
}

static int is_true(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)in, (void)a;
    return v.type == VL_J_BOOL && v.u.i;
}

static int is_false(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)in, (void)a;
    return v.type == VL_J_BOOL && !v.u.i;
}

static int is_none(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)in, (void)a;
    return v.type == VL_J_NONE;
}

static int is_defined(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)in, (void)a;
    return v.type != VL_J_UNDEF;
}

static int is_undefined(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)in, (void)a;
    return v.type == VL_J_UNDEF;
}

static int is_string(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)in, (void)a;
    return v.type == VL_J_STR;
}

static int is_number(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)in, (void)a;
    return v.type >= VL_J_BOOL && v.type <= VL_J_FLOAT;
}

static int is_integer(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)in, (void)a;
    return v.type == VL_J_INT || v.type == VL_J_BIG;
}

static int is_float(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)in, (void)a;
    return v.type == VL_J_FLOAT;
}

static int is_mapping(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)in, (void)a;
    return v.type == VL_J_MAP;
}

static int is_iterable(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)in, (void)a;
    return vl_jv_iterable(v);
}

/* Has a length and a subscript: dictionaries too, as in jinja2. */
static int is_sequence(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)in, (void)a;
    return v.type == VL_J_STR || v.type == VL_J_MAP || v.type == VL_J_UNDEF ||
           (v.type == VL_J_LIST && v.u.list->kind <= VL_J_RANGE);
}

static int is_callable(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)in, (void)a;
    return v.type == VL_J_MACRO || v.type == VL_J_FUNC || v.type == VL_J_METHOD ||
           v.type == VL_J_UNDEF;
}

static int is_escaped(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)in, (void)a;
    return v.type == VL_J_STR && v.safe;
}

static int is_lower(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)a;
    return vl_py_is_case(vl_jv_to_str(in, v), 0);
}

static int is_upper(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)a;
    return vl_py_is_case(vl_jv_to_str(in, v), 1);
}

static int remainder_is(struct vl_jin *in, struct vl_jv v, struct vl_jv by, int64_t want)
{
    struct vl_jv r = vl_jop_binary(in, VL_JO_MOD, v, by);

    return vl_jv_equal(in, r, vl_jv_int(want));
}

static int is_odd(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)a;
    return remainder_is(in, v, vl_jv_int(2), 1);
}

static int is_even(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)a;
    return remainder_is(in, v, vl_jv_int(2), 0);
}

static int is_divisible(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv by;

    return need(in, a, &by) && remainder_is(in, v, by, 0);
}

static int is_equal(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv to;

    return need(in, a, &to) && vl_jv_equal(in, v, to);
}

static int is_unequal(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv to;

    return need(in, a, &to) && !vl_jv_equal(in, v, to);
}

static int is_less(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv to;

    return need(in, a, &to) && vl_jv_compare(in, v, to) < 0;
}

static int is_less_equal(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv to;

    return need(in, a, &to) && vl_jv_compare(in, v, to) <= 0;
}

static int is_greater(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv to;

    return need(in, a, &to) && vl_jv_compare(in, v, to) > 0;
}

static int is_greater_equal(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv to;

    return need(in, a, &to) && vl_jv_compare(in, v, to) >= 0;
}

static int is_in(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv what;

    return need(in, a, &what) && vl_jop_in(in, v, what);
}

static int is_filter(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    (void)a;
    if (vl_jv_unhashable(v))
        vl_jfail(in, "a %s cannot be the name of a filter", vl_jv_type_name(v));
    if (v.type != VL_J_STR)
        return 0;
    v = vl_jv_str(in, v.u.s, v.n);
    return vl_jfilter_exists(v.u.s);
}

/* The same object: none, true and false are one each; of others nothing is known here. */
static int is_sameas(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv to;

    if (!need(in, a, &to))
        return 0;
    if (v.type != to.type)
        return 0;
    if (v.type == VL_J_NONE || v.type == VL_J_BOOL)
        return v.type == VL_J_NONE || v.u.i == to.u.i;
    vl_jfail(in, "sameas of a %s is not supported", vl_jv_type_name(v));
    return 0;
}

static const struct {
    const char *name;
    test_fn *fn;
    size_t args;
} known[] = {
    { "boolean", is_boolean, 0 },
    { "true", is_true, 0 },
    { "false", is_false, 0 },
    { "none", is_none, 0 },
    { "sameas", is_sameas, 1 },
    { "defined", is_defined, 0 },
    { "undefined", is_undefined, 0 },
    { "string", is_string, 0 },
    { "number", is_number, 0 },
    { "integer", is_integer, 0 },
    { "float", is_float, 0 },
    { "mapping", is_mapping, 0 },
    { "iterable", is_iterable, 0 },
    { "sequence", is_sequence, 0 },
    { "callable", is_callable, 0 },
    { "escaped", is_escaped, 0 },
    { "lower", is_lower, 0 },
    { "upper", is_upper, 0 },
    { "odd", is_odd, 0 },
    { "even", is_even, 0 },
    { "divisibleby", is_divisible, 1 },
    { "eq", is_equal, 1 },
    { "equalto", is_equal, 1 },
    { "==", is_equal, 1 },
    { "ne", is_unequal, 1 },
    { "!=", is_unequal, 1 },
    { "lt", is_less, 1 },
    { "lessthan", is_less, 1 },
    { "<", is_less, 1 },
    { "le", is_less_equal, 1 },
    { "<=", is_less_equal, 1 },
    { "gt", is_greater, 1 },
    { "greaterthan", is_greater, 1 },
    { ">", is_greater, 1 },
    { "ge", is_greater_equal, 1 },
    { ">=", is_greater_equal, 1 },
    { "in", is_in, 1 },
    { "filter", is_filter, 0 },
};

/* Its place in the table, or -1. */
static int find(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return (int)i;
    return -1;
}

int vl_jtest_known(const char *name)
{
    return find(name) >= 0;
}

int vl_jtest(struct vl_jin *in, const char *name, struct vl_jv v, const struct vl_jargs *a)
{
    int i = find(name);

    if (i < 0)
        vl_jfail(in, "the test \"%.60s\" is not supported", name);
    else if (a->n != known[i].args || a->nkw)
        vl_jfail(in, "the test \"%.60s\" takes %zu arguments, %zu given", name, known[i].args,
                 a->n + a->nkw);
    return in->e->code ? 0 : known[i].fn(in, v, a);
}
