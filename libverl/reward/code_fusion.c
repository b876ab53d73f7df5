/* code_fusion.c - programs run by a sandbox fusion service: the run_code call, as verl makes it.
 *
 * One request a case, over all rows at once, so that a row with few cases leaves no connection
 * idle. A case the service could not run is BROKEN: verl gives it no point, here the row has no
 * score. */
#include "libverl/reward/code.h"

#include "libverl/base/http.h"
#include "libverl/reward/rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { API_SECONDS = 10 }; /* for the way there and back, beside compiling and running */

struct open_row { /* from its first request to its last answer */
    struct vl_code_cases c;
    struct vl_code_args a;
    char *code;
    size_t n;
    int64_t waiting; /* cases without answer */
    int64_t failing; /* lowest case that did not pass; its number of cases: none */
    int no_compile;
    char **body; /* of each case's request, while it is under way */
};

struct ask {
    const struct vl_code_opts *o;
    const struct vl_code_rows *io;
    struct vl_code_answers *answers;
    int64_t rows, *first; /* requests first[i]..first[i+1]-1 are row i's; rows + 1 entries */
    struct open_row **row;
};

/* The row's code and cases. 0: nothing to ask for it; the rule says why when it scores the row. */
static int open_row(const struct ask *q, int64_t i, struct open_row *r)
{
    struct vl_rule_in in = { 0 };
    struct vl_err ignored = { 0 };
    const char *code;

    *r = (struct open_row){ 0 };
    if (!q->io->row(q->io->arg, i, &in) ||
        vl_code_cases_open(&r->c, in.truth, in.truth_n, &ignored) ||
        (r->c.fn && in.args->code.language != VL_CODE_PYTHON) ||
        !vl_code_extract(in.text, in.n, &in.args->code, 1, &code, &r->n)) {
        vl_code_cases_free(&r->c);
        return 0;
    }
    r->a = in.args->code;
    r->a.exact = r->a.exact != 0; /* as verl compares what its service gives */
    r->code = vl_strndup(code, r->n);
    r->waiting = r->failing = vl_code_cases_run(&r->a, &r->c);
    r->body = vl_alloc((size_t)r->waiting * sizeof *r->body);
    return 1;
}

static void close_row(struct open_row *r, int64_t cases)
{
    for (int64_t k = 0; k < cases; k++)
        free(r->body[k]);
    free(r->body);
    vl_code_cases_free(&r->c);
    free(r->code);
}

