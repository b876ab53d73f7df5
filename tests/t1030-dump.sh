#!/bin/sh
# verl-dump: rows, columns, filters, views, texts, differences.
. "$(dirname "$0")/lib.sh"
gold=$REPO/tests/golden/dp
cp "$gold/v1.dp" x.dp

ok "rows as JSON lines that jq reads" "
    verl-dump x.dp >out
    [ \$(wc -l <out) = 4 ]
    [ \"\$(jq -c '[.uid, .sample, .a, .info.k[0], .responses]' out | sed -n 3p)\" = '[\"p1\",0,1,2,[2,2]]' ]"
ok "-i, an operand, standard input: the same" "
    verl-dump x.dp >a; verl-dump -i x.dp >b; verl-dump <x.dp >c; cat x.dp | verl-dump - >d
    cmp a b; cmp a c; cmp a d"
ok "-k: these columns in this order; an unknown one is 65 and lists those there" "
    verl-dump -k sample,uid -n 1 x.dp | grep -qx '{\"sample\":0,\"uid\":\"p0\"}'
    exits 65 verl-dump -k uids x.dp 2>err
    grep -q 'no column uids (there are: uid, sample' err
    exits 65 verl-dump -k uids <x.dp 2>err
    [ \$(wc -l <err) = 1 ]"
ok "head N, -n N and --rows A:B; past the end there is nothing" "
    verl-dump head 2 x.dp >a; verl-dump -n 2 x.dp >b; verl-dump --rows :2 x.dp >c
    [ \$(wc -l <a) = 2 ]; cmp a b; cmp a c
    verl-dump --rows 3: x.dp | grep -q p1
    [ -z \"\$(verl-dump --rows 9:12 x.dp)\" ]
    exits 64 verl-dump --rows 2 x.dp 2>err
    exits 64 verl-dump --rows 3:1 x.dp 2>err
    exits 64 verl-dump -n 1 --rows 1:2 x.dp 2>err
    exits 64 verl-dump head x.dp 2>err"
ok "a reader that has enough is no error to report" "
    verl-batch repeat 3000 -i x.dp -o long.dp
    { verl-dump long.dp 2>err || echo \$? >status; } | head -n 1 | grep -q p0
    [ ! -s err ] && [ \$(cat status) = 141 ]"
ok "-f: a jq filter; -r without quotes; its mistakes are 64 and 65 with the row" "
    verl-dump -f 'select(.a > 0.7) | .uid' -r x.dp | tr '\n' ' ' | grep -qx 'p1 p1 '
    [ \"\$(verl-dump -f '(.sample | debug | empty), .uid' -n 1 x.dp 2>err)\" = '\"p0\"' ]
    grep -q '\[\"DEBUG:\",0\]' err
    exits 64 verl-dump -f '.[' x.dp 2>err
    exits 65 verl-dump -f '.a.b' x.dp 2>err
    grep -q 'row 0' err
    exits 64 verl-dump -r x.dp 2>err"
ok "--schema, --meta, --provenance" "
    verl-batch set-meta temperature 0.5 -i x.dp -o m.dp
    [ \"\$(verl-dump --schema m.dp | jq -c '[.rows, .batch_size, (.columns | map(.name + \":\" + .dtype))]')\" = \
        '[4,4,[\"uid:json\",\"sample:I64\",\"a:F32\",\"info:json\",\"responses:I64\"]]' ]
    verl-dump --schema m.dp | jq -e '.columns[4].shape == [4,2] and .columns[4].bytes == 64' >/dev/null
    verl-dump --meta m.dp | grep -qx '{\"temperature\":0.5}'
    verl-dump --provenance m.dp | jq -e 'to_entries | last.value | .program == \"verl-batch\" and
        .options.command == \"set-meta\" and (.parents | length) == 1' >/dev/null
    exits 64 verl-dump --schema --meta m.dp 2>err"
ok "--check prints the counts" "
    verl-dump --check x.dp | grep -q '^x.dp: ok, 4 rows, 5 columns, [0-9]* bytes of data, hash [0-9a-f]*$'"
ok "--check says which rows are there twice; unequal widths are 65" "
    verl-batch repeat 2 -i x.dp -o twice.dp
    verl-dump --check twice.dp | grep -q 'rows 0 and 1 are both (uid \"p0\", sample 0)'
    printf '%s\n' '{\"responses\":[1,2],\"response_mask\":[1,1]}' | verl-batch from-json -o w.dp
    verl-batch rename response_mask:values -i w.dp -o w2.dp
    verl-dump --check w2.dp >out
    printf '%s\n' '{\"responses\":[1,2],\"old_log_probs\":[0.5]}' |
        verl-batch from-json --dtype old_log_probs=json -o w.dp
    verl-dump --check w.dp >out"
ok "diff: nothing and 0, or the differences and 1" "
    exits 0 verl-dump diff x.dp x.dp >out; [ ! -s out ]
    verl-batch map -f '.a += 1' -i x.dp -o y.dp
    exits 1 verl-dump diff x.dp y.dp >out 2>err
    grep -qx 'column a: 4 of 4 rows differ, first row 0 (element 0)' out
    verl-batch drop -k a -i x.dp -o z.dp
    exits 1 verl-dump diff x.dp z.dp >out 2>err
    grep -qx 'column a: only in the first' out
    exits 1 verl-dump diff x.dp m.dp >out 2>err
    grep -q 'meta_info temperature: absent in the first, 0.5 in the second' out
    exits 64 verl-dump diff x.dp 2>err"

printf '%s\n' '{"x":[0.1,"NaN"],"t":"\ud800 é"}' '{"x":["Infinity","-Infinity"],"t":"plain"}' >nan.jsonl
ok "non-finite numbers are strings, %.9g, and read back" "
    verl-batch from-json nan.jsonl -o nan.dp
    verl-dump -k x nan.dp >out
    printf '%s\n' '{\"x\":[0.100000001,\"NaN\"]}' '{\"x\":[\"Infinity\",\"-Infinity\"]}' | cmp - out"
ok "text that jq would change has exact bytes beside it, which from-json prefers" "
    verl-dump nan.dp | jq -e '.t_b64' | head -n 1 | tr -d '\"' | base64 -d | grep -qF '\\ud800'
    verl-dump nan.dp | sed -n 2p | jq -e 'has(\"t_b64\") | not' >/dev/null
    verl-dump nan.dp | jq -c . | verl-batch from-json --like nan.dp -o back.dp
    cmp nan.dp back.dp
    verl-dump nan.dp | jq -c . | verl-batch from-json -o back.dp
    verl-dump -k t nan.dp >a; verl-dump -k t back.dp >b; cmp a b"
ok "several files are united by columns" "
    verl-batch select -k uid,sample,a -i x.dp -o one.dp
    verl-batch select -k uid,sample,info -i x.dp | verl-batch reorder 3,1,0,2 -o two.dp
    verl-dump -k a,info x.dp >a
    verl-dump -k a,info one.dp two.dp >b
    cmp a b"
ok "no batch on a terminal is asked for: the usage mistakes are 64" "
    exits 64 verl-dump -k a --schema x.dp 2>err
    exits 64 verl-dump -i x.dp x.dp 2>err"

if [ -n "$SHARED" ] && [ -d "$SHARED/data/models/stories260k" ]; then
    m=$SHARED/data/models/stories260k
    printf '%s\n' '{"prompts":[0,0,1,403],"responses":[407,261,2,2],"attention_mask":[0,0,1,1,1,1,1,0]}' >t.jsonl
    verl-batch from-json t.jsonl -o t.dp
    ok "-m: prompt_text and response_text of the tokens that the mask keeps" "
        verl-dump -m $m t.dp | jq -e 'has(\"prompt_text\") and has(\"response_text\")' >/dev/null
        verl-dump -m $m -k response_text t.dp | jq -e '.response_text | length > 0' >/dev/null
        verl-dump -m $m --no-text t.dp | jq -e 'has(\"prompt_text\") | not' >/dev/null"
    ok "the tokenizer of meta_info is used when it is there" "
        verl-batch set-meta tokenizer_path $m -i t.dp -o t2.dp
        verl-dump -k response_text t2.dp >a
        verl-dump -k response_text -m $m t.dp >b
        cmp a b
        verl-batch set-meta tokenizer_path $m tokenizer_hash 00 -i t.dp -o t3.dp
        verl-dump t3.dp 2>err | jq -e 'has(\"response_text\") | not' >/dev/null
        grep -q 'not the tokenizer of this batch' err"
    ok "views are not read back" "
        verl-dump t2.dp | verl-batch from-json --like t2.dp -o t4.dp
        cmp t2.dp t4.dp"
else
    skip "text views: no shared data"
fi
done_testing
