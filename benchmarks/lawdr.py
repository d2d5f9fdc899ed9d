"""LAWDR's fit and transform against the same steps in scikit-learn: time and memory.

    python benchmarks/lawdr.py --rows 1000000 --dim 1024

Random sentence vectors with clusters and a language component, written to disk before the clock
starts and mapped by both. Ours also chooses the bandwidth; scikit-learn is told what was chosen.
Its steps: TruncatedSVD, PCA to 16, KernelDensity(kernel="tophat"), weights, documents. Its density
of `--kde-queries` sentences among all is timed and scaled up to all of them. One process each. `MB`
is the peak of anonymous memory, so that mapped files do not count, above what a process held when
it was ready.
"""

import argparse
import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import interleaved
import numpy as np

CONTESTANTS = ("xling_jax", "scikit-learn")
DENSITY_DIM = 16
LATENT_DIM, CLUSTERS = 64, 2000
SENTENCES_PER_DOCUMENT = 20
STAGES = {
    "fit": "fit, all",
    "bandwidth": "– choice of bandwidth",
    "counts": "– density of all sentences",
    "transform": "transform",
}


def write_vectors(path: Path, rows: int, dim: int) -> None:
    """Writes clustered vectors around a mean, whose variances fall, [rows, dim] float32."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((CLUSTERS, LATENT_DIM), np.float32)
    scales = (1 + np.arange(LATENT_DIM, dtype=np.float32)) ** -0.3
    mixing = rng.standard_normal((LATENT_DIM, dim), np.float32) / np.sqrt(LATENT_DIM)
    mean = rng.standard_normal(dim, np.float32)
    vectors = np.lib.format.open_memmap(path, "w+", np.float32, (rows, dim))
    for start in range(0, rows, 8192):
        block = vectors[start : start + 8192]
        latent = centers[rng.integers(0, CLUSTERS, len(block))]
        latent += 0.7 * rng.standard_normal(latent.shape, np.float32)
        block[:] = (latent * scales) @ mixing + mean
        block += 0.2 * rng.standard_normal(block.shape, np.float32)
    vectors.flush()


def anonymous_mb() -> float:
    """Memory of this process that no file stands behind, in MiB."""
    with open("/proc/self/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024


@contextlib.contextmanager
def peak_memory() -> Iterator[dict[str, float]]:
    """Watches the memory while in use; gives the peak above the start, in MiB, at the end."""
    found = {"beyond_mb": 0.0}
    before, ended = anonymous_mb(), threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            found["beyond_mb"] = max(found["beyond_mb"], anonymous_mb() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        ended.set()
        watcher.join()


def run_ours(vectors: np.ndarray, offsets: np.ndarray, queries: np.ndarray, rank: int) -> dict:
    """Fits and transforms; seconds of each stage, and what is compared."""
    from xling_jax.documents import density
    from xling_jax.documents.lawdr import Lawdr

    seconds = {}

    def timed(name: str) -> None:
        function = getattr(density, name)

        def call(*arguments, **options):
            start = time.perf_counter()
            result = function(*arguments, **options)
            seconds[name] = time.perf_counter() - start
            return result

        setattr(density, name, call)

    timed("neighbor_counts")  # The last call, of all sentences, is what stays.
    timed("choose_bandwidth")
    start = time.perf_counter()
    lawdr = Lawdr(rank=rank).fit(vectors)
    fitted = time.perf_counter()
    lawdr.transform(vectors, offsets)
    return {
        "fit": fitted - start,
        "bandwidth": seconds["choose_bandwidth"],
        "counts": seconds["neighbor_counts"],
        "transform": time.perf_counter() - fitted,
        "chosen": lawdr.density.bandwidth,
        "share": lawdr.density.fitted_counts.mean() / len(vectors),
        "densities": lawdr.density.fitted_counts[queries].astype(float).tolist(),
    }


def run_scikit_learn(
    vectors: np.ndarray, offsets: np.ndarray, queries: np.ndarray, rank: int, bandwidth: float
) -> dict:
    """The same with scikit-learn's estimators, the density scaled up from that of `queries`."""
    from sklearn.decomposition import PCA, TruncatedSVD
    from sklearn.neighbors import KernelDensity

    start = time.perf_counter()
    components = TruncatedSVD(rank, random_state=0).fit(vectors).components_
    points = PCA(DENSITY_DIM, random_state=0).fit_transform(vectors)
    kde = KernelDensity(kernel="tophat", bandwidth=bandwidth).fit(points)
    scoring = time.perf_counter()
    densities = np.exp(kde.score_samples(points[queries]))
    transforming = time.perf_counter()
    # As if all densities were known; what they are takes no time.
    weights = np.random.default_rng(0).random((len(vectors), 1), np.float32)
    debiased = vectors - (vectors @ components.T) @ components
    np.add.reduceat(weights * debiased, offsets[:-1])
    counts = (transforming - scoring) * len(vectors) / len(queries)
    return {
        "fit": scoring - start + counts,
        "counts": counts,
        "transform": time.perf_counter() - transforming,
        "densities": densities.tolist(),
    }


