/* dp_util.h - what the tests of batch files share: scratch directory, sample batches, comparing. */
#ifndef DP_UTIL_H
#define DP_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/dp.h"
#include "formats/json.h"
#include "libverl/base/philox.h"

#define UNUSED __attribute__((unused))

static char dir[] = "/tmp/verl-test-dp.XXXXXX";

static UNUSED char *path(const char *name)
{
    static char p[4][128];
    static int k;

    k = (k + 1) % 4;
    snprintf(p[k], sizeof p[k], "%s/%s", dir, name);
    return p[k];
}

static UNUSED void must(int rc, const struct vl_err *e)
{
    if (rc)
        fail_msg("status %d: %s", rc, e->msg);
}

static UNUSED void fill(void *p, size_t n, uint32_t seed)
{
    struct vl_philox_key key = vl_philox_key("fill", 4, seed);
    uint32_t ctr[4] = { 0 }, out[4];

    for (size_t i = 0; i < n; i += 16, ctr[0]++) {
        vl_philox(out, ctr, key);
        memcpy((char *)p + i, out, n - i < 16 ? n - i : 16);
    }
}

static UNUSED void add_json(struct vl_batch *b, const char *name, const char *const *text)
{
    struct vl_buf t = { 0 };
    int64_t *off = vl_alloc(((size_t)b->rows + 1) * sizeof *off);

    for (int64_t i = 0; i < b->rows; i++) {
        vl_buf_str(&t, text[i]);
        off[i + 1] = (int64_t)t.n;
    }
    vl_batch_add_json(b, name, vl_buf_detach(&t), off);
}

/* Every dtype, a ragged and a JSON column, meta. */
static UNUSED void sample(struct vl_batch *b, int64_t rows)
{
    struct vl_err e = { 0 };
    struct vl_col *c, r = { .kind = VL_COL_RAGGED, .dtype = VL_F32, .ndim = 2 };
    const char **text = vl_alloc((size_t)rows * sizeof *text);
    static const char *const some[] = { "{\"a\":1.0}", "\"x\\u0000y\"", "null", "[1,2,3]" };
    int64_t inner[2] = { 5, 3 };

    *b = (struct vl_batch){ .rows = rows };
    for (int t = 0; t < VL_NDTYPE; t++) {
        must(vl_batch_add_tensor(b, vl_dtype_name(t), t, t % 3, inner, &c, &e), &e);
        fill(c->data, c->bytes, (uint32_t)t);
        for (size_t i = 0; t == VL_BOOL && i < c->bytes; i++)
            ((uint8_t *)c->data)[i] &= 1;
    }
    for (int64_t i = 0; i < rows; i++)
        text[i] = some[i % 4];
    add_json(b, "info", text);
    free(text);
    r.name = vl_strdup("ragged");
    r.offsets = vl_alloc(((size_t)rows + 1) * sizeof *r.offsets);
    for (int64_t i = 0; i < rows; i++)
        r.offsets[i + 1] = r.offsets[i] + i % 3;
    r.shape[0] = r.offsets[rows];
    r.shape[1] = 2;
    r.bytes = (size_t)r.shape[0] * 8;
    must(vl_try_alloc(&r.data, r.bytes, 1, "ragged", &e), &e);
    fill(r.data, r.bytes, 99);
    vl_batch_put(b, &r);
    vl_meta_set(b, "temperature", "1.0");
    vl_meta_set(b, "big", "123456789012345678901234567890");
    vl_meta_set_str(b, "text", "snow\xe2\x98\x83");
    must(vl_batch_check(b, &e), &e);
}

static UNUSED void same_batch(const struct vl_batch *a, const struct vl_batch *b)
{
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->has_batch, b->has_batch);
    assert_int_equal(a->ncol, b->ncol);
    for (size_t i = 0; i < a->ncol; i++) {
        const struct vl_col *x = a->col[i], *y = b->col[i];

        assert_string_equal(x->name, y->name);
        assert_int_equal(x->kind, y->kind);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->ndim, y->ndim);
        assert_int_equal(x->bytes, y->bytes);
        assert_memory_equal(x->shape, y->shape, (size_t)x->ndim * sizeof x->shape[0]);
        if (x->bytes)
            assert_memory_equal(x->data, y->data, x->bytes);
        if (x->offsets)
            assert_memory_equal(x->offsets, y->offsets, ((size_t)a->rows + 1) * 8);
    }
    assert_int_equal(a->nmeta, b->nmeta);
    for (size_t i = 0; i < a->nmeta; i++) {
        assert_string_equal(a->meta[i].key, b->meta[i].key);
        assert_string_equal(a->meta[i].json, b->meta[i].json);
    }
}

static UNUSED void write_file(const char *p, const void *d, size_t n)
{
    FILE *f = fopen(p, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(d, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static UNUSED uint8_t *read_file(const char *p, size_t *n)
{
    FILE *f = fopen(p, "rb");
    struct stat st;
    uint8_t *d;

    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    d = vl_alloc((size_t)st.st_size);
    *n = fread(d, 1, (size_t)st.st_size, f);
    fclose(f);
    return d;
}

/* Runs a group in a scratch directory that is removed afterwards. */
static UNUSED int run_in_dir(int (*group)(void))
{
    char *rm;
    int rc;

    if (!mkdtemp(dir))
        return 1;
    rc = group();
    rm = vl_asprintf("rm -rf %s", dir);
    if (system(rm))
        rc = 1;
    free(rm);
    return rc;
}

#endif
