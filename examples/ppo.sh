#!/bin/sh
# ppo.sh - PPO with a critic: values, GAE, value loss.
#
#   MODEL=dir DATA=rows.jsonl [CONFIG=run.yaml] [NAME=VALUE...] examples/ppo.sh [key=value...]
#
#   CRITIC   what the critic starts from (MODEL, with a fresh value head)
#
# The other variables are those of grpo.sh (examples/grpo.sh --help), without KL; RUN is run/ppo.
set -eu
: "${STEPS:=60}" "${RUN:=run/ppo}" "${MAP:=.}" "${VAL:=}" "${VAL_EVERY:=10}" "${SEED:=1}" "${KEEP:=2}" "${LAUNCH:=}" "${CONFIG:=}" "${CRITIC:=${MODEL:-}}"
: "${REWARD:=verl-reward${CONFIG:+ -c '$CONFIG'}}" "${ROLLOUT:=${LAUNCH:+$LAUNCH }verl-rollout}"
. "$(dirname "$0")/lib.sh"
begin "CRITIC=$CRITIC" "$@"
set -- ${CONFIG:+-c "$CONFIG"} "$@"

verl-sync -q -m "$MODEL" -s "$RUN/actor" -o "$RUN/rollout" >/dev/null
step=0
while [ $step -lt "$STEPS" ]; do
    step=$((step + 1))
    dir=$RUN/step_$(printf %06d $step)
    mkdir -p "$dir"
    [ -e "$dir/metrics.json" ] && continue # this step is whole
    policy=$(version policy "$RUN/rollout")
    critic=$(version critic "$RUN/critic" "$CRITIC")

    stage prompts verl-data -m "$MODEL" --map "$MAP" --step $step --seed "$SEED" "$@" "$DATA"
    stage gen sh -c "$ROLLOUT"' "$@"' rollout -m "$policy" --seed "$SEED" -i "$dir/prompts.dp" "$@"
    stage reward sh -c "$REWARD"' "$@"' reward -i "$dir/gen.dp"
    stage old_log_prob $LAUNCH verl-logprob -m "$policy" -i "$dir/reward.dp" "$@"
    stage values $LAUNCH verl-value -m "$critic" -i "$dir/old_log_prob.dp" "$@"
    stage adv verl-advantage -i "$dir/values.dp" algorithm.adv_estimator=gae "$@"
    stage update_critic $LAUNCH verl-update --role critic -s "$RUN/critic" -m "$CRITIC" --keep "$KEEP" \
        -i "$dir/adv.dp" "trainer.total_training_steps=$STEPS" "$@"
    stage update_actor $LAUNCH verl-update --role actor -s "$RUN/actor" -m "$MODEL" --keep "$KEEP" \
        -i "$dir/adv.dp" "trainer.total_training_steps=$STEPS" "$@"
    verl-sync -q -s "$RUN/actor" --keep "$KEEP" -o "$RUN/rollout" >"$dir/sync.log"
    validate "$@"
    metrics
    report 'critic/score/mean' 'critic/vf_loss' 'response_length/mean'
done
end
