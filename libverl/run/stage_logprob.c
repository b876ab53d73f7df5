/* stage_logprob.c - log-probs and entropy of the responses. See stage_logprob.h.
 *
 * Where the rollout's own log-probs are there, the gap to them is printed: on unchanged weights and
 * the same compute type it is zero to the bit, anything else is news. */
#include "libverl/run/stage_logprob.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/algo/loss.h"
#include "libverl/engine/generate.h"
#include "libverl/run/weights.h"

struct vl_gap vl_gap_of(const float *a, const float *b, const int64_t *mask, int64_t n)
{
    struct vl_gap g = { 0 };

    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);

        if (!mask[i])
            continue;
        g.tokens++;
        g.differ += memcmp(&a[i], &b[i], sizeof *a) != 0;
        g.mean += d;
        g.max = d > g.max || isnan(d) ? d : g.max;
    }
    g.mean = g.tokens ? g.mean / (double)g.tokens : 0;
    return g;
}

/* old_log_probs are of the policy that is trained: whether the rollout's weights, or these, were not.
 * Others are compared with it. */
static void say_quantized(struct vl_ctx *x, const struct vl_batch *b, const struct vl_infer *f,
                          const char *as)
{
    struct vl_weights_id rollout;

    if (strcmp(as, "old") != 0) {
        if (f->quantization)
            vl_warn(&x->log,
                    "--as %s with weights that are quantized (%s): against the policy's, which are "
                    "not, the KL of one and the same model is not 0",
                    as, f->quantization);
    } else if (vl_weights_get(b, "rollout_log_probs", &rollout) &&
               strcmp(rollout.quantization, f->quantization ? f->quantization : "") != 0) {
        if (f->quantization)
            vl_warn(&x->log,
                    "--quantization %s, but the rollout's weights were %s: log-probs will not be "
                    "equal to the bit, and verl-update does not take them",
                    f->quantization,
                    *rollout.quantization ? rollout.quantization : "not quantized");
        else
            vl_info(
                &x->log,
                "the rollout's weights were quantized (%s), these are not: log-probs of what is "
                "trained (--quantization %s: of what was sampled)",
                rollout.quantization, rollout.quantization);
    } else if (f->quantization) {
        vl_info(
            &x->log,
            "old_log_probs of quantized weights (%s) say what was sampled, not what is trained: "
            "verl-update does not take them",
            f->quantization);
    }
}

static int say_gap(struct vl_ctx *x, struct vl_batch *b, int64_t R, const float *logp,
                   const int64_t *mask, struct vl_err *e)
{
    struct vl_weights_id rollout;
    const float *ro;
    struct vl_gap g;
    char *mode;

    if (!vl_batch_col(b, "rollout_log_probs"))
        return 0;
    if (vl_batch_need(b, "rollout_log_probs", VL_F32, 1, &R, &ro, e))
        return e->code;
    g = vl_gap_of(logp, ro, mask, b->rows * R);
    if (!g.differ)
        vl_info(&x->log, "log-probs equal the rollout's to the bit (%" PRId64 " tokens)", g.tokens);
    else
        vl_info(&x->log,
                "log-probs differ from the rollout's in %" PRId64 " of %" PRId64
                " tokens: max %.3g, mean %.3g",
                g.differ, g.tokens, g.max, g.mean);
    if (g.differ && vl_weights_get(b, "rollout_log_probs", &rollout))
        vl_detail(&x->log, "the rollout's weights: %s %s", rollout.version, rollout.hash);
    mode = vl_meta_str(b, "logprobs_mode");
    if (mode && strcmp(mode, "full_vocabulary") != 0)
        vl_warn(&x->log,
                "rollout_log_probs are over the %s, these over the full vocabulary: ratios between "
                "the two are biased",
                mode);
    free(mode);
    return 0;
}

/* Samples of a truncated distribution under log-probs over the whole of it: as in verl, and said. */
static void say_truncated(struct vl_ctx *x, const struct vl_batch *b)
{
    int64_t k = 0;
    double p = 1, T = 1;

    (void)vl_meta_i64(b, "top_k", &k);
    (void)vl_meta_f64(b, "top_p", &p);
    (void)vl_meta_f64(b, "temperature", &T);
    if (T > 0 && (k > 0 || p < 1))
        vl_warn(&x->log,
                "the rollout sampled with top_k=%" PRId64 " top_p=%g, these log-probs are over the "
                "full vocabulary: ratios in the update are biased, as in verl",
                k, p);
}

