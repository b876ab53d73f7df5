/* test_update.c - which rows a step takes; the gradient of whole optimizer steps by finite differences.
 *
 * Each tensor is moved along its own gradient; the loss must then change at the rate of that
 * gradient's norm. That is a test of sign, size and denominators of every role's loss together with
 * the model's backward pass. */
#include "libverl/run/update.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char config[] =
    "{\"model_type\": \"qwen2\", \"hidden_size\": 16, \"num_hidden_layers\": 2, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 24, "
    "\"vocab_size\": 11, \"max_position_embeddings\": 64}";

static void test_plan(void **state)
{
    struct vl_plan p = { 0 };
    int64_t n, seen[10] = { 0 };
    const int64_t *rows;

    (void)state;
    vl_plan_init(&p, 10, 4, 2, 0); /* 4 4 2, twice */
    assert_int_equal(p.steps, 6);
    rows = vl_plan_rows(&p, 2, &n);
    assert_true(n == 2 && rows[0] == 8 && rows[1] == 9);
    rows = vl_plan_rows(&p, 3, &n);
    assert_true(n == 4 && rows[0] == 0);
    vl_plan_free(&p);

    vl_plan_init(&p, 10, 4, 3, 1); /* 4 4, the last two left out */
    assert_int_equal(p.steps, 6);
    p.shuffle = 1;
    p.seed = 5;
    for (int64_t s = 0; s < 2; s++) {
        rows = vl_plan_rows(&p, s, &n);
        assert_int_equal(n, 4);
        for (int64_t i = 0; i < n; i++)
            seen[rows[i]]++;
    }
    for (int i = 0; i < 10; i++)
        assert_true(seen[i] <= 1);
    rows = vl_plan_rows(&p, 0, &n);
    seen[0] = rows[0], seen[1] = rows[1], seen[2] = rows[2];
    rows = vl_plan_rows(&p, 2, &n); /* another order in the next pass */
    assert_false(seen[0] == rows[0] && seen[1] == rows[1] && seen[2] == rows[2]);
    rows = vl_plan_rows(&p, 0, &n); /* and the first again when asked */
    assert_true(seen[0] == rows[0] && seen[1] == rows[1] && seen[2] == rows[2]);
    vl_plan_free(&p);

    vl_plan_init(&p, 3, 100, 1, 0);
    assert_int_equal(p.steps, 1);
    vl_plan_rows(&p, 0, &n);
    assert_int_equal(n, 3);
    vl_plan_free(&p);

    p.shuffle = 0;
    vl_plan_init(&p, 3, 2, 1, 0); /* pairs (5, 1) (2, 4) (0, 3), two a step */
    p.pair = (const int64_t[]){ 5, 1, 2, 4, 0, 3 };
    assert_int_equal(p.steps, 2);
    assert_int_equal(vl_plan_rows(&p, 0, &n)[3], 4);
    assert_int_equal(n, 4);
    assert_int_equal(vl_plan_rows(&p, 1, &n)[0], 0);
    assert_int_equal(n, 2);
    vl_plan_free(&p);
}

#define B 4
#define P 3
#define R 4

/* A batch of rows of unequal length with one hole in a response mask. */
static void make_batch(struct vl_batch *b)
{
    static const int64_t prompts[] = { 0, 3, 4, 5, 6, 7, 0, 0, 2, 8, 9, 10 };
    static const int64_t responses[] = { 4, 3, 1, 0, 9, 8, 7, 1, 1, 0, 0, 0, 2, 5, 1, 0 };
    static const int64_t attention[] = { 0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1,
                                         0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0 };
    int64_t width[] = { P, R, P + R };
    const char *name[] = { "prompts", "responses", "attention_mask" };
    const int64_t *from[] = { prompts, responses, attention };
    struct vl_err e = { 0 };

    *b = (struct vl_batch){ .has_batch = 1, .rows = B };
    for (int i = 0; i < 3; i++) {
        struct vl_col *c;

        assert_int_equal(vl_batch_add_tensor(b, name[i], VL_I64, 1, &width[i], &c, &e), 0);
        memcpy(c->data, from[i], c->bytes);
    }
}

struct bench {
    struct vl_ctx x;
    struct vl_update_opts o;
    struct vl_update u;
    struct vl_batch b;
    float column[4][B * R]; /* old or values, advantages or returns, ref, weights */
};

