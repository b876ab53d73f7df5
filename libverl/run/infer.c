/* infer.c - opening a model for a stage and running packed rows through it. See infer.h.
 *
 * Each rank reads the weights itself and packs its own range of rows; rank 0 puts the ranges end to
 * end. Since no row's bits depend on its neighbours, neither the ranges nor the micro-batches show. */
#include "libverl/run/infer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/engine/generate.h"
#include "libverl/run/weights.h"

static void say(void *arg, const char *line)
{
    vl_detail(arg, "%s", line);
}

static int pick_compute(struct vl_ctx *x, struct vl_infer *f, const struct vl_batch *b,
                        const char *given, struct vl_err *e)
{
    char *meta = b ? vl_meta_str(b, "compute") : NULL;
    int chosen = strcmp(given, "auto") != 0;
    const char *name = chosen ? given : meta;

    f->compute = name ? vl_compute_named(name) : f->be->best;
    if (f->compute == VL_COMPUTES)
        vl_fail(e, VL_E_DATA, "meta_info.compute is \"%s\": expected fp32, bf16 or amx", name);
    if (!e->code && chosen && meta && strcmp(meta, given) != 0)
        vl_warn(&x->log,
                "--compute %s, but the batch was made with %s (meta_info.compute): log-probs will "
                "not be equal to the bit",
                given, meta);
    free(meta);
    return e->code;
}

int vl_infer_open(struct vl_ctx *x, struct vl_infer *f, const struct vl_batch *b, const char *path,
                  const char *key, enum vl_head head, const char *compute, struct vl_err *e)
{
    *f = (struct vl_infer){ 0 };
    if (!path || !*path)
        vl_fail(e, VL_E_USAGE, "no model: give -m DIR or %s=DIR", key);
    if (!e->code && !vl_model_open(&f->model, path, head, 0, e) &&
        !vl_backend_open(&f->be, x->common->device, x->comm.threads, x->comm.local_size, say,
                         &x->log, e))
        (void)!pick_compute(x, f, b, compute, e);
    return vl_comm_agree(&x->comm, e);
}

void vl_infer_options(struct vl_ctx *x, struct vl_infer *f, const struct vl_cut *cut,
                      const int64_t *micro_batch, const char *const *compute)
{
    int by_rows = *micro_batch > 0 || (cut->rows != VL_NULL_I64 && cut->rows > 0 && !cut->dynamic);

    f->mem.tokens = vl_parsed_how(x->parsed, &cut->max_tokens);
    f->mem.rows = by_rows ? vl_parsed_how(x->parsed, micro_batch) : NULL;
    f->mem.compute = vl_parsed_how(x->parsed, compute);
}

int vl_infer_load(struct vl_ctx *x, struct vl_infer *f, const struct vl_extent *pass,
                  struct vl_err *e)
{
    struct vl_engine_opts o = { .compute = f->compute, .int8 = f->quantization != NULL };
    size_t need = vl_memory_need(f->model, f->be, &o, pass, &f->mem);
    const char *dir = f->model->dir;
    double t0 = vl_now();

    vl_info(&x->log,
            "%s: %.3g M parameters%s%s, %s, %s; %.1f MB needed for %" PRId64 " tokens at once", dir,
            (double)f->model->count * 1e-6, f->quantization ? " as " : "",
            f->quantization ? f->quantization : "", f->be->name, vl_compute_name(f->compute),
            (double)need * 1e-6, pass->N);
    (void)!vl_memory_check(x, f->model, f->be, &o, pass, &f->mem, e);
    if (!vl_comm_agree(&x->comm, e)) {
        int threads = x->comm.threads;

        if (!vl_engine_load(&f->eng, f->model, f->be, &o, threads, e))
            vl_detail(&x->log, "%s: weights read and packed in %.2f s by %d thread%s", dir,
                      vl_now() - t0, threads, threads == 1 ? "" : "s");
        vl_comm_agree(&x->comm, e);
    }
    vl_timing_add(&x->timing, VL_PHASE_LOAD, vl_now() - t0, 0);
    vl_timing_model(&x->timing, f->be->name, vl_compute_name(f->compute));
    return e->code;
}

void vl_infer_close(struct vl_infer *f)
{
    vl_engine_free(f->eng);
    if (f->model)
        vl_model_free(f->model);
    if (f->be)
        f->be->close(f->be);
    *f = (struct vl_infer){ 0 };
}

