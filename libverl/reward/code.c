/* code.c - the rule "code": a row's program against its test cases. See code.h.
 *
 * Cases are tasks: with many threads on many rows, those that have no row left run cases of the
 * others. What a row gets does not depend on that: where cases are skipped after a failure, only
 * those behind the first failing one are, and they do not count. */
#include "libverl/reward/code.h"

#include "libverl/base/log.h"
#include "libverl/reward/rules.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CASES = 10 };

static const char *const names[] = {
    [VL_CODE_WRONG] = "wrong answer",    [VL_CODE_TIME] = "timeout",
    [VL_CODE_MEMORY] = "memory",         [VL_CODE_OUTPUT] = "output limit",
    [VL_CODE_RUNTIME] = "runtime error", [VL_CODE_COMPILE] = "compile error",
};

/* How programs of each language are run; the file is in the working directory. */
static const struct {
    const char *program, *file, *command;
} how[] = {
    [VL_CODE_PYTHON] = { "python3", "main.py", "exec python3 -I -B main.py" },
    [VL_CODE_C] = { "cc", "main.c", "cc -O2 -w -o main main.c -lm || exit 120; exec ./main" },
    [VL_CODE_CXX] = { "c++", "main.cpp", "c++ -O2 -w -o main main.cpp || exit 120; exec ./main" },
    [VL_CODE_SHELL] = { "sh", "main.sh", "exec sh main.sh" },
    [VL_CODE_OTHER] = { "sh", "main", "exit 120" }, /* never without a command */
};

struct row {
    const struct vl_code_opts *o;
    const struct vl_code_args *a;
    const struct vl_code_cases *c;
    const char *code;
    size_t n;
    int64_t cases;
    int stop;        /* at the first case that does not pass */
    int64_t failing; /* the first one known */
    double deadline; /* 0: none */
    struct vl_code_outcome *out;
};

/* ---- one case here ---- */

char *vl_code_last_line(const char *s, size_t n)
{
    size_t from;

    while (n && (unsigned char)s[n - 1] <= ' ')
        n--;
    for (from = n; from && s[from - 1] != '\n';)
        from--;
    return n > from ? vl_strndup(s + from, n - from < 200 ? n - from : 200) : NULL;
}

static void say(struct vl_code_outcome *out, enum vl_code_verdict verdict, char *detail)
{
    out->verdict = verdict;
    out->detail = detail;
}

static int is_memory(const char *line)
{
    return line && (!strncmp(line, "MemoryError", 11) || strstr(line, "std::bad_alloc"));
}

/* What the end of the box means; VL_CODE_PASSED: the output decides. */
static void judge_end(const struct vl_box_result *r, struct vl_code_outcome *out)
{
    char *line = vl_code_last_line(r->err, r->err_n);

    if (r->end == VL_BOX_TIME)
        say(out, VL_CODE_TIME, NULL);
    else if (r->end == VL_BOX_MEMORY || (r->code && is_memory(line)))
        say(out, VL_CODE_MEMORY, NULL);
    else if (r->end == VL_BOX_OUTPUT)
        say(out, VL_CODE_OUTPUT, NULL);
    else if (r->end == VL_BOX_SIGNALED)
        say(out, VL_CODE_RUNTIME,
            vl_asprintf("killed by signal %d (%s)", r->code, strsignal(r->code)));
    else if (r->code == VL_CODE_NO_COMPILE)
        say(out, VL_CODE_COMPILE, line), line = NULL;
    else if (r->code)
        say(out, VL_CODE_RUNTIME, line ? line : vl_asprintf("status %d", r->code)), line = NULL;
    else
        say(out, VL_CODE_PASSED, NULL);
    free(line);
}

void vl_code_judge(const struct vl_code_args *a, const struct vl_code_cases *c, int64_t k,
                   const char *got, size_t n, struct vl_code_outcome *out)
{
    struct vl_buf want = { 0 };
    const char *s;
    int is;

    say(out, VL_CODE_PASSED, NULL);
    if (c->check[k] >= 0)
        return;
    if (c->fn)
        vl_code_case_value(c, k, &want);
    else
        vl_code_case_text(c, c->want[k], &want);
    s = want.n ? want.s : "";
    is = c->fn ? vl_code_same_value(got, n, s, want.n)
               : vl_code_same_text(got, n, s, want.n, a->exact > 0);
    if (!is)
        say(out, VL_CODE_WRONG,
            vl_asprintf("printed '%.*s', expected '%.*s'", (int)(n < 60 ? n : 60), got,
                        (int)(want.n < 60 ? want.n : 60), s));
    vl_buf_free(&want);
}

