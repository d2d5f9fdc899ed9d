"""Cross-lingual sentence retrieval (XSR): few queries against many keys of one parallel text.

2,000 queries among 200,000 keys of Europarl, as in MUSE (Conneau et al. 2018) and later work, which
do not determine the rows; a sample is kept in a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xling_jax.align import knn
from xling_jax.encode.texts import Encode, encode_unique
from xling_jax.eval.ranking import rank
from xling_jax.files.hashes import hash_texts
from xling_jax.files.whole import read_json, write_json

SEED = 1234  # MUSE's, both for the order of rows and for the queries


@dataclass(frozen=True)
class XsrSample:
    """Rows of a parallel text, whose SHA-256 is the fingerprint, to search and to search for.

    Attributes:
        keys: [m] int64, rows whose target texts are the candidates.
        queries: [q] int64, indices into `keys` whose source texts are the queries.
    """

    keys: np.ndarray
    queries: np.ndarray
    fingerprint: str

    def save(self, path: str | Path) -> None:
        """Writes the sample as JSON."""
        rows = {"keys": self.keys.tolist(), "queries": self.queries.tolist()}
        write_json(path, rows | {"text_sha256": self.fingerprint})

    @classmethod
    def load(cls, path: str | Path) -> XsrSample:
        """Reads a sample; raises ValueError if the file is missing or holds none."""
        value = read_json(Path(path))
        try:
            keys, queries = (np.array(value[name], np.int64) for name in ("keys", "queries"))
            sample = cls(keys, queries, str(value["text_sha256"]))
            if keys.ndim != 1 or queries.ndim != 1:
                raise ValueError("not lists")
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise ValueError(f"{path}: must be JSON with keys, queries, text_sha256") from error
        if not len(queries) or queries.min() < 0 or queries.max() >= len(keys) or keys.min() < 0:
            raise ValueError(f"{path}: queries must be indices into the {len(keys)} keys")
        return sample


def draw_sample(
    source: Sequence[str], target: Sequence[str], num_keys: int, num_queries: int
) -> XsrSample:
    """Draws keys and queries among translations as MUSE's `load_europarl_data` does.

    Rows are made unique on the source side, then on the target side, by their lower-cased words;
    the first of equal rows stays, in the order of the words, as `np.unique` leaves them. They are
    then shuffled, the first ones are the keys, and queries are drawn among these without
    replacement. MUSE reads the first 800,000 lines. Choice: blank texts, one of which MUSE would
    keep, are left out.

    Raises:
        ValueError: if the texts differ in number or too few are distinct.
    """
    rows = distinct_rows(source, target)
    if not 0 < num_queries <= num_keys <= len(rows):
        rule = f"must be positive and at most the {len(rows)} distinct rows"
        raise ValueError(f"num_queries={num_queries} and num_keys={num_keys} {rule}")
    order = np.random.RandomState(SEED).permutation(len(rows))
    keys = np.array(rows, np.int64)[order][:num_keys]
    queries = np.random.RandomState(SEED).choice(num_keys, size=num_queries, replace=False)
    return XsrSample(keys, queries.astype(np.int64), _fingerprint(source, target))


def distinct_rows(source: Sequence[str], target: Sequence[str]) -> list[int]:
    """The rows that `draw_sample` draws from, in the order of the target texts' words."""
    if len(source) != len(target):
        raise ValueError(f"row i must be one meaning; got {len(source)} and {len(target)} rows")
    rows = [row for row in range(len(source)) if source[row].strip() and target[row].strip()]
    for texts in (source, target):
        first: dict[tuple[str, ...], int] = {}
        for row in rows:
            first.setdefault(tuple(texts[row].lower().split()), row)
        rows = [first[words] for words in sorted(first)]
    return rows


def measure_direction(
    encode: Encode,
    source: Sequence[str],
    target: Sequence[str],
    sample: XsrSample,
    *,
    similarity: str = "cosine",
    k_values: Sequence[int] = (1, 5, 10),
) -> dict[str, float]:
    """Measures how many queries find their translation: a cell of a `LanguageMatrix`.

    Each text is encoded once, in one call. With a similarity other than "cosine", which is as
    published, candidates have their neighborhoods among the source texts of all keys; see
    `ranking.rank`.

    Raises:
        ValueError: if the sample is not of these texts.
    """
    if _fingerprint(source, target) != sample.fingerprint:
        raise ValueError("the sample was drawn from another text; draw one from this text")
    queries = [source[row] for row in sample.keys[sample.queries]]
    columns = [queries, [target[row] for row in sample.keys]]
    if similarity != "cosine":
        columns.append([source[row] for row in sample.keys])
    vectors, ids = encode_unique(encode, columns)
    unit = [knn.normalize(vectors[ids(column)]) for column in columns]
    pool = unit[2] if len(unit) > 2 else None
    ranked = rank(*unit[:2], max(k_values), similarity=similarity, source_pool=pool)
    right = ranked == sample.queries[:, None]
    cell = {f"p_at_{k}": float(right[:, :k].any(axis=1).mean()) for k in k_values}
    return cell | {"num_queries": len(sample.queries), "num_candidates": len(sample.keys)}


def _fingerprint(source: Sequence[str], target: Sequence[str]) -> str:
    return hash_texts([("source", source), ("target", target)])
