/* verl-update - optimizer steps on a batch: a train state's next version.
 *
 * Roles have verl's keys in different subtrees, so each has a table of its own; --role is looked
 * for before anything is parsed. */
#include "libverl/run/update.h"

#include <stdio.h>
#include <string.h>

static struct vl_update_opts o;
static const char *role = "actor"; /* found before by find_role; here for help and provenance */

#define ACTOR          "actor_rollout_ref.actor."
#define ROLLOUT        "actor_rollout_ref.rollout."
#define CORR           "algorithm.rollout_correction."
#define DISTILL        "distillation.distillation_loss."
#define DISTILL_LOSSES "vanilla|gspo|sapo|gpg|geo_mean|cispo|reinforce"

#define STATE_ROWS                                                                                 \
    VL_OPT_WORD("role", NULL, &role, "ROLE", "actor|critic|sft|dpo", VL_F_PROV,                    \
                "what is trained; --help shows this role's options"),                              \
        VL_OPT_TEXT("from", NULL, &o.from, "vN", VL_F_NULLABLE,                                    \
                    "start from this version of the state, not from `current`; applies the batch " \
                    "again"),                                                                      \
        VL_OPT_FLAG("keep-current", NULL, &o.keep_current, 0,                                      \
                    "with --from: leave `current` where it is, if that is another version"),       \
        VL_OPT_INT("keep", NULL, &o.keep, "N", 1, 1e9, 0,                                          \
                   "versions to keep; linked ones are always kept"),                               \
        VL_OPT_TEXT("log", NULL, &o.log, "FILE", VL_F_NULLABLE,                                    \
                    "write the metrics of each optimizer step there, a JSON line as it ends"),     \
        VL_OPT_COMPUTE(&o.compute),                                                                \
        VL_OPT_INT(                                                                                \
            "micro-batch", NULL, &o.micro_batch, "ROWS", 0, 1 << 30, 0,                            \
            "rows in one pass, before the keys below; 0: not set; never changes the result"),      \
        VL_OPT_INT("max-skips", NULL, &o.max_skips, "K", 1, 1e9, VL_F_PROV,                        \
                   "give up after this many steps in a row whose gradient is not finite")

#define MODEL_ROWS(P)                                                                              \
    VL_OPT_TEXT(NULL, P "model.path", &o.path, "DIR", VL_F_NULLABLE,                               \
                "what an empty state is filled from, where -m is not given"),                      \
        VL_OPT_FLAG("recompute", P "model.enable_gradient_checkpointing", &o.recompute, 0,         \
                    "keep only layer inputs and compute activations again in the backward pass")

