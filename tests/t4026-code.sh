#!/bin/sh
# verl-reward with programs in responses: boxes here, strong and weak, as root and as an ordinary
# user; a sandbox fusion service of the test's own (tests/httpd.c); hostile programs by the way.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/chars.sh"
char_policy

# {"response", "truth", "source"} lines to a batch
code_batch() { # FILE
    jq -c '
        def ids: [explode[] | if . == 10 then 95 else . - 32 end];
        def right($n): . + [range($n - length) | 0];
        (.response | ids + [96]) as $r |
        { uid: "0-\(input_line_number - 1)", sample: 0, data_source: (.source // "apps"),
          reward_model: {style: "rule", ground_truth: .truth}, prompts: [49],
          responses: ($r | right(400)), attention_mask: ([1] + ($r | map(1)) | right(401)) }' |
        verl-batch from-json -q -o "$1"
}
# row LANGUAGE PROGRAM INPUTS OUTPUTS: one line
row() {
    jq -nc --arg l "$1" --arg p "$2" --argjson i "$3" --argjson o "$4" \
        '{response: "So:\n```\($l)\n\($p)\n```\nDone.", truth: ({inputs: $i, outputs: $o}|tojson)}'
}
score() { verl-reward -q -m policy "$@"; }
see() { verl-dump -q --no-text "$1" | jq -r "$2" | tr '\n' '|' | sed 's/|$//'; }
meta() { verl-dump -q --schema "$1" | jq -c ".meta_info.metrics[\"$2\"]"; }

{
    row sh 'read a b; echo $((a + b))' '["1 2","3 4"]' '["3","7\n"]'
    row sh 'echo 3' '["1 2","3 4"]' '["3","7"]'
    row sh 'echo no >&2; exit 5' '["1 2","3 4"]' '["3","7"]'
    row c 'int main;' '["1 2"]' '["3"]'
    row sh 'read a b; kill -9 $$' '["1 2"]' '["3"]'
} | code_batch sh.dp
score --scorer code --args '{"language":"sh"}' -i sh.dp -o out.dp 2>err
rc=$?
if [ $rc = 69 ]; then
    sed 's/^/# /' err
    weak=--sandbox=weak
    ok 'where no namespaces can be made the way out is named' 'grep -q -- --sandbox=weak err'
else
    weak=
    ok 'strong boxes are made' "cat err; [ $rc = 0 ]"
fi
code() { score --scorer code $weak "$@"; }

ok 'scores and columns' '
    code --args "{\"language\":\"sh\"}" -i sh.dp -o out.dp
    [ "$(see out.dp .score)" = "1|0.5|0|0|0" ]
    [ "$(see out.dp .code_passed)" = "2|1|0|0|0" ]
    [ "$(see out.dp .code_cases)" = "2|2|2|0|1" ]
    [ "$(see out.dp .code_failure)" = "null|wrong answer|runtime error|no code|runtime error" ]
    [ "$(see out.dp .code_detail)" = \
      "null|case 1: printed '\''3 '\'', expected '\''7'\''|case 0: no|null|case 0: killed by signal 9 (Killed)" ] ||
        see out.dp .code_detail
    [ "$(meta out.dp reward/failed)" = 0 ]'
ok 'all or nothing' '
    code --args "{\"language\":\"sh\",\"continuous\":false}" -i sh.dp -o all.dp
    [ "$(see all.dp .score)" = "1|0|0|0|0" ]
    [ "$(see all.dp .code_passed)" = "2|1|0|0|0" ]'
ok 'workers change no byte' '
    code --args "{\"language\":\"sh\"}" -j 1 -i sh.dp -o j1.dp
    code --args "{\"language\":\"sh\"}" -j 6 -i sh.dp -o j6.dp
    cmp j1.dp j6.dp'
if have_mpi; then
    ok '3 ranks: the same bytes' '
        verl-mpi 3 verl-reward -q -m policy --scorer code $weak --args "{\"language\":\"sh\"}" -i sh.dp -o r3.dp
        cmp j1.dp r3.dp'
else
    skip "$why"
fi
ok 'a weighted sum with another rule, and dispatch by name' '
    score $weak --rule code:2,language=sh --rule length:0.5,min=1 -i sh.dp -o o.dp
    [ "$(see o.dp .score)" = "2.5|1.5|0.5|0.5|0.5" ]
    [ "$(see o.dp .score_code)" = "1|0.5|0|0|0" ]
    jq -nc "{response: \"\`\`\`sh\necho 3\n\`\`\`\", source: \"mine\", truth: \"{\\\"inputs\\\":[1],\\\"outputs\\\":[3]}\"}" |
        code_batch mine.dp
    score $weak "reward.dispatch={mine: {name: code, language: sh}}" -i mine.dp -o o.dp
    [ "$(see o.dp .score)" = 1 ]'
ok 'a command for any other language' '
    row awk "{ print \$1 + \$2 }" "[\"1 2\"]" "[\"3\"]" | code_batch awk.dp
    code --code-command "exec awk -f prog.awk" --code-file prog.awk --args "{\"language\":\"other\"}" \
        -i awk.dp -o o.dp
    [ "$(see o.dp .score)" = 1 ]
    exits 64 code --code-file ../x --code-command true -i awk.dp -o no.dp
    exits 64 code --code-file x -i awk.dp -o no.dp 2>err
    grep -q -- "--code-command" err
    exits 64 code --args "{\"language\":\"cobol\"}" -i awk.dp -o no.dp
    exits 64 code --args "{\"language\":\"other\"}" -i awk.dp -o no.dp 2>err
    grep -q -- "--code-command" err
    exits 64 code --sandbox-show etc -i awk.dp -o no.dp
    [ ! -e no.dp ]'
ok 'a compiler or interpreter that is not there is 69' '
    exits 69 code --code-command "true" --sandbox-show /no/such/folder --sandbox strong -i awk.dp -o no.dp 2>err
    [ ! -e no.dp ]'
ok 'a broken ground truth is a failure, not a score' '
    { row sh "echo 3" "[\"1\"]" "[]"; row sh "echo 3" "[\"1\"]" "[\"3\"]"; } | code_batch bad.dp
    exits 65 code --args "{\"language\":\"sh\"}" -i bad.dp -o no.dp 2>err
    grep -q "row 0 .*1 inputs and 0 outputs" err
    code --args "{\"language\":\"sh\"}" --on-error invalid -i bad.dp -o o.dp 2>err
    [ "$(see o.dp .score)" = "NaN|1" ]
    [ "$(meta o.dp reward/failed)" = 1 ]'
ok 'time for a case and for a row' '
    { row sh "sleep 60" "[\"1\"]" "[\"3\"]"
      row sh "sleep 0.4; echo 3" "[\"1\",\"1\",\"1\"]" "[\"3\",\"3\",\"3\"]"; } | code_batch slow.dp
    code --args "{\"language\":\"sh\"}" --case-timeout 0.5 -i slow.dp -o o.dp -j 2
    [ "$(see o.dp .code_failure | cut -d"|" -f1)" = timeout ]
    code --args "{\"language\":\"sh\"}" --case-timeout 3 --row-timeout 0.7 -j 1 -i slow.dp -o o.dp
    [ "$(see o.dp .code_failure)" = "timeout|timeout" ]'

mkdir host
chmod 777 host .
cat >hostile.txt <<EOF
f() { f | f & }; f & read a; exec sleep 9
kill -9 -1; echo 3
exec yes
echo x >$T/host/new; cat $T/hostile.txt; ln -s $T/host l; echo x >l/new
setsid sleep 97.$$ & sleep 98.$$ & echo 3
cat /proc/*/environ | grep -a HOSTILE_SECRET
EOF
hostile() { # rows of the hostile programs
    while IFS= read -r p; do row sh "$p" '["1"]' '["3"]'; done <hostile.txt | code_batch hostile.dp
    HOSTILE_SECRET=HOSTILE_SECRET code --args '{"language":"sh"}' --case-timeout 2 -j 6 -i hostile.dp -o h.dp
}
want='0|0|0|0|1|0' # the second may print its 3, if it is not ended by what it does
ok 'hostile programs: contained, reported, the host untouched' '
    sleep 96.$$ & alive=$!
    hostile
    see h.dp .code_failure
    [ "$(see h.dp .score | sed "s/^0|./0|0/")" = "$want" ]
    [ "$(see h.dp .code_failure | cut -d"|" -f1,3)" = "timeout|output limit" ]
    [ -z "$(ls host)" ]
    kill -0 $alive
    kill $alive
    not pgrep -f "sleep 9[78].$$"'
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    chmod 755 "$T"
    user="setpriv --reuid=1999999998 --regid=1999999998 --clear-groups"
    if $user test -x "$BUILD/bin/verl-reward" && $user test -r hostile.dp; then
        ok 'the same as an ordinary user' '
            $user sleep 95.$$ & alive=$!
            $user verl-reward -q -m policy --scorer code $weak --args "{\"language\":\"sh\"}" \
                --case-timeout 2 -j 6 -i hostile.dp >u.dp
            see u.dp .code_failure
            [ "$(see u.dp .score | sed "s/^0|./0|0/")" = "$want" ]
            [ -z "$(ls host)" ]
            kill -0 $alive
            kill $alive
            not pgrep -f "sleep 9[78].$$"'
    else
        skip "an ordinary user cannot read $BUILD"
    fi
else
    skip 'not root: no second user to be'
fi
ok 'weak boxes say so' '
    score --scorer code --sandbox weak --args "{\"language\":\"sh\"}" -i sh.dp -o w.dp 2>err
    grep -q "sandbox=weak: programs run without namespaces" err
    [ "$(see w.dp .score)" = "1|0.5|0|0|0" ]'
if [ -z "$weak" ] && command -v unshare >/dev/null &&
    unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_user_namespaces' 2>/dev/null; then
    ok 'where no namespaces can be made: 69 that names the way out' '
        exits 69 unshare -Ur sh -c "echo 0 >/proc/sys/user/max_user_namespaces
            exec verl-reward -q -m policy --scorer code --args \"{\\\"language\\\":\\\"sh\\\"}\" -i sh.dp -o no.dp" 2>err
        grep -q "makes no user and pid namespaces.*--sandbox=weak" err
        [ ! -e no.dp ]'
else
    skip 'namespaces cannot be forbidden here'
fi

if python=$(PATH=/usr/local/bin:/usr/bin:/bin command -v python3); then
    ok "Python by data_source ($python): standard input, functions, assertions" '
        { row python "a, b = map(int, input().split())
print(a + b)" "[\"1 2\",\"3 4\"]" "[\"3\",\"7\"]"
          row python "def mul(a, b):
    return a * b" "[\"1\\n2\",\"3\\n4\"]" "[\"2\",\"[12]\"]" |
              jq -c ".truth |= (fromjson + {fn_name: \"mul\"} | tojson) | .source = \"taco\""
          row python "def f():
    return 1" "[\"\",\"\"]" "[\"\",\"\"]" |
              jq -c ".truth |= (fromjson + {assert_case: [\"assert f()\", \"assert not f()\"]}) | .source = \"codeforces\""
          row python "print(1 / 0)" "[\"1 2\"]" "[\"3\"]"
          row python "x = [0] * (1 << 40)" "[\"1 2\"]" "[\"3\"]"
          row python "print(" "[\"1 2\"]" "[\"3\"]" | jq -c ".source = \"codecontests\""
        } | code_batch py.dp
        score $weak -i py.dp -o o.dp
        see o.dp .code_failure
        [ "$(see o.dp .score)" = "1|1|0.5|0|0|0" ]
        [ "$(see o.dp .code_failure)" = "null|null|runtime error|runtime error|memory|compile error" ]
        [ "$(meta o.dp "reward/taco/score/mean")" = 1 ]'
else
    skip 'Python: not in /usr/local/bin, /usr/bin or /bin'
fi

# ---- by a service ----
. "$REPO/tests/httpd.sh"
if ! have_httpd; then
    skip "$why"
    done_testing
fi
start_httpd
# What the service answers to a case stands in its input: each step is a status and a body.
run() { # STATUS RUN-STATUS STDOUT [RETURN-CODE]
    jq -rn --arg s "$1" --arg r "$2" --arg o "$3" --argjson c "${4:-0}" '
        {status: $s, run_result: {status: $r, stdout: $o, stderr: "oops\n", return_code: $c}} | tojson | @uri'
}
compile=$(jq -rn '{status: "Failed", compile_result: {status: "Error", stderr: "no ;", return_code: 1}} | tojson | @uri')
good=$(run Success Finished 3)
service() {
    score --scorer code reward_model.sandbox_fusion.url="$URL/$at" "$@" 9>&-
}
cases() { # ANSWERS...: a row whose cases get these
    jq -nc '{response: "```python\nprint(3)\n```", truth: ({inputs: [$ARGS.positional[] | "@@\(.)@@"],
        outputs: [$ARGS.positional[] | "3"]} | tojson)}' --args "$@" 9>&-
}
at=a
ok 'verdicts of a service' '
    { cases "200=$good" "200=$good"
      cases "200=$(run Success Finished 4)" "200=$good"
      cases "200=$(run Failed TimeLimitExceeded "")"
      cases "200=$(run Failed Finished "" 1)" "200=$(run Failed Error "")" "200=$good"
      cases "200=$compile" "200=$good"
      echo "{\"response\":\"no code\",\"truth\":\"{\\\"inputs\\\":[1],\\\"outputs\\\":[1]}\"}"
    } | code_batch s.dp
    service -i s.dp -o o.dp reward_model.sandbox_fusion.max_concurrent=1
    see o.dp .code_failure
    [ "$(see o.dp .score)" = "1|0.5|0|0.333333343|0|0" ]
    [ "$(see o.dp .code_failure)" = "null|wrong answer|timeout|runtime error|compile error|no code" ]
    [ "$(see o.dp .code_detail | cut -d"|" -f3-5)" = "case 0: oops|case 0: oops|case 0: no ;" ]
    at=b
    service -i s.dp -o p.dp
    verl-dump diff o.dp p.dp
    cmp o.dp p.dp'
at=f
ok 'what a service gives is compared exactly, unless asked otherwise' '
    cases "200=$(run Success Finished "3
")" "200=$(run Success Finished "3 ")" | code_batch x.dp
    service -i x.dp -o o.dp
    [ "$(see o.dp .score)" = 0.5 ]
    at=g
    service --args "{\"exact\":false}" -i x.dp -o o.dp
    [ "$(see o.dp .score)" = 1 ]'
at=c
ok 'a service that fails is a failure, not a score' '
    { cases "200=$good" "500"; cases "200=$(run SandboxError "" "")"; cases "200=%5B%5D"; cases "200=hm"
      cases "200=$good"; } | code_batch f.dp
    exits 65 service -i f.dp -o no.dp 2>err
    cat err
    grep -q "row 0 .*case 1: the sandbox service: .*500" err
    at=d
    service --on-error invalid -i f.dp -o o.dp 2>err
    [ "$(see o.dp .score)" = "NaN|NaN|NaN|NaN|1" ]
    [ "$(meta o.dp reward/failed)" = 4 ]'
at=e
ok 'a gateway time-out is asked again' '
    cases "504,200=$good" "close,200=$good" | code_batch g.dp
    service -i g.dp -o o.dp
    [ "$(see o.dp .score)" = 1 ]'
ok 'the request is the one the service knows' '
    cases 200=$good | jq -c ".truth |= sub(\"@@.*@@\"; \"@@echo@@\")" | code_batch h.dp
    exits 65 service -i h.dp -o no.dp 2>err
    grep -q "answered {\"compile_timeout\":10,\"run_timeout\":10,\"code\":\"" err'
ok 'nobody there: 65 that says so; a URL that is none: 64' '
    exits 65 score --scorer code reward_model.sandbox_fusion.url=http://127.0.0.1:1/ -i g.dp -o no.dp 2>err 9>&-
    grep -q "the sandbox service: " err
    exits 64 score --scorer code reward_model.sandbox_fusion.url=here -i g.dp -o no.dp 9>&-
    [ ! -e no.dp ]'
exec 9>&-
wait
done_testing
