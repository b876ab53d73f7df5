#!/bin/sh
# verl-logprob and verl-value: columns, values against a hand-made model, forms of input, refusals.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/prompts.sh"

make_model model
make_model base --seed 9
prompt_batch p.dp 6 25 left
verl-rollout -q -m model -i p.dp -o gen.dp rollout.n=2 rollout.response_length=8 --compute fp32

ok "old: old_log_probs, entropys, the metric and the weights" "
    verl-logprob -q -m model -i gen.dp -o old.dp
    verl-dump --check old.dp
    verl-dump --meta old.dp >meta
    jq -e '.metrics[\"actor/entropy\"] > 0 and .compute == \"fp32\"' meta
    equal \"\$(jq -r .old_log_probs_weights.hash meta)\" \"\$(verl-model hash model | cut -d' ' -f1)\"
    verl-dump old.dp -f '(.old_log_probs | length == 8) and (.entropys | length == 8 and all(. >= 0))' |
        sort -u | grep -qx true"
ok "actor/entropy is the mean over valid tokens" "
    verl-dump old.dp -f '[.entropys, .response_mask] | transpose[] | select(.[1] == 1)[0]' |
        awk '{ s += \$1 } END { printf \"%.9g\n\", s / NR }' >mean
    jq '.metrics[\"actor/entropy\"]' meta | awk '{ printf \"%.9g\n\", \$1 }' | paste mean - |
        awk '{ d = \$1 - \$2; exit d * d > 1e-10 }'"
ok "67: ref: another model, another column, both stay" "
    verl-logprob -q --as ref -m base -i old.dp -o ref.dp
    verl-dump ref.dp -f 'has(\"old_log_probs\") and .old_log_probs != .ref_log_prob' | sort -u | grep -qx true
    verl-dump --meta ref.dp | jq -e '.old_log_probs_weights.hash != .ref_log_prob_weights.hash'"
ok "ref under the policy's weights is old" "
    verl-logprob -q --as ref -m model -i old.dp -o r.dp
    verl-dump r.dp -f '.old_log_probs == .ref_log_prob' | sort -u | grep -qx true"
ok "the paths of the config: policy, reference, reference by default" "
    verl-logprob -q --as ref -i old.dp -o r2.dp actor_rollout_ref.model.path=model
    cmp r.dp r2.dp
    verl-logprob -q --as ref -i old.dp -o r2.dp actor_rollout_ref.model.path=model \
        actor_rollout_ref.ref.model.path=base
    verl-dump -k ref_log_prob ref.dp >a
    verl-dump -k ref_log_prob r2.dp | cmp a -"
ok "--delta, united again, is the whole" "
    verl-logprob -q -m model -i gen.dp --delta -o d.dp
    verl-dump d.dp -f keys_unsorted -n 1 | jq -e 'sort == [\"entropys\", \"old_log_probs\", \"sample\", \"uid\"]'
    verl-batch union gen.dp d.dp -q -o u.dp
    verl-dump old.dp | jq -cS . >a
    verl-dump u.dp | jq -cS . | cmp a -"
ok "a second time: replaces its columns, says so, the same result" "
    verl-logprob -m model -i old.dp -o again.dp 2>log
    grep -q 'replaces old_log_probs, entropys' log
    verl-dump old.dp | jq -cS . >a
    verl-dump again.dp | jq -cS . | cmp a -"
ok "sum_pi_squared: between 1/V and 1, and 1 at temperature near 0" "
    verl-logprob -q -m model -i gen.dp -o s.dp --sum-pi-squared
    verl-dump s.dp -f '[.sum_pi_squared, .response_mask] | transpose[] | select(.[1] == 1)[0]' |
        awk '\$1 < 1 / 64 || \$1 > 1 { exit 1 }'
    verl-logprob -q -m model -i gen.dp -o s.dp --sum-pi-squared --temperature 1e-4 2>log
    verl-dump s.dp -f '[.sum_pi_squared, .response_mask] | transpose[] | select(.[1] == 1)[0]' |
        awk '\$1 < 0.99 { exit 1 }'"
ok "input_ids and attention_mask alone" "
    verl-batch drop -k prompts,position_ids -q -i gen.dp -o g.dp
    verl-logprob -q -m model -i g.dp -o o.dp
    verl-dump -k old_log_probs,entropys old.dp >a
    verl-dump -k old_log_probs,entropys o.dp | cmp a -"
