#!/bin/sh
# verl-mpi: standard input and output of any size, statuses, lost ranks, first cause last.
. "$(dirname "$0")/lib.sh"
comm=$BUILD/tests/mpi/comm
[ -x "$comm" ] || skip_all "tests/mpi not built"
need_mpi
export comm

hang() { # 3 ranks that wait for ever, in the background; returns when all are there
    rm -f pid.*
    verl-mpi "$@" 3 "$comm" hang </dev/null >out 2>err &
    job=$!
    for i in $(seq 100); do
        [ -s pid.0 ] && [ -s pid.1 ] && [ -s pid.2 ] && return 0
        sleep 0.1
    done
    echo "the ranks did not start ($job, $i)"
    return 1
}
gone() { # none of the ranks is left within 5 s
    for i in $(seq 50); do
        left=
        for f in pid.*; do if kill -0 "$(cat "$f")" 2>/dev/null; then left="$left $f"; fi; done
        [ -z "$left" ] && return 0
        sleep 0.1
    done
    echo "after 5 s ($i) there is$left"
    return 1
}

head -c 5000000 /dev/urandom >big
ok '5 MB of standard input and output, pipe and file' '
    cat big | verl-mpi 3 "$comm" copy >o1 2>err
    cmp o1 big
    verl-mpi 1 "$comm" copy <big | cmp - big
    [ ! -s err ]'
ok 'only rank 0 writes to standard output' '
    verl-mpi 3 "$comm" noise </dev/null >out 2>err
    [ "$(cat out)" = "data of rank 0" ]
    [ "$(sort err | tr "\n" " ")" = "data of rank 1 data of rank 2 " ]'
ok 'closed standard input is empty' '
    verl-mpi 2 "$comm" copy <&- >out
    [ ! -s out ]'
ok 'an agreed error: its status, one line' '
    exits 65 verl-mpi 3 "$comm" agree </dev/null >out 2>err
    [ ! -s out ]
    [ "$(cat err)" = "comm: x.dp: row 1 is bad (rank 1)" ]'
ok 'an abort inside a collective: its status, rank and host last' '
    exits 74 verl-mpi 3 "$comm" abort </dev/null >out 2>err
    [ ! -s out ]
    tail -1 err | grep -q "^comm\[rank 1 host .*\]: x.dp: read failed$"'
ok 'a rank that leaves without a word: its status and which it was' '
    exits 71 verl-mpi 3 "$comm" exit </dev/null >out 2>err
    [ ! -s out ]
    tail -1 err | grep -q "^verl-mpi: rank 1 (host .*, pid [0-9]*) ended with status 71"'
ok 'a rank that kills itself: 75, cause last, nothing on stdout, none left' '
    exits 75 verl-mpi 3 "$comm" kill </dev/null >out 2>err
    [ ! -s out ]
    tail -1 err | grep -q "^verl-mpi: rank 1 (host .*, pid [0-9]*) was killed by signal 9 (KILL)"'
ok 'kill -9 of a rank from outside' '
    hang
    kill -9 "$(cat pid.2)"
    exits 75 wait $job
    [ ! -s out ]
    tail -1 err | grep -q "rank 2 (host .*) was killed by signal 9 (KILL)"
    gone'
ok 'kill -9 of verl-mpi itself leaves no rank' '
    hang
    kill -9 $job
    exits 137 wait $job
    gone'
ok 'TERM ends all ranks' '
    hang
    kill $job
    exits 143 wait $job
    gone'
ok 'what a killed rank had started is ended too, in a session of its own or not' '
    cat >brood.sh <<EOF
[ \$PMI_RANK = 1 ] || exec sleep 60
setsid sleep 65.$$ &
sleep 65.$$ &
sleep 0.3
kill -9 \$\$
EOF
    exits 75 verl-mpi 2 sh brood.sh </dev/null >out 2>err
    not pgrep -f "sleep 65.$$"'
ok 'a time limit' '
    exits 75 verl-mpi --timeout 1 2 "$comm" hang </dev/null >out 2>err
    tail -1 err | grep -q "not done after 1 seconds"'
ok 'a reader that goes away: 74, not a retry' '
    set +e
    (verl-mpi 2 "$comm" copy <big 2>err; echo $? >rc) | head -c 1 >/dev/null
    set -e
    [ "$(cat rc)" = 74 ]'
ok 'misuse is refused before anything starts' '
    exits 64 verl-mpi
    exits 64 verl-mpi 0 "$comm" check
    exits 64 verl-mpi x "$comm" check
    exits 64 verl-mpi --nope 2 "$comm" check
    exits 64 verl-mpi --launcher prun 2 "$comm" check
    exits 64 verl-mpi --timeout 1.5 2 "$comm" check
    exits 64 verl-mpi --hosts a --hostfile b 2 "$comm" check
    exits 66 verl-mpi --hostfile none 2 "$comm" check
    exits 66 verl-mpi 2 ./no-such-program'
ok 'rank 0 elsewhere is refused with the remedy' '
    exits 69 env VL_LAUNCH_HOST=other VL_LAUNCH_IN=3 VL_LAUNCH_OUT=4 PMI_RANK=0 \
        verl-mpi-rank "$comm" check 2>err
    grep -q "list other first in --hosts" err'
ok 'hosts by option and file' '
    [ "$(verl-mpi --hosts localhost:2 2 "$comm" check </dev/null)" = "ok 2" ]
    echo localhost:3 >hosts
    [ "$(verl-mpi --hostfile=hosts 3 "$comm" check </dev/null)" = "ok 3" ]'
# srun is played by a script that starts tasks as slurmstepd does: without our descriptors.
mkdir fake
cat >fake/srun <<'EOF'
#!/bin/sh
for a; do case $a in --ntasks=*) n=${a#*=} ;; --*) ;; *) break ;; esac; shift; done
exec 3<&- 4>&- 5<&-
printf 'srun-input: %s\n' "$*" >&2
exec "$@"
EOF
chmod +x fake/srun
ok 'srun inside a Slurm job: its own input and output are used' '
    echo text | PATH=$T/fake:$PATH SLURM_JOB_ID=1 verl-mpi 1 cat >out 2>err
    [ "$(cat out)" = text ]
    grep -q "srun-input" err'
ok 'help and version' '
    verl-mpi --help | grep -q "usage: verl-mpi"
    verl-mpi --version | grep -qx "verl-mpi $(cat "$REPO/VERSION")"
    verl-mpi-rank --help | grep -q verl-mpi
    exits 64 verl-mpi-rank
    [ "$(verl-mpi 3 ls --version | grep -c "^ls ")" = 1 ]'
done_testing
