#!/usr/bin/env bash
# Runs xling train as N processes on this machine, as on a pod.
#
#   launch/local.sh [--dry-run] N COMMAND [ARGUMENT ...]
#   launch/local.sh 2 train --config configs/ct_laser.py:small --workdir runs/two
#
# Process I logs to WORKDIR/logs/process-I.log; the log of process 0 is also shown here.
# Ctrl-C, SIGTERM and a closed terminal stop all processes: when training, they save a checkpoint of
# the same step and exit; otherwise they just exit. If one process fails, the others are stopped.
# Processes still running GRACE seconds later are killed; a second Ctrl-C kills all at once. If this
# script is killed, they stop as well. The exit status is the first one that is not 0; 143 means that
# the run was stopped and the same command continues it.
#
# variables
#   DEVICES=1   emulated CPU devices per process
#   GPUS=       GPUs per process instead, assigned in order: GPUS=2 gives process 1 the GPUs 2,3
#   GRACE=30    seconds between the signal to stop and the kill
#   LOGS=       log directory, for commands without a local --workdir

set -euo pipefail
# shellcheck source=launch/run.sh
source "$(dirname "${BASH_SOURCE[0]}")/run.sh"

num_processes=${1:-}
[[ $num_processes =~ ^[1-9][0-9]*$ ]] || fail "N='$num_processes' must be a number; see --help"
shift
(($#)) || fail "no command given; e.g. train --config ... --workdir ..."
check_command "$@"
arguments=("$@")
check_number DEVICES 1
check_number GPUS 1
check_number GRACE 0
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
earlier=$(wc -c < "$logs/process-0.log") # do not show the log of an earlier run again
early= # a signal that comes before all processes have started
trap 'early=TERM' TERM HUP
trap 'early=INT' INT
left=() # process number -> pid, of running processes
trap 'kill -TERM "${left[@]}" 2> /dev/null || true' EXIT # if one cannot be started
set -m  # each process leads its own group, so that Ctrl-C reaches this script alone
for ((i = 0; i < num_processes; i++)); do
    make_command "$i"
    "${command[@]}" >> "$logs/process-$i.log" 2>&1 < /dev/null &
    left+=($!)
done
set +m
trap - EXIT
tail -c "+$((earlier + 1))" -f -s 0.2 --pid="${left[0]}" "$logs/process-0.log" &
shown=$!
# The other end of this pipe closes when this script ends, if only by SIGKILL.
exec 4> >(
    exec > /dev/null 2>&1
    set +e
    trap '' INT TERM HUP
    read -r
    kill -TERM "${left[@]}"
    sleep "$GRACE"
    kill -KILL -- "${left[@]/#/-}"
)
watching=$!

set +e # signaling a process that has just exited is not an error
trap '' PIPE # Ctrl-C also ends a `tee` that reads this script's output
exec 3>&2 2> /dev/null # hide the messages of bash about killed processes
say() { echo "launch/local.sh: $*" >&3; }

kill_at= # deadline in seconds since the start, once stopping
stop() {
    kill_at=${kill_at:-$((SECONDS + GRACE))}
    kill -TERM "${left[@]}"
}
trap 'say "stopping all processes"; stop' TERM HUP
trap '[[ ! $kill_at ]] || kill_at=-1; say "stopping all; press Ctrl-C again to kill them"; stop' INT
[[ ! $early ]] || kill "-$early" $$

status=0
while ((${#left[@]})); do
    sleep 0.2
    for i in "${!left[@]}"; do
        pid=${left[i]}
        if kill -0 "$pid"; then continue; fi
        unset "left[i]"
        wait "$pid" && ended=0 || ended=$?
        kill -KILL -- "-$pid" # kill its children as well
        ((status)) || status=$ended
        if ((ended)) && [[ ! $kill_at ]]; then
            say "process $i exited with status $ended; see $logs/process-$i.log; stopping all"
            stop
        fi
    done
    if [[ $kill_at ]] && ((SECONDS > kill_at && ${#left[@]})); then
        say "killing the remaining processes: ${!left[*]}"
        kill -KILL -- "${left[@]/#/-}"
        kill_at=$((SECONDS + 10)) # the system may be slow
    fi
done
wait "$shown"
kill -KILL "$watching"
exit "$status"
