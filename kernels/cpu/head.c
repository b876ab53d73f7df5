/* head.c - final projection fused with log-softmax: log-probs, entropy, and their gradient.
 *
 * Logits exist for one tile of rows and one chunk of ids at a time; the whole (M, V) never does. */
#include "kernels/cpu/head.h"

#include "libverl/base/fmath.h"

#include <string.h>

#define BWD_ROWS 2048 /* rows whose gradient of one chunk is kept: 4 MB */

void vl_head_tile(const struct vl_cpu *c, float *z, int64_t ld, struct vl_rows x, int64_t m0,
                  int64_t M, const struct vl_weight *w, int64_t chunk, float inv_temp)
{
    int64_t per = VL_CHUNK / c->k.nr, p0 = chunk * per, p1 = vl_cpu_panels(c, w->O);
    int64_t width = vl_chunk_width(w->O, chunk);

    p1 = p1 < p0 + per ? p1 : p0 + per;
    for (int64_t p = p0; p < p1; p++)
        vl_cpu_tile_y(c, z + (p - p0) * c->k.nr, ld, x, m0, M, w, p, p + 1);
    for (int64_t m = 0; m < M && inv_temp != 1; m++)
        c->k.scale(z + m * ld, inv_temp, width);
}

struct vl_sums vl_head_combine(const struct vl_part *part, int64_t chunks)
{
    struct vl_sums r = { .m = (double)part[0].m };
    double e = 0, q = 0;

    for (int64_t i = 1; i < chunks; i++)
        r.m = (double)part[i].m > r.m ? (double)part[i].m : r.m;
    for (int64_t i = 0; i < chunks; i++) {
        double d = (double)part[i].m - r.m, f = d == 0 ? 1 : vl_exp(d);

        if (f == 0)
            continue;
        r.s += f * part[i].s;
        e += f * (part[i].e + part[i].s * d);
        q += f * f * part[i].q;
    }
    r.lse = r.m + vl_log(r.s);
    r.entropy = vl_log(r.s) - e / r.s;
    r.entropy = r.entropy < 0 ? 0 : r.entropy;
    r.sum_pi2 = q / (r.s * r.s);
    return r;
}

static double work_of(const struct vl_weight *w, int64_t M)
{
    return (double)M * (double)w->O * (double)w->I / 8;
}

struct logp {
    const struct vl_cpu *c;
    const struct vl_weight *w;
    struct vl_rows x;
    const int32_t *target;
    float inv_temp;
    int64_t M, nc;
    struct vl_part *part;
    const struct vl_more *more;
    float *zy, *buf; /* (M) logits of the targets; tiles of z */
    size_t stride;
    float *logp, *entropy, *lse, *sum_pi2;
    float *z; /* of vl_cpu_head_logits */
};

static void part_task(void *arg, int64_t t, int thread)
{
    const struct logp *j = arg;
    int64_t m0 = t / j->nc * VL_RB, n = j->M - m0 < VL_RB ? j->M - m0 : VL_RB, ch = t % j->nc;
    int64_t width = vl_chunk_width(j->w->O, ch);
    float *z = j->buf + (size_t)thread * j->stride;

    vl_head_tile(j->c, z, VL_CHUNK, j->x, m0, n, j->w, ch, j->inv_temp);
    for (int64_t m = 0; m < n; m++) {
        int64_t y = j->target[m0 + m] - ch * VL_CHUNK;

        j->c->k.part(j->part + (m0 + m) * j->nc + ch, z + m * VL_CHUNK, width);
        if (y >= 0 && y < width)
            j->zy[m0 + m] = z[m * VL_CHUNK + y];
        for (int64_t k = 0; j->more && k < j->more->K; k++) {
            y = j->more->id[(m0 + m) * j->more->K + k] - ch * VL_CHUNK;
            if (y >= 0 && y < width)
                j->more->logp[(m0 + m) * j->more->K + k] = z[m * VL_CHUNK + y];
        }
    }
}

static void combine_task(void *arg, int64_t t, int thread)
{
    const struct logp *j = arg;

    (void)thread;
    for (int64_t m = t * VL_RB; m < j->M && m < (t + 1) * VL_RB; m++) {
        struct vl_sums s = vl_head_combine(j->part + m * j->nc, j->nc);

        j->logp[m] = vl_head_logp_of(j->zy[m], &s);
        for (int64_t k = 0; j->more && k < j->more->K; k++) {
            float *lp = &j->more->logp[m * j->more->K + k];

            if (j->more->id[m * j->more->K + k] >= 0)
                *lp = vl_head_logp_of(*lp, &s);
        }
        if (j->entropy)
            j->entropy[m] = (float)s.entropy;
        if (j->lse)
            j->lse[m] = (float)s.lse;
        if (j->sum_pi2)
            j->sum_pi2[m] = (float)s.sum_pi2;
    }
}

