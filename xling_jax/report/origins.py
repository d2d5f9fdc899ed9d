"""Where numbers come from: the model, the data, the seed and the command of each measurement."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xling_jax.report.runs import Run

_VERSIONS = ("xling_jax", "python", "jax", "numpy", "scikit-learn")


@dataclass(frozen=True)
class Origin:
    """A heading, and what is known of the numbers under it: label and value, "" if unknown."""

    head: str
    facts: tuple[tuple[str, str], ...]


def origins(runs: Sequence[Run], task: str) -> list[Origin]:
    """Of the results and of what was logged in training, for the runs that a task measured."""
    found = []
    for run in runs:
        measured = [results for results in run.results if results["task"] == task]
        found += [result_origin(run.measured_name(results), results) for results in measured]
        found += [] if measured or not run.curves else [training_origin(run)]
    return list(dict.fromkeys(found))


def result_origin(run: str, results: Mapping[str, Any]) -> Origin:
    """Of the content of a `results.json`; older ones lack some of it."""
    data = results.get("data") or ()
    settings = results.get("settings")
    names = ", ".join(str(one["name"]) for one in data)
    facts = [*_model_facts(results["model"]), *_data_facts(data)]
    for one in (settings or {}).get("distractors") or ():
        facts += [("Distractors", one["path"]), ("SHA-256 of the file", one["sha256"])]
    facts.append(("Seed", "" if settings is None else _seeds(results)))
    facts.append(("Command", results.get("command")))
    versions = results.get("versions") or {}
    facts.append(("Versions", ", ".join(f"{n} {versions[n]}" for n in _VERSIONS if n in versions)))
    return _origin(f"{run}: {names}" if names else run, facts)


def training_origin(run: Run) -> Origin:
    """Of what a run logged."""
    facts = [
        ("Workdir", run.path),
        ("Last step", f"{run.num_steps:,}" if run.num_steps else None),
        ("Encoder's fingerprint", run.fingerprint),
        ("Training data's fingerprint", run.data_fingerprint),
        ("Seed", run.config.get("seed")),
        ("Versions", f"xling_jax {run.config['version']}" if run.config.get("version") else None),
    ]
    return _origin(f"{run.name}: training", facts)


def embedding_origin(
    run: str, model: Mapping[str, Any], data: Sequence[Mapping[str, Any]], seed: int
) -> Origin:
    """Of what a report measures itself; its command is that of the page."""
    return _origin(run, [*_model_facts(model), *_data_facts(data), ("Seed", seed)])


def _model_facts(model: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [("Model", model.get("path")), ("Model's fingerprint", model.get("fingerprint"))]


def _data_facts(data: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    return list(
        itertools.chain.from_iterable(
            ((f"Data, {one['name']}", one.get("path")), ("SHA-256 of its text", one.get("sha256")))
            for one in data
        )
    )


def _seeds(results: Mapping[str, Any]) -> str:
    """The seeds used; a matrix names its own, the settings those of all classifiers."""
    matrices = (results.get("matrices") or {}).values()
    seeds = {seed for matrix in matrices for seed in matrix.get("seeds") or ()}
    if not seeds:
        settings = results["settings"]
        seeds = settings.get("seeds") or {settings.get("seed")} - {None}
    return ", ".join(map(str, sorted(seeds))) or "none; nothing was drawn at random"


def _origin(head: str, facts: Sequence[tuple[str, Any]]) -> Origin:
    known = ((label, "" if value is None else str(value)) for label, value in facts)
    return Origin(head, tuple(known))
