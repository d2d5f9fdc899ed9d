"""Text to vectors: tokenize, sort by length, compute in batches, restore the order.

With JAX, batches are padded to a few fixed shapes (`Encoder.batch_shapes`), which bound the number
of compilations. Input is processed in windows, and a thread tokenizes the next window while the
current one is computed; memory does not grow with the input.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import hashlib
import logging
import os
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from xling_jax.align.rows import l2_normalize
from xling_jax.encode import model_directory
from xling_jax.encode.backends import Backend, make_backend
from xling_jax.encode.texts import EncodeStats, TokenWindow, text_windows, tokenize
from xling_jax.files.progress import Progress
from xling_jax.files.quantization import check_ranges, learn_ranges, quantize
from xling_jax.options import OptionError, check_kind, check_number, checks_numbers
from xling_jax.registry import check_choice
from xling_jax.text.splitting import check_collection, check_texts, checked_texts, is_missing
from xling_jax.text.vocabularies import Vocabulary

if TYPE_CHECKING:
    import flax.linen as nn

    from xling_jax.encode.jax_backend import BatchShapes

_logger = logging.getLogger(__name__)

# Names under which models have the prompt of what is searched, first choice first.
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


class Encoder:
    """Encodes sentences and documents with one model.

    Args:
        backend: computes the vectors, of size `dim`.
        vocab: text to token ids.
        specials: names of the special tokens before and after the text, such as
            (("bos",), ("eos",)).
        max_length_tokens: longest input, special tokens included.
        languages: codes of the training languages, for information.
        fingerprint: hex digest of the model, "" for one in training; in another dtype than the
            model's own with that dtype at its end, because vectors differ.
        spec: what it was loaded from; without it the encoder can neither be saved nor pickled.
    """

    def __init__(
        self,
        backend: Backend,
        vocab: Vocabulary,
        *,
        specials: tuple[Sequence[str], Sequence[str]],
        max_length_tokens: int,
        dim: int,
        languages: Sequence[str] = (),
        fingerprint: str = "",
        spec: model_directory.ModelSpec | None = None,
    ):
        self.backend = backend
        self.vocab = vocab
        self.max_length_tokens = max_length_tokens
        self.languages = tuple(languages)
        self.fingerprint = fingerprint
        self.dim, self._model_dim = spec.output_dim if spec else dim, dim
        self.calibration = spec.calibration if spec else None
        self.prompts = spec.prompts if spec else {}
        self.default_prompt = spec.default_prompt if spec else None
        self._prompt = self.prompts.get(self.default_prompt, "")
        self._spec = dataclasses.replace(spec, stored={}) if spec else None
        ids = (model_directory.special_ids(vocab, names) for names in specials)
        self._affixes = [np.array(each, np.int32) for each in ids]
        self._room = max_length_tokens - sum(map(len, self._affixes))
        if self._room < 1:
            raise ValueError(
                f"max_length_tokens={max_length_tokens} must leave room for text besides the "
                f"{max_length_tokens - self._room} special tokens"
            )
        self._warned: set[str] = set()  # copies share it

    @classmethod
    def from_directory(
        cls, path: str | os.PathLike[str], dtype: str | None = None, backend: str = "auto"
    ) -> Encoder:
        """Loads a model directory; dtype, backend and errors as for `xling_jax.load`."""
        return cls._of_spec(model_directory.load_model(path), dtype, backend, os.fspath(path))

    @classmethod
    def _of_spec(
        cls, spec: model_directory.ModelSpec, dtype: str | None, backend: str, where: str
    ) -> Encoder:
        backend = make_backend(spec, dtype, backend, where)
        own = spec.config["encoder"].get("dtype", "float32")
        suffix = "" if backend.dtype == own else f"-{backend.dtype}"
        return cls(
            backend,
            spec.vocab,
            specials=spec.config["specials"],
            max_length_tokens=spec.max_length_tokens,
            dim=spec.dim,
            languages=spec.languages,
            fingerprint=spec.fingerprint + suffix,
            spec=spec,
        )

    @property
    def params(self) -> Any:
        """Parameters of the model."""
        return self.backend.params

    @property
    def module(self) -> nn.Module:
        """The Linen module of `params`; ValueError for a static encoder, which has no layers."""
        if self.backend.name == "jax":
            return self.backend.module
        spec = self._loaded("rebuilt as a Linen module")
        if spec.static:
            raise ValueError(
                "a static encoder has no layers to train; use classifiers of its vectors"
            )
        return spec.module

    @property
    def dtype(self) -> str:
        """Name of the dtype of the computation; vectors are float32."""
        return self.backend.dtype

    def batch_shapes(self, batch_size: int | None = None) -> BatchShapes:
        """Returns the shapes that JAX may compile; `.all()` lists them. ValueError for NumPy."""
        if self.backend.name != "jax":
            raise ValueError("NumPy has no shapes of batches; load the encoder with backend='jax'")
        return self.backend.shapes(self.max_length_tokens, batch_size)

    @checks_numbers
    def warm_up(
        self, max_length_tokens: int | None = None, *, batch_size: int | None = None
    ) -> None:
        """Compiles all programs that encoding may need, so that no later call waits for one.

        NumPy needs none. With JAX, every length up to `max_length_tokens`, or to the model's limit,
        has two or three. `batch_size` is as it will be given to `encode`.
        """
        if self.backend.name == "jax":
            self.backend.compile(self.batch_shapes(batch_size).all(max_length_tokens))

    def with_params(self, params: Any) -> Encoder:
        """Returns the same encoder with other parameters; compiled programs are shared."""
        changed = {"fingerprint": "", "calibration": None, "_spec": None}
        return self._with(backend=self.backend.with_params(params), **changed)

    @checks_numbers
    def with_max_length(self, max_length_tokens: int) -> Encoder:
        """Returns the same encoder for shorter inputs, special tokens included."""
        room = self._room - (self.max_length_tokens - max_length_tokens)
        if not 1 <= room <= self._room:
            raise ValueError(
                f"max_length_tokens={max_length_tokens} must be from "
                f"{self.max_length_tokens - self._room + 1} to {self.max_length_tokens}, the "
                "model's limit"
            )
        suffix = f"-{max_length_tokens}t" if room != self._room else ""
        return self._with(suffix, _room=room, max_length_tokens=max_length_tokens)

    def truncated(self, dim: int) -> Encoder:
        """Returns the same encoder for the first `dim` dimensions of its vectors.

        The cosine of two truncated vectors is that of their first dimensions: normalize after
        truncation, as `encode` does.
        """
        check_kind("truncate_dim", dim, {"int"})
        if not 1 <= dim <= self._model_dim:
            raise OptionError(
                f"truncate_dim={dim} must be from 1 to {self._model_dim}, the model's width"
            )
        if dim == self.dim:
            return self._with()
        return self._with(f"-{dim}d", dim=int(dim), calibration=None)

    def with_prompt(self, prompt: str | None = None, prompt_name: str | None = None) -> Encoder:
        """Returns the same encoder with another text before every input, or one of `prompts`."""
        if (prompt is None) == (prompt_name is None):
            raise ValueError("give prompt or prompt_name, not both; prompt='' disables the prompt")
        if prompt_name is not None:
            if prompt_name not in self.prompts:
                known = ", ".join(map(repr, self.prompts)) or "none"
                raise ValueError(
                    f"prompt_name={prompt_name!r} must be one of the model's prompts ({known}); "
                    "or give the text itself as prompt"
                )
            prompt = self.prompts[prompt_name]
        if not isinstance(prompt, str):
            raise ValueError(f"prompt must be a text; found {prompt!r:.40}")
        if prompt == self._prompt:
            return self._with()
        digest = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return self._with(f"-prompt-{digest}", _prompt=prompt, calibration=None)

    def _with(self, fingerprint_suffix: str = "", **changes: Any) -> Encoder:
        """A copy with other attributes, and a fingerprint of its own if its vectors differ."""
        other = object.__new__(type(self))  # a copy by pickle would have its own parameters
        own = self.fingerprint and self.fingerprint + fingerprint_suffix
        vars(other).update({**vars(self), "fingerprint": own, **changes})
        return other

    @checks_numbers
    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        batch_size: int | None = None,
        normalize: bool = False,
        show_progress: bool = False,
        prompt: str | None = None,
        prompt_name: str | None = None,
        truncate_dim: int | None = None,
        precision: str | None = "float32",
        ranges: np.ndarray | None = None,
        missing: str = "error",
        **others: Any,
    ) -> np.ndarray:
        """Encodes sentences.

        Args:
            sentences: texts, also empty ones: a list, an array of NumPy or Arrow, a column of
                pandas or polars, or any iterator. One string gives one vector.
            batch_size: sentences in a full batch; by default as many as keep the device busy at
                each length. Fewer need less memory. With NumPy, every core computes a batch.
            normalize: scale every vector to length 1 (a zero vector stays zero).
            prompt: text before every sentence, instead of the model's default; "" for none.
            prompt_name: of one of the model's `prompts`, instead of its text.
            truncate_dim: keep only the first dimensions, see `truncated`.
            precision: "float32", "float16", "int8", "binary" or "ubinary", see `quantize`.
            ranges: [2, dim] of the dimensions for "int8", see `learn_ranges`.
            missing: "zero" gives None and NaN among the texts a zero vector; "error" refuses them.
            show_progress: draw a progress bar on stderr.
            **others: arguments of sentence-transformers: `normalize_embeddings` is its name of
                `normalize`, `show_progress_bar` of `show_progress`; `convert_to_tensor=True` gives
                a tensor of PyTorch, `convert_to_numpy=False` a list of them; of the rest only the
                values that change nothing are taken.

        Returns float32 [n, dim], row i for sentence i; [dim] for one string. In other precisions
        float16 or codes, and packed bits are [n, ceil(dim / 8)]. With layers, the last bits of a
        vector depend on the shape of the batch that it was computed in.
        """
        normalize = others.pop("normalize_embeddings", normalize)
        show = others.pop("show_progress_bar", show_progress)
        as_tensor = bool(others.pop("convert_to_tensor", False))
        as_tensors = not others.pop("convert_to_numpy", True) and not as_tensor
        for name, value in others.items():
            if name not in _NEUTRAL:
                raise TypeError(f"encode() got an unexpected keyword argument {name!r}")
            if value != _NEUTRAL[name]:
                raise ValueError(f"{name}={value!r:.40} does not apply here; leave it out")
        check_choice("missing", missing, ("error", "zero"))
        encoder = self
        if prompt is not None or prompt_name is not None:
            encoder = encoder.with_prompt(prompt, prompt_name)
        if truncate_dim is not None:
            encoder = encoder.truncated(truncate_dim)
        is_single = isinstance(sentences, str)
        absent: list[int] = []
        if missing == "zero" and not is_single:
            sentences, absent = _without_missing(sentences)
        texts = check_texts([sentences] if is_single else sentences)
        ranges = check_ranges(precision or "float32", ranges, encoder.dim)
        stats = EncodeStats()
        embeddings = np.empty((len(texts), encoder.dim), np.float32)
        windows = encoder._encode_windows(texts, batch_size, normalize, stats, embeddings)
        with Progress("encode", len(embeddings), "sentence", show=show) as progress:
            for window in windows:
                progress(progress.done + len(window))
        if stats.num_truncated and "truncated" not in self._warned:
            self._warned.add("truncated")
            _logger.warning(
                "%d of %d sentences were truncated to %d tokens (further warnings suppressed)",
                *(stats.num_truncated, stats.num_sentences, self.max_length_tokens),
            )
        embeddings[absent] = 0
        embeddings = quantize(embeddings, precision or "float32", ranges)
        embeddings = embeddings[0] if is_single else embeddings
        if not (as_tensor or as_tensors):
            return embeddings
        import torch

        tensor = torch.from_numpy(embeddings)
        return tensor if as_tensor or is_single else list(tensor)

    def encode_query(self, sentences: str | Sequence[str], **options: Any) -> np.ndarray:
        """Encodes what is searched for, with the prompt "query" or, without one, none."""
        return self.encode(sentences, **self._with_prompt_of(("query",), options))

    def encode_document(self, sentences: str | Sequence[str], **options: Any) -> np.ndarray:
        """Encodes what is searched, with the prompt "document", "passage" or "corpus", or none.

        Texts are not split into sentences, see `encode_documents` for that.
        """
        return self.encode(sentences, **self._with_prompt_of(_DOCUMENT_PROMPTS, options))

    def _with_prompt_of(self, names: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
        """Adds the first prompt that the model has to arguments without one."""
        if options.get("prompt") is not None or options.get("prompt_name") is not None:
            return options
        found = next((self.prompts[name] for name in names if name in self.prompts), "")
        return options | {"prompt": found}

    def learn_ranges(self, sentences: Iterable[str], *, normalize: bool = False) -> np.ndarray:
        """Learns the ranges of vectors for `encode(..., precision="int8", ranges=ranges)`.

        `sentences` are a sample of the texts, some thousands, and `normalize` is as the vectors
        will be encoded. Returns [2, dim] float32, the smallest and largest value of each dimension;
        ValueError if there are fewer than two sentences.
        """
        return learn_ranges(self.encode_stream(sentences, normalize=normalize))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """Cosine of every vector of one side with every vector of the other.

        [n, dim] float, or [dim] for one, and [m, dim] or [dim] to float32 [n, m]; a tensor of
        PyTorch if the first argument is one. ValueError if vectors are not finite or quantized.
        """
        one, other = _unit_sides(embeddings1, embeddings2)
        return _as(embeddings1, one @ other.T)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """Cosine of each vector with that of the same row: [n, dim] twice to float32 [n]."""
        one, other = _unit_sides(embeddings1, embeddings2)
        if len(one) != len(other):
            raise ValueError(
                f"embeddings1 and embeddings2 must have as many rows; got {len(one)} and "
                f"{len(other)}; similarity compares every row with every other"
            )
        return _as(embeddings1, np.einsum("nd,nd->n", one, other))

    # What evaluators of sentence-transformers ask for; nothing keeps the metrics that they record.
    similarity_fn_name = "cosine"
    model_card_data = types.SimpleNamespace(set_evaluation_metrics=lambda *args: None)

    @property
    def device(self) -> Any:
        """The CPU as a device of PyTorch, where `encode(convert_to_tensor=True)` puts vectors."""
        import torch

        return torch.device("cpu")

    def get_embedding_dimension(self) -> int:
        """Returns the size of the vectors, `dim`."""
        return self.dim

    get_sentence_embedding_dimension = get_embedding_dimension  # the older name

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes a model directory, which `xling_jax.load` reads.

        Shorter inputs (`with_max_length`) and vectors (`truncated`) are part of it; a dtype or
        prompt chosen for this encoder is not. ValueError if the encoder does not come from a model
        directory; FileExistsError if there is one, unless `overwrite` replaces it.
        """
        spec = self._loaded("saved")
        sizes = (self.max_length_tokens, self.dim)
        is_whole = sizes == (spec.max_length_tokens, spec.output_dim)
        model_directory.save_changed(
            path,
            spec,
            max_length_tokens=self.max_length_tokens,
            results=spec.config.get("results") if is_whole else None,
            prompts=self.prompts,
            default_prompt=self.default_prompt,
            truncate_dim=None if self.dim == self._model_dim else self.dim,
            calibration=self.calibration,
            overwrite=overwrite,
        )

    def _loaded(self, done: str) -> model_directory.ModelSpec:
        """Returns the spec this encoder was loaded from, with its parameters in host memory."""
        if self._spec is None:
            raise ValueError(
                f"only encoders loaded from a model directory can be {done}; write other "
                "parameters with model_directory.save_model"
            )
        stored = self.params
        if self.backend.name == "jax":
            import jax

            stored = jax.device_get(stored)
        return dataclasses.replace(self._spec, stored=stored)

    def __copy__(self) -> Encoder:
        return self._with()

    def __reduce__(self):
        """Pickles the model itself, not its path: a worker process gets the same vectors."""
        where = "the pickled encoder"
        model = (self._loaded("pickled"), self.dtype, self.backend.name, where)
        return Encoder._of_spec, model, {name: getattr(self, name) for name in _PICKLED}

    def __repr__(self) -> str:
        of_model = "" if self.dim == self._model_dim else f" of {self._model_dim}"
        family = f"family={self._spec.config['family']!r}, " if self._spec else ""
        prompts = f", prompts={[*self.prompts]}" if self.prompts else ""
        languages = ", ".join(self.languages[:8]) + (", …" if len(self.languages) > 8 else "")
        return (
            f"Encoder({family}dim={self.dim}{of_model}, "
            f"max_length_tokens={self.max_length_tokens}, vocab={self.vocab.size}, "
            f"languages={len(self.languages)} ({languages}){prompts}, dtype={self.dtype!r}, "
            f"backend={self.backend.name!r}, devices={self.backend.num_devices}, "
            f"fingerprint={self.fingerprint[:12]!r})"
        )

    @checks_numbers
    def encode_stream(
        self,
        sentences: Iterable[str],
        *,
        batch_size: int | None = None,
        normalize: bool = False,
        stats: EncodeStats | None = None,
    ) -> Iterator[np.ndarray]:
        """Encodes any number of sentences in bounded memory; see `encode`.

        Counts are added to `stats`. Yields float32 [any, dim], the rows in input order.
        """
        check_collection(sentences, "sentences")
        sentences = checked_texts(sentences, "sentences")
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
        check_number(batch_size, "batch_size", at_least=1)
        if prompt := self._prompt:
            if isinstance(sentences, Sequence):
                sentences = [prompt + sentence for sentence in sentences]
            else:
                sentences = (prompt + sentence for sentence in sentences)
        done = unknown = 0
        for window, counts in self._tokenized_windows(sentences):
            rows = len(window.offsets) - 1
            embeddings = np.empty((rows, self.dim), np.float32) if out is None else out[done:]
            embeddings = embeddings[:rows]
            is_whole = self.dim == self._model_dim
            into = embeddings if is_whole else np.empty((rows, self._model_dim), np.float32)
            counts.num_padded_tokens = self.backend.run_window(
                window, into, self.max_length_tokens, batch_size
            )
            if not is_whole:
                embeddings[:] = into[:, : self.dim]
            stats.add(counts)
            done += rows
            unknown += counts.num_unknown
            # A few in a text are emoji, names or noise.
            if unknown > done / 100 and "unknown" not in self._warned:
                self._warned.add("unknown")
                _logger.warning(
                    "%d of %d sentences are at least a quarter unknown tokens, as in a script that "
                    "the encoder was not trained on; their embeddings are unreliable (further "
                    "warnings suppressed)",
                    *(unknown, done),
                )
            if normalize:
                embeddings[:] = l2_normalize(embeddings)
            yield embeddings

    def _tokenized_windows(
        self, sentences: Iterable[str]
    ) -> Iterator[tuple[TokenWindow, EncodeStats]]:
        """Yields windows of tokens, prepared one ahead in a thread unless there is only one."""
        window_sentences = self.backend.window_sentences
        windows = text_windows(sentences, window_sentences)
        tokenized = (tokenize(texts, self.vocab, *self._affixes, self._room) for texts in windows)
        if isinstance(sentences, Sequence) and len(sentences) <= window_sentences:
            yield from tokenized
            return
        with concurrent.futures.ThreadPoolExecutor(1, "xling-tokenize") as pool:
            ahead = pool.submit(next, tokenized, None)
            while (window := ahead.result()) is not None:
                ahead = pool.submit(next, tokenized, None)
                yield window

    def tokenize(self, sentences: Sequence[str]) -> np.ndarray:
        """Ids as the model reads them, [n, longest] int32: prompt, specials, truncated, padded."""
        texts = [self._prompt + text for text in check_texts(sentences)]
        window, _ = tokenize(texts, self.vocab, *self._affixes, self._room)
        lengths = np.diff(window.offsets)
        tokens = np.full((len(texts), lengths.max(initial=1)), self.vocab.pad_id, np.int32)
        tokens[np.arange(tokens.shape[1]) < lengths[:, None]] = window.tokens
        return tokens

    @checks_numbers
    def encode_documents(
        self,
        documents: Sequence[str | Sequence[str]],
        *,
        mode: str = "sentences",
        pooling: str = "mean",
        splitter: str = "rule",
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
            batch_size: as for `encode`.
            normalize: scale the document vectors, but not those of sentences, to length 1.
            show_progress: as for `encode`.

        Returns float32 [n, dim], row i for document i.
        """
        check_collection(documents, "documents")
        documents = list(documents)
        inputs = self.document_inputs(documents, mode, splitter=splitter)
        chunks = [np.empty((0, self.dim), np.float32)]
        with Progress("encode", len(documents), "document", show=show_progress) as progress:
            for chunk in self.encode_document_stream(
                inputs, pooling=pooling, batch_size=batch_size, normalize=normalize
            ):
                chunks.append(chunk)
                progress(progress.done + len(chunk))
        return np.concatenate(chunks)

    def document_inputs(
        self,
        documents: Iterable[str | Sequence[str]],
        mode: str = "sentences",
        *,
        splitter: str = "rule",
    ) -> Iterator[list[str]]:
        """Yields the texts to encode for each document; arguments as `encode_documents`."""
        from xling_jax.encode.documents import document_inputs

        taken = len(self.vocab.encode([self._prompt])[0]) if self._prompt else 0
        room = max(1, self._room - taken)
        return document_inputs(documents, mode, vocab=self.vocab, room=room, splitter=splitter)

    @checks_numbers
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
        Counts are added to `stats`. Yields float32 [any, dim], the rows in input order.
        """
        from xling_jax.encode.documents import pool_stream

        check_collection(documents, "documents")
        # Filled by the tokenizing thread, before the vectors of a document are computed.
        counts: collections.deque[int] = collections.deque()

        def texts() -> Iterator[str]:
            for inputs in self.document_inputs(documents):
                counts.append(len(inputs))
                yield from inputs

        chunks = self.encode_stream(texts(), batch_size=batch_size, stats=stats)
        for pooled in pool_stream(chunks, counts, pooling):
            yield l2_normalize(pooled) if normalize else pooled


# What may differ from the model directory.
_PICKLED = ("dim", "max_length_tokens", "_room", "_prompt", "fingerprint", "calibration")
# Other arguments of sentence-transformers -> the value that changes nothing.
_NEUTRAL = {"output_value": "sentence_embedding"}
_NEUTRAL |= dict.fromkeys(("device", "pool", "chunk_size", "lang", "language", "task"))
_NEUTRAL |= {"processing_kwargs": None}


def _as(given: Any, result: np.ndarray) -> Any:
    """A result as a tensor of PyTorch if an argument is one."""
    if type(given).__module__ != "torch":
        return result
    import torch

    return torch.from_numpy(result)


def _without_missing(sentences: Iterable[Any]) -> tuple[list[Any], list[int]]:
    """The sentences with empty ones in place of missing ones, and the positions of these."""
    check_collection(sentences, "sentences")
    items = list(sentences.to_pylist() if hasattr(sentences, "to_pylist") else sentences)
    absent = [position for position, item in enumerate(items) if is_missing(item)]
    for position in absent:
        items[position] = ""
    return items, absent


def _unit_sides(*sides: Any) -> list[np.ndarray]:
    """Both arguments of `similarity` as unit vectors, [n, dim] and [m, dim]."""
    from xling_jax.align.rows import check_same_dim, normalize

    names = ("embeddings1", "embeddings2")
    unit = [normalize(np.atleast_2d(side), name) for side, name in zip(sides, names, strict=True)]
    check_same_dim(*unit, names)
    return unit
