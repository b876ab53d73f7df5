/* head.c - final projection fused with log-softmax: log-probs, entropy, and their gradient.
 *
 * Logits exist for one tile of rows and one chunk of ids at a time; the whole (M, V) never does. */
#include "kernels/cpu/head.h"

#include "libverl/base/fmath.h"

#include <omp.h>
#include <string.h>

#define BWD_ROWS 2048 /* rows whose gradient of one chunk is kept: 4 MB */

void vl_head_tile(const struct vl_cpu *c, float *z, int64_t ld, struct vl_rows x, int64_t m0,
                  int64_t M, const struct vl_weight *w, int64_t chunk, float inv_temp)
{
    int64_t per = VL_CHUNK / c->k.nr, p0 = chunk * per, p1 = vl_cpu_panels(c, w->O);
    int64_t width = vl_chunk_width(w->O, chunk);

    p1 = p1 < p0 + per ? p1 : p0 + per;
    for (int64_t p = p0; p < p1; p++)
        vl_cpu_tile_y(c, z + (p - p0) * c->k.nr, ld, x, m0, M, w, p);
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

void vl_cpu_head_logp(void *ctx, float *logp, float *entropy, float *lse, float *sum_pi2,
                      const float *x, const struct vl_weight *w, const int32_t *target,
                      float inv_temp, int64_t M)
{
    struct vl_cpu *c = ctx;
    int64_t nc = vl_chunks(w->O), blocks = (M + VL_RB - 1) / VL_RB;
    struct vl_rows r = vl_cpu_rows(c, x, M, w->I, w->ct);
    struct vl_part *part =
        vl_cpu_scratch(c, VL_SCRATCH_A, (size_t)(M * nc) * sizeof *part + (size_t)M * sizeof *logp);
    float *zy = (float *)(part + M * nc);
    size_t stride;
    float *buf = vl_cpu_thread_scratch(c, VL_RB * VL_CHUNK, &stride);

#pragma omp parallel num_threads(vl_cpu_team(c, (double)M *(double)w->O *(double)w->I / 8))
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t t = 0; t < blocks * nc; t++) {
            int64_t m0 = t / nc * VL_RB, n = M - m0 < VL_RB ? M - m0 : VL_RB, ch = t % nc;
            int64_t width = vl_chunk_width(w->O, ch);
            float *z = buf + (size_t)omp_get_thread_num() * stride;

            vl_head_tile(c, z, VL_CHUNK, r, m0, n, w, ch, inv_temp);
            for (int64_t m = 0; m < n; m++) {
                int64_t y = target[m0 + m] - ch * VL_CHUNK;

                c->k.part(part + (m0 + m) * nc + ch, z + m * VL_CHUNK, width);
                if (y >= 0 && y < width)
                    zy[m0 + m] = z[m * VL_CHUNK + y];
            }
        }
#pragma omp for schedule(static)
        for (int64_t m = 0; m < M; m++) {
            struct vl_sums s = vl_head_combine(part + m * nc, nc);

            logp[m] = vl_head_logp_of(zy[m], &s);
            if (entropy)
                entropy[m] = (float)s.entropy;
            if (lse)
                lse[m] = (float)s.lse;
            if (sum_pi2)
                sum_pi2[m] = (float)s.sum_pi2;
        }
    }
}

struct bwd {
    struct vl_cpu *c;
    const struct vl_weight *w;
    struct vl_rows x;
    const int32_t *target;
    const float *lse, *entropy, *dlogp, *dent;
    float inv_temp;
};

/* dz (n, VL_CHUNK) = gradient of the logits of rows m0.. in one chunk:
 * inv_temp (dlogp (1[j = y] - p) - dent p (log p + H)) */
static void bwd_tile(const struct bwd *b, float *dz, int64_t m0, int64_t n, int64_t ch)
{
    int64_t width = vl_chunk_width(b->w->O, ch);

    vl_head_tile(b->c, dz, VL_CHUNK, b->x, m0, n, b->w, ch, b->inv_temp);
    for (int64_t m = 0; m < n; m++) {
        int64_t y = b->target[m0 + m] - ch * VL_CHUNK;
        float *row = dz + m * VL_CHUNK;

        b->c->k.head_dz(row, width, b->lse[m0 + m], b->entropy ? b->entropy[m0 + m] : 0,
                        b->dlogp[m0 + m], b->dent ? b->dent[m0 + m] : 0, b->inv_temp);
        if (y >= 0 && y < width)
            row[y] += b->inv_temp * b->dlogp[m0 + m];
    }
}

