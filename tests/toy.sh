# toy.sh - sourced by tests that train: a model of 16 thousand parameters and a batch for it.
#
# The task is to repeat the prompt backwards and then say 1: learnable in seconds, rows of unequal
# length, prompts left-padded, responses right-padded.

toy_model() { # DIR [OPTION...]
    dir=$1
    shift
    verl-model init -q -o "$dir" --hidden 32 --layers 2 --heads 4 --kv-heads 2 --ffn 48 --vocab 20 \
        --tied --positions 64 --eos-id 1 --std 0.08 --seed 1 "$@"
}

toy_rows() { # ROWS SEED: JSON lines
    awk -v B="$1" -v s="$2" '
    function rnd() { s = (s * 16807) % 2147483647; return s / 2147483647 }
    BEGIN {
        s = s * 7919 + 1
        for (i = 0; i < B; i++) {
            n = 1 + int(rnd() * 4); p = r = m = mask = a = ""; adv = 4 * rnd() - 2
            for (k = 4; k > n; k--) { p = p "0,"; mask = mask "0," }
            for (k = 0; k < n; k++) {
                t[k] = 2 + int(rnd() * 18)
                p = p t[k] (k < n - 1 ? "," : ""); mask = mask "1,"
            }
            for (k = n - 1; k >= 0; k--) { r = r t[k] ","; mask = mask "1,"; m = m "1,"; a = a adv "," }
            r = r "1"; m = m "1"; a = a adv; mask = mask "1"
            for (k = n + 1; k < 5; k++) { r = r ",0"; m = m ",0"; a = a ",0"; mask = mask ",0" }
            printf "{\"uid\":\"0-%d\",\"sample\":0,\"prompts\":[%s],\"responses\":[%s],", i, p, r
            printf "\"attention_mask\":[%s],\"response_mask\":[%s],", mask, m
            printf "\"advantages\":[%s],\"returns\":[%s]}\n", a, a
        }
    }'
}

toy_batch() { # FILE ROWS SEED
    toy_rows "$2" "$3" | verl-batch from-json -q -i - |
        verl-batch set-meta -q temperature 1 n 1 global_steps "$3" -o "$1"
}

hash_of() {
    verl-model hash "$1" | cut -c-32
}

metric() { # FILE NAME
    verl-dump --schema "$1" | jq -r ".meta_info.metrics[\"$2\"]"
}

# Starts a command and returns when it has stopped itself at POINT; its process id is $pid.
stop_at() { # POINT COMMAND...
    point=$1
    shift
    VL_STOP_AT=$point "$@" &
    pid=$!
    i=0
    until grep -q '^State:.T' "/proc/$pid/status" 2>/dev/null; do
        i=$((i + 1))
        [ $i -lt 600 ] && [ -d "/proc/$pid" ] || {
            echo "did not stop at $point"
            kill -9 $pid 2>/dev/null
            return 1
        }
        sleep 0.02
    done
}

kill_at() { # POINT COMMAND...
    stop_at "$@" || return 1
    kill -9 $pid
    wait $pid 2>/dev/null || :
}

# Sends TERM at POINT: the command must end by that signal. (A shell's background jobs ignore INT.)
term_at() { # POINT COMMAND...
    stop_at "$@" || return 1
    kill -TERM $pid
    kill -CONT $pid
    exits 143 wait $pid
}
