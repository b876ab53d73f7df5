#!/bin/sh
# Rollouts with weights of eight bits: the same whatever runs beside a row; verl-logprob gives their
# log-probs again, bit for bit; every stage tells them from those of the weights that are trained.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/prompts.sh"
. "$REPO/tests/toy.sh"

essence() { verl-dump -k uid,sample,responses,response_mask,rollout_log_probs,finish_reason "$@"; }
rollout() { verl-rollout -q -m model rollout.n=3 rollout.response_length=12 --quantization int8 "$@"; }
again() {
    verl-logprob -m model --quantization int8 "$@" -o again.dp 2>log
    cat log
    grep -q 'equal the rollout.s to the bit' log
    verl-dump again.dp -f 'select(.old_log_probs != .rollout_log_probs) | .uid' >differ
    [ ! -s differ ]
}
make_model model
prompt_batch p.dp 40 23 left

for compute in fp32 bf16 amx; do
    ok "$compute: other log-probs than the weights themselves give, and again the same bytes" "
        rollout -i p.dp -o gen.dp --compute $compute
        essence gen.dp >want
        verl-rollout -q -m model rollout.n=3 rollout.response_length=12 -i p.dp -o full.dp --compute $compute
        essence full.dp >got
        not cmp -s want got
        rollout -i p.dp -o g.dp --compute $compute
        cmp gen.dp g.dp"
    ok "$compute: batches of 7, few rows and tokens at once, threads, padding, plain C" "
        rm -f part-*
        verl-batch split 7 -q -i p.dp -o part-%d.dp
        for k in 0 1 2 3 4 5; do
            rollout -i part-\$k.dp -o part.dp --compute $compute
            essence part.dp
        done >got
        cmp want got
        rollout -i p.dp -o g.dp --compute $compute rollout.max_num_seqs=5 --threads 1
        cmp gen.dp g.dp
        rollout -i p.dp -o g.dp --compute $compute rollout.max_num_batched_tokens=9 --threads 3
        cmp gen.dp g.dp
        prompt_batch wide.dp 40 123 left
        rollout -i wide.dp -o g.dp --compute $compute
        essence g.dp | cmp want -
        VL_ISA=scalar rollout -i p.dp -o g.dp --compute $compute
        cmp gen.dp g.dp"
    ok "$compute: log-probs again, for rows, token budgets, threads, plain C" "
        again -i gen.dp --micro-batch 1
        verl-dump -k old_log_probs,entropys again.dp >one
        for how in '--micro-batch 7' '--threads 3 rollout.log_prob_max_token_len_per_gpu=50' ''; do
            again -i gen.dp \$how
            verl-dump -k old_log_probs,entropys again.dp | cmp one -
        done
        VL_ISA=scalar again -i gen.dp
        verl-dump -k old_log_probs,entropys again.dp | cmp one -"
done

