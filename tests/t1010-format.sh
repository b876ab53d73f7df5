#!/bin/sh
# The batch file seen by others: zstd, a reader and a writer made from the safetensors specification
# alone (st.pl), and golden files of every version, which must keep decoding.
. "$(dirname "$0")/lib.sh"
st() { perl "$REPO/tests/st.pl" "$@"; }
gold=$REPO/tests/golden/dp

for f in v1 v1-all; do
    ok "$f.dp decodes to what it did" "
        verl-dump '$gold/$f.dp' | cmp - '$gold/$f.jsonl'
        verl-dump --schema '$gold/$f.dp' | cmp - '$gold/$f.schema.json'
        verl-dump --check '$gold/$f.dp' | grep -q ': ok, '"
    ok "$f.dp: zstd -t, -l and -dc work" "
        zstd -q -t '$gold/$f.dp'
        zstd -l '$gold/$f.dp' | grep -q XXH64
        zstd -q -dc '$gold/$f.dp' >plain
        verl-dump plain | cmp - '$gold/$f.jsonl'"
done
ok "a stream is the concatenation of its documents" "
    verl-dump <'$gold/v1-stream.dps' | cmp - '$gold/v1-all.jsonl'"
ok "a saved stream is refused as a file, with the line that makes a batch of it" "
    exits 65 verl-dump '$gold/v1-stream.dps' 2>err
    grep -q 'verl-batch concat -o FILE - <' err
    verl-batch concat -o whole.dp - <'$gold/v1-stream.dps'
    verl-dump diff whole.dp '$gold/v1-all.dp'"

ok "an independent reader reads every column" "
    zstd -q -dc '$gold/v1.dp' >plain
    st dp plain >theirs
    verl-dump '$gold/v1.dp' >ours
    jq -cS . theirs >a
    jq -cS . ours >b
    cmp a b"
ok "elements are aligned and wide ones come first" "
    zstd -q -dc '$gold/v1-all.dp' >plain
    st read plain >list
    n=\$(wc -l <list); [ \$n -ge 15 ]
    perl -MJSON::PP -e 'local \$/; \$_ = <STDIN>; my \$n = unpack \"Q<\"; die if (8 + \$n) % 8;
        my \$h = decode_json(substr \$_, 8, \$n); delete \$h->{__metadata__};
        my %w = (I64=>8,U64=>8,F64=>8,I32=>4,U32=>4,F32=>4,I16=>2,U16=>2,F16=>2,BF16=>2,U8=>1,I8=>1,BOOL=>1);
        my \$last = 8;
        for (sort { \$a->{data_offsets}[0] <=> \$b->{data_offsets}[0] } grep { \$_->{data_offsets}[1] > \$_->{data_offsets}[0] } values %\$h) {
            die if \$w{\$_->{dtype}} > \$last or \$_->{data_offsets}[0] % \$w{\$_->{dtype}};
            \$last = \$w{\$_->{dtype}} }' <plain"

st write theirs.safetensors
cat >want <<'EOF'
{"flag":true,"info":{"k":0},"logp":[-0.5,-1],"prompts":[5,6]}
{"flag":false,"info":"two","logp":[-2,-0.25],"prompts":[0,7]}
{"flag":true,"info":null,"logp":[0,1],"prompts":[8,9]}
EOF
zstd -q theirs.safetensors -o theirs.dp
zstd -q -c <theirs.safetensors >piped.dp # without content size
ok "a safetensors file of others is a batch: as it is, and compressed" "
    for f in theirs.safetensors theirs.dp piped.dp; do
        verl-dump \$f | jq -cS . | cmp - want
        verl-dump <\$f | jq -cS . | cmp - want
        verl-dump --check \$f
        verl-dump -k info --rows 1:2 \$f | grep -qx '{\"info\":\"two\"}'
    done"
ok "read and written again it is the same batch" "
    verl-batch select -i theirs.dp -o ours.dp
    verl-dump diff theirs.dp ours.dp
    verl-dump --check theirs.dp | sed 's/.*hash //' >a
    verl-dump --schema ours.dp | jq -r .hash | cmp - a"
ok "to-safetensors writes what zstd -dc gives, but for the count of frames" "
    verl-batch to-safetensors -i ours.dp -o plain.safetensors
    st read plain.safetensors >a
    zstd -q -dc ours.dp >plain
    st read plain >b
    cmp a b"

ok "the same bytes for any number of threads" "
    verl-batch repeat 3000 -i '$gold/v1-all.dp' -o big.dp --threads 1
    verl-batch repeat 3000 -i '$gold/v1-all.dp' -o big3.dp --threads 3
    cmp big.dp big3.dp
    zstd -l big.dp | awk 'NR == 2 { exit !(\$1 > 15) }'
    zstd -q -t big.dp"
ok "a level changes the bytes and nothing else" "
    verl-batch select -i big.dp -o small.dp --level 9
    [ \$(wc -c <small.dp) -lt \$(wc -c <big.dp) ]
    verl-dump diff small.dp big.dp"
ok "a range of rows of some columns of a large file" "
    verl-dump -k I32,info,ragged --rows 20000:20003 big.dp >a
    verl-dump -k I32,info,ragged big.dp | sed -n 20001,20003p >b
    [ -s a ]
    cmp a b"
done_testing
