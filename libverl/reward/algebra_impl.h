/* algebra_impl.h - what algebra.c and algebra_power.c share. */
#ifndef VL_ALGEBRA_IMPL_H
#define VL_ALGEBRA_IMPL_H

#include "libverl/reward/algebra.h"

typedef __int128 i128;

enum { VL_ATOMS = 16, TERMS_MAX = 256, EXP_MAX = 512 };

struct vl_q { /* reduced, d > 0 */
    i128 n, d;
};

struct vl_exp { /* exponent n/d, reduced, not negative; 0/1 when absent */
    int16_t n, d;
};

struct vl_term {
    struct vl_q c;
    struct vl_exp e[VL_ATOMS];
};

struct vl_poly {
    struct vl_term *t; /* sorted by exponents, no zero coefficients */
    size_t n;
};

struct vl_algx {
    struct vl_poly num, den;
    double v[2]; /* value at the two points; NaN when there is no real one */
};

enum vl_atom_kind { VL_ATOM_SYMBOL, VL_ATOM_PRIME, VL_ATOM_PI, VL_ATOM_I, VL_ATOM_OPAQUE };

struct vl_atom {
    enum vl_atom_kind kind;
    int64_t prime;
    char *name;
    size_t n;
    double v[2];
};

struct vl_alg {
    struct vl_atom atom[VL_ATOMS];
    int natoms;
    struct block *block;
    size_t taken;
};

void *vl_alg_take(struct vl_alg *a, size_t n); /* zeroed; NULL: too much */
int vl_alg_atom(struct vl_alg *a, enum vl_atom_kind kind, const char *name, size_t n, int64_t prime,
                const double v[2]);
int vl_q_mul(struct vl_q *r, struct vl_q x, struct vl_q y); /* 0: does not fit */
int vl_exp_set(struct vl_exp *e, int64_t n, int64_t d);
int vl_poly_new(struct vl_alg *a, size_t n, struct vl_poly *p);
int vl_alg_rational(const struct vl_algx *x, struct vl_q *q); /* 1 when x is one */
const struct vl_algx *vl_alg_q(struct vl_alg *a, struct vl_q q);
const struct vl_algx *vl_alg_term(struct vl_alg *a, const struct vl_term *t, const double v[2]);
const struct vl_algx *vl_alg_power_of(struct vl_alg *a, int atom, int64_t n, int64_t d);

#endif
