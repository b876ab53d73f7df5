/* verl-value - the critic's value of every response token. */
#include "libverl/run/stage_value.h"

#define CRITIC "critic."

int main(int argc, char **argv)
{
    struct vl_common common = { 0 };
    struct vl_value_opts o = { .compute = "auto", .cut = { VL_NULL_I64, 0, 32768 } };
    const struct vl_opt opts[] = {
        VL_OPT_TEXT(
            NULL, CRITIC "model.path", &o.path, "DIR", VL_F_NULLABLE,
            "the critic, where -m is not given; a language model gets a new value head of 0"),
        VL_OPT_COMPUTE(&o.compute),
        VL_OPT_MICRO_BATCH(&o.micro_batch),
        VL_OPT_CUT(&o.cut, "forward pass", "", CRITIC "forward_micro_batch_size_per_gpu",
                   CRITIC "ppo_micro_batch_size_per_gpu", CRITIC "use_dynamic_bsz",
                   "actor_rollout_ref.actor.use_dynamic_bsz",
                   CRITIC "forward_max_token_len_per_gpu", CRITIC "ppo_max_token_len_per_gpu"),
        { .type = VL_T_END },
    };
    const struct vl_program program = {
        .name = "verl-value",
        .summary = "the critic's value of every response token",
        .usage = "[OPTION...] [key=value...]",
        .subtree = "critic",
        .details =
            "Reads prompts, responses, attention_mask (or input_ids); adds values, 0 outside\n"
            "response_mask.\n"
            "  verl-value -m CRITIC -i gen.dp -o values.dp\n",
        .opts = opts,
        .omit = VL_NO_STATE | VL_NO_SEED,
    };

    return vl_main(&program, &common, argc, argv, vl_stage_value, &o);
}
