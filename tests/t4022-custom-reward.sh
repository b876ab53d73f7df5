#!/bin/sh
# custom_reward_function: a verl user's own Python file, unchanged. python3 is the user's, not ours.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip_all 'python3 is not installed'
. "$REPO/tests/letters.sh"

letters_tokenizer .
jq -nc 'range(40) | {uid: "0-\(. / 4 | floor)", sample: (. % 4), data_source: "mine", truth: "\(. % 3)",
                     response: "a \"b\" #### \(. % 5)"}' | letters_batch in.dp
score() { verl-reward -q -m . -i in.dp "$@"; }
custom() { file=$1; shift; score custom_reward_function.path="$file" "$@"; }
see() { verl-dump -q --no-text "$1" | jq -r "$2" | tr '\n' ' ' | sed 's/ $//'; }
score --jq 'if (.solution_str|split("#### ")|last) == .ground_truth then 1 else 0 end' -o want.dp
want=$(see want.dp .score)

cat >plain.py <<'PY'
import helper

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    print("this is no answer")
    assert data_source == "mine" and extra_info["k"] == 1
    assert extra_info["num_turns"] is None and extra_info["rollout_reward_scores"] == {}
    return float(helper.last(solution_str) == ground_truth)
PY
cat >helper.py <<'PY'
def last(text):
    return text.split("#### ")[-1]
PY
ok 'the file as verl takes it; what it prints is seen and is no answer; workers change no byte' '
    custom plain.py -j 1 -o p1.dp 2>err
    custom plain.py -j 3 -o p3.dp 2>/dev/null
    cmp p1.dp p3.dp
    [ "$(see p1.dp .score)" = "$want" ]
    [ "$(grep -c "this is no answer" err)" = 40 ]'
ok 'a dict: score, acc and columns; name and reward_kwargs, which win over the row' '
    cat >dict.py <<"PY"
import os, sys, subprocess
def grade(data_source, solution_str, ground_truth, extra_info, bonus, **rest):
    subprocess.run(["echo", "a child prints"]); os.write(1, b"raw\n")
    assert sys.stdin.read() == "" and rest == {"options": {"a": [1, 2]}}, rest
    right = solution_str.endswith(ground_truth)
    return {"score": right + bonus, "acc": right, "pred": solution_str[-1], "nan": float("nan"),
            "source": data_source, "id": 7, "set": {1}}
PY
    custom dict.py custom_reward_function.name=grade custom_reward_function.reward_kwargs.bonus=0.5 \
        +custom_reward_function.reward_kwargs.data_source=theirs \
        "custom_reward_function.reward_kwargs.options={a: [1, 2]}" -o d.dp 2>/dev/null
    [ "$(see d.dp ".score - 0.5")" = "$want" ]
    [ "$(see d.dp .acc)" = "$want" ]
    verl-dump -q --no-text d.dp | jq -se "length > 0 and all(.[]; .source == \"theirs\" and .nan == \"NaN\" and .set == [1])"
    cat >run.yaml <<"YAML"
custom_reward_function:
  path: dict.py
  name: grade
  reward_kwargs: {bonus: 0.5, data_source: theirs, options: {a: [1, 2]}}
YAML
    score -c run.yaml -o d2.dp 2>/dev/null
    cmp d.dp d2.dp'
ok 'provenance holds what the function was, not where it lay' '
    mkdir -p elsewhere; cp plain.py helper.py elsewhere
    custom elsewhere/plain.py -o e.dp 2>/dev/null
    cmp e.dp p1.dp
    verl-dump --provenance e.dp | grep -q "custom_reward_function.path.*xxh3:"'
ok 'bool, scalars and arrays as of numpy, tuple' '
    cat >kinds.py <<"PY"
class Scalar:
    def tolist(self): return 0.25
class Array:
    def tolist(self): return [2]
def compute_score(data_source, solution_str, ground_truth, extra_info):
    d = solution_str[-1]
    return {"0": True, "1": Scalar(), "2": Array(), "3": {"score": Scalar()}, "4": (-3, "x")}[d]
PY
    custom kinds.py -o k.dp
    [ "$(see k.dp .score | cut -d " " -f 1-5)" = "1 0.25 2 0.25 -3" ]'
ok 'an async function: rows under way at once, answers in order' '
    cat >later.py <<"PY"
import asyncio
async def compute_score(data_source, solution_str, ground_truth, extra_info):
    await asyncio.sleep(0.05 if solution_str[-1] == "0" else 0.1)
    if solution_str[-1] == "4":
        raise ValueError("no fours")
    return float(solution_str[-1] == ground_truth)
PY
    custom later.py -j 1 --on-error value -o a.dp 2>err
    [ "$(see a.dp .score)" = "$want" ]
    [ "$(grep -c "ValueError: no fours (later.py:5)" err)" -ge 3 ]'
ok 'an async function: a row may wait for those behind it' '
    cat >together.py <<"PY"
