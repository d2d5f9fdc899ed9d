"""The `modules.json` of sentence-transformers: what follows a transformer, in our terms.

Modules that would change vectors and that our encoder does not have are refused.
"""

from pathlib import Path
from typing import NamedTuple

from xling_jax.convert.huggingface_config import (
    CONFIG_FILE,
    check_values,
    read_json,
    read_settings,
    read_size,
)

_KINDS = ("bert", "roberta", "distilbert", "xlm-roberta")
_POOLINGS = {"cls": "first", "mean": "mean", "max": "max"}

_REQUIRED = dict.fromkeys(("module_input_name", "module_output_name"), "sentence_embedding")
_REQUIRED["use_residual"] = False

# Class name of PyTorch -> key of `models.bert.ACTIVATIONS`.
_TORCH_ACTIVATIONS = {
    "GELU": "gelu",
    "Identity": "identity",
    "ReLU": "relu",
    "Sigmoid": "sigmoid",
    "SiLU": "swish",
    "Tanh": "tanh",
}


class Projection(NamedTuple):
    """A dense layer after the pooling."""

    directory: Path  # with its tensors
    tensor: str  # their name, without `.weight` and `.bias`
    inputs: int
    width: int
    activation: str  # key of `models.bert.ACTIVATIONS`
    use_bias: bool


class Modules(NamedTuple):
    """A transformer and what turns its states into a vector.

    Attributes:
        transformer: directory of the transformer and its tokenizer.
        pooling: of `models.layers.POOLINGS`.
        projections: dense layers, in order.
        normalize: whether vectors are scaled to length 1.
        max_length_tokens: longest input, None if not set.
        lowercase: whether text is lowercased before the tokenizer.
        prefix: text before every sentence, "" for none.
    """

    transformer: Path
    pooling: str
    projections: tuple[Projection, ...] = ()
    normalize: bool = False
    max_length_tokens: int | None = None
    lowercase: bool = False
    prefix: str = ""


def read_modules(directory: Path) -> Modules | None:
    """Reads the `modules.json` of sentence-transformers; None if there is none.

    Raises:
        ValueError: if a file is broken, or the modules are not a transformer, a pooling, any
            number of dense layers and at most one normalization, in that order.
    """
    path = directory / "modules.json"
    if not path.is_file():
        return None
    rows = read_json(path)
    try:
        modules = [(str(row["type"]).rsplit(".", 1)[-1], directory / row["path"]) for row in rows]
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path}: must list modules with 'type' and 'path'") from error
    for row in rows:
        if Path(row["path"]).is_absolute() or ".." in Path(row["path"]).parts:
            raise ValueError(f"{path}: {row['path']!r:.80} must be a directory here")
    kinds = [kind for kind, _ in modules]
    projections = kinds.count("Dense")
    normalize = kinds[-1:] == ["Normalize"]
    if kinds != ["Transformer", "Pooling", *["Dense"] * projections, *["Normalize"] * normalize]:
        raise ValueError(
            f"{path}: modules must be Transformer, Pooling, then Dense and Normalize where there "
            f"are any; found {', '.join(kinds):.200}; with --pooling the transformer alone is "
            "converted"
        )
    transformer = modules[0][1]
    # The first versions name the file for the kind of model.
    paths = (transformer / f"sentence_{kind}_config.json" for kind in _KINDS)
    settings = next((read_settings(path) for path in paths if path.is_file()), {})
    length, prefix = settings.get("max_seq_length"), _default_prompt(directory)
    return Modules(
        transformer=transformer,
        pooling=_pooling(modules[1][1] / CONFIG_FILE, prefix),
        projections=tuple(_projection(path) for kind, path in modules if kind == "Dense"),
        normalize=normalize,
        max_length_tokens=length and read_size(transformer, settings, "max_seq_length"),
        lowercase=bool(settings.get("do_lower_case", False)),
        prefix=prefix,
    )


def _default_prompt(directory: Path) -> str:
    """The text that sentence-transformers puts before sentences by default."""
    path = directory / "config_sentence_transformers.json"
    settings = read_settings(path) if path.is_file() else {}
    name = settings.get("default_prompt_name")
    if name is None:
        return ""
    prompts = settings.get("prompts")
    known = isinstance(prompts, dict) and isinstance(name, str)
    prompt = prompts.get(name) if known else None
    if not isinstance(prompt, str):
        raise ValueError(f"{path}: default_prompt_name {name!r:.60} must be one of its prompts")
    return prompt


def _pooling(path: Path, prefix: str) -> str:
    settings = read_settings(path)
    modes = settings.get("pooling_mode")
    if modes is None:
        modes = [
            key.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
            for key, chosen in settings.items()
            if key.startswith("pooling_mode_") and chosen
        ]
    modes = modes if isinstance(modes, list) and modes else [modes or "mean"]
    if len(modes) != 1 or not isinstance(modes[0], str) or modes[0] not in _POOLINGS:
        raise ValueError(
            f"{path}: the pooling must be one of {', '.join(_POOLINGS)}; found "
            f"{', '.join(map(str, modes)):.80}; with --pooling the transformer alone is converted"
        )
    if prefix and not settings.get("include_prompt", True):
        raise ValueError(
            f"{path}: include_prompt must be true where there is a default prompt; found "
            f"{prefix!r:.60}"
        )
    return _POOLINGS[modes[0]]


def _projection(directory: Path) -> Projection:
    path = directory / CONFIG_FILE
    settings = read_settings(path)
    check_values(path, settings, _REQUIRED)
    name = str(settings.get("activation_function", "torch.nn.modules.activation.Tanh"))
    activation = _TORCH_ACTIVATIONS.get(name.rsplit(".", 1)[-1])
    if activation is None or not name.startswith("torch.nn."):
        raise ValueError(
            f"{path}: activation_function must be one of PyTorch's "
            f"{', '.join(_TORCH_ACTIVATIONS)}; found {name!r:.60}"
        )
    return Projection(
        directory=directory,
        tensor="linear",
        inputs=read_size(path, settings, "in_features"),
        width=read_size(path, settings, "out_features"),
        activation=activation,
        use_bias=bool(settings.get("bias", True)),
    )
