# exact.sh - sourced by the exactness tests: each statement of exactness as a test over one model, one
# batch and one compute type. Files and columns are compared byte by byte, and where a difference could
# hide (a ratio of 1, a loss of 0, rows put off) a control shows that it would not.
#
# The caller sets
#   LM CRITIC V      a language model, a value model, their vocabulary
#   PROMPTS N R      prompts, samples of each, the longest response
#   COUNTS           numbers of rows that run at once
#   CONFIG           options of verl-rollout beside these
#   THREADS RANKS    numbers of them to try; RANKS may be empty, $why then says why
# makes p.dp by exact_batch, and for each compute type C calls exact_start and then the others; with
# weights=int8 exact_start and exact_forward, of rollouts by weights of eight bits.

# ---- batches ----

# Prompt i has 1 + i * 7 % 61 tokens, but each third begins with up to 48 of the same ones, as under a
# system prompt, and each eleventh is that before it again. Ids from 3 to V - 1; 1 begins a prompt.
exact_prompts() { # ROWS WIDTH SIDE V: JSON lines; a WIDTH of 0: no padding
    awk -v rows="$1" -v width="$2" -v side="$3" -v V="$4" 'BEGIN {
        for (i = 0; i < rows; i++) {
            p = i % 11 == 10 ? i - 1 : i
            n = p % 3 ? 1 + p * 7 % 61 : 50 + p % 13
            common = p % 3 ? 0 : 33 + p * 5 % 16
            w = width > 0 ? width : n
            ids = mask = ""
            for (k = 0; k < w; k++) {
                t = side == "left" ? k - (w - n) : k
                real = t >= 0 && t < n
                from = t < common ? 0 : p
                id = t ? 3 + (from * 131 + t * t * 17 + t) % (V - 3) : 1
                ids = ids (k ? "," : "") (real ? id : 0)
                mask = mask (k ? "," : "") real
            }
            printf "{\"uid\":\"0-%d\",\"prompts\":[%s],\"attention_mask\":[%s]}\n", i, ids, mask
        }
    }'
}
exact_batch() { # FILE ROWS WIDTH SIDE V
    exact_prompts "$2" "$3" "$4" "$5" | verl-batch from-json -q |
        verl-batch set-meta global_steps 3 -q -o "$1"
}

run=     # what starts ranks
weights= # of rollouts and their log-probs: int8, or those that are trained
# ---- programs, with the options of the test and the compute type ----

rollout() {
    $run verl-rollout -m "$LM" $CONFIG rollout.n="$N" rollout.response_length="$R" --compute "$C" \
        ${weights:+--quantization $weights} "$@"
}
logprob() { $run verl-logprob -m "$LM" --compute "$C" ${weights:+--quantization $weights} "$@"; }
value() { $run verl-value -q -m "$CRITIC" --compute "$C" "$@"; }
# One step over all rows from the model's weights, which STATE.0 keeps: STATE/current is what it makes.
# A state that came from this batch already would have nothing to do, whatever the cut.
update() { # RANKS STATE OPTION...
    ranks=$1 state=$2
    shift 2
    rm -rf "$state"
    [ ! -d "$state.0" ] || cp -al "$state.0" "$state"
    [ "$ranks" = 1 ] || set -- --threads 1 "$@"
    $([ "$ranks" = 1 ] || echo verl-mpi "$ranks") verl-update -q -s "$state" --compute "$C" \
        ppo_mini_batch_size="$PROMPTS" optim.optimizer=SGD optim.override_optimizer_config.momentum=0.9 \
        optim.lr=0.1 optim.weight_decay=0 optim.clip_grad=1e9 "$@" || return
    [ -d "$state.0" ] || {
        mkdir "$state.0"
        cp -al "$state/v000000" "$state.0/"
        ln -s v000000 "$state.0/current"
    }
}
actor() { ranks=$1 && shift && update "$ranks" actor -m "$LM" -i adv.dp "$@"; }
critic() { ranks=$1 && shift && update "$ranks" critic --role critic -m "$CRITIC" -i values.dp -i aim.dp "$@"; }

