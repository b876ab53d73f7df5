/* loss_policy.c - the registry of policy losses.
 *
 * A loss is one function over the valid tokens of some rows that stores each token's loss l and its
 * derivative g = dl/dlogp, plus one line in the table at the end; reduction, importance weights and
 * denominators are common. Formulas: verl's core_algos (names as in policy_loss.loss_mode).
 * Notation: x = logp - old, r = exp(x), A = advantage, c(r) = clamp(r, 1 - low, 1 + high).
 *
 * Arithmetic is in double, whose exp would overflow much later than verl's float32: where verl does
 * not clamp x, a ratio beyond float32 is made infinite here too, since callers look for it. */
#include "libverl/algo/loss.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/algo/masked.h"
#include "libverl/base/dmath.h"
#include "libverl/base/mem.h"

/* What a loss function works on. */
struct work {
    const struct vl_pg_in *in;
    const struct vl_pg_opts *o;
    const struct vl_loss_norm *norm; /* complete */
    double low, high;                /* effective clip ratios */
    double *l, *g;                   /* (first[B]) zeroed */
    struct vl_loss_sums *s;
};

struct vl_pg_loss {
    const char *name;
    int (*fn)(struct work *w, struct vl_err *e);
    int agg; /* enum vl_agg it always uses, or -1 = the configured one */
    int own; /* l and g are already reduced and weighted */
    /* chooses tokens by statistics of all the rows it sees; the loss then finds them in in->pick */
    int (*pick)(const struct vl_pg_in *in, const struct vl_pg_opts *o, uint8_t *pick,
                struct vl_err *e);
    int draw;      /* needs in->draw */
    int dual_clip; /* reads clip_ratio_c */
};

/* Loops over the valid tokens; i = row, j = token. */
#define FOR_VALID(w, i, j)                                                                         \
    for (int64_t i = 0; i < (w)->in->rows.B; i++)                                                  \
        for (int64_t j = (w)->in->rows.first[i]; j < (w)->in->rows.first[i + 1]; j++)              \
            if ((w)->in->rows.mask[j])

static double log_ratio(const struct work *w, int64_t j)
{
    return (double)w->in->logp[j] - w->in->old_logp[j];
}

static double exp_f32(double x)
{
    double r = vl_dexp(x);
    return r > FLT_MAX ? INFINITY : r;
}

static double clip_ratio(const struct work *w, double r)
{
    return vl_clip(r, 1 - w->low, 1 + w->high);
}

/* One token of a metric that is a mean over valid tokens. */
static void mean_of(struct work *w, enum vl_metric m, double x)
{
    w->s->num[m] += x;
    w->s->den[m] += 1;
}

static void clip_metrics(struct work *w, double A, double r, double x, int clipped, int lower)
{
    mean_of(w, VL_M_PG_CLIPFRAC, clipped);
    mean_of(w, VL_M_PG_CLIPFRAC_LOWER, lower);
    mean_of(w, VL_M_PG_CLIPFRAC_HIGH, A > 0 && r > 1 + w->high);
    mean_of(w, VL_M_PG_CLIPFRAC_LOW, A < 0 && r < 1 - w->low);
    mean_of(w, VL_M_PPO_KL, -x);
}

/* Where PPO's max(-A r, -A c(r)) follows r: the clip binds on the far side only. */
static int clip_active(const struct work *w, double A, double r)
{
    if (A > 0)
        return !(r > 1 + w->high);
    return !(r < 1 - w->low);
}

/* x clamped to [-20, 20], counted. */
static double clamped_x(struct work *w, int64_t j, int *inside)
{
    double x = log_ratio(w, j);
    *inside = !(x < -20 || x > 20);
    w->s->num[VL_M_RATIO_CLAMPED] += !*inside;
    w->s->den[VL_M_RATIO_CLAMPED] = 1;
    return vl_clip(x, -20, 20);
}

/* PPO (Schulman et al. 2017) with dual clip (Ye et al. 2020), C = clip_ratio_c:
 *   m = max(-A r, -A c(r));  l = A < 0 ? min(-A C, m) : m */
