#!/usr/bin/env bash
# Runs a command as a task of a job step, and tells the batch script whether it failed by itself.
#
#   launch/task.sh FILE COMMAND [ARG ...]
#
# Writes the command's status to FILE, unless it succeeded or a SIGTERM ended it. The step's own
# status does not tell: a task that fails makes Slurm end the others by SIGTERM, and the highest
# status counts.

file=$1
shift
trap : TERM # wait for the command, which gets the signal as well
status=0
"$@" || status=$?
((status == 0 || status == 143)) || echo "$status" > "$file"
exit "$status"
