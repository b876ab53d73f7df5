/* ggml.c - blocks of ggml's tensor types as fp32. See ggml.h.
 *
 * In the layouts below d and m are IEEE halves, and i runs over a block's elements: which byte and
 * which bits of it element i lies in is written out once, not unrolled, since a model is converted
 * once and the compiler vectorizes what matters. */
#include "formats/ggml.h"

#include <string.h>

#include "libverl/base/half.h"

static float half(const uint8_t *x)
{
    uint16_t h;

    memcpy(&h, x, 2);
    return vl_f16_to_f32(h);
}

static void f32(float *y, const uint8_t *x)
{
    memcpy(y, x, 4);
}

static void f16(float *y, const uint8_t *x)
{
    *y = half(x);
}

static void bf16(float *y, const uint8_t *x)
{
    uint16_t h;

    memcpy(&h, x, 2);
    *y = vl_bf16_to_f32(h);
}

/* ---- blocks of 32 ---- */

/* 4 bits of element i: the low halves of 16 bytes, then the high ones. */
static int nibble(const uint8_t *q, int i)
{
    return q[i % 16] >> 4 * (i / 16) & 15;
}

/* d, 16 bytes of nibbles */
static void q4_0(float *y, const uint8_t *x)
{
    float d = half(x);

    for (int i = 0; i < 32; i++)
        y[i] = d * (float)(nibble(x + 2, i) - 8);
}

/* d, m, 16 bytes of nibbles */
static void q4_1(float *y, const uint8_t *x)
{
    float d = half(x), m = half(x + 2);

    for (int i = 0; i < 32; i++)
        y[i] = d * (float)nibble(x + 4, i) + m;
}

/* The fifth bits are those of one little-endian word, element 0 lowest. */
static int five(const uint8_t *high, const uint8_t *q, int i)
{
    return nibble(q, i) | (high[i / 8] >> i % 8 & 1) << 4;
}

/* d, 4 bytes of fifth bits, 16 bytes of nibbles */
static void q5_0(float *y, const uint8_t *x)
{
    float d = half(x);

    for (int i = 0; i < 32; i++)
        y[i] = d * (float)(five(x + 2, x + 6, i) - 16);
}

/* d, m, 4 bytes of fifth bits, 16 bytes of nibbles */
static void q5_1(float *y, const uint8_t *x)
{
    float d = half(x), m = half(x + 2);

    for (int i = 0; i < 32; i++)
        y[i] = d * (float)five(x + 4, x + 8, i) + m;
}

/* d, 32 signed bytes */
static void q8_0(float *y, const uint8_t *x)
{
    float d = half(x);

    for (int i = 0; i < 32; i++)
        y[i] = d * (float)(int8_t)x[2 + i];
}

static const int8_t nonlinear[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113 };

/* d, 16 bytes of nibbles that index the table */
static void iq4_nl(float *y, const uint8_t *x)
{
    float d = half(x);

    for (int i = 0; i < 32; i++)
        y[i] = d * (float)nonlinear[nibble(x + 2, i)];
}

/* ---- blocks of 256, with a scale for each 16 or 32 ---- */

