"""What a checkpoint must share with the run that resumes it: everything that affects the results.

The terms of the objective with their options, encoder, decoder, head, frozen parameters, optimizer,
schedule, batches, seed and precision, and fingerprints of vocabulary and data. Options added after
a checkpoint was written count with their defaults.
"""

import json
from collections.abc import Mapping
from typing import Any

from xling_jax import options
from xling_jax.models.dual import TokenDistributionHead
from xling_jax.models.registry import DECODERS, ENCODERS, SUPPLIED
from xling_jax.train.batches import DataOptions
from xling_jax.train.objective import ObjectiveOptions
from xling_jax.train.optimizer import make_optimizer
from xling_jax.train.terms import TERMS
from xling_jax.train.terms.term import all_reads
from xling_jax.version import __version__

# Options of earlier versions, by section, with the value that a run must have to continue; None
# is any value.
_REMOVED: dict[str, dict[str, Any]] = {
    "encoder": {"lstm_implementation": None},
    "data": {
        "hard_negatives": 0.0,
        "negatives_file": "",
        "mine_every_steps": 0,
        "negatives_pool": None,
        "negatives_margin": None,
    },
}
# Options without effect on the results, or on the data other than through their fingerprint.
_IGNORED = {"remat", "max_logits", "reader", "corpora", "exclude"}
_IGNORED |= {"longest_bucket"}  # acts by the bucket lengths that are chosen
_IGNORED |= {"teacher", "teacher_texts"}  # its vectors are part of the data
_IGNORED |= {"hold_out_evaluation", "validation_pairs", "validation_corpora"}
_PLAIN = ("languages", "seed", "compute_dtype", "dropout_generator")


def without_removed(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config as an earlier version recorded it, without options that are gone.

    Raises:
        ValueError: if one of them was used.
    """
    kept = dict(config)
    for section, removed in _REMOVED.items():
        given = config.get(section, {})
        for name, unused in removed.items():
            if unused is not None and given.get(name, unused) != unused:
                raise ValueError(f"{section}.{name}={given[name]!r} is not supported any more")
        if section in config:
            kept[section] = {name: value for name, value in given.items() if name not in removed}
    return kept


def identity(
    config: Mapping[str, Any], schedule: Mapping[str, Any], vocab: str, data: str
) -> dict[str, Any]:
    """The record to save with every checkpoint.

    Args:
        config: completed, as a dict; its `compute_dtype` is what `auto` stands for on the devices.
        schedule: of the config, with durations in steps.
        vocab: fingerprint of the vocabulary.
        data: fingerprint of the prepared data.
    """
    return {
        "version": __version__,
        "config": _settings(config) | {"schedule": dict(schedule)},
        "vocab_fingerprint": vocab,
        "data_fingerprint": data,
    }


def difference(saved: Mapping[str, Any], current: Mapping[str, Any]) -> str | None:
    """Why a checkpoint does not belong to the current run, None if it does.

    Both are from `identity`, that of the checkpoint maybe of an earlier version. The answer is such
    as `config.encoder.width is 512 in the checkpoint, 256 now`.
    """
    if "version" not in saved:
        prints = {name: saved[name] for name in ("vocab_fingerprint", "data_fingerprint")}
        saved = {"version": "0.1", "config": _from_0_1(saved), **prints}
    try:
        settings = _settings(saved["config"])
    except ValueError as error:
        return f"xling_jax {saved['version']} wrote it; this is {__version__}: {error}"
    now = dict(current["config"])
    if settings["compute_dtype"] == "auto":
        # Checkpoints of 0.2 do not say which of these two it was; float16 has another state.
        dtype, older = now["compute_dtype"], "float32 or bfloat16"
        settings["compute_dtype"] = older if dtype == "float16" else dtype
    if saved["version"] == "0.1":
        now.pop("head", None)
    for name in ("vocab_fingerprint", "data_fingerprint"):
        settings[name], now[name] = saved[name], current[name]
    found = first_difference(*json.loads(json.dumps([settings, now])))
    if found and found.startswith("config.schedule."):
        found += (
            " (its durations may follow from train.total_steps; those in epochs and examples "
            "were counted differently up to 0.3: give them in steps)"
        )
    return found


def config_difference(saved: Mapping[str, Any], current: Mapping[str, Any]) -> str | None:
    """Compares the `config.json` of a workdir with a completed config, like `difference`.

    Ignores the schedule, which may depend on the size of the data.
    """
    blank = {"vocab_fingerprint": "", "data_fingerprint": ""}
    saved = {**saved, "schedule": {}}
    if "auto" in (saved["compute_dtype"], current["compute_dtype"]):
        # Checkpoints know what it was.
        saved["compute_dtype"] = "auto"
        current = {**current, "compute_dtype": "auto"}
    if "version" in saved:
        saved = {"version": saved["version"], "config": saved}
    return difference(saved | blank, {"config": _settings({**current, "schedule": {}})} | blank)


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that determine the results of a run, completed with defaults."""

    def section(target: Any, given: Mapping[str, Any], where: str, **more: Any) -> dict[str, Any]:
        known = options.defaults(target, SUPPLIED)
        own = {k: v for k, v in given.items() if k not in more}
        options.check(target, own, where, **dict.fromkeys(SUPPLIED))
        return {k: v for k, v in {**known, **own}.items() if k not in _IGNORED} | more

    config, shared = without_removed(config), options.defaults(ObjectiveOptions)
    objective = {name: config["objective"].get(name, shared[name]) for name in shared}
    reads = set()
    for name, given in config["objective"].items():
        if name not in shared:
            objective[name] = section(TERMS[name], given, f"objective.{name}")
            reads |= all_reads([options.build(TERMS[name], given, f"objective.{name}")])
    identity = {name: config[name] for name in _PLAIN} | {"objective": objective}
    for name, table in (("encoder", ENCODERS), ("decoder", DECODERS)):
        if name == "encoder" or name in reads:
            family = config[name]["family"]
            identity[name] = section(table[family], config[name], name, family=family)
    if "head" in reads and "head" in config:
        identity["head"] = section(TokenDistributionHead, config["head"], "head")
    identity["data"] = section(DataOptions, config["data"], "data")
    before = {n: options.defaults(make_optimizer)[n] for n in ("clip_global_norm", "l2_penalty")}
    optimizer = before | dict(config["optimizer"])
    frozen = sorted(config.get("train", {}).get("frozen", ()))
    identity |= {"optimizer": optimizer, "schedule": dict(config["schedule"])}
    return identity | {"train": {"frozen": frozen}}


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


def _from_0_1(config: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a config or identity of version 0.1, which held all options of all terms.

    Drops terms of weight 0 and applies renamings. Identities of 0.1 have no head.
    """
    config, objective = dict(config), {}
    for name, given in config["objective"].items():
        if isinstance(given, Mapping):
            given = dict(given)
            if not given["weight"]:
                continue
            if "task" in given:
                given["tasks"] = dict.fromkeys(given.pop("task").split("+"), 1.0)
        objective[name] = given
    config["objective"] = objective
    config["data"] = dict(config["data"])
    if config["data"]["batch_size"]:
        config["data"]["max_tokens"] = 0
    config["schedule"] = dict(config["schedule"])
    if "drop_step" in config["schedule"]:
        config["schedule"]["drop_steps"] = config["schedule"].pop("drop_step")
    config["encoder"] = dict(config["encoder"])
    known = options.defaults(ENCODERS[config["encoder"]["family"]])
    for unused in ("attention_hops", "attention_width"):
        if unused not in known:
            config["encoder"].pop(unused, None)
    return config
