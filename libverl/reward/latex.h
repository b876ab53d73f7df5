/* latex.h - pieces of LaTeX answers, shared by the mathematics scorers. */
#ifndef VL_LATEX_H
#define VL_LATEX_H

#include "libverl/base/mem.h"

/* Replaces every occurrence of `from` (not empty) by `to`, left to right; *b is replaced. */
void vl_tex_replace(struct vl_buf *b, const char *from, const char *to);
/* From the last occurrence of `command` (such as "\\boxed") to the brace that closes the first one
 * after it: *n bytes. NULL when there is none or it stays open. */
const char *vl_tex_last_braced(const char *s, size_t len, const char *command, size_t *n);
/* Content of the last complete \boxed{} or \fbox{}, *n bytes; one that stays open is passed over. NULL
 * when there is none. */
const char *vl_tex_last_box(const char *s, size_t len, size_t *n);
/* Last occurrence of needle in s, or NULL. */
const char *vl_tex_rfind(const char *s, size_t n, const char *needle);
/* Bytes of the UTF-8 character at s (n > 0 bytes left), at least 1. */
size_t vl_tex_char(const char *s, size_t n);
/* Hendrycks' normalisation of an answer (math.c). 0, or 1 where the original raises an exception. */
int vl_math_normalize(struct vl_buf *b);

/* Cuts white space (vl_py_space) off both ends of *s, *n. */
void vl_tex_strip(const char **s, size_t *n);

#endif
