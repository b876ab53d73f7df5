/* stage_advantage.c - verl-advantage: options, the adaptive coefficient between steps, input and
 * output. See stage_advantage.h; the work itself is advantage_steps.c. */
#include "libverl/run/stage_advantage.h"

#include <stdlib.h>
#include <string.h>

#include "formats/dp.h"
#include "formats/json.h"
#include "libverl/algo/rollout_corr.h"
#include "libverl/algo/shaping.h"
#include "libverl/batch/ops.h"
#include "libverl/run/kl_state.h"

/* Columns this stage makes with these options, into list[8]; replaced: only those whose old values
 * must go before the work starts (the response mask is also read). */
static void list_adds(const char **list, const struct vl_advantage_opts *o,
                      const struct vl_corr *corr, int replaced)
{
    size_t n = 0;

    list[n++] = "token_level_rewards";
    list[n++] = "advantages";
    list[n++] = "returns";
    if (corr->is && !o->bypass)
        list[n++] = "rollout_is_weights";
    if (o->baseline)
        list[n++] = "reward_baselines";
    if (!replaced && corr->nrs && !o->bypass)
        list[n++] = "response_mask";
    list[n] = NULL;
}

/* ---- Options that need no data ---- */

static int check_options(struct vl_ctx *x, const struct vl_advantage_opts *o, struct vl_corr *corr,
                         struct vl_err *e)
{
    struct vl_kl_type t;
    struct vl_kl_ctrl k;
    double none[1] = { 0 };
    const struct vl_adv_estimator *est = vl_adv_find(o->estimator, e);

    if (!est || vl_kl_parse(&t, o->kl_penalty, e) ||
        vl_kl_ctrl_init(&k, o->kl_type, o->kl_coef, o->target, o->horizon, e) ||
        vl_corr_parse(corr, o->is, o->is_threshold, o->is_normalize, o->rs, o->rs_threshold, e))
        return e->code;
    if (o->pf_ppo && vl_pf_ppo_weights(none, o->pf_method, o->pf_pow, none, 1, e))
        return e->code;
    if (o->use_kl && k.adaptive && !o->kl_state)
        return vl_fail(e, VL_E_USAGE,
                       "kl_ctrl.type=adaptive needs --kl-state DIR, where the "
                       "coefficient lives between steps");
    if (o->kl_state && !(o->use_kl && k.adaptive))
        return vl_fail(e, VL_E_USAGE,
                       "--kl-state has no effect without use_kl_in_reward=true and "
                       "kl_ctrl.type=adaptive");
    if (o->use_kl && o->use_kl_loss && !o->twice)
        return vl_fail(e, VL_E_USAGE,
                       "use_kl_in_reward and actor.use_kl_loss are both on: the KL would count in "
                       "the reward and in the loss; give --kl-twice if that is meant");
    if (o->baseline && !(est->needs & VL_ADV_BASELINES))
        return vl_fail(e, VL_E_USAGE,
                       "--baseline has no effect with adv_estimator=%s; remax uses it",
                       o->estimator);
    if (vl_components_check(x, o, est, e))
        return e->code;
    if (x->comm.rank == 0 && o->zero_tail && !(est->needs & VL_ADV_SUM_PI2))
        vl_warn(&x->log,
                "handle_zero_tail has no effect with adv_estimator=%s; the token baselines read it",
                o->estimator);
    if (x->comm.rank == 0 && !strcmp(o->estimator, "grpo_vectorized") && !o->adv.norm_by_std)
        vl_warn(&x->log, "norm_adv_by_std_in_grpo=false has no effect with "
                         "adv_estimator=grpo_vectorized, as in verl; grpo honours it");
    if (x->comm.rank == 0 && !o->adv.whiten_mean && strcmp(o->estimator, "gdpo") &&
        strcmp(o->estimator, "reinforce_plus_plus_baseline"))
        vl_warn(&x->log,
                "whiten_mean=false has no effect with adv_estimator=%s; "
                "reinforce_plus_plus_baseline and gdpo read it",
                o->estimator);
    if (x->comm.rank == 0 && o->pf_ppo && strcmp(o->estimator, "gae"))
        vl_warn(&x->log, "use_pf_ppo has no effect with adv_estimator=%s, as in verl (gae has it)",
                o->estimator);
    return 0;
}

