#!/bin/sh
# verl's recorded losses through verl-update: where a loss depends on differences of log-probs alone, a
# model's own log-probs can stand in for the recorded ones.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/toy.sh"
GOLDEN=$REPO/tests/golden/algorithms
toy_model m

# rows R C: R rows of C response tokens, all there.
rows() {
    jq -nc --argjson R "$1" --argjson C "$2" 'range($R) as $i | { uid: "0-\($i)", sample: 0,
        prompts: [2 + $i % 9, 3], responses: [range($C) | 4 + (. * 5 + $i) % 14],
        attention_mask: [range($C + 2) | 1], response_mask: [range($C) | 1] }'
}
# base R C: base.json, rows with the model's log-probs in old_log_probs; made once for each shape.
base() {
    [ -e "base-$1-$2.json" ] || rows "$1" "$2" | verl-batch from-json -q -i - |
        verl-batch set-meta -q temperature 1 n 1 global_steps 1 |
        verl-logprob -q -m m --compute fp32 | tee "base-$1-$2.dp" | verl-dump >"base-$1-$2.json"
}
# same NAME FILTER...: each filter of the case ($c) and the metrics ($m) is a pair [got, wanted], or null
same() {
    name=$1
    shift
    verl-dump --meta out.dp | jq -e --arg n "$name" --slurpfile c case.json '.metrics as $m | $c[0] as $c |
        ['"$*"'] | map(select(. and .[1] != null)) | length as $pairs | map(select((map(type) | unique != ["number"]) or
            (.[0] - .[1] | fabs) > 1e-5 + 1e-4 * (.[1] | fabs))) | if $pairs > 0 and . == [] then true else ($n, ., false) end' >said || {
        cat said
        return 1
    }
}
# case FILE NAME: case.json, and the shape in $R $C from the array $3
case_of() {
    jq -c --arg n "$2" '.cases[] | select(.name == $n)' "$GOLDEN/$1.json" >case.json
    R=$(jq --arg k "$3" '.inputs[$k] | length' case.json) C=$(jq --arg k "$3" '.inputs[$k][0] | length' case.json)
    base "$R" "$C"
}
# with FILTER: in.dp = base rows changed by FILTER, where $i is the case's inputs and $r the row
with() {
    jq -c --slurpfile c case.json "\$c[0].inputs as \$i | (input_line_number - 1) as \$r | $1" "base-$R-$C.json" |
        verl-batch from-json -q --like "base-$R-$C.dp" --dtype ref_log_prob=F32 --dtype advantages=F32 \
            --dtype rollout_is_weights=F32 --dtype rollout_log_probs=F32 --dtype values=F32 --dtype returns=F32 -i - -o in.dp
}
settings() { # the case's config as key=value under actor.
    jq -r '.config | to_entries[] | select(.value | type != "object") |
        "actor_rollout_ref.actor.\(.key)=\(.value)"' case.json
}

# names FILE OP NAME: cases of an operation (two patterns) that have outputs and local counts
names() {
    jq -r --arg o "$2" '.cases[] | select((.op | test($o)) and .config.global_batch_info == null and .outputs.error == null) | .name' \
        "$GOLDEN/$1.json" | grep -E "$3"
}
for op in vanilla gspo sapo geo_mean; do
    which='plain|emptyrow' && [ $op = vanilla ] && which=.
    ok "policy loss $op: the recorded losses and metrics" "
        list=\$(names policy_loss '^$op\$' '$which')
        for name in \$list; do
            case_of policy_loss \$name log_prob
            with '.old_log_probs = [range(\$i.log_prob[\$r] | length) as \$t | .old_log_probs[\$t] - \$i.log_prob[\$r][\$t] + \$i.old_log_prob[\$r][\$t]]
                | .advantages = \$i.advantages[\$r] | .response_mask = \$i.response_mask[\$r]
                | if \$i.rollout_is_weights then .rollout_is_weights = \$i.rollout_is_weights[\$r] else . end'
            rm -rf s
            verl-update -q -s s -m m -i in.dp --compute fp32 optim.lr=0 policy_loss.loss_mode=$op ppo_mini_batch_size=\$R \$(settings) -o out.dp
            same \$name '[\$m[\"actor/pg_loss\"], \$c.outputs.loss]' \
                ', (\$c.outputs.metrics | to_entries[] | [\$m[.key], .value])'
        done"
