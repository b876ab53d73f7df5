#!/bin/sh
# verl-rollout: what it writes, the ends of a response, empty prompts, outside generations, refusals.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/prompts.sh"
. "$REPO/tests/toy.sh"

make_model model
prompt_batch p.dp 6 25 left
rollout() { verl-rollout -q -m model rollout.response_length=8 "$@"; }

ok "columns, dtypes and shapes" "
    rollout -i p.dp -o gen.dp rollout.n=2
    verl-dump --check gen.dp
    verl-dump --schema gen.dp >schema
    for c in prompts:25 responses:8 input_ids:33 attention_mask:33 position_ids:33 response_mask:8; do
        jq -e --arg c \${c%:*} --argjson w \${c#*:} \
            '[.. | objects | select(.name? == \$c)][0] | .dtype == \"I64\" and .shape == [12, \$w]' schema
    done
    jq -e '[.. | objects | select(.name? == \"rollout_log_probs\")][0] | .dtype == \"F32\"' schema"
ok "meta_info: how it was sampled, from which weights" "
    verl-dump --meta gen.dp >meta
    jq -e '.n == 2 and .temperature == 1 and .top_p == 1 and .top_k == -1 and .global_steps == 3 and
        .logprobs_mode == \"full_vocabulary\" and .stop_token_ids == [2] and
        (.compute | IN(\"fp32\", \"bf16\", \"amx\"))' meta
    equal \"\$(jq -r .rollout_log_probs_weights.hash meta)\" \"\$(verl-model hash model | cut -d' ' -f1)\""
ok "no path, time or number of threads in the file" "
    mkdir -p elsewhere
    cp -r model elsewhere/other
    verl-rollout -q -m elsewhere/other rollout.response_length=8 -i p.dp -o g.dp rollout.n=2 --threads 2
    cmp gen.dp g.dp"
ok "a stop id ends a response and is its last valid token" "
    rollout -i p.dp -o g.dp --stop-id 7 --stop-id 20 --stop-id 33 --stop-id 41 rollout.n=8
    verl-dump g.dp -f '[.finish_reason, ([.responses, .response_mask] | transpose |
        map(select(.[1] == 1)[0]) | (.[:-1] | any(IN(7, 20, 33, 41))), (.[-1] | IN(7, 20, 33, 41)),
        length)] | [.[0], .[1], .[2], .[0] == \"length\" and .[3] != 8]' | sort -u >got
    printf '%s\n' '[\"length\",false,false,false]' '[\"stop\",false,true,false]' | cmp got -"
ok "an end id that is no id is 65; one outside the vocabulary is told and left out" "
    cp -rL model ends
    chmod -R u+w ends
    for id in '\"2\"' 2.5 -2 '[2,\"x\"]' '{}'; do
        jq --argjson id \"\$id\" '.eos_token_id = \$id' model/config.json >ends/config.json
        exits 65 verl-rollout -q -m ends -i p.dp -o g.dp rollout.response_length=8 2>log
        grep -q 'config.json: eos_token_id is .*; expected a token id' log
    done
    jq '.eos_token_id = [2, 64, null, -1] | .pad_token_id = -1' model/config.json >ends/config.json
    verl-rollout -m ends -i p.dp -o g.dp rollout.response_length=8 2>log
    grep -q 'end id 64 is outside the vocabulary of 64' log
    verl-dump --meta g.dp | jq -e '.stop_token_ids == [2]'"
ok "--ignore-eos: every response has full length" "
    rollout -i p.dp -o g.dp --ignore-eos rollout.n=8
    [ \"\$(verl-dump g.dp -f '[.finish_reason, (.response_mask | add)]' | sort -u)\" = '[\"length\",8]' ]
    verl-dump --meta g.dp | jq -e '.stop_token_ids == []'"
ok "the step and the seed are part of a draw" "
    verl-dump gen.dp -f .responses >a
    verl-batch set-meta global_steps 4 -q -i p.dp | rollout rollout.n=2 -o g.dp
    verl-dump g.dp -f .responses >b
    rollout -i p.dp -o g.dp rollout.n=2 --seed 2
    verl-dump g.dp -f .responses >c
    not cmp -s a b
    not cmp -s a c
    not cmp -s b c"
ok "more samples begin with the fewer" "
    rollout -i p.dp -o g.dp rollout.n=5
    verl-dump g.dp -f 'select(.sample < 2) | .responses' | cmp - a"
ok "equal prompts under two uids draw differently" "
    verl-dump p.dp | sed -n 6p | sed 'p; s/\"0-5\"/\"0-77\"/' | verl-batch from-json -q --like p.dp -o q.dp
    rollout -i q.dp -o g.dp rollout.n=1
    [ \$(verl-dump g.dp -f .responses | sort -u | wc -l) = 2 ]"
ok "--validate: greedy, one sample, said in meta_info" "
    rollout -i p.dp -o g.dp --validate rollout.n=4
    [ \$(verl-dump g.dp -f .uid | wc -l) = 6 ]
    verl-dump --meta g.dp | jq -e '.temperature == 0 and .n == 1 and .validate == true'
    rollout -i p.dp -o h.dp --temperature 0
    verl-dump g.dp -f .responses >a
    verl-dump h.dp -f .responses | cmp a -"
ok "top-k 1 and a tiny nucleus are greedy" "
    for f in '--top-k 1' '--top-p 1e-9'; do
        rollout -i p.dp -o h.dp \$f
        verl-dump h.dp -f .responses | cmp a -
    done"
ok "without log-probs" "
    rollout -i p.dp -o g.dp rollout.calculate_log_probs=false
    verl-dump g.dp -f 'has(\"rollout_log_probs\")' | sort -u | grep -qx false
    verl-dump --meta g.dp | jq -e 'has(\"logprobs_mode\") | not'"
ok "other columns are repeated with their rows" "
    verl-dump p.dp | awk '{ sub(/}\$/, \",\\\"data_source\\\":\\\"s\" NR \"\\\"}\"); print }' |
        verl-batch from-json -q --like p.dp -o q.dp
    rollout -i q.dp -o g.dp rollout.n=3
    verl-dump g.dp -r -f '.data_source' | awk '\$1 != \"s\" int((NR - 1) / 3 + 1) { bad = 1 } END { exit bad || !NR }'"

ok "--time-limit: rows end as aborted, in order, and the batch is whole" "
    rollout -i p.dp -o g.dp rollout.n=2 --time-limit 1e-9
    verl-dump --check g.dp
    [ \"\$(verl-dump g.dp -f '[.finish_reason, (.response_mask | add)]' | sort -u)\" = '[\"abort\",0]' ]
    [ \$(verl-dump g.dp -f .uid | wc -l) = 12 ]
    verl-logprob -q -m model -i g.dp -o h.dp
    rollout -i p.dp rollout.n=2 --time-limit 1e-9 --stream | verl-logprob -q -m model -o s.dp
    cmp h.dp s.dp"

empty='{"uid":"e","prompts":[0,0],"attention_mask":[0,0]}'
ok "an empty prompt begins with the begin token, and says so" "
    echo '$empty' | verl-batch from-json -q | verl-batch set-meta global_steps 1 -q -o e.dp
    verl-rollout -m model rollout.response_length=1 -i e.dp -o g.dp 2>log
    grep -q '1 empty prompt' log
    verl-dump g.dp -f '[.prompts[1], .attention_mask, (.responses | length)]' | grep -qxF '[1,[0,1,1],1]'
    verl-logprob -m model -i g.dp -o h.dp 2>log
    grep -q 'to the bit' log"
ok "an empty prompt without a begin token is 65" "
    verl-model init -q -o nobos --hidden 16 --layers 1 --heads 2 --ffn 16 --vocab 64 --eos-id 2
    exits 65 verl-rollout -m nobos -i e.dp -o g.dp rollout.response_length=2 2>log
    grep -q 'row 0.*empty prompt' log"

ok "outside generations become the same batch" "
    rollout -i p.dp -o gen.dp rollout.n=2 --compute fp32
    verl-dump gen.dp -f '{uid, sample, finish_reason,
        response_ids: .responses[:(.response_mask | add)], log_probs: .rollout_log_probs[:(.response_mask | add)]}' >gen.jsonl
    rollout -i p.dp -o out.dp --from-json gen.jsonl
    verl-dump gen.dp >a
    verl-dump out.dp | cmp a -
    sort -r gen.jsonl >shuffled.jsonl
    rollout -i p.dp -o out.dp --from-json shuffled.jsonl
    verl-dump out.dp | cmp a -"
ok "outside generations name no weights, so no stage takes their log-probs for its own" "
    verl-dump --meta out.dp | jq -e 'has(\"rollout_log_probs_weights\") | not'
    verl-logprob -m model -i out.dp -o h.dp --compute fp32 2>log
    grep -q 'to the bit' log"
ok "outside generations: a missing sample is 65 and named" "
    head -n 11 gen.jsonl >short.jsonl
    exits 65 rollout -i p.dp -o out2.dp --from-json short.jsonl 2>log
    grep -q 'uid 0-5 has no sample 1' log
    [ ! -e out2.dp ]"

for point in stage-read stage-write before-fsync before-rename; do
    ok "killed at $point: nothing under the final name" "
        for c in 'verl-rollout -i p.dp rollout.response_length=8' 'verl-logprob -i gen.dp' 'verl-value -i gen.dp'; do
            kill_at $point \$c -q -m model -o killed.dp
            [ ! -e killed.dp ]
        done"
done

ok "TERM while writing: ended by the signal, nothing left beside the output" "
    mkdir term
    term_at before-rename verl-rollout -q -m model rollout.response_length=8 -i p.dp -o term/g.dp
    term_at before-fsync verl-logprob -q -m model -i gen.dp -o term/g.dp
    [ -z \"\$(ls -A term)\" ]"
ok "a file larger than ulimit -f: 74, nothing left beside the output" "
    (
        ulimit -f 1
        exits 74 verl-logprob -q -m model -i gen.dp -o term/g.dp 2>log
    )
    grep -q 'term/g.dp: .*File too large' log
    [ -z \"\$(ls -A term)\" ]"

refused() { # STATUS WORDS ARGUMENT...
    want_status=$1 words=$2
    shift 2
    exits "$want_status" verl-rollout rollout.response_length=8 -o none.dp "$@" 2>log || { cat log; return 1; }
    grep -q -- "$words" log || { cat log; return 1; }
    [ ! -e none.dp ]
}
ok "no model: 64, naming -m and the key" "refused 64 '-m DIR or actor_rollout_ref.model.path' -i p.dp"
ok "a batch that has responses" "refused 65 'already has responses' -m model -i gen.dp"
ok "a batch without uid" "
    verl-batch drop -k uid -q -i p.dp -o q.dp
    refused 65 'uid is missing' -m model -i q.dp"
ok "a batch that names no step: 65, naming the option" "
    verl-batch set-meta --unset global_steps -q -i p.dp -o q.dp
    refused 65 'global-steps' -m model -i q.dp
    verl-rollout -q -m model rollout.response_length=8 -i q.dp -o g.dp --global-steps 3"
ok "the same uid twice" "
    verl-dump p.dp | sed 's/\"0-1\"/\"0-2\"/; s/}\$/,\"sample\":0}/' | verl-batch from-json -q -o q.dp
    refused 65 '0-2' -m model -i q.dp --global-steps 3"
ok "an id outside the vocabulary: 65 with row, uid and position" "
    verl-model init -q -o tiny --hidden 16 --layers 1 --heads 2 --ffn 16 --vocab 20 --eos-id 2
    refused 65 'row 1 (uid .0-1.), position .*vocabulary of 20' -m tiny -i p.dp"
ok "a response that passes the context: 64 with a length that fits; max_model_len ends rows there" "
    refused 64 'use 490' -m model -i p.dp rollout.response_length=491
    verl-rollout -q -m model -i p.dp -o g.dp rollout.response_length=20 rollout.max_model_len=30 --ignore-eos
    verl-dump g.dp -f '[.attention_mask, .response_mask] | map(add) | .[0] <= 30 and (.[0] == 30 or .[1] == 20)' |
        sort -u | grep -qx true"
ok "options that contradict: 64" "
    refused 64 'contradict' -m model -i p.dp --ignore-eos --stop-id 3
    refused 64 'n=2' -m model -i p.dp --delta rollout.n=2
    refused 64 'token id' -m model -i p.dp --stop-id 64
    refused 64 'temperature' -m model -i p.dp --temperature -1
    refused 64 'temperature' -m model -i p.dp --temperature nan"
ok "--stream to a file: 64" "refused 64 'stream' -m model -i p.dp --stream"
ok "logits that overflow: 65 with row and position, no output" "
    cp -r model bad
    chmod -R u+w bad
    n=\$(wc -c <bad/model.safetensors)
    awk 'BEGIN { for (i = 0; i < 32; i++) printf \"\\377\\377\\177\\177\" }' | LC_ALL=C cat >big
    [ \$(wc -c <big) = 128 ]
    dd if=big of=bad/model.safetensors bs=1 seek=\$((n - 128)) conv=notrunc 2>/dev/null
    refused 65 'row [0-9], sample 0.*response position [0-9] is not finite' -m bad -i p.dp --compute fp32
    exits 65 verl-logprob -q -m bad -i gen.dp -o none.dp --compute fp32 2>log
    grep -q 'row [0-9]* (uid .*), response position [0-9]*' log"
done_testing
