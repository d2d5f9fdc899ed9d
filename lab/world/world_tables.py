"""Writes what `world_measure.py` measured of `world` into the tables beside this script.

    python lab/world/world_tables.py --scores OUT/world.tsv && python lab/tables.py

The columns of the teacher and of `mini` stay as they are.
"""

import argparse
import collections
import csv
from pathlib import Path

LAB = Path(__file__).parent
THIRTY = "ar bg ca cs da de el es fa fi fr he hi hu id it ja ko nb nl pl pt ro ru sk sv tr uk vi zh"
FOUR = "de es fr it"
COLUMNS = {
    "Tatoeba error": "tatoeba_error",
    "SIB-200 P@1 cosine": "sib200_cosine",
    "topics": "sib200_topics",
    "PUD P@1 cosine": "pud_cosine",
}
LEVELS = (
    (5, "🟢", "up to 5"),
    (15, "🟡", "6 to 15"),
    (30, "🟠", "16 to 30"),
    (100, "🔴", "above 30"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scores", type=Path, required=True)
    args = parser.parse_args()
    found = collections.defaultdict(dict)
    for row in read(args.scores)[1:]:
        found[row[1]][row[2]] = float(row[3])
    header, *rows = read(LAB / "scores.tsv")
    for row in rows:
        code = row[0].split("(")[1].rstrip(")")
        for column, measure in COLUMNS.items():
            place = header.index(column)
            row[place] = cell(found[measure].get(code))
            if measure.endswith("_cosine"):
                row[place + 1] = cell(found[measure.replace("cosine", "margin")].get(code))
    write(LAB / "scores.tsv", [header, *rows])
    errors = found["tatoeba_error"]
    names = {row[0].split("(")[1].rstrip(")"): row[0].split(" (")[0] for row in rows}
    table, least = [["", "error, %", "languages"]], -1
    for most, sign, label in LEVELS:
        codes = [code for code in errors if least < round(errors[code]) <= most]
        codes.sort(key=lambda code: errors[code])
        these = [
            f"{names[code]} {errors[code]:.{int(round(errors[code], 1) < 10)}f}" for code in codes
        ]
        table.append([sign, label, ", ".join(these)])
        least = most
    write(LAB / "languages.tsv", table)

    def mean(measure: str, codes: str = "") -> str:
        values = [found[measure][code] for code in codes.split() or found[measure]]
        return f"{sum(values) / len(values):.1f}"

    header, *rows = read(LAB / "results.tsv")
    both = (("sib200", ""), ("pud", FOUR), ("europarl", FOUR))
    values = [mean("tatoeba_error", codes) for codes in (THIRTY, "", FOUR)]
    values += [f"{mean(s + '_cosine', c)} / {mean(s + '_margin', c)}" for s, c in both]
    for row, value in zip(rows, [*values, mean("sib200_topics")], strict=True):
        row[header.index("world")] = value
    write(LAB / "results.tsv", [header, *rows])


def cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def read(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t"))


def write(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
