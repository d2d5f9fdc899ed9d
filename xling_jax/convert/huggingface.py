"""Published encoders in Hugging Face model directories as model directories of ours.

    BERT, RoBERTa, XLM-R, XLM, DistilBERT            config.json, weights, tokenizer files
    what sentence-transformers makes of them         modules.json names pooling and dense layers

Everything is read from disk and nothing is downloaded. The vectors are those of `transformers` and
`sentence-transformers`; neither is needed.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_jax.convert.huggingface_config import Published, read_config
from xling_jax.convert.huggingface_modules import Projection, read_modules
from xling_jax.convert.huggingface_tensors import Tensors
from xling_jax.convert.huggingface_tokenizer import read_tokenizer
from xling_jax.encode.model_directory import save_model

# `pooler` is the dense layer with tanh that BERT puts on its first token, as LaBSE uses it.
POOLINGS = ("mean", "first", "max", "pooler")
COMPUTE_DTYPES = ("float32", "bfloat16")


class _Head(NamedTuple):
    """What turns token states into a vector."""

    pooling: str
    projections: tuple[Projection, ...]
    normalize: bool


def convert_huggingface(
    source: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    pooling: str | None = None,
    layer: int | None = None,
    pool_specials: bool = True,
    compute_dtype: str = "float32",
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
        compute_dtype: `float32` or `bfloat16`; the parameters stay float32.
        prefix: put in front of every text, such as e5's "query: ". None takes the default prompt
            of sentence-transformers, mostly none.
        language: whose Moses rules split the text, for XLM alone.
        first_token: special token in front of the text; None is the tokenizer's own.
        languages: codes of the training languages, for information.
        max_length_tokens: longer texts are cut; None is the model's limit.
        overwrite: replace a model directory that is there.

    Returns:
        What was recorded of the conversion.

    Raises:
        ImportError: without a library that a file needs.
        OSError: if a file cannot be read or written.
        ValueError: if a file is missing or not what it should be, or an argument is out of range.
    """
    source = Path(source)
    modules = read_modules(source) if pooling is None and layer is None else None
    transformer = modules.transformer if modules else _transformer_directory(source)
    published = read_config(transformer)
    if modules:
        head = _Head(modules.pooling, modules.projections, modules.normalize)
    else:
        head = _chosen_head(pooling, transformer, published)
    if prefix is None:
        prefix = modules.prefix if modules else ""
    vocab, tokenizer_limit = read_tokenizer(
        transformer,
        published,
        prefix=prefix,
        language=language,
        first_token=first_token,
        lowercase=modules.lowercase if modules else False,
    )
    _check_rows(transformer, vocab.size, published.vocab_size)
    encoder_args = _encoder_args(published, head, layer, pool_specials, compute_dtype)
    positions = encoder_args["max_length_tokens"]
    limits = (positions, tokenizer_limit, modules.max_length_tokens if modules else None)
    tensors = Tensors(transformer)
    training = {
        "converted_from": "a Hugging Face model directory",
        "source": source.resolve().name,
        "model_type": published.model_type,
        "weights": tensors.path.name,
        "layer": f"{encoder_args['layers']} of {published.sizes['layers']}",
        "pooling": _describe(head),
    }
    save_model(
        directory,
        family="bert",
        encoder_args={**encoder_args, "pad_id": vocab.pad_id},
        params=_encoder_params(tensors, published, encoder_args["layers"]) | _head_params(head),
        vocab=vocab,
        languages=languages,
        max_length_tokens=_limit(max_length_tokens, positions, limits),
        training=training,
        overwrite=overwrite,
    )
    return training


def _check_rows(transformer: Path, num_tokens: int, rows: int) -> None:
    if num_tokens > rows:
        raise ValueError(
            f"{transformer}: the tokenizer has {num_tokens} tokens, the model's table {rows} rows; "
            "the files are from different models"
        )


def _limit(asked: int | None, positions: int, limits: Sequence[int | None]) -> int:
    """The longest input in tokens: what is asked for, or the smallest limit that is set."""
    if asked is None:
        return min(limit for limit in limits if limit is not None)
    if not 3 <= asked <= positions:
        raise ValueError(
            f"max_length_tokens={asked} must be from 3 to {positions}, the positions of the model"
        )
    return asked


def _describe(head: _Head) -> str:
    """The head in words: "first, dense 768 tanh, normalized"."""
    parts = [head.pooling, *(f"dense {p.width} {p.activation}" for p in head.projections)]
    return ", ".join(parts + ["normalized"] * head.normalize)


def _transformer_directory(source: Path) -> Path:
    """The transformer; older sentence-transformers kept it in a folder of its own."""
    folder = source / "0_Transformer"
    return folder if folder.is_dir() and not (source / "config.json").is_file() else source


