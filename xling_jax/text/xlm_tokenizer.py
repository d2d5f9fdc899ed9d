"""The tokenizer of XLM: Moses, optional lower case without accents, byte-pair encoding.

As the XLMTokenizer of `transformers` does it for a text whose language it is told.
"""

import json
import re
import unicodedata
from typing import Any

from xling_jax.text.fastbpe import FastBPE

_UNKNOWN = "<unk>"

# XLM finds their words with other programs.
_SEGMENTED_LANGUAGES = ("ja", "th", "zh")

# replace-unicode-punctuation.perl of Moses.
_PUNCTUATION = str.maketrans(
    dict(zip("，、”“∶：？《》）！（；」「～’━〈〉【】％", ',,""::?"")!(;""~\'-<>[]%', strict=True))
    | dict(zip("０１２３４５６７８９", "0123456789", strict=True))
    | {"…": "..."}
)
_FULL_STOP = re.compile(r"[。．]\s*")


class XlmTokenizer:
    """Text to ids.

    Args:
        vocabulary: content of `vocab.json`, {piece: id}.
        merges: content of `merges.txt`, a pair of pieces a line.
        language: code whose Moses rules are used for all text.
        lowercase: whether text is lower-cased and loses its accents.

    Attributes:
        vocabulary: {piece: id}.

    Raises:
        ValueError: if a file is broken, naming it, or the language needs another tokenizer.
    """

    def __init__(self, vocabulary: bytes, merges: bytes, *, language: str, lowercase: bool):
        if language in _SEGMENTED_LANGUAGES:
            raise ValueError(
                f"language={language!r}: XLM reads words as KyTea, PyThaiNLP or Jieba find them; "
                "put spaces between the words of your text and take 'en'"
            )
        self.vocabulary = _read_vocabulary(vocabulary)
        self._bpe = FastBPE(_read_merges(merges))
        self._language, self._lowercase = language, lowercase
        self._punctuation: Any = None
        self._words: Any = None

    def encode(self, text: str) -> list[int]:
        """Ids of a text, [length], without special tokens."""
        unknown = self.vocabulary[_UNKNOWN]
        pieces = (piece for word in self._split(text) for piece in self._pieces(word))
        return [self.vocabulary.get(piece, unknown) for piece in pieces]

    def _split(self, text: str) -> list[str]:
        """The words of a text."""
        if self._punctuation is None:
            from sacremoses import MosesPunctNormalizer, MosesTokenizer

            self._punctuation = MosesPunctNormalizer(self._language)
            self._words = MosesTokenizer(self._language)
        text = _FULL_STOP.sub(". ", text).translate(_PUNCTUATION)
        text = self._punctuation.normalize(text)
        text = "".join(char for char in text if unicodedata.category(char)[0] != "C")
        words = self._words.tokenize(text, escape=False)
        if self._lowercase:
            letters = unicodedata.normalize("NFD", " ".join(words).lower())
            letters = "".join(char for char in letters if unicodedata.category(char) != "Mn")
            words = letters.lower().split(" ")
        return [word for word in words if word]

    def _pieces(self, word: str) -> list[str]:
        """Byte-pair encoding; the last piece of a word ends in </w>."""
        *inner, last = self._bpe.split(word)
        return [*(piece.removesuffix("@@") for piece in inner), f"{last}</w>"]


def _read_vocabulary(content: bytes) -> dict[str, int]:
    try:
        vocabulary = json.loads(content)
    except ValueError as error:
        raise ValueError(f"vocab.json: is not valid JSON: {error}") from error
    if not isinstance(vocabulary, dict) or not all(type(i) is int for i in vocabulary.values()):
        raise ValueError("vocab.json: must map each piece to its id")
    if _UNKNOWN not in vocabulary:
        raise ValueError(f"vocab.json: must hold {_UNKNOWN}")
    return vocabulary


def _read_merges(content: bytes) -> str:
    """Merges as codes of fastBPE, whose third column is a count."""
    try:
        lines = content.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"merges.txt: is not UTF-8 text: {error}") from error
    pairs = [line.split()[:2] for line in lines if line]
    for number, pair in enumerate(pairs, 1):
        if len(pair) != 2:
            raise ValueError(f"merges.txt, line {number}: must hold two pieces; found {pair}")
    return "".join(f"{left} {right} 0\n" for left, right in pairs)
