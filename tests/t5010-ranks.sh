#!/bin/sh
# Rollout, log-probs and values at 1 to 4 ranks: the same bytes, and one failure told once.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/prompts.sh"
need_mpi

make_model model
make_model critic --value-head --seed 5
prompt_batch p.dp 10 25 left
verl-rollout -q -m model -i p.dp -o gen.dp rollout.n=2 rollout.response_length=12
verl-logprob -q -m model -i gen.dp -o old.dp
verl-value -q -m critic -i old.dp -o values.dp
verl-rollout -q -m model -i p.dp -o gen8.dp rollout.n=2 rollout.response_length=12 --quantization int8
verl-logprob -q -m model -i gen8.dp -o old8.dp --quantization int8

for n in 1 2 3 4; do
    ok "$n ranks: the bytes of one process" "
        verl-mpi $n verl-rollout -q -m model -i p.dp -o g.dp rollout.n=2 rollout.response_length=12
        cmp gen.dp g.dp
        verl-mpi $n verl-logprob -q -m model -i gen.dp -o o.dp rollout.log_prob_micro_batch_size_per_gpu=1
        cmp old.dp o.dp
        verl-mpi $n verl-value -q -m critic -i old.dp -o v.dp
        cmp values.dp v.dp
        verl-mpi $n verl-rollout -q -m model -i p.dp -o g.dp rollout.n=2 rollout.response_length=12 \
            --quantization int8
        cmp gen8.dp g.dp
        verl-mpi $n verl-logprob -q -m model -i gen8.dp -o o.dp --quantization int8
        cmp old8.dp o.dp"
done
ok "more ranks than rows" "
    verl-batch index 3,4 -q -i p.dp -o two.dp
    verl-rollout -q -m model -i two.dp -o g1.dp rollout.response_length=6
    verl-mpi 4 verl-rollout -q -m model -i two.dp -o g4.dp rollout.response_length=6
    cmp g1.dp g4.dp
    verl-mpi 4 verl-logprob -q -m model -i g4.dp -o o4.dp
    verl-logprob -q -m model -i g4.dp -o o1.dp
    cmp o1.dp o4.dp"
ok "in a pipeline" "
    verl-mpi 2 verl-rollout -q -m model rollout.n=2 rollout.response_length=12 <p.dp |
        verl-mpi 3 verl-logprob -q -m model >o.dp
    cmp old.dp o.dp"
ok "a model that is not there: 66 once, and no output" "
    exits 66 verl-mpi 3 verl-rollout -m none -i p.dp -o none.dp 2>log
    [ \$(grep -c 'verl-rollout: .*none' log) = 1 ]
    [ ! -e none.dp ]"
ok "--stream on two ranks is refused" "
    exits 64 verl-mpi 2 verl-rollout -q -m model --stream <p.dp >s.dp 2>log
    grep -q 'one rank' log"
done_testing