/* dx rows += dz of one chunk times W; h: thread scratch for bf16 operands. */
static void bwd_dx(const struct bwd *b, float *dx, const float *dz, int64_t n, int64_t ch,
                   uint32_t *h)
{
    const struct vl_weight *w = b->w;
    struct vl_rows r = { .f = dz, .ld = VL_CHUNK };
    int64_t width = vl_chunk_width(w->O, ch);

    if (w->ct == VL_COMPUTE_BF16) {
        r = (struct vl_rows){ .h = h, .ld = VL_CHUNK / 2 };
        for (int64_t m = 0; m < n; m++)
            b->c->k.to_bf16((uint16_t *)(h + m * r.ld), dz + m * VL_CHUNK, width);
    }
    for (int64_t p = 0; p < vl_cpu_panels(b->c, w->I); p++)
        vl_cpu_tile_dx(b->c, dx + p * b->c->k.nr, w->I, r, 0, n, w, p, ch * VL_CHUNK, width,
                       ch > 0);
}

void vl_cpu_head_bwd(void *ctx, float *dx, float *dw, const float *x, const struct vl_weight *w,
                     const int32_t *target, const float *lse, const float *entropy,
                     const float *dlogp, const float *dent, float inv_temp, int64_t M)
{
    struct vl_cpu *c = ctx;
    struct bwd b = { c,    w,       vl_cpu_rows(c, x, M, w->I, w->ct), target, lse, entropy, dlogp,
                     dent, inv_temp };
    int64_t nc = vl_chunks(w->O), I = w->I, rows = M < BWD_ROWS ? M : BWD_ROWS;
    float *dz = vl_cpu_scratch(c, VL_SCRATCH_A, (size_t)(rows * VL_CHUNK) * sizeof *dz);
    size_t stride;
    float *buf = vl_cpu_thread_scratch(c, VL_RB * VL_CHUNK / 2, &stride);

#pragma omp parallel num_threads(vl_cpu_team(c, (double)M *(double)w->O *(double)I / 8))
    for (int64_t r0 = 0; r0 < M; r0 += BWD_ROWS) {
        int64_t rn = M - r0 < BWD_ROWS ? M - r0 : BWD_ROWS;

        for (int64_t ch = 0; ch < nc; ch++) {
            int64_t width = vl_chunk_width(w->O, ch);

#pragma omp for schedule(dynamic, 1)
            for (int64_t m = 0; m < rn; m += VL_RB) {
                int64_t n = rn - m < VL_RB ? rn - m : VL_RB;

                bwd_tile(&b, dz + m * VL_CHUNK, r0 + m, n, ch);
                bwd_dx(&b, dx + (r0 + m) * I, dz + m * VL_CHUNK, n, ch,
                       (uint32_t *)(buf + (size_t)omp_get_thread_num() * stride));
            }
#pragma omp for schedule(dynamic, 1) collapse(2)
            for (int64_t o = 0; o < width; o += 48)
                for (int64_t i = 0; i < I; i += 64)
                    c->k.mul(dw + (ch * VL_CHUNK + o) * I + i, I, dz + o, 1, VL_CHUNK,
                             x + r0 * I + i, I, width - o < 48 ? width - o : 48,
                             I - i < 64 ? I - i : 64, rn, 1);
        }
    }
}

void vl_cpu_head_logits(void *ctx, float *z, const float *x, const struct vl_weight *w,
                        float inv_temp, int64_t M)
{
    struct vl_cpu *c = ctx;
    int64_t nc = vl_chunks(w->O), blocks = (M + VL_RB - 1) / VL_RB;
    struct vl_rows r = vl_cpu_rows(c, x, M, w->I, w->ct);

#pragma omp parallel for schedule(dynamic, 1)                                                      \
    num_threads(vl_cpu_team(c, (double)M *(double)w->O *(double)w->I / 8))
    for (int64_t t = 0; t < blocks * nc; t++) {
        int64_t m0 = t / nc * VL_RB, n = M - m0 < VL_RB ? M - m0 : VL_RB, ch = t % nc;

        vl_head_tile(c, z + m0 * w->O + ch * VL_CHUNK, w->O, r, m0, n, w, ch, inv_temp);
    }
}
