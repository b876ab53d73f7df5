# lib.sh - sourced by the example drivers: one stage = one file that appears whole or not at all.
#
#   stage NAME COMMAND...      runs COMMAND -o STEP_DIR/NAME.dp unless that file is there; its
#                              messages go to STEP_DIR/NAME.log, and STEP_DIR/NAME.cmd is a script of
#                              this command alone
#   timed NAME COMMAND...      work that makes no batch: log and time alone
#   rollout NAME ARG...        a stage with the command line ROLLOUT
#   reward NAME FILE SETTING...   with the command line REWARD, or verl-reward and SETTING...
#   update ROLE MODEL ARG...   the stage update_ROLE: a step of the train state RUN/ROLE
#   reference NAME SETTING...  the stage ref where the settings have a KL; advantage FILE ARG...: stage adv
# A driver that was interrupted is simply started again: finished files are skipped, and the one
# stage that was cut off left nothing under its final name.

here=$(cd "$(dirname "$0")" && pwd -P)
name=$(basename "$0" .sh)
[ "$name" != grpo ] || name=${PRESET:-grpo} # grpo.sh runs under many names
: "${STEPS:=60}" "${RUN:=run/$name}" "${MAP:=.}" "${DATASET:=}" "${CONFIG:=}" "${REWARD:=}" "${VAL:=}" "${VAL_EVERY:=10}" "${SEED:=1}" "${KEEP:=2}" "${LAUNCH:=}"
: "${ROLLOUT:=${LAUNCH:+$LAUNCH }verl-rollout}"
# what verl-data is told of the rows; a reward of one's own knows what to do with any data_source
shape=${DATASET:+--dataset $DATASET}
rows="$shape --check-scorer"
[ -z "$REWARD" ] || rows="$shape --no-check-scorer"
again=
preset=$here/presets/${PRESET:-}.yaml

say() { echo "$name: $*" >&2; }

# whole NAME VALUE EXAMPLE: refuses a variable that is no whole number above 0
whole() {
    case $2 in
    '' | 0* | *[!0-9]*)
        say "$1 is '$2', wanted a number of steps, for example $1=$3"
        exit 64
        ;;
    esac
}

# begin SETTING...: first thing of a driver. A run that goes on under other settings than it had
# says so, since what is finished is not made again.
begin() {
    case " $* " in *' --help '* | *' -h '*) usage && exit 0 ;; esac
    [ -n "${MODEL:-}" ] && [ -n "${DATA:-}" ] || {
        say "MODEL=dir and DATA=rows.jsonl are needed; $0 --help explains all variables"
        exit 64
    }
    [ -z "${PRESET:-}" ] || [ -r "$preset" ] || {
        say "PRESET is '$PRESET', known: $(cd "$here/presets" && echo *.yaml | sed 's/\.yaml//g')"
        exit 64
    }
    whole STEPS "$STEPS" 60
    whole VAL_EVERY "$VAL_EVERY" 10
    mkdir -p "$RUN"
    {
        for setting in "MODEL=$MODEL" "DATA=$DATA" "MAP=$MAP" ${DATASET:+"DATASET=$DATASET"} "REWARD=$REWARD" "ROLLOUT=${ROLLOUT#"${LAUNCH:+$LAUNCH }"}" "SEED=$SEED" "$@"; do
            echo "$setting"
        done
        [ -z "${PRESET:-}" ] || cat "$preset"
        [ -z "$CONFIG" ] || cat "$CONFIG"
    } >"$RUN/settings.tmp"
    [ ! -e "$RUN/settings" ] || [ ! -e "$RUN/step_000001" ] || cmp -s "$RUN/settings" "$RUN/settings.tmp" || {
        say "warning: $RUN goes on with other settings; what is finished stays as it is (a new RUN= starts afresh)"
        diff "$RUN/settings" "$RUN/settings.tmp" | grep '^[<>]' >&2 || :
    }
    mv "$RUN/settings.tmp" "$RUN/settings"
    step=0
}

