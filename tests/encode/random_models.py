"""Untrained encoders with random parameters so large that every one shows in a vector."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from xling_jax.encode.model_directory import save_model
from xling_jax.models import registry
from xling_jax.models.numpy_static import NumpyStatic, choose_keys
from xling_jax.text.vocabularies import Vocabulary


def random_params(module, scale: float = 0.3) -> Any:
    """Parameters of a Linen module."""
    tokens = np.ones((1, 8), np.int32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), tokens)["params"]
    draw = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: draw.normal(0, scale, leaf.shape).astype(leaf.dtype), shapes)


def random_static(static: NumpyStatic, vocab: Vocabulary, sentences: list[str]) -> dict[str, Any]:
    """Parameters of a static encoder, and the keys of what the sentences hold."""
    draw = np.random.default_rng(0)
    params: dict[str, Any] = {}
    for name, (shape, dtype) in static.parameters.items():
        limits = (-2, 3) if dtype == "int8" else (0, 256)
        is_float = dtype == "float32"
        values = draw.normal(size=shape) if is_float else draw.integers(*limits, shape)
        params[name] = values.astype(dtype)
    if static.features:
        ids, lengths = vocab.encode_flat(sentences)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        params["feature_keys"], _ = choose_keys(static, [(ids, offsets)])
    return params


def save_random(
    directory: Path, family: str, vocab: Vocabulary, arguments: dict[str, Any], **settings: Any
) -> Path:
    """Saves an encoder, by default with random parameters; returns its directory."""
    arguments = {"vocab_size": vocab.size, "pad_id": vocab.pad_id, **arguments}
    given = {"languages": ("de", "en"), "max_length_tokens": 40, "training": {}, **settings}
    if "params" not in given:
        given["params"] = random_params(registry.build_encoder(family, **arguments))
    save_model(directory, family=family, encoder_args=arguments, vocab=vocab, **given)
    return directory
