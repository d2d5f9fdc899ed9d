"""The `modules.json` of sentence-transformers and the settings beside it, in our terms."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xling_jax.formats.files import (
    CONFIG_FILE,
    Settings,
    read_json,
    read_settings,
    write_json,
)

MODULES_FILE = "modules.json"
SETTINGS_FILE = "config_sentence_transformers.json"

POOLINGS = {"cls": "first", "mean": "mean", "max": "max", "lasttoken": "last"}
_AFTER_POOLING = ("Dense", "Dropout")
_SENTENCE = dict.fromkeys(("module_input_name", "module_output_name"), "sentence_embedding")
_NOTHING = "model_args tokenizer_args config_args model_kwargs processor_kwargs config_kwargs"
# File or kind of module -> key that would change vectors -> the only supported value.
_REQUIRED: dict[str, dict[str, Any]] = {
    MODULES_FILE: {"kwargs": []},
    SETTINGS_FILE: {"model_type": "SentenceTransformer"},
    "Transformer": {
        "transformer_task": "feature-extraction",
        "modality_config": {
            "text": {"method": "forward", "method_output_name": "last_hidden_state"}
        },
        "module_output_name": "token_embeddings",
        "processing_kwargs": {},
        **dict.fromkeys(_NOTHING.split(), {}),
        **dict.fromkeys(("query_length", "document_length", "query_expansion"), None),
        "tokenizer_name_or_path": None,
    },
    "Dense": {"use_residual": False, **_SENTENCE},
    "Normalize": _SENTENCE,
}

# Class name of PyTorch -> key of `models.bert.ACTIVATIONS`.
TORCH_ACTIVATIONS = {
    "GELU": "gelu",
    "Identity": "identity",
    "ReLU": "relu",
    "Sigmoid": "sigmoid",
    "SiLU": "swish",
    "Tanh": "tanh",
}


class Module(NamedTuple):
    """A row of `modules.json`."""

    kind: str  # name of its class, such as Pooling
    directory: Path


class Projection(NamedTuple):
    """A layer after the pooling: where its tensors are, and what it is in `BertOptions`."""

    directory: Path
    inputs: int
    layer: tuple[int, str, bool]


class Use(NamedTuple):
    """How vectors are meant to be used: prompts by name and the default one, width, similarity.

    None in `truncate_dim` is all dimensions; `similarity`, such as "cosine", changes no vector.
    """

    prompts: Mapping[str, str] = {}
    default_prompt: str | None = None
    truncate_dim: int | None = None
    similarity: str | None = None


class Modules(NamedTuple):
    """A transformer and its tokenizer, and in order what turns its states into a vector.

    `lowercase` says whether text is lowercased before the tokenizer.
    """

    transformer: Path
    pooling: str
    projections: tuple[Projection, ...] = ()
    normalize: bool = False
    max_length_tokens: int | None = None
    lowercase: bool = False
    use: Use = Use()


def list_modules(directory: Path) -> list[Module]:
    """Reads the `modules.json` of sentence-transformers; [] if there is none.

    ValueError for a module that is not of sentence-transformers or takes arguments of its own.
    """
    path = directory / MODULES_FILE
    if not path.is_file():
        return []
    rows = read_json(path)
    try:
        modules = [Module(str(row["type"]), directory / row["path"]) for row in rows]
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path}: must list modules with 'type' and 'path'") from error
    for row in rows:
        if Path(row["path"]).is_absolute() or ".." in Path(row["path"]).parts:
            raise ValueError(f"{path}: {row['path']!r:.80} must be a directory here")
        if not str(row["type"]).startswith("sentence_transformers."):
            raise ValueError(
                f"{path}: {row['type']!r:.80} is code of its own, which is not run; modules must "
                "be of sentence_transformers; with --pooling the transformer alone is converted"
            )
        Settings(path, row).require(_REQUIRED[MODULES_FILE])
    return [Module(kind.rsplit(".", 1)[-1], path) for kind, path in modules]


def read_modules(directory: Path) -> Modules | None:
    """Reads the directories of modules; None if there are none.

    ValueError unless they are a transformer, a pooling, any number of dense layers and dropouts,
    and at most one normalization, in order.
    """
    if not (modules := list_modules(directory)):
        return None
    kinds = [module.kind for module in modules]
    normalize = kinds[-1:] == ["Normalize"]
    middle = modules[2 : len(modules) - normalize]
    is_known = all(module.kind in _AFTER_POOLING for module in middle)
    if kinds[:2] != ["Transformer", "Pooling"] or not is_known:
        raise ValueError(
            f"{directory / MODULES_FILE}: modules must be Transformer, Pooling, then Dense and "
            f"Dropout, at the end Normalize, where there are any; found {', '.join(kinds):.200}; "
            "with --pooling the transformer alone is converted"
        )
    transformer = modules[0].directory
    # The first versions name the file for the kind of transformer.
    path = next(iter(sorted(transformer.glob("sentence_*_config.json"))), None)
    settings = read_settings(path) if path else Settings(transformer, {})
    settings.require(_REQUIRED["Transformer"])
    if normalize:
        module_settings(modules[-1])
    length, use = settings.get("max_seq_length"), read_use(directory)
    return Modules(
        transformer=transformer,
        pooling=_pooling(modules[1], use.prompts),
        projections=tuple(p for p in map(_projection, middle) if p is not None),
        normalize=normalize,
        max_length_tokens=length and settings.size("max_seq_length"),
        lowercase=bool(settings.get("do_lower_case", False)),
        use=use,
    )


def read_use(directory: Path) -> Use:
    """Reads prompts, width and similarity of a directory; ValueError for a wrong one."""
    path = directory / SETTINGS_FILE
    settings = read_settings(path, optional=True)
    settings.require(_REQUIRED[SETTINGS_FILE])
    prompts, name = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(
        text is None or isinstance(text, str) for text in prompts.values()
    ):
        raise ValueError(f"{path}: prompts must map names to texts; found {prompts!r:.60}")
    if name is not None and (not isinstance(name, str) or name not in prompts):
        raise ValueError(f"{path}: default_prompt_name {name!r:.60} must be one of its prompts")
    # sentence-transformers writes null or nothing where it knows a name of a prompt but has none.
    has_any = any(prompts.values())
    prompts = {key: text for key, text in prompts.items() if has_any and text is not None}
    dim = settings.get("truncate_dim")
    return Use(
        prompts,
        name if name in prompts else None,
        None if dim is None else settings.size("truncate_dim"),
        settings.get("similarity_fn_name"),
    )


def module_settings(module: Module) -> Settings:
    """The config.json of a module; empty for one that has none, as older ones of Normalize."""
    optional = module.kind in ("Normalize", "Dropout")
    settings = read_settings(module.directory / CONFIG_FILE, optional=optional)
    settings.require(_REQUIRED.get(module.kind, {}))
    return settings


def _pooling(module: Module, prompts: Mapping[str, str]) -> str:
    path, settings = module.directory / CONFIG_FILE, module_settings(module)
    modes = settings.get("pooling_mode")
    if modes is None:
        modes = [
            key.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
            for key, chosen in settings.items()
            if key.startswith("pooling_mode_") and chosen
        ]
    modes = modes if isinstance(modes, list) and modes else [modes or "mean"]
    if len(modes) != 1 or not isinstance(modes[0], str) or modes[0] not in POOLINGS:
        raise ValueError(
            f"{path}: the pooling must be one of {', '.join(POOLINGS)}; found "
            f"{', '.join(map(str, modes)):.80}; with --pooling the transformer alone is converted"
        )
    if any(prompts.values()) and not settings.get("include_prompt", True):
        raise ValueError(
            f"{path}: include_prompt must be true where there are prompts; found "
            f"{', '.join(prompts):.60}"
        )
    return POOLINGS[modes[0]]


def _projection(module: Module) -> Projection | None:
    """Reads a module after the pooling; None for dropout, which is for training."""
    path, settings = module.directory / CONFIG_FILE, module_settings(module)
    if module.kind == "Dropout":
        return None
    name = str(settings.get("activation_function", "torch.nn.modules.activation.Tanh"))
    activation = TORCH_ACTIVATIONS.get(name.rsplit(".", 1)[-1])
    if activation is None or not name.startswith("torch.nn."):
        raise ValueError(
            f"{path}: activation_function must be one of PyTorch's "
            f"{', '.join(TORCH_ACTIVATIONS)}; found {name!r:.60}"
        )
    layer = settings.size("out_features"), activation, bool(settings.get("bias", True))
    return Projection(module.directory, settings.size("in_features"), layer)


def write_modules(directory: Path, kinds: Sequence[str]) -> list[Path]:
    """Writes the `modules.json` of these classes; returns the directory of each, made.

    That of the first is `directory`.
    """
    paths = [f"{i}_{kind}" if i else "" for i, kind in enumerate(kinds)]
    rows = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths))
    ]
    write_json(directory / MODULES_FILE, rows)
    folders = [directory / path for path in paths]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    return folders
