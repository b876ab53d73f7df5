/* share.c - one rank's batch to all ranks. See stage.h.
 *
 * A flat head (names, shapes, meta_info) and then each column's bytes straight into place, so that
 * the largest copy is the batch itself; ranks run the same program, so integers go as they are. */
#include "libverl/run/stage.h"

#include <stdlib.h>
#include <string.h>

static void put_i64(struct vl_buf *h, int64_t x)
{
    vl_buf_add(h, &x, sizeof x);
}

static void put_text(struct vl_buf *h, const char *s)
{
    put_i64(h, s ? (int64_t)strlen(s) : -1);
    if (s)
        vl_buf_str(h, s);
}

static int64_t get_i64(const char **p)
{
    int64_t x;

    memcpy(&x, *p, sizeof x);
    *p += sizeof x;
    return x;
}

static char *get_text(const char **p)
{
    int64_t n = get_i64(p);
    char *s = n < 0 ? NULL : vl_strndup(*p, (size_t)n);

    *p += n < 0 ? 0 : n;
    return s;
}

static void pack_head(const struct vl_batch *b, struct vl_buf *h)
{
    put_i64(h, b->has_batch);
    put_i64(h, b->rows);
    put_i64(h, (int64_t)b->ncol);
    for (size_t i = 0; i < b->ncol; i++) {
        const struct vl_col *c = b->col[i];
        put_text(h, c->name);
        put_i64(h, c->kind);
        put_i64(h, c->dtype);
        put_i64(h, c->ndim);
        for (int d = 0; d < c->ndim; d++)
            put_i64(h, c->shape[d]);
        put_i64(h, (int64_t)c->bytes);
        put_i64(h, c->offsets != NULL);
    }
    put_i64(h, (int64_t)b->nmeta);
    for (size_t i = 0; i < b->nmeta; i++) {
        put_text(h, b->meta[i].key);
        put_text(h, b->meta[i].json);
    }
    put_text(h, b->provenance);
    put_i64(h, (int64_t)b->nparent);
    for (size_t i = 0; i < b->nparent; i++)
        put_text(h, b->parent[i]);
}

/* Columns get their memory here, their bytes later. */
static int unpack_head(struct vl_batch *b, const char *p, struct vl_err *e)
{
    int64_t n;
    int rc = 0;

    b->has_batch = (int)get_i64(&p);
    b->rows = get_i64(&p);
    n = get_i64(&p);
    b->col = vl_alloc((size_t)n * sizeof *b->col);
    for (b->ncol = 0; b->ncol < (size_t)n; b->ncol++) {
        struct vl_col *c = b->col[b->ncol] = vl_alloc(sizeof *c);

        c->name = get_text(&p);
        c->kind = (enum vl_col_kind)get_i64(&p);
        c->dtype = (enum vl_dtype)get_i64(&p);
        c->ndim = (int)get_i64(&p);
        for (int d = 0; d < c->ndim; d++)
            c->shape[d] = get_i64(&p);
        c->bytes = (size_t)get_i64(&p);
        if (!rc)
            rc = vl_try_alloc(&c->data, c->bytes, 1, c->name, e);
        if (get_i64(&p) && !rc)
            rc = vl_try_alloc(&c->offsets, (size_t)b->rows + 1, sizeof *c->offsets, c->name, e);
    }
    n = get_i64(&p);
    for (int64_t i = 0; i < n; i++) {
        char *key = get_text(&p), *json = get_text(&p);
        vl_meta_set(b, key, json);
        free(key);
        free(json);
    }
    b->provenance = get_text(&p);
    n = get_i64(&p);
    for (int64_t i = 0; i < n; i++) {
        char *hash = get_text(&p);
        vl_batch_add_parent(b, hash);
        free(hash);
    }
    return rc;
}

int vl_batch_bcast(struct vl_comm *c, struct vl_batch *b, struct vl_err *e)
{
    struct vl_buf h = { 0 };
    int64_t n;
    int rc;

    if (c->size == 1)
        return 0;
    if (c->rank == 0)
        pack_head(b, &h);
    n = (int64_t)h.n;
    rc = vl_comm_bcast(c, &n, sizeof n, 0, e);
    if (!rc && c->rank != 0) {
        vl_buf_reserve(&h, (size_t)n);
        h.n = (size_t)n;
    }
    if (!rc)
        rc = vl_comm_bcast(c, h.s, h.n, 0, e);
    if (!rc && c->rank != 0)
        (void)unpack_head(b, h.s, e); /* memory may be short on one rank only */
    vl_buf_free(&h);
    if (!rc)
        rc = vl_comm_agree(c, e);
    for (size_t i = 0; i < b->ncol && !rc; i++) {
        if (b->col[i]->bytes)
            rc = vl_comm_bcast(c, b->col[i]->data, b->col[i]->bytes, 0, e);
        if (!rc && b->col[i]->offsets)
            rc = vl_comm_bcast(c, b->col[i]->offsets,
                               ((size_t)b->rows + 1) * sizeof *b->col[i]->offsets, 0, e);
    }
    return rc;
}
