"""Nearest neighbors of a few sentences in every language, to see what an encoder has learnt."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from xling_jax.align import knn
from xling_jax.encode.unique import Encode, encode_unique


class Neighbor(NamedTuple):
    """A text found for a query: both by index, and the cosine between them."""

    query: int
    language: str
    index: int
    text: str
    cosine: float


def nearest_sentences(
    encode: Encode, queries: Sequence[str], texts: Mapping[str, Sequence[str]], k: int = 1
) -> list[Neighbor]:
    """Finds the k nearest texts of every language for each query.

    Args:
        encode: texts to [n, dim] embeddings; called once, with each text once.
        queries: the sentences to look up.
        texts: for each language the texts to search.
        k: how many of each language.
    """
    vectors, ids = encode_unique(encode, [queries, *texts.values()])
    unit = knn.normalize(vectors)
    found = {
        language: knn.top_k(unit[ids(queries)], unit[ids(candidates)], k)
        for language, candidates in texts.items()
    }
    return [
        Neighbor(query, language, int(index), texts[language][index], float(score))
        for query in range(len(queries))
        for language, (scores, indices) in found.items()
        for score, index in zip(scores[query], indices[query])
    ]


def format_neighbors(
    queries: Sequence[str], neighbors: Sequence[Neighbor], *, width: int = 100
) -> str:
    """Returns neighbors as a plain text table, one block a query, in lines of at most `width`."""
    margin = max((len(neighbor.language) for neighbor in neighbors), default=0)
    blocks = []
    for index, query in enumerate(queries):
        lines = [_cut(query, width)]
        for neighbor in neighbors:
            if neighbor.query == index:
                start = f"  {neighbor.language:<{margin}}  {neighbor.cosine:5.2f}  "
                lines.append(start + _cut(neighbor.text, width - len(start)))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)].rstrip() + "…"