def work(args: argparse.Namespace) -> None:
    """Serves fits of one contestant."""
    vectors = np.load(args.file, mmap_mode="r")
    offsets = np.append(np.arange(0, len(vectors), SENTENCES_PER_DOCUMENT), len(vectors))
    size = min(args.kde_queries, len(vectors))
    queries = np.random.default_rng(1).choice(len(vectors), size, replace=False)
    inputs = vectors, offsets, queries, args.rank
    few = vectors[:500], np.array([0, 500]), np.arange(5), min(args.rank, 8)
    is_ours = args.worker == CONTESTANTS[0]
    run_ours(*few) if is_ours else run_scikit_learn(*few, 1.0)  # Imports, starts threads.

    def run() -> dict:
        with peak_memory() as memory:
            numbers = run_ours(*inputs) if is_ours else run_scikit_learn(*inputs, args.bandwidth)
        return numbers | memory

    interleaved.serve(run, {})


def main() -> None:
    """Runs the contestants one after the other and prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--kde-queries", type=int, default=500, help="timed with scikit-learn")
    parser.add_argument("--directory", help="where the vectors are written; default: temporary")
    parser.add_argument("--worker", choices=CONTESTANTS, help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--bandwidth", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args)
        return
    numbers = {}
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        file = Path(directory, "vectors.npy")
        write_vectors(file, args.rows, args.dim)
        options = ["--file", str(file), "--rank", str(args.rank)]
        options += ["--kde-queries", str(args.kde_queries)]
        for name in CONTESTANTS:
            if numbers:
                options += ["--bandwidth", str(numbers[CONTESTANTS[0]]["chosen"])]
            worker = interleaved.Worker(__file__, [*options, "--worker", name])
            numbers[name] = worker.turn()
            worker.close()
    report(args, *numbers.values())


def report(args: argparse.Namespace, ours: dict, theirs: dict) -> None:
    """Prints the table and how far the densities agree."""
    rows = []
    for stage, title in STAGES.items():
        cells = [
            f"{numbers[stage]:,.1f}" if stage in numbers else "–" for numbers in (ours, theirs)
        ]
        ratio = f"{theirs[stage] / ours[stage]:,.1f}" if stage in theirs else "–"
        rows.append((f"{title}, s", *cells, ratio))
    memory = [f"{numbers['beyond_mb']:,.0f}" for numbers in (ours, theirs)]
    rows.append(("memory, MB", *memory, f"{theirs['beyond_mb'] / ours['beyond_mb']:,.1f}"))
    print(f"LAWDR of {args.rows:,} sentence vectors of {args.dim}, rank {args.rank}, documents of")
    print(f"{SENTENCES_PER_DOCUMENT} sentences; scikit-learn's density scaled up from that of")
    print(f"{min(args.kde_queries, args.rows):,} sentences. {interleaved.circumstances()}\n")
    print(interleaved.markdown_table(("", *CONTESTANTS, "ratio"), rows))
    densities = [np.array(numbers["densities"]) for numbers in (ours, theirs)]
    relative = (densities[0] / densities[0].mean()) / (densities[1] / densities[1].mean())
    print(f"\nBandwidth {ours['chosen']:.3g}: {ours['share']:.1%} of the sentences within it.")
    print(f"Densities relative to their mean differ by {np.abs(relative - 1).max():.1e} at most.")


if __name__ == "__main__":
    main()
