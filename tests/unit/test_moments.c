/* test_moments.c - moments in a file against moments in memory, bit for bit; and what cannot be had. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libverl/base/fs.h"
#include "libverl/engine/internal.h"

/* An embedding of several windows, the last of them not full, and parameters that share one. */
static const struct vl_config shape = { .arch = VL_ARCH_LLAMA,
                                        .C = 64,
                                        .L = 2,
                                        .H = 4,
                                        .K = 2,
                                        .D = 16,
                                        .F = 96,
                                        .V = 17003,
                                        .tied = 1,
                                        .max_positions = 64,
                                        .rms_eps = 1e-5,
                                        .rope_theta = 10000 };

static const struct rule {
    const char *name;
    int moments, adam;
} rules[] = { { "AdamW", 2, 1 }, { "amsgrad", 3, 1 }, { "momentum", 1, 0 }, { "SGD", 0, 0 } };

static char dir[] = "/tmp/verl-moments.XXXXXX";
static struct vl_model m;

static float number(int64_t i, int64_t k)
{
    uint32_t h = ((uint32_t)i * 2654435761u) ^ ((uint32_t)k * 2246822519u);

    h = (h ^ h >> 15) * 2246822519u;
    return (float)(int32_t)(h ^ h >> 13) * 0x1p-33f;
}

static int setup(void **state)
{
    (void)state;
    m.cfg = shape;
    vl_model_layout(&m);
    m.slab = vl_alloc((size_t)m.count * sizeof *m.slab);
    for (int64_t i = 0; i < m.count; i++)
        m.slab[i] = number(i, 0);
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    struct vl_err e = { 0 };

    (void)state;
    free(m.param);
    free(m.slab);
    return vl_fs_remove(dir, &e);
}

/* A device whose memory the host does not see: copies alone get there. */
static void *elsewhere(void *ctx, void *dev)
{
    (void)ctx, (void)dev;
    return NULL;
}

static struct vl_backend *open_backend(int threads, int far)
{
    struct vl_backend *be;
    struct vl_err e = { 0 };

    if (vl_backend_cpu(&be, NULL, threads, 1, &e))
        fail_msg("%s", e.msg);
    if (far)
        be->host = elsewhere;
    return be;
}

static int put_all(struct vl_engine *g, int which, struct vl_err *e)
{
    struct vl_engine_slab s = { g, &m, which };
    struct vl_sink to = { vl_engine_slab_put, &s, 1 };

    for (int64_t i = 0; i < m.nparam; i++) {
        const struct vl_param *p = &m.param[i];
        float *x = vl_alloc((size_t)(p->rows * p->cols) * sizeof *x);

        for (int64_t k = 0; k < p->rows * p->cols; k++)
            x[k] = number(p->offset + k, which + 1) * number(p->offset + k, which + 1);
        for (int64_t row = 0, n; row < p->rows && !e->code; row += n) {
            n = p->rows - row < 640 ? p->rows - row : 640;
            (void)!to.put(to.arg, i, row, n, x + row * p->cols, e);
        }
        free(x);
    }
    return e->code;
}

static struct vl_engine *make(struct vl_backend *be, const struct rule *r, enum vl_compute ct,
                              const char *offload)
{
    struct vl_engine_opts o = {
        .compute = ct, .train = 1, .moments = r->moments, .offload = offload
    };
    struct vl_engine *g = NULL;
    struct vl_err e = { 0 };

    if (vl_engine_new(&g, &m, be, &o, &e))
        fail_msg("%s", e.msg);
    for (int i = 0; i < r->moments; i++)
        if (put_all(g, i, &e))
            fail_msg("%s", e.msg);
    return g;
}

static int step(struct vl_engine *g, const struct rule *r, int64_t t, int64_t *changed,
                struct vl_err *e)
{
    struct vl_adamw a = { 1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, t, 0.5f, 0 };
    struct vl_sgd s = { 1e-3f, r->moments ? 0.9f : 0, 0.1f, 0.01f, 0, t, 0.5f };

    for (int64_t i = 0; i < m.count; i++) /* the device is the host's memory after all */
        vl_engine_grads(g)[i] = number(i, 10 + t);
    return r->adam ? vl_engine_adamw(g, 0, m.count, &a, changed, e)
                   : vl_engine_sgd(g, 0, m.count, &s, changed, e);
}

