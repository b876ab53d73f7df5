/* test_comm.c - one rank, the cut of rows, the environment of children, and the node collectives
 * between forked processes over an anonymous mapping (no MPI needed, so it runs under ASan). */
#include "libverl/comm/comm.h"
#include "libverl/comm/node.h"
#include "libverl/base/mem.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void one_rank_answers_alone(void **state)
{
    struct vl_comm c;
    struct vl_err e = { 0 };
    float f[3] = { 1, 2, 3 };
    double d[2] = { 4, 5 };
    int64_t m[1] = { -7 };
    void *all;
    size_t size;

    (void)state;
    assert_int_equal(vl_comm_init(&c, &e), 0);
    assert_int_equal(c.size, 1);
    assert_int_equal(c.rank, 0);
    assert_int_equal(c.hosts, 1);
    assert_true(c.threads >= 1);
    assert_true(c.stdin_ok);
    assert_int_equal(vl_comm_barrier(&c, &e), 0);
    assert_int_equal(vl_comm_bcast(&c, f, sizeof f, 0, &e), 0);
    assert_int_equal(vl_comm_sum_f32(&c, f, 3, &e), 0);
    assert_int_equal(vl_comm_sum_f64(&c, d, 2, &e), 0);
    assert_int_equal(vl_comm_max_i64(&c, m, 1, &e), 0);
    assert_true(f[2] == 3 && d[1] == 5 && m[0] == -7);
    assert_int_equal(vl_comm_gather(&c, "rows", 4, &all, &size, &e), 0);
    assert_int_equal(size, 4);
    assert_memory_equal(all, "rows", 4);
    free(all);
    assert_int_equal(vl_comm_agree(&c, &e), 0);
    vl_fail(&e, VL_E_DATA, "bad row");
    assert_int_equal(vl_comm_agree(&c, &e), VL_E_DATA);
    assert_string_equal(e.msg, "bad row");
    vl_comm_finish(&c);
}

/* A launcher of two that MPI (or a build without it) cannot confirm is refused, never "alone". */
static void unconfirmed_ranks_are_refused(void **state)
{
    struct vl_comm c;
    struct vl_err e = { 0 };

    (void)state;
    setenv("VL_RANKS", "2", 1);
#ifdef __SANITIZE_ADDRESS__
    assert_int_equal(vl_comm_init(&c, &e), VL_E_UNAVAIL); /* built with MPI=0 */
    assert_non_null(strstr(e.msg, "there is no MPI part"));
#endif
    setenv("VL_RANKS", "1", 1);
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_comm_init(&c, &e), 0);
    assert_int_equal(c.size, 1);
    assert_int_equal(c.launched, 1);
    vl_comm_finish(&c);
    unsetenv("VL_RANKS");
    setenv("PMI_RANK", "0", 1);
    assert_int_equal(vl_comm_init(&c, &e), 0);
    assert_int_equal(c.launched, 1);
    assert_int_equal(c.stdin_ok, 0); /* bare mpiexec -n 1 */
    unsetenv("PMI_RANK");
}

static void cut_balances_cost(void **state)
{
    const int64_t even[6] = { 1, 1, 1, 1, 1, 1 }, skew[5] = { 10, 1, 1, 1, 1 };
    const int64_t none[4] = { 0, 0, 0, 0 }, one[1] = { 5 };
    int64_t first[9];

    (void)state;
    vl_comm_cut(3, even, 6, first);
    assert_int_equal(first[0], 0);
    assert_int_equal(first[1], 2);
    assert_int_equal(first[2], 4);
    assert_int_equal(first[3], 6);
    vl_comm_cut(2, skew, 5, first);
    assert_int_equal(first[1], 1);
    assert_int_equal(first[2], 5);
    vl_comm_cut(4, none, 4, first);
    for (int r = 0; r <= 4; r++)
        assert_int_equal(first[r], r);
    vl_comm_cut(2, NULL, 4, first);
    assert_int_equal(first[1], 2);
    vl_comm_cut(8, one, 1, first);
    assert_int_equal(first[0], 0);
    assert_int_equal(first[8], 1);
    for (int r = 0; r < 8; r++)
        assert_true(first[r] <= first[r + 1]);
    vl_comm_cut(3, NULL, 0, first);
    assert_int_equal(first[3], 0);
    vl_comm_cut(1, even, 6, first);
    assert_int_equal(first[1], 6);
}

