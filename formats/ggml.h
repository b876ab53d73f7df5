/* ggml.h - ggml's tensor types: how many bytes a block of elements takes, and its elements as fp32.
 *
 * A quantized block holds one or two half-precision scales and small integers. Values are computed in
 * fp32 in the order of ggml's own dequantize_row functions, one rounding a step, so they are the same
 * bits. Types that need ggml's lattice tables (IQ1, IQ2, IQ3) have a size here and no values. */
#ifndef VL_GGML_H
#define VL_GGML_H

#include <stdint.h>

struct vl_ggml_type {
    const char *name; /* "Q4_K" */
    uint32_t id;      /* as files have it */
    int elems, bytes; /* of a block; 1 element a block where nothing is quantized */
    int exact;        /* fp32 and 16-bit floats: the values are stored, not computed */
    void (*block)(float *y, const uint8_t *x); /* a block's elements; NULL: not decoded here */
};

/* NULL when no such type is known. */
const struct vl_ggml_type *vl_ggml_type(uint32_t id);
/* n elements, whole blocks, to fp32; t->block must not be NULL. `from` may be unaligned. */
void vl_ggml_to_f32(const struct vl_ggml_type *t, float *to, const uint8_t *from, int64_t n);

#endif
