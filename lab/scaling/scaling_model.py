"""Models update times on TPU v5e-256 and 8 x H100, and a search in 2 billion rows.

    python lab/scaling/scaling_model.py training
    python lab/scaling/scaling_model.py search

Prints the tables of lab/scaling/README.md. Nothing is measured: parameters and FLOPs are counted
from the configs, communication is modeled on compiled programs (benchmarks/collectives.py), rates
are those that vendors publish, and the utilization is assumed (`REACHED` below).
"""

import argparse
import dataclasses
from collections.abc import Sequence

SENTENCE = 32  # tokens of a sentence, padding included
SEARCH_CANDIDATES = 16  # kept of a device's keys: 4 neighbors, and 12 to prove that they are these
STEP_OVERHEAD_S = 10e-6  # per iteration of a loop over time steps, besides its products


@dataclasses.dataclass(frozen=True)
class Machine:
    """Published specifications, per device unless stated; those of hosts are assumed.

    Attributes:
        name: of the machine.
        devices: number over all hosts.
        hosts: number of machines that hold them.
        bfloat16_flops: dense peak, FLOP/s.
        float32_flops: peak of a float32 product at full precision (on a TPU, six bfloat16
            products).
        memory: bytes.
        memory_rate: memory bandwidth, bytes/s.
        link_rate: bytes/s to other devices, in one direction.
        host_memory: bytes per host.
    """

    name: str
    devices: int
    hosts: int
    bfloat16_flops: float
    float32_flops: float
    memory: float
    memory_rate: float
    link_rate: float
    host_memory: float


# Google Cloud, "TPU v5e": 197 TFLOP/s, 16 GB, 819 GB/s, 1,600 Gbit/s between chips; hosts of four.
# NVIDIA, H100 SXM data sheet: 989 and 67 TFLOP/s, 80 GB, 3.35 TB/s, NVLink 900 GB/s both ways.
MACHINES = (
    Machine("v5e-256", 256, 64, 197e12, 197e12 / 6, 16e9, 819e9, 200e9, 192e9),
    Machine("8 x H100", 8, 1, 989e12, 67e12, 80e9, 3.35e12, 450e9, 2e12),
)


@dataclasses.dataclass(frozen=True)
class Reached:
    """Assumed utilization, as shares of the published rates."""

    products: float = 0.4
    memory: float = 0.8
    links: float = 0.7
    search_products: float = 0.5
    host_to_devices: float = 16e9  # bytes/s from a host to each of its devices at once


REACHED = Reached()
LAYOUTS = ("replicated", "FSDP")


@dataclasses.dataclass(frozen=True)
class Update:
    """The work of one update of a config, for a whole batch.

    Attributes:
        name: of the config.
        rows: number of sentence pairs.
        parameters: number of parameters.
        flops: of the matrix products, forward and backward.
        gathered: bytes of all parameters in the types in which FSDP devices send them.
        reduced: bytes of all gradients in the types in which devices send them.
        state_arrays: number of optimizer state arrays, each as large as the parameters.
        recurrent: bytes of the matrices of each recurrence, in bfloat16.
        vectors: bytes of the sentence vectors compared across devices.
    """

    name: str
    rows: int
    parameters: int
    flops: float
    gathered: float
    reduced: float
    state_arrays: int
    recurrent: tuple[float, ...]
    vectors: float


# Config: published number of rows (4096 for token batches with accumulation), then larger batches.
BATCHES = {
    "t_laser": (4096, 32768),
    "ct_laser": (4096, 32768),
    "laser": (4096, 32768),
    "laser:layers=6": (4096, 32768),
    "similarity_loss": (4096, 32768),
    "lightweight": (128, 4096, 32768),
    "static": (1024, 32768),
}


