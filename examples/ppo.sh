#!/bin/sh
# ppo.sh - PPO with a critic: values, GAE, value loss. Otherwise as grpo.sh, whose head explains
# the variables. The critic starts from CRITIC (default: MODEL with a fresh value head).
set -eu
: "${MODEL:?a model directory}" "${DATA:?a JSONL file}" "${STEPS:=60}" "${RUN:=run/ppo}" "${MAP:=.}"
: "${LAUNCH:=}" "${CONFIG:=}" "${REWARD:=verl-reward${CONFIG:+ -c '$CONFIG'}}" "${ROLLOUT:=$LAUNCH verl-rollout}" "${SEED:=1}" "${CRITIC:=$MODEL}"
. "$(dirname "$0")/lib.sh"
set -- ${CONFIG:+-c "$CONFIG"} "trainer.total_training_steps=$STEPS" "$@"

mkdir -p "$RUN"
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
    stage update_critic $LAUNCH verl-update --role critic -s "$RUN/critic" -m "$CRITIC" -i "$dir/adv.dp" "$@"
    stage update_actor $LAUNCH verl-update --role actor -s "$RUN/actor" -m "$MODEL" -i "$dir/adv.dp" "$@"
    verl-sync -q -s "$RUN/actor" -o "$RUN/rollout" >"$dir/sync.log"
    metrics
    report 'critic/score/mean' 'critic/vf_loss' 'response_length/mean'
done
