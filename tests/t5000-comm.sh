#!/bin/sh
# Collectives under mpiexec at 1 to 4 ranks: bits of sums in rank order, agreement, refusals.
. "$(dirname "$0")/lib.sh"
comm=$BUILD/tests/mpi/comm
[ -x "$comm" ] || skip_all "tests/mpi not built"
need_mpi

for n in 1 2 3 4; do
    ok "every collective, $n ranks, shared window" \
        "[ \"\$(mpiexec -n $n $comm check </dev/null)\" = 'ok $n' ]"
done
for n in 2 3; do
    ok "every collective, $n ranks, messages as between hosts" \
        "[ \"\$(VL_NODE_WINDOW=0 mpiexec -n $n $comm check </dev/null)\" = 'ok $n' ]"
done

for w in 1 0; do
    ok "agreement: all leave with the lowest failing rank's error (window $w)" "
        exits 65 env VL_NODE_WINDOW=$w mpiexec -n 3 $comm agree </dev/null 2>err >out
        [ ! -s out ]
        [ \"\$(cat err)\" = 'comm: x.dp: row 1 is bad (rank 1)' ]"
done
ok 'abort inside a collective: its code, rank and host' '
    exits 74 mpiexec -n 3 '"$comm"' abort </dev/null 2>err >out
    grep -q "^comm\[rank 1 host .*\]: x.dp: read failed$" err'
ok 'a launcher whose number of ranks MPI does not confirm is refused' '
    exits 69 env VL_RANKS=3 '"$comm"' check </dev/null 2>err >out
    grep -q "the launcher started 3 ranks but MPI sees 1" err
    exits 69 env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 '"$comm"' check 2>err >out'
ok 'start-up steps are told on request' '
    VL_COMM_TRACE=1 mpiexec -n 2 '"$comm"' check </dev/null 2>err >out
    [ "$(grep -c "MPI started" err)" = 2 ]
    [ "$(grep -c "ready, shared window" err)" = 2 ]'
done_testing
