"""The programs of a run, one per function and shape of micro-batches, compiled ahead of their use.

A program takes seconds to minutes to compile, most of it outside of Python: threads do it in the
order of need, while the run reads its checkpoint, opens its data and trains.
"""

import concurrent.futures
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xling_jax.files.progress import counted
from xling_jax.train.batches import TranslationBatches
from xling_jax.train.batching import Bucket
from xling_jax.train.mesh import batch_sharding
from xling_jax.train.objective import Objective
from xling_jax.train.state import TrainState
from xling_jax.train.step import Steps

_logger = logging.getLogger(__name__)

# Micro-batches among which to look for the shapes of a run; one that comes later is compiled then.
_LOOK_AHEAD = 4096
# Between looks whether the run is to stop, in seconds.
_POLL_S = 0.2


class Program(NamedTuple):
    """One of the functions of `Steps`, for micro-batches of one bucket and direction.

    For `apply`, which has no micro-batch, the bucket is any.
    """

    function: str
    bucket: Bucket
    both: bool = False


def needed_programs(
    batches: TranslationBatches, accumulation_steps: int, start: int, stop: int
) -> list[Program]:
    """The programs of updates start + 1 .. stop, in the order of their first use.

    With accumulation there are two per shape, for the first micro-batch of an update and for the
    others, and one for the optimizer.
    """
    needed: dict[Program, None] = {}
    plan, several = batches.plan, accumulation_steps > 1
    most = len(plan.shapes) * (2 if several else 1) + several
    first, last = start * accumulation_steps, stop * accumulation_steps
    for index in range(first, min(last, first + _LOOK_AHEAD)):
        entry, position = plan[index], index % accumulation_steps
        function = ("more" if position else "first") if several else "train"
        needed[Program(function, entry.bucket, batches.directions[entry.pair].both)] = None
        if several and index == first + accumulation_steps - 1:
            needed[next(iter(needed))._replace(function="apply")] = None
        if len(needed) == most:
            break
    return list(needed)


class CompilationStopped(Exception):
    """The run is to stop, and would have waited for a program to compile."""


class Programs:
    """Compiles the programs that `needed_programs` lists in threads, and calls them.

    `targets` are shapes and shardings of the state; `should_stop` ends waiting for a program.
    """

    def __init__(
        self,
        steps: Steps,
        objective: Objective,
        targets: TrainState,
        needed: Sequence[Program],
        should_stop: Callable[[], bool] = lambda: False,
    ):
        self._should_stop = should_stop
        self._steps, self._objective, self._targets = steps, objective, targets
        self._started, self._known, self._waited_s = time.monotonic(), set(needed), 0.0
        self._apply = next((p for p in needed if p.function == "apply"), None)
        # One at a time on accelerators, where compilers try kernels out on the device, and in
        # several processes, whose compilers may wait for each other and so need the same order.
        alone = jax.process_count() == 1 and jax.default_backend() == "cpu"
        threads = os.cpu_count() if alone else 1
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "xling-compile")
        if needed:
            shapes = len({program.bucket for program in needed})
            _logger.info(
                "compiling %s for %s",
                counted(len(needed), "program"),
                counted(shapes, "batch shape"),
            )
        self._waiting: dict[Program, concurrent.futures.Future[None]] = {}
        # The others would hold up the imports of the first step: tracing needs Python's lock.
        self._submit(needed[:1])
        self._later = needed[1:]

    @property
    def seconds(self) -> float:
        """Time for which the run has waited for compilation so far."""
        return self._waited_s

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls a function of `Steps`; all but `apply` end with a micro-batch and its index.

        Waits for its program, if that is being compiled; raises `CompilationStopped` if the run is
        to stop meanwhile, before any array is donated.
        """
        self._submit(self._later)
        self._later = ()
        function, program = getattr(self._steps, name), self._apply
        if name != "apply":
            batch: Mapping[str, Any] = arguments[-2]
            rows, length = batch["source_tokens"].shape
            program = Program(name, Bucket(length, rows), "source_language" in batch)
        before, start = function._cache_size(), time.monotonic()
        if compiling := self._waiting.pop(program, None):
            if not compiling.done():
                number = len(self._known) - len(self._waiting)
                _logger.info("waiting for program %d of %d to compile", number, len(self._known))
            while not concurrent.futures.wait([compiling], timeout=_POLL_S).done:
                if self._should_stop():
                    raise CompilationStopped
            compiling.result()
        result = function(*arguments)  # returns once compiled; runs in the background
        if function._cache_size() > before:
            self._known.add(program)
            self._waited_s += time.monotonic() - start
            if not self._waiting:
                facts = (
                    counted(len(self._known), "program"),
                    time.monotonic() - self._started,
                    self._waited_s,
                )
                _logger.info("%s compiled after %.1f s; waited %.1f s for them", *facts)
        return result

    def _submit(self, programs: Sequence[Program]) -> None:
        for program in programs:
            self._waiting[program] = self._pool.submit(self._compile, program)

    def __enter__(self) -> "Programs":
        return self

    def __exit__(self, *_: object) -> None:
        """Gives up the programs that no thread has begun to compile."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compile(self, program: Program) -> None:
        arguments = abstract_arguments(self._steps, self._objective, self._targets, program)
        getattr(self._steps, program.function).lower(*arguments).compile()


def abstract_arguments(
    steps: Steps, objective: Objective, state: TrainState, program: Program
) -> tuple[Any, ...]:
    """Arguments for the function of a program, as shapes; `state` has shardings as well."""
    # With shardings as arrays have them, so that a call finds what was compiled.
    rows = batch_sharding(state.step.sharding.mesh)
    batch = jax.tree.map(
        lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=rows),
        objective.abstract_batch(program.bucket, program.both),
    )
    index = jax.ShapeDtypeStruct((), jnp.int32)
    if program.function in ("train", "first"):
        return state, batch, index
    accumulator = jax.eval_shape(steps.first, state, batch, index)
    if program.function == "apply":
        return state, accumulator
    return accumulator, state, batch, index
