"""An encoder as embedders of Haystack: of documents before they are stored, and of queries.

from haystack import Document
from xling_jax.adapters.haystack import XlingDocumentEmbedder

documents = XlingDocumentEmbedder("mini").run([Document(content="Guten Morgen.")])["documents"]
"""

from __future__ import annotations

import dataclasses
from typing import Any

from haystack import Document, component

import xling_jax


class _Embedder:
    """Both embedders; `model` and `truncate_dim` as for `xling_jax.load`."""

    def __init__(self, model: str = "mini", truncate_dim: int | None = None):
        self.model, self.truncate_dim = model, truncate_dim
        self._encoder: Any = None

    def warm_up(self) -> None:
        """Loads the encoder."""
        if self._encoder is None:
            self._encoder = xling_jax.load(self.model, truncate_dim=self.truncate_dim)


@component
class XlingTextEmbedder(_Embedder):
    """The vector of a query."""

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, Any]:
        """Returns `embedding`."""
        self.warm_up()
        return {"embedding": self._encoder.encode_query(text, normalize=True).tolist()}


@component
class XlingDocumentEmbedder(_Embedder):
    """Documents with the vectors of their content."""

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Returns `documents`, copies with their `embedding`."""
        self.warm_up()
        texts = [document.content or "" for document in documents]
        vectors = self._encoder.encode_document(texts, normalize=True).tolist()
        embedded = zip(documents, vectors, strict=True)
        return {"documents": [dataclasses.replace(doc, embedding=row) for doc, row in embedded]}
