/* test_golden_loss.c - recorded cases: reductions, policy losses, the whole actor loss, value loss. */
#include "golden.h"

#include "libverl/algo/loss.h"

static struct vl_loss_rows padded(struct gcase *c, int64_t *mask, int64_t B, int64_t L)
{
    int64_t *first = gzero(c, B + 1, sizeof(*first));

    for (int64_t i = 0; i <= B; i++)
        first[i] = i * L;
    return (struct vl_loss_rows){ .B = B, .first = first, .mask = mask };
}

static struct vl_loss_norm read_norm(struct gcase *c, int64_t at)
{
    return (struct vl_loss_norm){
        .dp = gnum(c, at, "dp_size", 1),
        .tokens = gnum(c, at, "batch_num_tokens", 0),
        .seqs = gnum(c, at, "global_batch_size", 0),
        .factor = gnum(c, at, "loss_scale_factor", 0),
    };
}

static int run_agg(struct gcase *c)
{
    int64_t B, L, *m;
    enum vl_agg agg;
    float *l = gf32(c, "loss_mat", &B, &L), *dl = gzero(c, B * L, sizeof(*dl));
    struct vl_loss_norm norm = read_norm(c, c->config);

    m = gi64(c, "loss_mask", NULL, NULL);
    if (vl_agg_parse(&agg, gstr(c, c->config, "loss_agg_mode", ""), &c->e))
        return c->e.code;
    struct vl_loss_rows rows = padded(c, m, B, L);
    gwant(c, "loss", vl_agg_loss(agg, &rows, l, &norm, dl));
    if (ghas(c, c->out, "grad_loss_mat"))
        gwant_f32(c, "grad_loss_mat", dl, B * L);
    return 0;
}

static void test_agg(void **state)
{
    static const struct grunner runners[] = { { "agg_loss", run_agg }, { 0 } };

    (void)state;
    grun_file("agg_loss", runners, 1e-4);
}

static double nullable(struct gcase *c, const char *key, double otherwise)
{
    if (vl_json_get(c->j, c->config, key) < 0)
        return otherwise;
    return gnum(c, c->config, key, NAN);
}

static int read_pg_opts(struct gcase *c, struct vl_pg_opts *o)
{
    int64_t pl = vl_json_get(c->j, c->config, "policy_loss");

    o->clip_ratio = gnum(c, c->config, "clip_ratio", 0.2);
    o->clip_ratio_low = nullable(c, "clip_ratio_low", 0.2);
    o->clip_ratio_high = nullable(c, "clip_ratio_high", 0.2);
    o->clip_ratio_c = gnum(c, c->config, "clip_ratio_c", 3);
    o->tau_pos = gnum(c, c->config, "tau_pos", 1);
    o->tau_neg = gnum(c, c->config, "tau_neg", 1.05);
    o->clip_cov_ratio = gnum(c, pl, "clip_cov_ratio", 0.0002);
    o->clip_cov_lb = gnum(c, pl, "clip_cov_lb", 1);
    o->clip_cov_ub = gnum(c, pl, "clip_cov_ub", 5);
    o->kl_cov_ratio = gnum(c, pl, "kl_cov_ratio", 0.0002);
    o->ppo_kl_coef = gnum(c, pl, "ppo_kl_coef", 0.1);
    return vl_agg_parse(&o->agg, gstr(c, c->config, "loss_agg_mode", "token-mean"), &c->e);
}

static struct vl_pg_in read_pg_in(struct gcase *c, int64_t *B, int64_t *L)
{
    struct vl_pg_in in = { .logp = gf32(c, "log_prob", B, L) };

    in.old_logp = gf32(c, "old_log_prob", NULL, NULL);
    in.adv = gf32(c, "advantages", NULL, NULL);
    in.is_weights = gf32(c, "rollout_is_weights", NULL, NULL);
    in.rows = padded(c, gi64(c, "response_mask", NULL, NULL), *B, *L);
    return in;
}

/* verl drops cand[randperm[0..k)]: numbers that rank the candidates in that order. */
static double *replay_draw(struct gcase *c, const struct vl_pg_in *in, const struct vl_pg_opts *o)
{
    int64_t n, total = in->rows.first[in->rows.B];
    int64_t *cand = gzero(c, total, sizeof(*cand));
    double *draw = gzero(c, total, sizeof(*draw));
    double *perm = gdoubles(c, vl_json_get(c->j, c->in, "randperm"), &n, NULL);

    assert_int_equal(vl_clip_cov_candidates(in, o, cand), n);
    for (int64_t k = 0; k < n; k++)
        draw[cand[(int64_t)perm[k]]] = (double)k;
    return draw;
}

/* Every metric of outputs.metrics against the sums. */
static void want_metrics(struct gcase *c, const struct vl_loss_sums *s)
{
    int64_t obj = vl_json_get(c->j, c->out, "metrics"), k = obj + 1;

    assert_true(obj >= 0);
    for (uint32_t a = 0; a < c->j->node[obj].count; a++) {
        int64_t v = k + 1;
        double got;
        int found = 0;
        for (int m = 0; m < VL_M_COUNT; m++) {
            const char *name = vl_metric_name(m);
            int bare = !strncmp(name, "actor/", 6) && vl_json_streq(c->j, k, name + 6);
            if ((bare || vl_json_streq(c->j, k, name)) && vl_loss_sums_value(s, m, &got)) {
                gwant_node(c, name, v, &got, 1);
                found = 1;
            }
        }
        if (!found && !vl_json_streq(c->j, k, "kl_coef")) { /* a setting, not a result */
            print_message("# %s: metric %.*s is missing\n", c->name, (int)c->j->node[k].len,
                          c->j->text + c->j->node[k].at);
            c->bad++;
        }
        k = c->j->node[v].next;
    }
}

