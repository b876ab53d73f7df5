/* test_golden_metrics.c - recorded cases: metrics, validation, rollout correction, reward shaping,
 * balancing. */
#include "golden.h"

#include "libverl/algo/balance.h"
#include "libverl/algo/metrics.h"
#include "libverl/algo/rollout_corr.h"
#include "libverl/algo/shaping.h"
#include "libverl/algo/validation.h"

/* Every member of the object at `obj` is in m (after prefix) within tolerance, and, when exact, m
 * has no other. suffix_atol: names that end in _std are compared with 1e-3 (a float32 difference of
 * squares in verl). */
static void want_object(struct gcase *c, int64_t obj, const char *prefix,
                        const struct vl_metrics *m, int exact)
{
    int64_t k = obj + 1;
    assert_true(obj >= 0);
    size_t members = c->j->node[obj].count;

    for (uint32_t a = 0; a < members; a++) {
        int64_t v = k + 1;
        char *key = vl_json_strdup(c->j, k), *name = vl_asprintf("%s%s", prefix, key);
        const struct vl_named *got = vl_metrics_get(m, name);
        double atol = c->atol;
        if (!got) {
            print_message("# %s: metric %s is missing\n", c->name, name);
            c->bad++;
        } else {
            size_t n = strlen(name);
            c->atol = n > 4 && !strcmp(name + n - 4, "_std") && c->atol > 0 ? 1e-3 : atol;
            gwant_node(c, name, v, &got->value, 1);
            c->atol = atol;
        }
        free(key);
        free(name);
        k = c->j->node[v].next;
    }
    if (exact && m->n != members) {
        print_message("# %s: %zu metrics, wanted %zu\n", c->name, m->n, members);
        c->bad++;
    }
}

static int64_t metrics_of(const struct gcase *c)
{
    return vl_json_get(c->j, c->out, "metrics");
}

/* ---- metrics.json ---- */

static int run_data(struct gcase *c)
{
    int64_t B, W, n;
    struct vl_step_data d = { .attention = gi64(c, "attention_mask", &B, &W) };
    struct vl_metrics m = { 0 };

    d.B = B;
    gi64(c, "responses", NULL, &d.L);
    d.P = W - d.L;
    d.mask = gi64(c, "response_mask", NULL, NULL);
    d.scores = gf32(c, "token_level_scores", NULL, NULL);
    d.rewards = gf32(c, "token_level_rewards", NULL, NULL);
    d.adv = gf32(c, "advantages", NULL, NULL);
    d.returns = gf32(c, "returns", NULL, NULL);
    if (gnum(c, c->config, "use_critic", 0) != 0)
        d.values = gf32(c, "values", NULL, NULL);
    if (ghas(c, c->in, "__num_turns__"))
        d.num_turns = gdoubles(c, vl_json_get(c->j, c->in, "__num_turns__"), &n, NULL);
    if (vl_data_metrics(&m, &d, &c->e) == 0 && !ghas(c, c->out, "error"))
        want_object(c, metrics_of(c), "", &m, 1);
    vl_metrics_free(&m);
    return c->e.code;
}

static void read_seconds(struct gcase *c, struct vl_metrics *t)
{
    int64_t obj = vl_json_get(c->j, c->in, "timing_raw"), k = obj + 1;

    for (uint32_t a = 0; a < c->j->node[obj].count; a++, k = c->j->node[k + 1].next) {
        char *key = vl_json_strdup(c->j, k);
        vl_metrics_set(t, key, gvalue(c->j, k + 1));
        free(key);
    }
}

static int run_timing(struct gcase *c)
{
    int64_t B, W, L, prompt = 0, response = 0, *att = gi64(c, "attention_mask", &B, &W);
    struct vl_metrics m = { 0 }, t = { 0 };

    gi64(c, "responses", NULL, &L);
    for (int64_t j = 0; j < B * W; j++)
        *(j % W < W - L ? &prompt : &response) += att[j];
    read_seconds(c, &t);
    vl_timing_metrics(&m, &t, prompt, response);
    want_object(c, metrics_of(c), "", &m, 1);
    vl_metrics_free(&m);
    vl_metrics_free(&t);
    return 0;
}

