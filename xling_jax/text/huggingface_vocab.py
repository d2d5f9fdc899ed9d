"""Vocabularies of encoders published on Hugging Face: ids as from their own tokenizers.

tokenizer.json               read by the `tokenizers` library
vocab.json and merges.txt    of XLM, whose tokenizer is Moses with byte-pair encoding
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from xling_jax.text.vocabularies import Vocabulary, decode_file, read_dictionary
from xling_jax.text.xlm_tokenizer import XlmTokenizer

TOKENIZER_FILE = "tokenizer.json"
VOCABULARY_FILE = "vocab.json"
MERGES_FILE = "merges.txt"

# Published vocabularies have up to half a million pieces.
_MAX_ID = 10**7


@dataclasses.dataclass(frozen=True)
class HuggingFaceText:
    """Settings of a published tokenizer besides its files.

    Attributes:
        bos_id, eos_id: ids of the special tokens before and after a text.
        pad_id: id of padding.
        prefix: prepended to every text.
        language: XLM only: code whose Moses rules are used, whatever the language of a text.
        lowercase: XLM only: lower-case text and remove accents.
    """

    bos_id: int
    eos_id: int
    pad_id: int
    prefix: str = ""
    language: str = "en"
    lowercase: bool = False


class HuggingFaceVocab(Vocabulary):
    """A published tokenizer.

    Special tokens written out in a text are special tokens, as in `transformers`, except padding,
    which is removed. The ids of an empty text are those of the prefix.

    Args:
        files: `tokenizer.json`, or `vocab.json` with `merges.txt`.
        text: what is done with text, and the ids of special tokens.

    Raises:
        ValueError: if a file is missing or broken, naming it, or an id is not in the vocabulary.
        ImportError: without `tokenizers` for a `tokenizer.json`.
    """

    FILES = (TOKENIZER_FILE, VOCABULARY_FILE, MERGES_FILE)
    TEXT = HuggingFaceText

    def __init__(self, files: Mapping[str, bytes], text: HuggingFaceText):
        self.files = dict(sorted(files.items()))
        self.text, self.lowercase = text, text.lowercase or None
        self.bos_id, self.eos_id, self.pad_id = text.bos_id, text.eos_id, text.pad_id
        if TOKENIZER_FILE in files:
            tokenizer = load_tokenizer(files[TOKENIZER_FILE], TOKENIZER_FILE)
            tokenizer.no_padding()
            tokenizer.no_truncation()
            self._tokenize = lambda texts: [row.ids for row in _encode_fast(tokenizer, texts)]
            ids = tokenizer.get_vocab(with_added_tokens=True).values()
        else:
            dictionary = read_dictionary(files, VOCABULARY_FILE)
            merges = decode_file(files, MERGES_FILE)
            settings = {"language": text.language, "lowercase": text.lowercase}
            xlm = XlmTokenizer(dictionary, merges, **settings)
            self._tokenize = lambda texts: [xlm.encode(text) for text in texts]
            ids = dictionary.values()
        self.size = max(ids) + 1
        for name in ("bos_id", "eos_id", "pad_id"):
            if not 0 <= getattr(self, name) < self.size:
                raise ValueError(
                    f"{name} must be an id of the vocabulary, below {self.size}; "
                    f"found {getattr(self, name)}"
                )

    def split(self, texts: Sequence[str], num_threads: int) -> list[list[int]]:
        """See `Vocabulary.split`; the tokenizers choose their own threads."""
        prefix, pad_id = self.text.prefix, self.pad_id
        rows = self._tokenize([prefix + text for text in texts] if prefix else list(texts))
        return [[i for i in row if i != pad_id] if pad_id in row else row for row in rows]


def import_tokenizers() -> Any:
    """Returns the `tokenizers` library.

    Raises:
        ImportError: if it is not installed; says how to install it.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            "tokenizers of published encoders need another package; "
            "pip install 'xling_jax[huggingface]'"
        ) from error
    return tokenizers


def load_tokenizer(content: bytes, where: str) -> Any:
    """Loads a `tokenizers.Tokenizer` from the content of a tokenizer.json.

    Raises:
        ValueError: if it is not one; `where` names the file.
        ImportError: without `tokenizers`.
    """
    tokenizers = import_tokenizers()
    try:
        tokenizer = tokenizers.Tokenizer.from_str(content.decode("utf-8"))
        check_ids(tokenizer)
        return tokenizer
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # plain `Exception`, and the panics of Rust, which are none
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{where}: not a tokenizer of the tokenizers library: {reason:.200}"
        ) from error


def check_ids(tokenizer: Any) -> None:
    """Raises ValueError for an id so large that the library would visit millions below it."""
    if (largest := max(tokenizer.get_vocab().values(), default=0)) > _MAX_ID:
        raise ValueError(f"id {largest} is too large for a vocabulary")


def _encode_fast(tokenizer: Any, texts: Sequence[str]) -> list[Any]:
    # The library works on UTF-8, which cannot represent lone surrogates.
    try:
        return tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    except (TypeError, UnicodeEncodeError):
        written = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        return tokenizer.encode_batch_fast(written, add_special_tokens=False)
