#!/bin/sh
# verl-rollout --stream | verl-reward: groups are scored as they come, the result is that of a file.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/letters.sh"

letters_tokenizer .
verl-model init -q -o model --hidden 32 --layers 1 --heads 2 --ffn 32 --tokenizer . --std 0.5 --seed 1
jq -nc 'range(6) | {uid: "0-\(.)", prompts: [33 + .], input_ids: [33 + .], attention_mask: [1],
    position_ids: [0], data_source: "m", reward_model: {ground_truth: "\(.)"}, extra_info: {}}' |
    verl-batch from-json -q -o prompts.dp
rollout() { verl-rollout -q -m model -i prompts.dp --global-steps 1 rollout.n=3 response_length=12 --stop-id 96 "$@"; }
rollout -o gen.dp
rollout --stream | cat >gen.stream
score='{score: (.ids|length), first: .solution_str[0:1], id2: .id, t: .prompt}'
verl-reward -q -m . -i gen.dp --jq "$score" -o want.dp
cat >slow.sh <<'SH'
while IFS= read -r line; do
    id=${line#\{\"id\":} id=${id%%,*}
    touch "scored.$id"
    echo "{\"id\":$id,\"score\":$id}"
done
SH
verl-reward -q -m . -i gen.dp --command 'sh slow.sh' -o want-slow.dp
rm -f scored.*
ok 'a stream and a file give the same bytes, by every kind of scorer' '
    rollout --stream | verl-reward -q -m . --jq "$score" -o s.dp
    cmp s.dp want.dp
    rollout --stream | verl-reward -q -m . --stream --jq "$score" -j 3 | cat >s.dp
    cmp s.dp want.dp
    rollout --stream | verl-reward -q -m . --no-stream --jq "$score" -o s.dp
    cmp s.dp want.dp
    verl-reward -q -m . -i gen.dp --exec "jq .id" -o w.dp
    cat gen.stream | verl-reward -q -m . --exec "jq .id" -o s.dp
    cmp s.dp w.dp
    verl-reward -q -m . -i gen.dp --scorer exact -o w.dp
    cat gen.stream | verl-reward -q -m . --scorer exact -o s.dp
    cmp s.dp w.dp
    mkfifo f; cat gen.stream >f &
    verl-reward -q -m . -i f --jq "$score" -o s.dp
    cmp s.dp want.dp'
ok 'documents that are there are scored while the writer is still at it' '
    rm -f scored.*
    half=$(($(wc -c <gen.stream) / 2))
    {
        head -c $half gen.stream
        i=0 # the second half is sent only when a row of the first was scored
        while [ ! -e scored.0 ] && [ $i -lt 300 ]; do sleep 0.05; i=$((i + 1)); done
        [ -e scored.0 ]
        ls scored.* | wc -l >early
        tail -c +$((half + 1)) gen.stream
    } | verl-reward -q -m . --command "sh slow.sh" -j 2 -o s.dp
    [ -s early ]; [ "$(cat early)" -lt 18 ]
    cmp s.dp want-slow.dp'
ok 'rules: a document is scored, and refused, before the next one is there' '
    verl-reward -q -m . -i gen.dp --rule exact --rule length:0.5,max=9 -o w.dp
    cat gen.stream | verl-reward -q -m . --rule exact --rule length:0.5,max=9 -o s.dp
    cmp s.dp w.dp
    # no rule for data_source m: said while the writer waits for it
    rm -f writer_done
    { cat gen.stream; sleep 5; touch writer_done; } 2>/dev/null | exits 65 verl-reward -q -m . -o no.dp 2>err &
    i=0
    while ! grep -q "no scorer" err 2>/dev/null && [ $i -lt 80 ]; do sleep 0.05; i=$((i + 1)); done
    [ ! -e writer_done ]
    grep -q "row 0 (uid \"0-0\", sample 0): no scorer for data_source .m." err'
if [ -x "$BUILD/tests/streamer" ]; then
    ok 'a column rm_scores: the score without a scorer, a member of the row with one' '
        verl-reward -q -m . -i gen.dp --jq "(.id * 7) % 5" -o a.dp
        verl-batch rename -q token_level_scores:rm_scores -i a.dp -o b.dp
        verl-batch drop -q -k score,acc,reward_error -i b.dp -o rm.dp
        "$BUILD/tests/streamer" rm.dp 3 | cat >rm.stream
        for o in "" "--jq .rm_score+1" "--rule rm:2"; do
            verl-reward -q -m . -i rm.dp $o -o w.dp
            cat rm.stream | verl-reward -q -m . $o -o s.dp
            verl-dump diff w.dp s.dp
        done'
else
    skip "tests/streamer.c is not built (make unit-binaries)"
fi
ok 'a batch that is no stream comes by a pipe as before' '
    cat gen.dp | verl-reward -q -m . --jq "$score" -o s.dp
    cmp s.dp want.dp
    zstd -dcq <gen.dp >plain.safetensors
    cat plain.safetensors | verl-reward -q -m . --jq 1 -o s.dp
    exits 65 verl-reward -q -m . --jq 1 -o no.dp </dev/null 2>err
    printf x | exits 65 verl-reward -q -m . --jq 1 -o no.dp 2>err
    [ ! -e no.dp ]'
ok 'a stream that breaks off, or is damaged: 65, nothing published' '
    n=$(wc -c <gen.stream)
    for cut in $((n - 1)) $((n - 40)) $((n / 2)) 100; do
        head -c $cut gen.stream | exits 65 verl-reward -q -m . --jq 1 -o no.dp 2>err
        [ "$(wc -l <err)" = 1 ]
    done
    { cat gen.stream; echo; } | exits 65 verl-reward -q -m . --jq 1 -o no.dp
    { head -c $((n / 2)) gen.stream; printf "xxxxxxxx"; tail -c +$((n / 2 + 9)) gen.stream; } |
        exits 65 verl-reward -q -m . --jq 1 -o no.dp
    [ ! -e no.dp ]'
ok 'the lowest failing row ends it, also before the stream has ended; its writer is told' '
    rm -f writer_done
    { cat gen.stream; sleep 5; touch writer_done; } 2>/dev/null | exits 65 verl-reward -q -m . -o no.dp --jq \
        "if .id == 4 or .id == 7 then error(\"no \(.uid)\") else 1 end" 2>err &
    i=0
    while ! grep -q no err 2>/dev/null && [ $i -lt 80 ]; do sleep 0.05; i=$((i + 1)); done
    [ ! -e writer_done ]
    grep -q "row 4 (uid \"0-1\", sample 1): filter: no 0-1" err
    verl-reward -q -m . -i gen.dp -o w.dp --on-error invalid --jq "if .id == 4 then error(\"x\") else 1 end" 2>err
    cat gen.stream | verl-reward -q -m . -o s.dp --on-error invalid --jq "if .id == 4 then error(\"x\") else 1 end" 2>err2
    cmp w.dp s.dp; cmp err err2'
done_testing
