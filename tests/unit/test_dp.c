/* test_dp.c - batch files: round trips, selective reads, damage, thread counts, streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include "formats/dp.h"
#include "formats/frames.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "libverl/base/philox.h"
#include "libverl/base/publish.h"
#include "libverl/batch/ops.h"
#include "libverl/batch/provenance.h"

static char dir[] = "/tmp/verl-test-dp.XXXXXX";

static char *path(const char *name)
{
    static char p[4][128];
    static int k;

    k = (k + 1) % 4;
    snprintf(p[k], sizeof p[k], "%s/%s", dir, name);
    return p[k];
}

static void must(int rc, const struct vl_err *e)
{
    if (rc)
        fail_msg("status %d: %s", rc, e->msg);
}

static void fill(void *p, size_t n, uint32_t seed)
{
    struct vl_philox_key key = vl_philox_key("fill", 4, seed);
    uint32_t ctr[4] = { 0 }, out[4];

    for (size_t i = 0; i < n; i += 16, ctr[0]++) {
        vl_philox(out, ctr, key);
        memcpy((char *)p + i, out, n - i < 16 ? n - i : 16);
    }
}

static void add_json(struct vl_batch *b, const char *name, const char *const *text)
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
static void sample(struct vl_batch *b, int64_t rows)
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

static void same_batch(const struct vl_batch *a, const struct vl_batch *b)
{
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->has_batch, b->has_batch);
    assert_int_equal(a->ncol, b->ncol);
    for (size_t i = 0; i < a->ncol; i++) {
        const struct vl_col *x = &a->col[i], *y = &b->col[i];

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

static uint8_t *read_file(const char *p, size_t *n)
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

static void round_trip(void **state)
{
    static const int64_t rows[] = { 0, 1, 7, 64, 40000 };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct vl_batch a, b;
        struct vl_err e = { 0 };
        char h1[33], h2[33];

        sample(&a, rows[k]);
        must(vl_dp_write(&a, path("a.dp"), NULL, &e), &e);
        must(vl_dp_read(&b, path("a.dp"), NULL, &e), &e);
        same_batch(&a, &b);
        must(vl_dp_hash(&a, h1, &e), &e);
        must(vl_dp_hash(&b, h2, &e), &e);
        assert_string_equal(h1, h2);
        assert_int_equal(b.nparent, 1);
        assert_string_equal(b.parent[0], h1);
        vl_batch_free(&a);
        vl_batch_free(&b);
    }
}

static void presence(void **state)
{
    struct vl_batch a = { .rows = 0 }, b;
    struct vl_err e = { 0 };
    static const char *const two[] = { "1", "2" };

    (void)state;
    vl_meta_set(&a, "m", "1");
    must(vl_dp_write(&a, path("p.dp"), NULL, &e), &e); /* an envelope */
    must(vl_dp_read(&b, path("p.dp"), NULL, &e), &e);
    same_batch(&a, &b);
    assert_int_equal(b.has_batch, 0);
    vl_batch_free(&b);
    a.has_batch = 1, a.rows = 3; /* present without tensors */
    must(vl_dp_write(&a, path("p.dp"), NULL, &e), &e);
    must(vl_dp_read(&b, path("p.dp"), NULL, &e), &e);
    same_batch(&a, &b);
    assert_int_equal(b.rows, 3);
    vl_batch_free(&b);
    a.has_batch = 0, a.rows = 2; /* absent, with a non-tensor column */
    add_json(&a, "s", two);
    must(vl_dp_write(&a, path("p.dp"), NULL, &e), &e);
    must(vl_dp_read(&b, path("p.dp"), NULL, &e), &e);
    same_batch(&a, &b);
    assert_int_equal(b.rows, 2);
    vl_batch_free(&b);
    vl_batch_free(&a);
}

static void same_bytes_for_any_threads(void **state)
{
    struct vl_batch a;
    struct vl_err e = { 0 };
    uint8_t *want = NULL, *got;
    size_t n = 0, m;
    int before = omp_get_max_threads();

    (void)state;
    sample(&a, 40000);
    for (int level = 1; level <= 6; level += 5) {
        struct vl_dp_write opt = { .level = level };

        for (int threads = 1; threads <= 5; threads++) {
            omp_set_num_threads(threads);
            must(vl_dp_write(&a, path("t.dp"), &opt, &e), &e);
            got = read_file(path("t.dp"), &m);
            if (threads == 1) {
                want = got;
                n = m;
                continue;
            }
            assert_int_equal(n, m);
            assert_memory_equal(want, got, n);
            free(got);
        }
        free(want);
    }
    omp_set_num_threads(before);
    vl_batch_free(&a);
}

static void selective(void **state)
{
    static const char *const cols[] = { "F32", "info", "ragged", "nope", NULL };
    struct vl_batch a, b, part, want = { 0 };
    struct vl_err e = { 0 };
    struct vl_dp_read opt = { .columns = cols, .row0 = 30001, .nrows = 5000 };
    uint8_t *bytes;
    size_t n;
    FILE *f;

    (void)state;
    sample(&a, 40000);
    must(vl_dp_write(&a, path("s.dp"), NULL, &e), &e);
    must(vl_batch_rows(&part, &a, 30001, 5000, &e), &e);
    must(vl_batch_select(&want, &part, (const char *const[]){ "F32", "info", "ragged", NULL }, NULL,
                         &e),
         &e);
    must(vl_dp_read(&b, path("s.dp"), &opt, &e), &e);
    same_batch(&want, &b);
    vl_batch_free(&b);
    opt.row0 = 39999; /* past the end: what exists */
    must(vl_dp_read(&b, path("s.dp"), &opt, &e), &e);
    assert_int_equal(b.rows, 1);
    vl_batch_free(&b);
    opt.row0 = 50000;
    must(vl_dp_read(&b, path("s.dp"), &opt, &e), &e);
    assert_int_equal(b.rows, 0);
    vl_batch_free(&b);
    opt = (struct vl_dp_read){ .header_only = 1, .nrows = -1 };
    must(vl_dp_read(&b, path("s.dp"), &opt, &e), &e);
    assert_int_equal(b.rows, 40000);
    assert_int_equal(b.ncol, a.ncol);
    assert_null(b.col[0].data);
    vl_batch_free(&b);

    /* damage in a column that is not read is not looked at; in one that is, it is found */
    bytes = read_file(path("s.dp"), &n);
    opt = (struct vl_dp_read){ .columns = (const char *const[]){ "F64", NULL }, .nrows = 10 };
    bytes[n - 2000] ^= 1;
    f = fopen(path("s2.dp"), "wb");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    must(vl_dp_read(&b, path("s2.dp"), &opt, &e), &e);
    vl_batch_free(&b);
    assert_int_equal(vl_dp_read(&b, path("s2.dp"), NULL, &e), VL_E_DATA);
    free(bytes);
    vl_batch_free(&a);
    vl_batch_free(&part);
    vl_batch_free(&want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(presence),
        cmocka_unit_test(same_bytes_for_any_threads),
        cmocka_unit_test(selective),
    };
    char *rm;
    int rc;

    if (!mkdtemp(dir))
        return 1;
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    rm = vl_asprintf("rm -rf %s", dir);
    if (system(rm))
        rc = 1;
    free(rm);
    return rc;
}
