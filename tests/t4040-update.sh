#!/bin/sh
# verl-update: the three roles learn, cuts and threads do not show, versions and columns are checked.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/toy.sh"

toy_model m
toy_batch b.dp 48 1
verl-logprob -q -m m -i b.dp -o old.dp
verl-logprob -q --as ref -m m -i old.dp -o ref.dp
verl-value -q -m m -i b.dp -o val.dp
actor='-m m -i ref.dp optim.lr=1e-3 ppo_mini_batch_size=20 ppo_epochs=2 entropy_coeff=0.01 use_kl_loss=true'
critic='--role critic -m m -i val.dp critic.optim.lr=1e-3 ppo_mini_batch_size=20'
sft='--role sft -m m -i b.dp optim.lr=3e-3 data.train_batch_size=16 trainer.total_epochs=3'

ok 'the first ratio is exactly 1: no KL, no clipping, loss = - mean advantage' "
    verl-update -q -s a1 -m m -i old.dp ppo_mini_batch_size=48 -o m.dp
    [ \$(metric m.dp actor/ppo_kl) = 0 ]
    [ \$(metric m.dp actor/pg_clipfrac) = 0 ]
    verl-dump old.dp | jq -s '[.[] | .advantages[:(.response_mask | add)]] | flatten | add / length' >mean
    verl-dump --schema m.dp | jq -e --slurpfile mean mean '(.meta_info.metrics[\"actor/pg_loss\"] + \$mean[0]) | fabs < 1e-6'"
ok 'the batch says how many samples a prompt has; a config file for all stages does not, the command line does' "
    printf 'actor_rollout_ref: {rollout: {n: 1}}\n' >one.yaml
    verl-batch set-meta -q n 4 -i old.dp -o four.dp
    verl-update -s n1 -m m -i four.dp ppo_mini_batch_size=12 -o m.dp 2>err
    verl-update -s n2 -m m -i four.dp ppo_mini_batch_size=12 -c one.yaml -o m2.dp 2>err
    grep -q 'rollout.n is 1 in the config file, but the batch was made with n 4, which is used' err
    cmp m.dp m2.dp
    verl-update -s n3 -m m -i four.dp ppo_mini_batch_size=12 rollout.n=1 -o m3.dp 2>err
    grep -q 'rollout.n is 1, but the batch was made with n 4: 1 is used, as given here' err
    [ \$(metric m3.dp actor/optimizer_steps) = 4 ]"
ok '--log: a line a step; what goes on keeps the lines it has; --keep-current needs --from' "
    verl-update -q -s l1 $sft --log l1.jsonl trainer.save_freq=2 -o m.dp
    [ \$(wc -l <l1.jsonl) = 9 ]
    (VL_STOP_AT=state-pruned verl-update -q -s l2 $sft --log l2.jsonl trainer.save_freq=2 -o m.dp & pid=\$!
    i=0; until [ -e l2/v000001 ] && grep -q '^State:.T' /proc/\$pid/status; do sleep 0.05; i=\$((i + 1)); [ \$i -lt 200 ]; done
    kill -9 \$pid; wait \$pid || :)
    echo '{\"of\": \"a step that was not published\"}' >>l2.jsonl
    verl-update -q -s l2 $sft --log l2.jsonl trainer.save_freq=2 -o m.dp
    cmp l1.jsonl l2.jsonl
    exits 64 verl-update -q -s l1 $sft --keep-current -o m.dp
    exits 73 verl-update -q -s l3 $sft --log no/such/dir -o m.dp"
ok 'without old_log_probs the rollout log-probs of the same weights are taken: the same bits' "
    verl-batch rename -q old_log_probs:rollout_log_probs -i old.dp |
        verl-batch set-meta -q logprobs_mode full_vocabulary \
        rollout_log_probs_weights \"\$(verl-dump --schema old.dp | jq -c .meta_info.old_log_probs_weights)\" -o ro.dp
    verl-update -s a2 -m m -i ro.dp ppo_mini_batch_size=48 -o m.dp 2>err
    grep -q 'rollout_log_probs are used' err
    equal \"\$(hash_of a1)\" \"\$(hash_of a2)\"
    verl-batch set-meta -q logprobs_mode kept_set -i ro.dp -o ro2.dp
    exits 65 verl-update -s a3 -m m -i ro2.dp -o m.dp 2>err
    grep -q 'column old_log_probs is missing' err"
