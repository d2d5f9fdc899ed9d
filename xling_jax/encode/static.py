"""Token windows to vectors of static encoders: sums of table rows on the CPU, without JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xling_jax.encode.batch_plan import BatchShapes
from xling_jax.encode.texts import TokenWindow
from xling_jax.models.static_form import StaticForm

# Below this a product with a sparse matrix costs more to set up than to compute.
_FEW_SENTENCES = 8


class StaticBackend:
    """Computes what `models.static.StaticEncoder` does, up to rounding.

    Args:
        form: sizes and features.
        params: its parameters by name, float32.

    Attributes: see `encoder.Backend`.
    """

    dtype = "float32"
    num_devices = 1
    batch_tokens = 32768
    window_sentences = 8192

    def __init__(self, form: StaticForm, params: Mapping[str, Any]):
        self.form, self.params = form, params
        tables = [np.asarray(params["embedding"]) * np.asarray(params["token_weight"])[:, None]]
        if form.features:
            weights = np.asarray(params["feature_weight"])[:, None]
            tables.append(np.asarray(params["feature_embedding"]) * weights)
        self._table = tables[0] if len(tables) == 1 else np.concatenate(tables)

    def with_params(self, params: Mapping[str, Any]) -> StaticBackend:
        """Returns the same with other parameters."""
        return StaticBackend(self.form, params)

    def run_window(self, window: TokenWindow, shapes: BatchShapes, embeddings: np.ndarray) -> int:
        """Fills [sentences, dim] in input order; returns the number of tokens, none is padding."""
        tokens, offsets = window
        if len(embeddings) <= _FEW_SENTENCES:
            for embedding, start, end in zip(embeddings, offsets[:-1], offsets[1:]):
                rows = self.form.sentence_rows(tokens[start:end])
                np.add.reduce(self._table[rows], 0, out=embedding)
                embedding *= np.float32(1 / max(end - start, 1))
            return len(tokens)
        # Imported here: a single sentence is encoded before SciPy is imported.
        from scipy.sparse import csr_array

        rows, ends = self.form.window_rows(tokens, offsets)
        shares = 1 / np.maximum(np.diff(offsets), 1).astype(np.float32)
        shape = (len(embeddings), len(self._table))
        sums = csr_array((np.repeat(shares, np.diff(ends)), rows, ends), shape)
        embeddings[:] = sums @ self._table
        return len(tokens)
