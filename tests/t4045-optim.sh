#!/bin/sh
# verl-update's optimizers: each has its own state files, goes on to the same bits, and refuses others'.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/toy.sh"

toy_model m
toy_batch b.dp 16 1
sft='verl-update -q --role sft -m m -i b.dp data.train_batch_size=8'
O=optim.override_optimizer_config
files() { (cd "$1/current/" && echo *.safetensors); }

ok 'each optimizer remembers its own: files, record' "
    $sft -s adamw -o x.dp
    [ \"\$(files adamw)\" = 'exp_avg.safetensors exp_avg_sq.safetensors params.safetensors' ]
    $sft -s ams $O.amsgrad=true -o x.dp
    [ \"\$(files ams)\" = 'exp_avg.safetensors exp_avg_sq.safetensors max_exp_avg_sq.safetensors params.safetensors' ]
    $sft -s sgd optim.optimizer=SGD optim.lr=0.1 -o x.dp
    [ \"\$(files sgd)\" = params.safetensors ]
    $sft -s mom optim.optimizer=SGD $O.momentum=0.9 optim.lr=0.1 -o x.dp
    [ \"\$(files mom)\" = 'momentum_buffer.safetensors params.safetensors' ]
    jq -e '.optimizer == \"SGD\" and .optimizer_steps == 8 and .momentum_buffer_hash and (has(\"exp_avg_hash\") | not)' mom/current/state.json
    jq -e '.optimizer == \"AdamW\"' ams/current/state.json
    verl-model hash sgd >/dev/null && verl-model diff sgd mom >/dev/null || [ \$? = 1 ]"
ok 'all differ, and learn' "
    rm -f hashes
    for o in optim.optimizer=AdamW optim.optimizer=Adam 'optim.optimizer=SGD optim.lr=1' \
        'optim.optimizer=SGD optim.lr=0.1 $O.momentum=0.9' 'optim.optimizer=SGD optim.lr=0.1 $O.momentum=0.9 $O.nesterov=true' \
        'optim.optimizer=SGD optim.lr=0.5 $O.momentum=0.9 $O.dampening=0.5' $O.amsgrad=true $O.eps=1e-3 \
        'optim.decay=matrices' 'optim.weight_decay=0'; do
        rm -rf s
        $sft -s s optim.lr=1e-2 \$o trainer.total_epochs=10 -o x.dp
        hash_of s >>hashes
        metric x.dp train/loss | awk -v o=\"\$o\" '{ print o, \$1; exit !(\$1 < 2.5) }'
    done
    [ \$(sort -u hashes | wc -l) = 10 ]"
ok 'a killed run goes on to the same bits, whatever it remembers' "
    for o in 'optim.optimizer=SGD $O.momentum=0.9' $O.amsgrad=true optim.optimizer=SGD; do
        rm -rf part whole
        line=\"$sft \$o optim.lr=1e-2 trainer.save_freq=3\"
        kill_at state-linked \$line -s part -o x.dp
        kill_at state-linked \$line -s part -o x.dp
        \$line -s part -o x.dp
        \$line -s whole -o y.dp
        equal \"\$(hash_of part)\" \"\$(hash_of whole)\"
        cmp x.dp y.dp
    done"
ok 'a state of another optimizer is refused, saying how to go on' "
    exits 64 $sft -s adamw optim.optimizer=SGD trainer.total_epochs=1 -o x.dp 2>err
    grep -q 'steps of AdamW made this state (it remembers exp_avg exp_avg_sq), and SGD remembers nothing' err
    grep -q -- '-s NEW -m adamw' err
    exits 64 $sft -s adamw $O.amsgrad=true trainer.total_epochs=1 -o x.dp 2>err
    exits 64 $sft -s mom optim.optimizer=SGD trainer.total_epochs=1 -o x.dp 2>err
    verl-update -q --role sft -s new -m adamw -i b.dp data.train_batch_size=8 optim.optimizer=SGD -o x.dp"
ok 'what is not there is refused by name' "
    for o in optim.optimizer=AdamW8bit optim.optimizer=Muon optim.optimizer_impl=bitsandbytes.optim; do
        exits 64 $sft -s no \$o -o x.dp 2>err
        grep -q 'known: AdamW, Adam, SGD of torch.optim' err
    done
    exits 64 $sft -s no $O.fused_step=true -o x.dp 2>err
    exits 64 $sft -s no optim.optimizer=SGD $O.nesterov=true -o x.dp 2>err
    grep -q 'needs momentum above 0' err
    verl-update --role sft -m m -i b.dp data.train_batch_size=8 -s idle optim.optimizer=SGD $O.amsgrad=true -o x.dp 2>err
    grep -q 'amsgrad has no effect' err"
ok 'verl s form in a YAML: a map, or null' "
    printf 'optim:\n  override_optimizer_config: {eps: 1.0e-3}\n' >eps.yaml
    printf 'optim:\n  override_optimizer_config: null\n' >null.yaml
    rm -rf a b c d
    $sft -s a -c eps.yaml -o x.dp
    $sft -s b $O.eps=1e-3 -o y.dp
    equal \"\$(hash_of a)\" \"\$(hash_of b)\"
    $sft -s c -c null.yaml -o x.dp
    $sft -s d -o y.dp
    equal \"\$(hash_of c)\" \"\$(hash_of d)\""
ok 'weight decay acts on every weight, as verl; optim.decay=matrices spares the norms' "
    rm -rf a b
    norm() { verl-model info --json --tensors \$1 | jq '[.tensors[] | select(.name | test(\"norm\")) | .max] | max'; }
    line=\"$sft optim.optimizer=SGD optim.weight_decay=0.5 optim.lr=0.1 optim.clip_grad=1e-9 optim.lr_scheduler_type=constant optim.lr_warmup_steps=0\"
    \$line -s a -o x.dp
    \$line -s b optim.decay=matrices -o x.dp
    echo \$(norm a) \$(norm b)
    awk -v a=\$(norm a) -v b=\$(norm b) 'BEGIN { exit !(a > 0.66 && a < 0.67 && b > 0.999 && b < 1.001) }'"
ok 'wsd: stays at lr, then falls' "
    rm -rf w
    $sft -s w optim.lr=1e-2 optim.lr_scheduler_type=wsd optim.lr_warmup_steps=0 optim.stable_ratio=0.5 optim.min_lr_ratio=0.1 \
        trainer.total_training_steps=8 trainer.save_freq=1 --keep 9 -o x.dp
    awk -v a=\$(metric x.dp train/lr) 'BEGIN { print a; exit !(a > 1e-3 && a < 5e-3) }'"
done_testing
