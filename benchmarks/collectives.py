"""Communication between devices per update, read from compiled HLO: data parallel and FSDP.

    python benchmarks/collectives.py
    python benchmarks/collectives.py --configs ct_laser:base --topology v5e:2x4

Compiles one update of each config with a single micro-batch and walks the optimized program; loop
bodies count once per iteration. Nothing runs, and no device is needed: by default 8 CPU devices are
emulated; `--topology` compiles for a TPU slice instead (this takes minutes and needs the version of
libtpu that `jax[tpu]` requires).

The compilers differ. The CPU compiler has no reduce-scatter: instead it uses an all-reduce, of
which each device keeps a part, and which sends twice as much. It computes in float32, while a TPU
sends most matrices in bfloat16. It does not combine the all-gathers of an FSDP update, so compare
bytes, not counts.

Prints for each kind of collective: count, MiB of full arrays, MiB sent per device (in a ring:
(n − 1) / n of an array, twice that for an all-reduce), and the MiB expected from the sizes of the
parameters alone. Below that, the memory of one device in GiB. With `--topology`, also how much of
what the results of the operations outside loops occupy is padding of arrays to tiles, in main
memory (HBM) and in the vector memory beside the cores (VMEM); how many collectives run beside
computation; how many results are computed a second time to save memory; and the least milliseconds
of an update by its products at the device's peak, and by the bytes that it moves to and from
memory, in which the compiler counts loops once.
"""

import argparse
import math
import os
import re
import time
from collections import Counter
from pathlib import Path

# GB/s between a chip and its memory, as Google states them.
_BANDWIDTHS = {"TPU v5 lite": 819, "TPU v5": 2765, "TPU v6 lite": 1640}
CONFIGS = ("ct_laser:base", "laser:base", "lightweight", "static")


def update_of(name: str, fsdp: int, devices, dtype: str, length: int, keep: Path | None):
    """Compiles; returns the program, its least seconds by products and by bytes, bytes of all
    parameters, memory per device, rows, and seconds of compilation.

    The text of the program is also written to the directory `keep`, unless that is None.
    """
    from peaks import peak_flops, without_remat

    from xling_jax.config import load
    from xling_jax.sharding import make_mesh
    from xling_jax.train import dry_run
    from xling_jax.train.batch_plan import Bucket
    from xling_jax.train.dry_run import gradient_flops, update_memory
    from xling_jax.train.step import count_parameters
    from xling_jax.train.training import resolve

    values = {"data.accumulation_steps": 1, "compute_dtype": dtype}
    experiment = load(name).replace(values)
    rows = experiment.data.batch_size or experiment.data.max_tokens // length
    mesh = make_mesh(fsdp=fsdp, devices=devices)
    training = resolve(experiment)
    start = time.perf_counter()
    bucket = Bucket(length, rows)
    compiled = dry_run.compile_update(training, mesh, bucket, False)
    memory = update_memory(training, mesh, compiled)
    seconds = time.perf_counter() - start
    program = compiled.as_text()
    batch = training.objective.abstract_batch(bucket, False)
    objective = without_remat(training.objective)
    count = gradient_flops(objective, training.shapes.params, batch) / mesh.size
    moved = compiled.cost_analysis()["bytes accessed"] / _BANDWIDTHS.get(devices[0].device_kind, 1)
    least = count / (peak_flops(devices[0], dtype) or 1e12), moved / 1e9
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{name.replace(':', '_')}.{fsdp}.hlo.txt").write_text(program)
    return program, least, 4 * count_parameters(training.shapes.params), memory, rows, seconds


# A shape with the order of its axes, innermost first, and the tile of the last two: 8 × 128 for
# `{1,0:T(8,128)S(1)}`, in memory space 1.
_TILED = re.compile(r"\b([a-z]\w*\[([\d,]*)\])\{([\d,]*):T\(([\d,]+)\)([^}]*)\}")
_RESULT = re.compile(r"^ +(?:ROOT )?%?[\w.-]+ = (.*?) ([a-z][\w-]*)\(", re.MULTILINE)
# These write nothing, or what another operation has written.
_NO_WORK = {"bitcast", "copy-done", "copy-start", "get-tuple-element", "parameter", "slice-done"}
_NO_WORK |= {"slice-start", "tuple"}
_COLLECTIVE = re.compile(r" (?:all-\w+|reduce-scatter|collective-permute)(-start)?\(.*")
_CHAIN = re.compile(r'chain_id="(\d+)"')  # of fusions that compute beside one collective
_RECOMPUTED = re.compile(r"%(\S+\.remat\S*) =")


