/* linear.c - packed weights and the products with them. Orders of summation: cpu.h, backend.h.
 *
 * Weights are packed once per load or optimizer step into panels as wide as one tile, so that the
 * inner loop streams them; x stays row-major. The reduction is cut at fixed K_BLOCK steps for the
 * cache only: the accumulator goes through memory, which changes no bit. */
#include "kernels/cpu/cpu.h"

#include "libverl/base/mem.h"

#include <stdlib.h>
#include <string.h>

#define K_BLOCK 1024 /* of a panel: 256 KB at 64 columns */

int64_t vl_cpu_panels(const struct vl_cpu *c, int64_t n)
{
    return (n + c->k.nr - 1) / c->k.nr;
}

/* Elements of a packed side with `out` outputs reduced over `in`: fp32, or pairs of bf16. */
static size_t side_elems(const struct vl_cpu *c, int64_t out, int64_t in, enum vl_compute ct)
{
    return (size_t)(vl_cpu_panels(c, out) * c->k.nr * vl_cpu_depth(ct, in));
}

size_t vl_cpu_weight_bytes(void *ctx, int64_t O, int64_t I, enum vl_compute ct, enum vl_form form)
{
    if (form == VL_FORM_INT8)
        return vl_int8_bytes(ctx, O, I, ct) + (size_t)O * sizeof(float);
    return 4 *
           (side_elems(ctx, O, I, ct) + (form == VL_FORM_TRAIN ? side_elems(ctx, I, O, ct) : 0));
}

int vl_cpu_weight_new(void *ctx, struct vl_weight **out, int64_t O, int64_t I, enum vl_compute ct,
                      enum vl_form form, struct vl_err *e)
{
    struct vl_weight *w;
    int int8 = form == VL_FORM_INT8, train = form == VL_FORM_TRAIN;

    if (vl_int8_whole(form, ct) && I > VL_INT8_MOST)
        return vl_fail(e, VL_E_DATA,
                       "a weight matrix of eight bits with %lld inputs, at most %d with --compute "
                       "amx (try --compute bf16)",
                       (long long)I, VL_INT8_MOST);
    w = vl_alloc(sizeof *w);
    *w = (struct vl_weight){ .O = O, .I = I, .ct = ct, .form = form };
    w->fw = vl_cpu_piece(ctx, int8 ? vl_int8_bytes(ctx, O, I, ct) : 4 * side_elems(ctx, O, I, ct));
    if (train)
        w->bw = vl_cpu_piece(ctx, 4 * side_elems(ctx, I, O, ct));
    if (int8)
        w->scale = vl_cpu_piece(ctx, (size_t)O * sizeof *w->scale);
    if (!w->fw || (train && !w->bw) || (int8 && !w->scale)) {
        vl_cpu_weight_free(ctx, w);
        return vl_fail(e, VL_E_OS, "cannot allocate %zu bytes for a weight matrix of %lld x %lld",
                       vl_cpu_weight_bytes(ctx, O, I, ct, form), (long long)O, (long long)I);
    }
    *out = w;
    return 0;
}

void vl_cpu_weight_free(void *ctx, struct vl_weight *w)
{
    if (!w)
        return;
    vl_cpu_piece_free(ctx, w->fw);
    vl_cpu_piece_free(ctx, w->bw);
    vl_cpu_piece_free(ctx, w->scale);
    free(w);
}

/* A panel's place for output (of fw) or column (of bw) j, `depth` elements deep. */
static float *panel_of(void *side, int64_t j, int64_t depth, int64_t nr)
{
    return (float *)side + j / nr * nr * depth + j % nr; /* pairs take as much */
}

/* n <= VL_PACK_ROWS outputs of fw from their rows, which are turned; bw's elements of the reduction,
 * or pairs of them, lie as they are in W. What no element of W fills stays zero, as it was made. */
