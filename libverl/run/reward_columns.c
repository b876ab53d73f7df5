/* reward_columns.c - columns and metrics of scored rows. See reward_columns.h. */
#include "libverl/run/reward_columns.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/fields.h"
#include "formats/json.h"

void vl_reward_result_free(struct vl_reward_result *r)
{
    for (int64_t i = 0; i < r->rows; i++)
        vl_score_free(&r->s[i]);
    vl_reward_extras_free(&r->extras);
    free(r->s);
    free(r->adds);
    *r = (struct vl_reward_result){ 0 };
}

/* ---- ranks to rank 0 ---- */

static void pack_text(struct vl_buf *b, const char *s)
{
    int64_t n = s ? (int64_t)strlen(s) : -1;

    vl_buf_add(b, &n, sizeof n);
    if (s)
        vl_buf_add(b, s, (size_t)n);
}

static const char *unpack(const char *p, void *to, size_t n)
{
    memcpy(to, p, n);
    return p + n;
}

static const char *unpack_text(const char *p, char **s)
{
    int64_t n;

    p = unpack(p, &n, sizeof n);
    *s = n < 0 ? NULL : vl_strndup(p, (size_t)n);
    return p + (n < 0 ? 0 : n);
}

static void pack(struct vl_buf *b, const struct vl_score *s, int64_t count, int64_t failed)
{
    vl_buf_add(b, &count, sizeof count);
    vl_buf_add(b, &failed, sizeof failed);
    for (int64_t i = 0; i < count; i++) {
        vl_buf_add(b, &s[i].score, sizeof s[i].score);
        vl_buf_add(b, &s[i].acc, sizeof s[i].acc);
        vl_buf_add(b, &s[i].extra_reward, sizeof s[i].extra_reward);
        pack_text(b, s[i].extra);
        pack_text(b, s[i].why);
    }
}

int vl_reward_collect(struct vl_ctx *x, const struct vl_reward_rows *rows, struct vl_score *s,
                      int64_t count, int64_t failed, struct vl_reward_result *res, struct vl_err *e)
{
    size_t *sizes = vl_alloc((size_t)x->comm.size * sizeof *sizes);
    struct vl_buf mine = { 0 };
    void *all = NULL;
    const char *p;
    int64_t at = 0;

    pack(&mine, s, count, failed);
    if (vl_comm_gather(&x->comm, mine.s, mine.n, &all, sizes, e) || x->comm.rank)
        goto done;
    if (vl_try_alloc(&res->s, (size_t)rows->b->rows, sizeof *res->s, "scores", e))
        goto done;
    res->rows = rows->b->rows;
    p = all;
    for (int r = 0; r < x->comm.size; r++) {
        p = unpack(p, &count, sizeof count);
        p = unpack(p, &failed, sizeof failed);
        res->failed += failed;
        for (int64_t k = 0; k < count; k++, at++) {
            p = unpack(p, &res->s[at].score, sizeof(double));
            p = unpack(p, &res->s[at].acc, sizeof(double));
            p = unpack(p, &res->s[at].extra_reward, sizeof(double));
            p = unpack_text(p, &res->s[at].extra);
            p = unpack_text(p, &res->s[at].why);
        }
    }
done:
    free(all);
    free(sizes);
    vl_buf_free(&mine);
    return vl_comm_agree(&x->comm, e);
}

/* ---- columns ---- */

static void add_errors(struct vl_batch *b, const struct vl_reward_result *r)
{
    int64_t *offsets = vl_alloc((size_t)(r->rows + 1) * sizeof *offsets);
    struct vl_buf text = { 0 };

    for (int64_t i = 0; i < r->rows; i++) {
        if (r->s[i].why)
            vl_json_put_str(&text, r->s[i].why, strlen(r->s[i].why));
        else
            vl_buf_str(&text, "null");
        offsets[i + 1] = (int64_t)text.n;
    }
    vl_batch_add_json(b, "reward_error", vl_buf_detach(&text), offsets);
}

static int add_scores(struct vl_batch *b, const struct vl_reward_rows *rows,
                      const struct vl_reward_result *r, struct vl_err *e)
{
    int64_t inner[1] = { rows->R }, last;
    struct vl_col *tokens, *score, *acc;
    float *t, *s, *a;

    /* a pointer to a column holds until the next one is added */
    if (vl_batch_add_tensor(b, "token_level_scores", VL_F32, 1, inner, &tokens, e))
        return e->code;
    t = tokens->data;
    if (vl_batch_add_tensor(b, "score", VL_F32, 0, NULL, &score, e))
        return e->code;
    s = score->data;
    if (vl_batch_add_tensor(b, "acc", VL_F32, 0, NULL, &acc, e))
        return e->code;
    a = acc->data;
    for (int64_t i = 0; i < r->rows; i++) {
        int scored = !r->s[i].why;

        s[i] = scored ? (float)r->s[i].score : NAN;
        a[i] = scored ? (float)r->s[i].acc : NAN;
        vl_reward_length(rows, i, &last);
        if (scored && last >= 0)
            t[i * rows->R + last] = (float)(r->s[i].score + r->s[i].extra_reward);
    }
    return 0;
}

