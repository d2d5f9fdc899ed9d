"""The stages of mining on disk: vectors of both sides, then neighbors.

    source.f32, source.json   unit vectors, float32 [texts, dim], and how many are complete
    target.f32, target.json
    neighbors.npz             of the first N source texts, both ways

The neighbors of a share of the source texts become one such file, to be joined with other shares.

A process killed at any moment leaves a directory with which the next one continues, and ends with
the same numbers to the last bit: texts are encoded in the same windows, and searched in the same
spans. Each stage records what it was made from; if that is something else now, it starts anew.
"""

import dataclasses
import logging
import os
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.align import knn, mining
from xling_jax.align.knn_index import EXACT
from xling_jax.align.knn_numpy import keep_best
from xling_jax.align.mining import Candidates
from xling_jax.align.rows import AnyRows, Neighbors, Report, UnitRows, no_neighbors, slices
from xling_jax.files.hashes import fingerprint
from xling_jax.files.whole import naming_errors, read_json, whole_file, write_json

_logger = logging.getLogger(__name__)

# Between records of what is done: this much work is lost at most.
_RECORD_EVERY_S = 20.0
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
    path, record = directory / f"{name}.f32", directory / f"{name}.json"
    row_bytes, made_from = 4 * shape[1], fingerprint(made_from)
    found = read_json(record) or {}
    done = found.get("rows", 0) if found.get("made_from") == made_from else 0
    # A shorter file would be extended by zeros.
    if not path.exists() or path.stat().st_size < done * row_bytes:
        done = 0
    if not done:
        record.unlink(missing_ok=True)  # before the data that it describes
    elif done == shape[0]:
        _logger.info("%s: all %s texts are embedded already", name, f"{done:,}")
    else:
        _logger.info("%s: continues with text %d of %d", name, done + 1, shape[0])
    with naming_errors(path), open(path, "r+b" if done else "wb") as file:
        file.truncate(done * row_bytes)
        file.seek(0, os.SEEK_END)
        recorded_s = time.monotonic()
        for chunk in encode(done) if done < shape[0] else ():
            file.write(np.ascontiguousarray(chunk, "<f4").data)
            done += len(chunk)
            if done == shape[0] or time.monotonic() - recorded_s > _RECORD_EVERY_S:
                file.flush()
                os.fsync(file.fileno())
                write_json(record, {"made_from": made_from, "rows": done})
                recorded_s = time.monotonic()
    return np.memmap(path, "<f4", "r", shape=shape) if done else np.empty(shape, np.float32)


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
    path, done = directory / "neighbors.npz", 0
    forward, backward = no_neighbors(n, min(k, m)), no_neighbors(m, min(k, n))
    try:
        saved = _read_part(path, made_from)
    except (FileNotFoundError, ValueError):  # none, or of something else
        pass
    else:
        done, backward = len(saved.forward), (saved.backward_cosines, saved.backward)
        forward[0][:done], forward[1][:done] = saved.forward_cosines, saved.forward
        if done < n:
            _logger.info("search: continues with source text %d of %d", done + 1, n)
    recorded_s = time.monotonic()
    while (first := done) < n:
        block = slice(first, min(first + span, n))
        moved = (lambda part, _, first=first: report(first + part, n)) if report else None
        found = mining.find_candidates(source.span(block), target, k, report=moved, **search)
        _merge(backward, found, first)
        forward[0][block], forward[1][block] = found.forward_cosines, found.forward
        done = block.stop
        if done == n or time.monotonic() - recorded_s > _RECORD_EVERY_S:
            found = Candidates(forward[0][:done], forward[1][:done], *backward)
            write_part(path, found, made_from)
            recorded_s = time.monotonic()
    return Candidates(*forward, *backward)


def write_part(
    path: str | os.PathLike[str], found: Candidates, made_from: Mapping[str, Any]
) -> None:
    """Writes the neighbors of some source texts, whole or not at all.

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


def _read_part(path: str | os.PathLike[str], made_from: Mapping[str, Any]) -> Candidates:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if str(arrays.pop("made_from")) != fingerprint(made_from):
            raise ValueError("made from other texts, model or options")
        return Candidates(**arrays)
    except (ValueError, EOFError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: {error}; run its share again with these inputs") from error


def _merge(best: Neighbors, found: Candidates, first: int) -> None:
    """Merges neighbors of target rows among the source rows from `first` on into `best`."""
    rows = found.backward + first
    for block in slices(len(rows), _MERGED_ROWS):
        keep_best(best, block, found.backward_cosines[block], rows[block])


def _unit_rows(rows: AnyRows, name: str) -> UnitRows:
    return rows if isinstance(rows, UnitRows) else UnitRows(rows, name=name)