/* O: verl's name in this role's subtree */
#define OPTIMIZER_ROWS(P, CLIP, O)                                                                 \
    VL_OPT_FLAG("optimizer-offload", O "optimizer_offload", &o.offload, 0,                         \
                "keep the optimizer's moments in a file beside the state, not in memory"),         \
        VL_OPT_REAL(NULL, P "optim.lr", &o.lr, "X", 0, 1e9, VL_F_PROV, "peak learning rate"),      \
        VL_OPT_REAL(NULL, P "optim.weight_decay", &o.weight_decay, "X", 0, 1e9, VL_F_PROV,         \
                    "weight decay: decoupled (AdamW), or in the gradient (Adam, SGD)"),            \
        VL_OPT_LIST(NULL, P "optim.betas", &o.betas, "[B1,B2]", VL_F_PROV,                         \
                    "AdamW's betas (default 0.9, 0.999; sft 0.9, 0.95)"),                          \
        VL_OPT_REAL(                                                                               \
            NULL, P "optim.clip_grad", &o.clip_grad, "X", 0, 1e9, VL_F_PROV | VL_F_NULLABLE,       \
            "largest norm of the whole gradient; 0 or null: not clipped", .fallback = CLIP),       \
        VL_OPT_TEXT(NULL, P "optim.optimizer", &o.optimizer, "NAME", VL_F_PROV,                    \
                    "AdamW, Adam or SGD"),                                                         \
        VL_OPT_TEXT(NULL, P "optim.optimizer_impl", &o.impl, "NAME", VL_F_PROV,                    \
                    "where it is from: torch.optim"),                                              \
        VL_OPT_WORD(NULL, P "optim.decay", &o.decay, "NAME", "all|matrices", VL_F_PROV,            \
                    "weights that decay: all, as verl, or not norms and biases"),                  \
        VL_OPT_REAL(NULL, P "optim.override_optimizer_config.eps", &o.eps, "X", 0, 1, VL_F_PROV,   \
                    "Adam's epsilon"),                                                             \
        VL_OPT_FLAG(NULL, P "optim.override_optimizer_config.amsgrad", &o.amsgrad, VL_F_PROV,      \
                    "Adam: divide by the largest second moment so far"),                           \
        VL_OPT_REAL(NULL, P "optim.override_optimizer_config.momentum", &o.momentum, "X", 0, 1,    \
                    VL_F_PROV, "SGD's momentum"),                                                  \
        VL_OPT_REAL(NULL, P "optim.override_optimizer_config.dampening", &o.dampening, "X", 0, 1,  \
                    VL_F_PROV, "its dampening"),                                                   \
        VL_OPT_FLAG(NULL, P "optim.override_optimizer_config.nesterov", &o.nesterov, VL_F_PROV,    \
                    "its Nesterov form"),                                                          \
        VL_OPT_WORD(NULL, P "optim.lr_scheduler_type", &o.schedule, "NAME", "constant|cosine|wsd", \
                    VL_F_PROV, "course of the rate after warm-up"),                                \
        VL_OPT_INT(NULL, P "optim.lr_warmup_steps", &o.lr_warmup_steps, "N", -1, 1e15, VL_F_PROV,  \
                   "warm-up steps; negative: by the ratio"),                                       \
        VL_OPT_REAL(NULL, P "optim.lr_warmup_steps_ratio", &o.lr_warmup_ratio, "X", 0, 1,          \
                    VL_F_PROV, "warm-up as a share of all steps"),                                 \
        VL_OPT_REAL(NULL, P "optim.min_lr_ratio", &o.min_lr_ratio, "X", 0, 1e9,                    \
                    VL_F_PROV | VL_F_NULLABLE, "floor of cosine and wsd as a share of lr"),        \
        VL_OPT_REAL(NULL, P "optim.num_cycles", &o.num_cycles, "X", 0, 1e6, VL_F_PROV,             \
                    "cosine's cycles; 0.5: one descent"),                                          \
        VL_OPT_REAL(NULL, P "optim.stable_ratio", &o.stable_ratio, "X", 0, 1, VL_F_PROV,           \
                    "wsd: share of the steps after warm-up that stay at lr")

#define SAVE_FREQ                                                                                  \
    VL_OPT_INT(NULL, "trainer.save_freq", &o.save_freq, "N", -1, 1e15, 0,                          \
               "publish a version every N steps, from which an interrupted run goes on")

/* Mini-batches and micro-batches of actor, critic and dpo. */
#define PASS_ROWS(P, F, UNIT, HELP)                                                                \
    VL_OPT_INT(NULL, P "optim.total_training_steps", &o.total_steps, "N", -1, 1e15,                \
               VL_F_PROV | VL_F_NULLABLE,                                                          \
               "steps of the whole run, which cosine and the warm-up ratio need",                  \
               .fallback = "trainer.total_training_steps"),                                        \
        VL_OPT_INT(NULL, P "ppo_mini_batch_size", &o.mini_batch, UNIT, 1, 1e12, VL_F_PROV, HELP,   \
                   .fallback = F("ppo_mini_batch_size")),                                          \
        VL_OPT_INT(NULL, P "ppo_epochs", &o.epochs, "N", 1, 1e9, VL_F_PROV,                        \
                   "passes over the batch", .fallback = F("ppo_epochs")),                          \
        VL_OPT_FLAG(NULL, P "shuffle", &o.shuffle, VL_F_PROV, "new row order in each pass",        \
                    .fallback = F("shuffle")),                                                     \
        VL_OPT_INT(NULL, P "data_loader_seed", &o.data_seed, "N", 0, 0, VL_F_PROV,                 \
                   "seed of that order", .fallback = F("data_loader_seed")),                       \
        VL_OPT_CUT(&o.cut, "pass", "", P "ppo_micro_batch_size_per_gpu",                           \
                   F("ppo_micro_batch_size_per_gpu"), P "use_dynamic_bsz", F("use_dynamic_bsz"),   \
                   P "ppo_max_token_len_per_gpu", F("ppo_max_token_len_per_gpu")),                 \
        VL_OPT_FLAG(                                                                               \
            "share-prompts", P "share_prompts", &o.share_prompts, VL_F_PROV,                       \
            "compute the prompt of rows that follow each other and have the same one once",        \
            .fallback = F("share_prompts"))

