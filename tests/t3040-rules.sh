#!/bin/sh
# What anybody who trains may count on, from log-probs to the update: the rules 61 to 89 that no other
# test carries in its title.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/toy.sh"
command -v jq >/dev/null || skip_all "jq is not installed"

toy_model m
toy_batch b.dp 12 1
verl-logprob -q -m m -i b.dp -o old.dp
update='verl-update -q -m m ppo_mini_batch_size=12 optim.lr=1e-3'
# edit IN 'jq: row -> row' OUT
edit() { verl-dump "$1" | jq -c "$2" | verl-batch from-json -q --like "$1" -i - -o "$3"; }
# scored rows: uid, sample, score at the last valid token
scored() { # UID SCORE [VALID]...
    i=0
    while [ $# -gt 1 ]; do
        printf '{"uid":"%s","sample":%d,"response_mask":[1,1,0],"token_level_scores":[0,%s,0]}\n' "$1" $i "$2"
        shift 2
        i=$((i + 1))
    done | verl-batch from-json -q
}
adv() { verl-dump -k advantages "$1" | jq -cs 'map(.advantages)'; }

ok '61: the log-prob at t belongs to token t: another token there changes it and those behind it, none before' '
    for t in 0 1 2; do
        edit b.dp "if .response_mask[$t + 1] == 1 then .responses[$t] = (.responses[$t] + 5) % 18 + 2 else . end" x.dp
        verl-logprob -q -m m -i x.dp -o y.dp
        verl-dump old.dp >o
        verl-dump y.dp >n
        paste -d "\n" o n | jq -es "[range(0; length; 2) as \$i | .[\$i] as \$o | .[\$i + 1] as \$n | select(\$o.responses != \$n.responses) |
            \$o.old_log_probs[:$t] == \$n.old_log_probs[:$t] and \$o.old_log_probs[$t] != \$n.old_log_probs[$t]] | length > 0 and all"
    done'
ok '61: by hand: of equal logits each of 20 ids has -log 20, the first token included' '
    verl-model init -q -o flat --hidden 16 --layers 1 --heads 2 --ffn 16 --vocab 20 --eos-id 1 --positions 64 --tied --std 1e-30
    verl-logprob -q -m flat -i b.dp | verl-dump | jq -es "length > 0 and all(.[]; (.response_mask | add) as \$n |
        (.old_log_probs[:\$n] | all(. + (20 | log) | fabs < 1e-5)) and (.old_log_probs[\$n:] | all(. == 0)))"'
ok '66: memory does not grow with length times vocabulary' '
    need() { verl-logprob -m $1 -i wide.dp -o x.dp 2>&1 | sed -n "s/.* \([0-9.]*\) MB needed for \([0-9]*\) tokens.*/\1/p"; }
    toy_batch wide.dp 200 2
    verl-model init -q -o big --hidden 32 --layers 2 --heads 4 --kv-heads 2 --ffn 48 --vocab 20000 --tied --eos-id 1 --positions 64
    small=$(need m) large=$(need big)
    echo "$small MB with 20 ids, $large MB with 20000; the logits of all tokens would be 90 MB"
    awk -v a=$small -v b=$large "BEGIN { exit !(a > 0 && b < a + 20) }"'
ok '69: the value behind the last valid token is 0, by hand; a tool token in between carries it on' '
    printf "%s\n" "{\"uid\":\"a\",\"sample\":0,\"response_mask\":[1,0,1,0],\"token_level_scores\":[0,0,1,0],\"values\":[0.5,9,0.25,7]}" \
        "{\"uid\":\"b\",\"sample\":0,\"response_mask\":[1,0,0,0],\"token_level_scores\":[2,0,0,0],\"values\":[1,0,0,0]}" |
        verl-batch from-json -q --dtype values=F32 | verl-advantage -q -e gae gamma=0.5 lam=1 -o x.dp
    verl-dump -k returns,response_mask x.dp | jq -ces "map([[.returns, .response_mask] | transpose[] | select(.[1] == 1)[0]])" | grep -qxF "[[0.5,1],[2]]"'
