/* Opening a backend: instruction sets, threads, devices, and the one line of each refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

static void keep_line(void *arg, const char *line)
{
    strncat(arg, line, 500);
}

static void test_isa(void **state)
{
    struct vl_backend *be;
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(vl_backend_cpu(&be, "sse9", 1, 1, &e), VL_E_USAGE);
    assert_non_null(strstr(e.msg, "'sse9' is not one of auto"));
    assert_null(be);
    e.code = 0;
    assert_int_equal(vl_backend_cpu(&be, "scalar", 1, 1, &e), 0);
    assert_string_equal(be->name, "cpu scalar");
    assert_int_equal(be->version, VL_BACKEND_VERSION);
    be->close(be);

    setenv("VL_ISA", "plain", 1);
    assert_int_equal(vl_backend_cpu(&be, "auto", 1, 1, &e), 0);
    assert_string_equal(be->name, "cpu plain");
    be->close(be);
    assert_int_equal(vl_backend_cpu(&be, "scalar", 1, 1, &e), 0);
    assert_string_equal(be->name, "cpu scalar"); /* an explicit choice wins */
    be->close(be);
    setenv("VL_ISA", "fast", 1);
    assert_int_equal(vl_backend_cpu(&be, NULL, 1, 1, &e), VL_E_USAGE);
    assert_non_null(strstr(e.msg, "VL_ISA: 'fast'"));
    unsetenv("VL_ISA");
}

static void test_threads(void **state)
{
    struct vl_backend *be;
    struct vl_err e = { 0 };
    int all;

    (void)state;
    assert_int_equal(vl_backend_cpu(&be, NULL, -1, 1, &e), VL_E_USAGE);
    e.code = 0;
    assert_int_equal(vl_backend_cpu(&be, NULL, 5000, 1, &e), VL_E_USAGE);
    unsetenv("OMP_NUM_THREADS");
    all = vl_cpu_count(1);
    assert_true(all >= 1);
    assert_int_equal(vl_cpu_count(all + 1), 1); /* never none */
    assert_int_equal(vl_cpu_count(2), all > 1 ? all / 2 : 1);
    setenv("OMP_NUM_THREADS", "3", 1);
    assert_int_equal(vl_cpu_count(1), 3);
    unsetenv("OMP_NUM_THREADS");
}

static void test_devices(void **state)
{
    static const char *const bad[] = { "gpu", "cuda:", "cuda:x", "cuda:99999", "cuda:1x", "" };
    struct vl_backend *be;
    struct vl_err e = { 0 };
    char said[2000] = "";

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        e.code = 0;
        assert_int_equal(vl_backend_open(&be, bad[i], 1, 1, keep_line, said, &e), VL_E_USAGE);
        assert_non_null(strstr(e.msg, "is not one of auto, cpu, cuda, cuda:N"));
    }
    e.code = 0;
    assert_int_equal(vl_backend_open(&be, "cpu", 1, 1, keep_line, said, &e), 0);
    assert_string_equal(said, "");
    be->close(be);
    if (vl_backend_open(&be, "cuda", 1, 1, keep_line, said, &e) == 0) {
        be->close(be);
        return; /* this machine has the plugin */
    }
    assert_int_equal(e.code, VL_E_UNAVAIL);
    assert_non_null(strstr(e.msg, "libverl_cuda.so"));
    e.code = 0;
    for (int i = 0; i < 2; i++) { /* falls back and says so once */
        assert_int_equal(vl_backend_open(&be, "auto", 1, 1, keep_line, said, &e), 0);
        assert_int_equal(strncmp(be->name, "cpu ", 4), 0);
        be->close(be);
    }
    assert_non_null(strstr(said, "running on the CPU"));
    assert_null(strstr(strstr(said, "running") + 1, "running"));
}

static void test_memory(void **state)
{
    struct vl_backend *be;
    struct vl_err e = { 0 };
    char host[64] = "sixty-four bytes", back[64];
    void *dev;

    (void)state;
    assert_int_equal(vl_backend_cpu(&be, NULL, 1, 1, &e), 0);
    for (size_t n = 64; n < (size_t)9 << 20; n *= 40) {
        assert_int_equal(be->alloc(be->ctx, &dev, n, &e), 0);
        assert_int_equal((uintptr_t)dev % 64, 0);
        assert_true(((char *)dev)[0] == 0 && ((char *)dev)[n - 1] == 0);
        be->upload(be->ctx, dev, host, 64);
        be->download(be->ctx, back, dev, 64);
        assert_memory_equal(host, back, 64);
        assert_ptr_equal(be->host(be->ctx, dev), dev);
        be->zero(be->ctx, dev, 64);
        assert_true(((char *)dev)[3] == 0);
        be->free(be->ctx, dev);
    }
    assert_int_equal(be->alloc(be->ctx, &dev, SIZE_MAX, &e), VL_E_OS);
    be->close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_isa),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
