/* stage_value.c - critic values. See stage_value.h. */
#include "libverl/run/stage_value.h"

#include <inttypes.h>
#include <stdlib.h>

#include "libverl/run/weights.h"

static const char *const adds[] = { "values", NULL };

static int store(struct vl_ctx *x, struct vl_batch *b, const struct vl_infer *f,
                 const struct vl_rows *r, float *value, struct vl_err *e)
{
    int64_t *mask = NULL;
    int64_t n = r->B * r->R;
    double sum = 0, tokens = 0;

    if (vl_infer_mask(b, r, &mask, e) || vl_infer_finite("value", value, mask, b, r->R, e))
        goto done;
    for (int64_t i = 0; i < n; i++) {
        if (!mask[i])
            value[i] = 0;
        else
            sum += (double)value[i], tokens++;
    }
    if (vl_infer_add(b, "values", r->R, value, e))
        goto done;
    vl_weights_set(b, "values", f->model, NULL);
    if (!vl_meta_get(b, "compute"))
        vl_meta_set_str(b, "compute", vl_compute_name(f->compute));
    if (tokens > 0)
        vl_info(&x->log, "mean value %.4g over %.0f tokens", sum / tokens, tokens);
done:
    free(mask);
    return e->code;
}

static int forward(struct vl_ctx *x, struct vl_infer *f, const struct vl_rows *r,
                   const struct vl_value_opts *o, struct vl_infer_out *out, struct vl_err *e)
{
    struct vl_cut cut = o->cut;

    if (o->micro_batch > 0)
        cut.rows = o->micro_batch, cut.dynamic = 0;
    vl_infer_options(x, f, &o->cut, &o->micro_batch, &o->compute);
    return vl_infer_rows(x, f, r, &cut, 1.0f, out, e);
}

static int run(struct vl_ctx *x, struct vl_batch *b, const struct vl_value_opts *o,
               struct vl_err *e)
{
    struct vl_infer_out out = { .want = { [VL_INFER_VALUE] = 1 } };
    struct vl_infer f = { 0 };
    struct vl_rows r = { 0 };

    if (!vl_infer_open(x, &f, b, x->common->model ? x->common->model : o->path, "critic.model.path",
                       VL_HEAD_VALUE, o->compute, e) &&
        !vl_rows_read(&r, b, f.model->cfg.V, e) && !forward(x, &f, &r, o, &out, e)) {
        if (x->comm.rank == 0)
            (void)!store(x, b, &f, &r, out.column[VL_INFER_VALUE], e);
        if (!vl_comm_agree(&x->comm, e) &&
            !vl_stage_write(x, b, adds, f.model->version ? f.model->version : f.model->hash, e))
            vl_log_done(&x->log, b->rows, r.start[r.B]);
    }
    vl_infer_out_free(&out);
    vl_rows_free(&r);
    vl_infer_close(&f);
    return e->code;
}

int vl_stage_value(struct vl_ctx *x, const void *opts, struct vl_err *e)
{
    struct vl_batch b = { 0 };

    if (!vl_stage_read(x, &b, e)) {
        vl_stage_replaces(x, &b, adds);
        (void)!run(x, &b, opts, e);
    }
    vl_batch_free(&b);
    return e->code;
}
