/* loss.h - policy losses, KL and entropy terms, value and SFT losses, with their gradients.
 *
 * Everything works on the packed tokens of some rows: the whole batch, or one micro-batch of one
 * rank. What makes the cut invisible is that every denominator is fixed beforehand for the whole
 * mini-batch (struct vl_loss_norm), so that micro-batches and ranks simply ADD: gradients add,
 * losses add, and metrics are kept as numerators and denominators that add (struct vl_loss_sums).
 * Sums run token by token in row order into the caller's running sums, so any cut of the rows into
 * consecutive micro-batches gives the same bits.
 *
 * An update, for one mini-batch:
 *     struct vl_loss_norm norm = { .dp = 1 };
 *     vl_loss_norm_count(&norm, &rows);               all its rows, which every rank knows
 *     if (norm.tokens == 0) ...                       refuse or skip: no valid token
 *     for each micro-batch: forward; vl_actor_loss(...) fills dlogp and dent; backward
 *     vl_comm_sum_f64(comm, sums.num, ...)            once; then vl_loss_sums_value(...)
 *     gradients: summed over ranks, no division
 * verl averages gradients over its workers and multiplies losses by the number of workers (dp) to
 * undo that; summing with dp = 1 is the same number and also right for the mode whose formula
 * lacks dp. dp other than 1 is there for comparison with verl. */
#ifndef VL_LOSS_H
#define VL_LOSS_H

#include "libverl/algo/kl.h"

/* Rows of tokens. Row i's response tokens are first[i] .. first[i + 1] of every per-token array; a
 * padded (B, L) array has first[i] = i * L. A token takes part iff its mask is not 0; what stands
 * at other positions, NaN included, is never read. */
struct vl_loss_rows {
    int64_t B;
    const int64_t *first; /* (B + 1) */
    const int64_t *mask;  /* (first[B]) */
};

/* ---- Reducing per-token losses to one number (loss_agg_mode) ---- */

/* With l the token losses, n_i the valid tokens of row i:
 *   token-mean               dp/N * sum of l
 *   seq-mean-token-sum       dp/S * sum_i sum_t l
 *   seq-mean-token-mean      dp/S * sum_i (sum_t l) / n_i      (verl: n_i + 1e-8, which float32 drops)
 *   seq-mean-token-sum-norm  1/F  * sum of l          (no dp, no row count: verl's formula)  */
enum vl_agg {
    VL_AGG_TOKEN_MEAN,
    VL_AGG_SEQ_MEAN_TOKEN_SUM,
    VL_AGG_SEQ_MEAN_TOKEN_MEAN,
    VL_AGG_SEQ_MEAN_TOKEN_SUM_NORM,
};
#define VL_AGG_NAMES "token-mean|seq-mean-token-sum|seq-mean-token-mean|seq-mean-token-sum-norm"
int vl_agg_parse(enum vl_agg *agg, const char *name, struct vl_err *e) VL_MUST_CHECK;

/* Denominators of one optimizer step, over all its micro-batches and ranks. A count of 0 stands
 * for "of the rows of this call" (verl's per-worker form). */
struct vl_loss_norm {
    double tokens; /* N: valid tokens */
    double seqs;   /* S: rows. vl_loss_norm_count counts rows with a valid token, so that numerator
                      and denominator see the same rows; verl's engine divides by the configured
                      mini-batch size, empty rows included: set it so to compare */
    double rows;   /* all rows, empty ones included (geo_mean's mean) */
    double pairs;  /* preference.h: pairs of rows */
    double width;  /* F when loss_scale_factor is null: the padded response width L */
    double factor; /* F: loss_scale_factor; 0 = null */
    double dp;     /* 0 = 1 */
};

void vl_loss_norm_count(struct vl_loss_norm *norm, const struct vl_loss_rows *rows); /* adds */

/* The weight of every valid token of row i: d loss / d l. norm must be complete (no zero counts
 * left unless the rows are really empty): see vl_loss_norm_local. */
double vl_agg_weight(enum vl_agg agg, const struct vl_loss_norm *norm, int64_t valid_tokens);
/* norm with the zero counts replaced by those of rows; dp 0 becomes 1. */
struct vl_loss_norm vl_loss_norm_local(const struct vl_loss_norm *norm,
                                       const struct vl_loss_rows *rows);

/* What a sum over no valid token starts from: 0, or NaN where verl divides 0 by 0 (the mode's count
 * in the complete norm is 0). */
double vl_agg_empty(enum vl_agg agg, const struct vl_loss_norm *norm);

/* Loss of a per-token array l, and the weights as gradient (may be NULL). All masked: NaN in the
 * first three modes with local counts, as verl; callers check norm.tokens first. */
double vl_agg_loss(enum vl_agg agg, const struct vl_loss_rows *rows, const float *l,
                   const struct vl_loss_norm *norm, float *dl);

