#!/bin/sh
# A real GGUF file: SmolLM2-135M-Instruct converted by verl-model gives llama.cpp's ids for texts and
# transformers' greedy answers, token by token. tests/golden/gguf/README.md says where all this is from.
. "$(dirname "$0")/lib.sh"
gguf=${VERL_SMOLLM2_GGUF:-}
[ -f "$gguf" ] || skip_all "no real GGUF file (set VERL_SMOLLM2_GGUF to SmolLM2-135M-Instruct.Q4_1.gguf)"
[ "$(wc -c <"$gguf")" = 98362432 ] || skip_all "$gguf is not the SmolLM2-135M-Instruct.Q4_1.gguf of the goldens"
want=$REPO/tests/golden/gguf/smollm2.json
export gguf want

ok 'the weights are those of the reference, the same with any number of threads' '
    verl-model convert -q "$gguf" -o smol
    equal "$(verl-model hash smol | cut -c-32)" "$(jq -r .weights "$want")"
    verl-model convert -q "$gguf" -o smol2 --threads 2
    cmp smol/model.safetensors smol2/model.safetensors
    rm -r smol2'
ok 'ids of texts are those of llama.cpp' '
    jq -c ".texts[] | {prompt: .text}" "$want" >texts.jsonl
    jq -c ".texts[].ids" "$want" >a
    [ "$(wc -l <a)" -ge 20 ]
    verl-data -q --all -m smol texts.jsonl -o texts.dp
    verl-dump texts.dp >rows
    jq -c "[.prompts, .attention_mask] | transpose | map(select(.[1] == 1) | .[0])" rows >b
    cmp a b'
ok 'greedy answers through the chat template are those of transformers in fp32' '
    jq -c ".answers[] | {prompt}" "$want" >prompts.jsonl
    jq -c ".answers[] | [.prompt_ids, .response_ids]" "$want" >a
    [ "$(wc -l <a)" = 10 ]
    verl-data -q --all -m smol prompts.jsonl -o prompts.dp
    verl-rollout -q -m smol -i prompts.dp --temperature 0 --compute fp32 rollout.response_length=64 -o gen.dp
    verl-dump gen.dp >rows
    jq -c "def valid(\$m): [., \$m] | transpose | map(select(.[1] == 1) | .[0]);
        [(.attention_mask[:(.prompts | length)] as \$m | .prompts | valid(\$m)),
         (.response_mask as \$m | .responses | valid(\$m))]" rows >b
    cmp a b'
done_testing
