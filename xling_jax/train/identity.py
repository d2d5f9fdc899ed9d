"""The identity of a run: what a checkpoint must share with the run that resumes it.

Options added after a checkpoint was written count with their defaults.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xling_jax import options
from xling_jax.models.dual import TokenDistributionHead
from xling_jax.models.registry import DECODERS, ENCODERS, SUPPLIED
from xling_jax.train.batches import DataOptions
from xling_jax.train.experiment import without_removed
from xling_jax.train.objective import ObjectiveOptions
from xling_jax.train.optimizer import make_optimizer
from xling_jax.train.terms import TERMS
from xling_jax.version import __version__

if TYPE_CHECKING:
    from xling_jax.train.training import Training

# Options without effect on the results, or on the data other than through their fingerprint.
_IGNORED = {"remat", "max_logits", "reader", "corpora", "exclude"}
_IGNORED |= {"longest_bucket"}  # acts by the bucket lengths that are chosen
_IGNORED |= {"teacher", "teacher_texts"}  # its vectors are part of the data
_IGNORED |= {"hold_out_evaluation", "validation_pairs", "validation_corpora", "max_broken_share"}
_PLAIN = ("languages", "seed", "compute_dtype", "dropout_generator")
_OPTIMIZER = {n: options.defaults(make_optimizer)[n] for n in ("clip_global_norm", "l2_penalty")}


def identity(training: "Training", dtype: str, vocab: str, data: str) -> dict[str, Any]:
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

    Both are from `identity`, that of the checkpoint maybe of the version before. The answer is such
    as `config.encoder.width is 512 in the checkpoint, 256 now`.
    """
    try:
        before = _affecting(saved["config"])
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
            "that as it was and set train.extend_to; those in epochs and examples were counted "
            "differently up to 0.3: give them in steps)"
        )
    return found


def config_difference(saved: Mapping[str, Any], current: Mapping[str, Any]) -> str | None:
    """Compares the `config.json` of a workdir with a complete config, like `difference`.

    Ignores the schedule, which may depend on the size of the data.
    """
    blank = {"vocab_fingerprint": "", "data_fingerprint": ""}
    saved, current = {**saved, "schedule": {}}, {**current, "schedule": {}}
    if "auto" in (saved["compute_dtype"], current["compute_dtype"]):
        # Checkpoints know what it was.
        saved["compute_dtype"] = current["compute_dtype"] = "auto"
    named = {"version": saved.get("version"), "config": saved}
    return difference(named | blank, {"config": _affecting(current)} | blank)


def _affecting(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options that affect the results of a run; those that a record lacks are by default."""

    def section(target: Any, given: Mapping[str, Any], where: str, **more: Any) -> dict[str, Any]:
        known = options.defaults(target, SUPPLIED)
        own = {k: v for k, v in given.items() if k not in more}
        if unknown := own.keys() - known:
            raise ValueError(f"unknown option {where}.{min(unknown)}")
        return {k: v for k, v in {**known, **own}.items() if k not in _IGNORED} | more

    config, shared = without_removed(config), options.defaults(ObjectiveOptions)
    objective = {name: config["objective"].get(name, shared[name]) for name in shared}
    for name, given in config["objective"].items():
        if name not in shared:
            objective[name] = section(TERMS[name], given, f"objective.{name}")
    affecting = {name: config[name] for name in _PLAIN} | {"objective": objective}
    for name, table in (("encoder", ENCODERS), ("decoder", DECODERS)):
        if name in config:
            family = config[name]["family"]
            affecting[name] = section(table[family], config[name], name, family=family)
    if "head" in config:
        affecting["head"] = section(TokenDistributionHead, config["head"], "head")
    given = config.get("train", {})
    train = {"frozen": sorted(given.get("frozen", ()))}
    train["extend_to"] = tuple(given.get("extend_to", ()))
    if given.get("lora_rank"):
        train |= {name: given[name] for name in ("lora_rank", "lora_alpha", "lora_targets")}
    train["new_rows_only"] = given.get("new_rows_only", True)
    return affecting | {
        "data": section(DataOptions, config["data"], "data"),
        "optimizer": _OPTIMIZER | dict(config["optimizer"]),
        "schedule": dict(config["schedule"]),
        "train": train,
    }


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
