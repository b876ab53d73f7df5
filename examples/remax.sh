#!/bin/sh
# remax.sh - ReMax (Li et al. 2024): the reward of the policy's greedy answer is the baseline.
#
#   MODEL=dir DATA=rows.jsonl [CONFIG=run.yaml] [NAME=VALUE...] examples/remax.sh [key=value...]
#
# The variables are those of grpo.sh (examples/grpo.sh --help), without KL; RUN is run/remax. One
# greedy answer a prompt more than GRPO, but rollout.n may be 1.
set -eu
: "${PRESET:=remax}"
. "$(dirname "$0")/lib.sh"
begin "$@"
set -- ${CONFIG:+-c "$CONFIG"} -c "$preset" "$@"
kl "$@"

verl-sync -q -m "$MODEL" -s "$RUN/actor" -o "$RUN/rollout" >/dev/null
while next_step; do
    stage prompts verl-data $rows -m "$MODEL" --map "$MAP" --step $step --seed "$SEED" "$@" "$DATA"
    rollout greedy_gen -m "$policy" -i "$dir/prompts.dp" "$@" \
        actor_rollout_ref.rollout.n=1 actor_rollout_ref.rollout.temperature=0
    reward greedy "$dir/greedy_gen.dp" "$@"
    rollout gen -m "$policy" -i "$dir/prompts.dp" "$@"
    reward reward "$dir/gen.dp" "$@"
    stage old_log_prob $LAUNCH verl-logprob -m "$policy" -i "$dir/reward.dp" "$@"
    reference old_log_prob "$@"
    advantage "$dir/$last.dp" --baseline "$dir/greedy.dp" "$@"
    update actor "$MODEL" --role actor -i "$dir/adv.dp" "trainer.total_training_steps=$STEPS" "$@"
    timed update_weights verl-sync -q -s "$RUN/actor" --keep "$KEEP" -o "$RUN/rollout"
    finish critic/score/mean critic/advantages/mean response_length/mean -- "$@"
done
end
