/* test_cgroup.c - the directories whose limits hold: a group and those above it, in both versions. */
#include "libverl/base/cgroup.h"
#include "libverl/base/fs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void add(void *arg, const char *dir)
{
    struct vl_buf *b = arg;

    vl_buf_str(b, dir);
    vl_buf_ch(b, ' ');
}

static void check(const char *self, const char *controller, const char *want)
{
    char dir[] = "/tmp/verl-cgroup.XXXXXX", *path;
    struct vl_buf seen = { 0 };
    struct vl_err e = { 0 };

    assert_non_null(mkdtemp(dir));
    path = vl_asprintf("%s/self", dir);
    assert_int_equal(vl_fs_write(path, self, strlen(self), &e), 0);
    vl_cgroup_each_in("/R", path, controller, add, &seen);
    assert_string_equal(seen.s, want);
    vl_buf_free(&seen);
    free(path);
    assert_int_equal(vl_fs_remove(dir, &e), 0);
}

static void test_dirs(void **state)
{
    (void)state;
    check("0::/user.slice/a-1.scope\n", "cpu",
          "/R /R/cpu /R/user.slice/a-1.scope /R/user.slice /R ");
    check("0::/\n", "cpu", "/R /R/cpu /R/ /R ");
    check("9:name=systemd:/x\n4:memory:/jobs/7\n2:cpu,cpuacct:/k\n0::/\n", "memory",
          "/R /R/memory /R/memory/jobs/7 /R/memory/jobs /R/memory /R/ /R ");
    check("2:cpuset:/s\n3:cpuacct,cpu:/k\n", "cpu", "/R /R/cpu /R/cpu/k /R/cpu ");
    check("0::/../other\n", "cpu", "/R /R/cpu /R "); /* outside of our namespace */
    check("nonsense\n5:\n:\n", "cpu", "/R /R/cpu ");
    check("", "cpu", "/R /R/cpu ");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_dirs) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
