#!/bin/sh
# verl-reward --judge: a generative judge behind a server of the test's own, which misbehaves as the
# rows tell it to (tests/httpd.c): requests, scores, every failure by every policy, limits, keys.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/httpd.sh"
have_httpd || skip_all "$why"
. "$REPO/tests/chars.sh"
char_policy
start_httpd

# What the judge does stands in the response.
rows() { jq -c -R '{uid: "0-\(input_line_number - 1)", prompt: "2+2?", response: gsub("\\\\n"; "\n")}' 9>&-; }
cat >good <<'EOF'
one @@chat=fine%0AScore: 1@@
two @@chat=Score: 0.25@@
three @@429:0,chat=**Score:** 0.5.@@
four @@early,chat=Scores vary. score = 0%0A@@
EOF
rows <good | char_batch good.dp 8 80
judge() { verl-reward -q -m policy --judge "$URL$at/v1" --judge-model m "$@" 9>&-; }
see() { verl-dump -q --no-text "$1" | jq -r "$2" | tr '\n' '|' | sed 's/|$//'; }
meta() { verl-dump -q --schema "$1" | jq -c ".meta_info.metrics[\"$2\"]"; }

at=/good
ok 'scores are read off the answers; what is worth another try gets one' '
    judge -i good.dp -o out.dp
    [ "$(see out.dp .score)" = "1|0.25|0.5|0" ]
    [ "$(see out.dp ".judge_text|split(\"\n\")[0]")" = "fine|Score: 0.25|**Score:** 0.5.|Scores vary. score = 0" ]
    [ "$(see out.dp ".token_level_scores|add")" = "1|0.25|0.5|0" ]
    [ "$(meta out.dp reward/judge/answers)" = 4 ]
    [ "$(meta out.dp reward/judge/further_tries)" = 2 ]
    [ "$(meta out.dp reward/judge/completion_tokens)" = 12 ]'
ok 'the judge is one of several rules' '
    judge --rule length:0.2,max=10 --rule judge:0.5 --rule tags,as=form -i good.dp -o sum.dp
    [ "$(see sum.dp .score_judge)" = "1|0.25|0.5|0" ]
    [ "$(see sum.dp "has(\"judge_text\")|tostring")" = "true|true|true|true" ]
    [ "$(see sum.dp ".score - .score_length / 5 - .score_judge / 2 - .score_form | fabs < 1e-5")" = "true|true|true|true" ]
    [ "$(meta sum.dp reward/judge/answers)" = 4 ]
    exits 64 judge --rule tags -i good.dp -o no.dp 2>err
    grep -q -e "--rule judge:WEIGHT" err'
ok 'the default request shows task, reference and answer' '
    echo "abc" | rows | char_batch one.dp 8 80
    at=/chat
    judge --judge-filter "{score: 1}" -i one.dp -o out.dp
    see out.dp .judge_text >text
    grep -q "Score: X" text
    tr "|" "\n" <text >/dev/null
    verl-dump -q --no-text out.dp | jq -es "length > 0 and all(.judge_text | endswith(\"# Task\n[user]\n2+2?\n\n# Reference answer\n4\n\n# Answer to grade\nabc\"))"'
page=$REPO/man/verl-judge.7
block() { # N: the page's Nth literal block
    awk -v n="$1" '/^\.Bd/ { on = ++k == n; next } /^\.Ed/ { on = 0 } on' "$page" | sed 's/\\e/\\/g'
}
ok 'verl-judge(7) shows the filters that are built in' '
    at=/chat
    judge --judge-filter 1 -i one.dp -o a.dp
    judge --judge-filter 1 --judge-request "$(block 1)" -i one.dp -o b.dp
    equal "$(see a.dp .judge_text)" "$(see b.dp .judge_text)"
    at=/good
    judge --judge-filter "$(block 2)" -i good.dp -o out.dp
    [ "$(see out.dp .score)" = "1|0.25|0.5|0" ]'
ok 'its examples run' '
    echo "x @@chat={%22grade%22: 5%2C %22why%22: %22short%22}@@" | rows | char_batch gen.dp 8 80
    block 3 | sed "s,https://api.example.com/v1,$URL/ex,; s,^verl-reward,& -q -m policy," >ex.sh
    grep -q "judge-key-env JUDGE_KEY" ex.sh
    JUDGE_KEY=k sh ex.sh 9>&-
    [ "$(see reward.dp "[.score, .why]|tostring")" = "[0.5,\"short\"]" ]
    head -n 2 good | rows | char_batch gen.dp 8 80
    sed -n "s/^\.Dl \(verl-reward --judge .*\)/\1/p" "$page" | sed "s,http://127.0.0.1:8000/v1,$URL/ex,; s,^verl-reward,& -q -m policy," >ex.sh
    sh ex.sh 9>&-
    [ "$(see reward.dp .score)" = "1|0.25" ]
    echo "x @@200={%22data%22: [{%22probs%22: [-1.5]}]}@@" | rows | char_batch gen.dp 8 80
    block 4 | sed "s,http://127.0.0.1:8000,$URL/ex,; s,^verl-reward,& -q -m policy," >ex.sh
    sh ex.sh 9>&-
    [ "$(see reward.dp "[.score, has(\"judge_text\")]|tostring")" = "[-1.5,false]" ]'
ok 'another endpoint: the whole answer, no built-in filters, no temperature' '
    at=/echo
    judge --judge-endpoint classify --judge-request "{input: .solution_str}" --judge-filter "{score: 2, got: .judge}" -i one.dp -o out.dp
    [ "$(see out.dp .got)" = "{|  \"model\": \"m\",|  \"input\": \"abc\"|}" ]
    exits 64 judge --judge-endpoint classify -i one.dp -o no.dp
    judge --judge-endpoint v1 --judge-request "{}" --judge-filter 3 -i one.dp -o out.dp
    [ "$(see out.dp .score)" = 3 ]'
ok 'a filter makes the request: a message, messages, members; options come first' '
    at=/echo
    body() { judge --on-error invalid "$@" -i one.dp -o out.dp 2>err; sed -n "s/.*the judge.s answer has no choices: //p" err | head -n 1; }
    body --judge-request ".solution_str" >b
    jq -e ". == {model: \"m\", temperature: 0, messages: [{role: \"user\", content: \"abc\"}]}" b
    body --judge-request "[{role: \"system\", content: \"s\"}, {role: \"user\", content: .ground_truth}] # end" >b
    jq -e ".messages == [{role: \"system\", content: \"s\"}, {role: \"user\", content: \"4\"}]" b
    body --judge-request "{messages: [], top_p: 0.5, temperature: 0.25}" --judge-params "{\"max_tokens\": 9, \"temperature\": 1}" >b
    jq -e ". == {model: \"m\", temperature: 0.25, max_tokens: 9, messages: [], top_p: 0.5}" b
    body --args "{\"rubric\": \"be kind\"}" --judge-request "\$rubric" >b
    jq -e ".messages[0].content == \"be kind\"" b'
ok 'a filter reads the answer: text, JSON, the whole response' '
    echo "x @@chat={%22grade%22: 5%2C %22why%22: %22short%22}@@" | rows | char_batch json.dp 8 80
    at=/a
    judge --judge-filter ".judge_text|fromjson|{score: (.grade / 10), why}" -i json.dp -o out.dp
    [ "$(see out.dp "[.score, .why]|tostring")" = "[0.5,\"short\"]" ]
    judge --judge-filter ".judge.usage.total_tokens" -i json.dp -o out.dp
    [ "$(see out.dp .score)" = 10 ]
    judge --judge-filter ".judge.choices[0].finish_reason == \"stop\" and .uid == \"0-0\"" -i json.dp -o out.dp
    [ "$(see out.dp .score)" = 1 ]'
cat >bad <<'EOF'
ok @@chat=Score: 1@@
no score @@chat=I like it@@
range @@chat=Score: 8/10@@
status @@400=no such model@@
no JSON @@200=<html>@@
no choices @@200={}@@
server @@200={%22error%22:{%22message%22:%22overloaded%22}}@@
empty @@chat=@@
half @@early@@
no HTTP @@garbage@@
down @@503@@
hang @@hang@@
two @@chat=Score: 2@@
ok @@chat=Score: 0.5@@
EOF
rows <bad | char_batch bad.dp 8 80
at=/bad
quick='--judge-try-timeout 0.4 --judge-retries 1'
ok 'a failure is never a score: each is named by row, its text kept' '
    verl-reward -m policy --judge "$URL/bad/v1" --judge-model m $quick --on-error invalid -i bad.dp -o out.dp 2>err 9>&-
    [ "$(see out.dp ".score")" = "1|NaN|NaN|NaN|NaN|NaN|NaN|NaN|NaN|NaN|NaN|NaN|NaN|0.5" ]
    see out.dp .reward_error | tr "|" "\n" >why
    for x in "wrote no line .Score: X" "wrote no line .Score: X" "HTTP status 400: no such model" \
        "is not JSON: <html>" "has no choices: {}" "server says: overloaded" \
        "wrote nothing; finish_reason: stop" "(2 tries)" "." "HTTP status 503: {} (2 tries)" \
        "no whole answer within 0.4 s (2 tries)" "score 2 is not from 0 to 1"; do
        n=$((${n:-1} + 1))
        sed -n "${n}p" why | grep -q "$x" || { echo "row $n: wanted $x"; cat why; false; }
    done
    [ "$(see out.dp ".judge_text" | cut -d"|" -f2,3)" = "I like it|Score: 8/10" ]
    grep -q "row 1 (uid \"0-1\", sample 0): .*wrote no line" err
    [ "$(meta out.dp reward/failed)" = 12 ]'
ok '--on-error fail ends with 65 and the first such row; value gives its value' '
    quick="--judge-try-timeout 0.2 --judge-retries 0"
    exits 65 judge $quick -i bad.dp -o no.dp 2>err
    grep -q "row 1 (uid \"0-1\", sample 0): " err || grep -q "row 3 (uid" err
    [ ! -e no.dp ]
    judge $quick --on-error value --error-value -1 -i bad.dp -o out.dp 2>err
    [ "$(see out.dp .score)" = "1|-1|-1|-1|-1|-1|-1|-1|-1|-1|-1|-1|-1|0.5" ]'
ok 'a request filter that fails is a row'\''s failure too' '
    at=/a
    verl-batch -q slice 0:2 -i good.dp -o two.dp
    judge --judge-request "if .uid == \"0-1\" then error(\"not this\") else .solution_str end" --on-error invalid -i two.dp -o out.dp 2>err
    [ "$(see out.dp .score)" = "1|NaN" ]
    grep -q "row 1 .*not this" err
    judge --judge-request 5 --on-error invalid -i one.dp -o out.dp 2>err
    grep -q "gave number, not a string, a list of messages or an object" err'
ok 'the limits on requests at one time and in a minute hold' '
    seq 8 | sed "s/.*/& @@sleep@@/" | rows | char_batch slow.dp 8 80
    at=/s
    from=$(date +%s%N)
    judge --judge-concurrency 2 --on-error invalid -i slow.dp -o out.dp 2>err
    [ $(($(date +%s%N) - from)) -ge 800000000 ] # 4 times 0.2 s
    [ "$(see out.dp .reward_error | tr "|" "\n" | grep -c "no choices")" = 8 ]
    from=$(date +%s%N)
    judge max_rpm=300 --on-error invalid -i slow.dp -o out.dp 2>err
    [ $(($(date +%s%N) - from)) -ge 600000000 ] # 5 at once, 3 after 0.2 s each
    from=$(date +%s%N)
    judge max_tpm=30000 estimated_tokens_per_request=100 --on-error invalid -i slow.dp -o out.dp 2>err
    [ $(($(date +%s%N) - from)) -ge 600000000 ]'
ok 'the key comes from the variable, and is written nowhere' '
    at=/auth
    exits 64 env -u JUDGE_KEY verl-reward -q -m policy --judge "$URL/auth" --judge-model m --judge-key-env JUDGE_KEY -i one.dp -o no.dp 2>err
    grep -q "JUDGE_KEY.*not set" err
    export JUDGE_KEY=sk-very-secret
    judge --judge-key-env JUDGE_KEY --on-error invalid -i one.dp -o out.dp 2>err
    grep -q "is not JSON: Bearer sk-very-secret" err
    at=/chat
    judge --judge-key-env JUDGE_KEY --judge-filter 1 -i one.dp -o out.dp
    zstd -dcq out.dp >whole
    [ "$(grep -ac "sk-very\|JUDGE_KEY\|127.0.0.1" whole)" = 0 ]
    grep -aq judge-model whole'
ok 'what cannot be is refused before anything is read' '
    exits 64 judge --judge-request ".[" -i none.dp -o no.dp 2>err
    grep -q -e "--judge-request" err
    exits 64 judge --judge-filter "foo" -i none.dp -o no.dp 2>err
    grep -q -e "--judge-filter" err
    exits 64 judge --judge-params "[1]" -i none.dp -o no.dp
    exits 64 judge --jq 1 -i none.dp -o no.dp
    exits 64 verl-reward --judge localhost:8000 --judge-model m -i none.dp -o no.dp
    exits 64 verl-reward --judge http://u:secret@h/v1 --judge-model m -i none.dp -o no.dp 2>err
    [ "$(grep -c secret err)" = 0 ]
    exits 64 verl-reward --judge http://h/v1 -i none.dp -o no.dp
    exits 64 judge --judge-key-env NO_SUCH_KEY -i none.dp -o no.dp'
ok 'nobody at the address: each row says so' '
    verl-reward -q -m policy --judge http://127.0.0.1:1/v1 --judge-model m --judge-retries 0 --on-error invalid -i one.dp -o out.dp 2>err 9>&-
    see out.dp .reward_error | grep -q -i "connect"'
if have_mpi; then
    ok 'two ranks: the same scores' '
        at=/good
        judge -i good.dp -o a.dp
        verl-mpi 2 verl-reward -q -m policy --judge "$URL/good/v1" --judge-model m -i good.dp -o b.dp 9>&-
        equal "$(see a.dp .score)" "$(see b.dp .score)"'
else
    skip "$why"
fi
exec 9>&-
done_testing
