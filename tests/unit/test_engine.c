/* test_engine.c - the whole model at tiny sizes: gradients against finite differences for every
 * parameter of every architecture, and bits that must not depend on how a batch is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/engine/engine.h"
#include "libverl/engine/generate.h"
#include "libverl/engine/internal.h"
#include "libverl/engine/pack.h"

#define VOCAB 29

static const struct vl_config base_cfg = { .arch = VL_ARCH_LLAMA,
                                           .head = VL_HEAD_LM,
                                           .C = 24,
                                           .L = 3,
                                           .H = 4,
                                           .K = 2,
                                           .D = 6,
                                           .F = 20,
                                           .V = VOCAB,
                                           .max_positions = 64,
                                           .rms_eps = 1e-5,
                                           .rope_theta = 10000 };

enum which { LLAMA, TIED, QWEN2, QWEN3, MISTRAL, BIASES, LLAMA3, YARN, VALUE, NWHICH };
static const char *const names[NWHICH] = { "llama",  "tied",   "qwen2", "qwen3", "mistral",
                                           "biases", "llama3", "yarn",  "value" };

static struct vl_config make_cfg(enum which w)
{
    struct vl_config c = base_cfg;

    switch (w) {
    case TIED:
        c.tied = 1;
        break;
    case QWEN2:
        c.qkv_bias = 1;
        c.tied = 1;
        break;
    case QWEN3:
        c.qk_norm = 1;
        break;
    case MISTRAL:
        c.window = 3;
        c.window_from = 1;
        break;
    case BIASES:
        c.qkv_bias = c.o_bias = c.mlp_bias = 1;
        break;
    case LLAMA3:
        c.rope = (struct vl_rope_scaling){ .type = VL_ROPE_LLAMA3,
                                           .factor = 8,
                                           .low_freq_factor = 1,
                                           .high_freq_factor = 4,
                                           .original_max = 16 };
        break;
    case YARN:
        c.rope = (struct vl_rope_scaling){ .type = VL_ROPE_YARN,
                                           .factor = 4,
                                           .beta_fast = 32,
                                           .beta_slow = 1,
                                           .original_max = 16,
                                           .attention_factor = 1.2 };
        break;
    case VALUE:
        c.head = VL_HEAD_VALUE;
        break;
    default:
        break;
    }
    return c;
}

/* A small generator of its own: the test's numbers need no quality, only to be the same always. */
static uint32_t lcg;
static float rnd(void)
{
    lcg = lcg * 1664525u + 1013904223u;
    return (float)(int32_t)lcg * 0x1p-31f;
}

static void make_model(struct vl_model *m, const struct vl_config *c)
{
    struct vl_err e = { 0 };

    *m = (struct vl_model){ .cfg = *c };
    vl_model_layout(m);
    assert_int_equal(vl_try_alloc(&m->slab, (size_t)m->count, sizeof(float), "slab", &e), 0);
    lcg = 7;
    for (int64_t i = 0; i < m->nparam; i++) {
        const struct vl_param *p = &m->param[i];
        int norm = strstr(p->name, "norm") != NULL;

        for (int64_t k = 0; k < p->rows * p->cols; k++)
            m->slab[p->offset + k] = norm ? 1 + 0.3f * rnd() : 0.5f * rnd();
    }
}

static void free_model(struct vl_model *m)
{
    free(m->slab);
    free(m->param);
}

/* Three sequences of 5, 1 and 7 tokens; every token but the last of each has an output. */
#define N_TOK 13
#define N_OUT 10
struct fixture {
    struct vl_packed p;
    int32_t ids[N_TOK], pos[N_TOK], target[N_OUT];
    struct vl_seq seq[3];
    int64_t out[N_OUT];
    float dlogp[N_OUT], dent[N_OUT];
};

static void make_fixture(struct fixture *f)
{
    static const int len[] = { 5, 1, 7 };
    int n = 0, j = 0;

    memset(f, 0, sizeof *f);
    lcg = 11;
    for (int s = 0; s < 3; s++) {
        f->seq[s] = (struct vl_seq){ .row = n, .n = len[s] };
        for (int i = 0; i < len[s]; i++, n++) {
            f->ids[n] = (int32_t)(fabsf(rnd()) * (VOCAB - 1));
            f->pos[n] = i;
            if (i + 1 < len[s])
                f->out[j++] = n;
        }
    }
    for (int i = 0; i < N_OUT; i++) {
        f->target[i] = f->ids[f->out[i] + 1];
        f->dlogp[i] = rnd();
        f->dent[i] = rnd();
    }
    f->p = (struct vl_packed){ .N = n,
                               .nseq = 3,
                               .M = j,
                               .ids = f->ids,
                               .pos = f->pos,
                               .seq = f->seq,
                               .out = f->out,
                               .target = f->target };
    assert_int_equal(n, N_TOK);
    assert_int_equal(j, N_OUT);
}

