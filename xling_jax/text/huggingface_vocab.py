"""The vocabulary of a published encoder: text to ids as its own tokenizer does it.

tokenizer.json               read by the `tokenizers` library
vocab.json and merges.txt    of XLM, whose tokenizer is Moses and byte-pair encoding
"""

import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xling_jax.text.xlm_tokenizer import XlmTokenizer

TOKENIZER_FILE = "tokenizer.json"
VOCABULARY_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
FILES = (TOKENIZER_FILE, VOCABULARY_FILE, MERGES_FILE)


@dataclasses.dataclass(frozen=True)
class HuggingFaceText:
    """What a model directory records of its tokenizer beside the files.

    Attributes:
        bos_id, eos_id: of the special tokens in front of and behind a text.
        pad_id: of padding.
        prefix: put in front of every text.
        language: XLM alone: whose Moses rules are used, whatever the language of a text.
        lowercase: XLM alone: lower case, and accents removed.
    """

    bos_id: int
    eos_id: int
    pad_id: int
    prefix: str = ""
    language: str = "en"
    lowercase: bool = False


class HuggingFaceVocab:
    """A published tokenizer; it has what `data.vocab.Vocab` has for encoding.

    Special tokens written out in a text are special tokens, as they are to `transformers`, but for
    padding, which is left out.

    Args:
        files: contents by name: `tokenizer.json`, or `vocab.json` with `merges.txt`.
        text: what to do with text, and the ids of special tokens.

    Attributes:
        files, text: as given.
        size: number of ids, up to the largest.
        bos_id, eos_id, pad_id: of the special tokens.

    Raises:
        ValueError: if a file is missing or broken, naming it, or an id is not in the vocabulary.
        ImportError: without `tokenizers` for a `tokenizer.json`.
    """

    def __init__(self, files: Mapping[str, bytes], text: HuggingFaceText):
        self.files = {name: bytes(content) for name, content in sorted(files.items())}
        self.text = text
        self.bos_id, self.eos_id, self.pad_id = text.bos_id, text.eos_id, text.pad_id
        if TOKENIZER_FILE in self.files:
            tokenizer = load_tokenizer(self.files[TOKENIZER_FILE], TOKENIZER_FILE)
            tokenizer.no_padding()
            tokenizer.no_truncation()
            self._split = lambda texts: [row.ids for row in _encode_fast(tokenizer, texts)]
            ids = tokenizer.get_vocab(with_added_tokens=True).values()
        else:
            for name in (VOCABULARY_FILE, MERGES_FILE):
                if name not in self.files:
                    raise ValueError(f"{name}: missing; a vocabulary without tokenizer.json has it")
            xlm = XlmTokenizer(
                self.files[VOCABULARY_FILE],
                self.files[MERGES_FILE],
                language=text.language,
                lowercase=text.lowercase,
            )
            self._split = lambda texts: [xlm.encode(text) for text in texts]
            ids = xlm.vocabulary.values()
        self.size = max(ids) + 1
        for name in ("bos_id", "eos_id", "pad_id"):
            if not 0 <= getattr(self, name) < self.size:
                raise ValueError(
                    f"{name} must be an id of the vocabulary, below {self.size}; "
                    f"found {getattr(self, name)}"
                )

    def __reduce__(self):
        """Pickles as its files, so that worker processes can have it."""
        return HuggingFaceVocab, (self.files, self.text)

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Splits texts into tokens; adds no special tokens.

        Args:
            texts: the texts; an empty one gives the ids of the prefix, mostly none.

        Returns:
            One [length] int32 array of ids for each text, in order.

        Raises:
            ValueError: if `texts` is a single string, which would be read letter by letter.
        """
        return [np.asarray(row, np.int32) for row in self._rows(texts)]

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of `encode` in one [sum of lengths] int32 array, and the [n] int64 lengths."""
        rows = self._rows(texts)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = itertools.chain.from_iterable(rows)
        return np.fromiter(ids, np.int32, int(lengths.sum())), lengths

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hex digest of the files and of the settings: equal means equal ids."""
        digest = hashlib.sha256(json.dumps(dataclasses.asdict(self.text)).encode())
        for name, content in self.files.items():
            digest.update(f"{name} {len(content)}".encode())
            digest.update(content)
        return digest.hexdigest()

    def _rows(self, texts: Sequence[str]) -> list[list[int]]:
        if isinstance(texts, str):
            raise ValueError("texts must be a sequence of strings; found one string, wrap it: [s]")
        prefix, pad_id = self.text.prefix, self.pad_id
        rows = self._split([prefix + text for text in texts] if prefix else list(texts))
        return [[i for i in row if i != pad_id] if pad_id in row else row for row in rows]


def import_tokenizers() -> Any:
    """The `tokenizers` library.

    Raises:
        ImportError: without it; says how to get it.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            "the tokenizers of published encoders need another package; "
            "pip install 'xling_jax[huggingface]'"
        ) from error
    return tokenizers


def load_tokenizer(content: bytes, where: str) -> Any:
    """A `tokenizers.Tokenizer` from the content of a tokenizer.json.

    Raises:
        ValueError: if it is none; `where` names the file.
        ImportError: without `tokenizers`.
    """
    tokenizers = import_tokenizers()
    try:
        return tokenizers.Tokenizer.from_str(content.decode("utf-8"))
    except Exception as error:  # the library raises bare ones
        raise ValueError(f"{where}: is no tokenizer of the tokenizers library: {error}") from error


def _encode_fast(tokenizer: Any, texts: Sequence[str]) -> list[Any]:
    # Lone surrogates cannot be written as UTF-8, which the library works on.
    try:
        return tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    except (TypeError, UnicodeEncodeError):
        written = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        return tokenizer.encode_batch_fast(written, add_special_tokens=False)
