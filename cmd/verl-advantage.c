/* verl-advantage - advantages and returns from scores. */
#include "libverl/run/stage_advantage.h"

#include <stdio.h>
#include <stdlib.h>

#define ALGO "algorithm."
#define KL   ALGO "kl_ctrl."
#define CORR ALGO "rollout_correction."

/* "gae|grpo|..." from the table of estimators. */
static const char *estimator_names(char *buf, size_t size)
{
    size_t n, at = 0;
    const struct vl_adv_estimator *list = vl_adv_list(&n);

    for (size_t i = 0; i < n && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%s", i ? "|" : "", list[i].name);
    return buf;
}

/* The columns, an example, and each estimator's formula from the table. Caller frees. */
static char *details(void)
{
    size_t n;
    const struct vl_adv_estimator *list = vl_adv_list(&n);
    struct vl_buf b = { 0 };

    vl_buf_str(&b, "Reads token_level_scores (or rm_scores), response_mask, and by estimator uid, "
                   "values,\n"
                   "old_log_probs, ref_log_prob, rollout_log_probs, sum_pi_squared; adds\n"
                   "token_level_rewards, advantages, returns.\n"
                   "  verl-advantage -e grpo -i gen.dp -i reward.dp -o adv.dp\n"
                   "  verl-advantage -e gae gamma=1 lam=0.95 -i gen.dp -i reward.dp -i values.dp "
                   "-o adv.dp\n"
                   "Estimators, with s a row's score, mean and std those of its group:\n");
    for (size_t i = 0; i < n; i++)
        vl_buf_printf(&b, "  %-29s %s\n", list[i].name, list[i].formula);
    return vl_buf_detach(&b);
}

int main(int argc, char **argv)
{
    char names[1024], *text = details();
    struct vl_common common = { 0 };
    struct vl_advantage_opts o = VL_ADVANTAGE_DEFAULTS;
    const struct vl_opt opts[] = {
        VL_OPT_GROUP("Estimator"),
        VL_OPT_WORD("estimator", ALGO "adv_estimator", &o.estimator, "NAME",
                    estimator_names(names, sizeof(names)), VL_F_PROV,
                    "how scores become advantages", .letter = 'e'),
        VL_OPT_REAL(NULL, ALGO "gamma", &o.adv.gamma, "X", 0, 1, VL_F_PROV,
                    "discount per token (gae, reinforce_plus_plus)"),
        VL_OPT_REAL(NULL, ALGO "lam", &o.adv.lam, "X", 0, 1, VL_F_PROV, "lambda of gae"),
        VL_OPT_FLAG(NULL, ALGO "norm_adv_by_std_in_grpo", &o.adv.norm_by_std, VL_F_PROV,
                    "divide by the group's deviation (grpo, grpo_passk); false is Dr. GRPO"),
        VL_OPT_LIST(NULL, ALGO "gdpo_reward_keys", &o.components, "[NAME,...]", VL_F_PROV,
                    "gdpo: columns of its reward components"),
        VL_OPT_LIST(NULL, ALGO "gdpo_reward_weights", &o.component_weights, "[W,...]", VL_F_PROV,
                    "gdpo: their weights, 1 each unless given"),
        VL_OPT_FLAG(
            NULL, ALGO "gdpo_whiten", &o.adv.gdpo_whiten, VL_F_PROV,
            "gdpo: whiten the sum over the batch; false: groups of equal rewards get exactly 0"),
        VL_OPT_FLAG(NULL, ALGO "whiten_mean", &o.adv.whiten_mean, VL_F_PROV,
                    "reinforce_plus_plus_baseline, gdpo: whitening takes the batch's mean away; "
                    "false: it divides alone, groups of equal rewards get exactly 0"),
        VL_OPT_REAL(NULL, ALGO "sppo_beta", &o.adv.sppo_beta, "X", -1e9, 1e9, VL_F_PROV,
                    "sppo: 0 compares with the mean of the batch's scores, large with the best"),
        VL_OPT_WORD(
            NULL, ALGO "handle_zero_tail", &o.zero_tail, "NAME", "true|false",
            VL_F_PROV | VL_F_NULLABLE,
            "token baselines: none where one row alone is that long; null: true for tir_..."),
        VL_OPT_TEXT("baseline", NULL, &o.baseline, "FILE", 0,
                    "the prompts' greedy responses, scored: one row a uid (remax)"),
        VL_OPT_FLAG("as-verl", NULL, &o.as_verl, VL_F_PROV,
                    "count rewards at masked positions, keep empty rows in their groups"),
        VL_OPT_GROUP("KL in the reward"),
        VL_OPT_FLAG(NULL, ALGO "use_kl_in_reward", &o.use_kl, VL_F_PROV,
                    "reward = score - coefficient * KL(old, ref)"),
        VL_OPT_TEXT(NULL, ALGO "kl_penalty", &o.kl_penalty, "NAME", VL_F_PROV,
                    "estimator: kl, k1, abs, mse, k2, low_var_kl, k3"),
        VL_OPT_WORD(NULL, KL "type", &o.kl_type, "NAME", "fixed|adaptive", VL_F_PROV,
                    "what the coefficient does between steps"),
        VL_OPT_REAL(NULL, KL "kl_coef", &o.kl_coef, "X", 0, 1e6, VL_F_PROV,
                    "the coefficient, or the first one when adaptive"),
        VL_OPT_REAL(NULL, KL "horizon", &o.horizon, "X", 0, 1e18, VL_F_PROV,
                    "adaptive: rows over which it reacts"),
        VL_OPT_REAL(NULL, KL "target_kl", &o.target, "X", 0, 1e6, VL_F_PROV,
                    "adaptive: mean KL aimed at"),
        VL_OPT_TEXT("kl-state", NULL, &o.kl_state, "DIR", 0,
                    "adaptive: where the coefficient lives between steps"),
        VL_OPT_FLAG(NULL, "actor_rollout_ref.actor.use_kl_loss", &o.use_kl_loss, 0,
                    "read only to refuse KL in the reward and in the loss at once"),
        VL_OPT_FLAG("kl-twice", NULL, &o.twice, 0,
                    "allow KL in the reward and in the loss at once"),
        VL_OPT_GROUP("Rollout correction"),
        VL_OPT_WORD(NULL, CORR "rollout_is", &o.is, "NAME", "token|sequence",
                    VL_F_PROV | VL_F_NULLABLE, "importance weights of old over rollout log-probs"),
        VL_OPT_REAL(NULL, CORR "rollout_is_threshold", &o.is_threshold, "X", 0, 1e18, VL_F_PROV,
                    "largest weight"),
        VL_OPT_FLAG(NULL, CORR "rollout_is_batch_normalize", &o.is_normalize, VL_F_PROV,
                    "scale the weights to mean 1"),
        VL_OPT_TEXT(
            NULL, CORR "rollout_rs", &o.rs, "NAME", VL_F_PROV | VL_F_NULLABLE,
            "criteria that mask tokens out, separated by commas: seq_mean_k1, token_k2, ..."),
        VL_OPT_TEXT(NULL, CORR "rollout_rs_threshold", &o.rs_threshold, "NAME",
                    VL_F_PROV | VL_F_NULLABLE,
                    "their bounds: one for all or one each; 0.5_2.0 for k1, 0.01 for k2 and k3"),
        VL_OPT_FLAG(NULL, CORR "bypass_mode", &o.bypass, VL_F_PROV,
                    "old log-probs are the rollout's; the correction is then part of the loss"),
        VL_OPT_GROUP("PF-PPO"),
        VL_OPT_FLAG(NULL, ALGO "use_pf_ppo", &o.pf_ppo, VL_F_PROV,
                    "after gae, draw the rows again by their scores"),
        VL_OPT_WORD(NULL, ALGO "pf_ppo.reweight_method", &o.pf_method, "NAME",
                    "pow|max_min|max_random", VL_F_PROV, "weights of the draw"),
        VL_OPT_REAL(NULL, ALGO "pf_ppo.weight_pow", &o.pf_pow, "X", 0, 1e3, VL_F_PROV,
                    "exponent of pow"),
        { .type = VL_T_END },
    };
    const struct vl_program program = {
        .name = "verl-advantage",
        .summary = "advantages and returns from scores",
        .usage = "[OPTION...] [key=value...]",
        .subtree = "algorithm",
        .details = text,
        .opts = opts,
        .omit = VL_NO_MODEL | VL_NO_STATE | VL_NO_DEVICE | VL_NO_THREADS,
    };

    int rc = vl_main(&program, &common, argc, argv, vl_stage_advantage, &o);

    free(text);
    return rc;
}
