"""Where the time of an update or of encoding goes, by kind of operation, on one core.

    python benchmarks/where_time_goes.py
    python benchmarks/where_time_goes.py --jobs t_laser/small lightweight/encode

XLA's own profile of the compiled program. `floor` is the time that the matrix products would take
at the rate of one of 2048³, `products` what they take, with what XLA fuses into them. The optimizer
is everything after the gradient. One core, because XLA runs operations side by side on several.
"""

import argparse
import collections
import glob
import os
import re
import tempfile
import time
from collections.abc import Callable
from typing import Any

import interleaved
import numpy as np

KINDS = ("products", "transposes, copies", "elementwise, reductions", "optimizer")
JOBS = ("t_laser/small", "ct_laser/small", "t_laser/base", "ct_laser/base", "laser_1/small")
JOBS += ("lightweight/train", "lightweight/encode", "t_laser/paper", "bilstm/1", "bilstm/5")
RUNS = 3


def make_job(name: str) -> tuple[Callable[[], Any], Callable[[], str], int]:
    """A compiled program to run, its text, and the FLOPs of its matrix products."""
    import jax
    import lightweight
    import recurrent
    import train_step

    from xling_jax.models.registry import build_encoder
    from xling_jax.sharding import make_mesh, state_sharding, to_global
    from xling_jax.train.dry_run import gradient_flops, matmul_flops
    from xling_jax.train.training import resolve

    family, size = name.split("/")
    if family == "bilstm":
        tokens = recurrent.make_sentences(128, 32, recurrent.VOCAB_SIZE)["source_tokens"]
        train, *arrays, count = recurrent.bilstm_update(size, tokens)
        program = train.lower(*arrays, tokens).compile()

        def update_encoder() -> Any:
            *arrays[:], value = program(*arrays, tokens)
            return value

        return update_encoder, program.as_text, count
    if family == "lightweight":
        experiment = lightweight.setting()
        batch = lightweight.make_sentences(128, experiment.preparation.vocab.size)
        if size == "encode":
            module = build_encoder("dual", pad_id=train_step.PAD, **lightweight.sizes(experiment))
            tokens = batch["source_tokens"]
            params = jax.jit(module.init)(jax.random.key(0), tokens[:1])["params"]
            encode = jax.jit(lambda params, tokens: module.apply({"params": params}, tokens))
            program = encode.lower(params, tokens).compile()
            count = matmul_flops(encode, params, tokens)
            return lambda: program(params, tokens), program.as_text, count
    else:
        experiment = train_step.make_experiment(size, {family})
        rows, length, _ = train_step.SHAPES[size]
        batch = train_step.make_batch(rows, length, experiment.preparation.vocab.size)
    mesh = make_mesh()
    training = resolve(experiment)
    steps = training.steps(mesh)
    state = jax.jit(training.init, out_shardings=state_sharding(mesh, training.shapes))()
    arrays = to_global(mesh, batch)
    program = steps.train.lower(state, arrays, np.int32(0)).compile()
    count = gradient_flops(training.objective, training.shapes.params, arrays)

    def update() -> Any:
        nonlocal state
        state, sums = program(state, arrays, np.int32(0))
        return sums

    return update, program.as_text, count


def kinds_of(text: str) -> dict[str, str]:
    """Operation -> its kind, from the text of a compiled program."""
    bodies = dict(re.findall(r"^%?([\w.\-]+) \([^\n]*\{\n(.*?)^\}", text, re.M | re.S))
    found = {}
    for name, op, rest in re.findall(
        r"^ +(?:ROOT )?%?([\w.\-]+) = \S+ ([\w\-]+)\((.*)$", text, re.M
    ):
        called = re.search(r"calls=%?([\w.\-]+)", rest)
        body = bodies.get(called[1], "") if called else ""
        if op in ("while", "conditional", "call"):  # what they do is counted by itself
            continue
        if op == "dot" or " dot(" in body:
            found[name] = KINDS[0]
        elif "jit(train)" in rest and "jvp" not in rest and "while" not in rest:
            found[name] = KINDS[3]
        elif op in ("copy", "transpose") or name.startswith(("copy", "transpose")):
            found[name] = KINDS[1]
        else:
            found[name] = KINDS[2]
    return found


def measure(name: str) -> tuple[str, ...]:
    """A row of the table."""
    import jax
    import jax.numpy as jnp

    run, text, count = make_job(name)
    matrix = jnp.full((interleaved.YARDSTICK_SIZE,) * 2, 1e-3, jnp.float32)
    product = jax.jit(jnp.matmul)
    seconds, rates = [], []
    for _ in range(RUNS + 2):
        start = time.process_time()
        jax.block_until_ready(run())
        seconds.append(time.process_time() - start)
        for _ in range(5):  # the first one after an update is slow, in fresh memory
            start = time.process_time()
            product(matrix, matrix).block_until_ready()
            rates.append(2 * interleaved.YARDSTICK_SIZE**3 / (time.process_time() - start))
    with tempfile.TemporaryDirectory() as directory:
        with jax.profiler.trace(directory):
            for _ in range(RUNS):
                jax.block_until_ready(run())
        (path,) = glob.glob(f"{directory}/**/*.xplane.pb", recursive=True)
        data = jax.profiler.ProfileData.from_file(path)
    kinds, spent = kinds_of(text()), collections.Counter()
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                operation = dict(event.stats).get("hlo_op")
                if operation in kinds:
                    spent[kinds[operation]] += event.duration_ns / 1e6 / RUNS
    floor = 1e3 * count / max(rates)
    total = sum(spent.values())
    parts = (f"{spent[kind]:,.0f} ({spent[kind] / total:.0%})" for kind in KINDS)
    whole = 1e3 * sorted(seconds[2:])[len(seconds[2:]) // 2]
    return (name, f"{whole:,.0f}", f"{floor:,.0f} ({floor / whole:.0%})", *parts)


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS)
    args = parser.parse_args()
    os.sched_setaffinity(0, {0})
    rows = [measure(name) for name in args.jobs]
    print(f"{interleaved.circumstances()}\n")
    print(interleaved.markdown_table(("", "CPU ms", "floor", *KINDS), rows))


if __name__ == "__main__":
    main()
