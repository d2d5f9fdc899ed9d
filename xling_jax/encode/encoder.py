"""Text to vectors: tokenise, sort by length, pad to a few fixed shapes, run, put back in order.

A sentence always gets the same vector: its tokens are padded, never cut or mixed, because of its
neighbours. The shapes are few and known (`Encoder.batch_shapes`), so the number of compilations
is bounded whatever the text. Input is taken in windows, and a thread tokenises the next window
while the device works on the current one; memory does not grow with the input.
"""

from __future__ import annotations

import collections
import concurrent.futures
import copy
import functools
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xling_jax.encode import model_directory
from xling_jax.encode.batch_plan import BatchShapes, plan_batches
from xling_jax.encode.texts import (
    EncodeStats,
    TokenWindow,
    check_texts,
    document_sentences,
    text_windows,
    tokenize,
)
from xling_jax.encode.vocabularies import AnyVocab

logger = logging.getLogger(__name__)

# Tokens in a full batch. More gains nothing on a CPU, whose caches are then too small; an
# accelerator needs many to be busy.
_CPU_BATCH_TOKENS = 1024
_ACCELERATOR_BATCH_TOKENS = 65536
# An encoder without layers multiplies nothing that would fit a cache; calls are what costs.
_CPU_BATCH_TOKENS_WITHOUT_LAYERS = 32768

# Sentences tokenised, sorted and encoded together. They bound memory and the wait for the first
# rows; many full batches must fit.
_CPU_WINDOW_SENTENCES = 8192
_ACCELERATOR_WINDOW_SENTENCES = 65536

# Batches handed to the device before the oldest is fetched: one runs while the next is packed.
_BATCHES_IN_FLIGHT = 2


