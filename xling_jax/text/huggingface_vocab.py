"""Vocabularies of encoders published on Hugging Face: ids as from their own tokenizers.

tokenizer.json               read by the `tokenizers` library
vocab.json and merges.txt    of XLM, whose tokenizer is Moses with byte-pair encoding
"""

import base64
import dataclasses
import functools
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xling_jax.files.untrusted import one_line
from xling_jax.registry import check_choice, import_extra
from xling_jax.text.laser_vocab import CACHED_WORDS, merge_pairs
from xling_jax.text.vocabularies import Vocabulary, decode_file, in_order, read_dictionary

TOKENIZER_FILE = "tokenizer.json"
VOCABULARY_FILE = "vocab.json"
MERGES_FILE = "merges.txt"

# As published tokenizers call the token of masked language modeling.
_MASKS = ("<mask>", "[MASK]")
_XLM_MASKS = ("<special1>",)
_UNKNOWN = ("<unk>", "[UNK]")

_CHARSMAP = re.compile(rb'"precompiled_charsmap"\s*:\s*"([^"]*)"')

# Published vocabularies have up to half a million pieces.
_MAX_ID = 10**7

_XLM_UNKNOWN = "<unk>"
_XLM_SPECIALS = (
    "<s>",
    "</s>",
    "<pad>",
    _XLM_UNKNOWN,
    *(f"<special{number}>" for number in range(10)),
)

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


@dataclasses.dataclass(frozen=True)
class HuggingFaceText:
    """Options of a published tokenizer besides its files.

    Attributes:
        bos_id, eos_id: ids of the special tokens before and after a text; None without one.
        pad_id: id of padding, which may follow the last one of the tokenizer; where it is an id of
            the tokenizer, such tokens are removed from a text.
        prefix: prepended to every text.
        language: XLM only: code whose Moses rules are used, whatever the language of a text.
        lowercase: XLM only: lower-case text and remove accents.
        truncation_side: where texts are cut that are too long, `right` or `left`.
        truncates: whether the limit in `tokenizer.json` applies, before padding is removed; a
            shorter one then cuts on the same side.
        max_characters: a text is cut after so many before it is split; None for no limit.
    """

    bos_id: int | None
    eos_id: int | None
    pad_id: int
    prefix: str = ""
    language: str = "en"
    lowercase: bool = False
    truncation_side: str = "right"
    truncates: bool = False
    max_characters: int | None = None


class HuggingFaceVocab(Vocabulary):
    """A published tokenizer: `tokenizer.json`, or `vocab.json` with `merges.txt`.

    Special tokens written out in a text are special tokens, as in `transformers`, except padding,
    which is removed. The ids of an empty text are those of the prefix. ValueError if a file is
    missing or broken, or an id not in the vocabulary; ImportError without `tokenizers`.
    """

    FILES = (TOKENIZER_FILE, VOCABULARY_FILE, MERGES_FILE)
    TEXT = HuggingFaceText
    RARE = {"truncation_side": "right", "truncates": False, "max_characters": None}

    def __init__(self, files: Mapping[str, bytes], text: HuggingFaceText):
        self.files = dict(sorted(files.items()))
        self.text, self.lowercase = text, text.lowercase or None
        self.bos_id, self.eos_id, self.pad_id = text.bos_id, text.eos_id, text.pad_id
        self.truncation_side = text.truncation_side
        check_choice("truncation_side", text.truncation_side, ("right", "left"))
        if TOKENIZER_FILE in files:
            tokenizer = load_tokenizer(files[TOKENIZER_FILE], TOKENIZER_FILE)
            tokenizer.no_padding()
            if not text.truncates:
                tokenizer.no_truncation()
            elif tokenizer.truncation:
                self.truncation_side = tokenizer.truncation["direction"].lower()
            self._tokenize = lambda texts: [row.ids for row in _encode_fast(tokenizer, texts)]
            self._ids, masks = tokenizer.get_vocab(with_added_tokens=True), _MASKS
        else:
            dictionary = read_dictionary(files, VOCABULARY_FILE)
            merges = decode_file(files, MERGES_FILE)
            options = {"language": text.language, "lowercase": text.lowercase}
            xlm = XlmTokenizer(dictionary, merges, **options)
            self._tokenize = lambda texts: [xlm.encode(text) for text in texts]
            self._ids, masks = dictionary, _XLM_MASKS
        self.mask_id = next((self._ids[name] for name in masks if name in self._ids), None)
        self.unk_id = next((self._ids[name] for name in _UNKNOWN if name in self._ids), None)
        if self.unk_id is None and TOKENIZER_FILE in files:
            self.unk_id = unknown_id(tokenizer)
        size = max(self._ids.values(), default=-1) + 1
        for name, limit in (("bos_id", size), ("eos_id", size), ("pad_id", size + 1)):
            number = getattr(self, name)
            if number is not None and not 0 <= number < limit:
                raise ValueError(
                    f"{name} must be an id of the vocabulary, below {limit}; found {number}"
                )
        self.size = max(size, text.pad_id + 1)

    def split(self, texts: Sequence[str], num_threads: int) -> list[list[int]]:
        """See `Vocabulary.split`; the tokenizers choose their own threads."""
        prefix, pad_id, limit = self.text.prefix, self.pad_id, self.text.max_characters
        if prefix:
            texts = [prefix + text for text in texts]
        rows = self._tokenize([text[:limit] for text in texts])
        return [[i for i in row if i != pad_id] if pad_id in row else row for row in rows]

    def pieces(self) -> list[str]:
        pieces = in_order(self._ids)
        return pieces + [""] * (self.size - len(pieces))  # padding of its own


