/* scratch.c - what the operations of a pass keep in scratch, at most.
 *
 * An operation sizes its scratch from the sequences at hand; an estimate made before there are any
 * needs bounds. They are loose by what is little (rounding, lists of tasks), and a test holds them against
 * what passes of odd shapes really took: a new use of scratch belongs here, too. */
#include "kernels/cpu/attn.h"
#include "kernels/cpu/head.h"

#define SMALL 4096 /* rounding and alignment of one piece of scratch */

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Floats of one thread. */
static int64_t of_thread(const struct vl_cpu *c, const struct vl_shape *s,
                         const struct vl_extent *x)
{
    const struct vl_attn *a = &s->attn;
    int64_t G = a->H / a->K, D = a->D, Dp = vl_attn_padded(a), T = (x->longest + 63) / 64 * 64;
    int64_t items = most(32, G), rows = up16(items) + 16, n;

    n = 2 * 96 * c->k.nr; /* mlp.c */
    n = most(n, s->V ? VL_RB * VL_CHUNK : 0);
    n = most(n, s->V && x->paged ? 4 * s->V : 0); /* sample.c */
    if (a->ct == VL_COMPUTE_F32) {
        n = most(n, items * (2 * D + T + 24));
        if (s->form == VL_FORM_TRAIN) {
            n = most(n, T * (4 * D + 48 * G) + 72 * G * D);
            n = most(n, 4 * 48 * least(x->N, 512)); /* linear_dw.c */
        }
        return n;
    }
    n = most(n, rows * (Dp * 3 / 2 + T * 3 / 2 + 2) + 16 * Dp + T / 4);
    if (s->form == VL_FORM_TRAIN)
        n = most(n, Dp * (11 * T / 2 + 5 * 64) + 64 * 64 * 4);
    return n;
}

/* Bytes of unpaged keys, or in backward of partial sums over them. */
static int64_t of_keys(const struct vl_shape *s, const struct vl_extent *x)
{
    const struct vl_attn *a = &s->attn;
    int64_t wide = (int64_t)a->K * vl_attn_padded(a), own = x->N + 32 * x->nseq, n;

    if (x->paged)
        return 0;
    if (a->ct == VL_COMPUTE_F32)
        return 4 * (own + x->shared) * a->K * a->D;
    n = 4 * own * wide;
    if (s->form == VL_FORM_TRAIN)
        n = most(n,
                 least((int64_t)128 << 20, 4 * wide * (x->N + x->shared) * (3 + x->longest / 256)));
    return n;
}

/* Bytes of the head's parts, or in backward of dz. */
static int64_t of_head(const struct vl_shape *s, const struct vl_extent *x)
{
    int64_t part = (int64_t)(2 * sizeof(struct vl_part) + sizeof(int32_t));

    if (!s->V)
        return 0;
    return most(x->M * vl_chunks(s->V) * part + 4 * x->M,
                s->form == VL_FORM_TRAIN ? least(x->M, 2048) * VL_CHUNK * 4 : 0);
}

size_t vl_cpu_scratch_bytes(void *ctx, const struct vl_shape *s, const struct vl_extent *x)
{
    const struct vl_cpu *c = ctx;
    const struct vl_attn *a = &s->attn;
    int half = a->ct != VL_COMPUTE_F32;
    int64_t N = x->N, HD = (int64_t)a->H * a->D, A = (int64_t)(a->H + 2 * a->K) * a->D;
    int64_t in = vl_cpu_panels(c, most(most(s->C, HD), s->F)) * c->k.nr;
    int64_t out = most(most(2 * s->F, A), s->C);
    int64_t outs = least(x->M, 2048); /* of which pairs are made at a time, of N fewer */
    int64_t pairs = least(N + 512, N / 2 + 16 * x->nseq) + 64;
    int64_t head = s->V ? least(16 * outs, outs / 2 + 16 * x->nseq) + 64 : 0;
    int64_t bytes[VL_SCRATCHES] = { 0 };
    size_t all = 0;

    bytes[VL_SCRATCH_A] = most(of_keys(s, x), of_head(s, x));
    if (s->F % c->k.nr && s->form != VL_FORM_TRAIN)
        bytes[VL_SCRATCH_A] = most(bytes[VL_SCRATCH_A], 8 * N * s->F);
    if (s->form == VL_FORM_TRAIN && !half)
        bytes[VL_SCRATCH_PX] = 4 * most(in * N, vl_cpu_panels(c, s->C) * c->k.nr * outs);
    if (s->form == VL_FORM_TRAIN && half) {
        bytes[VL_SCRATCH_PX] = 4 * most(in * pairs, vl_cpu_panels(c, s->C) * c->k.nr * head);
        bytes[VL_SCRATCH_AT] = 4 * most(out * (pairs + 32), VL_CHUNK * (head + 32));
        bytes[VL_SCRATCH_BLOCKS] = 24 * (N / 32 + x->nseq);
    }
    if (half && s->V)
        bytes[VL_SCRATCH_X] = 4 * x->M * vl_cpu_depth(a->ct, s->C);
    if (vl_int8_whole(s->form, a->ct))
        bytes[VL_SCRATCH_DIGITS] = vl_int8_digit_bytes(N, most(most(s->C, HD), s->F));
    bytes[VL_SCRATCH_B] = (N + x->nseq) * (16 * a->K + 64) + x->longest + x->shared;
    if (s->V && x->paged)
        bytes[VL_SCRATCH_B] =
            most(bytes[VL_SCRATCH_B], most(4 * s->V, least(4 * x->M * s->V, (int64_t)64 << 20)));
    bytes[VL_SCRATCH_THREAD] = 4 * c->threads * of_thread(c, s, x);
    for (int i = 0; i < VL_SCRATCHES; i++)
        all += (size_t)(bytes[i] + bytes[i] / 4) + SMALL; /* as vl_cpu_scratch */
    return all;
}