static int run_policy(struct gcase *c)
{
    int64_t B, L;
    struct vl_pg_opts o;
    struct vl_loss_sums s = { 0 };
    struct vl_pg_in in = read_pg_in(c, &B, &L);
    struct vl_loss_norm norm = read_norm(c, vl_json_get(c->j, c->config, "global_batch_info"));
    const struct vl_pg_loss *p = vl_pg_find(c->op, &c->e);
    float *g = gzero(c, B * L, sizeof(*g));

    if (!p || read_pg_opts(c, &o) || vl_pg_check(p, &o, &c->e))
        return c->e.code;
    if (vl_pg_needs_draw(p))
        in.draw = replay_draw(c, &in, &o);
    if (vl_pg_loss(p, &in, &o, &norm, g, &s, &c->e))
        return c->e.code;
    double loss;
    assert_true(vl_loss_sums_value(&s, VL_M_PG_LOSS, &loss));
    gwant(c, "loss", loss);
    gwant_f32(c, "grad_log_prob", g, B * L);
    want_metrics(c, &s);
    return 0;
}

static void test_policy(void **state)
{
    static const struct grunner runners[] = {
        { "vanilla", run_policy },   { "gspo", run_policy },
        { "sapo", run_policy },      { "gpg", run_policy },
        { "clip_cov", run_policy },  { "kl_cov", run_policy },
        { "geo_mean", run_policy },  { "cispo", run_policy },
        { "reinforce", run_policy }, { 0 },
    };

    (void)state;
    grun_file("policy_loss", runners, 1e-4);
}

static int run_ppo(struct gcase *c)
{
    int64_t B, L, pl = vl_json_get(c->j, c->config, "policy_loss");
    struct vl_loss_sums s = { 0 };
    struct vl_pg_in in = read_pg_in(c, &B, &L);
    struct vl_loss_norm norm = read_norm(c, c->config);
    struct vl_actor_opts o = {
        .loss = vl_pg_find(gstr(c, pl, "loss_mode", "vanilla"), &c->e),
        .entropy_coeff = gnum(c, c->config, "entropy_coeff", 0),
        .use_kl_loss = (int)gnum(c, c->config, "use_kl_loss", 0),
        .kl_loss_coef = gnum(c, c->config, "kl_loss_coef", 0.001),
    };
    float *g = gzero(c, B * L, sizeof(*g)), *dent = gzero(c, B * L, sizeof(*dent));
    double loss;

    if (!o.loss || read_pg_opts(c, &o.pg) ||
        vl_kl_parse(&o.kl_loss_type, gstr(c, c->config, "kl_loss_type", "low_var_kl"), &c->e) ||
        vl_actor_loss(&o, &in, gf32(c, "ref_log_prob", NULL, NULL), gf32(c, "entropy", NULL, NULL),
                      &norm, g, dent, &s, &c->e))
        return c->e.code;
    assert_true(vl_loss_sums_value(&s, VL_M_LOSS, &loss));
    gwant(c, "loss", loss);
    gwant_f32(c, "grad_log_prob", g, B * L);
    if (ghas(c, c->out, "grad_entropy"))
        gwant_f32(c, "grad_entropy", dent, B * L);
    want_metrics(c, &s);
    return 0;
}

static void test_ppo(void **state)
{
    static const struct grunner runners[] = { { "ppo_loss", run_ppo }, { 0 } };

    (void)state;
    grun_file("ppo_loss", runners, 1e-4);
}

static int run_value(struct gcase *c)
{
    int64_t B, L;
    enum vl_agg agg;
    struct vl_loss_sums s = { 0 };
    struct vl_loss_norm norm = { .dp = 1 };
    float *v = gf32(c, "vpreds", &B, &L), *dv = gzero(c, B * L, sizeof(*dv));
    struct vl_loss_rows rows = padded(c, gi64(c, "response_mask", NULL, NULL), B, L);
    double x;

    if (vl_agg_parse(&agg, gstr(c, c->config, "loss_agg_mode", "token-mean"), &c->e))
        return c->e.code;
    vl_value_loss(&rows, v, gf32(c, "values", NULL, NULL), gf32(c, "returns", NULL, NULL),
                  gnum(c, c->config, "cliprange_value", 0.5), agg, &norm, dv, &s);
    assert_true(vl_loss_sums_value(&s, VL_M_VF_LOSS, &x));
    gwant(c, "vf_loss", x);
    assert_true(vl_loss_sums_value(&s, VL_M_VF_CLIPFRAC, &x));
    gwant(c, "vf_clipfrac", x);
    assert_true(vl_loss_sums_value(&s, VL_M_VPRED_MEAN, &x));
    gwant(c, "vpred_mean", x);
    gwant_f32(c, "grad_vpreds", dv, B * L);
    return 0;
}

static void test_value(void **state)
{
    static const struct grunner runners[] = { { "value_loss", run_value }, { 0 } };

    (void)state;
    grun_file("value_loss", runners, 1e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agg),
        cmocka_unit_test(test_policy),
        cmocka_unit_test(test_ppo),
        cmocka_unit_test(test_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
