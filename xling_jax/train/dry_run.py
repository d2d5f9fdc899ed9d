"""`xling train --dry-run`: what a config would train, without touching data."""

import json
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import backend
from jax.sharding import AbstractMesh, Mesh
from ml_collections import ConfigDict

from xling_jax import options
from xling_jax.models.layers import padded_vocab_size
from xling_jax.models.registry import DECODERS, ENCODERS
from xling_jax.train import flops
from xling_jax.train.batching import Bucket
from xling_jax.train.build import Build, build, compute_dtype
from xling_jax.train.check import check_batch_multiple
from xling_jax.train.collectives import read_collectives, summary
from xling_jax.train.memory import Memory, state_memory, update_memory, whole_bytes
from xling_jax.train.mesh import AXES, make_mesh
from xling_jax.train.state import TrainState, count_parameters, sharded_shapes
from xling_jax.train.step import make_steps

_GIB = 2**30


def published_count(config: ConfigDict) -> int:
    """Parameters as the papers count: two LSTM biases, unused projections, no padding rows."""
    copy = ConfigDict(config.to_dict())
    for side, table in (("encoder", ENCODERS), ("decoder", DECODERS), ("head", None)):
        if side not in copy:
            continue
        copy[side].vocab_multiple = 1
        if table and "published_parameters" in options.defaults(table[copy[side].family]):
            copy[side].published_parameters = True
    return count_parameters(build(copy).shapes.params)


def abstract_batch(bucket: Bucket, both: bool) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of a micro-batch."""
    tokens = jax.ShapeDtypeStruct((bucket.batch_size, bucket.length), jnp.int32)
    language = jax.ShapeDtypeStruct((bucket.batch_size,), jnp.int32)
    batch = {"source_tokens": tokens, "target_tokens": tokens, "target_language": language}
    return batch | ({"source_language": language} if both else {})


def describe(config: ConfigDict) -> str:
    """The resolved config, sizes, buckets, FLOPs, memory and exchanges, as text for a person.

    Memory and exchanges are XLA's own plan for the longest bucket, compiled for this machine's
    devices; on another kind of device they differ somewhat. A `mesh` of more devices than there are
    is compiled for as many CPU devices, which need not exist.
    """
    pretended = _pretend_devices(config)
    mesh = make_mesh(**config.mesh)
    built = build(config, num_devices=mesh.size)
    data, objective, shapes = built.data, built.objective, built.shapes
    check_batch_multiple(data.batch_multiple)
    buckets, directions = data.buckets(), data.directions()

    lines = [json.dumps(config.to_dict(), indent=2, ensure_ascii=False), ""]
    count = count_parameters(shapes.params)
    rows = padded_vocab_size(config.vocab.size, 128)
    lines += [
        f"parameters        {count:,} (encoder {count_parameters(shapes.params['encoder']):,})",
        f"  as published    {published_count(config):,} (two biases an LSTM gate, unused "
        f"cross-attention projections counted, vocabulary {config.vocab.size:,} not padded to "
        f"{rows:,})",
        f"devices           {mesh.size} ({', '.join(f'{k}={v}' for k, v in mesh.shape.items())})"
        + (", not those of this machine" if pretended else ""),
        f"directions        {', '.join(str(direction) for direction in directions)}",
        f"micro-batches     {data.accumulation_steps} per update, up to "
        f"{max(map(math.prod, buckets)) * data.accumulation_steps:,} padded tokens a side",
    ]
    both = any(direction.both for direction in directions)
    lines += _flops(data, objective, shapes, buckets, both)
    compiled = compile_update(config, mesh, built, buckets[-1], both)
    memory = update_memory(mesh, shapes, compiled, data.accumulation_steps > 1)
    lines += _memory(config, mesh, shapes, memory, buckets[-1])
    lines += _collectives(mesh, compiled)
    return "\n".join(lines)


def _pretend_devices(config: ConfigDict) -> bool:
    """Replaces the devices by as many of the CPU as `config.mesh` asks for, if it asks for more."""
    there, (data, fsdp) = jax.device_count(), (config.mesh.data, config.mesh.fsdp)
    wanted = data * fsdp if data != -1 else max(fsdp, there)
    if wanted <= there:
        return False
    backend.clear_backends()  # their number is fixed once they are started
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", wanted)
    return True


def _flops(data, loss_fn, shapes, buckets: tuple[Bucket, ...], both: bool) -> list[str]:
    """Lines on every bucket's FLOPs."""
    lines = ["", "bucket length   rows   tokens a side   TFLOP per micro-batch"]
    flops_of, counts = flops.FlopsByShape(loss_fn, shapes.params), []
    for bucket in buckets:
        count = flops_of(abstract_batch(bucket, both))
        counts.append(count * data.accumulation_steps / 1e12)
        tokens = bucket.length * bucket.batch_size
        lines.append(
            f"{bucket.length:13,} {bucket.batch_size:6,} {tokens:15,} {count / 1e12:23.3f}"
        )
    return [*lines, "", f"FLOPs per update  {min(counts):,.3f} to {max(counts):,.3f} TFLOP"]


