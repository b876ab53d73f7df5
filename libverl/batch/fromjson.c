/* fromjson.c - JSON lines to a batch. See fromjson.h.
 *
 * Two passes over the text, the first for types and widths: keeping all parsed rows would take 32
 * bytes a number, many times the batch. */
#include "libverl/batch/fromjson.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/fields.h"
#include "formats/json.h"
#include "libverl/base/args.h"
#include "libverl/base/base64.h"
#include "libverl/base/half.h"
#include "libverl/batch/ops.h"
#include "libverl/batch/view.h"

enum { PAD_NONE, PAD_LEFT, PAD_RIGHT };

struct member {
    char *name;
    int known; /* type given by option, like or dictionary */
    enum vl_col_kind kind;
    enum vl_dtype dtype;
    int ndim; /* inner dimensions; -1 = not known yet */
    int64_t dim[VL_MAX_DIMS];
    int fixed, shaped; /* all of dim, or its number, comes from like or the dictionary */
    int side;
    char letter; /* P, R, S of the dictionary, or 0 */
    int64_t pad;
    int other, fraction, number; /* what was seen: no numbers, fractions, numbers */
    struct vl_buf text;          /* JSON and ragged columns as they grow */
    struct vl_col col;
};

struct from {
    const char *name;
    const struct vl_fromjson *opt;
    struct member *m;
    size_t nm;
    int64_t rows, line, views;
    struct vl_err *e;
};

static int bad(struct from *f, const char *member, const char *what)
{
    return vl_fail(f->e, VL_E_DATA, "%s:%" PRId64 ": %s: %s", f->name, f->line, member, what);
}

/* ---- lines ---- */

static int blank(const char *s, size_t n)
{
    while (n && strchr(" \t\r", s[n - 1]))
        n--;
    return n == 0;
}

/* Calls row() for each line's object, in order. */
static int each_row(struct from *f, const char *text, size_t n,
                    int (*row)(struct from *, const struct vl_json *))
{
    f->rows = f->line = 0;
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t len = end ? (size_t)(end - text) - at : n - at;

        f->line++;
        if (!blank(text + at, len)) {
            struct vl_json j = { 0 };
            char where[300];
            int rc;

            snprintf(where, sizeof where, "%.200s:%" PRId64, f->name, f->line);
            rc = vl_json_parse(&j, text + at, len, where, f->e);
            if (!rc && !vl_json_is(&j, 0, VL_JSON_OBJECT))
                rc = vl_fail(f->e, VL_E_DATA, "%s: not an object", where);
            if (!rc)
                rc = row(f, &j);
            vl_json_free(&j);
            if (rc)
                return rc;
            f->rows++;
        }
        at += len + 1;
    }
    return 0;
}

/* ---- which members are columns ---- */

static int given_dtype(struct from *f, struct member *m)
{
    size_t n = strlen(m->name);

    for (size_t i = 0; i < f->opt->ndtype; i++) {
        const char *s = f->opt->dtype[i], *eq = strrchr(s, '=');

        if (!eq)
            return vl_fail(f->e, VL_E_USAGE, "--dtype %s: not NAME=TYPE, such as score=F32", s);
        if ((size_t)(eq - s) != n || memcmp(s, m->name, n) != 0)
            continue;
        m->known = 1;
        m->ndim = -1;
        m->kind = VL_COL_TENSOR;
        if (strcmp(eq + 1, "json") == 0)
            m->kind = VL_COL_JSON;
        else if (!vl_dtype_parse(eq + 1, strlen(eq + 1), &m->dtype))
            return vl_fail(f->e, VL_E_USAGE,
                           "--dtype %s: unknown type (json U8 BOOL I8 I16 U16 F16 "
                           "BF16 I32 U32 F32 I64 U64 F64)",
                           s);
    }
    return 0;
}

/* Padding of the dictionary's token columns, and the type if nothing gave it before. */
static void use_field(struct from *f, struct member *m)
{
    const struct vl_field *d = vl_field_find(m->name);

    if (!d)
        return;
    if (!m->known) {
        m->known = 1;
        m->kind = d->json ? VL_COL_JSON : VL_COL_TENSOR;
        m->dtype = d->dtype;
        m->ndim = (int)strlen(d->shape);
        m->shaped = 1;
    }
    if (m->kind != VL_COL_TENSOR || d->json)
        return;
    m->letter = strchr("PRS", d->shape[0]) ? d->shape[0] : 0;
    m->side = m->letter == 'P' ? PAD_LEFT : m->letter == 'R' ? PAD_RIGHT : PAD_NONE;
    if (d->pad == VL_PAD_ID && f->opt->like)
        vl_meta_i64(f->opt->like, "pad_token_id", &m->pad);
}

