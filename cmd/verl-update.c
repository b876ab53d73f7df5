/* verl-update - optimizer steps on a batch: a train state's next version.
 *
 * Roles have verl's keys in different subtrees, so each has a table of its own; --role is looked
 * for before anything is parsed. */
#include "libverl/run/update.h"

#include <stdio.h>
#include <string.h>

static struct vl_update_opts o;

#define ACTOR          "actor_rollout_ref.actor."
#define ROLLOUT        "actor_rollout_ref.rollout."
#define CORR           "algorithm.rollout_correction."
#define DISTILL        "distillation.distillation_loss."
#define DISTILL_LOSSES "vanilla|gspo|sapo|gpg|geo_mean|cispo|reinforce"
#define AGG            "token-mean|seq-mean-token-sum|seq-mean-token-mean|seq-mean-token-sum-norm"

#define ROW(T, NAME, KEY, FALL, DST, ARG, LO, HI, FLAGS, HELP)                                     \
    {                                                                                              \
        .type = T, .name = NAME, .key = KEY, .fallback = FALL, .dst = &o.DST, .arg = ARG,          \
        .lo = LO, .hi = HI, .flags = FLAGS, .help = HELP                                           \
    }
#define REAL(KEY, DST, LO, HI, HELP)                                                               \
    ROW(VL_T_F64, NULL, KEY, NULL, DST, "X", LO, HI, VL_F_PROV, HELP)
#define REAL_OR_NULL(KEY, DST, HELP)                                                               \
    ROW(VL_T_F64, NULL, KEY, NULL, DST, "X", 0, 1e9, VL_F_PROV | VL_F_NULLABLE, HELP)
#define FLAG(NAME, KEY, FALL, DST, FLAGS, HELP)                                                    \
    ROW(VL_T_BOOL, NAME, KEY, FALL, DST, NULL, 0, 0, FLAGS, HELP)
#define WORD(NAME, KEY, FALL, DST, CHOICES, HELP)                                                  \
    {                                                                                              \
        .type = VL_T_STR, .name = NAME, .key = KEY, .fallback = FALL, .dst = &o.DST,               \
        .arg = "NAME", .choices = CHOICES, .flags = VL_F_PROV, .help = HELP                        \
    }
#define TEXT_OR_NULL(KEY, DST, CHOICES, HELP)                                                      \
    {                                                                                              \
        .type = VL_T_STR, .key = KEY, .dst = &o.DST, .arg = "NAME", .choices = CHOICES,            \
        .flags = VL_F_PROV | VL_F_NULLABLE, .help = HELP                                           \
    }
#define MODEL_ROWS(P)                                                                              \
    { .type = VL_T_STR,                                                                            \
      .key = P "model.path",                                                                       \
      .dst = &o.path,                                                                              \
      .arg = "DIR",                                                                                \
      .flags = VL_F_NULLABLE,                                                                      \
      .help = "what an empty state is filled from, where -m is not given" },                       \
        FLAG("recompute", P "model.enable_gradient_checkpointing", NULL, recompute, 0,             \
             "keep only layer inputs and compute activations again in the backward pass")

static const char *role = "actor";

#define STATE_ROWS                                                                                 \
    { .type = VL_T_STR,                                                                            \
      .name = "role",                                                                              \
      .dst = &role,                                                                                \
      .arg = "ROLE",                                                                               \
      .flags = VL_F_PROV,                                                                          \
      .choices = "actor|critic|sft|dpo",                                                           \
      .help = "what is trained; --help shows this role's options" },                               \
        { .type = VL_T_STR,                                                                        \
          .name = "from",                                                                          \
          .dst = &o.from,                                                                          \
          .arg = "vN",                                                                             \
          .flags = VL_F_NULLABLE,                                                                  \
          .help = "start from this version of the state, not from `current`; applies the batch "   \
                  "again" },                                                                       \
        ROW(VL_T_I64, "keep", NULL, NULL, keep, "N", 1, 1e9, 0,                                    \
            "versions to keep; linked ones are always kept"),                                      \
        WORD("compute", NULL, NULL, compute, "auto|fp32|bf16",                                     \
             "operands of matrix products; auto: as the batch says, else the device's default"),   \
        ROW(VL_T_I64, "micro-batch", NULL, NULL, micro_batch, "ROWS", 0, 1 << 30, 0,               \
            "rows in one pass, before the keys below; 0: not set; never changes the result"),      \
        ROW(VL_T_I64, "max-skips", NULL, NULL, max_skips, "K", 1, 1e9, VL_F_PROV,                  \
            "give up after this many steps in a row whose gradient is not finite")

