/* dp_impl.h - between dp.c and dp_feed.c. */
#ifndef VL_DP_IMPL_H
#define VL_DP_IMPL_H

#include "libverl/batch/batch.h"

/* The document that is p[0..n); *marked: as part of a stream. */
int vl_dp_document(struct vl_batch *b, const char *name, const uint8_t *p, size_t n, int *marked,
                   struct vl_err *e) VL_MUST_CHECK;
/* A whole stream, its end frame included, as one batch. */
int vl_dp_read_stream(struct vl_batch *b, const char *name, const uint8_t *p, size_t n,
                      struct vl_err *e) VL_MUST_CHECK;

#endif