# 1 for the even samples of a prompt, -1 for the others.
advantages() {
    verl-batch map -q --dtype advantages=F32 "$@" \
        -f '(if .sample % 2 == 0 then 1 else -1 end) as $a | .advantages = (.response_mask | map(. * $a))'
}
# Returns that are not the values.
far_aim() {
    verl-batch select -q -k values -i values.dp | verl-batch rename -q values:returns |
        verl-batch map -q --dtype returns=F32 -f '.returns |= map(. + 1)' -o aim.dp
}
# Whether a command for several ranks runs; where memory does not suffice the test is skipped.
fits_ranks() { # TITLE COMMAND...
    title=$1 rc=0
    shift
    "$@" 2>log || rc=$?
    [ $rc != 71 ] || skip "$title: $(grep -o "needs .* available" log | head -n 1)"
    [ $rc = 71 ] || [ $rc = 0 ] || ok "$title" 'cat log; false'
    return $rc
}

# ---- comparisons ----

# Columns A of FILE and B of FILE2 hold the same bits.
same_column() { # FILE A FILE2 B
    verl-batch select -q -k "$2" --meta '' -i "$1" | verl-batch rename -q "$2:x" -o x1.dp
    verl-batch select -q -k "$4" --meta '' -i "$3" | verl-batch rename -q "$4:x" -o x2.dp
    verl-dump diff x1.dp x2.dp
}
# What a row says whatever its padding is.
essence() { # FILE: to FILE.e
    verl-batch select -q --meta '' -k uid,sample,responses,rollout_log_probs,finish_reason -i "$1" -o "$1.e"
}
metric() { verl-dump --meta "$1" | jq -er ".metrics[\"$2\"]"; }
is() { # FILE METRIC VALUE
    echo "$2 is $(metric "$1" "$2")"
    equal "$(metric "$1" "$2")" "$3"
}
at_most() { # X LIMIT
    echo "$1, at most $2"
    awk -v x="$1" -v y="$2" 'BEGIN { exit !(x == x + 0 && (x < 0 ? -x : x) <= y) }'
}
# Weights and gradient of a state's current version: the buffer of the first step is the gradient.
bits_of() { cat "$1"/current/params.safetensors "$1"/current/momentum_buffer.safetensors | sha256sum; }
keep_gradient() { # STATE DIR: as a model, to be compared by verl-model
    rm -rf "$2"
    mkdir "$2"
    cp "$1/current/config.json" "$2/"
    cp "$1/current/momentum_buffer.safetensors" "$2/model.safetensors"
}
# Largest difference of two gradients over the largest element of the first.
relative() { # DIR DIR2
    scale=$(verl-model info "$1" --json --tensors | jq -e '[.tensors[].max] | max')
    gap=$(verl-model diff --json "$1" "$2" 2>/dev/null | tail -n 1 | jq -e .max_abs_diff)
    awk -v g="$gap" -v s="$scale" 'BEGIN { printf "%g\n", g / s }'
}

# ---- the statements ----

