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

#define DW_ROWS  48  /* outputs o of a block */
#define DW_GROUP 4   /* blocks of a task: panels are read as often as there are groups */
#define DW_BLOCK 128 /* rows n at a time, */
#define DW_SPAN  512 /* of so many whose dy is copied at once */
#define PX_ROWS  16

/* dW = dy^T x, x in panels of a tile's width, dy in blocks of DW_ROWS columns. */
struct full {
    const struct vl_cpu *c;
    const struct vl_dw *d;
    float *dw;
    const float *dy;
    int64_t ldy, O;
    int64_t np, slice;             /* panels; those of a task */
    int64_t span;                  /* rows at a time */
    int64_t blocks, group, groups; /* of dy; those of a task; groups of so many */
    float *buf;
    size_t stride;
    int add;
};

struct panels {
    const struct vl_cpu *c;
    const struct vl_dw *d;
    const float *x;
};

static void panels_task(void *arg, int64_t t, int thread)
{
    const struct panels *j = arg;
    const struct vl_dw *d = j->d;
    int64_t nr = j->c->k.nr, np = vl_cpu_panels(j->c, d->I);
    float *px = d->px;

    (void)thread;
    for (int64_t n = t * PX_ROWS; n < d->pairs && n < (t + 1) * PX_ROWS; n++)
        for (int64_t p = 0; p < np; p++) {
            int64_t w = d->I - p * nr < nr ? d->I - p * nr : nr;

            memcpy(px + (p * d->pairs + n) * nr, j->x + n * d->I + p * nr, (size_t)w * sizeof *px);
        }
}

static void full_x(struct vl_cpu *c, struct vl_dw *d, const float *x, int64_t N, int64_t I)
{
    struct panels j = { c, d, x };
    size_t n = (size_t)(vl_cpu_panels(c, I) * c->k.nr * N);

    *d = (struct vl_dw){ .ct = VL_COMPUTE_F32, .I = I, .pairs = N };
    d->px = vl_cpu_scratch(c, VL_SCRATCH_PX, n * sizeof(float));
    vl_cpu_run(c, (double)(N * I), (N + PX_ROWS - 1) / PX_ROWS, panels_task, &j);
}

/* dy's columns are copied side by side first: their stride often is a multiple of 4096 bytes, and
 * then all rows compete for one set of the cache. */
static void copy_block(float *to, const struct full *j, int64_t o, int64_t n, int64_t rows)
{
    int64_t m = j->O - o < DW_ROWS ? j->O - o : DW_ROWS;
    const float *dy = j->dy + n * j->ldy + o;

    for (int64_t i = 0; i < rows && m == DW_ROWS; i++)
        memcpy(to + i * DW_ROWS, dy + i * j->ldy, DW_ROWS * sizeof *dy);
    for (int64_t i = 0; i < rows && m < DW_ROWS; i++)
        memcpy(to + i * DW_ROWS, dy + i * j->ldy, (size_t)m * sizeof *dy);
}

/* Asks for the outputs of a block and a panel, which mostly are in memory. */
static void fetch(const struct full *j, int64_t o, int64_t p)
{
    int64_t nr = j->c->k.nr, I = j->d->I;
    const float *dw = j->dw + o * I + p * nr;

    for (int64_t r = 0; r < DW_ROWS && o + r < j->O; r++)
        for (int64_t i = 0; i < nr; i += 16)
            __builtin_prefetch(dw + r * I + i, 1, 2);
}

static void block_task(const struct full *j, const float *dy, int64_t o, int64_t p, int64_t n,
                       int64_t rows)
{
    int64_t nr = j->c->k.nr, I = j->d->I, m = j->O - o < DW_ROWS ? j->O - o : DW_ROWS;
    int64_t w = I - p * nr < nr ? I - p * nr : nr;
    const float *px = (const float *)j->d->px + (p * j->d->pairs + n) * nr;

    for (int64_t i = 0; i < rows; i += DW_BLOCK)
        j->c->k.mul(j->dw + o * I + p * nr, I, dy + i * DW_ROWS, 1, DW_ROWS, px + i * nr, nr, m, w,
                    rows - i < DW_BLOCK ? rows - i : DW_BLOCK, j->add || n + i, NULL);
}

