/* jinja_filter.c - what may follow "|", as jinja2's filters.py. Filters over whole lists that take
 * an attribute, a test or another filter are in jinja_filter_seq.c. */
#include "libverl/text/jinja_filter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/text/unicode.h"

#define NO_ARGS(what)                                                                              \
    do {                                                                                           \
        if (vl_jargs_check(in, a, what, 0, ""))                                                    \
            return vl_jv_undef();                                                                  \
    } while (0)

static int truth_arg(const struct vl_jargs *a, size_t at, const char *name)
{
    struct vl_jv v;

    return vl_jarg(a, at, name, &v) && vl_jv_true(v);
}

static struct vl_jv f_trim(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv chars;

    if (vl_jargs_check(in, a, "trim", 1, "chars"))
        return vl_jv_undef();
    v = vl_jv_to_str(in, v);
    if (vl_jarg(a, 0, "chars", &chars) && chars.type == VL_J_STR)
        return vl_py_strip_chars(v, chars, 1, 1);
    return vl_py_strip(v, 1, 1);
}

static struct vl_jv f_upper(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    NO_ARGS("upper");
    return vl_py_case(in, vl_jv_to_str(in, v), VL_PY_UPPER);
}

static struct vl_jv f_lower(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    NO_ARGS("lower");
    return vl_py_case(in, vl_jv_to_str(in, v), VL_PY_LOWER);
}

static struct vl_jv f_title(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    NO_ARGS("title");
    return vl_py_case(in, vl_jv_to_str(in, v), VL_PY_JINJA_TITLE);
}

static struct vl_jv f_capitalize(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    NO_ARGS("capitalize");
    return vl_py_case(in, vl_jv_to_str(in, v), VL_PY_CAPITALIZE);
}

static struct vl_jv f_length(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    NO_ARGS("length");
    return vl_jv_int(vl_jv_length(in, v));
}

static struct vl_jv f_string(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    NO_ARGS("string");
    return vl_jv_to_str(in, v);
}

static struct vl_jv f_safe(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    NO_ARGS("safe");
    v = vl_jv_to_str(in, v);
    v.safe = 1;
    return v;
}

static struct vl_jv f_escape(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    NO_ARGS("escape");
    return vl_py_escape(in, vl_jv_to_str(in, v));
}

static struct vl_jv f_default(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv other = vl_jv_ref("", 0);

    if (vl_jargs_check(in, a, "default", 2, "default_value boolean"))
        return vl_jv_undef();
    vl_jarg(a, 0, "default_value", &other);
    if (v.type == VL_J_UNDEF || (truth_arg(a, 1, "boolean") && !vl_jv_true(v)))
        return other;
    return v;
}

static struct vl_jv f_replace(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv from, to, count = vl_jv_int(-1);

    if (vl_jargs_check(in, a, "replace", 3, "old new count") || !vl_jarg(a, 0, "old", &from) ||
        !vl_jarg(a, 1, "new", &to))
        return vl_jfail(in, "replace needs an old and a new text");
    vl_jarg(a, 2, "count", &count);
    if (count.type == VL_J_NONE)
        count = vl_jv_int(-1);
    v = vl_jv_to_str(in, v);
    return vl_py_replace(in, v, vl_jv_to_str(in, from), vl_jv_to_str(in, to), count.u.i);
}

