"""Writes the tables of measurements that the documentation quotes.

    python lab/tables.py           # into the pages
    python lab/tables.py --check   # exit status 1 if a page differs

On a page, `<!-- table: NAME/FILE.tsv -->` stands before the table of `lab/NAME/FILE.tsv`, whose
first line names the columns. Each study's notes say how its numbers were measured.
"""

import argparse
import re
import sys
from pathlib import Path

LAB = Path(__file__).parent
ROOT = LAB.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "xling_jax/shipped").glob("*/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
_TABLE = re.compile(r"(<!-- table: (\S+) -->\n\n)(?:\|.*\n)*")
_NUMBER = re.compile(r"[−-]?\d[\d,.]*( [a-zA-Z/µ%]+)?|")


def markdown(path: Path) -> str:
    """A file of tab-separated values as a table in Markdown; columns of numbers to the right."""
    header, *rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
    if any(len(row) != len(header) for row in rows):
        raise ValueError(f"{path}: every line must have {len(header)} cells")
    numeric = [all(map(_NUMBER.fullmatch, column)) for column in zip(*rows)]
    ruler = ["---:" if right else "---" for right in numeric]
    return "".join(f"| {' | '.join(row)} |\n" for row in [header, ruler, *rows])


def with_tables(page: str) -> str:
    """The text of a page with its tables written anew."""
    return _TABLE.sub(lambda match: match[1] + markdown(LAB / match[2]), page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say which pages differ")
    args = parser.parse_args()
    different = []
    for path in PAGES:
        old = path.read_text("utf-8")
        new = with_tables(old)
        if new != old:
            different.append(path)
            if not args.check:
                path.write_text(new, "utf-8")
    for path in different:
        print(path.relative_to(ROOT))
    return int(args.check and bool(different))


if __name__ == "__main__":
    sys.exit(main())
