/* jinja_impl.h - values, syntax tree and interpreter state of jinja.h. Private to libverl/text.
 *
 * jinja.c opens and renders; jinja_lex.c cuts the source, jinja_parse.c and jinja_stmt.c build the
 * tree, jinja_eval.c walks it; jinja_global.c, jinja_value.c, jinja_print.c, jinja_str.c and jinja_ops.c are Python's values; jinja_filter.c,
 * jinja_test.c and jinja_method.c the names templates call.
 *
 * Everything a render makes lives in one region that is dropped at its end: values are immutable
 * (the sandbox forbids changing lists and dicts), so nothing needs counting. After a failure
 * functions go on with undefined values; loops and recursion check vl_jstep and end. */
#ifndef VL_JINJA_IMPL_H
#define VL_JINJA_IMPL_H

#include "libverl/text/jinja.h"

#define VL_J_MAX_DEPTH 1000 /* of evaluation, and of values inside values */
#define VL_J_MAX_NEST  200  /* of syntax */
#ifdef VL_FUZZING           /* smaller, so that a bomb costs little and many inputs are tried */
#    define VL_J_MAX_STEPS  200000
#    define VL_J_MAX_MEMORY ((size_t)16 << 20)
#    define VL_J_MAX_OUTPUT ((size_t)1 << 20)
#else
#    define VL_J_MAX_STEPS  10000000
#    define VL_J_MAX_MEMORY ((size_t)256 << 20)
#    define VL_J_MAX_OUTPUT ((size_t)16 << 20)
#endif
#define VL_J_MAX_RANGE 100000 /* as jinja2's sandbox */

/* ---- values ---- */

enum vl_jtype {
    VL_J_UNDEF,
    VL_J_NONE,
    VL_J_BOOL,
    VL_J_INT,
    VL_J_BIG, /* an integer beyond 64 bits, as its digits: printed and compared, not computed */
    VL_J_FLOAT,
    VL_J_STR,
    VL_J_LIST,
    VL_J_MAP,
    VL_J_NAMESPACE,
    VL_J_MACRO,
    VL_J_FUNC,   /* a global function: i is enum vl_jfunc */
    VL_J_METHOD, /* a bound method */
    VL_J_LOOP,
};

enum vl_jlist_kind {
    VL_J_PLAIN,
    VL_J_TUPLE,
    VL_J_RANGE,
    VL_J_KEYS,
    VL_J_VALUES,
    VL_J_ITEMS,
    VL_J_GENERATOR, /* what map, select, reverse, ... give: iterable once */
};

struct vl_jlist;
struct vl_jmap;
struct vl_jmacro;
struct vl_jmethod;
struct vl_jloop;

struct vl_jv {
    uint8_t type; /* enum vl_jtype */
    uint8_t safe; /* string: Markup, made by |safe and |e */
    size_t n;     /* string, big: bytes */
    union {
        int64_t i; /* int, bool, func */
        double f;
        const char *s;
        struct vl_jlist *list;
        struct vl_jmap *map; /* map, namespace */
        const struct vl_jmacro *macro;
        const struct vl_jmethod *method;
        struct vl_jloop *loop;
    } u;
};

struct vl_jlist {
    enum vl_jlist_kind kind;
    int used; /* a generator that was iterated */
    size_t n, cap;
    struct vl_jv *v;
};

struct vl_jmap { /* in order of insertion */
    size_t n, cap;
    struct vl_jv *key, *val;
    uint32_t *index; /* hash table of positions + 1, from 9 entries on */
    size_t nindex;
};

struct vl_jmethod {
    struct vl_jv self;
    const char *name;
};

struct vl_jloop {
    const struct vl_jv *item;
    size_t n, at;
    int depth;                   /* 1: not inside itself */
    const struct vl_jnode *node; /* for a recursive one: itself and the scope around it */
    struct vl_jscope *around;
    struct vl_jv *changed; /* arguments of the last loop.changed() */
};

enum vl_jfunc {
    VL_JF_RAISE,
    VL_JF_STRFTIME,
    VL_JF_NAMESPACE,
    VL_JF_RANGE,
    VL_JF_DICT,
    VL_JF_OTHER, /* lipsum, cycler, joiner: there, but refused when called */
};

/* ---- syntax tree ---- */

