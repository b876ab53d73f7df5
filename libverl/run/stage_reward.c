/* stage_reward.c - scoring the rows of a batch. See stage_reward.h.
 *
 * Every rank scores a range of rows and rank 0 makes the columns; which rows a rank has, and how
 * many workers score them, changes nothing in the file. */
#include "libverl/run/stage_reward.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "libverl/run/reward_columns.h"
#include "libverl/run/reward_process.h"
#include "libverl/run/reward_rule.h"
#include "libverl/run/reward_stream.h"

struct work {
    struct vl_ctx *x;
    const struct vl_reward_opts *o;
    struct vl_reward_rows rows;
    struct vl_rule_set rules; /* empty where another scorer's score is the score */
    char *args_line;          /* --args on one line, for lines to outside scorers */
    int64_t first, count;     /* this rank's rows */
    struct vl_score *s;       /* count */
    int64_t *asked;           /* those with a text to score */
    int64_t nasked;
    int64_t nrefused; /* of asked, after these: the reward model gave them no score */
    struct vl_judge_usage usage;
    struct vl_rm rm; /* rows is 0 without a reward model */
    int64_t failed;  /* rows whose scorer failed */
    struct vl_reward_early early;
    int mixed; /* scorers outside are summed with rules: theirs, like s */
    struct vl_score *judge, *process;
};

static int has_scorer(const struct vl_reward_opts *o)
{
    return o->scorer || o->rules.n || o->scorers || o->judge.url || vl_reward_has_process(o);
}

/* --args for filters and commands: any object, made one line. */
static int check_args(struct work *w, struct vl_err *e)
{
    struct vl_json j = { 0 };

    if (!w->o->args)
        return 0;
    if (vl_json_parse(&j, w->o->args, strlen(w->o->args), "--args", e))
        e->code = VL_E_USAGE;
    else if (!vl_json_is(&j, 0, VL_JSON_OBJECT))
        vl_fail(e, VL_E_USAGE, "--args is %.80s; give a JSON object such as {\"bonus\": 1}",
                w->o->args);
    vl_json_free(&j);
    w->args_line = vl_strdup(w->o->args);
    for (char *p = w->args_line; *p; p++)
        if (*p == '\n' || *p == '\r')
            *p = ' ';
    return e->code;
}

struct named {
    const void *dst;
    const char *name;
};

/* Tells of the first of these options that was given. The list ends without a name. */
static void warn_given(const struct work *w, const struct named *n, const char *needs)
{
    while (n->name && !vl_parsed_given(w->x->parsed, n->dst))
        n++;
    if (n->name)
        vl_warn(&w->x->log, "%s has no effect without %s", n->name, needs);
}

/* Options of another kind of scorer, and a value that no policy uses. Keys are not told of: one file
 * of them serves all runs. */
static void warn_unused(const struct work *w)
{
    const struct vl_reward_opts *o = w->o;
    const struct vl_parsed *p = w->x->parsed;
    const struct named process[] = { { &o->workers, "--workers" },
                                     { &o->timeout, "--row-timeout" },
                                     { &o->memory, "--memory" },
                                     { 0 } };
    const struct named model[] = { { &o->rm.tmpl, "--rm-template" },
                                   { &o->rm.plain_special, "--rm-plain-special" },
                                   { &o->rm.truncate, "--rm-truncate" },
                                   { &o->rm.compute, "--compute" },
                                   { &o->rm.micro_batch, "--micro-batch" },
                                   { &w->x->common->device, "--device" },
                                   { 0 } };
    const struct named judge[] = { { &o->judge.model, "--judge-model" },
                                   { &o->judge.path, "--judge-endpoint" },
                                   { &o->judge.request, "--judge-request" },
                                   { &o->judge.filter, "--judge-filter" },
                                   { &o->judge.params, "--judge-params" },
                                   { &o->judge.key_env, "--judge-key-env" },
                                   { &o->judge.retries, "--judge-retries" },
                                   { &o->judge.try_timeout, "--judge-try-timeout" },
                                   { 0 } };
    const struct named code[] = {
        { &o->code.sandbox, "--sandbox" },      { &o->code.show, "--sandbox-show" },
        { &o->code.timeout, "--case-timeout" }, { &o->code.command, "--code-command" },
        { &o->code.file, "--code-file" },       { 0 }
    };
    const int may_code = vl_rule_set_may_code(&w->rules);

    if (!vl_reward_has_process(o) && !o->judge.url && !may_code)
        warn_given(w, process, "--jq, --command, --exec, --judge or custom_reward_function.path");
    if (!may_code)
        warn_given(w, code, "--scorer code");
    if (!vl_rm_wanted(&o->rm))
        warn_given(w, model, "--reward-model or reward_model.enable=true");
    if (!o->judge.url)
        warn_given(w, judge, "--judge");
    if (vl_reward_one_call(o) && o->workers > 1)
        vl_warn(&w->x->log, "--workers has no effect with reward_manager.name=batch: the function "
                            "is called once, with all rows");
    if (vl_parsed_given(p, &o->error_value) && strcmp(vl_reward_policy(w->x, o), "value"))
        vl_warn(&w->x->log, "--error-value has no effect with --on-error %s (value uses it)",
                vl_reward_policy(w->x, o));
}

