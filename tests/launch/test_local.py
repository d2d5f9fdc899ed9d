"""launch/local.sh: processes that find each other, stop together and continue."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.launch.scripts import ROOT, write_program
from tests.train.processes import wait_for

pytestmark = pytest.mark.slow

LOCAL = str(ROOT / "launch/local.sh")

# In place of xling: BEHAVIOR_I says what process I does.
_ACTOR = r"""#!/usr/bin/env bash
while (($#)); do [[ $1 != --process-id ]] || id=$2; shift; done
behavior=BEHAVIOR_$id
case ${!behavior} in
saves) trap 'echo saving; sleep 0.5; exit 143' TERM ;;
ignores) trap 'echo ignoring' TERM ;;
esac
echo "$$ is process $id"
case ${!behavior} in
fails) sleep 0.5; exit 3 ;;
dies) sleep 0.5; kill -KILL $$ ;;
finishes) sleep 0.5; echo finished; exit 0 ;;
esac
sleep 60 &
until ! kill -0 $!; do wait $!; done
"""


def environment(programs: Path, variables: Mapping[str, str]) -> dict[str, str]:
    own = ("DEVICES", "GPUS", "GRACE", "LOGS")  # of the script
    kept = {name: os.environ[name] for name in os.environ if name not in own}
    return {**kept, "PATH": f"{programs}:{os.environ['PATH']}", **variables}


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    """A directory with an `xling` that acts."""
    directory = tmp_path_factory.mktemp("actor")
    write_program(directory / "xling", _ACTOR)
    return directory


def start_actors(
    programs: Path, workdir: Path, *behaviors: str, grace_s: int = 60
) -> subprocess.Popen:
    variables = {f"BEHAVIOR_{number}": behavior for number, behavior in enumerate(behaviors)}
    process = subprocess.Popen(
        [LOCAL, str(len(behaviors)), "train", "--workdir", str(workdir)],
        env=environment(programs, variables | {"GRACE": str(grace_s)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    logs = [workdir / f"logs/process-{number}.log" for number in range(len(behaviors))]
    assert wait_for(lambda: all(log.exists() and " is " in log.read_text() for log in logs), 60)
    return process


def group_of(process: Path) -> int | None:
    """The process group of a process that runs, from its directory in /proc."""
    try:
        state, _, group = (process / "stat").read_text().rpartition(")")[2].split()[:3]
    except OSError:
        return None
    return None if state == "Z" else int(group)


def members_of(group: int) -> list[Path]:
    """The running processes of a group; one that was just killed may still need a moment."""
    return [process for process in Path("/proc").glob("[0-9]*") if group_of(process) == group]


def check_none_left(workdir: Path) -> None:
    """No process that a log names is still there, nor one it started."""
    for log in (workdir / "logs").iterdir():
        for pid in re.findall(r"^(\d+) is process", log.read_text(), re.MULTILINE):
            assert wait_for(lambda: not Path(f"/proc/{pid}").exists(), 10), pid  # noqa: B023
            assert wait_for(lambda: not members_of(int(pid)), 10), pid  # noqa: B023


@pytest.mark.parametrize(
    "behavior, status", [pytest.param("fails", 3, marks=pytest.mark.exhaustive), ("dies", 137)]
)
def test_one_that_ends_takes_the_others_with_it(behavior, status, programs, tmp_path):
    process = start_actors(programs, tmp_path, "saves", behavior, "ignores", grace_s=2)
    started = time.monotonic()
    _, errors = process.communicate(timeout=20)
    assert process.returncode == status
    assert 2 < time.monotonic() - started < 6  # GRACE and what the machine needs
    log = tmp_path / "logs/process-1.log"
    assert errors.splitlines() == [
        f"launch/local.sh: process 1 exited with status {status}; see {log}; stopping all",
        "launch/local.sh: killing the remaining processes: 2",
    ]
    assert "saving" in (tmp_path / "logs/process-0.log").read_text()
    check_none_left(tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_goes_to_all(number, programs, tmp_path):
    process = start_actors(programs, tmp_path, "saves", "saves")
    process.send_signal(number)
    shown, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert errors == "launch/local.sh: stopping all processes\n"
    assert "saving" in shown and "saving" in (tmp_path / "logs/process-1.log").read_text()
    check_none_left(tmp_path)


def test_killed_it_takes_its_processes_with_it(programs, tmp_path):
    process = start_actors(programs, tmp_path, "saves", "ignores", grace_s=1)
    process.kill()
    process.communicate(timeout=20)
    check_none_left(tmp_path)
    assert "saving" in (tmp_path / "logs/process-0.log").read_text()


@pytest.mark.exhaustive
@pytest.mark.parametrize("presses, status", [(1, 143), (2, 137)])
def test_ctrl_c_saves_and_a_second_one_kills(presses, status, programs, tmp_path):
    behavior = "saves" if presses == 1 else "ignores"
    variables = {"BEHAVIOR_0": behavior, "BEHAVIOR_1": behavior, "GRACE": "60"}
    words = [LOCAL, "2", "train", "--workdir", str(tmp_path)]
    variables = environment(programs, variables)
    pid, terminal = pty.fork()
    if pid == 0:  # nothing else: another thread may hold a lock
        os.execve(LOCAL, words, variables)
    logs = [tmp_path / f"logs/process-{number}.log" for number in range(2)]
    says = lambda word: all(log.exists() and word in log.read_text() for log in logs)
    try:
        assert wait_for(lambda: says("is process"), 60)
        os.write(terminal, b"\x03")
        assert wait_for(lambda: says({"saves": "saving", "ignores": "ignoring"}[behavior]), 60)
        if presses == 2:
            os.write(terminal, b"\x03")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == status
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended, unless a check failed
            os.killpg(pid, signal.SIGKILL)
        os.close(terminal)
    check_none_left(tmp_path)
