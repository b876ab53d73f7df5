/* jinja_parse.c - tokens to a tree, by jinja2's grammar (its parser.py, same precedence).
 *
 * Names of filters and tests are checked here: a template that uses one we lack is refused before
 * it renders anything. */
#include "libverl/text/jinja_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    struct vl_jin *in;
    struct vl_jtok *tok;
    int nest, loops; /* open loops: break and continue need one */
    int macros;      /* open macros */
};

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

static struct vl_jnode *node(struct parser *p, enum vl_jkind kind)
{
    struct vl_jnode *n = vl_jalloc(p->in, sizeof *n);

    n->kind = kind;
    n->line = p->tok->line;
    return n;
}

/* Records a syntax error; the node returned is harmless. */
static struct vl_jnode *fail(struct parser *p, const char *what)
{
    p->in->line = p->tok->line;
    vl_jfail(p->in, "%s", what);
    return node(p, VL_JN_CONST);
}

static const char *shown(struct parser *p)
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

static struct vl_jnode *expected(struct parser *p, const char *what)
{
    p->in->line = p->tok->line;
    vl_jfail(p->in, "expected %s, found %s", what, shown(p));
    return node(p, VL_JN_CONST);
}

static void push(struct parser *p, struct vl_jnode *n, struct vl_jnode *child)
{
    if ((n->nlist & (n->nlist - 1)) == 0) { /* grows at powers of two */
        struct vl_jnode **more = vl_jalloc(p->in, 2 * (n->nlist + 1) * sizeof *more);

        if (n->nlist)
            memcpy(more, n->list, n->nlist * sizeof *more);
        n->list = more;
    }
    n->list[n->nlist++] = child;
}

static void push_kw(struct parser *p, struct vl_jnode *n, const char *name, struct vl_jnode *value)
{
    const char **kw = vl_jalloc(p->in, (n->nkw + 1) * sizeof *kw);
    struct vl_jnode **val = vl_jalloc(p->in, (n->nkw + 1) * sizeof *val);

    for (size_t i = 0; i < n->nkw; i++)
        kw[i] = n->kw[i], val[i] = n->kwval[i];
    kw[n->nkw] = name, val[n->nkw] = value;
    n->kw = kw, n->kwval = val;
    n->nkw++;
}

static int is_op(const struct parser *p, int op)
{
    return p->tok->type == VL_JT_OP && p->tok->op == op;
}

static int is_name(const struct parser *p, const char *name)
{
    return p->tok->type == VL_JT_NAME && strcmp(p->tok->s, name) == 0;
}

static int skip_op(struct parser *p, int op)
{
    if (!is_op(p, op))
        return 0;
    p->tok++;
    return 1;
}

static int skip_name(struct parser *p, const char *name)
{
    if (!is_name(p, name))
        return 0;
    p->tok++;
    return 1;
}

static void expect_op(struct parser *p, int op, const char *what)
{
    if (!skip_op(p, op))
        expected(p, what);
}

static void expect_block_end(struct parser *p)
{
    if (p->tok->type != VL_JT_BLOCK_END)
        expected(p, "%}");
    else
        p->tok++;
}

static const char *expect_name(struct parser *p)
{
    if (p->tok->type != VL_JT_NAME) {
        expected(p, "a name");
        return vl_jinja_intern(p->in->t, "", 0);
    }
    return (p->tok++)->s;
}

static int failed(const struct parser *p)
{
    return p->in->e->code != 0;
}

/* ---- expressions ---- */

static struct vl_jnode *expression(struct parser *p);
static struct vl_jnode *or_expr(struct parser *p);
static struct vl_jnode *unary(struct parser *p, int with_filter);
static struct vl_jnode *filters(struct parser *p, struct vl_jnode *n);

static int reserved(const char *name)
{
    static const char *const word[] = { "and", "else", "for", "if", "in", "is", "not", "or" };

    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        if (strcmp(word[i], name) == 0)
            return 1;
    return 0;
}

/* Elements up to a closing bracket; returns whether a comma was seen (a tuple). */
static int elements(struct parser *p, struct vl_jnode *n, int close, const char *what)
{
    int comma = 0;

    while (!is_op(p, close) && !failed(p)) {
        push(p, n, expression(p));
        if (is_op(p, close))
            break;
        comma = 1;
        expect_op(p, ',', what);
    }
    expect_op(p, close, what);
    return comma;
}

