"""Transformers with rotary positions on Hugging Face, in the terms of `models.rotary`.

    modernbert     ModernBERT, mmBERT
    qwen3          Qwen3-Embedding
    gemma3_text    EmbeddingGemma
    gte            gte-multilingual, in the layout of transformers

Settings that would change vectors and that our encoder does not have are refused.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_jax.formats.huggingface_bert import Published
from xling_jax.formats.huggingface_files import (
    CONFIG_FILE,
    Settings,
    Tensors,
    read_settings,
    with_unused_rows,
)
from xling_jax.registry import check_choice
from xling_jax.text.huggingface_vocab import HuggingFaceVocab

FAMILY = "rotary"

_FULL, _SLIDING = "full_attention", "sliding_attention"

# Key of config.json -> the only supported value.
_REQUIRED = {
    "is_decoder": False,
    "add_cross_attention": False,
    "attn_logit_softcapping": None,
    "partial_rotary_factor": 1.0,
}


class RotaryLayout(NamedTuple):
    """Names of the settings and tensors of one kind of model.

    Attributes:
        read: (config, number of layers) -> arguments of `models.rotary.RotaryEncoder`
            besides the sizes.
        activation, epsilon: keys of config.json.
        token, embedding_norm, final_norm: names of the table and of norms, "" without one.
        attention_input: matrices of queries, keys and values in layer {}, or the one of all.
        ffn_inner: matrices of the inner layer and of the gate, or the one of both.
        attention_output, ffn_outer: names of those matrices.
        norms: our name -> name of that norm in layer {}.
        dropout: our rate -> key of config.json; the others are 0.
        activation_default, epsilon_default: where config.json does not have them.
        gate_first: whether the one matrix of `ffn_inner` holds the gate first.
        norm_offset: what is added to the stored scale of norms.
        token_type: name of the table of token types, "" without one.
        has_pooler: as in `huggingface_bert.Layout`.
    """

    read: Callable[[Settings, int], dict[str, Any]]
    activation: str
    epsilon: str
    token: str
    embedding_norm: str
    final_norm: str
    attention_input: tuple[str, ...]
    ffn_inner: tuple[str, ...]
    attention_output: str
    ffn_outer: str
    norms: Mapping[str, str]
    dropout: Mapping[str, str]
    epsilon_default: float
    activation_default: str = "gelu"
    gate_first: bool = False
    norm_offset: float = 0.0
    token_type: str = ""
    has_pooler: bool = False


def read_config(directory: Path) -> Published:
    """Reads the `config.json` of a kind in `LAYOUTS`; ValueError for settings not supported."""
    config = read_settings(directory / CONFIG_FILE)
    path = config.path
    layout = LAYOUTS[config["model_type"]]
    config.require(_REQUIRED)
    width, heads = (config.size(key) for key in ("hidden_size", "num_attention_heads"))
    layers = config.size("num_hidden_layers")
    sizes = {
        "width": width,
        "layers": layers,
        "heads": heads,
        "kv_heads": heads,
        "ffn_width": config.size("intermediate_size"),
        "activation": config.activation(layout.activation, layout.activation_default),
        "norm_epsilon": config.number(layout.epsilon, layout.epsilon_default),
        **layout.read(config, layers),
    }
    if "head_width" not in sizes:
        if width % heads:
            raise ValueError(f"{path}: num_attention_heads={heads} must divide hidden_size={width}")
        sizes["head_width"] = width // heads
    if sizes["head_width"] % 2:
        raise ValueError(f"{path}: heads must have an even width; found {sizes['head_width']}")
    if heads % sizes["kv_heads"]:
        raise ValueError(
            f"{path}: num_key_value_heads={sizes['kv_heads']} must divide "
            f"num_attention_heads={heads}"
        )
    has_types = layout.token_type and config.get("type_vocab_size") != 0
    return Published(
        config["model_type"],
        layout,
        sizes=sizes,
        vocab_size=config.size("vocab_size"),
        positions=config.size("max_position_embeddings"),
        token_types=config.size("type_vocab_size") if has_types else 0,
        first_position=0,
        position_buckets=0,
        dropout={ours: config.rate(key) for ours, key in layout.dropout.items()},
    )


def encoder_arguments(
    published: Published, arguments: Mapping[str, Any], vocab: HuggingFaceVocab
) -> dict[str, Any]:
    """Completes the arguments of an encoder, which may end at an earlier layer."""
    layers = arguments["layers"]
    specials = (("bos", vocab.bos_id), ("eos", vocab.eos_id))
    return {
        **arguments,
        "local_layers": [number for number in arguments["local_layers"] if number < layers],
        "final_norm": arguments["final_norm"] and layers == published.sizes["layers"],
        "specials": [[name] if number is not None else [] for name, number in specials],
    }


def encoder_params(
    tensors: Tensors, published: Published, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Parameters of `models.rotary.RotaryEncoder` without projections.

    Rows of its table beyond the published ones are zeros.
    """
    layout, sizes, width = published.layout, published.sizes, published.sizes["width"]
    tensors.begin_at(f"{layout.token}.weight")
    table = tensors.take(f"{layout.token}.weight", published.vocab_size, width)
    if published.token_types:
        # Every token of a sentence has type 0.
        types = tensors.take(f"{layout.token_type}.weight", published.token_types, width)
        table = table + types[0]
    params: dict[str, Any] = {"embedding": with_unused_rows(table, arguments["vocab_size"])}
    norms = {"embedding_norm": layout.embedding_norm}
    if arguments["final_norm"]:
        norms["final_norm"] = layout.final_norm
    for ours, name in norms.items():
        if name:
            params[ours] = _norm(tensors, name, width, sizes, layout)
    for number in range(arguments["layers"]):
        params[f"blocks_{number}"] = _layer_params(tensors, number, sizes, layout)
    return params


