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

/* A column's numbers, or verl's names for the sums over the response. */
static int metric_values(const struct vl_batch *b, const char *name, double *value,
                         struct vl_err *e)
{
    const char *column = !strcmp(name, "seq_reward")         ? vl_stage_scores(b)
                         : !strcmp(name, "seq_final_reward") ? "token_level_rewards"
                                                             : name;
    const struct vl_col *c = vl_batch_col(b, column);

    if (c && column == name && c->kind == VL_COL_TENSOR && c->ndim > 1)
        return vl_fail(e, VL_E_USAGE, "--metric %s: has more than one value a row", name);
    return vl_row_values(value, b, column, NULL, "--metric", e);
}

/* The values of --metric, and the groups of rows of one uid. Free the groups. */
static int values_by_uid(struct vl_job *j, const char *command, const char *such, double *value,
                         struct vl_groups *g, struct vl_err *e)
{
    if (!j->o->metric)
        return vl_fail(e, VL_E_USAGE, "%s: name the values with --metric, such as %s", command,
                       such);
    return metric_values(&j->in, j->o->metric, value, e) || vl_uid_groups(g, &j->in, command, e);
}

struct group {
    int64_t rows;
    double first; /* value of the first row */
    int differs, kept;
};

/* verl: a prompt stays when its samples' values are not all equal, or when it has one sample. */
static int64_t keep_groups(struct group *g, int64_t n, int64_t target)
{
    int64_t kept = 0;

    for (int64_t k = 0; k < n; k++) {
        g[k].kept = (g[k].differs || g[k].rows == 1) && (!target || kept < target);
        kept += g[k].kept;
    }
    return kept;
}

int vl_job_filter_groups(struct vl_job *j, struct vl_err *e)
{
    const struct vl_batch *b = &j->in;
    double *value = vl_alloc((size_t)b->rows * sizeof *value);
    struct vl_groups g = { 0 };
    struct group *group = NULL;
    uint8_t *keep = vl_alloc((size_t)b->rows);
    int64_t kept = 0;
    int rc = values_by_uid(j, "filter-groups", "acc", value, &g, e);

    if (!rc) {
        group = vl_alloc((size_t)g.n * sizeof *group);
        for (int64_t i = 0; i < b->rows; i++) {
            struct group *at = &group[g.of[i]];

            at->first = at->rows++ ? at->first : value[i];
            at->differs |= value[i] != at->first;
        }
        kept = keep_groups(group, g.n, j->o->target);
        for (int64_t i = 0; i < b->rows; i++)
            keep[i] = (uint8_t)group[g.of[i]].kept;
        rc = vl_batch_mask(&j->out, b, keep, e);
    }
    if (!rc) {
        vl_job_dropped(j, "filter_groups", b->rows - j->out.rows);
        vl_meta_metric(&j->out, "filter_groups/kept_prompts", (double)kept);
        vl_info(&j->x->log, "filter-groups: %" PRId64 " of %" PRId64 " prompts kept", kept, g.n);
        rc = vl_job_write(j, &j->out, j->x->common->output, e);
        j->written = 1;
    }
    if (!rc && kept < j->o->target)
        rc = vl_fail(e, 3, "filter-groups: %" PRId64 " prompts kept, fewer than --target %" PRId64,
                     kept, j->o->target);
    free(value);
    vl_groups_free(&g);
    free(group);
    free(keep);
    return rc;
}

/* ---- pairs ---- */

/* Best and worst row of each group into row[2 g], row[2 g + 1], the first of equals; -1, -1 for a
 * group whose values are all equal. */
static void best_and_worst(const double *value, const struct vl_groups *g, int64_t rows,
                           int64_t *row)
{
    for (int64_t k = 0; k < 2 * g->n; k++)
        row[k] = -1;
    for (int64_t i = 0; i < rows; i++) {
        int64_t *best = &row[2 * g->of[i]], *worst = best + 1;

        if (*best < 0 || value[i] > value[*best])
            *best = i;
        if (*worst < 0 || value[i] < value[*worst])
            *worst = i;
    }
    for (int64_t k = 0; k < g->n; k++)
        if (row[2 * k] == row[2 * k + 1] || !(value[row[2 * k]] > value[row[2 * k + 1]]))
            row[2 * k] = row[2 * k + 1] = -1;
}

int vl_job_pairs(struct vl_job *j, struct vl_err *e)
{
    const struct vl_batch *b = &j->in;
    double *value = vl_alloc((size_t)b->rows * sizeof *value);
    struct vl_groups g = { 0 };
    int64_t *row = NULL, pairs = 0;
    struct vl_col *c;
    int rc = values_by_uid(j, "pairs", "score", value, &g, e);

    if (!rc) {
        row = vl_alloc((size_t)(2 * g.n) * sizeof *row);
        best_and_worst(value, &g, b->rows, row);
        for (int64_t k = 0; k < g.n; k++)
            if (row[2 * k] >= 0) {
                row[2 * pairs] = row[2 * k];
                row[2 * pairs + 1] = row[2 * k + 1];
                pairs++;
            }
        rc = vl_batch_take(&j->out, b, row, 2 * pairs, e) ||
             vl_batch_add_tensor(&j->out, "preference", VL_I64, 0, NULL, &c, e);
    }
    if (!rc) {
        for (int64_t k = 0; k < 2 * pairs; k++)
            ((int64_t *)c->data)[k] = k % 2 == 0;
        vl_job_dropped(j, "pairs", b->rows - j->out.rows);
        vl_meta_metric(&j->out, "pairs/pairs", (double)pairs);
        vl_meta_metric(&j->out, "pairs/groups_all_equal", (double)(g.n - pairs));
        vl_info(&j->x->log, "pairs: %" PRId64 " of %" PRId64 " prompts make a pair%s%s", pairs, g.n,
                pairs < g.n ? "; the others' samples are equal in " : "",
                pairs < g.n ? j->o->metric : "");
    }
    free(value);
    vl_groups_free(&g);
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
