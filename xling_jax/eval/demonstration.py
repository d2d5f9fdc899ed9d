"""Jobs of an encoder on a little text, shown in words: what `xling quickstart` begins with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from xling_jax.align import knn
from xling_jax.align.mining import MinedPairs, mine
from xling_jax.encode.texts import Encode, encode_unique
from xling_jax.eval.calibration import shuffled_texts

# Of each side, texts whose translation is on the other side.
_SHARE = 2 / 3


@dataclass(frozen=True)
class ShuffledTexts:
    """Two texts in different orders; some sentences of each have no translation in the other.

    Attributes:
        source, target: the sentences.
        translation: [source] int64, the index of each sentence's translation in `target`; -1 for
            none.
    """

    source: list[str]
    target: list[str]
    translation: np.ndarray

    @property
    def num_translations(self) -> int:
        """Number of source sentences with a translation."""
        return int(np.count_nonzero(self.translation >= 0))


def shuffle_texts(source: Sequence[str], target: Sequence[str]) -> ShuffledTexts:
    """Shuffles two texts that are translations line by line.

    Two thirds of the sentences that remain on each side have their translation on the other.
    """
    random = np.random.default_rng(0)
    source_rows, target_rows = shuffled_texts(len(source), _SHARE, random)
    position = np.full(len(source), -1)  # of each row in the target text
    position[target_rows] = np.arange(len(target_rows))
    return ShuffledTexts(
        [source[row] for row in source_rows],
        [target[row] for row in target_rows],
        position[source_rows],
    )


@dataclass(frozen=True)
class FoundTranslations:
    """Mined pairs, and which of them are right.

    Attributes:
        pairs: best first.
        is_right: [pairs] bool.
        precision: share of the pairs that are right; NaN if there are none.
        recall: share of the translations that were found.
    """

    pairs: MinedPairs
    is_right: np.ndarray
    precision: float
    recall: float


def find_translations(
    encode: Encode, texts: ShuffledTexts, count: Callable[[MinedPairs], int]
) -> FoundTranslations:
    """Mines pairs as `xling mine` does.

    `count` says how many of all pairs, best first, are kept, such as `Calibration.count_for`.
    """
    pairs = mine(encode(texts.source), encode(texts.target))
    pairs = pairs.take(np.arange(count(pairs)))
    is_right = texts.translation[pairs.source] == pairs.target
    return FoundTranslations(
        pairs,
        is_right,
        float(is_right.mean()) if len(pairs) else float("nan"),
        int(is_right.sum()) / texts.num_translations,
    )


class Neighbor(NamedTuple):
    """A text found for a query: both by index, and the cosine between them."""

    query: int
    language: str
    index: int
    text: str
    cosine: float


def search(
    encode: Encode, queries: Sequence[tuple[str, str]], texts: Mapping[str, Sequence[str]]
) -> list[Neighbor]:
    """Finds the nearest text to each query, of a language, in every language but its own.

    Queries with the language "" search all. Each text is encoded once, in one call.
    """
    wanted = [text for _, text in queries]
    vectors, ids = encode_unique(encode, [wanted, *texts.values()])
    unit = knn.normalize(vectors)
    nearest = {
        language: knn.top_k(unit[ids(wanted)], unit[ids(candidates)], 1)
        for language, candidates in texts.items()
    }
    return [
        Neighbor(row, language, int(index), texts[language][index], float(cosine))
        for row, (own, _) in enumerate(queries)
        for language, (cosines, indices) in nearest.items()
        for cosine, index in zip(cosines[row], indices[row])
        if language != own
    ]


def format_neighbors(
    queries: Sequence[str], neighbors: Sequence[Neighbor], *, width: int = 100
) -> str:
    """Returns neighbors as a plain text table, one block a query, in lines of at most `width`."""
    margin = max((len(neighbor.language) for neighbor in neighbors), default=0)
    blocks = []
    for index, query in enumerate(queries):
        lines = [_cut(query, width)]
        for neighbor in neighbors:
            if neighbor.query == index:
                start = f"  {neighbor.language:<{margin}}  {neighbor.cosine:5.2f}  "
                lines.append(start + _cut(neighbor.text, width - len(start)))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)].rstrip() + "…"


def format_translations(texts: ShuffledTexts, found: FoundTranslations, *, width: int = 100) -> str:
    """Returns five of the pairs, from the best to the worst, as lines of at most `width`."""
    if not len(found.pairs):
        return ""
    shown = np.unique(np.linspace(0, len(found.pairs) - 1, 5).round().astype(int))
    lines = []
    for (score, i, j), is_right in zip(found.pairs.take(shown), found.is_right[shown]):
        lines.append(f"  {score:5.2f}  {texts.source[i][: width - 14]}")
        lines.append(f"  {'right' if is_right else 'wrong'}  {texts.target[j][: width - 14]}")
    return "\n".join(lines)


def format_accuracies(name: str, matrix: Mapping[str, Any], languages: Sequence[str]) -> str:
    """Accuracies of the encoder `name` by test language, beside the baselines, in percent.

    `matrix` is that of `eval.classification`, as in results.json, with one training language.
    """
    (trained_on,) = matrix["train_languages"]
    rows = {name: "accuracy", "bag of words": "bag_of_words", "chance": "chance"}
    lines = [f"  {'':<14}" + "".join(f"{code:>7}" for code in languages)]
    for label, kind in rows.items():
        cells = "".join(f"{100 * matrix[kind][trained_on][code]:7.1f}" for code in languages)
        lines.append(f"  {label:<14}{cells}")
    return "\n".join(lines)
