"""Gradients of one batch on one and on eight devices, in one process; prints the differences.

Run by `test_mesh.py` in a process of its own, because the number of devices is fixed at the start.
"""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh

from benchmarks.hlo_collectives import read_collectives, summary
from tests.models.tlaser_reference import random_params
from xling_jax import kernels, products, sharding
from xling_jax import sharding as mesh_module
from xling_jax.losses import translation
from xling_jax.models.registry import build_model
from xling_jax.sharding import AXES, make_mesh, to_global
from xling_jax.train.loss_scale import with_loss_scale
from xling_jax.train.objective import Objective, parse_objective
from xling_jax.train.step import TrainState, make_steps
from xling_jax.train.terms.term import Context, all_reads

VOCAB = 30
TRANSLATION = {"translation": {"weight": 1.0, "max_logits": 1280}}
CONSTRAINED = TRANSLATION | {"distance": {"weight": 0.25, "num_negatives": 2}}
LIGHTWEIGHT = {  # losses over the whole batch, whose rows lie on all devices
    "token_distribution": {"weight": 1.0, "max_logits": 640},
    "alignment": {"weight": 2.0, "ignore_equal": True},
    "similarity_distribution": {"weight": 2.0, "reduction": "sum", "widths": (8, 16)},
    "distillation": {"teacher": "none", "form": "similarity"},
}


def make_batch(seed: int, rows: int) -> dict[str, np.ndarray]:
    """Random sentences; the last row is padding."""
    random = np.random.default_rng(seed)

    def tokens() -> np.ndarray:
        ids = random.integers(4, VOCAB, (rows, 6))
        lengths = random.integers(2, 7, rows)
        ids = np.where(np.arange(6) < lengths[:, None] - 1, ids, 1)
        ids[np.arange(rows), lengths - 1] = 2
        ids[:, 0] = 0
        ids[-1] = 1
        return ids.astype(np.int32)

    language = random.integers(0, 3, rows).astype(np.int32)
    batch = {"source_tokens": tokens(), "target_tokens": tokens(), "target_language": language}
    return batch | {"source_teacher": random.normal(size=(rows, 5)).astype(np.float32) / 2}


def make_objective(dropout: float, terms, family: str = "tlaser", **settings):
    """An objective, with further settings, and a state of its model."""
    sizes = {"width": 16, "heads": 1, "ffn_width": 24, "dropout": dropout}
    terms = parse_objective(terms)[1]
    reads = all_reads(terms.values())
    model = build_model(
        encoder=sizes | {"family": family, "layers": 1},
        decoder=sizes | {"family": "tlaser"} if "decoder" in reads else None,
        head={} if "head" in reads else None,
        vocab_size=VOCAB,
        num_languages=3,
        vocab_multiple=32,
        pad_id=1,
    )
    # Chunks of the batch, so that chunking too meets rows on different devices.
    context = Context(
        model,
        VOCAB,
        {"bos": 0, "eos": 2, "pad": 1, "mask": 3},
        drop_first=family == "tlaser",
        maskable=np.arange(VOCAB) > 3,
        reduction="sum" if family == "tlaser" else "mean",
        **settings,
    )
    loss_fn = Objective(context, terms)
    tokens, language = jnp.zeros((1, 4), jnp.int32), jnp.zeros(1, jnp.int32)
    params = random_params(lambda: model.init(jax.random.key(0), tokens, language)["params"])
    return loss_fn, TrainState(jnp.zeros((), jnp.int32), params, ())


def make_gradients(*arguments, **options):
    """A function (mesh, batches) -> accumulated gradient and sums; see `make_objective`."""
    loss_fn, state = make_objective(*arguments, **options)

    def gradients(mesh: Mesh, *batches: dict[str, np.ndarray]):
        steps = make_steps(loss_fn, optax.identity(), mesh, state, 3, loss_fn.read_twice)
        placed = jax.device_put(state, mesh_module.state_sharding(mesh, state))
        first, *others = (to_global(mesh, batch) for batch in batches)
        compiled = steps.first.lower(placed, first, np.int32(0)).compile()
        found = summary(read_collectives(compiled.as_text(), mesh.size))
        gradients.gathers = sum(size for kind, _, size, _ in found if kind == "all-gather")
        accumulator = compiled(placed, first, np.int32(0))
        for number, batch in enumerate(others, 1):
            accumulator = steps.more(accumulator, placed, batch, np.int32(number))
        return accumulator

    return gradients


def difference(one, other) -> float:
    """Largest difference of two pytrees, relative to the largest value of each leaf.

    Below 0.1 the difference counts as it is: the bias of attention's keys has gradient zero but for
    rounding.
    """
    relative = lambda a, b: float(np.abs(a - b).max() / max(np.abs(a).max(), 0.1))
    return max(jax.tree.leaves(jax.tree.map(relative, *jax.device_get((one, other)))))