static struct vl_backend *backend(int threads)
{
    struct vl_backend *be;
    struct vl_err e = { 0 };

    if (vl_backend_cpu(&be, NULL, threads, 1, &e))
        fail_msg("%s", e.msg);
    return be;
}

static enum vl_compute compute; /* of the engines made next */

static struct vl_engine *engine(const struct vl_model *m, struct vl_backend *be, int recompute)
{
    struct vl_engine_opts o = {
        .compute = compute, .train = 1, .moments = 2, .recompute = recompute
    };
    struct vl_engine *g = NULL;
    struct vl_err e = { 0 };

    if (vl_engine_new(&g, m, be, &o, &e))
        fail_msg("%s", e.msg);
    return g;
}

#define INV_TEMP 1.25f

static double loss(struct vl_engine *g, const struct fixture *f, int keep)
{
    float logp[N_OUT], ent[N_OUT], value[N_OUT];
    struct vl_err e = { 0 };
    double sum = 0;

    if (vl_engine_forward(g, &f->p, INV_TEMP, keep, logp, ent, NULL, value, &e))
        fail_msg("%s", e.msg);
    for (int j = 0; j < N_OUT; j++)
        sum += g->cfg.head == VL_HEAD_VALUE
                   ? (double)f->dlogp[j] * value[j]
                   : (double)f->dlogp[j] * logp[j] + (double)f->dent[j] * ent[j];
    return sum;
}

static void gradient(struct vl_engine *g, const struct fixture *f)
{
    struct vl_err e = { 0 };

    loss(g, f, 1);
    if (vl_engine_backward(g, f->dlogp, f->dent, f->dlogp, &e))
        fail_msg("%s", e.msg);
}

static float *copy_grads(struct vl_engine *g)
{
    float *x = vl_alloc((size_t)g->count * sizeof *x);

    vl_engine_finish_grads(g);
    g->be->download(g->be->ctx, x, vl_engine_grads(g), (size_t)g->count * sizeof *x);
    return x;
}

/* Slope of the loss along direction r (p->rows*cols, +-1) of one parameter, 4-point stencil. */
static double slope(struct vl_engine *g, const struct vl_model *m, const struct vl_param *p,
                    const float *r, double h, const struct fixture *f)
{
    static const double weight[] = { 1.0 / 12, -8.0 / 12, 8.0 / 12, -1.0 / 12 };
    static const int at[] = { -2, -1, 1, 2 };
    int64_t n = p->rows * p->cols;
    float *x = vl_alloc((size_t)n * sizeof *x);
    double sum = 0;

    for (int k = 0; k < 4; k++) {
        for (int64_t i = 0; i < n; i++)
            x[i] = m->slab[p->offset + i] + (float)(at[k] * h) * r[i];
        g->be->upload(g->be->ctx, g->params + p->offset, x, (size_t)n * sizeof *x);
        vl_engine_repack(g);
        sum += weight[k] * loss(g, f, 0) / h;
    }
    g->be->upload(g->be->ctx, g->params + p->offset, m->slab + p->offset, (size_t)n * sizeof *x);
    vl_engine_repack(g);
    free(x);
    return sum;
}

static void check_param(struct vl_engine *g, const struct vl_model *m, const struct vl_param *p,
                        const float *grad, const struct fixture *f, const char *arch)
{
    int64_t n = p->rows * p->cols;
    float *r = vl_alloc((size_t)n * sizeof *r);
    double norm = 0;

    for (int64_t i = 0; i < n; i++)
        norm += (double)grad[p->offset + i] * grad[p->offset + i];
    norm = sqrt(norm);
    if (!(norm > 1e-4))
        fail_msg("%s %s: gradient norm %g is too small to be right", arch, p->name, norm);
    for (int dir = 0; dir < 3; dir++) {
        double want = 0, got, h = 5e-3 / (1 + norm);

        for (int64_t i = 0; i < n; i++) {
            r[i] = rnd() < 0 ? -1.0f : 1.0f;
            want += (double)r[i] * grad[p->offset + i];
        }
        got = slope(g, m, p, r, h, f);
        if (!(fabs(got - want) < 0.01 * norm + 1e-3))
            fail_msg("%s %s direction %d: slope %g, gradient says %g (norm %g)", arch, p->name, dir,
                     got, want, norm);
    }
    free(r);
}

