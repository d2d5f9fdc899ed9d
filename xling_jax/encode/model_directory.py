"""Model directories: an encoder on disk as plain data.

    config.json            family, sizes, languages, preprocessing, versions, training summary
    encoder.safetensors    parameters, float32, named by their path in the module ("a/b/kernel")
    sentencepiece.model    the vocabulary; converted encoders have files of their own
    README.md              model card

Loading executes nothing that comes from the directory: JSON and safetensors are data, and the
module is built by `models.registry` from plain numbers. Names, shapes and dtypes are checked
against that module before a parameter is read.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import flax
import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

import xling_jax
from xling_jax.encode.model_card import model_card
from xling_jax.models import registry
from xling_jax.text.vocabularies import Vocabulary, read_vocab, record, write_vocab

FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
PARAMS_FILE = "encoder.safetensors"
CARD_FILE = "README.md"

# Directories inside the package with encoders that ship with it, by name.
SHIPPED: dict[str, pathlib.Path] = {}

_CONFIG_TYPES: dict[str, type] = {
    "family": str,
    "encoder": dict,
    "dim": int,
    "languages": list,
    "preprocessing": dict,
    "specials": list,
    "max_length_tokens": int,
    "fingerprint": str,
}
_SAFETENSORS_DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """A loaded model directory.

    Attributes:
        family: model family, a key of `models.registry`.
        module: the Linen module built from `config["encoder"]`.
        params: nested dict of NumPy arrays, checked against the module.
        vocab: the vocabulary with the preprocessing of training.
        specials: special tokens in front of and behind a sentence, (("bos",), ("eos",)).
        max_length_tokens: longest input in tokens, specials included.
        dim: embedding size.
        languages: codes of the languages the encoder was trained on.
        fingerprint: hex digest over everything that determines a vector.
        config: the whole `config.json`.
    """

    family: str
    module: nn.Module
    params: dict[str, Any]
    vocab: Vocabulary
    specials: tuple[tuple[str, ...], tuple[str, ...]]
    max_length_tokens: int
    dim: int
    languages: tuple[str, ...]
    fingerprint: str
    config: dict[str, Any]


def find_model_directory(name_or_path: str | os.PathLike[str]) -> pathlib.Path:
    """Finds the model directory a user means.

    Args:
        name_or_path: a model directory, a workdir with an `encoder/`, or a shipped name.

    Returns:
        A directory that holds a `config.json` and an `encoder.safetensors`, or one of them: a
        directory with only one is left for `load_model` to explain.

    Raises:
        ValueError: if there is no such model; lists what is possible.
    """
    name = os.fspath(name_or_path)
    path = pathlib.Path(name)
    if (path / PARAMS_FILE).exists():
        return path
    if (path / "encoder").is_dir():
        return path / "encoder"
    if name in SHIPPED:
        return SHIPPED[name]
    if path.is_dir():
        found = f"is a directory with neither {PARAMS_FILE} nor encoder/{PARAMS_FILE}"
        if (path / "checkpoints").is_dir():
            found += "; its training has not exported an encoder yet, run xling train again"
    else:
        found = "no such directory"
    shipped = ", ".join(sorted(SHIPPED)) or "none"
    raise ValueError(
        f"{name}: {found}; give a model directory, a workdir of xling train, "
        f"or the name of a shipped encoder ({shipped})"
    )


def save_model(
    directory: str | os.PathLike[str],
    *,
    family: str,
    encoder_args: Mapping[str, Any],
    params: Mapping[str, Any],
    vocab: Vocabulary,
    languages: Sequence[str],
    max_length_tokens: int,
    training: Mapping[str, Any],
    results: Mapping[str, float] | None = None,
    overwrite: bool = False,
) -> str:
    """Writes a model directory; it appears whole or not at all.

    Args:
        directory: where to write. The parent must exist or be creatable.
        family: model family, a key of `models.registry`.
        encoder_args: constructor arguments for `registry.build_encoder`, JSON values;
            `vocab_size` may be left out when the table has exactly `vocab.size` rows.
        params: nested dict of the encoder's parameters (NumPy or JAX arrays), fully addressable.
        vocab: the vocabulary used in training.
        languages: codes of the training languages.
        max_length_tokens: longest input in tokens, specials included; longer ones are cut.
        training: a JSON-compatible summary of the training run, kept in `config.json` and shown
            in the model card.
        results: measured values for the model card, `eval_name/metric` to number.
        overwrite: replace a model directory that is there. Anything else is never replaced.

    Returns:
        The fingerprint: a hex digest over everything that determines a vector.

    Raises:
        ValueError: if the parameters do not fit the module, or `directory` is something else.
        FileExistsError: if `directory` exists, is not empty and `overwrite` is False.
    """
    directory = pathlib.Path(directory)
    _check_replaceable(directory, overwrite)
    encoder_args = {"vocab_size": vocab.size, **encoder_args}
    specials = registry.encoder_specials(family)
    module = registry.build_encoder(family, **encoder_args)
    expected, dim = _expected_params(module)
    flat = {name: np.asarray(value) for name, value in _flatten(params)}
    _check_names_and_shapes(
        {name: (value.shape, str(value.dtype)) for name, value in flat.items()},
        expected,
        "params",
    )
    config = {
        "format_version": FORMAT_VERSION,
        "family": family,
        "encoder": encoder_args,
        "dim": dim,
        "languages": list(languages),
        "preprocessing": record(vocab),
        "specials": [list(names) for names in specials],
        "max_length_tokens": int(max_length_tokens),
        "versions": _versions(),
        "training": dict(training),
    }
    config["fingerprint"] = _fingerprint(config, flat, vocab)
    _write_whole(directory, config, flat, vocab, results)
    return config["fingerprint"]


def load_model(directory: str | os.PathLike[str]) -> ModelSpec:
    """Reads and checks a model directory.

    Args:
        directory: a directory written by `save_model`.

    Returns:
        The module, its parameters and the vocabulary.

    Raises:
        ValueError: if a file is missing, cut, from a newer version, or disagrees with another;
            names the file, the rule and the value found.
    """
    directory = pathlib.Path(directory)
    for name in (CONFIG_FILE, PARAMS_FILE):
        if not (directory / name).is_file():
            raise ValueError(f"{directory}: {name} is missing; it is part of a model directory")
    config_path = directory / CONFIG_FILE
    config = _read_config(config_path)
    vocab = read_vocab(directory, config["preprocessing"])
    try:
        specials = registry.encoder_specials(config["family"])
        module = registry.build_encoder(config["family"], **config["encoder"])
        expected, dim = _expected_params(module)
    except (TypeError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{config_path}: describes no encoder we can build: {reason}") from error
    for key, built in (("specials", [list(names) for names in specials]), ("dim", dim)):
        if config[key] != built:
            raise ValueError(f"{config_path}: {key}={config[key]!r}; the encoder has {built!r}")
    if vocab.size > config["encoder"].get("vocab_size", vocab.size):
        raise ValueError(
            f"{directory}: the vocabulary has {vocab.size} pieces; the encoder's table has "
            f"{config['encoder']['vocab_size']} rows; the files are from different models"
        )
    flat = _read_params(directory / PARAMS_FILE, expected)
    if _fingerprint(config, flat, vocab) != config["fingerprint"]:
        raise ValueError(
            f"{directory}: the fingerprint in {CONFIG_FILE} is not that of {PARAMS_FILE} and "
            f"the vocabulary; a file was changed or comes from another model, export it again"
        )
    return ModelSpec(
        family=config["family"],
        module=module,
        params=flax.traverse_util.unflatten_dict(flat, sep="/"),
        vocab=vocab,
        specials=specials,
        max_length_tokens=config["max_length_tokens"],
        dim=dim,
        languages=tuple(config["languages"]),
        fingerprint=config["fingerprint"],
        config=config,
    )


def _flatten(params: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return iter(sorted(flax.traverse_util.flatten_dict(dict(params), sep="/").items()))


def _expected_params(module: nn.Module) -> tuple[dict[str, tuple[tuple[int, ...], str]], int]:
    """Returns {name: (shape, dtype)} of the module's parameters, and the embedding size."""

    def run(key: jax.Array, tokens: jax.Array) -> tuple[Any, jax.Array]:
        embeddings, variables = module.init_with_output(key, tokens, deterministic=True)
        return variables["params"], embeddings

    tokens = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    params, embeddings = jax.eval_shape(run, jax.random.key(0), tokens)
    shapes = {name: (value.shape, str(value.dtype)) for name, value in _flatten(params)}
    return shapes, int(embeddings.shape[-1])


