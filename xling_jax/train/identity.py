"""The identity of a run: what a checkpoint must share with the run that resumes it.

Options added after a checkpoint was written count with their defaults.
"""

import json
from collections.abc import Mapping
from typing import Any

from xling_jax.train.experiment import complete, with_tuples
from xling_jax.train.training import Training
from xling_jax.version import __version__

# Options without effect on the results, or on the data other than through their fingerprint.
_IGNORED = {"remat", "max_logits", "reader", "corpora", "exclude"}
_IGNORED |= {"longest_bucket"}  # acts by the bucket lengths that are chosen
_IGNORED |= {"teacher", "teacher_texts"}  # its vectors are part of the data
_IGNORED |= {"hold_out_evaluation", "validation_pairs", "max_broken_share"}
_COMPARED = ("languages", "seed", "compute_dtype", "dropout_generator", "objective", "encoder")
_COMPARED += ("decoder", "head", "data", "optimizer", "schedule")


def identity(training: Training, dtype: str, vocab: str, data: str) -> dict[str, Any]:
    """The record to save with every checkpoint; `vocab` and `data` are fingerprints."""
    config = {**training.experiment.config, "compute_dtype": dtype}
    return {
        "version": __version__,
        "config": _affecting(config) | {"schedule": dict(training.schedule)},
        "vocab_fingerprint": vocab,
        "data_fingerprint": data,
    }


def difference(saved: Mapping[str, Any], current: Mapping[str, Any]) -> str | None:
    """Why a checkpoint does not belong to the current run, None if it does.

    Both are from `identity`. The answer is such as `config.encoder.width is 512 in the checkpoint,
    256 now`.
    """
    try:
        before = _affecting(with_tuples(saved["config"]))
    except (KeyError, TypeError, ValueError) as error:
        version = saved.get("version", "an earlier version")
        return f"xling_jax {version} wrote it; this is {__version__}: {error}"
    now = dict(current["config"])
    extended = before["train"]["extend_to"]
    now["train"] = now["train"] | {"extend_to": tuple(now["train"]["extend_to"])[: len(extended)]}
    for name in ("vocab_fingerprint", "data_fingerprint"):
        before[name], now[name] = saved[name], current[name]
    found = first_difference(*json.loads(json.dumps([before, now])))
    if found and found.startswith("config.schedule."):
        found += (
            " (its durations may follow from train.total_steps: to continue a finished run, leave "
            "that as it was and set train.extend_to)"
        )
    return found


def _affecting(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options that affect the results of a run; those that a record lacks are by default."""
    config = complete(config)[0]
    affecting = {name: _without_ignored(config[name]) for name in _COMPARED if name in config}
    train = config["train"]
    compared = ["new_rows_only", "extend_to"]
    compared += ["lora_rank", "lora_targets"] if train["lora_rank"] else []
    affecting["train"] = {name: train[name] for name in compared}
    affecting["train"]["frozen"] = sorted(train["frozen"])
    return affecting


def _without_ignored(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    return {k: _without_ignored(value) for k, value in part.items() if k not in _IGNORED}


def first_difference(
    saved: Any,
    current: Any,
    there: str = "in the checkpoint",
    here: str = "now",
    path: str = "config",
) -> str | None:
    """Describes the first difference between two nested structures, None if they are equal."""
    if isinstance(saved, Mapping) and isinstance(current, Mapping):
        for key in sorted(set(saved) | set(current)):
            if key not in saved or key not in current:
                return f"{path}.{key} is {'only' if key in saved else 'not'} {there}"
            if found := first_difference(saved[key], current[key], there, here, f"{path}.{key}"):
                return found
    elif saved != current:
        return f"{path} is {saved!r} {there}, {current!r} {here}"
    return None
