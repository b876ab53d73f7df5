/* metrics.c - see metrics.h. */
#include "libverl/algo/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/algo/masked.h"
#include "libverl/base/dmath.h"

const struct vl_named *vl_metrics_get(const struct vl_metrics *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++)
        if (!strcmp(m->m[i].name, name))
            return &m->m[i];
    return NULL;
}

void vl_metrics_set(struct vl_metrics *m, const char *name, double value)
{
    struct vl_named *at = (struct vl_named *)vl_metrics_get(m, name);

    if (!at) {
        if (m->n == m->cap) {
            m->cap = m->cap ? 2 * m->cap : 32;
            m->m = vl_realloc(m->m, m->cap * sizeof(*m->m));
        }
        at = &m->m[m->n++];
        at->name = vl_strdup(name);
    }
    at->value = value;
    at->integer = 0;
}

void vl_metrics_set_i(struct vl_metrics *m, const char *name, int64_t value)
{
    vl_metrics_set(m, name, (double)value);
    ((struct vl_named *)vl_metrics_get(m, name))->integer = 1;
}

void vl_metrics_setf(struct vl_metrics *m, double value, const char *fmt, ...)
{
    struct vl_buf name = { 0 };
    char text[200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    vl_buf_str(&name, text);
    vl_metrics_set(m, name.s, value);
    vl_buf_free(&name);
}

void vl_metrics_free(struct vl_metrics *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->m[i].name);
    free(m->m);
    *m = (struct vl_metrics){ 0 };
}

/* ---- Lists to numbers ---- */

struct summary {
    double n, sum, max, min;
};

static void summary_add(struct summary *s, double x)
{
    s->max = s->n == 0 || x > s->max ? x : s->max;
    s->min = s->n == 0 || x < s->min ? x : s->min;
    s->sum += x;
    s->n += 1;
}

double vl_metric_reduce(const char *name, const double *x, int64_t n)
{
    struct summary s = { 0 };

    for (int64_t i = 0; i < n; i++)
        summary_add(&s, x[i]);
    if (n == 0)
        return NAN;
    return strstr(name, "max") ? s.max : strstr(name, "min") ? s.min : s.sum / s.n;
}

void vl_metrics_gather(struct vl_metrics *sum, const struct vl_metrics *m)
{
    for (size_t i = 0; i < m->n; i++) {
        const char *name = m->m[i].name;
        const struct vl_named *have = vl_metrics_get(sum, name);
        double x = m->m[i].value, y = have ? have->value : 0;

        if (have && strstr(name, "max"))
            x = x > y ? x : y;
        else if (have && strstr(name, "min"))
            x = x < y ? x : y;
        else
            x += y;
        vl_metrics_set(sum, name, x);
    }
}

void vl_metrics_reduce(struct vl_metrics *sum, int64_t n)
{
    for (size_t i = 0; i < sum->n; i++)
        if (!strstr(sum->m[i].name, "max") && !strstr(sum->m[i].name, "min"))
            sum->m[i].value /= (double)(n > 0 ? n : 1);
}

int vl_metric_aggregate(double *out, const char *how, const double *x, int64_t n, struct vl_err *e)
{
    struct summary s = { 0 };

    for (int64_t i = 0; i < n; i++)
        summary_add(&s, x[i]);
    if (!strcmp(how, "mean"))
        *out = n ? s.sum / s.n : NAN;
    else if (!strcmp(how, "sum"))
        *out = s.sum;
    else if (!strcmp(how, "min"))
        *out = n ? s.min : NAN;
    else if (!strcmp(how, "max"))
        *out = n ? s.max : NAN;
    else
        return vl_fail(e, VL_E_USAGE, "aggregation is '%s'; known: mean, sum, min, max", how);
    return 0;
}

static void put_summary(struct vl_metrics *m, const char *prefix, const struct summary *s)
{
    vl_metrics_setf(m, s->n > 0 ? s->sum / s->n : NAN, "%s/mean", prefix);
    vl_metrics_setf(m, s->n > 0 ? s->max : NAN, "%s/max", prefix);
    vl_metrics_setf(m, s->n > 0 ? s->min : NAN, "%s/min", prefix);
}

/* ---- Data metrics ---- */

static int64_t ones(const int64_t *x, int64_t n)
{
    return vl_masked_count(x, n);
}

static void token_summary(struct vl_metrics *m, const char *prefix, const struct vl_step_data *d,
                          const int64_t *mask, const float *x)
{
    struct summary s = { 0 };

    if (!x || !mask)
        return;
    for (int64_t j = 0; j < d->B * d->L; j++)
        if (mask[j])
            summary_add(&s, x[j]);
    put_summary(m, prefix, &s);
}

static void row_sum_summary(struct vl_metrics *m, const char *prefix, const struct vl_step_data *d,
                            const float *x, const int64_t *rlen)
{
    struct summary s = { 0 };

    if (!x)
        return;
    for (int64_t i = 0; i < d->B; i++) {
        double sum = 0;
        if (rlen[i] == 0 || (d->unscored && d->unscored[i]))
            continue;
        for (int64_t j = i * d->L; j < (i + 1) * d->L; j++)
            sum += x[j];
        summary_add(&s, sum);
    }
    put_summary(m, prefix, &s);
}