ok '70: groups are rows of one uid wherever they lie, and rows stay where they are' '
    scored a 0 b 1 a 1 b 3 c 5 a 0.5 c 2 >s.dp
    verl-batch reorder -q 6,2,0,3,5,1,4 -i s.dp -o t.dp
    for e in grpo rloo opo gpg reinforce_plus_plus_baseline grpo_passk; do
        verl-advantage -q -e $e -i s.dp -o x.dp
        verl-advantage -q -e $e -i t.dp -o y.dp
        verl-dump -k uid,sample y.dp >order
        verl-dump -k uid,sample t.dp | cmp order -
        for f in x y; do verl-dump -k uid,sample,advantages $f.dp | jq -cs "sort_by(.uid, .sample)[] | .advantages"; done |
            jq -es "(length / 2) as \$n | [range(\$n) as \$i | [.[\$i], .[\$n + \$i]] | transpose[] | .[0] - .[1] | fabs] | max < 1e-6"
    done'
ok '72: a group of one gets what the manual says; a batch of zeros is told' '
    scored a 3 b 1 b 0 >s.dp
    while read -r e want; do
        verl-advantage -q -e $e norm_adv_by_std_in_grpo=true -i s.dp -o x.dp 2>err
        got=$(adv x.dp | jq ".[0][0] * 10000 | round / 10000")
        [ "$got" = "$want" ] || { echo "$e: $got, wanted $want"; false; }
    done <<X
grpo 3
grpo_vectorized 3
rloo 3
rloo_vectorized 0
opo 3
gpg 4.5
X
    exits 65 verl-advantage -q -e grpo_passk -i s.dp -o x.dp
    scored a 1 a 1 | verl-advantage -q -e grpo -o x.dp 2>err
    grep -q "every advantage is 0" err'
ok '73: n - 1 and two passes: small differences on large scores; equal scores give exactly 0' '
    scored a 1000001 a 1000002 a 1000003 | verl-advantage -q -e grpo -o x.dp
    adv x.dp | jq -e "map(.[0]) | (.[0] + 1 | fabs) < 1e-5 and .[1] == 0 and (.[2] - 1 | fabs) < 1e-5"
    for e in grpo grpo_vectorized grpo_passk rloo rloo_vectorized opo gpg reinforce_plus_plus_baseline; do
        scored a 0.9 a 0.9 a 0.9 a 0.9 a 0.9 a 0.9 a 0.9 | verl-advantage -q -e $e -o x.dp 2>/dev/null
        adv x.dp | jq -e "flatten | all(. == 0)" || { echo $e; false; }
    done'
ok '74: a row without a score is in no group, has advantage 0 and is outside every term of the loss' '
    verl-dump old.dp | jq -c ".reward_error = (if .uid == \"0-3\" then \"timed out\" else null end)" |
        verl-batch from-json -q --like old.dp --dtype reward_error=json -o bad.dp
    edit old.dp "select(.uid != \"0-3\")" less.dp
    verl-update -m m optim.lr=1e-3 ppo_mini_batch_size=12 entropy_coeff=0.1 -s bad -i bad.dp -o bad.out 2>err
    grep -q "1 rows without a score: left out of the loss" err
    $update entropy_coeff=0.1 -s less -i less.dp -o less.out
    equal "$(hash_of bad)" "$(hash_of less)"
    equal "$(metric bad.out actor/pg_loss)" "$(metric less.out actor/pg_loss)"'
ok '75: whitening sees valid tokens alone: padding and the order of rows change nothing' '
    verl-dump old.dp | jq -c ".token_level_scores = (.response_mask | map(0)) | .token_level_scores[0] = .advantages[0] | del(.advantages, .returns)" |
        verl-batch from-json -q -o s.dp
    verl-dump s.dp | jq -c ".response_mask += [0, 0, 0] | .token_level_scores += [0, 0, 7] | {uid, sample, response_mask, token_level_scores}" |
        verl-batch from-json -q | verl-batch reorder -q $(seq -s, 11 -1 0) -o t.dp
    verl-advantage -q -e reinforce_plus_plus -i s.dp -o x.dp
    verl-advantage -q -e reinforce_plus_plus -i t.dp -o y.dp 2>/dev/null
    for f in x y; do verl-dump -k uid,advantages $f.dp | jq -cs "sort_by(.uid)[] | .advantages[:5]"; done |
        jq -es "(length / 2) as \$n | [range(\$n) as \$i | [.[\$i], .[\$n + \$i]] | transpose[] | .[0] - .[1] | fabs] | max < 1e-6"'