def compile_update(config: ConfigDict, mesh: Mesh, built: Build, bucket: Bucket, both: bool) -> Any:
    """The compiled step of one bucket that an update takes most often; nothing runs.

    Args:
        config: of the run.
        mesh: whose devices it is for.
        built: what the config describes.
        bucket: shape of the micro-batch.
        both: its pairs are trained in both directions.

    Returns:
        `Steps.train`, or `Steps.more` where an update has several micro-batches, compiled.
    """
    shapes = built.shapes
    steps = make_steps(built.objective, built.optimizer, mesh, shapes, config.seed)
    targets = sharded_shapes(mesh, shapes)
    batch, index = abstract_batch(bucket, both), jax.ShapeDtypeStruct((), jnp.int32)
    if built.data.accumulation_steps == 1:
        lowered = steps.train.lower(targets, batch, index)
    else:
        accumulator = jax.eval_shape(steps.first, targets.params, batch, index)
        lowered = steps.more.lower(accumulator, targets.params, batch, index)
    on_cpu = mesh.devices.flat[0].platform == "cpu"
    # Nearly half of the time is spent on making machine code fast, which will not run.
    return lowered.compile({"xla_backend_optimization_level": 0} if on_cpu else None)


def _memory(config, mesh: Mesh, shapes: TrainState, memory: Memory, bucket: Bucket) -> list[str]:
    """Lines on one device's memory, and how that of the state falls with fsdp."""
    platform = mesh.devices.flat[0].platform
    dtype = jnp.dtype(compute_dtype(config.compute_dtype)).name
    notes = {
        "temporaries": f"activations of {bucket.batch_size:,} x {bucket.length} tokens over "
        f"{mesh.size} devices, in {dtype} on {platform}"
        + (", and whole parameters in use" if mesh.shape["fsdp"] > 1 else "")
    }
    lines = [f"memory per device {sum(memory) / _GIB:.3f} GiB"]
    for name, size in memory._asdict().items():
        note = f"   {notes[name]}" if name in notes else ""
        lines.append(f"  {name.replace('_', ' '):15} {size / _GIB:.3f}{note}")
    if mesh.size > 1:
        sizes = [1 << power for power in range(mesh.size.bit_length())]
        state = {
            fsdp: sum(state_memory(AbstractMesh((mesh.size // fsdp, fsdp), AXES), shapes)) / _GIB
            for fsdp in sizes
            if mesh.size % fsdp == 0
        }
        falling = ", ".join(f"{size:.3f} at fsdp={fsdp}" for fsdp, size in state.items())
        lines.append(f"  all but the temporaries: {falling}")
    whole = whole_bytes(mesh, shapes)
    if mesh.shape["fsdp"] > 1 and whole > memory.parameters / 10:
        lines.append(
            f"  {whole / _GIB:.3f} GiB of parameters and optimizer state are on every device: no "
            f"axis is a multiple of mesh.fsdp={mesh.shape['fsdp']}; use a power of two"
        )
    return lines


def _collectives(mesh: Mesh, compiled: Any) -> list[str]:
    """Lines on what devices send each other for a micro-batch."""
    if mesh.size == 1:
        return []
    lines = ["", "exchanges of a micro-batch    times   MiB of arrays   MiB a device sends"]
    for kind, count, size, sent in summary(read_collectives(compiled.as_text(), mesh.size)):
        lines.append(f"{kind:26} {count:8,} {size / 2**20:15,.1f} {sent / 2**20:20,.1f}")
    return lines
