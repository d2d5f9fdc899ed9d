"""Encoding speed: published transformers in this library against PyTorch, random weights, float32.

    python benchmarks/huggingface.py --size minilm
    python benchmarks/huggingface.py --size base
    python benchmarks/huggingface.py --size modernbert
    python benchmarks/huggingface.py --size minilm --text FILE --lines 2000

Sizes are those of multilingual MiniLM (12 layers of width 384), XLM-R base (12 of 768) and
ModernBERT base (22 of 768, rotary positions, two of three layers see 128 tokens). Without `--text`,
one padded batch of synthetic tokens is encoded and mean-pooled, by `transformers` with fused
attention (sdpa) and by our encoder in NumPy, which packs it, and in JAX, also in bfloat16. With
`--text`, the lines of a file are encoded, including tokenization, by sentence-transformers with its
defaults and by a model converted from the same directory; their vectors must agree. The contestants
run in separate processes and take turns; medians are compared.
"""

import argparse
import itertools
import json
import tempfile
from pathlib import Path

import interleaved
import numpy as np
from encoding import LIBRARIES, serve_encoder
from train_step import PAD, make_batch

SIZES = {
    "minilm": {"width": 384, "layers": 12, "heads": 12, "ffn_width": 1536},
    "base": {"width": 768, "layers": 12, "heads": 12, "ffn_width": 3072},
    "modernbert": {"width": 768, "layers": 22, "heads": 12, "ffn_width": 1152},
    "tiny": {"width": 32, "layers": 2, "heads": 2, "ffn_width": 64},
}
VOCAB_SIZE = 32_000
POSITIONS = 514


def torch_model(name: str, vocab_size: int):
    """A randomly initialized model of transformers."""
    import torch
    import transformers

    torch.manual_seed(0)
    size = SIZES[name]
    sizes = {
        "vocab_size": vocab_size,
        "hidden_size": size["width"],
        "num_hidden_layers": size["layers"],
        "num_attention_heads": size["heads"],
        "intermediate_size": size["ffn_width"],
        "pad_token_id": PAD,
    }
    if name == "modernbert":
        ids = {"bos_token_id": 0, "cls_token_id": 0, "eos_token_id": 2, "sep_token_id": 2}
        config = transformers.ModernBertConfig(**sizes, **ids)
    else:
        more = {"max_position_embeddings": POSITIONS, "layer_norm_eps": 1e-5}
        config = transformers.XLMRobertaConfig(**sizes, **more)
    model = transformers.AutoModel.from_config(config, attn_implementation="sdpa")
    return model.eval()


def torch_batch(args: argparse.Namespace, tokens: np.ndarray) -> None:
    """Serves batches of the PyTorch model."""
    import torch

    model = torch_model(args.size, VOCAB_SIZE)

    def run() -> dict[str, float]:
        with torch.inference_mode():
            ids = torch.from_numpy(tokens).long()
            mask = ids != PAD
            states = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
            vectors = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return {"norm": float(np.linalg.norm(vectors.numpy()))}

    run()
    interleaved.serve(run, {})


def make_directories(args: argparse.Namespace, texts: list[str], directory: Path) -> None:
    """Writes a sentence-transformers model with a tokenizer for these texts, and converts it."""
    import sentence_transformers
    import tokenizers
    import transformers
    from sentence_transformers.sentence_transformer import modules

    from xling_jax.formats.huggingface import convert_huggingface

    trained = tokenizers.SentencePieceUnigramTokenizer()
    trained.train_from_iterator(texts, vocab_size=8000, unk_token="<unk>")
    pieces = [tuple(row) for row in json.loads(trained.to_str())["model"]["vocab"]]
    vocab = [(piece, 0.0) for piece in ("<s>", "<pad>", "</s>", "<unk>")]
    vocab += [row for row in pieces if row[0] != "<unk>"] + [("<mask>", 0.0)]
    transformers.XLMRobertaTokenizer(vocab=vocab).save_pretrained(directory / "transformer")
    model = torch_model(args.size, len(vocab))
    model.save_pretrained(directory / "transformer")
    parts = [modules.Transformer(str(directory / "transformer"), max_seq_length=128)]
    parts += [modules.Pooling(SIZES[args.size]["width"]), modules.Normalize()]
    sentence_transformers.SentenceTransformer(modules=parts, device="cpu").save(
        str(directory / "published")
    )
    convert_huggingface(directory / "published", directory / "converted")


