/* jinja_ops.c - Python's operators, attributes, subscripts and slices over template values. */
#include "libverl/text/jinja_impl.h"

#include <math.h>
#include <string.h>

#include "libverl/text/unicode.h"

static int integral(struct vl_jv v)
{
    return v.type == VL_J_INT || v.type == VL_J_BOOL;
}

static int is_list(struct vl_jv v, enum vl_jlist_kind kind)
{
    return v.type == VL_J_LIST && v.u.list->kind == kind;
}

static struct vl_jv bad_types(struct vl_jin *in, const char *op, struct vl_jv a, struct vl_jv b)
{
    return vl_jfail(in, "unsupported operand types for %s: %s and %s", op, vl_jv_type_name(a),
                    vl_jv_type_name(b));
}

static const char *const symbol[] = { "+", "-", "*", "/", "//", "%", "**", "~" };

/* ---- numbers ---- */

static struct vl_jv overflow(struct vl_jin *in)
{
    return vl_jfail(in, "arithmetic beyond 64 bits is not supported");
}

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;

    return a % b && (a < 0) != (b < 0) ? q - 1 : q;
}

static int64_t floor_mod(int64_t a, int64_t b) /* of the divisor's sign */
{
    int64_t r = a % b;

    return r && (r < 0) != (b < 0) ? r + b : r;
}

static struct vl_jv float_power(struct vl_jin *in, double a, double b)
{
    double r = pow(a, b);

    if (a == 0 && b < 0)
        return vl_jfail(in, "0.0 cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
        return vl_jfail(in, "a power that is a complex number is not supported");
    if (isinf(r) && isfinite(a) && isfinite(b))
        return vl_jfail(in, "a power too large for a float");
    return vl_jv_float(r);
}

static struct vl_jv int_power(struct vl_jin *in, int64_t a, int64_t b)
{
    __int128 r = 1;

    if (b < 0)
        return float_power(in, (double)a, (double)b);
    if (a == 0 || a == 1)
        return vl_jv_int(b ? a : 1);
    if (a == -1)
        return vl_jv_int(b % 2 ? -1 : 1);
    while (b-- > 0)
        if (__builtin_mul_overflow(r, a, &r))
            return overflow(in);
    return vl_jv_wide(in, r);
}

static struct vl_jv int_op(struct vl_jin *in, enum vl_jop op, int64_t a, int64_t b)
{
    switch (op) {
    case VL_JO_ADD:
        return vl_jv_wide(in, (__int128)a + b);
    case VL_JO_SUB:
        return vl_jv_wide(in, (__int128)a - b);
    case VL_JO_MUL:
        return vl_jv_wide(in, (__int128)a * b);
    case VL_JO_POW:
        return int_power(in, a, b);
    default:
        break;
    }
    if (b == 0)
        return vl_jfail(in, "division by zero");
    if (op == VL_JO_DIV)
        return vl_jv_float((double)a / (double)b);
    if (b == -1) /* the one quotient that can overflow */
        return op == VL_JO_MOD ? vl_jv_int(0) : vl_jv_wide(in, -(__int128)a);
    return vl_jv_int(op == VL_JO_MOD ? floor_mod(a, b) : floor_div(a, b));
}

static struct vl_jv float_op(struct vl_jin *in, enum vl_jop op, double a, double b)
{
    double r;

    switch (op) {
    case VL_JO_ADD:
        return vl_jv_float(a + b);
    case VL_JO_SUB:
        return vl_jv_float(a - b);
    case VL_JO_MUL:
        return vl_jv_float(a * b);
    case VL_JO_POW:
        return float_power(in, a, b);
    default:
        break;
    }
    if (b == 0)
        return vl_jfail(in, "float division by zero");
    if (op == VL_JO_DIV)
        return vl_jv_float(a / b);
    r = fmod(a, b); /* exact; Python's sign is the divisor's */
    if (r != 0 && (r < 0) != (b < 0))
        r += b;
    if (op == VL_JO_MOD)
        return vl_jv_float(r != 0 ? r : copysign(0, b));
    return vl_jv_float(floor((a - r) / b + 0.5));
}

/* ---- strings and lists ---- */

static struct vl_jv join_strings(struct vl_jin *in, struct vl_jv a, struct vl_jv b)
{
    struct vl_buf s = { 0 };
    struct vl_jv v;

