"""LAWDR (Gong et al. 2021): document vectors from sentence vectors of a frozen encoder.

No training and no parallel text: each language's own sentences tell what to remove (`debias`) and
which sentences say little (`density`, `weighting`). Vectors of several languages, each from an
estimator of its own, can then be compared.
"""

from __future__ import annotations

import os

import numpy as np

WEIGHTINGS = ("kde", "none")
DENSITY_INPUTS = ("raw", "debiased")


class Lawdr:
    """Makes document vectors of one language.

        lawdr = Lawdr(rank=64).fit(vectors)
        documents = lawdr.transform(vectors, offsets)

    With "kde", v_d = sum of w_s (v_s - U U^T v_s) over the sentences of a document, and w_s =
    b / (b + P(s)); with "none", the mean of v_s - U U^T v_s.

    Args:
        rank: components of the language to remove; None for no debiasing. The paper: 64 for
            mBERT, 32 for XLM, 256 for XLM-R; `debias.choose_rank` finds it for others.
        center: subtract the mean vector too, see `debias.language_components`.
        weighting: "kde", sentences weighted by density and added up, or "none", their mean.
        density_on: "raw" vectors, as the paper's algorithm, or "debiased".
        density_dim: principal components the density is taken on.
        bandwidth: of the density; None for the one cross-validation prefers.
        seed: of the cross-validation.

    Raises:
        ValueError: if an argument is not one of those above.
    """

    def __init__(
        self,
        *,
        rank: int | None = 64,
        center: bool = False,
        weighting: str = "kde",
        density_on: str = "raw",
        density_dim: int = 16,
        bandwidth: float | None = None,
        seed: int = 0,
    ):
        raise NotImplementedError

    def fit(self, vectors: np.ndarray) -> Lawdr:
        """Learns components and density from all sentences of a language.

        Reads the vectors twice, block by block.

        Args:
            vectors: [n, dim] of any real number type; may be memory-mapped.

        Returns:
            The estimator itself.

        Raises:
            ValueError: if there are no sentences, a value is not finite, or `rank` is so high that
                nothing would be left.
        """
        raise NotImplementedError

    def transform(self, vectors: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Makes document vectors.

        Args:
            vectors: [n, dim], sentences in the order of their documents; those fitted or others.
                May be memory-mapped; read block by block.
            offsets: [docs + 1] int: document i holds the sentences offsets[i] to
                offsets[i + 1] - 1.

        Returns:
            [docs, dim] float32, not normalized. A document without sentences has the zero vector.

        Raises:
            ValueError: if the estimator is not fitted, shapes or offsets do not fit, or a value is
                not finite.
        """
        raise NotImplementedError

    def weights(self, vectors: np.ndarray) -> np.ndarray:
        """Weights of sentences by their density among those fitted; 1 each with "none".

        Args:
            vectors: [n, dim], see `transform`.

        Returns:
            [n] float64 in (0, 1].
        """
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one safetensors file with the settings as JSON in its header.

        Its size is that of the components, 4 bytes x dim x rank, and with "kde" 72 bytes for every
        fitted sentence, whose coordinates densities are counted among.

        Args:
            path: replaced if it exists, whole or not at all.
        """
        raise NotImplementedError

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Lawdr:
        """Reads what `save` wrote; executes nothing.

        Args:
            path: the file.

        Returns:
            The fitted estimator; it gives bit for bit what the saved one gave.

        Raises:
            ValueError: if the file is damaged or holds something else.
        """
        raise NotImplementedError
