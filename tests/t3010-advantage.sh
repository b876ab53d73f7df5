#!/bin/sh
# verl-advantage on small batches: recorded cases through the program, KL state, refusals, ranks.
. "$(dirname "$0")/lib.sh"
GOLDEN=$REPO/tests/golden/algorithms
command -v jq >/dev/null || skip_all "jq is not installed"
run() { verl-advantage -q "$@"; }

# case_rows FILE NAME: the inputs of a recorded case as JSON lines.
case_rows() {
    jq -c --arg n "$2" '.cases[] | select(.name == $n) | .inputs as $i
        | ($i.token_level_rewards // $i.token_level_scores) as $s | ($s[0] | length) as $L
        | range($s | length) as $r
        | { uid: ($i.uid[$r]? // "u"), sample: $r, token_level_scores: $s[$r],
            response_mask: ($i.response_mask[$r]? // $i.attention_mask[$r][-$L:]) }
        + ($i | to_entries | map(select(.key | IN("values", "old_log_probs", "ref_log_prob",
            "sum_pi_squared", "reward_baselines"))) | map({ key, value: .value[$r] }) | from_entries)' \
        "$GOLDEN/$1.json"
}
# near BATCH COLUMN FILE NAME KEY: the column equals outputs.KEY within the stated tolerance.
near() {
    verl-dump -k "$2" "$1" | jq -s --arg c "$2" '[.[][$c]] | flatten' >got.json
    jq --arg n "$4" --arg k "$5" '[.cases[] | select(.name == $n) | .outputs[$k]] | flatten' \
        "$GOLDEN/$3.json" >want.json
    jq -n --slurpfile g got.json --slurpfile w want.json '
        ($g[0] | length) == ($w[0] | length) and
        all(range($w[0] | length); ($g[0][.] - $w[0][.] | fabs) <= 1e-5 + 1e-4 * ($w[0][.] | fabs))' |
        grep -qx true
}
metric() { verl-dump --meta "$1" | jq -r --arg k "$2" '.metrics[$k]'; }

for est in gae grpo grpo_vectorized reinforce_plus_plus reinforce_plus_plus_baseline remax rloo \
    rloo_vectorized opo gpg; do
    ok "$est: the recorded case" "
        case_rows advantage dispatch_$est | verl-batch from-json -o $est.dp
        run --as-verl -e $est gamma=0.97 lam=0.9 norm_adv_by_std_in_grpo=false -i $est.dp -o out.dp
        near out.dp advantages advantage dispatch_$est advantages
        near out.dp returns advantage dispatch_$est returns"
done
ok "grpo_passk: groups of one are refused, as recorded" "
    case_rows advantage dispatch_grpo_passk | verl-batch from-json -o passk.dp
    exits 65 run -e grpo_passk -i passk.dp -o no.dp 2>err
    grep -q 'needs at least 2' err; [ ! -e no.dp ]"
for est in optimal_token_baseline tir_optimal_token_baseline; do
    ok "$est works through the program (verl's driver fails on it)" "
        case_rows advantage ${est}_plain_tail1_0 | verl-batch from-json -o otb.dp
        run --as-verl -e $est -i otb.dp -o out.dp
        [ \$(verl-dump out.dp | wc -l) = 8 ]"
done
ok "tir_optimal_token_baseline: the recorded case" "
    near out.dp advantages advantage tir_optimal_token_baseline_plain_tail1_0 advantages"

ok "KL in the reward: the recorded case, metrics included" "
    case_rows kl kl_in_reward_0 | verl-batch from-json -o kl.dp
    run -e rloo use_kl_in_reward=true -i kl.dp -o out.dp
    near out.dp token_level_rewards kl kl_in_reward_0 token_level_rewards
    [ \$(metric out.dp actor/reward_kl_penalty_coeff) = 0.001 ]
    metric out.dp actor/reward_kl_penalty | grep -q '^-0.12485'"

ok "gdpo: components by column, weights, exactly 0 for equal rewards without whitening" "
    for r in 'a 0 1 0.5' 'a 1 0 0.25' 'b 0 1 7' 'b 1 1 7'; do
        set -- \$r
        echo '{}' | jq -c --arg u \$1 --argjson s \$2 --argjson a \$3 --argjson f \$4 '{ uid: \$u, sample: \$s,
            token_level_scores: [0, \$a], response_mask: [1, 1], acc: (\$a == 1), format: \$f }'
    done | verl-batch from-json --dtype format=F32 --dtype acc=json -o gdpo.dp
    run -e gdpo 'gdpo_reward_keys=[acc,format]' gdpo_whiten=false -i gdpo.dp -o out.dp
    verl-dump out.dp | jq -se '(.[0].advantages[0] - 1.41421 | fabs) < 1e-4 and .[2].advantages == [0, 0]'
    run -e gdpo 'gdpo_reward_keys=[acc,format]' 'gdpo_reward_weights=[1,0]' -i gdpo.dp -o one.dp
    run -e gdpo 'gdpo_reward_keys=[acc]' -i gdpo.dp -o two.dp
    verl-dump diff one.dp two.dp >d || true
    verl-dump -k advantages one.dp >one
    verl-dump -k advantages two.dp | cmp one -
    [ \$(metric out.dp gdpo/acc/mean) = 0.75 ]
    exits 64 run -e gdpo -i gdpo.dp -o x.dp 2>err; grep -q gdpo_reward_keys err
    exits 64 run -e gdpo 'gdpo_reward_keys=[acc]' 'gdpo_reward_weights=[1,2]' -i gdpo.dp -o x.dp
    exits 65 run -e gdpo 'gdpo_reward_keys=[tone]' -i gdpo.dp -o x.dp 2>err; grep -q 'no column tone' err"

ok "PF-PPO draws by the scores, not by rewards with KL, and no row without a score or a valid token" "
    for r in '0 0 1 -9 null' '1 2 1 0 null' '2 3 1 0 null' '3 -7 1 0 \"boom\"' '4 -8 0 0 null' '5 1 1 0 null'; do
        set -- \$r
        jq -nc --argjson s \$1 --argjson a \$2 --argjson m \$3 --argjson old \$4 --argjson e \"\$5\" '{ uid: \"u\\(\$s)\", sample: 0,
            token_level_scores: [\$a, 0], response_mask: [\$m, \$m], reward_error: \$e, values: [0, 0],
            old_log_probs: [\$old, \$old], ref_log_prob: [0, 0] }'
    done | verl-batch from-json --dtype token_level_scores=F32 --dtype values=F32 --dtype old_log_probs=F32 --dtype ref_log_prob=F32 -o pf.dp
    run -e gae use_pf_ppo=true pf_ppo.reweight_method=max_min use_kl_in_reward=true kl_coef=1 -i pf.dp -o out.dp
    verl-dump out.dp | jq -r .uid | sort -u | tr '\n' ' ' >got
    [ \"\$(cat got)\" = 'u0 u2 ' ]"
ok "remax: the greedy score is of its valid tokens; samples of one without a score are left out" "
    printf '%s\n' '{\"uid\":\"a\",\"sample\":0,\"token_level_scores\":[0.5,1],\"response_mask\":[1,1]}' \
        '{\"uid\":\"b\",\"sample\":0,\"token_level_scores\":[0.5,1],\"response_mask\":[1,1]}' | verl-batch from-json -o rm.dp
    printf '%s\n' '{\"uid\":\"a\",\"sample\":0,\"token_level_scores\":[0.25,\"NaN\"],\"response_mask\":[1,0],\"reward_error\":null}' \
        '{\"uid\":\"b\",\"sample\":0,\"token_level_scores\":[\"NaN\",0],\"response_mask\":[1,1],\"reward_error\":\"boom\"}' | verl-batch from-json -o greedy.dp
    run -e remax --baseline greedy.dp -i rm.dp -o out.dp 2>err
    verl-dump out.dp | jq -sce '[.[].advantages] == [[1.25, 0.75], [0, 0]]'
    grep -q '1 rows whose greedy response has no score' err"
ok "a number that is not finite at a valid token is refused by the column that has it" "
    for k in values old_log_probs ref_log_prob rollout_log_probs; do
        verl-dump pf.dp | jq -c --arg k \$k '.rollout_log_probs = .old_log_probs | if .uid == \"u1\" then .[\$k][1] = \"NaN\" else . end' |
            verl-batch from-json --like pf.dp --dtype rollout_log_probs=F32 -o nan.dp
        exits 65 run -e gae use_kl_in_reward=true rollout_is=token -i nan.dp -o x.dp 2>err
        grep -q \"uid \\\"u1\\\".*: \$k is nan at response token 1\" err
    done"

ok "73: an equal group among others: verl's whitening moves it off 0, whiten_mean=false leaves exactly 0" "
    for r in 'a 0 0.9' 'a 1 0.9' 'a 2 0.9' 'b 0 0' 'b 1 1'; do
        set -- \$r
        jq -nc --arg u \$1 --argjson s \$2 --argjson a \$3 '{ uid: \$u, sample: \$s, acc: \$a, token_level_scores: [0, \$a],
            response_mask: [1, (if \$s < 1 then 0 else 1 end)] } | .token_level_scores = if .response_mask[1] == 0 then [\$a, 0] else [0, \$a] end'
    done | verl-batch from-json --dtype acc=F32 --dtype token_level_scores=F32 -o eq.dp
    for e in reinforce_plus_plus_baseline gdpo; do
        run -e \$e 'gdpo_reward_keys=[acc]' -i eq.dp -o out.dp
        verl-dump out.dp | jq -se '.[0].advantages[0] != 0'
        run -e \$e 'gdpo_reward_keys=[acc]' whiten_mean=false -i eq.dp -o out.dp
        verl-dump out.dp | jq -se 'all(.[:3][]; .advantages | map(. == 0) | all) and .[3].advantages[0] < 0 and .[4].advantages[1] > 0'
    done
    verl-dump out.dp | jq -se '[.[3].advantages[0], .[4].advantages[0], .[4].advantages[1]] | (.[0] + .[1] | fabs) < 1e-6 and .[1] == .[2]'
    verl-advantage -e grpo whiten_mean=false -i eq.dp -o out.dp 2>err; grep -q 'whiten_mean=false has no effect' err"

# ---- the adaptive coefficient ----
case_rows kl kl_in_reward_1 | verl-batch from-json | verl-batch set-meta global_steps 1 -o one.dp
verl-batch set-meta -i one.dp global_steps 2 -o two.dp
adaptive() {
    run -e grpo use_kl_in_reward=true kl_penalty=low_var_kl kl_ctrl.type=adaptive kl_coef=0.2 \
        horizon=1000 target_kl=0.1 --kl-state kl "$@"
}
ok "adaptive: the recorded coefficient after one step, used in the next" "
    adaptive -i one.dp -o a.dp
    [ \$(metric a.dp actor/reward_kl_penalty_coeff) = 0.2 ]
    [ \$(jq .kl_coef kl/current/state.json) = 0.19988 ]
    adaptive -i two.dp -o b.dp
    metric b.dp actor/reward_kl_penalty_coeff | grep -q '^0.19988'
    [ \$(readlink kl/current) = v000001 ]"
ok "adaptive: a step run again counts once and gives the same bytes" "
    adaptive -i two.dp -o again.dp
    cmp b.dp again.dp; [ \$(readlink kl/current) = v000001 ]
    adaptive -i b.dp -o again.dp 2>err
    [ \$(readlink kl/current) = v000001 ]
    verl-dump diff b.dp again.dp"
ok "adaptive: an earlier step run again gives its bytes, one made anew goes on from the step before it" "
    rm -rf kl; for s in 1 2 3 4; do verl-batch set-meta -q global_steps \$s -i one.dp -o s\$s.dp; adaptive -i s\$s.dp -o r\$s.dp; done
    for s in 2 4 1 3; do adaptive -i s\$s.dp -o again.dp; cmp r\$s.dp again.dp; done
    [ \$(ls -d kl/v* | wc -l) = 4 ]
    verl-batch slice -q :2 -i s2.dp -o new2.dp
    adaptive -i new2.dp -o n2.dp
    equal \"\$(metric n2.dp actor/reward_kl_penalty_coeff)\" \"\$(metric r2.dp actor/reward_kl_penalty_coeff)\"
    [ \$(jq -c '[.parent, .step]' kl/current/state.json) = '[0,2]' ]
    verl-batch slice -q :2 -i s3.dp -o new3.dp
    adaptive -i new3.dp -o n3.dp
    equal \"\$(jq .before kl/current/state.json)\" \"\$(jq .kl_coef kl/v000004/state.json)\"
    rm -r kl/v000000
    verl-batch slice -q :1 -i s1.dp -o new1.dp
    exits 65 adaptive -i new1.dp -o n1.dp 2>err; grep -q 'no longer there' err
    rm -rf kl; adaptive -i one.dp -o a.dp; adaptive -i two.dp -o b.dp"
ok "adaptive: a lock that is held is 75, a kill leaves the state as it was" "
    before=\$(readlink kl/current)
    verl-batch set-meta -i one.dp global_steps 3 -o three.dp
    VL_STOP_AT=kl-written adaptive -i three.dp -o c.dp & pid=\$!
    for i in 1 2 3 4 5 6 7 8 9 10; do [ -z \"\$(ls -d kl/.aside-* 2>/dev/null)\" ] || break; sleep 0.1; done
    exits 75 adaptive -i three.dp -o d.dp 2>err
    stage=\$(cat kl/.lock); kill -9 \$stage; wait \$pid || :
    [ \$(readlink kl/current) = \$before ]; [ ! -e c.dp ]
    adaptive -i three.dp -o c.dp; [ \$(readlink kl/current) != \$before ]"

# ---- ReMax ----
cat >rows.jsonl <<'EOF'
{"uid":"a","sample":0,"response_mask":[1,1,1],"token_level_scores":[0,0,1]}
{"uid":"b","sample":0,"response_mask":[1,1],"token_level_scores":[0,0.5]}
{"uid":"a","sample":1,"response_mask":[1],"token_level_scores":[0]}
{"uid":"b","sample":1,"response_mask":[1,1,1,1],"token_level_scores":[0,0,0,0.25]}
EOF
verl-batch from-json rows.jsonl -o rows.dp
ok "remax: baselines by uid from the greedy batch" "
    printf '%s\n' '{\"uid\":\"b\",\"sample\":0,\"response_mask\":[1],\"token_level_scores\":[0.25]}' \
        '{\"uid\":\"a\",\"sample\":0,\"response_mask\":[1],\"token_level_scores\":[1]}' |
        verl-batch from-json -o greedy.dp
    run -e remax --baseline greedy.dp -i rows.dp -o out.dp
    [ \"\$(verl-dump -k reward_baselines out.dp | jq -c .reward_baselines | paste -sd' ' -)\" = '1 0.25 1 0.25' ]
    [ \"\$(verl-dump -k advantages out.dp | jq -c .advantages | sed -n 2p)\" = '[0.25,0.25,0,0]' ]
    exits 65 run -e remax -i rows.dp -o no.dp 2>err; grep -q -e --baseline err
    verl-batch slice :1 -i greedy.dp -o half.dp
    exits 65 run -e remax --baseline half.dp -i rows.dp -o no.dp 2>err
    grep -q 'row 0 (uid \"a\") has 0 rows' err
    exits 64 run -e grpo --baseline greedy.dp -i rows.dp -o no.dp 2>err"

# ---- rollout correction ----
ok "rollout correction: the recorded weights, mask and metrics" "
    jq -c '.cases[] | select(.name == \"corr_plain_30\") | .inputs as \$i
        | range(\$i.response_mask | length) as \$r
        | { uid: \"u\", sample: \$r, response_mask: \$i.response_mask[\$r],
            token_level_scores: (\$i.response_mask[\$r] | map(. * \$r)),
            old_log_probs: \$i.old_log_prob[\$r], rollout_log_probs: \$i.rollout_log_prob[\$r] }' \
        $GOLDEN/rollout_correction.json | verl-batch from-json -o rc.dp
    run -e rloo rollout_is=token rollout_rs=seq_mean_k1 rollout_rs_threshold=0.9_1.1 -i rc.dp -o out.dp
    near out.dp rollout_is_weights rollout_correction corr_plain_30 rollout_is_weights
    near out.dp response_mask rollout_correction corr_plain_30 modified_response_mask
    verl-dump --meta out.dp | jq -e --slurpfile w $GOLDEN/rollout_correction.json '
        (\$w[0].cases[] | select(.name == \"corr_plain_30\") | .outputs.metrics) as \$m | .metrics as \$g
        | all(\$m | keys[]; (\$g[.] - \$m[.] | fabs) <= 1e-3 + 1e-4 * (\$m[.] | fabs))'"
ok "rollout correction: rejected rows keep their score in the group; wrong specs are 64" "
    exits 64 run -e rloo rollout_rs=seq_max_k1 rollout_rs_threshold=2 -i rc.dp -o no.dp 2>err
    grep -q seq_max_k1 err
    exits 64 run -e rloo rollout_rs=token_k1 -i rc.dp -o no.dp 2>err
    exits 65 run -e rloo rollout_rs=token_k2 rollout_rs_threshold=1e-12 -i rc.dp -o no.dp 2>err
    grep -q 'rejects every token' err"

ok "weights of another program stay in the batch and enter the token baseline" "
    jq -c '.cases[] | select(.name == \"optimal_token_baseline_isw_tail0_0\") | .inputs as \$i
        | range(\$i.uid | length) as \$r
        | (\$i | map_values(.[\$r])) + { sample: \$r, token_level_scores: \$i.token_level_rewards[\$r] }
        | del(.token_level_rewards)' $GOLDEN/advantage.json | verl-batch from-json -o isw.dp
    verl-advantage --as-verl -e optimal_token_baseline -i isw.dp -o out.dp 2>err
    grep -q 'rollout_is_weights of the batch are kept' err
    near out.dp advantages advantage optimal_token_baseline_isw_tail0_0 advantages"

# ---- rules ----
ok "a reward under the mask does not count unless --as-verl, and is reported" "
    printf '%s\n' '{\"uid\":\"a\",\"sample\":0,\"response_mask\":[1,0],\"token_level_scores\":[0,1]}' \
        '{\"uid\":\"a\",\"sample\":1,\"response_mask\":[1,1],\"token_level_scores\":[0,0]}' |
        verl-batch from-json -o stray.dp
    run -e rloo -i stray.dp -o out.dp 2>err
    grep -q '1 rows have rewards at masked positions' err; grep -q 'every advantage is 0' err
    [ \"\$(verl-dump -k advantages out.dp | jq -c '.advantages[0]' | paste -sd' ' -)\" = '0 0' ]
    run -e rloo --as-verl -i stray.dp -o out.dp
    [ \"\$(verl-dump -k advantages out.dp | jq -c '.advantages[0]' | paste -sd' ' -)\" = '1 -1' ]"
ok "71: an empty row is in no group unless --as-verl; group sizes are printed" "
    printf '%s\n' '{\"uid\":\"a\",\"sample\":0,\"response_mask\":[1,1],\"token_level_scores\":[0,1]}' \
        '{\"uid\":\"a\",\"sample\":1,\"response_mask\":[0,0],\"token_level_scores\":[0,0]}' \
        '{\"uid\":\"a\",\"sample\":2,\"response_mask\":[1,0],\"token_level_scores\":[0,0]}' |
        verl-batch from-json -o empty.dp
    verl-advantage -e rloo -i empty.dp -o out.dp 2>err
    grep -q 'groups: 1 of 2 rows' err
    [ \"\$(for k in groups group_size/max group_size/min groups_of_one; do metric out.dp advantage/\$k; done | paste -sd' ' -)\" = '1 2 2 0' ]
    [ \"\$(verl-dump -k advantages out.dp | jq -c '.advantages[0]' | paste -sd' ' -)\" = '1 0 -1' ]
    verl-advantage -e rloo --as-verl -i empty.dp -o out.dp 2>err
    grep -q 'groups: 1 of 3 rows' err
    [ \"\$(verl-dump -k advantages out.dp | jq -c '.advantages[0]' | paste -sd' ' -)\" = '1 0 -0.5' ]"
ok "74: a row that verl-reward could not score is in no group and gets advantage 0" "
    verl-dump rows.dp | jq -c '. + { reward_error: (if .sample == 0 then null else \"timed out\" end) }' |
        verl-batch from-json --like rows.dp --dtype reward_error=json -o unscored.dp
    verl-advantage -e rloo -i unscored.dp -o out.dp 2>err
    grep -q '2 rows without a score' err; grep -q 'groups: 2 of 1 row' err
    [ \"\$(verl-dump -k advantages out.dp | jq -c '.advantages[0]' | paste -sd' ' -)\" = '1 0.5 0 0' ]"
ok "71: groups of one are named when n is larger" "
    verl-batch slice 1:3 -i rows.dp | verl-batch set-meta n 2 | run -e grpo -o out.dp 2>err
    grep -q '2 groups have one row although n is 2' err
    verl-batch slice 1:3 -i rows.dp | verl-batch set-meta n 1 | run -e grpo -o out.dp 2>err
    grep -q 'warning: one response for each prompt' err"
ok "68: NaN under the mask changes no byte, a NaN that counts is 65 and names the row" "
    verl-dump rows.dp | jq -c '.token_level_scores[3] = (if .response_mask[3] == 1 then .token_level_scores[3] else \"NaN\" end)' |
        verl-batch from-json --like rows.dp -o nan.dp
    run -e grpo -i rows.dp -o x.dp; run -e grpo -i nan.dp -o y.dp
    verl-dump -k advantages,returns,token_level_rewards x.dp >x; verl-dump -k advantages,returns,token_level_rewards y.dp >y
    cmp x y
    verl-dump rows.dp | jq -c 'if .sample == 1 then .token_level_scores[0] = \"NaN\" else . end' |
        verl-batch from-json --like rows.dp -o bad.dp
    exits 65 run -e grpo -i bad.dp -o no.dp 2>err
    grep -q 'row 2 (uid \"a\").*nan' err; [ ! -e no.dp ]"
ok "a missing column is 65 and names the program that makes it" "
    exits 65 run -e gae -i rows.dp -o no.dp 2>err; grep -q verl-value err
    exits 65 run -e grpo use_kl_in_reward=true -i rows.dp -o no.dp 2>err; grep -q verl-logprob err
    verl-batch drop -k token_level_scores -i rows.dp -o none.dp
    exits 65 run -e grpo -i none.dp -o no.dp 2>err; grep -q verl-reward err
    verl-batch drop -k uid -i rows.dp -o none.dp
    exits 65 run -e grpo -i none.dp -o no.dp 2>err; grep -q uid err"
ok "options that cannot work together are 64" "
    exits 64 run -e grpo use_kl_in_reward=true kl_ctrl.type=adaptive -i rows.dp -o no.dp
    exits 64 run -e grpo --kl-state kl2 -i rows.dp -o no.dp; [ ! -e kl2 ]
    exits 64 run -e grpo use_kl_in_reward=true use_kl_loss=true -i rows.dp -o no.dp 2>err
    grep -q -e --kl-twice err
    run -e rloo use_kl_in_reward=true use_kl_loss=true --kl-twice -i kl.dp -o out.dp
    exits 64 run -e grp -i rows.dp -o no.dp"
ok "run again in place: the same bytes; --delta united with its input: the same columns" "
    cp rows.dp place.dp
    run -e grpo -i place.dp -o place.dp; verl-dump place.dp >first
    run -e grpo -i place.dp -o place.dp 2>/dev/null; verl-dump place.dp | cmp first -
    run -e grpo --delta -i rows.dp -o delta.dp
    verl-dump -k advantages -i rows.dp -i delta.dp >x; verl-dump -k advantages place.dp | cmp x -"
ok "PF-PPO draws as many rows, the same for the same seed, each (uid, sample) once" "
    verl-dump gae.dp | jq -c . | verl-batch from-json -o pf.dp
    run -e gae use_pf_ppo=true -i pf.dp -o x.dp; run -e gae use_pf_ppo=true -i pf.dp -o y.dp
    cmp x.dp y.dp; [ \$(verl-dump x.dp | wc -l) = 8 ]
    [ \$(verl-dump -k uid,sample x.dp | sort -u | wc -l) = 8 ]
    exits 64 run -e gae use_pf_ppo=true pf_ppo.reweight_method=best -i pf.dp -o no.dp"
if have_mpi; then
    ok "75: three ranks: the same bytes" "
        for e in grpo rloo opo gpg reinforce_plus_plus reinforce_plus_plus_baseline; do
            run -e \$e -i rows.dp -o x.dp
            verl-mpi 3 verl-advantage -q -e \$e -i rows.dp -o y.dp
            cmp x.dp y.dp
        done"
else
    skip "no MPI here"
fi
done_testing
