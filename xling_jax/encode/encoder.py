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
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from xling_jax.encode import model_directory
from xling_jax.encode.batch_plan import BatchShapes
from xling_jax.encode.device_batches import DeviceBatches
from xling_jax.encode.documents import document_inputs, pool_stream
from xling_jax.encode.texts import (
    EncodeStats,
    TokenWindow,
    text_windows,
    tokenize,
)
from xling_jax.text.splitting import check_texts
from xling_jax.text.vocabularies import Vocabulary

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
        vocab: Vocabulary,
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

    def with_max_length(self, max_length_tokens: int) -> Encoder:
        """Returns the same encoder reading no more than the first tokens, specials included.

        Raises:
            ValueError: if it would read more than now, or nothing but special tokens.
        """
        shorter = copy.copy(self)
        shorter._room = self._room - (self.max_length_tokens - max_length_tokens)
        if not 1 <= shorter._room <= self._room:
            raise ValueError(
                f"max_length_tokens={max_length_tokens} must be from "
                f"{self.max_length_tokens - self._room + 1} to {self.max_length_tokens}, what the "
                "model takes"
            )
        shorter.max_length_tokens = max_length_tokens
        return shorter

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
        windows = text_windows(sentences, self.window_sentences)

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
                counts.num_padded_tokens = self._device.run_window(window, shapes, embeddings)
                stats.add(counts)
                done += rows
                if normalize:
                    embeddings[:] = l2_normalize(embeddings)
                yield embeddings

    def encode_documents(
        self,
        documents: Sequence[str | Sequence[str]],
        *,
        mode: str = "sentences",
        pooling: str = "mean",
        splitter: str = "rule",
        language: str | None = None,
        batch_size: int | None = None,
        normalize: bool = False,
        show_progress: bool = False,
    ) -> np.ndarray:
        """Encodes documents, by default as the mean of the vectors of their sentences.

        Args:
            documents: each a text, split at sentence ends and line breaks, or a sequence of
                sentences. One without sentences counts as one empty sentence.
            mode: what is encoded at once: "sentences", each one; "packed", as many as the encoder
                takes; "windows", 128 words, every 64; "sequence", the document, cut where the
                encoder ends.
            pooling: "mean" of these vectors, or "max", in each dimension.
            splitter: see `split_sentences`.
            language: of the texts, for "sentencex".
            batch_size: sentences in a full batch, as for `encode`.
            normalize: scale the document vectors to length 1; sentence vectors are averaged as
                they are.
            show_progress: draw a progress bar on stderr.

        Returns:
            float32 [n, dim], row i for document i.

        Raises:
            ValueError: if `documents` is a single string or holds anything else, or a setting is
                unknown.
        """
        if isinstance(documents, str):
            raise ValueError("documents must be a list; for one document pass [document]")
        embeddings = np.empty((len(documents), self.dim), np.float32)
        inputs = self.document_inputs(documents, mode, splitter=splitter, language=language)
        chunks = self.encode_document_stream(
            inputs, pooling=pooling, batch_size=batch_size, normalize=normalize
        )
        done = 0
        with _progress(len(embeddings), show_progress) as bar:
            for chunk in chunks:
                embeddings[done : done + len(chunk)] = chunk
                done += len(chunk)
                bar.update(len(chunk))
        return embeddings

    def document_inputs(
        self,
        documents: Iterable[str | Sequence[str]],
        mode: str = "sentences",
        *,
        splitter: str = "rule",
        language: str | None = None,
    ) -> Iterator[list[str]]:
        """Yields the texts that stand for each document; arguments as for `encode_documents`."""
        return document_inputs(
            documents,
            mode,
            vocab=self.vocab,
            room=self._room,
            splitter=splitter,
            language=language,
        )

    def encode_document_stream(
        self,
        documents: Iterable[str | Sequence[str]],
        *,
        pooling: str = "mean",
        batch_size: int | None = None,
        normalize: bool = False,
        stats: EncodeStats | None = None,
    ) -> Iterator[np.ndarray]:
        """Encodes any number of documents in bounded memory; see `encode_documents`.

        Args:
            documents: texts, split by the rule, or the sentences or `document_inputs` of each.
            pooling: as for `encode_documents`.
            batch_size: as for `encode`.
            normalize: as for `encode_documents`.
            stats: counts to add to.

        Yields:
            float32 [any, dim], the rows in input order.
        """
        # Filled by the tokenising thread; a document's count is there before its vectors are.
        counts: collections.deque[int] = collections.deque()

        def texts() -> Iterator[str]:
            for inputs in self.document_inputs(documents):
                counts.append(len(inputs))
                yield from inputs

        chunks = self.encode_stream(texts(), batch_size=batch_size, stats=stats)
        for pooled in pool_stream(chunks, counts, pooling):
            yield l2_normalize(pooled) if normalize else pooled

    @property
    def window_sentences(self) -> int:
        """Most sentences that are tokenised, sorted and encoded together."""
        return _CPU_WINDOW_SENTENCES if _on_cpu() else _ACCELERATOR_WINDOW_SENTENCES

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
            num_devices=self._device.num_devices,
        )

    def _set_params(self, params: Any) -> None:
        self._device = DeviceBatches(self.module, params, self.vocab.pad_id)
        self.params = self._device.params


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def l2_normalize(embeddings: np.ndarray) -> np.ndarray:
    """Scales every row of [n, dim] to Euclidean length 1; zero rows stay zero."""
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    return embeddings / np.maximum(norms, np.finfo(np.float32).tiny)


def _special_ids(vocab: Vocabulary, names: Sequence[str]) -> np.ndarray:
    ids = {"bos": vocab.bos_id, "eos": vocab.eos_id}
    for name in names:
        if ids.get(name) is None:
            raise ValueError(
                f"specials must be 'bos' or 'eos' and in the vocabulary; {name!r} is not"
            )
    return np.array([ids[name] for name in names], np.int32)


def _progress(total: int, show: bool) -> Any:
    # Imported here: few want the bar, and the library should load without it.
    from tqdm import tqdm

    return tqdm(total=total, disable=not show)
