"""Word vectors from co-occurrence in parallel text, as initial token embeddings.

What a token co-occurs with in one language, the pivot, describes it, whichever its own language is:
"Hund" and "dog" are found in rows with the same English tokens. Sentence alignment as the only
context is the baseline of Levy, Søgaard and Goldberg (2017, "A strong baseline for learning
cross-lingual word embeddings from sentence alignments"); the matrix and its factors are those of
Levy and Goldberg (2014).
"""

from collections.abc import Iterable

import numpy as np
from scipy.sparse import csr_array, csr_matrix, diags_array, vstack
from sklearn.utils.extmath import randomized_svd

# (tokens [sum of lengths], offsets [rows + 1]) of consecutive rows.
Rows = tuple[np.ndarray, np.ndarray]

# Exponent of the context distribution (Levy, Goldberg and Dagan 2015).
_SMOOTHING = 0.75
# Less of a co-occurrence than one in a row of 25 tokens is chance.
_LEAST = 0.2
# The a of a / (a + p): down-weights frequent tokens (Arora, Liang and Ma 2017).
_FREQUENCY = 1e-3
# Length of the vector of a rare token.
_LENGTH = 1.0
ROWS_AT_A_TIME = 100_000


def cooccurrence_vectors(
    rows: Iterable[tuple[Rows, Rows]], vocab_size: int, width: int
) -> np.ndarray:
    """Factors the positive pointwise mutual information of tokens and tokens of the pivot language.

    Each row, given in another language and in the pivot language, counts 1 / √(its tokens in the
    pivot language), each token of a row once. The vectors are the first left singular vectors,
    times the roots of the singular values, scaled to a length of a / (a + p) for a token of
    probability p, a = 10⁻³.

    Returns [vocab_size, width] float32, 0 for tokens that occur with no others; ValueError if fewer
    than `width` tokens occur in the rows.
    """
    shape = (vocab_size, vocab_size)
    parts, counts = [], np.zeros(vocab_size, np.int64)
    for other, pivot in rows:
        for begin in range(0, len(other[1]) - 1, ROWS_AT_A_TIME):
            bags = [bags_of(side, begin, vocab_size, counts) for side in (other, pivot)]
            sizes = np.maximum(np.diff(bags[1].indptr), 1)
            contexts = (diags_array(1 / np.sqrt(sizes, dtype=np.float32)) @ bags[1]).tocsr()
            parts.append(vstack(bags, "csr").T.tocsr() @ vstack([contexts, contexts], "csr"))
            # A sum copies both: parts are added when they are of similar size.
            while len(parts) > 1 and parts[-2].nnz < 2 * parts[-1].nnz:
                parts.append(parts.pop() + parts.pop())
    together = sum(reversed(parts), csr_array(shape, dtype=np.float32))
    information = _information(together)
    found = np.diff(information.indptr) > 0
    if found.sum() < width:
        raise ValueError(
            f"vectors from co-occurrence: {found.sum()} tokens occur with others in the text, "
            f"fewer than the {width} dimensions; use narrower vectors or more text"
        )
    left, singular, _ = randomized_svd(information, width, n_iter=2, random_state=0)
    vectors = left * np.sqrt(singular)
    probability = counts / counts.sum()
    length = _LENGTH * _FREQUENCY / (_FREQUENCY + probability)
    norms = np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
    vectors *= np.where(found, length / norms, 0)[:, None]
    return vectors.astype(np.float32)


def bags_of(side: Rows, begin: int, vocab_size: int, counts: np.ndarray) -> csr_array:
    """Which tokens some rows have, [rows, vocab_size] of 0 and 1; adds to the counts of tokens."""
    tokens, offsets = side
    ends = np.asarray(offsets[begin : begin + ROWS_AT_A_TIME + 1])
    columns = np.asarray(tokens[ends[0] : ends[-1]], np.int32)
    counts += np.bincount(columns, minlength=vocab_size)
    bags = csr_array(
        (np.ones(len(columns), np.float32), columns, ends - ends[0]), (len(ends) - 1, vocab_size)
    )
    bags.sum_duplicates()
    bags.data[:] = 1
    return bags


def _information(together: csr_array) -> csr_matrix:
    """Positive pointwise mutual information of tokens and contexts, from weighted counts."""
    tokens = np.repeat(np.arange(together.shape[0]), np.diff(together.indptr))
    contexts, weights = together.indices, together.data
    of_tokens = np.asarray(together.sum(1), np.float64)
    of_contexts = np.asarray(together.sum(0), np.float64) ** _SMOOTHING
    expected = of_tokens[tokens] * (of_contexts / max(of_contexts.sum(), 1e-12))[contexts]
    information = np.log(weights / expected)
    kept = (information > 0) & (weights > _LEAST)
    return csr_matrix(
        (information[kept].astype(np.float32), (tokens[kept], contexts[kept])), together.shape
    )
