"""Model and objective of a config."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from xling_jax.models.registry import EncoderDecoder, build_model
from xling_jax.train.objective import LossFn, translation_objective


def compute_dtype(name: str) -> Any:
    """`auto`, `float32` or `bfloat16` to a dtype; auto is bfloat16 but on CPU."""
    if name == "auto":
        return jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
    if name not in ("float32", "bfloat16"):
        raise ValueError(f"compute_dtype={name!r} must be 'auto', 'float32' or 'bfloat16'")
    return jnp.dtype(name)


def build(
    config: ConfigDict, vocab_size: int, special_ids: Mapping[str, int]
) -> tuple[EncoderDecoder, LossFn]:
    """Model and objective of a config."""
    model = build_model(
        encoder=config.encoder.to_dict(),
        decoder=config.decoder.to_dict(),
        vocab_size=vocab_size,
        num_languages=len(config.languages),
        pad_id=special_ids["pad"],
        dropout_generator=config.dropout_generator,
        dtype=compute_dtype(config.compute_dtype),
    )
    loss_fn = translation_objective(
        model,
        vocab_size=vocab_size,
        bos_id=special_ids["bos"],
        eos_id=special_ids["eos"],
        pad_id=special_ids["pad"],
        **config.objective,
    )
    return model, loss_fn


def init_params(model: EncoderDecoder) -> Callable[[jax.Array], Any]:
    """Returns key -> parameters, shapes taken from a batch of the smallest shape."""
    tokens, language = jnp.zeros((1, 4), jnp.int32), jnp.zeros((1,), jnp.int32)
    return lambda key: model.init(key, tokens, language)["params"]
