import contextlib
import json
import os
import subprocess
import sys
import time

import pytest

from xling_jax.files import lock
from xling_jax.files.lock import LOCK_FILE, only_run

HOLD = """
import sys, time
from pathlib import Path
from xling_jax.files.lock import only_run
with only_run(Path(sys.argv[1])):
    print("holding", flush=True)
    time.sleep(100)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), "--config", "a b"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "holding\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_run_is_refused_in_a_line_that_names_the_first(holder, tmp_path):
    with pytest.raises(OSError) as error, only_run(tmp_path):
        pass
    text = str(error.value)
    assert text.startswith(f"{tmp_path}: in use since 20") and "\n" not in text
    assert f"by process {holder.pid} on {os.uname().nodename}: " in text
    assert "--config 'a b'; wait for it, or choose another --workdir" in text
    with pytest.raises(OSError, match="another --output"), only_run(tmp_path, "--output"):
        pass


def test_a_killed_run_blocks_nobody_for_any_time(holder, tmp_path, caplog):
    holder.kill()
    holder.wait()
    assert (tmp_path / LOCK_FILE).exists()
    started = time.monotonic()
    with caplog.at_level("INFO"), only_run(tmp_path):
        assert time.monotonic() - started < 1 and not caplog.records
        assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == os.getpid()
    assert not any(tmp_path.iterdir())


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The lock file of a run on another machine, as the file server has it."""
    monkeypatch.setattr(lock, "STALE_S", 0.8)
    text = {"host": "elsewhere", "pid": 7, "since": "noon", "command": "xling train"}
    (tmp_path / LOCK_FILE).write_text(json.dumps(text))
    return tmp_path


@pytest.mark.parametrize("held_s", [0.4, 60])
def test_the_lock_of_another_machine_is_waited_for_as_long_as_a_server_keeps_it(
    elsewhere, monkeypatch, caplog, held_s
):
    caplog.set_level("INFO")
    free_s = time.monotonic() + held_s
    monkeypatch.setattr(lock, "try_lock", lambda file: time.monotonic() > free_s)
    is_free = held_s < lock.STALE_S
    refused = pytest.raises(OSError, match="process 7 on elsewhere: xling train; wait for it")
    with contextlib.nullcontext() if is_free else refused, only_run(elsewhere):
        assert is_free
    (line,) = caplog.messages
    assert "on elsewhere: xling train; waiting up to 1 s for its lock" in line
    assert (elsewhere / LOCK_FILE).exists() != is_free


def test_without_locks_of_the_system_a_directory_is_taken_at_once(elsewhere, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(lock, "try_lock", lambda file: None)
    with only_run(elsewhere):
        assert caplog.messages == [
            f"{elsewhere}: its file system has no locks; start one run at a time"
        ]