int vl_code_program(const struct vl_code_args *a, const struct vl_code_cases *c, const char *code,
                    size_t n, int64_t k, int bare, struct vl_buf *out, struct vl_err *e)
{
    struct vl_buf src = { 0 }, args = { 0 };

    vl_buf_add(&src, code, n);
    if (c->check[k] >= 0) {
        vl_buf_ch(&src, '\n');
        vl_code_case_text(c, c->check[k], &src);
    }
    if (c->fn && vl_code_case_args(c, k, &args, e))
        ;
    else if (a->language == VL_CODE_PYTHON && (c->fn || !bare))
        vl_code_python(out, src.n ? src.s : "", src.n, c->fn, &args);
    else
        vl_buf_add(out, src.n ? src.s : "", src.n);
    vl_buf_free(&src);
    vl_buf_free(&args);
    return e->code;
}

static void run_case(const struct row *w, int64_t k, struct vl_code_outcome *out)
{
    const char *const argv[] = { "sh", "-c",
                                 w->o->command ? w->o->command : how[w->a->language].command,
                                 NULL };
    struct vl_box_file file = { .name = w->o->file ? w->o->file : how[w->a->language].file };
    struct vl_box_job job = { .argv = argv, .files = &file, .nfiles = 1 };
    struct vl_buf program = { 0 }, in = { 0 };
    struct vl_box_opts limits = w->o->box;
    struct vl_box_result r = { 0 };
    struct vl_err e = { 0 };

    if (w->deadline && w->deadline - vl_now() < limits.seconds)
        limits.seconds = w->deadline - vl_now();
    if (!w->c->fn)
        vl_code_case_text(w->c, w->c->in[k], &in);
    job.in = in.n ? in.s : "";
    job.in_n = in.n;
    if (!vl_code_program(w->a, w->c, w->code, w->n, k, 0, &program, &e)) {
        file.data = program.n ? program.s : "";
        file.n = program.n;
        if (limits.seconds <= 0)
            say(out, VL_CODE_TIME, vl_strdup("the row's time was used up before"));
        else if (!vl_box_run(&limits, &job, &r, &e))
            judge_end(&r, out);
    }
    if (e.code)
        say(out, VL_CODE_BROKEN, vl_strdup(e.msg));
    else if (out->verdict == VL_CODE_PASSED)
        vl_code_judge(w->a, w->c, k, r.out.n ? r.out.s : "", r.out.n, out);
    vl_box_result_free(&r);
    vl_buf_free(&program);
    vl_buf_free(&in);
}

/* A case as a task. */
static void run_unless_failed(struct row *w, int64_t k)
{
    int64_t failing;

#pragma omp atomic read
    failing = w->failing;
    if (w->stop && failing < k)
        return;
    run_case(w, k, &w->out[k]);
    if (w->out[k].verdict == VL_CODE_PASSED)
        return;
#pragma omp critical(vl_code_failing)
    if (k < w->failing) {
#pragma omp atomic write
        w->failing = k;
    }
}

static void run_here(struct row *w)
{
    w->failing = w->cases;
    if (w->o->row_seconds > 0)
        w->deadline = vl_now() + w->o->row_seconds;
#pragma omp taskgroup
    for (int64_t k = 0; k < w->cases; k++) {
#pragma omp task firstprivate(k) shared(w)
        run_unless_failed(w, k);
    }
}

/* ---- a row ---- */

static void put_failure(struct vl_buf *b, const char *what, int64_t k, const char *detail)
{
    char at[32];

    vl_buf_str(b, ",\"code_failure\":");
    if (!what) {
        vl_buf_str(b, "null,\"code_detail\":null");
        return;
    }
    vl_json_put_str(b, what, strlen(what));
    vl_buf_str(b, ",\"code_detail\":");
    snprintf(at, sizeof at, "case %" PRId64 "%s", k, detail ? ": " : "");
    if (k >= 0) {
        char *all = vl_asprintf("%s%s", at, detail ? detail : "");

        vl_json_put_str(b, all, strlen(all));
        free(all);
    } else {
        vl_buf_str(b, "null");
    }
}

