"""Writes the development sets in the form that `xling calibrate` reads, in the encoder's codes.

    python lab/world/world_development.py --data DATA --output OUT/development

Of SIB-200 without five languages (ar ja nl pl tr), between which mining was then tried.
"""

import argparse
import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path

from world_measure import read_columns
from world_text import LANGUAGES, language_of

FOR_MINING = ("ar", "ja", "nl", "pl", "tr")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    (args.output / "tatoeba_dev").mkdir(parents=True)
    for path in sorted((args.data / "retrieval/tatoeba.dev").glob("*-eng.tsv.gz")):
        columns = {language_of(code): texts for code, texts in read_columns(path).items()}
        if columns.keys() <= set(LANGUAGES):
            write(args.output / "tatoeba_dev" / f"{'-'.join(columns)}.tsv.gz", columns)
    pud = read_columns(args.data / "retrieval/pud.dev.tsv.gz")
    pud.pop("id")  # which would be Indonesian
    write(args.output / "pud.dev.tsv.gz", pud)
    sib = {}
    for path in sorted((args.data / "classification/sib200").glob("train.*")):
        code = path.name.split(".")[1]
        if code not in FOR_MINING:
            parts = path, path.with_name(path.name.replace("train", "dev"))
            columns = [read_columns(part) for part in parts]
            texts = {i: t for part in columns for i, t in zip(part["id"], part["text"])}
            sib[code] = [texts[i] for i in sorted(texts, key=int)]
    write(args.output / "sib200.dev.tsv.gz", sib)


def write(path: Path, columns: dict[str, Sequence[str]]) -> None:
    rows: Iterable[Sequence[str]] = [list(columns), *zip(*columns.values(), strict=True)]
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines("\t".join(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
