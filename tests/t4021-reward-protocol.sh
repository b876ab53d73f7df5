#!/bin/sh
# The programs of verl-reward-protocol(7), run as they are printed there.
. "$(dirname "$0")/lib.sh"
page=$REPO/man/verl-reward-protocol.7

# example NAME: the literal text after the comment `.\" example NAME`.
example() {
    awk -v want=".\\\\\" example $1" '
        $0 == want { found = 1; next }
        found && /^\.Bd/ { inside = 1; next }
        inside && /^\.Ed/ { exit }
        inside { gsub(/\\e/, "\\"); print }' "$page"
}
jq -n '([range(32;127)|[.]|implode]) as $c |
  { version: "1.0", truncation: null, padding: null, normalizer: null, pre_tokenizer: null,
    post_processor: null, decoder: {type: "Fuse"}, added_tokens: [],
    model: { type: "BPE", dropout: null, unk_token: null, continuing_subword_prefix: null,
             end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, merges: [],
             vocab: (reduce range(0; $c|length) as $i ({}; .[$c[$i]] = $i)) } }' >tokenizer.json
jq -nc 'range(12) | ("a \"b\" \\ #### \(. % 4)" | explode | map(. - 32)) as $r |
    {uid: "0-\(.)", sample: 0, data_source: "openai/gsm8k", extra_info: {},
     reward_model: {ground_truth: "\(. % 3)"}, prompts: [33], responses: $r,
     attention_mask: ([1] + ($r | map(1)))}' | verl-batch from-json -q -o in.dp
score() { verl-reward -q -m . -i in.dp "$@"; }
verl-reward -q -m . -i in.dp -o want.dp
see() { verl-dump -q --no-text "$1" | jq -c '[.score, .acc]'; }
see want.dp >want
ok 'the rule itself scores some and not others' '
    [ "$(sort -u want | wc -l)" = 2 ]'

ok 'filter' 'score --jq "$(example filter)" -o o.dp; see o.dp | cmp - want'
ok 'jq as a command' '
    example score.jq.sh >score.jq.sh
    score --command "sh score.jq.sh" -o o.dp
    see o.dp | cmp - want'
ok 'shell' '
    example score.sh >score.sh
    score --command "sh score.sh" -o o.dp
    see o.dp | cmp - want'
ok 'a process for each row' '
    example once.sh >once.sh
    score --exec "sh once.sh" -o o.dp
    see o.dp | cmp - want'
ok 'C' '
    example score.c >score.c
    ${CC:-cc} -Wall -Werror -o score score.c
    score --command ./score -o o.dp
    see o.dp | cmp - want'
if command -v python3 >/dev/null; then
    ok 'Python' '
        example score.py >score.py
        score --command "python3 score.py" -o o.dp
        see o.dp | cmp - want'
else
    skip 'Python: not installed'
fi
done_testing
