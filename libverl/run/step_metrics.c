/* step_metrics.c - verl-eval metrics: what a step's files say, under verl's names. See stage_eval.h.
 *
 * Columns are collected from adv.dp backwards to the prompts: what a later stage handed on is what
 * the update saw. Metrics of meta_info are merged in the order of the step, so a later stage's value
 * stands. */
#include "libverl/run/stage_eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dp.h"
#include "formats/json.h"
#include "libverl/algo/balance.h"
#include "libverl/algo/rollout_corr.h"
#include "libverl/base/fs.h"
#include "libverl/batch/ops.h"
#include "libverl/run/uid.h"

static const char *const files[] = { "prompts", "gen", "reward",        "old_log_prob", "ref",
                                     "values",  "adv", "update_critic", "update_actor" };
#define NFILES   (sizeof(files) / sizeof(*files))
#define NCOLUMNS 7 /* the files before the updates hold the step's rows */

static const char *const columns[] = {
    "uid",
    "sample",
    "prompts",
    "attention_mask",
    "response_mask",
    "advantages",
    "returns",
    "values",
    "token_level_rewards",
    "token_level_scores",
    "rm_scores",
    "old_log_probs",
    "rollout_log_probs",
    "entropys",
    "sum_pi_squared",
    "rollout_is_weights",
    "__num_turns__",
    "reward_error",
};
#define NCOL (sizeof(columns) / sizeof(*columns))

struct step {
    struct vl_ctx *x;
    const char *dir;
    struct vl_batch rows;       /* the columns above, united */
    struct vl_metrics metrics;  /* meta_info.metrics of all files */
    struct vl_metrics seconds;  /* timing */
    int64_t global_step, epoch; /* -1: unknown */
    int found;
};

/* ---- meta_info ---- */

/* Members of a JSON object that are numbers, or lists of numbers reduced by their name. */
static int take_numbers(struct vl_metrics *m, const char *text, const char *what, struct vl_err *e)
{
    struct vl_json j;

    if (vl_json_parse(&j, text, strlen(text), what, e))
        return e->code;
    int64_t k = 1;
    for (uint32_t a = 0; vl_json_is(&j, 0, VL_JSON_OBJECT) && a < j.node[0].count; a++) {
        int64_t v = k + 1;
        char *name = vl_json_strdup(&j, k);
        double one;
        if (vl_json_f64(&j, v, &one)) {
            vl_metrics_set(m, name, one);
        } else if (vl_json_is(&j, v, VL_JSON_ARRAY) && j.node[v].count) {
            double *x = vl_alloc(j.node[v].count * sizeof(*x));
            int64_t n = 0, i = v + 1;
            for (uint32_t b = 0; b < j.node[v].count; b++, i = j.node[i].next)
                n += vl_json_f64(&j, i, &x[n]);
            if (n)
                vl_metrics_set(m, name, vl_metric_reduce(name, x, n));
            free(x);
        }
        free(name);
        k = j.node[v].next;
    }
    vl_json_free(&j);
    return 0;
}

static int take_meta(struct step *s, const struct vl_batch *b, const char *file, struct vl_err *e)
{
    const char *metrics = vl_meta_get(b, "metrics"), *timing = vl_meta_get(b, "timing");
    int64_t step;

    if (vl_meta_i64(b, "global_steps", &step)) {
        if (s->global_step >= 0 && step != s->global_step)
            return vl_fail(e, VL_E_DATA,
                           "%s is of step %lld, but the files before it are of step %lld", file,
                           (long long)step, (long long)s->global_step);
        s->global_step = step;
    }
    (void)vl_meta_i64(b, "epoch", &s->epoch);
    if ((metrics && take_numbers(&s->metrics, metrics, file, e)) ||
        (timing && take_numbers(&s->seconds, timing, file, e)))
        return e->code;
    return 0;
}

/* ---- Files ---- */

static char *file_path(const struct step *s, const char *stage)
{
    char *path = vl_asprintf("%s/%s.dp", s->dir, stage);

    if (!vl_fs_exists(path, NULL)) {
        free(path);
        return NULL;
    }
    return path;
}

