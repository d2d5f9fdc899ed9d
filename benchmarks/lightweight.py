"""Speed and memory of the lightweight dual transformer against PyTorch, float32.

    python benchmarks/lightweight.py --task encode
    python benchmarks/lightweight.py --task train
    python benchmarks/lightweight.py --task memory

The published sizes: 2 layers of width 512, vocabulary 50,000, sentences of 24 to 32 tokens padded
to 32. `encode` encodes batches of 128 sentences, in NumPy without the padding; `train` is a full
update of configs/lightweight.py (UGT and both contrastive losses, dropout 0.1, amsgrad) on 128
pairs. `memory` is what XLA plans for the buffers of an update in addition to parameters and Adam's
state, on 128 and on 4,096 pairs, the latter with and without gradient caching
(`objective.encode_chunks`); nothing is run. For speeds, the contestants run in separate processes
and take turns; medians are compared.
"""

import argparse

import interleaved
import numpy as np
from encoding import LIBRARIES, serve_encoder
from train_step import PAD, jax_worker, make_batch

LENGTH = 32
ROWS = {"encode": 128, "train": 128}
MEMORY = ((128, 1), (4096, 1), (4096, 8), (4096, 32))  # pairs, and chunks they are encoded in


def make_sentences(rows: int, vocab_size: int) -> dict[str, np.ndarray]:
    """The batch of `train_step` without <s> and </s>."""
    batch = make_batch(rows, LENGTH + 1, vocab_size)
    batch["source_language"] = np.zeros(rows, np.int32)
    for side in ("source_tokens", "target_tokens"):
        tokens = batch[side][:, 1:]
        batch[side] = np.ascontiguousarray(np.where(tokens == 2, 5, tokens))
    return batch


def setting(generator: str = "hash"):
    """The library's experiment."""
    from xling_jax.config import load

    return load("lightweight:pair=en-fr").replace({"dropout_generator": generator})


def sizes(experiment) -> dict[str, int]:
    """The sizes of both encoders."""
    names = ("width", "layers", "heads", "ffn_width")
    found = {name: getattr(experiment.model.encoder, name) for name in names}
    return {"vocab_size": experiment.preparation.vocab.size, **found}


def torch_worker(task: str, experiment, batch: dict[str, np.ndarray]) -> None:
    """Serves batches or updates of the PyTorch model."""
    import torch
    import torch_dual

    torch.manual_seed(0)
    model = torch_dual.Dual(dropout=experiment.model.encoder.dropout, **sizes(experiment))
    source, target = (torch.from_numpy(batch[f"{s}_tokens"]).long() for s in ("source", "target"))
    trainer = torch_dual.Trainer(model)
    model.train(task != "encode")

    def run() -> dict[str, float]:
        if task == "encode":
            with torch.inference_mode():
                return {"norm": float(np.linalg.norm(model.encode(source).numpy()))}
        return {"loss": trainer.step(source, target)}

    run()
    interleaved.serve(run, {})


def work(task: str, library: str, rows: int, generator: str) -> None:
    """Runs as the worker of a contestant."""
    experiment = setting(generator)
    batch = make_sentences(rows, experiment.preparation.vocab.size)
    if library == "torch":
        torch_worker(task, experiment, batch)
    elif task == "encode":
        arguments = sizes(experiment) | {"pad_id": PAD}
        serve_encoder(library, "dual", arguments, batch["source_tokens"])
    else:
        jax_worker(experiment, batch, updates=1)


def planned_megabytes(rows: int, chunks: int) -> float:
    """Temporary buffers XLA plans for the gradient of a batch, without arguments and results."""
    import jax

    from xling_jax.train.training import resolve

    experiment = setting().replace({"objective.encode_chunks": chunks})
    batch = make_sentences(rows, experiment.preparation.vocab.size)
    training = resolve(experiment)
    gradient = jax.jit(jax.grad(lambda *arguments: training.objective(*arguments, True)[0]))
    compiled = gradient.lower(training.shapes.params, batch, jax.random.key(0)).compile()
    return compiled.memory_analysis().temp_size_in_bytes / 2**20


def contestants(task: str) -> dict[str, list[str]]:
    """Name -> arguments of its worker; the first is the baseline."""
    common = ["--task", task, "--rows", str(ROWS[task])]
    libraries = ("torch", *(LIBRARIES if task == "encode" else ("jax",)))
    named = {library: [*common, "--worker", library] for library in libraries}
    if task == "train":
        named["jax, threefry dropout"] = [*named["jax"], "--generator", "threefry"]
    return named


def main() -> None:
    """Runs the workers in turns and prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", choices=(*ROWS, "memory"), default="encode")
    parser.add_argument("--rounds", type=int, default=7)
    for hidden in ("--worker", "--generator"):
        parser.add_argument(hidden, default="", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.task, args.worker, args.rows, args.generator or "hash")
        return

    if args.task == "memory":
        table = [(f"{n:,}", k, f"{planned_megabytes(n, k):,.0f}") for n, k in MEMORY]
        print(interleaved.markdown_table(("pairs", "chunks", "MB"), table))
        return
    arguments = contestants(args.task)
    numbers, facts = interleaved.take_turns(__file__, arguments, args.rounds)
    table = []
    for name, found in numbers.items():
        seconds, share = interleaved.median(found), interleaved.matmul_share(found, facts[name])
        ratio = f"{interleaved.ratio(numbers['torch'], found):.2f}"
        peak = f"{interleaved.median(found, 'peak_mb'):,.0f}"
        rate = f"{ROWS[args.task] / seconds:,.0f}"
        table.append((name, f"{seconds * 1e3:,.0f}", rate, ratio, share, peak))
    print(f"Lightweight, {args.task}. {interleaved.circumstances()}, {args.rounds} rounds\n")
    unit = "sentences/s" if args.task == "encode" else "pairs/s"
    header = ("", "ms", unit, "speedup over torch", "matmul share", "peak MB")
    print(interleaved.markdown_table(header, table))


if __name__ == "__main__":
    main()
