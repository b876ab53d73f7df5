/* test_log.c - what is said at which level, by which rank, and the summary's form. */
#include "libverl/base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char said[4096];

/* Everything at once, at a level, from a rank, with stderr going to a file. */
static void speak(int level, int rank)
{
    char path[] = "/tmp/test_log.XXXXXX";
    int file = mkstemp(path), keep = dup(2);
    struct vl_log l;
    ssize_t n;

    dup2(file, 2);
    vl_log_init(&l, "verl-test", level, rank);
    vl_info(&l, "info %d", 1);
    vl_detail(&l, "detail %s", "x");
    vl_warn(&l, "careful");
    vl_progress(&l, "rows", 1, 4, "n");
    l.last -= 60;
    vl_progress(&l, "rows", 2, 4, "n");
    vl_progress(&l, "rows", 3, 4, NULL);
    l.last -= 60;
    vl_progress(&l, "rows", 4, 4, NULL);
    l.bytes_in = 1500;
    l.bytes_out = 2500000;
    vl_log_done(&l, 8, 100);
    dup2(keep, 2);
    close(keep);
    n = pread(file, said, sizeof said - 1, 0);
    said[n < 0 ? 0 : n] = 0;
    close(file);
    unlink(path);
}

static void test_levels(void **state)
{
    (void)state;
    speak(1, 0);
    assert_int_equal(strncmp(said,
                             "verl-test: info 1\nverl-test: warning: careful\n"
                             "verl-test: rows 2/4 (n)\nverl-test: rows 4/4\n"
                             "verl-test: 8 rows, 100 tokens in ",
                             118),
                     0);
    assert_non_null(strstr(said, " rows/s, "));
    assert_non_null(strstr(said, " tokens/s), 1.5 kB in, 2.5 MB out, peak "));
    assert_non_null(strstr(said, " MB\n"));
    speak(0, 0);
    assert_string_equal(said, "verl-test: warning: careful\n");
    speak(2, 0);
    assert_non_null(strstr(said, "verl-test: detail x\n"));
    speak(2, 3);
    assert_string_equal(said, "verl-test[rank 3]: warning: careful\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_levels) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
