/* stage_eval.c - verl-eval: the validation half and the output line. See stage_eval.h.
 *
 * A variable is a number per row: `reward` (the sum of the row's token scores), and every numeric
 * column that a scorer wrote (acc, score, ...). Which columns those are follows from the field
 * dictionary: what another stage writes is none. */
#include "libverl/run/stage_eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/fields.h"
#include "formats/json.h"
#include "libverl/algo/validation.h"
#include "libverl/run/uid.h"

/* ---- Rows to variables ---- */

struct samples {
    const struct vl_batch *b;
    int64_t *row; /* (N) rows of the batch that have a score */
    int64_t N;
    struct vl_val_var *var;
    size_t nvar;
    char **source, **uid, **pred; /* (N) */
};

static void free_texts(char **s, int64_t n)
{
    for (int64_t i = 0; s && i < n; i++)
        free(s[i]);
    free(s);
}

static void samples_free(struct samples *s)
{
    for (size_t v = 0; v < s->nvar; v++)
        free((void *)s->var[v].x);
    free(s->var);
    free_texts(s->source, s->N);
    free_texts(s->uid, s->N);
    free_texts(s->pred, s->N);
    free(s->row);
}

static int json_number(const char *text, size_t n, double *x)
{
    struct vl_json j;
    struct vl_err e = { 0 };
    int b, ok = 0;

    if (vl_json_parse(&j, text, n, "value", &e) == 0) {
        ok = vl_json_f64(&j, 0, x);
        if (!ok && vl_json_bool(&j, 0, &b)) {
            *x = b;
            ok = 1;
        }
    }
    vl_json_free(&j);
    return ok;
}

int vl_eval_number(const struct vl_col *c, int64_t i, double *x)
{
    size_t n;
    const char *s;

    if (c->kind == VL_COL_JSON) {
        s = vl_col_json(c, i, &n);
        return json_number(s, n, x);
    }
    if (c->kind != VL_COL_TENSOR || c->ndim != 1)
        return 0;
    switch (c->dtype) {
    case VL_F32:
        *x = ((const float *)c->data)[i];
        return 1;
    case VL_F64:
        *x = ((const double *)c->data)[i];
        return 1;
    case VL_I64:
        *x = (double)((const int64_t *)c->data)[i];
        return 1;
    case VL_I32:
        *x = ((const int32_t *)c->data)[i];
        return 1;
    case VL_BOOL:
    case VL_U8:
        *x = ((const uint8_t *)c->data)[i];
        return 1;
    default:
        return 0;
    }
}

/* The text of a JSON string, else the JSON text itself; absent column: `otherwise`, or the row's
 * number when that is NULL. */
static char **texts(const struct samples *s, const char *name, const char *otherwise)
{
    const struct vl_col *c = vl_batch_col(s->b, name);
    char **out = vl_alloc((size_t)(s->N > 0 ? s->N : 1) * sizeof(*out));
    struct vl_err e = { 0 };

    for (int64_t i = 0; i < s->N; i++) {
        struct vl_json j = { 0 };
        size_t n = 0;
        double x;
        if (!c) {
            out[i] = otherwise ? vl_strdup(otherwise) : vl_asprintf("%lld", (long long)s->row[i]);
        } else if (c->kind != VL_COL_JSON) {
            out[i] = vl_eval_number(c, s->row[i], &x) ? vl_asprintf("%.17g", x) : vl_strdup("?");
        } else {
            const char *t = vl_col_json(c, s->row[i], &n);
            out[i] = vl_json_parse(&j, t, n, name, &e) == 0 ? vl_json_name(&j, 0) : NULL;
            if (!out[i])
                out[i] = vl_strndup(t, n);
        }
        vl_json_free(&j);
    }
    return out;
}

