#!/usr/bin/perl
# st.pl - safetensors from its specification alone, independent of our code.
#   st.pl read FILE           one line a tensor: name, dtype, shape, values (bytes of U8 as text)
#   st.pl dp FILE             a batch file's rows as JSON lines, as verl-dump prints integers and text
#   st.pl write FILE          a small batch as another program would write it
use strict;
use warnings;
use JSON::PP;

my %code = (U8 => 'C', BOOL => 'C', I8 => 'c', I16 => 's<', U16 => 'S<', I32 => 'l<', U32 => 'L<',
            F32 => 'f<', I64 => 'q<', U64 => 'Q<', F64 => 'd<', F16 => 'S<', BF16 => 'S<');
my ($what, $file) = @ARGV;

sub slurp { local $/; open my $f, '<:raw', $_[0] or die "$_[0]: $!\n"; <$f> }

sub load {
    my $all = slurp($file);
    my $n = unpack 'Q<', $all;
    my $h = decode_json(substr $all, 8, $n);
    my $data = substr $all, 8 + $n;
    my $meta = delete $h->{__metadata__};
    my ($end, %t) = (0);
    for my $name (sort { $h->{$a}{data_offsets}[0] <=> $h->{$b}{data_offsets}[0] } keys %$h) {
        my ($a, $b) = @{$h->{$name}{data_offsets}};
        die "$name: hole or overlap at $a\n" if $b > $a && $a != $end;
        $end = $b;
        $t{$name} = { %{$h->{$name}}, bytes => substr($data, $a, $b - $a) };
    }
    die "data ends at $end, not at " . length($data) . "\n" if $end != length $data;
    return ($meta, \%t);
}

sub numbers { my $t = shift; [unpack "($code{$t->{dtype}})*", $t->{bytes}] }

sub nest { # a flat list as nested lists of these dimensions
    my ($list, @dim) = @_;
    return shift @$list unless @dim;
    my $n = shift @dim;
    return [map { nest($list, @dim) } 1 .. $n];
}

if ($what eq 'read') {
    my ($meta, $t) = load();
    for (sort keys %$t) {
        my $v = $t->{$_}{dtype} eq 'U8' ? $t->{$_}{bytes} : join ' ', @{numbers($t->{$_})};
        print "$_ $t->{$_}{dtype} (@{$t->{$_}{shape}}) $v\n";
    }
} elsif ($what eq 'dp') {
    my ($meta, $t) = load();
    my $json = JSON::PP->new->allow_nonref;
    my $columns = decode_json($meta->{columns});
    for my $i (0 .. $meta->{batch_size} - 1) {
        my @out;
        for my $c (@$columns) {
            if (my $o = $t->{"non_tensor_offsets/$c"}) {
                my $at = numbers($o);
                push @out, "\"$c\":" . substr $t->{"non_tensor_batch/$c"}{bytes}, $at->[$i],
                    $at->[$i + 1] - $at->[$i];
            } else {
                my ($b, @dim) = @{$t->{$c}{shape}};
                my $rows = nest(numbers($t->{$c}), $b, @dim);
                push @out, "\"$c\":" . $json->encode($rows->[$i]);
            }
        }
        print '{', join(',', @out), "}\n";
    }
} elsif ($what eq 'write') {
    my $info = ['{"k":0}', '"two"', 'null'];
    my ($at, @off) = (0, 0);
    push @off, $at += length for @$info;
    my @t = (
        ['prompts', 'I64', [3, 2], pack('q<*', 5, 6, 0, 7, 8, 9)],
        ['flag', 'BOOL', [3], pack('C*', 1, 0, 1)],                  # narrow before wide: legal
        ['logp', 'F32', [3, 2], pack('f<*', -0.5, -1, -2, -0.25, 0, 1)],
        ['non_tensor_batch/info', 'U8', [$at], join '', @$info],
        ['non_tensor_offsets/info', 'I64', [4], pack('q<*', @off)],
    );
    my ($pos, %h) = (0);
    for (@t) {
        $h{$_->[0]} = { dtype => $_->[1], shape => $_->[2], data_offsets => [$pos, $pos + length $_->[3]] };
        $pos += length $_->[3];
    }
    my $text = encode_json(\%h);
    open my $f, '>:raw', $file or die "$file: $!\n";
    print $f pack('Q<', length $text), $text, map { $_->[3] } @t;
    close $f or die "$file: $!\n";
} else {
    die "st.pl read|dp|write FILE\n";
}
