#!/usr/bin/env bash
# A Cloud TPU slice: create it, install xling on all workers, run train, embed or mine on them,
# release it.
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
for variable in NAME ZONE; do
    [[ ${!variable:-} ]] || fail "set $variable; see --help"
done

# shellcheck disable=SC2153 # NAME is set by the user
nodes=("$NAME")
if ((${SLICES:-1} > 1)); then
    [[ ${QUEUE:-} ]] || fail "SLICES=$SLICES needs QUEUE=1: they are requested together"
    nodes=() && for ((i = 0; i < SLICES; i++)); do nodes+=("$NAME-$i"); done
fi

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
    for variable in ACCELERATOR RUNTIME; do
        [[ ${!variable:-} ]] || fail "set $variable; see --help"
    done
    local kind=(--zone="$ZONE" --accelerator-type="$ACCELERATOR") names=(--node-id="$NAME")
    [[ ! ${SPOT:-} ]] || kind+=(--spot)
    [[ ! ${RESERVED:-} ]] || kind+=(--reserved)
    [[ ! ${SERVICE_ACCOUNT:-} ]] || kind+=(--service-account="$SERVICE_ACCOUNT")
    [[ ! ${NETWORK:-} ]] || kind+=(--network="$NETWORK")
    [[ ! ${SUBNETWORK:-} ]] || kind+=(--subnetwork="$SUBNETWORK")
    ((${#nodes[@]} == 1)) || names=(--node-count="${#nodes[@]}" --node-prefix="$NAME")
    if [[ ${QUEUE:-} ]]; then
        run gcloud compute tpus queued-resources create "$NAME" "${names[@]}" \
            "${kind[@]}" --runtime-version="$RUNTIME"
        wait_in_queue
    else
        run gcloud compute tpus tpu-vm create "$NAME" "${kind[@]}" --version="$RUNTIME"
    fi
}

wait_in_queue() {
    local state='' ask=(gcloud compute tpus queued-resources describe "$NAME" --zone="$ZONE"
        "--format=value(state.state)")
    if [[ $dry_run ]]; then
        echo "until [[ \$($(show "${ask[@]}")) == ACTIVE ]]; do sleep 30; done"
        return
    fi
    until [[ $state == ACTIVE ]]; do
        state=$("${ask[@]}")
        echo "$(date +%T) $NAME: $state" >&2
        [[ $state != FAILED && $state != SUSPENDED ]] || exit 1
        [[ $state == ACTIVE ]] || sleep 30
    done
}

install() {
    local archive="${TMPDIR:-/tmp}/xling_jax.tar.gz"
    run git -C "$here/.." archive --format=tar.gz --output="$archive" HEAD
    local node
    for node in "${nodes[@]}"; do
        run gcloud compute tpus tpu-vm scp "$archive" "$node:" --zone="$ZONE" --worker=all
    done
    # The workers' own Python is older than 3.11; uv installs one.
    on_all 'mkdir -p xling_jax && tar -xzf xling_jax.tar.gz -C xling_jax && cd xling_jax &&
        curl -LsSf https://astral.sh/uv/install.sh | sh &&
        ~/.local/bin/uv venv --python 3.12 --allow-existing .venv &&
        ~/.local/bin/uv pip install --python .venv -e ".[tpu,gcs]"'
    ((${#nodes[@]} == 1)) || return 0 # slices would have to be asked at the same time
    # Each worker should print the number of devices of the whole slice.
    on_all 'xling_jax/.venv/bin/python -c "import jax; jax.distributed.initialize();
print(f\"worker {jax.process_index()} of {jax.process_count()}, {jax.device_count()} devices\")"'
}

# The words of the command of a worker, quoted for its shell.
words_of() {
    for word in .venv/bin/xling "$@" --distributed; do quote "$word" && printf ' '; done
}

start() {
    local words
    words=$(words_of "$@")
    # ssh returns because all files of the command are redirected.
    on_all "cd xling_jax
if kill -0 \"\$(cat xling.pid 2> /dev/null)\" 2> /dev/null; then echo already running; exit 1; fi
rm -f xling.pid xling.status
printf '%s ' $words> xling.command
nohup bash -c '\"\$@\" & echo \$! > xling.pid; wait \$!; echo \$? > xling.status' _ \\
    $words>> xling.log 2>&1 < /dev/null &
until [ -s xling.pid ]; do sleep 0.1; done"
}

delete() {
    if [[ ${QUEUE:-} ]]; then
        run gcloud compute tpus queued-resources delete "$NAME" --zone="$ZONE" --force --quiet
    else
        run gcloud compute tpus tpu-vm delete "$NAME" --zone="$ZONE" --quiet
    fi
}

# READY, or the state of a node that is not; `gone` if there is no such node, `unknown: REASON` if
# gcloud cannot tell, without a connection for one.
slice_state() {
    local node state=READY said
    said=$(mktemp)
    for node in "${nodes[@]}"; do
        state=$(gcloud compute tpus tpu-vm describe "$node" --zone="$ZONE" "--format=value(state)" \
            2> "$said") || {
            state="unknown: $(tail -n 1 "$said")"
            ! grep -q NOT_FOUND "$said" || state=gone
        }
        [[ $state == READY ]] || break
    done
    rm -f "$said"
    echo "$state"
}

# A preempted machine stays listed and must be deleted before its name can be reused.
resume() {
    local state=''
    if [[ $dry_run ]]; then
        echo "# if this prints READY, only the last command is needed:"
        show gcloud compute tpus tpu-vm describe "${nodes[0]}" --zone="$ZONE" "--format=value(state)"
    else
        state=$(slice_state)
        [[ $state != unknown* ]] || fail "$NAME: state $state; try again once gcloud answers"
        echo "$NAME: $state" >&2
    fi
    if [[ $state != READY ]]; then
        [[ $state == gone && ! ${QUEUE:-} ]] || delete
        create
        install
    fi
    start "$@"
}

babysit() {
    local state status failures=0 started=0 shown='' words look
    words=$(words_of "$@")
    # A status that another command left says nothing of this one.
    look="cd xling_jax 2> /dev/null || { echo bare; exit; }
{ [ \"\$(cat xling.command)\" = \"\$(printf '%s ' $words)\" ] && cat xling.status ||
{ kill -0 \"\$(cat xling.pid)\" && echo running; }; } 2> /dev/null || echo stopped"
    if [[ $dry_run ]]; then
        resume "$@"
        echo "# every ${EVERY_S:-60} s, until this prints 0:"
        on_worker "${nodes[0]}" 0 "$look"
        delete
        return
    fi
    while :; do
        state=$(slice_state) status=''
        case $state in
        READY) status=$(on_worker "${nodes[0]}" 0 "$look" 2> /dev/null) || state='READY, no answer' ;;
        PREEMPTED | TERMINATED | STOPPED | gone)
            [[ $state == gone && ! ${QUEUE:-} ]] || "$0" delete || true
            # In processes of their own: where there is no capacity, they are tried again.
            "$0" create && "$0" install && continue
            ;;
        esac
        [[ "$state $status" == "$shown" ]] || echo "$(date +%T) $NAME: $state $status" >&2
        shown="$state $status"
        case $status in
        '' | running) sleep "${EVERY_S:-60}" && continue ;;
        bare) { "$0" install || sleep "${EVERY_S:-60}"; } && continue ;;
        0) delete && return ;;
        2) fail "the command was used wrongly, see launch/tpu.sh logs" ;;
        stopped | 143) ;;
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
