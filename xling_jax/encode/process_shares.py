"""One text encoded by several processes: each takes every Nth window, the first joins the parts.

The windows are those of a single process, so a sentence shares its batches with the same neighbors
and gets the same vector to the last bit. Each process writes a part next to the output: a network
file system may mix up what several machines write into one file.
"""

import glob
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.encode.texts import text_windows
from xling_jax.files.embeddings import read_embeddings, write_embeddings
from xling_jax.files.processes import Processes
from xling_jax.files.quantization import Quantizer
from xling_jax.files.whole import remove_temporary


def share_of(
    items: Iterable[Any], window: int, processes: Processes, sizes: list[int] | None = None
) -> Iterator[Any]:
    """Yields the items (texts or documents) of this process's windows.

    Appends to `sizes` the number of items of every window, including those of other processes.
    """
    for number, texts in enumerate(text_windows(items, window)):
        if sizes is not None:
            sizes.append(len(texts))
        if number % processes.count == processes.index:
            yield from texts


def write_embeddings_together(
    path: str | os.PathLike[str],
    items: Iterable[Any],
    encode: Callable[[Iterator[Any]], Iterable[np.ndarray]],
    *,
    window: int,
    processes: Processes,
    dim: int,
    format: str = "npy",
    overwrite: bool = False,
    quantizer: Quantizer | None = None,
) -> int:
    """Writes the embeddings of all items, each process encoding its share.

    All processes call it with the same arguments. While they are joined, the parts take as much
    room as the output in float32, next to it.

    Args:
        path: the output file, which appears whole or not at all.
        items: texts or documents, the same in all processes.
        encode: turns a stream of items into chunks [any, dim], the rows in the order of the items.
        window: most items of a window.
        processes: that share the work.
        dim: see `write_embeddings`, also for the others.
        format: npy or laser.
        overwrite: replace an existing file.
        quantizer: see `write_embeddings`.

    Returns:
        The number of rows of the output, which is complete when any process returns, at least on
        the machine of the first.

    Raises:
        ValueError: as `write_embeddings`, or if a part does not have the expected rows.
        OSError: if writing fails, or the first process does not see a part.
    """
    path = Path(path)
    part = _part(path, processes.index)
    if processes.index == 0:  # what killed processes left
        for pattern in (f".{path.name}.part-", f"..{path.name}.part-"):
            processes.remove(path.with_name(f"{glob.escape(pattern)}*"))
        remove_temporary(path.parent, path.name)
    processes.meet(f"{path.name}: before its parts")
    sizes: list[int] = []
    try:
        own = share_of(items, window, processes, sizes)
        write_embeddings(part, encode(own), dim=dim, format="laser", overwrite=True)
        if processes.index > 0:
            processes.send(part)
        processes.meet(f"{path.name}: its parts")
        if processes.index == 0:
            for index in range(1, processes.count):
                processes.receive(_part(path, index))
            chunks = _joined(path, sizes, processes.count, dim)
            file = {"format": format, "overwrite": overwrite, "quantizer": quantizer}
            write_embeddings(path, chunks, dim=dim, **file)
        processes.meet(f"{path.name}: whole")
    finally:
        processes.remove(part.with_name(glob.escape(part.name)))
    return sum(sizes)


def _part(path: Path, index: int) -> Path:
    return path.with_name(f".{path.name}.part-{index}")


def _joined(path: Path, sizes: list[int], count: int, dim: int) -> Iterator[np.ndarray]:
    """Yields window after window, each from the part that has it."""
    parts = []
    for index in range(count):
        part, rows = _part(path, index), sum(sizes[index::count])
        try:
            parts.append(read_embeddings(part, dim=dim))
        except FileNotFoundError as error:
            raise OSError(
                f"{part}: process 0 does not see this part of process {index}; choose an --output "
                "on a shared file system"
            ) from error
        if len(parts[-1]) != rows:
            raise ValueError(
                f"{part}: must have {rows} rows; found {len(parts[-1])}; give all processes the "
                "same input"
            )
    taken = [0] * count
    for number, size in enumerate(sizes):
        owner = number % count
        yield parts[owner][taken[owner] : taken[owner] + size]
        taken[owner] += size
