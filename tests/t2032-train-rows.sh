#!/bin/sh
# verl-data --sft and --preference: which tokens are trained on, pairs, limits of prompt and response.
. "$(dirname "$0")/lib.sh"
bytes=$REPO/tests/golden/text/bytes # <|user|> 275, <|bot|> 278, <|end|> 274; letters are their codes

rows() {
    verl-dump -f "$2" "$1"
}
data() {
    verl-data -q -m "$bytes" -o o.dp "$@"
}
u='{"role": "user", "content": "hi"}'
a='{"role": "assistant", "content": "ac"}'
b='{"role": "assistant", "content": "e"}'
v='{"role": "user", "content": "k"}'

# ---- supervised ----
ok "a prompt and a response: the end token is in the loss, masks and positions as a rollout has them" '
    printf "%s\n" "{\"prompt\": \"hello\", \"response\": \"ac\"}" "{\"prompt\": \"a c\", \"response\": \"a\"}" >sft.jsonl
    data sft.jsonl --sft
    verl-dump --check o.dp
    rows o.dp "[.prompts, .responses, .input_ids, .attention_mask, .position_ids, .response_mask]" >got
    printf "%s\n" "[[274,274,259],[97,99,274],[274,274,259,97,99,274],[0,0,1,1,1,1],[0,0,0,1,2,3],[1,1,1]]" \
        "[[97,32,99],[97,274,274],[97,32,99,97,274,274],[1,1,1,1,1,0],[0,1,2,3,4,4],[1,1,0]]" >want
    diff want got
    data sft.jsonl --sft --no-eos
    [ "$(rows o.dp .response_mask | tail -n 1)" = "[1,0]" ]'
