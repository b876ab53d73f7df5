/* algebra.c - quotients of polynomials with exact coefficients. See algebra.h.
 *
 * Polynomials are sorted arrays of terms and never change once made. No common factors are taken
 * out of a quotient: equality multiplies crosswise, which needs none. */
#include "libverl/reward/algebra.h"

#include "libverl/reward/algebra_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- workspace ---- */

struct block {
    struct block *next;
    size_t used, size;
    _Alignas(16) char s[];
};

enum { BLOCK = 1 << 16, MEMORY = 1 << 23 };

struct vl_alg *vl_alg_new(void)
{
    return vl_alloc(sizeof(struct vl_alg));
}

void vl_alg_free(struct vl_alg *a)
{
    for (struct block *b = a ? a->block : NULL, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
}

void *vl_alg_take(struct vl_alg *a, size_t n)
{
    struct block *b = a->block;
    void *p;

    n = (n + 15) & ~(size_t)15;
    if (a->taken + n > MEMORY)
        return NULL;
    if (!b || b->size - b->used < n) {
        size_t size = n > BLOCK ? n : BLOCK;

        b = vl_alloc(sizeof *b + size);
        b->size = size;
        b->next = a->block;
        a->block = b;
    }
    p = b->s + b->used;
    b->used += n;
    a->taken += n;
    return p;
}

/* Index of the atom, made when it is new; -1 when there are too many. */
int vl_alg_atom(struct vl_alg *a, enum vl_atom_kind kind, const char *name, size_t n, int64_t prime,
                const double v[2])
{
    struct vl_atom *t;

    for (int i = 0; i < a->natoms; i++) {
        t = &a->atom[i];
        if (t->kind == kind && t->prime == prime && t->n == n && (!n || !memcmp(t->name, name, n)))
            return i;
    }
    if (a->natoms == VL_ATOMS)
        return -1;
    t = &a->atom[a->natoms];
    *t = (struct vl_atom){ .kind = kind, .prime = prime, .n = n, .v = { v[0], v[1] } };
    t->name = vl_alg_take(a, n + 1);
    if (!t->name)
        return -1;
    if (n)
        memcpy(t->name, name, n);
    return a->natoms++;
}

/* ---- rationals ---- */

static i128 gcd(i128 x, i128 y)
{
    x = x < 0 ? -x : x;
    y = y < 0 ? -y : y;
    while (y) {
        i128 t = x % y;

        x = y;
        y = t;
    }
    return x;
}

static int q_reduce(struct vl_q *r)
{
    const i128 lowest = (i128)((unsigned __int128)1 << 127); /* has no negative */
    i128 g;

    if (r->n == lowest || r->d == lowest)
        return 0;
    if (r->d < 0) {
        r->n = -r->n;
        r->d = -r->d;
    }
    g = gcd(r->n, r->d);
    if (g > 1) {
        r->n /= g;
        r->d /= g;
    }
    return r->d != 0;
}

int vl_q_mul(struct vl_q *r, struct vl_q x, struct vl_q y)
{
    i128 g = gcd(x.n, y.d), h = gcd(y.n, x.d);

    if (g > 1) {
        x.n /= g;
        y.d /= g;
    }
    if (h > 1) {
        y.n /= h;
        x.d /= h;
    }
    return !__builtin_mul_overflow(x.n, y.n, &r->n) && !__builtin_mul_overflow(x.d, y.d, &r->d) &&
           q_reduce(r);
}

static int q_add(struct vl_q *r, struct vl_q x, struct vl_q y)
{
    i128 g = gcd(x.d, y.d), a, b;

    return !__builtin_mul_overflow(x.n, y.d / g, &a) && !__builtin_mul_overflow(y.n, x.d / g, &b) &&
           !__builtin_add_overflow(a, b, &r->n) && !__builtin_mul_overflow(x.d, y.d / g, &r->d) &&
           q_reduce(r);
}

/* ---- polynomials ---- */

static int term_cmp(const void *x, const void *y)
{
    return memcmp(((const struct vl_term *)x)->e, ((const struct vl_term *)y)->e,
                  sizeof((const struct vl_term *)x)->e);
}

/* Sorts, adds equal monomials, drops zeros. 0 when a coefficient does not fit. */
static int collect(struct vl_poly *p)
{
    size_t k = 0;

    qsort(p->t, p->n, sizeof *p->t, term_cmp);
    for (size_t i = 0; i < p->n; i++) {
        if (k && !term_cmp(&p->t[k - 1], &p->t[i])) {
            if (!q_add(&p->t[k - 1].c, p->t[k - 1].c, p->t[i].c))
                return 0;
        } else {
            if (k && !p->t[k - 1].c.n)
                k--;
            p->t[k++] = p->t[i];
        }
    }
    if (k && !p->t[k - 1].c.n)
        k--;
    p->n = k;
    return 1;
}

int vl_poly_new(struct vl_alg *a, size_t n, struct vl_poly *p)
{
    p->n = n;
    p->t = n > TERMS_MAX * TERMS_MAX / 4 ? NULL : vl_alg_take(a, (n + !n) * sizeof *p->t);
    return p->t != NULL;
}

/* Multiplies c by base^k. */
static int scale_power(struct vl_q *c, int64_t base, int64_t k)
{
    while (k-- > 0)
        if (!vl_q_mul(c, *c, (struct vl_q){ base, 1 }))
            return 0;
    return 1;
}

/* Brings the exponent of atom i into its range: powers of primes below 1, of i below 2. */
static int reduce_exponent(const struct vl_alg *a, struct vl_term *t, int i)
{
    struct vl_exp *e = &t->e[i];
    int64_t whole = e->n / e->d;

    if (a->atom[i].kind == VL_ATOM_PRIME && whole) {
        e->n = (int16_t)(e->n - whole * e->d);
        if (!e->n)
            e->d = 1;
        return scale_power(&t->c, a->atom[i].prime, whole);
    }
    if (a->atom[i].kind == VL_ATOM_I && whole >= 2) {
        if (whole & 2)
            t->c.n = -t->c.n;
        e->n = (int16_t)(e->n & 1);
    }
    return 1;
}

/* Exponents must stay small: they are what intermediate sizes grow with. */
int vl_exp_set(struct vl_exp *e, int64_t n, int64_t d)
{
    int64_t g = (int64_t)gcd(n, d);

    n /= g;
    d /= g;
    if (n > EXP_MAX || n < 0 || d > EXP_MAX)
        return 0;
    *e = (struct vl_exp){ (int16_t)n, (int16_t)(n ? d : 1) };
    return 1;
}

static int term_mul(const struct vl_alg *a, struct vl_term *r, const struct vl_term *x,
                    const struct vl_term *y)
{
    if (!vl_q_mul(&r->c, x->c, y->c))
        return 0;
    memcpy(r->e, x->e, sizeof r->e);
    for (int i = 0; i < a->natoms; i++) {
        const struct vl_exp *p = &x->e[i], *q = &y->e[i];

        if (!q->n)
            continue;
        if (!vl_exp_set(&r->e[i], (int64_t)p->n * q->d + (int64_t)q->n * p->d,
                        (int64_t)p->d * q->d) ||
            !reduce_exponent(a, r, i))
            return 0;
    }
    return 1;
}

static int poly_mul(struct vl_alg *a, const struct vl_poly *x, const struct vl_poly *y,
                    struct vl_poly *r)
{
    size_t k = 0;

    if (!vl_poly_new(a, x->n * y->n, r))
        return 0;
    for (size_t i = 0; i < x->n; i++)
        for (size_t j = 0; j < y->n; j++)
            if (!term_mul(a, &r->t[k++], &x->t[i], &y->t[j]))
                return 0;
    return collect(r) && r->n <= TERMS_MAX;
}

static int poly_add(struct vl_alg *a, const struct vl_poly *x, const struct vl_poly *y, int sign,
                    struct vl_poly *r)
{
    if (!vl_poly_new(a, x->n + y->n, r))
        return 0;
    memcpy(r->t, x->t, x->n * sizeof *r->t);
    memcpy(r->t + x->n, y->t, y->n * sizeof *r->t);
    for (size_t i = x->n; sign < 0 && i < r->n; i++)
        r->t[i].c.n = -r->t[i].c.n;
    return collect(r) && r->n <= TERMS_MAX;
}

/* ---- quotients ---- */

static void term_one(struct vl_term *t)
{
    *t = (struct vl_term){ .c = { 1, 1 } };
    for (int i = 0; i < VL_ATOMS; i++)
        t->e[i].d = 1;
}

static int is_constant(const struct vl_poly *p)
{
    for (int i = 0; i < VL_ATOMS && p->n == 1; i++)
        if (p->t[0].e[i].n)
            return 0;
    return p->n <= 1;
}

int vl_alg_rational(const struct vl_algx *x, struct vl_q *q)
{
    if (!x || !is_constant(&x->num) || !is_constant(&x->den))
        return 0;
    if (!x->num.n) {
        *q = (struct vl_q){ 0, 1 };
        return 1;
    }
    return vl_q_mul(q, x->num.t[0].c, (struct vl_q){ x->den.t[0].c.d, x->den.t[0].c.n });
}

/* A quotient; a constant denominator is divided out, so that constants have one form. */
static const struct vl_algx *quotient(struct vl_alg *a, const struct vl_poly *num,
                                      const struct vl_poly *den, const double v[2])
{
    struct vl_algx *x = vl_alg_take(a, sizeof *x);

    if (!x || !den->n)
        return NULL;
    *x = (struct vl_algx){ *num, *den, { v[0], v[1] } };
    if (is_constant(den)) {
        struct vl_q c = den->t[0].c, inverse = { c.d, c.n };

        if (!q_reduce(&inverse) || !vl_poly_new(a, num->n, &x->num) || !vl_poly_new(a, 1, &x->den))
            return NULL;
        term_one(&x->den.t[0]);
        for (size_t i = 0; i < num->n; i++) {
            x->num.t[i] = num->t[i];
            if (!vl_q_mul(&x->num.t[i].c, num->t[i].c, inverse))
                return NULL;
        }
    }
    return x;
}

const struct vl_algx *vl_alg_term(struct vl_alg *a, const struct vl_term *t, const double v[2])
{
    struct vl_poly num, den;

    if (!vl_poly_new(a, 1, &num) || !vl_poly_new(a, 1, &den))
        return NULL;
    num.t[0] = *t;
    num.n = t->c.n != 0;
    term_one(&den.t[0]);
    return quotient(a, &num, &den, v);
}

const struct vl_algx *vl_alg_q(struct vl_alg *a, struct vl_q q)
{
    double x = (double)q.n / (double)q.d, v[2] = { x, x };
    struct vl_term t;

    term_one(&t);
    t.c = q;
    return vl_alg_term(a, &t, v);
}

const struct vl_algx *vl_alg_int(struct vl_alg *a, int64_t n)
{
    return vl_alg_q(a, (struct vl_q){ n, 1 });
}

const struct vl_algx *vl_alg_decimal(struct vl_alg *a, const char *s, size_t n, int e)
{
    struct vl_q q = { 0, 1 };
    int point = 0;

    for (size_t i = 0; i < n; i++) {
        if (s[i] == '.') {
            point = 1;
            continue;
        }
        if (__builtin_mul_overflow(q.n, (i128)10, &q.n) ||
            __builtin_add_overflow(q.n, (i128)(s[i] - '0'), &q.n))
            return NULL;
        e -= point;
    }
    for (; e > 0 && q.n; e--)
        if (__builtin_mul_overflow(q.n, (i128)10, &q.n))
            return NULL;
    for (; e < 0; e++)
        if (__builtin_mul_overflow(q.d, (i128)10, &q.d))
            return NULL;
    return q_reduce(&q) ? vl_alg_q(a, q) : NULL;
}

/* The atom to the power n/d, times c. */
const struct vl_algx *vl_alg_power_of(struct vl_alg *a, int atom, int64_t n, int64_t d)
{
    double v[2];
    struct vl_term t;

    if (atom < 0)
        return NULL;
    term_one(&t);
    if (!vl_exp_set(&t.e[atom], n, d) || !reduce_exponent(a, &t, atom))
        return NULL;
    for (int k = 0; k < 2; k++)
        v[k] =
            n == 1 && d == 1 ? a->atom[atom].v[k] : pow(a->atom[atom].v[k], (double)n / (double)d);
    return vl_alg_term(a, &t, v);
}

/* A variable's numbers: fixed, one positive and one negative, different for different names. */
const struct vl_algx *vl_alg_symbol(struct vl_alg *a, const char *name, size_t n)
{
    uint64_t h = 14695981039346656037u;
    double v[2];

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)name[i]) * 1099511628211u;
    v[0] = 0.5 + (double)(h >> 40) * 0x1p-24;
    v[1] = -1.25 - (double)((h >> 16) & 0xFFFFFF) * 0x1p-24;
    return vl_alg_named(a, name, n, v);
}

