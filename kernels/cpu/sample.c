/* sample.c - drawing ids: greedy, inverse CDF, min-p, top-k and top-p, edited logits.
 *
 * Without top-k and top-p no row of logits is kept and nothing is sorted: a first pass leaves one
 * struct vl_part per chunk, the chunk that holds u is found from their sums, and its logits are
 * computed once more (with the same bits) to find the id. With a filter the logits of some rows are
 * kept, and only as many ids are sorted as the kept set needs. */
#include "kernels/cpu/head.h"

#include "libverl/base/fmath.h"

#include <stdlib.h>
#include <string.h>

#define KEEP_BYTES ((int64_t)64 << 20) /* logits kept at a time when filtering */

struct draw {
    struct vl_cpu *c;
    const struct vl_weight *w;
    struct vl_rows x;
    const struct vl_sampling *s;
    float inv_temp;
    const struct vl_edit *edit; /* of row m: edits[m] .. edits[m + 1]; both NULL: none */
    const int64_t *edits;
    int64_t nc;
    struct vl_part *part, *open; /* (M, nc) of the model's logits; of those sampled from */
    int32_t *bad;                /* (M, nc) chunk has a non-finite logit */
    int64_t M;
    const double *u;
    int32_t *id;
    float *logp, *logp_kept;
    float *buf, *z; /* thread scratch; logits of rows m0 .. m0 + rows when filtering */
    size_t stride;
    int64_t m0, rows;
};

