"""Classification results as Markdown, for people."""

from collections.abc import Sequence

import numpy as np

from xling_jax.eval.classification import ClassificationMatrix
from xling_jax.eval.results import markdown_table

_TITLES = {
    "accuracy": "embeddings",
    "oracle": "embeddings, selected on the test language's dev split (oracle)",
    "bag_of_words": "bag of words",
    "chance": "commonest label",
}
_MEANS = ("same", "cross", "all")


def classification_table(name: str, matrix: ClassificationMatrix) -> str:
    """Returns the Markdown section of one data set, protocol and classifier."""
    kinds = [kind for kind in _TITLES if kind in matrix.accuracies]
    rows = [
        [
            _TITLES[kind],
            *(_cell(matrix.mean(which, kind), matrix.spread(which, kind)) for which in _MEANS),
        ]
        for kind in kinds
    ]
    described = f"{len(matrix.labels)} labels; {matrix.selection}."
    if len(matrix.seeds) > 1:
        described += f" Mean ± standard deviation over {len(matrix.seeds)} seeds."
    lines = [
        f"## {name}: {matrix.protocol}, {matrix.classifier}: accuracy on {matrix.test_split} "
        "text, %",
        "",
        described,
        "",
        markdown_table(["features", *_MEANS], rows),
    ]
    for kind in kinds:
        title = f"{_TITLES[kind]}, train \\ test"
        lines += [
            "",
            markdown_table([title, *matrix.test_languages, "X_cross"], _rows(matrix, kind)),
        ]
    return "\n".join(lines) + "\n"


def summary_table(matrices: Sequence[ClassificationMatrix]) -> str:
    """Returns one Markdown table of several protocols and classifiers on one data set."""
    rows = []
    for matrix in matrices:
        which = "same" if matrix.protocol == "targeted" else "cross"
        oracle = "oracle" in matrix.accuracies
        rows.append(
            [
                matrix.protocol,
                matrix.classifier,
                *(_cell(matrix.mean(w), matrix.spread(w)) for w in _MEANS),
                _cell(matrix.mean(which, "oracle"), matrix.spread(which, "oracle"))
                if oracle
                else "",
            ]
        )
    return markdown_table(["protocol", "classifier", *_MEANS, "oracle"], rows)


def _rows(matrix: ClassificationMatrix, kind: str) -> list[list[str]]:
    values = matrix.accuracies[kind]
    spread = np.full_like(values, np.nan)
    if kind in matrix.by_seed and len(matrix.seeds) > 1:
        spread = matrix.by_seed[kind].std(axis=0, ddof=1)
    return [
        [
            f"**{row}**",
            *(_cell(*cell) for cell in zip(values[index], spread[index])),
            _cell(matrix.x_cross(row, kind), float("nan")),
        ]
        for index, row in enumerate(matrix.train_languages)
    ]


def _cell(mean: float, spread: float) -> str:
    if np.isnan(mean):
        return ""
    return f"{100 * mean:.1f}" + ("" if np.isnan(spread) else f" ± {100 * spread:.1f}")
