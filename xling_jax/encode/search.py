"""The nearest of some texts in meaning; `xling search` and `serve.corpus` do it for files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from xling_jax.align import knn
from xling_jax.text.splitting import check_texts

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder


class Hit(NamedTuple):
    """A text that was found: its cosine with the query, its position from 0, and itself."""

    score: float
    position: int
    text: str


def search(
    queries: str | Iterable[str],
    texts: Iterable[str],
    encoder: Encoder | str | os.PathLike[str] = "mini",
    k: int = 10,
) -> list[Hit] | list[list[Hit]]:
    """Finds the texts nearest in meaning to a query, in any of the encoder's languages.

        for score, position, text in xling_jax.search("Wo ist der Bahnhof?", lines):
            print(score, text)

    The texts are encoded in each call. To search the same ones again, keep their vectors:
    `top_k(encoder.encode_query(queries, normalize=True), vectors, k)`.

    `encoder` is an `Encoder`, or what `load` takes. Returns for one query its hits, best first, at
    most k; for several, a list of hits for each.
    """
    if not hasattr(encoder, "encode_query"):
        from xling_jax.encode.load import load

        encoder = load(encoder)
    texts = check_texts(texts, "texts")
    if not texts:
        raise ValueError("texts must hold at least one text; got none")
    is_single = isinstance(queries, str)
    asked = encoder.encode_query([queries] if is_single else queries, normalize=True)
    found = knn.top_k(asked, encoder.encode_document(texts, normalize=True), k)
    hits = [
        [Hit(score, position, texts[position]) for score, position in zip(*both, strict=True)]
        for both in zip(*(each.tolist() for each in found), strict=True)
    ]
    return hits[0] if is_single else hits
