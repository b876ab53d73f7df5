/* test_state.c - train states: filling, publishing, locks, pointers, and kills at every stop point. */
#include "libverl/base/fs.h"
#include "libverl/model/state.h"
#include "libverl/model/tensors.h"
#include "libverl/model/version.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char config[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 16, \"num_hidden_layers\": 1, "
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"intermediate_size\": 24, "
    "\"vocab_size\": 11, \"max_position_embeddings\": 64}";

struct dirs {
    char root[40], *model, *state;
};

static int setup(void **state)
{
    struct dirs *d = vl_alloc(sizeof *d);
    struct vl_model *m;
    struct vl_err e = { 0 };

    strcpy(d->root, "/tmp/verl-state.XXXXXX");
    if (!mkdtemp(d->root))
        return -1;
    d->model = vl_asprintf("%s/model", d->root);
    d->state = vl_asprintf("%s/actor", d->root);
    if (vl_fs_mkdirs(d->model, &e) || vl_model_new(&m, config, "config", VL_HEAD_LM, &e))
        return -1;
    vl_model_init(m, 1, 0.02, 0);
    if (vl_model_save(m, d->model, "F32", 0, NULL, &e))
        return -1;
    vl_model_free(m);
    *state = d;
    return 0;
}

static int teardown(void **state)
{
    struct dirs *d = *state;
    struct vl_err e = { 0 };
    int rc = vl_fs_remove(d->root, &e);

    free(d->model);
    free(d->state);
    free(d);
    return rc;
}

static float *moment_of[2]; /* of the state that was read last */

/* A slab, so that a step can be made by hand: the weights into s->model, the moments above. */
static int read_state(struct vl_state *s, struct vl_err *e)
{
    struct vl_slab slab = { 0 };
    struct vl_sink to = { .put = vl_slab_put, .arg = &slab };

    if (vl_state_open(s, VL_HEAD_LM, e))
        return e->code;
    slab.m = s->model;
    slab.x = s->model->slab = vl_alloc(sizeof(float) * (size_t)s->model->count);
    if (vl_model_read(s->model, &to, e))
        return e->code;
    for (int i = 0; i < 2 && !e->code; i++) {
        free(moment_of[i]);
        slab.x = moment_of[i] = vl_alloc(sizeof(float) * (size_t)s->model->count);
        (void)!vl_state_moment(s, i ? VL_EXP_AVG_SQ : VL_EXP_AVG, &to, e);
    }
    return e->code;
}

