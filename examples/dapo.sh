#!/bin/sh
# dapo.sh - DAPO (Yu et al. 2025): GRPO that clips higher, drops groups that teach nothing and asks
# for more prompts in their place, and makes long answers dearer.
#
#   MODEL=dir DATA=rows.jsonl [CONFIG=run.yaml] [NAME=VALUE...] examples/dapo.sh [key=value...]
#
# The variables are those of grpo.sh (examples/grpo.sh --help), without KL; RUN is run/dapo. A step
# takes rounds of data.gen_batch_size prompts until data.train_batch_size groups are left in which
# algorithm.filter_groups.metric differs; after max_num_gen_batches rounds it ends with status 3.
# The penalty on long answers grows over the last fifth of data.max_response_length, as in the paper;
# reward_model.reward_kwargs.overlong_buffer_cfg.len sets another part. A REWARD of your own gets no
# settings: give it -c examples/presets/dapo.yaml and the two lengths if it is to have the penalty.
set -eu
: "${PRESET:=dapo}"
. "$(dirname "$0")/lib.sh"
begin "$@"
set -- ${CONFIG:+-c "$CONFIG"} -c "$preset" "$@"
long=reward_model.reward_kwargs
limit=$(setting $long.max_resp_len "$(setting data.max_response_length 512 "$@")" "$@")
buffer=$(setting $long.overlong_buffer_cfg.len $(((limit + 4) / 5)) "$@")
set -- "$@" "$long.max_resp_len=$limit" "$long.overlong_buffer_cfg.len=$buffer"
prompts=$(setting data.train_batch_size 1024 "$@")
kl "$@"
metric=$(setting algorithm.filter_groups.metric acc "$@")
rounds=$(setting algorithm.filter_groups.max_num_gen_batches 0 "$@")
enabled algorithm.filter_groups.enable true "$@" || {
    say "algorithm.filter_groups.enable=false: without rounds DAPO is grpo.sh, so PRESET=dapo examples/grpo.sh"
    exit 64
}

verl-sync -q -m "$MODEL" -s "$RUN/actor" -o "$RUN/rollout" >/dev/null
while next_step; do
    batch=0 round=0 # generation batches of all earlier steps; rounds of this one
    [ $step = 1 ] || batch=$(cat "$RUN/step_$(printf %06d $((step - 1)))/next_batch")
    until [ -e "$dir/reward.dp" ]; do
        [ "$rounds" -le 0 ] || [ $round -lt "$rounds" ] || {
            say "step $step: $(tail -n 1 "$dir/reward.log") after $round rounds (filter_groups.max_num_gen_batches)"
            exit 3
        }
        round=$((round + 1)) r=$(printf %02d $round)
        stage prompts_$r verl-data $rows -m "$MODEL" --map "$MAP" --step $step --batch $((batch + round - 1)) \
            --seed "$SEED" "$@" "$DATA"
        rollout gen_$r -m "$policy" -i "$dir/prompts_$r.dp" "$@"
        reward reward_$r "$dir/gen_$r.dp" "$@"
        echo $((batch + round)) >"$dir/next_batch"
        echo "{\"train/num_gen_batches\": $round}" >"$dir/own.json"
        stage reward sh -c 'verl-batch concat "$1"/reward_[0-9]*.dp |
            verl-batch filter-groups --metric "$2" --target "$3" -o "$5"' filter "$dir" "$metric" "$prompts" || :
    done
    stage old_log_prob $LAUNCH verl-logprob -m "$policy" -i "$dir/reward.dp" "$@"
    reference old_log_prob "$@"
    advantage "$dir/$last.dp" "$@"
    update actor "$MODEL" --role actor -i "$dir/adv.dp" "trainer.total_training_steps=$STEPS" "$@"
    timed update_weights verl-sync -q -s "$RUN/actor" --keep "$KEEP" -o "$RUN/rollout"
    finish reward/acc/mean critic/score/mean actor/entropy response_length/mean -- "$@"
done
end
