/* read.h - what the readers and writers of weights share: where a tensor's numbers lie, their hash. */
#ifndef VL_MODEL_READ_H
#define VL_MODEL_READ_H

#include <xxhash.h>

#include "formats/safetensors.h"
#include "libverl/model/tensors.h"

/* A tensor of an open file, F32, BF16 or F16; t NULL: there is none, its numbers are zeros. */
struct vl_source {
    const struct vl_st *st;
    const struct vl_st_tensor *t;
};

/* Every parameter of m from the sources of its pieces to `to` (NULL: nowhere), and their hash. */
int vl_read_pieces(const struct vl_model *m, const struct vl_piece *piece,
                   const struct vl_source *source, const struct vl_sink *to, char hash[33],
                   struct vl_err *e) VL_MUST_CHECK;

/* *at: the first of n elements in which a and b differ, -1 when there is none; x: what they are. */
int vl_source_differ(const struct vl_source *a, const struct vl_source *b, int64_t n, int64_t *at,
                     float x[2], struct vl_err *e) VL_MUST_CHECK;

/* The index of the first that is not finite, or -1. */
int64_t vl_not_finite(const float *x, int64_t n);

/* The hash of tensors.h in pieces: for each parameter its name and shape, then its floats by
 * XXH3_128bits_update; _end frees it. */
XXH3_state_t *vl_hash_new(void);
void vl_hash_param(XXH3_state_t *h, const struct vl_param *p);
void vl_hash_end(XXH3_state_t *h, char hex[33]);

#endif