static struct vl_jnode *dict(struct parser *p)
{
    struct vl_jnode *n = node(p, VL_JN_DICT);

    while (!is_op(p, '}') && !failed(p)) {
        push(p, n, expression(p));
        expect_op(p, ':', "':'");
        push(p, n, expression(p));
        if (!is_op(p, '}'))
            expect_op(p, ',', "',' or '}'");
    }
    expect_op(p, '}', "'}'");
    return n;
}

static struct vl_jnode *name(struct parser *p)
{
    struct vl_jnode *n = node(p, VL_JN_CONST);
    const char *s = (p->tok++)->s;

    if (strcmp(s, "true") == 0 || strcmp(s, "True") == 0)
        n->val = vl_jv_bool(1);
    else if (strcmp(s, "false") == 0 || strcmp(s, "False") == 0)
        n->val = vl_jv_bool(0);
    else if (strcmp(s, "none") == 0 || strcmp(s, "None") == 0)
        n->val = vl_jv_none();
    else
        n->kind = VL_JN_NAME, n->s = s;
    if (p->macros && n->kind == VL_JN_NAME &&
        (strcmp(s, "caller") == 0 || strcmp(s, "varargs") == 0 || strcmp(s, "kwargs") == 0))
        return fail(p, "caller, varargs and kwargs in a macro are not supported");
    return n;
}

static struct vl_jnode *literal(struct parser *p)
{
    struct vl_jnode *n = node(p, VL_JN_CONST);
    struct vl_buf b = { 0 };
    struct vl_jtok *t = p->tok;
    int64_t v = 0;

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
    for (size_t i = 0; i < t->n; i++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, t->s[i] - '0', &v))
            return fail(p, "an integer beyond 64 bits is not supported");
    n->val = vl_jv_int(v);
    return n;
}

static struct vl_jnode *primary(struct parser *p)
{
    struct vl_jnode *n;
    int comma;

    if (p->tok->type == VL_JT_NAME)
        return reserved(p->tok->s) ? expected(p, "a value") : name(p);
    if (p->tok->type >= VL_JT_STRING && p->tok->type <= VL_JT_FLOAT)
        return literal(p);
    if (skip_op(p, '(')) {
        n = node(p, VL_JN_TUPLE);
        comma = elements(p, n, ')', "',' or ')'");
        return comma || n->nlist == 0 ? n : n->list[0];
    }
    if (skip_op(p, '[')) {
        n = node(p, VL_JN_LIST);
        elements(p, n, ']', "',' or ']'");
        return n;
    }
    if (skip_op(p, '{'))
        return dict(p);
    return expected(p, "a value");
}

/* The arguments after "(" into n. */
static void arguments(struct parser *p, struct vl_jnode *n)
{
    while (!is_op(p, ')') && !failed(p)) {
        if (is_op(p, '*') || is_op(p, '*' << 8 | '*')) {
            fail(p, "arguments given by * or ** are not supported");
        } else if (p->tok->type == VL_JT_NAME && p->tok[1].type == VL_JT_OP &&
                   p->tok[1].op == '=') {
            const char *kw = p->tok->s;

            p->tok += 2;
            push_kw(p, n, kw, expression(p));
        } else {
            if (n->nkw)
                fail(p, "a positional argument after a keyword argument");
            push(p, n, expression(p));
        }
        if (!is_op(p, ')'))
            expect_op(p, ',', "',' or ')'");
    }
    expect_op(p, ')', "')'");
}

static struct vl_jnode *subscript(struct parser *p, struct vl_jnode *of)
{
    struct vl_jnode *n = node(p, VL_JN_ITEM), *first = NULL;

    n->a = of;
    if (!is_op(p, ':'))
        first = expression(p);
    if (!is_op(p, ':')) {
        if (is_op(p, ','))
            fail(p, "a subscript of several values is not supported");
        n->b = first;
        expect_op(p, ']', "']'");
        return n;
    }
    n->kind = VL_JN_SLICE;
    push(p, n, first);
    for (int i = 0; i < 2; i++) {
        struct vl_jnode *bound = NULL;

        if (skip_op(p, ':') && !is_op(p, ':') && !is_op(p, ']'))
            bound = expression(p);
        push(p, n, bound);
    }
    expect_op(p, ']', "']'");
    return n;
}

static struct vl_jnode *call(struct parser *p, struct vl_jnode *of)
{
    struct vl_jnode *n = node(p, VL_JN_CALL);

