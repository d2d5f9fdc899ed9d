#!/usr/bin/env bash
# Runs all configs of a paper's table and prints the table, the paper's numbers beside ours:
#
#   launch/reproduce.sh mao-6 --data DIR --workdir runs/mao
#   launch/reproduce.sh --list
#
# Started again, it does what is missing. --dry-run prints the commands.
exec "${PYTHON:-python3}" "$(dirname "$0")/reproduce.py" "$@"
