/* comm.c - one rank, launchers, and the choice between alone and MPI. See comm.h.
 *
 * Whether to call MPI_Init is read off the environment. A wrong guess of "alone" would make every
 * rank do all the work and write the same file, so the number of ranks the launcher speaks of is
 * compared with MPI's, and with 1 in a build without MPI. */
#include "libverl/comm/comm_impl.h"

#include "libverl/base/cpus.h"
#include "libverl/base/mem.h"
#include "libverl/base/plugin.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static int env_int(const char *name)
{
    const char *s = getenv(name);
    char *end;
    long n = s ? strtol(s, &end, 10) : 0;

    return s && end != s && !*end && n > 0 && n < INT_MAX ? (int)n : 0;
}

/* A Slurm step's tasks. A batch script has SLURM_PROCID too, but no step or a reserved number. */
static int slurm_tasks(void)
{
    const char *step = getenv("SLURM_STEP_ID");

    if (!getenv("SLURM_PROCID") || !step || strtoul(step, NULL, 10) > 0xfffffff0UL)
        return 0;
    return env_int("SLURM_STEP_NUM_TASKS");
}

/* Ranks started by the launcher, by the largest number its variables give: a launcher that tells
 * every process that it is alone still says how many it put on the host. 0: no launcher. */
static int launched_ranks(void)
{
    const int said[] = { env_int("PMI_SIZE"), env_int("OMPI_COMM_WORLD_SIZE"), slurm_tasks(),
                         env_int("MPI_LOCALNRANKS"), env_int("VL_RANKS") };
    int n = getenv("PMI_RANK") || getenv("PMIX_RANK") || getenv("OMPI_COMM_WORLD_RANK");

    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        n = said[i] > n ? said[i] : n;
    return n;
}

static const struct vl_comm_ops *ops(const struct vl_comm *c)
{
    return c->impl ? *(const struct vl_comm_ops *const *)c->impl : NULL;
}

static int open_mpi(struct vl_comm *c, int ranks, struct vl_err *e)
{
    int (*init)(struct vl_comm *, int, struct vl_err *);

    setenv("UCX_HANDLE_ERRORS", "none", 0); /* no banners of MPICH's transport on our stderr */
    if (vl_plugin_symbol(&init, "libverl_mpi.so", "vl_mpi_init", e))
        return vl_err_prefix(e,
                             "a launcher started %d ranks, but there is no MPI part and each would "
                             "do all the work; start it alone, or build with MPI=1",
                             ranks);
    return init(c, ranks, e);
}

int vl_comm_init(struct vl_comm *c, struct vl_err *e)
{
    char mask[1024];
    int cpus = vl_cpus_mask(mask, sizeof mask), limit = vl_cpus_limit(), ranks = launched_ranks();

    *c = (struct vl_comm){ .size = 1, .local_size = 1, .hosts = 1, .stdin_ok = 1 };
    c->threads = cpus < limit ? cpus : limit;
    if (gethostname(c->host, sizeof c->host - 1) != 0)
        snprintf(c->host, sizeof c->host, "localhost");
    if (!ranks)
        return 0;
    c->launched = 1;
    c->stdin_ok = getenv("VL_RANKS") != NULL;
    return ranks > 1 ? open_mpi(c, ranks, e) : 0; /* mpiexec -n 1: nobody to talk to */
}

void vl_comm_finish(struct vl_comm *c)
{
    if (c->impl)
        ops(c)->finish(c);
    c->impl = NULL;
}

static int starts(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static int is_rank_variable(const char *s)
{
    static const char *const prefix[] = {
        "PMI_",       "PMIX_", "HYDI_", "HYDRA_",    "MPI_LOCAL",
        "MPIR_CVAR_", "OMPI_", "PRTE_", "VL_RANKS=", "VL_LAUNCH_"
    };

    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
        if (starts(s, prefix[i]))
            return 1;
    return starts(s, "SLURM_PROCID=") || starts(s, "SLURM_STEP_");
}

char **vl_comm_clean_env(void)
{
    size_t n = 0, kept = 0;
    char **out;

    while (environ && environ[n])
        n++;
    out = vl_alloc((n + 1) * sizeof *out);
    for (size_t i = 0; i < n; i++)
        if (!is_rank_variable(environ[i]))
            out[kept++] = environ[i];
    return out;
}

int vl_comm_agree(struct vl_comm *c, struct vl_err *e)
{
    if (c->impl)
        ops(c)->agree(c, e);
    return e->code;
}

_Noreturn void vl_comm_abort(struct vl_comm *c, const char *program, const struct vl_err *e)
{
    int code = e->code ? e->code : VL_E_BUG;

    if (!c->impl) {
        fprintf(stderr, "%s: %s\n", program, e->msg);
        _exit(code);
    }
    fprintf(stderr, "%s[rank %d host %s]: %s\n", program, c->rank, c->host, e->msg);
    ops(c)->abort(c, code);
    _exit(code);
}

int vl_comm_barrier(struct vl_comm *c, struct vl_err *e)
{
    return c->impl ? ops(c)->barrier(c, e) : 0;
}

int vl_comm_bcast(struct vl_comm *c, void *p, size_t n, int root, struct vl_err *e)
{
    return c->impl ? ops(c)->bcast(c, p, n, root, e) : 0;
}

int vl_comm_gather(struct vl_comm *c, const void *mine, size_t n, void **all, size_t *sizes,
                   struct vl_err *e)
{
    if (c->impl)
        return ops(c)->gather(c, mine, n, all, sizes, e);
    if (vl_try_alloc(all, n, 1, "gathered rows", e))
        return e->code;
    if (n)
        memcpy(*all, mine, n);
    sizes[0] = n;
    return 0;
}

int vl_comm_sum_f32(struct vl_comm *c, float *x, size_t n, struct vl_err *e)
{
    return c->impl ? ops(c)->sum_f32(c, x, n, e) : 0;
}

int vl_comm_sum_f64(struct vl_comm *c, double *x, size_t n, struct vl_err *e)
{
    return c->impl ? ops(c)->sum_f64(c, x, n, e) : 0;
}

int vl_comm_max_i64(struct vl_comm *c, int64_t *x, size_t n, struct vl_err *e)
{
    return c->impl ? ops(c)->max_i64(c, x, n, e) : 0;
}

/* Rank r ends where the running cost is nearest to (r + 1)/size of the total: a row that straddles
 * the mark goes to the side that holds more of it. Rows count at least 1, so empty ones spread. */
void vl_comm_cut(int size, const int64_t *cost, int64_t rows, int64_t *first)
{
    double total = 0, run = 0;
    int64_t row = 0;

    for (int64_t i = 0; i < rows; i++)
        total += (double)(cost && cost[i] > 0 ? cost[i] : 1);
    first[0] = 0;
    for (int r = 1; r <= size; r++) {
        double mark = total * r / size;

        while (row < rows) {
            double one = (double)(cost && cost[row] > 0 ? cost[row] : 1);

            if (r < size && run + one / 2 > mark)
                break;
            run += one;
            row++;
        }
        first[r] = row;
    }
}
