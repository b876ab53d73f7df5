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
    verl-dump --rows 9:12 x.dp >none
    [ ! -s none ]
    exits 64 verl-dump --rows 2 x.dp 2>err
    exits 64 verl-dump --rows 3:1 x.dp 2>err
    exits 64 verl-dump -n 1 --rows 1:2 x.dp 2>err
    exits 64 verl-dump head x.dp 2>err"
ok "a reader that has enough is no error to report" "
    verl-batch repeat 3000 -i x.dp -o long.dp
    { verl-dump long.dp 2>err || echo \$? >status; } | head -n 1 | grep -q p0
    [ ! -s err ]
    [ \$(cat status) = 141 ]"
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
    verl-dump nan.dp | jq '.t_b64' | head -n 1 | tr -d '\"' | base64 -d | grep -qF '\\ud800'
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

# ---- token by token ----
bytes=$REPO/tests/golden/text/bytes
cat >talk.jsonl <<END
{"messages": [{"role": "user", "content": "hi è"}, {"role": "assistant", "content": "ac"}, {"role": "user", "content": "k"}, {"role": "assistant", "content": "e"}]}
{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}
END
verl-data -q talk.jsonl -m "$bytes" --sft -o talk.dp
ok "--tokens: place, loss, id, text, the vocabulary's spelling; no padding" '
    verl-dump --tokens -n 1 talk.dp >out
    sed "s/  */ /g" out >got
    cat >want <<END
row 0 (uid "0-0"): 8 prompt tokens, 9 of the response, 5 in the loss
 at loss id text (in the vocabulary)
 p0 . 275 "<|user|>" (<|user|>, special)
 p1 . 104 "h" (h)
 p2 . 105 "i" (i)
 p3 . 32 " " (Ġ)
 p4 . 195 "" (Ã)
 p5 . 168 "è" (¨)
 p6 . 274 "<|end|>" (<|end|>, special)
 p7 . 278 "<|bot|>" (<|bot|>, special)
 r0 1 97 "a" (a)
 r1 1 99 "c" (c)
 r2 1 274 "<|end|>" (<|end|>, special)
 r3 0 275 "<|user|>" (<|user|>, special)
 r4 0 107 "k" (k)
 r5 0 274 "<|end|>" (<|end|>, special)
 r6 0 278 "<|bot|>" (<|bot|>, special)
 r7 1 101 "e" (e)
 r8 1 274 "<|end|>" (<|end|>, special)
END
    diff want got
    [ "$(verl-dump --tokens --rows 1: talk.dp | wc -l)" = 8 ]'
ok "--tokens: per-token columns beside them, all F32 ones or those of -k; without a tokenizer no text" '
    verl-dump talk.dp | jq -c ".old_log_probs = [range(.responses | length) | . / 4] | .advantages = .old_log_probs" |
        verl-batch from-json --like talk.dp --dtype old_log_probs=F32 --dtype advantages=F32 -o f.dp
    verl-dump --tokens -n 1 f.dp | grep -q "^    r3     0       275  *0.75  *0.75  \"<|user|>\""
    verl-dump --tokens -k advantages f.dp | sed -n 2p | grep -q "id *advantages *text"
    exits 65 verl-dump --tokens -k uid f.dp 2>err; grep -q -e "-k uid: not a column with a number for each of 9 response" err
    verl-batch select -k uid,sample -i x.dp -o ids.dp
    exits 65 verl-dump --tokens ids.dp 2>err; grep -q "tokens: no column prompts, responses or input_ids (there are: uid, sample)" err
    verl-dump --no-text --tokens -n 1 talk.dp | sed -n 3p | grep -qx "    p0     .       275"'
ok "--rendered: prompts and responses as text" '
    verl-dump --rendered --rows 1: talk.dp >out
    printf "%s\n" "=== row 0 (uid \"0-1\"): prompt, 4 tokens" "<|user|>x<|end|><|bot|>" "=== response, 2 tokens" "y<|end|>" >want
    diff want out
    verl-batch set-meta tokenizer_path "\"/none\"" -i talk.dp -o lost.dp
    exits 65 verl-dump --rendered lost.dp 2>err; grep -q "needs the batch.s tokenizer.*-m DIR" err
    verl-dump --rendered -m "$bytes" --rows 1: lost.dp | diff want -'
ok "prompt_tokens and response_tokens: the texts as lists, in JSON" '
    [ "$(verl-dump -k response_tokens --rows 1: talk.dp)" = "{\"response_tokens\":[\"y\",\"<|end|>\"]}" ]
    verl-dump -f "[.prompt_text, .response_text] | add" talk.dp >a
    verl-dump -k prompt_tokens,response_tokens -f "[.prompt_tokens, .response_tokens] | add | add" talk.dp | diff a -'