done
ok 'bypass mode: the recorded metrics of the correction, and the loss of ppo_clip' "
    list=\$(names bypass_mode . '[0-5]')
    for name in \$list; do
        case_of bypass_mode \$name log_prob
        with '.rollout_log_probs = [range(\$i.log_prob[\$r] | length) as \$t | .old_log_probs[\$t] - \$i.log_prob[\$r][\$t] + \$i.old_log_prob[\$r][\$t]]
            | .advantages = \$i.advantages[\$r] | .response_mask = \$i.response_mask[\$r] | del(.rollout_is_weights)'
        rm -rf s
        verl-update -q -s s -m m -i in.dp --compute fp32 optim.lr=0 ppo_mini_batch_size=\$R \$(settings) bypass_mode=true --statistics mini-batch \
            \$(jq -r '.config.rollout_correction | to_entries[] | \"algorithm.rollout_correction.\(.key)=\(.value)\"' case.json) -o out.dp
        same \$name '(if \$c.config.rollout_correction.loss_type == \"ppo_clip\" then [\$m[\"actor/pg_loss\"], \$c.outputs.loss] else null end)' \
            ', (\$c.outputs.metrics | to_entries[] | select(.key | test(\"training_|rollout_log_ppl|rollout_ppl|_std\") | not) | [\$m[.key], .value])'
    done"
ok 'KL loss: every estimator, the straight-through forms too' "
    list=\$(names kl '^kl_penalty' '_1|straight')
    for name in \$list; do
        case_of kl \$name logprob
        with '.ref_log_prob = [range(\$i.logprob[\$r] | length) as \$t | .old_log_probs[\$t] - \$i.logprob[\$r][\$t] + \$i.ref_logprob[\$r][\$t]]
            | .advantages = [.responses[] | 0]'
        rm -rf s
        verl-update -q -s s -m m -i in.dp --compute fp32 optim.lr=0 ppo_mini_batch_size=\$R use_kl_loss=true kl_loss_coef=2 kl_loss_type=\$(jq -r .config.kl_penalty case.json) -o out.dp
        same \$name '(\$c.outputs.kl | flatten | add / length) as \$w | [\$m[\"actor/kl_loss\"], \$w], [\$m[\"actor/loss\"], 2 * \$w]'
        echo \$name >>did
    done
    [ \$(wc -l <did) -ge 12 ]"
ok 'value loss: a head of zeros and values moved by as much' "
    list=\$(names value_loss . 'plain_[0-3]|extreme_0')
    for name in \$list; do
        case_of value_loss \$name vpreds
        with '.returns = [range(\$i.vpreds[\$r] | length) as \$t | \$i.returns[\$r][\$t] - \$i.vpreds[\$r][\$t]]
            | .values = [range(\$i.vpreds[\$r] | length) as \$t | \$i.values[\$r][\$t] - \$i.vpreds[\$r][\$t]]
            | .response_mask = \$i.response_mask[\$r]'
        rm -rf s
        verl-update -q --role critic -s s -m m -i in.dp --compute fp32 critic.optim.lr=0 critic.ppo_mini_batch_size=\$R \
            \$(settings | sed 's/actor_rollout_ref.actor/critic/') -o out.dp
        same \$name '[\$m[\"critic/vf_loss\"], \$c.outputs.vf_loss], [\$m[\"critic/vf_clipfrac\"], \$c.outputs.vf_clipfrac]'
    done"
ok 'entropy bonus: the loss falls by coefficient times the mean entropy, which verl-logprob gives' "
    base 4 6
    jq -c '.advantages = [.responses[] | 0]' base-4-6.json | verl-batch from-json -q --like base-4-6.dp --dtype advantages=F32 -o in.dp
    rm -rf s
    verl-update -q -s s -m m -i in.dp --compute fp32 optim.lr=0 entropy_coeff=0.5 ppo_mini_batch_size=4 -o out.dp
    jq -s '{ outputs: ([.[].entropys[]] | add / length) }' base-4-6.json >case.json
    same entropy '[\$m[\"actor/entropy_loss\"], \$c.outputs], [\$m[\"actor/loss\"], -0.5 * \$c.outputs]'"
ok 'a wrong number would be seen' "
    jq -c '.outputs *= 1.001' case.json >c
    mv c case.json
    if same entropy '[\$m[\"actor/entropy_loss\"], \$c.outputs]'; then false; fi"
done_testing
