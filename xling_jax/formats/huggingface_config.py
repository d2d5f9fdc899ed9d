"""The `config.json` of a Hugging Face transformer in our terms, and what its tensors are called.

Settings that would change vectors and that our encoder does not have are refused.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from xling_jax.files.json_text import parse_json
from xling_jax.models.numpy_bert import POSITION_BUCKETS
from xling_jax.models.numpy_layers import ACTIVATIONS

CONFIG_FILE = "config.json"


class Layout(NamedTuple):
    """Names of the sizes and tensors of one kind of model.

    Attributes:
        sizes: our name -> key of config.json.
        token, position, norm: names of the tables and of the norm of their sum.
        layer: our name -> name of that matrix or norm in layer {}, without `.weight` and `.bias`.
        activation: key of config.json, "" if `gelu_activation` chooses between gelu and relu.
        token_type: name of the table of token types, "" without one.
        prefixes: what names may begin with, in checkpoints of a model with a task's head.
        has_pooler: whether there is a dense layer on the first token, `pooler.dense`.
        dropout: keys of config.json for `dropout` and `attention_dropout`, both 0.1 by default.
        pad_id: default of `pad_token_id`.
        skips_padding: whether positions are counted from pad_id + 1.
        position_bias: name of the table of biases by distance, "" without one.
    """

    sizes: Mapping[str, str]
    token: str
    position: str
    norm: str
    layer: Mapping[str, str]
    activation: str
    token_type: str
    prefixes: tuple[str, ...]
    has_pooler: bool = False
    dropout: tuple[str, str] = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    pad_id: int = 0
    skips_padding: bool = False
    position_bias: str = ""


_TABLES = {"vocab_size": "vocab_size", "positions": "max_position_embeddings"}
_BERT = Layout(
    sizes=_TABLES
    | {
        "width": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "ffn_width": "intermediate_size",
    },
    token="embeddings.word_embeddings",
    position="embeddings.position_embeddings",
    norm="embeddings.LayerNorm",
    layer={
        "query": "encoder.layer.{}.attention.self.query",
        "key": "encoder.layer.{}.attention.self.key",
        "value": "encoder.layer.{}.attention.self.value",
        "attention_output": "encoder.layer.{}.attention.output.dense",
        "attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
        "ffn_inner": "encoder.layer.{}.intermediate.dense",
        "ffn_outer": "encoder.layer.{}.output.dense",
        "ffn_norm": "encoder.layer.{}.output.LayerNorm",
    },
    activation="hidden_act",
    token_type="embeddings.token_type_embeddings",
    prefixes=("", "bert.", "roberta."),
    has_pooler=True,
)
_DISTILBERT = Layout(
    sizes=_TABLES
    | {"width": "dim", "layers": "n_layers", "heads": "n_heads", "ffn_width": "hidden_dim"},
    token="embeddings.word_embeddings",
    position="embeddings.position_embeddings",
    norm="embeddings.LayerNorm",
    layer={
        "query": "transformer.layer.{}.attention.q_lin",
        "key": "transformer.layer.{}.attention.k_lin",
        "value": "transformer.layer.{}.attention.v_lin",
        "attention_output": "transformer.layer.{}.attention.out_lin",
        "attention_norm": "transformer.layer.{}.sa_layer_norm",
        "ffn_inner": "transformer.layer.{}.ffn.lin1",
        "ffn_outer": "transformer.layer.{}.ffn.lin2",
        "ffn_norm": "transformer.layer.{}.output_layer_norm",
    },
    activation="activation",
    token_type="",
    prefixes=("", "distilbert."),
    dropout=("dropout", "attention_dropout"),
)
_XLM = Layout(
    sizes=_TABLES | {"width": "emb_dim", "layers": "n_layers", "heads": "n_heads"},
    token="embeddings",
    position="position_embeddings",
    norm="layer_norm_emb",
    layer={
        "query": "attentions.{}.q_lin",
        "key": "attentions.{}.k_lin",
        "value": "attentions.{}.v_lin",
        "attention_output": "attentions.{}.out_lin",
        "attention_norm": "layer_norm1.{}",
        "ffn_inner": "ffns.{}.lin1",
        "ffn_outer": "ffns.{}.lin2",
        "ffn_norm": "layer_norm2.{}",
    },
    activation="",
    token_type="",
    prefixes=("", "transformer."),
    dropout=("dropout", "attention_dropout"),
    pad_id=2,
)
_ROBERTA = _BERT._replace(pad_id=1, skips_padding=True)
_MPNET = _ROBERTA._replace(
    layer=_BERT.layer
    | {
        "query": "encoder.layer.{}.attention.attn.q",
        "key": "encoder.layer.{}.attention.attn.k",
        "value": "encoder.layer.{}.attention.attn.v",
        "attention_output": "encoder.layer.{}.attention.attn.o",
        "attention_norm": "encoder.layer.{}.attention.LayerNorm",
    },
    token_type="",
    prefixes=("", "mpnet."),
    position_bias="encoder.relative_attention_bias",
)
LAYOUTS = {
    "bert": _BERT,
    "camembert": _ROBERTA,
    "distilbert": _DISTILBERT,
    "mpnet": _MPNET,
    "roberta": _ROBERTA,
    "xlm": _XLM,
    "xlm-roberta": _ROBERTA,
}

# Key of config.json -> the only supported value.
_REQUIRED = {
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
    "causal": False,
    "is_encoder": True,
    "asm": False,
}

_ACTIVATION_NAMES = {"gelu_python": "gelu", "silu": "swish"} | dict.fromkeys(
    ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"), "gelu_tanh"
)


class Published(NamedTuple):
    """The transformer of a directory.

    Attributes:
        model_type: key of `LAYOUTS`.
        layout: names of its tensors.
        sizes: width, layers, heads, ffn_width, activation and layer_norm_epsilon, arguments of
            `models.bert.BertEncoder`.
        dropout: likewise, its rates in training.
        vocab_size: rows of the token table.
        positions: rows of the position table.
        token_types: rows of the table of token types, 0 without one.
        first_position: row of the position table for the first token.
        position_buckets: rows of the table of biases by distance, 0 without one.
        pad_id: of padding, unless the tokenizer names one; None if padding gets an id that no
            text has.
    """

    model_type: str
    layout: Layout
    sizes: dict[str, Any]
    dropout: dict[str, float]
    vocab_size: int
    positions: int
    token_types: int
    first_position: int
    position_buckets: int
    pad_id: int | None


def read_json(path: Path) -> Any:
    """Returns the content of a JSON file; raises ValueError if it is missing or not JSON."""
    try:
        return parse_json(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise ValueError(
            f"{path}: missing; give a model directory as Hugging Face publishes it, whole"
        ) from None


def read_settings(path: Path) -> dict[str, Any]:
    """`read_json` of a file that must hold an object."""
    settings = read_json(path)
    if not isinstance(settings, dict):
        raise ValueError(f"{path}: must hold a JSON object; found {type(settings).__name__}")
    return settings


def read_config(directory: Path) -> Published:
    """Reads the `config.json` of a transformer.

    Raises:
        ValueError: if it is missing or broken, or describes another kind of model.
    """
    path = directory / CONFIG_FILE
    config = read_settings(path)
    model_type = read_model_type(directory, LAYOUTS)
    check_values(path, config, _REQUIRED)
    if model_type == "xlm" and "vocab_size" not in config:
        config["vocab_size"] = config.get("n_words")
    layout = LAYOUTS[model_type]
    sizes = {ours: read_size(path, config, key) for ours, key in layout.sizes.items()}
    sizes.setdefault("ffn_width", 4 * sizes["width"])
    if sizes["width"] % sizes["heads"]:
        width, heads = layout.sizes["width"], layout.sizes["heads"]
        raise ValueError(f"{path}: {heads}={sizes['heads']} must divide {width}={sizes['width']}")
    pad_id = config.get("pad_token_id", config.get("pad_index"))
    pad_id = layout.pad_id if pad_id is None else pad_id
    if type(pad_id) is not int or not 0 <= pad_id < sizes["vocab_size"]:
        raise ValueError(f"{path}: pad_token_id must be an id; found {pad_id!r:.60}")
    epsilon = config.get("layer_norm_eps", 1e-12)
    if type(epsilon) not in (int, float) or not 0 <= epsilon < 1:
        raise ValueError(f"{path}: layer_norm_eps must be from 0 to 1; found {epsilon!r:.60}")
    buckets = 0
    if layout.position_bias:
        buckets = read_size(path, config, "relative_attention_num_buckets", POSITION_BUCKETS)
        if buckets < POSITION_BUCKETS:
            raise ValueError(
                f"{path}: relative_attention_num_buckets must be at least {POSITION_BUCKETS}; "
                f"found {buckets}"
            )
        pad_id = layout.pad_id  # MPNet counts positions from it whatever its config says
    return Published(
        model_type,
        layout,
        vocab_size=sizes.pop("vocab_size"),
        positions=sizes.pop("positions"),
        sizes=sizes
        | {"activation": _activation(path, config, layout), "layer_norm_epsilon": float(epsilon)},
        dropout=_dropout(path, config, layout),
        token_types=read_size(path, config, "type_vocab_size", 2) if layout.token_type else 0,
        first_position=pad_id + 1 if layout.skips_padding else 0,
        position_buckets=buckets,
        pad_id=pad_id,
    )


def read_model_type(directory: Path, known: Iterable[str]) -> str:
    """Returns the `model_type` of a transformer's `config.json`.

    Raises:
        ValueError: if it is missing or broken, not a known type, or the model is code of its own.
    """
    path = directory / CONFIG_FILE
    settings = read_settings(path)
    model_type = settings.get("model_type")
    if model_type == "new":
        raise ValueError(
            f"{path}: model_type 'new' is Python code in the directory, which is not run; take "
            "the model in the layout of transformers 5, model_type 'gte'"
        )
    if not isinstance(model_type, str) or model_type not in (known := list(known)):
        raise ValueError(
            f"{path}: model_type {model_type!r:.60} is not supported; it must be one of "
            f"{', '.join(known)}"
        )
    if settings.get("auto_map"):
        raise ValueError(
            f"{path}: auto_map names Python code in the directory, which is not run; if the "
            f"vectors are those of transformers' own {model_type}, remove auto_map"
        )
    return model_type


def check_values(path: Path, settings: Mapping[str, Any], required: Mapping[str, Any]) -> None:
    """Raises ValueError for a setting with another value than the required one."""
    for key, value in required.items():
        if settings.get(key, value) not in (value, None):
            raise ValueError(f"{path}: {key} must be {value!r}; found {settings[key]!r:.60}")


def read_size(path: Path, settings: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Returns a positive integer from a JSON file; raises ValueError for anything else."""
    value = settings.get(key, default)
    if type(value) is not int or value < 1:
        found = "nothing" if value is None else f"{value!r:.60}"
        raise ValueError(f"{path}: {key} must be a whole number above 0; found {found}")
    return value


