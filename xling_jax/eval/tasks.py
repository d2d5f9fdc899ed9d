"""The table of evaluation tasks, and what a task is.

A new task is a file with a subclass of `Task` and one line in `TASKS`. From these come `xling
evaluate NAME` with its arguments, the config key `evaluation.NAME` for measuring while training,
and what the report shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from xling_jax.registry import Registry

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder
    from xling_jax.encode.unique import Encode
    from xling_jax.eval.results import Results
    from xling_jax.eval.stored_embeddings import StoredEmbeddings

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
    mining=(
        "xling_jax.eval.mining:Mining",
        "are the translations in two texts found?",
    ),
    alignment=(
        "xling_jax.eval.alignment:Alignment",
        "are a document's translations found among other documents?",
    ),
    probing=("xling_jax.eval.probing:Probing", "SentEval's tasks, in one language"),
)


class Task:
    """An evaluation task: a frozen dataclass whose fields are options (`options.option`).

    The first paragraph of its docstring is its description in `--help`. A data set, as `load`
    returns them, has a `name`, which begins the names of its metrics, and a `description` of plain
    values for results.json: at least its name and the SHA-256 of what was read.

    Attributes:
        title: heads its results in the report.
        data_help: what `--data` takes.
        several: whether `--data` takes several files or directories.
        offers: which of the shared arguments it takes: "languages", "embeddings" (ready vectors in
            place of a model), "pictures", "config" (a file with options).
        examples: of commands.
        columns: metric -> heading in the report's table, in percent; the order is that of the
            columns. A published score may have a heading that no metric has.
        primary: the metric that recognises results logged while training.
        lower_is_better: metrics that are errors.
        axes: what the rows and the columns of its matrices are, if the report can draw them.
    """

    title: ClassVar[str]
    data_help: ClassVar[str]
    several: ClassVar[bool] = True
    offers: ClassVar[frozenset[str]] = frozenset({"languages", "embeddings", "pictures"})
    examples: ClassVar[str]
    columns: ClassVar[dict[str, str]]
    primary: ClassVar[str]
    lower_is_better: ClassVar[frozenset[str]] = frozenset()
    axes: ClassVar[tuple[str, str] | None] = None

    def load(self, paths: Sequence[str], languages: Sequence[str] | None) -> list[Any]:
        """Reads the data sets.

        Args:
            paths: as given to `--data`.
            languages: those to measure, in order; None for all.

        Raises:
            OptionError: if an option does not fit the data, such as a language it lacks.
            ValueError, OSError: if the data is broken or cannot be read.
        """
        raise NotImplementedError

    def vector_files(self, data: Sequence[Any]) -> dict[str, Sequence[str]]:
        """Names of the files of ready vectors, without suffix -> the texts of their rows.

        Raises:
            OptionError: if an option needs a model.
        """
        raise NotImplementedError

    def run(
        self, encoder: Encoder | StoredEmbeddings, data: Sequence[Any], directory: Path
    ) -> Results:
        """Measures an encoder.

        Args:
            encoder: has `encode`.
            data: as `load` returned it.
            directory: of the results, for further files and for large temporary ones.

        Raises:
            OptionError: if an option does not fit the encoder.
            ValueError: if an embedding is not finite.
        """
        raise NotImplementedError

    def while_training(
        self, path: str, languages: Sequence[str]
    ) -> dict[str, Callable[[Encode], dict[str, float]]]:
        """Reads data to measure every few minutes, so each measurement must be cheap.

        Args:
            path: one of the config's `evaluation.NAME`.
            languages: those of the config.

        Returns:
            Name of each data set -> function from `encode` to its metrics, `NAME/METRIC`.

        Raises:
            ValueError, OSError: if the data is broken or has none of the languages.
        """
        raise NotImplementedError

    @classmethod
    def summary(cls, results: Mapping[str, Any]) -> list[tuple[str, dict[str, float], str]]:
        """Rows of the report's table from the content of a `results.json`.

        Returns:
            For each data set its name, heading -> percentage, and how it was measured.
        """
        scores: dict[str, dict[str, float]] = {}
        for metric, value in results["metrics"].items():
            data, _, name = metric.rpartition("/")
            if name in cls.columns:
                scores.setdefault(data or "all", {})[cls.columns[name]] = 100 * value
        settings, matrices = results.get("settings") or {}, results.get("matrices") or {}
        return [
            (data, found, ", ".join(filter(None, cls.conditions(settings, matrices.get(data, {})))))
            for data, found in scores.items()
        ]

    @classmethod
    def conditions(cls, settings: Mapping[str, Any], matrix: Mapping[str, Any]) -> list[str | None]:
        """The settings that a score depends on, in words."""
        return [settings.get("similarity")]
