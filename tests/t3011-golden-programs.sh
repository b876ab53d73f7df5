#!/bin/sh
# Recorded cases through the programs: every one that a batch file can express. The library's tests
# (unit/test_golden_*.c) take all of them, gradients included; what needs log-probs that no model
# gives, a recorded draw, or the denominators of other workers is theirs alone.
. "$(dirname "$0")/lib.sh"
GOLDEN=$REPO/tests/golden/algorithms
command -v jq >/dev/null || skip_all "jq is not installed"

cat >lib.jq <<'X'
# as the recorded files define it: NaN equals NaN, else |a - b| <= atol + 1e-4 |b|
def near($a; $b; $atol):
    if ($a | type) == "array" then ($a | length) == ($b | length) and all(range($a | length); near($a[.]; $b[.]; $atol))
    elif ($a | type) == "object" then all($b | keys[]; near($a[.]; $b[.]; if endswith("_std") then 1e-3 else $atol end))
    elif ($a | type) == "number" and ($b | type) == "number" then ($a - $b | fabs) <= $atol + 1e-4 * ($b | fabs)
    else $a == $b end;
# the rows of inputs that are lists over rows
def rows($n): . as $i | [range($n) as $r | $i | map_values(if type == "array" then .[$r] else empty end) | .sample = $r];
X
# prepare <<jq: turns each case into {name, options, rows}, or into nothing where a batch cannot say it
prepare() { { cat lib.jq - && echo '| "=\t\(.name)\t\(.options)", (.rows[] | tojson)'; } >prepare.jq; }
# golden FILE COMMAND: COMMAND NAME OPTIONS... is run for each, with its rows in cases/NAME.jsonl; what
# it leaves in results/NAME, JSON lines, is the result
golden() {
    rm -rf cases results
    mkdir cases results
    jq -rf prepare.jq "$GOLDEN/$1.json" |
        awk -F'\t' '$1 == "=" { close(f); f = "cases/" $2 ".jsonl"; print $3 > ("cases/" $2 ".opt"); close("cases/" $2 ".opt"); next } { print > f }'
    for f in cases/*.jsonl; do
        n=${f#cases/} n=${n%.jsonl} st=0
        read -r options <"cases/$n.opt"
        # shellcheck disable=SC2086
        "$2" "$n" $options 2>err || st=$?
        [ $st = 0 ] || [ "$(grep -vc ': warning: ' err)" = 1 ] || { echo "$n: status $st and not one line"; cat err; return 1; }
        echo "{\"case\":\"$n\",\"status\":$st}"
    done >status.jsonl
    jq -c '.case = (input_filename | ltrimstr("results/"))' results/* >results.jsonl
}
# verdict FILE COLUMN=KEY...: the column of the result's rows is that member of the case's outputs
verdict() {
    file=$1
    shift
    { cat lib.jq; cat <<'X'; } >verdict.jq
($r | group_by(.case) | map({(.[0].case): .}) | add // {}) as $got
| [$s[] | . as {$case, $status} | first($g[0].cases[] | select(.name == $case)) as $want
    | if $want.outputs.error then select($status != 64 and $status != 65) + {wanted: "an error"}
      elif $status != 0 then . + {wanted: 0}
      else ($pairs | split(" ")[] | split("=")) as [$k, $key] | $want.outputs[$key] as $w | select($w != null)
        | [$got[$case][] | .[$k] | select(. != null)] as $x
        | select(near(if ($w | type) == "array" then $x else $x[0] end; $w; $want.atol // 1e-5) | not) | {case: $case, key: $key}
      end] as $bad
| [$pairs | split(" ")[] | select(split("=")[1] as $key | [$s[] | select(.status == 0) | .case as $case
    | $g[0].cases[] | select(.name == $case and .outputs[$key] != null)] == []) | {never_compared: .}] as $never
| (($bad[:5] + $never)[] | tojson), "\($s | length) cases, \($bad + $never | length) wrong"
X
    jq -rn --slurpfile g "$GOLDEN/$file.json" --slurpfile r results.jsonl --slurpfile s status.jsonl \
        --arg pairs "$*" -f verdict.jq >verdict
    cat verdict
    tail -n 1 verdict | grep -q '^[1-9][0-9]* cases, 0 wrong$'
}

# ---- advantage ----
prepare <<'X'
.cases[] | .config as $c | .op as $op
# verl's driver normalises grpo_vectorized always and fails on the token baselines
| select($op != "grpo_vectorized" or $c.norm_adv_by_std_in_grpo != false)
| ($c.adv_estimator // $op) as $e
| select($op != "compute_advantage" or ($e | test("token_baseline") | not))
| { name, options: "-e \($e) gamma=\($c.gamma // 1) lam=\($c.lam // 1) norm_adv_by_std_in_grpo=\($c.norm_adv_by_std_in_grpo != false) \(if $c | has("handle_zero_tail") then "handle_zero_tail=\($c.handle_zero_tail)" else "" end)",
    rows: (.inputs | .token_level_scores = .token_level_rewards | del(.token_level_rewards) | rows(.token_level_scores | length)) }
X
advantage() {
    n=$1
    shift
    verl-batch from-json -q --dtype uid=json "cases/$n.jsonl" | verl-advantage -q --as-verl "$@" -o out.dp &&
        verl-dump -k advantages,returns out.dp >"results/$n"
}
ok 'advantage: every estimator, verl-advantage' 'golden advantage advantage; verdict advantage advantages=advantages returns=returns'

# ---- KL ----
prepare <<'X'
.cases[] | .config as $c | .inputs as $i
| if .op == "apply_kl_penalty" then
    { name, options: "kl_penalty=\($c.kl_penalty) kl_ctrl.type=\($c.type) kl_coef=\($c.kl_coef) horizon=\($c.horizon) target_kl=\($c.target_kl)",
      rows: ($i | rows(.token_level_scores | length)) }
  elif .op == "compute_rewards" then
    { name, options: "kl_coef=\($c.kl_ratio)",
      rows: ($i | .old_log_probs = .old_log_prob | .response_mask = (.old_log_prob | map(map(1))) | rows(.token_level_scores | length)) }
  elif (.op | startswith("kl_penalty")) and (.outputs.error == null or ($c.kl_penalty | test("[+]") | not)) then
    # the KL itself: no score, coefficient 1 (verl fails on names with +, which work here)
    { name, options: "kl_penalty=\($c.kl_penalty) kl_coef=1", # the rewards are its negative
      rows: ($i | { old_log_probs: .logprob, ref_log_prob: .ref_logprob, token_level_scores: (.logprob | map(map(0))), response_mask: (.logprob | map(map(1))) } | rows(.old_log_probs | length)) }
  else empty end
X
kl() {
    n=$1 state=
    case $* in *adaptive*) state="--kl-state kl-$n" ;; esac
    shift
    verl-batch from-json -q "cases/$n.jsonl" | verl-batch set-meta -q global_steps 1 -o in.dp
        verl-advantage -q -e sppo -i in.dp use_kl_in_reward=true "$@" $state -o out.dp || return $?
    verl-dump -k token_level_rewards out.dp >"results/$n"
    verl-dump --meta out.dp >>"results/$n"
}
ok 'kl: values of every type, the reward with them, metrics: verl-advantage' 'golden kl kl
    jq -c "if .token_level_rewards then .kl = (.token_level_rewards | map(-.)) else . end" results.jsonl >x
    mv x results.jsonl
    verdict kl token_level_rewards=token_level_rewards token_level_rewards=rewards kl=kl metrics=metrics'

# ---- rollout correction ----
prepare <<'X'
.cases[] | .config as $c | .inputs as $i | select(.op == "rollout_correction")
| { name, options: ([$c | to_entries[] | "rollout_correction.\(.key)=\(.value | if type == "string" then gsub(" "; "") else . end)"] | join(" ")),
    rows: ($i | { old_log_probs: .old_log_prob, rollout_log_probs: .rollout_log_prob, response_mask, prompts: (.old_log_prob | map([1])),
        token_level_scores: (.old_log_prob | map(map(0))), attention_mask: (.response_mask | map([1] + .)), responses: (.response_mask | map(map(1))) } | rows(.old_log_probs | length)) }
X
correction() {
    n=$1
    shift
    rm -rf step
    mkdir step
    verl-batch from-json -q "cases/$n.jsonl" -o in.dp && verl-advantage -q -e sppo "$@" -i in.dp -o step/adv.dp 2>err.$n || {
        st=$?
        cat err.$n >&2
        grep -q 'rejects every token' err.$n || return $st
        echo '{"rejected": true}' >"results/$n"
        return 0
    }
    columns=response_mask
    case $* in *rollout_is=token* | *rollout_is=seq*) columns=$columns,rollout_is_weights ;; esac
    verl-dump -k $columns step/adv.dp >"results/$n"
    { printf '{"metrics": ' && verl-eval -q metrics step && echo '}'; } >>"results/$n"
}
ok 'rollout correction: weights, mask, metrics: verl-advantage, verl-eval' '
    golden rollout_correction correction
    # verl goes on where every token is rejected, which is refused here
    for n in $(jq -r "select(.rejected) | .case" results.jsonl); do
        jq -e --arg n "$n" "[.cases[] | select(.name == \$n) | .outputs.modified_response_mask[][]] | add == 0" "$GOLDEN/rollout_correction.json"
        sed -i "/\"case\":\"$n\"/d" results.jsonl status.jsonl
    done
    verdict rollout_correction rollout_is_weights=rollout_is_weights response_mask=modified_response_mask metrics=metrics'

# ---- overlong penalty ----
prepare <<'X'
.cases[] | .config as $c | .inputs as $i | select(.op == "overlong" and ($i.response_lengths | min) > 0) # an empty row gets no score here
| { name, options: "reward_kwargs.max_resp_len=\($c.max_resp_len) \([$c | to_entries[] | select(.key != "max_resp_len") | "overlong_buffer_cfg.\(.key)=\(.value)"] | join(" "))",
    rows: [range($i.scores | length) as $r | $i.response_lengths[$r] as $n | [range($i.response_width)] as $t
        | { sample: $r, responses: ($t | map(1)), response_mask: ($t | map(if . < $n then 1 else 0 end)), prompts: [1], attention_mask: ([1] + ($t | map(if . < $n then 1 else 0 end))),
            reward_model: { ground_truth: ($i.scores[$r] | tostring) } }] }
X
verl-model init -q "$REPO/examples/addition/config.json" --tokenizer "$REPO/examples/addition" -o tok
overlong() {
    n=$1
    shift
    verl-batch from-json -q "cases/$n.jsonl" -o in.dp && verl-reward -q -m tok --jq '.ground_truth | tonumber' -i in.dp "$@" -o out.dp || return $?
    verl-dump -k token_level_scores out.dp >"results/$n"
}
ok 'overlong shaping: verl-reward' 'golden reward_shaping overlong; verdict reward_shaping token_level_scores=reward_tensor'

# ---- reductions, as verl-eval applies them to entropies ----
prepare <<'X'
.cases[] | .config as $c | .inputs as $i
| select($c.dp_size == null and $c.batch_num_tokens == null and $c.global_batch_size == null)
| select(.outputs.error != null or (.outputs.loss | type) == "number") # nothing valid: a batch is refused before
| { name, options: "loss_agg_mode=\($c.loss_agg_mode) \(if $c.loss_scale_factor then "loss_scale_factor=\($c.loss_scale_factor)" else "" end)",
    rows: ($i | { entropys: .loss_mat, response_mask: .loss_mask, prompts: (.loss_mat | map([1])), attention_mask: (.loss_mask | map([1] + map(1))) } | rows(.entropys | length)) }
X
reduction() {
    n=$1
    shift
    rm -rf step
    mkdir step
    verl-batch from-json -q "cases/$n.jsonl" -o step/old_log_prob.dp &&
        verl-eval -q metrics step "$@" >"results/$n"
}
ok 'reductions: verl-eval' 'golden agg_loss reduction; verdict agg_loss actor/entropy=loss'

# ---- metrics of a step ----
prepare <<'X'
.cases[] | .config as $c | .inputs as $i | select(.op == "variance_proxy" or .op == "rollout_probs_diff")
| { name, options: "\($c.gradient_norm)",
    rows: ($i + { prompts: ($i.response_mask | map([1])), attention_mask: ($i.response_mask | map([1] + map(1))) } | rows($i.response_mask | length)) }
X
step_metrics() {
    n=$1
    rm -rf step
    mkdir step
    verl-batch from-json -q "cases/$n.jsonl" | verl-batch set-meta -q metrics "$([ "$2" = null ] && echo '{}' || echo "{\"actor/grad_norm\": $2}")" -o step/adv.dp &&
        { printf '{"metrics": ' && verl-eval -q metrics step && echo '}'; } >"results/$n"
}
ok 'variance proxy, probabilities of rollout and training: verl-eval' 'golden metrics step_metrics; verdict metrics metrics=metrics'

# ---- losses that see log-probs by their difference alone: a policy of equal logits says -log 20 everywhere,
# and old_log_probs are so far from that as the recorded ones; a fresh critic says 0 ----
cat >>lib.jq <<'X'
def columns($mask): { prompts: ($mask | map([2])), responses: ($mask | map(map(2))), response_mask: $mask,
    attention_mask: ($mask | map((rindex([1]) // -1) as $last | [1] + [range(length) | if . <= $last then 1 else 0 end])) };
def plus($a; $b; $f): [$a, $b] | transpose | map(transpose | map(.[0] + $f * .[1]));
X
verl-model init -q -o flat --hidden 16 --layers 1 --heads 2 --ffn 16 --vocab 20 --eos-id 1 --positions 64 --tied --std 1e-30
loss() {
    n=$1
    shift
    rm -rf s
    verl-batch from-json -q "cases/$n.jsonl" | verl-batch set-meta -q temperature 1 n 1 -o in.dp &&
        verl-update -q -m flat -s s -i in.dp optim.lr=0 ppo_mini_batch_size=64 "$@" -o out.dp || return $?
    verl-dump --meta out.dp | jq -c '{metrics, loss: .metrics."actor/pg_loss", vf_loss: .metrics."critic/vf_loss", vf_clipfrac: .metrics."critic/vf_clipfrac"}' >"results/$n"
}
prepare <<'X'
.cases[] | .config as $c | .inputs as $i | select((.op | IN("vanilla", "gspo", "sapo", "geo_mean")) and $c.global_batch_info == null)
| select(.outputs.error != null or (.outputs.loss | type) == "number")
| { name, options: ("policy_loss.loss_mode=\(.op) " + ([$c | to_entries[] | select(.key != "policy_loss") | "actor_rollout_ref.actor.\(.key)=\(.value)"] | join(" "))),
    rows: (columns($i.response_mask) + { advantages: $i.advantages, old_log_probs: plus(plus($i.old_log_prob; $i.log_prob; -1); $i.log_prob | map(map(1)); -(20 | log)) }
        + (if $i.rollout_is_weights then { rollout_is_weights: $i.rollout_is_weights } else {} end) | rows($i.response_mask | length)) }
X
ok 'policy losses: verl-update' 'golden policy_loss loss; verdict policy_loss loss=loss metrics=metrics'
prepare <<'X'
.cases[] | .config as $c | .inputs as $i
| { name, options: "--role critic critic.cliprange_value=\($c.cliprange_value) critic.loss_agg_mode=\($c.loss_agg_mode)",
    rows: (columns($i.response_mask) + { values: plus($i.values; $i.vpreds; -1), returns: plus($i.returns; $i.vpreds; -1) } | rows($i.response_mask | length)) }
X
ok 'value losses: verl-update' 'golden value_loss loss; verdict value_loss vf_loss=vf_loss vf_clipfrac=vf_clipfrac'

# ---- balance ----
prepare <<'X'
.cases[] | .config as $c | .inputs as $i | select(.op == "balance_batch") | ($i.seqlens | max) as $w
| { name, options: "\($c.dp_size)",
    rows: [range($i.seqlens | length) as $r | { sample: $r, attention_mask: [range($w) | if . < $i.seqlens[$r] then 1 else 0 end] }] }
X
balance() {
    verl-batch from-json -q "cases/$1.jsonl" | verl-batch balance -q "$2" -o out.dp &&
        verl-dump -k sample out.dp >"results/$1" && verl-dump --meta out.dp >>"results/$1"
}
ok 'balance: verl-batch' 'golden balance balance; verdict balance sample=order metrics=metrics'
done_testing
