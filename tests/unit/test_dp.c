/* test_dp.c - batch files: round trips, selective reads, thread counts, streams, files of others. */
#include "dp_util.h"

#include <fcntl.h>
#include <omp.h>
#include <zstd.h>

#include "formats/fields.h"
#include "formats/frames.h"
#include "formats/safetensors.h"
#include "libverl/base/fs.h"
#include "libverl/base/publish.h"
#include "libverl/batch/ops.h"
#include "libverl/batch/provenance.h"

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
    assert_null(b.col[0]->data);
    vl_batch_free(&b);

    /* damage in a column that is not read is not looked at; in one that is, it is found */
    bytes = read_file(path("s.dp"), &n);
    opt = (struct vl_dp_read){ .columns = (const char *const[]){ "F64", NULL }, .nrows = 10 };
    bytes[n - 2000] ^= 1;
    write_file(path("s2.dp"), bytes, n);
    must(vl_dp_read(&b, path("s2.dp"), &opt, &e), &e);
    vl_batch_free(&b);
    assert_int_equal(vl_dp_read(&b, path("s2.dp"), NULL, &e), VL_E_DATA);
    free(bytes);
    vl_batch_free(&a);
    vl_batch_free(&part);
    vl_batch_free(&want);
}

/* A pipe that holds these bytes, as a path to read; they must fit its buffer. */
static const char *pipe_of(const void *p, size_t n, int *fd)
{
    static char name[40];
    int end[2];

    assert_int_equal(pipe(end), 0);
    assert_true(fcntl(end[1], F_SETPIPE_SZ, 1 << 20) > 0);
    assert_int_equal(write(end[1], p, n), n);
    close(end[1]);
    *fd = end[0];
    snprintf(name, sizeof name, "/dev/fd/%d", end[0]);
    return name;
}

/* Writes n documents of `rows` rows each as a stream; returns its bytes. */
static uint8_t *make_stream(const struct vl_batch *a, int64_t rows, int whole, size_t *n)
{
    struct vl_err e = { 0 };
    struct vl_dp_stream s;
    uint8_t *bytes = vl_alloc(1 << 20);
    char *fifo = path("fifo");
    ssize_t got;
    int fd;

    unlink(fifo);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    fd = open(fifo, O_RDWR);
    assert_true(fd >= 0 && fcntl(fd, F_SETPIPE_SZ, 1 << 20) > 0);
    must(vl_dp_stream_open(&s, fifo, NULL, &e), &e);
    for (int64_t at = 0; at < a->rows; at += rows) {
        struct vl_batch part = { 0 };

        must(vl_batch_rows(&part, a, at, rows, &e), &e);
        must(vl_dp_stream_put(&s, &part, &e), &e);
        vl_batch_free(&part);
    }
    must(vl_dp_stream_close(&s, whole, &e), &e);
    got = read(fd, bytes, 1 << 20);
    assert_true(got > 0);
    close(fd);
    *n = (size_t)got;
    return bytes;
}

/* A stream in pieces: documents come out when their last byte is there, whatever the pieces; what is
 * no stream comes out whole; what is cut or changed is refused. */
