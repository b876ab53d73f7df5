/* update_step.c - one optimizer step: forward, loss, backward over micro-batches; sum over ranks; clip;
 * optimizer. See update.h.
 *
 * All ranks hold the same weights and moments and apply the same step to them, so nothing but the
 * gradient travels. It is summed in rank order: the same number of ranks gives the same bits. */
#include "libverl/run/update.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One micro-batch: arrays over its packed response tokens. */
struct micro {
    struct vl_pack pack;
    int64_t B;
    int64_t *first, *mask;
    float *logp, *entropy, *value, *dlogp, *dent, *dvalue;
    float *old_logp, *adv, *ref_logp, *is_weights, *values, *returns;
    double *draw;
    uint8_t *pick;
    int64_t *keep;
    struct vl_distill_in teacher;
    struct vl_more more;      /* the teacher's ids */
    float *teacher_logp, *lp; /* behind `teacher` */
    int32_t *topk_id;
    float *lq, *dlq;
};

static float *floats(int64_t n)
{
    return vl_alloc(sizeof(float) * (size_t)n);
}

/* src's values at the pack's cells, or NULL when there is no such column. */
static float *gathered(const struct vl_pack *k, const float *src)
{
    float *dst = src ? floats(k->p.M) : NULL;

    if (src)
        vl_pack_gather(dst, k, src);
    return dst;
}

/* The teacher's answers at the pack's cells; no id: -1, which the head passes over. */
static void gather_teacher(struct micro *m, const struct vl_update_data *d)
{
    int64_t M = m->pack.p.M, K = d->K;

    m->teacher_logp = gathered(&m->pack, d->teacher);
    m->teacher = (struct vl_distill_in){ .teacher = m->teacher_logp, .K = K };
    if (!K)
        return;
    m->topk_id = vl_alloc(sizeof *m->topk_id * (size_t)(M * K));
    m->lp = floats(M * K);
    m->lq = floats(M * K);
    m->dlq = floats(M * K);
    for (int64_t j = 0; j < M * K; j++) {
        int64_t from = m->pack.cell[j / K] * K + j % K;

        m->topk_id[j] = m->mask[j / K] ? (int32_t)d->topk_id[from] : -1;
        m->lp[j] = m->topk_id[j] < 0 ? -INFINITY : d->topk_logp[from];
    }
    m->more = (struct vl_more){ .K = K, .id = m->topk_id, .logp = m->lq, .dlogp = m->dlq };
    m->pack.p.more = &m->more;
    m->teacher.lp = m->lp;
    m->teacher.lq = m->lq;
    m->teacher.dlq = m->dlq;
}

static void micro_init(struct micro *m, const struct vl_update *u, const int64_t *rows, int64_t n)
{
    const struct vl_update_data *d = &u->data;
    int64_t M;

    *m = (struct micro){ .B = n };
    vl_pack_rows(&m->pack, &d->rows, rows, 0, n, u->o->share_prompts);
    M = m->pack.p.M;
    m->first = vl_alloc(sizeof *m->first * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++)
        m->first[i + 1] = m->first[i] + d->rows.rlen[rows[i]];
    m->mask = vl_alloc(sizeof *m->mask * (size_t)M);
    for (int64_t j = 0; j < M; j++)
        m->mask[j] = d->mask[m->pack.cell[j]];
    m->old_logp = gathered(&m->pack, d->old_logp);
    m->adv = gathered(&m->pack, d->adv);
    m->ref_logp = gathered(&m->pack, d->ref_logp);
    m->is_weights = gathered(&m->pack, d->bypass_w ? d->bypass_w : d->is_weights);
    m->values = gathered(&m->pack, d->values);
    m->returns = gathered(&m->pack, d->returns);
    if (d->draw) {
        m->draw = vl_alloc(sizeof *m->draw * (size_t)M);
        for (int64_t j = 0; j < M; j++)
            m->draw[j] = d->draw[m->pack.cell[j]];
    }
    gather_teacher(m, d);
    if (d->pick) {
        m->pick = vl_alloc((size_t)M);
        for (int64_t j = 0; j < M; j++)
            m->pick[j] = d->pick[m->pack.cell[j]];
    }
    if (d->keep) {
        m->keep = vl_alloc(sizeof *m->keep * (size_t)M);
        for (int64_t j = 0; j < M; j++)
            m->keep[j] = d->keep[m->pack.cell[j]];
    }
    if (u->o->role == VL_ROLE_CRITIC) {
        m->value = floats(M);
        m->dvalue = floats(M);
        return;
    }
    m->logp = floats(M);
    m->dlogp = floats(M);
    if (u->o->role == VL_ROLE_ACTOR && (u->o->entropy_coeff != 0 || u->o->calculate_entropy))
        m->entropy = floats(M);
    if (u->o->role == VL_ROLE_ACTOR && u->o->entropy_coeff != 0)
        m->dent = floats(M);
}

