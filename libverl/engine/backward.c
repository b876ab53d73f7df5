/* backward.c - gradients of the kept forward pass, layers in reverse.
 *
 * Weight gradients are added to the slab row after row, so a batch cut into micro-batches gives
 * the same bits as the whole. With recomputation each layer runs forward again from its kept input
 * just before its backward; the forward is deterministic, so gradients have the same bits. */
#include "libverl/engine/internal.h"

#include <string.h>

static void head_backward(struct vl_engine *g, const float *dlogp, const float *dent,
                          const float *dvalue)
{
    const struct vl_config *c = &g->cfg;
    struct vl_backend *be = g->be;
    struct vl_work *w = &g->work;

    if (c->head == VL_HEAD_VALUE) {
        be->upload(be->ctx, w->dvalue, dvalue, (size_t)g->M * sizeof(float));
        be->linear_dw(be->ctx, vl_grad(g, g->value_head), w->dvalue, w->xn, g->M, 1, c->C,
                      VL_COMPUTE_F32, NULL, !g->fresh);
        if (g->value_bias >= 0)
            be->linear_db(be->ctx, vl_grad(g, g->value_bias), w->dvalue, g->M, 1, VL_COMPUTE_F32);
        be->linear_dx(be->ctx, w->dxn, w->dvalue, g->w_value, g->M);
    } else {
        be->head_bwd(be->ctx, w->dxn, vl_grad(g, g->head >= 0 ? g->head : g->embed), w->xn,
                     g->w_head, g->target, g->lse, g->entropy, dlogp, dent, g->more, &g->out_runs,
                     g->inv_temp, g->M, !g->fresh);
    }
    be->rmsnorm_bwd(be->ctx, w->dxo, vl_grad(g, g->norm), NULL, w->dxn, w->xo, vl_par(g, g->norm),
                    w->rstd_f, g->M, c->C, 0, VL_COMPUTE_F32);
    be->zero(be->ctx, w->dx, (size_t)(g->N * c->C) * sizeof(float));
    be->scatter_add(be->ctx, w->dx, w->dxo, g->out, g->M, c->C);
}

static void qk_norm_backward(struct vl_engine *g, const struct vl_layer *y, const struct vl_acts *a)
{
    const struct vl_config *c = &g->cfg;
    struct vl_backend *be = g->be;
    int32_t H = (int32_t)c->H, K = (int32_t)c->K, D = (int32_t)c->D;
    int64_t A = vl_qkv_width(c);
    float *dq = g->work.dqkv, *dk = dq + H * D;

    be->head_norm_bwd(be->ctx, dk, A, vl_grad(g, y->k_norm), a->k0, vl_par(g, y->k_norm), a->rstd_k,
                      g->N, K, D);
    be->head_norm_bwd(be->ctx, dq, A, vl_grad(g, y->q_norm), a->q0, vl_par(g, y->q_norm), a->rstd_q,
                      g->N, H, D);
}

/* The operands that forward made, n and h, are made again: keeping them for all layers would be a
 * quarter of a layer's memory, making them costs little beside what reads the same rows anyway. */
static void mlp_backward(struct vl_engine *g, const struct vl_layer *y, const struct vl_acts *a)
{
    const struct vl_config *c = &g->cfg;
    struct vl_backend *be = g->be;
    struct vl_work *w = &g->work;
    enum vl_compute ct = g->opt.compute;
    int64_t N = g->N;
    const void *dx = be->operand(be->ctx, w->dy, w->dx, N, c->C, ct);

    be->gate_up_bwd(be->ctx, w->dgu, w->h, dx, y->w_down, a->gu, N);
    be->linear_dw(be->ctx, vl_grad(g, y->down), dx, w->h, N, c->C, c->F, ct, &g->runs, !g->fresh);
    if (y->down_bias >= 0)
        be->linear_db(be->ctx, vl_grad(g, y->down_bias), w->dx, N, c->C, VL_COMPUTE_F32);
    if (y->gate_up_bias >= 0)
        be->linear_db(be->ctx, vl_grad(g, y->gate_up_bias), w->dgu, N, 2 * c->F, ct);
    be->linear_dx(be->ctx, w->dn, w->dgu, y->w_gate_up, N);
    be->rmsnorm_bwd(be->ctx, w->dx, vl_grad(g, y->mlp_norm), w->n, w->dn, a->x2,
                    vl_par(g, y->mlp_norm), a->rstd2, N, c->C, 1, ct);
    be->linear_dw(be->ctx, vl_grad(g, y->gate_up), w->dgu, w->n, N, 2 * c->F, c->C, ct, &g->runs,
                  !g->fresh);
}