/* A scorer outside, and whether the rules take it in. */
static int check_outside(struct work *w, const char *rule, const char *option, int given, int alone,
                         struct vl_err *e)
{
    int named = vl_rule_set_names(&w->rules, vl_rule_named(rule), NULL, 0);

    w->mixed |= named;
    if (named && !given)
        return vl_fail(e, VL_E_USAGE, "the scorer %s needs %s", rule, option);
    if (given && !named && !alone)
        return vl_fail(e, VL_E_USAGE,
                       "%s and other scorers exclude each other, unless a rule adds it to the sum: "
                       "give one, or --rule %s:WEIGHT beside the others",
                       option, rule);
    return 0;
}

/* Which scorers there are. One scores alone, or rules (or their sum) take in the others. */
static int check_scorers(struct work *w, struct vl_err *e)
{
    const struct vl_reward_opts *o = w->o;
    const int rules = o->scorer || o->rules.n || o->scorers, judge = o->judge.url != NULL;
    const int process = vl_reward_has_process(o);
    const int alone = !rules && !(judge && process);

    if ((o->filter != NULL) + (o->command != NULL) + (o->exec != NULL) + (o->custom_path != NULL) >
        1)
        return vl_fail(e, VL_E_USAGE,
                       "--jq, --command, --exec and custom_reward_function.path exclude each "
                       "other: give one");
    if (o->scorer && (o->rules.n || o->scorers))
        return vl_fail(e, VL_E_USAGE,
                       "--scorer and --rule (reward.scorers) exclude each other: give one");
    if ((rules || o->dispatch || !(judge || process)) &&
        vl_reward_rules_read(w->x, &w->rules, o, e))
        return e->code;
    if (check_outside(w, "judge", "--judge", judge, alone, e) ||
        check_outside(w, "jq", "--jq", o->filter != NULL, alone, e) ||
        check_outside(w, "command", "--command", o->command != NULL, alone, e) ||
        check_outside(w, "exec", "--exec", o->exec != NULL, alone, e) ||
        check_outside(w, "custom", "custom_reward_function.path", o->custom_path != NULL, alone, e))
        return e->code;
    if (!w->mixed && (judge || process)) /* reward.dispatch of a run's settings */
        vl_rule_set_free(&w->rules);
    return 0;
}

/* What can be refused before anything is read. */
static int check_options(struct work *w, struct vl_err *e)
{
    const struct vl_reward_opts *o = w->o;

    if (check_scorers(w, e))
        return e->code;
    if (o->custom_path && o->args)
        return vl_fail(e, VL_E_USAGE,
                       "--args does not reach a Python function: give its arguments as "
                       "custom_reward_function.reward_kwargs.NAME=VALUE");
    if (!o->custom_path && (vl_parsed_given(w->x->parsed, &o->custom_name) ||
                            vl_parsed_given(w->x->parsed, &o->custom_kwargs)))
        vl_warn(&w->x->log, "custom_reward_function.name and .reward_kwargs have no effect without "
                            "custom_reward_function.path");
    if (vl_rm_check(&o->rm, e))
        return e->code;
    if (strcmp(o->manager, "naive") && strcmp(o->manager, "batch") && strcmp(o->manager, "dapo") &&
        strcmp(o->manager, "prime"))
        return vl_fail(e, VL_E_USAGE,
                       "reward_manager.name is %s; this program has naive, batch, dapo and prime",
                       o->manager);
    if (o->overlong && (o->shape.max_resp_len == VL_NULL_I64 || o->shape.len == VL_NULL_I64))
        return vl_fail(e, VL_E_USAGE,
                       "the overlong penalty needs reward_model.reward_kwargs.max_resp_len and "
                       "overlong_buffer_cfg.len");
    if (o->overlong && vl_overlong_check(&o->shape, e))
        return e->code;
    if (w->rules.n && vl_reward_code_check(o, e))
        return e->code;
    warn_unused(w);
    if ((o->judge.url || vl_reward_has_process(o)) && check_args(w, e))
        return e->code;
    if (o->judge.url && vl_judge_check(w->x, o, e))
        return e->code;
    return vl_reward_has_process(o) ? vl_reward_process_check(w->x, o, e) : 0;
}

