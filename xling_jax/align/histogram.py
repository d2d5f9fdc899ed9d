"""How scores of mined pairs are distributed: a histogram, and the valley between its two modes.

Translations and wrong best candidates each have a mode of scores where there are enough of both; a
threshold in the valley between them needs no gold pairs. Where one kind is rare, there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from xling_jax.options import checks_numbers

# The density is looked at in steps of the range divided by this.
_FINE_BINS = 512
# Choice: this share of the scores at either end counts with the outermost bins if the range would
# otherwise be several times as wide. A few ratio margins in the hundreds would leave one bin for
# all others.
_OUTSIDE, _TIMES_AS_WIDE = 5e-4, 3
# Choice: how far the lower mode rises above the valley, in standard deviations of the density. Of
# 1,600 samples of 20 to 20,000 scores with one mode (normal, gamma, t with 3 degrees of freedom,
# exponential) 4 had a valley; of 100 of 100 scores, half of them in each of two modes, 91 had one.
_MIN_PROMINENCE = 5.0
# Choice: of Silverman's kernel width, which is too wide for two modes far apart.
_BANDWIDTHS = (1.0, 0.5, 0.25)
_SHORTEST_BAR = 10


@dataclass(frozen=True)
class ScoreHistogram:
    """Numbers of scores by range.

    Attributes:
        edges: [bins + 1] float64, ascending multiples of a round number. Of thousands of scores a
            few far from all others may lie outside; the first and the last bin count them.
        counts: [bins] int64; no bins if there were no scores.
        valley: score of the lowest density between the two clearest modes; None if there is only
            one.
    """

    edges: np.ndarray
    counts: np.ndarray
    valley: float | None

    def count(self, scores: np.ndarray) -> np.ndarray:
        """Returns how many of other scores, such as those of right pairs, are in each bin."""
        scores = _finite(scores)
        if not len(self.counts):
            return np.zeros(0, np.int64)
        inside = np.clip(scores, self.edges[0], self.edges[-1])
        return np.histogram(inside, self.edges)[0]


@checks_numbers
def score_histogram(scores: np.ndarray, num_bins: int = 20) -> ScoreHistogram:
    """Counts scores in `num_bins` bins of one width or fewer, without those that are not finite.

    Looks for the valley between two modes, that of a kernel density estimate. A mode counts if it
    rises above the valley by more than the estimate varies by chance, so a few pairs, or a few
    right ones among very many, have none.

    Raises:
        ValueError: if `num_bins` is not at least 2.
    """
    if num_bins < 2:
        raise ValueError(f"num_bins must be at least 2; got {num_bins}")
    scores = np.sort(_finite(scores))
    if not len(scores):
        return ScoreHistogram(np.zeros(1), np.zeros(0, np.int64), None)
    outside = int(_OUTSIDE * len(scores))
    inside = scores[outside : len(scores) - outside]
    if np.ptp(scores) < _TIMES_AS_WIDE * np.ptp(inside):
        inside = scores
    low, high = inside[0], inside[-1]
    step = _round_step(low, high, num_bins)
    first, last = _edges(low, high, step)
    edges = np.round(np.arange(first, last + 1) * step, _decimals(step))
    empty = ScoreHistogram(edges, np.zeros(last - first, np.int64), None)
    return ScoreHistogram(edges, empty.count(scores), _valley(inside))


def format_histogram(
    histogram: ScoreHistogram, width: int = 60, right: np.ndarray | None = None
) -> list[str]:
    """Returns a line of text for each bin: its lower edge, a bar, the count; the valley is marked.

    Lines have at most `width` characters, without that mark. `right` says how many of each bin are
    right, see `ScoreHistogram.count`; they are drawn as `#` before the others as `-`, and counted
    in a column of their own. None: not known.
    """
    counts, edges = histogram.counts, histogram.edges
    if not len(counts):
        return ["no scores"]
    decimals = max(_decimals(edges[1] - edges[0]), 0)
    starts = [f"{edge:.{decimals}f}" for edge in edges[:-1]]
    labels = _column(counts) if right is None else _column(right)
    others = None if right is None else _column(counts - right)
    taken = max(map(len, starts)) + len(labels[0]) + 4 + (len(others[0]) + 2 if others else 0)
    longest = max(width - taken, _SHORTEST_BAR)
    of_valley = -1
    if histogram.valley is not None:
        of_valley = int(np.searchsorted(edges, histogram.valley, "right")) - 1
    lines = []
    for index, count in enumerate(counts):
        num_right = count if right is None else right[index]
        length = math.ceil(longest * count / counts.max())
        marked = min(math.ceil(longest * num_right / counts.max()), length)
        bar = ("#" * marked + "-" * (length - marked)).ljust(longest)
        line = f"{starts[index]:>{max(map(len, starts))}}  {bar}  {labels[index]}"
        line += f"  {others[index]}" if others else ""
        lines.append(
            line + (f"  <- valley at {histogram.valley:.3f}" if index == of_valley else "")
        )
    return lines


def _finite(scores: np.ndarray) -> np.ndarray:
    scores = np.asarray(scores, np.float64).ravel()
    return scores[np.isfinite(scores)]


def _round_step(low: float, high: float, num_bins: int) -> float:
    """The smallest of 1, 2, 5, 10, … times a power of ten that needs at most `num_bins` bins."""
    span = high - low or 1e-3 * max(abs(low), 1.0)
    exponent = math.floor(math.log10(span / num_bins))
    steps = (
        factor * 10.0**power for power in range(exponent, exponent + 3) for factor in (1, 2, 5)
    )
    for step in steps:
        first, last = _edges(low, high, step)
        if last - first <= num_bins:
            break
    return step  # the widest, of 50 times the span and more, needs two bins


def _decimals(step: float) -> int:
    return -math.floor(math.log10(step) + 1e-6)


def _edges(low: float, high: float, step: float) -> tuple[int, int]:
    """The first and the last edge in steps; the highest score may lie on the last."""
    first = math.floor(low / step + 1e-9)
    return first, max(math.ceil(high / step - 1e-9), first + 1)


def _valley(scores: np.ndarray) -> float | None:
    """The lowest density between the two clearest modes of ascending scores; None if only one."""
    span = scores[-1] - scores[0]
    if not span:
        return None
    quartiles = np.quantile(scores, [0.25, 0.75])
    spread = min(scores.std(), (quartiles[1] - quartiles[0]) / 1.34) or scores.std()
    bandwidth = 0.9 * spread * len(scores) ** -0.2 / span * _FINE_BINS  # Silverman's rule
    valleys = (_valley_at(scores, bandwidth * factor) for factor in _BANDWIDTHS)
    return next((valley for valley in valleys if valley is not None), None)


def _valley_at(scores: np.ndarray, bandwidth: float) -> float | None:
    """As `_valley`, for a Gaussian kernel of a width in fine bins."""
    from scipy.ndimage import gaussian_filter1d
    from scipy.signal import find_peaks

    # Scores that are mostly equal still get a kernel of a bin or two.
    bandwidth = max(bandwidth, 1.5)
    beyond = math.ceil(4 * bandwidth)
    step = (scores[-1] - scores[0]) / _FINE_BINS
    limits = (scores[0] - beyond * step, scores[-1] + beyond * step)
    fine, edges = np.histogram(scores, _FINE_BINS + 2 * beyond, limits)
    density = gaussian_filter1d(fine.astype(np.float64), bandwidth, mode="constant")
    # The root of a count varies by 1/2, whatever the count (Anscombe 1948); here of the number of
    # scores that the kernel averages.
    height = 2 * np.sqrt(density * 2 * math.sqrt(math.pi) * bandwidth + 3 / 8)
    peaks, found = find_peaks(height, prominence=_MIN_PROMINENCE, plateau_size=1)
    if len(peaks) < 2:
        return None
    left, right = sorted(peaks[np.argsort(-found["prominences"], kind="stable")[:2]])
    between = density[left : right + 1]
    lowest = np.flatnonzero(between <= between.min() + 1e-9 * between.max())
    middle = left + (lowest[0] + lowest[-1]) // 2  # of a stretch without scores
    return float((edges[middle] + edges[middle + 1]) / 2)


def _column(counts: np.ndarray) -> list[str]:
    labels = [f"{int(count):,}" for count in counts]
    return [label.rjust(max(map(len, labels))) for label in labels]