for role in actor critic sft; do
    eval "opts=\$$role"
    ok "81: $role: new weights are bit-equal for every cut into micro-batches and thread count" "
        verl-update -q -s $role.ref $opts -o $role.dp
        n=0
        for cut in '--micro-batch 1' '--micro-batch 7 --threads 2' '--micro-batch 48' \
            '--recompute --micro-batch 5'; do
            rm -rf s
            verl-update -q -s s $opts \$cut -o x.dp
            cmp s/current/params.safetensors $role.ref/current/params.safetensors
            cmp s/current/exp_avg_sq.safetensors $role.ref/current/exp_avg_sq.safetensors
            cmp x.dp $role.dp
        done"
done
ok 'a prompt that rows share is computed once: the same loss, a gradient equal but for rounding' "
    toy_rows 12 5 | jq -c 'range(4) as \$s | .sample = \$s | .responses[0] = 2 + \$s * 3 |
        .advantages |= map(. * (\$s - 1.5))' | verl-batch from-json -q -i - |
        verl-batch set-meta -q temperature 1 n 4 global_steps 5 | verl-logprob -q -m m -o g.dp
    group='--role actor -m m -i g.dp actor.optim.lr=1e-3 actor.ppo_mini_batch_size=3 --compute fp32'
    verl-update -q -s g1 \$group -o shared.dp
    verl-update -q -s g2 \$group -o each.dp --no-share-prompts
    for k in actor/pg_loss actor/grad_norm; do
        awk -v a=\$(metric shared.dp \$k) -v b=\$(metric each.dp \$k) \
            'BEGIN { d = a - b; s = a < 0 ? -a : a; exit !((d < 0 ? -d : d) <= 1e-5 * s + 1e-9) }'
    done
    not cmp -s g1/current/exp_avg.safetensors g2/current/exp_avg.safetensors
    for cut in '--micro-batch 1' '--micro-batch 5 --threads 2' '--recompute' \
        'actor.ppo_max_token_len_per_gpu=20'; do
        rm -rf s
        verl-update -q -s s \$group \$cut -o x.dp
        cmp s/current/params.safetensors g1/current/params.safetensors
        cmp x.dp shared.dp
    done"
ok 'activations that do not fit are computed again, said, to the same bits; what then does not fit is 71' "
    verl-model init -q -o deep --hidden 64 --layers 32 --heads 4 --ffn 256 --vocab 20 --eos-id 1
    toy_batch wide.dp 600 7
    wide='verl-update --role sft -m deep -i wide.dp data.train_batch_size=600 trainer.total_training_steps=1 --threads 1 --micro-batch 300'
    \$wide -s r1 --recompute -o x.dp 2>err
    few=\$(sed -n 's/.*; \([0-9]*\)[.0-9]* MB needed.*/\1/p' err)
    \$wide -s r2 --no-recompute -o x.dp 2>err
    all=\$(sed -n 's/.*; \([0-9]*\)[.0-9]* MB needed.*/\1/p' err)
    echo \"\$few MB, \$all MB\"
    [ \$((all - few)) -gt 60 ]
    for extra in 40 80 120; do # the program itself takes some
        rm -rf r3
        (
            ulimit -v \$(((few + extra) * 1024))
            \$wide -s r3 -o x.dp 2>err
        )
        grep -q 'computed again' err
        equal \"\$(hash_of r3)\" \"\$(hash_of r2)\"
    done
    rm -rf r3
    ulimit -v \$(((few + 40) * 1024))
    exits 71 \$wide -s r3 --no-recompute -o x.dp 2>err
    grep -q 'are available: give .*--recompute ([0-9.]* MB)' err"
