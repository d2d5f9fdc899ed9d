"""Encoders without layers beside their peers: model2vec and sentence-transformers' StaticEmbedding.

    python benchmarks/static_peers.py --text tatoeba.en-fr.tsv.gz
    python benchmarks/static_peers.py --text tatoeba.en-fr.tsv.gz --model runs/static

The peers get tables of the model's width (random numbers cost the same) and its vocabulary, as a
`tokenizers` file with the same pieces, scores and lower-casing. Every contestant is measured in
processes of its own, which take turns: `start` is a process from nothing to the first vector,
`single` one sentence at a time, `text` all sentences at once, tokenization included.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import interleaved
import numpy as np

CONTESTANTS = ("xling_jax", "model2vec", "sentence-transformers")
NUM_SINGLE = 2000


def write_peers(model: str, directory: Path) -> None:
    """Saves the peers' models."""
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from sentencepiece import SentencePieceProcessor
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    import xling_jax

    encoder = xling_jax.load(model)
    pieces = SentencePieceProcessor(model_proto=encoder.vocab.model_bytes)
    scored = [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(len(pieces))]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=pieces.unk_id()))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    table = np.random.default_rng(0).normal(size=(len(scored), encoder.dim)).astype(np.float32)
    StaticModel(table, tokenizer).save_pretrained(str(directory / "model2vec"))
    static = StaticEmbedding(tokenizer, embedding_weights=table)
    SentenceTransformer(modules=[static], device="cpu").save(str(directory / "st"))


def load(name: str, model: str, directory: str) -> Callable[[Sequence[str]], np.ndarray]:
    """A contestant's function of texts to vectors."""
    if name == "xling_jax":
        import xling_jax

        return xling_jax.load(model).encode
    if name == "model2vec":
        from model2vec import StaticModel

        return StaticModel.from_pretrained(f"{directory}/model2vec").encode
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(f"{directory}/st", device="cpu").encode


def start_once(name: str, model: str, directory: str) -> None:
    """Prints the peak memory of a process that makes one vector."""
    load(name, model, directory)(["Where is the station?"])
    print(interleaved.peak_mb())


def serve(name: str, model: str, directory: str, text: str, count: int) -> None:
    """Serves turns of single sentences and of the whole text."""
    import gzip
    import itertools

    with gzip.open(text, "rt", encoding="utf-8") as lines:
        rows = (line.rstrip("\n").split("\t") for line in itertools.islice(lines, 1, None))
        sentences = list(itertools.islice((row[0] for row in rows if row[0]), count))
    encode = load(name, model, directory)
    encode(sentences)

    def run() -> dict[str, Any]:
        began = time.perf_counter()
        for sentence in sentences[:NUM_SINGLE]:
            encode([sentence])
        single = (time.perf_counter() - began) / min(NUM_SINGLE, len(sentences))
        began = time.perf_counter()
        encode(sentences)
        rate = len(sentences) / (time.perf_counter() - began)
        return {
            "single_us": 1e6 * single,
            "sentences_per_second": rate,
            "text_mb": interleaved.peak_mb(),
        }

    interleaved.serve(run, {"sentences": len(sentences)})


def main() -> None:
    """Runs the contestants in turns and prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", required=True, help="a TSV with a header, .gz; its first column")
    parser.add_argument("--model", default="mini", help="a static encoder (%(default)s)")
    parser.add_argument("--sentences", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, what = args.worker
        if what == "start":
            start_once(name, args.model, args.directory)
        else:
            serve(name, args.model, args.directory, args.text, args.sentences)
        return
    with tempfile.TemporaryDirectory() as directory:
        write_peers(args.model, Path(directory))
        common = ["--text", args.text, "--model", args.model, "--directory", directory]
        common += ["--sentences", str(args.sentences)]
        starts: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
        for _ in range(args.rounds):
            for name in CONTESTANTS:
                began = time.perf_counter()
                command = [sys.executable, __file__, *common, "--worker", name, "start"]
                printed = subprocess.run(command, capture_output=True, check=True).stdout
                seconds = time.perf_counter() - began
                starts[name].append({"start": seconds, "start_mb": json.loads(printed.split()[-1])})
        arguments = {name: [*common, "--worker", name, "serve"] for name in CONTESTANTS}
        numbers, _ = interleaved.take_turns(__file__, arguments, args.rounds)
    rows = []
    for name in CONTESTANTS:
        median = lambda key, of=numbers[name]: interleaved.median(of, key)
        rows.append(
            (
                name,
                f"{interleaved.median(starts[name], 'start'):.2f}",
                f"{interleaved.median(starts[name], 'start_mb'):,.0f}",
                f"{median('single_us'):,.0f}",
                f"{median('sentences_per_second'):,.0f}",
                f"{median('text_mb'):,.0f}",
            )
        )
    print(f"{interleaved.circumstances()}, {args.rounds} rounds\n")
    header = ("", "start s", "start MB", "single µs", "sentences/s", "text MB")
    print(interleaved.markdown_table(header, rows))


if __name__ == "__main__":
    main()