static int run_throughput(struct gcase *c)
{
    int64_t n, tokens = 0;
    double *len = gdoubles(c, vl_json_get(c->j, c->in, "global_token_num"), &n, NULL);
    struct vl_metrics m = { 0 }, t = { 0 };

    for (int64_t i = 0; i < n; i++)
        tokens += (int64_t)len[i];
    read_seconds(c, &t);
    vl_throughput_metrics(&m, tokens, vl_metrics_get(&t, "step")->value,
                          (int64_t)gnum(c, c->config, "n_gpus", 1));
    want_object(c, metrics_of(c), "", &m, 1);
    vl_metrics_free(&m);
    vl_metrics_free(&t);
    return 0;
}

static int run_variance(struct gcase *c)
{
    int64_t B, L;
    float *adv = gf32(c, "advantages", &B, &L);
    struct vl_metrics m = { 0 };

    vl_variance_metrics(&m, B, L, adv, gi64(c, "response_mask", NULL, NULL),
                        gf32(c, "old_log_probs", NULL, NULL), gf32(c, "sum_pi_squared", NULL, NULL),
                        gf32(c, "rollout_is_weights", NULL, NULL),
                        gnum(c, c->config, "gradient_norm", NAN));
    want_object(c, metrics_of(c), "", &m, 1);
    vl_metrics_free(&m);
    return 0;
}

static int run_probs_diff(struct gcase *c)
{
    int64_t B, L;
    float *old = gf32(c, "old_log_probs", &B, &L);
    struct vl_metrics m = { 0 };

    vl_probs_diff_metrics(&m, old, gf32(c, "rollout_log_probs", NULL, NULL),
                          gi64(c, "response_mask", NULL, NULL), B * L);
    want_object(c, metrics_of(c), "", &m, 1);
    vl_metrics_free(&m);
    return 0;
}

static int run_reduce(struct gcase *c)
{
    int64_t obj = vl_json_get(c->j, c->in, "metrics"), k = obj + 1, n;
    struct vl_metrics m = { 0 };

    for (uint32_t a = 0; a < c->j->node[obj].count; a++, k = c->j->node[k + 1].next) {
        char *key = vl_json_strdup(c->j, k);
        double *x = gdoubles(c, k + 1, &n, NULL);
        vl_metrics_set(&m, key, vl_metric_reduce(key, x, n));
        free(key);
    }
    want_object(c, metrics_of(c), "", &m, 1);
    vl_metrics_free(&m);
    return 0;
}

static int run_aggregate(struct gcase *c)
{
    int64_t n;
    double got, *x = gdoubles(c, vl_json_get(c->j, c->in, "values"), &n, NULL);

    if (vl_metric_aggregate(&got, gstr(c, c->config, "aggregation", ""), x, n, &c->e))
        return c->e.code;
    gwant(c, "result", got);
    return 0;
}

static const char **read_texts(struct gcase *c, int64_t list)
{
    int64_t k = list + 1;
    uint32_t n = c->j->node[list].count;
    const char **s = gzero(c, n, sizeof(*s));

    for (uint32_t i = 0; i < n; i++, k = c->j->node[k].next)
        s[i] = gkeep(c, vl_json_strdup(c->j, k));
    return s;
}

/* nested: {source: {variable: {metric: x}}} against the logged names without their first part. */
static void want_nested(struct gcase *c, const struct vl_metrics *m)
{
    struct vl_metrics bare = { 0 };
    int64_t nested = vl_json_get(c->j, c->out, "nested"), s = nested + 1;

    for (size_t i = 0; i < m->n; i++)
        vl_metrics_set(&bare, strchr(m->m[i].name, '/') + 1, m->m[i].value);
    for (uint32_t a = 0; a < c->j->node[nested].count; a++, s = c->j->node[s + 1].next) {
        int64_t v = s + 2;
        char *source = vl_json_strdup(c->j, s);
        for (uint32_t b = 0; b < c->j->node[s + 1].count; b++, v = c->j->node[v + 1].next) {
            char *var = vl_json_strdup(c->j, v), *prefix = vl_asprintf("%s/%s/", source, var);
            want_object(c, v + 1, prefix, &bare, 0);
            free(var);
            free(prefix);
        }
        free(source);
    }
    vl_metrics_free(&bare);
}

