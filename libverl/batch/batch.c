/* batch.c - columns, rows and meta_info in memory. See batch.h.
 *
 * A name is one column, tensor or not: verl allows both at once, but then a row has two values of
 * one name, which neither the JSON view nor a flat tensordict can hold. Readers refuse it. */
#include "libverl/batch/batch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/base/utf8.h"

static const struct {
    const char *name;
    uint8_t size;
} dtypes[VL_NDTYPE] = {
    [VL_U8] = { "U8", 1 },     [VL_BOOL] = { "BOOL", 1 }, [VL_I8] = { "I8", 1 },
    [VL_I16] = { "I16", 2 },   [VL_U16] = { "U16", 2 },   [VL_F16] = { "F16", 2 },
    [VL_BF16] = { "BF16", 2 }, [VL_I32] = { "I32", 4 },   [VL_U32] = { "U32", 4 },
    [VL_F32] = { "F32", 4 },   [VL_I64] = { "I64", 8 },   [VL_U64] = { "U64", 8 },
    [VL_F64] = { "F64", 8 },
};

const char *vl_dtype_name(enum vl_dtype t)
{
    return dtypes[t].name;
}

size_t vl_dtype_size(enum vl_dtype t)
{
    return dtypes[t].size;
}

int vl_dtype_parse(const char *name, size_t n, enum vl_dtype *out)
{
    for (int t = 0; t < VL_NDTYPE; t++)
        if (strlen(dtypes[t].name) == n && memcmp(dtypes[t].name, name, n) == 0) {
            *out = (enum vl_dtype)t;
            return 1;
        }
    return 0;
}

/* ---- one column ---- */

int vl_col_name_ok(const char *name)
{
    static const char *const prefix[] = { "non_tensor_batch/", "non_tensor_offsets/",
                                          "ragged_offsets/" };
    size_t n = strlen(name);

    if (n == 0 || n > 4096 || strcmp(name, "__metadata__") == 0)
        return 0;
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0)
            return 0;
    return vl_utf8_valid(name, n);
}

void vl_col_free(struct vl_col *c)
{
    free(c->name);
    free(c->data);
    free(c->offsets);
    *c = (struct vl_col){ 0 };
}

int vl_col_clone(struct vl_col *dst, const struct vl_col *src, int64_t rows, struct vl_err *e)
{
    struct vl_col c = *src;

    c.name = NULL, c.data = NULL, c.offsets = NULL;
    if (vl_try_alloc(&c.data, src->bytes, 1, src->name, e))
        return e->code;
    if (src->bytes)
        memcpy(c.data, src->data, src->bytes);
    if (src->offsets) {
        size_t n = (size_t)rows + 1;

        if (vl_try_alloc(&c.offsets, n, sizeof *c.offsets, src->name, e)) {
            free(c.data);
            return e->code;
        }
        memcpy(c.offsets, src->offsets, n * sizeof *c.offsets);
    }
    c.name = vl_strdup(src->name);
    *dst = c;
    return 0;
}

size_t vl_col_row_bytes(const struct vl_col *c)
{
    size_t n = vl_dtype_size(c->dtype);

    for (int d = 1; d < c->ndim; d++)
        n *= (size_t)c->shape[d];
    return n;
}

const void *vl_col_row(const struct vl_col *c, int64_t row, size_t *n)
{
    size_t w = c->kind == VL_COL_JSON ? 1 : vl_col_row_bytes(c);

    if (c->kind == VL_COL_TENSOR) {
        *n = w;
        return (const char *)c->data + (size_t)row * w;
    }
    *n = (size_t)(c->offsets[row + 1] - c->offsets[row]) * w;
    return (const char *)c->data + (size_t)c->offsets[row] * w;
}

const char *vl_col_json(const struct vl_col *c, int64_t row, size_t *n)
{
    return vl_col_row(c, row, n);
}

/* 1 when the bytes that shape and dtype ask for are exactly those there. */
static int bytes_agree(const struct vl_col *c)
{
    size_t n = vl_dtype_size(c->dtype);

    for (int d = 0; d < c->ndim; d++)
        if (c->shape[d] < 0 || __builtin_mul_overflow(n, (size_t)c->shape[d], &n))
            return 0;
    return n == c->bytes;
}

