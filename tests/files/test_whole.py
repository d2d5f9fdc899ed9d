"""Files and directories that appear whole or not at all."""

import errno
import fcntl
import multiprocessing
import os
import resource
import shutil
import signal
import stat
import threading
import time

import numpy as np
import pytest

from xling_jax.files.embeddings import write_tensors
from xling_jax.files.whole import (
    lock_directory,
    read_json,
    remove_temporary,
    whole_directory,
    whole_file,
    write_json,
    write_whole,
)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "a"
    write_whole(path, "old")
    with whole_file(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and names(tmp_path) == ["a"]
    with whole_file(path, "w") as file:
        file.write("ä\n")
    assert path.read_bytes() == "ä\n".encode()


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    write_whole(tmp_path / "a", b"old")
    for error in (ValueError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)), whole_file(tmp_path / "a") as file:
            file.write(b"half")
            raise error
    assert names(tmp_path) == ["a"] and (tmp_path / "a").read_bytes() == b"old"


@pytest.mark.parametrize("umask, mode", [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_are_those_of_the_umask(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_json(tmp_path / "a.json", {})
        write_tensors(tmp_path / "t.safetensors", {"a": np.zeros(2)})
        with whole_directory(tmp_path / "d"):
            pass
    finally:
        os.umask(before)
    for name in ("a.json", "t.safetensors"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == mode | (mode >> 2 & 0o111)


def fill_the_disk(path, queue):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        write_whole(path, b"x" * 2000)
    except OSError as error:
        queue.put((error.errno, error.filename))


def test_a_full_disk_names_the_file(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=fill_the_disk, args=(tmp_path / "a", queue))
    process.start()
    assert queue.get(timeout=60) == (errno.EFBIG, str(tmp_path / "a"))
    process.join()
    assert names(tmp_path) == []


def test_only_regular_files_are_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: is not a regular file; use '-'"):
        write_whole(tmp_path / "pipe", b"")
    with pytest.raises(ValueError, match="is a directory; name a file"):
        write_whole(tmp_path, b"")


def test_a_directory_appears_when_it_is_complete_and_replaces_another(tmp_path):
    for content in ("old", "new"):
        with whole_directory(tmp_path / "up/d") as directory:
            (directory / content).write_text(content)
            assert names(tmp_path / "up") != ["d"]
        assert names(tmp_path / "up") == ["d"] and names(tmp_path / "up/d") == [content]
    with pytest.raises(ValueError), whole_directory(tmp_path / "up/d") as directory:
        raise ValueError
    assert names(tmp_path / "up") == ["d"] and names(tmp_path / "up/d") == ["new"]


@pytest.mark.parametrize("call", ["rename", "rmtree"])
def test_a_directory_survives_ctrl_c_while_it_is_replaced(tmp_path, monkeypatch, call):
    with whole_directory(tmp_path / "d") as directory:
        (directory / "old").touch()
    owner = {"rename": os, "rmtree": shutil}[call]
    real, calls = getattr(owner, call), []

    def interrupted(*arguments, **options):
        calls.append(arguments)
        # The second rename takes the old directory away, the third gives the new one its name.
        if len(calls) == {"rename": 3, "rmtree": 1}[call]:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    with pytest.raises(KeyboardInterrupt), whole_directory(tmp_path / "d") as directory:
        (directory / "new").touch()
        monkeypatch.setattr(owner, call, interrupted)
    assert names(tmp_path / "d") == [{"rename": "old", "rmtree": "new"}[call]]


def test_of_two_that_write_one_directory_the_last_to_finish_stays(tmp_path):
    with whole_directory(tmp_path / "d") as first:
        (first / "first").touch()
        with whole_directory(tmp_path / "d") as second:
            (second / "second").touch()
        assert names(tmp_path / "d") == ["second"]
    assert names(tmp_path) == ["d"] and names(tmp_path / "d") == ["first"]


def test_what_a_killed_process_left_is_removed_by_the_next_writer_of_the_name(tmp_path):
    context = multiprocessing.get_context("spawn")
    writers = []
    for _ in range(2):
        ready = context.Event()
        writers.append(context.Process(target=write_for_long, args=(tmp_path, ready)))
        writers[-1].start()
        assert ready.wait(60)
    for name in (".mine.tmp", ".a.0123abcd.tmp", ".a.x.1-0123abcd.tmp"):
        (tmp_path / name).touch()
    left = {path: path.name.split(".")[2].partition("-")[0] for path in tmp_path.glob(".[ad].*-*")}
    os.kill(writers[0].pid, signal.SIGKILL)
    writers[0].join()
    write_whole(tmp_path / "a", "new")
    with whole_directory(tmp_path / "d"):
        pass
    gone = {path for path in left if not path.exists()}
    assert gone == {path for path, pid in left.items() if pid == str(writers[0].pid)}
    assert len(gone) == 2
    writers[1].kill()
    writers[1].join()
    os.mkfifo(tmp_path / ".p.1-0123abcd.tmp")
    (tmp_path / ".l.1-0123abcd.tmp").symlink_to(tmp_path / "d")
    remove_temporary(tmp_path)
    assert names(tmp_path) == [".a.0123abcd.tmp", ".l.1-0123abcd.tmp", ".mine.tmp", "a", "d"]


def write_for_long(directory, ready):
    with whole_file(directory / "a"), whole_directory(directory / "d"):
        ready.set()
        time.sleep(120)


def test_a_name_may_be_as_long_as_the_file_system_takes_it(tmp_path):
    write_whole(tmp_path / ("a" * 255), "x")
    with whole_directory(tmp_path / ("b" * 255)):
        pass
    assert names(tmp_path) == ["a" * 255, "b" * 255]
    path = tmp_path / ("a" * 256)
    for write in whole_file, whole_directory:
        with pytest.raises(OSError) as caught, write(path):
            raise AssertionError  # refused before the work
        assert (caught.value.errno, caught.value.filename) == (errno.ENAMETOOLONG, str(path))


def test_a_temporary_file_that_cannot_be_removed_does_not_mask_the_cause(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "unlink", refuse)
    for cause in (OSError(errno.ENOSPC, "No space left on device"), ValueError("cause")):
        with pytest.raises(type(cause), match=cause.args[-1]), whole_file(tmp_path / "a"):
            raise cause


@pytest.mark.parametrize("content", [None, b"", b"{", b"[1]", b"\xff"])
def test_json_that_is_missing_or_damaged_is_none(tmp_path, content):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    assert read_json(tmp_path / "a.json") is None


def hold(directory, held, release):
    with lock_directory(directory):
        held.set()
        release.wait(60)


def test_a_lock_is_waited_for_and_said_to_be(tmp_path, caplog):
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    process = context.Process(target=hold, args=(tmp_path, held, release))
    process.start()
    assert held.wait(60)
    released = threading.Timer(0.5, release.set)
    released.start()
    caplog.set_level("INFO")
    with lock_directory(tmp_path):
        assert release.is_set()
    assert caplog.messages == [f"{tmp_path}: waiting for another process that works here"]
    process.join()


def test_where_there_are_no_locks_nobody_waits(tmp_path, caplog, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    caplog.set_level("INFO")
    with lock_directory(tmp_path):
        assert caplog.messages == [f"{tmp_path}: its file system has no locks"]
    with pytest.raises(OSError, match="own"), lock_directory(tmp_path):
        raise OSError("own")


def test_what_a_link_names_is_replaced_and_not_the_link(tmp_path):
    (tmp_path / "disk").mkdir()
    for name in ("file", "directory"):
        (tmp_path / name).symlink_to(tmp_path / "disk" / name)
    for content in ("first", "second"):
        write_whole(tmp_path / "file", content)
        with whole_directory(tmp_path / "directory") as directory:
            (directory / content).touch()
        assert (tmp_path / "disk/file").read_text() == content
        assert [path.name for path in (tmp_path / "disk/directory").iterdir()] == [content]
    assert (tmp_path / "file").is_symlink() and (tmp_path / "directory").is_symlink()
    assert len([*tmp_path.iterdir()]) == 3 and len([*(tmp_path / "disk").iterdir()]) == 2
