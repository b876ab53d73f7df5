#!/bin/sh
# Every statement of exactness for each compute type, on a small model whose widths are no multiples of
# a tile. `make check-exact` makes the same statements of a model in the shape of Qwen2.5-0.5B.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/exact.sh"

LM=model CRITIC=worth V=331 PROMPTS=22 N=3 R=20 CONFIG= THREADS='1 2 3 8' mpi=
have_mpi && mpi=1
shape='--arch qwen2 --hidden 112 --layers 2 --heads 7 --kv-heads 1 --ffn 200 --positions 512 --bos-id 1 --eos-id 2'
verl-model init -q -o $LM $shape --vocab $V --tied --std 0.2 --seed 3
verl-model init -q -o $CRITIC $shape --vocab $V --std 0.2 --seed 5 --value-head
exact_batch p.dp $PROMPTS 64 left $V

for C in fp32 bf16 amx; do
    COUNTS='1 2 15 16 17 31 32 33 48 63 64' some=3
    [ $C != amx ] || COUNTS=$(seq 64) some='1 2 3 4'
    exact_start
    RANKS=${mpi:+$some}
    exact_forward
    exact_update actor critic
    RANKS=${mpi:+${some#1 }} # one is what the others are compared with
    exact_update_ranks actor
    RANKS=${mpi:+3}
    exact_update_ranks critic
    [ $C != fp32 ] || exact_shared
    exact_isa scalar avx2 avx512 avx512bf16
    cp old.dp $C.dp
    COUNTS='1 2 15 16 17 31 32 33 48 63 64'
    RANKS=${mpi:+3} weights=int8
    exact_start
    exact_forward
    weights=
done
ok "the types differ, each from the others" '
    for pair in fp32.dp:bf16.dp fp32.dp:amx.dp bf16.dp:amx.dp; do
        not same_column ${pair%:*} rollout_log_probs ${pair#*:} rollout_log_probs >/dev/null
    done'
done_testing