static int loss_vanilla(struct work *w, struct vl_err *e)
{
    double C = w->o->clip_ratio_c;

    (void)e;
    FOR_VALID (w, i, j) {
        int inside;
        double A = w->in->adv[j], x = clamped_x(w, j, &inside), r = vl_dexp(x);
        double l1 = -A * r, l2 = -A * clip_ratio(w, r), l3 = -A * C;
        double m = l2 > l1 ? l2 : l1;
        int lower = A < 0 && m > l3;
        w->l[j] = lower ? l3 : m;
        if (inside && clip_active(w, A, r) && !lower)
            w->g[j] = -A * r * (A < 0 && r == C ? 0.5 : 1);
        clip_metrics(w, A, r, x, l2 > l1, lower);
    }
    return 0;
}

/* GSPO (Zheng et al. 2025): one ratio per sequence, y_i = mean_t x, s = exp(min(10, y_i)); its
 * gradient flows through the own token only: log s = logp - sg(logp) + sg(y_i).
 *   l = max(-A s, -A c(s)), always seq-mean-token-mean */
static int loss_gspo(struct work *w, struct vl_err *e)
{
    const struct vl_loss_rows *rows = &w->in->rows;

    (void)e;
    for (int64_t i = 0; i < rows->B; i++) {
        double sum = 0;
        int64_t n = 0;
        for (int64_t j = rows->first[i]; j < rows->first[i + 1]; j++) {
            if (rows->mask[j]) {
                sum += log_ratio(w, j);
                n++;
            }
        }
        double y = sum / (double)(n > 0 ? n : 1), r = vl_dexp(y > 10 ? 10 : y);
        for (int64_t j = rows->first[i]; j < rows->first[i + 1]; j++) {
            if (!rows->mask[j])
                continue;
            double A = w->in->adv[j], l1 = -A * r, l2 = -A * clip_ratio(w, r);
            w->l[j] = l2 > l1 ? l2 : l1;
            w->g[j] = !(y > 10) && clip_active(w, A, r) ? -A * r : 0;
            clip_metrics(w, A, r, log_ratio(w, j), l2 > l1, 0);
        }
    }
    return 0;
}

/* SAPO (soft adaptive): s = sigmoid(tau (r - 1)), tau = A > 0 ? tau_pos : tau_neg.
 *   l = -A s 4/tau, always seq-mean-token-mean */
static int loss_sapo(struct work *w, struct vl_err *e)
{
    (void)e;
    FOR_VALID (w, i, j) {
        int inside;
        double A = w->in->adv[j], x = clamped_x(w, j, &inside), r = vl_dexp(x);
        double tau = A > 0 ? w->o->tau_pos : w->o->tau_neg;
        double s = 1 / (1 + vl_dexp(-tau * (r - 1)));
        w->l[j] = -A * s * 4 / tau;
        w->g[j] = inside ? -A * 4 * s * (1 - s) * r : 0;
        mean_of(w, VL_M_PG_CLIPFRAC, 0);
        mean_of(w, VL_M_PG_CLIPFRAC_LOWER, 0);
        mean_of(w, VL_M_PPO_KL, -x);
    }
    return 0;
}

/* GPG (Chu et al. 2025): l = -A logp. */
static int loss_gpg(struct work *w, struct vl_err *e)
{
    (void)e;
    FOR_VALID (w, i, j) {
        w->l[j] = -(double)w->in->adv[j] * w->in->logp[j];
        w->g[j] = -(double)w->in->adv[j];
    }
    return 0;
}

/* (A - mean A)(logp - mean logp) over the valid tokens of the call. */
struct cov {
    double mean_a, mean_lp;
    int64_t n;
};

static struct cov cov_means(const struct vl_pg_in *in)
{
    int64_t n = in->rows.first[in->rows.B];
    return (struct cov){ vl_masked_mean(in->adv, in->rows.mask, n),
                         vl_masked_mean(in->logp, in->rows.mask, n),
                         vl_masked_count(in->rows.mask, n) };
}