    n->a = of;
    arguments(p, n);
    return n;
}

static struct vl_jnode *postfix(struct parser *p, struct vl_jnode *n)
{
    while (!failed(p)) {
        if (skip_op(p, '.')) {
            struct vl_jnode *of = n;

            n = node(p, p->tok->type == VL_JT_INT ? VL_JN_ITEM : VL_JN_ATTR);
            n->a = of;
            if (n->kind == VL_JN_ITEM)
                n->b = literal(p);
            else
                n->s = expect_name(p);
        } else if (skip_op(p, '[')) {
            n = subscript(p, n);
        } else if (skip_op(p, '(')) {
            n = call(p, n);
        } else {
            break;
        }
    }
    return n;
}

static struct vl_jnode *filter(struct parser *p, struct vl_jnode *of)
{
    struct vl_jnode *n = node(p, VL_JN_FILTER);
    char what[160];

    n->a = of;
    n->s = expect_name(p);
    if (!failed(p) && !vl_jfilter_known(n->s)) {
        snprintf(what, sizeof what, "the filter \"%.80s\" is not supported", n->s);
        fail(p, what);
    }
    if (skip_op(p, '('))
        arguments(p, n);
    return n;
}

static struct vl_jnode *test(struct parser *p, struct vl_jnode *of)
{
    struct vl_jnode *n = node(p, VL_JN_TEST), *not ;
    int negated = skip_name(p, "not");
    char what[160];

    n->a = of;
    n->s = expect_name(p);
    if (!failed(p) && !vl_jtest_known(n->s)) {
        snprintf(what, sizeof what, "the test \"%.80s\" is not supported", n->s);
        fail(p, what);
    }
    if (skip_op(p, '(')) {
        arguments(p, n);
    } else if ((p->tok->type == VL_JT_NAME && !is_name(p, "else") && !is_name(p, "or") &&
                !is_name(p, "and")) ||
               (p->tok->type >= VL_JT_STRING && p->tok->type <= VL_JT_FLOAT) || is_op(p, '[') ||
               is_op(p, '{')) {
        if (is_name(p, "is"))
            return fail(p, "you cannot chain multiple tests with is");
        push(p, n, postfix(p, primary(p)));
    }
    if (!negated)
        return n;
    not = node(p, VL_JN_NOT);
    not ->a = n;
    return not ;
}

static struct vl_jnode *filters(struct parser *p, struct vl_jnode *n)
{
    while (!failed(p)) {
        if (skip_op(p, '|'))
            n = filter(p, n);
        else if (skip_name(p, "is"))
            n = test(p, n);
        else if (skip_op(p, '(')) /* also after a filter */
            n = call(p, n);
        else
            break;
    }
    return n;
}

static struct vl_jnode *unary(struct parser *p, int with_filter)
{
    struct vl_jnode *n;

    if (++p->nest > VL_J_MAX_NEST)
        fail(p, "expressions are nested too deeply");
    if (failed(p)) {
        n = node(p, VL_JN_CONST);
    } else if (is_op(p, '-') || is_op(p, '+')) {
        n = node(p, is_op(p, '-') ? VL_JN_NEG : VL_JN_POS);
        p->tok++;
        n->a = unary(p, 0);
    } else {
        n = primary(p);
    }
    n = postfix(p, n);
    if (with_filter)
        n = filters(p, n);
    p->nest--;
    return n;
}

static struct vl_jnode *binary(struct parser *p, enum vl_jop op, struct vl_jnode *a,
                               struct vl_jnode *b)
{
    struct vl_jnode *n = node(p, VL_JN_BINARY);

    n->op = op, n->a = a, n->b = b;
    return n;
}

static struct vl_jnode *power(struct parser *p)
{
    struct vl_jnode *n = unary(p, 1);

    while (skip_op(p, '*' << 8 | '*'))
        n = binary(p, VL_JO_POW, n, unary(p, 1));
    return n;
}

static struct vl_jnode *product(struct parser *p)
{
    struct vl_jnode *n = power(p);

    for (;;) {
        if (skip_op(p, '*'))
            n = binary(p, VL_JO_MUL, n, power(p));
        else if (skip_op(p, '/'))
            n = binary(p, VL_JO_DIV, n, power(p));
        else if (skip_op(p, '/' << 8 | '/'))
            n = binary(p, VL_JO_FLOORDIV, n, power(p));
        else if (skip_op(p, '%'))
            n = binary(p, VL_JO_MOD, n, power(p));
        else
            return n;
    }
}

