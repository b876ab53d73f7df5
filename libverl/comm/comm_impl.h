/* comm_impl.h - between comm.c (launchers, one rank) and comm_mpi.c (several). Not for others. */
#ifndef VL_COMM_IMPL_H
#define VL_COMM_IMPL_H

#include "libverl/comm/comm.h"

/* What several ranks need; vl_comm.impl points to a structure that starts with a pointer to it.
 * Without impl there is one rank and comm.c answers by itself. */
struct vl_comm_ops {
    void (*finish)(struct vl_comm *c);
    void (*agree)(struct vl_comm *c, struct vl_err *e);
    void (*abort)(struct vl_comm *c, int code); /* does not return */
    int (*barrier)(struct vl_comm *c, struct vl_err *e);
    int (*bcast)(struct vl_comm *c, void *p, size_t n, int root, struct vl_err *e);
    int (*gather)(struct vl_comm *c, const void *mine, size_t n, void **all, size_t *sizes,
                  struct vl_err *e);
    int (*sum_f32)(struct vl_comm *c, float *x, size_t n, struct vl_err *e);
    int (*sum_f64)(struct vl_comm *c, double *x, size_t n, struct vl_err *e);
    int (*max_i64)(struct vl_comm *c, int64_t *x, size_t n, struct vl_err *e);
};

/* comm_mpi.c, the one symbol of libverl_mpi.so: expected = ranks the launcher started. Sets rank,
 * size, local_*, hosts, threads and impl; VL_E_UNAVAIL when MPI disagrees with the launcher. */
int vl_mpi_init(struct vl_comm *c, int expected, struct vl_err *e);

#endif
