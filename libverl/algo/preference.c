/* preference.c - losses on pairs of responses. Formulas: preference.h. */
#include "libverl/algo/preference.h"

#include <math.h>
#include <string.h>

#include "libverl/base/dmath.h"

static const char *const kinds[] = {
    [VL_PREF_SIGMOID] = "sigmoid",
    [VL_PREF_IPO] = "ipo",
    [VL_PREF_HINGE] = "hinge",
    [VL_PREF_SPPO] = "sppo",
};

int vl_pref_parse(struct vl_pref_opts *o, const char *name, struct vl_err *e)
{
    size_t k = 0, n = sizeof kinds / sizeof *kinds;

    while (k < n && strcmp(kinds[k], name) != 0)
        k++;
    if (k == n)
        return vl_fail(e, VL_E_USAGE,
                       "algorithm.dpo_loss_type is '%s'; known: sigmoid, ipo, hinge, sppo", name);
    o->kind = (enum vl_pref_kind)k;
    if (!(o->beta > 0))
        return vl_fail(e, VL_E_USAGE, "algorithm.dpo_beta is %g; it must be > 0 (default 0.1)",
                       o->beta);
    if (!(o->label_smoothing >= 0 && o->label_smoothing < 0.5))
        return vl_fail(e, VL_E_USAGE,
                       "algorithm.dpo_label_smoothing is %g; it must be in [0, 0.5) (default 0)",
                       o->label_smoothing);
    return 0;
}

static double sigmoid(double x)
{
    double t = vl_dexp(-fabs(x));

    return x < 0 ? t / (1 + t) : 1 / (1 + t);
}

/* -log sigmoid(x) */
static double minus_log_sigmoid(double x)
{
    return (x < 0 ? -x : 0) + vl_dlog(1 + vl_dexp(-fabs(x)));
}

double vl_pref_pair(const struct vl_pref_opts *o, double a, double b, double *da, double *db)
{
    double h = a - b, z = o->beta * h - o->gamma, s = o->label_smoothing, l = 0, dh = 0;

    switch (o->kind) {
    case VL_PREF_SIGMOID:
        l = (1 - s) * minus_log_sigmoid(z) + s * minus_log_sigmoid(-z);
        dh = o->beta * (s * sigmoid(z) - (1 - s) * sigmoid(-z));
        break;
    case VL_PREF_IPO:
        h -= 0.5 / o->beta;
        l = h * h;
        dh = 2 * h;
        break;
    case VL_PREF_HINGE:
        l = z < 1 ? 1 - z : 0;
        dh = z < 1 ? -o->beta : 0;
        break;
    case VL_PREF_SPPO:
        a -= 0.5 * o->eta;
        b += 0.5 * o->eta;
        *da = 2 * a;
        *db = 2 * b;
        return a * a + b * b;
    }
    *da = dh;
    *db = -dh;
    return l;
}

/* Log-prob sums of row i, and its valid tokens. */
struct row_sums {
    double logp, ref, n;
};

static struct row_sums row_sums(const struct vl_loss_rows *rows, int64_t i, const float *logp,
                                const float *ref)
{
    struct row_sums r = { 0 };

    for (int64_t j = rows->first[i]; j < rows->first[i + 1]; j++) {
        if (!rows->mask[j])
            continue;
        r.logp += logp[j];
        r.ref += ref ? ref[j] : 0;
        r.n += 1;
    }
    return r;
}

static void set_row(const struct vl_loss_rows *rows, int64_t i, double d, float *dlogp)
{
    for (int64_t j = rows->first[i]; j < rows->first[i + 1]; j++)
        dlogp[j] = rows->mask[j] ? (float)d : 0;
}

static void mean_of(struct vl_loss_sums *s, enum vl_metric m, double x)
{
    s->num[m] += x;
    s->den[m] += 1;
}

void vl_preference_loss(const struct vl_pref_opts *o, const struct vl_loss_rows *rows,
                        const float *logp, const float *ref, const struct vl_loss_norm *norm,
                        float *dlogp, struct vl_loss_sums *s)
{
    double w = 1 / norm->pairs;

    if (o->reference_free)
        ref = NULL;
    s->den[VL_M_DPO_LOSS] = 1;
    s->den[VL_M_DPO_SFT_LOSS] = o->rpo_alpha != 0;
    for (int64_t i = 0; i + 1 < rows->B; i += 2) {
        struct row_sums c = row_sums(rows, i, logp, ref), r = row_sums(rows, i + 1, logp, ref);
        double nc = o->length_norm && c.n ? c.n : 1, nr = o->length_norm && r.n ? r.n : 1;
        double a = (c.logp - c.ref) / nc, b = (r.logp - r.ref) / nr, da, db;
        double nll = c.n ? -c.logp / c.n : 0;

        s->num[VL_M_DPO_LOSS] += w * vl_pref_pair(o, a, b, &da, &db);
        s->num[VL_M_DPO_SFT_LOSS] += w * nll;
        set_row(rows, i, w * (da / nc - (c.n ? o->rpo_alpha / c.n : 0)), dlogp);
        set_row(rows, i + 1, w * db / nr, dlogp);
        mean_of(s, VL_M_DPO_LOGITS, a - b);
        mean_of(s, VL_M_REWARDS_CHOSEN, o->beta * a);
        mean_of(s, VL_M_REWARDS_REJECTED, o->beta * b);
        mean_of(s, VL_M_REWARDS_ACCURACIES, a > b);
        mean_of(s, VL_M_REWARDS_MARGINS, o->beta * (a - b));
        mean_of(s, VL_M_POLICY_CHOSEN_LOGPS, c.logp);
        mean_of(s, VL_M_POLICY_REJECTED_LOGPS, r.logp);
        if (ref) {
            mean_of(s, VL_M_REFERENCE_CHOSEN_LOGPS, c.ref);
            mean_of(s, VL_M_REFERENCE_REJECTED_LOGPS, r.ref);
        }
    }
    s->num[VL_M_LOSS] = s->num[VL_M_DPO_LOSS] + o->rpo_alpha * s->num[VL_M_DPO_SFT_LOSS];
    s->den[VL_M_LOSS] = 1;
}
