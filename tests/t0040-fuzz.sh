#!/bin/sh
# Every fuzz target over its corpus, by its sanitized build where that is there.
. "$(dirname "$0")/lib.sh"

[ -d "$BUILD/fuzz" ] || [ -d "$REPO/build-san/fuzz" ] ||
    skip_all "no fuzz targets are built (make fuzz)"
for f in "$REPO"/tests/fuzz/fuzz_*.c; do
    name=$(basename "$f" .c)
    name=${name#fuzz_}
    target=$REPO/build-san/fuzz/fuzz_$name
    [ -x "$target" ] || target=$BUILD/fuzz/fuzz_$name
    ok "fuzz_$name has a corpus and gets through it" "
        [ -d '$REPO/tests/bad/$name' ]
        exits 0 '$target' '$REPO/tests/bad/$name'"
done
done_testing
