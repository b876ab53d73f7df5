/* rollout_corr.c - see rollout_corr.h. */
#include "libverl/algo/rollout_corr.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/algo/masked.h"
#include "libverl/base/dmath.h"

#define BOUND 20.0

/* ---- Options ---- */

static const struct {
    const char *name;
    int scope, k;
} criteria[] = {
    { "token_k1", VL_RS_TOKEN, 1 },   { "token_k2", VL_RS_TOKEN, 2 },
    { "token_k3", VL_RS_TOKEN, 3 },   { "seq_sum_k1", VL_RS_SUM, 1 },
    { "seq_sum_k2", VL_RS_SUM, 2 },   { "seq_sum_k3", VL_RS_SUM, 3 },
    { "seq_mean_k1", VL_RS_MEAN, 1 }, { "seq_mean_k2", VL_RS_MEAN, 2 },
    { "seq_mean_k3", VL_RS_MEAN, 3 }, { "seq_max_k2", VL_RS_MAX, 2 },
    { "seq_max_k3", VL_RS_MAX, 3 },
};

/* The next item of a comma-separated list without the blanks around it; NULL at the end. */
static const char *next_item(const char **p, size_t *n)
{
    const char *s = *p;

    if (!s)
        return NULL;
    const char *end = strchr(s, ',');
    *p = end ? end + 1 : NULL;
    *n = end ? (size_t)(end - s) : strlen(s);
    while (*n && (*s == ' ' || *s == '\t'))
        s++, --*n;
    while (*n && (s[*n - 1] == ' ' || s[*n - 1] == '\t'))
        --*n;
    return s;
}

static int add_criterion(struct vl_corr *c, const char *s, size_t n, struct vl_err *e)
{
    for (size_t i = 0; i < sizeof(criteria) / sizeof(*criteria); i++) {
        if (strlen(criteria[i].name) != n || memcmp(criteria[i].name, s, n))
            continue;
        for (int k = 0; k < c->nrs; k++)
            if (c->rs[k].name == criteria[i].name)
                return 0;
        c->rs[c->nrs].name = criteria[i].name;
        c->rs[c->nrs].scope = criteria[i].scope;
        c->rs[c->nrs++].k = criteria[i].k;
        return 0;
    }
    return vl_fail(e, VL_E_USAGE,
                   "rollout_correction.rollout_rs has '%.*s'; known: token_k1..3, seq_sum_k1..3, "
                   "seq_mean_k1..3, seq_max_k2, seq_max_k3",
                   (int)n, s);
}

/* One positive number making up all of s[0..n). */
static int positive(const char *s, size_t n, double *x)
{
    char *text = vl_strndup(s, n), *end;

    *x = strtod(text, &end);
    int ok = n > 0 && *end == 0 && *x > 0 && isfinite(*x);
    free(text);
    return ok;
}

static int set_bounds(struct vl_rs *r, const char *s, size_t n, struct vl_err *e)
{
    const char *cut = memchr(s, '_', n);
    size_t k = cut ? (size_t)(cut - s) : 0;

    if (r->k == 1 && cut) {
        if (!positive(s, k, &r->lower) || !positive(cut + 1, n - k - 1, &r->upper))
            return vl_fail(e, VL_E_USAGE,
                           "rollout_rs_threshold '%.*s' for %s: wanted two ratios > 0 as 0.5_2.0",
                           (int)n, s, r->name);
    } else if (cut || !positive(s, n, &r->upper)) {
        return vl_fail(e, VL_E_USAGE, "rollout_rs_threshold '%.*s' for %s: wanted %s", (int)n, s,
                       r->name, r->k == 1 ? "a ratio > 0 or two as 0.5_2.0" : "one bound > 0");
    } else {
        r->lower = r->k == 1 ? 1 / r->upper : NAN;
    }
    r->from = r->k == 1 ? vl_dlog(r->lower) : 0;
    r->till = r->k == 1 ? vl_dlog(r->upper) : r->upper;
    return 0;
}