ok 'meta_info: another hash than the weights, theirs as source_hash, one and the same in both stages' "
    verl-dump --meta again.dp >meta
    hash=\$(verl-model hash model | cut -d' ' -f1)
    jq -e --arg h \$hash '.rollout_log_probs_weights |
        .quantization == \"int8\" and .source_hash == \$h and .hash != \$h' meta
    jq -e '.old_log_probs_weights == .rollout_log_probs_weights' meta
    verl-dump --meta full.dp | jq -e --arg h \$hash '.rollout_log_probs_weights |
        .hash == \$h and (has(\"quantization\") or has(\"source_hash\") | not)'"
ok 'the key of verl asks for the same; stages that have none of it pass over it; fp8 is refused' "
    verl-rollout -q -m model rollout.n=3 rollout.response_length=12 -i p.dp -o g.dp --compute amx \
        actor_rollout_ref.rollout.quantization=int8
    cmp gen.dp g.dp
    printf 'actor_rollout_ref: {rollout: {quantization: int8}}\n' >q.yaml
    for as in old ref; do
        verl-logprob -q --as \$as -m model -i full.dp -c q.yaml -o a.dp
        verl-logprob -q --as \$as -m model -i full.dp -o b.dp
        verl-dump a.dp >a
        verl-dump b.dp | cmp a -
        verl-dump --meta a.dp | jq -e '[.[] | objects | has(\"quantization\")] | any | not'
    done
    exits 64 verl-rollout -m model -i p.dp -o g.dp rollout.quantization=fp8 2>log
    grep -q 'quantization: found fp8, expected int8 or null' log"
ok 'log-probs of what is trained: told how far they are; of eight bits after a full rollout: a warning' "
    verl-logprob -m model -i gen.dp -o old.dp 2>log
    grep -q 'weights were quantized (int8), these are not' log
    grep -q 'log-probs differ from the rollout.s in' log
    not grep -q warning log
    verl-logprob -m model -i full.dp -o o.dp --quantization int8 2>log
    grep -q 'warning: --quantization int8, but the rollout.s weights were not quantized' log
    grep -q 'log-probs differ from the rollout.s in' log"
ok 'ref and teacher: in eight bits only when asked' "
    verl-logprob -q --as ref -m model -i gen.dp -o ref.dp
    verl-dump ref.dp -f .ref_log_prob >a
    verl-dump old.dp -f .old_log_probs | cmp a -
    verl-logprob -q --as ref -m model -i gen.dp -o ref.dp --quantization int8 2>log
    grep -q 'warning: --as ref with weights that are quantized (int8)' log
    verl-dump ref.dp -f .ref_log_prob >a
    verl-dump again.dp -f .old_log_probs | cmp a -
    verl-dump --meta ref.dp | jq -e '.ref_log_prob_weights.quantization == \"int8\"'"

# The last rollout, scored by its samples' numbers.
verl-dump gen.dp | jq -c '.sample as $s | .token_level_scores = [.response_mask[] * ($s / 5)]' |
    verl-batch from-json -q --like gen.dp --dtype token_level_scores=F32 -o score.dp
ratio_1() { [ $(metric $1 actor/ppo_kl) = 0 ] && [ $(metric $1 actor/pg_clipfrac) = 0 ]; }
update() { rm -rf s; verl-update -s s -m model ppo_mini_batch_size=40 -o m.dp "$@" 2>log; }

ok 'verl-update: their log-probs are not the old ones of what is trained' "
    verl-advantage -q -e grpo -i score.dp bypass_mode=true -o adv.dp
    exits 65 update -i adv.dp
    grep -q 'rollout_log_probs cannot take its place.*not quantized' log
    verl-logprob -q -m model -i score.dp --quantization int8 -o old8.dp
    verl-advantage -q -e grpo -i old8.dp -o adv.dp
    for how in '' --stale-ok; do
        exits 65 update -i adv.dp \$how
        grep -q 'old_log_probs were made by quantized weights (int8)' log
    done"
ok 'verl-update: with old_log_probs of the weights the first ratio is 1; what makes up for the rest is named' "
    verl-logprob -q -m model -i score.dp -o old.dp
    verl-advantage -q -e grpo -i old.dp -o adv.dp 2>log
    grep -q 'warning: the rollout.s weights were quantized (int8).*rollout_is=token does' log
    update -i adv.dp
    ratio_1 m.dp
    grep -q 'quantized (int8) and no rollout_is_weights make up for it' log
    verl-advantage -q -e grpo rollout_is=token -i old.dp -o adv.dp 2>log
    not grep -q quantized log
    verl-dump adv.dp -f '[.rollout_is_weights, .response_mask] | transpose[] | select(.[1] == 1)[0]' |
        sort -u >weights
    [ \$(wc -l <weights) -gt 100 ]
    update -i adv.dp
    ratio_1 m.dp
    not grep -q quantized log"
ok 'verl-update: bypass mode takes them as what was sampled, and ratios begin elsewhere than at 1' "
    verl-advantage -q -e grpo -i score.dp bypass_mode=true -o adv.dp
    update -i adv.dp bypass_mode=true
    not ratio_1 m.dp
    update -i adv.dp actor.use_rollout_log_probs=true
    not ratio_1 m.dp"

M=$SHARED/data/models/stories260k questions=$SHARED/data/datasets/gsm8k/test.jsonl
if [ -n "$SHARED" ] && [ -d "$M" ] && [ -f "$questions" ]; then
    ok 'a trained model says mostly the same: 60 of 64 first tokens, half of the answers of 16' "
        verl-data -q -m $M --step 1 data.train_batch_size=64 data.max_prompt_length=420 data.truncation=left \
            --map '{prompt: .question, data_source: \"openai/gsm8k\",
                reward_model: {style: \"rule\", ground_truth: .answer}}' $questions -o q.dp
        for how in null int8; do
            verl-rollout -q -m $M -i q.dp rollout.temperature=0 rollout.response_length=16 \
                rollout.quantization=\$how -o \$how.dp
            verl-dump \$how.dp -f '.responses | tostring' >\$how.all
            verl-dump \$how.dp -f '.responses[0]' >\$how.first
        done
        paste -d '|' null.all int8.all | awk -F '|' '\$1 == \$2 { n++ } END { print n; exit n < 32 }'
        paste null.first int8.first | awk '\$1 == \$2 { n++ } END { print n; exit n < 60 }'
        verl-logprob -m $M -i int8.dp --quantization int8 -o o.dp 2>log
        grep -q 'equal the rollout.s to the bit' log"
else
    skip 'no stories260k or no GSM8K in the shared data'
fi
done_testing
