"""`xling train --dry-run`: what a config would train, without touching data."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import backend
from jax.extend import core as jax_core
from jax.sharding import Mesh

from xling_jax import products
from xling_jax.devices import compute_dtype
from xling_jax.sharding import AXES, make_mesh, state_sharding
from xling_jax.train.batch_plan import EFFICIENCY, MOST_BUCKETS, Bucket
from xling_jax.train.experiment import Experiment
from xling_jax.train.step import count_parameters
from xling_jax.train.training import Training, check_devices, init_params, resolve, with_arguments

_GIB = 2**30


def share_bytes(mesh: Mesh, shapes: Any) -> int:
    """Bytes of one device's share of a pytree of arrays or shapes; the mesh may be abstract."""
    shardings = jax.tree.leaves(state_sharding(mesh, shapes))
    return sum(
        leaf.dtype.itemsize * math.prod(sharding.shard_shape(leaf.shape))
        for leaf, sharding in zip(jax.tree.leaves(shapes), shardings, strict=True)
    )


def update_memory(training: Training, mesh: Mesh, compiled: Any) -> dict[str, int]:
    """Bytes on one device of an update that `compile_update` compiled, by what needs them.

    `temporaries` is everything else in memory at the peak, as XLA plans it: activations, and with
    fsdp the whole parameters in use.
    """
    parameters = share_bytes(mesh, training.shapes.params)
    analysis = compiled.memory_analysis()
    planned = analysis.temp_size_in_bytes + analysis.output_size_in_bytes
    planned -= analysis.alias_size_in_bytes
    # If it accumulates over micro-batches, gradients are arguments, not temporaries.
    if training.experiment.data.accumulation_steps == 1:
        planned -= parameters
    return {
        "parameters": parameters,
        "optimizer state": share_bytes(mesh, training.shapes.opt_state),
        "gradients": parameters,
        "temporaries": max(0, planned),
    }


def planned_memory(training: Training) -> dict[str, int]:
    """Memory of one device for an update of the longest bucket; compiles it, runs nothing."""
    mesh, data = make_mesh(**training.experiment.mesh), training.experiment.data
    compiled = compile_update(training, mesh, data.buckets()[-1], data.has_both)
    return update_memory(training, mesh, compiled)


def published_count(experiment: Experiment) -> int:
    """Parameter count in the papers' convention, with two LSTM biases and unused projections."""
    model = with_arguments(experiment.model, vocab_multiple=1, published_parameters=True)
    return count_parameters(jax.eval_shape(init_params(model), jax.random.key(0)))


def describe(experiment: Experiment) -> str:
    """The resolved config, sizes, buckets, FLOPs and memory, as text.

    Memory is that of XLA's plan for the longest bucket, compiled for this machine's devices; other
    kinds of devices differ somewhat. A `mesh` of more devices than there are is compiled for that
    many simulated CPU devices.
    """
    pretended = _pretend_devices(experiment)
    mesh = make_mesh(**experiment.mesh)
    training, data = resolve(experiment), experiment.data
    check_devices(experiment)
    # If the text is to tell the lengths, possible ones.
    powers = (2**power for power in range(3, data.limit.bit_length()))
    lengths = data.bucket_lengths or (*(p for p in powers if p < data.limit), data.limit)
    buckets, accumulation = data.buckets(lengths), data.accumulation_steps
    params = training.shapes.params
    tokens = max(map(math.prod, buckets)) * accumulation
    programs = (2 if accumulation > 1 else 1) * (len(data.bucket_lengths) or MOST_BUCKETS)
    lines = [
        json.dumps(experiment.config, indent=2, ensure_ascii=False),
        "",
        f"parameters        {count_parameters(params):,} "
        f"(encoder {count_parameters(params['encoder']):,})",
        f"  as papers count {published_count(experiment):,} (redundant ones, no padding)",
        f"devices           {mesh.size} ({', '.join(f'{k}={v}' for k, v in mesh.shape.items())})"
        + (", not those of this machine" if pretended else ""),
        f"directions        {', '.join(map(str, data.directions()))}",
        f"micro-batches     {accumulation} per update, up to {tokens:,} padded tokens per side",
        f"programs          up to {programs} to compile",
        "",
    ]
    if not data.bucket_lengths:
        lines += [
            "The bucket lengths will be chosen from the text: the fewest with which "
            f"{EFFICIENCY:.0%} of the tokens are real,",
            f"up to {data.longest_bucket} tokens. Some possible ones:",
        ]
    lines += _flops(training, buckets)
    memory = planned_memory(training)
    lines.append(f"memory per device {sum(memory.values()) / _GIB:.3f} GiB")
    lines += [f"  {name:15} {size / _GIB:.3f}" for name, size in memory.items()]
    dtype, platform = compute_dtype(experiment.compute_dtype).name, mesh.devices.flat[0].platform
    length, rows = buckets[-1]
    shape = f"{rows:,} x {length} tokens over all devices"
    lines[-1] += f"   activations of {shape}, in {dtype} on {platform}"
    return "\n".join(lines)


