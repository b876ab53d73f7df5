/* verl-value - the critic's value of every response token. */
#include "libverl/run/stage_value.h"

int main(int argc, char **argv)
{
    struct vl_common common = { 0 };
    struct vl_value_opts o = { .compute = "auto", .cut = { VL_NULL_I64, 0, 32768 } };
    const struct vl_opt opts[] = {
        { .type = VL_T_STR,
          .key = "critic.model.path",
          .dst = &o.path,
          .arg = "DIR",
          .help = "the critic, where -m is not given; a language model gets a new value head of 0",
          .flags = VL_F_NULLABLE },
        { .type = VL_T_STR,
          .name = "compute",
          .dst = &o.compute,
          .arg = "TYPE",
          .choices = "auto|fp32|bf16",
          .flags = VL_F_PROV,
          .help =
              "operands of matrix products; auto: as the batch says, else the device's default" },
        { .type = VL_T_I64,
          .name = "micro-batch",
          .dst = &o.micro_batch,
          .arg = "ROWS",
          .lo = 0,
          .hi = 1 << 30,
          .help = "rows in one forward pass, before the keys below; 0: not set" },
        { .type = VL_T_I64,
          .key = "critic.forward_micro_batch_size_per_gpu",
          .fallback = "critic.ppo_micro_batch_size_per_gpu",
          .dst = &o.cut.rows,
          .arg = "ROWS",
          .lo = 1,
          .hi = 1 << 30,
          .flags = VL_F_NULLABLE,
          .help = "rows in one forward pass" },
        { .type = VL_T_BOOL,
          .key = "critic.use_dynamic_bsz",
          .fallback = "actor_rollout_ref.actor.use_dynamic_bsz",
          .dst = &o.cut.dynamic,
          .help = "cut by tokens even where rows are set" },
        { .type = VL_T_I64,
          .key = "critic.forward_max_token_len_per_gpu",
          .fallback = "critic.ppo_max_token_len_per_gpu",
          .dst = &o.cut.max_tokens,
          .arg = "TOKENS",
          .lo = 1,
          .hi = 1 << 30,
          .help = "tokens in one forward pass" },
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