    if (a.safe || b.safe) { /* Markup escapes what it is joined with */
        a = vl_py_escape(in, a);
        b = vl_py_escape(in, b);
    }
    vl_buf_add(&s, a.u.s, a.n);
    vl_buf_add(&s, b.u.s, b.n);
    vl_jbuf_check(in, &s);
    v = vl_jv_buf(in, &s);
    v.safe = a.safe;
    return v;
}

static struct vl_jv join_lists(struct vl_jin *in, const struct vl_jlist *a,
                               const struct vl_jlist *b)
{
    struct vl_jv v;

    if ((a->n + b->n) * sizeof *a->v > VL_J_MAX_OUTPUT)
        return vl_jfail(in, "a list grows beyond %zu MB", VL_J_MAX_OUTPUT >> 20);
    v = vl_jv_list(in, a->kind, a->n + b->n);
    memcpy(v.u.list->v, a->v, a->n * sizeof *a->v);
    memcpy(v.u.list->v + a->n, b->v, b->n * sizeof *b->v);
    v.u.list->n = a->n + b->n;
    return v;
}

static struct vl_jv repeat(struct vl_jin *in, struct vl_jv a, int64_t times)
{
    size_t n = a.type == VL_J_STR ? a.n : a.u.list->n * sizeof(struct vl_jv);
    struct vl_buf s = { 0 };
    struct vl_jv v;

    times = times < 0 ? 0 : times;
    if (n && (uint64_t)times > VL_J_MAX_OUTPUT / n)
        return vl_jfail(in, "a repetition grows beyond %zu MB", VL_J_MAX_OUTPUT >> 20);
    if (a.type == VL_J_STR) {
        for (int64_t i = 0; n && i < times; i++)
            vl_buf_add(&s, a.u.s, a.n);
        v = vl_jv_buf(in, &s);
        v.safe = a.safe;
        return v;
    }
    v = vl_jv_list(in, a.u.list->kind, a.u.list->n * (size_t)(n ? times : 0));
    for (int64_t i = 0; n && i < times; i++)
        for (size_t k = 0; k < a.u.list->n; k++)
            vl_jlist_add(in, v.u.list, a.u.list->v[k]);
    return v;
}

static int repeatable(struct vl_jv v)
{
    return v.type == VL_J_STR || is_list(v, VL_J_PLAIN) || is_list(v, VL_J_TUPLE);
}

struct vl_jv vl_jop_binary(struct vl_jin *in, enum vl_jop op, struct vl_jv a, struct vl_jv b)
{
    double x, y;