static void feed(void **state)
{
    static const size_t piece[] = { 7, 40, 1000, 1 << 20 };
    struct vl_batch a, doc, whole, *got = vl_alloc(8 * sizeof *got);
    struct vl_err e = { 0 };
    uint8_t *bytes;
    size_t n;
    int is, k;

    (void)state;
    sample(&a, 10);
    bytes = make_stream(&a, 3, 1, &n);
    for (size_t i = 0; i < sizeof piece / sizeof *piece; i++) {
        struct vl_dp_feed *f = vl_dp_feed_open("fed");
        int docs = 0;

        for (size_t at = 0; at < n; at += piece[i]) {
            vl_dp_feed_add(f, bytes + at, n - at < piece[i] ? n - at : piece[i]);
            do {
                must(vl_dp_feed_next(f, &got[docs], &k, &e), &e);
                docs += k;
            } while (k);
        }
        assert_int_equal(docs, 4);
        must(vl_dp_feed_end(f, &whole, &is, &e), &e);
        assert_int_equal(is, 1);
        vl_dp_feed_close(f);
        must(vl_prov_join_stream(&whole, got, 4, &e), &e);
        same_batch(&a, &whole);
        vl_batch_free(&whole);
        while (docs)
            vl_batch_free(&got[--docs]);
    }
    /* cut at `cut`; then one bit changed there */
    for (size_t cut = 0; cut <= n; cut += n - cut > 42 && cut % 13 ? 61 : 1) {
        for (int flip = 0; flip < 2; flip++) {
            struct vl_dp_feed *f = vl_dp_feed_open("fed");

            if (flip && cut < n)
                bytes[cut] ^= 0x20;
            vl_dp_feed_add(f, bytes, flip ? n : cut);
            if (flip && cut == n)
                vl_dp_feed_add(f, "\0", 1); /* a byte too many */
            do {
                (void)!vl_dp_feed_next(f, &doc, &k, &e);
                if (k)
                    vl_batch_free(&doc);
            } while (k && !e.code);
            if (!e.code && !vl_dp_feed_next(f, &doc, &k, &e))
                (void)!vl_dp_feed_end(f, &whole, &is, &e);
            if (cut == n && !flip)
                assert_int_equal(e.code, 0);
            else
                assert_int_equal(e.code, VL_E_DATA);
            e = (struct vl_err){ 0 };
            vl_dp_feed_close(f);
            if (flip && cut < n)
                bytes[cut] ^= 0x20;
        }
    }
    free(bytes);
    free(got);
    vl_batch_free(&a);
}

/* Batches that are no stream: a document, a plain safetensors file, nothing. */
static void feed_of_others(void **state)
{
    struct vl_batch a, doc, whole;
    struct vl_err e = { 0 };

    (void)state;
    sample(&a, 10);
    for (int plain = 0; plain < 2; plain++) {
        struct vl_dp_feed *f = vl_dp_feed_open("fed");
        struct vl_buf t = { 0 };
        int k, is;

        if (plain)
            must(vl_dp_write_plain(&a, path("f.dp"), &e), &e);
        else
            must(vl_dp_write(&a, path("f.dp"), NULL, &e), &e);
        must(vl_fs_read(path("f.dp"), 1 << 20, &t, &e), &e);
        for (size_t i = 0; i < t.n; i++) {
            vl_dp_feed_add(f, t.s + i, 1);
            must(vl_dp_feed_next(f, &doc, &k, &e), &e);
            assert_int_equal(k, 0);
        }
        must(vl_dp_feed_end(f, &whole, &is, &e), &e);
        assert_int_equal(is, 0);
        same_batch(&a, &whole);
        vl_batch_free(&whole);
        vl_dp_feed_close(f);
        f = vl_dp_feed_open("fed");
        vl_dp_feed_add(f, t.s, t.n - 1);
        must(vl_dp_feed_next(f, &doc, &k, &e), &e);
        assert_int_equal(vl_dp_feed_end(f, &whole, &is, &e), VL_E_DATA);
        e = (struct vl_err){ 0 };
        vl_dp_feed_close(f);
        vl_buf_free(&t);
    }
    vl_batch_free(&a);
}

