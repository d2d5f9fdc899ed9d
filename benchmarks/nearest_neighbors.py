"""Exact nearest neighbors: the backends of `knn.top_k`, faiss and sentence-transformers.

    python benchmarks/nearest_neighbors.py --queries 200000 --keys 2000 --dim 512
    python benchmarks/nearest_neighbors.py --queries 50000 --keys 50000 --dim 1024
    python benchmarks/nearest_neighbors.py --queries 20000 --keys 20000 --dim 256 --both-ways

Needs `pip install faiss-cpu sentence-transformers`, or a selection of `--contestants`. The vectors
are random clustered unit vectors, generated in advance. The contestants run in separate processes
and take turns; medians are compared. `beyond inputs` is the peak memory of a process beyond what it
held, including its input, when it was ready; the results, 12 bytes per neighbor, are part of it.
With `--both-ways`, the peers search twice, and ours with `knn.top_k_both_ways`.
"""

import argparse
from collections.abc import Callable

import interleaved
import numpy as np

CONTESTANTS = ("faiss", "sentence-transformers", "numpy", "jax")


def clustered(rows: int, dim: int, seed: int, clusters: int = 1000) -> np.ndarray:
    """Unit vectors around shared centers, [rows, dim] float32."""
    centers = np.random.default_rng(0).standard_normal((clusters, dim), np.float32)
    rng = np.random.default_rng(seed)
    vectors = np.empty((rows, dim), np.float32)
    for start in range(0, rows, 8192):
        block = vectors[start : start + 8192]
        block[:] = centers[rng.integers(0, clusters, len(block))]
        block += rng.standard_normal(block.shape, np.float32)
        block /= np.linalg.norm(block, axis=1, keepdims=True)
    return vectors


def both_ways(
    name: str, queries: np.ndarray, keys: np.ndarray, k: int, memory_mb: float
) -> Callable:
    """As `searcher`, of both directions: [n + m, k]."""
    if name in ("numpy", "jax"):
        from xling_jax.align import knn

        def search() -> np.ndarray:
            found = knn.top_k_both_ways(queries, keys, k, memory_mb=memory_mb, backend=name)
            return np.concatenate([indices for _, indices in found])

        return search
    there = searcher(name, queries, keys, k, memory_mb)
    back = searcher(name, keys, queries, k, memory_mb)
    return lambda: np.concatenate([there(), back()])


def searcher(
    name: str, queries: np.ndarray, keys: np.ndarray, k: int, memory_mb: float
) -> Callable:
    """A function that searches once and returns indices [n, k]."""
    if name == "faiss":
        import faiss

        def search() -> np.ndarray:
            index = faiss.IndexFlatIP(keys.shape[1])
            index.add(keys)
            return index.search(queries, k)[1]

    elif name == "sentence-transformers":
        import torch
        from sentence_transformers import util

        query_tensor, key_tensor = torch.from_numpy(queries), torch.from_numpy(keys)

        def search() -> np.ndarray:
            # The default score would normalize the unit vectors again.
            found = util.semantic_search(
                query_tensor, key_tensor, top_k=k, score_function=util.dot_score
            )
            return np.array([[hit["corpus_id"] for hit in hits] for hits in found])

    else:
        from xling_jax.align import knn

        def search() -> np.ndarray:
            return knn.top_k(queries, keys, k, memory_mb=memory_mb, backend=name)[1]

    return search


def work(args: argparse.Namespace) -> None:
    """Serves searches of one contestant."""
    queries, keys = clustered(args.queries, args.dim, 1), clustered(args.keys, args.dim, 2)
    make = both_ways if args.both_ways else searcher
    search = make(args.worker, queries, keys, args.k, args.memory_mb)
    # Warm up: compilation, threads.
    make(args.worker, queries[:64], keys[:64], args.k, args.memory_mb)()
    if args.worker == "jax":
        search()
    ready_mb = interleaved.peak_mb()
    inputs_mb = (queries.nbytes + keys.nbytes) / 2**20

    def run() -> dict[str, float]:
        return {"checksum": int(np.sort(search(), axis=1)[:: max(1, args.queries // 1000)].sum())}

    interleaved.serve(run, {"ready_mb": ready_mb, "inputs_mb": inputs_mb})


def main() -> None:
    """Runs the workers in turns and prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=2_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--memory-mb", type=float, default=256, help="of our backends")
    parser.add_argument("--both-ways", action="store_true", help="keys against queries, too")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=CONTESTANTS)
    parser.add_argument("--worker", choices=CONTESTANTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args)
        return
    options = [
        text
        for name in ("queries", "keys", "dim", "k", "memory_mb")
        for text in (f"--{name.replace('_', '-')}", str(getattr(args, name)))
    ] + ["--both-ways"] * args.both_ways
    arguments = {name: [*options, "--worker", name] for name in args.contestants}
    numbers, facts = interleaved.take_turns(__file__, arguments, args.rounds)
    # Of one direction: the other one's are the same.
    products = 2 * args.queries * args.keys * args.dim
    first = args.contestants[0]
    table = []
    for name in args.contestants:
        seconds = interleaved.median(numbers[name])
        beyond = interleaved.median(numbers[name], "peak_mb") - facts[name]["ready_mb"]
        same = numbers[name][0]["checksum"] == numbers[first][0]["checksum"]
        table.append(
            (
                name,
                f"{seconds:.2f}",
                f"{interleaved.median(numbers[name], 'cpu_seconds'):.2f}",
                f"{products / seconds / 1e9:,.0f}",
                f"{interleaved.ratio(numbers[first], numbers[name]):.2f}",
                f"{beyond:,.0f}",
                "yes" if same else "no",
            )
        )
    ways = ", both ways" if args.both_ways else ""
    print(f"Top {args.k}, {args.queries:,} against {args.keys:,} of {args.dim}, float32{ways};")
    print(f"memory_mb={args.memory_mb:g} for numpy and jax.")
    print(f"{interleaved.circumstances()}, {args.rounds} rounds\n")
    header = ("", "s", "CPU s", "GFLOP/s", f"speedup over {first}", "MB beyond inputs")
    print(interleaved.markdown_table((*header, f"same as {first}"), table))


if __name__ == "__main__":
    main()