enum vl_jkind {
    /* expressions */
    VL_JN_CONST,
    VL_JN_NAME,
    VL_JN_LIST,
    VL_JN_TUPLE,
    VL_JN_DICT,   /* list: key, value, key, value */
    VL_JN_ATTR,   /* a.s */
    VL_JN_ITEM,   /* a[b] */
    VL_JN_SLICE,  /* a[list[0]:list[1]:list[2]], NULL where left out */
    VL_JN_CALL,   /* a(list, kw) */
    VL_JN_FILTER, /* a|s(list, kw); a NULL: of a filter block */
    VL_JN_TEST,   /* a is s(list) */
    VL_JN_NOT,
    VL_JN_NEG,
    VL_JN_POS,
    VL_JN_AND,
    VL_JN_OR,
    VL_JN_BINARY,  /* a op b: + - * / // % ** ~, op is the token */
    VL_JN_COMPARE, /* a, then list of operands with ops */
    VL_JN_IF_EXPR, /* a if b else c */
    /* statements */
    VL_JN_TEXT,
    VL_JN_PRINT,
    VL_JN_BLOCK, /* list of statements */
    VL_JN_FOR,   /* for a in b if c: list[0] else list[1]; uses: recursive */
    VL_JN_IF,    /* if a: list[0] else list[1] */
    VL_JN_SET,   /* a = b */
    VL_JN_SET_BLOCK,
    VL_JN_MACRO,      /* a: body, list and kwval: parameters; uses: enum vl_juses */
    VL_JN_CALL_BLOCK, /* the same, and b the call that gets it as caller */
    VL_JN_FILTER_BLOCK,
    VL_JN_WITH,  /* list: target, value, ...; a: body */
    VL_JN_SCOPE, /* body a in a scope of its own: {% generation %} */
    VL_JN_BREAK,
    VL_JN_CONTINUE,
};

enum vl_jop {
    VL_JO_ADD,
    VL_JO_SUB,
    VL_JO_MUL,
    VL_JO_DIV,
    VL_JO_FLOORDIV,
    VL_JO_MOD,
    VL_JO_POW,
    VL_JO_CONCAT,
    VL_JO_EQ,
    VL_JO_NE,
    VL_JO_LT,
    VL_JO_LE,
    VL_JO_GT,
    VL_JO_GE,
    VL_JO_IN,
    VL_JO_NOT_IN,
};

struct vl_jnode {
    enum vl_jkind kind;
    enum vl_jop op; /* also of a COMPARE operand, kept in the operand's wrapper */
    int line;
    const char *s; /* names are interned: equal names are the same pointer */
    size_t n;
    struct vl_jv val;
    struct vl_jnode *a, *b, *c;
    struct vl_jnode **list;
    size_t nlist;
    const char **kw; /* names of keyword arguments; their values are kwval */
    struct vl_jnode **kwval;
    size_t nkw;
    enum vl_jop *ops; /* COMPARE: before each of list */
    int uses;
};

enum vl_juses { VL_J_CALLER = 1, VL_J_VARARGS = 2, VL_J_KWARGS = 4 };

struct vl_jmacro {
    const struct vl_jnode *node; /* list: parameters (NAME); kwval: defaults of the last nkw */
    struct vl_jscope *scope;
};

/* ---- interpreter ---- */

struct vl_jregion {
    struct vl_jchunk *chunk;
    size_t used; /* bytes in all chunks */
};
void *vl_jregion_take(struct vl_jregion *r, size_t n); /* zeroed, 16-aligned */
void vl_jregion_free(struct vl_jregion *r);

struct vl_jvar {
    const char *name; /* interned */
    struct vl_jv val;
};

struct vl_jscope {
    struct vl_jscope *parent;
    struct vl_jvar *var;
    size_t n, cap;
};

struct vl_jset { /* a variable given from outside: parsed anew for each render */
    const char *name;
    char *json;
    size_t n;
};

struct vl_jinja {
    char *src; /* newlines normalized */
    size_t n;
    char *name;
    struct vl_jregion tree; /* tokens, nodes, interned names */
    const char **intern;
    size_t nintern, cap_intern;
    struct vl_jnode *body;
    struct vl_jset *set;
    size_t nset;
    int64_t now;
    int now_set, now_utc;
};

struct vl_jin { /* one render or parse */
    struct vl_jinja *t;
    struct vl_jregion *mem;
    struct vl_buf *out;
    struct vl_err *e;
    int line, depth, vdepth;
    int64_t steps;
    int64_t kept;       /* macros made: they hold on to the scope they were defined in */
    struct vl_jv block; /* what a filter block or a filtered set block holds */
};

/* ---- tokens ---- */

