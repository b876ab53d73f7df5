#!/bin/sh
# verl-batch: every command on small batches. The operations themselves: tests/unit/test_dataproto.c.
. "$(dirname "$0")/lib.sh"

for i in 0 1 2 3 4; do
    echo "{\"uid\":\"p$((i / 2))\",\"sample\":$((i % 2)),\"a\":$i.5,\"s\":\"r$i\",\"responses\":[$i,$((i + 1))]}"
done | verl-batch from-json -o x.dp
# col FILE NAME: that column on one line
col() { verl-dump -k "$2" "$1" | jq -c ".$2" | tr '\n' ' '; }
is() { [ "$1" = "$2" ] || { echo "got  $1"; echo "want $2"; return 1; }; }

ok "no command, an unknown one, too few arguments: 64, with what there is" "
    exits 64 verl-batch 2>err; grep -q 'select pop drop' err
    exits 64 verl-batch slize 2>err; grep -q \"no command 'slize'\" err
    exits 64 verl-batch slice -i x.dp 2>err; grep -q 'START:STOP:STEP' err
    verl-batch --help | grep -q 'filter-groups --metric NAME'"
ok "select, drop, pop: columns and meta" "
    verl-batch set-meta k 1 j '{\"a\":[1]}' w word -i x.dp -o m.dp
    is \"\$(verl-dump --meta m.dp)\" '{\"k\":1,\"j\":{\"a\":[1]},\"w\":\"word\"}'
    verl-batch select -k s,a --meta j -i m.dp -o o.dp
    is \"\$(verl-dump --schema o.dp | jq -c '[.columns[].name], .meta_info')\" '[\"s\",\"a\"]
{\"j\":{\"a\":[1]}}'
    verl-batch drop -k a --meta k,w -i m.dp -o o.dp
    is \"\$(verl-dump --schema o.dp | jq -c '[.columns[].name], .meta_info')\" '[\"uid\",\"sample\",\"s\",\"responses\"]
{\"j\":{\"a\":[1]}}'
    verl-batch pop -k a,s --popped p.dp -i m.dp -o o.dp
    is \"\$(col p.dp s)\" '\"r0\" \"r1\" \"r2\" \"r3\" \"r4\" '
    verl-batch union o.dp p.dp -o u.dp
    verl-batch select -k uid,sample,a,s,responses -i u.dp -o u2.dp
    verl-dump diff u2.dp m.dp
    exits 65 verl-batch select -k nope -i x.dp -o never.dp 2>err; [ ! -e never.dp ]
    exits 65 verl-batch drop --meta nope -i x.dp -o never.dp 2>err
    verl-batch set-meta --unset k w -i m.dp | verl-dump --meta | grep -qx '{\"j\":{\"a\":\\[1\\]}}'
    exits 64 verl-batch set-meta \"\$(printf 'k\\377')\" 1 -i x.dp -o never.dp 2>err; grep -q UTF-8 err
    exits 64 verl-batch set-meta k \"\$(printf 'k\\377')\" -i x.dp -o never.dp 2>err
    [ ! -e never.dp ]
    exits 64 verl-batch set-meta k -i x.dp 2>err"
ok "rename: pairs at once" "
    verl-batch rename a:s s:a -i x.dp -o o.dp
    is \"\$(col o.dp a)\" '\"r0\" \"r1\" \"r2\" \"r3\" \"r4\" '
    exits 64 verl-batch rename a:s -i x.dp -o never.dp 2>err; grep -q already err
    exits 64 verl-batch rename a -i x.dp -o never.dp 2>err"
ok "slice, index, reorder, repeat" "
    verl-batch slice 1:4:2 -i x.dp -o o.dp; is \"\$(col o.dp a)\" '1.5 3.5 '
    verl-batch slice -i x.dp -o o.dp -- -2:
    verl-batch slice -2: -i x.dp -o o2.dp; cmp o.dp o2.dp
    is \"\$(col o.dp a)\" '3.5 4.5 '
    verl-batch index 3,0,3 -i x.dp -o o.dp; is \"\$(col o.dp s)\" '\"r3\" \"r0\" \"r3\" '
    verl-batch index --mask 1,0,0,0,1 -i x.dp -o o.dp; is \"\$(col o.dp a)\" '0.5 4.5 '
    exits 64 verl-batch index 5 -i x.dp -o never.dp 2>err
    exits 64 verl-batch index --mask 1 -i x.dp -o never.dp 2>err
    verl-batch reorder 4,3,2,1,0 -i x.dp -o o.dp; is \"\$(col o.dp responses)\" '[4,5] [3,4] [2,3] [1,2] [0,1] '
    exits 64 verl-batch reorder 0,1 -i x.dp -o never.dp 2>err
    verl-batch select -k a -i x.dp -o a.dp
    verl-batch repeat 2 -i a.dp -o o.dp; is \"\$(col o.dp a)\" '0.5 0.5 1.5 1.5 2.5 2.5 3.5 3.5 4.5 4.5 '
    verl-batch repeat 2 --tiled -i a.dp -o o.dp; is \"\$(col o.dp a)\" '0.5 1.5 2.5 3.5 4.5 0.5 1.5 2.5 3.5 4.5 '
    verl-batch repeat --counts 2,0,1,0,0 -i a.dp -o o.dp; is \"\$(col o.dp a)\" '0.5 0.5 2.5 '"
ok "a (uid, sample) that is there twice is 65 for what unites inputs, and for concat" "
    verl-batch repeat 2 -i x.dp -o twice.dp
    verl-batch slice :2 -i twice.dp -o o.dp
    exits 65 verl-batch select -i twice.dp -i twice.dp -o never.dp 2>err
    grep -q 'rows 0 and 1 are both' err
    exits 65 verl-batch concat x.dp x.dp -o never.dp 2>err
    [ ! -e never.dp ]"
ok "pad from the front to a multiple, by copies, unpad" "
    verl-batch pad 4 -i a.dp -o o.dp 2>err; is \"\$(col o.dp a)\" '0.5 1.5 2.5 3.5 4.5 0.5 1.5 2.5 '
    grep -q 'unpad 3' err
    verl-batch unpad 3 -i o.dp -o o2.dp; verl-dump diff o2.dp a.dp
    verl-batch pad 4 -i x.dp | verl-batch unpad 3 -o o2.dp; verl-dump diff o2.dp x.dp
    verl-batch pad --copies 2 -i a.dp -o o.dp; is \"\$(col o.dp a)\" '0.5 1.5 2.5 3.5 4.5 4.5 4.5 '
    verl-batch pad --copies 1 --first -i a.dp -o o.dp; is \"\$(col o.dp a)\" '0.5 1.5 2.5 3.5 4.5 0.5 '
    exits 64 verl-batch unpad 6 -i a.dp -o never.dp 2>err"
ok "unfold and fold" "
    verl-batch unfold 2 -k responses -i x.dp 2>err | verl-dump -k responses 2>>err | head -n 3 | jq -c .responses | tr '\n' ' ' >out
    is \"\$(cat out)\" '[0] [1] [1] '
    verl-batch slice :4 -i a.dp | verl-batch fold 2 -o o.dp
    is \"\$(col o.dp a)\" '[0.5,1.5] [2.5,3.5] '"
ok "chunk and split write pieces; concat joins them again" "
    exits 64 verl-batch chunk 2 -i x.dp -o c%d.dp 2>err; grep -q 'auto-padding' err
    verl-batch chunk 2 --auto-padding -i x.dp -o c%d.dp
    is \"\$(col c0.dp a)\" '0.5 1.5 2.5 '; is \"\$(col c1.dp a)\" '3.5 4.5 '
    verl-batch concat c0.dp c1.dp -o o.dp; verl-dump diff o.dp x.dp
    verl-batch split 2 -i x.dp -o s%d.dp
    is \"\$(col s2.dp a)\" '4.5 '
    verl-batch split 2 --piece 1 -i x.dp | verl-dump -k a | head -n 1 | grep -qx '{\"a\":2.5}'
    exits 64 verl-batch split 2 -i x.dp -o one.dp 2>err
    exits 64 verl-batch split 2 --piece 3 -i x.dp -o one.dp 2>err
    VERL_AUTO_PADDING=1 verl-batch chunk 2 -i x.dp -o c%d.dp"
ok "concat: rows of several generation batches, also across epochs" "
    for k in 2 0 1; do verl-batch set-meta gen_batch \$k epoch \$((k / 2)) -i c\$((k % 2)).dp | verl-batch slice \$((k / 2)): -o g\$k.dp; done
    verl-batch concat g2.dp g1.dp 2>/dev/null | verl-dump --meta | jq -e '.gen_batch == 2 and .epoch == 1'
    verl-batch concat g0.dp g1.dp | verl-dump --meta | jq -e '.gen_batch == 1 and .epoch == 0'"
ok "concat: the counts of generation batches add up, those of pieces of one stay; names of extras are joined" "
    for k in 0 1; do verl-batch set-meta gen_batch \$k data_counts \"{\\\"rows\\\":4,\\\"of\\\":9,\\\"truncated\\\":\$((2 * k)),\\\"left_over\\\":1}\" \
        reward_extra_keys \"[\\\"acc\\\",\\\"k\$k\\\"]\" -i c\$k.dp -o k\$k.dp; done
    verl-batch concat k0.dp k1.dp | verl-dump --meta | jq -c '[.data_counts, .reward_extra_keys]' >got
    grep -qxF '[{\"rows\":8,\"of\":9,\"truncated\":2,\"left_over\":1},[\"acc\",\"k0\",\"k1\"]]' got
    verl-batch split 1 -i k1.dp -o piece%d.dp
    verl-batch concat piece*.dp -o o.dp; verl-dump diff o.dp k1.dp
    verl-batch concat k0.dp piece*.dp | verl-dump --meta | jq -e '.data_counts.rows == 8'"
ok "concat: conflicts name key, column and part; metrics are collected" "
    verl-batch set-meta metrics '{\"m\":1}' step 3 -i c0.dp -o d0.dp
    verl-batch set-meta metrics '{\"m\":2,\"n\":5}' step 3 -i c1.dp -o d1.dp
    verl-batch concat d0.dp d1.dp | verl-dump --meta | grep -qx '{\"metrics\":{\"m\":\\[1,2\\],\"n\":\\[5\\]},\"step\":3}'
    verl-batch set-meta step 4 -i d1.dp -o d2.dp
    exits 65 verl-batch concat d0.dp d2.dp -o never.dp 2>err; grep -q 'meta_info key step: 3, and 4 in part 1' err
    verl-batch drop -k a -i c1.dp -o d3.dp
    exits 65 verl-batch concat c0.dp d3.dp -o never.dp 2>err; grep -q 'column a of part 0 is not in part 1' err
    exits 64 verl-batch concat -i x.dp 2>err"
ok "union: equal columns or 65" "
    verl-batch map -f '.a = 9' -i x.dp -o y.dp
    exits 65 verl-batch union x.dp y.dp -o never.dp 2>err; grep -q 'column a differs at row 0' err
    [ ! -e never.dp ]"
ok "-i twice unites columns by (uid, sample)" "
    verl-batch select -k uid,sample,a -i x.dp -o p.dp
    verl-batch drop -k a -i x.dp | verl-batch reorder 4,2,0,1,3 -o q.dp
    verl-batch select -k uid,sample,a,s,responses -i p.dp -i q.dp -o o.dp
    verl-dump diff o.dp x.dp
    exits 65 verl-batch select -i x.dp -i y.dp -o never.dp 2>err
    grep -q 'column a differs from the first' err"
ok "filter: rows for which the jq filter is true, counted" "
    verl-batch filter '.a > 2' -i x.dp -o o.dp 2>err
    is \"\$(col o.dp a)\" '2.5 3.5 4.5 '
    grep -q 'filter: 2 of 5 rows dropped' err
    verl-dump --meta o.dp | jq -e '.metrics[\"filter/dropped_rows\"] == 2' >/dev/null
    exits 65 verl-batch filter '.a.b' -i x.dp -o never.dp 2>err
    exits 64 verl-batch filter '.a >' -i x.dp -o never.dp 2>err"
cat >g.jsonl <<'EOF'
{"uid":"p0","sample":0,"acc":1.0,"token_level_scores":[0,1]}
{"uid":"p1","sample":0,"acc":0.0,"token_level_scores":[0,0]}
{"uid":"p0","sample":1,"acc":1.0,"token_level_scores":[1,0]}
{"uid":"p1","sample":1,"acc":1.0,"token_level_scores":[0,1]}
{"uid":"p2","sample":0,"acc":0.5,"token_level_scores":[0,0.5]}
EOF
verl-batch from-json g.jsonl -o g.dp
ok "filter-groups: prompts whose samples differ, and lone ones; 3 below the target" "
    verl-batch filter-groups --metric acc -i g.dp -o o.dp 2>err
    is \"\$(col o.dp uid)\" '\"p1\" \"p1\" \"p2\" '
    grep -q '2 of 3 prompts kept' err
    verl-batch filter-groups --metric seq_reward --target 1 -i g.dp -o o.dp
    is \"\$(col o.dp uid)\" '\"p1\" \"p1\" '
    verl-batch rename -q token_level_scores:rm_scores -i g.dp -o rm.dp
    verl-batch filter-groups --metric seq_reward --target 1 -i rm.dp -o o2.dp
    is \"\$(col o2.dp uid)\" '\"p1\" \"p1\" '
    exits 3 verl-batch filter-groups --metric acc --target 3 -i g.dp -o o.dp 2>err
    is \"\$(col o.dp uid)\" '\"p1\" \"p1\" \"p2\" '
    exits 65 verl-batch filter-groups --metric nope -i g.dp -o never.dp 2>err
    exits 64 verl-batch filter-groups -i g.dp -o never.dp 2>err"
ok "filter-groups: rows without a score or a valid token are not compared, rewards under the mask not read" "
    for r in 'p0 0 1 1 null' 'p0 1 1 1 null' 'p0 2 0 1 \"boom\"' 'p0 3 0 0 null' 'p1 0 0 1 null' 'p1 1 1 1 null' \
        'p1 2 0 1 \"boom\"' 'p2 0 0 1 \"boom\"' 'p3 0 1 1 null' 'p3 1 0 1 \"boom\"'; do
        set -- \$r
        jq -nc --arg u \$1 --argjson s \$2 --argjson a \$3 --argjson m \$4 --argjson e \"\$5\" '{ uid: \$u, sample: \$s,
            acc: (if \$e then null else \$a end), response_mask: [\$m, 0], token_level_scores: [(if \$e then \"NaN\" else \$a end), \"NaN\"],
            reward_error: \$e }'
    done | verl-batch from-json --dtype acc=json -o un.dp
    for metric in acc seq_reward; do
        verl-batch filter-groups --metric \$metric -i un.dp -o o.dp 2>err
        is \"\$(col o.dp uid)\" '\"p1\" \"p1\" \"p1\" '
        grep -q '5 rows without a score or a valid token' err
    done"
ok "balance: equal slices of near equal work" "
    printf '%s\n' '[1,1,1,1]' '[1,1,1,0]' '[1,0,0,0]' '[1,1,0,0]' |
        jq -c '{attention_mask: .}' | verl-batch from-json -o b.dp
    verl-batch balance 2 -i b.dp -o o.dp
    verl-dump o.dp | jq -c '.attention_mask | add' | tr '\n' ' ' >out
    grep -qE '^(4 1|1 4|3 2|2 3) (4 1|1 4|3 2|2 3) ' out"
ok "map -f: a row stays a row; types stay" "
    verl-batch map -f '.a *= 2 | .s = (.s | ascii_upcase)' -i x.dp -o o.dp
    is \"\$(col o.dp a)\" '1 3 5 7 9 '
    is \"\$(col o.dp s)\" '\"R0\" \"R1\" \"R2\" \"R3\" \"R4\" '
    verl-dump --schema o.dp | jq -e '.columns[2].dtype == \"F32\"' >/dev/null
    verl-batch map -f . -i x.dp -o o.dp; cmp o.dp x.dp
    exits 65 verl-batch map -f 'select(.a > 2)' -i x.dp -o never.dp 2>err
    exits 65 verl-batch map -f '.new = 1' -i x.dp -o never.dp 2>err; grep -q 'dtype new=I64' err
    verl-batch map -f '.new = 1' --dtype new=I32 -i x.dp -o o.dp
    exits 64 verl-batch map -i x.dp 2>err"
ok "map --command: any program from batch to batch" "
    verl-batch map --command cat -i x.dp -o o.dp; verl-dump diff o.dp x.dp
    verl-batch map --command 'verl-batch map -f .a+=1' -i x.dp -o o.dp
    is \"\$(col o.dp a)\" '1.5 2.5 3.5 4.5 5.5 '
    exits 65 verl-batch map --command 'exit 3' -i x.dp -o never.dp 2>err; grep -q 'status 3' err
    exits 65 verl-batch map --command 'verl-batch slice :1' -i x.dp -o never.dp 2>err; grep -q '1 rows of 5' err
    exits 65 verl-batch map --command 'echo hello' -i x.dp -o never.dp 2>err
    [ ! -e never.dp ]"
ok "dump, jq, from-json --like: the same bytes when jq changes nothing" "
    verl-batch set-meta temperature 1.0 pad_token_id 7 -i x.dp -o m.dp
    verl-dump m.dp | jq -c . | verl-batch from-json --like m.dp -o o.dp
    cmp o.dp m.dp
    f=$REPO/tests/golden/dp/v1.dp
    verl-dump \$f | jq -c . | verl-batch from-json --like \$f -o o.dp
    verl-dump diff o.dp \$f"
ok "from-json --like: widths, padding, order, meta from the file" "
    verl-dump m.dp | jq -c 'if .sample == 0 then .responses = [5] else . end | {responses, uid, sample}' |
        verl-batch from-json --like m.dp -o o.dp
    is \"\$(col o.dp responses)\" '[5,7] [1,2] [5,7] [3,4] [5,7] '
    is \"\$(verl-dump --schema o.dp | jq -c '[.columns[].name], .meta_info.temperature')\" '[\"uid\",\"sample\",\"responses\"]
1'
    verl-dump m.dp | jq -c '.responses += [1]' | exits 65 verl-batch from-json --like m.dp -o never.dp 2>err
    grep -q 'standard input:1: responses: 3 tokens, but the width is 2' err
    verl-dump m.dp | jq -c '.sample = 0.5' | exits 65 verl-batch from-json --like m.dp -o never.dp 2>err
    grep -q 'sample: 0.5 is no value of type I64' err
    : | exits 65 verl-batch from-json --like m.dp -o never.dp 2>err; grep -q -- --allow-empty err
    : | verl-batch from-json --like m.dp --allow-empty -o o.dp
    verl-dump --schema o.dp | jq -e '.rows == 0 and (.columns | length) == 5' >/dev/null"
ok "from-json: a list over the response is as long as the row's responses, else the width" '
    printf "%s\n" "{\"prompts\":[4],\"responses\":[6,7,8],\"advantages\":[1.5,2,3]}" \
        "{\"prompts\":[4],\"responses\":[6,7],\"advantages\":[1.5,2]}" | verl-batch from-json -o r.dp
    [ "$(verl-dump r.dp | jq -c .advantages | tr "\n" " ")" = "[1.5,2,3] [1.5,2,0] " ]
    bad() { verl-dump r.dp | jq -c "$1" | exits 65 verl-batch from-json --like r.dp -o never.dp 2>err; }
    bad ".advantages |= .[1:]"; grep -q "1: advantages: 2 values, but the responses of the row are 3" err
    bad "{advantages: .advantages[1:]}"; grep -q "1: advantages: 2 values, but the width by --like is 3" err
    bad "{advantages: (.advantages + [1])}"; grep -q "1: advantages: 4 tokens" err
    bad ".advantages = 1.5"'
ok "from-json without it: the dictionary, else the values; integers alone are refused" "
    printf '%s\n' '{\"prompts\":[4,5],\"responses\":[6,7,8],\"values\":[1,2,3],\"uid\":7}' \
        '{\"prompts\":[4],\"responses\":[6],\"values\":[1],\"uid\":8}' | verl-batch from-json -o o.dp
    is \"\$(verl-dump --schema o.dp | jq -c '[.columns[] | .name + \" \" + .dtype]')\" \
        '[\"prompts I64\",\"responses I64\",\"values F32\",\"uid json\"]'
    is \"\$(col o.dp prompts)\" '[4,5] [0,4] '
    is \"\$(col o.dp responses)\" '[6,7,8] [6,0,0] '
    echo '{\"z\":1}' | exits 65 verl-batch from-json -o never.dp 2>err; grep -q -- '--dtype z=I64' err
    echo '{\"z\":1}' | verl-batch from-json --dtype z=F64 -o o.dp
    printf '%s\n' '{\"t\":\"x\",\"t\\u0000\":1.5}' | exits 65 verl-batch from-json -o never.dp 2>err
    printf '%s\n' '{\"t\":\"x\"}' '{\"t\":\"x\",\"t\\u0000\":1.5}' | exits 65 verl-batch from-json -o never.dp 2>err
    echo '{\"z\":1}' | exits 64 verl-batch from-json --dtype z=F31 -o never.dp 2>err
    printf '%s\n' '{\"t\":\"x\"}' '{\"u\":\"x\"}' | exits 65 verl-batch from-json -o never.dp 2>err
    grep -q 'standard input:2: t: no such member' err
    : | exits 65 verl-batch from-json -o never.dp 2>err
    [ ! -e never.dp ]"
ok "provenance has the commands, not the paths, and the same work gives the same bytes" "
    mkdir -p d; cp x.dp d/x.dp
    verl-batch slice :2 -i x.dp -o one.dp; (cd d; verl-batch slice :2 -i x.dp -o two.dp --threads 3)
    cmp one.dp d/two.dp
    verl-dump --provenance one.dp >said
    grep -q slice said
    not grep -q 'x\\.dp' said"
done_testing
