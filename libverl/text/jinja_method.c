/* jinja_method.c - methods of Python's str, dict and list that templates call.
 *
 * Each type also lists the names Python has and we do not: those are refused, never undefined. */
#include "libverl/text/jinja_impl.h"

#include <string.h>

#include "libverl/text/unicode.h"

/* Separated by spaces on both sides of each name, for the search below. */
static const char ours_str[] =
    " strip lstrip rstrip upper lower title capitalize startswith endswith split rsplit splitlines "
    "replace find count join isdigit isspace isupper islower isalpha isalnum removeprefix "
    "removesuffix format ";
static const char python_str[] =
    " casefold center encode expandtabs format_map index isascii isdecimal isidentifier isnumeric "
    "isprintable istitle ljust maketrans partition rfind rindex rjust rpartition swapcase "
    "translate zfill ";
static const char ours_dict[] = " get items keys values ";
static const char python_dict[] = " clear copy fromkeys pop popitem setdefault update ";
static const char ours_list[] = " count index ";
static const char python_list[] = " append clear copy extend insert pop remove reverse sort ";
static const char python_number[] =
    " real imag numerator denominator bit_length bit_count conjugate from_bytes to_bytes "
    "as_integer_ratio is_integer hex fromhex ";

/* Those of a |safe string that would escape their arguments. */
static const char escaping_str[] = " replace join format ";

static int listed(const char *names, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = names; (p = strstr(p, name)); p += n)
        if (p > names && p[-1] == ' ' && p[n] == ' ')
            return 1;
    return 0;
}

int vl_jmethod_known(struct vl_jv self, const char *name)
{
    const char *ours = " ", *python = " ";

    if (!*name)
        return 0;
    if (self.type == VL_J_STR)
        ours = ours_str, python = python_str;
    else if (self.type == VL_J_MAP)
        ours = ours_dict, python = python_dict;
    else if (self.type == VL_J_LIST && self.u.list->kind <= VL_J_RANGE)
        ours = ours_list,
        python = self.u.list->kind == VL_J_PLAIN ? python_list : " start stop step ";
    else if (self.type == VL_J_LIST)
        python = " isdisjoint mapping send throw close gi_frame gi_code ";
    else if (self.type >= VL_J_BOOL && self.type <= VL_J_FLOAT)
        python = python_number;
    return listed(ours, name) ? 1 : listed(python, name) ? -1 : 0;
}

/* ---- str ---- */

static int64_t int_arg(struct vl_jin *in, const struct vl_jargs *a, size_t at, const char *name,
                       int64_t otherwise)
{
    struct vl_jv v;

    if (!vl_jarg(a, at, name, &v))
        return otherwise;
    if (v.type != VL_J_INT && v.type != VL_J_BOOL)
        vl_jfail(in, "%s must be an integer, not %s", name, vl_jv_type_name(v));
    return v.u.i;
}

static struct vl_jv str_arg(struct vl_jin *in, const struct vl_jargs *a, size_t at,
                            const char *name)
{
    struct vl_jv v;

    if (!vl_jarg(a, at, name, &v) || v.type != VL_J_STR) {
        vl_jfail(in, "%s must be a string", name);
        return vl_jv_ref("", 0);
    }
    return v;
}

static struct vl_jv strip(struct vl_jin *in, struct vl_jv s, const struct vl_jargs *a, int left,
                          int right)
{
    struct vl_jv chars;

    if (!vl_jarg(a, 0, "chars", &chars) || chars.type == VL_J_NONE)
        return vl_py_strip(s, left, right);
    return vl_py_strip_chars(s, str_arg(in, a, 0, "chars"), left, right);
}

static int affix(struct vl_jv s, struct vl_jv x, int at_end)
{
    return x.type == VL_J_STR && x.n <= s.n &&
           memcmp(s.u.s + (at_end ? s.n - x.n : 0), x.u.s, x.n) == 0;
}