static int parse_rejection(struct vl_corr *c, const char *rs, const char *spec, struct vl_err *e)
{
    const char *p = rs, *s;
    size_t n;
    int given = 0;

    while ((s = next_item(&p, &n)))
        if (n > 0 && add_criterion(c, s, n, e))
            return e->code;
    if (c->nrs == 0)
        return vl_fail(e, VL_E_USAGE, "rollout_correction.rollout_rs is empty; null turns it off");
    if (!spec || !*spec)
        return vl_fail(e, VL_E_USAGE, "rollout_rs=%s needs rollout_rs_threshold (%s)", rs,
                       c->rs[0].k == 1 ? "0.5_2.0" : "0.01");
    for (p = spec; (s = next_item(&p, &n));)
        given++;
    if (given != 1 && given != c->nrs)
        return vl_fail(
            e, VL_E_USAGE,
            "rollout_rs_threshold '%s' has %d specs for %d criteria; give one, or one each", spec,
            given, c->nrs);
    p = spec;
    s = next_item(&p, &n);
    for (int k = 0; k < c->nrs; k++) {
        if (set_bounds(&c->rs[k], s, n, e))
            return e->code;
        if (given > 1)
            s = next_item(&p, &n);
    }
    return 0;
}

int vl_corr_parse(struct vl_corr *c, const char *is, double threshold, int batch_normalize,
                  const char *rs, const char *rs_threshold, struct vl_err *e)
{
    *c = (struct vl_corr){ .threshold = threshold, .batch_normalize = batch_normalize };
    if (is && !strcmp(is, "token"))
        c->is = VL_IS_TOKEN;
    else if (is && !strcmp(is, "sequence"))
        c->is = VL_IS_SEQUENCE;
    else if (is)
        return vl_fail(e, VL_E_USAGE,
                       "rollout_correction.rollout_is is '%s'; known: token, sequence, null", is);
    if (c->is && !(threshold > 0))
        return vl_fail(e, VL_E_USAGE,
                       "rollout_correction.rollout_is_threshold is %g; it must be > 0 (default 2)",
                       threshold);
    return rs ? parse_rejection(c, rs, rs_threshold, e) : 0;
}

/* ---- Rows ---- */

struct ctx {
    const struct vl_loss_rows *rows;
    const float *logp, *ro;
    double *row;    /* (B) a statistic per row */
    double *token;  /* (N) a statistic per token */
    int64_t *n;     /* (B) valid tokens */
    int64_t tokens; /* valid tokens of all rows */
    struct vl_metrics *m;
};

#define FOR_VALID(c, i, j)                                                                         \
    for (int64_t i = 0; i < (c)->rows->B; i++)                                                     \
        for (int64_t j = (c)->rows->first[i]; j < (c)->rows->first[i + 1]; j++)                    \
            if ((c)->rows->mask[j])

static double delta(const struct ctx *c, int64_t j)
{
    return (double)c->logp[j] - c->ro[j];
}

static double bound(double x)
{
    return vl_clip(x, -BOUND, BOUND);
}

static double mean_tokens(const struct ctx *c)
{
    double s = 0;
    FOR_VALID (c, i, j)
        s += c->token[j];
    return s / (double)c->tokens;
}

static double share(const struct ctx *c, double over, double under)
{
    double s = 0;
    FOR_VALID (c, i, j)
        s += c->token[j] > over || c->token[j] < under;
    return s / (double)c->tokens;
}

/* sqrt(mean(x^2) - mean(x)^2) of tokens clamped to [lo, hi]; 0 for one token. */
static double clamped_std(const struct ctx *c, double lo, double hi, double *mean_out)
{
    double mean = 0, var = 0;

    FOR_VALID (c, i, j)
        mean += vl_clip(c->token[j], lo, hi);
    mean /= (double)c->tokens;
    FOR_VALID (c, i, j) {
        double d = vl_clip(c->token[j], lo, hi) - mean;
        var += d * d;
    }
    *mean_out = mean;
    return c->tokens > 1 ? sqrt(var / (double)c->tokens) : 0;
}

