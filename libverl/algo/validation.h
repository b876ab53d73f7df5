/* validation.h - metrics over several samples of each prompt: mean@n, best@n, maj@n by bootstrap.
 *
 * Definitions and names are verl's (process_validation_metrics). For each data source, prompt (uid)
 * and numeric variable with n samples: mean@n; for n > 1 std@n (population) and, for every k in
 * {2, 4, 8, ... < n} and n, best@k, worst@k and with a prediction maj@k, each /mean and /std over
 * 1000 resamples of k samples with replacement; then the mean over the prompts that have the key.
 * The random indices are NumPy's legacy generator seeded with 42 for every call, so numbers equal
 * verl's digit for digit. */
#ifndef VL_VALIDATION_H
#define VL_VALIDATION_H

#include "libverl/algo/metrics.h"

#define VL_BOOTSTRAP_SEED      42
#define VL_BOOTSTRAP_RESAMPLES 1000

/* MT19937 with Knuth's initialisation from one 32-bit seed (numpy.random.seed). */
struct vl_mt {
    uint32_t s[624];
    int at;
};
void vl_mt_seed(struct vl_mt *g, uint32_t seed);
uint32_t vl_mt_u32(struct vl_mt *g);
/* Uniform in 0..n-1 by masked rejection, as numpy.random.choice; n = 1 draws nothing. */
int64_t vl_mt_below(struct vl_mt *g, int64_t n);

/* idx (resamples, k): indices into n samples, row by row. */
void vl_bootstrap_indices(int64_t *idx, int64_t n, int64_t k, int64_t resamples, uint32_t seed);

struct vl_val_var {
    const char *name;
    const double *x; /* (N) */
};

struct vl_val_in {
    int64_t N;                 /* samples */
    const char *const *source; /* (N) data source */
    const char *const *uid;    /* (N) */
    const struct vl_val_var *var;
    size_t nvar;
    const char *const *pred; /* (N) prediction, compared as text; NULL: no maj@k */
    int pass; /* pass@k, too, for k = 1, 2, 4, ... and n: the mean of the best of k of the n samples
                     without replacement; of a variable that is 0 or 1 the unbiased estimate of Chen et
                     al. 2021. verl has best@k alone, by resampling with replacement */
    int stderror; /* and the standard error over prompts of mean@n and pass@k */
};

/* Adds val-core/SOURCE/VAR/METRIC for the variable acc (reward when there is no acc) where METRIC
 * begins with mean, maj or best and carries the largest n, and val-aux/... for all others. */
int vl_val_metrics(struct vl_metrics *m, const struct vl_val_in *in,
                   struct vl_err *e) VL_MUST_CHECK;

#endif
