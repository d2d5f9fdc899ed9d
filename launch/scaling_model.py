"""A model of update times on TPU v5e-256 and 8 x H100, and the plan of a search in 2 billion rows.

    python launch/scaling_model.py training
    python launch/scaling_model.py search

Prints the tables of docs/scaling.md. Nothing is measured here: parameters and FLOPs are counted
from the configs, exchanges as compiled programs have them (benchmarks/collectives.py), rates are
those the vendors publish, and how much of them is reached is assumed, `REACHED` below.
"""

import argparse
import dataclasses
from collections.abc import Sequence

SENTENCE = 32  # tokens of a sentence, padding included
STEP_OVERHEAD_S = 10e-6  # of an iteration of a loop over time steps, beside its products


@dataclasses.dataclass(frozen=True)
class Machine:
    """What the vendor publishes of one, per device unless said; hosts and theirs are assumed.

    Attributes:
        name: of the machine.
        devices: of all hosts.
        hosts: machines that hold them.
        bfloat16_flops: dense peak, FLOP/s.
        float32_flops: peak of a float32 product at full precision (a TPU makes it of six bfloat16
            products).
        memory: bytes.
        memory_rate: bytes/s to and from it.
        link_rate: bytes/s to other devices, one way.
        host_memory: bytes of a host.
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
    """Shares of the published rates that are assumed to be reached."""

    products: float = 0.4
    memory: float = 0.8
    links: float = 0.7
    search_products: float = 0.5
    host_to_devices: float = 16e9  # bytes/s of a host to each of its devices, at the same time


REACHED = Reached()


@dataclasses.dataclass(frozen=True)
class Update:
    """What an update of a config consists of, for a whole batch.

    Attributes:
        name: of the config.
        rows: sentence pairs.
        parameters: their number.
        flops: of forward and backward products.
        gathered: bytes of the whole parameters as FSDP devices send them to each other.
        reduced: bytes of the whole gradients as devices send them; that of a table with two uses
            is sent for each.
        state_arrays: of the optimizer, each as large as the parameters.
        recurrent: bytes of the matrices of each recurrence, in bfloat16.
        vectors: bytes of the sentence vectors that all devices compare.
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


# Config, rows that are published (None: data.max_tokens and accumulation_steps), larger batches.
BATCHES = {
    "t_laser.py": (4096, 32768),
    "ct_laser": (4096, 32768),
    "laser": (4096, 32768),
    "laser:layers=6": (4096, 32768),
    "similarity_loss": (4096, 32768),
    "lightweight": (128, 4096, 32768),
    "static": (1024, 32768),
}


def make_update(name: str, rows: int) -> Update:
    """Counts the update of a config of `configs/` at its published size; nothing runs."""
    from flax.traverse_util import flatten_dict

    from xling_jax.config import load_config
    from xling_jax.train.batching import Bucket
    from xling_jax.train.build import build
    from xling_jax.train.dry_run import abstract_batch
    from xling_jax.train.flops import FlopsByShape
    from xling_jax.train.state import count_parameters

    config = load_config(name)
    config.compute_dtype = "bfloat16"
    built = build(config)
    model, params = built.objective.setting.model, built.shapes.params
    both = any(direction.both for direction in built.data.directions())
    batch = abstract_batch(Bucket(SENTENCE, rows), both)
    sizes = {path: leaf.size for path, leaf in flatten_dict(params).items()}
    tables = sum(size for path, size in sizes.items() if path[-1].endswith("embedding"))
    outputs = sum(size for path, size in sizes.items() if path[-1] == "output_embedding")
    tied = model.head is not None and config.head.tie_embeddings
    twice = sizes["encoder", "embedding"] if tied else 0
    count = count_parameters(params)
    recurrences: dict[tuple[str, ...], float] = {}
    for path, size in sizes.items():
        if path[-1] in ("recurrent_kernel", "feed_kernel"):
            recurrences[path[:-1]] = recurrences.get(path[:-1], 0) + 2.0 * size
    compared = {"alignment", "distance"} & built.objective.terms.keys()
    return Update(
        name=name,
        rows=rows,
        parameters=count,
        flops=FlopsByShape(built.objective, params)(batch),
        # As compiled for a TPU: tokens are looked up in float32 tables, products are of bfloat16
        # copies, and so are their gradients but those of tables.
        gathered=2.0 * count + 2.0 * (tables - outputs),
        reduced=2.0 * count + 2.0 * tables + 4.0 * twice,
        state_arrays=3 if config.optimizer.name == "amsgrad" else 2,
        recurrent=tuple(recurrences.values()),
        vectors=2 * 4.0 * rows * model.encoder.dim if compared else 0.0,
    )


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds of an update on every device of a machine."""

    products: float
    recurrence: float
    optimizer: float
    exchange: float

    @property
    def apart(self) -> float:
        """One after the other."""
        return self.products + self.recurrence + self.optimizer + self.exchange

    @property
    def overlapped(self) -> float:
        """With the exchange hidden behind the products as far as they last."""
        return self.optimizer + max(self.products + self.recurrence, self.exchange)


def model_times(update: Update, machine: Machine, fsdp: bool) -> Times:
    """The model: work over rate, devices alike, the batch split evenly.

        products    max(FLOPs / devices / (peak · share), three readings of bfloat16 weights)
        recurrence  2 · steps · Σ_layers max(matrices / memory rate, overhead of an iteration)
        optimizer   reading parameters, gradients and state and writing all but gradients
        exchange    ring: (n − 1) / n of an array; an all-reduce twice that

    Args:
        update: from `make_update`.
        machine: one of `MACHINES`.
        fsdp: parameters split over all devices, else a copy on each.
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
    """Sentence pairs of a device whose products take as long as the exchange of parameters."""
    times = model_times(dataclasses.replace(update, vectors=0.0), machine, fsdp)
    flops_of_row = update.flops / update.rows
    return times.exchange * machine.bfloat16_flops * REACHED.products / flops_of_row


