/* comm.h - ranks of one stage: broadcast, gather, ordered sums, agreement on errors.
 *
 * A program is one rank unless a launcher's environment says otherwise (MPI_Init costs 29 ms, so
 * it is not called then). Sums run in rank order: the same N gives the same bits. */
#ifndef VL_COMM_H
#define VL_COMM_H

#include "libverl/base/err.h"

struct vl_comm {
    int rank, size;
    int local_rank, local_size; /* on this host */
    void *impl;                 /* NULL when alone */
    int hosts;                  /* distinct hosts */
    int threads;                /* cpus for this rank: affinity mask and cgroup over local ranks */
    int launched;               /* started by a launcher, be it as the only rank */
    int stdin_ok;               /* "-" may be read on rank 0: not under a bare mpiexec, which kills
                                   the job when standard input passes 64 kB */
    char host[64];
};

/* One rank unless the environment of a launcher (hydra, PMIx, Open MPI, a Slurm step, verl-mpi)
 * is there. VL_E_UNAVAIL when the launcher's number of ranks and MPI's differ, or when this build
 * has no MPI and more than one rank was started. Prints each start-up step with VL_COMM_TRACE=1. */
int vl_comm_init(struct vl_comm *c, struct vl_err *e) VL_MUST_CHECK;
void vl_comm_finish(struct vl_comm *c);

/* The environment for a child that is no rank: without PMI_*, PMIX_*, HYDI_*, HYDRA_*, MPI_LOCAL*,
 * MPIR_CVAR_*, OMPI_* and verl-mpi's own variables. A NULL-terminated array for execve, made before
 * fork; caller frees the array (the strings are the environment's). */
char **vl_comm_clean_env(void);

/* Collective: every rank leaves with the same code, the lowest failing rank's message and rank. */
int vl_comm_agree(struct vl_comm *c, struct vl_err *e);
/* Inside a collective nobody can agree: prints "program[rank R host H]: line" and ends all ranks
 * with e->code. */
_Noreturn void vl_comm_abort(struct vl_comm *c, const char *program, const struct vl_err *e);

int vl_comm_barrier(struct vl_comm *c, struct vl_err *e) VL_MUST_CHECK;
int vl_comm_bcast(struct vl_comm *c, void *p, size_t n, int root, struct vl_err *e) VL_MUST_CHECK;
/* Rank 0 gets every rank's bytes end to end in *all (free()) with sizes[size]; others pass NULL.
 * Any size: long messages are cut. */
int vl_comm_gather(struct vl_comm *c, const void *mine, size_t n, void **all, size_t *sizes,
                   struct vl_err *e) VL_MUST_CHECK;
/* In place, on all ranks: x[i] = sum over ranks 0, 1, ... of x[i]. */
int vl_comm_sum_f32(struct vl_comm *c, float *x, size_t n, struct vl_err *e) VL_MUST_CHECK;
int vl_comm_sum_f64(struct vl_comm *c, double *x, size_t n, struct vl_err *e) VL_MUST_CHECK;
int vl_comm_max_i64(struct vl_comm *c, int64_t *x, size_t n, struct vl_err *e) VL_MUST_CHECK;

/* Cuts rows into size contiguous ranges of near equal cost (token counts): first[r]..first[r+1].
 * Every rank computes the same cut. first has size + 1 entries; ranges may be empty. */
void vl_comm_cut(int size, const int64_t *cost, int64_t rows, int64_t *first);

#endif