/* Headers of all files, in the order of the step. */
static int read_meta(struct step *s, struct vl_err *e)
{
    struct vl_dp_read opt = { .nrows = -1, .header_only = 1 };

    for (size_t i = 0; i < NFILES && !e->code; i++) {
        char *path = file_path(s, files[i]);
        struct vl_batch b = { 0 };
        if (path && vl_dp_read(&b, path, &opt, e) == 0) {
            s->found++;
            (void)!take_meta(s, &b, path, e);
        }
        vl_batch_free(&b);
        free(path);
    }
    return e->code;
}

/* Whether a file gave more than the names of its rows. */
static int adds(const struct vl_batch *b)
{
    size_t n = b->ncol;

    n -= vl_batch_col(b, "uid") != NULL;
    n -= vl_batch_col(b, "sample") != NULL;
    return n > 0;
}

/* From one file the columns that are still missing. A file with other rows than the update saw (before
 * filter-groups, or a draw of PF-PPO) cannot give any, and that is said. */
static int add_columns(struct step *s, const char *path, struct vl_err *e)
{
    const char *want[NCOL + 1];
    size_t n = 0;
    struct vl_batch more = { 0 };
    struct vl_buf names = { 0 };
    struct vl_err other = { 0 };

    for (size_t i = 0; i < NCOL; i++)
        if (i < 2 || !vl_batch_col(&s->rows, columns[i])) /* uid, sample match the rows */
            want[n++] = columns[i];
    want[n] = NULL;
    struct vl_dp_read opt = { .columns = want, .nrows = -1 };
    if (vl_dp_read(&more, path, &opt, e))
        return e->code;
    while (more.nmeta) /* read already; steps may differ in what is no column */
        vl_meta_del(&more, more.meta[0].key);
    if (s->rows.ncol == 0) {
        vl_batch_free(&s->rows);
        s->rows = more;
        return 0;
    }
    if (adds(&more) && vl_batch_unite(&s->rows, &more, &other)) {
        for (size_t i = 0; i < more.ncol; i++)
            if (!vl_batch_col(&s->rows, more.col[i]->name))
                vl_buf_printf(&names, "%s%s", names.n ? ", " : "", more.col[i]->name);
        vl_warn(&s->x->log, "%s: %s; metrics of %s are left out", path, other.msg, names.s);
        vl_buf_free(&names);
    }
    vl_batch_free(&more);
    return e->code;
}

static int read_columns(struct step *s, struct vl_err *e)
{
    for (size_t i = NCOLUMNS; i-- > 0 && !e->code;) {
        char *path;

        if (i == 0 && s->rows.ncol)
            break; /* prompts.dp has a row per prompt, not per sample; gen.dp repeats its columns */
        path = file_path(s, files[i]);
        if (path)
            (void)!add_columns(s, path, e);
        free(path);
    }
    return e->code;
}

static int read_timing(struct step *s, const struct vl_eval_opts *o, struct vl_err *e)
{
    char *path = vl_asprintf("%s/timing.json", s->dir);
    struct vl_buf text = { 0 };

    if (vl_fs_exists(path, NULL) && vl_fs_read(path, 1 << 20, &text, e) == 0)
        (void)!take_numbers(&s->seconds, text.s ? text.s : "", path, e);
    vl_buf_free(&text);
    free(path);
    for (size_t i = 0; i < o->timing.n && !e->code; i++) {
        const char *given = o->timing.s[i], *eq = strchr(given, '=');
        char *end = NULL, *name = vl_strndup(given, eq ? (size_t)(eq - given) : 0);
        double seconds = eq ? strtod(eq + 1, &end) : 0;
        if (!eq || end == eq + 1 || *end || !(seconds >= 0))
            vl_fail(e, VL_E_USAGE, "--timing %s: wanted NAME=SECONDS, for example gen=1.5", given);
        else
            vl_metrics_set(&s->seconds, name, seconds);
        free(name);
    }
    return e->code;
}

/* ---- Metrics ---- */

