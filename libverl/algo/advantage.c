/* advantage.c - the registry of advantage estimators and the estimators that give every token of a
 * row the same advantage or discount rewards along it; the token baselines are in adv_token.c.
 *
 * Notation: s_i = score of row i, M = mask, mu and n = mean score and size of the row's group. */
#include "libverl/algo/advantage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/algo/adv_token.h"
#include "libverl/algo/masked.h"
#include "libverl/base/dmath.h"

static double reward_at(const struct vl_adv_in *in, int64_t j)
{
    return in->score_mask && !in->score_mask[j] ? 0 : in->rewards[j];
}

double vl_adv_score(const struct vl_adv_in *in, int64_t i)
{
    double s = 0;
    for (int64_t j = i * in->L; j < (i + 1) * in->L; j++)
        s += reward_at(in, j);
    return (float)s;
}

/* ---- Scores of rows and their groups ---- */

struct scores {
    double *s;       /* (B) */
    double *a;       /* (B) the row's advantage, to be spread over its tokens */
    double *n, *sum; /* (groups) rows that count, sum of their scores */
    double *mean;    /* (groups) */
    double *var;     /* (groups) unbiased, second pass; 0 for one row */
    double *store;
    double rows; /* rows that count */
};

static int counts(const struct vl_adv_in *in, int64_t i)
{
    return !in->left_out || !in->left_out[i];
}

static int scores_alloc(struct scores *c, const struct vl_adv_in *in, struct vl_err *e)
{
    int64_t B = in->B, G = in->groups.n;

    *c = (struct scores){ 0 };
    if (vl_try_alloc(&c->store, (size_t)(2 * B + 4 * G), sizeof(double), "advantages", e))
        return e->code;
    c->s = c->store;
    c->a = c->s + B;
    c->n = c->a + B;
    c->sum = c->n + G;
    c->mean = c->sum + G;
    c->var = c->mean + G;
    return 0;
}

/* The groups' statistics of the scores in c->s. */
static void scores_count(struct scores *c, const struct vl_adv_in *in)
{
    int64_t B = in->B, G = in->groups.n;

    memset(c->n, 0, (size_t)(4 * G) * sizeof *c->n);
    c->rows = 0;
    for (int64_t i = 0; i < B; i++) {
        if (!counts(in, i))
            continue;
        c->n[in->groups.of[i]] += 1;
        c->sum[in->groups.of[i]] += c->s[i];
        c->rows += 1;
    }
    for (int64_t g = 0; g < G; g++)
        c->mean[g] = c->n[g] > 0 ? c->sum[g] / c->n[g] : 0;
    for (int64_t i = 0; i < B; i++) {
        int64_t g = in->groups.of[i];
        double d = c->s[i] - c->mean[g];
        if (counts(in, i) && c->n[g] > 1)
            c->var[g] += d * d / (c->n[g] - 1);
    }
}

static int scores_make(struct scores *c, const struct vl_adv_in *in, struct vl_err *e)
{
    if (scores_alloc(c, in, e))
        return e->code;
    for (int64_t i = 0; i < in->B; i++)
        c->s[i] = counts(in, i) ? vl_adv_score(in, i) : 0;
    scores_count(c, in);
    return 0;
}

static void scores_free(struct scores *c)
{
    free(c->store);
}

/* adv = ret = a_i at the row's valid tokens, 0 elsewhere. */
static void spread(const struct vl_adv_in *in, const double *a, float *adv, float *ret)
{
    for (int64_t i = 0; i < in->B; i++) {
        for (int64_t j = i * in->L; j < (i + 1) * in->L; j++) {
            adv[j] = in->mask[j] ? (float)a[i] : 0;
            if (ret)
                ret[j] = adv[j];
        }
    }
}

/* An estimator that is a number per row: row_adv of the row, from scores and group. */
static int by_row(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
                  double (*row_adv)(const struct scores *c, int64_t i, int64_t g,
                                    const struct vl_adv_opts *o),
                  struct vl_err *e)
{
    struct scores c;

    if (scores_make(&c, in, e))
        return e->code;
    for (int64_t i = 0; i < in->B; i++)
        c.a[i] = counts(in, i) ? row_adv(&c, i, in->groups.of[i], o) : 0;
    spread(in, c.a, adv, ret);
    scores_free(&c);
    return 0;
}

