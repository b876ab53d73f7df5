#!/bin/sh
# The examples of the algorithms' pages run as they are printed, on a small model, and every
# algorithm has a page: formula, options, columns, an example.
. "$(dirname "$0")/lib.sh"

# ---- the files the examples name ----
book=$REPO/examples/addition
mkdir start && cd start || exit 1
ln -s "$REPO/examples" examples
cp -r "$book" book
sed -i 's/"hidden_size": 128/"hidden_size": 32/; s/"intermediate_size": 352/"intermediate_size": 64/' book/config.json
awk -f "$book/textbook.awk" -v kind=train | head -n 200 >train.jsonl
awk -f "$book/textbook.awk" -v kind=sft -v rows=32 >sft.jsonl
jq -c '{prompt, chosen: .response, rejected: (.response + "1")}' sft.jsonl | head -n 8 >pairs.jsonl
sed 's/train_batch_size: 64/train_batch_size: 4/; s/n: 16/n: 4/; s/ppo_mini_batch_size: 32/ppo_mini_batch_size: 4/' book/grpo.yaml >run.yaml
# no default of these examples is the user's business: how long, and what is right
export STEPS=1 REWARD="verl-reward --jq '(.solution_str | length) >= 3'"
ok 'the files they name' '
    verl-model init -q book/config.json --tokenizer book --std 0.3 -o model
    verl-data -q -m model --step 1 -c run.yaml train.jsonl -o prompts.dp
    verl-rollout -q -m model -i prompts.dp -c run.yaml -o gen.dp
    sh -c "$REWARD -q -i gen.dp -o reward.dp"
    verl-logprob -q -m model -i reward.dp -o old_log_prob.dp
    verl-logprob -q --as ref -m model -i old_log_prob.dp -o ref.dp
    verl-update -q --role sft -m model -s run/actor -i gen.dp trainer.total_training_steps=1 data.train_batch_size=1 -o x.dp
    rm -r run x.dp
    verl-value -q -m model -i reward.dp -o values.dp
    verl-advantage -q -e gae -i values.dp -o v.dp
    rm values.dp
    verl-update -q --role critic -m model -s run/critic -i v.dp -o x.dp
    rm v.dp x.dp
    verl-value -q -m run/critic -i reward.dp -o values.dp
    verl-advantage -q -e grpo -i reward.dp -o adv.dp
    verl-rollout -q -m model -i prompts.dp -c run.yaml rollout.n=1 --temperature 0 | sh -c "$REWARD -q -o greedy.dp"
    verl-data -q -m model --all -c run.yaml train.jsonl | verl-batch slice -q :4 -o val.dp
    verl-rollout -q --validate -m model -c run.yaml rollout.n=2 -i val.dp | verl-reward -q -o scored.dp
    verl-sync -q -m model -s run/first -o run/rollout
    mkdir -p run/step_000012
    cp adv.dp run/step_000012'
cd ..

# examples PAGE: what stands in its section EXAMPLES between .Bd and .Ed
examples() {
    awk '/^\.Sh/ { on = $2 == "EXAMPLES" } on && /^\.Ed/ { code = 0; print "" } code { print } on && /^\.Bd/ { code = 1 }' "$1" |
        sed 's/\\e$/\\/; s/\\e/\\/g; s/\\-/-/g; s/\\(dq/"/g'
}
for p in verl-advantage verl-eval; do
    ok "$p(1): its examples run" "
        cp -rp start '$p'
        cd '$p'
        examples '$REPO/man/$p.1' >examples.sh
        cat examples.sh
        [ -s examples.sh ]
        sh -e examples.sh"
done
for page in "$REPO"/man/verl-*.7; do
    p=$(basename "$page" .7)
    grep -q '^\.Sh FORMULA' "$page" || continue
    ok "$p(7): description, formula, options, columns, examples" "
        for s in DESCRIPTION FORMULA OPTIONS COLUMNS EXAMPLES 'SEE ALSO'; do grep -q \"^\\.Sh \$s\" '$page' || { echo \"no section \$s\"; false; }; done
        awk 'length > 110 { print FILENAME \": \" FNR \": wide\"; bad = 1 } END { exit bad }' '$page'"
    ok "$p(7): its examples run" "
        cp -rp start '$p'
        cd '$p'
        examples '$page' >examples.sh
        cat examples.sh
        [ -s examples.sh ]
        sh -e examples.sh"
done

# ---- none is missing ----
documented() { # NAME...: each is in FORMULA or OPTIONS of some page
    for name; do
        awk '/^\.Sh/ { on = $2 == "FORMULA" || $2 == "OPTIONS" || $2 == "DESCRIPTION" } on' "$REPO"/man/verl-*.7 |
            grep -qw -e "$name" || { echo "no page says $name"; return 1; }
    done
}
ok 'every estimator has a page' '
    names=$(verl-advantage --help | sed -n "/^Estimators/,/^$/s/^  \([a-z_]*\) .*/\1/p")
    [ $(echo $names | wc -w) -ge 13 ]
    documented $names'
ok 'every policy loss has a page' '
    names=$(verl-update --print-config policy_loss.loss_mode=none 2>&1 | sed -n "s/.*expected \(.*\), for example.*/\1/p" | sed "s/ or / /" | tr -d ,)
    [ $(echo $names | wc -w) -ge 9 ]
    documented $names'
ok 'every page is in verl-algorithms(7), and what that names is there' '
    for page in "$REPO"/man/verl-*.7; do
        p=$(basename "$page" .7)
        [ -z "$(sed -n "/^\.Sh FORMULA/p" "$page")" ] || grep -q "^\.Xr $p 7\|Xr $p 7" "$REPO/man/verl-algorithms.7" || { echo "$p is not listed"; false; }
    done
    grep -o "Xr verl-[a-z-]* [157]" "$REPO"/man/verl-*.[157] | sed "s/.*Xr //" | sort -u | while read -r name section; do
        [ -e "$REPO/man/$name.$section" ] || echo "$name($section)"
    done >gone
    cat gone
    [ ! -s gone ]'
done_testing