/* ---- metrics ---- */

struct tally {
    char *source; /* NULL: all rows */
    int64_t rows, invalid, truncated;
    double score, acc;
    double *sum; /* of each extra column of numbers, over *n rows */
    int64_t *n;
};

static void tally_open(struct tally *t, const char *source, size_t extras)
{
    *t = (struct tally){ .source = vl_strdup(source) };
    t->sum = vl_alloc(extras * sizeof *t->sum);
    t->n = vl_alloc(extras * sizeof *t->n);
}

static void tally_close(struct tally *t)
{
    free(t->source);
    free(t->sum);
    free(t->n);
}

static void count(struct tally *t, const struct vl_reward_result *r, int64_t i, int truncated)
{
    const struct vl_score *s = &r->s[i];

    t->rows++;
    t->truncated += truncated;
    if (s->why) {
        t->invalid++;
    } else {
        t->score += s->score;
        t->acc += s->acc;
    }
    for (size_t k = 0; k < r->extras.n; k++) {
        const double *x = r->extras.e[k].number;

        if (x && !isnan(x[i])) {
            t->sum[k] += x[i];
            t->n[k]++;
        }
    }
}

static void metric(struct vl_batch *b, const struct tally *t, const char *name, const char *suffix,
                   double x)
{
    char *full = vl_asprintf("reward/%s%s%s%s", t->source ? t->source : "", t->source ? "/" : "",
                             name, suffix);

    vl_meta_metric(b, full, x);
    free(full);
}

static void put_tally(struct vl_batch *b, const struct tally *t, const struct vl_reward_extras *x)
{
    double scored = (double)(t->rows - t->invalid);

    if (scored > 0) {
        metric(b, t, "score/mean", "", t->score / scored);
        metric(b, t, "acc/mean", "", t->acc / scored);
    }
    metric(b, t, "rows", "", (double)t->rows);
    metric(b, t, "invalid", "", (double)t->invalid);
    metric(b, t, "truncated", "", (double)t->truncated);
    for (size_t k = 0; k < x->n; k++)
        if (x->e[k].number && t->n[k])
            metric(b, t, x->e[k].name, "/mean", t->sum[k] / (double)t->n[k]);
}

/* Overall and per data source, in row order: the sums do not depend on ranks. */
static void add_metrics(struct vl_ctx *x, struct vl_batch *b, const struct vl_reward_rows *rows,
                        const struct vl_reward_result *r)
{
    struct tally all, *t = NULL;
    struct vl_buf source = { 0 };
    size_t n = 0, k = 0;

    tally_open(&all, NULL, r->extras.n);
    for (int64_t i = 0; i < r->rows; i++) {
        int cut = vl_reward_truncated(rows, i);

        count(&all, r, i, cut);
        vl_buf_reset(&source);
        vl_reward_source(rows, i, &source);
        if (!source.n)
            continue;
        if (!n || strcmp(t[k].source, source.s)) /* most rows have the source of the one before */
            for (k = 0; k < n && strcmp(t[k].source, source.s); k++)
                ;
        if (k == n) {
            t = vl_realloc(t, ++n * sizeof *t);
            tally_open(&t[k], source.s, r->extras.n);
        }
        count(&t[k], r, i, cut);
    }
    put_tally(b, &all, &r->extras);
    vl_meta_metric(b, "reward/failed", (double)r->failed);
    for (k = 0; k < n; k++) {
        put_tally(b, &t[k], &r->extras);
        tally_close(&t[k]);
    }
    free(t);
    vl_buf_free(&source);
    if (all.rows == all.invalid)
        vl_warn(&x->log, "no row was scored: all %" PRId64 " are without a score", all.rows);
    else
        vl_info(&x->log,
                "%" PRId64 " rows: mean score %.4g, acc %.4g; %" PRId64 " without a score, %" PRId64
                " scorer failures, %" PRId64 " cut at the length limit",
                all.rows, all.score / (double)(all.rows - all.invalid),
                all.acc / (double)(all.rows - all.invalid), all.invalid, r->failed, all.truncated);
    tally_close(&all);
}

/* ---- together ---- */