/* Adds a variable when every sample has a number there. A row without a score has 0. */
static int add_column(struct samples *s, const struct vl_col *c)
{
    double *x = vl_alloc((size_t)(s->N > 0 ? s->N : 1) * sizeof(*x));

    for (int64_t i = 0; i < s->N; i++) {
        if (vl_row_unscored(s->b, s->row[i])) {
            x[i] = 0;
        } else if (!vl_eval_number(c, s->row[i], &x[i])) {
            free(x);
            return 0;
        }
    }
    s->var = vl_realloc(s->var, (s->nvar + 1) * sizeof(*s->var));
    s->var[s->nvar++] = (struct vl_val_var){ c->name, x };
    return 1;
}

/* verl's `reward`: the sum of the row's token scores, from whichever column has them. */
static int add_reward(struct samples *s, struct vl_err *e)
{
    const char *name = vl_stage_scores(s->b);
    int64_t inner[1] = { -1 };
    const float *score;

    if (!vl_batch_col(s->b, name))
        return 0;
    if (vl_batch_need(s->b, name, VL_F32, 1, inner, &score, e))
        return e->code;
    double *x = vl_alloc((size_t)(s->N > 0 ? s->N : 1) * sizeof(*x));
    for (int64_t i = 0; i < s->N; i++) {
        int64_t width = vl_row_unscored(s->b, s->row[i]) ? 0 : inner[0];
        for (int64_t t = 0; t < width; t++)
            x[i] += score[s->row[i] * inner[0] + t];
    }
    s->var = vl_realloc(s->var, (s->nvar + 1) * sizeof(*s->var));
    s->var[s->nvar++] = (struct vl_val_var){ "reward", x };
    return 0;
}

static int listed(const struct vl_strs *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (!strcmp(list->s[i], name))
            return 1;
    return 0;
}

/* Whether a scorer may have written this column. */
static int scorers(const struct vl_col *c)
{
    const struct vl_field *f = vl_field_find(c->name);
    return f ? !strcmp(f->writer, "verl-reward") : 1;
}

static int read_variables(struct vl_ctx *x, struct samples *s, const struct vl_eval_opts *o,
                          struct vl_err *e)
{
    if ((o->vars.n == 0 || listed(&o->vars, "reward")) && add_reward(s, e))
        return e->code;
    for (size_t k = 0; k < s->b->ncol; k++) {
        const struct vl_col *c = s->b->col[k];
        int wanted = o->vars.n ? listed(&o->vars, c->name) : scorers(c);
        if (wanted && strcmp(c->name, "reward") && !add_column(s, c) && o->vars.n)
            return vl_fail(e, VL_E_DATA, "column %s does not hold a number in every row", c->name);
    }
    for (size_t i = 0; i < o->vars.n; i++) {
        int found = 0;
        for (size_t v = 0; v < s->nvar; v++)
            found |= !strcmp(s->var[v].name, o->vars.s[i]);
        if (!found)
            return vl_batch_missing(s->b, "--var", o->vars.s[i], e);
    }
    if (s->nvar == 0)
        return vl_fail(e, VL_E_DATA,
                       "the batch has no scores: no token_level_scores, rm_scores, acc "
                       "or other number per row (run verl-reward)");
    for (size_t v = 0; v < s->nvar; v++)
        vl_detail(&x->log, "variable %s", s->var[v].name);
    return 0;
}

static void turns(const struct samples *s, struct vl_metrics *m)
{
    const struct vl_col *c = vl_batch_col(s->b, "__num_turns__");
    double x, sum = 0, max = -INFINITY, min = INFINITY;

    for (int64_t i = 0; c && i < s->N; i++) {
        if (!vl_eval_number(c, s->row[i], &x))
            return;
        sum += x;
        max = fmax(max, x);
        min = fmin(min, x);
    }
    if (!c || s->N == 0)
        return;
    vl_metrics_set(m, "val-aux/num_turns/min", min);
    vl_metrics_set(m, "val-aux/num_turns/max", max);
    vl_metrics_set(m, "val-aux/num_turns/mean", sum / (double)s->N);
}

