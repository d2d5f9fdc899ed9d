#!/usr/bin/env bash
# N processes of one xling command on this machine, which find each other as those of a pod do.
#
#   launch/local.sh [--dry-run] N COMMAND [ARGUMENT ...]
#   launch/local.sh 2 train --config configs/ct_laser.py:small --workdir runs/two
#
# The log of process I is WORKDIR/logs/process-I.log; that of process 0 is also shown here.
# Ctrl-C and SIGTERM go to all processes: in training they save a checkpoint of the same step and
# leave; otherwise they just end, and prepare keeps what is finished. When
# one ends with an error, the others are told to end. Whoever is left GRACE seconds later is
# killed, as is everybody at a second Ctrl-C. The exit status is that of the first process that
# did not end with 0; 143 means told to stop: the same command continues.
#
# variables
#   DEVICES=1   make-believe CPU devices of each process
#   GPUS=       GPUs of each process instead, numbered through: GPUS=2 gives process 1 the GPUs 2,3
#   GRACE=30    seconds from the notice to the end
#   LOGS=       directory of the logs, for commands without a local --workdir

set -euo pipefail
# shellcheck source=launch/run.sh
source "$(dirname "${BASH_SOURCE[0]}")/run.sh"

num_processes=${1:-}
[[ $num_processes =~ ^[1-9][0-9]*$ ]] || fail "N='$num_processes' must be a number; see --help"
shift
(($#)) || fail "what should the processes run? e.g. train --config ... --workdir ..."
arguments=("$@")
GRACE=${GRACE:-30}
find_logs "$@"

port=$((20000 + RANDOM % 10000))
while (: > "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do port=$((port + 1)); done

# Sets `command` to that of process $1.
make_command() {
    command=(env)
    if [[ ${GPUS:-} ]]; then
        command+=("CUDA_VISIBLE_DEVICES=$(seq -s, $(($1 * GPUS)) $((($1 + 1) * GPUS - 1)))")
    else
        command+=(JAX_PLATFORMS=cpu "JAX_NUM_CPU_DEVICES=${DEVICES:-1}")
    fi
    command+=(xling "${arguments[@]}" --coordinator "127.0.0.1:$port")
    command+=(--num-processes "$num_processes" --process-id "$1")
}

if [[ $dry_run ]]; then
    show mkdir -p "$logs"
    for ((i = 0; i < num_processes; i++)); do
        make_command "$i"
        echo "$(show "${command[@]}") >> $(quote "$logs/process-$i.log") 2>&1 &"
    done
    echo wait
    exit
fi

mkdir -p "$logs"
touch "$logs/process-0.log"
earlier=$(wc -c < "$logs/process-0.log") # what an earlier run wrote is not shown again
left=() # process number -> pid of those that run
set -m  # each process leads a group of its own, so that a Ctrl-C is sent to this script alone
for ((i = 0; i < num_processes; i++)); do
    make_command "$i"
    "${command[@]}" >> "$logs/process-$i.log" 2>&1 < /dev/null &
    left+=($!)
done
set +m
tail -c "+$((earlier + 1))" -f -s 0.2 --pid="${left[0]}" "$logs/process-0.log" &
shown=$!

set +e # to signal a process that has just ended is no error
exec 3>&2 2> /dev/null # bash tells of every killed process, in its own words
say() { echo "launch/local.sh: $*" >&3; }

kill_at= # seconds since the start, once the processes were told to end
stop() {
    kill_at=${kill_at:-$((SECONDS + GRACE))}
    kill -TERM "${left[@]}"
}
trap 'say "telling all processes to stop"; stop' TERM
trap '[[ ! $kill_at ]] || kill_at=-1; say "telling all to stop, once more kills them"; stop' INT

status=0
while ((${#left[@]})); do
    sleep 0.2
    for i in "${!left[@]}"; do
        pid=${left[i]}
        if kill -0 "$pid"; then continue; fi
        unset "left[i]"
        wait "$pid" && ended=0 || ended=$?
        kill -KILL -- "-$pid" # what it started goes with it
        ((status)) || status=$ended
        if ((ended)) && [[ ! $kill_at ]]; then
            say "process $i ended with status $ended, see $logs/process-$i.log; stopping all"
            stop
        fi
    done
    if [[ $kill_at ]] && ((SECONDS > kill_at && ${#left[@]})); then
        say "killing those that are left: ${!left[*]}"
        kill -KILL -- "${left[@]/#/-}"
        kill_at=$((SECONDS + 10)) # the system may take its time
    fi
done
wait "$shown"
exit "$status"
