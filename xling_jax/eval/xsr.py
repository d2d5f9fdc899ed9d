"""Cross-lingual sentence retrieval (XSR): few queries against many keys of one parallel text.

2,000 queries in 200,000 keys of Europarl, as in MUSE (Conneau et al. 2018) and what followed it.
Which rows are drawn decides the result and cannot be drawn again exactly from the description,
so a sample is kept in a file.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xling_jax.align import knn
from xling_jax.eval.retrieval import Encode, RetrievalMatrix, encode_unique, retrieve
from xling_jax.eval.retrieval_data import ParallelText
from xling_jax.files.hashes import hash_texts
from xling_jax.files.whole import read_json, write_json

NUM_KEYS, NUM_QUERIES = 200_000, 2_000
_SEED = 1234  # MUSE's, for the order of rows and for the queries alike.
POOLS = ("keys", "queries")


@dataclass(frozen=True)
class XsrSample:
    """Rows of a parallel text that are searched, and those searched for.

    Attributes:
        keys: [m] int64, rows whose target texts are the candidates.
        queries: [q] int64, places in `keys` whose source texts are the queries.
        fingerprint: SHA-256 of the whole text that the rows were drawn from, in hex.
    """

    keys: np.ndarray
    queries: np.ndarray
    fingerprint: str

    def save(self, path: str | Path) -> None:
        """Writes the sample as JSON, whole or not at all."""
        value = {
            "keys": self.keys.tolist(),
            "queries": self.queries.tolist(),
            "text_sha256": self.fingerprint,
        }
        write_json(Path(path), value)

    @classmethod
    def load(cls, path: str | Path) -> XsrSample:
        """Reads a sample.

        Raises:
            ValueError: if the file is missing or is no sample.
        """
        value = read_json(Path(path))
        try:
            keys, queries = (np.array(value[name], np.int64) for name in ("keys", "queries"))
            sample = cls(keys, queries, str(value["text_sha256"]))
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"{path}: must be JSON with keys, queries, text_sha256") from error
        if not len(queries) or queries.min() < 0 or queries.max() >= len(keys) or keys.min() < 0:
            raise ValueError(f"{path}: queries must be places among the {len(keys)} keys")
        return sample


def sample_as_muse(
    source: Sequence[str],
    target: Sequence[str],
    *,
    num_keys: int = NUM_KEYS,
    num_queries: int = NUM_QUERIES,
    seed: int = _SEED,
) -> XsrSample:
    """Draws keys and queries as MUSE's `load_europarl_data` does.

    Rows are made unique on the source side, then on the target side, by their lower-cased words;
    the first row of equals stays, in the order of the words, as `np.unique` leaves them. Then they
    are shuffled, the first are the keys, and queries are drawn among these without replacement.
    Choice: blank texts, which MUSE would keep one of, are left out.

    Args:
        source: n texts; MUSE reads the first 800,000 lines.
        target: n texts.
        num_keys: how many keys.
        num_queries: how many queries.
        seed: of both draws.

    Returns:
        The sample.

    Raises:
        ValueError: if the texts differ in number or too few are distinct.
    """
    if len(source) != len(target):
        raise ValueError(f"row i must be one meaning; got {len(source)} and {len(target)} rows")
    rows = [row for row in range(len(source)) if source[row].strip() and target[row].strip()]
    for texts in (source, target):
        first: dict[tuple[str, ...], int] = {}
        for row in rows:
            first.setdefault(tuple(texts[row].lower().split()), row)
        rows = [first[words] for words in sorted(first)]
    if not 0 < num_queries <= num_keys <= len(rows):
        raise ValueError(
            f"num_queries={num_queries} and num_keys={num_keys} must be positive and at most the "
            f"{len(rows)} distinct rows there are"
        )
    order = np.random.RandomState(seed).permutation(len(rows))
    keys = np.array(rows, np.int64)[order][:num_keys]
    queries = np.random.RandomState(seed).choice(num_keys, size=num_queries, replace=False)
    return XsrSample(keys, queries.astype(np.int64), _fingerprint(source, target))


def measure_xsr(
    encode: Encode,
    source: Sequence[str],
    target: Sequence[str],
    sample: XsrSample,
    *,
    similarity: str = "cosine",
    k_values: Sequence[int] = (1, 5, 10),
    pool: str = "keys",
    memory_mb: float = 256,
) -> dict[str, float]:
    """Measures how many queries find their translation.

    Args:
        encode: texts to [n, dim] embeddings; called once, with each text once.
        source: the text that the sample was drawn from.
        target: the same.
        sample: which rows.
        similarity: "cosine", as published; "margin" or "csls", see `retrieval.retrieve`.
        k_values: the k of P@k.
        pool: where candidates have their neighborhoods, for margin and CSLS: among the source
            texts of all "keys", which must then be embedded, or of the "queries" alone.
        memory_mb: see `knn.top_k`.

    Returns:
        `p_at_k` for each k, in [0, 1].

    Raises:
        ValueError: if the sample is of another text, or an argument is out of range.
    """
    if pool not in POOLS:
        raise ValueError(f"pool must be one of {', '.join(POOLS)}; got {pool!r}")
    if not k_values or min(k_values) < 1:
        raise ValueError(f"k_values must be at least 1; got {list(k_values)}")
    if _fingerprint(source, target) != sample.fingerprint:
        raise ValueError("the sample was drawn from another text; draw one from this text")
    queries = [source[row] for row in sample.keys[sample.queries]]
    candidates = [target[row] for row in sample.keys]
    columns = [queries, candidates]
    if similarity != "cosine" and pool == "keys":
        columns.append([source[row] for row in sample.keys])
    vectors, ids = encode_unique(encode, columns)
    unit = [knn.normalize(vectors[ids(column)]) for column in columns]
    ranked = retrieve(
        unit[0],
        unit[1],
        max(k_values),
        similarity=similarity,
        source_pool=unit[2] if len(unit) > 2 else None,
        memory_mb=memory_mb,
    )
    right = ranked == sample.queries[:, None]
    return {f"p_at_{k}": float(right[:, :k].any(axis=1).mean()) for k in k_values}


def draw_samples(
    text: ParallelText, num_keys: int = NUM_KEYS, num_queries: int = NUM_QUERIES
) -> dict[tuple[str, str], XsrSample]:
    """Draws a sample for every direction of an n-way text, (source, target); see `sample_as_muse`.

    Raises:
        ValueError: if a direction has too few distinct rows.
    """
    return {
        (source, target): sample_as_muse(
            text.texts[source], text.texts[target], num_keys=num_keys, num_queries=num_queries
        )
        for source, target in itertools.permutations(text.texts, 2)
    }


def xsr_matrix(
    encode: Encode,
    text: ParallelText,
    samples: Mapping[tuple[str, str], XsrSample],
    **settings,
) -> RetrievalMatrix:
    """Measures every direction that has a sample.

    Args:
        encode: texts to [n, dim] embeddings; called once a direction.
        text: the n-way text that the samples were drawn from.
        samples: for each (source, target) its sample.
        **settings: see `measure_xsr`.

    Returns:
        `p_at_k` of the directions.

    Raises:
        ValueError: as `measure_xsr`.
    """
    languages = tuple(text.texts)
    shape = (len(languages), len(languages))
    metrics: dict[str, np.ndarray] = {}
    num_queries, num_candidates = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for (source, target), sample in samples.items():
        cell = languages.index(source), languages.index(target)
        columns = text.texts[source], text.texts[target]
        for name, value in measure_xsr(encode, *columns, sample, **settings).items():
            metrics.setdefault(name, np.full(shape, np.nan))[cell] = value
        num_queries[cell], num_candidates[cell] = len(sample.queries), len(sample.keys)
    return RetrievalMatrix(languages, metrics, num_queries, num_candidates)


def _fingerprint(source: Sequence[str], target: Sequence[str]) -> str:
    return hash_texts([("source", source), ("target", target)])