/* Lengths: mean, max, min and the share that fills the width. */
static void length_metrics(struct vl_metrics *m, const char *prefix, const int64_t *len,
                           const int64_t *rlen, int64_t B, int64_t width, int only_non_aborted)
{
    struct summary s = { 0 };
    double full = 0;

    for (int64_t i = 0; i < B; i++) {
        if (only_non_aborted && rlen[i] == 0)
            continue;
        summary_add(&s, (double)len[i]);
        full += len[i] == width;
    }
    put_summary(m, prefix, &s);
    vl_metrics_setf(m, s.n > 0 ? full / s.n : NAN, "%s/clip_ratio", prefix);
}

static double variance(const float *x, const float *minus, const int64_t *mask, int64_t n)
{
    double mean = 0, sum = 0, c = (double)ones(mask, n);

    for (int64_t j = 0; j < n; j++)
        if (mask[j])
            mean += (double)x[j] - (minus ? minus[j] : 0);
    mean /= c;
    for (int64_t j = 0; j < n; j++) {
        if (mask[j]) {
            double v = (double)x[j] - (minus ? minus[j] : 0) - mean;
            sum += v * v;
        }
    }
    return sum / (c - 1);
}

void vl_probs_diff_metrics(struct vl_metrics *m, const float *old_logp, const float *rollout_lp,
                           const int64_t *mask, int64_t n)
{
    struct summary diff = { 0 };
    double sa = 0, sb = 0, saa = 0, sbb = 0, sab = 0, var = 0;

    for (int64_t j = 0; j < n; j++) {
        if (!mask[j])
            continue;
        double a = vl_dexp(old_logp[j]), b = vl_dexp(rollout_lp[j]);
        summary_add(&diff, fabs(a - b));
        sa += a;
        sb += b;
    }
    double c = diff.n, mean = c > 0 ? diff.sum / c : 0;
    for (int64_t j = 0; j < n; j++) {
        if (!mask[j])
            continue;
        double a = vl_dexp(old_logp[j]), b = vl_dexp(rollout_lp[j]), v = fabs(a - b) - mean;
        var += v * v;
        saa += (a - sa / c) * (a - sa / c);
        sbb += (b - sb / c) * (b - sb / c);
        sab += (a - sa / c) * (b - sb / c);
    }
    vl_metrics_set_i(m, "training/rollout_probs_diff_valid", 1);
    vl_metrics_set(m, "training/rollout_probs_diff_max", c > 0 ? diff.max : NAN);
    vl_metrics_set(m, "training/rollout_probs_diff_mean", c > 0 ? mean : NAN);
    vl_metrics_set(m, "training/rollout_probs_diff_std", c > 1 ? sqrt(var / (c - 1)) : NAN);
    vl_metrics_set(m, "training/rollout_actor_probs_pearson_corr", sab / sqrt(saa * sbb));
}

static void critic_metrics(struct vl_metrics *m, const struct vl_step_data *d,
                           const int64_t *scored)
{
    int64_t n = d->B * d->L;

    token_summary(m, "critic/values", d, d->mask, d->values);
    if (d->returns && scored)
        vl_metrics_set(m, "critic/vf_explained_var",
                       1 - variance(d->returns, d->values, scored, n) /
                               (variance(d->returns, NULL, scored, n) + 1e-5));
}

static void extra_metrics(struct vl_metrics *m, const struct vl_step_data *d)
{
    struct summary s = { 0 };

    for (int64_t i = 0; d->num_turns && i < d->B; i++)
        summary_add(&s, d->num_turns[i]);
    if (s.n > 0) {
        vl_metrics_set(m, "num_turns/min", s.min);
        vl_metrics_set(m, "num_turns/max", s.max);
        vl_metrics_set(m, "num_turns/mean", s.sum / s.n);
    }
    if (d->old_logp && d->rollout_lp && d->mask)
        vl_probs_diff_metrics(m, d->old_logp, d->rollout_lp, d->mask, d->B * d->L);
}

