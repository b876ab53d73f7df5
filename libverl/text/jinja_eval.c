/* jinja_eval.c - walks the tree: scopes, loops, macros, output.
 *
 * Scoping is jinja2's: a loop body, a macro, a set or filter block have a scope of their own, an
 * if has none; set writes to the innermost scope; a macro sees the scope it was defined in. */
#include "libverl/text/jinja_impl.h"

#include <string.h>

enum flow { NEXT, BREAK, CONTINUE };

static enum flow exec(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n);
static struct vl_jv eval(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n);
static void run_loop(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n,
                     struct vl_jv over, int depth);

/* ---- scopes ---- */

static struct vl_jscope *new_scope(struct vl_jin *in, struct vl_jscope *parent)
{
    struct vl_jscope *s = vl_jalloc(in, sizeof *s);

    s->parent = parent;
    return s;
}

static void assign(struct vl_jin *in, struct vl_jscope *s, const char *name, struct vl_jv v)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->var[i].name == name) {
            s->var[i].val = v;
            return;
        }
    if (s->n == s->cap) {
        struct vl_jvar *more;

        s->cap = s->cap ? 2 * s->cap : 4;
        more = vl_jalloc(in, s->cap * sizeof *more);
        if (s->n)
            memcpy(more, s->var, s->n * sizeof *more);
        s->var = more;
    }
    s->var[s->n++] = (struct vl_jvar){ name, v };
}

static struct vl_jv lookup(const struct vl_jscope *s, const char *name)
{
    for (; s; s = s->parent)
        for (size_t i = 0; i < s->n; i++)
            if (s->var[i].name == name)
                return s->var[i].val;
    return vl_jglobal(name);
}

static void assign_target(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *t,
                          struct vl_jv v)
{
    struct vl_jlist *l;

    if (t->kind == VL_JN_NAME) {
        assign(in, s, t->s, v);
    } else if (t->kind == VL_JN_ATTR) {
        struct vl_jv ns = lookup(s, t->a->s);

        if (ns.type != VL_J_NAMESPACE)
            vl_jfail(in, "cannot assign an attribute of a %s that is not a namespace",
                     vl_jv_type_name(ns));
        else
            vl_jmap_set(in, ns.u.map, vl_jv_ref(t->s, strlen(t->s)), v);
    } else if ((l = vl_jv_iter(in, v))) {
        if (l->n != t->nlist)
            vl_jfail(in, "cannot unpack %zu values into %zu names", l->n, t->nlist);
        else
            for (size_t i = 0; i < l->n; i++)
                assign_target(in, s, t->list[i], l->v[i]);
    }
}

/* ---- calls ---- */

int vl_jarg(const struct vl_jargs *a, size_t at, const char *name, struct vl_jv *out)
{
    if (at < a->n) {
        *out = a->v[at];
        return 1;
    }
    for (size_t i = 0; i < a->nkw; i++)
        if (strcmp(a->kw[i], name) == 0) {
            *out = a->kwv[i];
            return 1;
        }
    return 0;
}

int vl_jargs_check(struct vl_jin *in, const struct vl_jargs *a, const char *what, size_t max,
                   const char *names)
{
    if (a->n > max)
        vl_jfail(in, "%s takes at most %zu arguments, %zu given", what, max, a->n);
    for (size_t i = 0; i < a->nkw; i++) {
        size_t n = strlen(a->kw[i]);
        const char *p = names;

        while ((p = strstr(p, a->kw[i])) &&
               !((p == names || p[-1] == ' ') && (p[n] == ' ' || !p[n])))
            p += n;
        if (!p)
            vl_jfail(in, "%s: the argument %.60s= is not supported", what, a->kw[i]);
    }
    return in->e->code;
}

static void eval_args(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n,
                      struct vl_jargs *a)
{
    *a = (struct vl_jargs){ .n = n->nlist, .kw = n->kw, .nkw = n->nkw };
    a->v = n->nlist ? vl_jalloc(in, n->nlist * sizeof *a->v) : NULL;
    a->kwv = n->nkw ? vl_jalloc(in, n->nkw * sizeof *a->kwv) : NULL;
    for (size_t i = 0; i < n->nlist; i++)
        a->v[i] = eval(in, s, n->list[i]);
    for (size_t i = 0; i < n->nkw; i++)
        a->kwv[i] = eval(in, s, n->kwval[i]);
}

/* What the body writes, as a string. *flow: how it ended; after break and continue what it wrote is
 * not wanted. */