/* 2 bits of element i: 32 bytes hold 128 elements, their lowest bits the first 32. */
static int pair(const uint8_t *q, int i)
{
    return q[i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3;
}

/* 16 bytes of scale (low half) and minimum, 64 of pairs, d, dmin */
static void q2_k(float *y, const uint8_t *x)
{
    float d = half(x + 80), dmin = half(x + 82);

    for (int i = 0; i < 256; i++) {
        float scale = d * (float)(x[i / 16] & 15), min = dmin * (float)(x[i / 16] >> 4);

        y[i] = scale * (float)pair(x + 16, i) - min;
    }
}

/* 6-bit scale s of 16: 8 bytes of low halves (the first 8 low, the others high), 4 of top pairs. */
static int scale_q3(const uint8_t *s, int k)
{
    return (s[k % 8] >> 4 * (k / 8) & 15) | (s[8 + k % 4] >> 2 * (k / 4) & 3) << 4;
}

/* 32 bytes of third bits (0 means 4 less), 64 of pairs, 12 of scales, d */
static void q3_k(float *y, const uint8_t *x)
{
    float d = half(x + 108);

    for (int i = 0; i < 256; i++) {
        float scale = d * (float)(scale_q3(x + 96, i / 16) - 32);
        int high = x[i % 32] >> i / 32 & 1;

        y[i] = scale * (float)(pair(x + 32, i) - (high ? 0 : 4));
    }
}

/* 6-bit scale and minimum k of 8 in 12 bytes: 4 scales and 4 minima, in whose top pairs the top pairs
 * of the other four of each lie, then the low halves of those. */
static void scales_q4(const uint8_t *s, int k, int *scale, int *min)
{
    if (k < 4) {
        *scale = s[k] & 63;
        *min = s[k + 4] & 63;
    } else {
        *scale = (s[k + 4] & 15) | s[k - 4] >> 6 << 4;
        *min = s[k + 4] >> 4 | s[k] >> 6 << 4;
    }
}

/* d, dmin, 12 bytes of scales and minima; with `fifth` 32 bytes of fifth bits; 128 of nibbles, each
 * 32 of which hold 64 elements */
static void q45_k(float *y, const uint8_t *x, const uint8_t *fifth, const uint8_t *q)
{
    float d = half(x), dmin = half(x + 2);

    for (int k = 0; k < 8; k++) {
        float scale, min;
        int s, m;

        scales_q4(x + 4, k, &s, &m);
        scale = d * (float)s, min = dmin * (float)m;
        for (int l = 0; l < 32; l++) {
            int v = q[k / 2 * 32 + l] >> 4 * (k % 2) & 15;

            v |= fifth ? (fifth[l] >> k & 1) << 4 : 0;
            y[32 * k + l] = scale * (float)v - min;
        }
    }
}

static void q4_k(float *y, const uint8_t *x)
{
    q45_k(y, x, NULL, x + 16);
}

static void q5_k(float *y, const uint8_t *x)
{
    q45_k(y, x, x + 16, x + 48);
}

/* 128 bytes of nibbles, each 64 of which hold 128 elements, 64 of top pairs, 16 signed scales, d */
static void q6_k(float *y, const uint8_t *x)
{
    float d = half(x + 208);

    for (int i = 0; i < 256; i++) {
        float scale = d * (float)(int8_t)x[192 + i / 16];
        int low = x[i / 128 * 64 + i % 64] >> 4 * (i % 128 / 64) & 15;

        y[i] = scale * (float)((low | pair(x + 128, i) << 4) - 32);
    }
}

/* d, 16 bits of top pairs and 4 bytes of low halves of 8 scales, 8 blocks of nibbles as iq4_nl's */
static void iq4_xs(float *y, const uint8_t *x)
{
    float d = half(x);
    int high = x[2] | x[3] << 8;

    for (int i = 0; i < 256; i++) {
        int k = i / 32, s = (x[4 + k / 2] >> 4 * (k % 2) & 15) | (high >> 2 * k & 3) << 4;
        float scale = d * (float)(s - 32);

        y[i] = scale * (float)nonlinear[nibble(x + 8 + 16 * k, i % 32)];
    }
}

static const struct vl_ggml_type table[] = {
    { "F32", 0, 1, 4, 1, f32 },
    { "F16", 1, 1, 2, 1, f16 },
    { "BF16", 30, 1, 2, 1, bf16 },
    { "Q4_0", 2, 32, 18, 0, q4_0 },
    { "Q4_1", 3, 32, 20, 0, q4_1 },
    { "Q5_0", 6, 32, 22, 0, q5_0 },
    { "Q5_1", 7, 32, 24, 0, q5_1 },
    { "Q8_0", 8, 32, 34, 0, q8_0 },
    { "Q2_K", 10, 256, 84, 0, q2_k },
    { "Q3_K", 11, 256, 110, 0, q3_k },
    { "Q4_K", 12, 256, 144, 0, q4_k },
    { "Q5_K", 13, 256, 176, 0, q5_k },
    { "Q6_K", 14, 256, 210, 0, q6_k },
    { "IQ4_NL", 20, 32, 18, 0, iq4_nl },
    { "IQ4_XS", 23, 256, 136, 0, iq4_xs },
    /* sizes alone */
    { "Q8_1", 9, 32, 36, 0, NULL },
    { "Q8_K", 15, 256, 292, 0, NULL },
    { "IQ2_XXS", 16, 256, 66, 0, NULL },
    { "IQ2_XS", 17, 256, 74, 0, NULL },
    { "IQ3_XXS", 18, 256, 98, 0, NULL },
    { "IQ1_S", 19, 256, 50, 0, NULL },
    { "IQ3_S", 21, 256, 110, 0, NULL },
    { "IQ2_S", 22, 256, 82, 0, NULL },
    { "I8", 24, 1, 1, 0, NULL },
    { "I16", 25, 1, 2, 0, NULL },
    { "I32", 26, 1, 4, 0, NULL },
    { "I64", 27, 1, 8, 0, NULL },
    { "F64", 28, 1, 8, 0, NULL },
    { "IQ1_M", 29, 256, 56, 0, NULL },
    { "TQ1_0", 34, 256, 54, 0, NULL },
    { "TQ2_0", 35, 256, 66, 0, NULL },
    { "MXFP4", 39, 32, 17, 0, NULL },
};

const struct vl_ggml_type *vl_ggml_type(uint32_t id)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].id == id)
            return &table[i];
    return NULL;
}

void vl_ggml_to_f32(const struct vl_ggml_type *t, float *to, const uint8_t *from, int64_t n)
{
    int64_t blocks = n / t->elems;

#pragma omp parallel for schedule(static) if (n > 1 << 20)
    for (int64_t i = 0; i < blocks; i++)
        t->block(to + i * t->elems, from + i * t->bytes);
}
