"""Configs: experiments as Python files, completed with the defaults of what they use.

A config file has a function `get_config(arg)` that returns a `ConfigDict`. It holds what the
experiment uses and nothing else; every default stands in the code that takes it, and `complete`
fills it in. The sections are constructor arguments:

    data        train.batches.DataOptions      optimizer   an optimizer of optax by `name`
    cleaning    corpora.cleaning.CleaningRules  schedule    a schedule by `name`
    vocab       corpora.options.VocabOptions  train       train.options.TrainOptions
    encoder     models.registry.ENCODERS        evaluation  task of `xling evaluate` -> its data
    decoder     models.registry.DECODERS        mesh        train.mesh.make_mesh
    objective   train.terms.TERMS               head        models.dual.TokenDistributionHead

and `languages`, `seed`, `compute_dtype`, `dropout_generator`.
"""

import ast
import functools
import math
import operator
import runpy
import traceback
import types
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from xling_jax import options
from xling_jax.files.errors import one_line
from xling_jax.registry import check_choice, did_you_mean

_PLAIN = {"seed": 0, "compute_dtype": "auto", "dropout_generator": "threefry"}
_SECTIONS = ("data", "cleaning", "vocab", "encoder", "decoder", "head", "objective", "optimizer")
_SECTIONS += ("schedule", "train", "evaluation", "mesh")
_NOUNS = {int: "a whole number", float: "a number", bool: "True or False"}


class ConfigError(ValueError):
    """A config file, its argument or a key is wrong."""


def parse_argument(
    arg: str | None, *, sizes: Sequence[str] = ("paper",), **known: Any
) -> types.SimpleNamespace:
    """Reads what stands behind the colon of `--config FILE:ARG`.

    ARG is a comma-separated list of `name=value` and at most one size: `layers=6,small`. Training
    configs also take `devices=N`, which `load_config` applies to what they return.

    Args:
        arg: the text; None or empty for the defaults.
        sizes: that the config is made for, the default first.
        **known: name -> its default, or a tuple of choices, the default first.

    Returns:
        A value for each name, of the type of its default, and `size`.

    Raises:
        ValueError: for an unknown name, value or size.
    """
    known = {"size": tuple(sizes), **known}
    choices = {name: value for name, value in known.items() if isinstance(value, tuple)}
    values = {name: choices.get(name, (value,))[0] for name, value in known.items()}
    for part in filter(None, (arg or "").split(",")):
        name, has_value, value = part.partition("=")
        if not has_value:
            name, value = "size", part
        check_choice("config argument", name, (*known, "devices"))
        try:
            values[name] = type(values[name])(value)
        except ValueError:
            kind = type(values[name]).__name__
            raise ValueError(f"config argument {part!r} must be of type {kind}") from None
        if name in choices:
            check_choice(f"config argument {name}", values[name], choices[name])
    return types.SimpleNamespace(**values)


