"""The tokenizer of XLM: Moses, optional lower-casing and removal of accents, byte-pair encoding.

As XLMTokenizer in `transformers`, for one given language.
"""

import functools
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from xling_jax.text.fastbpe import FastBPE

_UNKNOWN = "<unk>"
_SPECIALS = ("<s>", "</s>", "<pad>", _UNKNOWN, *(f"<special{number}>" for number in range(10)))

# XLM segments these with other programs.
_SEGMENTED_LANGUAGES = ("ja", "th", "zh")

# replace-unicode-punctuation.perl of Moses.
_PUNCTUATION = str.maketrans(
    dict(zip("，、”“∶：？《》）！（；」「～’━〈〉【】％", ',,""::?"")!(;""~\'-<>[]%', strict=True))
    | dict(zip("０１２３４５６７８９", "0123456789", strict=True))
    | {"…": "..."}
)
# Of Romanian, as in XLM's code.
_ROMANIAN = str.maketrans("ŞşŢţȘșȚțĂăÂâÎî", "SsTtSsTtAaAaIi")
_FULL_STOP = re.compile(r"[。．]\s*")


class XlmTokenizer:
    """Splits text into ids.

    Args:
        vocabulary: {piece: id} of `vocab.json`.
        merges: text of `merges.txt`, a pair of pieces per line.
        language: code whose Moses rules are used for all text.
        lowercase: lower-case text and remove accents.

    Raises:
        ValueError: if a file is broken, naming it, or the language needs word segmentation.
    """

    def __init__(
        self, vocabulary: Mapping[str, int], merges: str, *, language: str, lowercase: bool
    ):
        if language in _SEGMENTED_LANGUAGES:
            raise ValueError(
                f"language={language!r}: XLM expects words from KyTea, PyThaiNLP or Jieba; "
                "separate the words of your text by spaces and use 'en'"
            )
        if _UNKNOWN not in vocabulary:
            raise ValueError(f"vocab.json: must hold {_UNKNOWN}")
        self._vocabulary, self._unknown = vocabulary, vocabulary[_UNKNOWN]
        specials = "|".join(name for name in _SPECIALS if name in vocabulary)
        self._specials = re.compile(f"({specials})")
        self._bpe = FastBPE(_as_codes(merges))
        self._language, self._lowercase = language, lowercase

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, [length]; special tokens only where it spells them out."""
        ids: list[int] = []
        for number, part in enumerate(self._specials.split(text)):
            is_special = number % 2
            words = [] if is_special else self._split(part)
            pieces = [part] if is_special else [p for word in words for p in self._pieces(word)]
            ids += [self._vocabulary.get(piece, self._unknown) for piece in pieces]
        return ids

    def _split(self, text: str) -> list[str]:
        punctuation, tokenizer = self._moses
        text = _FULL_STOP.sub(". ", text).translate(_PUNCTUATION)
        text = punctuation.normalize(text)
        text = "".join(char for char in text if unicodedata.category(char)[0] != "C")
        if self._language == "ro":
            text = text.translate(_ROMANIAN)
        words = tokenizer.tokenize(text, escape=False)
        if self._lowercase:
            letters = unicodedata.normalize("NFD", " ".join(words).lower())
            letters = "".join(char for char in letters if unicodedata.category(char) != "Mn")
            words = letters.lower().split(" ")
        return [word for word in words if word]

    def _pieces(self, word: str) -> list[str]:
        """Applies byte-pair encoding; the last piece of a word ends in </w>."""
        *inner, last = self._bpe.split(word)
        return [*(piece.removesuffix("@@") for piece in inner), f"{last}</w>"]

    @functools.cached_property
    def _moses(self) -> tuple[Any, Any]:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer

        return MosesPunctNormalizer(self._language), MosesTokenizer(self._language)


def _as_codes(merges: str) -> str:
    """Turns merges into codes of fastBPE, which have a count in the third column."""
    lines = merges.replace("\r\n", "\n").split("\n")
    pairs = [line.split()[:2] for line in lines if line]
    for number, pair in enumerate(pairs, 1):
        if len(pair) != 2:
            raise ValueError(f"merges.txt, line {number}: must hold two pieces; found {pair}")
    return "".join(f"{left} {right} 0\n" for left, right in pairs)
