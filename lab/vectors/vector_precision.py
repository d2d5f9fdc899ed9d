r"""What do precision and width of vectors cost, in P@1, and save, in bytes and time of search?

    python lab/vectors/vector_precision.py --model mini --languages en,de,es,fr,it \
        --data europarl.dev.tsv.gz pud.dev.tsv.gz

P@1 is the mean over all directions between the languages. The ranges of int8 are learned on the
texts of the other data sets. Searches of 5,000 vectors among themselves, by cosine, take turns in
this process; the ratio is the median of those of CPU time, of all threads, within a round.
"""

import argparse
import itertools
import statistics
import time

import numpy as np

import xling_jax
from xling_jax.align import knn, mining
from xling_jax.align.rows import nearest_of
from xling_jax.cli.options import words
from xling_jax.eval.results import markdown_table, percent
from xling_jax.eval.retrieval_data import load_retrieval_data
from xling_jax.files.quantization import PRECISIONS, QuantizedRows, Quantizer, learn_ranges

ROUNDS = 5
NEIGHBORS = 4
SEARCHED = 5000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--model", default="mini")
    parser.add_argument("--data", required=True, nargs="+")
    parser.add_argument("--languages", type=words)
    parser.add_argument("--dims", type=lambda text: [*map(int, words(text))])
    args = parser.parse_args()
    encoder = xling_jax.load(args.model)
    sets = {path: load_retrieval_data(path, args.languages) for path in args.data}
    vectors = {
        data.name: {code: encoder.encode(texts) for code, texts in data.parts[0].texts.items()}
        for data in sets.values()
    }
    table, plain = [], {}
    for dim in args.dims or [encoder.dim]:
        contestants = {}
        for precision in PRECISIONS:
            scores = [p_at_1(vectors, name, dim, precision) for name in vectors]
            plain = plain or dict(zip(vectors, scores))
            rows = searched(vectors, dim, precision)
            contestants[precision] = (mining.unit_rows(rows, precision), None)
            table.append([dim, precision, rows.quantizer.width * rows.codes.itemsize, *scores])
            print(*table[-1], flush=True)
        exact = contestants["float32"][0]
        scores = [rescored(vectors, name, dim) for name in vectors]
        contestants["rescored"] = (contestants["ubinary"][0], exact)
        table.append([dim, "ubinary, rescored", table[-1][2], *scores])
        for row, ratio in zip(table[-len(contestants) :], ratios(contestants)):
            row.append(f"{ratio:.2f}")
    count = len(vectors)
    for row in table:
        losses = [percent(score - first) for score, first in zip(row[3:], plain.values())]
        row[3 : 3 + count] = [
            f"{percent(s)} ({loss})" for s, loss in zip(row[3 : 3 + count], losses)
        ]
    header = ["dim", "precision", "bytes", *(f"{name}: P@1, % (change)" for name in vectors)]
    rows = [[str(cell) for cell in row] for row in table]
    print(markdown_table([*header, "time of search"], rows))
    print(f"\n{len(exact):,} rows among as many, {NEIGHBORS} neighbors, {ROUNDS} rounds")


def quantizer(vectors: dict, name: str | None, dim: int, precision: str) -> Quantizer:
    """That of a data set, with the ranges of the others (of all, if there are no others)."""
    if precision != "int8":
        return Quantizer(precision, dim)
    others = [other for other in vectors if other != name] or [*vectors]
    sample = (side[:, :dim] for other in others for side in vectors[other].values())
    return Quantizer(precision, dim, learn_ranges(sample))


def searched(vectors: dict, dim: int, precision: str) -> QuantizedRows:
    """A sample of all vectors in one precision."""
    quantize = quantizer(vectors, None, dim, precision)
    rows = np.concatenate([rows[:, :dim] for sides in vectors.values() for rows in sides.values()])
    rows = rows[np.random.default_rng(0).permutation(len(rows))[:SEARCHED]]
    return QuantizedRows(quantize.quantize(rows), quantize)


def p_at_1(vectors: dict, name: str, dim: int, precision: str) -> float:
    """Mean over the directions of a data set."""
    quantize = quantizer(vectors, name, dim, precision)
    decoded = {
        code: quantize.dequantize(quantize.quantize(side[:, :dim]))
        for code, side in vectors[name].items()
    }
    unit = [knn.normalize(side) for side in decoded.values()]
    scores = []
    for source, target in itertools.permutations(unit, 2):
        nearest = knn.top_k(source, target, 1)[1][:, 0]
        scores.append(np.mean(nearest == np.arange(len(nearest))))
    return float(np.mean(scores))


def rescored(vectors: dict, name: str, dim: int) -> float:
    """The same for packed bits whose four nearest are compared in float32."""
    quantize = Quantizer("ubinary", dim)
    exact = {code: side[:, :dim] for code, side in vectors[name].items()}
    packed = {
        code: QuantizedRows(quantize.quantize(side), quantize) for code, side in exact.items()
    }
    scores = []
    for pair in itertools.combinations(exact, 2):
        floats, bits = ([side[code] for code in pair] for side in (exact, packed))
        found = mining.find_candidates(*bits, 1, rescore=floats)
        for nearest in (found.forward, found.backward):
            scores.append(np.mean(nearest[:, 0] == np.arange(len(nearest))))
    return float(np.mean(scores))


def ratios(contestants: dict) -> list[float]:
    """CPU time of each search relative to the first."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, (rows, exact) in contestants.items():
            start = time.process_time()
            if exact is None:
                knn.top_k(rows, rows, NEIGHBORS)
            else:
                coarse = knn.top_k(rows, rows, 4 * NEIGHBORS)[1]
                nearest_of(coarse, exact, exact, NEIGHBORS)
            seconds[name].append(time.process_time() - start)
    first = next(iter(seconds.values()))
    return [
        statistics.median(own / base for own, base in zip(times, first))
        for times in seconds.values()
    ]


if __name__ == "__main__":
    main()