static double cov_at(const struct cov *c, const struct vl_pg_in *in, int64_t j)
{
    return (in->adv[j] - c->mean_a) * (in->logp[j] - c->mean_lp);
}

/* Tokens to pick, ordered by key. */
struct pick {
    double key;
    int64_t j;
};

static int pick_cmp(const void *a, const void *b)
{
    const struct pick *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->j > y->j) - (x->j < y->j);
}

static void set_clip_range(struct work *w)
{
    w->low = isnan(w->o->clip_ratio_low) ? w->o->clip_ratio : w->o->clip_ratio_low;
    w->high = isnan(w->o->clip_ratio_high) ? w->o->clip_ratio : w->o->clip_ratio_high;
}

int64_t vl_clip_cov_candidates(const struct vl_pg_in *in, const struct vl_pg_opts *o, int64_t *cand)
{
    struct work w = { .in = in, .o = o };
    struct cov c = cov_means(in);
    int64_t n = 0;

    set_clip_range(&w);
    FOR_VALID (&w, i, j) {
        double A = in->adv[j], r = exp_f32(log_ratio(&w, j)), k = cov_at(&c, in, j);
        int bound = -A * clip_ratio(&w, r) > -A * r;
        if (!bound && k > o->clip_cov_lb && k < o->clip_cov_ub)
            cand[n++] = j;
    }
    return n;
}

/* k = max(int(ratio * tokens), 1) randomly drawn unclipped tokens whose covariance lies in (lb, ub). */
static int pick_clip_cov(const struct vl_pg_in *in, const struct vl_pg_opts *o, uint8_t *pick,
                         struct vl_err *e)
{
    int64_t total = in->rows.first[in->rows.B], *cand = NULL, ncand, k;
    struct pick *p = NULL;

    if (vl_try_alloc(&cand, (size_t)total, sizeof(*cand), "clip_cov", e) ||
        vl_try_alloc(&p, (size_t)total, sizeof(*p), "clip_cov", e))
        goto done;
    ncand = vl_clip_cov_candidates(in, o, cand);
    k = (int64_t)(o->clip_cov_ratio * (double)vl_masked_count(in->rows.mask, total));
    k = k > 1 ? k : 1;
    for (int64_t a = 0; a < ncand; a++)
        p[a] = (struct pick){ in->draw[cand[a]], cand[a] };
    qsort(p, (size_t)ncand, sizeof(*p), pick_cmp);
    for (int64_t a = 0; a < k && a < ncand; a++)
        pick[p[a].j] = 1;
done:
    free(cand);
    free(p);
    return e->code;
}

/* Clip-Cov (Cui et al. 2025): PPO without dual clip; the picked tokens are taken out of loss and
 * gradient. */
static int loss_clip_cov(struct work *w, struct vl_err *e)
{
    (void)e;
    FOR_VALID (w, i, j) {
        double A = w->in->adv[j], x = log_ratio(w, j), r = exp_f32(x);
        double l1 = -A * r, l2 = -A * clip_ratio(w, r);
        if (!w->in->pick[j]) {
            w->l[j] = l2 > l1 ? l2 : l1;
            w->g[j] = clip_active(w, A, r) ? l1 : 0;
        }
        mean_of(w, VL_M_PG_CLIPFRAC, w->in->pick[j]);
        mean_of(w, VL_M_PPO_KL, -x);
    }
    return 0;
}

/* The k = max(1, int(ratio * tokens)) tokens of largest covariance. Ties: the earlier token. */
static int pick_kl_cov(const struct vl_pg_in *in, const struct vl_pg_opts *o, uint8_t *pick,
                       struct vl_err *e)
{
    int64_t total = in->rows.first[in->rows.B], n = 0;
    struct cov c = cov_means(in);
    int64_t k = (int64_t)((double)c.n * o->kl_cov_ratio);
    struct pick *p = NULL;

