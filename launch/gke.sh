#!/usr/bin/env bash
# Runs xling train on all hosts of a TPU slice, or on several GPU machines, in a GKE cluster, as the
# JobSet of jobset.yaml.
#
#   launch/gke.sh [--dry-run] image                     build IMAGE from this checkout and push it
#   launch/gke.sh [--dry-run] start COMMAND [ARG ...]   run `xling COMMAND ARG ...` on all hosts
#   launch/gke.sh [--dry-run] logs                      follow the log of worker 0
#   launch/gke.sh [--dry-run] delete                    save a checkpoint, exit, delete the JobSet
#
#   export NAME=laser IMAGE=us-docker.pkg.dev/PROJECT/xling/xling_jax:1
#   export ACCELERATOR=tpu-v5-lite-podslice TOPOLOGY=4x4 HOSTS=4 CHIPS=4
#   launch/gke.sh image
#   launch/gke.sh start train --config configs/ct_laser.py --workdir gs://BUCKET/ct_laser
#
# and with GPUs, in place of TOPOLOGY and CHIPS,
#
#   export ACCELERATOR=nvidia-h100-80gb HOSTS=2 GPUS=8
#
# If a run fails or loses a host, it is restarted on all hosts and continues; there is no resume
# action. After a usage error (status 2) it is not restarted.
#
# variables; the current kubectl context gives the cluster and the namespace
#   NAME              of the JobSet
#   IMAGE             container image with xling_jax
#   ACCELERATOR       node label cloud.google.com/gke-tpu-accelerator, or gke-accelerator
#   TOPOLOGY          node label cloud.google.com/gke-tpu-topology
#   HOSTS             nodes of the slice, or machines
#   CHIPS             per node, e.g. 4
#   GPUS=             per machine, e.g. 8; set for `image`, too
#   RESTARTS=100      at most
#   SERVICE_ACCOUNT=default   Kubernetes account that may write to the bucket

set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=launch/run.sh
source "$here/run.sh"

(($#)) || fail "no action given; see --help"
action=$1
shift
need() {
    for variable in "$@"; do [[ ${!variable:-} ]] || fail "set $variable; see --help"; done
}

image() {
    need IMAGE
    local extra=()
    [[ ! ${GPUS:-} ]] || extra=(--build-arg="HARDWARE=cuda")
    run docker build --platform=linux/amd64 "${extra[@]}" --tag="$IMAGE" \
        --file="$here/Dockerfile" "$here/.."
    run docker push "$IMAGE"
}

# jobset.yaml with each ${VARIABLE} replaced.
manifest() {
    local text variable
    text=$(cat "$here/jobset.yaml")
    for variable in NAME IMAGE SELECTOR HOSTS DEVICES RESTARTS SERVICE_ACCOUNT WORDS; do
        text=${text//"\${$variable}"/"${!variable}"}
    done
    printf '%s\n' "$text"
}

# shellcheck disable=SC2034,SC2153 # NAME is set by the user, SELECTOR and DEVICES go into the manifest
start() {
    (($#)) || fail "no command given; e.g. start train --config ... --workdir gs://..."
    check_command "$@"
    need NAME IMAGE ACCELERATOR HOSTS
    local RESTARTS=${RESTARTS:-100} SERVICE_ACCOUNT=${SERVICE_ACCOUNT:-default} WORDS='' word
    local SELECTOR DEVICES label=cloud.google.com/gke join=(--distributed)
    if [[ ${GPUS:-} ]]; then
        SELECTOR="$label-accelerator: $ACCELERATOR" DEVICES="nvidia.com/gpu: $GPUS"
        # Kubernetes puts in the number of the pod.
        join=("--coordinator=$NAME-workers-0-0.$NAME:8482" "--num-processes=$HOSTS"
            "--process-id=\$(JOB_COMPLETION_INDEX)")
    else
        need TOPOLOGY CHIPS
        SELECTOR="$label-tpu-accelerator: $ACCELERATOR, $label-tpu-topology: $TOPOLOGY"
        DEVICES="google.com/tpu: $CHIPS"
    fi
    for word in "$@" "${join[@]}"; do # YAML strings in single quotes, which fold lines, or in double
        if [[ $word == *$'\n'* ]]; then
            word=${word//\\/\\\\} word=${word//\"/\\\"}
            WORDS+="${WORDS:+, }\"${word//$'\n'/\\n}\""
        else
            WORDS+="${WORDS:+, }'${word//\'/\'\'}'"
        fi
    done
    if [[ $dry_run ]]; then
        echo "kubectl create --filename=- << 'END'"
        manifest
        echo END
    else
        manifest | run kubectl create --filename=-
    fi
}

# shellcheck disable=SC2153 # NAME is set by the user
logs() {
    need NAME
    local worker=jobset.sigs.k8s.io/jobset-name=$NAME,batch.kubernetes.io/job-completion-index=0
    run kubectl logs --follow --tail=-1 --selector="$worker"
}

delete() {
    need NAME
    run kubectl delete jobset "$NAME"
}

case $action in
image | logs | delete) "$action" ;;
start) start "$@" ;;
*) fail "'$action' is not image, start, logs or delete; see --help" ;;
esac