static void score_by_model(struct work *w)
{
    for (int64_t k = 0; k < w->nasked; k++) {
        struct vl_score *s = &w->s[w->asked[k] - w->first];

        s->score = s->acc = (double)w->rm.score[w->asked[k]];
    }
}

/* One rank has all rows: requests cost it no time, and limits on them hold for the stage. */
static int on_one_rank(const struct vl_reward_opts *o)
{
    return o->judge.url != NULL || vl_reward_one_call(o);
}

/* The rows that rules ask this scorer for, scored by it; the others stay as they are. */
static int score_outside(struct work *w, const char *rule, struct vl_score **s, struct vl_err *e)
{
    struct vl_reward_rows rows = w->rows;
    struct vl_reward_job job = { .rows = &rows, .first = w->first };
    const struct vl_rule *by = vl_rule_named(rule);
    struct vl_buf source = { 0 };
    int64_t *asked = NULL;

    rows.brief = by->score == vl_score_process && vl_reward_brief(w->o);
    if (vl_try_alloc(s, (size_t)w->count, sizeof **s, "scores", e) ||
        vl_try_alloc(&asked, (size_t)w->count, sizeof *asked, "scores", e))
        return e->code;
    for (int64_t k = 0; k < w->nasked; k++) {
        vl_buf_reset(&source);
        vl_reward_source(&w->rows, w->asked[k], &source);
        if (vl_rule_set_names(&w->rules, by, source.n ? source.s : "", source.n))
            asked[job.nasked++] = w->asked[k];
    }
    job.asked = asked, job.s = *s;
    (void)!(by->score == vl_score_judge ? vl_judge_rows(w->x, w->o, &job, &w->usage, e)
                                        : vl_reward_by_process(w->x, w->o, &job, e));
    vl_buf_free(&source);
    free(asked);
    return e->code;
}

/* Rules, with what scorers outside gave before. */
static int score_by_rules(struct work *w, struct vl_err *e)
{
    struct vl_reward_job job = { &w->rows, w->asked, w->nasked, w->s, w->first, NULL, NULL };

    if (w->mixed && w->o->judge.url && score_outside(w, "judge", &w->judge, e))
        return e->code;
    if (w->mixed && vl_reward_has_process(w->o) &&
        score_outside(w, vl_reward_process_rule(w->o), &w->process, e))
        return e->code;
    job.judge = w->judge, job.process = w->process;
    return vl_reward_by_rules(w->x, &w->rules, w->o, &job, e);
}

/* Scores that rows of a stream got on their way in. */
static int take_early(struct work *w, struct vl_err *e)
{
    if (w->early.n != w->nasked)
        return vl_fail(e, VL_E_BUG, "scored %" PRId64 " rows of a stream that has %" PRId64,
                       w->early.n, w->nasked);
    for (int64_t k = 0; k < w->nasked; k++) {
        w->s[w->asked[k]] = w->early.s[k];
        w->early.s[k] = (struct vl_score){ 0 };
    }
    return 0;
}

