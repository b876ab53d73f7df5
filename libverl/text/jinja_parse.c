/* jinja_parse.c - expressions: tokens to a tree, by jinja2's grammar (its parser.py, same
 * precedence). Statements are in jinja_stmt.c.
 *
 * Names of filters and tests are checked here: a template that uses one we lack is refused before
 * it renders anything. */
#include "libverl/text/jinja_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- small tools ---- */

const char *vl_jinja_intern(struct vl_jinja *t, const char *s, size_t n)
{
    char *copy;

    for (size_t i = 0; i < t->nintern; i++)
        if (strlen(t->intern[i]) == n && memcmp(t->intern[i], s, n) == 0)
            return t->intern[i];
    if (t->nintern == t->cap_intern) {
        t->cap_intern = t->cap_intern ? 2 * t->cap_intern : 32;
        t->intern = vl_realloc(t->intern, t->cap_intern * sizeof *t->intern);
    }
    copy = vl_jregion_take(&t->tree, n + 1);
    memcpy(copy, s, n);
    t->intern[t->nintern++] = copy;
    return copy;
}

struct vl_jnode *vl_jp_node(struct vl_jparser *p, enum vl_jkind kind)
{
    struct vl_jnode *n = vl_jalloc(p->in, sizeof *n);

    n->kind = kind;
    n->line = p->tok->line;
    return n;
}

/* Records a syntax error; the node returned is harmless. */
struct vl_jnode *vl_jp_fail(struct vl_jparser *p, const char *what)
{
    p->in->line = p->tok->line;
    vl_jfail(p->in, "%s", what);
    return vl_jp_node(p, VL_JN_CONST);
}

static const char *shown(struct vl_jparser *p)
{
    static const char *const name[] = { "the end of the template", "text", "{{", "}}", "{%", "%}" };
    struct vl_jtok *t = p->tok;
    char *s;

    if (t->type <= VL_JT_BLOCK_END)
        return name[t->type];
    s = vl_jalloc(p->in, t->n + 1);
    memcpy(s, t->s, t->n < 60 ? t->n : 60);
    return s;
}

struct vl_jnode *vl_jp_expected(struct vl_jparser *p, const char *what)
{
    p->in->line = p->tok->line;
    vl_jfail(p->in, "expected %s, found %s", what, shown(p));
    return vl_jp_node(p, VL_JN_CONST);
}

void vl_jp_push(struct vl_jparser *p, struct vl_jnode *n, struct vl_jnode *child)
{
    if ((n->nlist & (n->nlist - 1)) == 0) { /* grows at powers of two */
        struct vl_jnode **more = vl_jalloc(p->in, 2 * (n->nlist + 1) * sizeof *more);

        if (n->nlist)
            memcpy(more, n->list, n->nlist * sizeof *more);
        n->list = more;
    }
    n->list[n->nlist++] = child;
}

void vl_jp_push_kw(struct vl_jparser *p, struct vl_jnode *n, const char *name,
                   struct vl_jnode *value)
{
    const char **kw = vl_jalloc(p->in, (n->nkw + 1) * sizeof *kw);
    struct vl_jnode **val = vl_jalloc(p->in, (n->nkw + 1) * sizeof *val);

    for (size_t i = 0; i < n->nkw; i++)
        kw[i] = n->kw[i], val[i] = n->kwval[i];
    kw[n->nkw] = name, val[n->nkw] = value;
    n->kw = kw, n->kwval = val;
    n->nkw++;
}

int vl_jp_is_op(const struct vl_jparser *p, int op)
{
    return p->tok->type == VL_JT_OP && p->tok->op == op;
}

int vl_jp_is_name(const struct vl_jparser *p, const char *name)
{
    return p->tok->type == VL_JT_NAME && strcmp(p->tok->s, name) == 0;
}

int vl_jp_skip_op(struct vl_jparser *p, int op)
{
    if (!vl_jp_is_op(p, op))
        return 0;
    p->tok++;
    return 1;
}

int vl_jp_skip_name(struct vl_jparser *p, const char *name)
{
    if (!vl_jp_is_name(p, name))
        return 0;
    p->tok++;
    return 1;
}

void vl_jp_expect_op(struct vl_jparser *p, int op, const char *what)
{
    if (!vl_jp_skip_op(p, op))
        vl_jp_expected(p, what);
}