enum vl_jtok_type {
    VL_JT_EOF,
    VL_JT_TEXT,
    VL_JT_VAR_BEGIN,
    VL_JT_VAR_END,
    VL_JT_BLOCK_BEGIN,
    VL_JT_BLOCK_END,
    VL_JT_NAME,
    VL_JT_STRING,
    VL_JT_INT,
    VL_JT_FLOAT,
    VL_JT_OP,
};
struct vl_jtok {
    enum vl_jtok_type type;
    int line;
    int op;        /* OP: the character, or two of them as c1 << 8 | c2 */
    const char *s; /* text, interned name, string with escapes resolved, digits */
    size_t n;
};
/* Cuts in->t->src; the array ends with EOF and lives in in->mem. VL_E_DATA on a bad character. */
int vl_jinja_lex(struct vl_jin *in, struct vl_jtok **out) VL_MUST_CHECK;

const char *vl_jinja_intern(struct vl_jinja *t, const char *s, size_t n);
int vl_jinja_parse(struct vl_jin *in) VL_MUST_CHECK;

/* Records "NAME: line N: ..."; returns an undefined value to go on with. */
struct vl_jv vl_jfail(struct vl_jin *in, const char *fmt, ...) VL_PRINTF(2, 3);
void *vl_jalloc(struct vl_jin *in,
                size_t n);         /* never NULL; beyond the limit it records a failure */
int vl_jstep(struct vl_jin *in);   /* 0: go on; else the error's code */
int vl_jenter(struct vl_jin *in);  /* one evaluation deeper; 0: go on. Pair with in->depth-- */
int vl_jventer(struct vl_jin *in); /* one value deeper; 0: go on. Pair with in->vdepth-- */
/* Fails when b has grown beyond the output limit; 0: go on. */
int vl_jbuf_check(struct vl_jin *in, const struct vl_buf *b);

/* jinja_value.c */
struct vl_jv vl_jv_undef(void);
struct vl_jv vl_jv_none(void);
struct vl_jv vl_jv_bool(int b);
struct vl_jv vl_jv_int(int64_t i);
struct vl_jv vl_jv_float(double f);
struct vl_jv vl_jv_digits(const char *s, size_t n); /* an integer of any size, borrows */
struct vl_jv vl_jv_wide(struct vl_jin *in, __int128 i);
struct vl_jv vl_jv_str(struct vl_jin *in, const char *s, size_t n); /* copies */
struct vl_jv vl_jv_ref(const char *s, size_t n);                    /* borrows */
struct vl_jv vl_jv_buf(struct vl_jin *in, struct vl_buf *b);        /* copies and frees b */
struct vl_jv vl_jv_list(struct vl_jin *in, enum vl_jlist_kind kind, size_t cap);
void vl_jlist_add(struct vl_jin *in, struct vl_jlist *l, struct vl_jv v);
struct vl_jv vl_jv_map(struct vl_jin *in, enum vl_jtype type);
void vl_jmap_set(struct vl_jin *in, struct vl_jmap *m, struct vl_jv key, struct vl_jv val);
int vl_jmap_get(const struct vl_jmap *m, struct vl_jv key, struct vl_jv *out); /* 1: found */
int vl_jmap_get_name(const struct vl_jmap *m, const char *key, struct vl_jv *out);
struct vl_jv vl_jv_json(struct vl_jin *in, const char *json, size_t n, const char *name);
int vl_jv_true(struct vl_jv v);
int vl_jv_equal(struct vl_jin *in, struct vl_jv a, struct vl_jv b);
int vl_jv_compare(struct vl_jin *in, struct vl_jv a, struct vl_jv b); /* <0 0 >0; fails on types */
int vl_jv_is_str(struct vl_jv v, const char *s);
int vl_jv_number(struct vl_jv v, double *out); /* int, bool, float: 1 */
const char *vl_jv_type_name(struct vl_jv v);   /* Python's */
/* The elements of anything iterable as a plain array; a generator is used up. NULL after failing. */
struct vl_jlist *vl_jv_iter(struct vl_jin *in, struct vl_jv v);
int vl_jv_iterable(struct vl_jv v);
int vl_jv_unhashable(struct vl_jv v); /* a list, a dictionary, or a tuple with one inside */
int64_t vl_jv_length(struct vl_jin *in, struct vl_jv v);

/* jinja_print.c */
void vl_jv_print(struct vl_jin *in, struct vl_buf *b, struct vl_jv v); /* str() */
void vl_jv_repr(struct vl_jin *in, struct vl_buf *b, struct vl_jv v);
struct vl_jv vl_jv_to_str(struct vl_jin *in, struct vl_jv v);
struct vl_json_style {
    int ensure_ascii, sort_keys;
    const char *indent, *item_sep, *key_sep; /* indent NULL: one line */
};
void vl_jv_tojson(struct vl_jin *in, struct vl_buf *b, struct vl_jv v,
                  const struct vl_json_style *style);
