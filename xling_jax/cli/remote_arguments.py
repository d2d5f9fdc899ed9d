"""Inputs and outputs of commands at URLs: inputs are copied here first, outputs at the end.

Of several processes the first writes the output; until then they hand each other files in
`OUTPUT.exchange`.
"""

import argparse
import contextlib
import glob
import logging
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from xling_jax.cli.common import UsageError
from xling_jax.files.urls import (
    Mirror,
    cache_directory,
    file_system,
    is_remote,
    naming_errors,
    remove_below,
)

logger = logging.getLogger(__name__)

_OUTPUTS = ("output", "n_best")
_HAVE_WORKDIRS = ("prepare", "train")

# As in configs: perhaps a kind of corpus, then a URL.
_INPUT = re.compile(r"(?:(?P<kind>[a-z]+):)?(?P<url>[a-z][a-z0-9+.-]*://[^/].*)", re.DOTALL)
_KINDS = (None, "tsv", "tmx", "moses")
_MAGIC = re.compile(r"[*?[]")

# Of a workdir nobody but training needs these.
_TRAINING = ("checkpoints/", "data/", "vocab/")

# Files whose presence means that the others of a directory are there.
_SEALS = ("config.json", "results.json")


@contextlib.contextmanager
def local_arguments(args: argparse.Namespace) -> Iterator[None]:
    """Gives a command paths on this machine for the URLs among its arguments, for a block.

    Outputs are copied to their URLs when the block ends without an error, of several processes
    by the first.

    Args:
        args: of any command; changed. With `exchange`, a `FileExchange`, if several processes have
            an output at a URL; `process_index` is asked for at the end, see `distributed.joined`.

    Raises:
        UsageError: if an input is not there, an output is, or a store cannot be used.
        OSError: if copying fails.
    """
    if is_remote(getattr(args, "workdir", None)) and args.command not in _HAVE_WORKDIRS:
        raise UsageError(f"--workdir {args.workdir}: xling {args.command} needs a local directory")
    outputs = {name: getattr(args, name, None) for name in _OUTPUTS}
    outputs = {name: url for name, url in outputs.items() if is_remote(url)}
    for url in outputs.values():
        _refuse_existing(url, getattr(args, "overwrite", False))
    if "output" in outputs:
        args.exchange = FileExchange(f"{outputs['output'].rstrip('/')}.exchange")
    for name, value in vars(args).items():
        if name in (*_OUTPUTS, "workdir", "config", "config_overrides"):
            continue
        setattr(args, name, _with_local_paths(value))
    with contextlib.ExitStack() as stack:
        copies = {}
        for name, url in outputs.items():
            parent = cache_directory("outputs", url).parent
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            scratch = stack.enter_context(tempfile.TemporaryDirectory(dir=parent))
            copies[url] = Path(scratch, url.rstrip("/").rpartition("/")[2])
            setattr(args, name, str(copies[url]))
        yield
        if getattr(args, "process_index", 0) == 0:
            for url, copy in copies.items():
                _put(copy, url)


class FileExchange:
    """Where processes without a common file system hand each other files.

    Args:
        url: of a directory for these files alone.
    """

    def __init__(self, url: str):
        self._url = url

    @contextlib.contextmanager
    def cleared(self, does_it: bool) -> Iterator[None]:
        """The directory is empty before a block, and after one that succeeds.

        Args:
            does_it: whether it is this process that removes what is there.
        """
        if does_it:
            remove_below(self._url)
        yield
        if does_it:
            remove_below(self._url)

    def send(self, path: Path) -> None:
        """Copies a file there."""
        with naming_errors(self._url):
            file_system(self._url).put_file(str(path), f"{self._url}/{path.name}")

    def receive(self, path: Path) -> None:
        """Copies a file of the same name here."""
        with naming_errors(self._url):
            file_system(self._url).get_file(f"{self._url}/{path.name}", str(path))


def local_config(config: ConfigDict, *sections: str) -> ConfigDict:
    """A config with paths on this machine for the URLs in sections of it, which are copied here.

    Raises:
        UsageError: if there is nothing at a URL, or its store cannot be used.
        OSError: if copying fails.
    """
    values = config.to_dict()
    local = ConfigDict(values | {name: _with_local_paths(values[name]) for name in sections})
    local.lock()
    return local


def _with_local_paths(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_local_paths(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_with_local_paths(item) for item in value)
    return _fetch(value) if isinstance(value, str) and "://" in value else value


def _fetch(text: str) -> str:
    """Copies what `[KIND:]URL` names; returns the same of the copy.

    A URL names a file, a directory, files by a pattern, or is the prefix of Moses files.
    """
    found = _INPUT.fullmatch(text)
    if not found:
        return text
    kind, url = found["kind"], found["url"]
    if kind not in _KINDS:
        raise UsageError(f"{text}: {kind} reads no URLs; copy the files and name them")
    if kind == "moses":
        # The prefix may end in @de-en, which is no part of the files' names.
        prefix, pair = re.fullmatch(r"(.*?)(@[^/@]*)?", url, re.DOTALL).groups("")
        top, _, name = prefix.rpartition("/")
        local = _fetch_matching(top, f"{glob.escape(name)}.*") / f"{name}{pair}"
    elif magic := _MAGIC.search(url):
        top = url[: url.rindex("/", 0, magic.start())]
        pattern = url[len(top) + 1 :]
        local = _fetch_matching(top, pattern) / pattern
    else:
        local = _fetch_one(url)
    return f"{kind}:{local}" if kind else str(local)


def _fetch_one(url: str) -> Path:
    """Copies a file or a directory."""
    files = file_system(url)
    with naming_errors(url):
        is_file = files.isfile(url)
    if is_file:
        top, _, name = url.rpartition("/")
        mirror = Mirror(top, "inputs")
        mirror.fetch_exactly(name)
        return mirror.directory / name
    mirror = Mirror(url, "inputs")
    objects = mirror.objects()
    if not objects:
        raise UsageError(f"{url}: no such file or directory")
    if "metrics.jsonl" in objects:
        objects = {name: v for name, v in objects.items() if not name.startswith(_TRAINING)}
    for name in mirror.local(""):
        if name not in objects:
            (mirror.directory / name).unlink()
    mirror.fetch(objects)
    return mirror.directory


def _fetch_matching(top: str, pattern: str) -> Path:
    """Copies the files a pattern names; returns the directory of the copies."""
    mirror = Mirror(top, "inputs")
    objects = mirror.glob(pattern)
    if not objects:
        raise UsageError(f"{top}/{pattern}: no such file")
    for name in glob.glob(pattern, root_dir=mirror.directory, recursive=True):
        if Path(name).as_posix() not in objects and (mirror.directory / name).is_file():
            (mirror.directory / name).unlink()  # the store has it no more
    mirror.fetch(objects)
    return mirror.directory


def _refuse_existing(url: str, overwrite: bool) -> None:
    files = file_system(url)
    with naming_errors(url):
        exists = not overwrite and files.exists(url)
    if exists:
        raise UsageError(f"{url}: exists; choose another --output or add --overwrite")


def _put(copy: Path, url: str) -> None:
    """Copies an output file, or the files of an output directory, to its URL."""
    files = file_system(url)
    with naming_errors(url):
        if copy.is_file():
            files.put_file(str(copy), url)
        names = [path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()]
        for name in sorted(names, key=lambda name: (name in _SEALS, name)):
            files.put_file(str(copy / name), f"{url.rstrip('/')}/{name}")
    if not copy.exists():
        raise OSError(f"{url}: nothing was written")
    logger.info("%s: written", url)
