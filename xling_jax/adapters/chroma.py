"""An encoder as embedding function of Chroma, which stored collections name.

from xling_jax.adapters.chroma import XlingEmbeddingFunction

collection = client.create_collection("texts", embedding_function=XlingEmbeddingFunction("mini"))
"""

from __future__ import annotations

from typing import Any

import numpy as np
from chromadb.api.types import Documents, EmbeddingFunction, Space
from chromadb.utils.embedding_functions import register_embedding_function

import xling_jax


@register_embedding_function
class XlingEmbeddingFunction(EmbeddingFunction[Documents]):
    """Vectors for Chroma; `model` and `truncate_dim` as for `xling_jax.load`."""

    def __init__(self, model: str = "mini", truncate_dim: int | None = None):
        self._config = {"model": model, "truncate_dim": truncate_dim}
        self._encoder = xling_jax.load(model, truncate_dim=truncate_dim)

    def __call__(self, input: Documents) -> list[np.ndarray]:
        """One vector per document."""
        return [*self._encoder.encode_document(input, normalize=True)]

    def embed_query(self, input: Documents) -> list[np.ndarray]:
        """One vector per query."""
        return [*self._encoder.encode_query(input, normalize=True)]

    @staticmethod
    def name() -> str:
        """Its name in stored collections."""
        return "xling"

    def get_config(self) -> dict[str, Any]:
        """What `build_from_config` needs."""
        return self._config

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> XlingEmbeddingFunction:
        """The embedding function of a stored collection."""
        return XlingEmbeddingFunction(**config)

    def default_space(self) -> Space:
        """Cosine."""
        return "cosine"
