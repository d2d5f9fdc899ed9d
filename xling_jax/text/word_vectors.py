"""Word vectors from a text file, as the first token embeddings of a vocabulary.

The similarity-loss model (Yu, Li and Oguz 2018) starts from multiCCA vectors, one file for all
languages. Read here, once, into an array; putting it into a model is the business of `train`.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from xling_jax.files.lines import (
    BROKEN_UTF8,
    LINE_TOO_LONG,
    MAX_LINE_BYTES,
    NUL_BYTE,
    BrokenLine,
    read_line_blocks,
)
from xling_jax.text import languages as languages_lib
from xling_jax.text.vocab import normalize_text

_logger = logging.getLogger(__name__)

_WORD_START = "▁"  # SentencePiece's mark for the white space before a word.

_PROBLEMS = {
    BROKEN_UTF8: "vectors must be text in UTF-8; found other bytes; convert a binary file to text",
    NUL_BYTE: "vectors must be text; found a NUL byte; convert a binary file to text",
    LINE_TOO_LONG: f"a line must be below {MAX_LINE_BYTES:,} bytes; is it a file of word vectors?",
}

_MAX_LANGUAGES_NAMED = 20  # Of those the file has, in messages.
_LARGEST = float(np.finfo(np.float32).max)  # Neither infinity nor NaN is at most that.


class _Vector(NamedTuple):
    """A line of the file: where it stands, its word, and its numbers, not looked at yet."""

    where: str
    word: str
    numbers: str


def read_word_vectors(
    path: str, pieces: Sequence[str], languages: Sequence[str], width: int, lowercase: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Reads the vectors of the pieces that are whole words, such as `▁dog`.

    A line is `WORD NUMBER NUMBER …`, WORD being `LANGUAGE:word` or `word`; a first line
    `COUNT WIDTH` is allowed. The file is streamed: memory depends on the vocabulary alone, and only
    the numbers of its words are parsed.

    Choice: a word of several languages gets the mean of their vectors, plain lines counting as one
    more language. Within a language the first line of a word is taken: case variants follow one
    another by frequency in such files.

    Args:
        path: the file; `.gz`, `.xz`, `.zst` and `.bz2` are decompressed.
        pieces: all pieces of a vocabulary in the order of their ids.
        languages: codes whose words are taken; lines of other languages are passed over.
        width: size of a vector.
        lowercase: whether the vocabulary is lower-cased; then the words of the file are, too.

    Returns:
        [vocab, width] float32, zero where there is no vector; [vocab] bool, where there is one.

    Raises:
        ValueError: if a line is no vector of `width` numbers or not UTF-8 (names the line), or the
            file is empty or has no piece at all.
        OSError: if the file cannot be read.
    """
    languages = languages_lib.check_languages(languages)
    ids = {piece[1:]: i for i, piece in enumerate(pieces) if _is_word(piece)}
    columns = {language: i for i, language in enumerate([*languages, None])}
    sums = np.zeros((len(pieces), width), np.float32)
    seen = np.zeros((len(pieces), len(columns)), bool)
    marks: dict[str, None] = {}  # Languages of the file, in its order.
    num_vectors = 0
    for vector in _read_vectors(path, width):
        num_vectors += 1
        language, word = _split_word(vector.word)
        if language is not None and len(marks) < _MAX_LANGUAGES_NAMED:
            marks[language] = None
        column = columns.get(language)
        if column is None:
            continue
        row = ids.get(normalize_text(word, lowercase))
        if row is not None and not seen[row, column]:
            seen[row, column] = True
            sums[row] += _parse_numbers(vector, width)
    if not num_vectors:
        raise ValueError(f"{path}: holds no vectors; is it the right file?")
    counts = seen.sum(axis=1)
    if not counts.any():
        raise ValueError(
            f"{path}: none of the {len(ids)} whole words of the vocabulary has a vector; the "
            f"config's languages are {', '.join(languages)}, those of the file "
            f"{', '.join(marks) or 'not marked'}; give vectors of these languages, and a "
            f"vocabulary of words (vocab.model_type='word', vocab.lowercase as in the file)"
        )
    without = [code for code in languages if not seen[:, columns[code]].any()]
    if 0 < len(without) < len(languages):  # None has any in a file without marks.
        _logger.warning("%s: no vectors for %s", path, ", ".join(without))
    found = counts > 0
    sums[found] /= counts[found, None]
    return sums, found


def coverage(pieces: Sequence[str], found: np.ndarray) -> dict[str, float]:
    """Tells how much of a vocabulary has a vector.

    Args:
        pieces: all pieces in the order of their ids.
        found: [vocab] bool, from `read_word_vectors`.

    Returns:
        `pieces`, the share of all pieces, and `words`, of those that are whole words; in [0, 1].
    """
    num_words = sum(map(_is_word, pieces))
    num_found = int(np.count_nonzero(found))
    return {"pieces": num_found / max(len(pieces), 1), "words": num_found / max(num_words, 1)}


def _is_word(piece: str) -> bool:
    return len(piece) > 1 and piece[0] == _WORD_START


def _split_word(marked: str) -> tuple[str | None, str]:
    """Splits `en:dog`; a word without a mark, or with a colon of its own, has no language."""
    language, colon, word = marked.partition(":")
    if colon and word and languages_lib.is_code(language):
        return language, word
    return None, marked


def _read_vectors(path: str, width: int) -> Iterator[_Vector]:
    """Yields the vectors of a file; each has `width` fields behind its word."""
    lines = (line for block in read_line_blocks(path) for line in block)
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        if isinstance(line, BrokenLine):
            raise ValueError(f"{where}: {_PROBLEMS[line.problem]}")
        # Not split(): words may hold white space that is not ASCII.
        line = line.replace("\t", " ").strip(" ")
        if "  " in line:
            line = re.sub("  +", " ", line)
        if not line:
            continue
        word, _, numbers = line.partition(" ")
        if number == 1 and word.isdecimal() and numbers.isdecimal():
            _check_width(int(numbers), width, where)
            continue
        found = numbers.count(" ") + 1 if numbers else 0
        if found > width and not _is_number(line.rsplit(" ", width)[0].rsplit(" ", 1)[-1]):
            continue  # A phrase, which is no piece; public files have a few.
        _check_width(found, width, where)
        yield _Vector(where, word, numbers)


def _check_width(found: int, width: int, where: str) -> None:
    if found != width:
        raise ValueError(
            f"{where}: encoder.embedding_width={width} must be the number of values of each "
            f"vector; found {found}; set it to that of the file, or mend the line"
        )


def _parse_numbers(vector: _Vector, width: int) -> np.ndarray:
    """[width] float32 of a line.

    Raises:
        ValueError: if a field is no number; names the line and the field.
    """
    fields = vector.numbers.split(" ")
    try:
        values = np.array([float(field) for field in fields])
    except ValueError:
        values = np.array(np.nan)
    if not (np.abs(values) <= _LARGEST).all():
        wrong = next(field for field in fields if not _is_number(field))
        raise ValueError(
            f"{vector.where}: the {width} values of {vector.word!r} must be numbers; "
            f"found {wrong!r}; mend or remove the line"
        )
    return values.astype(np.float32)


def _is_number(field: str) -> bool:
    try:
        return abs(float(field)) <= _LARGEST
    except ValueError:
        return False
