"""Speed and memory of the lightweight dual transformer against PyTorch, float32.

    python benchmarks/lightweight.py --task encode
    python benchmarks/lightweight.py --task train
    python benchmarks/lightweight.py --task memory --rounds 2

The published sizes: 2 layers of width 512, vocabulary 50,000, sentences filling 3/4 of a bucket of
32 to all of it. `encode` is 128 sentences a batch; `train` a whole update of configs/lightweight.py
(UGT and both contrastive losses, dropout 0.1, amsgrad) on 128 pairs. `memory` is the peak of
updates on 128 pairs and, with gradient caching (`objective.encode_chunks`), on 4,096. One
process each, turns taken, medians compared.
"""

import argparse

import interleaved
import numpy as np
from train_step import PAD, jax_worker, make_batch

LENGTH = 32
ROWS = {"encode": 128, "train": 128}
# Pairs and pieces they are encoded in; 0: the PyTorch model. 4,096 in one piece ask for 26 GB.
MEMORY = ((128, 0), (128, 1), (4096, 32))


def make_sentences(rows: int, vocab_size: int) -> dict[str, np.ndarray]:
    """The batch of `train_step` without <s> and </s>."""
    batch = make_batch(rows, LENGTH + 1, vocab_size)
    batch["source_language"] = np.zeros(rows, np.int32)
    for side in ("source_tokens", "target_tokens"):
        tokens = batch[side][:, 1:]
        batch[side] = np.ascontiguousarray(np.where(tokens == 2, 5, tokens))
    return batch


def setting(generator: str = "hash"):
    """The library's config."""
    from xling_jax.cli.common import load_config

    config = load_config("configs/lightweight.py:pair=en-fr")
    config.dropout_generator = generator
    return config


def sizes(config) -> dict[str, int]:
    """What both encoders are built of."""
    names = ("width", "layers", "heads", "ffn_width")
    return {"vocab_size": config.vocab.size, **{name: config.encoder[name] for name in names}}


def jax_encode(config, tokens: np.ndarray) -> None:
    """Serves batches of the library's encoder."""
    import jax
    import jax.numpy as jnp

    from xling_jax.models.registry import build_encoder
    from xling_jax.train import flops

    module = build_encoder("dual", pad_id=PAD, **sizes(config))
    params = jax.jit(module.init)(jax.random.key(0), tokens[:1, :4])["params"]
    apply = jax.jit(lambda params, tokens: module.apply({"params": params}, tokens))
    matrix = jnp.full((interleaved.YARDSTICK_SIZE,) * 2, 1e-3, jnp.float32)
    product = jax.jit(jnp.matmul)
    product(matrix, matrix).block_until_ready()

    def run() -> dict[str, float]:
        return {"norm": float(np.linalg.norm(np.asarray(apply(params, jax.device_put(tokens)))))}

    run()
    interleaved.serve(
        run,
        {"flops": flops.matmul_flops(apply, params, tokens)},
        yardstick=lambda: product(matrix, matrix).block_until_ready(),
    )


def torch_worker(task: str, config, batch: dict[str, np.ndarray]) -> None:
    """Serves batches or updates of the PyTorch model."""
    import torch
    import torch_dual

    torch.manual_seed(0)
    model = torch_dual.Dual(dropout=config.encoder.dropout, **sizes(config))
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


def work(task: str, library: str, rows: int, chunks: int, generator: str) -> None:
    """Becomes a contestant's worker."""
    config = setting(generator)
    batch = make_sentences(rows, config.vocab.size)
    if library == "torch":
        torch_worker(task, config, batch)
    elif task == "encode":
        jax_encode(config, batch["source_tokens"])
    else:
        config.objective.encode_chunks = chunks
        jax_worker(config, batch, updates=1)


def contestants(task: str) -> dict[str, list[str]]:
    """Name -> arguments of its worker; the first is the yardstick."""
    if task == "memory":
        named = {}
        for rows, chunks in MEMORY:
            library = "jax" if chunks else "torch"
            name = f"{library}, {rows:,} pairs" + (f" in {chunks} pieces" if chunks > 1 else "")
            named[name] = ["--worker", library, "--rows", str(rows), "--chunks", str(chunks or 1)]
        return named
    rows = ["--rows", str(ROWS[task])]
    named = {"torch": ["--worker", "torch", *rows], "jax": ["--worker", "jax", *rows]}
    if task == "train":
        named["jax, threefry dropout"] = [*named["jax"], "--generator", "threefry"]
    return named


def main() -> None:
    """Starts the workers, lets them take turns and prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", choices=(*ROWS, "memory"), default="encode")
    parser.add_argument("--rounds", type=int, default=7)
    for hidden in ("--worker", "--generator"):
        parser.add_argument(hidden, default="", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--chunks", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.task, args.worker, args.rows, args.chunks, args.generator or "hash")
        return

    named = contestants(args.task)
    facts, numbers = {}, {}
    # Memory is measured one process at a time, speed in turns.
    groups = [[name] for name in named] if args.task == "memory" else [list(named)]
    for group in groups:
        workers = {
            name: interleaved.Worker(__file__, ["--task", args.task, *named[name]])
            for name in group
        }
        numbers |= interleaved.take_turns(workers, args.rounds)
        for name, worker in workers.items():
            facts[name] = worker.facts
            worker.close()
    table = []
    for name, found in numbers.items():
        rows = int(named[name][named[name].index("--rows") + 1])
        seconds, ratio, share = interleaved.median(found), "", ""
        if args.task != "memory":
            ratio = f"{interleaved.ratio(numbers['torch'], found):.2f}"
        if "flops" in facts[name] and args.task != "memory":
            share = f"{interleaved.matmul_share(found, facts[name]['flops']):.0%}"
        peak = f"{interleaved.median(found, 'peak_mb'):,.0f}"
        table.append((name, f"{seconds * 1e3:,.0f}", f"{rows / seconds:,.0f}", ratio, share, peak))
    print(f"Lightweight, {args.task}. {interleaved.circumstances()}, {args.rounds} rounds\n")
    unit = "sentences/s" if args.task == "encode" else "pairs/s"
    header = ("", "ms", unit, "speed over torch", "matmul share", "peak MB")
    print(interleaved.markdown_table(header, table))


if __name__ == "__main__":
    main()
