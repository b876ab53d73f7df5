/* batch_rows.c - verl-batch: filter, filter-groups, pairs, balance, to-safetensors. See stage_batch.h. */
#include "libverl/run/stage_batch.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "formats/safetensors.h"
#include "libverl/algo/balance.h"
#include "libverl/base/args.h"
#include "libverl/base/jq.h"
#include "libverl/base/publish.h"
#include "libverl/batch/ops.h"
#include "libverl/batch/view.h"
#include "libverl/run/uid.h"

/* ---- filter ---- */

/* A row stays when the filter's first result is neither false nor null. */
static int keeps(struct vl_jq *q, const struct vl_batch *b, int64_t row, uint8_t *keep,
                 struct vl_err *e)
{
    struct vl_buf text = { 0 }, result = { 0 };
    int64_t n = 0;
    int rc = vl_view_row(&text, b, row, NULL, NULL, e);

    if (!rc && vl_jq_run(q, text.s, text.n, 0, &result, &n, e))
        rc = vl_err_prefix(e, "row %" PRId64, row);
    *keep = n > 0 && result.n >= 5 && strncmp(result.s, "false\n", 6) != 0 &&
            strncmp(result.s, "null\n", 5) != 0;
    if (n > 0 && result.n < 5) /* a short result such as 1 or "" is true as well */
        *keep = 1;
    vl_buf_free(&text);
    vl_buf_free(&result);
    return rc;
}

int vl_job_filter(struct vl_job *j, struct vl_err *e)
{
    uint8_t *keep = vl_alloc((size_t)j->in.rows);
    struct vl_jq *q = NULL;
    int rc = vl_jq_open(&q, j->arg[0], NULL, e);

    if (!rc)
        vl_jq_most(q, 2);
    for (int64_t i = 0; i < j->in.rows && !rc; i++)
        rc = keeps(q, &j->in, i, &keep[i], e);
    if (!rc)
        rc = vl_batch_mask(&j->out, &j->in, keep, e);
    if (!rc)
        vl_job_dropped(j, "filter", j->in.rows - j->out.rows);
    vl_jq_free(q);
    free(keep);
    return rc;
}

/* ---- filter-groups ---- */

/* Sums of a row's rewards at valid tokens: what verl-advantage takes for its score. */
static int reward_sums(const struct vl_batch *b, const char *column, const uint8_t *skip,
                       double *value, struct vl_err *e)
{
    int64_t inner[1] = { -1 };
    const int64_t *mask = NULL;
    const float *r;
    char who[128];

    if (!vl_batch_col(b, column))
        return vl_batch_missing(b, "--metric", column, e);
    if (vl_batch_need(b, column, VL_F32, 1, inner, (void *)&r, e) ||
        (vl_batch_col(b, "response_mask") &&
         vl_batch_need_mask(b, "response_mask", inner, &mask, e)))
        return e->code;
    for (int64_t i = 0; i < b->rows; i++) {
        value[i] = 0;
        for (int64_t k = i * inner[0]; k < (i + 1) * inner[0] && !skip[i]; k++)
            value[i] += !mask || mask[k] ? r[k] : 0;
        if (!isfinite(value[i]))
            return vl_fail(e, VL_E_DATA, "%s: the sum of %s is %g; it must be finite",
                           vl_batch_row_name(b, i, who, sizeof who), column, value[i]);
    }
    return 0;
}

/* A column's numbers, or verl's names for the sums over the response. */
static int metric_values(const struct vl_batch *b, const char *name, const uint8_t *skip,
                         double *value, struct vl_err *e)
{
    const struct vl_col *c = vl_batch_col(b, name);

    if (!strcmp(name, "seq_reward"))
        return reward_sums(b, vl_stage_scores(b), skip, value, e);
    if (!strcmp(name, "seq_final_reward"))
        return reward_sums(b, "token_level_rewards", skip, value, e);
    if (c && c->kind == VL_COL_TENSOR && c->ndim > 1)
        return vl_fail(e, VL_E_USAGE, "--metric %s: has more than one value a row", name);
    return vl_row_values(value, b, name, skip, "--metric", e);
}

