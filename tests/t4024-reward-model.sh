#!/bin/sh
# verl-reward --reward-model: the model's input by hand, its scores from the same forward pass by
# another way, ranks, micro-batches, limits, other scorers beside it.
. "$(dirname "$0")/lib.sh"

# Ids are characters, in two orders: the policy's, and the reward model's, which has <|im_start|> 0,
# <|im_end|> 1, line feed 2, then ASCII backwards.
. "$REPO/tests/chars.sh"
char_policy
mkdir rmtok
char_tokenizer '["<|im_start|>","<|im_end|>"]' \
    "$(jq -nc "[\"<|im_start|>\",\"<|im_end|>\"] + ($chars|reverse)")" >rmtok/tokenizer.json
cat >chat.jinja <<'EOF'
{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}
EOF
jq -n --rawfile t chat.jinja '{eos_token: "<|im_end|>", chat_template: ($t|rtrimstr("\n"))}' >rmtok/tokenizer_config.json
M='--hidden 32 --layers 2 --heads 4 --kv-heads 2 --ffn 48 --std 0.3 --seed 3'
verl-model init -q -o rm --head reward $M --positions 128 --tokenizer rmtok
cat >rows <<'EOF'
{"uid":"0-0","prompt":"2+2?","response":"4"}
{"uid":"0-1","prompt":"2+2?","response":"It is five."}
{"uid":"0-2","prompt":"Hi","response":"x <|im_end|> y"}
{"uid":"0-3","prompt":"2*2?","response":"4"}
{"uid":"0-4","prompt":"a","response":"Two\nlines"}
EOF
char_batch in.dp 8 30 <rows
score() { verl-reward -q -m policy -R rm "$@"; }
see() { verl-dump -q --no-text "$1" | jq -r "$2" | tr '\n' ' ' | sed 's/ $//'; }
# The model's inputs made here, as a batch of its ids, through verl-value: its output for a response
# token is read at the token before, so each row gets one more token.
by_value() { # JQ FILTER: a response to its text in the input
    jq -c "def ids: [explode[] | if . < 2 then . elif . == 10 then 2 else 129 - . end];
        (\"\\u0000user\\n\" + .prompt + \"\\u0001\\u0000assistant\\n\" + (.response|$1) + \"\\u0001\" | ids) |
        { prompts: ([range(99 - length)|0] + .), responses: [0],
          attention_mask: ([range(99 - length)|0] + map(1) + [1]) }" rows |
        verl-batch from-json -q | verl-value -q -m rm -o v.dp
    see v.dp '.values[0]'
}

ok 'the score is the head at the last token of the conversation by the model'\''s template' '
    score -i in.dp -o out.dp
    equal "$(see out.dp .score)" "$(by_value "gsub(\"<\\\\|im_end\\\\|>\"; \"\\u0001\")")"
    [ "$(see out.dp .score | tr " " "\n" | sort -u | wc -l)" = 5 ]
    [ "$(see out.dp "[.rm_scores|to_entries[]|select(.value != 0)|.key]|tostring")" = "[1] [11] [14] [1] [9]" ]
    [ "$(see out.dp ".rm_scores == .token_level_scores")" = "true true true true true" ]
    [ "$(see out.dp "(.rm_scores|add) == .acc")" = "true true true true true" ]
    verl-dump -q --schema out.dp | jq -e --arg h "$(verl-model hash rm | cut -c-32)" \
        ".meta_info.rm_scores_weights.hash == \$h"'
ok 'a response that spells special tokens is told of, and can be plain text' '
    verl-reward -m policy -R rm -i in.dp -o out.dp 2>err
    grep -q "1 of 5 responses spell special tokens of the reward model" err
    score --rm-plain-special -i in.dp -o plain.dp
    equal "$(see plain.dp .score)" "$(by_value .)"'
ok 'with special tokens kept, the end token goes all the same' '
    score --keep-special -i in.dp -o keep.dp
    equal "$(see keep.dp .score)" "$(see out.dp .score)"'
ok 'the bits depend on neither micro-batch nor neighbours' '
    score --micro-batch 1 -i in.dp -o one.dp
    score reward_model.forward_max_token_len_per_gpu=40 -i in.dp -o forty.dp
    cmp out.dp one.dp
    cmp out.dp forty.dp
    verl-batch -q slice 3:4 -i in.dp -o fourth.dp
    score -i fourth.dp -o fourth1.dp
    equal "$(see fourth1.dp .score)" "$(see out.dp .score | cut -d" " -f4)"'
ok 'verl'\''s keys are the same as the option' '
    verl-reward -q -m policy reward_model.enable=true reward_model.model.path=rm -i in.dp -o keys.dp
    equal "$(see keys.dp .score)" "$(see out.dp .score)"
    exits 64 verl-reward -q -m policy reward_model.enable=true -i in.dp -o no.dp'
ok 'ids as they are: the score at the last response token' '
    verl-model init -q -o same --head reward $M --vocab 97 --positions 64
    verl-reward -q -m policy -R same reward_model.model.input_tokenizer=null -i in.dp -o as.dp
    verl-dump -q --no-text in.dp | jq -c "{prompts: (.prompts + .responses), responses: [0],
        attention_mask: (.attention_mask + [1])} | .prompts as \$p | .attention_mask as \$a |
        [range(38)|select(\$a[.] == 1)|\$p[.]] |
        {prompts: ([range(38 - length)|0] + .), responses: [0],
         attention_mask: ([range(38 - length)|0] + map(1) + [1])}" |
        verl-batch from-json -q | verl-value -q -m same -o v.dp
    equal "$(see as.dp .score)" "$(see v.dp .values[0])"
    verl-batch -q drop -k raw_prompt -i in.dp -o noraw.dp
    verl-reward -q -m policy -R same input_tokenizer=null -i noraw.dp -o as2.dp
    equal "$(see as.dp .score)" "$(see as2.dp .score)"
    exits 65 score -i noraw.dp -o no.dp 2>err
    grep -q "no raw_prompt" err'
