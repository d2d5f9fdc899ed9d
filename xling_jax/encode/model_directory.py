"""Model directories: an encoder on disk as plain data.

    config.json            family, sizes, languages, preprocessing, versions, training summary, what
                           scores mean (`xling calibrate`), and hashes of itself and of the files;
                           also prompts and the width to keep, of encoders that have them
    encoder.safetensors    float32 parameters, named by their path in the module ("a/b/kernel")
    sentencepiece.model    the vocabulary; converted encoders have other files
    README.md              model card

Loading executes nothing from the directory. Names, shapes and dtypes are checked against the
encoder before parameters are read, and hashes before they are used.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import pathlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors

from xling_jax import options
from xling_jax.files.hashes import fingerprint as json_fingerprint
from xling_jax.files.hashes import hash_file
from xling_jax.files.untrusted import one_line, parse_json
from xling_jax.files.whole import naming_errors, whole_directory, write_whole
from xling_jax.models.numpy_encoders import NUMPY_ENCODERS, NumpyEncoder
from xling_jax.models.numpy_static import NumpyStatic
from xling_jax.registry import Registry, did_you_mean
from xling_jax.text.vocabularies import Vocabulary, read_vocab, record, write_vocab
from xling_jax.version import __version__

if TYPE_CHECKING:
    import flax.linen as nn

    from xling_jax.align.precision import Calibration

FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
PARAMS_FILE = "encoder.safetensors"
CARD_FILE = "README.md"

# Directories of encoders inside the package, by name.
SHIPPED = {
    config.parent.name: config.parent
    for config in pathlib.Path(__file__).parents[1].glob(f"shipped/*/{CONFIG_FILE}")
}

# What `find_model_directory` does with encoders of other libraries; `formats` is above this room.
_PUBLISHED = Registry(
    "published encoder",
    hf="xling_jax.formats.published:fetch_from_hub",
    converted="xling_jax.formats.published:convert_into_cache",
)

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
_OPTIONAL_KEYS = ("prompts", "default_prompt", "truncate_dim")
# Below this, an encoder's sizes cost nothing to try; real parameters have more elements.
_SMALL_SIZE = 1 << 20
_SHORT_LIST = 16  # likewise, of values
_SAFETENSORS_DTYPES = {"F32": "float32", "F16": "float16", "I8": "int8", "U8": "uint8"}

# Name of a parameter -> shape and dtype.
Shapes = Mapping[str, tuple[tuple[int, ...], str]]


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """A loaded model directory.

    Attributes:
        stored: nested dict of the NumPy arrays in the directory, checked against the encoder.
        max_length_tokens: longest input, special tokens included.
        dim: size of the vectors that the encoder computes, of which `truncate_dim` are kept.
        encoder: the encoder in NumPy, with its options; None if only JAX can compute it.
        fingerprint: hex digest over everything that determines a vector.
        calibration: what scores of mined pairs mean; None if it was not measured.
        prompts: texts that go before an input, by name, such as "query".
        default_prompt: name of the prompt that inputs get unless another is chosen.
    """

    stored: dict[str, Any]
    vocab: Vocabulary
    max_length_tokens: int
    dim: int
    encoder: NumpyStatic | NumpyEncoder | None
    languages: tuple[str, ...]
    fingerprint: str
    config: dict[str, Any]
    calibration: Calibration | None
    prompts: dict[str, str]
    default_prompt: str | None
    truncate_dim: int | None

    @property
    def output_dim(self) -> int:
        """The size of the vectors that users get."""
        return self.truncate_dim or self.dim

    @property
    def special_ids(self) -> tuple[list[int], list[int]]:
        """Ids of the special tokens before and after a text."""
        before, after = (special_ids(self.vocab, names) for names in self.config["specials"])
        return before, after

    @functools.cached_property
    def module(self) -> nn.Module:
        """The Linen module built from `config["encoder"]`."""
        from xling_jax.models import registry

        arguments = _arguments(self.config["encoder"])
        arguments.pop("storage", None)
        return registry.build_encoder(self.config["family"], **arguments)

    @functools.cached_property
    def params(self) -> dict[str, Any]:
        """Nested dict of NumPy arrays, those of `module`."""
        return self.static.trainable(self.stored) if self.static else self.stored

    @property
    def static(self) -> NumpyStatic | None:
        """The encoder if it has no layers."""
        return self.encoder if isinstance(self.encoder, NumpyStatic) else None


def special_ids(vocab: Vocabulary, names: Sequence[str]) -> list[int]:
    """Ids of the special tokens called `bos` or `eos`; ValueError where the vocabulary has none."""
    ids = {"bos": vocab.bos_id, "eos": vocab.eos_id}
    if missing := [name for name in names if ids.get(name) is None]:
        raise ValueError(f"specials={missing} must be 'bos' or 'eos', and in the vocabulary")
    return [ids[name] for name in names]


def find_model_directory(name_or_path: str | os.PathLike[str]) -> pathlib.Path:
    """Finds a model directory, a workdir's `encoder/`, a shipped name or a published encoder.

    The last, a directory or `hf:ORG/NAME`, is converted into the cache, see `formats.published`.
    OptionError if there is no such model.
    """
    if not isinstance(name_or_path, (str, os.PathLike)):
        raise options.OptionError(f"a model must be a name or a path; found {name_or_path!r:.40}")
    name = os.fspath(name_or_path)
    path = _PUBLISHED["hf"](name) if name.startswith("hf:") else pathlib.Path(name).expanduser()
    if (path / PARAMS_FILE).exists():
        return path
    if (path / "encoder").is_dir():
        return path / "encoder"
    if name in SHIPPED:
        return SHIPPED[name]
    if path.exists() and (converted := _PUBLISHED["converted"](path)):
        return converted
    if path.is_dir():
        found = f"is a directory with neither {PARAMS_FILE} nor encoder/{PARAMS_FILE}"
        if (path / "checkpoints").is_dir():
            found += "; training has not exported an encoder yet: run xling train again, or take "
            found += "one from xling export"
    else:
        found = "no such directory"
    hint = did_you_mean(name, SHIPPED)
    raise options.OptionError(
        f"{name}: {found}; use a model directory, a workdir of xling train, a published encoder "
        "(a directory, or hf:ORG/NAME), or the name of a packaged encoder "
        f"({', '.join(sorted(SHIPPED))}){hint and f'; {hint}'}"
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
    prompts: Mapping[str, str] | None = None,
    default_prompt: str | None = None,
    truncate_dim: int | None = None,
    calibration: Calibration | None = None,
    overwrite: bool = False,
) -> str:
    """Writes a model directory; it appears whole or not at all.

    Without `vocab_size` among `encoder_args`, which are JSON values, the table has exactly
    `vocab.size` rows. `params` is a nested dict of NumPy or JAX arrays, fully addressable.
    `training`, a JSON-compatible summary, and `results`, {`eval_name/metric`: number}, are for
    `config.json` and the model card. The others are those of `ModelSpec`.

    Returns the fingerprint. ValueError if parameters, prompts or width do not fit, or `directory`
    is something else than a model directory; FileExistsError if it is one, unless `overwrite`
    replaces it.
    """
    from xling_jax.encode.model_card import model_card, with_scores_section
    from xling_jax.files.embeddings import write_tensors

    directory = pathlib.Path(directory)
    check_replaceable(directory, (CONFIG_FILE, PARAMS_FILE), overwrite)
    encoder_args = {"vocab_size": vocab.size, **encoder_args}
    encoder = _numpy_encoder(family, encoder_args)
    shapes, dim, specials = _facts(encoder, family, encoder_args)
    flat = dict(sorted(_flat(params)))
    found = {name: (value.shape, str(value.dtype)) for name, value in flat.items()}
    check_parameters(found, shapes, "params")
    config = {
        "format_version": FORMAT_VERSION,
        "family": family,
        "encoder": encoder_args,
        "dim": dim,
        "languages": list(languages),
        "preprocessing": record(vocab),
        "specials": specials,
        "max_length_tokens": int(max_length_tokens),
        "versions": {
            "xling_jax": __version__,
            **{name: importlib.metadata.version(name) for name in ("jax", "flax", "numpy")},
            "python": platform.python_version(),
        },
        "training": dict(training),
    }
    # Only where there are any, so that the directories of other encoders stay as they are.
    optional = (dict(prompts or {}), default_prompt, truncate_dim)
    config |= {key: v for key, v in zip(_OPTIONAL_KEYS, optional) if v not in ({}, None)}
    _check_prompts_and_width(config, str(directory))
    config["fingerprint"] = _fingerprint(config, flat, vocab)
    if results:
        config["results"] = dict(results)
    # Not those stored: of numbers in fewer bits than 8, several share one.
    is_static = isinstance(encoder, NumpyStatic)
    trained = encoder.trained_shapes().values() if is_static else (s for s, _ in shapes.values())
    num_params, num_bytes = sum(map(math.prod, trained)), sum(v.nbytes for v in flat.values())
    card = model_card(config, num_params, num_bytes / 1e6, vocab, results)
    if calibration:
        config["calibration"] = calibration.to_json()
        card = with_scores_section(card, calibration)
    with whole_directory(directory) as fresh, naming_errors(directory):
        write_tensors(fresh / PARAMS_FILE, flat)
        write_vocab(vocab, fresh)
        (fresh / CONFIG_FILE).write_text(_config_text(config, fresh, vocab), encoding="utf-8")
        (fresh / CARD_FILE).write_text(card, encoding="utf-8")
    return config["fingerprint"]


def save_changed(directory: str | os.PathLike[str], spec: ModelSpec, **changes: Any) -> str:
    """Writes a loaded model again, with other arguments of `save_model`."""
    given = {
        "family": spec.config["family"],
        "encoder_args": spec.config["encoder"],
        "params": spec.stored,
        "training": spec.config.get("training", {}),
    }
    names = ("vocab", "languages", "max_length_tokens", "prompts", "default_prompt")
    given |= {name: getattr(spec, name) for name in (*names, "truncate_dim", "calibration")}
    return save_model(directory, **given | changes)


def write_calibration(directory: str | os.PathLike[str], calibration: Calibration) -> None:
    """Writes into a model directory what scores mean, in place of what it says of them.

    `config.json` is replaced whole or not at all; then the model card gets a section.
    """
    from xling_jax.encode.model_card import with_scores_section

    directory = pathlib.Path(directory)
    spec = load_model(directory)
    config = spec.config | {"calibration": calibration.to_json()}
    write_whole(directory / CONFIG_FILE, _config_text(config, directory, spec.vocab))
    card = directory / CARD_FILE
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    write_whole(card, with_scores_section(text, calibration))


def _config_text(config: Mapping[str, Any], directory: pathlib.Path, vocab: Vocabulary) -> str:
    """The content of `config.json`, with the hashes of the files and of itself."""
    config = json.loads(json.dumps({key: v for key, v in config.items() if key != "hashes"}))
    hashes = {name: hash_file(directory / name) for name in (PARAMS_FILE, *vocab.files)}
    config["hashes"] = {**hashes, CONFIG_FILE: json_fingerprint(config)}
    return json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def load_model(directory: str | os.PathLike[str]) -> ModelSpec:
    """Reads and checks a directory written by `save_model`; ValueError names what is wrong."""
    directory = pathlib.Path(directory)
    for name in (CONFIG_FILE, PARAMS_FILE):
        if not (directory / name).is_file():
            raise ValueError(f"{directory}: {name} is missing; it is part of a model directory")
    config_path = directory / CONFIG_FILE
    config = read_config(directory)
    _check_sizes(config["encoder"], _read_shapes(directory / PARAMS_FILE), config_path)
    vocab = read_vocab(directory, config["preprocessing"])
    try:
        encoder = _numpy_encoder(config["family"], config["encoder"])
        shapes, dim, specials = _facts(encoder, config["family"], config["encoder"])
    except Exception as error:  # what a wrong size does deep inside a module
        raise ValueError(
            f"{config_path}: describes no known encoder: {one_line(error, 300)}"
        ) from error
    _check_prompts_and_width(config, str(config_path))
    for key, expected in (("specials", specials), ("dim", dim)):
        if config[key] != expected:
            found = f"{config[key]!r:.60}"
            raise ValueError(f"{config_path}: {key}={found}; the encoder has {expected!r}")
    if vocab.size > config["encoder"].get("vocab_size", vocab.size):
        raise ValueError(
            f"{directory}: the vocabulary has {vocab.size} pieces; the encoder's table has "
            f"{config['encoder']['vocab_size']} rows; the files are from different models"
        )
    flat = _read_params(directory / PARAMS_FILE, shapes)
    _check_hashes(directory, config, vocab)
    calibration = None
    if "calibration" in config:
        from xling_jax.align.precision import Calibration

        calibration = Calibration.from_json(config["calibration"], f"{config_path}: calibration")
    return ModelSpec(
        stored=_nested(flat),
        vocab=vocab,
        max_length_tokens=config["max_length_tokens"],
        dim=dim,
        encoder=encoder,
        languages=tuple(config["languages"]),
        fingerprint=config["fingerprint"],
        config=config,
        calibration=calibration,
        prompts=config.get("prompts") or {},
        default_prompt=config.get("default_prompt"),
        truncate_dim=config.get("truncate_dim"),
    )


def _arguments(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an encoder, without one of before that was off."""
    return {name: v for name, v in recorded.items() if name != "relative_positions" or v}