# Makes gen.dp, old.dp, adv.dp (with ref_log_prob = old_log_probs and advantages), values.dp and aim.dp
# (returns = values) of the type C for all that follows.
exact_start() {
    name="$C${weights:+ $weights}"
    exact_rollout
    if [ "$weights" ]; then
        ok "$name: values" 'value -i old.dp -o values.dp'
    else
        exact_in_update
    fi
}
exact_rollout() {
    ok "$name: responses of both ends; verl-logprob gives the log-probs of the rollout" '
        rollout -q -i p.dp -o gen.dp
        verl-dump gen.dp -r -f .finish_reason | sort | uniq -c
        verl-dump gen.dp -r -f .finish_reason | sort -u | tr "\n" " " | grep -q "^length stop "
        verl-dump gen.dp -r -f ".rollout_log_probs[0]" | sort -u | wc -l >distinct
        [ $(cat distinct) -gt $((PROMPTS / 2)) ]
        logprob -i gen.dp -o old.dp 2>log
        cat log
        grep -q "equal the rollout.s to the bit" log
        same_column gen.dp rollout_log_probs old.dp old_log_probs'
}
exact_in_update() {
    ok "$C: they are those inside verl-update: the ratio of the first step is 1 everywhere" '
        logprob -q --as ref -i old.dp | advantages -o adv.dp
        same_column old.dp old_log_probs adv.dp ref_log_prob
        for cut in "" "--micro-batch 1" "--no-share-prompts --micro-batch 3"; do
            actor 1 use_kl_loss=true kl_loss_type=abs clip_ratio_low=0 clip_ratio_high=0 $cut -o m.dp
            is m.dp actor/kl_loss 0
            is m.dp actor/ppo_kl 0
            is m.dp actor/pg_clipfrac 0
        done
        verl-batch map -q --dtype ref_log_prob=F32 -i adv.dp -o off.dp \
            -f "if .uid == \"0-2\" and .sample == 0 then .ref_log_prob[0] *= 1.0000001 else . end"
        update 1 actor -i off.dp use_kl_loss=true kl_loss_type=abs -o m.dp
        not is m.dp actor/kl_loss 0'
    ok "$C: values are those inside verl-update: no loss against themselves" '
        value -i old.dp -o values.dp
        verl-batch select -q -k values -i values.dp | verl-batch rename -q values:returns -o aim.dp
        verl-dump values.dp -r -f ".values[0]" | sort -u | wc -l >distinct
        [ $(cat distinct) -gt $((PROMPTS / 2)) ]
        for cut in "" "--micro-batch 1" "--no-share-prompts --micro-batch 3"; do
            critic 1 $cut -o m.dp
            is m.dp critic/vf_loss 0
        done
        verl-batch map -q --dtype returns=F32 -i aim.dp -o off.dp -f ".returns[0] *= 1.0000001"
        update 1 critic --role critic -i values.dp -i off.dp -o m.dp
        not is m.dp critic/vf_loss 0'
}

