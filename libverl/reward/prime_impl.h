/* prime_impl.h - what the files of prime_math share. Texts are UTF-8 with lengths. */
#ifndef VL_PRIME_IMPL_H
#define VL_PRIME_IMPL_H

#include "libverl/base/mem.h"

/* Python's float(): white space around, signs, underscores between digits, inf and nan. 1 when it is
 * one. */
int vl_prime_float(const char *s, size_t n, double *x);

/* The value of Python arithmetic (+ - * / // ** and parentheses on numbers). 1 when it is that and
 * has a value. */
int vl_py_arithmetic(const char *s, size_t n, double *x);

/* The second normalisation of an answer (prime_norm.c), in place. */
void vl_prime_normalize(struct vl_buf *b);
/* Commas out of 1,234,567, in place. */
void vl_prime_strip_commas(struct vl_buf *b);
/* Whether the text, such commas aside, is a number within 1e-7 of an integer. */
int vl_prime_is_int(const char *s, size_t n);
/* LaTeX as the text pylatexenc makes of it, for the commands answers have (prime_tex.c). */
void vl_prime_tex_text(struct vl_buf *b);

/* Equal as strings or numbers, pi taken as `pi` (prime_equal.c): 1 or 0, -1 where the original
 * raises an exception. */
int vl_prime_math_equal(const char *a, size_t na, const char *b, size_t nb, const char *pi);

/* Equal after both normalisations, or by algebra: 1 or 0. *undecided is set to 1 when the algebra
 * could not tell. */
int vl_prime_grade(const char *given, size_t ng, const char *truth, size_t nt, int *undecided);

#endif
