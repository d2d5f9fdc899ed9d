"""Shows the packaged encoder at work on real text, then trains a small cT-LASER.

The first part takes a minute: translations found in two shuffled texts, search across languages,
classification with labels in one. The second trains from nothing, in minutes, and compares. All of
it is on one page in the end, report.html.
"""

import argparse
import contextlib
import dataclasses
import io
import json
import logging
import shlex
import time
from pathlib import Path
from typing import Any

from xling_jax.config import find_config, load
from xling_jax.corpora.quickstart_text import (
    LANGUAGES,
    UNRELATED_QUERY,
    FetchError,
    QuickstartText,
    fetch_wheels,
    write_sentences,
    write_text,
)
from xling_jax.files.untrusted import printable
from xling_jax.options import OptionError, require_file

_logger = logging.getLogger(__name__)

EXAMPLES = """\
examples:
  xling quickstart --workdir runs/quickstart
  xling quickstart --workdir runs/quickstart --no-training

The text is translated messages of free software. Their packages are downloaded once, with pip,
into the workdir (97 MB), and only read; without a network, the encoder is shown on sentences of the
package. Run the same command again to continue.
"""

ENCODER = "mini"
# Of the ratio margin; a round number, not tuned on this text. `mine --precision` is too cautious
# here: messages have near-duplicates, whose scores look like those of translations.
THRESHOLD = 1.1
# Of the messages of the packaged wheels, those with a text, in any language, that is also in the
# encoder's training text (letters and digits, case-folded).
_NUM_IN_ITS_TRAINING = 59
_WHEELS = find_config("quickstart").with_name("quickstart_wheels.txt")
_SENTENCES = find_config("quickstart").with_name("quickstart_sentences.tsv")


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


@dataclasses.dataclass(frozen=True)
class _Measured:
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
    problem = None
    try:
        fetch_wheels(args.wheels, wheels)
        _logger.info("reading their messages, about 10 s")
        text = write_text(wheels, workdir / "text")
    except FetchError as error:
        problem = error
        _logger.warning("%s", error)
        _logger.warning("showing the encoder on a few sentences of the package instead")
        text = write_sentences(_SENTENCES, workdir / "text")

    _logger.info("2/5 the packaged encoder: %s", ENCODER)
    if not problem and Path(args.wheels) == _WHEELS:
        _logger.info(
            "its training text includes messages of other programs and some of Gramps: at most %d "
            "of these %d occur in it, in at least one language",
            *(_NUM_IN_ITS_TRAINING, text.counts["retrieval.tsv"]),
        )
    shown = _show_encoder(workdir, text)
    _logger.info("%.0f s so far", time.monotonic() - started)
    if args.no_training:
        print(_next_commands(text))
        return 0
    if problem:
        raise problem

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
    import xling_jax
    from xling_jax.eval.demonstration import (
        find_translations,
        format_accuracies,
        format_translations,
        shuffle_texts,
    )

    encoder = xling_jax.load(ENCODER)
    columns = _columns(text)
    texts = shuffle_texts(columns["en"], columns["de"])
    above = lambda pairs: int((pairs.scores > THRESHOLD).sum())
    found = find_translations(encoder.encode, texts, above)
    for path, lines in zip(_shuffled(text), (texts.source, texts.target)):
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    print(
        f"\nTranslations in two shuffled texts, English and German, {len(texts.source)} lines "
        f"each, {texts.num_translations} with a translation:\n"
        f"{len(found.pairs)} pairs have a margin above {THRESHOLD}; precision "
        f"{found.precision:.1%}, recall {found.recall:.1%}. From the best to the last:\n"
    )
    print(printable(format_translations(texts, found)), flush=True)
    measured = _measure(ENCODER, text, workdir / "results" / ENCODER, "--no-pictures")
    print(
        f"\nSearch in {len(columns['en'])} lines of each language, by cosine; the last query is "
        f"about something else:\n\n{measured.neighbors}"
    )
    rows = text.counts["classification/train.en.tsv"]
    print(f"Classification with {rows} labels, all of them English; accuracy, %, by language:\n")
    print(format_accuracies(ENCODER, measured.classification, LANGUAGES), end="\n\n", flush=True)
    return measured


def _measure(model: str, text: QuickstartText, results: Path, *options: str) -> _Measured:
    """Runs `xling evaluate` as a user would, and searches for a few sentences."""
    import xling_jax
    from xling_jax.eval.demonstration import format_neighbors, search_languages

    matrices = {}
    for task, data, more in (
        ("retrieval", text.retrieval, ()),
        ("classification", text.classification, ("--train-languages", "en")),
    ):
        output = results / task
        words = ["--model", model, "--data", data, "--output", output, *more, *options]
        _xling("evaluate", task, *words, "--overwrite")
        content = json.loads((output / "results.json").read_text())
        (matrices[task],) = content["matrices"].values()
    queries = (*text.queries, ("", UNRELATED_QUERY))
    found = search_languages(xling_jax.load(model), queries, _columns(text))
    table = format_neighbors(queries, found) + "\n"
    unrelated = max(hit.score for hit in found[-1].values())
    return _Measured(**matrices, neighbors=table, unrelated_cosine=unrelated)


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

    means = shown.classification["mean"]
    bag_of_words, chance = (100 * means[kind]["cross"] for kind in ("bag_of_words", "chance"))
    labels = (
        "retrieval, P@1 over all pairs of languages, % (chance "
        f"{100 / text.counts['retrieval.tsv']:.1f})",
        f"classification in {', '.join(LANGUAGES[1:])}, labels in English, % (bag of words "
        f"{bag_of_words:.1f}, chance {chance:.1f})",
        "cosine of an unrelated sentence to its nearest; the lower, the better",
    )
    columns = [
        (
            f"{100 * one.retrieval['mean']['p_at_1']:.1f}",
            f"{100 * one.classification['mean']['accuracy']['cross']:.1f}",
            f"{one.unrelated_cosine:.2f}",
        )
        for one in (shown, trained)
    ]
    table = markdown_table(["", ENCODER, "cT-LASER"], [*zip(labels, *columns)])
    return (
        f"On {text.counts['retrieval.tsv']} held-out messages:\n\n{table}\n\n"
        f'{ENCODER} is the one to use: xling_jax.load("{ENCODER}").\n'
        f"The cT-LASER is for learning how training works: it saw short messages of software for "
        f'a\nfew minutes. It is xling_jax.load("{workdir}"); docs/how-to/train.md goes on from '
        f"here.\n\n"
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
