/* forward.c - the transformer's forward pass, the one pass that rollout, log-prob and update share.
 *
 * Rows (tokens) never mix outside attention, and each operation of the backend reduces in an order
 * that does not depend on its neighbours; so a token's bits are the same in a prefill, a decode
 * step or a training batch. */
#include "libverl/engine/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct vl_attn vl_layer_attn(const struct vl_config *c, enum vl_compute ct, int64_t l)
{
    return (struct vl_attn){ .H = (int32_t)c->H,
                             .K = (int32_t)c->K,
                             .D = (int32_t)c->D,
                             .window = l >= c->window_from ? (int32_t)c->window : 0,
                             .scale = (float)(1.0 / sqrt((double)c->D)),
                             .ct = ct };
}

static void qk_norm(struct vl_engine *g, const struct vl_layer *y, struct vl_acts *a, int64_t N)
{
    const struct vl_config *c = &g->cfg;
    struct vl_backend *be = g->be;
    int32_t H = (int32_t)c->H, K = (int32_t)c->K, D = (int32_t)c->D;
    int64_t A = vl_qkv_width(c);
    float eps = (float)c->rms_eps;

    be->head_norm(be->ctx, a->qkv, A, a->q0, a->rstd_q, vl_par(g, y->q_norm), N, H, D, eps);
    be->head_norm(be->ctx, a->qkv + H * D, A, a->k0, a->rstd_k, vl_par(g, y->k_norm), N, K, D, eps);
}

void vl_layer_forward(struct vl_engine *g, int64_t l, struct vl_acts *a, float *xnext,
                      const int32_t *pos, int64_t N, const struct vl_seq *seq, int64_t nseq,
                      const struct vl_kv *kv)
{
    const struct vl_config *c = &g->cfg;
    const struct vl_layer *y = &g->layer[l];
    struct vl_backend *be = g->be;
    struct vl_work *w = &g->work;
    enum vl_compute ct = g->opt.compute;
    struct vl_attn at = vl_layer_attn(c, g->opt.compute, l);
    float eps = (float)c->rms_eps;
    void *k = kv ? kv->k[l] : NULL, *v = kv ? kv->v[l] : NULL;
    const void *o;

    be->rmsnorm(be->ctx, w->n, a->rstd1, a->x, vl_par(g, y->attn_norm), N, c->C, eps, ct);
    be->linear(be->ctx, a->qkv, w->n, y->w_qkv, vl_par(g, y->qkv_bias), NULL, N);
    if (c->qk_norm)
        qk_norm(g, y, a, N);
    be->rope(be->ctx, a->qkv, vl_qkv_width(c), g->rope, pos, N, (int32_t)(c->H + c->K), at.D, 1);
    if (kv)
        be->kv_store(be->ctx, k, v, a->qkv, seq, nseq, &at);
    be->attention(be->ctx, a->att, a->lse, a->qkv, k, v, seq, nseq, &at);
    o = be->operand(be->ctx, w->n, a->att, N, c->H * c->D, ct);
    be->linear(be->ctx, a->x2, o, y->w_o, vl_par(g, y->o_bias), a->x, N);

    be->rmsnorm(be->ctx, w->n, a->rstd2, a->x2, vl_par(g, y->mlp_norm), N, c->C, eps, ct);
    be->gate_up(be->ctx, w->h, a->gu, w->n, y->w_gate_up, vl_par(g, y->gate_up_bias), N);
    if (xnext)
        be->linear(be->ctx, xnext, w->h, y->w_down, vl_par(g, y->down_bias), a->x2, N);
}

