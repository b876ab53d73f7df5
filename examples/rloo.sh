#!/bin/sh
# rloo.sh - RLOO (Ahmadian et al. 2024): each answer against the mean of the others.
#
#   MODEL=dir DATA=rows.jsonl [CONFIG=run.yaml] [NAME=VALUE...] examples/rloo.sh [key=value...]
#
# It is grpo.sh, with its variables (examples/grpo.sh --help), under these settings:
PRESET=rloo exec "$(dirname "$0")/grpo.sh" "$@"
