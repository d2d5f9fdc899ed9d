"""Kinds of transformers on Hugging Face, in the terms of `models.bert` and `models.rotary`.

    bert      BERT, RoBERTa, XLM-R, CamemBERT, XLM, DistilBERT
    rotary    ModernBERT and mmBERT, Qwen3-Embedding, EmbeddingGemma (gemma3_text)

A kind is a `Layout` in `LAYOUTS`: names of settings and tensors, and a function for what is its
own. Settings that would change vectors and that our encoders do not have are refused.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_jax.formats.files import CONFIG_FILE, Settings, Tensors, read_settings
from xling_jax.registry import check_choice

_FULL, _SLIDING = "full_attention", "sliding_attention"
# Family of our encoder -> key of config.json -> the only supported value.
_REQUIRED: dict[str, dict[str, Any]] = {
    "bert": {
        "is_decoder": False,
        "add_cross_attention": False,
        "position_embedding_type": "absolute",
        "causal": False,
        "is_encoder": True,
        "asm": False,
    },
    "rotary": {
        "is_decoder": False,
        "add_cross_attention": False,
        "attn_logit_softcapping": None,
        "partial_rotary_factor": 1.0,
    },
}
_DROPOUT = 0.1  # rate of an absent key


class Layout(NamedTuple):
    """Names of the settings and tensors of one kind of model.

    Attributes:
        sizes: our name -> key of config.json.
        token, token_type, position: tables, "" without one.
        embedding_norm, final_norm: norms around the layers, "" without one.
        layer: our name -> names of those matrices in layer {}, joined where there are several, or
            of that norm, without `.weight` and `.bias`.
        dropout: our rate -> key of config.json, "" where the original has none; those of rotary
            encoders are published as 0, which is our default.
        family: of our encoder.
        epsilon: our name, key of config.json, default.
        activation: key of config.json, default.
        pad_id: default of `pad_token_id`.
        skips_padding: whether positions are counted from pad_id + 1.
        has_bias: whether all dense layers and norms have one; else the sizes say which.
        norm_offset: what is added to the stored scale of norms.
        own: (config, sizes) -> further arguments of the encoder.
    """

    sizes: Mapping[str, str]
    token: str
    embedding_norm: str
    layer: Mapping[str, str]
    dropout: Mapping[str, str] = {}
    family: str = "bert"
    position: str = ""
    token_type: str = ""
    final_norm: str = ""
    epsilon: tuple[str, str, float] = ("layer_norm_epsilon", "layer_norm_eps", 1e-12)
    activation: tuple[str, str] = ("hidden_act", "gelu")
    pad_id: int = 0
    skips_padding: bool = False
    has_bias: bool = True
    norm_offset: float = 0.0
    own: Callable[[Settings, dict[str, Any]], dict[str, Any]] = lambda config, sizes: {}


class Published(NamedTuple):
    """The transformer of a directory, with the sizes and dropout rates of our encoder.

    Its tables have `vocab_size` rows of tokens, `positions` and `token_types`, 0 without one.
    `unplaced_id` is that of a token which positions do not count.
    """

    model_type: str
    layout: Layout
    sizes: dict[str, Any]
    dropout: dict[str, float]
    vocab_size: int
    positions: int
    token_types: int
    unplaced_id: int | None = None

    @property
    def first_position(self) -> int:
        """The row of the position of the first token."""
        return 0 if self.unplaced_id is None else self.unplaced_id + 1


def read_config(directory: Path) -> Published:
    """Reads the `config.json` of a transformer; ValueError for kinds or settings not supported."""
    config = read_settings(directory / CONFIG_FILE)
    kind = config.get("model_type")
    if config.get("auto_map"):
        raise ValueError(
            f"{config.path}: auto_map names Python code in the directory, which is not run; remove "
            f"it if the vectors are those of transformers' own {kind}"
        )
    check_choice(f"{config.path}: model_type", kind, LAYOUTS)
    layout = LAYOUTS[kind]
    config.require(_REQUIRED[layout.family])
    if kind == "xlm":
        config.setdefault("vocab_size", config.get("n_words"))
    sizes: dict[str, Any] = {ours: config.size(key) for ours, key in layout.sizes.items()}
    sizes.setdefault("ffn_width", 4 * sizes["width"])
    vocab_size, positions = sizes.pop("vocab_size"), sizes.pop("positions")
    sizes["activation"] = config.activation(*layout.activation)
    ours, key, default = layout.epsilon
    sizes[ours] = config.number(key, default)
    sizes |= layout.own(config, sizes)
    if layout.family == "rotary":
        sizes.setdefault("head_width", sizes["width"] // sizes["heads"])
        sizes.setdefault("kv_heads", sizes["heads"])
    has_types = layout.token_type and config.get("type_vocab_size") != 0
    unplaced_id = None
    if layout.skips_padding:
        found = config.get("pad_token_id")
        unplaced_id = layout.pad_id if found is None else found
        if type(unplaced_id) is not int or not 0 <= unplaced_id < vocab_size:
            raise config.error("pad_token_id", "an id")
    rates = layout.dropout.items()
    return Published(
        kind,
        layout,
        sizes=sizes,
        dropout={ours: config.rate(key, _DROPOUT) if key else 0.0 for ours, key in rates},
        vocab_size=vocab_size,
        positions=positions,
        token_types=config.size("type_vocab_size", 2) if has_types else 0,
        unplaced_id=unplaced_id,
    )


def encoder_params(
    tensors: Tensors, published: Published, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Parameters of an encoder without projections.

    Rows of its table beyond the published ones are zeros.
    """
    layout, width = published.layout, published.sizes["width"]
    tensors.begin_at(f"{layout.token}.weight")
    table = tensors.take(f"{layout.token}.weight", published.vocab_size, width)
    params: dict[str, Any] = {}
    if layout.position:
        positions = tensors.take(f"{layout.position}.weight", published.positions, width)
        if published.token_types:  # every token of a sentence has type 0
            types = tensors.take(f"{layout.token_type}.weight", published.token_types, width)
            positions = positions + types[0]
        params["position_embedding"] = positions[published.first_position :]
    unused = np.zeros((arguments["vocab_size"] - len(table), width), np.float32)
    params["embedding"] = np.concatenate([table, unused])
    if (unplaced := published.unplaced_id) is not None:  # the row of all of them
        params["embedding"][unplaced] += positions[unplaced]
    if layout.embedding_norm:
        params["embedding_norm"] = _norm(tensors, layout.embedding_norm, width, published)
    if arguments.get("final_norm"):
        params["final_norm"] = _norm(tensors, layout.final_norm, width, published)
    for number in range(arguments["layers"]):
        params[f"blocks_{number}"] = _layer_params(tensors, number, published)
    return params