const char *vl_jp_expect_name(struct vl_jparser *p)
{
    if (p->tok->type != VL_JT_NAME) {
        vl_jp_expected(p, "a name");
        return vl_jinja_intern(p->in->t, "", 0);
    }
    return (p->tok++)->s;
}

int vl_jp_failed(const struct vl_jparser *p)
{
    return p->in->e->code != 0;
}

/* ---- expressions ---- */

static struct vl_jnode *or_expr(struct vl_jparser *p);
static struct vl_jnode *unary(struct vl_jparser *p, int with_filter);

int vl_jp_reserved(const char *name)
{
    static const char *const word[] = { "and", "else", "for", "if", "in", "is", "not", "or" };

    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        if (strcmp(word[i], name) == 0)
            return 1;
    return 0;
}

int vl_jp_special(const char *name)
{
    return strcmp(name, "caller") == 0    ? VL_J_CALLER
           : strcmp(name, "varargs") == 0 ? VL_J_VARARGS
           : strcmp(name, "kwargs") == 0  ? VL_J_KWARGS
                                          : 0;
}

/* Elements up to a closing bracket; returns whether a comma was seen (a tuple). */
static int elements(struct vl_jparser *p, struct vl_jnode *n, int close, const char *what)
{
    int comma = 0;

    while (!vl_jp_is_op(p, close) && !vl_jp_failed(p)) {
        vl_jp_push(p, n, vl_jp_expression(p));
        if (vl_jp_is_op(p, close))
            break;
        comma = 1;
        vl_jp_expect_op(p, ',', what);
    }
    vl_jp_expect_op(p, close, what);
    return comma;
}

static struct vl_jnode *dict(struct vl_jparser *p)
{
    struct vl_jnode *n = vl_jp_node(p, VL_JN_DICT);

    while (!vl_jp_is_op(p, '}') && !vl_jp_failed(p)) {
        vl_jp_push(p, n, vl_jp_expression(p));
        vl_jp_expect_op(p, ':', "':'");
        vl_jp_push(p, n, vl_jp_expression(p));
        if (!vl_jp_is_op(p, '}'))
            vl_jp_expect_op(p, ',', "',' or '}'");
    }
    vl_jp_expect_op(p, '}', "'}'");
    return n;
}

static struct vl_jnode *name(struct vl_jparser *p)
{
    struct vl_jnode *n = vl_jp_node(p, VL_JN_CONST);
    const char *s = (p->tok++)->s;

    if (strcmp(s, "true") == 0 || strcmp(s, "True") == 0)
        n->val = vl_jv_bool(1);
    else if (strcmp(s, "false") == 0 || strcmp(s, "False") == 0)
        n->val = vl_jv_bool(0);
    else if (strcmp(s, "none") == 0 || strcmp(s, "None") == 0)
        n->val = vl_jv_none();
    else
        n->kind = VL_JN_NAME, n->s = s;
    p->uses |= vl_jp_special(s);
    return n;
}

static struct vl_jnode *literal(struct vl_jparser *p)
{
    struct vl_jnode *n = vl_jp_node(p, VL_JN_CONST);
    struct vl_buf b = { 0 };
    struct vl_jtok *t = p->tok;

    if (t->type == VL_JT_STRING) {
        while (p->tok->type == VL_JT_STRING) { /* strings in a row are one */
            vl_buf_add(&b, p->tok->s, p->tok->n);
            p->tok++;
        }
        n->val = vl_jv_buf(p->in, &b);
        return n;
    }
    p->tok++;
    if (t->type == VL_JT_FLOAT) {
        n->val = vl_jv_float(strtod(t->s, NULL));
        return n;
    }
    n->val = vl_jv_digits(t->s, t->n);
    return n;
}

static struct vl_jnode *primary(struct vl_jparser *p)
{
    struct vl_jnode *n;
    int comma;

    if (p->tok->type == VL_JT_NAME)
        return vl_jp_reserved(p->tok->s) ? vl_jp_expected(p, "a value") : name(p);
    if (p->tok->type >= VL_JT_STRING && p->tok->type <= VL_JT_FLOAT)
        return literal(p);
    if (vl_jp_skip_op(p, '(')) {
        n = vl_jp_node(p, VL_JN_TUPLE);
        comma = elements(p, n, ')', "',' or ')'");
        return comma || n->nlist == 0 ? n : n->list[0];
    }
    if (vl_jp_skip_op(p, '[')) {
        n = vl_jp_node(p, VL_JN_LIST);
        elements(p, n, ']', "',' or ']'");
        return n;
    }
    if (vl_jp_skip_op(p, '{'))
        return dict(p);
    return vl_jp_expected(p, "a value");
}

