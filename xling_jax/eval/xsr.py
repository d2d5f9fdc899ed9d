"""Cross-lingual sentence retrieval (XSR): few queries against many keys of one parallel text.

2,000 queries among 200,000 keys of Europarl, as in MUSE (Conneau et al. 2018) and later work.
"""

from collections.abc import Sequence

import numpy as np

SEED = 1234  # MUSE's, both for the order of rows and for the queries


def draw_sample(
    source: Sequence[str], target: Sequence[str], num_keys: int, num_queries: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws keys and queries among translations as MUSE's `load_europarl_data` does.

    Rows are made unique on the source side, then on the target side, by their lower-cased words;
    the first of equal rows stays, in the order of the words, as `np.unique` leaves them. They are
    then shuffled, the first ones are the keys, and queries are drawn among these without
    replacement. MUSE reads the first 800,000 lines. Choice: blank texts, one of which MUSE would
    keep, are left out; of too few rows all are taken.

    Returns:
        keys: [m] int64, rows whose target texts are the candidates.
        queries: [q] int64, indices into `keys` whose source texts are the queries.

    Raises:
        ValueError: if all rows lack a text.
    """
    rows = [row for row in range(len(source)) if source[row].strip() and target[row].strip()]
    if not rows:
        raise ValueError("no row has text on both sides to draw")
    for texts in (source, target):
        first: dict[tuple[str, ...], int] = {}
        for row in rows:
            first.setdefault(tuple(texts[row].lower().split()), row)
        rows = [first[words] for words in sorted(first)]
    order = np.random.RandomState(SEED).permutation(len(rows))
    keys = np.array(rows, np.int64)[order][:num_keys]
    count = min(num_queries, len(keys))
    queries = np.random.RandomState(SEED).choice(len(keys), size=count, replace=False)
    return keys, queries.astype(np.int64)
