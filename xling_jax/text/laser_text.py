"""The preprocessing of LASER's published encoders, before subwords.

    LASER  (2018): remove control characters, Moses punctuation, Moses tokenizer, romanization of
                   Greek, lower-casing
    LASER2 (2022): remove control characters, Moses punctuation, lower-casing

Moses is sacremoses, as in Meta's `laser_encoders`, corrected where it differs from the Perl scripts
used in training and the correction takes one line. The tokenizer still differs in the colon in
Finnish and Swedish, the middle dot in Catalan, and apostrophes in Catalan, Irish, Somali and Tetun.
"""

import dataclasses
import functools
import re
from typing import Any

# LASER segments these with jieba (Chinese) and MeCab (Japanese).
_SEGMENTED_LANGUAGES = ("cmn", "ja", "wuu", "yue", "zh")


@dataclasses.dataclass(frozen=True)
class LaserText:
    """A function that preprocesses text.

    Attributes:
        language: code whose Moses rules are used, whatever the language of a text;
            `laser_encoders` uses `en` for all.
        lowercase: lower-case text, as for all published encoders.
        moses_tokenizer: split text into words, for encoders with fastBPE.
        romanize_greek: replace Greek letters by Latin ones.
    """

    language: str = "en"
    lowercase: bool = True
    moses_tokenizer: bool = False
    romanize_greek: bool = False

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
