"""The programs that a run compiles: how many there are, and how long they take."""

import logging
import time
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger(__name__)


class Programs:
    """Counts and times the programs that a run compiles, one per shape of micro-batches.

    With accumulation there are two per shape: the first micro-batch of an update and the others.
    """

    def __init__(self, num_shapes: int, accumulates: bool):
        self._expected = num_shapes * (2 if accumulates else 1)
        self._seconds: list[float] = []
        self._known: set[tuple] = set()  # functions and shapes that were called
        logger.info(
            "%d programs to compile (%d shapes of micro-batches%s), each when first needed",
            *(self._expected, num_shapes, ", with accumulation two of each" if accumulates else ""),
        )

    @property
    def seconds(self) -> float:
        """Time spent on compiling so far."""
        return sum(self._seconds)

    def call(self, function: Any, *arguments: Any) -> Any:
        """Calls a jitted function, whose last arguments are a micro-batch and its index.

        Says so before one is compiled, because that takes long.
        """
        batch: Mapping[str, Any] = arguments[-2]
        key = (function, *(array.shape for array in batch.values()))
        if key not in self._known:
            self._known.add(key)
            number = min(len(self._seconds) + 1, self._expected)
            logger.info("compiling program %d of %d", number, self._expected)
        before, start = function._cache_size(), time.monotonic()
        result = function(*arguments)  # returns once compiled; runs in the background
        if function._cache_size() > before:
            self._seconds.append(time.monotonic() - start)
            self._log()
        return result

    def _log(self) -> None:
        done, left = len(self._seconds), max(self._expected - len(self._seconds), 0)
        # The first tells what to expect, the last what it came to.
        if done == 1 and left:
            line = "program 1 of %d compiled in %.1f s; %d more would take %.0f s"
            logger.info(line, self._expected, self.seconds, left, left * self.seconds)
        elif not left:
            logger.info("%d programs compiled, %.1f s in all", done, self.seconds)
