"""Runs and results as they lie on disk, and where each of their numbers comes from."""

import itertools
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xling_jax.files.untrusted import parse_json

RESULTS_FILE = "results.json"
METRICS_FILE = "metrics.jsonl"
# Of the versions that results record, those shown.
_VERSIONS = ("xling_jax", "python", "jax", "numpy", "scikit-learn")

# What `Encoder.truncated` appends to a fingerprint; digests of prompts may look alike.
_TRUNCATED = re.compile(r"(?<!-prompt)-(\d+)d(?=-|$)")

# Metric name to its steps, ascending, and its values.
Curves = dict[str, tuple[list[int], list[float]]]


@dataclass
class Run:
    """A workdir, or a model that only results are known of.

    Attributes:
        name: unique in the report.
        path: the workdir; None for a model that is known by its results.
        config: as resolved when training began; {} if there is none.
        curves: what was logged while training.
        results: contents of the `results.json` files that measured it.
        model: where its encoder is, for `load`: a workdir, or the name of a shipped one; "" if it
            has none or only its results are known.
        fingerprint: of its encoder, data_fingerprint: of its training data; "" if unknown.
    """

    name: str
    path: Path | None
    config: dict[str, Any] = field(default_factory=dict)
    curves: Curves = field(default_factory=dict)
    results: list[dict[str, Any]] = field(default_factory=list)
    model: str = ""
    fingerprint: str = ""
    data_fingerprint: str = ""

    @property
    def num_steps(self) -> int:
        """The last step logged."""
        return max((steps[-1] for steps, _ in self.curves.values()), default=0)

    def measured_name(self, results: Mapping[str, Any]) -> str:
        """The name, and the checkpoint or number of dimensions that results are of, if not all."""
        model = results["model"]
        words, path = [self.name], Path(str(model.get("path", "")))
        if _is_checkpoint(path):
            words.append(f"step {int(path.name):,}")
        if cut := _TRUNCATED.search(str(model.get("fingerprint", ""))):
            words.append(f"{cut[1]} dimensions")
        return ", ".join(words)


def load_runs(workdirs: Sequence[str | Path], result_paths: Sequence[str | Path]) -> list[Run]:
    """Reads workdirs, finished or not, with the results below them, and results of any models.

    Returns:
        The runs in the order given, then the other models that were measured. Results belong to
        the run that they lie in, or else to the one whose encoder they measured; those of a shipped
        encoder to the encoder, wherever they lie.

    Raises:
        ValueError, OSError: if a directory holds nothing to report, or a file is broken.
    """
    runs = [_load_workdir(Path(path)) for path in workdirs]
    seen = {path.resolve() for run in runs for path in run.path.rglob(RESULTS_FILE)}
    others: dict[str, Run] = {}
    for run in runs:
        own = [results for results in run.results if not results["model"].get("shipped")]
        for results in run.results:
            if results["model"].get("shipped"):
                name = str(results["model"]["path"])
                others.setdefault(name, Run(name, None, model=name)).results.append(results)
        run.results = own
    for place in map(Path, result_paths):
        files = [place] if place.is_file() else sorted(place.rglob(RESULTS_FILE))
        if not files:
            raise ValueError(f"{place}: must hold a {RESULTS_FILE}; found none")
        for file in files:
            if file.resolve() in seen:
                continue
            seen.add(file.resolve())
            results = read_results(file)
            model = str(results["model"].get("path", "model"))
            owners = (run for run in runs if _measured(run, results["model"]))
            shipped = bool(results["model"].get("shipped"))
            owner = None if shipped else next(owners, None)
            if owner is None:
                # Checkpoints have a fingerprint each, and are one run.
                is_checkpoint = _is_checkpoint(Path(model))
                model = str(Path(model).parents[1]) if is_checkpoint else model
                new = Run(_short_name(Path(model)), None, model=model if shipped else "")
                by_path = shipped or is_checkpoint
                same = model if by_path else _fingerprint(results["model"]) or model
                owner = others.setdefault(same, new)
            owner.results.append(results)
    runs += others.values()
    _make_names_unique(runs)
    return runs


