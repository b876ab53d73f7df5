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
                       int64_t rows, int64_t cols)
{
    struct vl_matrix *m = (*at)++;

    for (; m > g->matrix && m[-1].off > off; m--)
        *m = m[-1];
    *m = (struct vl_matrix){ w, off, rows, cols };
}

void vl_grads_matrices(struct vl_engine *g)
{
    const struct vl_config *c = &g->cfg;
    struct vl_matrix *at;

    at = g->matrix = vl_alloc((size_t)(4 * c->L + 1) * sizeof *g->matrix);
    for (int64_t l = 0; l < c->L; l++) {
        const struct vl_layer *y = &g->layer[l];

        add_matrix(g, &at, y->w_qkv, y->qkv, vl_qkv_width(c), c->C);
        add_matrix(g, &at, y->w_o, y->o, c->C, c->H * c->D);
        add_matrix(g, &at, y->w_gate_up, y->gate_up, 2 * c->F, c->C);
        add_matrix(g, &at, y->w_down, y->down, c->C, c->F);
    }
    if (g->w_value)
        add_matrix(g, &at, g->w_value, g->value_head, 1, c->C);
    else
        add_matrix(g, &at, g->w_head, g->head >= 0 ? g->head : g->embed, c->V, c->C);
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

/* Floats [at, at + n) of the slabs, which are w's rows from `row` on, with their moments at m. */
static void step(struct vl_engine *g, int64_t at, int64_t n, float *const m[], struct vl_weight *w,
                 int64_t row, const struct rule *r)
{
    struct vl_backend *be = g->be;
    float *p = g->params + at, *grad = g->grads + at;

    if (r->adamw)
        be->adamw(be->ctx, p, m[0], m[1], m[2], grad, n, r->adamw, w, row, r->changed);
    else
        be->sgd(be->ctx, p, m[0], grad, n, r->sgd, w, row, r->changed);
}

/* All rows of a matrix (w NULL: floats of no matrix), in windows where the moments are in a file. */
static int step_rows(struct vl_engine *g, int64_t at, int64_t rows, int64_t cols,
                     struct vl_weight *w, const struct rule *r, struct vl_err *e)
{
    struct vl_moments *m = &g->moments;
    float *here[VL_MAX_MOMENTS];
    int64_t most = w ? m->window / (VL_BLOCK_ROWS * cols) * VL_BLOCK_ROWS : m->window;

    if (!m->window) {
        for (int i = 0; i < VL_MAX_MOMENTS; i++)
            here[i] = m->dev[i] ? m->dev[i] + at : NULL;
        if (rows)
            step(g, at, rows * cols, here, w, 0, r);
        return 0;
    }
    for (int64_t row = 0, n; row < rows && !e->code; row += n) {
        n = rows - row < most ? rows - row : most;
        if (vl_moments_read(g, at + row * cols, n * cols, e))
            break;
        step(g, at + row * cols, n * cols, m->dev, w, row, r);
        (void)!vl_moments_write(g, at + row * cols, n * cols, e);
    }
    return e->code;
}

/* The matrices in [at, at + n), and what is between them. */
static int step_all(struct vl_engine *g, int64_t at, int64_t n, const struct rule *r,
                    struct vl_err *e)
{
    int64_t end = at + n;

    g->kept = 0;
    for (int64_t i = 0; i < g->matrices; i++) {
        const struct vl_matrix *m = &g->matrix[i];

        if (m->off < at || m->off >= end)
            continue;
        if (step_rows(g, at, m->off - at, 1, NULL, r, e) ||
            step_rows(g, m->off, m->rows, m->cols, m->w, r, e))
            return e->code;
        at = m->off + m->rows * m->cols;
    }
    return step_rows(g, at, end - at, 1, NULL, r, e);
}

int vl_engine_adamw(struct vl_engine *g, int64_t at, int64_t n, const struct vl_adamw *o,
                    int64_t *changed, struct vl_err *e)
{
    return step_all(g, at, n, &(struct rule){ .adamw = o, .changed = changed }, e);
}

int vl_engine_sgd(struct vl_engine *g, int64_t at, int64_t n, const struct vl_sgd *o,
                  int64_t *changed, struct vl_err *e)
{
    return step_all(g, at, n, &(struct rule){ .sgd = o, .changed = changed }, e);
}
