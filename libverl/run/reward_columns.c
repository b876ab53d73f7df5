/* reward_columns.c - columns and metrics of scored rows. See reward_columns.h. */
#include "libverl/run/reward_columns.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/fields.h"
#include "formats/json.h"

enum { KEYS_MAX = 256 };

void vl_reward_result_free(struct vl_reward_result *r)
{
    for (int64_t i = 0; i < r->rows; i++)
        vl_score_free(&r->s[i]);
    for (size_t k = 0; k < r->nkeys; k++)
        free(r->keys[k]);
    free(r->keys);
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

static int key_index(struct vl_reward_result *r, const char *key)
{
    for (size_t k = 0; k < r->nkeys; k++)
        if (!strcmp(r->keys[k], key))
            return (int)k;
    return -1;
}

/* The union of the rows' further members, in the order they first appear. */
static int find_keys(struct vl_reward_result *r, struct vl_err *e)
{
    r->keys = vl_alloc(KEYS_MAX * sizeof *r->keys);
    for (int64_t i = 0; i < r->rows && !e->code; i++) {
        struct vl_json j = { 0 };
        int64_t c = 1;

        if (!r->s[i].extra || vl_json_parse(&j, r->s[i].extra, strlen(r->s[i].extra), "answer", e))
            continue;
        for (uint32_t k = 0; k < j.node[0].count && !e->code; k++, c = j.node[c + 1].next) {
            char *key = vl_json_name(&j, c);

            if (key_index(r, key) >= 0) {
                free(key);
            } else if (r->nkeys == KEYS_MAX) {
                free(key);
                vl_fail(e, VL_E_DATA,
                        "row %" PRId64
                        ": the scorers' answers have more than %d different members; "
                        "each becomes a column, so put lists of results into one member",
                        i, KEYS_MAX);
            } else {
                r->keys[r->nkeys++] = key;
            }
        }
        vl_json_free(&j);
    }
    return e->code;
}

static void add_extra(struct vl_batch *b, const struct vl_reward_result *r, const char *key)
{
    int64_t *offsets = vl_alloc((size_t)(r->rows + 1) * sizeof *offsets);
    struct vl_buf text = { 0 };

    for (int64_t i = 0; i < r->rows; i++) {
        struct vl_json j = { 0 };
        struct vl_err ignored = { 0 };
        int64_t v = -1;

        if (r->s[i].extra &&
            !vl_json_parse(&j, r->s[i].extra, strlen(r->s[i].extra), "answer", &ignored))
            v = vl_json_get(&j, 0, key);
        if (v >= 0)
            vl_json_raw(&j, v, &text);
        else
            vl_buf_str(&text, "null");
        offsets[i + 1] = (int64_t)text.n;
        vl_json_free(&j);
    }
    vl_batch_add_json(b, key, vl_buf_detach(&text), offsets);
}

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
    int32_t *ids = vl_alloc((size_t)rows->R * sizeof *ids);
    int64_t inner[1] = { rows->R }, last;
    struct vl_col *tokens, *score, *acc;
    float *t, *s, *a;

    /* a pointer to a column holds until the next one is added */
    if (vl_batch_add_tensor(b, "token_level_scores", VL_F32, 1, inner, &tokens, e))
        goto done;
    t = tokens->data;
    if (vl_batch_add_tensor(b, "score", VL_F32, 0, NULL, &score, e))
        goto done;
    s = score->data;
    if (vl_batch_add_tensor(b, "acc", VL_F32, 0, NULL, &acc, e))
        goto done;
    a = acc->data;
    for (int64_t i = 0; i < r->rows; i++) {
        int scored = !r->s[i].why;

        s[i] = scored ? (float)r->s[i].score : NAN;
        a[i] = scored ? (float)r->s[i].acc : NAN;
        vl_reward_ids(rows, i, ids, &last);
        if (scored && last >= 0)
            t[i * rows->R + last] = (float)(r->s[i].score + r->s[i].extra_reward);
    }
done:
    free(ids);
    return e->code;
}

/* ---- metrics ---- */

struct tally {
    char *source; /* NULL: all rows */
    int64_t rows, invalid, truncated;
    double score, acc;
};

static void count(struct tally *t, const struct vl_score *s, int truncated)
{
    t->rows++;
    t->truncated += truncated;
    if (s->why) {
        t->invalid++;
    } else {
        t->score += s->score;
        t->acc += s->acc;
    }
}

static void put_tally(struct vl_batch *b, const struct tally *t)
{
    double scored = (double)(t->rows - t->invalid);
    const struct {
        const char *name;
        double x;
    } m[] = {
        { "score/mean", t->score / scored },   { "acc/mean", t->acc / scored },
        { "rows", (double)t->rows },           { "invalid", (double)t->invalid },
        { "truncated", (double)t->truncated },
    };

    for (size_t k = 0; k < sizeof m / sizeof *m; k++) {
        char *name = vl_asprintf("reward/%s%s%s", t->source ? t->source : "", t->source ? "/" : "",
                                 m[k].name);

        if (k >= 2 || scored > 0)
            vl_meta_metric(b, name, m[k].x);
        free(name);
    }
}

