"""An encoder as a directory that `SentenceTransformer(PATH)` loads, with the same vectors.

    bert, and dual with post-norm    BertModel, pooling, dense layers, normalization
    tlaser                           XLMRobertaXLModel: pre-norm, a last norm, no norm of embeddings

transformers and sentence-transformers are not needed to write it. What their modules cannot say is
refused. What `model2vec` writes of a static encoder is a `StaticEmbedding` as well.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.encode.model_card import export_card
from xling_jax.encode.model_directory import CARD_FILE, ModelSpec, load_model
from xling_jax.files.embeddings import write_tensors
from xling_jax.formats.files import CONFIG_FILE, WEIGHTS_FILE, write_json
from xling_jax.formats.huggingface_layouts import LAYOUTS
from xling_jax.formats.modules import (
    MODULES_FILE,
    POOLINGS,
    SETTINGS_FILE,
    TORCH_ACTIVATIONS,
    write_modules,
)
from xling_jax.formats.registry import export_directory, refuse
from xling_jax.formats.tokenizer_json import tokenizer_json, with_specials
from xling_jax.text.huggingface_vocab import TOKENIZER_FILE, HuggingFaceVocab, load_tokenizer

_POOLINGS = {ours: theirs for theirs, ours in POOLINGS.items()}
# Our activation -> transformers' name, where that is another.
_ACTIVATIONS = {"gelu_tanh": "gelu_pytorch_tanh", "identity": "linear", "swish": "silu"}
_TORCH_ACTIVATIONS = {
    ours: f"{'linear' if theirs == 'Identity' else 'activation'}.{theirs}"
    for theirs, ours in TORCH_ACTIVATIONS.items()
}
# Our name -> name in layer {} of XLMRobertaXLModel.
_XLM_ROBERTA_XL = LAYOUTS["bert"].layer | {
    "attention_norm": "encoder.layer.{0}.attention.self_attn_layer_norm",
    "ffn_norm": "encoder.layer.{0}.LayerNorm",
}
_WAY_OUT = "use --to onnx, which holds every encoder"


def export_sentence_transformers(
    model: str | os.PathLike[str], output: str | os.PathLike[str], *, overwrite: bool = False
) -> dict[str, Any]:
    """Writes an encoder as a directory of sentence-transformers; returns its `modules`, in order.

    ImportError without `tokenizers`; ValueError if no modules give its vectors, saying why.
    """
    where = os.fspath(model)
    spec = load_model(model)
    _check(spec, where)
    content = tokenizer_json(spec.vocab, where)
    with export_directory(output, MODULES_FILE, overwrite) as fresh:
        names = _write_modules(spec, content, fresh)
        write_json(fresh / SETTINGS_FILE, _settings(spec))
        card = export_card(spec.config, "sentence-transformers", _SCRIPT)
        (fresh / CARD_FILE).write_text(card, encoding="utf-8")
    return {"modules": names}


def _check(spec: ModelSpec, where: str) -> None:
    """Raises OptionError for what has no form there."""
    family, module = spec.config["family"], spec.module
    also = {"static": ", or --to model2vec, which SentenceTransformer reads, too"}
    also["laser"] = ", or --to laser"
    rule = f"encoders of family {family} do not exist in sentence-transformers; {_WAY_OUT}"
    refuse(where, {rule + also.get(family, ""): family not in ("bert", "dual", "tlaser")})
    problems = {
        f"encoder.pooling={module.pooling!r} does not exist in sentence-transformers, which has "
        f"{', '.join(_POOLINGS)}; {_WAY_OUT}": module.pooling not in _POOLINGS,
        f"encoder.layers=0 does not exist in transformers; {_WAY_OUT}": (
            family == "dual" and not module.layers
        ),
        f"encoder.norm={getattr(module, 'norm', '')!r} without a norm after the last layer has no "
        f"form in transformers; {_WAY_OUT}": family == "dual" and module.norm != "post",
    }
    refuse(where, problems)


def _layers(spec: ModelSpec) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What config.json says of the kind of transformer, and the tensors of tables and layers."""
    family, module, params = spec.config["family"], spec.module, spec.params
    kind, activation, epsilon = ("bert", "BertModel"), "swish", 1e-12
    names, norm = LAYOUTS["bert"].layer, "embeddings.LayerNorm"
    if family == "bert":
        table, positions = params["embedding"], params["position_embedding"]
        activation, epsilon = module.activation, module.layer_norm_epsilon
        if (unplaced := module.unplaced_id) is not None:  # RoBERTa's padding; a text may hold it
            kind = "xlm-roberta", "XLMRobertaModel"
            positions = np.pad(positions, ((unplaced + 1, 0), (0, 0)))
    elif family == "dual":
        # Row 0 is that of padding, which is masked wherever it matters.
        table, positions = params["embedding"], params["position_embedding"][1:]
    else:
        from xling_jax.models.numpy_encoders import sinusoidal_positions

        kind = "xlm-roberta-xl", "XLMRobertaXLModel"
        activation, epsilon, names, norm = "relu", 1e-5, _XLM_ROBERTA_XL, "encoder.LayerNorm"
        table = np.asarray(params["embed"]["embedding"]) * np.sqrt(module.width).astype(np.float32)
        first = module.pad_id + 1  # transformers counts positions from there, too
        positions = np.zeros((first + spec.max_length_tokens, module.width), np.float32)
        positions[first:] = sinusoidal_positions(spec.max_length_tokens, module.width, first)
    tensors = {
        "embeddings.word_embeddings.weight": np.asarray(table),
        "embeddings.position_embeddings.weight": np.asarray(positions),
        **_norm(norm, params["final_norm" if family == "tlaser" else "embedding_norm"]),
    }
    for number in range(module.layers):
        layer = params[f"blocks_{number}"]
        layer = layer if family == "bert" else _joined(layer)
        for ours, pattern in names.items():
            parts, own = pattern.format(number).split(), layer[ours]
            if "scale" in own:
                tensors |= _norm(*parts, own)
                continue
            kernels, biases = (np.split(own[key], len(parts), -1) for key in ("kernel", "bias"))
            for name, kernel, bias in zip(parts, kernels, biases):
                tensors |= _dense(name, kernel, bias)
    config = {
        "model_type": kind[0],
        "architectures": [kind[1]],
        "hidden_act": _ACTIVATIONS.get(activation, activation),
        "layer_norm_eps": epsilon,
        "vocab_size": len(tensors["embeddings.word_embeddings.weight"]),
        "hidden_size": module.width,
        "num_hidden_layers": module.layers,
        "num_attention_heads": module.heads,
        "intermediate_size": module.ffn_width,
        "max_position_embeddings": len(tensors["embeddings.position_embeddings.weight"]),
        "type_vocab_size": 1,
        "pad_token_id": _padding(spec),
        "bos_token_id": spec.vocab.bos_id,
        "eos_token_id": spec.vocab.eos_id,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "torch_dtype": "float32",
    }
    width = module.width
    tensors["embeddings.token_type_embeddings.weight"] = np.zeros((1, width), np.float32)
    # No pooling reads it; without it transformers warns that it is missing.
    tensors |= _dense("pooler.dense", np.zeros((width, width), np.float32), np.zeros(width))
    return config, tensors