static struct vl_jv capture(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *body,
                            enum flow *flow)
{
    struct vl_buf b = { 0 }, *outer = in->out;

    in->out = &b;
    *flow = exec(in, s, body);
    in->out = outer;
    return vl_jv_buf(in, &b);
}

/* caller, varargs and kwargs, where the macro's body names them. */
static void special_args(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n,
                         const struct vl_jargs *a)
{
    struct vl_jv rest = vl_jv_list(in, VL_J_TUPLE, a->n), more = vl_jv_map(in, VL_J_MAP),
                 caller = vl_jv_undef();

    for (size_t i = n->nlist; i < a->n; i++)
        vl_jlist_add(in, rest.u.list, a->v[i]);
    for (size_t k = 0; k < a->nkw; k++) {
        size_t i = 0;

        while (i < n->nlist && n->list[i]->s != a->kw[k])
            i++;
        if ((n->uses & VL_J_CALLER) && strcmp(a->kw[k], "caller") == 0)
            caller = a->kwv[k].type == VL_J_NONE ? caller : a->kwv[k];
        else if (i == n->nlist)
            vl_jmap_set(in, more.u.map, vl_jv_ref(a->kw[k], strlen(a->kw[k])), a->kwv[k]);
    }
    if (n->uses & VL_J_CALLER)
        assign(in, s, vl_jinja_intern(in->t, "caller", 6), caller);
    if (n->uses & VL_J_VARARGS)
        assign(in, s, vl_jinja_intern(in->t, "varargs", 7), rest);
    if (n->uses & VL_J_KWARGS)
        assign(in, s, vl_jinja_intern(in->t, "kwargs", 6), more);
}

static struct vl_jv call_macro(struct vl_jin *in, const struct vl_jmacro *m,
                               const struct vl_jargs *a)
{
    const struct vl_jnode *n = m->node;
    struct vl_jscope *s = new_scope(in, m->scope);
    size_t plain = n->nlist - n->nkw;
    enum flow flow;

    if (n->uses)
        special_args(in, s, n, a);
    if (a->n > n->nlist && !(n->uses & VL_J_VARARGS))
        return vl_jfail(in, "macro %s takes not more than %zu arguments", n->s, n->nlist);
    for (size_t i = 0; i < n->nlist; i++) {
        struct vl_jv v = vl_jv_undef();

        if (i < a->n)
            v = a->v[i];
        else if (!vl_jarg(a, i, n->list[i]->s, &v) && i >= plain)
            v = eval(in, s, n->kwval[i - plain]);
        assign(in, s, n->list[i]->s, v);
    }
    for (size_t k = 0; k < a->nkw; k++) {
        size_t i = 0;

        while (i < n->nlist && n->list[i]->s != a->kw[k])
            i++;
        if (i == n->nlist && ((n->uses & VL_J_KWARGS) ||
                              ((n->uses & VL_J_CALLER) && strcmp(a->kw[k], "caller") == 0)))
            continue;
        if (i == n->nlist || i < a->n)
            return vl_jfail(in, "macro %s got an argument %.60s= it does not take, or twice", n->s,
                            a->kw[k]);
    }
    return capture(in, s, n->a, &flow);
}

/* loop(items) in a recursive loop: what the loop writes for them. */
static struct vl_jv call_loop(struct vl_jin *in, const struct vl_jloop *l, const struct vl_jargs *a)
{
    struct vl_buf b = { 0 }, *outer = in->out;

    if (!l->node)
        return vl_jfail(in, "the loop must have the 'recursive' marker to be called");
    if (a->n != 1 || a->nkw)
        return vl_jfail(in, "loop() takes one argument");
    if (vl_jenter(in) == 0) {
        in->out = &b;
        run_loop(in, l->around, l->node, a->v[0], l->depth + 1);
        in->out = outer;
    }
    in->depth--;
    return vl_jv_buf(in, &b);
}

struct vl_jv vl_jcall(struct vl_jin *in, struct vl_jv f, const struct vl_jargs *a)
{
    if (f.type == VL_J_LOOP)
        return call_loop(in, f.u.loop, a);
    if (f.type == VL_J_MACRO)
        return call_macro(in, f.u.macro, a);
    if (f.type == VL_J_METHOD)
        return vl_jmethod_call(in, f.u.method, a);
    if (f.type != VL_J_FUNC)
        return vl_jfail(in,
                        f.type == VL_J_UNDEF ? "a function that is not defined is called (%s)"
                                             : "a %s is not callable",
                        vl_jv_type_name(f));
    return vl_jglobal_call(in, (enum vl_jfunc)f.u.i, a);
}

