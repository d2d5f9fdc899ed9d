"""The table of evaluation tasks, and what a task is.

A new task is a file with a subclass of `Task` and one line in `TASKS`. From these come `xling
evaluate NAME` with its arguments, the config key `evaluation.NAME` for measuring while training,
and what the report shows.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from xling_jax.files.hashes import hash_file
from xling_jax.options import OptionError, check_values
from xling_jax.registry import Registry

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder
    from xling_jax.eval.results import Heatmap, Projection

_logger = logging.getLogger(__name__)

TASKS = Registry(
    "evaluation task",
    retrieval=(
        "xling_jax.eval.retrieval:Retrieval",
        "is a sentence's translation its nearest neighbor?",
    ),
    classification=(
        "xling_jax.eval.classification:Classification",
        "labels in one language, texts in the others",
    ),
    mining=("xling_jax.eval.mining:Mining", "are the translations in two texts found?"),
    alignment=(
        "xling_jax.eval.alignment:Alignment",
        "are a document's translations found among other documents?",
    ),
    probing=("xling_jax.eval.probing:Probing", "SentEval's tasks, in one language"),
    language=(
        "xling_jax.eval.language:LanguageIdentification",
        "can a linear classifier tell the language, before and after debiasing?",
    ),
)


class Outcome(Protocol):
    """Result of a task on one data set."""

    def scores(self) -> dict[str, float]:
        """Metric -> number; shares are in [0, 1]."""

    def to_dict(self) -> dict[str, Any]:
        """All numbers in detail, as plain values for results.json."""


class Task:
    """An evaluation task: a frozen dataclass whose fields are options (`options.option`).

    The first paragraph of its docstring is its description in `--help`. A data set, as `load`
    returns them, has a `name`, which begins the names of its metrics, and a `description` of plain
    values for results.json, at least its name and the SHA-256 of what was read.

    Attributes:
        title: heads its results in the report.
        data_help: what `--data` takes.
        several: whether `--data` takes several files or directories.
        offers: the shared arguments it takes, of "languages" and "config" (a file with options).
        examples: of commands.
        columns: metric -> heading in the report's table, in percent, in the order of the columns.
        primary: the main metric.
        lower_is_better: metrics that are errors.
        axes: what the rows and the columns of the matrices in its pictures are; of a task without
            them, the report lists all numbers.
        cheap: options for measuring every few minutes while training.
    """

    title: str
    data_help: str
    several = True
    offers = frozenset({"languages"})
    examples: str
    columns: Mapping[str, str]
    primary: str
    lower_is_better: frozenset[str] = frozenset()
    axes: tuple[str, str] | None = None
    cheap: Mapping[str, Any] = {}

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        needed = ("title", "data_help", "examples", "columns", "primary")
        missing = [name for name in needed if not hasattr(cls, name)]
        if missing:
            raise TypeError(
                f"{cls.__name__}: a task needs the class attributes {', '.join(missing)}"
            )

    def __post_init__(self):
        check_values(self)

    def load(self, paths: Sequence[str], languages: Sequence[str] | None) -> list[Any]:
        """Reads the data sets.

        Args:
            paths: as given to `--data`.
            languages: those to measure, as far as the data has them, in order; None for all.

        Raises:
            OptionError: if an option does not fit the data, or too few of the languages are there.
        """
        raise NotImplementedError

    def read(self, paths: Sequence[str], languages: Sequence[str] | None) -> list[Any]:
        """As `load`; OptionError if none of the data has a language."""
        sets = self.load(paths, languages)
        found = languages_of(sets)
        for code in languages or ():
            if code not in found:
                where = f"no text in {code!r} in {', '.join(map(str, paths))}"
                raise OptionError(f"--languages: {where}; there is some in {', '.join(found)}")
        return sets

    def measure(
        self, encoder: Encoder, data: Any, directory: Path | None = None
    ) -> dict[str, Outcome]:
        """Measures an encoder on one data set.

        Args:
            encoder: has `encode`.
            data: one of those that `load` returned.
            directory: of the results, for further files and for large temporary ones.

        Returns:
            The outcome under the name of the data set, or several under names that begin with it.
        """
        raise NotImplementedError

    def metrics(self, outcomes: Mapping[str, Outcome]) -> dict[str, float]:
        """The scores of all outcomes as `NAME/METRIC`."""
        return {
            f"{name}/{metric}": value
            for name, outcome in outcomes.items()
            for metric, value in outcome.scores().items()
        }

    def options(self, encoder: Any, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
        """All that the scores depend on, as plain values; `settings` in results.json."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def tables(self, data: Sequence[Any], outcomes: Mapping[str, Outcome]) -> list[str]:
        """The Markdown sections of results.md."""
        raise NotImplementedError

    def pictures(
        self, encoder: Any, data: Sequence[Any], outcomes: Mapping[str, Outcome]
    ) -> Iterable[Heatmap | Projection]:
        """The pictures of the results."""
        return ()

    def while_training(
        self, path: str, languages: Sequence[str]
    ) -> dict[str, Callable[[Encoder], dict[str, float]]]:
        """Reads data to measure while training, in the languages that it has, with `cheap` options.

        `path` is one of the config's `evaluation.NAME`. Returns the name of each data set ->
        function from an encoder to the metrics to log.
        """
        task = dataclasses.replace(self, **self.cheap)
        sets = task.load([path], languages)
        found = languages_of(sets)
        if found and (lacking := ", ".join(code for code in languages if code not in found)):
            _logger.info("%s: no text in %s; measured in %s", path, lacking, ", ".join(found))
        return {data.name: functools.partial(task._measure_logged, data) for data in sets}

    def _measure_logged(self, data: Any, encoder: Encoder) -> dict[str, float]:
        scores = self.metrics(self.measure(encoder, data)).items()
        return {name: v for name, v in scores if self.is_logged(name.rpartition("/")[2])}

    def is_logged(self, metric: str) -> bool:
        """True if a metric is logged while training."""
        return metric in self.columns

    @classmethod
    def summary(cls, results: Mapping[str, Any]) -> list[tuple[str, dict[str, float], str]]:
        """Rows of the report's table from the content of a `results.json`.

        For each data set its name, heading -> percentage, and how it was measured.
        """
        scores: dict[str, dict[str, float]] = {}
        for metric, value in results["metrics"].items():
            data, _, name = metric.rpartition("/")
            if name in cls.columns:
                scores.setdefault(data or "all", {})[cls.columns[name]] = 100 * value
        settings, matrices = results.get("settings") or {}, results.get("matrices") or {}
        return [
            (data, found, cls.conditions(settings, matrices.get(data) or {}))
            for data, found in scores.items()
        ]

    @classmethod
    def conditions(cls, settings: Mapping[str, Any], matrix: Mapping[str, Any]) -> str:
        """The options that a score depends on, in words; those of a matrix before those of all."""
        return ", ".join(filter(None, map(settings.get, ("similarity", "margin", "classifier"))))


def languages_of(sets: Iterable[Any]) -> list[str]:
    """The languages of some data sets, in the order of first appearance."""
    return [*dict.fromkeys(code for one in sets for code in getattr(one, "languages", ()))]


def _plain(value: Any) -> Any:
    """A value as JSON has it; files by their content."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return {"path": str(value), "sha256": hash_file(value)}
    return value
