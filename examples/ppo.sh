#!/bin/sh
# ppo.sh - PPO with a critic: values, GAE, value loss.
#
#   MODEL=dir DATA=rows.jsonl [CONFIG=run.yaml] [NAME=VALUE...] examples/ppo.sh [key=value...]
#
#   CRITIC   what the critic starts from (MODEL, with a fresh value head)
#
# The other variables are those of grpo.sh (examples/grpo.sh --help), without KL; RUN is run/ppo.
# The actor waits for the critic until step trainer.critic_warmup (0).
set -eu
: "${CRITIC:=${MODEL:-}}" "${PRESET:=ppo}"
. "$(dirname "$0")/lib.sh"
begin "CRITIC=$CRITIC" "$@"
set -- ${CONFIG:+-c "$CONFIG"} -c "$preset" "$@"
warmup=$(setting trainer.critic_warmup 0 "$@")
kl "$@"

verl-sync -q -m "$MODEL" -s "$RUN/actor" -o "$RUN/rollout" >/dev/null
while next_step; do
    critic=$(version critic "$RUN/critic" "$CRITIC")

    stage prompts verl-data $rows -m "$MODEL" --map "$MAP" --step $step --seed "$SEED" "$@" "$DATA"
    rollout gen -m "$policy" -i "$dir/prompts.dp" "$@"
    reward reward "$dir/gen.dp" "$@"
    stage old_log_prob $LAUNCH verl-logprob -m "$policy" -i "$dir/reward.dp" "$@"
    reference old_log_prob "$@"
    stage values $LAUNCH verl-value -m "$critic" -i "$dir/$last.dp" "$@"
    advantage "$dir/values.dp" "$@"
    update critic "$CRITIC" --role critic -i "$dir/adv.dp" "trainer.total_training_steps=$STEPS" "$@"
    [ "$warmup" -gt $step ] ||
        update actor "$MODEL" --role actor -i "$dir/adv.dp" "trainer.total_training_steps=$STEPS" "$@"
    timed update_weights verl-sync -q -s "$RUN/actor" --keep "$KEEP" -o "$RUN/rollout"
    finish critic/score/mean critic/vf_loss response_length/mean -- "$@"
done
end
