/* test_scorers.c - scorer processes: every way to misbehave, at several worker counts, and none left. */
#include "libverl/reward/scorers.h"
#include "libverl/reward/score.h"
#include "libverl/base/log.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROWS 12

struct scene {
    struct vl_score got[ROWS];
    int calls[ROWS];
    int stop_on_failure;
    size_t pad; /* further bytes a line */
};

static void line(void *arg, int64_t row, struct vl_buf *out)
{
    struct scene *s = arg;

    vl_buf_printf(out, "{\"id\":%" PRId64 ",\"x\":%" PRId64 ",\"pad\":\"", row, row * 2);
    for (size_t i = 0; i < s->pad; i++)
        vl_buf_ch(out, 'p');
    vl_buf_str(out, "\"}\n");
}

static int answer(void *arg, int64_t row, const char *json, size_t n, const char *why)
{
    struct scene *s = arg;

    s->calls[row]++;
    if (json)
        vl_score_parse(&s->got[row], json, n);
    else
        vl_score_fail(&s->got[row], "%s", why);
    return s->stop_on_failure && s->got[row].why;
}

static void clear(struct scene *s)
{
    for (int i = 0; i < ROWS; i++)
        vl_score_free(&s->got[i]);
    memset(s->calls, 0, sizeof s->calls);
}

static int run(struct scene *s, const struct vl_scorers_opts *o, struct vl_scorers_stats *st,
               struct vl_err *e)
{
    const struct vl_scorers_io io = { .arg = s, .line = line, .answer = answer };
    int rc;

    clear(s);
    *e = (struct vl_err){ 0 };
    rc = vl_scorers_run(o, ROWS, &io, st, e);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    return rc;
}

/* Row `odd` has no score for a reason that holds `why`; every other row r scores r * 2. */
static void expect_of(const char *command, const char *filter, int once, int odd, const char *why)
{
    int hangs = strstr(why, "no answer") || strstr(why, "did not end");

    for (int workers = hangs ? 3 : 1; workers <= 3; workers += 2) {
        double limit = hangs ? 1.5 : 20; /* a loaded machine starts sh slowly */
        const char *const argv[] = { "/bin/sh", "-c", command, NULL };
        struct vl_scorers_opts o = {
            command ? argv : NULL, filter, NULL, once, workers, limit, 0, 0
        };
        struct scene s = { 0 };
        struct vl_scorers_stats st;
        struct vl_err e;

        if (run(&s, &o, &st, &e))
            fail_msg("%s: %s", command ? command : filter, e.msg);
        for (int i = 0; i < ROWS; i++) {
            if (i == odd && (!s.got[i].why || !strstr(s.got[i].why, why)))
                fail_msg("%s (%d workers) row %d: %s, wanted %s", command ? command : filter,
                         workers, i, s.got[i].why ? s.got[i].why : "scored", why);
            if (i != odd && (s.got[i].why || s.got[i].score != 2 * i))
                fail_msg("%s (%d workers) row %d: %g %s", command ? command : filter, workers, i,
                         s.got[i].score, s.got[i].why ? s.got[i].why : "");
        }
        clear(&s);
    }
}

static void expect(const char *command, const char *filter, int odd, const char *why)
{
    expect_of(command, filter, 0, odd, why);
}

/* A scorer in shell: reads lines; $x is the row's number. What it does for row 5 is `odd`. */
#define SH(odd, other)                                                                             \
    "while read -r l; do x=${l#*x\\\":}; x=${x%%,*}; if [ $x = 10 ]; then " odd "; else " other    \
    "; fi; done"
#define PLAIN   "echo $x"
#define SED     "sed -u 's/.*\"x\":\\([0-9]*\\),.*/\\1/'"
#define WITH_ID "echo \"{\\\"id\\\":$((x / 2)),\\\"score\\\":$x}\""

static void well_behaved(void **state)
{
    (void)state;
    expect(SH(PLAIN, PLAIN), NULL, -1, "");
    expect(SH(WITH_ID, WITH_ID), NULL, -1, "");
    expect(NULL, ".x", -1, "");
    expect(NULL, "{score: .x, pred: \"a\"}", -1, "");
    /* one process a row */
    expect("read -r l; x=${l#*x\\\":}; echo ${x%%,*}", NULL, -1, "");
}

