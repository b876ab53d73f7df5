#!/bin/sh
# What does not fit in memory is refused before it is read or allocated, and the options that the
# message names are enough.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/toy.sh"
(ulimit -v 4000000 && verl-dump --version >/dev/null 2>&1) || skip_all "no ulimit -v that programs run under"

toy_model model
toy_batch b.dp 12 3
verl-dump b.dp | jq -c '{uid, prompts, attention_mask: .attention_mask[:4]}' |
    verl-batch from-json -q -i - | verl-batch set-meta -q global_steps 1 -o p.dp
# A model of another size on paper: its weights are never read here.
paper() { # DIR JQ-CHANGE
    mkdir "$1"
    cp model/* "$1"
    chmod -R u+w "$1"
    jq "$2" model/config.json >"$1/config.json"
}
paper big '.hidden_size = 1024 | .num_hidden_layers = 16 | .intermediate_size = 4096 | .head_dim = 64 |
    .num_attention_heads = 16 | .num_key_value_heads = 16'
paper wide '.hidden_size = 512 | .num_hidden_layers = 1 | .intermediate_size = 16384 | .head_dim = 64 |
    .num_attention_heads = 8 | .num_key_value_heads = 8'
toy_batch many.dp 400 4
# Programs say what address space they had left (MB): $limit - left is their own.
number() { # OF: MB before or after it in the log
    sed -n "s/.*$1.*/\\1/p" log
}
limited() { # KB COMMAND...
    (
        ulimit -v "$1"
        shift
        "$@"
    )
}
between() { # COMMAND...: sets $limit so that half a pass fits beside the weights
    limit=200000
    exits 71 limited $limit "$@" 2>log || return 1
    limit=$(awk -v l=$limit -v have="$(number 'where \([0-9.]*\) MB')" -v w="$(number '(weights[^0-9]* \([0-9.]*\) MB')" \
        -v p="$(number 'tokens \([0-9.]*\) MB)')" 'BEGIN { printf "%d", l + (w + p / 2 - have) * 1e6 / 1024 }')
}
# The first option of the advice in the log.
advice() {
    sed -n 's/.*: give \(.*\) ([0-9.]* MB).*/\1/p' log | sed 's/ ([0-9.]* MB).*//; s/ and / /g'
}

ok "weights that do not fit: 71, what they take, and types and bits that do" '
    exits 71 limited 600000 verl-rollout -q -m big -i p.dp -o none.dp --compute fp32 rollout.response_length=4 2>log
    grep -q "big needs [0-9.]* MB (weights [0-9.]* MB, KV cache [0-9.]* MB, a pass of [0-9]* tokens [0-9.]* MB) on this host, where [0-9.]* MB are available: give --" log
    grep -q "or --quantization int8 ([0-9.]* MB)$" log
    not grep -q "token budget" log
    [ "$(grep -c needs log)" = 1 ]
    exits 65 limited 600000 verl-rollout -q -m big -i p.dp -o none.dp --compute fp32 --quantization int8 rollout.response_length=4 2>log
    exits 71 limited 600000 verl-logprob -q -m big -i b.dp -o none.dp --compute fp32 2>log
    grep -q "or --quantization int8 ([0-9.]* MB)$" log
    exits 71 limited 600000 verl-value -q -m big -i b.dp -o none.dp --compute fp32 2>log
    grep -q "give --compute" log
    not grep -q int8 log
    [ ! -e none.dp ]'
ok "nothing helps: 71 says so" '
    exits 71 limited 100000 verl-rollout -q -m big -i p.dp -o none.dp --compute fp32 rollout.response_length=4 2>log
    grep -q ": --compute [a-z0-9]* and --quantization int8 .*would still need [0-9.]* MB$" log'
ok "a pass that does not fit beside its weights: the key and a value that works" '
    between verl-logprob -q -m wide -i many.dp -o none.dp --compute fp32
    exits 71 limited $limit verl-logprob -q -m wide -i many.dp -o none.dp --compute fp32 2>log
    advice | grep -q "^actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=[0-9]*$"
    exits 65 limited $limit verl-logprob -q -m wide -i many.dp -o none.dp --compute fp32 "$(advice)" 2>log
    exits 71 limited $limit verl-logprob -q -m wide -i many.dp -o none.dp --compute fp32 --micro-batch 300 2>log
    advice | grep -q "^--micro-batch [0-9]*$"
    exits 65 limited $limit verl-logprob -q -m wide -i many.dp -o none.dp --compute fp32 $(advice) 2>log'
ok "a pass of a rollout has a token of each row at once, or all prompts" '
    set -- -q -m big -i p.dp -o none.dp --compute fp32 rollout.response_length=4
    exits 71 limited 600000 verl-rollout "$@" rollout.n=1000 rollout.max_num_seqs=3000 2>log
    grep -q "a pass of 3000 tokens" log
    exits 71 limited 600000 verl-rollout "$@" 2>log
    grep -q "a pass of $(verl-dump p.dp | jq -s "map(.attention_mask | add) | add") tokens" log'
ok "verl-update asks before it fills a state: 71 in a moment, and no state" '
    exits 71 limited 1000000 verl-update -q -m big -s st -i b.dp -o none.dp 2>log
    grep -q "^verl-update: [^ ]*/big needs [0-9.]* MB (weights, gradients and moments [0-9.]* MB) on this host" log
    not grep -q recompute log
    [ ! -e st ]'
ok "what is taken is what was announced and the program itself, for many threads, too" '
    verl-model init -q -o broad --hidden 256 --layers 1 --heads 4 --ffn 16000 --vocab 128 --eos-id 1
    for offload in "" --optimizer-offload; do
        verl-update --role sft -s st$offload -m broad -i b.dp -o none.dp --threads 8 $offload --compute fp32 \
            data.train_batch_size=12 trainer.total_training_steps=1 2>log
        needed=$(number "; \([0-9]*\)[.0-9]* MB needed") peak=$(number "peak \([0-9]*\)[.0-9]* MB")
        echo "needed $needed MB, taken $peak MB"
        [ $((peak - needed)) -le 30 ]
    done'
done_testing
