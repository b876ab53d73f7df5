/* algebra_power.c - powers, roots and functions: exact where the field of algebra.h has them, an
 * opaque atom elsewhere. An atom is named by the text of its arguments, so that the same function of
 * the same argument is the same atom. */
#include "libverl/reward/algebra_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { POWER_MAX = 400, POLY_POWER_MAX = 24, NAME_MAX_BYTES = 4096 };

/* ---- opaque atoms ---- */

static void put_i128(struct vl_buf *b, i128 x)
{
    char s[48];
    size_t k = sizeof s;
    int minus = x < 0;

    do {
        int digit = (int)(x % 10);

        s[--k] = (char)('0' + (digit < 0 ? -digit : digit));
        x /= 10;
    } while (x);
    if (minus)
        vl_buf_ch(b, '-');
    vl_buf_add(b, s + k, sizeof s - k);
}

static void put_poly(struct vl_buf *b, const struct vl_poly *p)
{
    for (size_t i = 0; i < p->n && b->n < NAME_MAX_BYTES; i++) {
        put_i128(b, p->t[i].c.n);
        vl_buf_ch(b, '/');
        put_i128(b, p->t[i].c.d);
        for (int k = 0; k < VL_ATOMS; k++)
            if (p->t[i].e[k].n)
                vl_buf_printf(b, "*%d^%d/%d", k, p->t[i].e[k].n, p->t[i].e[k].d);
        vl_buf_ch(b, '+');
    }
}

static const struct vl_algx *opaque(struct vl_alg *a, const char *head, size_t n,
                                    const struct vl_algx *x, const struct vl_algx *y,
                                    const double v[2])
{
    const struct vl_algx *r = NULL;
    struct vl_buf name = { 0 };

    vl_buf_add(&name, head, n);
    for (int k = 0; k < 2; k++) {
        const struct vl_algx *of = k ? y : x;

        vl_buf_ch(&name, '(');
        if (of) {
            put_poly(&name, &of->num);
            vl_buf_ch(&name, ':');
            put_poly(&name, &of->den);
        }
    }
    if (name.n < NAME_MAX_BYTES)
        r = vl_alg_power_of(a, vl_alg_atom(a, VL_ATOM_OPAQUE, name.s, name.n, 0, v), 1, 1);
    vl_buf_free(&name);
    return r;
}

/* ---- roots ---- */

/* m^(1/k), m >= 0, as integer times roots of primes; NULL when m is too large to factor here. */
static const struct vl_algx *root_of_integer(struct vl_alg *a, i128 m, int64_t k)
{
    const struct vl_algx *r = vl_alg_int(a, 1);
    uint64_t x = (uint64_t)m;

    if (m > UINT32_MAX * (i128)UINT32_MAX)
        return NULL;
    if (!m)
        return vl_alg_int(a, 0);
    for (uint64_t p = 2; x > 1 && r; p += 1 + (p > 2)) {
        int64_t times = 0;

        if (p * p > x)
            p = x; /* what is left is prime */
        if (p > 65536 && p != x)
            return NULL;
        if (p > INT32_MAX)
            return NULL;
        for (; x % p == 0; x /= p)
            times++;
        if (times) {
            const double v[2] = { (double)p, (double)p };

            r = vl_alg_mul(a, r,
                           vl_alg_power_of(a, vl_alg_atom(a, VL_ATOM_PRIME, NULL, 0, (int64_t)p, v),
                                           times, k));
        }
    }
    return r;
}

static const struct vl_algx *root_of_rational(struct vl_alg *a, struct vl_q q, int64_t k)
{
    if (q.n < 0) {
        q.n = -q.n;
        return k == 2 ? vl_alg_mul(a, vl_alg_i(a), root_of_rational(a, q, 2)) : NULL;
    }
    return vl_alg_div(a, root_of_integer(a, q.n, k), root_of_integer(a, q.d, k));
}

/* The root of one term of positive numbers and at most one plain variable, which is then taken for
 * positive as well (sqrt(2x) = sqrt(2) sqrt(x) for x >= 0, else neither is real). */
static const struct vl_algx *root_of_term(struct vl_alg *a, const struct vl_algx *x, int64_t k)
{
    const struct vl_term *t = x->num.t;
    const struct vl_algx *r;
    struct vl_q den;
    int symbols = 0;

    if (x->num.n != 1 || t->c.n < 0 ||
        !vl_alg_rational(&(struct vl_algx){ x->den, x->den, { 1, 1 } }, &den))
        return NULL;
    for (int i = 0; i < a->natoms; i++) {
        enum vl_atom_kind kind = a->atom[i].kind;

        if (!t->e[i].n || kind == VL_ATOM_PRIME || kind == VL_ATOM_PI)
            continue;
        if (kind != VL_ATOM_SYMBOL || t->e[i].n != 1 || symbols++)
            return NULL;
    }
    r = root_of_rational(a, t->c, k);
    for (int i = 0; i < a->natoms && r; i++)
        if (t->e[i].n)
            r = vl_alg_mul(a, r, vl_alg_power_of(a, i, t->e[i].n, t->e[i].d * k));
    return r;
}