static void one_row_goes_wrong(void **state)
{
    (void)state;
    expect(SH("kill -9 $$", PLAIN), NULL, 5, "was killed by signal 9");
    expect(SH("kill -9 $$", WITH_ID), NULL, 5, "was killed by signal 9");
    expect(SH("exit 3", PLAIN), NULL, 5, "ended with status 3 before it answered");
    expect(SH("exit 0", PLAIN), NULL, 5, "ended with status 0");
    expect(SH("printf 1; exit 0", PLAIN), NULL, 5, "with a whole line");
    expect(SH("echo oops", PLAIN), NULL, 5, "answered oops");
    expect(SH("echo NaN", WITH_ID), NULL, 5, "answered NaN");
    expect(SH("echo", PLAIN), NULL, 5, "answered an empty line");
    expect(SH("echo 1; echo 2", PLAIN), NULL, 5, "more than one line");
    expect(SH("echo 1; sleep 0.05; echo 2", PLAIN), NULL, 5, "more than one line");
    expect(SH(WITH_ID ";" WITH_ID, WITH_ID), NULL, 5, "more than one line");
    expect(SH("true", WITH_ID), NULL, 5, "answered the next row");
    expect(SH("echo '{\"id\":77,\"score\":1}'", PLAIN), NULL, 5, "id 77");
    expect(SH("sleep 9", PLAIN), NULL, 5, "no answer within 1.5 s");
    expect(SH("sleep 9", WITH_ID), NULL, 5, "no answer within 1.5 s");
    expect(SH("exec >&-; sleep 9", PLAIN), NULL, 5, "closed its output");
}

static void filters_go_wrong(void **state)
{
    (void)state;
    expect(NULL, "if .x == 10 then error(\"bad row\") else .x end", 5, "bad row");
    expect(NULL, "if .x == 10 then empty else .x end", 5, "gave no result");
    expect(NULL, "if .x == 10 then 1, 2 else .x end", 5, "gave several results");
    expect(NULL, "if .x == 10 then nan else .x end", 5, "NaN");
    expect(NULL, "if .x == 10 then \"7\" else .x end", 5, "not a number");
    expect(NULL, "if .x == 10 then last(range(1e18)) else .x end", 5, "no answer within");
    expect(NULL, "if .x == 10 then halt else .x end", 5, "gave no result");
    expect(NULL,
           "if .x == 10 then (env | length | if . > 0 then 1 else error(\"no env\") end) "
           "else .x end",
           5, "no env");
}

static void memory_is_limited(void **state)
{
    struct vl_scorers_opts o = {
        NULL, "if .x == 10 then [limit(1e8; repeat(\"x\" * 1000))] | length else .x end",
        NULL, 0,
        1,    20,
        0,    100 << 20
    };
    struct scene s = { 0 };
    struct vl_scorers_stats st;
    struct vl_err e;

    (void)state;
    assert_int_equal(run(&s, &o, &st, &e), 0);
    assert_non_null(s.got[5].why);
    for (int i = 0; i < ROWS; i++)
        if (i != 5 && s.got[i].why)
            fail_msg("row %d: %s", i, s.got[i].why);
    clear(&s);
}

static void long_lines_pass(void **state)
{
    const char *const argv[] = { "/bin/sh", "-c", SED, NULL };
    struct vl_scorers_opts o = { argv, NULL, NULL, 0, 2, 20, 0, 0 };
    struct scene s = { .pad = 300000 };
    struct vl_scorers_stats st;
    struct vl_err e;

    (void)state;
    assert_int_equal(run(&s, &o, &st, &e), 0);
    for (int i = 0; i < ROWS; i++)
        if (s.got[i].why || s.got[i].score != 2 * i)
            fail_msg("row %d: %g %s", i, s.got[i].score, s.got[i].why ? s.got[i].why : "");
    clear(&s);
}

/* Answers without end: cut off, the row is invalid. */
static void an_endless_answer_is_cut(void **state)
{
    (void)state;
    expect(SH("head -c 20000000 /dev/zero | tr '\\0' 1; sleep 9", PLAIN), NULL, 5,
           "without the end of a line");
}

