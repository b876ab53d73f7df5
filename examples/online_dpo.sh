#!/bin/sh
# online_dpo.sh - online DPO: each prompt's best and worst sample are the pair.
#
#   MODEL=dir DATA=rows.jsonl [CONFIG=run.yaml] [NAME=VALUE...] examples/online_dpo.sh [key=value...]
#
# The variables are those of grpo.sh (examples/grpo.sh --help), without KL; RUN is run/online_dpo. MODEL is
# the reference of the whole run. Prompts whose samples all score the same give no pair.
set -eu
: "${PRESET:=dpo}"
. "$(dirname "$0")/lib.sh"
begin "$@"
set -- ${CONFIG:+-c "$CONFIG"} -c "$preset" "$@"

verl-sync -q -m "$MODEL" -s "$RUN/actor" -o "$RUN/rollout" >/dev/null
while next_step; do
    stage prompts verl-data $rows -m "$MODEL" --map "$MAP" --step $step --seed "$SEED" "$@" "$DATA"
    rollout gen -m "$policy" -i "$dir/prompts.dp" "$@"
    reward reward "$dir/gen.dp" "$@"
    stage pairs verl-batch pairs --metric seq_reward -i "$dir/reward.dp"
    stage ref_pairs $LAUNCH verl-logprob --as ref -m "$MODEL" -i "$dir/pairs.dp" "$@"
    update actor "$MODEL" --role dpo -i "$dir/ref_pairs.dp" "$@"
    timed update_weights verl-sync -q -s "$RUN/actor" --keep "$KEEP" -o "$RUN/rollout"
    finish reward/score/mean actor/rewards_accuracies actor/dpo_loss -- "$@"
done
end
