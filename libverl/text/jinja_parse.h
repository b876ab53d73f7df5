/* jinja_parse.h - what the parser of expressions and that of statements share. */
#ifndef VL_JINJA_PARSE_H
#define VL_JINJA_PARSE_H

#include "libverl/text/jinja_impl.h"

struct vl_jparser {
    struct vl_jin *in;
    struct vl_jtok *tok;
    int nest, loops; /* open loops: break and continue need one */
    int macros;      /* open macros and call blocks ... */
    int uses;        /* ... and which of caller, varargs, kwargs they name so far */
};

struct vl_jnode *vl_jp_node(struct vl_jparser *p, enum vl_jkind kind);
/* Record a syntax error; the node returned is harmless. */
struct vl_jnode *vl_jp_fail(struct vl_jparser *p, const char *what);
struct vl_jnode *vl_jp_expected(struct vl_jparser *p, const char *what);
int vl_jp_failed(const struct vl_jparser *p);
void vl_jp_push(struct vl_jparser *p, struct vl_jnode *n, struct vl_jnode *child);
void vl_jp_push_kw(struct vl_jparser *p, struct vl_jnode *n, const char *name,
                   struct vl_jnode *value);
/* The token here; skip_ and expect_ go past it. */
int vl_jp_is_op(const struct vl_jparser *p, int op);
int vl_jp_is_name(const struct vl_jparser *p, const char *name);
int vl_jp_skip_op(struct vl_jparser *p, int op);
int vl_jp_skip_name(struct vl_jparser *p, const char *name);
void vl_jp_expect_op(struct vl_jparser *p, int op, const char *what);
const char *vl_jp_expect_name(struct vl_jparser *p);
int vl_jp_reserved(const char *name);
int vl_jp_special(const char *name); /* caller, varargs, kwargs: enum vl_juses; else 0 */

struct vl_jnode *vl_jp_expression(struct vl_jparser *p);
/* An expression, or several with commas: a tuple. ternary: "if" belongs to it. */
struct vl_jnode *vl_jp_tuple(struct vl_jparser *p, int ternary);
/* One filter of `of` (NULL: of a block), its name next; and all filters, tests and calls after n. */
struct vl_jnode *vl_jp_filter(struct vl_jparser *p, struct vl_jnode *of);
struct vl_jnode *vl_jp_filters(struct vl_jparser *p, struct vl_jnode *n);

#endif
