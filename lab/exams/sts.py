r"""STS benchmark in several languages: do cosines order pairs of sentences as people do?

    python lab/exams/sts.py ../shared/data/sts/stsb.dev.{en,de,fr,es,it}.tsv.gz --model mini

Files of equal rows, `score<TAB>sentence1<TAB>sentence2` with a header, NAME.LANGUAGE.tsv[.gz].
Prints Spearman's correlation times 100 with the first sentence in the language of the row and the
second in that of the column, and the means of the diagonal (same) and the rest (cross).
"""

import argparse
import csv

import numpy as np
from scipy.stats import spearmanr

import xling_jax
from xling_jax.eval.results import markdown_table
from xling_jax.files.lines import read_lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--model", default="mini")
    args = parser.parse_args()
    encoder = xling_jax.load(args.model)
    codes = [path.removesuffix(".gz").removesuffix(".tsv").split(".")[-1] for path in args.data]
    firsts, seconds, scores = [], [], []
    for path in args.data:
        rows = [*csv.DictReader(read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)]
        firsts.append(encoder.encode([row["sentence1"] for row in rows], normalize=True))
        seconds.append(encoder.encode([row["sentence2"] for row in rows], normalize=True))
        scores.append([float(row["score"]) for row in rows])
    if any(each != scores[0] for each in scores):
        parser.error("data: files must have the same scores in the same rows")
    matrix = np.array(
        [[spearmanr((a * b).sum(axis=1), scores[0])[0] for b in seconds] for a in firsts]
    )
    report(codes, 100 * matrix, args.model)


def report(codes: list[str], matrix: np.ndarray, model: str) -> None:
    """Prints a table of languages by languages, and the means on and off its diagonal."""
    rows = [[code, *(f"{v:.1f}" for v in values)] for code, values in zip(codes, matrix)]
    print(markdown_table([model, *codes], rows))
    same = np.eye(len(codes), dtype=bool)
    cross = f", cross {matrix[~same].mean():.1f}" if len(codes) > 1 else ""
    print(f"same {matrix[same].mean():.1f}{cross}")


if __name__ == "__main__":
    main()