/* Content hash of what the coefficient is computed from: the batch may come back with columns and
 * metrics of an earlier run. */
static int hash_inputs(const struct vl_batch *b, char hex[33], struct vl_err *e)
{
    static const char *const all[] = {
        "uid", "sample", "response_mask", "old_log_probs", "ref_log_prob", "rollout_log_probs", NULL
    };
    static const char *const meta[] = { NULL };
    const char *there[8];
    struct vl_batch part = { 0 };
    size_t n = 0;

    for (size_t i = 0; all[i]; i++)
        if (vl_batch_col(b, all[i]))
            there[n++] = all[i];
    there[n] = NULL;
    if (vl_batch_select(&part, b, there, meta, e) == 0)
        (void)!vl_dp_hash(&part, hex, e);
    vl_batch_free(&part);
    return e->code;
}

/* Records that are kept, a few hundred bytes each: so many steps can be run again. */
#define KL_VERSIONS 1000

/* The KL settings the record is made with, and the step it belongs to. */
static char *kl_options(const struct vl_batch *b, const struct vl_advantage_opts *o)
{
    struct vl_buf t = { 0 };
    const char *step = vl_meta_get(b, "global_steps");

    vl_buf_printf(&t, "{\"global_steps\": %s, \"kl_penalty\": ", step ? step : "null");
    vl_json_put_str(&t, o->kl_penalty, strlen(o->kl_penalty));
    vl_buf_str(&t, ", \"target_kl\": ");
    vl_json_put_f64(&t, o->target);
    vl_buf_str(&t, ", \"horizon\": ");
    vl_json_put_f64(&t, o->horizon);
    vl_buf_ch(&t, '}');
    return vl_buf_detach(&t);
}

/* One step with an adaptive coefficient; see kl_state.h for running it again. */
static int adaptive(struct vl_ctx *x, struct vl_batch *b, const struct vl_advantage_opts *o,
                    struct vl_err *e)
{
    struct vl_kl_state s;
    struct vl_kl_ctrl k;
    char hash[33], *options = kl_options(b, o);
    int64_t rows = b->rows, step = -1;
    double mean_kl;

    (void)vl_meta_i64(b, "global_steps", &step);
    if (hash_inputs(b, hash, e)) {
        free(options);
        return e->code;
    }
    if (vl_kl_state_open(&s, o->kl_state, o->kl_coef, step, hash, options, e) ||
        vl_kl_ctrl_init(&k, o->kl_type, s.coef, o->target, o->horizon, e) ||
        vl_advantage_batch(x, b, o, s.coef, &mean_kl, e))
        goto done;
    vl_kl_ctrl_update(&k, mean_kl, (double)rows);
    if (s.made)
        vl_info(&x->log, "%s: this step is in already; using its coefficient %g again", o->kl_state,
                s.coef);
    (void)!vl_kl_state_publish(&s, k.coef, mean_kl, rows, hash, options, KL_VERSIONS, e);
done:
    vl_kl_state_close(&s);
    free(options);
    return e->code;
}

int vl_stage_advantage(struct vl_ctx *x, const void *opts, struct vl_err *e)
{
    const struct vl_advantage_opts *o = opts;
    const char *adds[8];
    struct vl_batch b = { 0 };
    struct vl_corr corr;
    double mean_kl;

    if (check_options(x, o, &corr, e) || vl_stage_read(x, &b, e))
        goto done;
    list_adds(adds, o, &corr, 1);
    vl_stage_replaces(x, &b, adds);
    if (x->comm.rank == 0) {
        if (b.rows == 0)
            vl_fail(e, VL_E_DATA, "the batch has no rows");
        else if (o->kl_state)
            (void)!adaptive(x, &b, o, e);
        else
            (void)!vl_advantage_batch(x, &b, o, o->kl_coef, &mean_kl, e);
    }
    list_adds(adds, o, &corr, 0);
    if (vl_comm_agree(&x->comm, e) == 0 && vl_stage_write(x, &b, adds, NULL, e) == 0)
        vl_log_done(&x->log, b.rows, -1);
done:
    vl_batch_free(&b);
    return e->code;
}
