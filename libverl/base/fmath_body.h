/* fmath_body.h - exp, log, tanh, sigmoid and silu in fp32, written once for every width.
 *
 * Included by fmath.h with F = float and by kernels/cpu/simd.h with F = __m256 and __m512. The
 * includer defines F (values), I (32-bit integers of the same width), FM(name) and the FM_ steps;
 * every step is one correctly rounded IEEE operation or an integer operation, so that all widths
 * give the same bits. No include guard: it is meant to be included several times.
 *
 *   exp      error <= 1 ulp; below -104 gives 0, above 88.73 inf, denormal results rounded twice
 *   log      error <= 1 ulp; 0 gives -inf, negative gives NaN, denormal arguments are exact
 *   tanh     error <= 2 ulp;   sigmoid, silu: error <= 3 ulp
 * NaN gives NaN everywhere (its payload is not stated).
 *
 * Polynomials: interpolation at Chebyshev nodes of (e^r - 1 - r)/r^2, (log(1+f) - f + f^2/2)/f^3 and
 * (tanh x - x)/x^3, computed with 200 bits. */

FM_FN F FM(exp)(F x)
{
    const F magic = FM_SET(0x1.8p23f); /* adding it leaves the rounded integer in the low bits */
    F c = FM_SEL_LT(x, FM_SET(-104.5f), FM_SET(-104.5f), x);
    F t, n, r, q, p;
    I i, h;

    c = FM_SEL_LT(FM_SET(89.0f), c, FM_SET(89.0f), c);
    t = FM_FMA(c, FM_SET(0x1.715476p+0f), magic);
    n = FM_SUB(t, magic);
    i = FM_ISUB(FM_BITS(t), FM_BITS(magic));
    r = FM_FMA(n, FM_SET(-0x1.62e4p-1f), c);
    r = FM_FMA(n, FM_SET(-0x1.7f7d1cp-20f), r);
    q = FM_FMA(FM_SET(0x1.6d1606p-10f), r, FM_SET(0x1.12106cp-7f));
    q = FM_FMA(q, r, FM_SET(0x1.555516p-5f));
    q = FM_FMA(q, r, FM_SET(0x1.5554d8p-3f));
    q = FM_FMA(q, r, FM_SET(0.5f));
    p = FM_ADD(FM_FMA(FM_MUL(r, r), q, r), FM_SET(1.0f));
    h = FM_ISAR(i, 1); /* 2^n in two factors: n = 128 and denormal results need both */
    p = FM_MUL(p, FM_FLOAT(FM_ISHL(FM_IADD(h, FM_ISET(127)), 23)));
    return FM_MUL(p, FM_FLOAT(FM_ISHL(FM_IADD(FM_ISUB(i, h), FM_ISET(127)), 23)));
}

FM_FN F FM(log)(F x)
{
    F s = FM_SEL_LT(x, FM_SET(0x1p-126f), FM_MUL(x, FM_SET(0x1p23f)), x);
    F e0 = FM_SEL_LT(x, FM_SET(0x1p-126f), FM_SET(-23.0f), FM_SET(0.0f));
    I b = FM_BITS(s);
    I k = FM_ISAR(FM_ISUB(b, FM_ISET(0x3f3504f3)), 23); /* mantissa into [sqrt(1/2), sqrt(2)) */
    F f = FM_SUB(FM_FLOAT(FM_ISUB(b, FM_ISHL(k, 23))), FM_SET(1.0f));
    F e = FM_ADD(FM_CVT(k), e0), z = FM_MUL(f, f), q, y;

    q = FM_FMA(FM_SET(0x1.1d8ea6p-4f), f, FM_SET(-0x1.d635bcp-4f));
    q = FM_FMA(q, f, FM_SET(0x1.dea282p-4f));
    q = FM_FMA(q, f, FM_SET(-0x1.fcf4c6p-4f));
    q = FM_FMA(q, f, FM_SET(0x1.23d21ap-3f));
    q = FM_FMA(q, f, FM_SET(-0x1.555b4ap-3f));
    q = FM_FMA(q, f, FM_SET(0x1.999d5ap-3f));
    q = FM_FMA(q, f, FM_SET(-0x1.fffffcp-3f));
    q = FM_FMA(q, f, FM_SET(0x1.555554p-2f));
    y = FM_MUL(FM_MUL(z, f), q);
    y = FM_FMA(e, FM_SET(0x1.7f7d1cp-20f), y);
    y = FM_FMA(FM_SET(-0.5f), z, y);
    y = FM_FMA(e, FM_SET(0x1.62e4p-1f), FM_ADD(f, y));
    y = FM_SEL_LT(x, FM_SET(0.0f), FM_SET(NAN), y);
    y = FM_SEL_LT(FM_SET(0x1.fffffep127f), x, x, y);
    y = FM_SEL_EQ(x, FM_SET(0.0f), FM_SET(-INFINITY), y);
    return FM_SEL_EQ(x, x, y, x);
}

FM_FN F FM(tanh)(F x)
{
    const I sign = FM_ISET(INT32_MIN);
    F a = FM_FLOAT(FM_IANDNOT(sign, FM_BITS(x))), z = FM_MUL(x, x), q, small, big;

    q = FM_FMA(FM_SET(0x1.2977d8p-9f), z, FM_SET(-0x1.10bbf4p-7f));
    q = FM_FMA(q, z, FM_SET(0x1.648e8ep-6f));
    q = FM_FMA(q, z, FM_SET(-0x1.ba0718p-5f));
    q = FM_FMA(q, z, FM_SET(0x1.1110e4p-3f));
    q = FM_FMA(q, z, FM_SET(-0x1.555556p-2f));
    small = FM_FMA(FM_MUL(q, z), x, x);
    big = FM_ADD(FM(exp)(FM_ADD(a, a)), FM_SET(1.0f));
    big = FM_SUB(FM_SET(1.0f), FM_DIV(FM_SET(2.0f), big));
    big = FM_FLOAT(FM_IOR(FM_BITS(big), FM_IAND(sign, FM_BITS(x))));
    return FM_SEL_LT(a, FM_SET(0.625f), small, big);
}

FM_FN F FM(sigmoid)(F x)
{
    return FM_DIV(FM_SET(1.0f), FM_ADD(FM_SET(1.0f), FM(exp)(FM_SUB(FM_SET(0.0f), x))));
}

/* x * sigmoid(x) */
FM_FN F FM(silu)(F x)
{
    return FM_DIV(x, FM_ADD(FM_SET(1.0f), FM(exp)(FM_SUB(FM_SET(0.0f), x))));
}