#define PPO_ROWS(P, F)                                                                             \
    VL_OPT_FLAG("stale-ok", NULL, &o.stale_ok, 0,                                                  \
                "accept columns that were made by other weights than the ones updated"),           \
        PASS_ROWS(P, F, "PROMPTS", "prompts in one optimizer step (times n rows)"),                \
        VL_OPT_INT(NULL, ROLLOUT "n", &o.n, "N", 1, 1e9, VL_F_PROV,                                \
                   "samples of a prompt; taken from the batch unless given"),                      \
        VL_OPT_WORD(NULL, P "loss_agg_mode", &o.agg, "NAME", VL_AGG_NAMES, VL_F_PROV,              \
                    "how token losses become one", .fallback = F("loss_agg_mode"))

#define NO_FALLBACK(K)    NULL
#define ACTOR_FALLBACK(K) ACTOR K

static char loss_names[512]; /* "vanilla|gspo|...", from the registry; filled first of all */

static const struct vl_opt actor_rows[] = {
    STATE_ROWS,
    MODEL_ROWS("actor_rollout_ref."),
    OPTIMIZER_ROWS(ACTOR, ACTOR "grad_clip", ACTOR "fsdp_config."),
    PPO_ROWS(ACTOR, NO_FALLBACK),
    VL_OPT_REAL(NULL, ROLLOUT "temperature", &o.temperature, "X", 0, 1e6, VL_F_PROV,
                "taken from the batch unless given"),
    VL_OPT_FLAG(NULL, "distillation.enabled", &o.distill, VL_F_PROV,
                "pull to a teacher (columns teacher_*)"),
    VL_OPT_TEXT(
        NULL, DISTILL "loss_mode", &o.distill_mode, "NAME", VL_F_PROV,
        "k1, abs, k2, k3, with + for straight-through; forward_kl_topk, reverse_kl_topk, jsd_topk"),
    VL_OPT_FLAG(NULL, DISTILL "use_task_rewards", &o.distillation.with_policy, VL_F_PROV,
                "beside the policy loss (entropy, KL); false: alone, advantages are not read",
                .fallback = DISTILL "use_policy_loss"),
    VL_OPT_REAL(NULL, DISTILL "distillation_loss_coef", &o.distillation.coef, "X", 0, 1e9,
                VL_F_PROV, "its weight beside that"),
    VL_OPT_REAL(NULL, DISTILL "jsd_beta", &o.distillation.beta, "X", 0, 1, VL_F_PROV,
                "jsd_topk: share of the teacher"),
    VL_OPT_REAL(NULL, DISTILL "loss_max_clamp", &o.distillation.loss_max, "X", 0, 1e9,
                VL_F_PROV | VL_F_NULLABLE, "bound of a token's loss, both ways"),
    VL_OPT_REAL(NULL, DISTILL "log_prob_min_clamp", &o.distillation.logp_min, "X", -1e9, 0,
                VL_F_PROV | VL_F_NULLABLE, "log-probs below count as this"),
    VL_OPT_FLAG(NULL, DISTILL "use_policy_gradient", &o.distillation.as_reward, VL_F_PROV,
                "minus the loss is a token's advantage, in the policy loss below"),
    VL_OPT_WORD(NULL, DISTILL "policy_loss_mode", &o.distill_pg, "NAME", DISTILL_LOSSES, VL_F_PROV,
                "that policy loss"),
    VL_OPT_REAL(NULL, DISTILL "clip_ratio", &o.distillation.clip_ratio, "X", 0, 1e9, VL_F_PROV,
                "its clip ratio"),
    VL_OPT_REAL(NULL, DISTILL "clip_ratio_low", &o.distillation.clip_ratio_low, "X", 0, 1e9,
                VL_F_PROV | VL_F_NULLABLE, "low; null: clip_ratio"),
    VL_OPT_REAL(NULL, DISTILL "clip_ratio_high", &o.distillation.clip_ratio_high, "X", 0, 1e9,
                VL_F_PROV | VL_F_NULLABLE, "high; null: clip_ratio"),
    VL_OPT_WORD(
        "statistics", NULL, &o.statistics, "NAME", "micro-batch|mini-batch", VL_F_PROV,
        "rows over which clip_cov, kl_cov and bypass mode take statistics: each pass, as verl, or "
        "the step (one more forward pass; no cut shows)"),
    VL_OPT_FLAG(NULL, CORR "bypass_mode", &o.bypass, VL_F_PROV,
                "old log-probs are the rollout's; the correction is part of the loss"),
    VL_OPT_WORD(NULL, CORR "loss_type", &o.bypass_loss, "NAME", "ppo_clip|reinforce", VL_F_PROV,
                "the loss of bypass mode"),
    VL_OPT_WORD(NULL, CORR "rollout_is", &o.is, "NAME", "token|sequence", VL_F_PROV | VL_F_NULLABLE,
                "bypass mode: importance weights (reinforce)"),
    VL_OPT_REAL(NULL, CORR "rollout_is_threshold", &o.is_threshold, "X", 0, 1e18, VL_F_PROV,
                "bypass mode: largest weight"),
    VL_OPT_FLAG(NULL, CORR "rollout_is_batch_normalize", &o.is_normalize, VL_F_PROV,
                "bypass mode: scale the weights to mean 1"),
    VL_OPT_TEXT(NULL, CORR "rollout_rs", &o.rs, "NAME", VL_F_PROV | VL_F_NULLABLE,
                "bypass mode: criteria that mask tokens out"),
    VL_OPT_TEXT(NULL, CORR "rollout_rs_threshold", &o.rs_threshold, "NAME",
                VL_F_PROV | VL_F_NULLABLE, "bypass mode: their bounds"),
    VL_OPT_WORD(NULL, ACTOR "policy_loss.loss_mode", &o.loss_mode, "NAME", loss_names, VL_F_PROV,
                "policy loss"),
    VL_OPT_REAL(NULL, ACTOR "clip_ratio", &o.pg.clip_ratio, "X", 0, 1e9, VL_F_PROV,
                "ratio is clipped to 1 - low .. 1 + high"),
    VL_OPT_REAL(NULL, ACTOR "clip_ratio_low", &o.pg.clip_ratio_low, "X", 0, 1e9,
                VL_F_PROV | VL_F_NULLABLE, "low; null: clip_ratio"),
    VL_OPT_REAL(NULL, ACTOR "clip_ratio_high", &o.pg.clip_ratio_high, "X", 0, 1e9,
                VL_F_PROV | VL_F_NULLABLE, "high; null: clip_ratio"),
    VL_OPT_REAL(NULL, ACTOR "clip_ratio_c", &o.pg.clip_ratio_c, "X", 1, 1e9, VL_F_PROV,
                "dual clip for negative advantages"),
    VL_OPT_REAL(NULL, ACTOR "tau_pos", &o.pg.tau_pos, "X", 0, 1e9, VL_F_PROV,
                "sapo's temperature for positive advantages"),
    VL_OPT_REAL(NULL, ACTOR "tau_neg", &o.pg.tau_neg, "X", 0, 1e9, VL_F_PROV,
                "sapo's temperature for the others"),
    VL_OPT_REAL(NULL, ACTOR "policy_loss.clip_cov_ratio", &o.pg.clip_cov_ratio, "X", 0, 1,
                VL_F_PROV, "share clip_cov drops"),
    VL_OPT_REAL(NULL, ACTOR "policy_loss.clip_cov_lb", &o.pg.clip_cov_lb, "X", -1e9, 1e9, VL_F_PROV,
                "its lower bound"),
    VL_OPT_REAL(NULL, ACTOR "policy_loss.clip_cov_ub", &o.pg.clip_cov_ub, "X", -1e9, 1e9, VL_F_PROV,
                "its upper bound"),
    VL_OPT_REAL(NULL, ACTOR "policy_loss.kl_cov_ratio", &o.pg.kl_cov_ratio, "X", 0, 1, VL_F_PROV,
                "share kl_cov penalises"),
    VL_OPT_REAL(NULL, ACTOR "policy_loss.ppo_kl_coef", &o.pg.ppo_kl_coef, "X", 0, 1e9, VL_F_PROV,
                "its penalty"),
    VL_OPT_REAL(NULL, ACTOR "sppo_eta", &o.pg.sppo_eta, "X", 0, 1e9, VL_F_PROV,
                "sppo: log-ratio aimed at, in advantages"),
    VL_OPT_REAL(NULL, ACTOR "loss_scale_factor", &o.loss_scale_factor, "X", 0, 1e9,
                VL_F_PROV | VL_F_NULLABLE,
                "divisor of seq-mean-token-sum-norm; null: the response width"),
    VL_OPT_REAL(NULL, ACTOR "entropy_coeff", &o.entropy_coeff, "X", -1e9, 1e9, VL_F_PROV,
                "weight of the entropy bonus"),
    VL_OPT_FLAG(NULL, ACTOR "calculate_entropy", &o.calculate_entropy, VL_F_PROV,
                "compute the entropy metric even without the bonus"),
    VL_OPT_FLAG(NULL, ACTOR "use_rollout_log_probs", &o.use_rollout_log_probs, VL_F_PROV,
                "take rollout_log_probs in place of old_log_probs"),
    VL_OPT_FLAG(NULL, ACTOR "use_kl_loss", &o.use_kl_loss, VL_F_PROV,
                "add the KL to the reference (column ref_log_prob) to the loss"),
    VL_OPT_REAL(NULL, ACTOR "kl_loss_coef", &o.kl_loss_coef, "X", 0, 1e9, VL_F_PROV, "its weight"),
    VL_OPT_TEXT(NULL, ACTOR "kl_loss_type", &o.kl_loss_type, "NAME", VL_F_PROV,
                "kl, abs, mse, low_var_kl (k1, k2, k3), each with + for straight-through"),
    { .type = VL_T_END },
};

