/* comm_mpi.c - several ranks. See comm.h. Built into libverl_mpi.so, which comm.c opens.
 *
 * Ranks on one host talk through node.c in a window that MPI allocates; MPI only starts them. When
 * they span hosts everything goes through MPI, and sums are an exchange of slices (each rank adds
 * its slice of all ranks, in rank order) followed by an allgather: MPI's own reductions choose their
 * order by message size and topology, and the same N must give the same bits. */
#include "libverl/comm/comm_impl.h"

#include "libverl/base/cpus.h"
#include "libverl/base/mem.h"
#include "libverl/comm/node.h"

#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    INIT_SECONDS = 120,
    MASK = 1024,         /* bytes of a cpu mask: 8192 cpus */
    PIECE = 1 << 30,     /* longest single message: MPI counts are int */
    SUM_PIECE = 1 << 20, /* bytes per rank of one exchange of slices */
};

struct mpi {
    const struct vl_comm_ops *ops;
    MPI_Comm world;
    MPI_Win window;      /* MPI_WIN_NULL: ranks span hosts */
    struct vl_node node; /* valid with a window */
};

static struct mpi *mpi_of(struct vl_comm *c)
{
    return c->impl;
}

static int windowed(struct vl_comm *c)
{
    return mpi_of(c)->window != MPI_WIN_NULL;
}

static int check(int rc, const char *what, struct vl_err *e)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;

    if (rc == MPI_SUCCESS)
        return 0;
    MPI_Error_string(rc, text, &n);
    for (char *p = text; *p; p++)
        if (*p == '\n')
            *p = ' ';
    return vl_fail(e, VL_E_RETRY, "MPI %s failed: %s; a rank or its host was lost", what, text);
}

static void init_is_late(int sig)
{
    static const char line[] = "verl: MPI_Init did not return within 120 s: some ranks or hosts "
                               "did not start; see the launcher's messages\n";
    ssize_t ignored = write(2, line, sizeof line - 1);

    (void)sig, (void)ignored;
    _exit(VL_E_RETRY);
}

static void trace(const struct vl_comm *c, const char *step)
{
    const char *on = getenv("VL_COMM_TRACE");

    if (on && *on && strcmp(on, "0"))
        fprintf(stderr, "comm[rank %d/%d host %s pid %d]: %s\n", c->rank, c->size, c->host,
                (int)getpid(), step);
}

/* Local ranks whose masks meet divide the cpus; ranks pinned apart keep theirs. */
static int share_cpus(struct vl_comm *c, MPI_Comm local, struct vl_err *e)
{
    char *all = vl_alloc((size_t)c->local_size * MASK);
    char mine[MASK];
    int cpus = vl_cpus_mask(mine, MASK), limit = vl_cpus_limit(), sharers = 0;

    check(MPI_Allgather(mine, MASK, MPI_BYTE, all, MASK, MPI_BYTE, local), "start-up", e);
    for (int r = 0; r < c->local_size; r++) {
        const char *other = all + (size_t)r * MASK;
        int meets = 0;

        for (int i = 0; i < MASK && !meets; i++)
            meets = (mine[i] & other[i]) != 0;
        sharers += meets;
    }
    free(all);
    cpus /= sharers ? sharers : 1;
    if (limit / c->local_size < cpus)
        cpus = limit / c->local_size;
    c->threads = cpus > 1 ? cpus : 1;
    return e->code;
}

static int open_window(struct vl_comm *c, MPI_Comm local, struct vl_err *e)
{
    struct mpi *m = mpi_of(c);
    MPI_Aint bytes = c->rank ? 0 : (MPI_Aint)vl_node_bytes(c->size), found;
    const char *use = getenv("VL_NODE_WINDOW");
    void *base = NULL;
    int unit;

    if (c->local_size != c->size || (use && !strcmp(use, "0")))
        return 0;
    if (check(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, local, &base, &m->window),
              "shared memory on the host", e) ||
        check(MPI_Win_shared_query(m->window, 0, &found, &unit, &base), "window query", e))
        return e->code;
    if (!c->rank)
        memset(base, 0, vl_node_bytes(c->size)); /* also proves that the pages are there */
    if (check(MPI_Barrier(m->world), "start-up", e))
        return e->code;
    vl_node_attach(&m->node, base, c->rank, c->size);
    return 0;
}