ok '76: KL in the reward and in the loss are two options; both need an explicit yes; the active one is printed' '
    verl-dump old.dp | jq -c ".token_level_scores = .advantages" | verl-batch from-json -q --like old.dp --dtype token_level_scores=F32 -o s2.dp
    verl-logprob -q --as ref -m m -i s2.dp -o ref.dp
    exits 64 verl-advantage -e sppo use_kl_in_reward=true use_kl_loss=true -i ref.dp -o x.dp 2>err
    grep -q -e --kl-twice err
    verl-advantage -e sppo use_kl_in_reward=true use_kl_loss=true --kl-twice -i ref.dp -o x.dp 2>err
    grep -q "KL in the reward: kl, coefficient 0.001, mean KL 0" err'
ok '77: with the KL loss alone one update lowers the KL; a negative KL in the reward is told' '
    verl-update -q --role sft -m m -s away -i b.dp optim.lr=1e-2 data.train_batch_size=12 trainer.total_training_steps=5 -o x.dp
    verl-logprob -q -m away -i b.dp | verl-logprob -q --as ref -m m -o ar.dp
    edit ar.dp ".advantages |= map(0)" zero.dp
    for type in low_var_kl k2; do
        rm -rf back back.dp
        verl-update -q -m away -s back -i zero.dp use_kl_loss=true kl_loss_coef=1 kl_loss_type=$type optim.lr=1e-3 ppo_mini_batch_size=12 -o x.dp
        verl-update -q -m away -s again -i zero.dp use_kl_loss=true kl_loss_type=$type optim.lr=0 ppo_mini_batch_size=12 -o before.dp
        verl-logprob -q -m back -i b.dp | verl-logprob -q --as ref -m m -o back.dp
        verl-update -q -s back -i back.dp use_kl_loss=true kl_loss_type=$type optim.lr=0 ppo_mini_batch_size=12 -o after.dp
        rm -rf again
        echo "$type: $(metric before.dp actor/kl_loss), then $(metric after.dp actor/kl_loss)"
        awk -v a=$(metric before.dp actor/kl_loss) -v b=$(metric after.dp actor/kl_loss) "BEGIN { exit !(b < a && b >= 0) }"
    done
    verl-dump ar.dp | jq -c ".token_level_scores = .advantages | .old_log_probs |= map(. - 9)" |
        verl-batch from-json -q --like ar.dp --dtype token_level_scores=F32 | verl-advantage -q -e sppo use_kl_in_reward=true -o x.dp 2>err
    grep -q "warning: the mean KL is negative" err'
ok '78: clamps of the ratio and of the KL are counted by token' '
    edit old.dp "if .uid == \"0-3\" then .old_log_probs[0] -= 50 else . end" far.dp
    verl-dump far.dp | jq -c ".ref_log_prob = .old_log_probs" | verl-batch from-json -q --like far.dp --dtype ref_log_prob=F32 -o far.dp
    $update -s clamp -i far.dp use_kl_loss=true -o x.dp
    [ $(metric x.dp actor/ratio_clamped_tokens) = 1 ]
    [ $(metric x.dp actor/kl_clamped_tokens) = 1 ]'
ok '80: entropy is over valid tokens and never below 0, also of a policy that is sure' '
    verl-logprob -q -m m --temperature 1e-5 -i b.dp -o sure.dp 2>/dev/null
    verl-dump -k entropys sure.dp | jq -es "flatten | length > 0 and all(. >= 0)"
    metric sure.dp actor/entropy | jq -e ". >= 0 and . < 0.1"
    edit b.dp ".response_mask[0] = 0" part.dp
    verl-logprob -q -m m -i part.dp -o x.dp
    verl-dump x.dp | jq -s "[.[] | [.entropys, .response_mask] | transpose[] | select(.[1] == 1)[0]] | add / length" >want
    metric x.dp actor/entropy | jq -e --slurpfile w want "(. - \$w[0] | fabs) < 1e-6"'
