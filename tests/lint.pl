# lint.pl FILE... - assertions in tests/t*.sh that cannot fail. `ok` runs its commands under `set -e`,
# which passes over a failure in `! cmd`, in all but the last command of `a && b`, and in all but the
# last of a pipeline; so those are refused in blocks and in functions: `not cmd`, a line for each, a
# file between the two. `a && b || { cat log; false; }` and `a && return` are fine, and so is a list
# that gives a function or subshell its status. Refused as well: `[ $(a) = $(b) ]`, which two failures
# satisfy, and jq -e on the rows of a verl-dump, whose status is that of the last row.
use strict;
use warnings;

my $file;
my ($bad, $blocks) = (0, 0);
my (@tok, $at);    # tokens: [text, line, is a word]

# Skips what a shell word may hold at pos($$s): quotes, $(...), ${...}; returns nothing.
sub quoted {
    my ($s, $close) = @_;    # up to and with $close: ' " ) } `
    while ($$s =~ /\G(.)/gcs) {
        my $c = $1;
        return if $c eq $close;
        next if $close eq "'";
        if ($c eq '\\') { $$s =~ /\G./gcs }
        elsif ($c eq '$' && $$s =~ /\G\(/gc) { quoted($s, ')') }
        elsif ($c eq '$' && $$s =~ /\G\{/gc) { quoted($s, '}') }
        elsif ($c eq '(' && $close eq ')') { quoted($s, ')') }
        elsif ($c eq '"' || $c eq '`' || $c eq "'" && $close eq ')') { quoted($s, $c) }
    }
}

sub lex {
    my ($text, $line) = @_;
    my (@out, @here);
    pos($text) = 0;
    while (pos($text) < length $text) {
        my $from = pos $text;
        if ($text =~ /\G(?:[ \t]+|\\\n)/gc || $text =~ /\G#[^\n]*/gc) { }
        elsif ($text =~ /\G\n/gc) {
            push @out, ["\n", $line, 0];
            while (my $end = shift @here) { $text =~ /\G.*?^\t*\Q$end\E(?:\n|\z)/gcms }
        }
        elsif ($text =~ /\G(&&|\|\||;;|[;&|()])/gc) { push @out, [$1, $line, 0] }
        else {
            while (1) {
                if ($text =~ /\G<<-?[ ]*(['"]?)(\w+)\1/gc) { push @here, $2 }
                elsif ($text =~ /\G[<>]&?/gc) { }
                elsif ($text =~ /\G\$\(/gc) { quoted(\$text, ')') }
                elsif ($text =~ /\G\$\{/gc) { quoted(\$text, '}') }
                elsif ($text =~ /\G(['"`])/gc) { quoted(\$text, $1) }
                elsif ($text =~ /\G\\./gcs || $text =~ /\G[^ \t\n;&|()<>'"`\\\$]+/gc || $text =~ /\G\$/gc) { }
                else { last }
            }
            die "$file:$line: cannot read this" if pos($text) == $from;
            push @out, [substr($text, $from, pos($text) - $from), $line, 1];
        }
        $line += substr($text, $from, pos($text) - $from) =~ tr/\n//;
    }
    return @out;
}

sub word { return $at < @tok ? $tok[$at][0] : '' }
sub newlines { $at++ while $at < @tok && $tok[$at][0] =~ /^[\n;&]$/ }
sub blanks { $at++ while $at < @tok && $tok[$at][0] eq "\n" }

sub say_bad {
    my ($line, $what) = @_;
    print "$file:$line: $what\n";
    $bad++;
}

my %stop = map { $_ => 1 } qw[then do done else elif fi esac } ) ;;], "";

# list WHERE: 'cond' (a status is asked for), 'tail' (the last status is that of a function or
# subshell), 'body'.
sub list {
    my ($where) = @_;
    my @last;
    for (newlines(); !$stop{ word() }; newlines()) {
        say_bad(@last) if @last;
        @last = and_or($where);
    }
    say_bad(@last) if @last && $where ne 'tail';
}

sub and_or {
    my ($where) = @_;
    my ($line, $and) = ($tok[$at][1], 0);
    pipeline($where);
    while (word() eq '&&' || word() eq '||') {
        $and = word() eq '&&';
        $line = $tok[$at][1] if $and;
        $at++;
        blanks();
        $and = 0 if word() =~ /^(?:break|continue|return|exit)$/;    # a decision
        pipeline($where);
    }
    return $and && $where ne 'cond' ? ($line, '&& hides a failure: a line for each assertion, or if') : ();
}

sub pipeline {
    my ($where) = @_;
    if (word() eq '!') {
        say_bad($tok[$at][1], '! cannot fail under set -e: not CMD') if $where ne 'cond';
        $at++;
    }
    my $first = $at;
    command($where);
    while (word() eq '|') {
        my $cmd = join ' ', map { $$_[0] } @tok[$first .. $at - 1];
        say_bad($tok[$first][1], "the pipeline hides the status of: $cmd")
            if $where ne 'cond' && $cmd =~ /^(?:exits|not|cmp|diff|test|\[|grep -\w*q)(?= )/;
        $at++;
        blanks();
        $first = $at;
        command($where);
    }
}

sub need {
    my ($w) = @_;
    newlines() if $w ne ')';
    die "$file:" . ($tok[$at] ? $tok[$at][1] : 'end') . ": '" . word() . "' where $w was due\n" if word() ne $w;
    $at++;
}

sub redirected { $at++ while $at < @tok && $tok[$at][2] && $tok[$at][0] =~ /^\d?[<>]/ || $at && $tok[$at - 1][0] =~ /^\d?[<>]{1,2}$/ && $at < @tok && $tok[$at][2] }

# Whether the pipe at $end brings a verl-dump of many rows.
sub rows {
    my ($end) = @_;
    return 0 if $end < 1 || $tok[$end][0] ne '|';
    my $i = $end;
    $i-- while $i > 0 && $tok[$i - 1][2];
    my $cmd = join ' ', map { $$_[0] } @tok[$i .. $end - 1];
    return $cmd =~ /^verl-dump / && $cmd !~ / --(?:meta|schema|provenance)\b| -n 1\b/;
}

sub command {
    my ($where) = @_;
    my $w = word();
    my $in = $where eq 'tail' ? 'body' : $where;
    if ($w eq 'if') {
        do { $at++; list('cond'); need('then'); list($in) } while word() eq 'elif';
        if (word() eq 'else') { $at++; list($in) }
        need('fi');
    }
    elsif ($w eq 'while' || $w eq 'until') { $at++; list('cond'); need('do'); list($in); need('done') }
    elsif ($w eq 'for') { $at++ while word() ne 'do'; $at++; list($in); need('done') }
    elsif ($w eq 'case') {
        $at++ while word() ne 'in';
        for ($at++, newlines(); word() ne 'esac'; newlines()) {
            $at++ while word() ne ')';
            $at++;
            list($in);
            $at++ if word() eq ';;';
        }
        $at++;
    }
    elsif ($w eq '{') { $at++; list($where eq 'tail' ? 'tail' : $in); need('}') }
    elsif ($w eq '(') { $at++; list($where eq 'cond' ? 'cond' : 'tail'); need(')') }
    elsif (($tok[$at + 1] || [''])->[0] eq '(' && ($tok[$at + 2] || [''])->[0] eq ')') {
        $at += 3;
        blanks();
        command('tail');
    }
    else {
        my $from = $at;
        $at++ while $at < @tok && $tok[$at][2];
        my $cmd = join ' ', map { $$_[0] } @tok[$from .. $at - 1];
        say_bad($tok[$from][1], 'two commands that fail are equal here: equal "$(a)" "$(b)"')
            if $cmd =~ /^(?:\[|test) "?\$\((?!echo).* = "?\$\((?!echo|\[).*\)"? \]?$/ && $cmd !~ /wc -l/;
        say_bad($tok[$from][1], 'jq -e tells of the last row alone: jq -es "length > 0 and all(...)"')
            if $cmd =~ /^jq -e / && rows($from - 1);
        return;
    }
    redirected();
}

sub commands {
    my $where = shift;
    @tok = @_;
    $at = 0;
    list($where);
    die "$file:" . $tok[$at][1] . ": '" . word() . "' was not due\n" if $at < @tok;
}

for (@ARGV) {
    $file = $_;
    open my $in, '<', $file or die "$file: $!\n";
    my @all = lex(join('', <$in>), 1);
    commands('cond', @all);    # outside of the blocks, functions alone
    for my $i (0 .. $#all) {
        next unless $all[$i][0] eq 'ok' && $i + 2 < @all && $all[$i + 1][2];
        my ($title, $script, $line) = ($all[$i + 1], @{ $all[$i + 2] });
        next unless $script =~ /^(['"])/;
        # one pair of quotes, or several joined as in '...'\''...'
        my $code = '';
        pos($script) = 0;
        while (pos($script) < length $script) {
            if ($script =~ /\G'([^']*)'/gc) { $code .= $1 }
            elsif ($script =~ /\G"/gc) {
                my $from = pos $script;
                quoted(\$script, '"');
                my $part = substr $script, $from, pos($script) - $from - 1;
                $part =~ s/\\([\\"\$`])/$1/g;
                $code .= $part;
            }
            elsif ($script =~ /\G\\(.)/gcs || $script =~ /\G([^'"\\]+)/gc) { $code .= $1 }
        }
        $blocks++;
        commands('body', lex($code, $line));
    }
}
print "$blocks blocks\n";
exit($bad > 0);