def _numpy_encoder(
    family: str, encoder_args: Mapping[str, Any]
) -> NumpyStatic | NumpyEncoder | None:
    """An encoder in NumPy; None also with arguments that only its Linen module knows."""
    given = _arguments(encoder_args)
    if family == "static":
        return options.make(NumpyStatic, given, "encoder")
    if family not in NUMPY_ENCODERS:
        return None
    if family == "dual" and (given.get("layers"), given.get("pooling")) == (0, "weighted_mean"):
        known = options.defaults(NumpyStatic)
        return NumpyStatic(**{name: value for name, value in given.items() if name in known})
    given.pop("dtype", None)
    if not given.keys() <= options.defaults(NUMPY_ENCODERS[family]).keys():
        return None
    return options.make(NUMPY_ENCODERS[family], given, "encoder")


def _facts(
    encoder: NumpyStatic | NumpyEncoder | None, family: str, encoder_args: Mapping[str, Any]
) -> tuple[Shapes, int, list[list[str]]]:
    """Parameters, embedding size and special tokens; of the Linen module if NumPy has none."""
    if encoder:
        shapes, dim = encoder.parameters, encoder.dim
    else:
        from xling_jax.encode.jax_backend import parameter_shapes
        from xling_jax.models import registry

        encoder = registry.build_encoder(family, **_arguments(encoder_args))
        shapes, dim = parameter_shapes(encoder)
    return shapes, dim, [list(names) for names in encoder.specials]


