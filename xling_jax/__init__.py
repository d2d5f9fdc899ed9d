"""Cross-lingual sentence and document embeddings in JAX.

    import xling_jax
    encoder = xling_jax.load("mini")
    vectors = encoder.encode(["Good morning.", "Guten Morgen."])
    pairs = xling_jax.mine(vectors_a, vectors_b)
    groups = xling_jax.align_sentences(sentences_a, sentences_b)
    hits = xling_jax.search("Guten Morgen.", sentences)
    scores, rows = xling_jax.top_k(queries, vectors, k=4)

Importing the package starts no device, configures no logger and imports neither JAX nor
TensorFlow; a function imports what it needs when it is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from xling_jax.version import __version__

if TYPE_CHECKING:
    from xling_jax.align.knn import top_k
    from xling_jax.align.mining import mine
    from xling_jax.encode.load import load
    from xling_jax.encode.search import search
    from xling_jax.encode.sentence_alignment import align_sentences

__all__ = ["__version__", "align_sentences", "load", "mine", "search", "top_k"]

# Functions that are imported when they are first asked for, and where they are.
_FUNCTIONS = {
    "align_sentences": "xling_jax.encode.sentence_alignment",
    "load": "xling_jax.encode.load",
    "mine": "xling_jax.align.mining",
    "search": "xling_jax.encode.search",
    "top_k": "xling_jax.align.knn",
}


def __getattr__(name: str) -> Any:
    """One of `_FUNCTIONS`."""
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(_FUNCTIONS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Names for tab completion, with those that are not imported yet."""
    return sorted({*globals(), *_FUNCTIONS})
