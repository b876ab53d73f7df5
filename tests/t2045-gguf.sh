#!/bin/sh
# verl-model convert of GGUF files: the model that went into one comes out again, bit for bit; its
# tokenizer, its config; what is refused and how it is named.
. "$(dirname "$0")/lib.sh"
mk=$BUILD/tests/mkgguf
[ -x "$mk" ] || skip_all "mkgguf is not built (make unit-binaries)"
export mk

S='--hidden 32 --layers 2 --heads 4 --kv-heads 2 --ffn 64 --vocab 20 --positions 64'
for arch in llama qwen2 qwen3 mistral; do
    for type in f32 bf16 f16; do
        ok "$arch $type: weights come back bit for bit, in the dtype of the file" "
            verl-model init -q -o $arch$type $S --arch $arch --dtype $type --rope-theta 500000 --rms-eps 1e-5
            \$mk $arch$type $type x.gguf
            verl-model convert -q x.gguf -o $arch$type.2
            exits 0 verl-model diff $arch$type $arch$type.2
            cmp $arch$type/model.safetensors $arch$type.2/model.safetensors
            jq -e '.rms_norm_eps == 1e-5 and .rope_theta == 500000' $arch$type.2/config.json
            grep -q '1e-05' $arch$type.2/config.json"
    done
done
ok 'tied and untied, biases, a window, q and k norms: the config says what the tensors do' "
    verl-model init -q -o tied $S --tied
    \$mk tied f32 x.gguf
    verl-model convert -q x.gguf -o tied.2
    cmp tied/model.safetensors tied.2/model.safetensors
    jq -e '.tie_word_embeddings' tied.2/config.json
    jq -e '.tie_word_embeddings | not' llamaf32.2/config.json
    jq -e '.attention_bias == false and .mlp_bias == false' llamaf32.2/config.json
    verl-model init -q -o b0 $S
    jq '.attention_bias = true | .mlp_bias = true' b0/config.json >bias.json
    verl-model init -q bias.json -o bias --seed 5
    \$mk bias f32 x.gguf
    verl-model convert -q x.gguf -o bias.2
    cmp bias/model.safetensors bias.2/model.safetensors
    jq -e '.attention_bias and .mlp_bias' bias.2/config.json
    jq '.model_type = \"mistral\" | .architectures = [\"MistralForCausalLM\"] | .sliding_window = 8' b0/config.json >window.json
    verl-model init -q window.json -o window --seed 6
    \$mk window f32 x.gguf
    verl-model convert -q x.gguf -o window.2
    cmp window/model.safetensors window.2/model.safetensors
    jq -e '.model_type == \"mistral\" and .sliding_window == 8' window.2/config.json"
for scaling in '{rope_type: "llama3", factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position_embeddings: 8192}' \
    '{rope_type: "llama3", factor: 32.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position_embeddings: 8192}' \
    '{rope_type: "llama3", factor: 4.0, low_freq_factor: 1.0, high_freq_factor: 16.0, original_max_position_embeddings: 2048}' \
    '{rope_type: "linear", factor: 4.0}' \
    '{rope_type: "yarn", factor: 4.0, original_max_position_embeddings: 16}'; do
    name=$(echo "$scaling" | sed 's/.*rope_type: "\([a-z0-9]*\)", factor: \([0-9]*\).*/\1 by \2/')
    ok "rope scaling $name comes back" "
        rm -rf r r.2 r0
        verl-model init -q -o r0 --hidden 128 --layers 1 --heads 2 --ffn 32 --vocab 20 --rope-theta 500000
        jq '.rope_scaling = $scaling' r0/config.json >r.json
        verl-model init -q r.json -o r
        \$mk r f32 x.gguf
        verl-model convert -q x.gguf -o r.2
        cmp r/model.safetensors r.2/model.safetensors
        jq -e '.rope_scaling | del(.type, .beta_fast, .beta_slow) == $scaling' r.2/config.json"
