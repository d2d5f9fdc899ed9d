"""Trains, shrinks, calibrates and measures the packaged encoder; see `mini.sh`."""

import argparse
import glob
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from mini_text import (
    NOT_PUBLISHABLE,
    corpora,
    write_careless,
    write_emoji,
    write_english,
    write_lines,
    write_translated,
    write_unaccented,
)
from mini_words import WORD_VECTORS, ratings_of_vader, there

from xling_jax.config import load
from xling_jax.options import OptionError
from xling_jax.train.experiment import Experiment

# Files made in the workdir, and what writes them.
WRITTEN = {
    "axes.txt": write_lines,
    "emoji.tsv": write_emoji,
    "english.tsv": write_english,
    "translated.tsv": write_translated,
    "unaccented.tsv": write_unaccented,
    "careless.tsv": write_careless,
}
PROGRAMS = {
    "xling": [sys.executable, "-m", "xling_jax.cli.main"],
    **{
        name: [sys.executable, str(Path(__file__).with_name(name))]
        for name in ("mini_words.py", "mini_similarity.py", "reshape.py")
    },
}
# Of these, what each run trains on beside the text in the folder.
CORPORA = {
    "long": ("emoji.tsv", "translated.tsv", "unaccented.tsv"),
    "everyday": ("translated.tsv", "unaccented.tsv[:20000]"),
    "careless": ("translated.tsv", "careless.tsv"),
}
CORPORA["short"] = CORPORA["long"]
# Workdir of a run -> its phase of the config. `everyday` continues from the mean of those before it
# once topics and sentiment are added, and `careless` from `everyday`.
RUNS = {"long": "train", "short": "short", "everyday": "everyday", "careless": "everyday"}
AVERAGED = ("long", "long", "short")
DEVELOPMENT = ("retrieval/*.dev.tsv.gz", "retrieval/tatoeba.dev")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="lab/mini/mini.sh", description=__doc__)
    parser.add_argument("--data", required=True, type=Path, help="parallel/, retrieval/ and so on")
    parser.add_argument("--workdir", required=True, type=Path)
    parser.add_argument(
        "--config",
        default="mini",
        help="mini:languages=seven, or mini:smoke for a try (%(default)s)",
    )
    parser.add_argument(
        "--word-vectors", default=WORD_VECTORS, type=Path, help="GloVe's, an archive (%(default)s)"
    )
    parser.add_argument(
        "--teacher", help="multilingual-e5-small, whose order of cosines is learned (default: none)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    args, overrides = parser.parse_known_args(words)
    if unknown := [word for word in overrides if not word.startswith("--config.")]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        experiment = load(args.config, overrides)
    except OptionError as error:
        parser.error(str(error))
    for path in sorted((args.data / "parallel").glob("*.tsv.gz")):
        if path.name.startswith(NOT_PUBLISHABLE):
            print(f"left out, not for published weights: {path.name}", flush=True)
    if not args.dry_run:
        if not (args.workdir / "words.npy").exists():  # said now, not after the training
            there(args.word_vectors)
            ratings_of_vader()
        args.workdir.mkdir(parents=True, exist_ok=True)
        share_data(args.workdir)
    for name, write in WRITTEN.items():
        if not args.dry_run and not (args.workdir / name).exists():
            print(f"writing {name}", flush=True)
            write(experiment, args.data, args.workdir / name)
    for command, result in commands(args, experiment, overrides):
        if result and result.exists():
            print(f"{result} is there", flush=True)
            continue
        print(shlex.join(command), flush=True)
        if not args.dry_run:
            program, *arguments = command
            subprocess.run([*PROGRAMS[program], *arguments], check=True)


def commands(
    args: argparse.Namespace, experiment: Experiment, overrides: list[str]
) -> Iterator[tuple[list[str], Path | None]]:
    """The commands, each with what it makes; None if it does nothing a second time."""
    workdir, data = args.workdir, args.data
    mean, words, joined = workdir / "mean", workdir / "words.npy", workdir / "joined"
    model = workdir / "mini"
    axes = str(workdir / "axes.txt")
    held_out = sorted(glob.glob(f"{data}/{DEVELOPMENT[0]}"))
    exclude = f"--config.data.exclude={tuple(held_out)!r}"

    def config_of(name: str) -> str:
        return f"{args.config}{',' if ':' in args.config else ':'}phase={RUNS[name]}"

    def train(name: str, *settings: str) -> tuple[list[str], None]:
        command = ["xling", "train", "--config", config_of(name), "--workdir", str(workdir / name)]
        text = corpora(experiment, data / "parallel", everyday=RUNS[name] == "everyday")
        text += tuple(f"tsv:{workdir}/{made}" for made in CORPORA[name])
        return [*command, f"--config.data.corpora={text!r}", exclude, *settings, *overrides], None

    vocabulary = workdir / "long/vocab/sentencepiece.model"
    yield train("long")
    yield train("short", f"--config.vocab.model={vocabulary}")
    first, *others = (str(workdir / name) for name in AVERAGED)
    average = ["reshape.py", "--model", first, "--average", *others]
    yield [*average, "--output", str(mean)], mean
    rows = ["--rows", str(workdir / "english.tsv"), "--word-vectors", str(args.word_vectors)]
    yield ["mini_words.py", "--model", str(mean), *rows, "--output", str(words)], words
    encoder = load(config_of("everyday"), overrides).model.encoder
    widths = ["--truncate-dim", str(encoder.width), "--feature-dim", str(encoder.feature_width)]
    reshape = ["reshape.py", "--model", str(mean), "--token-vectors", str(words)]
    yield [*reshape, "--principal-axes", axes, *widths, "--output", str(joined)], joined
    yield train("everyday", f"--config.train.model_init={joined}")
    yield train("careless", f"--config.train.model_init={workdir / 'everyday'}")
    careless = str(workdir / "careless")
    reshape = ["reshape.py", "--model", careless, "--principal-axes", axes]
    if args.teacher:
        map_ = workdir / "similarity.npy"
        learn = ["mini_similarity.py", "--model", careless, "--teacher", args.teacher]
        yield [*learn, "--data", str(data / "parallel"), "--output", str(map_)], map_
        reshape += ["--linear", str(map_)]
    yield [*reshape, "--storage", "mixed", "--output", str(model)], model
    sets = [*held_out, f"{data}/{DEVELOPMENT[1]}"]
    common = ["--model", str(model), "--languages", ",".join(experiment.languages)]
    # The captions are among what the calibration is tested on.
    kinds = [path for path in sets if "multi30k" not in path]
    evaluate = ["xling", "evaluate"]
    yield ["xling", "calibrate", *common, "--overwrite", "--data", *kinds], None
    for name in ("cosine", "margin"):
        output = workdir / "results" / name
        task = [*evaluate, "retrieval", *common, "--similarity", name, "--data", *sets]
        yield [*task, "--output", str(output)], output / "results.json"
    for name in ("sib200", "phpmanual", "tweets"):
        output, text = workdir / "results" / name, data / "classification" / name
        codes = ",".join(c for c in experiment.languages if (text / f"dev.{c}.tsv.gz").exists())
        task = [*evaluate, "classification", "--model", str(model), "--languages", codes]
        yield [*task, "--data", str(text), "--output", str(output)], output / "results.json"


def share_data(workdir: Path) -> None:
    """Lets the short run read the token shards of the long one, as it has the same text."""
    run = workdir / "short"
    run.mkdir(exist_ok=True)
    if not (run / "data").is_symlink():
        (run / "data").symlink_to(Path("..", "long", "data"))


if __name__ == "__main__":
    main()
