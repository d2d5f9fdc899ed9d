"""Teachers: the vectors that a student is to learn, from an encoder or from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from xling_jax.align.rows import l2_normalize
from xling_jax.encode.encoder import Encoder
from xling_jax.encode.model_directory import find_model_directory, load_model
from xling_jax.encode.texts import text_windows
from xling_jax.files.embeddings import read_embeddings
from xling_jax.files.hashes import hash_file
from xling_jax.files.lines import iterate_lines
from xling_jax.options import OptionError
from xling_jax.text.vocab import text_hash

_WINDOW = 8192


class Teacher:
    """Gives texts their unit vectors, of size `dim` and with a `fingerprint`.

    `name` is a model directory, workdir or shipped name; or, with `texts`, a file of one text per
    line, an `.npy` of their vectors. OptionError if there is none, ValueError if it is damaged.
    """

    def __init__(self, name: str, texts: str = ""):
        if texts:
            self._source = _StoredVectors(_existing(texts), _existing(name))
        else:
            self._source = Encoder.from_directory(find_model_directory(name))
        self.fingerprint, self.dim = self._source.fingerprint, self._source.dim

    def encode_stream(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Yields unit vectors of texts, [any, dim] float32; ValueError if a text has none."""
        return self._source.encode_stream(texts, normalize=True)

    def principal_axes(self, texts: Iterable[str]) -> np.ndarray:
        """See `principal_axes`."""
        return principal_axes(self.encode_stream(texts))


def principal_axes(vectors: Iterable[np.ndarray]) -> np.ndarray:
    """The principal axes of unit vectors [any, dim], around zero; ValueError if all are zero.

    [dim, dim] float32: the eigenvectors of the mean of u uᵀ, in columns, that of the largest
    eigenvalue first. The mean is not subtracted, since inner products are to be preserved.
    """
    moments = sum(part.T.astype(np.float64) @ part for part in vectors)
    if not np.any(moments):
        raise ValueError("the teacher's vectors of the training text are all zero")
    axes = np.ascontiguousarray(np.linalg.eigh(moments)[1][:, ::-1])
    # Either sign is right; with this one the same text gives the same vectors everywhere.
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)
    return (axes * np.sign(largest)).astype(np.float32)


def teacher_dim(name: str, texts: str = "") -> int:
    """The size of the vectors of `Teacher(name, texts)`."""
    if texts:
        _existing(texts)
        return read_embeddings(_existing(name)).shape[1]
    return load_model(find_model_directory(name)).output_dim


def _existing(path: str) -> str:
    if not Path(path).is_file():
        raise OptionError(f"{path}: no such file")
    return path


class _StoredVectors:
    """Vectors on disk, looked up by their text as `normalize_text` leaves it; the first counts."""

    def __init__(self, texts: str, vectors: str):
        self._texts, self._vectors = texts, read_embeddings(vectors)
        hashes = np.fromiter(map(text_hash, iterate_lines(texts)), np.uint64)
        if len(hashes) != len(self._vectors):
            raise ValueError(
                f"{texts}: must have a line for each of the {len(self._vectors)} vectors in "
                f"{vectors}; found {len(hashes)}"
            )
        self._hashes, self._rows = np.unique(hashes, return_index=True)
        self.dim = self._vectors.shape[1]
        self.fingerprint = f"{hash_file(texts)}-{hash_file(vectors)}"

    def encode_stream(self, texts: Iterable[str], normalize: bool) -> Iterator[np.ndarray]:
        for window in text_windows(texts, _WINDOW):
            wanted = np.fromiter(map(text_hash, window), np.uint64, len(window))
            found = np.minimum(np.searchsorted(self._hashes, wanted), len(self._hashes) - 1)
            missing = np.flatnonzero(self._hashes[found] != wanted)
            if len(missing):
                raise ValueError(
                    f"{self._texts}: has no line {window[missing[0]]!r:.100}, which is in the "
                    "training text; embed all of it, or name a model as "
                    "objective.distillation.teacher"
                )
            vectors = self._vectors[self._rows[found]]
            yield l2_normalize(vectors) if normalize else vectors