void vl_body_forward(struct vl_engine *g, const struct vl_packed *p, const struct vl_kv *kv)
{
    const struct vl_config *c = &g->cfg;
    struct vl_backend *be = g->be;
    struct vl_work *w = &g->work;

    be->embed(be->ctx, w->layer[0].x, vl_par(g, g->embed), p->ids, p->N, c->C);
    for (int64_t l = 0; l < c->L; l++)
        vl_layer_forward(g, l, &w->layer[l], l + 1 < c->L ? w->layer[l + 1].x : w->xL, p->pos, p->N,
                         p->seq, p->nseq, kv);
    if (!p->M)
        return;
    be->gather(be->ctx, w->xo, w->xL, p->out, p->M, c->C);
    be->rmsnorm(be->ctx, w->xn, w->rstd_f, w->xo, vl_par(g, g->norm), p->M, c->C, (float)c->rms_eps,
                VL_COMPUTE_F32);
}

/* Ids index a table and positions a rope table: a wrong one must not read outside. */
static int check_packed(const struct vl_engine *g, const struct vl_packed *p, int64_t *positions,
                        struct vl_err *e)
{
    int64_t V = g->cfg.V, top = 0;

    for (int64_t i = 0; i < p->N; i++) {
        if (p->ids[i] < 0 || p->ids[i] >= V)
            return vl_fail(e, VL_E_DATA,
                           "engine: token %" PRId64 " of the packed batch has id %d, outside the "
                           "vocabulary of %" PRId64,
                           i, p->ids[i], V);
        if (p->pos[i] < 0)
            return vl_fail(e, VL_E_BUG, "engine: negative position %d", p->pos[i]);
        top = p->pos[i] >= top ? p->pos[i] + 1 : top;
    }
    for (int64_t i = 0; i < p->nseq; i++) {
        const struct vl_seq *s = &p->seq[i];

        if (s->pos && !s->page && (s->prefix < 0 || s->prefix + s->pos > s->row))
            return vl_fail(e, VL_E_BUG, "engine: sequence %" PRId64 " has no prefix before it", i);
    }
    for (int64_t j = 0; p->target && j < p->M; j++)
        if (p->target[j] < 0 || p->target[j] >= V)
            return vl_fail(e, VL_E_DATA,
                           "engine: target %" PRId64
                           " has id %d, outside the vocabulary of %" PRId64,
                           j, p->target[j], V);
    *positions = top;
    return 0;
}

static int prepare(struct vl_engine *g, const struct vl_packed *p, enum vl_keep keep,
                   struct vl_err *e)
{
    int64_t positions = 0;

    g->kept = 0;
    if (check_packed(g, p, &positions, e) || vl_rope_get(g, positions, e))
        return e->code;
    return vl_work_get(g, keep, p->N, p->M, e);
}

static void *replace(void *old, const void *src, size_t n)
{
    void *p;

    free(old);
    if (!src)
        return NULL;
    p = vl_alloc(n);
    memcpy(p, src, n);
    return p;
}

/* Where each sequence's rows begin, among all rows and among those of the head. */
static void keep_runs(struct vl_engine *g, const struct vl_packed *p)
{
    int64_t n = p->nseq, *row, *out;

    free(g->bounds);
    row = g->bounds = vl_alloc((size_t)(2 * n + 2) * sizeof *row);
    out = row + n + 1;
    for (int64_t i = 0, j = 0; i <= n; i++) {
        row[i] = i < n ? p->seq[i].row : p->N;
        while (j < p->M && p->out[j] < row[i])
            j++;
        out[i] = j;
    }
    g->runs = (struct vl_runs){ n, row };
    g->out_runs = (struct vl_runs){ n, out };
}

/* Backward needs the packing again and the head's lse and entropy. */
static void keep_packing(struct vl_engine *g, const struct vl_packed *p, float inv_temp)
{
    size_t N = (size_t)p->N, M = (size_t)p->M;

    g->ids = replace(g->ids, p->ids, N * sizeof *g->ids);
    g->pos = replace(g->pos, p->pos, N * sizeof *g->pos);
    g->seq = replace(g->seq, p->seq, (size_t)p->nseq * sizeof *g->seq);
    g->out = replace(g->out, p->out, M * sizeof *g->out);
    g->target = replace(g->target, p->target, M * sizeof *g->target);
    free(g->lse);
    free(g->entropy);
    g->lse = vl_alloc(M * sizeof(float));
    g->entropy = vl_alloc(M * sizeof(float));
    keep_runs(g, p);
    g->N = p->N, g->nseq = p->nseq, g->M = p->M;
    g->more = p->more;
    g->inv_temp = inv_temp;
    g->kept = 1;
}

