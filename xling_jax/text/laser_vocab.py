"""Vocabularies of LASER's published encoders: ids exactly as in LASER's code.

Text is preprocessed and split into pieces:

    LASER (2018)      remove control characters, Moses punctuation, Moses tokenizer, romanization
                      of Greek, lower-casing; fastBPE
    LASER2, LASER3    remove control characters, Moses punctuation, lower-casing; SentencePiece
    SONAR             as it is; SentencePiece

The pieces are joined to text, and each word of that text is looked up in a dictionary whose order
and content differ from those of the splitter; missing words are `<unk>`.

Moses is sacremoses, as in Meta's `laser_encoders`, corrected where it differs from the Perl scripts
used in training and the correction takes one line. The tokenizer still differs in the colon in
Finnish and Swedish, the middle dot in Catalan, and apostrophes in Catalan, Irish, Somali and Tetun.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from xling_jax.text.vocabularies import (
    SENTENCEPIECE_FILE,
    Vocabulary,
    decode_file,
    in_order,
    load_sentencepiece,
    read_dictionary,
)

DICTIONARY_FILE = "dictionary.json"
CODES_FILE = "fastbpe.codes"
VOCABULARY_FILE = "fastbpe.vocab"

# LASER's code sets these ids whatever the dictionary says.
SPECIAL_IDS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}

# Most words are frequent; large enough for the rare ones of a window as well.
CACHED_WORDS = 1 << 17
_END = "</w>"
_CONTINUED = "@@"

# LASER segments these with jieba (Chinese) and MeCab (Japanese).
_SEGMENTED_LANGUAGES = ("cmn", "ja", "wuu", "yue", "zh")


@dataclasses.dataclass(frozen=True)
class LaserText:
    """A function that preprocesses text, by the Moses rules of `language`, whichever a text is in.

    `laser_encoders` uses `en` for all, and published encoders lower-case. `moses_tokenizer` splits
    text into words, for encoders with fastBPE; `romanize_greek` replaces Greek letters by Latin
    ones; `raw` leaves text as it is, but for lower-casing.
    """

    language: str = "en"
    lowercase: bool = True
    moses_tokenizer: bool = False
    romanize_greek: bool = False
    raw: bool = False

    def __post_init__(self):
        if self.moses_tokenizer and self.language in _SEGMENTED_LANGUAGES:
            raise ValueError(
                f"language={self.language!r}: this encoder expects words from jieba or MeCab; "
                "separate the words of your text by spaces and use 'en', or use LASER2"
            )

    def __reduce__(self):
        """Pickles the settings alone; the rules are compiled again."""
        return type(self), dataclasses.astuple(self)

    def __call__(self, text: str) -> str:
        """Preprocesses a text, in LASER's order."""
        if self.raw:
            text = text.encode("utf-8", "replace").decode()  # which has no lone surrogates
            return text.lower() if self.lowercase else text
        # Perl reads lines with their ends; a rule for full stops before quotes depends on that.
        text = self._moses_punctuation.normalize(self._control.sub(" ", text) + "\n")
        if self.moses_tokenizer:
            text = self._moses_words.tokenize(text, escape=False, return_str=True)
        if self.romanize_greek:
            try:
                from transliterate import translit
            except ImportError:
                raise ValueError(
                    "language='el': this encoder romanizes Greek, which needs another package; "
                    "pip install transliterate"
                ) from None

            text = translit(text, "el", reversed=True)
        return text.lower() if self.lowercase else text

    @functools.cached_property
    def _control(self) -> Any:
        import regex

        return regex.compile(r"\p{C}")

    @functools.cached_property
    def _moses_punctuation(self) -> Any:
        from sacremoses import MosesPunctNormalizer

        normalizer = MosesPunctNormalizer(self.language, perl_parity=True)
        rules = [(old, '"' if old in ("‘", "‚") else new) for old, new in normalizer.substitutions]
        # In Perl, every language but en and cs has the rules that sacremoses has for de, es and fr.
        if self.language not in ("en", "cs", "cz", "de", "es", "fr"):
            rules[-1:-1] = MosesPunctNormalizer.DE_ES_FR_QUOTATION_FOLLOWED_BY_COMMA
        normalizer.substitutions = rules
        return normalizer

    @functools.cached_property
    def _moses_words(self) -> Any:
        from sacremoses import MosesTokenizer

        tokenizer = MosesTokenizer(self.language)
        # sacremoses treats Chinese, Japanese and Korean characters as letters only in their own
        # languages; in others, each would become a word.
        pattern, padded = MosesTokenizer("cjk").PAD_NOT_ISALNUM
        # Its class of 190,000 characters takes most of the time: ask it once for each character.
        pad = functools.cache(lambda character: re.sub(pattern, padded, character))
        others = re.compile(r"[^A-Za-z0-9\s.'`,-]")
        tokenizer.PAD_NOT_ISALNUM = others, lambda match: pad(match[0])
        return tokenizer


