#!/usr/bin/env bash
# T-LASER, cT-LASER, LASER_1 and cLASER_1 at base size and equal length on the same text, on one GPU,
# in pieces of a few minutes: in which order they are at 500 million tokens a side.
#
#   launch/claims_on_gpu.sh prepare DIR W   # where the text is: tokens, vocabulary, dev sets into W
#   launch/claims_on_gpu.sh run W           # where the GPU is; again until it prints "done"
#
# DIR holds parallel/, retrieval/ and classification/sib200 (docs/how-to/reproduce.md). W is all that
# `run` reads: no network, no TensorFlow. Give W as the same relative path both times.
# W/NAME/metrics.jsonl has P@1 and accuracy at ten points, W/NAME/encoder the encoder.
#
# variables
#   ROWS=60000      rows of each file of DIR/parallel, to keep W small enough to carry
#   SIZE=base       of the configs
#   STEPS=7630      updates of each system, at base 65,536 tokens a side
#   MINUTES=9       after which `run` saves and stops
#   SYSTEMS=...     the configs to run

set -euo pipefail
fail() {
    echo "launch/claims_on_gpu.sh: $*" >&2
    exit 2
}
ROWS=${ROWS:-60000} SIZE=${SIZE:-base} STEPS=${STEPS:-7630} MINUTES=${MINUTES:-9}
read -ra systems <<< "${SYSTEMS:-t_laser ct_laser laser:layers=1 claser:layers=1}"
codes=(de en es fr it)
xling() { "${PYTHON:-python3}" -m xling_jax.cli.main "$@"; }

# Sets `options` to those of config $1 on the text of workdir $2.
options_of() {
    local config=$1 separator=:
    [[ $config == *:* ]] && separator=,
    local every=$(((STEPS + 9) / 10)) pairs=() a b
    for a in "${codes[@]}"; do
        for b in "${codes[@]}"; do [[ $a == "$b" ]] || pairs+=("'$a-$b'"); done
    done
    options=(--config "$config$separator$SIZE"
        "--config.data.pairs=($(IFS=,; echo "${pairs[*]}"))"
        "--config.data.corpora=$(< "$2/corpora")"
        "--config.evaluation.retrieval=('$2/dev/europarl.dev.tsv.gz','$2/dev/pud.dev.tsv.gz')"
        "--config.evaluation.classification=('$2/dev/sib200',)"
        "--config.train.total_steps=$STEPS" "--config.train.evaluate_every_steps=$every"
        "--config.train.checkpoint_every_steps=$every" --config.train.keep_last=1
        --config.train.keep_every_steps=0)
}

case ${1:-} in
prepare)
    (($# == 3)) || fail "usage: prepare DIR W"
    data=$2 workdir=$3
    [[ -d $data/parallel ]] || fail "$data: must hold parallel/, retrieval/, classification/sib200"
    mkdir -p "$workdir/dev/sib200"
    cp "$data"/retrieval/{europarl,pud}.dev.tsv.gz "$workdir/dev"
    cp "$data"/classification/sib200/*.{de,en,es,fr,it}.tsv* "$workdir/dev/sib200"
    names=
    for file in "$data"/parallel/*.tsv.gz; do # dictionaries are not sentences
        [[ $file == */dict* || $file == */idiom* ]] && continue
        read -r header < <(gzip -dc "$file" 2> /dev/null) || continue # empty
        header=" ${header//$'\t'/ } " found=0
        for code in "${codes[@]}"; do [[ $header != *" $code "* ]] || ((++found)); done
        ((found < 2)) || names+="'tsv:${file}[:$ROWS]',"
    done
    echo "($names)" > "$workdir/corpora"
    options_of "${systems[0]}" "$workdir"
    xling prepare "${options[@]}" --workdir "$workdir/text"
    rm -rf "$workdir/text/text"
    echo "$(du -sm "$workdir" | cut -f1) MB in $workdir"
    ;;
run)
    (($# == 2)) || fail "usage: run W"
    workdir=$2
    [[ -e $workdir/corpora ]] || fail "$workdir: prepare it first"
    end=$((SECONDS + MINUTES * 60))
    for config in "${systems[@]}"; do
        run=$workdir/${config//[:=]/-}
        [[ -e $run/encoder ]] && continue
        ((left = end - SECONDS, left > 20)) || break
        if [[ ! -e $run/data ]]; then
            mkdir -p "$run"
            cp -r "$workdir/text/data" "$workdir/text/vocab" "$run"
        fi
        options_of "$config" "$workdir"
        status=0 # of 143: it has saved, and continues
        "${TIMEOUT:-timeout}" -s TERM "$left" \
            "${PYTHON:-python3}" -m xling_jax.cli.main train "${options[@]}" --workdir "$run" || status=$?
        [[ $status == 0 || $status == 124 || $status == 143 ]] || exit "$status"
    done
    for config in "${systems[@]}"; do
        run=$workdir/${config//[:=]/-}
        grep -h p_at_1 "$run/metrics.jsonl" 2> /dev/null | tail -1 | sed "s|^|$config |" || true
        [[ -e $run/encoder ]] || not_done="not done; run the same command again"
    done
    echo "${not_done:-done}"
    ;;
-h | --help) sed -n '2,/^$/{s/^# \{0,1\}//;p;}' "$0" ;;
*) fail "'${1:-}' is not prepare or run; see --help" ;;
esac
