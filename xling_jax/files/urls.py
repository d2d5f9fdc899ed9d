"""Files at URLs (`gs://BUCKET/PATH`, or what else fsspec reads) and copies on this machine.

An object store has no rename, no append and no memory maps, which workdirs, token shards and
outputs rely on. So what is at a URL is copied here before it is used, and copied back when it is
done; orbax writes checkpoints to a store itself. Every function raises OSError with the URL if the
store fails, and ValueError for an unsupported protocol.
"""

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from xling_jax.files.hashes import fingerprint
from xling_jax.files.untrusted import one_line
from xling_jax.files.whole import lock_directory, whole_directory

_logger = logging.getLogger(__name__)

_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/]")
_PATTERN = re.compile(r"[*?[]")

# A directory that has one of these is complete, so they are written last.
_SEALS = ("config.json", "manifest.json", "results.json")


def is_url(path: object) -> bool:
    """True if a path is a URL."""
    return isinstance(path, str) and bool(_URL.match(path))


def fetch(url: str, cache: Path, without: Collection[str] = ()) -> Path:
    """Copies a file, the files below a directory, or those that match a pattern, unless it has.

    A pattern is such as `gs://bucket/text/*.tsv`. Each version has a directory of its own in
    `cache`; names `without` are not copied. Returns the path of the copy, or a pattern for the
    copies; FileNotFoundError if there is nothing at the URL.
    """
    url = url.rstrip("/")
    magic = _PATTERN.search(url)
    has_path = url.count("/") > 2  # a bucket alone has none
    top = url[: url.rindex("/", 0, magic.start() if magic else None)] if has_path else url
    found = {
        name: info
        for name, info in _list(url, top).items()
        if name.removeprefix(f"{url[len(top) + 1 :]}/").split("/")[0] not in without
    }
    if not found:
        raise FileNotFoundError(f"{url}: no such file or directory")
    copy = cache / fingerprint([url, sorted(map(str, found.values()))])
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_directory(cache):
        if not copy.exists():
            with whole_directory(copy) as directory:
                _get(top, directory, found)
            _logger.info("%s: %d files copied", url, len(found))
    return copy / url[len(top) + 1 :]


def get(url: str, path: Path, without: Collection[str] = ()) -> None:
    """Copies a file, or the files below a directory but for some names in it, if there are any."""
    _get(url, path, [name for name in _list(url, url) if name.split("/")[0] not in without])


def put(path: Path, url: str, without: Collection[str] = ()) -> None:
    """Copies a file, or the files below a directory but for some names in it, to a URL."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    names = {file: file.relative_to(path) for file in files}
    with _store(url) as (store, root):
        for is_last in (False, True):
            chosen = {
                str(file): str(PurePosixPath(root, name.as_posix()))
                for file, name in names.items()
                if (file.name in _SEALS) == is_last and not {*name.parts[:1]} & {*without}
            }
            if chosen:
                store.put(list(chosen), list(chosen.values()))


def remove(path: str) -> None:
    """Removes a file at a path or URL, or what is below a directory."""
    if not is_url(path):
        shutil.rmtree(path) if os.path.isdir(path) else Path(path).unlink(missing_ok=True)
    elif found := _files(path):
        with _store(path) as (store, _), contextlib.suppress(FileNotFoundError):
            store.rm([*found])


def read(path: str) -> bytes | None:
    """Content of a file at a URL; None if there is none."""
    try:
        with _store(path) as (store, root):
            return store.cat_file(root)
    except FileNotFoundError:
        return None


def exists(url: str) -> bool:
    """True if there is a file or directory at a URL."""
    with _store(url) as (store, root):
        return store.exists(root)


def check(url: str) -> None:
    """Raises ValueError for a URL of an unsupported protocol."""
    with _store(url):
        pass


def _files(url: str) -> dict[str, dict]:
    """Path in the store -> description, of a file or all below a directory or of a pattern."""
    with _store(url) as (store, root):
        try:
            if _PATTERN.search(url):
                found = store.glob(root, detail=True)
            elif store.isfile(root):
                found = {root: store.info(root)}
            else:
                found = store.find(root, detail=True)
        except FileNotFoundError:
            return {}
    return {path: info for path, info in found.items() if info["type"] == "file"}


def _list(url: str, top: str) -> dict[str, dict]:
    """`_files` by their names below `top`, without hidden ones."""
    with _store(url) as (store, _):
        start = len(store._strip_protocol(top))
    names = {path[start:].strip("/"): info for path, info in _files(url).items()}
    is_hidden = lambda name: any(part.startswith(".") for part in name.split("/"))
    return {name: info for name, info in names.items() if not is_hidden(name)}


def _get(top: str, directory: Path, names: Collection[str]) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
    with _store(top) as (store, root):
        remote = [str(PurePosixPath(root, name)) for name in names]
        store.get(remote, [str(directory / name) for name in names])


@contextlib.contextmanager
def _store(url: str) -> Iterator[tuple[Any, str]]:
    """Yields the fsspec file system of a URL and the path in it; errors become OSErrors."""
    import fsspec

    protocol = url.partition("://")[0]
    # Tensorstore and other processes write too, of which a cached listing knows nothing. Set as
    # the default, because etils makes file systems of its own.
    for name in (protocol, "gcs"):
        fsspec.config.conf.setdefault(name, {}).setdefault("use_listings_cache", False)
    try:
        store, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        hint = "pip install 'xling_jax[gcs]'" if protocol in ("gs", "gcs") else str(error)
        raise ValueError(f"{url}: {protocol}:// is not supported here; {hint}") from error
    try:
        yield store, root
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{url}: no such file") from error
    except Exception as error:
        raise OSError(f"{url}: {type(error).__name__}: {one_line(error, 300)}") from error
