"""Durations: given once, in steps, epochs, examples or percent, and converted to steps here.

A step is an update of the parameters, an epoch draws as many pairs as the corpora have, an example
is a pair of sentences, percent are of the whole run.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from xling_jax.train.optimizer import find_schedule

UNITS = ("steps", "epochs", "examples", "percent")
# Parameters of schedules that by default last as long as the run.
_WHOLE_RUN = ("decay_steps", "transition_steps")


@dataclasses.dataclass(frozen=True)
class Epoch:
    """As many pairs as the training data have.

    Attributes:
        steps: updates, not necessarily a whole number.
        examples: pairs of sentences.
    """

    steps: float
    examples: int


def split_unit(key: str) -> tuple[str, str | None]:
    """`warmup_epochs` -> (`warmup`, `epochs`); the unit is None for other settings."""
    name, _, unit = key.rpartition("_")
    return (name, unit) if name and unit in UNITS else (key, None)


def in_steps(key: str) -> str:
    """`warmup_epochs` -> `warmup_steps`; other settings are unchanged."""
    name, unit = split_unit(key)
    return f"{name}_steps" if unit else key


def resolve(
    section: Mapping[str, Any], where: str, epoch: Epoch, total_steps: int | None = None
) -> dict[str, Any]:
    """Converts the durations of a section, named `where`, to steps.

    An interval, `NAME_every_UNIT`, that is not 0 lasts at least one step.

    Raises:
        ValueError: for a duration that is given twice, or in percent of an unknown total.
    """
    resolved = {}
    for key, value in section.items():
        name, unit = split_unit(key)
        if not unit:
            resolved[key] = value
            continue
        if f"{name}_steps" in resolved:
            raise ValueError(f"{where}: {name} is given twice; keep one unit")
        if unit == "percent" and total_steps is None:
            raise ValueError(f"{where}.{key}: must be in {', '.join(UNITS[:-1])}")
        factor = {
            "steps": 1,
            "epochs": epoch.steps,
            "examples": epoch.steps / max(epoch.examples, 1),
            "percent": (total_steps or 0) / 100,
        }[unit]
        steps = value if unit == "steps" else round(value * factor)
        is_interval = name.endswith("_every") and value > 0
        resolved[f"{name}_steps"] = max(steps, 1) if is_interval else steps
    return resolved


def run_length(train: Mapping[str, Any], epoch: Epoch) -> int:
    """Number of updates of a run, from the `train` section of a config.

    Raises:
        ValueError: unless it gives exactly one positive length.
    """
    given = {key: value for key, value in train.items() if split_unit(key)[0] == "total"}
    for key, value in given.items():
        if value <= 0:
            raise ValueError(f"train.{key}={value} must be positive; it is the length of the run")
    if len(given) != 1:
        found = ", ".join(f"{key}={value}" for key, value in given.items()) or "none"
        raise ValueError(
            "train: give the length of the run once, as total_steps, total_epochs or "
            f"total_examples; found {found}"
        )
    return max(1, resolve(given, "train", epoch)["total_steps"])


def resolve_schedule(schedule: Mapping[str, Any], epoch: Epoch, total_steps: int) -> dict[str, Any]:
    """Converts the `schedule` section to steps; by default a decay lasts as long as the run.

    Raises:
        ValueError: as `resolve`, or for an unknown schedule.
    """
    resolved = resolve(schedule, "schedule", epoch, total_steps)
    for name, parameter in inspect.signature(find_schedule(resolved["name"])).parameters.items():
        if name in _WHOLE_RUN and parameter.default is parameter.empty:
            resolved.setdefault(name, total_steps)
    return resolved
