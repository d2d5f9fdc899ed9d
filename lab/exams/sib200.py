r"""SIB-200: topics of sentences, learned in one language and asked in every other.

    python lab/exams/sib200.py ../shared/data/classification/sib200 --languages en,de,fr,es,it

The directory has {train,dev,test}.LANGUAGE.tsv[.gz] with the header `label<TAB>text`. Logistic
regression (scikit-learn's defaults, on vectors of length 1) learns from train in the language of
the row; prints its accuracy in percent on `--split` in the language of the column.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sts import report

import xling_jax
from xling_jax.files.lines import read_lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--languages", default="en,de,fr,es,it")
    parser.add_argument("--split", default="dev", help="what is asked: dev or test")
    args = parser.parse_args()
    encoder, codes = xling_jax.load(args.model), args.languages.split(",")
    train, asked = (
        [vectors(encoder, args.data, split, code) for code in codes]
        for split in ("train", args.split)
    )
    fitted = [LogisticRegression(max_iter=1000).fit(x, labels) for x, labels in train]
    matrix = np.array([[one.score(x, labels) for x, labels in asked] for one in fitted])
    report(codes, 100 * matrix, args.model)


def vectors(encoder, directory: Path, split: str, code: str) -> tuple[np.ndarray, list[str]]:
    """Vectors of length 1, and labels."""
    path = directory / f"{split}.{code}.tsv"
    lines = read_lines(path if path.exists() else f"{path}.gz")
    rows = [*csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]
    texts = [row["text"] for row in rows]
    return encoder.encode(texts, normalize=True), [row["label"] for row in rows]


if __name__ == "__main__":
    main()
