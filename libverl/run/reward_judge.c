/* reward_judge.c - rows scored by a generative judge. See reward_judge.h.
 *
 * Three passes: a filter makes each row's request, the requests are made, a filter makes a score of
 * each answer. Filters are the user's and run in processes of their own, as scorers do. One rank
 * makes all requests: waiting needs no cpus, and the limits then hold for the whole stage. */
#include "libverl/run/reward_process.h"

#include "formats/json.h"
#include "libverl/base/http.h"
#include "libverl/base/jq.h"
#include "libverl/reward/judge.h"
#include "libverl/reward/scorers.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct judge {
    struct vl_ctx *x;
    const struct vl_reward_opts *o;
    const struct vl_reward_job *job;
    struct vl_judge_usage *u;
    char *url;
    char **body;         /* (nasked) a row's request, then the server's whole answer */
    struct vl_buf *text; /* (nasked) what the judge wrote */
    int64_t done;
    int failed; /* some row has, under --on-error fail */
};

static int is_chat(const struct vl_judge_opts *o)
{
    return !strcmp(o->path, "chat/completions");
}

static struct vl_score *score_of(const struct judge *p, int64_t k)
{
    return &p->job->s[p->job->asked[k] - p->job->first];
}

/* 1: under --on-error fail nothing behind row k matters any more. */
static int refuse(struct judge *p, int64_t k, const char *why)
{
    vl_score_fail(score_of(p, k), "%s", why);
    p->failed |= !strcmp(vl_reward_policy(p->x, p->o), "fail");
    return !strcmp(vl_reward_policy(p->x, p->o), "fail");
}

/* ---- filters ---- */

static int run_filter(struct judge *p, const char *filter, const struct vl_scorers_io *io,
                      struct vl_err *e)
{
    const struct vl_reward_opts *o = p->o;
    struct vl_scorers_opts so = { .filter = filter, .args = o->args, .timeout = o->timeout };
    struct vl_scorers_stats st;
    int64_t n = p->job->nasked;

    so.workers = (int)(o->workers ? o->workers : p->x->comm.threads);
    if (so.workers > n)
        so.workers = n ? (int)n : 1;
    so.memory = (o->memory != VL_NULL_I64 ? o->memory : 1024) * 1024 * 1024;
    return vl_scorers_run(&so, n, io, &st, e);
}

static void request_line(void *arg, int64_t k, struct vl_buf *out)
{
    struct judge *p = arg;

    vl_reward_line(p->job->rows, p->job->asked[k], k, out);
}

/* {"id":K,"request":{...}} or {"id":K,"error":TEXT}. */
static int take_request(void *arg, int64_t k, const char *json, size_t n, const char *why)
{
    struct judge *p = arg;
    struct vl_score s = { 0 };
    struct vl_err ignored = { 0 };
    struct vl_buf body = { 0 };
    struct vl_json j = { 0 };
    int64_t at = -1;
    int stop = 0;

    if (json && !vl_json_parse(&j, json, n, "request", &ignored))
        at = vl_json_get(&j, 0, "request");
    if (at >= 0) {
        vl_json_raw(&j, at, &body);
        free(p->body[k]);
        p->body[k] = vl_buf_detach(&body);
        vl_score_free(score_of(p, k));
    } else {
        if (json)
            vl_score_parse(&s, json, n);
        stop = refuse(p, k, why ? why : s.why ? s.why : "--judge-request gave no request");
        vl_score_free(&s);
    }
    vl_json_free(&j);
    return stop;
}

/* The row with what the judge said: {...,"judge_text":TEXT,"judge":ANSWER}. */
static void answer_line(void *arg, int64_t k, struct vl_buf *out)
{
    struct judge *p = arg;

    if (!p->body[k]) { /* the request failed: the pool asks all rows, this one for nothing */
        vl_buf_printf(out, "{\"id\":%" PRId64 "}\n", k);
        return;
    }
    vl_reward_line(p->job->rows, p->job->asked[k], k, out);
    out->n -= 2; /* }\n */
    if (is_chat(&p->o->judge)) {
        vl_buf_str(out, ",\"judge_text\":");
        vl_json_put_str(out, p->text[k].s, p->text[k].n);
    }
    vl_buf_printf(out, ",\"judge\":%s}\n", p->body[k]);
}