def read_rate(path: Path, settings: Mapping[str, Any], key: str, default: float = 0.0) -> float:
    """Returns a dropout rate from a JSON file; raises ValueError for anything else."""
    rate = default if settings.get(key) is None else settings[key]
    if type(rate) not in (int, float) or not 0 <= rate < 1:
        raise ValueError(f"{path}: {key} must be at least 0 and below 1; found {rate!r:.60}")
    return float(rate)


def _dropout(path: Path, config: Mapping[str, Any], layout: Layout) -> dict[str, float]:
    rates = [read_rate(path, config, key, 0.1) for key in layout.dropout]
    # DistilBERT has none on the output of its attention.
    after_attention = 0.0 if layout is _DISTILBERT else rates[0]
    names = ("dropout", "attention_dropout", "attention_output_dropout")
    return dict(zip(names, [*rates, after_attention], strict=True))


def _activation(path: Path, config: Mapping[str, Any], layout: Layout) -> str:
    if not layout.activation:
        return "gelu" if config.get("gelu_activation", True) else "relu"
    return read_activation(path, config, layout.activation)


def read_activation(path: Path, config: Mapping[str, Any], key: str, default: str = "gelu") -> str:
    """Returns a key of `models.bert.ACTIVATIONS`; raises ValueError for an unknown activation."""
    name = config.get(key, default)
    ours = _ACTIVATION_NAMES.get(name, name) if isinstance(name, str) else None
    if ours not in ACTIVATIONS:
        known = sorted({*ACTIVATIONS, *_ACTIVATION_NAMES} - {"gelu_tanh"})
        raise ValueError(f"{path}: {key} must be one of {', '.join(known)}; found {name!r:.60}")
    return ours
