"""Files and directories that appear whole or not at all, and errors that name them."""

import contextlib
import errno
import glob
import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

_logger = logging.getLogger(__name__)

# Why a write fails, without the name of the file.
_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Opens a file that takes its name only when the block ends without an error.

    Its permissions are those that the umask gives to any new file.

    Args:
        path: the file; replaced if it exists; a symbolic link is followed.
        mode: as for `open`; text is UTF-8 with line feeds.

    Yields:
        The open file, a hidden neighbor of `path` until the end.

    Raises:
        ValueError: if `path` exists but is not a regular file.
        OSError: naming `path`, if writing fails; `path` is then as it was before.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path}: is a directory; name a file")
    if path.exists() and not path.is_file():  # a device or a named pipe would be replaced
        raise ValueError(f"{path}: is not a regular file; use '-' to write to stdout")
    target = Path(os.path.realpath(path))
    temporary = _temporary(target)
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    try:
        with naming_errors(path):
            with open(temporary, mode, **text) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
    except OSError as error:
        if error.filename == os.fspath(temporary):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Writes a file whole or not at all; errors as `whole_file`."""
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """Writes JSON, sorted and indented, whole or not at all; errors as `whole_file`."""
    write_whole(path, json_text(value))


def json_text(value: object) -> str:
    """JSON as `write_json` writes it."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_json(path: Path) -> dict | None:
    """Reads a JSON object; None if there is no such file or it is damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@contextlib.contextmanager
def whole_directory(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives a directory to fill that takes its name only when the block ends without an error.

    An existing one is replaced, a symbolic link is followed, and parents are made. Several
    processes may write the same directory: the last one to finish stays.

    Yields:
        A hidden neighbor of `path`, which is synced to disk before it is renamed.

    Raises:
        OSError: naming a path, if writing fails; `path` is then as it was before.
    """
    path = Path(os.path.realpath(path))
    temporary = _temporary(path)
    with naming_errors(path):
        temporary.mkdir(parents=True)
    try:
        yield temporary
        rename_directory(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def rename_directory(source: Path, target: Path) -> None:
    """Syncs a directory to disk and renames it, replacing an existing directory.

    A directory that is not empty cannot be replaced in one step: for a moment the name is missing,
    but it never names a directory that is incomplete. The old one is removed once the new one has
    its name, and gets it back if that fails.
    """
    replaced: list[Path] = []
    with naming_errors(target):
        for path in (*source.rglob("*"), source):
            _sync(path)
        try:
            while True:
                try:
                    os.rename(source, target)
                    break
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                old = _temporary(target)
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    os.rename(target, old)
                    replaced.append(old)
        except BaseException:
            if replaced and not target.exists():
                os.rename(replaced.pop(), target)
            raise
        finally:
            for old in replaced:
                shutil.rmtree(old, ignore_errors=True)
        _sync(target.parent)


def remove_temporary(directory: Path, name: str | None = None) -> None:
    """Removes what killed processes left of whole files and directories; none may be writing.

    Args:
        directory: where they were being written.
        name: of the file or directory that they were to become; None means any.
    """
    for path in directory.glob(f".{glob.escape(name) if name else '*'}.{'[0-9a-f]' * 8}.tmp"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def naming_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Adds the path to an error of writing that names no file.

    A failed write (disk full, quota) knows only its file descriptor, and NumPy's not even the
    reason. Other errors pass unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _WRITE_ERRORS:
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        if error.errno is None and "requested and" in str(error):
            reason = f"could not be written; is the disk full? ({error})"
            raise OSError(errno.EIO, reason, os.fspath(path)) from error
        raise


@contextlib.contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Lets one process at a time work in a directory; the others wait.

    The system releases the lock when the process ends, however it ends. Where there are no locks,
    nobody waits.
    """
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        yield
        return
    with open(directory / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _logger.info("%s: waiting for another process that works here", directory)
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # file systems such as Lustre, by their mount options
            _logger.info("%s: its file system has no locks", directory)
        yield


def _temporary(path: Path) -> Path:
    """A name next to `path` that no other process uses."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some cannot sync a directory
            raise
    finally:
        os.close(descriptor)
