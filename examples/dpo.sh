#!/bin/sh
# dpo.sh - DPO (Rafailov et al. 2023) on pairs of a data set: rows {prompt, chosen, rejected}.
#
#   MODEL=dir DATA=pairs.jsonl [CONFIG=run.yaml] [NAME=VALUE...] examples/dpo.sh [key=value...]
#
#   MODEL   where training starts, and the reference
#   DATA    JSON lines; DATASET=hh-rlhf (verl-data --dataset help) or MAP='a jq filter' makes
#           {prompt, chosen, rejected} of other shapes
#   CONFIG  settings under verl's names: actor.ppo_mini_batch_size (pairs a step), actor.ppo_epochs,
#           actor.optim.lr, algorithm.dpo_loss_type, dpo_beta, ...
#   RUN     where everything goes (run/dpo); SEED (1); LAUNCH: "verl-mpi 2" for two ranks
#
# The model is RUN/model/current; RUN/metrics.jsonl has a line for each optimizer step. Run the same
# line again after an interruption.
set -eu
: "${PRESET:=dpo}"
. "$(dirname "$0")/lib.sh"
begin "$@"
set -- ${CONFIG:+-c "$CONFIG"} -c "$preset" "$@"
dir=$RUN

stage pairs verl-data --preference --all -m "$MODEL" $shape --map "$MAP" --seed "$SEED" "$@" "$DATA"
stage ref $LAUNCH verl-logprob --as ref -m "$MODEL" -i "$dir/pairs.dp" "$@" actor_rollout_ref.rollout.temperature=1
stage update_dpo $LAUNCH verl-update --role dpo -m "$MODEL" -s "$RUN/state" --seed "$SEED" \
    --log "$RUN/metrics.jsonl" -i "$dir/ref.dp" "$@"
verl-sync -q -s "$RUN/state" -o "$RUN/model" >"$dir/sync.log"
say "$(verl-dump --meta "$dir/update_dpo.dp" | jq -r '.metrics | "loss \(."actor/dpo_loss"), pairs in order \(."actor/rewards_accuracies")"'), the model is $RUN/model/current"