static struct vl_jv f_tojson(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_json_style style = { .item_sep = ", ", .key_sep = ": " };
    struct vl_jv indent = vl_jv_none(), seps = vl_jv_none();
    struct vl_buf b = { 0 };

    if (vl_jargs_check(in, a, "tojson", 4, "ensure_ascii indent separators sort_keys"))
        return vl_jv_undef();
    style.ensure_ascii = truth_arg(a, 0, "ensure_ascii");
    style.sort_keys = truth_arg(a, 3, "sort_keys");
    vl_jarg(a, 1, "indent", &indent);
    vl_jarg(a, 2, "separators", &seps);
    if (indent.type == VL_J_INT && indent.u.i >= 0 && indent.u.i <= 100) {
        char *s = vl_jalloc(in, 101);

        memset(s, ' ', (size_t)indent.u.i);
        style.indent = s;
    } else if (indent.type == VL_J_STR) {
        style.indent = vl_jv_str(in, indent.u.s, indent.n).u.s;
    } else if (indent.type != VL_J_NONE) {
        return vl_jfail(in, "tojson: this indent is not supported");
    }
    if (style.indent)
        style.item_sep = ",";
    if (seps.type == VL_J_LIST && seps.u.list->n == 2 && seps.u.list->v[0].type == VL_J_STR &&
        seps.u.list->v[1].type == VL_J_STR) {
        style.item_sep = vl_jv_str(in, seps.u.list->v[0].u.s, seps.u.list->v[0].n).u.s;
        style.key_sep = vl_jv_str(in, seps.u.list->v[1].u.s, seps.u.list->v[1].n).u.s;
    } else if (seps.type != VL_J_NONE) {
        return vl_jfail(in, "tojson: separators must be two strings");
    }
    vl_jv_tojson(in, &b, v, &style);
    return vl_jv_buf(in, &b);
}

static struct vl_jv f_indent(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv width = vl_jv_int(4), lines;
    struct vl_buf b = { 0 }, pad = { 0 };
    int first, blank;

    if (vl_jargs_check(in, a, "indent", 3, "width first blank"))
        return vl_jv_undef();
    if (v.type != VL_J_STR)
        return vl_jfail(in, "indent needs a string, not %s", vl_jv_type_name(v));
    vl_jarg(a, 0, "width", &width);
    first = truth_arg(a, 1, "first");
    blank = truth_arg(a, 2, "blank");
    if (width.type == VL_J_STR)
        vl_buf_add(&pad, width.u.s, width.n);
    for (int64_t i = 0; width.type == VL_J_INT && i < width.u.i && i < 10000; i++)
        vl_buf_ch(&pad, ' ');
    vl_buf_add(&b, v.u.s, v.n);
    vl_buf_ch(&b, '\n'); /* jinja2's quirk: a last line end is kept that way */
    lines = vl_py_splitlines(in, vl_jv_buf(in, &b), 0);
    for (size_t i = 0; i < lines.u.list->n && !vl_jbuf_check(in, &b); i++) {
        struct vl_jv line = lines.u.list->v[i];

        if (i)
            vl_buf_ch(&b, '\n');
        if (i ? blank || line.n : first)
            vl_buf_add(&b, pad.s, pad.n);
        vl_buf_add(&b, line.u.s, line.n);
    }
    vl_buf_free(&pad);
    return vl_jv_buf(in, &b);
}

/* ---- numbers ---- */

static struct vl_jv f_abs(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    double x;

    NO_ARGS("abs");
    if (!vl_jv_number(v, &x))
        return vl_jfail(in, "abs needs a number, not %s", vl_jv_type_name(v));
    if (v.type == VL_J_FLOAT)
        return vl_jv_float(fabs(v.u.f));
    return v.u.i < 0 ? vl_jop_negate(in, v) : vl_jv_int(v.u.i);
}

/* The whole string as a number: digits with an optional sign, white space around. */
static int parse_int(struct vl_jin *in, struct vl_jv s, int64_t *out)
{
    struct vl_jv t = vl_py_strip(s, 1, 1);
    char *end, *text = vl_jalloc(in, t.n + 1);
    double x;

    memcpy(text, t.u.s, t.n);
    if (t.n && strspn(text, "+-0123456789") == t.n && strcspn(text + 1, "+-") == t.n - 1 &&
        t.n < 19) {
        *out = strtoll(text, &end, 10);
        return end > text && !*end;
    }
    if (strspn(text, "+-0123456789.eE") != t.n) /* also inf, nan, 1_000: not ours to guess */
        return 0;
    x = strtod(text, &end);
    if (end == text || *end || !(fabs(x) < 9e18))
        return 0;
    *out = (int64_t)x;
    return 1;
}

