"""The `train` section of a config, and durations in any unit.

A duration is given once, in steps, epochs, examples or percent: `warmup_steps`, `total_epochs`,
`evaluate_every_percent`. A step is an update of the parameters, an epoch draws as many pairs as the
corpora have, an example is a pair of sentences, percent are of the whole run.
"""

import dataclasses
import inspect
import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

from xling_jax.options import check_number
from xling_jax.registry import check_choice
from xling_jax.train.optimizer import find_schedule

COOCCURRENCE = "cooccurrence"  # of `word_vectors`
UNITS = ("steps", "epochs", "examples", "percent")
# Parameters of schedules that by default last as long as the run.
_WHOLE_RUN = ("decay_steps", "transition_steps")
# Options of a run -> the smallest value.
_LEAST = dict.fromkeys(("log_every_steps", "evaluate_every_steps", "checkpoint_every_steps"), 1)
_LEAST |= {"keep_last": 1, "keep_best": 0, "lora_rank": 0}
_LEAST |= dict.fromkeys(("keep_every_steps", "keep_from_steps"), 0)


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """Length of a run and its intervals.

    A config may also give durations in epochs, examples or percent.

    Attributes:
        total_steps: updates of the run.
        extend_to: the step to which a finished run goes on, or of each of its extensions, for which
            the schedule begins anew. `total_steps` stays as it was.
        log_every_steps: updates between lines of metrics.
        evaluate_every_steps: updates between evaluations; the last step is always evaluated.
        checkpoint_every_steps: updates between checkpoints; the last step is always saved, and with
            `best_metric` every step that is evaluated.
        keep_last: number of newest checkpoints to keep.
        keep_best: number of best checkpoints to keep.
        best_metric: metric that ranks checkpoints, e.g. `europarl_dev/p_at_1`, `validation/loss`.
        keep_every_steps: beside these, keep one checkpoint every so many updates; 0 for none. They
            are saved whatever `checkpoint_every_steps` is.
        keep_from_steps: the first one to keep, to the nearest multiple of `keep_every_steps`.
        export: export the encoder of the `last` or `best` checkpoint.
        max_length_tokens: longest input of the encoder in evaluations and after the export, special
            tokens included; longer text is cut. 0 for the limit of its family, 2,000 or the table
            of positions.
        model_init: model directory or workdir with the initial encoder of a new run.
        frozen: parameters that stay as they are: names on their paths, such as `embedding`, the
            token table, or `blocks_0`, a layer of encoder and decoder; or parts of paths, such as
            `encoder/blocks_0`.
        new_rows_only: with `vocab.extend`, leave the encoder of `model_init` as it is but for the
            rows of the new pieces, so that what it knows keeps its vectors.
        lora_rank: train matrices of this rank beside the arrays of the encoder, which stay as they
            are, and add their products in the export, see `train.lora`; 0 for none.
        lora_targets: regular expression for the paths of these arrays in the encoder.
        profile_steps: first and last update of a trace for XProf and Perfetto in `W/profile`, such
            as (100, 105); () for none.
        word_vectors: initial token embeddings: `cooccurrence` for those of the training text
            (`train.warm_start`), or a multiCCA or word2vec text file with vectors of whole words.
    """

    total_steps: int = 0
    extend_to: tuple[int, ...] = ()
    log_every_steps: int = 50
    evaluate_every_steps: int = 1000
    checkpoint_every_steps: int = 1000
    keep_last: int = 2
    keep_best: int = 1
    best_metric: str = ""
    keep_every_steps: int = 0
    keep_from_steps: int = 0
    export: str = "last"
    max_length_tokens: int = 0
    model_init: str = ""
    frozen: tuple[str, ...] = ()
    new_rows_only: bool = True
    lora_rank: int = 0
    lora_targets: str = r"(blocks|layers)_\d+/.*kernel"
    profile_steps: tuple[int, ...] = ()
    word_vectors: str = ""

    def __post_init__(self):
        for name, least in _LEAST.items():
            check_number(getattr(self, name), f"train.{name}", least)
        if self.keep_from_steps and not self.keep_every_steps:
            raise ValueError(
                f"train.keep_from_steps={self.keep_from_steps} needs train.keep_every_steps"
            )
        check_choice("train.export", self.export, ("last", "best"))
        if self.export == "best" and not (self.best_metric and self.keep_best):
            raise ValueError(
                "train.export='best' needs train.best_metric, e.g. 'dev/p_at_1', and "
                "train.keep_best, at least 1"
            )
        try:
            re.compile(self.lora_targets)
        except re.error as error:
            raise ValueError(
                f"train.lora_targets={self.lora_targets!r} must be a regular expression: {error}"
            ) from error
        if any(a >= b for a, b in itertools.pairwise(self.stages)):
            raise ValueError(
                f"train.extend_to={self.extend_to} must be after train.total_steps="
                f"{self.total_steps} and ascending"
            )
        traced, total = self.profile_steps, self.total_steps
        if traced and not (len(traced) == 2 and 0 < traced[0] <= traced[1] <= (total or traced[1])):
            raise ValueError(
                f"train.profile_steps={traced!r} must be the first and the last update to trace, "
                f"such as (100, 105){f', up to {total}' if total else ''}"
            )

    @property
    def stages(self) -> tuple[int, ...]:
        """The steps at which the run and its extensions end."""
        return (self.total_steps, *self.extend_to)

    @property
    def last_step(self) -> int:
        """The updates of the run, extensions included."""
        return self.stages[-1]

    @property
    def kept_steps(self) -> frozenset[int]:
        """The steps whose checkpoints are kept for good."""
        every, total = self.keep_every_steps, self.last_step
        if not every:
            return frozenset()
        # Durations in epochs come rounded: 10 epochs may be 10 times an epoch and a few steps.
        first, last = round(self.keep_from_steps / every), round(total / every)
        return frozenset(min(n * every, total) for n in range(max(first, 1), last + 1))


