#!/bin/sh
# Each program has a man page that mandoc accepts and that names the options of --help.
. "$(dirname "$0")/lib.sh"

# Long options of --help, those of its own (before "Common options") or all.
help_options() {
    "$1" --help | awk -v all="$2" '/^Common options/ && !all { skip = 1 } !skip { print }' |
        sed -n 's/^  \(    \|-., \)\(--[a-z0-9][a-z0-9-]*\).*/\2/p' | sort -u
}
man_options() {
    # .It Fl t , Fl -temperature Ar X
    sed -n '/^\.It /p' "$1" | grep -o 'Fl -[a-z0-9][a-z0-9-]*' | sed 's/Fl -/--/' | sort -u
}

for f in "$BUILD"/bin/verl-*; do
    p=${f##*/}
    page=$REPO/man/$p.1
    ok "$p has a man page" "[ -f '$page' ]"
    [ -f "$page" ] || continue
    [ -L "$page" ] && continue # a second name of another page
    ok "$p(1) has its sections" "
        for s in SYNOPSIS DESCRIPTION OPTIONS 'EXIT STATUS' EXAMPLES 'SEE ALSO'; do
            grep -q \"^\\.Sh \$s\" '$page' || { echo \"no section \$s\"; false; }
        done"
    ok "$p(1) names every option of --help and no other" "
        help_options $p '' >own
        help_options $p 1 >all
        man_options '$page' >man
        comm -23 own man >missing
        # a page may list a switch in the form that changes something: --no-name
        comm -13 all man | while read -r o; do
            grep -qx -e \"--\${o#--no-}\" all || echo \"\$o\"
        done >extra
        sed 's/^/not in the page: /' missing
        sed 's/^/not in --help: /' extra
        [ ! -s missing ]
        [ ! -s extra ]"
done

# Cells of -column lists that leave no room before the next column. Fl and Ns change no length by much.
wide_cells='
    function text(s, n, w, i, out) {
        n = split(s, w, " ")
        for (i = 1; i <= n; i++) {
            if (w[i] == "Xr") { out = out " " w[i + 1] "(" w[i + 2] ")"; i += 2 }
            else if (w[i] ~ /^[,.;:)]$/) out = out w[i]
            else if (w[i] ~ /^(Dq|Pq|Op|Ql)$/) out = out "xx"
            else if (w[i] !~ /^(Li|Em|Ar|Fl|Cm|Pa|No|Sy|Va|Ns)$/) out = out " " w[i]
        }
        sub(/^ /, "", out)
        gsub(/\\[-e&]/, "x", out)
        return out
    }
    /^\.Bl .*-column/ {
        columns = split($0, part, "\"")
        for (i = 2; i <= columns; i += 2) width[i / 2] = part[i]
        columns = int(columns / 2)
    }
    /^\.El/ { columns = 0 }
    columns && /^\.It / {
        sub(/^\.It /, "")
        m = split($0, part, / +Ta +/)
        for (i = 1; i < m; i++)
            if (i > columns || length(text(part[i])) > length(width[i]))
                print FILENAME ":" FNR ": \"" text(part[i]) "\" is wider than its column"
    }'
ok 'tables of man pages have room for what is in them' '
    awk "$wide_cells" "$REPO"/man/*.[1-8] >wide
    cat wide
    [ ! -s wide ]
    printf ".Bl -column \"abc\" \"d\"\n.It Li abcd Ta I64 Ta x\n.El\n" >bad.7
    awk "$wide_cells" bad.7 | grep -c wider | grep -qx 2'
ok 'no quote or bracket of a page runs on to the end of a line that has another' '
    not grep -nE "^\.[A-Z][a-z] .*\\<(Dq|Ql|Pq|Sq) [^ ]+ (, |or |and )*(Dq|Ql|Pq|Sq) " "$REPO"/man/*.[1-8]
    not grep -nE "^\.It .* Ta .*(Dq|Ql|Pq|Sq) .* [^.,]" "$REPO"/man/*.[1-8]'
ok 'no page is a request for another by name, which finds it in one place only' '
    not grep -l "^\.so" "$REPO"/man/*.[1-8]'
if command -v mandoc >/dev/null; then
    ok 'mandoc has nothing to say of any page' '
        mandoc -T lint -W warning "$REPO"/man/*.[1-8]'
else
    skip "mandoc is not installed"
fi
if command -v groff >/dev/null; then
    ok 'groff has nothing to say of any page' '
        groff -mdoc -ww -z -Tutf8 -rLL=78n "$REPO"/man/*.[1-8] 2>warnings
        cat warnings
        [ ! -s warnings ]'
else
    skip "groff is not installed"
fi
done_testing
