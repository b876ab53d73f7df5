#!/bin/sh
# The fuzz targets over their corpora, with sanitizers where that build is there.
. "$(dirname "$0")/lib.sh"

dir=$BUILD/fuzz
[ -d "$REPO/build-san/fuzz" ] && dir=$REPO/build-san/fuzz
ls "$dir"/fuzz_* >/dev/null 2>&1 || skip_all "no fuzz targets are built (make fuzz)"
for f in "$dir"/fuzz_*; do
    name=${f##*/fuzz_}
    case $name in *.*) continue ;; esac
    ok "fuzz_$name has a corpus and gets through it" "
        [ -d '$REPO/tests/bad/$name' ]
        exits 0 '$f' '$REPO/tests/bad/$name'"
done
done_testing