ok '82: a row that is masked out is out of every numerator and denominator: policy, entropy, KL, value' '
    verl-dump old.dp | jq -c ".ref_log_prob = (.old_log_probs | map(. - 0.1)) | .values = (.returns | map(. * 0.5))" |
        verl-batch from-json -q --like old.dp --dtype ref_log_prob=F32 --dtype values=F32 -o all.dp
    edit all.dp "if .uid == \"0-3\" then .response_mask |= map(0) else . end" masked.dp
    edit all.dp "select(.uid != \"0-3\")" less.dp
    for g in token-mean seq-mean-token-sum seq-mean-token-mean; do
        for f in masked less; do
            rm -rf a.$f c.$f
            $update -s a.$f -i $f.dp entropy_coeff=0.1 use_kl_loss=true kl_loss_coef=0.1 loss_agg_mode=$g -o $f.out
            verl-update -q --role critic -m m -s c.$f -i $f.dp critic.optim.lr=1e-3 ppo_mini_batch_size=12 critic.loss_agg_mode=$g -o $f.c
        done
        echo $g
        equal "$(hash_of a.masked)" "$(hash_of a.less)"
        equal "$(hash_of c.masked)" "$(hash_of c.less)"
        for k in actor/pg_loss actor/kl_loss actor/entropy_loss; do equal "$(metric masked.out $k)" "$(metric less.out $k)"; done
        equal "$(metric masked.c critic/vf_loss)" "$(metric less.c critic/vf_loss)"
    done'
ok '83: a mini-batch without a valid token is a counted skip, never a loss of 0' '
    edit old.dp "if (.uid | ltrimstr(\"0-\") | tonumber) < 6 then .response_mask |= map(0) else . end" half.dp
    verl-update -m m -s half -i half.dp ppo_mini_batch_size=6 optim.lr=1e-3 -o x.dp 2>err
    [ $(metric x.dp actor/optimizer_steps) = 1 ]
    cat err
    grep -q "1 of 2 steps" err
    edit old.dp ".response_mask |= map(0)" none.dp
    exits 65 $update -s none -i none.dp -o never.dp
    [ ! -e never.dp ]
    scored a 0 a 1 | verl-batch map -q -f ".response_mask |= map(0)" -o none.dp
    for a in grpo reinforce_plus_plus sppo; do
        exits 65 verl-advantage -q -e $a -i none.dp -o never.dp 2>err
        grep -q "no row has a valid response token" err
    done'
ok '84: the dual clip acts on negative advantages alone, its constant exceeds 1, each region has a counter' '
    exits 64 $update -s no -i old.dp clip_ratio_c=1 -o x.dp 2>err
    grep -q clip_ratio_c err
    edit old.dp ".old_log_probs |= map(. - 2)" up.dp # ratio e^2 = 7.4
    for sign in 1 -1; do
        edit up.dp ".advantages |= map($sign)" x.dp
        rm -rf s
        $update -s s -i x.dp -o s.dp
        if [ $sign = 1 ]; then want="1 0 1 0"; else want="0 1 0 0"; fi
        got=$(for k in pg_clipfrac pg_clipfrac_lower pg_clipfrac_high pg_clipfrac_low; do metric s.dp actor/$k; done | paste -sd" " -)
        [ "$got" = "$want" ] || { echo "A = $sign: $got, wanted $want"; false; }
    done'
ok '86: 16-bit weights are trained in fp32, moments too, and the share that changed is a metric' '
    verl-model convert -q m --dtype bf16 -o m16
    verl-update -q -m m16 -s s16 -i old.dp --stale-ok ppo_mini_batch_size=12 optim.lr=1e-3 -o x.dp
    for f in params exp_avg exp_avg_sq; do head -c 4000 s16/current/$f.safetensors | grep -ao "\"dtype\":\"[A-Z0-9]*\"" | sort -u | grep -qx "\"dtype\":\"F32\""; done
    metric x.dp actor/weights_changed | jq -e ". > 0.5 and . <= 1"'
ok '88: the log says how many steps were taken, on how many rows and tokens' '
    verl-update -m m -s log -i old.dp ppo_mini_batch_size=5 ppo_epochs=2 optim.lr=1e-3 -o x.dp 2>err
    tokens=$(verl-dump -k response_mask old.dp | jq -s "map(.response_mask) | flatten | add * 2")
    grep -q "6 optimizer steps on 24 rows and $tokens tokens in all" err
    [ $(metric x.dp actor/optimizer_steps) = 6 ]
    [ $(metric x.dp actor/rows) = 24 ]
    [ $(metric x.dp actor/tokens) = $tokens ]'
ok 'each number from 61 to 89 has its test' '
    for n in $(seq 61 89); do grep -qhE "ok .$n: " "$REPO"/tests/*.sh || echo $n; done >missing
    cat missing
    [ ! -s missing ]'
done_testing
