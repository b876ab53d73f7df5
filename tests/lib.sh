# lib.sh - sourced by every tests/tNNNN-*.sh: TAP output, a scratch directory, exit statuses.
#
#   . "$(dirname "$0")/lib.sh"
#   ok 'title' 'commands'      passes if every line of the commands does (set -e inside)
#   exits 65 cmd...            passes if cmd exits with exactly that status, so a crash never counts
#   not cmd...                 passes if cmd says no: exits with 1, as grep, cmp, diff and test do; a
#                              missing file or a crash is not a no. `! cmd` cannot fail under set -e
#   equal "$(a)" "$(b)"        passes if both say the same and something: two failures are not equal
#   skip 'reason'              one skipped test;   skip_all 'reason'   the whole file
#   have_mpi, need_mpi         whether ranks can be started; skip the whole file if not
#   done_testing               last line of the file
# Programs under test are on PATH; $SHARED is the data folder or empty; $T is the scratch directory
# (the current one), removed at the end.
set -u
REPO=$(cd "$(dirname "$0")/.." && pwd)
BUILD=${BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$REPO/$BUILD ;; esac
PATH=$BUILD/bin:$REPO/scripts:$PATH
export PATH REPO BUILD
SHARED=${VERL_SHARED:-$REPO/../shared}
[ -d "$SHARED/golden" ] && SHARED=$(cd "$SHARED" && pwd) || SHARED=
export SHARED
T=$(mktemp -d "${TMPDIR:-/tmp}/verl-test.XXXXXX")
trap 'cd /; rm -rf "$T"' EXIT
trap 'exit 130' INT TERM
cd "$T" || exit 1
export VERL_CACHE="${VERL_CACHE:-$T/.cache}" # never the user's
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
t_n=0 t_bad=0

ok() {
    t_n=$((t_n + 1))
    (
        set -e
        eval "$2"
    ) >"$T/.out" 2>&1
    t_rc=$?
    if [ $t_rc = 0 ]; then
        echo "ok $t_n - $1"
    else
        echo "not ok $t_n - $1"
        { echo "# ${0##*/}: not ok $t_n - $1"; sed 's/^/#   /' "$T/.out"; } >&2 # shown by prove, too
        t_bad=1
    fi
}
exits() {
    t_want=$1 t_got=0
    shift
    "$@" || t_got=$?
    [ "$t_got" = "$t_want" ] || {
        echo "exit $t_got, wanted $t_want: $*"
        return 1
    }
}
not() { exits 1 "$@"; }
equal() {
    case $# in 2) case $1 in "$2") case $1 in *[!nul\ ]*) return 0 ;; esac ;; esac ;; esac
    printf '%s\n' "not equal, or nothing:" "$@"
    return 1
}
skip() {
    t_n=$((t_n + 1))
    echo "ok $t_n # SKIP $1"
}
skip_all() {
    echo "1..0 # SKIP $1"
    exit 0
}
need_shared() {
    [ -n "$SHARED" ] || skip_all "no shared data (set VERL_SHARED to its folder)"
}
# Whether this build has MPI and mpiexec starts ranks that know of each other. $why says what is
# missing. Asked three times: a start can fail on a busy machine, and a skip would hide the tests.
have_mpi() {
    why="built without MPI"
    verl-rollout --version 2>/dev/null | grep -q 'mpi *mpich' || return 1
    for try in 1 2 3; do
        [ "$(mpiexec -n 2 sh -c 'echo "${PMI_SIZE:-1}"' </dev/null 2>/dev/null | sort -u)" = 2 ] && return 0
    done
    why="mpiexec does not start 2 ranks here"
    return 1
}
need_mpi() { have_mpi || skip_all "$why"; }
done_testing() {
    echo "1..$t_n"
    exit $t_bad
}
