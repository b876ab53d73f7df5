/* int8.c - weights of eight bits: packing, and the product with them. See VL_FORM_INT8.
 *
 * Half the memory, and half the traffic of a decoding step. A panel is widened piece by piece into
 * operands of the compute type, in which every q is exact, and then goes through the same inner
 * loops as any other: where pieces end, and who widens them, changes no bit. */
#include "kernels/cpu/cpu.h"

#define FEW     64    /* rows up to which a piece */
#define SHORT   4096  /* of so many elements, 16 KB of the first-level cache, is best; */
#define LONG    32768 /* with more rows the second level's, so that sums pass through memory less */
#define AHEAD   2048 /* bytes between what is widened and what is fetched: what hides the latency */
#define ROWS    256  /* whose sums are kept before they are scaled: 64 KB */
#define MOST_NR 64   /* width of the widest panel */

/* Whole numbers along the reduction: what the elements of ct hold. */
static int64_t depth(enum vl_compute ct, int64_t I)
{
    return vl_cpu_depth(ct, I) * (ct == VL_COMPUTE_F32 ? 1 : 2);
}

size_t vl_int8_bytes(const struct vl_cpu *c, int64_t O, int64_t I, enum vl_compute ct)
{
    return (size_t)(vl_cpu_panels(c, O) * c->k.nr * depth(ct, I));
}

void vl_int8_pack(const struct vl_cpu *c, struct vl_weight *w, const float *x, int64_t row,
                  int64_t n)
{
    int64_t nr = c->k.nr, I = w->I;
    int8_t *q = (int8_t *)w->fw + row / nr * nr * depth(w->ct, I) + row % nr;
    float turned[16 * 16] = { 0 }, unit[16];

    for (int64_t i = 0; i < 16; i++) {
        float s = i < n ? c->k.largest(x + i * I, I) / 127 : 0;

        if (i < n)
            w->scale[row + i] = s;
        unit[i] = s > 0 ? s : 1; /* of zeros, or of numbers that no scale can tell from zero */
    }
    for (int64_t k = 0; k < I; k += 16) {
        int64_t some = I - k < 16 ? I - k : 16;

        c->k.turn(turned, 16, x + k, I, n, some);
        c->k.to_int8(q + k * nr, nr, turned, unit, some);
    }
}

/* t (M, nr) = rows m0.. of x times panel q, without the scales. */
static void sums(const struct vl_cpu *c, float *t, struct vl_rows x, int64_t m0, int64_t M,
                 const int8_t *q, int64_t K, enum vl_compute ct)
{
    _Alignas(64) uint32_t wide[LONG];
    int64_t nr = c->k.nr, step = (M <= FEW ? SHORT : LONG) / nr;
    int64_t row = ct == VL_COMPUTE_F32 ? nr : 2 * nr; /* bytes for one of K */

    for (int64_t k = 0; k < K; k += step, q += step * row) {
        int64_t d = K - k < step ? K - k : step;

        if (ct == VL_COMPUTE_F32)
            c->k.widen((float *)(void *)wide, q, d * nr, q + AHEAD);
        else
            c->k.widen16(wide, q, nr, d, q + AHEAD);
        vl_cpu_mul_block(c, t, nr, x, m0, k, M, wide, nr, d, ct, k > 0, NULL);
    }
}

void vl_int8_tile_y(const struct vl_cpu *c, float *y, int64_t ldy, struct vl_rows x, int64_t m0,
                    int64_t M, const struct vl_weight *w, int64_t p, int64_t next)
{
    _Alignas(64) float t[ROWS * MOST_NR];
    int64_t nr = c->k.nr, n = w->O - p * nr < nr ? w->O - p * nr : nr;
    int64_t K = vl_cpu_depth(w->ct, w->I), panel = nr * depth(w->ct, w->I);
    const int8_t *q = (const int8_t *)w->fw + p * panel;
    const int8_t *then = next * nr < w->O ? q + (next - p) * panel : q;

    for (int64_t m = 0; m < M; m += ROWS, y += ROWS * ldy) {
        int64_t rows = M - m < ROWS ? M - m : ROWS;

        if (w->ct == VL_COMPUTE_AMX && c->k.mul_amxq && M <= VL_AMXQ_ROWS)
            c->k.mul_amxq(t, nr, x.h + m0 * x.ld, x.ld, q, M, K, then);
        else
            sums(c, t, x, m0 + m, rows, q, K, w->ct);
        for (int64_t i = 0; i < rows; i++)
            c->k.times(y + i * ldy, t + i * nr, w->scale + p * nr, n);
    }
}
