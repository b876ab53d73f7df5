#!/bin/sh
# verl-update over 1 to 4 ranks: gradients and weights within the bounds, equal metrics, any row count.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/toy.sh"
need_mpi

toy_model m
toy_batch b.dp 21 1
verl-logprob -q -m m -i b.dp -o old.dp
verl-value -q -m m -i b.dp -o val.dp

# exp_avg after one step from zero moments is (1 - beta1) times the gradient: as a model it can be
# compared by verl-model. Prints max |a-b| over max |a|.
as_model() {
    rm -rf "$2"
    mkdir "$2"
    cp "$1/current/config.json" "$2/"
    cp "$1/current/exp_avg.safetensors" "$2/model.safetensors"
}
relative() {
    as_model "$1" ga
    as_model "$2" gb
    scale=$(verl-model info ga --json --tensors | jq -e '[.tensors[].max] | max')
    gap=$(verl-model diff --json ga gb 2>/dev/null | tail -n 1 | jq -e .max_abs_diff)
    awk -v g="$gap" -v s="$scale" 'BEGIN { printf "%g\n", g / s }'
}

for role in actor critic; do
    in=old.dp key=actor_rollout_ref.actor
    [ $role = critic ] && in=val.dp key=critic
    for n in 1 2 3 4; do
        ok "81: $role, $n ranks: gradient within 1e-5, weights within 2 lr of one rank's" "
            verl-mpi $n verl-update -q -s $role$n --role $role -m m -i $in $key.optim.lr=1e-3 \
                ppo_mini_batch_size=21 --threads 1 -o $role$n.dp
            g=\$(relative ${role}1 $role$n)
            w=\$(verl-model diff --json ${role}1 $role$n 2>/dev/null | tail -n 1 | jq -e .max_abs_diff)
            echo \"gradient \$g, weights \$w\"
            awk -v g=\$g -v w=\$w 'BEGIN { exit !(g <= 1e-5 && w <= 2e-3) }'"
    done
done
ok 'the same number of ranks gives the same bits, whatever the micro-batches' "
    for cut in '--micro-batch 1' '--micro-batch 9'; do
        rm -rf s
        verl-mpi 3 verl-update -q -s s -m m -i old.dp optim.lr=1e-3 ppo_mini_batch_size=21 \$cut --threads 1 -o x.dp
        equal \"\$(hash_of s)\" \"\$(hash_of actor3)\"
        cmp x.dp actor3.dp
    done"
ok 'dpo: pairs stay together on 1 and 3 ranks' "
    verl-dump b.dp | jq -c '.preference = 1, (.preference = 0 | .sample = 1 | .responses |= map(if . > 1 then (. * 7 + 3) % 18 + 2 else . end))' |
        verl-batch from-json -q -i - | verl-batch set-meta -q global_steps 1 |
        verl-logprob -q --as ref -m m -o pairs.dp
    for n in 1 3; do
        verl-mpi \$n verl-update -q -s dpo\$n --role dpo -m m -i pairs.dp optim.lr=1e-3 ppo_mini_batch_size=21 --threads 1 -o dpo\$n.dp
    done
    g=\$(relative dpo1 dpo3)
    echo \"gradient \$g\"
    awk -v g=\$g 'BEGIN { exit !(g <= 1e-5) }'
    [ \$(metric dpo3.dp actor/rows) = 42 ]"
ok 'statistics over the step: clip_cov picks the same tokens on 1 and 3 ranks' "
    for n in 1 3; do
        verl-mpi \$n verl-update -q -s cov\$n -m m -i old.dp optim.lr=1e-3 ppo_mini_batch_size=21 --threads 1 \
            policy_loss.loss_mode=clip_cov clip_cov_ratio=0.2 clip_cov_lb=0 --statistics mini-batch -o cov\$n.dp
    done
    g=\$(relative cov1 cov3)
    echo \"gradient \$g\"
    awk -v g=\$g 'BEGIN { exit !(g <= 1e-5) }'
    equal \"\$(metric cov1.dp actor/pg_clipfrac)\" \"\$(metric cov3.dp actor/pg_clipfrac)\""
