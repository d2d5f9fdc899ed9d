"""What the devices of a compiled program send each other, read from its HLO text."""

import math
import re
from collections import Counter, defaultdict
from typing import NamedTuple

KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "collective-permute")
_BITS = {"pred": 8, "token": 0}  # other names contain them: f32, bf16, s4, f8e4m3fn

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^(?:ROOT )?%?[\w.-]+ = (.*?) ([a-z][\w-]*)\((.*)$")
_SHAPE = re.compile(r"\b([a-z]\w*)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|\w+_computation)=%?([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_CHAIN = re.compile(r'chain_id="(\d+)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


class Collective(NamedTuple):
    """A collective operation and how often a run of the program executes it.

    Attributes:
        kind: one of `KINDS`.
        shapes: of the whole arrays, in HLO without layout: ("f32[512,512]", …).
        size: of these in bytes: the input of an all-reduce or reduce-scatter, the output of an
            all-gather.
        group: devices that take part.
        count: number of executions.
        looped: whether it is inside a loop, such as that over an LSTM's steps.
    """

    kind: str
    shapes: tuple[str, ...]
    size: int
    group: int
    count: int
    looped: bool

    @property
    def wire_bytes(self) -> float:
        """Bytes a device sends in all executions, with ring algorithms.

        (n − 1) / n of the array; twice that for an all-reduce, which is a reduce-scatter and an
        all-gather; the whole array for a permute.
        """
        share = {"all-reduce": 2.0, "collective-permute": self.group / max(self.group - 1, 1)}
        return self.count * self.size * share.get(self.kind, 1.0) * (1 - 1 / self.group)


def array_bytes(shape: str) -> int:
    """Bytes of an array from its HLO shape, `f32[512,512]`."""
    dtype, sizes = _SHAPE.match(shape).groups()
    bits = _BITS.get(dtype) if dtype in _BITS else int(re.search(r"\d+", dtype)[0])
    return math.prod(int(size) for size in sizes.split(",") if size) * bits // 8


def read_collectives(hlo: str, num_devices: int) -> list[Collective]:
    """All collectives that a device executes, in no particular order, from `compiled.as_text()`.

    Raises:
        ValueError: if the text has no entry computation.
    """
    instructions, entry = _computations(hlo)
    if entry is None:
        raise ValueError("hlo: no ENTRY computation; pass compiled.as_text()")
    found, chains = [], set()

    def walk(computation: str, count: int, looped: bool, scattered: bool) -> None:
        for shape, operation, rest in instructions[computation]:
            kind = operation.removesuffix("-start")
            if kind in KINDS:
                # On TPUs, a collective spans the fusions that overlap with it; each names it.
                if chain := _CHAIN.search(rest):
                    if chain[1] in chains:
                        continue
                    chains.add(chain[1])
                kind = "reduce-scatter" if scattered and kind == "all-reduce" else kind
                found.append(_collective(kind, operation, shape, rest, num_devices, count, looped))
            elif not operation.endswith(("-update", "-done")):
                trips, inside = 1, looped
                if operation == "while":
                    known = _TRIPS.search(rest)
                    trips, inside = int(known[1]) if known else 1, True
                for callee in _called(rest):
                    # On TPUs, a reduce-scatter is a fusion of an all-reduce and a slice.
                    fused = scattered or callee.startswith("all-reduce-scatter")
                    walk(callee, count * trips, inside, fused)

    walk(entry, 1, False, False)
    return found


def _computations(hlo: str) -> tuple[dict[str, list[tuple[str, str, str]]], str | None]:
    """Name -> (shape, operation, rest of the line) of its instructions, and the entry's name."""
    instructions, entry, name = defaultdict(list), None, ""
    for line in hlo.splitlines():
        if header := _COMPUTATION.match(line):
            name = header[2]
            entry = name if header[1] else entry
        elif instruction := _INSTRUCTION.match(line.strip()):
            instructions[name].append(instruction.groups())
    return instructions, entry


def _called(rest: str) -> list[str]:
    branches = " ".join(_BRANCHES.findall(rest))
    return _CALLED.findall(rest) + re.findall(r"%?([\w.-]+)", branches)


def _collective(kind, operation, shape, rest, num_devices, count, looped) -> Collective:
    shapes = [match[0] for match in _SHAPE.finditer(shape)]
    if operation == "all-gather-start":  # operands, then results
        shapes = shapes[len(shapes) // 2 :]
    elif operation == "collective-permute-start":  # operand, result, two numbers
        shapes = shapes[1:2]
    group = num_devices if kind == "collective-permute" else _group_size(rest, num_devices)
    size = sum(map(array_bytes, shapes))
    if operation.startswith("reduce-scatter"):  # the result is one device's part
        size *= group
    return Collective(kind, tuple(shapes), size, group, count, looped)


def _group_size(rest: str, num_devices: int) -> int:
    """Devices of a group, from any of HLO's three ways to write `replica_groups`."""
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", rest):
        return len(listed[1].split(","))
    if iota := re.search(r"replica_groups=\[\d+,(\d+)\]<=", rest):
        return int(iota[1])
    if named := re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", rest):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", named[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", named[2]))
    return num_devices


def summary(collectives: list[Collective]) -> list[tuple[str, int, int, float]]:
    """(kind, executions, bytes of arrays, bytes a device sends) of each kind present."""
    counts, sizes, wire = Counter(), Counter(), Counter()
    for collective in collectives:
        counts[collective.kind] += collective.count
        sizes[collective.kind] += collective.count * collective.size
        wire[collective.kind] += collective.wire_bytes
    return [(kind, counts[kind], sizes[kind], wire[kind]) for kind in KINDS if counts[kind]]
