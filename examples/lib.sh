# lib.sh - sourced by the example drivers: one stage = one file that appears whole or not at all.
#
#   stage NAME COMMAND...   runs COMMAND -o STEP_DIR/NAME.dp unless that file is there; its messages
#                           go to STEP_DIR/NAME.log, and STEP_DIR/NAME.cmd is a script of this
#                           command alone
# A driver that was interrupted is simply started again: finished files are skipped, and the one
# stage that was cut off left nothing under its final name.

say() { echo "$(basename "$0" .sh): $*" >&2; }

# begin SETTING...: first thing of a driver. A run that goes on under other settings than it had
# says so, since what is finished is not made again.
begin() {
    case " $* " in *' --help '* | *' -h '*) usage && exit 0 ;; esac
    [ -n "${MODEL:-}" ] && [ -n "${DATA:-}" ] || {
        say "MODEL=dir and DATA=rows.jsonl are needed; $0 --help explains all variables"
        exit 64
    }
    case $STEPS in
    *[!0-9]*)
        say "STEPS is '$STEPS', wanted a number of steps, for example STEPS=60"
        exit 64
        ;;
    esac
    case $VAL_EVERY in
    '' | 0* | *[!0-9]*)
        say "VAL_EVERY is '$VAL_EVERY', wanted a number of steps, for example VAL_EVERY=10"
        exit 64
        ;;
    esac
    mkdir -p "$RUN"
    {
        for setting in "MODEL=$MODEL" "DATA=$DATA" "MAP=$MAP" "REWARD=$REWARD" "ROLLOUT=${ROLLOUT#"${LAUNCH:+$LAUNCH }"}" "SEED=$SEED" "$@"; do
            echo "$setting"
        done
        [ -z "$CONFIG" ] || cat "$CONFIG"
    } >"$RUN/settings.tmp"
    [ ! -e "$RUN/settings" ] || [ ! -e "$RUN/step_000001/prompts.dp" ] || cmp -s "$RUN/settings" "$RUN/settings.tmp" || {
        say "warning: $RUN goes on with other settings; what is finished stays as it is (a new RUN= starts afresh)"
        diff "$RUN/settings" "$RUN/settings.tmp" | grep '^[<>]' >&2 || :
    }
    mv "$RUN/settings.tmp" "$RUN/settings"
}

# usage: the head of the driver
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

# quote WORD: as the shell reads it back
quote() {
    case $1 in
    '' | *[!A-Za-z0-9_./=:,@%+-]*) printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")" ;;
    *) printf %s "$1" ;;
    esac
}

stage() {
    name=$1
    shift
    [ -e "$dir/$name.dp" ] && return 0
    {
        echo "cd $(quote "$PWD") && PATH=$(quote "$PATH") || exit"
        for arg in "$@" -o "$dir/$name.dp"; do printf '%s ' "$(quote "$arg")"; done
        echo
    } >"$dir/$name.cmd"
    status=0 began=$(date +%s.%N)
    "$@" -o "$dir/$name.dp" 2>"$dir/$name.log" || status=$?
    [ $status != 0 ] || [ -e "$dir/$name.dp" ] || {
        echo "the command ended well but wrote nothing to the name after -o" >>"$dir/$name.log"
        status=65
    }
    [ $status = 0 ] && {
        echo "$name $began $(date +%s.%N)" >>"$dir/timing"
        grep ': warning: ' "$dir/$name.log" >&2 || :
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

# validate SETTING...: every VAL_EVERY steps and after the last one, the new policy answers the rows
# of VAL with verl's validation settings (rollout.val_kwargs, greedy by default).
validate() {
    [ -n "$VAL" ] && { [ $((step % VAL_EVERY)) = 0 ] || [ $step = "$STEPS" ]; } || return 0
    stage val_prompts verl-data -m "$MODEL" --map "$MAP" --step $step --all "$@" "$VAL"
    stage val_gen sh -c "$ROLLOUT"' "$@"' rollout -m "$(version trained "$RUN/rollout")" --validate \
        -i "$dir/val_prompts.dp" "$@"
    stage val_reward sh -c "$REWARD"' "$@"' reward -i "$dir/val_gen.dp"
    verl-eval -q -i "$dir/val_reward.dp" >"$dir/val.json"
    say "step $step/$STEPS$(jq -j 'to_entries[] | select(.key | startswith("val-core")) | "  \(.key) \(.value)"' "$dir/val.json")"
}

# Everything a step reports, as one JSON line; the run's metrics.jsonl is made of these.
metrics() {
    [ -e "$dir/metrics.json" ] || {
        # validation is verl's timer `testing`, outside `step`
        # shellcheck disable=SC2046
        verl-eval -q $(awk '/^val_/ { s["testing"] += $3 - $2; next } { s[$1] = $3 - $2; all += $3 - $2 }
            END { for (n in s) printf "--timing %s=%.3f ", n, s[n]; printf "--timing step=%.3f", all }' "$dir/timing") \
            metrics "$dir" >"$dir/step.json"
        jq -c -s add "$dir/step.json" $([ ! -e "$dir/val.json" ] || echo "$dir/val.json") >"$dir/metrics.json.tmp"
        mv "$dir/metrics.json.tmp" "$dir/metrics.json"
    }
    cat "$RUN"/step_*/metrics.json >"$RUN/metrics.jsonl.tmp" && mv "$RUN/metrics.jsonl.tmp" "$RUN/metrics.jsonl"
}

# report METRIC...: one line of the step on stderr
report() {
    say "step $step/$STEPS$(for m in "$@"; do
        # shellcheck disable=SC2046
        printf '  %s %.4g' $(jq -r --arg m "$m" '($m | sub("/mean$"; "")), (.[$m] // "nan")' "$dir/metrics.json")
    done)"
}

# end: last thing of a driver
end() { say "$RUN is done: metrics in $RUN/metrics.jsonl, the model is $RUN/rollout/current"; }

here=$(cd "$(dirname "$0")" && pwd)
[ -d "$here/../build/bin" ] && PATH=$(cd "$here/../build/bin" && pwd):$(cd "$here/../scripts" && pwd):$PATH
command -v verl-rollout >/dev/null || {
    say "verl-rollout is not on PATH; run make first"
    exit 69
}
