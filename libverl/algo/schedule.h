/* schedule.h - learning-rate schedules, in doubles.
 *
 * lr_k = lr * f(k) with k = training steps completed, so the first step uses f(0). w = warm-up
 * steps, T = total steps, r = min_lr_ratio, c = num_cycles:
 *   constant  k < w: k / max(1, w) (the first warm-up step has rate 0, as verl), else 1
 *   cosine    k < w: i + (1 - i) k / max(1, w), i = init ratio; else with p = (k - w) / max(1, T - w)
 *             max(r, cos(2 pi c p) (1 - r)/2 + (1 + r)/2); p is not capped: past T it rises again
 *   wsd       warm-up as constant; int((T - w) stable) steps at 1; then over the d remaining steps
 *             (1 - r) max(0, (1 + cos(2 pi c p))/2) + r with p = (k - start)/max(1, d); after T: r
 * The cosine is libverl's own (base/dmath.h), so rates are the same on every machine. */
#ifndef VL_SCHEDULE_H
#define VL_SCHEDULE_H

#include "libverl/base/err.h"

struct vl_schedule {
    enum { VL_LR_CONSTANT, VL_LR_COSINE, VL_LR_WSD } type;
    double lr;
    int64_t warmup, total;
    double min_ratio;    /* r, default 0 */
    double num_cycles;   /* c, default 0.5 */
    double init_ratio;   /* i, default 0 */
    double stable_ratio; /* wsd, default 0.9 */
};
#define VL_SCHEDULE_DEFAULTS                                                                       \
    {                                                                                              \
        .num_cycles = 0.5, .stable_ratio = 0.9                                                     \
    }

/* type "constant", "cosine" or "wsd", else VL_E_USAGE; cosine and wsd need total > 0. The warm-up is
 * warmup_steps, or int(warmup_ratio * total) when that is negative. Other members are left alone. */
int vl_schedule_init(struct vl_schedule *s, const char *type, double lr, int64_t total,
                     int64_t warmup_steps, double warmup_ratio, struct vl_err *e) VL_MUST_CHECK;
double vl_schedule_lr(const struct vl_schedule *s, int64_t k);

#endif
