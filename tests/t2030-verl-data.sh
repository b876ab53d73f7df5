#!/bin/sh
# verl-data: which rows a batch has, what becomes of prompts, and what is refused.
. "$(dirname "$0")/lib.sh"
bytes=$REPO/tests/golden/text/bytes
fallback=$REPO/tests/golden/text/fallback

# rows FILE 'jq filter': one value a row
rows() {
    verl-dump -f "$2" "$1"
}
meta() {
    verl-dump --meta "$1" | jq -c "$2"
}
uids() {
    rows "$1" .uid | tr -d '"' | tr '\n' ' '
}
i=0
while [ $i -lt 10 ]; do
    echo "{\"prompt\": \"p$i\", \"extra_info\": {\"n\": $i}}"
    i=$((i + 1))
done >ten.jsonl
step() { # step N [OPTION...] -> uids
    n=$1
    shift
    verl-data -q ten.jsonl -m "$bytes" --step "$n" --batch-size 3 -o s.dp "$@"
    uids s.dp
}

ok "columns: ids, masks from lengths, positions, uid, sample, raw_prompt, index, members" '
    printf "%s\n" "{\"prompt\": \"hello\", \"data_source\": \"exact\", \"level\": 3}" "{\"prompt\": \" world hi\"}" >a.jsonl
    verl-data -q a.jsonl -m "$bytes" -o a.dp
    verl-dump --check a.dp
    rows a.dp "[.prompts, .input_ids, .attention_mask, .position_ids]" >got
    printf "%s\n" "[[274,274,274,259],[274,274,274,259],[0,0,0,1],[0,0,0,0]]" \
        "[[264,32,104,105],[264,32,104,105],[1,1,1,1],[0,1,2,3]]" >want
    diff want got
    rows a.dp "[.uid, .sample, .raw_prompt, .index, .data_source, .level, .extra_info]" >got
    printf "%s\n" "[\"0-0\",0,\"hello\",0,\"exact\",3,{}]" "[\"0-1\",0,\" world hi\",1,null,null,{}]" >want
    diff want got'
