/* shaping.c - see shaping.h. */
#include "libverl/algo/shaping.h"

#include <math.h>
#include <string.h>

#include "libverl/base/dmath.h"

int vl_overlong_check(const struct vl_overlong *o, struct vl_err *e)
{
    if (o->len <= 0 || o->max_resp_len < o->len)
        return vl_fail(e, VL_E_USAGE,
                       "overlong_buffer_cfg.len is %lld with max_resp_len %lld; it must be > 0 and "
                       "not above max_resp_len",
                       (long long)o->len, (long long)o->max_resp_len);
    return 0;
}

double vl_overlong_penalty(const struct vl_overlong *o, int64_t n)
{
    double over = (double)(n - (o->max_resp_len - o->len));
    double pen = -over / (double)o->len * o->penalty_factor;
    return pen < 0 ? pen : 0;
}

/* |s|^p through our own log and exp, exact where p is a small whole number. */
static double power(double s, double p)
{
    double a = fabs(s), y = 1;

    if (p == floor(p) && p >= 0 && p <= 16) {
        for (int k = 0; k < (int)p; k++)
            y *= a;
        return y;
    }
    return a == 0 ? 0 : vl_dexp(p * vl_dlog(a));
}

int vl_pf_ppo_weights(double *w, const char *method, double p, const double *scores, int64_t B,
                      struct vl_err *e)
{
    int pow = !strcmp(method, "pow"), ends = !strcmp(method, "max_min");
    double max = -INFINITY, min = INFINITY;

    if (!pow && !ends && strcmp(method, "max_random"))
        return vl_fail(e, VL_E_USAGE,
                       "pf_ppo.reweight_method is '%s'; known: pow, max_min, max_random", method);
    for (int64_t i = 0; i < B; i++) {
        max = fmax(max, scores[i]);
        min = fmin(min, scores[i]);
    }
    for (int64_t i = 0; i < B; i++) {
        if (pow)
            w[i] = power(scores[i], p);
        else if (ends)
            w[i] = scores[i] == max || scores[i] == min;
        else
            w[i] = scores[i] == max ? 0.4 : 0.1;
        w[i] += 1e-8;
    }
    return 0;
}

void vl_pf_ppo_draw(int64_t *idx, int64_t draws, const double *u, const double *w, int64_t B)
{
    double total = 0;

    for (int64_t i = 0; i < B; i++)
        total += w[i];
    for (int64_t k = 0; k < draws; k++) {
        double run = 0;
        int64_t i = 0;
        for (; i < B - 1; i++) {
            run += w[i];
            if (run >= u[k] * total)
                break;
        }
        idx[k] = i;
    }
}
