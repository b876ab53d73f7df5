/* masked.c - see masked.h. */
#include "libverl/algo/masked.h"

#include <math.h>

int64_t vl_masked_count(const int64_t *m, int64_t n)
{
    int64_t c = 0;
    for (int64_t j = 0; j < n; j++)
        c += m[j] != 0;
    return c;
}

double vl_masked_sum(const float *x, const int64_t *m, int64_t n)
{
    double s = 0;
    for (int64_t j = 0; j < n; j++)
        if (m[j])
            s += x[j];
    return s;
}

double vl_masked_mean(const float *x, const int64_t *m, int64_t n)
{
    int64_t c = vl_masked_count(m, n);
    return c ? vl_masked_sum(x, m, n) / (double)c : 0;
}

int vl_masked_var(double *var, const float *x, const int64_t *m, int64_t n, int unbiased,
                  struct vl_err *e)
{
    int64_t c = vl_masked_count(m, n);
    double mean = vl_masked_mean(x, m, n), s = 0;

    if (unbiased && c < 2)
        return vl_fail(e, VL_E_DATA,
                       "the batch has %lld valid token%s; a variance needs at least 2",
                       (long long)c, c == 1 ? "" : "s");
    for (int64_t j = 0; j < n; j++)
        if (m[j])
            s += (x[j] - mean) * (x[j] - mean);
    *var = c ? s / (double)(unbiased ? c - 1 : c) : 0;
    return 0;
}

int vl_masked_whiten(float *out, const float *x, const int64_t *m, int64_t n, int shift,
                     struct vl_err *e)
{
    double var, mean = vl_masked_mean(x, m, n);

    if (vl_masked_var(&var, x, m, n, 1, e))
        return e->code;
    double scale = 1 / sqrt(var + 1e-8);
    for (int64_t j = 0; j < n; j++)
        out[j] = (float)((x[j] - mean) * scale + (shift ? 0 : mean));
    return 0;
}

void vl_masked_zero(float *x, const int64_t *m, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        if (!m[j])
            x[j] = 0;
}

double vl_clip(double x, double lo, double hi)
{
    double y = x > hi ? hi : x; /* a NaN stays one */
    return y < lo ? lo : y;
}

void vl_mask_from_ids(int64_t *mask, const int64_t *ids, int64_t B, int64_t L, const int64_t *end,
                      int64_t nend)
{
    for (int64_t i = 0; i < B; i++) {
        int64_t open = 1;
        for (int64_t t = 0; t < L; t++) {
            mask[i * L + t] = open;
            for (int64_t k = 0; k < nend; k++)
                if (ids[i * L + t] == end[k])
                    open = 0;
        }
    }
}