def find_config(name_or_path: str) -> Path:
    """The file of a config: a path, or the name of one that comes with the package.

    Raises:
        ConfigError: if there is none.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    packaged = {file.stem: file for file in _packaged().glob("*.py") if file.stem != "__init__"}
    if path.name == name_or_path and path.stem in packaged:
        return packaged[path.stem]
    hint = did_you_mean(path.stem, packaged) or f"packaged are {', '.join(sorted(packaged))}"
    raise ConfigError(f"--config {name_or_path}: no such file or packaged config; {hint}")


def _packaged() -> Path:
    try:
        return Path(str(resources.files("xling_jax.configs")))
    except ModuleNotFoundError:  # a checkout that is not installed
        return Path(__file__).parents[1] / "configs"


def load_config(
    path: str,
    overrides: Sequence[str] = (),
    *,
    training: bool = True,
    begin_with: Callable[[ConfigDict, str], None] = lambda config, model: None,
) -> ConfigDict:
    """A config from its file, completed, with command-line overrides.

    Args:
        path: a Python file with `get_config(arg)`, or the name of a packaged config, `NAME:ARG`.
            `devices=N` in ARG adapts a training config to N devices, see `train.spread`.
        overrides: `--config.a.b=value`; of several for one key the last counts.
        training: whether to fill in the defaults of a training config; configs of other commands
            are taken as they are.
        begin_with: puts the `encoder` section, and what belongs to it, into a config that has none
            but names the model to begin with, `train.model_init`.

    Raises:
        ConfigError: for a missing file, an error in it, a wrong argument, an unknown key or a value
            of the wrong type.
    """
    from xling_jax.train.spread import spread_over_devices

    # Given twice, a tuple would be joined to the one before.
    overrides = list({word.split("=", 1)[0]: word for word in overrides}.values())
    finish = complete if training else lambda config: None
    path, devices = _split_devices(path)
    if devices and not training:
        raise ConfigError(f"--config {path}: devices={devices} is for configs that train")
    config = _run_config_file(path)
    try:
        model = _model_init(config, overrides) if training else ""
        if model and not config.get("encoder"):
            begin_with(config, model)
        overrides = _make_room(config, overrides)
        finish(config)
        for word in overrides:
            _check_key(config, word.split("=", 1)[0])
        config = _apply(config, overrides)
        with config.unlocked():
            finish(config)
            if devices:
                spread_over_devices(config, devices)
        return config.lock()
    except ConfigError:
        raise
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"--config {path}: {one_line(error)}") from error


def _split_devices(path: str) -> tuple[str, int]:
    """`FILE:devices=8,small` -> (`FILE:small`, 8); 0 if the argument does not name any."""
    name, colon, arg = path.partition(":")
    parts = arg.split(",")
    given = [part for part in parts if part.startswith("devices=")]
    counts = [part.removeprefix("devices=") for part in given]
    if len(counts) > 1 or not all(count.isdecimal() and int(count) > 0 for count in counts):
        raise ConfigError(f"--config {path}: devices= must be given once, as a positive number")
    rest = ",".join(part for part in parts if part not in given)
    return f"{name}{colon if rest or not given else ''}{rest}", int(counts[0]) if counts else 0


def _run_config_file(path: str) -> ConfigDict:
    """What `get_config` of `FILE:ARG` returns.

    Raises:
        ConfigError: for a missing file, or any error in it: a config is a program of the user's.
    """
    name, colon, arg = path.partition(":")
    file = find_config(name)
    try:
        get_config = runpy.run_path(str(file)).get("get_config")
        if get_config is None:
            raise ValueError("must define get_config(arg); found none")
        config = get_config(arg) if colon else get_config()
        if not isinstance(config, ConfigDict):
            raise ValueError(f"get_config must return a ConfigDict; found {type(config).__name__}")
        return config
    except SyntaxError as error:
        raise ConfigError(f"--config {path}: line {error.lineno}: {error.msg}") from error
    except ValueError as error:  # of `parse_argument`: the user's words, not the file's
        raise ConfigError(f"--config {path}: {one_line(error)}") from error
    except Exception as error:
        lines = [
            f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)
        ]
        where = f"line {lines[-1]}: " if lines else ""
        text = f"{where}{type(error).__name__}: {one_line(error)}"
        raise ConfigError(f"--config {path}: {text}") from error


def _apply(config: ConfigDict, overrides: Sequence[str]) -> ConfigDict:
    """A config with `--config.a.b=value` applied, values parsed and checked by ml_collections."""
    words = ["xling", *overrides]
    values = flags.FlagValues()
    config_flags.DEFINE_config_dict(
        "config", config.lock(), lock_config=True, flag_values=values, sys_argv=words
    )
    try:
        values(words)
    except flags.IllegalFlagValueError as error:
        for word in overrides:
            noun = _NOUNS.get(type(_value(config, word)))
            if noun and str(error).startswith(f"flag {word}: "):
                raise ConfigError(f"{word}: must be {noun}") from error
        raise
    return values.config


def _value(config: ConfigDict, override: str) -> Any:
    """What `--config.a.b=value` replaces."""
    return functools.reduce(operator.getitem, override.split("=", 1)[0].split(".")[1:], config)


def _model_init(config: ConfigDict, overrides: Sequence[str]) -> str:
    """`train.model_init` of a config with its overrides, "" if there is none."""
    option = "--config.train.model_init="
    given = [word.removeprefix(option) for word in overrides if word.startswith(option)]
    return (given or [config.get("train", {}).get("model_init", "")])[-1]


def _make_room(config: ConfigDict, overrides: Sequence[str]) -> list[str]:
    """Puts into a config what overrides change and defaults do not give.

    A section or term of the objective, an argument of an optimizer or schedule, a duration in
    another unit, an entry of a mapping.

    Returns:
        The overrides that are left: a duration of 0 beside one in another unit says nothing.
    """
    from xling_jax.train.durations import split_unit

    values = {
        word.removeprefix("--config.").partition("=")[0]: _literal(word.partition("=")[2])
        for word in overrides
    }
    lengths = {split_unit(key)[0] for key, value in values.items() if value != 0}
    left = []
    for word, (key, value) in zip(overrides, values.items()):
        section, *path = key.split(".")
        if not path or section not in _SECTIONS:
            left.append(word)
            continue
        *path, last = path
        part = config[section] if section in config else _add(config, section)
        for name in path:
            part = part[name] if name in part else _add(part, name)
            if not isinstance(part, ConfigDict):
                break
        else:
            bare, unit = split_unit(last)
            others = [k for k in part if unit and k != last and split_unit(k)[0] == bare]
            if unit and value == 0 and (others or split_unit(key)[0] in lengths):
                continue
            for other in others:
                del part[other]
            is_entry = len(path) > (section == "objective")
            own = section in ("optimizer", "schedule", "decoder", "evaluation")
            if last not in part and (unit or is_entry or own):
                part[last] = value
        left.append(word)
    return left


def _add(parent: ConfigDict, name: str) -> ConfigDict:
    parent[name] = ConfigDict()
    return parent[name]


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _check_key(config: ConfigDict, option: str) -> None:
    """Raises `ConfigError` if a config lacks the key of `--config.a.b`; names the near ones."""
    section, where = config, "config"
    for name in option.split(".")[1:]:
        if not isinstance(section, ConfigDict):
            raise ConfigError(f"{option}: {where} is a value and has no keys; set {where} itself")
        if name not in section:
            hint = did_you_mean(name, section) or f"it has {', '.join(section)}"
            raise ConfigError(f"{option}: {where} has no key {name}; {hint}")
        section, where = section[name], f"{where}.{name}"


def complete(config: ConfigDict) -> None:
    """Fills in the defaults of everything that a training config uses, and refuses the rest.

    Args:
        config: changed in place.

    Raises:
        ValueError: for a section or key that nothing takes, or one that is missing.
    """
    from xling_jax.corpora.cleaning import CleaningRules
    from xling_jax.corpora.options import VocabOptions
    from xling_jax.eval.tasks import TASKS
    from xling_jax.models.dual import TokenDistributionHead
    from xling_jax.models.registry import DECODERS, ENCODERS, SUPPLIED
    from xling_jax.train.batches import DataOptions
    from xling_jax.train.mesh import make_mesh
    from xling_jax.train.objective import ObjectiveOptions, parse_objective
    from xling_jax.train.optimizer import find_optimizer, find_schedule, make_optimizer
    from xling_jax.train.options import TrainOptions
    from xling_jax.train.terms import TERMS
    from xling_jax.train.terms.term import all_reads

    for name in config:
        check_choice("config section", name, (*_PLAIN, "languages", *_SECTIONS))
    for name in ("languages", "encoder", "objective", "optimizer", "schedule"):
        if not config.get(name):
            way_out = "; without it, name a model in train.model_init" if name == "encoder" else ""
            raise ValueError(f"config.{name} is missing{way_out}")
    for name, value in _PLAIN.items():
        config[name] = config.get(name, value)
    sections = {"data": DataOptions, "cleaning": CleaningRules, "vocab": VocabOptions}
    for name, target in (sections | {"train": TrainOptions, "mesh": make_mesh}).items():
        _fill(config, name, target, ("devices",))
    for task, paths in (config.get("evaluation") or _add(config, "evaluation")).items():
        check_choice("evaluation", task, TASKS)
        given = (paths,) if isinstance(paths, str) else paths
        if not isinstance(given, (tuple, list)) or not all(p and isinstance(p, str) for p in given):
            raise ValueError(f"evaluation.{task}={paths!r} must be a path or several, () for none")
        del config.evaluation[task]  # assigned, a tuple would take the type of the value before
        config.evaluation[task] = tuple(given)

    shared = options.defaults(ObjectiveOptions)
    for name in [name for name in config.objective if name not in shared]:
        if config.objective[name].get("weight", 1.0) == 0:
            del config.objective[name]
        else:
            _fill(config.objective, name, TERMS[name], where=f"objective.{name}")
    for name, value in shared.items():
        config.objective[name] = config.objective.get(name, value)
    reads = all_reads(parse_objective(config.objective.to_dict())[1].values())

    for name in ("decoder", "head"):
        if name in config and name not in reads:
            raise ValueError(f"config.{name}: no term of the objective reads it; remove it")
    if "decoder" in reads and "decoder" not in config:
        raise ValueError("config.decoder is missing; a term of the objective reads it")
    for name, table in (("encoder", ENCODERS), ("decoder", DECODERS)):
        if name in config:
            if "family" not in config[name]:
                raise ValueError(f"config.{name}.family is missing; known are {', '.join(table)}")
            _fill(config, name, table[config[name].family], SUPPLIED)
    if "head" in reads:
        _fill(config, "head", TokenDistributionHead, SUPPLIED)

    for name, find in (("optimizer", find_optimizer), ("schedule", find_schedule)):
        if "name" not in config[name]:
            raise ValueError(f"config.{name}.name is missing")
        given = _in_steps(config[name], "name", name)
        for extra in ("clip_global_norm", "l2_penalty") if name == "optimizer" else ():
            given.pop(extra, None)
        options.check(find(config[name].name), given, name, partial=True)
    for name in ("clip_global_norm", "l2_penalty"):
        config.optimizer[name] = config.optimizer.get(name, options.defaults(make_optimizer)[name])


def _fill(
    parent: ConfigDict, name: str, target: Callable, supplied: Sequence[str] = (), where: str = ""
) -> None:
    """Completes a section with the defaults of what takes it."""
    section = parent[name] if name in parent else _add(parent, name)
    given = _in_steps(section, "family", where or name)
    options.check(target, given, where or name, **dict.fromkeys(supplied))
    for key, default in options.defaults(target, supplied).items():
        if key not in given:
            section[key] = default


def _in_steps(section: ConfigDict, besides: str, where: str) -> dict[str, Any]:
    """A section but for one key, as what takes it will see it: durations in whole steps.

    Raises:
        ValueError: for a duration in another unit that is not a finite number.
    """
    from xling_jax.train.durations import in_steps

    given = {}
    for key, value in section.items():
        name = in_steps(key)
        if name != key:
            if type(value) not in (int, float) or not math.isfinite(value):
                raise ValueError(f"{where}.{key}={value!r} must be a finite number")
            value = round(value)
        given[name] = value
    given.pop(besides, None)
    return given