/* ---- expressions ---- */

static struct vl_jv eval_items(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n)
{
    struct vl_jv v = vl_jv_list(in, n->kind == VL_JN_TUPLE ? VL_J_TUPLE : VL_J_PLAIN, n->nlist);

    for (size_t i = 0; i < n->nlist; i++)
        vl_jlist_add(in, v.u.list, eval(in, s, n->list[i]));
    return v;
}

static struct vl_jv eval_dict(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n)
{
    struct vl_jv v = vl_jv_map(in, VL_J_MAP);

    for (size_t i = 0; i + 1 < n->nlist && !in->e->code; i += 2) {
        struct vl_jv key = eval(in, s, n->list[i]);

        vl_jmap_set(in, v.u.map, key, eval(in, s, n->list[i + 1]));
    }
    return v;
}

static int compare_one(struct vl_jin *in, enum vl_jop op, struct vl_jv a, struct vl_jv b)
{
    switch (op) {
    case VL_JO_EQ:
        return vl_jv_equal(in, a, b);
    case VL_JO_NE:
        return !vl_jv_equal(in, a, b);
    case VL_JO_IN:
        return vl_jop_in(in, a, b);
    case VL_JO_NOT_IN:
        return !vl_jop_in(in, a, b);
    default:
        break;
    }
    if (vl_jv_number(a, &(double){ 0 }) && vl_jv_number(b, &(double){ 0 })) {
        double x = 0, y = 0; /* NaN is neither less nor greater */

        vl_jv_number(a, &x), vl_jv_number(b, &y);
        if (x != x || y != y)
            return 0;
    }
    switch (op) {
    case VL_JO_LT:
        return vl_jv_compare(in, a, b) < 0;
    case VL_JO_LE:
        return vl_jv_compare(in, a, b) <= 0;
    case VL_JO_GT:
        return vl_jv_compare(in, a, b) > 0;
    default:
        return vl_jv_compare(in, a, b) >= 0;
    }
}

static struct vl_jv eval_compare(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n)
{
    struct vl_jv a = eval(in, s, n->a);

    for (size_t i = 0; i < n->nlist && !in->e->code; i++) {
        struct vl_jv b = eval(in, s, n->list[i]);

        if (!compare_one(in, n->ops[i], a, b))
            return vl_jv_bool(0);
        a = b;
    }
    return vl_jv_bool(1);
}

static struct vl_jv eval_slice(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n)
{
    struct vl_jv bound[3], a = eval(in, s, n->a);

    for (int i = 0; i < 3; i++)
        bound[i] = n->list[i] ? eval(in, s, n->list[i]) : vl_jv_none();
    return vl_jop_slice(in, a, bound);
}

static struct vl_jv eval_call(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n)
{
    struct vl_jv f = eval(in, s, n->a);
    struct vl_jargs a;

    eval_args(in, s, n, &a);
    in->line = n->line;
    return in->e->code ? vl_jv_undef() : vl_jcall(in, f, &a);
}

static struct vl_jv eval_filter(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n)
{
    struct vl_jv v = n->a ? eval(in, s, n->a) : in->block;
    struct vl_jargs a;
    int yes;

    eval_args(in, s, n, &a);
    in->line = n->line;
    if (in->e->code)
        return vl_jv_undef();
    if (n->kind == VL_JN_FILTER)
        return vl_jfilter(in, n->s, v, &a);
    yes = vl_jtest(in, n->s, v, &a);
    return vl_jv_bool(yes);
}

static struct vl_jv eval_kind(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n)
{
    struct vl_jv a;

