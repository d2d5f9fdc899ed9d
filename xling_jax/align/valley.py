"""The valley between the two modes of the scores of mined pairs, a threshold.

Translations and wrong best candidates each have a mode of scores where there are enough of both; a
threshold in the valley between them needs no gold pairs. Where one kind is rare, there is none.
"""

import math

import numpy as np

# The density is looked at in steps of the range divided by this.
_FINE_BINS = 512
# Choice: this share of the scores at either end is left out if the range would otherwise be several
# times as wide. A few ratio margins in the hundreds would leave one bin for all others.
_OUTSIDE, _TIMES_AS_WIDE = 5e-4, 3
# Choice: how far the lower mode rises above the valley, in standard deviations of the density. Of
# 1,600 samples of 20 to 20,000 scores with one mode (normal, gamma, t with 3 degrees of freedom,
# exponential) 4 had a valley; of 100 of 100 scores, half of them in each of two modes, 91 had one.
_MIN_PROMINENCE = 5.0
# Choice: of Silverman's kernel width, which is too wide for two modes far apart.
_BANDWIDTHS = (1.0, 0.5, 0.25)


def score_valley(scores: np.ndarray) -> float | None:
    """The lowest density between the two clearest modes of some scores; None if there is only one.

    Of a kernel density estimate. A mode counts if it rises above the valley by more than the
    estimate varies by chance, so a few pairs, or a few right ones among very many, have none.
    Scores that are not finite do not count.
    """
    scores = _central(scores)
    span = np.ptp(scores) if len(scores) else 0
    if not span:
        return None
    quartiles = np.quantile(scores, [0.25, 0.75])
    spread = min(scores.std(), (quartiles[1] - quartiles[0]) / 1.34) or scores.std()
    bandwidth = 0.9 * spread * len(scores) ** -0.2 / span * _FINE_BINS  # Silverman's rule
    valleys = (_valley_at(scores, bandwidth * factor) for factor in _BANDWIDTHS)
    return next((valley for valley in valleys if valley is not None), None)


def _central(scores: np.ndarray) -> np.ndarray:
    """The finite scores, ascending, without a few that are far from all others."""
    scores = np.asarray(scores, np.float64).ravel()
    scores = np.sort(scores[np.isfinite(scores)])
    outside = int(_OUTSIDE * len(scores))
    inside = scores[outside : len(scores) - outside]
    is_far = len(scores) and np.ptp(scores) >= _TIMES_AS_WIDE * np.ptp(inside)
    return inside if is_far else scores


def _valley_at(scores: np.ndarray, bandwidth: float) -> float | None:
    """As `score_valley` of ascending scores, for a Gaussian kernel of a width in fine bins."""
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
