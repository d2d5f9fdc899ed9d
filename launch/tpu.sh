#!/usr/bin/env bash
# A Cloud TPU slice: create it, install xling on all workers, run train on them, release it.
#
#   launch/tpu.sh [--dry-run] create                     now, or as a queued resource
#   launch/tpu.sh [--dry-run] install                    the last commit of this checkout
#   launch/tpu.sh [--dry-run] start COMMAND [ARG ...]    run `xling COMMAND ARG ...` on all workers
#   launch/tpu.sh [--dry-run] logs                       follow the log of worker 0
#   launch/tpu.sh [--dry-run] stop                       save a checkpoint and exit
#   launch/tpu.sh [--dry-run] resume COMMAND [ARG ...]   after preemption: create, install, start
#   launch/tpu.sh [--dry-run] babysit COMMAND [ARG ...]  resume until COMMAND is done, then delete
#   launch/tpu.sh [--dry-run] delete
#
#   export NAME=laser ZONE=us-west4-a ACCELERATOR=v5litepod-16 RUNTIME=v2-alpha-tpuv5-lite SPOT=1
#   launch/tpu.sh create && launch/tpu.sh install
#   launch/tpu.sh start train --config configs/ct_laser.py --workdir gs://BUCKET/ct_laser
#
# or, in a terminal or on a machine that stays on,
#
#   launch/tpu.sh babysit train --config configs/ct_laser.py --workdir gs://BUCKET/ct_laser
#
# which checks on the slice every minute: one that was preempted is created anew, and a command that
# was stopped continues. It ends when the command is done, was used wrongly (status 2), or has
# failed more than RESTARTS times in a row, each within ten minutes of its start; then it leaves the
# slice as it is. End babysit before you stop the command yourself.
#
# variables; set the project with `gcloud config set project`
#   NAME          of the TPU and its queued resource
#   ZONE          e.g. us-west4-a
#   ACCELERATOR   e.g. v5litepod-16, v6e-16; see `gcloud compute tpus accelerator-types list`
#   RUNTIME       software of the workers; see `gcloud compute tpus versions list`
#   QUEUE=        1: queue until the slice is available
#   SPOT=         1: a cheaper machine that can be preempted
#   RESERVED=     1: one of your reservation
#   SLICES=1      number of slices that train together, NAME-0, NAME-1 ...; needs QUEUE=1
#   SERVICE_ACCOUNT= NETWORK= SUBNETWORK=   of the workers, instead of the project's default
#   RESTARTS=3    for babysit
#   EVERY_S=60    for babysit, seconds between checks

set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=launch/run.sh
source "$here/run.sh"

