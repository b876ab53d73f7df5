/* advantage.c - the registry of advantage estimators and the estimators that give every token of a
 * row the same advantage or discount rewards along it; the token baselines are in adv_token.c.
 *
 * Notation: s_i = score of row i, M = mask, mu and n = mean score and size of the row's group. The
 * functions bear the names of the table. */
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

static int counts(const struct vl_adv_in *in, int64_t i)
{
    return !in->left_out || !in->left_out[i];
}

/* c->s is the memory of all arrays: free it with free(c->s). */
static int scores_alloc(struct vl_adv_scores *c, const struct vl_adv_in *in, struct vl_err *e)
{
    int64_t B = in->B, G = in->groups.n;

    *c = (struct vl_adv_scores){ 0 };
    if (vl_try_alloc(&c->s, (size_t)(B + 5 * G), sizeof(double), "advantages", e))
        return e->code;
    c->n = c->s + B;
    c->mean = c->n + G;
    c->var = c->mean + G;
    c->len_mean = c->var + G;
    return 0;
}

/* Everything else, from the scores in c->s. */
static void scores_count(struct vl_adv_scores *c, const struct vl_adv_in *in)
{
    int64_t B = in->B, G = in->groups.n;
    double *len = c->len_mean + G;

    memset(c->n, 0, (size_t)(5 * G) * sizeof(*c->n));
    c->rows = c->nonzero = 0;
    for (int64_t i = 0; i < B; i++) {
        if (!counts(in, i))
            continue;
        int64_t g = in->groups.of[i];
        double valid = (double)vl_masked_count(in->mask + i * in->L, in->L);
        c->rows += 1;
        c->nonzero += c->s[i] != 0;
        c->n[g] += 1;
        c->mean[g] += c->s[i];
        len[g] += valid;
        c->len_mean[g] += valid * c->s[i];
    }
    for (int64_t g = 0; g < G; g++) {
        c->mean[g] = c->n[g] > 0 ? c->mean[g] / c->n[g] : 0;
        c->len_mean[g] = len[g] > 0 ? c->len_mean[g] / len[g] : 0;
    }
    for (int64_t i = 0; i < B; i++) {
        int64_t g = in->groups.of[i];
        double d = c->s[i] - c->mean[g];
        if (counts(in, i) && c->n[g] > 1)
            c->var[g] += d * d / (c->n[g] - 1);
    }
}

static int scores_make(struct vl_adv_scores *c, const struct vl_adv_in *in, struct vl_err *e)
{
    if (scores_alloc(c, in, e))
        return e->code;
    for (int64_t i = 0; i < in->B; i++)
        c->s[i] = counts(in, i) ? vl_adv_score(in, i) : 0;
    scores_count(c, in);
    return 0;
}

/* adv = ret = a_i at the row's valid tokens, 0 elsewhere. */
static void spread_row(const struct vl_adv_in *in, int64_t i, double a, float *adv, float *ret)
{
    for (int64_t j = i * in->L; j < (i + 1) * in->L; j++)
        adv[j] = ret[j] = in->mask[j] ? (float)a : 0;
}

static int by_row(const struct vl_adv_estimator *a, const struct vl_adv_in *in,
                  const struct vl_adv_opts *o, float *adv, float *ret, struct vl_err *e)
{
    struct vl_adv_scores c;

    if (scores_make(&c, in, e))
        return e->code;
    for (int64_t i = 0; i < in->B; i++)
        spread_row(in, i, counts(in, i) ? a->row(&c, i, in->groups.of[i], o) : 0, adv, ret);
    free(c.s);
    return 0;
}

/* s - mu; a group of one keeps its score. */
static double centred(const struct vl_adv_scores *c, int64_t i, int64_t g,
                      const struct vl_adv_opts *o)
{
    (void)o;
    return c->n[g] > 1 ? c->s[i] - c->mean[g] : c->s[i];
}

/* GRPO (Shao et al. 2024): (s - mu) / (sigma + 1e-6), sigma with n - 1; without
 * norm_adv_by_std_in_grpo (Dr. GRPO) s - mu. A group of one: mu = 0, sigma = 1. */
static double grpo(const struct vl_adv_scores *c, int64_t i, int64_t g, const struct vl_adv_opts *o)
{
    double sigma = c->n[g] > 1 ? sqrt(c->var[g]) : 1;
    return o->norm_by_std ? centred(c, i, g, o) / (sigma + 1e-6) : centred(c, i, g, o);
}

/* As grpo with a floor under the variance: sigma = sqrt(max(var, 1e-6)). */
static double grpo_vectorized(const struct vl_adv_scores *c, int64_t i, int64_t g,
                              const struct vl_adv_opts *o)
{
    double sigma = c->n[g] > 1 ? sqrt(c->var[g] > 1e-6 ? c->var[g] : 1e-6) : 1;
    return o->norm_by_std ? centred(c, i, g, o) / (sigma + 1e-6) : centred(c, i, g, o);
}

