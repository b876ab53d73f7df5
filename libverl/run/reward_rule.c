/* reward_rule.c - see reward_rule.h. Each thread keeps its buffers from row to row. */
#include "libverl/run/reward_rule.h"

#include "libverl/run/reward_code.h"

#include <stdlib.h>
#include <string.h>

/* --args, unless a filter or a program gets it. */
static const char *rules_own_args(const struct vl_reward_opts *o)
{
    return o->judge.url || vl_reward_has_process(o) ? NULL : o->args;
}

/* Provenance gets what was read, not how it was spelt or in which file it lay. */
static void record(struct vl_ctx *x, const struct vl_rule_set *set, const struct vl_reward_opts *o)
{
    const void *option = o->rules.n          ? (const void *)&o->rules
                         : rules_own_args(o) ? (const void *)&o->args
                                             : (const void *)&o->scorers;
    char *uses = vl_rule_set_uses(set), *map = vl_rule_set_map(set);

    if (uses)
        vl_parsed_effective(x->parsed, option, uses);
    if (map)
        vl_parsed_effective(x->parsed, &o->dispatch, map);
    free(uses);
    free(map);
}

int vl_reward_rules_read(struct vl_ctx *x, struct vl_rule_set *set, const struct vl_reward_opts *o,
                         struct vl_err *e)
{
    for (size_t k = 0; k < o->rules.n && !e->code; k++)
        (void)!vl_rule_set_add(set, o->rules.s[k], e);
    if (!e->code && !set->n && !o->scorer && o->scorers)
        (void)!vl_rule_set_json(set, o->scorers, e);
    if (!e->code && set->n && rules_own_args(o))
        vl_fail(e, VL_E_USAGE,
                "--args goes with --scorer: give the arguments of --rule as NAME,member=value and "
                "those of reward.scorers beside the name");
    if (!e->code && !set->n)
        (void)!vl_rule_set_one(set, o->scorer, rules_own_args(o), e);
    if (!e->code && o->dispatch)
        (void)!vl_rule_set_dispatch(set, o->dispatch, e);
    if (!e->code && x->parsed)
        record(x, set, o);
    return e->code;
}

int vl_reward_rules_help(struct vl_ctx *x, struct vl_err *e)
{
    struct vl_buf b = { 0 };

    vl_rules_help(&b);
    (void)!vl_publish_file(x->common->output, b.s, b.n, 0, e);
    vl_buf_free(&b);
    return e->code;
}

/* Said before the first row is scored; `rows` are all ranks' so that every rank says the same. */
static int check_sources(const struct vl_rule_set *set, const struct vl_reward_opts *o,
                         const struct vl_reward_rows *rows, struct vl_err *e)
{
    struct vl_buf source = { 0 }, last = { 0 }, known = { 0 };
    char name[120];
    int truth;

    for (int64_t i = 0; i < rows->b->rows; i++) {
        vl_buf_reset(&source);
        vl_reward_source(rows, i, &source);
        if (i && source.n == last.n && (!last.n || !memcmp(source.s, last.s, last.n)))
            continue;
        vl_buf_reset(&last);
        vl_buf_add(&last, source.n ? source.s : "", source.n);
        if (vl_rule_set_covers(set, last.s, last.n, &truth))
            continue;
        vl_rule_set_sources(set, &known);
        vl_reward_row_name(rows, i, name, sizeof name);
        if (!source.n)
            vl_fail(e, VL_E_DATA,
                    "%s: has no %s to choose a scorer by: give --scorer, --rule, --jq, --command, "
                    "--judge or custom_reward_function.path",
                    name, o->source_key);
        else
            vl_fail(e, VL_E_DATA,
                    "%s: no scorer for %s '%.100s'; known are %.1500s; or give --scorer, --rule, "
                    "reward.dispatch.NAME=SCORER, --jq or --command",
                    name, o->source_key, source.s, known.s);
        break;
    }
    vl_buf_free(&source);
    vl_buf_free(&last);
    vl_buf_free(&known);
    return e->code;
}