int vl_eval_validation(struct vl_ctx *x, const struct vl_batch *b, const struct vl_eval_opts *o,
                       struct vl_metrics *m, struct vl_err *e)
{
    struct samples s = { .b = b };
    int64_t unscored = 0;

    s.row = vl_alloc((size_t)(b->rows > 0 ? b->rows : 1) * sizeof(*s.row));
    for (int64_t i = 0; i < b->rows; i++) {
        int none = vl_row_unscored(b, i);
        unscored += none;
        if (!none || !o->skip_unscored)
            s.row[s.N++] = i;
    }
    if (unscored)
        vl_warn(&x->log, "%lld of %lld rows have no score%s", (long long)unscored,
                (long long)b->rows,
                o->skip_unscored ? " and are left out"
                                 : ": they count as 0 (--skip-unscored leaves them out)");
    if (unscored == b->rows) {
        vl_fail(e, VL_E_DATA, "the batch has no scored rows");
        goto done;
    }
    s.source = texts(&s, "data_source", "unknown");
    s.uid = texts(&s, "uid", NULL); /* without one each row is a prompt of its own */
    if (vl_batch_col(b, o->pred))
        s.pred = texts(&s, o->pred, "");
    else if (vl_parsed_given(x->parsed, &o->pred) && vl_batch_missing(b, "--pred", o->pred, e))
        goto done;
    if (read_variables(x, &s, o, e))
        goto done;
    struct vl_val_in in = { .N = s.N,
                            .pass = o->pass,
                            .stderror = o->stderror,
                            .source = (const char *const *)s.source,
                            .uid = (const char *const *)s.uid,
                            .var = s.var,
                            .nvar = s.nvar,
                            .pred = (const char *const *)s.pred };
    if (vl_val_metrics(m, &in, e) == 0)
        turns(&s, m);
done:
    samples_free(&s);
    return e->code;
}

/* ---- Output ---- */

static void print(struct vl_buf *b, const struct vl_metrics *m)
{
    vl_buf_ch(b, '{');
    for (size_t i = 0; i < m->n; i++) {
        vl_buf_str(b, i ? ", " : "");
        vl_json_put_str(b, m->m[i].name, strlen(m->m[i].name));
        vl_buf_str(b, ": ");
        if (m->m[i].integer)
            vl_json_put_i64(b, (int64_t)m->m[i].value);
        else
            vl_json_put_f64(b, m->m[i].value);
    }
    vl_buf_str(b, "}\n");
}

static int validate(struct vl_ctx *x, const struct vl_eval_opts *o, struct vl_metrics *m,
                    struct vl_err *e)
{
    struct vl_batch b = { 0 };

    if (vl_stage_read(x, &b, e) == 0 && x->comm.rank == 0)
        (void)!vl_eval_validation(x, &b, o, m, e);
    vl_batch_free(&b);
    return vl_comm_agree(&x->comm, e);
}

int vl_stage_eval(struct vl_ctx *x, const void *opts, struct vl_err *e)
{
    const struct vl_eval_opts *o = opts;
    const struct vl_strs *words = &x->common->operands;
    struct vl_metrics m = { 0 };
    struct vl_buf line = { 0 };

    if (words->n == 2 && !strcmp(words->s[0], "metrics")) {
        if (x->comm.rank == 0)
            (void)!vl_eval_step(x, words->s[1], o, &m, e);
        (void)vl_comm_agree(&x->comm, e);
    } else if (words->n) {
        vl_fail(e, VL_E_USAGE,
                "operand '%s': the only form with operands is 'verl-eval metrics "
                "STEP_DIR'; batches are given with -i",
                words->s[0]);
    } else {
        (void)!validate(x, o, &m, e);
    }
    if (!e->code && x->comm.rank == 0) {
        print(&line, &m);
        (void)!vl_publish_file(x->common->output, line.s, line.n, 0, e);
    }
    vl_buf_free(&line);
    vl_metrics_free(&m);
    return e->code;
}