/* A column of this type with inner width L, or NULL when it is absent or of another kind. */
static const void *column(const struct step *s, const char *name, enum vl_dtype t, int64_t L)
{
    const struct vl_col *c = vl_batch_col(&s->rows, name);

    if (!c || c->kind != VL_COL_TENSOR || c->dtype != t || c->ndim != 2 || c->shape[1] != L)
        return NULL;
    return c->data;
}

static double *read_turns(const struct step *s)
{
    const struct vl_col *c = vl_batch_col(&s->rows, "__num_turns__");
    double *x;

    if (!c)
        return NULL;
    x = vl_alloc((size_t)(s->rows.rows > 0 ? s->rows.rows : 1) * sizeof(*x));
    for (int64_t i = 0; i < s->rows.rows; i++) {
        if (!vl_eval_number(c, i, &x[i])) {
            free(x);
            return NULL;
        }
    }
    return x;
}

/* The padded rows; rows->first is allocated, free it. */
static struct vl_loss_rows padded(const struct vl_step_data *d)
{
    int64_t *first = vl_alloc((size_t)(d->B + 1) * sizeof(*first));

    for (int64_t i = 0; i <= d->B; i++)
        first[i] = i * d->L;
    return (struct vl_loss_rows){ d->B, first, d->mask };
}

/* actor/entropy: the entropies of the old-log-prob pass, reduced like the loss over the batch. */
static int entropy_metric(const struct step *s, const struct vl_step_data *d,
                          const struct vl_eval_opts *o, struct vl_metrics *m, struct vl_err *e)
{
    const float *H = column(s, "entropys", VL_F32, d->L);
    struct vl_loss_norm norm = { .dp = 1, .factor = isnan(o->factor) ? 0 : o->factor };
    enum vl_agg agg;

    if (!H || !d->mask)
        return 0;
    if (vl_agg_parse(&agg, o->agg, e))
        return e->code;
    struct vl_loss_rows rows = padded(d);
    vl_metrics_set(m, "actor/entropy", vl_agg_loss(agg, &rows, H, &norm, NULL));
    free((void *)rows.first);
    return 0;
}

/* Off-policy metrics where no stage has logged them, and the variance proxy. */
static void gap_metrics(const struct step *s, const struct vl_step_data *d, struct vl_metrics *m)
{
    const float *pi2 = column(s, "sum_pi_squared", VL_F32, d->L);
    const struct vl_named *norm = vl_metrics_get(&s->metrics, "actor/grad_norm");

    if (!d->mask || !d->old_logp)
        return;
    if (d->rollout_lp && !vl_metrics_get(&s->metrics, "rollout_corr/kl")) {
        struct vl_loss_rows rows = padded(d);
        vl_offpolicy_metrics(m, "rollout_corr/", &rows, d->old_logp, d->rollout_lp);
        free((void *)rows.first);
    }
    if (pi2 && d->adv)
        vl_variance_metrics(m, d->B, d->L, d->adv, d->mask, d->old_logp, pi2,
                            column(s, "rollout_is_weights", VL_F32, d->L),
                            norm ? norm->value : NAN);
}

/* How even equal slices of the rows are for --devices workers, before and after verl's balancing. */
static int balance_metrics(const struct step *s, const struct vl_step_data *d,
                           const struct vl_eval_opts *o, struct vl_metrics *m, struct vl_err *e)
{
    int64_t *len = NULL, *order = NULL, width = d->P + d->L;

    if (vl_metrics_get(&s->metrics, "global_seqlen/mean") || d->B % o->devices)
        return 0;
    if (vl_try_alloc(&len, (size_t)d->B, sizeof(*len), "row lengths", e) ||
        vl_try_alloc(&order, (size_t)d->B, sizeof(*order), "row order", e))
        goto done;
    for (int64_t j = 0; j < d->B * width; j++)
        len[j / width] += d->attention[j] != 0;
    (void)!vl_balance_order(order, len, d->B, o->devices, m, e);
done:
    free(len);
    free(order);
    return e->code;
}