int vl_data_metrics(struct vl_metrics *m, const struct vl_step_data *d, struct vl_err *e)
{
    int64_t *plen = NULL, *rlen = NULL, *scored = NULL, aborted = 0;

    if (vl_try_alloc(&plen, (size_t)d->B, sizeof(*plen), "metrics", e) ||
        vl_try_alloc(&rlen, (size_t)d->B, sizeof(*rlen), "metrics", e) ||
        (d->mask && vl_try_alloc(&scored, (size_t)(d->B * d->L), sizeof(*scored), "metrics", e)))
        goto done;
    for (int64_t j = 0; scored && j < d->B * d->L; j++)
        scored[j] = d->mask[j] && !(d->unscored && d->unscored[j / d->L]);
    for (int64_t i = 0; i < d->B; i++) {
        const int64_t *row = d->attention + i * (d->P + d->L);
        plen[i] = ones(row, d->P);
        rlen[i] = ones(row + d->P, d->L);
        aborted += rlen[i] == 0;
    }
    if (aborted == d->B) {
        vl_fail(e, VL_E_DATA,
                "all %lld rows have empty responses: there is nothing to take a metric of",
                (long long)d->B);
        goto done;
    }
    row_sum_summary(m, "critic/score", d, d->scores, rlen);
    row_sum_summary(m, "critic/rewards", d, d->rewards, rlen);
    token_summary(m, "critic/advantages", d, scored, d->adv);
    token_summary(m, "critic/returns", d, scored, d->returns);
    if (d->values)
        critic_metrics(m, d, scored);
    length_metrics(m, "response_length", rlen, rlen, d->B, d->L, 0);
    length_metrics(m, "response_length_non_aborted", rlen, rlen, d->B, d->L, 1);
    vl_metrics_set(m, "response/aborted_ratio", (double)aborted / (double)d->B);
    length_metrics(m, "prompt_length", plen, rlen, d->B, d->P, 0);
    extra_metrics(m, d);
done:
    free(plen);
    free(rlen);
    free(scored);
    return e->code;
}

/* ---- Time ---- */

void vl_timing_metrics(struct vl_metrics *m, const struct vl_metrics *seconds,
                       int64_t prompt_tokens, int64_t response_tokens)
{
    static const char *const all[] = { "ref", "values", "adv", "update_critic", "update_actor" };
    const struct vl_named *t;

    for (size_t i = 0; i < seconds->n; i++)
        vl_metrics_setf(m, seconds->m[i].value, "timing_s/%s", seconds->m[i].name);
    if ((t = vl_metrics_get(seconds, "gen")) && response_tokens > 0)
        vl_metrics_set(m, "timing_per_token_ms/gen", 1000 * t->value / (double)response_tokens);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        if ((t = vl_metrics_get(seconds, all[i])) && prompt_tokens + response_tokens > 0)
            vl_metrics_setf(m, 1000 * t->value / (double)(prompt_tokens + response_tokens),
                            "timing_per_token_ms/%s", all[i]);
    }
}

void vl_throughput_metrics(struct vl_metrics *m, int64_t tokens, double seconds, int64_t devices)
{
    vl_metrics_set_i(m, "perf/total_num_tokens", tokens);
    vl_metrics_set(m, "perf/time_per_step", seconds);
    vl_metrics_set(m, "perf/throughput", (double)tokens / (seconds * (double)devices));
}

/* ---- Variance proxy ---- */

/* Per row: a = mean A, W = sum v, and with weights w = mean w, V = sum v / w^2 (at least 0). */
struct proxy_row {
    double a, W, w, V;
};

static struct proxy_row proxy_row(int64_t L, const float *adv, const int64_t *mask,
                                  const float *old_logp, const float *sum_pi2, const float *w)
{
    struct proxy_row r = { 0 };
    double n = (double)ones(mask, L);

    for (int64_t t = 0; t < L; t++) {
        if (!mask[t])
            continue;
        double w2 = w ? (double)w[t] * w[t] : 1;
        double v = (1 - 2 * vl_dexp(old_logp[t]) + sum_pi2[t]) * w2;
        r.a += adv[t] / n;
        r.W += v;
        r.w += (w ? w[t] : 1) / n;
        r.V += v / (w2 > 1e-10 ? w2 : 1e-10);
    }
    r.V = r.V > 0 ? r.V : 0;
    return r;
}

void vl_variance_metrics(struct vl_metrics *m, int64_t B, int64_t L, const float *adv,
                         const int64_t *mask, const float *old_logp, const float *sum_pi2,
                         const float *is_weights, double grad_norm)
{
    double a2 = 0, W = 0, power = 0;
    int known = !isnan(grad_norm);

    for (int64_t i = 0; i < B; i++) {
        struct proxy_row r = proxy_row(L, adv + i * L, mask + i * L, old_logp + i * L,
                                       sum_pi2 + i * L, is_weights ? is_weights + i * L : NULL);
        a2 += r.a * r.a;
        W += r.W;
        power += is_weights ? r.w * r.w * r.a * r.a * r.V : r.a * r.a * (r.W > 0 ? r.W : 0);
    }
    a2 /= (double)B, W /= (double)B, power /= (double)B;
    double signal = known ? grad_norm * grad_norm : 0;
    double noise = known && B > 1 ? (power - signal) / (double)(B - 1) : 0;
    vl_metrics_set(m, "variance_proxy/proxy1_signal_strength", signal);
    vl_metrics_set(m, "variance_proxy/proxy2_total_power", power);
    vl_metrics_set(m, "variance_proxy/proxy3_pure_noise", noise > 0 ? noise : 0);
    vl_metrics_set(m, "variance_proxy/expected_a_squared", a2);
    vl_metrics_set(m, "variance_proxy/expected_w", W);
}
