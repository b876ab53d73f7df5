#!/bin/sh
# gspo.sh - GSPO (Zheng et al. 2025): one importance ratio for a whole answer.
#
#   MODEL=dir DATA=rows.jsonl [CONFIG=run.yaml] [NAME=VALUE...] examples/gspo.sh [key=value...]
#
# It is grpo.sh, with its variables (examples/grpo.sh --help), under these settings:
PRESET=gspo exec "$(dirname "$0")/grpo.sh" "$@"