done
ok 'quantized blocks: what q8_0 means, as F32 unless a dtype is asked for; shards; heads' "
    \$mk llamaf32 q8_0 x.gguf
    verl-model convert -q x.gguf -o q8
    verl-model info --json q8 | jq -e '.dtype == \"F32\"'
    exits 1 verl-model diff --json llamaf32 q8 >d
    jq -se 'length >= 15 and all(.max_abs_diff > 0 and .max_abs_diff < 0.001)' d
    verl-model convert -q q8 -o q8b --dtype bf16
    verl-model convert -q x.gguf -o q8c --dtype bf16 --shard-size 9000
    exits 0 verl-model diff q8b q8c
    [ -f q8c/model.safetensors.index.json ]
    verl-model convert -q x.gguf -o q8v --head value
    verl-model info --json q8v | jq -e '.head == \"value\"'
    verl-model convert -q q8 -o q8w --head value
    exits 0 verl-model diff q8v q8w"
ok 'a file without a vocabulary gives a directory without tokenizer, said once; --tokenizer gives one' "
    verl-model convert x.gguf -o n1 2>err
    grep -q 'x.gguf has no tokenizer; --tokenizer DIR' err
    [ ! -e n1/tokenizer.json ]
    verl-model convert -q x.gguf -o n2 --tokenizer $REPO/tests/golden/text/bytes 2>err || cat err
    [ -e n2/tokenizer.json ] || grep -q 'a tokenizer of [0-9]* ids for a model of 20' err"

