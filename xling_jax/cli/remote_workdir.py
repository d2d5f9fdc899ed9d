"""The workdir of a command: a directory, or one at `gs://BUCKET/PATH` with a copy on this machine.

At a URL, each process works in a copy and orbax writes checkpoints to the store. Process 0 alone
copies back: prepared data once they are whole, metrics before each checkpoint that holds them, so
that a run continued on a fresh machine has all lines up to it; the encoder at the end.

    gs://BUCKET/PATH/data, vocab     prepared data; they count if data/manifest.json is there
    gs://BUCKET/PATH/checkpoints     written and removed by orbax
    gs://BUCKET/PATH/...             config.json, metrics.jsonl, tensorboard, encoder, results

Not copied are `data/text`, which only preparing again would use, and compiled programs. While
several processes prepare together, what they hand each other passes through the store as well, in
`.exchange`.
"""

import dataclasses
import json
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from xling_jax.cli.common import UsageError
from xling_jax.corpora.prepare import FORMAT_VERSION, PreparedData, load_prepared
from xling_jax.files.processes import Processes
from xling_jax.files.urls import Mirror, is_remote, remove_below
from xling_jax.files.whole import write_json

logger = logging.getLogger(__name__)

_DATA = ("vocab", "data")
_DATA_SEAL = "data/manifest.json"
_DATA_SETTINGS = "data/settings.json"
_DATA_KEPT = ("data/text", "data/input_hashes.json")
_EXCHANGE = ".exchange"
_WRITTEN = ("config.json", "metrics.jsonl", "tensorboard", "results")


class Workdir:
    """A run's directory.

    Args:
        path: a directory, or `gs://BUCKET/PATH`.
        processes: who works here.

    Attributes:
        name: as given.
        processes: who works here; they send what is below `path`, and receive it.
        path: the directory on this machine.
        checkpoints: directory of the checkpoints, for orbax.

    Raises:
        UsageError: if it is a URL of a store that cannot be used.
        OSError: if the store cannot be read.
    """

    def __init__(self, path: str, processes: Processes | None = None):
        self.name, self._mirror = path, None
        self.processes = processes or Processes()
        self._first = self.processes.index == 0
        if not is_remote(path):
            self.path, self.checkpoints = Path(path), str(Path(path).absolute() / "checkpoints")
            return
        if not path.startswith("gs://"):
            raise UsageError(f"--workdir {path}: must be a directory or at gs://BUCKET/PATH")
        self._mirror = Mirror(path, "workdirs")
        if not self._mirror.has_bucket():  # orbax asks for it as well, after the data are prepared
            raise UsageError(f"--workdir {path}: no such bucket, or it may not be seen")
        self.path, self.checkpoints = self._mirror.directory, f"{self._mirror.url}/checkpoints"
        if self.processes.count > 1:
            self.processes = dataclasses.replace(
                self.processes, send=self._send, receive=self._receive
            )
        logger.info("%s: copy in %s", self._mirror.url, self.path)
        self._mirror.fetch_exactly(*_WRITTEN)

    @property
    def is_remote(self) -> bool:
        """Whether it lies in an object store."""
        return self._mirror is not None

    def ensure_prepared(
        self, settings: Mapping[str, Any], prepare: Callable[[], PreparedData], anew: bool = False
    ) -> None:
        """Makes the prepared data if need be; in process 0.

        Data at a URL are taken without a look at the corpora, which a machine that takes over a
        run may not have; `xling prepare` does look.

        Args:
            settings: what data are prepared with, as the config has it; JSON-like.
            prepare: does it in `path`.
            anew: whether to do so even if there are data of the same settings.

        Raises:
            ValueError, OSError: as `prepare`, or if copying fails.
        """
        if self._mirror is None:
            prepare()
            return
        settings = json.loads(json.dumps({"format_version": FORMAT_VERSION, **settings}))
        if not anew and self._has_data(settings):
            return
        # What an earlier start prepared here is worth more: it may be for these settings.
        if not (self.path / "data").exists() and self._mirror.read(_DATA_SEAL) is not None:
            self._mirror.fetch_exactly(*_DATA, keep=_DATA_KEPT)
        prepare()
        write_json(self.path / _DATA_SETTINGS, settings)
        self._mirror.put_whole(*_DATA, seal=_DATA_SEAL, keep=_DATA_KEPT)

    def prepared(self) -> PreparedData:
        """The prepared data when process 0 has ensured that they are there.

        Raises:
            ValueError, OSError: if there are none, or copying fails.
        """
        if self._mirror is not None:
            self._mirror.fetch_exactly(*_DATA, keep=_DATA_KEPT)
            if not self._first:
                self._remove_received()
        return load_prepared(self.path)

    def _remove_received(self) -> None:
        """Removes what was needed to prepare, but for what process 0 may need again."""
        received = [self.path / _EXCHANGE, *(self.path / "data").glob(".*.partial")]
        if self.processes.num_here == 1:
            received.append(self.path / "data/text")
        for path in received:
            shutil.rmtree(path, ignore_errors=True)

    def _send(self, directory: Path) -> None:
        self._exchange(directory).send()

    def _receive(self, directory: Path) -> None:
        mirror = self._exchange(directory)
        mirror.fetch(mirror.objects())

    def clear_exchange(self) -> None:
        """Removes from the store what processes have sent; in process 0, while none works."""
        if self._mirror is not None:
            remove_below(f"{self._mirror.url}/{_EXCHANGE}")
            shutil.rmtree(self.path / _EXCHANGE, ignore_errors=True)

    def _exchange(self, directory: Path) -> Mirror:
        """Where processes hand each other the files of a directory."""
        below = directory.relative_to(self.path.absolute()).as_posix()
        return Mirror(f"{self._mirror.url}/{_EXCHANGE}/{below}", "workdirs", directory)

    def _has_data(self, settings: Mapping[str, Any]) -> bool:
        """Whether the store holds whole data of these settings."""
        saved = self._mirror.read(_DATA_SETTINGS)
        if saved is None or self._mirror.read(_DATA_SEAL) is None:
            return False
        try:
            return json.loads(saved) == settings
        except ValueError:
            return False

    def publish(self) -> None:
        """Copies back what is new of config, metrics, event files and results."""
        if self._mirror is not None and self._first:
            self._mirror.put(self._mirror.local(*_WRITTEN))

    def publish_encoder(self) -> None:
        """Copies back the encoder."""
        if self._mirror is not None and self._first:
            self._mirror.put_whole("encoder", seal="encoder/config.json")
