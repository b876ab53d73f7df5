/* adv_token.c - the optimal token baselines: a baseline for every group and column.
 *
 *   G[t] = sum of the valid rewards from t on
 *   v[t] = 1 - 2 exp(old[t]) + sum_pi2[t]  (times w[t]^2 with importance weights)
 *   W[t] = sum of the valid v up to t
 *   b[t] = sum_j G_j W_j / (sum_j W_j + 1e-8) over the rows j of the group that are valid at t
 *   adv = G - b at valid tokens, ret = G (not masked); a group of one has b = 0
 * Columns are token positions (optimal_token_baseline) or, for multi-turn rows, the ordinal of the
 * generated token (tir_...), where rows without a valid token are in no group. When all G of a
 * column are equal b is G itself, not G W/(W + 1e-8), so equal rewards give exactly 0. */
#include "libverl/algo/adv_token.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/algo/masked.h"
#include "libverl/base/dmath.h"

struct grid {
    int64_t B, L;
    double *G, *W;         /* (B, L) at token positions */
    int64_t *column;       /* (B, L) column of each valid token, -1 elsewhere */
    int64_t *len;          /* (B) valid tokens; 0 also for rows left out */
    double *sgw, *sw, *g0; /* (L) of the group at hand */
    uint8_t *varied;       /* (L) the G of the column differ */
};

static int grid_make(struct grid *q, const struct vl_adv_in *in, int ordinal, struct vl_err *e)
{
    size_t n = (size_t)(in->B * in->L), L = (size_t)in->L;

    *q = (struct grid){ .B = in->B, .L = in->L };
    if (vl_try_alloc(&q->G, n, sizeof(double), "token baseline", e) ||
        vl_try_alloc(&q->W, n, sizeof(double), "token baseline", e) ||
        vl_try_alloc(&q->column, n, sizeof(int64_t), "token baseline", e) ||
        vl_try_alloc(&q->len, (size_t)in->B, sizeof(int64_t), "token baseline", e) ||
        vl_try_alloc(&q->sgw, L, sizeof(double), "token baseline", e) ||
        vl_try_alloc(&q->sw, L, sizeof(double), "token baseline", e) ||
        vl_try_alloc(&q->g0, L, sizeof(double), "token baseline", e) ||
        vl_try_alloc(&q->varied, L, 1, "token baseline", e))
        return e->code;
    for (int64_t i = 0; i < in->B; i++) {
        double run = 0;
        for (int64_t j = i * in->L; j < (i + 1) * in->L; j++) {
            q->column[j] = -1;
            if (in->mask[j]) {
                double w = in->is_weights ? in->is_weights[j] : 1;
                run += (1 - 2 * vl_dexp(in->old_logp[j]) + in->sum_pi2[j]) * w * w;
                q->column[j] = ordinal ? q->len[i] : j - i * in->L;
                q->len[i]++;
            }
            q->W[j] = run;
        }
        run = 0;
        for (int64_t j = (i + 1) * in->L - 1; j >= i * in->L; j--) {
            if (in->mask[j] && (!in->score_mask || in->score_mask[j]))
                run += in->rewards[j];
            q->G[j] = run;
        }
    }
    return 0;
}

static void grid_free(struct grid *q)
{
    free(q->G);
    free(q->W);
    free(q->column);
    free(q->len);
    free(q->sgw);
    free(q->sw);
    free(q->g0);
    free(q->varied);
}

/* A row of group g that takes part: with ordinals, rows without a valid token do not. */
static int member(const struct vl_adv_in *in, const struct grid *q, int64_t i, int64_t g,
                  int ordinal)
{
    return in->groups.of[i] == g && !(in->left_out && in->left_out[i]) &&
           !(ordinal && q->len[i] == 0);
}

/* Column sums of group g; returns its rows. *longest = the row that is strictly the longest, or -1;
 * *second = the second largest length. */
static int64_t group_sums(const struct vl_adv_in *in, struct grid *q, int64_t g, int ordinal,
                          int64_t *longest, int64_t *second)
{
    int64_t rows = 0, best = -1;

    memset(q->sgw, 0, (size_t)q->L * sizeof(*q->sgw));
    memset(q->sw, 0, (size_t)q->L * sizeof(*q->sw));
    memset(q->varied, 0, (size_t)q->L);
    for (int64_t t = 0; t < q->L; t++)
        q->g0[t] = NAN;
    *longest = *second = -1;
    for (int64_t i = 0; i < q->B; i++) {
        if (!member(in, q, i, g, ordinal))
            continue;
        rows++;
        if (q->len[i] > best) {
            *second = best;
            best = q->len[i];
            *longest = i;
        } else {
            *longest = q->len[i] == best ? -1 : *longest;
            *second = q->len[i] > *second ? q->len[i] : *second;
        }
        for (int64_t j = i * q->L; j < (i + 1) * q->L; j++) {
            int64_t t = q->column[j];
            if (t < 0)
                continue;
            q->varied[t] |= !isnan(q->g0[t]) && q->g0[t] != q->G[j];
            q->g0[t] = q->G[j];
            q->sgw[t] += q->G[j] * q->W[j];
            q->sw[t] += q->W[j];
        }
    }
    return rows;
}

static int token_baseline(const struct vl_adv_in *in, int ordinal, int zero_tail, float *adv,
                          float *ret, struct vl_err *e)
{
    struct grid q;

    if (grid_make(&q, in, ordinal, e))
        goto done;
    for (int64_t j = 0; j < q.B * q.L; j++) {
        adv[j] = q.column[j] >= 0 ? (float)q.G[j] : 0;
        ret[j] = (float)q.G[j];
    }
    for (int64_t g = 0; g < in->groups.n; g++) {
        int64_t longest, second;
        if (group_sums(in, &q, g, ordinal, &longest, &second) < 2)
            continue;
        for (int64_t i = 0; i < q.B; i++) {
            if (!member(in, &q, i, g, ordinal))
                continue;
            for (int64_t j = i * q.L; j < (i + 1) * q.L; j++) {
                int64_t t = q.column[j];
                if (t < 0 || (zero_tail && i == longest && t >= second))
                    continue;
                double b = q.sgw[t] / (q.sw[t] + 1e-8);
                if (!q.varied[t] && q.sw[t] > 1e-3)
                    b = q.g0[t];
                adv[j] = (float)(q.G[j] - b);
            }
        }
    }
done:
    grid_free(&q);
    return e->code;
}

int vl_adv_otb(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
               struct vl_err *e)
{
    return token_baseline(in, 0, o->handle_zero_tail > 0, adv, ret, e);
}

int vl_adv_tir_otb(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
                   struct vl_err *e)
{
    return token_baseline(in, 1, o->handle_zero_tail != 0, adv, ret, e);
}
