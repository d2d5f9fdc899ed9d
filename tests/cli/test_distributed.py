"""One command in several processes: wrong use, and how a process that ends takes the others."""

import argparse
import os
import signal
import subprocess
import sys
import threading
import time

import jax
import pytest

from tests.cli.corpora_for_cli import ROOT
from tests.cli.processes_for_cli import free_address
from xling_jax.cli import distributed
from xling_jax.cli.main import main

TRAIN = ["train", "--config", f"{ROOT}/configs/ct_laser.py:smoke", "--workdir", "w"]
WRONG = {
    "--coordinator localhost:1": "go together; give all",
    "--num-processes 2 --process-id 0": "go together; give all",
    "--coordinator localhost --num-processes 2 --process-id 0": "must be HOST:PORT",
    "--coordinator localhost:1 --num-processes 2 --process-id 2": "must be from 0 to",
    "--coordinator localhost:1 --num-processes 0 --process-id 0": "must be from 0 to",
    "--distributed --coordinator localhost:1": "give one",
}


@pytest.mark.parametrize("options", WRONG)
def test_wrong_use_is_one_line(options, capsys):
    assert main([*TRAIN, *options.split()]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("xling")]
    assert len(lines) == 1 and WRONG[options] in lines[0]


@pytest.mark.exhaustive
def test_no_cluster_is_one_line():
    """In a process of its own: JAX looks for a cluster before it has computed anything only."""
    clusters = ("SLURM_", "OMPI_")  # that the tests may run in
    ran = subprocess.run(
        [sys.executable, "-m", "xling_jax.cli.main", *TRAIN, "--distributed"],
        cwd=ROOT,
        env={name: os.environ[name] for name in os.environ if not name.startswith(clusters)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2
    (line,) = (line for line in ran.stderr.splitlines() if line.startswith("xling"))
    assert "no TPU pod, GKE, Slurm or Open MPI job found" in line


def test_a_sigterm_after_the_last_update_does_not_hold_up_the_end(monkeypatch):
    """JAX's shutdown then waits for the next update of the others, which never comes."""
    left, statuses = threading.Event(), []
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax.distributed, "initialize", lambda **_: None)
    monkeypatch.setattr(jax.distributed, "shutdown", lambda: left.wait(3))
    monkeypatch.setattr(distributed, "meet", lambda name: None)
    monkeypatch.setattr(distributed, "leave", lambda status: (statuses.append(status), left.set()))
    monkeypatch.setattr(distributed, "_LEAVE_WITHIN_S", 0.05)
    words = {"distributed": False, "coordinator": "localhost:1", "num_processes": 2}
    with distributed.joined(argparse.Namespace(**words, process_id=0)):
        pass
    assert statuses == [128 + signal.SIGTERM]


_ALONE = """
import argparse, os, signal, sys
from xling_jax.cli import distributed

if sys.argv.pop() == "slurm":  # which finds a job of one task
    import jax
    join = jax.distributed.initialize
    address = {"coordinator_address": "localhost:%s" % sys.argv[2].rpartition(":")[2]}
    address |= {"cluster_detection_method": "deactivate"}
    jax.distributed.initialize = lambda **_: join(num_processes=1, process_id=0, **address)
    sys.argv[1:] = ["--distributed"]
parser = argparse.ArgumentParser()
distributed.add_arguments(parser)
with distributed.joined(parser.parse_args()) as processes:
    print(processes == distributed.Processes(), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize("found", ["given", "slurm"])
def test_one_process_takes_its_signals_as_if_alone(found):
    """Otherwise JAX would keep them for the other processes to agree on a step."""
    words = ["--coordinator", free_address(), "--num-processes", "1", "--process-id", "0", found]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", _ALONE, *words], env=environment, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout.split()) == (-signal.SIGTERM, ["True"]), ran.stderr


# Joins, meets the other, then ends as told, while the other waits to meet again.
_PROCESS = """
import argparse, logging, os, signal, sys
from jax.experimental import multihost_utils
from xling_jax.cli import distributed
from xling_jax.options import OptionError

distributed.HEARTBEAT_TIMEOUT_S = int(os.environ.get("HEARTBEAT_S", 5))
distributed.JOIN_WITHIN_S = int(os.environ.get("JOIN_WITHIN_S", 60))
logging.basicConfig(level=logging.INFO)
parser = argparse.ArgumentParser()
distributed.add_arguments(parser)
parser.add_argument("--end")
args = parser.parse_args()
with distributed.joined(args):
    multihost_utils.sync_global_devices("begin")
    print("began", flush=True)
    if args.end == "error":
        raise ValueError("bad luck")
    if args.end == "use":
        raise OptionError("bad use")
    if args.end == "stall":
        os.kill(os.getpid(), signal.SIGSTOP)
    multihost_utils.sync_global_devices("end")
"""


def start_pair(*ends: str) -> list[subprocess.Popen]:
    options = ["--coordinator", free_address(), "--num-processes", "2", "--process-id"]
    return [
        subprocess.Popen(
            [sys.executable, "-c", _PROCESS, *options, str(number), "--end", end],
            cwd=ROOT,
            env=os.environ | {"JAX_COMPILATION_CACHE_DIR": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, end in enumerate(ends)
    ]


def wait_until_met(pair: list[subprocess.Popen]) -> None:
    for process in pair:
        assert "began\n" in iter(process.stdout.readline, "")  # Gloo prints too


def finish(pair: list[subprocess.Popen]) -> tuple[list[int], list[str]]:
    """Statuses and errors of both, once they have met."""
    try:
        wait_until_met(pair)
        started = time.monotonic()
        errors = [process.communicate(timeout=120)[1] for process in pair]
        # Far from the 300 s that JAX would wait for the others at exit.
        assert time.monotonic() - started < 60
    finally:
        for process in pair:
            process.kill()
    return [process.returncode for process in pair], errors


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["http_proxy", "https_proxy"])
def test_processes_that_succeed_leave_together_and_meet_without_a_proxy(name, monkeypatch):
    monkeypatch.setenv(name, "http://127.0.0.1:9")  # a closed port
    monkeypatch.setenv("no_proxy", "example.org")
    monkeypatch.delenv("no_grpc_proxy", raising=False)
    assert finish(start_pair("well", "well"))[0] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_an_error_in_one_ends_both(number):
    ends = ["error" if process == number else "well" for process in range(2)]
    statuses, errors = finish(start_pair(*ends))
    assert statuses[number] == 1 and "bad luck" in errors[number]
    assert statuses[1 - number] != 0
    # Unless JAX was the first to know and ended it.
    assert statuses[1 - number] < 0 or "another process ended" in errors[1 - number]


@pytest.mark.exhaustive
def test_a_stalled_process_is_noticed():
    pair = start_pair("well", "stall")
    try:
        wait_until_met(pair)
        assert pair[0].wait(timeout=120) == -signal.SIGABRT  # JAX ends the process itself
        assert pair[1].poll() is None
    finally:
        for process in pair:
            process.kill()
    assert "stopped sending heartbeats" in pair[0].stderr.read()