import asyncio
begun = 0
async def compute_score(data_source, solution_str, ground_truth, extra_info):
    global begun
    begun += 1
    if begun > 1:  # the first row is alone until it is answered
        for i in range(1000):
            if begun >= 20: break
            await asyncio.sleep(0.01)
        assert begun >= 20
    return 1
PY
    custom together.py -j 1 -o t.dp'
ok 'reward_manager=batch: one call with lists, its failures are those of all rows' '
    cat >batch.py <<"PY"
calls = 0
def compute_score(data_sources, solution_strs, ground_truths, extra_infos, add=0):
    global calls
    calls += 1
    assert calls == 1 and len(set(data_sources)) == 1 and extra_infos[39]["k"] == 1
    if add == 2:
        return [1]
    return [{"score": (s[-1] == g) + add, "n": len(solution_strs)} for s, g in zip(solution_strs, ground_truths)]
PY
    custom batch.py reward_manager.name=batch -j 3 -o b.dp
    [ "$(see b.dp .score)" = "$want" ]
    [ "$(see b.dp .n | cut -c 1-5)" = "40 40" ]
    exits 65 custom batch.py reward_manager.name=batch custom_reward_function.reward_kwargs.add=2 -o no.dp 2>err
    tail -n 1 err | grep -q "row 0 .*: compute_score returned 1 scores for 40 rows" err
    exits 64 custom batch.py reward_manager.name=batch custom_reward_function.reward_kwargs.ad=2 -o no.dp 2>err
    tail -n 1 err | grep -q "batch.py: compute_score(.*unexpected keyword argument .ad.; leave out custom_reward_function.reward_kwargs.ad"'
ok 'arguments that no call will have are told of once, with the key that gives them' '
    echo "def compute_score(data_source, solution_str, ground_truth, extra_info, beta): return beta" >beta.py
    exits 64 custom beta.py --on-error invalid -o no.dp 2>err
    tail -n 1 err | grep -q "beta.py: compute_score(.*, beta): missing a required argument: .beta.; give it as custom_reward_function.reward_kwargs.beta=VALUE"
    not grep -q "custom_reward.py" err
    custom beta.py custom_reward_function.reward_kwargs.beta=0.5 -o k.dp
    [ "$(see k.dp .score | cut -c 1-7)" = "0.5 0.5" ]
    echo "def compute_score(solution_str, ground_truth): return 1" >few.py
    exits 64 custom few.py -o no.dp 2>err
    tail -n 1 err | grep -q "it is called by keyword with data_source, solution_str, ground_truth, extra_info"
    printf "import functools\ndef give(f):\n    @functools.wraps(f)\n    def g(**kw): return f(kw[\"solution_str\"], 2)\n    return g\n@give\ndef compute_score(s, beta): return beta\n" >wrapped.py
    custom wrapped.py -o k.dp
    [ "$(see k.dp .score | cut -c 1-3)" = "2 2" ]'
ok 'a child that the function forks never answers: one that ends by sys.exit, comes back, or is spawned' '
    cat >forks.py <<"PY"
import multiprocessing, os, sys, helper
def compute_score(data_source, solution_str, ground_truth, extra_info):
    if extra_info["k"] == 1:
        pid = os.fork()
        if pid == 0:
            if solution_str[-1] == "0": sys.exit(0)
            if solution_str[-1] == "1": raise SystemExit
            if solution_str[-1] == "2": raise KeyError("the child alone")
            return 7
        os.waitpid(pid, 0)
    return float(helper.last(solution_str) == ground_truth)
PY
    custom forks.py -j 2 -o f.dp 2>/dev/null
    [ "$(see f.dp .score)" = "$want" ]
    cat >spawns.py <<"PY"
import multiprocessing, helper
started = multiprocessing.get_context("spawn")
def compute_score(data_source, solution_str, ground_truth, extra_info):
    p = started.Process(target=helper.last, args=(solution_str,))
    p.start()
    p.join()
    return {"score": helper.last(solution_str) == ground_truth, "status": p.exitcode}
PY
    verl-batch slice -q 0:3 -i in.dp -o few.dp
    verl-reward -q -m . -i few.dp custom_reward_function.path=spawns.py -j 1 -o f.dp
    [ "$(see f.dp .status)" = "0 0 0" ]'
ok 'whatever is raised or returned costs its row alone, and says what it was' '
    cat >odd.py <<"PY"
import functools
class Odd(BaseException): pass
class Mute:
    def tolist(self): raise OSError("no list")
    def __str__(self): raise OSError("no text")
def compute_score(data_source, solution_str, ground_truth, extra_info):
    d = solution_str[-1]
    if d == "0": raise KeyboardInterrupt
    if d == "1": raise Odd("odd")
    if d == "2":
        loop = {}
        loop["it"] = loop
        return {"score": 1, "loop": loop}
    return {"score": 1, "x": Mute()} if d == "3" else 1
def decorate(f):
    @functools.wraps(f)
    def g(**kw): return f(**kw)
    return g
async def later(data_source, solution_str, ground_truth, extra_info):
    return 0.5
