#!/bin/sh
# Damaged batch files: 65, one line on stderr, no output file. Writers: whole or not at all.
# (Every cut and flip of a small file is in tests/unit/test_dp_damage.c.)
. "$(dirname "$0")/lib.sh"
gold=$REPO/tests/golden/dp

# refused CMD...: status 65, exactly one line on stderr, nothing on stdout
refused() {
    exits 65 "$@" >out 2>err && [ "$(wc -l <err)" = 1 ] && [ ! -s out ] || {
        echo "out: $(head -c 200 out)"
        echo "err: $(head -c 400 err)"
        return 1
    }
}
for f in "$REPO"/tests/bad/dp/*; do
    case ${f##*/} in
    good* | stream) continue ;;
    esac
    ok "bad file ${f##*/}: 65, named and through a pipe" "
        refused verl-dump --check '$f'
        cat '$f' | refused verl-dump --check
        refused verl-batch select -i '$f' -o new.dp
        [ ! -e new.dp ]"
done

verl-batch repeat 400 -i "$gold/v1-all.dp" -o big.dp
cat >hurt.pl <<'EOF'
# hurt.pl cut|flip COUNT FILE: runs verl-dump --check on COUNT damaged copies, by turns as a file and
# through a pipe; prints each that is not refused with 65 and one line.
use strict; use warnings;
my ($how, $count, $file) = @ARGV;
open my $f, '<:raw', $file or die; my $all = do { local $/; <$f> };
my ($n, $bad) = (length $all, 0);
my $entries = unpack 'L<', substr $all, $n - 9, 4;
my $table = 8 + 12 * $entries + 9;
my @at; # cuts: between frames, just before the table, before the hash frame
if ($how eq 'cut') {
    my $end = 0;
    for my $i (0 .. $entries - 1) { push @at, $end += unpack 'L<', substr $all, $n - $table + 8 + 12 * $i, 4 }
    @at = (@at[0 .. 20], $n - $table, $n - $table - 32, $n - 1, 0);
}
srand 7;
for my $k (0 .. $count - 1) {
    my $copy = $all;
    my $where = $how eq 'cut' ? ($k < @at ? $at[$k] : int rand $n) : int rand 8 * $n;
    $where = 8 * ($n - $table - 32) + int rand 8 * ($table + 32) if $how eq 'flip' && $k % 4 == 0;
    if ($how eq 'cut') { $copy = substr $all, 0, $where }
    else { substr($copy, $where >> 3, 1) ^= chr(1 << ($where & 7)) }
    open my $o, '>:raw', 'hurt.dp' or die; print $o $copy; close $o;
    my $line = $k % 2 ? 'cat hurt.dp | verl-dump --check' : 'verl-dump --check hurt.dp';
    my $rc = system("$line >hurt.out 2>hurt.err") >> 8;
    open my $e, '<', 'hurt.err'; my @lines = <$e>;
    next if $rc == 65 && @lines == 1 && !-s 'hurt.out';
    print "$how at $where ($line): status $rc, @lines\n"; $bad = 1;
}
exit $bad;
EOF
ok "200 cuts, between frames and just before the table among them" "perl hurt.pl cut 200 big.dp"
ok "200 flipped bits, a quarter of them in hash frame and table" "perl hurt.pl flip 200 big.dp"

ok "a header that promises 10 TB costs no memory" "
    (ulimit -v 3000000; refused verl-dump --check '$REPO/tests/bad/dp/ten_terabytes')
    (ulimit -v 3000000; refused verl-dump --check '$REPO/tests/bad/dp/ten_terabytes_zstd')"
ok "the writer of a pipe was killed: 65 downstream" "
    (verl-batch select -i big.dp | head -c 3000) | refused verl-dump"
ok "a file that is not there is 66, a directory too" "
    exits 66 verl-dump none.dp 2>err
    exits 66 verl-dump . 2>err"

ok "a full disk is 74, in place and on standard output" "
    exits 74 verl-batch select -i big.dp -o /dev/full 2>err
    [ \$(wc -l <err) = 1 ]
    exits 74 verl-batch select -i big.dp >/dev/full 2>err
    exits 74 verl-dump big.dp >/dev/full 2>err
    [ -c /dev/full ]"
ok "a batch whose reader goes away is 74" "
    { while [ ! -e gone ]; do sleep 0.02; done
        verl-batch select -i big.dp 2>err || echo \$? >rc; } | { exec <&-; : >gone; }
    [ \$(cat rc) = 74 ]; grep -q 'Broken pipe' err"
ok "an output directory that is not there is 73" "
    exits 73 verl-batch select -i big.dp -o no/such/dir.dp 2>err
    [ \$(wc -l <err) = 1 ]"
ok "a FIFO is written in place, and a link stays a link" "
    mkfifo fifo
    verl-dump --check fifo >out & verl-batch select -i big.dp -o fifo; wait \$!
    grep -q ok out
    ln -s real.dp link.dp
    verl-batch select -i big.dp -o link.dp
    [ -L link.dp ]
    [ ! -L real.dp ]
    verl-dump diff link.dp big.dp"
ok "-o may be the input" "
    cp '$gold/v1.dp' same.dp
    verl-batch repeat 2 -i same.dp -o same.dp
    verl-dump --check same.dp >/dev/null
    [ \$(verl-dump same.dp | wc -l) = 8 ]"

# stopped AT...: starts verl-batch, waits until it has stopped itself there, kills it
stopped() {
    VL_STOP_AT=$1 verl-batch select -i big.dp -o "$2" &
    pid=$!
    for i in $(seq 200); do
        case $(cut -d' ' -f3 /proc/$pid/stat 2>/dev/null) in T) break ;; esac
        sleep 0.02
    done
    kill -9 $pid
    wait $pid 2>/dev/null || :
}
for at in before-fsync before-rename; do
    ok "kill -9 at $at: nothing under the final name, an older file untouched" "
        stopped $at fresh.dp
        [ ! -e fresh.dp ]
        cp '$gold/v1.dp' older.dp
        stopped $at older.dp
        cmp older.dp '$gold/v1.dp'"
done
ok "kill -9 at after-rename: the new file, whole" "
    stopped after-rename older.dp
    cmp older.dp big.dp"
done_testing