static void gradients(void **state)
{
    (void)state;
    for (int w = 0; w < NWHICH; w++) {
        struct vl_config c = make_cfg((enum which)w);
        struct vl_backend *be = backend(1);
        struct vl_engine *g;
        struct vl_model m;
        struct fixture f;
        float *grad;

        make_model(&m, &c);
        make_fixture(&f);
        g = engine(&m, be, 0);
        vl_engine_zero_grads(g);
        gradient(g, &f);
        grad = copy_grads(g);
        for (int64_t i = 0; i < m.nparam; i++)
            check_param(g, &m, &m.param[i], grad, &f, names[w]);
        free(grad);
        vl_engine_free(g);
        be->close(be);
        free_model(&m);
    }
}

/* Two groups that share a prompt of 6 and 3 tokens, and a row alone: log-probs of the rows and
 * gradients with the prompt computed once and for each row. */
#define ROWS_B 8
#define ROWS_R 5
struct shared {
    struct vl_rows rows;
    int64_t start[ROWS_B + 1];
    int32_t ids[128], plen[ROWS_B], rlen[ROWS_B];
    float dlogp[ROWS_B * ROWS_R], dent[ROWS_B * ROWS_R]; /* by cell */
};

static void make_shared(struct shared *s)
{
    static const int32_t plen[] = { 6, 6, 6, 6, 3, 3, 3, 4 }, rlen[] = { 3, 5, 0, 1, 2, 5, 4, 3 };

    memset(s, 0, sizeof *s);
    lcg = 5;
    for (int i = 0; i < ROWS_B; i++) {
        int same = i && plen[i] == plen[i - 1];

        s->plen[i] = plen[i], s->rlen[i] = rlen[i];
        for (int t = 0; t < plen[i] + rlen[i]; t++)
            s->ids[s->start[i] + t] = same && t < plen[i] ? s->ids[s->start[i - 1] + t]
                                                          : (int32_t)(fabsf(rnd()) * (VOCAB - 1));
        s->start[i + 1] = s->start[i] + plen[i] + rlen[i];
    }
    for (int k = 0; k < ROWS_B * ROWS_R; k++)
        s->dlogp[k] = rnd(), s->dent[k] = rnd();
    s->rows = (struct vl_rows){
        .B = ROWS_B, .R = ROWS_R, .start = s->start, .ids = s->ids, .plen = s->plen, .rlen = s->rlen
    };
}

/* column: log-probs (or values) and entropy by cell; returns the gradient. */
static float *shared_gradient(const struct vl_model *m, const struct shared *s,
                              const struct vl_micro_rule *rule, float column[2][ROWS_B * ROWS_R])
{
    struct vl_backend *be = backend(2);
    struct vl_engine *g = engine(m, be, 0);
    int64_t first[ROWS_B + 1], n = vl_micro_cut(&s->rows, NULL, 0, ROWS_B, rule, first);
    struct vl_err e = { 0 };
    float *grad;

    vl_engine_zero_grads(g);
    for (int64_t k = 0; k < n; k++) {
        float logp[ROWS_B * ROWS_R], ent[ROWS_B * ROWS_R], d[2][ROWS_B * ROWS_R];
        struct vl_pack p;
        int value = g->cfg.head == VL_HEAD_VALUE;

        vl_pack_rows(&p, &s->rows, NULL, first[k], first[k + 1] - first[k], rule->share);
        vl_pack_gather(d[0], &p, s->dlogp);
        vl_pack_gather(d[1], &p, s->dent);
        if (vl_engine_forward(g, &p.p, INV_TEMP, 1, logp, value ? NULL : ent, NULL, logp, &e) ||
            vl_engine_backward(g, d[0], d[1], d[0], &e))
            fail_msg("%s", e.msg);
        vl_pack_scatter(column[0], &p, logp);
        if (!value)
            vl_pack_scatter(column[1], &p, ent);
        vl_pack_free(&p);
    }
    grad = copy_grads(g);
    vl_engine_free(g);
    be->close(be);
    return grad;
}

