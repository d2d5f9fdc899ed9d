"""Text to vectors: tokenize, sort by length, pad to a few fixed shapes, run, restore the order.

The fixed shapes (`Encoder.batch_shapes`) bound the number of compilations. Input is processed in
windows, and a thread tokenizes the next window while the device works on the current one; memory
does not grow with the input.
"""

from __future__ import annotations

import collections
import concurrent.futures
import copy
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from xling_jax.encode import model_directory
from xling_jax.encode.batch_plan import BatchShapes
from xling_jax.encode.documents import document_inputs, pool_stream
from xling_jax.encode.static import StaticBackend
from xling_jax.encode.texts import EncodeStats, TokenWindow, text_windows, tokenize
from xling_jax.files.progress import Progress
from xling_jax.text.splitting import check_texts
from xling_jax.text.vocabularies import Vocabulary

if TYPE_CHECKING:
    from xling_jax.align.precision import Calibration

logger = logging.getLogger(__name__)


class Backend(Protocol):
    """Computes the vectors of tokens; see `device_batches.DeviceBatches` for the attributes."""

    params: Any
    dtype: str
    num_devices: int
    batch_tokens: int
    window_sentences: int

    def run_window(self, window: TokenWindow, shapes: BatchShapes, embeddings: np.ndarray) -> int:
        """Fills [sentences, dim] in input order; returns the number of tokens with padding."""

    def with_params(self, params: Any) -> Backend:
        """Returns the same with other parameters."""


