#!/bin/sh
# verl-batch map --command under verl-mpi: each rank's rows through a program, joined in row order.
. "$(dirname "$0")/lib.sh"
need_mpi

for i in 0 1 2 3 4; do echo "{\"uid\":\"p$i\",\"sample\":0,\"a\":$i.5}"; done | verl-batch from-json -o x.dp
verl-batch map --command 'verl-batch map -f .a+=1' -i x.dp -o one.dp
for n in 2 3; do
    ok "$n ranks: the rows of one, each range given to the command once" "
        rm -f ran.*
        verl-mpi $n verl-batch map --command 'echo >ran.\$\$; verl-batch map -f .a+=1' -i x.dp -o o.dp
        verl-dump -k a one.dp >a; verl-dump -k a o.dp >b; cmp a b
        [ \$(ls ran.* | wc -l) = $n ]"
    ok "$n ranks: a command that fails on one is 65, and nothing is written" "
        exits 65 verl-mpi $n verl-batch map --command 'verl-batch map -f \"if .uid == \\\"p4\\\" then error else . end\"' -i x.dp -o never.dp 2>err
        [ ! -e never.dp ]"
done
ok "other commands under ranks work once" "
    verl-mpi 2 verl-batch slice :2 -i x.dp -o s.dp
    [ \$(verl-dump s.dp | wc -l) = 2 ]"
done_testing
