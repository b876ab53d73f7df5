#!/bin/sh
# verl-rollout: stop texts, penalties, biases, banned words, min-p; they change draws, never log-probs.
. "$(dirname "$0")/lib.sh"

book=$REPO/examples/addition # ids 0 to 9 are digits, 10 +, 11 =, 12 <end>, 13 <pad>
verl-model init -q "$book/config.json" --positions 64 --tokenizer "$book" --std 0.3 -o model
for i in 1 2 3 4 5 6; do printf '{"prompt":"%d+%d="}\n' $i $((3 * i)); done >rows.jsonl
verl-data -q -m model --step 1 data.train_batch_size=6 data.max_prompt_length=16 rows.jsonl -o p.dp

draw() { verl-rollout -q -m model -i p.dp rollout.n=8 rollout.response_length=10 "$@"; }
texts() { verl-dump -r -f '[.responses, .response_mask] | transpose | map(select(.[1] == 1)[0] |
    if . < 10 then tostring else ["+", "=", "<end>", "<pad>"][. - 10] end) | join("")' "$1"; }
ids() { verl-dump -f "[.responses, .response_mask] | transpose | map(select(.[1] == 1)[0])" "$1"; }
same_logp() { # the recorded log-probs are those of verl-logprob
    verl-logprob -m model -i "$1" -o l.dp 2>log
    grep -q 'to the bit' log
}

until_stop() { # each line cut after the first 44 or +2
    awk '{ a = index($0, "44"); b = index($0, "+2"); a = a && (!b || a < b) ? a : b
           print a ? substr($0, 1, a + 1) : $0 }'
}

draw -o plain.dp
texts plain.dp >plain

ok "--stop: the response ends with the token that completes the text, and only there" "
    draw -o s.dp --stop 44 --stop +2 --stop 333333333333333
    texts s.dp >got
    until_stop <plain >want
    not cmp -s plain want
    cmp want got
    verl-dump -r -f .finish_reason s.dp | paste - got | awk '(\$1 == \"stop\") != (\$2 ~ /(44|[+]2|<end>)\$/) { bad = 1 } END { exit bad || NR != 48 }'
    same_logp s.dp"
ok "--stop: a special token counts as the text it is written as" "
    draw -o s.dp --ignore-eos --stop '<end>'
    verl-dump -f '[.responses, .finish_reason]' s.dp >got
    draw -o t.dp
    verl-dump -f '[.responses, .finish_reason]' t.dp | cmp got -"
ok "--min-tokens: neither ids nor texts end a response before" "
    draw -o s.dp --min-tokens 5 --stop 1
    texts s.dp | sed 's/<end>/E/g' | awk 'length < 5 || substr(\$0, 1, 4) ~ /E/ { bad = 1 } END { exit bad || NR != 48 }'
    [ \$(verl-dump -f '.response_mask | add' s.dp | sort -n | head -n 1) = 5 ]
    same_logp s.dp"
