/* test_stage.c - a small stage run in child processes: statuses, the last line, what is written. */
#include "libverl/run/stage.h"

#include "formats/dp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static double temperature = 1;
static const char *note = "none";
static int64_t rows_kept = -1;
static struct vl_common common;
static const char *const adds[] = { "token_level_scores", NULL };

static const struct vl_opt table[] = {
    VL_OPT_REAL("temperature", "actor_rollout_ref.rollout.temperature", &temperature, "X", 0, 100,
                VL_F_PROV, "heat", .letter = 't'),
    VL_OPT_TEXT("note", NULL, &note, "TEXT", VL_F_PROV, "note"),
    VL_OPT_INT("rows", NULL, &rows_kept, "N", 0, 0, 0, "make so many rows"),
    { .type = VL_T_END },
};
static const struct vl_program prog = {
    .name = "verl-test",
    .subtree = "actor_rollout_ref.rollout",
    .summary = "s",
    .usage = "u",
    .opts = table,
};

/* Scores each row with 10 times its temperature. */
static int stage(struct vl_ctx *x, const void *opts, struct vl_err *e)
{
    struct vl_batch b = { 0 };
    struct vl_col *c;
    double t;

    (void)opts;
    if (vl_stage_read(x, &b, e) || vl_stage_f64(x, &b, "temperature", &temperature, &t, e))
        goto out;
    vl_stage_replaces(x, &b, adds);
    if (vl_batch_add_tensor(&b, adds[0], VL_F32, 0, NULL, &c, e))
        goto out;
    for (int64_t i = 0; i < b.rows; i++)
        ((float *)c->data)[i] = (float)(10 * t);
    vl_meta_set_f64(&b, "temperature", t);
    vl_meta_set_i64(&b, "scored", 1);
    if (rows_kept >= 0)
        b.rows = rows_kept; /* not a whole batch any more; --delta looks at this first */
    if (vl_stage_write(x, &b, adds, "w1", e))
        goto out;
out:
    vl_batch_free(&b);
    return e->code;
}

static char dir[] = "/tmp/test_stage.XXXXXX";
static char line[4096]; /* what the child wrote on stderr */

/* A new image, since OpenMP does not survive a fork: main() of it runs the stage. */
static _Noreturn void become_stage(char **argv)
{
    setenv("VL_TEST_STAGE", "1", 1);
    execv("/proc/self/exe", argv);
    _exit(99);
}