ok 'beside another scorer the row has rm_score' '
    score --jq "{score: (.rm_score * 2), rm: .rm_score}" -i in.dp -o jq.dp
    equal "$(see jq.dp .rm)" "$(see out.dp .score)"
    [ "$(see jq.dp "(.score / .rm - 2) | fabs < 1e-6")" = "true true true true true" ]
    [ "$(see jq.dp "(.rm_scores|add) == .rm")" = "true true true true true" ]
    score --scorer exact -i in.dp -o rule.dp
    [ "$(see rule.dp .score)" = "1 0 0 1 0" ]
    equal "$(see rule.dp "(.rm_scores|add)")" "$(see out.dp .score)"
    verl-reward -q -m policy --jq .rm_score -i rule.dp -o later.dp
    equal "$(see later.dp .score)" "$(see out.dp .score)"'
ok 'as a rule among others, with a weight' '
    score --rule exact --rule rm:0.5 -i in.dp -o sum.dp
    [ "$(see sum.dp "(.score_rm - (.rm_scores|add)) | fabs < 1e-6")" = "true true true true true" ]
    [ "$(see sum.dp "(.score - .score_exact - .score_rm / 2) | fabs < 1e-6")" = "true true true true true" ]
    [ "$(see sum.dp .acc)" = "1 0 0 1 0" ]
    echo "reward: {scorers: [exact, {name: rm, weight: 0.5}]}" >two.yaml
    verl-reward -q -m policy -c two.yaml -i out.dp -o sum2.dp
    equal "$(see sum2.dp .score)" "$(see sum.dp .score)"
    exits 65 verl-reward -q -m policy --rule rm -i in.dp -o no.dp 2>err
    grep -q "row 0 .*rm needs a reward model" err'
