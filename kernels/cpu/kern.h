/* kern.h - the single-threaded inner loops that exist once per instruction set.
 *
 * Every entry gives the same bits in all tables; kern_*.c instantiate the body_*.h files over
 * simd.h. Threads, scratch and shapes are the business of the callers (linear.c, attention.c, ...).
 * Strides are in elements. */
#ifndef VL_CPU_KERN_H
#define VL_CPU_KERN_H

#include <stdint.h>

#define VL_AMX_PAIRS 16 /* pairs of bf16 in one block of an AMX tile's sum */

/* Partial log-softmax sums of one row over one chunk of the vocabulary. */
struct vl_part {
    float m; /* max z */
    float s; /* sum exp(z - m) */
    float e; /* sum exp(z - m) (z - m) */
    float q; /* sum exp(z - m)^2 */
};

/* What one AdamW element needs, computed once per call in double. */
struct vl_adamw_step {
    float decay;        /* 1 - lr * weight_decay */
    float beta1, rest1; /* beta1, 1 - beta1 */
    float beta2, rest2;
    float step;      /* lr / (1 - beta1^t) */
    float inv_sqrt2; /* 1 / sqrt(1 - beta2^t) */
    float eps, grad_scale, l2;
};
struct vl_sgd_step {
    float lr, momentum, rest, l2, grad_scale; /* rest: 1 - dampening */
    int nesterov, first;
};

enum vl_math { VL_MATH_EXP, VL_MATH_LOG, VL_MATH_TANH, VL_MATH_SIGMOID, VL_MATH_SILU };

struct vl_kern {
    const char *name;
    int nr; /* width of a weight panel, a multiple of 16 */

    /* c (M,N) = [add ? c : 0] + sum_k a(m,k) b(k,n), one accumulator per output, k ascending by
     * fmaf. a(m,k) = a[m*ars + k*aks], b(k,n) = b[k*bks + n]; nothing outside is read. next: the
     * panel, of K x nr as b then is, that will probably be b in this thread's next call, fetched
     * meanwhile; or NULL. So are the others'. */
    void (*mul)(float *c, int64_t ldc, const float *a, int64_t ars, int64_t aks, const float *b,
                int64_t bks, int64_t M, int64_t N, int64_t K, int add, const void *next);
    /* c (M,N) += sum over k in [lo[m], hi[m]) of a(m,k) b(k,n), aks = 1; lo and hi do not decrease */
    void (*mulr)(float *c, int64_t ldc, const float *a, int64_t ars, const float *b, int64_t bks,
                 int64_t M, int64_t N, const int64_t *lo, const int64_t *hi);
    /* mul over K2 pairs of bf16 (low half first): acc = fma(lo, lo', fma(hi, hi', acc)),
     * denormals as zero. a(m,k) = a[m*lda + k]. */
    void (*mul16)(float *c, int64_t ldc, const uint32_t *a, int64_t lda, const uint32_t *b,
                  int64_t bks, int64_t M, int64_t N, int64_t K2, int add, const void *next);
    /* as mul16 in the order of AMX tiles (body_amx.h): K2 is a multiple of VL_AMX_PAIRS. */
    void (*mul_amx)(float *c, int64_t ldc, const uint32_t *a, int64_t lda, const uint32_t *b,
                    int64_t bks, int64_t M, int64_t N, int64_t K2, int add, const void *next);
    /* fp32 to bf16, round to nearest even, denormals to zero, NaN quiet; odd n: one zero more */
    void (*to_bf16)(uint16_t *y, const float *x, int64_t n);
    /* y[i] = the pair x0[i], x1[i] (NULL: zero) as to_bf16 makes them */
    void (*pair)(uint32_t *y, const float *x0, const float *x1, int64_t n);
    /* y[i * ldy + k] = the pair x[2k][i], x[2k + 1][i] for i < n <= 16, k < pairs <= 16; rows of x
     * from `rows` on count as zero */
    void (*pair_t)(uint32_t *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows,
                   int64_t pairs, int64_t n);
    /* pair and pair_t of what is bf16 already */
    void (*pair16)(uint32_t *y, const uint16_t *x0, const uint16_t *x1, int64_t n);
    void (*pair16_t)(uint32_t *y, int64_t ldy, const uint16_t *x, int64_t ldx, int64_t rows,
                     int64_t pairs, int64_t n);
    /* y[k * ldy + i] = the pair x[i][2k], x[i][2k + 1] for i < rows <= 16 and the n <= 32 columns of
     * x; an odd n ends with a zero */
    void (*pair_w)(uint32_t *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, int64_t n);

