"""Token windows to vectors on the CPU, in NumPy: packed sentences, batches in threads.

Nothing is compiled, and no batch has padding. Many sentences are cut into batches of sentences of
similar length, each computed by one thread, or by two where an LSTM has two directions; a few form
one batch, whose matrix products use all cores.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import numpy as np

from xling_jax.encode.batch_plan import BatchShapes
from xling_jax.encode.texts import TokenWindow
from xling_jax.files.cores import num_cores
from xling_jax.files.threads import threads_for
from xling_jax.models.numpy_encoders import NumpyEncoder
from xling_jax.models.numpy_layers import Memory, Packed, positions_within

# With fewer tokens for each core, one batch on all cores is faster.
_FEW_TOKENS = 64


class NumpyBatches:
    """Computes what a Linen module does, up to rounding.

    Args:
        encoder: the family's, with its options.
        params: nested dict, float32, as in its model directory.

    Attributes: see `backends.Backend`.
    """

    name = "numpy"
    dtype = "float32"
    num_devices = 1
    has_single_row = True
    window_sentences = 8192

    def __init__(self, encoder: NumpyEncoder, params: Mapping[str, Any]):
        self.encoder, self.params = encoder, params
        self.batch_tokens = encoder.batch_tokens
        self._memories: list[Memory] = []

    def with_params(self, params: Mapping[str, Any]) -> NumpyBatches:
        """Returns the same with other parameters."""
        return NumpyBatches(self.encoder, _as_numpy(params))

    def compile(self, shapes: Sequence[tuple[int, int]]) -> None:
        """Nothing is compiled."""

    def run_window(self, window: TokenWindow, shapes: BatchShapes, embeddings: np.ndarray) -> int:
        """Fills [sentences, dim] in input order; returns the number of tokens, none is padding."""
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
            batches = _cut(order, lengths, count, batch_tokens, shapes.batch_size)
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

        That of very long sentences is not kept, nor that of more batches than cores compute.
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
    order: np.ndarray,
    lengths: np.ndarray,
    threads: int,
    batch_tokens: int,
    batch_size: int | None,
) -> list[np.ndarray]:
    """Cuts ordered sentences into batches of about equal size, the same number for each thread.

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


def _as_numpy(params: Mapping[str, Any]) -> dict[str, Any]:
    """A nested dict of arrays, NumPy's or JAX's, with those of NumPy."""
    return {
        name: _as_numpy(value) if isinstance(value, Mapping) else np.asarray(value)
        for name, value in params.items()
    }
