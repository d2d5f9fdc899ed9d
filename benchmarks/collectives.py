"""What devices send each other in an update, read from compiled HLO: data parallel and FSDP.

    python benchmarks/collectives.py
    python benchmarks/collectives.py --configs ct_laser.py:base --topology v5e:2x4

Compiles one update of each config, of a single micro-batch, and walks the optimized program; loops
count as often as they turn. Nothing runs, and no device is needed: by default 8 CPU devices are
pretended; `--topology` compiles for a slice of a TPU instead (needs `pip install libtpu` in the
version `jax[tpu]` asks for, and minutes).

The compilers differ. The CPU's has no reduce-scatter: what a TPU does as one, it does as an
all-reduce of which each device keeps a part, which sends twice as much. It computes in float32,
where a TPU exchanges most matrices in bfloat16. And it does not join an FSDP update's all-gathers,
so read its bytes rather than its counts.

Printed for each kind of exchange: how often, MiB of whole arrays, MiB a device sends (around a
ring: (n − 1) / n of an array, twice that for an all-reduce), and what the sizes of the parameters
alone let expect of the kind. Below it, one device's memory in GiB.
"""

import argparse
import os
import time

CONFIGS = ("ct_laser:base", "laser:base", "lightweight", "static")


def update_of(name: str, fsdp: int, devices, dtype: str, length: int):
    """Compiles; returns exchanges, bytes of all parameters, memory of a device, seconds taken."""
    from xling_jax.config import load_config
    from xling_jax.train import dry_run
    from xling_jax.train.batching import Bucket
    from xling_jax.train.build import build
    from xling_jax.train.collectives import read_collectives
    from xling_jax.train.dry_run import update_memory
    from xling_jax.train.mesh import make_mesh
    from xling_jax.train.state import count_parameters

    config = load_config(name)
    rows = config.data.batch_size or config.data.max_tokens // length
    config.data.accumulation_steps, config.compute_dtype = 1, dtype
    mesh = make_mesh(fsdp=fsdp, devices=devices)
    built = build(config, num_devices=mesh.size)
    shapes = built.shapes
    start = time.perf_counter()
    bucket = Bucket(length, rows)
    compiled = dry_run.compile_update(config, mesh, built, bucket, False)
    found = read_collectives(compiled.as_text(), mesh.size)
    memory = update_memory(mesh, shapes, compiled, False)
    seconds = time.perf_counter() - start
    return found, 4 * count_parameters(shapes.params), memory, rows, seconds


def expectation(kind: str, fsdp: int, num_devices: int, parameters: int) -> float:
    """Bytes a device sends if float32 parameters and gradients are exchanged once, else 0."""
    share = (num_devices - 1) / num_devices * parameters
    if fsdp == 1:
        return 2 * share if kind == "all-reduce" else 0
    return share if kind in ("all-gather", "reduce-scatter") else 0


def rows_of(name: str, fsdp: int, num_devices: int, collectives, parameters: int):
    """The lines of a table."""
    from xling_jax.train.collectives import KINDS, summary

    found = {kind: numbers for kind, *numbers in summary(collectives)}
    layout = f"fsdp={fsdp}" if fsdp > 1 else "data parallel"
    for kind in KINDS:
        expected = expectation(kind, fsdp, num_devices, parameters)
        count, size, sent = found.get(kind, (0, 0, 0))
        if count or expected:
            numbers = [f"{value / 2**20:,.1f}" for value in (size, sent, expected)]
            yield (name, layout, kind, f"{count:,}", *numbers)


def main() -> None:
    """Compiles everything and prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--configs", nargs="+", default=CONFIGS, help="files of configs/")
    parser.add_argument("--devices", type=int, default=8, help="of the CPU")
    parser.add_argument("--fsdp", type=int, nargs="+", help="layouts; default 1 and all devices")
    parser.add_argument("--length", type=int, default=32, help="tokens of a sentence")
    parser.add_argument("--topology", help="of a TPU, such as v5e:2x4")
    args = parser.parse_args()
    import interleaved
    import jax

    jax.config.update("jax_num_cpu_devices", args.devices)  # several: models ask for more than one
    devices = jax.devices()
    if args.topology:
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
        from jax.experimental import topologies

        devices = topologies.get_topology_desc(args.topology, platform="tpu").devices
    dtype = "bfloat16" if args.topology else "float32"
    table, memories = [], []
    for name in args.configs:
        for fsdp in args.fsdp or (1, len(devices)):
            found, parameters, memory, rows, seconds = update_of(
                name, fsdp, devices, dtype, args.length
            )
            table += rows_of(name, fsdp, len(devices), found, parameters)
            sizes = [f"{size / 2**30:.3f}" for size in (*memory, sum(memory))]
            memories.append((name, fsdp, f"{rows:,} x {args.length}", *sizes, f"{seconds:.0f}"))
    kind = devices[0].device_kind
    print(f"{len(devices)} devices ({kind}), {dtype}, jax {jax.__version__}\n")
    header = ("config", "layout", "exchange", "times", "MiB of arrays", "MiB a device sends")
    print(interleaved.markdown_table((*header, "expected"), table))
    header = ("config", "fsdp", "batch", "parameters", "optimizer", "gradients", "temporaries")
    print(f"\n{interleaved.markdown_table((*header, 'all', 'compiled in s'), memories)}")


if __name__ == "__main__":
    main()
