"""Inputs, outputs and workdirs of commands at URLs: copied here, and what is new copied back."""

import argparse
import contextlib
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from xling_jax.corpora.prepare import PreparedData, is_made_with, load_prepared
from xling_jax.corpora.readers import READERS
from xling_jax.corpora.settings import PrepareSettings
from xling_jax.corpora.specs import moved_corpus
from xling_jax.files import urls
from xling_jax.files.cache import cache_directory
from xling_jax.files.hashes import fingerprint
from xling_jax.files.lock import only_run
from xling_jax.files.processes import Processes
from xling_jax.files.whole import lock_directory, read_json, whole_directory, write_whole
from xling_jax.options import OptionError, wrong_use

logger = logging.getLogger(__name__)

_OUTPUTS = ("output", "n_best", "save_debias")
_HAVE_WORKDIRS = ("prepare", "train")
_CHANGE_MODELS = ("calibrate",)


@contextlib.contextmanager
def local_arguments(args: argparse.Namespace) -> Iterator[None]:
    """Gives a command paths on this machine for the URLs among its arguments, during a block.

    Outputs are copied to their URLs when the block ends without an error; of several processes, by
    the first.

    Args:
        args: of any command; changed. Gets `store`, the URL of the directory of an output. Must
            have `process_index` at the end if there are several processes.

    Raises:
        OptionError: if an input is missing, an output exists, or a protocol is not supported.
        OSError: if copying fails.
    """
    if urls.is_url(getattr(args, "workdir", None)) and args.command not in _HAVE_WORKDIRS:
        raise OptionError(f"--workdir {args.workdir}: xling {args.command} needs a local directory")
    if args.command in _CHANGE_MODELS and urls.is_url(args.model):
        raise OptionError(f"--model {args.model}: xling {args.command} needs a local directory")
    given = vars(args)
    outputs = {name: given[name].rstrip("/") for name in _OUTPUTS if urls.is_url(given.get(name))}
    for name in given.keys() - {*_OUTPUTS, "words", "workdir", "config", "config_overrides"}:
        given[name] = local_names(given[name])
    with contextlib.ExitStack() as stack:
        for name, url in outputs.items():
            if not given.get("overwrite") and _called(urls.exists, url):
                raise OptionError(f"{url}: exists; choose another --output or add --overwrite")
            args.store, _, file = url.rpartition("/")
            scratch = stack.enter_context(tempfile.TemporaryDirectory(dir=_cache("outputs")))
            given[name] = str(Path(scratch, file))
        yield
        for name, url in outputs.items() if given.get("process_index", 0) == 0 else ():
            urls.put(Path(given[name]), url)


def local_config(config: ConfigDict, *sections: str) -> ConfigDict:
    """A config with `local_names` of some sections."""
    values = config.to_dict()
    local = ConfigDict(values | {name: local_names(values.get(name, {})) for name in sections})
    return local.lock()


