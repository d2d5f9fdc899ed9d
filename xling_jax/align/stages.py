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
from xling_jax.align.rows import AnyRows, Report, UnitRows, no_neighbors
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
    """
    path = directory / f"{name}.f32"
    rows = _Rows(directory / f"{name}.json", made_from, {path: 4 * shape[1]})
    if 0 < rows.done == shape[0]:
        _logger.info("%s: all %s texts are embedded already", name, f"{rows.done:,}")
    elif rows.done:
        _logger.info("%s: continues with text %d of %d", name, rows.done + 1, shape[0])
    with rows.opened():
        for chunk in encode(rows.done) if rows.done < shape[0] else ():
            rows.add(np.asarray(chunk, "<f4"))
            if rows.is_due(shape[0]):
                rows.record()
    if rows.done != shape[0]:
        raise ValueError(f"{path}: must get {shape[0]} vectors; got {rows.done}")
    if not rows.done:
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
    as `mining.find_candidates`. Nothing is written if a side is empty.
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
    width, paths = min(k, m), (directory / "forward.f32", directory / "forward.i64")
    forward = _Rows(
        directory / "neighbors.json", made_from, {paths[0]: 4 * width, paths[1]: 8 * width}
    )
    backward = no_neighbors(m, min(k, n))
    saved = lambda: directory / f"backward-{forward.done}.npz"
    if forward.done:
        try:
            with np.load(saved(), allow_pickle=False) as file:
                backward = file["cosines"], file["rows"]
        except (OSError, EOFError, ValueError, zipfile.BadZipFile):
            forward.done = 0
    if 0 < forward.done < n:
        _logger.info("search: continues with source text %d of %d", forward.done + 1, n)
    with forward.opened():
        while (first := forward.done) < n:
            block = source.span(slice(first, min(first + span, n)))
            moved = (lambda done, _, first=first: report(first + done, n)) if report else None
            found = mining.find_candidates(block, target, k, report=moved, **search)
            _merge(backward, found, first)
            forward.add(found.forward_cosines.astype("<f4"), found.forward.astype("<i8"))
            if forward.is_due(n):
                with whole_file(saved()) as file:
                    np.savez(file, cosines=backward[0], rows=backward[1])
                forward.record()
                for other in directory.glob("backward-*.npz"):
                    if other != saved():
                        other.unlink()
    columns = (
        np.fromfile(path, kind).reshape(n, width) for path, kind in zip(paths, ("<f4", "<i8"))
    )
    return Candidates(*columns, *backward)


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
    backward, done = no_neighbors(num_target, min(k, num_source)), 0
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


def _merge(best: tuple[np.ndarray, np.ndarray], found: Candidates, first: int) -> None:
    """Merges neighbors of target rows among the source rows from `first` on into `best`."""
    rows = found.backward + first
    for start in range(0, len(rows), _MERGED_ROWS):
        block = slice(start, start + _MERGED_ROWS)
        keep_best(best, block, found.backward_cosines[block], rows[block])


class _Rows:
    """Files that grow by rows, and a record of how many rows are complete.

    None are if they were made from something else, or if a file is missing, as after a run killed
    while it removed them, its work done, or shorter than recorded: extending it would make zeros of
    what was lost.

    Attributes:
        done: how many are complete.
    """

    def __init__(self, record: Path, made_from: Mapping[str, Any], row_bytes: Mapping[Path, int]):
        self._record, self._made_from, self._row_bytes = record, made_from, row_bytes
        found = read_json(record) or {}
        same = fingerprint(found.get("made_from")) == fingerprint(made_from)
        done = found.get("rows", 0) if same else 0
        whole = all(p.exists() and p.stat().st_size >= done * b for p, b in row_bytes.items())
        self.done = done if whole else 0

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Opens the files to add to, cut at what is recorded."""
        if not self.done:
            self._record.unlink(missing_ok=True)
        with contextlib.ExitStack() as stack:
            self._files = []
            for path, size in self._row_bytes.items():
                file = stack.enter_context(open(path, "r+b" if self.done else "wb"))
                file.truncate(self.done * size)
                file.seek(0, os.SEEK_END)
                self._files.append(file)
            self._recorded_s = time.monotonic()
            yield

    def add(self, *arrays: np.ndarray) -> None:
        """Adds rows to each file."""
        for file, path, array in zip(self._files, self._row_bytes, arrays):
            with naming_errors(path):
                file.write(np.ascontiguousarray(array).data)
        self.done += len(arrays[0])

    def is_due(self, total: int) -> bool:
        """True if all rows are there, or the last record is old."""
        return self.done == total or time.monotonic() - self._recorded_s > _RECORD_EVERY_S

    def record(self) -> None:
        """Records that the rows added are complete."""
        for file, path in zip(self._files, self._row_bytes):
            _sync(file, path)
        write_json(self._record, {"made_from": self._made_from, "rows": self.done})
        self._recorded_s = time.monotonic()


def _unit_rows(rows: AnyRows, name: str) -> UnitRows:
    return rows if isinstance(rows, UnitRows) else UnitRows(rows, name=name)


def _sync(file: BinaryIO, path: Path) -> None:
    with naming_errors(path):
        file.flush()
        os.fsync(file.fileno())