/* s - mu; a group of one keeps its score. */
static double centred(const struct scores *c, int64_t i, int64_t g)
{
    return c->n[g] > 1 ? c->s[i] - c->mean[g] : c->s[i];
}

/* GRPO (Shao et al. 2024): (s - mu) / (sigma + 1e-6), sigma with n - 1; without
 * norm_adv_by_std_in_grpo (Dr. GRPO) s - mu. A group of one: mu = 0, sigma = 1. */
static double row_grpo(const struct scores *c, int64_t i, int64_t g, const struct vl_adv_opts *o)
{
    double sigma = c->n[g] > 1 ? sqrt(c->var[g]) : 1;
    return o->norm_by_std ? centred(c, i, g) / (sigma + 1e-6) : centred(c, i, g);
}

static int adv_grpo(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
                    struct vl_err *e)
{
    return by_row(in, o, adv, ret, row_grpo, e);
}

/* As grpo with a floor under the variance: sigma = sqrt(max(var, 1e-6)). */
static double row_grpo_vectorized(const struct scores *c, int64_t i, int64_t g,
                                  const struct vl_adv_opts *o)
{
    double sigma = c->n[g] > 1 ? sqrt(c->var[g] > 1e-6 ? c->var[g] : 1e-6) : 1;
    return o->norm_by_std ? centred(c, i, g) / (sigma + 1e-6) : centred(c, i, g);
}

static int adv_grpo_vectorized(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv,
                               float *ret, struct vl_err *e)
{
    return by_row(in, o, adv, ret, row_grpo_vectorized, e);
}

/* RLOO (Ahmadian et al. 2024): score minus the mean of the others, (s - mu) n/(n - 1). */
static double row_rloo(const struct scores *c, int64_t i, int64_t g, const struct vl_adv_opts *o)
{
    (void)o;
    double n = c->n[g];
    return n > 1 ? (c->s[i] - c->mean[g]) * n / (n - 1) : c->s[i];
}

static int adv_rloo(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
                    struct vl_err *e)
{
    return by_row(in, o, adv, ret, row_rloo, e);
}

/* As rloo, but a group of one gets 0. */
static double row_rloo_vectorized(const struct scores *c, int64_t i, int64_t g,
                                  const struct vl_adv_opts *o)
{
    return c->n[g] > 1 ? row_rloo(c, i, g, o) : 0;
}

static int adv_rloo_vectorized(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv,
                               float *ret, struct vl_err *e)
{
    return by_row(in, o, adv, ret, row_rloo_vectorized, e);
}

/* Pass@k (Walder & Karkhanis 2025): the best row gets s_max - s_2nd, every other row 0; divided by
 * sigma + 1e-6 when normalising. Two equal maxima give 0. */
static int adv_grpo_passk(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv,
                          float *ret, struct vl_err *e)
{
    struct scores c;

    if (scores_make(&c, in, e))
        return e->code;
    for (int64_t g = 0; g < in->groups.n; g++) {
        double best = -INFINITY, second = -INFINITY;
        int64_t at = -1;
        for (int64_t i = 0; i < in->B; i++) {
            if (in->groups.of[i] != g || !counts(in, i))
                continue;
            if (c.s[i] > best) {
                second = best;
                best = c.s[i];
                at = i;
            } else if (c.s[i] > second) {
                second = c.s[i];
            }
        }
        if (at >= 0)
            c.a[at] = (best - second) / (o->norm_by_std ? sqrt(c.var[g]) + 1e-6 : 1);
    }
    spread(in, c.a, adv, ret);
    scores_free(&c);
    return 0;
}

/* OPO (Hao et al. 2025): s - b with the length-weighted mean b = sum(len s) / sum(len); b = 0 for a
 * group of one. In a group without any valid token there is nothing to spread to. */
static int adv_opo(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
                   struct vl_err *e)
{
    struct scores c;
    double *len = NULL, *weighted = NULL;