static int add_member(struct from *f, char *name)
{
    const struct vl_col *c = f->opt->like ? vl_batch_col(f->opt->like, name) : NULL;
    struct member *m;

    f->m = vl_realloc(f->m, (f->nm + 1) * sizeof *f->m);
    m = &f->m[f->nm++];
    *m = (struct member){ .name = name, .ndim = -1 };
    if (c) {
        m->known = m->fixed = 1;
        m->kind = c->kind;
        m->dtype = c->dtype;
        m->ndim = c->ndim - 1;
        memcpy(m->dim, c->shape + 1, sizeof m->dim - sizeof m->dim[0]);
    }
    if (given_dtype(f, m))
        return f->e->code;
    if (m->ndim < 0)
        m->fixed = 0;
    use_field(f, m);
    return 0;
}

/* Text views, and exact bytes that stand beside a column, are no columns. */
static int is_view(const struct from *f, const struct vl_json *j, const char *name)
{
    static const char *const view[] = { "prompt_text", "response_text", "prompt_text_b64",
                                        "response_text_b64" };
    size_t n = strlen(name);
    char *base;
    int there;

    if (f->opt->like && vl_batch_col(f->opt->like, name))
        return 0;
    for (size_t i = 0; i < 4; i++)
        if (strcmp(view[i], name) == 0)
            return 1;
    if (n <= 4 || strcmp(name + n - 4, "_b64") != 0)
        return 0;
    base = vl_strndup(name, n - 4);
    there = vl_json_get(j, 0, base) >= 0;
    free(base);
    return there;
}

/* Members of the first row: like's columns first, in its order, then the rest in theirs. */
static int find_members(struct from *f, const struct vl_json *j)
{
    const struct vl_batch *like = f->opt->like;
    uint32_t k = 1;

    for (size_t i = 0; like && i < like->ncol; i++)
        if (vl_json_get(j, 0, like->col[i]->name) >= 0 &&
            add_member(f, vl_strdup(like->col[i]->name)))
            return f->e->code;
    for (uint32_t i = 0; i < j->node[0].count; i++) {
        char *name = vl_json_name(j, k);
        int there = 0;

        for (size_t c = 0; c < f->nm; c++)
            there |= strcmp(f->m[c].name, name) == 0;
        if (there || is_view(f, j, name)) {
            f->views += !there && strstr(name, "_text") != NULL;
            free(name);
        } else if (!vl_col_name_ok(name)) {
            bad(f, name, "a column cannot be called so");
            free(name);
            return f->e->code;
        } else if (add_member(f, name)) {
            return f->e->code;
        }
        k = j->node[j->node[k].next].next;
    }
    return 0;
}

/* ---- first pass: types and widths ---- */

static int is_nonfinite(const struct vl_json *j, uint32_t i)
{
    return vl_json_streq(j, i, "NaN") || vl_json_streq(j, i, "Infinity") ||
           vl_json_streq(j, i, "-Infinity");
}

static int has_fraction(const struct vl_json *j, uint32_t i)
{
    for (size_t k = 0; k < j->node[i].len; k++)
        if (strchr(".eE", j->text[j->node[i].at + k]))
            return 1;
    return 0;
}

/* Looks at the leaves of a value whose type nothing gave. */
static void look(struct member *m, const struct vl_json *j, uint32_t i)
{
    for (uint32_t k = i; k < j->node[i].next; k++) {
        int t = j->node[k].type;

        if (t == VL_JSON_ARRAY)
            continue;
        if (t == VL_JSON_NUMBER) {
            m->number = 1;
            m->fraction |= has_fraction(j, k);
        } else if (t == VL_JSON_STRING && is_nonfinite(j, k)) {
            m->fraction = 1;
        } else {
            m->other = 1;
        }
    }
}

/* Dimensions of nested lists, from the first elements. */
static int nested_dims(const struct vl_json *j, uint32_t i, int64_t *dim)
{
    int n = 0;

    while (vl_json_is(j, i, VL_JSON_ARRAY) && n < VL_MAX_DIMS - 1) {
        dim[n++] = j->node[i].count;
        if (!j->node[i].count)
            break;
        i++;
    }
    return n;
}