static struct vl_jv f_int(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv other = vl_jv_int(0);
    int64_t i;

    if (vl_jargs_check(in, a, "int", 1, "default"))
        return vl_jv_undef();
    vl_jarg(a, 0, "default", &other);
    if (v.type == VL_J_INT || v.type == VL_J_BOOL)
        return vl_jv_int(v.u.i);
    if (v.type == VL_J_FLOAT)
        return fabs(v.u.f) < 9e18 ? vl_jv_int((int64_t)v.u.f)
                                  : vl_jfail(in, "int of this number is not supported");
    if (v.type == VL_J_UNDEF)
        return vl_jfail(in, "int of something that is not defined");
    return v.type == VL_J_STR && parse_int(in, v, &i) ? vl_jv_int(i) : other;
}

static struct vl_jv f_float(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv other = vl_jv_float(0), t;
    char *end, *text;
    double x;

    if (vl_jargs_check(in, a, "float", 1, "default"))
        return vl_jv_undef();
    vl_jarg(a, 0, "default", &other);
    if (vl_jv_number(v, &x))
        return vl_jv_float(x);
    if (v.type == VL_J_UNDEF)
        return vl_jfail(in, "float of something that is not defined");
    if (v.type != VL_J_STR)
        return other;
    t = vl_py_strip(v, 1, 1);
    text = vl_jalloc(in, t.n + 1);
    memcpy(text, t.u.s, t.n);
    x = strtod(text, &end);
    return t.n && strspn(text, "+-0123456789.eE") == t.n && !*end ? vl_jv_float(x) : other;
}

static struct vl_jv f_round(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv digits = vl_jv_int(0), method = vl_jv_ref("common", 6);
    char text[400];
    double x;

    if (vl_jargs_check(in, a, "round", 2, "precision method"))
        return vl_jv_undef();
    vl_jarg(a, 0, "precision", &digits);
    vl_jarg(a, 1, "method", &method);
    if (!vl_jv_number(v, &x) || digits.type != VL_J_INT || digits.u.i < 0 || digits.u.i > 15 ||
        fabs(x) > 1e15)
        return vl_jfail(in, "round: this number or precision is not supported");
    if (vl_jv_is_str(method, "common")) { /* printf rounds the exact value half to even */
        if (v.type != VL_J_FLOAT)
            return vl_jv_int(v.u.i);
        snprintf(text, sizeof text, "%.*f", (int)digits.u.i, x);
        return vl_jv_float(strtod(text, NULL));
    }
    if (digits.u.i != 0)
        return vl_jfail(in, "round: ceil and floor with a precision are not supported");
    if (vl_jv_is_str(method, "ceil"))
        return vl_jv_float(ceil(x));
    if (vl_jv_is_str(method, "floor"))
        return vl_jv_float(floor(x));
    return vl_jfail(in, "round: the method must be common, ceil or floor");
}

/* ---- lists ---- */

static struct vl_jv f_list(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jlist *l;
    struct vl_jv out;

    NO_ARGS("list");
    l = vl_jv_iter(in, v);
    out = vl_jv_list(in, VL_J_PLAIN, l ? l->n : 0);
    for (size_t i = 0; l && i < l->n; i++)
        vl_jlist_add(in, out.u.list, l->v[i]);
    return out;
}

static struct vl_jv f_first(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jlist *l;

    NO_ARGS("first");
    l = vl_jv_iter(in, v);
    return l && l->n ? l->v[0] : vl_jv_undef();
}

static struct vl_jv f_last(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jlist *l;

    NO_ARGS("last");
    if (v.type == VL_J_LIST && v.u.list->kind == VL_J_GENERATOR)
        return vl_jfail(in, "last: a generator is not reversible");
    l = vl_jv_iter(in, v);
    return l && l->n ? l->v[l->n - 1] : vl_jv_undef();
}