static void micro_free(struct micro *m)
{
    void *p[] = { m->first,   m->mask,    m->logp,     m->entropy,  m->value,      m->dlogp,
                  m->dent,    m->dvalue,  m->adv,      m->ref_logp, m->is_weights, m->values,
                  m->returns, m->draw,    m->old_logp, m->pick,     m->keep,       m->teacher_logp,
                  m->lp,      m->topk_id, m->lq,       m->dlq };

    vl_pack_free(&m->pack);
    for (size_t i = 0; i < sizeof p / sizeof *p; i++)
        free(p[i]);
}

static int micro_loss(struct vl_update *u, struct micro *m, const struct vl_loss_norm *norm,
                      struct vl_loss_sums *sums, struct vl_err *e)
{
    struct vl_pg_in in = { .rows = { .B = m->B, .first = m->first, .mask = m->mask },
                           .logp = m->logp,
                           .old_logp = m->old_logp,
                           .adv = m->adv,
                           .is_weights = m->is_weights,
                           .draw = m->draw,
                           .pick = m->pick,
                           .keep = m->keep,
                           .norm = &u->ahead_norm,
                           .distill = &m->teacher };

    switch (u->o->role) {
    case VL_ROLE_ACTOR:
        return vl_actor_loss(&u->actor, &in, m->ref_logp, m->entropy, norm, m->dlogp, m->dent, sums,
                             e);
    case VL_ROLE_CRITIC:
        vl_value_loss(&in.rows, m->value, m->values, m->returns, u->o->cliprange_value, u->agg,
                      norm, m->dvalue, sums);
        return 0;
    case VL_ROLE_SFT:
        vl_sft_loss(&in.rows, m->logp, norm, m->dlogp, sums);
        return 0;
    case VL_ROLE_DPO:
        vl_preference_loss(&u->pref, &in.rows, m->logp, m->ref_logp, norm, m->dlogp, sums);
        return 0;
    }
    return 0;
}

static int run_micro(struct vl_update *u, const int64_t *rows, int64_t n,
                     const struct vl_loss_norm *norm, struct vl_loss_sums *sums, struct vl_err *e)
{
    struct micro m;

    micro_init(&m, u, rows, n);
    if (vl_engine_forward(u->f.eng, &m.pack.p, u->data.inv_temp, 1, m.logp, m.entropy, NULL,
                          m.value, e))
        goto done;
    if (u->data.new_logp)
        vl_pack_scatter(u->data.new_logp, &m.pack, m.logp);
    if (!micro_loss(u, &m, norm, sums, e) &&
        vl_engine_backward(u->f.eng, m.dlogp, m.dent, m.dvalue, e))
        vl_err_prefix(e, "backward pass");
done:
    micro_free(&m);
    return e->code;
}

/* Rows that are never cut apart. */
static int64_t unit(const struct vl_update *u)
{
    return u->o->role == VL_ROLE_DPO ? 2 : 1;
}

/* As vl_update_cut, of max_rows rows or, with 0, of max_tokens tokens. */
static int64_t cut_by(const struct vl_update *u, int64_t max_rows, int64_t max_tokens,
                      const int64_t *rows, int64_t n, int64_t *first)
{
    struct vl_micro_rule rule = { .max_rows = max_rows,
                                  .max_tokens = max_rows ? 0 : max_tokens,
                                  .unit = unit(u),
                                  .share = u->o->share_prompts,
                                  .whole = 1 };

    return vl_micro_cut(&u->data.rows, rows, 0, n, &rule, first);
}

/* Cuts rows into micro-batches as the options say; first needs n + 1 entries. */
int64_t vl_update_cut(const struct vl_update *u, const int64_t *rows, int64_t n, int64_t *first)
{
    const struct vl_cut *c = &u->o->cut;
    int64_t max_rows = u->o->micro_batch > 0                                  ? u->o->micro_batch
                       : !c->dynamic && c->rows != VL_NULL_I64 && c->rows > 0 ? c->rows
                                                                              : 0;

    return cut_by(u, max_rows, vl_infer_token_budget(&u->f, c->max_tokens, 1), rows, n, first);
}

