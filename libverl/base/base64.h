/* base64.h - RFC 4648 base64 with padding, for bytes that JSON text cannot hold. */
#ifndef VL_BASE64_H
#define VL_BASE64_H

#include "libverl/base/mem.h"

void vl_base64_put(struct vl_buf *out, const void *p, size_t n);
/* Appends the decoded bytes; 1 when s is whole base64, else 0 with out as it was. */
int vl_base64_get(struct vl_buf *out, const char *s, size_t n);

#endif