static struct vl_jv f_reverse(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jlist *l;
    struct vl_jv out;

    NO_ARGS("reverse");
    l = vl_jv_iter(in, v);
    out = vl_jv_list(in, VL_J_GENERATOR, l ? l->n : 0);
    for (size_t i = l ? l->n : 0; i > 0; i--)
        vl_jlist_add(in, out.u.list, l->v[i - 1]);
    if (v.type == VL_J_STR) {
        struct vl_buf b = { 0 };

        for (size_t i = 0; i < out.u.list->n; i++)
            vl_buf_add(&b, out.u.list->v[i].u.s, out.u.list->v[i].n);
        return vl_jv_buf(in, &b);
    }
    return out;
}

static struct vl_jv f_items(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jmethod m = { v, "items" };
    struct vl_jv out;

    NO_ARGS("items");
    if (v.type == VL_J_UNDEF)
        return vl_jv_list(in, VL_J_GENERATOR, 0);
    if (v.type != VL_J_MAP)
        return vl_jfail(in, "items: can only get item pairs from a mapping, not %s",
                        vl_jv_type_name(v));
    out = vl_jmethod_call(in, &m, a);
    if (out.type == VL_J_LIST)
        out.u.list->kind = VL_J_GENERATOR;
    return out;
}

static struct vl_jv f_wordcount(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    int64_t words = 0;
    int inside = 0;
    size_t k;

    NO_ARGS("wordcount");
    v = vl_jv_to_str(in, v);
    for (size_t i = 0; i < v.n; i += k) {
        uint32_t cp;
        int word;

        k = vl_uc_next(v.u.s + i, v.n - i, &cp);
        word = cp != VL_UC_BAD && vl_uc_word(cp);
        words += word && !inside;
        inside = word;
    }
    return vl_jv_int(words);
}

static struct vl_jv f_format(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv args = vl_jv_list(in, VL_J_TUPLE, a->n);

    if (a->nkw)
        return vl_jfail(in, "format with names is not supported");
    for (size_t i = 0; i < a->n; i++)
        vl_jlist_add(in, args.u.list, a->v[i]);
    return vl_py_percent(in, vl_jv_to_str(in, v), args);
}

static struct vl_jv f_center(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv width = vl_jv_int(80);
    struct vl_buf b = { 0 };
    int64_t pad, left;

    if (vl_jargs_check(in, a, "center", 1, "width"))
        return vl_jv_undef();
    vl_jarg(a, 0, "width", &width);
    if (width.type != VL_J_INT || width.u.i > 1000000)
        return vl_jfail(in, "center: this width is not supported");
    v = vl_jv_to_str(in, v);
    pad = width.u.i - vl_jv_length(in, v);
    if (pad <= 0)
        return v;
    left = pad / 2 + (pad & width.u.i & 1);
    for (int64_t i = 0; i < left; i++)
        vl_buf_ch(&b, ' ');
    vl_buf_add(&b, v.u.s, v.n);
    for (int64_t i = left; i < pad; i++)
        vl_buf_ch(&b, ' ');
    return vl_jv_buf(in, &b);
}

static struct vl_jv f_attr(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv name;
    const char *s;

    if (vl_jargs_check(in, a, "attr", 1, "name") || !vl_jarg(a, 0, "name", &name) ||
        name.type != VL_J_STR)
        return vl_jfail(in, "attr needs a name");
    s = vl_jv_str(in, name.u.s, name.n).u.s;
    if (v.type == VL_J_MAP && !vl_jmethod_known(v, s) && strncmp(s, "__", 2) != 0)
        return vl_jv_undef(); /* never an item */
    return vl_jop_attr(in, v, s);
}

static struct vl_jv f_truncate(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a)
{
    struct vl_jv length = vl_jv_int(255), end = vl_jv_ref("...", 3), leeway = vl_jv_int(5), head;
    struct vl_buf b = { 0 };
    int64_t keep;