static struct vl_jnode *concat(struct parser *p)
{
    struct vl_jnode *n = product(p);

    while (skip_op(p, '~'))
        n = binary(p, VL_JO_CONCAT, n, product(p));
    return n;
}

static struct vl_jnode *sum(struct parser *p)
{
    struct vl_jnode *n = concat(p);

    for (;;) {
        if (skip_op(p, '+'))
            n = binary(p, VL_JO_ADD, n, concat(p));
        else if (skip_op(p, '-'))
            n = binary(p, VL_JO_SUB, n, concat(p));
        else
            return n;
    }
}

/* The comparison operator here, skipped; 0 if none. */
static int compare_op(struct parser *p, enum vl_jop *op)
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
        if (skip_op(p, known[i].tok)) {
            *op = known[i].op;
            return 1;
        }
    if (skip_name(p, "in")) {
        *op = VL_JO_IN;
        return 1;
    }
    if (is_name(p, "not") && p->tok[1].type == VL_JT_NAME && strcmp(p->tok[1].s, "in") == 0) {
        p->tok += 2;
        *op = VL_JO_NOT_IN;
        return 1;
    }
    return 0;
}

static struct vl_jnode *compare(struct parser *p)
{
    struct vl_jnode *first = sum(p), *n = NULL;
    enum vl_jop op;

    while (!failed(p) && compare_op(p, &op)) {
        enum vl_jop *ops;

        if (!n) {
            n = node(p, VL_JN_COMPARE);
            n->a = first;
        }
        ops = vl_jalloc(p->in, (n->nlist + 1) * sizeof *ops);
        for (size_t i = 0; i < n->nlist; i++)
            ops[i] = n->ops[i];
        ops[n->nlist] = op;
        n->ops = ops;
        push(p, n, sum(p));
    }
    return n ? n : first;
}

static struct vl_jnode *not_expr(struct parser *p)
{
    struct vl_jnode *n;

    if (!is_name(p, "not"))
        return compare(p);
    n = node(p, VL_JN_NOT);
    p->tok++;
    if (++p->nest > VL_J_MAX_NEST)
        return fail(p, "expressions are nested too deeply");
    n->a = not_expr(p);
    p->nest--;
    return n;
}

static struct vl_jnode *and_expr(struct parser *p)
{
    struct vl_jnode *n = not_expr(p);

    while (skip_name(p, "and")) {
        struct vl_jnode *both = node(p, VL_JN_AND);

        both->a = n;
        both->b = not_expr(p);
        n = both;
    }
    return n;
}

static struct vl_jnode *or_expr(struct parser *p)
{
    struct vl_jnode *n = and_expr(p);

    while (skip_name(p, "or")) {
        struct vl_jnode *either = node(p, VL_JN_OR);

        either->a = n;
        either->b = and_expr(p);
        n = either;
    }
    return n;
}

static struct vl_jnode *expression(struct parser *p)
{
    struct vl_jnode *n;

    if (++p->nest > VL_J_MAX_NEST)
        return fail(p, "expressions are nested too deeply");
    n = or_expr(p);
    while (!failed(p) && skip_name(p, "if")) {
        struct vl_jnode *cond = node(p, VL_JN_IF_EXPR);

        cond->a = n;
        cond->b = or_expr(p);
        cond->c = skip_name(p, "else") ? expression(p) : NULL;
        n = cond;
    }
    p->nest--;
    return n;
}

/* An expression, or several with commas: a tuple. ternary: "if" belongs to it. */
static struct vl_jnode *tuple(struct parser *p, int ternary)
{
    struct vl_jnode *first = ternary ? expression(p) : or_expr(p), *n;

    if (!is_op(p, ','))
        return first;
    n = node(p, VL_JN_TUPLE);
    push(p, n, first);
    while (!failed(p) && skip_op(p, ',')) {
        if (p->tok->type == VL_JT_VAR_END || p->tok->type == VL_JT_BLOCK_END || is_op(p, '=') ||
            is_name(p, "in"))
            break;
        push(p, n, ternary ? expression(p) : or_expr(p));
    }
    return n;
}

/* ---- statements ---- */

static struct vl_jnode *body(struct parser *p, const char *const *ends);

