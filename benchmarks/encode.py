"""Encoding speed: the T-LASER encoder of this library against plain PyTorch, float32, no dropout.

    python benchmarks/encode.py

Paper size by default: 6 layers of width 1024, batches of 32 sentences of 32 tokens. The library
computes in NumPy, as on a CPU, and in JAX; tokenization is excluded on both sides
(`encode_buckets.py` measures it). The contestants run in separate processes and take turns; medians
are compared.
"""

import argparse

import interleaved
import numpy as np
from encoding import LIBRARIES, serve_encoder
from train_step import PAD, make_batch

LANGUAGES = 5


def torch_worker(args: argparse.Namespace, tokens: np.ndarray, sizes: dict[str, int]) -> None:
    """Serves batches of the PyTorch encoder."""
    import torch
    import torch_tlaser

    torch.manual_seed(0)
    model = torch_tlaser.TLaser(num_languages=LANGUAGES, dropout=0.0, **sizes).eval()

    def run() -> dict[str, float]:
        with torch.inference_mode():
            for _ in range(args.batches):
                embeddings = model.encode(torch.from_numpy(tokens).long()).numpy()
        return {"norm": float(np.linalg.norm(embeddings))}

    run()
    interleaved.serve(run, {})


def main() -> None:
    """Runs the workers in turns and prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--vocab-size", type=int, default=50000)
    parser.add_argument("--batches", type=int, default=2, help="per turn")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--worker", choices=("torch", *LIBRARIES), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        tokens = make_batch(args.rows, args.length, args.vocab_size)["source_tokens"]
        sizes = {
            "vocab_size": args.vocab_size,
            "width": args.width,
            "layers": args.layers,
            "heads": args.width // 64,
            "ffn_width": 4 * args.width,
        }
        if args.worker == "torch":
            torch_worker(args, tokens, sizes)
        else:
            sizes["pad_id"] = PAD
            serve_encoder(args.worker, "tlaser", sizes, tokens, args.batches)
        return

    options = [
        text
        for name in ("width", "layers", "rows", "length", "vocab_size", "batches")
        for text in (f"--{name.replace('_', '-')}", str(getattr(args, name)))
    ]
    names = ("torch", *LIBRARIES)
    arguments = {name: [*options, "--worker", name] for name in names}
    numbers, facts = interleaved.take_turns(__file__, arguments, args.rounds)
    tokens = args.rows * args.length * args.batches
    table = []
    for name in names:
        seconds = interleaved.median(numbers[name])
        table.append(
            (
                name,
                f"{seconds / args.batches * 1e3:.0f}",
                f"{interleaved.median(numbers[name], 'cpu_seconds') / args.batches * 1e3:.0f}",
                f"{tokens / seconds:,.0f}",
                f"{interleaved.ratio(numbers['torch'], numbers[name]):.2f}",
                interleaved.matmul_share(numbers[name], facts[name]),
                f"{interleaved.median(numbers[name], 'peak_mb'):,.0f}",
            )
        )
    print(f"Encoding, {args.layers} x {args.width}, {args.rows} x {args.length} tokens.")
    print(f"{interleaved.circumstances()}, {args.rounds} rounds\n")
    header = ("", "ms", "CPU ms", "tokens/s", "speedup over torch", "matmul share", "peak MB")
    print(interleaved.markdown_table(header, table))


if __name__ == "__main__":
    main()
