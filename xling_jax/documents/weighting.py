"""Sentence weights that decrease with density, and documents as weighted sums of sentences."""

import numpy as np
from scipy import sparse

from xling_jax.align.rows import as_embeddings, row_blocks


def sentence_weights(density: np.ndarray, mean_density: float | None = None) -> np.ndarray:
    """Weights sentences by density: common ones, such as boilerplate, weigh less.

    LAWDR: w = b / (b + P), where b is half the mean density. Scaling P changes nothing, so neighbor
    counts serve as densities.

    Args:
        density: [n] P, nonnegative.
        mean_density: mean of P over the language's sentences; None if `density` holds them all.

    Returns:
        [n] float64 in (0, 1]: 1/3 at the mean density, 1 for a sentence without neighbors.

    Raises:
        ValueError: if a density is negative or not finite, or all are zero.
    """
    density = np.asarray(density, np.float64)
    if not np.isfinite(density).all() or (density < 0).any():
        raise ValueError("density must be finite and nonnegative, such as a neighbor count")
    if not density.size:
        return density
    mean_density = density.mean() if mean_density is None else mean_density
    if not mean_density > 0:
        raise ValueError(f"the mean density must be positive; got {mean_density}")
    half = mean_density / 2
    return half / (half + density)


def document_vectors(
    vectors: np.ndarray, offsets: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Sums or averages the sentence vectors of each document.

    Reads the vectors once, block by block, and sums in float64.

    Args:
        vectors: [n, dim], sentences in the order of their documents; may be memory-mapped.
        offsets: [docs + 1] int, from 0 to n: document i holds the sentences offsets[i] to
            offsets[i + 1] - 1.
        weights: [n]; None for the mean.

    Returns:
        [docs, dim] float32: the weighted sum, undivided, or the mean; zero without sentences.

    Raises:
        ValueError: if shapes or offsets do not fit, or a vector is not finite.
    """
    vectors = as_embeddings(vectors, "vectors")
    offsets = checked_offsets(offsets, len(vectors))
    if weights is None:
        # Divided first, so that no large sum is rounded to float32.
        lengths = np.diff(offsets)
        weights = np.repeat(1 / np.maximum(lengths, 1), lengths)
    weights = np.asarray(weights, np.float64)
    if weights.shape != (len(vectors),):
        raise ValueError(f"weights must have shape ({len(vectors)},); got {weights.shape}")
    documents = np.zeros((len(offsets) - 1, vectors.shape[1]), np.float32)
    for rows, block in row_blocks(vectors):
        first = np.searchsorted(offsets, rows.start, side="right") - 1
        last = np.searchsorted(offsets, rows.stop, side="left")
        starts = np.clip(offsets[first : last + 1], rows.start, rows.stop) - rows.start
        matrix = sparse.csr_array(
            (weights[rows], np.arange(len(block)), starts), shape=(last - first, len(block))
        )
        documents[first:last] += matrix @ block.astype(np.float64)
    return documents


def checked_offsets(offsets: np.ndarray, num_sentences: int) -> np.ndarray:
    """Returns offsets [docs + 1] as int64; ValueError unless they rise from 0 to the number."""
    offsets = np.asarray(offsets)
    if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu":
        given = f"{offsets.dtype} {offsets.shape}"
        raise ValueError(f"offsets must be integers of shape [docs + 1]; got {given}")
    offsets = offsets.astype(np.int64)
    decreasing = (np.diff(offsets) < 0).any()
    if offsets[0] != 0 or offsets[-1] != num_sentences or decreasing:
        raise ValueError(
            f"offsets must increase from 0 to the number of sentences, {num_sentences}; got "
            f"{offsets[0]} to {offsets[-1]}{', decreasing' if decreasing else ''}"
        )
    return offsets