void vl_infer_out_free(struct vl_infer_out *out)
{
    for (int k = 0; k < VL_INFER_COLUMNS; k++) {
        free(out->column[k]);
        out->column[k] = NULL;
    }
    free(out->topk_id);
    free(out->topk_logp);
    out->topk_id = NULL;
    out->topk_logp = NULL;
}

/* A rank's share: its rows as a batch of their own, their micro-batches, and local columns. */
struct share {
    struct vl_rows rows;
    int64_t *first, micros;
    struct vl_extent pass;
    float *column[VL_INFER_COLUMNS]; /* (rows.B, R) */
    float *out[VL_INFER_COLUMNS];    /* (M) of one micro-batch */
    int64_t K, W;                    /* top-k, or 0; width of a list, with the ids that join it */
    const int64_t *also;             /* (rows.B, R, W - K) or NULL */
    int32_t *topk_id, *out_id;       /* (rows.B, R, K), (M, K) */
    float *topk_logp, *out_logp;
};

/* A CPU gains nothing from longer passes, and touching fresh pages costs: 6144 tokens of a 22 M
 * parameter model took 2.8 s in one pass, 2.2 s in passes of 2048. What backward needs is some 700 KB a
 * token at 135 M parameters and best kept close: 4096 tokens took 8.4 s of CPU in passes of 512, 9.0 in
 * passes of 2048, with 1 GiB less. Results are the same. */
#define CPU_PASS       2048
#define CPU_TRAIN_PASS 512

int64_t vl_infer_token_budget(const struct vl_infer *f, int64_t max_tokens, int train)
{
    int cpu = strncmp(f->be->name, "cpu", 3) == 0;
    int64_t most = train ? CPU_TRAIN_PASS : CPU_PASS;

    return cpu && max_tokens > most ? most : max_tokens;
}

static void cut_share(struct share *s, const struct vl_infer *f, const struct vl_rows *r,
                      const struct vl_cut *cut, const struct vl_infer_out *out, int rank, int size)
{
    int64_t *cost = vl_alloc((size_t)r->B * sizeof *cost);
    int64_t *range = vl_alloc((size_t)(size + 1) * sizeof *range), lo, n;
    int by_rows = cut->rows != VL_NULL_I64 && cut->rows > 0;
    struct vl_micro_rule rule = { .share = 1 };

    for (int64_t i = 0; i < r->B; i++)
        cost[i] = vl_rows_tokens(r, i);
    vl_comm_cut(size, cost, r->B, range);
    lo = range[rank], n = range[rank + 1] - lo;
    s->rows = (struct vl_rows){ .B = n,
                                .P = r->P,
                                .R = r->R,
                                .start = r->start + lo,
                                .ids = r->ids,
                                .plen = r->plen + lo,
                                .rlen = r->rlen + lo,
                                .at_end = r->at_end };
    s->K = out->topk;
    s->W = s->K + (out->also ? out->nalso : 0);
    s->also = out->also ? out->also + lo * r->R * out->nalso : NULL;
    s->first = vl_alloc((size_t)(n + 1) * sizeof *s->first);
    rule.max_rows = by_rows && !cut->dynamic ? cut->rows : 0;
    rule.max_tokens = rule.max_rows ? 0 : vl_infer_token_budget(f, cut->max_tokens, 0);
    s->micros = vl_micro_cut(&s->rows, NULL, 0, n, &rule, s->first);
    for (int64_t k = 0; k < s->micros; k++) {
        struct vl_extent x;

        vl_pack_extent(&s->rows, NULL, s->first[k], s->first[k + 1] - s->first[k], 1, &x);
        vl_extent_widen(&s->pass, &x);
    }
    free(cost);
    free(range);
}

static int alloc_share(struct share *s, const struct vl_infer_out *out, struct vl_err *e)
{
    for (int k = 0; k < VL_INFER_COLUMNS; k++)
        if (out->want[k] &&
            (vl_try_alloc(&s->column[k], (size_t)s->rows.B * (size_t)s->rows.R, sizeof(float),
                          "result columns", e) ||
             vl_try_alloc(&s->out[k], (size_t)s->pass.M, sizeof(float), "results", e)))
            return e->code;
    if (s->K && (vl_try_alloc(&s->topk_id, (size_t)(s->rows.B * s->rows.R), (size_t)s->W * 4,
                              "top-k columns", e) ||
                 vl_try_alloc(&s->topk_logp, (size_t)(s->rows.B * s->rows.R), (size_t)s->W * 4,
                              "top-k columns", e) ||
                 vl_try_alloc(&s->out_id, (size_t)s->pass.M, (size_t)s->K * 4, "top-k", e) ||
                 vl_try_alloc(&s->out_logp, (size_t)s->pass.M, (size_t)s->K * 4, "top-k", e)))
        return e->code;
    return 0;
}

