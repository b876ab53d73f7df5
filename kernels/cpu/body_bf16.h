/* body_bf16.h - conversion to bf16 as vcvtneps2bf16 does it, whatever MXCSR says. */

static uint16_t bf16_of(float x)
{
    uint32_t u = (uint32_t)vl_float_bits(x), e = u & 0x7f800000u;

    if (e == 0)
        return (uint16_t)(u >> 16 & 0x8000u);
    if (e == 0x7f800000u && (u & 0x7fffffu))
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static void k_to_bf16(uint16_t *y, const float *x, int64_t n)
{
    int64_t i = 0;

#if VL_SIMD == 16 && defined(VL_DPBF16)
    for (; i + 32 <= n; i += 32)
        _mm512_storeu_si512(y + i, (__m512i)_mm512_cvtne2ps_pbh(v_load(x + i + 16), v_load(x + i)));
#endif
    for (; i < n; i++)
        y[i] = bf16_of(x[i]);
    if (n & 1)
        y[n] = 0;
}
