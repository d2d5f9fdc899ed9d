#!/usr/bin/env bash
# A Cloud TPU slice: create it, install xling on all workers, run a command on them, release it.
#
#   launch/tpu.sh [--dry-run] create                     now, or as a queued resource
#   launch/tpu.sh [--dry-run] install                    the last commit of this checkout
#   launch/tpu.sh [--dry-run] start COMMAND [ARG ...]    run `xling COMMAND ARG ...` on all workers
#   launch/tpu.sh [--dry-run] logs                       follow the log of worker 0
#   launch/tpu.sh [--dry-run] stop                       save a checkpoint and exit
#   launch/tpu.sh [--dry-run] resume COMMAND [ARG ...]   after preemption: create, install, start
#   launch/tpu.sh [--dry-run] delete
#
#   export NAME=laser ZONE=us-west4-a ACCELERATOR=v5litepod-16 RUNTIME=v2-alpha-tpuv5-lite SPOT=1
#   launch/tpu.sh create && launch/tpu.sh install
#   launch/tpu.sh start train --config configs/ct_laser.py --workdir gs://BUCKET/ct_laser
#
# variables; set the project with `gcloud config set project`
#   NAME          of the TPU and its queued resource
#   ZONE          e.g. us-west4-a
#   ACCELERATOR   e.g. v5litepod-16, v6e-16; see `gcloud compute tpus accelerator-types list`
#   RUNTIME       software of the workers; see `gcloud compute tpus versions list`
#   QUEUE=        1: queue until the slice is available
#   SPOT=         1: a cheaper machine that can be preempted

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

on_workers() { # `all` or a worker's number, command
    # shellcheck disable=SC2153 # NAME is set by the user
    run gcloud compute tpus tpu-vm ssh "$NAME" --zone="$ZONE" --worker="$1" --command="$2"
}

create() {
    for variable in ACCELERATOR RUNTIME; do
        [[ ${!variable:-} ]] || fail "set $variable; see --help"
    done
    local kind=(--zone="$ZONE" --accelerator-type="$ACCELERATOR")
    [[ ! ${SPOT:-} ]] || kind+=(--spot)
    if [[ ${QUEUE:-} ]]; then
        run gcloud compute tpus queued-resources create "$NAME" --node-id="$NAME" \
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
    run gcloud compute tpus tpu-vm scp "$archive" "$NAME:" --zone="$ZONE" --worker=all
    # The workers' own Python is older than 3.11; uv installs one.
    on_workers all 'mkdir -p xling_jax && tar -xzf xling_jax.tar.gz -C xling_jax && cd xling_jax &&
        curl -LsSf https://astral.sh/uv/install.sh | sh &&
        ~/.local/bin/uv venv --python 3.12 --allow-existing .venv &&
        ~/.local/bin/uv pip install --python .venv -e ".[tpu,gcs]"'
    # Each worker should print the number of devices of the whole slice.
    on_workers all 'xling_jax/.venv/bin/python -c "import jax; jax.distributed.initialize();
print(f\"worker {jax.process_index()} of {jax.process_count()}, {jax.device_count()} devices\")"'
}

start() {
    (($#)) || fail "no command given; e.g. start train --config ... --workdir gs://..."
    local words
    words=$(for word in .venv/bin/xling "$@" --distributed; do quote "$word" && printf ' '; done)
    # ssh returns because all files of the command are redirected.
    on_workers all "cd xling_jax
if kill -0 \"\$(cat xling.pid 2> /dev/null)\" 2> /dev/null; then echo already running; exit 1; fi
nohup $words>> xling.log 2>&1 < /dev/null &
echo \$! > xling.pid"
}

delete() {
    if [[ ${QUEUE:-} ]]; then
        run gcloud compute tpus queued-resources delete "$NAME" --zone="$ZONE" --force --quiet
    else
        run gcloud compute tpus tpu-vm delete "$NAME" --zone="$ZONE" --quiet
    fi
}

# A preempted machine stays listed and must be deleted before its name can be reused.
resume() {
    local state='' ask=(gcloud compute tpus tpu-vm describe "$NAME" --zone="$ZONE"
        "--format=value(state)")
    if [[ $dry_run ]]; then
        echo "# if this prints READY, only the last command is needed:"
        show "${ask[@]}"
    else
        state=$("${ask[@]}") || state=gone
        echo "$NAME: $state" >&2
    fi
    if [[ $state != READY ]]; then
        [[ $state == gone && ! ${QUEUE:-} ]] || delete
        create
        install
    fi
    start "$@"
}

# shellcheck disable=SC2016 # the workers expand $(...)
case $action in
create | install | delete) "$action" ;;
start | resume) "$action" "$@" ;;
logs) on_workers 0 'tail -n 50 -F xling_jax/xling.log' ;;
stop) on_workers all 'kill -TERM $(cat xling_jax/xling.pid)' ;;
*) fail "'$action' is not create, install, start, logs, stop, resume or delete; see --help" ;;
esac
