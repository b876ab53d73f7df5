/* jinja_stmt.c - statements of a template: {% for %}, {% if %}, {% set %} and the others. */
#include "libverl/text/jinja_parse.h"

#include <stdio.h>
#include <string.h>

static void expect_block_end(struct vl_jparser *p)
{
    if (p->tok->type != VL_JT_BLOCK_END)
        vl_jp_expected(p, "%}");
    else
        p->tok++;
}

static struct vl_jnode *body(struct vl_jparser *p, const char *const *ends);

/* A name, or names with commas; for set also ns.attr. */
static struct vl_jnode *target(struct vl_jparser *p, int attr)
{
    struct vl_jnode *n = NULL, *one;
    int bracket = vl_jp_skip_op(p, '(');

    do {
        if (n && (p->tok->type != VL_JT_NAME || vl_jp_is_name(p, "in")))
            break;
        one = vl_jp_node(p, VL_JN_NAME);
        one->s = vl_jp_expect_name(p);
        if (!vl_jp_failed(p) && vl_jp_reserved(one->s))
            return vl_jp_fail(p, "a reserved word cannot be assigned to");
        if (p->macros && vl_jp_special(one->s))
            return vl_jp_fail(p,
                              "assigning to caller, varargs or kwargs in a macro is not supported");
        if (attr && !n && vl_jp_is_op(p, '.')) {
            struct vl_jnode *of = one;

            p->tok++;
            one = vl_jp_node(p, VL_JN_ATTR);
            one->a = of;
            one->s = vl_jp_expect_name(p);
            return one;
        }
        if (!n && !vl_jp_is_op(p, ','))
            break;
        if (!n)
            n = vl_jp_node(p, VL_JN_TUPLE);
        vl_jp_push(p, n, one);
    } while (!vl_jp_failed(p) && vl_jp_skip_op(p, ','));
    if (bracket)
        vl_jp_expect_op(p, ')', "')'");
    return n ? n : one;
}

static struct vl_jnode *for_stmt(struct vl_jparser *p)
{
    static const char *const inner[] = { "else", "endfor", NULL }, *const end[] = { "endfor",
                                                                                    NULL };
    struct vl_jnode *n = vl_jp_node(p, VL_JN_FOR);
    int loops = p->loops;

    n->a = target(p, 0);
    if (!vl_jp_skip_name(p, "in"))
        return vl_jp_expected(p, "in");
    n->b = vl_jp_tuple(p, 0);
    if (vl_jp_skip_name(p, "if"))
        n->c = vl_jp_expression(p);
    n->uses = vl_jp_skip_name(p, "recursive");
    expect_block_end(p);
    if (n->uses) /* a function of its own, which no loop around it can be left from */
        p->loops = 0;
    p->loops++;
    vl_jp_push(p, n, body(p, inner));
    p->loops--;
    vl_jp_push(p, n, NULL);
    if (!vl_jp_failed(p) && strcmp((p->tok++)->s, "else") == 0) {
        expect_block_end(p);
        n->list[1] = body(p, end);
        p->tok += !vl_jp_failed(p);
    }
    p->loops = loops;
    expect_block_end(p);
    return n;
}

static struct vl_jnode *if_stmt(struct vl_jparser *p)
{
    static const char *const inner[] = { "elif", "else", "endif", NULL }, *const end[] = { "endif",
                                                                                           NULL };
    struct vl_jnode *first = vl_jp_node(p, VL_JN_IF), *n = first;

    for (;;) {
        const char *word;

        n->a = vl_jp_tuple(p, 0);
        expect_block_end(p);
        vl_jp_push(p, n, body(p, inner));
        vl_jp_push(p, n, NULL);
        if (vl_jp_failed(p))
            return first;
        word = (p->tok++)->s;
        if (strcmp(word, "elif") != 0) {
            if (strcmp(word, "else") == 0) {
                expect_block_end(p);
                n->list[1] = body(p, end);
                p->tok += !vl_jp_failed(p);
            }
            break;
        }
        n->list[1] = vl_jp_node(p, VL_JN_IF);
        n = n->list[1];
    }
    expect_block_end(p);
    return first;
}

