#!/bin/sh
# Preferences: verl-batch pairs, verl-update --role dpo. Pairs are whole, cuts do not show, it learns.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/toy.sh"

toy_model m
# Pairs: the toy's answer (prompt backwards) is chosen, the same row with other tokens is rejected.
# Rows of a pair lie apart, some rows are in no pair.
toy_rows 24 1 | jq -c '.preference = 1' >chosen
jq -c '.sample = 1 | .preference = 0 | .responses |= map(if . > 1 then (. * 7 + 3) % 18 + 2 else . end)' chosen >rejected
head -n 5 chosen | jq -c '.sample = 2 | .preference = -1' >other
cat chosen other rejected | verl-batch from-json -q -i - | verl-batch set-meta -q global_steps 1 -o p.dp
verl-logprob -q --as ref -m m -i p.dp -o pairs.dp
dpo='verl-update -q --role dpo -m m -i pairs.dp optim.lr=2e-3 ppo_mini_batch_size=8'

ok 'the first loss is log 2, no margin; pairs are counted, not rows' "
    $dpo -s one ppo_mini_batch_size=24 -o m.dp
    awk -v l=\$(metric m.dp actor/dpo_loss) 'BEGIN { exit !(l > 0.693147 && l < 0.693148) }'
    [ \$(metric m.dp actor/rewards_margins) = 0 ]
    [ \$(metric m.dp actor/rows) = 48 ]
    [ \$(metric m.dp actor/optimizer_steps) = 1 ]
    equal \"\$(metric m.dp actor/policy_chosen_logps)\" \"\$(metric m.dp actor/reference_chosen_logps)\"
    jq -e '.role == \"dpo\" and .schedule_position == 1' one/current/state.json"
ok 'it learns: accuracy 1, the margin grows, the chosen rise against the rejected' "
    $dpo -s learn ppo_epochs=12 -o m.dp
    $dpo -s learn --from v1 ppo_mini_batch_size=24 optim.lr=0 -o after.dp
    metric after.dp actor/rewards_accuracies
    [ \$(metric after.dp actor/rewards_accuracies) = 1 ]
    awk -v l=\$(metric after.dp actor/dpo_loss) 'BEGIN { exit !(l < 0.6) }'"
ok 'weights are bit-equal for every cut: a pair is never divided' "
    $dpo -s ref ppo_epochs=2 shuffle=true -o ref.out
    for cut in '--micro-batch 1' '--micro-batch 5 --threads 2' '--micro-batch 48' \
        'ppo_max_token_len_per_gpu=3' '--recompute --micro-batch 2'; do
        rm -rf s
        $dpo -s s ppo_epochs=2 shuffle=true \$cut -o x.out
        cmp s/current/params.safetensors ref/current/params.safetensors
        cmp x.out ref.out
    done"
ok 'rows may lie anywhere: the order of rows in a pair does not show' "
    verl-batch reorder -q \$(seq -s, 0 23),\$(seq -s, 29 52),\$(seq -s, 24 28) -i pairs.dp -o moved.dp
    rm -rf s && $dpo -s s -i moved.dp -o x.out 2>/dev/null || verl-update -q --role dpo -m m -i moved.dp -s s \
        optim.lr=2e-3 ppo_mini_batch_size=8 -o x.out
    rm -rf t
    $dpo -s t -o y.out
    equal \"\$(hash_of s)\" \"\$(hash_of t)\""
ok 'every loss and form runs and differs' "
    rm -f hashes
    for o in dpo_loss_type=sigmoid dpo_loss_type=ipo dpo_loss_type=hinge dpo_loss_type=sppo \
        dpo_label_smoothing=0.2 dpo_beta=1 reference_free=true dpo_rpo_alpha=1 dpo_length_norm=true \
        'reference_free=true dpo_length_norm=true dpo_gamma=0.5 dpo_beta=2'; do
        rm -rf s
        $dpo -s s \$o -o x.dp
        hash_of s >>hashes
    done
    [ \$(sort -u hashes | wc -l) = 10 ]
    verl-batch drop -q -k ref_log_prob -i pairs.dp -o noref.dp
    rm -rf s
    verl-update -q --role dpo -m m -s s -i noref.dp reference_free=true -o x.dp
    exits 65 verl-update --role dpo -m m -s s2 -i noref.dp -o x.dp 2>err
    grep -q 'verl-logprob --as ref' err"