/* ---- Metrics ---- */

enum vl_metric {
    VL_M_LOSS,              /* sum: what the gradient is of, set from the terms below */
    VL_M_PG_LOSS,           /* sum */
    VL_M_KL_LOSS,           /* sum, before kl_loss_coef */
    VL_M_ENTROPY,           /* sum: entropy reduced like the loss */
    VL_M_PG_CLIPFRAC,       /* mean over valid tokens, as the ones below */
    VL_M_PG_CLIPFRAC_LOWER, /* the dual clip acts */
    VL_M_PG_CLIPFRAC_HIGH,  /* A > 0 and ratio above 1 + high */
    VL_M_PG_CLIPFRAC_LOW,   /* A < 0 and ratio below 1 - low */
    VL_M_PPO_KL,            /* old - new log-prob */
    VL_M_RATIO_CLAMPED,     /* count of tokens whose log-ratio left [-20, 20] */
    VL_M_KL_CLAMPED,        /* count of tokens where a clamp of low_var_kl acts */
    VL_M_VF_LOSS,           /* sum */
    VL_M_VF_CLIPFRAC,
    VL_M_VPRED_MEAN,
    VL_M_SFT_LOSS,        /* sum */
    VL_M_DISTILL_LOSS,    /* sum, before its coefficient */
    VL_M_DISTILL_CLAMPED, /* count of tokens where loss_max_clamp acts */
    VL_M_TEACHER_MASS,    /* mean over valid tokens: probability of the teacher's top-k ... */
    VL_M_STUDENT_MASS,    /* ... and the policy's, of the same ids */
    VL_M_DPO_LOSS,        /* sum, as the next */
    VL_M_DPO_SFT_LOSS,    /* before rpo_alpha */
    VL_M_DPO_LOGITS,      /* mean over pairs, as the ones below */
    VL_M_REWARDS_CHOSEN,  /* beta (log pi - log ref) */
    VL_M_REWARDS_REJECTED,
    VL_M_REWARDS_ACCURACIES, /* chosen above rejected */
    VL_M_REWARDS_MARGINS,
    VL_M_POLICY_CHOSEN_LOGPS, /* sums over the response */
    VL_M_POLICY_REJECTED_LOGPS,
    VL_M_REFERENCE_CHOSEN_LOGPS,
    VL_M_REFERENCE_REJECTED_LOGPS,
    VL_M_COUNT
};

/* Running sums; zero-initialise. All members add over micro-batches and ranks. A metric exists when
 * its den is not 0. */
struct vl_loss_sums {
    double num[VL_M_COUNT], den[VL_M_COUNT];
};
const char *vl_metric_name(enum vl_metric m); /* verl's: "actor/pg_loss" */
/* 1 and *value when the metric exists. Sums and counts give num, means num / den. */
int vl_loss_sums_value(const struct vl_loss_sums *s, enum vl_metric m, double *value);

/* ---- Policy losses ---- */

/* Tokens of the rows: (first[B]) each. */
struct vl_pg_in {
    struct vl_loss_rows rows;
    const float *logp;       /* current policy; the gradient is with respect to it */
    const float *old_logp;   /* start of the step (for `reinforce`: the rollout's; only a metric) */
    const float *adv;        /* advantages */
    const float *is_weights; /* rollout correction's weights or NULL; multiply loss and gradient */
    const double *draw; /* clip_cov only: a number per token; of its candidates the k smallest are
                           taken. vl_uniform keyed by (uid, sample, position, step) makes the choice
                           a function of the token alone */
    /* Decided beforehand over more rows than these, so that the cut into calls does not show: */
    const uint8_t *pick; /* clip_cov, kl_cov: vl_pg_pick's choice; NULL: made over these rows */
    const int64_t *keep; /* the policy loss's own mask, for tokens that rejection took out; NULL */
    const struct vl_loss_norm *norm;     /* with keep: its denominators */
    const struct vl_distill_in *distill; /* the teacher's answers, or NULL */
};

/* verl's keys under actor_rollout_ref.actor, with verl's defaults in VL_PG_DEFAULTS. */
struct vl_pg_opts {
    double clip_ratio, clip_ratio_low, clip_ratio_high; /* low, high: NAN = null = clip_ratio */
    double clip_ratio_c;                                /* dual clip, > 1 */
    double tau_pos, tau_neg;                            /* sapo */
    double clip_cov_ratio, clip_cov_lb, clip_cov_ub;    /* policy_loss.clip_cov_* */
    double kl_cov_ratio, ppo_kl_coef;                   /* policy_loss.* */
    double sppo_eta;                                    /* sppo */
    enum vl_agg agg;                                    /* loss_agg_mode */
};
#define VL_PG_DEFAULTS                                                                             \
    {                                                                                              \
        .clip_ratio = 0.2, .clip_ratio_low = 0.2, .clip_ratio_high = 0.2, .clip_ratio_c = 3,       \
        .tau_pos = 1, .tau_neg = 1.05, .clip_cov_ratio = 0.0002, .clip_cov_lb = 1,                 \
        .clip_cov_ub = 5, .kl_cov_ratio = 0.0002, .ppo_kl_coef = 0.1, .sppo_eta = 1,               \
        .agg = VL_AGG_TOKEN_MEAN,                                                                  \
    }

