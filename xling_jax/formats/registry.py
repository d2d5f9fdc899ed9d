"""Published formats by name: what is read from them, what is written to them."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from xling_jax.files.whole import naming_errors, whole_directory
from xling_jax.options import OptionError
from xling_jax.registry import Registry

# Each is a function (path, model_directory, *, languages, max_length_tokens, overwrite, **options)
# -> record of the conversion; it raises ValueError for what it cannot keep.
IMPORTERS = Registry(
    "--from",
    huggingface="xling_jax.formats.huggingface:convert_huggingface",
    **{"sentence-transformers": "xling_jax.formats.huggingface:convert_huggingface"},
    model2vec="xling_jax.formats.model2vec:convert_static",
    laser="xling_jax.formats.laser:convert_laser",
    sonar="xling_jax.formats.fairseq:convert_sonar",
)

# Each is a function (model_directory, output, *, overwrite) -> dict of facts to log; it
# raises OptionError for a model that the format cannot hold, ImportError for a missing package.
EXPORTERS = Registry(
    "--to",
    onnx=("xling_jax.formats.onnx_file:export_onnx", "a graph for onnxruntime"),
    **{
        "sentence-transformers": (
            "xling_jax.formats.sentence_transformers:export_sentence_transformers",
            "a directory for SentenceTransformer(PATH)",
        )
    },
    model2vec=(
        "xling_jax.formats.model2vec:export_model2vec",
        "a directory for model2vec.StaticModel",
    ),
    web=("xling_jax.formats.web:export_web", "a page and a module in JavaScript"),
    laser=("xling_jax.formats.laser:export_laser", "the .pt file of LASER's own code"),
)


def refuse(where: str | os.PathLike[str], problems: Mapping[str, Any]) -> None:
    """Raises OptionError with the first of the messages whose value is true."""
    for message, is_there in problems.items():
        if is_there:
            raise OptionError(f"{os.fspath(where)}: {message}")


@contextlib.contextmanager
def export_directory(path: str | os.PathLike[str], marker: str, overwrite: bool) -> Iterator[Path]:
    """Gives a directory to fill that takes its name only when the block ends without an error.

    Errors as `check_replaceable`: an earlier export has a file named `marker`.
    """
    from xling_jax.encode.model_directory import check_replaceable

    check_replaceable(Path(path), (marker,), overwrite)
    with whole_directory(path) as fresh, naming_errors(path):
        yield fresh
