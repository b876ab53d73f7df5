#!/bin/sh
# Every way a scorer can go wrong, by every way to bring one and every policy; nothing is left behind,
# also when verl-reward itself is killed.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/letters.sh"

letters_tokenizer .
nap="sleep 83.$$" # no other run's
# Rows by what their scorer does; "good" rows stand between them.
names='["good", "crash", "good", "quit", "hang", "stop", "deaf", "mute", "garbage", "nan", "inf", "two",
    "none", "huge", "fork", "good", "error", "shut", "good"]'
jq -nc "$names"' | to_entries[] |
    {uid: "0-\(.key)", sample: 0, data_source: "m", truth: "1", response: .value}' | letters_batch in.dp
# What a line's response says is done; `say` writes an answer.
cat >act.sh <<SH
act() {
    r=\${1#*solution_str\":\"} r=\${r%%\"*}
    case \$r in
    crash) kill -SEGV \$\$ ;;
    quit) exit 3 ;;
    hang) $nap ;;
    stop) kill -STOP \$\$ ;;
    deaf) trap '' TERM INT HUP; setsid $nap & $nap & wait; $nap ;;
    mute) exec >&-; $nap ;;
    garbage) say 'I think it is 4' ;;
    nan) say NaN ;;
    inf) say 1e999 ;;
    two) say 1; say 1 ;;
    none) say '' ;;
    huge) head -c 17000000 /dev/zero | tr '\\0' x ;;
    fork) setsid $nap & $nap & say oops ;;
    error) say '{"error":"no opinion"}' ;;
    shut) exec <&-; say 1 ;;
    *) say 1 ;;
    esac
}
say() { echo "\$1"; }
SH
cat >lines.sh <<'SH'
. ./act.sh
while IFS= read -r line; do act "$line"; done
SH
cat >once.sh <<'SH'
. ./act.sh
say() { printf '%s\n' "$1"; }
read -r line
act "$line"
SH
cat >act.py <<PY
import os, signal, subprocess, time
nap = "$nap".split()
def compute_score(data_source, solution_str, ground_truth, extra_info):
    r = solution_str
    if r == "crash": os.kill(os.getpid(), signal.SIGSEGV)
    if r == "quit": os._exit(3)
    if r == "hang": time.sleep(80)
    if r == "stop": os.kill(os.getpid(), signal.SIGSTOP)
    if r == "deaf":
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
        subprocess.Popen(nap, start_new_session=True); subprocess.Popen(nap); time.sleep(80)
    if r == "mute": os.closerange(3, 100); time.sleep(80)
    if r == "garbage": return "I think it is 4"
    if r == "nan": return float("nan")
    if r == "inf": return float("inf")
    if r == "two": return {"score": None}
    if r == "none": return None
    if r == "huge": return {"score": 1, "text": "x" * 17000000}
    if r == "fork":
        subprocess.Popen(nap, start_new_session=True); subprocess.Popen(nap); raise OSError("oops")
    if r == "error": raise ValueError("no opinion")
    if r == "shut": os.close(0)
    return 1.0
PY
score() { verl-reward -q -m . -i "${from:-in.dp}" --row-timeout 1 "$@"; }
by_mode() { # by $mode
    case $mode in
    lines) score "$@" --command 'sh lines.sh' ;;
    once) score "$@" --exec 'sh once.sh' ;;
    python) score "$@" custom_reward_function.path=act.py ;;
    esac
}
gone() { # waits a moment for processes that were killed to vanish
    i=0
    while pgrep -f "$nap" >/dev/null && [ $i -lt 400 ]; do sleep 0.05; i=$((i + 1)); done
    not pgrep -fa "$nap"
}
see() { verl-dump -q --no-text "$1" | jq -r "$2" | tr '\n' ' ' | sed 's/ $//'; }
# good rows and "shut" (which answers and then reads no more) are scored, the others are not
want=$(jq -rn '[range(19) | if . == 0 or . == 2 or . == 15 or . == 17 or . == 18 then "1" else "x" end] | join(" ")')