static void streams(void **state)
{
    struct vl_batch a, b;
    struct vl_err e = { 0 };
    struct vl_prov p = { .program = "maker", .version = "1", .seed = 5 };
    struct vl_dp_stream refused;
    uint8_t *bytes;
    size_t n;
    int fd;

    (void)state;
    sample(&a, 10);
    bytes = make_stream(&a, 3, 1, &n);
    must(vl_dp_read(&b, pipe_of(bytes, n, &fd), NULL, &e), &e);
    close(fd);
    same_batch(&a, &b);
    vl_batch_free(&b);
    /* a saved stream is no batch file; a stream into a regular file is refused */
    write_file(path("saved"), bytes, n);
    assert_int_equal(vl_dp_read(&b, path("saved"), NULL, &e), VL_E_DATA);
    assert_non_null(strstr(e.msg, "saved stream"));
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_dp_stream_open(&refused, path("saved"), NULL, &e), VL_E_USAGE);
    e = (struct vl_err){ 0 };
    /* any cut is noticed, after whole documents too */
    for (size_t cut = 0; cut < n; cut += cut % 37 == 5 ? 1 : 3) {
        if (cut == 0)
            continue;
        assert_int_equal(vl_dp_read(&b, pipe_of(bytes, cut, &fd), NULL, &e), VL_E_DATA);
        close(fd);
        e = (struct vl_err){ 0 };
    }
    free(bytes);
    bytes = make_stream(&a, 3, 0, &n); /* without its end frame */
    assert_int_equal(vl_dp_read(&b, pipe_of(bytes, n, &fd), NULL, &e), VL_E_DATA);
    close(fd);
    e = (struct vl_err){ 0 };
    free(bytes);
    bytes = make_stream(&a, 10, 0, &n);
    assert_int_equal(vl_dp_read(&b, pipe_of(bytes, n, &fd), NULL, &e), VL_E_DATA);
    assert_non_null(strstr(e.msg, "without its end frame"));
    close(fd);
    e = (struct vl_err){ 0 };
    free(bytes);

    /* one stage's stream has the provenance of its file in one piece */
    must(vl_prov_add(&a, &p, &e), &e);
    must(vl_dp_write(&a, path("whole.dp"), NULL, &e), &e);
    free(a.provenance);
    a.provenance = NULL, a.nparent = 0;
    {
        struct vl_batch part[2] = { { 0 }, { 0 } }, joined = { 0 };

        must(vl_batch_rows(&part[0], &a, 0, 4, &e), &e);
        must(vl_batch_rows(&part[1], &a, 4, 6, &e), &e);
        must(vl_prov_add(&part[0], &p, &e), &e);
        must(vl_prov_add(&part[1], &p, &e), &e);
        must(vl_prov_join_stream(&joined, part, 2, &e), &e);
        must(vl_dp_read(&b, path("whole.dp"), NULL, &e), &e);
        assert_string_equal(joined.provenance, b.provenance);
        assert_string_equal(joined.parent[0], b.parent[0]);
        vl_batch_free(&part[0]);
        vl_batch_free(&part[1]);
        vl_batch_free(&joined);
        vl_batch_free(&b);
    }
    vl_batch_free(&a);
}