    if (op == VL_JO_CONCAT) {
        a = vl_jv_to_str(in, a);
        b = vl_jv_to_str(in, b);
        a.safe = b.safe = 0;
        return join_strings(in, a, b);
    }
    if (integral(a) && integral(b))
        return int_op(in, op, a.u.i, b.u.i);
    if (vl_jv_number(a, &x) && vl_jv_number(b, &y))
        return float_op(in, op, x, y);
    if (a.type == VL_J_BIG || b.type == VL_J_BIG)
        return overflow(in);
    if (op == VL_JO_ADD && a.type == VL_J_STR && b.type == VL_J_STR)
        return join_strings(in, a, b);
    if (op == VL_JO_ADD && repeatable(a) && a.type == VL_J_LIST && b.type == VL_J_LIST &&
        a.u.list->kind == b.u.list->kind)
        return join_lists(in, a.u.list, b.u.list);
    if (op == VL_JO_MUL && repeatable(a) && integral(b))
        return repeat(in, a, b.u.i);
    if (op == VL_JO_MUL && integral(a) && repeatable(b))
        return repeat(in, b, a.u.i);
    if (op == VL_JO_MOD && a.type == VL_J_STR && !a.safe)
        return vl_py_percent(in, a, b);
    return bad_types(in, symbol[op], a, b);
}

struct vl_jv vl_jop_negate(struct vl_jin *in, struct vl_jv a)
{
    if (integral(a))
        return int_op(in, VL_JO_SUB, 0, a.u.i);
    if (a.type == VL_J_FLOAT)
        return vl_jv_float(-a.u.f);
    if (a.type == VL_J_BIG) {
        struct vl_buf b = { 0 };

        if (*a.u.s != '-')
            vl_buf_ch(&b, '-');
        vl_buf_add(&b, a.u.s + (*a.u.s == '-'), a.n - (*a.u.s == '-'));
        a = vl_jv_buf(in, &b);
        a.type = VL_J_BIG;
        return a;
    }
    return vl_jfail(in, "bad operand type for unary -: %s", vl_jv_type_name(a));
}

int vl_jop_in(struct vl_jin *in, struct vl_jv item, struct vl_jv what)
{
    struct vl_jlist *l;
    struct vl_jv v;

    if (what.type == VL_J_STR) {
        if (item.type == VL_J_STR)
            return vl_py_contains(what, item);
        vl_jfail(in, "'in <string>' requires a string on the left, not %s", vl_jv_type_name(item));
        return 0;
    }
    if (what.type == VL_J_MAP && vl_jv_unhashable(item)) {
        vl_jfail(in, "a %s cannot be a key", vl_jv_type_name(item));
        return 0;
    }
    if (what.type == VL_J_MAP)
        return vl_jmap_get(what.u.map, item, &v);
    l = vl_jv_iter(in, what);
    for (size_t i = 0; l && i < l->n && !vl_jstep(in); i++)
        if (vl_jv_equal(in, item, l->v[i]))
            return 1;
    return 0;
}

/* ---- attributes ---- */

static struct vl_jv loop_attr(struct vl_jin *in, struct vl_jv self, const char *name)
{
    const struct vl_jloop *l = self.u.loop;
    int64_t at = (int64_t)l->at, n = (int64_t)l->n;
    struct vl_jmethod *m;

    if (strcmp(name, "index") == 0)
        return vl_jv_int(at + 1);
    if (strcmp(name, "index0") == 0)
        return vl_jv_int(at);
    if (strcmp(name, "revindex") == 0)
        return vl_jv_int(n - at);
    if (strcmp(name, "revindex0") == 0)
        return vl_jv_int(n - at - 1);
    if (strcmp(name, "first") == 0)
        return vl_jv_bool(at == 0);
    if (strcmp(name, "last") == 0)
        return vl_jv_bool(at == n - 1);
    if (strcmp(name, "length") == 0)
        return vl_jv_int(n);
    if (strcmp(name, "depth") == 0)
        return vl_jv_int(l->depth);
    if (strcmp(name, "depth0") == 0)
        return vl_jv_int(l->depth - 1);
    if (strcmp(name, "previtem") == 0)
        return at > 0 ? l->item[at - 1] : vl_jv_undef();
    if (strcmp(name, "nextitem") == 0)
        return at + 1 < n ? l->item[at + 1] : vl_jv_undef();
    if (strcmp(name, "cycle") != 0 && strcmp(name, "changed") != 0)
        return vl_jv_undef();
    m = vl_jalloc(in, sizeof *m);
    m->self = self;
    m->name = name;
    return (struct vl_jv){ .type = VL_J_METHOD, .u.method = m };
}

/* A method of a Python type, or undefined. */
static struct vl_jv method(struct vl_jin *in, struct vl_jv a, const char *name)
{
    int known = vl_jmethod_known(a, name);
    struct vl_jmethod *m;

    if (known < 0 || strncmp(name, "__", 2) == 0)
        return vl_jfail(in, "the attribute \"%.60s\" of a %s is not supported", name,
                        vl_jv_type_name(a));
    if (!known)
        return vl_jv_undef();
    m = vl_jalloc(in, sizeof *m);
    m->self = a;
    m->name = name;
    return (struct vl_jv){ .type = VL_J_METHOD, .u.method = m };
}

struct vl_jv vl_jop_attr(struct vl_jin *in, struct vl_jv a, const char *name)
{
    struct vl_jv v;