static void measure(struct member *m, const struct vl_json *j, uint32_t v)
{
    int64_t dim[VL_MAX_DIMS] = { 0 };
    int n;

    if (!m->known)
        look(m, j, v);
    if (m->fixed || (m->kind == VL_COL_JSON && m->known))
        return;
    n = nested_dims(j, v, dim);
    if (m->ndim < 0) {
        m->ndim = n;
        memcpy(m->dim, dim, sizeof dim);
    } else {
        if (m->ndim < n && !m->shaped)
            m->ndim = n; /* [] in an earlier row hides depth; filling checks the rest */
        for (int d = 0; d < n && d < m->ndim; d++)
            if (dim[d] > m->dim[d])
                m->dim[d] = dim[d];
    }
}

static int measure_row(struct from *f, const struct vl_json *j)
{
    uint32_t k = 1;

    if (f->rows == 0 && find_members(f, j))
        return f->e->code;
    for (size_t i = 0; i < f->nm; i++) {
        int64_t v = vl_json_get(j, 0, f->m[i].name);

        if (v < 0)
            return bad(f, f->m[i].name, "no such member, but the first row has it");
        measure(&f->m[i], j, (uint32_t)v);
    }
    for (uint32_t i = 0; i < j->node[0].count; i++) { /* members that are new in this row */
        char *name = vl_json_name(j, k);
        int known = is_view(f, j, name);

        for (size_t c = 0; c < f->nm; c++)
            known |= strcmp(f->m[c].name, name) == 0;
        if (!known)
            bad(f, name, "the first row has no such member");
        free(name);
        k = j->node[j->node[k].next].next;
    }
    return f->e->code;
}

/* One width for all columns of a letter: S = P + R where both are there. */
static void common_widths(struct from *f)
{
    int64_t w[128] = { 0 };

    for (size_t i = 0; i < f->nm; i++) {
        struct member *m = &f->m[i];

        if (m->letter && m->ndim > 0 && m->dim[0] > w[(int)m->letter])
            w[(int)m->letter] = m->dim[0];
    }
    for (size_t i = 0; i < f->nm; i++)
        if (f->m[i].letter && f->m[i].ndim > 0 && !f->m[i].fixed)
            f->m[i].dim[0] = w[(int)f->m[i].letter];
}

static int settle(struct from *f)
{
    for (size_t i = 0; i < f->nm; i++) {
        struct member *m = &f->m[i];

        if (!m->known) {
            m->kind = m->other || !(m->number || m->fraction) ? VL_COL_JSON : VL_COL_TENSOR;
            if (!m->number) /* "NaN" everywhere is text */
                m->kind = VL_COL_JSON;
            m->dtype = m->kind == VL_COL_JSON ? VL_U8 : VL_F32;
            if (m->kind == VL_COL_TENSOR && !m->fraction)
                return vl_fail(f->e, VL_E_DATA,
                               "%s: column %s holds only integers, which may be printed real "
                               "numbers: give --like FILE or --dtype %s=I64 (F32, json)",
                               f->name, m->name, m->name);
        }
        if (m->kind == VL_COL_TENSOR && m->ndim < 0)
            m->ndim = 0;
    }
    common_widths(f);
    return 0;
}

/* ---- second pass: filling ---- */

/* U64 above I64's range: a plain integer of at most 20 digits. */
static int big_u64(const char *s, size_t n, uint64_t *u)
{
    *u = 0;
    if (n == 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t digit = (uint64_t)(s[i] - '0');

        if (s[i] < '0' || s[i] > '9' || __builtin_mul_overflow(*u, 10, u) ||
            __builtin_add_overflow(*u, digit, u))
            return 0;
    }
    return 1;
}

/* Whole numbers: integers, reals without a fraction (3.0), and strings of digits, which is how
 * integers beyond doubles pass through jq. */
