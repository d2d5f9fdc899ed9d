"""Cross-lingual sentence and document embeddings in JAX.

    import xling_jax
    encoder = xling_jax.load("runs/quickstart")
    vectors = encoder.encode(["Good morning.", "Guten Morgen."])
    pairs = xling_jax.mine(vectors_a, vectors_b)

Importing the package starts no device, configures no logger and imports neither JAX nor
TensorFlow; a function imports what it needs when it is called.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from xling_jax.align.mining import MinedPairs
    from xling_jax.encode.encoder import Encoder

__version__ = "0.1.0"
__all__ = ["__version__", "load", "mine"]


def load(name_or_path: str | os.PathLike[str]) -> Encoder:
    """Loads a trained encoder.

    Args:
        name_or_path: a model directory, a workdir of `xling train` (its `encoder/` is taken), or
            the name of a shipped encoder.

    Returns:
        An `Encoder`, on all local devices.

    Raises:
        ValueError: if there is no model of that name, or its files are broken; the message lists
            what is possible or names the file and what is wrong with it.
    """
    from xling_jax.encode.encoder import Encoder
    from xling_jax.encode.model_directory import find_model_directory

    return Encoder.from_directory(find_model_directory(name_or_path))


def mine(
    vectors_a: np.ndarray,
    vectors_b: np.ndarray,
    k: int = 4,
    margin: str = "ratio",
    retrieval: str = "max",
    threshold: float | None = None,
    *,
    min_cosine: float | None = None,
    memory_mb: float = 256,
    backend: str = "numpy",
) -> MinedPairs:
    """Mines pairs of rows that are likely translations, by margins of cosines.

    Args:
        vectors_a: [n, dim] embeddings of any origin, one row a distinct text; need not be
            normalized; may be memory-mapped.
        vectors_b: [m, dim], the same.
        k: size of the neighborhoods, and candidates of each row.
        margin: "ratio", "distance" or "absolute".
        retrieval: "max", one to one, greedily; "intersect", the pairs that are best both ways;
            "fwd", every row of a with its best; "bwd", every row of b with its best.
        threshold: pairs that score this or less are left out; None keeps all.
        min_cosine: pairs with a lower cosine are no candidates.
        memory_mb: bound on the working memory, in MiB, beyond inputs and outputs.
        backend: "numpy", "jax", "faiss", or "auto": JAX where it has an accelerator.

    Returns:
        The pairs, best first: arrays `source` (rows of a), `target` (rows of b) and `scores`;
        iterating gives (score, source, target).

    Raises:
        ValueError: if shapes disagree, a value is not finite, or an argument is out of range.
    """
    from xling_jax.align import mining

    return mining.mine(
        vectors_a,
        vectors_b,
        k=k,
        margin=margin,
        retrieval=retrieval,
        threshold=threshold,
        min_cosine=min_cosine,
        memory_mb=memory_mb,
        backend=backend,
    )
