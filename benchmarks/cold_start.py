"""From nothing to vectors: cold starts and the latency of single sentences, beside PyTorch.

    python benchmarks/cold_start.py --text europarl.dev.tsv.gz --rounds 5

Three families with random weights and the vocabulary of `mini`: the lightweight dual encoder
(2 layers of width 512), T-LASER (6 of 512) and LASER_1 (a BiLSTM of 512 units a direction). The
peer is sentence-transformers with a model of the same sizes and the same pieces: an XLM-R for the
transformers, its LSTM module for the BiLSTM. The XLM-R pools the mean and so needs its last layer
at every position, which T-LASER needs at the first only: an eighth of its products are saved.

Each start is a process of its own, and contestants take turns. It encodes the sentences one by one
as a service would: `first` is the time from the start of the process to the first vector, `load`
the part of it that `load` takes, `then` the longest of the other sentences. Then all are encoded
once more: `single` is the median, and at last all in one call: `sentences/s`. `jax` is our encoder
with `backend="jax"`; `cached` is a start that finds compiled programs on disk, and `warm` one that
calls `warm_up` before the first sentence. `products` is what the matrix products of a sentence of
median length take in NumPy alone, in their order, without anything between them; `large` is what
they would take at the rate of a 2048³ product.
"""

import argparse
import gzip
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

import interleaved
import numpy as np

FAMILIES = {
    "lightweight": ("dual", {"width": 512, "layers": 2, "heads": 8, "ffn_width": 2048}),
    "t_laser": ("tlaser", {"width": 512, "layers": 6, "heads": 8, "ffn_width": 2048}),
    "laser_1": ("laser", {"embedding_width": 320, "width": 1024, "layers": 1}),
}
CONTESTANTS = ("xling_jax", "jax", "jax, cached", "jax, warm", "sentence-transformers")
LONGEST = 128