/* Applies --on-error to the rows without a score. */
static int settle(struct work *w, struct vl_err *e)
{
    const char *policy = vl_reward_policy(w->x, w->o);
    char name[120];

    for (int64_t k = 0; k < w->nasked + w->nrefused; k++) {
        struct vl_score *s = &w->s[w->asked[k] - w->first];

        if (!s->why)
            continue;
        if (!strcmp(policy, "fail"))
            return vl_reward_row_failed(&w->rows, w->asked[k], s->why, e);
        if (w->failed++ < 3)
            vl_warn(&w->x->log, "%s: %s",
                    vl_reward_row_name(&w->rows, w->asked[k], name, sizeof name), s->why);
        if (!strcmp(policy, "value")) {
            vl_score_free(s);
            s->score = s->acc = w->o->error_value;
        }
    }
    return 0;
}

/* dapo: min(-(length - (max - len)) / len * factor, 0) is added to the score in
 * token_level_scores; the columns score and acc stay what the scorer said, as in verl. */
static void penalize(struct work *w)
{
    const struct vl_reward_opts *o = w->o;
    struct vl_buf members = { 0 };

    for (int64_t k = 0; k < w->nasked && o->overlong; k++) {
        struct vl_score *s = &w->s[w->asked[k] - w->first];
        int64_t n = vl_reward_length(&w->rows, w->asked[k], NULL);
        double penalty = vl_overlong_penalty(&o->shape, n);

        if (s->why)
            continue;
        s->extra_reward = penalty;
        if (!o->overlong_log)
            continue;
        vl_buf_reset(&members);
        vl_buf_str(&members, "\"overlong_reward\":");
        vl_json_put_f64(&members, penalty);
        vl_buf_printf(&members, ",\"overlong\":%s", penalty < 0 ? "true" : "false");
        vl_score_add(s, members.s);
    }
    vl_buf_free(&members);
}

static int refused(const struct work *w, int64_t i)
{
    return w->rm.rows && w->rm.why[i];
}

/* Rows with a valid token, of this rank's range; the others get their reason here. What the reward
 * model could not score no other scorer is asked for. */
static int choose_rows(struct work *w, struct vl_err *e)
{
    int64_t rows = w->rows.b->rows, *cost, *first;
    int size = w->x->comm.size;

    cost = vl_alloc((size_t)rows * sizeof *cost);
    first = vl_alloc((size_t)(size + 1) * sizeof *first);
    for (int64_t i = 0; i < rows; i++)
        cost[i] = vl_reward_length(&w->rows, i, NULL);
    if (on_one_rank(w->o))
        for (int r = 1; r <= size; r++)
            first[r] = rows;
    else
        vl_comm_cut(size, cost, rows, first);
    w->first = first[w->x->comm.rank];
    w->count = first[w->x->comm.rank + 1] - w->first;
    if (!vl_try_alloc(&w->s, (size_t)w->count, sizeof *w->s, "scores", e) &&
        !vl_try_alloc(&w->asked, (size_t)w->count, sizeof *w->asked, "scores", e))
        for (int64_t i = w->first; i < w->first + w->count; i++) {
            if (!cost[i])
                vl_score_fail(&w->s[i - w->first], "the response has no valid token");
            else if (!refused(w, i))
                w->asked[w->nasked++] = i;
        }
    for (int64_t i = w->first; i < w->first + w->count && !e->code; i++)
        if (cost[i] && refused(w, i)) {
            vl_score_fail(&w->s[i - w->first], "%s", w->rm.why[i]);
            w->asked[w->nasked + w->nrefused++] = i;
        }
    free(cost);
    free(first);
    return e->code;
}

static int score_rows(struct work *w, struct vl_err *e)
{
    struct vl_reward_job job;

    if (choose_rows(w, e))
        return e->code;
    job = (struct vl_reward_job){ &w->rows, w->asked, w->nasked, w->s, w->first, NULL, NULL };
    if (w->rm.rows && !has_scorer(w->o))
        score_by_model(w);
    else if (w->early.used     ? take_early(w, e)
             : w->rules.n      ? score_by_rules(w, e)
             : w->o->judge.url ? vl_judge_rows(w->x, w->o, &job, &w->usage, e)
                               : vl_reward_by_process(w->x, w->o, &job, e))
        return e->code;
    if (settle(w, e))
        return e->code;
    if (!w->rm.rows || has_scorer(w->o))
        penalize(w);
    return 0;
}

