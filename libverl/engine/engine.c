/* engine.c - the engine's memory: parameters, gradients, moments, packed weights, activations.
 *
 * For inference the matrices live in their packed form alone; the slab then holds the embedding and
 * the vectors. */
#include "libverl/engine/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t offset_of(const struct vl_model *m, const char *name)
{
    const struct vl_param *p = vl_model_param(m, name);

    return p ? p->offset : -1;
}

static int64_t layer_offset(const struct vl_model *m, int64_t l, const char *name)
{
    char full[96];

    snprintf(full, sizeof full, "layers.%lld.%s", (long long)l, name);
    return offset_of(m, full);
}

static int find_params(struct vl_engine *g, const struct vl_model *m, struct vl_err *e)
{
    const struct vl_config *c = &m->cfg;

    g->embed = offset_of(m, "embed");
    g->norm = offset_of(m, "norm");
    g->head = offset_of(m, "head");
    g->value_head = offset_of(m, "value_head");
    g->value_bias = offset_of(m, "value_head_bias");
    g->layer = vl_alloc((size_t)c->L * sizeof *g->layer);
    for (int64_t l = 0; l < c->L; l++) {
        struct vl_layer *y = &g->layer[l];

        y->attn_norm = layer_offset(m, l, "attn_norm");
        y->qkv = layer_offset(m, l, "qkv");
        y->qkv_bias = layer_offset(m, l, "qkv_bias");
        y->q_norm = layer_offset(m, l, "q_norm");
        y->k_norm = layer_offset(m, l, "k_norm");
        y->o = layer_offset(m, l, "o");
        y->o_bias = layer_offset(m, l, "o_bias");
        y->mlp_norm = layer_offset(m, l, "mlp_norm");
        y->gate_up = layer_offset(m, l, "gate_up");
        y->gate_up_bias = layer_offset(m, l, "gate_up_bias");
        y->down = layer_offset(m, l, "down");
        y->down_bias = layer_offset(m, l, "down_bias");
        if (y->attn_norm < 0 || y->qkv < 0 || y->o < 0 || y->mlp_norm < 0 || y->gate_up < 0 ||
            y->down < 0)
            return vl_fail(e, VL_E_BUG, "engine: the layout of layer %lld lacks a matrix",
                           (long long)l);
    }
    if (g->embed < 0 || g->norm < 0 || (c->head == VL_HEAD_VALUE && g->value_head < 0) ||
        (c->head == VL_HEAD_LM && g->head < 0 && !c->tied))
        return vl_fail(e, VL_E_BUG, "engine: the layout lacks embed, norm or the head");
    return 0;
}

static enum vl_form form_of(const struct vl_engine_opts *o)
{
    return o->train ? VL_FORM_TRAIN : o->int8 ? VL_FORM_INT8 : VL_FORM_PLAIN;
}

static int new_weight(struct vl_engine *g, struct vl_weight **w, int64_t O, int64_t I,
                      struct vl_err *e)
{
    return g->be->weight_new(g->be->ctx, w, O, I, g->opt.compute, form_of(&g->opt), e);
}

static int new_weights(struct vl_engine *g, struct vl_err *e)
{
    const struct vl_config *c = &g->cfg;

    for (int64_t l = 0; l < c->L; l++) {
        struct vl_layer *y = &g->layer[l];

        if (new_weight(g, &y->w_qkv, vl_qkv_width(c), c->C, e) ||
            new_weight(g, &y->w_o, c->C, c->H * c->D, e) ||
            new_weight(g, &y->w_gate_up, 2 * c->F, c->C, e) ||
            new_weight(g, &y->w_down, c->C, c->F, e))
            return e->code;
    }
    /* A value is one dot product per token: fp32 costs nothing there and keeps its precision. */
    if (c->head == VL_HEAD_VALUE)
        return g->be->weight_new(g->be->ctx, &g->w_value, 1, c->C, VL_COMPUTE_F32,
                                 g->opt.train ? VL_FORM_TRAIN : VL_FORM_PLAIN, e);
    return new_weight(g, &g->w_head, c->V, c->C, e);
}

static int new_slabs(struct vl_engine *g, struct vl_err *e)
{
    struct vl_backend *be = g->be;
    size_t bytes = (size_t)g->count * sizeof(float);
    int tied = g->cfg.head == VL_HEAD_LM && g->head < 0;

    if (be->alloc(be->ctx, (void **)&g->params, bytes, e) ||
        be->alloc(be->ctx, (void **)&g->grads, bytes, e) || vl_moments_new(g, e))
        return e->code;
    vl_grads_matrices(g);
    return tied ? vl_grads_new(g, e) : 0;
}

/* ---- inference: where each parameter goes; then all of them, in one pass over their files ---- */

