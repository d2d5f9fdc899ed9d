"""Files of an object store (`gs://BUCKET/PATH`) and their copies on this machine.

An object store has no rename, no append and no memory maps, and all of these are how a workdir,
token shards and outputs are written and read. So what lies at a URL is copied into the user's
cache directory first, used there, and what is new is copied back. This is the only module that
does so; checkpoints, which orbax writes to the store itself, are the only exception.
"""

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from xling_jax.cli.common import UsageError
from xling_jax.files.whole import lock_directory, read_json, write_json

logger = logging.getLogger(__name__)

_URL = re.compile(r"(?P<protocol>[a-z][a-z0-9+.-]*)://(?P<path>[^/].*)")
# What tells one version of an object from another, the best first, as the stores call it.
_VERSION_KEYS = ("generation", "etag", "ETag", "mtime", "LastModified", "created")


def is_remote(path: object) -> bool:
    """Whether a path is a URL."""
    return isinstance(path, str) and bool(_URL.match(path))


def cache_directory(kind: str, url: str) -> Path:
    """Where what lies at a URL has its copy, e.g. `~/.cache/xling_jax/inputs/gs/BUCKET/PATH`.

    Args:
        kind: first level; copies of one URL that are used differently do not share files.
        url: of a file or directory.

    Raises:
        UsageError: if the URL is none, or there is no cache directory.
    """
    found = _URL.match(url)
    if not found or ".." in url.split("/"):
        raise UsageError(f"{url}: must be PROTOCOL://PATH without '..', e.g. gs://bucket/run")
    caches = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG specification has relative paths ignored.
        top = Path(caches if os.path.isabs(caches) else Path.home() / ".cache", "xling_jax", kind)
    except RuntimeError as error:
        raise UsageError(f"{url}: no home to copy it to; set XDG_CACHE_HOME") from error
    return top.joinpath(found["protocol"], *filter(None, found["path"].split("/")))


def file_system(url: str) -> Any:
    """The fsspec file system of a URL.

    Raises:
        UsageError: if the package for its protocol is not installed.
    """
    import fsspec

    # Asks another service, for a minute where that is not allowed, what kind of bucket it is.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    protocol = url.partition("://")[0]
    # Tensorstore and other processes write too, which a list that was kept does not know. As a
    # default, because etils makes file systems of its own.
    for name in (protocol, "gcs"):
        fsspec.config.conf.setdefault(name, {}).setdefault("use_listings_cache", False)
    try:
        return fsspec.filesystem(protocol)
    except (ImportError, ValueError) as error:
        hint = "pip install 'xling_jax[gcs]'" if protocol in ("gs", "gcs") else str(error)
        raise UsageError(f"{url}: {protocol}:// cannot be read here; {hint}") from error