static int start(struct vl_comm *c, int expected, struct vl_err *e)
{
    struct mpi *m = mpi_of(c);
    MPI_Comm local;
    int first;

    MPI_Comm_rank(MPI_COMM_WORLD, &c->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c->size);
    trace(c, "MPI started");
    if (c->size != expected)
        return vl_fail(e, VL_E_UNAVAIL,
                       "the launcher started %d rank%s but MPI sees %d: launcher and MPI library "
                       "do not belong together (this program uses MPICH); use scripts/verl-mpi "
                       "with MPICH's mpiexec, or start one process alone",
                       expected, expected == 1 ? "" : "s", c->size);
    if (check(MPI_Comm_dup(MPI_COMM_WORLD, &m->world), "start-up", e) ||
        check(MPI_Comm_split_type(m->world, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &local),
              "start-up", e))
        return e->code;
    MPI_Comm_set_errhandler(m->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(local, &c->local_rank);
    MPI_Comm_size(local, &c->local_size);
    first = c->local_rank == 0;
    check(MPI_Allreduce(&first, &c->hosts, 1, MPI_INT, MPI_SUM, m->world), "start-up", e);
    share_cpus(c, local, e);
    open_window(c, local, e);
    MPI_Comm_free(&local);
    trace(c, windowed(c) ? "ready, shared window" : "ready, messages");
    return e->code;
}

static void mpi_finish(struct vl_comm *c)
{
    struct mpi *m = mpi_of(c);

    if (m->window != MPI_WIN_NULL)
        MPI_Win_free(&m->window);
    if (m->world != MPI_COMM_NULL)
        MPI_Comm_free(&m->world);
    MPI_Finalize();
    free(m);
}

static void mpi_abort(struct vl_comm *c, int code)
{
    (void)c;
    MPI_Abort(MPI_COMM_WORLD, code);
}

static int mpi_barrier(struct vl_comm *c, struct vl_err *e)
{
    if (!windowed(c))
        return check(MPI_Barrier(mpi_of(c)->world), "barrier", e);
    vl_node_barrier(&mpi_of(c)->node);
    return 0;
}

static int mpi_bcast(struct vl_comm *c, void *p, size_t n, int root, struct vl_err *e)
{
    struct mpi *m = mpi_of(c);

    if (windowed(c)) {
        vl_node_bcast(&m->node, p, n, root);
        return 0;
    }
    for (size_t at = 0; at < n; at += PIECE) {
        int len = (int)(n - at < PIECE ? n - at : PIECE);

        if (check(MPI_Bcast((char *)p + at, len, MPI_BYTE, root, m->world), "broadcast", e))
            return e->code;
    }
    return 0;
}

static void mpi_agree(struct vl_comm *c, struct vl_err *e)
{
    struct mpi *m = mpi_of(c);
    int32_t code = e->code, *codes = vl_alloc((size_t)c->size * sizeof *codes);
    struct vl_err ignored = { 0 };
    int worst = 0;

    if (windowed(c))
        vl_node_allgather(&m->node, &code, sizeof code, codes);
    else if (MPI_Allgather(&code, 1, MPI_INT32_T, codes, 1, MPI_INT32_T, m->world) != MPI_SUCCESS)
        vl_fail(e, VL_E_RETRY, "a rank was lost while the ranks agreed on errors");
    while (worst < c->size && !codes[worst])
        worst++;
    if (worst < c->size) {
        if (c->rank == worst && e->rank <= 0) /* agreed on before: keep who it was */
            e->rank = worst;
        if (mpi_bcast(c, e, sizeof *e, worst, &ignored))
            *e = ignored;
    }
    free(codes);
}

static int send_to_zero(struct mpi *m, const char *p, size_t n, struct vl_err *e)
{
    for (size_t at = 0; at < n; at += PIECE) {
        int len = (int)(n - at < PIECE ? n - at : PIECE);

        if (check(MPI_Send(p + at, len, MPI_BYTE, 0, 1, m->world), "gather", e))
            return e->code;
    }
    return 0;
}

static int receive_from(struct mpi *m, int rank, char *p, size_t n, struct vl_err *e)
{
    for (size_t at = 0; at < n; at += PIECE) {
        int len = (int)(n - at < PIECE ? n - at : PIECE);

        if (check(MPI_Recv(p + at, len, MPI_BYTE, rank, 1, m->world, MPI_STATUS_IGNORE), "gather",
                  e))
            return e->code;
    }
    return 0;
}

/* Messages: rank 0 takes the ranks' bytes one rank after the other. */
static int gather_messages(struct vl_comm *c, const void *mine, const size_t *sizes, char *to,
                           struct vl_err *e)
{
    struct mpi *m = mpi_of(c);

    if (c->rank)
        return send_to_zero(m, mine, sizes[c->rank], e);
    if (sizes[0])
        memcpy(to, mine, sizes[0]);
    for (int r = 1; r < c->size; r++) {
        to += sizes[r - 1];
        if (receive_from(m, r, to, sizes[r], e))
            return e->code;
    }
    return 0;
}

static int mpi_gather(struct vl_comm *c, const void *mine, size_t n, void **all, size_t *sizes,
                      struct vl_err *e)
{
    struct mpi *m = mpi_of(c);
    uint64_t own = n, *said = vl_alloc((size_t)c->size * sizeof *said);
    size_t *each = vl_alloc((size_t)c->size * sizeof *each), total = 0;
    void *to = NULL;

    if (windowed(c))
        vl_node_allgather(&m->node, &own, sizeof own, said);
    else
        check(MPI_Allgather(&own, 1, MPI_UINT64_T, said, 1, MPI_UINT64_T, m->world), "gather", e);
    for (int r = 0; r < c->size; r++)
        total += each[r] = said[r];
    if (!c->rank)
        (void)!vl_try_alloc(&to, total, 1, "gathered rows", e);
    if (mpi_agree(c, e), e->code)
        goto out;
    if (windowed(c))
        vl_node_gather(&m->node, mine, each, to);
    else
        gather_messages(c, mine, each, to, e);
    if (!c->rank) {
        *all = to;
        to = NULL;
        memcpy(sizes, each, (size_t)c->size * sizeof *each);
    }
out:
    free(to);
    free(each);
    free(said);
    return e->code;
}

enum kind { SUM_F32, SUM_F64, MAX_I64 };

static void fold(enum kind kind, void *dst, const void *src, size_t n)
{
    float *f = dst;
    double *d = dst;
    int64_t *x = dst;

    for (size_t i = 0; i < n; i++) {
        if (kind == SUM_F32)
            f[i] += ((const float *)src)[i];
        else if (kind == SUM_F64)
            d[i] += ((const double *)src)[i];
        else if (((const int64_t *)src)[i] > x[i])
            x[i] = ((const int64_t *)src)[i];
    }
}

/* One piece: slice r of every rank goes to rank r, which folds them in rank order; then everybody
 * gets all slices. `per` elements a slice; the last may be padding. */
static int fold_piece(struct vl_comm *c, enum kind kind, char *x, size_t n, size_t width,
                      char *scratch, struct vl_err *e)
{
    struct mpi *m = mpi_of(c);
    size_t size = (size_t)c->size, per = (n + size - 1) / size, slice = per * width;
    char *out = scratch, *in = scratch + size * slice;

    memcpy(out, x, n * width);
    memset(out + n * width, 0, size * slice - n * width);
    if (check(MPI_Alltoall(out, (int)slice, MPI_BYTE, in, (int)slice, MPI_BYTE, m->world), "sum",
              e))
        return e->code;
    for (size_t r = 1; r < size; r++)
        fold(kind, in, in + r * slice, per);
    if (check(MPI_Allgather(in, (int)slice, MPI_BYTE, out, (int)slice, MPI_BYTE, m->world), "sum",
              e))
        return e->code;
    memcpy(x, out, n * width);
    return 0;
}

static int fold_messages(struct vl_comm *c, enum kind kind, void *x, size_t n, size_t width,
                         struct vl_err *e)
{
    size_t most = (size_t)c->size * (SUM_PIECE / width), at;
    char *scratch = vl_alloc(2 * (size_t)c->size * SUM_PIECE);

    for (at = 0; at < n && !e->code; at += most)
        fold_piece(c, kind, (char *)x + at * width, n - at < most ? n - at : most, width, scratch,
                   e);
    free(scratch);
    return e->code;
}

static int mpi_sum_f32(struct vl_comm *c, float *x, size_t n, struct vl_err *e)
{
    if (!windowed(c))
        return fold_messages(c, SUM_F32, x, n, sizeof *x, e);
    vl_node_sum_f32(&mpi_of(c)->node, x, n);
    return 0;
}

static int mpi_sum_f64(struct vl_comm *c, double *x, size_t n, struct vl_err *e)
{
    if (!windowed(c))
        return fold_messages(c, SUM_F64, x, n, sizeof *x, e);
    vl_node_sum_f64(&mpi_of(c)->node, x, n);
    return 0;
}

static int mpi_max_i64(struct vl_comm *c, int64_t *x, size_t n, struct vl_err *e)
{
    if (!windowed(c))
        return fold_messages(c, MAX_I64, x, n, sizeof *x, e);
    vl_node_max_i64(&mpi_of(c)->node, x, n);
    return 0;
}

__attribute__((visibility("default"))) int vl_mpi_init(struct vl_comm *c, int expected,
                                                       struct vl_err *e)
{
    static const struct vl_comm_ops mpi_ops = {
        mpi_finish, mpi_agree,   mpi_abort,   mpi_barrier, mpi_bcast,
        mpi_gather, mpi_sum_f32, mpi_sum_f64, mpi_max_i64,
    };
    struct sigaction late = { .sa_handler = init_is_late }, before;
    struct mpi *m;
    int level, rc;

    sigaction(SIGALRM, &late, &before);
    alarm(INIT_SECONDS);
    rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (check(rc, "start-up", e))
        return e->code;
    m = vl_alloc(sizeof *m);
    *m = (struct mpi){ .ops = &mpi_ops, .world = MPI_COMM_NULL, .window = MPI_WIN_NULL };
    c->impl = m;
    start(c, expected, e);
    alarm(0);
    sigaction(SIGALRM, &before, NULL);
    return e->code;
}
