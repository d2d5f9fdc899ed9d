"""Removes what sentence vectors of one language have in common (Gong et al. 2021, LAWDR).

A multilingual encoder's vectors hold a large part that tells the language and a small one that
tells the meaning. The first lies in the top right singular vectors of all sentence vectors of a
language, found here from a Gram matrix that is streamed.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from xling_jax.documents.rows import as_vectors, row_blocks


@dataclasses.dataclass(frozen=True)
class GramStatistics:
    """What the components of a set of vectors follow from, however many there are.

    Attributes:
        gram: [dim, dim] float64, sum over the vectors of v v^T.
        total: [dim] float64, sum of the vectors.
        count: number of vectors.
    """

    gram: np.ndarray
    total: np.ndarray
    count: int

    @property
    def mean(self) -> np.ndarray:
        """[dim] float64, mean vector."""
        return self.total / self.count

    @property
    def centered_gram(self) -> np.ndarray:
        """[dim, dim] float64, sum of (v - mean) (v - mean)^T."""
        return self.gram - np.outer(self.total, self.mean)


@dataclasses.dataclass(frozen=True)
class RankChoice:
    """Outcome of `choose_rank`.

    Attributes:
        rank: number of components to remove.
        accuracies: accuracy of the language classifier by rank tried, 0 (nothing removed) too.
        max_accuracy: the bound that the chosen rank stays below.
    """

    rank: int
    accuracies: dict[int, float]
    max_accuracy: float


def gram_matrix(blocks: np.ndarray | Iterable[np.ndarray]) -> GramStatistics:
    """Sums outer products in float64 over vectors that need not fit in memory.

    Args:
        blocks: [any, dim] arrays of one dim and any real number type; or one array [n, dim], which
            may be memory-mapped and is read in blocks.

    Returns:
        The sums and the count.

    Raises:
        ValueError: if there are no vectors, shapes disagree, or a value is not finite.
    """
    blocks = [blocks] if isinstance(blocks, np.ndarray) else blocks
    gram, total, count = None, None, 0
    for part in blocks:
        part = as_vectors(part, dim=None if gram is None else len(gram))
        if gram is None:
            gram = np.zeros((part.shape[1], part.shape[1]))
            total = np.zeros(part.shape[1])
        for _, block in row_blocks(part):
            # float64: small components must survive beside large ones, millions of times.
            block = block.astype(np.float64)
            gram += block.T @ block
            total += block.sum(axis=0)
            count += len(block)
    if not count:
        raise ValueError("vectors must hold at least one sentence; got none")
    return GramStatistics(gram, total, count)


def language_components(statistics: GramStatistics, rank: int, center: bool = False) -> np.ndarray:
    """Top right singular vectors of all sentence vectors of a language.

    The singular vectors of the matrix of vectors are the eigenvectors of its Gram matrix.

    Choice: not centered, as the formulas of the paper; its "variance ratio" reads as centered,
    which `center` gives. Then the mean is to be removed too.

    Args:
        statistics: of the language's vectors.
        rank: number of components, from 1 to less than the rank of the vectors.
        center: whether to subtract the mean vector first.

    Returns:
        [dim, rank] float64, orthonormal columns, largest singular value first. Signs are free.

    Raises:
        ValueError: if removing so many components would leave nothing of the fitted vectors.
    """
    gram = statistics.centered_gram if center else statistics.gram
    values, vectors = np.linalg.eigh(gram)
    # Rounding leaves about so much of what is zero.
    smallest = max(values[-1], 0) * len(gram) * np.finfo(np.float64).eps
    full_rank = int(np.count_nonzero(values > smallest))
    if not 1 <= rank < full_rank:
        kind = "centered " if center else ""
        raise ValueError(
            f"rank={rank} must be at least 1 and below {full_rank}, the rank of the {kind}vectors "
            f"({statistics.count} sentences of dim {len(gram)}): removing as many leaves nothing; "
            "use a smaller rank, more sentences, or no debiasing"
        )
    return np.ascontiguousarray(vectors[:, ::-1][:, :rank])


def remove_components(
    vectors: np.ndarray, components: np.ndarray, mean: np.ndarray | None = None
) -> np.ndarray:
    """Projects vectors onto what is orthogonal to the components: v - U U^T v.

    Args:
        vectors: [n, dim] float.
        components: [dim, rank] U, orthonormal columns.
        mean: [dim], subtracted first; None if the components were not centered.

    Returns:
        [n, dim], a new array of the vectors' type.

    Raises:
        ValueError: if the dims differ.
    """
    vectors = as_vectors(vectors, dim=len(components))
    components = components.astype(vectors.dtype, copy=False)
    if mean is not None:
        vectors = vectors - mean.astype(vectors.dtype)
    return vectors - (vectors @ components) @ components.T


def choose_rank(
    vectors_by_language: Mapping[str, np.ndarray],
    ranks: Sequence[int] | None = None,
    max_accuracy: float = 0.55,
    seed: int = 0,
    max_sentences: int = 5000,
) -> RankChoice:
    """Finds the smallest rank after which a linear classifier cannot tell the languages.

    The paper's rule: a linear SVM, 8:2 split, two languages, accuracy below 55 %.

    Choice: with L languages the bound is that many points above chance, 1/L + max_accuracy - 1/2;
    every language gives equally many sentences, so that chance is 1/L; features are standardized
    on the training part, so that the scale of an encoder does not matter.

    Args:
        vectors_by_language: [n, dim] for each of two or more languages, of one kind of text.
            Components are taken from all of a language's vectors.
        ranks: tried in this order; None for the powers of two.
        max_accuracy: the bound for two languages.
        seed: of the draw of sentences, of the split and of the SVM.
        max_sentences: of a language, given to the SVM.

    Returns:
        The rank and the accuracies up to it.

    Raises:
        ValueError: if there are fewer than two languages or five sentences in one, or no rank
            will do.
    """
    raise NotImplementedError