void vl_cpu_head_logp(void *ctx, float *logp, float *entropy, float *lse, float *sum_pi2,
                      const float *x, const struct vl_weight *w, const int32_t *target,
                      const struct vl_more *more, float inv_temp, int64_t M)
{
    struct vl_cpu *c = ctx;
    int64_t blocks = (M + VL_RB - 1) / VL_RB;
    struct logp j = { .c = c,
                      .w = w,
                      .x = vl_cpu_rows(c, x, M, w),
                      .target = target,
                      .more = more,
                      .inv_temp = inv_temp,
                      .M = M,
                      .nc = vl_chunks(w->O),
                      .logp = logp,
                      .entropy = entropy,
                      .lse = lse,
                      .sum_pi2 = sum_pi2 };

    j.part = vl_cpu_scratch(c, VL_SCRATCH_A,
                            (size_t)(M * j.nc) * sizeof *j.part + (size_t)M * sizeof *j.zy);
    j.zy = (float *)(j.part + M * j.nc);
    j.buf = vl_cpu_thread_scratch(c, VL_RB * VL_CHUNK, &j.stride);
    vl_cpu_run(c, work_of(w, M), blocks * j.nc, part_task, &j);
    vl_cpu_run(c, 200.0 * (double)(M * j.nc), blocks, combine_task, &j);
}

struct bwd {
    struct vl_cpu *c;
    const struct vl_weight *w;
    struct vl_rows x;
    const int32_t *target;
    const float *lse, *entropy, *dlogp, *dent;
    const struct vl_more *more;
    const float *mass; /* (M) dlogp and those of more: what is taken off all ids by their share */
    float inv_temp;
    float *dx, *dw, *buf;
    void *dz;          /* (rows, VL_CHUNK) fp32 or bf16 */
    struct vl_dw rows; /* x's, for dw */
    size_t stride;
    int64_t r0, rn, ch; /* the rows and the chunk at work */
    int add;
};

/* dz (n, VL_CHUNK) = gradient of the logits of rows m0.. in one chunk:
 * inv_temp (dlogp (1[j = y] - p) - dent p (log p + H)), and as dlogp for more */
static void bwd_tile(const struct bwd *b, float *dz, int64_t m0, int64_t n, int64_t ch)
{
    int64_t width = vl_chunk_width(b->w->O, ch);

    vl_head_tile(b->c, dz, VL_CHUNK, b->x, m0, n, b->w, ch, b->inv_temp);
    for (int64_t m = 0; m < n; m++) {
        int64_t y = b->target[m0 + m] - ch * VL_CHUNK;
        float *row = dz + m * VL_CHUNK;

        b->c->k.head_dz(row, width, b->lse[m0 + m], b->entropy ? b->entropy[m0 + m] : 0,
                        b->mass[m0 + m], b->dent ? b->dent[m0 + m] : 0, b->inv_temp);
        if (y >= 0 && y < width)
            row[y] += b->inv_temp * b->dlogp[m0 + m];
        for (int64_t k = 0; b->more && k < b->more->K; k++) {
            y = b->more->id[(m0 + m) * b->more->K + k] - ch * VL_CHUNK;
            if (y >= 0 && y < width)
                row[y] += b->inv_temp * b->more->dlogp[(m0 + m) * b->more->K + k];
        }
    }
}

/* dz of a tile's rows, and dx rows += dz of one chunk times W */
static void dz_task(void *arg, int64_t t, int thread)
{
    const struct bwd *b = arg;
    const struct vl_weight *w = b->w;
    int64_t m0 = t * VL_RB, n = b->rn - m0 < VL_RB ? b->rn - m0 : VL_RB;
    int64_t width = vl_chunk_width(w->O, b->ch);
    float *dx = b->dx + (b->r0 + m0) * w->I, *z = (float *)b->dz + m0 * VL_CHUNK;
    struct vl_rows r = { .f = z, .ld = VL_CHUNK };

    if (w->ct == VL_COMPUTE_F32) {
        bwd_tile(b, z, b->r0 + m0, n, b->ch);
    } else {
        uint32_t *h = (uint32_t *)b->dz + m0 * (VL_CHUNK / 2);

        z = b->buf + (size_t)thread * b->stride;
        bwd_tile(b, z, b->r0 + m0, n, b->ch);
        for (int64_t m = 0; m < n; m++)
            vl_cpu_to_pairs(b->c, h + m * (VL_CHUNK / 2), z + m * VL_CHUNK, width, w->ct);
        r = (struct vl_rows){ .h = h, .ld = VL_CHUNK / 2 };
    }
    for (int64_t p = 0; p < vl_cpu_panels(b->c, w->I); p++)
        vl_cpu_tile_dx(b->c, dx + p * b->c->k.nr, w->I, r, 0, n, w, p, p + 1, b->ch * VL_CHUNK,
                       width, b->ch > 0);
}

