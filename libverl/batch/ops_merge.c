/* ops_merge.c - DataProto operations that merge batches: union, concat, unite. See ops.h.
 *
 * Each first checks everything, then changes: verl's union leaves half of the columns behind when
 * a later one conflicts. */
#include "libverl/batch/ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "formats/json.h"
#include "libverl/base/half.h"
#include "libverl/batch/meta_merge.h"
#include "libverl/batch/provenance.h"

static const char *kind_name(enum vl_col_kind k)
{
    return k == VL_COL_JSON ? "JSON" : k == VL_COL_RAGGED ? "ragged" : "dense";
}

/* Same kind, dtype and inner shape, else an error that names the column and shows both. */
static int same_type(const struct vl_col *a, const struct vl_col *b, const char *where,
                     struct vl_err *e)
{
    int same = a->kind == b->kind && a->dtype == b->dtype && a->ndim == b->ndim;

    for (int d = 1; same && d < a->ndim; d++)
        if (a->shape[d] != b->shape[d])
            return vl_fail(e, VL_E_DATA,
                           "column %s: dimension %d is %" PRId64 " in the first and %" PRId64
                           " in %s",
                           a->name, d, a->shape[d], b->shape[d], where);
    if (!same)
        return vl_fail(e, VL_E_DATA,
                       "column %s: %s %s of %d dimensions in the first, %s %s of %d in %s", a->name,
                       kind_name(a->kind), vl_dtype_name(a->dtype), a->ndim, kind_name(b->kind),
                       vl_dtype_name(b->dtype), b->ndim, where);
    return 0;
}

/* ---- union ---- */

/* Equality of one element by value: NaN differs from NaN, -0 equals 0. */
static int same_float(enum vl_dtype t, const void *a, const void *b)
{
    float x, y;
    double u, v;
    uint16_t h, k;

    if (t == VL_F64) {
        memcpy(&u, a, 8);
        memcpy(&v, b, 8);
        return u == v;
    }
    if (t == VL_F32) {
        memcpy(&x, a, 4);
        memcpy(&y, b, 4);
        return x == y;
    }
    memcpy(&h, a, 2);
    memcpy(&k, b, 2);
    if (t == VL_F16)
        return vl_f16_to_f32(h) == vl_f16_to_f32(k);
    return vl_bf16_to_f32(h) == vl_bf16_to_f32(k);
}

static int is_float(enum vl_dtype t)
{
    return t == VL_F16 || t == VL_BF16 || t == VL_F32 || t == VL_F64;
}

/* 1 when row i holds equal values in both (same type known). */
static int same_row(const struct vl_col *a, const struct vl_col *b, int64_t i)
{
    size_t na, nb, w = vl_dtype_size(a->dtype);
    const char *x = vl_col_row(a, i, &na), *y = vl_col_row(b, i, &nb);

    if (a->kind == VL_COL_JSON)
        return vl_json_equal(x, na, y, nb, 1);
    if (na != nb)
        return 0;
    if (!is_float(a->dtype))
        return na == 0 || memcmp(x, y, na) == 0;
    for (size_t k = 0; k < na; k += w)
        if (!same_float(a->dtype, x + k, y + k))
            return 0;
    return 1;
}

/* Moves everything of src into dst: its columns and meta replace equal ones, graphs are merged. */
static void absorb(struct vl_batch *dst, struct vl_batch *src)
{
    char *graph = vl_prov_merge(dst->provenance, src->provenance);

    for (size_t i = 0; i < src->ncol; i++)
        vl_batch_put(dst, src->col[i]);
    free(src->provenance);
    src->provenance = graph;
    dst->has_batch |= src->has_batch;
    vl_batch_take_info(dst, src);
    vl_batch_free(src);
}

int vl_batch_union(struct vl_batch *dst, const struct vl_batch *src, struct vl_err *e)
{
    struct vl_batch copy = { 0 };

    if (!dst->has_batch || !src->has_batch)
        return vl_fail(e, VL_E_DATA, "union: the %s batch is absent (an envelope without rows)",
                       dst->has_batch ? "second" : "first");
    if (dst->rows != src->rows)
        return vl_fail(e, VL_E_DATA,
                       "union: %" PRId64 " rows in the first, %" PRId64
                       " in the second; they must be equal",
                       dst->rows, src->rows);
    for (size_t i = 0; i < src->ncol; i++) {
        const struct vl_col *b = src->col[i], *a = vl_batch_col(dst, b->name);

        if (!a)
            continue;
        if (same_type(a, b, "the second", e))
            return e->code;
        for (int64_t r = 0; r < src->rows; r++)
            if (!same_row(a, b, r))
                return vl_fail(e, VL_E_DATA, "union: column %s differs at row %" PRId64, b->name,
                               r);
    }
    for (size_t i = 0; i < src->nmeta; i++) {
        const char *v = src->meta[i].json, *old = vl_meta_get(dst, src->meta[i].key);

        if (old && !vl_json_equal(old, strlen(old), v, strlen(v), 0))
            return vl_fail(e, VL_E_DATA, "union: meta_info key %s is %.100s and %.100s",
                           src->meta[i].key, old, v);
    }
    if (vl_batch_clone(&copy, src, e))
        return e->code;
    absorb(dst, &copy);
    return 0;
}

