#!/bin/sh
# A trained model on real prompts: stories260k with GSM8K questions. Rollout against recomputed
# log-probs by the bit, and sampled ids equal, over batch sizes, micro-batches, padding, threads, ranks.
. "$(dirname "$0")/lib.sh"
need_shared
M=$SHARED/data/models/stories260k questions=$SHARED/data/datasets/gsm8k/test.jsonl
[ -d "$M" ] && [ -f "$questions" ] || skip_all "no stories260k or no GSM8K in the shared data"

verl-data -q -m "$M" --step 1 data.train_batch_size=64 data.max_prompt_length=420 data.truncation=left \
    --map '{prompt: .question, data_source: "openai/gsm8k",
        reward_model: {style: "rule", ground_truth: .answer}}' \
    "$questions" -o p.dp
essence() { verl-dump -k uid,sample,responses,rollout_log_probs,finish_reason --no-text "$@"; }
rollout() { verl-rollout -q -m "$M" rollout.n=2 rollout.response_length=16 "$@"; }
again() {
    verl-logprob -m "$M" -o again.dp "$@" 2>log
    cat log
    grep -q 'equal the rollout.s to the bit' log
    verl-dump again.dp -f 'select(.old_log_probs != .rollout_log_probs) | .uid' >differ
    [ ! -s differ ]
}
# Prompts with COUNT more columns of padding on the left; negative: without any, for one row.
padded() {
    verl-dump --no-text p.dp | jq -c --argjson more "$1" '
        (.attention_mask | add) as $n | del(.input_ids, .position_ids) |
        if $more < 0 then .prompts |= .[-$n:] | .attention_mask |= .[-$n:]
        else .prompts |= [range($more) | 0] + . | .attention_mask |= [range($more) | 0] + . end'
}

ok "batch of 64" "
    rollout -i p.dp -o gen.dp
    essence gen.dp >want
    [ \$(wc -l <want) = 128 ]
    again -i gen.dp
    mv again.dp old.dp"
ok "batches of 7 and of 1" "
    verl-batch split 7 -q -i p.dp -o part-%d.dp
    for k in 0 1 2 3 4 5 6 7 8 9; do
        rollout -i part-\$k.dp -o part.dp
        essence part.dp >>got7
    done
    cmp want got7
    again -i part.dp
    for k in 0 31 63; do
        verl-batch index \$k -q -i p.dp | rollout -o part.dp
        again -i part.dp
        essence part.dp >got
        sed -n \"\$((2 * k + 1)),\$((2 * k + 2))p\" want | cmp - got
    done"
ok "micro-batches of one row, and of a token budget" "
    again -i gen.dp --micro-batch 1
    verl-dump -k old_log_probs,entropys --no-text again.dp >one
    again -i gen.dp rollout.log_prob_max_token_len_per_gpu=600
    verl-dump -k old_log_probs,entropys --no-text again.dp | cmp one -"
ok "no padding, and 300 columns of it" "
    padded 300 | verl-batch from-json -q | verl-batch set-meta global_steps 1 -q -o wide.dp
    rollout -i wide.dp -o gen-wide.dp
    essence gen-wide.dp | cmp want -
    again -i gen-wide.dp
    for k in 5 40; do
        padded -1 | sed -n \$((k + 1))p | verl-batch from-json -q | verl-batch set-meta global_steps 1 -q -o tight.dp
        rollout -i tight.dp -o part.dp
        again -i part.dp
        essence part.dp >got
        sed -n \"\$((2 * k + 1)),\$((2 * k + 2))p\" want | cmp - got
    done"
ok "one and two threads" "
    for t in 1 2; do
        rollout -i p.dp -o g.dp --threads \$t
        cmp gen.dp g.dp
        again -i gen.dp --threads \$t
        cmp again.dp old.dp
    done"
if have_mpi; then
    for n in 1 2 3 4; do
        ok "$n ranks" "
            verl-mpi $n verl-rollout -q -m '$M' rollout.n=2 rollout.response_length=16 -i p.dp -o g.dp
            cmp gen.dp g.dp
            verl-mpi $n verl-logprob -m '$M' -i gen.dp -o o.dp 2>log
            grep -q 'equal the rollout.s to the bit' log
            cmp o.dp old.dp"
    done
else
    skip "ranks: $why"
fi

ok "outside generations as text: the tokenizer's ids and the stop token" "
    verl-batch index 0,1 -q -i p.dp -o two.dp
    for u in \$(verl-dump two.dp -r -f .uid); do
        jq -nc --arg u \$u '{uid: \$u, response: \"once upon a time\"}'
        jq -nc --arg u \$u '{uid: \$u, response: \"once\", finish_reason: \"length\"}'
    done >text.jsonl
    verl-rollout -q -m '$M' --from-json text.jsonl -i two.dp -o g.dp rollout.response_length=12
    verl-dump g.dp -r -f '[.finish_reason, ([.responses, .response_mask] | transpose |
        map(select(.[1] == 1)[0]) | .[-1] == 2)] | @tsv' >got
    printf 'stop\ttrue\nlength\tfalse\nstop\ttrue\nlength\tfalse\n' | cmp - got"
done_testing
