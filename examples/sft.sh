#!/bin/sh
# sft.sh - supervised fine-tuning: rows {prompt, response} in, a model out.
#
#   MODEL=dir DATA=rows.jsonl [CONFIG=sft.yaml] [NAME=VALUE...] examples/sft.sh [key=value...]
#
#   MODEL   a Hugging Face directory, a published version or a train state
#   DATA    JSON lines; DATASET=alpaca (verl-data --dataset help) or MAP='a jq filter' makes
#           {prompt, response} of other shapes
#   CONFIG  settings under the names of verl's SFT trainer: data.train_batch_size, optim.lr,
#           trainer.total_epochs or trainer.total_training_steps
#   RUN     where everything goes (run/sft); SEED (1); LAUNCH: "verl-mpi 2" trains on two ranks
#
# The model is RUN/model/current, a Hugging Face directory; RUN/metrics.jsonl has a line for each
# optimizer step. Run the same line again after an interruption; with trainer.save_freq=N it goes on
# from the last N-th step.
set -eu
. "$(dirname "$0")/lib.sh"
begin "$@"
set -- ${CONFIG:+-c "$CONFIG"} --seed "$SEED" "$@"
dir=$RUN

tokenize() { # of the words verl-data gets those it reads
    for word; do
        shift
        case $word in data.*) set -- "$@" "$word" ;; esac
    done
    stage sft verl-data --sft --all -m "$MODEL" $shape --map "$MAP" ${CONFIG:+-c "$CONFIG"} "$@" "$DATA"
}
tokenize "$@"
stage metrics $LAUNCH verl-update --role sft -m "$MODEL" -s "$RUN/state" \
    --log "$RUN/metrics.jsonl" -i "$dir/sft.dp" "$@"
verl-sync -q -s "$RUN/state" -o "$RUN/model" >"$dir/sync.log"
say "loss $(verl-dump --meta "$dir/metrics.dp" | jq '.metrics."train/loss"'), the model is $RUN/model/current"