static int col_check(const struct vl_col *c, int64_t rows, struct vl_err *e)
{
    if (c->ndim < 1 || c->ndim > VL_MAX_DIMS || !bytes_agree(c))
        return vl_fail(e, VL_E_DATA, "column %s: %zu bytes do not fit its shape and dtype %s",
                       c->name, c->bytes, vl_dtype_name(c->dtype));
    if (c->kind == VL_COL_TENSOR) {
        if (c->shape[0] != rows)
            return vl_fail(e, VL_E_DATA,
                           "column %s: leading dimension is %lld, but the batch has %lld rows",
                           c->name, (long long)c->shape[0], (long long)rows);
        return 0;
    }
    if (!c->offsets || c->offsets[0] != 0 || c->offsets[rows] != c->shape[0])
        return vl_fail(e, VL_E_DATA, "column %s: offsets do not run from 0 to %lld", c->name,
                       (long long)c->shape[0]);
    for (int64_t i = 0; i < rows; i++)
        if (c->offsets[i + 1] < c->offsets[i])
            return vl_fail(e, VL_E_DATA, "column %s: row %lld ends before it starts (%lld < %lld)",
                           c->name, (long long)i, (long long)c->offsets[i + 1],
                           (long long)c->offsets[i]);
    return 0;
}

/* ---- the batch ---- */

void vl_batch_free(struct vl_batch *b)
{
    for (size_t i = 0; i < b->ncol; i++) {
        vl_col_free(b->col[i]);
        free(b->col[i]);
    }
    for (size_t i = 0; i < b->nmeta; i++) {
        free(b->meta[i].key);
        free(b->meta[i].json);
    }
    free(b->col);
    free(b->meta);
    free(b->provenance);
    free(b->parent);
    *b = (struct vl_batch){ 0 };
}

int vl_batch_clone(struct vl_batch *dst, const struct vl_batch *src, struct vl_err *e)
{
    struct vl_batch b = { .has_batch = src->has_batch, .rows = src->rows };

    for (size_t i = 0; i < src->ncol; i++) {
        struct vl_col c;

        if (vl_col_clone(&c, src->col[i], src->rows, e)) {
            vl_batch_free(&b);
            return e->code;
        }
        vl_batch_put(&b, &c);
    }
    vl_batch_take_info(&b, src);
    *dst = b;
    return 0;
}

void vl_batch_take_info(struct vl_batch *dst, const struct vl_batch *src)
{
    for (size_t i = 0; i < src->nmeta; i++)
        vl_meta_set(dst, src->meta[i].key, src->meta[i].json);
    free(dst->provenance);
    dst->provenance = vl_strdup(src->provenance);
    for (size_t i = 0; i < src->nparent; i++)
        vl_batch_add_parent(dst, src->parent[i]);
}

int vl_batch_check(const struct vl_batch *b, struct vl_err *e)
{
    for (size_t i = 0; i < b->ncol; i++)
        if (col_check(b->col[i], b->rows, e))
            return e->code;
    return 0;
}

void vl_batch_add_parent(struct vl_batch *b, const char *hash)
{
    if (!hash || strlen(hash) != sizeof b->parent[0] - 1)
        return;
    for (size_t i = 0; i < b->nparent; i++)
        if (strcmp(b->parent[i], hash) == 0)
            return;
    b->parent = vl_realloc(b->parent, (b->nparent + 1) * sizeof *b->parent);
    memcpy(b->parent[b->nparent++], hash, sizeof *b->parent);
}

struct vl_col *vl_batch_col(const struct vl_batch *b, const char *name)
{
    for (size_t i = 0; i < b->ncol; i++)
        if (strcmp(b->col[i]->name, name) == 0)
            return b->col[i];
    return NULL;
}

void vl_batch_put(struct vl_batch *b, struct vl_col *c)
{
    struct vl_col *old = vl_batch_col(b, c->name);

    if (old) {
        vl_col_free(old);
    } else {
        b->col = vl_realloc(b->col, (b->ncol + 1) * sizeof *b->col);
        old = b->col[b->ncol++] = vl_alloc(sizeof *old);
    }
    *old = *c;
    if (c->kind != VL_COL_JSON)
        b->has_batch = 1;
    *c = (struct vl_col){ 0 };
}

int vl_batch_add_tensor(struct vl_batch *b, const char *name, enum vl_dtype t, int ndim_inner,
                        const int64_t *inner, struct vl_col **out, struct vl_err *e)
{
    struct vl_col c = { .kind = VL_COL_TENSOR, .dtype = t, .ndim = ndim_inner + 1 };
    size_t n = (size_t)b->rows;

    if (ndim_inner < 0 || ndim_inner >= VL_MAX_DIMS)
        return vl_fail(e, VL_E_BUG, "column %s: %d inner dimensions, at most %d", name, ndim_inner,
                       VL_MAX_DIMS - 1);
    c.shape[0] = b->rows;
    for (int d = 0; d < ndim_inner; d++) {
        c.shape[d + 1] = inner[d];
        if (inner[d] < 0 || __builtin_mul_overflow(n, (size_t)inner[d], &n))
            return vl_fail(e, VL_E_OS, "column %s: dimension %lld is out of range", name,
                           (long long)inner[d]);
    }
    if (vl_try_alloc(&c.data, n, vl_dtype_size(t), name, e))
        return e->code;
    c.bytes = n * vl_dtype_size(t);
    c.name = vl_strdup(name);
    vl_batch_put(b, &c);
    if (out)
        *out = vl_batch_col(b, name);
    return 0;
}