static void list_adds(struct vl_batch *b, struct vl_reward_result *r)
{
    static const char *const fixed[] = { "token_level_scores", "score", "acc", "reward_error" };
    size_t n = sizeof fixed / sizeof *fixed;
    struct vl_buf keys = { 0 };

    r->adds = vl_alloc((n + r->extras.n + 2) * sizeof *r->adds);
    memcpy(r->adds, fixed, sizeof fixed);
    vl_buf_str(&keys, "[\"acc\"");
    for (size_t k = 0; k < r->extras.n; k++) {
        r->adds[n + k] = r->extras.e[k].name;
        vl_buf_ch(&keys, ',');
        vl_json_put_str(&keys, r->extras.e[k].name, strlen(r->extras.e[k].name));
    }
    if (r->rm)
        r->adds[n + r->extras.n] = "rm_scores";
    vl_buf_ch(&keys, ']');
    vl_meta_set(b, "reward_extra_keys", keys.s);
    vl_buf_free(&keys);
}

/* No member may stand in for a column of the batch, of this stage or of a later one. */
static int keys_fit(struct vl_batch *b, const struct vl_reward_result *r, struct vl_err *e)
{
    for (size_t k = 0; k < r->extras.n && !e->code; k++) {
        const struct vl_field *f = vl_field_find(r->extras.e[k].name);

        if (!vl_col_name_ok(r->extras.e[k].name))
            vl_fail(e, VL_E_DATA,
                    "a scorer's answer has the member '%.80s', but no column can be called so: "
                    "rename it",
                    r->extras.e[k].name);
        else if (vl_batch_col(b, r->extras.e[k].name) || (f && !f->json))
            vl_fail(e, VL_E_DATA,
                    "a scorer's answer has the member '%s', which would replace the column of that "
                    "name: rename it",
                    r->extras.e[k].name);
    }
    return e->code;
}

int vl_reward_store(struct vl_ctx *x, struct vl_batch *b, const struct vl_reward_rows *rows,
                    struct vl_reward_result *res, struct vl_err *e)
{
    if (vl_reward_extras_read(&res->extras, res->s, res->rows, e) || add_scores(b, rows, res, e))
        return e->code;
    add_errors(b, res);
    if (keys_fit(b, res, e))
        return e->code;
    for (size_t k = 0; k < res->extras.n; k++) { /* the column takes them over */
        struct vl_reward_extra *extra = &res->extras.e[k];

        vl_batch_add_json(b, extra->name, vl_buf_detach(&extra->text), extra->offsets);
        extra->offsets = NULL;
    }
    list_adds(b, res);
    add_metrics(x, b, rows, res);
    return 0;
}

int vl_reward_from_model(struct vl_ctx *x, struct vl_batch *b, struct vl_reward_result *res,
                         const char *source_key, struct vl_err *e)
{
    struct vl_reward_rows rows = { 0 };
    const float *rm;
    int64_t last;

    if (vl_reward_rows_open(&rows, b, source_key, e) ||
        vl_batch_need(b, "rm_scores", VL_F32, 1, &rows.R, &rm, e) ||
        vl_try_alloc(&res->s, (size_t)b->rows, sizeof *res->s, "scores", e))
        return e->code;
    vl_info(&x->log,
            "scores are the column rm_scores; give --scorer, --jq or --command for others");
    res->rows = b->rows;
    for (int64_t i = 0; i < b->rows; i++) {
        vl_reward_length(&rows, i, &last);
        if (last < 0)
            vl_score_fail(&res->s[i], "the response has no valid token");
        else if (isnan(rm[i * rows.R + last]))
            vl_score_fail(&res->s[i], "rm_scores is NaN: the reward model gave no score");
        else if (!isfinite(rm[i * rows.R + last]))
            vl_fail(e, VL_E_DATA,
                    "row %" PRId64 ": rm_scores is not finite at the last valid token", i);
        else
            res->s[i].score = res->s[i].acc = (double)rm[i * rows.R + last];
    }
    return e->code ? e->code : vl_reward_store(x, b, &rows, res, e);
}

void vl_reward_drop_old(struct vl_batch *b)
{
    const char *keys = vl_meta_get(b, "reward_extra_keys");
    struct vl_err ignored = { 0 };
    struct vl_json j = { 0 };
    uint32_t c = 1;

    if (keys && !vl_json_parse(&j, keys, strlen(keys), "reward_extra_keys", &ignored) &&
        vl_json_is(&j, 0, VL_JSON_ARRAY))
        for (uint32_t k = 0; k < j.node[0].count; k++, c = j.node[c].next) {
            char *name = vl_json_strdup(&j, c);

            if (name && strcmp(name, "acc"))
                vl_batch_drop(b, name);
            free(name);
        }
    vl_json_free(&j);
}
