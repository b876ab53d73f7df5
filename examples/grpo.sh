#!/bin/sh
# grpo.sh - GRPO: n samples per prompt, advantages within each group, no critic.
#
#   MODEL=dir DATA=rows.jsonl [CONFIG=run.yaml] [NAME=VALUE...] examples/grpo.sh [key=value...]
#
#   MODEL    a Hugging Face directory, a published version or a train state (of an SFT run, say)
#   DATA     JSON lines {prompt, data_source, reward_model}; DATASET=gsm8k (verl-data --dataset help)
#            or MAP='a jq filter' makes them of other shapes
#   CONFIG   settings under verl's names; the preset wins over it, key=value settings over both.
#            data.train_batch_size, data.max_response_length and rollout.n are those most runs set
#   PRESET   settings that make an algorithm: a file of examples/presets (grpo)
#   REWARD   a command line that takes -i FILE -o FILE (default: verl-reward with all settings),
#            for example "verl-reward --jq '.solution_str == .ground_truth'"
#   VAL      held-out rows: every VAL_EVERY (10) steps the new policy answers them; verl-eval's
#            metrics of that go into metrics.jsonl
#   RUN      where everything goes (run/PRESET); STEPS: how many (60); SEED (1)
#   KL       above 0: a KL loss to MODEL with that coefficient (0), short for the settings
#            use_kl_loss=true and kl_loss_coef
#   KEEP     weights of that many last steps are kept (2), so that a step can be run again
#   LAUNCH   "verl-mpi 2" runs the model stages on two ranks
#   ROLLOUT  a command line in verl-rollout's place: --seed N -m MODEL -i FILE -o FILE key=value...
#            (examples/outside_rollout.sh)
#
# Everything of a step stays in RUN/step_NNNNNN, its metrics are a line of RUN/metrics.jsonl; run the
# same line again after an interruption, or with more STEPS. The last model is RUN/rollout/current, a Hugging Face directory.
set -eu
: "${PRESET:=grpo}" "${KL:=0}"
. "$(dirname "$0")/lib.sh"
begin "KL=$KL" "$@"
set -- ${CONFIG:+-c "$CONFIG"} -c "$preset" "$@"
[ "$KL" = 0 ] || {
    coef=$(setting actor_rollout_ref.actor.kl_loss_coef "$KL" "$@")
    [ "$(echo "$coef" | awk -v kl="$KL" '{ print ($1 + 0 == kl + 0) }')" = 1 ] || {
        say "KL=$KL, but the settings have kl_loss_coef $coef: give one of the two"
        exit 64
    }
    set -- "$@" actor_rollout_ref.actor.use_kl_loss=true "actor_rollout_ref.actor.kl_loss_coef=$KL"
}
kl "$@"

verl-sync -q -m "$MODEL" -s "$RUN/actor" -o "$RUN/rollout" >/dev/null
while next_step; do
    stage prompts verl-data $rows -m "$MODEL" --map "$MAP" --step $step --seed "$SEED" "$@" "$DATA"
    rollout gen -m "$policy" -i "$dir/prompts.dp" "$@"
    reward reward "$dir/gen.dp" "$@"
    stage old_log_prob $LAUNCH verl-logprob -m "$policy" -i "$dir/reward.dp" "$@"
    reference old_log_prob "$@"
    advantage "$dir/$last.dp" "$@"
    update actor "$MODEL" --role actor -i "$dir/adv.dp" "trainer.total_training_steps=$STEPS" "$@"
    timed update_weights verl-sync -q -s "$RUN/actor" --keep "$KEEP" -o "$RUN/rollout"
    finish critic/score/mean actor/entropy response_length/mean -- "$@"
done
end
