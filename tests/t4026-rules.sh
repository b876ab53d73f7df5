#!/bin/sh
# verl-reward by several rules, by data sources of the user's, by prime's manager. Numbers in titles
# are those of the rules that the test holds.
. "$(dirname "$0")/lib.sh"
. "$REPO/tests/chars.sh"

char_tokenizer '["</s>"]' "$(jq -nc "$chars + [\"</s>\"]")" >tokenizer.json
# batch FILE: rows {uid, sample, source, truth, response, finish} from standard input.
batch() {
    jq -c '
        def ids: [explode[] | if . == 10 then 95 else . - 32 end];
        def right($n): . + [range($n - length) | 0];
        (.response | ids | if length > 0 then . + [96] else . end) as $r |
        { uid, sample, data_source: (.source // "openai/gsm8k"),
          reward_model: (if has("truth") then {ground_truth: .truth} else {} end),
          finish_reason: (.finish // "stop"), prompts: [1], responses: ($r | right(70)),
          attention_mask: ([1] + ($r | map(1) | right(70))) }' | verl-batch from-json -q -o "$1"
}
score() { verl-reward -q -m . "$@"; }
see() { verl-dump -q --no-text "$1" | jq -r "$2" | tr '\n' ' ' | sed 's/ $//'; }
meta() { verl-dump -q --schema "$1" | jq -c ".meta_info$2"; }

batch in.dp <<'EOF'
{"uid":"0-0","sample":0,"truth":"72","response":"<think>a</think><answer>#### 72</answer>"}
{"uid":"0-0","sample":1,"truth":"72","response":"so #### 72","finish":"length"}
{"uid":"0-1","sample":0,"truth":"5","response":"<think>a</think><answer>#### 7</answer>"}
{"uid":"0-1","sample":1,"truth":"5","response":""}
{"uid":"0-2","sample":0,"source":"numina_olympiads","truth":"2x+2","response":"so \\boxed{2(x+1)}"}
{"uid":"0-2","sample":1,"source":"numina_olympiads","truth":"50","response":"\\boxed{0.5}"}
EOF

ok 'several rules: a weighted sum, a column each, the first one is acc (59)' '
    score --rule source --rule tags:0.25 --rule length:-0.5,max=11,as=long -i in.dp -o o.dp
    [ "$(see o.dp .score_source)" = "1 1 0 null 1 1" ]
    [ "$(see o.dp .score_tags)" = "1 0 1 null 0 0" ]
    [ "$(see o.dp ".score_long|if . == null then . else . * 11 | round end")" = "0 11 0 null 4 10" ]
    [ "$(see o.dp .acc)" = "1 1 0 NaN 1 1" ]
    [ "$(see o.dp .score)" = "1.25 0.5 0.25 NaN 0.818181813 0.545454562" ]
    [ "$(meta o.dp .reward_extra_keys)" = "[\"acc\",\"score_source\",\"score_tags\",\"score_long\",\"source_pred\",\"source_format\",\"source_undecided\"]" ]'
ok 'metrics of each overall and per source, with invalid and truncated rows (59)' '
    [ "$(meta o.dp ".metrics[\"reward/score_source/mean\"]")" = 0.8 ]
    [ "$(meta o.dp ".metrics[\"reward/openai/gsm8k/score_tags/mean\"]")" = 0.6666666666666666 ]
    [ "$(meta o.dp ".metrics[\"reward/numina_olympiads/score_tags/mean\"]")" = 0 ]
    [ "$(meta o.dp ".metrics[\"reward/numina_olympiads/source_undecided/mean\"]")" = 0 ]
    [ "$(meta o.dp ".metrics[\"reward/openai/gsm8k/invalid\"]")" = 1 ]
    [ "$(meta o.dp ".metrics[\"reward/openai/gsm8k/truncated\"]")" = 1 ]'
ok 'the same from a configuration' '
    cat >run.yaml <<"END"
reward:
  scorers:
    - {name: source, weight: 1}
    - {name: tags, weight: 0.25, tags: [think, answer]}
    - length:-0.5,max=11,as=long
END
    score -c run.yaml -i in.dp -o c.dp
    equal "$(see c.dp ".score, .score_long|tostring")" "$(see o.dp ".score, .score_long|tostring")"'
ok 'the columns are components of gdpo' '
    verl-batch select -q -k uid,sample,prompts,responses,attention_mask,score,token_level_scores,reward_error,score_source,score_tags -i o.dp -o part.dp
    verl-advantage -q -e gdpo "algorithm.gdpo_reward_keys=[score_source,score_tags]" -i part.dp -o adv.dp
    [ "$(meta adv.dp ".metrics[\"gdpo/score_tags/mean\"]")" = 0.4 ]'
ok 'one rule alone has its column, and its members keep their names' '
    score --rule prime_math -i in.dp -o p.dp
    see p.dp .pred | grep -q "2(x+1) 0.5$"
    [ "$(meta p.dp .reward_extra_keys)" = "[\"acc\",\"score_prime_math\",\"pred\",\"format\",\"undecided\"]" ]'
ok 'data sources of the user, by pattern and with arguments' '
    { echo "{\"uid\":\"0-0\",\"sample\":0,\"source\":\"my/a\",\"truth\":\"1/2\",\"response\":\"it is 0.5\"}"
      echo "{\"uid\":\"0-1\",\"sample\":0,\"source\":\"mine\",\"truth\":\"7\",\"response\":\"it is 7\"}"; } | batch d.dp
    exits 65 score -i d.dp -o no.dp 2>err
    grep -q "no scorer for data_source .my/a.; known are exact, openai/gsm8k, .*reward.dispatch.NAME=SCORER" err
    cat >dispatch.yaml <<"END"
reward:
  dispatch:
    my/*: math_verify
    mine: {name: gsm8k, method: flexible}
END
    score -c dispatch.yaml -i d.dp -o d1.dp
    [ "$(see d1.dp .score)" = "1 1" ]
    score "reward.dispatch={\"my/*\": math_verify, mine: exact}" -i d.dp -o d2.dp
    [ "$(see d2.dp .score)" = "1 0" ]
    exits 65 score reward.dispatch.mine=gsm8k -i d.dp -o no.dp 2>err
    grep -q "known are mine, exact" err
    exits 64 score reward.dispatch.mine=gsm9k -i d.dp -o no.dp 2>err
    grep -q "there is no scorer .gsm9k." err
    [ ! -e no.dp ]'
ok 'verl-data reads the same map' '
    echo "{\"prompt\":\"Q\",\"data_source\":\"mine\",\"reward_model\":{\"ground_truth\":\"7\"}}" >rows.jsonl
    exits 65 verl-data -q rows.jsonl -m . -o no.dp 2>err
    grep -q "reward.dispatch.NAME=SCORER" err
    verl-data -q rows.jsonl -m . reward.dispatch.mine=gsm8k -o data.dp
    verl-data -q rows.jsonl -m . "reward.scorers=[tags]" -o data.dp'
ok 'rules about the form need no ground truth' '
    echo "{\"uid\":\"0-0\",\"sample\":0,\"response\":\"[1]\"}" | batch n.dp
    score --rule json --rule regex,pattern=1 -i n.dp -o k.dp
    [ "$(see k.dp .score)" = 2 ]
    exits 65 score --rule json --rule exact -i n.dp -o no.dp 2>err
    grep -q "no ground_truth" err'
ok 'a schema from a file; what is wrong with each row is a column' '
    echo "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}" >schema.json
    score --rule json,schema=schema.json -i n.dp -o k.dp
    [ "$(see k.dp .json_error)" = "a number where the type is to be \"string\"" ]
    echo "{\"format\":\"x\"}" >schema.json
    exits 64 score --rule json,schema=schema.json -i n.dp -o no.dp 2>err
    grep -q "schema.json: byte 2: the keyword .format. is not checked here" err
    echo "{ \"type\":\"array\"}" >schema.json; mkdir -p sub; (cat schema.json; echo) >sub/x.json
    score --rule json,schema=schema.json -i n.dp -o k.dp
    score --rule json,schema=sub/x.json -i n.dp -o k2.dp
    cmp k.dp k2.dp
    exits 66 score --rule json,schema=none.json -i n.dp -o no.dp'
ok 'a rule that fails on a row follows --on-error; prime gives 0 and counts it (51)' '
    jq -nc "{uid: \"0-0\", sample: 0, truth: \"1\", response: (\"a\" * 59 + \"!\")}" | batch hard.dp
    exits 65 score --rule "regex,pattern=^(a|aa)+$" -i hard.dp -o no.dp 2>err
    grep -q "row 0 .*: regex: the pattern takes too many steps" err
    score --rule "regex,pattern=^(a|aa)+$" --on-error invalid -i hard.dp -o h.dp 2>err
    [ "$(see h.dp .score)" = NaN ]
    jq -nc "{uid: \"0-0\", sample: 0, truth: \"1\", response: \"[1]\"}" | batch loop.dp
    for schema in "{\"\$ref\":\"#\"}" "{\"anyOf\":[{\"\$ref\":\"#\"}]}" "{\"not\":{\"\$ref\":\"#\"}}"; do
        exits 65 score --rule "json,schema=$schema" -i loop.dp -o no.dp 2>err
        grep -q "row 0 .*: json: the schema refers to itself too often on this response" err
    done
    score --rule "regex,pattern=^(a|aa)+$" reward_manager.name=prime -i hard.dp -o h.dp 2>err
    [ "$(see h.dp .score)" = 0 ]
    [ "$(meta h.dp ".metrics[\"reward/failed\"]")" = 1 ]
    score --jq "error(\"no\")" reward_model.reward_manager=prime -i in.dp -o h.dp 2>err
    [ "$(see h.dp .score)" = "0 0 0 NaN 0 0" ]'
ok 'rules score the same on any number of threads (52)' '
    OMP_NUM_THREADS=1 score --rule source --rule tags -i in.dp -o t1.dp
    OMP_NUM_THREADS=4 score --rule source --rule tags -i in.dp -o t4.dp
    cmp t1.dp t4.dp'
ok 'special tokens and padding are no part of the text (54)' '
    score --rule "regex,pattern=72$" -i in.dp -o k.dp
    [ "$(see k.dp .score)" = "0 1 0 NaN 0 0" ]'
ok 'a row without valid tokens has no score anywhere and says so (55)' '
    [ "$(see o.dp ".token_level_scores|map(select(. != 0))|length")" = "1 1 1 0 1 1" ]
    [ "$(see o.dp .reward_error)" = "null null null the response has no valid token null null" ]'
ok 'numbers: sign, decimals, thousands, trailing marks; the last marker wins (56, 57)' '
    { echo "{\"uid\":\"0-0\",\"sample\":0,\"truth\":\"-1000\",\"response\":\"#### 3 so #### -1,000.0.\"}"
      echo "{\"uid\":\"0-1\",\"sample\":0,\"truth\":\"3\",\"response\":\"#### 3 and then much more text follows it all\"}"
      echo "{\"uid\":\"0-2\",\"sample\":0,\"truth\":\"3\",\"response\":\"#### .\"}"; } | batch m.dp
    score --rule gsm8k,method=number -i m.dp -o k.dp
    [ "$(see k.dp .score)" = "1 1 0" ]'
ok 'boxes: balanced, both commands, the last complete one; an open one is none (58)' '
    cat >boxes <<"END"
{"uid":"0-0","sample":0,"truth":"1/2","response":"\\boxed{\\frac{1}{2}}"}
{"uid":"0-1","sample":0,"truth":"2","response":"\\boxed{1} \\fbox{2}"}
{"uid":"0-2","sample":0,"truth":"1","response":"\\boxed{1} then \\boxed{7"}
{"uid":"0-3","sample":0,"truth":"yes","response":"\\boxed{yes"}
END
    batch b.dp <boxes
    score --rule math_verify -i b.dp -o k.dp
    [ "$(see k.dp .score)" = "1 1 1 0" ]'
ok 'penalties count valid tokens (60)' '
    score --rule length,max=11 -i in.dp -o k.dp
    [ "$(see k.dp ".score|numbers|. * 11 | round")" = "0 11 0 4 10" ]'
ok 'help lists the rules, their members and sources, and needs no input' '
    verl-reward --rule help >help
    for r in gsm8k prime_math json code; do grep -q "^$r " help; done
    grep -q "members: score, format_score, tolerance" help
    grep -q "for numina_aops_forum, numina_synthetic_math" help'
ok 'a text that begins like JSON is text; one with commas is quoted' '
    score --rule "regex:0.5,pattern=<[Tt]hink>" -i in.dp -o a.dp
    score --rule "regex:0.5,pattern=[<][Tt]hink>" -i in.dp -o b.dp
    equal "$(see a.dp .score)" "$(see b.dp .score)"
    exits 64 score --rule "regex,pattern=[a]{1,2}" -i in.dp -o no.dp 2>err
    grep -q "a text with commas is written as" err'
ok 'a filter or a program is one of several rules; each source has its own' '
    score --jq "{score: (.solution_str | length), words: 2}" --rule source --rule jq:0.5,as=long -i in.dp -o k.dp
    score --jq ".solution_str | length" -i in.dp -o l.dp
    equal "$(see k.dp .score_long)" "$(see l.dp ".score | if . == \"NaN\" then null else . end")"
    [ "$(see k.dp .score_source)" = "1 1 0 null 1 1" ]
    [ "$(see k.dp .acc)" = "1 1 0 NaN 1 1" ]
    [ "$(see k.dp ".long_words|tostring" | cut -d" " -f1)" = 2 ]
    [ "$(see k.dp "select(.score_source) | .score - .score_source - .score_long / 2 | fabs < 1e-5")" = "true true true true true" ]
    score --command "jq -c --unbuffered \"{id, score: (.solution_str|length)}\"" --rule source --rule command:0.5,as=long -i in.dp -o c.dp
    equal "$(see k.dp .score)" "$(see c.dp .score)"
    score --jq .args.x --args "{\"x\":7}" reward.dispatch.numina_olympiads=jq -i in.dp -o d.dp
    [ "$(see d.dp .score)" = "1 1 0 NaN 7 7" ]
    exits 65 score --jq "error(\"no\")" --rule source --rule jq -i in.dp -o no.dp 2>err
    grep -q "jq: .*no" err
    exits 64 score --jq 1 --rule source -i in.dp -o no.dp 2>err
    grep -q -e "--rule jq:WEIGHT" err
    exits 64 score --jq 1 --command cat --rule source --rule jq -i in.dp -o no.dp'
if have_mpi; then
    ok 'two ranks: the same bytes' '
        score --jq "{score: (.solution_str | length), words: 2}" --rule source --rule jq:0.5,as=long -i in.dp -o k.dp
        verl-mpi 2 verl-reward -q -m . --jq "{score: (.solution_str | length), words: 2}" --rule source --rule jq:0.5,as=long -i in.dp -o k2.dp
        cmp k.dp k2.dp'
else
    skip "$why"
fi
ok 'a filter that reads what no row has is told so, once' '
    verl-reward -m . --jq ".solution_st|length" -i in.dp -o k.dp 2>err
    [ "$(grep -c "no row has .solution_st (did you mean .solution_str?)" err)" = 1 ]
    verl-reward -m . --jq "[.answer, (.solution_str|length)]|length" -i in.dp -o k.dp 2>err
    grep -q "no row has .answer; there are .id, .uid, " err
    verl-reward -m . --jq "(.rm_score // 0) + (.extra_info | .foo | length) + (.ground_truth|length)" -i in.dp -o k.dp 2>err
    not grep -q "no row has" err'
ok 'no row was scored: a warning, no mean of nothing' '
    verl-reward -m . --jq "error(\"no\")" --on-error invalid -i in.dp -o k.dp 2>err
    grep -q "warning: no row was scored: all 6 are without a score" err
    not grep -q -i "\bnan\b" err
    verl-eval -i k.dp -o m.json 2>err || true
    not grep -q -i "\bnan\b" err'
ok 'specifications that are refused, before anything is read' '
    for s in judge jq custom maths math:x gsm8k,method=loose length "regex,pattern=(" tags,tags=a "math,as="; do
        exits 64 score --rule "$s" -i none.dp -o no.dp 2>err
        [ $(wc -l <err) = 1 ]
    done
    exits 64 score --rule tags --rule tags -i none.dp -o no.dp 2>err
    grep -q "tags,as=OTHER" err
    exits 64 score --rule tags --scorer math -i none.dp -o no.dp
    exits 64 score --rule tags --args "{\"score\":2}" -i none.dp -o no.dp
    exits 64 score "reward.scorers={name: math}" -i none.dp -o no.dp
    exits 64 score "reward.dispatch=[math]" -i none.dp -o no.dp'
done_testing
