"""Trains, shrinks, calibrates and measures the encoder in the package; see `launch/mini.sh`."""

import argparse
import glob
import gzip
import random
import shlex
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

LANGUAGES = ("de", "en", "es", "fr", "it")
# Names that begin so hold text that may be used for research only, or test sets.
NOT_PUBLISHABLE = ("multi30k.", "news.", "news2.", "idioms.en-de.", "xquad.", "tico19.")
# Rows of each file; all of the others.
LIMITS = {"europarl.": 60_000, "dict-ding.": 120_000}
# Of rows of `write_unaccented`.
NUM_UNACCENTED = 120_000
# Lines of text for the principal axes.
NUM_AXES_LINES = 200_000
# What they and the pairs without accents are drawn from.
ROWS_OF_EACH = 20_000
UMLAUTS = {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"}
DEVELOPMENT = ("retrieval/*.dev.tsv.gz", "retrieval/tatoeba.dev")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, type=Path, help="parallel/, retrieval/ and so on")
    parser.add_argument("--workdir", required=True, type=Path)
    parser.add_argument("--config", default="mini", help="mini:smoke, for a try (%(default)s)")
    parser.add_argument(
        "--runs", type=int, default=1, help="with seeds 0, 1, …, to average (%(default)s)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    args, overrides = parser.parse_known_args()
    for path in sorted((args.data / "parallel").glob("*.tsv.gz")):
        if path.name.startswith(NOT_PUBLISHABLE):
            print(f"left out, not for published weights: {path.name}", flush=True)
    written = {"unaccented.tsv": write_unaccented, "axes.txt": write_lines}
    if args.runs < 1:
        parser.error(f"--runs {args.runs}: must be at least 1")
    if not args.dry_run:
        args.workdir.mkdir(parents=True, exist_ok=True)
        share_data(args.workdir, args.runs)
    for name, write in written.items():
        if not args.dry_run and not (args.workdir / name).exists():
            print(f"writing {name}", flush=True)
            write(args.data, args.workdir / name)
    for command, result in commands(args, overrides):
        if result and result.exists():
            print(f"{result} is there", flush=True)
            continue
        print("xling", shlex.join(command), flush=True)
        if not args.dry_run:
            xling = [sys.executable, "-m", "xling_jax.cli.main"]
            if subprocess.run([*xling, *command], check=False).returncode:
                sys.exit(f"launch/mini.sh: xling {command[0]} failed; see above")


def commands(
    args: argparse.Namespace, overrides: list[str]
) -> Iterator[tuple[list[str], Path | None]]:
    """The commands of xling, each with what it makes; None if it does nothing a second time."""
    workdir, data, model = args.workdir, args.data, args.workdir / "mini"
    held_out = sorted(glob.glob(f"{data}/{DEVELOPMENT[0]}"))
    files = (*corpora(data / "parallel"), f"tsv:{workdir}/unaccented.tsv")
    text = [f"--config.data.corpora={files!r}"]
    text += [f"--config.data.exclude={tuple(held_out)!r}", *overrides]
    first, *others = runs = [str(workdir / f"run{seed}") for seed in range(args.runs)]
    for seed, run in enumerate(runs):
        seeded = [f"--config.seed={seed}"]
        if run != first:
            seeded += [f"--config.vocab.model={first}/vocab/sentencepiece.model"]
        yield ["train", "--config", args.config, "--workdir", run, *text, *seeded], None
    average = ["--average", *others] if others else []
    export = ["export", "--model", first, *average, "--storage", "int8"]
    export += ["--principal-axes", str(workdir / "axes.txt")]
    yield [*export, "--output", str(model)], model
    sets = [*held_out, f"{data}/{DEVELOPMENT[1]}"]
    common = ["--model", str(model), "--languages", ",".join(LANGUAGES)]
    # The captions are among what the calibration is tested on.
    kinds = [path for path in sets if "multi30k" not in path]
    yield ["calibrate", *common, "--overwrite", "--data", *kinds], None
    for name in ("cosine", "margin"):
        output = workdir / "results" / name
        task = ["evaluate", "retrieval", *common, "--similarity", name, "--data", *sets]
        yield [*task, "--output", str(output)], output
    for name in ("sib200", "phpmanual", "tweets"):
        output = workdir / "results" / name
        task = ["evaluate", "classification", *common, "--data", f"{data}/classification/{name}"]
        yield [*task, "--output", str(output)], output


def share_data(workdir: Path, num_runs: int) -> None:
    """Lets all runs read the token shards of the first, which has their text and vocabulary."""
    for seed in range(1, num_runs):
        run = workdir / f"run{seed}"
        run.mkdir(exist_ok=True)
        if not (run / "data").is_symlink():
            (run / "data").symlink_to(Path("..", "run0", "data"))


def corpora(directory: Path) -> tuple[str, ...]:
    """The corpora of a folder that may stand behind published weights, with limits."""
    found = []
    for path in sorted(directory.glob("*.tsv.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            languages = {*file.readline().split()} & {*LANGUAGES}
        if len(languages) < 2:
            continue
        if path.name.startswith(NOT_PUBLISHABLE):
            continue
        limits = [rows for prefix, rows in LIMITS.items() if path.name.startswith(prefix)]
        found.append(f"tsv:{path}" + "".join(f"[:{rows}]" for rows in limits))
    return tuple(found)


def rows_of(data: Path) -> Iterator[dict[str, str]]:
    """The first rows of each corpus, language -> text."""
    for spec in corpora(data / "parallel"):
        path = spec.removeprefix("tsv:").partition("[")[0]
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
            columns = file.readline().rstrip("\n").split("\t")
            for _, line in zip(range(ROWS_OF_EACH), file):
                cells = zip(columns, line.rstrip("\n").split("\t"))
                yield {code: text for code, text in cells if text and code in LANGUAGES}


def write_lines(data: Path, output: Path) -> None:
    """Writes lines drawn from the text in all languages."""
    lines = [text for row in rows_of(data) for text in row.values()]
    random.Random(0).shuffle(lines)
    write_whole(output, lines[:NUM_AXES_LINES])


def write_unaccented(data: Path, output: Path) -> None:
    """Writes pairs of which one side has lost its accents, as people type in a hurry."""
    generator, lines = random.Random(0), []
    for row in rows_of(data):
        code = generator.choice(sorted(row))
        other = generator.choice(sorted(row.keys() - {code}) or [code])
        changed = unaccented(row[code], code == "de" and generator.random() < 0.5)
        if changed != row[code] and other != code:
            cells = row | {code: changed}
            lines.append("\t".join(cells[c] if c in (code, other) else "" for c in LANGUAGES))
    generator.shuffle(lines)
    write_whole(output, ["\t".join(LANGUAGES), *lines[:NUM_UNACCENTED]])


def unaccented(text: str, with_e: bool) -> str:
    """Drops accents; with_e writes umlauts with an e."""
    if with_e:
        text = "".join(UMLAUTS.get(character, character) for character in text)
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


def write_whole(output: Path, lines: list[str]) -> None:
    """Writes a file that is there only when it is whole."""
    part = output.with_suffix(".part")
    part.write_text("\n".join(lines) + "\n", encoding="utf-8")
    part.replace(output)


if __name__ == "__main__":
    main()