    (void)o;
    if (scores_make(&c, in, e))
        return e->code;
    if (vl_try_alloc(&len, (size_t)in->groups.n, sizeof(double), "opo", e) ||
        vl_try_alloc(&weighted, (size_t)in->groups.n, sizeof(double), "opo", e))
        goto done;
    for (int64_t i = 0; i < in->B; i++) {
        double n = counts(in, i) ? (double)vl_masked_count(in->mask + i * in->L, in->L) : 0;
        len[in->groups.of[i]] += n;
        weighted[in->groups.of[i]] += n * c.s[i];
    }
    for (int64_t i = 0; i < in->B; i++) {
        int64_t g = in->groups.of[i];
        c.a[i] = c.s[i] - (c.n[g] > 1 && len[g] > 0 ? weighted[g] / len[g] : 0);
    }
    spread(in, c.a, adv, ret);
done:
    free(len);
    free(weighted);
    scores_free(&c);
    return e->code;
}

/* GPG (Chu et al. 2025): alpha (s - mu), alpha = rows / max(1, rows with s != 0), whole batch. */
static int adv_gpg(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
                   struct vl_err *e)
{
    struct scores c;
    double m = 0;

    (void)o;
    if (scores_make(&c, in, e))
        return e->code;
    for (int64_t i = 0; i < in->B; i++)
        m += counts(in, i) && c.s[i] != 0;
    for (int64_t i = 0; i < in->B; i++)
        c.a[i] = counts(in, i) ? c.rows / (m > 1 ? m : 1) * centred(&c, i, in->groups.of[i]) : 0;
    spread(in, c.a, adv, ret);
    scores_free(&c);
    return 0;
}

static int whiten_valid(const struct vl_adv_in *in, float *adv, struct vl_err *e)
{
    if (vl_masked_whiten(adv, adv, in->mask, in->B * in->L, 1, e))
        return e->code;
    vl_masked_zero(adv, in->mask, in->B * in->L);
    return 0;
}

/* REINFORCE++ with group baseline (Hu et al. 2025): whiten(s - mu) over the valid tokens of the
 * batch, so long responses weigh more. */
static int adv_rpp_baseline(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv,
                            float *ret, struct vl_err *e)
{
    struct scores c;

    (void)o;
    if (scores_make(&c, in, e))
        return e->code;
    for (int64_t i = 0; i < in->B; i++)
        c.a[i] = counts(in, i) ? centred(&c, i, in->groups.of[i]) : 0;
    spread(in, c.a, adv, NULL);
    scores_free(&c);
    if (whiten_valid(in, adv, e))
        return e->code;
    memcpy(ret, adv, (size_t)(in->B * in->L) * sizeof(*ret));
    return 0;
}

/* GDPO (Liu et al. 2026): grpo's advantage of each reward component by itself, so that a component
 * of small scale is not drowned; their weighted sum, whitened over the batch's valid tokens. As in
 * verl the whitening subtracts the batch's mean, so a group of equal rewards gets exactly 0 only
 * where that mean is 0, or without it (gdpo_whiten). */
static int adv_gdpo(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
                    struct vl_err *e)
{
    struct scores c;

    if (scores_make(&c, in, e))
        return e->code;
    for (int64_t k = 0; k < (in->ncomponents > 0 ? in->ncomponents : 1); k++) {
        double w = in->ncomponents ? in->component_weight[k] : 1;

        for (int64_t i = 0; i < in->B && in->ncomponents; i++)
            c.s[i] = counts(in, i) ? in->component[k * in->B + i] : 0;
        scores_count(&c, in);
        for (int64_t i = 0; i < in->B; i++)
            c.a[i] += counts(in, i) ? w * row_grpo(&c, i, in->groups.of[i], o) : 0;
    }
    spread(in, c.a, adv, NULL);
    scores_free(&c);
    if (o->gdpo_whiten && whiten_valid(in, adv, e))
        return e->code;
    memcpy(ret, adv, (size_t)(in->B * in->L) * sizeof(*ret));
    return 0;
}

/* SPPO (Wu et al. 2024), verl's recipe: s - log(mean over all rows of exp(beta s)) / beta, a mean
 * that leans to the best rows. For policy_loss.loss_mode=sppo. */
static int adv_sppo(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
                    struct vl_err *e)
{
    double *s = NULL, top = -INFINITY, sum = 0, n = 0, base;

