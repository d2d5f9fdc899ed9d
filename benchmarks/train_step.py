"""Training speed: T-LASER and cT-LASER updates of this library against plain PyTorch.

    python benchmarks/train_step.py --size base

An update is forward pass, backward pass, clipping and AdamW with dropout, in float32 unless
`bfloat16` is an option (in PyTorch by autocast), on the same token arrays. Each contestant runs in
its own process (see `interleaved`). `--size` is a size of the configs: `small`, `base` (width 512,
6 layers, the published small size) or `paper` (width 1024, vocabulary 50,000; needs about 6 GB per
contestant). Contestants are written `library/objective[/options]`: `jax/t_laser/hash`,
`torch/ct_laser`, `jax/ct_laser/both` (both directions of a pair in a batch),
`jax/t_laser/threefry`, `torch/t_laser/bfloat16`, `jax/laser_6/hash` and the other `FAMILIES`, which
have no PyTorch counterpart here (see `recurrent.py`).

Prints for each: wall and CPU time of an update (on a shared machine, CPU time is more stable),
tokens/s (both sides, padding included), speedup over the first contestant, share of JAX's own rate
of float32 matrix products (2048³, measured in the same rounds), and peak memory.
"""

import argparse
from collections.abc import Mapping

import interleaved
import numpy as np

# Per size: rows, length, updates per turn, and contestants, the first of which is the baseline.
SHAPES = {"small": (64, 32, 3), "base": (128, 32, 1), "paper": (32, 32, 1)}
CONTESTANTS = {
    "small": (
        "torch/t_laser",
        "jax/t_laser/hash",
        "jax/t_laser/threefry",
        "torch/ct_laser",
        "jax/ct_laser/hash",
        "jax/t_laser/hash/both",
        "jax/ct_laser/hash/both",
    ),
    "paper": ("torch/t_laser", "jax/t_laser/hash"),
}
CONTESTANTS["base"] = CONTESTANTS["small"]
FAMILIES = {  # contestant -> config and argument
    "t_laser": "t_laser.py:",
    "ct_laser": "ct_laser.py:",
    "laser_1": "laser.py:layers=1",
    "laser_6": "laser.py:layers=6",
    "claser_6": "claser.py:layers=6",
    "similarity_loss": "similarity_loss.py:loss=similarity",
}
PAD = 1


