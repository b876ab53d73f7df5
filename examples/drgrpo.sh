#!/bin/sh
# drgrpo.sh - Dr. GRPO (Liu et al. 2025): GRPO without its two biases.
#
#   MODEL=dir DATA=rows.jsonl [CONFIG=run.yaml] [NAME=VALUE...] examples/drgrpo.sh [key=value...]
#
# It is grpo.sh, with its variables (examples/grpo.sh --help), under these settings:
PRESET=drgrpo exec "$(dirname "$0")/grpo.sh" "$@"