struct vl_pg_loss; /* one line of the registry in loss_policy.c */

/* policy_loss.loss_mode: vanilla gspo sapo gpg clip_cov kl_cov geo_mean cispo reinforce sppo. An unknown
 * name is VL_E_USAGE with the list. */
const struct vl_pg_loss *vl_pg_find(const char *name, struct vl_err *e);
const char *vl_pg_name(size_t i); /* of the i-th line of the registry; NULL behind the last */
int vl_pg_needs_draw(const struct vl_pg_loss *p);
/* clip_cov and kl_cov pick tokens by statistics of the rows of one call (as in verl), so their
 * result depends on the cut into micro-batches, unless in->pick is what vl_pg_pick chose over all of
 * them. */
int vl_pg_picks(const struct vl_pg_loss *p);
/* pick (first[B]) = 1 at the tokens that the loss treats apart. */
int vl_pg_pick(const struct vl_pg_loss *p, const struct vl_pg_in *in, const struct vl_pg_opts *o,
               uint8_t *pick, struct vl_err *e) VL_MUST_CHECK;
/* Ranges that need no data; VL_E_USAGE names the key. */
int vl_pg_check(const struct vl_pg_loss *p, const struct vl_pg_opts *o,
                struct vl_err *e) VL_MUST_CHECK;

/* Adds the loss to PG_LOSS of *s, the metrics to *s, and d loss / d logp to dlogp (a
 * masked token gets nothing added). norm may hold zero counts (see above). */
int vl_pg_loss(const struct vl_pg_loss *p, const struct vl_pg_in *in, const struct vl_pg_opts *o,
               const struct vl_loss_norm *norm, float *dlogp, struct vl_loss_sums *s,
               struct vl_err *e) VL_MUST_CHECK;

/* clip_cov's candidates (token indices, ascending) into cand (first[B]); returns their number. For
 * tests that replay a recorded draw. */
int64_t vl_clip_cov_candidates(const struct vl_pg_in *in, const struct vl_pg_opts *o,
                               int64_t *cand);

/* ---- The whole actor loss ----
 * loss = policy loss - entropy_coeff * reduce(entropy) + kl_loss_coef * reduce(KL(logp, ref)) */
struct vl_corr;         /* rollout_corr.h */
struct vl_distill_opts; /* distill.h */
struct vl_distill_in;

struct vl_actor_opts {
    const struct vl_pg_loss *loss;
    const struct vl_corr
        *bypass;             /* not NULL: vl_bypass_loss in its place, unless in->keep is given */
    const char *bypass_loss; /* its loss_type */
    const struct vl_distill_opts *distill; /* or NULL. Not NULL: in->distill is there, and
                                              loss += weight * distillation loss, where without its
                                              with_policy the terms above are left out */
    struct vl_pg_opts pg;
    double entropy_coeff;
    int use_kl_loss;
    double kl_loss_coef;
    struct vl_kl_type kl_loss_type;
};

/* dlogp and, when not NULL, dent (first[B]) are overwritten, zeros at masked tokens. ref_logp: needed
 * with use_kl_loss. entropy: needed with entropy_coeff != 0; when given, ENTROPY is recorded. */
int vl_actor_loss(const struct vl_actor_opts *o, const struct vl_pg_in *in, const float *ref_logp,
                  const float *entropy, const struct vl_loss_norm *norm, float *dlogp, float *dent,
                  struct vl_loss_sums *s, struct vl_err *e) VL_MUST_CHECK;

/* ---- Value and SFT losses ---- */

/* v clipped to old +- cliprange: vc; l = max((v - ret)^2, (vc - ret)^2); loss = reduce(l) / 2.
 * Overwrites dv (zeros at masked tokens), adds LOSS, VF_LOSS, VF_CLIPFRAC, VPRED_MEAN. verl uses
 * the counts of each micro-batch; with the counts of the mini-batch the cut does not matter. */
void vl_value_loss(const struct vl_loss_rows *rows, const float *v, const float *old_v,
                   const float *returns, double cliprange, enum vl_agg agg,
                   const struct vl_loss_norm *norm, float *dv, struct vl_loss_sums *s);

/* -sum logp / N * dp over valid tokens. Overwrites dlogp; adds LOSS, SFT_LOSS. */
void vl_sft_loss(const struct vl_loss_rows *rows, const float *logp,
                 const struct vl_loss_norm *norm, float *dlogp, struct vl_loss_sums *s);

#endif