static void keep_text(struct judge *p, int64_t k)
{
    struct vl_buf b = { 0 };

    vl_buf_str(&b, "\"judge_text\":");
    vl_json_put_str(&b, p->text[k].s, p->text[k].n);
    vl_score_add(score_of(p, k), b.s);
    vl_buf_free(&b);
}

static int take_score(void *arg, int64_t k, const char *json, size_t n, const char *why)
{
    struct judge *p = arg;
    struct vl_score *s = score_of(p, k);

    if (!p->body[k])
        return 0;
    if (json)
        vl_score_parse(s, json, n);
    if (!json || s->why) {
        char *line = vl_strdup(json ? s->why : why);

        (void)refuse(p, k, line);
        free(line);
    }
    if (is_chat(&p->o->judge))
        keep_text(p, k);
    return s->why && !strcmp(vl_reward_policy(p->x, p->o), "fail");
}

/* ---- requests ---- */

static int ask(void *arg, int64_t k, struct vl_http_req *q)
{
    struct judge *p = arg;

    if (!p->body[k])
        return 1;
    *q = (struct vl_http_req){ p->url, p->body[k], strlen(p->body[k]) };
    return 0;
}

/* The answer on one line, since it becomes part of one. */
static char *one_line(const char *s, size_t n)
{
    char *line = vl_strndup(s, n);

    for (char *c = line; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    return line;
}

static int take_answer(void *arg, int64_t k, const struct vl_http_answer *h)
{
    struct judge *p = arg;
    struct vl_judge_answer a = { 0 };
    int stop = 0;

    vl_progress(&p->x->log, "rows", ++p->done, p->job->nasked, NULL);
    free(p->body[k]);
    p->body[k] = NULL;
    if (!h->why)
        (is_chat(&p->o->judge) ? vl_judge_read : vl_judge_read_any)(&a, h->body, h->n);
    p->u->prompt_tokens += a.prompt_tokens;
    p->u->completion_tokens += a.completion_tokens;
    if (h->why || a.why) {
        stop = refuse(p, k, h->why ? h->why : a.why);
    } else {
        p->body[k] = one_line(h->body, h->n);
        p->text[k] = a.text;
        a.text = (struct vl_buf){ 0 };
    }
    vl_judge_answer_free(&a);
    return stop;
}

static double per_second(const struct vl_judge_opts *o)
{
    double rate = 0;

    if (o->rpm > 0)
        rate = o->rpm / 60;
    if (o->tpm > 0 && o->estimated > 0 &&
        (!(rate > 0) || o->tpm / 60 / (double)o->estimated < rate))
        rate = o->tpm / 60 / (double)o->estimated;
    return rate;
}

static int make_requests(struct judge *p, struct vl_err *e)
{
    const struct vl_judge_opts *o = &p->o->judge;
    const struct vl_http_io io = { p, ask, take_answer };
    struct vl_http_opts h = VL_HTTP_DEFAULTS;
    struct vl_http_stats st;
    double start = vl_now();

    h.concurrent = (int)o->concurrent;
    h.per_second = per_second(o);
    h.timeout = o->try_timeout;
    h.total = o->timeout;
    h.tries = (int)o->retries + 1;
    h.key_env = o->key_env;
    if (vl_http_run(&h, p->job->nasked, &io, &st, e))
        return e->code;
    p->u->answers = st.answered;
    p->u->again = st.again;
    vl_info(&p->x->log,
            "judge: %" PRId64 " answers, %" PRId64 " failures, %" PRId64 " further tries, %" PRId64
            " + %" PRId64 " tokens, %.1f s",
            st.answered, st.failed, st.again, p->u->prompt_tokens, p->u->completion_tokens,
            vl_now() - start);
    return 0;
}

/* ---- all of it ---- */

static int check_filter(const char *filter, const char *option, const char *args, struct vl_err *e)
{
    struct vl_jq *q = NULL;

    if (filter && vl_jq_open(&q, filter, args, e))
        vl_err_prefix(e, "%s", option);
    vl_jq_free(q);
    return e->code;
}

/* Provenance says which filters were used, also where they are the built-in ones. */
static void record(struct vl_ctx *x, const char *const *option, const char *filter)
{
    struct vl_buf b = { 0 };

    if (*option)
        return;
    vl_json_put_str(&b, filter, strlen(filter));
    vl_parsed_effective(x->parsed, option, b.s);
    vl_buf_free(&b);
}

int vl_judge_check(struct vl_ctx *x, const struct vl_reward_opts *o, struct vl_err *e)
{
    const struct vl_judge_opts *j = &o->judge;
    struct vl_http_opts h = VL_HTTP_DEFAULTS;
    struct vl_http_stats st;
    struct vl_json params = { 0 };
    const char *text = j->params ? j->params : "{}";

    if (vl_http_check_url(j->url, "--judge", e) ||
        check_filter(j->request, "--judge-request", o->args, e) ||
        check_filter(j->filter, "--judge-filter", o->args, e))
        return e->code;
    if (!j->model || !*j->model)
        return vl_fail(e, VL_E_USAGE,
                       "--judge needs the model's name at that server: give --judge-model NAME");
    if (!is_chat(j) && !(j->request && j->filter))
        return vl_fail(e, VL_E_USAGE,
                       "--judge-endpoint %s: give --judge-request and --judge-filter, which are "
                       "built in for chat/completions only",
                       j->path);
    if (vl_json_parse(&params, text, strlen(text), "--judge-params", e))
        e->code = VL_E_USAGE;
    else if (!vl_json_is(&params, 0, VL_JSON_OBJECT))
        vl_fail(e, VL_E_USAGE,
                "--judge-params is %.80s; give a JSON object such as {\"temperature\": 0, "
                "\"max_tokens\": 512}",
                text);
    vl_json_free(&params);
    h.key_env = j->key_env;
    if (e->code || vl_http_run(&h, 0, NULL, &st, e)) /* before a rollout has been waited for */
        return e->code;
    record(x, &j->request, vl_judge_default_request);
    record(x, &j->filter, vl_judge_default_filter);
    return 0;
}

/* The base URL and the path, which it may end with already. */
static char *endpoint(const struct vl_judge_opts *o)
{
    const char *path = o->path + strspn(o->path, "/");
    size_t n = strlen(o->url), m = strlen(path);

    while (n && o->url[n - 1] == '/')
        n--;
    if (n > m && o->url[n - m - 1] == '/' && !memcmp(o->url + n - m, path, m))
        return vl_strndup(o->url, n);
    return vl_asprintf("%.*s/%s", (int)n, o->url, path);
}

int vl_judge_rows(struct vl_ctx *x, const struct vl_reward_opts *o, const struct vl_reward_job *job,
                  struct vl_judge_usage *u, struct vl_err *e)
{
    const char *filter = o->judge.filter ? o->judge.filter : vl_judge_default_filter;
    struct judge p = { .x = x, .o = o, .job = job, .u = u };
    const struct vl_scorers_io first = { .arg = &p, .line = request_line, .answer = take_request };
    const struct vl_scorers_io last = { .arg = &p, .line = answer_line, .answer = take_score };
    char *program;

    if (!job->nasked)
        return 0;
    program = vl_judge_program(o->judge.request ? o->judge.request : vl_judge_default_request,
                               o->judge.model,
                               o->judge.params      ? o->judge.params
                               : is_chat(&o->judge) ? "{\"temperature\": 0}"
                                                    : "{}");
    p.url = endpoint(&o->judge);
    p.body = vl_alloc((size_t)job->nasked * sizeof *p.body);
    p.text = vl_alloc((size_t)job->nasked * sizeof *p.text);
    if (!run_filter(&p, program, &first, e) && !p.failed && !make_requests(&p, e) && !p.failed)
        (void)!run_filter(&p, filter, &last, e);
    for (int64_t k = 0; k < job->nasked; k++) {
        free(p.body[k]);
        vl_buf_free(&p.text[k]);
    }
    free(p.body);
    free(p.text);
    free(p.url);
    free(program);
    return e->code;
}
