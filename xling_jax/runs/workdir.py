"""The directory of a run, here or in an object store, and what is read from it."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.corpora.options import Preparation
from xling_jax.corpora.stages import PreparedData, is_made_with, load_prepared
from xling_jax.corpora.vocabulary import prepared_vocab
from xling_jax.files import urls
from xling_jax.files.cache import cache_for
from xling_jax.files.hashes import fingerprint
from xling_jax.files.lock import only_run
from xling_jax.files.untrusted import parse_json
from xling_jax.files.whole import lock_directory, read_json, unsealed, whole_directory
from xling_jax.options import OptionError, wrong_use
from xling_jax.text.vocabularies import Vocabulary

if TYPE_CHECKING:
    from xling_jax.train.experiment import Experiment

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Processes:
    """The processes of a run, or this one alone.

    `meet` returns when all have called it with the same name, which must be used only once.
    """

    index: int = 0
    meet: Callable[[str], None] = lambda name: None


def open_run(workdir: str | os.PathLike[str]) -> tuple[Experiment, Vocabulary]:
    """The experiment that a run recorded, and its vocabulary.

    ValueError if the workdir is damaged, or of a version with other options; OSError if it lacks a
    file.
    """
    from xling_jax.train.experiment import Experiment

    path = Path(workdir) / "config.json"
    experiment = Experiment.recorded(parse_config(path.read_bytes(), str(path)), str(path))
    return experiment, run_vocab(workdir, experiment)


def parse_config(content: bytes, path: str) -> Any:
    """The value of a run's `config.json`; ValueError if it is damaged."""
    way_out = "restore it, or remove it and start the run's `xling train` again, which writes it"
    return parse_json(content, path, way_out=way_out)


def run_vocab(workdir: str | os.PathLike[str], experiment: Experiment) -> Vocabulary:
    """The vocabulary of a run."""
    vocab = experiment.preparation.vocab
    return prepared_vocab(workdir, lowercase=vocab.lowercase, moses=vocab.moses)


