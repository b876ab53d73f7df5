#!/usr/bin/env python3
"""Encoding speed of build/bench/bench_tok beside Hugging Face's tokenizers, one thread each.

usage: tok_vs_hf.py ROWS.jsonl TOKENIZER_DIR...      (-n ROWS, -k ROUNDS)

Each round measures ours, encode_batch_fast (no offsets), encode_batch and encode of each text, one after
the other; the ratios are to ours. Printed are medians of CPU time, which other programs disturb less. Both sides must give the same number of tokens."""
import json, os, statistics, subprocess, sys, time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
try:
    from tokenizers import Tokenizer
except ImportError:
    sys.exit("tok_vs_hf.py: no Python module tokenizers: pip install tokenizers")


def seconds(f):
    t = time.process_time()
    f()
    return time.process_time() - t


def main(args):
    rows, rounds = 1500, 5
    while args and args[0] in ("-n", "-k"):
        if args[0] == "-n":
            rows = int(args[1])
        else:
            rounds = int(args[1])
        args = args[2:]
    if len(args) < 2:
        sys.exit(__doc__)
    bench = os.path.join(os.path.dirname(__file__), "../../build/bench/bench_tok")
    with open(args[0], encoding="utf8") as f:
        texts = [s for line, _ in zip(f, range(rows)) for s in json.loads(line).values() if isinstance(s, str)]
    mb = sum(len(s.encode()) for s in texts) / 1e6
    print("%-16s %9s %9s %9s %9s   (%.2f MB, medians of %d)" %
          ("MB/s", "ours", "fast", "batch", "single", mb, rounds))
    for d in args[1:]:
        hf = Tokenizer.from_file(os.path.join(d, "tokenizer.json"))
        p = subprocess.Popen([bench, "-i", d, args[0], str(rows)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ours_tokens = int(p.stdout.readline().split()[1])
        tokens = sum(len(e.ids) for e in hf.encode_batch(texts, add_special_tokens=False))
        if tokens != ours_tokens:
            sys.exit("%s: %d tokens here, %d there" % (d, ours_tokens, tokens))
        theirs = [lambda: hf.encode_batch_fast(texts, add_special_tokens=False),
                  lambda: hf.encode_batch(texts, add_special_tokens=False),
                  lambda: [hf.encode(s, add_special_tokens=False) for s in texts]]
        times = [[], [], [], []]
        for _ in range(rounds):
            p.stdin.write("\n")
            p.stdin.flush()
            times[0].append(float(p.stdout.readline()))
            for t, f in zip(times[1:], theirs):
                t.append(seconds(f))
        p.stdin.close()
        p.wait()
        m = [statistics.median(t) for t in times]
        print("%-16s %9.1f %9.1f %9.1f %9.1f   ratios %.1f %.1f %.1f" %
              (os.path.basename(d.rstrip("/")), *(mb / t for t in m), *(t / m[0] for t in m[1:])), flush=True)


main(sys.argv[1:])
