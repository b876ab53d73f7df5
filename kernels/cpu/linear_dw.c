/* linear_dw.c - gradients of weights and biases: dW = or += dy^T x, summed over the rows of a batch.
 *
 * Rows are the reduction here, and a batch may come in pieces that end between any two sequences. In
 * fp32 one accumulator takes row after row, so no cut shows. In the half types a step of the product
 * is a pair of rows, or a block of 32 on tiles: pairs and blocks are counted from each sequence's
 * first row and filled up with zeros at its end, which again no cut between sequences can change. */
#include "kernels/cpu/cpu.h"

#include "libverl/base/fmath.h"

#include <string.h>

/* ---- fp32 ---- */

/* The second factor of dW = dy^T x in panels of the tile's width: each is read O / 6 times. */
struct dw {
    const struct vl_cpu *c;
    float *dw, *px;
    const float *dy, *x;
    int64_t N, O, I, np, no;
    float *buf;
    size_t stride;
    int add;
};

#define DW_ROWS  48  /* outputs o of a task */
#define DW_BLOCK 128 /* rows n at a time */
#define PX_ROWS  16

static void panels_task(void *arg, int64_t t, int thread)
{
    const struct dw *j = arg;
    int64_t nr = j->c->k.nr;

    (void)thread;
    for (int64_t n = t * PX_ROWS; n < j->N && n < (t + 1) * PX_ROWS; n++)
        for (int64_t p = 0; p < j->np; p++) {
            int64_t w = j->I - p * nr < nr ? j->I - p * nr : nr;

            memcpy(j->px + (p * j->N + n) * nr, j->x + n * j->I + p * nr,
                   (size_t)w * sizeof(float));
        }
}

/* dy's columns are copied side by side first: their stride often is a multiple of 4096 bytes, and
 * then all rows compete for one set of the cache. */
static void dw_task(void *arg, int64_t t, int thread)
{
    const struct dw *j = arg;
    int64_t nr = j->c->k.nr, p = t / j->no, o = t % j->no * DW_ROWS;
    int64_t m = j->O - o < DW_ROWS ? j->O - o : DW_ROWS,
            w = j->I - p * nr < nr ? j->I - p * nr : nr;
    float *dy = j->buf + (size_t)thread * j->stride;

    for (int64_t n = 0; n < j->N; n += DW_BLOCK) {
        int64_t k = j->N - n < DW_BLOCK ? j->N - n : DW_BLOCK;

        for (int64_t i = 0; i < k; i++)
            memcpy(dy + i * DW_ROWS, j->dy + (n + i) * j->O + o, (size_t)m * sizeof *dy);
        j->c->k.mul(j->dw + o * j->I + p * nr, j->I, dy, 1, DW_ROWS, j->px + (p * j->N + n) * nr,
                    nr, m, w, k, j->add || n, NULL);
    }
}

static void dw_f32(struct vl_cpu *c, float *dw, const float *dy, const float *x, int64_t N,
                   int64_t O, int64_t I, int add)
{
    struct dw j = { .c = c,
                    .dw = dw,
                    .dy = dy,
                    .x = x,
                    .N = N,
                    .O = O,
                    .I = I,
                    .np = vl_cpu_panels(c, I),
                    .no = (O + DW_ROWS - 1) / DW_ROWS,
                    .add = add };
    double work = (double)N * (double)O * (double)I / 8;

    j.px = vl_cpu_scratch(c, VL_SCRATCH_A, (size_t)(j.np * c->k.nr * N) * sizeof *j.px);
    j.buf = vl_cpu_thread_scratch(c, DW_ROWS * DW_BLOCK, &j.stride);
    vl_cpu_run(c, work, (N + PX_ROWS - 1) / PX_ROWS, panels_task, &j);
    vl_cpu_run(c, work, j.np * j.no, dw_task, &j);
}

/* ---- half types ---- */

#define AT_COLS  256 /* outputs o of a task that transposes, or multiplies on tiles */
#define AT_LINE  16  /* pairs of a line: rows of at lie an odd number of lines apart */
#define PAIR_ROW 32  /* rows of a task that pairs */

/* One block of at most PAIR_ROW rows of a sequence and its place among the pairs. */
struct vl_dw_block {
    int64_t row, rows, pair;
};