/* Overall and per data source, in row order: the sums do not depend on ranks. */
static void add_metrics(struct vl_ctx *x, struct vl_batch *b, const struct vl_reward_rows *rows,
                        const struct vl_reward_result *r)
{
    struct tally all = { 0 }, *t = NULL;
    struct vl_buf source = { 0 };
    size_t n = 0, k;

    for (int64_t i = 0; i < r->rows; i++) {
        int cut = vl_reward_truncated(rows, i);

        count(&all, &r->s[i], cut);
        vl_buf_reset(&source);
        vl_reward_source(rows, i, &source);
        if (!source.n)
            continue;
        for (k = 0; k < n && strcmp(t[k].source, source.s); k++)
            ;
        if (k == n) {
            t = vl_realloc(t, ++n * sizeof *t);
            t[k] = (struct tally){ .source = vl_strdup(source.s) };
        }
        count(&t[k], &r->s[i], cut);
    }
    put_tally(b, &all);
    vl_meta_metric(b, "reward/failed", (double)r->failed);
    for (k = 0; k < n; k++) {
        put_tally(b, &t[k]);
        free(t[k].source);
    }
    free(t);
    vl_buf_free(&source);
    vl_info(&x->log,
            "%" PRId64 " rows: mean score %.4g, acc %.4g; %" PRId64 " without a score, %" PRId64
            " scorer failures, %" PRId64 " cut at the length limit",
            all.rows, all.score / (double)(all.rows - all.invalid),
            all.acc / (double)(all.rows - all.invalid), all.invalid, r->failed, all.truncated);
}

/* ---- together ---- */

static void list_adds(struct vl_batch *b, struct vl_reward_result *r)
{
    static const char *const fixed[] = { "token_level_scores", "score", "acc", "reward_error" };
    size_t n = sizeof fixed / sizeof *fixed;
    struct vl_buf keys = { 0 };

    r->adds = vl_alloc((n + r->nkeys + 2) * sizeof *r->adds);
    memcpy(r->adds, fixed, sizeof fixed);
    vl_buf_str(&keys, "[\"acc\"");
    for (size_t k = 0; k < r->nkeys; k++) {
        r->adds[n + k] = r->keys[k];
        vl_buf_ch(&keys, ',');
        vl_json_put_str(&keys, r->keys[k], strlen(r->keys[k]));
    }
    if (r->rm)
        r->adds[n + r->nkeys] = "rm_scores";
    vl_buf_ch(&keys, ']');
    vl_meta_set(b, "reward_extra_keys", keys.s);
    vl_buf_free(&keys);
}

/* No member may stand in for a column of the batch, of this stage or of a later one. */
static int keys_fit(struct vl_batch *b, const struct vl_reward_result *r, struct vl_err *e)
{
    for (size_t k = 0; k < r->nkeys && !e->code; k++) {
        const struct vl_field *f = vl_field_find(r->keys[k]);

        if (!vl_col_name_ok(r->keys[k]))
            vl_fail(e, VL_E_DATA,
                    "a scorer's answer has the member '%.80s', but no column can be called so: "
                    "rename it",
                    r->keys[k]);
        else if (vl_batch_col(b, r->keys[k]) || (f && !f->json))
            vl_fail(e, VL_E_DATA,
                    "a scorer's answer has the member '%s', which would replace the column of that "
                    "name: rename it",
                    r->keys[k]);
    }
    return e->code;
}

int vl_reward_store(struct vl_ctx *x, struct vl_batch *b, const struct vl_reward_rows *rows,
                    struct vl_reward_result *res, struct vl_err *e)
{
    if (find_keys(res, e))
        return e->code;
    if (add_scores(b, rows, res, e))
        return e->code;
    add_errors(b, res);
    if (keys_fit(b, res, e))
        return e->code;
    for (size_t k = 0; k < res->nkeys; k++)
        add_extra(b, res, res->keys[k]);
    list_adds(b, res);
    add_metrics(x, b, rows, res);
    return 0;
}

int vl_reward_from_model(struct vl_ctx *x, struct vl_batch *b, struct vl_reward_result *res,
                         const char *source_key, struct vl_err *e)
{
    struct vl_reward_rows rows = { 0 };
    const float *rm;
    int32_t *ids;
    int64_t last;

    if (vl_reward_rows_open(&rows, b, source_key, e) ||
        vl_batch_need(b, "rm_scores", VL_F32, 1, &rows.R, &rm, e) ||
        vl_try_alloc(&res->s, (size_t)b->rows, sizeof *res->s, "scores", e))
        return e->code;
    vl_info(&x->log,
            "scores are the column rm_scores; give --scorer, --jq or --command for others");
    res->rows = b->rows;
    ids = vl_alloc((size_t)rows.R * sizeof *ids);
    for (int64_t i = 0; i < b->rows; i++) {
        vl_reward_ids(&rows, i, ids, &last);
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
    free(ids);
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