static void stopping_scores_the_rows_before(void **state)
{
    for (int workers = 1; workers <= 3; workers++) {
        const char *const argv[] = { "/bin/sh", "-c", SH("echo oops", PLAIN), NULL };
        struct vl_scorers_opts o = { argv, NULL, NULL, 0, workers, 5, 0, 0 };
        struct scene s = { .stop_on_failure = 1 };
        struct vl_scorers_stats st;
        struct vl_err e;

        (void)state;
        assert_int_equal(run(&s, &o, &st, &e), 0);
        for (int i = 0; i < 5; i++)
            assert_true(s.calls[i] == 1 && !s.got[i].why && s.got[i].score == 2 * i);
        assert_non_null(s.got[5].why);
        assert_true(workers > 1 || s.calls[6] == 0);
        clear(&s);
    }
}

static void what_cannot_run_is_said(void **state)
{
    const char *const argv[] = { "/bin/sh", "-c", "/no/such/program --x", NULL };
    struct vl_scorers_opts o = { argv, NULL, NULL, 0, 2, 5, 0, 0 };
    struct scene s = { 0 };
    struct vl_scorers_stats st;
    struct vl_err e;

    (void)state;
    assert_int_equal(run(&s, &o, &st, &e), VL_E_NOINPUT);
    assert_non_null(strstr(e.msg, "/no/such/program --x"));
    o = (struct vl_scorers_opts){ NULL, ".x |", NULL, 0, 2, 5, 0, 0 };
    assert_int_equal(run(&s, &o, &st, &e), VL_E_USAGE);
    o = (struct vl_scorers_opts){ NULL, ".x + $bonus", "{\"bonus\":1}", 0, 2, 5, 0, 0 };
    assert_int_equal(run(&s, &o, &st, &e), 0);
    assert_true(s.got[3].score == 7);
    clear(&s);
}

/* A process a row: all it prints is the answer, its status counts. */
static void a_process_a_row(void **state)
{
    static const struct {
        const char *odd, *why;
    } c[] = { { "kill -9 $$", "signal 9" },
              { "echo 4; exit 3", "status 3" },
              { ":", "printed nothing" },
              { "echo 4; echo 4", "not a number" },
              { "echo oops", "not a number" },
              { "echo nan", "not a number" },
              { "echo '\"NaN\"'", "NaN" },
              { "exec tr '\\0' x </dev/zero", "more than" },
              { "trap '' TERM; exec <&-; sleep 66 & setsid sleep 66 & wait", "did not end" },
              { "exec >&-; sleep 66", "did not end" } };

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        char command[300];
        double start = vl_now();

        snprintf(command, sizeof command, SH("%s", PLAIN), c[i].odd);
        expect_of(command, NULL, 1, 5, c[i].why);
        assert_true(vl_now() - start < 8);
    }
    expect_of("sleep 66 & " SH(PLAIN, PLAIN), NULL, 1, -1, ""); /* a child holds the output */
    expect_of("jq '{\"score\": .x,\n \"a\": 1}'", NULL, 1, -1, "");
}

/* Orphans that have ended do not stay as zombies while the pool runs. */
static int most_children;
static int count_children(void *arg, int64_t row, const char *json, size_t n, const char *why)
{
    char path[60];
    int child, k = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    f = fopen(path, "re");
    assert_non_null(f);
    while (fscanf(f, "%d", &child) == 1)
        k++;
    fclose(f);
    most_children = k > most_children ? k : most_children;
    return answer(arg, row, json, n, why);
}

static void no_zombies(void **state)
{
    const char *const argv[] = { "/bin/sh", "-c",
                                 "(setsid true &); sleep 0.02; cat >/dev/null; echo 1", NULL };
    struct vl_scorers_opts o = { argv, NULL, NULL, 1, 1, 20, 0, 0 };
    struct scene s = { 0 };
    const struct vl_scorers_io io = { .arg = &s, .line = line, .answer = count_children };
    struct vl_scorers_stats st;
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(vl_scorers_run(&o, ROWS, &io, &st, &e), 0);
    assert_true(most_children > 0 && most_children < 5); /* the worker, the guard, an orphan */
    clear(&s);
}

/* What a process does before it says that it is ready is no row's time. */
static void ready_starts_the_clock(void **state)
{
    const char *const argv[] = { "/bin/sh", "-c", "sleep 1; echo '{\"ready\":true}'; exec " SED,
                                 NULL };
    struct vl_scorers_opts o = { argv, NULL, NULL, 0, 2, 0.7, 20, 0 };
    struct scene s = { 0 };
    struct vl_scorers_stats st;
    struct vl_err e;

    (void)state;
    assert_int_equal(run(&s, &o, &st, &e), 0);
    assert_true(!s.got[0].why && s.got[11].score == 22);
    clear(&s);
}