def training_tables() -> None:
    """Prints what updates consist of, their modelled times and where exchange dominates."""
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
        print(f"\n{machine.name}, modelled:\n")
        header = ("config", "pairs", "layout", "products", "recurrence", "optimizer", "exchange")
        print_table((*header, "ms apart", "ms overlapped", "pairs/s"), rows)
    rows = []
    for name, (*_, update) in updates.items():
        numbers = []
        for machine in MACHINES:
            for fsdp in (False, True):
                each = break_even_rows(update, machine, fsdp)
                numbers.append(f"{each:,.0f} ({each * machine.devices:,.0f})")
        rows.append((name, *numbers))
    print("\nPairs a device (in all) below which the exchange takes longer than the products:\n")
    layouts = [f"{machine.name}, {layout}" for machine in MACHINES for layout in ("copies", "FSDP")]
    print_table(("config", *layouts), rows)


def _times_row(update: Update, machine: Machine, fsdp: bool) -> tuple[str, ...]:
    times = model_times(update, machine, fsdp)
    parts = (*dataclasses.astuple(times), times.apart, times.overlapped)
    return (
        update.name,
        f"{update.rows:,}",
        "FSDP" if fsdp else "copies",
        *(f"{1e3 * seconds:,.1f}" for seconds in parts),
        f"{update.rows / times.overlapped:,.0f}",
    )


@dataclasses.dataclass(frozen=True)
class Search:
    """A search on a machine, each block of keys split over all its devices.

    Attributes:
        keys_of_device: rows of a block on a device.
        blocks: all keys are gone through in.
        host_bytes: a host reads and moves to each of its devices: queries once a block, keys once.
        host_seconds: that takes.
        seconds: of the products at full float32 precision, as `align.knn` computes them.
        bfloat16_seconds: of the same products in bfloat16, as it does not.
    """

    keys_of_device: int
    blocks: int
    host_bytes: float
    host_seconds: float
    seconds: float
    bfloat16_seconds: float


def plan_search(queries: int, keys: int, dim: int, machine: Machine, memory_mb: float) -> Search:
    """The arithmetic of `align.knn.top_k(backend="jax", devices=jax.devices())`.

    Args:
        queries: rows to search for.
        keys: rows to search in.
        dim: of a row.
        machine: one of `MACHINES`.
        memory_mb: of `top_k`, for each device.
    """
    block_row = 2 * 4 * dim  # a block in use and the next on its way have half of the memory
    largest = int(memory_mb * 2**20 / 2 // block_row)
    blocks = -(-keys // (largest * machine.devices))
    flops = 2.0 * queries * keys * dim / machine.devices / REACHED.search_products
    host_bytes = 4.0 * dim * (queries * blocks + keys / machine.devices)
    return Search(
        keys_of_device=-(-keys // (blocks * machine.devices)),
        blocks=blocks,
        host_bytes=host_bytes,
        host_seconds=host_bytes / REACHED.host_to_devices,
        seconds=flops / machine.float32_flops,
        bfloat16_seconds=flops / machine.bfloat16_flops,
    )


def search_tables(keys: int = 2_000_000_000, dim: int = 1024) -> None:
    """Prints where 2 billion vectors fit and how long searching them takes."""
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
        print(f"\n{machine.name}, memory_mb={memory_mb:,.0f}, modelled:\n")
        header = ("queries", "FLOP", "keys of a device's block", "blocks", "TB to each device")
        print_table((*header, "moving them", "float32 products", "bfloat16 products"), rows)


def duration(seconds: float) -> str:
    """A time for a person."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.1f} s"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a Markdown table, numbers to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    print("\n".join("| " + " | ".join(line) + " |" for line in lines))


def main() -> None:
    """Reads the arguments and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", choices=("training", "search"))
    {"training": training_tables, "search": search_tables}[parser.parse_args().tables]()


if __name__ == "__main__":
    main()
