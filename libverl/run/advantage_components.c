/* advantage_components.c - gdpo's reward components: columns by name, their weights, their metrics. See
 * stage_advantage.h. */
#include "libverl/run/stage_advantage.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "libverl/run/uid.h"

int vl_components_check(struct vl_ctx *x, const struct vl_advantage_opts *o,
                        const struct vl_adv_estimator *est, struct vl_err *e)
{
    const struct vl_strs *w = &o->component_weights;

    if (!(est->needs & VL_ADV_COMPONENTS)) {
        if (x->comm.rank == 0 && (o->components.n || w->n))
            vl_warn(&x->log,
                    "gdpo_reward_keys and gdpo_reward_weights have no effect with "
                    "adv_estimator=%s; gdpo reads them",
                    o->estimator);
        return 0;
    }
    if (!o->components.n)
        return vl_fail(e, VL_E_USAGE,
                       "adv_estimator=gdpo needs algorithm.gdpo_reward_keys, the columns of its "
                       "reward components, such as [acc,format]");
    if (w->n && w->n != o->components.n)
        return vl_fail(e, VL_E_USAGE,
                       "gdpo_reward_weights has %zu numbers, gdpo_reward_keys %zu "
                       "names: give one weight each",
                       w->n, o->components.n);
    for (size_t k = 0; k < w->n; k++) {
        char *end;
        double v = strtod(w->s[k], &end);

        if (end == w->s[k] || *end || !isfinite(v))
            return vl_fail(e, VL_E_USAGE, "gdpo_reward_weights: '%s' is no number", w->s[k]);
    }
    if (x->comm.rank == 0 && o->use_kl)
        vl_warn(&x->log, "use_kl_in_reward has no effect on the advantages of gdpo, which are of "
                         "its components; use_kl_loss acts");
    return 0;
}

/* Mean and population deviation of the rows that count. */
static void moments(const double *x, const uint8_t *skip, int64_t B, double *mean, double *std)
{
    double n = 0, sum = 0, sq = 0;

    for (int64_t i = 0; i < B; i++)
        if (!skip[i])
            sum += x[i], n += 1;
    *mean = n > 0 ? sum / n : 0;
    for (int64_t i = 0; i < B; i++)
        if (!skip[i])
            sq += (x[i] - *mean) * (x[i] - *mean);
    *std = n > 0 ? sqrt(sq / n) : 0;
}

/* gdpo's components by name, as verl-reward's scorers leave them, and their weights. */
int vl_components_read(double **store, struct vl_adv_in *in, struct vl_batch *b,
                       const struct vl_advantage_opts *o, const uint8_t *left_out, struct vl_err *e)
{
    const struct vl_strs *name = &o->components, *weight = &o->component_weights;
    size_t B = (size_t)b->rows;
    double *v, *c;

    *store = v = vl_alloc(name->n * (B + 1) * sizeof *v);
    c = v + name->n * B;
    in->ncomponents = (int64_t)name->n;
    in->component = v;
    in->component_weight = c;
    for (size_t k = 0; k < name->n; k++) {
        double mean, std;
        char metric[160];

        c[k] = weight->n ? strtod(weight->s[k], NULL) : 1;
        if (vl_row_values(v + k * B, b, name->s[k], left_out, "gdpo_reward_keys", e))
            return e->code;
        moments(v + k * B, left_out, b->rows, &mean, &std);
        snprintf(metric, sizeof metric, "gdpo/%s/mean", name->s[k]);
        vl_meta_metric(b, metric, mean);
        snprintf(metric, sizeof metric, "gdpo/%s/std", name->s[k]);
        vl_meta_metric(b, metric, std);
    }
    return 0;
}