decorated = decorate(later)
PY
    custom odd.py -j 1 --on-error invalid -o o.dp 2>err
    not grep -q "asked again" err
    see o.dp .score | grep -q "^NaN NaN NaN NaN 1 NaN"
    see o.dp .reward_error >why
    grep -q "KeyboardInterrupt (odd.py:8)" why
    grep -q "Odd: odd (odd.py:9)" why
    grep -q "compute_score returned what JSON cannot hold: RecursionError" why
    grep -q "compute_score returned what JSON cannot hold: OSError: no list" why
    custom odd.py custom_reward_function.name=decorated -j 1 -o o.dp
    see o.dp .score | grep -q "^0.5 0.5 0.5"'
ok 'an exception names row, cause and line; the traceback is there once' '
    cat >raises.py <<"PY"
def compute_score(data_source, solution_str, ground_truth, extra_info):
    if solution_str[-1] == "4":
        raise ValueError("four\nis too much")
    if solution_str[-1] == "3": exit(3)
    return 1
PY
    exits 65 custom raises.py -o no.dp 2>err
    tail -n 1 err | grep -q "row 3 (uid \"0-0\", sample 3): SystemExit: 3 "
    custom raises.py -j 1 --on-error invalid -o r.dp 2>err
    [ "$(see r.dp .score | cut -d " " -f 1-6)" = "1 1 1 NaN NaN 1" ]
    [ "$(grep -c "^Traceback" err)" = 1 ]
    not grep -q custom_reward.py err
    see r.dp .reward_error | grep -q "ValueError: four is too much (raises.py:3)"'
for bad in none nan text hang crash; do
    ok "a function that goes wrong ($bad): fail, invalid, value; nothing is left" "
        cat >$bad.py <<PY
import os, signal, subprocess, time
def compute_score(data_source, solution_str, ground_truth, extra_info):
    if solution_str[-1] != '4': return float(solution_str[-1])
    if '$bad' == 'nan': return float('nan')
    if '$bad' == 'text': return '4'
    if '$bad' == 'none': return None
    subprocess.Popen(['sleep', '71.$$'], start_new_session=True)
    if '$bad' == 'crash': os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)
PY
        start=\$(date +%s)
        exits 65 custom $bad.py --row-timeout 1 -o no.dp 2>err
        tail -n 1 err | grep -q 'row 4 (uid \"0-1\", sample 0): '
        [ \$((\$(date +%s) - start)) -le 4 ]
        head -n 1 /dev/null; verl-batch slice -q 0:8 -i in.dp -o few.dp
        verl-reward -q -m . -i few.dp custom_reward_function.path=$bad.py --row-timeout 1 --on-error invalid -o i.dp 2>/dev/null
        [ \"\$(see i.dp .score)\" = '0 1 2 3 NaN 0 1 2' ]
        verl-reward -q -m . -i few.dp custom_reward_function.path=$bad.py --row-timeout 1 --on-error value \
            --error-value -1 -o v.dp 2>/dev/null
        [ \"\$(see v.dp .score)\" = '0 1 2 3 -1 0 1 2' ]
        not pgrep -f 'sleep 71.$$'
        [ ! -e no.dp ]"
done
ok 'what is missing: file 66, function 64 with those there are, a file that does not load 65, python3 69' '
    exits 66 custom none-such.py -o no.dp 2>err
    grep -q "custom_reward_function.path=none-such.py: No such file" err
    exits 66 custom . -o no.dp 2>err
    grep -q "path=. is a directory" err
    exits 64 custom plain.py custom_reward_function.name=score -o no.dp 2>err
    tail -n 1 err | grep -q "plain.py has no function score; it has compute_score"
    echo "import no_such_module" >bad.py
    exits 65 custom bad.py --on-error invalid -o no.dp 2>err
    tail -n 1 err | grep -q "bad.py cannot be loaded: ModuleNotFoundError: .*no_such_module.* (bad.py:1)"
    echo "def compute_score(:" >bad.py
    exits 65 custom bad.py -o no.dp 2>err
    tail -n 1 err | grep -q "bad.py cannot be loaded: SyntaxError: .*(bad.py:1)"
    mkdir -p bin; for p in verl-reward; do ln -sf "$(command -v $p)" bin; done
    PATH=$PWD/bin exits 69 custom plain.py -o no.dp 2>err
    grep -q "needs python3, which is not on PATH" err
    exits 64 custom plain.py --jq 1 -o no.dp
    exits 64 custom plain.py --args "{}" -o no.dp
    [ ! -e no.dp ]'
if have_mpi; then
    ok 'two ranks: the same bytes, also of the one call with all rows' '
        verl-mpi 2 verl-reward -q -m . -i in.dp custom_reward_function.path=plain.py -o m.dp 2>/dev/null
        cmp m.dp p1.dp
        verl-mpi 2 verl-reward -q -m . -i in.dp custom_reward_function.path=batch.py reward_manager.name=batch -o mb.dp
        cmp mb.dp b.dp'
else
    skip "$why"
fi
done_testing
