/* schedule.c - see schedule.h. */
#include "libverl/algo/schedule.h"

#include <string.h>

#include "libverl/base/dmath.h"

int vl_schedule_init(struct vl_schedule *s, const char *type, double lr, int64_t total,
                     int64_t warmup_steps, double warmup_ratio, struct vl_err *e)
{
    if (!strcmp(type, "constant"))
        s->type = VL_LR_CONSTANT;
    else if (!strcmp(type, "cosine"))
        s->type = VL_LR_COSINE;
    else if (!strcmp(type, "wsd"))
        s->type = VL_LR_WSD;
    else
        return vl_fail(e, VL_E_USAGE, "lr_scheduler_type is '%s'; known: constant, cosine, wsd",
                       type);
    if (!(lr >= 0))
        return vl_fail(e, VL_E_USAGE, "the learning rate is %g; it must be >= 0 (1e-6 is usual)",
                       lr);
    if (total <= 0 && (s->type != VL_LR_CONSTANT || (warmup_steps < 0 && warmup_ratio > 0)))
        return vl_fail(e, VL_E_USAGE,
                       "schedule %s needs the total number of training steps "
                       "(optim.total_training_steps), found %lld",
                       type, (long long)total);
    s->lr = lr;
    s->total = total;
    s->warmup = warmup_steps >= 0 ? warmup_steps : (int64_t)(warmup_ratio * (double)total);
    return 0;
}

static double at_least_1(int64_t n)
{
    return n > 1 ? (double)n : 1;
}

static double cosine(const struct vl_schedule *s, int64_t k)
{
    double r = s->min_ratio;
    double p = (double)(k - s->warmup) / at_least_1(s->total - s->warmup);
    double f = vl_dcospi(2 * s->num_cycles * p) * ((1 - r) * 0.5) + (1 + r) * 0.5;
    return f > r ? f : r;
}

static double wsd(const struct vl_schedule *s, int64_t k)
{
    int64_t stable = (int64_t)((double)(s->total - s->warmup) * s->stable_ratio);
    int64_t start = s->warmup + stable, decay = s->total - start;

    if (k < start)
        return 1;
    if (k >= s->total)
        return s->min_ratio;
    double p = (double)(k - start) / at_least_1(decay);
    double f = 0.5 * (1 + vl_dcospi(2 * s->num_cycles * p));
    return (1 - s->min_ratio) * (f > 0 ? f : 0) + s->min_ratio;
}

double vl_schedule_lr(const struct vl_schedule *s, int64_t k)
{
    double f = 1;

    if (k < s->warmup) {
        double i = s->type == VL_LR_COSINE ? s->init_ratio : 0;
        f = i + (1 - i) * ((double)k / at_least_1(s->warmup));
    } else if (s->type == VL_LR_COSINE) {
        f = cosine(s, k);
    } else if (s->type == VL_LR_WSD) {
        f = wsd(s, k);
    }
    return s->lr * f;
}
