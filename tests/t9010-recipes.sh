#!/bin/sh
# The example drivers on a small model: every file of a step, restarts, single stages again, and
# stages replaced by other programs.
. "$(dirname "$0")/lib.sh"

ex=$REPO/examples
book=$ex/addition
cp -r "$book" book
awk -f "$book/textbook.awk" -v kind=train | head -n 400 >train.jsonl
sed -i 's/"hidden_size": 128/"hidden_size": 32/; s/"intermediate_size": 352/"intermediate_size": 64/' book/config.json
small="data.train_batch_size=8 rollout.n=4 actor_rollout_ref.actor.ppo_mini_batch_size=4 actor_rollout_ref.actor.optim.lr_warmup_steps=0"
export MODEL=model DATA=train.jsonl CONFIG=book/grpo.yaml STEPS=2
# any answer of three digits is half right: there is something to learn for a random model
half="verl-reward --jq '(.solution_str | length) / 4'"

ok 'a model' 'verl-model init -q book/config.json --tokenizer book --std 0.3 -o model'
ok 'GRPO: two steps' 'REWARD=$half RUN=g $ex/grpo.sh $small'
ok 'every file of each step is there, with its log and command line' '
    for s in 000001 000002; do
        for f in prompts gen reward old_log_prob adv update_actor; do
            verl-dump --check -q g/step_$s/$f.dp >/dev/null
            test -s g/step_$s/$f.cmd
            test -e g/step_$s/$f.log
        done
    done
    test "$(wc -l <g/metrics.jsonl)" = 2
    jq -es "length > 0 and all(.\"actor/grad_norm\" > 0 and .\"timing_s/gen\" > 0)" g/metrics.jsonl'
ok 'versions are those of the steps' '
    test "$(readlink g/actor/current)" = v000002
    test "$(readlink g/rollout/current)" = v000002
    test "$(cat g/step_000002/policy.version)" = g/rollout/v000001'

for f in prompts gen reward old_log_prob adv update_actor; do
    ok "$f.dp deleted and made again alone: the same bytes" '
        cp g/step_000002/$f.dp was.dp
        rm g/step_000002/$f.dp
        sh g/step_000002/$f.cmd
        cmp was.dp g/step_000002/$f.dp'
done
ok 'the update applied once' 'test "$(readlink g/actor/current)" = v000002'
ok 'an update of an earlier step, alone: the same bytes and weights beside current, which stays' '
    REWARD=$half RUN=e KEEP=9 $ex/grpo.sh $small
    cp e/step_000001/update_actor.dp was.dp
    sh e/step_000001/update_actor.cmd 2>err
    cmp was.dp e/step_000001/update_actor.dp
    grep -q "e/actor/v000003: published" err
    grep -q "e/actor/current stays v000002" err
    cmp e/actor/v000001/params.safetensors e/actor/v000003/params.safetensors
    sh e/step_000001/update_actor.cmd 2>err
    grep -q "nothing to do: e/actor/v000003" err
    cmp was.dp e/step_000001/update_actor.dp
    test "$(readlink e/actor/current)" = v000002
    REWARD=$half RUN=e KEEP=9 STEPS=3 $ex/grpo.sh $small
    test "$(readlink e/actor/current)" = v000004
    test "$(jq -r .parent e/actor/v000004/state.json)" = v000002'
ok 'DATASET is the filter of verl-data, in the settings and in a single stage' '
    exits 65 env DATASET=gsm8k RUN=ds $ex/grpo.sh $small 2>err
    grep -q "train.jsonl:[0-9]*: no row of --dataset gsm8k" err
    grep -q -- "--dataset gsm8k" ds/step_000001/prompts.cmd
    grep -qx DATASET=gsm8k ds/settings
    for d in sft dpo; do
        exits 65 env DATASET=alpaca RUN=ds$d $ex/$d.sh 2>err
        grep -q "no row of --dataset alpaca" err
    done'
ok 'KL is short for a coefficient, and does not hide another' '
    exits 64 env KL=0.1 REWARD="$half" RUN=k2 $ex/grpo.sh $small actor_rollout_ref.actor.kl_loss_coef=0.02 2>err
    grep -q "KL=0.1, but the settings have kl_loss_coef 0.02" err
    REWARD=$half RUN=k2 KL=0.1 STEPS=1 $ex/grpo.sh $small actor_rollout_ref.actor.kl_loss_coef=1.0e-1
    test -e k2/step_000001/ref.dp'

