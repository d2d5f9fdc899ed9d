"""Token windows to vectors of static encoders: sums of table rows on the CPU, without JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from xling_jax.encode.batch_plan import BatchShapes
from xling_jax.encode.texts import TokenWindow
from xling_jax.models.static_form import RowFinder, StaticForm, unpacked

# Below this a product with a sparse matrix costs more to set up than to compute.
_FEW_SENTENCES = 8


class StaticBackend:
    """Computes what `models.static.StaticEncoder` does, up to rounding.

    Args:
        form: sizes and features.
        stored: its parameters as in its model directory.

    Attributes: see `backends.Backend`.
    """

    name = "numpy"
    dtype = "float32"
    num_devices = 1
    has_single_row = False
    batch_tokens = 32768
    window_sentences = 2048  # more would leave the caches

    def __init__(self, form: StaticForm, stored: Mapping[str, Any]):
        self.form, self.params = form, stored
        if form.storage == "int4":  # unpacked row by row: the whole table would be twice as large
            self._table, self._factors = stored["rows"], stored["factor"]
            # Two numbers for each byte, looked up as one item: several times as fast as shifting.
            pairs = unpacked(np.arange(256, dtype=np.uint8)[:, None]).astype(np.float32)
            self._pairs = pairs.view(np.complex64).ravel()
        else:
            self._table, self._factors = form.tables(stored)
        self._finder = RowFinder(form, stored.get("feature_keys"))

    def with_params(self, params: Mapping[str, Any]) -> StaticBackend:
        """Returns the same with other parameters, float32."""
        return StaticBackend(dataclasses.replace(self.form, storage="float32"), params)

    def run_window(self, window: TokenWindow, shapes: BatchShapes, embeddings: np.ndarray) -> int:
        """Fills [sentences, dim] in input order; returns the number of tokens, none is padding."""
        self._sum(window, embeddings)
        if self.form.normalize:
            norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
            embeddings /= np.maximum(norms, 1e-12)
        return len(window.tokens)

    def compile(self, shapes: Sequence[tuple[int, int]]) -> None:
        """Nothing is compiled."""

    def _sum(self, window: TokenWindow, embeddings: np.ndarray) -> None:
        tokens, offsets = window
        if len(embeddings) <= _FEW_SENTENCES:
            for embedding, start, end in zip(embeddings, offsets[:-1], offsets[1:]):
                rows = self._finder.sentence(tokens[start:end])
                picked = self._floats(self._table.take(rows, axis=0))
                np.dot(
                    self._factors.take(rows) * np.float32(1 / max(end - start, 1)),
                    picked,
                    embedding,
                )
            return
        # Imported here: a single sentence is encoded before SciPy is imported.
        from scipy.sparse import csr_array

        rows, ends = self._finder.window(tokens, offsets)
        shares = 1 / np.maximum(np.diff(offsets), 1).astype(np.float32)
        factors = self._factors[rows] * np.repeat(shares, np.diff(ends))
        table = self._table
        if table.dtype != np.float32:
            is_used = np.zeros(len(table), bool)
            is_used[rows] = True
            used = np.flatnonzero(is_used)
            places = np.empty(len(table), np.int32)
            places[used] = np.arange(len(used), dtype=np.int32)
            rows, table = places[rows], table.take(used, axis=0)
        if self.form.storage == "int4":
            table = _halves(table)
        table = table.astype(np.float32, copy=False)
        sums = csr_array((factors, rows, ends), (len(embeddings), len(table))) @ table
        if self.form.storage == "int4":
            embeddings[:, ::2], embeddings[:, 1::2] = np.split(sums, 2, axis=1)
        else:
            embeddings[:] = sums

    def _floats(self, rows: np.ndarray) -> np.ndarray:
        """A few rows of the table, as stored, in [rows, width] float32."""
        if self.form.storage == "int4":
            return self._pairs.take(rows).view(np.float32)
        return rows.astype(np.float32, copy=False)


def _halves(packed: np.ndarray) -> np.ndarray:
    """Rows in 4 bits, [rows, width / 2] uint8, as float32 with the elements of even place first.

    Apart, they are unpacked in a third of the time, which for many sentences is much of the whole.
    """
    count, width = packed.shape
    floats = np.empty((count, 2, width), np.float32)
    for place, numbers in enumerate((packed & 15, packed >> 4)):
        numbers -= 8
        floats[:, place] = numbers.view(np.int8)
    return floats.reshape(count, 2 * width)


def principal_axes(vectors: Iterable[np.ndarray]) -> np.ndarray | None:
    """The principal axes of vectors, for `StaticForm.rotated`.

    Args:
        vectors: [any, dim] unit vectors.

    Returns:
        [dim, dim] float32: the orthonormal eigenvectors of the mean of u uᵀ, in columns, that of
        the largest eigenvalue first. The mean vector is not subtracted, since inner products are to
        be preserved. None if all vectors are zero.
    """
    moments = sum(part.T.astype(np.float64) @ part for part in vectors)
    if not np.any(moments):
        return None
    axes = np.linalg.eigh(moments)[1][:, ::-1]
    # Either sign is right; with this one the same text gives the same vectors everywhere.
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)
    return (axes * np.sign(largest)).astype(np.float32)
