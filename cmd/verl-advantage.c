/* verl-advantage - advantages and returns from scores. */
#include "libverl/run/stage_advantage.h"

#include <stdio.h>
#include <stdlib.h>

#define ALGO "algorithm."
#define KL   ALGO "kl_ctrl."
#define CORR ALGO "rollout_correction."

#define FLAG(cfg, var, text)                                                                       \
    {                                                                                              \
        .type = VL_T_BOOL, .key = cfg, .dst = var, .flags = VL_F_PROV, .help = text                \
    }
#define REAL(cfg, var, min, max, text)                                                             \
    {                                                                                              \
        .type = VL_T_F64, .key = cfg, .dst = var, .arg = "X", .lo = min, .hi = max,                \
        .flags = VL_F_PROV, .help = text                                                           \
    }
#define TEXT(cfg, var, among, more, text)                                                          \
    {                                                                                              \
        .type = VL_T_STR, .key = cfg, .dst = var, .arg = "NAME", .choices = among,                 \
        .flags = VL_F_PROV | (more), .help = text                                                  \
    }

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
        { .type = VL_T_GROUP, .help = "Estimator" },
        { .type = VL_T_STR,
          .letter = 'e',
          .name = "estimator",
          .key = ALGO "adv_estimator",
          .dst = &o.estimator,
          .arg = "NAME",
          .choices = estimator_names(names, sizeof(names)),
          .flags = VL_F_PROV,
          .help = "how scores become advantages" },
        REAL(ALGO "gamma", &o.adv.gamma, 0, 1, "discount per token (gae, reinforce_plus_plus)"),
        REAL(ALGO "lam", &o.adv.lam, 0, 1, "lambda of gae"),
        FLAG(ALGO "norm_adv_by_std_in_grpo", &o.adv.norm_by_std,
             "divide by the group's deviation (grpo, grpo_passk); false is Dr. GRPO"),
        { .type = VL_T_LIST,
          .key = ALGO "gdpo_reward_keys",
          .dst = &o.components,
          .arg = "[NAME,...]",
          .flags = VL_F_PROV,
          .help = "gdpo: columns of its reward components" },
        { .type = VL_T_LIST,
          .key = ALGO "gdpo_reward_weights",
          .dst = &o.component_weights,
          .arg = "[W,...]",
          .flags = VL_F_PROV,
          .help = "gdpo: their weights, 1 each unless given" },
        FLAG(ALGO "gdpo_whiten", &o.adv.gdpo_whiten,
             "gdpo: whiten the sum over the batch; false: groups of equal rewards get exactly 0"),
        REAL(ALGO "sppo_beta", &o.adv.sppo_beta, -1e9, 1e9,
             "sppo: 0 compares with the mean of the batch's scores, large with the best"),
        TEXT(ALGO "handle_zero_tail", &o.zero_tail, "true|false", VL_F_NULLABLE,
             "token baselines: none where one row alone is that long; null: true for tir_..."),
        { .type = VL_T_STR,
          .name = "baseline",
          .dst = &o.baseline,
          .arg = "FILE",
          .help = "the prompts' greedy responses, scored: one row a uid (remax)" },
        { .type = VL_T_BOOL,
          .name = "as-verl",
          .dst = &o.as_verl,
          .flags = VL_F_PROV,
          .help = "count rewards at masked positions, keep empty rows in their groups" },
        { .type = VL_T_GROUP, .help = "KL in the reward" },
        FLAG(ALGO "use_kl_in_reward", &o.use_kl, "reward = score - coefficient * KL(old, ref)"),
        TEXT(ALGO "kl_penalty", &o.kl_penalty, NULL, 0,
             "estimator: kl, k1, abs, mse, k2, low_var_kl, k3"),
        TEXT(KL "type", &o.kl_type, "fixed|adaptive", 0, "what the coefficient does between steps"),
        REAL(KL "kl_coef", &o.kl_coef, 0, 1e6, "the coefficient, or the first one when adaptive"),
        REAL(KL "horizon", &o.horizon, 0, 1e18, "adaptive: rows over which it reacts"),
        REAL(KL "target_kl", &o.target, 0, 1e6, "adaptive: mean KL aimed at"),
        { .type = VL_T_STR,
          .name = "kl-state",
          .dst = &o.kl_state,
          .arg = "DIR",
          .help = "adaptive: where the coefficient lives between steps" },
        { .type = VL_T_BOOL,
          .key = "actor_rollout_ref.actor.use_kl_loss",
          .dst = &o.use_kl_loss,
          .help = "read only to refuse KL in the reward and in the loss at once" },
        { .type = VL_T_BOOL,
          .name = "kl-twice",
          .dst = &o.twice,
          .help = "allow KL in the reward and in the loss at once" },
        { .type = VL_T_GROUP, .help = "Rollout correction" },
        TEXT(CORR "rollout_is", &o.is, "token|sequence", VL_F_NULLABLE,
             "importance weights of old over rollout log-probs"),
        REAL(CORR "rollout_is_threshold", &o.is_threshold, 0, 1e18, "largest weight"),
        FLAG(CORR "rollout_is_batch_normalize", &o.is_normalize, "scale the weights to mean 1"),
        TEXT(CORR "rollout_rs", &o.rs, NULL, VL_F_NULLABLE,
             "criteria that mask tokens out, separated by commas: seq_mean_k1, token_k2, ..."),
        TEXT(CORR "rollout_rs_threshold", &o.rs_threshold, NULL, VL_F_NULLABLE,
             "their bounds: one for all or one each; 0.5_2.0 for k1, 0.01 for k2 and k3"),
        FLAG(CORR "bypass_mode", &o.bypass,
             "old log-probs are the rollout's; the correction is then part of the loss"),
        { .type = VL_T_GROUP, .help = "PF-PPO" },
        FLAG(ALGO "use_pf_ppo", &o.pf_ppo, "after gae, draw the rows again by their scores"),
        TEXT(ALGO "pf_ppo.reweight_method", &o.pf_method, "pow|max_min|max_random", 0,
             "weights of the draw"),
        REAL(ALGO "pf_ppo.weight_pow", &o.pf_pow, 0, 1e3, "exponent of pow"),
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