    switch (n->kind) {
    case VL_JN_CONST:
        return n->val;
    case VL_JN_NAME:
        return lookup(s, n->s);
    case VL_JN_LIST:
    case VL_JN_TUPLE:
        return eval_items(in, s, n);
    case VL_JN_DICT:
        return eval_dict(in, s, n);
    case VL_JN_ATTR:
        a = eval(in, s, n->a);
        if (a.type == VL_J_UNDEF && n->a->kind == VL_JN_NAME)
            return vl_jfail(in, "\"%s\" is not defined (its \"%s\" is wanted)", n->a->s, n->s);
        return vl_jop_attr(in, a, n->s);
    case VL_JN_ITEM:
        a = eval(in, s, n->a);
        return vl_jop_item(in, a, eval(in, s, n->b));
    case VL_JN_SLICE:
        return eval_slice(in, s, n);
    case VL_JN_CALL:
        return eval_call(in, s, n);
    case VL_JN_FILTER:
    case VL_JN_TEST:
        return eval_filter(in, s, n);
    case VL_JN_NOT:
        return vl_jv_bool(!vl_jv_true(eval(in, s, n->a)));
    case VL_JN_NEG:
        return vl_jop_negate(in, eval(in, s, n->a));
    case VL_JN_POS:
        a = eval(in, s, n->a);
        return vl_jv_number(a, &(double){ 0 }) ? vl_jop_binary(in, VL_JO_ADD, vl_jv_int(0), a)
                                               : vl_jop_negate(in, a);
    case VL_JN_AND:
        a = eval(in, s, n->a);
        return vl_jv_true(a) ? eval(in, s, n->b) : a;
    case VL_JN_OR:
        a = eval(in, s, n->a);
        return vl_jv_true(a) ? a : eval(in, s, n->b);
    case VL_JN_BINARY:
        a = eval(in, s, n->a);
        return vl_jop_binary(in, n->op, a, eval(in, s, n->b));
    case VL_JN_COMPARE:
        return eval_compare(in, s, n);
    case VL_JN_IF_EXPR:
        if (vl_jv_true(eval(in, s, n->b)))
            return eval(in, s, n->a);
        return n->c ? eval(in, s, n->c) : vl_jv_undef();
    default:
        return vl_jv_undef();
    }
}

static struct vl_jv eval(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n)
{
    struct vl_jv v = vl_jv_undef();

    if (vl_jenter(in) == 0) {
        in->line = n->line;
        v = eval_kind(in, s, n);
    }
    in->depth--;
    return v;
}

/* ---- statements ---- */

/* The items that pass the loop's own if, tested one by one with the target bound. */
static struct vl_jlist *loop_items(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n,
                                   struct vl_jv over)
{
    struct vl_jlist *all = vl_jv_iter(in, over);
    struct vl_jv kept;

    if (!n->c || !all)
        return all;
    kept = vl_jv_list(in, VL_J_PLAIN, all->n);
    for (size_t i = 0; i < all->n && !vl_jstep(in); i++) {
        struct vl_jscope *inner = new_scope(in, s);

        assign_target(in, inner, n->a, all->v[i]);
        if (vl_jv_true(eval(in, inner, n->c)))
            vl_jlist_add(in, kept.u.list, all->v[i]);
    }
    return kept.u.list;
}

static void run_loop(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n,
                     struct vl_jv over, int depth)
{
    const struct vl_jlist *items = in->e->code ? NULL : loop_items(in, s, n, over);
    const char *loop_name = vl_jinja_intern(in->t, "loop", 4);
    struct vl_jloop *l = vl_jalloc(in, sizeof *l);
    struct vl_jscope *inner = new_scope(in, s);
    int64_t kept = in->kept;
    enum flow flow;
    int whole = 0; /* a round went to its end */

    if (in->e->code || !items)
        return;
    l->depth = depth;
    if (n->uses)
        l->node = n, l->around = s;
    l->item = items->v;
    l->n = items->n;
    for (l->at = 0; l->at < items->n && !vl_jstep(in); l->at++) {
        if (in->kept != kept) /* else nothing looks at the last round's scope any more */
            inner = new_scope(in, s);
        inner->n = 0;
        kept = in->kept;
        assign(in, inner, loop_name, (struct vl_jv){ .type = VL_J_LOOP, .u.loop = l });
        assign_target(in, inner, n->a, items->v[l->at]);
        flow = exec(in, inner, n->list[0]);
        whole |= flow == NEXT;
        if (flow == BREAK)
            break;
    }
    /* jinja2 runs the else also when every round was left early */
    if (!whole && n->list[1])
        exec(in, new_scope(in, s), n->list[1]);
}

static enum flow exec_set_block(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n)
{
    enum flow flow;
    struct vl_jv v = capture(in, new_scope(in, s), n->b, &flow), outer = in->block;

    if (flow != NEXT)
        return flow;
    if (n->c) {
        in->block = v;
        v = eval(in, s, n->c);
        in->block = outer;
    }
    assign_target(in, s, n->a, v);
    return NEXT;
}

static void write(struct vl_jin *in, struct vl_jv v)
{
    if (v.type == VL_J_STR)
        vl_buf_add(in->out, v.u.s, v.n);
    else
        vl_jv_print(in, in->out, v);
    vl_jbuf_check(in, in->out);
}

