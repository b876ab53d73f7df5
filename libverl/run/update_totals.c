/* update_totals.c - counts and sums over the steps of a call: metrics, and their record in a run that
 * stops on the way. See update.h. */
#include "libverl/run/update.h"

#include "formats/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void vl_totals_add(struct vl_update_totals *t, const struct vl_step_result *r)
{
    t->last = *r;
    t->steps++;
    t->rows += r->rows;
    t->tokens += r->tokens;
    t->changed += r->changed;
    t->grad_norm += r->grad_norm;
    t->in_row = 0;
    vl_metrics_gather(&t->corr, &r->corr);
    for (int m = 0; m < VL_M_COUNT; m++) {
        t->sums.num[m] += r->sums.num[m];
        t->sums.den[m] += r->sums.den[m];
    }
}

char *vl_totals_text(const struct vl_update_totals *t, int64_t done, int64_t of)
{
    struct vl_buf b = { 0 };
    const char *comma = "";

    vl_buf_printf(&b,
                  "{\"step\": %" PRId64 ", \"of\": %" PRId64 ", \"steps\": %" PRId64
                  ", \"skipped\": %" PRId64 ", \"empty\": %" PRId64 ", \"rows\": %" PRId64
                  ", \"tokens\": %" PRId64 ", \"changed\": %" PRId64 ", \"grad_norm\": ",
                  done, of, t->steps, t->skipped, t->empty, t->rows, t->tokens, t->changed);
    vl_json_put_f64(&b, t->grad_norm);
    vl_buf_str(&b, ", \"sums\": {");
    for (int m = 0; m < VL_M_COUNT; m++) {
        if (t->sums.den[m] == 0)
            continue;
        vl_buf_printf(&b, "%s\"%s\": [", comma, vl_metric_name((enum vl_metric)m));
        vl_json_put_f64(&b, t->sums.num[m]);
        vl_buf_str(&b, ", ");
        vl_json_put_f64(&b, t->sums.den[m]);
        vl_buf_ch(&b, ']');
        comma = ", ";
    }
    vl_buf_str(&b, "}}");
    return vl_buf_detach(&b);
}

/* The sums of progress_text; those it does not have stay 0. */
static void read_sums(const struct vl_json *js, struct vl_update_totals *t)
{
    int64_t sums = vl_json_get(js, 0, "sums");

    vl_json_f64(js, vl_json_get(js, 0, "grad_norm"), &t->grad_norm);
    for (int m = 0; m < VL_M_COUNT && vl_json_is(js, sums, VL_JSON_OBJECT); m++) {
        int64_t pair = vl_json_get(js, sums, vl_metric_name((enum vl_metric)m));

        if (vl_json_is(js, pair, VL_JSON_ARRAY) && js->node[pair].count == 2) {
            vl_json_f64(js, pair + 1, &t->sums.num[m]);
            vl_json_f64(js, js->node[pair + 1].next, &t->sums.den[m]);
        }
    }
}

int64_t vl_totals_read(struct vl_update_totals *t, const struct vl_state_record *r)
{
    const struct {
        const char *key;
        int64_t *to;
    } count[] = { { "steps", &t->steps }, { "skipped", &t->skipped }, { "empty", &t->empty },
                  { "rows", &t->rows },   { "tokens", &t->tokens },   { "changed", &t->changed } };
    struct vl_json js = { 0 };
    struct vl_err ignored = { 0 };
    int64_t step = 0;

    if (r->progress &&
        !vl_json_parse(&js, r->progress, strlen(r->progress), "progress", &ignored)) {
        vl_json_i64(&js, vl_json_get(&js, 0, "step"), &step);
        for (size_t i = 0; i < sizeof count / sizeof *count; i++)
            vl_json_i64(&js, vl_json_get(&js, 0, count[i].key), count[i].to);
        read_sums(&js, t);
    }
    vl_json_free(&js);
    return step;
}

static void put_metric(struct vl_batch *b, enum vl_role role, const char *name, double x)
{
    char full[64];

    snprintf(full, sizeof full, "%s/%s",
             role == VL_ROLE_SFT   ? "train"
             : role == VL_ROLE_DPO ? "actor"
                                   : vl_role_name(role),
             name);
    vl_meta_metric(b, full, x);
}

/* Losses are means over the optimizer steps (sft: of the last one), fractions over all tokens. */
void vl_totals_metrics(struct vl_update_totals *t, const struct vl_update *u, struct vl_batch *b)
{
    static const enum vl_metric per_step[] = {
        VL_M_LOSS,     VL_M_PG_LOSS,  VL_M_KL_LOSS,      VL_M_ENTROPY,     VL_M_VF_LOSS,
        VL_M_SFT_LOSS, VL_M_DPO_LOSS, VL_M_DPO_SFT_LOSS, VL_M_DISTILL_LOSS
    };
    enum vl_role role = u->o->role;
    double steps = t->steps ? (double)t->steps : 1;

    for (int m = 0; m < VL_M_COUNT; m++) {
        const struct vl_loss_sums *s = role == VL_ROLE_SFT ? &t->last.sums : &t->sums;
        double x, by = 1;

        for (size_t k = 0; k < sizeof per_step / sizeof *per_step; k++)
            if ((int)per_step[k] == m && role != VL_ROLE_SFT)
                by = steps;
        if (m == VL_M_LOSS && (role == VL_ROLE_CRITIC || role == VL_ROLE_SFT))
            continue; /* the same number as the loss of the role's own name */
        if (vl_loss_sums_value(s, (enum vl_metric)m, &x))
            vl_meta_metric(b, vl_metric_name((enum vl_metric)m), x / by);
    }
    vl_metrics_reduce(&t->corr, t->steps);
    for (size_t i = 0; i < t->corr.n; i++)
        vl_meta_metric(b, t->corr.m[i].name, t->corr.m[i].value);
    put_metric(b, role, "grad_norm",
               role == VL_ROLE_SFT ? t->last.grad_norm : t->grad_norm / steps);
    put_metric(b, role, "lr", t->last.lr);
    if (role == VL_ROLE_ACTOR && u->o->use_kl_loss)
        put_metric(b, role, "kl_coef", u->o->kl_loss_coef);
    if (role != VL_ROLE_SFT && u->lag >= 0)
        put_metric(b, role, "weight_version_lag", (double)u->lag);
    put_metric(b, role, "optimizer_steps", (double)t->steps);
    put_metric(b, role, "skipped_steps", (double)t->skipped);
    put_metric(b, role, "rows", (double)t->rows);
    put_metric(b, role, "tokens", (double)t->tokens);
    put_metric(b, role, "weights_changed",
               (double)t->changed / steps / (double)vl_model_parameters(u->f.model));
}