static float *masses(struct vl_cpu *c, const struct vl_more *more, const float *dlogp, int64_t M)
{
    float *mass = vl_cpu_scratch(c, VL_SCRATCH_B, (size_t)M * sizeof *mass);

    for (int64_t m = 0; m < M; m++) {
        double sum = dlogp[m];

        for (int64_t k = 0; k < more->K; k++)
            sum += more->id[m * more->K + k] < 0 ? 0 : more->dlogp[m * more->K + k];
        mass[m] = (float)sum;
    }
    return mass;
}

void vl_cpu_head_bwd(void *ctx, float *dx, float *dw, const float *x, const struct vl_weight *w,
                     const int32_t *target, const float *lse, const float *entropy,
                     const float *dlogp, const float *dent, const struct vl_more *more,
                     const struct vl_runs *runs, float inv_temp, int64_t M, int add)
{
    struct vl_cpu *c = ctx;
    struct bwd b = { .c = c,
                     .w = w,
                     .x = vl_cpu_rows(c, x, M, w),
                     .target = target,
                     .lse = lse,
                     .entropy = entropy,
                     .dlogp = dlogp,
                     .dent = dent,
                     .more = more,
                     .mass = dlogp,
                     .inv_temp = inv_temp,
                     .dx = dx,
                     .dw = dw,
                     .add = add };
    int64_t nc = vl_chunks(w->O), rows = M < BWD_ROWS ? M : BWD_ROWS;

    b.dz = vl_cpu_scratch(c, VL_SCRATCH_A,
                          (size_t)(rows * VL_CHUNK) *
                              (w->ct == VL_COMPUTE_F32 ? sizeof(float) : sizeof(uint16_t)));
    if (w->ct != VL_COMPUTE_F32)
        b.buf = vl_cpu_thread_scratch(c, VL_RB * VL_CHUNK, &b.stride);
    if (more)
        b.mass = masses(c, more, dlogp, M);
    for (b.r0 = 0; b.r0 < M; b.r0 += b.rn) {
        b.rn = vl_cpu_dw_end(b.r0, BWD_ROWS, M, runs) - b.r0;
        vl_cpu_dw_x(c, &b.rows, w->ct == VL_COMPUTE_F32 ? (const void *)b.x.f : b.x.h, b.r0, b.rn,
                    w->I, w->ct, runs);
        for (b.ch = 0; b.ch < nc; b.ch++) {
            int64_t width = vl_chunk_width(w->O, b.ch);
            double work = (double)b.rn * (double)width * (double)w->I / 8;

            vl_cpu_run(c, 2 * work, (b.rn + VL_RB - 1) / VL_RB, dz_task, &b);
            vl_cpu_dw_add(c, &b.rows, dw + b.ch * VL_CHUNK * w->I, b.dz, VL_CHUNK, width,
                          add || b.r0);
        }
    }
}

static void logits_task(void *arg, int64_t t, int thread)
{
    const struct logp *j = arg;
    int64_t m0 = t / j->nc * VL_RB, n = j->M - m0 < VL_RB ? j->M - m0 : VL_RB, ch = t % j->nc;

    (void)thread;
    vl_head_tile(j->c, j->z + m0 * j->w->O + ch * VL_CHUNK, j->w->O, j->x, m0, n, j->w, ch,
                 j->inv_temp);
}

void vl_cpu_head_logits(void *ctx, float *z, const float *x, const struct vl_weight *w,
                        float inv_temp, int64_t M)
{
    struct vl_cpu *c = ctx;
    struct logp j = { .c = c,
                      .w = w,
                      .x = vl_cpu_rows(c, x, M, w),
                      .inv_temp = inv_temp,
                      .M = M,
                      .nc = vl_chunks(w->O),
                      .z = z };

    vl_cpu_run(c, work_of(w, M), (M + VL_RB - 1) / VL_RB * j.nc, logits_task, &j);
}