struct extremes {
    double mean, std, max, min, deviation, above, below, n;
};

/* Of the per-row numbers x: all rows, or only those with valid tokens. */
static struct extremes row_extremes(const struct ctx *c, const double *x, int only_valid,
                                    double centre, double over, double under)
{
    struct extremes r = { .max = -INFINITY, .min = INFINITY };

    for (int64_t i = 0; i < c->rows->B; i++) {
        if (only_valid && !c->n[i])
            continue;
        r.n += 1;
        r.mean += x[i];
        r.max = x[i] > r.max ? x[i] : r.max;
        r.min = x[i] < r.min ? x[i] : r.min;
        r.deviation = fmax(r.deviation, fabs(x[i] - centre));
        r.above += x[i] > over;
        r.below += x[i] < under;
    }
    r.mean /= r.n, r.above /= r.n, r.below /= r.n;
    for (int64_t i = 0; i < c->rows->B; i++)
        if (!only_valid || c->n[i])
            r.std += (x[i] - r.mean) * (x[i] - r.mean);
    r.std = r.n > 1 ? sqrt(r.std / (r.n - 1)) : 0;
    return r;
}

/* row[i] = mean of token[] over the row's valid tokens, 0 for an empty row. */
static void rows_from_tokens(struct ctx *c)
{
    for (int64_t i = 0; i < c->rows->B; i++)
        c->row[i] = 0;
    FOR_VALID (c, i, j)
        c->row[i] += c->token[j] / (double)c->n[i];
}

static void put(struct ctx *c, const char *stem, const char *suffix, double x)
{
    vl_metrics_setf(c->m, x, "rollout_corr/%s%s", stem, suffix);
}

/* ---- Importance weights ---- */

static void is_row_metrics(struct ctx *c, double T)
{
    rows_from_tokens(c);
    struct extremes r = row_extremes(c, c->row, 0, 1, T, 1 / T);
    put(c, "rollout_is", "_seq_mean", r.mean);
    put(c, "rollout_is", "_seq_std", r.std);
    put(c, "rollout_is", "_seq_max", r.max);
    put(c, "rollout_is", "_seq_min", r.min);
    put(c, "rollout_is", "_seq_max_deviation", r.deviation);
    put(c, "rollout_is", "_seq_fraction_high", r.above);
    put(c, "rollout_is", "_seq_fraction_low", r.below);
}

/* token[] = untruncated weights; row[] = sums of delta for sequence weights. */
static void is_metrics(struct ctx *c, const struct vl_corr *k)
{
    double T = k->threshold, mean, ess = 0;

    put(c, "rollout_is", "_mean", mean_tokens(c));
    if (k->is == VL_IS_SEQUENCE) {
        struct extremes r = row_extremes(c, c->row, 0, 0, vl_dlog(T), vl_dlog(1 / T));
        put(c, "rollout_is", "_max", vl_dexp(fmin(r.max, BOUND)));
        put(c, "rollout_is", "_min", vl_dexp(r.min));
        put(c, "rollout_is", "_ratio_fraction_high", r.above);
        put(c, "rollout_is", "_ratio_fraction_low", r.below);
    } else {
        double max = -INFINITY, min = INFINITY;
        FOR_VALID (c, i, j) {
            max = fmax(max, c->token[j]);
            min = fmin(min, c->token[j]);
        }
        put(c, "rollout_is", "_max", max);
        put(c, "rollout_is", "_min", min);
        put(c, "rollout_is", "_ratio_fraction_high", share(c, T, -INFINITY));
        put(c, "rollout_is", "_ratio_fraction_low", share(c, INFINITY, 1 / T));
    }
    put(c, "rollout_is", "_std", clamped_std(c, 1 / T, T, &mean));
    FOR_VALID (c, i, j) {
        double v = vl_clip(c->token[j], 1 / T, T) / (mean + 1e-8);
        ess += v * v;
    }
    put(c, "rollout_is", "_eff_sample_size", (double)c->tokens / ess);
    is_row_metrics(c, T);
}