def reduced_apart(mesh: Mesh) -> float:
    """What all-reducing both gradients of an input and output table adds, in sizes of the table."""
    loss_fn, state = make_objective(0.3, LIGHTWEIGHT, family="dual")
    sizes = []
    for read_twice in (False, loss_fn.read_twice):
        steps = make_steps(loss_fn, optax.identity(), mesh, state, 3, read_twice)
        batch = to_global(mesh, make_batch(0, 16))
        program = steps.first.lower(state, batch, np.int32(0)).compile().as_text()
        found = summary(read_collectives(program, mesh.size))
        sizes.append({kind: size for kind, _, size, _ in found}["all-reduce"])
    return (sizes[0] - sizes[1]) / state.params["encoder"]["embedding"].nbytes


def with_kernels(gradients: Any, expected: Any, mesh: Mesh) -> dict[str, Any]:
    """Kernels in Pallas's interpreter: differences of the gradients from those without.

    Also bytes of all-gathers without and with them, and the kernels in the program for CUDA. The
    latest of `gradients` are those on the mesh.
    """
    without, in_interpreter = products.kernels_for, kernels.interpreted
    products.kernels_for = lambda _, rows=0: None if rows % sharding.num_devices() else kernels
    translation.softmax_kernels = lambda _: kernels
    batch, found = make_batch(0, 16), [gradients.gathers]
    facts = {"data_parallel": difference(expected, gradients(mesh, batch))}
    facts["gathers"] = [*found, gradients.gathers]
    facts["fsdp"] = difference(expected, gradients(make_mesh(fsdp=4), batch))
    if jax.__version_info__ < (0, 11):  # later versions lower kernels only where there is a GPU
        loss_fn, state = make_objective(0.3, CONSTRAINED)
        steps = make_steps(loss_fn, optax.identity(), mesh, state, 3, loss_fn.read_twice)
        kernels.interpreted = lambda: False
        traced = steps.first.trace(state, to_global(mesh, batch), np.int32(0))
        program = traced.lower(lowering_platforms=("cuda",)).as_text()
        facts["for_cuda"] = program.count("xla.gpu.triton")
    products.kernels_for, kernels.interpreted = without, in_interpreter
    return facts


def skipped_update(mesh: Mesh) -> tuple[float, bool, bool]:
    """Overflow in one row, on one device: the scale after it, and whether anything else moved.

    The last item is whether a parameter is split over devices.
    """
    params = {"w": jnp.ones((8, 128))}

    def loss_fn(params, batch, key, train):
        del key, train
        states = (batch["inputs"] @ params["w"]).astype(jnp.float16).astype(jnp.float32)
        loss = 0.5 * (states**2).sum()
        return loss, {"loss": loss, "normalizer": jnp.ones(())}

    optimizer = with_loss_scale(optax.adam(0.1))
    state = TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))
    shardings = mesh_module.state_sharding(mesh, state)
    before = jax.device_get(state)
    state = jax.device_put(state, shardings)
    rows = np.full((16, 8), 1e-3, np.float32)
    rows[11] = 10.0
    steps = make_steps(loss_fn, optimizer, mesh, state, seed=3)
    state, _ = steps.train(state, to_global(mesh, {"inputs": rows}), np.int32(0))
    moved = [
        not np.array_equal(*pair)
        for pair in zip(
            jax.tree.leaves((state.params, state.opt_state.inner)),
            jax.tree.leaves((before.params, before.opt_state.inner)),
        )
    ]
    split = not shardings.params["w"].is_fully_replicated
    return float(state.opt_state.scale), any(moved), split


def main() -> None:
    """Prints a JSON object of named differences and facts."""
    jax.config.update("jax_num_cpu_devices", 8)
    # Programs that are read from a cache may wait for each other in their collectives.
    jax.config.update("jax_compilation_cache_dir", None)
    mesh_module._SMALLEST_SHARDED = 64  # so that most parameters of a tiny model are split
    single = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), AXES, axis_types=(AxisType.Auto,) * 2)
    batch = make_batch(0, 16)
    constrained = make_gradients(0.3, CONSTRAINED)
    expected = constrained(single, batch)
    split = constrained(make_mesh(fsdp=4), batch)
    shards = [leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(split[0])]
    plain = make_gradients(0.0, TRANSLATION)
    contrast = make_gradients(0.3, LIGHTWEIGHT, family="dual", encode_chunks=2)
    halves = [{k: v[i::2] for k, v in batch.items()} for i in range(2)]
    facts = {
        "data_parallel": difference(expected, constrained(make_mesh(), batch)),
        "fsdp": difference(expected, split),
        "contrastive": difference(contrast(single, batch), contrast(make_mesh(), batch)),
        "split_parameters": shards.count(False),
        "accumulated": difference(plain(single, batch), plain(make_mesh(), *halves)),
        "reduced_apart": reduced_apart(make_mesh()),
        "kernels": with_kernels(constrained, expected, make_mesh()),
        "skipped": [skipped_update(mesh) for mesh in (make_mesh(), make_mesh(fsdp=4))],
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