static void pack_some(const struct vl_cpu *c, struct vl_weight *w, const float *x, int64_t row,
                      int64_t n)
{
    int64_t nr = c->k.nr, I = w->I, depth = vl_cpu_depth(w->ct, w->O);
    float *fw = panel_of(w->fw, row, vl_cpu_depth(w->ct, I), nr);

    if (w->ct == VL_COMPUTE_F32)
        for (int64_t k = 0; k < I; k += 16)
            c->k.turn(fw + k * nr, nr, x + k, I, n, I - k < 16 ? I - k : 16);
    else
        for (int64_t k = 0; k < I; k += 32)
            c->k.pair_w((uint32_t *)(void *)fw + k / 2 * nr, nr, x + k, I, n,
                        I - k < 32 ? I - k : 32);
    for (int64_t j = 0; j < I && w->form == VL_FORM_TRAIN; j += nr) {
        int64_t width = I - j < nr ? I - j : nr;
        float *bw = panel_of(w->bw, j, depth, nr);
        uint32_t *pairs = (uint32_t *)(void *)bw;

        for (int64_t i = 0; i < n && w->ct == VL_COMPUTE_F32; i++)
            memcpy(bw + (row + i) * nr, x + i * I + j, (size_t)width * sizeof *bw);
        for (int64_t i = 0; i < n && w->ct != VL_COMPUTE_F32; i += 2)
            c->k.pair(pairs + (row + i) / 2 * nr, x + i * I + j,
                      i + 1 < n ? x + (i + 1) * I + j : NULL, width);
    }
}

void vl_cpu_pack_rows(const struct vl_cpu *c, struct vl_weight *w, const float *x, int64_t row,
                      int64_t n)
{
    for (int64_t i = 0; i < n; i += VL_PACK_ROWS) {
        int64_t some = n - i < VL_PACK_ROWS ? n - i : VL_PACK_ROWS;

        if (w->form == VL_FORM_INT8)
            vl_int8_pack(c, w, x + i * w->I, row + i, some);
        else
            pack_some(c, w, x + i * w->I, row + i, some);
    }
}

struct pack {
    const struct vl_cpu *c;
    struct vl_weight *w;
    const float *x;
};

static void pack_task(void *arg, int64_t t, int thread)
{
    const struct pack *j = arg;
    int64_t row = t * VL_BLOCK_ROWS, n = j->w->O - row;

    (void)thread;
    vl_cpu_pack_rows(j->c, j->w, j->x + row * j->w->I, row, n < VL_BLOCK_ROWS ? n : VL_BLOCK_ROWS);
}

void vl_cpu_weight_set(void *ctx, struct vl_weight *w, const float *dev)
{
    struct vl_cpu *c = ctx;
    struct pack j = { c, w, dev };

    vl_cpu_run(c, (double)w->O * (double)w->I, (w->O + VL_BLOCK_ROWS - 1) / VL_BLOCK_ROWS,
               pack_task, &j);
}

void vl_cpu_weight_rows(void *ctx, struct vl_weight *w, const float *x, int64_t row, int64_t n)
{
    vl_cpu_pack_rows(ctx, w, x, row, n);
}

void vl_cpu_to_pairs(const struct vl_cpu *c, uint32_t *h, const float *x, int64_t n,
                     enum vl_compute ct)
{
    int64_t pairs = (n + 1) / 2;

    c->k.to_bf16((uint16_t *)h, x, n);
    memset(h + pairs, 0, (size_t)(vl_cpu_depth(ct, n) - pairs) * sizeof *h);
}

struct convert {
    const struct vl_cpu *c;
    const float *x;
    uint32_t *h;
    int64_t N, I, ld;
    enum vl_compute ct;
};

#define CONVERT_ROWS 8

static void convert_task(void *arg, int64_t t, int thread)
{
    const struct convert *j = arg;

    (void)thread;
    for (int64_t n = t * CONVERT_ROWS; n < j->N && n < (t + 1) * CONVERT_ROWS; n++)
        vl_cpu_to_pairs(j->c, j->h + n * j->ld, j->x + n * j->I, j->I, j->ct);
}

size_t vl_cpu_operand_bytes(void *ctx, int64_t I, enum vl_compute ct)
{
    (void)ctx;
    return (size_t)vl_cpu_depth(ct, I) * sizeof(float);
}

const void *vl_cpu_operand(void *ctx, void *o, const float *x, int64_t N, int64_t I,
                           enum vl_compute ct)
{
    struct vl_cpu *c = ctx;
    struct convert j = { c, x, o, N, I, vl_cpu_depth(ct, I), ct };

    if (ct == VL_COMPUTE_F32)
        return x;
    vl_cpu_run(c, (double)(N * I), (N + CONVERT_ROWS - 1) / CONVERT_ROWS, convert_task, &j);
    return o;
}

struct vl_rows vl_cpu_rows_for(struct vl_cpu *c, const void *x, int64_t N,
                               const struct vl_weight *w)
{
    struct vl_rows r = vl_cpu_rows_of(x, w->I, w->ct);

    return vl_int8_whole(w->form, w->ct) ? vl_int8_digits(c, r, N, w->I) : r;
}

struct vl_rows vl_cpu_rows(struct vl_cpu *c, const float *x, int64_t N, const struct vl_weight *w)
{
    void *o = NULL;

