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

    Attributes:
        seconds: for which the run has waited for compilation so far.
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
        self._started, self._number, self.seconds = time.monotonic(), len(needed), 0.0
        # One at a time on accelerators, where compilers try kernels out on the device, and in
        # several processes, whose compilers may wait for each other and so need the same order.
        alone = jax.process_count() == 1 and jax.default_backend() == "cpu"
        threads = os.cpu_count() if alone else 1
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "xling-compile")
        if needed:
            shapes = counted(len({program.bucket for program in needed}), "batch shape")
            _logger.info("compiling %s for %s", counted(len(needed), "program"), shapes)
        self._waiting: dict[Program, concurrent.futures.Future[None]] = {}
        # The others would hold up the imports of the first step: tracing needs Python's lock.
        self._submit(needed[:1])
        self._later = needed[1:]

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls a function of `Steps`; all but `apply` end with a micro-batch and its index.

        Waits for its program, if that is being compiled; raises `CompilationStopped` if the run is
        to stop meanwhile, before any array is donated.
        """
        self._submit(self._later)
        self._later = ()
        function, start = getattr(self._steps, name), time.monotonic()
        if name == "apply":
            program = next((p for p in self._waiting if p.function == name), None)
        else:
            batch: Mapping[str, Any] = arguments[-2]
            rows, length = batch["source_tokens"].shape
            program = Program(name, Bucket(length, rows), "source_language" in batch)
        known = function._cache_size()
        if compiling := self._waiting.pop(program, None):
            if not compiling.done():
                number = self._number - len(self._waiting)
                _logger.info("waiting for program %d of %d to compile", number, self._number)
            while not concurrent.futures.wait([compiling], timeout=_POLL_S).done:
                if self._should_stop():
                    raise CompilationStopped
            compiling.result()
        result = function(*arguments)  # returns once compiled; runs in the background
        if function._cache_size() > known:
            self._number += compiling is None
            self.seconds += time.monotonic() - start
            if not self._waiting:
                done, elapsed_s = counted(self._number, "program"), time.monotonic() - self._started
                line = "%s compiled after %.1f s; waited %.1f s for them"
                _logger.info(line, done, elapsed_s, self.seconds)
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