/* startswith and endswith: a string or a tuple of strings. */
static struct vl_jv has_affix(struct vl_jin *in, struct vl_jv s, const struct vl_jargs *a,
                              int at_end)
{
    struct vl_jv x = vl_jv_none();
    int yes = 0;

    if (a->n != 1)
        return vl_jfail(in, "startswith and endswith with a range are not supported");
    x = a->v[0];
    if (x.type == VL_J_LIST && x.u.list->kind == VL_J_TUPLE) {
        for (size_t i = 0; i < x.u.list->n; i++)
            yes |= affix(s, x.u.list->v[i], at_end);
        return vl_jv_bool(yes);
    }
    str_arg(in, a, 0, "the first argument");
    return vl_jv_bool(affix(s, x, at_end));
}

static struct vl_jv remove_affix(struct vl_jin *in, struct vl_jv s, const struct vl_jargs *a,
                                 int at_end)
{
    struct vl_jv x = str_arg(in, a, 0, "the first argument");

    if (affix(s, x, at_end)) {
        s.u.s += at_end ? 0 : x.n;
        s.n -= x.n;
    }
    return s;
}

static struct vl_jv count_in(struct vl_jin *in, struct vl_jv s, const struct vl_jargs *a)
{
    struct vl_jv x = str_arg(in, a, 0, "the first argument");
    int64_t n = 0;

    if (a->n != 1)
        return vl_jfail(in, "count with a range is not supported");
    if (!x.n)
        return vl_jv_int(vl_jv_length(in, s) + 1);
    for (const char *p = s.u.s; (p = memmem(p, (size_t)(s.u.s + s.n - p), x.u.s, x.n)); p += x.n)
        n++;
    return vl_jv_int(n);
}

static struct vl_jv join(struct vl_jin *in, struct vl_jv sep, const struct vl_jargs *a)
{
    struct vl_buf b = { 0 };
    struct vl_jlist *l = a->n == 1 ? vl_jv_iter(in, a->v[0]) : NULL;

    if (!l)
        return vl_jfail(in, "join needs one iterable");
    for (size_t i = 0; i < l->n && !vl_jbuf_check(in, &b); i++) {
        if (l->v[i].type != VL_J_STR) {
            vl_jfail(in, "join: item %zu is a %s, not a string", i, vl_jv_type_name(l->v[i]));
            break;
        }
        if (i)
            vl_buf_add(&b, sep.u.s, sep.n);
        vl_buf_add(&b, l->v[i].u.s, l->v[i].n);
    }
    return vl_jv_buf(in, &b);
}

/* isdigit, isspace, isalpha, isalnum: every character, and at least one. */
static struct vl_jv all_are(struct vl_jin *in, struct vl_jv s, const char *what)
{
    size_t k;

    for (size_t i = 0; i < s.n; i += k) {
        uint32_t cp;
        int digit, letter, space;

        k = vl_uc_next(s.u.s + i, s.n - i, &cp);
        if (cp >= 0x80 && strcmp(what, "isspace") != 0)
            return vl_jfail(in, "%s of characters beyond ASCII is not supported", what);
        digit = cp >= '0' && cp <= '9';
        letter = (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z');
        space = vl_py_space(cp);
        if (!(what[2] == 'd'   ? digit
              : what[2] == 's' ? space
              : what[4] == 'n' ? digit || letter
                               : letter))
            return vl_jv_bool(0);
    }
    return vl_jv_bool(s.n > 0);
}

/* "{}", "{0}", "{name}" without a format or conversion; "{{" and "}}". */
static struct vl_jv format(struct vl_jin *in, struct vl_jv s, const struct vl_jargs *a)
{
    struct vl_buf b = { 0 };
    size_t next = 0, numbered = 0;