ok "a conversation: loss on the assistant's turns and their end tokens only" '
    echo "{\"messages\": [$u, $a, $v, $b]}" >talk.jsonl
    data talk.jsonl --sft
    rows o.dp "[.prompts, .responses, .response_mask]" >got
    echo "[[275,104,105,274,278],[97,99,274,275,107,274,278,101,274],[1,1,1,0,0,0,0,1,1]]" | diff - got
    [ "$(rows o.dp "[.raw_prompt, has(\"messages\")]")" = "[[{\"role\":\"user\",\"content\":\"hi\"}],false]" ]'
ok "--mask last: what comes before the last turn is its prompt" '
    data talk.jsonl --sft --mask last
    rows o.dp "[.prompts, .responses, .response_mask]" >got
    echo "[[275,104,105,274,278,97,99,274,275,107,274,278],[101,274],[1,1]]" | diff - got'
ok "turns after the last assistant message are left out; a system message is context" '
    echo "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, $u, $a, $v]}" | data --sft -
    rows o.dp "[.prompts, .responses, .response_mask]" >got
    echo "[[115,10,275,104,105,274,278],[97,99,274],[1,1,1]]" | diff - got
    echo "{\"messages\": [$u, $a]}" | data --sft - --system s
    rows o.dp "[.prompts, .responses, .response_mask]" | diff - got'
ok "a list as the response goes on with the prompt, the same tokens as one conversation" '
    data talk.jsonl --sft; cp o.dp one.dp
    echo "{\"prompt\": [$u], \"response\": [$a, $v, $b]}" | data --sft -
    verl-dump -k prompts,responses,response_mask,raw_prompt one.dp >x
    verl-dump -k prompts,responses,response_mask,raw_prompt o.dp | diff x -
    echo "{\"prompt\": \"hi\", \"response\": [$a]}" >s.jsonl
    exits 65 data s.jsonl --sft 2>err
    grep -q "s.jsonl:1: prompt is a string, wanted a list of messages.*--chat" err
    data s.jsonl --sft --chat'
ok "keys: messages_key, tools_key, enable_thinking by row, paths inside members" '
    echo "{\"m\": [$u, $a], \"prompt\": \"x\", \"response\": \"y\"}" >k.jsonl
    data k.jsonl --sft data.multiturn.enable=true data.multiturn.messages_key=m
    [ "$(rows o.dp .responses)" = "[97,99,274]" ]
    data k.jsonl --sft data.prompt_key=none data.messages_key=m
    [ "$(rows o.dp .responses)" = "[97,99,274]" ]
    echo "{\"x\": {\"q\": \"hello\"}, \"y\": {\"t\": {\"a\": \"ac\"}}}" |
        data --sft - data.prompt_key=x "data.prompt_dict_keys=[q]" data.response_key=y "data.response_dict_keys=[t,a]"
    [ "$(rows o.dp "[.prompts, .responses]")" = "[[259],[97,99,274]]" ]
    cat >think.jinja <<END
{% for m in messages %}{{ m.role[0] + m.content + ";" }}{% endfor %}{% if enable_thinking is defined %}{{ enable_thinking|string + (tools|length|string if tools is not none else tools|string) }}{% endif %}
END
    printf "%s\n" "{\"prompt\": [$u], \"enable_thinking\": true, \"tools\": [1, 2]}" "{\"prompt\": [$u], \"enable_thinking\": false, \"tools\": []}" \
        "{\"prompt\": [$u]}" >t.jsonl
    data t.jsonl --template think.jinja
    verl-dump -r -f .prompt_text o.dp >got
    printf "%s\n" "uhi;True2" "uhi;False0" "uhi;" | diff - got'
ok "a template that writes earlier turns otherwise is refused with the row; --mask last takes it" '
    cat >drop.jinja <<END
{% for m in messages %}{% if m.role == "user" %}{{ "U" + m.content }}{% elif loop.last %}{{ "A(think)" + m.content }}{% else %}{{ "A" + m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}A{% endif %}
END
    exits 65 data talk.jsonl --sft --template drop.jinja 2>err
    grep -q "talk.jsonl:1: the chat template does not write message 3 .*where that has \"(think)ac\" it has \"acUkA\"" err
    grep -q -e "--mask last" err
    [ $(wc -l <err) = 1 ]
    data talk.jsonl --sft --mask last --template drop.jinja
    [ "$(verl-dump -k response_text o.dp)" = "{\"response_text\":\"(think)e\"}" ] || { verl-dump o.dp; false; }'
ok "data.ignore_input_ids_mismatch: such a template gives each turn as it is when it is the last; counted" '
    verl-data talk.jsonl -m "$bytes" --sft --template drop.jinja data.ignore_input_ids_mismatch=true -o o.dp 2>err
    grep -q "writes earlier turns of 1 rows otherwise" err
    [ "$(verl-dump -k prompt_text,response_text o.dp)" = "{\"prompt_text\":\"UhiA\",\"response_text\":\"(think)acUkA(think)e\"}" ]
    [ "$(rows o.dp "[.responses, .response_mask] | transpose | map(select(.[1] == 0) | .[0]) | implode")" = "\"UkA\"" ]
    printf "%s" "{% for m in messages %}{% if loop.last %}S{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}a{% endif %}" >odd.jinja
    exits 65 data talk.jsonl --sft --template odd.jinja data.ignore_input_ids_mismatch=true 2>err
    [ $(wc -l <err) = 1 ]'
ok "a system prompt that a template adds by itself is not repeated in between" '
    printf "%s" "{% if messages[0].role != \"system\" %}SYS;{% endif %}" >sys.jinja; cat drop.jinja >>sys.jinja
    data talk.jsonl --sft --template sys.jinja data.ignore_input_ids_mismatch=true
    [ "$(verl-dump -k prompt_text,response_text o.dp)" = "{\"prompt_text\":\"SYS;UhiA\",\"response_text\":\"(think)acUkA(think)e\"}" ]'
ok "a generation prompt that the turn does not begin with is refused, with both texts" '
    printf "%s" "{% for m in messages %}{{ m.role[0] + m.content }}{% endfor %}{% if add_generation_prompt %}a<x>{% endif %}" >g.jinja
    exits 65 data talk.jsonl --sft --template g.jinja 2>err
    grep -q "where that has \"<x>\" it has \"ac\"" err'
ok "a template that always writes a generation prompt is refused; one that has none is not" '
    printf "%s" "{% for m in messages %}{{ m.role[0] + m.content + \"<x>\" }}{% endfor %}a" >open.jinja
    for o in data.ignore_input_ids_mismatch=true --mask=last; do
        echo "{\"messages\": [$u, $a]}" | exits 65 data - --sft --template open.jinja $o 2>err
        grep -q "input:1: the chat template writes a generation prompt after every conversation" err
    done
    echo "{\"prompt\": [$u]}" | verl-data -q - -m "$bytes" --template open.jinja -o p.dp # right for a rollout
    for s in "{{ m.content }}\n" "{{ m.role[0] + m.content }}<x>" "[{{ m.content }}]"; do
        printf "%s" "{% for m in messages %}$s{% endfor %}" >shut.jinja
        echo "{\"messages\": [$u, $a]}" | data - --sft --template shut.jinja
    done'
ok "rows that are refused because tokens straddle are not said to be cut" '
    printf "%s" "{% for m in messages %}{{ m.content }}{% endfor %}" >cat.jinja
    { echo "{\"messages\": [{\"role\": \"user\", \"content\": \"hel\"}, {\"role\": \"assistant\", \"content\": \"lo\"}]}"
      echo "{\"messages\": [$u, $a]}"; } >st.jsonl
    verl-data st.jsonl -m "$bytes" --sft --template cat.jinja --skip-bad -o o.dp 2>err
    grep -q "1 bad rows skipped" err
    exits 1 grep "rows tokens straddle" err'
ok "an empty prompt leaves all of data.max_length to the response" '
    echo "{\"prompt\": \"\", \"response\": \"vwxyz\"}" | verl-data -q - -m "$bytes" --sft --max-length 3 --truncation left -o o.dp
    [ "$(verl-dump -r -f .response_text o.dp)" = vwx ]'
ok "tokens that straddle the end of a turn: 65, or cut there and counted" '
    printf "%s" "{% for m in messages %}{{ m.content }}{% endfor %}" >cat.jinja
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"hel\"}, {\"role\": \"assistant\", \"content\": \"lo\"}]}" >st.jsonl
    exits 65 data st.jsonl --sft --template cat.jinja 2>err
    grep -q "st.jsonl:1: .*straddle the place where the assistant.s turn 1 begins.*ignore_input_ids_mismatch" err
    verl-data st.jsonl -m "$bytes" --sft --template cat.jinja data.ignore_input_ids_mismatch=true -o o.dp 2>err
    grep -q "in 1 rows tokens straddle" err
    [ "$(verl-dump -k prompt_text,response_text o.dp)" = "{\"prompt_text\":\"hel\",\"response_text\":\"lo\"}" ]'
ok "conversations that cannot be trained on" '
    echo "" >nothing.jinja; echo "{% if not add_generation_prompt %}{{ messages[-1].content }}{% endif %}" >late.jinja
    for t in nothing late; do
        data talk.jsonl --sft --template $t.jinja data.ignore_input_ids_mismatch=true 2>err || [ $? = 65 ]
        echo "{\"messages\": [$u, $a]}" | data --sft - --template $t.jinja 2>err
        grep -q "no token to train on" err || [ $t = late ]
    done
    echo "{\"messages\": [$u]}" | exits 65 data --sft - 2>err; grep -q "no assistant message" err
    echo "{\"messages\": [$a]}" | exits 65 data --sft - 2>err; grep -q "first message is the assistant" err
    echo "{\"messages\": [{\"content\": 1}]}" | exits 65 data --sft - 2>err; grep -q "messages\[0\].role is missing, wanted a string" err
    echo "{\"prompt\": \"x\"}" | exits 65 data --sft - 2>err; grep -q "response is missing" err
    exits 64 data talk.jsonl --mask last 2>err; grep -q "without --sft" err
    exits 64 data talk.jsonl --sft --preference 2>err
    echo "{\"prompt\": \"x\"}" | data - data.max_length=9 2>err; grep -q "data.max_length is .* no effect here" err'
ok "data.max_length is the limit of both together, by every policy; never passed" '
    echo "{\"prompt\": \"acegik\", \"response\": \"mo\"}" >l.jsonl # 6 + 2 + end token
    exits 65 data l.jsonl --sft data.max_length=8 2>err
    grep -q "l.jsonl:1: prompt and response of 9 tokens, the limit is 8: raise data.max_length to 9" err
    while read -r policy max want; do
        data l.jsonl --sft data.max_length=$max --truncation $policy
        [ "$(rows o.dp .input_ids)" = "$want" ] || { rows o.dp .input_ids; echo "$policy $max"; false; }
    done <<END
left 5 [105,107,109,111,274]
left 3 [107,109,111]
middle 6 [97,105,107,109,111,274]
right 8 [97,99,101,103,105,107,109,111]
END
    exits 65 data l.jsonl --sft data.max_length=6 --truncation right 2>err
    grep -q "leaves no room for a response" err
    exits 65 data l.jsonl --sft data.max_length=6 --truncation filter 2>err
    grep -q "no rows are left (1 read, 1 filtered" err'
ok "a cut response keeps its mask; rows left without a trained token are counted" '
    data talk.jsonl --sft data.max_response_length=8 --truncation right
    [ "$(rows o.dp .response_mask)" = "[1,1,1,0,0,0,0,1]" ]
    echo "{\"prompt\": \"a\", \"response\": \"\"}" | verl-data - -m "$bytes" --sft --no-eos -o o.dp 2>err
    grep -q "1 rows have no token to train on" err'

if [ -n "$SHARED" ]; then
    ok "Qwen3: its template drops earlier reasoning, so it is refused, or each turn keeps its own" '
        q=$SHARED/data/chat_templates/qwen3.jinja
        cat >q.jsonl <<END
{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "<think>\\nr1\\n</think>\\n\\nac"}, {"role": "user", "content": "k"}, {"role": "assistant", "content": "<think>\\nr2\\n</think>\\n\\ne"}]}
END
        exits 65 data q.jsonl --sft --template "$q" 2>err
        grep -q "does not write message 3" err
        data q.jsonl --sft --template "$q" data.ignore_input_ids_mismatch=true
        [ "$(verl-dump -k response_text o.dp | jq -r .response_text | grep -c "^<think>$")" = 2 ]
        data q.jsonl --sft --template "$q" --mask last
        [ "$(verl-dump -k response_text o.dp)" = "{\"response_text\":\"<think>\\nr2\\n</think>\\n\\ne<|im_end|>\\n\"}" ]'
else
    skip "no shared chat templates"
fi

# ---- pairs ----
pair='{"prompt": "hello", "chosen": "ac", "rejected": "egi", "z": 1, "uid": "p"}'
ok "--preference: two adjacent rows a pair, chosen first, with one uid" '
    echo "$pair" | data --preference -
    verl-dump --check o.dp
    rows o.dp "[.uid, .sample, .preference, .prompts, .responses, .response_mask, .position_ids, .raw_prompt, .z]" >got
    printf "%s\n" "[\"p\",0,1,[259],[97,99,274,274],[1,1,1,0],[0,1,2,3,3],\"hello\",1]" \
        "[\"p\",1,0,[259],[101,103,105,274],[1,1,1,1],[0,1,2,3,4],\"hello\",1]" | diff - got
    [ "$(verl-dump --schema o.dp | jq -c ".columns[] | select(.name == \"preference\") | [.dtype, .shape]")" = "[\"I64\",[2]]" ]'
ok "lists of messages, with the prompt apart or at the start of both: the same bytes" '
    echo "{\"prompt\": [$u], \"chosen\": [$a], \"rejected\": [$b]}" | data --preference -
    cp o.dp apart.dp
    echo "{\"chosen\": [$u, $a], \"rejected\": [$u, $b]}" | data --preference -
    cmp apart.dp o.dp
    echo "{\"prompt\": \"hi\", \"chosen\": [$a], \"rejected\": [$b]}" | data --preference --chat -
    verl-dump -k prompts,responses,response_mask,raw_prompt apart.dp >x
    verl-dump -k prompts,responses,response_mask,raw_prompt o.dp | diff x -
    [ "$(rows o.dp .responses | tr "\n" " ")" = "[97,99,274] [101,274,274] " ]'
ok "strings that hold the prompt: it is what they begin with alike, cut at a character and before a space" '
    echo "{\"chosen\": \"hello ac\", \"rejected\": \"hello ag\"}" | data --preference -
    [ "$(rows o.dp "[.raw_prompt, .responses]" | head -n 1)" = "[\"hello a\",[99,274]]" ]
    echo "{\"chosen\": \"hello ac\", \"rejected\": \"hello e\"}" | data --preference -
    [ "$(rows o.dp "[.raw_prompt, .responses]" | head -n 1)" = "[\"hello\",[32,97,99,274]]" ]
    echo "{\"chosen\": \"hé\", \"rejected\": \"hè\"}" | data --preference -
    [ "$(rows o.dp .raw_prompt | head -n 1)" = "\"h\"" ]'
ok "a batch never splits a pair: rows of a step are pairs" '
    for i in 0 1 2 3 4; do echo "{\"prompt\": \"p$i\", \"chosen\": \"a\", \"rejected\": \"c\"}"; done >five.jsonl
    data five.jsonl --preference --step 2 --batch-size 2
    rows o.dp "[.uid, .sample]" >got
    [ $(wc -l <got) = 4 ]
    [ $(jq -r ".[0]" got | uniq -c | grep -c "^ *2 ") = 2 ]
    [ "$(verl-dump --meta o.dp | jq -c "[.data_counts.rows, .data_counts.left_over]")" = "[2,1]" ]'
ok "the length policy takes a pair as a whole" '
    printf "%s\n" "$pair" "{\"prompt\": \"a\", \"chosen\": \"c\", \"rejected\": \"e\"}" >two.jsonl
    exits 65 data two.jsonl --preference data.max_response_length=3 2>err
    grep -q "two.jsonl:1: rejected of 4 tokens, the limit is 3" err
    data two.jsonl --preference data.max_response_length=3 --truncation filter
    [ "$(rows o.dp ".uid" | tr "\n" " ")" = "\"0-1\" \"0-1\" " ]
    data two.jsonl --preference data.max_length=4 --truncation left
    [ "$(rows o.dp .responses | sed -n 2p)" = "[101,103,105]" ]'
ok "pairs that are none" '
    echo "{\"prompt\": \"x\", \"chosen\": \"a\", \"rejected\": \"a\"}" | verl-data - -m "$bytes" --preference -o o.dp 2>err
    grep -q "1 pairs have the same tokens" err
    echo "{\"prompt\": \"x\", \"chosen\": \"a\"}" | exits 65 data --preference - 2>err; grep -q "rejected is missing" err
    echo "{\"chosen\": \"a\", \"rejected\": \"b\"}" | exits 65 data --preference - 2>err; grep -q "do not begin alike" err
    echo "{\"chosen\": [$u, $a], \"rejected\": \"b\"}" | exits 65 data --preference - 2>err; grep -q "rejected is a string, wanted the same as chosen" err
    echo "{\"chosen\": [$u], \"rejected\": [$u, $b]}" | exits 65 data --preference - 2>err; grep -q "chosen does not go on with an assistant" err'
done_testing
