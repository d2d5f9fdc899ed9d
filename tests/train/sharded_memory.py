"""Updates compiled for eight devices, by layout; prints their memory and exchanges as JSON.

Run by `test_sharded_memory.py` in a process of its own, because the number of devices is fixed at
the start. Nothing is trained.
"""

import json
from types import MappingProxyType

import jax

from benchmarks.hlo_collectives import read_collectives
from tests.train.synthetic import smoke_experiment
from xling_jax.sharding import make_mesh
from xling_jax.train import dry_run
from xling_jax.train.batch_plan import Bucket
from xling_jax.train.dry_run import share_bytes, update_memory
from xling_jax.train.training import resolve

BATCH = Bucket(16, 64)


def tlaser(values=MappingProxyType({})):
    """T-LASER, most of whose parameters are large enough to be split."""
    sizes = {"width": 128, "layers": 1, "heads": 2, "ffn_width": 256, "dropout": 0.0}
    given = {f"{side}.{k}": v for side in ("encoder", "decoder") for k, v in sizes.items()}
    given |= {"vocab.size": 2000, "objective.distance.weight": 0.0}  # half of the time to compile
    return smoke_experiment({**given, **values})


def update(experiment, fsdp: int):
    """What an update needs on one of eight devices, and what they exchange."""
    mesh = make_mesh(fsdp=fsdp)
    training = resolve(experiment)
    shapes = training.shapes
    compiled = dry_run.compile_update(training, mesh, BATCH, False)
    memory = update_memory(training, mesh, compiled)
    exchanges = [
        {"kind": c.kind, "size": c.size, "count": c.count, "looped": c.looped, "shapes": c.shapes}
        for c in read_collectives(compiled.as_text(), mesh.size)
    ]
    return memory | {
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
        "data_parallel": update(tlaser(pieces), 1),
        "fsdp": update(tlaser(pieces), 8),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
