#!/bin/sh
# verl-reward: rules, filters, commands; every failure by every policy; ranks, workers, reruns.
. "$(dirname "$0")/lib.sh"

. "$REPO/tests/letters.sh"

letters_tokenizer .
cat >rows.jq <<'EOF'
def ids: [explode[] | if . == 10 then 95 else . - 32 end];
def left($n): [range($n - length) | 0] + .;
def right($n): . + [range($n - length) | 0];
(.response | ids | if length > 0 then . + [96] else . end) as $r | ("Q" | ids) as $p |
{ uid, sample, data_source: (.source // "openai/gsm8k"), extra_info: {k: .uid},
  reward_model: (if has("truth") then {style: "rule", ground_truth: .truth} else {style: "rule"} end),
  finish_reason: (.finish // "stop"), prompts: ($p | left(2)), responses: ($r | right(30)),
  attention_mask: (($p | map(1) | left(2)) + ($r | map(1) | right(30))) }
EOF
batch() { jq -c -f rows.jq | verl-batch from-json -q -o "$1"; }
batch in.dp <<'EOF'
{"uid":"0-0","sample":0,"truth":"72","response":"so #### 72"}
{"uid":"0-0","sample":1,"truth":"72","response":"so #### 73","finish":"length"}
{"uid":"0-1","sample":0,"source":"exact","truth":"580","response":" 580\n"}
{"uid":"0-1","sample":1,"source":"exact","truth":580,"response":"581"}
{"uid":"0-2","sample":0,"source":"exact","truth":"","response":""}
{"uid":"0-3","sample":0,"truth":"5","response":"#### 5"}
EOF
jq -nc 'range(40) | {uid: "0-\(. / 4 | floor)", sample: (. % 4), truth: "\(. % 3)",
                     response: "#### \(. % 5)"}' | batch many.dp
score() { verl-reward -q -m . "$@"; }
see() { verl-dump -q --no-text "$1" | jq -r "$2" | tr '\n' ' ' | sed 's/ $//'; }
meta() { verl-dump -q --schema "$1" | jq -c ".meta_info$2"; }

ok 'rules by data_source; the score lies on the last valid token (55)' '
    score -i in.dp -o out.dp
    [ "$(see out.dp .score)" = "1 0 1 0 NaN 1" ]
    [ "$(see out.dp .acc)" = "1 0 1 0 NaN 1" ]
    [ "$(see out.dp "[.token_level_scores|to_entries[]|select(.value != 0)|.key]|tostring")" = \
      "[10] [] [5] [] [] [6]" ]
    [ "$(see out.dp .reward_error)" = \
      "null null null null the response has no valid token null" ]'
ok 'metrics overall and per source, with invalid and truncated rows (59)' '
    [ "$(meta out.dp ".metrics[\"reward/score/mean\"]")" = 0.6 ]
    [ "$(meta out.dp ".metrics[\"reward/invalid\"]")" = 1 ]
    [ "$(meta out.dp ".metrics[\"reward/truncated\"]")" = 1 ]
    [ "$(meta out.dp ".metrics[\"reward/exact/acc/mean\"]")" = 0.5 ]
    [ "$(meta out.dp ".metrics[\"reward/openai/gsm8k/truncated\"]")" = 1 ]'
ok '-m takes a train state: the tokenizer of its current version' '
    verl-model init -q -o model --hidden 32 --layers 1 --heads 2 --ffn 32 --tokenizer .
    verl-sync -q -m model -s st -o pub
    verl-reward -q -m st -i in.dp -o st.dp
    cmp out.dp st.dp'
ok 'a rerun replaces its columns and says so' '
    verl-reward -m . -i out.dp -o again.dp 2>err
    grep -q "replaces token_level_scores" err
    equal "$(see again.dp .score)" "$(see out.dp .score)"'
ok '--delta writes what it adds; united it is the whole' '
    score --delta -i in.dp -o d.dp
    [ "$(verl-dump -q --schema d.dp | jq -r "[.columns[].name]|join(\" \")")" = \
      "uid sample token_level_scores score acc reward_error" ]
    verl-dump -q --check d.dp'
ok 'special tokens are removed, or kept on request (54)' '
    score --scorer exact -i in.dp -o k.dp
    [ "$(see k.dp .score)" = "0 0 1 0 NaN 0" ]
    score --scorer exact --keep-special -i in.dp -o k.dp
    [ "$(see k.dp .score)" = "0 0 0 0 NaN 0" ]'
ok 'arguments of a rule' '
    score --scorer gsm8k --args "{\"method\":\"flexible\",\"score\":2,\"format_score\":0.5}" -i in.dp -o k.dp
    [ "$(see k.dp .score)" = "2 0.5 2 0.5 NaN 2" ]
    exits 64 score --scorer exact --args "{\"method\":\"flexible\"}" -i in.dp -o k2.dp
    exits 64 score --args "{\"metod\":1}" -i in.dp -o k2.dp
    [ ! -e k2.dp ]'
ok 'an unknown source is 65 with the known ones, before anything is scored' '
    echo "{\"uid\":\"0-0\",\"sample\":0,\"source\":\"gsm8k\",\"truth\":\"1\",\"response\":\"1\"}" | batch u.dp
    exits 65 score -i u.dp -o no.dp 2>err
    grep -q "row 0 (uid \"0-0\", sample 0): no scorer for data_source .gsm8k.; known are .*openai/gsm8k" err
    [ $(wc -l <err) = 1 ]
    [ ! -e no.dp ]
    verl-batch drop -k data_source -i u.dp -o u2.dp
    exits 65 score -i u2.dp -o no.dp 2>err
    grep -q "row 0 .* has no data_source .*--jq" err'
ok 'a rule without ground truth is 65; a filter goes without' '
    echo "{\"uid\":\"0-0\",\"sample\":0,\"response\":\"abc\"}" | batch n.dp
    exits 65 score -i n.dp -o no.dp 2>err
    grep -q "no ground_truth" err
    score --jq ".solution_str|length" -i n.dp -o k.dp
    [ "$(see k.dp .score)" = 3 ]'

ok 'a filter: number, boolean, object with further columns' '
    score --jq "(.solution_str|split(\"#### \")|last) == .ground_truth" -i in.dp -o j.dp
    [ "$(see j.dp .score)" = "1 0 0 0 NaN 1" ]
    score --jq "{score: (.ids|length), acc: true, pred: .solution_str, k: .extra_info.k}" -i in.dp -o j.dp
    [ "$(see j.dp .score)" = "11 11 6 4 NaN 7" ]
    [ "$(see j.dp .acc)" = "1 1 1 1 NaN 1" ]
    [ "$(see j.dp ".k|tostring")" = "0-0 0-0 0-1 0-1 null 0-3" ]
    [ "$(meta j.dp .reward_extra_keys)" = "[\"acc\",\"pred\",\"k\"]" ]
    score --jq .sample -i j.dp -o j2.dp
    verl-dump -q --no-text j2.dp >said
    not grep -q "\"pred\"" said'
ok 'a filter sees what the protocol promises (53)' '
    score --jq "if (.uid|type) == \"string\" and .prompt == \"Q\" and (.ids[-1] == 96)
                and .data_source != null and (.finish_reason|type) == \"string\"
                and (has(\"id\")) and .args.b == 2 and \$b == 2 and (env|length) == 0
                then .sample else error(\"row \" + tostring) end" --args "{\"b\":2}" -i in.dp -o j.dp
    [ "$(see j.dp .score)" = "0 1 0 1 NaN 0" ]'
ok 'a filter that does not compile is 64; a member that names a column is 65' '
    exits 64 score --jq ".a |" -i in.dp -o no.dp
    exits 64 score --jq . --command cat -i in.dp -o no.dp
    exits 65 score --jq "{score: 1, uid: 2}" -i in.dp -o no.dp 2>err
    grep -q "member .uid., which would replace" err
    # an id that is none, options that nothing uses
    verl-dump -q --no-text in.dp | jq -c ".responses[0] = -5" | verl-batch from-json -q --like in.dp -o neg.dp
    exits 65 score --jq 1 -i neg.dp -o no.dp 2>err
    grep -q "responses is -5 at position 0; a token id is" err
    score --scorer exact -j 2 --error-value 1 -i in.dp -o k2.dp 2>err
    grep -q -- "--workers has no effect" err; grep -q -- "--error-value has no effect" err
    for k in token_level_scores reward_error values "" "score\\u0000x" non_tensor_batch/x; do
        exits 65 score --jq "{score: 1, \"$k\": 2}" -i in.dp -o no.dp 2>err
        grep -q "rename it" err
    done
    [ ! -e no.dp ]'

# Scorers in shell; $r is the response. `odd` is what happens for the response "#### 4".
scorer() { # scorer NAME 'commands for the odd row'
    cat >"$1.sh" <<EOF
while IFS= read -r line; do
    r=\${line#*solution_str\":\"} r=\${r%%\"*} r=\${r##* }
    if [ "\$r" = 4 ]; then $2; else echo "\$r"; fi
done
EOF
}
scorer crash 'kill -9 $$'
scorer quit 'exit 3'
scorer hang 'sleep 60'
scorer garbage 'echo "I think it is 4"'
scorer nan 'echo NaN'
scorer two 'echo 4; echo 4'
scorer none 'echo'
nap="sleep 64.$$" # no other run's
scorer fork "setsid $nap & $nap & echo oops"
right='0 1 2 3 x 0 1 2 3 x 0 1 2 3 x 0 1 2 3 x 0 1 2 3 x 0 1 2 3 x 0 1 2 3 x 0 1 2 3 x'

ok 'a command scores rows; workers and order change no byte (52)' '
    cat >good.sh <<"EOF"
while IFS= read -r line; do r=${line#*solution_str\":\"} r=${r%%\"*}; echo "${r##* }"; done
EOF
    score --command "sh good.sh" -j 1 -i many.dp -o g1.dp
    score --command "sh good.sh" -j 7 -i many.dp -o g7.dp
    cmp g1.dp g7.dp
    [ "$(see g1.dp .score)" = "$(echo "$right" | tr x 4)" ]'
for s in crash quit garbage nan two none fork; do
    ok "a scorer that goes wrong ($s): fail, invalid, value (51)" "
        exits 65 score --command 'sh $s.sh' -i many.dp -o no.dp 2>err
        [ ! -e no.dp ]
        [ \$(tail -n 1 err | grep -c 'row 4 (uid \"0-1\", sample 0): ') = 1 ]
        score --command 'sh $s.sh' --on-error invalid -j 3 -i many.dp -o i.dp 2>err
        [ \"\$(see i.dp .score)\" = \"\$(echo '$right' | sed 's/x/NaN/g')\" ]
        [ \"\$(meta i.dp '.metrics[\"reward/failed\"]')\" = 8 ]
        [ \"\$(meta i.dp '.metrics[\"reward/invalid\"]')\" = 8 ]
        score --command 'sh $s.sh' --on-error value --error-value -1 -i many.dp -o v.dp 2>err
        [ \"\$(see v.dp .score)\" = \"\$(echo '$right' | sed 's/x/-1/g')\" ]
        not pgrep -f '$nap'"
done
ok 'a scorer that hangs is cut off in time (51, 52)' '
    start=$(date +%s)
    exits 65 score --command "sh $T/hang.sh" --row-timeout 1 -i many.dp -o no.dp 2>err
    [ $(($(date +%s) - start)) -le 3 ]
    grep -q "row 4 .*: no answer within 1 s" err
    not pgrep -f "$T/hang.sh"'
ok 'a command that is not there is 66' '
    exits 66 score --command ./no-such-scorer --on-error invalid -i many.dp -o no.dp 2>err
    tail -n 1 err | grep -q "cannot be run"
    echo "#!/bin/sh" >plain.sh
    exits 66 score --command ./plain.sh --on-error invalid -i many.dp -o no.dp 2>err
    tail -n 1 err | grep -q "status 126.*chmod +x"'
ok 'what a command prints on stderr is seen, stdout carries the batch' '
    score --command "echo hello >&2; sh good.sh" -j 1 -i many.dp 2>err >p.dp
    grep -q hello err
    verl-dump -q --check p.dp'

ok 'rm_scores is taken as it is' '
    score -i in.dp -o s.dp
    verl-batch -q rename token_level_scores:rm_scores -i s.dp -o r0.dp
    verl-batch -q drop -k score,acc,reward_error -i r0.dp -o rm.dp
    verl-reward -q -i rm.dp -o fromrm.dp
    [ "$(see fromrm.dp .score)" = "1 0 1 0 NaN 1" ]
    verl-reward -q max_resp_len=4 overlong_buffer_cfg.len=1 overlong_buffer_cfg.enable=true -i rm.dp -o same.dp 2>err
    grep -q "overlong_buffer_cfg.enable=true has no effect" err
    verl-dump diff fromrm.dp same.dp'
ok 'rm_scores is accepted wherever token_level_scores is: advantages, evaluation, groups' '
    score --jq ".solution_str|ltrimstr(\"#### \")|rtrimstr(\"</s>\")|tonumber" -i many.dp -o tl0.dp
    verl-batch drop -q -k score,acc,reward_error -i tl0.dp -o tl.dp
    verl-batch rename -q token_level_scores:rm_scores -i tl.dp -o rm.dp
    for f in tl rm; do
        verl-advantage -q -e grpo -i $f.dp -o $f.adv.dp
        verl-eval -q -i $f.dp >$f.eval
        verl-batch filter-groups -q --metric seq_reward -i $f.dp -o $f.groups.dp
        verl-dump -q --no-text -k uid,advantages,returns,token_level_rewards $f.adv.dp >$f.adv
    done
    grep -q "advantages\":\[-" tl.adv
    cmp tl.adv rm.adv
    cmp tl.eval rm.eval
    equal "$(see tl.groups.dp .uid)" "$(see rm.groups.dp .uid)"'
ok 'overlong penalty of dapo, of valid tokens (60)' '
    score reward_manager.name=dapo max_resp_len=12 overlong_buffer_cfg.enable=true \
        overlong_buffer_cfg.len=4 overlong_buffer_cfg.log=true -i in.dp -o o.dp
    [ "$(see o.dp .overlong_reward)" = "-0.75 -0.75 0 0 null 0" ]
    [ "$(see o.dp .score)" = "1 0 1 0 NaN 1" ]
    [ "$(see o.dp ".token_level_scores|add")" = "0.25 -0.75 1 0 0 1" ]
    exits 64 score overlong_buffer_cfg.enable=true -i in.dp -o no.dp
    exits 64 score max_resp_len=3 overlong_buffer_cfg.enable=true overlong_buffer_cfg.len=4 -i in.dp -o no.dp'
ok 'what is not there is refused, not ignored' '
    exits 64 score reward_model.enable=true -i in.dp -o no.dp
    exits 64 score reward_manager.name=remote -i in.dp -o no.dp
    exits 65 verl-reward -q -i in.dp -o no.dp
    exits 66 verl-reward -q -m ./none -i in.dp -o no.dp
    [ ! -e no.dp ]'
if have_mpi; then
    for n in 2 3; do
        ok "$n ranks: the same bytes" "
            verl-mpi $n verl-reward -q -m . -i in.dp -o rules$n.dp
            cmp out.dp rules$n.dp
            verl-mpi $n verl-reward -q -m . --command 'sh good.sh' <many.dp >cmd$n.dp
            cmp g1.dp cmd$n.dp"
    done
    ok 'ranks: the lowest failing row is named, the command sees no rank variables' '
        exits 65 verl-mpi 3 verl-reward -q -m . --command "sh garbage.sh" -i many.dp -o no.dp 2>err
        tail -n 1 err | grep -q "row 4 "
        verl-mpi 2 verl-reward -q -m . --command "env | grep -E \"^(PMI|HYD|MPI_L|VL_RANKS)\" >&2; sh good.sh" \
            -i many.dp -o e.dp 2>err
        [ ! -s err ]'
    ok 'standard input under a bare mpiexec is refused with the remedy' '
        exits 64 mpiexec -n 2 verl-reward -q -m . -o no.dp </dev/null 2>err
        grep -q "verl-mpi 2 verl-reward" err'
else
    skip 'mpiexec does not start ranks here'
fi
done_testing