static int run_validation(struct gcase *c)
{
    int64_t infos = vl_json_get(c->j, c->in, "infos"), k = infos + 1, N;
    struct vl_val_in in = { 0 };
    struct vl_val_var *var = gzero(c, c->j->node[infos].count, sizeof(*var));
    struct vl_metrics m = { 0 };

    c->rtol = 1e-9;
    c->atol = 1e-12;
    for (uint32_t a = 0; a < c->j->node[infos].count; a++, k = c->j->node[k + 1].next) {
        if (vl_json_streq(c->j, k, "pred")) {
            in.pred = read_texts(c, k + 1);
            continue;
        }
        var[in.nvar].name = gkeep(c, vl_json_strdup(c->j, k));
        var[in.nvar++].x = gdoubles(c, k + 1, &N, NULL);
    }
    in.var = var;
    in.N = N;
    in.source = read_texts(c, vl_json_get(c->j, c->in, "data_sources"));
    in.uid = read_texts(c, vl_json_get(c->j, c->in, "sample_uids"));
    if (vl_val_metrics(&m, &in, &c->e) == 0) {
        want_object(c, vl_json_get(c->j, c->out, "logged"), "", &m, 1);
        want_nested(c, &m);
    }
    vl_metrics_free(&m);
    return c->e.code;
}

static int run_bootstrap(struct gcase *c)
{
    int64_t n, k = (int64_t)gnum(c, c->config, "subset_size", 0);
    int64_t runs = (int64_t)gnum(c, c->config, "n_bootstrap", 0);
    int64_t *idx = gzero(c, runs * k, sizeof(*idx));
    double *x = gdoubles(c, vl_json_get(c->j, c->in, "data"), &n, NULL), want[4];

    c->rtol = 1e-9;
    vl_bootstrap_indices(idx, n, k, runs, (uint32_t)gnum(c, c->config, "seed", 0));
    gwant_i64(c, "indices", idx, runs * k);
    for (int w = 0; w < 2; w++) { /* results: mean and deviation of the maxima, of the minima */
        double s = 0, ss = 0, *y = gzero(c, runs, sizeof(*y));
        for (int64_t r = 0; r < runs; r++) {
            y[r] = x[idx[r * k]];
            for (int64_t a = 1; a < k; a++)
                y[r] = w ? fmin(y[r], x[idx[r * k + a]]) : fmax(y[r], x[idx[r * k + a]]);
            s += y[r] / (double)runs;
        }
        for (int64_t r = 0; r < runs; r++)
            ss += (y[r] - s) * (y[r] - s) / (double)runs;
        want[2 * w] = s;
        want[2 * w + 1] = sqrt(ss);
    }
    gwant_node(c, "results", vl_json_get(c->j, c->out, "results"), want, 4);
    return 0;
}

static void test_metrics(void **state)
{
    static const struct grunner runners[] = {
        { "data_metrics", run_data },
        { "timing_metrics", run_timing },
        { "throughput_metrics", run_throughput },
        { "variance_proxy", run_variance },
        { "rollout_probs_diff", run_probs_diff },
        { "reduce_metrics", run_reduce },
        { "metric_aggregate", run_aggregate },
        { "validation_metrics", run_validation },
        { "bootstrap_metric", run_bootstrap },
        { 0 },
    };

    (void)state;
    grun_file("metrics", runners, 1e-4);
}

/* ---- rollout_correction.json, bypass_mode.json ---- */

static struct vl_loss_rows padded(struct gcase *c, int64_t *mask, int64_t B, int64_t L)
{
    int64_t *first = gzero(c, B + 1, sizeof(*first));

    for (int64_t i = 0; i <= B; i++)
        first[i] = i * L;
    return (struct vl_loss_rows){ .B = B, .first = first, .mask = mask };
}

static int read_corr(struct gcase *c, int64_t at, struct vl_corr *k)
{
    char *spec = NULL;
    int64_t node = vl_json_get(c->j, at, "rollout_rs_threshold");

    if (node >= 0 && vl_json_is(c->j, node, VL_JSON_STRING))
        spec = vl_json_strdup(c->j, node);
    else if (node >= 0 && vl_json_is(c->j, node, VL_JSON_NUMBER))
        spec = vl_strndup(c->j->text + c->j->node[node].at, c->j->node[node].len);
    if (spec)
        gkeep(c, spec);
    return vl_corr_parse(k, gstr(c, at, "rollout_is", NULL), gnum(c, at, "rollout_is_threshold", 2),
                         (int)gnum(c, at, "rollout_is_batch_normalize", 0),
                         gstr(c, at, "rollout_rs", NULL), spec, &c->e);
}