/* A parameter is packed, or kept as it is, or (the embedding of a tied model) both. */
struct place {
    struct vl_weight *w;
    int64_t at; /* floats from g->params, or -1 */
};

struct load {
    struct vl_engine *g;
    const struct vl_model *m;
    struct place *place; /* (m->nparam) */
};

static struct place *place_of(const struct load *l, int64_t off)
{
    int64_t lo = 0, hi = l->m->nparam; /* offsets rise */

    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;

        if (l->m->param[mid].offset <= off)
            lo = mid;
        else
            hi = mid;
    }
    return &l->place[lo];
}

static void pack(const struct load *l, int64_t *off, struct vl_weight *w)
{
    place_of(l, *off)->w = w;
    *off = -1;
}

static void keep(const struct load *l, int64_t *off, int64_t n)
{
    if (*off < 0)
        return;
    place_of(l, *off)->at = l->g->count;
    *off = l->g->count;
    l->g->count += (n + 15) & ~(int64_t)15;
}

static void place_all(const struct load *l)
{
    struct vl_engine *g = l->g;
    const struct vl_config *c = &g->cfg;

    g->count = 0;
    for (int64_t i = 0; i < l->m->nparam; i++)
        l->place[i] = (struct place){ .at = -1 };
    if (g->w_value)
        pack(l, &g->value_head, g->w_value);
    else if (g->head >= 0)
        pack(l, &g->head, g->w_head);
    else
        place_of(l, g->embed)->w = g->w_head;
    keep(l, &g->embed, c->V * c->C);
    keep(l, &g->norm, c->C);
    keep(l, &g->value_bias, 1);
    for (int64_t i = 0; i < c->L; i++) {
        struct vl_layer *y = &g->layer[i];

        pack(l, &y->qkv, y->w_qkv);
        pack(l, &y->o, y->w_o);
        pack(l, &y->gate_up, y->w_gate_up);
        pack(l, &y->down, y->w_down);
        keep(l, &y->attn_norm, c->C);
        keep(l, &y->qkv_bias, vl_qkv_width(c));
        keep(l, &y->q_norm, c->D);
        keep(l, &y->k_norm, c->D);
        keep(l, &y->o_bias, c->C);
        keep(l, &y->mlp_norm, c->C);
        keep(l, &y->gate_up_bias, 2 * c->F);
        keep(l, &y->down_bias, c->C);
    }
}

static int put(void *arg, int64_t i, int64_t row, int64_t n, const float *x, struct vl_err *e)
{
    const struct load *l = arg;
    const struct place *p = &l->place[i];
    struct vl_backend *be = l->g->be;
    int64_t cols = l->m->param[i].cols;

    (void)e;
    if (p->w)
        be->weight_rows(be->ctx, p->w, x, row, n);
    if (p->at >= 0)
        be->upload(be->ctx, l->g->params + p->at + row * cols, x,
                   (size_t)(n * cols) * sizeof(float));
    return 0;
}

/* From m's slab, or with `from` by reading from's weights; m and from are the same model. */
static int load_inference(struct vl_engine *g, const struct vl_model *m, struct vl_model *from,
                          int threads, struct vl_err *e)
{
    struct load l = { g, m, vl_alloc((size_t)m->nparam * sizeof *l.place) };
    struct vl_sink to = { .put = put, .arg = &l, .threads = threads };

    place_all(&l);
    if (!g->be->alloc(g->be->ctx, (void **)&g->params, (size_t)g->count * sizeof(float), e)) {
        if (from)
            (void)!vl_model_read(from, &to, e);
        else
            for (int64_t i = 0; i < m->nparam; i++)
                (void)!put(&l, i, 0, m->param[i].rows, m->slab + m->param[i].offset, e);
    }
    free(l.place);
    return e->code;
}

static int load_training(struct vl_engine *g, const struct vl_model *m, struct vl_model *from,
                         int threads, struct vl_err *e)
{
    struct vl_engine_slab slab = { g, m, VL_WEIGHTS };
    struct vl_sink to = { .put = vl_engine_slab_put, .arg = &slab, .threads = threads };

    if (new_slabs(g, e))
        return e->code;
    if (!from)
        g->be->upload(g->be->ctx, g->params, m->slab, (size_t)g->count * sizeof(float));
    else if (vl_model_read(from, &to, e))
        return e->code;
    vl_engine_repack(g);
    return 0;
}

static int new_engine(struct vl_engine **out, const struct vl_model *m, struct vl_model *from,
                      int threads, struct vl_backend *be, const struct vl_engine_opts *o,
                      struct vl_err *e)
{
    struct vl_engine *g = vl_alloc(sizeof *g);