const struct vl_algx *vl_alg_named(struct vl_alg *a, const char *name, size_t n, const double v[2])
{
    return vl_alg_power_of(a, vl_alg_atom(a, VL_ATOM_SYMBOL, name, n, 0, v), 1, 1);
}

const struct vl_algx *vl_alg_pi(struct vl_alg *a)
{
    const double v[2] = { 3.14159265358979323846, 3.14159265358979323846 };

    return vl_alg_power_of(a, vl_alg_atom(a, VL_ATOM_PI, NULL, 0, 0, v), 1, 1);
}

const struct vl_algx *vl_alg_i(struct vl_alg *a)
{
    const double v[2] = { NAN, NAN };

    return vl_alg_power_of(a, vl_alg_atom(a, VL_ATOM_I, NULL, 0, 0, v), 1, 1);
}

const struct vl_algx *vl_alg_add(struct vl_alg *a, const struct vl_algx *x, const struct vl_algx *y,
                                 int sign)
{
    struct vl_poly p, q, num, den;
    double v[2];

    if (!x || !y || !poly_mul(a, &x->num, &y->den, &p) || !poly_mul(a, &y->num, &x->den, &q) ||
        !poly_add(a, &p, &q, sign, &num) || !poly_mul(a, &x->den, &y->den, &den))
        return NULL;
    v[0] = x->v[0] + sign * y->v[0];
    v[1] = x->v[1] + sign * y->v[1];
    return quotient(a, &num, &den, v);
}

