"""Measures an encoder.

Writes results.json, results.md and pictures to the output directory and prints the table.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import itertools
import logging
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax.cli.arguments import (
    add_config_values,
    add_languages,
    add_model,
    add_output,
    check_input,
    choose_checkpoints,
    load_encoder,
    optional_config,
    refuse_existing,
)
from xling_jax.cli.options import add_options, add_subcommands, options_from
from xling_jax.eval.tasks import TASKS, Task, languages_of
from xling_jax.files.untrusted import printable
from xling_jax.files.whole import scratch_directory, write_json
from xling_jax.options import OptionError
from xling_jax.text.languages import to_iso639_1

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder

_logger = logging.getLogger(__name__)

_COMPARISON = "checkpoints.json"
# What the names of pictures end with, see `report.pictures`.
_PICTURES = ("matrix", "pca", "tsne")

EXAMPLES = """examples:
  xling evaluate retrieval --model runs/quickstart --data dev.tsv.gz --output runs/retrieval
  xling evaluate classification --model runs/t_laser --checkpoint all --split dev --data mldoc/ \\
      --train-languages en --output runs/t_laser/results/dev
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds a subcommand for each task."""
    add_subcommands(parser, TASKS, _add_task, dest="task")


def _add_task(name: str, parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of a task."""
    task = TASKS[name]
    parser.description = inspect.getdoc(task).partition("\n\n")[0]
    parser.epilog = task.examples
    add_model(parser, required=True)
    parser.add_argument(
        "--checkpoint",
        metavar="STEP,STEP|all",
        help="with --model WORKDIR: measure its checkpoints instead of its exported encoder; "
        "unless it is one STEP, each in DIR/STEP, with a comparison in DIR/checkpoints.json",
    )
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help=f"compare checkpoints by this metric (default: {task.primary} of the first data set)",
    )
    parser.add_argument(
        "--data",
        required=True,
        nargs="+" if task.several else 1,
        action="extend",
        help=task.data_help,
    )
    add_output(parser, "directory of the results", metavar="DIR")
    if "languages" in task.offers:
        add_languages(
            parser,
            "languages to measure, in order (default: those that the model was trained on, if the "
            "data have two of them, otherwise all)",
        )
    if "config" in task.offers:
        add_config_values(parser)
    add_options(parser, task)
    parser.add_argument(
        "--pictures",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="draw pictures of the results (default: yes)",
    )


def run(args: argparse.Namespace) -> None:
    task = options_from(args, TASKS[args.task], optional_config(args))
    output = Path(args.output)
    if output.exists() and not output.is_dir():
        raise OptionError(f"--output {output}: must be a directory; found a file")
    if args.metric and not args.checkpoint:
        raise OptionError("--metric compares checkpoints: it needs --checkpoint")
    steps = choose_checkpoints(args.model, args.checkpoint) if args.checkpoint else []
    compares = bool(steps) and not args.checkpoint.isdigit()
    names = [_COMPARISON, *(f"{step}/results.json" for step in steps)]
    for name in names if compares else ("results.json",):
        refuse_existing(output / name, args.overwrite)
    if len(args.data) > 1 and not task.several:
        raise OptionError(f"--data: {args.task} takes one; found {' '.join(args.data)}")
    check_input(args, "data", can_be_folder=True)
    data = task.read(args.data, getattr(args, "languages", None))
    names = [one.name for one in data]
    if len(set(names)) < len(names):
        raise OptionError(f"--data: results need different names; {args.data} give {names}")
    scores = {}
    for step in steps or [None]:
        encoder = _load_encoder(args, step)
        data = _in_known_languages(args, task, data, encoder)
        place = output / str(step) if compares else output
        path = args.model if step is None else f"{args.model}/checkpoints/{step:08d}"
        scores[step] = _measure(args, task, data, encoder, path, place)
        metric = _metric(args, task, scores[step]) if compares else ""
    if compares:
        print(printable(_compare(args, task, scores, metric, output)))


def _metric(args: argparse.Namespace, task: Task, known: Mapping[str, float]) -> str:
    """The name of the metric that checkpoints are compared by."""
    wanted = args.metric or task.primary
    # Without a name before it, of the first data set.
    metric = next((name for name in known if wanted in (name, name.rpartition("/")[2])), wanted)
    if metric not in known:
        raise OptionError(f"--metric {metric}: is not measured; choose from {', '.join(known)}")
    return metric