static void shared_prompts(void **state)
{
    static const struct vl_micro_rule plain = { 0 }, shared = { .share = 1, .whole = 1 };
    static const struct vl_micro_rule cut = { .share = 1, .whole = 1, .max_rows = 1 };

    (void)state;
    for (int w = 0; w < NWHICH; w++) {
        struct vl_config c = make_cfg((enum which)w);
        float want[2][ROWS_B * ROWS_R] = { 0 }, got[2][ROWS_B * ROWS_R] = { 0 };
        float *a, *b, *d;
        double diff = 0, norm = 0;
        struct shared s;
        struct vl_model m;

        make_model(&m, &c);
        make_shared(&s);
        a = shared_gradient(&m, &s, &plain, want);
        b = shared_gradient(&m, &s, &shared, got);
        assert_memory_equal(want, got, sizeof want);
        d = shared_gradient(&m, &s, &cut, got);
        assert_memory_equal(want, got, sizeof want);
        assert_memory_equal(b, d, (size_t)m.count * sizeof *b); /* no cut shows */
        for (int64_t i = 0; i < m.count; i++) {
            diff += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
            norm += (double)a[i] * a[i];
        }
        if (!(sqrt(diff / norm) < 2e-6))
            fail_msg("%s: gradients differ by %g of their norm", names[w], sqrt(diff / norm));
        free(a), free(b), free(d);
        free_model(&m);
    }
}

/* Gradient after one pass over the fixture cut at sequence boundaries. */
static float *cut_gradient(const struct vl_model *m, int threads, int recompute, int pieces)
{
    struct vl_backend *be = backend(threads);
    struct vl_engine *g = engine(m, be, recompute);
    struct fixture f, part;
    float *grad;
    int64_t j = 0;

    make_fixture(&f);
    for (int i = 0; i < 3 && (threads > 1 || recompute || pieces > 1); i++) { /* what was must go */
        vl_engine_zero_grads(g);
        for (int k = 0; k < i; k++)
            gradient(g, &f);
        if (i)
            continue;
        grad = copy_grads(g);
        for (int64_t k = 0; k < m->count; k++)
            assert_true(grad[k] == 0);
        free(grad);
    }
    vl_engine_zero_grads(g);
    if (pieces == 1)
        gradient(g, &f);
    for (int s = 0; pieces > 1 && s < 3; s++) {
        int64_t at = f.seq[s].row, first = j;

        part = f;
        part.seq[0] = (struct vl_seq){ .row = 0, .n = f.seq[s].n };
        for (; j < N_OUT && f.out[j] < at + f.seq[s].n; j++)
            part.out[j - first] = f.out[j] - at;
        part.p = (struct vl_packed){ .N = f.seq[s].n,
                                     .nseq = 1,
                                     .M = j - first,
                                     .ids = f.ids + at,
                                     .pos = f.pos + at,
                                     .seq = part.seq,
                                     .out = part.out,
                                     .target = f.target + first };
        struct vl_err e = { 0 };
        float logp[N_OUT], ent[N_OUT], value[N_OUT];

        assert_int_equal(vl_engine_forward(g, &part.p, INV_TEMP, 1, logp, ent, NULL, value, &e), 0);
        assert_int_equal(
            vl_engine_backward(g, f.dlogp + first, f.dent + first, f.dlogp + first, &e), 0);
    }
    grad = copy_grads(g);
    vl_engine_free(g);
    be->close(be);
    return grad;
}

static void gradient_bits(void **state)
{
    static const struct {
        const char *what;
        int threads, recompute, pieces;
    } t[] = { { "recomputed", 1, 1, 1 },
              { "in micro-batches of one row", 1, 0, 3 },
              { "on two threads", 2, 0, 1 },
              { "on two threads, recomputed, in micro-batches", 2, 1, 3 } };

    (void)state;
    for (int k = 0; k < VL_COMPUTES * NWHICH; k++) {
        int w = k / VL_COMPUTES;
        struct vl_config c = make_cfg((enum which)w);
        struct vl_model m;
        float *want;

        compute = (enum vl_compute)(k % VL_COMPUTES);

        make_model(&m, &c);
        want = cut_gradient(&m, 1, 0, 1);
        for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
            float *got = cut_gradient(&m, t[i].threads, t[i].recompute, t[i].pieces);

            if (memcmp(got, want, (size_t)m.count * sizeof *got) != 0)
                fail_msg("%s %s: other bits %s", names[w], vl_compute_name(compute), t[i].what);
            free(got);
        }
        free(want);
        free_model(&m);
    }
    compute = VL_COMPUTE_F32;
}

/* ---- generation ---- */

#define PROMPTS 5
#define SAMPLES 3
static int32_t prompt_ids[PROMPTS][40];
static const int64_t prompt_len[PROMPTS] = { 3, 16, 1, 37, 33 };

struct gen_case {
    int64_t max_seqs, max_tokens;
    int threads;
    int tight; /* least cache memory */
    double temperature, top_p;
    int64_t top_k, max_new;
};

