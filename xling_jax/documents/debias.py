"""Removes the components that identify the language from sentence vectors.

LAWDR (Gong et al. 2021): a multilingual encoder's vectors have a large component that identifies
the language and a small one that carries the meaning. The first lies in the span of the top right
singular vectors of all sentence vectors of a language, found here from a streamed Gram matrix.
"""

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from xling_jax.align.rows import as_embeddings, row_blocks
from xling_jax.files.progress import counted
from xling_jax.options import OptionError, checks_numbers

_logger = logging.getLogger(__name__)

AUTO = "auto"
# Per language, for the rank rule: a fifth of fewer cannot tell 55 % from 75 %.
_MIN_SENTENCES = 50
# With fewer, components that identify the language also hold what documents are about.
_SENTENCES_PER_COMPONENT = 50


class NoRankError(ValueError):
    """No number of components hides the language, or there is too little text to find it."""


@dataclasses.dataclass(frozen=True)
class GramStatistics:
    """Sums over `count` vectors, float64: of v v^T, [dim, dim], and of v, [dim]."""

    gram: np.ndarray
    total: np.ndarray
    count: int

    @property
    def mean(self) -> np.ndarray:
        """[dim] float64, the mean vector."""
        return self.total / self.count


def gram_matrix(blocks: np.ndarray | Iterable[np.ndarray]) -> GramStatistics:
    """Sums outer products in float64 over vectors that need not fit in memory.

    `blocks` are [any, dim] arrays of equal dim and any real number type, or one array [n, dim],
    which may be memory-mapped. ValueError if there are no vectors, shapes disagree, or a value is
    not finite.
    """
    blocks = [blocks] if isinstance(blocks, np.ndarray) else blocks
    gram, total, count = None, None, 0
    for part in blocks:
        part = as_embeddings(part, "vectors", None if gram is None else len(gram))
        if gram is None:
            gram = np.zeros((part.shape[1], part.shape[1]))
            total = np.zeros(part.shape[1])
        for _, block in row_blocks(part):
            # float64: small components must survive millions of additions to large ones.
            block = block.astype(np.float64)
            gram += block.T @ block
            total += block.sum(axis=0)
            count += len(block)
    if not count:
        raise ValueError("vectors must hold at least one sentence; got none")
    return GramStatistics(gram, total, count)


def language_components(statistics: GramStatistics, rank: int) -> np.ndarray:
    """Returns the top right singular vectors of all sentence vectors of a language.

    [dim, rank] float64, the eigenvectors of the Gram matrix: orthonormal columns, largest singular
    value first. Signs are free. OptionError if removing that many would leave nothing of the
    vectors.

    Choice: uncentered, as in the paper's formulas; its term "variance ratio" suggests centering.
    """
    vectors, full_rank = _right_singular_vectors(statistics)
    if not 0 <= rank < full_rank:
        raise OptionError(
            f"debiasing cannot remove {rank} components: the vectors of "
            f"{counted(statistics.count, 'sentence')} span {counted(full_rank, 'dimension')}, of "
            f"which some must be left; remove at most "
            f"{max(full_rank - 1, 0)}, or add sentences"
        )
    return np.ascontiguousarray(vectors[:, :rank])


def _right_singular_vectors(statistics: GramStatistics) -> tuple[np.ndarray, int]:
    """[dim, dim], largest singular value first, and how many singular values are not zero."""
    values, vectors = np.linalg.eigh(statistics.gram)
    # What rounding leaves of a zero eigenvalue.
    zero = max(np.trace(statistics.gram), 0) * len(vectors) * np.finfo(np.float64).eps
    return vectors[:, ::-1], int(np.count_nonzero(values > zero))


def principal_axes(statistics: GramStatistics, num_dims: int) -> np.ndarray:
    """Returns at most `num_dims` principal axes of vectors, [dim, d] float64.

    Orthonormal columns, largest variance first; axes of zero variance are arbitrary. n vectors span
    n - 1 dimensions.
    """
    gram = statistics.gram - np.outer(statistics.total, statistics.mean)  # of v - mean
    num_dims = min(num_dims, len(gram), max(statistics.count - 1, 1))
    return np.ascontiguousarray(np.linalg.eigh(gram)[1][:, ::-1][:, :num_dims])


def remove_components(vectors: np.ndarray, components: np.ndarray) -> np.ndarray:
    """Projects vectors [n, dim] onto the orthogonal complement of U, [dim, rank]: v - U U^T v.

    Returns a new array: float64 if the vectors are, otherwise float32.
    """
    vectors = as_embeddings(vectors, "vectors", len(components))
    dtype = np.float64 if vectors.dtype == np.float64 else np.float32
    vectors, components = vectors.astype(dtype, copy=False), components.astype(dtype, copy=False)
    return vectors - (vectors @ components) @ components.T