    switch ((enum vl_jtype)a.type) {
    case VL_J_UNDEF:
        return vl_jfail(in, "\"%.60s\" of something that is not defined", name);
    case VL_J_LOOP:
        return loop_attr(in, a, name);
    case VL_J_NAMESPACE:
        return vl_jmap_get_name(a.u.map, name, &v) ? v : vl_jv_undef();
    case VL_J_METHOD: /* Python's have no attributes but __call__ and its like */
        if (strncmp(name, "__", 2) != 0)
            return vl_jv_undef();
        /* fall through */
    case VL_J_MACRO:
    case VL_J_FUNC:
        return vl_jfail(in, "attributes of a %s are not supported", vl_jv_type_name(a));
    case VL_J_MAP:
        if (!vl_jmethod_known(a, name) && strncmp(name, "__", 2) != 0)
            return vl_jmap_get_name(a.u.map, name, &v) ? v : vl_jv_undef();
        return method(in, a, name);
    default:
        return method(in, a, name);
    }
}

static struct vl_jv list_item(struct vl_jv a, int64_t i)
{
    int64_t n = (int64_t)a.u.list->n;

    if (a.u.list->kind > VL_J_RANGE)
        return vl_jv_undef();
    i = i < 0 ? i + n : i;
    return i >= 0 && i < n ? a.u.list->v[i] : vl_jv_undef();
}

struct vl_jv vl_jop_item(struct vl_jin *in, struct vl_jv a, struct vl_jv key)
{
    struct vl_jv v;
    int64_t n;

    if (a.type == VL_J_UNDEF)
        return vl_jfail(in, "a subscript of something that is not defined");
    if (a.type == VL_J_MAP && vl_jmap_get(a.u.map, key, &v))
        return v;
    if (key.type == VL_J_STR) {
        char *name = vl_jalloc(in, key.n + 1);

        memcpy(name, key.u.s, key.n);
        return vl_jop_attr(in, a, name);
    }
    if (a.type == VL_J_LIST && integral(key))
        return list_item(a, key.u.i);
    if (a.type == VL_J_STR && integral(key)) {
        n = vl_jv_length(in, a);
        key.u.i += key.u.i < 0 ? n : 0;
        if (key.u.i >= 0 && key.u.i < n)
            return vl_py_slice(in, a, key.u.i, 1, 1);
    }
    return vl_jv_undef();
}

/* ---- slices ---- */

static int slice_bound(struct vl_jin *in, struct vl_jv v, int64_t *out)
{
    if (v.type == VL_J_NONE)
        return 0;
    if (!integral(v)) {
        vl_jfail(in, "a slice bound must be an integer, not %s", vl_jv_type_name(v));
        return 0;
    }
    *out = v.u.i;
    return 1;
}

static int64_t clamp(int64_t x, int64_t lo, int64_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

struct vl_jv vl_jop_slice(struct vl_jin *in, struct vl_jv a, const struct vl_jv bound[3])
{
    int64_t step = 1, at, end, n, count;
    struct vl_jv out;

    if (a.type != VL_J_STR && !(a.type == VL_J_LIST && a.u.list->kind <= VL_J_RANGE))
        return vl_jfail(in, "a %s cannot be sliced", vl_jv_type_name(a));
    n = vl_jv_length(in, a);
    slice_bound(in, bound[2], &step);
    if (step == 0)
        return vl_jfail(in, "slice step cannot be zero");
    step = clamp(step, -n - 1, n + 1);
    if (!slice_bound(in, bound[0], &at))
        at = step > 0 ? 0 : n - 1;
    else
        at = clamp(at < 0 ? at + n : at, step > 0 ? 0 : -1, step > 0 ? n : n - 1);
    if (!slice_bound(in, bound[1], &end))
        end = step > 0 ? n : -1;
    else
        end = clamp(end < 0 ? end + n : end, step > 0 ? 0 : -1, step > 0 ? n : n - 1);
    count = step > 0 ? (end - at + step - 1) / step : (at - end - step - 1) / -step;
    count = clamp(count, 0, n);
    if (a.type == VL_J_STR)
        return count ? vl_py_slice(in, a, at, count, step) : vl_jv_ref("", 0);
    out = vl_jv_list(in, a.u.list->kind, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        vl_jlist_add(in, out.u.list, a.u.list->v[at + i * step]);
    return out;
}