static void attention_backward(struct vl_engine *g, int64_t l, const struct vl_acts *a)
{
    const struct vl_config *c = &g->cfg;
    const struct vl_layer *y = &g->layer[l];
    struct vl_backend *be = g->be;
    struct vl_work *w = &g->work;
    struct vl_attn at = vl_layer_attn(c, g->opt.compute, l);
    enum vl_compute ct = g->opt.compute;
    int64_t N = g->N, A = vl_qkv_width(c), HD = c->H * c->D;
    const void *dx = be->operand(be->ctx, w->dy, w->dx, N, c->C, ct), *dqkv;

    be->linear_dw(be->ctx, vl_grad(g, y->o), dx, be->operand(be->ctx, w->n, a->att, N, HD, ct), N,
                  c->C, HD, ct, &g->runs, !g->fresh);
    if (y->o_bias >= 0)
        be->linear_db(be->ctx, vl_grad(g, y->o_bias), w->dx, N, c->C, VL_COMPUTE_F32);
    be->linear_dx(be->ctx, w->datt, dx, y->w_o, N);
    be->attention_bwd(be->ctx, w->dqkv, w->datt, a->att, a->lse, a->qkv, g->seq, g->nseq, &at);
    be->rope(be->ctx, w->dqkv, A, g->rope, g->pos, N, (int32_t)(c->H + c->K), at.D, -1);
    if (c->qk_norm)
        qk_norm_backward(g, y, a);
    dqkv = be->operand(be->ctx, w->dgu, w->dqkv, N, A, ct);
    if (y->qkv_bias >= 0)
        be->linear_db(be->ctx, vl_grad(g, y->qkv_bias), w->dqkv, N, A, VL_COMPUTE_F32);
    be->linear_dx(be->ctx, w->dn, dqkv, y->w_qkv, N);
    be->rmsnorm_bwd(be->ctx, w->dx, vl_grad(g, y->attn_norm), w->n, w->dn, a->x,
                    vl_par(g, y->attn_norm), a->rstd1, N, c->C, 1, ct);
    be->linear_dw(be->ctx, vl_grad(g, y->qkv), dqkv, w->n, N, A, c->C, ct, &g->runs, !g->fresh);
}

int vl_engine_backward(struct vl_engine *g, const float *dlogp, const float *dent,
                       const float *dvalue, struct vl_err *e)
{
    const struct vl_config *c = &g->cfg;
    struct vl_work *w = &g->work;
    int value = c->head == VL_HEAD_VALUE;

    if (!g->kept)
        return vl_fail(e, VL_E_BUG, "engine: backward without a kept forward pass");
    g->kept = 0;
    if (!g->M)
        return 0;
    if (value ? !dvalue : !dlogp)
        return vl_fail(e, VL_E_BUG, "engine: backward without the head's gradient");
    head_backward(g, dlogp, dent, dvalue);
    for (int64_t l = c->L - 1; l >= 0; l--) {
        struct vl_acts *a = &w->layer[l];

        /* The shared set still holds the last layer. The result is not needed. */
        if (g->opt.recompute && l < c->L - 1)
            vl_layer_forward(g, l, a, NULL, g->pos, g->N, g->seq, g->nseq, NULL);
        mlp_backward(g, &g->layer[l], a);
        attention_backward(g, l, a);
    }
    vl_grads_embed(g, w->dx);
    g->fresh = 0;
    return 0;
}
