import json
import os
import subprocess
import sys
import threading
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


# Locked for us as its lock does not reach here; locked by a machine; no locks at all.
@pytest.fixture(params=[True, False, None])
def elsewhere(request, tmp_path, monkeypatch):
    """The lock file of a run on another machine, with whatever the system says of its lock."""
    monkeypatch.setattr(lock, "try_lock", lambda file: request.param)
    monkeypatch.setattr(lock, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(lock, "STALE_S", 0.8)
    text = {"host": "elsewhere", "pid": 7, "since": "noon", "command": "xling train"}
    (tmp_path / LOCK_FILE).write_text(json.dumps(text))
    return tmp_path / LOCK_FILE


def test_a_run_on_another_machine_counts_while_its_heart_beats(elsewhere):
    stopped = threading.Event()
    heart = threading.Thread(target=lock._beat, args=(elsewhere, elsewhere.read_text(), stopped))
    heart.start()
    with pytest.raises(OSError, match="process 7 on elsewhere"), only_run(elsewhere.parent):
        pass
    stopped.set()
    heart.join()
    assert "elsewhere" in elsewhere.read_text()


def test_a_machine_that_is_gone_blocks_for_a_time_that_is_said(elsewhere, caplog):
    started = time.monotonic()
    with caplog.at_level("INFO"), only_run(elsewhere.parent):
        assert 0.8 <= time.monotonic() - started < 5
        (line,) = (record.getMessage() for record in caplog.records)
        assert "on elsewhere: xling train; waiting up to 1 s for its heartbeat" in line
        before = elsewhere.stat().st_mtime_ns
        time.sleep(0.5)
        assert elsewhere.stat().st_mtime_ns > before, "the new run shows no sign of life"


def test_a_run_that_stood_still_until_another_took_its_place_ends(tmp_path, monkeypatch, caplog):
    left, statuses = threading.Event(), []
    monkeypatch.setattr(lock, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(lock, "leave", lambda status: (statuses.append(status), left.set()))
    with only_run(tmp_path):
        other = {"host": "elsewhere", "pid": 7, "since": "noon", "command": "xling train"}
        (tmp_path / LOCK_FILE).write_text(json.dumps(other))
        assert left.wait(5)
    assert statuses[0] == 1 and "in use since noon by process 7 on elsewhere" in caplog.text
    assert "elsewhere" in (tmp_path / LOCK_FILE).read_text()


def test_without_locks_of_the_system_a_free_directory_is_taken_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "try_lock", lambda file: None)
    with only_run(tmp_path / "new"):
        # Taken over by another, it is left alone.
        (tmp_path / "new" / LOCK_FILE).write_text("{}")
    assert (tmp_path / "new" / LOCK_FILE).exists()