#define OPTIMIZER_ROWS(P, CLIP)                                                                    \
    REAL(P "optim.lr", lr, 0, 1e9, "peak learning rate"),                                          \
        REAL(P "optim.weight_decay", weight_decay, 0, 1e9,                                         \
             "weight decay: decoupled (AdamW), or in the gradient (Adam, SGD)"),                   \
        ROW(VL_T_LIST, NULL, P "optim.betas", NULL, betas, "[B1,B2]", 0, 0, VL_F_PROV,             \
            "AdamW's betas (default 0.9, 0.999; sft 0.9, 0.95)"),                                  \
        ROW(VL_T_F64, NULL, P "optim.clip_grad", CLIP, clip_grad, "X", 0, 1e9,                     \
            VL_F_PROV | VL_F_NULLABLE,                                                             \
            "largest norm of the whole gradient; 0 or null: not clipped"),                         \
        WORD(NULL, P "optim.optimizer", NULL, optimizer, NULL, "AdamW, Adam or SGD"),              \
        WORD(NULL, P "optim.optimizer_impl", NULL, impl, NULL, "where it is from: torch.optim"),   \
        WORD(NULL, P "optim.decay", NULL, decay, "all|matrices",                                   \
             "weights that decay: all, as verl, or not norms and biases"),                         \
        REAL(P "optim.override_optimizer_config.eps", eps, 0, 1, "Adam's epsilon"),                \
        FLAG(NULL, P "optim.override_optimizer_config.amsgrad", NULL, amsgrad, VL_F_PROV,          \
             "Adam: divide by the largest second moment so far"),                                  \
        REAL(P "optim.override_optimizer_config.momentum", momentum, 0, 1, "SGD's momentum"),      \
        REAL(P "optim.override_optimizer_config.dampening", dampening, 0, 1, "its dampening"),     \
        FLAG(NULL, P "optim.override_optimizer_config.nesterov", NULL, nesterov, VL_F_PROV,        \
             "its Nesterov form"),                                                                 \
        WORD(NULL, P "optim.lr_scheduler_type", NULL, schedule, "constant|cosine|wsd",             \
             "course of the rate after warm-up"),                                                  \
        ROW(VL_T_I64, NULL, P "optim.lr_warmup_steps", NULL, lr_warmup_steps, "N", -1, 1e15,       \
            VL_F_PROV, "warm-up steps; negative: by the ratio"),                                   \
        REAL(P "optim.lr_warmup_steps_ratio", lr_warmup_ratio, 0, 1,                               \
             "warm-up as a share of all "                                                          \
             "steps"),                                                                             \
        REAL_OR_NULL(P "optim.min_lr_ratio", min_lr_ratio,                                         \
                     "floor of cosine and wsd as a share of lr"),                                  \
        REAL(P "optim.num_cycles", num_cycles, 0, 1e6, "cosine's cycles; 0.5: one descent"),       \
        REAL(P "optim.stable_ratio", stable_ratio, 0, 1,                                           \
             "wsd: share of the steps after warm-up that stay at lr")

#define SAVE_FREQ                                                                                  \
    ROW(VL_T_I64, NULL, "trainer.save_freq", NULL, save_freq, "N", -1, 1e15, 0,                    \
        "publish a version every N steps, from which an interrupted run goes on")

