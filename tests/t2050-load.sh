#!/bin/sh
# Weights on their way in: one hash and the same log-probs from every directory that holds the same
# numbers, by any number of threads; what is not a file; and no second copy of them in memory.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/prompts.sh"

# More numbers than one thread is given, and rows that no panel divides.
verl-model init -q -o a --hidden 120 --layers 2 --heads 4 --kv-heads 1 --head-dim 40 --ffn 70 \
    --vocab 5003 --positions 64 --bos-id 1 --eos-id 2 --std 0.25
verl-model convert -q a -o bf16 --dtype bf16
verl-model convert -q bf16 -o fp32 --dtype f32
verl-model convert -q bf16 -o shards --dtype bf16 --shard-size 500000
prompt_batch p.dp 5 23 left
verl-rollout -q -m fp32 -i p.dp -o gen.dp rollout.n=1 rollout.response_length=3 --threads 1
verl-dump gen.dp | jq -c '. + {advantages: [0, 0, 0], old_log_probs: .rollout_log_probs}' |
    verl-batch from-json -q --like gen.dp -o adv.dp

logprob() { verl-logprob -q -m "$1" -i gen.dp --threads "$2" --compute "$3"; }
hash_of() { verl-dump --schema "$1" | grep -o '"hash":"[0-9a-f]*"' | sort -u; }

ok 'a train state and published versions of it hold the same numbers' '
    verl-sync -q -m bf16 -s state -o rollout >/dev/null
    verl-sync -q -s state -o half --dtype bf16 >/dev/null
    [ -f state/current/params.safetensors ]'
for compute in fp32 bf16 amx; do
    ok "$compute: the same log-probs from every form, by 1 to 4 threads" "
        logprob fp32 1 $compute | verl-dump -k old_log_probs,entropys >want
        grep -q old_log_probs want
        for m in bf16 shards state rollout half; do
            for t in 1 2 4; do
                logprob \$m \$t $compute | verl-dump -k old_log_probs,entropys | cmp want -
            done
        done"
done
ok 'and one hash, which the batch carries' '
    verl-model hash fp32 | cut -d" " -f1 >want
    for m in bf16 shards state/current rollout/current half/current; do
        verl-model hash $m | cut -d" " -f1 | cmp want -
    done
    logprob shards 2 fp32 | verl-dump --schema >schema
    grep -q "$(cat want)" schema'
ok 'a half precision file is read as it stands' '
    verl-model convert -q a -o half16 --dtype f16
    verl-model convert -q half16 -o full --dtype f32
    logprob half16 2 fp32 | verl-dump -k old_log_probs >got
    logprob full 1 fp32 | verl-dump -k old_log_probs | cmp got -'
ok 'a flipped bit in a published version is noticed while it is packed' '
    cp -rL half/current damaged
    chmod -R u+w damaged
    printf "\\001" | dd of=damaged/model.safetensors bs=1 seek=700001 conv=notrunc status=none
    exits 65 logprob damaged 2 fp32 2>err
    cat err
    tail -n 1 err | grep -q "damaged: weights have hash .* but the version.s record says .*: damaged"
    not grep -v -e "weights have hash" -e "warning: --compute fp32" err'
ok 'cut short, a pipe, a directory: one line' '
    cp -r fp32 cut
    truncate -s 2000000 cut/model.safetensors
    exits 65 logprob cut 2 fp32 2>err
    grep -q "cut/model.safetensors: 2000000 bytes long, but the header promises .* (the file was cut short)" err
    [ $(wc -l <err) = 1 ]
    rm cut/model.safetensors
    mkfifo cut/model.safetensors
    exits 66 timeout 20 verl-logprob -q -m cut -i gen.dp -o o.dp 2>err
    grep -q "cut/model.safetensors: not a regular file" err
    rm cut/model.safetensors
    mkdir cut/model.safetensors
    exits 66 logprob cut 1 fp32 2>err
    grep -q "cut/model.safetensors: not a regular file" err'
ok '-v says how long it took' '
    verl-logprob -v -m bf16 -i gen.dp -o o.dp --threads 2 2>err
    grep -q "bf16: weights read and packed in [0-9.]* s by 2 threads" err'
ok 'memory: what is said to be needed, and no second copy of the weights' '
    verl-model init -q -o large --hidden 256 --layers 1 --heads 4 --ffn 128 --vocab 65536 --eos-id 2
    verl-logprob -m large -i gen.dp -o o.dp --threads 1 --compute fp32 2>err
    cat err
    need=$(sed -n "s/.*; \([0-9]*\)[.0-9]* MB needed.*/\1/p" err)
    peak=$(sed -n "s/.*, peak \([0-9]*\) MB/\1/p" err)
    [ "$need" -gt 134 ] # two tables of 67 MB; a third would not fit below
    [ "$peak" -lt $((need + 50)) ]'
done_testing
