#!/bin/sh
# Assertions in these scripts that could not fail: tests/lint.pl says which and why.
. "$(dirname "$0")/lib.sh"
command -v perl >/dev/null || skip_all "no perl to read them with"

ok "no assertion is passed over by set -e" '
    perl "$REPO/tests/lint.pl" "$REPO"/tests/*.sh >said || { cat said; false; }
    [ "$(tail -n 1 said | cut -d" " -f1)" -gt 500 ]'
ok "what it refuses, and what it lets pass" '
    cat >bad.sh <<"END"
ok "1" "! grep -q x y
    true"
ok "2" "a && b"
ok "3" '\''for i in 1 2; do [ $i ] && b; done'\''
ok "4" "exits 65 a | grep b"
ok "5" "[ \"\$(hash a)\" = \"\$(hash b)\" ]"
ok "6" "verl-dump a.dp | jq -e .x"
ok "7" "if a; then b && c; fi"
ok "8" "a || b && c"
f() {
    ! a
    for i in 1 2; do a && b; done
    d && e
}
END
    exits 1 perl "$REPO/tests/lint.pl" bad.sh >said
    cut -d: -f2 said | paste -sd" " | grep -qx "11 12 1 3 4 5 6 7 8 9 8 blocks"
    cat >good.sh <<"END"
ok "1" "not grep -q x y # ! a && b
    [ ! -e x ]
    a && b || { cat log; false; }"
f() {
    [ -s a ] && return 0
    [ ! -e b ] && for i in 1; do c && continue; done || d
    a && b
}
a && b
ok "2" "f() { a && b; }
    f
    (cd x && a)"
ok "3" "if ! a && b; then c; fi
    while ! a; do b; done"
ok "4" "a | exits 65 b
    awk '\''a && b { print }'\'' x"
ok "5" "cat <<E
! a && b
E
    [ \$(echo \$x | wc -l) = \$(echo 1 && echo 2) ]
    verl-dump --meta a.dp | jq -e .x
    case \$x in a) b ;; *) c ;; esac"
END
    perl "$REPO/tests/lint.pl" good.sh'
ok "not and equal can fail" '
    exits 1 not true
    exits 1 not sh -c "exit 2"
    exits 1 not no-such-program
    not false
    exits 1 equal "$(false)" "$(false)"
    exits 1 equal null null
    exits 1 equal 1 2
    equal "1 2" "1 2"'
done_testing