static int run_corr(struct gcase *c)
{
    int64_t B, L;
    struct vl_corr k;
    struct vl_metrics m = { 0 };
    float *old = gf32(c, "old_log_prob", &B, &L), *w = gzero(c, B * L, sizeof(*w));
    struct vl_loss_rows rows = padded(c, gi64(c, "response_mask", NULL, NULL), B, L);
    int64_t *keep = gzero(c, B * L, sizeof(*keep));

    if (read_corr(c, c->config, &k) ||
        vl_corr_apply(&k, &rows, old, gf32(c, "rollout_log_prob", NULL, NULL), w, keep, &m, &c->e))
        goto done;
    if (ghas(c, c->out, "rollout_is_weights"))
        gwant_f32(c, "rollout_is_weights", w, B * L);
    else
        assert_int_equal(k.is, VL_IS_NONE);
    gwant_i64(c, "modified_response_mask", keep, B * L);
    want_object(c, metrics_of(c), "", &m, 1);
done:
    vl_metrics_free(&m);
    return c->e.code;
}

static int run_offpolicy(struct gcase *c)
{
    int64_t B, L;
    struct vl_metrics m = { 0 };
    float *old = gf32(c, "old_log_prob", &B, &L);
    struct vl_loss_rows rows = padded(c, gi64(c, "response_mask", NULL, NULL), B, L);

    vl_offpolicy_metrics(&m, "", &rows, old, gf32(c, "rollout_log_prob", NULL, NULL));
    want_object(c, metrics_of(c), "", &m, 1);
    vl_metrics_free(&m);
    return 0;
}

static int run_threshold(struct gcase *c)
{
    struct vl_corr k;

    if (read_corr(c, c->config, &k))
        return c->e.code;
    int64_t obj = vl_json_get(c->j, c->out, "thresholds");
    assert_true(obj >= 0);
    assert_int_equal(c->j->node[obj].count, k.nrs);
    for (int a = 0; a < k.nrs; a++) {
        int64_t r = vl_json_get(c->j, obj, k.rs[a].name);
        assert_true(r >= 0);
        gwant_node(c, "upper", vl_json_get(c->j, r, "upper"), &k.rs[a].upper, 1);
        if (ghas(c, r, "lower"))
            gwant_node(c, "lower", vl_json_get(c->j, r, "lower"), &k.rs[a].lower, 1);
        else
            assert_true(isnan(k.rs[a].lower));
    }
    return 0;
}

static void test_rollout_correction(void **state)
{
    static const struct grunner runners[] = {
        { "rollout_correction", run_corr },
        { "offpolicy_metrics", run_offpolicy },
        { "parse_rs_threshold", run_threshold },
        { 0 },
    };

    (void)state;
    grun_file("rollout_correction", runners, 1e-4);
}