(($#)) || fail "no action given; see --help"
action=$1
shift
needed=(NAME ZONE)
[[ ! $action =~ ^(create|resume|babysit)$ ]] || needed+=(ACCELERATOR RUNTIME)
for variable in "${needed[@]}"; do
    [[ ${!variable:-} ]] || fail "set $variable; see --help"
done
check_number SLICES 1
check_number RESTARTS 0
check_number EVERY_S 0

# shellcheck disable=SC2153 # NAME is set by the user
nodes=("$NAME")
if ((${SLICES:-1} > 1)); then
    [[ ${QUEUE:-} ]] || fail "SLICES=$SLICES needs QUEUE=1: they are requested together"
    nodes=() && for ((i = 0; i < SLICES; i++)); do nodes+=("$NAME-$i"); done
fi

ask_queue=(gcloud compute tpus queued-resources describe "$NAME" --zone="$ZONE"
    "--format=value(state.state)")

need_command() { # word ...
    (($#)) || fail "no command given; e.g. $action train --config ... --workdir gs://..."
    check_command "$@"
}

on_worker() { # node, `all` or a worker's number, command
    run gcloud compute tpus tpu-vm ssh "$1" --zone="$ZONE" --worker="$2" --command="$3"
}

on_all() { # command
    local node
    for node in "${nodes[@]}"; do on_worker "$node" all "$1"; done
}

create() {
    local kind=(--zone="$ZONE" --accelerator-type="$ACCELERATOR") names=(--node-id="$NAME")
    [[ ! ${SPOT:-} ]] || kind+=(--spot)
    [[ ! ${RESERVED:-} ]] || kind+=(--reserved)
    [[ ! ${SERVICE_ACCOUNT:-} ]] || kind+=(--service-account="$SERVICE_ACCOUNT")
    [[ ! ${NETWORK:-} ]] || kind+=(--network="$NETWORK")
    [[ ! ${SUBNETWORK:-} ]] || kind+=(--subnetwork="$SUBNETWORK")
    ((${#nodes[@]} == 1)) || names=(--node-count="${#nodes[@]}" --node-prefix="$NAME")
    if [[ ${QUEUE:-} ]]; then
        run gcloud compute tpus queued-resources create "$NAME" "${names[@]}" \
            "${kind[@]}" --runtime-version="$RUNTIME" && wait_in_queue
    else
        run gcloud compute tpus tpu-vm create "$NAME" "${kind[@]}" --version="$RUNTIME"
    fi
}

# Prints what a command says is the state of a node or of a queued resource; `gone` if there is no such
# thing, `unknown: REASON` if gcloud cannot tell, without a connection for one.
state_by() { # command ...
    local said
    said=$(mktemp)
    "$@" 2> "$said" ||
        if grep -q NOT_FOUND "$said"; then echo gone; else echo "unknown: $(tail -n 1 "$said")"; fi
    rm -f "$said"
}

wait_in_queue() {
    local state=''
    if [[ $dry_run ]]; then
        echo "until [[ \$($(show "${ask_queue[@]}")) == ACTIVE ]]; do sleep 30; done"
        return
    fi
    until [[ $state == ACTIVE ]]; do
        state=$(state_by "${ask_queue[@]}")
        echo "$(date +%T) $NAME: $state" >&2
        [[ $state != FAILED && $state != SUSPENDED && $state != gone ]] || return 1
        [[ $state == ACTIVE ]] || sleep 30
    done
}

install() {
    local directory=${TMPDIR:-/tmp} node
    if [[ ! $dry_run ]]; then
        packed=$(mktemp -d) directory=$packed # another checkout may be installed at the same time
        trap 'rm -rf "$packed"' EXIT
    fi
    run git -C "$here/.." archive --format=tar.gz --output="$directory/xling_jax.tar.gz" HEAD
    for node in "${nodes[@]}"; do
        run gcloud compute tpus tpu-vm scp "$directory/xling_jax.tar.gz" "$node:" \
            --zone="$ZONE" --worker=all
    done
    # The workers' own Python is older than 3.11; uv installs one.
    on_all 'rm -f xling_jax/installed && mkdir -p xling_jax &&
        tar -xzf xling_jax.tar.gz -C xling_jax && cd xling_jax &&
        curl -LsSf https://astral.sh/uv/install.sh | sh &&
        ~/.local/bin/uv venv --python 3.12 --allow-existing .venv &&
        ~/.local/bin/uv pip install --python .venv -e ".[tpu,gcs]"'
    # Each worker should print the number of devices of the whole slice; several slices would have to
    # be asked at the same time.
    ((${#nodes[@]} > 1)) ||
        on_all 'xling_jax/.venv/bin/python -c "import jax; jax.distributed.initialize();
print(f\"worker {jax.process_index()} of {jax.process_count()}, {jax.device_count()} devices\")"'
    on_all 'touch xling_jax/installed'
}

# The words of the command of a worker, quoted for its shell.
words_of() {
    for word in .venv/bin/xling "$@" --distributed; do quote "$word" && printf ' '; done
}

start() {
    local words
    words=$(words_of "$@")
    # ssh returns because all files of the command are redirected. On a full disk nothing starts.
    on_all "cd xling_jax || exit 1
if kill -0 \"\$(cat xling.pid 2> /dev/null)\" 2> /dev/null; then echo already running; exit 1; fi
rm -f xling.pid xling.status
printf '%s ' $words> xling.command || exit 1
nohup bash -c '\"\$@\" & echo \$! > xling.pid || kill -KILL \$!
wait \$!; echo \$? > xling.ended; mv xling.ended xling.status' _ \\
    $words>> xling.log 2>&1 < /dev/null &
for i in {1..200}; do [ -s xling.pid ] && exit; sleep 0.1; done
echo not started, the disk may be full; exit 1"
}

# Prints what a command came to on worker 0: its status, `unknown` if a full disk did not take it,
# `running`, `stopped`, or `bare` where the installation has not ended.
look() { # word ...
    local words
    words=$(words_of "$@")
    # A status that another command left says nothing of this one.
    on_worker "${nodes[0]}" 0 "cd xling_jax 2> /dev/null || { echo bare; exit; }
if [ \"\$(cat xling.command)\" = \"\$(printf '%s ' $words)\" ] && [ -e xling.status ]
then grep . xling.status || echo unknown
elif kill -0 \"\$(cat xling.pid)\"; then echo running
elif [ -e installed ]; then echo stopped
else echo bare; fi 2> /dev/null"
}

delete() {
    if [[ ${QUEUE:-} ]]; then
        run gcloud compute tpus queued-resources delete "$NAME" --zone="$ZONE" --force --quiet
    else
        run gcloud compute tpus tpu-vm delete "$NAME" --zone="$ZONE" --quiet
    fi
}

# READY, or the state of a node that is not.
slice_state() {
    local node state
    for node in "${nodes[@]}"; do
        state=$(state_by gcloud compute tpus tpu-vm describe "$node" --zone="$ZONE" \
            "--format=value(state)")
        [[ $state == READY ]] || break
    done
    echo "$state"
}

# Creates the slice anew, or waits for it if its request is in the queue.
renew() { # the state of the slice
    local request=gone
    if [[ ${QUEUE:-} && $dry_run ]]; then
        echo "# if this prints ACCEPTED, PROVISIONING or WAITING_FOR_RESOURCES, only wait:"
        show "${ask_queue[@]}"
        request=''
    elif [[ ${QUEUE:-} ]]; then
        request=$(state_by "${ask_queue[@]}")
        echo "$NAME: request $request" >&2
    fi
    case $request in
    unknown*) return 1 ;;
    ACCEPTED | CREATING | PROVISIONING | WAITING_FOR_RESOURCES)
        wait_in_queue
        return
        ;;
    esac
    # A preempted machine stays listed and must be deleted before its name can be reused.
    [[ $1 == gone && $request == gone ]] || delete || return
    create
}

resume() {
    local state=''
    if [[ $dry_run ]]; then
        echo "# if this prints READY, and all is installed, only the last command is needed:"
        show gcloud compute tpus tpu-vm describe "${nodes[0]}" --zone="$ZONE" "--format=value(state)"
    else
        state=$(slice_state)
        [[ $state != unknown* ]] || fail "$NAME: state $state; try again once gcloud answers"
        echo "$NAME: $state" >&2
    fi
    if [[ $state != READY ]]; then
        renew "$state"
        install
    elif [[ $(look "$@" 2> /dev/null) == bare ]]; then
        install
    fi
    start "$@"
}

babysit() {
    local state status failures=0 started=0 shown=''
    if [[ $dry_run ]]; then
        resume "$@"
        echo "# every ${EVERY_S:-60} s, until this prints 0:"
        look "$@"
        delete
        return
    fi
    while :; do
        state=$(slice_state) status=''
        case $state in
        READY) status=$(look "$@" 2> /dev/null) || state='READY, no answer' ;;
        # Where there is no capacity, it is tried again.
        PREEMPTED | TERMINATED | STOPPED | gone) renew "$state" && "$0" install && continue ;;
        esac
        [[ "$state $status" == "$shown" ]] || echo "$(date +%T) $NAME: $state $status" >&2
        shown="$state $status"
        case $status in
        '' | running) sleep "${EVERY_S:-60}" && continue ;;
        bare) { "$0" install || sleep "${EVERY_S:-60}"; } && continue ;;
        0)
            until delete || [[ $(slice_state) == gone ]]; do sleep "${EVERY_S:-60}"; done
            return
            ;;
        2) fail "the command was used wrongly, see launch/tpu.sh logs" ;;
        stopped | 143) failures=0 ;;
        *)
            ((SECONDS - started < 600)) || failures=0
            ((++failures <= ${RESTARTS:-3})) ||
                fail "the command failed with status $status, see launch/tpu.sh logs"
            ;;
        esac
        started=$SECONDS
        # Those that go on wait for the others, which will not come back.
        # shellcheck disable=SC2016 # the workers expand $(...)
        on_all 'kill -KILL "$(cat xling_jax/xling.pid)" 2> /dev/null; sleep 1' || true
        "$0" start "$@" || sleep "${EVERY_S:-60}"
    done
}

# shellcheck disable=SC2016 # the workers expand $(...)
case $action in
create | install | delete) "$action" ;;
start | resume | babysit) need_command "$@"; "$action" "$@" ;;
logs) on_worker "${nodes[0]}" 0 'tail -n 50 -F xling_jax/xling.log' ;;
stop) on_all 'kill -TERM $(cat xling_jax/xling.pid)' ;;
*) fail "'$action' is not create, install, start, logs, stop, resume, babysit or delete; see --help" ;;
esac