def check_parameters(found: Shapes, expected: Shapes, where: str) -> None:
    """Raises ValueError unless names, shapes and dtypes are those expected."""
    if found.keys() != expected.keys():
        wrong = {"missing": expected.keys() - found.keys()}
        wrong["unknown"] = found.keys() - expected.keys()
        parts = [f"{len(ns)} are {kind}, first {min(ns):.80}" for kind, ns in wrong.items() if ns]
        raise ValueError(
            f"{where}: must hold the encoder's {len(expected)} parameters; {'; '.join(parts)}"
        )
    for name, (shape, dtype) in expected.items():
        if found[name] != (tuple(shape), dtype):
            raise ValueError(
                f"{where}: {name} must be {dtype} {list(shape)}; "
                f"found {found[name][1]} {list(found[name][0])}"
            )


def read_config(directory: pathlib.Path) -> dict[str, Any]:
    """Reads the `config.json` of a model directory; ValueError for a wrong type or version."""
    path = directory / CONFIG_FILE
    config = parse_json(path.read_bytes(), str(path))
    version = config.get("format_version") if isinstance(config, dict) else None
    if not isinstance(version, int):
        raise ValueError(f"{path}: has no format_version; it is not the config of a model")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{path}: format_version {version} is newer than the {FORMAT_VERSION} this "
            f"xling_jax {__version__} reads; upgrade xling_jax"
        )
    for key, kind in _CONFIG_TYPES.items():
        if not isinstance(config.get(key), kind):
            found = f"{config[key]!r:.60}" if key in config else "nothing"
            raise ValueError(f"{path}: {key} must be of type {kind.__name__}; found {found}")
    if not all(isinstance(code, str) for code in config["languages"]):
        raise ValueError(f"{path}: languages must be codes; found {config['languages']!r:.60}")
    return config