def _layer_params(
    tensors: Tensors, number: int, sizes: Mapping[str, Any], layout: RotaryLayout
) -> dict[str, Any]:
    """Parameters of a `models.rotary.RotaryLayer`."""
    width, ffn_width, head = sizes["width"], sizes["ffn_width"], sizes["head_width"]
    queries, keys = sizes["heads"] * head, sizes["kv_heads"] * head

    def dense(names: Sequence[str], inputs: int, outputs: Sequence[int], bias: str) -> Any:
        """The layers of these names as one, which the directory may hold as one."""
        parts = outputs if len(names) == len(outputs) else [sum(outputs)]
        use_bias = sizes.get(bias, False)
        found = [
            tensors.dense(name.format(number), inputs, size, use_bias)
            for name, size in zip(names, parts, strict=True)
        ]
        return {key: np.concatenate([part[key] for part in found], axis=-1) for key in found[0]}

    inner = dense(layout.ffn_inner, width, (ffn_width, ffn_width), "ffn_inner_bias")
    if layout.gate_first:
        inner = {name: np.roll(value, ffn_width, axis=-1) for name, value in inner.items()}
    attention_input = dense(layout.attention_input, width, (queries, keys, keys), "attention_bias")
    params = {
        "attention_input": attention_input,
        "attention_output": dense([layout.attention_output], queries, [width], "attention_bias"),
        "ffn_inner": inner,
        "ffn_outer": dense([layout.ffn_outer], ffn_width, [width], "ffn_outer_bias"),
    }
    # The input of the first layer may be normalized already.
    normed = number == 0 and sizes["embedding_norm"] and sizes["norm_placement"] == "pre"
    skipped = "attention_norm" if normed else ""
    for ours, name in layout.norms.items():
        if ours == skipped:
            continue
        size = head if ours in ("query_norm", "key_norm") else width
        params[ours] = _norm(tensors, name.format(number), size, sizes, layout)
    return params


def _norm(
    tensors: Tensors, name: str, width: int, sizes: Mapping[str, Any], layout: RotaryLayout
) -> dict[str, np.ndarray]:
    if sizes.get("norm_bias"):
        return tensors.norm(name, width)
    return {"scale": tensors.take(f"{name}.weight", width) + np.float32(layout.norm_offset)}


def _modernbert(config: Settings, layers: int) -> dict[str, Any]:
    every = config.size("global_attn_every_n_layers", 3)
    rope = _nested_ropes(
        config, {_FULL: "global_rope_theta", _SLIDING: "local_rope_theta"}, 160000.0
    )
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
        "local_layers": _local_layers(config, layers, lambda number: number % every != 0),
        **rope,
    }