def check_rank(rank: int | str, encoder: Any) -> None:
    """OptionError if vectors of this encoder have no more dimensions than are to be removed."""
    if rank != AUTO and not 0 <= rank < encoder.dim:
        rule = f"must be at least 0 and below the {encoder.dim} dimensions of the vectors"
        raise OptionError(f"debias={rank}: {rule}")


def find_rank(rank: int | str, vectors_by_language: Mapping[str, np.ndarray], seed: int = 0) -> int:
    """A number of components as it is; for "auto" as `choose_rank`, or 0, with a warning."""
    if rank != AUTO:
        return rank
    try:
        rank = choose_rank(vectors_by_language, seed=seed)[0]
    except NoRankError as error:
        _logger.warning("no debiasing: %s", error)
        return 0
    _logger.info("debiasing: %s of each language", counted(rank, "component"))
    fewest = min(map(len, vectors_by_language.values()))
    if rank * _SENTENCES_PER_COMPONENT > fewest:
        line = "%d components of %d sentences hold topics too; compare with --debias 0"
        _logger.warning(line, rank, fewest)
    return rank


@checks_numbers
def choose_rank(
    vectors_by_language: Mapping[str, np.ndarray],
    max_accuracy: float = 0.55,
    seed: int = 0,
    max_sentences: int = 5000,
) -> tuple[int, dict[int, float]]:
    """Finds how many components to remove to hide the language from a linear classifier.

    The paper's rule: 0, or else the least power of two, after which a linear SVM with an 8:2 split
    identifies two languages with an accuracy below 55 %.

    Components come from the sentences outside the test fifth. Those of all sentences span a small
    test part as well and remove it whole: the classifier then reads chance whatever the language.

    Choice: with L languages the bound is equally far above chance, 1/L + max_accuracy - 1/2; every
    language contributes equally many sentences, so that chance is 1/L; features are standardized on
    the training part, so that the scale of an encoder does not matter.

    Args:
        vectors_by_language: [n, dim] for each of two or more languages, from one kind of text; may
            be memory-mapped.
        max_accuracy: the bound for two languages.
        seed: of the sample of sentences, the split and the SVM.
        max_sentences: most sentences per language for the SVM.

    Returns the rank, and the accuracy of the classifier by rank tried, from 0. NoRankError if a
    language has fewer than 50 sentences, or no rank reaches the bound.
    """
    for language, vectors in vectors_by_language.items():
        if len(vectors) < _MIN_SENTENCES:
            rule = f"must have at least {_MIN_SENTENCES} sentences for --debias auto"
            raise NoRankError(f"{language} {rule}; got {len(vectors)}")
    arrays = vectors_by_language.values()
    rng = np.random.default_rng(seed)
    size = min(max_sentences, *map(len, arrays))  # equally many of each, without replacement
    parts, components = [], []
    for language, array in vectors_by_language.items():
        drawn = rng.choice(len(array), size, replace=False)
        test, train = np.split(drawn, [size // 5])
        statistics = gram_matrix(_blocks_without(array, np.sort(test), language))
        components.append(_right_singular_vectors(statistics))
        parts.append([np.asarray(array[np.sort(rows)], np.float32) for rows in (train, test)])
    full_rank = min(rank for _, rank in components)
    bound = 1 / len(parts) + max_accuracy - 1 / 2
    accuracies: dict[int, float] = {}
    for rank in (0, *(2**power for power in range(full_rank.bit_length()) if 2**power < full_rank)):
        debiased = [
            [remove_components(part, vectors[:, :rank]) for part in both]
            for both, (vectors, _) in zip(parts, components, strict=True)
        ]
        accuracies[rank] = language_accuracy(*zip(*debiased), seed)
        if accuracies[rank] < bound:
            return rank, accuracies
    tried = ", ".join(f"{rank}: {accuracy:.1%}" for rank, accuracy in accuracies.items())
    raise NoRankError(
        f"no rank brings the accuracy of language identification below {bound:.1%} ({tried}); "
        "choose a rank by hand (--debias N) or none (--debias 0)"
    )


def _blocks_without(vectors: np.ndarray, left_out: np.ndarray, name: str) -> Iterator[np.ndarray]:
    """The vectors block by block, but for some rows, given in order."""
    for rows, block in row_blocks(as_embeddings(vectors, name), name):
        first, last = np.searchsorted(left_out, [rows.start, rows.stop])
        yield np.delete(block, left_out[first:last] - rows.start, axis=0)


def language_accuracy(train: Sequence[np.ndarray], test: Sequence[np.ndarray], seed: int) -> float:
    """Accuracy of a linear SVM, fitted to the vectors of each language in `train`, on `test`."""
    # Imported here because it is slow, and nothing else in this module needs it.
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC

    labels = lambda parts: np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    # The dual problem does not converge where languages cannot be separated.
    classifier = make_pipeline(StandardScaler(), LinearSVC(dual=False, random_state=seed))
    classifier.fit(np.concatenate(train), labels(train))
    return float(classifier.score(np.concatenate(test), labels(test)))
