#!/bin/sh
# verl-data --check: the report on a data set, its counts, and when its status is 65.
. "$(dirname "$0")/lib.sh"
bytes=$REPO/tests/golden/text/bytes

check() { # check OPTION... -> report in out, JSON in j
    st=0
    verl-data -q -m "$bytes" --check "$@" >out 2>err || st=$?
    verl-data -q -m "$bytes" --check-json "$@" >j 2>/dev/null || :
    return $st
}
j() {
    [ "$(jq -c "$1" j)" = "$2" ] || { jq -c "$1" j; return 1; }
}
cat >good.jsonl <<END
{"prompt": "acegik", "data_source": "openai/gsm8k", "reward_model": {"ground_truth": 1}}
{"prompt": [{"role": "user", "content": "hi"}], "data_source": "math_dapo", "reward_model": {"ground_truth": "2"}}
{"prompt": "a", "data_source": "openai/gsm8k", "reward_model": {"ground_truth": "3"}}
END
cat >bad.jsonl <<END
{"prompt": "a", "data_source": "x"}
{"question": "a"}

{"question": "b", "reward_model": 3}
{"question": "c"}
{"prompt":
{"prompt": "<|end|> and <|end|>", "reward_model": {"ground_truth": "1"}}
{"prompt": "a"}
END

ok "rows, sources with their scorers, prompts, lengths; status 0; no batch" '
    check good.jsonl --batch-size 2
    grep -q "^rows *3 in 1 file, 3 usable$" out
    grep -q "^epoch *1 batches of 2 rows, 1 rows left over$" out
    grep -q "^data_source *openai/gsm8k: 2 rows, scorer gsm8k$" out
    grep -q "^ *math_dapo: 1 rows, scorer math_dapo$" out
    grep -q "^prompts *2 strings, 1 lists of messages; chat template: tokenizer$" out
    grep -q "^prompt *tokens: least 1, mean 4.0, median 5, 90% 5, 99% 5, most 6$" out
    grep -q "^ *6 *1  #*$" out
    not grep -q "^bad" out
    [ ! -s err ]
    j "[.rows, .usable, .batches, .left_over, .data_source.math_dapo.scorer, .prompt_tokens.max, .prompt_tokens.bars, .bad]" \
        "[3,3,1,1,\"math_dapo\",6,[0,1,0,0,0,1,1],[]]"'
ok "all that is wrong is reported together, by reason, with file and line" '
    exits 65 check bad.jsonl
    grep -q "^rows *7 in 1 file, 3 usable$" out
    grep -q "^bad *4 rows$" out
    grep -q "^  2 rows: prompt is missing, wanted a string" out
    grep -q "^    bad.jsonl:2, 5$" out
    grep -q "^  1 rows: prompt is missing.*; reward_model is a number, wanted an object" out
    grep -q "^  1 rows: not JSON at byte" out
    grep -q "^    bad.jsonl:6$" out
    grep -q "^special tokens *spelled 2 times in the content of 1 rows.*: bad.jsonl:7 (2)$" out
    grep -q "^repeated *1 rows have the prompt of an earlier one: bad.jsonl:8$" out
    grep -q "^ground truth *missing in 2 rows$" out
    grep -q "^data_source *x: 1 rows, no built-in scorer$" out
    grep -q "(none): 2 rows" out
    grep -q "these rows will not do: 4 bad rows (--skip-bad leaves them out), 3 rows without a scorer" err
    j "[.bad[0].rows, .bad[0].first, .special_tokens.rows, .repeated_prompts.first, .no_ground_truth]" \
        "[2,[\"bad.jsonl:2\",\"bad.jsonl:5\"],1,[\"bad.jsonl:8\"],2]"'
ok "files of another kind are told what they look like, once, with the command for lines" '
    jq . good.jsonl >pretty.jsonl
    jq -s "{data: .}" good.jsonl >nested.json
    jq -sc "{data: .}" good.jsonl >nested1.json
    printf "prompt,answer\nwhat is 1+1,2\n" >table.csv
    for f in pretty.jsonl nested.json table.csv; do
        exits 65 verl-data -q -m "$bytes" --all --skip-bad $f -o no.dp 2>err.$f
        [ "$(wc -l <err.$f)" = 1 ]
    done
    exits 65 verl-data -q -m "$bytes" --all nested1.json -o no.dp 2>err.nested1.json
    grep -q "pretty.jsonl: JSON objects over several lines.*: jq -c . pretty.jsonl > rows.jsonl" err.pretty.jsonl
    grep -q "nested.json: one object, whose member data holds the rows.*: jq -c .\.\[\"data\"\]\[\]. nested.json" err.nested.json
    grep -q "its member data seems to hold the rows" err.nested1.json
    grep -q "table.csv: looks like a table (CSV)" err.table.csv
    jq -c . pretty.jsonl >rows.jsonl; check rows.jsonl
    jq -c ".[\"data\"][]" nested.json >rows.jsonl; check rows.jsonl
    if command -v python3 >/dev/null; then
        sed -n "s/.*: \(python3 -c .*\)/\1/p" err.table.csv >convert.sh
        sh convert.sh
        [ "$(jq -r .answer rows.jsonl)" = 2 ]
    fi
    exits 65 verl-data -q -m "$bytes" --check pretty.jsonl >out 2>err
    [ ! -s out ]'
ok "messages are checked before the template sees them; the fault is named" '
    while IFS="|" read -r messages want; do
        echo "{\"prompt\": $messages}" >m.jsonl
        exits 65 verl-data -q -m "$bytes" --all m.jsonl -o no.dp 2>err
        grep -q "m.jsonl:1: $want" err || { cat err; false; }
    done <<"END"
[{"role":"user","content":"a"},{"role":"user"}]|prompt.1..content is missing, wanted a string
[{"role":"user","content":null}]|prompt.0..content is null, wanted a string
[{"role":7,"content":"a"}]|prompt.0..role is a number, wanted a string
[{"role":"user","content":"a"},"b"]|prompt.1. is a string, wanted a message
[{"role":"user","content":{"a":1}}]|prompt.0..content is an object, wanted a string or a list of texts
[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image"}]}]|prompt.0..content.1. is of type image: only text is read here
[{"role":"user","content":[3]}]|prompt.0..content.0. is a number
["a"]|prompt is a list, wanted a string
[]|prompt is a list, wanted a string
END'
ok "rows with images keep their text only, and are counted" '
    echo "{\"prompt\": \"a\", \"images\": [{\"path\": \"x.png\"}], \"videos\": []}" >m.jsonl
    echo "{\"prompt\": \"a\", \"images\": [], \"video\": null}" >>m.jsonl
    verl-data -m "$bytes" --all m.jsonl -o m.dp 2>err
    grep -q "1 rows have images, videos or audio: only their text goes to the model" err
    check m.jsonl --no-check-scorer
    grep -q "^media *1 rows" out
    j .media 1'
ok "messages without a template: one reason, and nothing about begin tokens" '
    exits 65 verl-data -q -m "$bytes" --template none --check good.jsonl >out 2>err
    grep -q "1 rows: the prompt is a list of messages, but --template none was given" out
    not grep -q "begin token" out'
ok "with options that accept them the same rows are fine" '
    check bad.jsonl --skip-bad --no-check-scorer
    check bad.jsonl --skip-bad custom_reward_function.path=f.py
    check bad.jsonl --skip-bad reward_model.enable=true
    check bad.jsonl --skip-bad --map ".data_source = \"exact\""'
ok "overlong rows under each policy: an error, filtered, cut" '
    exits 65 check good.jsonl --max-prompt-length 5
    grep -q "^overlong *1 rows (--truncation error): good.jsonl:1 (6)$" out
    grep -q "most 6; limit 5" out
    grep -q "1 overlong rows (--truncation filter" err
    check good.jsonl --max-prompt-length 5 --truncation filter
    grep -q "^rows *3 in 1 file, 2 usable$" out
    check good.jsonl --max-prompt-length 5 --truncation left
    grep -q "^truncated *1 rows$" out
    grep -q "3 usable" out'
ok "too few rows for a batch, and none at all" '
    exits 65 check good.jsonl --batch-size 4; grep -q "too few rows for a batch" err
    check good.jsonl --batch-size 4 --remainder keep
    exits 65 check bad.jsonl --skip-bad --max-prompt-length 1 --truncation filter --map ".prompt |= (. // error) + \"aceg\""
    grep -q "no usable row" err'
ok "rows to train on: lengths of responses, rows without a trained token, no scorer asked for" '
    printf "%s\n" "{\"prompt\": \"a\", \"response\": \"ac\"}" "{\"prompt\": \"a\", \"response\": \"\"}" >s.jsonl
    check s.jsonl --sft --no-eos
    grep -q "^response *tokens: least 0, mean 1.0" out
    grep -q "^no loss *1 rows" out
    not grep -q data_source out
    echo "{\"prompt\": \"a\", \"chosen\": \"ac\", \"rejected\": \"a\", \"data_source\": \"x\"}" >p.jsonl
    check p.jsonl --preference --batch-size 1
    grep -q "^longer response *tokens: least 3" out
    grep -q "batches of 1 pairs" out'
ok "uids that two rows have are named with both lines" '
    for u in 1 "\"b\"" "\"1\"" "\"b\""; do echo "{\"prompt\": \"p$u\", \"uid\": $u, \"data_source\": \"math_dapo\"}" | sed "s/p\"/p/; s/p\(.\)\"\"/p\1\"/"; done >u.jsonl
    exits 65 check u.jsonl
    grep -q "^same uid *2 rows have the uid of an earlier one: u.jsonl:3 (as u.jsonl:1), u.jsonl:4 (as u.jsonl:2)$" out
    grep -q "2 rows with the uid of an earlier one" err
    j "[.repeated_uids.rows, .repeated_uids.first]" "[2,[\"u.jsonl:3\",\"u.jsonl:4\"]]"'
ok "begin tokens: more than one, or none where the tokenizer has one" '
    echo "{\"prompt\": [{\"role\": \"user\", \"content\": \"<s>hi\"}]}" >b.jsonl
    fallback=$REPO/tests/golden/text/fallback
    echo "{{ bos_token }}{{ messages[0].content }}" >two.jinja; echo "{{ messages[0].content[3:] }}" >none.jinja
    verl-data --check --no-check-scorer -m "$fallback" b.jsonl --template two.jinja >out
    grep -q "^begin token *more than one in 1 rows$" out
    verl-data --check --no-check-scorer -m "$fallback" b.jsonl --template none.jinja >out
    grep -q "^begin token *none in 1 rows" out'
ok "the validation set; max samples; several files" '
    verl-data -q --check -m "$bytes" --validate "data.val_files=[good.jsonl,good.jsonl]" >out
    grep -q "^rows *6 in 2 files, 6 usable$" out
    grep -q "^repeated *3 rows" out
    check good.jsonl data.train_max_samples=2; grep -q "^rows *2 in" out'
ok "the report cannot be written: 74" '
    exits 74 verl-data -q --check -m "$bytes" good.jsonl -o /dev/full 2>err'
if [ -n "$SHARED" ]; then
    ok "GSM8K and MATH-500 by their filters: nothing wrong; what is long is named" '
        verl-data -q --check-json -m "$bytes" --dataset gsm8k "$SHARED/data/datasets/gsm8k/train.jsonl" data.train_batch_size=1024 >j
        j "[.rows, .usable, .batches, .left_over, .bad, .repeated_prompts.rows, .no_ground_truth]" "[7473,7473,7,305,[],0,0]"
        exits 65 verl-data -q --check-json -m "$bytes" --dataset math "$SHARED/data/datasets/math500/test.jsonl" --max-prompt-length 1000 >j 2>err
        j "[.rows, .usable, (.overlong.first[0] | split(\"/\") | last)]" "[500,$((500 - $(jq .overlong.rows j))),\"test.jsonl:169\"]"'
else
    skip "no shared data sets"
fi
done_testing