# usage: the head of the driver, and its preset
usage() {
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    [ -z "${PRESET:-}" ] || sed 's/^/    /; s/^    #/   #/' "$preset"
}

# next_step: the first step that is not whole yet; sets step, dir, and policy, the weights it starts
# with.
next_step() {
    while [ $step -lt "$STEPS" ]; do
        step=$((step + 1))
        dir=$RUN/step_$(printf %06d $step)
        mkdir -p "$dir"
        [ -e "$dir/metrics.json" ] && continue
        policy=$(version policy "$RUN/rollout")
        return 0
    done
    return 1
}

# quote WORD: as the shell reads it back
quote() {
    case $1 in
    '' | *[!A-Za-z0-9_./=:,@%+-]*) printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")" ;;
    *) printf %s "$1" ;;
    esac
}

# Status 3, which verl-batch filter-groups has when it kept too little, is handed to the caller.
stage() {
    file=$1
    shift
    [ -e "$dir/$file.dp" ] && return 0
    {
        echo "cd $(quote "$PWD") && PATH=$(quote "$PATH") || exit"
        for arg in "$@" $again -o "$dir/$file.dp"; do printf '%s ' "$(quote "$arg")"; done
        echo
    } >"$dir/$file.cmd"
    status=0 began=$(date +%s.%N)
    "$@" -o "$dir/$file.dp" 2>"$dir/$file.log" || status=$?
    [ $status != 0 ] || [ -e "$dir/$file.dp" ] || {
        echo "the command ended well but wrote nothing to the name after -o" >>"$dir/$file.log"
        status=65
    }
    case $status in
    0)
        echo "$file $began $(date +%s.%N)" >>"$dir/timing"
        grep ': warning: ' "$dir/$file.log" >&2 || :
        return 0
        ;;
    3)
        rm -f "$dir/$file.dp"
        return 3
        ;;
    esac
    say "$file failed with status $status; its log:"
    tail -n 5 "$dir/$file.log" >&2
    say "to run it again alone: sh $dir/$file.cmd"
    exit $status
}

rollout() {
    file=$1
    shift
    stage "$file" sh -c "$ROLLOUT"' "$@"' rollout --seed "$SEED" "$@"
}

reward() {
    file=$1 from=$2
    shift 2
    if [ -n "$REWARD" ]; then
        stage "$file" sh -c "$REWARD"' "$@"' reward -i "$from"
    else
        stage "$file" verl-reward -i "$from" "$@"
    fi
}

# Its .cmd starts from the version this step started from: by the time it is run the state has mostly
# gone on, and then goes on being what it is.
update() {
    role=$1 from=$2
    shift 2
    again="--from $(basename "$(version "update_$role" "$RUN/$role" v000000)") --keep-current"
    stage "update_$role" $LAUNCH verl-update -s "$RUN/$role" -m "$from" --keep "$KEEP" "$@"
    again=
}

# timed NAME COMMAND...: a step's work that is no batch; what it prints goes to STEP_DIR/NAME.log
timed() {
    file=$1
    shift
    began=$(date +%s.%N)
    "$@" >"$dir/$file.log" 2>&1 || {
        status=$?
        say "$file failed with status $status; its log:"
        tail -n 5 "$dir/$file.log" >&2
        exit $status
    }
    echo "$file $began $(date +%s.%N)" >>"$dir/timing"
    grep ': warning: ' "$dir/$file.log" >&2 || :
}

# setting KEY ELSE SETTING...: the value that files and words give a key that another stage reads
setting() {
    key=$1 value=$2
    shift 2
    given=$(verl-sync --print-config=ignored "$@" | sed -n "s/^$key: \(.*\) # .*/\1/p")
    echo "${given:-$value}"
}

# enabled KEY ELSE SETTING...: whether a key is true, however YAML spells it
enabled() {
    case $(setting "$@") in true | True | TRUE) ;; *) return 1 ;; esac
}

