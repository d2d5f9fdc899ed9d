"""Runs and results as they lie on disk."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xling_jax.files.untrusted import parse_json

RESULTS_FILE = "results.json"
METRICS_FILE = "metrics.jsonl"
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
        results: contents of the `results.json` files that measured it; `pictures` in them are the
            PNG files beside each.
        model: where its encoder is, for `load`: a workdir, or the name of a shipped one; "" if it
            has none or only its results are known.
        fingerprint: of its encoder; "" if unknown.
    """

    name: str
    path: Path | None
    config: dict[str, Any] = field(default_factory=dict)
    curves: Curves = field(default_factory=dict)
    results: list[dict[str, Any]] = field(default_factory=list)
    model: str = ""
    fingerprint: str = ""

    @property
    def num_steps(self) -> int:
        """The last step logged."""
        return max((steps[-1] for steps, _ in self.curves.values()), default=0)

    def measured_name(self, results: Mapping[str, Any]) -> str:
        """The name, and the checkpoint or number of dimensions that results are of, if not all."""
        words, path = [self.name], _path_of(results["model"])
        if _is_checkpoint(path):
            words.append(f"step {int(path.name):,}")
        if cut := _TRUNCATED.search(str(results["model"].get("fingerprint", ""))):
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
    files = [file for run in runs for file in sorted(run.path.rglob(RESULTS_FILE))]
    for place in map(Path, result_paths):
        found = [place] if place.is_file() else sorted(place.rglob(RESULTS_FILE))
        if not found:
            raise ValueError(f"{place}: must hold a {RESULTS_FILE}; found none")
        files += found
    others: dict[str, Run] = {}
    for file in dict.fromkeys(file.resolve() for file in files):
        results = read_results(file) | {"pictures": sorted(file.parent.glob("*.png"))}
        owner = _owner(file, results["model"], runs) or _other(results["model"], others)
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
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
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


def _owner(file: Path, model: Mapping[str, Any], runs: Iterable[Run]) -> Run | None:
    """The run that results are of.

    What lies elsewhere goes by fingerprint: a path may be relative to another directory, or hold
    another model by now. Only checkpoints, whose fingerprints a run does not record, go by theirs.
    """
    if model.get("shipped"):
        return None
    path, fingerprint = _path_of(model).resolve(), _fingerprint(model)
    for run in sorted(runs, key=lambda run: not file.is_relative_to(run.path.resolve())):
        workdir = run.path.resolve()
        is_known = fingerprint and run.fingerprint and path.parent != workdir / "checkpoints"
        same = fingerprint == run.fingerprint if is_known else path.is_relative_to(workdir)
        if file.is_relative_to(workdir) or same:
            return run
    return None


def _other(model: Mapping[str, Any], others: dict[str, Run]) -> Run:
    """The model of results that are of no run, added if it is new."""
    path = _path_of(model)
    if model.get("shipped"):
        return others.setdefault(str(path), Run(str(path), None, model=str(path)))
    if _is_checkpoint(path):  # they have a fingerprint each, and are one run
        path = path.parents[1]
        return others.setdefault(str(path), Run(_short_name(path), None))
    return others.setdefault(_fingerprint(model) or str(path), Run(_short_name(path), None))


def _path_of(model: Mapping[str, Any]) -> Path:
    return Path(str(model.get("path", "model")))


def _fingerprint(model: Mapping[str, Any]) -> str:
    """The fingerprint of a model directory; "" if unknown."""
    # Precomputed embeddings have one for each data set, and no dtype. Another dtype, width or
    # length is a suffix.
    return str(model.get("fingerprint", "")).partition("-")[0] if "dtype" in model else ""


def _load_workdir(path: Path) -> Run:
    metrics = path / METRICS_FILE
    if not metrics.is_file() and not any(path.rglob(RESULTS_FILE)):
        raise ValueError(f"{path}: must be a workdir with a {METRICS_FILE}, or hold results")
    return Run(
        _short_name(path),
        path,
        _read_object(path / "config.json"),
        read_curves(metrics) if metrics.is_file() else {},
        model=str(path) if (path / "encoder").is_dir() else "",
        fingerprint=str(_read_object(path / "encoder" / "config.json").get("fingerprint", "")),
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
    shared, taken = Counter(run.name for run in runs), Counter()
    for run in runs:
        if shared[run.name] > 1 and run.path is not None:
            run.name = f"{run.path.resolve().parent.name}/{run.name}"
        taken[run.name] += 1
        if taken[run.name] > 1:
            run.name = f"{run.name} ({taken[run.name]})"