    if (vl_try_alloc(&p, (size_t)total, sizeof(*p), "kl_cov", e))
        return e->code;
    for (int64_t j = 0; j < total; j++)
        if (in->rows.mask[j])
            p[n++] = (struct pick){ -cov_at(&c, in, j), j };
    qsort(p, (size_t)n, sizeof(*p), pick_cmp);
    k = k > 1 ? k : 1;
    for (int64_t a = 0; a < k && a < n; a++)
        pick[p[a].j] = 1;
    free(p);
    return 0;
}

/* KL-Cov (Cui et al. 2025): l = -A r, plus ppo_kl_coef |x| on the picked tokens. No clipping. */
static int loss_kl_cov(struct work *w, struct vl_err *e)
{
    (void)e;
    FOR_VALID (w, i, j) {
        double A = w->in->adv[j], x = log_ratio(w, j), r = exp_f32(x);
        w->l[j] = w->g[j] = -A * r;
        mean_of(w, VL_M_PPO_KL, fabs(x));
        if (w->in->pick[j]) {
            w->l[j] += w->o->ppo_kl_coef * fabs(x);
            w->g[j] += w->o->ppo_kl_coef * (x > 0 ? 1 : x < 0 ? -1 : 0);
        }
    }
    return 0;
}

/* One row of geo_mean; see below. */
static void geo_mean_row(struct work *w, int64_t i)
{
    const struct vl_loss_rows *rows = &w->in->rows;
    double sz = 0, sa = 0, slw = 0;
    int64_t n = 0, at = -1;

    for (int64_t j = rows->first[i]; j < rows->first[i + 1]; j++) {
        if (!rows->mask[j])
            continue;
        double A = w->in->adv[j], x = log_ratio(w, j), u = vl_clip(x, -w->low, w->high);
        sz += A > 0 ? (u < x ? u : x) : A < 0 ? (u > x ? u : x) : 0;
        sa += A;
        if (w->in->is_weights)
            slw += vl_dlog((double)w->in->is_weights[j] + 1e-10);
        mean_of(w, VL_M_PG_CLIPFRAC, u != x && A > 0);
        mean_of(w, VL_M_PG_CLIPFRAC_LOWER, u != x && A < 0);
        mean_of(w, VL_M_PPO_KL, -x);
        at = at < 0 ? j : at;
        n++;
    }
    if (!n)
        return;
    double len = (double)n;
    double l = -(sa / len) * vl_dexp(sz / len) * (w->in->is_weights ? vl_dexp(slw / len) : 1);
    w->l[at] = l / w->norm->rows;
    for (int64_t j = at; j < rows->first[i + 1]; j++) {
        double A = w->in->adv[j], x = rows->mask[j] ? log_ratio(w, j) : 0;
        if (rows->mask[j] && ((A > 0 && x <= w->high) || (A < 0 && x >= -w->low)))
            w->g[j] = l / (w->norm->rows * len);
    }
}

/* GMPO (Zhao et al. 2025), the geometric mean of clipped ratios: with u = clamp(x, -low, high) and
 * z = min(x, u) for A > 0, max(x, u) for A < 0, 0 for A = 0,
 *   l_i = -mean_t(A) exp(mean_t(z)) [exp(mean_t(log(w + 1e-10)))],  loss = mean of l_i over ALL rows
 * loss_agg_mode is ignored, as in verl. The mean is over norm.rows, so that with the counts of the
 * mini-batch the cut does not matter (verl: the rows of the micro-batch). */
static int loss_geo_mean(struct work *w, struct vl_err *e)
{
    (void)e;
    for (int64_t i = 0; i < w->in->rows.B; i++)
        geo_mean_row(w, i);
    return 0;
}

/* CISPO (MiniMax 2025): l = -sg(c(r)) A logp; clipping never zeroes the gradient. */
static int loss_cispo(struct work *w, struct vl_err *e)
{
    (void)e;
    FOR_VALID (w, i, j) {
        int inside;
        double A = w->in->adv[j], x = clamped_x(w, j, &inside), r = vl_dexp(x);
        double c = clip_ratio(w, r);
        w->l[j] = -c * A * w->in->logp[j];
        w->g[j] = -c * A;
        clip_metrics(w, A, r, x, r != c, 0);
    }
    return 0;
}

