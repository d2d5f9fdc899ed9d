"""Calibration: what the scores of mined pairs mean, from translations that are held out.

Each pair of languages becomes two texts in which only some sentences have their translation on the
other side and the rest are of the same kind, and these are mined as `xling mine` does.
"""

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from xling_jax.align import mining
from xling_jax.align.margin import MARGINS
from xling_jax.align.precision import Calibration, ScoreCurve, Threshold
from xling_jax.encode.texts import Encode, encode_unique
from xling_jax.eval.retrieval_data import RetrievalData

_logger = logging.getLogger(__name__)

# Shares of the sentences that have a translation: the scores of many right pairs, and of the wrong
# ones that rank high.
SHARES = (1 / 2, 1 / 10)
# A curve through fewer pairs of a kind would follow single ones.
_MIN_PAIRS = 100
# Distance of the thresholds in the table, and the fewest pairs above one.
_STEPS = {"ratio": 0.05, "distance": 0.02, "absolute": 0.05}
_MIN_ABOVE = 20


class KnownPairs(NamedTuple):
    """Pairs mined from two texts, best first, which are translations, and how many there are."""

    pairs: mining.MinedPairs
    is_translation: np.ndarray
    num_translations: int


def mine_known(
    encode: Encode,
    data: RetrievalData,
    share: float,
    *,
    margins: Sequence[str] = tuple(MARGINS),
    k: int = mining.MARGIN_NEIGHBORS,
    seed: int = 0,
) -> Iterator[tuple[str, KnownPairs]]:
    """Mines all pairs of languages of a data set, each from two shuffled texts, by each margin.

    A `share` of the sentences of either text have their translation in the other. Rows that repeat
    a text of an earlier row are left out: its translation would count as wrong.
    """
    columns = [texts for part in data.parts for texts in part.texts.values()]
    vectors, ids = encode_unique(encode, columns)
    for part in data.parts:
        for languages in itertools.combinations(part.texts, 2):
            texts = [part.texts[code] for code in languages]
            rows = _distinct_rows(*texts)
            random = np.random.default_rng(seed)
            sides = [rows[side] for side in shuffled_texts(len(rows), share, random)]
            embedded = [vectors[ids(column)[side]] for column, side in zip(texts, sides)]
            candidates = mining.find_candidates(*embedded, k)
            for margin in margins:
                pairs = mining.choose_pairs(candidates, margin=margin)
                is_right = sides[0][pairs.source] == sides[1][pairs.target]
                both = len(np.intersect1d(*sides))
                yield margin, KnownPairs(pairs, is_right, both)


def shuffled_texts(
    num_rows: int, share: float, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws the rows of two texts of one size, [n] int64 each, of which a share is in both.

    Every row of the translations is used; the order is random.
    """
    size = int(num_rows / (2 - share) + 1e-9)  # 40 rows of which 2/3 are in both are 30, not 29
    num_both = max(round(share * size), 2 * size - num_rows)
    rows = random.permutation(num_rows)
    source = rows[:size]
    target = np.concatenate([rows[:num_both], rows[size : 2 * size - num_both]])
    return random.permutation(source), random.permutation(target)


def calibrate(encode: Encode, sets: Sequence[RetrievalData]) -> Calibration:
    """Measures what the scores of an encoder mean, with the neighborhoods of `mining.mine`.

    The sets are translations that it was not trained on, best of several kinds of text.

    ValueError if there are too few pairs for a curve, or the encoder does not tell translations
    from other pairs.
    """
    found: dict[str, dict[float, list[KnownPairs]]] = {
        margin: {share: [] for share in SHARES} for margin in MARGINS
    }
    for data in sets:
        _logger.info("mining %s", data.name)
        for share in SHARES:
            for margin, known in mine_known(encode, data, share):
                if known.pairs.runners_up is not None:
                    found[margin][share].append(known)
    curves, thresholds = {}, {}
    for margin, by_share in found.items():
        every = [known for of_share in by_share.values() for known in of_share]
        scores = [known.pairs.runners_up.standardize(known.pairs.scores) for known in every]
        scores = np.concatenate([np.empty(0), *scores])
        is_right = _are_right(every)
        for kind, count in (("right", is_right.sum()), ("wrong", (~is_right).sum())):
            if count < _MIN_PAIRS:
                raise ValueError(
                    f"{', '.join(data.path or data.name for data in sets)}: {count} of the "
                    f"{len(scores)} pairs found are {kind}; calibration needs {_MIN_PAIRS} of "
                    "each kind, add text"
                )
        curves[margin] = ScoreCurve.fit(scores, is_right)
        thresholds[margin] = _thresholds(by_share, _STEPS[margin])
    return Calibration(
        k=mining.MARGIN_NEIGHBORS,
        languages=tuple(dict.fromkeys(code for data in sets for code in data.languages)),
        data=tuple({k: v for k, v in data.description.items() if k != "path"} for data in sets),
        curves=curves,
        thresholds=thresholds,
    )


def _distinct_rows(source: Sequence[str], target: Sequence[str]) -> np.ndarray:
    """Rows with text on both sides, neither of which an earlier one of these rows has."""
    seen: set[tuple[int, str]] = set()  # side and text
    rows = []
    for row, texts in enumerate(zip(source, target)):
        if all(texts) and not seen & {*enumerate(texts)}:
            rows.append(row)
            seen |= {*enumerate(texts)}
    return np.array(rows, np.int64)


def _are_right(known: Sequence[KnownPairs]) -> np.ndarray:
    return np.concatenate([np.empty(0, bool), *(one.is_translation for one in known)])


def _thresholds(
    by_share: Mapping[float, Sequence[KnownPairs]], step: float
) -> tuple[Threshold, ...]:
    """Precision and recall at multiples of a step."""
    half, tenth = (by_share[share] for share in SHARES)
    num_translations = sum(one.num_translations for one in half)
    sides = [
        (np.concatenate([one.pairs.scores for one in known]), _are_right(known))
        for known in (half, tenth)
    ]
    lowest, highest = np.quantile(sides[0][0][sides[0][1]], [0.005, 0.9])
    rows = []
    for multiple in range(int(np.floor(lowest / step)), int(np.ceil(highest / step)) + 1):
        score = round(multiple * step, 6)
        above = [is_right[scores > score] for scores, is_right in sides]
        if all(len(side) >= _MIN_ABOVE for side in above):
            recall = above[0].sum() / num_translations
            values = (score, above[0].mean(), recall, above[1].mean())
            rows.append(Threshold(*(round(float(value), 4) for value in values)))
    return tuple(rows)