static int run_bypass(struct gcase *c)
{
    int64_t B, L, rc = vl_json_get(c->j, c->config, "rollout_correction");
    struct vl_corr k;
    struct vl_metrics m = { 0 };
    struct vl_pg_opts o = VL_PG_DEFAULTS;
    struct vl_loss_sums s = { 0 };
    struct vl_loss_norm norm = { .dp = 1 };
    struct vl_pg_in in = { .logp = gf32(c, "log_prob", &B, &L) };
    float *g = gzero(c, B * L, sizeof(*g));
    double x;

    in.old_logp = gf32(c, "old_log_prob", NULL, NULL);
    in.adv = gf32(c, "advantages", NULL, NULL);
    in.rows = padded(c, gi64(c, "response_mask", NULL, NULL), B, L);
    o.clip_ratio = gnum(c, c->config, "clip_ratio", 0.2);
    o.clip_ratio_low = vl_json_get(c->j, c->config, "clip_ratio_low") < 0
                           ? 0.2
                           : gnum(c, c->config, "clip_ratio_low", NAN);
    o.clip_ratio_high = vl_json_get(c->j, c->config, "clip_ratio_high") < 0
                            ? 0.2
                            : gnum(c, c->config, "clip_ratio_high", NAN);
    o.clip_ratio_c = gnum(c, c->config, "clip_ratio_c", 3);
    if (read_corr(c, rc, &k) ||
        vl_agg_parse(&o.agg, gstr(c, c->config, "loss_agg_mode", "token-mean"), &c->e) ||
        vl_bypass_loss(gstr(c, rc, "loss_type", "ppo_clip"), &k, &in, &o, &norm, g, &s, &m, &c->e))
        goto done;
    for (int a = 0; a < VL_M_COUNT; a++)
        if (vl_loss_sums_value(&s, a, &x))
            vl_metrics_set(&m, vl_metric_name(a), x);
        else if (a == VL_M_PPO_KL) /* all rejected: a mean of nothing is absent here, 0 in verl */
            vl_metrics_set(&m, vl_metric_name(a), 0);
    assert_true(vl_loss_sums_value(&s, VL_M_PG_LOSS, &x));
    gwant(c, "loss", x);
    gwant_f32(c, "grad_log_prob", g, B * L);
    want_object(c, metrics_of(c), "", &m, 0);
done:
    vl_metrics_free(&m);
    return c->e.code;
}

static void test_bypass(void **state)
{
    static const struct grunner runners[] = { { "bypass_mode", run_bypass }, { 0 } };

    (void)state;
    grun_file("bypass_mode", runners, 1e-4);
}

/* ---- reward_shaping.json ---- */

static int run_overlong(struct gcase *c)
{
    int64_t n, L = (int64_t)gnum(c, c->in, "response_width", 0);
    struct vl_overlong o = { .max_resp_len = (int64_t)gnum(c, c->config, "max_resp_len", 0),
                             .len = (int64_t)gnum(c, c->config, "len", 0),
                             .penalty_factor = gnum(c, c->config, "penalty_factor", 1) };
    int on = (int)gnum(c, c->config, "enable", 0);
    double *s = gdoubles(c, vl_json_get(c->j, c->in, "scores"), &n, NULL);
    double *len = gdoubles(c, vl_json_get(c->j, c->in, "response_lengths"), &n, NULL);
    double *pen = gzero(c, n, sizeof(*pen)), *is = gzero(c, n, sizeof(*is));
    float *r = gzero(c, n * L, sizeof(*r));
    int64_t extra = vl_json_get(c->j, c->out, "reward_extra_info");

    if (on && vl_overlong_check(&o, &c->e))
        return c->e.code;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = (int64_t)len[i];
        pen[i] = on ? vl_overlong_penalty(&o, k) : 0;
        is[i] = pen[i] < 0;
        r[i * L + (k > 0 ? k - 1 : L - 1)] = (float)(s[i] + pen[i]); /* empty: verl's index -1 */
    }
    gwant_f32(c, "reward_tensor", r, n * L);
    if (ghas(c, extra, "overlong_reward")) {
        gwant_node(c, "overlong_reward", vl_json_get(c->j, extra, "overlong_reward"), pen, n);
        gwant_node(c, "overlong", vl_json_get(c->j, extra, "overlong"), is, n);
    }
    return 0;
}

static int run_pf_ppo(struct gcase *c)
{
    int64_t B, L;
    float *s = gf32(c, "token_level_scores", &B, &L), *adv = gf32(c, "advantages", NULL, NULL);
    double *sum = gzero(c, B, sizeof(*sum)), *w = gzero(c, B, sizeof(*w));

    for (int64_t j = 0; j < B * L; j++)
        sum[j / L] += s[j];
    if (vl_pf_ppo_weights(w, gstr(c, c->config, "reweight_method", "pow"),
                          gnum(c, c->config, "weight_pow", 2), sum, B, &c->e))
        return c->e.code;
    gwant_node(c, "weights", vl_json_get(c->j, c->out, "weights"), w, B);
    int64_t *drawn = gi64(c, "drawn_indices", NULL, NULL);
    float *gs = gzero(c, B * L, sizeof(*gs)), *ga = gzero(c, B * L, sizeof(*ga));
    for (int64_t j = 0; j < B * L; j++) {
        gs[j] = s[drawn[j / L] * L + j % L];
        ga[j] = adv[drawn[j / L] * L + j % L];
    }
    gwant_f32(c, "token_level_scores", gs, B * L);
    gwant_f32(c, "advantages", ga, B * L);
    return 0;
}

