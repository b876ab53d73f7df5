/* int8.c - weights of eight bits: packing, and the product with them. See VL_FORM_INT8.
 *
 * Half the memory, and half the traffic of a decoding step. A panel is widened piece by piece into
 * operands of the compute type, in which every q is exact, and then goes through the same inner
 * loops as any other: where pieces end, and who widens them, changes no bit. Tiles multiply eight
 * bits as they are; widening would take as long as memory does. So there it is the rows that are
 * converted, once for a product: body_digits.h. */
#include "kernels/cpu/cpu.h"

#include <string.h>

#define FEW     64    /* rows up to which a piece */
#define SHORT   4096  /* of so many elements, 16 KB of the first-level cache, is best; */
#define LONG    32768 /* with more rows the second level's, so that sums pass through memory less */
#define AHEAD   2048 /* bytes between what is widened and what is fetched: what hides the latency */
#define ROWS    256  /* whose sums are kept before they are scaled: 64 KB */
#define MOST_NR 64   /* width of the widest panel */

/* Whole numbers along the reduction: what the elements of ct hold, or on tiles blocks of 64. */
static int64_t depth(enum vl_compute ct, int64_t I)
{
    return ct == VL_COMPUTE_F32    ? I
           : ct == VL_COMPUTE_BF16 ? 2 * vl_cpu_depth(ct, I)
                                   : (I + 63) / 64 * 64;
}

size_t vl_int8_bytes(const struct vl_cpu *c, int64_t O, int64_t I, enum vl_compute ct)
{
    return (size_t)(vl_cpu_panels(c, O) * c->k.nr * depth(ct, I));
}

/* q in blocks: rows as they lie, four of a row to a word, and words turned. */
static void pack_blocks(const struct vl_cpu *c, int8_t *q, const float *x, int64_t I, int64_t n,
                        const float *unit)
{
    for (int64_t k = 0; k < I; k += 64, q += 64 * c->k.nr) {
        int8_t row[16][64] = { { 0 } };
        int64_t some = I - k < 64 ? I - k : 64;

        for (int64_t i = 0; i < n; i++) {
            float part[64] = { 0 }, all[16];

            for (int j = 0; j < 16; j++)
                all[j] = unit[i];
            memcpy(part, x + i * I + k, (size_t)some * sizeof *part);
            c->k.to_int8(row[i], 16, part, all, 4);
        }
        c->k.turn(q, 16, row, 16, 16, 16);
    }
}

void vl_int8_pack(const struct vl_cpu *c, struct vl_weight *w, const float *x, int64_t row,
                  int64_t n)
{
    int64_t nr = c->k.nr, I = w->I;
    int8_t *q = (int8_t *)w->fw + row / nr * nr * depth(w->ct, I);
    float turned[16 * 16] = { 0 }, unit[16];

    for (int64_t i = 0; i < 16; i++) {
        float s = i < n ? c->k.largest(x + i * I, I) / 127 : 0;

        if (i < n)
            w->scale[row + i] = s;
        unit[i] = s > 0 ? s : 1; /* of zeros, or of numbers that no scale can tell from zero */
    }
    if (vl_int8_whole(w->form, w->ct)) {
        pack_blocks(c, q + row % nr * 64, x, I, n, unit);
        return;
    }
    for (int64_t k = 0; k < I; k += 16) {
        int64_t some = I - k < 16 ? I - k : 16;

        c->k.turn(turned, 16, x + k, I, n, some);
        c->k.to_int8(q + k * nr + row % nr, nr, turned, unit, some);
    }
}

/* Bytes of one digit of a row: a line more, for the scale and so that rows do not lie a power of two
 * apart. */
static int64_t digit_bytes(int64_t I)
{
    return depth(VL_COMPUTE_AMX, I) + 64;
}

int64_t vl_int8_digit_bytes(int64_t N, int64_t I)
{
    return 2 * N * digit_bytes(I);
}

struct digits {
    const struct vl_cpu *c;
    int8_t *d;
    struct vl_rows x;
    int64_t N, I;
};

#define DIGITS_ROWS 8 /* of a task */

static void digits_task(void *arg, int64_t t, int thread)
{
    const struct digits *j = arg;
    int64_t ld = digit_bytes(j->I), K = depth(VL_COMPUTE_AMX, j->I), n = 2 * j->x.ld;

    (void)thread;
    for (int64_t m = t * DIGITS_ROWS; m < j->N && m < (t + 1) * DIGITS_ROWS; m++) {
        int8_t *hi = j->d + 2 * m * ld, *lo = hi + ld;
        float s = j->c->k.digits(hi, lo, j->x.h + m * j->x.ld, n);

        memset(hi + n, 0, (size_t)(K - n));
        memset(lo + n, 0, (size_t)(K - n));
        memcpy(hi + K, &s, sizeof s);
    }
}

struct vl_rows vl_int8_digits(struct vl_cpu *c, struct vl_rows x, int64_t N, int64_t I)
{
    struct digits j = { c, vl_cpu_scratch(c, VL_SCRATCH_DIGITS, (size_t)vl_int8_digit_bytes(N, I)),
                        x, N, I };

    vl_cpu_run(c, (double)(N * I), (N + DIGITS_ROWS - 1) / DIGITS_ROWS, digits_task, &j);
    return (struct vl_rows){ .d = j.d, .ld = digit_bytes(I) };
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

    if (x.d) {
        c->k.mul_digits(y, ldy, x.d + 2 * m0 * x.ld, x.ld, q, nr, w->scale + p * nr, M, n,
                        depth(w->ct, w->I), next * nr < w->O ? q + (next - p) * panel : NULL);
        return;
    }
    for (int64_t m = 0; m < M; m += ROWS, y += ROWS * ldy) {
        int64_t rows = M - m < ROWS ? M - m : ROWS;

        sums(c, t, x, m0 + m, rows, q, K, w->ct);
        for (int64_t i = 0; i < rows; i++)
            c->k.times(y + i * ldy, t + i * nr, w->scale + p * nr, n);
    }
}