def results(program: str) -> tuple[Counter, Counter]:
    """Bytes of the results of the entry computation by memory, `HBM` and `VMEM`, and of padding."""
    from hlo_collectives import array_bytes

    sizes, padding = Counter(), Counter()
    for shapes, operation in _RESULT.findall(program[program.index("\nENTRY") :]):
        if operation in _NO_WORK:
            continue
        for shape, axes, order, tile, rest in _TILED.findall(shapes):
            lengths = [int(length) for length in axes.split(",") if length]
            padded = list(lengths)
            order = [int(axis) for axis in order.split(",") if axis]
            for axis, unit in zip(order, reversed([int(size) for size in tile.split(",")])):
                padded[axis] = -(-padded[axis] // unit) * unit
            memory = "VMEM" if "S(1)" in rest else "HBM"
            size = array_bytes(shape)
            sizes[memory] += size
            padding[memory] += size * math.prod(padded) // max(math.prod(lengths), 1) - size
    return sizes, padding


def program_row(name: str, fsdp: int, program: str) -> tuple[str, ...]:
    """The row of a program in the table of TPUs."""
    sizes, padding = results(program)
    shares = [padding[kind] / max(sizes[kind] + padding[kind], 1) for kind in ("HBM", "VMEM")]
    beside, synchronous = set(), 0
    for found in _COLLECTIVE.finditer(program):
        chain = _CHAIN.search(found[0])
        if chain or found[1]:
            beside.add(chain[1] if chain else found.start())
        else:
            synchronous += 1
    recomputed = set(_RECOMPUTED.findall(program))
    counts = (f"{len(beside)} of {len(beside) + synchronous}", str(len(recomputed)))
    return (name, str(fsdp), *(f"{share:.1%}" for share in shares), *counts)


def expectation(kind: str, fsdp: int, num_devices: int, parameters: int) -> float:
    """Bytes sent per device if float32 parameters and gradients are communicated once, else 0."""
    share = (num_devices - 1) / num_devices * parameters
    if fsdp == 1:
        return 2 * share if kind == "all-reduce" else 0
    return share if kind in ("all-gather", "reduce-scatter") else 0


def rows_of(name: str, fsdp: int, num_devices: int, collectives, parameters: int):
    """The rows of the table."""
    from hlo_collectives import KINDS, summary

    found = {kind: numbers for kind, *numbers in summary(collectives)}
    layout = f"fsdp={fsdp}" if fsdp > 1 else "data parallel"
    for kind in KINDS:
        expected = expectation(kind, fsdp, num_devices, parameters)
        count, size, sent = found.get(kind, (0, 0, 0))
        if count or expected:
            numbers = [f"{value / 2**20:,.1f}" for value in (size, sent, expected)]
            yield (name, layout, kind, f"{count:,}", *numbers)


def main() -> None:
    """Compiles all updates and prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--configs", nargs="+", default=CONFIGS, help="names of configs")
    parser.add_argument("--devices", type=int, default=8, help="number of CPU devices")
    parser.add_argument("--fsdp", type=int, nargs="+", help="layouts; default: 1 and all devices")
    parser.add_argument("--length", type=int, default=32, help="tokens per sentence")
    parser.add_argument("--topology", help="of a TPU slice, such as v5e:2x4")
    parser.add_argument("--keep", type=Path, help="directory for the text of the programs")
    args = parser.parse_args()
    import interleaved
    import jax
    from hlo_collectives import read_collectives

    jax.config.update("jax_num_cpu_devices", args.devices)  # models check whether there are several
    devices = jax.devices()
    if args.topology:
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
        from jax.experimental import topologies

        devices = topologies.get_topology_desc(args.topology, platform="tpu").devices
    dtype = "bfloat16" if args.topology else "float32"
    table, memories, programs = [], [], []
    for name in args.configs:
        for fsdp in args.fsdp or (1, len(devices)):
            program, least, parameters, memory, rows, compile_s = update_of(
                name, fsdp, devices, dtype, args.length, args.keep
            )
            found = read_collectives(program, len(devices))
            if args.topology:
                times = (f"{1000 * seconds:.2f}" for seconds in least)
                programs.append((*program_row(name, fsdp, program), *times))
            table += rows_of(name, fsdp, len(devices), found, parameters)
            sizes = [f"{size / 2**30:.3f}" for size in (*memory.values(), sum(memory.values()))]
            memories.append((name, fsdp, f"{rows:,} x {args.length}", *sizes, f"{compile_s:.0f}"))
    kind = devices[0].device_kind
    print(f"{len(devices)} devices ({kind}), {dtype}, jax {jax.__version__}\n")
    header = ("config", "layout", "collective", "count", "MiB of arrays", "MiB sent per device")
    print(interleaved.markdown_table((*header, "expected"), table))
    header = ("config", "fsdp", "batch", "parameters", "optimizer", "gradients", "temporaries")
    print(f"\n{interleaved.markdown_table((*header, 'total', 'compile time, s'), memories)}")
    if programs:
        header = ("config", "fsdp", "padding in HBM", "in VMEM", "collectives beside computation")
        header += ("computed twice", "ms by products", "ms by bytes")
        print(f"\n{interleaved.markdown_table(header, programs)}")


if __name__ == "__main__":
    main()
