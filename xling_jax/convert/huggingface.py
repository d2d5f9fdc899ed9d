"""Published encoders in Hugging Face model directories as model directories of ours.

    BERT, RoBERTa, XLM-R, XLM, DistilBERT            config.json, weights, tokenizer files
    what sentence-transformers makes of them         modules.json names pooling and dense layers

Everything is read from disk and nothing is downloaded. The vectors are those of `transformers` and
`sentence-transformers`; neither is needed.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.convert.huggingface_config import Published, read_config
from xling_jax.convert.huggingface_modules import Modules, Projection, read_modules
from xling_jax.convert.huggingface_tensors import Tensors
from xling_jax.convert.huggingface_tokenizer import read_tokenizer
from xling_jax.encode.model_directory import save_model
from xling_jax.models.dtypes import DTYPES
from xling_jax.registry import check_choice

# `pooler` is BERT's dense layer with tanh on the first token, as in LaBSE.
POOLINGS = ("mean", "first", "max", "pooler")


def convert_huggingface(
    source: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    pooling: str | None = None,
    layer: int | None = None,
    pool_specials: bool = True,
    compute_dtype: str | None = None,
    prefix: str | None = None,
    language: str = "en",
    first_token: str | None = None,
    languages: Sequence[str] = (),
    max_length_tokens: int | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes a model directory whose vectors are those of the published encoder.

    Args:
        source: directory with `config.json` or `modules.json`.
        directory: where to write.
        pooling: one of `POOLINGS`. None takes what `modules.json` says, dense layers and
            normalization included, and the mean where there is none; otherwise the transformer
            alone is converted.
        layer: number of the layer whose states are pooled, from 1; 0 for the embeddings. None is
            the last.
        pool_specials: whether the mean (or max) counts the special tokens around the text.
        compute_dtype: of `models.dtypes.DTYPES`, recorded as what the model computes in unless
            `xling_jax.load` is given another; None to let the device decide. Parameters stay
            float32.
        prefix: before every text, such as e5's "query: ". None takes the default prompt of
            sentence-transformers, mostly none.
        language: whose Moses rules split the text, for XLM only.
        first_token: special token before the text; None is the tokenizer's own.
        languages: codes of the training languages, for information.
        max_length_tokens: longer texts are cut; None is the model's limit.
        overwrite: replace a model directory that is there.

    Returns:
        The record of the conversion.

    Raises:
        ImportError: without a library that a file needs.
        OSError: if a file cannot be read or written.
        ValueError: if a file is missing or broken, or an argument is out of range.
    """
    source = Path(source)
    modules = read_modules(source) if pooling is None and layer is None else None
    # Older versions of sentence-transformers keep the transformer in a folder of its own.
    folder = source / "0_Transformer"
    alone = folder if folder.is_dir() and not (source / "config.json").is_file() else source
    transformer = modules.transformer if modules else alone
    published = read_config(transformer)
    modules = modules or _modules(pooling or "mean", transformer, published)
    vocab, tokenizer_limit = read_tokenizer(
        transformer,
        published,
        prefix=modules.prefix if prefix is None else prefix,
        language=language,
        first_token=first_token,
        lowercase=modules.lowercase,
    )
    if vocab.size > published.vocab_size:
        raise ValueError(
            f"{transformer}: the tokenizer has {vocab.size} tokens, the model's table "
            f"{published.vocab_size} rows; the files are from different models"
        )
    encoder_args = _encoder_args(published, modules, layer, pool_specials, compute_dtype)
    positions = encoder_args["max_length_tokens"]
    if max_length_tokens is None:
        limits = (positions, tokenizer_limit, modules.max_length_tokens)
        max_length_tokens = min(limit for limit in limits if limit is not None)
    elif not 3 <= max_length_tokens <= positions:
        raise ValueError(
            f"max_length_tokens={max_length_tokens} must be from 3 to {positions}, the positions "
            "of the model"
        )
    tensors = Tensors(transformer)
    head = [modules.pooling, *(f"dense {p.width} {p.activation}" for p in modules.projections)]
    training = {
        "converted_from": "a Hugging Face model directory",
        "source": source.resolve().name,
        "model_type": published.model_type,
        "weights": tensors.path.name,
        "layer": f"{encoder_args['layers']} of {published.sizes['layers']}",
        "pooling": ", ".join(head + ["normalized"] * modules.normalize),
    }
    params = _encoder_params(tensors, published, encoder_args["layers"])
    for number, projection in enumerate(modules.projections):
        params[f"projections_{number}"] = _projection_params(projection)
    save_model(
        directory,
        family="bert",
        encoder_args={**encoder_args, "pad_id": vocab.pad_id},
        params=params,
        vocab=vocab,
        languages=languages,
        max_length_tokens=max_length_tokens,
        training=training,
        overwrite=overwrite,
    )
    return training


