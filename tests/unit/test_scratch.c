/* test_scratch.c - the scratch that passes take, held against what was announced for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#define vl_rows vl_operand_rows /* pack.h has others */
#include "kernels/cpu/cpu.h"
#undef vl_rows
#include "libverl/engine/generate.h"
#include "libverl/engine/internal.h"
#include "libverl/engine/pack.h"

static const struct vl_config shapes[] = {
    { .C = 24, .L = 1, .H = 4, .K = 2, .D = 6, .F = 20, .V = 29 },
    { .C = 64, .L = 1, .H = 8, .K = 1, .D = 32, .F = 256, .V = 1100 },
    { .C = 33, .L = 2, .H = 40, .K = 1, .D = 10, .F = 65, .V = 700 },
    { .C = 96, .L = 1, .H = 8, .K = 8, .D = 64, .F = 31, .V = 5000 },
    { .C = 48, .L = 1, .H = 4, .K = 2, .D = 16, .F = 96, .V = 50, .head = VL_HEAD_VALUE },
};

/* Prompts of `plen` tokens, each with `n` responses of `rlen`. */
static const struct rows_of {
    int32_t prompts, n, plen, rlen;
} batches[] = { { 1, 1, 1, 1 },   { 40, 1, 1, 1 },  { 1, 1, 300, 5 }, { 2, 8, 200, 3 },
                { 2, 1, 1, 700 }, { 6, 3, 40, 20 }, { 1, 30, 90, 1 }, { 1, 1, 1300, 8 } };

static void make_model(struct vl_model *m, const struct vl_config *shape)
{
    struct vl_err e = { 0 };

    *m = (struct vl_model){ .cfg = *shape };
    m->cfg.arch = VL_ARCH_LLAMA;
    m->cfg.max_positions = 8192;
    m->cfg.rms_eps = 1e-5;
    m->cfg.rope_theta = 10000;
    vl_model_layout(m);
    assert_int_equal(vl_try_alloc(&m->slab, (size_t)m->count, sizeof(float), "slab", &e), 0);
    for (int64_t i = 0; i < m->count; i++)
        m->slab[i] = (float)(i * 7919 % 1009 - 504) * 1e-3f;
}

static void make_rows(struct vl_rows *r, const struct rows_of *b, int64_t V)
{
    int64_t B = (int64_t)b->prompts * b->n, len = b->plen + b->rlen;

    *r = (struct vl_rows){ .B = B, .P = b->plen, .R = b->rlen };
    r->start = vl_alloc((size_t)(B + 1) * sizeof *r->start);
    r->ids = vl_alloc((size_t)(B * len) * sizeof *r->ids);
    r->plen = vl_alloc((size_t)B * sizeof *r->plen);
    r->rlen = vl_alloc((size_t)B * sizeof *r->rlen);
    for (int64_t i = 0; i < B; i++) {
        r->start[i + 1] = r->start[i] + len;
        r->plen[i] = b->plen, r->rlen[i] = b->rlen;
        for (int64_t t = 0; t < len; t++)
            r->ids[i * len + t] = (int32_t)((t < b->plen ? i / b->n + t * 3 : i + t * 5) % V);
    }
}

static size_t taken(const struct vl_backend *be)
{
    const struct vl_cpu *c = be->ctx;
    size_t all = 0;

    for (int i = 0; i < VL_SCRATCHES; i++)
        all += c->scratch[i].bytes;
    return all;
}

/* Too little is found out in the middle of a run; far too much refuses what would have run. */
static void check(const struct vl_backend *be, const struct vl_model *m, enum vl_compute ct,
                  enum vl_form form, const struct vl_extent *x, const char *what)
{
    struct vl_shape s = { .attn = vl_layer_attn(&m->cfg, ct, 0),
                          .C = m->cfg.C,
                          .F = m->cfg.F,
                          .V = m->cfg.head == VL_HEAD_LM ? m->cfg.V : 0,
                          .form = form };
    size_t said = be->scratch_bytes(be->ctx, &s, x), took = taken(be);
    size_t sums = form == VL_FORM_TRAIN && ct != VL_COMPUTE_F32 ? (size_t)160 << 20
                                                                : 0; /* attention_half_bwd.c's,
                                                     which depend on who is in the batch */

    if (took > said || said > 4 * took + (1 << 20) + sums)
        fail_msg("%s, width %d, %d tokens, %s: %zu bytes announced, %zu taken", what, (int)m->cfg.C,
                 (int)x->N, vl_compute_name(ct), said, took);
}

