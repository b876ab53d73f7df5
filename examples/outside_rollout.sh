#!/bin/sh
# outside_rollout.sh - another generator in verl-rollout's place: ROLLOUT=examples/outside_rollout.sh.
# Any program that answers each prompt with lines {uid, response} will do; here ten lines of Python
# that guess. Log-probs come from verl-logprob, which asks the policy itself.
set -eu
while [ $# -gt 0 ]; do
    case $1 in
    -m) model=$2 ;;
    -i) prompts=$2 ;;
    -o) out=$2 ;;
    --seed) ;;
    *) break ;;
    esac
    shift 2
done
case " $* " in *" -o "*) for arg in "$@"; do out=$arg; done ;; esac # the driver gives -o last
verl-dump -q "$prompts" -m "$model" --columns uid,prompt_text | python3 -c '
import json, random, sys
for line in sys.stdin:
    row = json.loads(line)
    for sample in range(4):
        random.seed(row["uid"] + str(sample))
        answer = str(random.randint(0, 999))
        print(json.dumps({"uid": row["uid"], "sample": sample, "response": answer}))
' >"$out.jsonl"
verl-rollout -q --from-json "$out.jsonl" -m "$model" -i "$prompts" "$@"
rm -f "$out.jsonl"