verl-dump old.dp | jq -c '.ref_log_prob = (.old_log_probs | map(. - 0.3)) | .old_log_probs |= (. as $x | [range(length) as $t | $x[$t] + 0.4 * (($t * 7 % 5) / 4 - 0.5)])' |
    verl-batch from-json -q --like old.dp --dtype ref_log_prob=F32 -o off.dp
same_on_2() { # OPTION...: metrics, the norm of the gradient among them
    rm -rf one two
    set -- -q -m m -i off.dp optim.lr=1e-3 ppo_mini_batch_size=21 --threads 1 use_kl_loss=true entropy_coeff=0.01 "$@"
    verl-update "$@" -s one -o one.dp 2>err && verl-mpi 2 verl-update "$@" -s two -o two.dp 2>err || { cat err; return 1; }
    for k in one two; do verl-dump --meta $k.dp; done |
        jq -es 'map(.metrics) | .[0] as $a | .[1] as $b | ($a | keys) == ($b | keys) and
            all($a | keys[]; ($a[.] - $b[.] | fabs) <= 1e-5 * (1 + ($a[.] | fabs)))' || { echo "$*"; return 1; }
}
ok '81: every policy loss and reduction: gradient norm and metrics of 2 ranks are those of one' '
    for l in $(verl-update --print-config policy_loss.loss_mode=none 2>&1 | grep -o "vanilla.*for example" | tr -c "a-z_\n" " " | sed "s/ or / /; s/ for example//"); do
        same_on_2 policy_loss.loss_mode=$l policy_loss.clip_cov_ratio=0.2 policy_loss.clip_cov_lb=0 policy_loss.kl_cov_ratio=0.2 --statistics mini-batch
    done
    for g in seq-mean-token-sum seq-mean-token-mean seq-mean-token-sum-norm; do same_on_2 loss_agg_mode=$g; done'
ok '87: more ranks than rows, several mini-batches, sft' "
    verl-batch slice -q :2 -i old.dp -o two.dp
    verl-mpi 4 verl-update -q -s few -m m -i two.dp optim.lr=1e-3 ppo_mini_batch_size=1 --threads 1 -o x.dp
    [ \$(metric x.dp actor/optimizer_steps) = 2 ]
    for n in 1 3; do
        verl-mpi \$n verl-update -q -s sft\$n --role sft -m m -i b.dp optim.lr=1e-3 data.train_batch_size=7 \
            trainer.total_epochs=1 --threads 1 -o sft\$n.dp
    done
    w=\$(verl-model diff --json sft1 sft3 2>/dev/null | tail -n 1 | jq -e .max_abs_diff)
    awk -v w=\$w 'BEGIN { exit !(w <= 2e-3) }'"
ok 'rank 0 publishes once; the line again, on another number of ranks, has nothing to do' "
    [ \$(ls -d actor3/v* | wc -l) = 2 ]
    verl-mpi 2 verl-update -s actor3 -m m -i old.dp optim.lr=1e-3 ppo_mini_batch_size=21 -o y.dp 2>err
    grep -q 'nothing to do' err
    cmp y.dp actor3.dp"
ok 'an error of one step ends all ranks with one line and its status' "
    exits 65 verl-mpi 3 verl-update -s actor3 -i old.dp optim.lr=1e-2 -o x.dp 2>err
    [ \$(grep -c 'were made by other weights' err) = 1 ]
    exits 66 verl-mpi 2 verl-update -s none -i old.dp -o x.dp 2>err"
ok '85: a gradient that is not finite on one rank: named with the rank' "
    verl-dump old.dp | jq -c 'if .uid == \"0-20\" then .advantages |= map(. * 1e30) else . end' |
        verl-batch from-json -q --like old.dp -i - -o inf.dp
    exits 65 verl-mpi 2 verl-update -s inf -m m -i inf.dp ppo_mini_batch_size=21 loss_agg_mode=seq-mean-token-sum-norm loss_scale_factor=1e-9 --max-skips 1 --threads 1 -o x.dp 2>err
    grep -q 'on rank 1 is not finite' err"
done_testing