/* The row's first edit of an id >= id. */
static int64_t edit_from(const struct draw *d, int64_t row, int32_t id)
{
    int64_t lo = d->edits[row], hi = d->edits[row + 1];

    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;

        if (d->edit[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* z: the row's logits, times inv_temp, of ids id0 .. id0+n. Returns how many were edited. */
static int64_t edit_apply(const struct draw *d, float *z, int64_t row, int64_t id0, int64_t n)
{
    int64_t i, from;

    if (!d->edits)
        return 0;
    from = i = edit_from(d, row, (int32_t)id0);
    for (; i < d->edits[row + 1] && d->edit[i].id < id0 + n; i++) {
        const struct vl_edit *t = d->edit + i;
        float v = z[t->id - id0] + t->add * d->inv_temp;

        z[t->id - id0] = (v > 0 ? v / t->rep : v * t->rep) - t->sub * d->inv_temp;
    }
    return i - from;
}

/* Parts of one chunk of one row; z is spoiled when ids in it are edited. */
static void parts_of(const struct draw *d, float *z, int64_t row, int64_t ch)
{
    int64_t n = vl_chunk_width(d->w->O, ch), at = row * d->nc + ch;

    d->c->k.part(d->part + at, z, n);
    d->bad[at] = !d->c->k.finite(z, n);
    d->open[at] = d->part[at];
    if (edit_apply(d, z, row, ch * VL_CHUNK, n)) {
        d->c->k.part(d->open + at, z, n);
        if (d->open[at].m == -INFINITY) /* all of it is banned */
            d->open[at].s = d->open[at].e = d->open[at].q = 0;
    }
}

static int row_is_bad(const struct draw *d, int64_t row)
{
    float best = -INFINITY;

    for (int64_t i = row * d->nc; i < (row + 1) * d->nc; i++) {
        if (d->bad[i])
            return 1;
        best = d->open[i].m > best ? d->open[i].m : best;
    }
    return best == -INFINITY; /* everything is banned */
}

/* The id in chunk ch whose cumulative weight passes `want` (in units of exp(z - m) of the chunk);
 * the last one with weight when rounding leaves none. */
static int64_t find_in_chunk(const struct draw *d, const float *z, float *p, int64_t n, float m,
                             double want)
{
    double sum = 0;
    int64_t last = 0;

    d->c->k.exp_sub(p, z, m, n);
    for (int64_t j = 0; j < n; j++) {
        sum += p[j];
        if (p[j] > 0)
            last = j;
        if (sum > want && p[j] > 0)
            return j;
    }
    return last;
}

struct got {
    int32_t id;
    float z, drawn; /* its logit: the model's, and the edited one */
    double kept_lse;
};

/* Draws without filters. buf: 3 * VL_CHUNK floats. */
static struct got draw_plain(const struct draw *d, int64_t row, double u, float *buf)
{
    float *z = buf + VL_CHUNK, *p = z + VL_CHUNK;
    const struct vl_part *o = d->open + row * d->nc;
    struct vl_sums s = vl_head_combine(o, d->nc);
    int greedy = d->s->temperature == 0;
    double want = u * s.s, f = 1;
    int64_t ch = -1, j = 0, n;

    for (int64_t i = 0; i < d->nc; i++) {
        double w;

        if (greedy) {
            if (ch < 0 && (double)o[i].m == s.m)
                ch = i;
            continue;
        }
        f = (double)o[i].m == s.m ? 1 : vl_exp((double)o[i].m - s.m);
        w = f * o[i].s;
        if (w > 0)
            ch = i;
        if (w > want)
            break;
        want -= w;
    }
    n = vl_chunk_width(d->w->O, ch);
    vl_head_tile(d->c, buf, VL_CHUNK, d->x, row, 1, d->w, ch, d->inv_temp);
    memcpy(z, buf, (size_t)n * sizeof *z);
    edit_apply(d, z, row, ch * VL_CHUNK, n);
    if (greedy)
        while (z[j] != o[ch].m)
            j++;
    else
        j = find_in_chunk(d, z, p, n, o[ch].m, want / f);
    return (struct got){ (int32_t)(ch * VL_CHUNK + j), buf[j], z[j], s.lse };
}

/* One candidate; order: larger logit first, then lower id. */
struct cand {
    float z;
    int32_t id;
};

static int cand_before(struct cand a, struct cand b)
{
    return a.z > b.z || (a.z == b.z && a.id < b.id);
}

static int by_rank(const void *a, const void *b)
{
    struct cand x = *(const struct cand *)a, y = *(const struct cand *)b;

    return cand_before(x, y) ? -1 : cand_before(y, x);
}

static int by_cand_id(const void *a, const void *b)
{
    const struct cand *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

/* Moves the first n of the order to the front (quickselect, middle pivot). */
static void select_first(struct cand *a, int64_t count, int64_t n)
{
    int64_t lo = 0, hi = count - 1;

    while (lo < hi) {
        struct cand pivot = a[lo + (hi - lo) / 2], t;
        int64_t i = lo, j = hi;

        while (i <= j) {
            while (cand_before(a[i], pivot))
                i++;
            while (cand_before(pivot, a[j]))
                j--;
            if (i <= j)
                t = a[i], a[i++] = a[j], a[j--] = t;
        }
        if (n - 1 <= j)
            hi = j;
        else if (n - 1 >= i)
            lo = i;
        else
            return;
    }
}

/* The kept set at the front of a (`count` ids that passed min-p, ascending): first top-k, then of
 * those the smallest prefix in rank order whose mass reaches top_p. p[id] = exp(z - max). Returns
 * its size. */
static int64_t keep_set(const struct vl_sampling *s, struct cand *a, int64_t count, const float *p)
{
    int64_t n = s->top_k > 0 && s->top_k < count ? s->top_k : count, tried = n < 64 ? n : 64;
    double total = 0;

    if (n < count) {
        select_first(a, count, n);
        qsort(a, (size_t)n, sizeof *a, by_cand_id); /* mass is summed in id order */
    }
    if (s->top_p >= 1)
        return n;
    for (int64_t i = 0; i < n; i++)
        total += p[a[i].id];
    for (;; tried = tried * 8 < n ? tried * 8 : n) {
        double sum = 0;

        select_first(a, n, tried);
        qsort(a, (size_t)tried, sizeof *a, by_rank);
        for (int64_t i = 0; i < tried; i++) {
            sum += p[a[i].id];
            if (sum >= s->top_p * total)
                return i + 1;
        }
        if (tried == n)
            return n;
    }
}

/* Draws from the kept set of one row of edited logits z (V). p: V floats, a: V. */
static int32_t draw_kept(const struct draw *d, const float *z, float max, double u, float *p,
                         struct cand *a, double *kept_lse)
{
    int64_t V = d->w->O, count = 0, n, last = 0;
    double total = 0, sum = 0;

    d->c->k.exp_sub(p, z, max, V);
    for (int64_t j = 0; j < V; j++) /* the likeliest id has p = 1 */
        if (z[j] != -INFINITY && p[j] >= d->s->min_p)
            a[count++] = (struct cand){ z[j], (int32_t)j };
    n = keep_set(d->s, a, count, p);
    qsort(a, (size_t)n, sizeof *a, by_cand_id);
    for (int64_t i = 0; i < n; i++)
        total += p[a[i].id];
    *kept_lse = (double)max + vl_log(total);
    for (int64_t i = 0; i < n; i++) {
        float w = p[a[i].id];

        sum += w;
        if (w > 0)
            last = i;
        if (sum > u * total && w > 0)
            break;
    }
    return a[last].id;
}

/* Output of one row. */
static void finish(const struct draw *d, int64_t row, struct got g)
{
    struct vl_sums s = vl_head_combine(d->part + row * d->nc, d->nc);

    d->id[row] = g.id;
    d->logp[row] = vl_head_logp_of(g.z, &s);
    if (d->logp_kept)
        d->logp_kept[row] = (float)((double)g.drawn - g.kept_lse);
}

static void row_bad(const struct draw *d, int64_t row)
{
    d->id[row] = -1;
    d->logp[row] = NAN;
    if (d->logp_kept)
        d->logp_kept[row] = NAN;
}

static void part_task(void *arg, int64_t t, int thread)
{
    const struct draw *d = arg;
    int64_t m0 = t / d->nc * VL_RB, n = d->M - m0 < VL_RB ? d->M - m0 : VL_RB, ch = t % d->nc;
    float *z = d->buf + (size_t)thread * d->stride;

    vl_head_tile(d->c, z, VL_CHUNK, d->x, m0, n, d->w, ch, d->inv_temp);
    for (int64_t m = 0; m < n; m++)
        parts_of(d, z + m * VL_CHUNK, m0 + m, ch);
}

static void plain_task(void *arg, int64_t m, int thread)
{
    const struct draw *d = arg;

    if (row_is_bad(d, m))
        row_bad(d, m);
    else
        finish(d, m, draw_plain(d, m, d->u ? d->u[m] : 0, d->buf + (size_t)thread * d->stride));
}

static void sample_plain(struct draw *d)
{
    struct vl_cpu *c = d->c;
    double work = (double)d->M * (double)d->w->O * (double)d->w->I / 8;

    d->buf = vl_cpu_thread_scratch(c, VL_RB * VL_CHUNK, &d->stride);
    vl_cpu_run(c, work, (d->M + VL_RB - 1) / VL_RB * d->nc, part_task, d);
    vl_cpu_run(c, work, d->M, plain_task, d);
}

/* One row with its logits at hand. room: V candidates, V logits, V weights. */
static void filter_row(const struct draw *d, const float *z, int64_t m, float *room)
{
    int64_t V = d->w->O;
    float chunk[VL_CHUNK], max = -INFINITY, *open = room + 2 * V;
    struct got g;

    for (int64_t ch = 0; ch < d->nc; ch++) {
        memcpy(chunk, z + ch * VL_CHUNK, (size_t)vl_chunk_width(V, ch) * sizeof *chunk);
        parts_of(d, chunk, m, ch);
    }
    if (row_is_bad(d, m)) {
        row_bad(d, m);
        return;
    }
    for (int64_t ch = 0; ch < d->nc; ch++)
        max = d->open[m * d->nc + ch].m > max ? d->open[m * d->nc + ch].m : max;
    memcpy(open, z, (size_t)V * sizeof *z);
    edit_apply(d, open, m, 0, V);
    g.id = draw_kept(d, open, max, d->u[m], open + V, (struct cand *)(void *)room, &g.kept_lse);
    g.z = z[g.id], g.drawn = open[g.id];
    finish(d, m, g);
}

static void logits_task(void *arg, int64_t ch, int thread)
{
    const struct draw *d = arg;

    (void)thread;
    vl_head_tile(d->c, d->z + ch * VL_CHUNK, d->w->O, d->x, d->m0, d->rows, d->w, ch, d->inv_temp);
}

static void filter_task(void *arg, int64_t m, int thread)
{
    const struct draw *d = arg;

    filter_row(d, d->z + m * d->w->O, d->m0 + m, d->buf + (size_t)thread * d->stride);
}

static void sample_filtered(struct draw *d)
{
    struct vl_cpu *c = d->c;
    int64_t V = d->w->O, R = KEEP_BYTES / (V * (int64_t)sizeof(float));

    R = R < 1 ? 1 : R > d->M ? d->M : R;
    d->z = vl_cpu_scratch(c, VL_SCRATCH_B, (size_t)(R * V) * sizeof *d->z);
    d->buf = vl_cpu_thread_scratch(c, (size_t)V * 4, &d->stride);
    for (d->m0 = 0; d->m0 < d->M; d->m0 += R) {
        d->rows = d->M - d->m0 < R ? d->M - d->m0 : R;
        vl_cpu_run(c, (double)d->rows * (double)V * (double)d->w->I / 8, d->nc, logits_task, d);
        vl_cpu_run(c, 20.0 * (double)(d->rows * V), d->rows, filter_task, d);
    }
}

void vl_cpu_head_sample(void *ctx, int32_t *id, float *logp, float *logp_kept, const float *x,
                        const struct vl_weight *w, const double *u, const struct vl_sampling *s,
                        const struct vl_edit *edit, const int64_t *edits, int64_t M)
{
    struct vl_cpu *c = ctx;
    int greedy = s->temperature == 0;
    struct draw d = { .c = c,
                      .w = w,
                      .x = vl_cpu_rows(c, x, M, w),
                      .s = s,
                      .edit = edit,
                      .edits = edits,
                      .inv_temp = greedy ? 1 : (float)(1 / s->temperature),
                      .nc = vl_chunks(w->O),
                      .M = M,
                      .u = u,
                      .id = id,
                      .logp = logp,
                      .logp_kept = logp_kept };

    d.part =
        vl_cpu_scratch(c, VL_SCRATCH_A, (size_t)(M * d.nc) * (2 * sizeof *d.part + sizeof *d.bad));
    d.open = d.part + M * d.nc;
    d.bad = (int32_t *)(d.open + M * d.nc);
    if (greedy || ((s->top_k <= 0 || s->top_k >= w->O) && s->top_p >= 1 && s->min_p <= 0))
        sample_plain(&d);
    else
        sample_filtered(&d);
}