const struct vl_algx *vl_alg_mul(struct vl_alg *a, const struct vl_algx *x, const struct vl_algx *y)
{
    struct vl_poly num, den;
    double v[2];

    if (!x || !y || !poly_mul(a, &x->num, &y->num, &num) || !poly_mul(a, &x->den, &y->den, &den))
        return NULL;
    v[0] = x->v[0] * y->v[0];
    v[1] = x->v[1] * y->v[1];
    return quotient(a, &num, &den, v);
}

const struct vl_algx *vl_alg_div(struct vl_alg *a, const struct vl_algx *x, const struct vl_algx *y)
{
    struct vl_algx turned;

    if (!x || !y || !y->num.n)
        return NULL;
    turned = (struct vl_algx){ y->den, y->num, { 1 / y->v[0], 1 / y->v[1] } };
    return vl_alg_mul(a, x, &turned);
}

/* ---- answers ---- */

/* Whether the values agree: 1 at both points, 0 when they differ at one, -1 when a value is missing
 * and the other point does not tell. */
static int agree(const struct vl_algx *x, const struct vl_algx *y)
{
    int known = 1;

    for (int k = 0; k < 2; k++) {
        double size = fmax(fabs(x->v[k]), fabs(y->v[k]));

        if (isnan(x->v[k]) || isnan(y->v[k]) || !isfinite(size))
            known = -1;
        else if (fabs(x->v[k] - y->v[k]) > 1e-10 * fmax(size, 1e-3))
            return 0;
    }
    return known;
}

