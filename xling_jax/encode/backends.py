"""Backends, which compute the vectors of an encoder: NumPy on a CPU, JAX on accelerators.

With NumPy nothing is compiled, and no batch has padding. Of encoders with layers, many sentences
are cut into batches of similar length, each computed by one thread, or by two where an LSTM has two
directions; a few form one batch, whose matrix products use all cores.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from xling_jax.devices import DTYPES, has_accelerator
from xling_jax.encode.model_directory import ModelSpec
from xling_jax.encode.texts import TokenWindow
from xling_jax.files.threads import num_cores, threads_for
from xling_jax.files.untrusted import named
from xling_jax.models.numpy_encoders import NumpyEncoder
from xling_jax.models.numpy_layers import Memory, Packed, positions_within
from xling_jax.models.numpy_static import FeatureFinder, NumpyStatic
from xling_jax.models.row_storage import RowSums
from xling_jax.options import OptionError
from xling_jax.registry import check_choice

BACKENDS = ("auto", "numpy", "jax")

# Below this a product with a sparse matrix costs more to set up than to compute.
_FEW_SENTENCES = 8
# With fewer tokens for each core, one batch on all cores is faster.
_FEW_TOKENS = 64


class Backend(Protocol):
    """Computes the vectors of tokens, of `window_sentences` together at most.

    `num_devices` share a batch; `params` is a nested dict of NumPy or JAX arrays.
    """

    name: str = "numpy"
    dtype: str = "float32"
    num_devices: int = 1
    params: Any
    window_sentences: int

    def run_window(
        self,
        window: TokenWindow,
        embeddings: np.ndarray,
        max_length_tokens: int,
        batch_size: int | None = None,
    ) -> int:
        """Fills `embeddings` [sentences, dim] in input order; returns the tokens, with padding.

        No sentence is longer than `max_length_tokens`; a batch has at most `batch_size` sentences,
        by default as many as suit the device.
        """

    def with_params(self, params: Any) -> Backend:
        """Returns the same with other parameters, float32 or stored as these."""


def make_backend(spec: ModelSpec, dtype: str | None, backend: str, where: str) -> Backend:
    """Makes what runs a model; `dtype` and `backend` as for `xling_jax.load`."""
    check_choice("backend", backend, BACKENDS)
    check_choice("dtype", dtype or "auto", ("auto", *DTYPES))
    if spec.static:
        if dtype not in (None, "auto", "float32"):
            raise OptionError(f"dtype={dtype!r}: static encoders compute in float32 only")
        if backend == "jax":
            raise OptionError("backend='jax': static encoders run in NumPy only")
        with named(where):
            return StaticBackend(spec.static, spec.stored)
    dtype = dtype or spec.config["encoder"].get("dtype", "auto")
    if backend == "numpy":
        if spec.encoder is None:
            raise ValueError(
                f"backend='numpy': {where} holds a {spec.config['family']} encoder, which only JAX "
                "computes; use backend='jax'"
            )
        if dtype not in ("auto", "float32"):
            raise ValueError(
                f"dtype={dtype!r}: NumPy computes in float32 only; use backend='jax' or "
                "dtype='float32'"
            )
    elif backend == "auto" and spec.encoder and dtype in ("auto", "float32"):
        backend = "jax" if has_accelerator() else "numpy"
    if backend == "numpy":
        return NumpyBackend(spec.encoder, spec.stored)
    from xling_jax.encode.jax_backend import JaxBackend, in_dtype
    from xling_jax.files.cache import keep_compiled_programs

    keep_compiled_programs()
    return JaxBackend.on_all_devices(in_dtype(spec.module, dtype), spec.params, spec.vocab.pad_id)


class StaticBackend(Backend):
    """Computes what `models.static.StaticEncoder` does, up to rounding; see `Backend`."""

    window_sentences = 2048  # more would leave the caches

    def __init__(self, encoder: NumpyStatic, stored: Mapping[str, Any]):
        self.encoder, self.params = encoder, stored
        # Bytes are unpacked row by row: whole tables would be two to sixteen times as large.
        self._tables = [RowSums(table) for table in encoder.tables(stored)]
        self._finder = None
        if encoder.features:
            self._finder = FeatureFinder(encoder, stored["feature_keys"])

    def with_params(self, params: Mapping[str, Any]) -> StaticBackend:
        """Returns the same with other parameters, float32 or stored as these."""
        if params.keys() == self.encoder.parameters.keys():
            return StaticBackend(self.encoder, params)
        return StaticBackend(dataclasses.replace(self.encoder, storage="float32"), params)

    def run_window(
        self,
        window: TokenWindow,
        embeddings: np.ndarray,
        max_length_tokens: int,
        batch_size: int | None = None,
    ) -> int:
        """See `Backend.run_window`; no token is padding."""
        self._sum(window, embeddings)
        if self.encoder.normalize:
            norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
            embeddings /= np.maximum(norms, 1e-12)
        return len(window.tokens)

    def _sum(self, window: TokenWindow, embeddings: np.ndarray) -> None:
        tokens, offsets = window
        of_tokens, *of_features = self._tables
        if len(embeddings) <= _FEW_SENTENCES:
            for embedding, (start, end) in zip(embeddings, pairwise(offsets.tolist())):
                ids, share = tokens[start:end], np.float32(1 / max(end - start, 1))
                embedding[:] = of_tokens.sum(ids, share)
                for table in of_features:
                    embedding[: table.dims] += table.sum(self._finder.sentence(ids), share)
            return
        shares = 1 / np.maximum(np.diff(offsets), 1).astype(np.float32)
        embeddings[:] = 0
        of_tokens.add_sums(tokens, offsets, shares, embeddings)
        for table in of_features:
            table.add_sums(*self._finder.window(tokens, offsets), shares, embeddings)


class NumpyBackend(Backend):
    """Computes what the Linen module of a family does, up to rounding; see `Backend`."""

    window_sentences = 8192

    def __init__(self, encoder: NumpyEncoder, params: Mapping[str, Any]):
        self.encoder, self.params = encoder, params
        self.batch_tokens = encoder.batch_tokens
        self._memories: list[Memory] = []

    def with_params(self, params: Mapping[str, Any]) -> NumpyBackend:
        """Returns the same with other parameters."""
        return NumpyBackend(self.encoder, _as_numpy(params))

    def run_window(
        self,
        window: TokenWindow,
        embeddings: np.ndarray,
        max_length_tokens: int,
        batch_size: int | None = None,
    ) -> int:
        """See `Backend.run_window`; no token is padding."""
        lengths = np.diff(window.offsets)
        if len(lengths) == 1 and len(window.tokens):
            # Threads that wake up for so little would cost a service more than they save.
            with threads_for(1):
                embeddings[:] = self._encode(window.tokens, lengths, 1)
            return len(window.tokens)
        order = np.argsort(-lengths, kind="stable")
        order = order[: np.count_nonzero(lengths)]
        if len(order) < len(lengths):
            embeddings[lengths == 0] = self.encoder.of_nothing(self.params)

        def run(members: np.ndarray) -> None:
            tokens = np.repeat(window.offsets[members], lengths[members])
            tokens = window.tokens[tokens + positions_within(lengths[members])]
            embeddings[members] = self._encode(tokens, lengths[members], threads)

        with self._threads(len(window.tokens)) as (count, threads):
            batch_tokens = threads * self.batch_tokens
            batches = _cut(order, lengths, count, batch_tokens, batch_size)
            if count == 1:
                for members in batches:
                    run(members)
            else:
                with ThreadPoolExecutor(count, "xling-encode") as pool:
                    for _ in pool.map(run, batches):
                        pass
        return len(window.tokens)

    def _encode(self, tokens: np.ndarray, lengths: np.ndarray, threads: int) -> np.ndarray:
        """One batch, [sentences, dim], computed by that many threads, the caller's among them."""
        with self._memory(len(tokens)) as memory, _executor(threads - 1) as executor:
            # Copied before the next batch gets the memory.
            return self.encoder.encode(
                self.params, Packed(tokens, lengths, memory, executor)
            ).copy()

    @contextlib.contextmanager
    def _threads(self, num_tokens: int) -> Iterator[tuple[int, int]]:
        """Yields how many batches to compute at the same time, and with how many threads each."""
        num_tasks = num_tokens // _FEW_TOKENS
        if num_tasks < num_cores():
            num_tasks = self.encoder.threads
        with threads_for(num_tasks) as threads:
            each = min(self.encoder.threads, threads)
            yield -(-threads // each), each

    @contextlib.contextmanager
    def _memory(self, num_tokens: int) -> Iterator[Memory]:
        """Lends the memory of a batch that is done, or none, and keeps it for the next.

        Not that of very long sentences, nor of more batches than cores compute.
        """
        memory = {}
        if is_usual := num_tokens <= 2 * self.encoder.threads * self.batch_tokens:
            with contextlib.suppress(IndexError):
                memory = self._memories.pop()
        yield memory
        if is_usual and len(self._memories) < num_cores():
            self._memories.append(memory)


def _executor(threads: int) -> contextlib.AbstractContextManager[Executor | None]:
    """Threads for one batch; none kept for the next, since a forked process would not have them."""
    if threads < 1:
        return contextlib.nullcontext()
    return ThreadPoolExecutor(threads, "xling-encode-part")


def _cut(
    order: np.ndarray, lengths: np.ndarray, threads: int, batch_tokens: int, batch_size: int | None
) -> list[np.ndarray]:
    """Cuts ordered sentences into batches of about equal size, as many for each thread.

    They have about `batch_tokens` or fewer, and at most `batch_size` sentences.
    """
    ends = np.cumsum(lengths[order])
    total = int(lengths[order].sum())
    count = threads * -(-total // (threads * batch_tokens))
    borders = np.searchsorted(ends, np.arange(1, count) * total / count)
    parts = [part for part in np.split(order, borders) if len(part)]
    if not batch_size:
        return parts
    return [part[i : i + batch_size] for part in parts for i in range(0, len(part), batch_size)]


def _as_numpy(params: Any) -> Any:
    """A nested dict of arrays, NumPy's or JAX's, with those of NumPy."""
    if not isinstance(params, Mapping):
        return np.asarray(params)
    return {name: _as_numpy(value) for name, value in params.items()}
