"""Hard negatives: micro-batches in which pairs stand beside pairs that are similar to them.

A share of the rows that the plan gives a micro-batch makes room for neighbors of the others. Every
term that compares the sentences of a batch then meets hard negatives, on both sides and at all its
widths, and a negative is itself a pair to learn from. Shapes, updates and the cost of one stay what
they are.

Choice: the alternative, encoding the negatives of each row beside the batch, costs 1 + H times as
much per update, and the additional vectors would be negatives only.
"""

import itertools
from typing import NamedTuple

import numpy as np

from xling_jax.corpora.shards import PairTokens

# Negatives, and translations to keep away, that are remembered of each row.
REMEMBERED = 8


class RowNeighbors(NamedTuple):
    """What is known about the rows of one pair of languages; rows of that pair, -1 for none.

    Attributes:
        negatives: [rows, any] int32, similar rows that are no translations, the hardest first.
        translations: [rows, any] int32, rows whose texts are, or may be, translations of its own.
    """

    negatives: np.ndarray
    translations: np.ndarray


def text_numbers(corpus: PairTokens) -> np.ndarray:
    """Numbers the texts of a pair: [rows, 2] uint64, equal for equal texts of one side.

    Two different texts have the same number with probability 2^-64.
    """
    numbers = np.zeros((len(corpus), 2), np.uint64)
    for side, language in enumerate(corpus.languages):
        start = 0
        for tokens, offsets in corpus.shards(language):
            lengths = np.diff(offsets)
            places = np.arange(len(tokens)) - np.repeat(offsets[:-1], lengths)
            words = _mix(tokens.astype(np.uint64) + _mix(places.astype(np.uint64) + np.uint64(1)))
            sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words, dtype=np.uint64)])
            stop = start + len(lengths)
            numbers[start:stop, side] = sums[offsets[1:]] - sums[offsets[:-1]]  # modulo 2^64
            start = stop
    return numbers


def _mix(words: np.ndarray) -> np.ndarray:
    """Permutes 64-bit words so that every bit depends on all (SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def with_hard_negatives(
    rows: np.ndarray, share: float, neighbors: RowNeighbors, texts: np.ndarray, fits: np.ndarray
) -> np.ndarray:
    """Replaces the last rows of a micro-batch by hard negatives of the first ones.

    First comes the hardest negative of each row, then the second of each, and so on. Left out are
    rows that are in the batch already, that do not fit its bucket, or that share a text with, or
    may be a translation of, any row in it. If there are not enough, planned rows stay, as far as
    the same holds for them.

    Args:
        rows: [batch] int64, as planned; -1 marks a padding row.
        share: of the rows that may be replaced, below 1.
        neighbors: of the rows of the pair.
        texts: [rows, 2] from `text_numbers`.
        fits: [rows] bool, which rows are short enough.

    Returns:
        [batch] int64, rows of the pair, different ones; -1 marks a padding row.
    """
    real = rows[rows >= 0]
    kept = len(real) - int(share * len(real))
    batch = real[:kept].tolist()
    present, keep_out = set(batch), set(neighbors.translations[batch].ravel().tolist())
    seen = [set(side.tolist()) for side in texts[batch].T]
    for row in itertools.chain(neighbors.negatives[batch].T.ravel().tolist(), real[kept:].tolist()):
        if len(batch) == len(real):
            break
        if row < 0 or row in present or row in keep_out or not fits[row]:
            continue
        own, translations = texts[row].tolist(), neighbors.translations[row].tolist()
        if own[0] in seen[0] or own[1] in seen[1] or not present.isdisjoint(translations):
            continue
        batch.append(row)
        present.add(row)
        keep_out.update(translations)
        for side, number in zip(seen, own):
            side.add(number)
    found = np.full(len(rows), -1, np.int64)
    found[: len(batch)] = batch
    return found