ok 'moments in a file: the same state and metrics, less memory announced, nothing left behind' "
    for role in actor critic sft; do
        eval opts=\\\$\$role
        for key in --optimizer-offload \$(case \$role in
            actor) echo actor_rollout_ref.actor.fsdp_config ;;
            critic) echo critic.model.fsdp_config ;;
            sft) echo engine ;;
            esac).optimizer_offload=true; do
            rm -rf s
            verl-update -s s \$opts \$key -o x.dp 2>err
            for file in params exp_avg exp_avg_sq; do
                cmp s/current/\$file.safetensors \$role.ref/current/\$file.safetensors
            done
            cmp x.dp \$role.dp
            equal \"\$(ls -A s)\" \"\$(ls -A \$role.ref)\"
        done
    done
    # half way published, and gone on with
    for offload in '' --optimizer-offload; do
        verl-update -q -s half\$offload --role sft -m m -i b.dp data.train_batch_size=12 \\
            trainer.total_training_steps=6 trainer.save_freq=2 \$offload -o half\$offload.dp
    done
    cmp half.dp half--optimizer-offload.dp
    equal \"\$(hash_of half)\" \"\$(hash_of half--optimizer-offload)\""
ok 'moments that do not fit: 71 names the file, which then is enough; no room for it there is 74' "
    verl-model init -q -o broad --hidden 64 --layers 1 --heads 4 --ffn 64 --vocab 200000 --eos-id 1
    line='verl-update --role sft -m broad -i b.dp data.train_batch_size=12 trainer.total_training_steps=1 --threads 1 --compute fp32'
    \$line -s b1 -o x.dp 2>err
    all=\$(sed -n 's/.*; \([0-9]*\)[.0-9]* MB needed.*/\1/p' err)
    (
        ulimit -v \$(((all - 60) * 1024))
        exits 71 \$line -s b2 -o y.dp 2>err
        grep -q 'give .*--optimizer-offload ([0-9.]* MB)' err
        [ ! -e b2 ]
        \$line -s b2 --optimizer-offload -o y.dp 2>err
    )
    cmp x.dp y.dp
    equal \"\$(hash_of b1)\" \"\$(hash_of b2)\"
    (
        trap '' XFSZ
        ulimit -f 100000
        exits 74 \$line -s b2 --optimizer-offload data.shuffle=false -o z.dp 2>err
    )
    grep -q '^verl-update: b2: no room for the optimizer.s moments, 2[0-9.]* MB: ' err
    [ ! -e z.dp ]
    [ \$(ls -A b2 | grep -c aside) = 0 ]"
ok 'a token budget, and fp32, too' "
    for c in bf16 fp32; do
        rm -rf s t
        verl-update -q -s s $sft --compute \$c -o x.dp
        verl-update -q -s t $sft --compute \$c data.max_token_len_per_gpu=17 -o y.dp
        equal \"\$(hash_of s)\" \"\$(hash_of t)\"
    done 2>err || { grep -q 'no instruction' err; }"
ok 'sft learns the toy; the metrics say what was done' "
    verl-update -q -s long --role sft -m m -i b.dp optim.lr=1e-2 data.train_batch_size=16 \
        trainer.total_training_steps=150 optim.lr_warmup_steps=10 -o x.dp
    first=\$(metric sft.dp train/loss) last=\$(metric x.dp train/loss)
    echo \"loss \$first, then \$last\"
    awk -v a=\$first -v b=\$last 'BEGIN { exit !(b < 0.6 * a) }'
    [ \$(metric x.dp train/optimizer_steps) = 150 ]
    [ \$(metric x.dp train/rows) = 2400 ]
    jq -e '.schedule_position == 150 and .total_steps == 150 and .optimizer_steps == 150' long/current/state.json"
ok '89: sft killed between two saves goes on from the last one to the same bits' "
    line='verl-update -q -s part --role sft -m m -i b.dp optim.lr=1e-2 data.train_batch_size=16
        trainer.total_training_steps=20 trainer.save_freq=8'
    kill_at state-linked \$line -o x.dp
    [ \$(readlink part/current) = v000000 ]
    kill_at state-linked \$line -o x.dp
    jq -e '.progress.step == 8' part/current/state.json
    \$line -o x.dp
    verl-update -q -s whole --role sft -m m -i b.dp optim.lr=1e-2 data.train_batch_size=16 \
        trainer.total_training_steps=20 -o y.dp
    equal \"\$(hash_of part)\" \"\$(hash_of whole)\"
    verl-dump --schema x.dp | jq .meta_info >x.json
    verl-dump --schema y.dp | jq .meta_info | cmp - x.json"