/* A name, or names with commas; for set also ns.attr. */
static struct vl_jnode *target(struct parser *p, int attr)
{
    struct vl_jnode *n = NULL, *one;
    int bracket = skip_op(p, '(');

    do {
        if (n && (p->tok->type != VL_JT_NAME || is_name(p, "in")))
            break;
        one = node(p, VL_JN_NAME);
        one->s = expect_name(p);
        if (!failed(p) && reserved(one->s))
            return fail(p, "a reserved word cannot be assigned to");
        if (attr && !n && is_op(p, '.')) {
            struct vl_jnode *of = one;

            p->tok++;
            one = node(p, VL_JN_ATTR);
            one->a = of;
            one->s = expect_name(p);
            return one;
        }
        if (!n && !is_op(p, ','))
            break;
        if (!n)
            n = node(p, VL_JN_TUPLE);
        push(p, n, one);
    } while (!failed(p) && skip_op(p, ','));
    if (bracket)
        expect_op(p, ')', "')'");
    return n ? n : one;
}

static struct vl_jnode *for_stmt(struct parser *p)
{
    static const char *const inner[] = { "else", "endfor", NULL }, *const end[] = { "endfor",
                                                                                    NULL };
    struct vl_jnode *n = node(p, VL_JN_FOR);

    n->a = target(p, 0);
    if (!skip_name(p, "in"))
        return expected(p, "in");
    n->b = tuple(p, 0);
    if (skip_name(p, "if"))
        n->c = expression(p);
    if (is_name(p, "recursive"))
        return fail(p, "a recursive loop is not supported");
    expect_block_end(p);
    p->loops++;
    push(p, n, body(p, inner));
    p->loops--;
    push(p, n, NULL);
    if (!failed(p) && strcmp((p->tok++)->s, "else") == 0) {
        expect_block_end(p);
        n->list[1] = body(p, end);
        p->tok += !failed(p);
    }
    expect_block_end(p);
    return n;
}

static struct vl_jnode *if_stmt(struct parser *p)
{
    static const char *const inner[] = { "elif", "else", "endif", NULL }, *const end[] = { "endif",
                                                                                           NULL };
    struct vl_jnode *first = node(p, VL_JN_IF), *n = first;

    for (;;) {
        const char *word;

        n->a = tuple(p, 0);
        expect_block_end(p);
        push(p, n, body(p, inner));
        push(p, n, NULL);
        if (failed(p))
            return first;
        word = (p->tok++)->s;
        if (strcmp(word, "elif") != 0) {
            if (strcmp(word, "else") == 0) {
                expect_block_end(p);
                n->list[1] = body(p, end);
                p->tok += !failed(p);
            }
            break;
        }
        n->list[1] = node(p, VL_JN_IF);
        n = n->list[1];
    }
    expect_block_end(p);
    return first;
}

static struct vl_jnode *set_stmt(struct parser *p)
{
    static const char *const end[] = { "endset", NULL };
    struct vl_jnode *n = node(p, VL_JN_SET);

    n->a = target(p, 1);
    if (skip_op(p, '=')) {
        n->b = tuple(p, 1);
        expect_block_end(p);
        return n;
    }
    n->kind = VL_JN_SET_BLOCK;
    if (is_op(p, '|'))
        n->c = filters(p, NULL);
    expect_block_end(p);
    n->b = body(p, end);
    p->tok += !failed(p);
    expect_block_end(p);
    return n;
}

static struct vl_jnode *macro_stmt(struct parser *p)
{
    static const char *const end[] = { "endmacro", NULL };
    struct vl_jnode *n = node(p, VL_JN_MACRO);
    int loops = p->loops;

    n->s = expect_name(p);
    expect_op(p, '(', "'('");
    while (!failed(p) && !is_op(p, ')')) {
        struct vl_jnode *param = node(p, VL_JN_NAME);

        param->s = expect_name(p);
        push(p, n, param);
        if (skip_op(p, '='))
            push_kw(p, n, param->s, expression(p));
        else if (n->nkw)
            fail(p, "a parameter without default after one with");
        if (!is_op(p, ')'))
            expect_op(p, ',', "',' or ')'");
    }
    expect_op(p, ')', "')'");
    expect_block_end(p);
    p->loops = 0;
    p->macros++;
    n->a = body(p, end);
    p->macros--;
    p->loops = loops;
    p->tok += !failed(p);
    expect_block_end(p);
    return n;
}