ok 'the schedule advances by steps, over one call; a killed run goes on to the same bits' "
    line='$dpo ppo_epochs=2 optim.lr_scheduler_type=cosine optim.lr_warmup_steps=2 trainer.save_freq=2'
    kill_at state-linked \$line -s part -o x.dp
    kill_at state-linked \$line -s part -o x.dp
    jq -e '.progress.step == 2 and .schedule_position == 2' part/current/state.json
    \$line -s part -o x.dp
    \$line -s whole -o y.dp
    equal \"\$(hash_of part)\" \"\$(hash_of whole)\"
    cmp x.dp y.dp
    jq -e '.schedule_position == 6 and .total_steps == 6' part/current/state.json"
ok 'pairs that are none are refused by row' "
    bad() { verl-dump pairs.dp | jq -c \"\$1\" | verl-batch from-json -q --like pairs.dp -o bad.dp
        exits 65 verl-update --role dpo -m m -s bad -i bad.dp -o x.dp 2>err; }
    bad 'if .uid == \"0-3\" and .sample == 1 then .preference = 1 else . end'
    grep -q 'row 3 (uid \"0-3\") and row 32 (uid \"0-3\"): preference is 1 in both' err
    bad 'if .uid == \"0-3\" and .sample == 1 then .preference = -1 else . end'
    grep -q 'row 3 (uid \"0-3\"): preference is 1, but no row of its uid has 0' err
    bad 'if .uid == \"0-3\" and .sample == 1 then .preference = 7 else . end'
    grep -q 'preference is 7; it must be 1' err
    bad '.preference = -1'
    grep -q 'nothing to learn from' err
    exits 65 verl-update --role dpo -m m -s bad -i old.dp -o x.dp 2>err || exits 66 verl-update --role dpo -m m -s bad -i old.dp -o x.dp
    exits 64 verl-update --role dpo -m m -s bad -i pairs.dp dpo_loss_type=kto -o x.dp 2>err
    grep -q sigmoid err
    verl-update --role dpo -m m -s s3 -i pairs.dp dpo_loss_type=ipo dpo_label_smoothing=0.1 -o x.dp 2>err
    grep -q 'dpo_label_smoothing has no effect' err"
ok 'an empty response takes its pair out, told' "
    verl-dump pairs.dp | jq -c 'if .uid == \"0-3\" and .sample == 1 then .response_mask |= map(0) else . end' |
        verl-batch from-json -q --like pairs.dp -o empty.dp
    verl-update --role dpo -m m -s em -i empty.dp ppo_mini_batch_size=24 optim.lr=1e-3 -o x.dp 2>err
    grep -q '1 pairs left out' err
    [ \$(metric x.dp actor/rows) = 46 ]"
ok 'verl-batch pairs: best and worst of each prompt, all-equal groups dropped and counted' "
    {
        echo '{\"uid\":\"a\",\"sample\":0,\"score\":1}' '{\"uid\":\"b\",\"sample\":0,\"score\":2}'
        echo '{\"uid\":\"a\",\"sample\":1,\"score\":3}' '{\"uid\":\"a\",\"sample\":2,\"score\":3}'
        echo '{\"uid\":\"b\",\"sample\":1,\"score\":2}' '{\"uid\":\"c\",\"sample\":0,\"score\":5}'
        echo '{\"uid\":\"d\",\"sample\":0,\"score\":-1}' '{\"uid\":\"d\",\"sample\":1,\"score\":-2}'
    } | jq -c . | verl-batch from-json -q --dtype score=F32 --dtype sample=I64 -o g.dp
    verl-batch pairs --metric score -i g.dp -o gp.dp 2>err
    grep -q 'pairs: 2 of 4 prompts' err
    verl-dump gp.dp | jq -c '[.uid, .sample, .preference]' >got
    printf '%s\n' '[\"a\",1,1]' '[\"a\",0,0]' '[\"d\",0,1]' '[\"d\",1,0]' | cmp - got
    [ \$(metric gp.dp pairs/groups_all_equal) = 2 ]
    exits 64 verl-batch pairs -i g.dp -o x.dp 2>err
    grep -q 'name the values with --metric' err
    verl-dump g.dp | jq -c '.response_mask = [if .uid == \"d\" and .sample == 1 then 0 else 1 end] |
        .reward_error = if .uid == \"a\" and .sample == 0 then \"boom\" else null end | if .reward_error then .score = \"NaN\" else . end' |
        verl-batch from-json -q --like g.dp -o un.dp
    verl-batch pairs --metric score -i un.dp -o up.dp 2>err
    grep -q 'pairs: 0 of 4 prompts' err
    grep -q '2 rows without a score or a valid token' err"
done_testing