static void values(struct vl_engine *g, const struct vl_packed *p, float *value)
{
    struct vl_backend *be = g->be;

    be->linear(be->ctx, g->work.value, g->work.xn, g->w_value, vl_par(g, g->value_bias), NULL,
               p->M);
    be->download(be->ctx, value, g->work.value, (size_t)p->M * sizeof(float));
}

int vl_engine_forward(struct vl_engine *g, const struct vl_packed *p, float inv_temp, int keep,
                      float *logp, float *entropy, float *sum_pi2, float *value, struct vl_err *e)
{
    enum vl_keep k = !keep ? VL_KEEP_NONE : g->opt.recompute ? VL_KEEP_INPUTS : VL_KEEP_ALL;

    if (keep && !g->opt.train)
        return vl_fail(e, VL_E_BUG, "engine: opened for inference, asked to keep activations");
    if (g->cfg.head == VL_HEAD_LM && p->M && (!p->target || !logp))
        return vl_fail(e, VL_E_BUG, "engine: log-probs need targets and a place to go");
    if (!p->M) { /* nothing is asked for: no gradient can flow either */
        g->kept = keep;
        g->M = 0;
        return 0;
    }
    if (prepare(g, p, k, e))
        return e->code;
    vl_body_forward(g, p, NULL);
    if (keep)
        keep_packing(g, p, inv_temp);
    if (g->cfg.head == VL_HEAD_VALUE) {
        if (value)
            values(g, p, value);
        return 0;
    }
    g->be->head_logp(g->be->ctx, logp, keep ? g->entropy : entropy, keep ? g->lse : NULL, sum_pi2,
                     g->work.xn, g->w_head, p->target, p->more, inv_temp, p->M);
    if (keep && entropy)
        memcpy(entropy, g->entropy, (size_t)p->M * sizeof(float));
    return 0;
}

int vl_engine_topk(struct vl_engine *g, const struct vl_packed *p, float inv_temp, int64_t K,
                   int32_t *id, float *top, float *logp, float *entropy, struct vl_err *e)
{
    struct vl_backend *be = g->be;

    if (g->cfg.head != VL_HEAD_LM || K < 1 || K > g->cfg.V)
        return vl_fail(e, VL_E_BUG, "engine: top %lld of a vocabulary of %lld", (long long)K,
                       (long long)g->cfg.V);
    if (!p->M)
        return 0;
    if (prepare(g, p, VL_KEEP_NONE, e))
        return e->code;
    vl_body_forward(g, p, NULL);
    if (!entropy && !p->more) { /* one pass over the vocabulary serves both */
        be->head_topk(be->ctx, id, top, logp, g->work.xn, g->w_head, p->target, inv_temp, K, p->M);
        return 0;
    }
    be->head_topk(be->ctx, id, top, NULL, g->work.xn, g->w_head, NULL, inv_temp, K, p->M);
    be->head_logp(be->ctx, logp, entropy, NULL, NULL, g->work.xn, g->w_head, p->target, p->more,
                  inv_temp, p->M);
    return 0;
}

int vl_engine_logits(struct vl_engine *g, const struct vl_packed *p, float *z, struct vl_err *e)
{
    if (g->cfg.head != VL_HEAD_LM)
        return vl_fail(e, VL_E_BUG, "engine: a value model has no logits");
    if (!p->M)
        return 0;
    if (prepare(g, p, VL_KEEP_NONE, e))
        return e->code;
    vl_body_forward(g, p, NULL);
    g->be->head_logits(g->be->ctx, z, g->work.xn, g->w_head, 1.0f, p->M);
    return 0;
}
