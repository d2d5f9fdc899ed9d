"""What is refused before any work of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from xling_jax.corpora.options import Preparation
from xling_jax.eval.during_training import check_metrics, goal_of, read_evaluation
from xling_jax.options import OptionError, require_file, wrong_use
from xling_jax.runs.copies import local_name
from xling_jax.runs.prepare import prepare_settings
from xling_jax.train.options import COOCCURRENCE


def check_settings(config: ConfigDict) -> None:
    """Raises ValueError for a setting that is wrong whatever the data and devices."""
    from xling_jax.train.build import check_config

    Preparation(**prepare_settings(config))
    check_config(config)


def check_dry_run(config: ConfigDict) -> None:
    """Raises ValueError for what is wrong with a config, as far as that is known without data."""
    check_settings(config)
    metrics, paths = evaluation_metrics(config), sum(map(tuple, config.evaluation.values()), ())
    if metrics:
        check_metrics(config.evaluation, metrics)
        if all(Path(path).exists() for path in paths):
            read_evaluation(config.evaluation, config.languages, metrics)
        check_goals(config)


def evaluation_metrics(config: ConfigDict) -> dict[str, str]:
    """The settings that name a metric of the `evaluation` section, and which."""
    from xling_jax.train.validation import is_validation

    metrics = {f"train.{name}": config.train[name] for name in ("best_metric", "stop_metric")}
    return {name: value for name, value in metrics.items() if value and not is_validation(value)}


def check_goals(config: ConfigDict) -> None:
    """Raises OptionError unless it is known whether higher or lower is better for these metrics."""
    from xling_jax.train.selection import find_goal

    for setting, metric in evaluation_metrics(config).items():
        which = setting.removesuffix("_metric")
        given = config.train[f"{which.removeprefix('train.')}_goal"]
        with wrong_use():
            find_goal(which, metric, given, goal_of(config.evaluation, metric))


def check_beginning(config: ConfigDict) -> None:
    """Refuses missing word vectors, or a missing model to initialize from."""
    if config.train.word_vectors not in ("", COOCCURRENCE):
        require_file(config.train.word_vectors, "--config.train.word_vectors")
    if config.train.model_init and config.train.word_vectors:
        raise OptionError(
            f"--config.train.word_vectors {config.train.word_vectors}: the vectors of "
            "train.model_init would replace them; leave one of the two empty"
        )
    if config.train.model_init:
        from xling_jax.encode.model_directory import find_model_directory

        with wrong_use("--config.train.model_init"):
            find_model_directory(config.train.model_init)
    if taught := prepare_settings(config)["teacher"]:
        _check_teacher(taught, config.objective.distillation.form)


def _check_teacher(taught: Mapping[str, Any], form: str) -> None:
    """Refuses a teacher that is not there, or whose vectors the encoder cannot learn."""
    from xling_jax.encode.teacher import teacher_dim

    where = "--config.objective.distillation"
    with wrong_use(f"{where}.teacher"):
        dim = teacher_dim(local_name(taught["model"]), local_name(taught["texts"]))
    if dim < taught["width"] and form != "similarity":
        raise OptionError(
            f"{where}.teacher: {taught['model']} has {dim} dimensions, the encoder "
            f"{taught['width']}; make the encoder as narrow or set {where}.form=similarity"
        )