/* REINFORCE: l = -A logp. ppo_kl = mean(old - logp), where verl's old is the rollout's log-prob. */
static int loss_reinforce(struct work *w, struct vl_err *e)
{
    if (loss_gpg(w, e))
        return e->code;
    FOR_VALID (w, i, j)
        mean_of(w, VL_M_PPO_KL, -log_ratio(w, j));
    return 0;
}

/* SPPO (Wu et al. 2024), verl's recipe: l_i = (sum_t x - eta A_i)^2, A_i = the row's advantage (the
 * mean over its tokens; the estimator sppo gives each the same); mean over rows with a valid token. */
static int loss_sppo(struct work *w, struct vl_err *e)
{
    const struct vl_loss_rows *rows = &w->in->rows;

    (void)e;
    for (int64_t i = 0; i < rows->B; i++) {
        double x = 0, A = 0, n = 0, d;
        int64_t last = -1;

        for (int64_t j = rows->first[i]; j < rows->first[i + 1]; j++) {
            if (!rows->mask[j])
                continue;
            x += log_ratio(w, j);
            A += w->in->adv[j];
            n += 1;
            last = j;
            mean_of(w, VL_M_PPO_KL, -log_ratio(w, j));
        }
        if (last < 0)
            continue;
        d = x - w->o->sppo_eta * A / n;
        w->l[last] = d * d * w->norm->dp / w->norm->seqs;
        for (int64_t j = rows->first[i]; j <= last; j++)
            w->g[j] = rows->mask[j] ? 2 * d * w->norm->dp / w->norm->seqs : 0;
    }
    return 0;
}

static const struct vl_pg_loss losses[] = {
    { .name = "vanilla", .fn = loss_vanilla, .agg = -1, .dual_clip = 1 },
    { .name = "gspo", .fn = loss_gspo, .agg = VL_AGG_SEQ_MEAN_TOKEN_MEAN },
    { .name = "sapo", .fn = loss_sapo, .agg = VL_AGG_SEQ_MEAN_TOKEN_MEAN },
    { .name = "gpg", .fn = loss_gpg, .agg = -1 },
    { .name = "clip_cov", .fn = loss_clip_cov, .agg = -1, .pick = pick_clip_cov, .draw = 1 },
    { .name = "kl_cov", .fn = loss_kl_cov, .agg = -1, .pick = pick_kl_cov },
    { .name = "geo_mean", .fn = loss_geo_mean, .agg = -1, .own = 1 },
    { .name = "cispo", .fn = loss_cispo, .agg = -1 },
    { .name = "reinforce", .fn = loss_reinforce, .agg = -1 },
    { .name = "sppo", .fn = loss_sppo, .agg = VL_AGG_SEQ_MEAN_TOKEN_SUM, .own = 1 },
};
#define NLOSS (sizeof(losses) / sizeof(*losses))

const struct vl_pg_loss *vl_pg_find(const char *name, struct vl_err *e)
{
    struct vl_buf known = { 0 };

    for (size_t i = 0; i < NLOSS; i++) {
        if (!strcmp(losses[i].name, name))
            return &losses[i];
    }
    for (size_t i = 0; i < NLOSS; i++)
        vl_buf_printf(&known, "%s%s", i ? ", " : "", losses[i].name);
    vl_fail(e, VL_E_USAGE, "policy_loss.loss_mode is '%s'; known: %s", name, known.s);
    vl_buf_free(&known);
    return NULL;
}

const char *vl_pg_name(size_t i)
{
    return i < NLOSS ? losses[i].name : NULL;
}

int vl_pg_needs_draw(const struct vl_pg_loss *p)
{
    return p->draw;
}

int vl_pg_picks(const struct vl_pg_loss *p)
{
    return p->pick != NULL;
}

