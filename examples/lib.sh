# lib.sh - sourced by the example drivers: one stage = one file that appears whole or not at all.
#
#   stage NAME COMMAND...   runs COMMAND -o STEP_DIR/NAME.dp unless that file is there; its messages
#                           go to STEP_DIR/NAME.log, its command line to STEP_DIR/NAME.cmd
# A driver that was interrupted is simply started again: finished files are skipped, and the one
# stage that was cut off left nothing under its final name.

say() { echo "$(basename "$0" .sh): $*" >&2; }

stage() {
    name=$1
    shift
    [ -e "$dir/$name.dp" ] && return 0
    for arg in "$@" -o "$dir/$name.dp"; do
        printf "'%s' " "$(printf %s "$arg" | sed "s/'/'\\\\''/g")"
    done >"$dir/$name.cmd"
    status=0 began=$(date +%s.%N)
    "$@" -o "$dir/$name.dp" 2>"$dir/$name.log" || status=$?
    [ $status = 0 ] && {
        echo "$name $began $(date +%s.%N)" >>"$dir/timing"
        return 0
    }
    say "$name failed with status $status; its log:"
    tail -n 5 "$dir/$name.log" >&2
    say "to run it again alone: sh $dir/$name.cmd"
    exit $status
}

# version NAME DIR [ELSE]: the version of DIR that this step works with. It is noted at the step's
# first start, so that a stage that is run again later reads the same weights. ELSE: before DIR has one.
version() {
    [ -e "$dir/$1.version" ] || {
        if [ -e "$2/current" ]; then echo "$2/$(readlink "$2/current")"; else echo "$3"; fi >"$dir/$1.version"
    }
    cat "$dir/$1.version"
}

# Everything a step reports, as one JSON line; the run's metrics.jsonl is made of these.
metrics() {
    [ -e "$dir/metrics.json" ] || {
        # shellcheck disable=SC2046
        verl-eval -q $(awk '{ s[$1] = $3 - $2; all += $3 - $2 }
            END { for (n in s) printf "--timing %s=%.3f ", n, s[n]; printf "--timing step=%.3f", all }' "$dir/timing") \
            metrics "$dir" >"$dir/metrics.json.tmp" && mv "$dir/metrics.json.tmp" "$dir/metrics.json"
    }
    cat "$RUN"/step_*/metrics.json >"$RUN/metrics.jsonl.tmp" && mv "$RUN/metrics.jsonl.tmp" "$RUN/metrics.jsonl"
}

# report METRIC...: one line of the step on stderr
report() {
    say "step $step/$STEPS$(for m in "$@"; do
        jq -j --arg m "$m" '"  " + ($m | sub("/mean$"; "")) + " " + ((.[$m] // "-") | tostring | .[0:6])' "$dir/metrics.json"
    done)"
}

here=$(cd "$(dirname "$0")" && pwd)
[ -d "$here/../build/bin" ] && PATH=$(cd "$here/../build/bin" && pwd):$here/../scripts:$PATH
command -v verl-rollout >/dev/null || {
    say "verl-rollout is not on PATH; run make first"
    exit 69
}
