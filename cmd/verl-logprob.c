/* verl-logprob - log-probabilities of a batch's responses under the policy or the reference. */
#include "libverl/run/stage_logprob.h"

#include "libverl/algo/loss.h"

#define ROLLOUT "actor_rollout_ref.rollout."
#define REF     "actor_rollout_ref.ref."
#define ACTOR   "actor_rollout_ref.actor."

int main(int argc, char **argv)
{
    struct vl_common common = { 0 };
    struct vl_logprob_opts o = { .as = "old",
                                 .compute = "auto",
                                 .agg = "token-mean",
                                 .temperature = 1.0,
                                 .micro_batch = 0,
                                 .topk = 32,
                                 .distill_mode = "k3",
                                 .old_cut = { VL_NULL_I64, 0, 16384 },
                                 .ref_cut = { VL_NULL_I64, 0, 16384 } };
    const struct vl_opt opts[] = {
        VL_OPT_WORD("as", NULL, &o.as, "old|ref|teacher", "old|ref|teacher", VL_F_PROV,
                    "write old_log_probs and entropys (old), ref_log_prob, or teacher_log_probs"),
        VL_OPT_TEXT(NULL, "actor_rollout_ref.model.path", &o.policy_path, "DIR", VL_F_NULLABLE,
                    "the policy, where -m is not given"),
        VL_OPT_TEXT(NULL, REF "model.path", &o.ref_path, "DIR", VL_F_NULLABLE,
                    "the reference, where -m is not given; else the policy's path"),
        VL_OPT_TEXT(NULL, "distillation.teacher_model.model_path", &o.teacher_path, "DIR",
                    VL_F_NULLABLE, "the teacher, where -m is not given"),
        VL_OPT_INT("topk", "distillation.distillation_loss.topk", &o.topk, "K", 1, 1 << 20,
                   VL_F_PROV, "teacher: also its K likeliest ids and their log-probs"),
        VL_OPT_INT("own-topk", NULL, &o.own_topk, "K", 0, 1 << 20, VL_F_PROV,
                   "old: also the policy's K likeliest ids, which then join a teacher's"),
        VL_OPT_TEXT(NULL, "distillation.distillation_loss.loss_mode", &o.distill_mode, "MODE",
                    VL_F_PROV, "teacher: a mode that ends in _topk asks for them too"),
        VL_OPT_REAL("temperature", ROLLOUT "temperature", &o.temperature, "T", 0, 1e6, VL_F_PROV,
                    "divides the logits; taken from the batch unless given, 0 counts as 1"),
        VL_OPT_FLAG("sum-pi-squared", ACTOR "calculate_sum_pi_squared", &o.sum_pi_squared,
                    VL_F_PROV,
                    "also write sum_pi_squared, for the optimal-token-baseline estimators"),
        VL_OPT_WORD(NULL, ACTOR "loss_agg_mode", &o.agg, "MODE", VL_AGG_NAMES, VL_F_PROV,
                    "how the metric actor/entropy is averaged"),
        VL_OPT_COMPUTE(&o.compute),
        VL_OPT_QUANTIZATION(NULL, &o.quantization,
                            "weights of matrices in eight bits: what a rollout with int8 computed"),
        VL_OPT_MICRO_BATCH(&o.micro_batch),
        VL_OPT_CUT(&o.old_cut, "forward pass", " (old)",
                   ROLLOUT "log_prob_micro_batch_size_per_gpu", NULL,
                   ROLLOUT "log_prob_use_dynamic_bsz", ACTOR "use_dynamic_bsz",
                   ROLLOUT "log_prob_max_token_len_per_gpu", ACTOR "ppo_max_token_len_per_gpu"),
        VL_OPT_CUT(&o.ref_cut, "forward pass", " (ref)", REF "log_prob_micro_batch_size_per_gpu",
                   NULL, REF "log_prob_use_dynamic_bsz", ACTOR "use_dynamic_bsz",
                   REF "log_prob_max_token_len_per_gpu", ACTOR "ppo_max_token_len_per_gpu"),
        { .type = VL_T_END },
    };
    const struct vl_program program = {
        .name = "verl-logprob",
        .summary = "log-probabilities of responses under policy, reference or teacher",
        .usage = "[OPTION...] [key=value...]",
        .subtree = "actor_rollout_ref.rollout",
        .details =
            "Reads prompts, responses, attention_mask (or input_ids); adds old_log_probs and\n"
            "entropys, ref_log_prob, or teacher_log_probs. With rollout_log_probs there, prints "
            "the gap to them.\n"
            "  verl-logprob -m MODEL -i gen.dp -o old.dp\n"
            "  verl-logprob --as ref -m MODEL -i gen.dp --delta -o ref.dp\n"
            "  verl-logprob --as teacher --topk 32 -m TEACHER -i gen.dp -o teacher.dp\n",
        .opts = opts,
        .omit = VL_NO_STATE | VL_NO_SEED,
    };

    return vl_main(&program, &common, argc, argv, vl_stage_logprob, &o);
}
