"""Configs: experiments as Python files. `load` is the one door from a file to an `Experiment`.

A config file has a function `get_config(arg)` that returns a `ConfigDict`. It holds what the
experiment uses and nothing else; every default stands in the code that takes it, see
`train.experiment`. Nothing outside of this module and the config files sees a `ConfigDict`.
"""

import ast
import contextlib
import logging
import runpy
import traceback
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from xling_jax import options
from xling_jax.files.untrusted import one_line
from xling_jax.options import OptionError, wrong_use
from xling_jax.registry import check_choice, did_you_mean

if TYPE_CHECKING:
    from xling_jax.train.experiment import Experiment

_logger = logging.getLogger(__name__)

_NOUNS = {int: "a whole number", float: "a number", bool: "True or False", dict: "a section"}


def parse_argument(
    arg: str | None, *, sizes: Sequence[str] = ("paper",), **known: Any
) -> types.SimpleNamespace:
    """Reads what stands behind the colon of `--config FILE:ARG`.

    ARG is a comma-separated list of `name=value` and at most one size: `layers=6,small`.

    Args:
        arg: the text; None or empty for the defaults.
        sizes: that the config is made for, the default first.
        **known: name -> its default, or a tuple of choices, the default first.

    Returns a value for each name, of the type of its default, and `size`; ValueError for an unknown
    name, value or size.
    """
    known = {"size": tuple(sizes), **known}
    defaults = {name: v[0] if isinstance(v, tuple) else v for name, v in known.items()}
    values: dict[str, Any] = {}
    for part in filter(None, (arg or "").split(",")):
        name, has_value, value = part.partition("=")
        if not has_value:
            name, value = "size", part
        check_choice("config argument", name, known)
        if name in values:
            raise ValueError(
                f"config argument {name} is given twice, {values[name]} and {value}; give one"
            )
        try:
            values[name] = type(defaults[name])(value)
        except ValueError:
            kind = type(defaults[name]).__name__
            raise ValueError(f"config argument {part!r} must be of type {kind}") from None
        if isinstance(known[name], tuple):
            check_choice(f"config argument {name}", values[name], known[name])
    return types.SimpleNamespace(**defaults | values)


def find_config(name_or_path: str) -> Path:
    """The file of a config: a path, or the name of one that comes with the package."""
    path = Path(name_or_path)
    if path.is_file():
        return path
    directory = Path(__file__).with_name("configs")
    if not directory.is_dir():  # a checkout has them beside the package
        directory = Path(__file__).parents[1] / "configs"
    packaged = {file.stem: file for file in directory.glob("[!_]*.py")}
    packaged.pop("recipes", None)  # what configs share
    if path.name == name_or_path and path.stem in packaged:
        return packaged[path.stem]
    hint = did_you_mean(path.stem, packaged) or f"packaged are {', '.join(sorted(packaged))}"
    raise OptionError(f"--config {name_or_path}: no such file or packaged config; {hint}")


def load(path: str, overrides: Sequence[str] = ()) -> "Experiment":
    """The experiment of a config file, with command-line overrides.

    A run that begins with a model (`train.model_init`) takes its vocabulary, unless the config
    names one, and if it has no `encoder` section also its encoder.

    Args:
        path: a Python file with `get_config(arg)`, or the name of a packaged config, `NAME:ARG`.
        overrides: `--config.a.b=value`; of several for one key the last counts.

    Raises:
        OptionError: for a missing file, an error in it, a wrong argument, an unknown key or a wrong
            value.
    """
    from xling_jax.eval.tasks import TASKS
    from xling_jax.train.experiment import Experiment

    config, given = _run_config_file(path).to_dict(), _by_key(overrides)
    try:
        model = given.get("train.model_init", config.get("train", {}).get("model_init"))
        if model and not config.get("encoder"):
            _take_encoder(config, model)
        _override(config, given)
        if model and not config.get("vocab", {}).get("model"):
            _take_vocab(config, model)
        for task in config.get("evaluation", {}):
            check_choice("evaluation", task, TASKS)
        return Experiment.of(config)
    except OptionError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise OptionError(f"--config {path}: {one_line(error)}") from error


def load_options(path: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The values of a config for a command that trains nothing; arguments and errors as `load`."""
    config = _run_config_file(path).to_dict()
    if section := next((key for key, value in config.items() if isinstance(value, dict)), None):
        raise OptionError(
            f"--config {path}: is a config for training, with a section {section}; take one such "
            "as lawdr_wmt16"
        )
    for key, text in _by_key(overrides).items():
        with wrong_use(f"--config.{key}"):
            check_choice("config key", key, config)
        config[key] = _parsed(key, text, config[key])
    return config


def _by_key(overrides: Sequence[str]) -> dict[str, str]:
    """`--config.a.b=value` -> {`a.b`: `value`}; of several for one key the last counts."""
    pairs = (word.removeprefix("--config.").partition("=") for word in overrides)
    return {key: text for key, _, text in pairs}


def _run_config_file(path: str) -> ConfigDict:
    """Runs `get_config` of `FILE:ARG`.

    OptionError for a missing file, or any error in it: a config is a program of the user's.
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
        raise OptionError(f"--config {path}: line {error.lineno}: {error.msg}") from error
    except ValueError as error:  # of `parse_argument`: the user's words, not the file's
        raise OptionError(f"--config {path}: {one_line(error)}") from error
    except Exception as error:
        lines = [
            f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)
        ]
        where = f"line {lines[-1]}: " if lines else ""
        text = f"{where}{type(error).__name__}: {one_line(error)}"
        raise OptionError(f"--config {path}: {text}") from error