static void children_get_no_rank_variables(void **state)
{
    char **env;
    int kept = 0;

    (void)state;
    setenv("PMI_RANK", "3", 1);
    setenv("HYDI_CONTROL_FD", "9", 1);
    setenv("MPI_LOCALNRANKS", "4", 1);
    setenv("VL_RANKS", "4", 1);
    setenv("VL_TEST_KEPT", "yes", 1);
    env = vl_comm_clean_env();
    for (char **p = env; *p; p++) {
        assert_null(strstr(*p, "PMI_RANK="));
        assert_null(strstr(*p, "HYDI_"));
        assert_null(strstr(*p, "MPI_LOCAL"));
        assert_null(strstr(*p, "VL_RANKS="));
        kept += !strcmp(*p, "VL_TEST_KEPT=yes");
    }
    assert_int_equal(kept, 1);
    free(env);
    unsetenv("PMI_RANK");
    unsetenv("HYDI_CONTROL_FD");
    unsetenv("MPI_LOCALNRANKS");
    unsetenv("VL_RANKS");
    unsetenv("VL_TEST_KEPT");
}

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "# rank %d line %d: %s\n", n->rank, __LINE__, #what);                  \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* The sum of 0x1p24, 1, -0x1p24, ... depends on the order: only rank order gives these bits. */
static float term(int rank, size_t i)
{
    return (rank & 1 ? -1.0f : 1.0f) * (float)(1 + i % 97) * (rank % 3 == 0 ? 0x1.1p24f : 0.37f);
}

static int sums(struct vl_node *n, size_t count)
{
    float *x = vl_alloc((count + 1) * sizeof *x);
    double *d = vl_alloc((count + 1) * sizeof *d);
    int64_t *m = vl_alloc((count + 1) * sizeof *m);

    for (size_t i = 0; i < count; i++) {
        x[i] = term(n->rank, i);
        d[i] = (double)x[i] / 3;
        m[i] = (int64_t)i * (n->rank & 1 ? 1 : -1);
    }
    vl_node_sum_f32(n, x, count);
    vl_node_sum_f64(n, d, count);
    vl_node_max_i64(n, m, count);
    for (size_t i = 0; i < count; i++) {
        float f = term(0, i);
        double g = (double)term(0, i) / 3;

        for (int r = 1; r < n->size; r++) {
            f += term(r, i);
            g += (double)term(r, i) / 3;
        }
        CHECK(x[i] == f);
        CHECK(d[i] == g);
        CHECK(m[i] == (n->size > 1 ? (int64_t)i : -(int64_t)i));
    }
    free(x);
    free(d);
    free(m);
    return 0;
}

static int moves(struct vl_node *n, size_t bytes)
{
    size_t sizes[8], total = 0, at = 0;
    char *p, *all;

    for (int r = 0; r < n->size; r++)
        total += sizes[r] = r == 1 ? 0 : bytes / (size_t)(r + 1) + (size_t)r;
    p = vl_alloc(total + bytes);
    memset(p, 'a' + n->rank, total + bytes);
    vl_node_bcast(n, p, bytes, n->size - 1);
    for (size_t i = 0; i < bytes; i++)
        CHECK(p[i] == 'a' + n->size - 1);
    memset(p, 'a' + n->rank, total + bytes);
    all = vl_alloc(total);
    vl_node_gather(n, p, sizes, all);
    for (int r = 0; r < n->size && !n->rank; r++)
        for (size_t i = 0; i < sizes[r]; i++, at++)
            CHECK(all[at] == 'a' + r);
    free(all);
    free(p);
    return 0;
}

static int all_collectives(struct vl_node *n)
{
    static const size_t counts[] = { 0, 1, 5, 1000, 1025, 300000 };
    int ranks[8], mine;

    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        if (sums(n, counts[k]) || moves(n, counts[k] * 3))
            return 1;
        mine = n->rank * 10 + (int)k;
        vl_node_allgather(n, &mine, sizeof mine, ranks);
        for (int r = 0; r < n->size; r++)
            CHECK(ranks[r] == r * 10 + (int)k);
        vl_node_barrier(n);
    }
    return 0;
}

static void node_collectives_in_rank_order(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        size_t bytes = vl_node_bytes(size);
        void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pid_t pid[4];

        assert_true(base != MAP_FAILED);
        for (int r = 0; r < size; r++) {
            pid[r] = fork();
            if (!pid[r]) {
                struct vl_node n;

                vl_node_attach(&n, base, r, size);
                _exit(all_collectives(&n));
            }
            assert_true(pid[r] > 0);
        }
        for (int r = 0; r < size; r++) {
            int status;

            assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
            assert_int_equal(status, 0);
        }
        munmap(base, bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_answers_alone),
        cmocka_unit_test(unconfirmed_ranks_are_refused),
        cmocka_unit_test(cut_balances_cost),
        cmocka_unit_test(children_get_no_rank_variables),
        cmocka_unit_test(node_collectives_in_rank_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