verl-batch slice -q 0:4 -i in.dp -o a.dp
verl-batch slice -q 8:19 -i in.dp -o b.dp
verl-batch concat -q a.dp b.dp -o fast.dp # without those that cost a time limit

modes='lines once'
command -v python3 >/dev/null && modes="$modes python"
for mode in $modes; do
    ok "$mode: every failure is one, and no other row's; invalid and value; nothing is left" '
        by_mode --on-error invalid -j 5 -o i.dp 2>err
        [ "$(see i.dp .score)" = "$(echo "$want" | sed "s/x/NaN/g")" ]
        [ "$(see i.dp "if .reward_error then \"x\" else 1 end")" = "$want" ]
        see i.dp .reward_error | grep -q "no opinion"
        gone
        from=fast.dp by_mode --on-error value --error-value -1 -j 3 -o v.dp 2>err
        [ "$(see v.dp .score)" = "$(echo "$want" | cut -d " " -f 1-4,9- | sed "s/x/-1/g")" ]
        gone'
    ok "$mode: fail names the row and publishes nothing, within the time limit and two seconds" '
        for row in $(seq 0 18); do
            r=$(jq -nr "$names[$row]")
            case $mode.$r in
            *.good | *.stop | *.mute | *.garbage | *.two | python.none | python.inf) continue ;; # as others
            lines.huge | lines.deaf | once.hang | python.deaf | *.shut) continue ;;
            esac
            verl-batch slice -q $row:$((row + 1)) -i in.dp -o one.dp
            start=$(date +%s%N)
            from=one.dp exits 65 by_mode -o no.dp 2>err
            [ $((($(date +%s%N) - start) / 1000000)) -lt 8000 ] # two seconds at most, on an idle machine
            tail -n 1 err | grep -q "row 0 (uid \"0-$row\", sample 0): "
        done
        [ ! -e no.dp ]
        gone'
done

hang=hang.$$.dp # by which its programs are found among those of other runs
verl-batch slice -q 4:7 -i in.dp -o $hang
cat >deaf.sh <<SH
trap '' TERM INT HUP PIPE
setsid $nap &
sh -c "trap '' TERM; $nap; :" &
. ./act.sh
while IFS= read -r line; do $nap; done
$nap
SH
# starts verl-reward with three deaf scorers and waits until their children run
start() {
    env --default-signal=INT,HUP "$@" verl-reward -q -m . -i $hang --command 'sh deaf.sh; :' -j 3 -o no.dp 2>err &
    pid=$!
    i=0
    while [ "$(pgrep -fc "^$nap")" -lt 6 ] && [ $i -lt 1200 ]; do sleep 0.05; i=$((i + 1)); done
    [ $i -lt 1200 ] || { cat err; return 1; }
}
for s in TERM:143 INT:130 HUP:129 KILL:137; do
    ok "verl-reward killed by ${s%:*}: its scorers, their children and those in other sessions end" "
        start
        kill -${s%:*} \$pid
        exits ${s#*:} wait \$pid
        gone
        [ ! -e no.dp ]"
done
ok 'nobody reads the result: 74, and nothing is left' '
    mkfifo out
    { verl-reward -q -m . -i in.dp --command "setsid $nap & $nap & sed -u s/.*/1/" 2>err || echo $? >rc; } >out &
    exec 9<out; exec 9<&-
    wait
    [ "$(cat rc)" = 74 ]
    gone'
if have_mpi; then
    ok 'a rank that is killed under mpiexec leaves no scorer behind; nor does mpiexec itself' '
        start mpiexec -n 1
        kill -KILL $(pgrep -f "^[^ ]*verl-reward .*-i $hang" | head -n 1)
        wait $pid || :
        gone
        start verl-mpi 2
        kill -KILL $(pgrep -f "^[^ ]*verl-reward .*-i $hang" | head -n 1)
        exits 75 wait $pid
        gone
        start mpiexec -n 2
        kill -TERM $pid
        wait $pid || :
        gone
        [ ! -e no.dp ]'
else
    skip "$why"
fi
done_testing
