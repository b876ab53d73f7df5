/* algebra.h - exact equality of simple algebraic expressions.
 *
 * A value is a quotient of polynomials with 128-bit rational coefficients in: variables, pi, i, and
 * rational powers of primes (so that sqrt(12) is 2*3^(1/2)). Those powers are linearly independent
 * over the rationals, so the difference of two such values is zero exactly when it has no terms:
 * "equal" and "different" are proofs, not guesses. What leaves this field (sin, 2^x, sqrt(x+1)) is
 * kept as an opaque atom with its numeric value at two fixed points; a difference that depends on
 * such atoms is "different" when the numbers differ and "undecided" when they agree. Everything is
 * bounded (terms, atoms, depth, coefficient bits): what does not fit is undecided. */
#ifndef VL_ALGEBRA_H
#define VL_ALGEBRA_H

#include "libverl/base/mem.h"

struct vl_alg;  /* workspace of one comparison: atoms and memory */
struct vl_algx; /* a value; lives as long as its workspace */

enum vl_alg_verdict { VL_ALG_DIFFERENT, VL_ALG_EQUAL, VL_ALG_UNDECIDED };

struct vl_alg *vl_alg_new(void);
void vl_alg_free(struct vl_alg *a);

/* Values and operations; NULL in gives NULL out. NULL also when something does not fit or is not
 * defined (division by zero). */
const struct vl_algx *vl_alg_int(struct vl_alg *a, int64_t n);
/* Decimal text: digits with at most one point, exponent 10^e. */
const struct vl_algx *vl_alg_decimal(struct vl_alg *a, const char *s, size_t n, int e);
const struct vl_algx *vl_alg_symbol(struct vl_alg *a, const char *name, size_t n);
/* A name with a value of its own at the two points. */
const struct vl_algx *vl_alg_named(struct vl_alg *a, const char *name, size_t n, const double v[2]);
const struct vl_algx *vl_alg_pi(struct vl_alg *a);
const struct vl_algx *vl_alg_i(struct vl_alg *a);
const struct vl_algx *vl_alg_add(struct vl_alg *a, const struct vl_algx *x, const struct vl_algx *y,
                                 int sign); /* x + sign*y */
const struct vl_algx *vl_alg_mul(struct vl_alg *a, const struct vl_algx *x,
                                 const struct vl_algx *y);
const struct vl_algx *vl_alg_div(struct vl_alg *a, const struct vl_algx *x,
                                 const struct vl_algx *y);
const struct vl_algx *vl_alg_pow(struct vl_alg *a, const struct vl_algx *x,
                                 const struct vl_algx *y);
/* The real root of degree n >= 2: of a negative number too when n is odd. */
const struct vl_algx *vl_alg_root(struct vl_alg *a, const struct vl_algx *x, int64_t n);
const struct vl_algx *vl_alg_factorial(struct vl_alg *a, const struct vl_algx *x);
/* abs, sin, cos, tan, cot, sec, csc, arcsin, arccos, arctan, ln, log (base 10), exp: known names
 * have a numeric value, and simple cases are exact; any other name is an unknown function. */
const struct vl_algx *vl_alg_call(struct vl_alg *a, const char *name, size_t n,
                                  const struct vl_algx *x);

/* Whether x and y are the same number or function; NULL is undecided. */
enum vl_alg_verdict vl_alg_equal(struct vl_alg *a, const struct vl_algx *x,
                                 const struct vl_algx *y);
/* Whether x and y agree at both fixed points to 1e-10 (relative, or of 0.001): what an undecided pair can be held
 * to. */
int vl_alg_near(const struct vl_algx *x, const struct vl_algx *y);
/* 1 and *out when x is a number (no variables) with a real value. */
int vl_alg_real(const struct vl_algx *x, double *out);
/* 1 and *out when x is an integer that fits. */
int vl_alg_integer(const struct vl_algx *x, int64_t *out);

/* ---- reading (algebra_parse.c) ---- */

enum vl_alg_syntax {
    VL_ALG_PLAIN, /* a*b, 2xy, x**2, x^2, sqrt(x), 1e3 */
    VL_ALG_LATEX, /* \frac{a}{b}, \sqrt[3]{x}, x^{2}, each letter a name; and the signs of the above */
};
/* NULL when the text is no expression of this syntax or does not fit. */
const struct vl_algx *vl_alg_parse(struct vl_alg *a, const char *s, size_t n,
                                   enum vl_alg_syntax syntax);

#endif