static struct vl_jnode *filter_stmt(struct parser *p)
{
    static const char *const end[] = { "endfilter", NULL };
    struct vl_jnode *n = node(p, VL_JN_FILTER_BLOCK);

    n->b = filters(p, filter(p, NULL));
    expect_block_end(p);
    n->a = body(p, end);
    p->tok += !failed(p);
    expect_block_end(p);
    return n;
}

static struct vl_jnode *with_stmt(struct parser *p)
{
    static const char *const end[] = { "endwith", NULL };
    struct vl_jnode *n = node(p, VL_JN_WITH);

    while (!failed(p) && p->tok->type != VL_JT_BLOCK_END) {
        push(p, n, target(p, 0));
        expect_op(p, '=', "'='");
        push(p, n, expression(p));
        if (p->tok->type != VL_JT_BLOCK_END)
            expect_op(p, ',', "',' or %}");
    }
    expect_block_end(p);
    n->a = body(p, end);
    p->tok += !failed(p);
    expect_block_end(p);
    return n;
}

static struct vl_jnode *generation_stmt(struct parser *p)
{
    static const char *const end[] = { "endgeneration", NULL };
    struct vl_jnode *n = node(p, VL_JN_SCOPE);

    expect_block_end(p);
    n->a = body(p, end);
    p->tok += !failed(p);
    expect_block_end(p);
    return n;
}

static struct vl_jnode *jump_stmt(struct parser *p, enum vl_jkind kind)
{
    struct vl_jnode *n = node(p, kind);

    if (!p->loops)
        return fail(p, kind == VL_JN_BREAK ? "break outside a loop" : "continue outside a loop");
    expect_block_end(p);
    return n;
}

static struct vl_jnode *statement(struct parser *p)
{
    static const struct {
        const char *name;
        struct vl_jnode *(*parse)(struct parser *);
    } known[] = {
        { "for", for_stmt },
        { "if", if_stmt },
        { "set", set_stmt },
        { "macro", macro_stmt },
        { "filter", filter_stmt },
        { "with", with_stmt },
        { "generation", generation_stmt },
    };
    const char *word = expect_name(p);
    char what[160];

    if (failed(p))
        return node(p, VL_JN_CONST);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, word) == 0)
            return known[i].parse(p);
    if (strcmp(word, "break") == 0)
        return jump_stmt(p, VL_JN_BREAK);
    if (strcmp(word, "continue") == 0)
        return jump_stmt(p, VL_JN_CONTINUE);
    snprintf(what, sizeof what, "the statement {%% %.80s %%} is not supported here", word);
    return fail(p, what);
}

static int at_end(const struct parser *p, const char *const *ends)
{
    if (p->tok[1].type != VL_JT_NAME)
        return 0;
    for (; ends && *ends; ends++)
        if (strcmp(p->tok[1].s, *ends) == 0)
            return 1;
    return 0;
}

/* Statements up to a block tag whose word is in ends; p->tok is then that word. NULL: to the end. */
static struct vl_jnode *body(struct parser *p, const char *const *ends)
{
    struct vl_jnode *n = node(p, VL_JN_BLOCK), *one;

    if (++p->nest > VL_J_MAX_NEST)
        fail(p, "statements are nested too deeply");
    while (!failed(p)) {
        struct vl_jtok *t = p->tok;

        if (t->type == VL_JT_EOF) {
            if (ends)
                expected(p, ends[0]);
            break;
        }
        if (t->type == VL_JT_TEXT) {
            one = node(p, VL_JN_TEXT);
            one->val = vl_jv_ref(t->s, t->n);
            p->tok++;
        } else if (t->type == VL_JT_VAR_BEGIN) {
            one = node(p, VL_JN_PRINT);
            p->tok++;
            one->a = tuple(p, 1);
            if (p->tok->type != VL_JT_VAR_END)
                expected(p, "}}");
            else
                p->tok++;
        } else {
            if (at_end(p, ends)) {
                p->tok++;
                break;
            }
            p->tok++;
            one = statement(p);
        }
        push(p, n, one);
    }
    p->nest--;
    return n;
}

int vl_jinja_parse(struct vl_jin *in)
{
    struct parser p = { .in = in };

    if (vl_jinja_lex(in, &p.tok))
        return in->e->code;
    in->t->body = body(&p, NULL);
    return in->e->code;
}
