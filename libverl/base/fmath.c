/* fmath.c - double-precision exp, log, pow, sin and cos from correctly rounded steps. See fmath.h.
 *
 * Taylor series with a few terms to spare instead of tuned polynomials: nobody waits for these. */
#include "libverl/base/fmath.h"

#define LN2_HI 0x1.62e42fefa3p-1 /* 41 bits: n * LN2_HI is exact for the n that occur */
#define LN2_LO 0x1.3de6af278ece6p-42

/* 2^n * x for any n that can occur here; in two factors so that denormal results are reached. */
static double scale2(double x, int n)
{
    int h = n / 2, k = n - h;
    uint64_t a = (uint64_t)(h + 1023) << 52, b = (uint64_t)(k + 1023) << 52;
    double f, g;

    memcpy(&f, &a, 8);
    memcpy(&g, &b, 8);
    return x * f * g;
}

/* e^(hi + lo), |lo| tiny against hi */
static double exp_sum(double hi, double lo)
{
    double n, r, p = 1.0 / 6227020800.0, inv = 6227020800.0;

    if (hi != hi)
        return hi;
    if (hi > 709.8)
        return INFINITY;
    if (hi < -745.2)
        return 0;
    n = hi * 0x1.71547652b82fep+0;
    n = (n + 0x1.8p52) - 0x1.8p52;
    r = fma(-n, LN2_HI, hi);
    lo = fma(-n, LN2_LO, lo);
    r = r + lo;
    for (int k = 13; k >= 2; k--) { /* sum r^k / k! from k = 13 down */
        inv /= k;
        p = fma(p, r, 1.0 / inv);
    }
    return scale2(1.0 + r * p, (int)n);
}

double vl_exp(double x)
{
    return exp_sum(x, 0);
}

/* log(x) for finite x > 0 as hi + lo, about 60 bits. */
static void log_sum(double x, double *hi, double *lo)
{
    int64_t b, k = 0;
    double m, f, d, dl, s, sl, z, q = 1.0 / 23, c;

    if (x < 0x1p-1022)
        x *= 0x1p54, k = -54;
    memcpy(&b, &x, 8);
    c = (double)(k + ((b - 0x3fe6a09e667f3bcd) >> 52)); /* mantissa into [sqrt(1/2), sqrt(2)) */
    b -= (int64_t)((uint64_t)((b - 0x3fe6a09e667f3bcd) >> 52) << 52);
    memcpy(&m, &b, 8);
    /* log m = 2 atanh(s), s = (m-1)/(m+1) kept as s + sl */
    f = m - 1;
    d = m + 1, dl = m < 1 ? m - (d - 1) : 1 - (d - m); /* m + 1 = d + dl */
    s = f / d;
    sl = (fma(-s, d, f) - s * dl) / d;
    z = s * s;
    for (int i = 21; i >= 3; i -= 2)
        q = fma(q, z, 1.0 / i);
    q = 2 * (sl + s * z * q); /* 2 s^3 (1/3 + s^2/5 + ...) and the rest of s */
    q = fma(c, LN2_LO, q);
    *hi = c * LN2_HI + 2 * s;
    d = fabs(c * LN2_HI) > fabs(2 * s) ? (c * LN2_HI - *hi) + 2 * s : (2 * s - *hi) + c * LN2_HI;
    *lo = q + d;
}

double vl_log(double x)
{
    double hi, lo;

    if (x != x || x == INFINITY)
        return x;
    if (x == 0)
        return -INFINITY;
    if (x < 0)
        return NAN;
    log_sum(x, &hi, &lo);
    return hi + lo;
}

double vl_pow(double x, double y)
{
    double hi, lo, ph, pl, r, sign = 1;

    if (y == 0 || x == 1)
        return 1;
    if (x != x || y != y)
        return NAN;
    if (x < 0) {
        double i = (fabs(y) + 0x1p52) - 0x1p52;

        if (fabs(y) < 0x1p53 && i != fabs(y))
            return NAN;
        if (fabs(y) < 0x1p53 && ((int64_t)i & 1))
            sign = -1;
        x = -x;
    }
    if (x == 0)
        return y > 0 ? 0 : INFINITY;
    if (x == INFINITY || fabs(y) == INFINITY) {
        if (x == 1)
            return 1;
        return (x > 1) == (y > 0) ? INFINITY * sign : 0;
    }
    log_sum(x, &hi, &lo);
    r = hi + lo, lo = (hi - r) + lo, hi = r;
    ph = y * hi;
    pl = fabs(ph) < 1e300 ? fma(y, hi, -ph) + y * lo : 0;
    return sign * exp_sum(ph, pl);
}

/* x = q * pi/2 + (r + l), |r| <= pi/4; returns q mod 4 */
static int reduce(double x, double *r, double *l)
{
    double n = x * 0x1.45f306dc9c883p-1, a, w;

    n = (n + 0x1.8p52) - 0x1.8p52;
    a = fma(-n, 0x1.921fb54442d18p+0, x); /* exact */
    w = n * 0x1.1a62633145c07p-54;
    *r = a - w;
    *l = (a - *r) - w - fma(n, 0x1.1a62633145c07p-54, -w) + n * 0x1.f1976b7ed8fbcp-110;
    return (int)((int64_t)n & 3);
}

/* sin(r + l) and cos(r + l) for |r| <= pi/4 by Taylor's series */
static double sin_part(double r, double l)
{
    static const double f[] = { -1.0 / 6,
                                1.0 / 120,
                                -1.0 / 5040,
                                1.0 / 362880,
                                -1.0 / 39916800,
                                1.0 / 6227020800.0,
                                -1.0 / 1307674368000.0,
                                1.0 / 355687428096000.0 };
    double z = r * r, p = f[7];

    for (int i = 6; i >= 0; i--)
        p = fma(p, z, f[i]);
    return r + (fma(r * z, p, l - 0.5 * z * l));
}

static double cos_part(double r, double l)
{
    static const double f[] = {
        1.0 / 24,        -1.0 / 720,           1.0 / 40320,           -1.0 / 3628800,
        1.0 / 479001600, -1.0 / 87178291200.0, 1.0 / 20922789888000.0
    };
    double z = r * r, h = 0.5 * z, w = 1 - h, p = f[6];

    for (int i = 5; i >= 0; i--)
        p = fma(p, z, f[i]);
    return w + (((1 - w) - h) + (z * z * p - r * l) - 0.5 * fma(r, r, -z));
}

double vl_sin(double x)
{
    double r, l;

    if (!(fabs(x) < 0x1p30))
        return NAN;
    switch (reduce(x, &r, &l)) {
    case 0:
        return sin_part(r, l);
    case 1:
        return cos_part(r, l);
    case 2:
        return -sin_part(r, l);
    default:
        return -cos_part(r, l);
    }
}

double vl_cos(double x)
{
    double r, l;

    if (!(fabs(x) < 0x1p30))
        return NAN;
    switch (reduce(x, &r, &l)) {
    case 0:
        return cos_part(r, l);
    case 1:
        return -sin_part(r, l);
    case 2:
        return -cos_part(r, l);
    default:
        return sin_part(r, l);
    }
}