/* RLOO (Ahmadian et al. 2024): score minus the mean of the others, (s - mu) n/(n - 1). */
static double rloo(const struct vl_adv_scores *c, int64_t i, int64_t g, const struct vl_adv_opts *o)
{
    double n = c->n[g];
    return n > 1 ? centred(c, i, g, o) * n / (n - 1) : c->s[i];
}

/* As rloo, but a group of one gets 0. */
static double rloo_vectorized(const struct vl_adv_scores *c, int64_t i, int64_t g,
                              const struct vl_adv_opts *o)
{
    return c->n[g] > 1 ? rloo(c, i, g, o) : 0;
}

/* OPO (Hao et al. 2025): s - b with the length-weighted mean b = sum(len s) / sum(len); b = 0 for a
 * group of one. In a group without any valid token there is nothing to spread to. */
static double opo(const struct vl_adv_scores *c, int64_t i, int64_t g, const struct vl_adv_opts *o)
{
    (void)o;
    return c->s[i] - (c->n[g] > 1 ? c->len_mean[g] : 0);
}

/* GPG (Chu et al. 2025): alpha (s - mu), alpha = rows / max(1, rows with s != 0), whole batch. */
static double gpg(const struct vl_adv_scores *c, int64_t i, int64_t g, const struct vl_adv_opts *o)
{
    return c->rows / (c->nonzero > 1 ? c->nonzero : 1) * centred(c, i, g, o);
}

/* Pass@k (Walder & Karkhanis 2025): the best row gets s_max - s_2nd, every other row 0; divided by
 * sigma + 1e-6 when normalising. Two equal maxima give 0. */
static int grpo_passk(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv,
                      float *ret, struct vl_err *e)
{
    struct vl_adv_scores c;

    if (scores_make(&c, in, e))
        return e->code;
    for (int64_t i = 0; i < in->B; i++)
        spread_row(in, i, 0, adv, ret);
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
            spread_row(in, at, (best - second) / (o->norm_by_std ? sqrt(c.var[g]) + 1e-6 : 1), adv,
                       ret);
    }
    free(c.s);
    return 0;
}

/* Over the valid tokens of the batch; 0 at the others. without_mean: divides alone, so that what was 0
 * stays 0. */
static int whiten_valid(const struct vl_adv_in *in, int without_mean, float *adv, struct vl_err *e)
{
    int64_t n = in->B * in->L;
    double var;

    if (without_mean ? vl_masked_var(&var, adv, in->mask, n, 1, e)
                     : vl_masked_whiten(adv, adv, in->mask, n, 1, e))
        return e->code;
    for (int64_t j = 0; without_mean && j < n; j++)
        adv[j] = (float)(adv[j] / sqrt(var + 1e-8));
    vl_masked_zero(adv, in->mask, n);
    return 0;
}

/* REINFORCE++ with group baseline (Hu et al. 2025): whiten(s - mu) over the valid tokens of the
 * batch, so long responses weigh more. */
static int reinforce_plus_plus_baseline(const struct vl_adv_in *in, const struct vl_adv_opts *o,
                                        float *adv, float *ret, struct vl_err *e)
{
    static const struct vl_adv_estimator centring = { .row = centred };

    if (by_row(&centring, in, o, adv, ret, e) || whiten_valid(in, !o->whiten_mean, adv, e))
        return e->code;
    memcpy(ret, adv, (size_t)(in->B * in->L) * sizeof(*ret));
    return 0;
}

/* GDPO (Liu et al. 2026): grpo's advantage of each reward component by itself, so that a component
 * of small scale is not drowned; their weighted sum, whitened over the batch's valid tokens. As in
 * verl the whitening subtracts the batch's mean, so a group of equal rewards gets exactly 0 only
 * where that mean is 0, or without it (gdpo_whiten, whiten_mean). */
static int gdpo(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
                struct vl_err *e)
{
    struct vl_adv_scores c;
    double *a = NULL;

    if (scores_make(&c, in, e) || vl_try_alloc(&a, (size_t)in->B, sizeof(*a), "gdpo", e))
        goto done;
    for (int64_t k = 0; k < (in->ncomponents > 0 ? in->ncomponents : 1); k++) {
        double w = in->ncomponents ? in->component_weight[k] : 1;

        for (int64_t i = 0; i < in->B && in->ncomponents; i++)
            c.s[i] = counts(in, i) ? in->component[k * in->B + i] : 0;
        scores_count(&c, in);
        for (int64_t i = 0; i < in->B; i++)
            a[i] += counts(in, i) ? w * grpo(&c, i, in->groups.of[i], o) : 0;
    }
    for (int64_t i = 0; i < in->B; i++)
        spread_row(in, i, a[i], adv, ret);
    if (o->gdpo_whiten && whiten_valid(in, !o->whiten_mean, adv, e) == 0)
        memcpy(ret, adv, (size_t)(in->B * in->L) * sizeof(*ret));
done:
    free(a);
    free(c.s);
    return e->code;
}

