/* ops_rows.c - DataProto operations that choose, repeat, pad or cut rows. See ops.h.
 *
 * Nearly all are one gather by row numbers: the list costs 8 bytes a row, far less than the row. */
#include "libverl/batch/ops.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "formats/json.h"
#include "libverl/base/philox.h"

/* ---- gathering ---- */

static int take_dense(struct vl_col *c, const struct vl_col *src, const int64_t *idx, int64_t n,
                      struct vl_err *e)
{
    size_t w = vl_col_row_bytes(src);

    if (vl_try_alloc(&c->data, (size_t)n, w, src->name, e))
        return e->code;
    c->bytes = (size_t)n * w;
    c->shape[0] = n;
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)c->data + (size_t)i * w, (char *)src->data + (size_t)idx[i] * w, w);
    return 0;
}

static int take_offsets(struct vl_col *c, const struct vl_col *src, const int64_t *idx, int64_t n,
                        struct vl_err *e)
{
    size_t w = src->kind == VL_COL_JSON ? 1 : vl_col_row_bytes(src);
    int64_t at = 0;

    if (vl_try_alloc(&c->offsets, (size_t)n + 1, sizeof *c->offsets, src->name, e))
        return e->code;
    for (int64_t i = 0; i < n; i++)
        c->offsets[i + 1] = at += src->offsets[idx[i] + 1] - src->offsets[idx[i]];
    if (vl_try_alloc(&c->data, (size_t)at, w, src->name, e)) {
        free(c->offsets);
        return e->code;
    }
    c->bytes = (size_t)at * w;
    c->shape[0] = at;
    for (int64_t i = 0; i < n; i++) {
        size_t len;
        const void *p = vl_col_row(src, idx[i], &len);

        if (len)
            memcpy((char *)c->data + (size_t)c->offsets[i] * w, p, len);
    }
    return 0;
}

/* idx: all in 0..rows */
static int take(struct vl_batch *dst, const struct vl_batch *src, const int64_t *idx, int64_t n,
                struct vl_err *e)
{
    struct vl_batch b = { .has_batch = src->has_batch, .rows = n };

    for (size_t i = 0; i < src->ncol; i++) {
        struct vl_col c = *src->col[i];

        c.name = NULL, c.data = NULL, c.offsets = NULL;
        if (c.kind == VL_COL_TENSOR ? take_dense(&c, src->col[i], idx, n, e)
                                    : take_offsets(&c, src->col[i], idx, n, e)) {
            vl_batch_free(&b);
            return e->code;
        }
        c.name = vl_strdup(src->col[i]->name);
        vl_batch_put(&b, &c);
    }
    vl_batch_take_info(&b, src);
    *dst = b;
    return 0;
}

int vl_batch_take(struct vl_batch *dst, const struct vl_batch *src, const int64_t *idx, int64_t n,
                  struct vl_err *e)
{
    int64_t *at;
    int rc;

    if (vl_try_alloc(&at, (size_t)n, sizeof *at, "row numbers", e))
        return e->code;
    for (int64_t i = 0; i < n; i++) {
        at[i] = idx[i] < 0 ? idx[i] + src->rows : idx[i];
        if (at[i] < 0 || at[i] >= src->rows)
            vl_fail(e, VL_E_USAGE, "row %" PRId64 " is outside the batch's %" PRId64 " rows",
                    idx[i], src->rows);
    }
    rc = e->code ? e->code : take(dst, src, at, n, e);
    free(at);
    return rc;
}

int vl_batch_mask(struct vl_batch *dst, const struct vl_batch *src, const uint8_t *mask,
                  struct vl_err *e)
{
    int64_t *at, n = 0;
    int rc;

    if (vl_try_alloc(&at, (size_t)src->rows, sizeof *at, "row numbers", e))
        return e->code;
    for (int64_t i = 0; i < src->rows; i++)
        if (mask[i])
            at[n++] = i;
    rc = take(dst, src, at, n, e);
    free(at);
    return rc;
}