static void begin(struct vl_state *s, const struct dirs *d, int64_t from, int want_filled)
{
    struct vl_err e = { 0 };
    int filled;

    if (vl_state_begin(s, d->state, d->model, from, VL_HEAD_LM, &filled, &e) || read_state(s, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(filled, want_filled);
}

static const float *get(void *arg, int64_t at, int64_t n, float *room, struct vl_err *e)
{
    (void)e;
    return memcpy(room, (const float *)arg + at, (size_t)n * sizeof *room);
}

/* One "update": weights + delta, moments filled. */
static int step(struct vl_state *s, const char *batch, int64_t from, float delta, int64_t keep,
                struct vl_err *e)
{
    struct vl_state_record r = { .parent = s->base,
                                 .redo = from >= 0,
                                 .global_step = s->rec.global_step + 1,
                                 .schedule = s->rec.schedule + 1,
                                 .total_steps = 10,
                                 .optimizer_steps = s->rec.optimizer_steps + 2 };
    int rc;

    r.batch = vl_strdup(batch);
    r.options = vl_strdup("{\"lr\": 1}");
    r.role = vl_strdup("actor");
    r.parent_hash = vl_strdup(s->rec.hash);
    for (int64_t i = 0; i < s->model->nparam; i++)
        for (int64_t k = 0; k < s->model->param[i].cols; k++) {
            s->model->slab[s->model->param[i].offset + k] += delta;
            moment_of[0][s->model->param[i].offset + k] += 1;
            moment_of[1][s->model->param[i].offset + k] += 2;
        }
    const struct vl_origin moment[VL_MOMENT_KINDS] = {
        [VL_EXP_AVG] = { get, moment_of[0] }, [VL_EXP_AVG_SQ] = { get, moment_of[1] }
    };
    rc = vl_state_publish(s, &r, &(struct vl_origin){ get, s->model->slab }, moment, keep, e);
    vl_state_record_free(&r);
    return rc;
}

static void steps(const struct dirs *d, int n)
{
    for (int i = 0; i < n; i++) {
        struct vl_state s;
        struct vl_err e = { 0 };
        char batch[16];

        snprintf(batch, sizeof batch, "b%d", i);
        begin(&s, d, -1, i == 0);
        if (step(&s, batch, -1, 0.5f, 2, &e))
            fail_msg("%s", e.msg);
        vl_state_close(&s);
    }
}

static void test_steps(void **state)
{
    const struct dirs *d = *state;
    struct vl_state s;
    struct vl_model *m, *w;
    struct vl_err e = { 0 };
    int64_t n, *v;
    struct stat st;
    char *file;

    steps(d, 3);
    begin(&s, d, -1, 0);
    assert_int_equal(s.current, 3);
    assert_int_equal(s.rec.parent, 2);
    assert_int_equal(s.rec.global_step, 3);
    assert_int_equal(s.rec.schedule, 3);
    assert_int_equal(s.rec.optimizer_steps, 6);
    assert_string_equal(s.rec.batch, "b2");
    assert_true(moment_of[0][0] == 3 && moment_of[1][0] == 6);
    v = vl_version_list(d->state, &n);
    assert_int_equal(n, 2); /* the newest two are kept */
    assert_int_equal(v[0], 2);
    free(v);
    /* a model directory, with the state's bits and a version */
    assert_int_equal(vl_model_open(&m, d->state, VL_HEAD_AUTO, 1, &e), 0);
    assert_string_equal(m->version, "v000003");
    assert_string_equal(m->hash, s.rec.hash);
    assert_memory_equal(m->slab, s.model->slab, sizeof(float) * (size_t)m->count);
    assert_int_equal(vl_model_open(&w, d->model, VL_HEAD_LM, 1, &e), 0);
    assert_true(m->slab[0] == w->slab[0] + 0.5f + 0.5f + 0.5f);
    file = vl_asprintf("%s/params.safetensors", m->dir);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0444);
    free(file);
    vl_model_free(m);
    vl_model_free(w);
    vl_state_close(&s);
}

static void test_made(void **state)
{
    const struct dirs *d = *state;
    struct vl_state s;
    struct vl_err e = { 0 };
    char hash[33];

    steps(d, 2);
    begin(&s, d, -1, 0);
    assert_int_equal(vl_state_made(&s, -1, "b1", "{\"lr\": 1}"), 2);
    assert_int_equal(vl_state_made(&s, -1, "b1", "{\"lr\": 2}"), -1);
    assert_int_equal(vl_state_made(&s, -1, "b2", "{\"lr\": 1}"), -1);
    assert_int_equal(vl_state_made(&s, 1, "b1", "{\"lr\": 1}"), -1); /* --from asks for it again */
    memcpy(hash, s.rec.hash, 33);
    vl_state_close(&s);

    begin(&s, d, 1, 0);
    assert_int_equal(s.base, 1);
    assert_int_equal(step(&s, "b1", 1, 0.5f, 9, &e), 0);
    vl_state_close(&s);
    begin(&s, d, 1, 0);
    assert_int_equal(s.current, 3);
    assert_string_equal(s.last.hash, hash); /* the same bits again */
    assert_int_equal(vl_state_made(&s, 1, "b1", "{\"lr\": 1}"), 3);
    vl_state_close(&s);
}

static void test_lock(void **state)
{
    const struct dirs *d = *state;
    struct vl_state a, b;
    struct vl_err e = { 0 };
    char pid[32];
    int filled;

    begin(&a, d, -1, 1);
    assert_int_equal(vl_state_begin(&b, d->state, NULL, -1, VL_HEAD_LM, &filled, &e), VL_E_RETRY);
    snprintf(pid, sizeof pid, "process %d ", (int)getpid());
    assert_non_null(strstr(e.msg, pid));
    vl_state_close(&b);
    vl_state_close(&a);
}

static void test_pointer(void **state)
{
    const struct dirs *d = *state;
    char *link = vl_asprintf("%s/current", d->state);
    struct vl_state s;
    struct vl_model *m;
    struct vl_err e = { 0 };
    int filled;

    steps(d, 2);
    unlink(link);
    assert_int_equal(symlink("v000007", link), 0);
    assert_int_equal(vl_state_begin(&s, d->state, d->model, -1, VL_HEAD_LM, &filled, &e),
                     VL_E_DATA);
    assert_non_null(strstr(e.msg, "v000007, which is missing or damaged"));
    assert_non_null(strstr(e.msg, "newest usable version is v000002"));
    vl_state_close(&s);
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_model_open(&m, d->state, VL_HEAD_LM, 1, &e), VL_E_DATA);
    assert_non_null(strstr(e.msg, "newest usable version is v000002"));
    e = (struct vl_err){ 0 };
    unlink(link);
    assert_int_equal(vl_state_begin(&s, d->state, d->model, -1, VL_HEAD_LM, &filled, &e),
                     VL_E_DATA);
    assert_non_null(strstr(e.msg, "no link `current`"));
    vl_state_close(&s);
    free(link);
}

