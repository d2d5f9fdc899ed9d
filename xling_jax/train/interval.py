"""Sums of the updates since the last line of metrics, read from the device a step late."""

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from xling_jax.train import flops
from xling_jax.train.metrics import means


class Interval:
    """Sums of the updates since the last log line.

    Args:
        describe: step -> what that update was trained on, for the error of one that is not finite.
        progress: what `progress` gave when the run was stopped within an interval, so that its
            line says the same as if the run had gone on.
    """

    def __init__(self, describe: Callable[[int], str], progress: Mapping[str, Any] | None = None):
        self._describe = describe
        self._waiting: tuple[int, Any] | None = None
        self.restart()
        if progress:
            self._sums.update(progress["sums"])
            self._updates, self._padded_tokens = progress["updates"], progress["padded_tokens"]
            # Speed is that of this process alone.
            self._before = self._totals()

    def restart(self) -> None:
        """Begins a new interval."""
        self._sums: Counter[str] = Counter()
        self._before: Counter[str] = Counter()
        self._updates, self._flops, self._padded_tokens = 0, 0, 0
        self._started, self._paused = time.perf_counter(), 0.0

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """The time of a block does not count as training."""
        started = time.perf_counter()
        yield
        self._paused += time.perf_counter() - started

    def _totals(self) -> Counter[str]:
        totals = {name: self._sums[name] for name in ("tokens", "sentences")}
        return Counter(totals | {"steps": self._updates})

    def progress(self) -> dict[str, Any]:
        """JSON-like; what the constructor takes to go on from here. Call `drain` before."""
        sums = dict(self._sums)
        return {"sums": sums, "updates": self._updates, "padded_tokens": self._padded_tokens}

    def add(self, step: int, sums: Any, *, flops: int, padded_tokens: int) -> None:
        """Takes the sums of update `step`, still on the device; reads those of the one before.

        Args:
            step: its number.
            sums: of losses and counts, on the device.
            flops: of its matrix products.
            padded_tokens: of both sides of its batches.

        Raises:
            FloatingPointError: if the loss or the gradient of the update before is not finite.
        """
        self._flops += flops
        self._padded_tokens += padded_tokens
        waiting, self._waiting = self._waiting, (step, sums)
        self._read(waiting)

    def drain(self) -> None:
        """Reads the sums of the latest update; waits for it. Raises as `add`."""
        self._read(self._waiting)
        self._waiting = None

    def _read(self, waiting: tuple[int, Any] | None) -> None:
        if waiting is None:
            return
        step, sums = waiting[0], jax.device_get(waiting[1])
        if not (math.isfinite(sums["loss"]) and math.isfinite(sums["gradient_norm"])):
            raise FloatingPointError(
                f"step {step}: loss {sums['loss']}, gradient norm {sums['gradient_norm']} "
                f"on {self._describe(step)}"
            )
        self._sums.update({name: float(value) for name, value in sums.items()})
        self._updates += 1

    def metrics(self, num_devices: int, peak: float) -> dict[str, float]:
        """Means of the interval, speed and utilisation, as `train/NAME`."""
        seconds = max(time.perf_counter() - self._started - self._paused, 1e-9)
        values = means(self._sums)
        values["gradient_norm"] = self._sums["gradient_norm"] / self._updates
        for name, total in self._totals().items():
            values[f"{name}_per_second"] = (total - self._before[name]) / seconds
        values["padding_efficiency"] = self._sums["tokens"] / self._padded_tokens
        values["mfu"] = flops.utilisation(self._flops, seconds, num_devices, peak)
        return {f"train/{name}": value for name, value in values.items()}