/* A plain safetensors file, and the same compressed by zstd in one piece or several. */
static void files_of_others(void **state)
{
    struct vl_batch a, b;
    struct vl_err e = { 0 };
    struct vl_dp_read some = { .columns = (const char *const[]){ "I32", "info", NULL },
                               .row0 = 2,
                               .nrows = 3 };
    uint8_t *raw, *z;
    size_t n, m, bound;

    (void)state;
    sample(&a, 7);
    must(vl_dp_write_plain(&a, path("o.safetensors"), &e), &e);
    must(vl_dp_read(&b, path("o.safetensors"), NULL, &e), &e);
    same_batch(&a, &b);
    vl_batch_free(&b);
    must(vl_dp_read(&b, path("o.safetensors"), &some, &e), &e);
    assert_int_equal(b.rows, 3);
    assert_int_equal(b.ncol, 2);
    assert_memory_equal(vl_batch_col(&b, "I32")->data,
                        (int32_t *)vl_batch_col(&a, "I32")->data +
                            2 * vl_batch_col(&a, "I32")->bytes / 7 / 4,
                        vl_batch_col(&b, "I32")->bytes);
    vl_batch_free(&b);
    raw = read_file(path("o.safetensors"), &n);
    bound = ZSTD_compressBound(n) + 100;
    z = vl_alloc(bound);
    m = ZSTD_compress(z, bound, raw, n, 3);
    write_file(path("o.dp"), z, m);
    must(vl_dp_read(&b, path("o.dp"), NULL, &e), &e);
    same_batch(&a, &b);
    vl_batch_free(&b);
    for (size_t cut = 1; cut < m; cut++) {
        write_file(path("o2.dp"), z, cut);
        assert_int_equal(vl_dp_read(&b, path("o2.dp"), NULL, &e), VL_E_DATA);
        e = (struct vl_err){ 0 };
    }
    z[m] = 0x28; /* bytes after the end */
    write_file(path("o2.dp"), z, m + 1);
    assert_int_equal(vl_dp_read(&b, path("o2.dp"), NULL, &e), VL_E_DATA);
    e = (struct vl_err){ 0 };
    m = ZSTD_compress(z, bound, raw, 100, 1); /* two frames, cut anywhere */
    m += ZSTD_compress(z + m, bound - m, raw + 100, n - 100, 1);
    write_file(path("o.dp"), z, m);
    must(vl_dp_read(&b, path("o.dp"), NULL, &e), &e);
    same_batch(&a, &b);
    vl_batch_free(&b);
    write_file(path("o3.safetensors"), raw, n - 1);
    assert_int_equal(vl_dp_read(&b, path("o3.safetensors"), NULL, &e), VL_E_DATA);
    free(raw);
    free(z);
    vl_batch_free(&a);
}

/* Header text and data bytes as a file; reading it gives 65 with `part` in the line, or works. */
static void header_case(const char *header, size_t data, const char *part)
{
    struct vl_buf t = { 0 };
    struct vl_err e = { 0 };
    struct vl_batch b;
    uint8_t len[8];
    int rc;

    vl_put_le64(len, strlen(header));
    vl_buf_add(&t, len, 8);
    vl_buf_str(&t, header);
    for (size_t i = 0; i < data; i++)
        vl_buf_ch(&t, 0);
    write_file(path("h.safetensors"), t.s, t.n);
    rc = vl_dp_read(&b, path("h.safetensors"), NULL, &e);
    if (part && (rc != VL_E_DATA || !strstr(e.msg, part)))
        fail_msg("%s: status %d, '%s', wanted '%s'", header, rc, e.msg, part);
    if (!part)
        must(rc, &e);
    vl_batch_free(&b);
    vl_buf_free(&t);
}

#define TENSOR(name, dt, shape, a, b)                                                              \
    "\"" name "\":{\"dtype\":\"" dt "\",\"shape\":" shape ",\"data_offsets\":[" #a "," #b "]}"

