"""Embeddings of collections larger than memory: written to a temporary file and mapped from it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xling_jax.documents.records import Documents, read_documents
from xling_jax.files.progress import track
from xling_jax.files.whole import naming_errors

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder


def encode_mapped(
    encoder: Encoder, texts: Iterable[str], total: int, directory: Path, name: str = ""
) -> np.ndarray:
    """Encodes texts into an unnamed file, which is deleted with the array.

    LAWDR reads sentence vectors more than once, and those of a large collection exceed memory.

    Args:
        encoder: encodes the texts.
        texts: read in a thread, one window ahead.
        total: upper limit of their number, for the progress.
        directory: for the file, not on a file system in memory.
        name: of the collection, for the progress.

    Returns:
        [n, dim] float32, mapped from the file.

    Raises:
        OSError: if writing fails, as on a full disk.
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


def encode_collection(
    encoder: Encoder, path: str, side: Documents, mode: str, splitter: str, directory: Path
) -> np.ndarray:
    """Encodes the documents of one side of a file, reading it again; see also `encode_mapped`.

    Args:
        encoder: encodes the texts.
        path: the file that `side` was read from.
        side: its documents; `lengths` becomes the number of texts encoded for each.
        mode: what is encoded at once, see `documents.MODES`.
        splitter: see `read_documents`.
        directory: see `encode_mapped`.

    Returns:
        [texts, dim] float32; none for a document without text.
    """
    lengths: list[int] = []

    def texts() -> Iterator[str]:
        read = read_documents(path, splitter=splitter)
        documents = filter(None, (d.sentences for d in read if d.language == side.language))
        for inputs in encoder.document_inputs(documents, mode):
            lengths.append(len(inputs))
            yield from inputs

    vectors = encode_mapped(encoder, texts(), sum(side.lengths), directory, side.name)
    filled = iter(lengths)
    side.lengths = [next(filled) if length else 0 for length in side.lengths]
    return vectors
