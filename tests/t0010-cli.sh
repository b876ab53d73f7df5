#!/bin/sh
# What every program does with its command line: help, version, unknown names, its own configuration.
. "$(dirname "$0")/lib.sh"

programs=
for f in "$BUILD"/bin/verl-*; do
    p=${f##*/}
    # the helper of verl-mpi is started by it alone
    [ "$p" = verl-mpi-rank ] || programs="$programs $p"
done
[ -n "$programs" ] || skip_all "no programs are built"

for p in $programs; do
    ok "$p --help: on stdout alone, 0" "
        exits 0 $p --help >out 2>err
        grep -q '^usage: $p' out
        [ ! -s err ]"
    ok "$p --help to a full disk: 74" "exits 74 $p --help >/dev/full 2>err; [ \$(wc -l <err) = 1 ]"
    ok "$p --version" "
        exits 0 $p --version >out
        head -n 1 out | grep -q '^$p [0-9]'
        grep -Eq '^mpi   (mpich [0-9.]+|no)\$' out"
    ok "$p: an unknown option is 64 and the nearest named, in one line" "
        exits 64 $p --hepl 2>err
        [ \$(wc -l <err) = 1 ]
        grep -q '^$p: unknown option --hepl, the nearest is --help' err"
    ok "$p: an unknown key is 64 and the nearest named" "
        exits 64 $p trainer.total_epoch=3 2>err
        [ \$(wc -l <err) = 1 ]
        grep -q '^$p: .*trainer.total_epochs' err"
    ok "$p: an unknown key in a file is 64 with file and line" "
        printf 'trainer:\n  total_epochs: 1\n  total_epoch: 2\n' >bad.yaml
        exits 64 $p -c bad.yaml 2>err
        grep -q '^$p: bad.yaml:3: unknown key .trainer.total_epoch' err"
    ok "$p: an empty value is no number: 64 (an unset variable of a script)" "
        $p --help | awk 'function flush() { if (name && text ~ /an integer from|a number from/) print name; name = text = \"\" }
            /^ +(-., )?--/ { flush(); name = \$1 ~ /^-.,\$/ ? \$2 : \$1 }
            /^[^ ]|^\$|^      [a-z]/ { flush() }
            { sub(/^ +/, \"\"); text = text \" \" \$0 } END { flush() }' | sort -u >names
        [ -s names ]
        while read -r name; do
            exits 64 $p \$name '' 2>err </dev/null
            grep -q 'found \"\"' err
        done <names"
    ok "$p: a config file that is not there is 66" "exits 66 $p -c none.yaml 2>err; grep -q none.yaml err"
    ok "$p: keys of others are accepted and listed by --print-config=ignored" "
        exits 0 $p trainer.esi_redundant_time=7 --print-config=ignored >out
        grep -q '^trainer.esi_redundant_time: 7 # command line; no program' out"
    ok "$p --print-config, read back with -c, prints the same" "
        exits 0 $p --print-config >$p.yaml
        exits 0 $p -c $p.yaml --print-config >again
        cmp $p.yaml again"
done

for role in critic sft dpo; do
    ok "verl-update --role $role --print-config" "verl-update --role $role --print-config >verl-update-$role.yaml"
done
for p in $programs; do
    ok "$p accepts the printed configuration of every other program and role" "
        for f in verl-*.yaml; do exits 0 $p -c \$f --print-config >out; done"
done

case $programs in
*verl-rollout*)
    ok "an ambiguous key lists its candidates" "
        exits 64 verl-rollout optim.lr=1 2>err
        grep -q 'actor_rollout_ref.actor.optim.lr, critic.optim.lr' err"
    ok "a short key means the program's own subtree; the later of option and key wins" "
        verl-rollout temperature=0.25 --print-config | grep -q 'temperature: 0.25'
        verl-rollout --temperature 0.5 temperature=0.25 --print-config | grep -q 'temperature: 0.25'
        verl-rollout temperature=0.25 --temperature 0.5 --print-config | grep -q 'temperature: 0.5'"
    ok "what changes the training and is not there is refused by name, and not when it is idle" "
        printf 'actor_rollout_ref: {rollout: {multi_turn: {enable: True}}}\n' >turns.yaml
        exits 64 verl-data -c turns.yaml -m m x.jsonl 2>err
        grep -q 'turns.yaml:1: actor_rollout_ref.rollout.multi_turn.enable=True asks for what is not there' err
        for w in actor_rollout_ref.model.lora_rank=8 critic.model.lora_rank=8 agent.default_agent_loop=tool_agent data.sampler.class_path=s.py val_only=true; do
            exits 64 verl-rollout -m m \$w 2>err; grep -q 'asks for what is not there' err
        done
        for w in multi_turn.enable=False actor_rollout_ref.model.lora_rank=0 agent.default_agent_loop=single_turn_agent data.sampler.class_path=null; do
            verl-rollout -m m \$w 2>err || :; not grep -q 'not there' err
        done
        verl-sync -c turns.yaml --print-config=ignored | grep -q 'multi_turn.enable: True # .*; no program'"
    ok "no such key is one that a program reads" "
        sed -n 's/^    { ROLLOUT \"/\"actor_rollout_ref.rollout./; s/^ *{* *\"\([a-z_.]*\)\", .*/\1/p' $REPO/libverl/base/absent.c >keys
        [ \$(wc -l <keys) -gt 15 ]
        grep -v '^model' keys | while read -r key; do
            verl-sync \$key=1 --print-config=ignored | grep -q '; no program\|--role sft\$' || { echo \$key; exit 1; }
        done"
    ok "a key is credited to the programs that read it" "
        verl-rollout trainer.project_name=x --print-config=ignored | grep -q '; no program'
        verl-rollout trainer.total_epochs=1 --print-config=ignored | grep -q '; verl-update'
        verl-rollout trainer.critic_warmup=1 --print-config=ignored | grep -q '; examples/ppo.sh'"
    ok "every key that a program prints is credited to it" "
        for p in $programs; do
            verl-sync -c \$p.yaml --print-config=ignored | grep -v \"; .*\$p\" && exit 1
            :
        done"
    # names PROGRAM: its own options, not the common ones
    names() { "$1" --help | sed '/^Common options/,$d' | sed -n 's/^  \(    \|-., \)--\([a-z0-9][a-z0-9-]*\).*/\2/p' | sort -u; }
    common='input|output|model|state|config|delta|device|seed|threads|level|quiet|verbose|timing'
    for p in $programs; do names "$p" | grep -Evx "$common" | sed "s/\$/ $p/"; done >"$T/all"
    ok "an option of other programs: each of them is named, and no other" "
        [ \$(wc -l <$T/all) -gt 150 ]
        awk '{ of[\$1] = of[\$1] \" \" \$2 } END { for (o in of) print o of[o] }' $T/all >options
        while read -r o of; do
            p=verl-sync; case \" \$of \" in *' verl-sync '*) p=verl-eval;; esac
            exits 64 \$p --\$o x 2>err </dev/null
            list=\$(echo \$of | sed 's/ /, /g; s/\(.*\), /\1 and /')
            grep -q \"unknown option --\$o[^;]*; --\$o is an option of \$list (\" err || { cat err; echo \"\$o: \$list\"; exit 1; }
        done <options"
    ok "a wrong option leads somewhere: its near one, its programs, a key that is read here" "
        says() { w=\$1; shift; exits 64 \"\$@\" 2>err </dev/null; grep -qF -e \"\$w\" err || { cat err; exit 1; }; not grep -F -e \"\$not\" err; }
        not='VALUE'
        for p in update value sync reward 'model convert'; do
            says '; --quantization is an option of verl-logprob and verl-rollout (' verl-\$p --quantization int8
        done
        says 'the config key actor_rollout_ref.rollout.response_length is read by verl-rollout (' verl-update --response_length 3
        not='is read by' says 'key is given as actor_rollout_ref.rollout.response_length=VALUE' verl-rollout --response-length 3
        says 'the nearest is --quantization (' verl-rollout --quantize int8
        not='nearest'
        says '--n is an option of verl-rollout (' verl-logprob --n 4
        says '--as is an option of verl-logprob (' verl-rollout --as old
        says 'unknown option --ne (' verl-eval --ne 1
        says 'other programs have it, this one has no use for it (' verl-advantage --model x
        not=\" in '\"
        says 'unknown option -m; other programs have it as --model, this' verl-advantage -m x
        not='have it' says \"unknown option -Z in '-qZ' (\" verl-advantage -qZ"
    ok "more threads than processors: one warning, and the work is done" "
        verl-batch repeat 2 -q -i $REPO/tests/golden/dp/v1-all.dp -o x.dp --threads 4096 2>err
        [ \$(wc -l <err) = 1 ]
        grep -q '^verl-batch: warning: --threads 4096 asks for more than the [0-9]* processors* it may use' err
        verl-batch repeat 2 -q -i $REPO/tests/golden/dp/v1-all.dp -o y.dp --threads 1 2>err
        [ ! -s err ]
        taskset -c \$(taskset -cp \$\$ | sed 's/.*: //; s/[-,].*//') verl-dump -q --threads 2 x.dp 2>err >/dev/null
        grep -q 'more than the 1 processor it' err
        cmp x.dp y.dp"
    ok "--help says what auto computes in, and a program with a device names VL_ISA" "
        for p in rollout logprob reward value update; do
            verl-\$p --help | tr -s ' \\n' ' ' >text
            grep -q 'auto: as [a-z.]* [a-z.]*[ a-z.]*, else amx with AMX tiles, bf16 on AMD with AVX512-BF16, elsewhere fp32' text
            grep -q 'Environment: VL_ISA' text
        done
        verl-data --help >text; not grep VL_ISA text"
    ok "a fallback key gives the value" "
        verl-rollout data.max_response_length=77 --print-config | grep -q 'response_length: 77'"
    ;;
esac
done_testing