def merge_pairs(pieces: list[str], ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """Byte-pair encoding: merges neighbors, the pair learned first at each step."""
    while len(pieces) > 1:
        pairs = set(zip(pieces, pieces[1:]))
        best = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        merged, position = [], 0
        while position < len(pieces):
            step = 2 if tuple(pieces[position : position + 2]) == best else 1
            merged.append("".join(pieces[position : position + step]))
            position += step
        pieces = merged
    return pieces


class FastBPE:
    """fastBPE: splits words into subwords; all but the last of a word end in `@@`.

    Follows fastBPE's `applybpe`, which differs from other BPE programs where a subword is missing
    from the vocabulary.

    `codes` has `LEFT RIGHT COUNT` per line, in the order of the merges; `vocabulary` `SUBWORD
    COUNT`, "" for no limit. ValueError names the number of a line of another form.
    """

    def __init__(self, codes: str, vocabulary: str = ""):
        pairs = [(left, right) for left, right, _ in _fastbpe_rows(codes, 3, "codes")]
        self._ranks = {pair: rank for rank, pair in enumerate(pairs)}
        self._halves = {left + right: (left, right) for left, right in pairs}
        self.vocabulary = frozenset(word for word, _ in _fastbpe_rows(vocabulary, 2, "vocabulary"))
        self.split = functools.lru_cache(CACHED_WORDS)(self._split)

    def _split(self, word: str) -> tuple[str, ...]:
        """Splits a word, which must not contain white space."""
        subwords = merge_pairs([*word[:-1], word[-1] + _END], self._ranks)
        if self.vocabulary:
            last = len(subwords) - 1
            subwords = [
                part
                for number, subword in enumerate(subwords)
                for part in self._limit(subword, final=number == last)
            ]
        return (*(part + _CONTINUED for part in subwords[:-1]), subwords[-1].removesuffix(_END))

    def _limit(self, subword: str, final: bool) -> list[str]:
        """Undoes merges until every part is in the vocabulary or cannot be split."""
        written = subword.removesuffix(_END) if final else subword + _CONTINUED
        if written in self.vocabulary or subword not in self._halves:
            return [subword]
        left, right = self._halves[subword]
        return [*self._limit(left, False), *self._limit(right, final)]


def _fastbpe_rows(text: str, num_fields: int, kind: str) -> list[list[str]]:
    rows = [[field for field in line.split(" ") if field] for line in text.split("\n")]
    if rows and not rows[-1]:
        rows.pop()
    for number, row in enumerate(rows, 1):
        if len(row) != num_fields or not row[-1].strip().lstrip("-").isdigit():
            raise ValueError(
                f"fastBPE {kind}, line {number}: must hold {num_fields} fields, the last a count; "
                f"found {' '.join(row)!r:.60}"
            )
    return rows


class LaserVocab(Vocabulary):
    """A dictionary {piece: id} with its preprocessing and its splitter.

    `files` are `dictionary.json`, and either `sentencepiece.model` or `fastbpe.codes` with
    `fastbpe.vocab`; ValueError names one that is missing or broken.
    """

    FILES = (DICTIONARY_FILE, SENTENCEPIECE_FILE, CODES_FILE, VOCABULARY_FILE)
    TEXT = LaserText
    RARE = {"raw": False}
    bos_id, pad_id, eos_id, unk_id = SPECIAL_IDS.values()

    def __init__(self, files: Mapping[str, bytes], text: LaserText):
        self.files = dict(sorted(files.items()))
        self.text, self.lowercase = text, text.lowercase
        self.dictionary = read_dictionary(files, DICTIONARY_FILE)
        for piece, number in SPECIAL_IDS.items():
            if self.dictionary.get(piece) != number:
                raise ValueError(
                    f"{DICTIONARY_FILE}: {piece} must have id {number}; "
                    f"found {self.dictionary.get(piece, 'none')}"
                )
        self.size = max(self.dictionary.values()) + 1
        self._processor = self._bpe = None
        if SENTENCEPIECE_FILE in files:
            self._processor = load_sentencepiece(files[SENTENCEPIECE_FILE], SENTENCEPIECE_FILE)
        else:
            self._bpe = FastBPE(decode_file(files, CODES_FILE), decode_file(files, VOCABULARY_FILE))

    def split(self, texts: Sequence[str], num_threads: int) -> list[list[int]]:
        lines = [self.text(text) for text in texts]
        if self._processor is not None:
            rows = self._processor.encode(lines, out_type=str, num_threads=num_threads)
        else:
            rows = (
                [piece for word in line.split(" ") if word for piece in self._bpe.split(word)]
                for line in lines
            )
        get, unknown = self.dictionary.get, self.unk_id
        # Joined and split again as in LASER: pieces of white space disappear.
        return [[get(word, unknown) for word in " ".join(row).split()] for row in rows]

    def pieces(self) -> list[str]:
        return in_order(self.dictionary)

    def splitter_pieces(self) -> list[str]:
        """Returns the pieces that the splitter can produce from text."""
        if self._bpe is not None:
            return sorted(self._bpe.vocabulary)
        processor = self._processor
        ids = range(processor.get_piece_size())
        special = lambda i: processor.is_control(i) or processor.is_unknown(i)
        return [processor.id_to_piece(i) for i in ids if not special(i)]


def dictionary_file(dictionary: Mapping[str, int]) -> bytes:
    """Returns the content of `dictionary.json`, with the special tokens as in LASER's code."""
    rows = sorted({**dictionary, **SPECIAL_IDS}.items(), key=lambda item: item[1])
    return (json.dumps(dict(rows), indent=0) + "\n").encode()
