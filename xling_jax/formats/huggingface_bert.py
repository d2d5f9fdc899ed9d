"""BERT, RoBERTa, XLM-R, CamemBERT, XLM, DistilBERT and MPNet in the terms of `models.bert`.

Settings that would change vectors and that our encoder does not have are refused.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_jax.formats.huggingface_files import (
    CONFIG_FILE,
    Settings,
    Tensors,
    read_settings,
    with_unused_rows,
)
from xling_jax.models.numpy_bert import POSITION_BUCKETS

FAMILY = "bert"


class Layout(NamedTuple):
    """Names of the sizes and tensors of one kind of model.

    Attributes:
        sizes: our name -> key of config.json.
        token, position, norm: names of the tables and of the norm of their sum.
        layer: our name -> name of that matrix or norm in layer {}, without `.weight` and `.bias`.
        activation: key of config.json, "" if `gelu_activation` chooses between gelu and relu.
        token_type: name of the table of token types, "" without one.
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


class Published(NamedTuple):
    """The transformer of a directory, with the sizes and rates of `models.bert.BertEncoder`.

    Its tables have `vocab_size` rows of tokens, `positions`, `token_types` and `position_buckets`,
    0 without one; `first_position` is the row of the first token. `unplaced_id` is that of a token
    which positions do not count, and `counts_left` says whether they count padding on the left.
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
    unplaced_id: int | None = None
    counts_left: bool = False


def read_config(directory: Path) -> Published:
    """Reads the `config.json` of a kind in `LAYOUTS`; ValueError for settings not supported."""
    config = read_settings(directory / CONFIG_FILE)
    model_type = config["model_type"]
    config.require(_REQUIRED)
    if model_type == "xlm" and "vocab_size" not in config:
        config["vocab_size"] = config.get("n_words")
    layout = LAYOUTS[model_type]
    sizes = {ours: config.size(key) for ours, key in layout.sizes.items()}
    sizes.setdefault("ffn_width", 4 * sizes["width"])
    if sizes["width"] % sizes["heads"]:
        width, heads = layout.sizes["width"], layout.sizes["heads"]
        raise ValueError(
            f"{config.path}: {heads}={sizes['heads']} must divide {width}={sizes['width']}"
        )
    pad_id = config.get("pad_token_id", config.get("pad_index"))
    pad_id = layout.pad_id if pad_id is None else pad_id
    if type(pad_id) is not int or not 0 <= pad_id < sizes["vocab_size"]:
        raise config.error("pad_token_id", "an id")
    epsilon = config.get("layer_norm_eps", 1e-12)
    if type(epsilon) not in (int, float) or not 0 <= epsilon < 1:
        raise config.error("layer_norm_eps", "from 0 to 1")
    buckets = 0
    if layout.position_bias:
        buckets = config.size("relative_attention_num_buckets", POSITION_BUCKETS)
        if buckets < POSITION_BUCKETS:
            raise config.error("relative_attention_num_buckets", f"at least {POSITION_BUCKETS}")
        pad_id = layout.pad_id  # MPNet counts positions from it whatever its config says
    return Published(
        model_type,
        layout,
        vocab_size=sizes.pop("vocab_size"),
        positions=sizes.pop("positions"),
        sizes=sizes
        | {"activation": _activation(config, layout), "layer_norm_epsilon": float(epsilon)},
        dropout=_dropout(config, layout),
        token_types=config.size("type_vocab_size", 2) if layout.token_type else 0,
        first_position=pad_id + 1 if layout.skips_padding else 0,
        position_buckets=buckets,
        unplaced_id=pad_id if layout.skips_padding else None,
        counts_left=not layout.skips_padding,
    )


def _dropout(config: Settings, layout: Layout) -> dict[str, float]:
    rates = [config.rate(key, 0.1) for key in layout.dropout]
    # DistilBERT has none on the output of its attention.
    after_attention = 0.0 if layout is _DISTILBERT else rates[0]
    names = ("dropout", "attention_dropout", "attention_output_dropout")
    return dict(zip(names, [*rates, after_attention], strict=True))


def _activation(config: Settings, layout: Layout) -> str:
    if not layout.activation:
        return "gelu" if config.get("gelu_activation", True) else "relu"
    return config.activation(layout.activation)


def encoder_params(
    tensors: Tensors, published: Published, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Parameters of `models.bert.BertEncoder` without projections."""
    layout, width = published.layout, published.sizes["width"]
    tensors.begin_at(f"{layout.token}.weight")
    positions = tensors.take(f"{layout.position}.weight", published.positions, width)
    if published.token_types:
        # Every token of a sentence has type 0.
        types = tensors.take(f"{layout.token_type}.weight", published.token_types, width)
        positions = positions + types[0]
    table = tensors.take(f"{layout.token}.weight", published.vocab_size, width)
    table = with_unused_rows(table, arguments["vocab_size"])
    if published.unplaced_id is not None:  # the row of all of them
        table[published.unplaced_id] += positions[published.unplaced_id]
    params: dict[str, Any] = {
        "embedding": table,
        "position_embedding": positions[published.first_position :],
        "embedding_norm": tensors.norm(layout.norm, width),
    }
    if buckets := published.position_buckets:
        bias = tensors.take(f"{layout.position_bias}.weight", buckets, published.sizes["heads"])
        params["position_bias"] = bias[:POSITION_BUCKETS]
    for number in range(arguments["layers"]):
        names = {ours: name.format(number) for ours, name in layout.layer.items()}
        params[f"blocks_{number}"] = _layer_params(tensors, names, published.sizes)
    return params


def _layer_params(tensors: Tensors, names: dict[str, str], sizes: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a `models.bert.BertLayer`."""
    width, ffn_width = sizes["width"], sizes["ffn_width"]
    inputs = [tensors.dense(names[part], width, width) for part in ("query", "key", "value")]
    return {
        "attention_input": {
            "kernel": np.concatenate([part["kernel"] for part in inputs], axis=1),
            "bias": np.concatenate([part["bias"] for part in inputs]),
        },
        "attention_output": tensors.dense(names["attention_output"], width, width),
        "attention_norm": tensors.norm(names["attention_norm"], width),
        "ffn_inner": tensors.dense(names["ffn_inner"], width, ffn_width),
        "ffn_outer": tensors.dense(names["ffn_outer"], ffn_width, width),
        "ffn_norm": tensors.norm(names["ffn_norm"], width),
    }