/* verl's actor/entropy: the loss aggregation over the whole batch's entropies. */
static int entropy_metric(struct vl_batch *b, const struct vl_logprob_opts *o, int64_t R,
                          const float *entropy, const int64_t *mask, struct vl_err *e)
{
    int64_t *first = vl_alloc((size_t)(b->rows + 1) * sizeof *first);
    struct vl_loss_rows rows = { .B = b->rows, .first = first, .mask = mask };
    struct vl_loss_norm norm = { .dp = 1, .width = (double)R };
    enum vl_agg agg;

    for (int64_t i = 0; i <= b->rows; i++)
        first[i] = i * R;
    if (!vl_agg_parse(&agg, o->agg, e)) {
        vl_loss_norm_count(&norm, &rows);
        if (norm.tokens > 0)
            vl_meta_metric(b, "actor/entropy", vl_agg_loss(agg, &rows, entropy, &norm, NULL));
    }
    free(first);
    return e->code;
}

static const char *column_of(const struct vl_logprob_opts *o)
{
    return !strcmp(o->as, "old")   ? "old_log_probs"
           : !strcmp(o->as, "ref") ? "ref_log_prob"
                                   : "teacher_log_probs";
}

/* How many of the likeliest ids: those asked for, or what a teacher's loss needs. */
static int64_t topk_of(struct vl_ctx *x, const struct vl_logprob_opts *o)
{
    size_t n = strlen(o->distill_mode);
    int needed = !strcmp(o->as, "teacher") && n > 5 && !strcmp(o->distill_mode + n - 5, "_topk");
    int named = !strcmp(o->as, "teacher") && vl_parsed_given(x->parsed, &o->topk);

    if (!strcmp(o->as, "old"))
        return o->own_topk;
    return needed || named ? o->topk : 0;
}

static void topk_names(const struct vl_logprob_opts *o, const char **id, const char **logp)
{
    int old = !strcmp(o->as, "old");

    *id = old ? "old_topk_ids" : "teacher_topk_ids";
    *logp = old ? "old_topk_log_probs" : "teacher_topk_log_probs";
}

/* The policy's own ids, which join the teacher's. */
static int read_also(struct vl_infer_out *out, const struct vl_batch *b, int64_t R, int64_t V,
                     struct vl_err *e)
{
    int64_t inner[2] = { R, -1 };
    char who[128];

    if (!out->topk || !vl_batch_col(b, "old_topk_ids"))
        return 0;
    if (vl_batch_need(b, "old_topk_ids", VL_I64, 2, inner, &out->also, e))
        return e->code;
    out->nalso = inner[1];
    for (int64_t k = 0; k < b->rows * R * out->nalso; k++)
        if (out->also[k] < -1 || out->also[k] >= V)
            return vl_fail(e, VL_E_DATA,
                           "%s, response position %" PRId64 ": old_topk_ids has %" PRId64
                           ", but the teacher's ids are below %" PRId64,
                           vl_batch_row_name(b, k / (R * out->nalso), who, sizeof who),
                           k / out->nalso % R, out->also[k], V);
    return 0;
}

/* (B, R, K) columns; ids as I64, verl's type for ids. */
static int store_topk(struct vl_batch *b, const struct vl_logprob_opts *o, int64_t R,
                      const struct vl_infer_out *out, struct vl_err *e)
{
    int64_t inner[2] = { R, out->topk + out->nalso };
    const char *id_name, *logp_name;
    struct vl_col *id, *logp;

    topk_names(o, &id_name, &logp_name);
    if (vl_batch_add_tensor(b, id_name, VL_I64, 2, inner, &id, e) ||
        vl_batch_add_tensor(b, logp_name, VL_F32, 2, inner, &logp, e))
        return e->code;
    for (int64_t k = 0; k < b->rows * R * inner[1]; k++)
        ((int64_t *)id->data)[k] = out->topk_id[k];
    memcpy(logp->data, out->topk_logp, logp->bytes);
    return 0;
}

/* Rank 0: columns, meta and messages from the result. */
static int store(struct vl_ctx *x, struct vl_batch *b, const struct vl_logprob_opts *o,
                 const struct vl_infer *f, const struct vl_rows *r, struct vl_infer_out *out,
                 struct vl_err *e)
{
    int old = strcmp(o->as, "old") == 0;
    const char *name = column_of(o);
    const float *logp = out->column[VL_INFER_LOGP], *entropy = out->column[VL_INFER_ENTROPY];
    int64_t *mask = NULL;