    g->cfg = m->cfg;
    g->cfg.json = NULL;
    g->opt = *o;
    g->be = be;
    g->count = m->count;
    if (o->train && o->int8)
        vl_fail(e, VL_E_BUG, "engine: weights of eight bits cannot be trained");
    else if (!from && !m->slab)
        vl_fail(e, VL_E_BUG, "engine: the model was opened without its weights");
    if (e->code || find_params(g, m, e) || new_weights(g, e) ||
        (o->train ? load_training : load_inference)(g, m, from, threads, e)) {
        vl_engine_free(g);
        return e->code;
    }
    *out = g;
    return 0;
}

int vl_engine_new(struct vl_engine **out, const struct vl_model *m, struct vl_backend *be,
                  const struct vl_engine_opts *o, struct vl_err *e)
{
    return new_engine(out, m, NULL, 0, be, o, e);
}

int vl_engine_load(struct vl_engine **out, struct vl_model *m, struct vl_backend *be,
                   const struct vl_engine_opts *o, int threads, struct vl_err *e)
{
    return new_engine(out, m, m, threads, be, o, e);
}

static void free_weights(struct vl_engine *g)
{
    struct vl_backend *be = g->be;

    for (int64_t l = 0; g->layer && l < g->cfg.L; l++) {
        struct vl_weight *w[] = { g->layer[l].w_qkv, g->layer[l].w_o, g->layer[l].w_gate_up,
                                  g->layer[l].w_down };

        for (size_t i = 0; i < sizeof w / sizeof *w; i++)
            if (w[i])
                be->weight_free(be->ctx, w[i]);
    }
    if (g->w_head)
        be->weight_free(be->ctx, g->w_head);
    if (g->w_value)
        be->weight_free(be->ctx, g->w_value);
}

void vl_engine_free(struct vl_engine *g)
{
    if (!g)
        return;
    void *dev[] = { g->params, g->grads, g->dembed, g->rope, g->arena };

    free_weights(g);
    vl_moments_free(g);
    for (size_t i = 0; i < sizeof dev / sizeof *dev; i++)
        if (dev[i])
            g->be->free(g->be->ctx, dev[i]);
    free(g->layer);
    free(g->slot);
    free(g->slot_id);
    free(g->matrix);
    free(g->work.layer);
    free(g->ids);
    free(g->pos);
    free(g->target);
    free(g->seq);
    free(g->bounds);
    free(g->out);
    free(g->lse);
    free(g->entropy);
    free(g);
}

static float *take(struct vl_arena *a, int64_t n, int64_t width)
{
    size_t bytes;

    if (__builtin_mul_overflow((size_t)width, sizeof(float), &bytes))
        bytes = SIZE_MAX;
    return vl_arena_take(a, (size_t)n, bytes);
}

/* (n, width) operand, or of the wider one where two share the place. */
static void *take_operand(struct vl_arena *a, const struct vl_backend *be, enum vl_compute ct,
                          int64_t n, int64_t width, int64_t other)
{
    return vl_arena_take(a, (size_t)n,
                         be->operand_bytes(be->ctx, width > other ? width : other, ct));
}

/* Everything of one layer but its input x. */
static void layout_acts(struct vl_arena *a, struct vl_acts *y, const struct vl_config *c, int64_t N,
                        int train)
{
    y->rstd1 = take(a, N, 1);
    y->q0 = c->qk_norm ? take(a, N, c->H * c->D) : NULL;
    y->k0 = c->qk_norm ? take(a, N, c->K * c->D) : NULL;
    y->rstd_q = c->qk_norm ? take(a, N, c->H) : NULL;
    y->rstd_k = c->qk_norm ? take(a, N, c->K) : NULL;
    y->qkv = take(a, N, vl_qkv_width(c));
    y->att = take(a, N, c->H * c->D);
    y->lse = train ? take(a, N, c->H) : NULL;
    y->x2 = take(a, N, c->C);
    y->rstd2 = take(a, N, 1);
    y->gu = train ? take(a, N, 2 * c->F) : NULL;
}

static void layout_backward(struct vl_arena *a, struct vl_work *w, const struct vl_config *c,
                            const struct vl_backend *be, enum vl_compute ct, int64_t N, int64_t M)
{
    w->dx = take(a, N, c->C);
    w->dn = take(a, N, c->C);
    w->dy = take_operand(a, be, ct, N, c->C, 0);
    w->dgu = take_operand(a, be, ct, N, 2 * c->F, vl_qkv_width(c));
    w->datt = take(a, N, c->H * c->D);
    w->dqkv = take(a, N, vl_qkv_width(c));
    w->dxo = take(a, M, c->C);
    w->dxn = take(a, M, c->C);
    w->dvalue = take(a, M, 1);
}

