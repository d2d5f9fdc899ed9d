"""Scores of every direction between languages, and the tables of them."""

import math
from dataclasses import dataclass

import numpy as np

from xling_jax.eval.results import markdown_table, percent

Direction = tuple[str, str]  # source and target language

# A matrix with fewer of its cells measured reads better as a list of pairs.
_MIN_FILLED = 0.5
_COUNTS = ("num_queries", "num_candidates")


@dataclass(frozen=True)
class LanguageMatrix:
    """Scores of every direction between languages; the diagonal is one language with itself.

    `cells` have for each direction measured name -> number. All names but the counts `num_queries`
    and `num_candidates` are metrics, in the order of their appearance.
    """

    languages: tuple[str, ...]
    cells: dict[Direction, dict[str, float]]

    @property
    def metrics(self) -> list[str]:
        """Names of the scores."""
        names = dict.fromkeys(name for cell in self.cells.values() for name in cell)
        return [name for name in names if name not in _COUNTS]

    @property
    def num_directions(self) -> int:
        """How many directions between two languages were measured."""
        return sum(source != target for source, target in self.cells)

    def array(self, name: str) -> np.ndarray:
        """[languages, languages] float64; NaN where nothing was measured."""
        rows = [
            [self.cells.get((source, target), {}).get(name, math.nan) for target in self.languages]
            for source in self.languages
        ]
        return np.array(rows, np.float64)

    def mean(self, metric: str) -> float:
        """Mean over the directions between two languages measured, each counting the same."""
        values = self.array(metric)
        return float(np.nanmean(values[~np.eye(len(values), dtype=bool)]))

    def means_of_all(self) -> dict[str, float]:
        """Means over all cells of the metrics that languages were measured with themselves by.

        As in Yu et al. (2018), Table 2.
        """
        arrays = {metric: self.array(metric) for metric in self.metrics}
        has_diagonal = lambda array: not np.isnan(np.diag(array)).all()
        return {m: float(np.nanmean(array)) for m, array in arrays.items() if has_diagonal(array)}

    def scores(self) -> dict[str, float]:
        """Means over directions by metric; `METRIC_all` is with the diagonal, if that has it."""
        found = {metric: self.mean(metric) for metric in self.metrics}
        return found | {f"{metric}_all": mean for metric, mean in self.means_of_all().items()}

    def to_dict(self) -> dict:
        """As plain numbers for JSON: directions that were not measured are left out."""
        content = {
            "languages": list(self.languages),
            "mean": {metric: self.mean(metric) for metric in self.metrics},
        }
        if means := self.means_of_all():
            content["mean_of_all"] = means
        for name in (*self.metrics, *_COUNTS):
            rows = content[name] = {}
            for (source, target), cell in self.cells.items():
                if name in cell:
                    rows.setdefault(source, {})[target] = cell[name]
        return content


def metric_title(metric: str) -> str:
    """The heading of a metric."""
    titles = {"error": "error, cosine", "xsim": "xSIM", "xsim_plus_plus": "xSIM++"}
    return titles.get(metric, metric.replace("p_at_", "P@").replace("_", " "))


def matrix_tables(matrix: LanguageMatrix, in_pairs: list[str]) -> str:
    """Returns Markdown tables: means of all metrics, then every direction.

    The first metric is shown as a matrix, or where few cells are filled those `in_pairs` as a list
    of pairs. A matrix ends with a row and a column of means; with a diagonal these are called "all"
    and have the layout of Yu et al. (2018), Table 2.
    """
    size = len(matrix.languages)
    header = [f"mean of {matrix.num_directions} directions", "%"]
    rows = [[metric_title(metric), percent(matrix.mean(metric))] for metric in matrix.metrics]
    if means := matrix.means_of_all():
        header.append(f"all {len(matrix.cells)}")
        for row, metric in zip(rows, matrix.metrics):
            row.append(percent(means.get(metric, math.nan)))
    is_sparse = matrix.num_directions < _MIN_FILLED * size * (size - 1)
    cells = _pair_table(matrix, in_pairs) if is_sparse else _matrix_table(matrix, matrix.metrics[0])
    return f"{markdown_table(header, rows)}\n\n{cells}"


def _matrix_table(matrix: LanguageMatrix, metric: str) -> str:
    """From rows to columns, with means of rows, of columns and of all cells."""
    values = np.ma.masked_invalid(matrix.array(metric))
    right = np.ma.append(values.mean(axis=1), values.mean())
    rows = np.ma.column_stack([np.ma.vstack([values, values.mean(axis=0)]), right])
    name = "mean" if np.diag(values.mask).all() else "all"
    cells = [
        [f"**{code}**", *map(percent, row)]
        for code, row in zip((*matrix.languages, name), rows.filled(math.nan))
    ]
    return markdown_table([f"{metric_title(metric)}, from \\ to", *matrix.languages, name], cells)


def _pair_table(matrix: LanguageMatrix, metrics: list[str]) -> str:
    """One row a direction, for data of many bilingual files."""
    rows = [
        [
            "-".join(pair),
            *(percent(cell.get(m, math.nan)) for m in metrics),
            f"{cell['num_queries']}",
        ]
        for pair, cell in matrix.cells.items()
    ]
    return markdown_table(["direction", *map(metric_title, metrics), "rows"], rows)