/* alike: all begin with the same ids, as under one system prompt. */
static void make_prompts(struct vl_gen_prompt *p, int alike)
{
    lcg = 3;
    for (int i = 0; i < PROMPTS; i++) {
        char uid[8] = { (char)('a' + i) };

        for (int64_t k = 0; k < prompt_len[i]; k++) {
            float x = fabsf(rnd());

            prompt_ids[i][k] = alike && k < 33 ? (int32_t)k % VOCAB : (int32_t)(x * (VOCAB - 1));
        }
        p[i] = (struct vl_gen_prompt){ prompt_ids[i], prompt_len[i], vl_philox_key(uid, 1, 9), i };
    }
}

static int count_finished(void *arg, int64_t prompt, struct vl_err *e)
{
    (void)prompt, (void)e;
    ++*(int64_t *)arg;
    return 0;
}

/* As vl_gen_kv; returns the bytes of a page of all layers. */
static size_t cache_bytes(const struct vl_config *c, const struct vl_gen_prompt *p,
                          const struct vl_gen_opts *o, size_t *want, size_t *least)
{
    struct vl_attn a = vl_layer_attn(c, compute, 0);
    struct vl_backend *be = backend(1);
    size_t page = 2 * (size_t)c->L * be->kv_bytes(be->ctx, &a);

    vl_gen_kv(c, compute, be, p, PROMPTS, o, want, least);
    be->close(be);
    return page;
}

static void generate_with(const struct vl_model *m, const struct vl_gen_prompt *p,
                          const struct vl_gen_opts *o, int threads, struct vl_gen *gen)
{
    struct vl_engine_opts eo = { .compute = compute };
    struct vl_backend *be = backend(threads);
    struct vl_engine *g = NULL;
    struct vl_err e = { 0 };

    assert_int_equal(vl_engine_new(&g, m, be, &eo, &e), 0);
    memset(gen, 0, PROMPTS * SAMPLES * sizeof *gen);
    if (vl_generate(g, p, PROMPTS, o, gen, &e))
        fail_msg("%s", e.msg);
    vl_engine_free(g);
    be->close(be);
}

static void generate(const struct vl_model *m, const struct gen_case *t, struct vl_gen *gen,
                     int64_t nstop, const int32_t *stop)
{
    struct vl_gen_prompt p[PROMPTS];
    struct vl_gen_opts o = { .n = SAMPLES,
                             .max_new = t->max_new,
                             .sampling = { t->temperature, t->top_p, t->top_k, 0 },
                             .stop = stop,
                             .nstop = nstop,
                             .step = 4,
                             .max_seqs = t->max_seqs,
                             .max_tokens = t->max_tokens };
    size_t want, least;

    make_prompts(p, 0);
    cache_bytes(&m->cfg, p, &o, &want, &least);
    o.kv_bytes = t->tight ? least : want;
    generate_with(m, p, &o, t->threads, gen);
}

/* The log-probs of the same responses from one packed training forward. */
static void check_forward(const struct vl_model *m, const struct vl_gen *gen, double temperature)
{
    struct vl_backend *be = backend(1);
    struct vl_engine *g = engine(m, be, 0);

    for (int i = 0; i < PROMPTS * SAMPLES; i++) {
        int64_t p = prompt_len[i / SAMPLES], n = p + gen[i].len;
        int32_t ids[128], pos[128];
        int64_t out[80];
        float logp[80];
        struct vl_seq seq = { .n = (int32_t)n };
        struct vl_packed k = { .N = n,
                               .nseq = 1,
                               .M = gen[i].len,
                               .ids = ids,
                               .pos = pos,
                               .seq = &seq,
                               .out = out,
                               .target = gen[i].ids };
        struct vl_err e = { 0 };

        memcpy(ids, prompt_ids[i / SAMPLES], (size_t)p * sizeof *ids);
        memcpy(ids + p, gen[i].ids, (size_t)gen[i].len * sizeof *ids);
        for (int64_t t = 0; t < n; t++)
            pos[t] = (int32_t)t;
        for (int64_t t = 0; t < gen[i].len; t++)
            out[t] = p + t - 1;
        assert_int_equal(vl_engine_forward(g, &k, vl_inv_temperature(temperature), 0, logp, NULL,
                                           NULL, NULL, &e),
                         0);
        assert_memory_equal(logp, gen[i].logp, (size_t)gen[i].len * sizeof *logp);
    }
    vl_engine_free(g);
    be->close(be);
}

static void same_gen(const struct vl_gen *a, const struct vl_gen *b)
{
    for (int i = 0; i < PROMPTS * SAMPLES; i++) {
        assert_int_equal(a[i].len, b[i].len);
        assert_int_equal(a[i].finish, b[i].finish);
        assert_memory_equal(a[i].ids, b[i].ids, (size_t)a[i].len * sizeof *a->ids);
        assert_memory_equal(a[i].logp, b[i].logp, (size_t)a[i].len * sizeof *a->logp);
    }
}