static int store_integer(const struct vl_json *j, uint32_t i, enum vl_dtype t, uint8_t *dst)
{
    static const int64_t lo[VL_NDTYPE] = {
        [VL_I8] = INT8_MIN, [VL_I16] = INT16_MIN, [VL_I32] = INT32_MIN, [VL_I64] = INT64_MIN
    };
    static const uint64_t hi[VL_NDTYPE] = {
        [VL_U8] = UINT8_MAX,   [VL_BOOL] = 1,         [VL_I8] = INT8_MAX,
        [VL_I16] = INT16_MAX,  [VL_U16] = UINT16_MAX, [VL_I32] = INT32_MAX,
        [VL_U32] = UINT32_MAX, [VL_I64] = INT64_MAX,  [VL_U64] = UINT64_MAX
    };
    const char *s = j->text + j->node[i].at;
    size_t n = j->node[i].len;
    uint64_t u;
    int64_t x;
    double d;

    if (!vl_json_is(j, i, VL_JSON_NUMBER) && !vl_json_is(j, i, VL_JSON_STRING))
        return 0;
    if (vl_arg_i64(s, n, &x)) {
        if (x < lo[t] || (x > 0 && (uint64_t)x > hi[t]))
            return 0;
        u = (uint64_t)x;
    } else if (big_u64(s, n, &u)) {
        if (u > hi[t])
            return 0;
    } else if (vl_json_f64(j, i, &d) && d == floor(d) && fabs(d) < 9007199254740992.0) {
        if (d < (double)lo[t] || d > (double)hi[t])
            return 0;
        u = (uint64_t)(int64_t)d;
    } else {
        return 0;
    }
    memcpy(dst, &u, vl_dtype_size(t));
    return 1;
}

static int store_real(const struct vl_json *j, uint32_t i, enum vl_dtype t, uint8_t *dst)
{
    double d;
    float x;
    uint16_t h;

    if (!vl_json_real(j, i, &d))
        return 0;
    x = (float)d;
    if (t == VL_F64) {
        memcpy(dst, &d, 8);
        return 1;
    }
    if (isfinite(d) && !isfinite(x))
        return 0;
    if (t == VL_F32) {
        memcpy(dst, &x, 4);
        return 1;
    }
    h = t == VL_F16 ? vl_f32_to_f16(x) : vl_f32_to_bf16(x);
    memcpy(dst, &h, 2);
    return 1;
}

static int is_real(enum vl_dtype t)
{
    return t == VL_F16 || t == VL_BF16 || t == VL_F32 || t == VL_F64;
}

static int store(struct from *f, const struct member *m, const struct vl_json *j, uint32_t i,
                 uint8_t *dst)
{
    int b;

    if (m->dtype == VL_BOOL && vl_json_bool(j, i, &b)) {
        *dst = (uint8_t)b;
        return 0;
    }
    if (is_real(m->dtype) ? store_real(j, i, m->dtype, dst) : store_integer(j, i, m->dtype, dst))
        return 0;
    return vl_fail(f->e, VL_E_DATA, "%s:%" PRId64 ": %s: %.*s is no value of type %s", f->name,
                   f->line, m->name, (int)(j->node[i].len > 60 ? 60 : j->node[i].len),
                   j->text + j->node[i].at, vl_dtype_name(m->dtype));
}

/* Nested lists of exactly dim[0..n) to dst, row-major. */
static int store_nested(struct from *f, const struct member *m, const struct vl_json *j, uint32_t i,
                        int n, const int64_t *dim, uint8_t *dst)
{
    size_t w = vl_dtype_size(m->dtype);
    uint32_t c = i + 1;

    if (n == 0)
        return store(f, m, j, i, dst);
    if (!vl_json_is(j, i, VL_JSON_ARRAY) || j->node[i].count != dim[0])
        return vl_fail(f->e, VL_E_DATA,
                       "%s:%" PRId64 ": %s: not a list of %" PRId64 " %s as in the other rows",
                       f->name, f->line, m->name, dim[0], n > 1 ? "lists" : "numbers");
    for (int d = 1; d < n; d++)
        w *= (size_t)dim[d];
    for (int64_t k = 0; k < dim[0]; k++, c = j->node[c].next)
        if (store_nested(f, m, j, c, n - 1, dim + 1, dst + (size_t)k * w))
            return f->e->code;
    return 0;
}

/* A list that says something of each token of the response and is shorter than the width: right where
 * the row's own responses are as short, else values are missing. */
