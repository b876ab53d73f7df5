/* head.h - pieces of the fused final projection, shared by head.c and sample.c.
 *
 * The vocabulary is cut at multiples of VL_CHUNK from id 0. Each chunk of a row gives a struct
 * vl_part; parts are combined in id order in double. Every log-prob of this backend is
 * vl_head_logp_of(z, sums), so that sampling and recomputing give the same bits. */
#ifndef VL_CPU_HEAD_H
#define VL_CPU_HEAD_H

#include "kernels/cpu/cpu.h"

#define VL_CHUNK 512 /* a multiple of every panel width */
#define VL_RB    96  /* rows of a task: its logits are 192 KB */

struct vl_sums {
    double m, s; /* max z; sum exp(z - m) */
    double lse, entropy, sum_pi2;
};

static inline int64_t vl_chunks(int64_t V)
{
    return (V + VL_CHUNK - 1) / VL_CHUNK;
}

static inline int64_t vl_chunk_width(int64_t V, int64_t chunk)
{
    return V - chunk * VL_CHUNK < VL_CHUNK ? V - chunk * VL_CHUNK : VL_CHUNK;
}

/* z (M, ld) = rows m0.. times the ids of one chunk, times inv_temp; by the calling thread. */
void vl_head_tile(const struct vl_cpu *c, float *z, int64_t ld, struct vl_rows x, int64_t m0,
                  int64_t M, const struct vl_weight *w, int64_t chunk, float inv_temp);
struct vl_sums vl_head_combine(const struct vl_part *part, int64_t chunks);

static inline float vl_head_logp_of(float z, const struct vl_sums *s)
{
    return (float)((double)z - s->lse);
}

#endif
