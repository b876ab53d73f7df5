/* ops_columns.c - DataProto operations on columns: select, pop, rename, unfold, fold. See ops.h. */
#include "libverl/batch/ops.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"

static int listed(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return 1;
    return 0;
}

/* All names are there, none twice. */
static int all_there(const struct vl_batch *b, const char *const *columns, const char *const *meta,
                     const char *what, struct vl_err *e)
{
    for (const char *const *c = columns; c && *c; c++) {
        if (!vl_batch_col(b, *c))
            return vl_batch_missing(b, what, *c, e);
        if (listed(c + 1, *c))
            return vl_fail(e, VL_E_USAGE, "%s: column %s is named twice", what, *c);
    }
    for (const char *const *m = meta; m && *m; m++)
        if (!vl_meta_get(b, *m))
            return vl_fail(e, VL_E_DATA, "%s: no meta_info key %s", what, *m);
    return 0;
}

int vl_batch_select(struct vl_batch *dst, const struct vl_batch *src, const char *const *columns,
                    const char *const *meta, struct vl_err *e)
{
    struct vl_batch b = { .has_batch = src->has_batch, .rows = src->rows };

    if (all_there(src, columns, meta, "select", e))
        return e->code;
    for (size_t i = 0; columns ? columns[i] != NULL : i < src->ncol; i++) {
        struct vl_col c;

        if (vl_col_clone(&c, columns ? vl_batch_col(src, columns[i]) : src->col[i], src->rows, e)) {
            vl_batch_free(&b);
            return e->code;
        }
        vl_batch_put(&b, &c);
    }
    vl_batch_take_info(&b, src);
    for (size_t i = b.nmeta; meta && i-- > 0;)
        if (!listed(meta, b.meta[i].key))
            vl_meta_del(&b, b.meta[i].key);
    *dst = b;
    return 0;
}

int vl_batch_pop(struct vl_batch *dst, struct vl_batch *src, const char *const *columns,
                 const char *const *meta, struct vl_err *e)
{
    struct vl_batch b = { .rows = src->rows };

    if (all_there(src, columns, meta, "pop", e))
        return e->code;
    b.provenance = vl_strdup(src->provenance);
    for (size_t i = 0; i < src->nparent; i++)
        vl_batch_add_parent(&b, src->parent[i]);
    for (const char *const *c = columns; c && *c; c++) {
        struct vl_col *from = vl_batch_col(src, *c), moved = *from;

        *from = (struct vl_col){ .name = vl_strdup(*c) };
        vl_batch_drop(src, *c);
        vl_batch_put(&b, &moved);
    }
    for (const char *const *m = meta; m && *m; m++) {
        vl_meta_set(&b, *m, vl_meta_get(src, *m));
        vl_meta_del(src, *m);
    }
    if (!b.ncol)
        b.rows = 0;
    *dst = b;
    return 0;
}

int vl_batch_rename(struct vl_batch *b, const char *const *from, const char *const *to, size_t n,
                    struct vl_err *e)
{
    struct vl_col **c = vl_alloc(n * sizeof *c);

    for (size_t i = 0; i < n && !e->code; i++) {
        c[i] = vl_batch_col(b, from[i]);
        if (!c[i])
            vl_batch_missing(b, "rename", from[i], e);
        for (size_t k = 0; k < i; k++)
            if (c[k] == c[i] || strcmp(to[k], to[i]) == 0)
                vl_fail(e, VL_E_USAGE, "rename: %s is named twice", c[k] == c[i] ? from[i] : to[i]);
    }
    for (size_t i = 0; i < n && !e->code; i++) {
        const struct vl_col *old = vl_batch_col(b, to[i]);
        int moves = 0;

        for (size_t k = 0; k < n; k++)
            moves |= c[k] == old;
        if (old && !moves)
            vl_fail(e, VL_E_USAGE, "rename: there is a column %s already; drop it first", to[i]);
    }
    for (size_t i = 0; i < n && !e->code; i++) {
        free(c[i]->name);
        c[i]->name = vl_strdup(to[i]);
    }
    free(c);
    return e->code;
}

/* ---- unfold and fold ---- */

static int can_unfold(const struct vl_batch *b, int64_t n, const char *const *keys,
                      struct vl_err *e)
{
    if (n < 1)
        return vl_fail(e, VL_E_USAGE, "cannot cut columns into %" PRId64 " pieces", n);
    for (; keys && *keys; keys++) {
        const struct vl_col *c = vl_batch_col(b, *keys);

        if (!c)
            return vl_batch_missing(b, "unfold", *keys, e);
        if (c->kind != VL_COL_TENSOR || c->ndim < 2 || c->shape[1] % n)
            return vl_fail(e, VL_E_USAGE,
                           "unfold: column %s is not a dense tensor whose second dimension divides "
                           "by %" PRId64,
                           *keys, n);
    }
    return 0;
}

int vl_batch_unfold(struct vl_batch *dst, const struct vl_batch *src, int64_t n,
                    const char *const *keys, struct vl_err *e)
{
    struct vl_batch b = { 0 };

    if (can_unfold(src, n, keys, e) || vl_batch_repeat(&b, src, n, 1, e))
        return e->code;
    for (; keys && *keys; keys++) {
        struct vl_col c;

        if (vl_col_clone(&c, vl_batch_col(src, *keys), src->rows, e)) {
            vl_batch_free(&b);
            return e->code;
        }
        c.shape[0] *= n;
        c.shape[1] /= n;
        vl_batch_put(&b, &c);
    }
    *dst = b;
    return 0;
}

