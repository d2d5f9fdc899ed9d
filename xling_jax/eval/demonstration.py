"""Jobs of an encoder on a little text, shown in words: what `xling quickstart` begins with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xling_jax.align.mining import MinedPairs, mine
from xling_jax.encode.search import Hit, search
from xling_jax.eval.calibration import shuffled_texts

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder
    from xling_jax.encode.texts import Encode

# Of each side, texts whose translation is on the other side.
_SHARE = 2 / 3


class ShuffledTexts(NamedTuple):
    """Two texts in different orders; some sentences of each have no translation in the other.

    `translation` [source] int64 is the index of each sentence's translation in `target`; -1 if
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
    rows = shuffled_texts(len(source), _SHARE, np.random.default_rng(0))
    position = np.full(len(source), -1)  # of each row in the target text
    position[rows[1]] = np.arange(len(rows[1]))
    texts = ([side[row] for row in chosen] for side, chosen in zip((source, target), rows))
    return ShuffledTexts(*texts, position[rows[0]])


class FoundTranslations(NamedTuple):
    """Mined pairs, best first, and which are right; precision is NaN if there are none."""

    pairs: MinedPairs
    is_right: np.ndarray
    precision: float
    recall: float


def find_translations(
    encode: Encode, texts: ShuffledTexts, count: Callable[[MinedPairs], int]
) -> FoundTranslations:
    """Mines pairs as `xling mine` does; `count` says how many of all, best first, are kept."""
    pairs = mine(encode(texts.source), encode(texts.target))
    pairs = pairs.take(np.arange(count(pairs)))
    is_right = texts.translation[pairs.source] == pairs.target
    precision = float(is_right.mean()) if len(pairs) else float("nan")
    return FoundTranslations(pairs, is_right, precision, is_right.sum() / texts.num_translations)


def search_languages(
    encoder: Encoder, queries: Sequence[tuple[str, str]], texts: Mapping[str, Sequence[str]]
) -> list[dict[str, Hit]]:
    """Finds the nearest text to each query, of a language, in every language but its own.

    Queries with the language "" search all.
    """
    wanted = [text for _, text in queries]
    found = {code: search(wanted, column, encoder, k=1) for code, column in texts.items()}
    return [
        {code: hits[row][0] for code, hits in found.items() if code != own}
        for row, (own, _) in enumerate(queries)
    ]


def format_neighbors(
    queries: Sequence[tuple[str, str]], found: Sequence[Mapping[str, Hit]], *, width: int = 100
) -> str:
    """Returns what `search_languages` found, one block a query, in lines of at most `width`."""
    margin = max((len(code) for hits in found for code in hits), default=0)
    blocks = []
    for (_, query), hits in zip(queries, found):
        lines = [_cut(query, width)]
        for code, hit in hits.items():
            start = f"  {code:<{margin}}  {hit.score:5.2f}  "
            lines.append(start + _cut(hit.text, width - len(start)))
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