def _check_prompts_and_width(config: Mapping[str, Any], where: str) -> None:
    """Raises ValueError unless prompts are texts, the default is one, and the width is possible."""
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        isinstance(name, str) and isinstance(text, str) for name, text in prompts.items()
    ):
        found = f"{config['prompts']!r:.60}"
        raise ValueError(f"{where}: prompts must map names to texts; found {found}")
    default = config.get("default_prompt")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        known = ", ".join(map(repr, prompts)) or "none"
        raise ValueError(
            f"{where}: default_prompt must be the name of a prompt ({known}); found {default!r:.60}"
        )
    dim = config.get("truncate_dim")
    if dim is not None and (type(dim) is not int or not 1 <= dim <= config["dim"]):
        raise ValueError(
            f"{where}: truncate_dim must be from 1 to {config['dim']}, the model's width; "
            f"found {dim!r:.60}"
        )


def _check_hashes(directory: pathlib.Path, config: Mapping[str, Any], vocab: Vocabulary) -> None:
    """Raises ValueError if a file is not as it was written."""
    content = {key: value for key, value in config.items() if key != "hashes"}
    if "hashes" not in config:
        raise ValueError(f"{directory}: has no hashes, as written by 0.1; save it again with 0.3")
    hashes = config["hashes"] if isinstance(config["hashes"], dict) else {}
    # The config first: it holds the other hashes.
    for name in (CONFIG_FILE, PARAMS_FILE, *vocab.files):
        path = directory / name
        found = json_fingerprint(content) if name == CONFIG_FILE else hash_file(path)
        if found != hashes.get(name):
            raise ValueError(
                f"{path}: damaged, or a file was changed or comes from another model: its hash is "
                f"{found[:16]}, {CONFIG_FILE} has {str(hashes.get(name))[:16]}; export it again"
            )