void vl_work_layout(struct vl_arena *a, struct vl_work *w, const struct vl_config *c,
                    const struct vl_backend *be, enum vl_compute ct, enum vl_keep keep, int64_t N,
                    int64_t M)
{
    int train = keep != VL_KEEP_NONE;
    struct vl_acts shared = { 0 };

    if (keep != VL_KEEP_ALL)
        layout_acts(a, &shared, c, N, train);
    shared.x = keep == VL_KEEP_NONE ? take(a, N, c->C) : NULL;
    for (int64_t l = 0; l < c->L; l++) {
        struct vl_acts y = shared;

        if (keep == VL_KEEP_ALL)
            layout_acts(a, &y, c, N, train);
        if (train)
            y.x = take(a, N, c->C);
        if (w->layer)
            w->layer[l] = y;
    }
    w->xL = train ? take(a, N, c->C) : shared.x;
    w->xo = take(a, M, c->C);
    w->rstd_f = take(a, M, 1);
    w->xn = take(a, M, c->C);
    w->value = take(a, M, 1);
    w->n = take_operand(a, be, ct, N, c->C, c->H * c->D);
    w->h = take_operand(a, be, ct, N, c->F, 0);
    if (train)
        layout_backward(a, w, c, be, ct, N, M);
}

int vl_work_get(struct vl_engine *g, enum vl_keep keep, int64_t N, int64_t M, struct vl_err *e)
{
    struct vl_arena a = { 0 };
    struct vl_work measure = { 0 };

    if (!g->work.layer)
        g->work.layer = vl_alloc((size_t)g->cfg.L * sizeof *g->work.layer);
    vl_work_layout(&a, &measure, &g->cfg, g->be, g->opt.compute, keep, N, M);
    if (a.used > g->arena_bytes) {
        if (g->arena)
            g->be->free(g->be->ctx, g->arena);
        g->arena = NULL;
        g->arena_bytes = 0;
        if (g->be->alloc(g->be->ctx, &g->arena, a.used, e))
            return vl_err_prefix(e, "activations of %lld tokens", (long long)N);
        g->arena_bytes = a.used;
    }
    a = (struct vl_arena){ .base = g->arena };
    vl_work_layout(&a, &g->work, &g->cfg, g->be, g->opt.compute, keep, N, M);
    return 0;
}

size_t vl_engine_bytes(const struct vl_config *c, const struct vl_engine_opts *o,
                       const struct vl_backend *be, const struct vl_extent *x)
{
    enum vl_form form = form_of(o);
    struct vl_shape shape = { .attn = vl_layer_attn(c, o->compute, 0),
                              .C = c->C,
                              .F = c->F,
                              .V = c->head == VL_HEAD_LM ? c->V : 0,
                              .form = form };
    struct vl_model m = { .cfg = *c };
    struct vl_arena a = { 0 };
    struct vl_work w = { 0 };
    size_t layer, total;
    int tied = c->head == VL_HEAD_LM && c->tied;

    vl_model_layout(&m);
    layer = be->weight_bytes(be->ctx, vl_qkv_width(c), c->C, o->compute, form) +
            be->weight_bytes(be->ctx, c->C, c->H * c->D, o->compute, form) +
            be->weight_bytes(be->ctx, 2 * c->F, c->C, o->compute, form) +
            be->weight_bytes(be->ctx, c->C, c->F, o->compute, form);
    total = layer * (size_t)c->L;
    if (o->train) {
        total += (size_t)m.count * sizeof(float) * 2 + vl_moments_bytes(c, o, m.count);
    } else {
        total += (size_t)(c->V * c->C) * sizeof(float);
        for (int64_t i = 0; i < m.nparam; i++)
            if (m.param[i].rows == 1)
                total += (size_t)m.param[i].cols * sizeof(float);
    }
    if (c->head == VL_HEAD_VALUE)
        total += be->weight_bytes(be->ctx, 1, c->C, VL_COMPUTE_F32,
                                  o->train ? VL_FORM_TRAIN : VL_FORM_PLAIN);
    else
        total += be->weight_bytes(be->ctx, c->V, c->C, o->compute, form);
    if (o->train && tied)
        total += (size_t)(c->V * c->C) * sizeof(float);
    vl_work_layout(&a, &w, c, be, o->compute,
                   !o->train      ? VL_KEEP_NONE
                   : o->recompute ? VL_KEEP_INPUTS
                                  : VL_KEEP_ALL,
                   x->N, x->M);
    free(m.param);
    total += (size_t)(x->longest * c->D) * sizeof(float); /* rope */
    return total + a.used + be->scratch_bytes(be->ctx, &shape, x);
}

float *vl_engine_params(struct vl_engine *g)
{
    return g->params;
}