def _check_names_and_shapes(
    found: Mapping[str, tuple[tuple[int, ...], str]],
    expected: Mapping[str, tuple[tuple[int, ...], str]],
    where: str,
) -> None:
    missing = sorted(expected.keys() - found.keys())
    unknown = sorted(found.keys() - expected.keys())
    if missing or unknown:
        parts = []
        if missing:
            parts.append(f"{len(missing)} are missing, first {missing[0]}")
        if unknown:
            parts.append(f"{len(unknown)} are unknown, first {unknown[0]}")
        raise ValueError(
            f"{where}: must hold the encoder's {len(expected)} parameters; {'; '.join(parts)}"
        )
    for name, (shape, dtype) in expected.items():
        if found[name] != (tuple(shape), dtype):
            raise ValueError(
                f"{where}: {name} must be {dtype} {list(shape)}; "
                f"found {found[name][1]} {list(found[name][0])}"
            )


def _read_config(path: pathlib.Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: is not valid JSON: {error}") from error
    version = config.get("format_version") if isinstance(config, dict) else None
    if not isinstance(version, int):
        raise ValueError(f"{path}: has no format_version; it is not the config of a model")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{path}: format_version {version} is newer than the {FORMAT_VERSION} this "
            f"xling_jax {xling_jax.__version__} reads; upgrade xling_jax"
        )
    for key, kind in _CONFIG_TYPES.items():
        if not isinstance(config.get(key), kind):
            found = repr(config[key]) if key in config else "nothing"
            raise ValueError(f"{path}: {key} must be of type {kind.__name__}; found {found}")
    return config


