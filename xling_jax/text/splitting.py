"""Sentences and words of a text.

Sentences are split by a built-in rule, at line breaks, as LASER does, or by the sentencex library.
The caller always chooses the splitter: vectors must not depend on what is installed.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from xling_jax.registry import check_choice

# "rule": punctuation; "sentencex": punctuation, abbreviations and quotes of a language; "laser":
# each "." that stands alone in tokenized text, as LASER splits MLDoc; "lines": text split before.
SPLITTERS = ("rule", "sentencex", "laser", "lines")
SPLITTERS_HELP = (
    "finds sentences in 'text': by punctuation (rule), by the rules of the language in 'lang' "
    "(sentencex, pip install 'xling_jax[sentences]'), at each separate '.' of tokenized text "
    "(laser), or at line breaks only (lines)"
)

# Closing quotes and brackets after a sentence.
_CLOSING = r"[\"'”’»)\]」』）》】]*"
# The first group has other uses, too, and counts only before white space; `:` ends Armenian
# sentences, `;` Greek questions. Full stops of other scripts have no other use. A run of marks is
# tried once, as a whole: from each of its marks anew, the time would grow with its square.
_SENTENCE_END = re.compile(
    rf"((?:(?<![.!?…])[.!?…]++|(?<=[\u0531-\u0587]):|(?<=[\u0370-\u03ff\u1f00-\u1fff])[;\u037e])"
    rf"{_CLOSING}(?=\s))|[。！？｡؟۔।॥།။៕។։።፧]+{_CLOSING}"
)
# The next letter, if little more than an opening quote and dashes precede it.
_NEXT_LETTER = re.compile(r"[\W_]{1,8}([^\W_])")
_WHITE_SPACE_OR_SURROGATE = re.compile(r"\s|[\ud800-\udfff]")

# Scripts without spaces. Their mean word lengths are about two characters in Chinese and Japanese,
# and five in Thai, Lao, Burmese and Khmer.
_CHINESE = "[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
_THAI = "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
_SPACELESS = re.compile(f"{_CHINESE[:-1]}{_THAI[1:]}")
_SPACELESS_WORD = re.compile(f"{_CHINESE}{{1,2}}|{_THAI}{{1,5}}")
# A word with hyphens, points and commas inside and a final apostrophe, or one punctuation mark, as
# the Moses tokenizer splits text. The ranges are combining marks, which \w does not match.
_WORD = re.compile(
    "[\\w\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0dff]+"
    "(?:[-.,]\\w[\\w\u0300-\u036f\u0900-\u0dff]*)*['’]?|[^\\w\\s]"
)


def check_splitter(splitter: str) -> None:
    """Raises `ValueError` if a splitter is unknown or not installed."""
    check_choice("splitter", splitter, SPLITTERS)
    if splitter == "sentencex":
        _sentencex()


def split_sentences(text: str, *, splitter: str = "rule", language: str | None = None) -> list[str]:
    """Cuts a text into sentences, at least at its line breaks.

    Args:
        text: any text.
        splitter: one of `SPLITTERS`. "rule" cuts after sentence-final punctuation of any script;
            after `.!?…` only before white space, and before a lower-case letter only if the text
            has no capitals. "sentencex" follows the rules of a language. "laser" cuts at each
            separate "." token and ignores line breaks. "lines" cuts at line breaks only.
        language: ISO 639-1 code, subtags ignored; required by "sentencex", which falls back to
            related languages and finally to English.

    Returns the sentences without surrounding white space, none empty; together they are the text,
    except for white space. ValueError if the splitter is unknown, not installed or has no language.
    """
    check_splitter(splitter)
    if splitter == "laser":
        return _split_by_laser(text)
    lines = text.splitlines()
    if splitter == "lines":
        pieces = lines
    elif splitter == "rule":
        # The case of the next letter means nothing in text without capitals.
        all_small = text.islower()
        pieces = [piece for line in lines for piece in _split_by_rule(line, all_small)]
    else:
        if language is None:
            raise ValueError(f"splitter={splitter!r} needs a language; pass one, or use 'rule'")
        code = re.split("[-_]", language.strip().lower(), maxsplit=1)[0]
        pieces = [piece for line in lines for piece in _split_by_library(line, code)]
    return [stripped for piece in pieces if (stripped := piece.strip())]


def _split_by_rule(line: str, all_small: bool) -> list[str]:
    ends = [0]
    for match in _SENTENCE_END.finditer(line):
        if match[1] and not all_small:
            letter = _NEXT_LETTER.match(line, match.end())
            if letter and letter[1].islower():
                continue
        ends.append(match.end())
    return [line[start:end] for start, end in zip(ends, [*ends[1:], None])]


def _split_by_laser(text: str) -> list[str]:
    pieces: list[list[str]] = [[]]
    for word in text.split():
        if pieces[-1][-1:] == ["."]:
            pieces.append([])
        pieces[-1].append(word)
    return [" ".join(piece) for piece in pieces if piece]


def _split_by_library(line: str, code: str) -> list[str]:
    # sentencex 1.0.32 crashes on "point B\u00a0." (white space of several bytes), and UTF-8 cannot
    # represent surrogates. Replacing characters one to one keeps the positions of cuts.
    plain = _WHITE_SPACE_OR_SURROGATE.sub(" ", line)
    ends = list(accumulate(map(len, _sentencex()(code, plain)), initial=0))
    return [line[start:end] for start, end in zip(ends, [*ends[1:], None])]


@functools.cache
def _sentencex() -> Callable[[str, str], list[str]]:
    try:
        from sentencex import segment
    except ImportError:
        raise ValueError(
            "splitter='sentencex': pip install 'xling_jax[sentences]', or use splitter='rule'"
        ) from None
    return segment


def check_texts(sentences: Iterable[str], name: str = "sentences") -> list[str]:
    """Returns the sentences as a list; raises ValueError for one string or other items.

    They are in a list, an array of NumPy or Arrow, a column of pandas or polars, or an iterator.
    """
    check_collection(sentences, name)
    return list(checked_texts(sentences, name))


def is_missing(item: object) -> bool:
    """Returns whether an item is None, NaN or pandas' NA."""
    return item is None or type(item).__name__ == "NAType" or (item != item) is True