static struct vl_jnode *set_stmt(struct vl_jparser *p)
{
    static const char *const end[] = { "endset", NULL };
    struct vl_jnode *n = vl_jp_node(p, VL_JN_SET);

    n->a = target(p, 1);
    if (vl_jp_skip_op(p, '=')) {
        n->b = vl_jp_tuple(p, 1);
        expect_block_end(p);
        return n;
    }
    n->kind = VL_JN_SET_BLOCK;
    if (vl_jp_is_op(p, '|'))
        n->c = vl_jp_filters(p, NULL);
    expect_block_end(p);
    n->b = body(p, end);
    p->tok += !vl_jp_failed(p);
    expect_block_end(p);
    return n;
}

/* (a, b=1) of a macro or a call block. */
static void parameters(struct vl_jparser *p, struct vl_jnode *n)
{
    vl_jp_expect_op(p, '(', "'('");
    while (!vl_jp_failed(p) && !vl_jp_is_op(p, ')')) {
        struct vl_jnode *param = vl_jp_node(p, VL_JN_NAME);

        param->s = vl_jp_expect_name(p);
        vl_jp_push(p, n, param);
        if (vl_jp_special(param->s))
            vl_jp_fail(p, "a parameter named caller, varargs or kwargs is not supported");
        if (vl_jp_skip_op(p, '='))
            vl_jp_push_kw(p, n, param->s, vl_jp_expression(p));
        else if (n->nkw)
            vl_jp_fail(p, "a parameter without default after one with");
        if (!vl_jp_is_op(p, ')'))
            vl_jp_expect_op(p, ',', "',' or ')'");
    }
    vl_jp_expect_op(p, ')', "')'");
}

/* The body of a macro or a call block: a loop around it is none inside. */
static void macro_body(struct vl_jparser *p, struct vl_jnode *n, const char *const *end)
{
    int loops = p->loops, uses = p->uses;

    expect_block_end(p);
    p->loops = p->uses = 0;
    p->macros++;
    n->a = body(p, end);
    p->macros--;
    n->uses = p->uses;
    p->loops = loops;
    p->uses |= uses;
    p->tok += !vl_jp_failed(p);
    expect_block_end(p);
}

static struct vl_jnode *macro_stmt(struct vl_jparser *p)
{
    static const char *const end[] = { "endmacro", NULL };
    struct vl_jnode *n = vl_jp_node(p, VL_JN_MACRO);

    n->s = vl_jp_expect_name(p);
    parameters(p, n);
    macro_body(p, n, end);
    return n;
}

static struct vl_jnode *call_stmt(struct vl_jparser *p)
{
    static const char *const end[] = { "endcall", NULL };
    struct vl_jnode *n = vl_jp_node(p, VL_JN_CALL_BLOCK);

    n->s = vl_jinja_intern(p->in->t, "caller", 6);
    if (vl_jp_is_op(p, '('))
        parameters(p, n);
    n->b = vl_jp_expression(p);
    if (!vl_jp_failed(p) && n->b->kind != VL_JN_CALL)
        return vl_jp_expected(p, "a call");
    macro_body(p, n, end);
    return n;
}

static struct vl_jnode *filter_stmt(struct vl_jparser *p)
{
    static const char *const end[] = { "endfilter", NULL };
    struct vl_jnode *n = vl_jp_node(p, VL_JN_FILTER_BLOCK);

    n->b = vl_jp_filters(p, vl_jp_filter(p, NULL));
    expect_block_end(p);
    n->a = body(p, end);
    p->tok += !vl_jp_failed(p);
    expect_block_end(p);
    return n;
}

static struct vl_jnode *with_stmt(struct vl_jparser *p)
{
    static const char *const end[] = { "endwith", NULL };
    struct vl_jnode *n = vl_jp_node(p, VL_JN_WITH);

