/* read.h - what load.c and read.c share: where a tensor's numbers lie, and reading them. */
#ifndef VL_MODEL_READ_H
#define VL_MODEL_READ_H

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

#endif