    if (old)
        say_truncated(x, b);
    say_quantized(x, b, f, o->as);
    if (vl_infer_mask(b, r, &mask, e) || vl_infer_finite(name, logp, mask, b, r->R, e) ||
        vl_infer_add(b, name, r->R, logp, e))
        goto done;
    if (old && (vl_infer_add(b, "entropys", r->R, entropy, e) ||
                say_gap(x, b, r->R, logp, mask, e) || entropy_metric(b, o, r->R, entropy, mask, e)))
        goto done;
    if (o->sum_pi_squared &&
        vl_infer_add(b, "sum_pi_squared", r->R, out->column[VL_INFER_SUM_PI2], e))
        goto done;
    if (out->topk && store_topk(b, o, r->R, out, e))
        goto done;
    vl_weights_set(b, name, f->model, f->quantization);
    if (!vl_meta_get(b, "compute"))
        vl_meta_set_str(b, "compute", vl_compute_name(f->compute));
done:
    free(mask);
    return e->code;
}

static int run(struct vl_ctx *x, struct vl_batch *b, const struct vl_logprob_opts *o,
               const char *const *adds, struct vl_err *e)
{
    int old = strcmp(o->as, "old") == 0;
    int ref = strcmp(o->as, "ref") == 0, teacher = !old && !ref;
    const char *path = x->common->model     ? x->common->model
                       : teacher            ? o->teacher_path
                       : ref && o->ref_path ? o->ref_path
                                            : o->policy_path;
    double temperature;
    struct vl_infer_out out = { .want = { [VL_INFER_LOGP] = 1,
                                          [VL_INFER_ENTROPY] = old,
                                          [VL_INFER_SUM_PI2] = o->sum_pi_squared },
                                .topk = topk_of(x, o) };
    struct vl_cut cut = old ? o->old_cut : o->ref_cut;
    struct vl_infer f = { 0 };
    struct vl_rows r = { 0 };

    if (o->micro_batch > 0)
        cut.rows = o->micro_batch, cut.dynamic = 0;
    if (!vl_infer_temperature(x, b, &o->temperature, &temperature, e))
        (void)!vl_infer_open(x, &f, b, path,
                             teacher ? "distillation.teacher_model.model_path"
                                     : "actor_rollout_ref.model.path",
                             VL_HEAD_LM, o->compute, e);
    f.quantization = o->quantization;
    vl_infer_options(x, &f, old ? &o->old_cut : &o->ref_cut, &o->micro_batch, &o->compute);
    f.mem.quantization = vl_parsed_how(x->parsed, &o->quantization);
    if (!e->code && out.topk > f.model->cfg.V)
        vl_fail(e, VL_E_USAGE, "--topk %" PRId64 ": the teacher has %" PRId64 " ids", out.topk,
                f.model->cfg.V);
    if (!e->code && !vl_rows_read(&r, b, f.model->cfg.V, e) &&
        (!teacher || !read_also(&out, b, r.R, f.model->cfg.V, e)) &&
        !vl_infer_rows(x, &f, &r, &cut, vl_inv_temperature(temperature), &out, e)) {
        if (x->comm.rank == 0)
            (void)!store(x, b, o, &f, &r, &out, e);
        if (!vl_comm_agree(&x->comm, e) &&
            !vl_stage_write(x, b, adds, f.model->version ? f.model->version : f.model->hash, e))
            vl_log_done(&x->log, b->rows, r.start[r.B]);
    }
    vl_infer_out_free(&out);
    vl_rows_free(&r);
    vl_infer_close(&f);
    return e->code;
}

int vl_stage_logprob(struct vl_ctx *x, const void *opts, struct vl_err *e)
{
    const struct vl_logprob_opts *o = opts;
    const char *adds[6] = { column_of(o) };
    struct vl_batch b = { 0 };
    size_t n = 1;

    if (!strcmp(o->as, "old"))
        adds[n++] = "entropys";
    if (o->sum_pi_squared && topk_of(x, o))
        return vl_fail(e, VL_E_USAGE, "sum-pi-squared is not computed beside a top-k");
    if (o->sum_pi_squared)
        adds[n++] = "sum_pi_squared";
    if (topk_of(x, o))
        topk_names(o, &adds[n], &adds[n + 1]), n += 2;
    if (!vl_stage_read(x, &b, e)) {
        vl_stage_replaces(x, &b, adds);
        (void)!run(x, &b, o, adds, e);
    }
    vl_batch_free(&b);
    return e->code;
}
