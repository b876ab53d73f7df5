#!/bin/sh
# verl-eval: validation metrics and the metrics of a step, against recorded cases and by hand.
. "$(dirname "$0")/lib.sh"
GOLDEN=$REPO/tests/golden/algorithms/metrics.json
command -v jq >/dev/null || skip_all "jq is not installed"

# same GOT.json WANT.json: every member of WANT is in GOT within 1e-4 relative, 1e-5 absolute.
same() {
    jq -n --slurpfile g "$1" --slurpfile w "$2" '$g[0] as $g | $w[0] as $w
        | [$w | to_entries[] | select($g[.key] == null or
            ($g[.key] - .value | fabs) > 1e-5 + 1e-4 * (.value | fabs))] | (.[0:3] | debug), length == 0 and ($w | length) > 0' \
        2>&1 | tee same.log | tail -n 1 | grep -qx true || { cat same.log; return 1; }
}

for k in 0 1 2; do
    ok "validation: recorded case $k" "
        jq -c '.cases[] | select(.name == \"validation_$k\") | .inputs as \$i
            | range(\$i.sample_uids | length) as \$r
            | { uid: \$i.sample_uids[\$r], sample: \$r, data_source: \$i.data_sources[\$r],
                response_mask: [1], token_level_scores: [\$i.infos.reward[\$r]], acc: \$i.infos.acc[\$r] }
            + (if \$i.infos.pred then { pred: \$i.infos.pred[\$r] } else {} end)' $GOLDEN |
            verl-batch from-json --dtype pred=json -o val.dp
        verl-eval -i val.dp >got.json
        [ \$(wc -l <got.json) = 1 ]
        jq '.cases[] | select(.name == \"validation_$k\") | .outputs.logged' $GOLDEN >want.json
        same got.json want.json
        equal \"\$(jq length got.json)\" \"\$(jq length want.json)\""
done
ok "rows may lie in any order" "
    verl-dump val.dp | sort | verl-batch from-json --like val.dp | verl-eval >other.json
    jq -S 'with_entries(select(.key | contains(\"mean@\")))' got.json >x
    jq -S 'with_entries(select(.key | contains(\"mean@\")))' other.json >y
    cmp x y"
ok "--var takes one variable, a missing one is 65" "
    verl-eval --var acc -i val.dp >one.json
    jq -e 'all(keys[]; contains(\"/acc/\"))' one.json
    exits 65 verl-eval --var nope -i val.dp 2>err; grep -q nope err"
