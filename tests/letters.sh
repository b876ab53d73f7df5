# letters.sh - sourced by tests of rewards: a tokenizer whose ids are characters, and batches of text.

# Ids are printable ASCII from 0, line feed 95, </s> 96.
letters_tokenizer() { # DIR
    jq -n '([range(32;127)|[.]|implode] + ["\n"]) as $c |
      { version: "1.0", truncation: null, padding: null, normalizer: null, pre_tokenizer: null,
        post_processor: null, decoder: {type: "Fuse"},
        added_tokens: [{ id: 96, content: "</s>", single_word: false, lstrip: false, rstrip: false,
                         normalized: false, special: true }],
        model: { type: "BPE", dropout: null, unk_token: null, continuing_subword_prefix: null,
                 end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, merges: [],
                 vocab: (reduce range(0; $c|length) as $i ({}; .[$c[$i]] = $i) + {"</s>": 96}) } }' \
        >"$1/tokenizer.json"
}

# Rows {uid, sample, data_source, truth, response} from standard input.
letters_batch() { # FILE
    jq -c 'def ids: [explode[] | if . == 10 then 95 else . - 32 end];
        def right($n): . + [range($n - length) | 0];
        (.response | ids | . + [96]) as $r |
        { uid, sample, data_source, extra_info: {k: 1}, reward_model: {ground_truth: .truth},
          finish_reason: "stop", prompts: [49], responses: ($r | right(40)),
          attention_mask: ([1] + ($r | map(1) | right(40))) }' | verl-batch from-json -q -o "$1"
}