ok 'a driver started again finds its work done' '
    ls -l --time-style=full-iso g/step_000002/*.dp >before
    REWARD=$half RUN=g $ex/grpo.sh $small
    ls -l --time-style=full-iso g/step_000002/*.dp | cmp before -'
ok 'under other settings it says which, once' '
    REWARD="verl-reward --jq 1" RUN=g $ex/grpo.sh $small rollout.n=5 2>err
    grep -q "warning: g goes on with other settings" err
    grep -qx "> rollout.n=5" err
    REWARD="verl-reward --jq 1" RUN=g $ex/grpo.sh $small rollout.n=5 2>err
    not grep warning err
    REWARD="verl-reward --jq 1" RUN=g LAUNCH="verl-mpi 2" $ex/grpo.sh $small rollout.n=5 2>err
    not grep warning err'
ok 'the script of a stage works in any directory' '
    cp g/step_000002/gen.dp was.dp
    rm g/step_000002/gen.dp
    (cd / && PATH=/usr/bin:/bin sh "$T/g/step_000002/gen.cmd")
    cmp was.dp g/step_000002/gen.dp'
ok 'weights that are not kept any more are named' '
    mv g/step_000001/gen.dp was.dp
    rc=0; sh g/step_000001/gen.cmd 2>err || rc=$?
    mv was.dp g/step_000001/gen.dp
    cat err
    test $rc = 66
    grep -q "rollout/v000000: .*current is v000002" err'
ok 'KEEP keeps them' '
    REWARD=$half RUN=kept KEEP=9 STEPS=3 $ex/grpo.sh $small
    cp kept/step_000001/gen.dp was.dp
    rm kept/step_000001/gen.dp
    sh kept/step_000001/gen.cmd
    cmp was.dp kept/step_000001/gen.dp
    test -d kept/actor/v000000'
ok 'drivers explain themselves' '
    $ex/grpo.sh --help | grep -q CONFIG
    $ex/ppo.sh --help | grep -q CRITIC
    rc=0; MODEL= $ex/grpo.sh 2>err || rc=$?
    test $rc = 64
    grep -q "MODEL=dir and DATA" err
    rc=0; STEPS=x RUN=n $ex/grpo.sh 2>err || rc=$?
    test $rc = 64
    grep -q "STEPS is .x." err
    rc=0; REWARD=true STEPS=1 RUN=n $ex/grpo.sh $small 2>err || rc=$?
    test $rc = 65
    grep -q "wrote nothing" err'
ok 'warnings of stages are shown' '
    REWARD="verl-reward --jq 1" RUN=w STEPS=1 $ex/grpo.sh $small 2>err; grep -q "warning: every advantage is 0" err'
ok '89: cut off in the middle of a step, it goes on to the same result' '
    REWARD=$half RUN=h VL_STOP_AT=stage-write timeout -s KILL 3 $ex/grpo.sh $small || :
    pkill -KILL -P 1 -f "$T/h" || :
    REWARD=$half RUN=h $ex/grpo.sh $small
    for s in 000001 000002; do
        for f in prompts gen reward old_log_prob adv update_actor; do
            cmp g/step_$s/$f.dp h/step_$s/$f.dp
        done
    done'
ok 'two ranks: the same samples and log-probs' '
    REWARD=$half RUN=r STEPS=1 LAUNCH="verl-mpi 2" $ex/grpo.sh $small
    for f in prompts gen reward old_log_prob adv; do cmp g/step_000001/$f.dp r/step_000001/$f.dp; done'

ok 'validation on held-out rows, the last step included' '
    awk -f "$book/textbook.awk" -v kind=heldout | head -n 20 >val.jsonl
    VAL=val.jsonl VAL_EVERY=5 REWARD=$half RUN=v $ex/grpo.sh $small
    jq -es "(.[0] | has(\"val-core/exact/acc/mean@1\") | not) and .[1].\"val-core/exact/acc/mean@1\" >= 0 and
        .[1].\"timing_s/testing\" > 0" v/metrics.jsonl
    cmp g/step_000002/update_actor.dp v/step_000002/update_actor.dp
    VAL_EVERY=0 exits 64 $ex/grpo.sh 2>err; grep -q VAL_EVERY=10 err'
ok 'PPO: two steps with a critic' '
    REWARD=$half RUN=p $ex/ppo.sh $small critic.ppo_mini_batch_size=4
    for f in prompts gen reward old_log_prob values adv update_critic update_actor; do
        verl-dump --check -q p/step_000002/$f.dp >/dev/null
    done
    jq -es "last | .\"critic/vf_loss\" > 0" p/metrics.jsonl'
ok 'GRPO with a KL loss to the first model' '
    REWARD=$half KL=0.01 RUN=k $ex/grpo.sh $small
    jq -es "last | .\"actor/kl_loss\" >= 0" k/metrics.jsonl'

cat >own.sh <<'X'
#!/bin/sh
# a whole stage in jq: the score is the share of valid tokens that are the digit 5
while getopts i:o: o; do case $o in i) in=$OPTARG ;; o) out=$OPTARG ;; esac; done
verl-dump "$in" | jq -c '. as $r | (.response_mask | add) as $n |
    (reduce range($n) as $t (0; if $r.responses[$t] == 5 then . + 1 / $n else . end)) as $s |
    . + {token_level_scores: [range(.response_mask | length) | if . == $n - 1 then $s else 0 end]}' |
    verl-batch from-json --like "$in" --dtype token_level_scores=F32 -o "$out"
X
chmod +x own.sh
# The README's blocks as they stand there
mkdir readme
sed -n '/^    data: {/,/^      actor: {/s/^    //p' "$REPO/README.md" | sed 's/train_batch_size: 64/train_batch_size: 8/; s/max_response_length: 128/max_response_length: 4/' >readme/run.yaml
sed -n '/^    M=$RUN/,/^    verl-sync/p' "$REPO/README.md" >readme/step.sh
awk '/^    #!\/bin\/sh/ { on = 1 } !/^    / { on = 0 } on' "$REPO/README.md" | sed 's/^    //' >readme/own.sh
awk '/^    #!.*python3/ { on = 1 } !/^    [^ ]/ && !/^     / { on = 0 } on' "$REPO/README.md" | sed 's/^    //' >readme/score.py
chmod +x readme/own.sh readme/score.py
ok 'the step of the README' '
    cp train.jsonl readme
    cd readme
    verl-sync -q -m ../model -s r/actor -o r/rollout
    RUN=r step=1 sh -e step.sh
    test "$(readlink r/rollout/current)" = v000001'
ok 'its reward stage' 'REWARD=readme/own.sh RUN=readme/o STEPS=1 $ex/grpo.sh $small
    verl-dump readme/o/step_000001/reward.dp | jq -es "length > 0 and all((.token_level_scores | add) * 100 - (.response_text | length) | fabs < 1e-4)"'
if command -v python3 >/dev/null 2>&1; then
    ok 'its scorer' 'REWARD="verl-reward --command readme/score.py" RUN=readme/p STEPS=1 $ex/grpo.sh $small'
else
    skip 'no python3: the scorer of the README'
fi

ok 'a reward stage of one'\''s own' 'REWARD=./own.sh RUN=o STEPS=1 $ex/grpo.sh $small
    verl-dump o/step_000001/reward.dp | jq -es "[.[].token_level_scores | add] | add > 0"'
if command -v python3 >/dev/null 2>&1; then
    ok 'an outside generator in the place of verl-rollout' '
        ROLLOUT=$ex/outside_rollout.sh REWARD=$half RUN=x STEPS=2 $ex/grpo.sh $small
        test "$(readlink x/actor/current)" = v000002
        verl-dump x/step_000001/gen.dp | jq -es "length == 32"'
else
    skip 'no python3: outside generator'
fi

if [ -n "$SHARED" ]; then
    ok 'stories260k on GSM8K: three steps' '
        MODEL=$SHARED/data/models/stories260k DATA=$SHARED/data/datasets/gsm8k/train.jsonl STEPS=3 RUN=s CONFIG= \
        MAP="{prompt: .question, data_source: \"openai/gsm8k\", reward_model: {style: \"rule\", ground_truth: (.answer | split(\"#### \")[1] | gsub(\",\"; \"\"))}}" \
        $ex/grpo.sh data.train_batch_size=4 rollout.n=2 actor_rollout_ref.actor.ppo_mini_batch_size=4 \
            data.max_prompt_length=384 data.max_response_length=24
        for s in 1 2 3; do
            for f in prompts gen reward old_log_prob adv update_actor; do test -s s/step_00000$s/$f.dp; done
        done
        cp s/step_000003/gen.dp was.dp
        rm s/step_000003/gen.dp
        sh s/step_000003/gen.cmd
        cmp was.dp s/step_000003/gen.dp'
else
    skip 'stories260k on GSM8K: no shared data'
fi
done_testing