struct scratch { /* of one thread */
    struct vl_buf text, source, truth, json;
    int32_t *ids;
};

/* 0, or 1 when the row has no ground truth, which its rule needs. */
static int score_row(const struct vl_rule_set *set, const struct vl_reward_code *code,
                     const struct vl_reward_job *job, int64_t k, struct scratch *t)
{
    const struct vl_reward_rows *rows = job->rows;
    struct vl_rule_in in = { .code_opts = code->wanted ? &code->opts : NULL,
                             .answers = code->answers ? &code->answers[k] : NULL };
    int64_t i = job->asked[k];
    int needs, there;

    vl_buf_reset(&t->source);
    vl_reward_source(rows, i, &t->source);
    vl_buf_add(&t->source, "", 0);
    vl_rule_set_covers(set, t->source.s, t->source.n, &needs);
    vl_buf_reset(&t->truth);
    vl_buf_reset(&t->json);
    there = vl_reward_truth(rows, i, &t->json, &t->truth);
    if (needs && !there)
        return 1;
    in.truth = t->truth.n ? t->truth.s : "";
    in.truth_n = t->truth.n;
    in.truth_json = there ? t->json.s : NULL;
    in.truth_json_n = t->json.n;
    vl_buf_reset(&t->text);
    in.tokens = vl_reward_text(rows, i, t->ids, &t->text);
    in.text = t->text.n ? t->text.s : "";
    in.n = t->text.n;
    in.rm_score = vl_reward_rm_score(rows, i);
    in.judge = job->judge ? &job->judge[i - job->first] : NULL;
    in.process = job->process ? &job->process[i - job->first] : NULL;
    vl_rule_set_score(set, &in, t->source.s, t->source.n, &job->s[i - job->first]);
    return 0;
}

struct code_rows {
    const struct vl_rule_set *set;
    const struct vl_reward_rows *rows;
    struct vl_buf source;
};

static const struct vl_rule_args *code_args(void *arg, int64_t row)
{
    struct code_rows *c = arg;

    vl_buf_reset(&c->source);
    vl_reward_source(c->rows, row, &c->source);
    vl_buf_add(&c->source, "", 0);
    return vl_rule_set_code(c->set, c->source.s, c->source.n);
}

int vl_reward_by_rules(struct vl_ctx *x, const struct vl_rule_set *set,
                       const struct vl_reward_opts *o, const struct vl_reward_job *job,
                       struct vl_err *e)
{
    struct code_rows rows = { set, job->rows, { 0 } };
    int64_t bad = INT64_MAX, done = 0;
    struct vl_reward_code code = { 0 };
    char name[120];

    if (check_sources(set, o, job->rows, e))
        return e->code;
    (void)!vl_reward_code_open(&code, x, o, job, code_args, &rows, e);
    vl_buf_free(&rows.source);
#pragma omp parallel reduction(min : bad) num_threads(code.threads) if (!e->code)
    {
        struct scratch t = { .ids = vl_alloc((size_t)job->rows->R * sizeof *t.ids) };

#pragma omp for schedule(dynamic, code.wanted ? 1 : 64)
        for (int64_t k = 0; k < (e->code ? 0 : job->nasked); k++) {
            if (score_row(set, &code, job, k, &t) && job->asked[k] < bad)
                bad = job->asked[k];
            if (!code.wanted)
                continue;
#pragma omp critical(vl_reward_rows_done)
            vl_progress(&x->log, "rows", ++done, job->nasked, NULL);
        }
        vl_buf_free(&t.text);
        vl_buf_free(&t.source);
        vl_buf_free(&t.truth);
        vl_buf_free(&t.json);
        free(t.ids);
    }
    vl_reward_code_close(&code);
    if (bad < INT64_MAX)
        return vl_fail(e, VL_E_DATA,
                       "%s: reward_model has no ground_truth, which a rule compares with; use --jq "
                       "or --command to score without one",
                       vl_reward_row_name(job->rows, bad, name, sizeof name));
    return e->code;
}