def check_collection(texts: Iterable[str], name: str) -> None:
    """Raises ValueError for one string, a table, a mapping or set, or what is not iterable."""
    if getattr(texts, "ndim", 1) != 1:
        raise ValueError(
            f"{name} must be one-dimensional, one text a row; got shape {texts.shape}; pick the "
            "column by its name, not by a list of names"
        )
    if isinstance(texts, (set, frozenset)):
        raise ValueError(f"{name} must have an order, and a set has none; use sorted({name})")
    if isinstance(texts, (str, bytes, Mapping)) or not isinstance(texts, Iterable):
        hint = "; decode bytes with .decode()" if isinstance(texts, bytes) else ""
        raise ValueError(
            f"{name} must be a list of strings, [text] for one; got {texts!r:.40}{hint}"
        )


def checked_texts(texts: Iterable[str], name: str) -> Iterator[str]:
    """Yields the texts; raises ValueError at the first item that is no string."""
    if hasattr(texts, "to_pylist"):  # of Arrow, whose items are scalars
        texts = texts.to_pylist()
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            kind = type(text).__name__
            hint = "; drop or fill it" if is_missing(text) else ""
            hint = "; decode it with .decode()" if isinstance(text, bytes) else hint
            raise ValueError(f"{name}[{i}] must be a string; found {kind} {text!r:.40}{hint}")
        yield text


def document_sentences(
    document: str | Sequence[str], *, splitter: str = "rule", language: str | None = None
) -> list[str]:
    """Returns the sentences of a document, [""] if it has none.

    The document is a text, split by `split_sentences`, or sentences, of which blank ones are
    dropped; ValueError if it is neither, or for the splitter.
    """
    if isinstance(document, str):
        sentences = split_sentences(document, splitter=splitter, language=language)
    else:
        sentences = [sentence for sentence in check_texts(document) if sentence.strip()]
    return sentences or [""]


def count_words(text: str) -> int:
    """Counts words and punctuation marks, approximately as the Moses tokenizer splits text.

    The published length filter ran on tokenized text. In scripts without spaces the count is
    estimated from the mean word length.
    """
    num_spaceless = 0
    if not text.isascii() and _SPACELESS.search(text):
        text, num_spaceless = _SPACELESS_WORD.subn(" ", text)
    return num_spaceless + len(_WORD.findall(text))