int vl_alg_near(const struct vl_algx *x, const struct vl_algx *y)
{
    return x && y && agree(x, y) > 0;
}

enum vl_alg_verdict vl_alg_equal(struct vl_alg *a, const struct vl_algx *x, const struct vl_algx *y)
{
    const struct vl_algx *d = vl_alg_add(a, x, y, -1);

    if (!d)
        return VL_ALG_UNDECIDED;
    if (!d->num.n)
        return VL_ALG_EQUAL;
    for (size_t i = 0; i < d->num.n; i++)
        for (int k = 0; k < a->natoms; k++)
            if (a->atom[k].kind == VL_ATOM_OPAQUE && d->num.t[i].e[k].n)
                return agree(x, y) ? VL_ALG_UNDECIDED : VL_ALG_DIFFERENT;
    return VL_ALG_DIFFERENT;
}

int vl_alg_real(const struct vl_algx *x, double *out)
{
    if (!x || !isfinite(x->v[0]) || x->v[0] != x->v[1])
        return 0;
    *out = x->v[0];
    return 1;
}

int vl_alg_integer(const struct vl_algx *x, int64_t *out)
{
    struct vl_q q;

    if (!vl_alg_rational(x, &q) || q.d != 1 || q.n > INT64_MAX || q.n < INT64_MIN)
        return 0;
    *out = (int64_t)q.n;
    return 1;
}