    /* words of 32 bits, floats or pairs: y[k * ldy + i] = x[i * ldx + k] for i < rows <= 16, k < n
     * <= 16 */
    void (*turn)(void *y, int64_t ldy, const void *x, int64_t ldx, int64_t rows, int64_t n);
    /* Attention's products over blocks of 16 keys: s (M, 16 blocks) = q (M, K2) times block i's pairs
     * of elements k[i] (K2, 16); o (M, N) += p (M, 8 blocks) times block i's pairs of keys v[i] (8, N),
     * rows ldv apart. As mul16 block by block, or in the order of tiles, where K2 is a multiple of
     * VL_AMX_PAIRS and a block of values a product of 8 pairs. N is a multiple of 16, and all but k
     * and v have rows up to the next multiple of 16, whatever they hold. */
    void (*keys16)(float *s, int64_t lds, const uint32_t *q, int64_t ldq, const uint32_t *const *k,
                   int64_t blocks, int64_t M, int64_t K2);
    void (*keys_amx)(float *s, int64_t lds, const uint32_t *q, int64_t ldq,
                     const uint32_t *const *k, int64_t blocks, int64_t M, int64_t K2);
    void (*values16)(float *o, int64_t ldo, const uint32_t *p, int64_t ldp,
                     const uint32_t *const *v, int64_t ldv, int64_t blocks, int64_t M, int64_t N);
    void (*values_amx)(float *o, int64_t ldo, const uint32_t *p, int64_t ldp,
                       const uint32_t *const *v, int64_t ldv, int64_t blocks, int64_t M, int64_t N);
    /* both halves of n pairs, a multiple of 16 */
    int (*finite16)(const uint32_t *x, int64_t n);

    float (*largest)(const float *x, int64_t n); /* max |x| */
    /* q[k*ldq + j] = x[16k + j] / s[j] to nearest even, within +-127, k < n, j < 16 */
    void (*to_int8)(int8_t *q, int64_t ldq, const float *x, const float *s, int64_t n);
    /* whole numbers of eight bits, n a multiple of 16, to fp32, or to bf16: h[k*n + j] = the pair
     * q[2k*n + j], q[(2k+1)*n + j]. From ahead on as many bytes are fetched meanwhile. */
    void (*widen)(float *y, const int8_t *q, int64_t n, const int8_t *ahead);
    void (*widen16)(uint32_t *h, const int8_t *q, int64_t n, int64_t pairs, const int8_t *ahead);
    /* hi, lo: a row's n elements of bf16, a multiple of 32, as (256 hi + lo) times the scale returned.
     * y (M,N) = the sums over K digits, a multiple of 64, of rows a (hi, scale; lo lda bytes behind;
     * both lda long) with a panel q: blocks of 64 x 16 weights side by side, q[k/64][n/16][k/4 %
     * 16][n % 16][k % 4], nr outputs wide, times both scales: s (N) are the panel's. Any order. */
    float (*digits)(int8_t *hi, int8_t *lo, const uint32_t *h, int64_t n);
    void (*mul_digits)(float *y, int64_t ldy, const int8_t *a, int64_t lda, const int8_t *q,
                       int64_t nr, const float *s, int64_t M, int64_t N, int64_t K,
                       const int8_t *next);

    /* elementwise functions of fmath.h */
    void (*math)(enum vl_math f, float *y, const float *x, int64_t n);
    float (*dot)(const float *a, const float *b, int64_t n);
    void (*add)(float *y, const float *x, int64_t n);
    void (*scale)(float *x, float a, int64_t n);
    void (*divide)(float *y, const float *x, float a, int64_t n);       /* y = x / a */
    void (*times)(float *y, const float *a, const float *b, int64_t n); /* y[i] = a[i] b[i] */