ok "tools_kwargs and interaction_kwargs of extra_info become columns, as in verl" '
    printf "%s\n" "{\"prompt\": \"a\", \"extra_info\": {\"tools_kwargs\": {\"calc\": {\"create_kwargs\": 2}}}}" "{\"prompt\": \"b\"}" |
        verl-data -q - -m "$bytes" -o k.dp
    [ "$(rows k.dp "[.tools_kwargs, has(\"interaction_kwargs\")]" | tr "\n" " ")" = "[{\"calc\":{\"create_kwargs\":2}},false] [{},false] " ]'
ok "the width is data.max_prompt_length where it is given" '
    verl-data -q a.jsonl -m "$bytes" data.max_prompt_length=6 -o w.dp
    [ "$(rows w.dp ".attention_mask" | head -n 1)" = "[0,0,0,0,0,1]" ]'
ok "meta: seed, step, epoch, tokenizer, template, pad, counts" '
    verl-data -q ten.jsonl -m "$bytes" --step 5 --batch-size 3 --seed 7 -o m.dp
    [ "$(meta m.dp "[.seed, .global_steps, .epoch, .gen_batch, .chat_template, .pad_token_id, .data_counts.left_over]")" = "[7,5,1,4,\"none\",274,1]" ]
    [ "$(meta m.dp ".tokenizer_hash | length")" = 32 ]'

# ---- which rows ----
ok "a step is a pure function of seed and number: the same bytes again, and after others" '
    step 4 >/dev/null; cp s.dp first.dp
    step 1 >/dev/null; step 4 >/dev/null
    cmp first.dp s.dp'
ok "rule 38: an epoch has every row once but the rest; the next has an order of its own" '
    one="$(step 1)$(step 2)$(step 3)"
    two="$(step 4)$(step 5)$(step 6)"
    echo "$one / $two"
    [ $(echo $one | tr " " "\n" | sort -u | wc -l) = 9 ]
    [ $(echo $one | tr " " "\n" | grep -c ^0-) = 9 ]
    [ $(echo $two | tr " " "\n" | grep -c ^1-) = 9 ]
    [ "$(echo $one | sed s/0-//g)" != "$(echo $two | sed s/1-//g)" ]'
ok "--remainder keep: the last batch is smaller and the epoch has every row" '
    all="$(step 1 --remainder keep)$(step 2 --remainder keep)$(step 3 --remainder keep)$(step 4 --remainder keep)"
    [ $(echo $all | tr " " "\n" | grep ^0- | sort -u | wc -l) = 10 ]
    step 5 --remainder keep | grep -q "^1-"'
ok "--no-shuffle: file order; --batch K: that batch, the step only recorded" '
    [ "$(step 2 --no-shuffle)" = "0-3 0-4 0-5 " ]
    [ "$(step 9 --no-shuffle --batch 1)" = "0-3 0-4 0-5 " ]
    [ "$(meta s.dp "[.global_steps, .gen_batch]")" = "[9,1]" ]'
ok "rule 38: the position is the step alone: a run that stopped anywhere goes on with the same rows" '
    whole=; n=1; while [ $n -le 8 ]; do whole="$whole$(step $n --seed 5)/"; n=$((n + 1)); done
    for stop in 2 3 4 7; do # epochs end after 3 and 6
        again=; n=$stop; while [ $n -le 8 ]; do again="$again$(step $n --seed 5)/"; n=$((n + 1)); done
        case $whole in *"/$again") ;; *) echo "from $stop: $again, not the end of $whole"; false ;; esac
    done
    [ "$(meta s.dp "[.global_steps, .epoch, .gen_batch]")" = "[8,2,7]" ]'
ok "rule 38: the order of an epoch is that of (seed, epoch), whatever the batch size and the policy" '
    order() { n=1; while [ $n -le $1 ]; do verl-data -q ten.jsonl -m "$bytes" --step $n --batch-size $2 --seed 3 --remainder keep -o s.dp "$3"; uids s.dp; n=$((n + 1)); done; }
    equal "$(order 10 1 --truncation=error)" "$(order 2 5 --truncation=filter)"
    equal "$(order 10 1 --truncation=error)" "$(order 4 3 --skip-bad)"'
ok "rule 38: the seed decides the order, data.seed before --seed" '
    a=$(step 1 --seed 1); b=$(step 1 --seed 2)
    [ "$a" != "$b" ]
    [ "$(step 1 --seed 1 data.seed=2)" = "$b" ]
    [ "$(meta s.dp .seed)" = 1 ]'
ok "several files are one; - is standard input" '
    head -n 4 ten.jsonl >x.jsonl; tail -n 6 ten.jsonl >y.jsonl
    verl-data -q x.jsonl - -m "$bytes" -o xy.dp <y.jsonl
    verl-data -q ten.jsonl -m "$bytes" -o t.dp
    cmp xy.dp t.dp
    verl-data -q -m "$bytes" "data.train_files=[x.jsonl,y.jsonl]" -o xy2.dp
    cmp xy.dp xy2.dp'
ok "rule 37: --validate: data.val_files, every row in file order, no partial batch dropped" '
    verl-data -q -m "$bytes" --validate data.val_files=ten.jsonl --step 7 -o v.dp
    [ "$(uids v.dp | wc -w)" = 10 ]
    [ "$(meta v.dp "[.validate, .global_steps]")" = "[true,7]" ]'
ok "max_samples: the first, or a draw by the seed" '
    verl-data -q ten.jsonl -m "$bytes" data.train_max_samples=3 --no-shuffle -o k.dp
    [ "$(uids k.dp)" = "0-0 0-1 0-2 " ]
    verl-data -q ten.jsonl -m "$bytes" data.train_max_samples=3 -o k.dp
    [ "$(uids k.dp | wc -w)" = 3 ]
    [ "$(uids k.dp)" != "0-0 0-1 0-2 " ]'
ok "too few rows for a batch: 65, and --step without a size: 64" '
    exits 65 verl-data ten.jsonl -m "$bytes" --step 1 --batch-size 11 -o n.dp 2>err
    grep -q "10 rows do not fill" err
    exits 64 verl-data ten.jsonl -m "$bytes" --step 1 -o n.dp 2>err
    grep -q -e "--batch-size" err
    [ ! -e n.dp ]'

# ---- prompts (rules 33 and 34, ids and templates against references: t2010, t2020 and the units) ----
msgs='[{"role": "user", "content": "hi"}]'
ok "rule 31: a list goes through the template, nothing is added to it; a string is text" '
    echo "{\"prompt\": $msgs}" >c.jsonl
    verl-data -q c.jsonl -m "$bytes" -o c.dp
    [ "$(rows c.dp "[.prompts, .raw_prompt]")" = "[[275,104,105,274,278],[{\"role\":\"user\",\"content\":\"hi\"}]]" ]
    [ "$(meta c.dp .chat_template)" = "\"tokenizer\"" ]'
ok "template variables, a system message, another template, a string as a message" '
    verl-data -q c.jsonl -m "$bytes" --template-kwargs "{\"think\": true}" -o c.dp
    [ "$(rows c.dp .prompts)" = "[275,104,105,274,278,276]" ]
    verl-data -q c.jsonl -m "$bytes" +data.apply_chat_template_kwargs.think=true -o c2.dp
    [ "$(rows c2.dp .prompts)" = "[275,104,105,274,278,276]" ]
    verl-data -q c.jsonl -m "$bytes" --system b -o c.dp
    [ "$(rows c.dp .prompts)" = "[98,10,275,104,105,274,278]" ]
    echo "{{ messages[0].content }}!" >t.jinja
    verl-data -q c.jsonl -m "$bytes" --template t.jinja -o c.dp
    [ "$(rows c.dp .prompts)" = "[104,105,33]" ]
    [ "$(meta c.dp .chat_template)" = "\"t.jinja\"" ]
    echo "{\"prompt\": \"hi\"}" | verl-data -q - -m "$bytes" --chat -o c.dp
    [ "$(rows c.dp .prompts)" = "[275,104,105,274,278]" ]'
ok "rule 31: a list without a template: 65 and how to give one" '
    exits 65 verl-data c.jsonl -m "$fallback" -o n.dp 2>err
    grep -q "c.jsonl:1: .*--template FILE" err
    exits 65 verl-data c.jsonl -m "$bytes" --template none -o n.dp 2>err
    grep -q "none was given" err'
ok "rule 32: a string has the special tokens of the tokenizer once; a template that writes them adds none" '
    echo "{\"prompt\": \"hello\"}" | verl-data -q - -m "$fallback" -o f.dp
    [ "$(rows f.dp .prompts)" = "[1,276,2]" ] || { rows f.dp .prompts; false; }
    echo "{{ bos_token }}{{ messages[0].content }}" >b.jinja
    verl-data c.jsonl -m "$fallback" --template b.jinja -o f.dp 2>err
    rows f.dp ".prompts[0:2]" | grep -q "^\[1,[^1]"
    not grep -q "begin token" err
    echo "{\"prompt\": \"<s>hello\"}" | verl-data - -m "$fallback" -o f.dp 2>err
    grep -q "1 rows begin with more than one begin token" err
    verl-data -q c.jsonl -m "$fallback" --template b.jinja --system "<s>x" -o f.dp 2>err
    grep -q "1 rows begin with more than one begin token" err
    echo "{\"prompt\": \"<s>hello\"}" | verl-data - -m "$fallback" --plain-special -o f.dp 2>err
    not grep -q "more than one" err'
ok "a template that is refused names line and construct" '
    echo "{% include \"x\" %}" >i.jinja
    exits 65 verl-data c.jsonl -m "$bytes" --template i.jinja -o n.dp 2>err
    grep -q "i.jinja: line 1: the statement {% include %} is not supported" err'
ok "a template that raises is the row's error" '
    echo "{{ raise_exception(\"no such role\") }}" >r.jinja
    exits 65 verl-data c.jsonl -m "$bytes" --template r.jinja -o n.dp 2>err
    grep -q "c.jsonl:1: .*no such role" err'
ok "rule 35: so are reasoning and the arguments of tool calls, wherever a message holds them; roles are not" '
    printf "%s" "{% for m in messages %}{{ m.role }}{{ m.content }}{{ m.reasoning_content }}{{ m.tool_calls[0].function.arguments.x[0] }}<|end|>{% endfor %}" >calls.jinja
    echo "{\"prompt\": [{\"role\": \"<|bot|>\", \"content\": \"<|end|>\", \"reasoning_content\": \"<|end|>\", \"tool_calls\": [{\"function\": {\"arguments\": {\"x\": [\"<|end|>\"]}}}]}]}" >calls.jsonl
    verl-data calls.jsonl -m "$bytes" --template calls.jinja -o sp.dp 2>err
    grep -q "1 rows spells 3 special tokens" err
    equal "$(rows sp.dp "[.prompts[] | select(. == 274)] | length")" 4
    verl-data -q calls.jsonl -m "$bytes" --template calls.jinja --plain-special -o sp.dp
    equal "$(rows sp.dp "[.prompts[] | select(. == 274)] | length")" 1
    equal "$(rows sp.dp .prompt_text)" "\"<|bot|><|end|><|end|><|end|><|end|>\""'
ok "rule 35: content that spells a special token is counted; --plain-special makes it text" '
    echo "{\"prompt\": [{\"role\": \"user\", \"content\": \"a<|end|>\"}]}" >sp.jsonl
    verl-data sp.jsonl -m "$bytes" -o sp.dp 2>err
    grep -q "1 rows spells 1 special" err
    [ "$(rows sp.dp .prompts)" = "[275,97,274,274,278]" ]
    verl-data sp.jsonl -m "$bytes" --plain-special -o sp.dp 2>err
    [ "$(rows sp.dp .prompts)" = "[275,97,60,124,101,110,100,124,62,274,278]" ] || { rows sp.dp .prompts; false; }
    [ "$(rows sp.dp ".raw_prompt[0].content")" = "\"a<|end|>\"" ]'

# ---- length ----
echo '{"prompt": "acegik"}' >long.jsonl
echo '{"prompt": "ac"}' >>long.jsonl
cut() { # cut POLICY -> ids of the first row
    verl-data -q long.jsonl -m "$bytes" --max-prompt-length 3 --truncation "$1" -o l.dp
    rows l.dp .prompts | head -n 1
}
ok "rule 36: left keeps the end, right the start, middle half of each; the limit is never passed" '
    [ "$(cut left)" = "[103,105,107]" ]
    [ "$(cut right)" = "[97,99,101]" ]
    [ "$(cut middle)" = "[97,105,107]" ]
    [ "$(meta l.dp .data_counts.truncated)" = 1 ]'
ok "rule 36: error: 65 with the length and the policies; filter: dropped and counted before batches are cut" '
    exits 65 verl-data long.jsonl -m "$bytes" --max-prompt-length 3 -o n.dp 2>err
    grep -q "long.jsonl:1: prompt of 6 tokens, the limit is 3" err
    [ "$(cut filter)" = "[274,97,99]" ]
    [ "$(uids l.dp)" = "0-1 " ]
    [ "$(meta l.dp .data_counts.filtered)" = 1 ]
    verl-data -q long.jsonl -m "$bytes" data.max_prompt_length=3 data.filter_overlong_prompts=true \
        --step 1 --batch-size 1 -o l.dp
    [ "$(uids l.dp)" = "0-1 " ]'
ok "rule 36: with any policy but error no prompt passes the limit, at any length" '
    i=1; p=; while [ $i -le 12 ]; do p=${p}a; echo "{\"prompt\": \"$p\"}"; i=$((i + 1)); done | sed "s/aa/ac/g" >lens.jsonl
    for t in left right middle filter; do
        for n in 1 2 5; do
            verl-data -q lens.jsonl -m "$bytes" --max-prompt-length $n --truncation $t -o l.dp
            [ "$(rows l.dp "[(.attention_mask | add) <= $n, (.prompts | length) == $n]" | sort -u)" = "[true,true]" ]
        done
    done'
ok "rule 36: prompt and response limits are compared with the context before anything runs" '
    mkdir ctx; cp "$bytes"/*.json ctx; echo "{\"max_position_embeddings\": 16}" >ctx/config.json
    exits 64 verl-data a.jsonl -m ctx data.max_prompt_length=10 data.max_response_length=7 -o n.dp 2>err
    grep -q "context of 16" err
    exits 64 verl-data a.jsonl -m ctx --sft data.max_length=17 -o n.dp 2>err
    grep -q "data.max_length=17 passes the model.s context of 16" err'

# ---- rows that are wrong ----
ok "rule 25: a bad line is named by file and line: 65; --skip-bad leaves it out and counts" '
    printf "%s\n" "{\"prompt\": \"a\"}" "" "{\"prompt\": " "{\"prompt\": \"b\"}" >bad.jsonl
    exits 65 verl-data bad.jsonl -m "$bytes" -o n.dp 2>err
    grep -q "^verl-data: bad.jsonl:3: not JSON" err
    [ $(wc -l <err) = 1 ]
    [ ! -e n.dp ]
    verl-data bad.jsonl -m "$bytes" --skip-bad -o b.dp 2>err
    grep -q "1 bad rows skipped, the first: bad.jsonl:3" err
    [ "$(uids b.dp)" = "0-0 0-2 " ]
    [ "$(meta b.dp .data_counts.bad)" = 1 ]'
ok "rules 25, 28: a bad line fails every step, not only the one that has its row" '
    exits 65 verl-data bad.jsonl -m "$bytes" --step 1 --batch-size 1 --no-shuffle -o n.dp 2>err'
ok "rule 26: lines are cut at 0x0A only: U+2028, U+0085 and CR are characters" '
    printf "{\"prompt\": \"a\342\200\250b\302\205c\\\\rd\"}\r\n{\"prompt\": \"e\"}" >u.jsonl
    verl-data -q u.jsonl -m "$bytes" -o u.dp
    [ "$(uids u.dp)" = "0-0 0-1 " ]
    [ "$(rows u.dp ".raw_prompt | explode")" = "[97,8232,98,133,99,13,100]
[101]" ]'
ok "rule 27: NUL and lone surrogates survive writing, dumping and reading back; a line that is not UTF-8 is an error" '
    printf "%s\n" "{\"prompt\": \"x\", \"extra_info\": {\"z\": \"a\\u0000b\", \"s\": \"\\ud800\", \"t\": \"\\udc00\\ud800\"}}" >z.jsonl
    for map in . "{prompt, extra_info}"; do
        verl-data -q z.jsonl -m "$bytes" --map "$map" -o z.dp
        zstd -dc z.dp | grep -aq "a.u0000b.*.ud800.*.udc00.ud800"
        verl-dump z.dp | verl-batch from-json --like z.dp -o back.dp
        cmp z.dp back.dp
    done
    printf "{\"prompt\": \"a\377b\"}\n" >utf.jsonl
    exits 65 verl-data utf.jsonl -m "$bytes" -o n.dp 2>err
    grep -q "utf.jsonl:1: not JSON at byte 13" err || { cat err; false; }'
ok "rule 28: missing and mistyped members are reported together with those that are there" '
    echo "{\"question\": \"x\", \"data_source\": 3, \"reward_model\": []}" >w.jsonl
    exits 65 verl-data w.jsonl -m "$bytes" -o n.dp 2>err
    grep -q "w.jsonl:1: prompt is missing.*data_source is a number.*reward_model is a list.*question, data_source, reward_model" err'
ok "rule 29: answers keep their digits as text, through --map too" '
    printf "%s\n" "{\"prompt\": \"a\", \"reward_model\": {\"style\": \"rule\", \"ground_truth\": 1.0}}" \
        "{\"prompt\": \"a\", \"reward_model\": {\"ground_truth\": 12345678901234567890123, \"x\": 1}}" \
        "{\"prompt\": \"a\", \"reward_model\": {\"ground_truth\": true}}" >num.jsonl
    verl-data -q num.jsonl -m "$bytes" --no-check-scorer -o num.dp
    rows num.dp ".reward_model.ground_truth" >got
    printf "%s\n" "\"1.0\"" "\"12345678901234567890123\"" "\"true\"" >want
    diff want got
    verl-data -q num.jsonl -m "$bytes" --no-check-scorer --map . -o num2.dp
    rows num2.dp ".reward_model.ground_truth" | sed -n 2p >got
    sed -n 2p want | diff - got'
ok "a row to be scored without data_source is 65, unless the scorer is chosen otherwise" '
    echo "{\"prompt\": \"a\", \"reward_model\": {\"ground_truth\": \"1\"}}" >truth.jsonl
    echo "{\"prompt\": \"a\"}" >only.jsonl
    exits 65 verl-data truth.jsonl -m "$bytes" --step 1 --batch-size 1 -o n.dp 2>err
    grep -q "truth.jsonl:1: data_source is missing.*--no-check-scorer" err
    verl-data -q truth.jsonl -m "$bytes" --no-check-scorer -o n.dp
    verl-data -q truth.jsonl -m "$bytes" "reward.scorers=[{name: gsm8k}]" -o n.dp
    verl-data -q only.jsonl -m "$bytes" -o n.dp
    exits 65 verl-data only.jsonl -m "$bytes" --check-scorer -o n.dp 2>err
    exits 65 verl-data --check only.jsonl -m "$bytes" >out 2>err
    grep -q "^data_source *(none): 1 rows, no built-in scorer" out
    grep -q "1 rows without a scorer" err
    exits 65 verl-data -q only.jsonl -m "$bytes" --map "del(.prompt)" -o n.dp 2>err
    exits 65 verl-data -q truth.jsonl -m "$bytes" data.prompt_key=question -o n.dp 2>err
    grep -q -- "--map FILTER makes.*--dataset NAME" err'
ok "rule 30: an unknown data_source is 65 with the known ones, in whichever batch its row is" '
    printf "%s\n" "{\"prompt\": \"a\", \"data_source\": \"openai/gsm8k\"}" "{\"prompt\": \"b\"}" "{\"prompt\": \"c\", \"data_source\": \"gsm8k\"}" >src.jsonl
    exits 65 verl-data src.jsonl -m "$bytes" --step 1 --batch-size 1 --no-shuffle -o n.dp 2>err
    grep -q "src.jsonl:3: data_source \"gsm8k\" has no built-in scorer.*openai/gsm8k.*--no-check-scorer" err
    for o in --no-check-scorer data.check_scorer=false custom_reward_function.path=f.py reward_model.enable=true; do
        verl-data -q src.jsonl -m "$bytes" $o -o g.dp
    done
    exits 65 verl-data src.jsonl -m "$bytes" --no-check-scorer data.reward_fn_key=prompt data.check_scorer=true -o n.dp 2>err
    grep -q "src.jsonl:1: prompt \"a\" has no built-in scorer" err'
ok "--map must give one object" '
    exits 65 verl-data a.jsonl -m "$bytes" --map "., ." -o n.dp 2>err
    grep -q "a.jsonl:1: --map gave several results" err
    exits 65 timeout 20 verl-data a.jsonl -m "$bytes" --map "repeat(.)" -o n.dp 2>err # no end of them
    grep -q "a.jsonl:1: --map gave several results" err
    exits 65 verl-data a.jsonl -m "$bytes" --map .prompt -o n.dp 2>err
    grep -q "a.jsonl:1: the row is a string" err
    exits 64 verl-data a.jsonl -m "$bytes" --map "{" -o n.dp 2>err'
ok "a uid given twice, and a member named like a tensor: 65" '
    printf "%s\n\n" "{\"prompt\": \"a\", \"uid\": \"1\"}" "{\"prompt\": \"b\", \"uid\": 1}" >uid.jsonl
    exits 65 verl-data uid.jsonl -m "$bytes" -o n.dp 2>err
    grep -q "^verl-data: uid.jsonl:3: the same uid \"1\" as uid.jsonl:1: " err
    printf "\n%s" "{\"prompt\": \"a\", \"responses\": 1}" | exits 65 verl-data - -m "$bytes" -o n.dp 2>err
    grep -q "^verl-data: standard input:2: a member is called \"responses\", " err
    for k in "" "uid\\u0000" non_tensor_batch/x; do
        echo "{\"prompt\": \"a\", \"$k\": 1}" >odd.jsonl
        exits 65 verl-data odd.jsonl -m "$bytes" -o n.dp 2>err
        grep -q "no column can be called so" err
    done'
ok "Parquet: read by what the user has; without it 69 with what to install" '
    { printf PAR1; cat a.jsonl; } >p.parquet
    mkdir -p bin none
    printf "#!/bin/sh\nexit 1\n" >none/python3
    printf "#!/bin/sh\necho \"\$2\" >&2; tail -c +5 p.parquet\n" >bin/duckdb # stands for the real one
    cp none/python3 bin; chmod +x bin/* none/*
    PATH=$T/bin:$PATH verl-data p.parquet -m "$bytes" -o p.dp 2>err
    grep -q "copy (from read_parquet(.p.parquet.)) to" err
    verl-data -q a.jsonl -m "$bytes" -o a.dp
    cmp a.dp p.dp
    exits 69 env PATH="$T/none:$PATH" verl-data p.parquet -m "$bytes" -o n.dp 2>err
    grep -q "p.parquet: a Parquet file, and nothing here reads it: install duckdb or python3 with pyarrow" err
    exits 65 verl-data - -m "$bytes" -o n.dp <p.parquet 2>err
    grep -q "its table is at the end" err'
ok "parquet2jsonl says what it needs, and is installed" '
    exits 64 parquet2jsonl 2>err; exits 66 parquet2jsonl none.parquet 2>err; parquet2jsonl --help | grep -q "duckdb -c"
    grep -q "^	install .*parquet2jsonl" "$REPO/Makefile"'
ok "compressed lines are read through their programs; damage is 65" '
    gzip -c a.jsonl >a.gz; zstd -qc a.jsonl >a.zst; xz -c a.jsonl >a.xz
    for f in a.gz a.zst a.xz; do
        verl-data -q $f -m "$bytes" -o z.dp
        cmp a.dp z.dp
        head -c 20 $f >cut
        exits 65 verl-data cut -m "$bytes" -o n.dp 2>err
        grep -q "^verl-data: cut: a .*-compressed file, and .* failed" err
        exits 65 verl-data - -m "$bytes" -o n.dp <$f 2>err
        exits 69 env PATH="$(dirname "$(command -v verl-data)")" verl-data $f -m "$bytes" -o n.dp 2>err
        grep -q "^verl-data: $f: a .*-compressed file, and what reads it is missing: " err
    done'
ok "patterns: sorted by name; one that fits no file is 66; a name that is there is no pattern" '
    mkdir -p parts; head -n 4 ten.jsonl >parts/b.jsonl; tail -n 6 ten.jsonl >parts/c.jsonl; : >parts/a.txt
    verl-data -q ten.jsonl -m "$bytes" -o t.dp
    verl-data -q "parts/*.jsonl" -m "$bytes" -o g.dp; cmp t.dp g.dp
    verl-data -q "parts/{b,c}.jsonl" -m "$bytes" -o g.dp; cmp t.dp g.dp
    verl-data -q -m "$bytes" "data.train_files=[parts/?.jsonl]" -o g.dp; cmp t.dp g.dp
    cp ten.jsonl "parts/x[1].jsonl"; verl-data -q "parts/x[1].jsonl" -m "$bytes" -o g.dp; cmp t.dp g.dp
    exits 66 verl-data "parts/*.json" -m "$bytes" -o n.dp 2>err; grep -q "parts/\*.json: no file has such a name" err
    exits 66 verl-data parts -m "$bytes" -o n.dp 2>err; grep -q "parts: a directory; name its files, for example .parts/\*.jsonl" err'
ok "a directory among the files of a pattern is 66, too" '
    mkdir parts/d.jsonl; exits 66 verl-data "parts/*.jsonl" -m "$bytes" -o n.dp 2>err; rmdir parts/d.jsonl
    grep -q "^verl-data: parts/d.jsonl: a directory; name its files" err
    exits 66 verl-data parts/ -m "$bytes" -o n.dp 2>err; grep -q "for example .parts/\*.jsonl" err'
ok "a named pipe is opened once, so its writer is not lost" '
    mkfifo pipe; cat ten.jsonl >pipe &
    timeout 20 verl-data -q pipe -m "$bytes" -o g.dp; cmp t.dp g.dp'
ok "a file that is one list of rows; a bad row is named by the line it begins in" '
    { echo [; paste -sd, ten.jsonl; echo ]; } >list.json; verl-data -q list.json -m "$bytes" -o g.dp; cmp t.dp g.dp
    printf "[\n{\"prompt\": \"a\"},\n\n{\"p\":\n1}]" >bad.json
    exits 65 verl-data bad.json -m "$bytes" -o n.dp 2>err
    grep -q "bad.json:4: prompt is missing" err'
ok "a template that is no UTF-8, or has a NUL, is refused by the byte, wherever it comes from" '
    printf "{{ 1 }}\0{{ 2 }}" >nul.jinja; printf "\377\376{\0" >utf16.jinja; printf "caf\351" >latin.jinja
    mkdir -p m; cp "$bytes"/*.json m/
    for t in "nul 0x00 at 7" "utf16 0xFF at 0" "latin 0xE9 at 3"; do
        exits 65 verl-data c.jsonl -m "$bytes" --template ${t%% *}.jinja -o n.dp 2>err
        grep -q "^verl-data: ${t%% *}.jinja: found byte ${t#* }, a template is UTF-8" err
        cp ${t%% *}.jinja m/chat_template.jinja
        exits 65 verl-data c.jsonl -m m -o n.dp 2>err
        grep -q "chat_template.jinja: found byte ${t#* }, " err
    done'
ok "rows with tools go through the template named tool_use, of the list or of its file; others do not" '
    printf "%s\n" "{\"prompt\": $msgs}" "{\"prompt\": $msgs, \"tools\": [{\"name\": \"f\"}]}" >tools.jsonl
    rm -f m/chat_template.jinja
    jq ".chat_template = [{name: \"tool_use\", template: \"T{{ tools[0].name }}\"}, {name: \"default\", template: \"D{{ x }}\"}]" "$bytes/tokenizer_config.json" >m/tokenizer_config.json
    verl-data -q tools.jsonl -m m -o t.dp
    equal "$(rows t.dp .prompt_text | tr "\n" " ")" "\"D\" \"Tf\" "
    verl-data -q tools.jsonl -m m --template-kwargs "{\"x\": 1}" -o t.dp
    equal "$(rows t.dp .prompt_text | tr "\n" " ")" "\"D1\" \"Tf\" "
    printf F >m/chat_template.jinja
    verl-data -q tools.jsonl -m m -o t.dp
    equal "$(rows t.dp .prompt_text | tr "\n" " ")" "\"F\" \"F\" "
    mkdir m/additional_chat_templates; printf G >m/additional_chat_templates/tool_use.jinja
    verl-data -q tools.jsonl -m m -o t.dp
    equal "$(rows t.dp .prompt_text | tr "\n" " ")" "\"F\" \"G\" "
    verl-data -q tools.jsonl -m m --template t.jinja -o t.dp
    equal "$(rows t.dp .prompt_text | tr "\n" " ")" "\"hi!\" \"hi!\" "'
ok "tokenizer_config.json may not name what tokenizer.json does not have" '
    rm -rf m/chat_template.jinja m/additional_chat_templates
    while read -r want edit; do
        jq "$edit" "$bytes/tokenizer_config.json" >m/tokenizer_config.json
        exits 65 verl-data ten.jsonl -m m -o n.dp 2>err
        grep -q "^verl-data: m/tokenizer_config.json: $want" err
    done <<"END"
eos_token .eos_token = "<nope>"
bos_token .bos_token = {content: "<nope>"}
added_tokens_decoder .added_tokens_decoder = {"9999": {content: "<nope>"}}
added_tokens_decoder .added_tokens_decoder = {"9999": {content: "<|end|>"}}
chat_template .chat_template = {default: "x"}
chat_template .chat_template = 3
END
    jq ".pad_token = \"<nope>\"" "$bytes/tokenizer_config.json" >m/tokenizer_config.json
    verl-data -q ten.jsonl -m m -o t.dp # nothing is read of padding
    jq ".added_tokens = \"x\"" "$bytes/tokenizer.json" >m/tokenizer.json
    exits 65 verl-data ten.jsonl -m m -o n.dp 2>err
    grep -q "m/tokenizer.json: added_tokens is not a list" err'
ok "a member that is null is called null" '
    echo "{\"prompt\": null}" | exits 65 verl-data - -m "$bytes" -o n.dp 2>err
    grep -q "prompt is null, wanted a string or a list" err'
ok "no rows, no file, no tokenizer" '
    : >empty.jsonl
    exits 65 verl-data empty.jsonl -m "$bytes" -o n.dp
    exits 66 verl-data none.jsonl -m "$bytes" -o n.dp
    exits 66 verl-data a.jsonl -m none -o n.dp
    exits 64 verl-data a.jsonl -o n.dp
    exits 64 verl-data -m "$bytes" -o n.dp'

# ---- the manual's examples ----
ok "the examples of verl-data(1) run" '
    mkdir -p ex/gsm8k
    cd ex
    i=0; while [ $i -lt 200 ]; do
        echo "{\"question\": \"q$i\", \"answer\": \"x #### $i\", \"prompt\": \"q$i\"}"; i=$((i + 1)); done >train.jsonl
    cp train.jsonl gsm8k/; cp train.jsonl qa.jsonl
    echo "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"b\"}" >pairs.jsonl
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}" >talk.jsonl
    sed -n "/^\.Bd -literal/,/^\.Ed/p" "$REPO/man/verl-data.1" |
        sed -e "s/^\.Bd.*//" -e "s/^\.Ed.*//" -e "s/\\\\e\$/\\\\/" -e "s|MODEL|$bytes|" >ex.sh
    [ $(grep -c ^verl-data ex.sh) -ge 9 ]
    sh -e ex.sh
    [ "$(rows prompts.dp . | wc -l)" = 64 ]'

# What all rows say is found out once; every later step takes it from the cache, with the same bytes.
jq -nc 'range(3000) | {prompt: ("p" * (. % 40) + " \(.)"), data_source: "exact", note: ("x" * 330)},
    (select(. == 1234) | {prompt: 5})' >big.jsonl
big() { # big OPTION... -> b.dp
    verl-data big.jsonl -m "$bytes" --batch-size 16 -o b.dp "$@"
}
export VERL_CACHE="$T/cache"
kept() { ls "$VERL_CACHE" | grep -c "^rows-" || :; }
ok "rows that are kept are remembered: the same batch, counts and messages as without a cache" '
    for o in "--truncation filter --max-prompt-length 20 --skip-bad" "--skip-bad" "--skip-bad --validate --all"; do
        VERL_CACHE=off big $o --step 7 2>off.err
        mv b.dp off.dp
        for i in 1 2; do
            big $o --step 7 2>err
            cmp b.dp off.dp
            sed "s/[0-9.]* s.*//; s/, [0-9.]* [a-zA-Z]*B.*//" err >a; sed "s/[0-9.]* s.*//; s/, [0-9.]* [a-zA-Z]*B.*//" off.err >b
            diff a b
        done
    done
    grep -q "1 bad rows skipped, the first: big.jsonl:1236: prompt is a number" off.err
    [ "$(kept)" = 2 ]'
ok "another row, option or template is another entry; a bad row is told of again" '
    exits 65 big --step 7 2>err
    exits 65 big --step 7 2>err
    grep -q "big.jsonl:1236: prompt is a number" err
    [ "$(kept)" = 2 ]
    big --skip-bad --truncation filter --max-prompt-length 21 --step 7 2>err
    [ "$(kept)" = 3 ]
    big --skip-bad --truncation filter --max-prompt-length 21 --step 8 2>err
    [ "$(kept)" = 3 ]
    sed -i "s/ 2999\"/ 2998\"/" big.jsonl
    big --skip-bad --truncation filter --max-prompt-length 21 --step 8 2>err
    [ "$(kept)" = 4 ]
    big --skip-bad --map ".x = now" --step 8 2>err
    [ "$(kept)" = 4 ]'
ok "a cache file that is damaged, cut or no file is as good as none" '
    rm -rf "$VERL_CACHE"
    big --skip-bad --truncation filter --max-prompt-length 20 --step 9 2>err
    mv b.dp want.dp
    f=$(echo "$VERL_CACHE"/rows-*)
    size=$(wc -c <"$f")
    cp "$f" good
    for at in 0 9 40 60 100 200 $((size - 1)); do
        cp good "$f"
        printf "\\377" | dd of="$f" bs=1 seek=$at conv=notrunc 2>/dev/null
        cmp -s good "$f" && continue
        big --skip-bad --truncation filter --max-prompt-length 20 --step 9 2>err
        cmp b.dp want.dp
        cmp good "$f" # made anew
    done
    head -c $((size / 2)) good >"$f"
    big --skip-bad --truncation filter --max-prompt-length 20 --step 9 2>err
    cmp b.dp want.dp
    rm "$f"; mkdir "$f"
    big --skip-bad --truncation filter --max-prompt-length 20 --step 9 2>err
    cmp b.dp want.dp
    rmdir "$f"; mkfifo "$f"
    big --skip-bad --truncation filter --max-prompt-length 20 --step 9 2>err
    cmp b.dp want.dp'
done_testing
