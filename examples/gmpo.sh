#!/bin/sh
# gmpo.sh - GMPO (Zhao et al. 2025): the geometric mean of the token ratios.
#
#   MODEL=dir DATA=rows.jsonl [CONFIG=run.yaml] [NAME=VALUE...] examples/gmpo.sh [key=value...]
#
# It is grpo.sh, with its variables (examples/grpo.sh --help), under these settings:
PRESET=gmpo exec "$(dirname "$0")/grpo.sh" "$@"
