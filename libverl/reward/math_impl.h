/* math_impl.h - texts and their parts, shared by math_equal.c and math_clean.c. */
#ifndef VL_MATH_IMPL_H
#define VL_MATH_IMPL_H

#include "libverl/base/mem.h"

#define VL_ROW_END "\x1e" /* what stands for a double backslash in a cleaned matrix */

enum { VL_PARTS = 24 };

struct vl_span {
    const char *s;
    size_t n;
};

struct vl_parts {
    struct vl_span part[VL_PARTS];
    size_t n;
};

/* Without white space (ASCII) at both ends. */
struct vl_span vl_span_strip(struct vl_span a);
int vl_span_starts(struct vl_span a, const char *word);
int vl_span_ends(struct vl_span a, const char *word);
/* First place from `from` on, outside all brackets, where one of the words begins: its index in
 * *which. a.n when there is none. words ends with NULL. */
size_t vl_span_find(struct vl_span a, size_t from, const char *const *words, size_t *which);
/* Splits at the words outside brackets into stripped parts. 0 when there are more than VL_PARTS. */
int vl_span_split(struct vl_span a, const char *const *words, struct vl_parts *p);
/* Whether the first bracket is closed by the last byte, not before. */
int vl_span_enclosed(struct vl_span a);

/* Appends the answer as math_equal.h says it is cleaned; whole: without taking off a name before "="
 * or a unit. The bytes are never NULL. */
void vl_math_clean(struct vl_span a, int whole, struct vl_buf *b);

#endif
