# chars.sh - sourced by tests that need a tokenizer and rows of text, and no shared data: each
# character is a token. `policy` has printable ASCII from 0, line feed 95 and </s> 96.

char_tokenizer() { # SPECIALS ALL, JSON lists of tokens: a tokenizer.json
    jq -n --argjson special "$1" --argjson all "$2" '
      { version: "1.0", truncation: null, padding: null, normalizer: null, pre_tokenizer: null,
        post_processor: null, decoder: {type: "Fuse"},
        added_tokens: [$special[] as $s | { id: ($all|index($s)), content: $s, single_word: false,
          lstrip: false, rstrip: false, normalized: false, special: true }],
        model: { type: "BPE", dropout: null, unk_token: null, continuing_subword_prefix: null,
                 end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, merges: [],
                 vocab: (reduce range(0; $all|length) as $i ({}; .[$all[$i]] = $i)) } }'
}
chars='([range(32;127)|[.]|implode] + ["\n"])'

char_policy() { # makes the directory policy
    mkdir policy
    char_tokenizer '["</s>"]' "$(jq -nc "$chars + [\"</s>\"]")" >policy/tokenizer.json
    echo '{"eos_token": "</s>"}' >policy/tokenizer_config.json
}

# {"uid","prompt","response"} lines to a batch; a response ends with </s> unless it is empty.
char_batch() { # FILE PROMPT-WIDTH RESPONSE-WIDTH
    jq -c --argjson P "$2" --argjson R "$3" '
        def ids: [explode[] | if . == 10 then 95 else . - 32 end];
        def left($n): [range($n - length) | 0] + .;
        def right($n): . + [range($n - length) | 0];
        (.response | ids | if length > 0 then . + [96] else . end) as $r | (.prompt | ids) as $p |
        { uid, sample: 0, data_source: "exact", reward_model: {style: "rule", ground_truth: "4"},
          raw_prompt: [{role: "user", content: .prompt}],
          prompts: ($p | left($P)), responses: ($r | right($R)),
          attention_mask: (($p | map(1) | left($P)) + ($r | map(1) | right($R))) }' |
        verl-batch from-json -q -o "$1"
}