/* ---- concat ---- */

static int parts_agree(const struct vl_batch *const *part, size_t n, struct vl_err *e)
{
    const struct vl_batch *a = part[0];

    for (size_t k = 1; k < n; k++) {
        const struct vl_batch *b = part[k];
        char where[40];

        snprintf(where, sizeof where, "part %zu", k);
        if (a->has_batch != b->has_batch)
            return vl_fail(e, VL_E_DATA, "concat: the batch is absent in %s only",
                           a->has_batch ? where : "part 0");
        for (size_t i = 0; i < b->ncol; i++)
            if (!vl_batch_col(a, b->col[i]->name))
                return vl_fail(e, VL_E_DATA, "concat: column %s of %s is not in part 0",
                               b->col[i]->name, where);
        for (size_t i = 0; i < a->ncol; i++) {
            const struct vl_col *c = vl_batch_col(b, a->col[i]->name);

            if (!c)
                return vl_fail(e, VL_E_DATA, "concat: column %s of part 0 is not in %s",
                               a->col[i]->name, where);
            if (same_type(a->col[i], c, where, e))
                return vl_err_prefix(e, "concat");
        }
    }
    return 0;
}

/* Column i of part[0] from all parts, one after the other. */
static int concat_column(struct vl_batch *dst, const struct vl_batch *const *part, size_t n,
                         size_t i, struct vl_err *e)
{
    struct vl_col c = *part[0]->col[i];
    const char *name = c.name;
    size_t bytes = 0, at = 0;
    int64_t row = 0, total = 0;

    c.name = NULL, c.data = NULL, c.offsets = NULL;
    for (size_t k = 0; k < n; k++)
        bytes += vl_batch_col(part[k], name)->bytes;
    if (vl_try_alloc(&c.data, bytes, 1, name, e))
        return e->code;
    if (c.kind != VL_COL_TENSOR && vl_try_alloc(&c.offsets, (size_t)dst->rows + 1, 8, name, e)) {
        free(c.data);
        return e->code;
    }
    for (size_t k = 0; k < n; k++) {
        const struct vl_col *s = vl_batch_col(part[k], name);

        if (s->bytes)
            memcpy((char *)c.data + at, s->data, s->bytes);
        at += s->bytes;
        for (int64_t r = 0; c.offsets && r < part[k]->rows; r++)
            c.offsets[++row] = total + s->offsets[r + 1];
        total += s->shape[0];
    }
    c.shape[0] = total;
    c.bytes = bytes;
    c.name = vl_strdup(name);
    vl_batch_put(dst, &c);
    return 0;
}

int vl_batch_concat(struct vl_batch *dst, const struct vl_batch *const *part, size_t n,
                    struct vl_err *e)
{
    struct vl_batch b = { 0 };

    if (n == 0)
        return vl_fail(e, VL_E_USAGE, "concat: nothing to join; give at least one batch");
    if (parts_agree(part, n, e) || vl_meta_concat(&b, part, n, e))
        goto fail;
    b.has_batch = part[0]->has_batch;
    for (size_t k = 0; k < n; k++) {
        char *graph = vl_prov_merge(b.provenance, part[k]->provenance);

        free(b.provenance);
        b.provenance = graph;
        for (size_t i = 0; i < part[k]->nparent; i++)
            vl_batch_add_parent(&b, part[k]->parent[i]);
        b.rows += part[k]->rows;
    }
    for (size_t i = 0; i < part[0]->ncol; i++)
        if (concat_column(&b, part, n, i, e))
            goto fail;
    *dst = b;
    return 0;
fail:
    vl_batch_free(&b);
    return e->code;
}

/* ---- unite ---- */

/* A table from (uid, sample) to row: open addressing, -1 = free. */
struct keys {
    const struct vl_batch *b;
    const struct vl_col *uid, *sample;
    int64_t *slot;
    uint64_t mask;
};

static int64_t sample_of(const struct vl_col *c, int64_t row)
{
    return ((const int64_t *)c->data)[row];
}

/* Columns by which rows are known; 0 when the batch lacks them. */
static int keys_find(struct keys *k, const struct vl_batch *b)
{
    k->b = b;
    k->uid = vl_batch_col(b, "uid");
    k->sample = vl_batch_col(b, "sample");
    return k->uid && k->uid->kind == VL_COL_JSON && k->sample && k->sample->kind == VL_COL_TENSOR &&
           k->sample->dtype == VL_I64 && k->sample->ndim == 1;
}

