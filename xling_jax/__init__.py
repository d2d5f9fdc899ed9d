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
import os
from typing import TYPE_CHECKING, Any

from xling_jax.version import __version__

if TYPE_CHECKING:
    from xling_jax.align.knn import top_k
    from xling_jax.align.mining import mine
    from xling_jax.encode.encoder import Encoder
    from xling_jax.encode.search import search
    from xling_jax.encode.sentence_alignment import align_sentences

__all__ = ["__version__", "align_sentences", "load", "mine", "search", "top_k"]

# Functions that are imported when they are first asked for, and where they are.
_FUNCTIONS = {
    "align_sentences": "xling_jax.encode.sentence_alignment",
    "mine": "xling_jax.align.mining",
    "search": "xling_jax.encode.search",
    "top_k": "xling_jax.align.knn",
}


def load(
    name_or_path: str | os.PathLike[str],
    dtype: str | None = None,
    *,
    backend: str = "auto",
    truncate_dim: int | None = None,
) -> Encoder:
    """Loads a trained encoder.

    Args:
        name_or_path: a model directory, a workdir of `xling train` (its `encoder/` is taken), the
            name of a packaged encoder, or a published encoder: a directory of Hugging Face,
            sentence-transformers, model2vec or LASER, or `hf:ORG/NAME` of the hub. The last two
            are converted once, into the user's cache.
        dtype: in which the encoder computes: `float32`, `bfloat16` or `float16`. None for float32
            on a CPU and on a GPU or TPU the fastest that it has units for. Vectors are float32;
            those of small encoders differ by less than 4e-5 in cosine (bfloat16) or 6e-7 (float16)
            from ones computed in float32, see the performance page of the documentation.
        backend: what computes the vectors: `numpy`, on the CPU, in float32, without compiling
            anything, for all families but `rotary`; or `jax`, on all local devices, for all but
            `static`. `auto` is JAX only where it has a GPU or TPU, for dtypes other than float32,
            and for `rotary` and families of your own.
        truncate_dim: keep only the first dimensions of its vectors, see `Encoder.truncated`.

    Returns:
        The encoder.

    Raises:
        ValueError: if there is no model of that name, its files are broken, dtype or backend are
            unknown or not for its family, or the vectors have fewer dimensions; the message lists
            what is possible or names the file and what is wrong with it.
    """
    from xling_jax.encode.encoder import Encoder
    from xling_jax.encode.model_directory import find_model_directory

    encoder = Encoder.from_directory(find_model_directory(name_or_path), dtype, backend)
    return encoder if truncate_dim is None else encoder.truncated(truncate_dim)


def __getattr__(name: str) -> Any:
    """One of `_FUNCTIONS`."""
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(_FUNCTIONS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Names for tab completion, with those that are not imported yet."""
    return sorted({*globals(), *_FUNCTIONS})