/* Runs the stage with these arguments (NULL-terminated) in dir; standard input is `in`. */
static int run_in(const char *in, const char *out, char **argv)
{
    int status;
    pid_t pid;
    FILE *f;
    size_t n;

    fflush(NULL);
    pid = fork();
    if (!pid) {
        if (dup2(open(in, O_RDONLY), 0) < 0 ||
            dup2(open(out, O_WRONLY | O_CREAT | O_TRUNC, 0644), 1) < 0 ||
            dup2(open("err", O_WRONLY | O_CREAT | O_TRUNC, 0644), 2) < 0)
            _exit(99);
        become_stage(argv);
    }
    waitpid(pid, &status, WUNTRACED);
    f = fopen("err", "r");
    n = fread(line, 1, sizeof line - 1, f);
    line[n] = 0;
    fclose(f);
    if (WIFSTOPPED(status)) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        return -SIGSTOP;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define RUN(...) run_in("/dev/null", "out", (char *[]){ "verl-test", __VA_ARGS__, NULL })
#define says(part)                                                                                 \
    do {                                                                                           \
        if (!strstr(line, part))                                                                   \
            fail_msg("no '%s' in: %s", part, line);                                                \
    } while (0)

/* rows uids "0".."rows-1" (reversed: the other way round), one F32 column name = values. */
static void make(const char *path, int64_t rows, int reversed, int with_uid, const char *name,
                 float first, const char *temp)
{
    struct vl_batch b = { .has_batch = 1, .rows = rows };
    struct vl_err e = { 0 };
    struct vl_buf uid = { 0 };
    int64_t *off = vl_alloc((size_t)(rows + 1) * sizeof *off);
    struct vl_col *c;

    assert_int_equal(vl_batch_add_tensor(&b, name, VL_F32, 0, NULL, &c, &e), 0);
    for (int64_t i = 0; i < rows; i++) {
        int64_t u = reversed ? rows - 1 - i : i;
        ((float *)c->data)[i] = first + (float)u;
        vl_buf_printf(&uid, "\"%d\"", (int)u);
        off[i + 1] = (int64_t)uid.n;
    }
    if (with_uid) {
        vl_batch_add_json(&b, "uid", vl_buf_detach(&uid), off);
        assert_int_equal(vl_batch_add_tensor(&b, "sample", VL_I64, 0, NULL, &c, &e), 0);
    } else {
        vl_buf_free(&uid);
        free(off);
    }
    if (temp)
        vl_meta_set(&b, "temperature", temp);
    if (vl_dp_write(&b, path, NULL, &e))
        fail_msg("%s", e.msg);
    vl_batch_free(&b);
}

static void load(struct vl_batch *b, const char *path)
{
    struct vl_err e = { 0 };

    *b = (struct vl_batch){ 0 };
    if (vl_dp_read(b, path, NULL, &e))
        fail_msg("%s", e.msg);
}

static float cell(const struct vl_batch *b, const char *name, int64_t row)
{
    const struct vl_col *c = vl_batch_col(b, name);

    assert_non_null(c);
    return ((float *)c->data)[row];
}

static void test_plain(void **state)
{
    struct vl_batch b;

    (void)state;
    make("a.dp", 3, 0, 1, "values", 1, "0.5");
    assert_int_equal(RUN("-i", "a.dp", "-o", "b.dp", "-q"), 0);
    assert_string_equal(line, "");
    load(&b, "b.dp");
    assert_int_equal(b.rows, 3);
    assert_true(cell(&b, "token_level_scores", 2) == 5 && cell(&b, "values", 2) == 3);
    assert_string_equal(vl_meta_get(&b, "scored"), "1");
    assert_non_null(strstr(b.provenance, "\"verl-test\""));
    assert_non_null(strstr(b.provenance, "\"actor_rollout_ref.rollout.temperature\":0.5"));
    assert_non_null(strstr(b.provenance, "\"--note\":\"none\""));
    vl_batch_free(&b);
    /* through a pipe-like standard input and output the same bytes */
    assert_int_equal(run_in("a.dp", "c.dp", (char *[]){ "verl-test", "-q", NULL }), 0);
    assert_int_equal(system("cmp -s b.dp c.dp"), 0);
    /* twice: what it adds is replaced; -o may be -i */
    assert_int_equal(RUN("-i", "b.dp", "-o", "b.dp", "-t", "2"), 0);
    says("verl-test: replaces token_level_scores\n");
    says("warning: --temperature or actor_rollout_ref.rollout.temperature is 2, but the batch was "
         "made with temperature 0.5: 2 is used, as given here");
    load(&b, "b.dp");
    assert_true(cell(&b, "token_level_scores", 0) == 20);
    vl_batch_free(&b);
    /* a file is for every stage: the batch knows better what it was made with */
    assert_int_equal(system("echo 'actor_rollout_ref: {rollout: {temperature: 2}}' >t.yaml"), 0);
    assert_int_equal(RUN("-i", "a.dp", "-o", "b.dp", "-c", "t.yaml"), 0);
    says("temperature is 2 in the config file, but the batch was made with temperature 0.5, which "
         "is used");
    load(&b, "b.dp");
    assert_true(cell(&b, "token_level_scores", 0) == 5);
    assert_non_null(strstr(b.provenance, "\"actor_rollout_ref.rollout.temperature\":0.5"));
    vl_batch_free(&b);
}

static void test_meta(void **state)
{
    (void)state;
    make("nometa.dp", 2, 0, 1, "values", 1, NULL);
    assert_int_equal(RUN("-i", "nometa.dp", "-o", "x.dp"), VL_E_DATA);
    says("verl-test: nometa.dp: meta_info has no usable 'temperature': give it with --temperature");
    assert_int_equal(access("x.dp", F_OK), -1);
    assert_int_equal(RUN("-i", "nometa.dp", "-o", "x.dp", "temperature=3"), 0);
}

static void test_dependents(void **state)
{
    struct vl_batch b;
    struct vl_err e = { 0 };
    struct vl_col *c;

    (void)state;
    make("a.dp", 2, 0, 1, "values", 1, "1");
    assert_int_equal(RUN("-i", "a.dp", "-o", "b.dp"), 0);
    load(&b, "b.dp");
    assert_int_equal(vl_batch_add_tensor(&b, "advantages", VL_F32, 0, NULL, &c, &e), 0);
    assert_int_equal(vl_batch_add_tensor(&b, "mine", VL_F32, 0, NULL, &c, &e), 0);
    assert_int_equal(vl_dp_write(&b, "b.dp", NULL, &e), 0);
    vl_batch_free(&b);
    assert_int_equal(RUN("-i", "b.dp", "-o", "c.dp"), 0);
    says("replaces token_level_scores; drops what was made from the old: advantages\n");
    load(&b, "c.dp");
    assert_null(vl_batch_col(&b, "advantages"));
    assert_non_null(vl_batch_col(&b, "mine"));
    vl_batch_free(&b);
}

static void test_union(void **state)
{
    struct vl_batch b;

    (void)state;
    make("a.dp", 3, 0, 1, "values", 1, "1");
    make("r.dp", 3, 1, 1, "extra", 5, NULL);
    assert_int_equal(RUN("-i", "a.dp", "-i", "r.dp", "-o", "u.dp"), 0);
    load(&b, "u.dp");
    assert_true(cell(&b, "extra", 0) == 5 && cell(&b, "extra", 2) == 7);
    vl_batch_free(&b);
    make("p.dp", 3, 1, 0, "extra", 5, NULL);
    assert_int_equal(RUN("-i", "a.dp", "-i", "p.dp", "-o", "u.dp"), 0);
    load(&b, "u.dp");
    assert_true(cell(&b, "extra", 0) == 7); /* by position */
    vl_batch_free(&b);
    make("d.dp", 3, 0, 1, "values", 2, NULL);
    assert_int_equal(RUN("-i", "a.dp", "-i", "d.dp", "-o", "no.dp"), VL_E_DATA);
    says("uniting d.dp with a.dp");
    says("values");
    make("s.dp", 2, 0, 1, "extra", 2, NULL);
    assert_int_equal(RUN("-i", "a.dp", "-i", "s.dp", "-o", "no.dp"), VL_E_DATA);
    assert_int_equal(access("no.dp", F_OK), -1);
    assert_int_equal(RUN("-i", "a.dp", "-i", "-", "-i", "-", "-o", "no.dp"), VL_E_USAGE);
    says("-i - is given 2 times");
}

static void test_duplicate(void **state)
{
    struct vl_batch b = { .has_batch = 1, .rows = 2 };
    struct vl_err e = { 0 };
    int64_t off[] = { 0, 3, 6 }, *mine = vl_alloc(sizeof off);
    struct vl_col *c;

    (void)state;
    memcpy(mine, off, sizeof off);
    assert_int_equal(vl_batch_add_tensor(&b, "sample", VL_I64, 0, NULL, &c, &e), 0);
    vl_batch_add_json(&b, "uid", vl_strdup("\"0\"\"0\""), mine);
    assert_int_equal(vl_dp_write(&b, "dup.dp", NULL, &e), 0);
    vl_batch_free(&b);
    assert_int_equal(RUN("-i", "dup.dp", "-o", "no.dp", "-t", "1"), VL_E_DATA);
    says("dup.dp");
}

static void test_delta(void **state)
{
    struct vl_batch b;

    (void)state;
    make("a.dp", 3, 0, 1, "values", 1, "0.5");
    assert_int_equal(RUN("-i", "a.dp", "-o", "delta.dp", "--delta"), 0);
    load(&b, "delta.dp");
    assert_int_equal(b.ncol, 3);
    assert_null(vl_batch_col(&b, "values"));
    assert_non_null(vl_batch_col(&b, "uid"));
    assert_non_null(vl_meta_get(&b, "scored"));
    assert_null(vl_meta_get(&b, "temperature")); /* as it was */
    vl_batch_free(&b);
    assert_int_equal(RUN("-i", "a.dp", "-i", "delta.dp", "-o", "both.dp"), 0);
    assert_int_equal(RUN("-i", "a.dp", "-o", "a.dp", "--delta"), VL_E_USAGE);
    says("would replace an input by a part of it");
    assert_int_equal(RUN("-i", "a.dp", "-o", "no.dp", "--delta", "--rows", "2"), VL_E_USAGE);
    says("made 2 rows of 3");
}

static void test_failures(void **state)
{
    (void)state;
    make("a.dp", 3, 0, 1, "values", 1, "0.5");
    assert_int_equal(RUN("-i", "none.dp"), VL_E_NOINPUT);
    says("verl-test: none.dp");
    assert_int_equal(RUN("-i", "/dev/null"), VL_E_DATA);
    assert_int_equal(RUN("-i", "a.dp", "-o", "/dev/full"), VL_E_IO);
    says("No space left");
    assert_int_equal(RUN("-i", "a.dp", "-o", "nodir/x.dp"), VL_E_CREATE);
    assert_int_equal(run_in("a.dp", "/dev/full", (char *[]){ "verl-test", NULL }), VL_E_IO);
    assert_int_equal(RUN("--nothing"), VL_E_USAGE);
    assert_null(strchr(strchr(line, '\n') + 1, '\n')); /* one line */
    setenv("VL_STOP_AT", "stage-write", 1);
    assert_int_equal(RUN("-i", "a.dp", "-o", "stopped.dp"), -SIGSTOP);
    unsetenv("VL_STOP_AT");
    assert_int_equal(access("stopped.dp", F_OK), -1);
}

static void test_broken_pipe(void **state)
{
    int fd[2], status;
    pid_t pid;

    (void)state;
    make("a.dp", 3, 0, 1, "values", 1, "0.5");
    assert_int_equal(pipe(fd), 0);
    fflush(NULL);
    pid = fork();
    if (!pid) {
        char *argv[] = { "verl-test", "-i", "a.dp", NULL };
        close(fd[0]);
        dup2(fd[1], 1);
        if (dup2(open("err", O_WRONLY | O_CREAT | O_TRUNC, 0644), 2) < 0)
            _exit(99);
        become_stage(argv);
    }
    close(fd[0]);
    close(fd[1]);
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == VL_E_IO);
}

static int setup(void **state)
{
    (void)state;
    return !mkdtemp(dir) || chdir(dir);
}

static int teardown(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return chdir("/") || system(command);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),      cmocka_unit_test(test_meta),
        cmocka_unit_test(test_dependents), cmocka_unit_test(test_union),
        cmocka_unit_test(test_duplicate),  cmocka_unit_test(test_delta),
        cmocka_unit_test(test_failures),   cmocka_unit_test(test_broken_pipe),
    };

    if (getenv("VL_TEST_STAGE"))
        return vl_main(&prog, &common, argc, argv, stage, NULL);
    return cmocka_run_group_tests(tests, setup, teardown);
}