static void normalize(struct ctx *c, const struct vl_corr *k)
{
    double mu = mean_tokens(c);

    if (k->is == VL_IS_SEQUENCE) {
        rows_from_tokens(c);
        mu = row_extremes(c, c->row, 1, 0, 0, 0).mean;
    }
    put(c, "rollout_is", "_batch_norm_factor", mu > 1e-8 ? mu : 1);
    FOR_VALID (c, i, j)
        c->token[j] /= mu > 1e-8 ? mu : 1;
}

static void weights(struct ctx *c, const struct vl_corr *k, float *w)
{
    for (int64_t i = 0; i < c->rows->B; i++)
        c->row[i] = 0;
    FOR_VALID (c, i, j)
        c->row[i] += delta(c, j);
    FOR_VALID (c, i, j)
        c->token[j] = vl_dexp(bound(k->is == VL_IS_SEQUENCE ? c->row[i] : delta(c, j)));
    is_metrics(c, k);
    FOR_VALID (c, i, j)
        c->token[j] = fmin(c->token[j], k->threshold);
    if (k->batch_normalize)
        normalize(c, k);
    for (int64_t j = 0; j < c->rows->first[c->rows->B]; j++)
        w[j] = c->rows->mask[j] ? (float)c->token[j] : 0;
}

/* ---- Rejection ---- */

static double token_stat(const struct ctx *c, int k, int64_t j)
{
    double d = bound(delta(c, j));
    return k == 1 ? -d : k == 2 ? 0.5 * d * d : vl_dexp(d) - 1 - d;
}

/* Fills token[] (row criteria: the row's number at each token) and row[]. */
static void statistic(struct ctx *c, const struct vl_rs *r)
{
    for (int64_t i = 0; i < c->rows->B; i++)
        c->row[i] = 0;
    FOR_VALID (c, i, j) {
        double x = token_stat(c, r->k, j);
        c->token[j] = x;
        if (r->scope == VL_RS_MAX)
            c->row[i] = fmax(c->row[i], x);
        else
            c->row[i] += r->scope == VL_RS_SUM ? x : x / (double)c->n[i];
    }
    if (r->scope == VL_RS_TOKEN)
        return;
    FOR_VALID (c, i, j)
        c->token[j] = c->row[i];
}

static void rs_metrics(struct ctx *c, const struct vl_rs *r)
{
    char stem[64];
    double mean, hi = r->till, lo = r->k == 1 ? r->from : -INFINITY, max = -INFINITY,
                 min = INFINITY;
    struct extremes x = row_extremes(c, c->row, 1, 0, hi, lo);

    snprintf(stem, sizeof(stem), "rollout_rs_%s", r->name);
    FOR_VALID (c, i, j) {
        max = fmax(max, c->token[j]);
        min = fmin(min, c->token[j]);
    }
    int seq = r->scope != VL_RS_TOKEN;
    put(c, stem, "_mean", mean_tokens(c));
    put(c, stem, "_max", seq ? x.max : max);
    put(c, stem, "_min", seq ? x.min : min);
    put(c, stem, "_fraction_high", seq ? x.above : share(c, hi, -INFINITY));
    put(c, stem, "_fraction_low", seq ? x.below : share(c, INFINITY, lo));
    put(c, stem, "_std", clamped_std(c, r->from, hi, &mean));
    put(c, stem, "_seq_mean", x.mean);
    put(c, stem, "_seq_std", x.std);
    put(c, stem, "_seq_max", x.max);
    put(c, stem, "_seq_min", x.min);
    put(c, stem, "_seq_max_deviation", x.deviation);
    put(c, stem, "_seq_fraction_high", x.above);
    if (r->k == 1)
        put(c, stem, "_seq_fraction_low", x.below);
}

