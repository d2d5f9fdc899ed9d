"""Word vectors from a text file, as initial token embeddings of a vocabulary.

The similarity-loss model (Yu, Li and Oguz 2018) starts from multiCCA vectors, one file for all
languages.
"""

import logging
import re
from collections.abc import Iterator, Sequence

import numpy as np

from xling_jax.files.lines import iterate_lines
from xling_jax.text import languages as languages_lib
from xling_jax.text.vocab import normalize_text

_logger = logging.getLogger(__name__)

_WORD_START = "▁"  # how SentencePiece marks the white space before a word
_MAX_LANGUAGES_NAMED = 20  # of those in the file, in messages
_LARGEST = float(np.finfo(np.float32).max)  # infinity and NaN are not at most this


def read_word_vectors(
    path: str, pieces: Sequence[str], languages: Sequence[str], width: int, lowercase: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Reads the vectors of the pieces that are whole words, such as `▁dog`.

    A line is `WORD NUMBER NUMBER …`, where WORD is `LANGUAGE:word` or `word`; a first line `COUNT
    WIDTH` is allowed. The file, maybe compressed, is streamed: memory depends on the vocabulary
    only, and only the numbers of its words are parsed.

    Choice: a word of several languages gets the mean of their vectors, with unmarked lines as one
    more language. Within a language the first line of a word counts: case variants are ordered by
    frequency in such files. Lines of other `languages` are skipped; `lowercase` is that of the
    vocabulary.

    Returns [vocab, width] float32, zero for pieces without a vector, and [vocab] bool, which have
    one.
    """
    languages = languages_lib.check_languages(languages)
    ids = {piece[1:]: i for i, piece in enumerate(pieces) if _is_word(piece)}
    columns = {language: i for i, language in enumerate([*languages, None])}
    sums = np.zeros((len(pieces), width), np.float32)
    seen = np.zeros((len(pieces), len(columns)), bool)
    marks: dict[str, None] = {}  # languages of the file, in order
    num_vectors = 0
    for where, marked, numbers in _read_vectors(path, width):
        num_vectors += 1
        language, colon, word = marked.partition(":")
        if not (colon and word and languages_lib.is_code(language)):
            language, word = None, marked  # also a word with a colon
        if language is not None and len(marks) < _MAX_LANGUAGES_NAMED:
            marks[language] = None
        column = columns.get(language)
        if column is None:
            continue
        row = ids.get(normalize_text(word, lowercase))
        if row is not None and not seen[row, column]:
            seen[row, column] = True
            sums[row] += _parse_numbers(where, marked, numbers)
    if not num_vectors:
        raise ValueError(f"{path}: no vectors found; is it the right file?")
    counts = seen.sum(axis=1)
    if not counts.any():
        raise ValueError(
            f"{path}: none of the {len(ids)} whole words of the vocabulary has a vector; languages "
            f"are {', '.join(languages)} in the config and {', '.join(marks) or 'not marked'} in "
            f"the file; use vectors of these languages, and a vocabulary of words "
            f"(vocab.model_type='word', vocab.lowercase as in the file)"
        )
    without = [code for code in languages if not seen[:, columns[code]].any()]
    if 0 < len(without) < len(languages):  # in an unmarked file, no language has any
        _logger.warning("%s: no vectors for %s", path, ", ".join(without))
    found = counts > 0
    sums[found] /= counts[found, None]
    return sums, found


def coverage(pieces: Sequence[str], found: np.ndarray) -> dict[str, float]:
    """The shares of all `pieces` and of whole words that are `found`, in [0, 1]."""
    num_words = sum(map(_is_word, pieces))
    num_found = int(np.count_nonzero(found))
    return {"pieces": num_found / max(len(pieces), 1), "words": num_found / max(num_words, 1)}


def _is_word(piece: str) -> bool:
    return len(piece) > 1 and piece[0] == _WORD_START


def _read_vectors(path: str, width: int) -> Iterator[tuple[str, str, str]]:
    """Yields place, word and numbers of each line; there are `width` numbers, not yet parsed."""
    for number, line in enumerate(iterate_lines(path), 1):
        # Not split(): words may contain white space that is not ASCII.
        line = line.replace("\t", " ").strip(" ")
        word, _, numbers = (re.sub("  +", " ", line) if "  " in line else line).partition(" ")
        found = numbers.count(" ") + 1 if numbers else 0
        is_header = number == 1 and word.isdecimal() and numbers.isdecimal()
        if is_header:
            found = int(numbers)
        elif found > width and not _is_number(numbers.rsplit(" ", width)[0].rsplit(" ", 1)[-1]):
            continue  # a phrase, not a word; public files have a few
        if word and found != width:
            raise ValueError(
                f"{path}:{number}: must hold encoder.embedding_width={width} values; found "
                f"{found}; set it to the size of the file's vectors, or fix the line"
            )
        if word and not is_header:
            yield f"{path}:{number}", word, numbers


def _parse_numbers(where: str, word: str, numbers: str) -> np.ndarray:
    fields = numbers.split(" ")
    if wrong := [field for field in fields if not _is_number(field)]:
        raise ValueError(
            f"{where}: the {len(fields)} values of {word!r:.60} must be numbers; found "
            f"{wrong[0]!r:.60}; fix or remove the line"
        )
    return np.array(list(map(float, fields))).astype(np.float32)


def _is_number(field: str) -> bool:
    try:
        return abs(float(field)) <= _LARGEST
    except ValueError:
        return False