def make_batch(rows: int, length: int, vocab_size: int) -> dict[str, np.ndarray]:
    """Synthetic sentences: word frequencies as 1 / rank, lengths filling 7/8 of the bucket."""
    random = np.random.default_rng(0)
    frequencies = 1.0 / np.arange(1, vocab_size - 3)
    batch = {"target_language": np.ones(rows, np.int32)}
    for side in ("source_tokens", "target_tokens"):
        words = random.choice(vocab_size - 4, (rows, length), p=frequencies / frequencies.sum())
        tokens = (words + 4).astype(np.int32)
        tokens[:, 0] = 0
        ends = random.integers(length * 3 // 4, length, rows)
        tokens[np.arange(rows), ends] = 2
        tokens[np.arange(length) > ends[:, None]] = PAD
        batch[side] = tokens
    return batch


def make_experiment(size: str, options: set[str]):
    """The library's experiment of that size, with the contestant's objective."""
    from xling_jax.config import load

    (name,) = options & FAMILIES.keys()
    values = {"encoder.dropout": 0.1, "decoder.dropout": 0.1}
    values["dropout_generator"] = "threefry" if "threefry" in options else "hash"
    values["compute_dtype"] = "bfloat16" if "bfloat16" in options else "float32"
    return load(f"{FAMILIES[name]},size={size}").replace(values)


def jax_worker(
    experiment, batch: dict[str, np.ndarray], updates: int, extra: Mapping[str, float] | None = None
) -> None:
    """Serves updates of `xling_jax.train`; `extra` numbers are part of every answer."""
    import jax
    import jax.numpy as jnp

    from xling_jax.sharding import make_mesh, state_sharding, to_global
    from xling_jax.train.dry_run import gradient_flops
    from xling_jax.train.training import resolve

    mesh = make_mesh()
    training = resolve(experiment)
    shapes = training.shapes
    steps = training.steps(mesh)
    # Placed as an update returns it; otherwise the second update would be recompiled.
    state, index = jax.jit(training.init, out_shardings=state_sharding(mesh, shapes))(), 0
    batch = to_global(mesh, batch)
    count = gradient_flops(training.objective, shapes.params, batch)
    matrix = jnp.full((2048, 2048), 1 / 2048, jnp.float32)
    product = jax.jit(jnp.matmul)
    product(matrix, matrix).block_until_ready()

    def run() -> dict[str, float]:
        nonlocal state, index
        for _ in range(updates):
            state, sums = steps.train(state, batch, np.int32(index))
            index += 1
        return {"loss": float(sums["loss"] / sums["normalizer"]), **(extra or {})}

    run()
    interleaved.serve(
        run,
        {"flops": count * updates},
        yardstick=lambda: product(matrix, matrix).block_until_ready(),
    )


def torch_worker(experiment, batch: dict[str, np.ndarray], updates: int) -> None:
    """Serves updates of the PyTorch model."""
    import torch
    import torch_tlaser

    torch.manual_seed(0)
    model = torch_tlaser.of_experiment(experiment)
    distance = experiment.terms.get("distance")
    trainer = torch_tlaser.Trainer(model, distance.weight if distance else 0.0)
    names = ("source_tokens", "target_tokens", "target_language")
    arrays = [torch.from_numpy(batch[name]).long() for name in names]

    def run() -> dict[str, float]:
        for _ in range(updates):
            with torch.autocast("cpu", torch.bfloat16, experiment.compute_dtype == "bfloat16"):
                loss = trainer.step(*arrays, both_directions="source_language" in batch)
        return {"loss": loss.item()}

    run()
    interleaved.serve(run, {})


def work(size: str, contestant: str, tokens: int) -> None:
    """Runs as the worker of a contestant."""
    library, *options = contestant.split("/")
    experiment = make_experiment(size, set(options))
    rows, length, updates = SHAPES[size]
    rows = tokens // length if tokens else rows
    batch = make_batch(rows, length, experiment.preparation.vocab.size)
    if "both" in options:
        batch["source_language"] = np.zeros(rows, np.int32)
    {"jax": jax_worker, "torch": torch_worker}[library](experiment, batch, updates)


def main() -> None:
    """Runs the workers in turns and prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SHAPES, default="base")
    parser.add_argument("--contestants", nargs="+", help="default: by size")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=0, help="rows x length per side")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.size, args.worker, args.tokens)
        return

    names = args.contestants or CONTESTANTS[args.size]
    options = ["--size", args.size, "--tokens", str(args.tokens)]
    arguments = {name: [*options, "--worker", name] for name in names}
    numbers, facts = interleaved.take_turns(__file__, arguments, args.rounds)

    rows, length, updates = SHAPES[args.size]
    tokens = updates * 2 * (args.tokens or rows * length)
    table = []
    for name in names:
        seconds = interleaved.median(numbers[name])
        table.append(
            (
                name,
                f"{seconds / updates * 1e3:.0f}",
                f"{interleaved.median(numbers[name], 'cpu_seconds') / updates * 1e3:.0f}",
                f"{tokens / seconds:,.0f}",
                f"{interleaved.ratio(numbers[names[0]], numbers[name]):.2f}",
                interleaved.matmul_share(numbers[name], facts[name]),
                f"{interleaved.median(numbers[name], 'peak_mb'):,.0f}",
            )
        )
    print(f"Training, {args.size}, {tokens // updates // 2:,} tokens per side in a batch.")
    print(f"{interleaved.circumstances()}, {args.rounds} rounds\n")
    header = (
        "contestant",
        "ms",
        "CPU ms",
        "tokens/s",
        f"speedup over {names[0]}",
        "matmul share",
        "peak MB",
    )
    print(interleaved.markdown_table(header, table))
    print_flop_ratios(names, numbers, facts)


def print_flop_ratios(names, numbers, facts) -> None:
    """Prints the ratios of time and FLOPs of cT-LASER to T-LASER."""
    for name in names:
        other = name.replace("/ct_laser", "/t_laser")
        if other == name or other not in names:
            continue
        wall, cpu = (
            interleaved.ratio(numbers[name], numbers[other], key)
            for key in ("seconds", "cpu_seconds")
        )
        line = f"\n{name} over {other}: time {wall:.2f}, CPU time {cpu:.2f}"
        if "flops" in facts[name]:
            line += f", FLOPs {facts[name]['flops'] / facts[other]['flops']:.2f}"
        print(line)


if __name__ == "__main__":
    main()