static void bench_open(struct bench *t, enum vl_role role)
{
    static const int64_t mask[B * R] = { 1, 1, 1, 0, 1, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0 };
    struct vl_engine_opts eo = { .compute = VL_COMPUTE_F32, .train = 1, .moments = 2 };
    struct vl_update_data *d = &t->u.data;
    struct vl_err e = { 0 };

    memset(t, 0, sizeof *t);
    t->x.comm = (struct vl_comm){ .size = 1, .local_size = 1 };
    vl_log_init(&t->x.log, "test_update", 0, 0);
    vl_update_defaults(&t->o, role);
    t->o.clip_grad = 0;
    t->u = (struct vl_update){
        .x = &t->x,
        .o = &t->o,
        .optim = { .beta = { 0.9, 0.999 }, .kind = { VL_EXP_AVG, VL_EXP_AVG_SQ }, .moments = 2 }
    };
    make_batch(&t->b);
    if (vl_model_new(&t->u.f.model, config, "config",
                     role == VL_ROLE_CRITIC ? VL_HEAD_VALUE : VL_HEAD_LM, &e) ||
        vl_backend_cpu(&t->u.f.be, NULL, 1, 1, &e))
        fail_msg("%s", e.msg);
    vl_model_init(t->u.f.model, 3, 0.2, 0);
    if (vl_engine_new(&t->u.f.eng, t->u.f.model, t->u.f.be, &eo, &e) ||
        vl_rows_read(&d->rows, &t->b, 11, &e))
        fail_msg("%s", e.msg);
    d->inv_temp = 0.8f;
    d->mask = vl_alloc(sizeof mask);
    memcpy(d->mask, mask, sizeof mask);
    d->valid = vl_alloc(sizeof *d->valid * B);
    for (int i = 0; i < B * R; i++) {
        d->valid[i / R] += mask[i];
        t->column[0][i] = -2.2f + 0.1f * (float)(i % 5);
        t->column[1][i] = 2.5f * (float)(i / R) - 3.1f; /* as in GRPO, one number a row */
        t->column[2][i] = -2.5f + 0.2f * (float)(i % 4);
        t->column[3][i] = 0.5f + 0.1f * (float)(i % 3);
    }
}

static void bench_close(struct bench *t)
{
    vl_update_data_free(&t->u.data);
    vl_infer_close(&t->u.f);
    vl_batch_free(&t->b);
}

/* Loss of one step over all rows that changes nothing; the gradient stays in the slab. */
static double loss(struct bench *t)
{
    static const int64_t rows[B] = { 0, 1, 2, 3 };
    struct vl_step_result r;
    struct vl_err e = { 0 };
    double x;

    vl_engine_repack(t->u.f.eng);
    if (vl_update_step(&t->u, rows, B, 0, &r, &e))
        fail_msg("%s", e.msg);
    assert_true(!r.skipped && !r.empty && r.changed == 0);
    assert_true(vl_loss_sums_value(&r.sums, VL_M_LOSS, &x));
    return x;
}

static void check_gradient(struct bench *t, const char *what)
{
    struct vl_model *m = t->u.f.model;
    float *p = vl_engine_params(t->u.f.eng), *g = vl_engine_grads(t->u.f.eng);
    size_t bytes = sizeof(float) * (size_t)m->count;
    float *p0 = vl_alloc(bytes), *g0 = vl_alloc(bytes);
    double total = 0;

    loss(t);
    memcpy(p0, p, bytes);
    memcpy(g0, g, bytes);
    for (int64_t i = 0; i < m->count; i++)
        total += (double)g0[i] * (double)g0[i];
    total = sqrt(total);
    assert_true(total > 1e-3);
    for (int64_t k = 0; k < m->nparam; k++) {
        const struct vl_param *a = &m->param[k];
        int64_t n = a->rows * a->cols;
        double norm = 0, up, down, eps = 4e-3, rate;

        for (int64_t i = 0; i < n; i++)
            norm += (double)g0[a->offset + i] * (double)g0[a->offset + i];
        norm = sqrt(norm);
        if (norm < 1e-3 * total) /* the key bias: its gradient is zero but for rounding */
            continue;
        for (int side = -1; side <= 1; side += 2) {
            for (int64_t i = 0; i < n; i++)
                p[a->offset + i] =
                    p0[a->offset + i] + (float)(side * eps * (double)g0[a->offset + i] / norm);
            *(side < 0 ? &down : &up) = loss(t);
        }
        memcpy(p, p0, bytes);
        rate = (up - down) / (2 * eps);
        if (!(fabs(rate - norm) <= 0.01 * norm + 2e-4 * total))
            fail_msg("%s, %s: the loss changes at %g, the gradient's norm is %g", what, a->name,
                     rate, norm);
    }
    free(p0);
    free(g0);
}

