# prompts.sh - sourced by tests of the model stages: a small random model and prompt batches.
#
#   make_model DIR [OPTION...]      64 ids, begin 1, end 2; options go to verl-model init
#   prompts ROWS WIDTH SIDE         JSON lines: row i has 1 + i*7 % 23 prompt tokens, padded to WIDTH
#                                   on SIDE (left or right)
#   prompt_batch FILE ROWS WIDTH SIDE   the same as a batch at global step 3
make_model() {
    dir=$1
    shift
    verl-model init -q -o "$dir" --hidden 32 --layers 2 --heads 4 --kv-heads 2 --ffn 48 --vocab 64 \
        --positions 512 --bos-id 1 --eos-id 2 --std 0.25 "$@"
}
prompts() {
    awk -v rows="$1" -v width="$2" -v side="$3" 'BEGIN {
        for (i = 0; i < rows; i++) {
            n = 1 + i * 7 % 23
            ids = mask = ""
            for (k = 0; k < width; k++) {
                t = side == "left" ? k - (width - n) : k
                real = t >= 0 && t < n
                ids = ids (k ? "," : "") (real ? (t ? 3 + (i * 31 + t * t * 17 + t) % 61 : 1) : 0)
                mask = mask (k ? "," : "") real
            }
            printf "{\"uid\":\"0-%d\",\"prompts\":[%s],\"attention_mask\":[%s]}\n", i, ids, mask
        }
    }'
}
prompt_batch() {
    prompts "$2" "$3" "$4" | verl-batch from-json -q | verl-batch set-meta global_steps 3 -q -o "$1"
}
