"""Speed of the recurrent family: BiLSTM encoders and LASER updates against PyTorch, float32.

    python benchmarks/recurrent.py --task encode
    python benchmarks/recurrent.py --task train
    python benchmarks/recurrent.py --task laser

`encode` and `train` run LASER's encoder (token vectors of 320, 512 units per direction) with 1, 5
and 6 layers over 128 sentences of 24 to 32 tokens, padded to 32. `train` is forward pass, backward
pass and Adam for a plain loss on the sentence vectors, without dropout. `laser` is a full update at
the `small` size of configs/laser.py, dropout 0.1, with and without input feeding, against the same
architecture. PyTorch gets rows sorted by length and packed, and its fused Adam; `numpy` packs them,
too. The contestants run in separate processes and take turns; medians are compared.
"""

import argparse
from typing import Any

import interleaved
import numpy as np
from encoding import LIBRARIES, serve_encoder
from train_step import PAD, make_batch
from train_step import jax_worker as jax_update_worker

LAYERS = ("1", "5", "6")
VARIANTS = {"encode": LAYERS, "train": LAYERS, "laser": ("feeding", "no_feeding")}
SIZES = {"embedding_width": 320, "width": 1024}
VOCAB_SIZE = 8000
LEARNING_RATE = 1e-3


def make_sentences(rows: int, length: int, vocab_size: int) -> dict[str, np.ndarray]:
    """The batch of `train_step`, without <s>, longest sources first."""
    batch = make_batch(rows, length + 1, vocab_size)
    for side in ("source_tokens", "target_tokens"):
        batch[side] = np.ascontiguousarray(batch[side][:, 1:])
    order = np.argsort(-(batch["source_tokens"] != PAD).sum(1), kind="stable")
    return {name: array[order] for name, array in batch.items()}


def laser_setting(variant: str):
    """The library's config of the full update."""
    from xling_jax.config import load

    values = {"decoder.input_feeding": variant == "feeding"}
    values |= {"encoder.dropout": 0.1, "decoder.dropout": 0.1}
    return load("laser:layers=1,size=small").replace(values)


def arguments(variant: str) -> dict[str, int]:
    """Of the encoder with a number of layers."""
    return {"vocab_size": VOCAB_SIZE, "layers": int(variant), "pad_id": PAD, **SIZES}


def bilstm_update(variant: str, tokens: np.ndarray) -> tuple[Any, Any, Any, int]:
    """The update of `train`, its parameters and optimizer state, and the FLOPs of its products."""
    import jax
    import jax.numpy as jnp
    import optax

    from xling_jax.models.registry import build_encoder
    from xling_jax.train.dry_run import matmul_flops

    module = build_encoder("laser", **arguments(variant), dropout=0.0)
    params = jax.jit(module.init)(jax.random.key(0), tokens[:1, :4])["params"]
    loss = lambda params, tokens: jnp.square(module.apply({"params": params}, tokens)).mean()
    optimizer = optax.adam(LEARNING_RATE)

    def train(params, state, tokens):
        value, gradient = jax.value_and_grad(loss)(params, tokens)
        changes, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, changes), state, value

    count = matmul_flops(jax.grad(loss), params, tokens)
    return jax.jit(train, donate_argnums=(0, 1)), params, optimizer.init(params), count


def jax_worker(task: str, variant: str, batch: dict[str, np.ndarray]) -> None:
    """Serves turns of the library."""
    import jax
    import jax.numpy as jnp

    if task == "laser":
        jax_update_worker(laser_setting(variant), batch, updates=1)
        return
    tokens = batch["source_tokens"]
    train, params, state, count = bilstm_update(variant, tokens)
    matrix = jnp.full((interleaved.YARDSTICK_SIZE,) * 2, 1e-3, jnp.float32)
    product = jax.jit(jnp.matmul)
    product(matrix, matrix).block_until_ready()

    def run() -> dict[str, float]:
        nonlocal params, state
        params, state, value = jax.block_until_ready(train(params, state, tokens))
        return {"value": float(value)}

    run()
    interleaved.serve(
        run, {"flops": count}, yardstick=lambda: product(matrix, matrix).block_until_ready()
    )


def torch_worker(task: str, variant: str, batch: dict[str, np.ndarray]) -> None:
    """Serves turns of PyTorch."""
    import torch
    import torch_laser

    torch.manual_seed(0)
    tensors = {name: torch.from_numpy(array).long() for name, array in batch.items()}
    source = tensors["source_tokens"]
    if task == "laser":
        experiment = laser_setting(variant)
        encoder, decoder = experiment.model.encoder, experiment.model.decoder
        model = torch_laser.Laser(
            vocab_size=encoder.vocab_size,
            num_languages=len(experiment.languages),
            embedding_width=encoder.embedding_width,
            width=encoder.width,
            layers=encoder.layers,
            decoder_width=decoder.width,
            input_feeding=decoder.input_feeding,
            dropout=encoder.dropout,
        )
        loss = lambda: model(source, tensors["target_language"], tensors["target_tokens"])
    else:
        model = torch_laser.Encoder(VOCAB_SIZE, layers=int(variant), **SIZES)
        loss = lambda: model(source).square().mean()
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, fused=True)

    def run() -> dict[str, float]:
        if task == "encode":
            with torch.inference_mode():
                return {"value": float(np.square(model(source).numpy()).mean())}
        value = loss()
        value.backward()
        if task == "laser":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 25.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return {"value": value.item()}

    model.train(task != "encode")
    run()
    interleaved.serve(run, {})


def main() -> None:
    """Runs the workers in turns and prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", choices=VARIANTS, default="encode")
    parser.add_argument("--variants", nargs="+", help="numbers of layers, or feeding / no_feeding")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        library, variant = args.worker.split("/")
        vocab_size = laser_setting(variant).vocab.size if args.task == "laser" else VOCAB_SIZE
        batch = make_sentences(args.rows, args.length, vocab_size)
        if library == "torch":
            torch_worker(args.task, variant, batch)
        elif args.task == "encode":
            serve_encoder(library, "laser", arguments(variant), batch["source_tokens"])
        else:
            jax_worker(args.task, variant, batch)
        return

    options = ["--task", args.task, "--rows", str(args.rows), "--length", str(args.length)]
    rows = []
    for variant in args.variants or VARIANTS[args.task]:
        libraries = ("torch", *(LIBRARIES if args.task == "encode" else ("jax",)))
        names = [f"{library}/{variant}" for library in libraries]
        commands = {name: [*options, "--worker", name] for name in names}
        numbers, facts = interleaved.take_turns(__file__, commands, args.rounds)
        theirs = numbers[names[0]]
        for name in names:
            rows.append(
                (
                    name,
                    f"{interleaved.median(numbers[name]) * 1e3:.0f}",
                    f"{interleaved.median(numbers[name], 'cpu_seconds') * 1e3:.0f}",
                    f"{interleaved.ratio(theirs, numbers[name]):.2f}",
                    f"{interleaved.ratio(theirs, numbers[name], 'cpu_seconds'):.2f}",
                    interleaved.matmul_share(numbers[name], facts[name]),
                    f"{interleaved.median(numbers[name], 'peak_mb'):,.0f}",
                )
            )
    print(f"{args.task}, {args.rows} x {args.length} tokens.")
    print(f"{interleaved.circumstances()}, {args.rounds} rounds\n")
    header = ("", "ms", "CPU ms", "speedup over torch", "by CPU time", "matmul share", "peak MB")
    print(interleaved.markdown_table(header, rows))


if __name__ == "__main__":
    main()