static const struct vl_opt critic_rows[] = {
    STATE_ROWS,
    MODEL_ROWS("critic."),
    OPTIMIZER_ROWS("critic.", "critic.grad_clip", "critic.model.fsdp_config."),
    PPO_ROWS("critic.", ACTOR_FALLBACK),
    VL_OPT_REAL(NULL, "critic.cliprange_value", &o.cliprange_value, "X", 0, 1e9, VL_F_PROV,
                "new values are clipped to the old ones +- this"),
    { .type = VL_T_END },
};

static const struct vl_opt sft_rows[] = {
    STATE_ROWS,
    MODEL_ROWS(""),
    OPTIMIZER_ROWS("", NULL, "engine."),
    VL_OPT_INT(NULL, "data.train_batch_size", &o.mini_batch, "ROWS", 1, 1e12, VL_F_PROV,
               "rows in one optimizer step; rows left over in a pass are not used in it"),
    VL_OPT_INT(NULL, "trainer.total_epochs", &o.epochs, "N", 1, 1e12, VL_F_PROV,
               "passes over the batch"),
    VL_OPT_INT(NULL, "trainer.total_training_steps", &o.sft_steps, "N", 1, 1e15,
               VL_F_PROV | VL_F_NULLABLE,
               "optimizer steps; without total_epochs passes go on until then"),
    VL_OPT_FLAG(NULL, "data.shuffle", &o.shuffle, VL_F_PROV, "new row order in each pass (--seed)"),
    SAVE_FREQ,
    VL_OPT_CUT(&o.cut, "pass", "", "data.micro_batch_size_per_gpu", NULL, "data.use_dynamic_bsz",
               NULL, "data.max_token_len_per_gpu", NULL),
    { .type = VL_T_END },
};