def _chosen_head(pooling: str | None, transformer: Path, published: Published) -> _Head:
    pooling = pooling or "mean"
    if pooling not in POOLINGS:
        raise ValueError(f"pooling={pooling!r} must be one of {', '.join(POOLINGS)}")
    if pooling != "pooler":
        return _Head(pooling, (), False)
    width = published.sizes["width"]
    if not published.layout.has_pooler:
        raise ValueError(
            f"pooling='pooler': {published.model_type} has no such layer; take mean or first"
        )
    return _Head(
        "first", (Projection(transformer, "pooler.dense", width, width, "tanh", True),), False
    )


def _encoder_args(
    published: Published,
    head: _Head,
    layer: int | None,
    pool_specials: bool,
    compute_dtype: str,
) -> dict[str, Any]:
    """Constructor arguments of `models.bert.BertEncoder`."""
    layers = published.sizes["layers"]
    if layer is not None and not 0 <= layer <= layers:
        raise ValueError(f"layer={layer} must be from 0 to {layers}, the layers of the model")
    if compute_dtype not in COMPUTE_DTYPES:
        raise ValueError(f"compute_dtype={compute_dtype!r} must be float32 or bfloat16")
    if not pool_specials and head.pooling == "first":
        raise ValueError(
            "pool_specials=False: the pooling is the first special token alone; "
            "take pooling='mean' or 'max'"
        )
    return {
        **published.sizes,
        "vocab_size": published.vocab_size,
        "layers": layers if layer is None else layer,
        "max_length_tokens": published.positions - published.first_position,
        "pooling": head.pooling,
        "pool_specials": pool_specials,
        "projections": [[p.width, p.activation, p.use_bias] for p in head.projections],
        "normalize": head.normalize,
        "dtype": compute_dtype,
    }


def _encoder_params(tensors: Tensors, published: Published, layers: int) -> dict[str, Any]:
    """Parameters of `models.bert.BertEncoder` but for the head."""
    layout, width = published.layout, published.sizes["width"]
    found = (p for p in layout.prefixes if f"{p}{layout.token}.weight" in tensors.names)
    reader = _Reader(tensors, next(found, ""))
    positions = reader.take(f"{layout.position}.weight", published.positions, width)
    if published.token_types:
        # Every token of a sentence has type 0.
        types = reader.take(f"{layout.token_type}.weight", published.token_types, width)
        positions = positions + types[0]
    params: dict[str, Any] = {
        "embedding": reader.take(f"{layout.token}.weight", published.vocab_size, width),
        "position_embedding": positions[published.first_position :],
        "embedding_norm": reader.norm(layout.norm, width),
    }
    for number in range(layers):
        names = {ours: name.format(number) for ours, name in layout.layer.items()}
        params[f"blocks_{number}"] = reader.layer(names, width, published.sizes["ffn_width"])
    return params


def _head_params(head: _Head) -> dict[str, Any]:
    params = {}
    for number, dense in enumerate(head.projections):
        tensors = Tensors(dense.directory)
        # A pooler's name has the prefix of the transformer's.
        ends = (name for name in tensors.names if f".{name}".endswith(f".{dense.tensor}.weight"))
        name = next(ends, dense.tensor).removesuffix(".weight")
        reader = _Reader(tensors, "")
        params[f"projections_{number}"] = reader.dense(
            name, dense.inputs, dense.width, use_bias=dense.use_bias
        )
    return params


class _Reader:
    """Tensors of PyTorch modules as parameters of Linen's.

    Args:
        tensors: what to read.
        prefix: what all names begin with.
    """

    def __init__(self, tensors: Tensors, prefix: str):
        self._tensors, self._prefix = tensors, prefix

    def take(self, name: str, *shape: int) -> np.ndarray:
        """Returns a tensor as it is."""
        return self._tensors.take(self._prefix + name, *shape)

    def norm(self, name: str, width: int) -> dict[str, np.ndarray]:
        """Parameters of a layer norm."""
        return {
            "scale": self.take(f"{name}.weight", width),
            "bias": self.take(f"{name}.bias", width),
        }

    def dense(
        self, name: str, inputs: int, outputs: int, use_bias: bool = True
    ) -> dict[str, np.ndarray]:
        """Parameters of a dense layer, whose matrix PyTorch keeps transposed."""
        params = {"kernel": self.take(f"{name}.weight", outputs, inputs).T}
        if use_bias:
            params["bias"] = self.take(f"{name}.bias", outputs)
        return params

    def layer(self, names: dict[str, str], width: int, ffn_width: int) -> dict[str, Any]:
        """Parameters of a `models.bert.BertLayer`."""
        inputs = [self.dense(names[part], width, width) for part in ("query", "key", "value")]
        joined = {
            "kernel": np.concatenate([part["kernel"] for part in inputs], axis=1),
            "bias": np.concatenate([part["bias"] for part in inputs]),
        }
        return {
            "attention_input": joined,
            "attention_output": self.dense(names["attention_output"], width, width),
            "attention_norm": self.norm(names["attention_norm"], width),
            "ffn_inner": self.dense(names["ffn_inner"], width, ffn_width),
            "ffn_outer": self.dense(names["ffn_outer"], ffn_width, width),
            "ffn_norm": self.norm(names["ffn_norm"], width),
        }