def _qwen3(config: Settings, layers: int) -> dict[str, Any]:
    first_local = config.get("max_window_layers", 28)
    windowed = config.flag("use_sliding_window")
    windowed = windowed and config.get("sliding_window") is not None
    local = _local_layers(config, layers, lambda n: windowed and n >= first_local)
    if local and not windowed:
        raise ValueError(
            f"{config.path}: layer_types has {_SLIDING}, which needs use_sliding_window=true and a "
            "sliding_window"
        )
    return {
        **_decoder(config, 128),
        "norm_placement": "pre",
        "causal": True,
        "local_layers": local,
        **({"window": config.size("sliding_window")} if local else {}),
        **_one_rope(config, 10000.0),
    }


def _gemma3(config: Settings, layers: int) -> dict[str, Any]:
    every = config.size("sliding_window_pattern", 6)
    causal = not config.flag("use_bidirectional_attention")
    window = config.size("sliding_window", 4096)
    return {
        **_decoder(config, 256),
        "norm_placement": "both",
        "query_scale": config.number("query_pre_attn_scalar", 256) ** -0.5,
        "embedding_scale": float(np.float32(config.size("hidden_size") ** 0.5)),
        "causal": causal,
        # In both directions, the window is shared between them.
        "window": window if causal else window // 2 + 1,
        "local_layers": _local_layers(config, layers, lambda n: (n + 1) % every != 0),
        **_nested_ropes(config, {_FULL: "rope_theta", _SLIDING: "rope_local_base_freq"}, 1000000.0),
    }