/* What filter-groups and pairs compare: the rows of one uid that have a score and a valid token. */
struct compared {
    struct vl_groups g;
    double *value; /* (rows) of --metric; 0 where skipped */
    uint8_t *skip; /* (rows) */
};

static void compared_free(struct compared *c)
{
    vl_groups_free(&c->g);
    free(c->value);
    free(c->skip);
}

static int compared_read(struct compared *c, struct vl_job *j, const char *command,
                         const char *such, struct vl_err *e)
{
    const struct vl_batch *b = &j->in;
    int64_t out = 0;

    *c = (struct compared){ .value = vl_alloc((size_t)(b->rows + 1) * sizeof *c->value),
                            .skip = vl_alloc((size_t)b->rows + 1) };
    if (!j->o->metric)
        return vl_fail(e, VL_E_USAGE, "%s: name the values with --metric, such as %s", command,
                       such);
    if (vl_rows_left_out(c->skip, b, e) || metric_values(b, j->o->metric, c->skip, c->value, e) ||
        vl_uid_groups(&c->g, b, command, e))
        return e->code;
    for (int64_t i = 0; i < b->rows; i++)
        out += c->skip[i];
    if (out)
        vl_info(&j->x->log, "%s: %" PRId64 " rows without a score or a valid token: not compared",
                command, out);
    return 0;
}

struct group {
    int64_t rows, valued;
    double first; /* value of the first row that has one */
    int differs, kept;
};

/* verl: a prompt stays when its samples' values are not all equal, or when it has one sample. */
static int64_t keep_groups(struct group *g, int64_t n, int64_t target)
{
    int64_t kept = 0;

    for (int64_t k = 0; k < n; k++) {
        g[k].kept =
            (g[k].differs || (g[k].rows == 1 && g[k].valued == 1)) && (!target || kept < target);
        kept += g[k].kept;
    }
    return kept;
}

int vl_job_filter_groups(struct vl_job *j, struct vl_err *e)
{
    const struct vl_batch *b = &j->in;
    struct group *group = NULL;
    struct compared c;
    uint8_t *keep = vl_alloc((size_t)b->rows);
    int64_t kept = 0;
    int rc = compared_read(&c, j, "filter-groups", "acc", e);

    if (!rc) {
        group = vl_alloc((size_t)c.g.n * sizeof *group);
        for (int64_t i = 0; i < b->rows; i++) {
            struct group *at = &group[c.g.of[i]];

            at->rows++;
            if (c.skip[i])
                continue;
            at->first = at->valued++ ? at->first : c.value[i];
            at->differs |= c.value[i] != at->first;
        }
        kept = keep_groups(group, c.g.n, j->o->target);
        for (int64_t i = 0; i < b->rows; i++)
            keep[i] = (uint8_t)group[c.g.of[i]].kept;
        rc = vl_batch_mask(&j->out, b, keep, e);
    }
    if (!rc) {
        vl_job_dropped(j, "filter_groups", b->rows - j->out.rows);
        vl_meta_metric(&j->out, "filter_groups/kept_prompts", (double)kept);
        vl_info(&j->x->log, "filter-groups: %" PRId64 " of %" PRId64 " prompts kept", kept, c.g.n);
        rc = vl_job_write(j, &j->out, j->x->common->output, e);
        j->written = 1;
    }
    if (!rc && kept < j->o->target)
        rc = vl_fail(e, 3, "filter-groups: %" PRId64 " prompts kept, fewer than --target %" PRId64,
                     kept, j->o->target);
    compared_free(&c);
    free(group);
    free(keep);
    return rc;
}

/* ---- pairs ---- */

