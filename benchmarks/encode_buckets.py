"""Encoding speed: length buckets against padding to the longest sentence, on a text file.

    python benchmarks/encode_buckets.py --text corpus.en.gz --sentences 2000

Both methods use the same module, parameters and batch size in tokens. The naive one takes sentences
in order and pads all of them to the longest of the sample (the one static shape that a direct port
would compile). Rounds are interleaved, compilation is excluded, and medians are compared. Without a
model directory, an untrained T-LASER of `--width` and `--layers` is timed, with a vocabulary
trained on the text.
"""

import argparse
import gzip
import statistics
import time

import jax
import numpy as np

import xling_jax
from xling_jax.encode.encoder import Encoder
from xling_jax.encode.jax_backend import JaxBackend
from xling_jax.encode.texts import EncodeStats
from xling_jax.models import registry
from xling_jax.text.vocab import train_vocab


def read_sentences(path: str, count: int, column: int) -> list[str]:
    """The first `count` non-blank cells of a TSV column (a plain text file has one column)."""
    opener = gzip.open if path.endswith(".gz") else open
    sentences = []
    with opener(path, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            cell = line.rstrip("\n").split("\t")[column]
            if cell.strip():
                sentences.append(cell)
            if len(sentences) == count:
                break
    return sentences


def make_encoder(args: argparse.Namespace, sentences: list[str]) -> Encoder:
    """Loads the model, or builds an untrained one."""
    if args.model:
        return xling_jax.load(args.model, backend="jax")
    vocab = train_vocab(sentences, size=args.vocab_size)
    module = registry.build_encoder(
        "tlaser",
        vocab_size=vocab.size,
        width=args.width,
        layers=args.layers,
        heads=args.width // 64,
        ffn_width=4 * args.width,
    )
    tokens = np.ones((1, 8), np.int32)
    params = jax.jit(module.init)(jax.random.key(0), tokens)["params"]
    return Encoder(
        JaxBackend(module, params, vocab.pad_id),
        vocab,
        specials=registry.ENCODERS["tlaser"].specials,
        max_length_tokens=512,
        languages=(),
        fingerprint="",
        dim=args.width,
    )


def naive_encoder(encoder: Encoder, sentences: list[str]):
    """Returns a function that pads everything to the longest sentence, in input order."""
    ids = encoder.vocab.encode(sentences)
    length = min(encoder.max_length_tokens, max(map(len, ids)) + 2)
    rows = max(1, 1024 // length) if jax.default_backend() == "cpu" else 65536 // length
    apply = jax.jit(lambda params, tokens: encoder.backend.module.apply({"params": params}, tokens))

    def encode(texts: list[str]) -> np.ndarray:
        results = []
        ids = encoder.vocab.encode(texts)
        for start in range(0, len(ids), rows):
            tokens = np.full((rows, length), encoder.vocab.pad_id, np.int32)
            for row, sentence in enumerate(ids[start : start + rows]):
                sentence = sentence[: length - 2]
                tokens[row, : len(sentence) + 2] = [
                    encoder.vocab.bos_id,
                    *sentence,
                    encoder.vocab.eos_id,
                ]
            results.append(np.asarray(apply(encoder.params, tokens)))
        return np.concatenate(results)[: len(texts)]

    return encode


def seconds(function, *args) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


def main() -> None:
    """Times both methods and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", required=True, help="plain text or TSV, may be .gz")
    parser.add_argument("--column", type=int, default=0)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--model")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--vocab-size", type=int, default=4000)
    args = parser.parse_args()

    sentences = read_sentences(args.text, args.sentences, args.column)
    encoder = make_encoder(args, sentences)
    naive = naive_encoder(encoder, sentences)
    stats = EncodeStats()
    bucketed = np.concatenate(list(encoder.encode_stream(sentences, stats=stats)))
    difference = np.abs(bucketed - naive(sentences)).max()
    times: dict[str, list[float]] = {"buckets": [], "longest": []}
    for _ in range(args.rounds):
        times["buckets"].append(seconds(encoder.encode, sentences))
        times["longest"].append(seconds(naive, sentences))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        rate = stats.num_tokens / median
        print(
            f"{name}: {median:.3f} s, {len(sentences) / median:.0f} sentences/s, {rate:.0f} tok/s"
        )
    print(
        f"ratio {medians['longest'] / medians['buckets']:.2f}; real over padded tokens "
        f"{stats.num_tokens / stats.num_padded_tokens:.3f}; largest difference {difference:.1e}; "
        f"{len(encoder.batch_shapes().all())} shapes possible; {jax.devices()[0].device_kind}, "
        f"jax {jax.__version__}"
    )


if __name__ == "__main__":
    main()