static void generation_bits(void **state)
{
    static const struct gen_case cases[] = {
        { 64, 8192, 1, 0, 0.8, 1, 0, 12 }, { 1, 8192, 1, 0, 0.8, 1, 0, 12 },
        { 4, 4, 1, 0, 0.8, 1, 0, 12 },     { 64, 17, 2, 0, 0.8, 1, 0, 12 },
        { 64, 8192, 2, 1, 0.8, 1, 0, 12 },
    };
    static const int32_t stop[] = { 5, 17 };
    static const enum which arch[] = { LLAMA, QWEN3, MISTRAL };

    (void)state;
    for (size_t a = 0; a < VL_COMPUTES * sizeof arch / sizeof *arch; a++) {
        struct vl_config c = make_cfg(arch[a / VL_COMPUTES]);
        struct vl_gen first[PROMPTS * SAMPLES], gen[PROMPTS * SAMPLES];
        struct vl_model m;
        int stops = 0, limits = 0;

        compute = (enum vl_compute)(a % VL_COMPUTES);

        make_model(&m, &c);
        generate(&m, &cases[0], first, 2, stop);
        check_forward(&m, first, cases[0].temperature);
        for (size_t i = 1; i < sizeof cases / sizeof *cases; i++) {
            generate(&m, &cases[i], gen, 2, stop);
            same_gen(first, gen);
            vl_gen_free(gen, PROMPTS * SAMPLES);
        }
        for (int i = 0; i < PROMPTS * SAMPLES; i++) {
            int32_t last = first[i].ids[first[i].len - 1];

            stops += first[i].finish == VL_FINISH_STOP;
            limits += first[i].finish == VL_FINISH_LENGTH;
            assert_int_equal(first[i].finish == VL_FINISH_STOP, last == 5 || last == 17);
            assert_true(first[i].len >= 1 && first[i].len <= 12);
        }
        assert_true(stops > 0 && limits > 0); /* the case must have both */
        vl_gen_free(first, PROMPTS * SAMPLES);
        free_model(&m);
    }
    compute = VL_COMPUTE_F32;
}

/* Little memory: rows are put off and computed again, with penalties that look back and lists of the
 * likeliest ids; the result is that of a cache for all. With prompts that share pages, too. */
static void put_off_case(int alike)
{
    static const struct vl_rules rules = { .repetition = 1.2, .frequency = 0.1 };
    struct vl_gen first[PROMPTS * SAMPLES], gen[PROMPTS * SAMPLES];
    struct vl_config c = make_cfg(QWEN3);
    struct vl_gen_prompt p[PROMPTS];
    struct vl_model m;
    int64_t often = 0;

    make_model(&m, &c);
    make_prompts(p, alike);
    for (int i = 0; i < 16; i++) { /* 0: room for all; else i - 1 pages beyond the least */
        struct vl_gen_stats stats = { .put_off = -1 };
        int64_t finished = 0;
        struct vl_gen_opts o = { .n = SAMPLES,
                                 .max_new = 75,
                                 .topk = 3,
                                 .sampling = { 0.8, 1, 0, 0 },
                                 .rules = rules,
                                 .step = 4,
                                 .max_seqs = i % 3 == 2 ? 4 : 64,
                                 .max_tokens = i % 2 ? 7 : 100,
                                 .stats = &stats,
                                 .finished = count_finished,
                                 .arg = &finished };
        size_t want, least, page = cache_bytes(&c, p, &o, &want, &least);

        o.kv_bytes = i ? least + (size_t)(i - 1) * page : want;
        generate_with(&m, p, &o, 1, i ? gen : first);
        assert_int_equal(finished, PROMPTS);
        often += stats.put_off;
        assert_true(i || stats.put_off == 0);
        if (!i) {
            check_forward(&m, first, 0.8);
            continue;
        }
        same_gen(first, gen);
        for (int k = 0; k < PROMPTS * SAMPLES; k++)
            assert_memory_equal(gen[k].top_logp, first[k].top_logp,
                                (size_t)(3 * gen[k].len) * sizeof(float));
        vl_gen_free(gen, PROMPTS * SAMPLES);
    }
    assert_true(often > 20);
    vl_gen_free(first, PROMPTS * SAMPLES);
    free_model(&m);
}

