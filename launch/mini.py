"""Trains, shrinks, calibrates and measures the encoder in the package; see `launch/mini.sh`."""

import argparse
import glob
import gzip
import random
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LANGUAGES = ("de", "en", "es", "fr", "it")
# Names that begin so hold text that may be used for research only, or test sets.
NOT_PUBLISHABLE = ("multi30k.", "news.", "news2.", "idioms.en-de.", "xquad.", "tico19.")
# Rows of each file; all of the others.
LIMITS = {"europarl.": 60_000, "dict-ding.": 120_000}
# Dimensions that are kept of 512: the others hold next to nothing.
WIDTH = 256
# Lines of text for the principal axes.
NUM_AXES_LINES = 200_000
DEVELOPMENT = ("retrieval/*.dev.tsv.gz", "retrieval/tatoeba.dev")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, type=Path, help="parallel/, retrieval/ and so on")
    parser.add_argument("--workdir", required=True, type=Path)
    parser.add_argument("--config", default="mini", help="mini:smoke, for a try (%(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    args, overrides = parser.parse_known_args()
    args.workdir.mkdir(parents=True, exist_ok=True)
    for command, result in commands(args, overrides):
        if result and result.exists():
            print(f"{result} is there", flush=True)
            continue
        print("xling", shlex.join(command), flush=True)
        if not args.dry_run:
            if command[0] == "export" and not (args.workdir / "axes.txt").exists():
                write_lines(args.data, args.workdir / "axes.txt")
            xling = [sys.executable, "-m", "xling_jax.cli.main"]
            if subprocess.run([*xling, *command], check=False).returncode:
                sys.exit(f"launch/mini.sh: xling {command[0]} failed; see above")


def commands(
    args: argparse.Namespace, overrides: list[str]
) -> Iterator[tuple[list[str], Path | None]]:
    """The commands of xling, each with what it makes; None if it does nothing a second time."""
    workdir, data, model = args.workdir, args.data, args.workdir / "mini"
    held_out = sorted(glob.glob(f"{data}/{DEVELOPMENT[0]}"))
    text = [f"--config.data.corpora={corpora(data / 'parallel')!r}"]
    text += [f"--config.data.exclude={tuple(held_out)!r}", *overrides]
    run = str(workdir / "run")
    yield ["train", "--config", args.config, "--workdir", run, *text], None
    export = ["export", "--model", run, "--storage", "int8", "--truncate-dim", str(WIDTH)]
    export += ["--output", str(model)]
    yield [*export, "--principal-axes", str(workdir / "axes.txt")], model
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


def corpora(directory: Path) -> tuple[str, ...]:
    """The corpora of a folder, with limits; says what is left out."""
    found = []
    for path in sorted(directory.glob("*.tsv.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            languages = {*file.readline().split()} & {*LANGUAGES}
        if len(languages) < 2:
            continue
        if path.name.startswith(NOT_PUBLISHABLE):
            print(f"left out, not for published weights: {path.name}", flush=True)
            continue
        limits = [rows for prefix, rows in LIMITS.items() if path.name.startswith(prefix)]
        found.append(f"tsv:{path}" + "".join(f"[:{rows}]" for rows in limits))
    return tuple(found)


def write_lines(data: Path, output: Path) -> None:
    """Writes lines drawn from the text in all languages."""
    generator, lines = random.Random(0), []
    for spec in corpora(data / "parallel"):
        path = spec.removeprefix("tsv:").partition("[")[0]
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
            columns = [i for i, code in enumerate(file.readline().split()) if code in LANGUAGES]
            rows = [line.rstrip("\n").split("\t") for _, line in zip(range(20_000), file)]
        lines += [row[i] for row in rows for i in columns if row[i]]
    generator.shuffle(lines)
    output.write_text("\n".join(lines[:NUM_AXES_LINES]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