void vl_batch_add_json(struct vl_batch *b, const char *name, char *data, int64_t *offsets)
{
    struct vl_col c = { .kind = VL_COL_JSON, .dtype = VL_U8, .ndim = 1 };

    c.name = vl_strdup(name);
    c.data = data;
    c.offsets = offsets;
    c.bytes = (size_t)offsets[b->rows];
    c.shape[0] = offsets[b->rows];
    vl_batch_put(b, &c);
}

void vl_batch_drop(struct vl_batch *b, const char *name)
{
    size_t i = 0;

    while (i < b->ncol && strcmp(b->col[i]->name, name) != 0)
        i++;
    if (i == b->ncol)
        return;
    vl_col_free(b->col[i]);
    free(b->col[i]);
    b->ncol--;
    memmove(b->col + i, b->col + i + 1, (b->ncol - i) * sizeof *b->col);
}

static void list_columns(const struct vl_batch *b, struct vl_buf *out)
{
    for (size_t i = 0; i < b->ncol && i < 40; i++)
        vl_buf_printf(out, "%s%s", i ? ", " : "", b->col[i]->name);
    if (!b->ncol)
        vl_buf_str(out, "none");
}

int vl_batch_missing(const struct vl_batch *b, const char *what, const char *name, struct vl_err *e)
{
    struct vl_buf have = { 0 };

    list_columns(b, &have);
    vl_fail(e, VL_E_DATA, "%s: no column %s (there are: %s)", what, name, have.s);
    vl_buf_free(&have);
    return e->code;
}

static void put_dims(struct vl_buf *out, int n, const int64_t *dim)
{
    vl_buf_str(out, "(rows");
    for (int d = 0; d < n; d++)
        if (dim[d] < 0)
            vl_buf_str(out, ", any");
        else
            vl_buf_printf(out, ", %lld", (long long)dim[d]);
    vl_buf_ch(out, ')');
}

int vl_batch_need(const struct vl_batch *b, const char *name, enum vl_dtype t, int ndim_inner,
                  int64_t *inner, void *data_out, struct vl_err *e)
{
    const struct vl_col *c = vl_batch_col(b, name);
    struct vl_buf have = { 0 }, want = { 0 };
    int same;

    if (!c)
        return vl_batch_missing(b, "a needed column is absent", name, e);
    same = c->kind == VL_COL_TENSOR && c->dtype == t && c->ndim == ndim_inner + 1;
    for (int d = 0; same && d < ndim_inner; d++)
        same = inner[d] < 0 || inner[d] == c->shape[d + 1];
    if (!same) {
        put_dims(&have, c->ndim - 1, c->shape + 1);
        put_dims(&want, ndim_inner, inner);
        vl_fail(e, VL_E_DATA, "column %s is %s %s %s, but must be a dense %s %s", name,
                c->kind == VL_COL_JSON     ? "a JSON column,"
                : c->kind == VL_COL_RAGGED ? "ragged"
                                           : "a dense",
                vl_dtype_name(c->dtype), have.s, vl_dtype_name(t), want.s);
        vl_buf_free(&have);
        vl_buf_free(&want);
        return e->code;
    }
    for (int d = 0; d < ndim_inner; d++)
        inner[d] = c->shape[d + 1];
    if (data_out)
        *(void **)data_out = c->data;
    return 0;
}

const char *vl_batch_row_name(const struct vl_batch *b, int64_t row, char *buf, size_t size)
{
    const struct vl_col *c = vl_batch_col(b, "uid");
    size_t n = 0;
    const char *uid = c && c->kind == VL_COL_JSON ? vl_col_json(c, row, &n) : NULL;

    if (uid)
        snprintf(buf, size, "row %" PRId64 " (uid %.*s)", row, (int)(n < 80 ? n : 80), uid);
    else
        snprintf(buf, size, "row %" PRId64, row);
    return buf;
}

int vl_batch_need_mask(const struct vl_batch *b, const char *name, int64_t *width,
                       const int64_t **mask, struct vl_err *e)
{
    char who[128];

    if (vl_batch_need(b, name, VL_I64, 1, width, mask, e))
        return e->code;
    for (int64_t k = 0; k < b->rows * *width; k++)
        if ((*mask)[k] != 0 && (*mask)[k] != 1)
            return vl_fail(
                e, VL_E_DATA, "%s: %s is %" PRId64 " at position %" PRId64 "; a mask is 0 or 1",
                vl_batch_row_name(b, k / *width, who, sizeof who), name, (*mask)[k], k % *width);
    return 0;
}