def make_update(name: str, rows: int) -> Update:
    """Counts the update of a config at its published size; nothing runs."""
    from flax.traverse_util import flatten_dict

    from xling_jax.config import load
    from xling_jax.train.batch_plan import Bucket
    from xling_jax.train.dry_run import gradient_flops
    from xling_jax.train.step import count_parameters
    from xling_jax.train.training import resolve

    experiment = load(name).replace({"compute_dtype": "bfloat16"})
    training = resolve(experiment)
    model, params = training.objective.context.model, training.shapes.params
    both = any(direction.both for direction in experiment.data.directions())
    batch = training.objective.abstract_batch(Bucket(SENTENCE, rows), both)
    sizes = {path: leaf.size for path, leaf in flatten_dict(params).items()}
    tables = sum(size for path, size in sizes.items() if path[-1].endswith("embedding"))
    outputs = sum(size for path, size in sizes.items() if path[-1] == "output_embedding")
    count = count_parameters(params)
    recurrences: dict[tuple[str, ...], float] = {}
    for path, size in sizes.items():
        if path[-1] in ("recurrent_kernel", "feed_kernel"):
            recurrences[path[:-1]] = recurrences.get(path[:-1], 0) + 2.0 * size
    compared = {"alignment", "distance"} & training.objective.terms.keys()
    return Update(
        name=name,
        rows=rows,
        parameters=count,
        flops=gradient_flops(training.objective, params, batch),
        # As compiled for a TPU: tokens are looked up in float32 tables; products and their
        # gradients use bfloat16 copies, except for the gradients of tables.
        gathered=2.0 * count + 2.0 * (tables - outputs),
        reduced=2.0 * count + 2.0 * tables,
        state_arrays=3 if experiment.optimizer["name"] == "amsgrad" else 2,
        recurrent=tuple(recurrences.values()),
        vectors=2 * 4.0 * rows * model.encoder.dim if compared else 0.0,
    )


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds of an update."""

    products: float
    recurrence: float
    optimizer: float
    exchange: float

    @property
    def apart(self) -> float:
        """Everything in sequence."""
        return self.products + self.recurrence + self.optimizer + self.exchange

    @property
    def overlapped(self) -> float:
        """With communication hidden behind the products as long as they last."""
        return self.optimizer + max(self.products + self.recurrence, self.exchange)


def model_times(update: Update, machine: Machine, fsdp: bool) -> Times:
    """The model: work over rate, with equal devices and the batch split evenly.

        products    max(FLOPs / devices / (peak · share), reading bfloat16 weights three times)
        recurrence  2 · steps · Σ_layers max(matrices / memory rate, overhead of an iteration)
        optimizer   reading parameters, gradients and state, writing all but gradients
        exchange    ring: (n − 1) / n of an array; twice that for an all-reduce

    Args:
        update: from `make_update`.
        machine: one of `MACHINES`.
        fsdp: whether parameters are sharded over all devices, rather than replicated.
    """
    ring = (machine.devices - 1) / machine.devices
    memory_rate = machine.memory_rate * REACHED.memory
    flops = machine.bfloat16_flops * REACHED.products
    products = max(update.flops / machine.devices / flops, 3 * 2 * update.parameters / memory_rate)
    steps = [max(size / memory_rate, STEP_OVERHEAD_S) for size in update.recurrent]
    state = 4 * update.parameters * (3 + 2 * update.state_arrays)
    sent = update.gathered + update.reduced if fsdp else 2 * update.reduced
    return Times(
        products=products,
        recurrence=2 * SENTENCE * sum(steps),
        optimizer=state / (machine.devices if fsdp else 1) / memory_rate,
        exchange=ring * (sent + 2 * update.vectors) / (machine.link_rate * REACHED.links),
    )


def break_even_rows(update: Update, machine: Machine, fsdp: bool) -> float:
    """Sentence pairs per device at which products take as long as communicating parameters."""
    times = model_times(dataclasses.replace(update, vectors=0.0), machine, fsdp)
    flops_of_row = update.flops / update.rows
    return times.exchange * machine.bfloat16_flops * REACHED.products / flops_of_row


def training_tables() -> None:
    """Prints the work of updates, their modeled times, and where communication dominates."""
    updates = {name: [make_update(name, r) for r in rows] for name, rows in BATCHES.items()}
    rows = []
    for name, (update, *_) in updates.items():
        state = 4 * update.parameters * (2 + update.state_arrays)
        numbers = (update.parameters / 1e6, state / 1e9, state / 8e9, state / 256e9)
        numbers = [f"{number:,.2f}" for number in numbers]
        flops = f"{update.flops / 1e12:,.2f}"
        rows.append((name, f"{update.rows:,}", *numbers, flops))
    header = ("config", "pairs", "million parameters", "state GB", "over 8", "over 256", "TFLOP")
    print_table(header, rows)
    for machine in MACHINES:
        rows = []
        for update in (update for of_config in updates.values() for update in of_config):
            if update.rows < machine.devices:
                continue
            for fsdp in (False, True):
                rows.append(_times_row(update, machine, fsdp))
        print(f"\n{machine.name}, modeled:\n")
        header = ("config", "pairs", "layout", "products", "recurrence", "optimizer")
        header += ("communication", "ms sequential", "ms overlapped", "pairs/s")
        print_table(header, rows)
    rows = []
    for name, (*_, update) in updates.items():
        numbers = []
        for machine in MACHINES:
            for fsdp in (False, True):
                each = break_even_rows(update, machine, fsdp)
                numbers.append(f"{each:,.0f} ({each * machine.devices:,.0f})")
        rows.append((name, *numbers))
    print("\nPairs per device (total) below which communication takes longer than the products:\n")
    layouts = [f"{machine.name}, {layout}" for machine in MACHINES for layout in LAYOUTS]
    print_table(("config", *layouts), rows)


def _times_row(update: Update, machine: Machine, fsdp: bool) -> tuple[str, ...]:
    times = model_times(update, machine, fsdp)
    parts = (*dataclasses.astuple(times), times.apart, times.overlapped)
    return (
        update.name,
        f"{update.rows:,}",
        LAYOUTS[fsdp],
        *(f"{1e3 * seconds:,.1f}" for seconds in parts),
        f"{update.rows / times.overlapped:,.0f}",
    )


@dataclasses.dataclass(frozen=True)
class Search:
    """A search on a machine, with each block of keys split over all devices.

    Attributes:
        keys_of_device: rows of a block per device.
        blocks: number of blocks of keys.
        host_bytes: bytes a host sends to each of its devices: queries once per block, keys once.
        host_seconds: time for sending them.
        seconds: time for the products at full float32 precision, as computed by `align.knn`.
        bfloat16_seconds: time for the same products in bfloat16, which is not implemented.
    """

    keys_of_device: int
    blocks: int
    host_bytes: float
    host_seconds: float
    seconds: float
    bfloat16_seconds: float


def plan_search(queries: int, keys: int, dim: int, machine: Machine, memory_mb: float) -> Search:
    """Models `align.knn.top_k(backend="jax", devices=jax.devices())`.

    Args:
        queries: number of rows to search for.
        keys: number of rows to search in.
        dim: dimensions of a row.
        machine: one of `MACHINES`.
        memory_mb: as for `top_k`, per device.
    """
    from xling_jax.align.knn_jax import Blocks

    sizes = (queries, keys), dim, SEARCH_CANDIDATES
    keys_of_device = Blocks.fitting(*sizes, machine.devices, memory_mb * 2**20).keys
    blocks = -(-keys // (keys_of_device * machine.devices))
    flops = 2.0 * queries * keys * dim / machine.devices / REACHED.search_products
    host_bytes = 4.0 * dim * (queries * blocks + keys / machine.devices)
    return Search(
        keys_of_device=keys_of_device,
        blocks=blocks,
        host_bytes=host_bytes,
        host_seconds=host_bytes / REACHED.host_to_devices,
        seconds=flops / machine.float32_flops,
        bfloat16_seconds=flops / machine.bfloat16_flops,
    )


def search_tables(keys: int = 2_000_000_000, dim: int = 1024) -> None:
    """Prints how many machines hold 2 billion vectors and how long a search takes."""
    rows = []
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        held = [f"{keys * dim * size / (0.75 * machine.memory):,.0f}" for machine in MACHINES]
        hosts = [f"{keys * dim * size / (0.75 * m.host_memory):,.0f}" for m in MACHINES]
        rows.append((dtype, f"{keys * dim * size / 1e12:.2f}", *held, *hosts))
    names = ("v5e chips", "H100s", "hosts of 192 GB", "hosts of 2 TB")
    print_table(("", "TB", *names), rows)
    for machine in MACHINES:
        memory_mb = 0.5 * machine.memory / 2**20
        rows = []
        for queries in (2_000, 1_000_000, 100_000_000, 1_000_000_000):
            plan = plan_search(queries, keys, dim, machine, memory_mb)
            rows.append(
                (
                    f"{queries:,}",
                    f"{2.0 * queries * keys * dim:.1e}",
                    f"{plan.keys_of_device:,}",
                    f"{plan.blocks:,}",
                    f"{plan.host_bytes / 1e12:,.2f}",
                    duration(plan.host_seconds),
                    duration(plan.seconds),
                    duration(plan.bfloat16_seconds),
                )
            )
        print(f"\n{machine.name}, memory_mb={memory_mb:,.0f}, modeled:\n")
        header = ("queries", "FLOP", "keys per device and block", "blocks", "TB to each device")
        print_table((*header, "transfer", "float32 products", "bfloat16 products"), rows)


def duration(seconds: float) -> str:
    """Formats a duration."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.1f} s"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a Markdown table with right-aligned numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    print("\n".join("| " + " | ".join(line) + " |" for line in lines))


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", choices=("training", "search"))
    {"training": training_tables, "search": search_tables}[parser.parse_args().tables]()


if __name__ == "__main__":
    main()