def _check_sizes(arguments: Mapping[str, Any], found: Shapes, where: pathlib.Path) -> None:
    """Refuses sizes that cannot be those of the parameters, before anything is built of them.

    Every layer has a parameter, and other sizes but small ones are below the number of elements.
    """
    elements = sum(math.prod(shape) for shape, _ in found.values())
    for name, value in arguments.items():
        size, limit = value, max(elements, _SMALL_SIZE)
        if isinstance(value, list):
            size, limit = len(value), max(len(found), _SHORT_LIST)
        elif name.endswith("layers"):
            limit = len(found)
        if isinstance(size, int) and size > limit:
            raise ValueError(
                f"{where}: encoder.{name}={value!s:.60} must be that of {PARAMS_FILE}, which holds "
                f"{len(found)} parameters of {elements:,} elements; the files are from different "
                "models"
            )


def _read_shapes(path: pathlib.Path) -> Shapes:
    """The shapes and dtypes in the header of a file, whose size agrees with them."""
    found = {}
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118, safe_open is not a mapping
                tensor = file.get_slice(name)
                dtype = tensor.get_dtype()
                found[name] = (tuple(tensor.get_shape()), _SAFETENSORS_DTYPES.get(dtype, dtype))
        return found
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{path}: truncated or damaged ({one_line(error, 200)}); export it again"
        ) from error


def _read_params(path: pathlib.Path, expected: Shapes) -> dict[str, np.ndarray]:
    check_parameters(_read_shapes(path), expected, str(path))
    # safe_open has checked the offsets. Reading through it would hold the mapped file and a copy.
    arrays = {}
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        start = file.tell()
        for name, (shape, dtype) in sorted(expected.items()):
            file.seek(start + header[name]["data_offsets"][0])
            array = np.fromfile(file, np.dtype(dtype).newbyteorder("<"), math.prod(shape))
            arrays[name] = array.reshape(shape)
    return arrays


def _flat(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """{"a": {"b": array}} -> ("a/b", array)."""
    for name, value in params.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        else:
            yield prefix + name, np.asarray(value)


def _nested(flat: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """{"a/b": array} -> {"a": {"b": array}}."""
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *outer, last = name.split("/")
        inner = nested
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return nested


def _fingerprint(
    config: Mapping[str, Any], flat: Mapping[str, np.ndarray], vocab: Vocabulary
) -> str:
    """Digests what determines a vector: parameters, vocabulary, sizes, specials, length."""
    keys = ["family", "encoder", "preprocessing", "specials", "max_length_tokens"]
    keys += [key for key in _OPTIONAL_KEYS if config.get(key)]
    plain = json.dumps({key: config[key] for key in keys}, sort_keys=True)
    digest = hashlib.sha256(plain.encode())
    digest.update(vocab.fingerprint.encode())
    for name, value in sorted(flat.items()):
        digest.update(f"{name} {value.dtype} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value).data)
    return digest.hexdigest()


def check_replaceable(directory: pathlib.Path, markers: Sequence[str], overwrite: bool) -> None:
    """Refuses to replace a directory, unless `overwrite` allows it and it has the `markers`.

    OptionError without these files, FileExistsError without `overwrite`.
    """
    if directory.exists() and not directory.is_dir():
        raise options.OptionError(f"{directory}: is a file; choose a directory")
    if not directory.is_dir() or not any(directory.iterdir()):
        return
    if not overwrite:
        raise FileExistsError(f"{directory}: already exists; pass overwrite=True to replace it")
    if not all((directory / name).is_file() for name in markers):
        raise options.OptionError(
            f"{directory}: only an earlier output or an empty directory is replaced; this one has "
            f"no {' and '.join(markers)}; choose another"
        )