/* The draw follows the weights: row k is where the running sum passes u. */
static void test_pf_ppo_draw(void **state)
{
    static const double w[4] = { 1, 0, 2, 1 }, u[4] = { 0.1, 0.26, 0.74, 0.99 };
    int64_t idx[4];

    (void)state;
    vl_pf_ppo_draw(idx, 4, u, w, 4);
    assert_true(idx[0] == 0 && idx[1] == 2 && idx[2] == 2 && idx[3] == 3);
}

static void test_reward_shaping(void **state)
{
    static const struct grunner runners[] = {
        { "overlong", run_overlong },
        { "pf_ppo", run_pf_ppo },
        { 0 },
    };

    (void)state;
    grun_file("reward_shaping", runners, 1e-4);
}

/* ---- balance.json ---- */

static void want_parts(struct gcase *c, const char *key, const struct vl_parts *p)
{
    int64_t list = vl_json_get(c->j, c->out, key), k = list + 1;

    assert_true(list >= 0);
    assert_int_equal(c->j->node[list].count, p->k);
    for (int64_t a = 0; a < p->k; a++, k = c->j->node[k].next) {
        int64_t n = p->first[a + 1] - p->first[a];
        double *x = gzero(c, n, sizeof(*x));
        for (int64_t i = 0; i < n; i++)
            x[i] = (double)p->item[p->first[a] + i];
        gwant_node(c, key, k, x, n);
    }
}

static int run_partition(struct gcase *c)
{
    int64_t n, *len = gi64(c, "seqlens", &n, NULL);
    struct vl_parts p;
    struct vl_metrics m = { 0 };

    n = c->j->node[vl_json_get(c->j, c->in, "seqlens")].count;
    int64_t *work = gzero(c, n, sizeof(*work));
    for (int64_t i = 0; i < n; i++)
        work[i] = vl_row_work(len[i]);
    if (vl_partition(&p, work, n, (int64_t)gnum(c, c->config, "k_partitions", 0),
                     (int)gnum(c, c->config, "equal_size", 0), &c->e))
        return c->e.code;
    gwant_i64(c, "workload", work, n);
    want_parts(c, "partitions", &p);
    if (ghas(c, c->out, "metrics")) {
        vl_balance_metrics(&m, len, n, &p);
        want_object(c, metrics_of(c), "", &m, 1);
    }
    vl_metrics_free(&m);
    vl_parts_free(&p);
    return 0;
}

static int run_dynamic(struct gcase *c)
{
    int64_t n = c->j->node[vl_json_get(c->j, c->in, "seqlens")].count;
    struct vl_parts p;

    if (vl_dynamic_batches(&p, gi64(c, "seqlens", NULL, NULL), n,
                           (int64_t)gnum(c, c->config, "max_token_len", 0), &c->e))
        return c->e.code;
    want_parts(c, "micro_batch_indices", &p);
    vl_parts_free(&p);
    return 0;
}

static int run_balance(struct gcase *c)
{
    int64_t n = c->j->node[vl_json_get(c->j, c->in, "seqlens")].count;
    int64_t *order = gzero(c, n, sizeof(*order));
    struct vl_metrics m = { 0 };

    if (vl_balance_order(order, gi64(c, "seqlens", NULL, NULL), n,
                         (int64_t)gnum(c, c->config, "dp_size", 0), &m, &c->e) == 0) {
        gwant_i64(c, "order", order, n);
        want_object(c, metrics_of(c), "", &m, 1);
    }
    vl_metrics_free(&m);
    return c->e.code;
}

static void test_balance(void **state)
{
    static const struct grunner runners[] = {
        { "partition", run_partition },
        { "dynamic_micro_batches", run_dynamic },
        { "balance_batch", run_balance },
        { 0 },
    };

    (void)state;
    grun_file("balance", runners, 1e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics),     cmocka_unit_test(test_rollout_correction),
        cmocka_unit_test(test_bypass),      cmocka_unit_test(test_reward_shaping),
        cmocka_unit_test(test_pf_ppo_draw), cmocka_unit_test(test_balance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