/* The arguments after "(" into n. */
static void arguments(struct vl_jparser *p, struct vl_jnode *n)
{
    while (!vl_jp_is_op(p, ')') && !vl_jp_failed(p)) {
        if (vl_jp_is_op(p, '*') || vl_jp_is_op(p, '*' << 8 | '*')) {
            vl_jp_fail(p, "arguments given by * or ** are not supported");
        } else if (p->tok->type == VL_JT_NAME && p->tok[1].type == VL_JT_OP &&
                   p->tok[1].op == '=') {
            const char *kw = p->tok->s;

            p->tok += 2;
            vl_jp_push_kw(p, n, kw, vl_jp_expression(p));
        } else {
            if (n->nkw)
                vl_jp_fail(p, "a positional argument after a keyword argument");
            vl_jp_push(p, n, vl_jp_expression(p));
        }
        if (!vl_jp_is_op(p, ')'))
            vl_jp_expect_op(p, ',', "',' or ')'");
    }
    vl_jp_expect_op(p, ')', "')'");
}

static struct vl_jnode *subscript(struct vl_jparser *p, struct vl_jnode *of)
{
    struct vl_jnode *n = vl_jp_node(p, VL_JN_ITEM), *first = NULL;

    n->a = of;
    if (!vl_jp_is_op(p, ':'))
        first = vl_jp_expression(p);
    if (!vl_jp_is_op(p, ':')) {
        if (vl_jp_is_op(p, ','))
            vl_jp_fail(p, "a subscript of several values is not supported");
        n->b = first;
        vl_jp_expect_op(p, ']', "']'");
        return n;
    }
    n->kind = VL_JN_SLICE;
    vl_jp_push(p, n, first);
    for (int i = 0; i < 2; i++) {
        struct vl_jnode *bound = NULL;

        if (vl_jp_skip_op(p, ':') && !vl_jp_is_op(p, ':') && !vl_jp_is_op(p, ']'))
            bound = vl_jp_expression(p);
        vl_jp_push(p, n, bound);
    }
    vl_jp_expect_op(p, ']', "']'");
    return n;
}

static struct vl_jnode *call(struct vl_jparser *p, struct vl_jnode *of)
{
    struct vl_jnode *n = vl_jp_node(p, VL_JN_CALL);

    n->a = of;
    arguments(p, n);
    return n;
}

static struct vl_jnode *postfix(struct vl_jparser *p, struct vl_jnode *n)
{
    while (!vl_jp_failed(p)) {
        if (vl_jp_skip_op(p, '.')) {
            struct vl_jnode *of = n;

            n = vl_jp_node(p, p->tok->type == VL_JT_INT ? VL_JN_ITEM : VL_JN_ATTR);
            n->a = of;
            if (n->kind == VL_JN_ITEM)
                n->b = literal(p);
            else
                n->s = vl_jp_expect_name(p);
        } else if (vl_jp_skip_op(p, '[')) {
            n = subscript(p, n);
        } else if (vl_jp_skip_op(p, '(')) {
            n = call(p, n);
        } else {
            break;
        }
    }
    return n;
}

struct vl_jnode *vl_jp_filter(struct vl_jparser *p, struct vl_jnode *of)
{
    struct vl_jnode *n = vl_jp_node(p, VL_JN_FILTER);
    char what[160];

    n->a = of;
    n->s = vl_jp_expect_name(p);
    if (!vl_jp_failed(p) && !vl_jfilter_known(n->s)) {
        snprintf(what, sizeof what, "the filter \"%.80s\" is not supported", n->s);
        vl_jp_fail(p, what);
    }
    if (vl_jp_skip_op(p, '('))
        arguments(p, n);
    return n;
}

static struct vl_jnode *test(struct vl_jparser *p, struct vl_jnode *of)
{
    struct vl_jnode *n = vl_jp_node(p, VL_JN_TEST), *not ;
    int negated = vl_jp_skip_name(p, "not");
    char what[160];

