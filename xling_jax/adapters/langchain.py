"""An encoder as `Embeddings` of LangChain.

from langchain_core.vectorstores import InMemoryVectorStore
from xling_jax.adapters.langchain import XlingEmbeddings

store = InMemoryVectorStore(XlingEmbeddings("mini"))
"""

from __future__ import annotations

import os

from langchain_core.embeddings import Embeddings

import xling_jax


class XlingEmbeddings(Embeddings):
    """Vectors for LangChain; `model` and `truncate_dim` as for `xling_jax.load`."""

    def __init__(self, model: str | os.PathLike[str] = "mini", *, truncate_dim: int | None = None):
        self.encoder = xling_jax.load(model, truncate_dim=truncate_dim)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector per text."""
        return self.encoder.encode_document(texts, normalize=True).tolist()

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query."""
        return self.encoder.encode_query(text, normalize=True).tolist()
