"""Input pipeline: tokens/s delivered by the readers, relative to those the fastest update consumes.

    python benchmarks/input_pipeline.py
    python benchmarks/input_pipeline.py --workdir runs/t_laser

Without a prepared `--workdir` (`xling prepare`), a synthetic corpus with sentence lengths similar
to Europarl's is written to a temporary directory. Tokens are counted without padding but with
special tokens. The update is that of the `small` size, the cheapest per token. Readers and the
update run in separate processes and take turns; a reader starts from scratch in every turn, as in a
run.
"""

import argparse
import itertools
import tempfile
from pathlib import Path

import interleaved
import numpy as np
from train_step import PAD, jax_worker, make_experiment

READERS = ("numpy", "tf.data")


def write_corpus(directory: Path, rows: int, vocab_size: int) -> None:
    """One pair, `de-en`, of synthetic sentences of about 30 tokens."""
    from xling_jax.corpora.shards import token_dtype, write_shard

    random = np.random.default_rng(0)
    size = random.lognormal(3.2, 0.6, rows)
    columns = {}
    for language in ("de", "en"):
        lengths = np.clip(size * random.lognormal(0, 0.15, rows), 1, 120).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        tokens = random.integers(4, vocab_size, offsets[-1]).astype(token_dtype(vocab_size))
        columns[language] = (tokens, offsets)
    write_shard(directory / "de-en" / "00000", columns)


def open_pairs(directory: str, experiment, pairs: list[str]):
    """The library's batches over a directory of token shards."""
    from xling_jax.train.batches import DataOptions, TranslationBatches

    data = DataOptions(**experiment.config["data"] | {"pairs": pairs})
    return TranslationBatches(
        directory,
        data,
        languages=sorted({code for pair in pairs for code in pair.split("-")}),
        prefix=[0],
        suffix=[2],
        pad_id=PAD,
        seed=0,
    )


def count_tokens(batch) -> int:
    """Number of real tokens on both sides."""
    return sum(int((batch[f"{side}_tokens"] != PAD).sum()) for side in ("source", "target"))


def serve_reader(batches, reader: str, num_batches: int) -> None:
    """Serves turns of `num_batches` batches."""
    from xling_jax.train.batches import read_batches

    starts = itertools.count(0, num_batches)

    def run() -> dict[str, float]:
        start = next(starts)
        stream = read_batches(batches, start, start + num_batches, reader=reader)
        return {"tokens": sum(count_tokens(batch) for batch in stream)}

    run()
    interleaved.serve(run, {})


def work(args: argparse.Namespace) -> None:
    """Runs as the process of a reader or of the update."""
    experiment = make_experiment("small", {"t_laser"})
    batches = open_pairs(args.shards, experiment, args.pairs)
    if args.worker in READERS:
        serve_reader(batches, args.worker, args.batches)
    else:
        # The speed hardly depends on the bucket, so use the first batch.
        batch = batches[0]
        jax_worker(experiment, batch, 4, {"tokens": 4 * count_tokens(batch)})


def pairs_of(shards: str) -> list[str]:
    """Pairs in a directory of token shards, one direction each."""
    return sorted(path.name for path in Path(shards).iterdir() if "-" in path.name)


def measure(args: argparse.Namespace) -> None:
    """Runs the workers in turns and prints a Markdown table."""
    options = ["--shards", args.shards, "--batches", str(args.batches), "--worker"]
    names = ("update", *READERS)
    arguments = {name: [*options, name] for name in names}
    numbers, _ = interleaved.take_turns(__file__, arguments, args.rounds)
    for name in names:
        for entry in numbers[name]:
            entry["tokens_per_second"] = entry["tokens"] / entry["seconds"]
    table = [
        (
            name,
            f"{interleaved.median(numbers[name], 'tokens_per_second'):,.0f}",
            f"{interleaved.ratio(numbers[name], numbers['update'], 'tokens_per_second'):.1f}",
        )
        for name in names
    ]
    print(f"Input pipeline. {interleaved.circumstances()}, {args.rounds} rounds\n")
    print(interleaved.markdown_table(("", "real tokens/s", "over the update"), table))


def main() -> None:
    """Finds or writes a corpus and measures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workdir", help="workdir with prepared data")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batches", type=int, default=200, help="batches per turn")
    parser.add_argument("--shards", help=argparse.SUPPRESS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        args.pairs = pairs_of(args.shards)
        work(args)
    elif args.workdir:
        args.shards = str(Path(args.workdir) / "data")
        measure(args)
    else:
        with tempfile.TemporaryDirectory() as directory:
            write_corpus(
                Path(directory),
                200_000,
                make_experiment("small", {"t_laser"}).preparation.vocab.size,
            )
            args.shards = directory
            measure(args)


if __name__ == "__main__":
    main()