    n->a = of;
    n->s = vl_jp_expect_name(p);
    if (!vl_jp_failed(p) && !vl_jtest_known(n->s)) {
        snprintf(what, sizeof what, "the test \"%.80s\" is not supported", n->s);
        vl_jp_fail(p, what);
    }
    if (vl_jp_skip_op(p, '(')) {
        arguments(p, n);
    } else if ((p->tok->type == VL_JT_NAME && !vl_jp_is_name(p, "else") &&
                !vl_jp_is_name(p, "or") && !vl_jp_is_name(p, "and")) ||
               (p->tok->type >= VL_JT_STRING && p->tok->type <= VL_JT_FLOAT) ||
               vl_jp_is_op(p, '[') || vl_jp_is_op(p, '{')) {
        if (vl_jp_is_name(p, "is"))
            return vl_jp_fail(p, "you cannot chain multiple tests with is");
        vl_jp_push(p, n, postfix(p, primary(p)));
    }
    if (!negated)
        return n;
    not = vl_jp_node(p, VL_JN_NOT);
    not ->a = n;
    return not ;
}

struct vl_jnode *vl_jp_filters(struct vl_jparser *p, struct vl_jnode *n)
{
    while (!vl_jp_failed(p)) {
        if (vl_jp_skip_op(p, '|'))
            n = vl_jp_filter(p, n);
        else if (vl_jp_skip_name(p, "is"))
            n = test(p, n);
        else if (vl_jp_skip_op(p, '(')) /* also after a filter */
            n = call(p, n);
        else
            break;
    }
    return n;
}

static struct vl_jnode *unary(struct vl_jparser *p, int with_filter)
{
    struct vl_jnode *n;

    if (++p->nest > VL_J_MAX_NEST)
        vl_jp_fail(p, "expressions are nested too deeply");
    if (vl_jp_failed(p)) {
        n = vl_jp_node(p, VL_JN_CONST);
    } else if (vl_jp_is_op(p, '-') || vl_jp_is_op(p, '+')) {
        n = vl_jp_node(p, vl_jp_is_op(p, '-') ? VL_JN_NEG : VL_JN_POS);
        p->tok++;
        n->a = unary(p, 0);
    } else {
        n = primary(p);
    }
    n = postfix(p, n);
    if (with_filter)
        n = vl_jp_filters(p, n);
    p->nest--;
    return n;
}

static struct vl_jnode *binary(struct vl_jparser *p, enum vl_jop op, struct vl_jnode *a,
                               struct vl_jnode *b)
{
    struct vl_jnode *n = vl_jp_node(p, VL_JN_BINARY);

    n->op = op, n->a = a, n->b = b;
    return n;
}

static struct vl_jnode *power(struct vl_jparser *p)
{
    struct vl_jnode *n = unary(p, 1);

    while (vl_jp_skip_op(p, '*' << 8 | '*'))
        n = binary(p, VL_JO_POW, n, unary(p, 1));
    return n;
}

static struct vl_jnode *product(struct vl_jparser *p)
{
    struct vl_jnode *n = power(p);

    for (;;) {
        if (vl_jp_skip_op(p, '*'))
            n = binary(p, VL_JO_MUL, n, power(p));
        else if (vl_jp_skip_op(p, '/'))
            n = binary(p, VL_JO_DIV, n, power(p));
        else if (vl_jp_skip_op(p, '/' << 8 | '/'))
            n = binary(p, VL_JO_FLOORDIV, n, power(p));
        else if (vl_jp_skip_op(p, '%'))
            n = binary(p, VL_JO_MOD, n, power(p));
        else
            return n;
    }
}

static struct vl_jnode *concat(struct vl_jparser *p)
{
    struct vl_jnode *n = product(p);

    while (vl_jp_skip_op(p, '~'))
        n = binary(p, VL_JO_CONCAT, n, product(p));
    return n;
}

static struct vl_jnode *sum(struct vl_jparser *p)
{
    struct vl_jnode *n = concat(p);

    for (;;) {
        if (vl_jp_skip_op(p, '+'))
            n = binary(p, VL_JO_ADD, n, concat(p));
        else if (vl_jp_skip_op(p, '-'))
            n = binary(p, VL_JO_SUB, n, concat(p));
        else
            return n;
    }
}

