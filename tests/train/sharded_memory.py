"""Updates compiled for eight devices, by layout; prints their memory and exchanges as JSON.

Run by `test_sharded_memory.py` in a process of its own, because the number of devices is fixed at
the start. Nothing is trained.
"""

import json

import jax

from tests.train.synthetic import smoke_config
from xling_jax.config import load_config
from xling_jax.train import dry_run
from xling_jax.train.batching import Bucket
from xling_jax.train.build import build
from xling_jax.train.collectives import read_collectives
from xling_jax.train.dry_run import share_bytes, update_memory
from xling_jax.train.mesh import make_mesh

BATCH = Bucket(16, 64)


def tlaser(**settings):
    """T-LASER, most of whose parameters are large enough to be split."""
    config = smoke_config()
    for side in (config.encoder, config.decoder):
        side.update(width=128, layers=1, heads=2, ffn_width=256, dropout=0.0)
    config.vocab.size = 2000
    with config.unlocked():
        del config.objective["distance"]  # half of the time to compile
    config.update_from_flattened_dict(settings)
    return config


def laser():
    """LASER: the recurrences of an encoder and of a decoder."""
    config = tlaser()
    family = load_config("laser")
    config.encoder, config.decoder = family.encoder, family.decoder
    config.encoder.width = config.encoder.embedding_width = 128
    config.decoder.width = config.decoder.embedding_width = 128
    config.encoder.dropout = config.decoder.dropout = 0.0
    return config


def update(config, fsdp: int, accumulation_steps: int = 1):
    """What an update needs on one of eight devices, and what they exchange."""
    config.data.accumulation_steps = accumulation_steps
    mesh = make_mesh(fsdp=fsdp)
    built = build(config, num_devices=mesh.size)
    shapes = built.shapes
    compiled = dry_run.compile_update(config, mesh, built, BATCH, False)
    memory = update_memory(mesh, shapes, compiled, accumulation_steps > 1)
    exchanges = [
        {"kind": c.kind, "size": c.size, "count": c.count, "looped": c.looped, "shapes": c.shapes}
        for c in read_collectives(compiled.as_text(), mesh.size)
    ]
    return memory._asdict() | {
        "arguments": compiled.memory_analysis().argument_size_in_bytes,
        "all_parameters": 4 * sum(leaf.size for leaf in jax.tree.leaves(shapes.params)),
        "share": share_bytes(mesh, shapes),
        "exchanges": exchanges,
    }


def main() -> None:
    """Prints a JSON object of facts by layout."""
    jax.config.update("jax_num_cpu_devices", 8)
    # So many logits at a time fit a device's part of the batch, not all of it.
    pieces = {"objective.translation.max_logits": 16 * 8 * 2048}
    facts = {
        "data_parallel": update(tlaser(**pieces), 1),
        "fsdp": update(tlaser(**pieces), 8),
        "recurrent": update(laser(), 8, accumulation_steps=4),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
