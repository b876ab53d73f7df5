/* grads.c - the gradient slab, and the optimizer's step over it.
 *
 * Matrices are most of a slab and are not zeroed: after vl_engine_zero_grads the first backward pass
 * writes them, later ones add. The step packs each matrix while its rows are in the cache.
 * A tied embedding gets its gradient from two sides. They are kept apart until
 * vl_engine_finish_grads, since adding them micro-batch by micro-batch would make the sum's order,
 * and so its bits, depend on where the batch was cut. The input side has a row only for each id that
 * occurred, in the order in which they did. */
#include "libverl/engine/internal.h"

#include <stdlib.h>

float *vl_engine_grads(struct vl_engine *g)
{
    return g->grads;
}

static void zero(struct vl_engine *g, int64_t off, int64_t n)
{
    if (off >= 0)
        g->be->zero(g->be->ctx, g->grads + off, (size_t)n * sizeof(float));
}

static void forget_ids(struct vl_engine *g)
{
    if (g->slots)
        g->be->zero(g->be->ctx, g->dembed, (size_t)(g->slots * g->cfg.C) * sizeof(float));
    for (int64_t i = 0; i < g->slots; i++)
        g->slot[g->slot_id[i]] = -1;
    g->slots = 0;
}

void vl_engine_zero_grads(struct vl_engine *g)
{
    const struct vl_config *c = &g->cfg;

    for (int64_t l = 0; l < c->L; l++) {
        const struct vl_layer *y = &g->layer[l];

        zero(g, y->attn_norm, c->C);
        zero(g, y->qkv_bias, vl_qkv_width(c));
        zero(g, y->q_norm, c->D);
        zero(g, y->k_norm, c->D);
        zero(g, y->o_bias, c->C);
        zero(g, y->mlp_norm, c->C);
        zero(g, y->gate_up_bias, 2 * c->F);
        zero(g, y->down_bias, c->C);
    }
    zero(g, g->norm, c->C);
    zero(g, g->value_bias, 1);
    if (!g->dembed) /* else the head writes it */
        zero(g, g->embed, c->V * c->C);
    forget_ids(g);
    g->fresh = 1;
}

void vl_engine_finish_grads(struct vl_engine *g)
{
    struct vl_backend *be = g->be;

    if (g->fresh) /* nothing came */
        zero(g, 0, g->count);
    g->fresh = 0;
    if (g->slots)
        be->scatter_add(be->ctx, vl_grad(g, g->embed), g->dembed, g->slot_id, g->slots, g->cfg.C);
    forget_ids(g);
}

int vl_grads_new(struct vl_engine *g, struct vl_err *e)
{
    int64_t V = g->cfg.V;

    if (vl_try_alloc(&g->slot, (size_t)V, sizeof *g->slot, "ids", e) ||
        vl_try_alloc(&g->slot_id, (size_t)V, sizeof *g->slot_id, "ids", e))
        return e->code;
    for (int64_t i = 0; i < V; i++)
        g->slot[i] = -1;
    return g->be->alloc(g->be->ctx, (void **)&g->dembed, (size_t)(V * g->cfg.C) * sizeof(float), e);
}

void vl_grads_embed(struct vl_engine *g, const float *dx)
{
    struct vl_backend *be = g->be;
    int32_t *at;

    if (!g->dembed) {
        be->embed_dw(be->ctx, vl_grad(g, g->embed), dx, g->ids, g->N, g->cfg.C);
        return;
    }
    at = vl_alloc((size_t)g->N * sizeof *at);
    for (int64_t i = 0; i < g->N; i++) {
        int32_t *slot = &g->slot[g->ids[i]];

        if (*slot < 0) {
            *slot = (int32_t)g->slots;
            g->slot_id[g->slots++] = g->ids[i];
        }
        at[i] = *slot;
    }
    be->embed_dw(be->ctx, g->dembed, dx, at, g->N, g->cfg.C);
    free(at);
}

/* ---- the step ---- */

static void add_matrix(struct vl_engine *g, struct vl_matrix **at, struct vl_weight *w, int64_t off,
                       int64_t n)
{
    struct vl_matrix *m = (*at)++;

    for (; m > g->matrix && m[-1].off > off; m--)
        *m = m[-1];
    *m = (struct vl_matrix){ w, off, n };
}

void vl_grads_matrices(struct vl_engine *g)
{
    const struct vl_config *c = &g->cfg;
    struct vl_matrix *at;

    at = g->matrix = vl_alloc((size_t)(4 * c->L + 1) * sizeof *g->matrix);
    for (int64_t l = 0; l < c->L; l++) {
        const struct vl_layer *y = &g->layer[l];

        add_matrix(g, &at, y->w_qkv, y->qkv, vl_qkv_width(c) * c->C);
        add_matrix(g, &at, y->w_o, y->o, c->C * c->H * c->D);
        add_matrix(g, &at, y->w_gate_up, y->gate_up, 2 * c->F * c->C);
        add_matrix(g, &at, y->w_down, y->down, c->C * c->F);
    }
    if (g->w_value)
        add_matrix(g, &at, g->w_value, g->value_head, c->C);
    else
        add_matrix(g, &at, g->w_head, g->head >= 0 ? g->head : g->embed, c->V * c->C);
    g->matrices = at - g->matrix;
}

void vl_engine_repack(struct vl_engine *g)
{
    for (int64_t i = 0; i < g->matrices; i++)
        g->be->weight_set(g->be->ctx, g->matrix[i].w, g->params + g->matrix[i].off);
    g->kept = 0;
}

struct rule {
    const struct vl_adamw *adamw; /* or */
    const struct vl_sgd *sgd;
    int64_t *changed;
};

static void step(struct vl_engine *g, int64_t at, int64_t n, struct vl_weight *w,
                 const struct rule *r)
{
    struct vl_backend *be = g->be;
    float *p = g->params + at, *grad = g->grads + at, *moment[VL_MAX_MOMENTS];

    for (int i = 0; i < VL_MAX_MOMENTS; i++)
        moment[i] = g->moment[i] ? g->moment[i] + at : NULL;
    if (n && r->adamw)
        be->adamw(be->ctx, p, moment[0], moment[1], moment[2], grad, n, r->adamw, w, r->changed);
    else if (n)
        be->sgd(be->ctx, p, moment[0], grad, n, r->sgd, w, r->changed);
}

/* The matrices in [at, at + n), and what is between them. */
static void step_all(struct vl_engine *g, int64_t at, int64_t n, const struct rule *r)
{
    int64_t end = at + n;

    for (int64_t i = 0; i < g->matrices; i++) {
        const struct vl_matrix *m = &g->matrix[i];

        if (m->off < at || m->off >= end)
            continue;
        step(g, at, m->off - at, NULL, r);
        step(g, m->off, m->n, m->w, r);
        at = m->off + m->n;
    }
    step(g, at, end - at, NULL, r);
    g->kept = 0;
}

void vl_engine_adamw(struct vl_engine *g, int64_t at, int64_t n, const struct vl_adamw *o,
                     int64_t *changed)
{
    step_all(g, at, n, &(struct rule){ .adamw = o, .changed = changed });
}

void vl_engine_sgd(struct vl_engine *g, int64_t at, int64_t n, const struct vl_sgd *o,
                   int64_t *changed)
{
    step_all(g, at, n, &(struct rule){ .sgd = o, .changed = changed });
}