def with_specials(model: bytes) -> bytes:
    """A SentencePiece model whose last two pieces, rare ones, are those around a sentence."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    for name, number in (("bos", len(proto.pieces) - 2), ("eos", len(proto.pieces) - 1)):
        piece = proto.pieces[number]
        piece.piece, piece.type = ("<s>", "</s>")[name == "eos"], piece.CONTROL
        setattr(proto.trainer_spec, f"{name}_id", number)
        setattr(proto.trainer_spec, f"{name}_piece", piece.piece)
    return proto.SerializeToString()


def write_ours(family: str, directory: Path) -> None:
    """Saves our encoder."""
    import jax

    import xling_jax
    from xling_jax.encode.model_directory import save_model
    from xling_jax.models.registry import build_encoder
    from xling_jax.text.vocab import Vocab

    kind, sizes = FAMILIES[family]
    vocab = Vocab(with_specials(xling_jax.load("mini").vocab.model_bytes))
    sizes = sizes | {"pad_id": vocab.pad_id}
    module = build_encoder(kind, vocab_size=vocab.size, **sizes)
    params = jax.jit(module.init)(jax.random.key(0), np.ones((1, 8), np.int32))["params"]
    common = {"languages": ("de", "en"), "max_length_tokens": LONGEST, "training": {}}
    save_model(directory, family=kind, encoder_args=sizes, params=params, vocab=vocab, **common)


def write_peer(family: str, directory: Path) -> None:
    """Saves the peer's model."""
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from sentencepiece import SentencePieceProcessor
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    import xling_jax

    kind, sizes = FAMILIES[family]
    pieces = SentencePieceProcessor(model_proto=xling_jax.load("mini").vocab.model_bytes)
    scored = [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(len(pieces))]
    inner = Tokenizer(models.Unigram(scored, unk_id=pieces.unk_id()))
    inner.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    special = {"unk_token": scored[pieces.unk_id()][0], "pad_token": scored[0][0]}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, model_max_length=LONGEST, **special
    )
    if kind == "laser":
        table = np.random.default_rng(0).normal(size=(len(scored), sizes["embedding_width"]))
        words = modules.WordEmbeddings(tokenizer, table.astype(np.float32), max_seq_length=LONGEST)
        layer = modules.LSTM(sizes["embedding_width"], sizes["width"] // 2)
        parts = [words, layer, modules.Pooling(sizes["width"], "max")]
        SentenceTransformer(modules=parts, device="cpu").save(str(directory))
        return
    config = transformers.XLMRobertaConfig(
        vocab_size=len(scored),
        hidden_size=sizes["width"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        intermediate_size=sizes["ffn_width"],
        max_position_embeddings=LONGEST + 2,
    )
    with tempfile.TemporaryDirectory() as path:
        transformers.AutoModel.from_config(config).save_pretrained(path)
        tokenizer.save_pretrained(path)
        parts = [modules.Transformer(path), modules.Pooling(sizes["width"], "mean")]
    SentenceTransformer(modules=parts, device="cpu").save(str(directory))


def load(name: str, model: str) -> Callable[[Sequence[str]], np.ndarray]:
    """A contestant's function of texts to vectors."""
    if name == "sentence-transformers":
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(model, device="cpu").encode
    import xling_jax

    encoder = xling_jax.load(model, backend="jax" if name.startswith("jax") else "auto")
    if name.endswith("warm"):
        encoder.warm_up(LONGEST)
    return encoder.encode


def read_sentences(text: str, count: int) -> list[str]:
    """Sentences of the first column of a TSV, in its order."""
    with gzip.open(text, "rt", encoding="utf-8") as lines:
        rows = (line.rstrip("\n").split("\t") for line in itertools.islice(lines, 1, None))
        return list(itertools.islice((row[0] for row in rows if row[0]), count))


def start_once(name: str, model: str, text: str, count: int, began: float) -> None:
    """Prints what one process took, in seconds."""
    sentences = read_sentences(text, count)
    before_load = time.time()
    encode = load(name, model)
    loaded = time.time()
    times = []
    for _ in range(2):
        for sentence in sentences:
            start = time.perf_counter()
            encode(sentence)
            times.append(time.perf_counter() - start)
            if len(times) == 1:
                first = time.time() - began
    together = []
    for _ in range(3):
        start = time.perf_counter()
        encode(sentences)
        together.append(time.perf_counter() - start)
    numbers = {"rate": count / min(together), "first": first, "load": loaded - before_load}
    numbers |= {"then": max(times[1:count]), "single": statistics.median(times[count:])}
    numbers["over_50_ms"] = sum(t > 0.05 for t in times[1:count])
    print(json.dumps(numbers))


def products_ms(model: str, text: str, count: int) -> tuple[float, float]:
    """Milliseconds of the matrix products of a sentence of median length.

    Returns:
        As they are, and at the rate of a large product.
    """
    import xling_jax

    encoder = xling_jax.load(model)
    sentences = read_sentences(text, count)
    lengths = [len(ids) for ids in encoder.vocab.encode(sentences)]
    sentence = sentences[lengths.index(statistics.median_low(lengths))]
    products, matmul = [], np.matmul

    def record(left: np.ndarray, right: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        result = matmul(left, right, out=out)
        products.append((left.copy(), right, np.empty_like(result)))
        return result

    with mock.patch.object(np, "matmul", record):
        encoder.encode(sentence)
    matrix = np.full((interleaved.YARDSTICK_SIZE,) * 2, 1e-3, np.float32)
    times = {"products": [], "large": []}
    for _ in range(50):
        start = time.perf_counter()
        for left, right, out in products:
            matmul(left, right, out=out)
        times["products"].append(time.perf_counter() - start)
    for _ in range(6):
        start = time.perf_counter()
        matmul(matrix, matrix)
        times["large"].append(time.perf_counter() - start)
    operations = sum(left.size * right.shape[-1] for left, right, _ in products)
    share = operations / interleaved.YARDSTICK_SIZE**3
    return 1e3 * statistics.median(times["products"]), 1e3 * min(times["large"]) * share


def main() -> None:
    """Starts the contestants in turns and prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", required=True, help="a TSV with a header, .gz; its first column")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, model, began = args.worker
        start_once(name, model, args.text, args.sentences, float(began))
        return
    rows = []
    for family in args.families:
        with tempfile.TemporaryDirectory() as top:
            directory = Path(top)
            write_ours(family, directory / "ours")
            write_peer(family, directory / "peer")
            numbers: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
            for number, name in itertools.product(range(args.rounds), CONTESTANTS):
                # An empty cache each time, but for starts that are to find what others compiled.
                cache = directory / ("cache" if "cached" in name else f"{number} {name}")
                environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
                model = str(directory / ("peer" if name == CONTESTANTS[-1] else "ours"))
                command = [sys.executable, __file__, "--text", args.text]
                command += ["--sentences", str(args.sentences), "--worker", name, model]
                for _ in range(2 if number == 0 and "cached" in name else 1):
                    run = [*command, str(time.time())]
                    printed = subprocess.run(
                        run, stdout=subprocess.PIPE, check=True, env=environment
                    ).stdout
                numbers[name].append(json.loads(printed.splitlines()[-1]))
            products, large = products_ms(str(directory / "ours"), args.text, args.sentences)
        for name in CONTESTANTS:
            median = lambda key, of=numbers[name]: interleaved.median(of, key)
            rows.append(
                (
                    family,
                    name,
                    f"{median('first'):.2f}",
                    f"{median('load'):.2f}",
                    f"{1e3 * median('then'):,.0f}",
                    f"{median('over_50_ms'):.0f}",
                    f"{1e3 * median('single'):.1f}",
                    f"{median('rate'):,.0f}",
                    f"{products:.1f}",
                    f"{large:.1f}",
                )
            )
    print(f"{interleaved.circumstances()}, {args.rounds} rounds\n")
    header = ("", "", "first s", "load s", "then ms", "over 50 ms", "single ms", "sentences/s")
    header = (*header, "products ms", "large ms")
    print(interleaved.markdown_table(header, rows))


if __name__ == "__main__":
    main()