# Nothing that runs beside a row, and no cut, shows in it.
exact_forward() {
    ok "$name: $(echo $COUNTS | wc -w) numbers of rows at once" '
        for k in $COUNTS; do
            rollout -q -i p.dp -o g.dp rollout.max_num_seqs=$k
            cmp gen.dp g.dp
            logprob -q -i gen.dp -o o.dp --micro-batch $k
            cmp old.dp o.dp
            value -i old.dp -o v.dp --micro-batch $k
            cmp values.dp v.dp
        done'
    ok "$name: prompts in pieces of 1 to 300 tokens, and whole" '
        for k in 1 3 17 64 300 100000; do
            rollout -q -i p.dp -o g.dp rollout.max_num_batched_tokens=$k rollout.max_num_seqs=$((k < 16 ? k : 16))
            cmp gen.dp g.dp
        done'
    ok "$name: passes of 1 to 300 tokens" '
        for k in 1 33 100 300; do
            logprob -q -i gen.dp -o o.dp rollout.log_prob_max_token_len_per_gpu=$k
            cmp old.dp o.dp
            value -i old.dp -o v.dp critic.forward_max_token_len_per_gpu=$k
            cmp values.dp v.dp
        done'
    ok "$name: the least cache there can be: rows give their pages back and are computed again" '
        whole="rollout.ignore_eos=true rollout.stop_token_ids=[]" # else few may grow into a page that is not there
        rollout -q -i p.dp -o whole.dp $whole
        for more in rollout.max_num_seqs=64 "rollout.max_num_seqs=5 rollout.max_num_batched_tokens=9"; do
            rollout -i p.dp -o g.dp rollout.gpu_memory_utilization=0 $whole $more 2>log
            grep "rows gave their cache back and were computed again" log
            cmp whole.dp g.dp
        done'
    ok "$name: prompts that begin alike beside each other, in another order, and each alone" '
        essence gen.dp
        backwards=$(seq $((PROMPTS - 1)) -1 0 | paste -s -d ,)
        rows=$(for p in $(seq $((PROMPTS - 1)) -1 0); do seq $((p * N)) $((p * N + N - 1)); done | paste -s -d ,)
        verl-batch index -q $backwards -i p.dp | rollout -q -o g.dp rollout.max_num_batched_tokens=50
        essence g.dp
        verl-batch index -q $rows -i gen.dp.e | verl-dump diff - g.dp.e
        for p in 0 3 6 1; do
            verl-batch index -q $p -i p.dp | rollout -q -o g.dp
            essence g.dp
            verl-batch slice -q $((p * N)):$((p * N + N)) -i gen.dp.e | verl-dump diff - g.dp.e
        done'
    ok "$name: a prompt alone or computed once for its samples" '
        verl-dump gen.dp.e | jq -c "select(.sample == 0)" | verl-batch from-json -q --like gen.dp.e -o first.dp
        rollout -q -i p.dp -o g.dp rollout.n=1
        essence g.dp
        verl-dump diff first.dp g.dp.e
        every=$(for s in $(seq 0 $((N - 1))); do seq $s $N $((PROMPTS * N - 1)); done | paste -s -d ,) # no neighbours alike
        verl-batch index -q $every -i old.dp -o want.dp
        verl-batch index -q $every -i gen.dp | logprob -q -o o.dp
        same_column want.dp old_log_probs o.dp old_log_probs
        same_column want.dp entropys o.dp entropys
        verl-batch index -q $every -i values.dp -o want.dp
        verl-batch index -q $every -i old.dp | value -o v.dp
        same_column want.dp values v.dp values'
    ok "$name: no padding, 300 columns of it, padding on the right" '
        essence gen.dp
        exact_batch wide.dp $PROMPTS 364 left $V
        exact_batch right.dp $PROMPTS 70 right $V
        exact_prompts $PROMPTS 0 left $V | sed -n 6p | verl-batch from-json -q | verl-batch set-meta global_steps 3 -q -o tight.dp
        verl-batch slice -q $((5 * N)):$((6 * N)) -i gen.dp.e -o tight.want
        verl-batch slice -q $((5 * N)):$((6 * N)) -i old.dp -o tight.old
        verl-batch slice -q $((5 * N)):$((6 * N)) -i values.dp -o tight.values
        for f in wide right tight; do
            rollout -q -i $f.dp -o g.dp
            essence g.dp
            case $f in
            tight) want=tight.want old=tight.old val=tight.values ;;
            *) want=gen.dp.e old=old.dp val=values.dp ;;
            esac
            verl-dump diff $want g.dp.e
            logprob -q -i g.dp -o o.dp
            same_column $old old_log_probs o.dp old_log_probs
            same_column $old entropys o.dp entropys
            value -i o.dp -o v.dp
            same_column $val values v.dp values
        done'
    ok "$name: $(echo $THREADS) threads" '
        for t in $THREADS; do
            rollout -q -i p.dp -o g.dp --threads $t
            cmp gen.dp g.dp
            logprob -q -i gen.dp -o o.dp --threads $t
            cmp old.dp o.dp
            value -i old.dp -o v.dp --threads $t
            cmp values.dp v.dp
        done'
    [ -n "$RANKS" ] || skip "$name: ranks: $why"
    for n in $RANKS; do
        run="verl-mpi $n"
        if fits_ranks "$name: $n ranks" rollout -q -i p.dp -o g.dp --threads 1; then
            ok "$name: $n ranks" '
                cmp gen.dp g.dp
                logprob -q -i gen.dp -o o.dp --threads 1
                cmp old.dp o.dp
                value -i old.dp -o v.dp --threads 1 --micro-batch 2
                cmp values.dp v.dp'
        fi
        run=
    done
}