/* Shares of tokens and rows with a token that fails in[] (1 = failed). */
static void masked_metrics(struct ctx *c, const char *stem, const uint8_t *failed, int only_valid)
{
    double tokens = 0, rows = 0, all = 0;

    for (int64_t i = 0; i < c->rows->B; i++) {
        int any = 0;
        for (int64_t j = c->rows->first[i]; j < c->rows->first[i + 1]; j++) {
            if (c->rows->mask[j] && failed[j]) {
                tokens += 1;
                any = 1;
            }
        }
        rows += any;
        all += !only_valid || c->n[i] > 0;
    }
    put(c, stem, "_masked_fraction", tokens / (double)c->tokens);
    put(c, stem, "_seq_masked_fraction", rows / all);
}

static int reject(struct ctx *c, const struct vl_corr *k, int64_t *keep, struct vl_err *e)
{
    size_t total = (size_t)c->rows->first[c->rows->B];
    uint8_t *any = NULL, *failed = NULL;

    if (vl_try_alloc(&any, total, 1, "rejection", e) ||
        vl_try_alloc(&failed, total, 1, "rejection", e))
        goto done;
    for (int a = 0; a < k->nrs; a++) {
        const struct vl_rs *r = &k->rs[a];
        char stem[64];
        statistic(c, r);
        FOR_VALID (c, i, j) {
            failed[j] = !(c->token[j] <= r->till && (r->k != 1 || c->token[j] >= r->from));
            any[j] |= failed[j];
        }
        rs_metrics(c, r);
        snprintf(stem, sizeof(stem), "rollout_rs_%s", r->name);
        masked_metrics(c, stem, failed, 1);
    }
    masked_metrics(c, "rollout_rs", any, 0);
    for (size_t j = 0; j < total; j++)
        keep[j] = c->rows->mask[j] && !any[j];
done:
    free(any);
    free(failed);
    return e->code;
}

/* ---- Off-policy metrics ---- */

struct row_means {
    double a, b, sum; /* means of logp and ro, sum of delta */
};

static struct row_means row_means(const struct vl_loss_rows *rows, int64_t i, const float *logp,
                                  const float *ro)
{
    struct row_means r = { 0 };
    int64_t n = vl_masked_count(rows->mask + rows->first[i], rows->first[i + 1] - rows->first[i]);

    for (int64_t j = rows->first[i]; j < rows->first[i + 1]; j++) {
        if (!rows->mask[j])
            continue;
        r.a += logp[j];
        if (ro) {
            r.b += ro[j];
            r.sum += (double)logp[j] - ro[j];
        }
    }
    r.a /= (double)(n > 0 ? n : 1);
    r.b /= (double)(n > 0 ? n : 1);
    return r;
}

static void token_gaps(struct vl_metrics *m, const char *prefix, const struct vl_loss_rows *rows,
                       const float *logp, const float *ro)
{
    double kl = 0, k3 = 0, chi = 0, n = 0;

    for (int64_t j = 0; j < rows->first[rows->B]; j++) {
        if (!rows->mask[j])
            continue;
        double d = (double)logp[j] - ro[j], r = vl_dexp(bound(d));
        kl -= d;
        k3 += vl_dexp(d) - d - 1;
        chi += r * r;
        n += 1;
    }
    n = n > 0 ? n : 1;
    vl_metrics_setf(m, kl / n, "%skl", prefix);
    vl_metrics_setf(m, k3 / n, "%sk3_kl", prefix);
    vl_metrics_setf(m, chi / n - 1, "%schi2_token", prefix);
}

