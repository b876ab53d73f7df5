#!/bin/sh
# Every shared tokenizer against the reference's answers: ids, text, pre-tokens, hashes of two data
# sets; the large ones once more from the cache that this made. Tokenizers are unpacked one at a time.
. "$(dirname "$0")/lib.sh"
need_shared
command -v xz >/dev/null || skip_all "no xz to unpack the tokenizers"
gold=$BUILD/tests/test_tokgold
[ -x "$gold" ] || skip_all "unit binaries are not built"
export VERL_DATASETS="$SHARED/data/datasets"

for name in stories260k aidreams260k gpt2 llama2 mistral_v0_1 qwen2_5 qwen3 deepseek_v3 llama3 \
    llama3_1 gptoss gemma3; do
    g=$SHARED/golden/tokenizers/$name
    src=$SHARED/data/tokenizers/$name
    rm -rf "$T/tok"
    mkdir "$T/tok"
    if [ -d "$src" ]; then
        xz -dc "$src/tokenizer.json.xz" >"$T/tok/tokenizer.json"
    else
        cp "$SHARED/data/models/$name/tokenizer.json" "$T/tok/"
    fi
    files=
    for f in "$g.json" "$g.decode.json" "$g.pretok.json" "$g.bulk.json"; do
        [ -f "$f" ] && files="$files $f"
    done
    ok "$name: ids, text, pre-tokens and data-set hashes are the reference's" "[ -n '$files' ]
        '$gold' '$T/tok' $files"
    [ "$(wc -c <"$T/tok/tokenizer.json")" -ge 1048576 ] || continue
    ok "$name: the same from the cache" "
        before=\$(ls -li '$VERL_CACHE')
        [ -n \"\$before\" ]
        '$gold' '$T/tok' $files
        [ \"\$before\" = \"\$(ls -li '$VERL_CACHE')\" ]"
    rm -rf "$VERL_CACHE"
done
done_testing
