#!/bin/sh
# verl-data --dataset: the filters for common data sets, their words, their answers, their scorers.
. "$(dirname "$0")/lib.sh"
bytes=$REPO/tests/golden/text/bytes

names() {
    verl-data --dataset help | cut -d " " -f 1
}
# row NAME JSON 'jq filter': what the filter of NAME makes of a row
row() {
    printf "%s\n" "$2" | verl-data -q - -m "$bytes" --dataset "$1" -o r.dp && verl-dump -r -f "$3" r.dp
}

ok "help lists the names; each has a line in the manual and a filter that jq compiles" '
    [ $(names | wc -l) -ge 9 ]
    for n in $(names); do
        grep -q "^\.It Cm .*$n" "$REPO/man/verl-data.1" || { echo "$n is not in the manual"; false; }
        echo null | jq "if . then $(verl-data --print-map $n) else . end" >/dev/null
    done'
ok "an unknown name is 64 and lists them" '
    exits 64 verl-data --dataset gsm x.jsonl 2>err; grep -q "gsm is not known; there are gsm8k, gsm8k-sft" err
    exits 64 verl-data --print-map gsm 2>err'

printf '%s\n' '{"question": "How many?", "answer": "so\n#### 1,234"}' >g.jsonl
ok "gsm8k: verl's words, the number without commas, the row in extra_info" "
    row gsm8k \"\$(cat g.jsonl)\" '.raw_prompt[0].content, .reward_model.ground_truth, .data_source, .extra_info.answer' >got
    cat >want <<END
How many? Let's think step by step and output the final answer after \"####\".
1234
openai/gsm8k
so
#### 1,234
END
    diff want got"
ok "the filter that is printed makes the same bytes; --map goes on from --dataset" '
    verl-data -q g.jsonl -m "$bytes" --dataset gsm8k -o a.dp
    verl-data -q g.jsonl -m "$bytes" --map "$(verl-data --print-map gsm8k)" -o b.dp
    cmp a.dp b.dp
    verl-dump --provenance a.dp | jq -e "to_entries | last.value.options[\"--map\"] | contains(\"openai/gsm8k\")" >/dev/null
    verl-data -q g.jsonl -m "$bytes" --dataset gsm8k --map ".data_source = \"exact\"" -o c.dp
    [ "$(verl-dump -f "[.data_source, .reward_model.ground_truth]" c.dp)" = "[\"exact\",\"1234\"]" ]'
