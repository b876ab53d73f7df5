/* rope.c - the table of cos and sin for rotary positions, with the scalings in use.
 *
 * Everything is computed in double by fixed steps and rounded once: libm would make log-probs
 * depend on the C library. Hugging Face computes angles in fp32, which is off by up to
 * position * 2^-24; the exact angle is what the formula means. */
#include "libverl/engine/internal.h"

#include <math.h>
#include <stdlib.h>

#include "libverl/base/dmath.h"

#define PI 3.14159265358979323846

/* llama3 (Llama 3.1): wavelengths beyond the original context / low_freq_factor are stretched by
 * `factor`, those within original / high_freq_factor are kept, between them linear. */
static double scale_llama3(double inv, const struct vl_rope_scaling *s)
{
    double wave = 2 * PI / inv, orig = (double)s->original_max, smooth;

    if (wave > orig / s->low_freq_factor)
        return inv / s->factor;
    if (wave < orig / s->high_freq_factor)
        return inv;
    smooth = (orig / wave - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return (1 - smooth) * inv / s->factor + smooth * inv;
}

/* The dimension that turns `turns` times within the original context (YaRN, Peng et al. 2023). */
static double yarn_dim(double turns, const struct vl_config *c)
{
    return (double)c->D * vl_dlog((double)c->rope.original_max / (turns * 2 * PI)) /
           (2 * vl_dlog(c->rope_theta));
}

static double scale_yarn(double inv, int64_t i, const struct vl_config *c)
{
    const struct vl_rope_scaling *s = &c->rope;
    double low = floor(yarn_dim(s->beta_fast, c)), high = ceil(yarn_dim(s->beta_slow, c)), ramp;

    low = low < 0 ? 0 : low;
    high = high > (double)(c->D - 1) ? (double)(c->D - 1) : high;
    if (high <= low)
        high = low + 0.001;
    ramp = ((double)i - low) / (high - low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return inv / s->factor * ramp + inv * (1 - ramp);
}

double vl_rope_inv_freq(const struct vl_config *c, int64_t i)
{
    double inv = vl_dexp(-2.0 * (double)i / (double)c->D * vl_dlog(c->rope_theta));

    switch (c->rope.type) {
    case VL_ROPE_LINEAR:
        return inv / c->rope.factor;
    case VL_ROPE_LLAMA3:
        return scale_llama3(inv, &c->rope);
    case VL_ROPE_YARN:
        return scale_yarn(inv, i, c);
    case VL_ROPE_NONE:
        break;
    }
    return inv;
}

/* YaRN scales cos and sin, and with them q.k; 0 in the config means its own formula. */
static double magnitude(const struct vl_rope_scaling *s)
{
    if (s->type != VL_ROPE_YARN)
        return 1;
    if (s->attention_factor > 0)
        return s->attention_factor;
    return s->factor > 1 ? 0.1 * vl_dlog(s->factor) + 1 : 1;
}

static void fill(float *t, const struct vl_config *c, int64_t positions)
{
    int64_t half = c->D / 2;
    double mag = magnitude(&c->rope);

    for (int64_t i = 0; i < half; i++) {
        double inv = vl_rope_inv_freq(c, i);

        for (int64_t p = 0; p < positions; p++) {
            double turn = (double)p * inv / PI; /* half turns */

            t[2 * (p * half + i)] = (float)(mag * vl_dcospi(turn));
            t[2 * (p * half + i) + 1] = (float)(mag * vl_dcospi(turn - 0.5));
        }
    }
}

/* The table grows by doubling with the longest row seen: models allow far longer contexts than
 * most batches have. */
int vl_rope_get(struct vl_engine *g, int64_t positions, struct vl_err *e)
{
    struct vl_backend *be = g->be;
    int64_t n = 256;
    size_t bytes;
    float *t;

    if (positions <= g->rope_positions)
        return 0;
    while (n < positions)
        n *= 2;
    bytes = (size_t)(n * g->cfg.D) * sizeof(float);
    if (g->rope)
        be->free(be->ctx, g->rope);
    g->rope = NULL, g->rope_positions = 0;
    if (vl_try_alloc(&t, (size_t)n, (size_t)g->cfg.D * sizeof(float), "rope table", e))
        return e->code;
    fill(t, &g->cfg, n);
    if (!be->alloc(be->ctx, (void **)&g->rope, bytes, e)) {
        be->upload(be->ctx, g->rope, t, bytes);
        g->rope_positions = n;
    }
    free(t);
    return e->code;
}
