/* verify.c - full verification of a batch, and differences between two. See verify.h. */
#include "libverl/batch/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dp.h"
#include "formats/fields.h"
#include "formats/json.h"

/* ---- verify ---- */

static int verify_json(const struct vl_col *c, int64_t rows, struct vl_err *e)
{
    for (int64_t i = 0; i < rows; i++) {
        struct vl_json j = { 0 };
        size_t n;
        const char *p = vl_col_json(c, i, &n);
        int rc = vl_json_parse(&j, p, n, c->name, e);

        vl_json_free(&j);
        if (rc)
            return vl_err_prefix(e, "row %" PRId64, i);
    }
    return 0;
}

static int verify_bool(const struct vl_col *c, struct vl_err *e)
{
    const uint8_t *p = c->data;

    for (size_t i = 0; i < c->bytes; i++)
        if (p[i] > 1)
            return vl_fail(e, VL_E_DATA, "column %s: BOOL element %zu is %u, not 0 or 1", c->name,
                           i, p[i]);
    return 0;
}

/* Columns the field dictionary knows have the widths it gives: P, R, and S = P + R. */
static int verify_widths(const struct vl_batch *b, struct vl_err *e)
{
    int64_t width[128];
    const char *who[128] = { 0 };

    for (size_t i = 0; i < b->ncol; i++) {
        const struct vl_col *c = b->col[i];
        const struct vl_field *f = vl_field_find(c->name);
        unsigned letter = f && !f->json ? (unsigned char)f->shape[0] : 0;

        if (!letter || letter == '1' || c->kind != VL_COL_TENSOR)
            continue;
        if (c->ndim < 2)
            return vl_fail(e, VL_E_DATA, "column %s has no token dimension (%c)", c->name, letter);
        if (!who[letter]) {
            who[letter] = c->name;
            width[letter] = c->shape[1];
        } else if (width[letter] != c->shape[1]) {
            return vl_fail(e, VL_E_DATA, "column %s is %" PRId64 " tokens wide, but %s is %" PRId64,
                           c->name, c->shape[1], who[letter], width[letter]);
        }
    }
    if (who['P'] && who['R'] && who['S'] && width['S'] != width['P'] + width['R'])
        return vl_fail(e, VL_E_DATA,
                       "column %s is %" PRId64 " tokens wide, but %s and %s together are %" PRId64,
                       who['S'], width['S'], who['P'], who['R'], width['P'] + width['R']);
    return 0;
}

int vl_batch_verify(const struct vl_batch *b, struct vl_err *e)
{
    char hash[33];

    if (vl_batch_check(b, e) || vl_dp_hash(b, hash, e))
        return e->code;
    if (b->nparent == 1 && strcmp(b->parent[0], hash) != 0)
        return vl_fail(e, VL_E_DATA,
                       "the content's hash is %s, but the header says %s: not written by us, or "
                       "changed since",
                       hash, b->parent[0]);
    for (size_t i = 0; i < b->ncol; i++) {
        const struct vl_col *c = b->col[i];

        if (c->kind == VL_COL_JSON && verify_json(c, b->rows, e))
            return e->code;
        if (c->dtype == VL_BOOL && c->kind != VL_COL_JSON && verify_bool(c, e))
            return e->code;
    }
    return verify_widths(b, e);
}

/* ---- diff ---- */

static const char *kind_of(const struct vl_col *c)
{
    return c->kind == VL_COL_JSON ? "json" : vl_dtype_name(c->dtype);
}

static void put_shape(struct vl_buf *out, const struct vl_col *c)
{
    vl_buf_printf(out, "%s%s(", c->kind == VL_COL_RAGGED ? "ragged " : "", kind_of(c));
    for (int d = 1; d < c->ndim; d++)
        vl_buf_printf(out, "%s%" PRId64, d > 1 ? ", " : "", c->shape[d]);
    vl_buf_ch(out, ')');
}