/* A scorer that says it cannot score at all ends the pool with its own words and status. */
static void fatal_answer(void **state)
{
    static const struct {
        const char *line;
        int code;
        const char *why;
    } c[] = { { "{\"fatal\":\"no key\\nset\"}", VL_E_UNAVAIL, "no key set" },
              { "{\"fatal\":\"no file\",\"status\":66}", VL_E_NOINPUT, "no file" },
              { "{\"fatal\":\"odd\",\"status\":1}", VL_E_UNAVAIL, "odd" },
              { "{\"fatal\":7}", VL_E_UNAVAIL, "cannot score" } };
    struct scene s = { 0 };
    struct vl_scorers_stats st;
    struct vl_err e;

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        char command[200];
        const char *const argv[] = { "/bin/sh", "-c", command, NULL };
        struct vl_scorers_opts o = { argv, NULL, NULL, 0, 3, 5, 0, 0 };

        snprintf(command, sizeof command, "read -r l; printf '%%s\\n' '%s'; cat >/dev/null",
                 c[i].line);
        assert_int_equal(run(&s, &o, &st, &e), c[i].code);
        assert_non_null(strstr(e.msg, c[i].why));
    }
    /* with an id or a score it is an answer of that row */
    expect("while read -r l; do x=${l#*x\\\":}; x=${x%%,*}; echo \"{\\\"score\\\":$x,"
           "\\\"fatal\\\":\\\"f\\\"}\"; done",
           NULL, -1, "");
    clear(&s);
}

/* A worker that dies is noticed though a child of its still holds its output. */
static void death_beside_a_child(void **state)
{
    double start = vl_now();

    (void)state;
    expect(SH("sleep 63 & kill -9 $$", PLAIN), NULL, 5, "signal 9");
    assert_true(vl_now() - start < 15); /* the time limit there is 20 s */
}

/* Children of a scorer, also those that moved to a session of their own, are ended with it. */
static void scorers_children_are_ended(void **state)
{
    char path[] = "/tmp/verl-pool-XXXXXX", command[400];
    int fd = mkstemp(path), left = 0, pid;
    struct scene s = { 0 };
    struct vl_scorers_stats st;
    struct vl_err e;
    const char *const argv[] = { "/bin/sh", "-c", command, NULL };
    struct vl_scorers_opts o = { argv, NULL, NULL, 0, 1, 5, 0, 0 };
    FILE *f;

    (void)state;
    assert_true(fd >= 0);
    snprintf(
        command, sizeof command,
        "setsid sleep 60 & echo $! >>%s; sleep 61 & echo $! >>%s; (setsid sh -c 'echo $$ "
        ">>%s; exec sleep 62' &) ; while [ $(wc -l <%s) -lt 3 ]; do sleep 0.01; done; exec " SED,
        path, path, path, path);
    assert_int_equal(run(&s, &o, &st, &e), 0);
    assert_true(s.got[11].score == 22);
    f = fdopen(fd, "r");
    while (fscanf(f, "%d", &pid) == 1) {
        char proc[40];

        left++;
        snprintf(proc, sizeof proc, "/proc/%d", pid);
        assert_int_equal(access(proc, F_OK), -1);
    }
    assert_int_equal(left, 3);
    fclose(f);
    unlink(path);
    clear(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(well_behaved),
        cmocka_unit_test(one_row_goes_wrong),
        cmocka_unit_test(filters_go_wrong),
        cmocka_unit_test(memory_is_limited),
        cmocka_unit_test(long_lines_pass),
        cmocka_unit_test(an_endless_answer_is_cut),
        cmocka_unit_test(stopping_scores_the_rows_before),
        cmocka_unit_test(what_cannot_run_is_said),
        cmocka_unit_test(a_process_a_row),
        cmocka_unit_test(no_zombies),
        cmocka_unit_test(ready_starts_the_clock),
        cmocka_unit_test(fatal_answer),
        cmocka_unit_test(death_beside_a_child),
        cmocka_unit_test(scorers_children_are_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