void vl_py_float(struct vl_buf *b, double x); /* repr(float) */

/* jinja_str.c: Python's str, over UTF-8 */
struct vl_jv vl_py_strip(struct vl_jv s, int left, int right);
struct vl_jv vl_py_strip_chars(struct vl_jv s, struct vl_jv chars, int left, int right);
struct vl_jv vl_py_slice(struct vl_jin *in, struct vl_jv s, int64_t at, int64_t n, int64_t step);
enum vl_py_case {
    VL_PY_UPPER,
    VL_PY_LOWER,
    VL_PY_CAPITALIZE,
    VL_PY_TITLE,       /* str.title: after anything that is no letter */
    VL_PY_JINJA_TITLE, /* |title: after white space and - ( { [ < */
};
struct vl_jv vl_py_case(struct vl_jin *in, struct vl_jv s, enum vl_py_case how);
struct vl_jv vl_py_split(struct vl_jin *in, struct vl_jv s, struct vl_jv sep, int64_t max,
                         int from_right);
struct vl_jv vl_py_splitlines(struct vl_jin *in, struct vl_jv s, int keep);
struct vl_jv vl_py_replace(struct vl_jin *in, struct vl_jv s, struct vl_jv from, struct vl_jv to,
                           int64_t max);
struct vl_jv vl_py_percent(struct vl_jin *in, struct vl_jv fmt, struct vl_jv args);
struct vl_jv vl_py_escape(struct vl_jin *in, struct vl_jv s);
int64_t vl_py_find(struct vl_jv s, struct vl_jv sub); /* in characters; -1 */
int vl_py_contains(struct vl_jv s, struct vl_jv sub);
int vl_py_is_case(struct vl_jv s, int upper); /* str.isupper, str.islower */

/* jinja_ops.c */
struct vl_jv vl_jop_binary(struct vl_jin *in, enum vl_jop op, struct vl_jv a, struct vl_jv b);
int vl_jop_in(struct vl_jin *in, struct vl_jv item, struct vl_jv in_what);
struct vl_jv vl_jop_attr(struct vl_jin *in, struct vl_jv a, const char *name);
struct vl_jv vl_jop_item(struct vl_jin *in, struct vl_jv a, struct vl_jv key);
struct vl_jv vl_jop_slice(struct vl_jin *in, struct vl_jv a, const struct vl_jv bound[3]);
struct vl_jv vl_jop_negate(struct vl_jin *in, struct vl_jv a);

/* Arguments of a call, a filter or a test. */
struct vl_jargs {
    struct vl_jv *v;
    size_t n;
    const char **kw;
    struct vl_jv *kwv;
    size_t nkw;
};
/* Argument by position or name; 1 when given. */
int vl_jarg(const struct vl_jargs *a, size_t at, const char *name, struct vl_jv *out);
/* Fails unless there are at most `max` positional ones and every keyword is in names ("a b c"). */
int vl_jargs_check(struct vl_jin *in, const struct vl_jargs *a, const char *what, size_t max,
                   const char *names);

/* jinja_global.c: the function of that name, or undefined. */
struct vl_jv vl_jglobal(const char *name);
struct vl_jv vl_jglobal_call(struct vl_jin *in, enum vl_jfunc f, const struct vl_jargs *a);
void vl_jrun(struct vl_jin *in); /* jinja_eval.c: the whole template with its variables */

/* The three tables: whether a name is known (for the parser), and the call. */
int vl_jfilter_known(const char *name);
int vl_jfilter_exists(const char *name); /* in jinja2, whether or not here */
struct vl_jv vl_jfilter(struct vl_jin *in, const char *name, struct vl_jv v,
                        const struct vl_jargs *a);
int vl_jtest_known(const char *name);
int vl_jtest(struct vl_jin *in, const char *name, struct vl_jv v, const struct vl_jargs *a);
int vl_jmethod_known(struct vl_jv self, const char *name); /* Python has it: 1 ours, -1 not ours */
struct vl_jv vl_jmethod_call(struct vl_jin *in, const struct vl_jmethod *m,
                             const struct vl_jargs *a);
struct vl_jv vl_jcall(struct vl_jin *in, struct vl_jv f, const struct vl_jargs *a);

#endif