def _read_params(
    path: pathlib.Path, expected: Mapping[str, tuple[tuple[int, ...], str]]
) -> dict[str, np.ndarray]:
    dtypes = {short: name for name, short in _SAFETENSORS_DTYPES.items()}
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            found = {}
            for name in file.keys():  # noqa: SIM118, safe_open is no mapping
                tensor = file.get_slice(name)
                dtype = tensor.get_dtype()
                found[name] = (tuple(tensor.get_shape()), dtypes.get(dtype, dtype))
            _check_names_and_shapes(found, expected, str(path))
            return {name: file.get_tensor(name) for name in sorted(found)}
    except safetensors.SafetensorError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: is cut or damaged ({reason}); export it again") from error


def _fingerprint(
    config: Mapping[str, Any], flat: Mapping[str, np.ndarray], vocab: Vocabulary
) -> str:
    """Digests all that determines a vector: parameters, vocabulary, sizes, specials, length."""
    keys = ("family", "encoder", "preprocessing", "specials", "max_length_tokens")
    plain = json.dumps({key: config[key] for key in keys}, sort_keys=True)
    digest = hashlib.sha256(plain.encode())
    digest.update(vocab.fingerprint.encode())
    for name, value in sorted(flat.items()):
        digest.update(f"{name} {value.dtype} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value).data)
    return digest.hexdigest()


def _versions() -> dict[str, str]:
    return {
        "xling_jax": xling_jax.__version__,
        "jax": jax.__version__,
        "flax": flax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _check_replaceable(directory: pathlib.Path, overwrite: bool) -> None:
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory}: is a file; name a directory for the model")
    if not directory.is_dir() or not any(directory.iterdir()):
        return
    if not overwrite:
        raise FileExistsError(f"{directory}: already exists; pass overwrite=True to replace it")
    if not (directory / CONFIG_FILE).exists() or not (directory / PARAMS_FILE).exists():
        raise ValueError(
            f"{directory}: only a model directory or an empty one is replaced; "
            f"this one holds no {CONFIG_FILE} and {PARAMS_FILE}; name another"
        )


def _write_whole(
    directory: pathlib.Path,
    config: Mapping[str, Any],
    flat: Mapping[str, np.ndarray],
    vocab: Vocabulary,
    results: Mapping[str, float] | None,
) -> None:
    """Writes into a neighbour directory, then gives it the name."""
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False)
    directory.parent.mkdir(parents=True, exist_ok=True)
    fresh = directory.with_name(f".{directory.name}.tmp")
    old = directory.with_name(f".{directory.name}.old")
    shutil.rmtree(fresh, ignore_errors=True)  # left by a run that was killed here
    shutil.rmtree(old, ignore_errors=True)
    try:
        fresh.mkdir()
        (fresh / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
        contiguous = {name: np.ascontiguousarray(value) for name, value in flat.items()}
        try:
            safetensors.numpy.save_file(contiguous, fresh / PARAMS_FILE)
        except safetensors.SafetensorError as error:
            raise OSError(f"{directory}: the model could not be written: {error}") from error
        write_vocab(vocab, fresh)
        num_params = sum(value.size for value in flat.values())
        card = model_card(config, num_params=num_params, vocab_size=vocab.size, results=results)
        (fresh / CARD_FILE).write_text(card, encoding="utf-8")
        for path in fresh.iterdir():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        # A directory that is not empty cannot be replaced in one step. Between these two renames
        # the name is missing, never half-written; the old model is deleted only afterwards.
        if directory.exists():
            os.rename(directory, old)
        os.rename(fresh, directory)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