/* Mini-batches and micro-batches of actor, critic and dpo. */
#define PASS_ROWS(P, F, UNIT, HELP)                                                                \
    ROW(VL_T_I64, NULL, P "optim.total_training_steps", "trainer.total_training_steps",            \
        total_steps, "N", -1, 1e15, VL_F_PROV | VL_F_NULLABLE,                                     \
        "steps of the whole run, which cosine and the warm-up ratio need"),                        \
        ROW(VL_T_I64, NULL, P "ppo_mini_batch_size", F("ppo_mini_batch_size"), mini_batch, UNIT,   \
            1, 1e12, VL_F_PROV, HELP),                                                             \
        ROW(VL_T_I64, NULL, P "ppo_epochs", F("ppo_epochs"), epochs, "N", 1, 1e9, VL_F_PROV,       \
            "passes over the batch"),                                                              \
        FLAG(NULL, P "shuffle", F("shuffle"), shuffle, VL_F_PROV, "new row order in each pass"),   \
        ROW(VL_T_I64, NULL, P "data_loader_seed", F("data_loader_seed"), data_seed, "N", 0, 0,     \
            VL_F_PROV, "seed of that order"),                                                      \
        ROW(VL_T_I64, NULL, P "ppo_micro_batch_size_per_gpu", F("ppo_micro_batch_size_per_gpu"),   \
            cut.rows, "ROWS", 1, 1 << 30, VL_F_NULLABLE, "rows in one pass"),                      \
        FLAG(NULL, P "use_dynamic_bsz", F("use_dynamic_bsz"), cut.dynamic, 0,                      \
             "cut by tokens even where rows are set"),                                             \
        ROW(VL_T_I64, NULL, P "ppo_max_token_len_per_gpu", F("ppo_max_token_len_per_gpu"),         \
            cut.max_tokens, "TOKENS", 1, 1 << 30, 0, "tokens in one pass"),                        \
        FLAG("share-prompts", P "share_prompts", F("share_prompts"), share_prompts, VL_F_PROV,     \
             "compute the prompt of rows that follow each other and have the same one once")

#define PPO_ROWS(P, F)                                                                             \
    FLAG("stale-ok", NULL, NULL, stale_ok, 0,                                                      \
         "accept columns that were made by other weights than the ones updated"),                  \
        PASS_ROWS(P, F, "PROMPTS", "prompts in one optimizer step (times n rows)"),                \
        ROW(VL_T_I64, NULL, ROLLOUT "n", NULL, n, "N", 1, 1e9, VL_F_PROV,                          \
            "samples of a prompt; taken from the batch unless given"),                             \
        WORD(NULL, P "loss_agg_mode", F("loss_agg_mode"), agg, AGG, "how token losses become one")

#define NO_FALLBACK(K)    NULL
#define ACTOR_FALLBACK(K) ACTOR K

static char loss_names[512]; /* "vanilla|gspo|...", from the registry; filled first of all */