static int check_short(struct from *f, const struct member *m, const struct vl_json *j, int64_t len)
{
    int64_t ids = vl_json_get(j, 0, "responses"), want = m->dim[0];
    int there = vl_json_is(j, ids, VL_JSON_ARRAY);

    if (m->letter != 'R' || strcmp(m->name, "responses") == 0 || (!there && !m->fixed))
        return 0;
    if (there)
        want = j->node[ids].count;
    if (len == want)
        return 0;
    return vl_fail(f->e, VL_E_DATA,
                   "%s:%" PRId64 ": %s: %" PRId64 " values, but %s %" PRId64
                   "; one is needed for each token",
                   f->name, f->line, m->name, len,
                   there ? "the responses of the row are" : "the width by --like is", want);
}

/* A token list that may be shorter than its width. */
static int fill_padded(struct from *f, struct member *m, const struct vl_json *j, uint32_t v,
                       uint8_t *dst)
{
    size_t w = vl_dtype_size(m->dtype);
    int64_t len = j->node[v].count, first = m->side == PAD_LEFT ? m->dim[0] - len : 0;
    uint32_t c = v + 1;

    if (len > m->dim[0])
        return vl_fail(f->e, VL_E_DATA,
                       "%s:%" PRId64 ": %s: %" PRId64 " tokens, but the width is %" PRId64, f->name,
                       f->line, m->name, len, m->dim[0]);
    if (len < m->dim[0] && check_short(f, m, j, len))
        return f->e->code;
    for (int64_t k = 0; k < m->dim[0]; k++) {
        if (k >= first && k < first + len) {
            if (store(f, m, j, c, dst + (size_t)k * w))
                return f->e->code;
            c = j->node[c].next;
        } else if (m->pad && !is_real(m->dtype)) {
            memcpy(dst + (size_t)k * w, &m->pad, w);
        }
    }
    return 0;
}

static int fill_dense(struct from *f, struct member *m, const struct vl_json *j, uint32_t v)
{
    uint8_t *dst = (uint8_t *)m->col.data + (size_t)f->rows * vl_col_row_bytes(&m->col);

    if (m->side != PAD_NONE && m->ndim == 1 && vl_json_is(j, v, VL_JSON_ARRAY))
        return fill_padded(f, m, j, v, dst);
    return store_nested(f, m, j, v, m->ndim, m->dim, dst);
}

static int fill_ragged(struct from *f, struct member *m, const struct vl_json *j, uint32_t v)
{
    int64_t dim[VL_MAX_DIMS];
    size_t w = vl_dtype_size(m->dtype);

    if (!vl_json_is(j, v, VL_JSON_ARRAY))
        return bad(f, m->name, "not a list");
    dim[0] = j->node[v].count;
    memcpy(dim + 1, m->dim, sizeof dim - sizeof dim[0]);
    for (int d = 0; d < m->ndim; d++)
        w *= (size_t)m->dim[d];
    vl_buf_reserve(&m->text, w * (size_t)dim[0]);
    if (store_nested(f, m, j, v, m->ndim + 1, dim, (uint8_t *)m->text.s + m->text.n))
        return f->e->code;
    m->text.n += w * (size_t)dim[0];
    m->col.offsets[f->rows + 1] = m->col.offsets[f->rows] + dim[0];
    return 0;
}

/* A value jq gave back as it was keeps like's own bytes: jq rewrites escapes and numbers. */
static int keep_like(struct from *f, struct member *m, const struct vl_buf *text)
{
    const struct vl_col *c = f->opt->like ? vl_batch_col(f->opt->like, m->name) : NULL;
    const char *p;
    size_t n;

    if (!c || c->kind != VL_COL_JSON || f->rows >= f->opt->like->rows)
        return 0;
    p = vl_col_json(c, f->rows, &n);
    if (!vl_json_equal(p, n, text->s, text->n, 1))
        return 0;
    vl_buf_add(&m->text, p, n);
    return 1;
}

/* The exact text of NAME_b64 when it is there, else the value's own, without white space. */
static int fill_json(struct from *f, struct member *m, const struct vl_json *j, uint32_t v)
{
    char *name = vl_asprintf("%s_b64", m->name);
    int64_t b = f->opt->like && vl_batch_col(f->opt->like, name) ? -1 : vl_json_get(j, 0, name);
    struct vl_json check = { 0 };
    struct vl_buf text = { 0 };
    int rc = 0;

    free(name);
    if (b < 0) {
        vl_json_raw(j, v, &text);
        if (!keep_like(f, m, &text))
            vl_view_compact(&m->text, text.s, text.n);
    } else if (!vl_json_is(j, b, VL_JSON_STRING) ||
               !vl_base64_get(&text, j->text + j->node[b].at, j->node[b].len)) {
        rc = bad(f, m->name, "its _b64 member is not base64");
    } else {
        rc = vl_json_parse(&check, text.s ? text.s : "", text.n, m->name, f->e);
        vl_json_free(&check);
        vl_buf_add(&m->text, text.s, text.n);
    }
    vl_buf_free(&text);
    m->col.offsets[f->rows + 1] = (int64_t)m->text.n;
    return rc;
}