int vl_pg_pick(const struct vl_pg_loss *p, const struct vl_pg_in *in, const struct vl_pg_opts *o,
               uint8_t *pick, struct vl_err *e)
{
    if (p->draw && !in->draw)
        return vl_fail(e, VL_E_BUG, "%s without random numbers", p->name);
    memset(pick, 0, (size_t)in->rows.first[in->rows.B]);
    return p->pick(in, o, pick, e);
}

int vl_pg_check(const struct vl_pg_loss *p, const struct vl_pg_opts *o, struct vl_err *e)
{
    struct work w = { .o = o };

    set_clip_range(&w);
    if (p->dual_clip && !(o->clip_ratio_c > 1))
        return vl_fail(e, VL_E_USAGE, "clip_ratio_c is %g; the dual clip must be > 1 (default 3)",
                       o->clip_ratio_c);
    if (!(w.low >= 0) || !(w.high >= 0))
        return vl_fail(e, VL_E_USAGE,
                       "clip ratios are %g (low) and %g (high); they must be >= 0 (default 0.2)",
                       w.low, w.high);
    if (p->fn == loss_sapo && !(o->tau_pos > 0 && o->tau_neg > 0))
        return vl_fail(e, VL_E_USAGE, "tau_pos is %g and tau_neg %g; both must be > 0", o->tau_pos,
                       o->tau_neg);
    if (p->pick && !(o->clip_cov_ratio >= 0 && o->kl_cov_ratio >= 0))
        return vl_fail(e, VL_E_USAGE, "clip_cov_ratio is %g and kl_cov_ratio %g; both must be >= 0",
                       o->clip_cov_ratio, o->kl_cov_ratio);
    return 0;
}

static void reduce(const struct vl_pg_loss *p, const struct work *w, float *dlogp)
{
    const struct vl_loss_rows *rows = &w->in->rows;
    enum vl_agg agg = p->agg >= 0 ? (enum vl_agg)p->agg : w->o->agg;
    double *loss = &w->s->num[VL_M_PG_LOSS];

    w->s->den[VL_M_PG_LOSS] = 1;
    if (!p->own)
        *loss += vl_agg_empty(agg, w->norm);
    for (int64_t i = 0; i < rows->B; i++) {
        int64_t n =
            vl_masked_count(rows->mask + rows->first[i], rows->first[i + 1] - rows->first[i]);
        double omega = p->own ? 1 : vl_agg_weight(agg, w->norm, n);
        for (int64_t j = rows->first[i]; j < rows->first[i + 1]; j++) {
            if (!rows->mask[j])
                continue;
            double k = omega * (w->in->is_weights && !p->own ? w->in->is_weights[j] : 1);
            *loss += k * w->l[j];
            dlogp[j] += (float)(k * w->g[j]);
        }
    }
}

int vl_pg_loss(const struct vl_pg_loss *p, const struct vl_pg_in *in, const struct vl_pg_opts *o,
               const struct vl_loss_norm *norm, float *dlogp, struct vl_loss_sums *s,
               struct vl_err *e)
{
    struct vl_loss_norm full = vl_loss_norm_local(norm, &in->rows);
    struct vl_pg_in mine = *in;
    struct work w = { .in = &mine, .o = o, .norm = &full, .s = s };
    size_t n = (size_t)in->rows.first[in->rows.B];
    uint8_t *pick = NULL;

    if (p->pick && !in->pick) {
        if (vl_try_alloc(&pick, n, 1, p->name, e) || vl_pg_pick(p, in, o, pick, e))
            goto done;
        mine.pick = pick;
    }
    set_clip_range(&w);
    if (vl_try_alloc(&w.l, n, sizeof(*w.l), p->name, e) == 0 &&
        vl_try_alloc(&w.g, n, sizeof(*w.g), p->name, e) == 0 && p->fn(&w, e) == 0)
        reduce(p, &w, dlogp);
done:
    free(w.l);
    free(w.g);
    free(pick);
    return e->code;
}