static const struct vl_opt dpo_rows[] = {
    STATE_ROWS,
    MODEL_ROWS("actor_rollout_ref."),
    OPTIMIZER_ROWS(ACTOR, ACTOR "grad_clip", ACTOR "fsdp_config."),
    PASS_ROWS(ACTOR, NO_FALLBACK, "PAIRS", "pairs in one optimizer step"),
    SAVE_FREQ,
    VL_OPT_REAL(NULL, ROLLOUT "temperature", &o.temperature, "X", 0, 1e6, VL_F_PROV,
                "taken from the batch unless given; 1 where it has none"),
    VL_OPT_WORD(NULL, "algorithm.dpo_loss_type", &o.dpo_loss_type, "NAME", "sigmoid|ipo|hinge|sppo",
                VL_F_PROV, "loss of a pair; sigmoid: DPO and SPIN"),
    VL_OPT_REAL(NULL, "algorithm.dpo_beta", &o.pref.beta, "X", 0, 1e9, VL_F_PROV,
                "strength of the pull to the reference"),
    VL_OPT_REAL(NULL, "algorithm.dpo_label_smoothing", &o.pref.label_smoothing, "X", 0, 0.5,
                VL_F_PROV, "share of labels taken to be wrong (sigmoid: cDPO)"),
    VL_OPT_FLAG(NULL, "algorithm.reference_free", &o.pref.reference_free, VL_F_PROV,
                "no reference: ref_log_prob is not read"),
    VL_OPT_FLAG(NULL, "algorithm.dpo_length_norm", &o.pref.length_norm, VL_F_PROV,
                "means over a response's tokens in place of sums (SimPO)"),
    VL_OPT_REAL(NULL, "algorithm.dpo_gamma", &o.pref.gamma, "X", 0, 1e9, VL_F_PROV,
                "margin the chosen response must have (SimPO)"),
    VL_OPT_REAL(NULL, "algorithm.dpo_rpo_alpha", &o.pref.rpo_alpha, "X", 0, 1e9, VL_F_PROV,
                "weight of -log p of the chosen response, mean over its tokens (RPO)"),
    VL_OPT_REAL(NULL, ACTOR "sppo_eta", &o.pref.eta, "X", 0, 1e9, VL_F_PROV,
                "sppo: log-ratio of a certain win, twice"),
    { .type = VL_T_END },
};

