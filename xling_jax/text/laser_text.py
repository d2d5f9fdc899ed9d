"""The text preprocessing of LASER's published encoders, before subwords.

    LASER  (2018): control characters out, Moses punctuation, Moses tokenizer, Greek to Latin
                   letters where the language is Greek, lower case
    LASER2 (2022): control characters out, Moses punctuation, lower case

Moses is sacremoses, as in Meta's `laser_encoders`, corrected where that differs from the Perl
scripts the encoders were trained with and the correction is one line. What remains different is in
the tokenizer: the colon in Finnish and Swedish, the middle dot in Catalan, apostrophes in Catalan,
Irish, Somali and Tetun.
"""

import dataclasses
import functools
from typing import Any

# The original finds their words with jieba (Chinese) and MeCab (Japanese).
_SEGMENTED_LANGUAGES = ("cmn", "ja", "wuu", "yue", "zh")


@dataclasses.dataclass(frozen=True)
class LaserText:
    """Text as the encoder wants it; call it with a text.

    Attributes:
        language: code whose Moses rules are used, whatever the language of a text; `en` is what
            `laser_encoders` uses for all.
        lowercase: all published encoders are lower-cased.
        moses_tokenizer: split text into words, for the encoders with fastBPE.
        romanize_greek: write Greek letters in Latin ones.
    """

    language: str = "en"
    lowercase: bool = True
    moses_tokenizer: bool = False
    romanize_greek: bool = False

    def __post_init__(self):
        if self.moses_tokenizer and self.language in _SEGMENTED_LANGUAGES:
            raise ValueError(
                f"language={self.language!r}: this encoder reads words as jieba or MeCab find "
                "them; put spaces between the words of your text and take 'en', or use LASER2"
            )

    def __call__(self, text: str) -> str:
        """Returns the preprocessed text; stages in the order of the original."""
        # Perl reads lines with their ends, and a rule for full stops before quotes counts on it.
        text = self._moses_punctuation.normalize(self._control.sub(" ", text) + "\n")
        if self.moses_tokenizer:
            text = self._moses_words.tokenize(text, escape=False, return_str=True)
        if self.romanize_greek:
            try:
                from transliterate import translit
            except ImportError:
                raise ValueError(
                    "language='el': this encoder reads Greek in Latin letters, which takes another "
                    "package; pip install transliterate"
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
        # In Perl every language but these three has the rules that sacremoses gives de, es and fr.
        if self.language not in ("en", "cs", "cz", "de", "es", "fr"):
            rules[-1:-1] = MosesPunctNormalizer.DE_ES_FR_QUOTATION_FOLLOWED_BY_COMMA
        normalizer.substitutions = rules
        return normalizer

    @functools.cached_property
    def _moses_words(self) -> Any:
        from sacremoses import MosesTokenizer

        tokenizer = MosesTokenizer(self.language)
        # sacremoses counts Chinese, Japanese and Korean characters as letters in their own
        # languages only, and would make each a word in text of another.
        tokenizer.PAD_NOT_ISALNUM = MosesTokenizer("cjk").PAD_NOT_ISALNUM
        return tokenizer
