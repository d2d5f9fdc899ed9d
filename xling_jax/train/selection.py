"""Metrics that choose: which values are better, and when a run no longer improves."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any


def score(value: float, goal: str) -> float:
    """A value such that higher is better; one that is not finite is worse than all others.

    `goal` is `max` or `min`, whichever of the values is better.
    """
    if not math.isfinite(value):
        return -math.inf
    return _rounded(value if goal == "max" else -value)


def _rounded(value: float) -> float:
    """In 9 digits, as in `metrics.jsonl`: of equal means the last bits may differ."""
    return float(f"{value:.8e}")


@dataclasses.dataclass
class EarlyStopping:
    """Ends a run when a metric no longer improves; "" as metric never ends it.

    An evaluation ends the run if the last improvement is at least `patience` updates ago. An
    improvement beats the best value so far by more than `min_improvement`; a value that is not
    finite never does. `progress`, from a checkpoint, is ignored if it is of another metric.
    """

    metric: str
    goal: str = "max"
    patience: int = 0
    min_improvement: float = 0.0
    progress: dataclasses.InitVar[Mapping[str, Any] | None] = None

    def __post_init__(self, progress: Mapping[str, Any] | None):
        self._state = {"metric": self.metric, "best": None, "step": 0, "ended": 0}
        if progress and progress["metric"] == self.metric:
            self._state |= progress

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Takes the metrics of an evaluation at a step."""
        if not self.metric:
            return
        value, best = float(metrics[self.metric]), self._state["best"]
        gain = score(value, self.goal) - (-math.inf if best is None else score(best, self.goal))
        if _rounded(gain) > self.min_improvement:  # not so for nan, which -inf minus -inf is
            self._state |= {"best": value, "step": step}
        self._state["ended"] = step if self._is_over(step) else 0

    def _is_over(self, step: int) -> bool:
        return step - self._state["step"] >= self.patience

    @property
    def reason(self) -> str:
        """Why the run is over, "" if it is not.

        A run that ended goes on if it is started again with options that would not have ended it.
        """
        ended = self._state["ended"]
        if not self.metric or not ended or not self._is_over(ended):
            return ""
        if self._state["best"] is None:
            return f"{self.metric} was never finite in {ended} steps"
        return (
            f"{self.metric} has not improved on {self._state['best']:.4g} of step "
            f"{self._state['step']} for {ended - self._state['step']} steps"
        )

    def progress_to_save(self) -> dict[str, Any]:
        """JSON-like state for the constructor."""
        return dict(self._state)