ok "prompts, responses and attention_mask alone" "
    verl-batch drop -k input_ids,position_ids,response_mask -q -i gen.dp -o g.dp
    verl-logprob -q -m model -i g.dp -o o.dp
    verl-dump -k old_log_probs,entropys o.dp | cmp a -"
ok "a foreign safetensors file under zstd is a batch too" "
    verl-batch select -k prompts,responses,attention_mask -q -i gen.dp -o g.dp
    verl-batch to-safetensors -q -i g.dp -o g.st
    zstd -qf g.st -o g.zst
    verl-logprob -q -m model -i g.zst -o o.dp --temperature 1 --compute fp32
    verl-dump -k old_log_probs,entropys o.dp | cmp a -"
ok "tokens outside response_mask are computed too, and left out of the metric" "
    verl-dump gen.dp | jq -c '.response_mask[0] = 0' | verl-batch from-json -q --like gen.dp -o g.dp
    verl-logprob -q -m model -i g.dp -o o.dp
    verl-dump -k old_log_probs,entropys o.dp | cmp a -
    verl-dump --meta o.dp | jq '.metrics[\"actor/entropy\"]' >b
    jq '.metrics[\"actor/entropy\"]' meta >a
    not cmp -s a b"
ok "69: values know no temperature" "
    make_model critic --value-head --seed 4
    verl-value -q -m critic -i gen.dp -o v.dp
    verl-batch set-meta temperature 0.25 -q -i gen.dp | verl-value -q -m critic -o v2.dp
    verl-dump -k values v.dp >a
    verl-dump -k values v2.dp | cmp a -
    grep -q '[1-9]' a"

ok "rows beyond the model's context are counted and told" "
    verl-model init -q -o short --hidden 16 --layers 1 --heads 2 --ffn 16 --vocab 64 --eos-id 2 --positions 20
    for c in verl-logprob verl-value; do
        \$c -m short -i gen.dp -o x.dp 2>log
        grep -q '[1-9][0-9]* of 12 rows pass the model.s context of 20 tokens' log
    done
    verl-logprob -m model -i gen.dp -o x.dp 2>log
    not grep 'context' log"
ok "another model's ids: 65 with row, uid, position" "
    verl-model init -q -o small --hidden 16 --layers 1 --heads 2 --ffn 16 --vocab 20 --eos-id 2
    exits 65 verl-logprob -q -m small -i gen.dp -o none.dp 2>log
    grep -q 'row [0-9]* (uid .*position [0-9]*.*vocabulary of 20' log
    [ ! -e none.dp ]"
ok "a mask with a hole: 65 with its row" "
    verl-dump gen.dp | jq -c 'if .uid == \"0-2\" and .sample == 0 then .attention_mask[26] = 0 else . end' |
        verl-batch from-json -q --like gen.dp -o g.dp
    exits 65 verl-logprob -q -m model -i g.dp -o none.dp 2>log
    grep -q 'row 4 .*attention_mask' log"
ok "a prompt batch has no responses: 65, naming verl-rollout" "
    exits 65 verl-logprob -q -m model -i p.dp -o none.dp --temperature 1 2>log
    grep -q 'verl-rollout' log"
ok "no rows: 65" "
    verl-batch slice 0:0 -q -i gen.dp -o g.dp
    exits 65 verl-logprob -q -m model -i g.dp -o none.dp 2>log
    grep -q 'no rows' log"
ok "no model: 64; a missing one: 66" "
    exits 64 verl-logprob -q -i gen.dp -o none.dp 2>log
    grep -q 'actor_rollout_ref.model.path' log
    exits 64 verl-value -q -i gen.dp -o none.dp 2>log
    grep -q 'critic.model.path' log
    exits 66 verl-value -q -m nowhere -i gen.dp -o none.dp 2>log"
ok "a model larger than memory is refused before it is read: 71, naming both sizes" "
    cp -r model huge
    chmod -R u+w huge
    jq '.hidden_size = 65536 | .intermediate_size = 262144 | .num_hidden_layers = 512 | .head_dim = 128 |
        .num_attention_heads = 512 | .num_key_value_heads = 512' model/config.json >huge/config.json
    exits 71 verl-logprob -q -m huge -i gen.dp -o none.dp 2>log
    grep -q 'needs .* MB.*available' log"
ok "standard output to a full disk: 74" "exits 74 verl-value -q -m critic -i gen.dp >/dev/full 2>log"
done_testing