ok 'an input that is too long has no score, unless it is cut' '
    exits 65 score reward_model.max_length=33 -i in.dp -o no.dp 2>err
    grep -q "row 1 (uid \"0-1\", sample 0): 34 tokens for the reward model, more than 33" err || { cat err; false; }
    score max_length=33 --on-error invalid -i in.dp -o inv.dp 2>err
    [ "$(see inv.dp ".score|type")" = "number string number number number" ]
    [ "$(see inv.dp ".rm_scores|map(select(. == \"NaN\"))|length")" = "0 1 0 0 0" ]
    score max_length=33 --on-error invalid --jq "(.rm_score // 0) + 1" -i in.dp -o inv2.dp 2>err
    [ "$(see inv2.dp ".score|type")" = "number string number number number" ]
    score max_length=33 --on-error value --error-value -3 -i in.dp -o val.dp 2>err
    [ "$(see val.dp .score | cut -d" " -f2)" = -3 ]
    verl-reward -m policy -R rm max_length=33 --rm-truncate right -i in.dp -o cut.dp 2>err
    grep -q "1 of 5 inputs cut to 33 tokens (right)" err
    equal "$(see cut.dp .score | cut -d" " -f1)" "$(see out.dp .score | cut -d" " -f1)"
    score max_length=33 --rm-truncate left -i in.dp -o left.dp 2>err
    [ "$(see cut.dp .score | cut -d" " -f2)" != "$(see left.dp .score | cut -d" " -f2)" ]
    verl-reward -q -m policy -i inv.dp -o again.dp
    [ "$(see again.dp .reward_error | grep -c "rm_scores is NaN")" = 1 ]'
ok 'a prompt that is a string is the user'\''s message; another kind is a reason' '
    verl-dump -q --no-text in.dp | jq -c ".raw_prompt = .raw_prompt[0].content" | verl-batch from-json -q --like in.dp -o str.dp
    score -i str.dp -o str1.dp
    equal "$(see str1.dp .score)" "$(see out.dp .score)"
    verl-dump -q --no-text in.dp | jq -c ".raw_prompt = 7" | verl-batch from-json -q --like in.dp -o seven.dp
    exits 65 score -i seven.dp -o no.dp 2>err
    grep -q "row 0 .*neither a list of messages nor a string" err'
ok 'rows whose response is empty or whose template fails have a reason' '
    { cat rows; echo "{\"uid\":\"0-5\",\"prompt\":\"x\",\"response\":\"\"}"; } | char_batch six.dp 8 30
    score -i six.dp -o six1.dp
    [ "$(see six1.dp .score)" = "$(see out.dp .score) NaN" ]
    echo "{% if messages[0].content == \"Hi\" %}{{ raise_exception(\"not Hi\") }}{% endif %}{{ messages[1].content }}" >strict.jinja
    score --rm-template strict.jinja --on-error invalid -i in.dp -o strict.dp 2>err
    grep -q "row 2 .*not Hi" err
    [ "$(see strict.dp ".score|type")" = "number number string number number" ]'
ok 'a template of its own from a file; none is 65 and says how to give one' '
    mkdir bare
    cp rm/config.json rm/model.safetensors rmtok/tokenizer.json bare
    exits 65 verl-reward -q -m policy -R bare -i in.dp -o no.dp 2>err
    grep -q "no chat template: give one with --rm-template" err
    printf %s "$(cat chat.jinja)" >chat2.jinja
    verl-reward -q -m policy -R bare --rm-template chat2.jinja -i in.dp -o bare.dp
    equal "$(see bare.dp .score)" "$(see out.dp .score)"
    zstd -dcq bare.dp >whole
    [ "$(grep -ac chat2.jinja whole)" = 0 ]
    grep -aq "xxh3 [0-9a-f]" whole'
ok 'the overlong penalty: not on rm_scores, as in verl; on a filter of them it is' '
    set -- max_resp_len=12 overlong_buffer_cfg.enable=true overlong_buffer_cfg.len=6
    verl-reward -m policy -R rm "$@" -i in.dp -o over.dp 2>err
    grep -q "overlong_buffer_cfg.enable=true has no effect on .*rm_scores.* --jq .rm_score" err
    [ "$(see over.dp "(.token_level_scores|add) == .score")" = "true true true true true" ]
    score --jq .rm_score "$@" -i in.dp -o over.dp 2>err
    [ "$(see over.dp "(.token_level_scores|add) == .score")" = "true false false true false" ]'
ok 'options without their scorer are told of; a critic is scored like a reward model' '
    verl-reward -m policy --scorer exact --rm-truncate left --judge-retries 1 -i in.dp -o x.dp 2>err
    grep -q -e "--rm-truncate has no effect without --reward-model" err
    grep -q -e "--judge-retries has no effect without --judge" err
    verl-model convert -q rm -o rmv --head value
    verl-reward -q -m policy -R rmv -i in.dp -o x.dp
    equal "$(see x.dp .score)" "$(see out.dp .score)"'
ok 'what is no reward model is refused; --delta writes the new columns' '
    verl-model init -q -o lm $M --tokenizer rmtok
    exits 65 verl-reward -q -m policy -R lm -i in.dp -o no.dp 2>err
    grep -q "lm: holds no score.weight" err
    exits 66 verl-reward -q -m policy -R nowhere -i in.dp -o no.dp
    verl-model init -q -o small --head reward $M --vocab 50
    cp rmtok/* small
    exits 65 verl-reward -q -m policy -R small -i in.dp -o no.dp 2>err
    grep -q "vocab_size 50" err
    score --delta -i in.dp -o d.dp
    verl-dump -q --no-text d.dp | head -n 1 | jq -e "has(\"rm_scores\") and (has(\"responses\")|not)"'
if have_mpi; then
    ok 'three ranks: the same bytes' '
        score -i six.dp -o a1.dp
        verl-mpi 3 verl-reward -q -m policy -R rm -i six.dp -o a3.dp
        cmp a1.dp a3.dp
        score --jq .rm_score --on-error invalid max_length=33 -i six.dp -o b1.dp 2>err
        verl-mpi 3 verl-reward -q -m policy -R rm --jq .rm_score --on-error invalid max_length=33 -i six.dp -o b3.dp 2>err
        cmp b1.dp b3.dp
        verl-mpi 3 verl-reward -q -m policy -R same input_tokenizer=null -i six.dp -o c3.dp
        verl-reward -q -m policy -R same input_tokenizer=null -i six.dp -o c1.dp
        cmp c1.dp c3.dp'
else
    skip "$why"
fi
ok "--timing: the model's forward passes, and the same bytes" '
    score -i in.dp -o plain.dp
    score -i in.dp -o timed.dp --timing 2>log
    cmp plain.dp timed.dp
    grep -qx "verl-reward: timing: read [0-9.]* s; load [0-9.]* s; work [0-9.]* s, [1-9][0-9]* tokens, [0-9.e+]* tokens/s; write .*, cpu .*" log'
done_testing