def _gte(config: Settings, layers: int) -> dict[str, Any]:
    return {
        "norm": "layer",
        "norm_bias": True,
        "norm_placement": "post",
        "embedding_norm": True,
        "final_norm": False,
        "attention_bias": True,
        "ffn_outer_bias": True,
        "local_layers": [],
        **_one_rope(config, 160000.0),
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


def _local_layers(config: Settings, layers: int, is_local: Callable[[int], bool]) -> list[int]:
    """Numbers of the layers with a window: as `layer_types` says, `is_local` where it is absent."""
    types = config.get("layer_types")
    if types is None:
        return [number for number in range(layers) if is_local(number)]
    if not isinstance(types, list) or len(types) != layers or not {*types} <= {_FULL, _SLIDING}:
        raise config.error("layer_types", f"{layers} times {_FULL} or {_SLIDING}")
    return [number for number, kind in enumerate(types) if kind == _SLIDING]


def _one_rope(config: Settings, theta: float) -> dict[str, Any]:
    """The rotation of a model with one for all layers."""
    found = config.get("rope_scaling") or config.get("rope_parameters") or {}
    original = config.get("original_max_position_embeddings")
    if isinstance(found, dict) and original is not None:  # transformers prefers this one
        found = {**found, "original_max_position_embeddings": original}
    rope = _rope(config, found, "rope_theta", theta)
    return {"rope": rope, "local_rope": rope}


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
    scaling = config.get("rope_scaling") or {}
    ropes = {}
    for ours, kind, default in (("rope", _FULL, theta), ("local_rope", _SLIDING, 10000.0)):
        # Gemma's applies to layers without a window alone, ModernBERT's to all.
        scales = kind == _FULL or config["model_type"] == "modernbert"
        parameters = {**(found.get(kind) or {}), **(scaling if scales else {})}
        ropes[ours] = _rope(config, parameters, keys[kind], default)
    if not found and config.get("local_rope_theta", 0) is None:  # the same as globally
        ropes["local_rope"][0] = ropes["rope"][0]
    return ropes


def _rope(config: Settings, parameters: Any, key: str, default: float) -> list[Any]:
    """The argument `rope` of the encoder, see `models.rotary.rope_frequencies`."""
    from xling_jax.models.rotary import ROPE_SCALINGS  # with JAX, which others do without

    if not isinstance(parameters, dict):
        raise config.error("rope_parameters", "an object")
    parameters = Settings(config.path, parameters)
    theta = parameters.number("rope_theta", config.number(key, default))
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    check_choice(f"{config.path}: rope_type", kind, ("default", "dynamic", *ROPE_SCALINGS))
    parameters.require({"partial_rotary_factor": 1.0, "truncate": True})
    if kind == "default":
        return [theta]
    number = parameters.number
    scale = number("factor")
    if kind == "dynamic":  # scales what is longer than the positions of the model
        return [theta]
    if kind == "linear":
        return [theta, kind, scale]
    positions = config.size("max_position_embeddings")
    original = number("original_max_position_embeddings", float(positions))
    if kind == "llama3":
        return [theta, kind, scale, number("low_freq_factor"), number("high_freq_factor"), original]
    grows = lambda factor: 0.1 * factor * np.log(scale) + 1.0 if scale > 1 else 1.0
    factor = grows(1.0)
    if parameters.get("mscale") and parameters.get("mscale_all_dim"):
        factor = grows(number("mscale")) / grows(number("mscale_all_dim"))
    factor = number("attention_factor", float(factor))
    return [
        theta,
        kind,
        scale,
        number("beta_fast", 32.0),
        number("beta_slow", 1.0),
        original,
        factor,
    ]


_DECODER = {
    "token": "embed_tokens",
    "embedding_norm": "",
    "final_norm": "norm",
    "attention_input": tuple(f"layers.{{}}.self_attn.{part}_proj" for part in "qkv"),
    "ffn_inner": ("layers.{}.mlp.gate_proj", "layers.{}.mlp.up_proj"),
    "attention_output": "layers.{}.self_attn.o_proj",
    "ffn_outer": "layers.{}.mlp.down_proj",
    "dropout": {"attention_dropout": "attention_dropout"},
    "epsilon": "rms_norm_eps",
    "epsilon_default": 1e-6,
}
_DECODER_NORMS = {
    "attention_norm": "layers.{}.input_layernorm",
    "query_norm": "layers.{}.self_attn.q_norm",
    "key_norm": "layers.{}.self_attn.k_norm",
}
LAYOUTS = {
    "gemma3_text": RotaryLayout(
        _gemma3,
        activation="hidden_activation",
        activation_default="gelu_pytorch_tanh",
        norms=_DECODER_NORMS
        | {
            "attention_output_norm": "layers.{}.post_attention_layernorm",
            "ffn_norm": "layers.{}.pre_feedforward_layernorm",
            "ffn_output_norm": "layers.{}.post_feedforward_layernorm",
        },
        norm_offset=1.0,
        **_DECODER,
    ),
    "gte": RotaryLayout(
        _gte,
        activation="hidden_act",
        epsilon="layer_norm_eps",
        token="embeddings.word_embeddings",
        embedding_norm="embeddings.LayerNorm",
        final_norm="",
        attention_input=("encoder.layer.{}.attention.qkv_proj",),
        ffn_inner=("encoder.layer.{}.mlp.up_gate_proj",),
        attention_output="encoder.layer.{}.attention.o_proj",
        ffn_outer="encoder.layer.{}.mlp.down_proj",
        norms={"attention_norm": "encoder.layer.{}.attn_ln", "ffn_norm": "encoder.layer.{}.mlp_ln"},
        dropout={"attention_dropout": "attention_probs_dropout_prob"}
        | dict.fromkeys(
            ("embedding_dropout", "attention_output_dropout", "activation_dropout", "dropout"),
            "hidden_dropout_prob",
        ),
        epsilon_default=1e-12,
        gate_first=True,
        token_type="embeddings.token_type_embeddings",
    ),
    "modernbert": RotaryLayout(
        _modernbert,
        activation="hidden_activation",
        epsilon="norm_eps",
        token="embeddings.tok_embeddings",
        embedding_norm="embeddings.norm",
        final_norm="final_norm",
        attention_input=("layers.{}.attn.Wqkv",),
        ffn_inner=("layers.{}.mlp.Wi",),
        attention_output="layers.{}.attn.Wo",
        ffn_outer="layers.{}.mlp.Wo",
        norms={"attention_norm": "layers.{}.attn_norm", "ffn_norm": "layers.{}.mlp_norm"},
        dropout={
            "embedding_dropout": "embedding_dropout",
            "attention_dropout": "attention_dropout",
            "attention_output_dropout": "attention_dropout",
            "activation_dropout": "mlp_dropout",
        },
        epsilon_default=1e-5,
    ),
    "qwen3": RotaryLayout(
        _qwen3,
        activation="hidden_act",
        activation_default="silu",
        norms=_DECODER_NORMS | {"ffn_norm": "layers.{}.post_attention_layernorm"},
        **_DECODER,
    ),
}
