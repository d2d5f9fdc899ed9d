"""Sentences and words of a text.

The caller chooses what ends a sentence: a rule, line breaks, or full stops of tokenized text, as in
LASER. What another program has split is given as lists of sentences.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from xling_jax.registry import check_choice

SPLITTERS = ("rule", "laser", "lines")
SPLITTERS_HELP = (
    "finds sentences in 'text': by punctuation and line breaks (rule), at each separate '.' of "
    "tokenized text (laser), or at line breaks only (lines)"
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

# Scripts without spaces. Their mean word lengths are about two characters in Chinese and Japanese,
# and five in Thai, Lao, Burmese and Khmer.
_CHINESE = "[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
_THAI = "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
_SPACELESS = re.compile(f"{_CHINESE[:-1]}{_THAI[1:]}")
_SPACELESS_WORD = re.compile(f"{_CHINESE}{{1,2}}|{_THAI}{{1,5}}")
# Combining marks, which \w does not match.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u07a6-\u07b0"
_MARKS += "\u0900-\u0dff\u0f18-\u0f39\u0f71-\u0fbc"
# A word with hyphens, points and commas inside and a final apostrophe, or one punctuation mark, as
# the Moses tokenizer splits text. Tibetan has a point, U+0F0B, between syllables and no spaces.
_WORD = re.compile(rf"[\w{_MARKS}]+(?:[-.,]\w[\w{_MARKS}]*)*['’]?|[^\w\s\u0f0b]")


def split_sentences(text: str, *, splitter: str = "rule") -> list[str]:
    """Cuts a text into sentences.

    The splitter is one of `SPLITTERS`. "rule" cuts after sentence-final punctuation of any script;
    after `.!?…` only before white space, and before a lower-case letter only if the text has no
    capitals. "laser" cuts after each "." that stands alone, as LASER splits MLDoc, and ignores line
    breaks. "lines" cuts only where lines of text files end, and at form feeds.

    Returns the sentences without surrounding white space, none empty; together they are the text,
    except for white space. ValueError if the splitter is unknown.
    """
    check_choice("splitter", splitter, SPLITTERS)
    if splitter == "laser":
        pieces = re.split(r"(?<= \. )", f" {' '.join(text.split())}")
    elif splitter == "lines":
        pieces = re.split(r"[\n\r\f]", text)
    else:
        # The case of the next letter means nothing in text without capitals.
        all_small = text.islower()
        pieces = [piece for line in text.splitlines() for piece in _split_by_rule(line, all_small)]
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
    if len(getattr(texts, "shape", (0,))) != 1:
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


def document_sentences(document: str | Sequence[str], *, splitter: str = "rule") -> list[str]:
    """Returns the sentences of a document, [""] if it has none.

    The document is a text, split by `split_sentences`, or sentences, of which blank ones are
    dropped; ValueError if it is neither, or for the splitter.
    """
    if isinstance(document, str):
        sentences = split_sentences(document, splitter=splitter)
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