static const struct vl_opt actor_rows[] = {
    STATE_ROWS,
    MODEL_ROWS("actor_rollout_ref."),
    OPTIMIZER_ROWS(ACTOR, ACTOR "grad_clip"),
    PPO_ROWS(ACTOR, NO_FALLBACK),
    REAL(ROLLOUT "temperature", temperature, 0, 1e6, "taken from the batch unless given"),
    FLAG(NULL, "distillation.enabled", NULL, distill, VL_F_PROV,
         "pull to a teacher (columns teacher_*)"),
    WORD(
        NULL, DISTILL "loss_mode", NULL, distill_mode, NULL,
        "k1, abs, k2, k3, with + for straight-through; forward_kl_topk, reverse_kl_topk, jsd_topk"),
    FLAG(NULL, DISTILL "use_task_rewards", DISTILL "use_policy_loss", distillation.with_policy,
         VL_F_PROV, "beside the policy loss (entropy, KL); false: alone, advantages are not read"),
    REAL(DISTILL "distillation_loss_coef", distillation.coef, 0, 1e9, "its weight beside that"),
    REAL(DISTILL "jsd_beta", distillation.beta, 0, 1, "jsd_topk: share of the teacher"),
    REAL_OR_NULL(DISTILL "loss_max_clamp", distillation.loss_max,
                 "bound of a token's loss, both ways"),
    ROW(VL_T_F64, NULL, DISTILL "log_prob_min_clamp", NULL, distillation.logp_min, "X", -1e9, 0,
        VL_F_PROV | VL_F_NULLABLE, "log-probs below count as this"),
    FLAG(NULL, DISTILL "use_policy_gradient", NULL, distillation.as_reward, VL_F_PROV,
         "minus the loss is a token's advantage, in the policy loss below"),
    WORD(NULL, DISTILL "policy_loss_mode", NULL, distill_pg, DISTILL_LOSSES, "that policy loss"),
    REAL(DISTILL "clip_ratio", distillation.clip_ratio, 0, 1e9, "its clip ratio"),
    REAL_OR_NULL(DISTILL "clip_ratio_low", distillation.clip_ratio_low, "low; null: clip_ratio"),
    REAL_OR_NULL(DISTILL "clip_ratio_high", distillation.clip_ratio_high, "high; null: clip_ratio"),
    WORD("statistics", NULL, NULL, statistics, "micro-batch|mini-batch",
         "rows over which clip_cov, kl_cov and bypass mode take statistics: each pass, as verl, or "
         "the step (one more forward pass; no cut shows)"),
    FLAG(NULL, CORR "bypass_mode", NULL, bypass, VL_F_PROV,
         "old log-probs are the rollout's; the correction is part of the loss"),
    WORD(NULL, CORR "loss_type", NULL, bypass_loss, "ppo_clip|reinforce",
         "the loss of bypass mode"),
    TEXT_OR_NULL(CORR "rollout_is", is, "token|sequence",
                 "bypass mode: importance weights (reinforce)"),
    REAL(CORR "rollout_is_threshold", is_threshold, 0, 1e18, "bypass mode: largest weight"),
    FLAG(NULL, CORR "rollout_is_batch_normalize", NULL, is_normalize, VL_F_PROV,
         "bypass mode: scale the weights to mean 1"),
    TEXT_OR_NULL(CORR "rollout_rs", rs, NULL, "bypass mode: criteria that mask tokens out"),
    TEXT_OR_NULL(CORR "rollout_rs_threshold", rs_threshold, NULL, "bypass mode: their bounds"),
    WORD(NULL, ACTOR "policy_loss.loss_mode", NULL, loss_mode, loss_names, "policy loss"),
    REAL(ACTOR "clip_ratio", pg.clip_ratio, 0, 1e9, "ratio is clipped to 1 - low .. 1 + high"),
    REAL_OR_NULL(ACTOR "clip_ratio_low", pg.clip_ratio_low, "low; null: clip_ratio"),
    REAL_OR_NULL(ACTOR "clip_ratio_high", pg.clip_ratio_high, "high; null: clip_ratio"),
    REAL(ACTOR "clip_ratio_c", pg.clip_ratio_c, 1, 1e9, "dual clip for negative advantages"),
    REAL(ACTOR "tau_pos", pg.tau_pos, 0, 1e9, "sapo's temperature for positive advantages"),
    REAL(ACTOR "tau_neg", pg.tau_neg, 0, 1e9, "sapo's temperature for the others"),
    REAL(ACTOR "policy_loss.clip_cov_ratio", pg.clip_cov_ratio, 0, 1, "share clip_cov drops"),
    REAL(ACTOR "policy_loss.clip_cov_lb", pg.clip_cov_lb, -1e9, 1e9, "its lower bound"),
    REAL(ACTOR "policy_loss.clip_cov_ub", pg.clip_cov_ub, -1e9, 1e9, "its upper bound"),
    REAL(ACTOR "policy_loss.kl_cov_ratio", pg.kl_cov_ratio, 0, 1, "share kl_cov penalises"),
    REAL(ACTOR "policy_loss.ppo_kl_coef", pg.ppo_kl_coef, 0, 1e9, "its penalty"),
    REAL(ACTOR "sppo_eta", pg.sppo_eta, 0, 1e9, "sppo: log-ratio aimed at, in advantages"),
    REAL_OR_NULL(ACTOR "loss_scale_factor", loss_scale_factor,
                 "divisor of seq-mean-token-sum-norm; null: the response width"),
    REAL(ACTOR "entropy_coeff", entropy_coeff, -1e9, 1e9, "weight of the entropy bonus"),
    FLAG(NULL, ACTOR "calculate_entropy", NULL, calculate_entropy, VL_F_PROV,
         "compute the entropy metric even without the bonus"),
    FLAG(NULL, ACTOR "use_rollout_log_probs", NULL, use_rollout_log_probs, VL_F_PROV,
         "take rollout_log_probs in place of old_log_probs"),
    FLAG(NULL, ACTOR "use_kl_loss", NULL, use_kl_loss, VL_F_PROV,
         "add the KL to the reference (column ref_log_prob) to the loss"),
    REAL(ACTOR "kl_loss_coef", kl_loss_coef, 0, 1e9, "its weight"),
    WORD(NULL, ACTOR "kl_loss_type", NULL, kl_loss_type, NULL,
         "kl, abs, mse, low_var_kl (k1, k2, k3), each with + for straight-through"),
    { .type = VL_T_END },
};