    for (size_t i = 0; i < s.n && !vl_jbuf_check(in, &b); i++) {
        char c = s.u.s[i], name[64] = { 0 };
        size_t n = 0, at = SIZE_MAX;
        struct vl_jv v;

        if (c != '{' && c != '}') {
            vl_buf_ch(&b, c);
            continue;
        }
        if (i + 1 < s.n && s.u.s[i + 1] == c) {
            vl_buf_ch(&b, c);
            i++;
            continue;
        }
        for (i++; i < s.n && s.u.s[i] != '}' && n < sizeof name - 1; i++)
            name[n++] = s.u.s[i];
        if (n == 1 && *name >= '0' && *name <= '9')
            at = (size_t)(*name - '0'), numbered++;
        else if (!n)
            at = next++;
        if (c == '}' || i >= s.n || s.u.s[i] != '}' || strpbrk(name, ":!.[{"))
            vl_jfail(in, "format: this replacement field is not supported");
        else if (next && numbered)
            vl_jfail(in, "format: {} and {0} cannot be mixed");
        else if (!vl_jarg(a, at, name, &v))
            vl_jfail(in, "format: no argument for {%s}", name);
        else
            vl_jv_print(in, &b, v);
    }
    return vl_jv_buf(in, &b);
}

static struct vl_jv str_method(struct vl_jin *in, struct vl_jv s, const char *name,
                               const struct vl_jargs *a)
{
    struct vl_jv sep = vl_jv_none();

    if (strcmp(name, "strip") == 0)
        return strip(in, s, a, 1, 1);
    if (strcmp(name, "lstrip") == 0)
        return strip(in, s, a, 1, 0);
    if (strcmp(name, "rstrip") == 0)
        return strip(in, s, a, 0, 1);
    if (strcmp(name, "upper") == 0)
        return vl_py_case(in, s, VL_PY_UPPER);
    if (strcmp(name, "lower") == 0)
        return vl_py_case(in, s, VL_PY_LOWER);
    if (strcmp(name, "title") == 0)
        return vl_py_case(in, s, VL_PY_TITLE);
    if (strcmp(name, "capitalize") == 0)
        return vl_py_case(in, s, VL_PY_CAPITALIZE);
    if (strcmp(name, "startswith") == 0)
        return has_affix(in, s, a, 0);
    if (strcmp(name, "endswith") == 0)
        return has_affix(in, s, a, 1);
    if (strcmp(name, "removeprefix") == 0)
        return remove_affix(in, s, a, 0);
    if (strcmp(name, "removesuffix") == 0)
        return remove_affix(in, s, a, 1);
    if (strcmp(name, "split") == 0 || strcmp(name, "rsplit") == 0) {
        vl_jarg(a, 0, "sep", &sep);
        return vl_py_split(in, s, sep, int_arg(in, a, 1, "maxsplit", -1), name[0] == 'r');
    }
    if (strcmp(name, "splitlines") == 0)
        return vl_py_splitlines(in, s, (int)int_arg(in, a, 0, "keepends", 0));
    if (strcmp(name, "replace") == 0)
        return vl_py_replace(in, s, str_arg(in, a, 0, "old"), str_arg(in, a, 1, "new"),
                             int_arg(in, a, 2, "count", -1));
    if (strcmp(name, "find") == 0)
        return a->n == 1 ? vl_jv_int(vl_py_find(s, str_arg(in, a, 0, "the first argument")))
                         : vl_jfail(in, "find with a range is not supported");
    if (strcmp(name, "count") == 0)
        return count_in(in, s, a);
    if (strcmp(name, "join") == 0)
        return join(in, s, a);
    if (strcmp(name, "isupper") == 0 || strcmp(name, "islower") == 0)
        return vl_jv_bool(vl_py_is_case(s, name[2] == 'u'));
    if (strcmp(name, "format") == 0)
        return format(in, s, a);
    return all_are(in, s, name);
}

/* ---- dict, list, loop ---- */

static struct vl_jv dict_view(struct vl_jin *in, const struct vl_jmap *m, enum vl_jlist_kind kind)
{
    struct vl_jv v = vl_jv_list(in, kind, m->n), pair;

