#!/bin/sh
# reinforce_plus_plus.sh - REINFORCE++ (Hu et al. 2025): no groups, advantages whitened over the batch.
#
#   MODEL=dir DATA=rows.jsonl [CONFIG=run.yaml] [NAME=VALUE...] examples/reinforce_plus_plus.sh [key=value...]
#
# It is grpo.sh, with its variables (examples/grpo.sh --help), under these settings:
PRESET=reinforce_plus_plus exec "$(dirname "$0")/grpo.sh" "$@"
