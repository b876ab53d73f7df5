#!/bin/sh
# Each algorithm's example driver: two steps of a small model, and what makes it that algorithm.
. "$(dirname "$0")/lib.sh"

ex=$REPO/examples
book=$ex/addition
cp -r "$book" book
awk -f "$book/textbook.awk" -v kind=train | head -n 400 >train.jsonl
awk -f "$book/textbook.awk" -v kind=sft -v rows=64 >sft.jsonl
sed -i 's/"hidden_size": 128/"hidden_size": 32/; s/"intermediate_size": 352/"intermediate_size": 64/' book/config.json
small="actor_rollout_ref.actor.optim.lr=1e-2 data.train_batch_size=8 rollout.n=4 actor_rollout_ref.actor.ppo_mini_batch_size=4 actor_rollout_ref.actor.optim.lr_warmup_steps=0"
export MODEL=model DATA=train.jsonl CONFIG=book/grpo.yaml STEPS=2
half="verl-reward --jq '(.solution_str | length) / 4'" # something to learn for a random model
export REWARD="$half"
meta() { verl-dump --meta "$1" | jq -c "$2"; }
# options FILE: what its stage was told
options() { verl-dump --provenance "$1" | jq -c '.. | .options? // empty'; }

ok 'a model' 'verl-model init -q book/config.json --tokenizer book --std 0.3 -o model'

