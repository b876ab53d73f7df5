/* metrics.h - a named list of numbers, and the metrics of a step under verl's names.
 *
 * Everything here takes arrays and adds numbers to a list; definitions: verl's metric_utils, as
 * written in verl-eval(1). Sums over a batch run in double, rows in order. */
#ifndef VL_METRICS_H
#define VL_METRICS_H

#include "libverl/base/mem.h"

struct vl_named {
    char *name;
    double value;
    int integer; /* counts and extremes of counts: printed without a fraction */
};

/* In insertion order; zero-initialise. */
struct vl_metrics {
    struct vl_named *m;
    size_t n, cap;
};
void vl_metrics_set(struct vl_metrics *m, const char *name, double value); /* replaces */
void vl_metrics_set_i(struct vl_metrics *m, const char *name, int64_t value);
void vl_metrics_setf(struct vl_metrics *m, double value, const char *fmt, ...) VL_PRINTF(3, 4);
const struct vl_named *vl_metrics_get(const struct vl_metrics *m, const char *name); /* or NULL */
void vl_metrics_free(struct vl_metrics *m);

/* One value for a list of them by its key, as verl's reduce_metrics: a name containing "max" takes
 * the maximum, else one containing "min" the minimum, else the mean. n = 0 gives NaN. */
double vl_metric_reduce(const char *name, const double *x, int64_t n);
/* The same over lists that come one after the other: adds m, and after n of them makes the result. */
void vl_metrics_gather(struct vl_metrics *sum, const struct vl_metrics *m);
void vl_metrics_reduce(struct vl_metrics *sum, int64_t n);
/* how: "mean", "sum", "min" or "max"; else VL_E_USAGE. */
int vl_metric_aggregate(double *out, const char *how, const double *x, int64_t n,
                        struct vl_err *e) VL_MUST_CHECK;

/* What verl's data metrics of a step are computed from. Any pointer but attention may be NULL: the
 * metrics that need it are left out. */
struct vl_step_data {
    int64_t B, P, L;                    /* rows, prompt width, response width */
    const int64_t *attention;           /* (B, P + L) */
    const int64_t *mask;                /* (B, L) response mask */
    const float *scores, *rewards;      /* (B, L) */
    const float *adv, *returns;         /* (B, L) */
    const float *values;                /* (B, L): with a critic */
    const float *old_logp, *rollout_lp; /* (B, L): training/rollout_probs_diff_* */
    const double *num_turns;            /* (B) */
    const uint8_t *unscored;            /* (B) or NULL: rows without a score */
};

/* critic/score, rewards, advantages, returns, values, response_length, prompt_length, response/
 * aborted_ratio, num_turns, rollout_probs_diff. Length = ones of the attention mask; aborted =
 * length 0. Rows without a score are in no metric of score, reward, advantage, return or explained
 * variance (without any row these are NaN). All rows aborted is VL_E_DATA. */
int vl_data_metrics(struct vl_metrics *m, const struct vl_step_data *d,
                    struct vl_err *e) VL_MUST_CHECK;
/* training/rollout_probs_diff_{valid,max,mean,std}, training/rollout_actor_probs_pearson_corr. */
void vl_probs_diff_metrics(struct vl_metrics *m, const float *old_logp, const float *rollout_lp,
                           const int64_t *mask, int64_t n);

/* timing_s/NAME for every entry of seconds (names like "gen"), timing_per_token_ms/NAME for those
 * verl normalises: gen by response tokens, ref, values, adv, update_critic, update_actor by all. */
void vl_timing_metrics(struct vl_metrics *m, const struct vl_metrics *seconds,
                       int64_t prompt_tokens, int64_t response_tokens);
/* perf/total_num_tokens, perf/time_per_step, perf/throughput = tokens / (seconds * devices). */
void vl_throughput_metrics(struct vl_metrics *m, int64_t tokens, double seconds, int64_t devices);

/* variance_proxy/...: how noisy the policy gradient is, from sum_pi_squared (see algorithms of verl's
 * optimal token baseline). All arrays (B, L); is_weights may be NULL; grad_norm NAN = unknown. */
void vl_variance_metrics(struct vl_metrics *m, int64_t B, int64_t L, const float *adv,
                         const int64_t *mask, const float *old_logp, const float *sum_pi2,
                         const float *is_weights, double grad_norm);

#endif
