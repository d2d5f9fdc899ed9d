"""Calls from a run to the program that started it: subclass `Callback`, pass it to `train`."""

from collections.abc import Mapping
from typing import Any


class Callback:
    """Called by a run while it trains; a subclass overrides what it needs.

    Every process calls its own, at the same points. The device waits while one runs, but for
    `on_step`, which must not read results from the device. An exception ends the run, which can
    then be continued from its last checkpoint.
    """

    def on_step(self, step: int, total_steps: int, compiling_s: float) -> None:
        """After update `step` was submitted to the device, having waited for a compilation."""

    def on_log(self, step: int, metrics: Mapping[str, float]) -> None:
        """With the metrics since the last line of the log, as `train/NAME`."""

    def on_evaluation(self, step: int, metrics: Mapping[str, float], encoder_params: Any) -> None:
        """With the metrics of an evaluation, and the parameters (on the devices) it measured."""

    def on_checkpoint(self, step: int) -> None:
        """Before a checkpoint is saved; the metrics up to it are on disk."""

    def on_end(self, step: int, metrics: Mapping[str, float]) -> None:
        """When the run leaves without an error, with the step and the latest evaluation."""
