/* The crew of threads: every task exactly once, results visible to the caller, threads that are short. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <unistd.h>

#include "kernels/cpu/crew.h"

#define MOST 200

struct tally {
    int seen[MOST]; /* plain: each is written by one task of a run */
    _Atomic int high;
    int run;
};

static void count(void *arg, int64_t t, int thread)
{
    struct tally *y = arg;

    y->seen[t] += y->run;
    if (thread > atomic_load(&y->high))
        atomic_store(&y->high, thread);
}

static void test_each_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        struct vl_crew *p = vl_crew_new(threads);
        struct tally y = { .run = 0 };
        int want[MOST] = { 0 };

        assert_int_equal(vl_crew_threads(p), threads);
        for (int run = 1; run <= 3000; run++) {
            int64_t n = run * 7 % (MOST + 1);

            y.run = run;
            vl_crew_run(p, run % 11, n, count, &y);
            for (int64_t t = 0; t < n; t++)
                want[t] += run;
        }
        assert_memory_equal(want, y.seen, sizeof want);
        assert_true(y.high < threads);
        vl_crew_free(p);
    }
    vl_crew_free(NULL);
}

static void slow(void *arg, int64_t t, int thread)
{
    (void)thread;
    usleep(t % 3 ? 100 : 3000);
    ((int *)arg)[t]++;
}

/* Workers fall asleep between and during runs. */
static void test_sleep(void **state)
{
    struct vl_crew *p = vl_crew_new(3);
    int seen[12] = { 0 };

    (void)state;
    for (int run = 1; run <= 6; run++) {
        vl_crew_run(p, 1, 12, slow, seen);
        for (int t = 0; t < 12; t++)
            assert_int_equal(seen[t], run);
        usleep(2000);
    }
    vl_crew_free(p);
}

static void order(void *arg, int64_t t, int thread)
{
    int *next = arg;

    assert_int_equal(thread, 0);
    assert_int_equal(*next, t);
    ++*next;
}

static void test_serial(void **state)
{
    struct vl_crew *p = vl_crew_new(4);
    int next = 0;

    (void)state;
    vl_crew_run(p, 0, 50, order, &next);
    assert_int_equal(next, 50);
    vl_crew_run(p, 1, 0, order, &next);
    vl_crew_run(p, 1, 1, slow, (int[1]){ 0 });
    vl_crew_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_once),
        cmocka_unit_test(test_sleep),
        cmocka_unit_test(test_serial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
