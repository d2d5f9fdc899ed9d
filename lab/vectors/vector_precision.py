r"""What do precision and width of vectors cost, in P@1, and save, in bytes?

    python lab/vectors/vector_precision.py --model mini --languages en,de,es,fr,it \
        --data europarl.dev.tsv.gz pud.dev.tsv.gz

P@1 is the mean over all directions between the languages. The ranges of int8 are learned on the
texts of the other data sets.
"""

import argparse
import itertools

import numpy as np

import xling_jax
from xling_jax.align import knn
from xling_jax.cli.options import words
from xling_jax.eval.results import markdown_table, percent
from xling_jax.eval.retrieval_data import load_retrieval_data
from xling_jax.files.quantization import PRECISIONS, learn_ranges, quantize

RESCORED = "ubinary, rescored"  # the best of the four nearest by bits, in float32


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
        for precision in (*PRECISIONS, RESCORED):
            scores = [p_at_1(vectors, name, dim, precision) for name in vectors]
            plain = plain or dict(zip(vectors, scores))
            cells = [
                f"{percent(s)} ({percent(s - plain[name])})" for name, s in zip(vectors, scores)
            ]
            table.append([str(dim), precision, str(num_bytes(dim, precision)), *cells])
            print(*table[-1], flush=True)
    print(
        markdown_table(
            ["dim", "precision", "bytes", *(f"{n}: P@1, % (change)" for n in vectors)], table
        )
    )


def num_bytes(dim: int, precision: str) -> int:
    """Of a vector."""
    return quantize(
        np.zeros(dim, np.float32), precision.partition(",")[0], np.zeros((2, dim))
    ).nbytes


def stored(vectors: dict, name: str, dim: int, precision: str) -> list[np.ndarray]:
    """Unit vectors of each language as their codes say: the middle of a step, or the sign as ±1."""
    sides = [side[:, :dim] for side in vectors[name].values()]
    if precision == "int8":
        others = [other for other in vectors if other != name] or [*vectors]
        sample = (side[:, :dim] for other in others for side in vectors[other].values())
        ranges = learn_ranges(sample)
        codes = [quantize(side, "int8", ranges).astype(np.float32) for side in sides]
        sides = [(c + 128.5) * (ranges[1] - ranges[0]) / 255 + ranges[0] for c in codes]
    elif precision != "float32":
        is_float = precision == "float16"
        sides = [
            side.astype(np.float16) if is_float else np.where(side > 0, 1, -1) for side in sides
        ]
    return [knn.normalize(side) for side in sides]


def p_at_1(vectors: dict, name: str, dim: int, precision: str) -> float:
    """Mean over the directions of a data set."""
    exact = stored(vectors, name, dim, "float32")
    sides = stored(vectors, name, dim, precision)
    scores = []
    for (source, target), (query, key) in zip(
        *(itertools.permutations(s, 2) for s in (sides, exact))
    ):
        nearest = knn.top_k(source, target, 4 if precision == RESCORED else 1)[1]
        cosines = np.einsum("nd,nkd->nk", query, key[nearest])  # of the nearest by bits
        best = np.take_along_axis(nearest, cosines.argmax(axis=1)[:, None], axis=1)[:, 0]
        scores.append(np.mean(best == np.arange(len(best))))
    return float(np.mean(scores))


if __name__ == "__main__":
    main()