    while (!vl_jp_failed(p) && p->tok->type != VL_JT_BLOCK_END) {
        vl_jp_push(p, n, target(p, 0));
        vl_jp_expect_op(p, '=', "'='");
        vl_jp_push(p, n, vl_jp_expression(p));
        if (p->tok->type != VL_JT_BLOCK_END)
            vl_jp_expect_op(p, ',', "',' or %}");
    }
    expect_block_end(p);
    n->a = body(p, end);
    p->tok += !vl_jp_failed(p);
    expect_block_end(p);
    return n;
}

static struct vl_jnode *generation_stmt(struct vl_jparser *p)
{
    static const char *const end[] = { "endgeneration", NULL };
    struct vl_jnode *n = vl_jp_node(p, VL_JN_SCOPE);

    expect_block_end(p);
    n->a = body(p, end);
    p->tok += !vl_jp_failed(p);
    expect_block_end(p);
    return n;
}

static struct vl_jnode *jump_stmt(struct vl_jparser *p, enum vl_jkind kind)
{
    struct vl_jnode *n = vl_jp_node(p, kind);

    if (!p->loops)
        return vl_jp_fail(p,
                          kind == VL_JN_BREAK ? "break outside a loop" : "continue outside a loop");
    expect_block_end(p);
    return n;
}

static struct vl_jnode *statement(struct vl_jparser *p)
{
    static const struct {
        const char *name;
        struct vl_jnode *(*parse)(struct vl_jparser *);
    } known[] = {
        { "for", for_stmt },   { "if", if_stmt },
        { "set", set_stmt },   { "macro", macro_stmt },
        { "call", call_stmt }, { "filter", filter_stmt },
        { "with", with_stmt }, { "generation", generation_stmt },
    };
    const char *word = vl_jp_expect_name(p);
    char what[160];

    if (vl_jp_failed(p))
        return vl_jp_node(p, VL_JN_CONST);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, word) == 0)
            return known[i].parse(p);
    if (strcmp(word, "break") == 0)
        return jump_stmt(p, VL_JN_BREAK);
    if (strcmp(word, "continue") == 0)
        return jump_stmt(p, VL_JN_CONTINUE);
    snprintf(what, sizeof what, "the statement {%% %.80s %%} is not supported here", word);
    return vl_jp_fail(p, what);
}

static int at_end(const struct vl_jparser *p, const char *const *ends)
{
    if (p->tok[1].type != VL_JT_NAME)
        return 0;
    for (; ends && *ends; ends++)
        if (strcmp(p->tok[1].s, *ends) == 0)
            return 1;
    return 0;
}

/* Statements up to a block tag whose word is in ends; p->tok is then that word. NULL: to the end. */
static struct vl_jnode *body(struct vl_jparser *p, const char *const *ends)
{
    struct vl_jnode *n = vl_jp_node(p, VL_JN_BLOCK), *one;

    if (++p->nest > VL_J_MAX_NEST)
        vl_jp_fail(p, "statements are nested too deeply");
    while (!vl_jp_failed(p)) {
        struct vl_jtok *t = p->tok;

        if (t->type == VL_JT_EOF) {
            if (ends)
                vl_jp_expected(p, ends[0]);
            break;
        }
        if (t->type == VL_JT_TEXT) {
            one = vl_jp_node(p, VL_JN_TEXT);
            one->val = vl_jv_ref(t->s, t->n);
            p->tok++;
        } else if (t->type == VL_JT_VAR_BEGIN) {
            one = vl_jp_node(p, VL_JN_PRINT);
            p->tok++;
            one->a = vl_jp_tuple(p, 1);
            if (p->tok->type != VL_JT_VAR_END)
                vl_jp_expected(p, "}}");
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
        vl_jp_push(p, n, one);
    }
    p->nest--;
    return n;
}

int vl_jinja_parse(struct vl_jin *in)
{
    struct vl_jparser p = { .in = in };

    if (vl_jinja_lex(in, &p.tok))
        return in->e->code;
    in->t->body = body(&p, NULL);
    return in->e->code;
}