ok 'the actor raises the log-probs of good answers and lowers those of bad ones' "
    verl-update -q -s act -m m -i old.dp optim.lr=1e-3 ppo_mini_batch_size=48 -o x.dp
    verl-logprob -q -m act -i b.dp -o new.dp
    verl-dump old.dp >o.json
    verl-dump new.dp >n.json
    paste -d '\n' o.json n.json | jq -s '[range(0; length; 2) as \$i | .[\$i] as \$o | .[\$i + 1] as \$n |
        ((\$n.old_log_probs | add) - (\$o.old_log_probs | add)) * \$o.advantages[0]] | add' >gain
    cat gain
    jq -e '. > 0' gain"
ok 'the critic comes closer to the returns' "
    verl-update -q -s cr --role critic -m m -i val.dp critic.optim.lr=3e-3 ppo_mini_batch_size=16 \
        ppo_epochs=10 critic.cliprange_value=100 -o x.dp
    verl-update -q -s cr1 --role critic -m m -i val.dp ppo_mini_batch_size=48 -o y.dp
    awk -v a=\$(metric y.dp critic/vf_loss) -v b=\$(metric x.dp critic/vf_loss) 'BEGIN { exit !(b < 0.9 * a) }'
    exits 65 verl-update -s cr -i old.dp -o x.dp 2>err
    grep -q 'holds a value head' err"
ok 'the learning rate: one schedule step a call, warm-up from 0, cosine needs its length' "
    exits 64 verl-update -s sch -m m -i old.dp optim.lr_scheduler_type=cosine -o x.dp 2>err
    grep -q total_training_steps err
    rm -rf sch
    o='optim.lr=4e-4 optim.lr_scheduler_type=cosine optim.lr_warmup_steps=2 optim.total_training_steps=6 ppo_mini_batch_size=24'
    for want in 0 0.0002 0.0004 0.00034142135623730950488; do
        verl-logprob -q -m \$([ -d sch ] && echo sch || echo m) -i b.dp |
            verl-batch set-meta -q tag \$want -o o.dp
        verl-update -q -s sch -m m -i o.dp \$o -o x.dp
        awk -v a=\$(metric x.dp actor/lr) -v b=\$want 'BEGIN { print a, b; d = a - b; exit !(d * d <= 1e-24 * b * b) }'
    done"
ok '83: rows without a valid token change nothing; none at all is 65' "
    verl-dump old.dp | jq -c 'if .uid == \"0-3\" then .response_mask |= map(0) else . end' |
        verl-batch from-json -q --like old.dp -i - -o masked.dp
    verl-dump old.dp | jq -c 'select(.uid != \"0-3\")' |
        verl-batch from-json -q --like old.dp -i - -o less.dp
    verl-update -q -s ma -m m -i masked.dp optim.lr=1e-3 ppo_mini_batch_size=48 -o x.dp
    verl-update -q -s le -m m -i less.dp optim.lr=1e-3 ppo_mini_batch_size=48 -o x.dp
    equal \"\$(hash_of ma)\" \"\$(hash_of le)\"
    verl-dump old.dp | jq -c '.response_mask |= map(0)' | verl-batch from-json -q --like old.dp -i - -o none.dp
    exits 65 verl-update -s no -m m -i none.dp -o x.dp 2>err
    grep -q 'no row has a valid token' err"
ok '85: a gradient that is not finite: skipped, counted, the tensor named; nothing is published' "
    verl-dump old.dp | jq -c 'if .uid == \"0-3\" then .advantages |= map(. * 1e30) else . end' |
        verl-batch from-json -q --like old.dp -i - -o inf.dp
    big='loss_agg_mode=seq-mean-token-sum-norm loss_scale_factor=1e-9'
    exits 65 verl-update -s inf -m m -i inf.dp optim.lr=1e-3 ppo_mini_batch_size=48 \$big --max-skips 1 -o x.dp 2>err
    grep -q 'step 1 skipped: the gradient of .* is not finite' err
    [ ! -e inf/current ]
    verl-update -s inf -m m -i inf.dp optim.lr=1e-3 ppo_mini_batch_size=12 \$big -o x.dp 2>err
    [ \$(metric x.dp actor/skipped_steps) = 1 ]
    [ \$(metric x.dp actor/optimizer_steps) = 3 ]
    jq -e '.skipped == 1 and .optimizer_steps == 3' inf/current/state.json"
