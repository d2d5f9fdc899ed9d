"""The files of `xling align`: documents to sides, sentences to vectors on disk, stdin kept."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.files.progress import track
from xling_jax.files.whole import naming_errors

if TYPE_CHECKING:
    import numpy as np

    from xling_jax.documents.records import Documents


@contextlib.contextmanager
def readable_twice(path: str, directory: Path) -> Iterator[str]:
    """Gives a path that can be read more than once: of the file, or of a copy of stdin for -."""
    if path != "-":
        yield path
        return
    with naming_errors(directory), tempfile.NamedTemporaryFile(dir=directory) as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield copy.name


def read_inputs(
    path: str, side: Documents, encoder: Any, mode: str, splitter: str
) -> Iterator[str]:
    """Yields what the encoder reads at once of a side's documents.

    Args:
        path: the file.
        side: its documents; `lengths` becomes the numbers of their texts once all are read.
        encoder: has `document_inputs`.
        mode: see `Encoder.document_inputs`.
        splitter: see there.

    Yields:
        The texts, in order; none for a document without text.
    """
    from xling_jax.documents.records import read_documents

    read = read_documents(path, splitter=splitter)
    documents = filter(None, (d.sentences for d in read if d.language == side.language))
    if mode != "sentences":
        documents = encoder.document_inputs(documents, mode)
    lengths = []
    for texts in documents:
        lengths.append(len(texts))
        yield from texts
    filled = iter(lengths)
    side.lengths = [next(filled) if length else 0 for length in side.lengths]


def encode_to_disk(
    encoder: Any, sentences: Iterable[str], count: int, directory: Path, name: str
) -> np.ndarray:
    """Encodes sentences into a file without a name, which goes with the array.

    Sentence vectors of a large collection are far larger than memory, and LAWDR reads them more
    than once.

    Args:
        encoder: of `xling_jax.load`.
        sentences: read in a thread, a window ahead.
        count: how many there are at most, for the progress.
        directory: to make the file in; a file in a file system in memory would be no gain.
        name: for the progress.

    Returns:
        [n, dim] float32, mapped from the file.

    Raises:
        OSError: if writing fails, as on a full disk.
    """
    import numpy as np

    with naming_errors(directory), tempfile.TemporaryFile(dir=directory) as file:
        rows, chunks = 0, encoder.encode_stream(sentences)
        for chunk in track(chunks, f"embed {name}", count, "sentence", len):
            file.write(np.ascontiguousarray(chunk, dtype="<f4").data)
            rows += len(chunk)
        file.flush()
        if not rows:  # An empty file cannot be mapped.
            return np.empty((0, encoder.dim), np.float32)
        return np.memmap(file, dtype="<f4", mode="r", shape=(rows, encoder.dim))


def read_vectors(path: str, side: Documents, dim: int | None) -> np.ndarray:
    """Maps the ready sentence vectors of a side.

    Raises:
        ValueError: if there are more or fewer than the side has sentences.
    """
    from xling_jax.files.embeddings import read_embeddings

    vectors = read_embeddings(path, dim=dim)
    count = sum(side.lengths)
    if len(vectors) != count:
        raise ValueError(
            f"{path}: must have one row for each of the {count} sentences of {side.name} that are "
            f"not blank; found {len(vectors)}"
        )
    return vectors
