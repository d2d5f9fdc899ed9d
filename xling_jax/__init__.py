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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xling_jax.align.mining import mine
    from xling_jax.encode.encoder import Encoder

__version__ = "0.2.0"
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


def __getattr__(name: str) -> Any:
    """`xling_jax.mine` is `align.mining.mine`, imported when it is first asked for."""
    if name == "mine":
        from xling_jax.align.mining import mine

        return mine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