ok 'a batch with something wrong is 65 and says what' "
    exits 65 verl-update -s w -m m -i b.dp -o x.dp 2>err
    grep -q 'old_log_probs is missing' err
    exits 65 verl-update -s w -m m -i old.dp use_kl_loss=true -o x.dp 2>err
    grep -q ref_log_prob err
    exits 65 verl-update -s w --role critic -m m -i old.dp -o x.dp 2>err
    exits 65 verl-update -s w2 --role sft -m m -i b.dp data.train_batch_size=100 -o x.dp 2>err
    grep -q 'data.train_batch_size is 100 but the batch has 48 rows' err
    verl-dump old.dp | jq -c 'if .uid == \"0-3\" then .advantages[0] = \"NaN\" else . end' |
        verl-batch from-json -q --like old.dp -i - -o nan.dp
    exits 65 verl-update -s w3 -m m -i nan.dp -o x.dp 2>err
    grep -q 'row 3 (uid \"0-3\"): advantages is' err
    verl-dump old.dp | jq -c 'if .uid == \"0-3\" then .response_mask[0] = 2 else . end' |
        verl-batch from-json -q --like old.dp -i - -o two.dp
    verl-dump old.dp | jq -c 'if .uid == \"0-3\" then .attention_mask[4:] = [1, 0, 0, 0, 0] | .response_mask = [1, 1, 0, 0, 0] else . end' |
        verl-batch from-json -q --like old.dp -i - -o long.dp
    for c in 'verl-update -s w3' verl-logprob verl-value; do
        exits 65 \$c -m m -i two.dp -o x.dp 2>err
        grep -q 'row 3 (uid \"0-3\"): response_mask is 2 at position 0; a mask is 0 or 1' err
        exits 65 \$c -m m -i long.dp -o x.dp 2>err
        grep -q 'row 3 (uid \"0-3\"): response_mask is 1 at position 1, .* only 1 tokens' err
    done
    verl-dump old.dp | jq -c '.rollout_is_weights = [.response_mask[] | -.]' |
        verl-batch from-json -q --like old.dp --dtype rollout_is_weights=F32 -o neg.dp
    exits 65 verl-update -s w3 -m m -i neg.dp -o x.dp 2>err
    grep -q 'rollout_is_weights is -1 at position 0; an importance weight is never below 0' err
    exits 64 verl-update -s w3 -m m -i old.dp actor.loss_agg_mode=seq-mean-token-sum-norm actor.loss_scale_factor=0 -o x.dp 2>err
    grep -q 'loss_scale_factor is 0' err
    exits 64 verl-update -s w -m m -i old.dp policy_loss.loss_mode=best -o x.dp 2>err
    exits 64 verl-update -m m -i old.dp -o x.dp 2>err
    grep -q 'give -s DIR' err"
ok 'an option that cannot act is told, with the one that keeps it from it' "
    told() {
        rm -rf s
        verl-update -s s -m m -i ref.dp \"\$@\" -o x.dp 2>err
        grep 'has no effect' err
    }
    told clip_ratio=0.3 | grep 'clip_ratio has no effect beside clip_ratio_low=0.2 and clip_ratio_high=0.2'
    told policy_loss.loss_mode=gpg clip_ratio_low=0.1 | grep 'loss_mode=gpg'
    told kl_loss_coef=0.1 | grep 'without use_kl_loss=true'
    told loss_scale_factor=3 | grep 'loss_agg_mode=token-mean'
    told policy_loss.kl_cov_ratio=0.1 | grep 'loss_mode=vanilla'
    told actor.optim.min_lr_ratio=0.1 | grep 'lr_scheduler_type=constant'
    told actor.ppo_micro_batch_size_per_gpu=3 --micro-batch 4 | grep 'micro-batch 4'
    told policy_loss.loss_mode=gspo loss_agg_mode=seq-mean-token-sum | grep 'policy loss gspo'
    if told clip_ratio=0.3 clip_ratio_low=null clip_ratio_high=null kl_loss_coef=0.001; then false; fi"
# Rollout log-probs that are off by up to 0.4, as another engine's would be.
verl-dump old.dp | jq -c '.rollout_log_probs = [.old_log_probs | to_entries[] | .value + (((.key * 7 + (.value * 1000 | floor)) % 9 + 9) % 9 - 4) / 10]' |
    verl-batch from-json -q --like old.dp --dtype rollout_log_probs=F32 -o off.dp
