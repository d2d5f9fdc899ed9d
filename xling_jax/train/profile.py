"""A trace of a few updates, for XProf and Perfetto."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from xling_jax.files.progress import counted

_logger = logging.getLogger(__name__)


class Profile:
    """Traces updates `steps[0]` to `steps[1]` into `W/profile`; nothing without steps.

    A run that ends or is stopped between them writes what it has.
    """

    def __init__(self, steps: Sequence[int], workdir: str | os.PathLike):
        self._first, self._last = steps or (0, 0)
        self._directory = Path(workdir) / "profile"
        self._is_tracing, self._latest = False, 0

    def begin(self, step: int) -> None:
        """Starts the trace if `step`, about to be submitted to the device, is its first update."""
        self._latest = step
        if step == self._first:
            first = jax.process_index() == 0
            jax.profiler.start_trace(str(self._directory), create_perfetto_trace=first)
            self._is_tracing = True

    def end(self, step: int, results: Any) -> None:
        """Writes the trace if `step` is its last update; waits for its results."""
        if self._is_tracing and step == self._last:
            jax.block_until_ready(results)
            self.close()

    def close(self) -> None:
        """Writes a trace that was begun."""
        if self._is_tracing:
            self._is_tracing = False
            jax.profiler.stop_trace()
            updates = counted(self._latest - self._first + 1, "update")
            _logger.info("trace of %s from %d: %s", updates, self._first, self._directory)
