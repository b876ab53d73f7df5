/* batch_rows.c - verl-batch: filter, filter-groups, balance, to-safetensors. See stage_batch.h. */
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

/* value[i] of a row: a scalar column, a JSON column of numbers, or verl's sums over the response. */
static int metric_values(const struct vl_batch *b, const char *name, double *value,
                         struct vl_err *e)
{
    const char *column = !strcmp(name, "seq_reward")         ? "token_level_scores"
                         : !strcmp(name, "seq_final_reward") ? "token_level_rewards"
                                                             : name;
    const struct vl_col *c = vl_batch_col(b, column);

    if (!c)
        return vl_batch_missing(b, "--metric", column, e);
    if (column == name && c->kind == VL_COL_TENSOR && c->ndim > 1)
        return vl_fail(e, VL_E_USAGE, "--metric %s: has more than one value a row", name);
    for (int64_t i = 0; i < b->rows; i++) {
        struct vl_buf t = { 0 };
        struct vl_json v = { 0 };
        uint32_t k = 0, n = 1;
        int rc = vl_view_value(&t, c, i, NULL, e) || vl_json_parse(&v, t.s, t.n, column, e), b1;

        if (!rc && vl_json_is(&v, 0, VL_JSON_ARRAY)) {
            n = v.node[0].count;
            k = 1;
        }
        value[i] = 0;
        for (; !rc && n; n--, k = v.node[k].next) {
            double x = 0;

            if (vl_json_bool(&v, k, &b1))
                x = b1;
            else if (!vl_json_f64(&v, k, &x) || !isfinite(x))
                rc = vl_fail(e, VL_E_DATA, "row %" PRId64 ": %s is no finite number", i, column);
            value[i] += x;
        }
        vl_json_free(&v);
        vl_buf_free(&t);
        if (rc)
            return e->code;
    }
    return 0;
}

struct group {
    int64_t first, rows; /* first row; how many */
    int differs, kept;
};

/* group[of[i]] is row i's, by uid, in order of appearance; returns their number. */
static int64_t find_groups(const struct vl_col *uid, int64_t rows, const double *value,
                           struct group *group, int64_t *of)
{
    uint64_t size = 16, mask;
    int64_t *slot, n = 0;

    while (size < 2 * (uint64_t)rows)
        size *= 2;
    mask = size - 1;
    slot = vl_alloc(size * sizeof *slot); /* group + 1 */
    for (int64_t i = 0; i < rows; i++) {
        size_t len, m;
        const char *u = vl_col_json(uid, i, &len), *w;
        uint64_t at = 1469598103934665603u;

        for (size_t k = 0; k < len; k++)
            at = (at ^ (uint8_t)u[k]) * 1099511628211u;
        for (at &= mask; slot[at]; at = (at + 1) & mask) {
            w = vl_col_json(uid, group[slot[at] - 1].first, &m);
            if (m == len && memcmp(u, w, len) == 0)
                break;
        }
        if (!slot[at]) {
            group[n] = (struct group){ .first = i };
            slot[at] = ++n;
        }
        of[i] = slot[at] - 1;
        group[of[i]].rows++;
        group[of[i]].differs |= value[i] != value[group[of[i]].first];
    }
    free(slot);
    return n;
}

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
    const struct vl_col *uid = vl_batch_col(b, "uid");
    size_t rows = (size_t)b->rows;
    double *value = vl_alloc(rows * sizeof *value);
    struct group *group = vl_alloc(rows * sizeof *group);
    int64_t *of = vl_alloc(rows * sizeof *of), n = 0, kept = 0;
    uint8_t *keep = vl_alloc(rows);
    int rc = 0;

    if (!j->o->metric)
        rc = vl_fail(e, VL_E_USAGE, "filter-groups: name the values with --metric, such as acc");
    else if (!uid || uid->kind != VL_COL_JSON)
        rc = vl_batch_missing(b, "filter-groups", "uid", e);
    else
        rc = metric_values(b, j->o->metric, value, e);
    if (!rc) {
        n = find_groups(uid, b->rows, value, group, of);
        kept = keep_groups(group, n, j->o->target);
        for (int64_t i = 0; i < b->rows; i++)
            keep[i] = (uint8_t)group[of[i]].kept;
        rc = vl_batch_mask(&j->out, b, keep, e);
    }
    if (!rc) {
        vl_job_dropped(j, "filter_groups", b->rows - j->out.rows);
        vl_meta_metric(&j->out, "filter_groups/kept_prompts", (double)kept);
        vl_info(&j->x->log, "filter-groups: %" PRId64 " of %" PRId64 " prompts kept", kept, n);
        rc = vl_job_write(j, &j->out, j->x->common->output, e);
        j->written = 1;
    }
    if (!rc && kept < j->o->target)
        rc = vl_fail(e, 3, "filter-groups: %" PRId64 " prompts kept, fewer than --target %" PRId64,
                     kept, j->o->target);
    free(value);
    free(group);
    free(of);
    free(keep);
    return rc;
}

/* ---- balance ---- */

int vl_job_balance(struct vl_job *j, struct vl_err *e)
{
    int64_t inner[1] = { -1 }, dp, *len, *order;
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
    rc = vl_balance_order(order, len, j->in.rows, dp, NULL, e);
    if (!rc)
        rc = vl_batch_take(&j->out, &j->in, order, j->in.rows, e);
    free(len);
    free(order);
    return rc;
}