/* Rows start, start + step, ...: n of them. */
static int take_range(struct vl_batch *dst, const struct vl_batch *src, int64_t start, int64_t step,
                      int64_t n, struct vl_err *e)
{
    int64_t *at;
    int rc;

    if (vl_try_alloc(&at, (size_t)n, sizeof *at, "row numbers", e))
        return e->code;
    for (int64_t i = 0; i < n; i++)
        at[i] = start + i * step;
    rc = take(dst, src, at, n, e);
    free(at);
    return rc;
}

int vl_batch_rows(struct vl_batch *dst, const struct vl_batch *src, int64_t row0, int64_t n,
                  struct vl_err *e)
{
    if (row0 < 0)
        row0 = 0;
    if (row0 > src->rows)
        row0 = src->rows;
    if (n < 0)
        n = 0;
    if (n > src->rows - row0)
        n = src->rows - row0;
    return take_range(dst, src, row0, 1, n, e);
}

/* One bound of a slice, by Python's rules: from the end when negative, clipped to lo..hi. */
static int64_t bound(int64_t x, int64_t none, int64_t rows, int64_t lo, int64_t hi)
{
    if (x == VL_SLICE_NONE)
        return none;
    if (x < 0)
        x += rows;
    return x < lo ? lo : x > hi ? hi : x;
}

int vl_batch_slice(struct vl_batch *dst, const struct vl_batch *src, int64_t start, int64_t stop,
                   int64_t step, struct vl_err *e)
{
    int64_t B = src->rows, n;

    if (step == VL_SLICE_NONE)
        step = 1;
    if (step == 0)
        return vl_fail(e, VL_E_USAGE, "a slice's step cannot be 0");
    if (step > 0) {
        start = bound(start, 0, B, 0, B);
        stop = bound(stop, B, B, 0, B);
        n = stop > start ? (stop - start - 1) / step + 1 : 0;
    } else {
        start = bound(start, B - 1, B, -1, B - 1);
        stop = bound(stop, -1, B, -1, B - 1);
        if (step < -INT64_MAX)
            step = -INT64_MAX;
        n = start > stop ? (start - stop - 1) / -step + 1 : 0;
    }
    return take_range(dst, src, start, step, n, e);
}

int vl_batch_repeat(struct vl_batch *dst, const struct vl_batch *src, int64_t n, int interleave,
                    struct vl_err *e)
{
    int64_t B = src->rows, total, *at;
    int rc;

    if (n < 0 || __builtin_mul_overflow(B, n, &total))
        return vl_fail(e, VL_E_USAGE, "cannot repeat %" PRId64 " rows %" PRId64 " times", B, n);
    if (vl_try_alloc(&at, (size_t)total, sizeof *at, "row numbers", e))
        return e->code;
    for (int64_t i = 0; i < total; i++)
        at[i] = interleave ? i / n : i % B;
    rc = take(dst, src, at, total, e);
    free(at);
    return rc;
}

int vl_batch_repeat_counts(struct vl_batch *dst, const struct vl_batch *src, const int64_t *counts,
                           int64_t ncounts, struct vl_err *e)
{
    int64_t total = 0, *at, k = 0;
    int rc;

    if (ncounts != src->rows)
        return vl_fail(e, VL_E_USAGE, "%" PRId64 " repeat counts for %" PRId64 " rows", ncounts,
                       src->rows);
    for (int64_t i = 0; i < ncounts; i++)
        if (counts[i] < 0 || __builtin_add_overflow(total, counts[i], &total))
            return vl_fail(e, VL_E_USAGE, "row %" PRId64 " cannot be repeated %" PRId64 " times", i,
                           counts[i]);
    if (vl_try_alloc(&at, (size_t)total, sizeof *at, "row numbers", e))
        return e->code;
    for (int64_t i = 0; i < ncounts; i++)
        for (int64_t c = 0; c < counts[i]; c++)
            at[k++] = i;
    rc = take(dst, src, at, total, e);
    free(at);
    return rc;
}

/* ---- padding ---- */