static int fill_row(struct from *f, const struct vl_json *j)
{
    for (size_t i = 0; i < f->nm; i++) {
        struct member *m = &f->m[i];
        uint32_t v = (uint32_t)vl_json_get(j, 0, m->name);
        int rc = m->kind == VL_COL_JSON     ? fill_json(f, m, j, v)
                 : m->kind == VL_COL_RAGGED ? fill_ragged(f, m, j, v)
                                            : fill_dense(f, m, j, v);

        if (rc)
            return rc;
    }
    return 0;
}

static int prepare(struct from *f, int64_t rows)
{
    for (size_t i = 0; i < f->nm; i++) {
        struct member *m = &f->m[i];
        struct vl_col *c = &m->col;
        size_t n = (size_t)rows;

        c->kind = m->kind;
        c->dtype = m->dtype;
        c->ndim = m->kind == VL_COL_JSON ? 1 : m->ndim + 1;
        c->shape[0] = rows;
        if (m->kind != VL_COL_JSON)
            memcpy(c->shape + 1, m->dim, sizeof c->shape - sizeof c->shape[0]);
        if (m->kind != VL_COL_TENSOR) {
            if (vl_try_alloc(&c->offsets, n + 1, sizeof *c->offsets, m->name, f->e))
                return f->e->code;
            continue;
        }
        for (int d = 0; d < m->ndim; d++)
            if (__builtin_mul_overflow(n, (size_t)m->dim[d], &n))
                return vl_fail(f->e, VL_E_OS, "column %s: too large", m->name);
        if (vl_try_alloc(&c->data, n, vl_dtype_size(m->dtype), m->name, f->e))
            return f->e->code;
        c->bytes = n * vl_dtype_size(m->dtype);
    }
    return 0;
}

static void finish(struct from *f, struct vl_batch *b)
{
    int has = b->has_batch;

    for (size_t i = 0; i < f->nm; i++) {
        struct member *m = &f->m[i];

        if (m->kind != VL_COL_TENSOR) {
            m->col.bytes = m->text.n;
            m->col.shape[0] = m->col.offsets[b->rows];
            m->col.data = vl_buf_detach(&m->text);
        }
        m->col.name = vl_strdup(m->name);
        has |= m->kind != VL_COL_JSON;
        vl_batch_put(b, &m->col);
    }
    b->has_batch = has;
}

/* No rows: like's columns without any. */
static int empty_like(struct from *f, struct vl_batch *b)
{
    const struct vl_batch *like = f->opt->like;

    if (!like)
        return vl_fail(f->e, VL_E_DATA, "%s: no rows, and no --like FILE to say what they would be",
                       f->name);
    return vl_batch_rows(b, like, 0, 0, f->e);
}

int vl_batch_from_json(struct vl_batch *b, const char *text, size_t n, const char *name,
                       const struct vl_fromjson *opt, int64_t *views, struct vl_err *e)
{
    struct from f = { .name = name, .opt = opt, .e = e };
    int rc = each_row(&f, text, n, measure_row);

    *b = (struct vl_batch){ 0 };
    if (!rc && f.rows == 0) {
        rc = empty_like(&f, b);
    } else if (!rc && !(rc = settle(&f)) && !(rc = prepare(&f, f.rows)) &&
               !(rc = each_row(&f, text, n, fill_row))) {
        b->rows = f.rows;
        b->has_batch = opt->like ? opt->like->has_batch : 1;
        finish(&f, b);
        if (opt->like)
            vl_batch_take_info(b, opt->like);
    }
    if (views)
        *views = f.views;
    for (size_t i = 0; i < f.nm; i++) {
        free(f.m[i].name);
        vl_buf_free(&f.m[i].text);
        vl_col_free(&f.m[i].col);
    }
    free(f.m);
    return rc;
}