def encode_text(args: argparse.Namespace, texts: list[str]) -> None:
    """Serves vectors of all texts, from the library that `args.worker` names."""
    directory = Path(args.directory)
    if args.worker == "torch":
        import sentence_transformers

        encoder = sentence_transformers.SentenceTransformer(
            str(directory / "published"), device="cpu"
        )
    else:
        import xling_jax

        encoder = xling_jax.load(directory / "converted", backend=args.worker)

    def run() -> dict[str, float]:
        vectors = encoder.encode(texts)
        np.save(directory / f"{args.worker}.npy", vectors)
        return {"norm": float(np.linalg.norm(vectors))}

    run()
    interleaved.serve(run, {})


def read_texts(args: argparse.Namespace) -> list[str]:
    """The first lines of the text."""
    with open(args.text, encoding="utf-8") as file:
        return [line.strip() for line in itertools.islice(file, args.lines)]


def work(args: argparse.Namespace) -> None:
    """Runs as a worker."""
    if args.text:
        encode_text(args, read_texts(args))
        return
    tokens = make_batch(args.rows, args.length, VOCAB_SIZE)["source_tokens"]
    if args.worker == "torch":
        torch_batch(args, tokens)
    else:
        arguments = SIZES[args.size] | {"vocab_size": VOCAB_SIZE, "pad_id": PAD}
        family = "bert"
        if args.size == "modernbert":
            family = "rotary"
            arguments["local_layers"] = [n for n in range(arguments["layers"]) if n % 3]
        serve_encoder(args.worker, family, arguments, tokens)


def contestants(args: argparse.Namespace) -> list[str]:
    """The libraries; ModernBERT runs in JAX only."""
    ours = [name for name in LIBRARIES if (args.size, name) != ("modernbert", "numpy")]
    return ["torch", *ours, *(() if args.text else ("jax/bfloat16",))]


def compare(args: argparse.Namespace) -> None:
    """Runs the workers in turns and prints a Markdown table."""
    options = [
        text
        for name in ("size", "rows", "length", "text", "lines", "directory")
        for text in (f"--{name}", str(getattr(args, name)))
    ]
    names = contestants(args)
    arguments = {name: [*options, "--worker", name] for name in names}
    numbers, facts = interleaved.take_turns(__file__, arguments, args.rounds)
    sentences = args.lines if args.text else args.rows
    table = []
    for name in names:
        seconds = interleaved.median(numbers[name])
        share = interleaved.matmul_share(numbers[name], facts[name])
        ratio = f"{interleaved.ratio(numbers['torch'], numbers[name]):.2f}"
        peak = f"{interleaved.median(numbers[name], 'peak_mb'):,.0f}"
        rate = f"{sentences / seconds:,.0f}"
        table.append((name, f"{seconds * 1e3:,.0f}", rate, ratio, share, peak))
    what = f"{args.lines} lines" if args.text else f"{args.rows} x {args.length} tokens"
    print(f"Published encoder, {args.size}, {what}.")
    print(f"{interleaved.circumstances()}, {args.rounds} rounds\n")
    header = ("", "ms", "sentences/s", "speedup over torch", "matmul share", "peak MB")
    print(interleaved.markdown_table(header, table))


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="minilm")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--text", default="", metavar="FILE", help="plain text to encode instead")
    parser.add_argument("--lines", type=int, default=2000, help="number of lines of --text")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--directory", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args)
        return
    if args.text and args.size == "modernbert":
        parser.error("--text: makes tokenizers of XLM-R only")
    if not args.text:
        compare(args)
        return
    with tempfile.TemporaryDirectory() as directory:
        args.directory = directory
        texts = read_texts(args)
        args.lines = len(texts)
        make_directories(args, texts, Path(directory))
        compare(args)
        theirs, *ours = (np.load(f"{directory}/{name}.npy") for name in contestants(args))
        difference = max(np.abs(theirs - vectors).max() for vectors in ours)
        print(f"\nlargest difference between the vectors: {difference:.1e}")


if __name__ == "__main__":
    main()
