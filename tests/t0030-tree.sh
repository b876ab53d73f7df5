#!/bin/sh
# Who may include whom: cmd -> libverl -> formats -> libverl/base; kernels see the backend and
# communication headers alone.
. "$(dirname "$0")/lib.sh"
cd "$REPO" || exit 1

# includes FILES...: "file included" for each #include "..."
includes() {
    grep -H '^#[ ]*include "' "$@" /dev/null | sed 's/^\([^:]*\):.*"\(.*\)".*/\1 \2/'
}
# only TITLE 'pattern of allowed names' FILES...
only() {
    title=$1 allowed=$2
    shift 2
    includes "$@" | grep -Ev "^[^ ]+ ($allowed)" >"$T/broken"
    ok "$title" "cat '$T/broken'; [ ! -s '$T/broken' ]"
}

only "libverl/base includes base (jq.c also our JSON scanner)" 'libverl/base/' \
    $(ls libverl/base/*.[ch] | grep -v '/jq\.c$')
only "libverl/base/jq.c" 'libverl/base/|formats/json\.h' libverl/base/jq.c
only "formats include formats, base and the batch in memory" 'formats/|libverl/base/|libverl/batch/' \
    formats/*.[ch]
only "libverl/algo: arrays in, arrays out; no files, no ranks" 'libverl/algo/|libverl/base/' \
    libverl/algo/*.[ch]
only "libverl/comm includes base" 'libverl/comm/|libverl/base/' libverl/comm/*.[ch]
only "libverl includes libverl and formats" 'libverl/|formats/' libverl/*/*.[ch]
only "only libverl/run knows what a stage is" 'libverl/(base|batch|text|model|engine|algo|reward|comm)/|formats/' \
    $(ls libverl/*/*.[ch] | grep -v '^libverl/run/')
only "cmd includes libverl and formats" 'libverl/|formats/|cmd/' cmd/*.[ch]
for d in kernels/*/; do
    d=${d%/}
    [ -d "$d" ] || continue
    only "$d includes the backend and communication headers" \
        "libverl/engine/backend\.h|libverl/comm/|libverl/base/|$d/|[a-z0-9_]+\.c?u?h" "$d"/*.[ch]*
done

ok "make -j demo and make -j check build without a word about job servers, and pass on variables" '
    mkdir "$T/m" "$T/m/scripts"
    cp scripts/demo scripts/check "$T/m/scripts"
    printf "#!/bin/sh\n" >"$T/m/scripts/bootstrap"
    chmod +x "$T/m/scripts/bootstrap"
    printf "all:\n\t@echo built V=\$(V); exit 3\ndemo check:\n\tscripts/\$@\n" >"$T/m/Makefile"
    for what in demo check; do
        exits 2 env -u MAKEFLAGS make -j2 -C "$T/m" $what V=yes >"$T/made" 2>&1
        cat "$T/made"
        grep "built V=yes" "$T/made"
        not grep -i "jobserver" "$T/made"
    done'
ok "test scripts are executable, or prove would not run them" '
    for t in tests/t[0-9]*.sh; do [ -x "$t" ] || { echo "$t"; false; }; done'
ok "libjq's headers are seen by libverl/base/jq.c alone" '
    grep -lE "^#[ ]*include <(jq|jv)[a-z_]*\.h>" -r cmd libverl formats kernels | grep -v "^libverl/base/jq\.c$" >"$T/jq" || :
    cat "$T/jq"; [ ! -s "$T/jq" ]'
ok "mpi.h is seen by libverl/comm alone" '
    grep -l "^#[ ]*include <mpi\.h>" -r cmd libverl formats kernels | grep -v "^libverl/comm/" >"$T/mpi" || :
    cat "$T/mpi"; [ ! -s "$T/mpi" ]'
ok "curl.h is seen by libverl/base/http_curl.c alone, and no program links libcurl" '
    grep -l "^#[ ]*include <curl/" -r cmd libverl formats kernels | grep -v "^libverl/base/http_curl\.c$" >"$T/curl" || :
    cat "$T/curl"; [ ! -s "$T/curl" ]
    ldd "$BUILD"/bin/* >"$T/libs" 2>&1 || :
    [ -s "$T/libs" ]
    not grep libcurl "$T/libs"'
ok "yaml.h is seen by yaml.c and version.c alone" '
    grep -l "^#[ ]*include <yaml\.h>" -r cmd libverl formats kernels |
        grep -vE "^libverl/base/(yaml|version)\.c$" >"$T/yaml" || :
    cat "$T/yaml"; [ ! -s "$T/yaml" ]'
ok "no two files define one name: the archive would give the wrong one" '
    nm -g --defined-only "$BUILD/libverl.a" | awk "NF == 3 { print \$3 }" | sort | uniq -d >"$T/twice"
    cat "$T/twice"; [ ! -s "$T/twice" ]'
ok "only cmd, vl_oom and forked children end the process" '
    grep -nE "^[^*/]*[^_a-z]exit\(" libverl/*/*.c formats/*.c | grep -v "^libverl/base/mem\.c" >"$T/exit" || :
    cat "$T/exit"; [ ! -s "$T/exit" ]'
done_testing