static void full_task(void *arg, int64_t t, int thread)
{
    const struct full *j = arg;
    int64_t first = t % j->groups * j->group, p0 = t / j->groups * j->slice;
    int64_t blocks = j->blocks - first < j->group ? j->blocks - first : j->group;
    int64_t end = p0 + j->slice < j->np ? p0 + j->slice : j->np, N = j->d->pairs;
    float *dy = j->buf + (size_t)thread * j->stride;

    for (int64_t n = 0; n < N; n += j->span) {
        int64_t rows = N - n < j->span ? N - n : j->span;

        for (int64_t b = 0; b < blocks; b++)
            copy_block(dy + b * j->span * DW_ROWS, j, (first + b) * DW_ROWS, n, rows);
        for (int64_t p = p0; p < end; p++)
            for (int64_t b = 0; b < blocks; b++) {
                int64_t next = b + 1 < blocks ? b + 1 : 0;

                if (next || p + 1 < end)
                    fetch(j, (first + next) * DW_ROWS, next ? p : p + 1);
                block_task(j, dy + b * j->span * DW_ROWS, (first + b) * DW_ROWS, p, n, rows);
            }
    }
}

static void full_add(struct vl_cpu *c, const struct vl_dw *d, float *dw, const float *dy,
                     int64_t ldy, int64_t O, int add)
{
    struct full j = { .c = c, .d = d, .dw = dw, .dy = dy, .ldy = ldy, .O = O, .add = add };
    int64_t want = 8 * c->threads, slices;

    j.np = vl_cpu_panels(c, d->I);
    j.span = d->pairs < DW_SPAN ? d->pairs : DW_SPAN;
    j.blocks = (O + DW_ROWS - 1) / DW_ROWS;
    j.group = 2 * j.blocks / want;
    j.group = j.group < 1 ? 1 : j.group > DW_GROUP ? DW_GROUP : j.group;
    j.groups = (j.blocks + j.group - 1) / j.group;
    slices = (want + j.groups - 1) / j.groups;
    j.slice = (j.np + slices - 1) / slices;
    j.buf = vl_cpu_thread_scratch(c, (size_t)(j.group * DW_ROWS * j.span), &j.stride);
    vl_cpu_run(c, (double)d->pairs * (double)O * (double)d->I / 8,
               j.groups * ((j.np + j.slice - 1) / j.slice), full_task, &j);
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

static void half_x(struct vl_cpu *c, struct vl_dw *d, const void *x, int64_t r0, int64_t N,
                   int64_t I, enum vl_compute ct, const struct vl_runs *runs)
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
    d->px = vl_cpu_scratch(c, VL_SCRATCH_PX, (size_t)(j.np * c->k.nr * d->pairs) * sizeof *j.px);
    d->block = b;
    j.block = b, j.px = d->px, j.pairs = d->pairs;
    vl_cpu_run(c, (double)N * (double)I, d->blocks, px_task, &j);
}

static void half_add(struct vl_cpu *c, const struct vl_dw *d, float *dw, const uint16_t *dy,
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

/* ---- either ---- */

void vl_cpu_dw_x(struct vl_cpu *c, struct vl_dw *d, const void *x, int64_t r0, int64_t N, int64_t I,
                 enum vl_compute ct, const struct vl_runs *runs)
{
    if (ct == VL_COMPUTE_F32)
        full_x(c, d, (const float *)x + r0 * I, N, I);
    else
        half_x(c, d, x, r0, N, I, ct, runs);
}

void vl_cpu_dw_add(struct vl_cpu *c, const struct vl_dw *d, float *dw, const void *dy, int64_t ldy,
                   int64_t O, int add)
{
    if (d->ct == VL_COMPUTE_F32)
        full_add(c, d, dw, dy, ldy, O, add);
    else
        half_add(c, d, dw, dy, ldy, O, add);
}

void vl_cpu_linear_dw(void *ctx, float *dw, const void *dy, const void *x, int64_t N, int64_t O,
                      int64_t I, enum vl_compute ct, const struct vl_runs *runs, int add)
{
    int64_t pairs, most = N, end, ldy = 2 * vl_cpu_depth(ct, O);
    struct vl_dw d;

    if (ct == VL_COMPUTE_F32) {
        vl_cpu_dw_x(ctx, &d, x, 0, N, I, ct, runs);
        vl_cpu_dw_add(ctx, &d, dw, dy, O, O, add);
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
