"""Published encoders where one of ours is expected: recognized, fetched, converted once.

    a directory     of Hugging Face, sentence-transformers, model2vec or LASER; LASER's .pt file
    hf:ORG/NAME     from the cache of huggingface_hub or the network; hf:ORG/NAME@REVISION

What is converted stays in the user's cache, under a key of the files that it was made of.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xling_jax.encode.model_directory import PARAMS_FILE
from xling_jax.files.cache import cache_for
from xling_jax.files.hashes import fingerprint
from xling_jax.files.untrusted import one_line
from xling_jax.files.whole import lock_directory, read_json
from xling_jax.formats.files import CONFIG_FILE, WEIGHTS_FILE, published_name
from xling_jax.formats.model2vec import convert_static, is_static
from xling_jax.formats.modules import MODULES_FILE
from xling_jax.formats.registry import IMPORTERS
from xling_jax.options import OptionError
from xling_jax.registry import import_extra
from xling_jax.version import __version__

_logger = logging.getLogger(__name__)

# What is recognized without `--from`; any other importer reads what it is given.
RECOGNIZED = ("huggingface", "sentence-transformers", "model2vec", "laser", "sonar")
_LASER_SUFFIXES = (".pt", ".spm", ".cvocab")
# Of repositories on the hub, what no conversion reads.
_FOREIGN = ["*.h5", "*.msgpack", "*.ot", "*.onnx*", "*.tflite", "*.gguf", "onnx/*", "openvino/*"]
_FOREIGN += ["coreml/*", "*.pt", "*.pth", "*.ckpt"]
_PICKLES = ["pytorch_model*.bin", "0_*.bin"]  # of the transformer; dense layers may have no other


def readers_of(path: Path) -> tuple[str, ...]:
    """The `--from` that read what is at a path, the one whose vectors it was made for first."""
    if path.is_file():
        return ("laser", "sonar") if path.suffix == ".pt" else ()
    config = read_json(path / CONFIG_FILE) or {}
    if "format_version" in config or "cleaning" in config:  # a model directory, a workdir
        return ()
    has_modules = (path / MODULES_FILE).is_file()
    if (has_modules or (path / WEIGHTS_FILE).is_file()) and is_static(path):
        return ("model2vec",) if config else ("sentence-transformers",)
    if has_modules:
        return ("sentence-transformers", "huggingface")
    if config:
        return ("huggingface",)
    return ("laser", "sonar") if any(path.glob("*.pt")) else ()


def importer(kind: str, path: Path) -> Callable[..., dict[str, Any]]:
    """The function that converts what is at a path for a `--from`."""
    static = kind in RECOGNIZED and path.is_dir() and is_static(path)
    return convert_static if static else IMPORTERS[kind]


def convert_into_cache(path: Path) -> Path | None:
    """The model directory of a published encoder, converted unless that was done; None for others.

    It is converted again after a file of it has changed, or by another version of this library.
    Raises as the converters, and OptionError if there is no place for a cache.
    """
    kinds = readers_of(path)
    if not kinds:
        return None
    name = path.stem if path.is_file() else published_name(path).replace("/", "-")
    copy = cache_for("models") / _key(path) / name
    if (copy / PARAMS_FILE).is_file():
        return copy
    copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_directory(copy.parent):
        if not (copy / PARAMS_FILE).is_file():
            importer(kinds[0], path)(path, copy)
            _logger.info("%s: converted as --from %s into %s", path, kinds[0], copy)
    return copy


def fetch_from_hub(name: str) -> Path:
    """The directory of `hf:ORG/NAME`, downloaded unless it was; OptionError if that fails."""
    hub = import_extra("huggingface_hub", "hub", name)
    repository, _, revision = name.removeprefix("hf:").partition("@")
    get = lambda ignored: Path(
        hub.snapshot_download(repository, revision=revision or None, ignore_patterns=ignored)
    )
    try:
        directory = get(_FOREIGN + _PICKLES)
        if not any(directory.rglob("*.safetensors")):
            directory = get(_FOREIGN)
    except (OSError, ValueError) as error:  # its own errors are among them
        raise OptionError(f"{name}: {one_line(error, 400)}") from error
    return directory


def _key(path: Path) -> str:
    """The fingerprint of the version, and of names, sizes and times of the files."""
    top = path if path.is_dir() else path.parent
    states = [__version__, path.name]
    for file in sorted(file for file in top.rglob("*") if file.is_file()):
        name = file.relative_to(top)
        is_hidden = any(part.startswith(".") for part in name.parts)
        if is_hidden or (path.is_file() and file.suffix not in _LASER_SUFFIXES):
            continue
        status = file.stat()
        states.append([repr(os.fsencode(name)), status.st_size, status.st_mtime_ns])
    return fingerprint(states)
