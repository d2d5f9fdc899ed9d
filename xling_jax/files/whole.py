"""Files and directories that appear on disk whole or not at all, and errors that name them.

Also the lock that keeps two processes from making the same ones.
"""

import contextlib
import errno
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def naming_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Gives an OSError that names no file the path it was about.

    A failed write (disk full, quota) knows its file descriptor only, and numpy's does not even
    say why.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        number = error.errno or errno.EIO
        reason = error.strerror or f"{os.strerror(number)}, is the disk full? ({error})"
        raise OSError(number, reason, os.fspath(path)) from error


@contextlib.contextmanager
def atomic_directory(directory: Path) -> Iterator[Path]:
    """Gives a directory to fill, which takes its name only at the end.

    Args:
        directory: the final name; replaced if it exists.

    Yields:
        The temporary directory, next to the final one. What an interrupted run left is removed.

    Raises:
        OSError: from the file system, with a path; nothing new is left at `directory`.
    """
    temporary = directory.with_name(f".{directory.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        replace_directory(temporary, directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def replace_directory(source: Path, target: Path) -> None:
    """Renames a directory, over another one if need be, once all in it is on disk."""
    with naming_errors(target):
        sync_tree(source)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(source, target)
        _sync(target.parent)


def sync_tree(directory: Path) -> None:
    """Waits until a directory's files are on disk, so that no name outlives its content."""
    for path in directory.rglob("*"):
        _sync(path)
    _sync(directory)


def write_json(path: Path, value: object) -> None:
    """Writes JSON, sorted and indented, whole or not at all."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    write_whole(path, text.encode())


def write_whole(path: Path, content: bytes, writer: str = "tmp") -> None:
    """Writes a file whole or not at all.

    Args:
        path: the file.
        content: of it.
        writer: part of the temporary name; of its own where several may write the same file.

    Raises:
        OSError: with the path; the file is as it was.
    """
    temporary = path.with_name(f".{path.name}.{writer}")
    try:
        with naming_errors(path), open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> dict | None:
    """Reads a JSON object; None if there is no such file or it is damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None


@contextlib.contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Lets one process at a time work in a directory; the others wait, and then find it done.

    The system frees the lock when the process ends, however it ends.
    """
    try:
        import fcntl
    except ImportError:  # No such locks on Windows.
        yield
        return
    with open(directory / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _logger.info("%s: waiting for another process that works here", directory)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def fingerprint(value: object) -> str:
    """Short hex digest of a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot sync a directory.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
