"""What computes the vectors of an encoder: NumPy on a CPU, JAX on accelerators.

Encoders without layers compute in NumPy everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from xling_jax.devices import has_accelerator
from xling_jax.encode.batch_plan import BatchShapes
from xling_jax.encode.model_directory import ModelSpec
from xling_jax.encode.static import StaticBackend
from xling_jax.encode.texts import TokenWindow
from xling_jax.files.cache import keep_compiled_programs
from xling_jax.models.dtypes import DTYPES
from xling_jax.registry import check_choice

BACKENDS = ("auto", "numpy", "jax")


class Backend(Protocol):
    """Computes the vectors of tokens.

    Attributes:
        name: `numpy` or `jax`.
        params: nested dict of the parameters, arrays of NumPy or JAX.
        dtype: name of the dtype of the computation.
        num_devices: devices that share a batch.
        has_single_row: whether one sentence takes less time than a few.
        batch_tokens: tokens in a full batch.
        window_sentences: most sentences to encode together.
    """

    name: str
    params: Any
    dtype: str
    num_devices: int
    has_single_row: bool
    batch_tokens: int
    window_sentences: int

    def run_window(self, window: TokenWindow, shapes: BatchShapes, embeddings: np.ndarray) -> int:
        """Fills [sentences, dim] in input order; returns the number of tokens with padding."""

    def compile(self, shapes: Sequence[tuple[int, int]]) -> None:
        """Compiles the programs of (rows, length), so that no later call has to."""

    def with_params(self, params: Any) -> Backend:
        """Returns the same with other parameters."""


def make_backend(spec: ModelSpec, dtype: str | None, backend: str, where: str) -> Backend:
    """Makes what runs a model.

    Args:
        spec: the model.
        dtype: see `xling_jax.load`.
        backend: see `xling_jax.load`.
        where: the model's path, for errors.

    Raises:
        ValueError: if the dtype or backend is unknown, or not for this model.
    """
    check_choice("backend", backend, BACKENDS)
    check_choice("dtype", dtype or "auto", ("auto", *DTYPES))
    if spec.static_form:
        if dtype not in (None, "auto", "float32"):
            raise ValueError(f"dtype={dtype!r}: static encoders compute in float32 only")
        if backend == "jax":
            raise ValueError("backend='jax': static encoders run in NumPy only")
        try:
            return StaticBackend(spec.static_form, spec.stored)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    dtype = dtype or spec.config["encoder"].get("dtype", "auto")
    if backend == "numpy":
        if spec.numpy_encoder is None:
            raise ValueError(
                f"backend='numpy': {where} holds a {spec.config['family']} encoder, which only JAX "
                "computes; use backend='jax'"
            )
        if dtype not in ("auto", "float32"):
            raise ValueError(
                f"dtype={dtype!r}: NumPy computes in float32 only; use backend='jax' or "
                "dtype='float32'"
            )
    elif backend == "auto" and spec.numpy_encoder is not None and dtype in ("auto", "float32"):
        backend = "jax" if has_accelerator() else "numpy"
    if backend == "numpy":
        from xling_jax.encode.numpy_batches import NumpyBatches

        return NumpyBatches(spec.numpy_encoder, spec.stored)
    from xling_jax.encode.device_batches import DeviceBatches, in_dtype

    keep_compiled_programs()
    return DeviceBatches.on_all_devices(
        in_dtype(spec.module, dtype), spec.params, spec.vocab.pad_id
    )