static int same_type(const struct vl_col *a, const struct vl_col *b)
{
    if (a->kind != b->kind || a->dtype != b->dtype || a->ndim != b->ndim)
        return 0;
    for (int d = 1; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d])
            return 0;
    return 1;
}

/* Counts rows that differ and says where the first is. */
static size_t diff_rows(struct vl_buf *out, const struct vl_col *a, const struct vl_col *b,
                        int64_t rows)
{
    int64_t first = -1, count = 0;
    size_t at = 0;

    for (int64_t i = 0; i < rows; i++) {
        size_t n, m;
        const uint8_t *x = vl_col_row(a, i, &n), *y = vl_col_row(b, i, &m);

        if (n == m && (n == 0 || memcmp(x, y, n) == 0))
            continue;
        if (first < 0) {
            first = i;
            while (at < n && at < m && x[at] == y[at])
                at++;
        }
        count++;
    }
    if (!count)
        return 0;
    vl_buf_printf(out, "column %s: %" PRId64 " of %" PRId64 " rows differ, first row %" PRId64,
                  a->name, count, rows, first);
    vl_buf_printf(out, a->kind == VL_COL_JSON ? " (byte %zu)\n" : " (element %zu)\n",
                  a->kind == VL_COL_JSON ? at : at / vl_dtype_size(a->dtype));
    return 1;
}

static size_t diff_columns(struct vl_buf *out, const struct vl_batch *a, const struct vl_batch *b)
{
    size_t n = 0, order = 0;

    for (size_t i = 0; i < a->ncol; i++) {
        const struct vl_col *x = a->col[i], *y = vl_batch_col(b, x->name);

        if (!y) {
            vl_buf_printf(out, "column %s: only in the first\n", x->name);
            n++;
        } else if (!same_type(x, y)) {
            vl_buf_printf(out, "column %s: ", x->name);
            put_shape(out, x);
            vl_buf_str(out, " in the first, ");
            put_shape(out, y);
            vl_buf_str(out, " in the second\n");
            n++;
        } else if (a->rows == b->rows) {
            n += diff_rows(out, x, y, a->rows);
        }
        order += !(i < b->ncol && strcmp(b->col[i]->name, x->name) == 0);
    }
    for (size_t i = 0; i < b->ncol; i++)
        if (!vl_batch_col(a, b->col[i]->name)) {
            vl_buf_printf(out, "column %s: only in the second\n", b->col[i]->name);
            n++;
        }
    if (!n && order) {
        vl_buf_str(out, "columns are in another order\n");
        n++;
    }
    return n;
}

static size_t diff_meta(struct vl_buf *out, const struct vl_batch *a, const struct vl_batch *b)
{
    size_t n = 0;

    for (size_t i = 0; i < a->nmeta; i++) {
        const char *v = vl_meta_get(b, a->meta[i].key);

        if (v && strcmp(v, a->meta[i].json) == 0)
            continue;
        vl_buf_printf(out, "meta_info %s: %.200s in the first, %.200s in the second\n",
                      a->meta[i].key, a->meta[i].json, v ? v : "absent");
        n++;
    }
    for (size_t i = 0; i < b->nmeta; i++)
        if (!vl_meta_get(a, b->meta[i].key)) {
            vl_buf_printf(out, "meta_info %s: absent in the first, %.200s in the second\n",
                          b->meta[i].key, b->meta[i].json);
            n++;
        }
    return n;
}

size_t vl_batch_diff(struct vl_buf *out, const struct vl_batch *a, const struct vl_batch *b)
{
    size_t n = 0;

    if (a->has_batch != b->has_batch) {
        vl_buf_printf(out, "the batch is absent in the %s only\n",
                      a->has_batch ? "second" : "first");
        n++;
    }
    if (a->rows != b->rows) {
        vl_buf_printf(out, "rows: %" PRId64 " in the first, %" PRId64 " in the second\n", a->rows,
                      b->rows);
        n++;
    }
    return n + diff_columns(out, a, b) + diff_meta(out, a, b);
}