/* SPPO (Wu et al. 2024), verl's recipe: s - log(mean over all rows of exp(beta s)) / beta, a mean
 * that leans to the best rows. For policy_loss.loss_mode=sppo. */
static int sppo(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
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
        spread_row(in, i, s[i] - base, adv, ret);
    free(s);
    return 0;
}

/* ---- Discounted along the row ---- */

/* GAE (Schulman et al. 2016), backwards from nextV = last = 0; masked tokens carry both unchanged,
 * so credit passes through observation tokens:
 *   last = r + gamma nextV - V + gamma lam last;  ret = last + V;  adv = whiten(last)
 * As in verl adv is not zero at masked positions and ret is not masked. */
static int gae(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
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
static int reinforce_plus_plus(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv,
                               float *ret, struct vl_err *e)
{
    for (int64_t i = 0; i < in->B; i++) {
        double run = 0;
        for (int64_t j = (i + 1) * in->L - 1; j >= i * in->L; j--) {
            double R = reward_at(in, j) + o->gamma * run;
            adv[j] = ret[j] = (float)R;
            run = in->mask[j] ? R : 0;
        }
    }
    return whiten_valid(in, 0, adv, e);
}

/* ReMax (Li et al. 2024): ret = sum of the valid rewards from here on, adv = ret - b at valid
 * tokens and ret at masked ones; b = reward of the prompt's greedy response. */
static int remax(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
                 struct vl_err *e)
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
    { "gae", .fn = gae, .needs = VL_ADV_VALUES, .one = "not grouped",
      .formula = "whiten of d_t + gamma lam A_{t+1}, d_t = r_t + gamma V_{t+1} - V_t" },
    { "grpo", .row = grpo, .needs = VL_ADV_GROUPS, .one = "its score / (1 + 1e-6)",
      .formula = "(s - mean) / (std + 1e-6)" },
    { "grpo_vectorized", .row = grpo_vectorized, .needs = VL_ADV_GROUPS,
      .one = "its score / (1 + 1e-6)", .formula = "(s - mean) / (sqrt(max(var, 1e-6)) + 1e-6)" },
    { "grpo_passk", .fn = grpo_passk, .needs = VL_ADV_GROUPS, .min_group = 2, .one = "an error",
      .formula = "best row: (best - second) / (std + 1e-6); others 0" },
    { "reinforce_plus_plus", .fn = reinforce_plus_plus, .one = "not grouped",
      .formula = "whiten of r_t + gamma R_{t+1}" },
    { "reinforce_plus_plus_baseline", .fn = reinforce_plus_plus_baseline, .needs = VL_ADV_GROUPS,
      .one = "its score", .formula = "whiten of s - mean" },
    { "remax", .fn = remax, .needs = VL_ADV_BASELINES, .one = "not grouped",
      .formula = "sum of rewards from t on - reward of the greedy response" },
    { "rloo", .row = rloo, .needs = VL_ADV_GROUPS, .one = "its score",
      .formula = "s - mean of the others" },
    { "rloo_vectorized", .row = rloo_vectorized, .needs = VL_ADV_GROUPS, .one = "0",
      .formula = "s - mean of the others" },
    { "opo", .row = opo, .needs = VL_ADV_GROUPS, .one = "its score",
      .formula = "s - length-weighted mean" },
    { "gpg", .row = gpg, .needs = VL_ADV_GROUPS, .one = "its score times rows/nonzero rows",
      .formula = "(s - mean) * rows / rows with s != 0" },
    { "gdpo", .fn = gdpo, .needs = VL_ADV_GROUPS | VL_ADV_COMPONENTS,
      .one = "its weighted rewards / (1 + 1e-6)",
      .formula = "whiten of sum over components of weight * (r - mean) / (std + 1e-6)" },
    { "sppo", .fn = sppo, .one = "not grouped",
      .formula = "s - log(mean(exp(beta s))) / beta, over the batch" },
    { "optimal_token_baseline", .fn = vl_adv_otb,
      .needs = VL_ADV_GROUPS | VL_ADV_OLD_LOGP | VL_ADV_SUM_PI2, .one = "its return",
      .formula = "G_t - sum(G_t W_t) / sum(W_t) over the group" },
    { "tir_optimal_token_baseline", .fn = vl_adv_tir_otb,
      .needs = VL_ADV_GROUPS | VL_ADV_OLD_LOGP | VL_ADV_SUM_PI2, .one = "its return",
      .formula = "as optimal_token_baseline, t counted over generated tokens" },
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

static int run(const struct vl_adv_estimator *a, const struct vl_adv_in *in,
               const struct vl_adv_opts *o, float *adv, float *ret, struct vl_err *e)
{
    return a->row ? by_row(a, in, o, adv, ret, e) : a->fn(in, o, adv, ret, e);
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
    if (run(a, &part, o, adv, ret, e) == 0) {
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
    return run(a, in, o, adv, ret, e);
}
