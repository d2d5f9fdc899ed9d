"""Scores that compare a pair's cosine with the cosines of both sides' neighborhoods.

Pure functions of arrays. A raw cosine means little on its own: some sentences are close to
everything. Dividing by, or subtracting, what is usual around the two sides corrects for it.
"""

import logging

import numpy as np

from xling_jax.align import knn

_logger = logging.getLogger(__name__)

# Choice: denominators below this count as this. Below zero the ratio would change its sign,
# which happens where vectors were centered and neighbors have negative cosines. A far lower
# floor would let such pairs lead every mined list with scores in the hundred thousands.
MIN_DENOMINATOR = 1e-3


def neighbor_mean(
    queries: np.ndarray,
    keys: np.ndarray,
    k: int,
    *,
    memory_mb: float = 256,
    backend: str = "numpy",
) -> np.ndarray:
    """Mean cosine of each query to its k nearest keys.

    The two sums in the denominator of equation 3 of Artetxe and Schwenk (2019a), over k.

    Args:
        queries: [n, dim] normalized embeddings.
        keys: [m, dim] normalized embeddings.
        k: size of the neighborhood; m when there are fewer keys.
        memory_mb: see `knn.top_k`.
        backend: see `knn.top_k`.

    Returns:
        [n] float32.
    """
    return knn.top_k(queries, keys, k, memory_mb=memory_mb, backend=backend)[0].mean(axis=1)


def ratio_margin(
    cosine: np.ndarray, source_mean: np.ndarray, target_mean: np.ndarray
) -> np.ndarray:
    """Scores candidate pairs by cosine relative to their neighborhoods.

    Equation 3 of Artetxe and Schwenk (2019a), with ratio as the margin. Denominators below
    `MIN_DENOMINATOR` are raised to it, with a warning that counts them.

    Args:
        cosine: [n, k] float, cosine of source i with its k candidates, in [-1, 1].
        source_mean: [n] float, mean cosine of source i to its own k neighbors.
        target_mean: [n, k] float, the same for each candidate; [1, k] where all sources have
            the same candidates.

    Returns:
        [n, k] float32 scores; above 1 means closer than the neighborhood.

    Raises:
        ValueError: if the sizes differ.
    """
    neighborhood = _neighborhood(cosine, source_mean, target_mean)
    num_small = int(np.count_nonzero(neighborhood < MIN_DENOMINATOR))
    if num_small:
        _logger.warning(
            "ratio margin: %d of %d pairs have neighborhoods with a mean cosine below %g, taken "
            "as %g; the distance margin suits such vectors better",
            num_small,
            neighborhood.size,
            MIN_DENOMINATOR,
            MIN_DENOMINATOR,
        )
        np.maximum(neighborhood, MIN_DENOMINATOR, out=neighborhood)
    return np.divide(cosine, neighborhood, out=neighborhood)


def distance_margin(
    cosine: np.ndarray, source_mean: np.ndarray, target_mean: np.ndarray
) -> np.ndarray:
    """Scores candidate pairs by how far their cosine lies above their neighborhoods.

    Equation 3 of Artetxe and Schwenk (2019a), with distance as the margin.

    Args and Raises: as `ratio_margin`.

    Returns:
        [n, k] float32 scores; above 0 means closer than the neighborhood.
    """
    neighborhood = _neighborhood(cosine, source_mean, target_mean)
    return np.subtract(cosine, neighborhood, out=neighborhood)


def csls(cosine: np.ndarray, source_mean: np.ndarray, target_mean: np.ndarray) -> np.ndarray:
    """Cross-domain similarity local scaling: 2 cos(x, y) - r(x) - r(y).

    Section 2.3 of Conneau et al. (2018), where neighborhoods have 10 members. It is twice the
    distance margin, so both rank alike over neighborhoods of one size.

    Args and Raises: as `ratio_margin`.

    Returns:
        [n, k] float32 scores.
    """
    return 2 * distance_margin(cosine, source_mean, target_mean)


def absolute_margin(
    cosine: np.ndarray, source_mean: np.ndarray, target_mean: np.ndarray
) -> np.ndarray:
    """The cosine itself, whatever the neighborhoods.

    Equation 3 of Artetxe and Schwenk (2019a), with the absolute margin.

    Args and Raises: as `ratio_margin`.

    Returns:
        [n, k] float32 scores, a new array.
    """
    _neighborhood(cosine, source_mean, target_mean)
    return np.array(cosine, np.float32)


# The margins of Artetxe and Schwenk (2019a) by their names there.
MARGINS = {"ratio": ratio_margin, "distance": distance_margin, "absolute": absolute_margin}


def _neighborhood(
    cosine: np.ndarray, source_mean: np.ndarray, target_mean: np.ndarray
) -> np.ndarray:
    """Mean of the two sides' neighborhoods, [n, k] float32, a new array."""
    cosine, source_mean, target_mean = map(np.asarray, (cosine, source_mean, target_mean))
    if cosine.ndim != 2 or source_mean.shape != cosine.shape[:1]:
        raise ValueError(
            "source_mean must hold one value for each row of cosine [n, k]; "
            f"got {source_mean.shape} for {cosine.shape}"
        )
    if target_mean.shape not in (cosine.shape, (1, *cosine.shape[1:])):
        raise ValueError(
            "target_mean must hold one value for each candidate, [n, k] or [1, k]; "
            f"got {target_mean.shape} for cosine of {cosine.shape}"
        )
    return (0.5 * (source_mean[:, None] + target_mean)).astype(np.float32, copy=False)