class Encoder:
    """Encodes sentences and documents with one model.

    Args:
        module: Linen module, `apply({"params": params}, tokens [batch, length]) -> [batch, dim]`.
        params: its parameters, or {} when `with_params` will give them. If they live on a mesh of
            several devices, batches are split over all of them (and every process of that mesh
            must encode the same text together).
        vocab: text to token ids.
        specials: names of the special tokens in front of and behind the text, such as
            (("bos",), ("eos",)); see `models.registry.encoder_specials`.
        max_length_tokens: longest input, specials included; longer ones are cut at the end.
        languages: codes of the training languages, for information.
        fingerprint: hex digest of the model, "" for one that is still in training.
        dim: embedding size.
    """

    def __init__(
        self,
        module: nn.Module,
        params: Any,
        vocab: AnyVocab,
        *,
        specials: tuple[Sequence[str], Sequence[str]],
        max_length_tokens: int,
        languages: Sequence[str],
        fingerprint: str,
        dim: int,
    ):
        self.module = module
        self.vocab = vocab
        self.max_length_tokens = max_length_tokens
        self.languages = tuple(languages)
        self.fingerprint = fingerprint
        self.dim = dim
        self._affixes = [_special_ids(vocab, names) for names in specials]
        self._room = max_length_tokens - sum(map(len, self._affixes))
        if self._room < 1:
            raise ValueError(
                f"max_length_tokens={max_length_tokens} must leave room for text beside the "
                f"{max_length_tokens - self._room} special tokens"
            )
        self._warned_of_truncation = False
        self._set_params(params)

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Encoder:
        """Loads a model directory; its batches are split over all local devices.

        Raises:
            ValueError: if the directory is no intact model directory.
        """
        spec = model_directory.load_model(path)
        mesh = jax.sharding.Mesh(np.array(jax.local_devices()), ("data",))
        everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        return cls(
            spec.module,
            jax.device_put(spec.params, everywhere),
            spec.vocab,
            specials=spec.specials,
            max_length_tokens=spec.max_length_tokens,
            languages=spec.languages,
            fingerprint=spec.fingerprint,
            dim=spec.dim,
        )

    def with_params(self, params: Any) -> Encoder:
        """Returns the same encoder with other parameters; compiled programs are shared."""
        other = copy.copy(self)
        other.fingerprint = ""
        other._set_params(params)
        return other

    def encode(
        self,
        sentences: Sequence[str],
        *,
        batch_size: int | None = None,
        normalize: bool = False,
        show_progress: bool = False,
    ) -> np.ndarray:
        """Encodes sentences.

        Args:
            sentences: texts, in any of the model's languages; an empty text is allowed.
            batch_size: sentences in a full batch; by default as many as keep the device busy at
                each length. Smaller needs less memory.
            normalize: scale every vector to length 1 (a zero vector stays zero).
            show_progress: draw a progress bar on stderr.

        Returns:
            float32 [n, dim], row i for sentence i.

        Raises:
            ValueError: if `sentences` is a single string or holds anything but strings.
        """
        sentences = check_texts(sentences)
        stats = EncodeStats()
        embeddings = np.empty((len(sentences), self.dim), np.float32)
        windows = self._encode_windows(sentences, batch_size, normalize, stats, embeddings)
        with _progress(len(embeddings), show_progress) as bar:
            for window in windows:
                bar.update(len(window))
        if stats.num_truncated and not self._warned_of_truncation:
            self._warned_of_truncation = True
            logger.warning(
                "%d of %d sentences were cut at %d tokens (told once)",
                *(stats.num_truncated, stats.num_sentences, self.max_length_tokens),
            )
        return embeddings

    def encode_stream(
        self,
        sentences: Iterable[str],
        *,
        batch_size: int | None = None,
        normalize: bool = False,
        stats: EncodeStats | None = None,
    ) -> Iterator[np.ndarray]:
        """Encodes any number of sentences in bounded memory.

        Args:
            sentences: texts; consumed in a thread, one window ahead of the device.
            batch_size: as for `encode`.
            normalize: as for `encode`.
            stats: counts to add to.

        Yields:
            float32 [any, dim], the rows in input order.
        """
        stats = EncodeStats() if stats is None else stats
        return self._encode_windows(sentences, batch_size, normalize, stats)

    def _encode_windows(
        self,
        sentences: Iterable[str],
        batch_size: int | None,
        normalize: bool,
        stats: EncodeStats,
        out: np.ndarray | None = None,
    ) -> Iterator[np.ndarray]:
        """Yields the rows of window after window; views of `out` where that is given."""
        shapes = self.batch_shapes(batch_size)
        windows = text_windows(
            sentences, _CPU_WINDOW_SENTENCES if _on_cpu() else _ACCELERATOR_WINDOW_SENTENCES
        )

        def tokenize_next() -> tuple[TokenWindow, EncodeStats] | None:
            texts = next(windows, None)
            return (
                None if texts is None else tokenize(texts, self.vocab, *self._affixes, self._room)
            )

        done = 0
        with concurrent.futures.ThreadPoolExecutor(1, "xling-tokenize") as pool:
            ahead = pool.submit(tokenize_next)
            while (tokenized := ahead.result()) is not None:
                ahead = pool.submit(tokenize_next)
                window, counts = tokenized
                rows = len(window.offsets) - 1
                embeddings = np.empty((rows, self.dim), np.float32) if out is None else out[done:]
                embeddings = embeddings[:rows]
                counts.num_padded_tokens = self._run_window(window, shapes, embeddings)
                stats.add(counts)
                done += rows
                if normalize:
                    embeddings[:] = l2_normalize(embeddings)
                yield embeddings

    def encode_documents(
        self,
        documents: Sequence[str | Sequence[str]],
        *,
        batch_size: int | None = None,
        normalize: bool = False,
        show_progress: bool = False,
    ) -> np.ndarray:
        """Encodes documents as the mean of their sentence vectors.

        Args:
            documents: each a text, split at sentence ends and line breaks, or a sequence of
                sentences. One without sentences counts as one empty sentence.
            batch_size: sentences in a full batch, as for `encode`.
            normalize: scale the document vectors to length 1; sentence vectors are averaged as
                they are.
            show_progress: draw a progress bar on stderr.

        Returns:
            float32 [n, dim], row i for document i.

        Raises:
            ValueError: if `documents` is a single string or holds anything else.
        """
        if isinstance(documents, str):
            raise ValueError("documents must be a list; for one document pass [document]")
        embeddings = np.empty((len(documents), self.dim), np.float32)
        chunks = self.encode_document_stream(documents, batch_size=batch_size, normalize=normalize)
        _gather(chunks, embeddings, show_progress)
        return embeddings

    def encode_document_stream(
        self,
        documents: Iterable[str | Sequence[str]],
        *,
        batch_size: int | None = None,
        normalize: bool = False,
        stats: EncodeStats | None = None,
    ) -> Iterator[np.ndarray]:
        """Encodes any number of documents in bounded memory; see `encode_documents`.

        Yields:
            float32 [any, dim], the rows in input order.
        """
        # Filled by the tokenising thread; a document's count is there before its vectors are.
        counts: collections.deque[int] = collections.deque()

        def sentences() -> Iterator[str]:
            for document in documents:
                split = document_sentences(document)
                counts.append(len(split))
                yield from split

        pending = np.empty((0, self.dim), np.float32)
        for chunk in self.encode_stream(sentences(), batch_size=batch_size, stats=stats):
            pending = np.concatenate([pending, chunk])
            means, taken = [], 0
            while counts and taken + counts[0] <= len(pending):
                count = counts.popleft()
                means.append(pending[taken : taken + count].mean(axis=0))
                taken += count
            pending = pending[taken:]
            if means:
                stacked = np.stack(means)
                yield l2_normalize(stacked) if normalize else stacked

    def batch_shapes(self, batch_size: int | None = None) -> BatchShapes:
        """Returns the shapes that may be compiled; `.all()` lists them."""
        batch_tokens = _ACCELERATOR_BATCH_TOKENS
        if _on_cpu():
            bare = getattr(self.module, "layers", None) == 0
            batch_tokens = _CPU_BATCH_TOKENS_WITHOUT_LAYERS if bare else _CPU_BATCH_TOKENS
        return BatchShapes(
            max_length_tokens=self.max_length_tokens,
            batch_tokens=batch_tokens,
            batch_size=batch_size,
            num_devices=self._num_devices,
        )

    def _set_params(self, params: Any) -> None:
        # Host arrays would be sent to the device again with every batch.
        self.params = params = jax.tree.map(
            lambda leaf: leaf if isinstance(leaf, jax.Array) else jax.device_put(leaf), params
        )
        sharding = getattr(next(iter(jax.tree.leaves(params)), None), "sharding", None)
        if isinstance(sharding, jax.sharding.NamedSharding) and sharding.mesh.size > 1:
            mesh = sharding.mesh
            self._num_devices = mesh.size
            rows = jax.sharding.PartitionSpec(mesh.axis_names)
            self._tokens_sharding = jax.sharding.NamedSharding(mesh, rows)
            replicated = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        else:
            self._num_devices = 1
            self._tokens_sharding = None
            replicated = None
        self._apply = _jitted_apply(self.module, replicated)

    def _run_window(self, window: TokenWindow, shapes: BatchShapes, embeddings: np.ndarray) -> int:
        """Fills [sentences, dim] in input order; returns the padded tokens computed."""
        padded_tokens = 0
        in_flight: collections.deque[tuple[np.ndarray, jax.Array]] = collections.deque()
        for members, (rows, length) in plan_batches(np.diff(window.offsets), shapes):
            tokens = self._pack(window, members, rows, length)
            in_flight.append((members, self._apply(self.params, tokens)))
            padded_tokens += rows * length
            if len(in_flight) == _BATCHES_IN_FLIGHT:
                _fetch(in_flight.popleft(), embeddings)
        for batch in in_flight:
            _fetch(batch, embeddings)
        return padded_tokens

    def _pack(self, window: TokenWindow, members: np.ndarray, rows: int, length: int) -> jax.Array:
        tokens = np.full((rows, length), self.vocab.pad_id, np.int32)
        starts, stops = window.offsets[members], window.offsets[members + 1]
        index = starts[:, None] + np.arange(length)
        real = index < stops[:, None]
        tokens[: len(members)][real] = window.tokens[index[real]]
        if self._tokens_sharding is None:
            return jax.device_put(tokens)
        # Works with several processes too: each holds all rows and gives its devices theirs.
        return jax.make_array_from_callback(
            tokens.shape, self._tokens_sharding, lambda index: tokens[index]
        )


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def _fetch(batch: tuple[np.ndarray, jax.Array], embeddings: np.ndarray) -> None:
    members, result = batch
    embeddings[members] = np.asarray(result)[: len(members)]