ok "--pass is the unbiased pass@k, --stderr the error over prompts; without them the names are verl's" "
    awk 'BEGIN { for (p = 0; p < 3; p++) for (i = 0; i < 5; i++)
        printf \"{\\\"uid\\\":\\\"p%d\\\",\\\"sample\\\":%d,\\\"token_level_scores\\\":[%d],\\\"acc\\\":%d}\\n\", p, i, i < p, i < p }' |
        verl-batch from-json --dtype acc=F32 -o five.dp
    verl-eval -i five.dp >plain.json
    verl-eval --pass --stderr --var acc -i five.dp >pass.json
    # 0, 1, 2 right of 5: pass@1 = 0, 0.2, 0.4; pass@2 = 0, 0.4, 1 - C(3,2)/C(5,2) = 0.7; pass@4 = 0, 0.8, 1
    jq -e '(.\"val-aux/unknown/acc/pass@1\" - 0.2 | fabs) < 1e-12 and (.\"val-aux/unknown/acc/pass@2\" - 1.1 / 3 | fabs) < 1e-12 and
        (.\"val-aux/unknown/acc/pass@4\" - 0.6 | fabs) < 1e-12 and (.\"val-aux/unknown/acc/pass@5\" - 2 / 3 | fabs) < 1e-12 and
        (.\"val-aux/unknown/acc/mean@5/stderr\" - 0.2 / (3 | sqrt) | fabs) < 1e-12' pass.json
    jq -e 'keys | all(test(\"pass|stderr\") | not)' plain.json"
ok "a row without a score counts as 0, as in verl, and is told; --skip-unscored leaves it out" "
    printf '%s\\n' '{\"uid\":\"a\",\"sample\":0,\"token_level_scores\":[0,1],\"acc\":1,\"reward_error\":null}' \
        '{\"uid\":\"b\",\"sample\":0,\"token_level_scores\":[0,0],\"acc\":\"NaN\",\"reward_error\":\"no valid token\"}' |
        verl-batch from-json --dtype acc=F32 --dtype reward_error=json -o half.dp
    verl-eval -i half.dp >half.json 2>err
    grep -q 'warning: 1 of 2 rows have no score: they count as 0' err
    jq -e '.\"val-core/unknown/acc/mean@1\" == 0.5 and .\"val-aux/unknown/reward/mean@1\" == 0.5' half.json
    verl-eval --skip-unscored -i half.dp | jq -e '.\"val-core/unknown/acc/mean@1\" == 1'
    verl-batch slice 1: -i half.dp -o none.dp; exits 65 verl-eval -i none.dp 2>err"
ok "a batch without scores is 65" "
    verl-batch drop -k token_level_scores,acc -i val.dp -o none.dp
    exits 65 verl-eval -i none.dp 2>err; grep -q verl-reward err"
ok "other operands are 64, a full disk 74" "
    exits 64 verl-eval val.dp; exits 64 verl-eval metrics
    exits 74 verl-eval -i val.dp >/dev/full"

# step CASE: the files of a step from a recorded case of data_metrics
step() {
    rm -rf step
    mkdir step
    jq -c --arg n "$1" '.cases[] | select(.name == $n) | .inputs as $i
        | (($i.attention_mask[0] | length) - ($i.responses[0] | length)) as $P
        | range($i.responses | length) as $r
        | { uid: "p\($r)", sample: 0, prompts: [range($P) | 1], responses: $i.responses[$r],
            attention_mask: $i.attention_mask[$r], response_mask: $i.response_mask[$r],
            token_level_scores: $i.token_level_scores[$r],
            token_level_rewards: $i.token_level_rewards[$r], advantages: $i.advantages[$r],
            returns: $i.returns[$r], values: ($i.values[$r]? // [range(0)]) }
        + (if $i.__num_turns__ then { __num_turns__: $i.__num_turns__[$r] } else {} end)' \
        "$GOLDEN" | verl-batch from-json --dtype prompts=I64 | verl-batch set-meta global_steps 7 -o all.dp
    id=uid,sample
    gen=$id,prompts,responses,attention_mask,response_mask
    if verl-dump --schema all.dp | grep -q __num_turns__; then gen=$gen,__num_turns__; fi
    verl-batch select -k $gen --meta global_steps -i all.dp -o step/gen.dp
    verl-batch slice :1 -i step/gen.dp | verl-batch select -k $id,prompts --meta global_steps -o step/prompts.dp
    verl-batch select -k $id,token_level_scores --meta global_steps -i all.dp -o step/reward.dp
    verl-batch select -k $id,values --meta global_steps -i all.dp -o step/values.dp
    verl-batch select -k $id,token_level_rewards,advantages,returns --meta global_steps -i all.dp |
        verl-batch set-meta metrics '{"actor/grad_norm": [1, 2], "x/max": [1, 4], "keep": 1}' \
            -o step/adv.dp
}
want() { jq --arg n "$1" '.cases[] | select(.name == $n) | .outputs.metrics' "$GOLDEN" >want.json; }

for k in 0 1 2; do
    ok "data metrics of a step: recorded case $k" "
        step data_${k}_critic1
        verl-eval metrics step >got.json
        [ \$(wc -l <got.json) = 1 ]
        want data_${k}_critic1; same got.json want.json
        jq -e '.\"training/global_step\" == 7 and .keep == 1 and .\"actor/grad_norm\" == 1.5 and .\"x/max\" == 4' got.json"
    ok "without a critic: no values, recorded case $k" "
        rm step/values.dp
        verl-eval metrics step >got.json
        want data_${k}_critic0; same got.json want.json
        jq -e 'has(\"critic/values/mean\") | not' got.json"
done
ok "a row without a score is in no metric of scores, advantages, returns; its length counts" "
    step data_0_critic1
    verl-eval metrics step >all.json
    verl-dump step/reward.dp | jq -c 'if .sample == 0 and .uid == \"p1\" then .reward_error = \"boom\" | .token_level_scores |= map(100)
        else .reward_error = null end' | verl-batch from-json -q --like step/reward.dp -o r.dp
    verl-dump step/adv.dp | jq -c 'if .uid == \"p1\" then .advantages |= map(100) | .returns |= map(100) | .token_level_rewards |= map(100)
        else . end' | verl-batch from-json -q --like step/adv.dp -o a.dp
    mv r.dp step/reward.dp; mv a.dp step/adv.dp
    verl-eval metrics step >got.json
    jq -e '[.\"critic/score/max\", .\"critic/rewards/max\", .\"critic/advantages/max\", .\"critic/returns/max\"] | max < 100' got.json
    jq -e --slurpfile all all.json '.\"response_length/mean\" == \$all[0].\"response_length/mean\" and
        .\"critic/values/mean\" == \$all[0].\"critic/values/mean\" and .\"critic/vf_explained_var\" != \$all[0].\"critic/vf_explained_var\"' got.json"
ok "times: recorded, by option and by timing.json" "
    step data_0_critic1
    t=\$(jq -r '.cases[] | select(.name == \"timing_0\") | .inputs.timing_raw | to_entries[] | \"--timing \\(.key)=\\(.value)\"' $GOLDEN)
    verl-eval metrics step --devices 2 \$t >got.json
    want timing_0; same got.json want.json
    want throughput_0; same got.json want.json
    jq '.cases[] | select(.name == \"timing_0\") | .inputs.timing_raw' $GOLDEN >step/timing.json
    verl-eval metrics step --devices 2 >other.json; cmp got.json other.json
    exits 64 verl-eval metrics step --timing gen 2>err; grep -q gen=1.5 err"
ok "a later stage's metric stands, and a rejected mask is the one that counts" "
    verl-batch set-meta -i step/reward.dp metrics '{\"keep\": 5, \"only/reward\": 2}' -o step/reward.dp
    verl-eval metrics step | jq -e '.keep == 1 and .\"only/reward\" == 2'"
ok "files of different steps are 65, a damaged file is 65, an empty directory 66" "
    verl-batch set-meta -i step/reward.dp global_steps 8 -o step/reward.dp
    exits 65 verl-eval metrics step 2>err; grep -q 'of step' err
    step data_0_critic1
    head -c 300 step/adv.dp >cut
    mv cut step/adv.dp
    exits 65 verl-eval metrics step 2>err; grep -q adv.dp err
    mkdir nothing; exits 66 verl-eval metrics nothing; exits 66 verl-eval metrics nowhere"
ok "a file with other rows than the update saw is needed for nothing, or what it had is left out, said" "
    step data_0_critic1
    cp step/adv.dp whole.dp
    verl-batch slice 1: -i step/values.dp -o step/values.dp
    verl-eval metrics step >got.json 2>err
    grep -q 'values.dp: .* rows.*; metrics of values are left out' err
    jq -e 'has(\"critic/values/mean\") | not' got.json
    jq -e 'has(\"critic/score/mean\")' got.json
    verl-dump -k uid,sample step/values.dp | verl-batch from-json | verl-batch set-meta global_steps 7 -o step/values.dp
    verl-eval -q metrics step >got.json 2>err
    [ ! -s err ]"
ok "log-probs: entropy, off-policy metrics and probability differences" "
    step data_0_critic1
    verl-dump step/gen.dp | jq -c '{uid, sample, old_log_probs: [.response_mask[] | . * -1],
        entropys: [.response_mask[] | . * 0.5], rollout_log_probs: [.response_mask[] | . * -1]}' |
        verl-batch from-json -o step/old_log_prob.dp
    verl-eval metrics step >got.json
    jq -e '(.\"actor/entropy\" - 0.5 | fabs) < 1e-12 and .\"training/rollout_probs_diff_max\" == 0 and .\"rollout_corr/kl\" == 0' got.json"
ok "--pred names a column that is there" "
    exits 65 verl-eval -i val.dp --pred nope 2>err; grep -q 'no column nope' err"
done_testing