ok "--logit-bias: -inf bans, a large one forces" "
    draw -o s.dp --logit-bias 5=-inf --logit-bias 6=-inf
    texts s.dp >got
    not grep '[56]' got
    texts plain.dp | grep -q '[56]'
    draw -o s.dp --logit-bias 5=1000
    [ \"\$(texts s.dp | sort -u)\" = 5555555555 ]
    same_logp s.dp"
ok "--bad-word: one token is banned, of two the second after the first" "
    grep -q 0 plain
    grep -q '+2' plain
    draw -o s.dp --bad-word 0 --bad-word +2
    texts s.dp >got
    not grep -E '0|[+]2' got
    grep -q '[+]' got
    grep -q 2 got
    same_logp s.dp"
ok "--presence-penalty: no id twice; its negative: one id for ever" "
    draw -o s.dp --presence-penalty 1000
    ids s.dp | jq -se 'length > 0 and all(length == (unique | length))' >/dev/null
    ids plain.dp | jq -se 'any(length != (unique | length))' >/dev/null
    draw -o s.dp --presence-penalty -1000 --logit-bias 12=-inf
    ids s.dp | jq -se 'length > 0 and all((unique | length) == 1)' >/dev/null
    same_logp s.dp"
ok "--frequency-penalty: no id a third time before each was there twice" "
    draw -o s.dp --frequency-penalty 1000
    ids s.dp | jq -se 'length > 0 and all(length == (unique | length))' >/dev/null
    same_logp s.dp"
ok "--repetition-penalty: prompt and response count" "
    draw -o s.dp --repetition-penalty 1000 --temperature 0.05
    verl-dump -f '.' s.dp | jq -c '[.prompts, .responses]' | sort -u >a
    draw -o t.dp --temperature 0.05
    verl-dump -f '.' t.dp | jq -c '[.prompts, .responses]' | sort -u >b
    not cmp -s a b
    same_logp s.dp"
ok "--min-p 1 is greedy, 0 nothing" "
    draw -o s.dp --min-p 1
    draw -o t.dp --temperature 0
    equal \"\$(ids s.dp)\" \"\$(ids t.dp)\"
    draw -o s.dp --min-p 0
    texts s.dp | cmp plain -
    draw -o s.dp --min-p 0.1
    texts s.dp >got
    not cmp -s plain got"
ok "the same draws with one row at a time and with three threads, and from a config" "
    all='--stop 44 --min-tokens 3 --min-p 0.02 --repetition-penalty 1.2 --presence-penalty 0.3
        --frequency-penalty 0.2 --logit-bias 4=1.5 --bad-word 77'
    draw -o s.dp \$all --top-k 9
    draw -o t.dp \$all --top-k 9 rollout.max_num_seqs=1 --threads 3
    cmp s.dp t.dp
    cat >run.yaml <<-'Y'
	actor_rollout_ref:
	  rollout:
	    {top_k: 9, stop: ['44'], min_tokens: 3, min_p: 0.02, repetition_penalty: 1.2, presence_penalty: 0.3,
	     frequency_penalty: 0.2, logit_bias: ['4=1.5'], bad_words: ['77']}
	Y
    draw -o t.dp -c run.yaml
    cmp s.dp t.dp"
ok "--logprobs: the likeliest ids of each position; draws stay" "
    draw -o s.dp --logprobs 14
    equal \"\$(ids s.dp)\" \"\$(ids plain.dp)\"
    verl-dump --schema s.dp | jq -e '[.. | objects | select(.name? == \"rollout_topk_log_probs\")][0].shape == [48, 10, 14]'
    verl-dump -f '.rollout_log_probs as \$lp | .response_mask as \$m | .rollout_topk_ids as \$ids |
        .rollout_topk_log_probs as \$top | [.responses, \$m, \$lp, \$ids, \$top] | transpose | map(
        if .[1] == 0 then (.[3] | all(. == 0)) and (.[4] | all(. == 0)) else
        (.[0] as \$id | .[3] | index(\$id)) as \$k | .[4][\$k] == .[2] and (.[4] | . == (sort | reverse)) and
        (.[3] | sort == [range(14)]) and (.[4] | map(exp) | add - 1 | fabs < 1e-5) end) | all' s.dp |
        sort -u | grep -qx true
    draw -o t.dp --logprobs 3 rollout.max_num_seqs=2 --threads 2
    verl-dump -f '[.rollout_topk_ids, .rollout_topk_log_probs]' t.dp >got
    verl-dump -f '[.rollout_topk_ids, .rollout_topk_log_probs] | map(map(.[:3]))' s.dp | cmp got -
    draw -o t.dp --temperature 0 --logprobs 1
    verl-dump -f '[.responses, .response_mask, .rollout_topk_ids] | transpose |
        all(.[1] == 0 or .[2] == [.[0]])' t.dp | sort -u | grep -qx true"
if have_mpi; then
    ok "--logprobs: the same from three ranks" "
        draw -o s.dp --logprobs 5
        verl-mpi 3 verl-rollout -q -m model -i p.dp -o t.dp rollout.n=8 rollout.response_length=10 --logprobs 5
        cmp s.dp t.dp"
else
    skip "$why"
fi
ok "said: log-probs do not speak of reshaped draws" "
    verl-rollout -m model -i p.dp -o s.dp rollout.response_length=4 --min-p 0.1 2>log
    grep -q 'reshape' log
    verl-rollout -m model -i p.dp -o s.dp rollout.response_length=4 --stop 1 2>log
    not grep -q 'reshape' log"

refused() { # STATUS WORDS ARGUMENT...
    status=$1 words=$2
    shift 2
    ok "refused: $*" "
        exits $status draw -o no.dp $(printf " '%s'" "$@") 2>log
        grep -q -e '$words' log
        [ ! -e no.dp ]"
}
refused 64 'expected ID=X' --logit-bias 5
refused 64 'in \[0, 14)' --logit-bias 14=1
refused 64 'expected ID=X' --logit-bias 3=nan
refused 64 'expected ID=X' --logit-bias 3=inf
refused 64 'expected ID=X' --logit-bias 3=1x
refused 64 'expected a word' --bad-word ' '
refused 64 'ends a response' --stop ''
refused 64 'min_tokens=13 is more than' --min-tokens 13
refused 64 'the vocabulary has 14 ids' --logprobs 15
refused 64 'repetition' --repetition-penalty 0
refused 65 'every id is banned' --logit-bias 0=-inf --logit-bias 1=-inf --logit-bias 2=-inf \
    --logit-bias 3=-inf --logit-bias 4=-inf --logit-bias 5=-inf --logit-bias 6=-inf \
    --logit-bias 7=-inf --logit-bias 8=-inf --logit-bias 9=-inf --logit-bias 10=-inf \
    --logit-bias 11=-inf --logit-bias 12=-inf --logit-bias 13=-inf

done_testing
