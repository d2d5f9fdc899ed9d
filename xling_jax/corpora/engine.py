"""Who does the work of the stages: processes of this machine, or a cluster (`beam`).

A stage says what there is to do, as calls of a function on items; an engine makes them. What comes
out depends on the stage alone.
"""

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from xling_jax.corpora.copies import local_name
from xling_jax.corpora.pair_text import ChunkCleaner, RowCounter, write_pair_text
from xling_jax.corpora.pair_tokens import Shard, ShardWriter
from xling_jax.corpora.readers.base import Reader
from xling_jax.corpora.stages import Stage
from xling_jax.files.hashes import hash_file
from xling_jax.files.progress import track
from xling_jax.files.whole import read_json, write_record
from xling_jax.files.workers import map_in_order


class Engine:
    """Does the work in processes of this machine; `place` says where they find a path or URL."""

    place = staticmethod(local_name)

    def __init__(self, num_workers: int):
        self._num_workers = num_workers

    def clean(
        self,
        corpora: Sequence[tuple[Reader, Stage]],
        languages: Sequence[str],
        cleaner: ChunkCleaner,
    ) -> None:
        """Makes the text stages of corpora."""
        # All are opened first: a wrong header in the last should not come to light after hours.
        opened = [(reader.name, reader.rows(languages), stage) for reader, stage in corpora]
        for name, rows, stage in opened:
            counter = RowCounter(name)
            chunks = counter.chunks(rows, cleaner.min_languages)
            chunks = track(chunks, f"clean {name}", unit="row", size=len)
            cleaned = map_in_order(cleaner, chunks, self._num_workers)
            stage.make(functools.partial(write_pair_text, cleaned, counter=counter))

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        """Calls a function that mostly reads for each item, in order."""
        return map(function, items)

    def write_shards(self, writer: ShardWriter, shards: Sequence[Shard]) -> Iterable[Any]:
        """Writes shards; yields the counts of each, in order."""
        written = map_in_order(writer, shards, self._num_workers)
        return track(written, "tokenize", len(shards), unit="shard")


class FileHashes:
    """SHA-256 of files, remembered in a JSON file by size and time of the last change.

    Attributes:
        used: path -> hash, of the files asked for.
    """

    def __init__(self, path: Path, engine: Engine):
        self._path, self._engine = path, engine
        self._known = read_json(path) or {}
        self.used: dict[str, str] = {}

    def of(self, paths: Sequence[str], here: bool = False) -> list[str]:
        """Returns the hash of each file's content in hex digits, read by the engine or `here`."""
        names = {path: os.path.abspath(path) for path in paths}
        states = {path: [s.st_size, s.st_mtime_ns] for path in paths for s in [os.stat(path)]}
        is_known = lambda path: self._known.get(names[path], [])[:2] == states[path]
        missing = [path for path in states if not is_known(path)]
        found = (map if here else self._engine.map)(hash_file, missing)
        for path, digest in zip(missing, found):
            self._known[names[path]] = [*states[path], digest]
            write_record(self._path, self._known)
        self.used |= {path: self._known[name][2] for path, name in names.items()}
        return [self.used[path] for path in paths]