# ---- tokenizers: the small ones of the tree ----
for kind in bytes:gpt-2 fallback:llama; do
    dir=$REPO/tests/golden/text/${kind%:*} pre=${kind#*:}
    ok "tokenizer ${kind%:*} as $pre: the same ids and text for plain and special text" "
        rm -rf t t.2
        verl-model init -q -o t --hidden 32 --layers 1 --heads 2 --ffn 32 --tied --tokenizer '$dir'
        \$mk t f32 x.gguf $pre
        verl-model convert -q x.gguf -o t.2
        jq -n --arg a \"\$(printf 'Hello  wörld 123\n\n<s></s> x')\" '{prompt: \$a}, {prompt: \"\"}, {prompt: \"the  end\"}' -c >p.jsonl
        verl-data -q --all -m t p.jsonl -o a.dp
        verl-data -q --all -m t.2 p.jsonl -o b.dp
        verl-dump a.dp | jq -c '{prompts, attention_mask}' >a
        verl-dump b.dp | jq -c '{prompts, attention_mask}' >b
        [ \"\$(wc -l <a)\" = 3 ]
        cmp a b"
done

ok 'end ids, a template for tools, unused ids: each where transformers looks for it' "
    verl-model convert -q $REPO/tests/bad/gguf/good_more -o more
    jq -e '.eos_token_id == [6, 5] and .bos_token_id == 4 and .pad_token_id == null' more/generation_config.json
    jq -e '.eos_token_id == 6 and .bos_token_id == 4' more/config.json
    verl-model info --json more | jq -e '.stop_ids == [6, 5]'
    jq -e '.chat_template == [{name: \"default\", template: \"one {{ messages }}\"}, {name: \"tool_use\", template: \"two {{ messages }}\"}]' more/tokenizer_config.json
    jq -e '.model.vocab == {a: 0, b: 1, ab: 2, pad: 3}' more/tokenizer.json
    jq -e '[.added_tokens[] | [.id, .content, .special]] == [[4, \"<s>\", true], [5, \"<t>\", false], [6, \"</s>\", true]]' more/tokenizer.json
    echo '{\"prompt\": \"ab<t>\"}' | verl-data -q --all -m more -o more.dp -
    verl-dump more.dp | jq -c .prompts | grep -qx '\[4,2,5\]'"
ok 'SentencePiece: with and without a space in front, tokens around a text as the file asks' "
    verl-model convert -q $REPO/tests/bad/gguf/good_spm -o pre
    verl-model convert -q $REPO/tests/bad/gguf/good_no_prefix -o nopre
    printf '{\"prompt\": \"aa\"}\n{\"prompt\": \"a aa\"}\n' >p.jsonl
    verl-data -q --all -m pre p.jsonl -o pre.dp
    verl-data -q --all -m nopre p.jsonl -o nopre.dp
    verl-dump pre.dp | jq -c .prompts >a
    verl-dump nopre.dp | jq -c .prompts >b
    printf '[2,1,7]\n[1,5,7]\n' | diff - a
    printf '[2,6,2]\n[4,7,2]\n' | diff - b"

# ---- what is refused ----
ok 'every file of tests/bad/gguf is refused with one line that names it, or is a model' "
    for f in $REPO/tests/bad/gguf/*; do
        rm -rf o
        rc=0
        verl-model convert -q \$f -o o 2>err || rc=\$?
        echo \"\$f: \$rc\"
        cat err
        case \${f##*/} in
        good_* | q8)
            [ \$rc = 0 ]
            ;;
        *)
            [ \$rc = 65 ]
            [ ! -e o ]
            [ \"\$(wc -l <err)\" = 1 ]
            grep -q \"^verl-model: \$f: \" err
            ;;
        esac
    done
    [ -z \"\$(ls -d *.aside* 2>/dev/null)\" ]"
ok 'by name: architecture, big-endian file, pre-tokenizer with what to give instead' "
    exits 65 verl-model convert $REPO/tests/bad/gguf/architecture -o o 2>err
    grep -q 'architecture gemma2 is not supported; supported are llama' err
    exits 65 verl-model convert $REPO/tests/bad/gguf/big_endian -o o 2>err
    grep -q 'byte 4: version 0x03000000: a big-endian file' err
    exits 65 verl-model convert $REPO/tests/bad/gguf/pre -o o 2>err
    grep -q 'tokenizer.ggml.pre is nobody; known are smollm, .*with --tokenizer DIR' err
    exits 66 verl-model convert none.gguf -o o 2>err
    exits 66 verl-model info $REPO/tests/bad/gguf/good_gpt2 2>err
    grep -q 'a file, where a model directory is expected (verl-model convert makes one' err
    exits 65 verl-model convert $REPO/VERSION -o o 2>err
    grep -q 'byte 0: not a GGUF file' err"

# ---- tokenizers in use, against the reference's answers ----
gold=$BUILD/tests/test_tokgold
if [ -n "$SHARED" ] && [ -x "$gold" ] && command -v xz >/dev/null; then
    for kind in gpt2:gpt-2 qwen2_5:qwen2 qwen3:qwen2 llama3_1:llama-bpe deepseek_v3:deepseek-v3 \
        llama2:llama mistral_v0_1:llama; do
        name=${kind%:*} pre=${kind#*:}
        ok "$name through a GGUF file: ids, text and pre-tokens are the reference's" "
            rm -rf tok big out
            mkdir tok
            xz -dc $SHARED/data/tokenizers/$name/tokenizer.json.xz >tok/tokenizer.json
            cp $SHARED/data/tokenizers/$name/tokenizer_config.json tok
            verl-model init -q -o big --hidden 32 --layers 1 --heads 1 --ffn 32 --tied --tokenizer tok
            \$mk big q8_0 x.gguf $pre
            verl-model convert -q x.gguf -o out
            for f in $SHARED/golden/tokenizers/$name.json $SHARED/golden/tokenizers/$name.decode.json \
                $SHARED/golden/tokenizers/$name.pretok.json; do
                [ ! -f \$f ] || '$gold' out \$f
            done
            jq -e '.chat_template == (input.chat_template)' out/tokenizer_config.json tok/tokenizer_config.json
            rm -rf '$VERL_CACHE'"
    done
    for m in stories260k tiny_llama3 tiny_mistral tiny_qwen3; do
        ok "$m through a GGUF file" "
            \$mk $SHARED/data/models/$m f32 x.gguf
            verl-model convert -q x.gguf -o $m
            exits 0 verl-model diff $SHARED/data/models/$m $m"
    done
else
    skip 'no shared data (set VERL_SHARED to its folder), no unit binaries or no xz'
fi
done_testing