static void free_share(struct share *s)
{
    free(s->first);
    free(s->topk_id);
    free(s->topk_logp);
    free(s->out_id);
    free(s->out_logp);
    for (int k = 0; k < VL_INFER_COLUMNS; k++) {
        free(s->column[k]);
        free(s->out[k]);
    }
}

/* A cell's list: the K likeliest, then those of `also` that are not among them. */
static void fill_list(const struct share *s, int64_t cell, int64_t j, const struct vl_more *more)
{
    int32_t *id = s->topk_id + cell * s->W;
    float *logp = s->topk_logp + cell * s->W;
    int64_t n = s->K;

    memcpy(id, s->out_id + j * s->K, (size_t)s->K * sizeof *id);
    memcpy(logp, s->out_logp + j * s->K, (size_t)s->K * sizeof *logp);
    for (int64_t a = 0; a < more->K; a++) {
        int32_t v = more->id[j * more->K + a];
        int64_t k = 0;

        while (k < n && id[k] != v)
            k++;
        if (k < n || v < 0)
            continue;
        id[n] = v;
        logp[n++] = more->logp[j * more->K + a];
    }
    for (; n < s->W; n++)
        id[n] = -1, logp[n] = 0;
}

static int run_topk(struct vl_infer *f, struct share *s, struct vl_pack *pack, float inv_temp,
                    struct vl_err *e)
{
    int64_t A = s->W - s->K, n = pack->p.M * A;
    int32_t *id = vl_alloc((size_t)(n + 1) * sizeof *id);
    struct vl_more more = { .K = A, .id = id, .logp = vl_alloc((size_t)(n + 1) * sizeof(float)) };

    for (int64_t k = 0; k < n; k++)
        id[k] = (int32_t)s->also[pack->cell[k / A] * A + k % A];
    pack->p.more = A ? &more : NULL;
    if (!vl_engine_topk(f->eng, &pack->p, inv_temp, s->K, s->out_id, s->out_logp,
                        s->out[VL_INFER_LOGP], s->out[VL_INFER_ENTROPY], e))
        for (int64_t j = 0; j < pack->p.M; j++)
            fill_list(s, pack->cell[j], j, &more);
    free(more.logp);
    free(id);
    return e->code;
}

static int run_share(struct vl_ctx *x, struct vl_infer *f, struct share *s, float inv_temp,
                     struct vl_err *e)
{
    for (int64_t k = 0; k < s->micros && !e->code; k++) {
        struct vl_pack pack;

        vl_pack_rows(&pack, &s->rows, NULL, s->first[k], s->first[k + 1] - s->first[k], 1);
        if (s->K ? !run_topk(f, s, &pack, inv_temp, e)
                 : !vl_engine_forward(f->eng, &pack.p, inv_temp, 0, s->out[VL_INFER_LOGP],
                                      s->out[VL_INFER_ENTROPY], s->out[VL_INFER_SUM_PI2],
                                      s->out[VL_INFER_VALUE], e))
            for (int c = 0; c < VL_INFER_COLUMNS; c++)
                if (s->column[c])
                    vl_pack_scatter(s->column[c], &pack, s->out[c]);
        vl_pack_free(&pack);
        vl_progress(&x->log, "rows", s->first[k + 1], s->rows.B, "");
    }
    return e->code;
}

/* Ranges are in row order, so end to end they are the columns. */
static int gather_share(struct vl_ctx *x, struct share *s, struct vl_infer_out *out,
                        struct vl_err *e)
{
    size_t *sizes = vl_alloc((size_t)x->comm.size * sizeof *sizes);
    size_t bytes = (size_t)s->rows.B * (size_t)s->rows.R * sizeof(float);

    for (int k = 0; k < VL_INFER_COLUMNS && !e->code; k++)
        if (out->want[k])
            (void)!vl_comm_gather(&x->comm, s->column[k], bytes,
                                  x->comm.rank == 0 ? (void **)&out->column[k] : NULL,
                                  x->comm.rank == 0 ? sizes : NULL, e);
    bytes *= (size_t)s->W;
    if (s->K && !e->code)
        (void)!(vl_comm_gather(&x->comm, s->topk_id, bytes,
                               x->comm.rank == 0 ? (void **)&out->topk_id : NULL,
                               x->comm.rank == 0 ? sizes : NULL, e) ||
                vl_comm_gather(&x->comm, s->topk_logp, bytes,
                               x->comm.rank == 0 ? (void **)&out->topk_logp : NULL,
                               x->comm.rank == 0 ? sizes : NULL, e));
    free(sizes);
    return e->code;
}