    if (w->ct != VL_COMPUTE_F32)
        o = vl_cpu_scratch(c, VL_SCRATCH_X, (size_t)N * vl_cpu_operand_bytes(c, w->I, w->ct));
    return vl_cpu_rows_for(c, vl_cpu_operand(c, o, x, N, w->I, w->ct), N, w);
}

void vl_cpu_mul_block(const struct vl_cpu *c, float *y, int64_t ldy, struct vl_rows x, int64_t m0,
                      int64_t k, int64_t M, const void *panel, int64_t n, int64_t d,
                      enum vl_compute ct, int add, const void *next)
{
    int64_t nr = c->k.nr;

    if (ct == VL_COMPUTE_F32)
        c->k.mul(y, ldy, x.f + m0 * x.ld + k, x.ld, 1, panel, nr, M, n, d, add, next);
    else if (ct == VL_COMPUTE_BF16)
        c->k.mul16(y, ldy, x.h + m0 * x.ld + k, x.ld, panel, nr, M, n, d, add, next);
    else
        c->k.mul_amx(y, ldy, x.h + m0 * x.ld + k, x.ld, panel, nr, M, n, d, add, next);
}

/* y (M, n) = rows m0.. of x times one packed panel, k in [k0, k0 + kn) of the reduction (elements
 * of x's kind: floats or pairs). */
static void mul_panel(const struct vl_cpu *c, float *y, int64_t ldy, struct vl_rows x, int64_t m0,
                      int64_t M, const void *panel, int64_t n, int64_t k0, int64_t kn,
                      enum vl_compute ct, int add, const uint32_t *next)
{
    int64_t nr = c->k.nr;

    for (int64_t k = 0; k < kn; k += K_BLOCK) {
        int64_t d = kn - k < K_BLOCK ? kn - k : K_BLOCK;

        vl_cpu_mul_block(c, y, ldy, x, m0, k, M, (const uint32_t *)panel + (k0 + k) * nr, n, d, ct,
                         add || k, next ? next + (k0 + k) * nr : NULL);
    }
}

void vl_cpu_tile_y(const struct vl_cpu *c, float *y, int64_t ldy, struct vl_rows x, int64_t m0,
                   int64_t M, const struct vl_weight *w, int64_t p, int64_t next)
{
    int64_t nr = c->k.nr, n = w->O - p * nr < nr ? w->O - p * nr : nr;
    int64_t K = vl_cpu_depth(w->ct, w->I);
    const uint32_t *ahead = next * nr < w->O ? (const uint32_t *)w->fw + next * nr * K : NULL;

    if (w->form == VL_FORM_INT8) {
        vl_int8_tile_y(c, y, ldy, x, m0, M, w, p, next);
        return;
    }
    mul_panel(c, y, ldy, x, m0, M, (const float *)w->fw + p * nr * K, n, 0, K, w->ct, 0, ahead);
}

void vl_cpu_tile_dx(const struct vl_cpu *c, float *dx, int64_t ldx, struct vl_rows dy, int64_t m0,
                    int64_t M, const struct vl_weight *w, int64_t p, int64_t next, int64_t o0,
                    int64_t on, int add)
{
    int64_t nr = c->k.nr, n = w->I - p * nr < nr ? w->I - p * nr : nr;
    int64_t K = vl_cpu_depth(w->ct, w->O);
    const uint32_t *ahead = next * nr < w->I ? (const uint32_t *)w->bw + next * nr * K : NULL;

    mul_panel(c, dx, ldx, dy, m0, M, (const float *)w->bw + p * nr * K, n,
              w->ct == VL_COMPUTE_F32 ? o0 : o0 / 2, vl_cpu_depth(w->ct, on), w->ct, add, ahead);
}

/* Rows of a task: x rows stay in half the second-level cache, and there is work for all threads. On
 * tiles all rows at once where they fit: what counts there is how often the weights are read. */
int64_t vl_cpu_row_block(const struct vl_cpu *c, int64_t N, int64_t K, int64_t panels,
                         enum vl_compute ct)
{
    int64_t mb = 262144 / (K < K_BLOCK ? K : K_BLOCK) / 24 * 24, want = 4 * c->threads;

    if (ct == VL_COMPUTE_AMX) {
        mb = (512 << 10) / (K + 1) / 32 * 32;
        mb = mb < 32 ? 32 : mb > 2048 ? 2048 : mb;
        while (mb > 128 && (N + mb - 1) / mb * panels < want)
            mb = mb / 64 * 32;
        return mb;
    }

