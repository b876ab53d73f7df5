/* comm.c - the collectives of comm.h under a launcher, for t5000-comm.sh.
 *
 *   comm check        every collective against what rank order gives; prints "ok SIZE" on rank 0
 *   comm agree        ranks 1 and 2 fail with different codes; prints what all agreed on
 *   comm abort        rank 1 aborts while the others wait
 *   comm kill         rank 1 kills itself with SIGKILL while the others wait
 *   comm copy         rank 0 copies standard input to standard output
 *   comm noise        every rank writes to standard output
 *   comm hang         all ranks write their pid to pid.RANK and wait for ever
 *   comm exit         rank 1 exits with 71 without telling anyone
 *   comm time MB      median milliseconds of a float sum of MB megabytes and of 64 bytes */
#include "libverl/comm/comm.h"
#include "libverl/base/mem.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static float term(int rank, size_t i)
{
    return (rank & 1 ? -1.0f : 1.0f) * (float)(1 + i % 97) * (rank % 3 == 0 ? 0x1.1p24f : 0.37f);
}

static int check_sums(struct vl_comm *c, size_t n, struct vl_err *e)
{
    float *x = vl_alloc((n + 1) * sizeof *x);
    double *d = vl_alloc((n + 1) * sizeof *d);
    int64_t *m = vl_alloc((n + 1) * sizeof *m);

    for (size_t i = 0; i < n; i++) {
        x[i] = term(c->rank, i);
        d[i] = (double)x[i] / 3;
        m[i] = (int64_t)i * c->rank;
    }
    if (vl_comm_sum_f32(c, x, n, e) || vl_comm_sum_f64(c, d, n, e) || vl_comm_max_i64(c, m, n, e))
        return e->code;
    for (size_t i = 0; i < n; i++) {
        float f = term(0, i);
        double g = (double)term(0, i) / 3;

        for (int r = 1; r < c->size; r++) {
            f += term(r, i);
            g += (double)term(r, i) / 3;
        }
        if (x[i] != f || d[i] != g || m[i] != (int64_t)i * (c->size - 1))
            return vl_fail(e, VL_E_BUG, "sum of %zu: element %zu is not the sum in rank order", n,
                           i);
    }
    free(x);
    free(d);
    free(m);
    return 0;
}

static int check_moves(struct vl_comm *c, size_t n, struct vl_err *e)
{
    size_t sizes[64], at = 0, own = c->rank == 1 ? 0 : n / (size_t)(c->rank + 1);
    char *p = vl_alloc(n + own);
    void *all = NULL;

    memset(p, 'a' + c->rank, n + own);
    if (vl_comm_bcast(c, p, n, c->size - 1, e))
        return e->code;
    for (size_t i = 0; i < n; i++)
        if (p[i] != 'a' + c->size - 1)
            return vl_fail(e, VL_E_BUG, "broadcast of %zu: byte %zu is '%c'", n, i, p[i]);
    memset(p, 'a' + c->rank, n + own);
    if (vl_comm_gather(c, p, own, &all, sizes, e))
        return e->code;
    for (int r = 0; r < c->size && !c->rank; r++)
        for (size_t i = 0; i < sizes[r]; i++, at++)
            if (((char *)all)[at] != 'a' + r)
                return vl_fail(e, VL_E_BUG, "gather of %zu: wrong byte %zu", n, at);
    free(all);
    free(p);
    return 0;
}

static int check(struct vl_comm *c, struct vl_err *e)
{
    static const size_t counts[] = { 0, 1, 7, 1025, 400001 };

    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        check_sums(c, counts[k], e);
        if (vl_comm_agree(c, e))
            return e->code;
        check_moves(c, counts[k], e);
        if (vl_comm_agree(c, e) || vl_comm_barrier(c, e))
            return e->code;
    }
    if (!c->rank)
        printf("ok %d\n", c->size);
    return 0;
}

static void copy(void)
{
    static char buf[1 << 16];
    size_t n;

    while ((n = fread(buf, 1, sizeof buf, stdin)) > 0)
        fwrite(buf, 1, n, stdout);
}

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int time_sums(struct vl_comm *c, size_t n, struct vl_err *e)
{
    float *x = vl_alloc(n * sizeof *x), small[16] = { 0 };
    double t;

    for (int i = 0; i < 3; i++) {
        if (vl_comm_barrier(c, e))
            return e->code;
        t = now_ms();
        if (vl_comm_sum_f32(c, x, n, e))
            return e->code;
        if (!c->rank)
            printf("%zu bytes: %.2f ms\n", n * sizeof *x, now_ms() - t);
    }
    t = now_ms();
    for (int i = 0; i < 1000; i++)
        if (vl_comm_sum_f32(c, small, 16, e))
            return e->code;
    if (!c->rank)
        printf("64 bytes: %.2f us\n", now_ms() - t);
    free(x);
    return 0;
}

static void write_pid(int rank)
{
    char name[32];
    FILE *f;

    snprintf(name, sizeof name, "pid.%d", rank);
    f = fopen(name, "w");
    if (f) {
        fprintf(f, "%d\n", (int)getpid());
        fclose(f);
    }
}

static void act(struct vl_comm *c, const char *what, const char *arg, struct vl_err *e)
{
    if (!strcmp(what, "check"))
        check(c, e);
    else if (!strcmp(what, "agree") && (c->rank == 1 || c->rank == 2))
        vl_fail(e, c->rank == 1 ? VL_E_DATA : VL_E_NOINPUT, "x.dp: row %d is bad", c->rank);
    else if (!strcmp(what, "copy") && !c->rank)
        copy();
    else if (!strcmp(what, "noise"))
        printf("data of rank %d\n", c->rank);
    else if (!strcmp(what, "time"))
        time_sums(c, strtoul(arg, NULL, 10) << 18, e);
    else if (c->rank == 1 && !strcmp(what, "abort")) {
        vl_fail(e, VL_E_IO, "x.dp: read failed");
        vl_comm_abort(c, "comm", e);
    } else if (c->rank == 1 && !strcmp(what, "kill"))
        raise(SIGKILL);
    else if (c->rank == 1 && !strcmp(what, "exit"))
        _exit(VL_E_OS);
    if (!strcmp(what, "hang"))
        write_pid(c->rank);
    while (!strcmp(what, "hang"))
        sleep(1);
}

int main(int argc, char **argv)
{
    struct vl_comm c;
    struct vl_err e = { 0 };
    int rc;

    if (argc < 2 || vl_comm_init(&c, &e)) {
        fprintf(stderr, "comm: %s\n", argc < 2 ? "what?" : e.msg);
        return argc < 2 ? VL_E_USAGE : e.code;
    }
    act(&c, argv[1], argc > 2 ? argv[2] : "1", &e);
    rc = vl_comm_agree(&c, &e);
    if (rc && !c.rank)
        fprintf(stderr, "comm: %s (rank %d)\n", e.msg, e.rank);
    vl_comm_finish(&c);
    return rc;
}
