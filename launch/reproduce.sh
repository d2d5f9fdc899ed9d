#!/usr/bin/env bash
# Runs all configs of a paper's table and prints our numbers next to the published ones:
#
#   launch/reproduce.sh mao-6 --data DIR --workdir runs/mao
#   launch/reproduce.sh li-mak-4 --workdir runs/li_mak --scale paper --mldoc MLDOC
#   launch/reproduce.sh --list
#
# Run it again to do what is missing. --dry-run prints the commands.
exec "${PYTHON:-python3}" "$(dirname "$0")/reproduce.py" "$@"
