# Sourced by the other scripts: --help, --dry-run, and showing commands as they run.
# shellcheck shell=bash

fail() {
    echo "launch/$(basename "$0"): $*" >&2
    exit 2
}

# Prints the comment at the top of the script.
usage() {
    sed -n '2,/^$/{s/^# \{0,1\}//;p;}' "$0"
}

# Prints a word as shell input, quoted if necessary.
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

# Prints a command; puts each --option on its own line if the command is long.
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

# Fails unless the variable $1 is empty or a whole number of at least $2.
check_number() {
    local value=${!1:-}
    [[ ! $value || ($value =~ ^(0|[1-9][0-9]{0,8})$ && $value -ge $2) ]] ||
        fail "$1='$value' must be a whole number of at least $2; see --help"
}

# Fails unless the command among these words runs in several processes. Others do not take the options
# that join them, and would refuse them only on the machines, after the wait for these.
check_command() {
    local word
    for word in "$@"; do [[ $word == -* ]] || break; done # xling has options of its own
    case $word in
    train) ;;
    embed | mine) fail "'$word' runs in shares, --shard I/N, which any scheduler can start; see its --help" ;;
    *) fail "'$word' cannot run in several processes, only train can; run it without this script" ;;
    esac
}

# Sets `logs` to the log directory of a command: $LOGS, or else WORKDIR/logs.
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
