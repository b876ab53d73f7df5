/* main.c - from argv to an exit status, the same for every stage. See stage.h.
 *
 * Errors of parsing go through vl_comm_agree as well: a config file that one host lacks must not
 * leave the other ranks waiting in MPI_Init. */
#include "libverl/run/stage.h"

#include "libverl/base/aside.h"

#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A closed standard stream would give its number to the next file opened, and data would land there.
 * Opened the wrong way round, a use of it fails as before. */
static void hold_standard_streams(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            return; /* nothing more can be done */
}

/* Whatever went to stdio must have arrived; so must what close() reports late (NFS, quota). */
static void close_stdout(struct vl_err *e)
{
    int bad = fflush(stdout) != 0 || ferror(stdout);

    if (bad || (close(STDOUT_FILENO) != 0 && errno != EBADF))
        vl_fail_errno(e, VL_E_IO, "standard output: cannot write");
}

static void report(const struct vl_program *p, const struct vl_log *l, const struct vl_err *e)
{
    const char *clear = l->drawn ? "\r\033[K" : "";

    if (e->rank > 0)
        fprintf(stderr, "%s%s: rank %d: %s\n", clear, p->name, e->rank, e->msg);
    else
        fprintf(stderr, "%s%s: %s\n", clear, p->name, e->msg);
}

static void say_ignored(struct vl_ctx *x)
{
    const char *named;
    size_t n = vl_parsed_ignored(x->parsed, &named);

    if (n)
        vl_info(&x->log, "%zu config key%s not read by this program%s%s (--print-config=ignored)",
                n, n == 1 ? " is" : "s are", named ? ", of the command line: " : "",
                named ? named : "");
}

/* --threads, else this rank's cpus, but no more than OMP_NUM_THREADS allows. *cpus: this rank's. */
static void set_threads(struct vl_common *common, struct vl_comm *comm, int *cpus)
{
    const char *s = getenv("OMP_NUM_THREADS");
    long most = s ? strtol(s, NULL, 10) : 0;

    *cpus = comm->threads;
    if (most > 0 && most < comm->threads)
        comm->threads = (int)most;
    if (common->threads)
        comm->threads = (int)common->threads;
    common->threads = comm->threads;
    omp_set_num_threads(comm->threads); /* it knows of the mask, but of no quota and no ranks */
}

int vl_main(const struct vl_program *p, struct vl_common *common, int argc, char **argv,
            int (*stage)(struct vl_ctx *, const void *, struct vl_err *), const void *opts)
{
    struct vl_ctx x = { .program = p, .common = common };
    struct vl_err e = { 0 }, parse = { 0 };
    int done, level, cpus, rc;

    hold_standard_streams();
    signal(SIGPIPE, SIG_IGN); /* a reader that died is a failed write, status 74 */
    signal(SIGXFSZ, SIG_IGN); /* so is a file that passes `ulimit -f` */
    vl_aside_guard();
    rc = vl_parse(p, common, argc, argv, &x.parsed, &done, &parse);
    if (done) { /* --help and its like answer before any rank starts */
        close_stdout(&parse);
        if (parse.code)
            report(p, &x.log, &parse);
        vl_parsed_free(x.parsed);
        return parse.code;
    }
    if (vl_comm_init(&x.comm, &e)) {
        report(p, &x.log, rc ? &parse : &e);
        vl_parsed_free(x.parsed);
        return rc ? rc : e.code;
    }
    set_threads(common, &x.comm, &cpus);
    level = common->quiet ? 0 : common->verbose ? 2 : 1;
    vl_log_init(&x.log, p->name, level, x.comm.rank);
    if (x.comm.size > 1)
        vl_detail(&x.log, "%d ranks on %d host%s, %d threads each", x.comm.size, x.comm.hosts,
                  x.comm.hosts == 1 ? "" : "s", x.comm.threads);
    e = parse;
    if (vl_comm_agree(&x.comm, &e) == 0) {
        say_ignored(&x);
        if (x.comm.threads > cpus && x.comm.rank == 0)
            vl_warn(&x.log,
                    "--threads %d asks for more than the %d processor%s %s may use: slower, and "
                    "each takes memory",
                    x.comm.threads, cpus, cpus == 1 ? "" : "s",
                    x.comm.size > 1 ? "each rank" : "it");
        if (stage(&x, opts, &e) && !e.code)
            vl_fail(&e, VL_E_BUG, "the stage failed without a message: please report this");
        if (!e.code && common->timing)
            vl_timing_say(&x.timing, &x.log, x.comm.size, x.comm.threads);
    }
    if (x.comm.rank == 0)
        close_stdout(&e);
    vl_comm_agree(&x.comm, &e);
    if (e.code && x.comm.rank == 0)
        report(p, &x.log, &e);
    vl_batch_free(&x.before);
    vl_parsed_free(x.parsed);
    vl_comm_finish(&x.comm);
    return e.code;
}
