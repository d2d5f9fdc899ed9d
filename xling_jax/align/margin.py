"""Scores that compare a pair's cosine with the cosines of both sides' neighborhoods.

Pure functions of arrays. Some sentences are close to everything, so a raw cosine means little;
dividing by the mean cosine of both neighborhoods, or subtracting it, corrects for this.
"""

import logging

import numpy as np

_logger = logging.getLogger(__name__)

# Choice: smaller denominators are raised to this. Centered vectors can have neighbors with
# negative cosines, and below zero the ratio would change its sign. With a much lower floor such
# pairs would lead every mined list with scores in the hundred thousands.
MIN_DENOMINATOR = 1e-3


def ratio_margin(
    cosine: np.ndarray, source_mean: np.ndarray, target_mean: np.ndarray
) -> np.ndarray:
    """Scores candidate pairs by cosine relative to their neighborhoods.

    Equation 3 of Artetxe and Schwenk (2019a), with ratio as the margin. Denominators below
    `MIN_DENOMINATOR` are raised to it.

    Args:
        cosine: [n, k] float, cosine of source i with its k candidates, in [-1, 1].
        source_mean: [n] float, mean cosine of source i to its own k neighbors.
        target_mean: [n, k] float, likewise for each candidate; [1, k] if all sources share their
            candidates.

    Returns:
        [n, k] float32 scores; above 1 means closer than the neighborhood.

    Raises:
        ValueError: if the sizes differ.
    """
    neighborhood = _neighborhood(cosine, source_mean, target_mean)
    np.maximum(neighborhood, MIN_DENOMINATOR, out=neighborhood)
    return np.divide(cosine, neighborhood, out=neighborhood)


def warn_of_raised(*means: tuple[np.ndarray, np.ndarray]) -> None:
    """Warns, once for all candidates, if `ratio_margin` raises denominators; given its means."""
    if num_raised := sum(num_small(*each) for each in means):
        _logger.warning(
            "ratio margin: %d of %d pairs have a mean neighborhood cosine below %g, raised to it; "
            "the distance margin suits such vectors better",
            *(num_raised, sum(target.size for _, target in means), MIN_DENOMINATOR),
        )


def num_small(source_mean: np.ndarray, target_mean: np.ndarray) -> int:
    """How many denominators of candidates `ratio_margin` raises, for its neighborhoods."""
    return int(np.count_nonzero(0.5 * (source_mean[:, None] + target_mean) < MIN_DENOMINATOR))


def distance_margin(
    cosine: np.ndarray, source_mean: np.ndarray, target_mean: np.ndarray
) -> np.ndarray:
    """Scores candidate pairs by how far their cosine exceeds their neighborhoods.

    Equation 3 of Artetxe and Schwenk (2019a), with distance as the margin; above 0 means closer
    than the neighborhood. Args, Returns and Raises: as `ratio_margin`.
    """
    neighborhood = _neighborhood(cosine, source_mean, target_mean)
    return np.subtract(cosine, neighborhood, out=neighborhood)


def csls(cosine: np.ndarray, source_mean: np.ndarray, target_mean: np.ndarray) -> np.ndarray:
    """Cross-domain similarity local scaling: 2 cos(x, y) - r(x) - r(y).

    Section 2.3 of Conneau et al. (2018), with neighborhoods of 10. Twice the distance margin, so
    both rank alike over neighborhoods of one size. Args, Returns and Raises: as `ratio_margin`.
    """
    return 2 * distance_margin(cosine, source_mean, target_mean)


def absolute_margin(
    cosine: np.ndarray, source_mean: np.ndarray, target_mean: np.ndarray
) -> np.ndarray:
    """Scores candidate pairs by their cosine, ignoring the neighborhoods.

    Equation 3 of Artetxe and Schwenk (2019a), with the absolute margin. Args, Returns and Raises:
    as `ratio_margin`.
    """
    _neighborhood(cosine, source_mean, target_mean)
    return np.array(cosine, np.float32)


# The margins of Artetxe and Schwenk (2019a), under their names there.
MARGINS = {"ratio": ratio_margin, "distance": distance_margin, "absolute": absolute_margin}


def _neighborhood(
    cosine: np.ndarray, source_mean: np.ndarray, target_mean: np.ndarray
) -> np.ndarray:
    """Mean of the two sides' neighborhoods, [n, k] float32, a new array."""
    cosine, source_mean, target_mean = map(np.asarray, (cosine, source_mean, target_mean))
    if cosine.ndim != 2 or source_mean.shape != cosine.shape[:1]:
        raise ValueError(
            "source_mean must hold one value per row of cosine [n, k]; "
            f"got {source_mean.shape} for {cosine.shape}"
        )
    if target_mean.shape not in (cosine.shape, (1, *cosine.shape[1:])):
        raise ValueError(
            "target_mean must hold one value per candidate, [n, k] or [1, k]; "
            f"got {target_mean.shape} for cosine of {cosine.shape}"
        )
    return (0.5 * (source_mean[:, None] + target_mean)).astype(np.float32, copy=False)
