#!/bin/sh
# The speed measurements (tests/bench/peers) on a toy: every line, and peers that are stubs.
. "$(dirname "$0")/lib.sh"
[ -x "$BUILD/bench/bench_engine" ] || skip_all "the measurements are not built (make unit-binaries)"
peers() { "$REPO/tests/bench/peers" -S toy -q -d "$T/models" "$@"; }
run() { # the same into out and err, which are shown
    peers "$@" >out 2>err || echo "peers: exit $?" >>err
    cat out err
    not grep "^peers: " err
}

# A python3 with torch that answers 0.5 tokens a second, and a llama-batched-bench of two: so ours is
# faster in every turn.
mkdir stubs
cat >stubs/python <<'EOS'
#!/bin/sh
[ "$1" = -c ] && { echo 9.9.9; exit; }
echo "$@" >>"$T/torch.args"
turn=0
echo "ready check=${STUB_CHECK:--} torch 9.9.9"
while read -r _; do
    [ "$((turn += 1))" != "${STUB_DIES:-}" ] || { echo "RuntimeError: no room" >&2; exit 1; }
    echo "sample tok/s 0.5 seconds 0.1 iterations 1 peak_mib 1000"
done
EOS
cat >stubs/llama-batched-bench <<'EOS'
#!/bin/sh
[ "$1" = --version ] && { echo "version: 77 (stub)" >&2; exit; }
echo "$@" >>"$T/llama.args"
[ "$(head -c 4 "$2")" = GGUF ] || exit 1
[ -z "${STUB_EXIT:-}" ] || { echo "no such instruction" >&2; exit "$STUB_EXIT"; }
# as the real one may: the log's last line gets lost
[ -e "$T/lost" ] || [ -z "${STUB_LOSES:-}" ] || { : >"$T/lost"; exit 0; }
echo "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |"
echo "|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|"
echo "|     4 |      8 |    2 |     24 |    2.000 |     4.00 |    8.000 |     2.00 |   10.000 |     2.40 |"
EOS
chmod +x stubs/*
export T

ok "every line without a peer, and the block" '
    run -r 1 -p none --append=history.md
    [ ! -s err ]
    for l in decode64 decode32 decode8 decode1 logp-bf16 logp-fp32 train-bf16 train-fp32 train-grpo rollout memory \
        memory-file; do
        grep -Eq "^$l +(bf16|fp32) +[0-9.]+  - +-  - " out || { echo "no $l"; false; }
        grep -q "^| $l |" history.md
    done
    [ "$(grep -Ec "^decode[0-9]+ +int8 +[0-9.]+  - +-  - " out)" = 4 ]
    [ "$(grep -Ec "^[|] toy *[|] bf16 [|] .* [|] *[0-9]* .*[|]$" out)" = 5 ]
    tiles=$(grep -Ec "^[|] toy *[|] amx [|] .* [|] *[0-9]* .*[|]$" out) || :
    [ "$tiles" = "$(grep -q "cpu amx" history.md && echo 5 || echo 0)" ]
    [ "$(grep -c "^| toy *| fp32 | " history.md)" = 5 ]
    grep -Eq "^## [0-9]{4}-[0-9]{2}-[0-9]{2}, " history.md
    grep -q "^verl [0-9.]* cpu " history.md
    run -r 1 -p none -l decode1 --append=history.md
    [ "$(grep -c "^# " history.md)" = 1 ]
    [ "$(grep -c "^## " history.md)" = 2 ]'
ok "peers take turns with ours, on the same batch; ratios, verdicts" '
    PYTHON=$T/stubs/python PATH=$T/stubs:$PATH run -r 3 -x 1000 -t 1 -l decode8,train-bf16,train-grpo,rollout,memory
    grep -q "torch 9.9.9; llama.cpp 77 (stub)$" out
    grep -Eq "^decode8 +bf16 +[0-9.]+  torch +0.50  [0-9.]+ \([0-9.]+-[0-9.]+\) +[0-9]+ % +[0-9]+ %  faster$" out
    grep -Eq "^decode8 +bf16 +[0-9.]+  llama.cpp bf16 +2.00 .*faster$" out
    grep -Eq "^decode8 +bf16 +[0-9.]+  llama.cpp q8_0 +2.00 .*faster$" out
    grep -Eq "^decode8 +int8 +[0-9.]+  llama.cpp q8_0 +2.00 .*faster$" out
    grep -Eq "^rollout +bf16 +[0-9.]+  llama.cpp bf16 +1.60 .*faster$" out
    grep -Eq "^memory +bf16 +[0-9.]+  torch +1000  .*less$" out
    grep -q -e "train -m $T/models/toy -c bf16 -r 16 -n 8 -p 32 -l 2 -g 32 -t 1 -i 0.02 -s 0$" torch.args
    [ "$(grep -c -e "-npp 4 -ntg 8 -npl 8 -t 1 " llama.args)" = 9 ]
    [ "$(grep -c -e "-npp 32 -ntg 11 -npl 16 -t 1 -ngl 0 -pps$" llama.args)" = 3 ]
    # two of torch: the mean log-prob is not ours
    grep -q "^train-bf16: mean log-prob -6.* here, - in torch: they do not compute the same$" err'
ok "a busy machine is not judged, nor are too few turns" '
    PYTHON=$T/stubs/python run -r 3 -x 0 -p torch -l decode1,logp-fp32,train
    grep -q "  not judged: busy$" out
    PYTHON=$T/stubs/python run -r 2 -x 1000 -p torch -l decode1
    grep -q "  too few turns$" out'
ok "a peer that fails is said so and ours goes on" '
    STUB_DIES=2 PYTHON=$T/stubs/python run -r 2 -x 1000 -p torch -l decode1
    grep -q "^torch: failed in decode1: RuntimeError: no room$" err
    grep -Eq "^decode1 +bf16 +[0-9.]+  - +-  - " out
    STUB_EXIT=132 PATH=$T/stubs:$PATH run -r 1 -x 1000 -p llama -l decode1
    grep -q "^llama.cpp q8_0: failed in decode1: exit 132, on a file of q8_0: no such instruction$" err
    STUB_LOSES=1 PATH=$T/stubs:$PATH run -r 1 -x 1000 -p llama -l rollout
    [ -e lost ]
    grep -q "^rollout .*  llama.cpp bf16 " out
    PYTHON=$T/no-such run -r 1 -p torch -l decode1
    [ ! -s err ]
    grep -q "^torch: $T/no-such does not import it; its columns stay empty" out'
ok "PyTorch of this machine, if any, finds the same mean log-prob" '
    ${PYTHON:-python3} -c "import torch" 2>none || exit 0
    run -r 1 -p torch -l logp,train
    [ ! -s err ]
    [ "$(grep -c "  torch  " out)" = 5 ]'
ok "wrong words are refused, and --help names every line" '
    exits 64 peers -l decode7 2>err
    grep -q "^peers: --lines decode7: no line begins so; there are decode64 " err
    exits 64 peers -p vllm 2>err
    exits 64 peers -r 0 2>err
    exits 64 peers -x many 2>err
    exits 64 peers -t 100000 2>err
    exits 64 peers --frobnicate 2>err
    exits 64 "$REPO/tests/bench/peers" -S huge 2>err
    exits 64 "$BUILD/bench/bench_gemm" 64 3 1 64 64 2>err
    exits 64 "$BUILD/bench/bench_engine" decode -m models/toy -r 3 -n 2 2>err
    peers --help | tr -d "\n" | tr -s " " >help
    for l in decode64 decode1 logp-bf16 train-grpo rollout memory gemm; do grep -q "$l" help; done'
done_testing
