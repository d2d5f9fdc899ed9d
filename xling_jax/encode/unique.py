"""Each distinct text of several lists is encoded once."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from xling_jax.align.rows import as_embeddings, row_blocks

Encode = Callable[[list[str]], np.ndarray]


def encode_unique(
    encode: Encode, columns: Sequence[Sequence[str]]
) -> tuple[np.ndarray, Callable[[Sequence[str]], np.ndarray]]:
    """Encodes every distinct text of some lists once, in one call.

    Returns:
        Embeddings [distinct, dim], and a function from texts to their rows, [n] int64.

    Raises:
        ValueError: if `encode` returns another number of rows, no matrix, or a value that is not
            finite.
    """
    row_of = {text: row for row, text in enumerate(dict.fromkeys(itertools.chain(*columns)))}
    vectors = as_embeddings(encode(list(row_of)), "the result of encode")
    if len(vectors) != len(row_of):
        counts = f"{len(vectors)} rows for {len(row_of)} texts"
        raise ValueError(f"encode must return one row per text; got {counts}")
    for _ in row_blocks(vectors, "embeddings"):
        pass  # Reading checks that values are finite.
    return vectors, lambda texts: np.array([row_of[text] for text in texts], np.int64)