void vl_infer_check_context(struct vl_ctx *x, const struct vl_infer *f, const struct vl_rows *r)
{
    int64_t context = f->model->cfg.max_positions, longest = 0, longer = 0;

    for (int64_t i = 0; i < r->B; i++) {
        int64_t n = vl_rows_tokens(r, i);

        longer += n > context;
        longest = n > longest ? n : longest;
    }
    if (longer)
        vl_warn(&x->log,
                "%" PRId64 " of %" PRId64 " rows pass the model's context of %" PRId64
                " tokens (max_position_embeddings), the longest with %" PRId64,
                longer, r->B, context, longest);
}

int vl_infer_rows(struct vl_ctx *x, struct vl_infer *f, const struct vl_rows *r,
                  const struct vl_cut *cut, float inv_temp, struct vl_infer_out *out,
                  struct vl_err *e)
{
    struct share s = { 0 };

    if (!r->B)
        return vl_fail(e, VL_E_DATA, "the batch has no rows");
    vl_infer_check_context(x, f, r);
    cut_share(&s, f, r, cut, out, x->comm.rank, x->comm.size);
    (void)!alloc_share(&s, out, e);
    if (!vl_comm_agree(&x->comm, e) && !vl_infer_load(x, f, &s.pass, e)) {
        double t0 = vl_now();

        (void)!run_share(x, f, &s, inv_temp, e);
        if (!vl_comm_agree(&x->comm, e))
            (void)!gather_share(x, &s, out, e);
        vl_timing_add(&x->timing, VL_PHASE_WORK, vl_now() - t0, r->start[r->B]);
    }
    free_share(&s);
    return e->code;
}

int vl_infer_temperature(struct vl_ctx *x, const struct vl_batch *b, const double *opt, double *out,
                         struct vl_err *e)
{
    if (vl_batch_col(b, "preference") && !vl_meta_get(b, "temperature") &&
        !vl_parsed_given(x->parsed, opt)) {
        *out = 1;
        return 0;
    }
    if (vl_stage_f64(x, b, "temperature", opt, out, e))
        return e->code;
    if (!(*out >= 0) || isinf(*out))
        return vl_fail(e, VL_E_DATA, "temperature %g: expected a number from 0, e.g. 1.0", *out);
    return 0;
}

int vl_infer_mask(const struct vl_batch *b, const struct vl_rows *r, int64_t **mask,
                  struct vl_err *e)
{
    int given = vl_batch_col(b, "response_mask") != NULL;
    const int64_t *column = NULL;
    int64_t R = r->R;
    char who[128];

    if (vl_try_alloc(mask, (size_t)r->B * (size_t)R, sizeof **mask, "response mask", e) ||
        (given && vl_batch_need_mask(b, "response_mask", &R, &column, e)))
        return e->code;
    for (int64_t k = 0; k < r->B * R; k++) {
        int token = k % R < r->rlen[k / R];

        (*mask)[k] = given ? column[k] : token;
        if ((*mask)[k] && !token)
            return vl_fail(e, VL_E_DATA,
                           "%s: response_mask is 1 at position %" PRId64
                           ", but by attention_mask the response has only %" PRId32 " tokens",
                           vl_batch_row_name(b, k / R, who, sizeof who), k % R, r->rlen[k / R]);
    }
    return 0;
}

int vl_infer_finite(const char *name, const float *x, const int64_t *mask, const struct vl_batch *b,
                    int64_t R, struct vl_err *e)
{
    char who[128];

    for (int64_t k = 0; k < b->rows * R; k++)
        if (mask[k] && !isfinite(x[k]))
            return vl_fail(e, VL_E_DATA,
                           "%s, response position %" PRId64 ": %s is %g: the weights hold NaN or "
                           "overflow",
                           vl_batch_row_name(b, k / R, who, sizeof who), k % R, name, (double)x[k]);
    return 0;
}

int vl_infer_add(struct vl_batch *b, const char *name, int64_t R, const float *data,
                 struct vl_err *e)
{
    struct vl_col *c;

    if (vl_batch_add_tensor(b, name, VL_F32, 1, &R, &c, e))
        return e->code;
    if (c->bytes)
        memcpy(c->data, data, c->bytes);
    return 0;
}