ok 'every script has a preset of its name or a loop of its own, and explains itself' '
    for s in $ex/*.sh; do
        n=$(basename $s .sh)
        case $n in lib | outside_rollout) continue ;; esac
        sh $s --help >help
        grep -q "^grpo.sh\|^$n.sh" help
        if grep -q "^PRESET=.* exec" $s; then
            grep -q "^ *algorithm:" help
            [ -s $ex/presets/$n.yaml ]
        fi
    done'
ok 'every preset is read by every stage without a complaint' '
    for p in $ex/presets/*.yaml; do
        for s in data rollout reward logprob value advantage update sync; do
            verl-$s -c $p --print-config >/dev/null 2>err && [ ! -s err ] || { echo $p $s; cat err; false; }
        done
    done'
for a in grpo drgrpo gspo gmpo cispo rloo reinforce_plus_plus ppo remax; do
    ok "$a: two steps" "
        RUN=$a $ex/$a.sh $small critic.ppo_mini_batch_size=4
        [ \$(readlink $a/actor/current) = v000002 ]
        for s in 000001 000002; do verl-dump --check -q $a/step_\$s/update_actor.dp >/dev/null; done
        jq -es 'length == 2 and all(.[]; .\"actor/grad_norm\" > 0)' $a/metrics.jsonl"
done
ok 'they differ: eight runs from one start, eight models' '
    for a in grpo drgrpo gspo gmpo cispo rloo reinforce_plus_plus ppo; do verl-model hash $a/actor | cut -c-32; done >hashes
    [ "$(sort -u hashes | wc -l)" = 8 ]'
ok 'remax: the greedy answer of each prompt is the baseline' '
    verl-dump -k uid,score remax/step_000001/greedy.dp | jq -s "map({(.uid): .score}) | add" >base
    verl-dump -k uid,reward_baselines remax/step_000001/adv.dp |
        jq -es --slurpfile b base "length == 32 and all(.[]; .reward_baselines == \$b[0][.uid])"'
ok 'a preset wins over the config, a word over both; an unknown one is 64 with the list' '
    RUN=w STEPS=1 $ex/drgrpo.sh $small actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum
    options w/step_000001/update_actor.dp >o; cat o; grep -q "loss_agg_mode\": *\"seq-mean-token-sum\"" o
    options w/step_000001/adv.dp >o; cat o; grep -q "norm_adv_by_std_in_grpo\": *false" o
    rc=0; PRESET=grp $ex/grpo.sh 2>err || rc=$?
    [ $rc = 64 ]
    grep -q "known:.*drgrpo" err'
ok 'a KL in the config brings the reference: in the reward with an adaptive coefficient, in the loss' '
    sed "s/^algorithm:/&\n  use_kl_in_reward: True\n  kl_ctrl: {type: adaptive, kl_coef: 0.1, horizon: 100}\n  filter_groups: {enable: True}/" book/grpo.yaml >klr.yaml
    for a in ppo remax dapo grpo; do
        word=$([ $a != dapo ] || echo algorithm.use_kl_in_reward=true) # its preset has none
        CONFIG=klr.yaml RUN=klr_$a $ex/$a.sh $small critic.ppo_mini_batch_size=4 algorithm.filter_groups.max_num_gen_batches=40 $word
        [ "$(jq .step klr_$a/kl/current/state.json)" = 2 ]
        jq -es "all(.[]; has(\"actor/reward_kl_penalty\")) and .[0].\"actor/reward_kl_penalty_coeff\" == 0.1 and .[1].\"actor/reward_kl_penalty_coeff\" != 0.1" klr_$a/metrics.jsonl
    done
    RUN=kll STEPS=1 $ex/grpo.sh $small use_kl_loss=true
    jq -e "has(\"actor/kl_loss\")" kll/metrics.jsonl'
ok 'ppo: the actor waits for the critic' '
    RUN=warm $ex/ppo.sh $small critic.ppo_mini_batch_size=4 trainer.critic_warmup=2
    [ ! -e warm/step_000001/update_actor.dp ]
    [ -e warm/step_000002/update_actor.dp ]
    [ $(readlink warm/critic/current) = v000002 ]
    [ $(readlink warm/actor/current) = v000001 ]'

# ---- verl's names of a step's metrics ----
# five LIST: NAME/mean and the like
each() { for n in $1; do for k in $2; do echo "$n/$k"; done; done; }
{
    each 'critic/score critic/rewards critic/advantages critic/returns' 'mean max min'
    each 'response_length response_length_non_aborted prompt_length' 'mean max min clip_ratio'
    each training 'global_step epoch rollout_probs_diff_valid rollout_probs_diff_max rollout_probs_diff_mean rollout_probs_diff_std rollout_actor_probs_pearson_corr'
    each rollout_corr 'training_ppl training_log_ppl kl k3_kl rollout_ppl rollout_log_ppl log_ppl_diff log_ppl_abs_diff log_ppl_diff_max log_ppl_diff_min ppl_ratio chi2_token chi2_seq'
    each actor 'pg_loss entropy pg_clipfrac pg_clipfrac_lower ppo_kl grad_norm lr loss'
    each global_seqlen 'min max minmax_diff balanced_min balanced_max mean'
    each timing_s 'gen reward old_log_prob adv update_actor update_weights step'
    each timing_per_token_ms 'gen adv update_actor'
    each perf 'total_num_tokens time_per_step throughput'
    echo response/aborted_ratio
} >both
{ cat both && each actor 'kl_loss kl_coef' && each timing_s ref && each timing_per_token_ms ref; } >names.grpo
{ cat both && each critic 'vf_loss vf_clipfrac vpred_mean grad_norm lr vf_explained_var' && each critic/values 'mean max min' &&
    each timing_s 'values update_critic' && each timing_per_token_ms 'values update_critic'; } >names.ppo
lacks() { jq -r keys[] $1 | sort >have && sort $2 | comm -23 - have >lack && cat lack && [ ! -s lack ]; }
ok 'a GRPO step with a KL loss has every metric of verl'\''s under its name, a PPO step too' '
    KL=0.01 RUN=named STEPS=1 $ex/grpo.sh $small
    lacks named/metrics.jsonl names.grpo
    head -n 1 ppo/metrics.jsonl >m
    lacks m names.ppo'
if have_mpi; then
    ok 'they do not depend on the number of ranks' '
        KL=0.01 RUN=ranks STEPS=1 LAUNCH="verl-mpi 2" $ex/grpo.sh $small
        jq -es "map(with_entries(select(.key | test(\"^(timing|perf/t[hi])\") | not))) | .[0] as \$a | .[1] as \$b | (\$a | keys) == (\$b | keys) and
            all(\$a | keys[]; (\$a[.] - \$b[.] | fabs) <= (if test(\"^actor/\") then 1e-4 * (1 + (\$a[.] | fabs)) else 0 end))" named/metrics.jsonl ranks/metrics.jsonl'
else
    skip "no MPI here: $why"
fi

# ---- DAPO: an answer of fewer than 4 characters scores by its length, so some groups are all equal ----
export REWARD="verl-reward --jq '(.solution_str | length) >= 3' max_resp_len=4 overlong_buffer_cfg.len=1 overlong_buffer_cfg.enable=true overlong_buffer_cfg.log=true"
dapo="$small data.gen_batch_size=6"
ok 'dapo: two steps of full batches, every group differs' '
    RUN=d $ex/dapo.sh $dapo
    for s in 1 2; do
        verl-dump -k uid,acc d/step_00000$s/reward.dp | jq -es "group_by(.uid) | length == 8 and
            all(.[]; length == 4 and (map(.acc) | unique | length) > 1)"
    done'
ok 'its rounds take new prompts each, also across steps; the next step goes on behind them' '
    ls d/step_000001/prompts_*.dp d/step_000002/prompts_*.dp
    for f in d/step_00000[12]/prompts_*.dp; do verl-dump -k uid $f; done | sort >uids
    [ $(wc -l <uids) = $(uniq uids | wc -l) ]
    [ $(wc -l <uids) -gt 12 ]
    jq -es "length > 0 and all(.[]; .\"timing_s/gen\" > 0 and .\"filter_groups/kept_prompts\" == 8 and .\"train/num_gen_batches\" >= 1)" d/metrics.jsonl
    [ $(jq -s "map(.\"train/num_gen_batches\") | add" d/metrics.jsonl) = $(ls d/step_00000[12]/prompts_*.dp | wc -l) ]
    RUN=off exits 64 $ex/dapo.sh $dapo algorithm.filter_groups.enable=false'
ok 'its penalty on long answers is in the rewards, not in the accuracy' '
    verl-dump -k response_mask,token_level_scores,acc,overlong_reward d/step_000001/reward_01.dp |
        jq -es "length > 0 and all(.[]; ((.token_level_scores | add) - .acc - .overlong_reward | fabs) < 1e-6 and
            .overlong_reward == (if (.response_mask | add) == 4 then -1 else 0 end))"'
ok 'started again it finds its work done; cut off between rounds it goes on to the same weights' '
    RUN=d $ex/dapo.sh $dapo
    [ $(readlink d/actor/current) = v000002 ]
    mkdir -p e/step_000001
    RUN=e STEPS=1 $ex/dapo.sh $dapo
    rm e/step_000001/[aour]*.dp e/step_000001/gen_02.dp e/step_000001/metrics.json
    RUN=e STEPS=1 $ex/dapo.sh $dapo
    cmp d/step_000001/adv.dp e/step_000001/adv.dp'
ok '79: a filter that nothing passes ends after max_num_gen_batches rounds with status 3' '
    REWARD="verl-reward --jq 1" RUN=n exits 3 $ex/dapo.sh $dapo max_num_gen_batches=2 2>err
    grep -q "0 prompts kept, fewer than --target 8 after 2 rounds" err
    [ -e n/step_000001/gen_02.dp ]
    [ ! -e n/step_000001/gen_03.dp ]
    [ ! -e n/step_000001/reward.dp ]'
ok 'the built-in scorers get the lengths from data.max_response_length' '
    REWARD= RUN=b STEPS=1 exits 3 $ex/dapo.sh $dapo max_num_gen_batches=1 2>err
    grep -q "max_resp_len=4 .*overlong_buffer_cfg.len=1 " b/step_000001/reward_01.cmd
    { cat $CONFIG; printf "reward_model: {reward_kwargs: {overlong_buffer_cfg: {len: 2}}}\n"; } >long.yaml
    CONFIG=long.yaml REWARD= RUN=b2 STEPS=1 exits 3 $ex/dapo.sh $dapo max_num_gen_batches=1
    grep -q "max_resp_len=4 .*overlong_buffer_cfg.len=2 " b2/step_000001/reward_01.cmd
    verl-dump --schema b/step_000001/reward_01.dp | grep -q overlong_reward'

ok 'sft: a model, the loss said; the same line again does nothing' '
    DATA=sft.jsonl CONFIG=$book/sft.yaml RUN=sft $ex/sft.sh data.train_batch_size=16 trainer.total_training_steps=8 2>err
    grep -q "loss [0-9.]*, the model is sft/model/current" err
    [ -e sft/model/current/model.safetensors ]
    DATA=sft.jsonl CONFIG=$book/sft.yaml RUN=sft $ex/sft.sh data.train_batch_size=16 trainer.total_training_steps=8
    [ $(readlink sft/state/current) = v000001 ]
    jq -s "[.[] | .\"training/global_step\"]" -c sft/metrics.jsonl | grep -qx "\[1,2,3,4\]"
    equal "$(tail -n 1 sft/metrics.jsonl | jq -e ".\"train/loss\"")" "$(meta sft/metrics.dp ".metrics.\"train/loss\"")"
    MODEL=sft/model/current REWARD=$half RUN=after STEPS=1 $ex/grpo.sh $small'
ok 'dpo: pairs of a data set, two steps; the margin is there' '
    jq -c "{prompt, chosen: .response, rejected: (.response + \"1\")}" sft.jsonl | head -n 16 >pairs.jsonl
    DATA=pairs.jsonl CONFIG= RUN=dpo $ex/dpo.sh actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.actor.optim.lr=1e-3 2>err
    cat err
    grep -q "loss 0.6[0-9]*, pairs in order [0-9.]*, the model is dpo/model/current" err
    meta dpo/update_dpo.dp .metrics | jq -e ".\"actor/optimizer_steps\" == 2"
    jq -es "length == 2 and .[0].\"actor/dpo_loss\" > .[1].\"actor/dpo_loss\"" dpo/metrics.jsonl'
ok 'online dpo: two steps of best against worst' '
    REWARD=$half RUN=od $ex/online_dpo.sh $small
    [ $(readlink od/actor/current) = v000002 ]
    verl-dump -k uid,score,preference od/step_000001/pairs.dp |
        jq -es "group_by(.uid) | length > 0 and all(.[]; length == 2 and (sort_by(.preference) | .[0].score < .[1].score))"
    RUN=od0 STEPS=1 $ex/online_dpo.sh $small actor_rollout_ref.actor.optim.lr=0 # changes nothing, and may be published
    jq -es "length > 0 and all(.[]; .\"actor/dpo_loss\" > 0 and has(\"critic/score/mean\") and .\"timing_s/gen\" > 0)" od/metrics.jsonl'
done_testing