def _compare(
    args: argparse.Namespace,
    task: Task,
    scores: Mapping[int, Mapping[str, float]],
    metric: str,
    output: Path,
) -> str:
    """Writes `checkpoints.json`; returns a table of all checkpoints and the best one.

    Of equal ones the first is best: it took less training.
    """
    lower = metric.rpartition("/")[2] in task.lower_is_better
    rank = lambda step: -scores[step][metric] if lower else scores[step][metric]
    best = max(sorted(scores), key=rank)
    content = {"metric": metric, "goal": "min" if lower else "max", "best": best}
    content["scores"] = {str(step): values[metric] for step, values in scores.items()}
    _remove_earlier(output, "results.json", "results.md")
    write_json(output / _COMPARISON, content)
    lines = [f"| checkpoint | {metric} |", "| ---: | ---: |"]
    lines += [f"| {step} | {values[metric]:.4f} |" for step, values in scores.items()]
    workdir = shlex.quote(args.model)
    command = f"xling export --workdir {workdir} --checkpoint {best} --output DIR"
    return "\n".join([*lines, "", f"Best: {best}. To export it: {command}"])


def _unknown_languages(encoder: Encoder, data: Sequence[Any]) -> list[str]:
    """The languages that the encoder was not trained on, if it knows its own."""
    known = {to_iso639_1(code) for code in getattr(encoder, "languages", ())}
    return [code for code in languages_of(data) if known and to_iso639_1(code) not in known]


def _in_known_languages(
    args: argparse.Namespace, task: Task, data: list[Any], encoder: Encoder
) -> list[Any]:
    """The data in the languages of the encoder, unless others are asked for or few are left."""
    others = _unknown_languages(encoder, data)
    left = [[c for c in getattr(one, "languages", ()) if c not in others] for one in data]
    if not others or getattr(args, "languages", None) or min(map(len, left)) < 2:
        return data
    try:
        data = task.load(args.data, list(dict.fromkeys(itertools.chain(*left))))
    except OptionError:  # such as languages with labels, which were asked for
        return data
    line = "%s was not trained on %s: left out; --languages CODE,CODE includes them"
    _logger.warning(line, args.model, ", ".join(others))
    return data


def _measure(
    args: argparse.Namespace,
    task: Task,
    data: list[Any],
    encoder: Encoder,
    path: str,
    output: Path,
) -> dict[str, float]:
    """Measures an encoder, which `path` names, writes and prints results; returns the metrics."""
    from xling_jax.encode.model_directory import SHIPPED
    from xling_jax.eval import results as results_lib

    started = time.monotonic()
    if others := _unknown_languages(encoder, data):
        _logger.warning("%s was not trained on %s", path, ", ".join(others))
    made = [path for path in (output, *output.parents) if not path.exists()]
    output.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    try:
        for one in data:
            _logger.info("measuring %s", one.name)
            outcomes |= task.measure(encoder, one, output)
    except BaseException:
        with contextlib.suppress(OSError):  # there may be something in them
            for path in made:
                path.rmdir()
        raise
    _remove_earlier(output, _COMPARISON)
    model = {"path": path, "fingerprint": encoder.fingerprint, "dtype": encoder.dtype}
    if args.model in SHIPPED and not Path(args.model).exists():
        model["shipped"] = True  # the path is a name
    content = {
        "format_version": 1,
        "task": args.task,
        "command": f"xling {shlex.join(args.words)}",
        "model": model,
        "data": [one.description for one in data],
        "settings": task.options(encoder, outcomes),
        "versions": results_lib.versions(),
        "seconds": round(time.monotonic() - started, 2),
        "metrics": task.metrics(outcomes),
        "matrices": {name: outcome.to_dict() for name, outcome in outcomes.items()},
    }
    print(printable(results_lib.write_results(output, task.tables(data, outcomes), content)))
    if args.pictures and (pictures := [*task.pictures(encoder, data, outcomes)]):
        from xling_jax.report.pictures import draw_all

        _logger.info("drawing pictures")
        draw_all(pictures, output)
    _logger.info("results in %s", output)
    return content["metrics"]


def _remove_earlier(output: Path, *names: str) -> None:
    """Removes files of an earlier evaluation that is overwritten: those named, and its pictures."""
    if any((output / name).exists() for name in ("results.json", _COMPARISON)):
        names += tuple(f"*.{kind}.png" for kind in _PICTURES)
        for path in [path for name in names for path in output.glob(name)]:
            path.unlink()


def _load_encoder(args: argparse.Namespace, step: int | None) -> Encoder:
    """The encoder of `--model`, or of one of its checkpoints."""
    if step is None:
        return load_encoder(args.model, args)
    from xling_jax.runs.export import export_checkpoint

    with scratch_directory("xling-evaluate") as scratch:
        export_checkpoint(args.model, step, scratch / "encoder")
        return load_encoder(scratch / "encoder", args)
