"""Initial parameters of a new run from word vectors, a trained encoder, or its text.

Word vectors of the text come from co-occurrence. What a token co-occurs with in one language, the
pivot, describes it, whichever its own language is: "Hund" and "dog" are found in rows with the same
English tokens. Sentence alignment as the only context is the baseline of Levy, Søgaard and Goldberg
(2017, "A strong baseline for learning cross-lingual word embeddings from sentence alignments"); the
matrix and its factors are those of Levy and Goldberg (2014).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from scipy.sparse import csr_array, csr_matrix, diags_array, vstack
from sklearn.utils.extmath import randomized_svd

from xling_jax.corpora.shards import PairTokens
from xling_jax.models.numpy_static import StaticOptions, choose_keys
from xling_jax.text.vocab import Vocab, split_pieces
from xling_jax.train.optimizer import TOKEN_TABLES

# (tokens [sum of lengths], offsets [rows + 1]) of consecutive rows.
Rows = tuple[np.ndarray, np.ndarray]

# Exponent of the context distribution (Levy, Goldberg and Dagan 2015).
_SMOOTHING = 0.75
# Less of a co-occurrence than one in a row of 25 tokens is chance.
_LEAST = 0.2
# The a of a / (a + p): down-weights frequent tokens (Arora, Liang and Ma 2017).
_FREQUENCY = 1e-3
_ROWS_AT_A_TIME = 100_000


def put_word_vectors(params: Any, vectors: np.ndarray, found: np.ndarray) -> Any:
    """Puts word vectors [vocab, width] into the input token tables, the leaves named `embedding`.

    Rows that are not `found`, and tables of another width, are unchanged; ValueError if no table
    has that width.
    """
    flat = flatten_dict(params)
    width = vectors.shape[1]
    tables = [p for p, leaf in flat.items() if p[-1] == "embedding" and leaf.shape[1] == width]
    if not tables:
        raise ValueError(f"train.word_vectors: no token table has their width, {width}")

    def put(table: jax.Array) -> jax.Array:
        known = np.zeros((table.shape[0], 1), bool)
        known[: len(found), 0] = found
        rows = np.zeros(table.shape, np.float32)
        rows[: len(vectors)] = vectors
        mixed = jax.jit(lambda table, known, rows: jnp.where(known, rows, table))
        return jax.device_put(mixed(table, known, rows), table.sharding)

    return unflatten_dict(flat | {path: put(flat[path]) for path in tables})


def cooccurrence_of_pairs(pairs: Sequence[PairTokens], vocab_size: int, width: int) -> np.ndarray:
    """Word vectors [vocab, width] from the token shards.

    The language with the most rows is the pivot; pairs without it are left out. The vectors depend
    on the text alone, not on the seed of the run: runs that differ in their seed begin in the same
    coordinates, and their parameters can be averaged.
    """
    sizes = Counter()
    for pair in pairs:
        sizes.update(dict.fromkeys(pair.languages, len(pair)))
    ((pivot, _),) = sizes.most_common(1)
    sides = ((pair, other) for pair in pairs for other in pair.languages if other != pivot)
    both = [(pair, other) for pair, other in sides if pivot in pair.languages]
    rows = (texts for pair, o in both for texts in zip(pair.shards(o), pair.shards(pivot)))
    return cooccurrence_vectors(rows, vocab_size, width)


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
        for begin in range(0, len(other[1]) - 1, _ROWS_AT_A_TIME):
            bags = [_bags_of(side, begin, vocab_size, counts) for side in (other, pivot)]
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
    length = _FREQUENCY / (_FREQUENCY + probability)
    norms = np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
    vectors *= np.where(found, length / norms, 0)[:, None]
    return vectors.astype(np.float32)


def _bags_of(side: Rows, begin: int, vocab_size: int, counts: np.ndarray) -> csr_array:
    """Which tokens some rows have, [rows, vocab_size] of 0 and 1; adds to the counts of tokens."""
    tokens, offsets = side
    ends = np.asarray(offsets[begin : begin + _ROWS_AT_A_TIME + 1])
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


def put_feature_keys(
    params: Any, encoder: StaticOptions, pairs: Iterable[PairTokens]
) -> tuple[Any, float]:
    """Gives the most frequent features of the training text a row in a static encoder.

    Returns the parameters, and the share of the features in the text that have a row.
    """
    sides = ((pair, language) for pair in pairs for language in sorted({*pair.languages}))
    texts = (text for pair, language in sides for text in pair.shards(language))
    keys, share = choose_keys(encoder, texts)
    keys = jax.device_put(keys, params["encoder"]["feature_keys"].sharding)
    return {**params, "encoder": {**params["encoder"], "feature_keys": keys}}, share


def add_rows(encoder: Any, old: Vocab, new: Vocab, pairs: Iterable[PairTokens]) -> Any:
    """Gives the token tables of a trained encoder rows for the pieces that extend its vocabulary.

    A new row is the mean of the rows of the old pieces that spelled it. One whose characters were
    unknown begins as the mean of the pieces in the translations of its sentences, each counted by
    its share of the translation; one that no sentence has, as the mean of the table. `pairs` are
    the training text in the new vocabulary, see `text.vocab.extended`.
    """
    number = new.size - old.size
    split = split_pieces(old, new.pieces()[old.size :])
    known = [[i for i in ids if i != old.unk_id] for ids in split]
    # "\u2581" and a letter that is unknown say nothing.
    known = [ids if len(ids) == len(found) else [] for ids, found in zip(known, split)]
    spelled = csr_array(
        (
            np.ones(sum(map(len, known)), np.float32),
            np.concatenate([np.asarray(ids, np.int32) for ids in known]),
            np.concatenate([[0], np.cumsum([*map(len, known)])]),
        ),
        (number, old.size),
    )
    is_unknown = np.array([not ids for ids in known])
    opposite = csr_array((number, old.size), dtype=np.float32)
    for pair in pairs if is_unknown.any() else ():
        languages = pair.languages
        for side, other in (languages, languages[::-1]):
            for mine, theirs in zip(pair.shards(side), pair.shards(other)):
                opposite += _opposite(mine, theirs, old.size, new.size)
    opposite = diags_array(is_unknown.astype(np.float32)) @ opposite
    shares = (spelled + opposite).tocsr()
    totals = np.asarray(shares.sum(axis=1))

    def extended(table: np.ndarray) -> np.ndarray:
        table = np.asarray(table, np.float32)[: old.size]
        rows = shares @ table.reshape(old.size, -1) / np.maximum(totals, 1e-12)[:, None]
        rows[totals == 0] = table.reshape(old.size, -1).mean(0)
        return np.concatenate([table, rows.reshape(number, *table.shape[1:])])

    flat = flatten_dict(encoder)
    tables = {p: extended(v) for p, v in flat.items() if p[-1] in TOKEN_TABLES}
    return unflatten_dict(flat | tables)


def _opposite(mine: Rows, theirs: Rows, old: int, new: int) -> csr_array:
    """[new - old, old], how much of the translations of each new piece each old one is."""
    total = csr_array((new - old, old), dtype=np.float32)
    for begin in range(0, len(mine[1]) - 1, _ROWS_AT_A_TIME):
        counts = np.zeros(new, np.int64)
        left, right = (_bags_of(side, begin, new, counts) for side in (mine, theirs))
        sizes = np.maximum(np.diff(right.indptr), 1).astype(np.float32)
        total += left[:, old:].T @ (diags_array(1 / sizes) @ right)[:, :old]
    return total


def put_encoder(params: Any, encoder: Any, vocab_size: int) -> tuple[Any, int]:
    """Puts the parameters of a trained encoder into a model, where their names agree.

    Of token tables, leaves named `embedding`, and of `token_weight`, the number of rows beyond the
    vocabulary may differ: they are padding, or published ones that no token has. Returns the
    parameters, and the number of arrays taken; ValueError if there are none, or one has another
    shape.
    """
    flat, found, taken = flatten_dict(params), flatten_dict({"encoder": encoder}), {}
    for path in filter(found.__contains__, flat):
        value, leaf = found[path], flat[path]
        is_table = path[-1] in TOKEN_TABLES and value.shape[1:] == leaf.shape[1:]
        if is_table and vocab_size <= min(len(value), len(leaf)) and len(value) != len(leaf):
            missing = np.zeros((len(leaf) - vocab_size, *value.shape[1:]), np.float32)
            value = np.concatenate([value[:vocab_size], missing])
        if value.shape != leaf.shape:
            raise ValueError(
                f"train.model_init: its {'/'.join(path[1:])} is {list(value.shape)}, that of this "
                f"run is {list(leaf.shape)}; give both encoders the same sizes"
            )
        taken[path] = jax.device_put(jnp.asarray(value, leaf.dtype), leaf.sharding)
    if not taken:
        raise ValueError(
            "train.model_init: its encoder has no array in common with this one; use the same "
            "family and width"
        )
    return unflatten_dict(flat | taken), len(taken)