ok "a row that a script of verl has made passes as it is" '
    echo "{\"data_source\": \"exact\", \"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], \"reward_model\": {\"ground_truth\": \"7\"}}" >shaped.jsonl
    for n in gsm8k math aime aime2024 dapo; do
        [ "$(row $n "$(cat shaped.jsonl)" "[.data_source, .raw_prompt[0].content, .reward_model.ground_truth] | join(\" \")")" = "exact q 7" ]
    done'
ok "math: the answer, else the last box, braces balanced, by its other spellings too" '
    while read -r want text; do
        got=$(row math "{\"problem\": \"p\", \"solution\": \"$text\"}" .reward_model.ground_truth)
        [ "$got" = "$want" ] || { echo "$text: $got, not $want"; false; }
    done <<"END"
\frac{1}{2} a $\\boxed{3}$ then $\\boxed{\\frac{1}{2}}$.
5 $\\boxed 5$ ok
{x} \\fbox{{x}}
END
    [ "$(row math "{\"problem\": \"p\", \"solution\": \"\\\\boxed{1}\", \"answer\": \"1.50\"}" "[.data_source, .reward_model.ground_truth] | join(\" \")")" = "HuggingFaceH4/MATH-500 1.50" ]
    exits 65 verl-data - -m "$bytes" --dataset math -o n.dp 2>err <<END
{"problem": "p", "solution": "no box"}
END
    grep -q "standard input:1: .*no .*boxed" err'
ok "aime: DAPO's words, the year, no leading zeros" "
    row aime '{\"problem\": \"P\", \"answer\": \"025\", \"url\": \"x/2024_AIME_I\", \"id\": 3}' '.raw_prompt[0].content, .data_source, .reward_model.ground_truth, .extra_info.id' >got
    cat >want <<'END'
Solve the following math problem step by step. The last line of your response should be of the form Answer: \$Answer (without quotes) where \$Answer is the answer to the problem.

P

Remember to put your answer on its own line after \"Answer:\".
aime2024
25
3
END
    diff want got
    [ \"\$(row aime '{\"Problem\": \"P\", \"Answer\": 0, \"ID\": \"2024-I-1\"}' '.data_source + .reward_model.ground_truth')\" = aime20240 ]
    [ \"\$(row aime2025 '{\"question\": \"P\", \"answer\": 70}' '.data_source + .reward_model.ground_truth')\" = aime202570 ]"
ok "dapo: rows of the processed form, and bare problems in its words" '
    [ "$(row dapo "{\"prompt\": \"P\", \"solution\": \"34\", \"source_prompt\": [{\"role\": \"user\", \"content\": \"words\"}], \"data_source\": \"math_dapo\", \"reward_model\": {\"ground_truth\": \"34\"}}" "[.raw_prompt[0].content, .reward_model.ground_truth] | join(\" \")")" = "words 34" ]
    row dapo "{\"problem\": \"P\", \"answer\": \"34\"}" .raw_prompt[0].content | grep -q "^Remember to put your answer"'
ok "rows of another set are refused by each filter, which is named" '
    for n in math aime aime2024 aime2025 dapo alpaca sharegpt openai-messages math-sft; do
        exits 65 verl-data -q g.jsonl -m "$bytes" --dataset $n -o n.dp 2>err
        grep -q "g.jsonl:1: no row of --dataset $n: " err || { echo $n; cat err; false; }
    done
    for n in ultrafeedback hh-rlhf; do
        exits 65 verl-data -q g.jsonl -m "$bytes" --preference --dataset $n -o n.dp 2>err
        grep -q "g.jsonl:1: no row of --dataset $n: .*nothing to use in chosen; the row has answer, question" err
    done'
ok "a row without the question or the answer is refused with what it has, never a prompt without its question" '
    for n in $(names); do
        case $n in *-sft | openai-messages | sharegpt | alpaca) kind=--sft ;; ultrafeedback | hh-rlhf) kind=--preference ;; *) kind= ;; esac
        while read -r line; do
            echo "$line" >bad.jsonl
            rm -f n.dp
            exits 65 verl-data bad.jsonl -m "$bytes" --dataset $n $kind -o n.dp 2>err || { echo "$n: $line"; cat err; false; }
            grep -q "^verl-data: bad.jsonl:1: " err
            [ $(wc -l <err) = 1 ]
            [ ! -e n.dp ]
        done <<"END"
{}
{"answer": "so #### 3", "solution": "\\boxed{3}", "output": "3"}
{"question": null, "problem": null, "prompt": null, "instruction": null, "answer": "so #### 3", "solution": "\\boxed{3}", "output": "3"}
{"question": "", "problem": "", "prompt": "", "instruction": "", "answer": "so #### 3", "solution": "\\boxed{3}", "output": "3"}
{"question": ["q"], "problem": 5, "prompt": {}, "instruction": true, "answer": "so #### 3", "solution": "\\boxed{3}", "output": "3"}
{"question": "q", "problem": "p", "prompt": "p", "instruction": "i"}
{"question": "q", "problem": "p", "prompt": "p", "instruction": "i", "answer": null, "solution": null, "output": null}
{"conversations": [{"from": "human", "value": null}, {"from": "gpt", "value": "x"}], "messages": []}
END
    done
    echo "{\"problem\": \"p\", \"answer\": \"#### 3\"}" >bad.jsonl
    exits 65 verl-data bad.jsonl -m "$bytes" --dataset gsm8k -o n.dp 2>err
    grep -q "nothing to use in question; the row has answer, problem" err'
ok "the sources that the filters write have a scorer" '
    for n in gsm8k math aime aime2025 dapo; do
        echo "{\"question\": \"q\", \"problem\": \"q\", \"answer\": \"#### 1\"}" | verl-data -q - -m "$bytes" --dataset $n -o s.dp
    done'
ok "gsm8k-sft, math-sft: the worked answer is trained on" '
    verl-data -q g.jsonl -m "$bytes" --dataset gsm8k-sft --sft -o s.dp
    verl-dump -r -f .response_text s.dp | tail -n 1 | grep -qx "#### 1,234<|end|>"
    echo "{\"problem\": \"p\", \"solution\": \"s\"}" | verl-data -q - -m "$bytes" --dataset math-sft --sft -o s.dp'
ok "openai-messages: weight 0 is context, arguments become objects, null content is empty" '
    cat >o.jsonl <<END
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}
END
    verl-data -q o.jsonl -m "$bytes" --dataset openai-messages --sft -o o.dp
    [ "$(verl-dump -k response_text o.dp)" = "{\"response_text\":\"d<|end|>\"}" ]
    echo "{% for m in messages %}{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments|tojson }}{% endif %}{% endfor %}" >tool.jinja
    printf "%s\n" "{\"messages\": [{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}}]}]}" |
        verl-data -q - -m "$bytes" --dataset openai-messages --sft --template tool.jinja -o o.dp
    [ "$(verl-dump -r -f .response_text o.dp)" = "{\"x\": 1}" ] || { verl-dump o.dp; false; }'

ok "sharegpt, alpaca: messages to fine-tune on" '
    train() { printf "%s\n" "$2" | verl-data -q - -m "$bytes" --dataset $1 --sft -o t.dp && verl-dump -f "[.raw_prompt, .response_text]" t.dp; }
    [ "$(train sharegpt "{\"system\": \"s\", \"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", \"value\": \"b\"}]}")" = \
        "[[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"a\"}],\"b<|end|>\"]" ]
    exits 65 train sharegpt "{\"conversations\": [{\"from\": \"bing\", \"value\": \"a\"}]}" 2>err
    grep -q "no such role: bing" err
    [ "$(train alpaca "{\"instruction\": \"do\", \"input\": \"x\", \"output\": \"b\"}")" = "[[{\"role\":\"user\",\"content\":\"do\\n\\nx\"}],\"b<|end|>\"]" ]
    [ "$(train alpaca "{\"instruction\": \"do\", \"input\": \"\", \"output\": \"b\"}")" = "[[{\"role\":\"user\",\"content\":\"do\"}],\"b<|end|>\"]" ]'
ok "ultrafeedback, hh-rlhf: preference pairs" '
    pairs() { printf "%s\n" "$2" | verl-data -q - -m "$bytes" --dataset $1 --preference -o t.dp && verl-dump -f "[.raw_prompt[-1].content, .response_text]" t.dp | tr -d "\n"; }
    u="{\"role\": \"user\", \"content\": \"q\"}"
    [ "$(pairs ultrafeedback "{\"prompt\": \"q\", \"chosen\": [$u, {\"role\": \"assistant\", \"content\": \"a\"}], \"rejected\": [$u, {\"role\": \"assistant\", \"content\": \"b\"}], \"score_chosen\": 8.5}")" = \
        "[\"q\",\"a<|end|>\"][\"q\",\"b<|end|>\"]" ]
    h="\\n\\nHuman: q\\n\\nAssistant: x\\n\\nHuman: q2\\n\\nlast\\n\\nAssistant: "
    [ "$(pairs hh-rlhf "{\"chosen\": \"${h}a\", \"rejected\": \"${h}b\"}")" = "[\"q2\\n\\nlast\",\"a<|end|>\"][\"q2\\n\\nlast\",\"b<|end|>\"]" ] ||
        { verl-dump t.dp; false; }'

if [ -n "$SHARED" ]; then
    d=$SHARED/data/datasets
    while read -r n file name map; do
        ok "$file: all $n rows by --dataset $name, the same bytes by its --map; small ones also the same batch by one's own" '
            verl-data -q "$d/$file" -m "$bytes" --dataset $name -o a.dp
            [ "$(verl-dump --meta a.dp | jq -c "[.data_counts.rows, .data_counts.bad]")" = "[$n,0]" ]
            verl-data -q "$d/$file" -m "$bytes" --map "$(verl-data --print-map $name)" -o b.dp
            cmp a.dp b.dp
            [ $n -gt 2000 ] || { verl-data -q "$d/$file" -m "$bytes" --map "$map" -o c.dp; verl-dump diff a.dp c.dp; }'
    done <<'END'
7473 gsm8k/train.jsonl gsm8k .
1319 gsm8k/test.jsonl gsm8k {data_source: "openai/gsm8k", prompt: [{role: "user", content: "\(.question) Let's think step by step and output the final answer after \"####\"."}], ability: "math", reward_model: {style: "rule", ground_truth: (.answer | split("#### ")[1] | gsub(","; ""))}, extra_info: .}
500 math500/test.jsonl math {data_source: "HuggingFaceH4/MATH-500", prompt: [{role: "user", content: "\(.problem) Let's think step by step and output the final answer within \\boxed{}."}], ability: "math", reward_model: {style: "rule", ground_truth: .answer}, extra_info: {solution, subject, level, unique_id}}
30 aime/aime2024.jsonl aime2024 {data_source: "aime2024", prompt: [{role: "user", content: "Solve the following math problem step by step. The last line of your response should be of the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n\(.problem)\n\nRemember to put your answer on its own line after \"Answer:\"."}], ability: "math", reward_model: {style: "rule", ground_truth: (.answer | tonumber | tostring)}, extra_info: {id, solution, url}}
30 aime/aime2025.jsonl aime2025 {data_source: "aime2025", prompt: [{role: "user", content: "Solve the following math problem step by step. The last line of your response should be of the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n\(.problem)\n\nRemember to put your answer on its own line after \"Answer:\"."}], ability: "math", reward_model: {style: "rule", ground_truth: (.answer | tonumber | tostring)}, extra_info: {id, solution}}
END
    ok "math: the boxed answers of MATH-500 are its answers" '
        jq -c "del(.answer)" "$d/math500/test.jsonl" | verl-data -q - -m "$bytes" --dataset math -o m.dp
        verl-dump -r -f .reward_model.ground_truth m.dp >got
        jq -r .answer "$d/math500/test.jsonl" | diff - got'
    while read -r file name answer; do
        ok "$file: its own answers score 1 under the scorer that --dataset $name chooses" '
            verl-data -q "$d/$file" -m "$bytes" --dataset $name --sft --map ".response = $answer" -o s.dp
            verl-reward -q -i s.dp | verl-dump -f .score - | sort | uniq -c >got
            [ "$(wc -l <got)" = 1 ] && grep -q " 1$" got || { cat got; false; }'
    done <<'END'
gsm8k/test.jsonl gsm8k .extra_info.answer
math500/test.jsonl math .extra_info.solution
aime/aime2024.jsonl aime "so\nAnswer: \(.reward_model.ground_truth)"
aime/aime2025.jsonl aime "so\nAnswer: \(.reward_model.ground_truth)"
END
else
    skip "no shared data sets"
fi
done_testing
