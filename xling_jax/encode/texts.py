"""Input text: windows of it, its distinct texts, and its tokens, with counts."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from xling_jax.align.rows import as_embeddings, row_blocks
from xling_jax.models.numpy_layers import positions_within
from xling_jax.text.vocabularies import Vocabulary

Encode = Callable[[list[str]], np.ndarray]

# Limits the memory of a window of long texts.
_WINDOW_CHARACTERS = 8_000_000
_FEW_TEXTS = 16


@dataclasses.dataclass
class EncodeStats:
    """Counts of the input, summed over calls."""

    num_sentences: int = 0
    num_empty: int = 0  # without tokens; their vector is that of the special tokens
    num_truncated: int = 0  # cut to `max_length_tokens`
    num_unknown: int = 0  # at least a quarter of whose tokens are unknown
    num_tokens: int = 0  # special tokens included
    num_padded_tokens: int = 0  # padding included as well

    def add(self, counts: "EncodeStats") -> None:
        """Adds the counts of more input."""
        own = vars(self)
        for name, value in vars(counts).items():
            own[name] += value


class TokenWindow(NamedTuple):
    """Tokenized sentences in input order, as one array instead of many small ones."""

    tokens: np.ndarray  # [sum of lengths] int32, special tokens included
    offsets: np.ndarray  # [sentences + 1] int64


def text_windows(sentences: Iterable[str], num_sentences: int) -> Iterator[list[str]]:
    """Yields lists of at most `num_sentences` from a stream, fewer if they are long."""
    window: list[str] = []
    characters = 0
    for sentence in sentences:
        window.append(sentence)
        characters += len(sentence)
        if len(window) == num_sentences or characters >= _WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def encode_unique(
    encode: Encode, columns: Sequence[Sequence[str]]
) -> tuple[np.ndarray, Callable[[Sequence[str]], np.ndarray]]:
    """Encodes every distinct text of some lists once, in one call.

    Returns embeddings [distinct, dim], and a function from texts to their rows, [n] int64.
    ValueError if `encode` returns something else.
    """
    row_of = {text: row for row, text in enumerate(dict.fromkeys(itertools.chain(*columns)))}
    vectors = as_embeddings(encode(list(row_of)), "the result of encode")
    if len(vectors) != len(row_of):
        counts = f"{len(vectors)} rows for {len(row_of)} texts"
        raise ValueError(f"encode must return one row per text; got {counts}")
    for _ in row_blocks(vectors, "embeddings"):
        pass  # Reading checks that values are finite.
    return vectors, lambda texts: np.array([row_of[text] for text in texts], np.int64)


def tokenize(
    texts: Sequence[str], vocab: Vocabulary, prefix: np.ndarray, suffix: np.ndarray, room: int
) -> tuple[TokenWindow, EncodeStats]:
    """Tokenizes texts, at least one, cuts them at `room` ids, and adds special tokens."""
    # Threads cost more than they save on a few sentences.
    ids, lengths = vocab.encode_flat(texts, num_threads=-1 if len(texts) > _FEW_TEXTS else 1)
    # A single short text, as in a search, needs no call of NumPy to know.
    is_cut = len(ids) > room and lengths.max() > room
    kept = np.minimum(lengths, room) if is_cut else lengths
    num_specials = len(prefix) + len(suffix)
    offsets = np.zeros(len(texts) + 1, np.int64)
    (kept + num_specials if num_specials else kept).cumsum(out=offsets[1:])
    stats = EncodeStats(
        num_sentences=len(texts),
        num_empty=len(texts) - np.count_nonzero(lengths),
        num_truncated=int((lengths > room).sum()) if is_cut else 0,
        num_unknown=_num_unknown(ids, lengths, vocab.unk_id),
        num_tokens=int(offsets[-1]),
    )
    if is_cut:
        first = lengths - kept if vocab.truncation_side == "left" else np.zeros_like(kept)
        position = positions_within(lengths)
        ids = ids[
            (position >= np.repeat(first, lengths)) & (position < np.repeat(first + kept, lengths))
        ]
    if not num_specials:
        return TokenWindow(ids, offsets), stats
    tokens = np.empty(stats.num_tokens, np.int32)
    for position, token in enumerate(prefix):
        tokens[offsets[:-1] + position] = token
    for position, token in enumerate(suffix):
        tokens[offsets[1:] - len(suffix) + position] = token
    tokens[np.repeat(offsets[:-1] + len(prefix), kept) + positions_within(kept)] = ids
    return TokenWindow(tokens, offsets), stats


def _num_unknown(ids: np.ndarray, lengths: np.ndarray, unk_id: int | None) -> int:
    """How many texts are a quarter or more of unknown tokens; ids are of one text after another."""
    is_unknown = ids == unk_id
    if not np.count_nonzero(is_unknown):  # faster than any() on a few
        return 0
    texts = np.repeat(np.arange(len(lengths)), lengths)[is_unknown]
    counts = np.bincount(texts, minlength=len(lengths))
    return np.count_nonzero((counts > 0) & (4 * counts >= lengths))
