"""Micro-batches: the texts of requests that wait are encoded together, in a thread."""

import asyncio
import collections
import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from xling_jax.encode.encoder import Encoder
from xling_jax.options import option
from xling_jax.text.vocabularies import Vocabulary

# To divide texts into batches before they are tokenized: English has 4, Chinese 1 to 2.
_CHARACTERS_PER_TOKEN = 3


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a server takes; see also `Batcher`."""

    max_texts: int = option(2048, "texts in one request; more are refused with 413", positive=True)
    max_characters: int = option(
        100_000, "characters of one text; more are refused with 413", positive=True
    )
    max_waiting: int = option(
        8192, "texts of all requests that may wait; more are refused with 429", positive=True
    )
    batch_tokens: int = option(
        8192, "about the most tokens that are encoded together", positive=True
    )


class QueueFull(Exception):
    """So many texts wait that another request is refused."""


@dataclasses.dataclass
class _Job:
    texts: Sequence[str]
    num_tokens: int
    result: asyncio.Future[tuple[np.ndarray, int]]


class Batcher:
    """Encodes what concurrent requests ask for, in the order in which they came.

    While a batch is computed, requests wait, and what waits then is the next batch. None waits for
    others to come, so that a single request is as fast as without batches.

    Args:
        encoder: computes the vectors, without its default prompt.
        limits: a request of more than `batch_tokens` is encoded in parts, and others that wait come
            in between; one of more than `max_waiting` texts is taken only if none wait.
    """

    def __init__(self, encoder: Encoder, limits: Limits):
        self._encoder = encoder.with_prompt("")  # a copy
        self._encoder.vocab = self._vocab = _CountingVocab(encoder.vocab)
        self._limits = limits
        self._jobs: collections.deque[_Job] = collections.deque()
        self._alone: collections.deque[_Job] = collections.deque()  # each to be a batch of its own
        self._thread = ThreadPoolExecutor(1, "xling-serve")
        self._running: asyncio.Task | None = None
        self.num_waiting = self.num_texts = self.num_tokens = self.num_batches = 0

    async def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, int]:
        """Returns vectors [n, dim] as of `Encoder.encode`, and how many tokens the texts had.

        If it is cancelled, what is not yet being computed never is.

        Raises:
            QueueFull: if too many texts wait.
        """
        if self.num_waiting and self.num_waiting + len(texts) > self._limits.max_waiting:
            raise QueueFull(f"{self.num_waiting} texts are waiting; try again later")
        self.num_waiting += len(texts)
        try:
            parts = [await self._encode(part) for part in self._parts(texts)]
        finally:
            self.num_waiting -= len(texts)
        vectors, counts = zip(*parts, strict=True)
        return (vectors[0] if len(parts) == 1 else np.concatenate(vectors)), sum(counts)

    async def _encode(self, texts: Sequence[str]) -> tuple[np.ndarray, int]:
        """As `encode`, for texts that fit into one batch."""
        job = _Job(texts, sum(map(_about, texts)), asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await job.result

    def _parts(self, texts: Sequence[str]) -> Iterator[Sequence[str]]:
        start = tokens = 0
        for end, text in enumerate(texts):
            tokens += _about(text)
            if tokens > self._limits.batch_tokens and end > start:
                yield texts[start:end]
                start, tokens = end, _about(text)
        yield texts[start:]

    async def _run(self) -> None:
        """Encodes batches until nothing waits."""
        loop = asyncio.get_running_loop()
        try:
            while jobs := self._next_batch():
                texts = [text for job in jobs for text in job.texts]
                try:
                    vectors, lengths = await loop.run_in_executor(
                        self._thread, self._compute, texts
                    )
                except Exception as error:  # whatever it is, those who wait must hear of it
                    if jobs[1:]:  # one of them may be at fault
                        self._alone.extend(jobs)
                    elif not jobs[0].result.done():
                        jobs[0].result.set_exception(error)
                    continue
                end = 0
                for job in jobs:
                    start, end = end, end + len(job.texts)
                    if not job.result.done():
                        job.result.set_result((vectors[start:end], int(lengths[start:end].sum())))
        finally:
            self._running = None

    def _next_batch(self) -> list[_Job]:
        """Takes jobs in order, up to the tokens of a batch; those whose client is gone are left."""
        while self._alone:
            if not (job := self._alone.popleft()).result.cancelled():
                return [job]
        batch: list[_Job] = []
        tokens = 0
        while self._jobs:
            job = self._jobs[0]
            if not job.result.cancelled():
                tokens += job.num_tokens
                if batch and tokens > self._limits.batch_tokens:
                    break
                batch.append(job)
            self._jobs.popleft()
        return batch

    def _compute(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        self._vocab.lengths.clear()
        vectors = self._encoder.encode(texts)
        longest = self._encoder.max_length_tokens
        lengths = np.minimum(np.concatenate(self._vocab.lengths), longest)
        self.num_batches += 1
        self.num_texts += len(texts)
        self.num_tokens += int(lengths.sum())
        return vectors, lengths


class _CountingVocab:
    """A vocabulary that notes the tokens of each text, which responses tell as usage."""

    def __init__(self, vocab: Vocabulary):
        self._vocab = vocab
        self.lengths: list[np.ndarray] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vocab, name)

    def encode_flat(
        self, texts: Sequence[str], num_threads: int = -1
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `Vocabulary.encode_flat`."""
        ids, lengths = self._vocab.encode_flat(texts, num_threads)
        self.lengths.append(lengths)
        return ids, lengths


def _about(text: str) -> int:
    """About how many tokens a text has."""
    return 1 + len(text) // _CHARACTERS_PER_TOKEN
