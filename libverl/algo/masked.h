/* masked.h - sums, means, variances and whitening over the valid positions of an array.
 *
 * A position counts when its mask is not 0. Masked positions are selected out, never multiplied by
 * 0, so that a NaN under the mask changes nothing. All sums run in double from the first element to
 * the last: one order, whatever the padding. Formulas: verl's masked_* functions; its "+ 1e-8" in
 * mean denominators only turns 0/0 into 0 in float32, so here an empty mask gives mean 0 and any
 * other mask the exact quotient (a constant whitens to exactly 0). */
#ifndef VL_MASKED_H
#define VL_MASKED_H

#include "libverl/base/err.h"

/* x, m: (n). */
double vl_masked_sum(const float *x, const int64_t *m, int64_t n);
int64_t vl_masked_count(const int64_t *m, int64_t n);
double vl_masked_mean(const float *x, const int64_t *m, int64_t n); /* 0 without valid positions */

/* *var = mean of (x - mean)^2, in two passes, times N/(N-1) when unbiased. The unbiased form of
 * fewer than 2 valid positions is VL_E_DATA (verl raises); the biased form of none is 0. */
int vl_masked_var(double *var, const float *x, const int64_t *m, int64_t n, int unbiased,
                  struct vl_err *e) VL_MUST_CHECK;

/* out[j] = (x[j] - mean) / sqrt(var + 1e-8), plus the mean again without shift; mean and unbiased
 * variance over the valid positions. Every position is written, masked ones too, as in verl: a
 * caller that wants zeros there says so with vl_masked_zero. out may be x. */
int vl_masked_whiten(float *out, const float *x, const int64_t *m, int64_t n, int shift,
                     struct vl_err *e) VL_MUST_CHECK;
void vl_masked_zero(float *x, const int64_t *m, int64_t n); /* x = 0 where masked */

/* max(min(x, hi), lo): with lo > hi the result is lo. */
double vl_clip(double x, double lo, double hi);

/* mask (B, L) from response ids: 1 up to and including the first of the end ids, then 0; a row
 * without one is all 1. For data that arrives without a mask; stages make masks from lengths. */
void vl_mask_from_ids(int64_t *mask, const int64_t *ids, int64_t B, int64_t L, const int64_t *end,
                      int64_t nend);

#endif
