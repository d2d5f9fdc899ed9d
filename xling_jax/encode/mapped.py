"""Vectors of large collections, in unnamed files instead of memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xling_jax.files.progress import track
from xling_jax.files.whole import naming_errors

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder


def encode_mapped(
    encoder: Encoder, texts: Iterable[str], total: int, directory: Path, name: str = ""
) -> np.ndarray:
    """Encodes texts into an unnamed file, deleted with the array: [n, dim] float32, mapped.

    LAWDR reads sentence vectors more than once, and those of a large collection exceed memory, so
    `directory` must not be on a file system in memory. `total` is an upper limit for the progress.
    """
    with naming_errors(directory), tempfile.TemporaryFile(dir=directory) as file:
        rows = 0
        chunks = encoder.encode_stream(iter(texts))
        for chunk in track(chunks, f"embed {name}".strip(), total, "sentence", len):
            file.write(np.ascontiguousarray(chunk, dtype="<f4").data)
            rows += len(chunk)
        file.flush()
        if not rows:  # an empty file cannot be mapped
            return np.empty((0, encoder.dim), np.float32)
        return np.memmap(file, dtype="<f4", mode="r", shape=(rows, encoder.dim))