    for (size_t i = 0; i < m->n; i++) {
        if (kind == VL_J_ITEMS) {
            pair = vl_jv_list(in, VL_J_TUPLE, 2);
            vl_jlist_add(in, pair.u.list, m->key[i]);
            vl_jlist_add(in, pair.u.list, m->val[i]);
        } else {
            pair = kind == VL_J_KEYS ? m->key[i] : m->val[i];
        }
        vl_jlist_add(in, v.u.list, pair);
    }
    return v;
}

static struct vl_jv dict_method(struct vl_jin *in, struct vl_jv d, const char *name,
                                const struct vl_jargs *a)
{
    struct vl_jv key, v = vl_jv_none();

    if (strcmp(name, "get") != 0) {
        if (a->n || a->nkw)
            return vl_jfail(in, "dict.%s takes no arguments", name);
        return dict_view(in, d.u.map,
                         name[0] == 'i'   ? VL_J_ITEMS
                         : name[0] == 'k' ? VL_J_KEYS
                                          : VL_J_VALUES);
    }
    if (a->n < 1 || a->n > 2 || a->nkw)
        return vl_jfail(in, "dict.get takes one or two arguments");
    key = a->v[0];
    if (a->n == 2)
        v = a->v[1];
    vl_jmap_get(d.u.map, key, &v);
    return v;
}

static struct vl_jv list_method(struct vl_jin *in, const struct vl_jlist *l, const char *name,
                                const struct vl_jargs *a)
{
    int64_t count = 0;

    if (a->n != 1 || a->nkw)
        return vl_jfail(in, "list.%s takes one argument here", name);
    for (size_t i = 0; i < l->n && !vl_jstep(in); i++)
        if (vl_jv_equal(in, l->v[i], a->v[0])) {
            if (name[0] == 'i')
                return vl_jv_int((int64_t)i);
            count++;
        }
    return name[0] == 'i' ? vl_jfail(in, "list.index: the value is not in the list")
                          : vl_jv_int(count);
}

static struct vl_jv loop_method(struct vl_jin *in, struct vl_jloop *l, const char *name,
                                const struct vl_jargs *a)
{
    struct vl_jv now = vl_jv_list(in, VL_J_TUPLE, a->n);
    int same;

    if (strcmp(name, "cycle") == 0)
        return a->n ? a->v[l->at % a->n] : vl_jfail(in, "loop.cycle needs items");
    for (size_t i = 0; i < a->n; i++)
        vl_jlist_add(in, now.u.list, a->v[i]);
    same = l->changed && vl_jv_equal(in, *l->changed, now);
    if (!l->changed)
        l->changed = vl_jalloc(in, sizeof *l->changed);
    *l->changed = now;
    return vl_jv_bool(!same);
}

struct vl_jv vl_jmethod_call(struct vl_jin *in, const struct vl_jmethod *m,
                             const struct vl_jargs *a)
{
    struct vl_jv v;

    switch ((enum vl_jtype)m->self.type) {
    case VL_J_STR:
        if (m->self.safe && listed(escaping_str, m->name))
            return vl_jfail(in, "the method %.60s of a |safe string is not supported", m->name);
        v = str_method(in, m->self, m->name, a);
        if (m->self.safe && v.type == VL_J_STR)
            v.safe = 1;
        for (size_t i = 0; m->self.safe && v.type == VL_J_LIST && i < v.u.list->n; i++)
            v.u.list->v[i].safe = 1;
        return v;
    case VL_J_MAP:
        return dict_method(in, m->self, m->name, a);
    case VL_J_LIST:
        return list_method(in, m->self.u.list, m->name, a);
    case VL_J_LOOP:
        return loop_method(in, m->self.u.loop, m->name, a);
    default:
        return vl_jfail(in, "the method %.60s of a %s is not supported", m->name,
                        vl_jv_type_name(m->self));
    }
}
