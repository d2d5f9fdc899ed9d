"""Vocabularies of encoders: text to token ids, and their files in a model directory.

A new kind is a file with a subclass of `Vocabulary` and one line in `VOCABULARIES`.
"""

import abc
import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from xling_jax.files.untrusted import named, parse_json
from xling_jax.registry import Registry

SENTENCEPIECE_FILE = "sentencepiece.model"

# The names are those of `preprocessing.tokenizer` in config.json.
VOCABULARIES = Registry(
    "tokenizer",
    sentencepiece="xling_jax.text.vocab:Vocab",
    laser="xling_jax.text.laser_vocab:LaserVocab",
    huggingface="xling_jax.text.huggingface_vocab:HuggingFaceVocab",
)


class Vocabulary(abc.ABC):
    """Splits text into tokens as an encoder was trained with, preprocessing included.

    Special tokens have ids here, None if there are none; the encoder adds them to a sentence.

    Attributes:
        FILES: names of the files that it may consist of.
        TEXT: dataclass of its options, what is done with text before it is split.
        RARE: options that are recorded only where they have another value than this, so that
            directories from before them keep their fingerprints.
        files: content of its files by name; equal files and options give equal ids.
        size: number of ids, special tokens included.
        lowercase: whether text is lower-cased; None if the tokenizer decides.
        truncation_side: where texts are cut that are too long, `right` or `left`.
    """

    FILES: ClassVar[tuple[str, ...]]
    TEXT: ClassVar[type]
    RARE: ClassVar[Mapping[str, Any]] = {}
    text: Any
    files: dict[str, bytes]
    size: int
    bos_id: int | None
    eos_id: int | None
    pad_id: int | None
    unk_id: int | None = None
    mask_id: int | None = None
    lowercase: bool | None
    truncation_side: str = "right"

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], options: Mapping[str, Any]) -> Self:
        """Makes a vocabulary from `files` and recorded `options`; ValueError if broken."""
        return cls(files, cls.TEXT(**options))

    @property
    def options(self) -> dict[str, Any]:
        """The preprocessing as JSON values, recorded in config.json."""
        options = dataclasses.asdict(self.text)
        return {k: v for k, v in options.items() if k not in self.RARE or v != self.RARE[k]}

    @abc.abstractmethod
    def split(self, texts: Sequence[str], num_threads: int) -> Sequence[Sequence[int]]:
        """Preprocesses texts and splits them into ids, without special tokens around them."""

    @abc.abstractmethod
    def pieces(self) -> list[str]:
        """Returns all pieces in the order of their ids; "" for an id without one."""

    def encode(self, texts: Sequence[str], num_threads: int = -1) -> list[np.ndarray]:
        """Preprocesses and splits texts: one [length] int32 array of ids each.

        There are no special tokens. SentencePiece uses `num_threads` threads, -1 for all cores.
        ValueError if `texts` is a single string, which would be read character by character.
        """
        return [np.asarray(row, np.int32) for row in self._split(texts, num_threads)]

    def encode_flat(
        self, texts: Sequence[str], num_threads: int = -1
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `encode`, in one array: ids [sum of lengths] int32, and lengths [n] int64."""
        rows = self._split(texts, num_threads)
        lengths = [*map(len, rows)]
        ids = itertools.chain.from_iterable(rows)
        return np.fromiter(ids, np.int32, sum(lengths)), np.array(lengths, np.int64)

    def _split(self, texts: Sequence[str], num_threads: int) -> Sequence[Sequence[int]]:
        if isinstance(texts, str):
            raise ValueError("texts must be a sequence of strings; found one string, wrap it: [s]")
        return self.split(texts, num_threads)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hex digest of files and options: equal fingerprints mean equal ids."""
        digest = hashlib.sha256(json.dumps(self.options).encode())
        for name, content in self.files.items():
            digest.update(f"{name} {len(content)}".encode())
            digest.update(content)
        return digest.hexdigest()

    def __reduce__(self):
        """Pickles files and options, for worker processes."""
        return type(self).from_files, (self.files, self.options)


def record(vocab: Vocabulary) -> dict[str, Any]:
    """Returns the `preprocessing` of config.json; without a tokenizer it means SentencePiece."""
    (kind,) = (name for name in VOCABULARIES if VOCABULARIES[name] is type(vocab))
    return ({} if kind == "sentencepiece" else {"tokenizer": kind}) | vocab.options


def read_vocab(directory: Path, recorded: Mapping[str, Any]) -> Vocabulary:
    """Reads the vocabulary of a model directory, by the `preprocessing` of its config.json.

    ValueError if tokenizer or options are unknown, or files broken; ImportError without a library.
    """
    options = dict(recorded)
    try:
        kind = VOCABULARIES[options.pop("tokenizer", "sentencepiece")]
        paths = [directory / name for name in kind.FILES]
        files = {path.name: path.read_bytes() for path in paths if path.is_file()}
        return kind.from_files(files, options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{directory}: {error}") from error


def read_model_vocab(directory: Path) -> Vocabulary:
    """Reads the vocabulary of a model directory and nothing else of it; errors as `read_vocab`."""
    path = directory / "config.json"
    config = parse_json(path.read_bytes(), str(path))
    recorded = config.get("preprocessing") if isinstance(config, dict) else None
    if not isinstance(recorded, dict):
        raise ValueError(f"{path}: has no preprocessing; it is not the config of a model")
    return read_vocab(directory, recorded)


def in_order(ids: Mapping[str, int]) -> list[str]:
    """{piece: id} as pieces in the order of their ids; "" for an id without one."""
    pieces = [""] * (max(ids.values()) + 1)
    for piece, number in ids.items():
        pieces[number] = piece
    return pieces


def write_vocab(vocab: Vocabulary, directory: Path) -> None:
    """Writes the files of a vocabulary into a directory."""
    for name, content in vocab.files.items():
        (directory / name).write_bytes(content)


def require_file(files: Mapping[str, bytes], name: str) -> bytes:
    """Returns the content of a file; raises ValueError if it is missing."""
    if name not in files:
        raise ValueError(f"{name} is missing; it is part of the vocabulary")
    return files[name]


def load_sentencepiece(content: bytes, where: str) -> Any:
    """Loads a `SentencePieceProcessor`; ValueError with `where` if the content is no model."""
    import sentencepiece

    try:
        if not content:  # an empty message parses, as a model without pieces
            raise RuntimeError("no bytes")
        return sentencepiece.SentencePieceProcessor(model_proto=content)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"{where}: not a SentencePiece model ({len(content)} bytes); train one with `xling "
            "prepare` or use a `.model` file written by spm_train"
        ) from error


def decode_file(files: Mapping[str, bytes], name: str) -> str:
    """Returns the text of a file; raises ValueError if it is missing or not UTF-8."""
    content = require_file(files, name)
    with named(f"{name}: not UTF-8 text"):
        return content.decode("utf-8")


def read_dictionary(files: Mapping[str, bytes], name: str) -> dict[str, int]:
    """Returns a JSON file that maps pieces to ids; raises ValueError if it is anything else."""
    dictionary = parse_json(require_file(files, name), name)
    if not isinstance(dictionary, dict) or not all(
        type(number) is int and number >= 0 for number in dictionary.values()
    ):
        raise ValueError(f"{name}: must map each piece to its id")
    return dictionary
