"""An encoder as `BaseEmbedding` of LlamaIndex.

from llama_index.core import Settings
from xling_jax.adapters.llama_index import XlingEmbedding

Settings.embed_model = XlingEmbedding("mini")
"""

from __future__ import annotations

from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr

import xling_jax


class XlingEmbedding(BaseEmbedding):
    """Vectors for LlamaIndex; `model_name` and `truncate_dim` as for `xling_jax.load`."""

    truncate_dim: int | None = Field(default=None, description="keep only the first dimensions")
    _encoder: Any = PrivateAttr()

    def __init__(self, model_name: str = "mini", **options: Any):
        options.setdefault("embed_batch_size", 2048)
        super().__init__(model_name=model_name, **options)
        self._encoder = xling_jax.load(model_name, truncate_dim=self.truncate_dim)

    @classmethod
    def class_name(cls) -> str:
        """Its name in stored settings."""
        return "XlingEmbedding"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._encoder.encode_document(texts, normalize=True).tolist()

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._encoder.encode_query(query, normalize=True).tolist()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)