bypass='verl-update -q -m m -i off.dp optim.lr=1e-2 ppo_mini_batch_size=24 bypass_mode=true'
cuts() { # FILE COMMAND...: new weights and metrics are the same for every cut
    out=$1
    shift
    rm -rf s1 s2 s3
    "$@" -s s1 -o $out
    "$@" -s s2 --micro-batch 1 -o x2.dp
    "$@" -s s3 --micro-batch 7 -o x3.dp
    cmp s1/current/params.safetensors s2/current/params.safetensors
    cmp s1/current/params.safetensors s3/current/params.safetensors
    cmp $out x2.dp
    cmp $out x3.dp
}
ok 'bypass mode: old log-probs are the rollout s; without correction it is vanilla or reinforce' "
    verl-batch drop -q -k old_log_probs -i off.dp | verl-batch rename -q rollout_log_probs:old_log_probs -o was.dp
    for l in ppo_clip:vanilla reinforce:reinforce; do
        rm -rf s t
        \$bypass -s s rollout_correction.loss_type=\${l%:*} -o x.dp
        verl-update -q -m m -i was.dp -s t optim.lr=1e-2 ppo_mini_batch_size=24 policy_loss.loss_mode=\${l#*:} -o y.dp
        equal \"\$(hash_of s)\" \"\$(hash_of t)\"
    done
    metric x.dp rollout_corr/k3_kl | grep -v null
    exits 65 verl-update -s s4 -m m -i old.dp bypass_mode=true -o x.dp 2>err
    grep -q 'rollout_log_probs is missing.*calculate_log_probs=true' err"
ok 'bypass mode: weights and rejection act, metrics are of the whole step, no cut shows' "
    cuts x.dp \$bypass rollout_correction.loss_type=reinforce rollout_is=sequence rollout_rs=seq_mean_k1 rollout_rs_threshold=0.9_1.1
    h=\$(hash_of s1)
    metric x.dp rollout_corr/rollout_is_mean | grep -v null
    metric x.dp rollout_corr/rollout_rs_masked_fraction | awk '{ exit !(\$1 > 0 && \$1 < 1) }'
    cuts y.dp \$bypass rollout_correction.loss_type=reinforce rollout_is=sequence rollout_rs=seq_mean_k1 rollout_rs_threshold=0.9_1.1 --statistics mini-batch
    [ \$h != \$(hash_of s1) ] # the denominators are those of the tokens kept
    exits 65 \$bypass -s s5 rollout_rs=seq_mean_k1 rollout_rs_threshold=5_6 -o x.dp 2>err
    grep -q 'rollout_rs rejects it' err"
ok 'statistics over a micro-batch depend on the cut, those over the step do not' "
    for o in policy_loss.loss_mode=clip_cov policy_loss.loss_mode=kl_cov \
        'bypass_mode=true rollout_correction.loss_type=reinforce rollout_is=token rollout_is_batch_normalize=true'; do
        line=\"verl-update -q -m m -i off.dp optim.lr=1e-2 ppo_mini_batch_size=24 clip_cov_ratio=0.1 clip_cov_lb=0 kl_cov_ratio=0.1 \$o\"
        if cuts x.dp \$line; then false; fi
        h=\$(hash_of s1)
        cuts x.dp \$line --statistics mini-batch
        case \$o in policy*) [ \$h = \$(hash_of s1) ] ;; esac # one micro-batch was the whole step
    done
    rm -rf s; verl-update -s s -m m -i old.dp --statistics mini-batch -o x.dp 2>err
    grep -q 'statistics has no effect' err"
ok 'every policy loss and aggregation runs and differs' "
    rm -f hashes
    for l in vanilla gspo sapo gpg clip_cov kl_cov geo_mean cispo sppo; do
        rm -rf s
        verl-update -q -s s -m m -i old.dp policy_loss.loss_mode=\$l optim.lr=1e-2 ppo_mini_batch_size=24 ppo_epochs=3 -o x.dp
        hash_of s >>hashes
    done
    for g in seq-mean-token-sum seq-mean-token-mean seq-mean-token-sum-norm; do
        rm -rf s
        verl-update -q -s s -m m -i old.dp loss_agg_mode=\$g optim.lr=1e-2 ppo_mini_batch_size=24 ppo_epochs=3 -o x.dp
        hash_of s >>hashes
    done
    cat hashes
    [ \$(sort -u hashes | wc -l) = 12 ]"
done_testing