static enum flow exec_filter_block(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n)
{
    enum flow flow;
    struct vl_jv text = capture(in, new_scope(in, s), n->a, &flow), outer = in->block, v;

    if (flow != NEXT)
        return flow;
    in->block = text;
    v = eval(in, s, n->b);
    in->block = outer;
    if (v.type == VL_J_STR)
        write(in, v);
    else
        vl_jfail(in, "a filter block must give a string, not %s", vl_jv_type_name(v));
    return NEXT;
}

static enum flow exec_with(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n)
{
    struct vl_jscope *inner = new_scope(in, s);

    for (size_t i = 0; i + 1 < n->nlist; i += 2)
        assign_target(in, inner, n->list[i], eval(in, s, n->list[i + 1]));
    return exec(in, inner, n->a);
}

static void exec_macro(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n)
{
    struct vl_jmacro *m = vl_jalloc(in, sizeof *m);

    m->node = n;
    m->scope = s;
    in->kept++;
    assign(in, s, n->s, (struct vl_jv){ .type = VL_J_MACRO, .u.macro = m });
}

static void exec_call_block(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n)
{
    struct vl_jmacro *m = vl_jalloc(in, sizeof *m);
    const struct vl_jnode *c = n->b;
    struct vl_jv f = eval(in, s, c->a);
    const char **kw = vl_jalloc(in, (c->nkw + 1) * sizeof *kw);
    struct vl_jv *kwv = vl_jalloc(in, (c->nkw + 1) * sizeof *kwv);
    struct vl_jargs a;

    eval_args(in, s, c, &a);
    m->node = n;
    m->scope = s;
    in->kept++;
    for (size_t i = 0; i < a.nkw; i++)
        kw[i] = a.kw[i], kwv[i] = a.kwv[i];
    kw[a.nkw] = n->s;
    kwv[a.nkw] = (struct vl_jv){ .type = VL_J_MACRO, .u.macro = m };
    a.kw = kw, a.kwv = kwv, a.nkw++;
    in->line = n->line;
    if (!in->e->code)
        write(in, vl_jcall(in, f, &a));
}

static enum flow exec_kind(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n)
{
    enum flow flow = NEXT;

    switch (n->kind) {
    case VL_JN_TEXT:
        write(in, n->val);
        return NEXT;
    case VL_JN_PRINT:
        write(in, eval(in, s, n->a));
        return NEXT;
    case VL_JN_BLOCK:
        for (size_t i = 0; i < n->nlist && flow == NEXT && !in->e->code; i++)
            flow = exec(in, s, n->list[i]);
        return flow;
    case VL_JN_FOR:
        run_loop(in, s, n, eval(in, s, n->b), 1);
        return NEXT;
    case VL_JN_IF:
        if (vl_jv_true(eval(in, s, n->a)))
            return exec(in, s, n->list[0]);
        return n->list[1] ? exec(in, s, n->list[1]) : NEXT;
    case VL_JN_SET:
        assign_target(in, s, n->a, eval(in, s, n->b));
        return NEXT;
    case VL_JN_SET_BLOCK:
        return exec_set_block(in, s, n);
    case VL_JN_MACRO:
        exec_macro(in, s, n);
        return NEXT;
    case VL_JN_CALL_BLOCK:
        exec_call_block(in, s, n);
        return NEXT;
    case VL_JN_FILTER_BLOCK:
        return exec_filter_block(in, s, n);
    case VL_JN_WITH:
        return exec_with(in, s, n);
    case VL_JN_SCOPE:
        return exec(in, new_scope(in, s), n->a);
    case VL_JN_BREAK:
        return BREAK;
    case VL_JN_CONTINUE:
        return CONTINUE;
    default:
        return NEXT;
    }
}

static enum flow exec(struct vl_jin *in, struct vl_jscope *s, const struct vl_jnode *n)
{
    enum flow flow = NEXT;

    if (vl_jenter(in) == 0) {
        in->line = n->line;
        flow = exec_kind(in, s, n);
    }
    in->depth--;
    return flow;
}

void vl_jrun(struct vl_jin *in)
{
    struct vl_jinja *t = in->t;
    struct vl_jscope *root = new_scope(in, NULL);

    for (size_t i = 0; i < t->nset && !in->e->code; i++)
        assign(in, root, t->set[i].name,
               vl_jv_json(in, t->set[i].json, t->set[i].n, t->set[i].name));
    if (!in->e->code)
        exec(in, root, t->body);
}