@contextlib.contextmanager
def naming_errors(url: str) -> Iterator[None]:
    """Turns what a store raises (each has its own exceptions) into an OSError with the URL."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise OSError(f"{url}: {type(error).__name__}: {text}") from error


def remove_below(url: str) -> None:
    """Removes all objects below a URL, if there are any.

    Raises:
        OSError: naming the URL.
    """
    files = file_system(url)
    with naming_errors(url), contextlib.suppress(FileNotFoundError):
        if found := files.find(url):
            files.rm(found)


class Mirror:
    """A directory of a store and its copy on this machine.

    Names are relative to the directory. What begins with a dot stays where it is. A file is
    copied if it is not the version that was copied last, in either direction; the versions are
    kept in the copy, which may be removed at any time while no command uses it.

    Args:
        url: of the directory.
        kind: see `cache_directory`.
        directory: of the copy; by default, and for the versions, that of `cache_directory`.
    """

    def __init__(self, url: str, kind: str, directory: Path | None = None):
        self.url = url.rstrip("/")
        self._notes = cache_directory(kind, self.url)
        self.directory = directory or self._notes
        self._files = file_system(self.url)
        with naming_errors(self.url):
            self._root = self._files._strip_protocol(self.url)

    def has_bucket(self) -> bool:
        """Whether the bucket is there and this account may see it."""
        bucket = self._root.strip("/").partition("/")[0]
        with naming_errors(self.url):
            return self._files.exists(bucket)

    def objects(self, *prefixes: str) -> dict[str, str]:
        """Names and versions of the objects of the given names or below them; of all by default."""
        found: dict[str, str] = {}
        with naming_errors(self.url):
            for prefix in prefixes or ("",):
                where = f"{self._root}/{prefix}".rstrip("/")
                with contextlib.suppress(FileNotFoundError):
                    found |= self._copied(self._files.find(where, detail=True))
        return found

    def glob(self, pattern: str) -> dict[str, str]:
        """Names and versions of the objects that a pattern names."""
        with naming_errors(self.url):
            objects = self._files.glob(f"{self._root}/{pattern}", detail=True)
        return self._copied(objects)

    def _copied(self, objects: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """Names and versions of the files among what a file system lists by path."""
        found = {}
        for path, info in objects.items():
            name = path.removeprefix(self._root).lstrip("/")
            if info["type"] == "file" and _is_copied(name):
                found[name] = _version(info)
        return found

    def read(self, name: str) -> bytes | None:
        """Content of an object; None if there is none."""
        with naming_errors(f"{self.url}/{name}"):
            try:
                return self._files.cat_file(f"{self._root}/{name}")
            except FileNotFoundError:
                return None

    def fetch(self, objects: Mapping[str, str]) -> None:
        """Makes the copies of objects current.

        Args:
            objects: names and versions, as `objects` gives them.

        Raises:
            OSError: naming the URL, if reading fails.
        """
        with self._versions() as versions:
            wanted = {
                name: version
                for name, version in objects.items()
                if versions.get(name) != [version, *self._stamp(name)]
            }
            if not wanted:
                return
            # Whole before they have their names; emptied of what was left by a kill.
            incoming = self._notes / ".incoming"
            shutil.rmtree(incoming, ignore_errors=True)
            for name in wanted:
                (incoming / name).parent.mkdir(parents=True, exist_ok=True)
                (self.directory / name).parent.mkdir(parents=True, exist_ok=True)
            with naming_errors(self.url):
                remote = [f"{self._root}/{name}" for name in wanted]
                self._files.get(remote, [str(incoming / name) for name in wanted])
            # JSON last: by it a reader sees that the files it counts are there.
            for name, version in sorted(wanted.items(), key=lambda item: item[0].endswith(".json")):
                os.replace(incoming / name, self.directory / name)
                versions[name] = [version, *self._stamp(name)]
            shutil.rmtree(incoming, ignore_errors=True)
        logger.info("%s: %d files copied to %s", self.url, len(wanted), self.directory)

    def fetch_exactly(self, *prefixes: str, keep: Collection[str] = ()) -> None:
        """Makes names or what is below them equal to the store's; what it lacks is removed here.

        Args:
            prefixes: names of files and directories.
            keep: names that stay as they are.
        """
        objects = {
            name: version
            for name, version in self.objects(*prefixes).items()
            if not _is_below(name, keep)
        }
        for name in self.local(*prefixes):
            if name not in objects and not _is_below(name, keep):
                (self.directory / name).unlink()
        self.fetch(objects)

    def local(self, *prefixes: str) -> list[str]:
        """Sorted names of the copy's files of the given names or below them."""
        names = []
        for prefix in prefixes:
            top = self.directory / prefix
            for path in (top, *top.rglob("*")):
                name = path.relative_to(self.directory).as_posix()
                if path.is_file() and _is_copied(name):
                    names.append(name)
        return sorted(names)

    def put(self, names: Collection[str], below: str | None = None) -> None:
        """Copies what changed of some files to the store.

        Args:
            names: of the files.
            below: where all are, to ask for the versions of many with one request.

        Raises:
            OSError: naming the URL, if writing fails.
        """
        with self._versions() as versions:
            # Taken before: what is written meanwhile counts as changed the next time.
            stamps = {name: self._stamp(name) for name in names}
            changed = [n for n in names if versions.get(n, [None])[1:] != stamps[n]]
            if not changed:
                return
            remote = [f"{self._root}/{name}" for name in changed]
            with naming_errors(self.url):
                self._files.put([str(self.directory / name) for name in changed], remote)
                found = self.objects(below) if below is not None else {}
                for name, path in zip(changed, remote, strict=True):
                    version = found.get(name) or _version(self._files.info(path))
                    versions[name] = [version, *stamps[name]]

    def put_whole(self, *prefixes: str, seal: str, keep: Collection[str] = ()) -> None:
        """Makes names or what is below them equal to the copy's.

        Args:
            prefixes: names of files and directories.
            seal: the file among them without which the rest does not count; it is gone before
                anything changes, and comes last.
            keep: names that are not copied.
        """
        names = [name for name in self.local(*prefixes) if not _is_below(name, keep)]
        found = self.objects(*prefixes)
        if self._forget_other(names, found, prefixes) == set(names) == set(found):
            return
        with self._versions() as versions:
            versions.pop(seal, None)
        other = [f"{self._root}/{name}" for name in sorted(set(found) - set(names) - {seal})]
        with naming_errors(self.url):
            if seal in found:
                self._files.rm_file(f"{self._root}/{seal}")
            if other:
                self._files.rm(other)
        self.put([name for name in names if name != seal])
        self.put([seal])
        logger.info("%s: %d files of %s", self.url, len(names), ", ".join(prefixes))

    def send(self) -> None:
        """Copies to the store what it lacks, or has in another version."""
        names = self.local("")
        self._forget_other(names, self.objects(), ("",))
        self.put(names, below="")

    def _forget_other(
        self, names: Collection[str], found: Mapping[str, str], prefixes: Collection[str]
    ) -> set[str]:
        """Forgets versions below the prefixes that are not those of the store and the copy.

        Returns:
            The names that are.
        """
        with self._versions() as versions:
            current = {
                name
                for name in names
                if name in found and versions.get(name) == [found[name], *self._stamp(name)]
            }
            for name in set(versions) - current:
                if _is_below(name, prefixes):
                    del versions[name]
        return current

    def _stamp(self, name: str) -> list[int]:
        """Size and time of change of a file of the copy; empty if there is none."""
        try:
            status = (self.directory / name).stat()
        except FileNotFoundError:
            return []
        return [status.st_size, status.st_mtime_ns]

    @contextlib.contextmanager
    def _versions(self) -> Iterator[dict[str, list]]:
        """What was copied: name to version there, size and time of change here."""
        self._notes.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock_directory(self._notes):
            path = self._notes / ".versions.json"
            before = read_json(path) or {}
            versions = dict(before)
            try:
                yield versions
            finally:
                if versions != before:
                    write_json(path, versions)


def _version(info: Mapping[str, Any]) -> str:
    found = next((info[key] for key in _VERSION_KEYS if info.get(key)), "")
    # Some file systems give a time as a number in one place and as a date in another.
    found = found.timestamp() if hasattr(found, "timestamp") else found
    return f"{found} {info.get('size')}"


def _is_below(name: str, prefixes: Collection[str]) -> bool:
    return any(prefix in ("", name) or name.startswith(f"{prefix}/") for prefix in prefixes)


def _is_copied(name: str) -> bool:
    """Whether a name is one that takes part; '..' would lead out of the copy."""
    return bool(name) and not any(part.startswith(".") or not part for part in name.split("/"))
