#!/bin/sh
# Sampled ids and log-probs do not depend on what runs beside a row, on padding, cuts, threads or
# instruction sets; and verl-logprob gives the rollout's log-probs again, bit for bit.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/prompts.sh"

# What must be equal: text that tells every float from its neighbours.
essence() { verl-dump -k uid,sample,responses,response_mask,rollout_log_probs,finish_reason "$@"; }
rollout() { verl-rollout -q -m model rollout.n=3 rollout.response_length=20 "$@"; }
# The log-probs of FILE again, with further options: equal by value and by the stage's own memcmp.
again() {
    verl-logprob -m model "$@" -o again.dp 2>log
    cat log
    grep -q 'equal the rollout.s to the bit' log
    verl-dump again.dp -f 'select(.old_log_probs != .rollout_log_probs) | .uid' >differ
    [ ! -s differ ]
}

for compute in fp32 bf16; do
    [ -d model ] || make_model model
    prompt_batch p.dp 64 23 left
    ok "$compute: a rollout has stops and limits, prompts x n rows in order" "
        rollout -i p.dp -o gen.dp --compute $compute
        essence gen.dp >want
        [ \$(wc -l <want) = 192 ]
        grep -q '\"finish_reason\":\"stop\"' want
        grep -q '\"finish_reason\":\"length\"' want
        verl-dump gen.dp -r -f '\"\(.uid) \(.sample)\"' >order
        awk '\$1 != \"0-\" int((NR - 1) / 3) || \$2 != (NR - 1) % 3 { exit 1 }' order"
    ok "$compute: the same line again, the same bytes" "
        rollout -i p.dp -o gen2.dp --compute $compute
        cmp gen.dp gen2.dp"
    ok "$compute: batches of 7" "
        rm -f part-*
        verl-batch split 7 -q -i p.dp -o part-%d.dp
        for k in 0 1 2 3 4 5 6 7 8 9; do
            rollout -i part-\$k.dp -o part.dp --compute $compute
            essence part.dp
        done >got
        cmp want got"
    ok "$compute: batches of 1" "
        for k in 0 9 63; do
            verl-batch index \$k -q -i p.dp | rollout -o part.dp --compute $compute
            essence part.dp >got
            sed -n \"\$((3 * k + 1)),\$((3 * k + 3))p\" want | cmp - got
        done"
    ok "$compute: rows in another order" "
        verl-batch index 63,5,40 -q -i p.dp | rollout -o part.dp --compute $compute
        essence part.dp | sort >got
        for k in 5 40 63; do sed -n \"\$((3 * k + 1)),\$((3 * k + 3))p\" want; done | sort | cmp - got"
    ok "65: $compute: 300 columns of padding, and padding on the right" "
        prompt_batch wide.dp 64 323 left
        prompt_batch right.dp 64 30 right
        for f in wide right; do
            rollout -i \$f.dp -o gen-\$f.dp --compute $compute
            essence gen-\$f.dp | cmp want -
            again -i gen-\$f.dp
        done"
    ok "$compute: few rows at once, few tokens in a pass, two threads" "
        rollout -i p.dp -o g.dp --compute $compute rollout.max_num_seqs=5 --threads 1
        cmp gen.dp g.dp
        rollout -i p.dp -o g.dp --compute $compute rollout.max_num_batched_tokens=9 --threads 2
        cmp gen.dp g.dp"
    ok "$compute: plain C instead of wide instructions" "
        VL_ISA=scalar rollout -i p.dp -o g.dp --compute $compute
        cmp gen.dp g.dp
        VL_ISA=scalar again -i gen.dp"
    ok "62: $compute: log-probs again, for rows, token budgets and threads" "
        again -i gen.dp --micro-batch 1
        verl-dump -k old_log_probs,entropys again.dp >one
        again -i gen.dp rollout.log_prob_max_token_len_per_gpu=70 --threads 2
        verl-dump -k old_log_probs,entropys again.dp | cmp one -
        again -i gen.dp rollout.log_prob_micro_batch_size_per_gpu=50
        verl-dump -k old_log_probs,entropys again.dp | cmp one -"
    ok "$compute: a stream is read as the same batch" "
        rollout -i p.dp --compute $compute rollout.max_num_seqs=7 --stream |
            verl-logprob -q -m model -o s.dp
        verl-logprob -q -m model -i gen.dp -o again.dp
        cmp s.dp again.dp"
done

ok "greedy: log-probs at temperature 1 again" "
    rollout -i p.dp -o gen.dp --temperature 0
    again -i gen.dp"
ok "64: temperature, top-k and top-p: log-probs over the full vocabulary again, and it is told" "
    rollout -i p.dp -o gen.dp --temperature 0.7 --top-k 9 --top-p 0.8
    again -i gen.dp
    verl-logprob -m model -i gen.dp -o g.dp 2>log
    grep -q 'warning: the rollout sampled with top_k=9 top_p=0.8.*biased' log"
ok "63: another compute type or temperature warns, naming both" "
    rollout -i p.dp -o gen.dp --compute fp32 --temperature 0.5
    verl-logprob -q -m model -i gen.dp -o g.dp --compute bf16 --temperature 0.75 2>log
    grep -q 'compute bf16.*fp32' log
    grep -q '0.75.*0.5' log"
ok "a batch that names no temperature is 65 and names the option" "
    verl-batch set-meta --unset temperature -q -i gen.dp -o g.dp
    exits 65 verl-logprob -m model -i g.dp -o h.dp 2>log
    grep -q 'temperature.*rollout.temperature' log"

make_model critic --value-head --seed 5
ok "values: cuts, threads and instruction sets do not change a bit; 0 outside the mask" "
    verl-value -q -m critic -i gen.dp -o v1.dp --micro-batch 1
    verl-value -q -m critic -i gen.dp -o v2.dp --threads 2
    cmp v1.dp v2.dp
    VL_ISA=scalar verl-value -q -m critic -i gen.dp -o v2.dp critic.forward_max_token_len_per_gpu=60
    cmp v1.dp v2.dp
    verl-dump v1.dp -f '[.values, .response_mask] | transpose | map(select((.[1] == 0) != (.[0] == 0)))' |
        sort -u >bad
    [ \"\$(cat bad)\" = '[]' ]"
ok "a language model as critic says 0 everywhere" "
    verl-value -q -m model -i gen.dp -o v1.dp
    verl-dump v1.dp -f '.values | map(select(. != 0))' | sort -u >bad
    [ \"\$(cat bad)\" = '[]' ]"
ok "a value model is no policy: 65" "
    exits 65 verl-rollout -m critic -i p.dp -o g.dp 2>log
    grep -q 'value head' log"
done_testing
