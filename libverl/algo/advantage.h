/* advantage.h - advantage estimators: rewards of a batch in, advantages and returns out.
 *
 * An estimator is one function and one line of the table in advantage.c; verl-extending(7) adds one.
 * Formulas and names: verl's (algorithm.adv_estimator); each is written at its function and in
 * verl-advantage(1). All sums run in double, row by row, so neither padding nor row order nor ranks
 * change a group's statistics beyond the order of its own rows.
 *
 * Where verl lets numbers at masked positions count (the group estimators sum a row's rewards
 * without its mask) the caller chooses with score_mask. */
#ifndef VL_ADVANTAGE_H
#define VL_ADVANTAGE_H

#include "libverl/base/mem.h"

/* Rows that share a uid, wherever they lie. */
struct vl_groups {
    int64_t n;     /* groups, numbered in order of first appearance */
    int64_t *of;   /* (B) group of each row */
    int64_t *size; /* (n) rows in each group */
};

/* Groups of B texts text[i] of len[i] bytes. Free with vl_groups_free. */
int vl_groups_make(struct vl_groups *g, const char *const *text, const size_t *len, int64_t B,
                   struct vl_err *e) VL_MUST_CHECK;
void vl_groups_free(struct vl_groups *g);

struct vl_adv_in {
    int64_t B, L;
    const float *rewards; /* (B, L) token_level_rewards */
    const int64_t *mask;  /* (B, L) response mask: tokens that get an advantage */
    const int64_t
        *score_mask; /* (B, L) positions whose rewards make up a row's score; NULL = all, as
                                  verl, where a reward on a padded or rejected token counts. A reward
                                  at a position where it is 0 is never read */
    const uint8_t
        *left_out; /* (B) or NULL: 1 = not in any group statistic, advantage and return 0 */
    struct vl_groups groups; /* borrowed; estimators that group */
    const float *values;     /* (B, L) gae */
    const float *baselines;  /* (B) remax: reward of the prompt's greedy response */
    const float *old_logp,
        *sum_pi2;                   /* (B, L) token baselines: log-probs and sum of squared probs */
    const float *is_weights;        /* (B, L) token baselines, or NULL */
    int64_t ncomponents;            /* gdpo: K reward components; 0: the score is the only one */
    const double *component;        /* (K, B) */
    const double *component_weight; /* (K) */
};

struct vl_adv_opts {
    double gamma, lam;    /* algorithm.gamma, algorithm.lam */
    int norm_by_std;      /* algorithm.norm_adv_by_std_in_grpo */
    int handle_zero_tail; /* token baselines: -1 = the estimator's own default */
    int gdpo_whiten;      /* whiten gdpo's sum over the batch */
    int whiten_mean;      /* the whitening of group advantages takes the batch's mean away */
    double sppo_beta;     /* sppo: 0 = mean, large = maximum of the batch's scores */
};
#define VL_ADV_DEFAULTS                                                                            \
    {                                                                                              \
        .gamma = 1, .lam = 1, .norm_by_std = 1, .handle_zero_tail = -1, .gdpo_whiten = 1,          \
        .whiten_mean = 1, .sppo_beta = 1                                                           \
    }

enum vl_adv_needs { /* inputs beyond rewards and mask */
                    VL_ADV_GROUPS = 1,
                    VL_ADV_VALUES = 2,
                    VL_ADV_BASELINES = 4,
                    VL_ADV_OLD_LOGP = 8,
                    VL_ADV_SUM_PI2 = 16,
                    VL_ADV_COMPONENTS = 32,
};

/* Scores of the rows that count and statistics of their groups. */
struct vl_adv_scores {
    double *s;        /* (B) score of each row */
    double *n, *mean; /* (groups) rows, mean of their scores */
    double *var;      /* (groups) unbiased variance in two passes; 0 for one row */
    double *len_mean; /* (groups) mean of the scores weighted by valid tokens; 0 without any */
    double rows;      /* rows of the batch */
    double nonzero;   /* rows whose score is not 0 */
};

/* One of the two functions. row: the advantage of row i of group g, the same at all its valid
 * tokens (and its return). fn: advantages and returns (B, L) of the whole batch. */
struct vl_adv_estimator {
    const char *name;
    double (*row)(const struct vl_adv_scores *c, int64_t i, int64_t g, const struct vl_adv_opts *o);
    int (*fn)(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
              struct vl_err *e);
    unsigned needs;      /* enum vl_adv_needs */
    int min_group;       /* a smaller group is an error; 0 = any */
    const char *one;     /* what a group of one gets, for messages */
    const char *formula; /* one line, for --help and the manual */
};

/* An unknown name is VL_E_USAGE with the list. */
const struct vl_adv_estimator *vl_adv_find(const char *name, struct vl_err *e);
const struct vl_adv_estimator *vl_adv_list(size_t *n); /* the table */

/* adv, ret: (B, L), every element written. VL_E_DATA when a batch cannot be whitened (fewer than 2
 * valid tokens) or a group is too small, naming it. */
int vl_adv_compute(const struct vl_adv_estimator *a, const struct vl_adv_in *in,
                   const struct vl_adv_opts *o, float *adv, float *ret,
                   struct vl_err *e) VL_MUST_CHECK;

/* A row's score: sum of its rewards (see score_mask), rounded to float32 as verl stores it; that
 * also makes means of equal scores exact. */
double vl_adv_score(const struct vl_adv_in *in, int64_t i);

#endif