    if (vl_jargs_check(in, a, "truncate", 4, "length killwords end leeway"))
        return vl_jv_undef();
    vl_jarg(a, 0, "length", &length);
    vl_jarg(a, 2, "end", &end);
    vl_jarg(a, 3, "leeway", &leeway);
    leeway = leeway.type == VL_J_NONE ? vl_jv_int(5) : leeway;
    if (v.type != VL_J_STR || v.safe || end.type != VL_J_STR || length.type != VL_J_INT ||
        leeway.type != VL_J_INT || leeway.u.i < 0 || length.u.i > INT32_MAX ||
        leeway.u.i > INT32_MAX)
        return vl_jfail(in, "truncate of this is not supported");
    keep = length.u.i - vl_jv_length(in, end);
    if (keep < 0)
        return vl_jfail(in, "truncate: the length is less than that of the end");
    if (vl_jv_length(in, v) <= length.u.i + leeway.u.i)
        return v;
    head = keep ? vl_py_slice(in, v, 0, keep, 1) : vl_jv_ref("", 0);
    if (!truth_arg(a, 1, "killwords") && memrchr(head.u.s, ' ', head.n))
        head.n = (size_t)((const char *)memrchr(head.u.s, ' ', head.n) - head.u.s);
    vl_buf_add(&b, head.u.s, head.n);
    vl_buf_add(&b, end.u.s, end.n);
    return vl_jv_buf(in, &b);
}

static const struct {
    const char *name;
    vl_jfilter_fn *fn;
} known[] = {
    { "abs", f_abs },
    { "attr", f_attr },
    { "batch", vl_jf_batch },
    { "capitalize", f_capitalize },
    { "center", f_center },
    { "count", f_length },
    { "d", f_default },
    { "default", f_default },
    { "dictsort", vl_jf_dictsort },
    { "e", f_escape },
    { "escape", f_escape },
    { "first", f_first },
    { "float", f_float },
    { "format", f_format },
    { "groupby", vl_jf_groupby },
    { "indent", f_indent },
    { "int", f_int },
    { "items", f_items },
    { "join", vl_jf_join },
    { "last", f_last },
    { "length", f_length },
    { "list", f_list },
    { "lower", f_lower },
    { "map", vl_jf_map },
    { "max", vl_jf_max },
    { "min", vl_jf_min },
    { "reject", vl_jf_reject },
    { "rejectattr", vl_jf_rejectattr },
    { "replace", f_replace },
    { "reverse", f_reverse },
    { "round", f_round },
    { "safe", f_safe },
    { "select", vl_jf_select },
    { "selectattr", vl_jf_selectattr },
    { "slice", vl_jf_slice },
    { "sort", vl_jf_sort },
    { "string", f_string },
    { "sum", vl_jf_sum },
    { "title", f_title },
    { "tojson", f_tojson },
    { "trim", f_trim },
    { "truncate", f_truncate },
    { "unique", vl_jf_unique },
    { "upper", f_upper },
    { "wordcount", f_wordcount },
};

static vl_jfilter_fn *find(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].fn;
    return NULL;
}

int vl_jfilter_known(const char *name)
{
    return find(name) != NULL;
}

int vl_jfilter_exists(const char *name)
{
    static const char *const more[] = { "filesizeformat", "forceescape", "pprint",
                                        "random",         "striptags",   "urlencode",
                                        "urlize",         "wordwrap",    "xmlattr" };

    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (strcmp(more[i], name) == 0)
            return 1;
    return vl_jfilter_known(name);
}

struct vl_jv vl_jfilter(struct vl_jin *in, const char *name, struct vl_jv v,
                        const struct vl_jargs *a)
{
    vl_jfilter_fn *fn = find(name);

    return fn ? fn(in, v, a) : vl_jfail(in, "the filter \"%.60s\" is not supported", name);
}