def import_tokenizers() -> Any:
    """Returns the `tokenizers` library; ImportError says how to install it."""
    return import_extra("tokenizers", "huggingface", "this")


def load_tokenizer(content: bytes, where: str) -> Any:
    """Loads a `tokenizers.Tokenizer` from the content of the file `where`, or raises ValueError."""
    tokenizers = import_tokenizers()
    try:
        for charsmap in _CHARSMAP.findall(content):
            _check_charsmap(base64.b64decode(charsmap.replace(rb"\/", b"/"), validate=True))
        tokenizer = tokenizers.Tokenizer.from_str(content.decode("utf-8"))
        # The library would visit the millions of ids below.
        if (largest := max(tokenizer.get_vocab().values(), default=0)) > _MAX_ID:
            raise ValueError(f"id {largest} is too large for a vocabulary")
        return tokenizer
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # plain `Exception`, and the panics of Rust, which are none
        raise ValueError(
            f"{where}: not a tokenizer of the tokenizers library: {one_line(error, 200)}"
        ) from error


def _check_charsmap(charsmap: bytes) -> None:
    """Raises ValueError for rules of SentencePiece that lead out of their tables.

    The library panics at them, some when a text is split, and prints its stack first. They are the
    size of a trie in bytes, its nodes (a double array), and the replacements, each ended by NUL.
    """
    size = int.from_bytes(charsmap[:4], "little")
    replacements = charsmap[4 + size :]
    if not size or size % 4 or len(charsmap) < 4 + size or replacements[-1:] not in (b"", b"\0"):
        raise ValueError("the precompiled_charsmap is damaged")
    replacements.decode("utf-8")
    nodes = np.frombuffer(charsmap, "<u4", size // 4, 4)
    is_value = nodes >> 31 == 1
    values = nodes[is_value] & 0x7FFFFFFF
    children = np.arange(len(nodes)) ^ ((nodes >> 10) << ((nodes & 512) >> 6))
    starts = np.frombuffer(b"\0" + replacements[:-1], np.uint8) == 0
    inside = (children[~is_value] | 255) < len(nodes)
    if not inside.all() or (values >= len(starts)).any() or not starts[values].all():
        raise ValueError("the precompiled_charsmap is damaged")


def unknown_id(tokenizer: Any) -> int | None:
    """The id of unknown tokens of a `tokenizers.Tokenizer`, None if it has none."""
    if hasattr(tokenizer.model, "unk_token"):
        token = tokenizer.model.unk_token
        return None if token is None else tokenizer.token_to_id(token)
    return json.loads(tokenizer.to_str())["model"].get("unk_id")


def _encode_fast(tokenizer: Any, texts: Sequence[str]) -> list[Any]:
    # The library works on UTF-8, which cannot represent lone surrogates.
    try:
        return tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    except (TypeError, UnicodeEncodeError):
        written = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        return tokenizer.encode_batch_fast(written, add_special_tokens=False)


class XlmTokenizer:
    """XLM's: Moses, optional lower-casing and removal of accents, byte-pair encoding.

    As XLMTokenizer in `transformers`, for one given language. `vocabulary` is {piece: id}, `merges`
    has a pair of pieces per line. ValueError if a file is broken, or the language needs word
    segmentation.
    """

    def __init__(
        self, vocabulary: Mapping[str, int], merges: str, *, language: str, lowercase: bool
    ):
        if language in _SEGMENTED_LANGUAGES:
            raise ValueError(
                f"language={language!r}: XLM expects words from KyTea, PyThaiNLP or Jieba; "
                "separate the words of your text by spaces and use 'en'"
            )
        if _XLM_UNKNOWN not in vocabulary:
            raise ValueError(f"vocab.json: must hold {_XLM_UNKNOWN}")
        self._vocabulary, self._unknown = vocabulary, vocabulary[_XLM_UNKNOWN]
        specials = "|".join(name for name in _XLM_SPECIALS if name in vocabulary)
        self._specials = re.compile(f"({specials})")
        self._ranks = {pair: rank for rank, pair in enumerate(_pairs(merges))}
        self._pieces = functools.lru_cache(CACHED_WORDS)(self._merged)
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

    def _merged(self, word: str) -> list[str]:
        return merge_pairs([*word[:-1], f"{word[-1]}</w>"], self._ranks)

    @functools.cached_property
    def _moses(self) -> tuple[Any, Any]:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer

        return MosesPunctNormalizer(self._language), MosesTokenizer(self._language)


def _pairs(merges: str) -> list[tuple[str, str]]:
    lines = merges.replace("\r\n", "\n").split("\n")
    pairs = [tuple(line.split()[:2]) for line in lines if line]
    for number, pair in enumerate(pairs, 1):
        if len(pair) != 2:
            raise ValueError(f"merges.txt, line {number}: must hold two pieces; found {[*pair]}")
    return pairs