void vl_offpolicy_metrics(struct vl_metrics *m, const char *prefix, const struct vl_loss_rows *rows,
                          const float *logp, const float *ro)
{
    double B = (double)rows->B, ppl = 0, log_ppl = 0, rppl = 0, rlog = 0, diff = 0, adiff = 0;
    double max = -INFINITY, min = INFINITY, ratio = 0, chi = 0;

    for (int64_t i = 0; i < rows->B; i++) {
        struct row_means r = row_means(rows, i, logp, ro);
        ppl += vl_dexp(-r.a) / B;
        log_ppl += -r.a / B;
        rppl += vl_dexp(-r.b) / B;
        rlog += -r.b / B;
        diff += (r.b - r.a) / B;
        adiff += fabs(r.b - r.a) / B;
        max = fmax(max, r.b - r.a);
        min = fmin(min, r.b - r.a);
        ratio += vl_dexp(r.b - r.a) / B;
        chi += vl_dexp(2 * bound(r.sum)) / B;
    }
    vl_metrics_setf(m, ppl, "%straining_ppl", prefix);
    vl_metrics_setf(m, log_ppl, "%straining_log_ppl", prefix);
    if (!ro)
        return;
    token_gaps(m, prefix, rows, logp, ro);
    vl_metrics_setf(m, rppl, "%srollout_ppl", prefix);
    vl_metrics_setf(m, rlog, "%srollout_log_ppl", prefix);
    vl_metrics_setf(m, diff, "%slog_ppl_diff", prefix);
    vl_metrics_setf(m, adiff, "%slog_ppl_abs_diff", prefix);
    vl_metrics_setf(m, max, "%slog_ppl_diff_max", prefix);
    vl_metrics_setf(m, min, "%slog_ppl_diff_min", prefix);
    vl_metrics_setf(m, ratio, "%sppl_ratio", prefix);
    vl_metrics_setf(m, chi - 1, "%schi2_seq", prefix);
}

/* ---- Both ---- */

int vl_corr_apply(const struct vl_corr *k, const struct vl_loss_rows *rows, const float *logp,
                  const float *ro, float *w, int64_t *keep, struct vl_metrics *m, struct vl_err *e)
{
    struct ctx c = { .rows = rows, .logp = logp, .ro = ro, .m = m };
    size_t total = (size_t)rows->first[rows->B];

    if (vl_try_alloc(&c.row, (size_t)rows->B, sizeof(double), "rollout correction", e) ||
        vl_try_alloc(&c.n, (size_t)rows->B, sizeof(int64_t), "rollout correction", e) ||
        vl_try_alloc(&c.token, total, sizeof(double), "rollout correction", e))
        goto done;
    FOR_VALID (&c, i, j) {
        c.n[i]++;
        c.tokens++;
    }
    if (c.tokens == 0) {
        vl_fail(e, VL_E_DATA, "rollout correction: the batch has no valid token");
        goto done;
    }
    if (k->is)
        weights(&c, k, w);
    vl_offpolicy_metrics(m, "rollout_corr/", rows, logp, ro);
    if (k->nrs)
        reject(&c, k, keep, e);
    else
        for (size_t j = 0; j < total; j++)
            keep[j] = rows->mask[j] != 0;
done:
    free(c.row);
    free(c.n);
    free(c.token);
    return e->code;
}

int vl_bypass_loss(const char *loss_type, const struct vl_corr *c, const struct vl_pg_in *in,
                   const struct vl_pg_opts *o, const struct vl_loss_norm *norm, float *dlogp,
                   struct vl_loss_sums *s, struct vl_metrics *m, struct vl_err *e)
{
    int reinforce = !strcmp(loss_type, "reinforce");
    size_t total = (size_t)in->rows.first[in->rows.B];
    struct vl_pg_in mine = *in;
    int64_t *keep = NULL;
    float *w = NULL;

    if (!reinforce && strcmp(loss_type, "ppo_clip"))
        return vl_fail(e, VL_E_USAGE,
                       "rollout_correction.loss_type is '%s'; known: ppo_clip, reinforce",
                       loss_type);
    if (vl_try_alloc(&keep, total, sizeof(*keep), "bypass loss", e) ||
        (c->is && vl_try_alloc(&w, total, sizeof(*w), "bypass loss", e)) ||
        vl_corr_apply(c, &in->rows, in->logp, in->old_logp, w, keep, m, e))
        goto done;
    mine.rows.mask = keep;
    mine.is_weights = reinforce ? w : NULL;
    const struct vl_pg_loss *p = vl_pg_find(reinforce ? "reinforce" : "vanilla", e);
    if (p)
        e->code = vl_pg_loss(p, &mine, o, norm, dlogp, s, e);
done:
    free(keep);
    free(w);
    return e->code;
}