/* Slot of the row with the key that row `row` of q has, or the free slot where it would be. */
static uint64_t keys_slot(const struct keys *k, const struct keys *q, int64_t row)
{
    size_t n, m;
    const char *uid = vl_col_json(q->uid, row, &n), *other;
    int64_t s = sample_of(q->sample, row);
    uint64_t at = (XXH64(uid, n, (uint64_t)s)) & k->mask;

    for (;; at = (at + 1) & k->mask) {
        if (k->slot[at] < 0)
            return at;
        other = vl_col_json(k->uid, k->slot[at], &m);
        if (sample_of(k->sample, k->slot[at]) == s && n == m && memcmp(uid, other, n) == 0)
            return at;
    }
}

static int keys_build(struct keys *k, struct vl_err *e)
{
    uint64_t size = 16;

    while (size < 2 * (uint64_t)k->b->rows)
        size *= 2;
    k->mask = size - 1;
    if (vl_try_alloc(&k->slot, size, sizeof *k->slot, "row keys", e))
        return e->code;
    memset(k->slot, 0xff, size * sizeof *k->slot);
    for (int64_t i = 0; i < k->b->rows; i++) {
        uint64_t at = keys_slot(k, k, i);
        size_t n;
        const char *uid = vl_col_json(k->uid, i, &n);

        if (k->slot[at] >= 0) {
            vl_fail(e, VL_E_DATA,
                    "rows %" PRId64 " and %" PRId64 " are both (uid %.*s, sample %" PRId64
                    "); each may be there once",
                    k->slot[at], i, (int)(n > 80 ? 80 : n), uid, sample_of(k->sample, i));
            free(k->slot);
            k->slot = NULL;
            return e->code;
        }
        k->slot[at] = i;
    }
    return 0;
}

int vl_batch_unique(const struct vl_batch *b, struct vl_err *e)
{
    struct keys k = { 0 };

    if (!keys_find(&k, b))
        return 0;
    if (keys_build(&k, e))
        return e->code;
    free(k.slot);
    return 0;
}

/* perm[i] = row of src that belongs to row i of dst. */
static int match_rows(const struct vl_batch *dst, const struct vl_batch *src, int64_t *perm,
                      struct vl_err *e)
{
    struct keys d = { 0 }, s = { 0 };

    for (int64_t i = 0; i < dst->rows; i++)
        perm[i] = i;
    if (!keys_find(&d, dst) || !keys_find(&s, src))
        return 0;
    if (keys_build(&s, e))
        return e->code;
    for (int64_t i = 0; i < dst->rows && !e->code; i++) {
        uint64_t at = keys_slot(&s, &d, i);
        size_t n;
        const char *uid = vl_col_json(d.uid, i, &n);

        if (s.slot[at] < 0)
            vl_fail(e, VL_E_DATA, "row %" PRId64 " (uid %.*s, sample %" PRId64 ") is not there", i,
                    (int)(n > 80 ? 80 : n), uid, sample_of(d.sample, i));
        else
            perm[i] = s.slot[at];
    }
    free(s.slot);
    if (!e->code) /* the first batch's own rows must be distinct for "exactly once" to hold */
        return vl_batch_unique(dst, e);
    return e->code;
}

static int bits_agree(const struct vl_batch *dst, const struct vl_batch *src, struct vl_err *e)
{
    for (size_t i = 0; i < src->ncol; i++) {
        const struct vl_col *b = src->col[i], *a = vl_batch_col(dst, b->name);

        if (!a)
            continue;
        if (same_type(a, b, "this one", e))
            return e->code;
        for (int64_t r = 0; r < src->rows; r++) {
            size_t n, m;
            const void *x = vl_col_row(a, r, &n), *y = vl_col_row(b, r, &m);

            if (n != m || (n && memcmp(x, y, n)))
                return vl_fail(e, VL_E_DATA,
                               "column %s differs from the first input's at row %" PRId64
                               "; drop it from one of them",
                               b->name, r);
        }
    }
    return 0;
}

int vl_batch_unite(struct vl_batch *dst, const struct vl_batch *src, struct vl_err *e)
{
    struct vl_batch other = { 0 }, meta = { 0 };
    int64_t *perm = NULL;

    if (dst->rows != src->rows)
        return vl_fail(e, VL_E_DATA, "%" PRId64 " rows, but the first input has %" PRId64,
                       src->rows, dst->rows);
    if (vl_try_alloc(&perm, (size_t)src->rows, sizeof *perm, "row numbers", e))
        return e->code;
    if (match_rows(dst, src, perm, e) || vl_batch_take(&other, src, perm, src->rows, e) ||
        bits_agree(dst, &other, e) || vl_meta_unite(&meta, dst, src, e)) {
        vl_batch_free(&other);
    } else {
        absorb(dst, &other);
        vl_batch_take_info(dst, &meta);
    }
    vl_batch_free(&meta);
    free(perm);
    return e->code;
}