/* Cuts rows [r0, r0 + N) at runs' bounds; runs NULL: one sequence. Returns how many blocks. */
static int64_t cut_blocks(struct vl_dw_block *b, int64_t *pairs, int64_t r0, int64_t N,
                          const struct vl_runs *runs, enum vl_compute ct)
{
    int64_t n = 0, at = 0, nruns = runs ? runs->n : 1;

    for (int64_t i = 0; i < nruns; i++) {
        int64_t from = runs ? runs->from[i] : r0, to = runs ? runs->from[i + 1] : r0 + N;

        from = from > r0 ? from : r0; /* r0 is a bound, or whole blocks after one */
        to = to < r0 + N ? to : r0 + N;
        for (; from < to; from += PAIR_ROW) {
            int64_t rows = to - from < PAIR_ROW ? to - from : PAIR_ROW;

            if (b)
                b[n] = (struct vl_dw_block){ from - r0, rows, at };
            at += vl_cpu_depth(ct, rows);
            n++;
        }
    }
    *pairs = at;
    return n;
}

int64_t vl_cpu_dw_end(int64_t r0, int64_t most, int64_t N, const struct vl_runs *runs)
{
    int64_t end = r0 + most, from = r0;

    if (end >= N)
        return N;
    for (int64_t i = 0; runs && i < runs->n && runs->from[i] <= end; i++)
        from = runs->from[i] > from ? runs->from[i] : from; /* of the sequence that holds end */
    return from + (end - from) / PAIR_ROW * PAIR_ROW;
}

struct half {
    const struct vl_cpu *c;
    const struct vl_dw_block *block;
    enum vl_compute ct;
    float *dw;
    const uint16_t *dy, *x;
    uint32_t *at, *px; /* (O, lda) pairs of dy's rows; panels of (pairs, nr) of x's */
    int64_t O, I, ldx, ldy, pairs, lda, blocks, np, rows;
    int add;
};

static void px_task(void *arg, int64_t t, int thread)
{
    const struct half *j = arg;
    const struct vl_dw_block *b = j->block + t;
    int64_t nr = j->c->k.nr, pairs = vl_cpu_depth(j->ct, b->rows);

    (void)thread;
    for (int64_t k = 0; k < pairs; k++)
        for (int64_t p = 0; p < j->np; p++) {
            int64_t w = j->I - p * nr < nr ? j->I - p * nr : nr;
            uint32_t *to = j->px + (p * j->pairs + b->pair + k) * nr;
            const uint16_t *x = j->x + (b->row + 2 * k) * j->ldx + p * nr;

            if (2 * k < b->rows)
                j->c->k.pair16(to, x, 2 * k + 1 < b->rows ? x + j->ldx : NULL, w);
            else
                memset(to, 0, (size_t)w * sizeof *to);
            memset(to + w, 0, (size_t)(nr - w) * sizeof *to);
        }
}

static void at_task(void *arg, int64_t t, int thread)
{
    const struct half *j = arg;
    const struct vl_dw_block *b = j->block + t % j->blocks;
    int64_t o = t / j->blocks * AT_COLS, end = o + AT_COLS < j->O ? o + AT_COLS : j->O;
    int64_t pairs = vl_cpu_depth(j->ct, b->rows);

    (void)thread;
    for (; o < end; o += 16)
        j->c->k.pair16_t(j->at + o * j->lda + b->pair, j->lda, j->dy + b->row * j->ldy + o, j->ldy,
                         b->rows, pairs, end - o < 16 ? end - o : 16);
}

static void half_task(void *arg, int64_t t, int thread)
{
    const struct half *j = arg;
    int64_t nr = j->c->k.nr, p = t % j->np, o = t / j->np * j->rows;
    int64_t m = j->O - o < j->rows ? j->O - o : j->rows;
    int64_t w = j->I - p * nr < nr ? j->I - p * nr : nr;
    float *dw = j->dw + o * j->I + p * nr;
    const uint32_t *a = j->at + o * j->lda, *b = j->px + p * j->pairs * nr;

    (void)thread;
    if (j->ct == VL_COMPUTE_BF16)
        j->c->k.mul16(dw, j->I, a, j->lda, b, nr, m, w, j->pairs, j->add, NULL);
    else
        j->c->k.mul_amx(dw, j->I, a, j->lda, b, nr, m, w, j->pairs, j->add, NULL);
}

void vl_cpu_dw_x(struct vl_cpu *c, struct vl_dw *d, const void *x, int64_t r0, int64_t N, int64_t I,
                 enum vl_compute ct, const struct vl_runs *runs)
{
    int64_t ld = 2 * vl_cpu_depth(ct, I);
    struct half j = { .c = c,
                      .ct = ct,
                      .x = (const uint16_t *)x + r0 * ld,
                      .I = I,
                      .ldx = ld,
                      .np = vl_cpu_panels(c, I) };
    struct vl_dw_block *b;