    mb = mb < 24 ? 24 : mb > 528 ? 528 : mb;
    while (mb > 24 && (N + mb - 1) / mb * panels < want)
        mb = mb / 2 / 6 * 6;
    return mb;
}

struct mul {
    const struct vl_cpu *c;
    float *y; /* y or dx */
    struct vl_rows x;
    const struct vl_weight *w;
    const float *bias, *add;
    int64_t N, mb, np; /* rows, rows of a task, panels */
    /* the first so many tasks have all their rows; those behind are cut into so many */
    int64_t whole, parts;
};

/* The last round of tasks leaves threads idle where their number is no multiple of the threads': its
 * rows are divided. The tasks in all. */
static int64_t divide(struct mul *j)
{
    int64_t tasks = (j->N + j->mb - 1) / j->mb * j->np, left = tasks % j->c->threads;
    int64_t rows = j->N - (j->N - 1) / j->mb * j->mb; /* of the last tasks */
    int64_t least = j->w->ct == VL_COMPUTE_AMX ? 32 : 12;

    j->whole = tasks - left;
    j->parts = left ? j->c->threads / left : 1;
    j->parts = j->parts * least > rows ? rows / least : j->parts;
    j->parts = j->parts < 1 ? 1 : j->parts;
    return j->whole + left * j->parts;
}

/* A task's panel and rows; there may be none. */
static int64_t place(const struct mul *j, int64_t t, int64_t *m0, int64_t *M)
{
    int64_t parts = t < j->whole ? 1 : j->parts, part = t < j->whole ? 0 : (t - j->whole) % parts;
    int64_t task = t < j->whole ? t : j->whole + (t - j->whole) / parts, rows;
    int64_t step = j->w->ct == VL_COMPUTE_AMX ? 32 : 6;

    *m0 = task / j->np * j->mb;
    rows = j->N - *m0 < j->mb ? j->N - *m0 : j->mb;
    *M = (rows + parts * step - 1) / (parts * step) * step;
    *m0 += part * *M;
    *M = rows - part * *M < *M ? rows - part * *M : *M;
    return task % j->np;
}

static void linear_task(void *arg, int64_t t, int thread)
{
    const struct mul *j = arg;
    int64_t O = j->w->O, nr = j->c->k.nr, m0, M, p = place(j, t, &m0, &M);
    int64_t n = O - p * nr < nr ? O - p * nr : nr;
    float *y = j->y + m0 * O + p * nr;

    (void)thread;
    if (M <= 0)
        return;
    vl_cpu_tile_y(j->c, y, O, j->x, m0, M, j->w, p, p + j->c->threads);
    for (int64_t m = 0; m < M && (j->bias || j->add); m++) {
        if (j->bias)
            j->c->k.add(y + m * O, j->bias + p * nr, n);
        if (j->add)
            j->c->k.add(y + m * O, j->add + (m0 + m) * O + p * nr, n);
    }
}

static double work_of(const struct vl_weight *w, int64_t N)
{
    return (double)N * (double)w->O * (double)w->I / 8;
}

void vl_cpu_linear(void *ctx, float *y, const void *x, const struct vl_weight *w, const float *bias,
                   const float *add, int64_t N)
{
    struct vl_cpu *c = ctx;
    int64_t np = vl_cpu_panels(c, w->O), mb = vl_cpu_row_block(c, N, w->I, np, w->ct);
    struct mul j = { c, y, vl_cpu_rows_for(c, x, N, w), w, bias, add, N, .mb = mb, .np = np };

    vl_cpu_run(c, work_of(w, N), divide(&j), linear_task, &j);
}

static void dx_task(void *arg, int64_t t, int thread)
{
    const struct mul *j = arg;
    int64_t I = j->w->I, m0, M, p = place(j, t, &m0, &M);

    (void)thread;
    if (M > 0)
        vl_cpu_tile_dx(j->c, j->y + m0 * I + p * j->c->k.nr, I, j->x, m0, M, j->w, p,
                       p + j->c->threads, 0, j->w->O, 0);
}

void vl_cpu_linear_dx(void *ctx, float *dx, const void *dy, const struct vl_weight *w, int64_t N)
{
    struct vl_cpu *c = ctx;
    int64_t np = vl_cpu_panels(c, w->I), mb = vl_cpu_row_block(c, N, w->O, np, w->ct);
    struct mul j = {
        .c = c, .y = dx, .x = vl_cpu_rows_of(dy, w->O, w->ct), .w = w, .N = N, .mb = mb, .np = np
    };

    vl_cpu_run(c, work_of(w, N), divide(&j), dx_task, &j);
}