def read_results(path: Path) -> dict[str, Any]:
    """Reads one `results.json`; raises ValueError if it is none, OSError if unreadable."""
    results = parse_json(path.read_bytes(), str(path))
    match results:
        case {"task": str(), "metrics": dict(), "model": dict()}:
            return results
    raise ValueError(f"{path}: must be results of xling evaluate, with task, metrics and model")


def read_curves(path: Path) -> Curves:
    """Reads a `metrics.jsonl`; of a step that was logged twice, after a restart, the last counts.

    Raises:
        ValueError, OSError: if a line other than the last, which may be in the making, is broken.
    """
    by_step: dict[str, dict[int, float]] = {}
    lines = path.read_bytes().split(b"\n")
    lines = lines if lines[-1] else lines[:-1]
    for number, line in enumerate(lines, start=1):
        try:
            record = parse_json(line, f"{path}:{number}")
            step = int(record.pop("step"))
        except (ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
            if number == len(lines):
                break
            rule = "must be a JSON object with a step; remove the line"
            raise ValueError(f"{path}:{number}: {rule}") from error
        for name, value in record.items():
            # An integer may be too large for a float.
            if isinstance(value, (int, float)) and abs(value) <= sys.float_info.max:
                by_step.setdefault(name, {})[step] = float(value)
    return {
        name: (sorted(values), [values[step] for step in sorted(values)])
        for name, values in by_step.items()
    }


def _measured(run: Run, model: Mapping[str, Any]) -> bool:
    """True if results measured the model of a run.

    By fingerprint: a path may be relative to another directory, or hold another model by now. Only
    checkpoints, whose fingerprints the run does not record, go by their path.
    """
    where, workdir = Path(str(model.get("path", "model"))).resolve(), run.path.resolve()
    fingerprint = _fingerprint(model)
    if fingerprint and run.fingerprint and where.parent != workdir / "checkpoints":
        return fingerprint == run.fingerprint
    return where.is_relative_to(workdir)


def _fingerprint(model: Mapping[str, Any]) -> str:
    """The fingerprint of a model directory; "" if unknown."""
    # Precomputed embeddings have one for each data set, and no dtype. Another dtype, width or
    # length is a suffix.
    return str(model.get("fingerprint", "")).partition("-")[0] if "dtype" in model else ""


def _load_workdir(path: Path) -> Run:
    metrics, config = path / METRICS_FILE, path / "config.json"
    results = sorted(path.rglob(RESULTS_FILE))
    if not metrics.is_file() and not results:
        raise ValueError(f"{path}: must be a workdir with a {METRICS_FILE}, or hold results")
    return Run(
        _short_name(path),
        path,
        _read_object(config),
        read_curves(metrics) if metrics.is_file() else {},
        [read_results(file) for file in results],
        model=str(path) if (path / "encoder").is_dir() else "",
        fingerprint=str(_read_object(path / "encoder" / "config.json").get("fingerprint", "")),
        data_fingerprint=str(_read_object(path / "data" / "manifest.json").get("fingerprint", "")),
    )


def _read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; {} if there is none."""
    content = parse_json(path.read_bytes(), str(path)) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def _is_checkpoint(path: Path) -> bool:
    return path.parent.name == "checkpoints" and path.name.isdecimal()


def _short_name(path: Path) -> str:
    path = path if path.name not in ("", ".", "..") else path.resolve()
    if path.name == "encoder" and path.parent.name:
        path = path.parent
    return path.name or str(path)


def _make_names_unique(runs: Sequence[Run]) -> None:
    taken: set[str] = set()
    shared = Counter(run.name for run in runs)
    for run in runs:
        if shared[run.name] > 1 and run.path is not None:
            run.name = f"{run.path.resolve().parent.name}/{run.name}"
        others = (f"{run.name} ({number})" for number in itertools.count(2))
        names = itertools.chain([run.name], others)
        run.name = next(name for name in names if name not in taken)
        taken.add(run.name)


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
