#!/usr/bin/env bash
# One xling command on the GPUs of several nodes: a batch script that submits itself.
#
#   launch/slurm.sh [--dry-run] [SBATCH_OPTION ...] COMMAND [ARG ...]
#   launch/slurm.sh --nodes=4 --partition=gpu train --config configs/ct_laser.py --workdir runs/ct
#
# Run it from the top of the checkout, with the environment active in which xling is installed;
# the workdir lies on a file system that all nodes share. Options of sbatch are written
# --NAME=VALUE and replace those below. There is one process a GPU: for nodes of 4 GPUs give
# --gpus-per-node=4 --ntasks-per-node=4.
#
# The log of process I is WORKDIR/logs/process-I.log (LOGS=DIRECTORY: elsewhere). Before its time
# is over the job saves a checkpoint and queues itself again; so it does when it is preempted.
# `scancel --signal=TERM JOB` makes it save and queue again, `scancel JOB` ends it.

#SBATCH --job-name=xling
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@180
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=slurm-%j.log

set -euo pipefail
# sbatch runs a copy of this file, so the directory of the others is that of the submission.
launch=$(dirname "${BASH_SOURCE[0]}")
[[ -e $launch/run.sh ]] || launch=$SLURM_SUBMIT_DIR/launch
# shellcheck source=launch/run.sh
source "$launch/run.sh"

options=()
while [[ ${1:-} == --* ]]; do
    options+=("$1")
    shift
done
(($#)) || fail "what should the processes run? e.g. train --config ... --workdir ...; see --help"

find_logs "$@"

# Every task sees all GPUs of its node, of which JAX gives it the one of its number. A task that
# fails ends the others.
step=(srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-8}" --gpu-bind=none --kill-on-bad-exit=1
    --open-mode=append --output="$logs/process-%t.log" xling "$@" --distributed)

if [[ ! ${SLURM_JOB_ID:-} ]]; then
    run sbatch "${options[@]}" "${BASH_SOURCE[0]}" "$@"
    [[ ! $dry_run ]] || { echo "# and in the job:" && show mkdir -p "$logs" && show "${step[@]}"; }
    exit
fi

run mkdir -p "$logs"
status=0
run "${step[@]}" || status=$?
((status != 143)) || run scontrol requeue "$SLURM_JOB_ID"
exit "$status"