/* The score and its columns from the cases' outcomes. */
static void settle(const struct row *w, struct vl_score *score)
{
    int64_t passed = 0, first = -1;
    int builds = 1;
    struct vl_buf members = { 0 };

    for (int64_t k = 0; k < w->cases && !(w->stop && first >= 0); k++) {
        const struct vl_code_outcome *o = &w->out[k];

        if (o->verdict == VL_CODE_BROKEN || o->verdict == VL_CODE_SKIPPED) {
            vl_score_fail(score, "case %" PRId64 ": %s", k,
                          o->detail ? o->detail : "the sandbox service was not asked");
            return;
        }
        if (o->verdict != VL_CODE_PASSED && first < 0)
            first = k;
        builds &= o->verdict != VL_CODE_COMPILE; /* no case behind such a one counts */
        passed += o->verdict == VL_CODE_PASSED && builds;
    }
    vl_score_set(score, w->a->pass_fraction ? (double)passed / (double)w->cases : first < 0);
    vl_buf_printf(&members, "\"code_passed\":%" PRId64 ",\"code_cases\":%" PRId64, passed,
                  w->cases);
    put_failure(&members, first < 0 ? NULL : names[w->out[first].verdict], first,
                first < 0 ? NULL : w->out[first].detail);
    vl_score_add(score, members.s);
    vl_buf_free(&members);
}

static void no_code(struct vl_score *score)
{
    struct vl_buf members = { 0 };

    vl_score_set(score, 0);
    vl_buf_str(&members, "\"code_passed\":0,\"code_cases\":0");
    put_failure(&members, "no code", -1, NULL);
    vl_score_add(score, members.s);
    vl_buf_free(&members);
}

/* All, or those of --args, or the first ten where a fraction is the score. */
int64_t vl_code_cases_run(const struct vl_code_args *a, const struct vl_code_cases *c)
{
    double most = isnan(a->cases) ? (a->pass_fraction ? FIRST_CASES : 0) : a->cases;

    return most > 0 && most < (double)c->n ? (int64_t)most : c->n;
}

void vl_code_outcomes_free(struct vl_code_outcome *o, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        free(o[k].detail);
    free(o);
}

/* Runs the cases here and now. */
static void score_here(struct row *w, struct vl_score *score)
{
    w->out = vl_alloc((size_t)w->cases * sizeof *w->out);
    run_here(w);
    settle(w, score);
    vl_code_outcomes_free(w->out, w->cases);
}

/* The service has been asked before. */
static void score_asked(struct row *w, const struct vl_code_answers *a, struct vl_score *score)
{
    w->out = a->of;
    if (a->n == w->cases)
        settle(w, score);
    else
        vl_score_fail(score, "the sandbox service was not asked");
}

void vl_score_code(const struct vl_rule_in *in, struct vl_score *score)
{
    struct row w = { .o = in->code_opts, .a = &in->args->code };
    struct vl_code_cases cases = { 0 };
    struct vl_err e = { 0 };

    if (!w.o) {
        vl_score_fail(score, "there is no sandbox to run programs in");
    } else if (vl_code_cases_open(&cases, in->truth, in->truth_n, &e)) {
        vl_score_fail(score, "%s", e.msg);
    } else if (cases.fn && w.a->language != VL_CODE_PYTHON) {
        vl_score_fail(score, "fn_name: functions are called in Python only, language is %s",
                      vl_code_language_name((int)w.a->language));
    } else if (!vl_code_extract(in->text, in->n, w.a, w.o->url != NULL, &w.code, &w.n)) {
        no_code(score);
    } else {
        w.c = &cases;
        w.cases = vl_code_cases_run(w.a, &cases);
        w.stop = !w.a->pass_fraction;
        if (!w.o->url)
            score_here(&w, score);
        else if (in->answers)
            score_asked(&w, in->answers, score);
        else
            vl_score_fail(score, "the sandbox service was not asked");
    }
    vl_code_cases_free(&cases);
}

int vl_code_check(const struct vl_code_opts *o, const struct vl_code_args *a, struct vl_err *e)
{
    if (o->url && (a->language == VL_CODE_C || a->language == VL_CODE_OTHER))
        return vl_fail(e, VL_E_USAGE,
                       "--args: language is \"%s\", which a sandbox fusion service has not; give "
                       "\"python\", \"c++\" or \"sh\"",
                       vl_code_language_name((int)a->language));
    if (a->language == VL_CODE_OTHER && !o->command)
        return vl_fail(e, VL_E_USAGE,
                       "--args: language is \"other\": say how to run it by --code-command");
    if (o->url)
        return 0;
    return vl_box_check(&o->box, o->command ? "sh" : how[a->language].program, e);
}