def _layer_params(tensors: Tensors, number: int, published: Published) -> dict[str, Any]:
    """Parameters of a `models.bert.BertLayer` or `models.rotary.RotaryLayer`."""
    layout, sizes = published.layout, published.sizes
    width, ffn_width, heads = sizes["width"], sizes["ffn_width"], sizes["heads"]
    head = sizes.get("head_width", width // heads)
    keys = sizes.get("kv_heads", heads) * head
    gates = 1 if layout.family == "bert" else 2
    shapes = {
        "attention_input": ("attention_bias", width, (heads * head, keys, keys)),
        "attention_output": ("attention_bias", heads * head, (width,)),
        "ffn_inner": ("ffn_inner_bias", width, (ffn_width,) * gates),
        "ffn_outer": ("ffn_outer_bias", ffn_width, (width,)),
    }
    # The input of the first layer may be normalized already.
    normed = not number and sizes.get("embedding_norm") and sizes["norm_placement"] == "pre"
    skipped = "attention_norm" if normed else ""
    params: dict[str, Any] = {}
    for ours, pattern in layout.layer.items():
        names = pattern.format(number).split()
        if ours in shapes:
            bias, inputs, outputs = shapes[ours]
            use_bias = layout.has_bias or sizes.get(bias, False)
            outputs = outputs if len(names) == len(outputs) else (sum(outputs),)
            parts = [
                tensors.dense(name, inputs, size, use_bias)
                for name, size in zip(names, outputs, strict=True)
            ]
            params[ours] = {
                key: np.concatenate([part[key] for part in parts], axis=-1) for key in parts[0]
            }
        elif ours != skipped:
            size = head if ours in ("query_norm", "key_norm") else width
            params[ours] = _norm(tensors, *names, size, published)
    return params


def _norm(tensors: Tensors, name: str, width: int, published: Published) -> dict[str, np.ndarray]:
    layout = published.layout
    if layout.has_bias or published.sizes.get("norm_bias"):
        return tensors.norm(name, width)
    return {"scale": tensors.take(f"{name}.weight", width) + np.float32(layout.norm_offset)}


def _modernbert(config: Settings, sizes: dict[str, Any]) -> dict[str, Any]:
    every = config.size("global_attn_every_n_layers", 3)
    keys = {_FULL: "global_rope_theta", _SLIDING: "local_rope_theta"}
    mlp_bias = config.flag("mlp_bias")
    return {
        "norm": "layer",
        "norm_bias": config.flag("norm_bias"),
        "norm_placement": "pre",
        "embedding_norm": True,
        "final_norm": True,
        "attention_bias": config.flag("attention_bias"),
        "ffn_inner_bias": mlp_bias,
        "ffn_outer_bias": mlp_bias,
        # Tokens see those at a distance of up to half the window.
        "window": config.size("local_attention", 128) // 2 + 1,
        "local_layers": _local_layers(config, sizes, lambda number: number % every != 0),
        **_nested_ropes(config, keys, 160000.0),
    }


def _qwen3(config: Settings, sizes: dict[str, Any]) -> dict[str, Any]:
    config.require({"use_sliding_window": False})
    rope = _rope(config, config.get("rope_parameters") or {}, "rope_theta", 10000.0)
    return {
        **_decoder(config, 128),
        "norm_placement": "pre",
        "causal": True,
        "local_layers": [],
        "rope": rope,
        "local_rope": rope,
    }


def _gemma3(config: Settings, sizes: dict[str, Any]) -> dict[str, Any]:
    every = config.size("sliding_window_pattern", 6)
    causal = not config.flag("use_bidirectional_attention")
    window = config.size("sliding_window", 4096)
    return {
        **_decoder(config, 256),
        "norm_placement": "both",
        "query_scale": config.number("query_pre_attn_scalar", 256) ** -0.5,
        "embedding_scale": float(np.float32(sizes["width"] ** 0.5)),
        "causal": causal,
        # In both directions, the window is shared between them.
        "window": window if causal else window // 2 + 1,
        "local_layers": _local_layers(config, sizes, lambda n: (n + 1) % every != 0),
        **_nested_ropes(config, {_FULL: "rope_theta", _SLIDING: "rope_local_base_freq"}, 1000000.0),
    }


def _decoder(config: Settings, head_width: int) -> dict[str, Any]:
    """Arguments that Qwen3 and Gemma 3 share."""
    config.require({"is_causal": True})
    grouped = config.get("num_key_value_heads") is not None
    groups = "num_key_value_heads" if grouped else "num_attention_heads"
    return {
        "norm": "rms",
        "embedding_norm": False,
        "final_norm": True,
        "query_key_norm": True,
        "attention_bias": config.flag("attention_bias"),
        "kv_heads": config.size(groups),
        "head_width": config.size("head_dim", head_width),
    }


def _local_layers(
    config: Settings, sizes: dict[str, Any], is_local: Callable[[int], bool]
) -> list[int]:
    """Numbers of the layers with a window: as `layer_types` says, `is_local` where it is absent."""
    types, layers = config.get("layer_types"), sizes["layers"]
    if types is None:
        return [number for number in range(layers) if is_local(number)]
    if not isinstance(types, list) or len(types) != layers or not {*types} <= {_FULL, _SLIDING}:
        raise config.error("layer_types", f"{layers} times {_FULL} or {_SLIDING}")
    return [number for number, kind in enumerate(types) if kind == _SLIDING]


def _nested_ropes(config: Settings, keys: Mapping[str, str], theta: float) -> dict[str, Any]:
    """The rotations of a model with one for each kind of layer.

    `keys` names those of config.json that held θ before transformers 5, and `theta` is the default
    of layers without a window; that of the others is 10000.
    """
    found = config.get("rope_parameters") or {}
    if not isinstance(found, dict) or not {*found} <= {_FULL, _SLIDING}:
        raise ValueError(
            f"{config.path}: rope_parameters must hold {_FULL} and {_SLIDING}; found {found!r:.80}"
        )
    rope = _rope(config, found.get(_FULL) or {}, keys[_FULL], theta)
    local_rope = _rope(config, found.get(_SLIDING) or {}, keys[_SLIDING], 10000.0)
    if not found and config.get("local_rope_theta", 0) is None:  # the same as globally
        local_rope = rope
    return {"rope": rope, "local_rope": local_rope}


def _rope(config: Settings, parameters: Any, key: str, default: float) -> list[float]:
    """The argument `rope` of the encoder, in the parameters or, as before transformers 5, a key."""
    config.require({"rope_scaling": None})
    if not isinstance(parameters, dict):
        raise config.error("rope_parameters", "an object")
    parameters = Settings(config.path, parameters)
    parameters.require({"rope_type": "default", "partial_rotary_factor": 1.0})
    return [parameters.number("rope_theta", config.number(key, default))]


_TABLES = {"vocab_size": "vocab_size", "positions": "max_position_embeddings"}
_HIDDEN = _TABLES | {
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "ffn_width": "intermediate_size",
}
_ATTENTION = "encoder.layer.{0}.attention"


def _each(pattern: str, parts: str = "q k v") -> str:
    return " ".join(pattern.replace("*", part) for part in parts.split())


_BERT = Layout(
    sizes=_HIDDEN,
    token="embeddings.word_embeddings",
    position="embeddings.position_embeddings",
    embedding_norm="embeddings.LayerNorm",
    layer={
        "attention_input": _each(f"{_ATTENTION}.self.*", "query key value"),
        "attention_output": f"{_ATTENTION}.output.dense",
        "attention_norm": f"{_ATTENTION}.output.LayerNorm",
        "ffn_inner": "encoder.layer.{0}.intermediate.dense",
        "ffn_outer": "encoder.layer.{0}.output.dense",
        "ffn_norm": "encoder.layer.{0}.output.LayerNorm",
    },
    dropout={
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "attention_output_dropout": "hidden_dropout_prob",
    },
    token_type="embeddings.token_type_embeddings",
)
_ROBERTA = _BERT._replace(pad_id=1, skips_padding=True)
_DECODER = Layout(
    family="rotary",
    sizes=_HIDDEN,
    token="embed_tokens",
    embedding_norm="",
    final_norm="norm",
    layer={
        "attention_input": _each("layers.{0}.self_attn.*_proj"),
        "attention_output": "layers.{0}.self_attn.o_proj",
        "ffn_inner": "layers.{0}.mlp.gate_proj layers.{0}.mlp.up_proj",
        "ffn_outer": "layers.{0}.mlp.down_proj",
        "attention_norm": "layers.{0}.input_layernorm",
        "query_norm": "layers.{0}.self_attn.q_norm",
        "key_norm": "layers.{0}.self_attn.k_norm",
    },
    epsilon=("norm_epsilon", "rms_norm_eps", 1e-6),
    has_bias=False,
)
LAYOUTS = {
    "bert": _BERT,
    "camembert": _ROBERTA,
    "distilbert": _BERT._replace(
        sizes=_TABLES
        | {"width": "dim", "layers": "n_layers", "heads": "n_heads", "ffn_width": "hidden_dim"},
        layer={
            "attention_input": _each("transformer.layer.{0}.attention.*_lin"),
            "attention_output": "transformer.layer.{0}.attention.out_lin",
            "attention_norm": "transformer.layer.{0}.sa_layer_norm",
            "ffn_inner": "transformer.layer.{0}.ffn.lin1",
            "ffn_outer": "transformer.layer.{0}.ffn.lin2",
            "ffn_norm": "transformer.layer.{0}.output_layer_norm",
        },
        activation=("activation", "gelu"),
        token_type="",
        dropout={
            "dropout": "dropout",
            "attention_dropout": "attention_dropout",
            "attention_output_dropout": "",
        },
    ),
    "roberta": _ROBERTA,
    "xlm": Layout(
        sizes=_TABLES | {"width": "emb_dim", "layers": "n_layers", "heads": "n_heads"},
        token="embeddings",
        position="position_embeddings",
        embedding_norm="layer_norm_emb",
        layer={
            "attention_input": _each("attentions.{0}.*_lin"),
            "attention_output": "attentions.{0}.out_lin",
            "attention_norm": "layer_norm1.{0}",
            "ffn_inner": "ffns.{0}.lin1",
            "ffn_outer": "ffns.{0}.lin2",
            "ffn_norm": "layer_norm2.{0}",
        },
        own=lambda config, sizes: {
            "activation": "gelu" if config.get("gelu_activation", True) else "relu"
        },
        dropout={
            "dropout": "dropout",
            "attention_dropout": "attention_dropout",
            "attention_output_dropout": "dropout",
        },
        pad_id=2,
    ),
    "xlm-roberta": _ROBERTA,
    "gemma3_text": _DECODER._replace(
        own=_gemma3,
        activation=("hidden_activation", "gelu_pytorch_tanh"),
        layer=_DECODER.layer
        | {
            "attention_output_norm": "layers.{0}.post_attention_layernorm",
            "ffn_norm": "layers.{0}.pre_feedforward_layernorm",
            "ffn_output_norm": "layers.{0}.post_feedforward_layernorm",
        },
        norm_offset=1.0,
    ),
    "modernbert": _DECODER._replace(
        own=_modernbert,
        activation=("hidden_activation", "gelu"),
        token="embeddings.tok_embeddings",
        embedding_norm="embeddings.norm",
        final_norm="final_norm",
        layer={
            "attention_input": "layers.{0}.attn.Wqkv",
            "attention_output": "layers.{0}.attn.Wo",
            "ffn_inner": "layers.{0}.mlp.Wi",
            "ffn_outer": "layers.{0}.mlp.Wo",
            "attention_norm": "layers.{0}.attn_norm",
            "ffn_norm": "layers.{0}.mlp_norm",
        },
        epsilon=("norm_epsilon", "norm_eps", 1e-5),
    ),
    "qwen3": _DECODER._replace(
        own=_qwen3,
        activation=("hidden_act", "silu"),
        layer=_DECODER.layer | {"ffn_norm": "layers.{0}.post_attention_layernorm"},
    ),
}
