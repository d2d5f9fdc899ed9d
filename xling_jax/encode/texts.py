"""From input text to token windows: checks, sentences of documents, windows, tokens, counts."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from xling_jax.text.vocabularies import Vocabulary

# Bounds the memory of a window of long texts.
_WINDOW_CHARACTERS = 8_000_000


@dataclasses.dataclass
class EncodeStats:
    """What happened to the input; counts add up over calls.

    Attributes:
        num_sentences: sentences encoded.
        num_empty: sentences without a token; their vector is that of the special tokens alone.
        num_truncated: sentences cut to `max_length_tokens`.
        num_tokens: tokens computed on, special tokens included.
        num_padded_tokens: the same with padding.
    """

    num_sentences: int = 0
    num_empty: int = 0
    num_truncated: int = 0
    num_tokens: int = 0
    num_padded_tokens: int = 0

    def add(self, counts: "EncodeStats") -> None:
        """Adds the counts of more input."""
        for field in dataclasses.fields(EncodeStats):
            setattr(self, field.name, getattr(self, field.name) + getattr(counts, field.name))


class TokenWindow(NamedTuple):
    """Tokenised sentences, in input order: one flat array instead of 32k small ones."""

    tokens: np.ndarray  # [sum of lengths] int32, specials included
    offsets: np.ndarray  # [sentences + 1] int64


def text_windows(sentences: Iterable[str], num_sentences: int) -> Iterator[list[str]]:
    """Cuts a stream into lists of at most `num_sentences`, fewer when they are long, never none."""
    stream = iter(sentences)
    while True:
        window: list[str] = []
        characters = 0
        for sentence in itertools.islice(stream, num_sentences):
            window.append(sentence)
            characters += len(sentence)
            if characters >= _WINDOW_CHARACTERS:
                break
        if not window:
            return
        yield window


def tokenize(
    texts: Sequence[str], vocab: Vocabulary, prefix: np.ndarray, suffix: np.ndarray, room: int
) -> tuple[TokenWindow, EncodeStats]:
    """Tokenises texts and puts special tokens around them.

    Args:
        texts: at least one.
        vocab: text to ids.
        prefix: [any] int32, ids in front of each text.
        suffix: [any] int32, ids behind each text.
        room: ids kept of each text; the rest is cut off.

    Returns:
        The tokens, and the counts but for padding.
    """
    ids, lengths = vocab.encode_flat(texts)
    kept = np.minimum(lengths, room)
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(kept + (len(prefix) + len(suffix)), out=offsets[1:])
    stats = EncodeStats(
        num_sentences=len(texts),
        num_empty=int((lengths == 0).sum()),
        num_truncated=int((lengths > room).sum()),
        num_tokens=int(offsets[-1]),
    )
    if stats.num_truncated:
        ids = ids[positions_within(lengths) < np.repeat(kept, lengths)]
    if not len(prefix) + len(suffix):
        return TokenWindow(ids, offsets), stats
    tokens = np.empty(stats.num_tokens, np.int32)
    for place, number in enumerate(prefix):
        tokens[offsets[:-1] + place] = number
    for place, number in enumerate(suffix):
        tokens[offsets[1:] - len(suffix) + place] = number
    tokens[np.repeat(offsets[:-1] + len(prefix), kept) + positions_within(kept)] = ids
    return TokenWindow(tokens, offsets), stats


def positions_within(lengths: np.ndarray) -> np.ndarray:
    """[n] lengths -> [sum of lengths] int64: 0, 1, … in each row."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