def _modules(pooling: str, transformer: Path, published: Published) -> Modules:
    """The transformer alone, with a pooling."""
    check_choice("pooling", pooling, POOLINGS)
    if pooling != "pooler":
        return Modules(transformer, pooling)
    width = published.sizes["width"]
    if not published.layout.has_pooler:
        raise ValueError(
            f"pooling='pooler': {published.model_type} has no such layer; use mean or first"
        )
    pooler = Projection(transformer, "pooler.dense", width, width, "tanh", True)
    return Modules(transformer, "first", (pooler,))


def _encoder_args(
    published: Published,
    modules: Modules,
    layer: int | None,
    pool_specials: bool,
    compute_dtype: str | None,
) -> dict[str, Any]:
    """Constructor arguments of `models.bert.BertEncoder`."""
    layers = published.sizes["layers"]
    if layer is not None and not 0 <= layer <= layers:
        raise ValueError(f"layer={layer} must be from 0 to {layers}, the layers of the model")
    if compute_dtype is not None:
        check_choice("compute_dtype", compute_dtype, DTYPES)
    if not pool_specials and modules.pooling == "first":
        raise ValueError(
            "pool_specials=False: the pooling is that of the first special token; "
            "use pooling='mean' or 'max'"
        )
    return {
        **published.sizes,
        "vocab_size": published.vocab_size,
        "layers": layers if layer is None else layer,
        "max_length_tokens": published.positions - published.first_position,
        "pooling": modules.pooling,
        "pool_specials": pool_specials,
        "projections": [[p.width, p.activation, p.use_bias] for p in modules.projections],
        "normalize": modules.normalize,
        **({"dtype": compute_dtype} if compute_dtype else {}),
    }


def _encoder_params(tensors: Tensors, published: Published, layers: int) -> dict[str, Any]:
    """Parameters of `models.bert.BertEncoder` without projections."""
    layout, width = published.layout, published.sizes["width"]
    found = (p for p in layout.prefixes if f"{p}{layout.token}.weight" in tensors.names)
    tensors.prefix = next(found, "")
    positions = tensors.take(f"{layout.position}.weight", published.positions, width)
    if published.token_types:
        # Every token of a sentence has type 0.
        types = tensors.take(f"{layout.token_type}.weight", published.token_types, width)
        positions = positions + types[0]
    params: dict[str, Any] = {
        "embedding": tensors.take(f"{layout.token}.weight", published.vocab_size, width),
        "position_embedding": positions[published.first_position :],
        "embedding_norm": tensors.norm(layout.norm, width),
    }
    for number in range(layers):
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


def _projection_params(dense: Projection) -> dict[str, np.ndarray]:
    tensors = Tensors(dense.directory)
    # A pooler's name has the prefix of the transformer's.
    ends = (name for name in tensors.names if f".{name}".endswith(f".{dense.tensor}.weight"))
    name = next(ends, dense.tensor).removesuffix(".weight")
    return tensors.dense(name, dense.inputs, dense.width, use_bias=dense.use_bias)
