#!/bin/sh
# Distillation: a teacher's columns have the same bits for any pass, every loss pulls to the teacher.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/toy.sh"

toy_model m
toy_model other --std 0.2 --seed 9
toy_batch b.dp 24 1
# The teacher has learnt the toy.
verl-update -q --role sft -s teach -m m -i b.dp optim.lr=1e-2 data.train_batch_size=24 trainer.total_training_steps=60 -o x.dp
verl-logprob -q -m m -i b.dp -o old.dp
verl-logprob -q --as teacher --topk 6 -m teach -i old.dp -o t.dp
D=distillation.distillation_loss
distill="verl-update -q -m m -i t.dp optim.lr=3e-3 ppo_mini_batch_size=12 distillation.enabled=true"

ok 'the columns: log-probs fall, the sampled token is among them where it is likely, ids are ids' "
    verl-dump t.dp | jq -es 'length > 0 and all(.teacher_topk_ids[0] | length == 6)' >/dev/null
    verl-dump t.dp | jq -es 'length > 0 and all(.[]; . as \$r | all(range(\$r.response_mask | add); . as \$t |
        (\$r.teacher_topk_log_probs[\$t] | . == (sort | reverse)) and
        (\$r.teacher_topk_ids[\$t] | length == (unique | length)) and
        ((\$r.teacher_topk_ids[\$t] | index(\$r.responses[\$t])) as \$k |
            if \$k then \$r.teacher_topk_log_probs[\$t][\$k] == \$r.teacher_log_probs[\$t] else
                \$r.teacher_log_probs[\$t] <= \$r.teacher_topk_log_probs[\$t][-1] end)))'
    verl-dump --meta t.dp | jq -e '.teacher_log_probs_weights.hash != .old_log_probs_weights.hash'"
ok 'the same bytes for every cut and number of threads; teacher_log_probs alone by default' "
    for cut in '--micro-batch 1' '--micro-batch 5 --threads 2' 'ref.log_prob_max_token_len_per_gpu=9'; do
        verl-logprob -q --as teacher --topk 6 -m teach -i old.dp \$cut -o u.dp
        cmp t.dp u.dp
    done
    verl-logprob -q --as teacher -m teach -i old.dp -o v.dp
    verl-dump --schema v.dp | jq -e '[.columns[].name] | index(\"teacher_log_probs\") and (index(\"teacher_topk_ids\") | not)'
    verl-logprob -q --as teacher -i old.dp $D.loss_mode=jsd_topk $D.topk=6 distillation.teacher_model.model_path=teach -o w.dp
    for f in t w; do verl-dump -k teacher_topk_ids \$f.dp >\$f.json; done
    cmp t.json w.json
    exits 64 verl-logprob --as teacher --topk 21 -m teach -i old.dp -o x.dp 2>err
    grep -q 'the teacher has 20 ids' err"
ok 'with the policy s own ids the lists are the union of both' "
    verl-logprob -q -m m -i b.dp --own-topk 4 -o own.dp
    verl-dump -k old_log_probs,entropys own.dp >own.json
    verl-dump -k old_log_probs,entropys old.dp | cmp - own.json
    verl-logprob -q --as teacher --topk 6 -m teach -i own.dp -o both.dp
    verl-dump both.dp >both.json
    verl-dump t.dp >t.json
    jq -n --slurpfile a both.json --slurpfile b t.json -e 'all(range(\$b | length); . as \$i | \$a[\$i] as \$x | \$b[\$i] as \$y |
        all(range(\$x.response_mask | add); . as \$t | \$x.teacher_topk_ids[\$t] as \$ids | (\$ids | map(select(. >= 0))) as \$real |
            (\$ids | length == 10) and \$ids[:6] == \$y.teacher_topk_ids[\$t] and (\$real | length == (unique | length)) and
            (\$real | sort) == (\$ids[:6] + \$x.old_topk_ids[\$t] | unique) and
            \$x.teacher_topk_log_probs[\$t][:6] == \$y.teacher_topk_log_probs[\$t]))'
    for cut in '--micro-batch 1' '--micro-batch 7 --threads 2'; do
        verl-logprob -q --as teacher --topk 6 -m teach -i own.dp \$cut -o u.dp
        cmp both.dp u.dp
    done
    rm -rf s r
    line=\"verl-update -q -m m -i both.dp distillation.enabled=true $D.use_task_rewards=false $D.loss_mode=reverse_kl_topk ppo_mini_batch_size=24 optim.lr=5e-3\"
    \$line -s s -o x.dp
    \$line -s r --micro-batch 5 -o y.dp
    cmp x.dp y.dp
    cmp s/current/params.safetensors r/current/params.safetensors"
