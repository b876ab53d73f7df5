/* node.h - collectives of ranks on one host through shared memory.
 *
 * Why not MPI's: the sum of 500 MB over 2 ranks takes 35 ms here and 250 ms there, and a small one
 * 14 us against 9.9 ms when ranks outnumber cores. The memory is the caller's: an MPI window in
 * comm_mpi.c, an anonymous mapping in the unit test. */
#ifndef VL_NODE_H
#define VL_NODE_H

#include "libverl/base/err.h"

struct vl_node {
    int rank, size;
    char *base;
    size_t chunk;   /* bytes of one slot; a multiple of 4096 */
    uint64_t epoch; /* barriers passed */
    int flip;       /* which of the two slots the next chunk uses */
};

size_t vl_node_bytes(int size); /* shared bytes needed */
/* Every rank attaches to the same zeroed bytes before any collective. */
void vl_node_attach(struct vl_node *n, void *base, int rank, int size);

/* All are collective, called by all ranks in the same order with the same sizes. */
void vl_node_barrier(struct vl_node *n);
void vl_node_bcast(struct vl_node *n, void *p, size_t bytes, int root);
/* all (rank 0 only, sum of sizes) = the ranks' bytes end to end; sizes[size] as on all ranks. */
void vl_node_gather(struct vl_node *n, const void *mine, const size_t *sizes, void *all);
/* all[size * bytes] on every rank; bytes <= 4096. */
void vl_node_allgather(struct vl_node *n, const void *mine, size_t bytes, void *all);
void vl_node_sum_f32(struct vl_node *n, float *x, size_t count);
void vl_node_sum_f64(struct vl_node *n, double *x, size_t count);
void vl_node_max_i64(struct vl_node *n, int64_t *x, size_t count);

#endif