# A step has the same bits for every cut and number of threads. The critic aims at other returns than
# its values.
exact_update() { # ROLE...
    far_aim
    for role in "$@"; do
        ok "$C: $role: a step of $(echo $THREADS) threads, in one pass, of few rows, of few tokens, moments in a file" '
            $role 1 -o want.dp
            bits_of $role >bits
            set -- "" "--micro-batch 1" "--micro-batch 7 --recompute --optimizer-offload" ppo_max_token_len_per_gpu=90
            for t in $THREADS; do
                $role 1 --threads $t $1 -o m.dp
                bits_of $role | cmp bits -
                verl-dump diff want.dp m.dp
                set -- "$2" "$3" "$4" "$1"
            done
            is m.dp $role/optimizer_steps 1
            not is m.dp $role/weights_changed 0'
    done
}
exact_update_ranks() { # ROLE...; uses what exact_update made
    for role in "$@"; do
        [ -n "$RANKS" ] || skip "$C: $role: ranks: $why"
        rm -rf one
        for n in $RANKS; do
            fits_ranks "$C: $role: a step of $n ranks" $role $n -o want.dp || continue
            if [ ! -d one ]; then
                $role 1 -o m.dp
                keep_gradient $role one
                $role $n -o want.dp
            fi
            ok "$C: $role: a step of $n ranks: each cut gives the same bits, near those of one" '
                bits_of $role >bits
                keep_gradient $role many
                at_most $(relative one many) 1e-5
                for cut in "--micro-batch 1" "ppo_max_token_len_per_gpu=90 --optimizer-offload"; do
                    $role $n $cut -o m.dp
                    bits_of $role | cmp bits -
                    verl-dump diff want.dp m.dp
                done'
        done
    done
}

# In fp32, whose gradients differ by the rounding of sums only.
exact_shared() {
    for role in actor critic; do
        ok "$C: $role: a prompt computed once for its rows: loss and gradient of plain packing within 1e-5" '
            $role 1 -o once.dp
            keep_gradient $role once
            $role 1 --no-share-prompts -o each.dp
            keep_gradient $role each
            at_most $(relative once each) 1e-5
            not verl-model diff once each >diff # they did differ in what they summed
            for k in $role/$([ $role = actor ] && echo pg || echo vf)_loss $role/grad_norm; do
                at_most $(jq -n "($(metric once.dp $k) - $(metric each.dp $k)) / $(metric each.dp $k)") 1e-5
            done'
    done
}

# Each instruction set gives what the widest gave, on the first few prompts: narrow ones are slow.
exact_isa() { # NAME...
    verl-batch slice -q :4 -i p.dp -o few.dp
    exact_chain() { # DIR: every stage's output
        mkdir "$1" &&
            rollout -q -i few.dp -o "$1/gen.dp" &&
            logprob -q -i "$1/gen.dp" -o "$1/old.dp" &&
            logprob -q --as ref -i "$1/old.dp" | advantages -o adv.dp &&
            value -i adv.dp -o values.dp && cp values.dp "$1" &&
            far_aim &&
            for role in actor critic; do
                $role 1 -o "$1/$role.dp" && bits_of $role >"$1/$role.bits" || return 1
            done
    }
    rm -rf isa.*
    ok "$C: every stage by the widest instructions" 'exact_chain isa.widest'
    for isa in "$@"; do
        if VL_ISA=$isa verl-rollout -q -m "$LM" -i few.dp -o g.dp rollout.response_length=1 2>log ||
            ! grep -q 'this processor lacks' log; then
            ok "$C: by $isa: the same bits" '
                export VL_ISA=$isa
                exact_chain isa.$isa
                [ $(ls isa.$isa | wc -l) = 7 ]
                for f in isa.widest/*; do cmp $f isa.$isa/${f##*/}; done'
        else
            skip "$C: by $isa: this processor lacks it"
        fi
    done
}
