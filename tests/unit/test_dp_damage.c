/* test_dp_damage.c - every cut and every flipped bit of a batch file is noticed: 65, one line.
 *
 * Exhaustive over a small file, named and through a pipe: cuts between frames and just before the
 * seek table are among them, and so is every bit that zstd itself ignores. */
#include "dp_util.h"

#include <fcntl.h>

#include "formats/frames.h"
#include "libverl/batch/verify.h"

static uint8_t *bytes;
static size_t length;

static int setup(void **state)
{
    struct vl_batch a;
    struct vl_err e = { 0 };
    static const char *const text[] = { "{\"k\":[1,2,3]}", "\"abc\"", "null" };
    struct vl_col *c;

    (void)state;
    a = (struct vl_batch){ .rows = 3 };
    must(vl_batch_add_tensor(&a, "ids", VL_I64, 1, (const int64_t[]){ 4 }, &c, &e), &e);
    fill(c->data, c->bytes, 1);
    must(vl_batch_add_tensor(&a, "logp", VL_F32, 1, (const int64_t[]){ 2 }, &c, &e), &e);
    add_json(&a, "info", text);
    vl_meta_set(&a, "temperature", "1.0");
    must(vl_dp_write(&a, path("d.dp"), NULL, &e), &e);
    vl_batch_free(&a);
    bytes = read_file(path("d.dp"), &length);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(bytes);
    return 0;
}

/* The file is refused with 65 and one line that names it. */
static void refused(const void *p, size_t n, const char *what, size_t at)
{
    struct vl_batch b;
    struct vl_err e = { 0 };
    int rc;

    write_file(path("x.dp"), p, n);
    rc = vl_dp_read(&b, path("x.dp"), NULL, &e);
    if (rc != VL_E_DATA || strchr(e.msg, '\n') || !strstr(e.msg, "x.dp"))
        fail_msg("%s at %zu: status %d, '%s'", what, at, rc, e.msg);
    assert_null(b.col); /* nothing half-read is left */
}

static void refused_in_pipe(const void *p, size_t n, const char *what, size_t at)
{
    struct vl_batch b;
    struct vl_err e = { 0 };
    char name[40];
    int end[2], rc;

    assert_int_equal(pipe(end), 0);
    assert_int_equal(write(end[1], p, n), n);
    close(end[1]);
    snprintf(name, sizeof name, "/dev/fd/%d", end[0]);
    rc = vl_dp_read(&b, name, NULL, &e);
    close(end[0]);
    if (rc != VL_E_DATA || strchr(e.msg, '\n'))
        fail_msg("pipe: %s at %zu: status %d, '%s'", what, at, rc, e.msg);
}

static void every_cut(void **state)
{
    (void)state;
    for (size_t n = 0; n < length; n++) {
        refused(bytes, n, "cut", n);
        refused_in_pipe(bytes, n, "cut", n);
    }
}

static void every_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < 8 * length; i++) {
        /* all bits of the first frame's start and of the tail, one of each byte between */
        if (i / 8 > 24 && i / 8 + 200 < length && i % 8 != i / 8 % 8)
            continue;
        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        if (i % 3 == 0 || i / 8 + 200 > length)
            refused(bytes, length, "flip", i);
        else
            refused_in_pipe(bytes, length, "flip", i);
        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
    }
}

/* Parts taken out, doubled, or put behind. */
static void pieces(void **state)
{
    uint8_t *p = vl_alloc(2 * length + 16);

    (void)state;
    memcpy(p, bytes, length);
    memcpy(p + length, bytes, length);
    refused(p, 2 * length, "two documents", length);
    refused(p, length + 1, "a byte behind", length);
    for (size_t i = 0; i + 8 < length; i += 7) {
        memcpy(p, bytes, i);
        memcpy(p + i, bytes + i + 8, length - i - 8);
        refused(p, length - 8, "8 bytes out", i);
        memcpy(p, bytes, length);
        memset(p + i, 0, 8);
        if (memcmp(p, bytes, length))
            refused(p, length, "8 bytes zeroed", i);
    }
    free(p);
}

/* A selective reader checks what it reads: a damaged frame it touches is found. */
static void selective(void **state)
{
    struct vl_batch b;
    struct vl_err e = { 0 };
    struct vl_dp_read opt = { .columns = (const char *const[]){ "ids", NULL }, .nrows = -1 };
    size_t found = 0;

    (void)state;
    for (size_t i = 0; i < length; i++) {
        bytes[i] ^= 0x10;
        write_file(path("x.dp"), bytes, length);
        if (vl_dp_read(&b, path("x.dp"), &opt, &e)) {
            assert_int_equal(e.code, VL_E_DATA);
            found++;
        }
        vl_batch_free(&b);
        e = (struct vl_err){ 0 };
        bytes[i] ^= 0x10;
    }
    assert_true(found > length / 2); /* header, ids, table; not the other columns */
    assert_true(found < length);
}

static int group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut),
        cmocka_unit_test(every_bit),
        cmocka_unit_test(pieces),
        cmocka_unit_test(selective),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

int main(void)
{
    return run_in_dir(group);
}
