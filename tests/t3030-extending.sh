#!/bin/sh
# verl-extending(7): its estimator, as the page prints it, is put into a copy of the tree and built.
. "$(dirname "$0")/lib.sh"
page=$REPO/man/verl-extending.7
block() { # NAME: the lines of the block behind `.\" test: NAME`
    awk -v want="$1" '$0 == ".\\\" test: " want { on = 1 } on && /^\.Ed/ { exit } on > 1 { print } on && /^\.Bd/ { on = 2 }' "$page" |
        sed 's/\\e$/\\/'
}
cat >rows.jsonl <<'X'
{"uid":"a","sample":0,"response_mask":[1,1,1],"token_level_scores":[0,0,1],"score":1}
{"uid":"b","sample":0,"response_mask":[1,1,0],"token_level_scores":[0,0.5,0],"score":0.5}
{"uid":"a","sample":1,"response_mask":[1,0,0],"token_level_scores":[0,0,0],"score":0}
{"uid":"a","sample":2,"response_mask":[1,1,0],"token_level_scores":[0,0,0],"score":0}
X
verl-batch from-json --dtype score=F32 rows.jsonl -o reward.dp

ok 'the estimator is one function and one line, under 40 lines' '
    block function >function
    block line >line
    cat function line
    [ $(cat function line | wc -l) -lt 40 ]
    [ $(grep -c "^}" function) = 1 ]
    [ $(grep -c "{" line) = 1 ]'
if command -v make >/dev/null && [ -f "$BUILD/libverl.a" ] && [ -f "$BUILD/cmd/verl-advantage.o" ]; then
    ok 'put into a copy of the tree it builds, and verl-advantage has it' '
        mkdir tree tree/build
        cp -rp "$REPO"/cmd "$REPO"/libverl "$REPO"/formats "$REPO"/kernels "$REPO"/tests "$REPO"/Makefile "$REPO"/VERSION tree
        [ ! -e "$REPO/config.mk" ] || cp -p "$REPO/config.mk" tree
        for part in cmd libverl formats kernels; do cp -rp "$BUILD/$part" tree/build; done
        a=tree/libverl/algo/advantage.c
        awk "/^static const struct vl_adv_estimator estimators/ { while ((getline l < \"function\") > 0) print l; print \"\"; on = 1 }
            on && /^};/ { while ((getline l < \"line\") > 0) print l; on = 0 } { print }" $a >new.c
        mv new.c $a
        make -C tree BUILD=build DEV=1 build/bin/verl-advantage
        PATH=$PWD/tree/build/bin:$PATH
        verl-advantage --help | grep -q "grpo_by_mean *(s - mean) / (mean + 1e-6)"
        verl-advantage -e grpo_by_mean -i reward.dp -o adv.dp 2>err
        cat err
        grep -q "gives it 0\|gives such a row 0" err
        verl-dump -k advantages adv.dp | jq -cs "map(.advantages | map(. * 1000 | round)) == [[2000, 2000, 2000], [0, 0, 0], [-1000, 0, 0], [-1000, -1000, 0]]" | grep -qx true'
    ok 'its line is tested with the others: padding, order, NaN, rows left out, equal scores' '
        make -C tree BUILD=build DEV=1 build/tests/test_advantage
        tree/build/tests/test_advantage'
    ok 'a policy loss, too: one function and one line, trained with and tested with the others' '
        block loss >function
        block "loss line" >line
        cat function line
        p=tree/libverl/algo/loss_policy.c
        awk "/^static const struct vl_pg_loss losses/ { while ((getline l < \"function\") > 0) print l; print \"\"; on = 1 }
            on && /^};/ { while ((getline l < \"line\") > 0) print l; on = 0 } { print }" $p >new.c
        mv new.c $p
        make -C tree BUILD=build DEV=1 build/bin/verl-update build/tests/test_loss
        tree/build/tests/test_loss
        . "$REPO/tests/toy.sh"
        toy_model m
        toy_batch b.dp 12 1
        verl-logprob -q -m m -i b.dp -o old.dp
        tree/build/bin/verl-update -q -m m -s s -i old.dp policy_loss.loss_mode=unclipped ppo_mini_batch_size=12 -o x.dp
        [ "$(metric x.dp actor/ppo_kl)" = 0 ]'
else
    skip 'no make, or the objects of the build are not here'
fi
ok 'the estimator in jq' '
    block median.sh >median.sh
    sh -e median.sh
    verl-dump -k uid,advantages adv.dp | jq -cs "map([.uid, .advantages])" | grep -qxF "[[\"a\",[1,1,1]],[\"a\",[0,0,0]],[\"a\",[0,0,0]],[\"b\",[0,0,0]]]"'
done_testing