static void headers(void **state)
{
    (void)state;
    header_case("{" TENSOR("a", "I64", "[2]", 0, 16) "}", 16, NULL);
    header_case("{\"__metadata__\":null," TENSOR("b", "U8", "[1]", 8,
                                                 9) "," TENSOR("a", "I64", "[1]", 0, 8) "}",
                9, NULL); /* order differs, null metadata */
    header_case("{" TENSOR("a", "I64", "[2]", 0, 16) "}", 15, "promises");
    header_case("{" TENSOR("a", "I64", "[2]", 0, 16) "}", 17, "promises");
    header_case("{" TENSOR("a", "I64", "[2]", 0, 8) "}", 8, "do not fit");
    header_case("{" TENSOR("a", "I64", "[2]", 8, 24) "}", 24, "a hole");
    header_case("{" TENSOR("a", "U8", "[2]", 0, 2) "," TENSOR("b", "U8", "[2]", 1, 3) "}", 3,
                "an overlap");
    header_case("{" TENSOR("a", "U8", "[2]", 0, 2) "," TENSOR("a", "U8", "[2]", 2, 4) "}", 4,
                "twice");
    header_case("{" TENSOR("a", "C64", "[1]", 0, 8) "}", 8, "unknown dtype C64");
    header_case("{" TENSOR("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, "at most 8");
    header_case("{" TENSOR("a", "U8", "[-1]", 0, 1) "}", 1, "shape");
    header_case("{" TENSOR("a", "I64", "[1250000000000]", 0, 10000000000000) "}", 1000, "promises");
    header_case("{" TENSOR("a", "I64", "[4611686018427387904,4]", 0, 0) "}", 0, "do not fit");
    header_case("{" TENSOR("a", "F32", "[]", 0, 4) "}", 4, "no leading dimension");
    header_case("{" TENSOR("a", "U8", "[1]", 0, 1) "," TENSOR("b", "U8", "[2]", 1, 3) "}", 3,
                "column b has 2 rows, but the batch has 1");
    header_case("{\"__metadata__\":{\"dataproto\":\"2\"}," TENSOR("a", "U8", "[1]", 0, 1) "}", 1,
                "version 2");
    header_case("{\"__metadata__\":{\"a\":1}}", 0, "not an object of strings");
    header_case("{\"__metadata__\":{\"batch_size\":\"-1\"}}", 0, "not a count");
    header_case(
        "{\"__metadata__\":{\"columns\":\"[\\\"b\\\"]\"}," TENSOR("a", "U8", "[1]", 0, 1) "}", 1,
        "no column");
    header_case("{" TENSOR("non_tensor_batch/a", "U8", "[2]", 16,
                           18) "," TENSOR("non_tensor_offsets/a", "I64", "[2]", 0, 16) "}",
                18, "do not run from 0 to 2");
    header_case("{" TENSOR("non_tensor_offsets/a", "I64", "[2]", 0, 16) "}", 16, "has no column");
    header_case("{" TENSOR("non_tensor_batch/a", "U8", "[2]", 0, 2) "}", 2, "with offsets");
    header_case("{" TENSOR("non_tensor_batch/a", "U8", "[0]", 17,
                           17) "," TENSOR("non_tensor_offsets/a", "I64", "[2]", 0,
                                          16) "," TENSOR("a", "U8", "[1]", 16, 17) "}",
                17, "as a tensor and as a non-tensor");
    header_case("{", 0, "not a");
    header_case("[1]        ", 0, "neither");
}

/* Files reach their name whole; links stay links; what is no file is written in place. */
static void publishing(void **state)
{
    struct vl_err e = { 0 };
    struct vl_publish p;
    struct stat st;
    uint8_t *back;
    size_t n;

    (void)state;
    write_file(path("target"), "old", 3);
    assert_int_equal(chmod(path("target"), 0640), 0);
    assert_int_equal(symlink("target", path("link")), 0);
    assert_int_equal(symlink("nowhere", path("dangling")), 0);
    must(vl_publish_open(&p, path("link"), 1, &e), &e);
    must(vl_publish_write(&p, "new", 3, &e), &e);
    back = read_file(path("target"), &n);
    assert_memory_equal(back, "old", 3); /* not before commit */
    free(back);
    must(vl_publish_commit(&p, &e), &e);
    back = read_file(path("target"), &n);
    assert_memory_equal(back, "new", 3);
    free(back);
    assert_int_equal(lstat(path("link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(path("target"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    must(vl_publish_file(path("dangling"), "x", 1, 1, &e), &e);
    assert_int_equal(stat(path("nowhere"), &st), 0);
    must(vl_publish_open(&p, path("never"), 1, &e), &e);
    must(vl_publish_write(&p, "x", 1, &e), &e);
    vl_publish_abort(&p);
    assert_int_not_equal(stat(path("never"), &st), 0);
    assert_int_equal(vl_publish_file("/dev/full", "x", 1, 1, &e), VL_E_IO);
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_publish_file(path("no/dir/x"), "x", 1, 1, &e), VL_E_CREATE);
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_publish_file(dir, "x", 1, 1, &e), VL_E_CREATE);
    e = (struct vl_err){ 0 };
    assert_int_equal(symlink("loop", path("loop")), 0);
    assert_int_equal(vl_publish_file(path("loop"), "x", 1, 1, &e), VL_E_CREATE);
    {
        char *ls = vl_asprintf("ls -A %s | grep -q verl-", dir); /* nothing left aside */

        assert_int_not_equal(system(ls), 0);
        free(ls);
    }
}

static void provenance(void **state)
{
    struct vl_batch a, b, c;
    struct vl_err e = { 0 };
    struct vl_prov p = { .program = "one", .version = "1", .options = "{\"x\":1}", .seed = 7 };
    char hash[33], *merged;

    (void)state;
    sample(&a, 3);
    must(vl_prov_add(&a, &p, &e), &e);
    must(vl_prov_add(&a, &p, &e), &e); /* the same content: no second node */
    must(vl_dp_hash(&a, hash, &e), &e);
    merged = vl_asprintf("{\"%s\":{\"program\":\"one\",\"version\":\"1\",\"options\":{\"x\":1},"
                         "\"seed\":7,\"parents\":[]}}",
                         hash);
    assert_string_equal(a.provenance, merged);
    free(merged);
    must(vl_dp_write(&a, path("pa.dp"), NULL, &e), &e);
    must(vl_dp_read(&b, path("pa.dp"), NULL, &e), &e);
    assert_string_equal(b.parent[0], hash);
    vl_meta_set(&b, "step", "1");
    p = (struct vl_prov){ .program = "two", .version = "1", .seed = INT64_MIN };
    must(vl_prov_add(&b, &p, &e), &e);
    assert_non_null(strstr(b.provenance, hash));
    assert_non_null(strstr(b.provenance, "\"two\""));
    merged = vl_prov_merge(a.provenance, b.provenance);
    assert_string_equal(merged, b.provenance);
    free(merged);
    merged = vl_prov_merge(NULL, NULL);
    assert_null(merged);
    must(vl_batch_clone(&c, &a, &e), &e);
    vl_batch_drop(&c, "F32");
    must(vl_batch_unite(&c, &b, &e), &e); /* two parents */
    assert_int_equal(c.nparent, 2);
    vl_batch_free(&a);
    vl_batch_free(&b);
    vl_batch_free(&c);
}

/* The dictionary: known columns only, no cycles, and the dependencies that stages count on. */
static void fields(void **state)
{
    const struct vl_field *f;

    (void)state;
    for (size_t k = 0; (f = vl_field_at(k)); k++) {
        assert_ptr_equal(vl_field_find(f->name), f);
        for (size_t i = 0; f->from[i]; i++) {
            const struct vl_field *g = vl_field_find(f->from[i]);

            assert_non_null(g);
            assert_true(g < f); /* a column comes after what it is made of: no cycles */
        }
    }
    assert_true(vl_field_depends("advantages", "responses"));
    assert_true(vl_field_depends("token_level_rewards", "old_log_probs"));
    assert_true(vl_field_depends("old_log_probs", "responses"));
    assert_false(vl_field_depends("old_log_probs", "token_level_scores"));
    assert_false(vl_field_depends("responses", "responses"));
    assert_false(vl_field_depends("mine", "responses"));
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(presence),
        cmocka_unit_test(same_bytes_for_any_threads),
        cmocka_unit_test(selective),
        cmocka_unit_test(streams),
        cmocka_unit_test(feed),
        cmocka_unit_test(feed_of_others),
        cmocka_unit_test(files_of_others),
        cmocka_unit_test(headers),
        cmocka_unit_test(publishing),
        cmocka_unit_test(provenance),
        cmocka_unit_test(fields),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return run_in_dir(group);
}