def _padding(spec: ModelSpec) -> int:
    """The id of padding, which a tokenizer must name; of the original where ours has no name."""
    unplaced = spec.config["encoder"].get("unplaced_id")
    if unplaced is not None:
        return unplaced
    pieces = spec.vocab.pieces()
    if pieces[spec.vocab.pad_id]:
        return spec.vocab.pad_id
    names = (name for name in ("[PAD]", "<pad>") if name in pieces)
    return next(map(pieces.index, names), spec.vocab.eos_id)


def _joined(layer: Mapping[str, Any]) -> dict[str, Any]:
    """A `models.layers.TransformerLayer` under the names of `models.bert.BertLayer`."""
    attention, ffn = layer["attention"], layer["ffn"]
    parts = [attention[part] for part in ("query", "key", "value")]
    return {
        **{name: layer[name] for name in ("attention_norm", "ffn_norm")},
        "attention_input": {k: np.concatenate([p[k] for p in parts], -1) for k in parts[0]},
        "attention_output": attention["output"],
        "ffn_inner": ffn["inner"],
        "ffn_outer": ffn["outer"],
    }


def _norm(name: str, params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{name}.weight": params["scale"], f"{name}.bias": params["bias"]}


def _dense(name: str, kernel: np.ndarray, bias: np.ndarray | None) -> dict[str, np.ndarray]:
    """PyTorch stores the transposed matrix."""
    tensors = {f"{name}.weight": np.asarray(kernel).T}
    return tensors if bias is None else tensors | {f"{name}.bias": bias}


def _write_modules(spec: ModelSpec, content: str, fresh: Path) -> list[str]:
    """Writes the modules; returns their names."""
    config, tensors = _layers(spec)
    write_json(fresh / CONFIG_FILE, config)
    _write_tensors(fresh / WEIGHTS_FILE, tensors)
    vocab, (first, last) = spec.vocab, spec.special_ids
    padding = _padding(spec)
    content = with_specials(content, vocab, first, last, spec.max_length_tokens, padding)
    (fresh / TOKENIZER_FILE).write_text(content, encoding="utf-8")
    token = load_tokenizer(content.encode(), TOKENIZER_FILE).id_to_token
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": spec.max_length_tokens,
        "truncation_side": vocab.truncation_side,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "pad_token": token(padding),
        **({"cls_token": token(first[0])} if first else {}),
        **({"sep_token": token(last[0])} if last else {}),
        # Of our own vocabularies, special tokens written out in a text are text.
        "split_special_tokens": not isinstance(vocab, HuggingFaceVocab),
    }
    write_json(fresh / "tokenizer_config.json", tokenizer)
    limit = {"max_seq_length": spec.max_length_tokens, "do_lower_case": False}
    write_json(fresh / "sentence_bert_config.json", limit)
    module, params = spec.module, spec.params
    activations = [activation for _, activation, _ in getattr(module, "projections", ())]
    names = ["Transformer", "Pooling", *["Dense"] * len(activations)]
    names += ["Normalize"] * getattr(module, "normalize", False)
    folders = write_modules(fresh, names)
    mode = _POOLINGS[module.pooling]
    chosen = {
        f"pooling_mode_{name}": name.startswith(mode)
        for name in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
    }
    write_json(folders[1] / CONFIG_FILE, {"word_embedding_dimension": module.width, **chosen})
    for number, (folder, activation) in enumerate(zip(folders[2:], activations)):
        own = params[f"projections_{number}"]
        inputs, outputs = own["kernel"].shape
        settings = {
            "in_features": inputs,
            "out_features": outputs,
            "bias": "bias" in own,
            "activation_function": f"torch.nn.modules.{_TORCH_ACTIVATIONS[activation]}",
        }
        write_json(folder / CONFIG_FILE, settings)
        tensors = _dense("linear", own["kernel"], own.get("bias"))
        _write_tensors(folder / WEIGHTS_FILE, tensors)
    return names


def _settings(spec: ModelSpec) -> dict[str, Any]:
    """Of config_sentence_transformers.json; what goes before every text goes into the prompts."""
    prefix = spec.vocab.text.prefix if isinstance(spec.vocab, HuggingFaceVocab) else ""
    prompts = {name: prefix + prompt for name, prompt in spec.prompts.items()}
    default = spec.default_prompt
    if prefix and default is None:
        default = "prefix"
        prompts[default] = prefix
    return {
        "similarity_fn_name": (spec.config.get("training") or {}).get("similarity", "cosine"),
        "prompts": prompts,
        "default_prompt_name": default,
        "truncate_dim": spec.truncate_dim,
    }


def _write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    plain = {name: np.asarray(value, np.float32) for name, value in tensors.items()}
    write_tensors(path, plain, {"format": "pt"})


_SCRIPT = """\
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("PATH/OF/THIS/DIRECTORY")
vectors = model.encode(["A sentence.", "Another one."])
"""