    if (vl_try_alloc(&s, (size_t)in->B, sizeof(*s), "sppo", e))
        return e->code;
    for (int64_t i = 0; i < in->B; i++) {
        s[i] = counts(in, i) ? vl_adv_score(in, i) : 0;
        n += counts(in, i);
        if (counts(in, i) && o->sppo_beta * s[i] > top)
            top = o->sppo_beta * s[i];
    }
    for (int64_t i = 0; i < in->B; i++)
        if (counts(in, i))
            sum += o->sppo_beta != 0 ? vl_dexp(o->sppo_beta * s[i] - top) : s[i];
    base = o->sppo_beta != 0 ? (top + vl_dlog(sum / n)) / o->sppo_beta : sum / n;
    for (int64_t i = 0; i < in->B; i++)
        s[i] -= base;
    spread(in, s, adv, ret);
    free(s);
    return 0;
}

/* ---- Discounted along the row ---- */

/* GAE (Schulman et al. 2016), backwards from nextV = last = 0; masked tokens carry both unchanged,
 * so credit passes through observation tokens:
 *   last = r + gamma nextV - V + gamma lam last;  ret = last + V;  adv = whiten(last)
 * As in verl adv is not zero at masked positions and ret is not masked. */
static int adv_gae(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
                   struct vl_err *e)
{
    for (int64_t i = 0; i < in->B; i++) {
        double next = 0, last = 0;
        for (int64_t j = (i + 1) * in->L - 1; j >= i * in->L; j--) {
            double V = in->values[j];
            if (in->mask[j]) {
                last = reward_at(in, j) + o->gamma * next - V + o->gamma * o->lam * last;
                next = V;
            } else if (!isfinite(V)) {
                V = 0; /* never read where it counts; kept out of the file */
            }
            adv[j] = (float)last;
            ret[j] = (float)(last + V);
        }
    }
    return vl_masked_whiten(adv, adv, in->mask, in->B * in->L, 1, e);
}

/* REINFORCE++ (Hu et al. 2025): ret = r + gamma run, run = ret at valid tokens and 0 at masked ones
 * (a hole cuts the return, unlike gae); adv = whiten(ret), 0 at masked tokens. */
static int adv_rpp(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
                   struct vl_err *e)
{
    for (int64_t i = 0; i < in->B; i++) {
        double run = 0;
        for (int64_t j = (i + 1) * in->L - 1; j >= i * in->L; j--) {
            double R = reward_at(in, j) + o->gamma * run;
            adv[j] = ret[j] = (float)R;
            run = in->mask[j] ? R : 0;
        }
    }
    return whiten_valid(in, adv, e);
}

/* ReMax (Li et al. 2024): ret = sum of the valid rewards from here on, adv = ret - b at valid
 * tokens and ret at masked ones; b = reward of the prompt's greedy response. */
static int adv_remax(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv,
                     float *ret, struct vl_err *e)
{
    (void)o;
    (void)e;
    for (int64_t i = 0; i < in->B; i++) {
        double run = 0;
        for (int64_t j = (i + 1) * in->L - 1; j >= i * in->L; j--) {
            run += in->mask[j] ? reward_at(in, j) : 0;
            ret[j] = (float)run;
            adv[j] = (float)(run - (in->mask[j] ? in->baselines[i] : 0));
        }
    }
    return 0;
}

