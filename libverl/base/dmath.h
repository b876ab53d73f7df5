/* dmath.h - double-precision log, exp and cosine in fixed steps, for scalars that reach a file.
 *
 * libm's results differ between versions and machines; these use only + - * / and exact scaling,
 * so initial weights and learning rates have the same bits everywhere. Accurate to about 2 ulp. */
#ifndef VL_DMATH_H
#define VL_DMATH_H

#include <math.h>

/* Natural logarithm of a positive, finite x: 2 atanh((m-1)/(m+1)) + e ln 2, m in [0.7, 1.42). */
static inline double vl_dlog(double x)
{
    int ex;
    double m = frexp(x, &ex), s, t, sum = 0;

    if (m < 0.70710678118654752)
        m *= 2, ex--;
    s = (m - 1) / (m + 1);
    t = s * s;
    for (int k = 25; k >= 3; k -= 2)
        sum = (sum + 1.0 / k) * t;
    return (double)ex * 6.93147180369123816490e-01 +
           (2 * s * sum + ((double)ex * 1.90821492927058770002e-10 + 2 * s));
}

/* e^x: 2^k e^r with |r| <= ln2/2, Taylor from the smallest term. Exactly 1 at 0; 0, infinity and
 * NaN where they belong. */
static inline double vl_dexp(double x)
{
    if (!(fabs(x) < 746))
        return x < 0 ? 0 : x > 0 ? INFINITY : x;
    double k = floor(x / 0.69314718055994530942 + 0.5), sum = 1;
    double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;

    for (int n = 18; n >= 1; n--)
        sum = 1 + r / n * sum;
    return ldexp(sum, (int)k);
}

/* cos(pi x), exact at multiples of 1/2. |x| < 2^50. */
static inline double vl_dcospi(double x)
{
    double r = fabs(x), sign = 1, y, t, sum = 0;
    int odd = 0;

    r -= 2 * floor(r / 2); /* [0, 2) */
    if (r > 1)
        r = 2 - r; /* [0, 1] */
    if (r > 0.5)
        r = 1 - r, sign = -1;
    if (r > 0.25)
        r = 0.5 - r, odd = 1; /* cos(pi r) = sin(pi (1/2 - r)) */
    y = 3.14159265358979323846 * r;
    t = y * y;
    for (int k = 20; k >= 2; k -= 2) /* Taylor; the last term is below 1e-19 at pi/4 */
        sum = (1 - sum) * t / (odd ? k * (k + 1) : k * (k - 1));
    return sign * (odd ? y - y * sum : 1 - sum);
}

#endif