def _pretend_devices(experiment: Experiment) -> bool:
    """Replaces the devices by simulated CPU devices if the mesh has more than there are."""
    there, (data, fsdp) = jax.device_count(), (experiment.mesh[axis] for axis in AXES)
    wanted = data * fsdp if data != -1 else max(fsdp, there)
    if wanted <= there:
        return False
    backend.clear_backends()  # their number is fixed once they have started
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", wanted)
    return True


def _flops(training: Training, buckets: Sequence[Bucket]) -> list[str]:
    """The table of FLOPs by bucket, and those of an update."""
    data, objective = training.experiment.data, training.objective
    batches = [objective.abstract_batch(bucket, data.has_both) for bucket in buckets]
    counts = [gradient_flops(objective, training.shapes.params, batch) for batch in batches]
    unit, size = ("TFLOP", 1e12) if max(counts) >= 1e11 else ("GFLOP", 1e9)
    lines = [f"bucket length   rows   tokens a side   {unit} per micro-batch"]
    for (length, rows), count in zip(buckets, counts):
        lines.append(f"{length:13,} {rows:6,} {length * rows:15,} {count / size:23.3f}")
    least, most = (n(counts) * data.accumulation_steps / size for n in (min, max))
    return [*lines, "", f"FLOPs per update  {least:,.3f} to {most:,.3f} {unit}"]


def compile_update(training: Training, mesh: Mesh, bucket: Bucket, both: bool) -> Any:
    """Compiles the main step function for micro-batches of one bucket; runs nothing.

    That is `Steps.train`, or `Steps.more` if an update has several micro-batches.
    """
    steps, batch = training.steps(mesh), training.objective.abstract_batch(bucket, both)
    arguments = training.shapes, batch, jax.ShapeDtypeStruct((), jnp.int32)
    if training.experiment.data.accumulation_steps > 1:
        lowered = steps.more.lower(jax.eval_shape(steps.first, *arguments), *arguments)
    else:
        lowered = steps.train.lower(*arguments)
    on_cpu = mesh.devices.flat[0].platform == "cpu"
    # Half of the time goes into optimizing machine code, which will not run.
    return lowered.compile({"xla_backend_optimization_level": 0} if on_cpu else None)


def matmul_flops(function: Callable, *arguments: Any) -> int:
    """Floating-point operations of all matrix products in one call, 2 · m · n · k each.

    Nothing runs: the function is traced on arrays or shapes. Loop bodies count once per iteration;
    XLA's own `cost_analysis` counts them once, and misses a fifth of an LSTM's update.
    """
    return _count(jax.make_jaxpr(function)(*arguments).jaxpr)


def gradient_flops(loss_fn: Callable, params: Any, batch: Mapping[str, Any]) -> int:
    """FLOPs of the forward and backward pass of a loss on a batch of arrays or shapes.

    The loss is (params, batch, key, train) -> (loss, sums).
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    # What kernels multiply is not seen, and they multiply some of it twice.
    with products.without_kernels():
        gradient = jax.grad(lambda params, batch, key: loss_fn(params, batch, key, True)[0])
        return matmul_flops(gradient, params, batch, key)


def _count(jaxpr: jax_core.Jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracting, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            contracted = math.prod(left[axis] for axis in contracting)
            total += 2 * math.prod(equation.outvars[0].aval.shape) * contracted
            continue
        repeat = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if isinstance(inner, jax_core.Jaxpr):
                total += repeat * _count(inner)
    return total