/* Best and worst row of each group into row[2 g], row[2 g + 1], the first of equals; -1, -1 for a
 * group whose values are all equal. */
static void best_and_worst(const struct compared *c, int64_t rows, int64_t *row)
{
    const double *value = c->value;

    for (int64_t k = 0; k < 2 * c->g.n; k++)
        row[k] = -1;
    for (int64_t i = 0; i < rows; i++) {
        int64_t *best = &row[2 * c->g.of[i]], *worst = best + 1;

        if (c->skip[i])
            continue;
        if (*best < 0 || value[i] > value[*best])
            *best = i;
        if (*worst < 0 || value[i] < value[*worst])
            *worst = i;
    }
    for (int64_t k = 0; k < c->g.n; k++)
        if (row[2 * k] == row[2 * k + 1] || !(value[row[2 * k]] > value[row[2 * k + 1]]))
            row[2 * k] = row[2 * k + 1] = -1;
}

int vl_job_pairs(struct vl_job *j, struct vl_err *e)
{
    const struct vl_batch *b = &j->in;
    int64_t *row = NULL, pairs = 0;
    struct compared c;
    struct vl_col *col;
    int rc = compared_read(&c, j, "pairs", "score", e);

    if (!rc) {
        row = vl_alloc((size_t)(2 * c.g.n) * sizeof *row);
        best_and_worst(&c, b->rows, row);
        for (int64_t k = 0; k < c.g.n; k++)
            if (row[2 * k] >= 0) {
                row[2 * pairs] = row[2 * k];
                row[2 * pairs + 1] = row[2 * k + 1];
                pairs++;
            }
        rc = vl_batch_take(&j->out, b, row, 2 * pairs, e) ||
             vl_batch_add_tensor(&j->out, "preference", VL_I64, 0, NULL, &col, e);
    }
    if (!rc) {
        for (int64_t k = 0; k < 2 * pairs; k++)
            ((int64_t *)col->data)[k] = k % 2 == 0;
        vl_job_dropped(j, "pairs", b->rows - j->out.rows);
        vl_meta_metric(&j->out, "pairs/pairs", (double)pairs);
        vl_meta_metric(&j->out, "pairs/groups_all_equal", (double)(c.g.n - pairs));
        vl_info(&j->x->log, "pairs: %" PRId64 " of %" PRId64 " prompts make a pair%s%s", pairs,
                c.g.n, pairs < c.g.n ? "; the others' samples are equal in " : "",
                pairs < c.g.n ? j->o->metric : "");
    }
    compared_free(&c);
    free(row);
    return rc;
}

/* ---- balance ---- */

int vl_job_balance(struct vl_job *j, struct vl_err *e)
{
    int64_t inner[1] = { -1 }, dp, *len, *order;
    struct vl_metrics m = { 0 };
    const int64_t *mask;
    int rc;

    if (!vl_arg_i64(j->arg[0], strlen(j->arg[0]), &dp) || dp < 1)
        return vl_fail(e, VL_E_USAGE, "balance: '%s' is not a number of workers", j->arg[0]);
    if (vl_batch_need(&j->in, "attention_mask", VL_I64, 1, inner, (void *)&mask, e))
        return e->code;
    len = vl_alloc((size_t)j->in.rows * sizeof *len);
    order = vl_alloc((size_t)j->in.rows * sizeof *order);
    for (int64_t i = 0; i < j->in.rows; i++)
        for (int64_t k = 0; k < inner[0]; k++)
            len[i] += mask[i * inner[0] + k] != 0;
    rc = vl_balance_order(order, len, j->in.rows, dp, &m, e);
    if (!rc)
        rc = vl_batch_take(&j->out, &j->in, order, j->in.rows, e);
    for (size_t i = 0; !rc && i < m.n; i++)
        vl_meta_metric(&j->out, m.m[i].name, m.m[i].value);
    vl_metrics_free(&m);
    free(len);
    free(order);
    return rc;
}