void vl_update_extent(const struct vl_update *u, int least, struct vl_extent *x)
{
    const struct vl_rows *r = &u->data.rows;
    const int64_t *pair = u->data.pair;
    int64_t n = pair ? 2 * u->data.pairs : r->B, k;
    int64_t *first = vl_alloc(sizeof *first * (size_t)(n + 1));

    *x = (struct vl_extent){ 0 };
    k = least ? cut_by(u, 1, 0, pair, n, first) : vl_update_cut(u, pair, n, first);
    for (int64_t j = 0; j < k; j++) {
        struct vl_extent pass;

        vl_pack_extent(r, pair ? pair + first[j] : NULL, first[j], first[j + 1] - first[j],
                       u->o->share_prompts && !u->o->shuffle, &pass);
        vl_extent_widen(x, &pass);
    }
    free(first);
}

/* This rank's rows among those with a valid token, cut by token cost. Rows without one add nothing
 * to any sum and are left out of the passes; pairs have one in both. Rows that share a prompt stay
 * together: the prompt's gradient is summed before it is rounded to a half type, and a sum of parts
 * rounded apart would be another one by that type's precision. */
int64_t *vl_update_my_rows(const struct vl_update *u, const int64_t *rows, int64_t n,
                           int64_t *count)
{
    const struct vl_rows *r = &u->data.rows;
    int64_t *list = vl_alloc(sizeof *list * (size_t)(n + 1)), used = 0, k;
    int64_t *cost = vl_alloc(sizeof *cost * (size_t)(n + 1));
    int64_t *first = vl_alloc(sizeof *first * (size_t)(n + 1));
    int64_t *range = vl_alloc(sizeof *range * (size_t)(u->x->comm.size + 1));
    int rank = u->x->comm.rank;

    for (int64_t i = 0; i < n; i++)
        if (u->data.valid[rows[i]])
            list[used++] = rows[i];
    k = cut_by(u, 1, 0, list, used, first);
    for (int64_t i = 0; i < k; i++) {
        struct vl_extent x;

        vl_pack_extent(r, list + first[i], 0, first[i + 1] - first[i], u->o->share_prompts, &x);
        cost[i] = x.N;
    }
    vl_comm_cut(u->x->comm.size, cost, k, range);
    *count = first[range[rank + 1]] - first[range[rank]];
    memmove(list, list + first[range[rank]], sizeof *list * (size_t)*count);
    free(cost);
    free(first);
    free(range);
    return list;
}

/* Denominators of the step, over all its rows: every rank has them all. */
static struct vl_loss_norm count_norm(const struct vl_update *u, const int64_t *rows, int64_t n)
{
    struct vl_loss_norm norm = { .dp = 1, .width = (double)u->data.rows.R, .rows = (double)n };

    if (!isnan(u->o->loss_scale_factor))
        norm.factor = u->o->loss_scale_factor;
    norm.pairs = norm.rows / 2;
    for (int64_t i = 0; i < n; i++) {
        norm.tokens += (double)u->data.valid[rows[i]];
        norm.seqs += u->data.valid[rows[i]] > 0;
    }
    return norm;
}

/* First tensor of the gradient slab that holds a value that is not finite, or NULL. */
static const char *bad_tensor(const struct vl_update *u)
{
    const struct vl_model *m = u->f.model;
    struct vl_backend *be = u->f.be;
    float *g = vl_engine_grads(u->f.eng);

    if (isfinite(be->sumsq(be->ctx, g, m->count)))
        return NULL;
    for (int64_t i = 0; i < m->nparam; i++)
        if (!isfinite(
                be->sumsq(be->ctx, g + m->param[i].offset, m->param[i].rows * m->param[i].cols)))
            return m->param[i].name;
    return "(the sum of squares overflows)";
}

/* Gradient slab summed over the ranks in rank order, in pieces where it must pass host memory. */
static int sum_grads(struct vl_update *u, struct vl_err *e)
{
    struct vl_backend *be = u->f.be;
    float *g = vl_engine_grads(u->f.eng), *host, *stage;
    int64_t n = u->f.model->count, block = (int64_t)1 << 24;

    if (u->x->comm.size == 1)
        return 0;
    host = be->host(be->ctx, g);
    if (host)
        return vl_comm_sum_f32(&u->x->comm, host, (size_t)n, e);
    stage = floats(n < block ? n : block);
    for (int64_t at = 0; at < n && !e->code; at += block) {
        int64_t k = n - at < block ? n - at : block;

        be->download(be->ctx, stage, g + at, (size_t)k * 4);
        if (!vl_comm_sum_f32(&u->x->comm, stage, (size_t)k, e))
            be->upload(be->ctx, g + at, stage, (size_t)k * 4);
    }
    free(stage);
    return e->code;
}

