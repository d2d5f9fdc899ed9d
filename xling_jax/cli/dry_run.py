"""`xling train --dry-run`: what a config would train, without touching data."""

import json
import math

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from xling_jax.data.batching import Bucket, make_buckets
from xling_jax.data.pairs import Direction, training_directions
from xling_jax.models.layers import padded_vocab_size
from xling_jax.train import flops
from xling_jax.train.build import build, init_params
from xling_jax.train.mesh import make_mesh
from xling_jax.train.optimizer import make_optimizer, make_schedule
from xling_jax.train.state import abstract_state, count_parameters, sharded_shapes
from xling_jax.train.step import make_steps

_IDS = {"bos": 0, "pad": 1, "eos": 2, "mask": 4}


def published_count(config: ConfigDict) -> int:
    """Parameters as the papers count: two LSTM biases, unused projections, no padding rows."""
    vocab_size = config.vocab.size
    copy = config.copy_and_resolve_references().unlock()
    for side in (copy.encoder, copy.decoder):
        if "published_parameters" in side:
            side.published_parameters = True
    copy.encoder.vocab_multiple = copy.decoder.vocab_multiple = 1
    model, _ = build(copy, vocab_size, _IDS)
    return count_parameters(jax.eval_shape(init_params(model), jax.random.key(0)))


def abstract_batch(bucket: Bucket, both: bool) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of a micro-batch."""
    tokens = jax.ShapeDtypeStruct((bucket.batch_size, bucket.length), jnp.int32)
    language = jax.ShapeDtypeStruct((bucket.batch_size,), jnp.int32)
    batch = {"source_tokens": tokens, "target_tokens": tokens, "target_language": language}
    return batch | ({"source_language": language} if both else {})


def describe(config: ConfigDict) -> str:
    """The resolved config, sizes, buckets, FLOPs and memory, as text for a person.

    The memory is XLA's own figure for the update of the longest bucket, compiled for this machine's
    devices; on another kind of device it differs somewhat.
    """
    mesh = make_mesh(**config.mesh)
    buckets = make_buckets(
        config.data.bucket_lengths,
        config.data.max_tokens,
        config.data.batch_multiple,
        config.data.batch_size,
    )
    directions = training_directions(config.data.pairs, config.data.both_directions)
    model, loss_fn = build(config, config.vocab.size, _IDS)
    optimizer = make_optimizer(schedule=make_schedule(**config.schedule), **config.optimizer)
    _, shapes = abstract_state(init_params(model), optimizer, config.seed)
    targets = sharded_shapes(mesh, shapes)

    lines = [json.dumps(config.to_dict(), indent=2, ensure_ascii=False), ""]
    count = count_parameters(shapes.params)
    rows = padded_vocab_size(config.vocab.size, 128)
    lines += [
        f"parameters        {count:,} (encoder {count_parameters(shapes.params['encoder']):,})",
        f"  as published    {published_count(config):,} (two biases an LSTM gate, unused "
        f"cross-attention projections counted, vocabulary {config.vocab.size:,} not padded to "
        f"{rows:,})",
        f"devices           {mesh.size} ({', '.join(f'{k}={v}' for k, v in mesh.shape.items())})",
        f"directions        {', '.join(str(direction) for direction in directions)}",
        f"micro-batches     {config.data.accumulation_steps} per update, up to "
        f"{max(map(math.prod, buckets)) * config.data.accumulation_steps:,} padded tokens a side",
        "",
        "bucket length   rows   tokens a side   TFLOP per micro-batch",
    ]
    both = any(direction.both for direction in directions)
    gradient = jax.grad(lambda p, b, k: loss_fn(p, b, k, True)[0])
    key = jax.eval_shape(lambda: jax.random.key(0))
    counts = []
    for bucket in buckets:
        count = flops.matmul_flops(gradient, shapes.params, abstract_batch(bucket, both), key)
        counts.append(count * config.data.accumulation_steps / 1e12)
        tokens = bucket.length * bucket.batch_size
        lines.append(
            f"{bucket.length:13,} {bucket.batch_size:6,} {tokens:15,} {count / 1e12:23.3f}"
        )
    lines += ["", f"FLOPs per update  {min(counts):,.3f} to {max(counts):,.3f} TFLOP"]
    lines += [_memory(config, mesh, loss_fn, optimizer, targets, buckets[-1], directions)]
    return "\n".join(lines)


def _memory(config, mesh, loss_fn, optimizer, targets, bucket, directions: tuple[Direction]) -> str:
    steps = make_steps(loss_fn, optimizer, mesh, targets, config.seed)
    batch = abstract_batch(bucket, any(direction.both for direction in directions))
    index = jax.ShapeDtypeStruct((), jnp.int32)
    analysis = steps.train.lower(targets, batch, index).compile().memory_analysis()
    state = analysis.argument_size_in_bytes / 2**30
    temporary = analysis.temp_size_in_bytes / 2**30
    accumulator = 0.0
    if config.data.accumulation_steps > 1:
        accumulator = count_parameters(targets.params) * 4 / config.mesh.fsdp / 2**30
    return (
        f"memory per device {state + temporary + accumulator:.2f} GiB: state and batch "
        f"{state:.2f}, temporaries {temporary:.2f}, gradient accumulator {accumulator:.2f}"
    )