static int note_order(void *arg, int64_t prompt, struct vl_err *e)
{
    int64_t *order = arg;

    (void)e;
    order[1 + order[0]++] = prompt;
    return 0;
}

/* Without stops the longest response runs first; who asked gets what it asked for. */
static void generation_longest_first(void **state)
{
    struct vl_config c = make_cfg(LLAMA);
    struct vl_gen each[PROMPTS * SAMPLES], gen[PROMPTS * SAMPLES];
    struct vl_gen_prompt p[PROMPTS];
    int64_t order[PROMPTS + 1] = { 0 }, shortest = 0;
    struct vl_gen_opts o = { .n = SAMPLES,
                             .max_new = 60,
                             .max_len = 48,
                             .sampling = { 0.8, 1, 0, 0 },
                             .step = 4,
                             .max_seqs = SAMPLES,
                             .max_tokens = 100,
                             .kv_bytes = 1 << 24 };
    struct vl_err e = { 0 };
    struct vl_model m;

    (void)state;
    make_model(&m, &c);
    make_prompts(p, 0);
    memset(each, 0, sizeof each);
    for (int i = 0; i < PROMPTS; i++) { /* alone: nothing to sort */
        struct vl_engine_opts eo = { .compute = compute };
        struct vl_backend *be = backend(1);
        struct vl_engine *g = NULL;

        assert_int_equal(vl_engine_new(&g, &m, be, &eo, &e), 0);
        assert_int_equal(vl_generate(g, p + i, 1, &o, each + i * SAMPLES, &e), 0);
        shortest = p[i].len < p[shortest].len ? i : shortest;
        vl_engine_free(g);
        be->close(be);
    }
    o.finished = note_order, o.arg = order;
    generate_with(&m, p, &o, 1, gen);
    same_gen(each, gen);
    assert_int_equal(order[0], PROMPTS);
    assert_int_equal(order[1], shortest);
    for (int i = 1; i < PROMPTS; i++) /* one after the other: max_seqs rows at a time */
        assert_true(p[order[i]].len <= p[order[i + 1]].len);
    vl_gen_free(each, PROMPTS * SAMPLES);
    vl_gen_free(gen, PROMPTS * SAMPLES);
    free_model(&m);
}

static void generation_put_off(void **state)
{
    (void)state;
    for (int ct = 0; ct < VL_COMPUTES; ct++) {
        compute = (enum vl_compute)ct;
        put_off_case(0);
        put_off_case(1);
    }
    compute = VL_COMPUTE_F32;
}

static void generation_edges(void **state)
{
    static const struct gen_case greedy = { 64, 64, 1, 0, 0, 1, 0, 6 };
    static const struct gen_case tiny_p = { 64, 64, 1, 0, 1, 1e-9, 0, 6 };
    static const struct gen_case top_1 = { 64, 64, 1, 0, 1, 1, 1, 6 };
    static const struct gen_case one = { 64, 64, 1, 0, 1, 1, 0, 1 };
    struct vl_gen a[PROMPTS * SAMPLES], b[PROMPTS * SAMPLES];
    struct vl_config c = make_cfg(LLAMA);
    struct vl_model m;
    int32_t all[VOCAB];

    (void)state;
    make_model(&m, &c);
    generate(&m, &greedy, a, 0, NULL);
    for (int i = 0; i < PROMPTS * SAMPLES; i++) { /* greedy samples of a prompt are one */
        assert_memory_equal(a[i].ids, a[i / SAMPLES * SAMPLES].ids, 6 * sizeof(int32_t));
        assert_int_equal(a[i].finish, VL_FINISH_LENGTH);
        for (int t = 0; t < 6; t++)
            assert_true(isfinite(a[i].logp[t]) && a[i].logp[t] <= 0);
    }
    check_forward(&m, a, 0);
    generate(&m, &tiny_p, b, 0, NULL); /* an empty nucleus keeps the likeliest id */
    same_gen(a, b);
    vl_gen_free(b, PROMPTS * SAMPLES);
    generate(&m, &top_1, b, 0, NULL);
    same_gen(a, b);
    vl_gen_free(b, PROMPTS * SAMPLES);
    for (int i = 0; i < VOCAB; i++)
        all[i] = i;
    generate(&m, &one, b, VOCAB, all); /* immediate stop, also at the length limit */
    for (int i = 0; i < PROMPTS * SAMPLES; i++) {
        assert_int_equal(b[i].len, 1);
        assert_int_equal(b[i].finish, VL_FINISH_STOP);
    }
    vl_gen_free(b, PROMPTS * SAMPLES);
    vl_gen_free(a, PROMPTS * SAMPLES);
    free_model(&m);
}