    *d = (struct vl_dw){ .ct = ct, .I = I };
    d->blocks = cut_blocks(NULL, &d->pairs, r0, N, runs, ct);
    b = vl_cpu_scratch(c, VL_SCRATCH_BLOCKS, (size_t)d->blocks * sizeof *b + 1);
    cut_blocks(b, &d->pairs, r0, N, runs, ct);
    d->px = vl_cpu_scratch(c, VL_SCRATCH_PX, (size_t)(j.np * c->k.nr * d->pairs) * sizeof *d->px);
    d->block = b;
    j.block = b, j.px = d->px, j.pairs = d->pairs;
    vl_cpu_run(c, (double)N * (double)I, d->blocks, px_task, &j);
}

void vl_cpu_dw_add(struct vl_cpu *c, const struct vl_dw *d, float *dw, const uint16_t *dy,
                   int64_t ldy, int64_t O, int add)
{
    struct half j = { .c = c,
                      .block = d->block,
                      .ct = d->ct,
                      .dw = dw,
                      .dy = dy,
                      .px = d->px,
                      .O = O,
                      .I = d->I,
                      .ldy = ldy,
                      .pairs = d->pairs,
                      .blocks = d->blocks,
                      .rows = AT_COLS,
                      .add = add,
                      .np = vl_cpu_panels(c, d->I) };

    j.lda = (d->pairs + AT_LINE - 1) / AT_LINE * AT_LINE;
    j.lda += j.lda / AT_LINE % 2 ? 0 : AT_LINE;
    j.at = vl_cpu_scratch(c, VL_SCRATCH_AT, (size_t)(O * j.lda) * sizeof *j.at);
    while (j.rows > 32 && (O + j.rows - 1) / j.rows * j.np < 4 * c->threads)
        j.rows /= 2;
    vl_cpu_run(c, (double)d->pairs * (double)O, (O + AT_COLS - 1) / AT_COLS * d->blocks, at_task,
               &j);
    vl_cpu_run(c, (double)d->pairs * (double)O * (double)d->I / 8, (O + j.rows - 1) / j.rows * j.np,
               half_task, &j);
}

void vl_cpu_linear_dw(void *ctx, float *dw, const void *dy, const void *x, int64_t N, int64_t O,
                      int64_t I, enum vl_compute ct, const struct vl_runs *runs, int add)
{
    int64_t pairs, most = N, end, ldy = 2 * vl_cpu_depth(ct, O);
    struct vl_dw d;

    if (ct == VL_COMPUTE_F32) {
        dw_f32(ctx, dw, dy, x, N, O, I, add);
        return;
    }
    cut_blocks(NULL, &pairs, 0, N, runs, ct);
    if (pairs > N + PAIR_ROW) /* sequences of a few rows are mostly zeros: not all at once */
        most = N * N / pairs + PAIR_ROW;
    for (int64_t n = 0; n < N; n = end) {
        end = vl_cpu_dw_end(n, most, N, runs);
        vl_cpu_dw_x(ctx, &d, x, n, end - n, I, ct, runs);
        vl_cpu_dw_add(ctx, &d, dw, (const uint16_t *)dy + n * ldy, ldy, O, add || n);
    }
}

/* ---- biases ---- */

#define DB_COLS 64

struct db {
    const struct vl_cpu *c;
    float *db;
    struct vl_rows dy;
    int64_t N, O;
};

static void db_task(void *arg, int64_t t, int thread)
{
    const struct db *j = arg;
    int64_t o = t * DB_COLS, w = j->O - o < DB_COLS ? j->O - o : DB_COLS;
    float wide[DB_COLS];

    (void)thread;
    for (int64_t n = 0; n < j->N; n++) {
        const uint16_t *h = (const uint16_t *)(j->dy.h + n * j->dy.ld) + o;

        for (int64_t i = 0; i < w && j->dy.h; i++)
            wide[i] = vl_bits_float((int32_t)((uint32_t)h[i] << 16));
        j->c->k.add(j->db + o, j->dy.h ? wide : j->dy.f + n * j->O + o, w);
    }
}

void vl_cpu_linear_db(void *ctx, float *db, const void *dy, int64_t N, int64_t O,
                      enum vl_compute ct)
{
    struct vl_cpu *c = ctx;
    struct db j = { c, db, vl_cpu_rows_of(dy, O, ct), N, O };

    vl_cpu_run(c, (double)(N * O), (O + DB_COLS - 1) / DB_COLS, db_task, &j);
}