def _override(config: dict[str, Any], given: Mapping[str, str]) -> None:
    """Puts values by key into a config; what nothing takes is refused with the experiment.

    Another optimizer or schedule leaves out the arguments that it does not have. A duration
    replaces the one in another unit; one of 0 says nothing beside it.
    """
    from xling_jax.train.experiment import complete
    from xling_jax.train.options import split_unit

    known = {}
    with contextlib.suppress(ValueError):  # what is missing may be given
        known = complete(config)[0] if given else {}
    for section in ("optimizer", "schedule"):
        _rename(config.get(section, {}), given.get(f"{section}.name"), section)
    for key, text in sorted(given.items(), key=lambda item: item[1] in ("0", "0.0")):
        *path, last = key.split(".")
        part, default = config, known
        for number, name in enumerate(path):
            part, default = part.setdefault(name, {}), default.get(name, {})
            if not isinstance(part, dict) or not isinstance(default, dict):
                where = ".".join(["config", *path[: number + 1]])
                raise OptionError(
                    f"--config.{key}: {where} is a value and has no keys; set {where} itself"
                )
        value = _parsed(key, text, default.get(last))
        bare, unit = split_unit(last)
        others = [k for k in part if unit and k != last and split_unit(k)[0] == bare]
        if not others or value != 0:
            part[last] = value
            for other in others:
                del part[other]


def _parsed(key: str, text: str, now: Any) -> Any:
    """A value as Python writes it, of the type of the one that it replaces."""
    if isinstance(now, str):
        return text
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        value = {"true": True, "false": False}.get(text.lower(), text)
    if isinstance(now, tuple) and not isinstance(value, (tuple, list)):
        if value == text and "," in text:
            raise OptionError(f"--config.{key}={text}: must be a tuple, such as ('a', 'b')")
        value = (value,)
    number = isinstance(now, float) and type(value) is int
    if (noun := _NOUNS.get(type(now))) and type(value) is not type(now) and not number:
        raise OptionError(f"--config.{key}={text}: must be {noun}")
    return tuple(value) if isinstance(value, list) else value


def _rename(part: dict[str, Any], name: Any, section: str) -> None:
    """Drops the arguments that another optimizer or schedule, if one is named, does not have."""
    from xling_jax.train.optimizer import find_optimizer, find_schedule, make_optimizer
    from xling_jax.train.options import in_steps

    if name in (None, part.get("name")):
        return
    with contextlib.suppress(ValueError):  # an unknown name is refused where it is used
        known = options.defaults(
            {"optimizer": find_optimizer, "schedule": find_schedule}[section](name)
        )
        known = {"name", *known, *options.defaults(make_optimizer)}
        for key in [key for key in part if in_steps(key) not in known]:
            value = part.pop(key)
            _logger.info("%s.name=%s leaves out %s=%r of the config", section, name, key, value)


def _take_encoder(config: dict[str, Any], model: str) -> None:
    """Puts the encoder of a model into a config: its sizes, dropout and longest input."""
    from xling_jax.corpora.specs import local_name
    from xling_jax.encode.model_directory import find_model_directory, read_config
    from xling_jax.models.registry import ENCODERS, SUPPLIED
    from xling_jax.train.batches import DataOptions
    from xling_jax.train.experiment import with_tuples

    with wrong_use("--config.train.model_init", (OSError, ValueError)):
        recorded = read_config(find_model_directory(local_name(model)))
        known = options.defaults(ENCODERS[recorded["family"]], SUPPLIED)
    given, training = recorded["encoder"], recorded.get("training")
    given = given | (training.get("encoder", {}) if isinstance(training, dict) else {})
    given = {name: value for name, value in given.items() if name in known}
    config["encoder"] = {"family": recorded["family"], **with_tuples(given)}
    train, data = config.setdefault("train", {}), config.setdefault("data", {})
    limit = recorded["max_length_tokens"]
    train["max_length_tokens"] = train.get("max_length_tokens") or limit
    longest = data.get("longest_bucket", options.defaults(DataOptions)["longest_bucket"])
    data["longest_bucket"] = min(longest, limit)
    default = (recorded.get("prompts") or {}).get(recorded.get("default_prompt"), "")
    data["prompt"] = data.get("prompt") or default
    if size := recorded["encoder"].get("vocab_size"):
        config.setdefault("vocab", {})["size"] = size  # of a dry run


def _take_vocab(config: dict[str, Any], model: str) -> None:
    """Names the vocabulary of `train.model_init`, if that is a model that has one."""
    from xling_jax.corpora.specs import local_name
    from xling_jax.encode.model_directory import find_model_directory, read_config

    given = True
    with contextlib.suppress(OSError, ValueError):  # said where the model is loaded
        copy = local_name(model)
        directory = find_model_directory(copy)
        recorded = read_config(directory)
        preprocessing = recorded["preprocessing"]
        given = preprocessing.get("tokenizer", "sentencepiece") == "sentencepiece"
        path = directory / "sentencepiece.model" if given else directory
        if copy != model:  # each machine has its own
            path = "/".join([model.rstrip("/"), *path.relative_to(copy).parts])
        config["vocab"] = config.get("vocab", {}) | {
            "model": str(path),
            "lowercase": bool(preprocessing.get("lowercase")),
            "moses": bool(preprocessing.get("moses")),
        }
        if (vocab := config["vocab"]).get("extend"):
            vocab["size"] = recorded["encoder"].get("vocab_size", vocab.get("size", 0))
            new = tuple(code for code in config["languages"] if code not in recorded["languages"])
            vocab["extend_languages"] = vocab.get("extend_languages") or new
    if not given and (size := config["vocab"].get("extend")):
        raise OptionError(
            f"--config.vocab.extend={size}: {model} has the tokenizer of a published encoder, to "
            "which no pieces are added; set it to 0, or distill the model into an encoder with a "
            "vocabulary for the new languages (--config distill)"
        )
