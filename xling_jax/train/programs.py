"""The programs that a run compiles: how many there are, and how long they take."""

import logging
import time
from typing import Any

logger = logging.getLogger(__name__)


class Programs:
    """Counts and times the programs that a run compiles, one per shape of micro-batches.

    With accumulation there are two per shape: the first micro-batch of an update and the others.
    """

    def __init__(self, num_shapes: int, accumulates: bool):
        self._expected = num_shapes * (2 if accumulates else 1)
        self._seconds: list[float] = []
        logger.info(
            "%d programs to compile (%d shapes of micro-batches%s), each when first needed",
            *(self._expected, num_shapes, ", with accumulation two of each" if accumulates else ""),
        )

    def call(self, function: Any, *arguments: Any) -> Any:
        """Calls a jitted function; logs the compilation if there was one."""
        before, start = function._cache_size(), time.monotonic()
        result = function(*arguments)  # returns once compiled; runs in the background
        if function._cache_size() > before:
            self._seconds.append(time.monotonic() - start)
            self._log()
        return result

    def _log(self) -> None:
        done, left = len(self._seconds), max(self._expected - len(self._seconds), 0)
        mean = sum(self._seconds) / done
        line = "program %d of %d compiled in %.1f s; %d more would take %.0f s"
        values = (done, self._expected, self._seconds[-1], left, left * mean)
        # The first tells what to expect, the last what it came to.
        logger.log(logging.INFO if done == 1 or not left else logging.DEBUG, line, *values)