ok "diff --tokens: where the tokens of two templates part, with what stands around; 1, or 0 when they do not" '
    echo "{% for m in messages %}{{ m.role[0] + \":\" + m.content }}{% if m.role == \"assistant\" %}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}a:{% endif %}" >other.jinja
    verl-data -q talk.jsonl -m "$bytes" --sft --template other.jinja -o other.dp
    exits 1 verl-dump diff --tokens talk.dp other.dp >out 2>err
    sed -n 1,3p out >got
    cat >want <<END
row 0 (uid "0-0"): 17 and 19 tokens, the first difference at p0
  talk.dp:  >>"<|user|>" 275  "h" 104  "i" 105  " " 32  "" 195  ...
  other.dp:  >>"u" 117  ":" 58  "h" 104  "i" 105  " " 32  ...
END
    diff want got
    grep -qx "2 of 2 rows differ" out
    grep -q "differ (2 rows)" err
    exits 1 verl-dump diff --tokens -n 1 talk.dp other.dp >out 2>err
    [ $(grep -c "^row" out) = 1 ]
    exits 0 verl-dump diff --tokens talk.dp f.dp >out; [ ! -s out ]
    verl-dump talk.dp | jq -c ".responses[7] = 98 | .input_ids[-2] = 98" | sed 1q >one.jsonl; verl-dump talk.dp | tail -n 1 >>one.jsonl
    verl-batch from-json one.jsonl --like talk.dp -o one.dp
    exits 1 verl-dump diff --tokens talk.dp one.dp >out 2>err
    grep -q "^row 0 .*: 17 and 17 tokens, the first difference at r7$" out
    grep -q "one.dp: ... .*>>\"b\" 98  \"<|end|>\" 274$" out
    verl-batch slice 0:1 -i talk.dp -o short.dp
    exits 1 verl-dump diff --tokens talk.dp short.dp >out 2>err; grep -qx "1 rows are only in talk.dp" out'
ok "the examples of verl-dump(1) run" '
    mkdir ex; cd ex; mkdir step_000001 again
    cp ../f.dp gen.dp; cp gen.dp adv.dp; cp gen.dp step_000001; cp gen.dp again; cp ../other.jinja .
    verl-dump gen.dp | jq -c ".score = 1" | verl-batch from-json --like gen.dp -o reward.dp
    jq -c "{prompt: .messages[:1]}" ../talk.jsonl >rows.jsonl
    sed -n "/^\.Sh EXAMPLES/,/^\.Sh SEE/p" "$REPO/man/verl-dump.1" |
        sed -n -e "s/^\.Dl //p" -e "/^verl/p" | sed "s|MODEL|$bytes|" >ex.sh
    [ $(grep -c ^verl- ex.sh) -ge 10 ]
    while read -r line; do
        case $line in *other.jinja*) ;; "verl-dump diff --tokens"*) line="exits 1 $line" ;; esac
        eval "$line" >out 2>err || { echo "$line"; cat err; false; }
    done <ex.sh'
ok "what these views cannot be given with: 64" '
    for o in "--tokens --rendered" "--tokens -f ." "--rendered -k uid" "--tokens --schema" "--rendered --check"; do
        exits 64 verl-dump $o talk.dp 2>err
    done'

if [ -n "$SHARED" ] && [ -d "$SHARED/data/models/stories260k" ]; then
    m=$SHARED/data/models/stories260k
    printf '%s\n' '{"prompts":[0,0,1,403],"responses":[407,261,2,2],"attention_mask":[0,0,1,1,1,1,1,0]}' >t.jsonl
    verl-batch from-json t.jsonl -o t.dp
    ok "-m: prompt_text and response_text of the tokens that the mask keeps" "
        verl-dump -m $m t.dp | jq -es 'length > 0 and all(has(\"prompt_text\") and has(\"response_text\"))' >/dev/null
        verl-dump -m $m -k response_text t.dp | jq -es 'length > 0 and all(.response_text | length > 0)' >/dev/null
        verl-dump -m $m --no-text t.dp | jq -es 'length > 0 and all(has(\"prompt_text\") | not)' >/dev/null"
    ok "the tokenizer of meta_info is used when it is there" "
        verl-batch set-meta tokenizer_path $m -i t.dp -o t2.dp
        verl-dump -k response_text t2.dp >a
        verl-dump -k response_text -m $m t.dp >b
        cmp a b
        verl-batch set-meta tokenizer_path $m tokenizer_hash 00 -i t.dp -o t3.dp
        verl-dump t3.dp 2>err | jq -es 'length > 0 and all(has(\"response_text\") | not)' >/dev/null
        grep -q 'not the tokenizer of this batch' err"
    ok "views are not read back" "
        verl-dump t2.dp | verl-batch from-json --like t2.dp -o t4.dp
        cmp t2.dp t4.dp"
else
    skip "text views: no shared data"
fi
done_testing