    void (*scaled)(float *y, const float *x, float a, int64_t n);      /* y = x a, never -0 */
    void (*scaled16)(uint16_t *y, const float *x, float a, int64_t n); /* to_bf16 of x a */

    /* y = x r w, also as bf16 */
    void (*norm)(float *y, const float *x, const float *w, float r, int64_t n);
    void (*norm16)(uint16_t *y, const float *x, const float *w, float r, int64_t n);
    void (*rmsnorm_dx)(float *dx, const float *dy, const float *x, const float *w, float rstd,
                       int64_t C, int add);
    /* dw[0..n) += sum over N rows of dy * (x * rstd), row stride C */
    void (*rmsnorm_dw)(float *dw, const float *dy, const float *x, const float *rstd, int64_t N,
                       int64_t C, int64_t n);
    /* (a, b) = (a cos - b sin, a sin + b cos) */
    void (*rope)(float *a, float *b, const float *cos, const float *sin, int64_t n);
    void (*swiglu)(float *h, const float *g, const float *u, int64_t F);
    void (*swiglu16)(uint16_t *h, const float *g, const float *u, int64_t F);
    /* dg, du, and h again */
    void (*swiglu_bwd)(float *dg, float *du, float *h, const float *dh, const float *g,
                       const float *u, int64_t F);
    void (*swiglu_bwd16)(uint16_t *dg, uint16_t *du, uint16_t *h, const float *dh, const float *g,
                         const float *u, int64_t F);

    /* s[lo..hi): max, then s = exp(s - max) with zeros in the rest of the 16-aligned tiles, and the
     * sum by lanes of absolute position */
    void (*softmax)(float *s, int64_t lo, int64_t hi, float *max, float *sum);
    /* p holds scores, ds holds dP over [c0, c1), both multiples of 16: p = exp(p - lse) inside
     * [lo, hi), else 0; ds = p (ds - delta) */
    void (*softmax_bwd)(float *p, float *ds, int64_t c0, int64_t c1, int64_t lo, int64_t hi,
                        float lse, float delta);

    /* The same with results in bf16. Of s (n, a multiple of 16) [lo, hi) counts; p is zero elsewhere. */
    void (*softmax16)(uint16_t *p, const float *s, int64_t n, int64_t lo, int64_t hi, float *max,
                      float *sum);
    /* One key, n query rows (a multiple of 16) of which [lo, hi) see it: p = exp(s - lse),
     * ds = p (ds - delta), both zero elsewhere; ds in fp32 and bf16 */
    void (*softmax_bwd16)(uint16_t *p, uint16_t *ds16, float *ds, const float *s, int64_t n,
                          int64_t lo, int64_t hi, const float *lse, const float *delta);

    void (*part)(struct vl_part *o, const float *z, int64_t n);
    int (*finite)(const float *z, int64_t n); /* no NaN, no infinity */
    /* dz = -inv_temp p (dlogp + dent (log p + H)), p = exp(z - lse); in place */
    void (*head_dz)(float *z, int64_t n, float lse, float H, float dlogp, float dent,
                    float inv_temp);
    void (*exp_sub)(float *p, const float *z, float m, int64_t n); /* p = exp(z - m) */

    int64_t (*adamw)(float *p, float *m, float *v, float *vmax, const float *g, int64_t n,
                     const struct vl_adamw_step *o);
    int64_t (*sgd)(float *p, float *b, const float *g, int64_t n, const struct vl_sgd_step *o);
    double (*sumsq)(const float *x, int64_t n);
};

extern const struct vl_kern vl_kern_scalar;
#if defined(__x86_64__)
extern const struct vl_kern vl_kern_fma, vl_kern_avx2, vl_kern_avx512;
/* Puts the vdpbf16ps versions of mul16 and to_bf16 into *k. */
void vl_kern_use_avx512bf16(struct vl_kern *k);
/* Puts mul_amx on tiles into *k; 0 when the operating system does not let us have them. */
int vl_kern_use_amx(struct vl_kern *k);
#endif

#endif
