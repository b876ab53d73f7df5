#!/bin/sh
# grpo.sh - GRPO: n samples per prompt, advantages within each group, no critic.
#
#   MODEL=dir DATA=rows.jsonl [STEPS=60] [RUN=run/grpo] [REWARD=verl-reward] examples/grpo.sh [key=value...]
#
# MODEL is a Hugging Face directory, DATA JSON lines; MAP is a jq filter from a row of them to
# {prompt, data_source, reward_model} where they are not in that form. REWARD is a command line in shell
# syntax that takes -i FILE -o FILE, e.g. "verl-reward --jq '.solution_str == .ground_truth'"; ROLLOUT likewise takes -m MODEL --seed N -i FILE
# -o FILE key=value... (examples/outside_rollout.sh). Further key=value settings go to the other stages under verl's names;
# CONFIG=file.yaml as well. LAUNCH="verl-mpi 2" runs the model stages on two ranks.
# Everything of a step stays in RUN/step_NNNNNN; run the same line again after an interruption.
set -eu
: "${MODEL:?a model directory}" "${DATA:?a JSONL file}" "${STEPS:=60}" "${RUN:=run/grpo}" "${MAP:=.}"
: "${LAUNCH:=}" "${CONFIG:=}" "${REWARD:=verl-reward${CONFIG:+ -c '$CONFIG'}}" "${ROLLOUT:=$LAUNCH verl-rollout}" "${SEED:=1}" "${KL:=0}"
. "$(dirname "$0")/lib.sh"
set -- ${CONFIG:+-c "$CONFIG"} "trainer.total_training_steps=$STEPS" "$@"
[ "$KL" = 0 ] || set -- "$@" actor_rollout_ref.actor.use_kl_loss=true "actor_rollout_ref.actor.kl_loss_coef=$KL"

mkdir -p "$RUN"
verl-sync -q -m "$MODEL" -s "$RUN/actor" -o "$RUN/rollout" >/dev/null
step=0
while [ $step -lt "$STEPS" ]; do
    step=$((step + 1))
    dir=$RUN/step_$(printf %06d $step)
    mkdir -p "$dir"
    [ -e "$dir/metrics.json" ] && continue # this step is whole
    policy=$(version policy "$RUN/rollout")

    stage prompts verl-data -m "$MODEL" --map "$MAP" --step $step --seed "$SEED" "$@" "$DATA"
    stage gen sh -c "$ROLLOUT"' "$@"' rollout -m "$policy" --seed "$SEED" -i "$dir/prompts.dp" "$@"
    stage reward sh -c "$REWARD"' "$@"' reward -i "$dir/gen.dp"
    stage old_log_prob $LAUNCH verl-logprob -m "$policy" -i "$dir/reward.dp" "$@"
    last=old_log_prob
    if [ "$KL" != 0 ]; then
        stage ref $LAUNCH verl-logprob --as ref -m "$MODEL" -i "$dir/$last.dp" "$@"
        last=ref
    fi
    stage adv verl-advantage -i "$dir/$last.dp" algorithm.adv_estimator=grpo "$@"
    stage update_actor $LAUNCH verl-update --role actor -s "$RUN/actor" -m "$MODEL" -i "$dir/adv.dp" "$@"
    verl-sync -q -s "$RUN/actor" -o "$RUN/rollout" >"$dir/sync.log"
    metrics
    report 'critic/score/mean' 'actor/entropy' 'response_length/mean'
done