static void time_metrics(const struct step *s, const struct vl_step_data *d,
                         const struct vl_eval_opts *o, struct vl_metrics *m)
{
    int64_t prompt = 0, response = 0, width = d->P + d->L;
    const struct vl_named *step = vl_metrics_get(&s->seconds, "step");

    for (int64_t j = 0; j < d->B * width; j++)
        *(j % width < d->P ? &prompt : &response) += d->attention[j] != 0;
    vl_timing_metrics(m, &s->seconds, prompt, response);
    if (step)
        vl_throughput_metrics(m, prompt + response, step->value, o->devices);
    else
        vl_metrics_set_i(m, "perf/total_num_tokens", prompt + response);
}

static int row_metrics(const struct step *s, const struct vl_eval_opts *o, struct vl_metrics *m,
                       struct vl_err *e)
{
    struct vl_step_data d = { .B = s->rows.rows };
    const struct vl_col *prompts = vl_batch_col(&s->rows, "prompts");
    int64_t width[1] = { -1 };
    double *turns;
    uint8_t *unscored;

    if (!prompts || !vl_batch_col(&s->rows, "attention_mask")) {
        if (s->rows.ncol)
            vl_warn(&s->x->log,
                    "%s: no file has prompts and attention_mask: metrics of rows are "
                    "left out",
                    s->dir);
        return 0;
    }
    if (vl_batch_need(&s->rows, "attention_mask", VL_I64, 1, width, &d.attention, e))
        return e->code;
    d.P = prompts->ndim == 2 ? prompts->shape[1] : 0;
    d.L = width[0] - d.P;
    if (d.L <= 0)
        return 0; /* prompts alone: nothing was generated yet */
    d.mask = column(s, "response_mask", VL_I64, d.L);
    d.scores = column(s, "token_level_scores", VL_F32, d.L);
    if (!d.scores)
        d.scores = column(s, "rm_scores", VL_F32, d.L);
    d.rewards = column(s, "token_level_rewards", VL_F32, d.L);
    d.adv = column(s, "advantages", VL_F32, d.L);
    d.returns = column(s, "returns", VL_F32, d.L);
    d.values = column(s, "values", VL_F32, d.L);
    d.old_logp = column(s, "old_log_probs", VL_F32, d.L);
    d.rollout_lp = column(s, "rollout_log_probs", VL_F32, d.L);
    d.num_turns = turns = read_turns(s);
    d.unscored = unscored = vl_alloc((size_t)d.B + 1);
    for (int64_t i = 0; i < d.B; i++)
        unscored[i] = (uint8_t)vl_row_unscored(&s->rows, i);
    if (entropy_metric(s, &d, o, m, e) == 0 && vl_data_metrics(m, &d, e) == 0 &&
        balance_metrics(s, &d, o, m, e) == 0) {
        gap_metrics(s, &d, m);
        time_metrics(s, &d, o, m);
    }
    free(turns);
    free(unscored);
    return e->code;
}

int vl_eval_step(struct vl_ctx *x, const char *dir, const struct vl_eval_opts *o,
                 struct vl_metrics *m, struct vl_err *e)
{
    struct step s = { .x = x, .dir = dir, .global_step = -1, .epoch = -1 };

    if (!vl_fs_exists(dir, NULL)) {
        vl_fail(e, VL_E_NOINPUT, "%s: there is no such directory", dir);
        goto done;
    }
    if (read_meta(&s, e) || read_timing(&s, o, e))
        goto done;
    if (!s.found) {
        vl_fail(e, VL_E_NOINPUT,
                "%s: holds none of a step's files (gen.dp, reward.dp, adv.dp, "
                "update_actor.dp, ...)",
                dir);
        goto done;
    }
    if (s.global_step >= 0)
        vl_metrics_set_i(m, "training/global_step", s.global_step);
    if (s.epoch >= 0)
        vl_metrics_set_i(m, "training/epoch", s.epoch);
    if (read_columns(&s, e) || row_metrics(&s, o, m, e))
        goto done;
    for (size_t i = 0; i < s.metrics.n; i++)
        vl_metrics_set(m, s.metrics.m[i].name, s.metrics.m[i].value);
    if (s.rows.ncol == 0) /* updates alone: their time all the same */
        vl_timing_metrics(m, &s.seconds, 0, 0);
done:
    vl_batch_free(&s.rows);
    vl_metrics_free(&s.metrics);
    vl_metrics_free(&s.seconds);
    return e->code;
}
