"""Any encoder by its name or path."""

import os

from xling_jax.encode.encoder import Encoder
from xling_jax.encode.model_directory import find_model_directory


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
    encoder = Encoder.from_directory(find_model_directory(name_or_path), dtype, backend)
    return encoder if truncate_dim is None else encoder.truncated(truncate_dim)
