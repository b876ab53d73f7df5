/* kl.c - see kl.h. */
#include "libverl/algo/kl.h"

#include <math.h>
#include <string.h>

#include "libverl/algo/masked.h"
#include "libverl/base/dmath.h"

int vl_kl_parse(struct vl_kl_type *t, const char *name, struct vl_err *e)
{
    static const struct {
        const char *name;
        int value;
    } names[] = {
        { "kl", VL_K1 }, { "k1", VL_K1 },         { "abs", VL_KABS }, { "mse", VL_K2 },
        { "k2", VL_K2 }, { "low_var_kl", VL_K3 }, { "k3", VL_K3 },
    };
    size_t n = strlen(name);

    t->straight = n > 0 && name[n - 1] == '+';
    n -= (size_t)t->straight;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (strlen(names[i].name) == n && !memcmp(names[i].name, name, n)) {
            t->value = names[i].value;
            return 0;
        }
    }
    if (n == 4 && !memcmp(name, "full", 4))
        return vl_fail(e, VL_E_USAGE,
                       "KL type '%s' needs whole distributions and is not implemented (in verl "
                       "neither); low_var_kl estimates the same from the sampled tokens",
                       name);
    return vl_fail(e, VL_E_USAGE,
                   "unknown KL type '%s'; known: kl (= k1), abs, mse (= k2), low_var_kl (= k3), "
                   "each also with '+' for the straight-through gradient",
                   name);
}

static double k3_raw(double d, double *ex)
{
    double x = vl_clip(-d, -20, 20);
    *ex = vl_dexp(x);
    return *ex - x - 1;
}

double vl_kl(struct vl_kl_type t, float logp, float ref)
{
    double d = (double)logp - ref, ex;

    switch (t.value) {
    case VL_K1:
        return d;
    case VL_KABS:
        return fabs(d);
    case VL_K2:
        return 0.5 * d * d;
    case VL_K3:
        break;
    }
    return vl_clip(k3_raw(d, &ex), -10, 10);
}

double vl_kl_grad(struct vl_kl_type t, float logp, float ref)
{
    double d = (double)logp - ref, ex;

    if (t.straight)
        return d;
    switch (t.value) {
    case VL_K1:
        return 1;
    case VL_KABS:
        return d > 0 ? 1 : d < 0 ? -1 : d; /* keeps NaN */
    case VL_K2:
        return d;
    case VL_K3:
        break;
    }
    if (k3_raw(d, &ex) > 10 || fabs(d) > 20)
        return 0;
    return 1 - ex;
}

int vl_kl_clamped(struct vl_kl_type t, float logp, float ref)
{
    double d = (double)logp - ref, ex;
    return t.value == VL_K3 && (fabs(d) > 20 || k3_raw(d, &ex) > 10);
}

void vl_kl_reward(float *out, double *mean_kl, const float *scores, const float *old_logp,
                  const float *ref_logp, const int64_t *mask, int64_t B, int64_t L,
                  struct vl_kl_type t, double beta)
{
    double total = 0;

    for (int64_t i = 0; i < B; i++) {
        double sum = 0;
        int64_t n = 0;
        for (int64_t j = i * L; j < (i + 1) * L; j++) {
            out[j] = scores[j];
            if (!mask[j])
                continue;
            double k = vl_kl(t, old_logp[j], ref_logp[j]);
            out[j] = (float)(scores[j] - beta * k);
            sum += k;
            n++;
        }
        total += n ? sum / (double)n : 0;
    }
    *mean_kl = B ? total / (double)B : 0;
}

int vl_kl_ctrl_init(struct vl_kl_ctrl *c, const char *type, double coef, double target,
                    double horizon, struct vl_err *e)
{
    *c = (struct vl_kl_ctrl){ .coef = coef, .target = target, .horizon = horizon };
    if (!strcmp(type, "fixed"))
        return 0;
    if (strcmp(type, "adaptive"))
        return vl_fail(e, VL_E_USAGE, "kl_ctrl.type is '%s'; known: fixed, adaptive", type);
    c->adaptive = 1;
    if (!(horizon > 0))
        return vl_fail(e, VL_E_USAGE, "kl_ctrl.horizon is %g; it must be > 0 (default 10000)",
                       horizon);
    if (!(target > 0))
        return vl_fail(e, VL_E_USAGE, "kl_ctrl.target_kl is %g; it must be > 0 (default 0.1)",
                       target);
    return 0;
}

void vl_kl_ctrl_update(struct vl_kl_ctrl *c, double current, double n)
{
    if (c->adaptive)
        c->coef *= 1 + vl_clip(current / c->target - 1, -0.2, 0.2) * n / c->horizon;
}
