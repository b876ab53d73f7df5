#!/bin/sh
# --timing: one line of how long each phase took, on stderr alone, and the same bytes.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/toy.sh"

toy_model model
toy_model critic --head value
toy_batch b.dp 12 3
verl-dump b.dp | jq -c '{uid, prompts, attention_mask: .attention_mask[:4]}' |
    verl-batch from-json -q -i - | verl-batch set-meta -q global_steps 1 -o p.dp
s='[0-9]*\.[0-9][0-9] s'
t='[1-9][0-9]* tokens, [0-9.e+]* tokens/s'
who='1 thread, cpu [a-z0-9]*, fp32'
# A program's line, alone on stderr, is as the pattern says.
line() { # FILE PATTERN
    cat "$1"
    [ "$(wc -l <"$1")" = 1 ]
    grep -qx "[a-z-]*: timing: $2" "$1"
}
# Twice, with and without: the same output.
twice() { # OUT COMMAND...
    out=$1
    shift
    "$@" -q -o "$out" 2>without
    "$@" -q -o "timed-$out" --timing 2>with
    cmp "$out" "timed-$out"
    [ ! -s without ]
}

ok "verl-rollout: work of prefill and decoding, tokens of each" '
    twice gen.dp verl-rollout -m model -i p.dp --compute fp32 --ignore-eos rollout.response_length=6 rollout.n=2
    line with "read $s; load $s; work $s, 144 tokens, [0-9.e+]* tokens/s (prefill $s, [1-9][0-9]* tokens, [0-9.e+]* tokens/s; decode $s, $t); write $s; $s in all; $who"
    prompts=$(verl-dump p.dp | jq -s "map(.attention_mask | add) | add")
    grep -q "prefill [^,]*, $prompts tokens" with'
ok "verl-logprob, verl-value: forward passes" '
    twice l.dp verl-logprob -m model -i gen.dp
    line with "read $s; load $s; work $s, $t; write $s; $s in all; $who"
    twice v.dp verl-value -m critic -i gen.dp
    line with "read $s; load $s; work $s, $t; write $s; $s in all; $who"'
ok "verl-update: passes and the optimizer; nothing to do: no work" '
    update="verl-update -q --role sft -m model -i b.dp --compute fp32 data.train_batch_size=6 trainer.total_training_steps=2"
    $update -s s -o m.dp --timing 2>with
    line with "read $s; fill $s; load $s; work $s, $t (forward and backward $s; optimizer $s); write $s; $s in all; $who"
    $update -s t -o n.dp 2>without
    cmp m.dp n.dp
    equal "$(hash_of s)" "$(hash_of t)"
    $update -s s -o m.dp --timing 2>with
    line with "read $s; write $s; $s in all; 1 thread"'
ok "also beside the other messages, last; a program that runs no model has no such option" '
    verl-logprob -m model -i gen.dp -o l.dp --timing 2>log
    tail -n 1 log | grep -q "verl-logprob: timing: "
    verl-logprob -m model -i gen.dp -o l.dp 2>log
    not grep -q timing: log
    exits 64 verl-dump --timing gen.dp 2>log'
done_testing
