r"""What cosines of a search are worth: queries without an answer, and lines of the text itself.

Half of the rows of a parallel text are queries, the other half the lines that are searched, so that
no query has its translation there. Beside the share of queries that find a line above a cosine
stands what `xling search` says of the text, from its own lines.

    python lab/mining/search_scores.py --model mini --data news.en-de.tsv.gz \
        messages.tsv --lines 3000
"""

import argparse
import itertools
import tempfile
from pathlib import Path

import numpy as np

import xling_jax
from xling_jax.align import knn
from xling_jax.cli.search import _TOLD
from xling_jax.eval.results import markdown_table
from xling_jax.eval.retrieval_data import load_retrieval_data
from xling_jax.serve.corpus import Corpus


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="mini")
    parser.add_argument("--data", nargs="+", required=True, help="parallel text")
    parser.add_argument("--lines", type=int, default=3000, help="that are searched, at most")
    args = parser.parse_args()
    encoder = xling_jax.load(args.model)
    rows = []
    for path in args.data:
        data = load_retrieval_data(path)
        found = [_measure(encoder, args.lines, *p) for p in _pairs(data.parts[0].texts)]
        num_lines, *shares = (np.mean(column, axis=0) for column in zip(*found))
        cells = (f"{a:.0%} / {b:.0%}" for a, b in zip(*shares))
        rows.append([data.name, f"{num_lines:.0f}", *cells])
    print(markdown_table(["text", "lines", *(f"above {score}" for score in _TOLD)], rows))


def _pairs(texts: dict[str, list[str]]) -> list[tuple[list[str], list[str]]]:
    """Queries and lines of each direction, of different rows."""
    found = []
    for source, target in itertools.permutations(texts.values(), 2):
        both = [(a, b) for a, b in zip(source, target) if a and b]
        order = np.random.default_rng(0).permutation(len(both))
        half = len(both) // 2
        queries, lines = order[:half][:1000], order[half:]
        found.append(([both[row][0] for row in queries], [both[row][1] for row in lines]))
    return found


def _measure(encoder, most: int, queries: list[str], lines: list[str]) -> tuple:
    """Number of lines, shares of queries above each score, and what the text's lines say."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "text"
        path.write_text("".join(f"{' '.join(line.split())}\n" for line in lines[:most]))
        corpus = Corpus(path, encoder)
        vectors = encoder.encode(corpus.lines, normalize=True)
        best = knn.top_k(encoder.encode(queries, normalize=True), vectors, 1)[0][:, 0]
        above = [np.mean(best > score) for score in _TOLD]
        return len(corpus.lines), above, corpus.resemblance(_TOLD)


if __name__ == "__main__":
    main()
