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
    if (v.type != VL_J_STR)
        return 0;
    v = vl_jv_str(in, v.u.s, v.n);
    if (!vl_jfilter_known(v.u.s))
        vl_jfail(in, "whether there is a filter \"%.60s\" is not known here", v.u.s);
    return 1;
}

static const struct {
    const char *name;
    test_fn *fn;
} known[] = {
    { "boolean", is_boolean },   { "true", is_true },
    { "false", is_false },       { "none", is_none },
    { "defined", is_defined },   { "undefined", is_undefined },
    { "string", is_string },     { "number", is_number },
    { "integer", is_integer },   { "float", is_float },
    { "mapping", is_mapping },   { "iterable", is_iterable },
    { "sequence", is_sequence }, { "callable", is_callable },
    { "escaped", is_escaped },   { "lower", is_lower },
    { "upper", is_upper },       { "odd", is_odd },
    { "even", is_even },         { "divisibleby", is_divisible },
    { "eq", is_equal },          { "equalto", is_equal },
    { "==", is_equal },          { "ne", is_unequal },
    { "!=", is_unequal },        { "lt", is_less },
    { "lessthan", is_less },     { "<", is_less },
    { "le", is_less_equal },     { "<=", is_less_equal },
    { "gt", is_greater },        { "greaterthan", is_greater },
    { ">", is_greater },         { "ge", is_greater_equal },
    { ">=", is_greater_equal },  { "in", is_in },
    { "filter", is_filter },
};

static test_fn *find(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].fn;
    return NULL;
}

int vl_jtest_known(const char *name)
{
    return find(name) != NULL;
}

int vl_jtest(struct vl_jin *in, const char *name, struct vl_jv v, const struct vl_jargs *a)
{
    test_fn *fn = find(name);

    if (!fn) {
        vl_jfail(in, "the test \"%.60s\" is not supported", name);
        return 0;
    }
    return fn(in, v, a);
}