static void generation_refuses(void **state)
{
    struct vl_config c = make_cfg(LLAMA);
    struct vl_engine_opts eo = { .compute = VL_COMPUTE_F32 };
    struct vl_gen_opts o = { .n = 1,
                             .max_new = 4,
                             .sampling = { 1, 1, 0, 0 },
                             .max_seqs = 8,
                             .max_tokens = 64,
                             .kv_bytes = SIZE_MAX };
    int32_t ids[] = { 1, 2, 3 };
    struct vl_gen_prompt p = { ids, 3, vl_philox_key("u", 1, 0), 41 };
    struct vl_backend *be = backend(1);
    struct vl_engine *g = NULL;
    struct vl_gen gen = { 0 };
    struct vl_err e = { 0 };
    struct vl_model m;

    (void)state;
    make_model(&m, &c);
    m.slab[vl_model_param(&m, "norm")->offset] = NAN;
    assert_int_equal(vl_engine_new(&g, &m, be, &eo, &e), 0);
    assert_int_equal(vl_generate(g, &p, 1, &o, &gen, &e), VL_E_DATA);
    assert_non_null(strstr(e.msg, "row 41, sample 0: a logit at response position 0"));
    vl_gen_free(&gen, 1);
    gen = (struct vl_gen){ 0 };
    e = (struct vl_err){ 0 };
    o.kv_bytes = 10;
    assert_int_equal(vl_generate(g, &p, 1, &o, &gen, &e), VL_E_OS);
    e = (struct vl_err){ 0 };
    o.kv_bytes = SIZE_MAX, o.max_len = 3;
    assert_int_equal(vl_generate(g, &p, 1, &o, &gen, &e), VL_E_DATA);
    vl_engine_free(g);
    be->close(be);
    free_model(&m);
}

static void no_outputs(void **state)
{
    struct vl_config c = make_cfg(LLAMA);
    struct vl_packed p = { .N = 0 };
    struct vl_backend *be = backend(1);
    struct vl_engine *g;
    struct vl_model m;
    struct vl_err e = { 0 };

    (void)state;
    make_model(&m, &c);
    g = engine(&m, be, 0);
    assert_int_equal(vl_engine_forward(g, &p, 1, 1, NULL, NULL, NULL, NULL, &e), 0);
    assert_int_equal(vl_engine_backward(g, NULL, NULL, NULL, &e), 0);
    assert_int_equal(vl_engine_backward(g, NULL, NULL, NULL, &e), VL_E_BUG);
    vl_engine_free(g);
    be->close(be);
    free_model(&m);
}

static void rope_frequencies(void **state)
{
    struct vl_config c = base_cfg;

    (void)state;
    c.D = 128, c.rope_theta = 500000;
    for (int64_t i = 0; i < 64; i++) {
        double want = pow(500000, -2.0 * (double)i / 128);

        assert_true(fabs(vl_rope_inv_freq(&c, i) / want - 1) < 1e-13);
    }
    c.rope = (struct vl_rope_scaling){ .type = VL_ROPE_LLAMA3,
                                       .factor = 8,
                                       .low_freq_factor = 1,
                                       .high_freq_factor = 4,
                                       .original_max = 8192 };
    assert_true(vl_rope_inv_freq(&c, 0) == 1); /* short waves stay */
    assert_true(fabs(vl_rope_inv_freq(&c, 63) * 8 / pow(500000, -126.0 / 128) - 1) < 1e-13);
    c.rope = (struct vl_rope_scaling){ .type = VL_ROPE_LINEAR, .factor = 4 };
    assert_true(vl_rope_inv_freq(&c, 0) == 0.25);
    c.rope_theta = 1000000;
    c.rope = (struct vl_rope_scaling){
        .type = VL_ROPE_YARN, .factor = 4, .beta_fast = 32, .beta_slow = 1, .original_max = 32768
    };
    assert_true(vl_rope_inv_freq(&c, 0) == 1); /* turns often: kept */
    assert_true(fabs(vl_rope_inv_freq(&c, 63) * 4 / pow(1000000, -126.0 / 128) - 1) < 1e-13);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(gradients),
        cmocka_unit_test(shared_prompts),
        cmocka_unit_test(gradient_bits),
        cmocka_unit_test(generation_bits),
        cmocka_unit_test(generation_longest_first),
        cmocka_unit_test(generation_put_off),
        cmocka_unit_test(generation_edges),
        cmocka_unit_test(generation_refuses),
        cmocka_unit_test(no_outputs),
        cmocka_unit_test(rope_frequencies),
    };

    return cmocka_run_group_tests(t, NULL, NULL);
}
