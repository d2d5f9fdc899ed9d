"""Token windows to vectors of static encoders: sums of table rows on the CPU, without JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from xling_jax.encode.batch_plan import BatchShapes
from xling_jax.encode.texts import TokenWindow
from xling_jax.models.row_storage import Table, unpacked
from xling_jax.models.static_form import FeatureFinder, StaticForm

# Below this a product with a sparse matrix costs more to set up than to compute.
_FEW_SENTENCES = 8
# The numbers that a byte stands for are looked up as one item: several times as fast as shifting.
_NUMBERS_OF_BYTES = (
    unpacked(np.arange(256, dtype=np.uint8)[:, None]).astype(np.float32).view(np.complex64).ravel()
)


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
        # Bytes are unpacked row by row: whole tables would be two to sixteen times as large.
        self._tables = [_Sums(table) for table in form.tables(stored)]
        self._finder = FeatureFinder(form, stored["feature_keys"]) if form.features else None

    def with_params(self, params: Mapping[str, Any]) -> StaticBackend:
        """Returns the same with other parameters, float32 or stored as these."""
        if params.keys() == self.form.parameters.keys():
            return StaticBackend(self.form, params)
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
        of_tokens, *of_features = self._tables
        if len(embeddings) <= _FEW_SENTENCES:
            for embedding, (start, end) in zip(embeddings, pairwise(offsets.tolist())):
                ids, share = tokens[start:end], np.float32(1 / max(end - start, 1))
                embedding[:] = of_tokens.sum(ids, share)
                for table in of_features:
                    embedding[: table.dims] += table.sum(self._finder.sentence(ids), share)
            return
        shares = 1 / np.maximum(np.diff(offsets), 1).astype(np.float32)
        embeddings[:] = 0
        of_tokens.add_sums(tokens, offsets, shares, embeddings)
        for table in of_features:
            table.add_sums(*self._finder.window(tokens, offsets), shares, embeddings)


class _Sums:
    """Sums of the rows of a table, each times its factor.

    Attributes:
        dims: elements of a sum.
    """

    def __init__(self, table: Table):
        self._rows, self._factors, self._is_packed = table.rows, table.factors, table.is_packed
        self._offsets = self._items = None
        self.dims = table.rows.shape[1]
        if self._is_packed:
            self._items = _NUMBERS_OF_BYTES
            self.dims *= 2
        elif table.codebooks is not None:
            groups, codes, numbers = table.codebooks.shape
            self._offsets = np.arange(0, groups * codes, codes)
            self._items = np.ascontiguousarray(table.codebooks).view(np.complex128).ravel()
            self.dims = groups * numbers

    def sum(self, rows: np.ndarray, share: np.float32) -> np.ndarray:
        """Those of one sentence: [rows] int32 -> [dims] float32, times `share`."""
        picked = self._rows.take(rows, axis=0)
        if self._items is not None:
            picked = self._looked_up(picked)
        return (self._factors.take(rows) * share) @ picked.astype(np.float32, copy=False)

    def _looked_up(self, rows: np.ndarray) -> np.ndarray:
        """Bytes [rows, any] uint8 as the numbers that they stand for, [rows, dims] float32."""
        places = rows if self._offsets is None else rows + self._offsets
        return self._items.take(places).view(np.float32)

    def add_sums(
        self, rows: np.ndarray, ends: np.ndarray, shares: np.ndarray, vectors: np.ndarray
    ) -> None:
        """Adds those of many sentences to their vectors.

        Args:
            rows: [sum of counts] int32.
            ends: [sentences + 1], where the rows of each sentence begin and those of the last end.
            shares: [sentences] float32, factor of each sum.
            vectors: [sentences, at least dims] float32.
        """
        # Imported here: a single sentence is encoded before SciPy is imported.
        from scipy.sparse import csr_array

        factors = self._factors[rows] * np.repeat(shares, np.diff(ends))
        table = self._rows
        if table.dtype != np.float32:
            is_used = np.zeros(len(table), bool)
            is_used[rows] = True
            used = np.flatnonzero(is_used)
            places = np.empty(len(table), np.int32)
            places[used] = np.arange(len(used), dtype=np.int32)
            rows, table = places[rows], table.take(used, axis=0)
        if self._is_packed:
            table = _halves(table)
        elif self._items is not None:
            table = self._looked_up(table)
        table = table.astype(np.float32, copy=False)
        sums = csr_array((factors, rows, ends), (len(shares), len(table))) @ table
        if self._is_packed:
            even, odd = np.split(sums, 2, axis=1)
            vectors[:, : self.dims : 2] += even
            vectors[:, 1 : self.dims : 2] += odd
        else:
            vectors[:, : self.dims] += sums


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
    """The principal axes of vectors, around zero.

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
    axes = np.ascontiguousarray(np.linalg.eigh(moments)[1][:, ::-1])
    # Either sign is right; with this one the same text gives the same vectors everywhere.
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)
    return (axes * np.sign(largest)).astype(np.float32)