/* Groups of g JSON rows become lists. */
static void fold_json(struct vl_batch *dst, const struct vl_col *c, int64_t g)
{
    struct vl_buf t = { 0 };
    int64_t *off = vl_alloc(((size_t)dst->rows + 1) * sizeof *off);

    for (int64_t i = 0; i < dst->rows; i++) {
        for (int64_t k = 0; k < g; k++) {
            size_t n;
            const char *p = vl_col_json(c, i * g + k, &n);

            vl_buf_ch(&t, k ? ',' : '[');
            vl_buf_add(&t, p, n);
        }
        vl_buf_str(&t, g ? "]" : "[]");
        off[i + 1] = (int64_t)t.n;
    }
    vl_batch_add_json(dst, c->name, vl_buf_detach(&t), off);
}

int vl_batch_fold(struct vl_batch *dst, const struct vl_batch *src, int64_t m, struct vl_err *e)
{
    struct vl_batch b = { .has_batch = src->has_batch, .rows = m };

    if (m < 1 || src->rows % m)
        return vl_fail(e, VL_E_USAGE,
                       "fold: %" PRId64 " rows do not divide into %" PRId64 " groups", src->rows,
                       m);
    for (size_t i = 0; i < src->ncol; i++) {
        const struct vl_col *s = src->col[i];
        struct vl_col c;

        if (s->kind == VL_COL_JSON) {
            fold_json(&b, s, src->rows / m);
            continue;
        }
        if (s->kind == VL_COL_RAGGED || s->ndim == VL_MAX_DIMS)
            vl_fail(e, VL_E_USAGE, "fold: column %s is %s", s->name,
                    s->kind == VL_COL_RAGGED ? "ragged" : "of too many dimensions");
        if (e->code || vl_col_clone(&c, s, src->rows, e)) {
            vl_batch_free(&b);
            return e->code;
        }
        memmove(c.shape + 2, c.shape + 1, (size_t)(c.ndim - 1) * sizeof c.shape[0]);
        c.ndim++;
        c.shape[0] = m;
        c.shape[1] = src->rows / m;
        vl_batch_put(&b, &c);
    }
    vl_batch_take_info(&b, src);
    *dst = b;
    return 0;
}

/* Lists of g values become rows again. */
static int unfold_json(struct vl_batch *dst, const struct vl_col *c, int64_t g, struct vl_err *e)
{
    struct vl_buf t = { 0 };
    int64_t *off = vl_alloc(((size_t)dst->rows + 1) * sizeof *off);

    for (int64_t i = 0; g && i < dst->rows / g && !e->code; i++) {
        struct vl_json j = { 0 };
        size_t n;
        const char *p = vl_col_json(c, i, &n);
        uint32_t v = 1;

        if (vl_json_parse(&j, p, n, c->name, e) == 0 &&
            (!vl_json_is(&j, 0, VL_JSON_ARRAY) || j.node[0].count != g))
            vl_fail(e, VL_E_DATA, "unfold: column %s: row %" PRId64 " is no list of %" PRId64,
                    c->name, i, g);
        for (int64_t k = 0; k < g && !e->code; k++, v = j.node[v].next) {
            vl_json_raw(&j, v, &t);
            off[i * g + k + 1] = (int64_t)t.n;
        }
        vl_json_free(&j);
    }
    if (e->code) {
        free(off);
        vl_buf_free(&t);
        return e->code;
    }
    vl_batch_add_json(dst, c->name, vl_buf_detach(&t), off);
    return 0;
}

int vl_batch_unfold_dim(struct vl_batch *dst, const struct vl_batch *src, struct vl_err *e)
{
    struct vl_batch b = { .has_batch = src->has_batch };
    int64_t g = -1;

    for (size_t i = 0; i < src->ncol; i++) {
        const struct vl_col *c = src->col[i];

        if (c->kind == VL_COL_JSON)
            continue;
        if (c->kind == VL_COL_RAGGED || c->ndim < 2 || (g >= 0 && c->shape[1] != g))
            return vl_fail(e, VL_E_USAGE, "unfold: column %s has no second dimension of %" PRId64,
                           c->name, g);
        g = c->shape[1];
    }
    if (g < 0)
        return vl_fail(e, VL_E_USAGE, "unfold: no tensor says how many rows a group has");
    b.rows = src->rows * g;
    for (size_t i = 0; i < src->ncol; i++) {
        const struct vl_col *s = src->col[i];
        struct vl_col c;

        if (s->kind == VL_COL_JSON ? unfold_json(&b, s, g, e) : vl_col_clone(&c, s, src->rows, e)) {
            vl_batch_free(&b);
            return e->code;
        }
        if (s->kind == VL_COL_JSON)
            continue;
        c.ndim--;
        memmove(c.shape + 1, c.shape + 2, (size_t)(c.ndim - 1) * sizeof c.shape[0]);
        c.shape[0] = b.rows;
        vl_batch_put(&b, &c);
    }
    vl_batch_take_info(&b, src);
    *dst = b;
    return 0;
}