/* Weights, moments, and log-probs by the packed weights, end to end. */
static float *all_of(struct vl_engine *g, const struct rule *r)
{
    enum { N = 20 };
    float *out = vl_alloc((size_t)(m.count * (1 + r->moments) + N) * sizeof *out), *to = out;
    int32_t ids[N], pos[N];
    int64_t rows[N];
    struct vl_seq seq = { .n = N };
    struct vl_packed p = { N, 1, N, ids, pos, &seq, rows, ids, NULL };
    struct vl_err e = { 0 };

    for (int which = VL_WEIGHTS; which < r->moments; which++, to += m.count) {
        struct vl_engine_slab s = { g, &m, which };
        struct vl_origin from = { vl_engine_slab_get, &s };

        for (int64_t at = 0, n; at < m.count; at += n) {
            float room[777];
            const float *x;

            n = m.count - at < 777 ? m.count - at : 777;
            x = from.get(from.arg, at, n, room, &e);
            if (!x)
                fail_msg("%s", e.msg);
            memcpy(to + at, x, (size_t)n * sizeof *x);
        }
    }
    for (int32_t i = 0; i < N; i++)
        ids[i] = i * 811 % (int32_t)shape.V, pos[i] = i, rows[i] = i;
    if (vl_engine_forward(g, &p, 1, 0, to, NULL, NULL, NULL, &e))
        fail_msg("%s", e.msg);
    return out;
}

static float *after_steps(const struct rule *r, enum vl_compute ct, int threads, int far,
                          const char *offload, int64_t *changed)
{
    struct vl_backend *be = open_backend(threads, far);
    struct vl_engine *g = make(be, r, ct, offload);
    struct vl_err e = { 0 };
    float *out;

    *changed = 0;
    for (int64_t t = 1; t <= 2; t++)
        if (step(g, r, t, changed, &e))
            fail_msg("%s", e.msg);
    out = all_of(g, r);
    vl_engine_free(g);
    be->close(be);
    return out;
}

static void same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        for (int ct = 0; ct < VL_COMPUTES; ct++) {
            const struct rule *r = &rules[i];
            size_t bytes = (size_t)(m.count * (1 + r->moments) + 20) * sizeof(float);
            int64_t changed, others;
            float *want = after_steps(r, (enum vl_compute)ct, 1, 0, NULL, &changed);

            assert_true(changed > m.count);
            for (int k = 0; k < 3; k++) {
                float *got = after_steps(r, (enum vl_compute)ct, k ? 2 : 1, k == 2, dir, &others);

                assert_int_equal(others, changed);
                if (memcmp(got, want, bytes) != 0)
                    fail_msg("%s %s: other bits in a file (%d)", r->name, vl_compute_name(ct), k);
                free(got);
            }
            free(want);
        }
}

/* The memory that is announced, and that nothing stays in the directory. */
static void takes_a_window(void **state)
{
    struct vl_backend *be = open_backend(1, 0);
    struct vl_engine_opts o = { .train = 1, .moments = 2 };
    struct vl_extent none = { 0 };
    struct vl_engine *g;
    size_t all = vl_engine_bytes(&shape, &o, be, &none), less, window;

    (void)state;
    o.offload = dir;
    less = vl_engine_bytes(&shape, &o, be, &none);
    g = make(be, &rules[0], VL_COMPUTE_F32, dir);
    window = (size_t)g->moments.window * sizeof(float);
    assert_true(window < (size_t)m.count * sizeof(float) / 2);
    assert_int_equal(all - less, 2 * ((size_t)m.count * sizeof(float) - window));
    assert_int_equal(rmdir(dir), 0); /* empty */
    vl_engine_free(g);
    be->close(be);
    assert_non_null(mkdtemp(strcpy(dir, "/tmp/verl-moments.XXXXXX")));
}

static void what_cannot_be_had(void **state)
{
    struct vl_engine_opts o = { .train = 1, .moments = 2, .offload = "/tmp/no/such" };
    struct vl_backend *be = open_backend(1, 0);
    struct vl_engine *g = NULL;
    struct rlimit was, most;
    int64_t changed = 0;
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(vl_engine_new(&g, &m, be, &o, &e), VL_E_CREATE);
    assert_string_equal(e.msg, "/tmp/no/such: cannot make a file for the optimizer's moments: No "
                               "such file or directory");

    e = (struct vl_err){ 0 };
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    most = (struct rlimit){ 1 << 20, was.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &most), 0);
    o.offload = dir;
    assert_int_equal(vl_engine_new(&g, &m, be, &o, &e), VL_E_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_non_null(strstr(e.msg, " MB: File too large"));

    e = (struct vl_err){ 0 };
    g = make(be, &rules[0], VL_COMPUTE_F32, dir);
    assert_int_equal(ftruncate(g->moments.fd, 1 << 20), 0);
    assert_int_equal(step(g, &rules[0], 1, &changed, &e), VL_E_IO);
    assert_non_null(strstr(e.msg, ": cannot read the optimizer's moments there"));
    vl_engine_free(g);
    be->close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),
        cmocka_unit_test(takes_a_window),
        cmocka_unit_test(what_cannot_be_had),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
