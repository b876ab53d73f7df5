#!/bin/sh
# cispo.sh - CISPO (MiniMax 2025): clips the weight of a token, never its gradient.
#
#   MODEL=dir DATA=rows.jsonl [CONFIG=run.yaml] [NAME=VALUE...] examples/cispo.sh [key=value...]
#
# It is grpo.sh, with its variables (examples/grpo.sh --help), under these settings:
PRESET=cispo exec "$(dirname "$0")/grpo.sh" "$@"