static enum vl_role find_role(int argc, char **argv)
{
    const char *r = "actor";

    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strncmp(argv[i], "--role=", 7))
            r = argv[i] + 7;
        else if (!strcmp(argv[i], "--role") && i + 1 < argc)
            r = argv[i + 1];
    return !strcmp(r, "critic") ? VL_ROLE_CRITIC
           : !strcmp(r, "sft")  ? VL_ROLE_SFT
           : !strcmp(r, "dpo")  ? VL_ROLE_DPO
                                : VL_ROLE_ACTOR;
}

int main(int argc, char **argv)
{
    static const char *const subtree[] = { "actor_rollout_ref.actor", "critic", "",
                                           "actor_rollout_ref.actor" };
    static const struct vl_opt *const rows[] = { actor_rows, critic_rows, sft_rows, dpo_rows };
    enum vl_role r = find_role(argc, argv);
    struct vl_common common = { 0 };
    struct vl_program p = {
        .name = "verl-update",
        .summary = "optimizer steps on a batch: the next version of a train state",
        .usage = "-s STATE [-m MODEL] [--role actor|critic|sft|dpo] [OPTION...] [key=value...]",
        .subtree = subtree[r],
        .details =
            "Reads prompts, responses, attention_mask, response_mask and\n"
            "  actor   old_log_probs (or rollout_log_probs), advantages, ref_log_prob\n"
            "          distillation: teacher_log_probs, or teacher_topk_ids and _log_probs\n"
            "  critic  values, returns\n"
            "  dpo     preference, ref_log_prob\n"
            "Writes STATE/vNNNNNN and moves STATE/current; -o gets a batch without rows that\n"
            "carries the metrics. The same line again finds its work done.\n",
        .opts = rows[r],
        .omit = VL_NO_DELTA,
    };

    for (size_t i = 0, at = 0; vl_pg_name(i) && at < sizeof(loss_names); i++)
        at += (size_t)snprintf(loss_names + at, sizeof(loss_names) - at, "%s%s", i ? "|" : "",
                               vl_pg_name(i));
    vl_update_defaults(&o, r);
    return vl_main(&p, &common, argc, argv, vl_stage_update, &o);
}