class Encoder:
    """Encodes sentences and documents with one model.

    Args:
        backend: computes the vectors.
        vocab: text to token ids.
        specials: names of the special tokens before and after the text, such as
            (("bos",), ("eos",)).
        max_length_tokens: longest input, special tokens included; longer ones are cut at the end.
        languages: codes of the training languages, for information.
        fingerprint: hex digest of the model, "" for one in training; in another dtype than the
            model's own with that dtype at its end, because vectors differ.
        dim: embedding size.
        calibration: what scores of mined pairs mean, see `xling calibrate`; None if that was not
            measured.
    """

    def __init__(
        self,
        backend: Backend,
        vocab: Vocabulary,
        *,
        specials: tuple[Sequence[str], Sequence[str]],
        max_length_tokens: int,
        languages: Sequence[str],
        fingerprint: str,
        dim: int,
        calibration: Calibration | None = None,
    ):
        self.backend = backend
        self.vocab = vocab
        self.max_length_tokens = max_length_tokens
        self.languages = tuple(languages)
        self.fingerprint = fingerprint
        self.dim = self._model_dim = dim
        self.calibration = calibration
        self._affixes = [_special_ids(vocab, names) for names in specials]
        self._room = max_length_tokens - sum(map(len, self._affixes))
        if self._room < 1:
            raise ValueError(
                f"max_length_tokens={max_length_tokens} must leave room for text besides the "
                f"{max_length_tokens - self._room} special tokens"
            )
        self._warned_of_truncation = False

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str], dtype: str | None = None) -> Encoder:
        """Loads a model directory onto all local devices.

        Args:
            path: of the directory.
            dtype: see `xling_jax.load`.

        Raises:
            ValueError: if the directory is not intact, or the dtype is unknown.
        """
        spec = model_directory.load_model(path)
        if form := spec.static_form:
            if dtype not in (None, "auto", "float32"):
                raise ValueError(f"dtype={dtype!r}: static encoders compute in float32 only")
            backend = StaticBackend(form, spec.stored)
        else:
            from xling_jax.encode.device_batches import DeviceBatches, in_dtype

            module = in_dtype(spec.module, dtype or spec.config["encoder"].get("dtype", "auto"))
            backend = DeviceBatches.on_all_devices(module, spec.params, spec.vocab.pad_id)
        own = spec.config["encoder"].get("dtype", "float32")
        suffix = "" if backend.dtype == own else f"-{backend.dtype}"
        return cls(
            backend,
            spec.vocab,
            specials=spec.config["specials"],
            max_length_tokens=spec.max_length_tokens,
            languages=spec.languages,
            fingerprint=spec.fingerprint + suffix,
            dim=spec.dim,
            calibration=spec.calibration,
        )

    @property
    def params(self) -> Any:
        """Parameters of the model."""
        return self.backend.params

    @property
    def dtype(self) -> str:
        """Name of the dtype of the computation; vectors are float32."""
        return self.backend.dtype

    @property
    def window_sentences(self) -> int:
        """Most sentences that are tokenized, sorted and encoded together."""
        return self.backend.window_sentences

    def batch_shapes(self, batch_size: int | None = None) -> BatchShapes:
        """Returns the shapes that may be compiled; `.all()` lists them."""
        return BatchShapes(
            max_length_tokens=self.max_length_tokens,
            batch_tokens=self.backend.batch_tokens,
            batch_size=batch_size,
            num_devices=self.backend.num_devices,
        )

    def with_params(self, params: Any) -> Encoder:
        """Returns the same encoder with other parameters; compiled programs are shared."""
        other = copy.copy(self)
        other.fingerprint, other.calibration = "", None
        other.backend = self.backend.with_params(params)
        return other

    def with_max_length(self, max_length_tokens: int) -> Encoder:
        """Returns the same encoder for shorter inputs, special tokens included.

        Raises:
            ValueError: if inputs would be longer, or only special tokens.
        """
        shorter = copy.copy(self)
        shorter._room = self._room - (self.max_length_tokens - max_length_tokens)
        if not 1 <= shorter._room <= self._room:
            raise ValueError(
                f"max_length_tokens={max_length_tokens} must be from "
                f"{self.max_length_tokens - self._room + 1} to {self.max_length_tokens}, the "
                "model's limit"
            )
        shorter.max_length_tokens = max_length_tokens
        return shorter

    def truncated(self, dim: int) -> Encoder:
        """Returns the same encoder for the first `dim` dimensions of its vectors.

        That is useful where these hold the most, as in `mini`. The cosine of two truncated vectors
        is that of their first dimensions: normalize after truncation, as `encode` does.

        Raises:
            ValueError: if the vectors have fewer dimensions.
        """
        if not 1 <= dim <= self.dim:
            raise ValueError(f"truncate_dim={dim} must be from 1 to {self.dim}, the model's width")
        smaller = copy.copy(self)
        smaller.dim = dim
        if dim < self.dim:
            smaller.calibration = None
            smaller.fingerprint = self.fingerprint and f"{self.fingerprint}-{dim}d"
        return smaller

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
                each length. Fewer need less memory.
            normalize: scale every vector to length 1 (a zero vector stays zero).
            show_progress: draw a progress bar on stderr.

        Returns:
            float32 [n, dim], row i for sentence i.

        Raises:
            ValueError: if `sentences` is a single string, or an item is not a string.
        """
        sentences = check_texts(sentences)
        stats = EncodeStats()
        embeddings = np.empty((len(sentences), self.dim), np.float32)
        windows = self._encode_windows(sentences, batch_size, normalize, stats, embeddings)
        with Progress("encode", len(embeddings), "sentence", show=show_progress) as progress:
            for window in windows:
                progress(progress.done + len(window))
        if stats.num_truncated and not self._warned_of_truncation:
            self._warned_of_truncation = True
            logger.warning(
                "%d of %d sentences were cut at %d tokens (further warnings suppressed)",
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
        """Encodes any number of sentences in bounded memory; see `encode`.

        They are read in a thread, one window ahead of the device. Counts are added to `stats`.

        Yields:
            float32 [any, dim], the rows in input order.
        """
        return self._encode_windows(sentences, batch_size, normalize, stats or EncodeStats())

    def _encode_windows(
        self,
        sentences: Iterable[str],
        batch_size: int | None,
        normalize: bool,
        stats: EncodeStats,
        out: np.ndarray | None = None,
    ) -> Iterator[np.ndarray]:
        """Yields the rows of each window; views of `out` if that is given."""
        shapes = self.batch_shapes(batch_size)
        done = 0
        for window, counts in self._tokenized_windows(sentences):
            rows = len(window.offsets) - 1
            embeddings = np.empty((rows, self.dim), np.float32) if out is None else out[done:]
            embeddings = embeddings[:rows]
            if self.dim == self._model_dim:
                counts.num_padded_tokens = self.backend.run_window(window, shapes, embeddings)
            else:
                whole = np.empty((rows, self._model_dim), np.float32)
                counts.num_padded_tokens = self.backend.run_window(window, shapes, whole)
                embeddings[:] = whole[:, : self.dim]
            stats.add(counts)
            done += rows
            if normalize:
                embeddings[:] = l2_normalize(embeddings)
            yield embeddings

    def _tokenized_windows(
        self, sentences: Iterable[str]
    ) -> Iterator[tuple[TokenWindow, EncodeStats]]:
        """Yields windows of tokens, prepared one ahead in a thread unless there is only one."""
        windows = text_windows(sentences, self.window_sentences)
        tokenized = (tokenize(texts, self.vocab, *self._affixes, self._room) for texts in windows)
        if isinstance(sentences, Sequence) and len(sentences) <= self.window_sentences:
            yield from tokenized
            return
        with concurrent.futures.ThreadPoolExecutor(1, "xling-tokenize") as pool:
            ahead = pool.submit(next, tokenized, None)
            while (window := ahead.result()) is not None:
                ahead = pool.submit(next, tokenized, None)
                yield window

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
            documents: each a text, which is split at sentence ends and line breaks, or a sequence
                of sentences. A document without sentences counts as one empty sentence.
            mode: what is encoded at once: "sentences", each one; "packed", as many as the encoder
                takes; "windows", 128 words, every 64; "sequence", the document, cut where the
                encoder ends.
            pooling: "mean" of these vectors, or "max", in each dimension.
            splitter: see `split_sentences`.
            language: of the texts, for "sentencex".
            batch_size: as for `encode`.
            normalize: scale the document vectors, but not those of sentences, to length 1.
            show_progress: as for `encode`.

        Returns:
            float32 [n, dim], row i for document i.

        Raises:
            ValueError: if `documents` is a string, an item is neither a text nor sentences, or a
                setting is unknown.
        """
        if isinstance(documents, str):
            raise ValueError("documents must be a list; wrap a single document: [document]")
        embeddings = np.empty((len(documents), self.dim), np.float32)
        inputs = self.document_inputs(documents, mode, splitter=splitter, language=language)
        chunks = self.encode_document_stream(
            inputs, pooling=pooling, batch_size=batch_size, normalize=normalize
        )
        with Progress("encode", len(embeddings), "document", show=show_progress) as progress:
            for chunk in chunks:
                done = progress.done + len(chunk)
                embeddings[progress.done : done] = chunk
                progress(done)
        return embeddings

    def document_inputs(
        self,
        documents: Iterable[str | Sequence[str]],
        mode: str = "sentences",
        *,
        splitter: str = "rule",
        language: str | None = None,
    ) -> Iterator[list[str]]:
        """Yields the texts to encode for each document; arguments as `encode_documents`."""
        settings = {"splitter": splitter, "language": language}
        return document_inputs(documents, mode, vocab=self.vocab, room=self._room, **settings)

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

        Each is a text, which is split by the built-in rule, or its sentences or `document_inputs`.
        Counts are added to `stats`.

        Yields:
            float32 [any, dim], the rows in input order.
        """
        # Filled by the tokenizing thread, before the vectors of a document are computed.
        counts: collections.deque[int] = collections.deque()

        def texts() -> Iterator[str]:
            for inputs in self.document_inputs(documents):
                counts.append(len(inputs))
                yield from inputs

        chunks = self.encode_stream(texts(), batch_size=batch_size, stats=stats)
        for pooled in pool_stream(chunks, counts, pooling):
            yield l2_normalize(pooled) if normalize else pooled


def l2_normalize(embeddings: np.ndarray) -> np.ndarray:
    """Scales every row of [n, dim] to Euclidean length 1; zero rows stay zero."""
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    return embeddings / np.maximum(norms, np.finfo(np.float32).tiny)


def _special_ids(vocab: Vocabulary, names: Sequence[str]) -> np.ndarray:
    ids = {"bos": vocab.bos_id, "eos": vocab.eos_id}
    if missing := [name for name in names if ids.get(name) is None]:
        raise ValueError(f"specials={missing} must be 'bos' or 'eos', and in the vocabulary")
    return np.array([ids[name] for name in names], np.int32)
