/* simd_scalar.h - the 16 lanes as an array: the twin every other instruction set must equal. */
#ifndef VL_CPU_SIMD_SCALAR_H
#define VL_CPU_SIMD_SCALAR_H

typedef struct {
    float v[VL_LANES];
} vf;

#define V_EACH(expr)                                                                               \
    vf r_;                                                                                         \
    for (int i = 0; i < VL_LANES; i++)                                                             \
        r_.v[i] = (expr);                                                                          \
    return r_

VL_INL vf v_set1(float x)
{
    V_EACH(x);
}
VL_INL vf v_load(const float *p)
{
    V_EACH(p[i]);
}
VL_INL void v_store(float *p, vf a)
{
    memcpy(p, a.v, sizeof a.v);
}
VL_INL vf v_load_bf16(const uint16_t *p)
{
    V_EACH(vl_bits_float((int32_t)((uint32_t)p[i] << 16)));
}
VL_INL vf v_load_i8(const int8_t *p)
{
    V_EACH((float)p[i]);
}
/* to whole numbers of eight bits, nearest even; what is above 127 becomes 127 */
VL_INL void v_store_i8(int8_t *p, vf a)
{
    for (int i = 0; i < VL_LANES; i++) {
        float whole = a.v[i] + 0x1.8p23f - 0x1.8p23f; /* no bits are left behind the point */

        p[i] = (int8_t)(whole > 127 ? 127 : whole);
    }
}
/* 16 pairs of bf16, low half first, of floats whose low 16 bits are zero */
VL_INL void v_store_pairs(uint32_t *p, vf lo, vf hi)
{
    for (int i = 0; i < VL_LANES; i++)
        p[i] = (uint32_t)vl_float_bits(lo.v[i]) >> 16 | (uint32_t)vl_float_bits(hi.v[i]);
}
VL_INL vf v_load_part(const float *p, int n)
{
    V_EACH(i < n ? p[i] : 0.0f);
}
VL_INL void v_store_part(float *p, vf a, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = a.v[i];
}
VL_INL vf v_keep_n(vf a, int n, float fill)
{
    V_EACH(i < n ? a.v[i] : fill);
}
VL_INL vf v_from_n(vf a, int n, float fill)
{
    V_EACH(i < n ? fill : a.v[i]);
}
VL_INL vf v_add(vf a, vf b)
{
    V_EACH(a.v[i] + b.v[i]);
}
VL_INL vf v_sub(vf a, vf b)
{
    V_EACH(a.v[i] - b.v[i]);
}
VL_INL vf v_mul(vf a, vf b)
{
    V_EACH(a.v[i] * b.v[i]);
}
VL_INL vf v_div(vf a, vf b)
{
    V_EACH(a.v[i] / b.v[i]);
}
VL_INL vf v_sqrt(vf a)
{
    V_EACH(sqrtf(a.v[i]));
}
/* a*b + c */
VL_INL vf v_fma(vf a, vf b, vf c)
{
    V_EACH(fmaf(a.v[i], b.v[i], c.v[i]));
}
VL_INL vf v_max(vf a, vf b)
{
    V_EACH(a.v[i] > b.v[i] ? a.v[i] : b.v[i]);
}
VL_INL vf v_exp(vf a)
{
    V_EACH(vl_expf(a.v[i]));
}
VL_INL vf v_log(vf a)
{
    V_EACH(vl_logf(a.v[i]));
}
VL_INL vf v_tanh(vf a)
{
    V_EACH(vl_tanhf(a.v[i]));
}
VL_INL vf v_sigmoid(vf a)
{
    V_EACH(vl_sigmoidf(a.v[i]));
}
VL_INL vf v_silu(vf a)
{
    V_EACH(vl_siluf(a.v[i]));
}
VL_INL float v_sum(vf a)
{
    for (int w = 8; w; w /= 2)
        for (int i = 0; i < w; i++)
            a.v[i] = a.v[i] + a.v[i + w];
    return a.v[0];
}
VL_INL float v_hmax(vf a)
{
    for (int w = 8; w; w /= 2)
        for (int i = 0; i < w; i++)
            a.v[i] = a.v[i] > a.v[i + w] ? a.v[i] : a.v[i + w];
    return a.v[0];
}
/* lanes whose bits differ */
VL_INL int v_differ(vf a, vf b)
{
    int n = 0;

    for (int i = 0; i < VL_LANES; i++)
        n += vl_float_bits(a.v[i]) != vl_float_bits(b.v[i]);
    return n;
}

/* 16 double lanes: sum of squares of floats (the products are exact). */
typedef struct {
    double v[VL_LANES];
} vd;

VL_INL vd vd_zero(void)
{
    return (vd){ { 0 } };
}
VL_INL vd vd_add_sq(vd s, vf x)
{
    for (int i = 0; i < VL_LANES; i++)
        s.v[i] = s.v[i] + (double)x.v[i] * (double)x.v[i];
    return s;
}
VL_INL double vd_sum(vd a)
{
    for (int w = 8; w; w /= 2)
        for (int i = 0; i < w; i++)
            a.v[i] = a.v[i] + a.v[i + w];
    return a.v[0];
}

#endif