static int64_t row_of(const struct ask *q, int64_t k)
{
    int64_t lo = 0, hi = q->rows;

    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;

        if (q->first[mid] <= k)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* ---- requests ---- */

static const char *service_language(enum vl_code_language l)
{
    return l == VL_CODE_PYTHON ? "python" : l == VL_CODE_SHELL ? "bash" : "cpp";
}

static int write_request(const struct ask *q, const struct open_row *r, int64_t k,
                         struct vl_buf *out, struct vl_err *e)
{
    struct vl_buf program = { 0 }, in = { 0 };

    if (!vl_code_program(&r->a, &r->c, r->code, r->n, k, 1, &program, e)) {
        if (!r->c.fn)
            vl_code_case_text(&r->c, r->c.in[k], &in);
        vl_buf_printf(out, "{\"compile_timeout\":%.0f,\"run_timeout\":%.0f,\"code\":",
                      ceil(q->o->box.seconds), ceil(q->o->box.seconds));
        vl_json_put_str(out, program.n ? program.s : "", program.n);
        vl_buf_str(out, ",\"stdin\":");
        vl_json_put_str(out, in.n ? in.s : "", in.n);
        vl_buf_printf(out,
                      ",\"memory_limit_MB\":%lld,\"language\":\"%s\",\"files\":{},"
                      "\"fetch_files\":[]}",
                      (long long)(q->o->box.memory >> 20), service_language(r->a.language));
    }
    vl_buf_free(&program);
    vl_buf_free(&in);
    return e->code;
}

static void broken(struct vl_code_outcome *out, const char *fmt, const char *what, int n)
{
    out->verdict = VL_CODE_BROKEN;
    out->detail = vl_asprintf(fmt, n, what);
}

static void answered(struct ask *q, int64_t i)
{
    if (--q->row[i]->waiting)
        return;
    close_row(q->row[i], q->answers[i].n);
    free(q->row[i]);
    q->row[i] = NULL;
}

/* ---- answers ---- */

static int is(const struct vl_json *j, int64_t i, const char *text)
{
    return vl_json_is(j, i, VL_JSON_STRING) && vl_json_streq(j, i, text);
}

/* Whether compile_result or run_result tells of a failure. */
static int went_wrong(const struct vl_json *j, int64_t result, int *late)
{
    int64_t status = vl_json_get(j, result, "status"), code = 0;

    *late = is(j, status, "TimeLimitExceeded");
    return *late || is(j, status, "Error") ||
           (is(j, status, "Finished") &&
            vl_json_i64(j, vl_json_get(j, result, "return_code"), &code) && code != 0);
}

static char *last_error(const struct vl_json *j, int64_t result)
{
    struct vl_buf text = { 0 };
    char *line;

    vl_json_str(j, vl_json_get(j, result, "stderr"), &text);
    line = vl_code_last_line(text.n ? text.s : "", text.n);
    vl_buf_free(&text);
    return line;
}

static void read_answer(const struct open_row *r, int64_t k, const struct vl_json *j, const char *s,
                        size_t n, struct vl_code_outcome *out)
{
    int64_t status = vl_json_get(j, 0, "status"), run = vl_json_get(j, 0, "run_result");
    int64_t compile = vl_json_get(j, 0, "compile_result");
    struct vl_buf text = { 0 };
    int late;

    if (is(j, status, "Success") && is(j, vl_json_get(j, run, "status"), "Finished")) {
        vl_json_str(j, vl_json_get(j, run, "stdout"), &text);
        vl_code_judge(&r->a, &r->c, k, text.n ? text.s : "", text.n, out);
    } else if (is(j, status, "Failed") && went_wrong(j, compile, &late)) {
        out->verdict = VL_CODE_COMPILE;
        out->detail = last_error(j, compile);
    } else if (is(j, status, "Failed") && went_wrong(j, run, &late)) {
        out->verdict = late ? VL_CODE_TIME : VL_CODE_RUNTIME;
        out->detail = last_error(j, run);
    } else {
        vl_json_str(j, vl_json_get(j, 0, "message"), &text);
        if (is(j, status, "SandboxError") && text.n)
            broken(out, "the sandbox service failed: %.*s", text.s,
                   (int)(text.n < 200 ? text.n : 200));
        else
            broken(out, "the sandbox service answered %.*s, not the result of a run", s,
                   (int)(n < 100 ? n : 100));
    }
    vl_buf_free(&text);
}

static int on_request(void *arg, int64_t k, struct vl_http_req *req)
{
    struct ask *q = arg;
    int64_t i = row_of(q, k), c = k - q->first[i];
    struct vl_code_outcome *out = &q->answers[i].of[c];
    struct vl_buf body = { 0 };
    struct vl_err e = { 0 };
    struct open_row *r;

    if (!q->row[i]) { /* its first request: they come in order */
        q->row[i] = vl_alloc(sizeof *q->row[i]);
        (void)!open_row(q, i, q->row[i]);
    }
    r = q->row[i];
    if (r->no_compile)
        out->verdict = VL_CODE_COMPILE;
    else if (!(!r->a.pass_fraction && r->failing < c) && write_request(q, r, c, &body, &e))
        broken(out, "%.*s", e.msg, (int)strlen(e.msg));
    if (!body.n) {
        vl_buf_free(&body);
        answered(q, i);
        return 1;
    }
    req->n = body.n;
    req->url = q->o->url;
    req->body = r->body[c] = vl_buf_detach(&body);
    return 0;
}

static int on_answer(void *arg, int64_t k, const struct vl_http_answer *a)
{
    struct ask *q = arg;
    int64_t i = row_of(q, k), c = k - q->first[i];
    struct vl_code_outcome *out = &q->answers[i].of[c];
    struct open_row *r = q->row[i];
    struct vl_json j = { 0 };
    struct vl_err ignored = { 0 };

    if (a->why)
        broken(out, "the sandbox service: %.*s", a->why, (int)strlen(a->why));
    else if (vl_json_parse(&j, a->body, a->n, "answer", &ignored))
        broken(out, "the sandbox service answered %.*s, not JSON", a->body,
               (int)(a->n < 100 ? a->n : 100));
    else
        read_answer(r, c, &j, a->body, a->n, out);
    vl_json_free(&j);
    if (out->verdict != VL_CODE_PASSED && c < r->failing)
        r->failing = c;
    r->no_compile |= out->verdict == VL_CODE_COMPILE;
    answered(q, i);
    return q->o->give_up && out->verdict == VL_CODE_BROKEN;
}

/* ---- all ---- */

/* Opens each row once to see how many cases it has. */
static void count_cases(struct ask *q)
{
    struct open_row r;

    for (int64_t i = 0; i < q->rows; i++) {
        struct vl_code_answers *a = &q->answers[i];

        if (open_row(q, i, &r)) {
            a->n = r.waiting;
            a->of = vl_alloc((size_t)a->n * sizeof *a->of);
            close_row(&r, a->n);
        }
        q->first[i + 1] = q->first[i] + a->n;
    }
}

/* A row without cases shares its number with the next: row_of() finds the last of equals. */
int vl_code_ask(const struct vl_code_opts *o, int64_t rows, const struct vl_code_rows *io,
                struct vl_code_answers *answers, struct vl_err *e)
{
    struct ask q = { .o = o, .io = io, .answers = answers, .rows = rows };
    const struct vl_http_io http = { &q, on_request, on_answer };
    struct vl_http_opts opts = VL_HTTP_DEFAULTS;
    struct vl_http_stats stats;

    q.first = vl_alloc((size_t)(rows + 1) * sizeof *q.first);
    q.row = vl_alloc((size_t)rows * sizeof *q.row);
    count_cases(&q);
    opts.concurrent = o->concurrent;
    opts.tries = 3;
    opts.retry_on = VL_HTTP_ON_504 | VL_HTTP_ON_429 | VL_HTTP_ON_CONNECT;
    opts.timeout = 2 * ceil(o->box.seconds) + API_SECONDS;
    opts.total = 4 * opts.timeout;
    opts.max_body = (size_t)o->box.output * 6 + (1 << 20); /* every byte may be written as \u00XX */
    (void)!vl_http_run(&opts, q.first[rows], &http, &stats, e);
    for (int64_t i = 0; i < rows; i++)
        if (q.row[i]) { /* given up */
            close_row(q.row[i], answers[i].n);
            free(q.row[i]);
        }
    free(q.row);
    free(q.first);
    return e->code;
}