static const struct vl_adv_estimator estimators[] = {
    { "gae", adv_gae, VL_ADV_VALUES, 0, "not grouped",
      "whiten of d_t + gamma lam A_{t+1}, d_t = r_t + gamma V_{t+1} - V_t" },
    { "grpo", adv_grpo, VL_ADV_GROUPS, 0, "its score / (1 + 1e-6)", "(s - mean) / (std + 1e-6)" },
    { "grpo_vectorized", adv_grpo_vectorized, VL_ADV_GROUPS, 0, "its score / (1 + 1e-6)",
      "(s - mean) / (sqrt(max(var, 1e-6)) + 1e-6)" },
    { "grpo_passk", adv_grpo_passk, VL_ADV_GROUPS, 2, "an error",
      "best row: (best - second) / (std + 1e-6); others 0" },
    { "reinforce_plus_plus", adv_rpp, 0, 0, "not grouped", "whiten of r_t + gamma R_{t+1}" },
    { "reinforce_plus_plus_baseline", adv_rpp_baseline, VL_ADV_GROUPS, 0, "its score",
      "whiten of s - mean" },
    { "remax", adv_remax, VL_ADV_BASELINES, 0, "not grouped",
      "sum of rewards from t on - reward of the greedy response" },
    { "rloo", adv_rloo, VL_ADV_GROUPS, 0, "its score", "s - mean of the others" },
    { "rloo_vectorized", adv_rloo_vectorized, VL_ADV_GROUPS, 0, "0", "s - mean of the others" },
    { "opo", adv_opo, VL_ADV_GROUPS, 0, "its score", "s - length-weighted mean" },
    { "gpg", adv_gpg, VL_ADV_GROUPS, 0, "its score times rows/nonzero rows",
      "(s - mean) * rows / rows with s != 0" },
    { "gdpo", adv_gdpo, VL_ADV_GROUPS | VL_ADV_COMPONENTS, 0, "its weighted rewards / (1 + 1e-6)",
      "whiten of sum over components of weight * (r - mean) / (std + 1e-6)" },
    { "sppo", adv_sppo, 0, 0, "not grouped", "s - log(mean(exp(beta s))) / beta, over the batch" },
    { "optimal_token_baseline", vl_adv_otb, VL_ADV_GROUPS | VL_ADV_OLD_LOGP | VL_ADV_SUM_PI2, 0,
      "its return", "G_t - sum(G_t W_t) / sum(W_t) over the group" },
    { "tir_optimal_token_baseline", vl_adv_tir_otb,
      VL_ADV_GROUPS | VL_ADV_OLD_LOGP | VL_ADV_SUM_PI2, 0, "its return",
      "as optimal_token_baseline, t counted over generated tokens" },
};
#define NEST (sizeof(estimators) / sizeof(*estimators))

const struct vl_adv_estimator *vl_adv_list(size_t *n)
{
    *n = NEST;
    return estimators;
}

const struct vl_adv_estimator *vl_adv_find(const char *name, struct vl_err *e)
{
    struct vl_buf known = { 0 };

    for (size_t i = 0; i < NEST; i++) {
        if (!strcmp(estimators[i].name, name))
            return &estimators[i];
    }
    for (size_t i = 0; i < NEST; i++)
        vl_buf_printf(&known, "%s%s", i ? ", " : "", estimators[i].name);
    vl_fail(e, VL_E_USAGE, "algorithm.adv_estimator is '%s'; known: %s", name, known.s);
    vl_buf_free(&known);
    return NULL;
}

/* Rows that count, group by group, against the estimator's smallest group. */
static int check_groups(const struct vl_adv_estimator *a, const struct vl_adv_in *in,
                        struct vl_err *e)
{
    int64_t *n = NULL;

    if (vl_try_alloc(&n, (size_t)in->groups.n, sizeof(*n), "advantages", e))
        return e->code;
    for (int64_t i = 0; i < in->B; i++)
        n[in->groups.of[i]] += counts(in, i);
    for (int64_t i = 0; i < in->B && !e->code; i++) {
        int64_t k = n[in->groups.of[i]];
        if (counts(in, i) && k < a->min_group)
            vl_fail(e, VL_E_DATA,
                    "row %lld: its group has %lld row%s that count; %s needs at least %d "
                    "(rollout.n >= %d)",
                    (long long)i, (long long)k, k == 1 ? "" : "s", a->name, a->min_group,
                    a->min_group);
    }
    free(n);
    return e->code;
}

static int compute(const struct vl_adv_estimator *a, const struct vl_adv_in *in,
                   const struct vl_adv_opts *o, float *adv, float *ret, struct vl_err *e)
{
    int64_t *mask = NULL;
    struct vl_adv_in part = *in;

    if (vl_try_alloc(&mask, (size_t)(in->B * in->L), sizeof(*mask), "advantages", e))
        return e->code;
    for (int64_t j = 0; j < in->B * in->L; j++)
        mask[j] = counts(in, j / in->L) && in->mask[j];
    part.mask = mask;
    if (a->fn(&part, o, adv, ret, e) == 0) {
        for (int64_t j = 0; j < in->B * in->L; j++) {
            if (!counts(in, j / in->L))
                adv[j] = ret[j] = 0;
        }
    }
    free(mask);
    return e->code;
}

int vl_adv_compute(const struct vl_adv_estimator *a, const struct vl_adv_in *in,
                   const struct vl_adv_opts *o, float *adv, float *ret, struct vl_err *e)
{
    if (a->min_group > 1 && check_groups(a, in, e))
        return e->code;
    if (in->left_out)
        return compute(a, in, o, adv, ret, e);
    return a->fn(in, o, adv, ret, e);
}
