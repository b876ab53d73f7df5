/* verify.h - full verification of a batch, and differences between two. */
#ifndef VL_VERIFY_H
#define VL_VERIFY_H

#include "libverl/batch/batch.h"

/* Everything a reader can verify beyond what vl_dp_read does: content hash, JSON texts, offsets,
 * BOOL values, equal widths of token columns. VL_E_DATA names the first fault. */
int vl_batch_verify(const struct vl_batch *b, struct vl_err *e) VL_MUST_CHECK;

/* Appends one line per difference between a and b (bit for bit), each ended by a newline; returns
 * how many there are. Provenance is not compared. */
size_t vl_batch_diff(struct vl_buf *out, const struct vl_batch *a, const struct vl_batch *b);

#endif
