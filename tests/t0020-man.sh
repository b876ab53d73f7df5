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
    case $(head -n 1 "$page") in .so*) continue ;; esac # a second name of another page
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

if command -v mandoc >/dev/null; then
    for page in "$REPO"/man/*.[1-8]; do
        case $(head -n 1 "$page") in .so*) continue ;; esac
        ok "mandoc accepts ${page##*/}" "mandoc -T lint -W error '$page'"
    done
else
    skip "mandoc is not installed"
fi
done_testing