def local_names(value: Any) -> Any:
    """A value with `local_name` of all strings in it."""
    if isinstance(value, Mapping):
        return {key: local_names(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(local_names, value))
    return local_name(value) if isinstance(value, str) else value


def local_name(name: str) -> str:
    """Copies what is at a URL to this machine, and returns the name of the copy.

    The name is the URL of a file, a directory or files by a pattern, or a corpus `KIND:URL`. Any
    other is returned as it is.

    Raises:
        OptionError: if there is nothing at the URL, or its protocol is not supported.
        OSError: if copying fails.
    """
    if urls.is_url(name):
        is_run = _called(urls.exists, name, "metrics.jsonl")
        without = ("checkpoints", "data", "vocab") if is_run else ()  # only training needs them
        return str(_called(urls.fetch, name, _cache("inputs"), without))
    if "://" in name and name.partition(":")[0] in READERS:
        return moved_corpus(name, local_name)
    return name


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function whose ValueError or FileNotFoundError is due to a wrong argument."""
    with wrong_use(errors=(ValueError, FileNotFoundError)):
        return function(*arguments)


def _cache(kind: str) -> Path:
    """A directory for copies."""
    directory = cache_directory()
    if directory is None:
        raise OptionError("URLs are copied to a cache directory: set XDG_CACHE_HOME or HOME")
    (directory / kind).mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory / kind


class Workdir:
    """A run's directory; one at `gs://BUCKET/PATH` has a copy on this machine.

    Each process works in its copy, and orbax writes checkpoints to the store. Only process 0 copies
    back: prepared data once they are complete; metrics before each checkpoint that they belong to,
    so that a run continued on a fresh machine has all of them; the encoder at the end.

    Args:
        path: a directory, or `gs://BUCKET/PATH`.
        processes: who works here; None for this process alone.

    Attributes:
        name: as given.
        processes: who works here.
        path: the directory on this machine.
        checkpoints: directory of the checkpoints, for orbax.
        is_remote: whether it is in an object store.

    Raises:
        OptionError: if there is no such bucket, or it is a URL of something else.
        OSError: if the store cannot be read.
    """

    _PUBLISHED = ("config.json", "metrics.jsonl", "writers.json", "tensorboard", "results")
    _MANIFEST = "data/manifest.json"
    _KEPT_HERE = ("text", "input_hashes.json", ".lock")

    def __init__(self, path: str, processes: Processes | None = None):
        self.name, self.processes = path, processes or Processes()
        self.is_remote, self._url = urls.is_url(path), path.rstrip("/")
        self.path, self.checkpoints = Path(path), str(Path(path).absolute() / "checkpoints")
        if not self.is_remote:
            return
        if not path.startswith("gs://"):
            raise OptionError(f"--workdir {path}: must be a directory or gs://BUCKET/PATH")
        # orbax asks for the bucket as well, but only after the data are prepared.
        if not _called(urls.exists, "/".join(path.split("/")[:3])):
            raise OptionError(f"--workdir {path}: no such bucket, or no permission to see it")
        self.checkpoints = f"{self._url}/checkpoints"
        self.path = _cache("workdirs") / fingerprint(self._url)
        self.path.mkdir(exist_ok=True)
        logger.info("%s: copy in %s", self._url, self.path)
        for name in self._PUBLISHED if self.processes.index == 0 else self._PUBLISHED[:1]:
            shutil.rmtree(self.path / name, ignore_errors=True)
            if (content := urls.read(f"{self._url}/{name}")) is not None:
                write_whole(self.path / name, content)
            else:
                (self.path / name).unlink(missing_ok=True)
                urls.get(f"{self._url}/{name}", self.path / name)
        self._published_s = time.time()

    def manifest(self) -> dict[str, Any] | None:
        """The `manifest.json` of the prepared data, None if there are none."""
        return self._manifest() if self.is_remote else read_json(self.path / self._MANIFEST)

    def has_checkpoints(self) -> bool:
        """Whether there is a checkpoint, complete or being written."""
        if not self.is_remote and not Path(self.checkpoints).is_dir():
            return False  # known without the seconds that importing orbax takes
        from xling_jax.train.checkpoint import has_checkpoints

        return has_checkpoints(self.checkpoints)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keeps other runs out of the directory on this machine during a block.

        Of several processes the first does, for all of them.

        Raises:
            OSError: naming the run that is in there.
        """
        if self.processes.index > 0:
            yield
            return
        with only_run(self.path):
            yield

    def ensure_prepared(
        self, settings: PrepareSettings, prepare: Callable[[], object], anew: bool = False
    ) -> None:
        """Makes the prepared data if necessary; called by process 0.

        A machine that takes over a run may not have the corpora. Unless `anew`, data at a URL are
        taken without a look at them, and data in a directory if a file of theirs is missing.
        Raises as `prepare`, and OSError if copying fails.
        """
        there = self._manifest()
        if there and is_made_with(there, settings) and not anew:
            return
        # What an earlier start prepared here is worth more: it may be of these settings.
        if there and not (self.path / "data").exists():
            self._fetch_data()
        try:
            prepare()
        except FileNotFoundError as error:
            here = None if anew or self.is_remote else self.manifest()
            if not (here and is_made_with(here, settings)):
                raise
            logger.warning("%s; training on %s, prepared earlier", error, self.path / "data")
        if self.is_remote and read_json(self.path / self._MANIFEST) != there:
            urls.remove(f"{self._url}/{self._MANIFEST}")
            for name in ("vocab", "data"):
                self._replace(name)

    def prepared(self, settings: PrepareSettings) -> PreparedData:
        """The prepared data, once process 0 has ensured that they are there.

        Raises:
            ValueError, OSError: if there are none of these settings, or copying fails.
        """
        if self.is_remote:
            self._fetch_data()
        return load_prepared(self.path, settings)

    def publish(self) -> None:
        """Copies back what is new of config, metrics, event files and results."""
        if not self.is_remote or self.processes.index > 0:
            return
        since, self._published_s = self._published_s, time.time()
        for name in self._PUBLISHED:
            for path in (self.path / name, *(self.path / name).rglob("*")):
                if path.is_file() and path.stat().st_mtime > since - 2:  # clocks are coarse
                    urls.put(path, f"{self._url}/{path.relative_to(self.path).as_posix()}")

    def publish_encoder(self) -> None:
        """Copies back the encoder; called by process 0."""
        if self.is_remote:
            self._replace("encoder")

    def _replace(self, name: str) -> None:
        urls.remove(f"{self._url}/{name}")
        urls.put(self.path / name, f"{self._url}/{name}", self._KEPT_HERE)

    def _manifest(self) -> dict[str, Any] | None:
        content = urls.read(f"{self._url}/{self._MANIFEST}") if self.is_remote else None
        return json.loads(content) if content else None

    def _fetch_data(self) -> None:
        """Makes the data here those of the store."""
        with lock_directory(self.path):  # other processes on this machine may share the copy
            if read_json(self.path / self._MANIFEST) != self._manifest():
                for name in ("vocab", "data"):
                    with whole_directory(self.path / name) as copy:
                        urls.get(f"{self._url}/{name}", copy)
