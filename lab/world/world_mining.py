r"""Mining between two languages neither of which is English, with a precision that is asked for.

    python lab/world/world_mining.py --data DATA --guide DIR --model world --output mining.tsv

Each of two texts has 532 sentences of a parallel set, 266 of them with a translation on the other
side, and up to 800 others. The set is SIB-200, and for Japanese and Korean the paragraphs of
Debian's installation guide, which was not trained on: DIR is usr/share/doc/installation-guide-amd64
of the package of that name.
"""

import argparse
import csv
import gzip
import html
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from world_measure import read_columns

NAMES = {"ar": "Arabic", "ja": "Japanese", "ko": "Korean", "nl": "Dutch", "pl": "Polish"}
NAMES |= {"tr": "Turkish", "zh": "Chinese"}
PAIRS = ("nl", "pl"), ("ar", "tr"), ("ja", "zh"), ("ja", "ko")
PRECISIONS = "0.9", "0.95", "0.98"
SHARED, OTHERS = 266, 800
DENSE = ("ja", "ko", "zh")
# Of running text, for a language without treebank.
WRITTEN = ("pydocs", "stories", "wesnoth")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name in ("data", "guide", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--model", default="world")
    args = parser.parse_args()
    with args.output.open("w", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["languages", "90 % asked for", *(f"{p[2:]} %" for p in PRECISIONS[1:])])
        for codes in PAIRS:
            columns = guide(args.guide, codes) if "ko" in codes else sib200(args.data, codes)
            sides = two_texts(columns, [others(args.data, code) for code in codes])
            cells = [mined(args.model, sides, precision) for precision in PRECISIONS]
            writer.writerow([", ".join(NAMES[code] for code in codes), *cells])
            file.flush()


def sib200(data: Path, codes: tuple[str, str]) -> list[list[str]]:
    """The sentences in both languages, by their numbers."""
    columns = []
    for code in codes:
        parts = [
            read_columns(data / f"classification/sib200/{part}.{code}.tsv.gz")
            for part in ("train", "dev")
        ]
        texts = {int(i): t for part in parts for i, t in zip(part["id"], part["text"])}
        columns.append([texts[i] for i in sorted(texts)])
    return columns


def guide(directory: Path, codes: tuple[str, str]) -> list[list[str]]:
    """Paragraphs of pages that have as many in both languages, in random order."""
    pairs = {}
    for page in sorted((directory / codes[0]).glob("*.html")):
        both = [paragraphs(directory / code / page.name) for code in codes]
        if len(both[0]) == len(both[1]):
            pairs |= {pair[0]: pair[1] for pair in zip(*both) if all(map(is_dense, pair))}
    pairs = {target: source for source, target in pairs.items()}  # one of each text
    rows = sorted((source, target) for target, source in pairs.items())
    random.Random(0).shuffle(rows)
    return [list(column) for column in zip(*rows)]


def paragraphs(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8", errors="replace")
    found = re.findall(r"<p\b[^>]*>(.*?)</p>", text, re.DOTALL)
    return [" ".join(html.unescape(re.sub(r"<[^>]+>", "", p)).split()) for p in found]


def is_dense(text: str) -> bool:
    """Whether it is translated: a third of it at least in another script, and no heading."""
    return len(text) >= 12 and 3 * sum(ord(c) >= 0x3000 for c in text) >= len(text)


def others(data: Path, code: str) -> list[str]:
    """Running text of the language."""
    path = data / f"world/mono/{code}.txt.gz"
    if path.exists():
        with gzip.open(path, "rt", encoding="utf-8") as file:
            texts = [line.strip() for line in file]
    else:
        files = (data / f"world/parallel/{source}.en-{code}.tsv.gz" for source in WRITTEN)
        texts = [t for p in files if p.exists() for t in read_columns(p)[code]]
    least = 12 if code in DENSE else 30
    texts = sorted({text for text in texts if least < len(text) < 300})
    return random.Random(0).sample(texts, min(OTHERS, len(texts)))


def two_texts(columns: list[list[str]], more: list[list[str]]) -> list[list[tuple[str, int]]]:
    """Both texts, shuffled, with the number of what a sentence says, negative where only there."""
    generator, sides = random.Random(0), []
    for side, (texts, added) in enumerate(zip(columns, more)):
        first = side * SHARED
        rows = [(texts[i], i) for i in range(first, first + 2 * SHARED)]
        rows += [(text, -1 - side) for text in added]
        generator.shuffle(rows)
        sides.append(rows)
    return sides


def mined(model: str, sides: list[list[tuple[str, int]]], precision: str) -> str:
    """How many of the pairs are right, and of the translations found, in percent."""
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory) / name for name in ("source", "target", "pairs.tsv")]
        for file, rows in zip(files, sides):
            file.write_text("".join(text + "\n" for text, _ in rows), encoding="utf-8")
        command = [sys.executable, "-m", "xling_jax.cli.main", "mine", "--model", model]
        command += ["--source", files[0], "--target", files[1], "--output", files[2]]
        subprocess.run([*command, "--precision", precision], check=True, stderr=subprocess.DEVNULL)
        rows = [line.split("\t") for line in files[2].read_text(encoding="utf-8").splitlines()]
    numbers = [{text.strip(): number for text, number in rows} for rows in sides]
    said = [(numbers[0].get(row[1]), numbers[1].get(row[2])) for row in rows if len(row) > 2]
    said = [pair for pair in said if None not in pair]  # a heading
    right = sum(a == b for a, b in said)
    return f"{100 * right / max(len(said), 1):.0f} / {100 * right / SHARED:.0f} %"


if __name__ == "__main__":
    main()
