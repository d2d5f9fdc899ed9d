#!/usr/bin/env bash
# Runs xling train on the GPUs of several nodes: a batch script that submits itself.
#
#   launch/slurm.sh [--dry-run] [SBATCH_OPTION ...] COMMAND [ARG ...]
#   launch/slurm.sh --nodes=4 --partition=gpu train --config configs/ct_laser.py --workdir runs/ct
#
# Run it from the top of the checkout, in the environment in which xling is installed; all nodes
# must share the file system of the workdir. Options of sbatch override those below. There is one
# process per GPU: for nodes with 4 GPUs, add --gpus-per-node=4 --ntasks-per-node=4.
#
# Process I logs to WORKDIR/logs/process-I.log; set LOGS=DIRECTORY to log elsewhere. Before its time
# limit, or when it is preempted, the job saves a checkpoint and requeues itself; after an error in
# any process it does not. `scancel --signal=TERM JOB` makes it save and requeue; `scancel JOB` ends
# it. Inside an allocation (salloc) it runs the command there, without options of sbatch.

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
# sbatch runs a copy of this file, so find the other scripts relative to the submission directory.
launch=$(dirname "${BASH_SOURCE[0]}")
[[ -e $launch/run.sh ]] || launch=$SLURM_SUBMIT_DIR/launch
# shellcheck source=launch/run.sh
source "$launch/run.sh"

commands=(prepare train embed evaluate mine calibrate align align-sentences export reproduce report convert search serve quickstart)
is_command() { [[ " ${commands[*]} " == *" $1 "* ]]; }

named='-[ACJpqwx]|--(account|comment|constraint|exclude|job-name|nodelist|partition|qos|reservation)'
options=()
while [[ ${1:-} == -* ]]; do
    options+=("$1")
    # The next word is its value, unless it is an option or the command, which a name may equal.
    if [[ $1 != *=* && ${2:--} != -* ]] && { [[ $1 =~ ^($named)$ ]] || ! is_command "$2"; }; then
        options+=("$2")
        shift
    fi
    shift
done
(($#)) || fail "no command given; e.g. train --config ... --workdir ...; see --help"
is_command "$1" || fail "'$1' is not a command of xling; use one of ${commands[*]}"
check_command "$@"

find_logs "$@"

# Every task sees all GPUs of its node; JAX assigns it one by its local number. A task that fails
# ends the others.
failed=$logs/failed
step=(srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-8}" --gpu-bind=none --kill-on-bad-exit=1
    --open-mode=append --output="$logs/process-%t.log" "$launch/task.sh" "$failed"
    xling "$@" --distributed)

if [[ ! ${SLURM_JOB_ID:-} ]]; then
    run sbatch "${options[@]}" "${BASH_SOURCE[0]}" "$@"
    [[ ! $dry_run ]] || { echo "# and in the job:" && show mkdir -p "$logs" && show "${step[@]}"; }
    exit
fi

((${#options[@]} == 0)) || fail "this shell is in job $SLURM_JOB_ID, whose options are set; leave out" \
    "${options[*]}, or \`unset SLURM_JOB_ID\` to submit a job"

run mkdir -p "$logs"
[[ $dry_run ]] || rm -f "$failed"
status=0
run "${step[@]}" || status=$?
[[ ! $dry_run ]] || exit 0
if [[ -e $failed ]]; then
    echo "a process failed with status $(cat "$failed"): see $logs; not requeued" >&2
elif ((status == 143)); then
    run scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