static void test_damaged(void **state)
{
    const struct dirs *d = *state;
    char *file = vl_asprintf("%s/v000001/exp_avg.safetensors", d->state);
    struct vl_state s;
    struct vl_err e = { 0 };
    int filled;
    FILE *f;

    steps(d, 1);
    assert_int_equal(chmod(file, 0644), 0);
    f = fopen(file, "r+");
    assert_non_null(f);
    fseek(f, -9, SEEK_END);
    fputc(0x11, f);
    fclose(f);
    assert_int_equal(vl_state_begin(&s, d->state, NULL, -1, VL_HEAD_LM, &filled, &e), 0);
    assert_int_equal(read_state(&s, &e), VL_E_DATA);
    assert_non_null(strstr(e.msg, "exp_avg.safetensors"));
    vl_state_close(&s);
    e = (struct vl_err){ 0 };
    assert_int_equal(truncate(file, 300), 0);
    assert_int_equal(vl_state_begin(&s, d->state, NULL, -1, VL_HEAD_LM, &filled, &e), 0);
    assert_int_equal(read_state(&s, &e), VL_E_DATA);
    vl_state_close(&s);
    free(file);
}

static void test_not_finite(void **state)
{
    const struct dirs *d = *state;
    struct vl_state s;
    struct vl_err e = { 0 };

    begin(&s, d, -1, 1);
    assert_int_equal(step(&s, "b0", -1, (float)INFINITY, 2, &e), VL_E_DATA);
    assert_non_null(strstr(e.msg, "not saved"));
    vl_state_close(&s);
    begin(&s, d, -1, 0);
    assert_int_equal(s.current, 0);
    vl_state_close(&s);
}

static void test_needs_model(void **state)
{
    const struct dirs *d = *state;
    struct vl_state s;
    struct vl_err e = { 0 };
    int filled;

    assert_int_equal(vl_state_begin(&s, d->state, NULL, -1, VL_HEAD_LM, &filled, &e), VL_E_NOINPUT);
    assert_non_null(strstr(e.msg, "give -m MODEL"));
    assert_false(vl_fs_exists(d->state, NULL)); /* and nothing was made */
    vl_state_close(&s);
}

/* Runs one step in a child that stops itself at `point`, kills it there, and checks what is left:
 * the old version in force (or the new one once it is linked), and the same step goes through. */
static void kill_at(const struct dirs *d, const char *point, int64_t in_force)
{
    struct vl_state s;
    struct vl_err e = { 0 };
    int64_t was, made;
    int status;
    pid_t pid;

    begin(&s, d, -1, 0);
    was = s.current;
    vl_state_close(&s);
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        int filled;

        setenv("VL_STOP_AT", point, 1);
        if (!vl_state_begin(&s, d->state, NULL, -1, VL_HEAD_LM, &filled, &e) &&
            !read_state(&s, &e) && step(&s, point, -1, 0.25f, 2, &e))
            _exit(2);
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    if (!WIFSTOPPED(status))
        fail_msg("did not stop at %s", point);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);

    begin(&s, d, -1, 0);
    assert_int_equal(s.current - was, in_force);
    made = vl_state_made(&s, -1, point, "{\"lr\": 1}");
    if (made >= 0)
        assert_int_equal(vl_state_point(&s, made, &e), 0);
    else
        assert_int_equal(step(&s, point, -1, 0.25f, 2, &e), 0);
    vl_state_close(&s);
    begin(&s, d, -1, 0);
    assert_string_equal(s.rec.batch, point);
    assert_int_equal(s.rec.global_step, was + 1);
    vl_state_close(&s);
}

static void test_kill(void **state)
{
    static const char *const point[] = { "state-params",  "state-moments", "state-written",
                                         "state-renamed", "state-linked",  "state-pruned" };
    const struct dirs *d = *state;

    steps(d, 1);
    for (int i = 0; i < 6; i++)
        kill_at(d, point[i], i >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_made, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lock, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pointer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_finite, setup, teardown),
        cmocka_unit_test_setup_teardown(test_needs_model, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kill, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
