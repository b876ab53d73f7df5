#!/bin/sh
# What the worker pool costs over the Python function itself: the same function over the same rows,
# called in a plain loop and by verl-reward with N workers.
#
#   sh tests/bench/reward-python.sh [ROWS [WORKERS]]
#
# Prints processor seconds of both (a busy machine does not change them much) and the overhead, which
# is to stay under 10 %, and the times of the clock, which on an idle machine differ by the factor N.
# Then the same for the filter of verl-reward(1), in rows a second and process.
set -eu
repo=$(cd "$(dirname "$0")/../.." && pwd)
PATH=$repo/${BUILD:-build}/bin:$PATH
. "$repo/tests/letters.sh"
dir=$(mktemp -d)
trap 'cd /; rm -rf "$dir"' EXIT
cd "$dir"
rows=${1:-4000} workers=${2:-2}

letters_tokenizer .
some_rows() { # ROWS
    jq -nc --argjson n "$1" 'range($n) | {uid: "0-\(.)", sample: 0, data_source: "m", truth: "\(. % 3)",
        response: "some words of a response, #### \(. % 5)"}'
}
some_rows "$rows" >rows.jsonl
letters_batch in.dp <rows.jsonl
cat >mine.py <<'PY'
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    x = 0
    for i in range(20000):  # about a millisecond
        x = (x * 31 + i) % 65521
    return float(solution_str.split("#### ")[-1] == ground_truth)
PY
cat >loop.py <<'PY'
import json, resource, time
from mine import compute_score
rows = [json.loads(line) for line in open("rows.jsonl")]
clock, cpu = time.time(), time.process_time()
for r in rows:
    compute_score(data_source=r["data_source"], solution_str=r["response"], ground_truth=r["truth"])
print(time.process_time() - cpu, time.time() - clock)
PY
cat >timed.py <<'PY'
import resource, subprocess, sys, time
clock = time.time()
subprocess.check_call(sys.argv[1:])
r = resource.getrusage(resource.RUSAGE_CHILDREN)
print(r.ru_utime + r.ru_stime, time.time() - clock)
PY
timed() { # command: processor seconds of all its processes, seconds
    python3 timed.py "$@"
}
plain=$(python3 loop.py)
pool=$(timed verl-reward -q -m . -i in.dp custom_reward_function.path=mine.py -j "$workers" -o out.dp)
echo "$plain $pool" | awk -v n="$workers" '{
    printf "plain loop     %6.2f s of processor  %6.2f s\n", $1, $2
    printf "%d workers      %6.2f s of processor  %6.2f s\n", n, $3, $4
    printf "overhead       %6.1f %% of processor time (to stay under 10)\n", ($3 / $1 - 1) * 100 }'
filter='(.solution_str|split("#### ")|last)==.ground_truth'
some_rows $((25 * rows)) | letters_batch many.dp # a worker's start takes as long as some thousand rows
all=$(timed verl-reward -q -m . -i many.dp --jq "$filter" -j "$workers" -o out.dp)
base=$(timed verl-reward -q -m . -i many.dp --scorer exact -o out.dp)
echo "$all $base $((25 * rows))" | awk '{ printf "filter         %6.2f us of processor a row, reading and writing aside\n", ($1 - $3) / $5 * 1e6 }'
