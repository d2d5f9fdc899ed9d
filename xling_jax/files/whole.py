"""Files and directories that appear whole or not at all, and errors that name them.

Until it is whole, what becomes `NAME` is `.NAME.PID-RANDOM.tmp` beside it, locked by its process.
The system releases the lock when the process ends, however it ends: who writes the same name next
removes what is not locked.
"""

import contextlib
import errno
import functools
import json
import logging
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from xling_jax.files.hashes import fingerprint

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

_logger = logging.getLogger(__name__)

_SEAL = "seal"  # the name of its fingerprint in a record

# Why a write fails, without the name of the file.
_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Opens a file that takes its name only when the block ends without an error.

    An existing file is replaced, a symbolic link is followed; permissions are those that the umask
    gives to any new file, text is UTF-8 with line feeds. ValueError if there is something else than
    a regular file; OSError names `path`, if writing fails, and it is then as it was before.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path}: is a directory; name a file")
    if path.exists() and not path.is_file():  # a device or a named pipe would be replaced
        raise ValueError(f"{path}: is not a regular file; use '-' to write to stdout")
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    with naming_errors(path), _temporary(path, Path.touch) as temporary:
        with open(temporary, mode, **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, os.path.realpath(path))


def write_whole(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Writes a file whole or not at all, see `whole_file`."""
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """Writes JSON, sorted and indented, whole or not at all."""
    write_whole(path, json_text(value))


def write_record(path: str | os.PathLike[str], record: Mapping[str, Any]) -> None:
    """Writes a JSON object as `write_json`, with a seal that `read_json` checks and removes."""
    write_json(path, {**record, _SEAL: fingerprint(record)})


def json_text(value: object) -> str:
    """JSON as `write_json` writes it."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_json(path: Path) -> dict | None:
    """Reads a JSON object; None if there is no such file or it is damaged."""
    try:
        return unsealed(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None


def unsealed(value: Any) -> dict | None:
    """Returns what was given to `write_record`, or an object without a seal; else None."""
    if not isinstance(value, dict):
        return None
    seal = value.pop(_SEAL, None)
    return value if seal in (None, fingerprint(value)) else None


@contextlib.contextmanager
def whole_directory(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives a directory to fill that takes its name only when the block ends without an error.

    An existing one is replaced, a symbolic link is followed, and parents are made. It is synced to
    disk before it is renamed. Several processes may write the same directory: the last one to
    finish stays. OSError names `path`, if writing fails, and it is then as it was before.
    """
    with temporary_directory(path) as temporary:
        yield temporary
        rename_directory(temporary, Path(os.path.realpath(path)))


@contextlib.contextmanager
def temporary_directory(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives a hidden neighbor of a path, made with its parents, that is removed in the end.

    What a killed process left of it is removed by the next one with the same path.
    """
    with _temporary(path, functools.partial(Path.mkdir, parents=True)) as temporary:
        yield temporary


@contextlib.contextmanager
def scratch_directory(name: str) -> Iterator[Path]:
    """Gives a directory for this user alone where the system keeps temporary files.

    It is removed in the end, or by the next process that asks for one of the same name.
    """
    with temporary_directory(Path(tempfile.gettempdir(), name)) as directory:
        directory.chmod(0o700)
        yield directory


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
                old = _temporary_name(target)
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
    """Removes what killed processes left in a directory of whole files and directories.

    `name` is that of what they were to become; None means any.
    """
    label = re.escape(short_name(name)) if name else ".*"
    left = re.compile(rf"\.{label}\.\d+-[0-9a-f]{{8}}\.tmp", re.DOTALL)
    with contextlib.suppress(OSError):  # there is no such directory, or it may not be listed
        for found in filter(left.fullmatch, os.listdir(directory)):
            with _locked(directory / found) as is_locked:
                if is_locked:
                    _remove(directory / found)


def short_name(name: str) -> str:
    """The name of a file as a part of that of a hidden neighbor, which may not be too long."""
    return name if len(os.fsencode(name)) <= 200 else fingerprint(name)


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
    with open(directory / ".lock", "w") as file:
        is_locked = try_lock(file)
        if is_locked is False:
            _logger.info("%s: waiting for another process that works here", directory)
            fcntl.flock(file, fcntl.LOCK_EX)
        elif is_locked is None:
            _logger.info("%s: its file system has no locks", directory)
        yield


def try_lock(file: IO[Any] | int) -> bool | None:
    """True if the system has locked a file for this process; None where it has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (AttributeError, OSError):  # Windows; file systems such as Lustre, by their options
        return None
    return True


@contextlib.contextmanager
def _temporary(path: str | os.PathLike[str], make: Callable[[Path], None]) -> Iterator[Path]:
    """Makes a hidden, locked neighbor of what a path names, and removes it in the end."""
    target = Path(os.path.realpath(path))
    with contextlib.suppress(FileNotFoundError):
        target.lstat()  # a name that is too long is refused before the work
    remove_temporary(target.parent, target.name)
    is_locked = False
    while is_locked is False:  # another process took it for left, before it was locked
        temporary = _temporary_name(target)
        try:
            make(temporary)
            with _locked(temporary) as is_locked:
                if is_locked is not False:
                    yield temporary
        except OSError as error:
            if error.filename == os.fspath(temporary):
                raise OSError(error.errno, error.strerror, os.fspath(path)) from error
            raise
        finally:
            _remove(temporary)


def _temporary_name(path: Path) -> Path:
    """A name next to `path` that no other process uses."""
    return path.with_name(f".{short_name(path.name)}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool | None]:
    """Holds the lock of a temporary file or directory; False if another has it or it is gone."""
    if fcntl is None:
        yield None
        return
    kind = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_NONBLOCK
    try:
        descriptor = os.open(path, kind | os.O_NOFOLLOW)
    except OSError as error:
        yield False if isinstance(error, FileNotFoundError) else None
        return
    try:
        is_locked = try_lock(descriptor)
        yield is_locked and os.path.lexists(path)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Removes a file or directory, if it can: why it is removed must not be masked."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some cannot sync a directory
            raise
    finally:
        os.close(descriptor)
