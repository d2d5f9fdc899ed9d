# Sourced by the scripts beside it: --help, --dry-run, and commands that are shown as they run.
# shellcheck shell=bash

fail() {
    echo "launch/$(basename "$0"): $*" >&2
    exit 2
}

# Prints the comment at the top of a script.
usage() {
    sed -n '2,/^$/{s/^# \{0,1\}//;p;}' "$0"
}

# Prints a word as a shell reads it, with quotes where it needs them.
quote() {
    local name='' value=$1
    if [[ $1 =~ ^(--[A-Za-z0-9_.-]+=)(.*)$ ]]; then
        name=${BASH_REMATCH[1]} value=${BASH_REMATCH[2]}
    fi
    if [[ ! $value =~ ^[A-Za-z0-9_./:=,@%+-]*$ || ! $1 ]]; then
        if [[ $value == *\'* && $value != *[\"\$\`\\!]* ]]; then
            value="\"$value\""
        else
            value="'${value//\'/\'\\\'\'}'"
        fi
    fi
    printf '%s' "$name$value"
}

# Prints a command, with --options on lines of their own if it is long.
show() {
    local line words=() word
    for word in "$@"; do words+=("$(quote "$word")"); done
    line=${words[*]}
    if ((${#line} > 100)); then
        line=${words[0]}
        for word in "${words[@]:1}"; do
            [[ $word != --* ]] || line+=$' \\\n   '
            line+=" $word"
        done
    fi
    printf '%s\n' "$line"
}

# Shows a command and, unless this is a dry run, runs it.
run() {
    if [[ $dry_run ]]; then
        show "$@"
    else
        show "$@" >&2
        "$@"
    fi
}

# Sets `logs` to the directory for the logs of a command: WORKDIR/logs, or what LOGS says.
find_logs() {
    local workdir='' previous='' word
    for word in "$@"; do
        [[ $previous != --workdir ]] || workdir=$word
        [[ $word != --workdir=* ]] || workdir=${word#*=}
        previous=$word
    done
    [[ ${LOGS:-} || $workdir ]] || fail "no --workdir to keep the logs in; set LOGS=DIRECTORY"
    logs=${LOGS:-$workdir/logs}
    [[ $logs != *://* ]] || fail "logs cannot be written to $logs; set LOGS=DIRECTORY"
}

dry_run=
arguments=()
for argument in "$@"; do
    case $argument in
    --dry-run) dry_run=1 ;;
    -h | --help) usage && exit ;;
    *) arguments+=("$argument") ;;
    esac
done
set -- "${arguments[@]}"