ok 'every mode runs, differs, and no cut shows' "
    rm -f hashes
    for o in loss_mode=k1 loss_mode=k3 loss_mode=k3+ loss_mode=forward_kl_topk loss_mode=reverse_kl_topk loss_mode=jsd_topk \
        'loss_mode=jsd_topk $D.jsd_beta=0.1' 'loss_mode=k1 $D.use_policy_gradient=true'; do
        for alone in true false; do
            rm -rf s r
            $distill -s s $D.\$o $D.use_task_rewards=\$alone -o x.dp
            $distill -s r $D.\$o $D.use_task_rewards=\$alone --micro-batch 5 -o y.dp
            cmp s/current/params.safetensors r/current/params.safetensors
            cmp x.dp y.dp
            hash_of s >>hashes
            metric x.dp distillation/loss | grep -v null >/dev/null
        done
    done
    [ \$(sort -u hashes | wc -l) = 16 ]
    rm -rf s
    $distill -s s $D.loss_mode=forward_kl_topk $D.loss_max_clamp=0.1 -o x.dp
    [ \$(metric x.dp distillation/clamped_tokens) -gt 0 ]
    rm -rf s
    $distill -s s $D.loss_mode=forward_kl_topk $D.log_prob_min_clamp=-1 -o y.dp
    [ \$(metric x.dp distillation/loss) != \$(metric y.dp distillation/loss) ]"
ok 'alone it needs no advantages and draws the policy to the teacher' "
    verl-batch select -q -k uid,sample,prompts,responses,attention_mask,response_mask,teacher_log_probs,teacher_topk_ids,teacher_topk_log_probs -i t.dp -o only.dp
    for mode in forward_kl_topk reverse_kl_topk jsd_topk; do
        rm -rf s
        line=\"verl-update -q -s s -m m -i only.dp distillation.enabled=true $D.use_task_rewards=false $D.loss_mode=\$mode ppo_mini_batch_size=24\"
        \$line optim.lr=0 ppo_epochs=1 -o first.dp
        \$line optim.lr=5e-3 ppo_epochs=40 -o x.dp
        \$line optim.lr=0 ppo_epochs=1 -o last.dp
        a=\$(metric first.dp distillation/loss) b=\$(metric last.dp distillation/loss)
        echo \"\$mode \$a \$b\"
        awk -v a=\$a -v b=\$b 'BEGIN { exit !(b < 0.5 * a) }'
    done"
ok 'what is wrong is refused and named' "
    exits 65 verl-update -s s2 -m m -i old.dp distillation.enabled=true -o x.dp 2>err
    grep -q 'teacher_log_probs is missing.*--as teacher' err
    exits 65 verl-update -s s2 -m m -i old.dp distillation.enabled=true $D.loss_mode=jsd_topk -o x.dp 2>err
    grep -q 'topk 32' err
    verl-dump t.dp | jq -c 'if .uid == \"0-3\" then .teacher_topk_ids[0][2] = 20 else . end' |
        verl-batch from-json -q --like t.dp -o bad.dp
    exits 65 verl-update -s s2 -m m -i bad.dp distillation.enabled=true $D.loss_mode=jsd_topk -o x.dp 2>err
    grep -q 'row 3 (uid \"0-3\"), response position 0: .*id 20' err
    exits 64 verl-update -s s2 -m m -i t.dp distillation.enabled=true $D.loss_mode=best -o x.dp 2>err
    grep -q 'forward_kl_topk' err
    exits 64 verl-update -s s2 -m m -i t.dp distillation.enabled=true $D.los_mode=k1 -o x.dp 2>err
    grep -q 'loss_mode' err
    exits 64 verl-logprob --as teacher -i old.dp -o x.dp 2>err
    grep -q 'distillation.teacher_model.model_path=DIR' err"
if have_mpi; then
    ok 'three ranks: the same columns' "
        verl-mpi 3 verl-logprob -q --as teacher --topk 6 -m teach -i own.dp --threads 1 -o u.dp
        cmp both.dp u.dp
        verl-mpi 3 verl-logprob -q --as teacher --topk 6 -m teach -i old.dp --threads 1 -o u.dp
        cmp t.dp u.dp"
else
    skip "$why"
fi
done_testing
