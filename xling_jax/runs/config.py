"""The config of a run; one initialized from a model takes the settings recorded with it."""

import contextlib
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from xling_jax import config as config_lib
from xling_jax import options
from xling_jax.options import wrong_use
from xling_jax.runs.copies import local_name


def load_config(path: str, overrides: Sequence[str] = ()) -> ConfigDict:
    """The config of a run, see `xling_jax.config.load_config`.

    A run that begins with a model (`train.model_init`) takes its vocabulary, unless it names one,
    and a config without an `encoder` section takes its encoder too.

    Args:
        path: of the file, or name of a packaged config.
        overrides: `--config.a.b=value`.

    Raises:
        OptionError: for a missing file, an unknown key or a value of the wrong type.
    """
    with wrong_use(errors=config_lib.ConfigError):
        config = config_lib.load_config(path, overrides, begin_with=_take_encoder)
    if config.train.model_init and not config.vocab.model:
        _take_vocab(config)
    return config


def _take_encoder(config: ConfigDict, model: str) -> None:
    """Puts the encoder of a model into a config: its sizes, dropout and longest input."""
    from xling_jax.encode.model_directory import find_model_directory, read_config
    from xling_jax.models.registry import ENCODERS, SUPPLIED
    from xling_jax.train.batches import DataOptions

    with wrong_use("--config.train.model_init", (OSError, ValueError)):
        recorded = read_config(find_model_directory(local_name(model)))
        known = options.defaults(ENCODERS[recorded["family"]], SUPPLIED)
    given, training = recorded["encoder"], recorded.get("training")
    given = given | (training.get("encoder", {}) if isinstance(training, dict) else {})
    given = {name: value for name, value in given.items() if name in known}
    config.encoder = {"family": recorded["family"], **_without_lists(given)}
    for name in ("train", "data", "vocab"):
        config[name] = config.get(name, {})
    limit = recorded["max_length_tokens"]
    config.train.max_length_tokens = config.train.get("max_length_tokens") or limit
    longest = config.data.get("longest_bucket", options.defaults(DataOptions)["longest_bucket"])
    config.data.longest_bucket = min(longest, limit)
    if size := recorded["encoder"].get("vocab_size"):
        config.vocab.size = size  # of a dry run


def _without_lists(value: Any) -> Any:
    """JSON's lists as tuples, which configs have."""
    if isinstance(value, dict):
        return {name: _without_lists(item) for name, item in value.items()}
    return tuple(map(_without_lists, value)) if isinstance(value, list) else value


def _take_vocab(config: ConfigDict) -> None:
    """Names the vocabulary of `train.model_init`, if that is a model that has one."""
    from xling_jax.encode.model_directory import find_model_directory, read_config

    with contextlib.suppress(OSError, ValueError):  # said where the model is loaded
        model = config.train.model_init
        copy = local_name(model)
        directory = find_model_directory(copy)
        preprocessing = read_config(directory)["preprocessing"]
        given = preprocessing.get("tokenizer", "sentencepiece") == "sentencepiece"
        path = directory / "sentencepiece.model" if given else directory
        if copy != model:  # each machine has its own
            path = "/".join([model.rstrip("/"), *path.relative_to(copy).parts])
        config.vocab.model = str(path)
        config.vocab.lowercase = bool(preprocessing.get("lowercase"))
        config.vocab.moses = bool(preprocessing.get("moses"))