def l2_normalize(embeddings: np.ndarray) -> np.ndarray:
    """Scales every row of [n, dim] to Euclidean length 1; zero rows stay zero."""
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    return embeddings / np.maximum(norms, np.finfo(np.float32).tiny)


@functools.lru_cache(maxsize=16)
def _jitted_apply(module: nn.Module, out_sharding: jax.sharding.Sharding | None) -> Any:
    """One jitted function per module, so that all its encoders share compiled programs."""

    def apply(params: Any, tokens: jax.Array) -> jax.Array:
        embeddings = module.apply({"params": params}, tokens, deterministic=True)
        return embeddings.astype(jnp.float32)

    return jax.jit(apply, out_shardings=out_sharding)


def _special_ids(vocab: AnyVocab, names: Sequence[str]) -> np.ndarray:
    ids = {"bos": vocab.bos_id, "eos": vocab.eos_id}
    for name in names:
        if ids.get(name) is None:
            raise ValueError(
                f"specials must be 'bos' or 'eos' and in the vocabulary; {name!r} is not"
            )
    return np.array([ids[name] for name in names], np.int32)


def _gather(chunks: Iterable[np.ndarray], embeddings: np.ndarray, show_progress: bool) -> None:
    """Copies chunks, in order, into [n, dim]."""
    done = 0
    with _progress(len(embeddings), show_progress) as bar:
        for chunk in chunks:
            embeddings[done : done + len(chunk)] = chunk
            done += len(chunk)
            bar.update(len(chunk))


def _progress(total: int, show: bool) -> Any:
    # Imported here: few want the bar, and the library should load without it.
    from tqdm import tqdm

    return tqdm(total=total, disable=not show)
