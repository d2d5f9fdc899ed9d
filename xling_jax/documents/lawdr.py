"""LAWDR (Gong et al. 2021): document vectors from sentence vectors of a frozen encoder.

The sentences of a language determine which components identify it (`debias`) and which sentences
carry little meaning (`density`). Document vectors of several languages, each from its
own estimator, are then comparable.
"""

import dataclasses
from typing import Self

import numpy as np
from scipy import sparse

from xling_jax.align.rows import as_embeddings, row_blocks, slices
from xling_jax.documents import debias
from xling_jax.documents.density import TophatDensity, sentence_weights
from xling_jax.options import check_values
from xling_jax.registry import check_choice

WEIGHTINGS = ("kde", "none")


@dataclasses.dataclass(kw_only=True, eq=False)
class Lawdr:
    """Makes document vectors of one language.

        lawdr = Lawdr(rank=64).fit(vectors)
        documents = lawdr.transform(vectors, offsets)

    With weighting "kde", v_d = sum of w_s (v_s - U U^T v_s) over the sentences of a document, with
    w_s = b / (b + P(s)); with "none", the mean of v_s - U U^T v_s.

    Attributes:
        rank: components of the language to remove; None for no debiasing. The paper: 64 for
            mBERT, 32 for XLM, 256 for XLM-R; `debias.choose_rank` finds it for other encoders.
        weighting: "kde", the sum of sentences weighted by density; or "none", their mean.
        seed: of the cross-validation of the density.
    """

    rank: int | None = 64
    weighting: str = "kde"
    seed: int = 0

    def __post_init__(self):
        check_values(self)
        if self.rank is not None and self.rank < 1:
            raise ValueError(f"rank must be at least 1, or None for no debiasing; got {self.rank}")
        check_choice("weighting", self.weighting, WEIGHTINGS)
        self.dim: int | None = None
        self.components: np.ndarray | None = None
        self.density: TophatDensity | None = None

    def fit(self, vectors: np.ndarray) -> Self:
        """Fits components and density to all sentences of a language; returns the estimator.

        Vectors [n, dim] may be memory-mapped. ValueError if there are none, a value is not finite,
        or `rank` is so high that nothing would be left.
        """
        vectors = as_embeddings(vectors, "vectors")
        statistics = debias.gram_matrix(vectors)
        components, density = None, None
        if self.rank is not None:
            components = debias.language_components(statistics, self.rank).astype(np.float32)
        if self.weighting == "kde":
            density = TophatDensity.fit(vectors, statistics, self.seed)
        # Assigned at the end, so that a failed fit changes nothing.
        self.components, self.density = components, density
        self.dim = vectors.shape[1]
        return self

    def transform(self, vectors: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Makes document vectors.

        Args:
            vectors: [n, dim], sentences in the order of their documents: the fitted ones, whose
                densities are known, or others. May be memory-mapped; read block by block.
            offsets: see `document_vectors`.

        Returns [docs, dim] float32, not normalized; zero for a document without sentences.
        """
        weights = self.weights(vectors)
        documents = document_vectors(vectors, offsets, weights if self.density else None)
        if self.components is not None:
            # The projection is linear, and there are fewer documents than sentences.
            for rows in slices(len(documents)):
                documents[rows] = debias.remove_components(documents[rows], self.components)
        return documents

    def weights(self, vectors: np.ndarray) -> np.ndarray:
        """Weights [n] of sentences by their density among the fitted ones; all 1 with "none".

        float64 in (0, 1], 1/3 at the mean density of the fitted sentences. Arguments and errors as
        `transform`.
        """
        if self.dim is None:
            raise ValueError("this Lawdr is not fitted; call fit(vectors) first")
        vectors = as_embeddings(vectors, "vectors", self.dim)
        if self.density is None:
            return np.ones(len(vectors))
        counts = self.density.counts(vectors)
        return sentence_weights(counts, float(self.density.fitted_counts.mean()))


def document_vectors(
    vectors: np.ndarray, offsets: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Sums or averages the sentence vectors of each document, [docs, dim] float32.

    Reads the vectors once, block by block, and sums in float64. The sum is weighted and undivided;
    without weights it is the mean; zero without sentences.

    Args:
        vectors: [n, dim], sentences in the order of their documents; may be memory-mapped.
        offsets: [docs + 1] int, from 0 to n: document i holds the sentences offsets[i] to
            offsets[i + 1] - 1.
        weights: [n]; None for the mean.
    """
    vectors = as_embeddings(vectors, "vectors")
    offsets = _checked(offsets, len(vectors))
    if weights is None:
        # Divided first, so that no large sum is rounded to float32.
        lengths = np.diff(offsets)
        weights = np.repeat(1 / np.maximum(lengths, 1), lengths)
    weights = np.asarray(weights, np.float64)
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


def _checked(offsets: np.ndarray, num_sentences: int) -> np.ndarray:
    """Returns offsets [docs + 1] as int64; ValueError unless they rise from 0 to the number."""
    offsets = np.asarray(offsets)
    if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu":
        given = f"{offsets.dtype} {offsets.shape}"
        raise ValueError(f"offsets must be integers of shape [docs + 1]; got {given}")
    offsets = offsets.astype(np.int64)
    if offsets[0] != 0 or offsets[-1] != num_sentences or (np.diff(offsets) < 0).any():
        raise ValueError(
            f"offsets must increase from 0 to the number of sentences, {num_sentences}; got "
            f"{offsets[0]} to {offsets[-1]}"
        )
    return offsets