static const struct vl_opt critic_rows[] = {
    STATE_ROWS,
    MODEL_ROWS("critic."),
    OPTIMIZER_ROWS("critic.", "critic.grad_clip"),
    PPO_ROWS("critic.", ACTOR_FALLBACK),
    REAL("critic.cliprange_value", cliprange_value, 0, 1e9,
         "new values are clipped to the old ones +- this"),
    { .type = VL_T_END },
};

static const struct vl_opt sft_rows[] = {
    STATE_ROWS,
    MODEL_ROWS(""),
    OPTIMIZER_ROWS("", NULL),
    ROW(VL_T_I64, NULL, "data.train_batch_size", NULL, mini_batch, "ROWS", 1, 1e12, VL_F_PROV,
        "rows in one optimizer step; rows left over in a pass are not used in it"),
    ROW(VL_T_I64, NULL, "trainer.total_epochs", NULL, epochs, "N", 1, 1e12, VL_F_PROV,
        "passes over the batch"),
    ROW(VL_T_I64, NULL, "trainer.total_training_steps", NULL, sft_steps, "N", 1, 1e15,
        VL_F_PROV | VL_F_NULLABLE, "optimizer steps; without total_epochs passes go on until then"),
    FLAG(NULL, "data.shuffle", NULL, shuffle, VL_F_PROV, "new row order in each pass (--seed)"),
    SAVE_FREQ,
    ROW(VL_T_I64, NULL, "data.micro_batch_size_per_gpu", NULL, cut.rows, "ROWS", 1, 1 << 30,
        VL_F_NULLABLE, "rows in one pass"),
    FLAG(NULL, "data.use_dynamic_bsz", NULL, cut.dynamic, 0,
         "cut by tokens even where rows are set"),
    ROW(VL_T_I64, NULL, "data.max_token_len_per_gpu", NULL, cut.max_tokens, "TOKENS", 1, 1 << 30, 0,
        "tokens in one pass"),
    { .type = VL_T_END },
};

static const struct vl_opt dpo_rows[] = {
    STATE_ROWS,
    MODEL_ROWS("actor_rollout_ref."),
    OPTIMIZER_ROWS(ACTOR, ACTOR "grad_clip"),
    PASS_ROWS(ACTOR, NO_FALLBACK, "PAIRS", "pairs in one optimizer step"),
    SAVE_FREQ,
    REAL(ROLLOUT "temperature", temperature, 0, 1e6,
         "taken from the batch unless given; 1 where it has none"),
    WORD(NULL, "algorithm.dpo_loss_type", NULL, dpo_loss_type, "sigmoid|ipo|hinge|sppo",
         "loss of a pair; sigmoid: DPO and SPIN"),
    REAL("algorithm.dpo_beta", pref.beta, 0, 1e9, "strength of the pull to the reference"),
    REAL("algorithm.dpo_label_smoothing", pref.label_smoothing, 0, 0.5,
         "share of labels taken to be wrong (sigmoid: cDPO)"),
    FLAG(NULL, "algorithm.reference_free", NULL, pref.reference_free, VL_F_PROV,
         "no reference: ref_log_prob is not read"),
    FLAG(NULL, "algorithm.dpo_length_norm", NULL, pref.length_norm, VL_F_PROV,
         "means over a response's tokens in place of sums (SimPO)"),
    REAL("algorithm.dpo_gamma", pref.gamma, 0, 1e9, "margin the chosen response must have (SimPO)"),
    REAL("algorithm.dpo_rpo_alpha", pref.rpo_alpha, 0, 1e9,
         "weight of -log p of the chosen response, mean over its tokens (RPO)"),
    REAL(ACTOR "sppo_eta", pref.eta, 0, 1e9, "sppo: log-ratio of a certain win, twice"),
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
            "  critic  values, returns\n"
            "          distillation: teacher_log_probs, or teacher_topk_ids and _log_probs\n"
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