# kl SETTING...: what the settings ask for: ref=1 where a KL needs the reference's log-probs, adaptive=1
# where its coefficient lives from step to step.
kl() {
    ref='' adaptive=''
    if enabled algorithm.use_kl_in_reward false "$@"; then
        ref=1
        [ "$(setting algorithm.kl_ctrl.type fixed "$@")" != adaptive ] || adaptive=1
    fi
    if enabled actor_rollout_ref.actor.use_kl_loss false "$@"; then ref=1; fi
}

# reference NAME SETTING...: the log-probs of MODEL beside those of stage NAME, where a KL needs them;
# $last is the stage to go on from
reference() {
    last=$1
    shift
    [ -n "$ref" ] || return 0
    stage ref $LAUNCH verl-logprob --as ref -m "$MODEL" -i "$dir/$last.dp" "$@"
    last=ref
}

# advantage FILE ARG...
advantage() {
    from=$1
    shift
    stage adv verl-advantage -i "$from" ${adaptive:+--kl-state "$RUN/kl"} "$@"
}

# version NAME DIR [ELSE]: the version of DIR that this step works with. It is noted at the step's
# first start, so that a stage that is run again later reads the same weights. ELSE: before DIR has one.
version() {
    [ -e "$dir/$1.version" ] || {
        if [ -e "$2/current" ]; then echo "$2/$(readlink "$2/current")"; else echo "$3"; fi >"$dir/$1.version"
    }
    cat "$dir/$1.version"
}

# finish METRIC... -- SETTING...: last thing of a step
finish() {
    shown=
    while [ "$1" != -- ]; do
        shown="$shown $1"
        shift
    done
    shift
    validate "$@"
    metrics
    # shellcheck disable=SC2086
    report $shown
}

# validate SETTING...: every VAL_EVERY steps and after the last one, the new policy answers the rows
# of VAL with verl's validation settings (rollout.val_kwargs, greedy by default).
validate() {
    [ -n "$VAL" ] && { [ $((step % VAL_EVERY)) = 0 ] || [ $step = "$STEPS" ]; } || return 0
    stage val_prompts verl-data $rows -m "$MODEL" --map "$MAP" --step $step --all "$@" "$VAL"
    stage val_gen sh -c "$ROLLOUT"' "$@"' rollout -m "$(version trained "$RUN/rollout")" --validate \
        -i "$dir/val_prompts.dp" "$@"
    reward val_reward "$dir/val_gen.dp" "$@"
    verl-eval -q -i "$dir/val_reward.dp" >"$dir/val.json"
    say "step $step/$STEPS$(jq -j 'to_entries[] | select(.key | startswith("val-core")) | "  \(.key) \(.value)"' "$dir/val.json")"
}

# Everything a step reports, as one JSON line, with what the driver itself left in STEP_DIR/own.json; the
# run's metrics.jsonl is made of these. Rounds of a stage (gen_01, gen_02) add to its time; validation is
# verl's timer `testing`, outside `step`.
metrics() {
    [ -e "$dir/metrics.json" ] || {
        # shellcheck disable=SC2046
        verl-eval -q $(awk '{ last[$1] = $3 - $2 }
            END {
                for (n in last) {
                    s = n ~ /^val_/ ? "testing" : n
                    sub(/_[0-9]+$/, "", s)
                    time[s] += last[n]
                    if (s != "testing") time["step"] += last[n]
                }
                for (s in time) printf "--timing %s=%.3f ", s, time[s]
            }' "$dir/timing") metrics "$dir" >"$dir/step.json"
        cat "$dir/step.json" "$dir/own.json" "$dir/val.json" 2>/dev/null | jq -c -s add >"$dir/metrics.json.tmp"
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

[ -d "$here/../build/bin" ] && PATH=$(cd "$here/../build/bin" && pwd):$(cd "$here/../scripts" && pwd):$PATH
command -v verl-rollout >/dev/null || {
    say "verl-rollout is not on PATH; run make first"
    exit 69
}
