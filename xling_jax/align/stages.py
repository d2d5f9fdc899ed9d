"""The stages of mining on disk: vectors of both sides, then neighbors.

    source.f32, source.json          unit vectors, float32 [texts, dim], and how many are complete
    target.f32, target.json
    forward.f32, forward.i64         of each source text: cosines and rows of its neighbors
    backward-N.npz, neighbors.json   of each target text, among the first N source texts

The neighbors of a share of the source texts become one file, to be joined with the other shares.

A process killed at any moment leaves a directory with which the next one continues, and ends with
the same numbers to the last bit: texts are encoded in the same windows, and searched in the same
spans. Each stage records what it was made from; if that is something else now, it starts anew, and
the old record goes before the old data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from xling_jax.align import knn, mining
from xling_jax.align.knn_index import EXACT
from xling_jax.align.knn_numpy import keep_best
from xling_jax.align.mining import Candidates
from xling_jax.align.rows import AnyRows, Report, UnitRows
from xling_jax.files.hashes import fingerprint
from xling_jax.files.whole import naming_errors, read_json, whole_file, write_json

_logger = logging.getLogger(__name__)

# Between records of what is done: this much work is lost at most.
_RECORD_EVERY_S = 10.0
# Multiplications of a span, source texts that are searched at once: about a minute of two cores,
# or some seconds of an accelerator, which gets all target vectors anew for each span.
_SPAN_PRODUCTS = {"numpy": 2**42, "jax": 2**46}
SPAN_ROWS = 2048  # spans and shares are a multiple of it, the height of a tile
_MERGED_ROWS = 2**16


def stage_vectors(
    directory: Path,
    name: str,
    made_from: Mapping[str, Any],
    encode: Callable[[int], Iterable[np.ndarray]],
    shape: tuple[int, int],
) -> np.ndarray:
    """Encodes a side into a file, or what an earlier process has left to do.

    Args:
        directory: of the stages.
        name: "source" or "target".
        made_from: what determines the vectors, as JSON.
        encode: yields the unit vectors from a row on, in chunks that end where a run from that row
            would end them too.
        shape: of the [texts, dim] float32 that are returned, mapped from the file.

    Raises:
        OSError: if writing fails, as on a full disk; what is complete stays.
    """
    path, record = directory / f"{name}.f32", directory / f"{name}.json"
    row_bytes = 4 * shape[1]
    done = _done(record, made_from, "rows", lambda done: {path: done * row_bytes})
    if 0 < done == shape[0]:
        _logger.info("%s: all %s texts are embedded already", name, f"{done:,}")
    elif done:
        _logger.info("%s: continues with text %s of %s", name, f"{done + 1:,}", f"{shape[0]:,}")
    else:
        record.unlink(missing_ok=True)
    with naming_errors(path), open(path, "r+b" if done else "wb") as file:
        file.truncate(done * row_bytes)
        file.seek(0, os.SEEK_END)
        recorded = time.monotonic()
        for chunk in encode(done) if done < shape[0] else ():
            file.write(np.ascontiguousarray(chunk, "<f4").data)
            done += len(chunk)
            if time.monotonic() - recorded > _RECORD_EVERY_S or done == shape[0]:
                _sync(file, path)
                write_json(record, {"made_from": made_from, "rows": done})
                recorded = time.monotonic()
    if done != shape[0]:
        raise ValueError(f"{path}: must get {shape[0]} vectors; got {done}")
    if not done:
        return np.empty(shape, np.float32)
    return np.memmap(path, "<f4", "r", shape=shape)


def stage_candidates(
    directory: Path,
    made_from: Mapping[str, Any],
    source: AnyRows,
    target: AnyRows,
    k: int,
    *,
    rows: slice = slice(None),
    report: Report | None = None,
    **search: Any,
) -> Candidates:
    """Finds the k nearest rows by cosine both ways, or what an earlier process has left to find.

    Source texts, those of `rows`, are searched in spans. Neighbors of source texts are final with
    their span; those of target texts are merged with what earlier spans found, the same whatever
    the spans are. `made_from` is what determines the neighbors, as JSON; other arguments and errors
    as `mining.find_candidates`.

    Raises:
        OSError: if writing fails; what is complete stays. Nothing is written if a side is empty.
    """
    source, target = _unit_rows(source, "source"), _unit_rows(target, "target")
    if rows != slice(None):
        source = source.span(rows)
    (n, dim), m = source.shape, len(target)
    if not n or not m:
        return mining.find_candidates(source, target, k, **search)
    backend = knn.choose_backend(search.get("backend", "numpy"))
    span = SPAN_ROWS * max(1, _SPAN_PRODUCTS[backend] // (m * dim * SPAN_ROWS))
    index = search.get("index", EXACT)
    if index != EXACT:
        span = n  # an index is built for all
    made_from = {**made_from, "k": k, "span": span, "backend": backend, "index": index}
    state = _Neighbors(directory, made_from, n, m, k)
    if 0 < state.done < n:
        _logger.info("search: continues with source text %s of %s", f"{state.done + 1:,}", f"{n:,}")
    with state.opened():
        while (first := state.done) < n:
            block = source.span(slice(first, min(first + span, n)))
            moved = (lambda done, _, first=first: report(first + done, n)) if report else None
            state.add(mining.find_candidates(block, target, k, report=moved, **search))
    return state.candidates()


def write_part(
    path: str | os.PathLike[str], found: Candidates, made_from: Mapping[str, Any]
) -> None:
    """Writes the neighbors of a share of the source texts, whole or not at all.

    `made_from` is what determines the neighbors of all shares, as JSON.
    """
    with whole_file(path) as file:
        np.savez(file, made_from=fingerprint(made_from), **dataclasses.asdict(found))


def join_parts(paths: Sequence[str], made_from: Mapping[str, Any], k: int) -> Candidates:
    """Joins files of `write_part`, in the order of the shares: the neighbors that one search finds.

    Raises:
        ValueError: if a file is not a part, or was made from something else.
    """
    parts = [_read_part(path, made_from) for path in paths]
    num_source, num_target = sum(len(part.forward) for part in parts), len(parts[0].backward)
    backward, done = _no_neighbors(num_target, min(k, num_source)), 0
    for part in parts:
        _merge(backward, part, done)
        done += len(part.forward)
    filled = [part for part in parts if len(part.forward)] or parts
    forward = (
        np.concatenate([getattr(p, n) for p in filled]) for n in ("forward_cosines", "forward")
    )
    return Candidates(*forward, *backward)


def _read_part(path: str, made_from: Mapping[str, Any]) -> Candidates:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if str(arrays.pop("made_from")) != fingerprint(made_from):
            raise ValueError("made from other texts, model or options")
        return Candidates(**arrays)
    except (ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: {error}; run its share again with these inputs") from error


def _no_neighbors(rows: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full((rows, k), -np.inf, np.float32), np.full((rows, k), -1, np.int64)


def _merge(best: tuple[np.ndarray, np.ndarray], found: Candidates, first: int) -> None:
    """Merges neighbors of target rows among the source rows from `first` on into `best`."""
    rows = found.backward + first
    for start in range(0, len(rows), _MERGED_ROWS):
        block = slice(start, start + _MERGED_ROWS)
        keep_best(best, block, found.backward_cosines[block], rows[block])


class _Neighbors:
    """Neighbors of the first `done` source rows, on disk and of target rows also in memory."""

    def __init__(self, directory: Path, made_from: Mapping[str, Any], n: int, m: int, k: int):
        self._directory, self._made_from, self._num_rows = directory, made_from, n
        self._widths = min(k, m), min(k, n)
        self._paths = directory / "forward.f32", directory / "forward.i64"
        self._record_path = directory / "neighbors.json"
        self.done = _done(self._record_path, made_from, "source_rows", self._sizes)
        self._backward = _no_neighbors(m, self._widths[1])
        if self.done:
            with np.load(self._backward_path(self.done), allow_pickle=False) as file:
                self._backward = file["cosines"], file["rows"]

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Opens the files to add to, cut at what is recorded."""
        if not self.done:
            self._record_path.unlink(missing_ok=True)
        with contextlib.ExitStack() as stack:
            mode = "r+b" if self.done else "wb"
            self._files = [stack.enter_context(open(path, mode)) for path in self._paths]
            sizes = self._sizes(self.done)
            for file, path in zip(self._files, self._paths):
                file.truncate(sizes[path])
                file.seek(0, os.SEEK_END)
            self._recorded_s = time.monotonic()
            yield

    def add(self, found: Candidates) -> None:
        """Adds what the next source rows have found."""
        arrays = (found.forward_cosines, "<f4"), (found.forward, "<i8")
        for file, path, (array, dtype) in zip(self._files, self._paths, arrays):
            with naming_errors(path):
                file.write(np.ascontiguousarray(array, dtype).data)
        _merge(self._backward, found, self.done)
        self.done += len(found.forward)
        if self.done == self._num_rows or time.monotonic() - self._recorded_s > _RECORD_EVERY_S:
            self._record()

    def candidates(self) -> Candidates:
        """All neighbors, in memory."""
        shape = self._num_rows, self._widths[0]
        types = "<f4", "<i8"
        forward = [np.fromfile(p, d).reshape(shape) for p, d in zip(self._paths, types)]
        return Candidates(*forward, *self._backward)

    def _record(self) -> None:
        for file, path in zip(self._files, self._paths):
            _sync(file, path)
        path = self._backward_path(self.done)
        with whole_file(path) as file:
            np.savez(file, cosines=self._backward[0], rows=self._backward[1])
        record = {"made_from": self._made_from, "source_rows": self.done}
        write_json(self._record_path, record)
        for other in self._directory.glob("backward-*.npz"):
            if other != path:
                other.unlink()
        self._recorded_s = time.monotonic()

    def _sizes(self, done: int) -> dict[Path, int]:
        """The files of that many source rows, and the bytes that each has at least."""
        num_values = done * self._widths[0]
        forward = {path: num_values * each for path, each in zip(self._paths, (4, 8))}
        return forward | {self._backward_path(done): 1}

    def _backward_path(self, done: int) -> Path:
        return self._directory / f"backward-{done}.npz"


def _unit_rows(rows: AnyRows, name: str) -> UnitRows:
    return rows if isinstance(rows, UnitRows) else UnitRows(rows, name=name)


def _done(
    path: Path, made_from: Mapping[str, Any], key: str, sizes: Callable[[int], Mapping[Path, int]]
) -> int:
    """Returns how much of a stage is complete; 0 if it was made from something else.

    Also 0 if a file is missing, as after a run killed while it removed them, its work done, or
    shorter than recorded: extending it would make zeros of what was lost.
    """
    record = read_json(path) or {}
    same = fingerprint(record.get("made_from")) == fingerprint(made_from)
    done = record.get(key, 0) if same else 0
    whole = all(file.exists() and file.stat().st_size >= size for file, size in sizes(done).items())
    return done if whole else 0


def _sync(file: BinaryIO, path: Path) -> None:
    with naming_errors(path):
        file.flush()
        os.fsync(file.fileno())