int vl_batch_pad_divisor(struct vl_batch *dst, const struct vl_batch *src, int64_t m, int64_t *pad,
                         struct vl_err *e)
{
    int64_t B = src->rows, *at;
    int rc;

    if (m < 1)
        return vl_fail(e, VL_E_USAGE, "cannot pad to a multiple of %" PRId64, m);
    *pad = B ? (m - B % m) % m : 0;
    if (vl_try_alloc(&at, (size_t)(B + *pad), sizeof *at, "row numbers", e))
        return e->code;
    for (int64_t i = 0; i < B + *pad; i++)
        at[i] = i % B;
    rc = take(dst, src, at, B + *pad, e);
    free(at);
    return rc;
}

int vl_batch_pad(struct vl_batch *dst, const struct vl_batch *src, int64_t n, int first,
                 struct vl_err *e)
{
    int64_t B = src->rows, *at;
    int rc;

    if (n < 0 || (n && !B))
        return vl_fail(e, VL_E_USAGE, "cannot pad a batch of %" PRId64 " rows by %" PRId64, B, n);
    if (vl_try_alloc(&at, (size_t)B + (size_t)n, sizeof *at, "row numbers", e))
        return e->code;
    for (int64_t i = 0; i < B + n; i++)
        at[i] = i < B ? i : first ? 0 : B - 1;
    rc = take(dst, src, at, B + n, e);
    free(at);
    return rc;
}

int vl_batch_unpad(struct vl_batch *dst, const struct vl_batch *src, int64_t n, struct vl_err *e)
{
    if (n < 0 || n > src->rows)
        return vl_fail(e, VL_E_USAGE, "cannot drop %" PRId64 " of %" PRId64 " rows", n, src->rows);
    return take_range(dst, src, 0, 1, src->rows - n, e);
}

/* ---- cutting ---- */

int vl_batch_auto_padding(const struct vl_batch *b)
{
    const char *env = getenv("VERL_AUTO_PADDING"), *meta = vl_meta_get(b, "_verl_auto_padding");

    if (meta && strcmp(meta, "true") == 0)
        return 1;
    return env && (strcasecmp(env, "TRUE") == 0 || strcmp(env, "1") == 0);
}

int vl_batch_chunk(const struct vl_batch *b, int64_t n, int auto_padding, int64_t *first,
                   struct vl_err *e)
{
    int64_t B = b->rows, piece;

    if (n < 1)
        return vl_fail(e, VL_E_USAGE, "cannot cut a batch into %" PRId64 " pieces", n);
    if (!auto_padding && B % n)
        return vl_fail(e, VL_E_USAGE,
                       "%" PRId64 " rows do not divide into %" PRId64
                       " equal pieces; pad first, or allow unequal ones with --auto-padding",
                       B, n);
    if (!b->has_batch) {
        for (int64_t k = 0; k <= n; k++)
            first[k] = k * (B / n) + (k < B % n ? k : B % n);
        return 0;
    }
    piece = (B + n - 1) / n;
    if (auto_padding && B && (B + piece - 1) / piece < n)
        return vl_fail(e, VL_E_USAGE,
                       "%" PRId64 " rows in pieces of %" PRId64 " make fewer than %" PRId64
                       " pieces; pad first",
                       B, piece, n);
    for (int64_t k = 0; k <= n; k++)
        first[k] = k * piece < B ? k * piece : B;
    return 0;
}

int vl_batch_order(int64_t rows, int64_t mini, int64_t epochs, int shuffle, uint64_t seed,
                   int64_t *order, struct vl_err *e)
{
    if (mini < 1 || rows % mini)
        return vl_fail(e, VL_E_USAGE,
                       "%" PRId64 " rows are no multiple of mini-batches of %" PRId64, rows, mini);
    for (int64_t k = 0; k < epochs; k++, order += rows) {
        for (int64_t i = 0; i < rows; i++)
            order[i] = i;
        if (shuffle)
            vl_shuffle(order, rows, seed, (uint32_t)k);
    }
    return 0;
}