static int prepare(struct vl_ctx *x, struct vl_batch *b, struct work *w, struct vl_err *e)
{
    if (w->early.tok || !vl_reward_tokenizer(x, b, &w->early.tok, e))
        (void)!vl_reward_rows_open(&w->rows, b, w->o->source_key, e);
    w->rows.tok = w->early.tok;
    if (vl_comm_agree(&x->comm, e))
        return e->code;
    if (vl_rm_wanted(&w->o->rm) && vl_rm_run(x, &w->o->rm, b, &w->rows, &w->rm, e))
        return e->code;
    if (vl_batch_col(b, "rm_scores"))
        (void)!vl_batch_need(b, "rm_scores", VL_F32, 1, &w->rows.R, &w->rows.rm_scores, e);
    return vl_comm_agree(&x->comm, e);
}

static void judge_metrics(struct vl_batch *b, const struct vl_judge_usage *u)
{
    vl_meta_metric(b, "reward/judge/answers", (double)u->answers);
    vl_meta_metric(b, "reward/judge/further_tries", (double)u->again);
    vl_meta_metric(b, "reward/judge/prompt_tokens", (double)u->prompt_tokens);
    vl_meta_metric(b, "reward/judge/completion_tokens", (double)u->completion_tokens);
}

static void free_scores(struct vl_score *s, int64_t n)
{
    for (int64_t k = 0; k < n && s; k++)
        vl_score_free(&s[k]);
    free(s);
}

int vl_stage_reward(struct vl_ctx *x, const void *opts, struct vl_err *e)
{
    const struct vl_reward_opts *o = opts;
    const int rm = vl_rm_wanted(&o->rm);
    const char *const replaced[] = { "token_level_scores",    "score", "acc", "reward_error",
                                     rm ? "rm_scores" : NULL, NULL };
    struct work w = { .x = x, .o = opts };
    struct vl_reward_how how = { .like = &w.rows, .scorer_given = has_scorer(o) };
    struct vl_reward_result res = { 0 };
    struct vl_batch b = { 0 };

    if (o->rules.n == 1 && !strcmp(o->rules.s[0], "help"))
        return x->comm.rank ? 0 : vl_reward_rules_help(x, e);
    if (check_options(&w, e))
        goto done;
    w.rows = (struct vl_reward_rows){ .keep_special = o->keep_special,
                                      .brief = vl_reward_brief(o),
                                      .args = w.args_line };
    how.rules = w.rules.n ? &w.rules : NULL;
    how.whole = w.mixed;
    if (vl_reward_stream_read(x, o, &how, &b, &w.early, e))
        goto done;
    vl_reward_drop_old(&b);
    vl_stage_replaces(x, &b, replaced);
    res.rm = rm;
    if (!x->comm.rank && o->overlong && !has_scorer(o) && (rm || vl_batch_col(&b, "rm_scores")))
        vl_warn(&x->log, "overlong_buffer_cfg.enable=true has no effect on scores that are the "
                         "column rm_scores, as in verl; with --jq .rm_score it has");
    if (!rm && !has_scorer(o) && vl_batch_col(&b, "rm_scores")) {
        if (!x->comm.rank)
            (void)!vl_reward_from_model(x, &b, &res, o->source_key, e);
    } else {
        if (prepare(x, &b, &w, e))
            goto done;
        if (!x->comm.rank && (o->filter || o->judge.request))
            vl_reward_warn_members(x, o, &w.rows);
        (void)!score_rows(&w, e);
        if (vl_comm_agree(&x->comm, e) ||
            vl_reward_collect(x, &w.rows, w.s, w.count, w.failed, &res, e))
            goto done;
        if (!x->comm.rank && !vl_reward_store(x, &b, &w.rows, &res, e) && o->judge.url)
            judge_metrics(&b, &w.usage);
    }
    if (!vl_comm_agree(&x->comm, e) && !vl_stage_write(x, &b, res.adds, rm ? w.rm.hash : NULL, e))
        vl_log_done(&x->log, b.rows, -1);
done:
    free_scores(w.s, w.count);
    free_scores(w.judge, w.count);
    free_scores(w.process, w.count);
    free(w.asked);
    free(w.args_line);
    vl_rule_set_free(&w.rules);
    vl_rm_free(&w.rm);
    vl_reward_result_free(&res);
    vl_reward_early_free(&w.early);
    vl_batch_free(&b);
    return e->code;
}
