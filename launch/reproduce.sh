#!/usr/bin/env bash
# Runs all configs of a paper's table and prints our numbers next to the published ones:
#
#   launch/reproduce.sh mao-6 --data DIR --workdir runs/mao
#   launch/reproduce.sh li-mak-4 --workdir runs/li_mak --scale paper --mldoc MLDOC
#   launch/reproduce.sh --list
#
# Run it again to do what is missing. --dry-run prints the commands.
python=${PYTHON:-python3}
"$python" -c 'import importlib.util as util, sys; sys.exit(not util.find_spec("xling_jax"))' || {
    echo "launch/reproduce.sh: $python has no xling_jax; activate its environment or set PYTHON" >&2
    exit 1
}
exec "$python" "$(dirname "$0")/reproduce.py" "$@"