static void test_actor(void **state)
{
    static const char *const loss_name[] = { "vanilla", "gspo", "sapo", "gpg", "geo_mean", "sppo" };
    static const enum vl_agg agg[] = { VL_AGG_TOKEN_MEAN,          VL_AGG_SEQ_MEAN_TOKEN_SUM,
                                       VL_AGG_SEQ_MEAN_TOKEN_MEAN, VL_AGG_SEQ_MEAN_TOKEN_SUM_NORM,
                                       VL_AGG_TOKEN_MEAN,          VL_AGG_TOKEN_MEAN };

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct bench t;
        struct vl_err e = { 0 };

        bench_open(&t, VL_ROLE_ACTOR);
        t.o.entropy_coeff = 0.3;
        t.o.pg.clip_ratio_low = 0.9999; /* wide: kinks would break the differences */
        t.o.pg.clip_ratio_high = 99;
        t.o.pg.clip_ratio_c = 200;
        t.u.actor = (struct vl_actor_opts){ .loss = vl_pg_find(loss_name[i], &e),
                                            .pg = t.o.pg,
                                            .entropy_coeff = t.o.entropy_coeff,
                                            .use_kl_loss = 1,
                                            .kl_loss_coef = 0.2 };
        t.u.actor.pg.agg = agg[i];
        assert_int_equal(vl_kl_parse(&t.u.actor.kl_loss_type, "low_var_kl", &e), 0);
        t.u.data.old_logp = t.column[0];
        t.u.data.adv = t.column[1];
        t.u.data.ref_logp = t.column[2];
        t.u.data.is_weights = i == 0 ? t.column[3] : NULL;
        check_gradient(&t, loss_name[i]);
        bench_close(&t);
    }
}

/* The teacher's lists, K ids a token, against the policy's log-probs of them, through the head. */
static void test_distill(void **state)
{
    static const char *const mode[] = { "forward_kl_topk", "reverse_kl_topk", "jsd_topk", "k3",
                                        "forward_kl_topk" };
    enum { K = 3 };

    (void)state;
    for (int i = 0; i < 5; i++) {
        struct bench t;
        struct vl_err e = { 0 };
        int64_t id[B * R * K];
        float lp[B * R * K];

        bench_open(&t, VL_ROLE_ACTOR);
        for (int j = 0; j < B * R * K; j++) {
            id[j] = (j * 5 + j / K) % 11;
            lp[j] = -0.5f - 0.9f * (float)(j % K) - 0.1f * (float)(j % 4);
        }
        t.u.distill = t.o.distillation;
        t.u.distill.with_policy = i == 4;
        t.u.distill.coef = 0.7;
        assert_int_equal(vl_distill_parse(&t.u.distill, mode[i], &e), 0);
        t.u.actor = (struct vl_actor_opts){ .loss = vl_pg_find("gpg", &e),
                                            .pg = t.o.pg,
                                            .distill = &t.u.distill };
        t.u.data.teacher = t.column[2];
        if (vl_distill_is_topk(&t.u.distill)) {
            t.u.data.K = K;
            t.u.data.topk_id = id;
            t.u.data.topk_logp = lp;
        }
        t.u.data.old_logp = t.column[0];
        t.u.data.adv = t.column[1];
        check_gradient(&t, mode[i]);
        bench_close(&t);
    }
}

static void test_critic(void **state)
{
    struct bench t;

    (void)state;
    bench_open(&t, VL_ROLE_CRITIC);
    t.o.cliprange_value = 100;
    t.u.data.values = t.column[0];
    t.u.data.returns = t.column[1];
    check_gradient(&t, "critic");
    bench_close(&t);
}

static void test_sft(void **state)
{
    struct bench t;

    (void)state;
    bench_open(&t, VL_ROLE_SFT);
    check_gradient(&t, "sft");
    bench_close(&t);
}

static void test_dpo(void **state)
{
    static const char *const kind[] = { "sigmoid", "ipo", "hinge", "sppo", "sigmoid" };

    (void)state;
    for (int i = 0; i < 5; i++) {
        struct bench t;
        struct vl_err e = { 0 };

        bench_open(&t, VL_ROLE_DPO);
        t.u.pref = t.o.pref;
        t.u.pref.label_smoothing = i == 0 ? 0.1 : 0;
        t.u.pref.rpo_alpha = i == 4 ? 0.3 : 0;
        t.u.pref.length_norm = t.u.pref.reference_free = i == 4; /* SimPO */
        t.u.pref.gamma = i == 4 ? 0.5 : 0;
        assert_int_equal(vl_pref_parse(&t.u.pref, kind[i], &e), 0);
        t.u.data.ref_logp = i == 4 ? NULL : t.column[2];
        check_gradient(&t, kind[i]);
        bench_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan), cmocka_unit_test(test_actor),   cmocka_unit_test(test_critic),
        cmocka_unit_test(test_sft),  cmocka_unit_test(test_distill), cmocka_unit_test(test_dpo),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