/* The principal root. */
static const struct vl_algx *principal(struct vl_alg *a, const struct vl_algx *x, int64_t k)
{
    const struct vl_algx *r;
    struct vl_q q;
    double v[2];
    char head[32];

    if (!x || k < 1 || k > EXP_MAX)
        return NULL;
    if (k == 1)
        return x;
    r = vl_alg_rational(x, &q) ? root_of_rational(a, q, k) : root_of_term(a, x, k);
    if (r)
        return r;
    for (int i = 0; i < 2; i++)
        v[i] = k == 2 ? sqrt(x->v[i]) : pow(x->v[i], 1.0 / (double)k);
    snprintf(head, sizeof head, "root%" PRId64, k);
    return opaque(a, head, strlen(head), x, NULL, v);
}

const struct vl_algx *vl_alg_root(struct vl_alg *a, const struct vl_algx *x, int64_t n)
{
    double v;

    if (x && n % 2 && vl_alg_real(x, &v) && v < 0) {
        const struct vl_algx *zero = vl_alg_int(a, 0);

        return vl_alg_add(a, zero, principal(a, vl_alg_add(a, zero, x, -1), n), -1);
    }
    return principal(a, x, n);
}

/* ---- powers ---- */

static const struct vl_algx *integer_power(struct vl_alg *a, const struct vl_algx *x, int64_t n)
{
    const struct vl_algx *r = vl_alg_int(a, 1);
    struct vl_q q;
    int64_t most = vl_alg_rational(x, &q) || x->num.n <= 1 ? POWER_MAX : POLY_POWER_MAX;

    if (n < -most || n > most)
        return NULL;
    if (n < 0)
        return vl_alg_div(a, r, integer_power(a, x, -n));
    for (; n && r && x; n >>= 1) {
        if (n & 1)
            r = vl_alg_mul(a, r, x);
        if (n > 1)
            x = vl_alg_mul(a, x, x);
    }
    return x ? r : NULL;
}

const struct vl_algx *vl_alg_pow(struct vl_alg *a, const struct vl_algx *x, const struct vl_algx *y)
{
    struct vl_q q;
    double v[2];

    if (!x || !y)
        return NULL;
    if (vl_alg_rational(y, &q)) {
        if (q.n > INT32_MAX || q.n < INT32_MIN || q.d > EXP_MAX)
            return NULL;
        return integer_power(a, principal(a, x, (int64_t)q.d), (int64_t)q.n);
    }
    v[0] = pow(x->v[0], y->v[0]);
    v[1] = pow(x->v[1], y->v[1]);
    return opaque(a, "^", 1, x, y, v);
}

const struct vl_algx *vl_alg_factorial(struct vl_alg *a, const struct vl_algx *x)
{
    struct vl_q q = { 1, 1 };
    const double v[2] = { NAN, NAN };
    int64_t n;

    if (!x)
        return NULL;
    if (!vl_alg_integer(x, &n))
        return opaque(a, "!", 1, x, NULL, v);
    if (n < 0)
        return NULL;
    for (; n > 1; n--)
        if (!vl_q_mul(&q, q, (struct vl_q){ n, 1 }))
            return NULL;
    return vl_alg_q(a, q);
}

/* ---- functions ---- */

static double cot(double x)
{
    return 1 / tan(x);
}
static double sec(double x)
{
    return 1 / cos(x);
}
static double csc(double x)
{
    return 1 / sin(x);
}

const struct vl_algx *vl_alg_call(struct vl_alg *a, const char *name, size_t n,
                                  const struct vl_algx *x)
{
    static const struct {
        const char *name;
        double (*f)(double);
    } known[] = {
        { "sin", sin },     { "cos", cos },     { "tan", tan },     { "cot", cot },
        { "sec", sec },     { "csc", csc },     { "arcsin", asin }, { "arccos", acos },
        { "arctan", atan }, { "ln", log },      { "log", log10 },   { "exp", exp },
        { "abs", fabs },    { "floor", floor }, { "ceil", ceil },
    };
    double v[2] = { NAN, NAN };

    if (!x)
        return NULL;
    if (n == 3 && !memcmp(name, "abs", 3) && vl_alg_real(x, v))
        return v[0] < 0 ? vl_alg_add(a, vl_alg_int(a, 0), x, -1) : x;
    v[0] = v[1] = NAN;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == n && !memcmp(known[i].name, name, n)) {
            v[0] = known[i].f(x->v[0]);
            v[1] = known[i].f(x->v[1]);
        }
    return opaque(a, name, n, x, NULL, v);
}