/* Whether the summed gradient can be used; if not, r->where names the first tensor and rank. */
static int check_grads(struct vl_update *u, const char *mine, struct vl_step_result *r,
                       struct vl_err *e)
{
    struct vl_backend *be = u->f.be;
    int64_t who = mine ? u->x->comm.size - u->x->comm.rank : 0; /* the lowest rank wins a maximum */
    double sq = be->sumsq(be->ctx, vl_engine_grads(u->f.eng), u->f.model->count);

    r->grad_norm = sqrt(sq);
    r->skipped = !isfinite(r->grad_norm);
    if (!r->skipped)
        return 0;
    if (vl_comm_max_i64(&u->x->comm, &who, 1, e))
        return e->code;
    if (who) {
        int root = u->x->comm.size - (int)who;

        if (u->x->comm.rank == root)
            snprintf(r->where, sizeof r->where, "%s on rank %d", mine, root);
        return vl_comm_bcast(&u->x->comm, r->where, sizeof r->where, root, e);
    }
    snprintf(r->where, sizeof r->where, "%s%s", bad_tensor(u),
             u->x->comm.size > 1 ? " in the sum over ranks" : "");
    return 0;
}

static int accumulate(struct vl_update *u, const int64_t *rows, int64_t n,
                      const struct vl_loss_norm *norm, struct vl_loss_sums *sums, struct vl_err *e)
{
    int64_t count, *list = vl_update_my_rows(u, rows, n, &count);
    int64_t *first = vl_alloc(sizeof *first * (size_t)(count + 1));
    int64_t micros = vl_update_cut(u, list, count, first);

    vl_engine_zero_grads(u->f.eng);
    for (int64_t k = 0; k < micros && !e->code; k++)
        if (run_micro(u, list + first[k], first[k + 1] - first[k], norm, sums, e))
            break;
    vl_engine_finish_grads(u->f.eng);
    free(first);
    free(list);
    return e->code;
}

int vl_update_step(struct vl_update *u, const int64_t *rows, int64_t n, double lr,
                   struct vl_step_result *r, struct vl_err *e)
{
    struct vl_loss_norm norm = count_norm(u, rows, n);
    struct vl_comm *comm = &u->x->comm;
    struct vl_timing *clock = &u->x->timing;
    double clip = u->o->clip_grad, scale = 1, t0 = vl_now(), t1;
    const char *mine;
    int rc;

    *r = (struct vl_step_result){ .rows = n, .tokens = (int64_t)norm.tokens, .lr = lr };
    if (norm.tokens == 0) {
        r->empty = 1;
        return 0;
    }
    if (u->ahead && (vl_update_look_ahead(u, rows, n, r, e) || r->empty))
        return e->code;
    rc = accumulate(u, rows, n, &norm, &r->sums, e);
    if (vl_comm_agree(comm, e) || rc)
        return e->code;
    if (u->o->bypass && !u->ahead && (vl_update_look_back(u, rows, n, r, e) || r->empty))
        return e->code;
    mine = comm->size > 1 ? bad_tensor(u) : NULL;
    if (sum_grads(u, e) || vl_comm_sum_f64(comm, r->sums.num, VL_M_COUNT, e) ||
        vl_comm_sum_f64(comm, r->sums.den, VL_M_COUNT, e) || check_grads(u, mine, r, e) ||
        r->skipped)
        return e->code;
    if (clip > 0 && r->grad_norm > 0) {
        scale = clip / (r->grad_norm + 1e-6);
        scale = scale < 1 ? scale : 1;
    }
    u->t++;
    t1 = vl_now();
    (void)!vl_optim_step(u, lr, scale, &r->changed, e);
    if (vl_comm_agree(comm, e))
        return e->code;
    vl_timing_add(clock, VL_PHASE_PASSES, t1 - t0, 0);
    vl_timing_add(clock, VL_PHASE_OPTIMIZER, vl_now() - t1, 0);
    vl_timing_add(clock, VL_PHASE_WORK, vl_now() - t0, r->tokens);
    return 0;
}