/* The comparison operator here, skipped; 0 if none. */
static int compare_op(struct vl_jparser *p, enum vl_jop *op)
{
    static const struct {
        int tok;
        enum vl_jop op;
    } known[] = {
        { '=' << 8 | '=', VL_JO_EQ },
        { '!' << 8 | '=', VL_JO_NE },
        { '<', VL_JO_LT },
        { '<' << 8 | '=', VL_JO_LE },
        { '>', VL_JO_GT },
        { '>' << 8 | '=', VL_JO_GE },
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (vl_jp_skip_op(p, known[i].tok)) {
            *op = known[i].op;
            return 1;
        }
    if (vl_jp_skip_name(p, "in")) {
        *op = VL_JO_IN;
        return 1;
    }
    if (vl_jp_is_name(p, "not") && p->tok[1].type == VL_JT_NAME && strcmp(p->tok[1].s, "in") == 0) {
        p->tok += 2;
        *op = VL_JO_NOT_IN;
        return 1;
    }
    return 0;
}

static struct vl_jnode *compare(struct vl_jparser *p)
{
    struct vl_jnode *first = sum(p), *n = NULL;
    enum vl_jop op;

    while (!vl_jp_failed(p) && compare_op(p, &op)) {
        enum vl_jop *ops;

        if (!n) {
            n = vl_jp_node(p, VL_JN_COMPARE);
            n->a = first;
        }
        ops = vl_jalloc(p->in, (n->nlist + 1) * sizeof *ops);
        for (size_t i = 0; i < n->nlist; i++)
            ops[i] = n->ops[i];
        ops[n->nlist] = op;
        n->ops = ops;
        vl_jp_push(p, n, sum(p));
    }
    return n ? n : first;
}

static struct vl_jnode *not_expr(struct vl_jparser *p)
{
    struct vl_jnode *n;

    if (!vl_jp_is_name(p, "not"))
        return compare(p);
    n = vl_jp_node(p, VL_JN_NOT);
    p->tok++;
    if (++p->nest > VL_J_MAX_NEST)
        return vl_jp_fail(p, "expressions are nested too deeply");
    n->a = not_expr(p);
    p->nest--;
    return n;
}

static struct vl_jnode *and_expr(struct vl_jparser *p)
{
    struct vl_jnode *n = not_expr(p);

    while (vl_jp_skip_name(p, "and")) {
        struct vl_jnode *both = vl_jp_node(p, VL_JN_AND);

        both->a = n;
        both->b = not_expr(p);
        n = both;
    }
    return n;
}

static struct vl_jnode *or_expr(struct vl_jparser *p)
{
    struct vl_jnode *n = and_expr(p);

    while (vl_jp_skip_name(p, "or")) {
        struct vl_jnode *either = vl_jp_node(p, VL_JN_OR);

        either->a = n;
        either->b = and_expr(p);
        n = either;
    }
    return n;
}

struct vl_jnode *vl_jp_expression(struct vl_jparser *p)
{
    struct vl_jnode *n;

    if (++p->nest > VL_J_MAX_NEST)
        return vl_jp_fail(p, "expressions are nested too deeply");
    n = or_expr(p);
    while (!vl_jp_failed(p) && vl_jp_skip_name(p, "if")) {
        struct vl_jnode *cond = vl_jp_node(p, VL_JN_IF_EXPR);

        cond->a = n;
        cond->b = or_expr(p);
        cond->c = vl_jp_skip_name(p, "else") ? vl_jp_expression(p) : NULL;
        n = cond;
    }
    p->nest--;
    return n;
}

/* An expression, or several with commas: a tuple. ternary: "if" belongs to it. */
struct vl_jnode *vl_jp_tuple(struct vl_jparser *p, int ternary)
{
    struct vl_jnode *first = ternary ? vl_jp_expression(p) : or_expr(p), *n;

    if (!vl_jp_is_op(p, ','))
        return first;
    n = vl_jp_node(p, VL_JN_TUPLE);
    vl_jp_push(p, n, first);
    while (!vl_jp_failed(p) && vl_jp_skip_op(p, ',')) {
        if (p->tok->type == VL_JT_VAR_END || p->tok->type == VL_JT_BLOCK_END ||
            vl_jp_is_op(p, '=') || vl_jp_is_name(p, "in"))
            break;
        vl_jp_push(p, n, ternary ? vl_jp_expression(p) : or_expr(p));
    }
    return n;
}