static void pass(const struct vl_config *shape, const struct rows_of *b, enum vl_compute ct,
                 int threads, enum vl_form form)
{
    int train = form == VL_FORM_TRAIN;
    struct vl_engine_opts o = { .compute = ct, .train = train, .int8 = form == VL_FORM_INT8 };
    struct vl_err e = { 0 };
    struct vl_backend *be;
    struct vl_engine *g;
    struct vl_model m;
    struct vl_rows r;
    struct vl_pack k;
    struct vl_extent x;
    float *out[4];

    make_model(&m, shape);
    make_rows(&r, b, shape->V);
    assert_int_equal(vl_backend_cpu(&be, NULL, threads, 1, &e), 0);
    assert_int_equal(vl_engine_new(&g, &m, be, &o, &e), 0);
    vl_pack_rows(&k, &r, NULL, 0, r.B, 1);
    vl_pack_extent(&r, NULL, 0, r.B, 1, &x);
    for (int i = 0; i < 4; i++)
        out[i] = vl_alloc((size_t)x.M * sizeof(float));
    if (train)
        vl_engine_zero_grads(g);
    assert_int_equal(vl_engine_forward(g, &k.p, 1, train, out[0], out[1], NULL, out[2], &e), 0);
    if (train)
        assert_int_equal(vl_engine_backward(g, out[0], out[1], out[2], &e), 0);
    check(be, &m, ct, form, &x, train ? "update" : "log-probs");
    for (int i = 0; i < 4; i++)
        free(out[i]);
    vl_pack_free(&k);
    vl_rows_free(&r);
    vl_engine_free(g);
    be->close(be);
    free(m.slab);
    free(m.param);
}

#define EACH(i, list) for (size_t i = 0; i < sizeof(list) / sizeof *(list); i++)

static void passes(void **state)
{
    (void)state;
    EACH(i, shapes)
    EACH(b, batches)
    for (int ct = 0; ct < VL_COMPUTES; ct++)
        for (int form = 0; form <= VL_FORM_INT8; form++)
            pass(&shapes[i], &batches[b], (enum vl_compute)ct, (i + b) % 2 ? 5 : 1,
                 (enum vl_form)form);
}

/* Filtered sampling keeps the logits of many rows. `len` tokens of a prompt, n rows of each of three. */
static void rollout(const struct vl_config *shape, struct vl_engine_opts eo, int32_t len, int32_t n)
{
    static int32_t ids[70];
    struct vl_gen_prompt p[3];
    struct vl_gen_opts o = { .n = n,
                             .max_new = 10,
                             .max_seqs = 3 * n,
                             .max_tokens = 1000,
                             .kv_bytes = (size_t)1 << 30,
                             .sampling = { .temperature = 1, .top_p = 0.9 } };
    struct vl_gen *gen = vl_alloc((size_t)(3 * n) * sizeof *gen);
    struct vl_err e = { 0 };
    struct vl_backend *be;
    struct vl_engine *g;
    struct vl_model m;
    struct vl_extent x;

    for (int i = 0; i < 3; i++)
        p[i] = (struct vl_gen_prompt){ .ids = ids, .len = len - i, .row = i };
    x = vl_gen_extent(p, 3, &o);
    memset(gen, 0, (size_t)(3 * n) * sizeof *gen);
    make_model(&m, shape);
    assert_int_equal(vl_backend_cpu(&be, NULL, 3, 1, &e), 0);
    assert_int_equal(vl_engine_new(&g, &m, be, &eo, &e), 0);
    assert_int_equal(vl_generate(g, p, 3, &o, gen, &e), 0);
    check(be, &m, eo.compute, eo.int8 ? VL_FORM_INT8 : VL_FORM_PLAIN, &x, "rollout");
    vl_gen_free(gen, 3 * n);
    free(gen);
    vl_engine_free(g);
    be->close(be);
    free(m.slab);
    free(m.param);
}

/* Wide by their prompts, and by their rows. */
static void rollouts(void **state)
{
    (void)state;
    EACH(i, shapes)
    for (int how = 0; how < 2 * VL_COMPUTES && shapes[i].head == VL_HEAD_LM; how++) {
        struct vl_engine_opts eo = { .compute = (enum vl_compute)(how / 2), .int8 = how % 2 };

        rollout(&shapes[i], eo, 70, 4);
        rollout(&shapes[i], eo, 3, 80);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(passes), cmocka_unit_test(rollouts) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