class Workdir:
    """A run's directory; one at `gs://BUCKET/PATH` has a copy on this machine, `path`.

    Each process works in its copy, and orbax writes `checkpoints` to the store. Only process 0
    copies back: prepared data once they are complete; metrics before each checkpoint that they
    belong to, so that a run continued on a fresh machine has all of them; the encoder at the end.
    Without `processes` this one works alone. OptionError if there is no such bucket, or it is a URL
    of something else; OSError if the store cannot be read.
    """

    _PUBLISHED = ("config.json", "metrics.jsonl", "tensorboard", "results")
    _MANIFEST = "data/manifest.json"
    _KEPT_HERE = ("text", "input_hashes.json", ".lock")

    def __init__(self, path: str, processes: Processes | None = None):
        self.name, self.processes = path, processes or Processes()
        self.is_remote, self._url = urls.is_url(path), path.rstrip("/")
        self.path, self.checkpoints = Path(path), str(Path(path).absolute() / "checkpoints")
        if not self.is_remote:
            if self.path.is_file():
                raise OptionError(f"--workdir {path}: is a file; name a directory")
            return
        if not path.startswith("gs://"):
            raise OptionError(f"--workdir {path}: must be a directory or gs://BUCKET/PATH")
        # orbax asks for the bucket as well, but only after the data are prepared.
        with wrong_use():
            is_there = urls.exists("/".join(path.split("/")[:3]))
        if not is_there:
            raise OptionError(f"--workdir {path}: no such bucket, or no permission to see it")
        self.checkpoints = f"{self._url}/checkpoints"
        self.path = cache_for("workdirs") / fingerprint(self._url)
        self.path.mkdir(exist_ok=True)
        _logger.info("%s: copy in %s", self._url, self.path)

    def read_config(self) -> bytes | None:
        """The `config.json` of the run, None if there is none."""
        if self.is_remote:
            return urls.read(f"{self._url}/config.json")
        path = self.path / "config.json"
        return path.read_bytes() if path.is_file() else None

    def has_checkpoints(self) -> bool:
        """Returns whether there is a checkpoint, complete or being written."""
        if not self.is_remote and not Path(self.checkpoints).is_dir():
            return False  # known without the seconds that importing orbax takes
        from xling_jax.train.checkpoint import has_checkpoints

        return has_checkpoints(self.checkpoints)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keeps other runs on this machine out during a block; OSError names one that is in there.

        Of several processes the first does, for all of them.
        """
        if self.processes.index > 0:
            yield
            return
        with only_run(self.path):
            if self.is_remote:
                self._fetch_published()
            yield

    def ensure_prepared(
        self, preparation: Preparation, prepare: Callable[[], object], anew: bool = False
    ) -> None:
        """Makes the prepared data if necessary; called by process 0.

        A machine that takes over a run may not have the corpora. Unless `anew`, data at a URL are
        taken without a look at them, and data in a directory if a file of theirs is missing.
        Raises as `prepare`, and OSError if copying fails.
        """
        there = self._manifest()
        if there and is_made_with(there, preparation) and not anew:
            return
        # What an earlier start prepared here is worth more: it may be of this preparation.
        if there and not (self.path / "data").exists():
            self._fetch_data()
        here = None if anew or self.is_remote else read_json(self.path / self._MANIFEST)
        here = here if here and is_made_with(here, preparation) else None
        try:
            # A pattern that matches fewer files than it did gives no error, but other data.
            for path in here["inputs"] if here else ():
                if not urls.is_url(path) and not os.path.exists(path):
                    raise FileNotFoundError(f"{path}: no such file")
            prepare()
        except FileNotFoundError as error:
            if not here:
                raise
            _logger.warning("%s; training on %s, prepared earlier", error, self.path / "data")
        if self.is_remote and read_json(self.path / self._MANIFEST) != there:
            urls.remove(f"{self._url}/{self._MANIFEST}")
            for name in ("vocab", "data"):
                self._replace(name)

    def prepared(self, preparation: Preparation) -> PreparedData:
        """The prepared data, which process 0 has ensured; ValueError if they are not there."""
        if self.is_remote:
            self._fetch_data()
        return load_prepared(self.path, preparation)

    def publish(self) -> None:
        """Copies back what is new of config, metrics, event files and results."""
        if not self.is_remote or self.processes.index > 0:
            return
        for path, state in self._states().items():
            if state != self._published.get(path):
                urls.put(path, f"{self._url}/{path.relative_to(self.path).as_posix()}")
                self._published[path] = state

    def _states(self) -> dict[Path, tuple[int, int]]:
        """Size and time of the last change of the files that `publish` copies."""
        names = [self.path / name for name in self._PUBLISHED]
        found = [path for top in names for path in (top, *top.rglob("*")) if path.is_file()]
        return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in found}

    def publish_encoder(self) -> None:
        """Copies back the encoder; called by process 0."""
        if self.is_remote:
            self._replace("encoder")

    def _fetch_published(self) -> None:
        """Makes the config, metrics and event files here those of the store."""
        for name in self._PUBLISHED:
            urls.remove(str(self.path / name))
            urls.get(f"{self._url}/{name}", self.path / name)
        self._published = self._states()

    def _replace(self, name: str) -> None:
        urls.remove(f"{self._url}/{name}")
        urls.put(self.path / name, f"{self._url}/{name}", self._KEPT_HERE)

    def _manifest(self) -> dict[str, Any] | None:
        content = urls.read(f"{self._url}/{self._MANIFEST}") if self.is_remote else None
        with contextlib.suppress(ValueError):  # damaged: prepared again, as in a directory
            return unsealed(parse_json(content or b"null", self._MANIFEST))
        return None

    def _fetch_data(self) -> None:
        """Makes the data here those of the store."""
        with lock_directory(self.path):  # other processes on this machine may share the copy
            if read_json(self.path / self._MANIFEST) != self._manifest():
                for name in ("vocab", "data"):
                    with whole_directory(self.path / name) as copy:
                        urls.get(f"{self._url}/{name}", copy, self._KEPT_HERE)