@dataclasses.dataclass(frozen=True)
class Epoch:
    """As many pairs as the training data have, in updates (maybe a fraction) and in pairs."""

    steps: float
    examples: int


def split_unit(key: str) -> tuple[str, str | None]:
    """`warmup_epochs` -> (`warmup`, `epochs`); the unit is None for other options."""
    name, _, unit = key.rpartition("_")
    return (name, unit) if name and unit in UNITS else (key, None)


def in_steps(key: str) -> str:
    """`warmup_epochs` -> `warmup_steps`; other options are unchanged."""
    name, unit = split_unit(key)
    return f"{name}_steps" if unit else key


def resolve(
    section: Mapping[str, Any], where: str, epoch: Epoch, total_steps: int | None = None
) -> dict[str, Any]:
    """Converts the durations of a section, named `where`, to steps.

    An interval, `NAME_every_UNIT`, that is not 0 lasts at least one step. ValueError for a duration
    that is no number, given twice, or in percent of an unknown total.
    """
    resolved = {}
    for key, value in section.items():
        name, unit = split_unit(key)
        if not unit:
            resolved[key] = value
            continue
        if f"{name}_steps" in resolved:
            raise ValueError(f"{where}: {name} is given twice; keep one unit")
        if unit != "steps" and not (type(value) in (int, float) and math.isfinite(value)):
            raise ValueError(f"{where}.{key}={value!r} must be a finite number")
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
    """Number of updates of a run; ValueError unless the section gives exactly one above 0."""
    given = {key: value for key, value in train.items() if split_unit(key)[0] == "total"}
    for key, value in given.items():
        if type(value) not in (int, float) or value <= 0:
            raise ValueError(f"train.{key}={value!r} must be positive; it is the length of the run")
    if len(given) != 1:
        found = ", ".join(f"{key}={value}" for key, value in given.items()) or "none"
        raise ValueError(
            "train: give the length of the run once, as total_steps, total_epochs or "
            f"total_examples; found {found}"
        )
    return max(1, resolve(given, "train", epoch)["total_steps"])


def resolve_schedule(schedule: Mapping[str, Any], epoch: Epoch, total_steps: int) -> dict[str, Any]:
    """Converts the `schedule` section to steps; by default a decay lasts as long as the run."""
    resolved = resolve(schedule, "schedule", epoch, total_steps)
    for name, parameter in inspect.signature(find_schedule(resolved["name"])).parameters.items():
        if name in _WHOLE_RUN and parameter.default is parameter.empty:
            resolved.setdefault(name, total_steps)
    return resolved
