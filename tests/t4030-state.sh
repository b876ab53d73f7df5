#!/bin/sh
# Train state, published weights and checkpoints: killed at each point, run twice, redone, locked, damaged.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/toy.sh"

toy_model m
toy_batch b.dp 32 1
verl-logprob -q -m m -i b.dp -o old.dp
up="verl-update -q -m m -i old.dp optim.lr=1e-3 ppo_mini_batch_size=8"

ok 'an empty state is filled from -m as v000000, then updated' "
    $up -s ref -o ref.dp
    hash_of ref >ref1
    [ \$(readlink ref/current) = v000001 ]
    equal \"\$(hash_of ref/v000000)\" \"\$(hash_of m)\"
    jq -e '.parent == \"v000000\" and .global_step == 1 and .optimizer_steps == 4 and .role == \"actor\"' ref/current/state.json
    for f in ref/v000001/*; do [ ! -w \$f ] || [ \$(stat -c %a \$f) = 444 ]; done"
ok 'without a model to fill from: 66, and nothing is made' "
    exits 66 verl-update -s none -i old.dp -o x.dp 2>err
    grep -q 'give -m MODEL' err
    [ ! -e none ]
    [ ! -e x.dp ]"
ok 'a run that fails after filling takes the filling back: the next may name another model' "
    exits 65 verl-update -q -s wrong -m m -i b.dp -o x.dp 2>err
    [ ! -e wrong/current ]
    [ ! -e wrong/v000000 ]
    cp -r m m2
    $up -s wrong -m m2 -o x.dp
    [ \$(readlink wrong/current) = v000001 ]
    exits 65 verl-update -q -s wrong -i b.dp -o x.dp 2>err
    [ \$(readlink wrong/current) = v000001 ]
    [ -e wrong/v000000 ]"
ok 'the same line again: nothing to do, the same metrics' "
    verl-update -m m -i old.dp optim.lr=1e-3 ppo_mini_batch_size=8 -s ref -o ref2.dp 2>err
    grep -q 'nothing to do: ref/v000001 came from this batch and these options (--from v0 makes it again)' err
    cmp ref.dp ref2.dp
    [ \$(readlink ref/current) = v000001 ]"
ok 'so it is where n and the temperature are of the batch alone' "
    verl-batch set-meta -q -i old.dp n 2 | verl-batch set-meta -q temperature 0.5 -o told.dp
    for i in 1 2; do verl-update -m m -s told -i told.dp optim.lr=1e-3 ppo_mini_batch_size=4 -o told\$i.dp 2>err; done
    grep -q 'nothing to do' err
    cmp told1.dp told2.dp"
ok '--from redoes it with the same bytes, once' "
    $up -s ref --from v0 -o again.dp
    [ \$(readlink ref/current) = v000002 ]
    for f in params exp_avg exp_avg_sq; do cmp ref/v000001/\$f.safetensors ref/v000002/\$f.safetensors; done
    $up -s ref --from 0 -o again2.dp
    [ \$(readlink ref/current) = v000002 ]
    cmp again.dp again2.dp"
ok 'other options are another update; a stale batch is refused unless --stale-ok' "
    exits 65 $up -s ref clip_ratio_low=0.1 -o x.dp 2>err
    grep -q 'were made by other weights' err
    exits 0 $up -s ref clip_ratio_low=0.1 --stale-ok -o x.dp
    [ \$(readlink ref/current) = v000003 ]"

for p in state-params state-moments state-written state-renamed state-linked state-pruned; do
    ok "kill -9 at $p: the state before or after is in force, the same line ends the same" "
        rm -rf s
        $up -s s -o s1.dp
        rm -f k.dp
        verl-logprob -q -m s -i b.dp -o o2.dp
        line='verl-update -q -i o2.dp optim.lr=1e-3 ppo_mini_batch_size=8 -s s -o k.dp'
        before=\$(hash_of s)
        kill_at $p \$line
        case $p in state-linked | state-pruned) : ;; *) [ \$(hash_of s) = \$before ] ;; esac
        [ ! -e k.dp ]
        exits 0 \$line
        [ \$(verl-dump --schema k.dp | jq .meta_info.global_steps) = 1 ]
        [ \$(metric k.dp actor/optimizer_steps) = 4 ]
        jq -e '.parent == \"v000001\"' s/current/state.json
        [ -z \"\$(ls -d s/.aside* 2>/dev/null)\" ]
        rm -rf r
        cp -r s r
        rm r/current
        ln -s v000001 r/current
        rm -rf r/v000002 r/v000003
        verl-update -q -i o2.dp optim.lr=1e-3 ppo_mini_batch_size=8 -s r -o r.dp
        equal \"\$(hash_of r)\" \"\$(hash_of s)\"
        cmp k.dp r.dp"
done
for p in state-written state-renamed; do
    ok "kill -9 at $p while filling: the same line goes through" "
        rm -rf s
        kill_at $p $up -s s -o k.dp
        $up -s s -o k.dp
        equal \"\$(hash_of s)\" \"\$(cat ref1)\""
done

ok 'TERM while writing a version: ended by the signal, nothing of it left' "
    rm -rf s p
    term_at state-params $up -s s -o k.dp
    term_at state-written $up -s s -o k.dp
    [ \"\$(ls -A s)\" = .lock ]
    $up -s s -o k.dp
    term_at sync-saved verl-sync -q -s s -o p
    [ \"\$(ls -A p)\" = .lock ]"
ok 'a version larger than ulimit -f: 74, the state as it was' "
    verl-logprob -q -m s -i b.dp -o o2.dp
    ls -A s >before
    (
        ulimit -f 20
        exits 74 verl-update -q -s s -i o2.dp -o k2.dp 2>err
    )
    grep -q 'File too large' err
    ls -A s | cmp - before
    [ \$(readlink s/current) = v000001 ]"

ok 'a second writer exits with 75 and names the first' "
    rm -rf s
    VL_STOP_AT=state-params $up -s s -o k.dp &
    pid=\$!
    until grep -q '^State:.T' /proc/\$pid/status; do sleep 0.02; done
    exits 75 $up -s s -o k2.dp 2>err
    grep -q \"process \$pid is writing\" err
    kill -9 \$pid"
ok 'four at once: one applies the batch, the others name it' "
    rm -rf s
    $up -s s -o k.dp
    verl-logprob -q -m s -i b.dp -o o2.dp
    verl-update -q -s s -i o2.dp optim.lr=1e-3 -o w0.dp &
    for i in 1 2 3; do verl-update -q -s s -i o2.dp optim.lr=1e-3 -o w\$i.dp 2>w\$i.err & done
    wait
    [ \$(readlink s/current) = v000002 ]
    not grep -v 's: process [0-9]* is writing here' w1.err w2.err w3.err"
ok 'a model directory is no train state and takes no versions: 73' "
    cp -r m mine
    exits 73 $up -s mine -o k2.dp 2>err
    grep -q 'mine: is a model directory' err
    exits 73 verl-sync -s s -o mine 2>err
    [ ! -e mine/current ]
    [ ! -e mine/.lock ]"
ok 'an output that cannot be made is told before anything is done' "
    exits 73 $up -s fresh -o nowhere/k.dp 2>err
    grep -q 'nowhere/k.dp: cannot create a file in its directory' err
    [ ! -e fresh ]"
ok 'a link to a missing version: 65 naming the newest usable; never a fresh start' "
    rm -rf s
    cp -r ref s
    ln -sfn v000009 s/current
    exits 65 $up -s s -o k.dp 2>err
    grep -q 'newest usable version is v000003' err
    exits 65 verl-sync -s s -o pub 2>err
    exits 65 verl-model info s 2>err
    rm s/current
    exits 65 $up -s s -o k.dp 2>err
    grep -q 'ln -sfn v000003' err"
ok 'a damaged version: 65 naming the file' "
    rm -rf s
    cp -r ref s
    chmod u+w s/v000003/*
    truncate -s -4 s/v000003/exp_avg.safetensors
    exits 65 $up -s s --stale-ok clip_ratio_low=0.3 -o k.dp 2>err
    grep -q 'v000003/exp_avg.safetensors' err
    echo '{' >s/v000003/state.json
    exits 65 $up -s s -o k.dp 2>err
    grep -q 'newest usable version is v000002' err"

ok 'one flipped bit in any file of a version: 65 naming the file, and the newest usable version' "
    for f in params.safetensors exp_avg.safetensors exp_avg_sq.safetensors state.json config.json digests.json; do
        rm -rf s
        cp -r ref s
        chmod -R u+w s
        at=\$((\$(wc -c <s/v000003/\$f) - 30))
        perl -e 'open F, \"+<\", \$ARGV[0]; seek F, \$ARGV[1], 0; read F, \$c, 1; seek F, \$ARGV[1], 0; print F \$c ^ \"\\x01\"' s/v000003/\$f \$at
        exits 65 $up -s s --stale-ok clip_ratio_low=0.3 -o flipped.dp 2>err
        grep -q \"\$f\" err || grep -q 'v000003: weights have hash' err
        case \$f in *.json) grep -q 'newest usable version is v000002' err ;; esac
        [ \$(wc -l <err) = 1 ]
        [ ! -e flipped.dp ]
    done"
ok 'published weights with a flipped bit make no critic either' "
    verl-sync -q -s ref -o flip
    chmod -R u+w flip
    perl -e 'open F, \"+<\", \$ARGV[0]; seek F, -30, 2; read F, \$c, 1; seek F, -30, 2; print F \$c ^ \"\\x01\"' flip/v000003/model.safetensors
    for c in verl-logprob verl-value; do
        exits 65 \$c -m flip -i b.dp -o k.dp 2>err
        grep -q 'damaged' err
    done"

ok 'sync: same number, same hash, path on stdout; again: nothing to do' "
    [ \$(verl-sync -q -s ref -o ro) = ro/v000003 ]
    equal \"\$(hash_of ro)\" \"\$(hash_of ref)\"
    [ \$(readlink ro/current) = v000003 ]
    verl-sync -s ref -o ro 2>err >out
    grep -q 'nothing to do' err
    [ \$(cat out) = ro/v000003 ]"
ok 'sync: a rounded copy knows its source, and the sender is as it was' "
    before=\$(cat ref/v000003/* | sha256sum)
    verl-sync -q -s ref -o ro16 --dtype bf16 >out
    [ \"\$before\" = \"\$(cat ref/v000003/* | sha256sum)\" ]
    equal \"\$(jq -r .source_hash ro16/current/version.json)\" \"\$(hash_of ref)\"
    equal \"\$(jq -r .hash ro16/current/version.json)\" \"\$(hash_of ro16)\"
    exits 73 verl-sync -s ref -o ro --dtype bf16 2>err
    grep -q 'published versions are never replaced' err"
for p in sync-saved sync-written sync-renamed sync-linked; do
    ok "sync killed at $p: the version before stays in force, the same line goes through" "
        rm -rf p
        verl-sync -q -s ref --from v2 -o p
        kill_at $p verl-sync -q -s ref -o p
        [ \$(readlink p/current) = \$([ $p = sync-linked ] && echo v000003 || echo v000002) ]
        verl-sync -q -s ref -o p
        equal \"\$(hash_of p)\" \"\$(hash_of ref)\"
        [ -z \"\$(ls -d p/.aside* 2>/dev/null)\" ] || verl-sync -q -s ref -o p"
done
ok 'sync: an update that changed nothing although it says so is 65; a rate of 0 is fine' "
    rm -rf s p
    cp -r ref s
    verl-sync -q -s s -o p
    verl-logprob -q -m s -i b.dp -o o3.dp
    verl-update -q -s s -i o3.dp optim.lr=0 -o k.dp
    [ \$(metric k.dp actor/weights_changed) = 0 ]
    verl-sync -q -s s -o p
    chmod u+w s/v000004/state.json
    rm -f s/v000004/digests.json
    sed -i 's/\"actor.weights_changed\":0/\"actor\\/weights_changed\":0.5/' s/v000004/state.json
    rm -rf p/v000004
    ln -sfn v000003 p/current
    exits 65 verl-sync -s s -o p 2>err
    grep -q 'holds the same weights' err"

ok 'checkpoint: hard links, tracker; again: nothing to do' "
    mkdir run
    cp -r ref run/actor
    verl-sync -q -s run/actor -o run/rollout >out
    verl-model checkpoint run ck 2>err
    [ \$(cat ck/latest_checkpointed_iteration.txt) = 1 ]
    [ \$(stat -c %h ck/global_step_1/actor/v000003/params.safetensors) = 2 ]
    equal \"\$(hash_of ck/global_step_1/rollout/v000003)\" \"\$(hash_of ref)\"
    verl-model checkpoint run ck 2>err
    grep -q 'nothing to do' err
    exits 66 verl-model checkpoint nowhere ck 2>err"
for p in checkpoint-written checkpoint-renamed; do
    ok "checkpoint killed at $p: the tracker keeps the one before, the same line ends the same" "
        rm -rf ck2
        cp -r ck ck2
        mv ck2/global_step_1 ck2/global_step_0
        printf 0 >ck2/latest_checkpointed_iteration.txt
        kill_at $p verl-model checkpoint -q run ck2
        [ \$(cat ck2/latest_checkpointed_iteration.txt) = 0 ]
        verl-model checkpoint -q run ck2
        [ \$(cat ck2/latest_checkpointed_iteration.txt) = 1 ]
        diff -r ck/global_step_1 ck2/global_step_1
        [ -z \"\$(ls -d ck2/.aside* 2>/dev/null)\" ]"
done
ok 'restore: after more training the versions of the checkpoint are in force again' "
    verl-logprob -q -m run/actor -i b.dp -o o4.dp
    verl-update -q -s run/actor -i o4.dp optim.lr=1e-3 -o k.dp
    [ \$(readlink run/actor/current) = v000004 ]
    verl-model restore -q ck run
    [ \$(readlink run/actor/current) = v000003 ]
    verl-model restore -q ck run2
    equal \"\$(hash_of run2/actor)\" \"\$(hash_of ref)\"
    verl-logprob -q -m run2/actor -i b.dp -o o4.dp
    verl-update -q -s run2/actor -i o4.dp optim.lr=1e-3 -o k2.dp
    equal \"\$(hash_of run2/actor)\" \"\$(hash_of run/actor/v000004)\"
    printf 7 >ck/latest_checkpointed_iteration.txt
    exits 65 verl-model restore ck run3 2>err
    grep -q 'newest checkpoint is global_step_1' err"
done_testing
